#include "worker/plan.h"

#include "common/scoped.h"
#include "common/time.h"
#include "worker/carve.h"
#include "worker/executor_sums.h"
#include "worker/few_rows.h"
#include "worker/model/unit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void size_unit(const struct plan *plan, uint32_t unit, struct unit_sizes *ret_sizes)
{
    unit_size(plan->kernels, plan->model, unit, plan->train->microbatch,
              plan->train->logits_bytes_max, ret_sizes);
}

static uint64_t weights_bytes(const struct plan *plan, uint32_t parameter)
{
    return carve_align(plan->model->parameters[parameter].weights) * plan->kernels->element_bytes;
}

static uint64_t gradient_bytes(const struct plan *plan, uint32_t parameter)
{
    return carve_align(plan->model->parameters[parameter].weights) * sizeof(float);
}

/* The sum over the unit's uses. */
static uint64_t unit_bytes(const struct plan *plan, uint32_t number,
                           uint64_t (*bytes_of)(const struct plan *plan, uint32_t parameter))
{
    const struct model_unit *unit = &plan->model->units[number];
    uint64_t bytes = 0;
    for (uint32_t use = unit->use_first; use < unit->use_first + unit->uses_count; use++)
        bytes += bytes_of(plan, plan->model->uses[use].parameter);
    return bytes;
}

void plan_sizes(const struct plan *plan, struct program_sizes *ret_sizes)
{
    for (uint32_t unit = 0; unit < plan->model->units_count; unit++) {
        struct unit_sizes sizes;
        size_unit(plan, unit, &sizes);
        ret_sizes[unit] =
            (struct program_sizes){.output = sizes.output,
                                   .ranges = sizes.ranges,
                                   .saved = sizes.saved,
                                   .dinput = sizes.dinput,
                                   .in_place = sizes.in_place,
                                   .left = sizes.left,
                                   .weights = unit_bytes(plan, unit, weights_bytes),
                                   .gradients = unit_bytes(plan, unit, gradient_bytes)};
    }
}

/* ---- uniform times ---- */

/* The unit after a run's last one: whose place in slot 0 is another's. */
static uint32_t run_end(const struct program *program, const uint32_t *owners, uint32_t first)
{
    uint32_t end = first + 1;
    while (end < program->units &&
           owners[(size_t)end * program->slots] == owners[(size_t)first * program->slots])
        end++;
    return end;
}

static uint32_t runs_of(const struct program *program, const uint32_t *owners, uint32_t place)
{
    uint32_t runs = 0;
    for (uint32_t unit = 0; unit < program->units; unit = run_end(program, owners, unit))
        runs += owners[(size_t)unit * program->slots] == place;
    return runs;
}

enum err plan_uniform(const struct program *program, struct simulate_cost *ret_costs)
{
    uint32_t *owners = NULL;
    TRY(program_owners(program, &owners));
    for (uint32_t first = 0, end; first < program->units; first = end) {
        end = run_end(program, owners, first);
        uint32_t runs = runs_of(program, owners, owners[(size_t)first * program->slots]);
        uint64_t ticks = PLAN_FORWARD_TICKS / runs, units = end - first;
        for (uint64_t i = 0; i < units; i++) {
            uint64_t share = ticks * (i + 1) / units - ticks * i / units;
            ret_costs[first + i] = (struct simulate_cost){share, share, share};
        }
    }
    free(owners);
    return ERR_OK;
}

/* ---- measured times ---- */

enum { MEASURED_TIMES = 3, USES_MAX = 16 };

/* One unit's arrays, all zero. */
struct measured {
    struct unit_call call;
    struct exchange_count count; /* instead of other members */
    element *weights[USES_MAX];
    float *gradients[USES_MAX];
};

static void place_arrays(const struct plan *plan, uint32_t number, struct carve *carve,
                         struct measured *measured)
{
    const struct model *model = plan->model;
    const struct model_unit *unit = &model->units[number];
    uint64_t predictions = (uint64_t)plan->train->microbatch * model->sample_tokens;
    uint64_t input =
        number > 0 ? predictions * unit->arrays[MODEL_IN].width
                   : (uint64_t)plan->train->microbatch * model_sample(&model->settings).inputs;
    struct unit_sizes sizes;
    size_unit(plan, number, &sizes);
    check(unit->uses_count <= USES_MAX);
    for (uint32_t use = 0; use < unit->uses_count; use++) {
        uint32_t parameter = model->uses[unit->use_first + use].parameter;
        uint64_t weights = model->parameters[parameter].weights;
        measured->weights[use] = carve_take(carve, weights * plan->kernels->element_bytes);
        measured->gradients[use] = carve_take(carve, weights * sizeof(float));
    }
    measured->call = (struct unit_call){
        .k = plan->kernels,
        .model = model,
        .exchange = &measured->count.calls,
        .unit = number,
        .samples = plan->train->microbatch,
        .logits_bytes_max = plan->train->logits_bytes_max,
        .training = true,
        .weights = measured->weights,
        .gradients = measured->gradients,
        .input = carve_take(carve, input * sizeof(float)),
        .targets = carve_take(carve, predictions * sizeof(int32_t)),
        .output = carve_take(carve, sizes.output),
        .saved = carve_take(carve, sizes.saved),
        .scratch = carve_take(carve, sizes.scratch),
        .doutput = carve_take(carve, sizes.output),
        .dinput = carve_take(carve, sizes.dinput),
        .losses = carve_take(carve, predictions * sizeof(float)),
        .correct = carve_take(carve, predictions * sizeof(int32_t)),
    };
}

/* Shortens *ns to what the operation takes this time. */
static enum err time_operation(const struct plan *plan, const struct measured *measured,
                               void (*operation)(const struct unit_call *call), uint64_t *ns)
{
    uint64_t begin = time_now_ns();
    operation(&measured->call);
    if (plan->kernels->synchronize(plan->kernels) != NULL)
        return ERR_IO;
    uint64_t took = time_now_ns() - begin;
    *ns = took < *ns ? took : *ns;
    return ERR_OK;
}

static enum err time_unit(const struct plan *plan, const struct measured *measured,
                          struct simulate_cost *ret_cost)
{
    uint64_t forward = UINT64_MAX, backward = UINT64_MAX;
    for (int i = 0; i < MEASURED_TIMES; i++) {
        TRY(time_operation(plan, measured, unit_forward, &forward));
        TRY(time_operation(plan, measured, unit_backward, &backward));
    }
    *ret_cost = (struct simulate_cost){forward, backward - backward / 2, backward / 2};
    return ERR_OK;
}

static enum err no_room(const struct plan *plan, uint32_t unit, uint64_t bytes,
                        struct reason *reason)
{
    struct kernels_memory device = {0};
    struct reason there = {.text = ""};
    plan->kernels->memory(plan->kernels, &device);
    if (device.total > 0)
        snprintf(there.text, sizeof there.text,
                 ", and the device has %" PRIu64 " of %" PRIu64 " free", device.free, device.total);
    return reason_set(reason, ERR_NOMEM,
                      "out of memory: to measure unit %u takes %" PRIu64
                      " bytes%.100s; a smaller train.microbatch or --uniform (which measures "
                      "nothing) would do",
                      unit, bytes, there.text);
}

enum err plan_measure(const struct plan *plan, struct simulate_cost *ret_costs,
                      struct reason *reason)
{
    const struct kernels *k = plan->kernels;
    for (uint32_t unit = 0; unit < plan->model->units_count; unit++) {
        struct measured measured;
        struct carve carve = {0};
        exchange_count_init(&measured.count, k, plan->model);
        place_arrays(plan, unit, &carve, &measured);
        uint64_t bytes = carve.bytes;
        void *memory = k->alloc(k, bytes);
        if (memory == NULL)
            return no_room(plan, unit, bytes, reason);
        k->zero(k, memory, bytes);
        carve = (struct carve){.base = memory};
        place_arrays(plan, unit, &carve, &measured);
        enum err err = time_unit(plan, &measured, &ret_costs[unit]);
        k->free(k, memory);
        TRY(err);
    }
    return ERR_OK;
}

/* ---- bytes ---- */

static uint64_t wire_bytes(const struct plan *plan, uint32_t parameter)
{
    bool exact = plan->train->precision == SPEC_FP32 || parameter == plan->model->loss_parameter;
    return plan->model->parameters[parameter].weights * (exact ? 4 : 2);
}

/* Of the units that the place pulls, each parameter once, for a tied one may be used by two; where
 * weights are streamed, each unit again. */
static void add_weights(const struct plan *plan, const struct program_place *place, bool streamed,
                        bool *pulled, struct plan_bytes *bytes)
{
    const struct model *model = plan->model;
    for (uint32_t i = 0; i < place->rows_count; i++) {
        const struct model_unit *unit = &model->units[place->rows[i].unit];
        if (place->rows[i].act != ACT_PULL)
            continue;
        for (uint32_t use = unit->use_first; use < unit->use_first + unit->uses_count; use++) {
            uint32_t parameter = model->uses[use].parameter;
            if (pulled[parameter] && !streamed)
                continue;
            pulled[parameter] = true;
            if (!streamed)
                bytes->weights += weights_bytes(plan, parameter);
            if (parameter != model->loss_parameter)
                bytes->pulled += wire_bytes(plan, parameter);
        }
    }
}

/* What is whole is pushed by rank 0 alone. */
static bool pushes(const struct model *model, uint32_t parameter)
{
    return model->rank == 0 || model->parameters[parameter].pieces > 1;
}

/* Of a program that does not free them: one may be kept by rows. */
static void add_gradients(const struct plan *plan, uint32_t slots, const uint32_t *sets,
                          struct plan_bytes *bytes)
{
    const struct model *model = plan->model;
    struct few_rows few;
    bool by_rows = few_rows_fit(plan->kernels, model, plan->train, slots, &few);
    for (uint32_t number = 0; number < model->units_count; number++) {
        const struct model_unit *unit = &model->units[number];
        if (sets[number] == 0)
            continue;
        for (uint32_t use = unit->use_first; use < unit->use_first + unit->uses_count; use++) {
            uint32_t parameter = model->uses[use].parameter;
            bytes->gradients +=
                sets[number] * (by_rows && use == few.use ? few_rows_bytes(&few)
                                                          : gradient_bytes(plan, parameter));
            bytes->pushed += pushes(model, parameter) ? wire_bytes(plan, parameter) : 0;
        }
    }
}

/* The largest scratch, and samples of the slots that the place loads. */
static void add_scratch(const struct plan *plan, const struct program_place *place,
                        struct plan_bytes *bytes)
{
    const struct model_sample sample = model_sample(&plan->model->settings);
    uint64_t samples = plan->train->slot_samples;
    uint64_t inputs = carve_align(samples * sample.inputs * sizeof(float));
    uint64_t predictions = carve_align(samples * plan->model->sample_tokens * sizeof(float));
    uint64_t most = 0;
    for (uint32_t i = 0; i < place->rows_count; i++) {
        struct unit_sizes sizes = {0};
        if (place->rows[i].act == ACT_PULL)
            size_unit(plan, place->rows[i].unit, &sizes);
        most = carve_align(sizes.scratch) > most ? carve_align(sizes.scratch) : most;
        bytes->scratch += place->rows[i].act == ACT_LOAD ? inputs + 3 * predictions : 0;
    }
    bytes->scratch += most;
}

/* Of the acts that the executor carries out with each function. */
static void count_row(const struct program_row *row, struct unit_call *call)
{
    call->unit = row->act == ACT_SEND_B ? row->unit - 1 : row->unit; /* whose result's gradient */
    call->training = row->act != ACT_E;
    if (row->act == ACT_F || row->act == ACT_E || row->act == ACT_RC)
        unit_exchange_forward(call);
    else if (row->act == ACT_B || row->act == ACT_I)
        unit_exchange_backward(call);
    else if (row->act == ACT_SEND_F || row->act == ACT_SEND_E || row->act == ACT_SEND_B)
        unit_exchange_value(call, NULL);
}

static void count_exchanged(const struct plan *plan, const struct program_place *place,
                            struct exchange_count *count)
{
    struct unit_call call = {.k = plan->kernels,
                             .model = plan->model,
                             .exchange = &count->calls,
                             .samples = plan->train->microbatch,
                             .logits_bytes_max = plan->train->logits_bytes_max};
    exchange_count_init(count, plan->kernels, plan->model);
    for (uint32_t i = 0; i < place->rows_count && plan->model->ranks > 1; i++)
        count_row(&place->rows[i], &call);
}

uint64_t plan_sums_kept(const struct plan *plan, const struct program_place *place)
{
    struct exchange_count count;
    count_exchanged(plan, place, &count);
    return count.given_bytes[0] + count.given_bytes[1];
}

enum err plan_place(const struct plan *plan, const struct program *program,
                    const struct simulate_result *result, uint32_t place,
                    struct plan_bytes *ret_bytes)
{
    const struct simulate_place *simulated = &result->places[place];
    struct exchange_count exchanged;
    count_exchanged(plan, &program->places[place], &exchanged);
    struct plan_bytes bytes = {.activations = simulated->arena_bytes,
                               .hosted = simulated->hosted_bytes,
                               .kept = simulated->outbox_bytes + exchanged.given_bytes[0] +
                                       exchanged.given_bytes[1],
                               .exchanged = exchanged.counted};
    scoped(free_scoped) bool *pulled = calloc(plan->model->parameters_count, sizeof *pulled);
    scoped(free_scoped) uint32_t *sets = calloc(program->units, sizeof *sets);
    if (pulled == NULL || sets == NULL)
        return ERR_NOMEM;
    TRY(simulate_gradient_sets(program, place, sets));
    bytes.weights = simulated->weights_bytes;
    add_weights(plan, &program->places[place], simulated->weights_bytes > 0, pulled, &bytes);
    add_gradients(plan, program->slots, sets, &bytes);
    if (simulated->gradients_bytes > 0)
        bytes.gradients = simulated->gradients_bytes;
    add_scratch(plan, &program->places[place], &bytes);
    bytes.host = bytes.hosted + bytes.kept;
    bytes.device = bytes.weights + bytes.gradients + bytes.activations + bytes.scratch;
    *ret_bytes = bytes;
    return ERR_OK;
}

/* All units' sets, of slots that are computed one by one. */
static enum err sums_bytes(const struct plan *plan, uint32_t slots_max, uint64_t *ret_bytes)
{
    struct plan_bytes bytes = {0};
    uint32_t units = plan->model->units_count;
    scoped(free_scoped) uint32_t *sets = calloc(units, sizeof *sets);
    if (sets == NULL)
        return ERR_NOMEM;
    for (uint32_t unit = 0; unit < units; unit++)
        sets[unit] = executor_sums_sets(slots_max);
    add_gradients(plan, slots_max, sets, &bytes);
    *ret_bytes = bytes.gradients;
    return ERR_OK;
}

static void repeat_exchanged(struct exchange_counted *exchanged, uint32_t slots)
{
    exchanged->bytes *= slots;
    exchanged->sums *= slots;
    exchanged->sum_messages *= slots;
    exchanged->gathers *= slots;
    exchanged->gather_messages *= slots;
}

enum err plan_alone(const struct plan *plan, const struct program *program,
                    const struct simulate_result *result, struct plan_walks walks,
                    struct plan_bytes *ret_bytes)
{
    struct plan_bytes bytes;
    check(program->places_count == 1 && program->slots == 1);
    TRY(plan_place(plan, program, result, 0, &bytes));
    if (walks.slots_max > 1) /* then none is freed before the node's end */
        TRY(sums_bytes(plan, walks.slots_max, &bytes.gradients));
    if (result->places[0].weights_bytes > 0)
        bytes.pulled *= walks.slots;
    repeat_exchanged(&bytes.exchanged, walks.slots);
    bytes.device = bytes.weights + bytes.gradients + bytes.activations + bytes.scratch;
    *ret_bytes = bytes;
    return ERR_OK;
}
