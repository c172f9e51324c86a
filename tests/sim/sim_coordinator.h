/* The coordinator's process (sim_daemon.h), the store that survives it, and its operators. */
#ifndef ROOST_TESTS_SIM_SIM_COORDINATOR_H
#define ROOST_TESTS_SIM_SIM_COORDINATOR_H

#include "server/coordinator/coordinator.h"
#include "tests/sim/life.h"
#include "tests/sim/network.h"
#include "tests/sim/tables.h"

enum { SIM_COORDINATORS = 2, SIM_CUTS_MAX = 4 };

/* The store that coordinators share and that survives them: written as a whole or not at all, and
 * only by the coordinator of the newest term (P7). */
struct sim_store {
    uint64_t term;             /* the highest taken that it knows of */
    bool restored;             /* from a backup, since it gave a term */
    const struct life *writer; /* its transaction is open; NULL: nobody's is */
    struct coordinator_past past;
    uint32_t cut_count; /* that are remembered, the newest first */
    struct cut_record cuts[SIM_CUTS_MAX];
    enum run_state state;
    char reason[COORDINATOR_TEXT_BYTES];
};

/* There are two places. The one that the office is in is where new streams and calls are led to;
 * in the other one there may still be a coordinator that does not know that it is over. */
struct sim_coordinator {
    uint32_t index;
    struct process process;
    struct life *life;        /* NULL: down */
    struct coordinator *core; /* of that process; NULL: none yet */
    uint64_t term;
    struct tables tables;  /* what was last seen of the core's */
    uint64_t effects_left; /* it dies before the effect after so many; 0: it does not */
};

void sim_coordinator_init(struct sim *sim, uint32_t index);
void sim_coordinator_release(struct sim *sim, struct sim_coordinator *coordinator);

/* The one that holds the office, or will when it is up again. */
struct sim_coordinator *sim_coordinator_in_office(struct sim *sim);
/* Where somebody finds a coordinator: now and then the one whose office is over. */
uint32_t sim_coordinator_find(struct sim *sim);
bool sim_coordinator_holds_office(const struct sim *sim, const struct sim_coordinator *coordinator);

void sim_coordinator_start(struct sim *sim, struct sim_coordinator *coordinator);
void sim_coordinator_crash(struct sim *sim, struct sim_coordinator *coordinator);
/* A second one takes the office while the first goes on. False: a third one would. */
bool sim_coordinator_succeed(struct sim *sim);
void sim_coordinator_over(struct sim *sim, const struct event *event);
/* It has run to its end. */
void sim_coordinator_ended(struct sim *sim, struct sim_coordinator *coordinator);
void sim_coordinator_jump(struct sim *sim, struct sim_coordinator *coordinator, uint64_t us);

/* Calls of operators; false: there is no coordinator. */
bool sim_coordinator_ask_cut(struct sim *sim);
bool sim_coordinator_stop_run(struct sim *sim);
void sim_coordinator_drain(struct sim *sim, uint32_t server);
void sim_coordinator_give_up(struct sim *sim, uint32_t server);
/* The answer to the call of that name. */
void sim_operator_answered(struct sim *sim, uint64_t call, enum err err, struct slice response);

/* Whether it has sent LEAVE to the present start of that server. */
bool sim_coordinator_let_go(struct sim *sim, uint32_t server);
/* Whether the run may still need that server. */
bool sim_coordinator_needs(struct sim *sim, uint32_t server);
/* The core's entry of that server. */
struct server_entry *sim_coordinator_entry(const struct coordinator *core, uint32_t server);

#endif
