/* A schedule's program, complete, and how it runs: each forward of a run takes 1, each backward 2. */
#ifndef ROOST_TESTS_UNIT_SCHEDULE_FIXTURE_H
#define ROOST_TESTS_UNIT_SCHEDULE_FIXTURE_H

#include "tests/unit/unit.h"

#include "common/program/passes.h"
#include "worker/program/schedule.h"
#include "worker/program/simulate.h"

enum { SCHEDULE_UNITS_MAX = 64, TICKS = 5040 }; /* 1 … 10 divide it */

struct schedule_fixture {
    struct schedule_shape shape;
    struct passes_options passes;
    bool equal; /* backward takes as long as forward */
    uint64_t boundary_bytes;
    uint32_t ranges; /* of a boundary's value; 0: 1 */
    struct program compute, program;
    struct simulate_result result;
};

/* Units are given to runs evenly; a run's forward takes TICKS / runs. */
static inline void schedule_costs(const struct schedule_fixture *f, const uint32_t *cuts,
                                  struct simulate_cost *ret_costs)
{
    uint32_t runs = f->shape.places * f->shape.runs;
    for (uint32_t run = 0; run < runs; run++)
        for (uint32_t unit = cuts[run]; unit < cuts[run + 1]; unit++) {
            uint64_t ticks = TICKS / f->shape.runs / (cuts[run + 1] - cuts[run]);
            ret_costs[unit] = (struct simulate_cost){ticks, f->equal ? 0 : ticks, ticks};
        }
}

static inline void schedule_set_up(struct schedule_fixture *f)
{
    uint32_t cuts[SCHEDULE_UNITS_MAX + 1], runs = f->shape.places * f->shape.runs;
    struct simulate_cost costs[SCHEDULE_UNITS_MAX];
    struct program_sizes sizes[SCHEDULE_UNITS_MAX];
    struct reason reason = {.text = ""};
    for (uint32_t run = 0; run <= runs; run++)
        cuts[run] = (uint32_t)((uint64_t)f->shape.units * run / runs);
    schedule_costs(f, cuts, costs);
    for (uint32_t unit = 0; unit < f->shape.units; unit++)
        sizes[unit] = (struct program_sizes){.output = f->boundary_bytes,
                                             .ranges = f->ranges,
                                             .saved = 1000,
                                             .dinput = f->boundary_bytes};
    if (schedule_judge(&f->shape, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    assert_int_equal(schedule_generate(&f->shape, cuts, &f->compute), ERR_OK);
    assert_int_equal(passes_complete(&f->compute, &f->passes, &f->program), ERR_OK);
    if (program_validate(&f->program, &reason) != ERR_OK)
        fail_msg("%s, %u places, %u runs, %u microbatches: %s", schedule_name(f->shape.schedule),
                 f->shape.places, f->shape.runs, f->shape.microbatches, reason.text);
    const struct simulate_options options = {.costs = costs, .sizes = sizes};
    assert_int_equal(simulate_program(&f->program, &options, &f->result), ERR_OK);
}

static inline void assert_idle_share(const struct schedule_fixture *f, double wanted)
{
    double off = simulate_idle_share(&f->result) - wanted;
    assert_true(off < 1e-12 && off > -1e-12);
}

static inline void schedule_tear_down(struct schedule_fixture *f)
{
    program_release(&f->compute);
    program_release(&f->program);
    simulate_release(&f->result);
}

#endif
