/* The coordinator as its daemon and the simulator see it: calls in, effects out. Each rule of the
 * protocol that applies has a test with its number. */
#include "tests/unit/unit.h"

#include "common/rand.h"
#include "server/coordinator/coordinator.h"

#include <math.h>
#include <string.h>

enum {
    SLOTS = 4,
    SERVERS = 2,
    LEASE_MS = 1000,
    STOP_MS = 500,
    EFFECTS_SEEN_MAX = 256,
};

/* A coordinator of two servers with a chunk each, and what it said since the last look. */
struct fixture {
    struct coordinator *coordinator;
    uint64_t now_ms;
    uint64_t boot[SERVERS];
    uint64_t link[SERVERS];
    uint64_t generation;
    size_t count;
    struct effect seen[EFFECTS_SEEN_MAX];
    enum err store; /* what writing a cut down ends in */
    struct cut_record stored;
};

static const struct map_parameter parameters[] = {{0, 1, 400, 400}, {1, 1, 400, 400}};

static struct coordinator_run run_of(uint64_t steps)
{
    return (struct coordinator_run){
        .run = 1,
        .steps = steps,
        .servers_min = SERVERS,
        .slots = SLOTS,
        .slot_samples = 2,
        .node_slots = 1,
        .seal = {.schedule = {.kind = SPEC_CONSTANT, .lr = 1, .step_samples = 8},
                 .sample_predictions = 1,
                 .skip_max = 2},
        .parameter_count = 2,
        .parameters = parameters,
        .parameter_bytes_max = 1 << 20,
        .spec = "train: {}",
        .checkpoint_dir = "checkpoints",
    };
}

static void setup(struct fixture *f)
{
    *f = (struct fixture){.now_ms = 1000, .boot = {11, 12}};
    f->coordinator = coordinator_new(&(struct coordinator_settings){.term = 1,
                                                                    .heartbeat_ms = 100,
                                                                    .lease_ms = LEASE_MS,
                                                                    .speculation_percent = 200,
                                                                    .speculation_ms_min = 10,
                                                                    .stop_ms = STOP_MS});
    assert_non_null(f->coordinator);
}

/* Carries out: the test looks at copies. Cuts are written down at once. */
static void look(struct fixture *f)
{
    size_t count;
    coordinator_check(f->coordinator);
    const struct effect *effects = coordinator_effects(f->coordinator, &count);
    f->count = 0;
    for (size_t i = 0; i < count; i++) {
        assert_true(f->count < EFFECTS_SEEN_MAX);
        f->seen[f->count++] = effects[i];
        if (effects[i].kind == EFFECT_STORE_CUT) {
            f->stored = *effects[i].cut;
            coordinator_cut_stored(f->coordinator, f->now_ms, f->stored.name, f->store);
            effects = coordinator_effects(f->coordinator, &count);
        }
    }
    coordinator_check(f->coordinator);
    coordinator_effects_clear(f->coordinator);
}

static const struct effect *seen(const struct fixture *f, enum effect_kind kind)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->seen[i].kind == kind)
            return &f->seen[i];
    return NULL;
}

static size_t place_of(const struct fixture *f, enum effect_kind kind)
{
    const struct effect *effect = seen(f, kind);
    assert_non_null(effect);
    return (size_t)(effect - f->seen);
}

/* The command of that kind to server i; NULL: none was sent. */
static const struct server_command *command(const struct fixture *f, uint32_t i,
                                            enum server_command_kind kind)
{
    for (size_t k = 0; k < f->count; k++)
        if (f->seen[k].kind == EFFECT_COMMAND && f->seen[k].command.link == f->link[i] &&
            f->seen[k].command.command.kind == kind)
            return &f->seen[k].command.command;
    return NULL;
}

static struct coordinator_status status(const struct fixture *f)
{
    struct coordinator_status result;
    coordinator_status(f->coordinator, &result);
    return result;
}

/* ---- servers ---- */

static void hello(struct fixture *f, uint32_t i, uint64_t held_generation)
{
    struct server_report report = {.kind = SERVER_HELLO, .boot = f->boot[i]};
    snprintf(report.hello.name, sizeof report.hello.name, "s%u", i);
    report.hello.generation = held_generation;
    assert_int_equal(
        coordinator_server_hello(f->coordinator, f->now_ms, &report, &f->link[i], NULL), ERR_OK);
    look(f);
}

static enum err report(struct fixture *f, uint32_t i, struct server_report report)
{
    report.boot = f->boot[i];
    enum err err = coordinator_server_report(f->coordinator, f->now_ms, f->link[i], &report);
    look(f);
    return err;
}

static enum err say_ready(struct fixture *f, uint32_t i, uint64_t version)
{
    struct server_report ready = {.kind = SERVER_READY};
    ready.ready.cut = (struct cut_name){f->generation, version};
    return report(f, i, ready);
}

static enum err say_manifest(struct fixture *f, uint32_t i, uint64_t version, enum err code)
{
    struct server_report manifest = {.kind = SERVER_MANIFEST};
    manifest.manifest.cut = (struct cut_name){f->generation, version};
    manifest.manifest.code = code;
    manifest.manifest.digest[0] = (uint8_t)(i + 1);
    return report(f, i, manifest);
}

static enum err say_committed(struct fixture *f, uint32_t i, uint64_t step)
{
    struct server_report committed = {.kind = SERVER_COMMITTED};
    committed.committed.generation = f->generation;
    committed.committed.step = step;
    return report(f, i, committed);
}

/* Server i owns chunk i; server 1 the loss as well. */
static enum err say_reduced(struct fixture *f, uint32_t i, uint64_t step, double sumsq)
{
    struct chunk_seal seal = {i, isfinite(sumsq), sumsq};
    struct server_report reduced = {.kind = SERVER_REDUCED};
    reduced.reduced = (struct reduced){.generation = f->generation,
                                       .step = step,
                                       .seal_count = 1,
                                       .seals = &seal,
                                       .has_loss = i == 1,
                                       .loss_sum = 4,
                                       .sample_count = 8};
    return report(f, i, reduced);
}

static void reduce_all(struct fixture *f, uint64_t step)
{
    assert_int_equal(say_reduced(f, 0, step, 1), ERR_OK);
    assert_int_equal(say_reduced(f, 1, step, 1), ERR_OK);
}

static void commit_all(struct fixture *f, uint64_t step)
{
    assert_int_equal(say_committed(f, 0, step), ERR_OK);
    assert_int_equal(say_committed(f, 1, step), ERR_OK);
}

static void record_all(struct fixture *f, uint64_t version)
{
    assert_int_equal(say_manifest(f, 0, version, ERR_OK), ERR_OK);
    assert_int_equal(say_manifest(f, 1, version, ERR_OK), ERR_OK);
}

/* A step from its pushes to the acknowledged commit; the commit stays in f->seen of server 0. */
static void step(struct fixture *f, uint64_t step_number)
{
    reduce_all(f, step_number);
    commit_all(f, step_number);
}

/* A run on both servers, ready to grant version 0. */
static void start(struct fixture *f, const struct coordinator_run *run)
{
    setup(f);
    hello(f, 0, 0);
    hello(f, 1, 0);
    assert_int_equal(coordinator_start(f->coordinator, f->now_ms, run, NULL, NULL), ERR_OK);
    look(f);
    f->generation = status(f).generation;
    assert_int_equal(say_ready(f, 0, 0), ERR_OK);
    assert_int_equal(say_ready(f, 1, 0), ERR_OK);
    record_all(f, 0);
    assert_int_equal(status(f).state, RUN_TRAINING);
}

static void teardown(struct fixture *f)
{
    coordinator_free(f->coordinator);
}

/* ---- workers ---- */

static struct join_request join_request(void)
{
    struct join_request request = {.wire_version = WIRE_VERSION, .name = "w", .device = "cpu"};
    request.fingerprint[0] = 5;
    return request;
}

static uint64_t join(struct fixture *f)
{
    struct join_request request = join_request();
    struct join_reply reply;
    assert_int_equal(coordinator_join(f->coordinator, f->now_ms, &request, &reply, NULL), ERR_OK);
    look(f);
    assert_int_equal(reply.generation, f->generation);
    return reply.member;
}

static uint64_t join_again(struct fixture *f, uint64_t previous)
{
    struct join_request request = join_request();
    struct join_reply reply;
    request.previous_member = previous;
    assert_int_equal(coordinator_join(f->coordinator, f->now_ms, &request, &reply, NULL), ERR_OK);
    look(f);
    return reply.member;
}

static enum err acquire(struct fixture *f, uint64_t member, uint64_t sequence, uint32_t wait_ms)
{
    enum err err = coordinator_acquire(f->coordinator, f->now_ms,
                                       &(struct acquire_request){.member = member,
                                                                 .generation = f->generation,
                                                                 .sequence = sequence,
                                                                 .wait_ms = wait_ms});
    look(f);
    return err;
}

/* The answer that member got; it must have got one. */
static struct acquire_reply answer(const struct fixture *f, uint64_t member)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->seen[i].kind == EFFECT_ANSWER && f->seen[i].answer.member == member) {
            assert_int_equal(f->seen[i].answer.err, ERR_OK);
            return f->seen[i].answer.reply;
        }
    fail_msg("member %llu got no answer", (unsigned long long)member);
    return (struct acquire_reply){.result = ACQUIRE_WAIT};
}

static struct ticket ticket_of(struct fixture *f, uint64_t member, uint64_t sequence)
{
    assert_int_equal(acquire(f, member, sequence, 5000), ERR_OK);
    struct acquire_reply reply = answer(f, member);
    assert_int_equal(reply.result, ACQUIRE_TICKET);
    return reply.ticket;
}

static enum err complete(struct fixture *f, uint64_t member, struct ticket ticket, enum err outcome)
{
    struct complete_request request = {.member = member,
                                       .ticket = ticket,
                                       .outcome = outcome,
                                       .loss_sum = 10.0 * (ticket.node.index + 1),
                                       .sample_count = 2,
                                       .correct_count = 1};
    enum err err = coordinator_complete(f->coordinator, f->now_ms, &request);
    look(f);
    return err;
}

static void tick(struct fixture *f, uint64_t after_ms)
{
    f->now_ms += after_ms;
    coordinator_tick(f->coordinator, f->now_ms);
    look(f);
}

/* ---- starting ---- */

static void a_run_waits_for_its_servers_and_says_so(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    setup(&f);
    hello(&f, 0, 0);
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, NULL, NULL), ERR_OK);
    look(&f);
    assert_int_equal(status(&f).state, RUN_STARTING);
    assert_string_equal(status(&f).reason, "1 of 2 servers are connected");
    assert_null(command(&f, 0, SERVER_PREPARE));
    hello(&f, 1, 0);
    assert_non_null(command(&f, 0, SERVER_PREPARE));
    assert_non_null(command(&f, 1, SERVER_PREPARE));
    teardown(&f);
}

static void one_run_at_a_time(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    start(&f, &run);
    run.run = 2;
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, NULL, NULL), ERR_EXISTS);
    teardown(&f);
}

static void a_resume_replaces_what_a_successor_began_by_itself_until_the_first_commit(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    struct coordinator_past past = {.generation = 1};
    start(&f, &run);
    uint64_t worker = join(&f);
    run.steps = 5;
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, &past, NULL), ERR_OK);
    look(&f);
    assert_int_equal(status(&f).steps, 5);
    assert_int_equal(status(&f).generation, f.generation + 1);
    assert_int_equal(seen(&f, EFFECT_EXPEL)->member, worker);
    assert_non_null(command(&f, 1, SERVER_PREPARE));
    f.generation++;
    assert_int_equal(say_ready(&f, 0, 0), ERR_OK);
    assert_int_equal(say_ready(&f, 1, 0), ERR_OK);
    record_all(&f, 0);
    step(&f, 0);
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, &past, NULL), ERR_EXISTS);
    teardown(&f);
}

static void a_run_that_cannot_be_is_refused_by_name(void **state)
{
    (void)state;
    struct fixture f;
    struct reason reason;
    struct coordinator_run run = run_of(3);
    setup(&f);
    run.validation_samples = 1000000;
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, NULL, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, "train.validation_samples"));
    run = run_of(3);
    run.slots = 0;
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, NULL, &reason), ERR_INVALID);
    run = run_of(3);
    run.parameter_count = 0;
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, NULL, &reason), ERR_INVALID);
    assert_int_equal(status(&f).state, RUN_NONE);
    teardown(&f);
}

static void p3_commands_name_the_boot_they_are_for(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    setup(&f);
    hello(&f, 0, 0);
    hello(&f, 1, 0);
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, NULL, NULL), ERR_OK);
    look(&f);
    assert_int_equal(command(&f, 0, SERVER_PREPARE)->boot, 11);
    assert_int_equal(command(&f, 1, SERVER_PREPARE)->boot, 12);
    assert_int_equal(command(&f, 1, SERVER_PREPARE)->term, 1);
    assert_int_equal(command(&f, 1, SERVER_PREPARE)->prepare.server, 1);
    teardown(&f);
}

static void p9_version_0_is_a_recorded_cut_before_the_first_grant(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    setup(&f);
    hello(&f, 0, 0);
    hello(&f, 1, 0);
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, NULL, NULL), ERR_OK);
    look(&f);
    f.generation = status(&f).generation;
    uint64_t worker = join(&f);
    assert_int_equal(acquire(&f, worker, 1, 5000), ERR_OK);
    assert_int_equal(say_ready(&f, 0, 0), ERR_OK);
    assert_int_equal(say_ready(&f, 1, 0), ERR_OK);
    assert_int_equal(say_manifest(&f, 0, 0, ERR_OK), ERR_OK);
    assert_null(seen(&f, EFFECT_ANSWER));
    assert_string_equal(status(&f).reason, "the cut of version 0 is being written");
    assert_int_equal(say_manifest(&f, 1, 0, ERR_OK), ERR_OK);
    assert_int_equal(answer(&f, worker).ticket.version, 0);
    assert_true(place_of(&f, EFFECT_STORE_CUT) < place_of(&f, EFFECT_ANSWER));
    teardown(&f);
}

static void a_full_disk_at_the_first_cut_fails_the_run_by_name(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    setup(&f);
    hello(&f, 0, 0);
    hello(&f, 1, 0);
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, NULL, NULL), ERR_OK);
    look(&f);
    f.generation = status(&f).generation;
    assert_int_equal(say_manifest(&f, 1, 0, ERR_NO_SPACE), ERR_OK);
    assert_int_equal(status(&f).state, RUN_FAILED);
    assert_string_equal(status(&f).reason,
                        "server s1 could not write the cut of version 0: no space left on device");
    assert_non_null(command(&f, 0, SERVER_END));
    teardown(&f);
}

static void a_server_that_cannot_prepare_fails_the_run_by_name(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    setup(&f);
    hello(&f, 0, 0);
    hello(&f, 1, 0);
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, NULL, NULL), ERR_OK);
    look(&f);
    struct server_report ready = {.kind = SERVER_READY};
    ready.ready.cut.generation = status(&f).generation;
    ready.ready.code = ERR_CORRUPT;
    ready.ready.text = "c.bin: block 3";
    assert_int_equal(report(&f, 0, ready), ERR_OK);
    assert_int_equal(status(&f).state, RUN_FAILED);
    assert_string_equal(status(&f).reason, "server s0 cannot prepare: CORRUPT: c.bin: block 3");
    teardown(&f);
}

/* ---- membership ---- */

static void the_first_workers_fingerprint_is_the_runs_and_stored(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    struct join_request request = join_request();
    struct join_reply reply;
    struct reason reason;
    start(&f, &run);
    assert_int_equal(coordinator_join(f.coordinator, f.now_ms, &request, &reply, NULL), ERR_OK);
    look(&f);
    assert_int_equal(seen(&f, EFFECT_STORE_FINGERPRINT)->fingerprint[0], 5);
    join(&f);
    assert_null(seen(&f, EFFECT_STORE_FINGERPRINT));
    request.fingerprint[0] = 6;
    assert_int_equal(coordinator_join(f.coordinator, f.now_ms, &request, &reply, &reason),
                     ERR_FINGERPRINT);
    struct coordinator_member member;
    assert_true(coordinator_member(f.coordinator, 2, &member));
    assert_string_equal(member.state, "refused");
    teardown(&f);
}

static void nobody_joins_while_there_is_no_run(void **state)
{
    (void)state;
    struct fixture f;
    struct join_request request = join_request();
    struct join_reply reply;
    setup(&f);
    assert_int_equal(coordinator_join(f.coordinator, f.now_ms, &request, &reply, NULL), ERR_NO_RUN);
    teardown(&f);
}

static void a_broken_control_stream_frees_the_tickets_at_once(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    run.node_slots = SLOTS;
    start(&f, &run);
    uint64_t a = join(&f), b = join(&f);
    ticket_of(&f, a, 1);
    assert_int_equal(acquire(&f, b, 1, 5000), ERR_OK);
    assert_null(seen(&f, EFFECT_ANSWER));
    coordinator_member_lost(f.coordinator, f.now_ms, a, "stream broke");
    look(&f);
    assert_int_equal(answer(&f, b).result, ACQUIRE_TICKET);
    assert_false(answer(&f, b).ticket.speculative);
    assert_int_equal(status(&f).redone, SLOTS);
    assert_int_equal(status(&f).members_lost, 1);
    teardown(&f);
}

static void a_silent_member_is_lost_when_its_lease_lapses(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    run.node_slots = SLOTS;
    start(&f, &run);
    uint64_t a = join(&f), b = join(&f);
    ticket_of(&f, a, 1);
    assert_int_equal(acquire(&f, b, 1, 60000), ERR_OK);
    f.now_ms += LEASE_MS - 1;
    assert_int_equal(coordinator_heartbeat(f.coordinator, f.now_ms, b), ERR_OK);
    assert_true(coordinator_next_ms(f.coordinator) <= f.now_ms + 1);
    tick(&f, 1);
    assert_int_equal(seen(&f, EFFECT_EXPEL)->member, a);
    assert_int_equal(answer(&f, b).ticket.node.index, 0);
    assert_int_equal(coordinator_heartbeat(f.coordinator, f.now_ms, a), ERR_UNKNOWN_MEMBER);
    assert_int_equal(acquire(&f, a, 2, 0), ERR_UNKNOWN_MEMBER);
    teardown(&f);
}

static void who_leaves_says_why(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    struct coordinator_member member;
    start(&f, &run);
    uint64_t a = join(&f), b = join(&f);
    assert_int_equal(coordinator_leave(f.coordinator, f.now_ms, a, "SIGTERM"), ERR_OK);
    assert_int_equal(coordinator_leave(f.coordinator, f.now_ms, b, "preempted by the cloud"),
                     ERR_OK);
    look(&f);
    assert_int_equal(status(&f).members_lost, 0);
    assert_true(coordinator_member(f.coordinator, 0, &member));
    assert_string_equal(member.state, "preempted");
    assert_true(coordinator_member(f.coordinator, 1, &member));
    assert_string_equal(member.state, "left");
    assert_string_equal(member.reason, "SIGTERM");
    assert_false(coordinator_member(f.coordinator, 2, &member));
    teardown(&f);
}

/* ---- tickets ---- */

static void p1_acquire_asked_again_returns_the_lease_already_given(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    start(&f, &run);
    uint64_t worker = join(&f);
    struct ticket first = ticket_of(&f, worker, 1);
    struct ticket again = ticket_of(&f, worker, 1);
    assert_memory_equal(&first, &again, sizeof first);
    assert_int_not_equal(ticket_of(&f, worker, 2).attempt, first.attempt);
    assert_int_equal(acquire(&f, worker, 1, 5000), ERR_TOO_LATE); /* an old question */
    teardown(&f);
}

static void p1_complete_says_nothing_about_the_step(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    run.node_slots = SLOTS;
    start(&f, &run);
    uint64_t worker = join(&f);
    struct ticket ticket = ticket_of(&f, worker, 1);
    assert_int_equal(complete(&f, worker, ticket, ERR_OK), ERR_OK);
    assert_null(command(&f, 0, SERVER_COMMIT));
    assert_int_equal(acquire(&f, worker, 2, 0), ERR_OK);
    assert_int_equal(answer(&f, worker).result, ACQUIRE_WAIT); /* done: not granted again */
    reduce_all(&f, 0);
    assert_non_null(command(&f, 0, SERVER_COMMIT));
    teardown(&f);
}

static void a_step_is_committed_by_its_seals_though_no_worker_said_complete(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    start(&f, &run);
    uint64_t worker = join(&f);
    struct ticket ticket = ticket_of(&f, worker, 1);
    reduce_all(&f, 0);
    assert_int_equal(status(&f).version, 1);
    assert_int_equal(complete(&f, worker, ticket, ERR_OK), ERR_OK); /* late, harmless */
    assert_int_equal(ticket_of(&f, worker, 2).version, 1);
    teardown(&f);
}

static void a_dropped_ticket_is_granted_again(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    run.node_slots = SLOTS;
    start(&f, &run);
    uint64_t a = join(&f), b = join(&f);
    struct ticket ticket = ticket_of(&f, a, 1);
    assert_int_equal(acquire(&f, b, 1, 5000), ERR_OK);
    assert_int_equal(complete(&f, a, ticket, ERR_UNREACHABLE), ERR_OK);
    assert_int_equal(answer(&f, b).ticket.node.index, 0);
    teardown(&f);
}

static void a_parked_question_is_answered_when_its_time_is_over(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    run.node_slots = SLOTS;
    start(&f, &run);
    uint64_t a = join(&f), b = join(&f);
    ticket_of(&f, a, 1);
    assert_int_equal(acquire(&f, b, 1, 200), ERR_OK);
    assert_true(coordinator_next_ms(f.coordinator) <= f.now_ms + 200);
    tick(&f, 199);
    assert_null(seen(&f, EFFECT_ANSWER));
    tick(&f, 1);
    assert_int_equal(answer(&f, b).result, ACQUIRE_WAIT);
    teardown(&f);
}

static void tickets_of_the_next_version_wake_who_waits(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    run.node_slots = SLOTS;
    start(&f, &run);
    uint64_t a = join(&f), b = join(&f);
    ticket_of(&f, a, 1);
    assert_int_equal(acquire(&f, b, 1, 5000), ERR_OK);
    reduce_all(&f, 0);
    assert_int_equal(answer(&f, b).ticket.step, 1);
    assert_int_equal(answer(&f, b).ticket.version, 1);
    teardown(&f);
}

static void an_idle_worker_is_woken_when_a_ticket_is_overdue(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    run.node_slots = 2;
    start(&f, &run);
    uint64_t a = join(&f), b = join(&f);
    struct ticket first = ticket_of(&f, a, 1);
    struct ticket second = ticket_of(&f, b, 1);
    f.now_ms += 20;
    assert_int_equal(complete(&f, a, first, ERR_OK), ERR_OK);
    assert_int_equal(acquire(&f, a, 2, 5000), ERR_OK);
    assert_int_equal(coordinator_next_ms(f.coordinator), f.now_ms + 20); /* twice the usual */
    tick(&f, 20);
    assert_true(answer(&f, a).ticket.speculative);
    assert_true(node_equal(answer(&f, a).ticket.node, second.node));
    assert_int_equal(status(&f).speculative, 2);
    teardown(&f);
}

static void a_ticket_that_never_was_is_malformed(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    start(&f, &run);
    uint64_t worker = join(&f);
    struct ticket ticket = ticket_of(&f, worker, 1);
    struct ticket bad = ticket;
    bad.node = (struct node){0, SLOTS};
    assert_int_equal(complete(&f, worker, bad, ERR_OK), ERR_MALFORMED);
    bad = ticket;
    bad.step = 9;
    assert_int_equal(complete(&f, worker, bad, ERR_OK), ERR_MALFORMED);
    bad = ticket;
    bad.kind = TICKET_VALIDATE;
    assert_int_equal(complete(&f, worker, bad, ERR_OK), ERR_MALFORMED);
    bad = ticket;
    bad.generation++;
    assert_int_equal(complete(&f, worker, bad, ERR_OK), ERR_MALFORMED);
    assert_int_equal(acquire(&f, 12345, 1, 0), ERR_UNKNOWN_MEMBER);
    teardown(&f);
}

static void a_member_holds_only_so_many_tickets(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    run.slots = 16;
    run.seal.schedule.step_samples = 32;
    start(&f, &run);
    uint64_t worker = join(&f);
    for (uint64_t i = 1; i <= COORDINATOR_LEASES_MAX; i++)
        ticket_of(&f, worker, i);
    assert_int_equal(acquire(&f, worker, 99, 5000), ERR_BUSY);
    teardown(&f);
}

static void pushes_that_never_came_are_asked_for_again(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    run.node_slots = SLOTS;
    start(&f, &run);
    uint64_t liar = join(&f), honest = join(&f);
    struct ticket ticket = ticket_of(&f, liar, 1);
    assert_int_equal(complete(&f, liar, ticket, ERR_OK), ERR_OK);
    assert_int_equal(acquire(&f, honest, 1, 60000), ERR_OK);
    for (int i = 0; i < 31 && seen(&f, EFFECT_ANSWER) == NULL; i++) {
        assert_int_equal(coordinator_heartbeat(f.coordinator, f.now_ms, honest), ERR_OK);
        tick(&f, 100);
    }
    assert_int_equal(answer(&f, honest).ticket.node.index, 0);
    teardown(&f);
}

/* ---- fences ---- */

static void p2_reports_of_another_generation_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    start(&f, &run);
    f.generation--;
    assert_int_equal(say_reduced(&f, 0, 0, 1), ERR_OLD_GENERATION);
    assert_int_equal(say_committed(&f, 0, 0), ERR_OLD_GENERATION);
    assert_int_equal(say_manifest(&f, 0, 0, ERR_OK), ERR_OLD_GENERATION);
    assert_int_equal(say_ready(&f, 0, 0), ERR_OLD_GENERATION);
    f.generation++;
    assert_int_equal(say_reduced(&f, 1, 0, 1), ERR_OK);
    assert_null(command(&f, 0, SERVER_COMMIT)); /* the old report did not count */
    teardown(&f);
}

static void p2_a_complete_and_an_acquire_of_another_generation_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    start(&f, &run);
    uint64_t worker = join(&f);
    struct ticket ticket = ticket_of(&f, worker, 1);
    ticket.generation--;
    assert_int_equal(complete(&f, worker, ticket, ERR_OK), ERR_OLD_GENERATION);
    f.generation--;
    assert_int_equal(acquire(&f, worker, 2, 0), ERR_OLD_GENERATION);
    teardown(&f);
}

static void p3_a_report_of_an_earlier_boot_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    start(&f, &run);
    f.boot[0]--;
    assert_int_equal(say_reduced(&f, 0, 0, 1), ERR_OLD_BOOT);
    teardown(&f);
}

static void a_report_over_a_dead_link_is_not_heard(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    start(&f, &run);
    uint64_t old = f.link[0];
    assert_null(seen(&f, EFFECT_UNLINK));
    hello(&f, 0, f.generation); /* the same boot over a new stream */
    assert_int_equal(seen(&f, EFFECT_UNLINK)->link,
                     old); /* were it the newer one, it comes again */
    uint64_t new = f.link[0];
    f.link[0] = old;
    assert_int_equal(say_reduced(&f, 0, 0, 1), ERR_NOT_FOUND);
    coordinator_server_lost(f.coordinator, f.now_ms, old);
    look(&f);
    assert_string_equal(status(&f).reason, "no worker is there"); /* it is not lost */
    f.link[0] = new;
    assert_int_equal(say_reduced(&f, 0, 0, 1), ERR_OK);
    teardown(&f);
}

static void a_seal_of_a_chunk_on_another_server_is_malformed(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    start(&f, &run);
    const uint32_t chunks[] = {1, 2};
    for (int i = 0; i < 2; i++) {
        struct chunk_seal seal = {chunks[i], true, 1};
        struct server_report reduced = {.kind = SERVER_REDUCED};
        reduced.reduced =
            (struct reduced){.generation = f.generation, .seal_count = 1, .seals = &seal};
        assert_int_equal(report(&f, 0, reduced), ERR_MALFORMED);
    }
    assert_int_equal(say_reduced(&f, 0, 1, 1), ERR_MALFORMED); /* a step that is not open */
    teardown(&f);
}

/* ---- commit ---- */

static void p6_the_next_commit_waits_until_every_server_acknowledged_the_last(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    start(&f, &run);
    reduce_all(&f, 0);
    const struct server_command *first = command(&f, 0, SERVER_COMMIT);
    assert_int_equal(first->commit.step, 0);
    assert_memory_equal(&first->commit, &command(&f, 1, SERVER_COMMIT)->commit,
                        sizeof first->commit);
    assert_int_equal(say_committed(&f, 0, 0), ERR_OK);
    reduce_all(&f, 1);
    assert_null(command(&f, 0, SERVER_COMMIT));
    assert_int_equal(say_committed(&f, 1, 0), ERR_OK);
    assert_int_equal(command(&f, 0, SERVER_COMMIT)->commit.step, 1);
    teardown(&f);
}

static struct coordinator_run delayed_run(uint64_t steps, uint32_t delay)
{
    struct coordinator_run run = run_of(steps);
    run.slots = 1;
    run.delay = delay;
    return run;
}

static void with_a_delay_steps_overlap_on_versions_that_are_there(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = delayed_run(4, 2);
    start(&f, &run);
    uint64_t worker = join(&f);
    for (uint64_t i = 0; i < 3; i++) {
        struct ticket ticket = ticket_of(&f, worker, 1 + i);
        assert_int_equal(ticket.step, i);
        assert_int_equal(ticket.version, 0);
        assert_int_equal(complete(&f, worker, ticket, ERR_OK), ERR_OK);
    }
    assert_int_equal(acquire(&f, worker, 4, 0), ERR_OK);
    assert_int_equal(answer(&f, worker).result, ACQUIRE_WAIT);
    reduce_all(&f, 0);
    struct ticket last = ticket_of(&f, worker, 5);
    assert_int_equal(last.step, 3);
    assert_int_equal(last.version, 1);
    commit_all(&f, 0);
    assert_int_equal(acquire(&f, worker, 6, 0), ERR_OK); /* no step 4 */
    assert_int_equal(answer(&f, worker).result, ACQUIRE_WAIT);
    teardown(&f);
}

static void with_a_delay_a_later_step_may_be_reduced_first(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = delayed_run(4, 1);
    start(&f, &run);
    reduce_all(&f, 1);
    assert_null(command(&f, 0, SERVER_COMMIT));
    assert_int_equal(say_reduced(&f, 0, 2, 1), ERR_MALFORMED); /* its version is not known */
    reduce_all(&f, 0);
    assert_int_equal(command(&f, 0, SERVER_COMMIT)->commit.step, 0);
    assert_int_equal(say_committed(&f, 0, 0), ERR_OK);
    assert_null(command(&f, 0, SERVER_COMMIT));
    assert_int_equal(say_committed(&f, 1, 0), ERR_OK); /* P6 */
    assert_int_equal(command(&f, 0, SERVER_COMMIT)->commit.step, 1);
    assert_int_equal(status(&f).version, 2);
    teardown(&f);
}

static void with_a_delay_a_rewind_forgets_what_later_steps_had(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = delayed_run(9, 1);
    start(&f, &run);
    step(&f, 0);
    reduce_all(&f, 2);
    uint64_t worker = join(&f);
    ticket_of(&f, worker, 1);
    coordinator_server_lost(f.coordinator, f.now_ms, f.link[1]);
    f.boot[1]++;
    hello(&f, 1, 0);
    f.generation++;
    assert_int_equal(say_ready(&f, 0, 0), ERR_OK);
    assert_int_equal(say_ready(&f, 1, 0), ERR_OK);
    worker = join(&f);
    struct ticket ticket = ticket_of(&f, worker, 1);
    assert_int_equal(ticket.step, 0);
    step(&f, 0);
    step(&f, 1);
    assert_int_equal(status(&f).version, 2); /* step 2 is to be reduced again */
    teardown(&f);
}

/* ---- async ---- */

static struct coordinator_run async_run(uint64_t steps)
{
    struct coordinator_run run = run_of(steps);
    run.async = true;
    run.window = 2 * SLOTS;
    return run;
}

static enum err complete_boots(struct fixture *f, uint64_t member, uint64_t number,
                               const uint64_t *boots)
{
    struct complete_request request = {.member = member,
                                       .ticket = {.kind = TICKET_TRAIN,
                                                  .generation = f->generation,
                                                  .step = number / SLOTS,
                                                  .node = {0, (uint32_t)(number % SLOTS)}},
                                       .boot_count = SERVERS,
                                       .boots = boots};
    enum err err = coordinator_complete(f->coordinator, f->now_ms, &request);
    look(f);
    return err;
}

static void complete_tickets(struct fixture *f, uint64_t member, uint64_t first, uint64_t last)
{
    for (uint64_t number = first; number <= last; number++)
        assert_int_equal(complete_boots(f, member, number, f->boot), ERR_OK);
}

/* What a worker that joins now is granted; UINT64_MAX: nothing. */
static uint64_t granted(struct fixture *f)
{
    uint64_t member = join(f), number = UINT64_MAX;
    assert_int_equal(acquire(f, member, 1, 0), ERR_OK);
    struct acquire_reply reply = answer(f, member);
    if (reply.result == ACQUIRE_TICKET)
        number = reply.ticket.step * SLOTS + reply.ticket.node.index;
    assert_int_equal(coordinator_leave(f->coordinator, f->now_ms, member, "enough"), ERR_OK);
    look(f);
    return number;
}

static enum err say_taken(struct fixture *f, uint32_t i, uint64_t version, uint64_t low,
                          uint64_t bits)
{
    struct server_report ready = {.kind = SERVER_READY};
    ready.ready.cut = (struct cut_name){f->generation, version};
    ready.ready.applied_low = low;
    ready.ready.applied_words = 1;
    ready.ready.applied = &bits;
    return report(f, i, ready);
}

static void restart_server(struct fixture *f, uint32_t i)
{
    coordinator_server_lost(f->coordinator, f->now_ms, f->link[i]);
    look(f);
    f->boot[i] += 100;
    hello(f, i, 0);
}

static void async_grants_as_far_as_the_window_and_one_step_ahead_of_commits(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = async_run(5);
    start(&f, &run);
    uint64_t worker = join(&f);
    for (uint64_t i = 0; i < 8; i++) {
        struct ticket ticket = ticket_of(&f, worker, 1 + i);
        assert_int_equal(ticket.step * SLOTS + ticket.node.index, i);
    }
    assert_int_equal(granted(&f), UINT64_MAX);
    complete_tickets(&f, worker, 1, 3);
    assert_int_equal(granted(&f), UINT64_MAX); /* 0 is not done */
    complete_tickets(&f, worker, 0, 0);
    assert_int_equal(granted(&f), 8); /* no commit was needed */
    complete_tickets(&f, worker, 4, 11);
    assert_int_equal(granted(&f), UINT64_MAX);
    reduce_all(&f, 0);
    assert_int_equal(granted(&f), 12);
    commit_all(&f, 0);
    teardown(&f);
}

static void p12_a_complete_that_names_an_older_boot_does_not_count(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = async_run(5);
    start(&f, &run);
    uint64_t worker = join(&f);
    const uint64_t older[] = {f.boot[0], f.boot[1] - 1};
    assert_int_equal(complete_boots(&f, worker, 0, older), ERR_OK);
    assert_int_equal(granted(&f), 0);
    complete_tickets(&f, worker, 0, 0);
    assert_int_equal(granted(&f), 1);
    teardown(&f);
}

static void p12_a_new_boot_begins_alone_and_what_it_lost_is_granted_again(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = async_run(5);
    start(&f, &run);
    uint64_t worker = join(&f), generation = f.generation;
    complete_tickets(&f, worker, 0, 5);
    assert_int_equal(granted(&f), 6);
    restart_server(&f, 1);
    assert_null(command(&f, 0, SERVER_PREPARE));
    const struct server_command *prepare = command(&f, 1, SERVER_PREPARE);
    assert_non_null(prepare);
    assert_int_equal(prepare->prepare.generation, generation);
    assert_true(prepare->prepare.from_cut);
    assert_int_equal(say_taken(&f, 1, 0, 1, 1 << 1), ERR_OK); /* it has 0 and 2 */
    assert_int_equal(status(&f).generation, generation);
    assert_int_equal(granted(&f), 1);
    complete_tickets(&f, worker, 1, 1);
    assert_int_equal(granted(&f), 3);
    complete_tickets(&f, worker, 3, 4);
    assert_int_equal(granted(&f), 5);
    teardown(&f);
}

static void p12_tickets_of_steps_that_are_committed_are_granted_again_too(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = async_run(5);
    start(&f, &run);
    uint64_t worker = join(&f);
    complete_tickets(&f, worker, 0, 7);
    step(&f, 0);
    step(&f, 1);
    assert_int_equal(granted(&f), 8);
    restart_server(&f, 0);
    assert_int_equal(say_taken(&f, 0, 0, 2, 0), ERR_OK);
    assert_int_equal(command(&f, 0, SERVER_COMMIT)->commit.step, 1); /* where the run is */
    assert_int_equal(status(&f).version, 2);
    assert_int_equal(granted(&f), 2);
    complete_tickets(&f, worker, 2, 7);
    assert_int_equal(granted(&f), 8);
    say_committed(&f, 0, 1);
    step(&f, 2);
    assert_int_equal(status(&f).version, 3);
    teardown(&f);
}

static void p12_what_a_lost_boot_said_was_reduced_is_forgotten(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = async_run(5);
    start(&f, &run);
    assert_int_equal(say_reduced(&f, 1, 0, 1), ERR_OK);
    restart_server(&f, 1);
    assert_int_equal(say_taken(&f, 1, 0, 0, 0), ERR_OK);
    assert_int_equal(say_reduced(&f, 0, 0, 1), ERR_OK);
    assert_int_equal(status(&f).version, 0);
    assert_int_equal(say_reduced(&f, 1, 0, 1), ERR_OK);
    assert_int_equal(status(&f).version, 1);
    teardown(&f);
}

static void p12_a_new_generation_knows_what_all_servers_have(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = async_run(5);
    setup(&f);
    hello(&f, 0, 0);
    hello(&f, 1, 0);
    struct coordinator_past past = {.generation = 4, .cut = {.name = {4, 1}, .server_count = 2}};
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, &past, NULL), ERR_OK);
    look(&f);
    f.generation = status(&f).generation;
    assert_int_equal(say_taken(&f, 0, 1, 6, 1 << 3), ERR_OK);
    assert_int_equal(say_taken(&f, 1, 1, 5, 1 << 4), ERR_OK); /* 9 */
    assert_int_equal(status(&f).state, RUN_TRAINING);
    assert_int_equal(granted(&f), 5);
    uint64_t worker = join(&f);
    complete_tickets(&f, worker, 5, 8);
    assert_int_equal(granted(&f), 10);
    teardown(&f);
}

static void p12_a_successor_waits_for_the_servers_of_the_cut(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = async_run(5);
    struct coordinator_past past = {.generation = 4, .cut = {.name = {4, 1}, .server_count = 1}};
    snprintf(past.cut.servers[0].name, sizeof past.cut.servers[0].name, "s1");
    run.servers_min = 1;
    run.cut_servers = true;
    setup(&f);
    hello(&f, 0, 0); /* enough, but s1 may be alive and acknowledge pushes */
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, &past, NULL), ERR_OK);
    look(&f);
    assert_null(command(&f, 0, SERVER_PREPARE));
    assert_string_equal(status(&f).reason, "server s1 of the newest cut is awaited");
    hello(&f, 1, 4);
    assert_int_equal(command(&f, 1, SERVER_PREPARE)->prepare.cut.version, 1);
    teardown(&f);
}

static void p12_who_lost_its_memory_writes_no_second_file_of_a_cut(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = async_run(5);
    run.cut_every = 2;
    start(&f, &run);
    step(&f, 0);
    reduce_all(&f, 1);
    assert_true(command(&f, 0, SERVER_COMMIT)->commit.cut);
    commit_all(&f, 1);
    assert_int_equal(say_manifest(&f, 1, 2, ERR_OK), ERR_OK); /* s1 has written its file */
    restart_server(&f, 1);
    assert_int_equal(say_taken(&f, 1, 0, 0, 0), ERR_OK);
    const struct server_command *again = command(&f, 1, SERVER_COMMIT);
    assert_int_equal(again->commit.step, 1);
    assert_false(again->commit.cut);
    say_committed(&f, 1, 1);
    assert_int_equal(say_manifest(&f, 0, 2, ERR_OK), ERR_OK);
    assert_int_equal(status(&f).cut.version, 0); /* one file is older than the other's answers */
    reduce_all(&f, 2);
    assert_true(command(&f, 1, SERVER_COMMIT)->commit.cut); /* at once, not at the interval */
    commit_all(&f, 2);
    record_all(&f, 3);
    assert_int_equal(status(&f).cut.version, 3);
    teardown(&f);
}

static void async_words_that_shards_do_not_bear_out_are_doubted(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = async_run(5);
    start(&f, &run);
    uint64_t worker = join(&f);
    complete_tickets(&f, worker, 0, 3);
    assert_int_equal(granted(&f), 4);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(coordinator_heartbeat(f.coordinator, f.now_ms, worker), ERR_OK);
        tick(&f, LEASE_MS / 2);
    }
    assert_int_equal(granted(&f), 0);
    teardown(&f);
}

static void async_a_run_ends_with_its_last_cut_and_rewinds_when_that_is_lost(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = async_run(1);
    start(&f, &run);
    uint64_t generation = f.generation;
    reduce_all(&f, 0); /* before the workers' words came */
    assert_true(command(&f, 0, SERVER_COMMIT)->commit.cut);
    commit_all(&f, 0);
    restart_server(&f, 0);
    assert_int_equal(command(&f, 1, SERVER_PREPARE)->prepare.generation, generation + 1);
    f.generation++;
    assert_int_equal(say_taken(&f, 0, 0, 0, 0), ERR_OK);
    assert_int_equal(say_taken(&f, 1, 0, 0, 0), ERR_OK);
    reduce_all(&f, 0);
    commit_all(&f, 0);
    record_all(&f, 1);
    assert_int_equal(status(&f).state, RUN_ENDED);
    teardown(&f);
}

static void async_a_bitmap_of_no_such_run_is_malformed(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = async_run(5);
    start(&f, &run);
    restart_server(&f, 1);
    assert_int_equal(say_taken(&f, 1, 0, 5 * SLOTS + 1, 0), ERR_MALFORMED);
    assert_int_equal(say_taken(&f, 1, 0, 3, 1), ERR_MALFORMED);
    assert_int_equal(say_taken(&f, 1, 0, 3, 0), ERR_OK);
    teardown(&f);
}

static void ssp_says_what_a_step_was_computed_on_before_its_commit(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = delayed_run(4, 1);
    run.ssp = true;
    run.slots = 2;
    start(&f, &run);
    uint64_t worker = join(&f);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(ticket_of(&f, worker, 1 + i).version, 0);
    reduce_all(&f, 0);
    assert_true(place_of(&f, EFFECT_STORE_ORDER) < place_of(&f, EFFECT_COMMAND));
    assert_int_equal(seen(&f, EFFECT_STORE_ORDER)->order.behind[0], 0);
    assert_int_equal(seen(&f, EFFECT_STEP)->step.behind, 0);
    commit_all(&f, 0);
    struct ticket late = ticket_of(&f, worker, 4);
    assert_int_equal(late.step, 1);
    assert_int_equal(late.version, 1); /* the newest */
    reduce_all(&f, 1);
    const struct order_step order = seen(&f, EFFECT_STORE_ORDER)->order;
    assert_int_equal(order.generation, f.generation);
    assert_int_equal(order.step, 1);
    assert_int_equal(order.slots, 2);
    assert_int_equal(order.behind[0], 1);
    assert_int_equal(order.behind[1], 0);
    assert_int_equal(seen(&f, EFFECT_STEP)->step.behind, 1);
    teardown(&f);
}

static void a_report_said_twice_decides_once(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(3);
    start(&f, &run);
    reduce_all(&f, 0);
    assert_int_equal(say_reduced(&f, 0, 0, 1), ERR_OK);
    assert_null(command(&f, 0, SERVER_COMMIT));
    commit_all(&f, 0);
    commit_all(&f, 0);
    assert_int_equal(status(&f).version, 1);
    teardown(&f);
}

static void p8_a_commit_carries_the_counters(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(5);
    start(&f, &run);
    step(&f, 0);
    assert_int_equal(say_reduced(&f, 0, 1, NAN), ERR_OK);
    assert_int_equal(say_reduced(&f, 1, 1, 1), ERR_OK);
    const struct commit *commit = &command(&f, 0, SERVER_COMMIT)->commit;
    assert_false(commit->apply);
    assert_int_equal(commit->samples, 16);
    assert_int_equal(commit->applied, 1);
    assert_int_equal(commit->skips_in_row, 1);
    assert_true(seen(&f, EFFECT_STEP)->step.skipped);
    assert_int_equal(status(&f).skipped, 1);
    teardown(&f);
}

static void too_many_steps_that_are_not_finite_fail_the_run_by_name(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(5);
    start(&f, &run);
    for (uint64_t i = 0; i < 2; i++) {
        assert_int_equal(say_reduced(&f, 0, i, NAN), ERR_OK);
        assert_int_equal(say_reduced(&f, 1, i, 1), ERR_OK);
        if (i == 0)
            commit_all(&f, i);
    }
    assert_int_equal(status(&f).state, RUN_FAILED);
    assert_string_equal(status(&f).reason,
                        "step 1 is not finite, the 2. in a row (train.skip_max)");
    assert_int_equal(seen(&f, EFFECT_STORE_STATE)->state.state, RUN_FAILED);
    teardown(&f);
}

static void each_step_leaves_a_row(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(5);
    start(&f, &run);
    join(&f);
    f.now_ms += 7;
    reduce_all(&f, 0);
    const struct step_row *row = &seen(&f, EFFECT_STEP)->step;
    assert_int_equal(row->step, 0);
    assert_int_equal(row->samples, 8);
    assert_int_equal(row->workers, 1);
    assert_int_equal(row->duration_ms, 7);
    assert_true(row->metrics.loss == 0.5);
    teardown(&f);
}

/* ---- validation ---- */

static struct coordinator_run validated_run(void)
{
    struct coordinator_run run = run_of(4);
    run.node_slots = SLOTS;
    run.validate_every = 2;
    run.validation_samples = 5; /* three pieces of two, two and one */
    return run;
}

static void the_commit_waits_until_its_versions_validation_is_complete(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = validated_run();
    start(&f, &run);
    uint64_t worker = join(&f);
    step(&f, 0);
    step(&f, 1);
    assert_int_equal(ticket_of(&f, worker, 1).kind, TICKET_TRAIN);
    struct ticket pieces[3];
    for (uint32_t i = 0; i < 3; i++) {
        pieces[i] = ticket_of(&f, worker, 2 + i);
        assert_int_equal(pieces[i].kind, TICKET_VALIDATE);
        assert_int_equal(pieces[i].version, 2);
        assert_int_equal(pieces[i].node.index, i);
    }
    reduce_all(&f, 2);
    assert_null(command(&f, 0, SERVER_COMMIT));
    for (uint32_t i = 3; i-- > 0;) {
        assert_int_equal(complete(&f, worker, pieces[i], ERR_OK), ERR_OK);
        if (i > 0)
            assert_int_equal(complete(&f, worker, pieces[i], ERR_OK), ERR_OK); /* twice: no more */
    }
    const struct validation_row *row = &seen(&f, EFFECT_VALIDATION)->validation;
    assert_int_equal(row->version, 2);
    assert_int_equal(row->samples, 6);
    assert_true(row->loss == 60.0 / 6);
    assert_true(row->accuracy == 0.5);
    assert_non_null(command(&f, 0, SERVER_COMMIT));
    teardown(&f);
}

static void the_last_version_is_validated_before_the_run_ends(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = validated_run();
    run.steps = 1;
    start(&f, &run);
    uint64_t worker = join(&f);
    step(&f, 0);
    record_all(&f, 1);
    assert_int_equal(status(&f).state, RUN_TRAINING);
    for (uint32_t i = 0; i < 3; i++) {
        struct ticket piece = ticket_of(&f, worker, 1 + i);
        assert_int_equal(piece.version, 1);
        assert_int_equal(complete(&f, worker, piece, ERR_OK), ERR_OK);
    }
    assert_non_null(seen(&f, EFFECT_VALIDATION));
    assert_int_equal(status(&f).state, RUN_ENDED);
    teardown(&f);
}

static void a_validation_without_samples_is_malformed(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = validated_run();
    run.steps = 1;
    start(&f, &run);
    uint64_t worker = join(&f);
    step(&f, 0);
    struct complete_request request = {.member = worker, .ticket = ticket_of(&f, worker, 1)};
    assert_int_equal(coordinator_complete(f.coordinator, f.now_ms, &request), ERR_MALFORMED);
    teardown(&f);
}

/* ---- cuts ---- */

static void p9_a_cut_is_recorded_when_every_servers_manifest_is_there(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    run.cut_every = 2;
    start(&f, &run);
    reduce_all(&f, 0);
    assert_false(command(&f, 0, SERVER_COMMIT)->commit.cut);
    commit_all(&f, 0);
    reduce_all(&f, 1);
    assert_true(command(&f, 0, SERVER_COMMIT)->commit.cut);
    commit_all(&f, 1);
    assert_int_equal(say_manifest(&f, 1, 2, ERR_OK), ERR_OK);
    assert_int_equal(say_manifest(&f, 1, 2, ERR_OK), ERR_OK); /* twice is not both */
    assert_null(seen(&f, EFFECT_STORE_CUT));
    step(&f, 2); /* training goes on meanwhile */
    assert_int_equal(say_manifest(&f, 0, 2, ERR_OK), ERR_OK);
    const struct cut_record *cut = &f.stored;
    assert_int_equal(cut->name.version, 2);
    assert_int_equal(cut->counters.samples, 16); /* of version 2, not of now */
    assert_int_equal(cut->server_count, 2);
    assert_string_equal(cut->servers[1].name, "s1");
    assert_int_equal(cut->servers[1].digest[0], 2);
    assert_int_equal(command(&f, 0, SERVER_RECORDED)->recorded.version, 2);
    assert_true(place_of(&f, EFFECT_STORE_CUT) < place_of(&f, EFFECT_COMMAND));
    teardown(&f);
}

static void p9_an_older_cut_is_not_recorded_after_a_newer_one(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    run.cut_every = 1;
    start(&f, &run);
    step(&f, 0);
    step(&f, 1);
    record_all(&f, 2);
    assert_int_equal(status(&f).cut.version, 2);
    record_all(&f, 1);
    assert_null(seen(&f, EFFECT_STORE_CUT));
    assert_int_equal(status(&f).cut.version, 2);
    teardown(&f);
}

static void p9_a_run_ends_when_its_last_versions_cut_is_recorded(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(1);
    start(&f, &run);
    uint64_t worker = join(&f);
    reduce_all(&f, 0);
    assert_true(command(&f, 0, SERVER_COMMIT)->commit.cut);
    commit_all(&f, 0);
    assert_int_equal(acquire(&f, worker, 1, 5000), ERR_OK);
    assert_string_equal(status(&f).reason, "the last cut is being written");
    assert_int_equal(say_manifest(&f, 0, 1, ERR_OK), ERR_OK);
    assert_int_equal(status(&f).state, RUN_TRAINING);
    assert_int_equal(say_manifest(&f, 1, 1, ERR_OK), ERR_OK);
    assert_int_equal(status(&f).state, RUN_ENDED);
    assert_int_equal(answer(&f, worker).result, ACQUIRE_END);
    assert_int_equal(seen(&f, EFFECT_NOTICE)->notice.kind, NOTICE_RUN_OVER);
    assert_non_null(command(&f, 1, SERVER_END));
    assert_true(place_of(&f, EFFECT_STORE_CUT) < place_of(&f, EFFECT_STORE_STATE));
    assert_int_equal(acquire(&f, worker, 2, 5000), ERR_OK);
    assert_int_equal(answer(&f, worker).result, ACQUIRE_END);
    coordinator_member_lost(f.coordinator, f.now_ms, worker, "stream broke");
    look(&f);
    assert_int_equal(status(&f).members_lost, 0); /* it had nothing left to do here */
    teardown(&f);
}

static void a_member_whose_stream_is_younger_than_the_runs_end_is_told_as_well(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(1);
    start(&f, &run);
    uint64_t worker = join(&f);
    assert_int_equal(coordinator_heartbeat(f.coordinator, f.now_ms, worker), ERR_OK);
    look(&f);
    assert_null(seen(&f, EFFECT_NOTICE));
    step(&f, 0);
    record_all(&f, 1);
    assert_int_equal(status(&f).state, RUN_ENDED);
    assert_int_equal(coordinator_heartbeat(f.coordinator, f.now_ms, worker), ERR_OK);
    look(&f);
    assert_int_equal(seen(&f, EFFECT_NOTICE)->notice.kind, NOTICE_RUN_OVER);
    teardown(&f);
}

static void a_full_disk_is_said_and_training_goes_on(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    run.cut_every = 1;
    start(&f, &run);
    step(&f, 0);
    assert_int_equal(say_manifest(&f, 0, 1, ERR_NO_SPACE), ERR_OK);
    assert_string_equal(status(&f).cut_error,
                        "server s0 could not write the cut of version 1: no space left on device");
    step(&f, 1);
    assert_int_equal(status(&f).version, 2);
    record_all(&f, 2);
    assert_string_equal(status(&f).cut_error, "");
    teardown(&f);
}

static void a_cut_that_cannot_be_written_down_is_not_recorded(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    run.cut_every = 1;
    start(&f, &run);
    step(&f, 0);
    f.store = ERR_NO_SPACE;
    record_all(&f, 1);
    assert_int_equal(status(&f).cut.version, 0);
    assert_null(command(&f, 0, SERVER_RECORDED));
    assert_string_equal(
        status(&f).cut_error,
        "the coordinator could not write the cut of version 1: no space left on device");
    f.store = ERR_OK;
    step(&f, 1);
    record_all(&f, 2);
    assert_int_equal(status(&f).cut.version, 2);
    teardown(&f);
}

static void a_full_disk_at_the_end_fails_the_run_by_name(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(1);
    start(&f, &run);
    step(&f, 0);
    assert_int_equal(say_manifest(&f, 0, 1, ERR_NO_SPACE), ERR_OK);
    assert_int_equal(status(&f).state, RUN_FAILED);
    assert_non_null(strstr(status(&f).reason, "the newest recorded cut is of version 0"));
    teardown(&f);
}

static void an_operator_can_ask_for_a_cut(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    start(&f, &run);
    assert_int_equal(coordinator_checkpoint(f.coordinator), ERR_OK);
    reduce_all(&f, 0);
    assert_true(command(&f, 0, SERVER_COMMIT)->commit.cut);
    commit_all(&f, 0);
    reduce_all(&f, 1);
    assert_false(command(&f, 0, SERVER_COMMIT)->commit.cut);
    teardown(&f);
}

/* ---- losing servers ---- */

static void a_lost_server_pauses_the_run_by_name(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    start(&f, &run);
    uint64_t worker = join(&f);
    coordinator_server_lost(f.coordinator, f.now_ms, f.link[1]);
    look(&f);
    assert_string_equal(status(&f).reason, "server s1 is lost; waiting for it");
    assert_int_equal(acquire(&f, worker, 1, 5000), ERR_OK);
    assert_null(seen(&f, EFFECT_ANSWER));
    teardown(&f);
}

static void the_same_boot_goes_on_where_it_was(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    start(&f, &run);
    uint64_t worker = join(&f);
    reduce_all(&f, 0);
    assert_int_equal(say_committed(&f, 0, 0), ERR_OK);
    coordinator_server_lost(f.coordinator, f.now_ms, f.link[1]);
    look(&f);
    hello(&f, 1, f.generation);
    assert_int_equal(command(&f, 1, SERVER_COMMIT)->commit.step, 0); /* it may have missed it */
    assert_null(command(&f, 0, SERVER_COMMIT));
    assert_null(seen(&f, EFFECT_STORE_REWIND));
    assert_int_equal(ticket_of(&f, worker, 1).version, 1);
    teardown(&f);
}

/* Server 1 restarts; both are there afterwards, told to prepare. */
static void restart_server_1(struct fixture *f)
{
    coordinator_server_lost(f->coordinator, f->now_ms, f->link[1]);
    look(f);
    f->boot[1]++;
    hello(f, 1, 0);
}

static void p3_a_new_boot_means_a_new_generation_from_the_newest_cut(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    run.cut_every = 2;
    start(&f, &run);
    for (uint64_t i = 0; i < 3; i++)
        step(&f, i);
    record_all(&f, 2);
    restart_server_1(&f);
    const struct server_command *prepare = command(&f, 1, SERVER_PREPARE);
    assert_int_equal(prepare->boot, f.boot[1]);
    assert_int_equal(prepare->prepare.generation, f.generation + 1);
    assert_true(prepare->prepare.from_cut);
    assert_int_equal(prepare->prepare.cut.generation, f.generation);
    assert_int_equal(prepare->prepare.cut.version, 2);
    assert_non_null(command(&f, 0, SERVER_PREPARE));
    f.generation++;
    assert_int_equal(say_ready(&f, 0, 2), ERR_OK);
    assert_int_equal(say_ready(&f, 1, 2), ERR_OK);
    assert_int_equal(status(&f).version, 2);
    assert_int_equal(status(&f).counters.samples, 16);
    uint64_t worker = join(&f);
    assert_int_equal(ticket_of(&f, worker, 1).version, 2);
    step(&f, 2);
    assert_int_equal(status(&f).counters.samples, 24);
    teardown(&f);
}

static void p10_a_rewind_is_stored_before_it_is_acted_on(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    start(&f, &run);
    uint64_t worker = join(&f);
    ticket_of(&f, worker, 1);
    restart_server_1(&f);
    assert_int_equal(seen(&f, EFFECT_STORE_REWIND)->generation, f.generation + 1);
    assert_true(place_of(&f, EFFECT_STORE_REWIND) < place_of(&f, EFFECT_COMMAND));
    assert_true(place_of(&f, EFFECT_STORE_REWIND) < place_of(&f, EFFECT_EXPEL));
    assert_int_equal(seen(&f, EFFECT_EXPEL)->member, worker);
    teardown(&f);
}

static void p10_a_parked_question_of_the_old_generation_is_answered_so(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    run.node_slots = SLOTS;
    start(&f, &run);
    uint64_t a = join(&f), b = join(&f);
    ticket_of(&f, a, 1);
    assert_int_equal(acquire(&f, b, 1, 60000), ERR_OK);
    restart_server_1(&f);
    assert_int_equal(seen(&f, EFFECT_ANSWER)->answer.member, b);
    assert_int_equal(seen(&f, EFFECT_ANSWER)->answer.err, ERR_OLD_GENERATION);
    assert_int_equal(status(&f).members_lost, 0); /* they only join again */
    teardown(&f);
}

static void joining_again_after_a_rewind_is_neither_a_join_nor_a_loss(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    struct coordinator_member member;
    start(&f, &run);
    uint64_t a = join(&f), b = join(&f);
    struct ticket ticket = ticket_of(&f, a, 1);
    assert_int_equal(complete(&f, a, ticket, ERR_OK), ERR_OK);
    restart_server_1(&f);
    f.generation++;
    assert_int_equal(status(&f).member_count, 2);
    uint64_t again = join_again(&f, a);
    assert_int_not_equal(again, a);
    assert_int_equal(status(&f).member_count, 2);
    assert_int_equal(status(&f).members_joined, 2);
    assert_true(coordinator_member(f.coordinator, 1, &member));
    assert_int_equal(member.member, again);
    assert_true(member.slots_done > 0); /* in this membership and the one before */
    assert_int_equal(coordinator_heartbeat(f.coordinator, f.now_ms, a), ERR_UNKNOWN_MEMBER);
    /* The other one died with the server: its lease says so, by name. */
    f.now_ms += LEASE_MS - 1;
    assert_int_equal(coordinator_heartbeat(f.coordinator, f.now_ms, again), ERR_OK);
    tick(&f, 1);
    assert_int_equal(status(&f).members_lost, 1);
    assert_true(coordinator_member(f.coordinator, 1, &member));
    assert_int_equal(member.member, b);
    assert_string_equal(member.state, "timed out");
    assert_string_equal(member.reason, "silent for 1000 ms");
    teardown(&f);
}

static void joining_again_frees_what_the_membership_before_held(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    run.node_slots = SLOTS;
    start(&f, &run);
    uint64_t a = join(&f), b = join(&f);
    ticket_of(&f, a, 1);
    assert_int_equal(acquire(&f, b, 1, 60000), ERR_OK);
    join_again(&f, a); /* its end of the control stream broke before ours did */
    assert_int_equal(seen(&f, EFFECT_EXPEL)->member, a);
    assert_int_equal(answer(&f, b).result, ACQUIRE_TICKET);
    assert_int_equal(status(&f).members_lost, 0);
    join_again(&f, a); /* that is nobody any more */
    assert_int_equal(status(&f).members_joined, 3);
    teardown(&f);
}

static void members_of_another_run_are_forgotten(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    start(&f, &run);
    join(&f);
    assert_int_equal(coordinator_stop(f.coordinator, f.now_ms, "enough"), ERR_OK);
    tick(&f, STOP_MS);
    assert_int_equal(status(&f).state, RUN_STOPPED);
    run.run++;
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, NULL, NULL), ERR_OK);
    look(&f);
    assert_int_equal(status(&f).member_count, 0);
    assert_int_equal(status(&f).members_lost, 0);
    teardown(&f);
}

/* What a test knows of the workers that come and go: those that are there, and how many were.
 */
struct crowd {
    uint64_t members[32];
    uint64_t sequences[32];
    uint32_t count;
    uint64_t joined, lost;
};

static void crowd_forget(struct crowd *crowd, uint32_t i)
{
    crowd->count--;
    crowd->members[i] = crowd->members[crowd->count];
    crowd->sequences[i] = crowd->sequences[crowd->count];
}

/* One of them acquires, completes, goes in one of four ways, or comes back. */
static void crowd_moves(struct fixture *f, struct crowd *crowd, struct rand_state *random)
{
    uint32_t i = (uint32_t)rand_below(random, crowd->count);
    uint64_t member = crowd->members[i];
    switch (rand_below(random, 6)) {
    case 0:
        ignore(acquire(f, member, ++crowd->sequences[i], 1000)); /* it may hold too many */
        break;
    case 1:
        coordinator_member_lost(f->coordinator, f->now_ms, member, "control stream broke");
        crowd_forget(crowd, i);
        crowd->lost++;
        break;
    case 2:
        assert_int_equal(coordinator_leave(f->coordinator, f->now_ms, member, "told to"), ERR_OK);
        crowd_forget(crowd, i);
        break;
    case 3:
        assert_int_equal(coordinator_leave(f->coordinator, f->now_ms, member, "preempted: aws"),
                         ERR_OK);
        crowd_forget(crowd, i);
        break;
    default:
        crowd->members[i] = join_again(f, member);
        crowd->sequences[i] = 0;
        break;
    }
    look(f);
}

static void workers_come_and_go_by_the_thousand_and_nobody_else_notices(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    struct rand_state random = {7};
    struct crowd crowd = {0};
    start(&f, &run);
    uint64_t steady = join(&f);
    struct coordinator_member member;
    for (int i = 0; i < 20000; i++) {
        while (crowd.count == 0 || (crowd.count < 32 && rand_below(&random, 3) == 0)) {
            crowd.sequences[crowd.count] = 0;
            crowd.members[crowd.count++] = join(&f);
            crowd.joined++;
        }
        crowd_moves(&f, &crowd, &random);
        assert_int_equal(coordinator_heartbeat(f.coordinator, f.now_ms, steady), ERR_OK);
        if (i % 1000 == 999) { /* all but one fall silent */
            f.now_ms += LEASE_MS - 1;
            assert_int_equal(coordinator_heartbeat(f.coordinator, f.now_ms, steady), ERR_OK);
            tick(&f, 1);
            crowd.lost += crowd.count;
            crowd.count = 0;
        }
        assert_int_equal(status(&f).member_count, crowd.count + 1);
        assert_int_equal(status(&f).members_joined, crowd.joined + 1);
        assert_int_equal(status(&f).members_lost, crowd.lost);
    }
    assert_true(crowd.joined > 5000);
    assert_true(coordinator_member(f.coordinator, 0, &member));
    assert_int_equal(member.member, steady);
    ticket_of(&f, steady, 1);
    teardown(&f);
}

static void p9_manifests_of_before_a_rewind_do_not_count(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    run.cut_every = 1;
    start(&f, &run);
    step(&f, 0);
    assert_int_equal(say_manifest(&f, 0, 1, ERR_OK), ERR_OK);
    restart_server_1(&f);
    assert_int_equal(say_manifest(&f, 1, 1, ERR_OK), ERR_OLD_GENERATION);
    assert_int_equal(status(&f).cut.version, 0);
    teardown(&f);
}

static void both_servers_lost_wait_for_both(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    start(&f, &run);
    coordinator_server_lost(f.coordinator, f.now_ms, f.link[0]);
    restart_server_1(&f);
    assert_null(seen(&f, EFFECT_STORE_REWIND));
    f.boot[0] += 7;
    hello(&f, 0, 0);
    assert_int_equal(command(&f, 0, SERVER_PREPARE)->boot, f.boot[0]);
    assert_int_equal(command(&f, 1, SERVER_PREPARE)->boot, f.boot[1]);
    teardown(&f);
}

static void a_server_that_restarts_while_it_prepares_prepares_again(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    setup(&f);
    hello(&f, 0, 0);
    hello(&f, 1, 0);
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, NULL, NULL), ERR_OK);
    look(&f);
    f.generation = status(&f).generation;
    assert_int_equal(say_ready(&f, 0, 0), ERR_OK);
    restart_server_1(&f);
    assert_int_equal(status(&f).generation, f.generation + 1);
    assert_false(command(&f, 1, SERVER_PREPARE)->prepare.from_cut);
    teardown(&f);
}

static void a_server_that_lost_the_run_without_a_new_boot_rewinds_too(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    start(&f, &run);
    coordinator_server_lost(f.coordinator, f.now_ms, f.link[1]);
    look(&f);
    hello(&f, 1, 0);
    assert_non_null(seen(&f, EFFECT_STORE_REWIND));
    teardown(&f);
}

static void a_prepare_that_may_be_lost_is_said_again(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    setup(&f);
    hello(&f, 0, 0);
    hello(&f, 1, 0);
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, NULL, NULL), ERR_OK);
    look(&f);
    uint64_t generation = status(&f).generation;
    coordinator_server_lost(f.coordinator, f.now_ms, f.link[1]);
    look(&f);
    hello(&f, 1, 0);
    assert_int_equal(command(&f, 1, SERVER_PREPARE)->prepare.generation, generation);
    teardown(&f);
}

/* ---- a successor ---- */

static struct coordinator_past past_of(uint64_t generation, struct cut_name cut)
{
    struct coordinator_past past = {.generation = generation, .has_fingerprint = true};
    past.fingerprint[0] = 5;
    past.cut.name = cut;
    past.cut.counters = (struct seal_counters){.samples = 8 * cut.version, .applied = cut.version};
    return past;
}

static void p7_a_new_coordinator_rewinds_before_it_decides(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    struct coordinator_past past = past_of(4, (struct cut_name){3, 6});
    setup(&f);
    hello(&f, 0, 4); /* both still hold the old generation */
    hello(&f, 1, 4);
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, &past, NULL), ERR_OK);
    look(&f);
    assert_int_equal(seen(&f, EFFECT_STORE_REWIND)->generation, 5);
    assert_int_equal(command(&f, 0, SERVER_PREPARE)->prepare.cut.version, 6);
    f.generation = 5;
    assert_int_equal(say_ready(&f, 0, 6), ERR_OK);
    assert_int_equal(say_ready(&f, 1, 6), ERR_OK);
    step(&f, 6);
    assert_int_equal(status(&f).counters.samples, 8 * 7);
    teardown(&f);
}

static void a_stored_fingerprint_is_still_demanded(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    struct coordinator_past past = past_of(4, (struct cut_name){3, 6});
    struct join_request request = join_request();
    struct join_reply reply;
    setup(&f);
    hello(&f, 0, 0);
    hello(&f, 1, 0);
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, &past, NULL), ERR_OK);
    request.fingerprint[0] = 77;
    assert_int_equal(coordinator_join(f.coordinator, f.now_ms, &request, &reply, NULL),
                     ERR_FINGERPRINT);
    teardown(&f);
}

static void a_generation_is_above_all_that_any_server_ever_held(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    setup(&f);
    hello(&f, 0, 41); /* of a cluster whose store was lost */
    hello(&f, 1, 0);
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, NULL, NULL), ERR_OK);
    look(&f);
    assert_int_equal(command(&f, 0, SERVER_PREPARE)->prepare.generation, 42);
    teardown(&f);
}

static void a_run_that_had_ended_ends_again_when_it_is_continued(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(6);
    struct coordinator_past past = past_of(4, (struct cut_name){3, 6});
    setup(&f);
    hello(&f, 0, 0);
    hello(&f, 1, 0);
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, &past, NULL), ERR_OK);
    look(&f);
    f.generation = 5;
    assert_int_equal(say_ready(&f, 0, 6), ERR_OK);
    assert_int_equal(say_ready(&f, 1, 6), ERR_OK);
    assert_int_equal(status(&f).state, RUN_ENDED);
    teardown(&f);
}

static void a_server_without_a_run_is_told_that_there_is_nothing_to_hold(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    hello(&f, 0, 7); /* it missed the end */
    assert_non_null(command(&f, 0, SERVER_END));
    hello(&f, 1, 0);
    assert_non_null(command(&f, 1, SERVER_END));
    teardown(&f);
}

/* ---- stopping ---- */

static void a_stop_finishes_the_step_in_flight_and_cuts(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    start(&f, &run);
    uint64_t worker = join(&f);
    ticket_of(&f, worker, 1);
    assert_int_equal(coordinator_checkpoint(f.coordinator), ERR_OK);
    step(&f, 0);
    record_all(&f, 1);
    step(&f, 1);
    assert_int_equal(coordinator_stop(f.coordinator, f.now_ms, "operator"), ERR_OK);
    look(&f);
    assert_int_equal(ticket_of(&f, worker, 2).step, 2); /* it is still computed */
    reduce_all(&f, 2);
    assert_true(command(&f, 0, SERVER_COMMIT)->commit.cut);
    commit_all(&f, 2);
    assert_int_equal(acquire(&f, worker, 3, 5000), ERR_OK);
    assert_null(seen(&f, EFFECT_ANSWER)); /* nothing of step 3 is granted */
    record_all(&f, 3);
    assert_int_equal(status(&f).state, RUN_STOPPED);
    assert_string_equal(status(&f).reason, "operator");
    assert_int_equal(status(&f).cut.version, 3);
    assert_int_equal(answer(&f, worker).result, ACQUIRE_END);
    teardown(&f);
}

static void a_pause_cuts_and_leaves_the_run_to_a_successor(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    start(&f, &run);
    uint64_t worker = join(&f);
    step(&f, 0);
    assert_int_equal(coordinator_pause(f.coordinator, f.now_ms, "reboot"), ERR_OK);
    look(&f);
    assert_false(status(&f).paused); /* the step in flight comes first */
    assert_int_equal(ticket_of(&f, worker, 1).step, 1);
    reduce_all(&f, 1);
    assert_true(command(&f, 0, SERVER_COMMIT)->commit.cut);
    commit_all(&f, 1);
    assert_int_equal(acquire(&f, worker, 2, 5000), ERR_OK);
    record_all(&f, 2);
    assert_true(status(&f).paused);
    assert_int_equal(status(&f).state, RUN_TRAINING);
    assert_int_equal(status(&f).cut.version, 2);
    assert_null(seen(&f, EFFECT_STORE_STATE));
    assert_null(seen(&f, EFFECT_NOTICE));
    assert_null(seen(&f, EFFECT_ANSWER));
    assert_null(command(&f, 0, SERVER_END));
    assert_int_equal(coordinator_pause(f.coordinator, f.now_ms, "reboot"), ERR_NO_RUN);
    /* Who asks before the daemon has ended is told no end: it looks for the successor. */
    assert_int_equal(acquire(&f, worker, 3, 5000), ERR_OK);
    assert_null(seen(&f, EFFECT_ANSWER));
    assert_int_equal(coordinator_heartbeat(f.coordinator, f.now_ms, worker), ERR_OK);
    look(&f);
    assert_null(seen(&f, EFFECT_NOTICE));
    teardown(&f);
}

static void a_pause_does_not_wait_for_ever(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    start(&f, &run);
    step(&f, 0);
    assert_int_equal(coordinator_pause(f.coordinator, f.now_ms, "reboot"), ERR_OK);
    look(&f);
    assert_false(status(&f).paused);
    tick(&f, STOP_MS);
    assert_true(status(&f).paused);
    assert_null(seen(&f, EFFECT_STORE_STATE));
    teardown(&f);
}

static void a_stop_on_a_cut_needs_no_further_step(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    start(&f, &run);
    assert_int_equal(coordinator_stop(f.coordinator, f.now_ms, "operator"), ERR_OK);
    look(&f);
    assert_int_equal(status(&f).state, RUN_STOPPED);
    assert_int_equal(status(&f).cut.version, 0);
    teardown(&f);
}

static void a_stop_drops_a_step_that_nobody_finishes(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    start(&f, &run);
    step(&f, 0);
    assert_int_equal(coordinator_stop(f.coordinator, f.now_ms, "operator"), ERR_OK);
    look(&f);
    assert_int_equal(status(&f).state, RUN_TRAINING);
    assert_true(coordinator_next_ms(f.coordinator) <= f.now_ms + STOP_MS);
    tick(&f, STOP_MS);
    assert_int_equal(status(&f).state, RUN_STOPPED);
    assert_string_equal(status(&f).reason,
                        "operator; version 1 is dropped, the newest cut is of version 0");
    teardown(&f);
}

static void a_stop_says_what_a_lost_server_took_along(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    start(&f, &run);
    step(&f, 0);
    for (uint32_t i = 0; i < SERVERS; i++)
        coordinator_server_lost(f.coordinator, f.now_ms, f.link[i]);
    f.boot[0]++;
    hello(&f, 0, 0);
    look(&f);
    assert_int_equal(coordinator_stop(f.coordinator, f.now_ms, "operator"), ERR_OK);
    look(&f);
    assert_int_equal(status(&f).state, RUN_STOPPED);
    assert_string_equal(status(&f).reason,
                        "operator; version 1 is dropped, the newest cut is of version 0");
    teardown(&f);
}

static void a_stop_does_not_wait_for_validation(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = validated_run();
    start(&f, &run);
    step(&f, 0);
    step(&f, 1);
    assert_int_equal(coordinator_stop(f.coordinator, f.now_ms, "operator"), ERR_OK);
    look(&f);
    reduce_all(&f, 2);
    assert_true(command(&f, 0, SERVER_COMMIT)->commit.cut);
    commit_all(&f, 2);
    record_all(&f, 3);
    assert_int_equal(status(&f).state, RUN_STOPPED);
    teardown(&f);
}

static void a_stop_before_the_first_step_is_immediate(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    setup(&f);
    assert_int_equal(coordinator_stop(f.coordinator, f.now_ms, "operator"), ERR_NO_RUN);
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, NULL, NULL), ERR_OK);
    assert_int_equal(coordinator_stop(f.coordinator, f.now_ms, "operator"), ERR_OK);
    look(&f);
    assert_int_equal(status(&f).state, RUN_STOPPED);
    teardown(&f);
}

static void after_one_run_another_can_start_under_a_higher_generation(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    start(&f, &run);
    uint64_t first = f.generation;
    assert_int_equal(coordinator_stop(f.coordinator, f.now_ms, "operator"), ERR_OK);
    look(&f);
    struct coordinator_past past = {.generation = first};
    run.run = 2;
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, &past, NULL), ERR_OK);
    look(&f);
    assert_int_equal(command(&f, 0, SERVER_PREPARE)->prepare.generation, first + 1);
    assert_int_equal(command(&f, 0, SERVER_PREPARE)->prepare.run, 2);
    assert_false(command(&f, 0, SERVER_PREPARE)->prepare.from_cut);
    teardown(&f);
}

static uint64_t join_named(struct fixture *f, const char *name)
{
    struct join_request request = join_request();
    struct join_reply reply;
    snprintf(request.name, sizeof request.name, "%s", name);
    assert_int_equal(coordinator_join(f->coordinator, f->now_ms, &request, &reply, NULL), ERR_OK);
    look(f);
    return reply.member;
}

/* Server 0 says that they computed different bits. */
static void differ(struct fixture *f, uint64_t member, uint64_t first)
{
    struct server_report wrong = {.kind = SERVER_WRONG_BITS};
    wrong.wrong_bits.member = member;
    wrong.wrong_bits.first_member = first;
    wrong.wrong_bits.step = 7;
    wrong.wrong_bits.chunk = 3;
    assert_int_equal(report(f, 0, wrong), ERR_OK);
}

static struct coordinator_member member_at(const struct fixture *f, uint32_t i)
{
    struct coordinator_member member;
    assert_true(coordinator_member(f->coordinator, i, &member));
    return member;
}

static void two_that_differ_are_both_named(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    start(&f, &run);
    uint64_t a = join_named(&f, "a"), b = join_named(&f, "b");
    differ(&f, b, a);
    assert_non_null(strstr(seen(&f, EFFECT_LOG)->log.text, "worker=\"b\" counted=\"a\""));
    differ(&f, a, b);
    assert_null(seen(&f, EFFECT_LOG)); /* no news */
    assert_string_equal(member_at(&f, 0).reason,
                        "other bits than worker b: step 7 chunk 3; one of the two is wrong");
    assert_string_equal(member_at(&f, 1).reason,
                        "other bits than worker a: step 7 chunk 3; one of the two is wrong");
    assert_int_equal(member_at(&f, 0).wrong_bits, 2);
    assert_string_equal(member_at(&f, 0).state, "joined");
    assert_int_equal(status(&f).member_count, 2);
    teardown(&f);
}

static void who_is_contradicted_by_two_computes_wrongly_and_is_no_member_any_more(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    struct join_request request = join_request();
    struct join_reply reply;
    start(&f, &run);
    uint64_t a = join_named(&f, "a"), b = join_named(&f, "b"), c = join_named(&f, "c");
    differ(&f, a, b);
    a = join_again(&f, a); /* neither side forgets */
    coordinator_member_lost(f.coordinator, f.now_ms, b, "control stream broke");
    b = join_named(&f, "b");
    differ(&f, b, a); /* no second opinion: it is the same worker */
    assert_int_equal(status(&f).member_count, 3);
    differ(&f, a, c);
    assert_int_equal(seen(&f, EFFECT_EXPEL)->member, a);
    assert_int_equal(status(&f).member_count, 2);
    assert_string_equal(member_at(&f, 0).reason, ""); /* the others are cleared */
    assert_string_equal(member_at(&f, 1).reason, "");
    assert_string_equal(member_at(&f, 2).state, "wrong bits");
    assert_string_equal(member_at(&f, 2).reason, "other bits than workers b and c");
    differ(&f, c, a); /* a report that was under way */
    assert_string_equal(member_at(&f, 1).reason, "");
    request.previous_member = a;
    assert_int_equal(coordinator_join(f.coordinator, f.now_ms, &request, &reply, NULL),
                     ERR_WRONG_BITS);
    look(&f);
    assert_int_equal(status(&f).member_count, 2);
    teardown(&f);
}

static void with_more_than_one_that_is_wrong_nobody_is_judged(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    start(&f, &run);
    uint64_t a = join_named(&f, "a"), b = join_named(&f, "b"), c = join_named(&f, "c"),
             d = join_named(&f, "d");
    differ(&f, a, b);
    differ(&f, c, d);
    differ(&f, a, c);
    assert_int_equal(status(&f).member_count, 4);
    differ(&f, b, UINT64_C(77)); /* nor by somebody whom nobody remembers */
    assert_int_equal(status(&f).member_count, 4);
    teardown(&f);
}

static void other_bits_are_no_fault_where_any_numerics_may_join(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    run.numerics_any = true;
    start(&f, &run);
    uint64_t a = join_named(&f, "a"), b = join_named(&f, "b"), c = join_named(&f, "c");
    differ(&f, a, b);
    differ(&f, a, c);
    assert_int_equal(status(&f).member_count, 3);
    assert_int_equal(member_at(&f, 0).wrong_bits, 0);
    teardown(&f);
}

static void statistics_are_kept(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_run run = run_of(9);
    struct coordinator_server server;
    start(&f, &run);
    struct server_report statistics = {.kind = SERVER_STATISTICS};
    statistics.statistics.duplicates = 3;
    assert_int_equal(report(&f, 1, statistics), ERR_OK);
    assert_true(coordinator_map_server(f.coordinator, 1, &server));
    assert_int_equal(server.duplicates, 3);
    assert_int_equal(server.chunk_count, 1);
    assert_int_equal(coordinator_map(f.coordinator)->range_count, 2);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_waits_for_its_servers_and_says_so),
        cmocka_unit_test(one_run_at_a_time),
        cmocka_unit_test(a_resume_replaces_what_a_successor_began_by_itself_until_the_first_commit),
        cmocka_unit_test(a_run_that_cannot_be_is_refused_by_name),
        cmocka_unit_test(p3_commands_name_the_boot_they_are_for),
        cmocka_unit_test(p9_version_0_is_a_recorded_cut_before_the_first_grant),
        cmocka_unit_test(a_full_disk_at_the_first_cut_fails_the_run_by_name),
        cmocka_unit_test(a_server_that_cannot_prepare_fails_the_run_by_name),
        cmocka_unit_test(the_first_workers_fingerprint_is_the_runs_and_stored),
        cmocka_unit_test(nobody_joins_while_there_is_no_run),
        cmocka_unit_test(a_broken_control_stream_frees_the_tickets_at_once),
        cmocka_unit_test(a_silent_member_is_lost_when_its_lease_lapses),
        cmocka_unit_test(who_leaves_says_why),
        cmocka_unit_test(p1_acquire_asked_again_returns_the_lease_already_given),
        cmocka_unit_test(p1_complete_says_nothing_about_the_step),
        cmocka_unit_test(a_step_is_committed_by_its_seals_though_no_worker_said_complete),
        cmocka_unit_test(a_dropped_ticket_is_granted_again),
        cmocka_unit_test(a_parked_question_is_answered_when_its_time_is_over),
        cmocka_unit_test(tickets_of_the_next_version_wake_who_waits),
        cmocka_unit_test(an_idle_worker_is_woken_when_a_ticket_is_overdue),
        cmocka_unit_test(a_ticket_that_never_was_is_malformed),
        cmocka_unit_test(a_member_holds_only_so_many_tickets),
        cmocka_unit_test(pushes_that_never_came_are_asked_for_again),
        cmocka_unit_test(p2_reports_of_another_generation_are_refused),
        cmocka_unit_test(p2_a_complete_and_an_acquire_of_another_generation_are_refused),
        cmocka_unit_test(p3_a_report_of_an_earlier_boot_is_refused),
        cmocka_unit_test(a_report_over_a_dead_link_is_not_heard),
        cmocka_unit_test(a_seal_of_a_chunk_on_another_server_is_malformed),
        cmocka_unit_test(p6_the_next_commit_waits_until_every_server_acknowledged_the_last),
        cmocka_unit_test(with_a_delay_steps_overlap_on_versions_that_are_there),
        cmocka_unit_test(with_a_delay_a_later_step_may_be_reduced_first),
        cmocka_unit_test(with_a_delay_a_rewind_forgets_what_later_steps_had),
        cmocka_unit_test(async_grants_as_far_as_the_window_and_one_step_ahead_of_commits),
        cmocka_unit_test(p12_a_complete_that_names_an_older_boot_does_not_count),
        cmocka_unit_test(p12_a_new_boot_begins_alone_and_what_it_lost_is_granted_again),
        cmocka_unit_test(p12_tickets_of_steps_that_are_committed_are_granted_again_too),
        cmocka_unit_test(p12_what_a_lost_boot_said_was_reduced_is_forgotten),
        cmocka_unit_test(p12_a_new_generation_knows_what_all_servers_have),
        cmocka_unit_test(p12_a_successor_waits_for_the_servers_of_the_cut),
        cmocka_unit_test(p12_who_lost_its_memory_writes_no_second_file_of_a_cut),
        cmocka_unit_test(async_words_that_shards_do_not_bear_out_are_doubted),
        cmocka_unit_test(async_a_run_ends_with_its_last_cut_and_rewinds_when_that_is_lost),
        cmocka_unit_test(async_a_bitmap_of_no_such_run_is_malformed),
        cmocka_unit_test(ssp_says_what_a_step_was_computed_on_before_its_commit),
        cmocka_unit_test(a_report_said_twice_decides_once),
        cmocka_unit_test(p8_a_commit_carries_the_counters),
        cmocka_unit_test(too_many_steps_that_are_not_finite_fail_the_run_by_name),
        cmocka_unit_test(each_step_leaves_a_row),
        cmocka_unit_test(the_commit_waits_until_its_versions_validation_is_complete),
        cmocka_unit_test(the_last_version_is_validated_before_the_run_ends),
        cmocka_unit_test(a_validation_without_samples_is_malformed),
        cmocka_unit_test(p9_a_cut_is_recorded_when_every_servers_manifest_is_there),
        cmocka_unit_test(p9_an_older_cut_is_not_recorded_after_a_newer_one),
        cmocka_unit_test(p9_a_run_ends_when_its_last_versions_cut_is_recorded),
        cmocka_unit_test(a_member_whose_stream_is_younger_than_the_runs_end_is_told_as_well),
        cmocka_unit_test(a_full_disk_is_said_and_training_goes_on),
        cmocka_unit_test(a_cut_that_cannot_be_written_down_is_not_recorded),
        cmocka_unit_test(a_full_disk_at_the_end_fails_the_run_by_name),
        cmocka_unit_test(an_operator_can_ask_for_a_cut),
        cmocka_unit_test(a_lost_server_pauses_the_run_by_name),
        cmocka_unit_test(the_same_boot_goes_on_where_it_was),
        cmocka_unit_test(p3_a_new_boot_means_a_new_generation_from_the_newest_cut),
        cmocka_unit_test(p10_a_rewind_is_stored_before_it_is_acted_on),
        cmocka_unit_test(p10_a_parked_question_of_the_old_generation_is_answered_so),
        cmocka_unit_test(joining_again_after_a_rewind_is_neither_a_join_nor_a_loss),
        cmocka_unit_test(joining_again_frees_what_the_membership_before_held),
        cmocka_unit_test(members_of_another_run_are_forgotten),
        cmocka_unit_test(workers_come_and_go_by_the_thousand_and_nobody_else_notices),
        cmocka_unit_test(p9_manifests_of_before_a_rewind_do_not_count),
        cmocka_unit_test(both_servers_lost_wait_for_both),
        cmocka_unit_test(a_server_that_restarts_while_it_prepares_prepares_again),
        cmocka_unit_test(a_server_that_lost_the_run_without_a_new_boot_rewinds_too),
        cmocka_unit_test(a_prepare_that_may_be_lost_is_said_again),
        cmocka_unit_test(p7_a_new_coordinator_rewinds_before_it_decides),
        cmocka_unit_test(a_stored_fingerprint_is_still_demanded),
        cmocka_unit_test(a_generation_is_above_all_that_any_server_ever_held),
        cmocka_unit_test(a_run_that_had_ended_ends_again_when_it_is_continued),
        cmocka_unit_test(a_server_without_a_run_is_told_that_there_is_nothing_to_hold),
        cmocka_unit_test(a_stop_finishes_the_step_in_flight_and_cuts),
        cmocka_unit_test(a_pause_cuts_and_leaves_the_run_to_a_successor),
        cmocka_unit_test(a_pause_does_not_wait_for_ever),
        cmocka_unit_test(a_stop_on_a_cut_needs_no_further_step),
        cmocka_unit_test(a_stop_drops_a_step_that_nobody_finishes),
        cmocka_unit_test(a_stop_says_what_a_lost_server_took_along),
        cmocka_unit_test(a_stop_does_not_wait_for_validation),
        cmocka_unit_test(a_stop_before_the_first_step_is_immediate),
        cmocka_unit_test(after_one_run_another_can_start_under_a_higher_generation),
        cmocka_unit_test(two_that_differ_are_both_named),
        cmocka_unit_test(who_is_contradicted_by_two_computes_wrongly_and_is_no_member_any_more),
        cmocka_unit_test(with_more_than_one_that_is_wrong_nobody_is_judged),
        cmocka_unit_test(other_bits_are_no_fault_where_any_numerics_may_join),
        cmocka_unit_test(statistics_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
