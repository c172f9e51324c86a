/* The shard core: fences, counting, the decision of a step and its execution, snapshots. */
#include "server/shard_core.h"

enum { FLOAT_WHOLE_MAX = 1 << 24 /* whole numbers up to it are exact */ };

/* ---- life ---- */

static enum err config_judge(const struct shard_config *config)
{
    if (config->slots == 0 || config->slots > TREE_SLOTS_MAX || config->delay > SHARD_DELAY_MAX ||
        (config->cut_versions != 0 && config->cut_versions != config->delay) ||
        config->node_level > tree_level(config->slots) || config->snapshot_copies == 0 ||
        config->push_codec >= CODEC_COUNT || config->weights_codec >= CODEC_COUNT)
        return ERR_INVALID;
    if (config->async.on && (config->async.window == 0 || config->delay != 0 ||
                             config->async.window > APPLIED_WINDOW_MAX))
        return ERR_INVALID;
    for (uint32_t i = 0; i < config->chunk_count; i++) {
        const struct shard_chunk *chunk = &config->chunks[i];
        if (chunk->n == 0 || chunk->n > MODEL_CHUNK_WEIGHTS_MAX || chunk->parts == 0 ||
            chunk->parts > SHARD_PARTS_MAX || (chunk->loss && chunk->n != MODEL_LOSS_WEIGHTS) ||
            (chunk->loss && chunk->rule != MODEL_NONE) ||
            (i > 0 && chunk->chunk <= config->chunks[i - 1].chunk))
            return ERR_INVALID;
    }
    return ERR_OK;
}

enum err shard_core_seals(struct shard *shard)
{
    if (shard->seals != NULL && shard->seals_room >= shard->store.count)
        return ERR_OK;
    uint32_t room = shard->store.room > 0 ? shard->store.room : 1;
    struct chunk_seal *seals = calloc((size_t)shard->store.open_steps * room, sizeof *seals);
    if (seals == NULL)
        return ERR_NOMEM;
    free(shard->seals);
    shard->seals = seals;
    shard->seals_room = room;
    return ERR_OK;
}

static enum err shard_init(struct shard *shard, const struct shard_config *config)
{
    shard->config = *config;
    shard->config.chunks = NULL;
    shard->version = shard->decided = config->version;
    shard->file = config->file;
    shard->parked.bytes_max = config->parked_bytes_max;
    TRY(chunk_store_init(&shard->store, config));
    if (config->async.on)
        TRY(async_init(&shard->async, config, &shard->store));
    TRY(shard_core_seals(shard));
    shard->steps = calloc(shard->store.open_steps, sizeof *shard->steps);
    shard->copies = calloc(config->snapshot_copies, sizeof *shard->copies);
    shard->later = parked_ring();
    shard->again = parked_ring();
    bool all = shard->steps != NULL && shard->copies != NULL && shard->later != NULL &&
               shard->again != NULL;
    return all ? ERR_OK : ERR_NOMEM;
}

enum err shard_new(const struct shard_config *config, struct shard **ret_shard)
{
    TRY(config_judge(config));
    struct shard *shard = calloc(1, sizeof *shard);
    if (shard == NULL)
        return ERR_NOMEM;
    enum err err = shard_init(shard, config);
    if (err == ERR_OK)
        *ret_shard = shard;
    else
        shard_free(shard);
    return err;
}

static void free_answered(struct shard *shard)
{
    while (shard->answered != NULL) {
        struct parked_pull *pull = shard->answered;
        shard->answered = pull->behind;
        free(pull);
    }
}

void shard_free(struct shard *shard)
{
    if (shard == NULL)
        return;
    free_answered(shard);
    for (uint32_t i = 0; shard->copies != NULL && i < shard->config.snapshot_copies; i++)
        counted_unref(shard->copies[i]);
    async_release(&shard->async);
    for (uint32_t i = 0; i < shard->store.count; i++) {
        parked_free(&shard->parked, shard->store.chunks[i].waiting);
        shard->store.chunks[i].waiting = NULL;
    }
    chunk_store_release(&shard->store);
    parked_free(&shard->parked, shard->later);
    parked_free(&shard->parked, shard->again);
    free(shard->copies);
    free(shard->steps);
    free(shard->seals);
    free(shard);
}

struct shard_state shard_state(const struct shard *shard, uint32_t index)
{
    check(index < shard->store.count);
    return shard->store.chunks[index].state;
}

enum err shard_publish(struct shard *shard, uint32_t index, uint64_t version, const float *values)
{
    check(index < shard->store.count && version < shard->version &&
          shard->version - version <= shard->store.cut_versions);
    return chunk_publish(&shard->store, &shard->store.chunks[index], version, values);
}

enum err shard_start(struct shard *shard)
{
    for (uint32_t i = 0; i < shard->store.count; i++) {
        struct chunk *chunk = &shard->store.chunks[i];
        TRY(chunk_publish(&shard->store, chunk, shard->version, chunk->state.weights));
    }
    return ERR_OK;
}

/* ---- what all events share ---- */

void shard_core_begin(struct shard *shard)
{
    free_answered(shard);
    shard->outgoing_count = 0;
}

struct shard_effect *shard_core_emit(struct shard_effects *effects, enum shard_effect_kind kind)
{
    check(effects->count < SHARD_EFFECTS_MAX);
    struct shard_effect *effect = &effects->items[effects->count++];
    memset(effect, 0, sizeof *effect);
    effect->kind = kind;
    return effect;
}

enum err shard_core_fence(const struct shard *shard, uint64_t generation)
{
    if (generation < shard->config.generation)
        return ERR_OLD_GENERATION;
    return generation > shard->config.generation ? ERR_BEHIND : ERR_OK;
}

static struct step *step_of(const struct shard *shard, uint64_t step)
{
    return &shard->steps[step % shard->store.open_steps];
}

/* An open step is one that may be pushed to: not decided, and its version may be known (P5). */
static bool step_open(const struct shard *shard, uint64_t step)
{
    return step >= shard->decided && step - shard->version <= shard->config.delay;
}

/* A chunk that leaves is another server's to sum. */
static bool step_reduced(const struct shard *shard, uint64_t step)
{
    uint32_t ours = shard->store.count - shard->leaving_count;
    return step_open(shard, step) && step_of(shard, step)->summed_count == ours;
}

static void emit_reduced(const struct shard *shard, uint64_t number, struct shard_effects *effects)
{
    const struct step *step = step_of(shard, number);
    uint32_t place = (uint32_t)(number % shard->store.open_steps), count = 0;
    struct chunk_seal *seals = shard->seals + (size_t)place * shard->seals_room;
    bool has_loss = false;
    for (uint32_t i = 0; i < shard->store.count; i++) {
        const struct chunk *chunk = &shard->store.chunks[i];
        if (chunk->leaving)
            continue;
        seals[count++] = chunk->seals[place];
        has_loss |= chunk->spec.loss;
    }
    shard_core_emit(effects, SHARD_REDUCED)->reduced =
        (struct reduced){.generation = shard->config.generation,
                         .step = number,
                         .seal_count = count,
                         .seals = seals,
                         .has_loss = has_loss,
                         .loss_sum = step->loss[MODEL_LOSS_SUM],
                         .sample_count = step->loss[MODEL_LOSS_COUNT],
                         .correct_count = step->loss[MODEL_LOSS_CORRECT]};
}

/* ---- async ---- */

static void emit_order(struct shard *shard, struct shard_order order, struct shard_effects *effects)
{
    order.entries = shard->async.entries;
    shard_core_emit(effects, SHARD_ORDER)->order = order;
}

/* The open step, if every chunk has all its tickets. */
static void report_open(const struct shard *shard, struct shard_effects *effects)
{
    if (!async_reduced(&shard->async))
        return;
    struct step *step = step_of(shard, shard->decided);
    for (uint32_t i = 0; i < shard->store.count; i++)
        shard->store.chunks[i].seals[0].finite = true; /* one step is open */
    memcpy(step->loss, async_loss(&shard->async, shard->decided), sizeof step->loss);
    emit_reduced(shard, shard->decided, effects);
}

static void push_async(struct shard *shard, uint64_t sender, const struct push *push,
                       struct cursor *payload, struct shard_effects *effects)
{
    struct shard_effect *ack = shard_core_emit(effects, SHARD_ACK);
    struct async *async = &shard->async;
    bool reduced_before = async_reduced(async);
    uint32_t counted = 0;
    async->entry_count = 0;
    enum err err = shard_core_fence(shard, push->generation);
    if (err == ERR_OK)
        err = async_push(async, push, payload, &shard->statistics, &counted, &ack->after);
    ack->sender = sender;
    ack->ack = (struct push_ack){push->id, err, counted};
    struct shard_order order = {.kind = SHARD_ORDER_TAKE,
                                .attempt = push->attempt,
                                .ticket = push->step * shard->config.slots + push->node.index,
                                .scale = push->scale,
                                .count = async->entry_count};
    if (order.count > 0)
        emit_order(shard, order, effects);
    if (!reduced_before)
        report_open(shard, effects);
}

/* All chunks at whatever version each has. */
static void emit_newest(struct shard *shard, uint64_t sender, const struct pull *pull,
                        struct shard_effects *effects)
{
    struct async *async = &shard->async;
    struct shard_effect *effect = shard_core_emit(effects, SHARD_WEIGHTS);
    effect->sender = sender;
    effect->weights.header = (struct weights){.id = pull->id,
                                              .codec = shard->config.weights_codec,
                                              .chunk_count = pull->chunk_count,
                                              .chunks = pull->chunks,
                                              .versions = async->versions};
    effect->weights.copies = shard->outgoing;
    async->entry_count = pull->chunk_count;
    for (uint32_t i = 0; i < pull->chunk_count; i++) {
        uint32_t index = chunk_find(&shard->store, pull->chunks[i]);
        uint64_t version = async->chunks[index].version;
        struct counted *copy = published_get(&shard->store.chunks[index].published, version);
        async->versions[i] = version;
        async->entries[i] = (struct shard_order_entry){pull->chunks[i], version, 0, NULL};
        shard->outgoing[shard->outgoing_count++] = counted_ref(copy);
        shard->statistics.pulled_bytes += copy->bytes;
    }
    if (pull->attempt != 0)
        emit_order(shard,
                   (struct shard_order){.kind = SHARD_ORDER_PULL,
                                        .attempt = pull->attempt,
                                        .count = pull->chunk_count},
                   effects);
}

uint32_t shard_extra_bytes(const struct shard *shard)
{
    return shard->config.async.on ? async_extra_bytes(shard->config.async.window) : 0;
}

enum err shard_load_extra(struct shard *shard, uint32_t index, const uint8_t *extra)
{
    check(index < shard->store.count);
    return async_load(&shard->async, index, extra);
}

void shard_store_extra(const struct shard *shard, uint32_t index, uint8_t *ret_extra)
{
    check(shard->config.async.on && index < shard->store.count);
    async_store(&shard->async, index, ret_extra);
}

enum err shard_redo(struct shard *shard, uint32_t chunk, const struct async_record *record)
{
    uint32_t index = chunk_find(&shard->store, chunk);
    return index == shard->store.count ? ERR_OK : async_redo(&shard->async, index, record);
}

bool shard_begin_order(struct shard *shard, uint32_t *next, struct shard_effects *effects)
{
    shard_core_begin(shard);
    struct async *async = &shard->async;
    async->entry_count = 0;
    for (; *next < shard->store.count && async->entry_count < WIRE_ENTRIES_MAX; ++*next)
        async->entries[async->entry_count++] = (struct shard_order_entry){
            shard->store.chunks[*next].spec.chunk, async->chunks[*next].version, 0, NULL};
    if (async->entry_count > 0)
        emit_order(shard,
                   (struct shard_order){.kind = SHARD_ORDER_BEGIN, .count = async->entry_count},
                   effects);
    return *next == shard->store.count;
}

void shard_logged(struct shard *shard, uint64_t durable)
{
    async_logged(&shard->async, durable);
}

uint64_t shard_taken(const struct shard *shard)
{
    return shard->async.applied;
}

bool shard_meet(const struct shard *shard, struct applied *met, bool first)
{
    async_meet(&shard->async, met, first);
    return shard->store.count > 0;
}

/* ---- push ---- */

static enum err push_judge(const struct shard *shard, const struct push *push)
{
    TRY(shard_core_fence(shard, push->generation));
    if (!node_valid(push->node, shard->config.slots) || push->codec != shard->config.push_codec)
        return ERR_MALFORMED;
    /* P4: sums of rounded numbers depend on where the rounding was. */
    if (push->codec != CODEC_FP32 && push->node.level != shard->config.node_level)
        return ERR_MALFORMED;
    bool past = push->step < shard->decided;
    return past || step_open(shard, push->step) ? ERR_OK : ERR_TOO_EARLY;
}

/* A chunk's sum is there: what it brings to the seal. */
static void seal_chunk(struct shard *shard, uint32_t index, uint64_t number, const float *sum)
{
    const struct kernels *kernels = shard->config.kernels;
    struct chunk *chunk = &shard->store.chunks[index];
    const struct shard_chunk *spec = &chunk->spec;
    struct step *step = step_of(shard, number);
    double sumsq;
    kernels->sum_squares(kernels, &sumsq, sum, spec->n);
    chunk->seals[number % shard->store.open_steps] = (struct chunk_seal){
        .chunk = spec->chunk,
        .finite = __builtin_isfinite(sumsq),
        /* Only what the optimizer scales counts for the norm. */
        .sumsq = spec->rule == MODEL_OPTIMIZER ? sumsq : 0,
    };
    for (uint32_t i = 0; spec->loss && i < MODEL_LOSS_WEIGHTS; i++)
        step->loss[i] = (double)sum[i];
    step->summed_count++;
}

static void count_duplicate(struct shard *shard, uint64_t sender, const struct push *push,
                            const struct push_entry *entry, const struct names *names,
                            struct shard_effects *effects)
{
    shard->statistics.duplicates++;
    const struct name *first = names_differ(names, push, entry->digest);
    if (first == NULL)
        return;
    shard->statistics.wrong_bits++;
    for (uint32_t i = 0; i < effects->count; i++)
        if (effects->items[i].kind == SHARD_WRONG_BITS)
            return; /* one a message names the two */
    struct shard_effect *effect = shard_core_emit(effects, SHARD_WRONG_BITS);
    effect->sender = sender;
    effect->wrong_bits.member = push->member;
    effect->wrong_bits.first_member = first->member;
    effect->wrong_bits.step = push->step;
    effect->wrong_bits.node = push->node;
    effect->wrong_bits.chunk = entry->chunk;
    effect->wrong_bits.part = entry->part;
}

/* Whether the loss that is pushed counts the samples of its node: the ledger relies on it. */
static bool counts_right(const struct shard *shard, struct node node, struct cursor payload)
{
    uint64_t wanted = (uint64_t)node_slots(node, shard->config.slots) * shard->config.slot_samples;
    uint8_t cut_value[8];
    const uint8_t *bytes;
    float count;
    cursor_skip(&payload, MODEL_LOSS_COUNT * sizeof count);
    cursor_values(&payload, sizeof count, 1, cut_value, &bytes);
    memcpy(&count, bytes, sizeof count);
    return wanted == 0 || wanted > FLOAT_WHOLE_MAX || count == (float)wanted;
}

/* Counts a new name of an open step. */
static enum err count_new(struct shard *shard, uint32_t index, const struct push *push,
                          const struct push_entry *entry, enum codec codec, struct cursor *payload)
{
    struct chunk *chunk = &shard->store.chunks[index];
    if (chunk->spec.loss && !counts_right(shard, push->node, *payload))
        return ERR_MALFORMED;
    enum reduce_result result =
        chunk_push(&shard->store, chunk, push->step, entry->part, push->node, codec, payload);
    check(result != REDUCE_DUPLICATE);
    if (result == REDUCE_BUSY) {
        shard->statistics.busy++;
        return ERR_BUSY;
    }
    shard->statistics.pushed_bytes += entry->bytes;
    names_remember(&chunk->parts[entry->part].names, push, entry->digest);
    const float *sum = chunk_sum(&shard->store, chunk, push->step);
    if (sum != NULL)
        seal_chunk(shard, index, push->step, sum);
    return ERR_OK;
}

/* Why a chunk is not: another server has it, or the run has none of that number. */
static enum err not_here(const struct shard *shard, uint32_t chunk)
{
    uint32_t count = shard->config.run_chunk_count;
    return count > 0 && chunk >= count ? ERR_NOT_FOUND : ERR_MOVED;
}

static enum err count_entry(struct shard *shard, uint64_t sender, const struct push *push,
                            const struct push_entry *entry, struct cursor *payload,
                            struct shard_effects *effects)
{
    uint32_t index = chunk_find(&shard->store, entry->chunk);
    if (index == shard->store.count)
        return not_here(shard, entry->chunk);
    struct chunk *chunk = &shard->store.chunks[index];
    if (chunk->leaving && push->step >= shard->decided)
        return ERR_MOVED; /* P11: its sums are the new owner's */
    enum codec codec = chunk->spec.loss ? CODEC_FP32 : push->codec;
    if (entry->part >= chunk->spec.parts || entry->bytes != chunk->spec.n * codec_bytes(codec) ||
        cursor_bytes(payload) < entry->bytes)
        return ERR_MALFORMED;
    bool held = push->step < shard->decided || /* all names of a decided step were counted */
                chunk_holds(&shard->store, chunk, push->step, entry->part, push->node);
    if (!held)
        return count_new(shard, index, push, entry, codec, payload);
    count_duplicate(shard, sender, push, entry, &chunk->parts[entry->part].names, effects);
    cursor_skip(payload, entry->bytes);
    return ERR_OK;
}

void shard_push(struct shard *shard, uint64_t sender, const struct push *push,
                struct cursor payload, struct shard_effects *effects)
{
    shard_core_begin(shard);
    if (shard->config.async.on) {
        push_async(shard, sender, push, &payload, effects);
        return;
    }
    struct shard_effect *ack = shard_core_emit(effects, SHARD_ACK);
    bool reduced_before = step_reduced(shard, push->step);
    enum err err = push_judge(shard, push);
    uint32_t i = 0;
    while (err == ERR_OK && i < push->entry_count) {
        err = count_entry(shard, sender, push, &push->entries[i], &payload, effects);
        if (err == ERR_OK)
            i++;
    }
    ack->sender = sender;
    ack->ack = (struct push_ack){push->id, err, i};
    if (!reduced_before && step_reduced(shard, push->step))
        emit_reduced(shard, push->step, effects);
}

/* ---- pull ---- */

/* The oldest readable version (P5). */
static uint64_t version_low(const struct shard *shard, const struct chunk *chunk)
{
    uint64_t low = shard->decided > shard->config.delay ? shard->decided - shard->config.delay : 0;
    uint64_t versions = shard->store.cut_versions;
    uint64_t oldest = chunk->since > versions ? chunk->since - versions : 0;
    return low > oldest ? low : oldest;
}

/* Whether `chunks` can be read at `version`. TOO_EARLY: the pull waits in *ret_ring. */
static enum err pull_place(const struct shard *shard, const struct pull *pull,
                           struct parked_pull **ret_ring)
{
    uint32_t last = 0;
    struct parked_pull *awaited = NULL;
    for (uint32_t i = 0; i < pull->chunk_count; i++) {
        uint32_t index = chunk_find(&shard->store, pull->chunks[i]);
        const struct chunk *chunk = &shard->store.chunks[index];
        bool future = pull->version > shard->decided;
        *ret_ring = shard->later;
        if (index == shard->store.count && not_here(shard, pull->chunks[i]) != ERR_MOVED)
            return ERR_NOT_FOUND;
        if (index == shard->store.count || (chunk->leaving && future))
            return future ? ERR_TOO_EARLY : ERR_MOVED;
        if (pull->version < version_low(shard, chunk))
            return ERR_TOO_LATE;
        awaited = chunk->awaited ? chunk->waiting : awaited;
        last = index > last ? index : last;
    }
    *ret_ring = awaited != NULL ? awaited : shard->store.chunks[last].waiting;
    bool there = pull->version <= shard->version ||
                 (pull->version == shard->decided && last < shard->apply_next);
    return there && awaited == NULL ? ERR_OK : ERR_TOO_EARLY;
}

static enum err all_here(const struct shard *shard, const struct pull *pull)
{
    for (uint32_t i = 0; i < pull->chunk_count; i++)
        if (chunk_find(&shard->store, pull->chunks[i]) == shard->store.count)
            return not_here(shard, pull->chunks[i]);
    return ERR_OK;
}

static enum err pull_judge(const struct shard *shard, const struct pull *pull,
                           struct parked_pull **ret_ring)
{
    TRY(shard_core_fence(shard, pull->generation));
    size_t bytes = 0;
    for (uint32_t i = 0; i < pull->chunk_count; i++) {
        uint32_t index = chunk_find(&shard->store, pull->chunks[i]);
        if (index < shard->store.count)
            bytes += shard->store.chunks[index].published.bytes;
    }
    if (pull->chunk_count == 0 || pull->chunk_count > WIRE_ENTRIES_MAX ||
        bytes > WIRE_PAYLOAD_BYTES_MAX || pull->newest != shard->config.async.on)
        return ERR_MALFORMED;
    return pull->newest ? all_here(shard, pull) : pull_place(shard, pull, ret_ring);
}

static void emit_weights(struct shard *shard, uint64_t sender, const struct weights *header,
                         struct shard_effects *effects)
{
    check(shard->outgoing_count + header->chunk_count <= SHARD_COPIES_MAX);
    struct shard_effect *effect = shard_core_emit(effects, SHARD_WEIGHTS);
    effect->sender = sender;
    effect->weights.header = *header;
    effect->weights.copies = &shard->outgoing[shard->outgoing_count];
    for (uint32_t i = 0; i < header->chunk_count; i++) {
        const struct chunk *chunk =
            &shard->store.chunks[chunk_find(&shard->store, header->chunks[i])];
        struct counted *copy = published_get(&chunk->published, header->version);
        shard->outgoing[shard->outgoing_count++] = counted_ref(copy);
        shard->statistics.pulled_bytes += copy->bytes;
    }
}

static void emit_refusal(uint64_t sender, uint64_t id, enum err err, struct shard_effects *effects)
{
    struct shard_effect *effect = shard_core_emit(effects, SHARD_REFUSAL);
    effect->sender = sender;
    effect->refusal = (struct pull_refusal){id, err};
}

void shard_pull(struct shard *shard, uint64_t sender, const struct pull *pull,
                struct shard_effects *effects)
{
    shard_core_begin(shard);
    struct parked_pull *ring;
    enum err err = pull_judge(shard, pull, &ring);
    if (err == ERR_OK && pull->newest) {
        emit_newest(shard, sender, pull, effects);
        return;
    }
    if (err == ERR_OK) {
        struct weights header = {pull->id, pull->version, shard->config.weights_codec,
                                 pull->chunk_count, pull->chunks};
        emit_weights(shard, sender, &header, effects);
        return;
    }
    if (err == ERR_TOO_EARLY && parked_add(&shard->parked, ring, sender, pull) != ERR_OK)
        err = ERR_BUSY;
    emit_refusal(sender, pull->id, err, effects);
}

void shard_cancel(struct shard *shard, uint64_t sender)
{
    for (uint32_t i = 0; i < shard->store.count; i++)
        parked_cancel(&shard->parked, shard->store.chunks[i].waiting, sender);
    parked_cancel(&shard->parked, shard->later, sender);
    parked_cancel(&shard->parked, shard->again, sender);
}

static bool effects_full(const struct shard *shard, const struct shard_effects *effects,
                         const struct parked_pull *pull)
{
    return effects->count == SHARD_EFFECTS_MAX ||
           shard->outgoing_count + pull->chunk_count > SHARD_COPIES_MAX;
}

/* Answers a pull that waited, or lets it wait for something else. There is room for its effect. */
static void judge_again(struct shard *shard, struct parked_pull *parked,
                        struct shard_effects *effects)
{
    const struct pull pull = {parked->id, shard->config.generation, parked->version,
                              parked->chunk_count, parked->chunks};
    struct parked_pull *ring;
    enum err err = pull_place(shard, &pull, &ring);
    parked_take(&shard->parked, parked);
    if (err == ERR_TOO_EARLY) {
        parked_put(&shard->parked, ring, parked);
        return;
    }
    parked->behind = shard->answered;
    shard->answered = parked;
    struct weights header = {pull.id, pull.version, shard->config.weights_codec, pull.chunk_count,
                             pull.chunks};
    if (err == ERR_OK)
        emit_weights(shard, parked->sender, &header, effects);
    else
        emit_refusal(parked->sender, pull.id, err, effects);
}

/* False: there is no room for more effects. */
static bool judge_all_again(struct shard *shard, struct shard_effects *effects)
{
    while (shard->again->behind != shard->again) {
        if (effects_full(shard, effects, shard->again->behind))
            return false;
        judge_again(shard, shard->again->behind, effects);
    }
    return true;
}

/* ---- commit ---- */

/* The same decision; the term says only who repeats it. */
static bool same_decision(const struct commit *a, const struct commit *b)
{
    return a->step == b->step && a->apply == b->apply && a->cut == b->cut &&
           memcmp(&a->scale, &b->scale, sizeof a->scale) == 0 &&
           memcmp(&a->lr, &b->lr, sizeof a->lr) == 0 &&
           memcmp(&a->bias1, &b->bias1, sizeof a->bias1) == 0 &&
           memcmp(&a->bias2, &b->bias2, sizeof a->bias2) == 0 && a->samples == b->samples &&
           a->applied == b->applied && a->skips_in_row == b->skips_in_row;
}

void shard_core_committed(const struct shard *shard, uint64_t step, struct shard_effects *effects)
{
    struct shard_effect *effect = shard_core_emit(effects, SHARD_COMMITTED);
    effect->committed.generation = shard->config.generation;
    effect->committed.step = step;
}

static bool is_carried_out(const struct shard *shard)
{
    return !shard->applying && shard->awaited_count == 0;
}

/* A decision for a step that has one. */
static enum err commit_again(struct shard *shard, const struct commit *commit,
                             struct shard_effects *effects)
{
    bool last = shard->has_decision && commit->step + 1 == shard->decided;
    if (last && !same_decision(commit, &shard->decision))
        return ERR_EXISTS;
    if (is_carried_out(shard) || commit->step + 1 < shard->decided) /* else the answer comes */
        shard_core_committed(shard, commit->step, effects);
    return ERR_OK;
}

enum err shard_commit(struct shard *shard, uint64_t boot, const struct commit *commit,
                      const struct shard_moves *moves, struct shard_effects *effects)
{
    shard_core_begin(shard);
    if (commit->term < shard->config.term)
        return ERR_OLD_TERM;
    if (boot != shard->config.boot)
        return ERR_OLD_BOOT;           /* P3 */
    shard->config.term = commit->term; /* P7 */
    TRY(shard_core_fence(shard, commit->generation));
    if (commit->step < shard->decided)
        return commit_again(shard, commit, effects);
    if (!is_carried_out(shard))
        return ERR_TOO_EARLY;
    /* What has no chunks is not behind with any. */
    if (shard->store.count == 0)
        shard->version = shard->decided = commit->step;
    bool async = shard->config.async.on; /* then steps are only counted */
    if (!async && (commit->step != shard->decided || !step_reduced(shard, commit->step)))
        return ERR_TOO_EARLY;
    const struct shard_moves none = {.file = shard->file};
    bool reduced_before[SHARD_DELAY_MAX + 1];
    for (uint32_t i = 0; i <= shard->config.delay; i++)
        reduced_before[i] = step_reduced(shard, commit->step + i);
    TRY(shard_move_begin(shard, commit->step, moves != NULL ? moves : &none));
    shard->decision = *commit;
    shard->has_decision = shard->applying = true;
    shard->decided = commit->step + 1;
    /* What leaves may have been all that was missing of a later step. */
    for (uint32_t i = 1; i <= shard->config.delay; i++)
        if (!reduced_before[i] && step_reduced(shard, commit->step + i))
            emit_reduced(shard, commit->step + i, effects);
    shard->apply_next = shard->answer_next = async ? shard->store.count : 0;
    parked_join(shard->again, shard->later);
    /* What the log got before the cut was ordered must be in it: then that log may go. */
    shard->cut_after = async && commit->cut ? shard->async.accepted : 0;
    return ERR_OK;
}

/* Answers those who waited for the chunks applied so far, as many as effects have room for; the
 * rest is answered by the next call. */
static void answer_parked(struct shard *shard, struct shard_effects *effects)
{
    while (shard->answer_next < shard->apply_next) {
        const struct chunk *chunk = &shard->store.chunks[shard->answer_next];
        struct parked_pull *pull = parked_find(chunk->waiting, shard->decided);
        if (pull == NULL || chunk->awaited) { /* which its arrival answers */
            shard->answer_next++;
            continue;
        }
        if (effects_full(shard, effects, pull))
            return;
        judge_again(shard, pull, effects);
    }
}

/* A chunk that came after a cut is not in it: its old owner wrote it there (P11). */
static void snapshot_skip(struct shard *shard)
{
    const struct chunk_store *store = &shard->store;
    while (shard->snapshot_next < store->count &&
           store->chunks[shard->snapshot_next].first_cut > shard->snapshot_cut.version)
        shard->snapshot_next++;
}

static void snapshot_start(struct shard *shard)
{
    shard->snapshot = true;
    shard->snapshot_cut = (struct cut_name){shard->config.generation, shard->version};
    shard->snapshot_file = shard->file;
    shard->snapshot_next = 0;
    snapshot_skip(shard);
}

/* Every chunk has the new version: the next step may be pushed to, which those who are answered now
 * may do at once. */
static void version_reached(struct shard *shard)
{
    step_of(shard, shard->decision.step)->summed_count = 0;
    shard->version = shard->decided;
}

static void apply_end(struct shard *shard, struct shard_effects *effects)
{
    if (shard->store.count == 0 || shard->config.async.on)
        version_reached(shard);
    shard->applying = false;
    if (shard->decision.cut && shard->file != SHARD_FILE_NONE)
        snapshot_start(shard);
    if (shard->awaited_count == 0)
        shard_core_committed(shard, shard->decision.step, effects);
    if (shard->config.async.on) {
        async_open(&shard->async, shard->decided);
        report_open(shard, effects);
    }
}

/* ---- snapshot ---- */

/* A copy buffer that the writer does not hold; NULL: none. */
static enum err snapshot_copy(struct shard *shard, struct counted **ret_copy)
{
    *ret_copy = NULL;
    for (uint32_t i = 0; i < shard->config.snapshot_copies; i++) {
        struct counted **copy = &shard->copies[i];
        if (*copy == NULL) {
            *copy = counted_new(chunk_copy_bytes(&shard->store) + shard_extra_bytes(shard));
            if (*copy == NULL)
                return ERR_NOMEM;
        }
        if (atomic_load_explicit(&(*copy)->references, memory_order_acquire) == 1) {
            *ret_copy = *copy;
            break;
        }
    }
    return ERR_OK;
}

/* Hands out the next chunk; *ret_done false: the writer holds all copies. */
static enum err snapshot_next(struct shard *shard, struct shard_effects *effects, bool *ret_done)
{
    uint32_t index = shard->snapshot_next;
    struct counted *copy = NULL;
    *ret_done = false;
    if (index < shard->store.count) {
        TRY(snapshot_copy(shard, &copy));
        if (copy == NULL)
            return ERR_OK;
    }
    struct shard_effect *effect = shard_core_emit(effects, SHARD_SNAPSHOT);
    effect->snapshot.cut = shard->snapshot_cut;
    effect->snapshot.file = shard->snapshot_file;
    effect->snapshot.states = shard->store.states;
    effect->snapshot.versions = shard->store.cut_versions;
    effect->snapshot.extra_bytes = shard_extra_bytes(shard);
    if (copy != NULL) {
        const struct chunk *chunk = &shard->store.chunks[index];
        chunk_copy(&shard->store, chunk, shard->snapshot_cut.version, (float *)copy->data);
        if (shard->config.async.on)
            async_store(&shard->async, index,
                        copy->data +
                            (size_t)(1 + shard->store.states) * chunk->spec.n * sizeof(float));
        effect->snapshot.copy = counted_ref(copy);
        effect->snapshot.chunk = chunk->spec.chunk;
        effect->snapshot.n = chunk->spec.n;
        shard->snapshot_next++;
        snapshot_skip(shard);
    }
    effect->snapshot.last = shard->snapshot_next == shard->store.count;
    shard->snapshot = !effect->snapshot.last;
    *ret_done = true;
    return ERR_OK;
}

bool shard_snapshot_begin(struct shard *shard)
{
    if (shard->snapshot || shard->applying)
        return false;
    snapshot_start(shard);
    return true;
}

/* A chunk is handed out before a later step changes it. */
static bool may_apply(const struct shard *shard)
{
    return shard->apply_next < shard->store.count &&
           (!shard->snapshot || shard->snapshot_next > shard->apply_next);
}

/* Applies the next chunk and those behind it that only change their version: nobody pulls the loss,
 * so a worker with all weights expects it to be there. What comes with this commit has had it. */
static enum err apply_next(struct shard *shard, struct shard_effects *effects)
{
    struct chunk *chunks = shard->store.chunks;
    do {
        if (chunks[shard->apply_next].since <= shard->decision.step)
            TRY(chunk_apply(&shard->store, &chunks[shard->apply_next], &shard->decision));
        shard->apply_next++;
    } while (may_apply(shard) && chunks[shard->apply_next].spec.rule == MODEL_NONE);
    if (shard->apply_next == shard->store.count)
        version_reached(shard);
    answer_parked(shard, effects);
    return ERR_OK;
}

/* Applies one gradient that waited for the log. */
static enum err work_async(struct shard *shard, struct shard_effects *effects)
{
    bool reduced_before = async_reduced(&shard->async);
    TRY(async_work(&shard->async));
    if (!reduced_before)
        report_open(shard, effects);
    return ERR_OK;
}

/* Answers come before work. False: there are more than effects have room for. */
static bool answer(struct shard *shard, struct shard_effects *effects)
{
    if (!judge_all_again(shard, effects))
        return false;
    if (shard->applying)
        answer_parked(shard, effects);
    return !shard->applying || shard->answer_next == shard->apply_next;
}

enum err shard_work(struct shard *shard, struct shard_effects *effects, bool *ret_more)
{
    shard_core_begin(shard);
    if (shard->config.async.on && async_has_work(&shard->async)) {
        *ret_more = true;
        return work_async(shard, effects);
    }
    if (!answer(shard, effects)) {
        *ret_more = true;
        return ERR_OK;
    }
    if (shard->applying && !shard->snapshot && shard->async.applied < shard->cut_after) {
        *ret_more = false; /* shard_logged() comes */
        return ERR_OK;
    }
    bool done = true;
    uint32_t leaver = shard_move_next(shard);
    if (shard->applying && may_apply(shard))
        TRY(apply_next(shard, effects));
    else if (shard->snapshot)
        TRY(snapshot_next(shard, effects, &done));
    else if (shard->applying)
        apply_end(shard, effects);
    if (leaver < shard->store.count)
        shard_move_send(shard, leaver, effects);
    bool more = shard->applying || shard->snapshot;
    *ret_more = (done && more) || shard_move_next(shard) < shard->store.count;
    return ERR_OK;
}

/* ---- reports ---- */

void shard_report(const struct shard *shard, struct shard_effects *effects)
{
    if (shard->config.async.on) {
        report_open(shard, effects);
        return;
    }
    for (uint64_t t = shard->decided; step_open(shard, t); t++)
        if (step_reduced(shard, t))
            emit_reduced(shard, t, effects);
}

/* False: there is no room for more effects. */
static bool close_ring(struct shard *shard, const struct parked_pull *ring,
                       struct shard_effects *effects)
{
    struct parked_pull *pull;
    while ((pull = parked_find(ring, UINT64_MAX)) != NULL) {
        if (effects->count == SHARD_EFFECTS_MAX)
            return false;
        emit_refusal(pull->sender, pull->id, ERR_OLD_GENERATION, effects);
        parked_take(&shard->parked, pull);
        free(pull);
    }
    return true;
}

bool shard_close(struct shard *shard, struct shard_effects *effects)
{
    shard_core_begin(shard);
    for (uint32_t i = 0; i < shard->store.count; i++)
        if (!close_ring(shard, shard->store.chunks[i].waiting, effects))
            return false;
    return close_ring(shard, shard->later, effects) && close_ring(shard, shard->again, effects);
}

uint64_t shard_generation(const struct shard *shard)
{
    return shard->config.generation;
}

uint64_t shard_version(const struct shard *shard)
{
    return shard->version;
}

bool shard_decision(const struct shard *shard, struct commit *ret_commit)
{
    if (shard->has_decision)
        *ret_commit = shard->decision;
    return shard->has_decision;
}

struct shard_statistics shard_statistics(const struct shard *shard)
{
    struct shard_statistics statistics = shard->statistics;
    statistics.open_nodes = shard->store.open_nodes;
    statistics.open_nodes_max = shard->store.open_nodes_most;
    statistics.parked = shard->parked.count;
    return statistics;
}

/* ---- invariants ---- */

static void check_chunks(const struct shard *shard)
{
    uint64_t last_open = shard->version + shard->config.delay, open_nodes = 0;
    for (uint32_t i = 0; i < shard->store.count; i++) { /* 2, 3, 4, 6 */
        const struct chunk *chunk = &shard->store.chunks[i];
        chunk_check(&shard->store, chunk, shard->decided, last_open);
        bool ahead = (shard->applying && i < shard->apply_next) || chunk->since > shard->version;
        uint64_t newest = ahead ? shard->decided : shard->version;
        for (uint64_t v = version_low(shard, chunk); !chunk->awaited && v <= newest; v++)
            check(published_get(&chunk->published, v) != NULL);
        for (uint32_t p = 0; p < chunk->spec.parts; p++)
            for (uint32_t t = 0; t < shard->store.open_steps; t++)
                open_nodes += chunk->parts[p].trees[t].held_count;
    }
    check(open_nodes == shard->store.open_nodes);
    for (uint64_t t = shard->decided; t <= last_open; t++) { /* 1, 3 */
        uint32_t summed = 0;
        for (uint32_t i = 0; i < shard->store.count; i++)
            summed += shard->store.chunks[i].summed[t % shard->store.open_steps];
        check(summed == step_of(shard, t)->summed_count);
    }
}

static void check_parked(const struct shard *shard)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < shard->store.count; i++) { /* 5 */
        const struct chunk *chunk = &shard->store.chunks[i];
        bool unanswered = shard->applying && i >= shard->answer_next;
        uint64_t newest = shard->decided - unanswered;
        const struct parked_pull *ring = chunk->waiting;
        for (const struct parked_pull *p = ring->behind; p != ring; p = p->behind, count++)
            check(chunk->awaited || p->version > newest);
    }
    for (const struct parked_pull *p = shard->later->behind; p != shard->later; p = p->behind)
        count++;
    for (const struct parked_pull *p = shard->again->behind; p != shard->again; p = p->behind)
        count++;
    check(count == shard->parked.count);
}

static void check_moves(const struct shard *shard)
{
    uint32_t leaving = 0, awaited = 0, sent = 0;
    for (uint32_t i = 0; i < shard->store.count; i++) { /* 8 */
        const struct chunk *chunk = &shard->store.chunks[i];
        leaving += chunk->leaving;
        awaited += chunk->awaited;
        sent += chunk->sent;
        check(!chunk->sent || chunk->leaving);
        check(!chunk->leaving || !chunk->awaited);
        check(!chunk->awaited || chunk->since == shard->decided);
        for (uint64_t t = shard->decided;
             chunk->leaving && t <= shard->version + shard->config.delay; t++)
            check(!chunk->summed[t % shard->store.open_steps]);
    }
    check(leaving == shard->leaving_count);
    check(awaited == shard->awaited_count);
    check(sent == shard->transfers && sent <= SHARD_TRANSFERS_MAX);
}

void shard_check(const struct shard *shard)
{
    if (shard->config.async.on) {
        async_check(&shard->async);
        return;
    }
    bool changing = shard->applying && shard->apply_next < shard->store.count;
    check(shard->decided == shard->version + changing || shard->store.count == 0);
    check(!shard->applying || shard->answer_next <= shard->apply_next);
    check_chunks(shard);
    check_parked(shard);
    check_moves(shard);
    check(!shard->snapshot || !shard->applying ||
          shard->snapshot_next >= shard->apply_next); /* 7 */
}
