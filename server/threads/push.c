/* One acknowledgement for a message, however many threads its entries belong to. */
#include "server/threads/push.h"

/* The first refused entry and its error as one number, so that threads agree on the smallest. */
static uint64_t outcome_pack(uint32_t refused, enum err err)
{
    return (uint64_t)refused << 32 | (uint32_t)err;
}

void push_begin(struct exchange_message *message, uint32_t shares)
{
    atomic_store(&message->outcome, outcome_pack(message->content.push.entry_count, ERR_OK));
    atomic_store(&message->left, shares);
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

uint32_t push_first(const struct exchange_message *message, uint32_t thread)
{
    return next_of(message, 0, thread);
}

struct push_count push_count_begin(struct exchange_message *message, uint32_t thread)
{
    struct push_count count = {
        .message = message,
        .thread = thread,
        .payload = {message->received->slices, message->received->slice_count, 0, 0},
        .share = {.refused = message->content.push.entry_count},
    };
    cursor_skip(&count.payload, message->content.payload_offset);
    return count;
}

/* Passes over the entries before `to`. */
static void skip_to(struct push_count *count, uint32_t to)
{
    for (; count->at < to; count->at++)
        cursor_skip(&count->payload, count->message->content.push.entries[count->at].bytes);
}

bool push_count_next(struct push_count *count, struct shard *shard, struct shard_effects *effects)
{
    struct exchange_message *message = count->message;
    struct push_share *share = &count->share;
    struct push run = message->content.push;
    uint32_t first = next_of(message, count->at, count->thread), end = first;
    if (share->err != ERR_OK || first == run.entry_count)
        return false;
    if (shard == NULL) {
        share->err = ERR_NO_RUN;
        share->refused = first;
        return false;
    }
    while (end < run.entry_count && next_of(message, end, count->thread) == end)
        end++;
    skip_to(count, first);
    run.member = message->stream->member;
    run.entries += first;
    run.entry_count = end - first;
    shard_push(shard, (uintptr_t)message->stream, &run, count->payload, effects);
    const struct shard_effect *effect = &effects->items[0]; /* an ACK is always the first */
    if (effect->after > share->after)
        share->after = effect->after;
    share->err = effect->ack.code;
    if (share->err != ERR_OK)
        share->refused = first + effect->ack.first_refused;
    skip_to(count, end);
    return true;
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
    exchange_stream_send(stream, RPC_URGENT, &message, NULL, 0);
    exchange_stream_unref(stream);
}
