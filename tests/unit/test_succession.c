/* A coordinator that follows a dead one: when it goes on in the same generation, and with what (P7,
 * P8); when it rewinds. */
#include "tests/unit/unit.h"

#include "server/coordinator/coordinator.h"
#include "server/member/holdings.h"

#include <string.h>

enum { SERVERS = 3, LEASE_MS = 1000, GENERATION = 4, EFFECTS_SEEN_MAX = 64 };

/* Three servers with a chunk each; the run's cut is of version 2, its log goes up to version 6. */
struct succession_fixture {
    struct coordinator *coordinator;
    uint64_t now_ms;
    uint64_t link[SERVERS];
    struct coordinator_past past;
    struct coordinator_run run;
    size_t count;
    struct effect seen[EFFECTS_SEEN_MAX];
};

static const struct map_parameter parameters[] = {
    {0, 1, 400, 400}, {1, 1, 400, 400}, {2, 1, 400, 400}};

static void succession_set_up(struct succession_fixture *f)
{
    *f = (struct succession_fixture){
        .now_ms = 1000,
        .past = {.generation = GENERATION,
                 .cut = {.name = {GENERATION, 2}, .counters = {16, 2, 0}, .server_count = SERVERS},
                 .recorded = 6},
        .run = {.run = 7,
                .steps = 10,
                .servers_min = 1,
                .slots = 4,
                .slot_samples = 2,
                .node_slots = 1,
                .seal = {.schedule = {.kind = SPEC_CONSTANT, .lr = 1, .step_samples = 8},
                         .sample_predictions = 1},
                .parameter_count = SERVERS,
                .parameters = parameters,
                .parameter_bytes_max = 1 << 20,
                .spec = "train: {}",
                .checkpoint_dir = "checkpoints"},
    };
    for (uint32_t i = 0; i < SERVERS; i++)
        snprintf(f->past.cut.servers[i].name, sizeof f->past.cut.servers[i].name, "s%u", i);
    f->coordinator = coordinator_new(&(struct coordinator_settings){
        .term = 3, .heartbeat_ms = 100, .lease_ms = LEASE_MS, .stop_ms = 500});
    assert_non_null(f->coordinator);
}

static void look(struct succession_fixture *f)
{
    size_t count;
    coordinator_check(f->coordinator);
    const struct effect *effects = coordinator_effects(f->coordinator, &count);
    assert_true(count <= EFFECTS_SEEN_MAX);
    memcpy(f->seen, effects, count * sizeof *effects);
    f->count = count;
    coordinator_effects_clear(f->coordinator);
}

static void start(struct succession_fixture *f)
{
    assert_int_equal(coordinator_start(f->coordinator, f->now_ms, &f->run, &f->past, NULL), ERR_OK);
    look(f);
}

static void succession_tear_down(struct succession_fixture *f)
{
    coordinator_free(f->coordinator);
}

static const struct effect *seen(const struct succession_fixture *f, enum effect_kind kind)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->seen[i].kind == kind)
            return &f->seen[i];
    return NULL;
}

static const struct server_command *command(const struct succession_fixture *f, uint32_t i,
                                            enum server_command_kind kind)
{
    for (size_t k = 0; k < f->count; k++)
        if (f->seen[k].kind == EFFECT_COMMAND && f->seen[k].command.link == f->link[i] &&
            f->seen[k].command.command.kind == kind)
            return &f->seen[k].command.command;
    return NULL;
}

static struct coordinator_status status(const struct succession_fixture *f)
{
    struct coordinator_status result;
    coordinator_status(f->coordinator, &result);
    return result;
}

static void hello(struct succession_fixture *f, uint32_t i, uint64_t held_generation)
{
    struct server_report report = {.kind = SERVER_HELLO, .boot = 10 + i};
    snprintf(report.hello.name, sizeof report.hello.name, "s%u", i);
    report.hello.generation = held_generation;
    assert_int_equal(
        coordinator_server_hello(f->coordinator, f->now_ms, &report, &f->link[i], NULL), ERR_OK);
    look(f);
}

static enum err report(struct succession_fixture *f, uint32_t i, struct server_report report)
{
    report.boot = 10 + i;
    enum err err = coordinator_server_report(f->coordinator, f->now_ms, f->link[i], &report);
    look(f);
    return err;
}

static struct commit decision_of(uint64_t step)
{
    return (struct commit){.generation = GENERATION,
                           .term = 2,
                           .step = step,
                           .apply = true,
                           .cut = step == 4,
                           .scale = 0.5F,
                           .lr = 1,
                           .samples = 8 * (step + 1),
                           .applied = step,
                           .skips_in_row = 1};
}

/* Chunk i of server i; version 3 stands for no decision since the generation began. */
static const struct chunk_range ranges[SERVERS] = {{0, 1, 0}, {1, 1, 1}, {2, 1, 2}};

static struct server_held held_of(const struct succession_fixture *f, uint32_t i, uint64_t version)
{
    return (struct server_held){.run = 7,
                                .generation = GENERATION,
                                .version = 2,
                                .spec = holdings_spec(f->run.spec, f->run.checkpoint_dir),
                                .range_count = 1,
                                .ranges = &ranges[i],
                                .has_decision = version > 2,
                                .decision = decision_of(version > 2 ? version - 1 : 0)};
}

static enum err say_held(struct succession_fixture *f, uint32_t i, struct server_held held)
{
    return report(f, i, (struct server_report){.kind = SERVER_HELD, .held = held});
}

static void say_held_all(struct succession_fixture *f, uint64_t version)
{
    for (uint32_t i = 0; i < SERVERS; i++)
        assert_int_equal(say_held(f, i, held_of(f, i, version)), ERR_OK);
}

/* All are connected and asked. */
static void ask_all(struct succession_fixture *f)
{
    start(f);
    for (uint32_t i = 0; i < SERVERS; i++) {
        hello(f, i, GENERATION);
        assert_non_null(command(f, i, SERVER_ASK));
        assert_int_equal(command(f, i, SERVER_ASK)->term, 3);
    }
}

static bool has_rewound(const struct succession_fixture *f)
{
    return seen(f, EFFECT_STORE_REWIND) != NULL;
}

TEST_F(p7_a_step_that_all_know_of_is_gone_on_from_in_the_same_generation, succession)
{
    ask_all(f);
    say_held_all(f, 5);
    assert_non_null(seen(f, EFFECT_ADOPT));
    assert_int_equal(seen(f, EFFECT_ADOPT)->adopted.generation, GENERATION);
    assert_int_equal(seen(f, EFFECT_ADOPT)->adopted.version, 5);
    assert_false(has_rewound(f));
    assert_int_equal(status(f).generation, GENERATION);
    assert_int_equal(status(f).version, 5);
    assert_int_equal(status(f).state, RUN_TRAINING);
}

/* P8: not those of the cut. */
TEST_F(p8_the_counters_are_those_of_the_decision, succession)
{
    ask_all(f);
    say_held_all(f, 5);
    assert_int_equal(status(f).counters.samples, 40);
    assert_int_equal(status(f).counters.applied, 4);
    assert_int_equal(status(f).counters.skips_in_row, 1);
}

TEST_F(p8_counters_that_cannot_be_are_not_gone_on_with, succession)
{
    ask_all(f);
    for (uint32_t i = 0; i < SERVERS; i++) {
        struct server_held impossible = held_of(f, i, 5);
        impossible.decision.applied = 6; /* of five steps */
        assert_int_equal(say_held(f, i, impossible), ERR_OK);
    }
    assert_null(seen(f, EFFECT_ADOPT));
    assert_true(has_rewound(f));
}

/* P7: whoever has the newest. */
TEST_F(p7_a_decision_that_one_has_is_repeated_to_all_without_its_cut, succession)
{
    ask_all(f);
    assert_int_equal(say_held(f, 0, held_of(f, 0, 4)), ERR_OK);
    assert_int_equal(say_held(f, 1, held_of(f, 1, 5)), ERR_OK);
    assert_null(seen(f, EFFECT_ADOPT));
    assert_int_equal(say_held(f, 2, held_of(f, 2, 4)), ERR_OK);
    assert_int_equal(status(f).version, 5);
    struct commit wanted = decision_of(4);
    for (uint32_t i = 0; i < SERVERS; i++) {
        const struct server_command *again = command(f, i, SERVER_COMMIT);
        assert_non_null(again);
        assert_true(seal_same_decision(&again->commit, &wanted));
        assert_int_equal(again->term, 3);
        assert_int_equal(again->commit.term, 3);
        assert_false(again->commit.cut);            /* one may have begun it: nobody else could */
        assert_non_null(command(f, i, SERVER_ASK)); /* what is reduced is said again */
    }
}

/* P6: nothing is decided before all have carried out what is adopted; the cut comes with it. */
TEST_F(p6_a_successors_next_commit_waits_for_all_and_is_a_cut, succession)
{
    ask_all(f);
    say_held_all(f, 5);
    for (uint32_t i = 0; i < SERVERS; i++) {
        struct server_report reduced = {.kind = SERVER_REDUCED};
        struct chunk_seal seal = {i, true, 1};
        reduced.reduced = (struct reduced){GENERATION, 5, 1, &seal, i == 2, 8, 8, 0};
        assert_int_equal(report(f, i, reduced), ERR_OK);
        assert_null(seen(f, EFFECT_STEP));
    }
    for (uint32_t i = 0; i < SERVERS; i++) {
        struct server_report committed = {.kind = SERVER_COMMITTED};
        committed.committed.generation = GENERATION;
        committed.committed.step = 4;
        assert_null(seen(f, EFFECT_STEP));
        assert_int_equal(report(f, i, committed), ERR_OK);
    }
    assert_non_null(seen(f, EFFECT_STEP));
    assert_int_equal(seen(f, EFFECT_STEP)->step.step, 5);
    assert_int_equal(command(f, 0, SERVER_COMMIT)->commit.samples, 48);
    assert_true(command(f, 0, SERVER_COMMIT)->commit.cut);
    assert_int_equal(status(f).version, 6);
}

TEST_F(a_step_s_row_is_there_before_its_commit_is_said, succession)
{
    ask_all(f);
    say_held_all(f, 2);
    for (uint32_t i = 0; i < SERVERS; i++) {
        struct server_report reduced = {.kind = SERVER_REDUCED};
        struct chunk_seal seal = {i, true, 1};
        reduced.reduced = (struct reduced){GENERATION, 2, 1, &seal, i == 2, 8, 8, 0};
        assert_int_equal(report(f, i, reduced), ERR_OK);
    }
    size_t k = 0;
    while (k < f->count && f->seen[k].kind != EFFECT_COMMAND)
        k++;
    assert_true(k < f->count);
    assert_true(seen(f, EFFECT_STEP) < &f->seen[k]);
}

TEST_F(a_generation_without_a_decision_is_gone_on_from_its_cut, succession)
{
    ask_all(f);
    say_held_all(f, 2);
    assert_non_null(seen(f, EFFECT_ADOPT));
    assert_int_equal(status(f).version, 2);
    assert_int_equal(status(f).counters.samples, 16);
    assert_null(command(f, 0, SERVER_COMMIT));
}

TEST_F(workers_are_given_tickets_of_the_open_step, succession)
{
    struct join_reply reply;
    ask_all(f);
    say_held_all(f, 5);
    const struct join_request join = {.wire_version = WIRE_VERSION, .name = "w"};
    assert_int_equal(coordinator_join(f->coordinator, f->now_ms, &join, &reply, NULL), ERR_OK);
    assert_int_equal(reply.generation, GENERATION);
    look(f);
    assert_int_equal(coordinator_acquire(f->coordinator, f->now_ms,
                                         &(struct acquire_request){reply.member, reply.secret,
                                                                   GENERATION, 1, 1000}),
                     ERR_OK);
    look(f);
    const struct effect *answer = seen(f, EFFECT_ANSWER);
    assert_non_null(answer);
    assert_int_equal(answer->answer.reply.ticket.step, 5);
    assert_int_equal(answer->answer.reply.ticket.version, 5);
    /* Above every map number of the coordinator before. */
    assert_true(answer->answer.reply.map_number > UINT64_C(3) << 32);
}

/* P7: it decides nothing until all have answered. */
TEST_F(p7_it_waits_for_a_server_that_was_asked, succession)
{
    ask_all(f);
    assert_int_equal(say_held(f, 0, held_of(f, 0, 5)), ERR_OK);
    assert_int_equal(say_held(f, 2, held_of(f, 2, 5)), ERR_OK);
    assert_int_equal(status(f).state, RUN_STARTING);
    assert_false(has_rewound(f));
    /* Over another link it is asked again, and its first answer counts no more. */
    hello(f, 2, GENERATION);
    assert_non_null(command(f, 2, SERVER_ASK));
    assert_int_equal(say_held(f, 1, held_of(f, 1, 5)), ERR_OK);
    assert_int_equal(status(f).state, RUN_STARTING);
    assert_int_equal(say_held(f, 2, held_of(f, 2, 6)), ERR_OK);
    assert_int_equal(status(f).version, 6);
}

/* s2 joined after the cut: only its answer shows that it has a chunk. */
TEST_F(p7_a_drain_waits_until_it_is_known_whose_the_chunks_are, succession)
{
    struct coordinator_drained drained;
    f->past.cut.server_count = 2;
    start(f);
    for (uint32_t i = 0; i < SERVERS; i++)
        hello(f, i, GENERATION);
    assert_int_equal(coordinator_drain(f->coordinator, f->now_ms, "s2", &drained, NULL), ERR_OK);
    look(f);
    assert_false(drained.drained);
    assert_null(command(f, 2, SERVER_LEAVE));
    assert_int_equal(say_held(f, 0, held_of(f, 0, 5)), ERR_OK);
    assert_int_equal(say_held(f, 1, held_of(f, 1, 5)), ERR_OK);
    assert_null(command(f, 2, SERVER_LEAVE));
    assert_int_equal(say_held(f, 2, held_of(f, 2, 5)), ERR_OK);
    assert_int_equal(status(f).state, RUN_TRAINING);
    assert_null(command(f, 2, SERVER_LEAVE));
    assert_int_equal(coordinator_drain(f->coordinator, f->now_ms, "s2", &drained, NULL), ERR_OK);
    assert_int_equal(drained.chunks_left, 1);
}

/* It may have chunks that somebody would have to take. */
TEST_F(p7_a_drain_is_refused_while_nobody_else_is_there, succession)
{
    struct coordinator_drained drained;
    struct reason reason;
    f->past.cut.server_count = 2;
    start(f);
    hello(f, 2, GENERATION);
    assert_int_equal(coordinator_drain(f->coordinator, f->now_ms, "s2", &drained, &reason),
                     ERR_INVALID);
}

TEST_F(p7_a_stop_waits_for_the_answers_and_then_for_a_cut, succession)
{
    ask_all(f);
    assert_int_equal(coordinator_stop(f->coordinator, f->now_ms, "operator"), ERR_OK);
    look(f);
    assert_int_equal(status(f).state, RUN_STARTING);
    say_held_all(f, 5);
    assert_int_equal(status(f).version, 5);
    assert_int_equal(status(f).state, RUN_TRAINING);
}

TEST_F(p7_a_stop_does_not_wait_for_a_rewind, succession)
{
    start(f);
    hello(f, 0, GENERATION);
    assert_int_equal(coordinator_stop(f->coordinator, f->now_ms, "operator"), ERR_OK);
    look(f);
    assert_int_equal(status(f).state, RUN_STARTING);
    f->now_ms += 500;
    coordinator_tick(f->coordinator, f->now_ms);
    look(f);
    assert_int_equal(status(f).state, RUN_STOPPED);
    assert_false(has_rewound(f));
}

TEST_F(p7_a_checkpoint_that_was_asked_for_meanwhile_is_not_forgotten, succession)
{
    ask_all(f);
    assert_int_equal(coordinator_checkpoint(f->coordinator), ERR_OK);
    say_held_all(f, 2);
    for (uint32_t i = 0; i < SERVERS; i++) {
        struct server_report reduced = {.kind = SERVER_REDUCED};
        struct chunk_seal seal = {i, true, 1};
        reduced.reduced = (struct reduced){GENERATION, 2, 1, &seal, i == 2, 8, 8, 0};
        assert_int_equal(report(f, i, reduced), ERR_OK);
    }
    assert_true(command(f, 0, SERVER_COMMIT)->commit.cut);
}

/* A run may begin on one server: the others of the cut are given the time to come. */
TEST_F(it_waits_a_lease_for_servers_that_are_late, succession)
{
    start(f);
    hello(f, 0, GENERATION);
    assert_int_equal(say_held(f, 0, held_of(f, 0, 5)), ERR_OK);
    assert_false(has_rewound(f));
    assert_true(coordinator_next_ms(f->coordinator) <= f->now_ms + LEASE_MS);
    f->now_ms += LEASE_MS;
    coordinator_tick(f->coordinator, f->now_ms);
    look(f);
    assert_true(has_rewound(f));
    assert_int_equal(status(f).generation, GENERATION + 1);
}

TEST_F(without_what_a_dead_server_held_it_rewinds_at_once, succession)
{
    start(f);
    hello(f, 0, GENERATION);
    hello(f, 1, 0); /* another start of it */
    assert_null(command(f, 1, SERVER_ASK));
    hello(f, 2, GENERATION);
    assert_int_equal(say_held(f, 0, held_of(f, 0, 5)), ERR_OK);
    assert_false(has_rewound(f));
    assert_int_equal(say_held(f, 2, held_of(f, 2, 5)), ERR_OK);
    assert_true(has_rewound(f));
}

TEST_F(who_holds_nothing_while_others_hold_all_is_none_of_the_runs, succession)
{
    struct coordinator_server server;
    const struct chunk_range two[] = {{0, 1, 0}, {1, 1, 0}};
    start(f);
    for (uint32_t i = 0; i < SERVERS; i++)
        hello(f, i, i == 1 ? 0 : GENERATION);
    struct server_held held = held_of(f, 0, 5);
    held.range_count = 2;
    held.ranges = two;
    assert_int_equal(say_held(f, 0, held), ERR_OK);
    assert_int_equal(say_held(f, 2, held_of(f, 2, 5)), ERR_OK);
    assert_non_null(seen(f, EFFECT_ADOPT));
    assert_null(command(f, 1, SERVER_COMMIT));
    assert_non_null(command(f, 1, SERVER_END));
    assert_true(coordinator_map_server(f->coordinator, 1, &server));
    assert_string_equal(server.name, "s2");
    assert_false(coordinator_map_server(f->coordinator, 2, &server));
}

TEST_F(servers_that_hold_nothing_are_not_waited_for, succession)
{
    start(f);
    hello(f, 0, 0);
    assert_true(has_rewound(f));
}

/* What does not fit, one at a time. */
static void doubtful(struct server_held *held, uint32_t what)
{
    switch (what) {
    case 0:
        held->run++;
        break;
    case 1:
        held->generation--;
        break;
    case 2:
        held->spec++;
        break;
    case 3:
        held->ranges = &ranges[0]; /* twice, and one not at all */
        break;
    case 4:
        held->range_count = 0;
        break;
    case 5:
        held->decision.step -= 2; /* P6 */
        break;
    case 6:
        held->decision.scale = 0.25F;
        break;
    default:
        held->generation = 0;
        break;
    }
}

TEST(p7_it_rewinds_when_one_answer_does_not_fit)
{
    for (uint32_t what = 0; what < 8; what++) {
        struct succession_fixture f = {0};
        succession_set_up(&f);
        ask_all(&f);
        struct server_held held = held_of(&f, 1, 5);
        doubtful(&held, what);
        assert_int_equal(say_held(&f, 0, held_of(&f, 0, 5)), ERR_OK);
        assert_int_equal(say_held(&f, 1, held), ERR_OK);
        assert_int_equal(say_held(&f, 2, held_of(&f, 2, 5)), ERR_OK);
        assert_true(has_rewound(&f));
        assert_null(seen(&f, EFFECT_ADOPT));
        succession_tear_down(&f);
    }
}

TEST(it_rewinds_when_the_log_misses_a_step_or_the_last_cut_is_missing)
{
    for (uint64_t version = 6; version <= 7; version++) {
        struct succession_fixture f = {0};
        succession_set_up(&f);
        f.run.steps = version == 6 ? 6 : 10;
        start(&f);
        for (uint32_t i = 0; i < SERVERS; i++)
            hello(&f, i, GENERATION);
        say_held_all(&f, version);
        assert_true(has_rewound(&f));
        succession_tear_down(&f);
    }
}

TEST(async_and_ssp_ask_nobody)
{
    for (uint32_t kind = 0; kind < 2; kind++) {
        struct succession_fixture f = {0};
        succession_set_up(&f);
        f.run.async = kind == 0;
        f.run.ssp = kind == 1;
        f.run.window = 4;
        start(&f);
        hello(&f, 0, GENERATION);
        assert_null(command(&f, 0, SERVER_ASK));
        assert_true(has_rewound(&f));
        succession_tear_down(&f);
    }
}

TEST_F(an_answer_beyond_the_run_is_malformed, succession)
{
    ask_all(f);
    struct server_held held = held_of(f, 0, 5);
    const struct chunk_range beyond = {2, 2, 0};
    held.ranges = &beyond;
    assert_int_equal(say_held(f, 0, held), ERR_MALFORMED);
}

/* … which goes on in the generation that this one begins. */
TEST_F(a_report_beyond_what_was_decided_is_of_another_coordinator, succession)
{
    ask_all(f);
    say_held_all(f, 5);
    struct server_report committed = {.kind = SERVER_COMMITTED};
    committed.committed.generation = GENERATION;
    committed.committed.step = 5;
    assert_int_equal(report(f, 0, committed), ERR_OLD_TERM);
    const struct server_report reduced = {.kind = SERVER_REDUCED,
                                          .reduced = {.generation = GENERATION, .step = 6}};
    assert_int_equal(report(f, 0, reduced), ERR_OLD_TERM);
}

static enum err say_reduced(struct succession_fixture *f, uint32_t i, uint64_t step, uint32_t chunk)
{
    const struct chunk_seal seal = {chunk, true, 1};
    struct server_report reduced = {.kind = SERVER_REDUCED};
    reduced.reduced = (struct reduced){GENERATION, step, 1, &seal, i == 2, 8, 8, 0};
    return report(f, i, reduced);
}

/* The successor left the chunk where it was, and this coordinator had moved it. */
TEST_F(p7_a_report_of_a_chunk_of_another_server_is_of_another_coordinator, succession)
{
    ask_all(f);
    say_held_all(f, 5);
    assert_int_equal(say_reduced(f, 0, 5, 1), ERR_OLD_TERM);
    assert_int_equal(say_reduced(f, 0, 5, SERVERS), ERR_MALFORMED);
}

/* Every server reports the step, and then that it has carried out its commit. */
static void finish_step(struct succession_fixture *f, uint64_t step)
{
    for (uint32_t i = 0; i < SERVERS; i++)
        assert_int_equal(say_reduced(f, i, step, i), ERR_OK);
    assert_non_null(seen(f, EFFECT_STEP));
    assert_int_equal(seen(f, EFFECT_STEP)->step.step, step);
}

static void say_committed_all(struct succession_fixture *f, uint64_t step)
{
    struct server_report committed = {.kind = SERVER_COMMITTED};
    committed.committed.generation = GENERATION;
    committed.committed.step = step;
    for (uint32_t i = 0; i < SERVERS; i++)
        assert_int_equal(report(f, i, committed), ERR_OK);
}

/* P11: a chunk moves with no open sums. The dead coordinator may have decided one step more than
 * anybody heard of (P6), and granted tickets of `delay` steps behind that. */
TEST_F(p11_chunks_stay_while_sums_of_what_the_dead_one_granted_may_be_open, succession)
{
    struct coordinator_drained drained;
    f->run.delay = 1;
    start(f);
    for (uint32_t i = 0; i < SERVERS; i++)
        hello(f, i, GENERATION);
    say_held_all(f, 5);
    assert_int_equal(coordinator_drain(f->coordinator, f->now_ms, "s2", &drained, NULL), ERR_OK);
    look(f);
    say_committed_all(f, 4);
    for (uint64_t step = 5; step <= 7; step++) {
        finish_step(f, step);
        assert_int_equal(command(f, 2, SERVER_COMMIT)->move_count, step < 7 ? 0 : 1);
        say_committed_all(f, step);
    }
}

/* The coordinator's directory was lost: its terms begin anew, below what the servers have obeyed. */
TEST_F(p7_a_coordinator_whose_term_servers_would_refuse_takes_a_newer_one, succession)
{
    struct server_report old = {
        .kind = SERVER_HELLO, .boot = 10, .hello = {.name = "s0", .generation = GENERATION}};
    start(f);
    hello(f, 1, GENERATION);
    assert_null(seen(f, EFFECT_STORE_TERM));
    assert_int_equal(command(f, 1, SERVER_ASK)->term, 3);
    old.hello.term = 3; /* its own */
    assert_int_equal(coordinator_server_hello(f->coordinator, f->now_ms, &old, &f->link[0], NULL),
                     ERR_OK);
    look(f);
    assert_null(seen(f, EFFECT_STORE_TERM));
    old.hello.term = 40;
    assert_int_equal(coordinator_server_hello(f->coordinator, f->now_ms, &old, &f->link[0], NULL),
                     ERR_OK);
    look(f);
    assert_int_equal(seen(f, EFFECT_STORE_TERM)->term, 41);
    assert_ptr_equal(seen(f, EFFECT_STORE_TERM), &f->seen[0]); /* before it is acted on */
    assert_int_equal(command(f, 0, SERVER_ASK)->term, 41);
    assert_int_equal(status(f).term, 41);
    hello(f, 2, GENERATION);
    for (uint32_t i = 0; i < SERVERS; i++)
        say_held(f, i, held_of(f, i, 5));
    assert_int_equal(command(f, 0, SERVER_COMMIT)->term, 41);
    assert_int_equal(command(f, 0, SERVER_COMMIT)->commit.term, 41);
}

/* It may have been told that chunks come to it, by one who has decided nothing. */
TEST_F(who_has_no_chunks_forgets_what_it_holds, succession)
{
    ask_all(f);
    say_held_all(f, 5);
    struct server_report late = {.kind = SERVER_HELLO, .boot = 99, .hello = {.name = "s9"}};
    uint64_t link;
    late.hello.generation = GENERATION;
    assert_int_equal(coordinator_server_hello(f->coordinator, f->now_ms, &late, &link, NULL),
                     ERR_OK);
    look(f);
    f->link[0] = link;
    assert_non_null(command(f, 0, SERVER_END));
    assert_non_null(command(f, 0, SERVER_PREPARE));
    assert_true(command(f, 0, SERVER_END) < command(f, 0, SERVER_PREPARE));
}
