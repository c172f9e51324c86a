/* Who sits where in a line of places. */
#include "tests/unit/unit.h"

#include "server/coordinator/seating.h"

#include "common/rand.h"

struct seating_fixture {
    uint32_t places;
    bool ring;
    struct unreachable apart;
    struct seating seating;
};

static void seating_set_up(struct seating_fixture *f)
{
    f->seating =
        (struct seating){.unreachable = &f->apart, .seats = f->places, .ranks = 1, .ring = f->ring};
}

static void seating_tear_down(struct seating_fixture *f)
{
    unreachable_check(&f->apart);
}

/* Candidates from `first` on, that have no weights. */
static void add(struct seating_fixture *f, uint64_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        seating_add(&f->seating,
                    &(struct candidate){.member = first + i, .seat = UINT32_MAX, .bound = false});
}

static void part(struct seating_fixture *f, uint64_t a, uint64_t b)
{
    for (uint32_t times = 0; times < UNREACHABLE_TIMES_MAX; times++)
        unreachable_note(&f->apart, a, b);
}

static bool fill_all(struct seating_fixture *f)
{
    return seating_fill(&f->seating, 0, f->places);
}

static void check_line(const struct seating_fixture *f, const uint64_t *members)
{
    for (uint32_t stage = 0; stage < f->places; stage++)
        assert_int_equal(f->seating.line[stage], members[stage]);
}

/* No two that are apart sit side by side, and everybody sits once. */
static void check_order(const struct seating_fixture *f)
{
    for (uint32_t stage = 0; stage < f->places; stage++) {
        assert_int_not_equal(f->seating.line[stage], 0);
        assert_true(seating_fits(&f->seating, stage, f->seating.line[stage]));
        for (uint32_t other = 0; other < stage; other++)
            assert_int_not_equal(f->seating.line[stage], f->seating.line[other]);
    }
}

TEST_F(a_stage_goes_to_who_has_its_weights, seating, .places = 3)
{
    seating_add(&f->seating, &(struct candidate){.member = 1, .seat = 2, .bound = false});
    seating_add(&f->seating,
                &(struct candidate){.member = 2, .seat = 7, .bound = false}); /* of another mesh */
    seating_add(&f->seating, &(struct candidate){.member = 3, .seat = UINT32_MAX, .bound = false});
    seating_add(&f->seating, &(struct candidate){.member = 4, .seat = 0, .bound = false});
    assert_true(fill_all(f));
    check_line(f, (const uint64_t[]){4, 3, 1});
}

TEST_F(who_computes_already_stays_at_its_stage_and_comes_last, seating, .places = 3)
{
    seating_add(&f->seating, &(struct candidate){.member = 1, .seat = 2, .bound = false});
    seating_add(&f->seating, &(struct candidate){.member = 2, .seat = 0, .bound = true});
    seating_add(&f->seating, &(struct candidate){.member = 3, .seat = 1, .bound = true});
    seating_add(&f->seating, &(struct candidate){.member = 4, .seat = 1, .bound = true});
    assert_true(fill_all(f));
    check_line(f, (const uint64_t[]){2, 3, 1}); /* 1 has another's weights, and no work */
}

TEST_F(who_brought_nothing_comes_after_all_others, seating, .places = 2)
{
    seating_add(&f->seating, &(struct candidate){.member = 1, .seat = 0, .brings_nothing = true});
    seating_add(&f->seating, &(struct candidate){.member = 2, .seat = 0, .brings_nothing = true});
    seating_add(&f->seating, &(struct candidate){.member = 3, .seat = 1, .bound = true});
    assert_true(fill_all(f));
    check_line(f, (const uint64_t[]){1, 3});
}

TEST_F(those_that_are_apart_do_not_sit_side_by_side, seating, .places = 3)
{
    add(f, 1, 4);
    part(f, 1, 2);
    assert_true(fill_all(f));
    check_line(f, (const uint64_t[]){1, 3, 2});
}

TEST_F(nobody_sits_in_a_stage_that_it_is_too_small_for, seating, .places = 3)
{
    seating_add(&f->seating, &(struct candidate){.member = 1, .seat = 1, .small = 1 << 0 | 1 << 1});
    seating_add(&f->seating, &(struct candidate){.member = 2, .seat = 2, .small = 1 << 2});
    seating_add(&f->seating, &(struct candidate){.member = 3, .seat = 0});
    assert_true(fill_all(f));
    check_line(f, (const uint64_t[]){3, 2, 1});
    assert_false(seating_too_small(&f->seating, 2, 1 << 0 | 1 << 1));
}

TEST_F(where_all_are_too_small_for_a_stage_there_is_no_order, seating, .places = 2)
{
    f->seating.ranks = 2; /* both seats are of one stage */
    seating_add(&f->seating, &(struct candidate){.member = 1, .seat = 0, .small = 1});
    seating_add(&f->seating, &(struct candidate){.member = 2, .seat = 1});
    assert_false(fill_all(f));
    add(f, 3, 1);
    assert_true(fill_all(f));
    check_line(f, (const uint64_t[]){3, 2});
}

TEST_F(an_earlier_choice_is_taken_back, seating, .places = 3)
{
    add(f, 1, 3);
    part(f, 1, 3);
    part(f, 1, 2); /* 1 fits nowhere … */
    assert_false(fill_all(f));
    check_line(f, (const uint64_t[]){0, 0, 0});
    unreachable_forget(&f->apart);
    part(f, 2, 3); /* … 1 fits between them alone */
    assert_true(fill_all(f));
    check_line(f, (const uint64_t[]){2, 1, 3});
}

TEST_F(in_a_ring_the_last_sits_beside_the_first, seating, .places = 4, .ring = true)
{
    add(f, 1, 4);
    part(f, 1, 4);
    assert_true(fill_all(f));
    check_order(f);
    check_line(f, (const uint64_t[]){1, 2, 4, 3});
}

TEST_F(who_sits_already_stays, seating, .places = 3)
{
    f->seating.line[1] = 9;
    add(f, 1, 3);
    part(f, 9, 1);
    assert_true(fill_all(f));
    check_line(f, (const uint64_t[]){2, 9, 3});
}

TEST_F(one_place_is_filled_where_all_cannot_be, seating, .places = 3)
{
    f->seating.line[1] = 9;
    add(f, 1, 1);
    assert_false(fill_all(f));
    assert_true(seating_fill(&f->seating, 0, 1));
    assert_false(seating_fill(&f->seating, 2, 3)); /* the only one sits */
    check_line(f, (const uint64_t[]){1, 9, 0});
}

/* Two groups of which nobody reaches the other: each alone is too small, and the search ends. */
TEST_F(a_search_in_vain_ends, seating, .places = 12)
{
    add(f, 1, 22);
    for (uint64_t a = 1; a <= 11; a++)
        for (uint64_t b = 12; b <= 22; b++)
            part(f, a, b);
    assert_false(fill_all(f));
    assert_int_equal(f->seating.tries, 0);
}

/* A place of four, half of which does not reach the other half: one half and two others. */
TEST_F(halves_that_do_not_reach_each_other_do_not_share_a_place, seating, .places = 4)
{
    f->seating.ranks = 4;
    add(f, 1, 4);
    for (uint64_t a = 1; a <= 2; a++)
        for (uint64_t b = 3; b <= 4; b++)
            part(f, a, b);
    assert_false(fill_all(f));
    add(f, 5, 2);
    assert_true(fill_all(f));
    check_order(f);
    check_line(f, (const uint64_t[]){1, 2, 5, 6});
}

TEST_F(with_many_more_than_are_apart_there_is_an_order, seating, .places = WIRE_PLACES_MAX,
       .ring = true)
{
    struct rand_state random = {0};
    add(f, 1, WIRE_PLACES_MAX + UNREACHABLE_MAX);
    for (uint32_t i = 0; i < UNREACHABLE_MAX; i++)
        part(f, 1 + rand_next(&random) % 8, 9 + rand_next(&random) % 180);
    assert_true(fill_all(f));
    check_order(f);
}
