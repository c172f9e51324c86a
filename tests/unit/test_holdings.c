/* What a server tells a new coordinator of what it holds. */
#include "tests/unit/unit.h"

#include "server/member/holdings.h"

static const struct chunk_range ranges[] = {{0, 2, 0}, {2, 3, 1}, {5, 1, 0}};

static struct server_command prepare_of(uint64_t generation)
{
    struct server_command command = {.kind = SERVER_PREPARE};
    command.prepare.run = 7;
    command.prepare.generation = generation;
    command.prepare.from_cut = true;
    command.prepare.cut = (struct cut_name){1, 12};
    command.prepare.spec = "train: {}";
    command.prepare.checkpoint_dir = "checkpoints";
    command.prepare.range_count = 3;
    command.prepare.ranges = ranges;
    return command;
}

static struct server_command commit_of(uint64_t generation, uint64_t step)
{
    return (struct server_command){.kind = SERVER_COMMIT,
                                   .commit = {.generation = generation, .step = step}};
}

TEST(it_says_its_own_chunks_and_where_it_began)
{
    struct holdings holdings = {0};
    struct server_command prepare = prepare_of(3);
    assert_int_equal(holdings.told.generation, 0);
    holdings_prepare(&holdings, &prepare);
    assert_int_equal(holdings.told.run, 7);
    assert_int_equal(holdings.told.generation, 3);
    assert_int_equal(holdings.told.version, 12);
    assert_int_equal(holdings.told.range_count, 2);
    assert_int_equal(holdings.told.ranges[1].first, 5);
    assert_int_equal(holdings.told.ranges[1].count, 1);
    assert_int_equal(holdings.told.spec, holdings_spec("train: {}", "checkpoints"));
    assert_int_not_equal(holdings.told.spec, holdings_spec("train: {}", "elsewhere"));
    assert_false(holdings.told.has_decision);
    holdings_end(&holdings);
    assert_int_equal(holdings.told.generation, 0);
}

TEST(the_newest_decision_of_its_generation_counts)
{
    scoped(holdings_release) struct holdings holdings = {0};
    struct server_command prepare = prepare_of(3), commit = commit_of(3, 12);
    holdings_prepare(&holdings, &prepare);
    holdings_commit(&holdings, &commit);
    assert_true(holdings.told.has_decision);
    assert_int_equal(holdings.told.decision.step, 12);
    commit = commit_of(3, 13);
    holdings_commit(&holdings, &commit);
    commit = commit_of(3, 12); /* said again */
    holdings_commit(&holdings, &commit);
    commit = commit_of(2, 20);
    holdings_commit(&holdings, &commit);
    assert_int_equal(holdings.told.decision.step, 13);
    prepare = prepare_of(4);
    holdings_prepare(&holdings, &prepare);
    assert_false(holdings.told.has_decision);
}

TEST(the_newest_attempt_at_its_cut_is_said)
{
    scoped(holdings_release) struct holdings holdings = {0};
    struct server_command prepare = prepare_of(3), commit = commit_of(3, 12);
    holdings_prepare(&holdings, &prepare);
    commit.file = 1;
    holdings_commit(&holdings, &commit);
    assert_int_equal(holdings.told.file, WIRE_FILE_NONE);
    commit = commit_of(3, 13);
    commit.commit.cut = true;
    commit.file = 1;
    holdings_commit(&holdings, &commit);
    commit.attempt = 2;
    holdings_commit(&holdings, &commit);
    commit.commit.cut = false; /* a successor repeats the decision */
    commit.attempt = 0;
    holdings_commit(&holdings, &commit);
    assert_int_equal(holdings.told.file, 1);
    assert_int_equal(holdings.told.attempt, 2);
}

/* One goes, two come, at version 13. */
TEST(chunks_belong_to_whom_the_newest_decision_gives_them)
{
    const struct server_move moves[] = {{0, 1, "elsewhere:1"}, {6, 2, ""}};
    scoped(holdings_release) struct holdings holdings = {0};
    struct server_command prepare = prepare_of(3), commit = commit_of(3, 12);
    holdings_prepare(&holdings, &prepare);
    commit.move_count = 2;
    commit.moves = moves;
    holdings_commit(&holdings, &commit);
    holdings_commit(&holdings, &commit); /* said again */
    assert_int_equal(holdings.told.generation, 3);
    assert_int_equal(holdings.told.range_count, 2);
    assert_int_equal(holdings.told.ranges[0].first, 1);
    assert_int_equal(holdings.told.ranges[0].count, 1);
    assert_int_equal(holdings.told.ranges[1].first, 5);
    assert_int_equal(holdings.told.ranges[1].count, 3);
    prepare = prepare_of(4);
    holdings_prepare(&holdings, &prepare);
    assert_int_equal(holdings.told.ranges[0].count, 2);
}

TEST(who_joins_owns_what_comes)
{
    const struct server_move comes = {4, 1, ""};
    scoped(holdings_release) struct holdings holdings = {0};
    struct server_command prepare = prepare_of(3), commit = commit_of(3, 12);
    prepare.prepare.from_cut = false;
    prepare.prepare.joins = true;
    holdings_prepare(&holdings, &prepare);
    assert_int_equal(holdings.told.generation, 3);
    assert_int_equal(holdings.told.version, 12);
    assert_int_equal(holdings.told.range_count, 0);
    commit.move_count = 1;
    commit.moves = &comes;
    holdings_commit(&holdings, &commit);
    assert_int_equal(holdings.told.range_count, 1);
    assert_int_equal(holdings.told.ranges[0].first, 4);
    assert_int_equal(holdings_answer(&holdings, 12).generation, 0); /* is on its way, or not */
    assert_int_equal(holdings_answer(&holdings, 13).generation, 3);
    commit = commit_of(3, 13);
    holdings_commit(&holdings, &commit);
    assert_int_equal(holdings_answer(&holdings, 13).generation, 3);
}
