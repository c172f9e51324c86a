/* A server as its coordinator sees it: which commands count, and what is reported when. */
#include "tests/unit/unit.h"

#include "server/member/member.h"

enum { BOOT = 9, TERM = 3 };

struct world_fixture {
    uint32_t threads;             /* 0: two */
    uint64_t generation, version; /* that it has prepared; 0: nothing yet */
    struct server_member *member;
    struct member_effects effects; /* of the newest event */
};

static void world_tear_down(struct world_fixture *f)
{
    member_check(f->member);
    member_release(f->member);
    free(f->member);
}

/* ---- events ---- */

static void command(struct world_fixture *f, struct server_command command)
{
    if (command.boot == 0)
        command.boot = BOOT;
    if (command.term == 0)
        command.term = TERM;
    member_command(f->member, &command, &f->effects);
    member_check(f->member);
}

/* A generation that goes on from `version` of a cut, or from nothing. */
static struct server_command prepare_of(uint64_t generation, uint64_t version)
{
    static const struct chunk_range mine = {.first = 0, .count = 4};
    return (struct server_command){.kind = SERVER_PREPARE,
                                   .prepare = {.run = 1,
                                               .generation = generation,
                                               .from_cut = version > 0,
                                               .cut = {generation - 1, version},
                                               .spec = "spec",
                                               .checkpoint_dir = "/run",
                                               .restore = "",
                                               .range_count = 1,
                                               .ranges = &mine}};
}

static struct server_command commit_of(uint64_t generation, uint64_t step)
{
    return (struct server_command){.kind = SERVER_COMMIT,
                                   .commit = {.generation = generation, .step = step}};
}

static void thread_ready(struct world_fixture *f, uint32_t thread, uint64_t generation)
{
    const struct member_ready ready = {.thread = thread, .generation = generation};
    member_thread_ready(f->member, &ready, &f->effects);
    member_check(f->member);
}

static void thread_committed(struct world_fixture *f, uint32_t thread, uint64_t generation,
                             uint64_t step)
{
    const struct shard_statistics statistics = {.pushed_bytes = 10, .spared_bytes = 4};
    const struct member_committed committed = {thread, generation, step, &statistics};
    member_thread_committed(f->member, &committed, &f->effects);
    member_check(f->member);
}

static void cut_written(struct world_fixture *f, struct cut_name name)
{
    const uint8_t digest[WIRE_DIGEST_BYTES] = {1};
    member_cut_written(f->member, &(struct member_cut){name, 2, ERR_OK, digest}, &f->effects);
    member_check(f->member);
}

static void prepared(struct world_fixture *f, uint64_t generation, uint64_t version)
{
    command(f, prepare_of(generation, version));
    member_prepared(f->member, &(struct shard_async){0});
    for (uint32_t i = 0; i < f->member->thread_count; i++)
        thread_ready(f, i, generation);
}

static void world_set_up(struct world_fixture *f)
{
    f->member = malloc(sizeof *f->member);
    assert_non_null(f->member);
    member_init(f->member, BOOT, f->threads == 0 ? 2 : f->threads);
    if (f->generation > 0)
        prepared(f, f->generation, f->version);
}

/* ---- effects ---- */

static const struct server_report *reported(const struct world_fixture *f,
                                            enum server_report_kind kind)
{
    for (uint32_t i = 0; i < f->effects.count; i++) {
        const struct member_effect *effect = &f->effects.list[i];
        if (effect->kind == MEMBER_REPORT && effect->report.kind == kind) {
            assert_int_equal(effect->report.boot, BOOT); /* P3 */
            return &effect->report;
        }
    }
    return NULL;
}

static bool asked(const struct world_fixture *f, enum member_effect_kind kind)
{
    for (uint32_t i = 0; i < f->effects.count; i++)
        if (f->effects.list[i].kind == kind)
            return true;
    return false;
}

/* ---- the rules ---- */

TEST_F(p3_a_command_for_another_boot_is_dropped, world)
{
    struct server_command old = prepare_of(1, 0);
    old.boot = BOOT - 1;
    command(f, old);
    assert_int_equal(f->effects.count, 0);
    old.boot = BOOT + 1;
    command(f, old);
    assert_int_equal(f->effects.count, 0);
    assert_false(f->member->told);
}

TEST_F(p7_a_command_of_an_older_term_is_dropped_and_a_newer_term_is_kept, world, .generation = 1)
{
    struct server_command newer = {.kind = SERVER_ASK, .term = TERM + 1};
    command(f, newer);
    assert_non_null(reported(f, SERVER_HELD));
    command(f, prepare_of(2, 0)); /* of the old term */
    assert_int_equal(f->effects.count, 0);
    assert_int_equal(member_held(f->member).generation, 1);
    struct server_command again = prepare_of(2, 0);
    again.term = TERM + 1;
    command(f, again);
    assert_true(asked(f, MEMBER_PREPARE));
}

TEST_F(p7_who_is_asked_reports_what_it_holds_before_anything_else, world, .generation = 4,
       .version = 20)
{
    command(f, commit_of(4, 20));
    assert_true(asked(f, MEMBER_COMMIT));
    command(f, (struct server_command){.kind = SERVER_ASK});
    assert_int_equal(f->effects.list[0].report.kind, SERVER_HELD);
    assert_int_equal(f->effects.list[0].report.held.generation, 4);
    assert_true(f->effects.list[0].report.held.has_decision);
    assert_int_equal(f->effects.list[0].report.held.decision.step, 20);
    assert_non_null(reported(f, SERVER_READY));
    assert_true(asked(f, MEMBER_REPORT_REDUCED));
}

TEST_F(p7_who_is_not_ready_reports_that_it_holds_nothing, world)
{
    command(f, prepare_of(2, 8));
    thread_ready(f, 0, 2);
    command(f, (struct server_command){.kind = SERVER_ASK});
    assert_int_equal(reported(f, SERVER_HELD)->held.generation, 0);
    assert_null(reported(f, SERVER_READY));
}

TEST_F(p6_a_commit_is_acknowledged_when_all_threads_have_carried_it_out, world, .threads = 3,
       .generation = 1)
{
    command(f, commit_of(1, 0));
    thread_committed(f, 0, 1, 0);
    thread_committed(f, 2, 1, 0);
    assert_null(reported(f, SERVER_COMMITTED));
    thread_committed(f, 1, 1, 0);
    assert_int_equal(reported(f, SERVER_COMMITTED)->committed.step, 0);
    assert_int_equal(reported(f, SERVER_STATISTICS)->statistics.pushed_bytes, 30);
    assert_int_equal(reported(f, SERVER_STATISTICS)->statistics.spared_bytes, 12);
    thread_committed(f, 0, 1, 0); /* asked again: acknowledged again */
    assert_int_equal(reported(f, SERVER_COMMITTED)->committed.step, 0);
    thread_committed(f, 0, 1, 1);
    assert_null(reported(f, SERVER_COMMITTED));
    assert_int_equal(member_held(f->member).version, 1);
}

TEST_F(a_journal_that_waits_for_room_is_said_to_each_coordinator, world, .generation = 1)
{
    member_report_again(f->member, &f->effects);
    assert_null(reported(f, SERVER_STATISTICS));
    member_journal_full(f->member, true, &f->effects);
    assert_true(reported(f, SERVER_STATISTICS)->statistics.journal_full);
    member_report_again(f->member, &f->effects);
    assert_true(reported(f, SERVER_STATISTICS)->statistics.journal_full);
    member_journal_full(f->member, false, &f->effects);
    assert_false(reported(f, SERVER_STATISTICS)->statistics.journal_full);
}

TEST_F(p11_ready_names_the_newest_invitation, world)
{
    struct server_command invitation = prepare_of(4, 20);
    invitation.prepare.invitation = 7;
    command(f, invitation);
    member_prepared(f->member, &(struct shard_async){0});
    for (uint32_t i = 0; i < f->member->thread_count; i++)
        thread_ready(f, i, 4);
    assert_int_equal(reported(f, SERVER_READY)->ready.invitation, 7);
    invitation.prepare.invitation = 8; /* asked again: reported again */
    command(f, invitation);
    assert_int_equal(reported(f, SERVER_READY)->ready.invitation, 8);
}

TEST_F(p6_a_server_is_ready_when_all_threads_are, world)
{
    command(f, prepare_of(1, 0));
    assert_true(asked(f, MEMBER_PREPARE));
    member_prepared(f->member, &(struct shard_async){0});
    thread_ready(f, 1, 1);
    assert_int_equal(f->effects.count, 0);
    assert_false(member_loaded(f->member));
    thread_ready(f, 0, 1);
    assert_int_equal(f->effects.list[0].kind, MEMBER_SERVE);
    assert_int_equal(f->effects.list[0].generation, 1);
    assert_int_equal(reported(f, SERVER_READY)->ready.cut.generation, 1);
    assert_true(member_loaded(f->member));
}

TEST_F(p2_events_of_an_older_generation_count_for_nothing, world, .generation = 1)
{
    command(f, prepare_of(2, 0));
    thread_ready(f, 0, 1);
    thread_ready(f, 1, 1);
    assert_int_equal(f->effects.count, 0);
    thread_committed(f, 0, 1, 0);
    thread_committed(f, 1, 1, 0);
    assert_int_equal(f->effects.count, 0);
    cut_written(f, (struct cut_name){1, 0});
    assert_int_equal(f->effects.count, 0);
    assert_int_equal(member_held(f->member).version, 0);
}

/* A coordinator that has lost its store would number the next run's generations from 1. */
TEST_F(p2_the_highest_generation_that_was_prepared_is_known_after_its_run, world, .generation = 3)
{
    command(f, (struct server_command){.kind = SERVER_END});
    assert_int_equal(member_held(f->member).generation, 0);
    assert_int_equal(member_prepared_generation(f->member), 3);
    prepared(f, 2, 0);
    assert_int_equal(member_prepared_generation(f->member), 3);
    prepared(f, 4, 0);
    assert_int_equal(member_prepared_generation(f->member), 4);
}

TEST_F(p2_an_older_generation_is_not_prepared, world, .generation = 3)
{
    command(f, prepare_of(2, 0));
    assert_int_equal(f->effects.count, 0);
    assert_int_equal(member_held(f->member).generation, 3);
}

/* ---- what is reported again ---- */

TEST_F(a_generation_that_is_held_is_reported_ready_and_not_prepared_again, world, .generation = 1)
{
    command(f, prepare_of(1, 0));
    assert_false(asked(f, MEMBER_PREPARE));
    assert_non_null(reported(f, SERVER_READY));
}

/* It was stopped while it asked to end: PREPARE, LEAVE and PREPARE again come in one batch. */
TEST_F(p11_who_asked_to_end_and_may_takes_no_command_any_more, world, .generation = 2)
{
    member_drain(f->member, &f->effects);
    command(f, (struct server_command){.kind = SERVER_LEAVE});
    assert_true(f->member->may_leave);
    command(f, prepare_of(2, 0));
    assert_int_equal(f->effects.count, 0);
    command(f, prepare_of(3, 0));
    assert_int_equal(f->effects.count, 0);
    assert_int_equal(member_held(f->member).generation, 0);
}

/* The coordinator's own daemon stays when it is drained, and may get chunks again. */
TEST_F(p11_who_may_leave_without_having_asked_is_prepared_again, world, .generation = 2)
{
    command(f, (struct server_command){.kind = SERVER_LEAVE});
    command(f, prepare_of(2, 0));
    assert_true(asked(f, MEMBER_PREPARE));
}

TEST_F(a_new_connection_gets_all_that_may_have_been_lost, world, .generation = 2, .version = 5)
{
    member_report_again(f->member, &f->effects);
    assert_null(reported(f, SERVER_COMMITTED)); /* nothing since the cut */
    assert_null(reported(f, SERVER_MANIFEST));
    thread_committed(f, 0, 2, 5);
    thread_committed(f, 1, 2, 5);
    cut_written(f, (struct cut_name){2, 6});
    member_drain(f->member, &f->effects);
    assert_non_null(reported(f, SERVER_DRAIN));
    member_report_again(f->member, &f->effects);
    assert_int_equal(reported(f, SERVER_READY)->ready.cut.version, 6);
    assert_int_equal(reported(f, SERVER_COMMITTED)->committed.step, 5);
    assert_int_equal(reported(f, SERVER_MANIFEST)->manifest.cut.version, 6);
    assert_non_null(reported(f, SERVER_DRAIN));
}

TEST_F(the_end_leaves_nothing_to_report, world, .generation = 2)
{
    thread_committed(f, 0, 2, 0);
    thread_committed(f, 1, 2, 0);
    cut_written(f, (struct cut_name){2, 1});
    command(f, (struct server_command){.kind = SERVER_END});
    assert_true(asked(f, MEMBER_END));
    assert_int_equal(f->effects.list[0].kind, MEMBER_SERVE);
    assert_int_equal(f->effects.list[0].generation, 0);
    for (uint32_t i = 0; i < f->member->thread_count; i++)
        assert_int_equal(f->member->threads[i].committed, 0);
    member_report_again(f->member, &f->effects);
    assert_int_equal(f->effects.count, 1);
    assert_true(asked(f, MEMBER_REPORT_REDUCED));
    assert_true(member_loaded(f->member));
    assert_false(f->member->may_leave);
    command(f, (struct server_command){.kind = SERVER_LEAVE});
    assert_true(f->member->may_leave);
}

TEST_F(a_run_that_cannot_be_prepared_is_ready_with_its_error, world)
{
    struct reason reason;
    command(f, prepare_of(1, 0));
    ignore(reason_set(&reason, ERR_NOT_FOUND, "no such file")); /* the text is what counts */
    member_prepare_failed(f->member, ERR_NOT_FOUND, &reason, &f->effects);
    assert_int_equal(reported(f, SERVER_READY)->ready.code, ERR_NOT_FOUND);
    assert_string_equal(reported(f, SERVER_READY)->ready.text, "no such file");
    assert_false(member_loaded(f->member));
    command(f, (struct server_command){.kind = SERVER_ASK});
    assert_int_equal(reported(f, SERVER_HELD)->held.generation, 0);
}

TEST_F(the_first_thread_that_fails_names_the_error, world)
{
    struct reason reason;
    command(f, prepare_of(1, 0));
    ignore(reason_set(&reason, ERR_NOMEM, "first")); /* the text is what counts */
    struct member_ready ready = {.thread = 1, .generation = 1, .err = ERR_NOMEM, .reason = &reason};
    member_thread_ready(f->member, &ready, &f->effects);
    ignore(reason_set(&reason, ERR_MALFORMED, "second")); /* the text is what counts */
    ready.thread = 0;
    ready.err = ERR_MALFORMED;
    member_thread_ready(f->member, &ready, &f->effects);
    assert_int_equal(reported(f, SERVER_READY)->ready.code, ERR_NOMEM);
    assert_string_equal(reported(f, SERVER_READY)->ready.text, "first");
}

TEST_F(an_async_run_cuts_and_prunes_its_journal_too, world)
{
    command(f, prepare_of(1, 0));
    member_prepared(f->member, &(struct shard_async){.on = true, .window = 8});
    thread_ready(f, 0, 1);
    thread_ready(f, 1, 1);
    assert_true(reported(f, SERVER_READY)->ready.applied_low == UINT64_MAX); /* it has no chunks */
    struct server_command cut = commit_of(1, 4);
    cut.commit.cut = true;
    command(f, cut);
    assert_int_equal(f->effects.list[0].kind, MEMBER_JOURNAL_CUT); /* before the threads commit */
    assert_int_equal(f->effects.list[0].version, 5);
    assert_int_equal(f->effects.list[1].kind, MEMBER_COMMIT);
    cut.attempt = 1; /* at the same cut: the journal's part is cut off already */
    command(f, cut);
    assert_int_equal(f->effects.list[0].kind, MEMBER_COMMIT);
    command(f, (struct server_command){.kind = SERVER_RECORDED, .recorded = {1, 5}});
    assert_int_equal(f->effects.list[0].kind, MEMBER_PRUNE);
    assert_int_equal(f->effects.list[1].kind, MEMBER_JOURNAL_PRUNE);
}

static const struct member_effect *admitted(const struct world_fixture *f)
{
    for (uint32_t i = 0; i < f->effects.count; i++)
        if (f->effects.list[i].kind == MEMBER_ADMIT)
            return &f->effects.list[i];
    return NULL;
}

TEST_F(members_are_judged_by_the_newest_term_s_key, world)
{
    struct server_command ask = {.kind = SERVER_ASK, .key = {1}};
    command(f, ask);
    assert_int_equal(admitted(f)->admit.term, TERM);
    assert_int_equal(admitted(f)->admit.run, 0);
    assert_int_equal(admitted(f)->admit.key[0], 1);
    struct server_command prepare = prepare_of(1, 0);
    prepare.key[0] = 1;
    command(f, prepare);
    assert_int_equal(admitted(f)->admit.run, 1);
    command(f, ask);
    assert_null(admitted(f)); /* nothing new */
    ask.term = TERM - 1;
    ask.key[0] = 9;
    command(f, ask);
    assert_null(admitted(f)); /* P7 */
    ask.term = TERM + 1;
    command(f, ask);
    assert_int_equal(admitted(f)->admit.term, TERM + 1);
    assert_int_equal(admitted(f)->admit.run, 1);
    assert_int_equal(admitted(f)->admit.key[0], 9);
}

TEST_F(moves_that_are_lost_are_not_reported_as_held, world, .generation = 1)
{
    command(f, commit_of(1, 0));
    member_moves_lost(f->member);
    command(f, (struct server_command){.kind = SERVER_ASK});
    assert_int_equal(reported(f, SERVER_HELD)->held.generation, 0);
}
