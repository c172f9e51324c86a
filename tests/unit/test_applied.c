#include "server/shard/applied.h"

#include "common/rand.h"
#include "tests/unit/unit.h"

enum { WINDOW = 128, TICKETS = 2000 };

static struct applied empty(uint64_t *words)
{
    struct applied applied = {0, WINDOW, words};
    applied_reset(&applied, 0);
    return applied;
}

TEST(each_ticket_is_taken_once_in_any_order)
{
    uint64_t words[WINDOW / 64];
    struct applied applied = empty(words);
    bool taken[TICKETS + WINDOW] = {false};
    struct rand_state rand = {7};
    for (uint32_t round = 0; round < 100000; round++) {
        uint64_t ticket = applied.low + rand_below(&rand, WINDOW + 20);
        ticket -= ticket > 10 ? rand_below(&rand, 10) : 0;
        if (ticket >= TICKETS)
            continue;
        enum applied_place place = applied_find(&applied, ticket);
        assert_int_equal(place == APPLIED_TAKEN, taken[ticket]);
        if (place == APPLIED_BEYOND)
            assert_true(ticket >= applied.low + WINDOW);
        if (place != APPLIED_NEW)
            continue;
        applied_add(&applied, ticket);
        taken[ticket] = true;
        applied_check(&applied);
        assert_int_equal(applied_find(&applied, ticket), APPLIED_TAKEN);
    }
    assert_int_equal(applied.low, TICKETS);
}

TEST(a_ticket_beyond_the_window_is_neither_new_nor_taken)
{
    uint64_t words[WINDOW / 64];
    struct applied applied = empty(words);
    applied_add(&applied, WINDOW - 1);
    assert_int_equal(applied_find(&applied, WINDOW), APPLIED_BEYOND);
    assert_int_equal(applied_find(&applied, UINT64_MAX), APPLIED_BEYOND);
    applied_add(&applied, 0);
    assert_int_equal(applied_find(&applied, WINDOW), APPLIED_NEW);
    assert_int_equal(applied_find(&applied, WINDOW + 1), APPLIED_BEYOND);
}

TEST(what_is_undone_may_be_taken_again)
{
    uint64_t words[WINDOW / 64];
    struct applied applied = empty(words);
    applied_reset(&applied, 40);
    applied_add(&applied, 44);
    applied_add(&applied, 36 + WINDOW);
    applied_undo(&applied, 44);
    applied_undo(&applied, 44);
    assert_int_equal(applied.low, 40);
    applied_undo(&applied, 35);
    applied_check(&applied);
    assert_int_equal(applied.low, 35);
    for (uint64_t ticket = 36; ticket < 40; ticket++)
        assert_int_equal(applied_find(&applied, ticket), APPLIED_TAKEN);
    for (uint64_t ticket = 40; ticket < 35 + WINDOW; ticket++)
        assert_int_equal(applied_find(&applied, ticket), APPLIED_NEW);
    applied_add(&applied, 35);
    assert_int_equal(applied.low, 40);
    assert_int_equal(applied_find(&applied, 36 + WINDOW), APPLIED_NEW); /* there was no room */
    applied_reset(&applied, 10 * WINDOW);
    applied_undo(&applied, 2);
    assert_int_equal(applied_find(&applied, 2), APPLIED_NEW);
    assert_int_equal(applied_find(&applied, 1 + WINDOW), APPLIED_TAKEN);
}

TEST(what_is_stored_is_loaded_again)
{
    uint64_t words[WINDOW / 64], again_words[WINDOW / 64], stored[WINDOW / 64];
    struct applied applied = empty(words), again = {0, WINDOW, again_words};
    struct rand_state rand = {3};
    applied_reset(&applied, 1000003);
    for (uint32_t i = 0; i < 60; i++) {
        uint64_t ticket = applied.low + 1 + rand_below(&rand, WINDOW - 1);
        if (applied_find(&applied, ticket) == APPLIED_NEW)
            applied_add(&applied, ticket);
    }
    applied_store(&applied, stored);
    assert_int_equal(applied_load(&again, applied.low, stored, WINDOW / 64), ERR_OK);
    assert_int_equal(again.low, applied.low);
    assert_memory_equal(again_words, words, sizeof words);
}

TEST(foreign_states_are_judged)
{
    uint64_t words[WINDOW / 64], stored[WINDOW / 64 + 1] = {0};
    struct applied applied = empty(words);
    assert_int_equal(applied_load(&applied, 5, stored, WINDOW / 64 + 1), ERR_MALFORMED);
    assert_int_equal(applied_load(&applied, UINT64_MAX, stored, 1), ERR_MALFORMED);
    stored[0] = 1;
    assert_int_equal(applied_load(&applied, 5, stored, 1), ERR_MALFORMED);
    stored[0] = 2;
    assert_int_equal(applied_load(&applied, 5, stored, 1), ERR_OK);
    assert_int_equal(applied_find(&applied, 6), APPLIED_TAKEN);
    assert_int_equal(applied_find(&applied, 7), APPLIED_NEW);
}

TEST(what_two_have_is_what_both_have)
{
    struct rand_state rand = {11};
    for (uint32_t round = 0; round < 200; round++) {
        uint64_t a_words[WINDOW / 64], b_words[WINDOW / 64], met_words[WINDOW / 64];
        struct applied a = empty(a_words), b = empty(b_words), met = {0, WINDOW, met_words};
        applied_reset(&a, rand_below(&rand, 100));
        applied_reset(&b, rand_below(&rand, 100));
        for (uint32_t i = 0; i < 150; i++) {
            struct applied *one = rand_below(&rand, 2) == 0 ? &a : &b;
            uint64_t ticket = one->low + rand_below(&rand, WINDOW);
            if (applied_find(one, ticket) == APPLIED_NEW)
                applied_add(one, ticket);
        }
        met.low = a.low;
        memcpy(met_words, a_words, sizeof a_words);
        applied_meet(&met, &b);
        applied_check(&met);
        for (uint64_t ticket = 0; ticket < met.low + WINDOW; ticket++)
            assert_int_equal(applied_find(&met, ticket) == APPLIED_TAKEN,
                             applied_find(&a, ticket) == APPLIED_TAKEN &&
                                 applied_find(&b, ticket) == APPLIED_TAKEN);
    }
}
