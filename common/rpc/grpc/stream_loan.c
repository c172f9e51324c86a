/* Messages of a stream through shared memory whose payload is lent (common/shared/shared_link.h).
 *
 * A message that can be lent is a header, and then parts that all lie in the sender's pool. Over the
 * line goes a table of where they lie, and the header. The receiver copies both, and makes a message
 * of slices of the pool. The sender holds the message until it is given back. */
#include "common/rpc/grpc/stream.h"

#include <stddef.h>
#include <string.h>

enum { LOAN_BYTES_MIN = 16 << 10 }; /* less is copied sooner than lent */

struct extent {
    uint64_t offset, bytes;
};

/* ---- the sender ---- */

static struct slice slice_of(grpc_slice *slice)
{
    return (struct slice){GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice)};
}

/* Where the parts lie, and then the header. False: they do not all lie in the pool. */
static bool describe(const struct rpc_stream *stream, grpc_slice_buffer *message,
                     struct buf *ret_lending)
{
    for (size_t i = 1; i < message->count; i++) {
        struct slice part = slice_of(&message->slices[i]);
        struct extent extent = {.bytes = part.bytes};
        if (!shared_pool_find(stream->loop->pool, part, &extent.offset) ||
            buf_append(ret_lending, &extent, sizeof extent) != ERR_OK)
            return false;
    }
    struct slice header = slice_of(&message->slices[0]);
    return buf_append(ret_lending, header.data, header.bytes) == ERR_OK;
}

void stream_loan_begin_locked(struct rpc_stream *stream, struct outbound *outbound)
{
    grpc_slice_buffer *message = &outbound->bytes->data.raw.slice_buffer;
    bool lends = message->length >= LOAN_BYTES_MIN && message->count > 1 &&
                 message->count <= LOAN_EXTENTS_MAX + 1 &&
                 shared_link_may_lend(stream->line.link) &&
                 describe(stream, message, &stream->lending);
    if (lends) {
        stream->extents = message->count - 1;
        stream->loan = shared_link_lend(stream->line.link, outbound);
    } else {
        buf_clear(&stream->lending);
    }
}

struct outbound *stream_loan_next_locked(struct rpc_stream *stream)
{
    return shared_link_returned(stream->line.link, false);
}

void stream_loan_returned(void *outbound)
{
    outbound_free(outbound);
}

/* ---- the receiver ---- */

struct borrowed {
    struct rpc_message message;
    struct shared_link *link;
    uint32_t loan;
    struct rpc_message *head;
    struct slice slices[]; /* of the header, and then of the pool */
};

static void borrowed_free(struct rpc_message *message)
{
    struct borrowed *borrowed = CONTAINER_OF(message, struct borrowed, message);
    rpc_message_unref(borrowed->head);
    shared_link_give_back(borrowed->link, borrowed->loan);
    free(borrowed);
}

/* The slices of the table that the head begins with. */
static enum err find_slices(const struct rpc_stream *stream, struct borrowed *borrowed,
                            struct reason *reason)
{
    struct slice head = borrowed->head->slices[0];
    for (uint64_t i = 1; i < borrowed->message.slice_count; i++) {
        struct extent extent;
        struct slice *slice = &borrowed->slices[i];
        memcpy(&extent, head.data, sizeof extent);
        head.data += sizeof extent;
        head.bytes -= sizeof extent;
        TRY(shared_link_borrowed(borrowed->link, extent.offset, extent.bytes, slice, reason));
        borrowed->message.bytes += slice->bytes;
    }
    borrowed->slices[0] = head;
    borrowed->message.bytes += head.bytes;
    if (borrowed->message.bytes > stream->message_bytes_max)
        return reason_set(reason, ERR_MALFORMED, "message has %zu bytes, the limit is %zu",
                          borrowed->message.bytes, stream->message_bytes_max);
    return ERR_OK;
}

static enum err borrow(const struct rpc_stream *stream, struct rpc_message *head,
                       struct rpc_message **ret_message, struct reason *reason)
{
    const struct line_words *words = &stream->words;
    if (words->extents > LOAN_EXTENTS_MAX || head->bytes < words->extents * sizeof(struct extent))
        return reason_set(reason, ERR_MALFORMED, "a loan of more pieces than it has words for");
    struct borrowed *borrowed =
        malloc(sizeof *borrowed + (words->extents + 1) * sizeof borrowed->slices[0]);
    if (borrowed == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory for a message");
    enum err err = shared_link_borrow(stream->line.link, words->loan, reason);
    if (err != ERR_OK) {
        free(borrowed);
        return err;
    }
    *borrowed = (struct borrowed){.message = {.slice_count = (uint32_t)words->extents + 1,
                                              .lent = true,
                                              .released = borrowed_free,
                                              .slices = borrowed->slices},
                                  .link = stream->line.link,
                                  .loan = (uint32_t)words->loan,
                                  .head = rpc_message_ref(head)};
    atomic_init(&borrowed->message.references, 1);
    err = find_slices(stream, borrowed, reason);
    if (err != ERR_OK)
        rpc_message_unref(&borrowed->message);
    else
        *ret_message = &borrowed->message;
    return err;
}

enum err stream_loan_take(struct rpc_stream *stream, struct rpc_message *take_head,
                          struct rpc_message **ret_message, struct reason *reason)
{
    enum err err = borrow(stream, take_head, ret_message, reason);
    rpc_message_unref(take_head);
    return err;
}
