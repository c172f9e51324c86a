/* Leases, found in several orders. */
#include "tests/unit/unit.h"

#include "server/coordinator/leases.h"

enum { LEASES = 8, ALICE = 1, BOB = 2 };

static struct leases leases_of_eight(void)
{
    struct leases leases;
    assert_int_equal(leases_init(&leases, LEASES, 100), ERR_OK);
    return leases;
}

static struct lease slot_of(uint32_t index, uint64_t member, uint64_t granted_ms)
{
    return (struct lease){.kind = TICKET_TRAIN,
                          .node = {0, index},
                          .slots = 1,
                          .member = member,
                          .granted_ms = granted_ms};
}

static struct lease *add(struct leases *leases, struct lease lease, struct lease *twin)
{
    struct lease *added = leases_add(leases, &lease, twin);
    leases_check(leases);
    return added;
}

/* Slots are class 1 (leases.c). */
static const uint32_t SLOT_CLASS = 1;

TEST(a_lease_is_found_by_its_attempt_until_it_ends)
{
    scoped(leases_release) struct leases leases = leases_of_eight();
    struct lease *a = add(&leases, slot_of(0, ALICE, 0), NULL);
    struct lease *b = add(&leases, slot_of(1, BOB, 1), NULL);
    assert_int_equal(a->attempt, 101);
    assert_ptr_equal(leases_find(&leases, 102), b);
    leases_remove(&leases, a);
    assert_null(leases_find(&leases, 101));
    assert_int_equal(add(&leases, slot_of(0, ALICE, 2), NULL)->attempt, 103);
    assert_int_equal(leases.used, 2); /* in the place of the one that ended */
}

TEST(a_members_leases_are_counted_and_found_whichever_ends_first)
{
    scoped(leases_release) struct leases leases = leases_of_eight();
    struct lease *held[3];
    for (uint32_t i = 0; i < 3; i++) {
        held[i] = add(&leases, slot_of(i, ALICE, i), NULL);
        add(&leases, slot_of(4 + i, BOB, i), NULL);
    }
    assert_int_equal(leases_count_of(&leases, ALICE), 3);
    leases_remove(&leases, held[0]);
    leases_check(&leases);
    assert_int_equal(leases_count_of(&leases, ALICE), 2);
    leases_remove(&leases, leases_of(&leases, ALICE));
    leases_remove(&leases, leases_of(&leases, ALICE));
    assert_null(leases_of(&leases, ALICE));
    assert_int_equal(leases_count_of(&leases, BOB), 3);
}

TEST(a_second_lease_on_a_node_puts_both_behind_those_out_longer)
{
    scoped(leases_release) struct leases leases = leases_of_eight();
    struct lease *a = add(&leases, slot_of(0, ALICE, 0), NULL);
    struct lease *b = add(&leases, slot_of(1, BOB, 1), NULL);
    struct lease *c = add(&leases, slot_of(0, BOB, 2), a);
    assert_ptr_equal(leases_longest_out(&leases, SLOT_CLASS), b);
    assert_ptr_equal(leases_next_out(&leases, b), a);
    assert_ptr_equal(leases_next_out(&leases, a), c);
    assert_null(leases_next_out(&leases, c));
    assert_ptr_equal(leases_oldest(&leases, SLOT_CLASS), a); /* that one lapses first */
    leases_remove(&leases, c);
    leases_check(&leases);
    assert_ptr_equal(leases_longest_out(&leases, SLOT_CLASS), b);
}

TEST(a_node_that_is_done_is_not_out_until_it_is_again)
{
    scoped(leases_release) struct leases leases = leases_of_eight();
    struct lease *a = add(&leases, slot_of(0, ALICE, 0), NULL);
    struct lease *b = add(&leases, slot_of(1, BOB, 1), NULL);
    struct lease *c = add(&leases, slot_of(2, BOB, 2), NULL);
    leases_not_out(b);
    leases_not_out(a);
    assert_ptr_equal(leases_longest_out(&leases, SLOT_CLASS), c);
    leases_out_again(&leases, a);
    leases_out_again(&leases, b);
    leases_out_again(&leases, b);
    leases_check(&leases);
    assert_ptr_equal(leases_longest_out(&leases, SLOT_CLASS), a);
    assert_ptr_equal(leases_next_out(&leases, a), b);
    assert_ptr_equal(leases_next_out(&leases, b), c);
}

TEST(nodes_of_as_many_slots_are_a_class)
{
    scoped(leases_release) struct leases leases = leases_of_eight();
    struct lease pair = {.kind = TICKET_TRAIN, .node = {1, 0}, .slots = 2, .member = ALICE};
    struct lease shorter = {.kind = TICKET_TRAIN, .node = {1, 1}, .slots = 1, .member = ALICE};
    struct lease piece = {.kind = TICKET_VALIDATE, .slots = 1, .member = ALICE};
    add(&leases, pair, NULL);
    add(&leases, shorter, NULL);
    add(&leases, piece, NULL);
    assert_int_equal(leases_oldest(&leases, 0)->kind, TICKET_VALIDATE);
    assert_null(leases_oldest(&leases, SLOT_CLASS));
    assert_int_equal(leases_oldest(&leases, 3)->slots, 2);
    assert_int_equal(leases_oldest(&leases, 4)->slots, 1);
}

TEST(a_lease_that_begins_anew_is_behind_the_others)
{
    scoped(leases_release) struct leases leases = leases_of_eight();
    struct lease *a = add(&leases, slot_of(0, ALICE, 0), NULL);
    struct lease *b = add(&leases, slot_of(1, BOB, 1), NULL);
    struct lease *c = add(&leases, slot_of(0, BOB, 2), a);
    leases_not_out(b);
    leases_renew(&leases, b, 3); /* its node is done: it stays so */
    leases_check(&leases);
    leases_renew(&leases, a, 4);
    leases_check(&leases);
    assert_ptr_equal(leases_oldest(&leases, SLOT_CLASS), c);
    assert_ptr_equal(leases_longest_out(&leases, SLOT_CLASS), a); /* and c, its twin */
    leases_out_again(&leases, b);
    leases_check(&leases);
    assert_ptr_equal(leases_longest_out(&leases, SLOT_CLASS), b);
}
