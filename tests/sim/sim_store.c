/* server/disk/store.h: the boots of servers, the coordinators' facts. P7: every write of a
 * coordinator is conditional on its term. The ledger is called for each. */
#include "tests/sim/sim.h"

#include "server/coordinator/cuts.h"
#include "server/disk/store.h"

#include <string.h>

struct store {
    struct machine place; /* of the daemon that has it open */
};

enum { RUN = 1, SAMPLES = 1000, BOOT_BITS = 48 /* as store_sqlite.c */, TERM_STEP_BITS = 27 };

enum err store_open_sqlite(const char *path, struct store **ret_store, struct reason *reason)
{
    (void)path, (void)reason;
    *ret_store = calloc(1, sizeof **ret_store);
    check(*ret_store != NULL);
    (*ret_store)->place = world.life->place;
    return ERR_OK;
}

void store_free(struct store *store)
{
    free(store);
}

void store_run_release(struct store_run *run)
{
    free(run->directory);
    free(run->spec);
    free(run->restore);
    *run = (struct store_run){0};
}

/* Of a coordinator. */
static enum err there(struct reason *reason)
{
    return world.sim->faults.store_gone_us > world.sim->now_us
               ? reason_set(reason, ERR_IO, "the store does not answer")
               : ERR_OK;
}

/* To be written: one writes at a time, and a transaction takes as long as the files beside it. */
static enum err begin(struct reason *reason)
{
    const struct life *writer = world.sim->store.writer;
    TRY(there(reason));
    return writer == NULL || writer->dead || writer == world.life
               ? ERR_OK
               : reason_set(reason, ERR_BUSY, "another coordinator writes to the store");
}

static enum err has_room(struct reason *reason)
{
    return faults_write(world.sim, DISK_COORDINATORS)
               ? reason_set(reason, ERR_NO_SPACE, "the store's disk is full")
               : ERR_OK;
}

/* In a new directory it begins anywhere. */
static uint64_t first_boot(struct sim *sim)
{
    return sim->options.mutation == MUTATE_BOOT_AGAIN
               ? 1
               : 1 + sim_below(sim, UINT64_C(1) << BOOT_BITS);
}

enum err store_next_boot(struct store *store, uint64_t *ret_boot, struct reason *reason)
{
    struct sim *sim = world.sim;
    struct sim_server *server = &sim->servers[store->place.index];
    *ret_boot = 1;
    if (!life_acts())
        return ERR_OK;
    if (store->place.kind != MACHINE_SERVER) {
        TRY(begin(reason));
        return has_room(reason);
    }
    if (server->dir_lost || server->boot == 0)
        server->boot = first_boot(sim);
    else if (sim->options.mutation != MUTATE_SAME_BOOT)
        server->boot++;
    server->dir_lost = false;
    *ret_boot = server->boot;
    sim_trace(sim, "s%u has boot %llu", server->index, (unsigned long long)server->boot);
    return ERR_OK;
}

/* The real store's are all random, and smaller: there one start in thousands may meet a term again. */
static uint64_t next_step(struct sim *sim)
{
    bool restored = sim->store.restored && sim->options.mutation != MUTATE_TERM_AGAIN;
    sim->store.restored = false;
    return restored ? 1 + sim_below(sim, UINT64_C(1) << TERM_STEP_BITS) : 1;
}

enum err store_take_term(struct store *store, uint64_t *ret_term, struct reason *reason)
{
    struct sim_coordinator *coordinator = &world.sim->coordinators[store->place.index];
    *ret_term = world.sim->store.term + 1;
    if (!life_acts())
        return ERR_OK;
    TRY(begin(reason));
    TRY(has_room(reason));
    world.sim->store.term += next_step(world.sim);
    coordinator->term = world.sim->store.term;
    sim_trace(world.sim, "c%u has term %llu", coordinator->index,
              (unsigned long long)coordinator->term);
    story_tell(world.sim, "c%u starts as the coordinator of term %llu", coordinator->index,
               (unsigned long long)coordinator->term);
    story_chapter(world.sim);
    return ERR_OK;
}

/* P7. False with OK: its process is dead, and nothing of it is written. */
static bool may_write(const struct store *store, uint64_t term, enum err *ret_err,
                      struct reason *reason)
{
    struct sim *sim = world.sim;
    *ret_err = ERR_OK;
    if (!watch_effect())
        return false;
    *ret_err = begin(reason);
    if (*ret_err != ERR_OK)
        return false;
    if (term == sim->store.term || sim->options.mutation == MUTATE_STORE_UNFENCED) {
        *ret_err = has_room(reason);
        return *ret_err == ERR_OK;
    }
    sim_trace(sim, "the store refuses c%u, whose term is over", store->place.index);
    *ret_err = reason_set(reason, ERR_OLD_TERM, "the term is over");
    return false;
}

/* What a run cannot go on without is rare, so the full disk comes to it. */
static enum err refuses(struct reason *reason)
{
    uint32_t *left = &world.sim->faults.store_refuses;
    if (*left == 0)
        return ERR_OK;
    --*left;
    return reason_set(reason, ERR_NO_SPACE, "the store's disk is full");
}

enum err store_put_term(struct store *store, uint64_t term, uint64_t newer, struct reason *reason)
{
    struct sim *sim = world.sim;
    enum err err;
    if (!may_write(store, term, &err, reason))
        return err;
    sim->store.term = sim->coordinators[store->place.index].term = newer;
    sim_trace(sim, "c%u has term %llu", store->place.index, (unsigned long long)newer);
    return ERR_OK;
}

enum err store_put_state(struct store *store, uint64_t term, uint64_t run, enum run_state state,
                         const char *why, struct reason *reason)
{
    enum err err;
    (void)run;
    if (!may_write(store, term, &err, reason))
        return err;
    world.sim->store.state = state;
    snprintf(world.sim->store.reason, sizeof world.sim->store.reason, "%s", why);
    if (state > RUN_TRAINING)
        ledger_over(world.sim, state, why);
    if (state > RUN_TRAINING)
        story_over(world.sim);
    return ERR_OK;
}

enum err store_put_stop(struct store *store, uint64_t term, uint64_t run, const char *why,
                        struct reason *reason)
{
    struct sim *sim = world.sim;
    enum err err;
    (void)run;
    bool written = may_write(store, term, &err, reason);
    sim->ledger.stop_late = sim->ledger.stop_late || err == ERR_NO_SPACE;
    if (!written)
        return err;
    sim->store.past.stops = true;
    snprintf(sim->store.past.stop, sizeof sim->store.past.stop, "%s", why);
    sim_trace(sim, "a stop is stored");
    return ERR_OK;
}

/* No run here has products that are timed. */
enum err store_put_spec(struct store *store, uint64_t term, uint64_t run, const char *spec,
                        struct reason *reason)
{
    (void)store, (void)term, (void)run, (void)spec;
    return reason_set(reason, ERR_UNSUPPORTED, "a simulated run keeps its spec");
}

enum err store_put_fingerprint(struct store *store, uint64_t term, uint64_t run,
                               const uint8_t fingerprint[static WIRE_DIGEST_BYTES],
                               struct reason *reason)
{
    struct coordinator_past *past = &world.sim->store.past;
    enum err err;
    (void)run;
    if (!may_write(store, term, &err, reason))
        return err;
    TRY(refuses(reason));
    past->has_fingerprint = true;
    memcpy(past->fingerprint, fingerprint, sizeof past->fingerprint);
    return ERR_OK;
}

/* A function of the seed, as everything here. */
enum err store_run_secret(struct store *store, uint64_t term, uint64_t run,
                          uint8_t ret_secret[static DIGEST_KEY_BYTES], struct reason *reason)
{
    struct rand_state state = {world.sim->scenario.seed};
    (void)store, (void)term, (void)run;
    if (life_acts())
        TRY(there(reason));
    for (size_t i = 0; i < DIGEST_KEY_BYTES; i++)
        ret_secret[i] = (uint8_t)rand_next(&state);
    return ERR_OK;
}

enum err store_put_generation(struct store *store, uint64_t term, uint64_t run, uint64_t generation,
                              struct reason *reason)
{
    struct coordinator_past *past = &world.sim->store.past;
    enum err err;
    (void)run;
    if (!may_write(store, term, &err, reason))
        return err;
    TRY(refuses(reason));
    past->generation = generation;
    convictions_undone(&past->convictions);
    ledger_generation(world.sim, generation, past->cut.name);
    if (past->cut.name.generation == 0)
        story_tell(world.sim, "generation %llu is stored", (unsigned long long)generation);
    else
        story_tell(world.sim,
                   "generation %llu is stored, which begins from the cut of version %llu",
                   (unsigned long long)generation, (unsigned long long)past->cut.name.version);
    story_chapter(world.sim);
    return ERR_OK;
}

/* The files take their time, in which the process may die or stand still. */
static enum err write_beside(const struct store_beside *beside, struct reason *reason)
{
    struct sim *sim = world.sim;
    sim->store.writer = world.life;
    enum err err = beside->write(beside->owner, reason);
    sim->store.writer = NULL;
    return err;
}

static void remember(struct sim_store *store, const struct cut_record *cut, uint32_t keep)
{
    check(keep < SIM_CUTS_MAX);
    memmove(&store->cuts[1], &store->cuts[0], (SIM_CUTS_MAX - 1) * sizeof store->cuts[0]);
    store->cuts[0] = store->past.cut = *cut;
    store->cut_count = store->cut_count < keep ? store->cut_count + 1 : keep;
}

enum err store_write_beside(struct store *store, uint64_t term, const struct store_beside *beside,
                            struct reason *reason)
{
    enum err err;
    return may_write(store, term, &err, reason) ? write_beside(beside, reason) : err;
}

enum err store_put_cut(struct store *store, uint64_t term, uint64_t run,
                       const struct cut_record *cut, uint32_t keep,
                       const struct store_beside *beside, struct reason *reason)
{
    struct sim *sim = world.sim;
    enum err err;
    (void)run;
    if (!may_write(store, term, &err, reason))
        return err;
    TRY(write_beside(beside, reason));
    if (!life_acts())
        return ERR_OK;
    TRY(has_room(reason));
    ledger_recorded(sim, cut);
    remember(&sim->store, cut, keep);
    damage_recorded(sim);
    story_tell(sim, "the cut of version %llu is recorded", (unsigned long long)cut->name.version);
    return ERR_OK;
}

enum err store_put_conviction(struct store *store, uint64_t term, uint64_t run,
                              const struct conviction *conviction, struct reason *reason)
{
    enum err err;
    (void)run;
    if (!may_write(store, term, &err, reason))
        return err;
    convictions_add(&world.sim->store.past.convictions, conviction);
    return ERR_OK;
}

enum err store_get_cuts(struct store *store, uint64_t run, struct cut_record *ret_cuts,
                        uint32_t max, uint32_t *ret_count, struct reason *reason)
{
    const struct sim_store *facts = &world.sim->store;
    uint32_t count = facts->cut_count < max ? facts->cut_count : max;
    (void)store, (void)run, (void)reason;
    memcpy(ret_cuts, facts->cuts, count * sizeof facts->cuts[0]);
    *ret_count = count;
    return ERR_OK;
}

enum err store_get_cut(struct store *store, uint64_t run, struct cut_name name,
                       struct cut_record *ret_cut, struct reason *reason)
{
    const struct sim_store *facts = &world.sim->store;
    (void)store, (void)run;
    for (uint32_t i = 0; i < facts->cut_count; i++)
        if (cuts_same(facts->cuts[i].name, name)) {
            *ret_cut = facts->cuts[i];
            return ERR_OK;
        }
    return reason_set(reason, ERR_NOT_FOUND, "no such checkpoint");
}

enum err store_older_cut(struct store *store, uint64_t run, struct cut_name name,
                         struct cut_record *ret_cut, struct reason *reason)
{
    const struct sim_store *facts = &world.sim->store;
    (void)store, (void)run;
    for (uint32_t i = 0; i < facts->cut_count; i++)
        if (cuts_is_newer(name, facts->cuts[i].name)) {
            *ret_cut = facts->cuts[i];
            return ERR_OK;
        }
    return reason_set(reason, ERR_NOT_FOUND, "no older checkpoint");
}

enum err store_oldest_cut(struct store *store, uint64_t run, struct cut_name *ret_name,
                          struct reason *reason)
{
    const struct sim_store *facts = &world.sim->store;
    (void)store, (void)run;
    if (facts->cut_count == 0)
        return reason_set(reason, ERR_NOT_FOUND, "no checkpoint");
    *ret_name = facts->cuts[facts->cut_count - 1].name;
    return ERR_OK;
}

enum err store_forget_cuts(struct store *store, uint64_t term, uint64_t run, struct cut_name newest,
                           struct reason *reason)
{
    struct sim *sim = world.sim;
    struct sim_store *facts = &sim->store;
    enum err err;
    (void)run;
    if (!may_write(store, term, &err, reason))
        return err;
    uint32_t gone = 0;
    while (gone < facts->cut_count && cuts_is_newer(facts->cuts[gone].name, newest))
        gone++;
    check(gone < facts->cut_count);
    facts->cut_count -= gone;
    memmove(facts->cuts, &facts->cuts[gone], facts->cut_count * sizeof facts->cuts[0]);
    facts->past.cut = facts->cuts[0];
    ledger_back(sim, &facts->cuts[0]);
    sim_trace(sim, "the store goes back to cut %llu.%llu", (unsigned long long)newest.generation,
              (unsigned long long)newest.version);
    return ERR_OK;
}

static void read_run(struct store_run *ret_run)
{
    const struct sim *sim = world.sim;
    *ret_run = (struct store_run){.run = RUN,
                                  .directory = strdup(SIM_RUN),
                                  .spec = strdup("the scenario's"),
                                  .restore = strdup(""),
                                  .servers_min = sim->scenario.servers,
                                  .samples = SAMPLES,
                                  .validation_samples = sim->scenario.validation_samples,
                                  .state = sim->store.state,
                                  .has_fingerprint = sim->store.past.has_fingerprint};
    check(ret_run->directory != NULL && ret_run->spec != NULL && ret_run->restore != NULL);
    memcpy(ret_run->fingerprint, sim->store.past.fingerprint, sizeof ret_run->fingerprint);
}

enum err store_find_active_run(struct store *store, struct store_run *ret_run,
                               struct reason *reason)
{
    const struct sim *sim = world.sim;
    (void)store;
    if (life_acts())
        TRY(there(reason));
    if (sim->store.state > RUN_TRAINING)
        return reason_set(reason, ERR_NOT_FOUND, "no run is active");
    read_run(ret_run);
    return ERR_OK;
}

enum err store_find_newest_run(struct store *store, struct store_run *ret_run,
                               struct reason *reason)
{
    (void)store;
    if (life_acts())
        TRY(there(reason));
    read_run(ret_run);
    return ERR_OK;
}

enum err store_get_past(struct store *store, uint64_t run, struct coordinator_past *ret_past,
                        struct reason *reason)
{
    (void)store, (void)run;
    if (life_acts())
        TRY(there(reason));
    *ret_past = world.sim->store.past;
    return ERR_OK;
}

/* ---- what an operator starts: here the run is in the store from the beginning ---- */

enum err store_get_run(struct store *store, uint64_t run, struct store_run *ret_run,
                       struct reason *reason)
{
    (void)store, (void)run, (void)ret_run;
    return reason_set(reason, ERR_UNSUPPORTED, "no other run goes on in the directory here");
}

enum err store_add_run(struct store *store, uint64_t term, struct store_run *run,
                       const struct store_past *past, struct reason *reason)
{
    (void)store, (void)term, (void)run, (void)past;
    return reason_set(reason, ERR_UNSUPPORTED, "no run is started here");
}

enum err store_adopt_cuts(struct store *store, uint64_t term, uint64_t run, struct store_cuts cuts,
                          bool alone, struct reason *reason)
{
    (void)store, (void)term, (void)run, (void)cuts, (void)alone;
    return reason_set(reason, ERR_UNSUPPORTED, "the store has all that is recorded here");
}

enum err store_change_run(struct store *store, uint64_t term, const struct store_run *run,
                          struct reason *reason)
{
    (void)store, (void)term, (void)run;
    return reason_set(reason, ERR_UNSUPPORTED, "no run is continued by hand here");
}

enum err store_stop_others(struct store *store, uint64_t term, uint64_t run, const char *why,
                           struct reason *reason)
{
    (void)store, (void)term, (void)run, (void)why;
    return reason_set(reason, ERR_UNSUPPORTED, "no run is started here");
}

enum err store_find_run(struct store *store, const char *directory, struct store_run *ret_run,
                        struct reason *reason)
{
    (void)store, (void)directory, (void)ret_run;
    return reason_set(reason, ERR_NOT_FOUND, "no run is looked for here");
}
