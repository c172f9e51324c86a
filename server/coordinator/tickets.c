/* Who computes what. */
#include "server/coordinator/tickets.h"

#include <stdlib.h>
#include <string.h>

enum {
    LAPSE_FACTOR = 16,    /* a lease lapses after so many times the usual time … */
    LAPSE_UNKNOWN = 10,   /* … or, while that is not known, so many times lease_ms */
    USUAL_SHARE = 4,      /* the newest duration's weight in the average is 1 / this */
    CHOSEN_MS_MAX = 1000, /* a chosen run of slots takes about so long at most … */
    CHOSEN_UNKNOWN = 16,  /* … or, while that is not known, has so many */
};

static enum err work_init(struct work *work, uint32_t count_max)
{
    *work = (struct work){.count_max = count_max};
    work->units = calloc(count_max > 0 ? count_max : 1, sizeof *work->units);
    return work->units == NULL ? ERR_NOMEM : ERR_OK;
}

static enum err init_all(struct tickets *tickets)
{
    const struct tickets_settings *settings = &tickets->settings;
    check(settings->open_steps > 0);
    tickets->leases = calloc(settings->leases_max, sizeof *tickets->leases);
    tickets->train = calloc(settings->open_steps, sizeof *tickets->train);
    if (tickets->leases == NULL || tickets->train == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < settings->open_steps; i++)
        TRY(work_init(&tickets->train[i], settings->slots));
    return work_init(&tickets->validate, settings->pieces);
}

enum err tickets_init(struct tickets *tickets, const struct tickets_settings *settings)
{
    *tickets = (struct tickets){.settings = *settings, .attempts = settings->attempts_first};
    enum err err = init_all(tickets);
    if (err != ERR_OK)
        tickets_release(tickets);
    return err;
}

void tickets_release(struct tickets *tickets)
{
    for (uint32_t i = 0; tickets->train != NULL && i < tickets->settings.open_steps; i++)
        free(tickets->train[i].units);
    free(tickets->train);
    free(tickets->validate.units);
    free(tickets->leases);
    *tickets = (struct tickets){0};
}

/* ---- what is open ---- */

static struct work *train_of(const struct tickets *tickets, uint64_t step)
{
    return &tickets->train[step % tickets->settings.open_steps];
}

static struct work *work_of(struct tickets *tickets, enum ticket_kind kind, uint64_t step)
{
    return kind == TICKET_TRAIN ? train_of(tickets, step) : &tickets->validate;
}

static bool is_open(const struct tickets *tickets, uint64_t step)
{
    return step >= tickets->step && step - tickets->step < tickets->steps;
}

static void work_open(struct work *work, bool wanted)
{
    work->count = wanted ? work->count_max : 0;
    work->free_count = work->count;
    work->done_count = 0;
    work->lowest = 0;
    work->useful_ms = 0;
    memset(work->units, 0, work->count_max * sizeof *work->units);
}

/* Leases of steps that are closed go; the units they covered go with them. */
static void keep_leases(struct tickets *tickets, bool validate)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < tickets->lease_count; i++) {
        const struct lease *lease = &tickets->leases[i];
        if (lease->kind == TICKET_TRAIN ? is_open(tickets, lease->step) : validate)
            tickets->leases[kept++] = *lease;
    }
    tickets->lease_count = kept;
}

static void train_open(struct tickets *tickets, uint64_t first, uint32_t steps)
{
    check(steps <= tickets->settings.open_steps);
    uint64_t from = tickets->step, to = from + tickets->steps;
    for (uint64_t step = from; step < to; step++)
        if (step < first || step - first >= steps)
            work_open(train_of(tickets, step), false);
    for (uint64_t step = first; step < first + steps; step++)
        if (step < from || step >= to)
            work_open(train_of(tickets, step), true);
    tickets->step = first;
    tickets->steps = steps;
}

void tickets_open(struct tickets *tickets, struct tickets_open open)
{
    train_open(tickets, open.step, open.steps);
    work_open(&tickets->validate, open.validate);
    tickets->version = open.version;
    keep_leases(tickets, false);
}

void tickets_move(struct tickets *tickets, uint64_t step, uint32_t steps)
{
    train_open(tickets, step, steps);
    keep_leases(tickets, true);
}

void tickets_mark(struct tickets *tickets, uint64_t step, uint32_t slot, bool done)
{
    check(is_open(tickets, step));
    struct work *work = train_of(tickets, step);
    struct unit *unit = &work->units[slot];
    if (unit->done == done)
        return;
    unit->done = done;
    work->done_count = done ? work->done_count + 1 : work->done_count - 1;
    if (unit->holders > 0)
        return;
    work->free_count = done ? work->free_count - 1 : work->free_count + 1;
    if (!done && slot < work->lowest)
        work->lowest = slot;
}

void tickets_reopen(struct tickets *tickets)
{
    struct work *work = train_of(tickets, tickets->step);
    for (uint32_t i = 0; i < work->count; i++) {
        struct unit *unit = &work->units[i];
        if (unit->done && unit->holders == 0)
            work->free_count++;
        unit->done = false;
    }
    work->done_count = 0;
    work->lowest = 0;
}

static uint32_t end_of(const struct work *work, struct node node)
{
    return node_first(node) + node_slots(node, work->count);
}

/* ---- grant ---- */

static bool all_free(const struct work *work, struct node node)
{
    for (uint32_t i = node_first(node); i < end_of(work, node); i++)
        if (work->units[i].done || work->units[i].holders > 0)
            return false;
    return true;
}

/* What a unit is computed on. */
static uint64_t version_of(const struct tickets *tickets, const struct lease *lease, uint32_t unit)
{
    uint32_t delay = tickets->settings.delay;
    if (lease->kind == TICKET_VALIDATE)
        return tickets->version;
    const struct unit *slot = &train_of(tickets, lease->step)->units[unit];
    if (slot->given)
        return slot->version;
    if (tickets->settings.newest)
        return tickets->version;
    return lease->step > delay ? lease->step - delay : 0;
}

static bool one_version(const struct tickets *tickets, const struct lease *lease, struct node node)
{
    const struct work *work = train_of(tickets, lease->step);
    for (uint32_t i = node_first(node); i < end_of(work, node); i++)
        if (version_of(tickets, lease, i) != lease->version)
            return false;
    return true;
}

/* One worker's share of all that is free in the step, and no more than is a pity to lose. */
static uint32_t chosen_max(const struct tickets *tickets, const struct work *work,
                           uint32_t worker_count)
{
    uint32_t share = work->free_count / (worker_count > 0 ? worker_count : 1);
    double usual_ms = tickets->train_usual_ms;
    double most = usual_ms > 0 ? CHOSEN_MS_MAX / usual_ms : CHOSEN_UNKNOWN;
    return most < share ? (uint32_t)most : share;
}

/* The largest aligned run from the lowest free slot on that is free, of one version, and within
 * chosen_max(). */
static struct node choose_node(const struct tickets *tickets, const struct lease *lease,
                               uint32_t worker_count)
{
    const struct work *work = train_of(tickets, lease->step);
    uint32_t first = lease->node.index;
    uint32_t slots_max = chosen_max(tickets, work, worker_count);
    struct node node = {0, first};
    while (node.level < tree_level(work->count)) {
        struct node parent = node_parent(node);
        if (node_slots(parent, work->count) > slots_max || !all_free(work, parent) ||
            !one_version(tickets, lease, parent))
            break;
        node = parent;
    }
    return node;
}

static struct node fixed_node(const struct work *work, uint32_t first, uint32_t slots)
{
    struct node node = {0, first};
    while (UINT32_C(1) << node.level < slots && node.level < tree_level(work->count))
        node = node_parent(node);
    return node;
}

static const struct lease *lease_add(struct tickets *tickets, struct lease lease)
{
    check(tickets->lease_count < tickets->settings.leases_max);
    struct work *work = work_of(tickets, lease.kind, lease.step);
    for (uint32_t i = node_first(lease.node); i < end_of(work, lease.node); i++) {
        struct unit *unit = &work->units[i];
        if (!unit->done && unit->holders == 0) {
            work->free_count--;
            tickets->redone += unit->given ? 1 : 0;
        }
        tickets->speculative += lease.speculative ? 1 : 0;
        unit->holders++;
        unit->version = lease.version;
        unit->given = true;
        unit->granted_ms = lease.granted_ms;
    }
    lease.attempt = ++tickets->attempts;
    tickets->leases[tickets->lease_count] = lease;
    return &tickets->leases[tickets->lease_count++];
}

static bool grant_free(struct tickets *tickets, struct lease lease, uint32_t worker_count,
                       const struct lease **ret_lease)
{
    struct work *work = work_of(tickets, lease.kind, lease.step);
    if (work->free_count == 0)
        return false;
    while (work->units[work->lowest].done || work->units[work->lowest].holders > 0)
        work->lowest++;
    lease.node = (struct node){0, work->lowest};
    lease.version = version_of(tickets, &lease, work->lowest);
    if (lease.kind == TICKET_TRAIN && tickets->settings.node_slots > 0)
        lease.node = fixed_node(work, work->lowest, tickets->settings.node_slots);
    else if (lease.kind == TICKET_TRAIN)
        lease.node = choose_node(tickets, &lease, worker_count);
    *ret_lease = lease_add(tickets, lease);
    return true;
}

/* ---- speculation ---- */

static const struct work *lease_work(const struct tickets *tickets, const struct lease *lease)
{
    return lease->kind == TICKET_TRAIN ? train_of(tickets, lease->step) : &tickets->validate;
}

static double *usual_of(struct tickets *tickets, enum ticket_kind kind)
{
    return kind == TICKET_TRAIN ? &tickets->train_usual_ms : &tickets->validate_usual_ms;
}

/* What the lease's node takes, usually; 0: not known. */
static double usual_ms(const struct tickets *tickets, const struct lease *lease)
{
    double unit_ms =
        lease->kind == TICKET_TRAIN ? tickets->train_usual_ms : tickets->validate_usual_ms;
    return unit_ms * node_slots(lease->node, lease_work(tickets, lease)->count);
}

/* How old the youngest attempt must be before another worker gets it as well. */
static uint64_t overdue_after_ms(const struct tickets *tickets, const struct lease *lease)
{
    const struct tickets_settings *settings = &tickets->settings;
    double usual = usual_ms(tickets, lease);
    if (settings->overdue_percent == 0)
        return 0;
    if (usual == 0)
        return settings->lease_ms;
    uint64_t after_ms = (uint64_t)usual * settings->overdue_percent / 100;
    return after_ms > settings->overdue_ms_min ? after_ms : settings->overdue_ms_min;
}

/* The first unit of the lease that is not done; the node's end: all are. */
static uint32_t first_open(const struct work *work, const struct lease *lease)
{
    uint32_t i = node_first(lease->node);
    while (i < end_of(work, lease->node) && work->units[i].done)
        i++;
    return i;
}

/* When the lease's node may be given to another worker; UINT64_MAX: it is done. */
static uint64_t lease_overdue_ms(const struct tickets *tickets, const struct lease *lease)
{
    const struct work *work = lease_work(tickets, lease);
    uint32_t i = first_open(work, lease);
    if (i == end_of(work, lease->node))
        return UINT64_MAX;
    return work->units[i].granted_ms + overdue_after_ms(tickets, lease);
}

static bool holds_some_of(const struct tickets *tickets, uint64_t member, const struct lease *lease)
{
    for (uint32_t i = 0; i < tickets->lease_count; i++) {
        const struct lease *held = &tickets->leases[i];
        if (held->member == member && held->kind == lease->kind && held->step == lease->step &&
            (node_contains(held->node, lease->node) || node_contains(lease->node, held->node)))
            return true;
    }
    return false;
}

static bool grant_overdue(struct tickets *tickets, struct lease lease,
                          const struct lease **ret_lease)
{
    const struct lease *slowest = NULL;
    uint64_t slowest_ms = UINT64_MAX;
    for (uint32_t i = 0; i < tickets->lease_count; i++) {
        const struct lease *held = &tickets->leases[i];
        uint64_t overdue_ms = lease_overdue_ms(tickets, held);
        if (overdue_ms > lease.granted_ms || overdue_ms >= slowest_ms ||
            holds_some_of(tickets, lease.member, held))
            continue;
        slowest = held;
        slowest_ms = overdue_ms;
    }
    if (slowest == NULL)
        return false;
    lease.kind = slowest->kind;
    lease.step = slowest->step;
    lease.version = slowest->version;
    lease.node = slowest->node;
    lease.speculative = true;
    *ret_lease = lease_add(tickets, lease);
    return true;
}

bool tickets_grant(struct tickets *tickets, uint64_t now_ms, uint64_t member, uint32_t worker_count,
                   const struct lease **ret_lease)
{
    struct lease lease = {
        .kind = TICKET_TRAIN, .step = tickets->step, .member = member, .granted_ms = now_ms};
    const struct lease validate = {.kind = TICKET_VALIDATE, .member = member, .granted_ms = now_ms};
    if (tickets->lease_count == tickets->settings.leases_max)
        return false;
    if (tickets->steps > 0 && grant_free(tickets, lease, worker_count, ret_lease))
        return true;
    if (grant_free(tickets, validate, worker_count, ret_lease))
        return true;
    for (uint32_t i = 1; i < tickets->steps; i++) {
        lease.step = tickets->step + i;
        if (grant_free(tickets, lease, worker_count, ret_lease))
            return true;
    }
    return grant_overdue(tickets, lease, ret_lease);
}

uint64_t tickets_overdue_ms(const struct tickets *tickets)
{
    uint64_t due_ms = UINT64_MAX;
    for (uint32_t i = 0; i < tickets->lease_count; i++) {
        uint64_t overdue_ms = lease_overdue_ms(tickets, &tickets->leases[i]);
        due_ms = overdue_ms < due_ms ? overdue_ms : due_ms;
    }
    return due_ms;
}

const struct lease *tickets_find(const struct tickets *tickets, uint64_t attempt)
{
    for (uint32_t i = 0; i < tickets->lease_count; i++)
        if (tickets->leases[i].attempt == attempt)
            return &tickets->leases[i];
    return NULL;
}

uint32_t tickets_held(const struct tickets *tickets, uint64_t member)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tickets->lease_count; i++)
        count += tickets->leases[i].member == member ? 1 : 0;
    return count;
}

/* ---- the end of leases ---- */

/* Takes the lease away; what nobody else holds and is not done is free. */
static void lease_remove(struct tickets *tickets, uint32_t index)
{
    struct lease lease = tickets->leases[index];
    struct work *work = work_of(tickets, lease.kind, lease.step);
    for (uint32_t i = node_first(lease.node); i < end_of(work, lease.node); i++) {
        struct unit *unit = &work->units[i];
        unit->holders--;
        if (unit->holders > 0 || unit->done)
            continue;
        work->free_count++;
        work->lowest = i < work->lowest ? i : work->lowest;
    }
    tickets->lease_count--;
    memmove(&tickets->leases[index], &tickets->leases[index + 1],
            (tickets->lease_count - index) * sizeof *tickets->leases);
}

/* The lease ends, having made so many units done. */
static void lease_end(struct tickets *tickets, uint64_t now_ms, uint32_t index, uint32_t made_done)
{
    const struct lease *lease = &tickets->leases[index];
    struct work *work = work_of(tickets, lease->kind, lease->step);
    uint64_t held_ms = now_ms - lease->granted_ms;
    uint64_t useful_ms = held_ms * made_done / node_slots(lease->node, work->count);
    work->useful_ms += useful_ms;
    tickets->useful_ms += useful_ms;
    tickets->wasted_ms += held_ms - useful_ms;
    lease_remove(tickets, index);
}

static void learn(struct tickets *tickets, const struct lease *lease, uint64_t now_ms)
{
    uint32_t units = node_slots(lease->node, lease_work(tickets, lease)->count);
    double unit_ms = (double)(now_ms - lease->granted_ms) / (double)units;
    double *usual = usual_of(tickets, lease->kind);
    /* Something that took no time still has a usual time. */
    unit_ms = unit_ms > 0 ? unit_ms : 0.01;
    *usual += *usual == 0 ? unit_ms : (unit_ms - *usual) / USUAL_SHARE;
}

/* Returns how many units of the node were not done before. */
static uint32_t mark_done(struct work *work, struct node node)
{
    uint32_t newly_done = 0;
    for (uint32_t i = node_first(node); i < end_of(work, node); i++) {
        struct unit *unit = &work->units[i];
        if (unit->done)
            continue;
        unit->done = true;
        newly_done++;
        work->done_count++;
        work->free_count -= unit->holders == 0 ? 1 : 0;
    }
    return newly_done;
}

uint32_t tickets_done(struct tickets *tickets, uint64_t now_ms, const struct ticket *ticket)
{
    if (ticket->kind == TICKET_TRAIN && !is_open(tickets, ticket->step))
        return 0;
    uint32_t newly_done = mark_done(work_of(tickets, ticket->kind, ticket->step), ticket->node);
    const struct lease *lease = tickets_find(tickets, ticket->attempt);
    if (lease != NULL && lease->kind == ticket->kind && node_equal(lease->node, ticket->node) &&
        (lease->kind == TICKET_VALIDATE || lease->step == ticket->step)) {
        learn(tickets, lease, now_ms);
        lease_end(tickets, now_ms, (uint32_t)(lease - tickets->leases), newly_done);
    }
    return newly_done;
}

uint64_t tickets_settle(struct tickets *tickets, uint64_t now_ms)
{
    struct work *work = train_of(tickets, tickets->step);
    for (uint32_t i = tickets->lease_count; i-- > 0;) {
        const struct lease *lease = &tickets->leases[i];
        if (lease_work(tickets, lease) == work)
            lease_end(tickets, now_ms, i, mark_done(work, lease->node));
    }
    return work->useful_ms;
}

void tickets_drop(struct tickets *tickets, uint64_t now_ms, uint64_t attempt, uint64_t member)
{
    const struct lease *lease = tickets_find(tickets, attempt);
    if (lease != NULL && lease->member == member)
        lease_end(tickets, now_ms, (uint32_t)(lease - tickets->leases), 0);
}

uint32_t tickets_drop_member(struct tickets *tickets, uint64_t now_ms, uint64_t member)
{
    uint32_t count = 0;
    for (uint32_t i = tickets->lease_count; i-- > 0;) {
        if (tickets->leases[i].member != member)
            continue;
        lease_end(tickets, now_ms, i, 0);
        count++;
    }
    return count;
}

void tickets_drop_all(struct tickets *tickets, uint64_t now_ms)
{
    while (tickets->lease_count > 0)
        lease_end(tickets, now_ms, tickets->lease_count - 1, 0);
}

static uint64_t lapse_after_ms(const struct tickets *tickets, const struct lease *lease)
{
    uint64_t lease_ms = tickets->settings.lease_ms;
    double usual = usual_ms(tickets, lease);
    if (usual == 0)
        return lease_ms * LAPSE_UNKNOWN;
    uint64_t after_ms = (uint64_t)usual * LAPSE_FACTOR;
    return after_ms > lease_ms ? after_ms : lease_ms;
}

uint32_t tickets_lapse(struct tickets *tickets, uint64_t now_ms, uint64_t *ret_due_ms)
{
    uint32_t count = 0;
    *ret_due_ms = UINT64_MAX;
    for (uint32_t i = tickets->lease_count; i-- > 0;) {
        uint64_t due_ms =
            tickets->leases[i].granted_ms + lapse_after_ms(tickets, &tickets->leases[i]);
        if (due_ms <= now_ms) {
            lease_end(tickets, now_ms, i, 0);
            count++;
        } else if (due_ms < *ret_due_ms) {
            *ret_due_ms = due_ms;
        }
    }
    return count;
}

uint32_t tickets_behind(const struct tickets *tickets, uint8_t *ret_behind)
{
    const struct work *work = train_of(tickets, tickets->step);
    const struct lease slot = {.kind = TICKET_TRAIN, .step = tickets->step};
    uint32_t most = 0;
    for (uint32_t i = 0; i < work->count; i++) {
        ret_behind[i] = (uint8_t)(tickets->step - version_of(tickets, &slot, i));
        most = ret_behind[i] > most ? ret_behind[i] : most;
    }
    return most;
}

bool tickets_all_done(const struct tickets *tickets, enum ticket_kind kind)
{
    const struct work *work =
        kind == TICKET_TRAIN ? train_of(tickets, tickets->step) : &tickets->validate;
    return work->done_count == work->count;
}

static void work_check(const struct work *work)
{
    uint32_t free_count = 0, done_count = 0;
    for (uint32_t i = 0; i < work->count; i++) {
        const struct unit *unit = &work->units[i];
        bool is_free = !unit->done && unit->holders == 0;
        check(unit->holders == unit->found);      /* 1 */
        check(!is_free || i >= work->lowest);     /* 3 */
        check(unit->holders == 0 || unit->given); /* 2 */
        free_count += is_free ? 1 : 0;
        done_count += unit->done ? 1 : 0;
    }
    check(work->free_count == free_count);
    check(work->done_count == done_count);
    check(work->count <= work->count_max);
}

static void find_nothing(struct work *work)
{
    for (uint32_t i = 0; i < work->count; i++)
        work->units[i].found = 0;
}

/* Notes how many leases cover each unit. */
static void find_leases(struct tickets *tickets)
{
    for (uint32_t i = 0; i < tickets->settings.open_steps; i++)
        find_nothing(&tickets->train[i]);
    find_nothing(&tickets->validate);
    for (uint32_t k = 0; k < tickets->lease_count; k++) {
        const struct lease *lease = &tickets->leases[k];
        check(lease->kind != TICKET_TRAIN || is_open(tickets, lease->step));
        check(lease->attempt <= tickets->attempts);
        check(k == 0 || tickets->leases[k - 1].attempt < lease->attempt);
        struct work *work =
            lease->kind == TICKET_TRAIN ? train_of(tickets, lease->step) : &tickets->validate;
        for (uint32_t i = node_first(lease->node); i < end_of(work, lease->node); i++) {
            work->units[i].found++;
            check(work->units[i].version == lease->version); /* 2 */
        }
    }
}

void tickets_check(struct tickets *tickets)
{
    uint32_t open = 0;
    check(tickets->lease_count <= tickets->settings.leases_max);
    find_leases(tickets);
    for (uint32_t i = 0; i < tickets->settings.open_steps; i++) {
        work_check(&tickets->train[i]);
        open += tickets->train[i].count > 0 ? 1 : 0;
    }
    check(open == tickets->steps);
    work_check(&tickets->validate);
}
