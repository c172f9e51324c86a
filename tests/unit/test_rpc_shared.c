/* Streams through shared memory: all that test_rpc_stream.c wants of streams, and what goes wrong with
 * the memory alone. */
#define STREAMS_SHARED 1
#include "tests/unit/test_rpc_stream.c" /* and its main() */

#include "common/rpc/grpc/stream.h"
#include "common/shared/shared_loans.h"
#include "common/shared/shared_pool.h"

#include <poll.h>
#include <sys/socket.h>

enum { NUMBERED = 40 };

/* The client's end has the memory, too, when the first message has come back through it. */
static void wait_shared(struct stream_fixture *world)
{
    uint64_t deadline_ns = time_after_ms(time_now_ns(), FIXTURE_WAIT_MS);
    unsigned before = tally_of(&world->tally, RECEIVED);
    for (unsigned i = 1; !rpc_stream_is_shared(world->stream); i++) {
        assert_true(time_now_ns() < deadline_ns);
        assert_int_equal(send_byte(world->stream, RPC_NORMAL, 0), ERR_OK);
        tally_wait(&world->tally, RECEIVED, before + i);
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

/* A client with threads of its own has the stream's beginning, and the memory, and writes, while the
 * server still opens it. */
TEST_F(nothing_is_brought_before_the_stream_is_open, stream)
{
    struct rpc_settings settings = settings_of_tests();
    struct rpc_loop *loop = loop_new(&settings);
    struct rpc_channel *channel = channel_new(loop, rpc_server_port(f->server), NULL);
    uint64_t late_ns = time_after_ms(time_now_ns(), LATE_MS);
    assert_int_equal(rpc_stream_open(channel, "/test.T/Late", &client_events, f, &f->stream),
                     ERR_OK);
    while (!rpc_stream_is_shared(f->stream) && time_now_ns() < late_ns)
        sched_yield();
    send_filled(f, f->stream);
    tally_wait(&f->tally, RECEIVED, 1);
    wait_shared(f);
    rpc_stream_unref(f->stream);
    f->stream = NULL;
    rpc_channel_free(channel);
    rpc_loop_free(loop);
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

/* ---- what is lent ---- */

/* From the pool, with the bytes that receive() wants. */
static struct counted *payload_new(const struct stream_fixture *world, uint8_t first)
{
    struct counted *payload = shared_pool_counted(rpc_loop_pool(world->loop), MESSAGE_BYTES);
    assert_non_null(payload);
    for (size_t i = 0; i < payload->bytes; i++)
        payload->data[i] = (uint8_t)(first + i * 7);
    return payload;
}

static void send_parts(struct rpc_stream *stream, struct counted *payload)
{
    struct buf header = {0};
    struct rpc_part parts[2] = {{payload, 0, 100}, {payload, 100, payload->bytes - 100}};
    assert_int_equal(buf_append(&header, "0123456789", 10), ERR_OK);
    assert_int_equal(rpc_stream_send(stream, RPC_NORMAL, &header, parts, 2), ERR_OK);
}

static void send_payload(struct stream_fixture *world, struct rpc_stream *stream)
{
    struct counted *payload = payload_new(world, 0);
    send_parts(stream, payload);
    counted_unref(payload);
}

/* Until the other end has this one's memory. */
static void wait_may_lend(struct rpc_stream *stream)
{
    bool accepts = false;
    for (uint32_t ms = 0; !accepts; ms++) {
        assert_true(ms < 5000);
        usleep(1000);
        thread_lock(&stream->lock);
        accepts = shared_link_may_lend(stream->line.link);
        thread_unlock(&stream->lock);
    }
}

static void wait_lent(struct stream_fixture *world)
{
    wait_shared(world);
    wait_may_lend(world->stream);
}

TEST_F(what_lies_in_the_pool_comes_as_it_is, stream, .path = "/test.T/Echo")
{
    wait_lent(f);
    unsigned before = tally_of(&f->tally, RECEIVED);
    size_t bytes = f->bytes;
    for (unsigned i = 0; i < MESSAGES; i++) {
        if (i >= 4)
            tally_wait(&f->tally, RECEIVED, before + i - 3);
        send_payload(f, f->stream);
    }
    tally_wait(&f->tally, RECEIVED, before + MESSAGES);
    assert_int_equal(f->bytes - bytes, (size_t)MESSAGES * (MESSAGE_BYTES + 10));
    assert_int_equal(f->wrong_bytes, 0);
}

/* What was kept and came through the stream's bytes goes: true once a lent message is kept. */
static bool lent_is_kept(struct stream_fixture *world)
{
    thread_lock(&world->lock);
    bool lent = world->kept != NULL && world->kept->lent;
    if (!lent) {
        rpc_message_unref(world->kept);
        world->kept = NULL;
    }
    thread_unlock(&world->lock);
    return lent;
}

/* The stream of test.T/Keep changes to shared memory by itself. */
static void wait_kept(struct stream_fixture *world)
{
    for (unsigned kept = 1; !lent_is_kept(world); kept++) {
        assert_true(kept < 1000);
        send_payload(world, world->stream);
        tally_wait(&world->tally, RECEIVED, kept);
    }
}

/* Else a receiver would read what the sender writes next. */
TEST_F(what_is_lent_stays_as_it_is_when_the_stream_ends, stream, .path = "/test.T/Keep")
{
    enum { OTHERS = 8 };
    struct counted *others[OTHERS];
    wait_kept(f);
    const uint8_t *kept = f->kept->slices[2].data;
    rpc_stream_cancel(f->stream);
    tally_wait(&f->tally, CLOSED, 1);
    tally_wait(&f->tally, SERVER_CLOSED, 1);
    for (unsigned i = 0; i < OTHERS; i++)
        others[i] = payload_new(f, 99);
    assert_memory_equal(f->kept->slices[0].data, "0123456789", 10);
    for (size_t i = 0; i < f->kept->slices[2].bytes; i++)
        assert_int_equal(kept[i], (uint8_t)((i + 100) * 7));
    for (unsigned i = 0; i < OTHERS; i++)
        counted_unref(others[i]);
}

/* ---- the end ---- */

static atomic_bool held; /* messages of such a stream */

static void receive_unless_held(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    while (atomic_load(&held))
        usleep(1000);
    receive(owner, stream, message);
}

static const struct rpc_stream_events held_events = {.message = receive_unless_held,
                                                     .closed = closed};

/* Until it has come over the connection. */
static void wait_over(struct rpc_stream *stream)
{
    bool over = false;
    for (uint32_t ms = 0; !over; ms++) {
        assert_true(ms < 5000);
        usleep(1000);
        thread_lock(&stream->lock);
        over = stream->close_due;
        thread_unlock(&stream->lock);
    }
}

/* The client reads so much in several turns. */
TEST_F(what_was_sent_before_the_end_comes_before_it, stream)
{
    assert_int_equal(rpc_stream_open(f->channel, "/test.T/Echo", &held_events, f, &f->stream),
                     ERR_OK);
    wait_shared(f);
    wait_may_lend(f->server_stream);
    unsigned before = tally_of(&f->tally, RECEIVED);
    atomic_store(&held, true);
    for (unsigned i = 0; i < QUEUE_MAX; i++)
        send_payload(f, f->server_stream);
    rpc_stream_finish(f->server_stream, ERR_OK, NULL);
    wait_over(f->stream);
    atomic_store(&held, false);
    expect_closed(f, ERR_OK);
    assert_int_equal(tally_of(&f->tally, RECEIVED), before + QUEUE_MAX);
}

/* ---- what came back ---- */

static struct {
    struct counted *payload;
    atomic_uint come;       /* messages */
    atomic_uint references; /* of the payload, when the newest of them came */
} watched;

static void watch_payload(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    (void)owner, (void)stream;
    rpc_message_unref(message);
    if (watched.payload != NULL)
        atomic_store(&watched.references, atomic_load(&watched.payload->references));
    atomic_fetch_add(&watched.come, 1);
    while (atomic_load(&held))
        usleep(1000);
}

static const struct rpc_stream_events watching_events = {.message = watch_payload,
                                                         .closed = closed};

static void wait_come(unsigned count)
{
    for (uint32_t ms = 0; atomic_load(&watched.come) < count; ms++) {
        assert_true(ms < 5000);
        usleep(1000);
    }
}

/* A worker looks then whether its gradients are read no more. The line's thread is kept busy, so that
 * the answer alone tells it. */
TEST_F(what_was_given_back_before_an_answer_is_free_when_the_answer_comes, stream)
{
    assert_int_equal(rpc_stream_open(f->channel, "/test.T/Keep", &watching_events, f, &f->stream),
                     ERR_OK);
    wait_kept(f);
    rpc_message_unref(f->kept);
    unsigned kept = tally_of(&f->tally, RECEIVED);
    watched.payload = payload_new(f, 0);
    send_parts(f->stream, watched.payload);
    tally_wait(&f->tally, RECEIVED, kept + 1);
    assert_true(f->kept->lent);
    atomic_store(&held, true);
    assert_int_equal(send_byte(f->server_stream, RPC_NORMAL, 0), ERR_OK);
    wait_come(1);
    unsigned lent = atomic_load(&watched.references);
    rpc_message_unref(f->kept);
    f->kept = NULL;
    assert_int_equal(send_byte(f->server_stream, RPC_NORMAL, 0), ERR_OK);
    atomic_store(&held, false);
    wait_come(2);
    assert_true(lent > 1);
    assert_int_equal(atomic_load(&watched.references), 1);
    counted_unref(watched.payload);
}

/* ---- the loop's end ---- */

enum { ON_TIME, HELD, ENDING, KICKED };

/* A polling thread says that a stream is over; the line's thread knows it already, and the loop is being
 * freed. Not the first one of them, which rpc_server_free() waits for. */
static struct {
    _Atomic(struct line *) line;
    _Atomic(struct lines *) lines;
    atomic_uint state;
    atomic_bool freed_before;
} late;

static void wait_for_state(unsigned state)
{
    uint64_t deadline_ns = time_after_ms(time_now_ns(), FIXTURE_WAIT_MS);
    while (atomic_load(&late.state) < state && time_now_ns() < deadline_ns)
        sched_yield();
}

static bool is_late(struct line *line)
{
    char name[16] = "";
    (void)pthread_getname_np(pthread_self(), name, sizeof name);
    if (line != atomic_load(&late.line) || strcmp(name, "rpc-1") != 0)
        return false;
    struct rpc_stream *stream = CONTAINER_OF(line, struct rpc_stream, line);
    thread_lock(&stream->lock);
    bool over = stream->close_due;
    thread_unlock(&stream->lock);
    return over;
}

void __real_line_kick(struct line *line);
void __wrap_line_kick(struct line *line);
void __wrap_line_kick(struct line *line)
{
    if (!is_late(line)) {
        __real_line_kick(line);
        return;
    }
    atomic_store(&late.state, HELD);
    __real_line_kick(line);
    wait_for_state(ENDING);
    __real_line_kick(line);
    atomic_store(&late.state, KICKED);
}

static bool is_held(const struct lines *lines)
{
    unsigned state = atomic_load(&late.state);
    return lines == atomic_load(&late.lines) && (state == HELD || state == ENDING);
}

void __real_lines_stop(struct lines *lines);
void __wrap_lines_stop(struct lines *lines);
void __wrap_lines_stop(struct lines *lines)
{
    __real_lines_stop(lines);
    if (is_held(lines))
        atomic_store(&late.state, ENDING);
}

void __real_lines_free(struct lines *lines);
void __wrap_lines_free(struct lines *lines);
void __wrap_lines_free(struct lines *lines)
{
    if (is_held(lines)) {
        atomic_store(&late.freed_before, true);
        atomic_store(&late.state, ENDING);
        wait_for_state(KICKED);
    }
    __real_lines_free(lines);
}

/* Its server's end has a line, and world->server_stream is that end. */
static struct rpc_stream *stream_on(struct stream_fixture *world, struct rpc_channel *channel)
{
    struct rpc_stream *stream = NULL;
    unsigned received = tally_of(&world->tally, RECEIVED);
    rpc_stream_unref(world->server_stream);
    world->server_stream = NULL;
    assert_int_equal(rpc_stream_open(channel, "/test.T/Echo", &client_events, world, &stream),
                     ERR_OK);
    assert_int_equal(send_byte(stream, RPC_NORMAL, 0), ERR_OK);
    tally_wait(&world->tally, RECEIVED, received + 1);
    return stream;
}

/* A server's connections belong to its polling threads in turn. */
TEST_F(a_kick_that_comes_late_finds_the_lines, stream)
{
    struct rpc_settings settings = settings_of_tests();
    struct rpc_loop *here = loop_new(&settings), *there = loop_new(&settings);
    struct rpc_server *server = server_new(there, NULL, f->methods, METHODS);
    struct rpc_channel *channels[2];
    struct rpc_stream *streams[2];
    for (unsigned i = 0; i < 2; i++) {
        channels[i] = channel_new(here, rpc_server_port(server), NULL);
        streams[i] = stream_on(f, channels[i]);
    }
    atomic_store(&late.lines, f->server_stream->line.lines);
    atomic_store(&late.line, &f->server_stream->line);
    rpc_stream_unref(f->server_stream);
    f->server_stream = NULL;
    rpc_server_drain(server);
    for (unsigned i = 0; i < 2; i++) {
        rpc_stream_cancel(streams[i]);
        rpc_stream_unref(streams[i]);
        rpc_channel_free(channels[i]);
    }
    rpc_loop_free(here);
    rpc_server_free(server);
    rpc_loop_free(there);
    assert_int_equal(atomic_load(&late.state), KICKED);
    assert_false(atomic_load(&late.freed_before));
}

/* ---- who does not know the word ---- */

/* With another word than the server's. */
static struct shared_link *connect_stranger(struct stream_fixture *world)
{
    const struct shared_link_options options = {
        .ring_bytes = 1 << 12, .payload_bytes_max = 1 << 12, .word = {1, 2, 3}};
    struct shared_link *link = NULL;
    struct reason reason;
    char name[LINES_NAME_BYTES] = "";
    wait_shared(world);
    const grpc_metadata *offer = &world->server_stream->said; /* "NAME WORD" */
    sscanf((const char *)GRPC_SLICE_START_PTR(offer->value), "%39s", name);
    assert_int_equal(shared_link_connect(name, &options, &link, &reason), ERR_OK);
    return link;
}

TEST_F(a_stranger_gets_no_memory, stream, .path = "/test.T/Echo")
{
    struct shared_link *link = connect_stranger(f);
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct pollfd end = {.fd = shared_link_socket(link), .events = POLLIN};
    assert_int_equal(poll(&end, 1, 5000), 1);
    assert_true(recvmsg(end.fd, &message, MSG_CMSG_CLOEXEC) <= 0);
    assert_null(CMSG_FIRSTHDR(&message));
    shared_link_free(link);
}

TEST_F(a_stranger_gets_no_stream, stream, .path = "/test.T/Echo")
{
    struct shared_link *link = connect_stranger(f);
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
    const uint64_t words[4] = {7};
    write_words(f, words, sizeof words, 0);
    assert_string_equal(f->closed_reason.text, "shared memory with words that nobody writes");
}

TEST_F(a_stream_changes_once, stream, .path = "/test.T/Echo")
{
    const uint64_t words[4] = {2};
    write_words(f, words, sizeof words, 0);
    assert_string_equal(f->closed_reason.text, "a stream that changes to shared memory twice");
}

TEST_F(a_message_that_is_too_long_ends_the_stream_before_its_bytes_come, stream,
       .path = "/test.T/Short")
{
    const uint64_t words[4] = {1};
    write_words(f, words, sizeof words, 101);
    assert_string_equal(f->closed_reason.text, "message has 101 bytes, the limit is 100");
}

/* The rest of it has no room, and another one is queued. */
static bool is_in_the_middle(struct rpc_stream *stream)
{
    thread_lock(&stream->lock);
    bool middle = stream->writing != NULL && stream->begun && stream_queued_locked(stream) > 0;
    thread_unlock(&stream->lock);
    return middle;
}

/* The client has threads of its own: it holds one of them. */
TEST_F(words_that_nobody_writes_end_a_stream_whose_message_has_no_room, stream)
{
    const uint64_t words[4] = {7};
    struct rpc_settings settings = settings_of_tests();
    struct rpc_loop *loop = loop_new(&settings);
    struct rpc_channel *channel = channel_new(loop, rpc_server_port(f->server), NULL);
    struct reason reason;
    assert_int_equal(rpc_stream_open(channel, "/test.T/Echo", &held_events, f, &f->stream), ERR_OK);
    wait_shared(f);
    atomic_store(&held, true);
    for (unsigned i = 0; i == 0 || !is_in_the_middle(f->server_stream); i++) {
        assert_true(i < 20);
        while (try_filled(f, f->server_stream) == ERR_OK)
            ;                   /* until its queue is full; … */
        usleep(LATE_MS * 1000); /* … of that is written what has room */
    }
    thread_lock(&f->stream->lock);
    assert_int_equal(shared_link_begin(f->stream->line.link,
                                       (struct slice){(const uint8_t *)words, sizeof words}, 0,
                                       &reason),
                     ERR_OK);
    thread_unlock(&f->stream->lock);
    tally_wait(&f->tally, SERVER_CLOSED, 1);
    atomic_store(&held, false);
    expect_closed(f, ERR_MALFORMED);
    rpc_stream_unref(f->stream);
    f->stream = NULL;
    rpc_channel_free(channel);
    rpc_loop_free(loop);
}

/* A loan whose table has room for one piece, and then so many bytes of the header, which are 0. */
static void write_loan(struct stream_fixture *world, uint64_t number, uint64_t extents,
                       const uint64_t *extent, size_t header_bytes)
{
    const uint64_t words[4] = {3, 0, number, extents};
    uint8_t head[64] = {0};
    size_t written, bytes = 16 + header_bytes;
    struct reason reason;
    memcpy(head, extent, 16);
    wait_lent(world);
    thread_lock(&world->stream->lock);
    struct shared_link *link = world->stream->line.link;
    assert_int_equal(shared_link_begin(link, (struct slice){(const uint8_t *)words, sizeof words},
                                       bytes, &reason),
                     ERR_OK);
    assert_int_equal(shared_link_write(link, head, bytes, &written, &reason), ERR_OK);
    assert_int_equal(written, bytes);
    thread_unlock(&world->stream->lock);
    expect_closed(world, ERR_MALFORMED);
}

TEST_F(a_loan_outside_of_the_pool_ends_the_stream, stream, .path = "/test.T/Echo")
{
    const uint64_t extent[2] = {UINT64_MAX, 2};
    write_loan(f, 5, 1, extent, 0);
    assert_string_equal(f->closed_reason.text, "a loan of 2 bytes from 18446744073709551615 on, "
                                               "outside of the sender's memory");
}

TEST_F(a_loan_that_is_too_long_ends_the_stream, stream, .path = "/test.T/Short")
{
    const uint64_t extent[2] = {0, 101};
    write_loan(f, 5, 1, extent, 0);
    assert_string_equal(f->closed_reason.text, "message has 101 bytes, the limit is 100");
}

TEST_F(a_loan_that_is_too_long_with_its_header_ends_the_stream, stream, .path = "/test.T/Short")
{
    const uint64_t extent[2] = {0, 90};
    write_loan(f, 5, 1, extent, 20);
    assert_string_equal(f->closed_reason.text, "message has 110 bytes, the limit is 100");
}

TEST_F(a_loan_of_no_number_ends_the_stream, stream, .path = "/test.T/Echo")
{
    const uint64_t extent[2] = {0, 100};
    write_loan(f, SHARED_LOANS_MAX, 1, extent, 0);
    assert_string_equal(f->closed_reason.text, "loan 16384, which nobody makes");
}

TEST_F(a_loan_of_more_pieces_than_words_ends_the_stream, stream, .path = "/test.T/Echo")
{
    const uint64_t extent[2] = {0, 100};
    write_loan(f, 5, 2, extent, 0);
    assert_string_equal(f->closed_reason.text, "a loan of more pieces than it has words for");
}

TEST_F(a_message_beside_the_memory_ends_the_stream, stream, .path = "/test.T/Echo")
{
    grpc_slice slice = grpc_slice_from_static_string("a");
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    grpc_byte_buffer *bytes = grpc_raw_byte_buffer_create(&slice, 1);
    op.data.send_message.send_message = bytes;
    wait_shared(f);
    thread_lock(&f->stream->lock);
    while (f->stream->sending) { /* what was sent before the change: one operation at a time */
        thread_unlock(&f->stream->lock);
        usleep(1000);
        thread_lock(&f->stream->lock);
    }
    f->stream->sending = true;
    f->stream->pending++;
    thread_unlock(&f->stream->lock);
    rpc_batch(f->loop, f->stream->call, &op, 1, &f->stream->sent);
    grpc_byte_buffer_destroy(bytes);
    expect_closed(f, ERR_MALFORMED);
    assert_string_equal(f->closed_reason.text, "a message beside the stream's shared memory");
}
