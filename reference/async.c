/* Branches of chunks, attempts, and the two made to meet. */
#include "reference/async.h"

#include "common/files/state_digest.h"
#include "common/scoped.h"
#include "reference/async_logs.h"
#include "server/shard/prepare.h"
#include "worker/whole.h"

#include <inttypes.h>
#include <string.h>

enum { BOOT = 1, TERM = 1, SENDER = 1 };

struct again {
    const struct reference_async *async;
    const struct model *model;
    struct reason *reason;
    struct shard_config config;
    struct shard_chunk *chunks;
    uint32_t chunk_count;
    size_t *offsets; /* of a chunk in attempt->gradients */
    size_t gradients_bytes;
    struct executor *executor;
    struct whole whole;
    struct shard_effects effects;

    struct async_logs logs;
    struct attempt *computing;
    float **ends; /* weights, then states, of each chunk at its end */
    uint32_t ends_left;
    struct reference_async_result result;
};

static enum err no_memory(struct again *a)
{
    return reason_set(a->reason, ERR_NOMEM, "no memory to repeat the run");
}

/* ---- a chunk ---- */

/* What follows from the version that the chunk has now. */
static enum err reached(struct again *a, uint32_t index)
{
    struct branch *branch = &a->logs.branches[index];
    uint64_t version = branch->begin + branch->next;
    struct needed *needed = async_logs_needed(branch, version);
    if (needed != NULL && needed->copy == NULL) {
        const struct pull pull = {.generation = branch->generation,
                                  .newest = true,
                                  .chunk_count = 1,
                                  .chunks = &branch->chunk};
        a->effects.count = 0;
        shard_pull(branch->shard, (struct pull_sender){SENDER, SENDER}, &pull, &a->effects);
        check(a->effects.items[0].kind == SHARD_WEIGHTS);
        needed->copy = a->effects.items[0].weights.copies[0];
    }
    if (a->logs.targets[branch->chunk] != index || version != a->async->versions[branch->chunk])
        return ERR_OK;
    uint32_t n = a->chunks[branch->chunk].n;
    uint32_t states = optimizer_states(a->config.optimizer.kind);
    float *end = malloc((size_t)(1 + states) * n * sizeof *end);
    if (end == NULL)
        return no_memory(a);
    struct shard_state state = shard_state(branch->shard, 0);
    memcpy(end, state.weights, n * sizeof *end);
    for (uint32_t s = 0; s < states; s++)
        memcpy(end + (size_t)(1 + s) * n, state.state[s], n * sizeof *end);
    a->ends[branch->chunk] = end;
    a->ends_left--;
    return ERR_OK;
}

static enum err fill(struct again *a, const struct branch *branch, struct shard *shard)
{
    const struct shard_chunk *chunk = &a->chunks[branch->chunk];
    if (branch->parent == ASYNC_LOGS_NONE) {
        prepare_initial(shard, a->model, a->async->options->spec->train.seed, chunk, 1);
        return ERR_OK;
    }
    struct shard *parent = a->logs.branches[branch->parent].shard;
    struct shard_state from = shard_state(parent, 0), to = shard_state(shard, 0);
    memcpy(to.weights, from.weights, chunk->n * sizeof(float));
    for (uint32_t s = 0; s < optimizer_states(a->config.optimizer.kind); s++)
        memcpy(to.state[s], from.state[s], chunk->n * sizeof(float));
    scoped(free_scoped) uint8_t *extra = malloc(shard_extra_bytes(parent));
    if (extra == NULL)
        return no_memory(a);
    shard_store_extra(parent, 0, extra);
    return shard_load_extra(shard, 0, extra);
}

static enum err begin(struct again *a, uint32_t index)
{
    struct branch *branch = &a->logs.branches[index];
    scoped(shard_free_scoped) struct shard *shard = NULL;
    struct shard_config config = a->config;
    config.generation = branch->generation;
    config.chunks = &a->chunks[branch->chunk];
    config.chunk_count = 1;
    TRY(shard_new(&config, &shard));
    TRY(fill(a, branch, shard));
    TRY(shard_start(shard));
    branch->shard = shard;
    shard = NULL;
    return reached(a, index);
}

/* Begins those that go on from the version that `parent` has now. */
static enum err begin_children(struct again *a, uint32_t parent)
{
    uint64_t version = a->logs.branches[parent].begin + a->logs.branches[parent].next;
    for (uint32_t b = parent + 1; b < a->logs.branch_count; b++)
        if (a->logs.branches[b].parent == parent && a->logs.branches[b].begin == version &&
            a->logs.branches[b].shard == NULL) {
            TRY(begin(a, b));
            TRY(begin_children(a, b));
        }
    return ERR_OK;
}

/* ---- an attempt ---- */

static struct needed *weights_of(const struct again *a, const struct attempt *attempt,
                                 uint32_t chunk)
{
    for (size_t i = 0; i < attempt->pulled_count; i++) {
        const struct pulled *pulled = &a->logs.pulled[attempt->pulled_first + i];
        if (a->logs.branches[pulled->branch].chunk == chunk)
            return async_logs_needed(&a->logs.branches[pulled->branch], pulled->version);
    }
    return NULL;
}

static bool may_compute(const struct again *a, const struct attempt *attempt)
{
    for (size_t i = 0; i < attempt->pulled_count; i++) {
        const struct pulled *pulled = &a->logs.pulled[attempt->pulled_first + i];
        const struct needed *needed =
            async_logs_needed(&a->logs.branches[pulled->branch], pulled->version);
        if (needed->copy == NULL)
            return false;
    }
    return true;
}

static enum err pull_unit(void *context, uint32_t unit)
{
    struct again *a = context;
    for (uint32_t u = 0; u < a->model->units[unit].uses_count; u++) {
        uint32_t index = a->model->uses[a->model->units[unit].use_first + u].parameter;
        const struct model_parameter *parameter = &a->model->parameters[index];
        for (uint32_t i = 0; index != a->model->loss_parameter && i < parameter->chunks_count;
             i++) {
            uint32_t chunk = parameter->chunk_first + i;
            const struct needed *needed = weights_of(a, a->computing, chunk);
            if (needed == NULL)
                return reason_set(a->reason, ERR_CORRUPT,
                                  "the order logs miss what an attempt was given of chunk %u",
                                  chunk);
            const struct slice slice = {needed->copy->data, needed->copy->bytes};
            struct cursor cursor = {.slices = &slice, .slice_count = 1};
            executor_decode(a->executor, chunk, a->config.weights_codec, &cursor);
        }
    }
    return ERR_OK;
}

/* What it pulled is not needed for it any more. */
static void drop_weights(struct again *a, const struct attempt *attempt)
{
    for (size_t i = 0; i < attempt->pulled_count; i++) {
        const struct pulled *pulled = &a->logs.pulled[attempt->pulled_first + i];
        struct needed *needed =
            async_logs_needed(&a->logs.branches[pulled->branch], pulled->version);
        if (--needed->users > 0)
            continue;
        counted_unref(needed->copy);
        needed->copy = NULL;
    }
}

static enum err compute(struct again *a, struct attempt *attempt, uint64_t ticket)
{
    const struct reference_options *options = a->async->options;
    const struct executor_hooks hooks = {.context = a, .pull = pull_unit};
    uint32_t slots = options->spec->train.slots;
    const struct ticket work = {
        .kind = TICKET_TRAIN, .step = ticket / slots, .node = {0, (uint32_t)(ticket % slots)}};
    struct executor_loss loss;
    a->computing = attempt;
    TRY(executor_run(a->executor, &work, options->samples, &hooks, &loss));
    drop_weights(a, attempt);
    attempt->gradients = malloc(a->gradients_bytes);
    if (attempt->gradients == NULL)
        return no_memory(a);
    for (uint32_t chunk = 0; chunk < a->chunk_count; chunk++)
        TRY(whole_encode(&a->whole, chunk,
                         a->chunks[chunk].loss ? CODEC_FP32 : a->config.async.push_codec,
                         attempt->gradients + a->offsets[chunk]));
    TRY(executor_encoded(a->executor));
    TRY(whole_scale(&a->whole, options->spec->optimizer.clip_norm, loss.samples, &attempt->scale));
    attempt->computed = true;
    a->result.attempts++;
    return ERR_OK;
}

static enum err take(struct again *a, struct branch *branch, struct attempt *attempt,
                     const struct taken *taken)
{
    uint32_t slots = a->config.slots;
    size_t bytes = a->offsets[branch->chunk + 1] - a->offsets[branch->chunk];
    const struct push_entry entry = {
        .chunk = branch->chunk, .bytes = (uint32_t)bytes, .version = taken->used};
    const struct push push = {.generation = branch->generation,
                              .step = taken->ticket / slots,
                              .node = {0, (uint32_t)(taken->ticket % slots)},
                              .codec = a->config.async.push_codec,
                              .entry_count = 1,
                              .entries = &entry,
                              .boot = BOOT,
                              .scale = attempt->scale};
    const struct slice slice = {attempt->gradients + a->offsets[branch->chunk], bytes};
    a->effects.count = 0;
    struct shard_ack ack =
        shard_push(branch->shard, SENDER, &push,
                   (struct cursor){.slices = &slice, .slice_count = 1}, &a->effects);
    if (ack.code != ERR_OK)
        return reason_set(a->reason, ERR_CORRUPT, "chunk %u does not take ticket %" PRIu64 ": %s",
                          branch->chunk, taken->ticket, err_name(ack.code));
    branch->next++;
    if (--attempt->takers == 0) {
        free(attempt->gradients);
        attempt->gradients = NULL;
    }
    return ERR_OK;
}

/* ---- all of it ---- */

/* Takes what it can; *moved: that was something. */
static enum err advance(struct again *a, uint32_t index, bool *moved)
{
    struct branch *branch = &a->logs.branches[index];
    while (branch->shard != NULL && branch->next < branch->taken_count) {
        const struct taken *taken = &branch->taken[branch->next];
        struct attempt *attempt = &a->logs.attempts[taken->attempt];
        if (!attempt->computed && !may_compute(a, attempt))
            return ERR_OK;
        if (!attempt->computed)
            TRY(compute(a, attempt, taken->ticket));
        TRY(take(a, branch, attempt, taken));
        TRY(reached(a, index));
        TRY(begin_children(a, index));
        *moved = true;
    }
    return ERR_OK;
}

static enum err repeat(struct again *a)
{
    for (uint32_t b = 0; b < a->logs.branch_count; b++)
        if (a->logs.branches[b].parent == ASYNC_LOGS_NONE && a->logs.branches[b].shard == NULL) {
            TRY(begin(a, b));
            TRY(begin_children(a, b));
        }
    for (bool moved = true; a->ends_left > 0 && moved;) {
        moved = false;
        for (uint32_t b = 0; b < a->logs.branch_count && a->ends_left > 0; b++)
            TRY(advance(a, b, &moved));
    }
    return a->ends_left == 0 ? ERR_OK
                             : reason_set(a->reason, ERR_CORRUPT,
                                          "the order logs miss versions that tickets were computed "
                                          "on: a server's end was lost");
}

static enum err read_end(void *context, uint32_t chunk, uint32_t array, float *ret_values)
{
    const struct again *a = context;
    uint32_t n = a->chunks[chunk].n;
    memcpy(ret_values, a->ends[chunk] + (size_t)array * n, n * sizeof *ret_values);
    return ERR_OK;
}

static enum err set_up(struct again *a)
{
    const struct reference_options *options = a->async->options;
    const struct chunk_range all = {.count = a->model->chunks_count};
    TRY(prepare_chunks(a->model, &all, 1, 0, &a->chunks, &a->chunk_count));
    a->config = prepare_config(options->spec);
    a->config.kernels = options->kernels;
    a->config.boot = BOOT;
    a->config.term = TERM;
    a->config.async.logged = false;
    a->ends = calloc(a->chunk_count, sizeof *a->ends);
    a->offsets = calloc((size_t)a->chunk_count + 1, sizeof *a->offsets);
    if (a->ends == NULL || a->offsets == NULL)
        return no_memory(a);
    for (uint32_t chunk = 0; chunk < a->chunk_count; chunk++) {
        enum codec codec = a->chunks[chunk].loss ? CODEC_FP32 : a->config.async.push_codec;
        a->offsets[chunk + 1] =
            a->offsets[chunk] + ((size_t)a->chunks[chunk].n * codec_bytes(codec));
    }
    a->gradients_bytes = a->offsets[a->chunk_count];
    const struct executor_options executor = {.kernels = options->kernels,
                                              .model = a->model,
                                              .train = &options->spec->train,
                                              .node_slots_max = 1};
    TRY(executor_new(&executor, &a->executor, a->reason));
    return whole_init(&a->whole, a->executor, a->model);
}

static void tear_down(struct again *a)
{
    for (size_t b = 0; b < a->logs.branch_count; b++) {
        struct branch *branch = &a->logs.branches[b];
        for (size_t i = 0; i < branch->needed_count; i++)
            counted_unref(branch->needed[i].copy);
        shard_free(branch->shard);
    }
    for (size_t i = 0; i < a->logs.attempt_count; i++)
        free(a->logs.attempts[i].gradients);
    for (uint32_t chunk = 0; a->ends != NULL && chunk < a->chunk_count; chunk++)
        free(a->ends[chunk]);
    whole_release(&a->whole);
    executor_free(a->executor);
    async_logs_release(&a->logs);
    free(a->ends);
    free(a->offsets);
    free(a->chunks);
}

static enum err run(struct again *a)
{
    TRY(set_up(a));
    a->ends_left = a->chunk_count;
    a->logs.chunk_count = a->chunk_count;
    TRY(async_logs_read(&a->logs));
    a->result.branches = a->logs.beginnings;
    TRY(repeat(a));
    const struct state_digest_source source = {
        .context = a,
        .read = read_end,
        .arrays = 1 + optimizer_states(a->config.optimizer.kind),
    };
    return state_digest(a->model, &source, &a->result.digest);
}

enum err reference_async_run(const struct reference_async *async,
                             struct reference_async_result *ret_result, struct reason *reason)
{
    struct again *a = calloc(1, sizeof *a);
    if (a == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to repeat the run");
    a->async = a->logs.async = async;
    a->model = async->options->model;
    a->reason = a->logs.reason = reason;
    enum err err = run(a);
    if (err == ERR_OK)
        *ret_result = a->result;
    tear_down(a);
    free(a);
    return err;
}
