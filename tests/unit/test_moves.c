/* Servers that come and go, as the coordinator sees them (P11). */
#include "tests/unit/moves_fixture.h"

/* All acknowledge the commit; who was told to write a file of its cut has written it. */
static void finish(struct moves_fixture *f)
{
    const struct commit commit = f->commit;
    bool told[SERVERS];
    memcpy(told, f->told, sizeof told);
    acknowledge(f);
    for (uint32_t i = 0; i < SERVERS && commit.cut; i++)
        if (told[i] && f->file[i] != WIRE_FILE_NONE)
            manifest(f, i, commit.step + 1, ERR_OK);
}

static void step(struct moves_fixture *f)
{
    commit_said(f);
    finish(f);
}

static void add_third(struct moves_fixture *f)
{
    connect(f, 2, 12);
    assert_int_equal(f->players[2].generation, f->generation);
    assert_int_equal(owned(f, 2), 0);
    ready(f, 2);
}

static enum err give_up(struct moves_fixture *f, uint32_t i)
{
    char name[8];
    snprintf(name, sizeof name, "s%u", i);
    enum err err = coordinator_give_up(f->coordinator, f->now_ms, name, NULL);
    look(f);
    return err;
}

TEST_F(a_server_that_joins_gets_its_even_share_with_a_commit, moves, .trains = true)
{
    step(f);
    uint64_t map_number = status(f).map_number;
    add_third(f);
    assert_int_equal(status(f).generation, f->generation);
    commit_said(f);
    assert_true(f->told[2]);
    assert_int_equal(owned(f, 0) + owned(f, 1) + owned(f, 2), CHUNKS);
    assert_in_range(owned(f, 2), 1, 2);
    assert_true(status(f).map_number > map_number);
    finish(f);
    uint32_t share = owned(f, 2);
    for (uint32_t i = 0; i < 3; i++)
        step(f);
    assert_int_equal(owned(f, 2), share); /* even: nothing moves any more */
    assert_int_equal(status(f).moves.commits, 1);
}

/* It drops what it holds when the invitation comes, also chunks that others had sent to it. */
TEST_F(p11_what_a_server_reported_before_it_was_invited_anew_is_not_its_answer, moves,
       .trains = true)
{
    connect(f, 2, 12);
    struct server_report early = {.kind = SERVER_READY,
                                  .ready = {.cut = {f->generation, status(f).version},
                                            .invitation = f->players[2].invitation}};
    lose(f, 2);
    connect(f, 2, 12); /* it holds the generation, but was not ready: it is to begin anew */
    report(f, 2, early);
    step(f);
    assert_int_equal(owned(f, 2), 0);
    assert_int_equal(f->move_count, 0);
    ready(f, 2);
    step(f);
    assert_in_range(owned(f, 2), 1, 2);
}

TEST_F(p6_the_next_commit_waits_for_the_new_owner, moves, .trains = true)
{
    add_third(f);
    commit_said(f);
    uint64_t step = f->commit.step;
    acknowledge_one(f, 0, step);
    acknowledge_one(f, 1, step);
    f->committed = false;
    for (uint32_t i = 0; i < SERVERS; i++)
        reduce(f, i);
    assert_false(f->committed); /* P6: its chunks are on their way */
    acknowledge_one(f, 2, step);
    assert_true(f->committed);
}

TEST_F(p11_no_chunk_moves_while_a_later_step_has_open_sums, moves)
{
    struct coordinator_run run = run_of_two();
    run.delay = 1;
    run.node_slots = 1;
    run.numerics_any = run.data_served = true;
    train_run(f, &run);
    add_third(f);
    for (uint64_t ticket = 0; ticket <= SLOTS; ticket++) /* the last is of step 1 */
        assert_int_equal(granted(f), ticket);
    commit_said(f);
    assert_int_equal(f->move_count, 0);
    acknowledge(f);
    commit_said(f);
    assert_true(f->move_count > 0);
}

TEST_F(p11_a_drained_server_leaves_when_a_cut_without_it_is_recorded, moves, .trains = true)
{
    step(f);
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    assert_false(f->drained.drained);
    assert_int_equal(f->drained.chunks_left, owned(f, 1));
    step(f); /* its chunks move */
    assert_int_equal(owned(f, 1), 0);
    assert_int_equal(owned(f, 0), CHUNKS);
    assert_false(f->players[1].told_leave);
    commit_said(f); /* a cut, of server 0 alone */
    assert_true(f->commit.cut);
    assert_false(f->told[1]);
    assert_int_equal(f->file[0], 0);
    assert_false(f->players[1].told_leave);
    finish(f);
    assert_true(f->players[1].told_leave);
    assert_int_equal(f->stored.server_count, 1);
    assert_string_equal(f->stored.servers[0].name, "s0");
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    assert_true(f->drained.drained);
    lose(f, 1);
    step(f); /* nobody waits for it */
    assert_int_equal(status(f).moves.servers_drained, 1);
}

/* Its place in the chunk map is free, and the last one's is not. */
TEST_F(p9_a_run_that_a_server_has_left_stops_with_a_cut_of_its_newest_version, moves,
       .trains = true)
{
    assert_int_equal(drain(f, 0, NULL), ERR_OK);
    step(f);
    step(f);
    assert_true(f->players[0].told_leave);
    lose(f, 0);
    step(f);
    const uint64_t newest = status(f).version;
    assert_true(f->stored.name.version < newest);
    assert_int_equal(coordinator_stop(f->coordinator, f->now_ms, "a test"), ERR_OK);
    coordinator_tick(f->coordinator, ++f->now_ms);
    look(f);
    assert_true(f->commit.cut);
    assert_int_equal(f->commit.step + 1, newest);
    finish(f);
    assert_int_equal(status(f).state, RUN_STOPPED);
    assert_int_equal(f->stored.name.version, newest);
}

/* s0 has left its place, took it again with the commit that was a cut as well, and was not in it: with
 * s0 in it the others would write other files, and one may not have heard that the cut failed. */
TEST_F(p9_a_stop_cuts_no_version_again_in_other_files, moves, .trains = true)
{
    add_third(f);
    step(f);
    assert_int_equal(drain(f, 0, NULL), ERR_OK);
    for (uint32_t i = 0; i < 3; i++)
        step(f);
    assert_true(f->players[0].told_leave);
    lose(f, 0);
    connect(f, 0, 30);
    ready(f, 0);
    assert_int_equal(coordinator_checkpoint(f->coordinator), ERR_OK);
    commit_said(f);
    assert_int_equal(f->file[0], WIRE_FILE_NONE);
    acknowledge(f);
    manifest(f, 1, status(f).version, ERR_IO);
    f->committed = false;
    assert_int_equal(coordinator_stop(f->coordinator, f->now_ms, "a test"), ERR_OK);
    coordinator_tick(f->coordinator, ++f->now_ms);
    look(f);
    assert_false(f->committed);
    assert_int_equal(status(f).state, RUN_STOPPED);
}

/* The newest cut, without server 1, is damaged; the older one has its file. */
TEST_F(p11_who_has_left_stays_when_the_run_goes_back_to_a_cut_with_its_file, moves, .trains = true)
{
    const struct cut_record older = f->stored;
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    step(f);
    step(f);
    assert_true(f->players[1].told_leave);
    restart(f, 0);
    cannot_prepare(f, 0, ERR_CORRUPT, "a test");
    f->players[1].told_leave = false;
    coordinator_cut_found(f->coordinator, f->now_ms, &older, "a test");
    look(f);
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    assert_false(f->drained.drained);
    lose(f, 1);
    connect(f, 1, 11); /* it has not heard that it may leave */
    assert_false(f->players[1].told_leave);
    ready(f, 0);
    step(f);
    assert_int_equal(f->stored.server_count, 1);
    assert_true(f->players[1].told_leave);
}

TEST_F(p11_who_has_left_stays_when_a_run_is_resumed_that_needs_its_file, moves)
{
    const struct coordinator_run run = run_of_two();
    const struct coordinator_past past = past_of("s0", "s2");
    connect(f, 0, 10);
    connect(f, 2, 12);
    assert_int_equal(drain(f, 2, NULL), ERR_OK);
    assert_true(f->players[2].told_leave);
    begin(f, &run, &past);
    connect(f, 2, 12);
    assert_false(f->players[2].told_leave);
    step(f);
    assert_true(f->players[2].told_leave);
}

/* Its newest cut may need anybody's file. */
TEST_F(p11_nobody_leaves_before_the_stored_run_goes_on, moves)
{
    const struct coordinator_run run = run_of_two();
    const struct coordinator_past past = past_of("s0", "s1");
    connect(f, 2, 12);
    coordinator_expect_run(f->coordinator, true);
    connect(f, 1, 11);
    assert_int_equal(drain(f, 1, NULL), ERR_BUSY);
    assert_int_equal(coordinator_give_up(f->coordinator, f->now_ms, "s0", NULL), ERR_BUSY);
    assert_false(f->players[1].told_leave);
    begin(f, &run, &past);
    ready(f, 2);
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    assert_false(f->drained.drained || f->players[1].told_leave);
}

static void ask_for_cut(struct moves_fixture *f)
{
    assert_int_equal(coordinator_checkpoint(f->coordinator), ERR_OK);
}

TEST_F(p11_nobody_leaves_before_the_store_has_the_runs_end, moves, .trains = true)
{
    f->state_is_late = true;
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    assert_int_equal(coordinator_stop(f->coordinator, f->now_ms, "a test"), ERR_OK);
    look(f);
    assert_int_equal(status(f).state, RUN_STOPPED);
    assert_int_equal(drain(f, 0, NULL), ERR_OK); /* although nobody could take its chunks */
    assert_false(f->players[0].told_leave || f->players[1].told_leave || f->drained.drained);
    coordinator_state_stored(f->coordinator);
    look(f);
    assert_true(f->players[0].told_leave && f->players[1].told_leave);
}

TEST_F(p11_nobody_leaves_a_run_that_is_paused, moves, .trains = true)
{
    assert_int_equal(coordinator_pause(f->coordinator, f->now_ms, "signal"), ERR_OK);
    look(f);
    assert_true(status(f).paused);
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    assert_false(f->players[1].told_leave);
}

TEST_F(p11_a_drained_server_stays_while_a_pending_cut_needs_its_file, moves, .trains = true)
{
    add_third(f);
    step(f);
    ask_for_cut(f);
    commit_said(f); /* the cut of version 2, with a file of the third */
    assert_int_not_equal(f->file[2], WIRE_FILE_NONE);
    acknowledge(f);
    assert_int_equal(drain(f, 2, NULL), ERR_OK);
    step(f);
    assert_int_equal(owned(f, 2), 0);
    commit_said(f); /* the cut of version 4, without it */
    assert_true(f->commit.cut);
    acknowledge(f);
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    assert_false(f->players[2].told_leave);
    for (uint32_t i = 0; i < SERVERS; i++)
        manifest(f, i, 2, ERR_OK);
    assert_int_equal(status(f).cut.version, 2);
    assert_false(f->players[2].told_leave);
    manifest(f, 0, 4, ERR_OK);
    manifest(f, 1, 4, ERR_OK);
    assert_int_equal(status(f).cut.version, 4);
    assert_true(f->players[2].told_leave);
}

/* A cut of version 1 that the store has not answered for. */
static void train_on_a_slow_store(struct moves_fixture *f)
{
    ask_for_cut(f);
    f->store_is_slow = true;
    step(f);
    assert_int_equal(f->stored.name.version, 1);
    assert_int_equal(status(f).cut.version, 0);
}

static void store(struct moves_fixture *f)
{
    coordinator_cut_stored(f->coordinator, f->now_ms, f->stored.name, ERR_OK);
    look(f);
}

TEST_F(p10_a_rewind_waits_until_it_is_known_which_cut_is_the_newest, moves, .trains = true)
{
    train_on_a_slow_store(f);
    uint64_t generation = f->generation;
    restart(f, 1);
    assert_int_equal(f->generation, generation);
    store(f);
    assert_true(f->generation > generation);
    assert_int_equal(status(f).version, 1);
}

TEST_F(p10_a_cut_that_is_recorded_after_a_server_is_given_up_brings_it_back_no_more, moves,
       .trains = true)
{
    train_on_a_slow_store(f);
    uint64_t generation = f->generation;
    lose(f, 1);
    assert_int_equal(give_up(f, 1), ERR_OK);
    assert_int_equal(f->generation, generation);
    store(f);
    assert_true(f->generation > generation);
    assert_int_equal(status(f).version, 1);
    assert_int_equal(owned(f, 0), CHUNKS);
    generation = f->generation;
    restart(f, 0);
    assert_true(f->generation > generation);
    assert_int_equal(owned(f, 0), CHUNKS);
}

TEST_F(p10_a_rewind_restores_the_servers_and_the_map_of_its_cut, moves, .trains = true)
{
    uint32_t share = owned(f, 1);
    add_third(f);
    step(f);
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    step(f);
    assert_int_equal(owned(f, 1), 0);
    uint64_t generation = f->generation;
    restart(f, 2); /* what was added is lost, and the newest cut, of version 0, does not know it */
    assert_true(f->generation > generation);
    assert_int_equal(status(f).version, 0);
    assert_int_equal(owned(f, 1), share);
    assert_int_equal(owned(f, 2), 0);
    ready(f, 0);
    ready(f, 1);
    assert_int_equal(status(f).state, RUN_TRAINING);
    ready(f, 2); /* it joins again */
    step(f);
    assert_int_equal(owned(f, 1), 0); /* and the drain goes on */
    assert_true(owned(f, 2) > 0);
}

/* The newest cut's map is that of others since s0 was given up, so the map stays as it is. */
TEST_F(p3_a_rewind_passes_over_the_place_of_a_server_that_has_left, moves, .trains = true)
{
    add_third(f);
    lose(f, 0);
    assert_int_equal(give_up(f, 0), ERR_OK);
    ready(f, 1);
    ready(f, 2);
    commit_said(f);
    assert_true(f->commit.cut);
    acknowledge(f);
    manifest(f, 1, 1, ERR_NO_SPACE);
    connect(f, 0, 20);
    ready(f, 0);
    assert_int_equal(drain(f, 2, NULL), ERR_OK);
    step(f);
    assert_int_equal(owned(f, 2), 0);
    assert_true(owned(f, 0) > 0);
    commit_said(f); /* its cut is not recorded yet */
    acknowledge(f);
    assert_true(f->players[2].told_leave); /* it was the second of three */
    uint64_t generation = f->generation;
    restart(f, 1);
    assert_true(f->generation > generation);
    assert_int_equal(owned(f, 0) + owned(f, 1), CHUNKS);
}

TEST_F(p10_a_rewind_restores_the_map_of_a_cut_that_is_recorded_before_it_begins, moves,
       .trains = true)
{
    step(f);
    add_third(f);
    step(f); /* chunks move to server 2 */
    assert_int_equal(coordinator_checkpoint(f->coordinator), ERR_OK);
    step(f);
    assert_int_equal(f->stored.server_count, 3);
    assert_int_equal(drain(f, 2, NULL), ERR_OK);
    step(f); /* … and back */
    commit_said(f);
    uint64_t version = f->commit.step + 1, generation = f->generation;
    acknowledge(f);
    manifest(f, 0, version, ERR_OK);
    lose(f, 2);
    restart(f, 0); /* a rewind to the cut of three, which waits for server 2 */
    assert_int_equal(f->generation, generation);
    manifest(f, 1, version, ERR_OK);
    assert_int_equal(f->stored.server_count, 2);
    assert_int_equal(f->generation, generation + 1);
    assert_int_equal(status(f).version, version);
    assert_int_equal(owned(f, 0) + owned(f, 1), CHUNKS);
}

TEST_F(nobody_drains_when_nobody_could_take_the_chunks, moves, .trains = true)
{
    assert_int_equal(drain(f, 2, NULL), ERR_NOT_FOUND);
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    assert_int_equal(drain(f, 0, NULL), ERR_INVALID);
    /* A daemon that is told to end may end all the same. */
    report(f, 0, (struct server_report){.kind = SERVER_DRAIN});
    assert_true(f->players[0].told_leave);
}

TEST_F(who_drained_by_itself_and_is_back_gets_a_share_again, moves, .trains = true)
{
    report(f, 1, (struct server_report){.kind = SERVER_DRAIN});
    step(f);
    step(f);
    assert_true(f->players[1].told_leave);
    lose(f, 1);
    connect(f, 1, 31);
    ready(f, 1);
    step(f);
    assert_true(owned(f, 1) > 0);
}

TEST_F(one_that_cannot_hold_the_run_stays_out, moves, .trains = true)
{
    connect(f, 2, 12);
    cannot_prepare(f, 2, ERR_NOMEM, "too small");
    step(f);
    assert_int_equal(status(f).state, RUN_TRAINING);
    assert_int_equal(owned(f, 2), 0);
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    assert_int_equal(drain(f, 0, NULL), ERR_INVALID); /* nor could it take chunks */
    lose(f, 2);
    step(f);
}

TEST_F(who_may_leave_is_told_so_until_it_has_heard, moves, .trains = true)
{
    connect(f, 2, 12);
    assert_int_equal(drain(f, 2, NULL), ERR_OK);
    assert_true(f->players[2].told_leave);
    connect(f, 2, 12); /* over a link that was broken then */
    assert_true(f->players[2].told_leave);
    lose(f, 2);
    connect(f, 2, 13); /* another start: it joins */
    assert_false(f->players[2].told_leave);
}

TEST_F(a_run_that_waits_for_servers_keeps_those_it_needs, moves)
{
    struct coordinator_run run = run_of_two();
    connect(f, 0, 10);
    start(f, &run, NULL);
    assert_int_equal(drain(f, 0, NULL), ERR_INVALID); /* it needs two */
}

TEST_F(a_run_does_not_begin_on_a_server_that_may_leave, moves)
{
    struct coordinator_run run = run_of_two();
    connect(f, 0, 10);
    assert_int_equal(drain(f, 0, NULL), ERR_OK); /* before there is a run */
    start(f, &run, NULL);
    connect(f, 1, 11);
    assert_int_equal(f->generation, 0); /* it waits for a second one */
    connect(f, 2, 12);
    assert_int_equal(f->players[0].generation, 0);
    assert_int_not_equal(f->players[2].generation, 0);
}

TEST_F(p11_a_server_of_the_newest_cut_waits_for_one_without_it, moves)
{
    struct coordinator_run run = run_of_two();
    struct coordinator_past past = past_of("s0", "s2");
    begin(f, &run, &past);
    connect(f, 2, 12); /* the run goes on without it, from its file */
    assert_int_equal(drain(f, 2, NULL), ERR_OK);
    assert_false(f->drained.drained);
    step(f);
    assert_true(f->players[2].told_leave);
}

/* From a cut of another start the map stays as it is: s1 has no chunks in it, and still has files of
 * the cut. */
static void rewind_beside_an_emptied_server(struct moves_fixture *f)
{
    struct coordinator_run run = run_of_two();
    struct coordinator_past past = past_of("s0", "s1");
    begin(f, &run, &past);
    assert_int_equal(drain(f, 1, NULL), ERR_OK);
    step(f);
    assert_int_equal(owned(f, 1), 0);
    commit_said(f); /* its cut, which would let the server go, is not recorded */
    acknowledge(f);
    restart(f, 0);
    ready(f, 0);
    assert_int_equal(status(f).state, RUN_TRAINING);
}

TEST_F(p11_an_emptied_server_that_cannot_prepare_does_not_fail_the_run, moves)
{
    rewind_beside_an_emptied_server(f);
    cannot_prepare(f, 1, ERR_CORRUPT, "g1-v0: block 3");
    assert_int_equal(status(f).state, RUN_TRAINING);
    step(f);
    assert_int_equal(owned(f, 0), CHUNKS);
}

TEST_F(p11_an_emptied_server_that_is_the_last_to_be_ready_changes_nothing, moves)
{
    rewind_beside_an_emptied_server(f);
    f->committed = false;
    ready(f, 1);
    assert_false(f->committed);
    step(f);
    assert_int_equal(owned(f, 0), CHUNKS);
}

TEST_F(p11_an_emptied_server_that_is_back_with_nothing_is_not_prepared, moves)
{
    rewind_beside_an_emptied_server(f);
    restart(f, 1);
    assert_int_equal(f->players[1].generation, 0); /* of its newest PREPARE */
    step(f);
    assert_int_equal(owned(f, 0), CHUNKS);
}

TEST_F(without_a_server_that_is_given_up_the_run_goes_back_to_its_cut_on_the_others, moves,
       .trains = true)
{
    step(f);
    assert_int_equal(give_up(f, 1), ERR_INVALID); /* it is there */
    uint64_t generation = f->generation;
    lose(f, 1);
    assert_int_equal(give_up(f, 1), ERR_OK);
    assert_int_equal(f->generation, generation + 1);
    assert_int_equal(status(f).version, 0);
    assert_int_equal(owned(f, 0), CHUNKS);
    ready(f, 0);
    step(f); /* with a cut that is nobody else's */
    assert_int_equal(f->stored.name.version, 1);
    assert_int_equal(f->stored.server_count, 1);
    assert_int_equal(status(f).moves.servers_drained, 1);
    connect(f, 1, 11); /* it was somewhere else only */
    ready(f, 1);
    step(f);
    assert_in_range(owned(f, 1), 1, CHUNKS - 1);
}

TEST_F(a_server_that_is_given_up_is_not_awaited_with_the_cut_that_names_it, moves, .trains = true)
{
    lose(f, 1);
    assert_int_equal(give_up(f, 1), ERR_OK);
    ready(f, 0);
    restart(f, 0); /* before there is another cut */
    assert_int_equal(owned(f, 0), CHUNKS);
    ready(f, 0);
    step(f);
    assert_int_equal(status(f).version, 1);
}

TEST_F(others_that_are_lost_are_awaited_when_one_is_given_up, moves, .trains = true)
{
    add_third(f);
    step(f);
    uint64_t generation = f->generation;
    lose(f, 0);
    lose(f, 1);
    assert_int_equal(give_up(f, 1), ERR_OK);
    assert_int_equal(f->generation, generation);
    connect(f, 0, 20);
    assert_int_equal(f->generation, generation + 1);
    assert_int_equal(owned(f, 0) + owned(f, 2), CHUNKS);
}

TEST_F(nobody_is_given_up_when_nobody_could_take_the_chunks, moves, .trains = true)
{
    lose(f, 0);
    lose(f, 1);
    assert_int_equal(give_up(f, 2), ERR_NOT_FOUND);
    assert_int_equal(give_up(f, 0), ERR_OK); /* the other one may come back */
    assert_int_equal(give_up(f, 1), ERR_INVALID);
    assert_int_equal(give_up(f, 0), ERR_OK); /* it is no more */
}
