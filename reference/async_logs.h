/* What the order logs of an async run say (common/files/order.h): the branches that each chunk
 * grew, what each of them took, and what each attempt was given. How far somebody is with repeating
 * that has its place beside it, and is not touched here. */
#ifndef ROOST_REFERENCE_ASYNC_LOGS_H
#define ROOST_REFERENCE_ASYNC_LOGS_H

#include "reference/async.h"
#include "server/shard/shard.h"

#define ASYNC_LOGS_NONE UINT32_MAX

/* What a chunk took, in its order. */
struct taken {
    uint64_t attempt; /* its number, then (async_logs_read()) its place in the list */
    uint64_t ticket;
    uint64_t used;
};

/* A version that somebody pulled, until nobody needs it. */
struct needed {
    uint64_t version;
    uint32_t users;
    struct counted *copy; /* repeating: NULL: not there yet */
};

/* A chunk from one beginning on. */
struct branch {
    uint32_t chunk, parent; /* ASYNC_LOGS_NONE: from the initial values */
    uint64_t begin, generation, boot;
    size_t taken_count, needed_count;
    struct taken *taken;
    struct needed *needed; /* ascending, once async_logs_read() is done */
    /* Repeating: */
    uint64_t next;       /* of the list to be taken; version begin + next */
    struct shard *shard; /* NULL: not begun */
};

/* What an attempt was given of one chunk. */
struct pulled {
    uint64_t attempt;
    uint32_t branch;
    uint64_t version;
};

struct attempt {
    uint64_t number;
    size_t pulled_first, pulled_count;
    uint32_t takers; /* chunks that take it; repeating: that have not yet */
    /* Repeating: */
    bool computed;
    uint8_t *gradients; /* as they are pushed, chunk after chunk */
    float scale;
};

struct async_logs {
    const struct reference_async *async;
    uint32_t chunk_count;
    struct reason *reason;
    /* Set by async_logs_read(): */
    size_t branch_count, pulled_count, attempt_count;
    struct branch *branches; /* in the order of their beginnings */
    struct pulled *pulled;
    struct attempt *attempts; /* ascending numbers */
    uint64_t beginnings;      /* of chunks, after the first */
    uint32_t *newest;         /* branch of each chunk while logs are read */
    uint32_t *targets;        /* branch that each chunk ends in */
};

/* Reads the folder's logs. ERR_CORRUPT: they miss something; the reason says what. ERR_NOMEM, and
 * what files return. */
enum err async_logs_read(struct async_logs *logs) MUST_USE;
/* Also after a failure; what was put there while repeating is the caller's. */
void async_logs_release(struct async_logs *logs);

/* NULL: nobody needs that version. */
struct needed *async_logs_needed(const struct branch *branch, uint64_t version);

#endif
