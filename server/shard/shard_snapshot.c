/* Hands the chunks of a cut out, and keeps the copy buffers in a ring: those that the writer holds,
 * in the order in which it got them, then the free ones. */
#include "server/shard/shard_snapshot.h"

/* P11: a chunk leaves after the cut of its commit. So a chunk that came is not in this server's
 * file: its old owner wrote it. */
static void skip_chunks(struct shard *shard)
{
    const struct chunk_store *store = &shard->store;
    while (shard->snapshot_next < store->count &&
           store->chunks[shard->snapshot_next].first_cut > shard->snapshot_cut.version)
        shard->snapshot_next++;
}

void shard_snapshot_start(struct shard *shard)
{
    shard->snapshot = true;
    shard->snapshot_cut = (struct cut_name){shard->config.generation, shard->version};
    shard->snapshot_file = shard->file;
    shard->snapshot_attempt = shard->attempt;
    shard->snapshot_next = shard->snapshot_lent = shard->snapshot_given = 0;
    skip_chunks(shard);
}

/* How many copy buffers the writer holds. It gives them back in the order in which it got them.
 * Acquire: its reads are over before this thread writes again. */
static uint32_t copies_out(struct shard *shard)
{
    for (; shard->copies_out > 0; shard->copies_out--) {
        uint32_t made = shard->copies_made;
        uint32_t oldest = (shard->copies_next + made - shard->copies_out) % made;
        const struct counted *copy = shard->copies[oldest];
        if (atomic_load_explicit(&copy->references, memory_order_acquire) > 1)
            break;
    }
    return shard->copies_out;
}

/* Puts a new buffer into the ring, between those that were used last and first. */
static enum err make_copy(struct shard *shard)
{
    struct counted **place = &shard->copies[shard->copies_next];
    struct counted *copy = counted_new(chunk_copy_bytes(&shard->store) + shard_extra_bytes(shard));
    if (copy == NULL)
        return ERR_NOMEM;
    memmove(place + 1, place, (shard->copies_made - shard->copies_next) * sizeof(struct counted *));
    *place = copy;
    shard->copies_made++;
    return ERR_OK;
}

enum err shard_snapshot_spare(struct shard *shard, struct counted ***ret_place)
{
    uint32_t out = copies_out(shard);
    *ret_place = NULL;
    if (out == shard->config.snapshot_copies)
        return ERR_OK;
    if (out == shard->copies_made)
        TRY(make_copy(shard));
    *ret_place = &shard->copies[shard->copies_next];
    return ERR_OK;
}

void shard_snapshot_spare_used(struct shard *shard)
{
    shard->copies_next = (shard->copies_next + 1) % shard->copies_made;
    shard->copies_out++;
}

bool shard_snapshot_wants_spare(const struct shard *shard)
{
    uint32_t copies = shard->config.snapshot_copies, large = shard->store.large_count;
    return shard->config.snapshot_early && !shard->applying && !shard->snapshot &&
           shard->copies_made < (copies < large ? copies : large);
}

static const struct chunk *large_chunk(const struct chunk_store *store, uint32_t number)
{
    const struct chunk *chunk = store->chunks;
    while (!chunk->large || number-- > 0)
        chunk++;
    return chunk;
}

/* The system gives memory only when it is touched: here, not within a step. For each copy the
 * weights of one more chunk find theirs, too: they go elsewhere while the writer reads them. */
void shard_snapshot_make_spare(struct shard *shard)
{
    if (make_copy(shard) != ERR_OK) {
        shard->config.snapshot_early = false;
        return;
    }
    struct counted *copy = shard->copies[shard->copies_next];
    shard->store.kernels->zero(shard->store.kernels, copy->data, copy->bytes);
    chunk_touch(large_chunk(&shard->store, shard->copies_made - 1));
}

/* While no step waits for the block, a few keep the writer busy: a chunk is best copied just before
 * it changes, when it is read anyway, and one that is written by then lends nothing. */
static bool is_far_ahead(struct shard *shard)
{
    const uint32_t ahead = 8, ahead_max = SHARD_AHEAD_MAX;
    const struct chunk *chunks = shard->store.chunks;
    while (shard->snapshot_lent < shard->snapshot_next &&
           !chunk_is_lent(&chunks[shard->snapshot_lent]))
        shard->snapshot_lent++;
    uint32_t next = shard->snapshot_next, lent = shard->snapshot_lent;
    uint32_t held = (next > lent ? next - lent : 0) + copies_out(shard);
    return held >= (shard->applying ? ahead_max : ahead);
}

static enum err copy_block(struct shard *shard, uint32_t index, struct counted **ret_block)
{
    const struct chunk *chunk = &shard->store.chunks[index];
    struct counted **place;
    *ret_block = NULL;
    TRY(shard_snapshot_spare(shard, &place));
    if (place == NULL)
        return ERR_OK;
    uint8_t *data = (*place)->data;
    chunk_copy(&shard->store, chunk, shard->snapshot_cut.version, (float *)data);
    if (shard->config.async.on)
        async_store(&shard->async, index,
                    data + (size_t)(1 + shard->store.states) * chunk->spec.n * sizeof(float));
    *ret_block = counted_ref(*place);
    shard_snapshot_spare_used(shard);
    return ERR_OK;
}

/* What a cut has of the chunk, references for the writer; NULL: not now, and no weights beside the
 * block. */
static enum err block_of(struct shard *shard, uint32_t index, struct counted **ret_block,
                         struct counted **ret_weights)
{
    const struct chunk *chunk = &shard->store.chunks[index];
    *ret_block = *ret_weights = NULL;
    if (is_far_ahead(shard))
        return ERR_OK;
    if (!chunk->lends)
        return copy_block(shard, index, ret_block);
    *ret_block = counted_ref(chunk->values);
    *ret_weights = chunk_published_weights(chunk, shard->snapshot_cut.version);
    if (*ret_weights != NULL)
        counted_ref(*ret_weights);
    return ERR_OK;
}

enum err shard_snapshot_next(struct shard *shard, struct shard_effects *effects, bool *ret_done)
{
    uint32_t index = shard->snapshot_next;
    struct counted *block = NULL, *weights = NULL;
    *ret_done = false;
    if (index < shard->store.count) {
        TRY(block_of(shard, index, &block, &weights));
        if (block == NULL)
            return ERR_OK;
    }
    struct shard_effect *effect = shard_core_emit(effects, SHARD_SNAPSHOT);
    effect->snapshot.cut = shard->snapshot_cut;
    effect->snapshot.file = shard->snapshot_file;
    effect->snapshot.attempt = shard->snapshot_attempt;
    effect->snapshot.states = shard->store.states;
    effect->snapshot.versions = shard->store.cut_versions;
    effect->snapshot.extra_bytes = shard_extra_bytes(shard);
    if (block != NULL) {
        const struct chunk *chunk = &shard->store.chunks[index];
        effect->snapshot.block = block;
        effect->snapshot.weights = weights;
        effect->snapshot.chunk = chunk->spec.chunk;
        effect->snapshot.n = chunk->spec.n;
        shard->snapshot_next++;
        shard->snapshot_given++;
        skip_chunks(shard);
    }
    effect->snapshot.given = shard->snapshot_given;
    effect->snapshot.last = shard->snapshot_next == shard->store.count;
    shard->snapshot = !effect->snapshot.last;
    *ret_done = true;
    return ERR_OK;
}

/* ---- the writer's side ---- */

const float *shard_snapshot_weights(const struct shard_effect *snapshot)
{
    const struct counted *weights = snapshot->snapshot.weights;
    return (const float *)(weights != NULL ? weights : snapshot->snapshot.block)->data;
}

const float *shard_snapshot_rest(const struct shard_effect *snapshot)
{
    const float *block = (const float *)snapshot->snapshot.block->data;
    return snapshot->snapshot.weights != NULL ? block : block + snapshot->snapshot.n;
}

void shard_snapshot_drop(const struct shard_effect *snapshot)
{
    counted_unref(snapshot->snapshot.weights);
    counted_unref(snapshot->snapshot.block);
}
