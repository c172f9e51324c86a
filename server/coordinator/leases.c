/* Rings of leases. */
#include "server/coordinator/leases.h"

#include <stdlib.h>

struct lease_rings {
    struct ring all, unused; /* by `all` */
    struct lease_class {
        struct ring granted, out;
    } classes[LEASE_CLASSES];
};

static struct lease_rings *new_rings(void)
{
    struct lease_rings *rings = malloc(sizeof *rings);
    if (rings == NULL)
        return NULL;
    ring_init(&rings->all);
    ring_init(&rings->unused);
    for (uint32_t i = 0; i < LEASE_CLASSES; i++) {
        ring_init(&rings->classes[i].granted);
        ring_init(&rings->classes[i].out);
    }
    return rings;
}

enum err leases_init(struct leases *leases, uint32_t count_max, uint64_t attempts_first)
{
    *leases = (struct leases){.count_max = count_max, .attempts = attempts_first};
    leases->rings = new_rings();
    leases->pool = calloc(count_max, sizeof *leases->pool);
    enum err attempts = id_table_init(&leases->by_attempt, count_max);
    enum err members = id_table_init(&leases->by_member, count_max);
    if (leases->rings == NULL || leases->pool == NULL || attempts != ERR_OK || members != ERR_OK) {
        leases_release(leases);
        return ERR_NOMEM;
    }
    return ERR_OK;
}

void leases_release(struct leases *leases)
{
    free(leases->rings);
    free(leases->pool);
    id_table_release(&leases->by_attempt);
    id_table_release(&leases->by_member);
    *leases = (struct leases){0};
}

void leases_number_above(struct leases *leases, uint64_t attempts)
{
    if (leases->attempts < attempts)
        leases->attempts = attempts;
}

static uint32_t class_index(const struct lease *lease)
{
    bool shorter = lease->slots < UINT32_C(1) << lease->node.level;
    if (lease->kind == TICKET_VALIDATE)
        return 0;
    return 1 + 2 * lease->node.level + (shorter ? 1 : 0);
}

static struct lease *new_lease(struct leases *leases)
{
    check(leases->count < leases->count_max);
    leases->count++;
    if (ring_is_empty(&leases->rings->unused))
        return &leases->pool[leases->used++];
    struct lease *lease = RING_ITEM(leases->rings->unused.behind, struct lease, all);
    ring_take(&lease->all);
    return lease;
}

/* The node goes to somebody else as well: it is out since now, by all its leases. */
static void put_off(struct lease_class *class, struct lease *first, uint64_t now_ms)
{
    struct lease *twin = first;
    do {
        bool out = !ring_is_empty(&twin->out);
        twin->out_ms = now_ms;
        ring_take(&twin->out);
        if (out)
            ring_add(&class->out, &twin->out);
        twin = RING_ITEM(twin->twins.behind, struct lease, twins);
    } while (twin != first);
}

/* A doubted lease puts nothing off: its node keeps its place among those that are out; a node that
 * nobody else has comes first. */
static void add_out(struct lease_class *class, struct lease *added, struct lease *twin)
{
    ring_init(&added->out);
    if (!added->doubted) {
        added->out_ms = added->granted_ms;
        if (twin != NULL)
            put_off(class, twin, added->granted_ms);
        ring_add(&class->out, &added->out);
    } else {
        added->out_ms = twin != NULL ? twin->out_ms : 0;
        ring_add(twin != NULL ? &twin->out : class->out.behind, &added->out);
    }
}

struct lease *leases_add(struct leases *leases, const struct lease *lease, struct lease *twin)
{
    struct lease_class *class = &leases->rings->classes[class_index(lease)];
    struct lease *sibling = leases_of(leases, lease->member), *added = new_lease(leases);
    *added = *lease;
    added->attempt = ++leases->attempts;
    ring_add(&leases->rings->all, &added->all);
    ring_add(&class->granted, &added->granted);
    add_out(class, added, twin);
    ring_init(&added->twins);
    ring_init(&added->siblings);
    if (twin != NULL) {
        check(twin->kind == lease->kind && twin->step == lease->step);
        check(node_equal(twin->node, lease->node));
        ring_add(&twin->twins, &added->twins);
    }
    if (sibling != NULL)
        ring_add(&sibling->siblings, &added->siblings);
    else
        id_table_add(&leases->by_member, lease->member, added);
    id_table_add(&leases->by_attempt, added->attempt, added);
    return added;
}

void leases_remove(struct leases *leases, struct lease *lease)
{
    struct lease *sibling = RING_ITEM(lease->siblings.behind, struct lease, siblings);
    check(leases->count > 0);
    const struct lease *found = id_table_take(&leases->by_attempt, lease->attempt);
    check(found == lease);
    if (sibling != lease)
        id_table_replace(&leases->by_member, lease->member, sibling);
    else
        id_table_take(&leases->by_member, lease->member);
    ring_take(&lease->all);
    ring_take(&lease->granted);
    ring_take(&lease->out);
    ring_take(&lease->twins);
    ring_take(&lease->siblings);
    ring_add(&leases->rings->unused, &lease->all);
    leases->count--;
}

void leases_renew(struct leases *leases, struct lease *lease, uint64_t now_ms)
{
    struct lease_class *class = &leases->rings->classes[class_index(lease)];
    lease->granted_ms = now_ms;
    ring_take(&lease->granted);
    ring_add(&class->granted, &lease->granted);
    if (!lease->doubted)
        put_off(class, lease, now_ms);
}

struct lease *leases_find(const struct leases *leases, uint64_t attempt)
{
    return id_table_find(&leases->by_attempt, attempt);
}

struct lease *leases_of(const struct leases *leases, uint64_t member)
{
    return id_table_find(&leases->by_member, member);
}

uint32_t leases_count_of(const struct leases *leases, uint64_t member)
{
    const struct lease *first = leases_of(leases, member);
    uint32_t count = first != NULL ? 1 : 0;
    for (const struct ring *link = first != NULL ? first->siblings.behind : NULL;
         link != NULL && link != &first->siblings; link = link->behind)
        count++;
    return count;
}

struct lease *leases_youngest(const struct leases *leases)
{
    return ring_is_empty(&leases->rings->all)
               ? NULL
               : RING_ITEM(leases->rings->all.before, struct lease, all);
}

struct lease *leases_before(const struct leases *leases, const struct lease *lease)
{
    return lease->all.before == &leases->rings->all
               ? NULL
               : RING_ITEM(lease->all.before, struct lease, all);
}

struct lease *leases_oldest(const struct leases *leases, uint32_t lease_class)
{
    const struct ring *granted = &leases->rings->classes[lease_class].granted;
    return ring_is_empty(granted) ? NULL : RING_ITEM(granted->behind, struct lease, granted);
}

struct lease *leases_next(const struct leases *leases, const struct lease *lease)
{
    const struct ring *granted = &leases->rings->classes[class_index(lease)].granted;
    return lease->granted.behind == granted
               ? NULL
               : RING_ITEM(lease->granted.behind, struct lease, granted);
}

struct lease *leases_longest_out(const struct leases *leases, uint32_t lease_class)
{
    const struct ring *out = &leases->rings->classes[lease_class].out;
    return ring_is_empty(out) ? NULL : RING_ITEM(out->behind, struct lease, out);
}

struct lease *leases_next_out(const struct leases *leases, const struct lease *lease)
{
    const struct ring *out = &leases->rings->classes[class_index(lease)].out;
    return lease->out.behind == out ? NULL : RING_ITEM(lease->out.behind, struct lease, out);
}

void leases_not_out(struct lease *lease)
{
    ring_take(&lease->out);
}

void leases_out_again(struct leases *leases, struct lease *lease)
{
    struct ring *out = &leases->rings->classes[class_index(lease)].out;
    struct ring *behind = out;
    if (!ring_is_empty(&lease->out))
        return;
    while (behind->before != out &&
           RING_ITEM(behind->before, struct lease, out)->out_ms > lease->out_ms)
        behind = behind->before;
    ring_add(behind, &lease->out);
}

/* ---- check ---- */

static void check_lease(const struct leases *leases, const struct lease *lease)
{
    const struct lease *twin = RING_ITEM(lease->twins.behind, struct lease, twins);
    const struct lease *sibling = RING_ITEM(lease->siblings.behind, struct lease, siblings);
    check(lease->attempt <= leases->attempts);
    check(leases_find(leases, lease->attempt) == lease);
    check(leases_of(leases, lease->member) != NULL);
    check(lease->doubted || lease->granted_ms <= lease->out_ms);
    check(twin->kind == lease->kind && twin->step == lease->step);
    check(node_equal(twin->node, lease->node));
    check(twin->out_ms == lease->out_ms);
    check(sibling->member == lease->member);
}

static void check_orders(const struct leases *leases, uint32_t lease_class)
{
    const struct ring *granted = &leases->rings->classes[lease_class].granted;
    const struct ring *out = &leases->rings->classes[lease_class].out;
    for (const struct ring *link = granted->behind; link != granted; link = link->behind)
        check(link->before == granted ||
              RING_ITEM(link->before, struct lease, granted)->granted_ms <=
                  RING_ITEM(link, struct lease, granted)->granted_ms);
    for (const struct ring *link = out->behind; link != out; link = link->behind)
        check(link->before == out || RING_ITEM(link->before, struct lease, out)->out_ms <=
                                         RING_ITEM(link, struct lease, out)->out_ms);
}

void leases_check(const struct leases *leases)
{
    uint32_t count = 0;
    uint64_t younger = UINT64_MAX;
    for (const struct lease *lease = leases_youngest(leases); lease != NULL;
         lease = leases_before(leases, lease)) {
        check_lease(leases, lease);
        check(lease->attempt < younger);
        younger = lease->attempt;
        count++;
    }
    check(count == leases->count);
    check(leases->by_attempt.count == count);
    check(leases->used <= leases->count_max);
    for (uint32_t i = 0; i < LEASE_CLASSES; i++)
        check_orders(leases, i);
}
