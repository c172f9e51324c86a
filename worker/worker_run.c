#include "worker/worker_run.h"

#include "common/data/run_data.h"
#include "common/model/pieces.h"
#include "common/program/rows.h"
#include "common/scoped.h"
#include "common/settings/options.h"
#include "common/shared/shared_pool.h"
#include "common/time.h"
#include "worker/filling.h"
#include "worker/fingerprint.h"
#include "worker/plan.h"
#include "worker/products.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)SPEC_COMPUTE_TF32 == (int)KERNELS_COMPUTE_TF32 &&
                   (int)SPEC_COMPUTE_BF16 == (int)KERNELS_COMPUTE_BF16,
               "the spec's words are the table's");

/* What is pushed lies there: a device writes it itself. */
static void share_pool(const struct kernels *k, const struct shared_pool *pool)
{
    if (k->share == NULL || pool == NULL)
        return;
    struct slice memory = shared_pool_memory(pool);
    k->share(k, (void *)(uintptr_t)memory.data, memory.bytes);
}

static struct kernels_options kernels_of(const struct worker_run *run,
                                         const struct worker_run_options *options, uint32_t device)
{
    return (struct kernels_options){
        .backend = options->backend,
        .device = options->device + device,
        .compute = (enum kernels_compute)run->spec.train.compute,
        .gemm_core = run->spec.train.gemm_core,
        .gemm_threads = (int)run->spec.train.threads,
        .python_path = options_environment("PATH", NULL),
        .products = run->spec.train.products,
    };
}

static enum err open_kernels(struct worker_run *run, const struct worker_run_options *options,
                             struct reason *reason)
{
    const struct kernels_options kernels = kernels_of(run, options, 0);
    struct kernels_memory device;
    if (!kernels_new(&kernels, &run->kernels, reason->text, sizeof reason->text))
        return ERR_UNSUPPORTED;
    share_pool(run->kernels, options->pool);
    run->kernels->memory(run->kernels, &device);
    run->memory_bytes = device.total > 0 ? device.total - device.reserved : options->memory_bytes;
    return ERR_OK;
}

static enum err open_samples(struct worker_run *run, const struct describe_reply *description,
                             const struct worker_run_options *options, struct reason *reason)
{
    const struct spec *spec = &run->spec;
    bool served = spec->data.serve && options->data_path == NULL;
    if (!served) {
        TRY(run_data_open(spec, options->data_path, &run->data, reason));
        run->data_digest = *data_digest(run->data);
    }
    run->samples = (struct samples){
        .data = run->data,
        .sampler = {.seed = spec->train.seed,
                    .sample_count = description->samples,
                    .slot_samples = spec->train.slot_samples},
        .held_out = description->validation_samples,
        .channel = options->channel,
        .run = description->run,
        .slots = (uint64_t)spec->train.slots * spec_local_steps(spec),
        .input_bytes = (uint64_t)model_sample(&spec->model).inputs * 4,
        .target_count = run->model.sample_tokens,
        .classes = model_sample(&spec->model).classes,
        .tokens = model_sample(&spec->model).tokens,
    };
    return ERR_OK;
}

/* Then executors are made when a place is known. */
static bool has_places(const struct worker_run *run)
{
    return spec_mesh_is_shared(&run->spec.mesh);
}

/* As `roost program --uniform` has them: the forward of a place takes act_ms. */
static enum err take_act_costs(struct worker_run *run)
{
    uint32_t units = run->model.units_count;
    if (run->act_costs == NULL)
        run->act_costs = calloc(units, sizeof *run->act_costs);
    if (run->act_costs == NULL)
        return ERR_NOMEM;
    TRY(plan_uniform(executor_program(run->executors[0]), run->act_costs));
    for (uint32_t unit = 0; unit < units; unit++) {
        struct simulate_cost *cost = &run->act_costs[unit];
        cost->forward = cost->forward * run->act_ms * 1000000 / PLAN_FORWARD_TICKS;
        cost->input = cost->input * run->act_ms * 1000000 / PLAN_FORWARD_TICKS;
        cost->weights = cost->weights * run->act_ms * 1000000 / PLAN_FORWARD_TICKS;
    }
    return ERR_OK;
}

void worker_run_device(const struct worker_run *run, char *ret_text, size_t bytes)
{
    if (run->devices > 1)
        snprintf(ret_text, bytes, "%u x %s", run->devices, run->kernels->name);
    else
        snprintf(ret_text, bytes, "%s", run->kernels->name);
}

const char *worker_run_failure(const struct worker_run *run, uint32_t lane, enum err err)
{
    const char *text =
        err == ERR_IO ? executor_failure(run->executors[lane]) : run->samples.failure.text;
    for (uint32_t i = 1; i < run->devices && text[0] == 0; i++)
        text =
            err == ERR_IO ? executor_failure(run->others[i]) : run->others_samples[i].failure.text;
    return text;
}

uint32_t worker_run_lanes(const struct worker_run *run, uint32_t stage)
{
    const struct spec_train *train = &run->spec.train;
    uint32_t slots = train->node_slots > 0 ? train->node_slots : 1; /* of the smallest node */
    uint32_t microbatches = pipeline_microbatches(slots, train->slot_samples / train->microbatch);
    return has_places(run)
               ? mesh_lanes(&run->mesh, stage, microbatches, spec_place_leases(&run->spec))
               : 1;
}

/* The setting with which one device computes alone; NULL: several may compute one ticket, since each
 * has all weights, and a ticket has slots of which the gradients are added. */
static const char *setting_for_one_device(const struct worker_run *run)
{
    const struct spec *spec = &run->spec;
    if (has_places(run) || spec->mesh.program[0] != 0)
        return "mesh";
    if (spec->consistency.kind == SPEC_ASYNC || spec->consistency.kind == SPEC_LOCAL)
        return "consistency.kind";
    if (spec->train.residency.weights != SPEC_RESIDENT)
        return "residency.weights";
    return NULL;
}

static uint32_t node_slots_max(const struct spec_train *train)
{
    return train->node_slots > 0 ? train->node_slots : train->slots;
}

/* A node is cut in halves, down to its slots: a power of two of the devices computes. */
static void choose_devices(struct worker_run *run, const struct worker_run_options *options)
{
    const struct spec_train *train = &run->spec.train;
    const char *setting = setting_for_one_device(run);
    uint32_t slots = node_slots_max(train);
    run->devices = setting == NULL ? crew_devices(options->devices, slots) : 1;
    uint32_t used = run->devices < slots ? run->devices : slots;
    if (setting == NULL && used == slots)
        setting = train->node_slots > 0 ? "train.node_slots" : "train.slots";
    if (used < options->devices)
        log_warning(options->logger, "devices idle", log_uint("idle", options->devices - used),
                    log_text("because", setting != NULL ? setting : "a power of two computes"),
                    log_text("next", "go on; a worker for each device uses all"));
}

static enum err probe_numerics(struct worker_run *run, const struct fingerprint_options *options,
                               const struct logger *logger, struct reason *reason)
{
    uint64_t begin_ns = time_now_ns();
    TRY(fingerprint_probe(options, &run->fingerprint, reason));
    log_info(logger, "numerics probed", log_uint("ms", (time_now_ns() - begin_ns) / 1000000));
    return ERR_OK;
}

static bool times_products(const struct worker_run *run)
{
    return spec_times_products(run->spec.train.products) && run->kernels->time_products != NULL;
}

/* Those whose shapes the probe has computed; with the run's it computes other bits. */
static enum err settle_products(struct worker_run *run, const struct worker_run_options *options,
                                struct fingerprint_options *probe, struct reason *reason)
{
    const struct products_run of = {run->number, options->channel, options->logger};
    TRY(products_settle(run->kernels, &of, run->spec.train.products, reason));
    kernels_free(run->kernels);
    run->kernels = NULL;
    TRY(open_kernels(run, options, reason));
    probe->kernels = run->kernels;
    return probe_numerics(run, probe, options->logger, reason);
}

/* What was timed with another library or on another kind of device is not used. */
static void warn_of_other_products(const struct worker_run *run, const struct logger *logger)
{
    const char *products = run->spec.train.products;
    size_t bytes = strcspn(products, ";");
    char kind[128];
    if (products[bytes] == 0 || run->kernels->write_products == NULL ||
        strncmp(products, run->kernels->numerics, bytes) == 0)
        return;
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(products, ":;"), products);
    log_warning(logger, "the run's products were timed elsewhere", log_text("there", kind),
                log_text("next", "go on by cuBLASLt's own choice"));
}

/* The other devices, which compute what the first one does. */
static enum err open_others(struct worker_run *run, const struct worker_run_options *options,
                            struct fingerprint_options probe, struct reason *reason)
{
    for (uint32_t i = 1; i < run->devices && !worker_run_is_host(run); i++) {
        const struct kernels_options kernels = kernels_of(run, options, i);
        struct digest fingerprint;
        if (!kernels_new(&kernels, &run->others_kernels[i], reason->text, sizeof reason->text))
            return ERR_UNSUPPORTED;
        probe.kernels = run->others_kernels[i];
        TRY(fingerprint_probe(&probe, &fingerprint, reason));
        if (!digest_same(&fingerprint, &run->fingerprint, sizeof fingerprint))
            return reason_set(reason, ERR_UNSUPPORTED,
                              "device %u (%s) computes other bits than device 0 (%s)", i,
                              run->others_kernels[i]->name, run->kernels->name);
    }
    kernels_use(run->kernels);
    return ERR_OK;
}

/* An executor for each device behind the first. */
static enum err open_crew(struct worker_run *run, struct executor_options options,
                          struct reason *reason)
{
    struct crew_options crew = {.model = &run->model,
                                .slots = run->spec.train.slots,
                                .count = run->devices,
                                .executors = {run->executors[0]},
                                .samples = {samples_source(&run->samples)},
                                .lock = run->lock};
    options.pool = NULL; /* nothing of the others is sent */
    for (uint32_t i = 1; i < run->devices; i++) {
        struct samples *samples = &run->others_samples[i];
        *samples = run->samples;
        if (run->others_kernels[i] != NULL)
            options.kernels = run->others_kernels[i];
        kernels_use(options.kernels);
        TRY(executor_new(&options, &run->others[i], reason));
        crew.executors[i] = run->others[i];
        crew.samples[i] = samples_source(samples);
    }
    kernels_use(run->kernels);
    return crew_new(&crew, &run->crew);
}

static enum err open_executors(struct worker_run *run, const struct place *place,
                               struct reason *reason)
{
    uint32_t lanes = worker_run_lanes(run, place->stage);
    const struct spec_train *train = &run->spec.train;
    kernels_use(run->kernels);
    struct executor_options options = {
        .kernels = run->kernels,
        .model = place->ranks > 1 ? &run->share : &run->model,
        .train = train,
        .node_slots_max = crew_part_slots(run->devices, node_slots_max(train)),
        .sum_slots_max = node_slots_max(train),
        .local = local_settings_of(&run->spec),
        .mesh = run->mesh.places > 1 ? &run->mesh : NULL,
        .place = place->stage,
        .memory_max = run->memory_bytes,
        .executors = lanes * run->devices,
        .leases = has_places(run) ? spec_place_leases(&run->spec) : 1,
        .pool = run->pool,
    };
    if (place->ranks > 1)
        TRY(pieces_share(&run->model, place->rank, place->ranks, &run->share));
    for (uint32_t i = 0; i < lanes; i++)
        TRY(executor_new(&options, &run->executors[i], reason));
    if (!has_places(run))
        TRY(lent_weights_init(&run->lent, run->executors[0], &run->model));
    if (run->devices > 1)
        TRY(open_crew(run, options, reason));
    return run->act_ms > 0 ? take_act_costs(run) : ERR_OK;
}

/* The coordinator refuses a run whose mesh the model does not have. */
static enum err check_mesh(const struct worker_run *run, struct reason *reason)
{
    scoped(pipeline_runs_release) struct pipeline_runs runs = {0};
    const struct schedule_shape shape = pipeline_shape(&run->spec, run->model.units_count, 1);
    enum err err = run->mesh.places > 1 ? rows_runs(&shape, &run->model, &runs) : ERR_OK;
    return err == ERR_INVALID
               ? reason_set(reason, err, "the run's mesh does not fit the %u units of its model",
                            run->model.units_count)
               : err;
}

/* The same one several times, in turn: more of them are no faster. */
static void warn_of_few_devices(const struct worker_run *run, const struct logger *logger)
{
    const struct kernels *k = run->kernels;
    uint32_t there = k->devices == NULL ? run->devices : k->devices(k);
    if (there < run->devices)
        log_warning(logger, "devices are fewer GPUs", log_uint("devices", run->devices),
                    log_uint("gpus", there),
                    log_text("next", "go on; as many --devices as GPUs are as fast"));
}

static void warn_of_few_samples(const struct worker_run *run, const struct logger *logger)
{
    const struct kernels *k = run->kernels;
    uint32_t samples = run->spec.train.microbatch;
    double share =
        k->multiprocessors == NULL ? 1 : filling_share(&run->model, samples, k->multiprocessors(k));
    if (share < 0.5)
        log_warning(logger, "products fill less than half of the device",
                    log_uint("percent", (uint64_t)(100 * share)), log_uint("microbatch", samples),
                    log_text("next", "go on; a larger train.microbatch is faster"));
}

static enum err open_all(const struct describe_reply *description,
                         const struct worker_run_options *options, struct worker_run *run,
                         struct reason *reason)
{
    struct slice text = {(const uint8_t *)description->spec, strlen(description->spec)};
    run->number = description->run;
    run->act_ms = options->act_ms;
    run->pool = options->pool;
    TRY(spec_parse(text, "the run's spec", NULL, &run->spec, reason));
    TRY(model_init(&run->model, &run->spec.model, reason));
    run->mesh = mesh_of(&run->spec);
    TRY(check_mesh(run, reason));
    TRY(open_kernels(run, options, reason));
    TRY(open_samples(run, description, options, reason));
    struct fingerprint_options probe = {.kernels = run->kernels,
                                        .model = &run->model,
                                        .train = &run->spec.train,
                                        .held_out = description->validation_samples};
    TRY(probe_numerics(run, &probe, options->logger, reason));
    if (times_products(run))
        TRY(settle_products(run, options, &probe, reason));
    warn_of_other_products(run, options->logger);
    choose_devices(run, options);
    run->lock = options->lock;
    TRY(open_others(run, options, probe, reason));
    warn_of_few_devices(run, options->logger);
    warn_of_few_samples(run, options->logger);
    if (!has_places(run))
        TRY(open_executors(run, &(struct place){0}, reason));
    for (uint32_t stage = 0; stage < run->mesh.places; stage++)
        if (worker_run_lanes(run, stage) > run->lanes)
            run->lanes = worker_run_lanes(run, stage);
    if (spec_mesh_ranks(&run->spec.mesh) > 1)
        TRY(replicated_init(&run->replicated, &run->model));
    run->async = run->spec.consistency.kind == SPEC_ASYNC;
    if (run->async) {
        TRY(whole_init(&run->pushing, run->executors[0], &run->model));
        TRY(whole_init(&run->scaling, run->executors[0], &run->model));
    }
    run->weights_codec = run->push_codec =
        run->spec.train.precision == SPEC_BF16 ? CODEC_BF16 : CODEC_FP32;
    return ERR_OK;
}

enum err worker_run_open(const struct describe_reply *description,
                         const struct worker_run_options *options, struct worker_run *ret_run,
                         struct reason *reason)
{
    *ret_run = (struct worker_run){0};
    enum err err = open_all(description, options, ret_run, reason);
    if (err == ERR_OK)
        return ERR_OK;
    worker_run_release(ret_run);
    *ret_run = (struct worker_run){0};
    return err;
}

/* The run was opened with the word `timed`; by now it has what another worker timed
 * (store_put_spec). */
static bool is_timing(const struct spec *opened, const struct spec_change *change)
{
    return strcmp(change->path, "train.products") == 0 &&
           spec_times_products(opened->train.products);
}

enum err worker_run_is_same(const struct worker_run *run, const struct describe_reply *description,
                            struct reason *reason)
{
    struct slice text = {(const uint8_t *)description->spec, strlen(description->spec)};
    scoped(free_scoped) struct spec *now = malloc(sizeof *now);
    struct spec_changes changes;
    if (now == NULL)
        return ERR_NOMEM;
    if (description->run != run->number)
        return reason_set(reason, ERR_RUN_CHANGED, "another run was started");
    TRY(spec_parse(text, "the run's spec", NULL, now, reason));
    /* whether a run may be resumed so is not the question here: it was */
    ignore(spec_compare_for_resume(&run->spec, now, &changes, NULL));
    for (uint32_t i = 0; i < changes.count; i++)
        if (!is_timing(&run->spec, &changes.changes[i]))
            return reason_set(reason, ERR_RUN_CHANGED, "the run goes on with %s",
                              changes.changes[i].text);
    return ERR_OK;
}

static void free_executors(struct worker_run *run)
{
    lent_weights_release(&run->lent);
    crew_free(run->crew);
    run->crew = NULL;
    for (uint32_t i = 0; i < CREW_DEVICES_MAX; i++) {
        executor_free(run->others[i]);
        samples_release(&run->others_samples[i]);
        run->others[i] = NULL;
    }
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++) {
        executor_free(run->executors[i]);
        run->executors[i] = NULL;
    }
    model_release(&run->share);
}

enum err worker_run_place(struct worker_run *run, const struct place *place, bool *ret_made)
{
    *ret_made = run->executors[0] == NULL || run->stage != place->stage || run->rank != place->rank;
    if (!*ret_made)
        return ERR_OK;
    free_executors(run); /* first: there is memory for one place's */
    run->stage = place->stage;
    run->rank = place->rank;
    run->refused = (struct reason){0};
    enum err err = open_executors(run, place, &run->refused);
    if (err != ERR_OK)
        free_executors(run);
    return err;
}

void worker_run_release(struct worker_run *run)
{
    samples_release(&run->samples);
    replicated_release(&run->replicated);
    whole_release(&run->pushing);
    whole_release(&run->scaling);
    free_executors(run);
    free(run->act_costs);
    data_free(run->data);
    for (uint32_t i = 1; i < CREW_DEVICES_MAX; i++)
        kernels_free(run->others_kernels[i]);
    kernels_free(run->kernels);
    model_release(&run->model);
}
