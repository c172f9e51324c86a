/* What an async run must come to, from what its servers log: each chunk by itself, ticket after
 * ticket. What a ticket brought is computed again from the versions that its attempt was given;
 * what a chunk makes of it, a shard of that chunk alone. (reference/async.c does so with the logs
 * of real runs.)
 *
 * A moment is a chunk's state between two tickets, as it lies in a cut. A chunk that lost its
 * server begins again with one that it had, and may go another way from there: a tree.
 *
 * With `durability: logged` what was acknowledged or served is in whatever a chunk begins with
 * later; with `cut` what came after the cut may be lost, and nothing else. */
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
    float *weights; /* of the whole model */
    struct shard_effects effects;
};

void history_init(struct sim *sim);
void history_release(struct sim *sim);

/* An ORDER effect. */
void history_order(struct sim *sim, struct sim_thread *thread, const struct shard_order *order);
/* Served to a worker: what it was at that version. */
void history_published(struct sim *sim, const struct weights *header,
                       struct counted *const *copies);
/* On its way to a cut. */
void history_snapshot(struct sim *sim, const struct shard_effect *effect);
/* Its worker was told that the chunk has taken the ticket. */
void history_acked(struct sim *sim, uint32_t chunk, uint64_t ticket);
/* A worker computes on what its attempt was given. */
void history_computing(struct sim *sim, const struct computing *what);
/* In the recorded cut every chunk is as it was after so many tickets. */
void history_over(struct sim *sim, bool all_tickets);

#endif
