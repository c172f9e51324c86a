/* One acknowledgement for a message, however many threads its entries belong to. */
#include "server/push.h"

#include "server/shard_thread.h"

/* The first refused entry and its error as one number, so that threads agree on the smallest. */
static uint64_t outcome_pack(uint32_t refused, enum err err)
{
    return (uint64_t)refused << 32 | (uint32_t)err;
}

void push_share_done(struct exchange_message *take_message, const struct push_share *share)
{
    uint64_t mine = outcome_pack(share->refused, share->err);
    uint64_t seen = atomic_load(&take_message->outcome);
    while (mine < seen && !atomic_compare_exchange_weak(&take_message->outcome, &seen, mine))
        ;
    if (atomic_fetch_sub(&take_message->left, 1) != 1)
        return;
    uint64_t outcome = atomic_load(&take_message->outcome);
    struct from_shard message = {.kind = FROM_SHARD_ACK,
                                 .ack = {.id = take_message->content.push.id,
                                         .code = (enum err)(uint32_t)outcome,
                                         .first_refused = (uint32_t)(outcome >> 32)}};
    struct exchange_stream *stream = exchange_stream_ref(take_message->stream);
    exchange_message_free(take_message);  /* the payload's memory is the transport's again */
    atomic_fetch_sub(&stream->pushes, 1); /* before the peer can know */
    exchange_send(stream, RPC_URGENT, &message, NULL, 0);
    exchange_stream_unref(stream);
}

/* Index of the first entry at or after `from` that belongs to `thread`, or entry_count. */
static uint32_t next_of(const struct exchange_message *message, uint32_t from, uint32_t thread)
{
    const struct push *push = &message->content.push;
    while (from < push->entry_count &&
           exchange_thread(message->stream->exchange, push->entries[from].chunk) != thread)
        from++;
    return from;
}

void push_arrived(struct exchange_message *take_message)
{
    struct exchange_stream *stream = take_message->stream;
    const struct push *push = &take_message->content.push;
    uint32_t count = push->entry_count, threads = stream->exchange->thread_count;
    if (atomic_fetch_add(&stream->pushes, 1) >= WIRE_CREDITS) {
        exchange_end(stream, ERR_MALFORMED, "more pushes under way than there are credits");
        exchange_message_free(take_message);
        return;
    }
    /* The last share is ours: until then nobody else frees the message. */
    atomic_store(&take_message->outcome, outcome_pack(count, ERR_OK));
    atomic_store(&take_message->left, threads + 1);
    for (uint32_t i = 0; i < threads; i++) {
        uint32_t first = next_of(take_message, 0, i);
        enum err err = ERR_OK;
        if (first < count)
            err = shard_thread_message(stream->exchange->threads[i], take_message);
        if (first == count || err != ERR_OK)
            push_share_done(take_message, &(struct push_share){first, err, 0});
    }
    push_share_done(take_message, &(struct push_share){count, ERR_OK, 0});
}

struct push_share push_count(struct exchange_message *message, uint32_t index, struct shard *shard,
                             struct shard_effects *effects, push_effects_fn *carry_out, void *owner)
{
    const struct push *push = &message->content.push;
    struct cursor payload = {message->received->slices, message->received->slice_count, 0, 0};
    cursor_skip(&payload, message->content.payload_offset);
    uint32_t at = 0;
    struct push_share share = {.refused = push->entry_count};
    while (share.err == ERR_OK && at < push->entry_count) {
        uint32_t first = next_of(message, at, index), end = first;
        for (; at < first; at++)
            cursor_skip(&payload, push->entries[at].bytes);
        while (end < push->entry_count && next_of(message, end, index) == end)
            end++;
        if (first == end)
            break;
        struct push run = *push;
        run.member = message->stream->member;
        run.entries += first;
        run.entry_count = end - first;
        struct push_ack ack = {.code = ERR_NO_RUN};
        if (shard != NULL) {
            shard_push(shard, (uintptr_t)message->stream, &run, payload, effects);
            ack = effects->items[0].ack; /* an ACK is always the first */
            if (effects->items[0].after > share.after)
                share.after = effects->items[0].after;
            carry_out(owner, effects);
        }
        share.err = ack.code;
        if (share.err != ERR_OK)
            share.refused = first + ack.first_refused;
        for (; at < end; at++)
            cursor_skip(&payload, push->entries[at].bytes);
    }
    return share;
}
