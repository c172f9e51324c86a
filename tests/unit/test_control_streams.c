/* The coordinator's daemon: what reports, servers' streams and members' streams are good for. */
#include "tests/unit/control_fixture.h"

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

static struct connection *new_connection(struct rpc_stream *stream, bool is_server)
{
    const struct rpc_peer peer = {.address = "127.0.0.1:1"};
    struct connection *connection = connection_new(NULL, stream, &peer, is_server);
    assert_non_null(connection);
    return connection;
}

static void server_says(struct control_fixture *f, struct connection *connection,
                        struct server_report said)
{
    struct rpc_message *message = message_of(&said);
    control_connection_message(f->control, f->now_ns, connection, message);
    rpc_message_unref(message);
}

TEST_F(a_servers_stream_that_begins_with_no_hello_is_closed, control)
{
    struct connection *connection = new_connection(&f->streams[0], true);
    server_says(f, connection, (struct server_report){.kind = SERVER_COMMITTED, .boot = FAR_BOOT});
    assert_true(f->streams[0].finished);
    assert_int_equal(f->streams[0].err, ERR_MALFORMED);
    assert_false(connection->listed);
    connection_unref(connection);
}

static const struct server_report far_hello = {
    .kind = SERVER_HELLO, .boot = FAR_BOOT, .hello = {.name = "far", .address = "far:1"}};

TEST_F(a_late_report_is_harmless_and_nonsense_ends_the_stream, control)
{
    train(f);
    struct connection *connection = new_connection(&f->streams[0], true);
    server_says(f, connection, far_hello);
    assert_true(connection->listed);
    server_says(f, connection, (struct server_report){.kind = SERVER_COMMITTED, .boot = FAR_BOOT});
    server_says(f, connection, (struct server_report){.kind = SERVER_STATISTICS, .boot = BOOT});
    server_says(f, connection, far_hello);
    assert_false(
        f->streams[0].finished); /* another generation, another boot, or no report at all */
    struct rpc_message *nonsense = nonsense_new();
    control_connection_message(f->control, f->now_ns, connection, nonsense);
    rpc_message_unref(nonsense);
    assert_true(f->streams[0].finished);
    assert_int_equal(f->streams[0].err, ERR_MALFORMED);
    control_connection_closed(f->control, f->now_ns, connection);
    assert_false(connection->listed);
    connection_unref(connection);
}

TEST_F(a_server_that_says_hello_again_ends_its_older_stream, control)
{
    struct connection *older = new_connection(&f->streams[0], true);
    struct connection *newer = new_connection(&f->streams[1], true);
    server_says(f, older, far_hello);
    server_says(f, newer, far_hello);
    assert_true(f->streams[0].finished);
    assert_false(older->listed);
    assert_false(f->streams[1].finished);
    assert_true(newer->listed);
    connection_unref(older);
    connection_unref(newer);
}

/* Whichever boot is the higher number: those of another directory may be lower. */
TEST_F(p3_another_start_of_a_name_that_answers_is_refused, control)
{
    struct server_report other = far_hello;
    struct connection *first = new_connection(&f->streams[0], true);
    server_says(f, first, far_hello);
    for (unsigned i = 0; i < 2; i++) {
        struct connection *asks = new_connection(&f->streams[1], true);
        struct connection *again = new_connection(&f->streams[2], true);
        f->streams[1] = f->streams[2] = (struct rpc_stream){0};
        other.boot = FAR_BOOT - 1 + 2 * i;
        unsigned sent = f->streams[0].sent;
        server_says(f, asks, other);
        assert_int_equal(f->streams[1].err, ERR_BUSY);
        assert_int_equal(f->streams[0].sent, sent + 1); /* it is asked */
        server_says(f, first, (struct server_report){.kind = SERVER_HELD, .boot = FAR_BOOT});
        server_says(f, again, other);
        assert_true(f->streams[2].finished);
        assert_int_equal(f->streams[2].err, ERR_NAME_TAKEN);
        assert_false(asks->listed || again->listed);
        assert_false(f->streams[0].finished);
        assert_true(first->listed);
        connection_unref(asks);
        connection_unref(again);
    }
    connection_unref(first);
}

TEST_F(p3_another_start_takes_the_place_of_one_that_is_silent, control)
{
    struct server_report other = far_hello;
    struct connection *first = new_connection(&f->streams[0], true);
    struct connection *asks = new_connection(&f->streams[1], true);
    struct connection *again = new_connection(&f->streams[2], true);
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
    connection_unref(first);
    connection_unref(asks);
    connection_unref(again);
}

static void member_says(struct control_fixture *f, struct connection *connection, uint64_t member)
{
    scoped(buf_release) struct buf bytes = {0};
    const struct member_report report = {member, f->secrets[member % SECRETS_MAX]};
    assert_int_equal(wire_encode_member_report(&report, &bytes), ERR_OK);
    struct rpc_message *message = rpc_message_new(buf_slice(&bytes));
    control_connection_message(f->control, f->now_ns, connection, message);
    rpc_message_unref(message);
}

TEST_F(the_stream_of_a_member_that_is_none_is_closed, control)
{
    train(f);
    struct connection *connection = new_connection(&f->streams[0], false);
    member_says(f, connection, 4711);
    assert_true(f->streams[0].finished);
    assert_int_equal(f->streams[0].err, ERR_UNKNOWN_MEMBER);
    assert_false(connection->listed);
    connection_unref(connection);
}

TEST_F(a_member_has_one_stream_and_loses_it_when_it_is_silent, control)
{
    train(f);
    uint64_t member = join(f);
    struct connection *older = new_connection(&f->streams[0], false);
    struct connection *newer = new_connection(&f->streams[1], false);
    member_says(f, older, member);
    member_says(f, newer, member);
    assert_true(f->streams[0].finished);
    assert_int_equal(f->streams[0].err, ERR_CANCELLED);
    control_connection_closed(f->control, f->now_ns, older); /* not the member's end */
    control_tick(f->control, f->now_ns);
    assert_true(f->streams[1].sent > 0); /* the coordinator lives */
    assert_false(f->streams[1].finished);
    f->now_ns += 2 * LEASE_MS * (SECOND / 1000);
    assert_true(control_next_ns(f->control) < f->now_ns);
    control_tick(f->control, f->now_ns);
    assert_true(f->streams[1].finished);
    assert_int_equal(f->streams[1].err, ERR_UNKNOWN_MEMBER);
    member_says(f, newer, member); /* on its way when it was closed */
    connection_unref(older);
    connection_unref(newer);
}

TEST_F(the_end_answers_who_waits_and_ends_streams, control)
{
    train(f);
    struct connection *connection = new_connection(&f->streams[0], false);
    member_says(f, connection, join(f));
    say_and_wait(f, call_new(f, CALL_CHECKPOINT));
    unsigned before = answer.count;
    control_free(f->control);
    f->control = NULL;
    assert_int_equal(answer.count, before + 1);
    assert_int_equal(answer.err, ERR_CANCELLED);
    assert_true(f->streams[0].finished);
    assert_int_equal(f->streams[0].err, ERR_UNREACHABLE);
    connection_unref(connection);
}
