/* The coordinator: starting, tickets, fences. Each rule of the protocol that applies has a test
 * with its number, here and in its neighbours. */
#include "tests/unit/coordinator_fixture.h"

/* ---- starting ---- */

TEST_F(a_run_waits_for_its_servers_and_says_so, coordinator, .plan = 3)
{
    hello(f, 0, 0);
    begin(f, &f->run, NULL);
    assert_int_equal(status(f).state, RUN_STARTING);
    assert_null(command(f, 0, SERVER_PREPARE));
    hello(f, 1, 0);
    assert_non_null(command(f, 0, SERVER_PREPARE));
    assert_non_null(command(f, 1, SERVER_PREPARE));
}

TEST_F(one_run_at_a_time, coordinator, .plan = 3)
{
    struct reason reason;
    start(f, &f->run);
    f->run.run = 2;
    assert_int_equal(coordinator_start(f->coordinator, f->now_ms, &f->run, NULL, &reason),
                     ERR_BUSY);
    assert_string_equal(reason.text, "run 1 is still active: `roost watch` shows it, `roost stop` "
                                     "ends it after a checkpoint");
}

TEST_F(a_resume_replaces_what_a_successor_began_by_itself_until_the_first_commit, coordinator,
       .plan = 9)
{
    struct coordinator_past past = {.generation = 1};
    start(f, &f->run);
    uint64_t worker = join(f);
    f->run.steps = 5;
    begin(f, &f->run, &past);
    assert_int_equal(status(f).steps, 5);
    assert_int_equal(status(f).generation, f->generation + 1);
    assert_int_equal(seen(f, EFFECT_EXPEL)->member, worker);
    assert_non_null(command(f, 1, SERVER_PREPARE));
    f->generation++;
    ready_all(f, 0);
    record_all(f, 0);
    assert_int_equal(coordinator_may_start_any(f->coordinator, NULL), ERR_OK);
    step(f, 0);
    assert_int_equal(coordinator_may_start_any(f->coordinator, NULL), ERR_BUSY);
    assert_int_equal(coordinator_start(f->coordinator, f->now_ms, &f->run, &past, NULL), ERR_BUSY);
}

/* The order logs of all its generations name attempts by their numbers alone; and what a member was
 * given before is no lease that another has now. */
TEST_F(attempts_of_a_run_that_goes_on_in_the_same_term_are_numbered_above_those_before, coordinator,
       .steps = 9, .workers = 2)
{
    struct coordinator_past past = {.generation = f->generation};
    const struct ticket before = ticket_of(f, f->a, 1);
    stop(f);
    tick(f, STOP_MS);
    assert_int_equal(status(f).state, RUN_STOPPED);
    begin(f, &f->run, &past);
    f->generation++;
    ready_all(f, 0);
    record_all(f, 0);
    const struct ticket other = ticket_of(f, f->b, 1);
    assert_true(other.attempt > before.attempt);
    const struct ticket again = ticket_of(f, f->a, 1);
    assert_int_equal(again.generation, f->generation);
    assert_true(again.attempt > other.attempt);
}

/* Trained on, it would never reach its last step, and its checkpoints would replace the longer
 * run's. */
TEST_F(a_run_of_fewer_steps_than_its_checkpoint_is_refused, coordinator, .plan = 3)
{
    struct reason reason;
    struct coordinator_past past = {.generation = 1, .cut = {.name = {1, 4}, .server_count = 2}};
    assert_int_equal(coordinator_may_start(f->coordinator, &f->run, &past, &reason), ERR_INVALID);
    assert_string_equal(reason.text,
                        "train.steps is 3, but the newest checkpoint is of step 4 already; raise "
                        "train.steps to train on");
    assert_int_equal(coordinator_start(f->coordinator, f->now_ms, &f->run, &past, NULL),
                     ERR_INVALID);
    f->run.steps = 4;
    assert_int_equal(coordinator_may_start(f->coordinator, &f->run, &past, NULL), ERR_OK);
}

TEST_F(a_run_that_cannot_be_is_refused_by_name, coordinator)
{
    struct reason reason;
    struct coordinator_run runs[] = {run_of(3), run_of(3), run_of(3)};
    runs[0].slots = 0;
    runs[1].parameter_count = 0;
    runs[2].validation_samples = 1000000;
    for (int i = 0; i < 3; i++)
        assert_int_equal(coordinator_start(f->coordinator, f->now_ms, &runs[i], NULL, &reason),
                         ERR_INVALID);
    assert_non_null(strstr(reason.text, "train.validation_samples"));
    assert_int_equal(status(f).state, RUN_NONE);
}

static void prepare_three_steps(struct coordinator_fixture *f)
{
    struct coordinator_run run = run_of(3);
    start_preparing(f, &run, NULL);
}

TEST_F(p3_commands_name_the_boot_they_are_for, coordinator)
{
    prepare_three_steps(f);
    assert_int_equal(command(f, 0, SERVER_PREPARE)->boot, 11);
    assert_int_equal(command(f, 1, SERVER_PREPARE)->boot, 12);
    assert_int_equal(command(f, 1, SERVER_PREPARE)->term, 1);
    assert_int_equal(command(f, 1, SERVER_PREPARE)->prepare.server, 1);
}

TEST_F(p9_version_0_is_a_recorded_cut_before_the_first_grant, coordinator)
{
    prepare_three_steps(f);
    assert_false(command(f, 0, SERVER_PREPARE)->prepare.cuts);
    uint64_t worker = join(f);
    assert_int_equal(acquire(f, worker, 1, 5000), ERR_OK);
    assert_int_equal(say_ready(f, 0, 0), ERR_OK);
    assert_null(seen(f, EFFECT_STORE_CUT));
    assert_int_equal(say_ready(f, 1, 0), ERR_OK); /* by its seed: no file is waited for */
    assert_true(f->stored.by_seed);
    assert_int_equal(answer(f, worker).ticket.version, 0);
    assert_true(place_of(f, EFFECT_STORE_CUT) < place_of(f, EFFECT_ANSWER));
}

static void prepare_from_file(struct coordinator_fixture *f)
{
    struct coordinator_run run = run_of(3);
    run.restore = "weights.safetensors";
    start_preparing(f, &run, NULL);
}

TEST_F(p9_version_0_of_a_file_with_weights_is_written, coordinator)
{
    prepare_from_file(f);
    assert_true(command(f, 0, SERVER_PREPARE)->prepare.cuts);
    uint64_t worker = join(f);
    assert_int_equal(acquire(f, worker, 1, 5000), ERR_OK);
    ready_all(f, 0);
    assert_int_equal(say_manifest(f, 0, 0, ERR_OK), ERR_OK);
    assert_null(seen(f, EFFECT_ANSWER));
    assert_int_equal(say_manifest(f, 1, 0, ERR_OK), ERR_OK);
    assert_false(f->stored.by_seed);
    assert_int_equal(answer(f, worker).ticket.version, 0);
}

/* Servers write the first cut when they prepare: they prepare again, under another generation. */
TEST_F(p9_a_full_disk_at_the_first_cut_is_waited_for, coordinator)
{
    prepare_from_file(f);
    for (uint64_t wait_ms = 1000; wait_ms <= 2000; wait_ms *= 2) {
        assert_int_equal(say_manifest(f, 1, 0, ERR_NO_SPACE), ERR_OK);
        ready_all(f, 0);
        assert_int_equal(status(f).state, RUN_STARTING);
        assert_string_equal(status(f).reason,
                            "it waits for room: server s1 could not write the checkpoint of "
                            "version 0: no space left on device");
        tick(f, wait_ms - 1);
        assert_null(command(f, 0, SERVER_PREPARE));
        tick(f, 1);
        assert_true(command(f, 0, SERVER_PREPARE)->prepare.cuts);
        f->generation = status(f).generation;
    }
    ready_all(f, 0);
    record_all(f, 0);
    assert_int_equal(status(f).state, RUN_TRAINING);
    assert_string_equal(status(f).cut_error, "");
}

TEST_F(p9_a_disk_that_is_too_slow_for_the_first_cut_is_waited_for, coordinator)
{
    prepare_from_file(f);
    assert_int_equal(say_manifest(f, 1, 0, ERR_BUSY), ERR_OK);
    ready_all(f, 0);
    assert_int_equal(status(f).state, RUN_STARTING);
    tick(f, 1000);
    f->generation = status(f).generation;
    ready_all(f, 0);
    record_all(f, 0);
    assert_int_equal(status(f).state, RUN_TRAINING);
}

TEST_F(p9_a_store_without_room_for_version_0_is_waited_for, coordinator)
{
    prepare_three_steps(f);
    f->store = ERR_NO_SPACE;
    ready_all(f, 0);
    assert_int_equal(status(f).state, RUN_STARTING);
    assert_non_null(strstr(status(f).reason, "it waits for room: the coordinator could not"));
    tick(f, 1000);
    assert_non_null(seen(f, EFFECT_STORE_CUT));
    f->store = ERR_OK;
    tick(f, 1999);
    assert_null(seen(f, EFFECT_STORE_CUT));
    tick(f, 1);
    assert_true(f->stored.by_seed);
    assert_int_equal(status(f).state, RUN_TRAINING);
}

TEST_F(another_failure_at_the_first_cut_fails_the_run_by_name, coordinator)
{
    prepare_from_file(f);
    assert_int_equal(say_manifest(f, 1, 0, ERR_IO), ERR_OK);
    assert_int_equal(status(f).state, RUN_FAILED);
    assert_non_null(
        strstr(status(f).reason, "server s1 could not write the checkpoint of version 0"));
    assert_non_null(command(f, 0, SERVER_END));
}

TEST_F(a_server_that_cannot_prepare_fails_the_run_by_name, coordinator)
{
    prepare_three_steps(f);
    assert_int_equal(say_unready(f, 0, ERR_CORRUPT), ERR_OK);
    assert_int_equal(status(f).state, RUN_FAILED);
    assert_string_equal(status(f).reason, "server s0 cannot prepare: g4-v9: block 3");
}

/* ---- tickets ---- */

TEST_F(p1_acquire_asked_again_returns_the_lease_already_given, coordinator, .steps = 3,
       .workers = 1)
{
    struct ticket first = ticket_of(f, f->worker, 1);
    struct ticket again = ticket_of(f, f->worker, 1);
    assert_memory_equal(&first, &again, sizeof first);
    assert_int_not_equal(ticket_of(f, f->worker, 2).attempt, first.attempt);
    assert_int_equal(acquire(f, f->worker, 1, 5000), ERR_TOO_LATE); /* an old question */
}

TEST_F(p1_complete_says_nothing_about_the_step, coordinator, .steps = 3, .whole_steps = true,
       .workers = 1)
{
    struct ticket ticket = ticket_of(f, f->worker, 1);
    assert_int_equal(complete(f, f->worker, ticket, ERR_OK), ERR_OK);
    assert_null(command(f, 0, SERVER_COMMIT));
    assert_int_equal(acquire(f, f->worker, 2, 0), ERR_OK);
    assert_int_equal(answer(f, f->worker).result, ACQUIRE_WAIT); /* done: not granted again */
    reduce_all(f, 0);
    assert_non_null(command(f, 0, SERVER_COMMIT));
}

TEST_F(a_step_is_committed_by_its_seals_though_no_worker_said_complete, coordinator, .steps = 3,
       .workers = 1)
{
    struct ticket ticket = ticket_of(f, f->worker, 1);
    reduce_all(f, 0);
    assert_int_equal(status(f).version, 1);
    assert_int_equal(complete(f, f->worker, ticket, ERR_OK), ERR_OK); /* late, harmless */
    assert_int_equal(ticket_of(f, f->worker, 2).version, 1);
}

TEST_F(a_dropped_ticket_is_granted_again, coordinator, .steps = 3, .whole_steps = true,
       .workers = 2)
{
    struct ticket ticket = ticket_of(f, f->a, 1);
    assert_int_equal(acquire(f, f->b, 1, 5000), ERR_OK);
    assert_int_equal(complete(f, f->a, ticket, ERR_UNREACHABLE), ERR_OK);
    assert_int_equal(answer(f, f->b).ticket.node.index, 0);
}

TEST_F(a_parked_question_is_answered_when_its_time_is_over, coordinator, .steps = 3,
       .whole_steps = true, .workers = 2)
{
    ticket_of(f, f->a, 1);
    assert_int_equal(acquire(f, f->b, 1, 200), ERR_OK);
    assert_true(coordinator_next_ms(f->coordinator) <= f->now_ms + 200);
    tick(f, 199);
    assert_null(seen(f, EFFECT_ANSWER));
    tick(f, 1);
    assert_int_equal(answer(f, f->b).result, ACQUIRE_WAIT);
}

TEST_F(tickets_of_the_next_version_wake_who_waits, coordinator, .steps = 3, .whole_steps = true,
       .workers = 2)
{
    ticket_of(f, f->a, 1);
    assert_int_equal(acquire(f, f->b, 1, 5000), ERR_OK);
    reduce_all(f, 0);
    assert_int_equal(answer(f, f->b).ticket.step, 1);
    assert_int_equal(answer(f, f->b).ticket.version, 1);
}

TEST_F(an_idle_worker_is_woken_when_a_ticket_is_overdue, coordinator, .plan = 3)
{
    f->run.node_slots = 2;
    start(f, &f->run);
    uint64_t a = join(f), b = join(f);
    struct ticket first = ticket_of(f, a, 1);
    struct ticket second = ticket_of(f, b, 1);
    f->now_ms += 20;
    assert_int_equal(complete(f, a, first, ERR_OK), ERR_OK);
    assert_int_equal(acquire(f, a, 2, 5000), ERR_OK);
    assert_int_equal(coordinator_next_ms(f->coordinator), f->now_ms + 20); /* twice the usual */
    tick(f, 20);
    assert_true(node_equal(answer(f, a).ticket.node, second.node));
    assert_int_equal(status(f).speculative, 2);
}

TEST_F(whom_full_servers_wait_for_is_helped_before_they_are_brought_more, coordinator, .steps = 3,
       .workers = 2)
{
    struct ticket lowest = ticket_of(f, f->a, 1);
    struct ticket later = ticket_of(f, f->b, 1);
    f->now_ms += 20;
    assert_int_equal(complete(f, f->b, later, ERR_OK), ERR_OK);
    later = ticket_of(f, f->b, 2);
    assert_int_equal(complete(f, f->b, later, ERR_BUSY), ERR_OK);
    struct ticket again = ticket_of(f, f->b, 3); /* the lowest is not overdue yet */
    assert_true(node_equal(again.node, later.node));
    f->now_ms += 20;
    assert_int_equal(complete(f, f->b, again, ERR_BUSY), ERR_OK);
    assert_true(node_equal(ticket_of(f, f->b, 4).node, lowest.node));
}

TEST_F(a_complete_that_is_said_again_does_not_tell_how_long_a_ticket_took, coordinator, .steps = 3,
       .workers = 2)
{
    struct ticket first = ticket_of(f, f->a, 1), second = ticket_of(f, f->b, 1);
    const uint64_t begun_ms = f->now_ms;
    f->now_ms += 20;
    assert_int_equal(say_complete(f, &(struct complete_request){.member = f->a,
                                                                .secret = secret_of(f->a),
                                                                .ticket = sign(first, f->a),
                                                                .again = true}),
                     ERR_OK);
    ticket_of(f, f->a, 2);
    assert_int_equal(acquire(f, f->a, 3, 5000), ERR_OK);
    assert_int_equal(coordinator_next_ms(f->coordinator), begun_ms + LEASE_MS); /* of the second */
    assert_int_equal(complete(f, f->b, second, ERR_OK), ERR_OK);
    assert_int_equal(acquire(f, f->b, 2, 5000), ERR_OK);
    assert_int_equal(coordinator_next_ms(f->coordinator), f->now_ms + 40);
}

TEST_F(a_ticket_that_never_was_is_malformed, coordinator, .steps = 3, .workers = 1)
{
    struct ticket ticket = ticket_of(f, f->worker, 1);
    struct ticket bad[] = {ticket, ticket, ticket, ticket};
    bad[0].node = (struct node){0, SLOTS};
    bad[1].step = 9;
    bad[2].kind = TICKET_VALIDATE;
    bad[3].generation++;
    for (int i = 0; i < 4; i++)
        if (complete(f, f->worker, bad[i], ERR_OK) != ERR_MALFORMED)
            fail_msg("ticket %d was taken", i);
    assert_int_equal(acquire(f, 12345, 1, 0), ERR_UNKNOWN_MEMBER);
}

TEST_F(a_member_holds_only_so_many_tickets, coordinator, .plan = 3)
{
    f->run.slots = 16;
    f->run.seal.schedule.step_samples = 32;
    start(f, &f->run);
    uint64_t worker = join(f);
    for (uint64_t i = 1; i <= COORDINATOR_LEASES_MAX; i++)
        ticket_of(f, worker, i);
    assert_int_equal(acquire(f, worker, 99, 5000), ERR_BUSY);
}

TEST_F(pushes_that_never_came_are_asked_for_again, coordinator, .steps = 3, .whole_steps = true)
{
    uint64_t liar = join(f), honest = join(f);
    struct ticket ticket = ticket_of(f, liar, 1);
    assert_int_equal(complete(f, liar, ticket, ERR_OK), ERR_OK);
    assert_int_equal(acquire(f, honest, 1, 60000), ERR_OK);
    for (int i = 0; i < 31 && seen(f, EFFECT_ANSWER) == NULL; i++) {
        assert_int_equal(coordinator_heartbeat(f->coordinator, f->now_ms, honest), ERR_OK);
        tick(f, 100);
    }
    assert_int_equal(answer(f, honest).ticket.node.index, 0);
}

/* ---- fences ---- */

TEST_F(p2_reports_of_another_generation_are_refused, coordinator, .steps = 3)
{
    f->generation--;
    assert_int_equal(say_reduced(f, 0, 0, 1), ERR_OLD_GENERATION);
    assert_int_equal(say_committed(f, 0, 0), ERR_OLD_GENERATION);
    assert_int_equal(say_manifest(f, 0, 0, ERR_OK), ERR_OLD_GENERATION);
    assert_int_equal(say_ready(f, 0, 0), ERR_OLD_GENERATION);
    f->generation++;
    assert_int_equal(say_reduced(f, 1, 0, 1), ERR_OK);
    assert_null(command(f, 0, SERVER_COMMIT)); /* the old report did not count */
}

TEST_F(p2_a_complete_and_an_acquire_of_another_generation_are_refused, coordinator, .steps = 3,
       .workers = 1)
{
    struct ticket ticket = ticket_of(f, f->worker, 1);
    ticket.generation--;
    assert_int_equal(complete(f, f->worker, ticket, ERR_OK), ERR_OLD_GENERATION);
    f->generation--;
    assert_int_equal(acquire(f, f->worker, 2, 0), ERR_OLD_GENERATION);
}

TEST_F(p3_a_report_of_an_earlier_boot_is_refused, coordinator, .steps = 3)
{
    f->boot[0]--;
    assert_int_equal(say_reduced(f, 0, 0, 1), ERR_OLD_BOOT);
}

TEST_F(a_report_over_a_dead_link_is_not_heard, coordinator, .steps = 3)
{
    uint64_t old = f->link[0];
    assert_null(seen(f, EFFECT_UNLINK));
    hello(f, 0, f->generation);                          /* the same boot over a new stream */
    assert_int_equal(seen(f, EFFECT_UNLINK)->link, old); /* were it the newer one, it comes again */
    uint64_t new = f->link[0];
    f->link[0] = old;
    assert_int_equal(say_reduced(f, 0, 0, 1), ERR_NOT_FOUND);
    coordinator_server_lost(f->coordinator, f->now_ms, old);
    look(f);
    f->link[0] = new;
    assert_int_equal(say_reduced(f, 0, 0, 1), ERR_OK);
}

TEST_F(a_seal_of_a_chunk_that_the_run_does_not_have_is_malformed, coordinator, .steps = 3)
{
    for (int i = 0; i < 2; i++) { /* another server's, nobody's */
        struct chunk_seal seal = {(uint32_t)i + 1, true, 1};
        struct server_report reduced = {.kind = SERVER_REDUCED};
        reduced.reduced =
            (struct reduced){.generation = f->generation, .seal_count = 1, .seals = &seal};
        assert_int_equal(report(f, 0, reduced), i == 0 ? ERR_OLD_TERM : ERR_MALFORMED);
    }
    assert_int_equal(say_reduced(f, 0, 1, 1), ERR_OLD_TERM); /* a step that is not open */
}
