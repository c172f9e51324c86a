/* The coordinator: commits, also with a delay and ssp; validation. */
#include "tests/unit/coordinator_fixture.h"

/* ---- commit ---- */

TEST_F(p6_the_next_commit_waits_until_every_server_acknowledged_the_last, coordinator, .steps = 3)
{
    reduce_all(f, 0);
    const struct server_command *first = command(f, 0, SERVER_COMMIT);
    assert_int_equal(first->commit.step, 0);
    assert_memory_equal(&first->commit, &command(f, 1, SERVER_COMMIT)->commit,
                        sizeof first->commit);
    assert_int_equal(say_committed(f, 0, 0), ERR_OK);
    reduce_all(f, 1);
    assert_null(command(f, 0, SERVER_COMMIT));
    assert_int_equal(say_committed(f, 1, 0), ERR_OK);
    assert_int_equal(command(f, 0, SERVER_COMMIT)->commit.step, 1);
}

static struct coordinator_run delayed_run(uint64_t steps, uint32_t delay)
{
    struct coordinator_run run = run_of(steps);
    run.slots = 1;
    run.delay = delay;
    return run;
}

static void start_delayed(struct coordinator_fixture *f, uint64_t steps, uint32_t delay)
{
    struct coordinator_run run = delayed_run(steps, delay);
    start(f, &run);
}

TEST_F(with_a_delay_steps_overlap_on_versions_that_are_there, coordinator)
{
    start_delayed(f, 4, 2);
    uint64_t worker = join(f);
    for (uint64_t i = 0; i < 3; i++) {
        struct ticket ticket = ticket_of(f, worker, 1 + i);
        assert_int_equal(ticket.step, i);
        assert_int_equal(ticket.version, 0);
        assert_int_equal(complete(f, worker, ticket, ERR_OK), ERR_OK);
    }
    assert_int_equal(acquire(f, worker, 4, 0), ERR_OK);
    assert_int_equal(answer(f, worker).result, ACQUIRE_WAIT);
    reduce_all(f, 0);
    struct ticket last = ticket_of(f, worker, 5);
    assert_int_equal(last.step, 3);
    assert_int_equal(last.version, 1);
    commit_all(f, 0);
    assert_int_equal(acquire(f, worker, 6, 0), ERR_OK); /* no step 4 */
    assert_int_equal(answer(f, worker).result, ACQUIRE_WAIT);
}

TEST_F(p6_with_a_delay_a_later_step_may_be_reduced_first, coordinator)
{
    start_delayed(f, 4, 1);
    reduce_all(f, 1);
    assert_null(command(f, 0, SERVER_COMMIT));
    assert_int_equal(say_reduced(f, 0, 2, 1), ERR_OLD_TERM); /* its version is not known */
    reduce_all(f, 0);
    assert_int_equal(command(f, 0, SERVER_COMMIT)->commit.step, 0);
    assert_int_equal(say_committed(f, 0, 0), ERR_OK);
    assert_null(command(f, 0, SERVER_COMMIT));
    assert_int_equal(say_committed(f, 1, 0), ERR_OK); /* P6 */
    assert_int_equal(command(f, 0, SERVER_COMMIT)->commit.step, 1);
    assert_int_equal(status(f).version, 2);
}

/* A server whose link broke reports the last commit that it carried out again. */
TEST_F(p6_the_acknowledgement_of_an_earlier_commit_counts_for_nothing, coordinator)
{
    start_delayed(f, 4, 1);
    reduce_all(f, 0);
    commit_all(f, 0);
    reduce_all(f, 1);
    assert_int_equal(say_committed(f, 0, 1), ERR_OK);
    lose_server(f, 1);
    hello(f, 1, f->generation);
    assert_int_equal(say_ready(f, 1, 1), ERR_OK);
    assert_int_equal(say_committed(f, 1, 0), ERR_OK);
    reduce_all(f, 2);
    assert_null(command(f, 0, SERVER_COMMIT));
    assert_int_equal(say_committed(f, 1, 1), ERR_OK);
    assert_int_equal(command(f, 0, SERVER_COMMIT)->commit.step, 2);
}

TEST_F(with_a_delay_a_rewind_forgets_what_later_steps_had, coordinator)
{
    start_delayed(f, 9, 1);
    step(f, 0);
    reduce_all(f, 2);
    uint64_t worker = join(f);
    ticket_of(f, worker, 1);
    restart_server(f, 1);
    f->generation++;
    ready_all(f, 0);
    worker = join(f);
    struct ticket ticket = ticket_of(f, worker, 1);
    assert_int_equal(ticket.step, 0);
    step(f, 0);
    step(f, 1);
    assert_int_equal(status(f).version, 2); /* step 2 is to be reduced again */
}

TEST_F(ssp_says_what_a_step_was_computed_on_before_its_commit, coordinator)
{
    struct coordinator_run run = delayed_run(4, 1);
    run.ssp = true;
    run.slots = 2;
    start(f, &run);
    uint64_t worker = join(f);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(ticket_of(f, worker, 1 + i).version, 0);
    reduce_all(f, 0);
    assert_true(place_of(f, EFFECT_STORE_ORDER) < place_of(f, EFFECT_COMMAND));
    assert_int_equal(seen(f, EFFECT_STORE_ORDER)->order.behind[0], 0);
    assert_int_equal(seen(f, EFFECT_STEP)->step.behind, 0);
    commit_all(f, 0);
    struct ticket late = ticket_of(f, worker, 4);
    assert_int_equal(late.step, 1);
    assert_int_equal(late.version, 1); /* the newest */
    reduce_all(f, 1);
    const struct order_step order = seen(f, EFFECT_STORE_ORDER)->order;
    assert_int_equal(order.generation, f->generation);
    assert_int_equal(order.step, 1);
    assert_int_equal(order.slots, 2);
    assert_int_equal(order.behind[0], 1);
    assert_int_equal(order.behind[1], 0);
    assert_int_equal(seen(f, EFFECT_STEP)->step.behind, 1);
}

TEST_F(a_report_said_twice_decides_once, coordinator, .steps = 3)
{
    reduce_all(f, 0);
    assert_int_equal(say_reduced(f, 0, 0, 1), ERR_OK);
    assert_null(command(f, 0, SERVER_COMMIT));
    commit_all(f, 0);
    commit_all(f, 0);
    assert_int_equal(status(f).version, 1);
}

TEST_F(p8_a_commit_carries_the_counters, coordinator, .steps = 5)
{
    step(f, 0);
    assert_int_equal(say_reduced(f, 0, 1, NAN), ERR_OK);
    assert_int_equal(say_reduced(f, 1, 1, 1), ERR_OK);
    const struct commit *commit = &command(f, 0, SERVER_COMMIT)->commit;
    assert_false(commit->apply);
    assert_int_equal(commit->samples, 16);
    assert_int_equal(commit->applied, 1);
    assert_int_equal(commit->skips_in_row, 1);
    assert_true(seen(f, EFFECT_STEP)->step.skipped);
    assert_int_equal(status(f).skipped, 1);
}

TEST_F(a_step_that_is_not_finite_names_who_brought_it, coordinator, .steps = 5)
{
    uint64_t worker = join(f);
    ticket_of(f, worker, 1);
    assert_int_equal(say_reduced(f, 0, 0, NAN), ERR_OK);
    assert_int_equal(say_reduced(f, 1, 0, 1), ERR_OK);
    assert_non_null(
        strstr(seen(f, EFFECT_LOG)->log.text, "step not finite  step=0 in_row=1 brought_by=w"));
}

/* Its pushes may be among those that the servers counted. */
TEST_F(who_is_gone_is_named_when_what_it_may_have_brought_is_not_finite, coordinator, .steps = 5,
       .workers = 2)
{
    ticket_of(f, f->a, 1);
    ticket_of(f, f->b, 1);
    assert_int_equal(leave(f, f->a, "done"), ERR_OK);
    assert_int_equal(say_reduced(f, 0, 0, NAN), ERR_OK);
    assert_int_equal(say_reduced(f, 1, 0, 1), ERR_OK);
    assert_non_null(strstr(seen(f, EFFECT_LOG)->log.text, "brought_by=b,a "));
}

TEST_F(who_joins_again_is_named_for_what_it_brought_before, coordinator, .steps = 5)
{
    uint64_t worker = join(f);
    const struct ticket ticket = ticket_of(f, worker, 1);
    assert_int_equal(complete(f, worker, ticket, ERR_OK), ERR_OK);
    join_again(f, worker);
    assert_int_equal(say_reduced(f, 0, 0, NAN), ERR_OK);
    assert_int_equal(say_reduced(f, 1, 0, 1), ERR_OK);
    assert_non_null(strstr(seen(f, EFFECT_LOG)->log.text, "brought_by=w "));
}

/* Their names need two lines. */
TEST_F(nobody_is_left_out_of_those_who_brought_a_step_that_is_not_finite, coordinator, .steps = 5)
{
    static const char *const names[SLOTS] = {
        "first-of-four-machines-with-long-names", "second-of-four-machines-with-long-names",
        "third-of-four-machines-with-long-names", "fourth-of-four-machines-with-long-names"};
    char lines[4096] = "";
    for (unsigned i = 0; i < SLOTS; i++)
        ticket_of(f, join_named(f, names[i]), 1);
    assert_int_equal(say_reduced(f, 0, 0, NAN), ERR_OK);
    assert_int_equal(say_reduced(f, 1, 0, 1), ERR_OK);
    for (size_t i = 0; i < f->count; i++)
        if (f->seen[i].kind == EFFECT_LOG)
            strncat(lines, f->seen[i].log.text, sizeof lines - strlen(lines) - 1);
    for (unsigned i = 0; i < SLOTS; i++)
        assert_non_null(strstr(lines, names[i]));
}

TEST_F(too_many_steps_that_are_not_finite_fail_the_run_by_name, coordinator, .steps = 5)
{
    for (uint64_t i = 0; i < 2; i++) {
        assert_int_equal(say_reduced(f, 0, i, NAN), ERR_OK);
        assert_int_equal(say_reduced(f, 1, i, 1), ERR_OK);
        if (i == 0)
            commit_all(f, i);
    }
    assert_int_equal(status(f).state, RUN_FAILED);
    assert_string_equal(status(f).reason,
                        "step 1 is not finite, number 2 in a row (train.skip_max)");
    assert_int_equal(seen(f, EFFECT_STORE_STATE)->state.state, RUN_FAILED);
}

TEST_F(each_step_leaves_a_row, coordinator, .steps = 5)
{
    join(f);
    f->now_ms += 7;
    reduce_all(f, 0);
    const struct step_row *row = &seen(f, EFFECT_STEP)->step;
    assert_int_equal(row->step, 0);
    assert_int_equal(row->samples, 8);
    assert_int_equal(row->workers, 1);
    assert_int_equal(row->duration_ms, 7);
    assert_true(row->metrics.loss == 0.5);
}

/* ---- validation ---- */

TEST_F(the_commit_waits_until_its_versions_validation_is_complete, coordinator, .steps = 4,
       .validated = true, .workers = 1)
{
    step(f, 0);
    step(f, 1);
    assert_int_equal(ticket_of(f, f->worker, 1).kind, TICKET_TRAIN);
    struct ticket pieces[3];
    for (uint32_t i = 0; i < 3; i++) {
        pieces[i] = ticket_of(f, f->worker, 2 + i);
        assert_int_equal(pieces[i].kind, TICKET_VALIDATE);
        assert_int_equal(pieces[i].version, 2);
        assert_int_equal(pieces[i].node.index, i);
    }
    reduce_all(f, 2);
    assert_null(command(f, 0, SERVER_COMMIT));
    for (uint32_t i = 3; i-- > 0;) {
        assert_int_equal(complete(f, f->worker, pieces[i], ERR_OK), ERR_OK);
        if (i > 0)
            assert_int_equal(complete(f, f->worker, pieces[i], ERR_OK),
                             ERR_OK); /* twice: no more */
    }
    const struct validation_row *row = &seen(f, EFFECT_VALIDATION)->validation;
    assert_int_equal(row->version, 2);
    assert_int_equal(row->samples, 5);
    assert_true(row->loss == 60.0 / 5);
    assert_true(row->accuracy == 3.0 / 5);
    assert_non_null(command(f, 0, SERVER_COMMIT));
}

TEST_F(the_last_version_is_validated_before_the_run_ends, coordinator, .steps = 1,
       .validated = true, .workers = 1)
{
    step(f, 0);
    record_all(f, 1);
    assert_int_equal(status(f).state, RUN_TRAINING);
    for (uint32_t i = 0; i < 3; i++) {
        struct ticket piece = ticket_of(f, f->worker, 1 + i);
        assert_int_equal(piece.version, 1);
        assert_int_equal(complete(f, f->worker, piece, ERR_OK), ERR_OK);
    }
    assert_non_null(seen(f, EFFECT_VALIDATION));
    assert_int_equal(status(f).state, RUN_ENDED);
}

TEST_F(a_validation_that_is_not_finite_has_no_row_and_holds_nothing_up, coordinator, .steps = 1,
       .validated = true, .workers = 1)
{
    step(f, 0);
    record_all(f, 1);
    struct complete_request request = {.member = f->worker,
                                       .secret = secret_of(f->worker),
                                       .ticket = ticket_of(f, f->worker, 1),
                                       .loss_sum = NAN,
                                       .sample_count = 2};
    assert_int_equal(say_complete(f, &request), ERR_OK);
    assert_null(seen(f, EFFECT_VALIDATION));
    assert_non_null(strstr(seen(f, EFFECT_LOG)->log.text, "validation not finite  worker=w"));
    assert_int_equal(status(f).state, RUN_ENDED);
}

/* What it brings for the piece, of two samples. */
static void bring(struct coordinator_fixture *f, struct ticket ticket, double loss_sum)
{
    struct complete_request request = {.member = f->worker,
                                       .secret = secret_of(f->worker),
                                       .ticket = ticket,
                                       .loss_sum = loss_sum,
                                       .sample_count = ticket.node.index == 2 ? 1 : 2};
    assert_int_equal(say_complete(f, &request), ERR_OK);
}

TEST_F(the_first_result_of_a_piece_counts_whatever_a_second_one_says, coordinator, .steps = 1,
       .validated = true, .workers = 1)
{
    step(f, 0);
    record_all(f, 1);
    struct ticket first = ticket_of(f, f->worker, 1);
    bring(f, first, 3);
    bring(f, first, NAN);
    assert_null(seen(f, EFFECT_LOG));
    for (uint64_t i = 2; i <= 3; i++)
        bring(f, ticket_of(f, f->worker, i), 1);
    assert_true(seen(f, EFFECT_VALIDATION)->validation.loss == 5.0 / 5);
}

TEST_F(nobody_computes_a_validation_that_is_given_up, coordinator, .steps = 4, .validated = true,
       .workers = 1)
{
    step(f, 0);
    step(f, 1);
    assert_int_equal(ticket_of(f, f->worker, 1).kind, TICKET_TRAIN);
    uint64_t other = join_named(f, "other");
    struct complete_request request = {.member = other,
                                       .secret = secret_of(other),
                                       .ticket = ticket_of(f, other, 1),
                                       .loss_sum = NAN,
                                       .sample_count = 2};
    assert_int_equal(request.ticket.kind, TICKET_VALIDATE);
    assert_int_equal(ticket_of(f, other, 2).kind, TICKET_VALIDATE);
    assert_int_equal(say_complete(f, &request), ERR_OK);
    assert_int_equal(acquire(f, other, 3, 5000), ERR_OK);
    assert_null(seen(f, EFFECT_ANSWER)); /* no piece is left for it */
}

/* Two of them would make the sum so. */
TEST_F(a_result_that_may_make_the_sum_not_finite_has_no_row_and_names_who_brought_it, coordinator,
       .steps = 1, .validated = true, .workers = 1)
{
    step(f, 0);
    record_all(f, 1);
    bring(f, ticket_of(f, f->worker, 1), 1e307);
    assert_null(seen(f, EFFECT_LOG));
    bring(f, ticket_of(f, f->worker, 2), 1.7e308);
    assert_null(seen(f, EFFECT_VALIDATION));
    assert_non_null(strstr(seen(f, EFFECT_LOG)->log.text, "validation not finite  worker=w"));
    assert_int_equal(status(f).state, RUN_ENDED);
}

/* The piece has two samples of one prediction each. */
TEST_F(a_validation_that_cannot_be_is_malformed, coordinator, .steps = 1, .validated = true,
       .workers = 1)
{
    step(f, 0);
    const struct complete_request right = {.member = f->worker,
                                           .secret = secret_of(f->worker),
                                           .ticket = ticket_of(f, f->worker, 1),
                                           .loss_sum = 1,
                                           .sample_count = 2,
                                           .correct_count = 2};
    struct complete_request negative = right;
    negative.loss_sum = -1;
    assert_int_equal(say_complete(f, &negative), ERR_MALFORMED);
    const uint64_t counts[][2] = {{0, 0}, {1, 1}, {3, 1}, {UINT64_C(1) << 63, 1}, {2, 3}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct complete_request wrong = right;
        wrong.sample_count = counts[i][0];
        wrong.correct_count = counts[i][1];
        assert_int_equal(say_complete(f, &wrong), ERR_MALFORMED);
    }
    assert_int_equal(say_complete(f, &right), ERR_OK);
}
