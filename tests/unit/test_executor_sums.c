/* Which gradient sets a node's slots are computed into, and which are added when. */
#include "tests/unit/unit.h"

#include "worker/executor_sums.h"

struct sums_fixture {
    struct executor_sums sums;
    char text[256]; /* the additions of a unit, like "0+1 " */
};

static void sums_set_up(struct sums_fixture *f)
{
    assert_int_equal(executor_sums_init(&f->sums, 2, 8), ERR_OK);
}

static void sums_tear_down(struct sums_fixture *f)
{
    executor_sums_release(&f->sums);
}

static void finish(struct sums_fixture *f, uint32_t unit, uint32_t slot, bool last)
{
    struct executor_addition additions[TREE_LEVEL_MAX + 2];
    uint32_t count = executor_sums_finish(&f->sums, unit, slot, last, additions);
    for (uint32_t i = 0; i < count; i++) {
        size_t length = strlen(f->text);
        snprintf(f->text + length, sizeof f->text - length, "%u+%u ", additions[i].left,
                 additions[i].right);
    }
    strcat(f->text, "; ");
}

TEST_F(slots_one_by_one_are_a_binary_counter, sums)
{
    for (uint32_t slot = 0; slot < 8; slot++) {
        assert_int_equal(executor_sums_set(&f->sums, 0, 0), __builtin_popcount(slot));
        finish(f, 0, 0, slot == 7);
    }
    assert_string_equal(f->text, "; 0+1 ; ; 1+2 0+1 ; ; 1+2 ; ; 2+3 1+2 0+1 ; ");
    assert_int_equal(executor_sums_node(&f->sums, 0), 0);
}

/* As many as are taken at once, of nodes of any size. */
TEST_F(slots_one_by_one_have_the_sets_that_are_counted, sums)
{
    uint32_t most = 0;
    for (uint32_t slots = 1; slots <= 70; slots++) {
        struct executor_addition additions[TREE_LEVEL_MAX + 2];
        executor_sums_restart(&f->sums);
        for (uint32_t slot = 0; slot < slots; slot++) {
            executor_sums_set(&f->sums, 0, 0);
            uint32_t taken = (uint32_t)__builtin_popcountll(f->sums.units[0].taken);
            most = taken > most ? taken : most;
            executor_sums_finish(&f->sums, 0, 0, slot + 1 == slots, additions);
        }
        assert_int_equal(executor_sums_sets(slots), most);
    }
    assert_int_equal(executor_sums_sets(0), 0);
}

TEST_F(the_last_slot_adds_what_waits_where_slots_are_missing, sums)
{
    for (uint32_t slot = 0; slot < 7; slot++)
        finish(f, 0, 0, slot == 6);
    assert_string_equal(f->text, "; 0+1 ; ; 1+2 0+1 ; ; 1+2 ; 1+2 0+1 ; ");
}

/* As a pipeline begins them: sums have the same slots, in whatever sets. */
TEST_F(slots_that_are_under_way_together_have_sets_of_their_own, sums)
{
    for (uint32_t slot = 0; slot < 4; slot++)
        assert_int_equal(executor_sums_set(&f->sums, 0, slot), slot);
    assert_int_equal(executor_sums_set(&f->sums, 0, 2), 2);
    assert_int_equal(executor_sums_set(&f->sums, 1, 0), 0);
    for (uint32_t slot = 0; slot < 4; slot++)
        finish(f, 0, slot, slot == 3);
    assert_string_equal(f->text, "; 0+1 ; ; 2+3 0+2 ; ");
    executor_sums_restart(&f->sums);
    assert_int_equal(executor_sums_set(&f->sums, 0, 5), 0);
}

TEST_F(the_nodes_sum_is_where_its_first_slot_was, sums)
{
    assert_int_equal(executor_sums_set(&f->sums, 0, 1), 0);
    assert_int_equal(executor_sums_set(&f->sums, 0, 0), 1);
    finish(f, 0, 0, false);
    finish(f, 0, 1, true);
    assert_string_equal(f->text, "; 1+0 ; ");
    assert_int_equal(executor_sums_node(&f->sums, 0), 1);
}
