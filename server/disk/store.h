/* The facts that a cluster must not forget: which term the coordinator has, which run there is,
 * which cuts are recorded. The facts are small and rarely written (never per step). They are
 * durable when a call returns.
 *
 * Every write names the term of the coordinator that makes it and fails with ERR_OLD_TERM when
 * another has taken a newer term since (P7), so an old coordinator can't undo what its successor
 * decided. Tickets, members and weights are not here: tickets are rebuilt, weights lie in
 * checkpoints.
 *
 * Each daemon has a store in its data directory (its boot numbers), the coordinator's has the run.
 * store_sqlite.c is the one implementation so far. One thread. Errors: ERR_NO_SPACE, ERR_CORRUPT,
 * ERR_DENIED, ERR_BUSY (another daemon has it open), ERR_NOMEM, ERR_IO; the reason names the file
 * and the place. */
#ifndef ROOST_SERVER_DISK_STORE_H
#define ROOST_SERVER_DISK_STORE_H

#include "common/buf.h"
#include "server/coordinator/coordinator.h"

struct store;

/* A run as an operator started it. Texts are owned: store_run_release(). */
struct store_run {
    uint64_t run;
    char *directory; /* one run a directory, by its one name: run_directory_name() */
    char *spec;      /* effective YAML */
    char *restore;   /* file with the initial weights; "" */
    uint32_t servers_min;
    uint8_t data_digest[WIRE_DIGEST_BYTES];
    uint64_t samples;
    uint64_t validation_samples;
    double unigram_entropy;
    enum run_state state;
    char reason[COORDINATOR_TEXT_BYTES];
    bool has_fingerprint;
    uint8_t fingerprint[WIRE_DIGEST_BYTES];
};

void store_run_release(struct store_run *run); /* {0} is fine */

/* Opens or creates it. `path` is a file. */
enum err store_open_sqlite(const char *path, struct store **ret_store,
                           struct reason *reason) MUST_USE;
void store_free(struct store *store); /* NULL is fine */

/* A new store begins at a random number and goes on by random steps: when a directory was lost, or
 * comes from a backup, it does not give again what it gave before. */
/* This start's number, above all earlier ones of this store (P3). Not bound to a term. */
enum err store_next_boot(struct store *store, uint64_t *ret_boot, struct reason *reason) MUST_USE;
/* Takes a term above all earlier ones. */
enum err store_take_term(struct store *store, uint64_t *ret_term, struct reason *reason) MUST_USE;
/* The coordinator of `term` has the term `newer` from now on, because servers had obeyed a higher
 * term. */
enum err store_put_term(struct store *store, uint64_t term, uint64_t newer,
                        struct reason *reason) MUST_USE;

/* Recorded cuts, the newest first. */
struct store_cuts {
    const struct cut_record *list;
    size_t count;
};
/* What another store knew of a run. */
struct store_past {
    const struct coordinator_past *facts; /* with the newest cut */
    struct store_cuts older;
};
/* A new run; its number, above all earlier ones, is set in *run. ERR_EXISTS: the directory has one
 * already, with a recorded cut; one without has trained nothing and is forgotten. `past`: NULL:
 * there is none; this store's generation does not fall below it. Everything is stored, or nothing.
 * The caller makes sure that no run is active. */
enum err store_add_run(struct store *store, uint64_t term, struct store_run *run,
                       const struct store_past *past, struct reason *reason) MUST_USE;
/* The same run with other settings (spec, servers_min), perhaps without its fingerprint: it is
 * continued. ERR_NOT_FOUND. */
enum err store_change_run(struct store *store, uint64_t term, const struct store_run *run,
                          struct reason *reason) MUST_USE;
/* The run's settings have changed: a worker has timed its products. */
enum err store_put_spec(struct store *store, uint64_t term, uint64_t run, const char *spec,
                        struct reason *reason) MUST_USE;
enum err store_put_state(struct store *store, uint64_t term, uint64_t run, enum run_state state,
                         const char *why, struct reason *reason) MUST_USE;
/* Every other run that is STARTING or TRAINING is STOPPED, but by no operator: a stop that one asked
 * for, and that the run had not come to, is forgotten. There may be none. */
enum err store_stop_others(struct store *store, uint64_t term, uint64_t run, const char *why,
                           struct reason *reason) MUST_USE;
/* An operator has asked for a stop of the run: it is in the run's past until the run is changed.
 * Once more: fine. */
enum err store_put_stop(struct store *store, uint64_t term, uint64_t run, const char *why,
                        struct reason *reason) MUST_USE;
enum err store_put_fingerprint(struct store *store, uint64_t term, uint64_t run,
                               const uint8_t fingerprint[static WIRE_DIGEST_BYTES],
                               struct reason *reason) MUST_USE;
/* The run's secret: 32 random bytes, made when it is first asked for, and the same ever after. What
 * must outlive terms is keyed with it: HMAC(secret, a label of the user's own) makes a key for each
 * use, and the secret itself leaves neither the store nor the coordinator. */
enum err store_run_secret(struct store *store, uint64_t term, uint64_t run,
                          uint8_t ret_secret[static DIGEST_KEY_BYTES],
                          struct reason *reason) MUST_USE;
/* The highest generation used so far, by any run. It is the run's, which has gone back for its
 * convictions. */
enum err store_put_generation(struct store *store, uint64_t term, uint64_t run, uint64_t generation,
                              struct reason *reason) MUST_USE;
/* Files that belong to a fact, and lie outside the store. */
struct store_beside {
    enum err (*write)(void *owner, struct reason *reason) MUST_USE;
    void *owner;
};
/* Writes them while the term is this one. */
enum err store_write_beside(struct store *store, uint64_t term, const struct store_beside *beside,
                            struct reason *reason) MUST_USE;
/* A recorded cut; of older ones `keep` - 1 are remembered. Its files are written first (NULL: there
 * are none), while the term is this one: meanwhile nobody takes another (P7). */
enum err store_put_cut(struct store *store, uint64_t term, uint64_t run,
                       const struct cut_record *cut, uint32_t keep,
                       const struct store_beside *beside, struct reason *reason) MUST_USE;

/* The recorded cuts that are remembered, the newest first, `max` at most. */
enum err store_get_cuts(struct store *store, uint64_t run, struct cut_record *ret_cuts,
                        uint32_t max, uint32_t *ret_count, struct reason *reason) MUST_USE;
/* The one of that name; or the newest that is older. ERR_NOT_FOUND: there is none. */
enum err store_get_cut(struct store *store, uint64_t run, struct cut_name name,
                       struct cut_record *ret_cut, struct reason *reason) MUST_USE;
enum err store_older_cut(struct store *store, uint64_t run, struct cut_name name,
                         struct cut_record *ret_cut, struct reason *reason) MUST_USE;
/* Cuts that are recorded in the run's directory and that this store lacks; it may have them. Its
 * generation does not fall below theirs. `alone`: the directory has none of those that this store
 * knows, and what is newer than these is forgotten. Everything is stored, or nothing. */
enum err store_adopt_cuts(struct store *store, uint64_t term, uint64_t run, struct store_cuts cuts,
                          bool alone, struct reason *reason) MUST_USE;
/* The oldest of them: an older one's files nobody needs. ERR_NOT_FOUND: there is none. */
enum err store_oldest_cut(struct store *store, uint64_t run, struct cut_name *ret_name,
                          struct reason *reason) MUST_USE;
/* A member of the run was expelled; the conviction, as convictions_add() kept it, takes the place of
 * earlier ones of the same worker. CONVICTIONS_MAX are remembered, of older ones first those for
 * which the run is still to go back, and are in the run's past. Once more the same: fine. */
enum err store_put_conviction(struct store *store, uint64_t term, uint64_t run,
                              const struct conviction *conviction, struct reason *reason) MUST_USE;
/* Forgets what is newer than `newest`: it is damaged or gone. */
enum err store_forget_cuts(struct store *store, uint64_t term, uint64_t run, struct cut_name newest,
                           struct reason *reason) MUST_USE;

/* ERR_NOT_FOUND: there is none. By directory; or the newest that is STARTING or TRAINING. */
enum err store_find_run(struct store *store, const char *directory, struct store_run *ret_run,
                        struct reason *reason) MUST_USE;
enum err store_find_active_run(struct store *store, struct store_run *ret_run,
                               struct reason *reason) MUST_USE;
enum err store_get_run(struct store *store, uint64_t run, struct store_run *ret_run,
                       struct reason *reason) MUST_USE;
/* The newest, whatever its state. */
enum err store_find_newest_run(struct store *store, struct store_run *ret_run,
                               struct reason *reason) MUST_USE;
/* What the coordinator goes on from: the generation, and the run's fingerprint, convictions and
 * newest cut (generation 0: none). */
enum err store_get_past(struct store *store, uint64_t run, struct coordinator_past *ret_past,
                        struct reason *reason) MUST_USE;

#endif
