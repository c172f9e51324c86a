/* All arrays of a shard are taken at once and dealt out to its chunks. */
#include "server/chunk.h"

#include "server/optimizer.h"

#include <string.h>

/* ---- memory ---- */

static uint32_t padded(uint32_t n)
{
    return (n + 15) / 16 * 16; /* every array begins on a cache line */
}

/* calloc that gives memory for a count of 0 as well. */
static void *take(size_t count, size_t bytes)
{
    return calloc(count == 0 ? 1 : count, bytes);
}

static enum err take_values(struct chunk_store *store, size_t values)
{
    size_t bytes = (values == 0 ? 1 : values) * sizeof(float);
    store->values = store->kernels->alloc(store->kernels, bytes);
    if (store->values == NULL)
        return ERR_NOMEM;
    store->kernels->zero(store->kernels, store->values, bytes);
    return ERR_OK;
}

static enum err take_memory(struct chunk_store *store, const struct shard_config *config)
{
    size_t parts = 0, values = 0, open = store->open_steps;
    for (uint32_t i = 0; i < config->chunk_count; i++) {
        parts += config->chunks[i].parts;
        values += (size_t)padded(config->chunks[i].n) * (1 + store->states);
    }
    size_t sums = reduce_sums_max(config->slots, config->ahead_max);
    store->chunks = take(config->chunk_count, sizeof *store->chunks);
    store->parts = take(parts, sizeof *store->parts);
    store->trees = take(parts * open, sizeof *store->trees);
    store->sums = take(parts * open * sums, sizeof *store->sums);
    store->free = take(parts * open * sums, sizeof *store->free);
    store->names = take(parts * (open + 1) * names_places(config->slots), sizeof *store->names);
    store->summed = take(config->chunk_count * open, sizeof *store->summed);
    if (store->chunks == NULL || store->parts == NULL || store->trees == NULL ||
        store->sums == NULL || store->free == NULL || store->names == NULL || store->summed == NULL)
        return ERR_NOMEM;
    return take_values(store, values);
}

/* Whether a sum is out of all caches until its other half comes, which is when every other chunk's
 * has come. 16 MiB is half of an EPYC's L3: where copying around the caches begins to pay. */
static bool is_uncached(const struct shard_config *config)
{
    const size_t cached_bytes_max = 16 << 20;
    size_t bytes = 0;
    for (uint32_t i = 0; i < config->chunk_count; i++)
        bytes += (size_t)config->chunks[i].parts * config->chunks[i].n * sizeof(float);
    return bytes > cached_bytes_max;
}

static void part_init(struct chunk_store *store, struct chunk_part *part,
                      const struct shard_config *config, uint32_t n)
{
    size_t number = (size_t)(part - store->parts), open = store->open_steps;
    uint32_t sums = reduce_sums_max(config->slots, config->ahead_max);
    uint32_t places = names_places(config->slots);
    part->buffers = (struct reduce_buffers){.n = n,
                                            .uncached = store->uncached,
                                            .made_max = sums * store->open_steps,
                                            .free = store->free + number * open * sums};
    part->trees = store->trees + number * open;
    for (size_t i = 0; i < open; i++)
        part->trees[i] = (struct reduce){.slots = config->slots,
                                         .ahead_max = config->ahead_max,
                                         .held = store->sums + (number * open + i) * sums};
    part->names = (struct names){.steps = store->open_steps + 1,
                                 .places = places,
                                 .root_level = tree_level(config->slots),
                                 .names = store->names + number * (open + 1) * places};
}

enum err chunk_store_init(struct chunk_store *store, const struct shard_config *config)
{
    *store = (struct chunk_store){.kernels = config->kernels,
                                  .optimizer = config->optimizer,
                                  .slots = config->slots,
                                  .states = optimizer_states(config->optimizer.kind),
                                  .open_steps = config->delay + 1,
                                  .cut_versions = config->cut_versions,
                                  .uncached = is_uncached(config)};
    TRY(take_memory(store, config));
    float *values = store->values;
    struct chunk_part *part = store->parts;
    for (uint32_t i = 0; i < config->chunk_count; i++) {
        struct chunk *chunk = &store->chunks[i];
        chunk->spec = config->chunks[i];
        chunk->codec = chunk->spec.loss ? CODEC_FP32 : config->weights_codec;
        chunk->summed = store->summed + (size_t)i * store->open_steps;
        chunk->parts = part;
        for (uint32_t p = 0; p < chunk->spec.parts; p++)
            part_init(store, part++, config, chunk->spec.n);
        chunk->state.weights = values;
        values += padded(chunk->spec.n);
        for (uint32_t s = 0; s < store->states; s++, values += padded(chunk->spec.n))
            chunk->state.state[s] = values;
        store->count++;
        TRY(published_init(&chunk->published, store->open_steps,
                           (size_t)chunk->spec.n * codec_bytes(chunk->codec)));
    }
    return ERR_OK;
}

static void release_chunk(struct chunk_store *store, struct chunk *chunk)
{
    for (uint32_t p = 0; p < chunk->spec.parts; p++) {
        struct chunk_part *part = &chunk->parts[p];
        for (uint32_t i = 0; i < store->open_steps; i++)
            reduce_clear(&part->trees[i], &part->buffers);
        reduce_buffers_release(&part->buffers, store->kernels);
    }
    published_release(&chunk->published);
}

void chunk_store_release(struct chunk_store *store)
{
    for (uint32_t i = 0; i < store->count; i++)
        release_chunk(store, &store->chunks[i]);
    if (store->values != NULL)
        store->kernels->free(store->kernels, store->values);
    free(store->chunks);
    free(store->parts);
    free(store->trees);
    free(store->sums);
    free(store->free);
    free(store->names);
    free(store->summed);
}

uint32_t chunk_find(const struct chunk_store *store, uint32_t number)
{
    uint32_t low = 0, high = store->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (store->chunks[middle].spec.chunk < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < store->count && store->chunks[low].spec.chunk == number ? low : store->count;
}

/* ---- sums ---- */

static struct reduce *tree_of(const struct chunk_store *store, const struct chunk *chunk,
                              uint64_t step, uint32_t part)
{
    return &chunk->parts[part].trees[step % store->open_steps];
}

static void clear_tree(struct chunk_store *store, struct chunk *chunk, uint64_t step, uint32_t part)
{
    struct reduce *tree = tree_of(store, chunk, step, part);
    store->open_nodes -= tree->held_count;
    reduce_clear(tree, &chunk->parts[part].buffers);
}

bool chunk_holds(const struct chunk_store *store, const struct chunk *chunk, uint64_t step,
                 uint32_t part, struct node node)
{
    return chunk->summed[step % store->open_steps] ||
           reduce_holds(tree_of(store, chunk, step, part), node);
}

enum reduce_result chunk_push(struct chunk_store *store, struct chunk *chunk, uint64_t step,
                              uint32_t part, struct node node, enum codec codec,
                              struct cursor *payload)
{
    struct reduce *tree = tree_of(store, chunk, step, part);
    store->open_nodes -= tree->held_count;
    enum reduce_result result =
        reduce_push(tree, &chunk->parts[part].buffers, store->kernels, node, codec, payload);
    store->open_nodes += tree->held_count;
    if (store->open_nodes > store->open_nodes_most)
        store->open_nodes_most = store->open_nodes;
    return result;
}

static bool parts_complete(const struct chunk_store *store, const struct chunk *chunk,
                           uint64_t step)
{
    for (uint32_t p = 0; p < chunk->spec.parts; p++)
        if (reduce_root(tree_of(store, chunk, step, p)) == NULL)
            return false;
    return true;
}

const float *chunk_sum(struct chunk_store *store, struct chunk *chunk, uint64_t step)
{
    bool *summed = &chunk->summed[step % store->open_steps];
    if (*summed || !parts_complete(store, chunk, step))
        return NULL;
    *summed = true;
    float *sum = reduce_root(tree_of(store, chunk, step, 0));
    for (uint32_t p = 1; p < chunk->spec.parts; p++) {
        const float *root = reduce_root(tree_of(store, chunk, step, p));
        store->kernels->add(store->kernels, sum, sum, root, chunk->spec.n);
        clear_tree(store, chunk, step, p);
    }
    return sum;
}

/* ---- versions ---- */

static enum err apply(struct chunk_store *store, struct chunk *chunk, uint64_t version,
                      const struct commit *commit, uint32_t slots, const float *sum)
{
    if (commit->apply && chunk->spec.rule != MODEL_NONE) {
        struct optimizer_chunk work = {
            .rule = chunk->spec.rule,
            .decay = chunk->spec.decay,
            .n = chunk->spec.n,
            .weights = chunk->state.weights,
            .state = {chunk->state.state[0], chunk->state.state[1]},
            .sum = sum,
        };
        TRY(published_next(&chunk->published, version, &work.published));
        optimizer_apply(store->kernels, &store->optimizer, commit, slots, chunk->codec, &work);
    } else {
        published_same(&chunk->published, version);
    }
    return ERR_OK;
}

enum err chunk_apply_sum(struct chunk_store *store, struct chunk *chunk, uint64_t version,
                         const struct commit *commit, const float *sum)
{
    return apply(store, chunk, version, commit, 1, sum);
}

enum err chunk_apply(struct chunk_store *store, struct chunk *chunk, const struct commit *commit)
{
    const float *sum = reduce_root(tree_of(store, chunk, commit->step, 0));
    TRY(apply(store, chunk, commit->step + 1, commit, store->slots, sum));
    clear_tree(store, chunk, commit->step, 0);
    chunk->summed[commit->step % store->open_steps] = false;
    return ERR_OK;
}

enum err chunk_publish(const struct chunk_store *store, struct chunk *chunk, uint64_t version,
                       const float *values)
{
    void *data;
    TRY(published_next(&chunk->published, version, &data));
    if (chunk->codec == CODEC_BF16)
        store->kernels->cast_to_bf16(store->kernels, data, values, chunk->spec.n);
    else
        memcpy(data, values, chunk->spec.n * sizeof(float));
    return ERR_OK;
}

size_t chunk_copy_bytes(const struct chunk_store *store)
{
    size_t arrays = (size_t)1 + store->states + store->cut_versions;
    return arrays * MODEL_CHUNK_WEIGHTS_MAX * sizeof(float);
}

void chunk_copy(const struct chunk_store *store, const struct chunk *chunk, uint64_t version,
                float *out)
{
    uint32_t n = chunk->spec.n;
    memcpy(out, chunk->state.weights, n * sizeof *out);
    out += n;
    for (uint32_t s = 0; s < store->states; s++, out += n)
        memcpy(out, chunk->state.state[s], n * sizeof *out);
    for (uint32_t back = 1; back <= store->cut_versions; back++, out += n) {
        const struct counted *copy =
            published_get(&chunk->published, version > back ? version - back : 0);
        if (chunk->codec == CODEC_BF16)
            store->kernels->cast_from_bf16(store->kernels, out, copy->data, n);
        else
            memcpy(out, copy->data, n * sizeof *out);
    }
}

/* ---- invariants ---- */

void chunk_check(const struct chunk_store *store, const struct chunk *chunk, uint64_t from,
                 uint64_t to)
{
    for (uint32_t p = 0; p < chunk->spec.parts; p++) {
        const struct chunk_part *part = &chunk->parts[p];
        uint32_t held = 0;
        for (uint32_t i = 0; i < store->open_steps; i++) {
            reduce_check(&part->trees[i]);
            held += part->trees[i].held_count;
        }
        check(held + part->buffers.free_count == part->buffers.made_count);
        check(part->buffers.made_count <= part->buffers.made_max);
    }
    for (uint64_t step = from; step <= to; step++) {
        bool summed = chunk->summed[step % store->open_steps];
        check(summed || !parts_complete(store, chunk, step));
        check(!summed || reduce_root(tree_of(store, chunk, step, 0)) != NULL);
        for (uint32_t p = 1; summed && p < chunk->spec.parts; p++)
            check(tree_of(store, chunk, step, p)->held_count == 0);
    }
}
