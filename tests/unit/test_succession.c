/* A coordinator that follows a dead one: when it goes on in the same generation, and with what (P7,
 * P8); when it rewinds. */
#define COORDINATOR_SERVERS 3
#include "tests/unit/coordinator_fixture.h"

#include "server/member/holdings.h"

enum { GENERATION = 4, TERM = 3 };

/* The run's cut is of version 2, its log goes up to version 6. */
struct succession_fixture {
    bool asked;    /* all are connected and asked; or the test goes on */
    uint64_t held; /* all have answered, too: they hold that version */
    struct coordinator_fixture c;
    struct coordinator_past past;
    struct coordinator_run run;
};

static void succession_tear_down(struct succession_fixture *f)
{
    coordinator_tear_down(&f->c);
}

static void go_on(struct succession_fixture *f)
{
    assert_int_equal(coordinator_start(f->c.coordinator, f->c.now_ms, &f->run, &f->past, NULL),
                     ERR_OK);
    look(&f->c);
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
    return (struct server_held){.run = f->run.run,
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
    return report(&f->c, i, (struct server_report){.kind = SERVER_HELD, .held = held});
}

/* Server i holds what fits, of that version. */
static void say(struct succession_fixture *f, uint32_t i, uint64_t version)
{
    assert_int_equal(say_held(f, i, held_of(f, i, version)), ERR_OK);
}

static void say_held_all(struct succession_fixture *f, uint64_t version)
{
    for (uint32_t i = 0; i < SERVERS; i++)
        say(f, i, version);
}

static enum err drain_s2(struct succession_fixture *f, struct coordinator_drained *drained)
{
    enum err err = coordinator_drain(f->c.coordinator, f->c.now_ms, "s2", drained, NULL);
    look(&f->c);
    return err;
}

/* A server's hello that is made by hand. */
static void hello_so(struct succession_fixture *f, const struct server_report *hello)
{
    coordinator_take_term(f->c.coordinator, hello);
    assert_int_equal(
        coordinator_server_hello(f->c.coordinator, f->c.now_ms, hello, &f->c.link[0], NULL),
        ERR_OK);
    look(&f->c);
}

static void ask_all(struct succession_fixture *f)
{
    go_on(f);
    for (uint32_t i = 0; i < SERVERS; i++) {
        hello(&f->c, i, GENERATION);
        assert_non_null(command(&f->c, i, SERVER_ASK));
        assert_int_equal(command(&f->c, i, SERVER_ASK)->term, TERM);
    }
}

static void succession_set_up(struct succession_fixture *f)
{
    f->c = (struct coordinator_fixture){.term = TERM, .generation = GENERATION};
    coordinator_set_up(&f->c);
    f->run = run_of(10);
    f->run.servers_min = 1;
    f->past = (struct coordinator_past){
        .generation = GENERATION,
        .cut = {.name = {GENERATION, 2}, .counters = {16, 2, 0}, .server_count = SERVERS},
        .recorded = 6};
    for (uint32_t i = 0; i < SERVERS; i++)
        snprintf(f->past.cut.servers[i].name, sizeof f->past.cut.servers[i].name, "s%u", i);
    if (f->asked || f->held > 0)
        ask_all(f);
    if (f->held > 0)
        say_held_all(f, f->held);
}

static bool has_rewound(const struct succession_fixture *f)
{
    return seen(&f->c, EFFECT_STORE_REWIND) != NULL;
}

/* Perhaps the run's data are not there. */
TEST_F(p7_servers_keep_what_they_hold_until_the_stored_run_can_go_on, succession)
{
    coordinator_expect_run(f->c.coordinator, true);
    for (uint32_t i = 0; i < SERVERS; i++) {
        hello(&f->c, i, GENERATION);
        assert_null(command(&f->c, i, SERVER_END));
    }
    go_on(f);
    for (uint32_t i = 0; i < SERVERS; i++)
        assert_non_null(command(&f->c, i, SERVER_ASK));
    say_held_all(f, 5);
    assert_int_equal(seen(&f->c, EFFECT_ADOPT)->adopted.version, 5);
}

TEST_F(p7_a_step_that_all_know_of_is_gone_on_from_in_the_same_generation, succession, .held = 5)
{
    assert_non_null(seen(&f->c, EFFECT_ADOPT));
    assert_int_equal(seen(&f->c, EFFECT_ADOPT)->adopted.generation, GENERATION);
    assert_int_equal(seen(&f->c, EFFECT_ADOPT)->adopted.version, 5);
    assert_false(has_rewound(f));
    assert_int_equal(status(&f->c).generation, GENERATION);
    assert_int_equal(status(&f->c).version, 5);
    assert_int_equal(status(&f->c).state, RUN_TRAINING);
}

/* P8: not those of the cut. */
TEST_F(p8_the_counters_are_those_of_the_decision, succession, .held = 5)
{
    assert_int_equal(status(&f->c).counters.samples, 40);
    assert_int_equal(status(&f->c).counters.applied, 4);
    assert_int_equal(status(&f->c).counters.skips_in_row, 1);
}

/* Of the open step servers may have sums under names that the coordinator before granted. */
TEST_F(p7_audits_of_the_step_that_was_open_are_not_compared, succession)
{
    f->run.audit = 1;
    f->run.node_slots = 0;
    ask_all(f);
    say_held_all(f, 5);
    uint64_t a = join_named(&f->c, "a"), b = join_named(&f->c, "b");
    for (uint64_t number = 5; number < 7; number++) {
        struct ticket first = ticket_of(&f->c, a, number), second = ticket_of(&f->c, b, number);
        assert_true(node_equal(first.node, second.node));
        assert_int_equal(complete(&f->c, a, first, ERR_OK), ERR_OK);
        assert_int_equal(complete(&f->c, b, second, ERR_OK), ERR_OK);
        commit_all(&f->c, number - 1);
        reduce_all(&f->c, number);
    }
    commit_all(&f->c, 6);
    step(&f->c, 7);
    assert_int_equal(status(&f->c).audits.not_compared, 1);
    assert_int_equal(status(&f->c).audits.agreed, 0);
    step(&f->c, 8);
    assert_int_equal(status(&f->c).audits.agreed, 1);
}

TEST_F(p8_counters_that_cannot_be_are_not_gone_on_with, succession, .asked = true)
{
    for (uint32_t i = 0; i < SERVERS; i++) {
        struct server_held impossible = held_of(f, i, 5);
        impossible.decision.applied = 6; /* of five steps */
        assert_int_equal(say_held(f, i, impossible), ERR_OK);
    }
    assert_null(seen(&f->c, EFFECT_ADOPT));
    assert_true(has_rewound(f));
}

/* P7: whoever has the newest. */
TEST_F(p7_a_decision_that_one_has_is_repeated_to_all_without_its_cut, succession, .asked = true)
{
    say(f, 0, 4);
    say(f, 1, 5);
    assert_null(seen(&f->c, EFFECT_ADOPT));
    say(f, 2, 4);
    assert_int_equal(status(&f->c).version, 5);
    struct commit wanted = decision_of(4);
    for (uint32_t i = 0; i < SERVERS; i++) {
        const struct server_command *again = command(&f->c, i, SERVER_COMMIT);
        assert_non_null(again);
        assert_true(seal_same_decision(&again->commit, &wanted));
        assert_int_equal(again->term, TERM);
        assert_int_equal(again->commit.term, TERM);
        assert_false(again->commit.cut); /* one may have begun it: nobody else could */
        assert_non_null(command(&f->c, i, SERVER_ASK)); /* what is reduced is said again */
    }
}

/* P6: nothing is decided before all have carried out what is adopted; the cut comes with it. */
TEST_F(p6_a_successors_next_commit_waits_for_all_and_is_a_cut, succession, .held = 5)
{
    for (uint32_t i = 0; i < SERVERS; i++) {
        assert_int_equal(say_reduced(&f->c, i, 5, 1), ERR_OK);
        assert_null(seen(&f->c, EFFECT_STEP));
    }
    for (uint32_t i = 0; i < SERVERS; i++) {
        assert_null(seen(&f->c, EFFECT_STEP));
        assert_int_equal(say_committed(&f->c, i, 4), ERR_OK);
    }
    assert_non_null(seen(&f->c, EFFECT_STEP));
    assert_int_equal(seen(&f->c, EFFECT_STEP)->step.step, 5);
    assert_int_equal(command(&f->c, 0, SERVER_COMMIT)->commit.samples, 48);
    assert_true(command(&f->c, 0, SERVER_COMMIT)->commit.cut);
    assert_int_equal(status(&f->c).version, 6);
}

/* What comes before the store's answer in the list of effects may break a server's stream: it has
 * nothing of the next generation to acknowledge. */
TEST_F(p10_a_server_that_is_lost_before_the_store_answers_is_prepared_later, succession, .held = 5)
{
    struct coordinator_fixture *c = &f->c;
    struct server_report report = {.kind = SERVER_HELLO, .boot = c->boot[1] + 100};
    memcpy(report.hello.name, "s1", sizeof "s1");
    lose_server(c, 1);
    c->boot[1] = report.boot;
    assert_int_equal(
        coordinator_server_hello(c->coordinator, c->now_ms, &report, &c->link[1], NULL), ERR_OK);
    coordinator_server_lost(c->coordinator, c->now_ms, c->link[1]);
    look(c);
    assert_non_null(command(c, 0, SERVER_PREPARE));
    hello(c, 1, 0);
    assert_non_null(command(c, 1, SERVER_PREPARE));
}

TEST_F(a_step_s_row_is_there_before_its_commit_is_said, succession, .held = 2)
{
    reduce_all(&f->c, 2);
    size_t k = 0;
    while (k < f->c.count && f->c.seen[k].kind != EFFECT_COMMAND)
        k++;
    assert_true(k < f->c.count);
    assert_true(seen(&f->c, EFFECT_STEP) < &f->c.seen[k]);
}

TEST_F(a_generation_without_a_decision_is_gone_on_from_its_cut, succession, .held = 2)
{
    assert_non_null(seen(&f->c, EFFECT_ADOPT));
    assert_int_equal(status(&f->c).version, 2);
    assert_int_equal(status(&f->c).counters.samples, 16);
    assert_null(command(&f->c, 0, SERVER_COMMIT));
}

TEST_F(workers_are_given_tickets_of_the_open_step, succession, .held = 5)
{
    uint64_t member = join(&f->c);
    struct ticket ticket = ticket_of(&f->c, member, 1);
    assert_int_equal(ticket.step, 5);
    assert_int_equal(ticket.version, 5);
    /* Above every map number of the coordinator before. */
    assert_true(answer(&f->c, member).map_number > UINT64_C(3) << 32);
}

/* P7: it decides nothing until all have answered. */
TEST_F(p7_it_waits_for_a_server_that_was_asked, succession, .asked = true)
{
    say(f, 0, 5);
    say(f, 2, 5);
    assert_int_equal(status(&f->c).state, RUN_STARTING);
    assert_false(has_rewound(f));
    /* Over another link it is asked again, and its first answer counts no more. */
    hello(&f->c, 2, GENERATION);
    assert_non_null(command(&f->c, 2, SERVER_ASK));
    say(f, 1, 5);
    assert_int_equal(status(&f->c).state, RUN_STARTING);
    say(f, 2, 6);
    assert_int_equal(status(&f->c).version, 6);
}

/* s2 joined after the cut: only its answer shows that it has a chunk. */
TEST_F(p7_a_drain_waits_until_it_is_known_whose_the_chunks_are, succession)
{
    struct coordinator_drained drained;
    f->past.cut.server_count = 2;
    ask_all(f);
    assert_int_equal(drain_s2(f, &drained), ERR_OK);
    assert_false(drained.drained);
    assert_null(command(&f->c, 2, SERVER_LEAVE));
    say(f, 0, 5);
    say(f, 1, 5);
    assert_null(command(&f->c, 2, SERVER_LEAVE));
    say(f, 2, 5);
    assert_int_equal(status(&f->c).state, RUN_TRAINING);
    assert_null(command(&f->c, 2, SERVER_LEAVE));
    assert_int_equal(drain_s2(f, &drained), ERR_OK);
    assert_int_equal(drained.chunks_left, 1);
}

/* It may have chunks that somebody would have to take. */
TEST_F(p7_a_drain_is_refused_while_nobody_else_is_there, succession)
{
    struct coordinator_drained drained;
    f->past.cut.server_count = 2;
    go_on(f);
    hello(&f->c, 2, GENERATION);
    assert_int_equal(drain_s2(f, &drained), ERR_INVALID);
}

static enum err give_up(struct succession_fixture *f, const char *name)
{
    enum err err = coordinator_give_up(f->c.coordinator, f->c.now_ms, name, NULL);
    look(&f->c);
    return err;
}

/* Both have died: the new coordinator has never met s2. */
TEST_F(p7_a_give_up_of_a_server_that_never_came_waits_and_then_counts, succession)
{
    f->run.servers_min = 3;
    f->run.restarts = true;
    go_on(f);
    hello(&f->c, 0, 0);
    hello(&f->c, 1, 0);
    tick(&f->c, LEASE_MS);
    assert_false(has_rewound(f)); /* three are wanted */
    assert_int_equal(give_up(f, "nobody"), ERR_NOT_FOUND);
    assert_int_equal(give_up(f, "s0"), ERR_INVALID); /* it is there */
    assert_int_equal(give_up(f, "s2"), ERR_OK);
    assert_true(has_rewound(f));
    assert_non_null(command(&f->c, 0, SERVER_PREPARE));
}

TEST_F(p7_a_give_up_decides_nothing_before_the_others_have_answered, succession)
{
    f->run.servers_min = 3;
    f->run.restarts = true;
    ask_all(f);
    assert_int_equal(say_held(f, 0, held_of(f, 0, 5)), ERR_OK);
    lose_server(&f->c, 2);
    assert_int_equal(give_up(f, "s2"), ERR_OK);
    assert_false(has_rewound(f)); /* s1 has not answered */
    tick(&f->c, LEASE_MS);
    assert_true(has_rewound(f));
}

TEST_F(who_was_given_up_and_is_back_is_waited_for_again, succession)
{
    f->run.servers_min = 3;
    f->run.restarts = true;
    go_on(f);
    hello(&f->c, 0, 0);
    assert_int_equal(give_up(f, "s2"), ERR_OK);
    hello(&f->c, 2, 0);
    tick(&f->c, LEASE_MS);
    assert_false(has_rewound(f));
    hello(&f->c, 1, 0);
    assert_true(has_rewound(f));
}

/* Nothing begins on it, so nothing waits for it. */
TEST_F(p7_who_was_given_up_and_drains_is_not_waited_for_when_it_is_back, succession)
{
    struct coordinator_drained drained;
    f->run.servers_min = 3;
    f->run.restarts = true;
    ask_all(f);
    assert_int_equal(say_held(f, 0, held_of(f, 0, 5)), ERR_OK);
    lose_server(&f->c, 2);
    assert_int_equal(give_up(f, "s2"), ERR_OK);
    assert_int_equal(drain_s2(f, &drained), ERR_OK);
    hello(&f->c, 2, 0);
    assert_false(has_rewound(f));
    tick(&f->c, LEASE_MS);
    assert_true(has_rewound(f));
}

TEST_F(p7_a_stop_waits_for_the_answers_and_then_for_a_cut, succession, .asked = true)
{
    stop(&f->c);
    assert_int_equal(status(&f->c).state, RUN_STARTING);
    say_held_all(f, 5);
    assert_int_equal(status(&f->c).version, 5);
    assert_int_equal(status(&f->c).state, RUN_TRAINING);
}

TEST_F(p7_a_stop_is_stored_once_for_whoever_follows, succession, .held = 5)
{
    stop(&f->c);
    assert_string_equal(seen(&f->c, EFFECT_STORE_STOP)->stop, "operator");
    stop(&f->c);
    assert_null(seen(&f->c, EFFECT_STORE_STOP));
}

TEST_F(p7_a_stop_is_stored_also_while_the_daemon_ends, succession, .held = 5)
{
    assert_int_equal(coordinator_pause(f->c.coordinator, f->c.now_ms, "signal"), ERR_OK);
    look(&f->c);
    assert_null(seen(&f->c, EFFECT_STORE_STOP));
    stop(&f->c);
    assert_non_null(seen(&f->c, EFFECT_STORE_STOP));
}

TEST_F(p7_a_stop_that_the_coordinator_before_was_asked_for_is_carried_out, succession)
{
    f->past.stops = true;
    snprintf(f->past.stop, sizeof f->past.stop, "operator");
    ask_all(f);
    assert_null(seen(&f->c, EFFECT_STORE_STOP)); /* it is there */
    assert_int_equal(status(&f->c).state, RUN_STARTING);
    say_held_all(f, 5);
    reduce_all(&f->c, 5);
    commit_all(&f->c, 4);
    assert_true(command(&f->c, 0, SERVER_COMMIT)->commit.cut);
    assert_int_equal(status(&f->c).state, RUN_TRAINING);
    record_all(&f->c, 6);
    assert_int_equal(status(&f->c).state, RUN_STOPPED);
    assert_string_equal(status(&f->c).reason, "operator");
}

/* A killed server took the steps along. */
TEST_F(an_inherited_stop_that_goes_back_says_which_version_is_dropped, succession)
{
    f->past.stops = true;
    snprintf(f->past.stop, sizeof f->past.stop, "operator");
    go_on(f);
    tick(&f->c, STOP_MS);
    assert_int_equal(status(&f->c).state, RUN_STOPPED);
    assert_string_equal(status(&f->c).reason,
                        "operator; version 6 is dropped, the newest checkpoint is of version 2");
}

/* Its successor may go on with them. */
TEST_F(a_pause_of_a_successor_drops_nothing, succession)
{
    go_on(f);
    assert_int_equal(coordinator_pause(f->c.coordinator, f->c.now_ms, "signal"), ERR_OK);
    look(&f->c);
    const char *said = f->c.seen[f->c.count - 1].log.text;
    assert_non_null(strstr(said, "run paused"));
    assert_null(strstr(said, "is dropped"));
}

TEST_F(a_stop_after_a_rewind_says_which_version_is_dropped, succession, .held = 5)
{
    restart_server(&f->c, 1);
    assert_int_equal(status(&f->c).version, 2);
    stop(&f->c);
    assert_int_equal(status(&f->c).state, RUN_STOPPED);
    assert_string_equal(status(&f->c).reason,
                        "operator; version 5 is dropped, the newest checkpoint is of version 2");
}

/* It began anew at the checkpoint, and had to begin anew again. */
TEST_F(what_was_dropped_is_not_told_of_a_later_stop, succession, .held = 5)
{
    restart_server(&f->c, 1);
    f->c.generation = status(&f->c).generation;
    ready_all(&f->c, 2);
    step(&f->c, 2);
    restart_server(&f->c, 0);
    stop(&f->c);
    assert_string_equal(status(&f->c).reason,
                        "operator; version 3 is dropped, the newest checkpoint is of version 2");
}

/* What the servers wrote for the coordinator before was of a generation that is over. */
TEST_F(p9_a_stop_may_cut_a_version_that_an_older_generation_cut_in_other_files, succession,
       .asked = true)
{
    for (uint32_t i = 0; i < SERVERS; i++) {
        struct server_held held = held_of(f, i, 5);
        held.file = (i + 1) % SERVERS;
        assert_int_equal(say_held(f, i, held), ERR_OK);
    }
    f->c.generation = GENERATION;
    commit_all(&f->c, 4);
    restart_server(&f->c, 1);
    f->c.generation = status(&f->c).generation;
    ready_all(&f->c, 2);
    for (uint64_t number = 2; number < 5; number++)
        step(&f->c, number);
    stop(&f->c);
    tick(&f->c, 1);
    assert_int_equal(status(&f->c).state, RUN_TRAINING);
    assert_true(command(&f->c, 0, SERVER_COMMIT)->commit.cut);
    f->c.attempt = 1;
    record_all(&f->c, 5);
    assert_int_equal(status(&f->c).state, RUN_STOPPED);
    assert_int_equal(status(&f->c).cut.version, 5);
}

TEST_F(p7_a_stop_waits_for_servers_that_say_hello_later, succession)
{
    go_on(f);
    stop(&f->c);
    assert_int_equal(status(&f->c).state, RUN_STARTING);
    for (uint32_t i = 0; i < SERVERS; i++)
        hello(&f->c, i, GENERATION);
    say_held_all(f, 5);
    assert_int_equal(status(&f->c).version, 5);
    assert_int_equal(status(&f->c).state, RUN_TRAINING);
}

TEST_F(p7_a_stop_does_not_wait_for_a_rewind, succession)
{
    go_on(f);
    hello(&f->c, 0, GENERATION);
    stop(&f->c);
    assert_int_equal(status(&f->c).state, RUN_STARTING);
    tick(&f->c, STOP_MS);
    assert_int_equal(status(&f->c).state, RUN_STOPPED);
    assert_false(has_rewound(f));
}

TEST_F(p7_a_checkpoint_that_was_asked_for_meanwhile_is_not_forgotten, succession, .asked = true)
{
    assert_int_equal(coordinator_checkpoint(f->c.coordinator), ERR_OK);
    say_held_all(f, 2);
    reduce_all(&f->c, 2);
    assert_true(command(&f->c, 0, SERVER_COMMIT)->commit.cut);
}

/* It holds another generation, so it is not asked; a rival of its name may have had it asked. */
TEST_F(p7_an_answer_that_was_not_asked_for_decides_nothing, succession)
{
    go_on(f);
    hello(&f->c, 0, GENERATION);
    hello(&f->c, 1, GENERATION - 1);
    assert_null(command(&f->c, 1, SERVER_ASK));
    say(f, 1, 5);
    assert_false(has_rewound(f));
    assert_null(seen(&f->c, EFFECT_ADOPT));
}

/* A run may begin on one server: the others of the cut are given the time to come. */
TEST_F(it_waits_a_lease_for_servers_that_are_late, succession)
{
    go_on(f);
    hello(&f->c, 0, GENERATION);
    say(f, 0, 5);
    assert_false(has_rewound(f));
    assert_true(coordinator_next_ms(f->c.coordinator) <= f->c.now_ms + LEASE_MS);
    tick(&f->c, LEASE_MS);
    assert_true(has_rewound(f));
    assert_int_equal(status(&f->c).generation, GENERATION + 1);
}

TEST_F(without_what_a_dead_server_held_it_rewinds_at_once, succession)
{
    go_on(f);
    hello(&f->c, 0, GENERATION);
    hello(&f->c, 1, 0); /* another start of it */
    assert_null(command(&f->c, 1, SERVER_ASK));
    hello(&f->c, 2, GENERATION);
    say(f, 0, 5);
    assert_false(has_rewound(f));
    say(f, 2, 5);
    assert_true(has_rewound(f));
}

TEST_F(who_holds_nothing_while_others_hold_all_is_none_of_the_runs, succession)
{
    struct coordinator_server server;
    const struct chunk_range two[] = {{0, 1, 0}, {1, 1, 0}};
    go_on(f);
    for (uint32_t i = 0; i < SERVERS; i++)
        hello(&f->c, i, i == 1 ? 0 : GENERATION);
    struct server_held held = held_of(f, 0, 5);
    held.range_count = 2;
    held.ranges = two;
    assert_int_equal(say_held(f, 0, held), ERR_OK);
    say(f, 2, 5);
    assert_non_null(seen(&f->c, EFFECT_ADOPT));
    assert_null(command(&f->c, 1, SERVER_COMMIT));
    assert_non_null(command(&f->c, 1, SERVER_END));
    assert_true(coordinator_map_server(f->c.coordinator, 1, &server));
    assert_string_equal(server.name, "s2");
    assert_false(coordinator_map_server(f->c.coordinator, 2, &server));
}

TEST_F(servers_that_hold_nothing_are_not_waited_for, succession)
{
    go_on(f);
    hello(&f->c, 0, 0);
    assert_true(has_rewound(f));
}

TEST(p7_it_rewinds_when_one_answer_does_not_fit)
{
    enum { DOUBTS = 8 };
    for (uint32_t what = 0; what < DOUBTS; what++) {
        struct succession_fixture f = {0};
        struct server_held doubts[DOUBTS];
        succession_set_up(&f);
        ask_all(&f);
        for (uint32_t i = 0; i < DOUBTS; i++)
            doubts[i] = held_of(&f, 1, 5);
        doubts[0].run++;
        doubts[1].generation--;
        doubts[2].spec++;
        doubts[3].ranges = &ranges[0]; /* twice, and one not at all */
        doubts[4].range_count = 0;
        doubts[5].decision.step -= 2; /* P6 */
        doubts[6].decision.scale = 0.25F;
        doubts[7].generation = 0;
        say(&f, 0, 5);
        assert_int_equal(say_held(&f, 1, doubts[what]), ERR_OK);
        say(&f, 2, 5);
        assert_true(has_rewound(&f));
        assert_null(seen(&f.c, EFFECT_ADOPT));
        succession_tear_down(&f);
    }
}

TEST_F(it_rewinds_when_the_log_misses_a_step, succession)
{
    ask_all(f);
    say_held_all(f, 7);
    assert_true(has_rewound(f));
}

/* What server i holds of the run's last version, 5, and of its cut. */
static struct server_held held_last(struct succession_fixture *f, uint32_t i, uint32_t attempt)
{
    struct server_held held = held_of(f, i, 5);
    held.file = i;
    held.attempt = attempt;
    return held;
}

static void say_held_last(struct succession_fixture *f)
{
    f->run.steps = 5;
    ask_all(f);
    for (uint32_t i = 0; i < SERVERS; i++)
        assert_int_equal(say_held(f, i, i == 0 ? held_of(f, 0, 4) : held_last(f, i, i)), ERR_OK);
}

/* The last cut that a successor resumes does not wait for room: nobody has said so. */
TEST_F(p9_a_resumed_last_cut_is_not_dropped_by_a_stop_that_is_asked_twice, succession)
{
    say_held_last(f);
    f->c.generation = GENERATION;
    commit_all(&f->c, 4);
    stop(&f->c);
    stop(&f->c);
    assert_int_equal(status(&f->c).state, RUN_TRAINING);
    tick(&f->c, STOP_MS); /* the attempt begins, and gets its time */
    assert_int_equal(status(&f->c).state, RUN_TRAINING);
    commit_all(&f->c, 4);
    f->c.attempt = 3;
    record_all(&f->c, 5);
    assert_true(status(&f->c).state == RUN_ENDED || status(&f->c).state == RUN_STOPPED);
    assert_int_equal(status(&f->c).cut.version, 5);
}

TEST_F(p9_a_stop_does_not_wait_for_ever_for_a_resumed_last_cut, succession)
{
    say_held_last(f);
    f->c.generation = GENERATION;
    commit_all(&f->c, 4);
    lose_server(&f->c, 2);
    stop(&f->c);
    tick(&f->c, STOP_MS);
    tick(&f->c, STOP_MS);
    assert_int_equal(status(&f->c).state, RUN_STOPPED);
    assert_string_equal(status(&f->c).reason,
                        "operator; version 5 is dropped, the newest checkpoint is of version 2");
}

/* The dead one waited for room. */
TEST_F(p9_the_last_versions_cut_is_written_from_what_servers_hold, succession)
{
    say_held_last(f);
    assert_false(has_rewound(f));
    assert_int_equal(status(&f->c).version, 5);
    assert_false(command(&f->c, 0, SERVER_COMMIT)->commit.cut);
    f->c.generation = GENERATION;
    commit_all(&f->c, 4);
    tick(&f->c, 1000);
    for (uint32_t i = 0; i < SERVERS; i++) {
        assert_true(command(&f->c, i, SERVER_COMMIT)->commit.cut);
        assert_int_equal(command(&f->c, i, SERVER_COMMIT)->file, i);
        assert_int_equal(command(&f->c, i, SERVER_COMMIT)->attempt, 3);
    }
    f->c.attempt = 2;
    assert_int_equal(say_manifest(&f->c, 2, 5, ERR_NO_SPACE), ERR_OK); /* the dead one's */
    f->c.attempt = 3;
    commit_all(&f->c, 4);
    record_all(&f->c, 5);
    assert_int_equal(status(&f->c).state, RUN_ENDED);
    assert_int_equal(f->c.stored.counters.samples, 40);
}

TEST_F(p9_the_last_versions_cut_waits_for_room_under_a_successor_too, succession)
{
    say_held_last(f);
    f->c.generation = GENERATION;
    commit_all(&f->c, 4);
    tick(&f->c, 1000);
    f->c.attempt = 3;
    assert_int_equal(say_manifest(&f->c, 1, 5, ERR_NO_SPACE), ERR_OK);
    assert_int_equal(status(&f->c).state, RUN_TRAINING);
    assert_non_null(strstr(status(&f->c).reason, "it waits for room: server s1"));
}

/* s1 may still be writing the file that would be s2's now. */
TEST_F(p9_the_last_versions_cut_with_other_files_is_not_written_again, succession)
{
    f->run.steps = 5;
    ask_all(f);
    for (uint32_t i = 0; i < SERVERS; i++) {
        struct server_held held = held_last(f, i, 0);
        held.file = (i + 1) % SERVERS;
        assert_int_equal(say_held(f, i, held), ERR_OK);
    }
    assert_true(has_rewound(f));
}

TEST_F(p9_a_run_whose_last_cut_is_recorded_ends_under_a_successor, succession)
{
    f->run.steps = 2;
    ask_all(f);
    say_held_all(f, 2);
    assert_false(has_rewound(f));
    assert_int_equal(status(&f->c).state, RUN_ENDED);
}

TEST(async_and_ssp_ask_nobody)
{
    for (uint32_t kind = 0; kind < 2; kind++) {
        struct succession_fixture f = {0};
        succession_set_up(&f);
        f.run.async = kind == 0;
        f.run.ssp = kind == 1;
        f.run.window = 4;
        go_on(&f);
        hello(&f.c, 0, GENERATION);
        assert_null(command(&f.c, 0, SERVER_ASK));
        assert_true(has_rewound(&f));
        succession_tear_down(&f);
    }
}

TEST_F(an_answer_beyond_the_run_is_malformed, succession, .asked = true)
{
    struct server_held held = held_of(f, 0, 5);
    const struct chunk_range beyond = {2, 2, 0};
    held.ranges = &beyond;
    assert_int_equal(say_held(f, 0, held), ERR_MALFORMED);
}

/* … which goes on in the generation that this one begins. */
TEST_F(a_report_beyond_what_was_decided_is_of_another_coordinator, succession, .held = 5)
{
    assert_int_equal(say_committed(&f->c, 0, 5), ERR_OLD_TERM);
    const struct server_report reduced = {.kind = SERVER_REDUCED,
                                          .reduced = {.generation = GENERATION, .step = 6}};
    assert_int_equal(report(&f->c, 0, reduced), ERR_OLD_TERM);
}

static enum err say_reduced_of(struct succession_fixture *f, uint32_t chunk)
{
    const struct chunk_seal seal = {chunk, true, 1};
    const struct server_report reduced = {
        .kind = SERVER_REDUCED,
        .reduced = {.generation = GENERATION, .step = 5, .seal_count = 1, .seals = &seal}};
    return report(&f->c, 0, reduced);
}

/* The successor left the chunk where it was, and this coordinator had moved it. */
TEST_F(p7_a_report_of_a_chunk_of_another_server_is_of_another_coordinator, succession, .held = 5)
{
    assert_int_equal(say_reduced_of(f, 1), ERR_OLD_TERM);
    assert_int_equal(say_reduced_of(f, SERVERS), ERR_MALFORMED);
}

/* P11: a chunk moves with no open sums. The dead coordinator may have decided one step more than
 * anybody heard of (P6), and granted tickets of `delay` steps behind that. */
TEST_F(p11_chunks_stay_while_sums_of_what_the_dead_one_granted_may_be_open, succession)
{
    struct coordinator_drained drained;
    f->run.delay = 1;
    ask_all(f);
    say_held_all(f, 5);
    assert_int_equal(drain_s2(f, &drained), ERR_OK);
    commit_all(&f->c, 4);
    for (uint64_t number = 5; number <= 7; number++) {
        reduce_all(&f->c, number);
        assert_int_equal(seen(&f->c, EFFECT_STEP)->step.step, number);
        assert_int_equal(command(&f->c, 2, SERVER_COMMIT)->move_count, number < 7 ? 0 : 1);
        commit_all(&f->c, number);
    }
}

/* The coordinator's directory was lost: its terms begin anew, below what the servers have
 * obeyed. */
TEST_F(p7_a_coordinator_whose_term_servers_would_refuse_takes_a_newer_one, succession)
{
    struct server_report old = {
        .kind = SERVER_HELLO, .boot = 11, .hello = {.name = "s0", .generation = GENERATION}};
    go_on(f);
    hello(&f->c, 1, GENERATION);
    assert_int_equal(command(&f->c, 1, SERVER_ASK)->term, TERM);
    old.hello.term = TERM; /* its own */
    assert_int_equal(coordinator_term_for(f->c.coordinator, &old), TERM);
    old.hello.term = 40;
    assert_int_equal(coordinator_term_for(f->c.coordinator, &old), 41);
    assert_int_equal(status(&f->c).term, TERM); /* the store is asked first */
    hello_so(f, &old);
    assert_int_equal(command(&f->c, 0, SERVER_ASK)->term, 41);
    assert_int_equal(status(&f->c).term, 41);
    hello(&f->c, 2, GENERATION);
    say_held_all(f, 5);
    assert_int_equal(command(&f->c, 0, SERVER_COMMIT)->term, 41);
    assert_int_equal(command(&f->c, 0, SERVER_COMMIT)->commit.term, 41);
}

/* It may have been told that chunks come to it, by one who has decided nothing. */
TEST_F(who_has_no_chunks_forgets_what_it_holds, succession, .held = 5)
{
    hello_so(f, &(struct server_report){.kind = SERVER_HELLO,
                                        .boot = 99,
                                        .hello = {.name = "s9", .generation = GENERATION}});
    assert_non_null(command(&f->c, 0, SERVER_END));
    assert_non_null(command(&f->c, 0, SERVER_PREPARE));
    assert_true(command(&f->c, 0, SERVER_END) < command(&f->c, 0, SERVER_PREPARE));
}
