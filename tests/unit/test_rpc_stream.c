/* Streams over real loopback sockets, without TLS; also of test_rpc_shared, through shared memory. */
#define RPC_FIXTURE_OWN_MAIN
#ifndef STREAMS_SHARED
#define STREAMS_SHARED 0
#endif
#include "tests/unit/rpc_fixture.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OPENED, RECEIVED, SENT, ENDED, CLOSED, RELEASED, SERVER_CLOSED };
enum { METHODS = 8 };
enum { MESSAGE_BYTES = 512 << 10, MESSAGES = 24, QUEUE_MAX = 8, ORDER_MAX = 64, LATE_MS = 300 };

/* What both ends of a test share. */
struct stream_fixture {
    const char *path; /* of the stream that is open; NULL: none is */
    bool impatient; /* half a second of silence ends a connection; else none of a busy machine's */
    struct rpc_stream *stream;
    struct rpc_method methods[METHODS];
    struct rpc_loop *loop;
    struct rpc_server *server;
    struct rpc_channel *channel;
    struct tally tally;
    struct counted_tally released;
    struct thread_mutex lock; /* guards what follows */
    size_t bytes;             /* received by the client */
    size_t wrong_bytes;
    uint8_t order[ORDER_MAX]; /* first bytes of what the client received */
    unsigned order_count;
    enum err send_errs[ORDER_MAX];
    struct rpc_stream *server_stream; /* the first one: a reference */
    bool accepted;                    /* by accept_late() */
    struct rpc_message *kept;
    enum err closed_err, server_closed_err;
    struct reason closed_reason;
};

/* ---- The server's end ---- */

static enum err accept_stream(void *method_owner, struct rpc_stream *stream,
                              const struct rpc_peer *peer, void **ret_owner, struct reason *reason)
{
    (void)reason;
    struct stream_fixture *world = method_owner;
    assert_int_equal(peer->holder.role, TLS_ROLE_NONE);
    thread_lock(&world->lock);
    if (world->server_stream == NULL)
        world->server_stream = rpc_stream_ref(stream);
    thread_unlock(&world->lock);
    *ret_owner = world;
    tally_add(&world->tally, OPENED);
    return ERR_OK;
}

/* The client may write long before it returns. */
static enum err accept_late(void *method_owner, struct rpc_stream *stream,
                            const struct rpc_peer *peer, void **ret_owner, struct reason *reason)
{
    struct stream_fixture *world = method_owner;
    const struct timespec late = {.tv_nsec = LATE_MS * 1000000};
    check(nanosleep(&late, NULL) == 0);
    thread_lock(&world->lock);
    world->accepted = true;
    thread_unlock(&world->lock);
    return accept_stream(method_owner, stream, peer, ret_owner, reason);
}

static enum err refuse_stream(void *method_owner, struct rpc_stream *stream,
                              const struct rpc_peer *peer, void **ret_owner, struct reason *reason)
{
    (void)method_owner, (void)stream, (void)peer, (void)ret_owner;
    return reason_set(reason, ERR_OLD_GENERATION, "not today");
}

static void server_closed(void *owner, struct rpc_stream *stream, enum err err,
                          const struct reason *reason)
{
    (void)stream, (void)reason;
    struct stream_fixture *world = owner;
    thread_lock(&world->lock);
    world->server_closed_err = err;
    thread_unlock(&world->lock);
    tally_add(&world->tally, SERVER_CLOSED);
}

/* Sends what came back, from memory of its own. */
static void echo(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    struct stream_fixture *world = owner;
    size_t head = message->bytes < 10 ? message->bytes : 10;
    struct buf header = {0};
    assert_int_equal(buf_reserve(&header, head), ERR_OK);
    rpc_message_copy(message, 0, head, header.data);
    header.bytes = head;
    struct counted *counted = counted_filled(message->bytes - head, 0, &world->released);
    rpc_message_copy(message, head, message->bytes - head, counted->data);
    struct rpc_part parts[2] = {{counted, 0, counted->bytes / 3},
                                {counted, counted->bytes / 3, counted->bytes - counted->bytes / 3}};
    enum err err = rpc_stream_send(stream, RPC_NORMAL, &header, parts, 2);
    assert_true(err == ERR_OK || err == ERR_CANCELLED); /* the client may be gone by now */
    counted_unref(counted);
    rpc_message_unref(message);
}

static void echo_accepted(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    struct stream_fixture *world = owner;
    thread_lock(&world->lock);
    assert_true(world->accepted);
    thread_unlock(&world->lock);
    echo(owner, stream, message);
}

static enum err send_byte(struct rpc_stream *stream, enum rpc_priority priority, uint8_t byte)
{
    struct buf header = {0};
    assert_int_equal(buf_append(&header, &byte, 1), ERR_OK);
    return rpc_stream_send(stream, priority, &header, NULL, 0);
}

/* In one callback, so that nothing is sent in between: normal ones, then urgent ones. */
static void answer_in_two_priorities(void *owner, struct rpc_stream *stream,
                                     struct rpc_message *message)
{
    (void)owner;
    rpc_message_unref(message);
    for (uint8_t i = 0; i < 4; i++)
        assert_int_equal(send_byte(stream, RPC_NORMAL, i), ERR_OK);
    for (uint8_t i = 10; i < 13; i++)
        assert_int_equal(send_byte(stream, RPC_URGENT, i), ERR_OK);
}

static void answer_too_much(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    struct stream_fixture *world = owner;
    rpc_message_unref(message);
    thread_lock(&world->lock);
    for (uint8_t i = 0; i < QUEUE_MAX + 3; i++)
        world->send_errs[i] = send_byte(stream, RPC_NORMAL, i);
    world->send_errs[QUEUE_MAX + 3] = send_byte(stream, RPC_URGENT, 99);
    thread_unlock(&world->lock);
}

static void answer_and_finish(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    (void)owner;
    rpc_message_unref(message);
    for (uint8_t i = 0; i < 3; i++)
        assert_int_equal(send_byte(stream, RPC_NORMAL, i), ERR_OK);
    rpc_stream_finish(stream, ERR_MOVED, "gone elsewhere");
    assert_int_equal(send_byte(stream, RPC_NORMAL, 9), ERR_CANCELLED);
    rpc_stream_finish(stream, ERR_OK, NULL); /* the first one counts */
}

static void keep(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    (void)stream;
    struct stream_fixture *world = owner;
    thread_lock(&world->lock);
    world->kept = message;
    thread_unlock(&world->lock);
    tally_add(&world->tally, RECEIVED);
}

static const struct rpc_stream_events echo_events = {
    .open = accept_stream, .message = echo, .closed = server_closed};
static const struct rpc_stream_events late_events = {
    .open = accept_late, .message = echo_accepted, .closed = server_closed};
static const struct rpc_stream_events priority_events = {
    .open = accept_stream, .message = answer_in_two_priorities, .closed = server_closed};
static const struct rpc_stream_events full_events = {
    .open = accept_stream, .message = answer_too_much, .closed = server_closed};
static const struct rpc_stream_events finish_events = {
    .open = accept_stream, .message = answer_and_finish, .closed = server_closed};
static const struct rpc_stream_events keep_events = {
    .open = accept_stream, .message = keep, .closed = server_closed};
static const struct rpc_stream_events refuse_events = {.open = refuse_stream,
                                                       .closed = server_closed};

/* ---- The client's end ---- */

static void receive(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    (void)stream;
    struct stream_fixture *world = owner;
    thread_lock(&world->lock);
    if (world->order_count < ORDER_MAX && message->bytes > 0)
        rpc_message_copy(message, 0, 1, &world->order[world->order_count++]);
    world->bytes += message->bytes;
    size_t at = 0;
    for (uint32_t i = 0; i < message->slice_count; i++)
        for (size_t j = 0; j < message->slices[i].bytes; j++, at++)
            if (at >= 10 && message->slices[i].data[j] != (uint8_t)((at - 10) * 7))
                world->wrong_bytes++;
    thread_unlock(&world->lock);
    rpc_message_unref(message);
    tally_add(&world->tally, RECEIVED);
}

static void sent(void *owner, struct rpc_stream *stream, size_t queued)
{
    (void)stream, (void)queued;
    struct stream_fixture *world = owner;
    tally_add(&world->tally, SENT);
}

static void closed(void *owner, struct rpc_stream *stream, enum err err,
                   const struct reason *reason)
{
    (void)stream;
    struct stream_fixture *world = owner;
    thread_lock(&world->lock);
    world->closed_err = err;
    world->closed_reason = *reason;
    thread_unlock(&world->lock);
    tally_add(&world->tally, CLOSED);
}

static const struct rpc_stream_events client_events = {
    .message = receive, .sent = sent, .closed = closed};

static struct rpc_stream *open_stream(struct stream_fixture *world, const char *path)
{
    struct rpc_stream *stream = NULL;
    assert_int_equal(rpc_stream_open(world->channel, path, &client_events, world, &stream), ERR_OK);
    return stream;
}

static void expect_closed(struct stream_fixture *world, enum err err)
{
    tally_wait(&world->tally, CLOSED, 1);
    if (world->closed_err != err)
        fail_msg("closed with %s (%s), not %s", err_name(world->closed_err),
                 world->closed_reason.text, err_name(err));
}

/* ---- One world per test ---- */

static const struct rpc_method method_rows[METHODS] = {
    {.path = "/test.T/Echo", .kind = RPC_STREAM, .shared = STREAMS_SHARED, .events = &echo_events},
    {.path = "/test.T/Late", .kind = RPC_STREAM, .shared = STREAMS_SHARED, .events = &late_events},
    {.path = "/test.T/Priority",
     .kind = RPC_STREAM,
     .shared = STREAMS_SHARED,
     .events = &priority_events},
    {.path = "/test.T/Full", .kind = RPC_STREAM, .shared = STREAMS_SHARED, .events = &full_events},
    {.path = "/test.T/Finish",
     .kind = RPC_STREAM,
     .shared = STREAMS_SHARED,
     .events = &finish_events},
    {.path = "/test.T/Keep", .kind = RPC_STREAM, .shared = STREAMS_SHARED, .events = &keep_events},
    {.path = "/test.T/Short",
     .kind = RPC_STREAM,
     .shared = STREAMS_SHARED,
     .events = &echo_events,
     .request_bytes_max = 100},
    {.path = "/test.T/Refuse",
     .kind = RPC_STREAM,
     .shared = STREAMS_SHARED,
     .events = &refuse_events},
};

static struct rpc_settings settings_of_tests(void)
{
    struct rpc_settings settings = rpc_settings_default();
    settings.threads = 2;
    settings.queue_messages_max = QUEUE_MAX;
    settings.keepalive_timeout_ms = 60000;
    return settings;
}

static void world_init(struct stream_fixture *world)
{
    struct rpc_settings settings = settings_of_tests();
    if (world->impatient) {
        settings.keepalive_ms = 300;
        settings.keepalive_timeout_ms = 200;
    }
    world->loop = loop_new(&settings);
    tally_init(&world->tally);
    thread_mutex_init(&world->lock);
    world->released = (struct counted_tally){&world->tally, RELEASED};
}

static void world_serve(struct stream_fixture *world)
{
    memcpy(world->methods, method_rows, sizeof method_rows);
    for (unsigned i = 0; i < METHODS; i++)
        world->methods[i].owner = world;
    world->server = server_new(world->loop, NULL, world->methods, METHODS);
}

static void stream_set_up(struct stream_fixture *world)
{
    world_init(world);
    world_serve(world);
    world->channel = channel_new(world->loop, rpc_server_port(world->server), NULL);
    if (world->path != NULL)
        world->stream = open_stream(world, world->path);
}

/* First what may still open a stream, then what was kept of it. */
static void stream_tear_down(struct stream_fixture *world)
{
    rpc_channel_free(world->channel);
    rpc_server_free(world->server);
    rpc_stream_unref(world->stream);
    rpc_stream_unref(world->server_stream);
    rpc_message_unref(world->kept);
    rpc_loop_free(world->loop);
    thread_mutex_release(&world->lock);
    tally_release(&world->tally);
}

/* ---- Tests ---- */

static enum err try_filled(struct stream_fixture *world, struct rpc_stream *stream)
{
    struct buf header = {0};
    assert_int_equal(buf_append(&header, "0123456789", 10), ERR_OK);
    struct counted *counted = counted_filled(MESSAGE_BYTES, 0, &world->released);
    struct rpc_part part = {counted, 0, counted->bytes};
    enum err err = rpc_stream_send(stream, RPC_NORMAL, &header, &part, 1);
    counted_unref(counted);
    return err;
}

static void send_filled(struct stream_fixture *world, struct rpc_stream *stream)
{
    assert_int_equal(try_filled(world, stream), ERR_OK);
}

TEST_F(messages_of_half_a_mebibyte_come_back_and_their_memory_is_released, stream,
       .path = "/test.T/Echo")
{
    for (unsigned i = 0; i < MESSAGES; i++) { /* a window of four */
        if (i >= 4)
            tally_wait(&f->tally, RECEIVED, i - 3);
        send_filled(f, f->stream);
    }
    tally_wait(&f->tally, RECEIVED, MESSAGES);
    tally_wait(&f->tally, SENT, MESSAGES);
    rpc_stream_end(f->stream);
    expect_closed(f, ERR_OK);
    tally_wait(&f->tally, SERVER_CLOSED, 1);
    assert_int_equal(f->server_closed_err, ERR_OK);
    tally_wait(&f->tally, RELEASED, 2 * MESSAGES); /* both ends' */
    assert_int_equal(f->bytes, (size_t)MESSAGES * (MESSAGE_BYTES + 10));
    assert_int_equal(f->wrong_bytes, 0);
}

#if !STREAMS_SHARED /* where what is sent does not wait for what was sent before */
TEST_F(urgent_messages_overtake_all_that_waits, stream, .path = "/test.T/Priority")
{
    assert_int_equal(send_byte(f->stream, RPC_NORMAL, 0), ERR_OK);
    tally_wait(&f->tally, RECEIVED, 7);
    static const uint8_t expected[] = {0, 10, 11, 12, 1, 2, 3};
    assert_memory_equal(f->order, expected, sizeof expected);
    rpc_stream_cancel(f->stream);
}

TEST_F(a_full_queue_is_busy_and_leaves_room_for_urgent_messages, stream, .path = "/test.T/Full")
{
    assert_int_equal(send_byte(f->stream, RPC_NORMAL, 0), ERR_OK);
    tally_wait(&f->tally, RECEIVED, QUEUE_MAX + 2);
    thread_lock(&f->lock);
    for (unsigned i = 0; i < QUEUE_MAX + 1; i++) /* one is under way, QUEUE_MAX wait */
        assert_int_equal(f->send_errs[i], ERR_OK);
    assert_int_equal(f->send_errs[QUEUE_MAX + 1], ERR_BUSY);
    assert_int_equal(f->send_errs[QUEUE_MAX + 2], ERR_BUSY);
    assert_int_equal(f->send_errs[QUEUE_MAX + 3], ERR_OK);
    thread_unlock(&f->lock);
}
#endif

TEST_F(what_was_queued_arrives_before_the_servers_end, stream, .path = "/test.T/Finish")
{
    assert_int_equal(send_byte(f->stream, RPC_NORMAL, 0), ERR_OK);
    expect_closed(f, ERR_MOVED);
    assert_string_equal(f->closed_reason.text, "gone elsewhere");
    assert_int_equal(f->order_count, 3);
    assert_int_equal(send_byte(f->stream, RPC_NORMAL, 0), ERR_CANCELLED);
    rpc_stream_cancel(f->stream); /* closed already, and harmless */
    tally_wait(&f->tally, SERVER_CLOSED, 1);
    assert_int_equal(f->server_closed_err, ERR_MOVED);
}

TEST_F(a_stream_that_open_refuses_says_why, stream, .path = "/test.T/Refuse")
{
    expect_closed(f, ERR_OLD_GENERATION);
    assert_string_equal(f->closed_reason.text, "not today");
    rpc_server_free(f->server); /* waits for all events */
    f->server = NULL;
    assert_int_equal(tally_of(&f->tally, SERVER_CLOSED), 0);
}

TEST_F(a_message_may_be_kept_when_its_stream_is_gone, stream, .path = "/test.T/Keep")
{
    send_filled(f, f->stream);
    tally_wait(&f->tally, RECEIVED, 1);
    rpc_stream_cancel(f->stream);
    expect_closed(f, ERR_CANCELLED);
    tally_wait(&f->tally, SERVER_CLOSED, 1);
    assert_int_equal(f->server_closed_err, ERR_CANCELLED);
    assert_int_equal(send_byte(f->server_stream, RPC_NORMAL, 0), ERR_CANCELLED);
    tally_wait(&f->tally, RELEASED, 1);
    uint8_t end[2];
    rpc_message_copy(f->kept, f->kept->bytes - 2, 2, end);
    assert_int_equal(end[1], (uint8_t)((MESSAGE_BYTES - 1) * 7));
}

TEST_F(memory_of_a_cancelled_stalled_send_is_released, stream, .path = "/test.T/Echo")
{
    for (unsigned i = 0; i < QUEUE_MAX; i++)
        send_filled(f, f->stream);
    rpc_stream_cancel(f->stream);
    expect_closed(f, ERR_CANCELLED);
    tally_wait(&f->tally, RELEASED, QUEUE_MAX);
}

TEST_F(a_message_over_the_methods_limit_ends_the_stream, stream, .path = "/test.T/Short")
{
    struct buf header = {0};
    char text[101] = {0};
    assert_int_equal(buf_append(&header, text, sizeof text), ERR_OK);
    assert_int_equal(rpc_stream_send(f->stream, RPC_NORMAL, &header, NULL, 0), ERR_OK);
    expect_closed(f, ERR_MALFORMED);
}

TEST_F(what_breaks_a_limit_is_not_sent, stream, .path = "/test.T/Keep")
{
    struct counted *counted = counted_filled((1 << 20) + 1, 0, &f->released);
    struct rpc_part part = {counted, 0, counted->bytes};
    struct buf header = {0};
    assert_int_equal(rpc_stream_send(f->stream, RPC_NORMAL, &header, &part, 1), ERR_INVALID);
    part.bytes = 1;
    static struct rpc_part many[RPC_PARTS_MAX + 1];
    for (unsigned i = 0; i <= RPC_PARTS_MAX; i++)
        many[i] = part;
    assert_int_equal(rpc_stream_send(f->stream, RPC_NORMAL, &header, many, RPC_PARTS_MAX + 1),
                     ERR_INVALID);
    assert_int_equal(rpc_stream_send(f->stream, RPC_NORMAL, &header, many, RPC_PARTS_MAX), ERR_OK);
    tally_wait(&f->tally, RECEIVED, 1);
    assert_int_equal(f->kept->bytes, RPC_PARTS_MAX);
    counted_unref(counted);
    tally_wait(&f->tally, RELEASED, 1);
}

TEST_F(a_server_freed_with_open_streams_ends_them, stream, .path = "/test.T/Echo")
{
    tally_wait(&f->tally, OPENED, 1);
    send_filled(f, f->stream);
    rpc_server_free(f->server);
    f->server = NULL;
    assert_int_equal(tally_of(&f->tally, SERVER_CLOSED), 1);
    expect_closed(f, ERR_UNREACHABLE);
}

TEST_F(a_channel_freed_with_open_streams_cancels_them, stream)
{
    for (unsigned i = 0; i < 3; i++)
        rpc_stream_unref(open_stream(f, "/test.T/Echo"));
    struct rpc_stream *stream = open_stream(f, "/test.T/Keep");
    send_filled(f, stream);
    tally_wait(&f->tally, RECEIVED, 1);
    rpc_channel_free(f->channel);
    f->channel = NULL;
    assert_int_equal(tally_of(&f->tally, CLOSED), 4);
    tally_wait(&f->tally, SERVER_CLOSED, 1);
    rpc_stream_unref(stream);
}

TEST_F(a_stream_to_nobody_is_unreachable, stream)
{
    rpc_server_free(f->server);
    f->server = NULL;
    struct rpc_stream *stream = open_stream(f, "/test.T/Echo");
    ignore(try_filled(f, stream)); /* CANCELLED when its end comes first */
    expect_closed(f, ERR_UNREACHABLE);
    assert_int_equal(tally_of(&f->tally, SENT), 0);
    rpc_stream_unref(stream);
}

TEST_F(a_message_made_from_a_copy_reads_the_same, stream)
{
    struct rpc_message *message = rpc_message_new(slice_of("abcdef"));
    char text[3] = {0};
    rpc_message_copy(message, 2, 2, text);
    assert_string_equal(text, "cd");
    rpc_message_unref(message);
}

/* ---- A server that dies or stops: another process, started before any thread ---- */

struct other {
    pid_t pid;
    int to, from;
};

/* The child: waits for a byte, serves, tells its port, lives until it is killed. */
__attribute__((noreturn)) static void serve_elsewhere(int from, int to)
{
    char byte;
    if (read(from, &byte, 1) != 1)
        _exit(0); /* never wanted */
    static struct stream_fixture world;
    rpc_process_init(false);
    world_init(&world);
    world_serve(&world);
    unsigned port = rpc_server_port(world.server);
    if (write(to, &port, sizeof port) != sizeof port)
        _exit(1);
    while (read(from, &byte, 1) == 1)
        ;
    _exit(0);
}

static struct other other_start(void)
{
    int to[2], from[2];
    check(pipe(to) == 0 && pipe(from) == 0);
    pid_t pid = fork();
    check(pid >= 0);
    if (pid == 0) {
        close(to[1]);
        close(from[0]);
        serve_elsewhere(to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    return (struct other){pid, to[1], from[0]};
}

static unsigned other_serve(const struct other *other)
{
    unsigned port = 0;
    assert_int_equal(write(other->to, "s", 1), 1);
    assert_int_equal(read(other->from, &port, sizeof port), sizeof port);
    return port;
}

static void other_end(const struct other *other)
{
    kill(other->pid, SIGKILL);
    waitpid(other->pid, NULL, 0);
    close(other->to);
    close(other->from);
}

static struct other *others(void)
{
    static struct other two[2]; /* cmocka's tests have no other way to get it */
    return two;
}

static void expect_noticed(struct stream_fixture *world, const struct other *other,
                           int signal_number)
{
    struct rpc_channel *channel = channel_new(world->loop, other_serve(other), NULL);
    struct rpc_stream *stream = NULL;
    assert_int_equal(rpc_stream_open(channel, "/test.T/Echo", &client_events, world, &stream),
                     ERR_OK);
    send_filled(world, stream);
    tally_wait(&world->tally, RECEIVED, 1);
    kill(other->pid, signal_number);
    expect_closed(world, ERR_UNREACHABLE);
    rpc_stream_unref(stream);
    rpc_channel_free(channel);
    other_end(other);
}

TEST_F(a_killed_server_is_noticed, stream)
{
    expect_noticed(f, &others()[0], SIGKILL);
}

TEST_F(a_stopped_server_is_noticed_by_keepalive, stream, .impatient = true)
{
    expect_noticed(f, &others()[1], SIGSTOP);
}

int main(void)
{
    others()[0] = other_start();
    others()[1] = other_start();
    rpc_process_init(false);
    return unit_run(NULL, NULL);
}
