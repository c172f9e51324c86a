/* The order of answers and ends on a worker's stream, over an rpc stream that is none: what threads
 * and connections do at their own time happens here when the test says so. */
#include "server/threads/exchange.h"
#include "server/threads/pull.h"
#include "tests/unit/unit.h"

#include <string.h>

/* Where calls on the rpc stream go; `rpc` is its address. */
struct exchange_stream_fixture {
    struct exchange exchange;
    struct exchange_stream *stream;
    unsigned refusals, finishes;
    enum err refused; /* the newest refusal */
};

/* The linker leads here (--wrap). */
enum err __wrap_rpc_stream_send(struct rpc_stream *stream, enum rpc_priority priority,
                                struct buf *take_header, const struct rpc_part *parts,
                                size_t part_count);
void __wrap_rpc_stream_finish(struct rpc_stream *stream, enum err err, const char *text);
struct rpc_stream *__wrap_rpc_stream_ref(struct rpc_stream *stream);
void __wrap_rpc_stream_unref(struct rpc_stream *stream);

enum err __wrap_rpc_stream_send(struct rpc_stream *stream, enum rpc_priority priority,
                                struct buf *take_header, const struct rpc_part *parts,
                                size_t part_count)
{
    struct exchange_stream_fixture *f = (void *)stream;
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct slice header = buf_slice(take_header);
    struct from_shard message;
    (void)priority, (void)parts, (void)part_count;
    assert_int_equal(wire_decode_from_shard(&header, 1, &arena, &message, NULL), ERR_OK);
    if (message.kind == FROM_SHARD_REFUSAL) {
        f->refusals++;
        f->refused = message.refusal.code;
    }
    buf_release(take_header);
    return ERR_OK;
}

void __wrap_rpc_stream_finish(struct rpc_stream *stream, enum err err, const char *text)
{
    struct exchange_stream_fixture *f = (void *)stream;
    (void)err, (void)text;
    f->finishes++;
}

struct rpc_stream *__wrap_rpc_stream_ref(struct rpc_stream *stream)
{
    return stream;
}

void __wrap_rpc_stream_unref(struct rpc_stream *stream)
{
    (void)stream;
}

static void exchange_stream_set_up(struct exchange_stream_fixture *f)
{
    f->exchange.thread_count = 1; /* that nobody is */
    f->stream = exchange_stream_new(&f->exchange, (void *)f);
    assert_non_null(f->stream);
    f->stream->greeted = true;
}

static void exchange_stream_tear_down(struct exchange_stream_fixture *f)
{
    exchange_stream_unref(f->stream);
}

static struct exchange_message *pull_of(struct exchange_stream_fixture *f, uint32_t shares)
{
    static const uint32_t chunk = 0;
    struct exchange_message *message = exchange_message_new(f->stream);
    assert_non_null(message);
    message->content = (struct to_shard){.kind = TO_SHARD_PULL,
                                         .pull = {.id = 3, .chunks = &chunk, .chunk_count = 1}};
    message->received = rpc_message_new(slice_of("pull")); /* else it is one that is asked again */
    atomic_fetch_add(&f->stream->pulls, 1);
    pull_begin(message, shares);
    return message;
}

/* Whichever thread answers first. */
TEST_F(the_gravest_answer_of_a_pull_s_shares_is_sent, exchange_stream)
{
    static const enum err graver_first[][2] = {{ERR_OLD_GENERATION, ERR_TOO_EARLY},
                                               {ERR_TOO_EARLY, ERR_OK},
                                               {ERR_OLD_GENERATION, ERR_TOO_LATE}};
    for (size_t i = 0; i < sizeof graver_first / sizeof graver_first[0]; i++)
        for (int last = 0; last < 2; last++) {
            struct exchange_message *message = pull_of(f, 2);
            pull_share_done(message, graver_first[i][last]);
            assert_int_equal(f->refusals, 2 * i + (size_t)last);
            pull_share_done(message, graver_first[i][1 - last]);
            assert_int_equal(f->refusals, 2 * i + (size_t)last + 1);
            assert_int_equal(f->refused, graver_first[i][0]);
        }
}

/* Its shard has forgotten what waited for the stream, and would keep a pull for ever. */
TEST_F(a_pull_is_not_asked_on_a_stream_that_is_closed, exchange_stream)
{
    uint32_t chunks[WIRE_ENTRIES_MAX];
    assert_false(pull_ask(pull_of(f, 1), 0, NULL, chunks, NULL));
    assert_int_equal(f->refusals, 1); /* there is no shard */
    atomic_store(&f->stream->closed, true);
    assert_false(pull_ask(pull_of(f, 1), 0, NULL, chunks, NULL));
    assert_int_equal(f->refusals, 1);
}

TEST_F(what_follows_noise_is_not_looked_at, exchange_stream)
{
    const struct rpc_method method = exchange_method(&f->exchange);
    for (int i = 0; i < 3; i++) {
        struct rpc_message *noise = rpc_message_new(slice_of("\xff\xfe\xfd noise"));
        assert_non_null(noise);
        method.events->message(f->stream, NULL, noise);
    }
    assert_int_equal(f->finishes, 1);
}
