/* The result that an async run must have, by its servers' logs: each chunk by itself, ticket after
 * ticket. A ticket's gradient is computed again from the versions that its attempt was given. A
 * shard of that chunk alone applies it. (reference/async.c does so with the logs of real runs.)
 *
 * A moment is a chunk's state between two tickets, as a cut stores it. A chunk that lost its server
 * begins again with one that it had, and may go another way from there: a tree.
 *
 * With `durability: logged` a chunk never begins again without a ticket that was acknowledged or a
 * version that was served. With `cut` only tickets after the cut may be lost. */
#ifndef ROOST_TESTS_SIM_HISTORY_H
#define ROOST_TESTS_SIM_HISTORY_H

#include "server/shard/shard.h"
#include "tests/sim/scenario.h"

struct sim;
struct sim_thread;
struct computing;
struct history_chunk;
struct history_attempt;

struct history {
    struct history_chunk *chunks; /* NULL: the run is not async */
    size_t attempt_count, attempt_capacity;
    struct history_attempt *attempts;
    float *weights;   /* of the whole model */
    uint64_t unknown; /* of steps before this one a server may not know a loss */
    struct shard_effects effects;
};

void history_init(struct sim *sim);
void history_release(struct sim *sim);

/* An ORDER effect. */
void history_order(struct sim *sim, struct sim_thread *thread, const struct shard_order *order);
/* A chunk was served to a worker at that version. */
void history_published(struct sim *sim, const struct sim_thread *thread,
                       const struct weights *header, struct counted *const *copies);
/* A chunk was copied for a cut. */
void history_snapshot(struct sim *sim, const struct sim_thread *thread,
                      const struct shard_effect *effect);
/* A worker got the acknowledgement that the chunk has taken the ticket, from that server. */
void history_acked(struct sim *sim, uint32_t server, uint32_t chunk, uint64_t ticket);
/* A worker computes on the versions that its attempt was given. */
void history_computing(struct sim *sim, const struct computing *what);
/* The run is over: every chunk of the recorded cut must be one of its moments. */
void history_over(struct sim *sim, bool all_tickets);

#endif
