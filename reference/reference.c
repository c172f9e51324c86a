#include "reference/reference.h"

#include "common/files/state_digest.h"
#include "server/shard/prepare.h"
#include "server/shard/shard.h"

#include <stdlib.h>
#include <string.h>

enum { GENERATION = 1, BOOT = 1, TERM = 1, SENDER = 1, PULL_CHUNKS_MAX = 256 };

struct reference {
    struct reference_options options;
    struct executor *executor;
    struct shard *shard;
    struct shard_chunk *chunks; /* of the shard: all of the model */
    uint32_t chunks_count;
    uint32_t node_level;
    enum codec codec;
    struct seal seal;
    struct seal_settings seal_settings;
    struct seal_counters counters;
    uint64_t version;
    uint64_t *held;             /* by chunk: version in the executor + 1; 0: none */
    struct ticket ticket;       /* in work */
    struct push_entry *entries; /* of the message being filled */
    uint32_t entries_count;
    uint8_t *payload;
    size_t payload_bytes;
    uint64_t messages;
    struct shard_effects effects;
};

/* ---- what the shard says ---- */

static void take_weights(struct reference *r, const struct shard_effect *effect)
{
    const struct weights *header = &effect->weights.header;
    for (uint32_t i = 0; i < header->chunk_count; i++) {
        struct counted *copy = effect->weights.copies[i];
        const struct slice slice = {copy->data, copy->bytes};
        struct cursor cursor = {.slices = &slice, .slice_count = 1};
        executor_decode(r->executor, header->chunks[i], header->codec, &cursor);
        r->held[header->chunks[i]] = header->version + 1;
        counted_unref(copy);
    }
}

static enum err take_effect(struct reference *r, const struct shard_effect *effect)
{
    switch (effect->kind) {
    case SHARD_WEIGHTS:
        take_weights(r, effect);
        return ERR_OK;
    case SHARD_REFUSAL:
        return effect->refusal.code;
    case SHARD_REDUCED:
        return seal_add(&r->seal, &effect->reduced);
    case SHARD_COMMITTED:
        check(effect->committed.step == r->version);
        return ERR_OK;
    case SHARD_SNAPSHOT: /* no commit here asks for a cut */
    case SHARD_WRONG_BITS:
    case SHARD_ORDER:
    case SHARD_TRANSFER: /* and none moves a chunk */
        break;
    }
    check(false);
    return ERR_INVALID;
}

static enum err take_effects(struct reference *r)
{
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < r->effects.count; i++) {
        enum err here = take_effect(r, &r->effects.items[i]);
        err = err == ERR_OK ? here : err;
    }
    r->effects.count = 0;
    return err;
}

/* ---- hooks of the executor ---- */

static enum err pull_chunks(struct reference *r, const uint32_t *chunks, uint32_t count)
{
    if (count == 0)
        return ERR_OK;
    const struct pull pull = {.id = ++r->messages,
                              .generation = GENERATION,
                              .version = r->ticket.version,
                              .chunk_count = count,
                              .chunks = chunks};
    shard_pull(r->shard, (struct pull_sender){SENDER, SENDER}, &pull, &r->effects);
    return take_effects(r);
}

static enum err pull_unit(void *context, uint32_t unit)
{
    struct reference *r = context;
    const struct model *model = r->options.model;
    uint32_t chunks[PULL_CHUNKS_MAX], count = 0;
    size_t pulled_bytes = 0; /* by `chunks`: what one answer may carry */
    for (uint32_t i = 0; i < model->units[unit].uses_count; i++) {
        uint32_t parameter = model->uses[model->units[unit].use_first + i].parameter;
        if (parameter == model->loss_parameter)
            continue;
        const struct model_parameter *p = &model->parameters[parameter];
        for (uint32_t chunk = p->chunk_first; chunk < p->chunk_first + p->chunks_count; chunk++) {
            if (r->held[chunk] == r->ticket.version + 1)
                continue;
            size_t bytes = blocks_bytes(model, chunk, r->codec);
            if (count == PULL_CHUNKS_MAX || pulled_bytes + bytes > WIRE_PAYLOAD_BYTES_MAX) {
                TRY(pull_chunks(r, chunks, count));
                count = 0;
                pulled_bytes = 0;
            }
            chunks[count++] = chunk;
            pulled_bytes += bytes;
        }
    }
    return pull_chunks(r, chunks, count);
}

static enum err send_message(struct reference *r)
{
    if (r->entries_count == 0)
        return ERR_OK;
    const struct push push = {.id = ++r->messages,
                              .generation = GENERATION,
                              .step = r->ticket.step,
                              .node = r->ticket.node,
                              .codec = r->codec,
                              .entry_count = r->entries_count,
                              .entries = r->entries};
    const struct slice slice = {r->payload, r->payload_bytes};
    struct shard_ack ack = shard_push(
        r->shard, SENDER, &push, (struct cursor){.slices = &slice, .slice_count = 1}, &r->effects);
    r->entries_count = 0;
    r->payload_bytes = 0;
    enum err err = take_effects(r);
    return ack.code == ERR_OK ? err : ack.code;
}

static enum err push_chunk(struct reference *r, uint32_t chunk, uint32_t part)
{
    size_t bytes = blocks_bytes(r->options.model, chunk, r->codec);
    if (r->entries_count == WIRE_ENTRIES_MAX || r->payload_bytes + bytes > WIRE_PAYLOAD_BYTES_MAX)
        TRY(send_message(r));
    executor_encode(r->executor, chunk, part, r->codec, r->payload + r->payload_bytes);
    r->entries[r->entries_count++] =
        (struct push_entry){.chunk = chunk, .part = part, .bytes = (uint32_t)bytes};
    r->payload_bytes += bytes;
    return ERR_OK;
}

static enum err push_unit(void *context, uint32_t unit)
{
    struct reference *r = context;
    const struct model *model = r->options.model;
    for (uint32_t i = 0; i < model->units[unit].uses_count; i++) {
        struct model_use use = model->uses[model->units[unit].use_first + i];
        const struct model_parameter *p = &model->parameters[use.parameter];
        for (uint32_t chunk = 0; chunk < p->chunks_count; chunk++)
            TRY(push_chunk(r, p->chunk_first + chunk, use.part));
    }
    return send_message(r);
}

/* ---- a step ---- */

static enum err commit_step(struct reference *r, struct seal_metrics *ret_metrics)
{
    struct commit commit;
    check(seal_complete(&r->seal));
    enum err decided = seal_decide(&r->seal_settings, &r->counters, &r->seal, &commit, ret_metrics);
    if (decided != ERR_OK)
        return decided;
    commit.generation = GENERATION;
    commit.term = TERM;
    commit.step = r->version;
    commit.cut = false;
    TRY(shard_commit(r->shard, BOOT, &commit, NULL, &r->effects));
    TRY(take_effects(r));
    for (bool more = true; more;) {
        TRY(shard_work(r->shard, &r->effects, &more));
        TRY(take_effects(r));
    }
    seal_restart(&r->seal);
    r->version++;
    check(shard_version(r->shard) == r->version);
    return ERR_OK;
}

/* What a node of this step is computed on (docs/spec.md, table of consistency). */
static uint64_t version_of(const struct reference *r, struct node node, const uint8_t *behind)
{
    uint32_t delay = spec_staleness(r->options.spec);
    if (r->options.spec->consistency.kind == SPEC_SSP)
        return r->version - (behind != NULL ? behind[node_first(node)] : 0);
    return r->version > delay ? r->version - delay : 0;
}

enum err reference_step(struct reference *r, struct seal_metrics *ret_metrics)
{
    const struct executor_hooks hooks = {.context = r, .pull = pull_unit, .push = push_unit};
    const struct reference_order *order = r->options.order;
    uint32_t slots = r->options.spec->train.slots;
    struct node node = {.level = r->node_level};
    const uint8_t *behind = NULL;
    if (order != NULL)
        TRY(order->behind(order->context, r->version, &behind));
    for (; node_valid(node, slots); node.index++) {
        struct executor_loss loss;
        r->ticket = (struct ticket){.kind = TICKET_TRAIN,
                                    .generation = GENERATION,
                                    .step = r->version,
                                    .version = version_of(r, node, behind),
                                    .node = node};
        TRY(executor_run(r->executor, &r->ticket, r->options.samples, &hooks, &loss));
    }
    return commit_step(r, ret_metrics);
}

enum err reference_validate(struct reference *r, struct executor_loss *ret_loss)
{
    const struct executor_hooks hooks = {.context = r, .pull = pull_unit};
    uint64_t slot_samples = r->options.spec->train.slot_samples;
    uint64_t slots = (r->options.samples->held_out + slot_samples - 1) / slot_samples;
    r->ticket = (struct ticket){.kind = TICKET_VALIDATE,
                                .version = r->version,
                                .node = {.level = tree_level((uint32_t)slots)}};
    return executor_validate(r->executor, &r->ticket, r->options.samples, &hooks, ret_loss);
}

/* ---- what is left ---- */

void reference_read(struct reference *r, uint32_t chunk, uint32_t array, float *ret_values)
{
    struct shard_state state = shard_state(r->shard, chunk);
    memcpy(ret_values, array == 0 ? state.weights : state.state[array - 1],
           r->chunks[chunk].n * sizeof *ret_values);
}

static enum err read_for_digest(void *context, uint32_t chunk, uint32_t array, float *ret_values)
{
    reference_read(context, chunk, array, ret_values);
    return ERR_OK;
}

enum err reference_digest(struct reference *r, struct digest *ret_digest)
{
    const struct state_digest_source source = {
        .context = r,
        .read = read_for_digest,
        .arrays = 1 + optimizer_states(spec_server_optimizer(r->options.spec).kind),
    };
    return state_digest(r->options.model, &source, ret_digest);
}

uint64_t reference_version(const struct reference *r)
{
    return r->version;
}

uint64_t reference_samples(const struct reference *r)
{
    return r->counters.samples;
}

uint64_t reference_pushed_bytes(const struct reference *r)
{
    return shard_statistics(r->shard).pushed_bytes;
}

struct executor *reference_executor(struct reference *r)
{
    return r->executor;
}

/* ---- begin and end ---- */

static enum err make_shard(struct reference *r)
{
    const struct chunk_range all = {.count = r->options.model->chunks_count};
    TRY(prepare_chunks(r->options.model, &all, 1, 0, &r->chunks, &r->chunks_count));
    struct shard_config config = prepare_config(r->options.spec);
    config.kernels = r->options.kernels;
    config.generation = GENERATION;
    config.boot = BOOT;
    config.term = TERM;
    config.chunks = r->chunks;
    config.chunk_count = r->chunks_count;
    r->codec = config.push_codec;
    r->node_level = r->codec == CODEC_FP32 ? r->options.node_level : config.node_level;
    TRY(shard_new(&config, &r->shard));
    prepare_initial(r->shard, r->options.model, r->options.spec->train.seed, r->chunks,
                    r->chunks_count);
    return shard_start(r->shard);
}

static enum err set_up(struct reference *r, struct reason *reason)
{
    TRY(make_shard(r));
    const struct executor_options options = {
        .kernels =
            r->options.executor_kernels != NULL ? r->options.executor_kernels : r->options.kernels,
        .model = r->options.model,
        .train = &r->options.spec->train,
        .node_slots_max = UINT32_C(1) << r->node_level,
        .local = local_settings_of(r->options.spec),
    };
    TRY(executor_new(&options, &r->executor, reason));
    TRY(seal_init(&r->seal, r->chunks_count));
    r->seal_settings = seal_settings_of_spec(r->options.spec);
    r->held = calloc(r->chunks_count, sizeof *r->held);
    r->entries = malloc(WIRE_ENTRIES_MAX * sizeof *r->entries);
    r->payload = malloc(WIRE_PAYLOAD_BYTES_MAX);
    return r->held != NULL && r->entries != NULL && r->payload != NULL ? ERR_OK : ERR_NOMEM;
}

enum err reference_new(const struct reference_options *options, struct reference **ret_reference,
                       struct reason *reason)
{
    struct reference *r = calloc(1, sizeof *r);
    if (r == NULL)
        return ERR_NOMEM;
    r->options = *options;
    enum err err = set_up(r, reason);
    if (err != ERR_OK) {
        reference_free(r);
        return err;
    }
    *ret_reference = r;
    return ERR_OK;
}

void reference_free(struct reference *r)
{
    if (r == NULL)
        return;
    executor_free(r->executor);
    shard_free(r->shard);
    seal_release(&r->seal);
    free(r->chunks);
    free(r->held);
    free(r->entries);
    free(r->payload);
    free(r);
}
