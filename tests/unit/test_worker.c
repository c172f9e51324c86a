/* A worker's loop before it is a member, over real loopback sockets; the coordinator is this file.
 * All the rest of the loop is run by the simulator (tests/sim/sim_worker.c). */
#include "worker/worker.h"

#include "common/settings/options.h"
#include "tests/unit/agent_fixture.h"
#include "tests/unit/rpc_fixture.h"
#include "worker/notice_watch.h"
#include "worker/worker_calls.h"
#include "worker/worker_join.h"
#include "worker/worker_places.h"
#include "worker/worker_stop.h"

enum { DESCRIBED, JOINED, OPENED, COMPLETED };

#define SPEC(train)                                                                                \
    "model: {kind: mlp, layers: [2, 8, 3]}\n"                                                      \
    "data: {kind: spiral, validation: 0.1}\n"                                                      \
    "train: {steps: 10, slots: 4, slot_samples: 2, microbatch: 2" train "}\n"

struct coordinator_fixture {
    struct tally tally;
    struct rpc_loop *loop;
    struct rpc_server *server;
    struct rpc_method methods[3];
    const enum err *answers; /* to one Describe after another; OK: a run of generation 1 */
};

/* The worker is started without a cloud. */
enum err notice_watch_new(const struct notice_watch_config *config, struct notice_watch **ret_watch,
                          struct reason *reason)
{
    (void)config, (void)ret_watch, (void)reason;
    return ERR_UNSUPPORTED;
}

void notice_watch_free(struct notice_watch *watch)
{
    (void)watch;
}

static void describe_run(struct rpc_request *request)
{
    struct buf response = {0};
    const struct server_description server = {.name = "s", .address = "127.0.0.1:1"};
    const struct chunk_range all = {.count = 64};
    const struct describe_reply reply = {.wire_version = WIRE_VERSION,
                                         .wire_version_min = WIRE_VERSION_MIN,
                                         .has_run = true,
                                         .run = 3,
                                         .generation = 1,
                                         .state = RUN_TRAINING,
                                         .spec = SPEC(""),
                                         .samples = 90,
                                         .validation_samples = 10,
                                         .server_count = 1,
                                         .servers = &server,
                                         .range_count = 1,
                                         .ranges = &all,
                                         .map_number = 1};
    assert_int_equal(wire_encode_describe_reply(&reply, &response), ERR_OK);
    rpc_reply(request, &response);
}

static void describe(void *owner, struct rpc_request *request, struct slice bytes)
{
    (void)bytes;
    struct coordinator_fixture *world = owner;
    enum err answer = world->answers[tally_of(&world->tally, DESCRIBED)];
    if (answer == ERR_OK)
        describe_run(request);
    else
        rpc_fail(request, answer, "as the test wants it");
    tally_add(&world->tally, DESCRIBED);
}

/* Another generation has begun since. */
static void join_later(void *owner, struct rpc_request *request, struct slice bytes)
{
    (void)bytes;
    struct coordinator_fixture *world = owner;
    struct buf response = {0};
    const struct join_reply reply = {
        .member = 7, .run = 3, .generation = 2, .heartbeat_ms = 1000, .lease_ms = 3000};
    assert_int_equal(wire_encode_join_reply(&reply, &response), ERR_OK);
    rpc_reply(request, &response);
    tally_add(&world->tally, JOINED);
}

static enum err open_member(void *owner, struct rpc_stream *stream, const struct rpc_peer *peer,
                            void **ret_owner, struct reason *reason)
{
    (void)stream, (void)peer, (void)ret_owner;
    tally_add(&((struct coordinator_fixture *)owner)->tally, OPENED);
    return reason_set(reason, ERR_DENIED, "as the test wants it");
}

static void coordinator_up(struct coordinator_fixture *world, const struct rpc_method *methods,
                           uint32_t count, char address[static 32])
{
    struct rpc_settings settings = rpc_settings_default();
    tally_init(&world->tally);
    for (uint32_t i = 0; i < count; i++) {
        world->methods[i] = methods[i];
        world->methods[i].kind = methods[i].events != NULL ? RPC_STREAM : RPC_UNARY;
        world->methods[i].roles = TLS_ROLES_ALL;
        world->methods[i].owner = world;
    }
    settings.threads = 1;
    world->loop = loop_new(&settings);
    world->server = server_new(world->loop, NULL, world->methods, count);
    snprintf(address, 32, "127.0.0.1:%u", rpc_server_port(world->server));
}

static void coordinator_down(struct coordinator_fixture *world)
{
    rpc_server_free(world->server);
    rpc_loop_free(world->loop);
    tally_release(&world->tally);
}

/* What the worker ends with, whose Describes are answered so. */
static enum err run_worker(struct coordinator_fixture *world, const enum err *answers)
{
    static const struct rpc_stream_events member = {.open = open_member};
    const struct rpc_method methods[] = {
        {.path = "/roost.v1.Cluster/Describe", .requested = describe},
        {.path = "/roost.v1.Cluster/Join", .requested = join_later},
        {.path = "/roost.v1.Cluster/Member", .events = &member}};
    struct logger logger = {.fd = -1};
    struct reason reason = {0};
    char address[32];
    world->answers = answers;
    coordinator_up(world, methods, 3, address);
    const struct worker_config config = {
        .coordinator = address, .name = "w", .devices = 1, .notice_cloud = -2, .logger = &logger};
    enum err err = worker_run(&config, &reason);
    coordinator_down(world);
    return err;
}

/* A coordinator that stops cancels what it has not answered. */
TEST(who_attaches_asks_again_after_a_cancelled_call)
{
    static const enum err answers[] = {ERR_CANCELLED, ERR_NO_RUN, ERR_DENIED};
    struct coordinator_fixture world = {0};
    assert_int_equal(run_worker(&world, answers), ERR_DENIED);
    assert_int_equal(world.tally.counts[DESCRIBED], 3);
}

/* Its settings may be others than those that were described. */
TEST(who_joins_another_generation_than_was_described_asks_again)
{
    static const enum err answers[] = {ERR_OK, ERR_OK, ERR_DENIED};
    struct coordinator_fixture world = {0};
    assert_int_equal(run_worker(&world, answers), ERR_DENIED);
    assert_int_equal(world.tally.counts[DESCRIBED], 3);
    assert_int_equal(world.tally.counts[JOINED], 1);
    assert_int_equal(world.tally.counts[OPENED], 0);
}

/* What becomes of a worker with run 3, when a run is described so. */
static enum err described_again(const char *opened, uint64_t run, const char *now,
                                struct reason *ret_reason)
{
    const struct describe_reply description = {.has_run = true, .run = run, .spec = now};
    struct worker *worker = calloc(1, sizeof *worker);
    assert_non_null(worker);
    const struct slice text = {(const uint8_t *)opened, strlen(opened)};
    worker->has_run = true;
    worker->run.number = 3;
    assert_int_equal(spec_parse(text, "opened", NULL, &worker->run.spec, ret_reason), ERR_OK);
    enum err err = worker_join_run(worker, &description);
    *ret_reason = worker->failure;
    free(worker);
    return err;
}

TEST(a_run_that_was_resumed_with_other_settings_is_not_joined)
{
    static const struct {
        const char *opened, *now, *why;
    } rows[] = {
        {SPEC(""), SPEC(", threads: 2"), "train.threads: 1 -> 2"},
        {SPEC(""), SPEC("") "mesh: {stage: 2}\n", "mesh.stage: 1 -> 2"},
        {SPEC(", products: heuristic"), SPEC(", products: timed"),
         "train.products: heuristic -> timed"},
    };
    struct reason reason;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(described_again(rows[i].opened, 3, rows[i].now, &reason), ERR_RUN_CHANGED);
        assert_non_null(strstr(reason.text, rows[i].why));
    }
}

/* They stand in place of the word as soon as some worker has timed them. */
TEST(a_run_whose_products_were_timed_meanwhile_is_the_same)
{
    struct reason reason;
    assert_int_equal(described_again(SPEC(""), 3, SPEC(""), &reason), ERR_OK);
    assert_int_equal(
        described_again(SPEC(", products: timed"), 3, SPEC(", products: heuristic"), &reason),
        ERR_OK);
}

TEST(who_was_away_while_another_run_began_is_to_be_started_again)
{
    struct reason reason;
    enum err err = described_again(SPEC(""), 4, SPEC(""), &reason);
    assert_string_equal(reason.text, "another run was started");
    assert_int_equal(options_exit_code(err), EXIT_AGAIN);
}

TEST(the_log_has_what_the_worker_does_about_an_error)
{
    static const struct {
        enum err err;
        const char *next;
    } rows[] = {
        {ERR_CANCELLED, "retry"}, {ERR_UNREACHABLE, "retry"},     {ERR_NO_RUN, "wait"},
        {ERR_EXPELLED, "stop"},   {ERR_OLD_GENERATION, "rejoin"}, {ERR_UNTRUSTED, "stop"},
    };
    struct worker *worker = calloc(1, sizeof *worker);
    assert_non_null(worker);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(worker_call_next(worker, rows[i].err), rows[i].next);
    free(worker);
}

/* One sample of a token and a target; the answers differ in the numbers. */
static void serve_sample(void *owner, struct rpc_request *request, struct slice bytes)
{
    static const int32_t numbers[][2] = {{37, 1}, {1, 37}, {-1, 1}, {36, 0}};
    struct coordinator_fixture *world = owner;
    unsigned asked = tally_of(&world->tally, DESCRIBED);
    struct buf response = {0};
    (void)bytes;
    const struct samples_reply reply = {.sample_count = 1,
                                        .inputs = {(const uint8_t *)&numbers[asked][0], 4},
                                        .targets = {(const uint8_t *)&numbers[asked][1], 4}};
    assert_int_equal(wire_encode_samples_reply(&reply, &response), ERR_OK);
    rpc_reply(request, &response);
    tally_add(&world->tally, DESCRIBED);
}

/* They would end the worker, or its device, as if the program were wrong. */
TEST(served_tokens_beyond_the_vocabulary_are_refused)
{
    const struct rpc_method method = {.path = "/roost.v1.Cluster/Samples",
                                      .requested = serve_sample};
    struct coordinator_fixture world = {0};
    struct samples samples = {.sampler = {.slot_samples = 1},
                              .slots = 1,
                              .input_bytes = 4,
                              .target_count = 1,
                              .classes = 37,
                              .tokens = true};
    const struct executor_samples source = samples_source(&samples);
    const struct proof secret = {0};
    struct reason reason;
    char address[32];
    int32_t input, target;
    coordinator_up(&world, &method, 1, address);
    assert_int_equal(rpc_channel_new(world.loop, address, NULL, &samples.channel, &reason), ERR_OK);
    for (unsigned i = 0; i < 3; i++) {
        samples_begin(&samples, 7, &secret);
        assert_string_equal(samples.failure.text, "");
        assert_int_equal(source.read(source.context, TICKET_TRAIN, i, 1, &input, &target),
                         ERR_MALFORMED);
        assert_string_equal(samples.failure.text,
                            "samples came with a token or target that is not below 37");
    }
    assert_int_equal(source.read(source.context, TICKET_TRAIN, 3, 1, &input, &target), ERR_OK);
    assert_int_equal(input, 36);
    samples_release(&samples);
    rpc_channel_free(samples.channel);
    coordinator_down(&world);
}

static void complete(void *owner, struct rpc_request *request, struct slice bytes)
{
    struct coordinator_fixture *world = owner;
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct complete_request completed;
    enum err answer = world->answers[tally_of(&world->tally, COMPLETED)];
    assert_int_equal(wire_decode_complete_request(bytes, &arena, &completed, NULL), ERR_OK);
    assert_int_equal(completed.ticket.attempt, 5);
    assert_int_equal(completed.outcome, ERR_UNREACHABLE);
    assert_int_equal(completed.again, tally_of(&world->tally, COMPLETED) > 0);
    if (answer == ERR_OK)
        rpc_reply(request, &(struct buf){0});
    else
        rpc_fail(request, answer, "as the test wants it");
    tally_add(&world->tally, COMPLETED);
}

/* Takes the event that a call was lost, and sends it again at once. */
static void hear_and_say_again(struct worker *worker)
{
    struct worker_event event;
    size_t count;
    assert_int_equal(inbox_take(worker->inbox, TIME_NEVER, 1, &event, &count), ERR_OK);
    assert_int_equal(event.kind, EVENT_UNHEARD);
    worker_call_unheard(worker, &event);
    worker_event_release(&event);
    assert_true(worker_call_again_ms(worker) > worker_now_ms());
    worker_call_again(worker, worker_now_ms());
    assert_true(worker_call_again_ms(worker) < UINT64_MAX);
    worker_call_again(worker, UINT64_MAX - 1);
    assert_int_equal(worker_call_again_ms(worker), UINT64_MAX);
}

static void drop_events(struct worker *worker)
{
    struct worker_event event;
    size_t count;
    while (inbox_take(worker->inbox, 0, 1, &event, &count) == ERR_OK)
        worker_event_release(&event);
}

TEST(a_complete_that_a_busy_coordinator_refuses_is_said_again)
{
    static const enum err answers[] = {ERR_BUSY, ERR_UNREACHABLE, ERR_OK};
    struct coordinator_fixture world = {.answers = answers};
    struct logger logger = {.fd = -1};
    const struct worker_config config = {.logger = &logger};
    struct worker worker = {.config = &config, .member = 7, .membership = 1};
    const struct complete_request request = {
        .member = 7,
        .ticket = {.generation = 1, .kind = TICKET_TRAIN, .attempt = 5, .member = 7},
        .outcome = ERR_UNREACHABLE};
    const struct rpc_method method = {.path = "/roost.v1.Cluster/Complete", .requested = complete};
    struct reason reason;
    char address[32];
    coordinator_up(&world, &method, 1, address);
    assert_int_equal(
        inbox_new((struct inbox_limits){sizeof(struct worker_event), 8}, &worker.inbox), ERR_OK);
    assert_int_equal(rpc_channel_new(world.loop, address, NULL, &worker.channel, &reason), ERR_OK);
    worker_call_complete(&worker, &request);
    hear_and_say_again(&worker);
    hear_and_say_again(&worker);
    tally_wait(&world.tally, COMPLETED, 3);
    rpc_channel_free(worker.channel);
    drop_events(&worker); /* the third answer may have been cut off */
    inbox_free(worker.inbox);
    coordinator_down(&world);
}

/* The worker must not stop before the agent does: another lane may compute, and nobody would cancel
 * it. */
TEST_F(a_lease_that_is_not_taken_stops_the_agent, agent)
{
    struct worker worker = {.agent = f->agent};
    const struct agent_effect lease = {.kind = AGENT_LEASE};
    start(f);
    worker_places_carry_out(&worker, &lease); /* nobody can ask this worker */
    assert_false(worker.stopped);
    look(f);
    assert_int_equal(seen(f, AGENT_STOP, 0)->stop, ERR_INVALID);
}

/* Another lane may compute when the agent stops, and a call may be under way: both are broken off. */
TEST_F(a_worker_ends_with_the_sentence_that_it_stopped_with, agent)
{
    struct worker worker = {.agent = f->agent, .failure = {.text = "the answer of a call"}};
    start(f);
    worker_stop_note(&worker);
    snprintf(worker.failure.text, sizeof worker.failure.text, "no room for the place");
    agent_lease_failed(f->agent, ERR_NOMEM);
    worker_stop_note(&worker);
    snprintf(worker.failure.text, sizeof worker.failure.text, "a call is broken off");
    worker_stop_note(&worker);
    worker_stop(&worker, ERR_NOMEM);
    assert_string_equal(worker.failure.text, "no room for the place");
    assert_true(worker.stopped);
    assert_int_equal(worker.stop, ERR_NOMEM);
}
