/* What counts against workers. */
#include "server/coordinator/suspects.h"

#include <string.h>

static bool has_one_name(const struct opinion *a, const struct opinion *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->host, b->host) == 0;
}

bool suspects_shared(const struct members *members, uint64_t certificate)
{
    for (uint32_t i = 0; i < members->shared_count; i++)
        if (members->shared[i] == certificate)
            return true;
    return false;
}

/* Whether nobody else has it. */
static bool is_alone(const struct members *members, uint64_t certificate)
{
    return certificate != 0 && !suspects_shared(members, certificate);
}

/* Whether two memberships, over or not, are one worker's. */
static bool is_one_worker(const struct members *members, const struct member *a,
                          const struct member *b)
{
    return a->own.certificate == b->own.certificate &&
           (has_one_name(&a->own, &b->own) || is_alone(members, a->own.certificate));
}

/* Whether something does. */
static bool counts_against(const struct member *member)
{
    return member->suspected.name[0] != 0;
}

/* ---- who has it ---- */

static uint64_t higher(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What counts against `from` counts against the member as well. */
static void inherit(struct member *member, const struct member *from)
{
    if (member->contradicted_by.name[0] == 0) {
        member->contradicted_by = from->contradicted_by;
        member->watched = from->watched;
        memcpy(member->reason, from->reason, sizeof member->reason);
    }
    member->wrong_bits = higher(member->wrong_bits, from->wrong_bits);
    member->false_completes = (uint32_t)higher(member->false_completes, from->false_completes);
    if (!counts_against(member))
        member->suspected = from->suspected;
}

/* The opinion does not count any more. */
static void clear(struct member *member)
{
    member->contradicted_by = (struct opinion){0};
    member->reason[0] = 0;
    member->wrong_bits = 0;
    member->watched = 0;
    if (member->false_completes == 0)
        member->suspected = (struct opinion){0};
}

/* It has what counts against another worker. */
static void acquit(struct member *member)
{
    member->false_completes = 0;
    clear(member);
}

static void note_shared(struct members *members, uint64_t certificate)
{
    members->shared[members->shared_next] = certificate;
    members->shared_next = (members->shared_next + 1) % MEMBERS_SHARED_MAX;
    if (members->shared_count < MEMBERS_SHARED_MAX)
        members->shared_count++;
}

/* The member may be the second worker with its certificate. Then those who came after a suspect with
 * the certificate, under other names, were perhaps not that one. */
static void look_for_another(struct members *members, const struct member *member)
{
    uint64_t certificate = member->own.certificate;
    for (uint32_t i = 0; i < members->count && is_alone(members, certificate); i++) {
        const struct opinion *other = &members->list[i]->own;
        if (other->certificate == certificate && !has_one_name(other, &member->own))
            note_shared(members, certificate);
    }
    for (uint32_t i = 0; i < members->count && !is_alone(members, certificate); i++) {
        struct member *other = members->list[i];
        if (other->own.certificate == certificate && counts_against(other) &&
            !has_one_name(&other->suspected, &other->own))
            acquit(other);
    }
}

void suspects_joined(struct members *members, struct member *member)
{
    look_for_another(members, member);
    for (uint32_t i = 0; i < members->suspect_count; i++)
        if (is_one_worker(members, &members->suspects[i], member))
            inherit(member, &members->suspects[i]);
    for (uint32_t i = 0; i < members->count; i++) {
        const struct member *other = members->list[i];
        if (other != member && counts_against(other) && is_one_worker(members, other, member))
            inherit(member, other);
    }
}

void suspects_note(struct members *members, struct member *member)
{
    if (!counts_against(member))
        member->suspected = member->own;
    for (uint32_t i = 0; i < members->count; i++) {
        struct member *other = members->list[i];
        if (other != member && is_one_worker(members, other, member))
            inherit(other, member);
    }
}

/* ---- who is gone ---- */

static void forget(struct members *members, const struct member *suspect)
{
    uint32_t place = (uint32_t)(suspect - members->suspects);
    check(place < members->suspect_count);
    members->suspect_count--;
    memmove(&members->suspects[place], &members->suspects[place + 1],
            (members->suspect_count - place) * sizeof *members->suspects);
}

/* The oldest is first. */
static const struct member *oldest_with(const struct members *members, uint64_t certificate)
{
    for (uint32_t i = 0; i < members->suspect_count; i++)
        if (members->suspects[i].own.certificate == certificate)
            return &members->suspects[i];
    return &members->suspects[0];
}

/* What is known of the worker goes into the newer entry. The suspect stays who it was: what an audit
 * of it says under another name, it says of that name alone. */
static void merge(struct member *entry, const struct member *known)
{
    if (!has_one_name(&entry->own, &entry->suspected))
        entry->confirmed = 0;
    entry->confirmed = higher(entry->confirmed, known->confirmed);
    brought_merge(&entry->brought, &known->brought);
}

void suspects_ended(struct members *members, const struct member *member, enum member_state state)
{
    bool convicted = state == MEMBER_WRONG_BITS || state == MEMBER_FALSE_COMPLETE;
    struct member entry = *member;
    for (uint32_t i = members->suspect_count; i-- > 0;) {
        if (!is_one_worker(members, &members->suspects[i], member))
            continue;
        merge(&entry, &members->suspects[i]);
        forget(members, &members->suspects[i]);
    }
    if (convicted || !counts_against(member))
        return;
    if (members->suspect_count == MEMBERS_SUSPECTS_MAX)
        forget(members, oldest_with(members, member->own.certificate));
    entry.own = member->suspected;
    members->suspects[members->suspect_count++] = entry;
}

/* ---- where it was killed ---- */

/* A bit for the stage that it has a seat of. */
static uint64_t stage_of(const struct member *member, uint32_t ranks)
{
    return UINT64_C(1) << member->seat / ranks;
}

bool suspects_killed_before(const struct members *members, const struct member *member,
                            uint32_t ranks)
{
    for (uint32_t i = 0; i < members->past_count; i++) {
        const struct member *past = &members->past[i];
        if (past->killed && past->seen_ms <= member->joined_ms &&
            stage_of(past, ranks) == stage_of(member, ranks) &&
            is_one_worker(members, past, member))
            return true;
    }
    return false;
}

void suspects_note_small(struct members *members, struct member *member, uint32_t ranks)
{
    check(member->small == 0);
    for (uint32_t i = 0; i < members->past_count; i++) {
        const struct member *past = &members->past[i];
        if (past->killed && past->state == MEMBER_KILLED_TWICE &&
            is_one_worker(members, past, member))
            member->small |= stage_of(past, ranks);
    }
    members->small_count += member->small != 0 ? 1 : 0;
}

/* ---- whose opinion counts no more ---- */

static bool is_of(const struct members *members, const struct opinion *opinion,
                  const struct member *guilty)
{
    return opinion->name[0] != 0 && opinion->certificate == guilty->own.certificate &&
           (strcmp(opinion->name, guilty->own.name) == 0 ||
            is_alone(members, opinion->certificate));
}

void suspects_clear(struct members *members, const struct member *guilty)
{
    for (uint32_t i = 0; i < members->count; i++)
        if (is_of(members, &members->list[i]->contradicted_by, guilty))
            clear(members->list[i]);
    for (uint32_t i = members->suspect_count; i-- > 0;) {
        if (is_of(members, &members->suspects[i].contradicted_by, guilty))
            clear(&members->suspects[i]);
        if (!counts_against(&members->suspects[i]))
            forget(members, &members->suspects[i]);
    }
}

/* ---- what it brought ---- */

static void gather(struct suspects_brought *all, const struct member *one)
{
    all->confirmed = higher(all->confirmed, one->confirmed);
    brought_merge(&all->brought, &one->brought);
}

struct suspects_brought suspects_brought(const struct members *members, const struct member *member)
{
    struct suspects_brought all = {0};
    const struct member *one;
    for (uint32_t i = 0; (one = members_at(members, i)) != NULL; i++)
        if (is_one_worker(members, one, member))
            gather(&all, one);
    for (uint32_t i = 0; i < members->suspect_count; i++)
        if (is_one_worker(members, &members->suspects[i], member))
            gather(&all, &members->suspects[i]);
    return all;
}
