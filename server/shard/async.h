/* Async admission: what a shard does with tickets that are applied as they come (P12). Part of the
 * shard core: shard.h is the interface, shard*.c call this; names, messages and effects are those
 * of a step that is reduced.
 *
 * Each chunk takes tickets in an order of its own. It takes a ticket once, from one attempt; a
 * low-water mark and a bitmap say which it has taken (applied.h). The chunk's version counts these
 * tickets. The version gives the scalars of an update (seal_ticket()), so a chunk's values depend
 * on the order in which it took tickets and on nothing else.
 *
 * Answers: a ticket that was taken before is acknowledged again. A ticket beyond the window is
 * BEYOND: its worker drops it, nobody waits (P12). A ticket that was computed on weights of an
 * earlier boot, or more than `staleness_max` versions behind, is STALE: its worker drops it, and
 * the ticket is granted and computed again. A scale of 0 (the worker says that the gradient is not
 * finite) takes the ticket and leaves the weights; so do values that are not finite, whatever the
 * worker says: one of them would stay in the weights for good. Each chunk looks at its own, in the
 * push, in a journal, and when the run is repeated, so all of these decide the same.
 *
 * `durability: logged`: an accepted gradient is handed out for the log and waits. When the log is
 * on disk, async_work() applies the gradients in the order of acceptance. Only then the version is
 * published and the ticket acknowledged (P12). A waiting gradient counts as a version already,
 * because a log is replayed in its order.
 *
 * A step is reduced when every chunk has taken all tickets of the step. The shard reports that for
 * the step that the coordinator has not committed yet, and not before. The loss of a step is summed
 * as tickets come; it is for people only.
 *
 * Invariants (async_check):
 *  1 a chunk's version is what it began with and the tickets it took;
 *  2 `behind` counts the chunks that miss tickets of the open step;
 *  3 a gradient that waits for the log is in no bitmap, waits at most once for its chunk and
 *    ticket, and is inside the window. */
#ifndef ROOST_SERVER_SHARD_ASYNC_H
#define ROOST_SERVER_SHARD_ASYNC_H

#include "server/shard/applied.h"
#include "server/shard/chunk.h"

struct async_chunk {
    uint64_t version; /* tickets taken: readable */
    uint64_t updates; /* the tickets among them that changed the weights: adamw's count */
    uint32_t waiting; /* accepted, not on disk */
    struct applied applied;
};

/* An accepted gradient that waits for the log. */
struct async_waiting {
    uint32_t index; /* of the chunk */
    uint64_t ticket;
    float scale;              /* 0: it is not finite */
    struct counted *gradient; /* n floats */
};

struct async {
    struct shard_async settings;
    uint32_t loss_samples; /* that a ticket's loss must count; 0: any */
    uint64_t boot;
    struct chunk_store *store; /* borrowed */
    struct async_chunk *chunks;
    uint64_t *words; /* of their bitmaps */
    float *scratch;  /* room for a gradient while it is applied */
    uint64_t open;   /* the step that is not committed */
    uint32_t behind; /* chunks that miss tickets of it */
    uint32_t loss_steps;
    double (*losses)[MODEL_LOSS_WEIGHTS]; /* of step t at t % loss_steps */

    /* A ring of ASYNC_WAITING_MAX. Those from `applied` on wait, accepted - applied of them. */
    struct async_waiting *waiting;
    uint64_t accepted, durable, applied;

    /* Memory that effects point to until the next call. */
    uint32_t entry_count;
    struct shard_order_entry entries[WIRE_ENTRIES_MAX];
    uint64_t versions[WIRE_ENTRIES_MAX];
};

enum { ASYNC_WAITING_MAX = 256 };

/* `store` must outlive it. */
enum err async_init(struct async *async, const struct shard_config *config,
                    struct chunk_store *store) MUST_USE;
void async_release(struct async *async); /* {0} is fine */

/* A chunk's state beside weights and optimizer state, as it is stored in a cut. */
uint32_t async_extra_bytes(uint32_t window); /* of a run with that window */
void async_store(const struct async *async, uint32_t index, uint8_t *ret_extra);
/* ERR_CORRUPT: the bytes are no such state of this run. */
enum err async_load(struct async *async, uint32_t index, const uint8_t *extra) MUST_USE;

/* One ticket for chunks of this shard: entries are counted until one is refused. The caller has
 * fenced the generation. *ret_after: 0, or the acknowledgement waits until that many gradients were
 * applied. */
enum err async_push(struct async *async, const struct push *push, struct cursor *payload,
                    struct shard_statistics *statistics, uint32_t *ret_counted,
                    uint64_t *ret_after) MUST_USE;
/* The log is on disk up to that gradient. */
void async_logged(struct async *async, uint64_t durable);
/* Applies the next gradient that waited. ERR_NOMEM: nothing changed. */
enum err async_work(struct async *async) MUST_USE;
static inline bool async_has_work(const struct async *async)
{
    return async->applied < async->durable;
}

/* The open step is `step` from now on. */
void async_open(struct async *async, uint64_t step);
static inline bool async_reduced(const struct async *async)
{
    return async->behind == 0;
}
/* Whether chunks miss tickets of the step or of an earlier one. *step: the oldest such step;
 * *ret_slots has its slots' bits, and no others. */
bool async_missing(const struct async *async, uint64_t *step, uint64_t *ret_slots);
/* Sum, samples and right answers of the step's tickets (model_loss). After a restart the losses of
 * tickets that are in the cut are not known: their samples count with the mean of the others.
 * Where there are no others, sum and right answers are not a number. */
void async_loss(const struct async *async, uint64_t step, double ret_loss[MODEL_LOSS_WEIGHTS]);

/* An entry of the log: a chunk took a ticket when it had `version`. To be called in the log's
 * order. Nothing happens when the cut has the ticket already. ERR_CORRUPT: the log has a gap, or
 * has a ticket twice. */
struct async_record {
    uint32_t n;
    uint64_t ticket;
    uint64_t version;
    float scale;
    const float *gradient; /* n */
};
enum err async_redo(struct async *async, uint32_t index,
                    const struct async_record *record) MUST_USE;

/* Keeps in *met the tickets that every chunk has taken. `first`: *met is empty, and begins with the
 * first chunk's. */
void async_meet(const struct async *async, struct applied *met, bool first);
/* Accepted gradients that are not applied yet. */
static inline uint64_t async_waiting_count(const struct async *async)
{
    return async->accepted - async->applied;
}
/* The invariants: all but those of chunks; those of one chunk; those that cost nothing to look
 * at. */
void async_check(const struct async *async);
void async_check_chunk(const struct async *async, uint32_t index);
void async_check_numbers(const struct async *async);

#endif
