/* Rings with a head in an array. */
#include "server/parked.h"

#include <string.h>

enum err parked_init(struct parked *parked, uint32_t list_count, size_t bytes_max)
{
    *parked = (struct parked){.list_count = list_count, .bytes_max = bytes_max};
    parked->lists = calloc(list_count == 0 ? 1 : list_count, sizeof *parked->lists);
    if (parked->lists == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < list_count; i++)
        parked->lists[i].before = parked->lists[i].behind = &parked->lists[i];
    return ERR_OK;
}

static size_t pull_bytes(uint32_t chunk_count)
{
    return sizeof(struct parked_pull) + chunk_count * sizeof(uint32_t);
}

enum err parked_add(struct parked *parked, uint64_t sender, const struct pull *pull, uint32_t last)
{
    check(last < parked->list_count);
    size_t bytes = pull_bytes(pull->chunk_count);
    if (bytes > parked->bytes_max - parked->bytes)
        return ERR_BUSY;
    struct parked_pull *copy = malloc(bytes);
    if (copy == NULL)
        return ERR_BUSY;
    struct parked_pull *head = &parked->lists[last];
    *copy = (struct parked_pull){.before = head->before,
                                 .behind = head,
                                 .sender = sender,
                                 .id = pull->id,
                                 .version = pull->version,
                                 .last = last,
                                 .chunk_count = pull->chunk_count};
    memcpy(copy->chunks, pull->chunks, pull->chunk_count * sizeof *copy->chunks);
    copy->before->behind = copy;
    head->before = copy;
    parked->bytes += bytes;
    parked->count++;
    return ERR_OK;
}

struct parked_pull *parked_find(const struct parked *parked, uint32_t last, uint64_t version)
{
    const struct parked_pull *head = &parked->lists[last];
    for (struct parked_pull *pull = head->behind; pull != head; pull = pull->behind)
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

void parked_cancel(struct parked *parked, uint64_t sender)
{
    for (uint32_t i = 0; i < parked->list_count; i++) {
        struct parked_pull *head = &parked->lists[i];
        for (struct parked_pull *pull = head->behind, *next; pull != head; pull = next) {
            next = pull->behind;
            if (pull->sender == sender) {
                parked_take(parked, pull);
                free(pull);
            }
        }
    }
}

void parked_release(struct parked *parked)
{
    for (uint32_t i = 0; i < parked->list_count; i++) {
        struct parked_pull *head = &parked->lists[i];
        while (head->behind != head) {
            struct parked_pull *pull = head->behind;
            parked_take(parked, pull);
            free(pull);
        }
    }
    free(parked->lists);
}
