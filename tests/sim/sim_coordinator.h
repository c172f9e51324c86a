/* The coordinator's daemon around its core, and the store. */
#ifndef ROOST_TESTS_SIM_SIM_COORDINATOR_H
#define ROOST_TESTS_SIM_SIM_COORDINATOR_H

#include "server/coordinator/coordinator.h"
#include "tests/sim/network.h"

enum { SIM_PENDING_MAX = 1024, SIM_STORING_MAX = 16 };

/* An acquire that was not answered yet. */
struct pending {
    uint64_t call;
    uint64_t member;
};

struct sim_coordinator {
    struct coordinator *core; /* NULL: down */
    uint64_t term;
    struct coordinator_run run;
    struct map_parameter *parameters;
    uint64_t tick_us;      /* of the timer that counts */
    uint64_t effects_left; /* it dies before the effect after so many; 0: it does not */
    uint32_t pending_count;
    struct pending pending[SIM_PENDING_MAX];

    /* Cuts that are being written down, oldest first. */
    uint32_t storing_count;
    struct cut_record storing[SIM_STORING_MAX];

    /* The store: survives. */
    bool stored;
    struct coordinator_past past;
    enum run_state state;
};

void sim_coordinator_init(struct sim *sim);
void sim_coordinator_release(struct sim_coordinator *coordinator);

void sim_coordinator_start(struct sim *sim);
void sim_coordinator_crash(struct sim *sim);
/* What operators do; false: there is no coordinator. */
bool sim_coordinator_ask_cut(struct sim *sim);
bool sim_coordinator_stop_run(struct sim *sim);
void sim_coordinator_tick(struct sim *sim, const struct event *event);
void sim_coordinator_stored(struct sim *sim, const struct event *event);

void sim_coordinator_call(struct sim *sim, struct call *call, const struct message *message);
void sim_coordinator_heartbeat(struct sim *sim, struct stream *stream,
                               const struct message *message);
void sim_coordinator_member_lost(struct sim *sim, struct stream *stream);
void sim_coordinator_report(struct sim *sim, struct stream *stream, const struct message *message);
void sim_coordinator_link_lost(struct sim *sim, struct stream *stream);

#endif
