/* When pushes cost more than what they bring. */
#include "worker/push_cost.h"

#include "tests/unit/unit.h"

#include <string.h>

struct push_cost_fixture {
    struct push_cost cost;
    struct push_cost_sums sums; /* of the warning */
    uint64_t now_ms, bytes;
};

static void push_cost_set_up(struct push_cost_fixture *f)
{
    f->bytes = PUSH_COST_BYTES;
}

static void push_cost_tear_down(struct push_cost_fixture *f)
{
    (void)f;
}

/* A ticket of two slots, in two messages, the second one of which is sent when it is computed. */
static bool complete(struct push_cost_fixture *f, uint64_t compute_ms, uint64_t push_ms)
{
    push_cost_begin(&f->cost, 2);
    f->now_ms += 7; /* it waits for weights, and computes */
    push_cost_push(&f->cost, f->now_ms, f->bytes - 10);
    push_cost_computed(&f->cost, compute_ms);
    push_cost_push(&f->cost, f->now_ms + push_ms / 2, 10);
    return push_cost_completed(&f->cost, f->now_ms += push_ms, &f->sums);
}

/* How many warnings that many tickets bring. */
static unsigned warnings(struct push_cost_fixture *f, unsigned tickets, uint64_t compute_ms,
                         uint64_t push_ms)
{
    unsigned said = 0;
    for (unsigned i = 0; i < tickets; i++)
        said += complete(f, compute_ms, push_ms) ? 1 : 0;
    return said;
}

TEST_F(tickets_that_push_longer_than_they_compute_are_said_once, push_cost)
{
    assert_int_equal(warnings(f, 7, 300, 301), 0); /* the first four are not judged */
    assert_true(complete(f, 300, 301));
    const struct push_cost_sums expected = {4, 8, 1200, 1204, 4 * PUSH_COST_BYTES};
    assert_memory_equal(&f->sums, &expected, sizeof expected);
    assert_int_equal(warnings(f, 100, 300, 3000), 0);
}

TEST_F(tickets_that_compute_for_as_long_are_not_said, push_cost)
{
    assert_int_equal(warnings(f, 100, 300, 300), 0);
    assert_int_equal(warnings(f, 4, 300, 301), 1);
}

TEST_F(what_few_bytes_cost_is_not_said, push_cost)
{
    f->bytes--;
    assert_int_equal(warnings(f, 100, 300, 3000), 0);
}

TEST_F(short_tickets_are_compared_for_a_second, push_cost)
{
    assert_int_equal(warnings(f, 99, 4, 6), 0); /* the first hundred are not judged */
    assert_int_equal(warnings(f, 100, 4, 6), 0);
    assert_true(complete(f, 4, 6));
    assert_int_equal(f->sums.tickets, 100);
}

TEST_F(a_ticket_that_is_not_completed_counts_for_nothing, push_cost)
{
    assert_int_equal(warnings(f, 7, 300, 301), 0);
    push_cost_begin(&f->cost, 2);
    push_cost_push(&f->cost, f->now_ms, 1000);
    f->now_ms += 100000;
    assert_true(complete(f, 300, 301));
    assert_int_equal(f->sums.push_ms, 1204);
}

TEST(the_setting_that_helps_is_named)
{
    struct spec spec = {.train = {.slots = 8, .node_slots = 4}};
    assert_non_null(strstr(push_cost_advice(&spec), "larger train.node_slots"));
    spec.train.node_slots = 8;
    assert_non_null(strstr(push_cost_advice(&spec), "more train.slot_samples"));
    spec.train.node_slots = 1;
    spec.consistency.kind = SPEC_ASYNC; /* a node is one slot there */
    assert_non_null(strstr(push_cost_advice(&spec), "more train.slot_samples"));
    spec.consistency.kind = SPEC_LOCAL;
    assert_non_null(strstr(push_cost_advice(&spec), "more consistency.local_steps"));
}
