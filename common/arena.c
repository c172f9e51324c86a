/* Blocks in a list; the newest one is filled. */
#include "common/arena.h"

#include <stdint.h>
#include <string.h>

struct arena_block {
    struct arena_block *next;
    size_t capacity, used;
    _Alignas(16) unsigned char data[];
};

enum { BLOCK_BYTES = 64 * 1024 };

static struct arena_block *block_new(struct arena *arena, size_t bytes)
{
    size_t capacity = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    struct arena_block *block = malloc(sizeof *block + capacity);
    if (block == NULL)
        return NULL;
    block->capacity = capacity;
    block->used = 0;
    block->next = arena->blocks;
    arena->blocks = block;
    return block;
}

/* Out of line: a message's small pieces come from the arena itself, and many are taken a step. */
static __attribute__((noinline)) void *take_from_block(struct arena *arena, size_t bytes)
{
    struct arena_block *block = arena->blocks;
    if (block == NULL || bytes > block->capacity - block->used)
        block = block_new(arena, bytes);
    if (block == NULL)
        return NULL;
    void *piece = block->data + block->used;
    block->used += bytes;
    arena->bytes += bytes;
    return piece;
}

void *arena_take(struct arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX - 15)
        return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    if (bytes > arena->bytes_max - arena->bytes)
        return NULL;
    if (bytes <= ARENA_FIRST_BYTES - arena->first_used) {
        void *piece = arena->first + arena->first_used;
        arena->first_used += bytes;
        arena->bytes += bytes;
        return piece;
    }
    return take_from_block(arena, bytes);
}

void *arena_array(struct arena *arena, size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total))
        return NULL;
    void *array = arena_take(arena, total);
    if (array != NULL)
        memset(array, 0, total);
    return array;
}

void arena_release(struct arena *arena)
{
    while (arena->blocks != NULL) {
        struct arena_block *block = arena->blocks;
        arena->blocks = block->next;
        free(block);
    }
    arena->first_used = 0;
    arena->bytes = 0;
}
