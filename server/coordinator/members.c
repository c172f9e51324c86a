/* The list of members, and a ring of former ones. */
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

enum err members_init(struct members *members, uint64_t term, uint32_t lease_ms)
{
    *members = (struct members){.term = term, .lease_ms = lease_ms};
    ring_init(&members->line);
    members->list = calloc(MEMBERS_MAX, sizeof *members->list);
    members->due = calloc(MEMBERS_MAX, sizeof *members->due);
    members->past = calloc(MEMBERS_PAST_MAX, sizeof *members->past);
    members->refused = calloc(MEMBERS_REFUSED_MAX, sizeof *members->refused);
    members->suspects = calloc(MEMBERS_SUSPECTS_MAX, sizeof *members->suspects);
    if (members->list == NULL || members->due == NULL || members->past == NULL ||
        members->refused == NULL || members->suspects == NULL) {
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
    for (uint32_t i = 0; i < members->count; i++)
        free(members->list[i]);
    free(members->list);
    free(members->due);
    free(members->past);
    free(members->refused);
    free(members->suspects);
    *members = (struct members){0};
}

/* The first eight hexadecimal digits are enough in a sentence. */
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
    if (request->name[0] == 0) /* what counts against a worker is kept with its name (suspects.h) */
        return reason_set(reason, ERR_INVALID, "a worker must have a name");
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

/* ---- when something is due ---- */

static void put_due(struct members *members, uint32_t place, struct member *member)
{
    members->due[place] = member;
    member->due_place = place;
}

/* To where its parent is due no later. */
static void move_up(struct members *members, struct member *member)
{
    uint32_t place = member->due_place;
    while (place > 0 && members->due[(place - 1) / 2]->due_ms > member->due_ms) {
        put_due(members, place, members->due[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put_due(members, place, member);
}

/* To where its children are due no earlier. */
static void move_down(struct members *members, struct member *member, uint32_t count)
{
    uint32_t place = member->due_place;
    for (uint32_t child; (child = 2 * place + 1) < count; place = child) {
        if (child + 1 < count && members->due[child + 1]->due_ms < members->due[child]->due_ms)
            child++;
        if (members->due[child]->due_ms >= member->due_ms)
            break;
        put_due(members, place, members->due[child]);
    }
    put_due(members, place, member);
}

/* The last of the heap takes its place. */
static void take_due(struct members *members, const struct member *member)
{
    struct member *last = members->due[members->count - 1];
    if (last == member)
        return;
    put_due(members, member->due_place, last);
    move_up(members, last);
    move_down(members, last, members->count - 1);
}

uint64_t members_lapse_ms(const struct members *members, const struct member *member)
{
    uint64_t lapse_ms = member->seen_ms + members->lease_ms;
    return lapse_ms > members->spared_until_ms ? lapse_ms : members->spared_until_ms;
}

static uint64_t due_of(const struct members *members, const struct member *member)
{
    uint64_t lapse_ms = members_lapse_ms(members, member);
    return member->parked && member->parked_until_ms < lapse_ms ? member->parked_until_ms
                                                                : lapse_ms;
}

struct member *members_find_due(struct members *members, uint64_t now_ms)
{
    while (members->count > 0 && members->due[0]->due_ms <= now_ms) {
        struct member *member = members->due[0];
        member->due_ms = due_of(members, member); /* a heartbeat or an answer came meanwhile */
        if (member->due_ms <= now_ms)
            return member;
        move_down(members, member, members->count);
    }
    return NULL;
}

uint64_t members_due_ms(const struct members *members)
{
    return members->count > 0 ? members->due[0]->due_ms : UINT64_MAX;
}

/* ---- who is there ---- */

/* The place of the first in the list whose id is not below; count: there is none. */
static uint32_t place_of(const struct members *members, uint64_t id)
{
    uint32_t low = 0, high = members->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (members->list[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void take_out(struct members *members, struct member *take_member)
{
    uint32_t place = place_of(members, take_member->id);
    members_unpark(members, take_member);
    take_due(members, take_member);
    members->count--;
    members->devices -= take_member->devices;
    members->small_count -= take_member->small != 0 ? 1 : 0;
    memmove(&members->list[place], &members->list[place + 1],
            (members->count - place) * sizeof *members->list);
    free(take_member);
}

static void put_in(struct members *members, struct member *take_member)
{
    uint32_t place = members->count++;
    members->devices += take_member->devices;
    members->list[place] = take_member;
    take_member->due_ms = due_of(members, take_member);
    put_due(members, place, take_member);
    move_up(members, take_member);
}

/* Without the membership that ends. */
static uint32_t with_certificate(const struct members *members, const struct join_request *request)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < members->count; i++)
        count += members->list[i]->own.certificate == request->certificate &&
                 members->list[i]->id != request->previous_member;
    return count;
}

enum err members_add(struct members *members, uint64_t now_ms, const struct join_request *request,
                     struct member **ret_member)
{
    struct member *before = members_find(members, request->previous_member);
    if ((members->count == MEMBERS_MAX && before == NULL) || members->serial == UINT32_MAX)
        return ERR_BUSY;
    if (members->certificate_max != 0 && request->certificate != 0 &&
        with_certificate(members, request) >= members->certificate_max)
        return ERR_BUSY;
    struct member *member = malloc(sizeof *member);
    if (member == NULL)
        return ERR_NOMEM;
    *member = (struct member){
        .own = {.certificate = request->certificate},
        .id = proof_member_number(members->term, ++members->serial),
        .joined_ms = now_ms,
        .seen_ms = now_ms,
        .seat = UINT32_MAX,
        .devices =
            request->devices > 0 ? request->devices : 1, /* 0: a worker that has no word for it */
    };
    memcpy(member->own.name, request->name, sizeof member->own.name);
    memcpy(member->own.host, request->host, sizeof member->own.host);
    memcpy(member->device, request->device, sizeof member->device);
    memcpy(member->address, request->address, sizeof member->address);
    memcpy(member->shown, request->shown, sizeof member->shown);
    if (before != NULL) {
        member->joined_ms = before->joined_ms;
        member->slots_done = before->slots_done;
        member->wrong_bits = before->wrong_bits;
        member->watched = before->watched;
        member->confirmed = before->confirmed;
        member->false_completes = before->false_completes;
        member->brought = before->brought;
        member->contradicted_by = before->contradicted_by;
        memcpy(member->reason, before->reason, sizeof member->reason);
        if (before->suspected.name[0] != 0)
            member->suspected = member->own; /* it proved that it is the same */
        take_out(members, before);
    } else {
        members->joined_count++;
    }
    put_in(members, member);
    *ret_member = member;
    return ERR_OK;
}

uint64_t members_present_ms(const struct members *members)
{
    uint64_t present_ms = members->gone_ms;
    for (uint32_t i = 0; i < members->count; i++)
        present_ms += members->list[i]->seen_ms - members->list[i]->joined_ms;
    return present_ms;
}

struct member *members_find(const struct members *members, uint64_t id)
{
    uint32_t place = place_of(members, id);
    bool there = place < members->count && members->list[place]->id == id;
    return there ? members->list[place] : NULL;
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

const struct member *members_known(struct members *members, uint64_t id)
{
    const struct member *member = members_find(members, id);
    return member != NULL ? member : find_past(members, id);
}

const char *members_name(struct members *members, uint64_t id)
{
    const struct member *member = members_known(members, id);
    return member != NULL ? member->own.name : NULL;
}

static bool is_another(const struct member *member, uint64_t certificate)
{
    return member->own.certificate != 0 && member->own.certificate != certificate;
}

/* Whether a present or former member had another certificate than this one. */
static bool have_another(const struct members *members, uint64_t certificate)
{
    const struct member *member;
    for (uint32_t i = 0; (member = members_at(members, i)) != NULL; i++)
        if (is_another(member, certificate))
            return true;
    return false;
}

/* `several`: there are members of another certificate than that of `a`. */
static bool is_one_opinion(bool several, const struct opinion *a, const struct opinion *b)
{
    if (a->certificate != b->certificate && a->certificate != 0 && b->certificate != 0)
        return false;
    bool by_certificate = several && a->certificate != 0 && a->certificate == b->certificate;
    return by_certificate || strcmp(a->name, b->name) == 0;
}

bool members_one_opinion(const struct members *members, const struct opinion *a,
                         const struct opinion *b)
{
    bool several = a->certificate != 0 && a->certificate == b->certificate &&
                   have_another(members, a->certificate);
    return is_one_opinion(several, a, b);
}

bool members_two_opinions_beside(const struct members *members, const struct member *member)
{
    const struct opinion *first = NULL;
    bool several = false;
    for (uint32_t i = 0; i < members->count; i++) {
        const struct opinion *other = &members->list[i]->own;
        if (strcmp(other->name, member->own.name) == 0)
            continue;
        if (first != NULL && !is_one_opinion(several, first, other))
            return true;
        if (first == NULL)
            several = have_another(members, other->certificate);
        first = first == NULL ? other : first;
    }
    return false;
}

void members_forget_killed(struct members *members)
{
    for (uint32_t i = 0; i < members->past_count; i++)
        members->past[i].killed = false;
    for (uint32_t i = 0; i < members->count; i++)
        members->list[i]->small = 0;
    members->small_count = 0;
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
    past->kept_bytes = 0;
    snprintf(past->reason, sizeof past->reason, "%s", reason);
}

void members_remove(struct members *members, struct member *member, enum member_state state,
                    const char *reason)
{
    check(state != MEMBER_JOINED);
    check(member->state == MEMBER_JOINED);
    remember(members, member, state, reason);
    if (state != MEMBER_LEFT && state != MEMBER_PREEMPTED)
        members->lost_count++;
    members->gone_ms += member->seen_ms - member->joined_ms;
    take_out(members, member);
}

/* Of what it brought the steps below that version alone are in the weights, and confirmed. */
static void rewind_member(struct member *member, uint64_t version)
{
    brought_rewound(&member->brought, version);
    if (member->confirmed > version)
        member->confirmed = version;
}

void members_rewound(struct members *members, uint64_t version)
{
    for (uint32_t i = 0; i < members->count; i++)
        rewind_member(members->list[i], version);
    for (uint32_t i = 0; i < members->past_count; i++)
        rewind_member(&members->past[i], version);
    for (uint32_t i = 0; i < members->suspect_count; i++)
        rewind_member(&members->suspects[i], version);
}

void members_dismiss(struct members *members, const char *reason)
{
    while (members->count > 0)
        members_remove(members, members->list[members->count - 1], MEMBER_LEFT, reason);
    members->suspect_count = 0;
    members_rewound(members, 0); /* nothing was brought to the run that begins */
}

void members_refused(struct members *members, uint64_t now_ms, const struct join_request *request,
                     const char *reason)
{
    struct member *refused = &members->refused[members->refused_next];
    members->refused_next = (members->refused_next + 1) % MEMBERS_REFUSED_MAX;
    if (members->refused_count < MEMBERS_REFUSED_MAX)
        members->refused_count++;
    *refused = (struct member){.joined_ms = now_ms, .seen_ms = now_ms, .state = MEMBER_REFUSED};
    memcpy(refused->own.name, request->name, sizeof refused->own.name);
    memcpy(refused->device, request->device, sizeof refused->device);
    snprintf(refused->reason, sizeof refused->reason, "%s", reason);
}

/* Behind all others, also when it was parked. */
void members_park(struct members *members, struct member *member, uint64_t until_ms)
{
    members_unpark(members, member);
    members->parked_count++;
    member->parked = true;
    member->parked_until_ms = until_ms;
    ring_add(&members->line, &member->line);
    if (until_ms < member->due_ms) {
        member->due_ms = until_ms;
        move_up(members, member);
    }
}

void members_unpark(struct members *members, struct member *member)
{
    if (!member->parked)
        return;
    check(members->parked_count > 0);
    member->parked = false;
    ring_take(&member->line);
    members->parked_count--;
}

static struct member *parked_at(const struct members *members, const struct ring *link)
{
    return link == &members->line ? NULL : RING_ITEM(link, struct member, line);
}

struct member *members_first_parked(const struct members *members)
{
    return parked_at(members, members->line.behind);
}

struct member *members_next_parked(const struct members *members, const struct member *member)
{
    return parked_at(members, member->line.behind);
}

const struct member *members_at(const struct members *members, uint32_t i)
{
    if (i < members->count)
        return members->list[i];
    i -= members->count;
    if (i < members->past_count)
        return &members->past[(members->past_next + MEMBERS_PAST_MAX - 1 - i) % MEMBERS_PAST_MAX];
    i -= members->past_count;
    if (i >= members->refused_count)
        return NULL;
    return &members->refused[(members->refused_next + MEMBERS_REFUSED_MAX - 1 - i) %
                             MEMBERS_REFUSED_MAX];
}
