/* What a run goes on from: the store's facts, beside what the run's directory has. They may differ: a
 * disk was full, a crash came in between, an operator chose or removed a checkpoint, or one of them is
 * from a backup or was moved. */
#ifndef ROOST_SERVER_CONTROL_CONTROL_PAST_H
#define ROOST_SERVER_CONTROL_CONTROL_PAST_H

#include "common/files/checkpoint.h"
#include "server/control/whole_cut.h"
#include "server/disk/store.h"

/* Recorded cuts of a run's directory, the newest first. */
struct control_cuts {
    struct cut_record *list;
    size_t count;
    bool alone;  /* the directory has none that the store knows: newer ones are gone */
    uint64_t by; /* the other run of this store that went on in the directory; 0: none did */
};
void control_cuts_release(struct control_cuts *cuts); /* {0} is fine */
/* Those that the run is to go on from and that the store lacks, as their own files have them. The
 * store had no room for a cut that was written down, it died just then, or it knew only the newest of
 * the directory; and the operator chose that cut, or removed all that the store knows. Or the
 * directory is from a backup that is older than the store, or was moved away, went on there as another
 * run, and is back. Mostly none.
 * ERR_NOT_FOUND, ERR_CORRUPT …: nobody has the chosen one whole; or control_past_judge_passed(). */
enum err control_past_lacks(struct store *store, const struct store_run *stored,
                            struct control_cuts *ret_cuts, struct reason *reason) MUST_USE;
/* What the run goes on from: the store's facts, with the cut that an operator chose in place of the
 * newest (*ret_chosen), or the newest that the store lacks, and a generation above which none has left
 * anything in the directory. control_past_lacks()'s errors. */
enum err control_past_find(struct store *store, const struct store_run *stored,
                           struct coordinator_past *ret_past, bool *ret_chosen,
                           struct reason *reason) MUST_USE;

/* Damaged cuts of a directory that are newer than the one that a run is to go on from. */
struct control_passed {
    const char *spec; /* the run's */
    const char *directory;
    const char *damage; /* what is wrong with them; NULL: there are none */
    struct cut_name whole;
};
/* P12: what servers have logged follows the newest cut alone. So a run goes back behind it, and lacks
 * what is logged, only when an operator says so. ERR_CORRUPT: how to say so. */
enum err control_past_judge_passed(const struct control_passed *passed,
                                   struct reason *reason) MUST_USE;

/* Where another run of this store went on in the directory, what servers have logged there is that
 * one's: *stored gets its settings and its state, *past its fingerprint and whether it was stopped. */
enum err control_past_take_other(struct store *store, struct store_run *stored,
                                 struct coordinator_past *past, struct reason *reason) MUST_USE;

/* What there is to say of a run of the store that the core does not have. */
struct control_told {
    uint64_t run;         /* 0: the store does not read */
    enum run_state state; /* RUN_NONE: there is none */
    bool stops;           /* an operator has asked for it */
    char reason[COORDINATOR_TEXT_BYTES];
    char directory[WIRE_TEXT_BYTES_MAX + 1];
    uint64_t steps;
    struct cut_name cut; /* generation 0: none */
    uint64_t samples;    /* that led to it */
};
enum err control_past_told(struct store *store, const struct store_run *stored,
                           struct control_told *ret_told, struct reason *reason) MUST_USE;

/* For a run that this store does not know: what its directory's newest whole cut, which `about` is of, says
 * of it. */
enum err control_past_adopt(const char *directory, const struct checkpoint_record *about,
                            struct coordinator_past *past, struct reason *reason) MUST_USE;
/* What the directory has beside that cut: servers remove those that no store has. Reads each of them, so
 * it comes when nothing is waited for any more. */
enum err control_past_read_older(const struct whole_cut *whole, struct control_cuts *ret_older,
                                 struct reason *reason) MUST_USE;

#endif
