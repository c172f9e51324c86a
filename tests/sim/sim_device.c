/* worker/executor.h for workers of the simulator: the numbers are there at once (compute.h), what
 * follows takes its time. It checks what the worker promises: weights do not change while they are
 * computed on, and a gradient is read only while it is final. */
#include "worker/executor.h"

#include "common/cursor.h"
#include "common/digest.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_device.h"
#include "worker/fingerprint.h"
#include "worker/program/mesh.h"

#include <string.h>

enum { HOARD_US = 50000 /* between two looks */, STREAM_US = 20 };

#define REAL(result, name, ...)                                                                    \
    result __real_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__)

/* Else the simulator computes. */
static bool is_worker(void)
{
    return world.life != NULL && world.life->place.kind == MACHINE_WORKER && !world.watching;
}

static struct device *device_of(const struct executor *executor)
{
    return (struct device *)(uintptr_t)executor;
}

/* ---- life ---- */

REAL(enum err, executor_new, const struct executor_options *options, struct executor **ret_executor,
     struct reason *reason);
REAL(void, executor_free, struct executor *executor);

static bool is_too_small(const struct executor_options *options)
{
    const struct scenario *scenario = &world.sim->scenario;
    return options->mesh != NULL && options->mesh->places > 1 &&
           world.life->place.index + 1 == scenario->small_worker &&
           options->place == scenario->small_stage;
}

enum err __wrap_executor_new(const struct executor_options *options, struct executor **ret_executor,
                             struct reason *reason)
{
    if (!is_worker())
        return __real_executor_new(options, ret_executor, reason);
    if (is_too_small(options)) /* the error of executor_memory.c */
        return reason_set(reason, ERR_UNSUPPORTED, "the run needs more bytes than are free");
    const struct compute *compute = &world.sim->compute;
    struct device *device = calloc(1, sizeof *device);
    check(device != NULL && compute->model.units_count <= SIM_UNITS_MAX);
    device->worker = world.life->place.index;
    device->model = options->model;
    device->streamed = options->train->residency.weights == SPEC_STREAMED;
    device->ahead = options->train->residency.prefetch > 0;
    device->shared =
        (options->mesh != NULL && options->mesh->places > 1) || options->model->ranks > 1;
    device->place = options->place;
    device->weights = malloc(compute_weights_count(compute) * sizeof *device->weights);
    device->gradients = calloc(compute_gradients_count(compute), sizeof *device->gradients);
    device->held = calloc(compute->model.chunks_count, sizeof *device->held);
    check(device->weights && device->gradients && device->held);
    memset(device->weights, 0xff, compute_weights_count(compute) * sizeof *device->weights);
    *ret_executor = (struct executor *)(void *)device;
    return ERR_OK;
}

void __wrap_executor_free(struct executor *executor)
{
    if (!is_worker()) {
        __real_executor_free(executor);
        return;
    }
    struct device *device = device_of(executor);
    if (device == NULL)
        return;
    free(device->weights);
    free(device->gradients);
    free(device->held);
    free(device);
}

/* ---- tickets ---- */

REAL(enum err, executor_run, struct executor *executor, const struct ticket *ticket,
     const struct executor_samples *samples, const struct executor_hooks *hooks,
     struct executor_loss *ret_loss);

/* Asked between rows. */
enum err device_spend(const struct executor_hooks *hooks, uint64_t us)
{
    if (hooks->cancelled(hooks->context))
        return ERR_CANCELLED;
    life_spend(us);
    return life_acts() ? ERR_OK : ERR_CANCELLED;
}

/* One unit after another from `first` on, each until the next one is computed. */
static enum err stream_units(struct device *device, const struct executor_hooks *hooks,
                             uint32_t first, uint32_t count, int step)
{
    bool asked = false;
    for (uint32_t unit = first; count > 0; unit += (uint32_t)step, count--) {
        uint32_t next = unit + (uint32_t)step;
        bool tied = unit == 0 && next + 1 == device->model->units_count;
        if (!asked)
            TRY(hooks->ask(hooks->context, unit));
        TRY(hooks->pull(hooks->context, unit));
        device->used[unit] = true;
        asked = device->ahead && count > 1 && !tied;
        if (asked)
            TRY(hooks->ask(hooks->context, next));
        TRY(device_spend(hooks, STREAM_US));
        device->used[unit] = false;
    }
    return ERR_OK;
}

/* A unit's weights come again for its backward: the same bits. The first unit needs none there, the
 * last has them still. */
static enum err stream_back(struct device *device, const struct executor_hooks *hooks)
{
    uint32_t units = device->model->units_count;
    size_t bytes = device->model->chunks_count * sizeof *device->held;
    if (!device->streamed || units < 3)
        return ERR_OK;
    scoped(free_scoped) uint64_t *before = malloc(bytes);
    check(before != NULL);
    memcpy(before, device->held, bytes);
    TRY(stream_units(device, hooks, units - 2, units - 2, -1));
    if (life_acts() && memcmp(before, device->held, bytes) != 0)
        sim_violated(world.sim, 3, "w%u's weights changed between forward and backward",
                     device->worker);
    return ERR_OK;
}

enum err device_check_weights(const struct device *device, const struct ticket *ticket,
                              uint32_t unit)
{
    const struct computing what = {device->worker, *ticket, device->held, unit, device->model};
    if (!life_acts())
        return ERR_CANCELLED;
    world.watching = true;
    ledger_computing(world.sim, &what);
    world.watching = false;
    return ERR_OK;
}

/* All weights are in place, or have been. */
static enum err take_weights(struct device *device, const struct ticket *ticket,
                             const struct executor_hooks *hooks)
{
    if (device->streamed)
        TRY(stream_units(device, hooks, 0, device->model->units_count, 1));
    for (uint32_t unit = 0; !device->streamed && unit < device->model->units_count; unit++) {
        TRY(hooks->pull(hooks->context, unit));
        device->used[unit] = true;
    }
    return device_check_weights(device, ticket, COMPUTING_ALL);
}

/* Whether somebody waits for the ticket. */
static bool is_wanted(const struct sim *sim, const struct ticket *ticket)
{
    const struct sim_ledger *ledger = &sim->ledger;
    uint64_t made = ticket->kind == TICKET_TRAIN ? ticket->step + 1 : ticket->version + 1;
    return ticket->generation == ledger->generation && ledger->versions[ledger->generation] < made;
}

/* A hoarder's heartbeats go on, and it brings nothing that is of use. */
static enum err hoard(const struct device *device, const struct ticket *ticket,
                      const struct executor_hooks *hooks)
{
    struct sim *sim = world.sim;
    while (sim->hoarder == device->worker + 1 && is_wanted(sim, ticket))
        TRY(device_spend(hooks, HOARD_US));
    return ERR_OK;
}

uint64_t device_slot_us(const struct device *device)
{
    struct sim *sim = world.sim;
    uint64_t usual_us =
        story_compute_us(sim, device->worker) * sim->workers[device->worker].slowness;
    return 1 + sim_below(sim, 2 * usual_us);
}

enum err device_free(struct device *device, const struct executor_hooks *hooks, uint32_t unit)
{
    TRY(hooks->acknowledged(hooks->context, unit));
    device->final[unit] = false;
    return ERR_OK;
}

/* As many units are pushed and not freed as are asked for ahead. */
static enum err free_behind(struct device *device, const struct executor_hooks *hooks,
                            uint32_t unit)
{
    uint32_t behind = unit + 1 + device->ahead;
    return device->streamed && behind < device->model->units_count
               ? device_free(device, hooks, behind)
               : ERR_OK;
}

static enum err train(struct device *device, const struct ticket *ticket,
                      const struct executor_hooks *hooks, struct executor_loss *ret_loss)
{
    struct sim *sim = world.sim;
    const struct model *model = device->model;
    uint32_t units = model->units_count;
    TRY(take_weights(device, ticket, hooks));
    TRY(hoard(device, ticket, hooks));
    world.watching = true;
    compute_train(&sim->compute, ticket->step, ticket->node, device->weights, device->gradients);
    world.watching = false;
    uint64_t all_us =
        device_slot_us(device) * node_slots(ticket->node, sim->scenario.spec.train.slots);
    TRY(device_spend(hooks, all_us / 2));
    TRY(stream_back(device, hooks));
    for (uint32_t unit = units; unit-- > 0;) {
        TRY(free_behind(device, hooks, unit));
        TRY(device_spend(hooks, all_us / (2 * units)));
        device->final[unit] = true;
        TRY(hooks->push(hooks->context, unit, ticket->node));
    }
    const float *loss = compute_loss_of(&sim->compute, device->gradients);
    *ret_loss = (struct executor_loss){.loss_sum = (double)loss[MODEL_LOSS_SUM],
                                       .samples = (uint64_t)loss[MODEL_LOSS_COUNT],
                                       .correct = (uint64_t)loss[MODEL_LOSS_CORRECT]};
    return ERR_OK;
}

static enum err validate(struct device *device, const struct ticket *ticket,
                         const struct executor_hooks *hooks, struct executor_loss *ret_loss)
{
    TRY(take_weights(device, ticket, hooks));
    TRY(hoard(device, ticket, hooks));
    world.watching = true;
    struct compute_loss loss =
        compute_validate(&world.sim->compute, ticket->node.index, device->weights);
    world.watching = false;
    *ret_loss = (struct executor_loss){loss.loss_sum, loss.sample_count, loss.correct_count};
    return device_spend(hooks, device_slot_us(device));
}

static enum err run_ticket(struct executor *executor, const struct ticket *ticket,
                           const struct executor_hooks *hooks, struct executor_loss *ret_loss)
{
    struct device *device = device_of(executor);
    if (!life_acts())
        return ERR_CANCELLED;
    if (device->runs)
        sim_violated(world.sim, 3, "w%u computes two tickets at a time", device->worker);
    device->runs = true;
    memset(device->used, 0, sizeof device->used);
    memset(device->final, 0, sizeof device->final);
    enum err err = device->shared                    ? place_run(device, ticket, hooks, ret_loss)
                   : ticket->kind == TICKET_VALIDATE ? validate(device, ticket, hooks, ret_loss)
                                                     : train(device, ticket, hooks, ret_loss);
    device->runs = false;
    return err;
}

enum err __wrap_executor_run(struct executor *executor, const struct ticket *ticket,
                             const struct executor_samples *samples,
                             const struct executor_hooks *hooks, struct executor_loss *ret_loss)
{
    return is_worker() ? run_ticket(executor, ticket, hooks, ret_loss)
                       : __real_executor_run(executor, ticket, samples, hooks, ret_loss);
}

/* ---- chunks ---- */

REAL(void, executor_decode, struct executor *executor, uint32_t chunk, enum codec codec,
     struct cursor *cursor);
REAL(bool, executor_may_point, const struct executor *executor);
REAL(void, executor_copy, struct executor *executor, struct executor *from, uint32_t chunk);
REAL(void, executor_encode, const struct executor *executor, uint32_t chunk, uint32_t part,
     enum codec codec, void *ret_bytes);
REAL(enum err, executor_encoded, const struct executor *executor);

static void check_unused(const struct device *device, uint32_t chunk)
{
    const struct model_parameter *parameter =
        &device->model->parameters[device->model->chunks[chunk].parameter];
    for (uint32_t p = 0; p < parameter->parts; p++)
        if (device->runs && device->used[parameter->part_units[p]])
            sim_violated(world.sim, 3, "w%u's chunk %u changes while it is computed on",
                         device->worker, chunk);
}

static void read_bytes(struct cursor *cursor, uint8_t *ret_bytes, size_t count)
{
    uint8_t value[8];
    const uint8_t *values;
    while (count > 0) {
        size_t here = cursor_values(cursor, 1, count, value, &values);
        memcpy(ret_bytes, values, here);
        ret_bytes += here;
        count -= here;
    }
}

void __wrap_executor_decode(struct executor *executor, uint32_t chunk, enum codec codec,
                            struct cursor *cursor)
{
    if (!is_worker()) {
        __real_executor_decode(executor, chunk, codec, cursor);
        return;
    }
    struct sim *sim = world.sim;
    struct device *device = device_of(executor);
    uint8_t bytes[SIM_CHUNK_WEIGHTS_MAX * sizeof(float)];
    size_t count = blocks_bytes(device->model, chunk, codec);
    check(count <= sizeof bytes);
    read_bytes(cursor, bytes, count);
    if (!life_acts() || (sim->options.mutation == MUTATE_STALE_WEIGHTS && sim_below(sim, 16) == 0))
        return;
    check_unused(device, chunk);
    compute_decode(&sim->compute, chunk, bytes, device->weights);
    device->held[chunk] = digest_fast64((struct slice){bytes, count});
}

/* What was received is copied. */
bool __wrap_executor_may_point(const struct executor *executor)
{
    return !is_worker() && __real_executor_may_point(executor);
}

void __wrap_executor_copy(struct executor *executor, struct executor *from, uint32_t chunk)
{
    if (!is_worker()) {
        __real_executor_copy(executor, from, chunk);
        return;
    }
    struct device *device = device_of(executor);
    if (!life_acts())
        return;
    check_unused(device, chunk);
    compute_copy(&world.sim->compute, chunk, device_of(from)->weights, device->weights);
    device->held[chunk] = device_of(from)->held[chunk];
}

void __wrap_executor_encode(const struct executor *executor, uint32_t chunk, uint32_t part,
                            enum codec codec, void *ret_bytes)
{
    if (!is_worker()) {
        __real_executor_encode(executor, chunk, part, codec, ret_bytes);
        return;
    }
    const struct device *device = device_of(executor);
    const struct model *model = device->model;
    uint32_t unit = model->parameters[model->chunks[chunk].parameter].part_units[part];
    if (life_acts() && !device->final[unit])
        sim_violated(world.sim, 3, "w%u reads unit %u's gradient before it is there",
                     device->worker, unit);
    uint32_t bytes =
        compute_encode(&world.sim->compute, chunk, part, codec, device->gradients, ret_bytes);
    check(bytes == blocks_bytes(model, chunk, codec));
}

enum err __wrap_executor_encoded(const struct executor *executor)
{
    return is_worker() ? ERR_OK : __real_executor_encoded(executor);
}

/* ---- what is reported of it ---- */

REAL(const char *, executor_failure, const struct executor *executor);
REAL(bool, executor_refused_graphs, const struct executor *executor);
REAL(struct executor_memory, executor_memory, const struct executor *executor);
REAL(enum err, fingerprint_probe, const struct fingerprint_options *options,
     struct digest *ret_digest, struct reason *reason);

const char *__wrap_executor_failure(const struct executor *executor)
{
    return is_worker() ? "" : __real_executor_failure(executor);
}

bool __wrap_executor_refused_graphs(const struct executor *executor)
{
    return !is_worker() && __real_executor_refused_graphs(executor);
}

struct executor_memory __wrap_executor_memory(const struct executor *executor)
{
    return is_worker() ? (struct executor_memory){0} : __real_executor_memory(executor);
}

enum err __wrap_fingerprint_probe(const struct fingerprint_options *options,
                                  struct digest *ret_digest, struct reason *reason)
{
    if (!is_worker())
        return __real_fingerprint_probe(options, ret_digest, reason);
    memset(ret_digest, 7, sizeof *ret_digest);
    return ERR_OK;
}
