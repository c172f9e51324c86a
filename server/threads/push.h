/* Gradients on their way in: from the stream to the shard core, added straight from the received
 * slices, and the acknowledgement back. */
#ifndef ROOST_SERVER_THREADS_PUSH_H
#define ROOST_SERVER_THREADS_PUSH_H

#include "common/cursor.h"
#include "server/shard/shard.h"
#include "server/threads/exchange_stream.h"

/* A push has come: so many shares of it are to be done. */
void push_begin(struct exchange_message *message, uint32_t shares);
/* Index of the first entry that belongs to `thread`; entry_count: there is none. */
uint32_t push_first(const struct exchange_message *message, uint32_t thread);

/* What a thread says of its entries: those before `refused` are counted, that one is answered
 * `err`; not to be said before shard_taken() has come to `after`. */
struct push_share {
    uint32_t refused;
    enum err err;
    uint64_t after;
};

/* A thread's way through the entries of a message. */
struct push_count {
    struct exchange_message *message;
    uint32_t thread;
    uint32_t at; /* what is before it is counted, or not this thread's */
    struct cursor payload;
    struct push_share share;
};

/* `thread` begins to count its entries. Shard thread. */
struct push_count push_count_begin(struct exchange_message *message, uint32_t thread);
/* Counts the next of them in the shard (NULL: there is none). True: the caller carries out
 * `effects`, and there may be more. False: `share` is complete; push_share_done() is still to be
 * called. */
bool push_count_next(struct push_count *count, struct shard *shard, struct shard_effects *effects);
/* A share is done; the last one acknowledges. */
void push_share_done(struct exchange_message *take_message, const struct push_share *share);

#endif
