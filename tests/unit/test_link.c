/* The link between a daemon's shards and the coordinator, over real loopback sockets; the shards
 * and the coordinator are this file. */
#include "tests/unit/rpc_fixture.h"

#include "common/arena.h"
#include "common/inbox.h"
#include "server/events.h"
#include "server/threads/link.h"

#include <fcntl.h>
#include <unistd.h>

enum { HELLO, REPORT, COMMAND, AGAIN };

/* The shards' side, as link.c calls it. */
struct shards {
    struct tally tally;
    struct server_command command; /* the last one */
};

void shards_command(struct shards *shards, const struct server_command *command)
{
    shards->command = *command;
    tally_add(&shards->tally, COMMAND);
}

void shards_report_again(struct shards *shards)
{
    tally_add(&shards->tally, AGAIN);
}

uint64_t shards_term(struct shards *shards)
{
    (void)shards;
    return 12;
}

uint64_t shards_prepared(struct shards *shards)
{
    (void)shards;
    return 9;
}

struct cut_name shards_held(struct shards *shards)
{
    (void)shards;
    return (struct cut_name){7, 100};
}

/* The coordinator's side: a Serve method that counts what it hears. */
struct link_fixture {
    struct shards shards;
    struct inbox *inbox;
    struct rpc_loop *loop;
    struct rpc_server *server;
    struct rpc_method method;
    struct link *link;
    struct logger logger;
    char address[32];         /* of `server` */
    struct thread_mutex lock; /* guards the rest */
    struct rpc_stream *stream;
    struct server_report hello;
    uint64_t reported_step;
};

static enum err serve_open(void *owner, struct rpc_stream *stream, const struct rpc_peer *peer,
                           void **ret_owner, struct reason *reason)
{
    (void)peer, (void)reason;
    struct link_fixture *world = owner;
    thread_lock(&world->lock);
    rpc_stream_unref(world->stream);
    world->stream = rpc_stream_ref(stream);
    thread_unlock(&world->lock);
    *ret_owner = world;
    return ERR_OK;
}

static void serve_message(void *owner, struct rpc_stream *stream, struct rpc_message *take_message)
{
    (void)stream;
    struct link_fixture *world = owner;
    struct arena arena = {.bytes_max = 1 << 20};
    struct server_report report;
    uint8_t bytes[4096];
    assert_true(take_message->bytes < sizeof bytes);
    rpc_message_copy(take_message, 0, take_message->bytes, bytes);
    struct slice slice = {bytes, take_message->bytes};
    assert_int_equal(wire_decode_server_report(slice, &arena, &report, NULL), ERR_OK);
    thread_lock(&world->lock);
    bool hello = report.kind == SERVER_HELLO;
    if (hello)
        world->hello = report;
    else
        world->reported_step = report.committed.step;
    thread_unlock(&world->lock);
    arena_release(&arena);
    rpc_message_unref(take_message);
    tally_add(&world->shards.tally, hello ? HELLO : REPORT);
}

static const struct rpc_stream_events serve_events = {.open = serve_open, .message = serve_message};

static void link_set_up(struct link_fixture *world)
{
    const struct inbox_limits limits = {sizeof(struct event), 64};
    world->logger = (struct logger){.fd = -1};
    tally_init(&world->shards.tally);
    thread_mutex_init(&world->lock);
    assert_int_equal(inbox_new(limits, &world->inbox), ERR_OK);
    struct rpc_settings settings = rpc_settings_default();
    settings.threads = 2;
    settings.reconnect_ms_min = settings.reconnect_ms_max = 20;
    world->loop = loop_new(&settings);
    world->method = (struct rpc_method){.path = "/roost.v1.Cluster/Serve",
                                        .kind = RPC_STREAM,
                                        .roles = TLS_ROLES_ALL,
                                        .owner = world,
                                        .events = &serve_events};
}

static void open_link(struct link_fixture *world, const char *coordinator)
{
    const struct link_config config = {.loop = world->loop,
                                       .coordinator = coordinator,
                                       .name = "s1",
                                       .address = "here:1",
                                       .boot = 5,
                                       .seed = 1,
                                       .inbox = world->inbox,
                                       .logger = &world->logger};
    assert_int_equal(link_new(&config, &world->link, NULL), ERR_OK);
    link_attach(world->link, &world->shards);
}

static void open_server(struct link_fixture *world)
{
    world->server = server_new(world->loop, NULL, &world->method, 1);
    snprintf(world->address, sizeof world->address, "127.0.0.1:%u", rpc_server_port(world->server));
}

static void open_both(struct link_fixture *world)
{
    open_server(world);
    open_link(world, world->address);
}

static void link_tear_down(struct link_fixture *world)
{
    struct event event;
    size_t count;
    link_free(world->link);
    rpc_server_free(world->server); /* until then a stream may still open */
    rpc_stream_unref(world->stream);
    while (inbox_take(world->inbox, 0, 1, &event, &count) == ERR_OK)
        event_release(&event);
    rpc_loop_free(world->loop);
    inbox_free(world->inbox);
    tally_release(&world->shards.tally);
    thread_mutex_release(&world->lock);
}

/* The daemon's main loop, until counts[what] is `count`. */
static void turn_until(struct link_fixture *world, unsigned what, unsigned count)
{
    uint64_t deadline_ns = time_after_ms(time_now_ns(), FIXTURE_WAIT_MS);
    while (tally_of(&world->shards.tally, what) < count && time_now_ns() < deadline_ns) {
        struct event event;
        size_t taken;
        uint64_t turn_ns = time_after_ms(time_now_ns(), 5);
        if (inbox_take(world->inbox, turn_ns, 1, &event, &taken) == ERR_OK) {
            if (event.kind == EVENT_LINK_MESSAGE)
                link_message(world->link, event.number, event.message);
            event_release(&event);
        }
        link_tick(world->link, time_now_ns());
    }
    assert_true(tally_of(&world->shards.tally, what) >= count);
}

static void report_committed(struct link_fixture *world, uint64_t step)
{
    const struct server_report report = {
        .kind = SERVER_COMMITTED, .boot = 5, .committed = {.generation = 7, .step = step}};
    link_report(world->link, &report);
}

TEST_F(a_connection_begins_with_a_hello_and_then_everything_again, link)
{
    open_both(f);
    turn_until(f, HELLO, 1);
    assert_int_equal(tally_of(&f->shards.tally, AGAIN), 1);
    thread_lock(&f->lock);
    assert_string_equal(f->hello.hello.name, "s1");
    assert_string_equal(f->hello.hello.address, "here:1");
    assert_int_equal(f->hello.boot, 5);
    assert_int_equal(f->hello.hello.generation, 7);
    assert_int_equal(f->hello.hello.version, 100);
    assert_int_equal(f->hello.hello.term, 12);
    assert_int_equal(f->hello.hello.prepared, 9);
    assert_int_equal(f->hello.hello.wire_version, WIRE_VERSION);
    assert_int_equal(f->hello.hello.wire_version_min, WIRE_VERSION_MIN);
    thread_unlock(&f->lock);
}

/* What the server has heard the link may learn a moment later, from a thread of the library. */
static bool comes_to_be_connected(struct link_fixture *world)
{
    uint64_t deadline_ns = time_after_ms(time_now_ns(), FIXTURE_WAIT_MS);
    while (!link_connected(world->link) && time_now_ns() < deadline_ns)
        link_tick(world->link, time_now_ns());
    return link_connected(world->link);
}

TEST_F(reports_go_out_from_any_thread, link)
{
    open_both(f);
    report_committed(f, 1); /* before there is a stream: said again later, by the shards */
    turn_until(f, HELLO, 1);
    report_committed(f, 9);
    turn_until(f, REPORT, 1);
    assert_int_equal(f->reported_step, 9);
    assert_true(comes_to_be_connected(f));
}

TEST_F(commands_reach_the_shards, link)
{
    struct buf bytes = {0};
    open_both(f);
    turn_until(f, HELLO, 1);
    struct server_command command = {.kind = SERVER_COMMIT, .term = 3, .boot = 5};
    command.commit.step = 41;
    assert_int_equal(wire_encode_server_command(&command, &bytes), ERR_OK);
    thread_lock(&f->lock);
    assert_int_equal(rpc_stream_send(f->stream, RPC_NORMAL, &bytes, NULL, 0), ERR_OK);
    thread_unlock(&f->lock);
    turn_until(f, COMMAND, 1);
    assert_int_equal(f->shards.command.commit.step, 41);
    assert_int_equal(f->shards.command.term, 3);
}

TEST_F(a_broken_stream_is_opened_again_with_a_new_hello, link)
{
    open_both(f);
    for (unsigned i = 1; i <= 3; i++) {
        turn_until(f, HELLO, i);
        thread_lock(&f->lock);
        rpc_stream_finish(f->stream, ERR_UNREACHABLE, "gone");
        thread_unlock(&f->lock);
    }
    turn_until(f, HELLO, 4);
    assert_int_equal(tally_of(&f->shards.tally, AGAIN), 4);
}

TEST_F(who_is_refused_for_good_has_the_coordinators_sentence, link)
{
    struct reason reason = {0};
    open_both(f);
    turn_until(f, HELLO, 1);
    assert_int_equal(link_refused(f->link, &reason), ERR_OK);
    thread_lock(&f->lock);
    rpc_stream_finish(f->stream, ERR_WIRE_VERSION, "other versions");
    thread_unlock(&f->lock);
    uint64_t deadline_ns = time_after_ms(time_now_ns(), FIXTURE_WAIT_MS);
    while (!link_is_refused(f->link) && time_now_ns() < deadline_ns)
        link_tick(f->link, time_now_ns());
    assert_int_equal(link_refused(f->link, &reason), ERR_WIRE_VERSION);
    assert_non_null(strstr(reason.text, "other versions"));
}

TEST_F(a_coordinator_that_comes_later_is_found, link)
{
    open_server(f);
    rpc_server_free(f->server); /* now nobody listens there */
    f->server = NULL;
    open_link(f, f->address);
    turn_until(f, AGAIN, 2); /* at least one attempt was refused */
    struct rpc_server_config config = {
        .loop = f->loop, .address = f->address, .methods = &f->method, .method_count = 1};
    assert_int_equal(rpc_server_new(&config, &f->server, NULL), ERR_OK);
    turn_until(f, HELLO, 1);
}

/* How long the link waits until it tries again, when an attempt of that moment has failed; it has
 * nothing else to do before `quiet_ns`. */
static uint32_t waits_ms(struct link_fixture *world, uint64_t now_ns, uint64_t quiet_ns)
{
    uint64_t deadline_ns = time_after_ms(time_now_ns(), FIXTURE_WAIT_MS);
    do
        link_tick(world->link, now_ns);
    while (link_next_ns(world->link) >= quiet_ns && time_now_ns() < deadline_ns);
    return (uint32_t)((link_next_ns(world->link) - now_ns) / 1000000);
}

TEST_F(a_coordinator_that_is_not_there_is_called_soon_again_then_twice_a_second, link)
{
    open_link(f, "127.0.0.1:1");
    uint64_t now_ns = time_now_ns(), quiet_ns = time_after_ms(now_ns, 2500); /* the log's line */
    for (uint32_t about_ms = 50; about_ms <= 400; about_ms *= 2) {
        uint32_t waits = waits_ms(f, now_ns, quiet_ns);
        assert_in_range(waits, about_ms / 2, about_ms * 3 / 2);
        now_ns = time_after_ms(now_ns, waits + 1);
    }
    assert_in_range(waits_ms(f, now_ns, quiet_ns), 250, 750);
}

/* What the log has to say at a moment that long after the first. */
static bool says_after(struct link_fixture *world, int log, uint64_t begun_ns, uint32_t ms,
                       const char *words)
{
    char text[4096] = "";
    link_tick(world->link, time_after_ms(begun_ns, ms));
    ssize_t got = read(log, text, sizeof text - 1);
    return got > 0 && strstr(text, words) != NULL;
}

TEST_F(a_coordinator_that_does_not_answer_is_named_once_a_minute, link)
{
    static const char words[] = " warning coordinator not reached  coordinator=127.0.0.1:1 why=";
    int ends[2];
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    f->logger = (struct logger){.level = LOG_LEVEL_INFO, .fd = ends[1]};
    open_link(f, "127.0.0.1:1");
    uint64_t begun_ns = time_now_ns();
    assert_false(says_after(f, ends[0], begun_ns, 0, words));
    assert_false(says_after(f, ends[0], begun_ns, 2000, words));
    assert_true(link_next_ns(f->link) <= time_after_ms(begun_ns, 3000));
    assert_true(says_after(f, ends[0], begun_ns, 3000, words));
    assert_false(says_after(f, ends[0], begun_ns, 50000, words));
    assert_true(says_after(f, ends[0], begun_ns, 64000, words));
    close(ends[0]);
    close(ends[1]);
}

TEST_F(the_coordinators_own_reports_go_through_its_inbox, link)
{
    struct event event;
    size_t count;
    open_link(f, NULL);
    report_committed(f, 6);
    assert_int_equal(inbox_take(f->inbox, 0, 1, &event, &count), ERR_OK);
    assert_int_equal(event.kind, EVENT_REPORT);
    assert_true(event.message->bytes > 0);
    event_release(&event);
    assert_true(link_connected(f->link));
}

TEST_F(an_own_report_without_room_is_asked_for_again, link)
{
    open_link(f, NULL);
    for (int i = 0; i < 64; i++)
        report_committed(f, 6);
    link_tick(f->link, time_now_ns());
    assert_int_equal(tally_of(&f->shards.tally, AGAIN), 0);
    report_committed(f, 6); /* the inbox is full */
    link_tick(f->link, time_now_ns());
    assert_int_equal(tally_of(&f->shards.tally, AGAIN), 1);
    link_tick(f->link, time_now_ns());
    assert_int_equal(tally_of(&f->shards.tally, AGAIN), 1);
}
