/* Streams through shared memory: all that test_rpc_stream.c wants of streams, and what goes wrong with
 * the memory alone. */
#define STREAMS_SHARED 1
#include "tests/unit/test_rpc_stream.c" /* and its main() */

#include "common/rpc/grpc/stream.h"

enum { NUMBERED = 40 };

/* The client's end has the memory, too, when the first message has come back through it. */
static void wait_shared(struct stream_fixture *world)
{
    for (unsigned i = 1; !rpc_stream_is_shared(world->stream); i++) {
        assert_int_equal(send_byte(world->stream, RPC_NORMAL, 0), ERR_OK);
        tally_wait(&world->tally, RECEIVED, i);
    }
    assert_true(rpc_stream_is_shared(world->server_stream));
}

TEST_F(messages_keep_their_order_while_a_stream_changes_to_shared_memory, stream,
       .path = "/test.T/Echo")
{
    for (uint8_t i = 0; i < NUMBERED; i++) { /* the change comes somewhere among them */
        assert_int_equal(send_byte(f->stream, RPC_NORMAL, i), ERR_OK);
        if (i >= 4)
            tally_wait(&f->tally, RECEIVED, i - 3);
    }
    tally_wait(&f->tally, RECEIVED, NUMBERED);
    for (uint8_t i = 0; i < NUMBERED; i++)
        assert_int_equal(f->order[i], i);
    tally_wait(&f->tally, SENT, NUMBERED);
    wait_shared(f);
}

TEST_F(a_client_without_shared_memory_keeps_its_connection, stream)
{
    struct rpc_settings settings = settings_of_tests();
    settings.shared_ring_bytes = 0;
    struct rpc_loop *loop = loop_new(&settings);
    struct rpc_channel *channel = channel_new(loop, rpc_server_port(f->server), NULL);
    struct rpc_stream *stream = NULL;
    assert_int_equal(rpc_stream_open(channel, "/test.T/Echo", &client_events, f, &stream), ERR_OK);
    for (unsigned i = 1; i <= 3; i++) {
        send_filled(f, stream);
        tally_wait(&f->tally, RECEIVED, i);
    }
    assert_false(rpc_stream_is_shared(stream));
    assert_false(rpc_stream_is_shared(f->server_stream));
    rpc_stream_unref(stream);
    rpc_channel_free(channel);
    rpc_loop_free(loop);
}

/* ---- who does not know the word ---- */

TEST_F(a_stranger_gets_no_stream, stream, .path = "/test.T/Echo")
{
    const struct shared_link_options options = {
        .ring_bytes = 1 << 12, .payload_bytes_max = 1 << 12, .word = {1, 2, 3}};
    struct shared_link *link = NULL;
    struct reason reason;
    char name[LINES_NAME_BYTES] = "";
    wait_shared(f);
    const grpc_metadata *offer = &f->server_stream->said; /* "NAME WORD" */
    sscanf((const char *)GRPC_SLICE_START_PTR(offer->value), "%39s", name);
    assert_int_equal(shared_link_connect(name, &options, &link, &reason), ERR_OK);
    while (!shared_link_ended(link))
        ignore(shared_link_wait(&link, 1, time_after_ms(time_now_ns(), 5000))); /* for its end */
    shared_link_free(link);
    int received = (int)tally_of(&f->tally, RECEIVED);
    send_filled(f, f->stream);
    tally_wait(&f->tally, RECEIVED, (unsigned)received + 1);
}

/* ---- what nobody writes ---- */

/* As the client's end of the stream: what it writes there itself is not under way. */
static void write_words(struct stream_fixture *world, const void *words, size_t bytes,
                        uint64_t payload_bytes)
{
    struct reason reason;
    wait_shared(world);
    thread_lock(&world->stream->lock);
    assert_int_equal(shared_link_begin(world->stream->line.link, (struct slice){words, bytes},
                                       payload_bytes, &reason),
                     ERR_OK);
    thread_unlock(&world->stream->lock);
    expect_closed(world, ERR_MALFORMED);
}

TEST_F(words_of_another_size_end_the_stream, stream, .path = "/test.T/Echo")
{
    write_words(f, "abc", 3, 0);
    assert_string_equal(f->closed_reason.text, "a message with 3 bytes of words");
}

TEST_F(words_that_nobody_writes_end_the_stream, stream, .path = "/test.T/Echo")
{
    const uint64_t words[] = {7, 0};
    write_words(f, words, sizeof words, 0);
    assert_string_equal(f->closed_reason.text, "shared memory with words that nobody writes");
}

TEST_F(a_stream_changes_once, stream, .path = "/test.T/Echo")
{
    const uint64_t words[] = {2, 0};
    write_words(f, words, sizeof words, 0);
    assert_string_equal(f->closed_reason.text, "a stream that changes to shared memory twice");
}

TEST_F(a_message_that_is_too_long_ends_the_stream_before_its_bytes_come, stream,
       .path = "/test.T/Short")
{
    const uint64_t words[] = {1, 0};
    write_words(f, words, sizeof words, 101);
    assert_string_equal(f->closed_reason.text, "message has 101 bytes, the limit is 100");
}

TEST_F(a_message_beside_the_memory_ends_the_stream, stream, .path = "/test.T/Echo")
{
    grpc_slice slice = grpc_slice_from_static_string("a");
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    grpc_byte_buffer *bytes = grpc_raw_byte_buffer_create(&slice, 1);
    op.data.send_message.send_message = bytes;
    wait_shared(f);
    thread_lock(&f->stream->lock);
    f->stream->sending = true;
    f->stream->pending++;
    thread_unlock(&f->stream->lock);
    rpc_batch(f->loop, f->stream->call, &op, 1, &f->stream->sent);
    grpc_byte_buffer_destroy(bytes);
    expect_closed(f, ERR_MALFORMED);
    assert_string_equal(f->closed_reason.text, "a message beside the stream's shared memory");
}
