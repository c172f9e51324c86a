/* Async admission: what a shard does with tickets that are applied as they come (P12). Part of the
 * shard core: shard.h is the interface, shard*.c call this; names, messages and effects are those
 * of a step that is reduced.
 *
 * Each chunk goes its own way. It takes a ticket from one attempt, once: what it has taken it knows
 * by a low-water mark and a bitmap (applied.h). Its version counts the tickets taken; the scalars
 * of the update are those of that version (seal_ticket()), so what a chunk becomes depends on the
 * order in which it took tickets and on nothing else.
 *
 * Who is answered what: a ticket taken before is acknowledged again; one beyond the window is
 * BEYOND: its worker drops it, nobody waits; one computed on weights of an earlier boot, or more
 * than `staleness_max` versions behind, is STALE: its worker drops it, it is granted and computed
 * again. A scale of 0 (the gradient is not finite) takes the ticket and leaves the weights.
 *
 * `durability: logged`: an accepted gradient is handed out for the log and waits; async_work()
 * applies it, in the order of acceptance, when the log is on disk, and only then it is published
 * and acknowledged. What waits counts as a version already: a log is replayed in its order.
 *
 * A step is reduced when every chunk has taken all its tickets; then, and no sooner, the shard says
 * so, for the step that the coordinator has not committed yet. The loss of a step is summed as its
 * tickets come, for people only.
 *
 * Invariants (async_check):
 *  1 a chunk's version is what it began with and the tickets it took;
 *  2 `behind` counts the chunks that miss tickets of the open step;
 *  3 what waits for the log is in no bitmap, at most once a chunk and ticket, and inside the
 *    window. */
#ifndef ROOST_SERVER_SHARD_ASYNC_H
#define ROOST_SERVER_SHARD_ASYNC_H

#include "server/shard/applied.h"
#include "server/shard/chunk.h"

struct async_chunk {
    uint64_t version; /* tickets taken: readable */
    uint64_t updates; /* of them those that changed the weights: adamw's count */
    uint32_t waiting; /* accepted, not on disk */
    struct applied applied;
};

/* An accepted gradient that waits for the log. */
struct async_waiting {
    uint32_t index; /* of the chunk */
    uint64_t ticket;
    float scale;
    struct counted *gradient; /* n floats */
};

struct async {
    struct shard_async settings;
    uint64_t boot;
    struct chunk_store *store; /* borrowed */
    struct async_chunk *chunks;
    uint64_t *words; /* of their bitmaps */
    float *scratch;  /* a gradient as it is applied */
    uint64_t open;   /* the step that is not committed */
    uint32_t behind; /* chunks that miss tickets of it */
    uint32_t loss_steps;
    double (*losses)[MODEL_LOSS_WEIGHTS]; /* of step t at t % loss_steps */

    /* A ring of ASYNC_WAITING_MAX; accepted - applied wait, from applied on. */
    struct async_waiting *waiting;
    uint64_t accepted, durable, applied;

    /* What effects point to, until the next call. */
    uint32_t entry_count;
    struct shard_order_entry entries[WIRE_ENTRIES_MAX];
    uint64_t versions[WIRE_ENTRIES_MAX];
};

enum { ASYNC_WAITING_MAX = 256 };

/* `store` must outlive it. */
enum err async_init(struct async *async, const struct shard_config *config,
                    struct chunk_store *store) MUST_USE;
void async_release(struct async *async); /* {0} is fine */

/* What a chunk knows beside weights and optimizer state, as it lies in a cut. */
uint32_t async_extra_bytes(uint32_t window); /* of a run with that window */
void async_store(const struct async *async, uint32_t index, uint8_t *ret_extra);
/* ERR_CORRUPT: it is none of this run's. */
enum err async_load(struct async *async, uint32_t index, const uint8_t *extra) MUST_USE;

/* One ticket for chunks of this shard: entries are counted until one is refused. Generation is
 * judged. *ret_after: 0, or the acknowledgement waits until so many were applied. */
enum err async_push(struct async *async, const struct push *push, struct cursor *payload,
                    struct shard_statistics *statistics, uint32_t *ret_counted,
                    uint64_t *ret_after) MUST_USE;
/* The log is on disk up to there. */
void async_logged(struct async *async, uint64_t durable);
/* Applies the next gradient that waited. ERR_NOMEM: nothing changed. */
enum err async_work(struct async *async) MUST_USE;
static inline bool async_has_work(const struct async *async)
{
    return async->applied < async->durable;
}

/* The open step is `step` from here on. */
void async_open(struct async *async, uint64_t step);
static inline bool async_reduced(const struct async *async)
{
    return async->behind == 0;
}
/* Sum, samples and right answers of the step's tickets (model_loss). After a restart the losses of
 * tickets that the cut has are not known: their samples count, at the others' mean. */
void async_loss(const struct async *async, uint64_t step, double ret_loss[MODEL_LOSS_WEIGHTS]);

/* What the log says that a chunk took, in the log's order: `version` is the one it had then. Known
 * to the cut already: nothing happens. ERR_CORRUPT: the log has a gap, or says a ticket twice. */
struct async_record {
    uint32_t n;
    uint64_t ticket;
    uint64_t version;
    float scale;
    const float *gradient; /* n */
};
enum err async_redo(struct async *async, uint32_t index,
                    const struct async_record *record) MUST_USE;

/* Keeps in *met what every chunk has taken; *met is the first chunk's when `first`. */
void async_meet(const struct async *async, struct applied *met, bool first);
/* Accepted gradients that are not applied yet. */
static inline uint64_t async_waiting_count(const struct async *async)
{
    return async->accepted - async->applied;
}
/* The invariants: of all, but the chunks'; of a chunk; of what one look at numbers tells. */
void async_check(const struct async *async);
void async_check_chunk(const struct async *async, uint32_t index);
void async_check_numbers(const struct async *async);

#endif
