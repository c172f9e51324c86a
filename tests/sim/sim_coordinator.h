/* The coordinator's daemon around its core, and the store. */
#ifndef ROOST_TESTS_SIM_SIM_COORDINATOR_H
#define ROOST_TESTS_SIM_SIM_COORDINATOR_H

#include "server/coordinator/coordinator.h"
#include "tests/sim/network.h"

enum { SIM_COORDINATORS = 2, SIM_PENDING_MAX = 1024, SIM_STORING_MAX = 16 };

/* An acquire that was not answered yet. */
struct pending {
    uint64_t call;
    uint64_t member;
};

/* What coordinators share, and what survives them: written as a whole or not at all, and only by
 * who holds the office (P7). */
struct sim_store {
    uint64_t term; /* the highest taken */
    bool stored;
    struct coordinator_past past;
    enum run_state state;
};

/* There are two places. The one that the office is in is where new streams and calls are led to;
 * in the other one there may still be a coordinator that does not know that it is over. */
struct sim_coordinator {
    uint32_t index;
    struct process process;
    struct coordinator *core; /* NULL: down */
    uint64_t term;
    uint64_t tick_us;      /* of the timer that counts */
    uint64_t effects_left; /* it dies before the effect after so many; 0: it does not */
    uint32_t pending_count;
    struct pending pending[SIM_PENDING_MAX];

    /* Cuts that are being written down, oldest first. */
    uint32_t storing_count;
    struct cut_record storing[SIM_STORING_MAX];
};

void sim_coordinator_init(struct sim *sim, uint32_t index);
void sim_coordinator_release(struct sim_coordinator *coordinator);

/* The one that holds the office, or will when it is up again. */
struct sim_coordinator *sim_coordinator_in_office(struct sim *sim);
/* Where somebody finds a coordinator: now and then the one whose office is over. */
uint32_t sim_coordinator_find(struct sim *sim);

void sim_coordinator_start(struct sim *sim, struct sim_coordinator *coordinator);
void sim_coordinator_crash(struct sim *sim, struct sim_coordinator *coordinator);
/* A second one takes the office while the first goes on. False: a third one would. */
bool sim_coordinator_succeed(struct sim *sim);
void sim_coordinator_over(struct sim *sim, const struct event *event);
/* What operators do; false: there is no coordinator. */
bool sim_coordinator_ask_cut(struct sim *sim);
bool sim_coordinator_stop_run(struct sim *sim);
/* True: the operator shall ask again. */
bool sim_coordinator_drain(struct sim *sim, uint32_t server);
/* False: it has not noticed yet that the server is lost, or there is nobody to ask. */
bool sim_coordinator_give_up(struct sim *sim, uint32_t server);
/* It has said that the present start of that server may end. */
bool sim_coordinator_let_go(struct sim *sim, uint32_t server);
/* Nobody has said that the run can do without that server. */
bool sim_coordinator_needs(struct sim *sim, uint32_t server);
void sim_coordinator_jump(struct sim *sim, struct sim_coordinator *coordinator, uint64_t us);
void sim_coordinator_tick(struct sim *sim, const struct event *event);
void sim_coordinator_stored(struct sim *sim, const struct event *event);

uint64_t sim_coordinator_now_ms(const struct sim *sim, const struct sim_coordinator *coordinator);
bool sim_coordinator_holds_office(const struct sim *sim, const struct sim_coordinator *coordinator);
/* THE ONE RULE OF USE of coordinator.h. False: it died on the way; nothing more is said. */
bool sim_coordinator_carry_out(struct sim *sim, struct sim_coordinator *coordinator);
/* Takes the member's waiting question out; false: there is none. */
bool sim_coordinator_take_pending(struct sim_coordinator *coordinator, uint64_t member,
                                  uint64_t *ret_call);

/* What comes to it (sim_coordinator_calls.c). */
void sim_coordinator_call(struct sim *sim, struct call *call, const struct message *message);
void sim_coordinator_heartbeat(struct sim *sim, struct stream *stream,
                               const struct message *message);
void sim_coordinator_member_lost(struct sim *sim, struct stream *stream);
void sim_coordinator_report(struct sim *sim, struct stream *stream, const struct message *message);
void sim_coordinator_link_lost(struct sim *sim, struct stream *stream);

#endif
