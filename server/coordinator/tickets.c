/* Who computes what. */
#include "server/coordinator/tickets.h"

#include <stdlib.h>
#include <string.h>

enum {
    LAPSES_MAX = 16,      /* that are counted */
    LAPSE_FACTOR = 16,    /* a lease lapses after this many times the usual time, or: */
    LAPSE_UNKNOWN = 10,   /* while that is not known: after this many times lease_ms */
    USUAL_SHARE = 4,      /* the newest duration's weight in the average is 1 / this */
    CHOSEN_MS_MAX = 1000, /* a chosen run of slots takes about this long at most, or: */
    CHOSEN_UNKNOWN = 16,  /* while that is not known: has at most this many */
};

static enum err work_init(struct work *work, uint32_t count_max)
{
    *work = (struct work){.count_max = count_max};
    work->slots = calloc(count_max > 0 ? count_max : 1, sizeof *work->slots);
    return work->slots == NULL ? ERR_NOMEM : ERR_OK;
}

static enum err init_all(struct tickets *tickets)
{
    const struct tickets_settings *settings = &tickets->settings;
    check(settings->open_steps > 0);
    TRY(leases_init(&tickets->leases, settings->leases_max, settings->attempts_first));
    TRY(doubt_init(&tickets->doubt, settings->leases_max));
    tickets->train = calloc(settings->open_steps, sizeof *tickets->train);
    if (tickets->train == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < settings->open_steps; i++)
        TRY(work_init(&tickets->train[i], settings->slots));
    return work_init(&tickets->validate, settings->pieces);
}

enum err tickets_init(struct tickets *tickets, const struct tickets_settings *settings)
{
    *tickets = (struct tickets){.settings = *settings};
    enum err err = init_all(tickets);
    if (err != ERR_OK)
        tickets_release(tickets);
    return err;
}

void tickets_release(struct tickets *tickets)
{
    for (uint32_t i = 0; tickets->train != NULL && i < tickets->settings.open_steps; i++)
        free(tickets->train[i].slots);
    free(tickets->train);
    free(tickets->validate.slots);
    leases_release(&tickets->leases);
    doubt_release(&tickets->doubt);
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
    memset(work->slots, 0, work->count_max * sizeof *work->slots);
}

/* Leases of steps that are closed go; the slots they covered go with them. */
static void keep_leases(struct tickets *tickets, bool validate)
{
    struct lease *lease = leases_youngest(&tickets->leases);
    while (lease != NULL) {
        struct lease *before = leases_before(&tickets->leases, lease);
        if (lease->kind == TICKET_TRAIN ? !is_open(tickets, lease->step) : !validate)
            leases_remove(&tickets->leases, lease);
        lease = before;
    }
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

void tickets_stop_validation(struct tickets *tickets)
{
    work_open(&tickets->validate, false);
    keep_leases(tickets, false);
}

void tickets_move(struct tickets *tickets, uint64_t step, uint32_t steps)
{
    train_open(tickets, step, steps);
    keep_leases(tickets, true);
}

/* Units of the step that were done are not after all: who holds them is waited for again. */
static void out_again(struct tickets *tickets, uint64_t step)
{
    for (struct lease *lease = leases_youngest(&tickets->leases); lease != NULL;
         lease = leases_before(&tickets->leases, lease))
        if (lease->kind == TICKET_TRAIN && lease->step == step)
            leases_out_again(&tickets->leases, lease);
}

void tickets_mark(struct tickets *tickets, uint64_t step, uint32_t index, bool done)
{
    struct work *work = train_of(tickets, step);
    check(is_open(tickets, step));
    check(index < work->count);
    struct slot *slot = &work->slots[index];
    if (slot->done == done)
        return;
    slot->done = done;
    slot->attempt = 0; /* nobody's complete said so */
    work->done_count = done ? work->done_count + 1 : work->done_count - 1;
    if (slot->holders > 0 && !done)
        out_again(tickets, step);
    if (slot->holders > 0)
        return;
    work->free_count = done ? work->free_count - 1 : work->free_count + 1;
    if (!done && index < work->lowest)
        work->lowest = index;
}

void tickets_reopen(struct tickets *tickets)
{
    struct work *work = train_of(tickets, tickets->step);
    for (uint32_t i = 0; i < work->count; i++) {
        struct slot *slot = &work->slots[i];
        if (slot->done && slot->holders == 0)
            work->free_count++;
        slot->done = false;
    }
    work->done_count = 0;
    work->lowest = 0;
    out_again(tickets, tickets->step);
}

uint64_t tickets_question(struct tickets *tickets, uint64_t now_ms)
{
    tickets->question_ms = now_ms;
    return ++tickets->leases.attempts;
}

bool tickets_undo(struct tickets *tickets, uint64_t question, uint64_t step, uint32_t index,
                  uint64_t *ret_member)
{
    struct work *work = train_of(tickets, step);
    if (!is_open(tickets, step) || index >= work->count || question > tickets->leases.attempts)
        return false;
    struct slot slot = work->slots[index];
    /* What was completed since may have come after the server's look. */
    if (!slot.done || slot.attempt == 0 || slot.completed >= question)
        return false;
    for (uint32_t i = 0; i < work->count; i++)
        if (work->slots[i].attempt == slot.attempt)
            work->slots[i].member = 0;
    tickets_mark(tickets, step, index, false);
    *ret_member = slot.member;
    return true;
}

/* ---- doubt ---- */

static uint64_t overdue_after_ms(const struct tickets *tickets, const struct lease *lease);

/* The lease ends, and its member did not bring it. */
static void doubt_if_overdue(struct tickets *tickets, uint64_t now_ms, const struct lease *lease)
{
    bool overdue = now_ms - lease->granted_ms >= overdue_after_ms(tickets, lease);
    if (overdue && !lease->audit && tickets->settings.overdue_percent > 0)
        doubt_add(&tickets->doubt, lease->member);
}

static uint32_t end_of(const struct work *work, struct node node)
{
    return node_first(node) + node_slots(node, work->count);
}

/* ---- grant ---- */

static bool all_free(const struct work *work, struct node node)
{
    for (uint32_t i = node_first(node); i < end_of(work, node); i++)
        if (work->slots[i].done || work->slots[i].holders > 0)
            return false;
    return true;
}

/* What a slot is computed on. */
static uint64_t version_of(const struct tickets *tickets, const struct lease *lease, uint32_t index)
{
    uint32_t delay = tickets->settings.delay;
    if (lease->kind == TICKET_VALIDATE)
        return tickets->version;
    const struct slot *slot = &train_of(tickets, lease->step)->slots[index];
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

/* One worker's share of the step's free slots, and at most about a second of work, because that is
 * lost with the worker. Each of its devices has something to do. Within what the run admits. */
static uint32_t chosen_max(const struct tickets *tickets, const struct work *work,
                           const struct tickets_worker *worker)
{
    uint32_t share = (uint32_t)((uint64_t)work->free_count * worker->devices / worker->all_devices);
    double usual_ms = tickets->train_usual_ms;
    double most = usual_ms > 0 ? CHOSEN_MS_MAX / usual_ms : CHOSEN_UNKNOWN;
    uint32_t slots = most < share ? (uint32_t)most : share;
    uint32_t bound = tickets->settings.chosen_max;
    slots = slots > worker->devices ? slots : worker->devices;
    return bound > 0 && slots > bound ? bound : slots;
}

/* The largest aligned run from the lowest free slot on that is free, of one version, and within
 * chosen_max(). */
static struct node choose_node(const struct tickets *tickets, const struct lease *lease,
                               const struct tickets_worker *worker)
{
    const struct work *work = train_of(tickets, lease->step);
    uint32_t first = lease->node.index;
    uint32_t slots_max = chosen_max(tickets, work, worker);
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

/* twin: a lease on the same node; NULL: its slots are free. */
static const struct lease *lease_add(struct tickets *tickets, struct lease lease,
                                     struct lease *twin)
{
    struct work *work = work_of(tickets, lease.kind, lease.step);
    check(lease.kind != TICKET_TRAIN || is_open(tickets, lease.step));
    check(end_of(work, lease.node) <= work->count);
    for (uint32_t i = node_first(lease.node); i < end_of(work, lease.node); i++) {
        struct slot *slot = &work->slots[i];
        check(slot->holders == 0 || slot->version == lease.version); /* 2 */
        check((slot->holders > 0) == (twin != NULL));
        if (!slot->done && slot->holders == 0) {
            check(work->free_count > 0);
            work->free_count--;
            tickets->redone += slot->given ? 1 : 0;
        }
        tickets->speculative += lease.speculative ? 1 : 0;
        slot->holders++;
        slot->version = lease.version;
        slot->renamed = slot->renamed || (slot->given && slot->level != lease.node.level);
        slot->level = (uint8_t)lease.node.level;
        slot->given = true;
    }
    lease.slots = node_slots(lease.node, work->count);
    return leases_add(&tickets->leases, &lease, twin);
}

bool tickets_renamed(const struct tickets *tickets, const struct lease *lease)
{
    const struct work *work = train_of(tickets, lease->step);
    for (uint32_t i = node_first(lease->node); i < end_of(work, lease->node); i++)
        if (work->slots[i].renamed)
            return true;
    return false;
}

static bool grant_free(struct tickets *tickets, struct lease lease,
                       const struct tickets_worker *worker, const struct lease **ret_lease)
{
    struct work *work = work_of(tickets, lease.kind, lease.step);
    if (work->free_count == 0)
        return false;
    while (work->slots[work->lowest].done || work->slots[work->lowest].holders > 0)
        work->lowest++;
    lease.node = (struct node){0, work->lowest};
    lease.version = version_of(tickets, &lease, work->lowest);
    if (lease.kind == TICKET_TRAIN && tickets->settings.node_slots > 0)
        lease.node = fixed_node(work, work->lowest, tickets->settings.node_slots);
    else if (lease.kind == TICKET_TRAIN)
        lease.node = choose_node(tickets, &lease, worker);
    *ret_lease = lease_add(tickets, lease, NULL);
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

/* The usual time of the lease's node; 0: not known. */
static double usual_ms(const struct tickets *tickets, const struct lease *lease)
{
    double slot_ms =
        lease->kind == TICKET_TRAIN ? tickets->train_usual_ms : tickets->validate_usual_ms;
    return slot_ms * lease->slots;
}

/* How old the youngest attempt must be before another worker gets a second one. */
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

static bool is_done(const struct tickets *tickets, const struct lease *lease)
{
    const struct work *work = lease_work(tickets, lease);
    for (uint32_t i = node_first(lease->node); i < end_of(work, lease->node); i++)
        if (!work->slots[i].done)
            return false;
    return true;
}

/* The lease of the class whose node is not done and out longest, from `lease` on; NULL: none. */
static struct lease *skip_done(struct tickets *tickets, struct lease *lease)
{
    while (lease != NULL && is_done(tickets, lease)) {
        struct lease *next = leases_next_out(&tickets->leases, lease);
        leases_not_out(lease);
        lease = next;
    }
    return lease;
}

/* When the lease's node may be given to another worker. */
static uint64_t lease_overdue_ms(const struct tickets *tickets, const struct lease *lease)
{
    if (lease->doubted && lease->out_ms == 0)
        return 0;
    return lease->out_ms + overdue_after_ms(tickets, lease);
}

static bool holds_some_of(const struct tickets *tickets, uint64_t member, const struct lease *lease)
{
    const struct lease *first = leases_of(&tickets->leases, member), *held = first;
    while (held != NULL) {
        if (held->kind == lease->kind && held->step == lease->step &&
            (node_contains(held->node, lease->node) || node_contains(lease->node, held->node)))
            return true;
        held = RING_ITEM(held->siblings.behind, struct lease, siblings);
        held = held == first ? NULL : held;
    }
    return false;
}

/* The overdue lease of a class that is out longest and of which the member holds nothing; NULL:
 * there is none. */
static struct lease *find_overdue(struct tickets *tickets, uint32_t lease_class, uint64_t now_ms,
                                  uint64_t member)
{
    struct lease *held = leases_longest_out(&tickets->leases, lease_class);
    while ((held = skip_done(tickets, held)) != NULL && lease_overdue_ms(tickets, held) <= now_ms) {
        if (!holds_some_of(tickets, member, held))
            return held;
        held = leases_next_out(&tickets->leases, held);
    }
    return NULL;
}

static bool grant_overdue(struct tickets *tickets, struct lease lease,
                          const struct lease **ret_lease)
{
    struct lease *slowest = NULL;
    uint64_t slowest_ms = UINT64_MAX;
    for (uint32_t i = 0; i < LEASE_CLASSES; i++) {
        struct lease *held = find_overdue(tickets, i, lease.granted_ms, lease.member);
        if (held == NULL || lease_overdue_ms(tickets, held) >= slowest_ms)
            continue;
        slowest = held;
        slowest_ms = lease_overdue_ms(tickets, held);
    }
    if (slowest == NULL)
        return false;
    lease.kind = slowest->kind;
    lease.step = slowest->step;
    lease.version = slowest->version;
    lease.node = slowest->node;
    lease.speculative = true;
    *ret_lease = lease_add(tickets, lease, slowest);
    return true;
}

/* ---- audits ---- */

static bool is_held(const struct work *work, struct node node)
{
    for (uint32_t i = node_first(node); i < end_of(work, node); i++)
        if (work->slots[i].holders > 0)
            return true;
    return false;
}

bool tickets_grant_twin(struct tickets *tickets, uint64_t now_ms, uint64_t member,
                        const struct tickets_twin *twin, const struct lease **ret_lease)
{
    const struct lease lease = {.kind = TICKET_TRAIN,
                                .step = twin->step,
                                .version = twin->version,
                                .node = twin->node,
                                .member = member,
                                .granted_ms = now_ms,
                                .audit = true};
    if (tickets->leases.count == tickets->settings.leases_max || !is_open(tickets, twin->step) ||
        doubt_has(&tickets->doubt, member) || holds_some_of(tickets, member, &lease))
        return false;
    struct lease *first = leases_find(&tickets->leases, twin->attempt);
    if (first == NULL &&
        (is_held(train_of(tickets, twin->step), twin->node) || !is_done(tickets, &lease)))
        return false;
    *ret_lease = lease_add(tickets, lease, first);
    tickets->audited += (*ret_lease)->slots;
    return true;
}

bool tickets_train_free(const struct tickets *tickets)
{
    for (uint32_t i = 0; i < tickets->steps; i++)
        if (train_of(tickets, tickets->step + i)->free_count > 0)
            return true;
    return false;
}

bool tickets_free(const struct tickets *tickets)
{
    return tickets->validate.free_count > 0 || tickets_train_free(tickets);
}

bool tickets_older_free(const struct tickets *tickets, uint64_t step, uint32_t slot)
{
    for (uint64_t older = tickets->step; older < step && is_open(tickets, older); older++)
        if (train_of(tickets, older)->free_count > 0)
            return true;
    const struct work *work = train_of(tickets, step);
    for (uint32_t i = work->lowest; is_open(tickets, step) && i < slot && i < work->count; i++)
        if (!work->slots[i].done && work->slots[i].holders == 0)
            return true;
    return false;
}

bool tickets_any(struct tickets *tickets, uint64_t now_ms)
{
    if (tickets->leases.count == tickets->settings.leases_max)
        return false;
    return tickets_free(tickets) || tickets_overdue_ms(tickets) <= now_ms;
}

/* Whether servers have no room, as they wait for a slot that somebody holds. */
static bool waits_for_holder(const struct tickets *tickets)
{
    const struct work *work = train_of(tickets, tickets->step);
    uint32_t first = 0;
    if (!tickets->refused || tickets->steps == 0)
        return false;
    while (first < work->count && work->slots[first].done)
        first++;
    return first < work->count && work->slots[first].holders > 0;
}

bool tickets_grant(struct tickets *tickets, uint64_t now_ms, const struct tickets_worker *worker,
                   const struct lease **ret_lease)
{
    static const struct tickets_worker slow = {.devices = 1, .all_devices = UINT32_MAX};
    struct lease lease = {.kind = TICKET_TRAIN,
                          .step = tickets->step,
                          .member = worker->member,
                          .granted_ms = now_ms,
                          .doubted = doubt_has(&tickets->doubt, worker->member)};
    struct lease validate = lease;
    validate.kind = TICKET_VALIDATE;
    validate.step = 0;
    if (tickets->leases.count == tickets->settings.leases_max ||
        (lease.doubted && leases_of(&tickets->leases, worker->member) != NULL))
        return false;
    if (lease.doubted)
        worker = &slow; /* one slot is its share */
    if (waits_for_holder(tickets) && grant_overdue(tickets, lease, ret_lease))
        return true;
    if (tickets->steps > 0 && grant_free(tickets, lease, worker, ret_lease))
        return true;
    if (grant_free(tickets, validate, worker, ret_lease))
        return true;
    for (uint32_t i = 1; i < tickets->steps; i++) {
        lease.step = tickets->step + i;
        if (grant_free(tickets, lease, worker, ret_lease))
            return true;
    }
    return grant_overdue(tickets, lease, ret_lease);
}

uint64_t tickets_overdue_ms(struct tickets *tickets)
{
    uint64_t due_ms = UINT64_MAX;
    for (uint32_t i = 0; i < LEASE_CLASSES; i++) {
        const struct lease *held = skip_done(tickets, leases_longest_out(&tickets->leases, i));
        uint64_t overdue_ms = held != NULL ? lease_overdue_ms(tickets, held) : UINT64_MAX;
        due_ms = overdue_ms < due_ms ? overdue_ms : due_ms;
    }
    return due_ms;
}

const struct lease *tickets_find(const struct tickets *tickets, uint64_t attempt)
{
    return leases_find(&tickets->leases, attempt);
}

const struct lease *tickets_awaited(const struct tickets *tickets)
{
    const struct lease *awaited = NULL;
    for (const struct lease *lease = leases_youngest(&tickets->leases); lease != NULL;
         lease = leases_before(&tickets->leases, lease))
        if ((lease->kind == TICKET_VALIDATE || lease->step == tickets->step) &&
            !is_done(tickets, lease))
            awaited = lease;
    return awaited;
}

uint32_t tickets_lapses(const struct tickets *tickets)
{
    const struct work *work = train_of(tickets, tickets->step);
    uint32_t most = 0;
    for (uint32_t i = 0; i < work->count; i++)
        if (!work->slots[i].done && work->slots[i].lapses > most)
            most = work->slots[i].lapses;
    return most;
}

uint32_t tickets_held(const struct tickets *tickets, uint64_t member)
{
    return leases_count_of(&tickets->leases, member);
}

/* ---- the end of leases ---- */

/* Takes the lease away. Its slots that are not done and that nobody else holds are free. */
static void lease_remove(struct tickets *tickets, struct lease *lease)
{
    struct work *work = work_of(tickets, lease->kind, lease->step);
    for (uint32_t i = node_first(lease->node); i < end_of(work, lease->node); i++) {
        struct slot *slot = &work->slots[i];
        check(slot->holders > 0);
        slot->holders--;
        if (slot->holders > 0 || slot->done)
            continue;
        work->free_count++;
        work->lowest = i < work->lowest ? i : work->lowest;
    }
    leases_remove(&tickets->leases, lease);
}

/* The lease ends, having made so many slots done. */
static void lease_end(struct tickets *tickets, uint64_t now_ms, struct lease *lease,
                      uint32_t made_done)
{
    check(made_done <= lease->slots);
    uint64_t held_ms = now_ms - lease->granted_ms;
    uint64_t useful_ms = held_ms * made_done / lease->slots;
    uint64_t *rest_ms = lease->audit ? &tickets->audit_ms : &tickets->wasted_ms;
    work_of(tickets, lease->kind, lease->step)->useful_ms += useful_ms;
    tickets->useful_ms += useful_ms;
    *rest_ms += held_ms - useful_ms;
    lease_remove(tickets, lease);
}

static void learn(struct tickets *tickets, enum ticket_kind kind, uint64_t held_ms, uint32_t slots)
{
    double slot_ms = (double)held_ms / (double)slots;
    double *usual = usual_of(tickets, kind);
    /* A slot that took no time still gets a usual time. */
    slot_ms = slot_ms > 0 ? slot_ms : 0.01;
    *usual += *usual == 0 ? slot_ms : (slot_ms - *usual) / USUAL_SHARE;
}

/* An audit's second lease was faster: its ticket is what counts, and the first lease's is the
 * audit.
 */
static void change_roles(struct lease *faster)
{
    struct lease *twin = faster;
    do {
        twin = RING_ITEM(twin->twins.behind, struct lease, twins);
    } while (twin != faster && (twin->audit || twin->speculative));
    twin->audit = true;
    faster->audit = false;
}

/* Returns how many slots of the node were not done before. */
static uint32_t mark_done(struct work *work, struct node node)
{
    uint32_t newly_done = 0;
    for (uint32_t i = node_first(node); i < end_of(work, node); i++) {
        struct slot *slot = &work->slots[i];
        if (slot->done)
            continue;
        slot->done = true;
        newly_done++;
        work->done_count++;
        work->free_count -= slot->holders == 0 ? 1 : 0;
    }
    check(work->done_count + work->free_count <= work->count); /* 3 */
    return newly_done;
}

/* Who makes the slots done that are not. */
static void note_completed(const struct tickets *tickets, struct work *work,
                           const struct ticket *ticket)
{
    for (uint32_t i = node_first(ticket->node); i < end_of(work, ticket->node); i++) {
        struct slot *slot = &work->slots[i];
        if (slot->done)
            continue;
        slot->member = ticket->member;
        slot->attempt = ticket->attempt;
        slot->completed = tickets->leases.attempts;
    }
}

/* The lease that lapsed has brought its slots after all. Else they would lapse in each step, where
 * all take so long. */
static void learn_lapsed(struct tickets *tickets, uint64_t now_ms, enum ticket_kind kind,
                         struct slot *first)
{
    learn(tickets, kind, now_ms - first->lapsed.granted_ms, first->lapsed.slots);
    first->lapsed.attempt = 0;
}

uint32_t tickets_done(struct tickets *tickets, uint64_t now_ms, const struct ticket *ticket)
{
    if (ticket->kind == TICKET_TRAIN && !is_open(tickets, ticket->step))
        return 0;
    struct work *work = work_of(tickets, ticket->kind, ticket->step);
    note_completed(tickets, work, ticket);
    uint32_t newly_done = mark_done(work, ticket->node);
    struct lease *lease = leases_find(&tickets->leases, ticket->attempt);
    struct slot *first = &work->slots[node_first(ticket->node)];
    if (newly_done > 0) {
        tickets->done_ms = now_ms;
        tickets->refused = false;
        doubt_end(&tickets->doubt, ticket->member);
    }
    if (newly_done > 0 && ticket->attempt != 0 && first->lapsed.attempt == ticket->attempt)
        learn_lapsed(tickets, now_ms, ticket->kind, first);
    if (lease != NULL && lease->kind == ticket->kind && node_equal(lease->node, ticket->node) &&
        (lease->kind == TICKET_VALIDATE || lease->step == ticket->step)) {
        if (!lease->untimed)
            learn(tickets, lease->kind, now_ms - lease->granted_ms, lease->slots);
        if (lease->audit && newly_done > 0)
            change_roles(lease);
        lease_end(tickets, now_ms, lease, newly_done);
    }
    return newly_done;
}

/* Nobody else can have brought its slots: no other lease is on them, nor one that lapsed whose
 * worker computed on. */
static bool brought_alone(const struct tickets *tickets, const struct lease *lease)
{
    const struct slot *first = &train_of(tickets, lease->step)->slots[node_first(lease->node)];
    bool others = !ring_is_empty(&lease->twins);
    return !others && (tickets->settings.shared || first->lapsed.attempt == 0);
}

/* A lease that is the last of its step ends so, when the servers' reports are faster than the
 * worker's complete. */
static void settle_lease(struct tickets *tickets, uint64_t now_ms, struct lease *lease,
                         const struct tickets_credit *credit)
{
    uint32_t made_done = mark_done(work_of(tickets, lease->kind, lease->step), lease->node);
    if (made_done > 0 && credit != NULL)
        credit->give(credit->context, lease->member, made_done);
    if (made_done == 0)
        doubt_if_overdue(tickets, now_ms, lease);
    else if (!lease->untimed && brought_alone(tickets, lease))
        learn(tickets, lease->kind, now_ms - lease->granted_ms, lease->slots);
    lease_end(tickets, now_ms, lease, made_done);
}

/* Slots that nobody else has had since their lease lapsed: its pushes made them done. */
static void settle_lapsed(struct tickets *tickets, uint64_t now_ms, struct work *work)
{
    for (uint32_t i = 0; i < work->count; i++) {
        struct slot *slot = &work->slots[i];
        if (slot->lapsed.attempt != 0 && !slot->done && slot->holders == 0)
            learn_lapsed(tickets, now_ms, TICKET_TRAIN, slot);
    }
}

static void settle_leases(struct tickets *tickets, uint64_t now_ms, const struct work *work,
                          bool audits, const struct tickets_credit *credit)
{
    struct lease *lease = leases_youngest(&tickets->leases);
    while (lease != NULL) {
        struct lease *before = leases_before(&tickets->leases, lease);
        if (lease_work(tickets, lease) == work && lease->audit == audits)
            settle_lease(tickets, now_ms, lease, credit);
        lease = before;
    }
}

uint64_t tickets_settle(struct tickets *tickets, uint64_t now_ms, uint64_t last,
                        const struct tickets_credit *credit)
{
    for (uint64_t step = tickets->step; step <= last && is_open(tickets, step); step++) {
        struct work *work = train_of(tickets, step);
        settle_lapsed(tickets, now_ms, work);
        settle_leases(tickets, now_ms, work, false, credit);
        settle_leases(tickets, now_ms, work, true, credit);
    }
    return train_of(tickets, last)->useful_ms;
}

void tickets_renew(struct tickets *tickets, uint64_t now_ms, uint64_t attempt)
{
    struct lease *lease = leases_find(&tickets->leases, attempt);
    check(lease != NULL);
    leases_renew(&tickets->leases, lease, now_ms);
}

void tickets_untimed(struct tickets *tickets, uint64_t attempt)
{
    struct lease *lease = leases_find(&tickets->leases, attempt);
    if (lease != NULL)
        lease->untimed = true;
}

void tickets_drop(struct tickets *tickets, uint64_t now_ms, uint64_t attempt, uint64_t member)
{
    struct lease *lease = leases_find(&tickets->leases, attempt);
    if (lease != NULL && lease->member == member)
        lease_end(tickets, now_ms, lease, 0);
}

void tickets_refused(struct tickets *tickets, uint64_t now_ms, uint64_t attempt, uint64_t member)
{
    tickets->refused = true;
    tickets_drop(tickets, now_ms, attempt, member);
}

uint32_t tickets_drop_member(struct tickets *tickets, uint64_t now_ms, uint64_t member)
{
    uint32_t count = 0;
    struct lease *lease;
    while ((lease = leases_of(&tickets->leases, member)) != NULL) {
        lease_end(tickets, now_ms, lease, 0);
        count++;
    }
    doubt_end(&tickets->doubt, member);
    return count;
}

void tickets_drop_all(struct tickets *tickets, uint64_t now_ms)
{
    struct lease *lease;
    while ((lease = leases_youngest(&tickets->leases)) != NULL)
        lease_end(tickets, now_ms, lease, 0);
}

/* Who shares a lease computes no further when it lapses: the next one of these slots gets twice the
 * time, so that slots which take longer than ever before are done in the end. */
static uint64_t lapse_after_ms(const struct tickets *tickets, const struct lease *lease)
{
    uint64_t lease_ms = tickets->settings.lease_ms;
    double usual = usual_ms(tickets, lease);
    uint64_t after_ms = usual == 0 ? lease_ms * LAPSE_UNKNOWN : (uint64_t)usual * LAPSE_FACTOR;
    uint32_t lapses = lease_work(tickets, lease)->slots[node_first(lease->node)].lapses;
    return (after_ms > lease_ms ? after_ms : lease_ms) << (tickets->settings.shared ? lapses : 0);
}

static void count_lapse(struct tickets *tickets, const struct lease *lease)
{
    struct work *work = work_of(tickets, lease->kind, lease->step);
    uint32_t first = node_first(lease->node);
    for (uint32_t slot = first; slot < first + lease->slots; slot++)
        if (work->slots[slot].lapses < LAPSES_MAX)
            work->slots[slot].lapses++;
}

static void note_lapse(struct tickets *tickets, const struct lease *lease)
{
    struct slot *first =
        &work_of(tickets, lease->kind, lease->step)->slots[node_first(lease->node)];
    if (first->lapsed.attempt == 0)
        first->lapsed = (struct lapsed){lease->attempt, lease->granted_ms, lease->slots};
    count_lapse(tickets, lease);
}

static uint64_t lapses_ms(const struct tickets *tickets, const struct lease *lease)
{
    return lease->granted_ms + lapse_after_ms(tickets, lease);
}

bool tickets_over(const struct tickets *tickets, uint64_t now_ms, uint64_t attempt)
{
    const struct lease *lease = leases_find(&tickets->leases, attempt);
    return lease != NULL && lapses_ms(tickets, lease) <= now_ms;
}

void tickets_prolong(struct tickets *tickets, uint64_t now_ms, uint64_t attempt)
{
    count_lapse(tickets, leases_find(&tickets->leases, attempt));
    tickets_renew(tickets, now_ms, attempt);
}

static void lapse(struct tickets *tickets, uint64_t now_ms, struct lease *lease)
{
    doubt_if_overdue(tickets, now_ms, lease);
    note_lapse(tickets, lease);
    lease_end(tickets, now_ms, lease, 0);
}

/* Of a class, in the order of granting: they lapse in it, unless members share them. Then a lease
 * whose slots lapsed before has more time than those behind it. */
static uint32_t lapse_class(struct tickets *tickets, uint64_t now_ms, uint32_t lease_class,
                            uint64_t *due_ms)
{
    uint32_t count = 0;
    struct lease *next, *lease = leases_oldest(&tickets->leases, lease_class);
    for (; lease != NULL; lease = next) {
        uint64_t end_ms = lapses_ms(tickets, lease);
        next = leases_next(&tickets->leases, lease);
        if (end_ms <= now_ms) {
            lapse(tickets, now_ms, lease);
            count++;
            continue;
        }
        *due_ms = end_ms < *due_ms ? end_ms : *due_ms;
        if (!tickets->settings.shared)
            break;
    }
    return count;
}

uint32_t tickets_lapse(struct tickets *tickets, uint64_t now_ms, uint64_t *ret_due_ms)
{
    uint32_t count = 0;
    *ret_due_ms = UINT64_MAX;
    for (uint32_t i = 0; i < LEASE_CLASSES; i++)
        count += lapse_class(tickets, now_ms, i, ret_due_ms);
    return count;
}

uint32_t tickets_behind(const struct tickets *tickets, uint8_t *ret_behind)
{
    const struct work *work = train_of(tickets, tickets->step);
    const struct lease lease = {.kind = TICKET_TRAIN, .step = tickets->step};
    uint32_t most = 0;
    for (uint32_t i = 0; i < work->count; i++) {
        ret_behind[i] = (uint8_t)(tickets->step - version_of(tickets, &lease, i));
        most = ret_behind[i] > most ? ret_behind[i] : most;
    }
    return most;
}

bool tickets_some_done(const struct tickets *tickets)
{
    return train_of(tickets, tickets->step)->done_count > 0;
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
        const struct slot *slot = &work->slots[i];
        bool is_free = !slot->done && slot->holders == 0;
        check(slot->holders == slot->found);      /* 1 */
        check(!is_free || i >= work->lowest);     /* 3 */
        check(slot->holders == 0 || slot->given); /* 2 */
        free_count += is_free ? 1 : 0;
        done_count += slot->done ? 1 : 0;
    }
    check(work->free_count == free_count);
    check(work->done_count == done_count);
    check(work->count <= work->count_max);
}

static void find_nothing(struct work *work)
{
    for (uint32_t i = 0; i < work->count; i++)
        work->slots[i].found = 0;
}

/* Notes how many leases cover each slot. */
static void find_leases(struct tickets *tickets)
{
    for (uint32_t i = 0; i < tickets->settings.open_steps; i++)
        find_nothing(&tickets->train[i]);
    find_nothing(&tickets->validate);
    for (const struct lease *lease = leases_youngest(&tickets->leases); lease != NULL;
         lease = leases_before(&tickets->leases, lease)) {
        check(lease->kind != TICKET_TRAIN || is_open(tickets, lease->step));
        struct work *work =
            lease->kind == TICKET_TRAIN ? train_of(tickets, lease->step) : &tickets->validate;
        check(lease->slots == node_slots(lease->node, work->count));
        check(!ring_is_empty(&lease->out) || is_done(tickets, lease));
        for (uint32_t i = node_first(lease->node); i < end_of(work, lease->node); i++) {
            work->slots[i].found++;
            check(work->slots[i].version == lease->version); /* 2 */
        }
    }
}

void tickets_check(struct tickets *tickets)
{
    uint32_t open = 0;
    leases_check(&tickets->leases);
    find_leases(tickets);
    for (uint32_t i = 0; i < tickets->settings.open_steps; i++) {
        work_check(&tickets->train[i]);
        open += tickets->train[i].count > 0 ? 1 : 0;
    }
    check(open == tickets->steps);
    work_check(&tickets->validate);
}
