/* Each chunk has arrays of its own, taken at once, so that it can come and go (P11). */
#include "server/shard/chunk.h"

#include "common/scoped.h"
#include "server/shard/optimizer.h"

#include <string.h>

/* ---- memory ---- */

/* In fp32 a chunk's weights are its newest published copy. */
static bool are_published(const struct chunk *chunk)
{
    return chunk->codec == CODEC_FP32;
}

static void point_at_values(const struct chunk_store *store, struct chunk *chunk)
{
    float *values = (float *)chunk->values->data;
    if (!are_published(chunk)) {
        chunk->state.weights = values;
        values += chunk->spec.n;
    }
    for (uint32_t s = 0; s < store->states; s++, values += chunk->spec.n)
        chunk->state.state[s] = values;
}

static size_t values_bytes(const struct chunk_store *store, const struct chunk *chunk)
{
    size_t arrays = (are_published(chunk) ? 0 : 1) + (size_t)store->states;
    return arrays * chunk->spec.n * sizeof(float);
}

/* A chunk that lends has a buffer that may change places with any copy buffer. What it does not use
 * of that is never touched, so the system gives no memory for it; a small chunk is copied. */
static enum err take_values(const struct chunk_store *store, struct chunk *chunk)
{
    size_t bytes = values_bytes(store, chunk);
    check(chunk->spec.n <= store->weights_max);
    chunk->large = chunk->spec.n > store->weights_max / 2;
    chunk->lends = store->lends && chunk->large;
    chunk->values = counted_new(chunk->lends ? chunk_copy_bytes(store) : bytes);
    if (chunk->values == NULL)
        return ERR_NOMEM;
    store->kernels->zero(store->kernels, chunk->values->data, bytes);
    point_at_values(store, chunk);
    return ERR_OK;
}

static enum err take_memory(const struct chunk_store *store, struct chunk *chunk)
{
    size_t open = store->open_steps, parts = chunk->spec.parts;
    size_t sums = reduce_sums_max(store->slots, store->ahead_max);
    chunk->parts = calloc(parts, sizeof *chunk->parts);
    chunk->trees = calloc(parts * open, sizeof *chunk->trees);
    chunk->sums = calloc(parts * open * sums, sizeof *chunk->sums);
    chunk->free = calloc(parts * open * sums, sizeof *chunk->free);
    chunk->names = calloc(parts * (open + 1) * store->name_places, sizeof *chunk->names);
    chunk->summed = calloc(open, sizeof *chunk->summed);
    chunk->seals = calloc(open, sizeof *chunk->seals);
    chunk->waiting = parked_ring();
    if (chunk->parts == NULL || chunk->trees == NULL || chunk->sums == NULL ||
        chunk->free == NULL || chunk->names == NULL || chunk->summed == NULL ||
        chunk->seals == NULL || chunk->waiting == NULL)
        return ERR_NOMEM;
    TRY(take_values(store, chunk));
    return published_init(&chunk->published, store->blocks, chunk->spec.chunk, store->open_steps,
                          (size_t)chunk->spec.n * codec_bytes(chunk->codec));
}

/* Whether a sum has left all caches when its other half comes: all other chunks' pushes come in
 * between. 16 MiB is half of an EPYC's L3: where copying around the caches begins to pay. */
static bool is_uncached(const struct shard_config *config)
{
    const size_t cached_bytes_max = 16 << 20;
    size_t bytes = 0;
    for (uint32_t i = 0; i < config->chunk_count; i++)
        bytes += (size_t)config->chunks[i].parts * config->chunks[i].n * sizeof(float);
    return bytes > cached_bytes_max;
}

static void part_init(const struct chunk_store *store, const struct chunk *chunk, uint32_t number)
{
    struct chunk_part *part = &chunk->parts[number];
    size_t open = store->open_steps;
    uint32_t sums = reduce_sums_max(store->slots, store->ahead_max);
    uint32_t places = store->name_places;
    /* An embedding that is the head as well: its first part is of few tokens, the last one is not. */
    part->buffers = (struct reduce_buffers){.n = chunk->spec.n,
                                            .sparse = number == 0 && chunk->spec.parts > 1,
                                            .uncached = store->uncached,
                                            .made_max = sums * store->open_steps,
                                            .free = chunk->free + number * open * sums};
    part->trees = chunk->trees + number * open;
    for (size_t i = 0; i < open; i++)
        part->trees[i] = (struct reduce){.slots = store->slots,
                                         .ahead_max = store->ahead_max,
                                         .held = chunk->sums + (number * open + i) * sums};
    part->names = (struct names){.steps = store->open_steps + 1,
                                 .places = places,
                                 .root_level = tree_level(store->slots),
                                 .names = chunk->names + number * (open + 1) * places};
}

/* Also a chunk that has only some of its memory. */
static void release_chunk(const struct chunk_store *store, struct chunk *chunk)
{
    for (uint32_t p = 0; chunk->parts != NULL && p < chunk->spec.parts; p++) {
        struct chunk_part *part = &chunk->parts[p];
        for (uint32_t i = 0; part->trees != NULL && i < store->open_steps; i++)
            reduce_clear(&part->trees[i], &part->buffers);
        reduce_buffers_release(&part->buffers, store->kernels);
    }
    published_release(&chunk->published);
    counted_unref(chunk->values);
    free(chunk->waiting);
    free(chunk->seals);
    free(chunk->summed);
    free(chunk->names);
    free(chunk->free);
    free(chunk->sums);
    free(chunk->trees);
    free(chunk->parts);
}

static enum err make_room(struct chunk_store *store)
{
    if (store->count < store->room)
        return ERR_OK;
    uint32_t room = store->room == 0 ? 16 : 2 * store->room;
    struct chunk *chunks = realloc(store->chunks, room * sizeof *chunks);
    if (chunks == NULL)
        return ERR_NOMEM;
    store->chunks = chunks;
    store->room = room;
    return ERR_OK;
}

/* Index of the first chunk whose number is at least `number`. */
static uint32_t place_of(const struct chunk_store *store, uint32_t number)
{
    uint32_t low = 0, high = store->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (store->chunks[middle].spec.chunk < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

enum err chunk_add(struct chunk_store *store, const struct shard_chunk *spec, uint32_t *ret_index)
{
    struct chunk chunk = {.spec = *spec, .codec = spec->loss ? CODEC_FP32 : store->weights_codec};
    TRY(make_room(store));
    enum err err = take_memory(store, &chunk);
    if (err != ERR_OK) {
        release_chunk(store, &chunk);
        return err;
    }
    for (uint32_t p = 0; p < spec->parts; p++)
        part_init(store, &chunk, p);
    for (uint32_t i = 0; i < store->open_steps; i++)
        chunk.seals[i].chunk = spec->chunk;
    uint32_t index = place_of(store, spec->chunk);
    check(index == store->count || store->chunks[index].spec.chunk != spec->chunk);
    memmove(&store->chunks[index + 1], &store->chunks[index],
            (store->count - index) * sizeof chunk);
    store->chunks[index] = chunk;
    store->count++;
    store->large_count += chunk.large;
    *ret_index = index;
    return ERR_OK;
}

void chunk_remove(struct chunk_store *store, uint32_t index)
{
    struct chunk *chunk = &store->chunks[index];
    check(chunk->waiting->behind == chunk->waiting);
    for (uint32_t p = 0; p < chunk->spec.parts; p++)
        for (uint32_t i = 0; i < store->open_steps; i++)
            store->open_nodes -= chunk->parts[p].trees[i].held_count;
    store->large_count -= chunk->large;
    release_chunk(store, chunk);
    store->count--;
    memmove(chunk, chunk + 1, (store->count - index) * sizeof *chunk);
}

/* The weights that the caller fills in, zeros. */
static enum err take_weights(const struct chunk_store *store, struct chunk *chunk, uint64_t version)
{
    void *data;
    struct counted *before;
    if (!are_published(chunk))
        return ERR_OK;
    TRY(published_next(&chunk->published, version, &data, &before));
    counted_unref(before);
    chunk->state.weights = data;
    store->kernels->zero(store->kernels, data, chunk->spec.n * sizeof(float));
    return ERR_OK;
}

enum err chunk_store_init(struct chunk_store *store, const struct shard_config *config,
                          uint32_t weights_max)
{
    *store = (struct chunk_store){.kernels = config->kernels,
                                  .optimizer = config->optimizer,
                                  .slots = config->slots,
                                  .name_places = names_places(config->slots, config->audited),
                                  .ahead_max = config->ahead_max,
                                  .weights_codec = config->weights_codec,
                                  .states = optimizer_states(config->optimizer.kind),
                                  .open_steps = config->delay + 1,
                                  .cut_versions = config->cut_versions,
                                  .weights_max = weights_max,
                                  .lends = !config->async.on && config->cut_versions == 0,
                                  .uncached = is_uncached(config)};
    if (config->blocks != NULL)
        store->blocks = shared_blocks_ref(config->blocks);
    for (uint32_t i = 0; i < config->chunk_count; i++) {
        uint32_t index;
        TRY(chunk_add(store, &config->chunks[i], &index));
        TRY(take_weights(store, &store->chunks[index], config->version));
        store->chunks[index].since = store->chunks[index].first_cut = config->version;
    }
    return ERR_OK;
}

void chunk_store_release(struct chunk_store *store)
{
    for (uint32_t i = 0; i < store->count; i++)
        release_chunk(store, &store->chunks[i]);
    shared_blocks_unref(store->blocks);
    free(store->chunks);
}

uint32_t chunk_find(const struct chunk_store *store, uint32_t number)
{
    uint32_t index = place_of(store, number);
    bool there = index < store->count && store->chunks[index].spec.chunk == number;
    return there ? index : store->count;
}

/* ---- pushes ---- */

bool chunk_takes(const struct chunk *chunk, const struct push_entry *entry, enum codec codec)
{
    uint32_t n = chunk->spec.n, cols = chunk->spec.cols;
    if (entry->part >= chunk->spec.parts)
        return false;
    if (!entry->sparse)
        return entry->bytes == n * codec_bytes(codec);
    if (cols == 0 || entry->row_count > n / cols)
        return false;
    bool inside = entry->row_count == 0 || entry->rows[entry->row_count - 1] < n / cols;
    return inside && entry->bytes == entry->row_count * cols * codec_bytes(codec);
}

const struct reduce_rows *chunk_rows(const struct chunk *chunk, const struct push_entry *entry,
                                     struct reduce_rows *ret_rows)
{
    *ret_rows = (struct reduce_rows){chunk->spec.cols, entry->row_count, entry->rows};
    return entry->sparse ? ret_rows : NULL;
}

bool chunk_loss_counts(float count, uint64_t samples)
{
    enum { WHOLE_MAX = 1 << 24 /* whole numbers up to it are exact */ };
    return samples == 0 || samples > WHOLE_MAX || count == (float)samples;
}

void chunk_count_bytes(const struct chunk *chunk, const struct push_entry *entry, enum codec codec,
                       struct shard_statistics *statistics)
{
    uint32_t bytes = chunk->spec.n * codec_bytes(codec);
    statistics->pushed_bytes += bytes;
    if (entry->sparse)
        statistics->spared_bytes += bytes - entry->bytes;
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
                              uint32_t part, struct node node, const struct reduce_values *values)
{
    struct reduce *tree = tree_of(store, chunk, step, part);
    store->open_nodes -= tree->held_count;
    enum reduce_result result =
        reduce_push(tree, &chunk->parts[part].buffers, store->kernels, node, values);
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
    uint32_t *summed = &chunk->summed[step % store->open_steps];
    if (*summed > 0 || !parts_complete(store, chunk, step))
        return NULL;
    const struct reduce_sum *first = reduce_root(tree_of(store, chunk, step, 0));
    uint32_t at = first->sum == NULL ? 1 : 0; /* no other part is sparse */
    float *sum = reduce_root(tree_of(store, chunk, step, at))->sum;
    if (at > 0)
        sparse_add_to(&first->sparse, store->kernels, sum, chunk->spec.n);
    for (uint32_t p = at + 1; p < chunk->spec.parts; p++)
        store->kernels->add(store->kernels, sum, sum,
                            reduce_root(tree_of(store, chunk, step, p))->sum, chunk->spec.n);
    for (uint32_t p = 0; p < chunk->spec.parts; p++)
        if (p != at)
            clear_tree(store, chunk, step, p);
    *summed = 1 + at;
    return sum;
}

/* ---- versions ---- */

/* Acquire: the writer's reads are over before this thread writes. */
bool chunk_is_lent(const struct chunk *chunk)
{
    return atomic_load_explicit(&chunk->values->references, memory_order_acquire) > 1;
}

static bool changes(const struct chunk *chunk, const struct commit *commit)
{
    return commit->apply && chunk->spec.rule != MODEL_NONE;
}

bool chunk_needs_spare(const struct chunk *chunk, const struct commit *commit)
{
    return changes(chunk, commit) && chunk_is_lent(chunk);
}

static void change_places(const struct chunk_store *store, struct chunk *chunk,
                          struct counted **spare)
{
    struct counted *values = chunk->values;
    check((*spare)->bytes == values->bytes && chunk->lends);
    chunk->values = *spare;
    *spare = values;
    point_at_values(store, chunk);
}

/* Where the chunk's values lie now, of those that lay elsewhere. Workers read a copy soon. */
static struct kernels_apart apart_of(const struct chunk *chunk, const struct shard_state *from)
{
    const struct shard_state *to = &chunk->state;
    return (struct kernels_apart){.w = to->weights != from->weights ? to->weights : NULL,
                                  .m = to->state[0] != from->state[0] ? to->state[0] : NULL,
                                  .v = to->state[1] != from->state[1] ? to->state[1] : NULL,
                                  .w_cached = are_published(chunk)};
}

static enum err apply(struct chunk_store *store, struct chunk *chunk, uint64_t version,
                      const struct commit *commit, uint32_t slots, const float *sum,
                      struct counted **spare)
{
    check(spare != NULL || !chunk_needs_spare(chunk, commit)); /* 9 */
    if (!changes(chunk, commit)) {
        published_same(&chunk->published, version);
        return ERR_OK;
    }
    void *copy;
    struct counted *before; /* may have the weights */
    TRY(published_next(&chunk->published, version, &copy, &before));
    const struct shard_state from = chunk->state;
    if (spare != NULL)
        change_places(store, chunk, spare);
    if (are_published(chunk))
        chunk->state.weights = copy;
    const struct optimizer_chunk work = {
        .rule = chunk->spec.rule,
        .decay = chunk->spec.decay,
        .n = chunk->spec.n,
        .weights = from.weights,
        .state = {from.state[0], from.state[1]},
        .apart = apart_of(chunk, &from),
        .sum = sum,
        .published = are_published(chunk) ? NULL : copy,
    };
    optimizer_apply(store->kernels, &store->optimizer, commit, slots, &work);
    counted_unref(before);
    return ERR_OK;
}

enum err chunk_apply_sum(struct chunk_store *store, struct chunk *chunk, uint64_t version,
                         const struct commit *commit, const float *sum)
{
    return apply(store, chunk, version, commit, 1, sum, NULL);
}

enum err chunk_apply(struct chunk_store *store, struct chunk *chunk, const struct commit *commit,
                     struct counted **spare)
{
    uint32_t *summed = &chunk->summed[commit->step % store->open_steps];
    const float *sum = reduce_root(tree_of(store, chunk, commit->step, *summed - 1))->sum;
    TRY(apply(store, chunk, commit->step + 1, commit, store->slots, sum, spare));
    clear_tree(store, chunk, commit->step, *summed - 1);
    *summed = 0;
    return ERR_OK;
}

enum err chunk_publish(const struct chunk_store *store, struct chunk *chunk, uint64_t version,
                       const float *values)
{
    void *data;
    struct counted *before;
    TRY(published_next(&chunk->published, version, &data, &before));
    counted_unref(before);
    if (chunk->codec == CODEC_BF16)
        store->kernels->cast_to_bf16(store->kernels, data, values, chunk->spec.n);
    else
        memcpy(data, values, chunk->spec.n * sizeof(float));
    return ERR_OK;
}

enum err chunk_publish_own(const struct chunk_store *store, struct chunk *chunk, uint64_t version)
{
    return are_published(chunk) ? ERR_OK
                                : chunk_publish(store, chunk, version, chunk->state.weights);
}

void chunk_touch(const struct chunk *chunk)
{
    if (are_published(chunk) && !chunk->awaited && chunk->published.blocks != NULL)
        shared_blocks_touch(chunk->published.blocks, chunk->spec.chunk);
}

struct counted *chunk_published_weights(const struct chunk *chunk, uint64_t version)
{
    return are_published(chunk) ? published_get(&chunk->published, version) : NULL;
}

size_t chunk_copy_bytes(const struct chunk_store *store)
{
    size_t arrays = (size_t)1 + store->states + store->cut_versions;
    size_t all = arrays * store->weights_max;
    /* In fp32 a large chunk, which lends, has only its states here; a small one is copied. */
    size_t states = (size_t)store->states * store->weights_max,
           small = arrays * (store->weights_max / 2);
    if (store->lends && store->weights_codec == CODEC_FP32)
        all = states > small ? states : small;
    return all * sizeof(float);
}

/* The writer reads the copy later: of a large shard it has left all caches until then. */
static void copy_values(const struct chunk_store *store, float *out, const float *values,
                        uint32_t n)
{
    if (store->uncached && store->kernels->copy_in_uncached != NULL)
        store->kernels->copy_in_uncached(store->kernels, out, values, n * sizeof *out);
    else
        memcpy(out, values, n * sizeof *out);
}

void chunk_copy(const struct chunk_store *store, const struct chunk *chunk, uint64_t version,
                float *out)
{
    uint32_t n = chunk->spec.n;
    copy_values(store, out, chunk->state.weights, n);
    out += n;
    for (uint32_t s = 0; s < store->states; s++, out += n)
        copy_values(store, out, chunk->state.state[s], n);
    for (uint32_t back = 1; back <= store->cut_versions; back++, out += n) {
        const struct counted *copy =
            published_get(&chunk->published, version > back ? version - back : 0);
        if (chunk->codec == CODEC_BF16)
            store->kernels->cast_from_bf16(store->kernels, out, copy->data, n);
        else
            memcpy(out, copy->data, n * sizeof *out);
    }
}

uint32_t chunk_copy_arrays(const struct chunk_store *store)
{
    return 1 + store->states + store->cut_versions;
}

enum err chunk_restore(const struct chunk_store *store, struct chunk *chunk, uint64_t version,
                       struct cursor *payload)
{
    const struct kernels *kernels = store->kernels;
    uint32_t n = chunk->spec.n;
    TRY(take_weights(store, chunk, version));
    cursor_copy(payload, kernels, CODEC_FP32, chunk->state.weights, n);
    for (uint32_t s = 0; s < store->states; s++)
        cursor_copy(payload, kernels, CODEC_FP32, chunk->state.state[s], n);
    TRY(chunk_publish_own(store, chunk, version));
    if (store->cut_versions == 0)
        return ERR_OK;
    scoped(free_scoped) float *values = malloc(n * sizeof *values);
    if (values == NULL)
        return ERR_NOMEM;
    for (uint32_t back = 1; back <= store->cut_versions && back <= version; back++) {
        cursor_copy(payload, kernels, CODEC_FP32, values, n);
        TRY(chunk_publish(store, chunk, version - back, values));
    }
    return ERR_OK;
}

/* ---- invariants ---- */

void chunk_check(const struct chunk_store *store, const struct chunk *chunk, uint64_t from,
                 uint64_t to)
{
    check(!are_published(chunk) || chunk->awaited ||
          published_is_at(&chunk->published, chunk->state.weights));
    for (uint32_t p = 0; p < chunk->spec.parts; p++) {
        const struct chunk_part *part = &chunk->parts[p];
        uint32_t held = 0;
        for (uint32_t i = 0; i < store->open_steps; i++) {
            reduce_check(&part->trees[i]);
            held += reduce_buffers_held(&part->trees[i]);
        }
        check(held + part->buffers.free_count == part->buffers.made_count);
        check(part->buffers.made_count <= part->buffers.made_max);
    }
    for (uint64_t step = from; step <= to; step++) {
        uint32_t summed = chunk->summed[step % store->open_steps];
        check(summed > 0 || !parts_complete(store, chunk, step));
        for (uint32_t p = 0; summed > 0 && p < chunk->spec.parts; p++)
            check(p + 1 == summed ? reduce_root(tree_of(store, chunk, step, p))->sum != NULL
                                  : tree_of(store, chunk, step, p)->held_count == 0);
    }
}
