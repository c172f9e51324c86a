/* Leases that follow each other without a flush, on a fake clock. */
#include "tests/unit/schedule_fixture.h"

#include "worker/program/mesh.h"
#include "worker/stream.h"

enum { STEPS = 5 };

/* Of five steps of so many nodes, in forwards of a place. */
static double time_of_nodes(struct schedule_fixture *f, uint32_t delay, uint32_t nodes)
{
    uint32_t units = f->shape.units, lanes[SCHEDULE_UNITS_MAX];
    struct simulate_cost costs[SCHEDULE_UNITS_MAX];
    const struct program_sizes sizes[SCHEDULE_UNITS_MAX] = {{0}};
    const struct simulate_options simulate = {.costs = costs, .sizes = sizes};
    const struct mesh mesh = {.places = f->shape.places, .runs = 1, .schedule = f->shape.schedule};
    const struct stream_options options = {&simulate, &mesh, lanes, delay, nodes, STEPS};
    uint64_t ends[STEPS];
    for (uint32_t unit = 0; unit < units; unit++)
        costs[unit] = (struct simulate_cost){TICKS, TICKS, TICKS};
    for (uint32_t place = 0; place < f->shape.places; place++)
        lanes[place] = mesh_lanes(&mesh, place, f->shape.microbatches, delay + 1);
    assert_int_equal(stream_simulate(&f->program, &options, ends), ERR_OK);
    for (uint32_t step = 1; step < STEPS; step++)
        assert_true(ends[step] > ends[step - 1]);
    return (double)ends[STEPS - 1] / TICKS;
}

static double time_of(struct schedule_fixture *f, uint32_t delay)
{
    return time_of_nodes(f, delay, 1);
}

TEST(with_a_flush_a_stream_takes_what_its_steps_take)
{
    struct schedule_fixture f = {.shape = {SCHEDULE_1F1B, 4, 1, 4, 8, 1}};
    schedule_set_up(&f);
    assert_true(time_of(&f, 0) == STEPS * 33);
    schedule_tear_down(&f);
}

/* PipeDream-2BW, d * M >= P - 1: places wait at both ends alone, 5 * 24 + 9. Workers with padded acts
 * took 0.805 of what they take with a flush; this is 0.782 of it. */
TEST(without_a_flush_places_wait_at_both_ends_alone)
{
    struct schedule_fixture f = {.shape = {SCHEDULE_1F1B, 4, 1, 4, 8, 1}};
    schedule_set_up(&f);
    assert_true(time_of(&f, 1) == STEPS * 24 + 9);
    assert_true(time_of(&f, 3) == STEPS * 24 + 9);
    schedule_tear_down(&f);
}

/* Also where a ticket has fewer microbatches than the pipeline has places: d * M >= P - 1. */
TEST(tickets_of_few_microbatches_fill_the_pipeline_together)
{
    static const struct {
        uint32_t microbatches, delay, time;
    } rows[] = {{1, 0, STEPS * 12},    {1, 1, 36},
                {1, 3, STEPS * 3 + 9}, {2, 2, STEPS * 6 + 9},
                {3, 1, STEPS * 9 + 9}, {4, 1, STEPS * 12 + 9}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct schedule_fixture f = {.shape = {SCHEDULE_1F1B, 4, 1, 4, rows[i].microbatches, 1}};
        schedule_set_up(&f);
        assert_int_equal((uint32_t)time_of(&f, rows[i].delay), rows[i].time);
        schedule_tear_down(&f);
    }
}

/* Who looked at all leases in each turn would take hours for so many. */
TEST(a_step_may_have_many_nodes)
{
    enum { NODES = 8192 };
    struct schedule_fixture f = {.shape = {SCHEDULE_1F1B, 4, 1, 4, 1, 1}};
    schedule_set_up(&f);
    assert_true(time_of_nodes(&f, 0, NODES) == STEPS * NODES * 12);
    assert_true(time_of_nodes(&f, 3, NODES) == STEPS * NODES * 3 + 9);
    schedule_tear_down(&f);
}
