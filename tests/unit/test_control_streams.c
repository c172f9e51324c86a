/* The coordinator's daemon: what reports, servers' streams and members' streams are good for. */
#include "tests/unit/control_fixture.h"

#include "server/control/control_core.h"

/* ---- reports and streams ---- */

TEST_F(reports_that_do_not_decode_or_belong_elsewhere_change_nothing, control)
{
    assert_int_equal(start_run(f), ERR_OK);
    struct rpc_message *nonsense = nonsense_new();
    control_report(f->control, f->now_ns, nonsense);
    rpc_message_unref(nonsense);
    report(f, (struct server_report){.kind = SERVER_MANIFEST, .manifest = {.cut = {99, 4}}});
    report(f, (struct server_report){.kind = SERVER_COMMITTED,
                                     .committed = {f->shards.generation, 77}});
    assert_int_equal(control_failed(f->control), ERR_OK);
    assert_true(control_loading(f->control));
    ready(f);
    manifest(f, 0);
    assert_false(control_loading(f->control));
}

/* Over the fixture's stream i. */
static struct connection *new_connection(struct control_fixture *f, unsigned i, bool is_server)
{
    const struct rpc_peer peer = {.address = "127.0.0.1:1"};
    struct connection *connection = connection_new(NULL, &f->streams[i], &peer, is_server);
    assert_non_null(connection);
    return connection;
}

static void connection_release(struct connection **connection)
{
    connection_unref(*connection);
}

static void expect_finished(const struct rpc_stream *stream, enum err err)
{
    assert_true(stream->finished);
    assert_int_equal(stream->err, err);
}

static void stream_says(struct control_fixture *f, struct connection *connection,
                        struct rpc_message *take_message)
{
    control_connection_message(f->control, f->now_ns, connection, take_message);
    rpc_message_unref(take_message);
}

static void server_says(struct control_fixture *f, struct connection *connection,
                        struct server_report said)
{
    stream_says(f, connection, message_of(&said));
}

TEST_F(a_servers_stream_that_begins_with_no_hello_is_closed, control)
{
    scoped(connection_release) struct connection *connection = new_connection(f, 0, true);
    server_says(f, connection, (struct server_report){.kind = SERVER_COMMITTED, .boot = FAR_BOOT});
    expect_finished(&f->streams[0], ERR_MALFORMED);
    assert_false(connection->listed);
}

static const struct server_report far_hello = {
    .kind = SERVER_HELLO, .boot = FAR_BOOT, .hello = {.name = "far", .address = "far:1"}};

/* Servers and workers could not connect to it, and would end. */
TEST_F(a_server_at_no_address_is_refused, control)
{
    scoped(connection_release) struct connection *connection = new_connection(f, 0, true);
    struct server_report hello = far_hello;
    snprintf(hello.hello.address, sizeof hello.hello.address, "far");
    server_says(f, connection, hello);
    expect_finished(&f->streams[0], ERR_INVALID);
    assert_false(connection->listed);
}

TEST_F(a_late_report_is_harmless_and_nonsense_ends_the_stream, control, .trains = true)
{
    scoped(connection_release) struct connection *connection = new_connection(f, 0, true);
    server_says(f, connection, far_hello);
    assert_true(connection->listed);
    server_says(f, connection, (struct server_report){.kind = SERVER_COMMITTED, .boot = FAR_BOOT});
    server_says(f, connection, (struct server_report){.kind = SERVER_STATISTICS, .boot = BOOT});
    server_says(f, connection, far_hello);
    assert_false(
        f->streams[0].finished); /* another generation, another boot, or no report at all */
    stream_says(f, connection, nonsense_new());
    expect_finished(&f->streams[0], ERR_MALFORMED);
    control_connection_closed(f->control, f->now_ns, connection);
    assert_false(connection->listed);
}

static bool is_connected(const struct control_fixture *f, const char *name)
{
    struct coordinator_server server;
    for (uint32_t i = 0; coordinator_server(f->control->coordinator, i, &server); i++)
        if (strcmp(server.name, name) == 0)
            return server.connected;
    return false;
}

TEST_F(a_server_whose_end_found_no_room_in_the_inbox_is_lost_with_the_next_tick, control)
{
    struct connection *connection = new_connection(f, 0, true);
    server_says(f, connection, far_hello);
    assert_true(is_connected(f, "far"));
    atomic_store(&connection->closed, true);
    connection_unref(connection); /* the transport's */
    control_tick(f->control, f->now_ns);
    assert_false(is_connected(f, "far"));
    assert_true(is_connected(f, "here"));
}

TEST_F(a_server_that_says_hello_again_ends_its_older_stream, control)
{
    scoped(connection_release) struct connection *older = new_connection(f, 0, true);
    scoped(connection_release) struct connection *newer = new_connection(f, 1, true);
    server_says(f, older, far_hello);
    server_says(f, newer, far_hello);
    assert_true(f->streams[0].finished);
    assert_false(older->listed);
    assert_false(f->streams[1].finished);
    assert_true(newer->listed);
}

/* Whichever boot is the higher number: those of another directory may be lower. */
TEST_F(p3_another_start_of_a_name_that_answers_is_refused, control)
{
    struct server_report other = far_hello;
    scoped(connection_release) struct connection *first = new_connection(f, 0, true);
    server_says(f, first, far_hello);
    for (unsigned i = 0; i < 2; i++) {
        scoped(connection_release) struct connection *asks = new_connection(f, 1, true);
        scoped(connection_release) struct connection *again = new_connection(f, 2, true);
        f->streams[1] = f->streams[2] = (struct rpc_stream){0};
        other.boot = FAR_BOOT - 1 + 2 * i;
        unsigned sent = f->streams[0].sent;
        server_says(f, asks, other);
        assert_int_equal(f->streams[1].err, ERR_BUSY);
        assert_int_equal(f->streams[0].sent, sent + 1); /* it is asked */
        server_says(f, first, (struct server_report){.kind = SERVER_HELD, .boot = FAR_BOOT});
        server_says(f, again, other);
        expect_finished(&f->streams[2], ERR_NAME_TAKEN);
        assert_false(asks->listed || again->listed);
        assert_false(f->streams[0].finished);
        assert_true(first->listed);
    }
}

TEST_F(p3_another_start_takes_the_place_of_one_that_is_silent, control)
{
    struct server_report other = far_hello;
    scoped(connection_release) struct connection *first = new_connection(f, 0, true);
    scoped(connection_release) struct connection *asks = new_connection(f, 1, true);
    scoped(connection_release) struct connection *again = new_connection(f, 2, true);
    other.boot = FAR_BOOT + 1;
    server_says(f, first, far_hello);
    server_says(f, asks, other);
    assert_int_equal(f->streams[1].err, ERR_BUSY);
    f->now_ns += (uint64_t)LEASE_MS / 2 * 1000000;
    server_says(f, again, other);
    assert_true(again->listed);
    assert_false(f->streams[2].finished);
    assert_true(f->streams[0].finished);
    assert_false(first->listed);
}

static bool store_full;

/* The linker leads here (--wrap). */
enum err __real_store_put_term(struct store *store, uint64_t term, uint64_t newer,
                               struct reason *reason);
enum err __wrap_store_put_term(struct store *store, uint64_t term, uint64_t newer,
                               struct reason *reason);

enum err __wrap_store_put_term(struct store *store, uint64_t term, uint64_t newer,
                               struct reason *reason)
{
    if (store_full)
        return reason_set(reason, ERR_NO_SPACE, "the disk is full");
    return __real_store_put_term(store, term, newer, reason);
}

TEST_F(p7_a_server_waits_until_there_is_room_for_the_term_that_it_needs, control)
{
    scoped(connection_release) struct connection *first = new_connection(f, 0, true);
    scoped(connection_release) struct connection *again = new_connection(f, 1, true);
    struct server_report hello = far_hello;
    hello.hello.term = WIRE_TERM_MAX - 1;
    store_full = true;
    server_says(f, first, hello);
    assert_int_equal(f->streams[0].err, ERR_NO_SPACE);
    assert_int_equal(control_failed(f->control), ERR_OK);
    store_full = false;
    server_says(f, again, hello);
    assert_true(again->listed);
}

static void member_keeps(struct control_fixture *f, struct connection *connection, uint64_t member,
                         uint64_t kept_bytes)
{
    scoped(buf_release) struct buf bytes = {0};
    const struct member_report report = {member, f->secrets[member % SECRETS_MAX], kept_bytes};
    assert_int_equal(wire_encode_member_report(&report, &bytes), ERR_OK);
    stream_says(f, connection, rpc_message_new(buf_slice(&bytes)));
}

static void member_says(struct control_fixture *f, struct connection *connection, uint64_t member)
{
    member_keeps(f, connection, member, 0);
}

TEST_F(the_status_has_what_a_member_keeps_by_its_newest_heartbeat, control, .trains = true)
{
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 20};
    uint64_t member = join(f);
    scoped(connection_release) struct connection *connection = new_connection(f, 0, false);
    member_says(f, connection, member);
    assert_int_equal(status(f, &arena).members[0].kept_bytes, 0);
    member_keeps(f, connection, member, 4096);
    assert_int_equal(status(f, &arena).members[0].kept_bytes, 4096);
}

TEST_F(the_stream_of_a_member_that_is_none_is_closed, control, .trains = true)
{
    scoped(connection_release) struct connection *connection = new_connection(f, 0, false);
    member_says(f, connection, 4711);
    expect_finished(&f->streams[0], ERR_UNKNOWN_MEMBER);
    assert_false(connection->listed);
}

TEST_F(the_status_has_the_ends_of_certificates, control, .trains = true)
{
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 20};
    uint64_t member = join(f);
    scoped(connection_release) struct connection *connection = new_connection(f, 0, false);
    connection->certificate_ends_s = 1000;
    member_says(f, connection, member);
    control_certificate(f->control, 2000, 0);
    struct status_reply reply = status(f, &arena);
    assert_int_equal(reply.members[0].certificate_ends_s, 1000);
    assert_int_equal(reply.servers[0].certificate_ends_s, 2000); /* the coordinator's own */
    control_connection_closed(f->control, f->now_ns, connection);
    assert_int_equal(status(f, &arena).members[0].certificate_ends_s, 0);
}

TEST_F(open_streams_are_warned_of_once_a_day, control, .trains = true)
{
    enum { DAY_S = 86400, END_S = 100 * DAY_S };
    uint64_t member = join(f);
    scoped(connection_release) struct connection *connection = new_connection(f, 0, false);
    member_says(f, connection, member);
    connection->certificate_ends_s = END_S;
    log_begin(f);
    const char *words = "certificates of others end soon  streams=1";
    control_certificate(f->control, 2 * END_S, END_S - 8 * DAY_S);
    assert_false(is_logged(f, words));
    control_certificate(f->control, 2 * END_S, END_S - 7 * DAY_S);
    assert_true(is_logged(f, words));
    control_certificate(f->control, 2 * END_S, END_S - 7 * DAY_S + 3600);
    assert_false(is_logged(f, words));
    control_certificate(f->control, 2 * END_S, END_S - 6 * DAY_S);
    assert_true(is_logged(f, words));
}

TEST_F(a_member_has_one_stream_and_loses_it_when_it_is_silent, control, .trains = true)
{
    uint64_t member = join(f);
    scoped(connection_release) struct connection *older = new_connection(f, 0, false);
    scoped(connection_release) struct connection *newer = new_connection(f, 1, false);
    member_says(f, older, member);
    member_says(f, newer, member);
    expect_finished(&f->streams[0], ERR_CANCELLED);
    control_connection_closed(f->control, f->now_ns, older); /* not the member's end */
    control_tick(f->control, f->now_ns);
    assert_true(f->streams[1].sent > 0); /* the coordinator lives */
    assert_false(f->streams[1].finished);
    f->now_ns += 2 * LEASE_MS * (SECOND / 1000);
    assert_true(control_next_ns(f->control) < f->now_ns);
    control_tick(f->control, f->now_ns);
    assert_false(f->streams[1].finished); /* so late, its word may be on its way */
    for (int i = 0; i < 100 && !f->streams[1].finished; i++) {
        f->now_ns = control_next_ns(f->control);
        control_tick(f->control, f->now_ns);
    }
    expect_finished(&f->streams[1], ERR_UNKNOWN_MEMBER);
    member_says(f, newer, member); /* on its way when it was closed */
}

TEST_F(who_does_not_take_the_word_of_a_lease_opens_another_stream, control, .trains = true)
{
    uint64_t member = join(f);
    struct connections connections;
    scoped(connection_release) struct connection *connection = new_connection(f, 0, false);
    assert_int_equal(connections_init(&connections), ERR_OK);
    assert_int_equal(connections_add(&connections, connection, member), ERR_OK);
    f->streams[0].full = true;
    connections_notice(&connections, &(struct member_notice){.kind = NOTICE_CHANGED, .text = ""});
    assert_false(f->streams[0].cancelled); /* the next one says the same */
    connections_notice_one(&connections, member,
                           &(struct member_notice){.kind = NOTICE_PLACES, .text = ""});
    assert_true(f->streams[0].cancelled);
    connections_release(&connections);
}

TEST_F(the_end_answers_who_waits_and_ends_streams, control, .trains = true)
{
    scoped(connection_release) struct connection *connection = new_connection(f, 0, false);
    member_says(f, connection, join(f));
    say_and_wait(f, call_new(f, CALL_CHECKPOINT));
    unsigned before = answer.count;
    control_free(f->control);
    f->control = NULL;
    assert_int_equal(answer.count, before + 1);
    assert_int_equal(answer.err, ERR_CANCELLED);
    expect_finished(&f->streams[0], ERR_UNREACHABLE);
}
