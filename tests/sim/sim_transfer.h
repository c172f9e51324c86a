/* Chunks on their way from server to server (P11), as server/threads/transfer.c sends them: a call
 * a chunk, which may be lost, late or repeated, as may its answer; what was not taken is sent
 * again. */
#ifndef ROOST_TESTS_SIM_SIM_TRANSFER_H
#define ROOST_TESTS_SIM_SIM_TRANSFER_H

#include "server/shard/shard.h"
#include "tests/sim/queue.h"

struct sim;
struct sim_server;
struct sim_thread;

/* A call, and what its caller knows of it. */
struct sim_transfer {
    uint32_t from, to; /* servers */
    uint64_t boot;     /* of the caller */
    uint32_t thread;   /* the caller's */
    struct transfer header;
    uint64_t deadline_us;
    bool answered;
    bool taken; /* the new owner has it */
};

struct sim_transfers {
    struct sim_transfer *list; /* number n at n - 1 */
    size_t count, capacity;
};

void sim_transfers_release(struct sim_transfers *transfers);

/* Carries out SHARD_TRANSFER. */
void sim_transfer_send(struct sim *sim, const struct sim_server *server, struct sim_thread *thread,
                       const struct shard_effect *effect);
/* Events. */
void sim_transfer_arrived(struct sim *sim, struct event *event);
void sim_transfer_answered(struct sim *sim, const struct event *event);
void sim_transfer_again(struct sim *sim, const struct event *event);

#endif
