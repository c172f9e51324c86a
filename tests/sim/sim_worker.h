/* A worker's process around an agent core: what worker.c does, without threads. Computing takes
 * fake time; gradients come unit by unit. */
#ifndef ROOST_TESTS_SIM_SIM_WORKER_H
#define ROOST_TESTS_SIM_SIM_WORKER_H

#include "tests/sim/network.h"
#include "tests/sim/scenario.h"
#include "worker/agent.h"

enum { SIM_UNANSWERED_MAX = 2 * WIRE_CREDITS + 64, SIM_UNITS_MAX = 16 };

/* A push or pull without an answer. */
struct unanswered {
    uint64_t id;
    bool pull;
    uint32_t missing; /* chunks of a pull */
    bool parked;
    uint64_t sent_us;
};

struct sim_link {
    uint64_t stream; /* 0: none */
    uint32_t server; /* the simulator's number of it; SIM_SERVERS_MAX: the place is free */
    uint32_t count;
    struct unanswered unanswered[SIM_UNANSWERED_MAX];
};

struct sim_worker {
    uint32_t index;
    uint64_t life; /* which process in this place; rises */
    struct process process;
    bool alive;
    struct agent *agent;
    bool leaving;

    uint32_t office; /* the coordinator that it talks to */
    uint64_t member, membership;
    struct proof secret;
    uint32_t heartbeat_ms;
    uint64_t member_stream;              /* 0: none */
    uint64_t map_number, map_generation; /* as it was described before the join */
    uint32_t link_count;
    struct sim_link links[SIM_SERVERS_MAX];
    uint32_t *chunk_servers;
    uint64_t wake_us; /* of the timer that counts */

    uint64_t slowness; /* computing takes so many times longer */
    float *weights, *gradients;
    uint64_t *held; /* digest of each chunk's newest published bytes */
    bool computing, cancelled;
    uint64_t compute; /* serial */
    bool started;     /* all units were ready */
    struct ticket ticket;
    bool ready[SIM_UNITS_MAX];
    struct agent_result result;
};

void sim_worker_init(struct sim *sim, uint32_t index);
void sim_worker_release(struct sim_worker *worker);

void sim_worker_start(struct sim *sim, struct sim_worker *worker);
/* kill -9; `silent`: the machine is gone, and nobody is told. */
void sim_worker_kill(struct sim *sim, struct sim_worker *worker, bool silent);
void sim_worker_jump(struct sim *sim, struct sim_worker *worker, uint64_t us); /* its clock */
void sim_worker_leave(struct sim *sim, struct sim_worker *worker, uint64_t budget_ms);

/* Events of the worker in place `event->index`; those of an earlier life pass by. */
void sim_worker_event(struct sim *sim, struct event *event);
/* From the network. */
void sim_worker_message(struct sim *sim, struct stream *stream, struct message *message);
void sim_worker_stream_lost(struct sim *sim, struct stream *stream);

/* ---- sim_link.c: its streams to servers ---- */

void sim_link_open(struct sim *sim, struct sim_worker *worker, uint32_t link);
void sim_link_pull(struct sim *sim, struct sim_worker *worker, uint32_t link,
                   const struct pull *pull);
void sim_link_push(struct sim *sim, struct sim_worker *worker, uint32_t link,
                   const struct push *push, struct push_entry *entries);
/* Its push or pull has its answer. */
void sim_link_answered(struct sim_link *link, uint64_t id);
/* Some of a pull's chunks have come; none: it is parked, and will be answered. */
void sim_link_partly_answered(struct sim_link *link, uint64_t id, uint32_t chunks);
void sim_link_check(struct sim *sim, const struct sim_worker *worker); /* invariant 5 */

/* ---- sim_device.c: what it computes on ---- */

void sim_device_begin(struct sim *sim, struct sim_worker *worker, const struct ticket *ticket);
void sim_device_unit_ready(struct sim *sim, struct sim_worker *worker, uint32_t unit);
void sim_device_cancel(struct sim *sim, struct sim_worker *worker);

#endif
