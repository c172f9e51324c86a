/* Async at the shard: names, messages and effects around async.c. */
#include "server/shard/shard_async.h"

static void emit_order(struct shard *shard, struct shard_order order, struct shard_effects *effects)
{
    order.entries = shard->async.entries;
    shard_core_emit(effects, SHARD_ORDER)->order = order;
}

/* While a commit is being carried out, the complete step may still be the commit's own. */
void shard_async_report(const struct shard *shard, struct shard_effects *effects)
{
    if (shard->applying || !async_reduced(&shard->async))
        return;
    struct step *step = shard_core_step(shard, shard->decided);
    for (uint32_t i = 0; i < shard->store.count; i++)
        shard->store.chunks[i].seals[0].finite = true; /* one step is open */
    async_loss(&shard->async, shard->decided, step->loss);
    shard_core_report(shard, shard->decided, effects);
}

/* One report a push is enough to name the worker. */
static void tell_not_finite(const struct shard *shard, const struct push *push,
                            struct shard_effects *effects)
{
    const struct async *async = &shard->async;
    uint32_t i = 0;
    while (i < async->entry_count && !async->entries[i].skipped)
        i++;
    if (i == async->entry_count)
        return;
    struct shard_effect *effect = shard_core_emit(effects, SHARD_NOT_FINITE);
    effect->not_finite.member = push->member;
    effect->not_finite.step = push->step;
    effect->not_finite.slot = push->node.index;
    effect->not_finite.chunk = async->entries[i].chunk;
}

struct shard_ack shard_async_push(struct shard *shard, const struct push *push,
                                  struct cursor *payload, struct shard_effects *effects)
{
    struct shard_ack ack = {0};
    struct async *async = &shard->async;
    bool reduced_before = async_reduced(async);
    async->entry_count = 0;
    ack.code = shard_core_fence(shard, push->generation); /* P2 */
    if (ack.code == ERR_OK)
        ack.code =
            async_push(async, push, payload, &shard->statistics, &ack.first_refused, &ack.after);
    struct shard_order order = {.kind = SHARD_ORDER_TAKE,
                                .attempt = push->attempt,
                                .ticket = push->step * shard->config.slots + push->node.index,
                                .scale = push->scale,
                                .count = async->entry_count};
    if (order.count > 0)
        emit_order(shard, order, effects);
    tell_not_finite(shard, push, effects);
    if (!reduced_before)
        shard_async_report(shard, effects);
    return ack;
}

/* The order log has the versions that an attempt is given before they are sent: ORDER comes before
 * WEIGHTS. */
void shard_async_pull(struct shard *shard, uint64_t sender, const struct pull *pull,
                      struct shard_effects *effects)
{
    struct async *async = &shard->async;
    async->entry_count = pull->chunk_count;
    for (uint32_t i = 0; i < pull->chunk_count; i++) {
        uint32_t index = chunk_find(&shard->store, pull->chunks[i]);
        uint64_t version = async->chunks[index].version;
        struct counted *copy = published_get(&shard->store.chunks[index].published, version);
        async->versions[i] = version;
        async->entries[i] = (struct shard_order_entry){pull->chunks[i], version, 0, NULL, false};
        shard->outgoing[shard->outgoing_count++] = counted_ref(copy);
        shard->statistics.pulled_bytes += copy->bytes;
    }
    if (pull->attempt != 0)
        emit_order(shard,
                   (struct shard_order){.kind = SHARD_ORDER_PULL,
                                        .attempt = pull->attempt,
                                        .count = pull->chunk_count},
                   effects);
    struct shard_effect *effect = shard_core_emit(effects, SHARD_WEIGHTS);
    effect->sender = sender;
    effect->weights.header = (struct weights){.id = pull->id,
                                              .codec = shard->config.weights_codec,
                                              .chunk_count = pull->chunk_count,
                                              .chunks = pull->chunks,
                                              .versions = async->versions};
    effect->weights.copies = shard->outgoing;
}

enum err shard_async_work(struct shard *shard, struct shard_effects *effects)
{
    bool reduced_before = async_reduced(&shard->async);
    TRY(async_work(&shard->async));
    if (!reduced_before)
        shard_async_report(shard, effects);
    return ERR_OK;
}

/* ---- for the log and the files ---- */

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
            shard->store.chunks[*next].spec.chunk, async->chunks[*next].version, 0, NULL, false};
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
