/* Unary calls over real loopback sockets. */
#include "common/rpc/accepted.h"
#include "tests/unit/rpc_fixture.h"

#include <grpc/support/sync.h>

enum { REQUESTED, CANCELLED, ANSWERED };
enum { METHODS = 6, KEPT_MAX = 16 };

/* What the methods and the tests share. */
struct rpc_fixture {
    struct rpc_method methods[METHODS];
    struct rpc_loop *loop;
    struct authority authority;
    struct tls_identity server_identity, worker_identity, operator_identity;
    struct rpc_server *server;
    struct rpc_channel *worker, *operator_;
    struct tally tally;
    struct thread_mutex lock;   /* guards what follows */
    struct rpc_request *parked; /* waits for the test to answer it */
    struct rpc_request *kept[KEPT_MAX];
    unsigned kept_count;
    struct rpc_peer peer;
    uint64_t numbers[2];
    struct buf response; /* to the last call() */
    struct reason reason;
};

static void echo(void *owner, struct rpc_request *request, struct slice bytes)
{
    struct rpc_fixture *world = owner;
    thread_lock(&world->lock);
    world->peer = *rpc_request_peer(request);
    world->numbers[0] = world->numbers[1];
    world->numbers[1] = rpc_request_number(request);
    thread_unlock(&world->lock);
    struct buf answer = {0};
    if (buf_append(&answer, bytes.data, bytes.bytes) == ERR_OK)
        rpc_reply(request, &answer);
    else
        rpc_fail(request, ERR_NOMEM, NULL);
}

static void park(void *owner, struct rpc_request *request, struct slice bytes)
{
    (void)bytes;
    struct rpc_fixture *world = owner;
    thread_lock(&world->lock);
    world->parked = request;
    thread_unlock(&world->lock);
    tally_add(&world->tally, REQUESTED);
}

static struct rpc_request *unpark(struct rpc_fixture *world)
{
    thread_lock(&world->lock);
    struct rpc_request *request = world->parked;
    world->parked = NULL;
    thread_unlock(&world->lock);
    return request;
}

static void park_cancelled(void *owner, struct rpc_request *request)
{
    struct rpc_fixture *world = owner;
    thread_lock(&world->lock);
    assert_ptr_equal(world->parked, request);
    thread_unlock(&world->lock);
    tally_add(&world->tally, CANCELLED);
}

/* Answers nobody while the test runs, and does not ask who is gone. */
static void keep(void *owner, struct rpc_request *request, struct slice bytes)
{
    (void)bytes;
    struct rpc_fixture *world = owner;
    thread_lock(&world->lock);
    assert_true(world->kept_count < KEPT_MAX);
    world->kept[world->kept_count++] = request;
    thread_unlock(&world->lock);
    tally_add(&world->tally, REQUESTED);
}

/* The request's first byte is the error to answer with, the others the sentence. */
static void fail_so(void *owner, struct rpc_request *request, struct slice bytes)
{
    char text[64] = "said so";
    (void)owner;
    if (bytes.bytes > 1)
        snprintf(text, sizeof text, "%.*s", (int)bytes.bytes - 1, (const char *)bytes.data + 1);
    rpc_fail(request, err_from_wire(bytes.data[0]), text);
}

static void too_long(void *owner, struct rpc_request *request, struct slice bytes)
{
    (void)owner, (void)bytes;
    struct buf answer = {0};
    assert_int_equal(buf_reserve(&answer, (1 << 20) + 1), ERR_OK);
    memset(answer.data, 1, (1 << 20) + 1);
    answer.bytes = (1 << 20) + 1;
    rpc_reply(request, &answer);
}

static void methods_fill(struct rpc_fixture *world, struct rpc_method methods[static METHODS])
{
    methods[0] = (struct rpc_method){
        .path = "/test.T/Echo", .roles = TLS_ROLES_ALL, .owner = world, .requested = echo};
    methods[1] = (struct rpc_method){.path = "/test.T/Park",
                                     .roles = TLS_ROLES_ALL,
                                     .owner = world,
                                     .requested = park,
                                     .cancelled = park_cancelled};
    methods[2] = (struct rpc_method){
        .path = "/test.T/Fail", .roles = TLS_ROLES_ALL, .owner = world, .requested = fail_so};
    methods[3] = (struct rpc_method){.path = "/test.T/Administer",
                                     .roles = TLS_ROLE_BIT(TLS_ROLE_OPERATOR),
                                     .request_bytes_max = 10,
                                     .owner = world,
                                     .requested = echo};
    methods[4] = (struct rpc_method){
        .path = "/test.T/TooLong", .roles = TLS_ROLES_ALL, .owner = world, .requested = too_long};
    methods[5] = (struct rpc_method){
        .path = "/test.T/Keep", .roles = TLS_ROLES_ALL, .owner = world, .requested = keep};
}

static void rpc_set_up(struct rpc_fixture *world)
{
    methods_fill(world, world->methods);
    struct rpc_settings settings = rpc_settings_default();
    settings.threads = 2;
    world->loop = loop_new(&settings);
    tally_init(&world->tally);
    thread_mutex_init(&world->lock);
    world->authority = authority_new("nest");
    world->server_identity = identity_of_role(&world->authority, "nest", TLS_ROLE_SERVER);
    world->worker_identity = identity_of_role(&world->authority, "nest", TLS_ROLE_WORKER);
    world->operator_identity = identity_of_role(&world->authority, "nest", TLS_ROLE_OPERATOR);
    world->server = server_new(world->loop, &world->server_identity, world->methods, METHODS);
    unsigned port = rpc_server_port(world->server);
    world->worker = channel_new(world->loop, port, &world->worker_identity);
    world->operator_ = channel_new(world->loop, port, &world->operator_identity);
}

static void rpc_tear_down(struct rpc_fixture *world)
{
    rpc_channel_free(world->worker);
    rpc_channel_free(world->operator_);
    rpc_server_free(world->server);
    rpc_loop_free(world->loop);
    tls_identity_release(&world->server_identity);
    tls_identity_release(&world->worker_identity);
    tls_identity_release(&world->operator_identity);
    authority_release(&world->authority);
    buf_release(&world->response);
    thread_mutex_release(&world->lock);
    tally_release(&world->tally);
}

static enum err call(struct rpc_fixture *world, struct rpc_channel *channel, const char *path,
                     struct slice request)
{
    buf_clear(&world->response);
    return rpc_call(channel, path, request, 5000, &world->response, &world->reason);
}

/* A request of `bytes` bytes. */
static enum err call_long(struct rpc_fixture *world, struct rpc_channel *channel, const char *path,
                          size_t bytes)
{
    scoped(free_scoped) uint8_t *request = calloc(1, bytes);
    assert_non_null(request);
    return call(world, channel, path, (struct slice){request, bytes});
}

TEST_F(a_call_is_answered_and_the_handler_knows_who_calls, rpc)
{
    for (int i = 0; i < 2; i++)
        assert_int_equal(call(f, f->worker, "/test.T/Echo", slice_of("hello")), ERR_OK);
    assert_int_equal(f->response.bytes, 5);
    assert_memory_equal(f->response.data, "hello", 5);
    assert_int_equal(f->peer.holder.role, TLS_ROLE_WORKER);
    assert_string_equal(f->peer.holder.name, "test-worker");
    assert_string_equal(f->peer.holder.cluster, "nest");
    assert_memory_equal(f->peer.address, "127.0.0.1:", 10);
    assert_int_not_equal(f->numbers[0], f->numbers[1]);
}

TEST_F(a_long_request_arrives_in_one_piece, rpc)
{
    static uint8_t request[1000000];
    for (size_t i = 0; i < sizeof request; i++)
        request[i] = (uint8_t)(i * 31 >> 3);
    assert_int_equal(call(f, f->worker, "/test.T/Echo", (struct slice){request, sizeof request}),
                     ERR_OK);
    assert_int_equal(f->response.bytes, sizeof request);
    assert_memory_equal(f->response.data, request, sizeof request);
}

TEST_F(an_empty_message_is_a_message, rpc)
{
    assert_int_equal(call(f, f->worker, "/test.T/Echo", (struct slice){0}), ERR_OK);
    assert_int_equal(f->response.bytes, 0);
}

TEST_F(every_error_arrives_as_itself, rpc)
{
    for (unsigned code = 1; code < ERR_COUNT; code++) {
        uint8_t byte = (uint8_t)code;
        assert_int_equal(call(f, f->worker, "/test.T/Fail", (struct slice){&byte, 1}), code);
        assert_string_equal(f->reason.text, "said so");
    }
}

TEST_F(a_sentence_cannot_forge_lines_of_a_terminal, rpc)
{
    const char question[] = {ERR_INVALID, 'n', 'o', '\n', 'r', 'o', 'o', 's', 't', '\x1B', '[', 0};
    assert_int_equal(call(f, f->worker, "/test.T/Fail", slice_of(question)), ERR_INVALID);
    assert_string_equal(f->reason.text, "no?roost?[");
}

TEST_F(an_unknown_method_is_unsupported, rpc)
{
    assert_int_equal(call(f, f->worker, "/test.T/Nothing", slice_of("x")), ERR_UNSUPPORTED);
}

TEST_F(a_role_may_call_only_its_methods, rpc)
{
    assert_int_equal(call(f, f->worker, "/test.T/Administer", slice_of("x")), ERR_DENIED);
    assert_int_equal(call(f, f->operator_, "/test.T/Administer", slice_of("x")), ERR_OK);
}

TEST_F(a_request_over_a_limit_is_refused, rpc)
{
    assert_int_equal(call_long(f, f->operator_, "/test.T/Administer", 11), ERR_MALFORMED);
    assert_int_equal(call_long(f, f->worker, "/test.T/Echo", (1 << 20) + 1), ERR_INVALID);
    assert_int_equal(call(f, f->worker, "/test.T/TooLong", slice_of("x")), ERR_INVALID);
}

TEST_F(a_message_over_the_servers_limit_is_refused_by_the_library, rpc)
{
    struct rpc_settings settings = rpc_settings_default();
    settings.threads = 1;
    settings.message_bytes_max = 4 << 20;
    struct rpc_loop *loop = loop_new(&settings);
    struct rpc_channel *channel =
        channel_new(loop, rpc_server_port(f->server), &f->worker_identity);
    assert_int_equal(call_long(f, channel, "/test.T/Echo", 2 << 20), ERR_MALFORMED);
    rpc_channel_free(channel);
    rpc_loop_free(loop);
}

TEST_F(a_deadline_that_passes_ends_the_call_at_both_ends, rpc)
{
    /* The connection stands already: otherwise the time may pass before the server hears of it. */
    assert_int_equal(
        rpc_call(f->worker, "/test.T/Echo", slice_of("x"), FIXTURE_WAIT_MS, &f->response, NULL),
        ERR_OK);
    buf_clear(&f->response);
    assert_int_equal(rpc_call(f->worker, "/test.T/Park", slice_of("x"), 1000, &f->response, NULL),
                     ERR_DEADLINE);
    tally_wait(&f->tally, CANCELLED, 1);
    rpc_fail(unpark(f), ERR_BUSY, "nobody hears this");
}

/* As many as no connection may have open, of a handler that hangs: they are open no longer. */
TEST_F(calls_given_up_before_their_answer_leave_their_connection, rpc)
{
    struct rpc_settings settings = rpc_settings_default();
    settings.threads = 1;
    settings.calls_max = 3;
    struct rpc_loop *loop = loop_new(&settings);
    struct rpc_server *server = server_new(loop, &f->server_identity, f->methods, METHODS);
    struct rpc_channel *channel = channel_new(loop, rpc_server_port(server), &f->worker_identity);
    assert_int_equal(call(f, channel, "/test.T/Echo", slice_of("x")), ERR_OK);
    struct rpc_peer before = f->peer;
    while (tally_of(&f->tally, REQUESTED) < KEPT_MAX)
        assert_int_equal(
            rpc_call(channel, "/test.T/Keep", slice_of("x"), 100, &f->response, &f->reason),
            ERR_DEADLINE);
    assert_int_equal(call(f, channel, "/test.T/Echo", slice_of("x")), ERR_OK);
    assert_string_equal(f->peer.address, before.address);
    rpc_channel_free(channel);
    rpc_server_free(server);
    for (unsigned i = 0; i < f->kept_count; i++)
        rpc_fail(f->kept[i], ERR_BUSY, "nobody hears this");
    rpc_loop_free(loop);
}

static atomic_bool no_memory;

enum err __real_accepted_call_begin(struct accepted_table *table, const char *address,
                                    struct accepted_call **ret_call);
enum err __wrap_accepted_call_begin(struct accepted_table *table, const char *address,
                                    struct accepted_call **ret_call);

enum err __wrap_accepted_call_begin(struct accepted_table *table, const char *address,
                                    struct accepted_call **ret_call)
{
    return no_memory ? ERR_NOMEM : __real_accepted_call_begin(table, address, ret_call);
}

/* Not as a peer whose certificate is bad. */
TEST_F(a_call_for_which_there_is_no_memory_may_come_again, rpc)
{
    no_memory = true;
    enum err err = call(f, f->worker, "/test.T/Echo", slice_of("x"));
    no_memory = false;
    assert_int_equal(err, ERR_BUSY);
    assert_string_equal(f->reason.text, "no memory for the call");
    assert_int_equal(call(f, f->worker, "/test.T/Echo", slice_of("x")), ERR_OK);
}

struct answer {
    struct tally *tally;
    enum err err;
    char text[64];
};

static void on_answer(void *owner, enum err err, struct slice response, const struct reason *reason)
{
    (void)reason;
    struct answer *answer = owner;
    answer->err = err;
    memcpy(answer->text, response.data, response.bytes);
    tally_add(answer->tally, ANSWERED);
}

static void start(struct rpc_channel *channel, const char *path, struct answer *answer)
{
    struct buf request = {0};
    assert_int_equal(buf_append(&request, "x", 1), ERR_OK);
    struct rpc_call_config config = {
        .path = path, .timeout_ms = FIXTURE_WAIT_MS, .answered = on_answer, .owner = answer};
    assert_int_equal(rpc_call_start(channel, &config, &request), ERR_OK);
}

/* A call whose request lies at the server. */
static void start_parked(struct rpc_fixture *world, struct rpc_channel *channel,
                         struct answer *answer)
{
    start(channel, "/test.T/Park", answer);
    tally_wait(&world->tally, REQUESTED, 1);
}

static void answer_parked(struct rpc_fixture *world, const char *text)
{
    struct buf response = {0};
    assert_int_equal(buf_append(&response, text, strlen(text)), ERR_OK);
    rpc_reply(unpark(world), &response);
}

TEST_F(a_request_is_answered_later_from_another_thread, rpc)
{
    struct answer answer = {.tally = &f->tally};
    start_parked(f, f->worker, &answer);
    answer_parked(f, "late");
    tally_wait(&f->tally, ANSWERED, 1);
    assert_int_equal(answer.err, ERR_OK);
    assert_string_equal(answer.text, "late");
    assert_int_equal(tally_of(&f->tally, CANCELLED), 0);
}

TEST_F(a_channel_freed_cancels_its_calls, rpc)
{
    struct answer answer = {.tally = &f->tally};
    struct rpc_channel *channel =
        channel_new(f->loop, rpc_server_port(f->server), &f->worker_identity);
    start_parked(f, channel, &answer);
    rpc_channel_free(channel);
    assert_int_equal(tally_of(&f->tally, ANSWERED), 1);
    assert_int_equal(answer.err, ERR_CANCELLED);
    tally_wait(&f->tally, CANCELLED, 1);
    rpc_fail(unpark(f), ERR_BUSY, NULL);
}

TEST_F(a_request_may_be_answered_after_its_server_is_gone, rpc)
{
    struct answer answer = {.tally = &f->tally};
    start_parked(f, f->worker, &answer);
    rpc_server_free(f->server);
    f->server = NULL;
    tally_wait(&f->tally, ANSWERED, 1);
    assert_int_equal(answer.err, ERR_UNREACHABLE);
    assert_int_equal(tally_of(&f->tally, CANCELLED), 1);
    struct buf response = {0};
    rpc_reply(unpark(f), &response);
}

TEST_F(a_drained_server_answers_what_it_has_and_takes_no_more, rpc)
{
    struct answer answer = {.tally = &f->tally};
    start_parked(f, f->worker, &answer);
    rpc_server_drain(f->server);
    assert_int_equal(call(f, f->operator_, "/test.T/Echo", slice_of("x")), ERR_UNREACHABLE);
    answer_parked(f, "still");
    tally_wait(&f->tally, ANSWERED, 1);
    assert_int_equal(answer.err, ERR_OK);
    assert_string_equal(answer.text, "still");
}

TEST_F(a_call_to_nobody_is_unreachable_until_there_is_a_server, rpc)
{
    unsigned port = rpc_server_port(f->server);
    rpc_server_free(f->server);
    f->server = NULL;
    struct rpc_channel *channel = channel_new(f->loop, port, &f->worker_identity);
    assert_int_equal(call(f, channel, "/test.T/Echo", slice_of("x")), ERR_UNREACHABLE);
    /* With the cause, unless the library saw the hang-up first. */
    char sentence[64];
    snprintf(sentence, sizeof sentence, "cannot connect to 127.0.0.1:%u", port);
    assert_memory_equal(f->reason.text, sentence, strlen(sentence));

    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    static struct rpc_method methods[METHODS];
    methods_fill(f, methods);
    struct rpc_server_config config = {.loop = f->loop,
                                       .address = address,
                                       .identity = &f->server_identity,
                                       .methods = methods,
                                       .method_count = METHODS};
    assert_int_equal(rpc_server_new(&config, &f->server, &f->reason), ERR_OK);
    uint64_t until_ns = time_after_ms(time_now_ns(), FIXTURE_WAIT_MS);
    enum err err;
    do
        err = call(f, channel, "/test.T/Echo", slice_of("x"));
    while (err == ERR_UNREACHABLE && time_now_ns() < until_ns);
    assert_int_equal(err, ERR_OK);
    rpc_channel_free(channel);
}

TEST_F(a_taken_port_and_a_bad_address_are_said, rpc)
{
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", rpc_server_port(f->server));
    struct rpc_server_config config = {
        .loop = f->loop, .address = address, .identity = &f->server_identity};
    struct rpc_server *server = NULL;
    struct reason reason = {0};
    assert_int_equal(rpc_server_new(&config, &server, &reason), ERR_EXISTS);
    assert_non_null(strstr(reason.text, address));
    static const char *const bad[] = {"",      "localhost", ":1",   "localhost:", "a:65536",
                                      "::1:7", "[::1]",     "a:-1", "[]:0",       "[127.0.0.1:0",
                                      "[:0",   "[[:0",      "a]:0", "[[::1]]:0",  "[a]b:0"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        config.address = bad[i];
        assert_int_equal(rpc_server_new(&config, &server, &reason), ERR_INVALID);
        if (rpc_address_check(bad[i], false, &reason) != ERR_INVALID)
            fail_msg("\"%s\": an address", bad[i]);
    }
    config.address = "[::1]:99999";
    assert_int_equal(rpc_server_new(&config, &server, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, "\"[::1]:99999\": not an address"));
    config.address = "192.0.2.1:0"; /* nobody's address, RFC 5737 */
    assert_int_equal(rpc_server_new(&config, &server, &reason), ERR_INVALID);
}

TEST_F(an_address_with_port_0_is_said_with_the_port_that_the_server_has, rpc)
{
    static const char *const rows[][2] = {
        {"10.0.0.1:0", "10.0.0.1:4711"}, {"[::1]:00", "[::1]:4711"}, {"a:7", "a:7"}};
    struct reason reason;
    char said[16];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(rpc_address_of(rows[i][0], 4711, said, sizeof said, &reason), ERR_OK);
        assert_string_equal(said, rows[i][1]);
    }
    assert_int_equal(rpc_address_of("10.100.100.100:0", 4711, said, sizeof said, &reason),
                     ERR_INVALID);
}

TEST(an_ipv6_address_is_compared_in_its_shortest_form)
{
    static const char *const rows[][2] = {
        {"[FD00:0:0::A]:7400", "[fd00::a]:7400"}, {"[0:0:0:0:0:0:0:1]:0", "[::1]:0"},
        {"[fd00::a]:7400", "[fd00::a]:7400"},     {"[::ffff:10.0.0.1]:7", "[::ffff:10.0.0.1]:7"},
        {"[fe80::A%eth0]:7", "[fe80::A%eth0]:7"}, {"127.0.0.1:7400", "127.0.0.1:7400"},
        {"PS1.example:7400", "PS1.example:7400"}};
    char address[RPC_ADDRESS_BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpc_address_canonical(rows[i][0], address);
        assert_string_equal(address, rows[i][1]);
    }
}

/* Debian's build of the library's locks would abort here, and now and then for no reason at all. */
TEST_F(locks_taken_in_both_orders_do_not_end_the_process, rpc)
{
    gpr_mu locks[2];
    for (unsigned i = 0; i < 2; i++)
        gpr_mu_init(&locks[i]);
    for (unsigned i = 0; i < 2; i++) {
        gpr_mu_lock(&locks[i]);
        gpr_mu_lock(&locks[1 - i]);
        gpr_mu_unlock(&locks[1 - i]);
        gpr_mu_unlock(&locks[i]);
    }
    for (unsigned i = 0; i < 2; i++)
        gpr_mu_destroy(&locks[i]);
}
