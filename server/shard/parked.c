/* Rings with a head of their own. */
#include "server/shard/parked.h"

#include <string.h>

struct parked_member {
    uint64_t id;
    size_t bytes;
};

enum err parked_init(struct parked *parked, size_t member_bytes_max)
{
    *parked = (struct parked){.member_bytes_max = member_bytes_max};
    return id_table_init(&parked->members, PARKED_MEMBERS_MAX);
}

void parked_release(struct parked *parked)
{
    check(parked->members.count == 0);
    id_table_release(&parked->members);
}

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

/* The member's, or a new one; NULL: no room. */
static struct parked_member *member_of(struct parked *parked, uint64_t id)
{
    struct parked_member *member = id_table_find(&parked->members, id);
    if (member != NULL)
        return member;
    if (parked->members.count == parked->members.count_max)
        return NULL;
    member = malloc(sizeof *member);
    if (member == NULL)
        return NULL;
    *member = (struct parked_member){.id = id};
    id_table_add(&parked->members, id, member);
    return member;
}

/* Forgets a member without parked pulls. */
static void let_member_go(struct parked *parked, struct parked_member *member)
{
    if (member->bytes > 0)
        return;
    (void)id_table_take(&parked->members, member->id);
    free(member);
}

enum err parked_add(struct parked *parked, struct parked_pull *ring, struct pull_sender sender,
                    const struct pull *pull)
{
    size_t bytes = pull_bytes(pull->chunk_count);
    if (bytes > parked->member_bytes_max)
        return ERR_BUSY;
    struct parked_member *member = member_of(parked, sender.member);
    if (member == NULL)
        return ERR_BUSY;
    struct parked_pull *copy = NULL;
    if (member->bytes <= parked->member_bytes_max - bytes)
        copy = malloc(bytes);
    if (copy == NULL) {
        let_member_go(parked, member);
        return ERR_BUSY;
    }
    *copy = (struct parked_pull){.sender = sender.stream,
                                 .member = member,
                                 .id = pull->id,
                                 .version = pull->version,
                                 .chunk_count = pull->chunk_count};
    memcpy(copy->chunks, pull->chunks, pull->chunk_count * sizeof *copy->chunks);
    link_behind(ring, copy);
    member->bytes += bytes;
    parked->count++;
    return ERR_OK;
}

struct parked_pull *parked_find(const struct parked_pull *ring, uint64_t version)
{
    for (struct parked_pull *pull = ring->behind; pull != ring; pull = pull->behind)
        if (pull->version <= version)
            return pull;
    return NULL;
}

static void unlink_pull(struct parked_pull *pull)
{
    pull->before->behind = pull->behind;
    pull->behind->before = pull->before;
}

void parked_take(struct parked *parked, struct parked_pull *pull)
{
    size_t bytes = pull_bytes(pull->chunk_count);
    unlink_pull(pull);
    check(pull->member->bytes >= bytes);
    check(pull->member->bytes <= parked->member_bytes_max);
    pull->member->bytes -= bytes;
    let_member_go(parked, pull->member);
    parked->count--;
}

void parked_move(struct parked_pull *ring, struct parked_pull *pull)
{
    unlink_pull(pull);
    link_behind(ring, pull);
}

void parked_join(struct parked_pull *ring, struct parked_pull *from)
{
    while (from->behind != from)
        parked_move(ring, from->behind);
}

bool parked_has(const struct parked *parked, uint64_t member)
{
    return id_table_find(&parked->members, member) != NULL;
}

uint64_t parked_by(const struct parked_pull *pull)
{
    return pull->member->id;
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
