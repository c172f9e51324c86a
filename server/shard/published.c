/* A ring of counted copies and a spare. */
#include "server/shard/published.h"

enum err published_init(struct published *published, struct shared_pool *pool, uint32_t versions,
                        size_t bytes)
{
    *published = (struct published){.pool = pool, .versions = versions, .bytes = bytes};
    published->ring = calloc(versions, sizeof *published->ring);
    return published->ring == NULL ? ERR_NOMEM : ERR_OK;
}

void published_release(struct published *published)
{
    if (published->ring != NULL)
        for (uint32_t i = 0; i < published->versions; i++)
            counted_unref(published->ring[i]);
    counted_unref(published->spare);
    free(published->ring);
}

/* Whether nobody else holds it. Acquire, because the last reader's reads must be over before this
 * thread writes. */
static bool is_free(struct counted *copy)
{
    return copy != NULL && atomic_load_explicit(&copy->references, memory_order_acquire) == 1;
}

enum err published_next(struct published *published, uint64_t version, void **ret_data)
{
    struct counted **place = &published->ring[version % published->versions];
    if (!is_free(*place)) {
        struct counted *copy = published->spare;
        if (is_free(copy)) {
            published->spare = *place;
        } else {
            copy = shared_pool_counted(published->pool, published->bytes);
            if (copy == NULL)
                return ERR_NOMEM;
            if (*place != NULL) {
                counted_unref(published->spare);
                published->spare = *place;
            }
        }
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
