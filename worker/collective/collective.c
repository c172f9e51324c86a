#include "worker/collective/collective.h"

#include "common/tree.h"

/* A schedule that is being made. */
struct plan {
    const struct collective *collective;
    uint32_t rank;
    struct collective_schedule *schedule;
};

/* ---- ranges ---- */

/* Where part `index` of `parts` begins: of twice the parts, part 2 i begins there as well. */
static uint64_t cut(uint64_t elements, uint64_t index, uint64_t parts)
{
    uint64_t units = (elements + COLLECTIVE_ALIGN - 1) / COLLECTIVE_ALIGN;
    uint64_t at = units * index / parts * COLLECTIVE_ALIGN;
    return at < elements ? at : elements;
}

static struct collective_range part_of(const struct collective *collective, uint64_t index,
                                       uint64_t parts)
{
    uint64_t first = cut(collective->elements, index, parts);
    return (struct collective_range){first, cut(collective->elements, index + 1, parts) - first};
}

struct collective_range collective_range(const struct collective *collective, uint32_t rank)
{
    if (collective->each != 0)
        return (struct collective_range){rank * collective->each, collective->each};
    return part_of(collective, rank, collective->ranks);
}

static struct collective_range whole(const struct collective *collective)
{
    return (struct collective_range){0, collective->elements};
}

/* ---- steps ---- */

static void add_step(struct plan *plan, const struct collective_step *step)
{
    struct collective_schedule *schedule = plan->schedule;
    check(schedule->count < COLLECTIVE_STEPS_MAX);
    schedule->steps[schedule->count++] = *step;
    if (step->place > schedule->scratch_places)
        schedule->scratch_places = step->place;
    if (step->place > 0 && step->range.count > schedule->scratch_elements)
        schedule->scratch_elements = step->range.count;
}

static void message(struct plan *plan, enum collective_act act, uint32_t peer, uint32_t round,
                    struct collective_range range)
{
    add_step(plan, &(struct collective_step){act, peer, round, 0, range});
}

/* The k-th rank that this one turns to: who it turns to turns to it at the same time. */
static bool partner(const struct plan *plan, uint32_t k, uint32_t *ret_peer)
{
    *ret_peer = plan->rank ^ k;
    return *ret_peer < plan->collective->ranks;
}

static uint32_t partners_end(const struct plan *plan)
{
    return UINT32_C(1) << tree_level(plan->collective->ranks);
}

/* The same range to all others. */
static void send_to_all(struct plan *plan, uint32_t round, struct collective_range range)
{
    uint32_t peer;
    for (uint32_t k = 1; k < partners_end(plan); k++)
        if (partner(plan, k, &peer))
            message(plan, COLLECTIVE_SEND, peer, round, range);
}

/* To each its own range; the round is the receiver. */
static void send_each_its_own(struct plan *plan)
{
    uint32_t peer;
    for (uint32_t k = 1; k < partners_end(plan); k++)
        if (partner(plan, k, &peer))
            message(plan, COLLECTIVE_SEND, peer, peer, collective_range(plan->collective, peer));
}

/* ---- direct ---- */

/* The sum of the node's ranks, not one of which is this one, in `place`. */
static void sum_others(struct plan *plan, struct node node, uint32_t place);

static void receive_own(struct plan *plan, enum collective_act act, uint32_t peer, uint32_t place)
{
    add_step(plan, &(struct collective_step){act, peer, plan->rank, place,
                                             collective_range(plan->collective, plan->rank)});
}

/* Adds such a sum to what `place` has. */
static void add_node(struct plan *plan, struct node node, bool left, uint32_t place)
{
    uint32_t ranks = node_slots(node, plan->collective->ranks);
    if (ranks == 1) {
        receive_own(plan, left ? COLLECTIVE_ADD_LEFT : COLLECTIVE_ADD_RIGHT, node_first(node),
                    place);
    } else if (ranks > 1) {
        sum_others(plan, node, place + 1);
        add_step(plan, &(struct collective_step){
                           left ? COLLECTIVE_FOLD_LEFT : COLLECTIVE_FOLD_RIGHT, plan->rank, 0,
                           place + 1, collective_range(plan->collective, plan->rank)});
    }
}

static void sum_others(struct plan *plan, struct node node, uint32_t place)
{
    if (node_slots(node, plan->collective->ranks) == 1) {
        receive_own(plan, COLLECTIVE_COPY, node_first(node), place);
        return;
    }
    struct node left = {node.level - 1, node.index * 2};
    sum_others(plan, left, place);
    add_node(plan, node_sibling(left), false, place);
}

/* From this rank's leaf up to the root; what is added are the siblings on the way. */
static void reduce_scatter_direct(struct plan *plan)
{
    uint32_t root = tree_level(plan->collective->ranks);
    send_each_its_own(plan);
    for (struct node node = {0, plan->rank}; node.level < root; node = node_parent(node))
        add_node(plan, node_sibling(node), node.index % 2 == 1, 0);
}

static void gather_direct(struct plan *plan, uint32_t round)
{
    const struct collective *collective = plan->collective;
    uint32_t peer;
    send_to_all(plan, round, collective_range(collective, plan->rank));
    for (uint32_t k = 1; k < partners_end(plan); k++)
        if (partner(plan, k, &peer))
            message(plan, COLLECTIVE_COPY, peer, round, collective_range(collective, peer));
}

static void all_gather_direct(struct plan *plan)
{
    gather_direct(plan, 0);
}

static void all_reduce_direct(struct plan *plan)
{
    reduce_scatter_direct(plan);
    gather_direct(plan, plan->collective->ranks);
}

static void all_to_all_direct(struct plan *plan)
{
    uint32_t peer;
    send_each_its_own(plan);
    for (uint32_t k = 1; k < partners_end(plan); k++)
        if (partner(plan, k, &peer))
            message(plan, COLLECTIVE_COPY, peer, plan->rank,
                    collective_range(plan->collective, peer));
}

/* The root hears from all before it sends: nobody is done before all have begun. */
static void broadcast_direct(struct plan *plan)
{
    const struct collective *collective = plan->collective;
    const struct collective_range empty = {0, 0};
    if (plan->rank != collective->root) {
        message(plan, COLLECTIVE_SEND, collective->root, 0, empty);
        message(plan, COLLECTIVE_COPY, collective->root, 1, whole(collective));
        return;
    }
    for (uint32_t peer = 0; peer < collective->ranks; peer++)
        if (peer != plan->rank)
            message(plan, COLLECTIVE_COPY, peer, 0, empty);
    send_to_all(plan, 1, whole(collective));
}

/* ---- halving and doubling ---- */

/* Level l joins the subtrees of 2^l ranks: the two partners hold the sums of sibling nodes, of the
 * same part of the array, and each keeps one half of it. Then back, with copies. (Rabenseifner's
 * algorithm with the nearest partner first, so that the sums are the tree's.) */
static void all_reduce_halving(struct plan *plan)
{
    const struct collective *collective = plan->collective;
    uint32_t levels = tree_level(collective->ranks), rank = plan->rank;
    uint64_t index = 0;
    for (uint32_t level = 0; level < levels; level++) {
        uint64_t parts = UINT64_C(2) << level, right = rank >> level & 1;
        uint32_t peer = rank ^ UINT32_C(1) << level;
        index = index * 2 + right;
        message(plan, COLLECTIVE_SEND, peer, level, part_of(collective, index ^ 1, parts));
        message(plan, right ? COLLECTIVE_ADD_LEFT : COLLECTIVE_ADD_RIGHT, peer, level,
                part_of(collective, index, parts));
    }
    for (uint32_t level = levels; level-- > 0; index /= 2) {
        uint64_t parts = UINT64_C(2) << level;
        uint32_t peer = rank ^ UINT32_C(1) << level, round = 2 * levels - 1 - level;
        message(plan, COLLECTIVE_SEND, peer, round, part_of(collective, index, parts));
        message(plan, COLLECTIVE_COPY, peer, round, part_of(collective, index ^ 1, parts));
    }
}

/* ---- ring ---- */

/* The range `back` ranks before this one. */
static struct collective_range range_before(const struct plan *plan, uint32_t back)
{
    uint32_t ranks = plan->collective->ranks;
    return collective_range(plan->collective, (plan->rank + 2 * ranks - back) % ranks);
}

/* Range c sets out from rank c + 1, and each rank on its way adds its own to it. */
static void reduce_scatter_ring(struct plan *plan)
{
    uint32_t ranks = plan->collective->ranks;
    for (uint32_t round = 0; round + 1 < ranks; round++) {
        message(plan, COLLECTIVE_SEND, (plan->rank + 1) % ranks, round,
                range_before(plan, round + 1));
        message(plan, COLLECTIVE_ADD_LEFT, (plan->rank + ranks - 1) % ranks, round,
                range_before(plan, round + 2));
    }
}

static void gather_ring(struct plan *plan, uint32_t first_round)
{
    uint32_t ranks = plan->collective->ranks;
    for (uint32_t round = 0; round + 1 < ranks; round++) {
        message(plan, COLLECTIVE_SEND, (plan->rank + 1) % ranks, first_round + round,
                range_before(plan, round));
        message(plan, COLLECTIVE_COPY, (plan->rank + ranks - 1) % ranks, first_round + round,
                range_before(plan, round + 1));
    }
}

static void all_gather_ring(struct plan *plan)
{
    gather_ring(plan, 0);
}

static void all_reduce_ring(struct plan *plan)
{
    reduce_scatter_ring(plan);
    gather_ring(plan, plan->collective->ranks - 1);
}

/* ---- what there is ---- */

typedef void maker(struct plan *plan);
static maker *const makers[COLLECTIVE_KIND_COUNT][COLLECTIVE_WAY_COUNT] = {
    [COLLECTIVE_ALL_REDUCE] = {all_reduce_direct, all_reduce_halving, all_reduce_ring},
    [COLLECTIVE_REDUCE_SCATTER] = {reduce_scatter_direct, NULL, reduce_scatter_ring},
    [COLLECTIVE_ALL_GATHER] = {all_gather_direct, NULL, all_gather_ring},
    [COLLECTIVE_ALL_TO_ALL] = {all_to_all_direct, NULL, NULL},
    [COLLECTIVE_BROADCAST] = {broadcast_direct, NULL, NULL},
};

enum err collective_check(const struct collective *collective, struct reason *reason)
{
    uint32_t ranks = collective->ranks;
    if (ranks < 1 || ranks > COLLECTIVE_RANKS_MAX)
        return reason_set(reason, ERR_INVALID, "a collective has 1 to %d ranks, not %u",
                          COLLECTIVE_RANKS_MAX, ranks);
    if (collective->elements > COLLECTIVE_ELEMENTS_MAX)
        return reason_set(reason, ERR_INVALID,
                          "an array of a collective has at most 2^40 elements");
    if (collective->kind >= COLLECTIVE_KIND_COUNT || collective->way >= COLLECTIVE_WAY_COUNT ||
        makers[collective->kind][collective->way] == NULL)
        return reason_set(reason, ERR_INVALID, "no such collective is done that way");
    if (collective->way == COLLECTIVE_HALVING && (ranks & (ranks - 1)) != 0)
        return reason_set(reason, ERR_INVALID, "halving needs a power of two of ranks, not %u",
                          ranks);
    if (collective->each != 0 &&
        (collective->way == COLLECTIVE_HALVING || collective->each > COLLECTIVE_ELEMENTS_MAX ||
         collective->each * ranks != collective->elements))
        return reason_set(reason, ERR_INVALID, "the ranges of %u ranks are not the whole array",
                          ranks);
    if (collective->kind == COLLECTIVE_BROADCAST && collective->root >= ranks)
        return reason_set(reason, ERR_INVALID, "root %u is none of %u ranks", collective->root,
                          ranks);
    return ERR_OK;
}

void collective_plan(const struct collective *collective, uint32_t rank,
                     struct collective_schedule *ret_schedule)
{
    struct plan plan = {collective, rank, ret_schedule};
    check(collective_check(collective, NULL) == ERR_OK);
    check(rank < collective->ranks);
    ret_schedule->count = 0;
    ret_schedule->scratch_places = 0;
    ret_schedule->scratch_elements = 0;
    makers[collective->kind][collective->way](&plan);
}

struct collective_traffic collective_bytes(const struct collective *collective, uint32_t rank,
                                           uint32_t element_bytes)
{
    struct collective_schedule schedule;
    struct collective_traffic traffic = {0};
    uint32_t given = UINT32_MAX; /* the newest round */
    collective_plan(collective, rank, &schedule);
    for (uint32_t i = 0; i < schedule.count; i++) {
        const struct collective_step *step = &schedule.steps[i];
        uint64_t bytes = step->range.count * element_bytes;
        if (step->act == COLLECTIVE_SEND) {
            traffic.sent_messages++;
            traffic.sent_bytes += bytes;
            traffic.given_bytes += step->round != given ? bytes : 0;
            given = step->round;
        } else if (collective_receives(step)) {
            traffic.received_messages++;
            traffic.received_bytes += bytes;
        }
    }
    return traffic;
}

/* ---- where it lies ---- */

static size_t place_bytes(const struct collective_schedule *schedule, uint32_t element_bytes)
{
    return ((size_t)schedule->scratch_elements * element_bytes + 63) / 64 * 64;
}

size_t collective_scratch_bytes(const struct collective_schedule *schedule, uint32_t element_bytes)
{
    return schedule->scratch_places * place_bytes(schedule, element_bytes);
}

uint8_t *collective_at(const struct collective_memory *memory,
                       const struct collective_schedule *schedule,
                       const struct collective_step *step, uint32_t place)
{
    bool apart = memory->output != NULL && step->act != COLLECTIVE_SEND;
    uint8_t *array = apart ? memory->output : memory->array;
    if (place > 0)
        return memory->scratch + (place - 1) * place_bytes(schedule, memory->element_bytes);
    return step->range.count == 0 ? array : array + step->range.first * memory->element_bytes;
}
