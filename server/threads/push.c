/* One acknowledgement for a message, however many threads its entries belong to. */
#include "server/threads/push.h"

void push_begin(struct exchange_message *message, uint32_t shares)
{
    check(shares > 0);
    check(atomic_load(&message->left) == 0); /* it is on no way yet */
    atomic_store(&message->outcome,
                 ((struct exchange_outcome){message->content.push.entry_count, ERR_OK}));
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
    check(count->at <= first && first < end); /* forwards, and not nothing */
    skip_to(count, first);
    run.member = message->stream->member;
    run.entries += first;
    run.entry_count = end - first;
    struct shard_ack ack =
        shard_push(shard, (uintptr_t)message->stream, &run, count->payload, effects);
    if (ack.after > share->after)
        share->after = ack.after;
    check(ack.first_refused <= run.entry_count);
    check((ack.code == ERR_OK) == (ack.first_refused == run.entry_count));
    share->err = ack.code;
    if (ack.code != ERR_OK)
        share->refused = first + ack.first_refused;
    skip_to(count, end);
    return true;
}

/* Of two shares that refuse the same entry the lower error counts, whichever came first. */
static bool earlier(struct exchange_outcome a, struct exchange_outcome b)
{
    return a.first_refused != b.first_refused ? a.first_refused < b.first_refused : a.err < b.err;
}

/* The message is acknowledged with the first entry that any thread refused. */
static void keep_first_refused(struct exchange_message *message, const struct push_share *share)
{
    struct exchange_outcome mine = {share->refused, share->err};
    struct exchange_outcome seen = atomic_load(&message->outcome);
    while (earlier(mine, seen) && !atomic_compare_exchange_weak(&message->outcome, &seen, mine))
        ;
}

void push_share_done(struct exchange_message *take_message, const struct push_share *share)
{
    check(share->refused <= take_message->content.push.entry_count);
    check(share->err != ERR_OK || share->refused == take_message->content.push.entry_count);
    keep_first_refused(take_message, share);
    unsigned left = atomic_fetch_sub(&take_message->left, 1);
    check(left > 0); /* one answer for each share */
    if (left != 1)
        return;
    struct exchange_outcome outcome = atomic_load(&take_message->outcome);
    struct from_shard message = {.kind = FROM_SHARD_ACK,
                                 .ack = {.id = take_message->content.push.id,
                                         .code = outcome.err,
                                         .first_refused = outcome.first_refused}};
    struct exchange_stream *stream = exchange_stream_ref(take_message->stream);
    exchange_message_free(take_message); /* the payload's memory is the transport's again */
    unsigned unanswered = atomic_fetch_sub(&stream->pushes, 1);
    check(unanswered > 0); /* given back before the peer can get the acknowledgement */
    exchange_stream_send(stream, RPC_URGENT, &message, NULL, 0);
    exchange_stream_unref(stream);
}
