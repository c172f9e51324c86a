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

static enum err parse(const char *text, const char *flag, struct spec *ret_spec)
{
    struct config_overrides overrides = {&flag, flag != NULL, NULL};
    return spec_parse(slice_of(text), "run.yaml", &overrides, ret_spec, NULL);
}

static bool is_admitted(const char *text, const char *flag)
{
    struct spec spec;
    return parse(text, flag, &spec) == ERR_OK;
}

static const char larger[] = "a larger train.node_slots", samples[] = "more train.slot_samples",
                  steps[] = "more consistency.local_steps",
                  above[] = "a train.node_slots above slots / tickets";

#define RUN "model: {kind: mlp}\ndata: {kind: spiral}\n"

/* What is advised of these settings. */
static const struct {
    const char *text, *advice;
} advices[] = {
    {RUN "train: {slots: 8, node_slots: 4}", larger},
    {RUN "train: {slots: 8, node_slots: 8}", samples},
    {RUN "train: {slots: 6, node_slots: 4}", samples},
    {RUN "train: {slots: 1, node_slots: 1}", samples},
    {RUN "train: {slots: 8}", above}, /* 1 would be larger than 0, and no help */
    {RUN "train: {slots: 1}", samples},
    {RUN "train: {slots: 8, precision: bf16}", larger},
    {RUN "train: {slots: 1, precision: bf16}", samples},
    {RUN "train: {slots: 8, compute: bf16}", above},
    {RUN "train: {slots: 8, node_slots: 4}\nactivations: {offload: true}", larger},
    {RUN "train: {slots: 8}\nconsistency: {kind: async}", samples},
    {RUN "train: {slots: 8}\nconsistency: {kind: local}", steps},
    {RUN "train: {slots: 8, node_slots: 2}\nmesh: {stage: 2}", larger},
    {RUN "train: {slots: 6, node_slots: 2}\nmesh: {stage: 2, schedule: chimera}", samples},
    {RUN "train: {slots: 8, pieces: 2}\nmesh: {tensor: 2}", above},
    /* Larger nodes would take the memory that streaming saves. */
    {RUN "train: {slots: 8}\nresidency: {weights: streamed}", samples},
    {RUN "train: {slots: 1}\nresidency: {weights: streamed}", samples},
    {RUN "train: {slots: 8, node_slots: 0}\nresidency: {weights: streamed}", samples},
    {RUN "train: {slots: 8}\nresidency: {weights: streamed}\nmesh: {stage: 2}", samples},
};

TEST(the_setting_that_helps_is_named)
{
    for (size_t i = 0; i < sizeof advices / sizeof advices[0]; i++) {
        struct spec spec;
        assert_int_equal(parse(advices[i].text, NULL, &spec), ERR_OK);
        const char *advice = push_cost_advice(&spec);
        bool of_nodes = advices[i].advice == larger || advices[i].advice == above;
        if (strstr(advice, advices[i].advice) == NULL ||
            (strstr(advice, "train.node_slots") != NULL) != of_nodes)
            fail_msg("%s\n%s", advices[i].text, advice);
    }
}

TEST(what_is_named_is_admitted)
{
    for (size_t i = 0; i < sizeof advices / sizeof advices[0]; i++) {
        struct spec spec;
        char twice[64];
        assert_int_equal(parse(advices[i].text, NULL, &spec), ERR_OK);
        const char *advice = push_cost_advice(&spec), *text = advices[i].text;
        snprintf(twice, sizeof twice, "train.node_slots=%u", 2 * spec.train.node_slots);
        bool local =
            spec.consistency.kind != SPEC_LOCAL && is_admitted(text, "consistency.kind=local");
        if (strstr(advice, larger) != NULL && !is_admitted(text, twice))
            fail_msg("%s\n%s", text, advice);
        if ((strstr(advice, "consistency.kind local") != NULL) != local)
            fail_msg("%s\n%s", text, advice);
    }
}
