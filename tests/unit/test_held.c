/* What a server tells a new coordinator of what it holds. */
#include "tests/unit/unit.h"

#include "server/held.h"

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

static void it_says_its_own_chunks_and_where_it_began(void **state)
{
    (void)state;
    struct held held = {0};
    struct server_command prepare = prepare_of(3);
    assert_int_equal(held.answer.generation, 0);
    held_prepare(&held, &prepare);
    assert_int_equal(held.answer.run, 7);
    assert_int_equal(held.answer.generation, 3);
    assert_int_equal(held.answer.version, 12);
    assert_int_equal(held.answer.range_count, 2);
    assert_int_equal(held.answer.ranges[1].first, 5);
    assert_int_equal(held.answer.spec, held_spec("train: {}", "checkpoints"));
    assert_int_not_equal(held.answer.spec, held_spec("train: {}", "elsewhere"));
    assert_false(held.answer.has_decision);
    held_end(&held);
    assert_int_equal(held.answer.generation, 0);
}

static void the_newest_decision_of_its_generation_counts(void **state)
{
    (void)state;
    struct held held = {0};
    struct server_command prepare = prepare_of(3), commit = commit_of(3, 12);
    held_prepare(&held, &prepare);
    held_commit(&held, &commit);
    assert_true(held.answer.has_decision);
    assert_int_equal(held.answer.decision.step, 12);
    commit = commit_of(3, 13);
    held_commit(&held, &commit);
    commit = commit_of(3, 12); /* said again */
    held_commit(&held, &commit);
    commit = commit_of(2, 20);
    held_commit(&held, &commit);
    assert_int_equal(held.answer.decision.step, 13);
    prepare = prepare_of(4);
    held_prepare(&held, &prepare);
    assert_false(held.answer.has_decision);
    held_release(&held);
}

static void chunks_that_move_make_it_say_nothing_until_the_next_generation(void **state)
{
    (void)state;
    struct held held = {0};
    struct server_command prepare = prepare_of(3), commit = commit_of(3, 12);
    held_prepare(&held, &prepare);
    commit.move_count = 1;
    held_commit(&held, &commit);
    assert_int_equal(held.answer.generation, 0);
    commit = commit_of(3, 13);
    held_commit(&held, &commit);
    assert_int_equal(held.answer.generation, 0);
    prepare = prepare_of(4);
    held_prepare(&held, &prepare);
    assert_int_equal(held.answer.generation, 4);
    prepare = prepare_of(5);
    prepare.prepare.joins = true;
    held_prepare(&held, &prepare);
    assert_int_equal(held.answer.generation, 0);
    held_release(&held);
}

static void a_decision_is_its_numbers_whoever_says_it(void **state)
{
    (void)state;
    const struct commit one = {.term = 1, .step = 3, .cut = true, .scale = 1, .samples = 8};
    struct commit other = one;
    other.term = 2;
    other.cut = false;
    assert_true(held_same_decision(&one, &other));
    other.scale = 2;
    assert_false(held_same_decision(&one, &other));
    other = one;
    other.skips_in_row = 1;
    assert_false(held_same_decision(&one, &other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_its_own_chunks_and_where_it_began),
        cmocka_unit_test(the_newest_decision_of_its_generation_counts),
        cmocka_unit_test(chunks_that_move_make_it_say_nothing_until_the_next_generation),
        cmocka_unit_test(a_decision_is_its_numbers_whoever_says_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
