/* Servers that come and go in an async run, as the coordinator sees them (P12). */
#include "tests/unit/moves_fixture.h"

/* Everybody reduces the open step, so the coordinator commits; all acknowledge. No chunk moves with
 * a commit. */
static void commit(struct moves_fixture *f)
{
    commit_said(f);
    assert_int_equal(f->move_count, 0);
    acknowledge(f);
}

static void ready_up_to(struct moves_fixture *f, uint32_t last)
{
    for (uint32_t i = 0; i <= last; i++)
        ready(f, i);
}

static void commit_cuts(struct moves_fixture *f, bool cuts)
{
    commit(f);
    assert_int_equal(f->commit.cut, cuts);
}

/* Server 1 drains, nothing was granted beyond step 0, whose cut is recorded: server 0 prepares. */
static void drain_until_change(struct moves_fixture *f)
{
    assert_int_equal(granted(f), 0);
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    commit_cuts(f, true);
    record(f, 1);
    assert_int_equal(owned(f, 0), CHUNKS);
}

/* Server 2 joins, and the cut of step 0 is recorded: all prepare. */
static void add_until_change(struct moves_fixture *f)
{
    connect(f, 2, 12);
    assert_int_equal(owned(f, 2), 0);
    ready(f, 2);
    commit_cuts(f, true);
    record(f, 1);
}

TEST_F(p12_before_chunks_move_a_cut_has_all_that_was_granted, moves, .trains = true, .async = true)
{
    for (uint64_t ticket = 0; ticket < 3; ticket++)
        assert_int_equal(granted(f), ticket);
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    assert_int_equal(granted(f), 3); /* step 1 is begun, */
    commit_cuts(f, false);
    assert_int_equal(granted(f), UINT64_MAX); /* step 2 is not */
    uint64_t generation = f->generation;
    commit_cuts(f, true);
    assert_int_equal(granted(f), UINT64_MAX);
    assert_int_equal(f->generation, generation);
    record(f, 2);
    assert_true(f->generation > generation);
}

TEST_F(p12_nothing_is_granted_before_the_first_cut_of_the_new_servers, moves, .trains = true,
       .async = true)
{
    drain_until_change(f);
    assert_true(f->players[0].cuts);
    ready(f, 0);
    assert_int_equal(granted(f), UINT64_MAX);
    assert_false(f->players[1].told_leave);
    record(f, 1);
    assert_true(f->players[1].told_leave);
    assert_int_equal(granted(f), 2);
    assert_int_equal(f->stored.server_count, 1);
    assert_string_equal(f->stored.servers[0].name, "s0");
    assert_int_equal(status(f).moves.servers_drained, 1);
    assert_int_equal(status(f).moves.servers_added, 0);
    assert_true(status(f).moves.chunks > 0);
    lose(f, 1);
    f->now_ms += 50;
    commit(f); /* nobody waits for it */
    assert_int_equal((uint64_t)status(f).moves.gap_ms_max, 50);
}

TEST_F(a_server_that_is_added_gets_its_share, moves, .trains = true, .async = true)
{
    add_until_change(f);
    assert_in_range(owned(f, 2), 1, 2);
    assert_int_equal(owned(f, 0) + owned(f, 1) + owned(f, 2), CHUNKS);
    ready_up_to(f, 2);
    record(f, 1);
    assert_int_equal(status(f).moves.servers_added, 1);
    assert_int_equal(granted(f), 2);
    uint64_t generation = f->generation;
    commit_cuts(f, false);
    assert_int_equal(f->generation, generation); /* even: nothing moves any more */
}

TEST_F(a_server_that_is_not_ready_gets_no_chunks_of_one_that_drains, moves, .trains = true,
       .async = true)
{
    connect(f, 2, 12);
    drain_until_change(f);
    assert_int_equal(owned(f, 2), 0);
}

TEST_F(one_that_would_get_nothing_is_not_worth_a_generation, moves)
{
    struct coordinator_run run = async_run();
    run.parameters = &(struct map_parameter){0, CHUNKS, 400, CHUNKS * 400};
    run.parameter_count = run.servers_min = 1;
    connect(f, 0, 10);
    start(f, &run, NULL);
    ready(f, 0);
    record(f, 0);
    connect(f, 1, 11);
    ready(f, 1);
    commit_cuts(f, false);
    assert_int_equal(drain(f, 0, NULL), ERR_OK); /* but it can take over */
    commit_cuts(f, true);
    record(f, 2);
    assert_int_equal(owned(f, 1), CHUNKS);
}

/* All chunks are server 0's. */
static void train_without_chunks_of_one(struct moves_fixture *f)
{
    struct coordinator_run run = async_run();
    run.parameters = &(struct map_parameter){0, CHUNKS, 400, CHUNKS * 400};
    run.parameter_count = 1;
    begin(f, &run, NULL);
    manifest(f, 0, 0, ERR_OK);
    manifest(f, 1, 0, ERR_OK);
}

TEST_F(p6_a_server_that_is_told_to_prepare_once_more_has_still_to_acknowledge, moves)
{
    train_without_chunks_of_one(f);
    restart(f, 1); /* the others go on */
    assert_int_equal(granted(f), 0);
    commit_said(f);
    acknowledge_one(f, 0, 0);
    f->now_ms += 2000; /* two leases: the command is repeated */
    coordinator_tick(f->coordinator, f->now_ms);
    look(f);
    assert_int_not_equal(granted(f), UINT64_MAX);
    f->committed = false;
    reduce(f, 0);
    assert_false(f->committed);
    ready(f, 1);
    acknowledge_one(f, 1, 0);
    assert_true(f->committed);
}

TEST_F(p12_a_worker_need_not_know_a_server_without_chunks, moves)
{
    train_without_chunks_of_one(f);
    assert_int_equal(granted(f), 0);
    const uint64_t boots[] = {10, 0};
    const struct complete_request done = {.member = f->member,
                                          .secret = f->secret,
                                          .ticket = f->ticket,
                                          .boot_count = 2,
                                          .boots = boots};
    assert_int_equal(coordinator_complete(f->coordinator, f->now_ms, &done), ERR_OK);
    look(f);
    assert_int_equal(granted(f), 1);
}

TEST_F(a_newcomer_that_vanishes_is_not_waited_for, moves, .trains = true, .async = true)
{
    connect(f, 2, 12);
    ready(f, 2);
    commit(f);
    lose(f, 2); /* before anything has changed: it goes on */
    record(f, 1);
    assert_int_equal(owned(f, 0) + owned(f, 1), CHUNKS);
    assert_int_equal(granted(f), 2);
    connect(f, 2, 13);
    ready(f, 2);
    commit_cuts(f, true);
    uint64_t generation = f->generation;
    record(f, 2);
    assert_true(f->generation > generation);
    assert_int_equal(status(f).version, 2);
    generation = f->generation;
    lose(f, 2); /* and in the middle: back to the old ones */
    assert_true(f->generation > generation);
    assert_int_equal(owned(f, 0) + owned(f, 1), CHUNKS);
    assert_false(f->players[0].cuts);
    ready_up_to(f, 1);
    assert_int_equal(granted(f), 4);
    assert_int_equal(status(f).moves.servers_added, 0);
}

TEST_F(p12_what_may_be_recorded_is_not_gone_back_from, moves, .trains = true, .async = true)
{
    add_until_change(f);
    ready_up_to(f, 2);
    f->store_is_slow = true;
    record(f, 1);
    uint64_t generation = f->generation;
    assert_int_equal(f->stored.server_count, 3); /* it is being stored */
    restart(f, 2);
    assert_int_equal(f->generation, generation);
    assert_int_equal(granted(f), UINT64_MAX);
    coordinator_cut_stored(f->coordinator, f->now_ms, f->stored.name, ERR_OK);
    look(f);
    ready(f, 2);
    assert_int_equal(granted(f), 2);
    commit(f);
}

TEST_F(when_a_cut_fails_training_goes_on_where_it_was, moves, .trains = true, .async = true)
{
    assert_int_equal(granted(f), 0);
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    commit(f);
    manifest(f, 0, 1, ERR_NO_SPACE);
    assert_int_equal(granted(f), 2); /* a step more, and another cut */
    commit_cuts(f, true);
    record(f, 2);
    assert_int_equal(owned(f, 0), CHUNKS);
    ready(f, 0);
    manifest(f, 0, 2, ERR_NO_SPACE); /* the new generation's own */
    assert_true(owned(f, 1) > 0);
    ready_up_to(f, 1);
    assert_int_equal(granted(f), 4);
    assert_false(f->players[1].told_leave);
}

TEST_F(p10_a_newcomer_that_is_lost_while_a_change_waits_for_room_is_not_waited_for, moves,
       .trains = true, .async = true)
{
    uint64_t generation = f->generation;
    f->rewind = ERR_NO_SPACE;
    add_until_change(f);
    assert_int_equal(f->generation, generation);
    f->rewind = ERR_OK;
    lose(f, 2);
    assert_int_equal(f->generation, generation + 1);
    assert_int_equal(owned(f, 2), 0);
    ready_up_to(f, 1);
    assert_int_equal(granted(f), 2);
}

TEST_F(p12_a_server_that_loses_its_memory_while_all_is_quiet_costs_a_step, moves, .trains = true,
       .async = true)
{
    assert_int_equal(granted(f), 0);
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    commit(f);
    restart(f, 0); /* its file of the cut may be there or not */
    ready(f, 0);
    acknowledge_one(f, 0, f->commit.step);
    assert_int_equal(granted(f), 2);
    commit_cuts(f, true);
    record(f, 2);
    assert_int_equal(owned(f, 0), CHUNKS);
}

TEST_F(who_cannot_read_the_others_files_keeps_its_own, moves, .trains = true, .async = true)
{
    struct reason reason;
    uint32_t share = owned(f, 1);
    drain_until_change(f);
    cannot_prepare(f, 0, ERR_NOT_FOUND, "no such file");
    assert_int_equal(owned(f, 1), share);
    ready_up_to(f, 1);
    assert_int_equal(granted(f), 2);
    assert_int_equal(drain(f, 1, &reason), ERR_INVALID);
    commit_cuts(f, false);
}

TEST_F(a_newcomer_that_cannot_read_the_cut_stays_out, moves, .trains = true, .async = true)
{
    add_until_change(f);
    cannot_prepare(f, 2, ERR_NOT_FOUND, "no such file");
    ready_up_to(f, 1);
    assert_int_equal(owned(f, 2), 0);
    assert_int_equal(granted(f), 2);
    commit_cuts(f, false);
    assert_int_equal(drain(f, 1, NULL), ERR_OK); /* the others can */
}

TEST_F(nobody_drains_when_nobody_could_take_the_chunks, moves, .trains = true, .async = true)
{
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    assert_int_equal(drain(f, 0, NULL), ERR_INVALID);
}

TEST_F(a_drain_that_the_end_meets_is_over_with_it, moves, .trains = true, .async = true)
{
    commit(f);
    assert_int_equal(granted(f), 2);
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    assert_int_equal(coordinator_stop(f->coordinator, f->now_ms, "told to"), ERR_OK);
    look(f);
    commit(f);
    record(f, 2);
    assert_int_equal(status(f).state, RUN_STOPPED);
    assert_true(f->players[1].told_leave);
}

TEST_F(p12_a_successor_begins_on_the_servers_of_the_cut_and_drains_then, moves)
{
    struct coordinator_run run = async_run();
    struct coordinator_past past = past_of("s0", "s1");
    connect(f, 1, 11);
    connect(f, 2, 12);
    start(f, &run, &past);
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    assert_int_equal(f->generation, 0); /* it waits for s0 */
    connect(f, 0, 10);
    assert_true(owned(f, 0) > 0);
    assert_true(owned(f, 1) > 0);
    assert_int_equal(owned(f, 2), 0);
    assert_false(f->players[0].cuts);
    ready_up_to(f, 2);
    commit_cuts(f, true);
    record(f, 8);
    assert_true(owned(f, 2) > 0);
    assert_int_equal(owned(f, 0) + owned(f, 2), CHUNKS);
}

TEST_F(p12_resumed_on_other_servers_a_run_begins_with_a_cut_of_theirs, moves)
{
    struct coordinator_run run = async_run();
    struct coordinator_past past = past_of("s0", "s2");
    run.restarts = false;
    connect(f, 0, 10);
    connect(f, 1, 11);
    start(f, &run, &past);
    assert_true(f->players[0].cuts && f->players[1].cuts);
    ready_up_to(f, 1);
    assert_int_equal(granted(f), UINT64_MAX);
    record(f, 7);
    assert_int_equal(granted(f), 14);
    assert_string_equal(f->stored.servers[1].name, "s1");
}
