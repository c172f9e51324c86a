/* Commands that nobody answers: sent again. */
#include "tests/unit/coordinator_fixture.h"

TEST_F(a_commit_that_is_not_acknowledged_is_sent_again, coordinator, .steps = 3)
{
    reduce_all(f, 0);
    struct commit first = command(f, 1, SERVER_COMMIT)->commit;
    assert_int_equal(say_committed(f, 0, 0), ERR_OK);
    tick(f, LEASE_MS - 1);
    assert_null(command(f, 1, SERVER_COMMIT));
    tick(f, 1);
    assert_null(command(f, 0, SERVER_COMMIT)); /* it has acknowledged */
    assert_memory_equal(&command(f, 1, SERVER_COMMIT)->commit, &first, sizeof first);
    tick(f, LEASE_MS - 1);
    assert_null(command(f, 1, SERVER_COMMIT));
    tick(f, 1);
    assert_non_null(command(f, 1, SERVER_COMMIT));
    assert_int_equal(say_committed(f, 1, 0), ERR_OK);
    tick(f, LEASE_MS);
    assert_null(command(f, 1, SERVER_COMMIT));
}

TEST_F(each_commit_has_a_deadline_of_its_own, coordinator, .steps = 3)
{
    step(f, 0);
    tick(f, LEASE_MS / 2);
    reduce_all(f, 1);
    assert_int_equal(command(f, 0, SERVER_COMMIT)->commit.step, 1);
    tick(f, LEASE_MS / 2);
    assert_null(command(f, 0, SERVER_COMMIT));
    tick(f, LEASE_MS / 2);
    assert_int_equal(command(f, 0, SERVER_COMMIT)->commit.step, 1);
    assert_int_equal(command(f, 1, SERVER_COMMIT)->commit.step, 1);
}

TEST_F(a_prepare_without_an_answer_is_sent_again, coordinator, .plan = 3)
{
    start_preparing(f, &f->run, NULL);
    assert_non_null(command(f, 1, SERVER_PREPARE));
    assert_int_equal(say_ready(f, 0, 0), ERR_OK);
    tick(f, LEASE_MS - 1);
    assert_null(command(f, 1, SERVER_PREPARE));
    tick(f, 1);
    assert_null(command(f, 0, SERVER_PREPARE));
    assert_int_equal(command(f, 1, SERVER_PREPARE)->prepare.generation, f->generation);
    assert_int_equal(command(f, 1, SERVER_PREPARE)->prepare.server, 1);
    assert_int_equal(say_ready(f, 1, 0), ERR_OK);
    tick(f, LEASE_MS);
    assert_null(command(f, 1, SERVER_PREPARE));
}

TEST_F(nothing_is_sent_to_a_server_that_is_not_connected, coordinator, .steps = 3)
{
    reduce_all(f, 0);
    lose_server(f, 1);
    assert_int_equal(say_committed(f, 0, 0), ERR_OK);
    tick(f, LEASE_MS);
    assert_null(command(f, 1, SERVER_COMMIT));
    hello(f, 1, f->generation);
    assert_non_null(command(f, 1, SERVER_COMMIT)); /* at once */
    tick(f, LEASE_MS);
    assert_non_null(command(f, 1, SERVER_COMMIT));
}

/* Its timer alone: nothing else is due. */
TEST_F(the_coordinator_wakes_for_a_late_answer, coordinator, .steps = 3)
{
    reduce_all(f, 0);
    assert_true(coordinator_next_ms(f->coordinator) <= f->now_ms + LEASE_MS);
    commit_all(f, 0);
}
