/* Who is there. */
#include "server/coordinator/members.h"

#include "server/member/proof.h"

#include <stdlib.h>
#include <string.h>

const char *member_state_name(enum member_state state)
{
#define MEMBER_STATE_TEXT(name, text) text,
    static const char *const names[] = {MEMBER_STATE_TABLE(MEMBER_STATE_TEXT)};
#undef MEMBER_STATE_TEXT
    check(state < MEMBER_STATE_COUNT);
    return names[state];
}

enum err members_init(struct members *members, uint64_t term)
{
    *members = (struct members){.term = term};
    members->list = calloc(MEMBERS_MAX, sizeof *members->list);
    members->past = calloc(MEMBERS_PAST_MAX, sizeof *members->past);
    if (members->list == NULL || members->past == NULL) {
        members_release(members);
        return ERR_NOMEM;
    }
    return ERR_OK;
}

void members_raise_term(struct members *members, uint64_t term)
{
    members->term = term;
}

void members_release(struct members *members)
{
    free(members->list);
    free(members->past);
    *members = (struct members){0};
}

/* The first eight hexadecimal digits say enough in a sentence. */
struct short_hex {
    char text[9];
};

static struct short_hex short_hex(const uint8_t *bytes)
{
    struct short_hex hex;
    snprintf(hex.text, sizeof hex.text, "%02x%02x%02x%02x", bytes[0], bytes[1], bytes[2], bytes[3]);
    return hex;
}

static bool is_zero(const uint8_t bytes[static WIRE_DIGEST_BYTES])
{
    static const uint8_t zeros[WIRE_DIGEST_BYTES];
    return memcmp(bytes, zeros, sizeof zeros) == 0;
}

enum err members_judge(const struct members_demands *demands, const struct join_request *request,
                       struct reason *reason)
{
    if (request->wire_version < WIRE_VERSION_MIN || request->wire_version > WIRE_VERSION)
        return reason_set(reason, ERR_WIRE_VERSION,
                          "worker %s speaks wire version %u, the coordinator %u to %u",
                          request->name, request->wire_version, (unsigned)WIRE_VERSION_MIN,
                          (unsigned)WIRE_VERSION);
    if (demands->fingerprint != NULL &&
        memcmp(demands->fingerprint, request->fingerprint, WIRE_DIGEST_BYTES) != 0)
        return reason_set(reason, ERR_FINGERPRINT,
                          "worker %s has the numerics fingerprint %s, the run %s: it would compute "
                          "other bits (`numerics: any` allows it)",
                          request->name, short_hex(request->fingerprint).text,
                          short_hex(demands->fingerprint).text);
    if (demands->data_served && is_zero(request->data_digest))
        return ERR_OK;
    if (memcmp(demands->data_digest, request->data_digest, WIRE_DIGEST_BYTES) != 0)
        return reason_set(reason, ERR_DATA_SET,
                          "worker %s has the data set %s, the run %s: the files differ",
                          request->name, short_hex(request->data_digest).text,
                          short_hex(demands->data_digest).text);
    return ERR_OK;
}

static void take_out(struct members *members, struct member *member)
{
    members_unpark(members, member);
    size_t behind = (size_t)(&members->list[members->count] - member) - 1;
    memmove(member, member + 1, behind * sizeof *member);
    members->count--;
}

enum err members_add(struct members *members, uint64_t now_ms, const struct join_request *request,
                     struct member **ret_member)
{
    struct member *before = members_find(members, request->previous_member);
    if ((members->count == MEMBERS_MAX && before == NULL) || members->serial == UINT32_MAX)
        return ERR_BUSY;
    struct member member = {
        .id = proof_member_number(members->term, ++members->serial),
        .joined_ms = now_ms,
        .seen_ms = now_ms,
    };
    memcpy(member.name, request->name, sizeof member.name);
    memcpy(member.device, request->device, sizeof member.device);
    if (before != NULL) {
        member.joined_ms = before->joined_ms;
        member.slots_done = before->slots_done;
        member.wrong_bits = before->wrong_bits;
        memcpy(member.contradicted_by, before->contradicted_by, sizeof member.contradicted_by);
        memcpy(member.reason, before->reason, sizeof member.reason);
        take_out(members, before);
    } else {
        members->joined_count++;
    }
    members->list[members->count] = member;
    *ret_member = &members->list[members->count++];
    return ERR_OK;
}

uint64_t members_present_ms(const struct members *members)
{
    uint64_t present_ms = members->gone_ms;
    for (uint32_t i = 0; i < members->count; i++)
        present_ms += members->list[i].seen_ms - members->list[i].joined_ms;
    return present_ms;
}

struct member *members_find(struct members *members, uint64_t id)
{
    uint32_t low = 0, high = members->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (members->list[middle].id == id)
            return &members->list[middle];
        if (members->list[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

struct member *members_prove(struct members *members, uint64_t id, const struct proof *secret)
{
    struct member *member = members_find(members, id);
    return member != NULL && proof_same(&member->secret, secret) ? member : NULL;
}

static const struct member *find_past(const struct members *members, uint64_t id)
{
    for (uint32_t i = 0; id != 0 && i < members->past_count; i++)
        if (members->past[i].id == id)
            return &members->past[i];
    return NULL;
}

enum member_state members_end(const struct members *members, uint64_t id)
{
    const struct member *past = find_past(members, id);
    return past != NULL ? past->state : MEMBER_JOINED;
}

const char *members_name(struct members *members, uint64_t id)
{
    const struct member *member = members_find(members, id);
    if (member == NULL)
        member = find_past(members, id);
    return member != NULL ? member->name : NULL;
}

static void remember(struct members *members, const struct member *member, enum member_state state,
                     const char *reason)
{
    struct member *past = &members->past[members->past_next];
    members->past_next = (members->past_next + 1) % MEMBERS_PAST_MAX;
    if (members->past_count < MEMBERS_PAST_MAX)
        members->past_count++;
    *past = *member;
    past->state = state;
    past->parked = false;
    snprintf(past->reason, sizeof past->reason, "%s", reason);
}

void members_remove(struct members *members, struct member *member, enum member_state state,
                    const char *reason)
{
    check(state != MEMBER_JOINED);
    remember(members, member, state, reason);
    if (state != MEMBER_LEFT && state != MEMBER_PREEMPTED)
        members->lost_count++;
    members->gone_ms += member->seen_ms - member->joined_ms;
    take_out(members, member);
}

void members_dismiss(struct members *members, const char *reason)
{
    while (members->count > 0)
        members_remove(members, &members->list[members->count - 1], MEMBER_LEFT, reason);
}

void members_refused(struct members *members, uint64_t now_ms, const struct join_request *request,
                     const char *reason)
{
    struct member member = {.joined_ms = now_ms, .seen_ms = now_ms};
    memcpy(member.name, request->name, sizeof member.name);
    memcpy(member.device, request->device, sizeof member.device);
    remember(members, &member, MEMBER_REFUSED, reason);
}

void members_park(struct members *members, struct member *member, uint64_t until_ms)
{
    if (!member->parked)
        members->parked_count++;
    member->parked = true;
    member->parked_until_ms = until_ms;
    member->parked_order = ++members->parked_orders;
}

void members_unpark(struct members *members, struct member *member)
{
    if (!member->parked)
        return;
    member->parked = false;
    members->parked_count--;
}

struct member *members_next_parked(struct members *members, uint64_t order)
{
    struct member *next = NULL;
    if (members->parked_count == 0)
        return NULL;
    for (uint32_t i = 0; i < members->count; i++) {
        struct member *member = &members->list[i];
        if (member->parked && member->parked_order >= order &&
            (next == NULL || member->parked_order < next->parked_order))
            next = member;
    }
    return next;
}

const struct member *members_at(const struct members *members, uint32_t i)
{
    if (i < members->count)
        return &members->list[i];
    i -= members->count;
    if (i >= members->past_count)
        return NULL;
    return &members->past[(members->past_next + MEMBERS_PAST_MAX - 1 - i) % MEMBERS_PAST_MAX];
}
