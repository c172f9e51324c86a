/* The simulator's own record of a run, from outside of the cores, and the invariants of sim.h that
 * it checks with that record. Each function is called for one event that has just happened. */
#ifndef ROOST_TESTS_SIM_LEDGER_H
#define ROOST_TESTS_SIM_LEDGER_H

#include "server/coordinator/run.h"
#include "server/shard/shard.h"
#include "tests/sim/order.h"
#include "tests/sim/scenario.h"

struct sim;
struct sim_thread;

enum { LEDGER_GENERATIONS_MAX = ORDER_GENERATIONS_MAX };

struct sim_ledger {
    uint64_t generation;                            /* the newest */
    uint64_t versions[LEDGER_GENERATIONS_MAX];      /* newest decided, by generation */
    uint64_t adopted_terms[LEDGER_GENERATIONS_MAX]; /* of who adopted it last; 0: nobody did */
    struct cut_name recorded;
    struct cut_record record; /* the same cut */
    double loss;              /* of the step decided last */
    /* the newest generation in which each version was validated */
    uint64_t validated[SIM_STEPS_MAX + 1];
    bool stopping;    /* an operator has asked for it */
    bool stop_late;   /* … while the store had no room for that */
    bool stop_told;   /* … and was told that the run stops … */
    uint64_t stopped; /* … after this step at the latest */
    struct ledger_owner {
        uint64_t generation;
        uint32_t server;
    } * owners; /* of chunk c in step t, at t * chunks + c; generation 0: none yet */
    uint64_t map_generation, map_number, map_digest; /* the newest map in which steps were made */
};

void ledger_init(struct sim *sim);
void ledger_drop(struct sim_ledger *ledger);

/* ---- a shard; invariants 1, 2, 4, 11, 12, 15 ---- */

/* The slots of a step that a server has counted for a piece. */
uint64_t *ledger_counted(const struct sim *sim, const struct sim_thread *thread, uint64_t step,
                         uint32_t piece);
/* `joins`: while steps are made, which one that starts again does again. */
void ledger_prepared(struct sim *sim, struct sim_thread *thread, bool joins);
/* Whether that piece of the push is a duplicate, with the server's generation. */
bool ledger_counts(struct sim *sim, const struct sim_thread *thread, const struct push *push,
                   const struct push_entry *entry);
/* A push was handled: `before` are the shard's statistics before it. */
void ledger_pushed(struct sim *sim, struct sim_thread *thread, const struct push *push,
                   const struct truth *truth, const struct shard_ack *ack,
                   const struct shard_statistics *before);
/* Whether the server has counted all of that slot that it is to count. */
bool ledger_has(const struct sim *sim, const struct sim_thread *thread, uint64_t step,
                uint32_t slot);
/* A pull was taken: served, or parked. */
void ledger_pulled(struct sim *sim, const struct sim_thread *thread, const struct truth *truth);
void ledger_reduced(struct sim *sim, struct sim_thread *thread, const struct reduced *reduced);
void ledger_decided(struct sim *sim, struct sim_thread *thread, const struct commit *commit);
void ledger_committed(struct sim *sim, struct sim_thread *thread, uint64_t step);
void ledger_published(struct sim *sim, struct sim_thread *thread, const struct weights *header,
                      struct counted *const *copies);

/* A chunk was taken, or not. `again`: this server had taken it before, and may have given it away
 * since. */
void ledger_arrived(struct sim *sim, struct sim_thread *thread, const struct transfer *transfer,
                    enum err err, bool again);

/* ---- the coordinator; 3, 4, 9, 10, 13, 15 ---- */

/* A generation begins from that cut. */
void ledger_generation(struct sim *sim, uint64_t generation, struct cut_name cut);
/* The coordinator of that term adopts the run there (P7). */
void ledger_adopted(struct sim *sim, struct cut_name adopted, uint64_t term);
/* It does so without that server: nothing that the server holds of the generation counts any more,
 * nor a commit of the earlier coordinator that only this server received. */
void ledger_left_out(struct sim *sim, uint32_t server);
/* Whether another coordinator has adopted that generation, so that nothing counts that the
 * coordinator of this term does in it. */
bool ledger_is_late(const struct sim *sim, uint64_t generation, uint64_t term);
/* `in_office`: by a coordinator whose office is not over. */
void ledger_granted(struct sim *sim, const struct ticket *ticket, bool in_office);
void ledger_completed(struct sim *sim, const struct complete_request *complete);
void ledger_step(struct sim *sim, const struct step_row *row, bool in_office);
void ledger_validation(struct sim *sim, const struct validation_row *row);
void ledger_recorded(struct sim *sim, const struct cut_record *cut);
/* Newer ones are forgotten. */
void ledger_back(struct sim *sim, const struct cut_record *cut);
void ledger_over(struct sim *sim, enum run_state state, const char *reason);
/* Of the newest recorded cut's state. */
struct digest_hex ledger_digest(struct sim *sim);
/* An operator's stop was acknowledged. */
void ledger_stop(struct sim *sim);
/* The coordinator's present map. */
void ledger_map(struct sim *sim, const struct run *run, const struct servers *servers);
/* A server may leave for good. */
void ledger_let_go(struct sim *sim, uint32_t server);
/* Whether the newest recorded cut needs that server's file. */
bool ledger_names(const struct sim *sim, uint32_t server);

/* ---- a worker; 3 ---- */

/* It computes on what it holds: the digest of each chunk's newest bytes. */
enum { COMPUTING_ALL = UINT32_MAX };
struct computing {
    uint32_t worker;
    struct ticket ticket;
    const uint64_t *held;
    uint32_t unit;             /* on that one's chunks … */
    const struct model *model; /* … that the member of a place holds */
};

void ledger_computing(struct sim *sim, const struct computing *what);

#endif
