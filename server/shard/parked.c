/* Rings with a head of their own. */
#include "server/shard/parked.h"

#include <string.h>

struct parked_pull *parked_ring(void)
{
    struct parked_pull *ring = calloc(1, sizeof *ring);
    if (ring != NULL)
        ring->before = ring->behind = ring;
    return ring;
}

static size_t pull_bytes(uint32_t chunk_count)
{
    return sizeof(struct parked_pull) + chunk_count * sizeof(uint32_t);
}

static void link_behind(struct parked_pull *ring, struct parked_pull *pull)
{
    pull->before = ring->before;
    pull->behind = ring;
    pull->before->behind = pull;
    ring->before = pull;
}

enum err parked_add(struct parked *parked, struct parked_pull *ring, uint64_t sender,
                    const struct pull *pull)
{
    size_t bytes = pull_bytes(pull->chunk_count);
    if (bytes > parked->bytes_max - parked->bytes)
        return ERR_BUSY;
    struct parked_pull *copy = malloc(bytes);
    if (copy == NULL)
        return ERR_BUSY;
    *copy = (struct parked_pull){.sender = sender,
                                 .id = pull->id,
                                 .version = pull->version,
                                 .chunk_count = pull->chunk_count};
    memcpy(copy->chunks, pull->chunks, pull->chunk_count * sizeof *copy->chunks);
    parked_put(parked, ring, copy);
    return ERR_OK;
}

struct parked_pull *parked_find(const struct parked_pull *ring, uint64_t version)
{
    for (struct parked_pull *pull = ring->behind; pull != ring; pull = pull->behind)
        if (pull->version <= version)
            return pull;
    return NULL;
}

void parked_take(struct parked *parked, struct parked_pull *pull)
{
    pull->before->behind = pull->behind;
    pull->behind->before = pull->before;
    parked->bytes -= pull_bytes(pull->chunk_count);
    parked->count--;
}

void parked_put(struct parked *parked, struct parked_pull *ring, struct parked_pull *take_pull)
{
    link_behind(ring, take_pull);
    parked->bytes += pull_bytes(take_pull->chunk_count);
    parked->count++;
}

void parked_join(struct parked_pull *ring, struct parked_pull *from)
{
    while (from->behind != from) {
        struct parked_pull *pull = from->behind;
        from->behind = pull->behind;
        pull->behind->before = from;
        link_behind(ring, pull);
    }
}

void parked_cancel(struct parked *parked, struct parked_pull *ring, uint64_t sender)
{
    for (struct parked_pull *pull = ring->behind, *next; pull != ring; pull = next) {
        next = pull->behind;
        if (pull->sender == sender) {
            parked_take(parked, pull);
            free(pull);
        }
    }
}

void parked_free(struct parked *parked, struct parked_pull *ring)
{
    while (ring != NULL && ring->behind != ring) {
        struct parked_pull *pull = ring->behind;
        parked_take(parked, pull);
        free(pull);
    }
    free(ring);
}
