/* A ring of counted copies. */
#include "server/shard/published.h"

#include <stdlib.h>

enum err published_init(struct published *published, struct shared_blocks *blocks, uint32_t chunk,
                        uint32_t versions, size_t bytes)
{
    *published =
        (struct published){.blocks = blocks, .chunk = chunk, .versions = versions, .bytes = bytes};
    published->ring = calloc(versions, sizeof *published->ring);
    return published->ring == NULL ? ERR_NOMEM : ERR_OK;
}

void published_release(struct published *published)
{
    if (published->ring != NULL)
        for (uint32_t i = 0; i < published->versions; i++)
            counted_unref(published->ring[i]);
    free(published->ring);
}

/* Whether nobody else holds it. Acquire, because the last reader's reads must be over before this
 * thread writes. */
static bool is_free(struct counted *copy)
{
    return copy != NULL && atomic_load_explicit(&copy->references, memory_order_acquire) == 1;
}

static struct counted *new_copy(const struct published *published, uint64_t version)
{
    return published->blocks != NULL
               ? shared_blocks_take(published->blocks, published->chunk, version)
               : counted_new(published->bytes);
}

enum err published_next(struct published *published, uint64_t version, void **ret_data,
                        struct counted **ret_before)
{
    struct counted **place = &published->ring[version % published->versions];
    *ret_before = NULL;
    if (!is_free(*place)) {
        struct counted *copy = new_copy(published, version);
        if (copy == NULL)
            return ERR_NOMEM;
        *ret_before = *place;
        *place = copy;
    }
    *ret_data = (*place)->data;
    return ERR_OK;
}

void published_same(struct published *published, uint64_t version)
{
    struct counted *copy = published_get(published, version - 1);
    struct counted **place = &published->ring[version % published->versions];
    if (*place == copy)
        return;
    counted_ref(copy);
    counted_unref(*place);
    *place = copy;
}

struct counted *published_get(const struct published *published, uint64_t version)
{
    struct counted *copy = published->ring[version % published->versions];
    check(copy != NULL);
    return copy;
}

bool published_is_at(const struct published *published, const void *data)
{
    for (uint32_t i = 0; i < published->versions; i++)
        if (published->ring[i] != NULL && published->ring[i]->data == data)
            return true;
    return false;
}
