#include "reference/reference.h"

#include "common/files/state_digest.h"
#include "reference/values.h"
#include "server/shard/prepare.h"
#include "server/shard/shard.h"

#include <stdlib.h>
#include <string.h>

enum { GENERATION = 1, BOOT = 1, TERM = 1, SENDER = 1, PULL_CHUNKS_MAX = 256 };

/* One of the mesh. */
struct played {
    struct reference *r;
    struct executor *executor;
    uint64_t *held; /* by chunk: version in the executor + 1; 0: none */
    enum err err;   /* of its ticket; ERR_BEHIND: it waits */
};

struct reference {
    struct reference_options options;
    struct played *places;
    uint32_t places_count;
    struct values values; /* between them */
    struct played *pulls; /* the one that asks the shard for weights */
    struct shard *shard;
    struct shard_chunk *chunks; /* of the shard: all of the model */
    uint32_t chunks_count;
    uint32_t node_level;
    enum codec codec;
    struct seal seal;
    struct seal_settings seal_settings;
    struct seal_counters counters;
    uint64_t version;
    uint64_t pulled_bytes;
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
        executor_decode(r->pulls->executor, header->chunks[i], header->codec, &cursor);
        r->pulls->held[header->chunks[i]] = header->version + 1;
        r->pulled_bytes += copy->bytes;
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
    case SHARD_NOT_FINITE:
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
    struct played *place = context;
    struct reference *r = place->r;
    const struct model *model = r->options.model;
    bool streamed = r->options.mesh != NULL
                        ? r->options.mesh->residency.streamed
                        : r->options.spec->train.residency.weights == SPEC_STREAMED;
    r->pulls = place;
    uint32_t chunks[PULL_CHUNKS_MAX], count = 0;
    size_t pulled_bytes = 0; /* by `chunks`: what one answer may carry */
    for (uint32_t i = 0; i < model->units[unit].uses_count; i++) {
        uint32_t parameter = model->uses[model->units[unit].use_first + i].parameter;
        if (parameter == model->loss_parameter)
            continue;
        const struct model_parameter *p = &model->parameters[parameter];
        for (uint32_t chunk = p->chunk_first; chunk < p->chunk_first + p->chunks_count; chunk++) {
            if (!streamed && place->held[chunk] == r->ticket.version + 1)
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

static enum err send_message(struct played *place, struct node node)
{
    struct reference *r = place->r;
    if (r->entries_count == 0)
        return ERR_OK;
    TRY(executor_encoded(place->executor));
    const struct push push = {.id = ++r->messages,
                              .generation = GENERATION,
                              .step = r->ticket.step,
                              .node = node,
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

static enum err push_chunk(struct played *place, uint32_t chunk, uint32_t part, struct node node)
{
    struct reference *r = place->r;
    size_t bytes = blocks_bytes(r->options.model, chunk, r->codec);
    if (r->entries_count == WIRE_ENTRIES_MAX || r->payload_bytes + bytes > WIRE_PAYLOAD_BYTES_MAX)
        TRY(send_message(place, node));
    executor_encode(place->executor, chunk, part, r->codec, r->payload + r->payload_bytes);
    r->entries[r->entries_count++] =
        (struct push_entry){.chunk = chunk, .part = part, .bytes = (uint32_t)bytes};
    r->payload_bytes += bytes;
    return ERR_OK;
}

static enum err push_unit(void *context, uint32_t unit, struct node node)
{
    struct played *place = context;
    const struct model *model = place->r->options.model;
    for (uint32_t i = 0; i < model->units[unit].uses_count; i++) {
        struct model_use use = model->uses[model->units[unit].use_first + i];
        const struct model_parameter *p = &model->parameters[use.parameter];
        for (uint32_t chunk = 0; chunk < p->chunks_count; chunk++)
            TRY(push_chunk(place, p->chunk_first + chunk, use.part, node));
    }
    return send_message(place, node);
}

static enum err send_value(void *context, const struct executor_value *value, const void *memory)
{
    return values_send(&((struct played *)context)->r->values, value, memory);
}

static enum err receive_value(void *context, const struct executor_value *value, void *memory)
{
    return values_receive(&((struct played *)context)->r->values, value, memory);
}

/* ---- a node ---- */

static void begin_places(struct reference *r)
{
    for (uint32_t p = 0; p < r->places_count; p++) {
        const struct executor_hooks hooks = {.context = &r->places[p],
                                             .pull = pull_unit,
                                             .push = push_unit,
                                             .send = send_value,
                                             .receive = receive_value};
        enum err err =
            executor_begin(r->places[p].executor, &r->ticket, r->options.samples, &hooks);
        r->places[p].err = err == ERR_OK ? ERR_BEHIND : err;
    }
}

/* Each place as far as it comes, in turn, until none waits: a valid program always goes on. An
 * error ends it. */
static enum err advance_places(struct reference *r)
{
    for (bool waits = true; waits;) {
        waits = false;
        for (uint32_t p = 0; p < r->places_count; p++) {
            struct played *place = &r->places[p];
            if (place->err == ERR_BEHIND)
                place->err = executor_advance(place->executor);
            waits |= place->err == ERR_BEHIND;
            TRY(place->err == ERR_BEHIND ? ERR_OK : place->err);
        }
    }
    return ERR_OK;
}

/* The loss of all places; their first error. */
static enum err end_places(struct reference *r, struct executor_loss *ret_loss)
{
    enum err first = ERR_OK;
    *ret_loss = (struct executor_loss){0};
    for (uint32_t p = 0; p < r->places_count; p++) {
        struct executor_loss loss = {0};
        enum err err = executor_end(r->places[p].executor, r->places[p].err, &loss);
        first = first == ERR_OK ? err : first;
        ret_loss->loss_sum += loss.loss_sum;
        ret_loss->samples += loss.samples;
        ret_loss->correct += loss.correct;
    }
    values_clear(&r->values);
    return first;
}

static enum err run_ticket(struct reference *r, struct executor_loss *ret_loss)
{
    begin_places(r);
    enum err advanced = advance_places(r), ended = end_places(r, ret_loss);
    return advanced != ERR_OK ? advanced : ended;
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
        TRY(run_ticket(r, &loss));
    }
    return commit_step(r, ret_metrics);
}

/* Piece by piece, as a cluster does. */
enum err reference_validate(struct reference *r, struct executor_loss *ret_loss)
{
    uint64_t slot_samples = r->options.spec->train.slot_samples;
    uint64_t slots = (r->options.samples->held_out + slot_samples - 1) / slot_samples;
    struct executor_loss sum = {0}, loss;
    for (uint32_t slot = 0; slot < slots; slot++) {
        r->ticket = (struct ticket){
            .kind = TICKET_VALIDATE, .version = r->version, .node = {.index = slot}};
        TRY(run_ticket(r, &loss));
        sum.loss_sum += loss.loss_sum;
        sum.samples += loss.samples;
        sum.correct += loss.correct;
    }
    *ret_loss = sum;
    return ERR_OK;
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

uint64_t reference_pulled_bytes(const struct reference *r)
{
    return r->pulled_bytes;
}

uint64_t reference_peer_bytes(const struct reference *r)
{
    return r->values.bytes;
}

struct executor *reference_executor(struct reference *r, uint32_t place)
{
    check(place < r->places_count);
    return r->places[place].executor;
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

static enum err make_place(struct reference *r, uint32_t number, struct reason *reason)
{
    struct played *place = &r->places[number];
    const struct executor_options options = {
        .kernels =
            r->options.executor_kernels != NULL ? r->options.executor_kernels : r->options.kernels,
        .model = r->options.model,
        .train = &r->options.spec->train,
        .node_slots_max = UINT32_C(1) << r->node_level,
        .local = local_settings_of(r->options.spec),
        .mesh = r->options.mesh,
        .place = number,
    };
    place->r = r;
    place->held = calloc(r->chunks_count, sizeof *place->held);
    if (place->held == NULL)
        return ERR_NOMEM;
    return executor_new(&options, &place->executor, reason);
}

static enum err make_places(struct reference *r, struct reason *reason)
{
    uint32_t count = r->options.mesh != NULL ? r->options.mesh->places : 1;
    const struct kernels *kernels =
        r->options.executor_kernels != NULL ? r->options.executor_kernels : r->options.kernels;
    r->places = calloc(count, sizeof *r->places);
    if (r->places == NULL)
        return ERR_NOMEM;
    r->places_count = count;
    for (uint32_t p = 0; p < count; p++)
        TRY(make_place(r, p, reason));
    return values_init(&r->values, kernels, r->options.model, &r->options.spec->train,
                       UINT32_C(1) << r->node_level);
}

static enum err set_up(struct reference *r, struct reason *reason)
{
    TRY(make_shard(r));
    TRY(make_places(r, reason));
    TRY(seal_init(&r->seal, r->chunks_count));
    r->seal_settings = seal_settings_of_spec(r->options.spec);
    r->entries = malloc(WIRE_ENTRIES_MAX * sizeof *r->entries);
    r->payload = malloc(WIRE_PAYLOAD_BYTES_MAX);
    return r->entries != NULL && r->payload != NULL ? ERR_OK : ERR_NOMEM;
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
    for (uint32_t p = 0; p < r->places_count; p++) {
        executor_free(r->places[p].executor);
        free(r->places[p].held);
    }
    shard_free(r->shard);
    seal_release(&r->seal);
    free(r->chunks);
    values_release(&r->values);
    free(r->places);
    free(r->entries);
    free(r->payload);
    free(r);
}
