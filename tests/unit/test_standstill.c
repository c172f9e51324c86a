/* A run that stands still: when it says so, and whom it names. */
#include "tests/unit/coordinator_fixture.h"

/* Time goes by; the fixture's worker lives, and holds what it holds. */
static void wait_alive(struct coordinator_fixture *f, uint64_t ms)
{
    for (uint64_t at = 0; at < ms; at += LEASE_MS / 4) {
        assert_int_equal(coordinator_heartbeat(f->coordinator, f->now_ms, f->worker), ERR_OK);
        tick(f, LEASE_MS / 4);
    }
}

TEST_F(a_step_that_lasts_names_the_worker_it_waits_for, coordinator, .steps = 5, .workers = 1)
{
    step(f, 0);
    (void)ticket_of(f, f->worker, 1);
    wait_alive(f, 3 * LEASE_MS - LEASE_MS / 4);
    assert_string_equal(status(f).reason, "");
    wait_alive(f, LEASE_MS / 4);
    assert_non_null(seen(f, EFFECT_LOG));
    assert_non_null(strstr(status(f).reason, "step 1 is not done after 3 s: worker "));
    assert_non_null(strstr(status(f).reason, " has had slot 0 for 3 s"));
    reduce_all(f, 1);
    assert_string_equal(status(f).reason, "");
}

TEST_F(a_first_step_has_more_time, coordinator, .steps = 5, .workers = 1)
{
    (void)ticket_of(f, f->worker, 1);
    wait_alive(f, 9 * LEASE_MS);
    assert_string_equal(status(f).reason, "");
    wait_alive(f, LEASE_MS);
    assert_non_null(strstr(status(f).reason, "step 0 is not done after 10 s: "));
}

TEST_F(a_step_has_four_times_what_the_one_before_took, coordinator, .steps = 5, .workers = 1)
{
    wait_alive(f, 5 * LEASE_MS);
    step(f, 0);
    wait_alive(f, 19 * LEASE_MS);
    assert_string_equal(status(f).reason, "");
    wait_alive(f, LEASE_MS);
    assert_non_null(strstr(status(f).reason, "step 1 is not done after 20 s: worker "));
    assert_non_null(strstr(status(f).reason, " does not ask for what is free"));
}

TEST_F(leases_that_lapsed_are_counted, coordinator, .steps = 5, .workers = 1)
{
    step(f, 0);
    (void)ticket_of(f, f->worker, 1);
    wait_alive(f, 9 * LEASE_MS);
    assert_null(strstr(status(f).reason, "lapsed"));
    wait_alive(f, LEASE_MS);
    assert_non_null(strstr(status(f).reason, " for what is free, after 1 lease that lapsed"));
    (void)ticket_of(f, f->worker, 2);
    wait_alive(f, 10 * LEASE_MS);
    (void)ticket_of(f, f->worker, 3);
    wait_alive(f, LEASE_MS);
    assert_non_null(
        strstr(status(f).reason, " has had slot 0 for 1 s, after 2 leases that lapsed"));
}

TEST_F(a_server_that_does_not_apply_the_step_before_is_named, coordinator, .steps = 5, .workers = 1)
{
    step(f, 0);
    reduce_all(f, 1);
    assert_int_equal(say_committed(f, 0, 1), ERR_OK);
    wait_alive(f, 3 * LEASE_MS);
    assert_non_null(strstr(status(f).reason, " has not applied the step before"));
}

TEST_F(a_server_whose_journal_has_no_room_is_named, coordinator, .steps = 5, .workers = 1)
{
    step(f, 0);
    (void)ticket_of(f, f->worker, 1);
    struct server_report statistics = {.kind = SERVER_STATISTICS};
    statistics.statistics.journal_full = true;
    assert_int_equal(report(f, 0, statistics), ERR_OK);
    assert_string_equal(status(f).reason,
                        "it waits for room: server s0 could not write its journal of gradients: no "
                        "space left on device");
    wait_alive(f, 3 * LEASE_MS);
    assert_non_null(
        strstr(seen(f, EFFECT_LOG)->log.text, "server s0 has no room on its disk for its journal"));
    statistics.statistics.journal_full = false;
    assert_int_equal(report(f, 0, statistics), ERR_OK);
    wait_alive(f, LEASE_MS / 4);
    assert_null(strstr(status(f).reason, "room"));
}

TEST_F(a_new_start_of_a_server_has_said_nothing_of_room, coordinator, .steps = 5, .workers = 1)
{
    struct server_report statistics = {.kind = SERVER_STATISTICS};
    statistics.statistics.journal_full = true;
    assert_int_equal(report(f, 0, statistics), ERR_OK);
    lose_server(f, 0);
    hello(f, 0, 1);
    assert_null(strstr(status(f).reason, "room"));
}

TEST_F(it_is_logged_once_a_minute, coordinator, .steps = 5, .workers = 1)
{
    uint32_t lines = 0;
    step(f, 0);
    for (uint32_t i = 0; i < 4 * 100; i++) {
        wait_alive(f, LEASE_MS / 4);
        const struct effect *log = seen(f, EFFECT_LOG);
        lines += log != NULL && strstr(log->log.text, "run stands still") != NULL;
    }
    assert_int_equal(lines, 2); /* after 3 s and 63 s */
}
