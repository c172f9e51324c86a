/* What a program needs of memory, and how a model is cut into stages. */
#include "tests/unit/executor_fixture.h"

#include "common/model/stages.h"
#include "common/program/passes.h"
#include "worker/executor.h"
#include "worker/plan.h"
#include "worker/program/mesh.h"

enum { UNITS_MAX = 16 };

/* The program of one place, as the generator of schedules makes it. */
static void one_place(const struct executor_fixture *f, uint32_t slots, struct program *ret_program)
{
    scoped(program_release) struct program compute = {0};
    const uint32_t cuts[] = {0, f->model.units_count};
    const struct schedule_shape shape = {.schedule = SCHEDULE_1F1B,
                                         .places = 1,
                                         .runs = 1,
                                         .units = f->model.units_count,
                                         .microbatches =
                                             slots * f->train.slot_samples / f->train.microbatch,
                                         .slots = slots};
    const struct passes_options passes = {.recompute = spec_recompute(&f->train)};
    assert_int_equal(schedule_generate(&shape, cuts, &compute), ERR_OK);
    assert_int_equal(passes_complete(&compute, &passes, ret_program), ERR_OK);
    assert_int_equal(program_validate(ret_program, NULL), ERR_OK);
}

static void needs_what_an_executor_takes(struct executor_fixture *f, uint32_t slots)
{
    scoped(program_release) struct program program = {0};
    scoped(simulate_release) struct simulate_result result = {0};
    struct program_sizes sizes[UNITS_MAX];
    struct simulate_cost costs[UNITS_MAX];
    struct plan_bytes bytes;
    const struct plan plan = {f->k, &f->model, &f->train};
    const struct simulate_options options = {.costs = costs, .sizes = sizes};
    assert_true(f->model.units_count <= UNITS_MAX);
    one_place(f, slots, &program);
    plan_sizes(&plan, sizes);
    assert_int_equal(plan_measure(&plan, costs, NULL), ERR_OK);
    assert_int_equal(simulate_program(&program, &options, &result), ERR_OK);
    assert_true(result.time > 0);
    assert_int_equal(plan_place(&plan, &program, &result, 0, &bytes), ERR_OK);
    const struct executor_memory taken = executor_memory(fixture_executor(f, slots));
    assert_int_equal(bytes.weights, taken.weights);
    assert_int_equal(bytes.gradients, taken.gradients);
    assert_int_equal(bytes.activations, taken.activations);
    if (slots == 1) {
        assert_int_equal(bytes.scratch, taken.scratch);
        assert_int_equal(bytes.device, taken.total);
    }
    assert_int_equal(bytes.host, 0);
    assert_int_equal(bytes.pulled, 4 * f->model.weights);
}

static void *no_room(const struct kernels *k, size_t bytes)
{
    (void)k, (void)bytes;
    return NULL;
}

static void full(const struct kernels *k, struct kernels_memory *ret_memory)
{
    (void)k;
    *ret_memory = (struct kernels_memory){.total = 5000, .free = 300, .reserved = 200};
}

TEST_F(a_unit_that_has_no_room_says_what_it_needs_and_what_helps, executor,
       .settings = fixture_mlp())
{
    struct simulate_cost costs[UNITS_MAX];
    struct kernels small = *f->k;
    struct reason reason = {.text = ""};
    const struct plan plan = {&small, &f->model, &f->train};
    small.alloc = no_room;
    assert_int_equal(plan_measure(&plan, costs, &reason), ERR_NOMEM);
    assert_non_null(strstr(reason.text, "out of memory: to measure unit 0 takes "));
    assert_non_null(strstr(reason.text, " bytes; a smaller train.microbatch or --uniform"));
    small.memory = full;
    assert_int_equal(plan_measure(&plan, costs, &reason), ERR_NOMEM);
    assert_non_null(strstr(reason.text, " bytes, and the device has 300 of 5000 free; a smaller"));
}

static struct spec_model many_words(void)
{
    struct spec_model settings = fixture_gpt();
    settings.vocabulary = 1000;
    return settings;
}

TEST_F(a_gpt_needs_what_its_executor_takes, executor, .settings = fixture_gpt())
{
    needs_what_an_executor_takes(f, 1);
    needs_what_an_executor_takes(f, 4);
    f->train.recompute = true;
    needs_what_an_executor_takes(f, 2);
}

/* The embedding's gradient is kept by rows in nodes of one slot and of four: 28 tokens each, and 112,
 * of 1,024 rows. Eight have too many. */
TEST_F(a_large_vocabulary_needs_what_its_executor_takes, executor, .settings = many_words())
{
    needs_what_an_executor_takes(f, 1);
    needs_what_an_executor_takes(f, 4);
    needs_what_an_executor_takes(f, 8);
}

TEST_F(an_mlp_needs_what_its_executor_takes, executor, .settings = fixture_mlp())
{
    needs_what_an_executor_takes(f, 1);
    needs_what_an_executor_takes(f, 8);
}

/* ---- one place ---- */

static enum err count_asked(void *context, uint32_t unit)
{
    (*(uint32_t(*)[UNITS_MAX])context)[unit]++;
    return ERR_OK;
}

/* Bytes that a node pulls: each parameter of a unit each time, but for the loss. */
static uint64_t pulls(struct executor_fixture *f, struct executor *executor, struct ticket ticket)
{
    uint32_t asked[UNITS_MAX] = {0};
    uint64_t bytes = 0;
    const struct executor_hooks hooks = {.context = asked, .ask = count_asked};
    assert_int_equal(executor_run(executor, &ticket, &f->samples, &hooks, NULL), ERR_OK);
    for (uint32_t unit = 0; unit < f->model.units_count; unit++) {
        const struct model_unit *about = &f->model.units[unit];
        for (uint32_t i = 0; i < about->uses_count; i++) {
            uint32_t parameter = f->model.uses[about->use_first + i].parameter;
            if (parameter != f->model.loss_parameter)
                bytes += asked[unit] * f->model.parameters[parameter].weights * sizeof(float);
        }
    }
    return bytes;
}

/* A node of `slots`, where the worker may be given one of `slots_max`. */
static void walks_what_an_executor_does(struct executor_fixture *f, struct plan_walks walks)
{
    scoped(program_release) struct program program = {0};
    scoped(simulate_release) struct simulate_result result = {0};
    struct program_sizes sizes[UNITS_MAX];
    const struct simulate_cost costs[UNITS_MAX] = {{0, 0, 0}};
    const struct simulate_options options = {.costs = costs, .sizes = sizes};
    const struct plan plan = {f->k, &f->model, &f->train};
    const struct mesh alone = mesh_alone(&f->train);
    const struct mesh_node slot = {1, f->train.slot_samples / f->train.microbatch};
    struct plan_bytes bytes;
    assert_true(f->model.units_count <= UNITS_MAX);
    assert_int_equal(mesh_training(&alone, &f->model, slot, &program, NULL), ERR_OK);
    plan_sizes(&plan, sizes);
    assert_int_equal(simulate_program(&program, &options, &result), ERR_OK);
    assert_int_equal(plan_alone(&plan, &program, &result, walks, &bytes), ERR_OK);
    struct executor *executor =
        fixture_executor_of(f, (struct executor_options){.node_slots_max = walks.slots_max});
    const struct executor_memory taken = executor_memory(executor);
    assert_int_equal(bytes.weights, taken.weights);
    assert_int_equal(bytes.gradients, taken.gradients);
    assert_int_equal(bytes.activations, taken.activations);
    assert_int_equal(bytes.device, taken.total);
    assert_int_equal(bytes.hosted, taken.hosted);
    if (alone.residency.streamed)
        assert_int_equal(bytes.pulled,
                         pulls(f, executor, fixture_ticket(0, tree_level(walks.slots), 0)));
}

TEST_F(a_node_in_one_place_is_planned_slot_by_slot, executor, .settings = fixture_gpt())
{
    for (int streamed = 0; streamed <= 1; streamed++) {
        f->train.residency.weights = streamed ? SPEC_STREAMED : SPEC_RESIDENT;
        f->train.residency.order = SPEC_BY_UNIT;
        walks_what_an_executor_does(f, (struct plan_walks){1, 1});
        walks_what_an_executor_does(f, (struct plan_walks){4, 4});
        walks_what_an_executor_does(f, (struct plan_walks){1, 6});
    }
}

/* ---- stages ---- */

static void cut(const double *operations, uint32_t units, uint32_t runs, const uint32_t *wanted)
{
    struct model_unit list[UNITS_MAX] = {0};
    const struct model model = {.units_count = units, .units = list};
    uint32_t cuts[UNITS_MAX + 1];
    for (uint32_t unit = 0; unit < units; unit++)
        list[unit].flops_forward = operations[unit];
    assert_true(stages_cut(&model, runs, 0, cuts));
    assert_memory_equal(cuts, wanted, (runs + 1) * sizeof *cuts);
}

/* Units of equal operations and these weights. */
static bool cut_weights(const uint32_t *weights, uint32_t units, uint32_t runs,
                        uint64_t weights_max, uint32_t *ret_cuts, uint64_t *ret_least)
{
    struct model_unit list[UNITS_MAX] = {0};
    struct model_parameter parameters[UNITS_MAX] = {0};
    const struct model model = {
        .units_count = units, .units = list, .parameters_count = units, .parameters = parameters};
    for (uint32_t unit = 0; unit < units; unit++) {
        list[unit].flops_forward = 10;
        parameters[unit].rows = weights[unit];
        parameters[unit].cols = parameters[unit].parts = 1;
        parameters[unit].part_units[0] = unit;
    }
    *ret_least = stages_weights(&model, runs, ret_cuts);
    return stages_cut(&model, runs, weights_max, ret_cuts);
}

TEST(no_stage_has_more_weights_than_it_may)
{
    const uint32_t weights[] = {90, 10, 10, 10, 10, 10, 10, 10};
    uint32_t cuts[UNITS_MAX + 1];
    uint64_t least;
    assert_true(cut_weights(weights, 8, 2, 0, cuts, &least));
    assert_memory_equal(cuts, ((const uint32_t[]){0, 4, 8}), 3 * sizeof *cuts);
    assert_int_equal(least, 90);
    assert_true(cut_weights(weights, 8, 2, 110, cuts, &least)); /* as even as may be */
    assert_memory_equal(cuts, ((const uint32_t[]){0, 3, 8}), 3 * sizeof *cuts);
    assert_true(cut_weights(weights, 8, 2, 90, cuts, &least));
    assert_memory_equal(cuts, ((const uint32_t[]){0, 1, 8}), 3 * sizeof *cuts);
    assert_false(cut_weights(weights, 8, 2, 89, cuts, &least));
}

TEST(the_longest_stage_is_as_short_as_it_can_be)
{
    const double gpt[] = {0, 10, 10, 10, 10, 10, 10, 3};
    cut(gpt, 8, 1, (const uint32_t[]){0, 8});
    cut(gpt, 8, 2, (const uint32_t[]){0, 4, 8});
    cut(gpt, 8, 3, (const uint32_t[]){0, 3, 5, 8});
    cut(gpt, 8, 4, (const uint32_t[]){0, 2, 4, 6, 8});
    cut(gpt, 8, 8, (const uint32_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8});
    cut((const double[]){1, 1, 100, 1}, 4, 2, (const uint32_t[]){0, 2, 4});
    cut((const double[]){5, 5, 5, 5}, 4, 3, (const uint32_t[]){0, 1, 2, 4});
    cut((const double[]){0, 0, 0}, 3, 3, (const uint32_t[]){0, 1, 2, 3});
}
