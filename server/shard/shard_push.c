/* A push: its checks, and the counting of its names, each once. */
#include "server/shard/shard_async.h"
#include "server/shard/shard_core.h"

/* All of the node that the ticket names, or one of its halves: in an audited run nobody could compare
 * other parts with what the second worker brings. */
static bool brings_what_it_may(const struct shard *shard, const struct push *push)
{
    struct node granted = push->tickets[0].node;
    uint32_t slots = shard->config.slots;
    if (push->ticket_count > 1 || !node_valid(granted, slots))
        return false;
    uint32_t half = tree_level(node_slots(granted, slots) / 2);
    return push->node.level == (shard->config.halves ? half : granted.level) &&
           node_contains(granted, push->node);
}

static enum err push_judge(const struct shard *shard, const struct push *push)
{
    TRY(shard_core_fence(shard, push->generation));
    if (!node_valid(push->node, shard->config.slots) || push->codec != shard->config.push_codec)
        return ERR_MALFORMED;
    /* P4: sums of rounded numbers depend on where the rounding was. */
    if (push->codec != CODEC_FP32 && push->node.level != shard->config.node_level)
        return ERR_MALFORMED;
    bool past = push->step < shard->decided;
    if (!past && !shard_core_open(shard, push->step))
        return ERR_TOO_EARLY;
    bool judged = shard->config.audited && push->ticket_count > 0;
    return !judged || brings_what_it_may(shard, push) ? ERR_OK : ERR_NO_GRANT;
}

/* A chunk's sum is complete: makes the chunk's part of the seal. */
static void seal_chunk(struct shard *shard, uint32_t index, uint64_t number, const float *sum)
{
    const struct kernels *kernels = shard->config.kernels;
    struct chunk *chunk = &shard->store.chunks[index];
    const struct shard_chunk *spec = &chunk->spec;
    struct step *step = shard_core_step(shard, number);
    double sumsq;
    kernels->sum_squares(kernels, &sumsq, sum, spec->n);
    chunk->seals[number % shard->store.open_steps] = (struct chunk_seal){
        .chunk = spec->chunk,
        .finite = __builtin_isfinite(sumsq),
        /* Only gradients that the optimizer scales count for the norm. */
        .sumsq = spec->rule == MODEL_OPTIMIZER ? sumsq : 0,
    };
    for (uint32_t i = 0; spec->loss && i < MODEL_LOSS_WEIGHTS; i++)
        step->loss[i] = (double)sum[i];
    step->summed_count++;
}

/* The digest of the values. */
static uint64_t digest_of(struct shard *shard, const struct reduce_values *values, uint32_t n)
{
    reduce_read(values, n);
    return digest_keyed_finish(shard->digest);
}

static void count_duplicate(struct shard *shard, uint64_t sender, const struct push *push,
                            const struct push_entry *entry, const struct reduce_values *values,
                            struct shard_effects *effects)
{
    const struct chunk *chunk = &shard->store.chunks[chunk_find(&shard->store, entry->chunk)];
    const struct name *first = names_first(&chunk->parts[entry->part].names, push);
    if (push->audited && (first == NULL || first->member != push->member))
        shard->statistics.audited++;
    else
        shard->statistics.duplicates++;
    if (first == NULL || first->digest == digest_of(shard, values, chunk->spec.n))
        return;
    shard->statistics.wrong_bits++;
    for (uint32_t i = 0; i < effects->count; i++)
        if (effects->items[i].kind == SHARD_WRONG_BITS)
            return; /* one report a message is enough to name the two workers */
    struct shard_effect *effect = shard_core_emit(effects, SHARD_WRONG_BITS);
    effect->sender = sender;
    effect->wrong_bits.member = push->member;
    effect->wrong_bits.first_member = first->member;
    effect->wrong_bits.step = push->step;
    effect->wrong_bits.node = push->node;
    effect->wrong_bits.chunk = entry->chunk;
    effect->wrong_bits.part = entry->part;
}

static uint64_t samples_of(const struct shard *shard, struct node node)
{
    return (uint64_t)node_slots(node, shard->config.slots) * shard->config.slot_samples;
}

/* Who sent it may still change what came (rpc_message): what is judged is what is counted. */
static void copy_loss(struct cursor *payload, float ret_loss[static MODEL_LOSS_WEIGHTS])
{
    for (size_t i = 0; i < MODEL_LOSS_WEIGHTS; i++) {
        uint8_t cut_value[8];
        const uint8_t *bytes;
        cursor_values(payload, sizeof *ret_loss, 1, cut_value, &bytes);
        memcpy(&ret_loss[i], bytes, sizeof *ret_loss);
    }
}

/* Counts a new name of an open step. */
static enum err count_new(struct shard *shard, uint32_t index, const struct push *push,
                          const struct push_entry *entry, const struct reduce_values *values)
{
    struct chunk *chunk = &shard->store.chunks[index];
    struct reduce_values own = *values;
    float loss[MODEL_LOSS_WEIGHTS];
    const struct slice slice = {(const uint8_t *)loss, sizeof loss};
    struct cursor copied = {.slices = &slice, .slice_count = 1};
    if (chunk->spec.loss) {
        check(chunk->spec.n == MODEL_LOSS_WEIGHTS && values->rows == NULL);
        copy_loss(values->cursor, loss);
        own.cursor = &copied;
        if (!chunk_loss_counts(loss[MODEL_LOSS_COUNT], samples_of(shard, push->node)))
            return ERR_MALFORMED;
    }
    enum reduce_result result =
        chunk_push(&shard->store, chunk, push->step, entry->part, push->node, &own);
    check(result != REDUCE_DUPLICATE);
    if (result == REDUCE_BUSY) {
        shard->statistics.busy++;
        return ERR_BUSY;
    }
    chunk_count_bytes(chunk, entry, values->codec, &shard->statistics);
    names_remember(&chunk->parts[entry->part].names, push, digest_keyed_finish(shard->digest));
    const float *sum = chunk_sum(&shard->store, chunk, push->step);
    if (sum != NULL)
        seal_chunk(shard, index, push->step, sum);
    return ERR_OK;
}

static enum err count_entry(struct shard *shard, uint64_t sender, const struct push *push,
                            const struct push_entry *entry, struct cursor *payload,
                            struct shard_effects *effects)
{
    uint32_t index = chunk_find(&shard->store, entry->chunk);
    if (index == shard->store.count)
        return shard_core_not_here(shard, entry->chunk);
    struct chunk *chunk = &shard->store.chunks[index];
    if (chunk->leaving && push->step >= shard->decided)
        return ERR_MOVED; /* P11: the chunk has moved, and its new owner sums it */
    enum codec codec = chunk->spec.loss ? CODEC_FP32 : push->codec;
    if (!chunk_takes(chunk, entry, codec) || cursor_bytes(payload) < entry->bytes)
        return ERR_MALFORMED;
    struct reduce_rows rows;
    const struct reduce_values values = {payload, codec, shard->digest,
                                         chunk_rows(chunk, entry, &rows)};
    bool held = push->step < shard->decided || /* all names of a decided step were counted */
                chunk_holds(&shard->store, chunk, push->step, entry->part, push->node);
    if (!held)
        return count_new(shard, index, push, entry, &values);
    const struct cursor before = *payload;
    count_duplicate(shard, sender, push, entry, &values, effects);
    *payload = before; /* whether it was compared or not */
    cursor_skip(payload, entry->bytes);
    return ERR_OK;
}

/* The first part of the chunk without the slot; spec.parts: all have it. */
static uint32_t lacking_part(const struct shard *shard, const struct chunk *chunk, uint64_t step,
                             uint32_t slot)
{
    uint32_t part = 0;
    while (part < chunk->spec.parts &&
           chunk_holds(&shard->store, chunk, step, part, (struct node){0, slot}))
        part++;
    return part;
}

static bool lacks_slot(const struct shard *shard, const struct chunk *chunk, uint64_t step,
                       uint32_t slot)
{
    return lacking_part(shard, chunk, step, slot) < chunk->spec.parts;
}

bool shard_missing(const struct shard *shard, uint64_t *step, uint64_t *ret_slots)
{
    bool any = false;
    memset(ret_slots, 0, WIRE_SLOT_WORDS_MAX * sizeof *ret_slots);
    if (shard->config.async.on)
        return async_missing(&shard->async, step, ret_slots);
    /* P11: the commit before the step, which has not come yet, may bring chunks and take some. */
    if (*step != shard->decided || !shard_core_open(shard, *step))
        return false;
    for (uint32_t i = 0; i < shard->store.count; i++) {
        const struct chunk *chunk = &shard->store.chunks[i];
        for (uint32_t slot = 0; slot < shard->config.slots && !chunk->leaving; slot++) {
            if (!lacks_slot(shard, chunk, *step, slot))
                continue;
            ret_slots[slot / 64] |= UINT64_C(1) << slot % 64;
            any = true;
        }
    }
    return any;
}

static bool find_lack(const struct shard *shard, uint64_t step, uint32_t slot,
                      struct lack *ret_lack)
{
    for (uint32_t i = 0; i < shard->store.count; i++) {
        const struct chunk *chunk = &shard->store.chunks[i];
        if (chunk->leaving || !lacks_slot(shard, chunk, step, slot))
            continue;
        *ret_lack = (struct lack){slot, chunk->spec.chunk, lacking_part(shard, chunk, step, slot)};
        return true;
    }
    return false;
}

uint32_t shard_lacks(const struct shard *shard, uint64_t step,
                     struct lack ret_lacks[static WIRE_LACKS_MAX])
{
    uint32_t count = 0;
    if (shard->config.async.on)
        return 0;
    for (uint32_t slot = 0; slot < shard->config.slots && count < WIRE_LACKS_MAX; slot++)
        count += find_lack(shard, step, slot, &ret_lacks[count]) ? 1 : 0;
    return count;
}

struct shard_ack shard_push(struct shard *shard, uint64_t sender, const struct push *push,
                            struct cursor payload, struct shard_effects *effects)
{
    shard_core_begin(shard);
    if (shard->config.async.on)
        return shard_async_push(shard, push, &payload, effects);
    bool reduced_before = shard_core_reduced(shard, push->step);
    enum err err = push_judge(shard, push);
    uint32_t i = 0;
    while (err == ERR_OK && i < push->entry_count) {
        err = count_entry(shard, sender, push, &push->entries[i], &payload, effects);
        if (err == ERR_OK)
            i++;
    }
    if (!reduced_before && shard_core_reduced(shard, push->step))
        shard_core_report(shard, push->step, effects);
    return (struct shard_ack){err, i, 0};
}
