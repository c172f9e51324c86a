/* Some blocks for each array, and a head for each part's place in them. */
#include "common/shared/shared_blocks.h"

#include "common/thread.h"

#include <stdlib.h>
#include <string.h>

/* Of a part in a block. */
struct block_place {
    struct counted counted; /* first; its references are 0 while nobody holds it */
    uint32_t array;
    uint32_t block;
};

struct block_part {
    uint32_t array;
    uint32_t bytes;
    size_t offset; /* in its array's blocks */
};

struct block_array {
    uint32_t part_first, part_count;
    size_t bytes;
    struct block_place *places; /* (part_count, count); NULL: none was taken yet */
    uint32_t touching;          /* who writes into its blocks without a place: none may go */
};

/* Memory that no place is held of is the array's next block's, and freed when none of any is held:
 * if the pool had it meanwhile, small payloads would lie where the whole block fitted. */
struct block {
    struct counted *memory; /* NULL: none */
    uint32_t held;          /* places */
    uint64_t version;       /* of the place that was taken last */
};

struct shared_blocks {
    atomic_uint references; /* one for each place that is held, too */
    struct shared_pool *pool;
    struct thread_mutex mutex; /* guards what arrays hold */
    struct block_part *parts;
    struct block_array *arrays;
    struct block *blocks; /* (array_count, count) */
    uint32_t array_count, count;
};

/* ---- life ---- */

static void add_parts(struct shared_blocks *blocks, const struct shared_part *parts,
                      uint32_t part_count)
{
    for (uint32_t i = 0; i < part_count; i++) {
        struct block_array *array = &blocks->arrays[parts[i].array];
        if (array->part_count == 0)
            array->part_first = i;
        check(array->part_first + array->part_count == i);
        array->part_count++;
        blocks->parts[i] = (struct block_part){parts[i].array, parts[i].bytes, array->bytes};
        array->bytes += parts[i].bytes;
    }
}

enum err shared_blocks_new(const struct shared_part *parts, uint32_t part_count, uint32_t count,
                           struct shared_pool *pool, struct shared_blocks **ret_blocks)
{
    struct shared_blocks *blocks = calloc(1, sizeof *blocks);
    if (blocks == NULL)
        return ERR_NOMEM;
    atomic_init(&blocks->references, 1);
    thread_mutex_init(&blocks->mutex);
    blocks->pool = pool;
    blocks->array_count = parts[part_count - 1].array + 1;
    blocks->count = count;
    blocks->arrays = calloc(blocks->array_count, sizeof *blocks->arrays);
    blocks->blocks = calloc((size_t)blocks->array_count * count, sizeof *blocks->blocks);
    blocks->parts = calloc(part_count, sizeof *blocks->parts);
    if (blocks->arrays == NULL || blocks->blocks == NULL || blocks->parts == NULL) {
        shared_blocks_unref(blocks);
        return ERR_NOMEM;
    }
    add_parts(blocks, parts, part_count);
    *ret_blocks = blocks;
    return ERR_OK;
}

struct shared_blocks *shared_blocks_ref(struct shared_blocks *blocks)
{
    atomic_fetch_add_explicit(&blocks->references, 1, memory_order_relaxed);
    return blocks;
}

void shared_blocks_unref(struct shared_blocks *blocks)
{
    if (blocks == NULL ||
        atomic_fetch_sub_explicit(&blocks->references, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; blocks->arrays != NULL && i < blocks->array_count; i++)
        free(blocks->arrays[i].places);
    free(blocks->arrays);
    free(blocks->blocks);
    free(blocks->parts);
    thread_mutex_release(&blocks->mutex);
    free(blocks);
}

/* ---- places ---- */

static struct block *blocks_of(const struct shared_blocks *blocks, uint32_t array)
{
    return &blocks->blocks[(size_t)array * blocks->count];
}

/* The array's memory, unless a place is held or somebody touches it. */
static void strip_locked(struct shared_blocks *blocks, uint32_t array)
{
    struct block *own = blocks_of(blocks, array);
    uint32_t holders = blocks->arrays[array].touching;
    for (uint32_t i = 0; i < blocks->count; i++)
        holders += own[i].held;
    for (uint32_t i = 0; i < blocks->count && holders == 0; i++) {
        counted_unref(own[i].memory);
        own[i].memory = NULL;
    }
}

static void give_back(struct counted *counted, void *owner)
{
    struct shared_blocks *blocks = owner;
    const struct block_place *place = (const struct block_place *)(const void *)counted;
    uint32_t array = place->array;
    struct block *block = &blocks_of(blocks, array)[place->block];
    thread_lock(&blocks->mutex);
    check(block->held > 0);
    block->held--;
    strip_locked(blocks, array);
    thread_unlock(&blocks->mutex);
    shared_blocks_unref(blocks);
}

/* What of a place never changes is written here: who drops its last reference still reads it when
 * the place may be taken again. */
static bool make_places_locked(struct shared_blocks *blocks, struct block_array *array)
{
    if (array->places != NULL)
        return true;
    array->places = calloc((size_t)array->part_count * blocks->count, sizeof *array->places);
    if (array->places == NULL)
        return false;
    for (uint32_t i = 0; i < array->part_count * blocks->count; i++) {
        const struct block_part *about = &blocks->parts[array->part_first + i / blocks->count];
        struct block_place *place = &array->places[i];
        place->array = about->array;
        place->block = i % blocks->count;
        place->counted.bytes = about->bytes;
        place->counted.released = give_back;
        place->counted.owner = blocks;
    }
    return true;
}

/* The place is nobody's. NULL: no memory for its block. */
static struct counted *take_place_locked(struct shared_blocks *blocks, uint32_t part,
                                         struct block_place *place, uint64_t version)
{
    struct block *own = blocks_of(blocks, place->array), *block = &own[place->block];
    for (uint32_t i = 0; i < blocks->count && block->memory == NULL; i++)
        if (own[i].held == 0) {
            block->memory = own[i].memory;
            own[i].memory = NULL;
        }
    if (block->memory == NULL)
        block->memory = shared_pool_counted(blocks->pool, blocks->arrays[place->array].bytes);
    if (block->memory == NULL)
        return NULL;
    block->held++;
    block->version = version;
    shared_blocks_ref(blocks);
    place->counted.data = block->memory->data + blocks->parts[part].offset;
    atomic_store(&place->counted.references, 1);
    return &place->counted;
}

/* How good a block is for a part of the version: the best has others of that version; the next best
 * none, so that the others find room in it. */
static int fitness(const struct block *block, uint64_t version)
{
    if (block->held == 0)
        return 1;
    return block->version == version ? 2 : 0;
}

/* The part's free place in the best block. NULL: all places are held. */
static struct block_place *best_place(const struct shared_blocks *blocks, uint32_t part,
                                      uint64_t version)
{
    const struct block_array *array = &blocks->arrays[blocks->parts[part].array];
    struct block_place *places = &array->places[(size_t)(part - array->part_first) * blocks->count];
    const struct block *own = blocks_of(blocks, places->array);
    struct block_place *best = NULL;
    for (uint32_t i = 0; i < blocks->count; i++)
        if (atomic_load(&places[i].counted.references) == 0 &&
            (best == NULL || fitness(&own[i], version) > fitness(&own[best->block], version)))
            best = &places[i];
    return best;
}

/* NULL: all places are held, or there is no memory. */
static struct counted *take_free_locked(struct shared_blocks *blocks, uint32_t part,
                                        uint64_t version)
{
    if (!make_places_locked(blocks, &blocks->arrays[blocks->parts[part].array]))
        return NULL;
    struct block_place *place = best_place(blocks, part, version);
    return place != NULL ? take_place_locked(blocks, part, place, version) : NULL;
}

struct counted *shared_blocks_take(struct shared_blocks *blocks, uint32_t part, uint64_t version)
{
    thread_lock(&blocks->mutex);
    struct counted *counted = take_free_locked(blocks, part, version);
    thread_unlock(&blocks->mutex);
    return counted != NULL ? counted : shared_pool_counted(blocks->pool, blocks->parts[part].bytes);
}

/* NULL: somebody holds that place, or there is no memory. */
static uint8_t *free_memory_locked(struct shared_blocks *blocks, uint32_t part, uint32_t number)
{
    const struct block_part *about = &blocks->parts[part];
    struct block_array *array = &blocks->arrays[about->array];
    uint32_t first = (part - array->part_first) * blocks->count;
    if (!make_places_locked(blocks, array) ||
        atomic_load(&array->places[first + number].counted.references) != 0)
        return NULL;
    struct block *block = &blocks_of(blocks, about->array)[number];
    if (block->memory == NULL)
        block->memory = shared_pool_counted(blocks->pool, array->bytes);
    return block->memory != NULL ? block->memory->data + about->offset : NULL;
}

/* It takes no places for that: a block with a place taken is not wholly free, and a version that is
 * made meanwhile would be spread over several. Readers may give back all places meanwhile. */
void shared_blocks_touch(struct shared_blocks *blocks, uint32_t part)
{
    uint32_t array = blocks->parts[part].array;
    thread_lock(&blocks->mutex);
    blocks->arrays[array].touching++;
    for (uint32_t i = 0; i < blocks->count; i++) {
        uint8_t *memory = free_memory_locked(blocks, part, i);
        thread_unlock(&blocks->mutex);
        if (memory != NULL)
            memset(memory, 0, blocks->parts[part].bytes);
        thread_lock(&blocks->mutex);
    }
    blocks->arrays[array].touching--;
    strip_locked(blocks, array);
    thread_unlock(&blocks->mutex);
}
