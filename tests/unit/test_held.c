/* What a server tells a new coordinator of what it holds. */
#include "tests/unit/unit.h"

#include "server/member/held.h"

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
    struct held held = {0};
    struct server_command prepare = prepare_of(3);
    assert_int_equal(held.told.generation, 0);
    held_prepare(&held, &prepare);
    assert_int_equal(held.told.run, 7);
    assert_int_equal(held.told.generation, 3);
    assert_int_equal(held.told.version, 12);
    assert_int_equal(held.told.range_count, 2);
    assert_int_equal(held.told.ranges[1].first, 5);
    assert_int_equal(held.told.ranges[1].count, 1);
    assert_int_equal(held.told.spec, held_spec("train: {}", "checkpoints"));
    assert_int_not_equal(held.told.spec, held_spec("train: {}", "elsewhere"));
    assert_false(held.told.has_decision);
    held_end(&held);
    assert_int_equal(held.told.generation, 0);
}

TEST(the_newest_decision_of_its_generation_counts)
{
    struct held held = {0};
    struct server_command prepare = prepare_of(3), commit = commit_of(3, 12);
    held_prepare(&held, &prepare);
    held_commit(&held, &commit);
    assert_true(held.told.has_decision);
    assert_int_equal(held.told.decision.step, 12);
    commit = commit_of(3, 13);
    held_commit(&held, &commit);
    commit = commit_of(3, 12); /* said again */
    held_commit(&held, &commit);
    commit = commit_of(2, 20);
    held_commit(&held, &commit);
    assert_int_equal(held.told.decision.step, 13);
    prepare = prepare_of(4);
    held_prepare(&held, &prepare);
    assert_false(held.told.has_decision);
    held_release(&held);
}

/* One goes, two come, at version 13. */
TEST(chunks_belong_to_whom_the_newest_decision_gives_them)
{
    const struct server_move moves[] = {{0, 1, "elsewhere:1"}, {6, 2, ""}};
    struct held held = {0};
    struct server_command prepare = prepare_of(3), commit = commit_of(3, 12);
    held_prepare(&held, &prepare);
    commit.move_count = 2;
    commit.moves = moves;
    held_commit(&held, &commit);
    held_commit(&held, &commit); /* said again */
    assert_int_equal(held.told.generation, 3);
    assert_int_equal(held.told.range_count, 2);
    assert_int_equal(held.told.ranges[0].first, 1);
    assert_int_equal(held.told.ranges[0].count, 1);
    assert_int_equal(held.told.ranges[1].first, 5);
    assert_int_equal(held.told.ranges[1].count, 3);
    prepare = prepare_of(4);
    held_prepare(&held, &prepare);
    assert_int_equal(held.told.ranges[0].count, 2);
    held_release(&held);
}

TEST(who_joins_owns_what_comes)
{
    const struct server_move comes = {4, 1, ""};
    struct held held = {0};
    struct server_command prepare = prepare_of(3), commit = commit_of(3, 12);
    prepare.prepare.from_cut = false;
    prepare.prepare.joins = true;
    held_prepare(&held, &prepare);
    assert_int_equal(held.told.generation, 3);
    assert_int_equal(held.told.version, 12);
    assert_int_equal(held.told.range_count, 0);
    commit.move_count = 1;
    commit.moves = &comes;
    held_commit(&held, &commit);
    assert_int_equal(held.told.range_count, 1);
    assert_int_equal(held.told.ranges[0].first, 4);
    assert_int_equal(held_answer(&held, 12).generation, 0); /* is on its way, or not */
    assert_int_equal(held_answer(&held, 13).generation, 3);
    commit = commit_of(3, 13);
    held_commit(&held, &commit);
    assert_int_equal(held_answer(&held, 13).generation, 3);
    held_release(&held);
}
