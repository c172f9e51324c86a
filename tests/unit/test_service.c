/* The daemon's methods over real loopback sockets: what is decoded, posted, refused, served. */
#include "tests/unit/rpc_fixture.h"

#include "common/data/run_data.h"
#include "common/data/sampler.h"
#include "proto/standard.h"
#include "server/control/connections.h"
#include "server/member/proof.h"
#include "server/service.h"

enum { CALL_MS = 5000, INBOX_EVENTS = 4 };

static const char spec_text[] = "model: {kind: mlp, layers: [2, 8, 3]}\n"
                                "data: {kind: spiral, points: 20, validation: 0.1, serve: true}\n"
                                "train: {steps: 10, slots: 2, slot_samples: 3, microbatch: 3}\n";

struct service_fixture {
    bool coordinator;
    struct inbox *inbox;
    struct rpc_loop *loop;
    struct service service;
    struct rpc_server *server;
    struct rpc_channel *channel;
    struct buf response; /* to the last call() */
    struct reason reason;
};

static const struct rpc_stream_events no_events = {0};

static void service_set_up(struct service_fixture *world)
{
    const struct inbox_limits limits = {sizeof(struct event), INBOX_EVENTS};
    const struct rpc_method exchange = {.path = "/roost.v1.Shard/Exchange",
                                        .kind = RPC_STREAM,
                                        .roles = TLS_ROLES_ALL,
                                        .events = &no_events};
    struct rpc_method transfer = exchange;
    transfer.path = "/roost.v1.Shard/Transfer";
    struct rpc_settings settings = rpc_settings_default();
    settings.threads = 2;
    settings.message_bytes_max = WIRE_CONTROL_BYTES_MAX;
    assert_int_equal(inbox_new(limits, &world->inbox), ERR_OK);
    world->loop = loop_new(&settings);
    assert_int_equal(
        service_init(&world->service, world->inbox, world->coordinator, exchange, transfer),
        ERR_OK);
    world->server =
        server_new(world->loop, NULL, world->service.methods, world->service.method_count);
    world->channel = channel_new(world->loop, rpc_server_port(world->server), NULL);
}

static void service_tear_down(struct service_fixture *world)
{
    struct event event;
    size_t count;
    rpc_channel_free(world->channel);
    rpc_server_free(world->server);
    while (inbox_take(world->inbox, 0, 1, &event, &count) == ERR_OK)
        event_release(&event);
    rpc_loop_free(world->loop);
    service_release(&world->service);
    inbox_free(world->inbox);
    buf_release(&world->response);
}

static struct event take(struct service_fixture *world)
{
    struct event event = {0};
    size_t count;
    uint64_t deadline_ns = time_after_ms(time_now_ns(), FIXTURE_WAIT_MS);
    assert_int_equal(inbox_take(world->inbox, deadline_ns, 1, &event, &count), ERR_OK);
    return event;
}

static enum err call(struct service_fixture *world, const char *path, struct slice request)
{
    buf_clear(&world->response);
    return rpc_call(world->channel, path, request, CALL_MS, &world->response, &world->reason);
}

/* How something ended; the tally counts that it did. */
struct ending {
    struct tally tally;
    atomic_int err;
};

static void ending_said(struct ending *ending, enum err err)
{
    atomic_store(&ending->err, (int)err);
    tally_add(&ending->tally, 0);
}

static int ending_wait(struct ending *ending)
{
    tally_wait(&ending->tally, 0, 1);
    return atomic_load(&ending->err);
}

static void answered(void *owner, enum err err, struct slice response, const struct reason *reason)
{
    (void)response, (void)reason;
    ending_said(owner, err);
}

static void start_call(struct service_fixture *world, const char *path, struct buf *take_request,
                       struct ending *answer)
{
    const struct rpc_call_config config = {
        .path = path, .timeout_ms = CALL_MS, .answered = answered, .owner = answer};
    tally_init(&answer->tally);
    assert_int_equal(rpc_call_start(world->channel, &config, take_request), ERR_OK);
}

static void start_acquire(struct service_fixture *world, struct ending *answer)
{
    struct buf request = {0};
    struct acquire_request acquire = {.member = 12, .generation = 3, .sequence = 4, .wait_ms = 5};
    assert_int_equal(wire_encode_acquire_request(&acquire, &request), ERR_OK);
    start_call(world, "/roost.v1.Cluster/Acquire", &request, answer);
}

/* Where others reach a worker that joins with that address. */
static void check_address(struct service_fixture *world, const char *address, const char *becomes)
{
    struct ending answer;
    struct buf request = {0}, empty = {0};
    struct join_request join = {.wire_version = WIRE_VERSION, .name = "w", .device = "cpu"};
    snprintf(join.address, sizeof join.address, "%s", address);
    assert_int_equal(wire_encode_join_request(&join, &request), ERR_OK);
    start_call(world, "/roost.v1.Cluster/Join", &request, &answer);
    struct event event = take(world);
    assert_string_equal(event.call->join.address, becomes);
    call_reply(event.call, &empty);
    assert_int_equal(ending_wait(&answer), ERR_OK);
}

TEST_F(a_worker_that_listens_everywhere_is_reached_where_it_calls_from, service,
       .coordinator = true)
{
    check_address(f, "", "");
    check_address(f, "gpu1.example:7500", "gpu1.example:7500");
    check_address(f, "0.0.0.0:7500", "127.0.0.1:7500");
    check_address(f, "[::]:65535", "127.0.0.1:65535");
}

TEST_F(a_call_reaches_the_main_thread_decoded, service, .coordinator = true)
{
    struct ending answer;
    struct buf empty = {0};
    start_acquire(f, &answer);
    struct event event = take(f);
    assert_int_equal(event.kind, EVENT_CALL);
    assert_int_equal(event.call->kind, CALL_ACQUIRE);
    assert_int_equal(event.call->acquire.member, 12);
    assert_int_equal(event.call->acquire.sequence, 4);
    call_reply(event.call, &empty);
    assert_int_equal(ending_wait(&answer), ERR_OK);
}

TEST_F(a_cancelled_call_is_told_by_its_number, service, .coordinator = true)
{
    struct ending answer;
    start_acquire(f, &answer);
    struct event event = take(f);
    rpc_channel_free(f->channel);
    f->channel = NULL;
    struct event cancelled = take(f);
    assert_int_equal(cancelled.kind, EVENT_CALL_CANCELLED);
    assert_int_equal(cancelled.number, event.call->number);
    event_release(&event);
    assert_int_equal(ending_wait(&answer), ERR_CANCELLED);
}

TEST_F(a_server_that_is_not_the_coordinator_says_so, service)
{
    assert_int_equal(call(f, "/roost.v1.Cluster/Status", (struct slice){0}), ERR_NOT_COORDINATOR);
}

TEST_F(nonsense_is_refused_before_it_gets_anywhere, service, .coordinator = true)
{
    struct event event;
    size_t count;
    assert_int_equal(call(f, "/roost.v1.Cluster/Join", slice_of("\xff\xff\xff")), ERR_MALFORMED);
    assert_int_equal(inbox_take(f->inbox, 0, 1, &event, &count), ERR_DEADLINE);
}

TEST_F(a_request_is_as_long_as_its_method_needs, service, .coordinator = true)
{
    static const uint8_t long_one[128 * 1024 + 1];
    const struct {
        const char *path;
        size_t bytes_max;
    } methods[] = {{"/roost.v1.Cluster/Acquire", 16 * 1024},
                   {"/roost.v1.Cluster/StartRun", 128 * 1024}};
    for (int i = 0; i < 2; i++)
        for (size_t more = 0; more < 2; more++) {
            struct slice bytes = {long_one, methods[i].bytes_max + more};
            assert_int_equal(
                rpc_call(f->channel, methods[i].path, bytes, CALL_MS, &f->response, &f->reason),
                ERR_MALFORMED);
            assert_true((strstr(f->reason.text, "the limit is") != NULL) == (more == 1));
        }
}

TEST_F(a_full_inbox_is_busy, service, .coordinator = true)
{
    static struct ending answers[INBOX_EVENTS]; /* the tear-down ends the calls */
    for (int i = 0; i < INBOX_EVENTS; i++)
        start_acquire(f, &answers[i]);
    enum err err = ERR_DEADLINE; /* while there is room, a call waits inside for nobody */
    for (int i = 0; i <= INBOX_EVENTS && err == ERR_DEADLINE; i++)
        err = rpc_call(f->channel, "/roost.v1.Cluster/Status", (struct slice){0}, 200, &f->response,
                       &f->reason);
    assert_int_equal(err, ERR_BUSY);
}

static const uint8_t no_key[DIGEST_KEY_BYTES];

/* Of member 0 of run 6. */
static struct proof some_secret(void)
{
    scoped(digest_mac_release) struct digest_mac key;
    assert_int_equal(digest_mac_init(&key), ERR_OK);
    return proof_member(&key, 6, 0);
}

/* Serves the samples of run 6. */
static void serve(struct service_fixture *world, const char *text)
{
    struct spec spec;
    struct data *data;
    assert_int_equal(spec_parse(slice_of(text), "test", NULL, &spec, NULL), ERR_OK);
    assert_int_equal(run_data_open(&spec, NULL, &data, NULL), ERR_OK);
    assert_int_equal(service_serve(&world->service, 6, no_key, &spec, data), ERR_OK);
}

static enum err call_samples(struct service_fixture *world, const struct samples_request *wanted)
{
    scoped(buf_release) struct buf request = {0};
    assert_int_equal(wire_encode_samples_request(wanted, &request), ERR_OK);
    return call(world, "/roost.v1.Cluster/Samples", buf_slice(&request));
}

TEST_F(samples_of_another_run_or_place_are_refused, service, .coordinator = true)
{
    struct proof secret = some_secret();
    const struct samples_request other_run = {.run = 5, .ticket = {.kind = TICKET_TRAIN}};
    assert_int_equal(call_samples(f, &other_run), ERR_NO_RUN); /* none are served yet */
    serve(f, spec_text);
    assert_int_equal(call_samples(f, &other_run), ERR_UNKNOWN_MEMBER);
    const struct samples_request bad[] = {
        {.run = 6, .secret = secret, .ticket = {.kind = TICKET_TRAIN}, .slot = 2},
        {.run = 6, .secret = secret, .ticket = {.kind = TICKET_TRAIN, .step = 10}},
        {.run = 6, .secret = secret, .ticket = {.kind = TICKET_VALIDATE, .node = {0, 2}}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(call_samples(f, &bad[i]), ERR_MALFORMED);
}

TEST_F(served_samples_are_those_of_the_tickets_positions, service, .coordinator = true)
{
    struct spec spec;
    scoped(data_free_scoped) struct data *own = NULL;
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 20};
    struct samples_reply reply;
    const struct samples_request wanted = {
        .run = 6, .secret = some_secret(), .ticket = {.kind = TICKET_TRAIN, .step = 3}, .slot = 1};
    assert_int_equal(spec_parse(slice_of(spec_text), "test", NULL, &spec, NULL), ERR_OK);
    assert_int_equal(run_data_open(&spec, NULL, &own, NULL), ERR_OK);
    serve(f, spec_text);
    assert_int_equal(call_samples(f, &wanted), ERR_OK);
    assert_int_equal(wire_decode_samples_reply(buf_slice(&f->response), &arena, &reply, NULL),
                     ERR_OK);
    assert_int_equal(reply.sample_count, 3);
    assert_int_equal(reply.inputs.bytes, 3 * 2 * sizeof(float));
    const struct sampler sampler = {spec.train.seed, data_count(own, DATA_TRAIN), 3};
    for (uint64_t i = 0; i < 3; i++) {
        float point[2];
        int32_t label;
        uint64_t ticket = 3 * 2 + 1;
        data_sample_point(own, DATA_TRAIN, sampler_sample(&sampler, 3 * ticket + i), point, &label);
        assert_memory_equal(reply.inputs.data + i * sizeof point, point, sizeof point);
        assert_memory_equal(reply.targets.data + i * sizeof label, &label, sizeof label);
    }
}

/* The wire's limit of slots does not hold for slots x local steps. */
TEST_F(the_last_local_step_of_a_large_step_is_served, service, .coordinator = true)
{
    static const char text[] = "model: {kind: mlp, layers: [2, 8, 3]}\n"
                               "data: {kind: spiral, points: 20, validation: 0.1, serve: true}\n"
                               "train: {steps: 10, slots: 2, slot_samples: 3, microbatch: 3}\n"
                               "consistency: {kind: local, local_steps: 65536}\n";
    struct samples_request wanted = {
        .run = 6, .secret = some_secret(), .ticket = {.kind = TICKET_TRAIN}, .slot = 2 * 65536 - 1};
    serve(f, text);
    assert_int_equal(call_samples(f, &wanted), ERR_OK);
    wanted.slot++;
    assert_int_equal(call_samples(f, &wanted), ERR_MALFORMED);
}

/* ---- streams ---- */

static void member_closed(void *owner, struct rpc_stream *stream, enum err err,
                          const struct reason *reason)
{
    (void)stream, (void)reason;
    ending_said(owner, err);
}

TEST_F(a_stream_is_a_guest_from_its_first_word_to_its_end, service, .coordinator = true)
{
    static const struct rpc_stream_events events = {.closed = member_closed};
    struct ending closed;
    struct rpc_stream *stream;
    struct buf report = {0};
    tally_init(&closed.tally);
    assert_int_equal(
        rpc_stream_open(f->channel, "/roost.v1.Cluster/Member", &events, &closed, &stream), ERR_OK);
    assert_int_equal(wire_encode_member_report(&(struct member_report){.member = 8}, &report),
                     ERR_OK);
    assert_int_equal(rpc_stream_send(stream, RPC_NORMAL, &report, NULL, 0), ERR_OK);
    struct event said = take(f);
    assert_int_equal(said.kind, EVENT_CONNECTION_MESSAGE);
    assert_false(said.connection->is_server);
    struct connection *connection = connection_ref(said.connection);
    event_release(&said);
    rpc_stream_cancel(stream);
    struct event end = take(f);
    assert_int_equal(end.kind, EVENT_CONNECTION_CLOSED);
    assert_ptr_equal(end.connection, connection);
    event_release(&end);
    connection_unref(connection);
    rpc_stream_unref(stream);
    assert_int_equal(ending_wait(&closed), ERR_CANCELLED);
}

/* The event is lost, and what is over posts no other. */
TEST_F(an_end_that_finds_no_room_in_the_inbox_is_left_at_the_stream, service, .coordinator = true)
{
    static const struct rpc_stream_events events = {.closed = member_closed};
    struct ending closed;
    struct rpc_stream *stream;
    struct buf report = {0};
    tally_init(&closed.tally);
    assert_int_equal(
        rpc_stream_open(f->channel, "/roost.v1.Cluster/Serve", &events, &closed, &stream), ERR_OK);
    assert_int_equal(
        wire_encode_server_report(
            &(struct server_report){.kind = SERVER_HELLO, .hello = {.name = "s"}}, &report),
        ERR_OK);
    assert_int_equal(rpc_stream_send(stream, RPC_NORMAL, &report, NULL, 0), ERR_OK);
    struct event said = take(f);
    const uint64_t deadline_ns = time_after_ms(time_now_ns(), FIXTURE_WAIT_MS);
    assert_true(said.connection->is_server);
    assert_false(atomic_load(&said.connection->closed));
    for (unsigned i = 0; i < INBOX_EVENTS; i++)
        assert_int_equal(inbox_post(f->inbox, &(struct event){.kind = EVENT_SIGNAL}), ERR_OK);
    rpc_stream_cancel(stream);
    while (!atomic_load(&said.connection->closed))
        assert_true(time_now_ns() < deadline_ns);
    event_release(&said);
    rpc_stream_unref(stream);
    assert_int_equal(ending_wait(&closed), ERR_CANCELLED);
}

TEST_F(health_says_whether_the_daemon_serves, service, .coordinator = true)
{
    for (int serving = 0; serving <= 1; serving++) {
        health_set(&f->service.health, serving == 1);
        assert_int_equal(call(f, "/grpc.health.v1.Health/Check", (struct slice){0}), ERR_OK);
        assert_int_equal(f->response.bytes, 2);
        assert_int_equal(f->response.data[1], serving == 1 ? 1 : 2); /* SERVING, NOT_SERVING */
    }
}

static bool says(const struct buf *response, const char *words)
{
    return memmem(response->data, response->bytes, words, strlen(words)) != NULL;
}

/* Asks for the file of `service`, field 4 of a request (proto/reflection.proto). */
static void describe_service(const char *service, struct buf *ret_response)
{
    scoped(buf_release) struct buf request = {0};
    assert_int_equal(buf_printf(&request, "\x22%c%s", (int)strlen(service), service), ERR_OK);
    assert_int_equal(standard_reflection(buf_slice(&request), ret_response, NULL), ERR_OK);
}

TEST_F(reflection_names_every_method, service, .coordinator = true)
{
    scoped(buf_release) struct buf all = {0};
    const struct slice list = {(const uint8_t *)"\x3a\x01*", 3};
    assert_int_equal(standard_reflection(list, &all, NULL), ERR_OK);
    for (size_t i = 0; i < f->service.method_count; i++) {
        scoped(buf_release) struct buf file = {0};
        const char *path = f->service.methods[i].path, *method = strrchr(path, '/') + 1;
        char service[64], package[64];
        snprintf(service, sizeof service, "%.*s", (int)(method - path - 2), path + 1);
        snprintf(package, sizeof package, "\x12%c%.*s", (int)(strrchr(service, '.') - service),
                 (int)(strrchr(service, '.') - service), service); /* field 2 of a file */
        describe_service(service, &file);
        if (!says(&all, service) || !says(&file, package) || !says(&file, method))
            fail_msg("%s is not named", path);
    }
}

/* What a watcher of health hears. */
struct watcher {
    struct tally tally; /* 0: messages, 1: closed */
    uint8_t last[2];
};

static void heard(void *owner, struct rpc_stream *stream, struct rpc_message *take_message)
{
    (void)stream;
    struct watcher *watcher = owner;
    assert_int_equal(take_message->bytes, sizeof watcher->last);
    rpc_message_copy(take_message, 0, sizeof watcher->last, watcher->last);
    rpc_message_unref(take_message);
    tally_add(&watcher->tally, 0);
}

static void watch_closed(void *owner, struct rpc_stream *stream, enum err err,
                         const struct reason *reason)
{
    (void)stream, (void)err, (void)reason;
    tally_add(&((struct watcher *)owner)->tally, 1);
}

TEST_F(a_watcher_of_health_hears_each_change, service, .coordinator = true)
{
    static const struct rpc_stream_events events = {.message = heard, .closed = watch_closed};
    struct watcher watchers[2] = {0};
    struct rpc_stream *streams[2];
    for (int i = 0; i < 2; i++) {
        struct buf everything = {0}; /* an empty request asks for the daemon as a whole */
        tally_init(&watchers[i].tally);
        assert_int_equal(rpc_stream_open(f->channel, "/grpc.health.v1.Health/Watch", &events,
                                         &watchers[i], &streams[i]),
                         ERR_OK);
        assert_int_equal(rpc_stream_send(streams[i], RPC_NORMAL, &everything, NULL, 0), ERR_OK);
        rpc_stream_end(streams[i]);
        tally_wait(&watchers[i].tally, 0, 1);
        assert_int_equal(watchers[i].last[1], 2); /* NOT_SERVING */
    }
    health_set(&f->service.health, false); /* no news */
    health_set(&f->service.health, true);
    for (int i = 0; i < 2; i++) {
        tally_wait(&watchers[i].tally, 0, 2);
        assert_int_equal(watchers[i].last[1], 1);
    }
    rpc_stream_cancel(streams[0]);
    tally_wait(&watchers[0].tally, 1, 1);
    health_set(&f->service.health, false);
    tally_wait(&watchers[1].tally, 0, 3);
    assert_int_equal(watchers[1].last[1], 2);
    assert_int_equal(tally_of(&watchers[0].tally, 0), 2);
    rpc_stream_cancel(streams[1]);
    tally_wait(&watchers[1].tally, 1, 1);
    for (int i = 0; i < 2; i++) {
        rpc_stream_unref(streams[i]);
        tally_release(&watchers[i].tally);
    }
}
