/* Gradients on their way in: from the stream to the shard core, which adds them straight from the
 * received slices; and the acknowledgement back. */
#ifndef ROOST_SERVER_THREADS_PUSH_H
#define ROOST_SERVER_THREADS_PUSH_H

#include "common/cursor.h"
#include "server/shard/shard.h"
#include "server/threads/exchange_stream.h"

/* A push has come, to be counted in so many shares. */
void push_begin(struct exchange_message *message, uint32_t shares);
/* Index of the first entry that belongs to `thread`; entry_count: there is none. */
uint32_t push_first(const struct exchange_message *message, uint32_t thread);

/* A thread's result for its entries: the entries before `refused` are counted, and that one is
 * refused with `err`. The result may be sent only when shard_taken() has come to `after`. */
struct push_share {
    uint32_t refused;
    enum err err;
    uint64_t after;
};

/* How far a thread is with its entries of a message. */
struct push_count {
    struct exchange_message *message;
    uint32_t thread;
    uint32_t at; /* the entries before it are counted, or not this thread's */
    struct cursor payload;
    struct push_share share;
};

/* `thread` begins to count its entries. Shard thread. */
struct push_count push_count_begin(struct exchange_message *message, uint32_t thread);
/* Counts the next of its entries in the shard (NULL: there is none). True: the caller carries out
 * `effects`, and there may be more. False: `share` is complete; push_share_done() is still to be
 * called. */
bool push_count_next(struct push_count *count, struct shard *shard, struct shard_effects *effects);
/* A share is done. The last share sends the acknowledgement. */
void push_share_done(struct exchange_message *take_message, const struct push_share *share);

#endif
