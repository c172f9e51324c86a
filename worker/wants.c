#include "worker/wants.h"

#include "worker/agent_backoff.h"

#include <stdlib.h>
#include <string.h>

/* A member that has a place of the lease, and the stream to it. */
struct link {
    struct peer peer;
    uint64_t number;     /* of the stream; 0: none */
    uint32_t unanswered; /* wants on it */
    unsigned failures;   /* to open it, in a row */
    uint64_t retry_ms;   /* not before then */
    uint64_t heard_ms;   /* its newest answer, or when the place began to wait for one */
    uint64_t part_ms;    /* the newest part of a value */
    uint64_t named_ms;   /* when it was named as unreachable; 0: not since it was heard */
};

struct wanted {
    uint64_t id; /* 0: the row is free */
    struct value_name name;
    bool sized; /* the next one is known */
    size_t bytes;
    uint64_t stream;   /* it was asked there; 0: it is to be asked */
    uint64_t asked_ms; /* when that was, the last time */
    uint64_t retry_ms; /* not to be asked before then */
    bool asking;       /* without an answer: holds a credit */
    bool dropped;      /* nobody wants it any more, but it is asking */
    unsigned refusals; /* in a row */
    unsigned wrong;    /* values that were not it */
    enum err refusal;  /* the last one */
    enum err failed;   /* OK: not yet */
    void *value;       /* NULL: it is not there */
    struct wants_value as_sent;
};

struct wants {
    struct wants_options options;
    struct rand_state jitter;
    uint64_t streams; /* so many were opened */
    uint64_t ids;
    struct ticket ticket; /* attempt 0: no lease */
    struct place place;   /* the own one */
    uint64_t number;      /* of the newest places */
    uint32_t link_count;
    uint32_t ahead; /* links that were looked at: streams that will be needed */
    struct link links[WIRE_PLACES_MAX];
    struct wanted *awaited; /* the place waits for it; NULL: for nothing */
    struct wanted list[WANTS_MAX];
};

/* ---- finding ---- */

/* Its value is not there, and may come. */
static bool is_open(const struct wanted *wanted)
{
    return wanted->id != 0 && !wanted->dropped && wanted->value == NULL && wanted->failed == ERR_OK;
}

static struct link *link_of_stream(struct wants *wants, uint64_t number)
{
    for (uint32_t i = 0; number != 0 && i < wants->link_count; i++)
        if (wants->links[i].number == number)
            return &wants->links[i];
    return NULL;
}

/* Who gives the value to this place: of a place before or behind the member of the own rank; a
 * partial sum, another member of the own place (S6). False: nobody does. */
static bool find_giver(const struct wants *wants, const struct value_name *name,
                       struct place *ret_giver)
{
    const struct place *own = &wants->place;
    struct passage passage;
    if (wants->ticket.attempt == 0)
        return false;
    if (boundaries_is_sum(name)) {
        *ret_giver = (struct place){.stage = own->stage, .rank = name->rank};
        return boundaries_cover(wants->options.boundaries, &wants->ticket, name) &&
               name->try_number == own->try_number && name->rank != own->rank;
    }
    if (!boundaries_pass(wants->options.boundaries, &wants->ticket, name, &passage) ||
        passage.to != own->stage || name->rank != own->rank)
        return false;
    *ret_giver = (struct place){.stage = passage.from, .rank = own->rank};
    return true;
}

/* Of whom the value is asked, if it is not there. UINT32_MAX: of nobody now. */
static uint32_t link_index(const struct wants *wants, const struct wanted *wanted)
{
    struct place giver;
    bool passes = is_open(wanted) && find_giver(wants, &wanted->name, &giver);
    for (uint32_t i = 0; passes && i < wants->link_count; i++)
        if (wants->links[i].peer.stage == giver.stage && wants->links[i].peer.rank == giver.rank)
            return i;
    return UINT32_MAX;
}

static struct link *link_of(struct wants *wants, const struct wanted *wanted)
{
    uint32_t i = wanted != NULL ? link_index(wants, wanted) : UINT32_MAX;
    return i != UINT32_MAX ? &wants->links[i] : NULL;
}

static struct wanted *wanted_of(struct wants *wants, const struct value_name *name)
{
    for (uint32_t i = 0; i < WANTS_MAX; i++) {
        struct wanted *wanted = &wants->list[i];
        if (wanted->id != 0 && !wanted->dropped && boundaries_same(&wanted->name, name))
            return wanted;
    }
    return NULL;
}

/* The want that an answer is about; NULL: none that was asked there. */
static struct wanted *wanted_there(struct wants *wants, uint64_t number, uint64_t id)
{
    for (uint32_t i = 0; id != 0 && i < WANTS_MAX; i++)
        if (wants->list[i].id == id && wants->list[i].stream == number)
            return &wants->list[i];
    return NULL;
}

/* ---- life ---- */

enum err wants_new(const struct wants_options *options, struct wants **ret_wants)
{
    struct wants *wants = calloc(1, sizeof *wants);
    if (wants == NULL)
        return ERR_NOMEM;
    check(options->answer_ms > 0);
    wants->options = *options;
    wants->jitter = (struct rand_state){options->seed};
    *ret_wants = wants;
    return ERR_OK;
}

void wants_answer_within(struct wants *wants, uint32_t answer_ms)
{
    check(answer_ms > 0);
    wants->options.answer_ms = answer_ms;
}

static void value_release(struct wants *wants, struct wanted *wanted)
{
    if (wanted->value != NULL)
        wants->options.release(wanted->value);
    wanted->value = NULL;
}

/* It is not wanted any more. Its row is kept until its credit is back. */
static void drop(struct wants *wants, struct wanted *wanted)
{
    value_release(wants, wanted);
    if (wants->awaited == wanted)
        wants->awaited = NULL;
    if (wanted->asking)
        wanted->dropped = true;
    else
        *wanted = (struct wanted){0};
}

void wants_free(struct wants *wants)
{
    if (wants == NULL)
        return;
    for (uint32_t i = 0; i < WANTS_MAX; i++)
        value_release(wants, &wants->list[i]);
    free(wants);
}

/* ---- leases and places ---- */

/* The stream has ended: what was asked there is to be asked again. */
static void forget_stream(struct wants *wants, uint64_t number)
{
    for (uint32_t i = 0; i < WANTS_MAX; i++) {
        struct wanted *wanted = &wants->list[i];
        if (wanted->id == 0 || wanted->stream != number)
            continue;
        wanted->stream = 0;
        wanted->asking = false;
        if (wanted->dropped)
            *wanted = (struct wanted){0};
    }
}

static bool same_peer(const struct peer *a, const struct peer *b)
{
    return a->member == b->member && strcmp(a->address, b->address) == 0 &&
           memcmp(a->certificate, b->certificate, sizeof a->certificate) == 0;
}

/* The link to a member that was a peer before, or a new one. */
static struct link link_kept(struct wants *wants, const struct peer *peer, uint64_t now_ms)
{
    struct link link = {.heard_ms = now_ms};
    for (uint32_t i = 0; i < wants->link_count; i++)
        if (same_peer(&wants->links[i].peer, peer)) {
            link = wants->links[i];
            wants->links[i].peer.member = 0; /* one place of the lease has the link */
        }
    link.peer = *peer;
    return link;
}

/* What was asked of a member that has another place now is asked of the new one. */
static void ask_elsewhere(struct wants *wants, struct wanted *wanted)
{
    const struct link *link = link_of(wants, wanted);
    struct link *before = link_of_stream(wants, wanted->stream);
    if (!is_open(wanted) || before == NULL || before == link)
        return;
    before->unanswered -= wanted->asking;
    wanted->asking = false;
    wanted->stream = 0;
}

static void set_places(struct wants *wants, uint64_t now_ms, const struct places *places)
{
    struct link links[WIRE_PLACES_MAX];
    uint64_t before[WIRE_PLACES_MAX];
    uint32_t before_count = wants->link_count;
    check(places->peer_count <= WIRE_PLACES_MAX); /* the decoder's limit */
    for (uint32_t i = 0; i < before_count; i++)
        before[i] = wants->links[i].number;
    for (uint32_t i = 0; i < places->peer_count; i++)
        links[i] = link_kept(wants, &places->peers[i], now_ms);
    wants->number = places->number;
    wants->link_count = places->peer_count;
    wants->ahead = 0;
    memcpy(wants->links, links, places->peer_count * sizeof links[0]);
    for (uint32_t i = 0; i < before_count; i++)
        if (before[i] != 0 && link_of_stream(wants, before[i]) == NULL)
            forget_stream(wants, before[i]);
    for (uint32_t i = 0; i < WANTS_MAX; i++)
        ask_elsewhere(wants, &wants->list[i]);
    struct link *link = link_of(wants, wants->awaited);
    if (link == NULL)
        return;
    link->heard_ms = now_ms; /* what it was asked for as long as it is the one to be asked */
    link->named_ms = 0;
}

/* Who this is was said over each stream at its beginning. */
static void forget_streams(struct wants *wants)
{
    for (uint32_t i = 0; i < wants->link_count; i++)
        forget_stream(wants, wants->links[i].number);
    wants->link_count = 0;
}

void wants_lease(struct wants *wants, const struct ticket *ticket, const struct place *place,
                 const struct places *places)
{
    if (ticket->member != wants->ticket.member)
        forget_streams(wants);
    for (uint32_t i = 0; i < WANTS_MAX; i++)
        if (wants->list[i].id != 0)
            drop(wants, &wants->list[i]);
    wants->ticket = *ticket;
    wants->place = *place;
    set_places(wants, 0, places);
    for (uint32_t i = 0; i < wants->link_count; i++)
        wants->links[i].named_ms = 0;
}

void wants_places(struct wants *wants, uint64_t now_ms, const struct places *places)
{
    if (places->attempt == 0 || places->attempt != wants->ticket.attempt ||
        places->number <= wants->number)
        return; /* S7: older ones are ignored */
    set_places(wants, now_ms, places);
}

/* ---- the place ---- */

/* A free row. Without one, that of a value that is asked for ahead. NULL: all hold a credit. */
static struct wanted *row_for_one(struct wants *wants)
{
    for (uint32_t i = 0; i < WANTS_MAX; i++)
        if (wants->list[i].id == 0)
            return &wants->list[i];
    for (uint32_t i = 0; i < WANTS_MAX; i++)
        if (!wants->list[i].asking && &wants->list[i] != wants->awaited) {
            drop(wants, &wants->list[i]);
            return &wants->list[i];
        }
    return NULL;
}

static struct wanted *add(struct wants *wants, const struct value_name *name)
{
    struct wanted *wanted = wanted_of(wants, name);
    if (wanted != NULL)
        return wanted;
    wanted = row_for_one(wants);
    if (wanted != NULL)
        *wanted = (struct wanted){.id = ++wants->ids, .name = *name};
    return wanted;
}

/* A value came that is not it: once more, then it has failed. */
static void wrong_value(struct wants *wants, struct wanted *wanted, enum err err)
{
    value_release(wants, wanted);
    wanted->stream = 0;
    if (++wanted->wrong > 1)
        wanted->failed = err;
}

static void judge_size(struct wants *wants, struct wanted *wanted)
{
    if (wanted->value != NULL && wanted->sized && wanted->as_sent.bytes != wanted->bytes)
        wrong_value(wants, wanted, ERR_MALFORMED);
}

/* Values that follow, as long as all that is asked for is not larger than one may be. */
static void ask_ahead(struct wants *wants, const struct value_name *name, size_t bytes)
{
    struct value_name next = *name;
    for (uint32_t i = 0; i < WANTS_AHEAD; i++) {
        uint32_t used = 0;
        for (uint32_t j = 0; j < WANTS_MAX; j++)
            used += wants->list[j].id != 0;
        if (used == WANTS_MAX || (uint64_t)(used + 1) * bytes > WIRE_VALUE_BYTES_MAX ||
            !boundaries_next(wants->options.boundaries, &wants->ticket, &next))
            return;
        (void)add(wants, &next); /* there is room */
    }
}

void wants_expect(struct wants *wants, const struct value_name *name, size_t bytes)
{
    struct place giver;
    uint32_t used = 0;
    uint64_t all_bytes = bytes;
    for (uint32_t i = 0; i < WANTS_MAX; i++) {
        used += wants->list[i].id != 0;
        all_bytes += wants->list[i].id != 0 ? wants->list[i].bytes : 0;
    }
    if (used == WANTS_MAX || all_bytes > WIRE_VALUE_BYTES_MAX || !find_giver(wants, name, &giver))
        return;
    struct wanted *wanted = add(wants, name); /* there is room */
    wanted->sized = true;
    wanted->bytes = bytes;
    judge_size(wants, wanted);
}

enum err wants_begin(struct wants *wants, uint64_t now_ms, const struct value_name *name,
                     size_t bytes)
{
    struct place giver;
    if (!find_giver(wants, name, &giver))
        return ERR_NOT_FOUND;
    wants->awaited = NULL;
    struct wanted *wanted = add(wants, name);
    if (wanted == NULL)
        return ERR_BUSY;
    wants->awaited = wanted;
    wanted->sized = true;
    wanted->bytes = bytes;
    judge_size(wants, wanted);
    struct link *link = link_of(wants, wanted);
    if (link != NULL)
        link->heard_ms = now_ms;
    ask_ahead(wants, name, bytes);
    return ERR_OK;
}

enum err wants_look(struct wants *wants, const struct value_name *name,
                    struct wants_value *ret_value, uint64_t *ret_member)
{
    struct wanted *wanted = wanted_of(wants, name);
    if (wanted == NULL)
        return ERR_CANCELLED; /* another lease began */
    if (wanted->failed != ERR_OK) {
        enum err err = wanted->failed;
        *ret_member = wanted->as_sent.member;
        drop(wants, wanted);
        return err;
    }
    *ret_value = wanted->as_sent;
    ret_value->stream = wanted->stream;
    ret_value->id = wanted->id;
    return wanted->value != NULL ? ERR_OK : ERR_BEHIND;
}

enum err wants_judge(struct wants *wants, const struct value_name *name, bool right)
{
    struct wanted *wanted = wanted_of(wants, name);
    if (wanted == NULL)
        return ERR_CANCELLED;
    check(wanted->value != NULL);
    if (right)
        drop(wants, wanted);
    else
        wrong_value(wants, wanted, ERR_WRONG_BITS);
    return right ? ERR_OK : ERR_BEHIND;
}

/* ---- what is to be done ---- */

/* S2: it may not have heard of the newest places yet. */
static bool may_be_behind(enum err refusal)
{
    return refusal == ERR_OK || refusal == ERR_NO_GRANT || refusal == ERR_UNTRUSTED;
}

/* Who was named is named again while it is silent: the coordinator may not have known then which of
 * the two is lost. */
static uint64_t deadline_ms(const struct wants *wants, const struct link *link)
{
    return link->named_ms > 0 ? link->named_ms + wants->options.answer_ms / WANTS_RENEWS
                              : link->heard_ms + wants->options.answer_ms;
}

/* The deadline of what the place waits for has passed. */
static bool name_silent(struct wants *wants, uint64_t now_ms, struct wants_effect *ret_effect)
{
    struct wanted *wanted = wants->awaited;
    struct link *link = link_of(wants, wanted);
    if (link == NULL || now_ms < deadline_ms(wants, link))
        return false;
    if (!may_be_behind(wanted->refusal)) { /* it was only ever refused, for another reason */
        wanted->failed = wanted->refusal;
        wanted->as_sent.member = link->peer.member;
        return false;
    }
    link->named_ms = now_ms;
    *ret_effect = (struct wants_effect){
        .kind = WANTS_UNREACHABLE, .peer = &link->peer, .attempt = wants->ticket.attempt};
    return true;
}

/* When the want is to be asked over the link's stream; UINT64_MAX: it is not. */
static uint64_t ask_ms(const struct wants *wants, const struct wanted *wanted,
                       const struct link *link)
{
    if (wanted->asking || link->number == 0 || link->unanswered >= WIRE_CREDITS)
        return UINT64_MAX;
    if (wanted->stream != link->number)
        return wanted->retry_ms;
    uint64_t since_ms = wanted->asked_ms > link->part_ms ? wanted->asked_ms : link->part_ms;
    return wanted == wants->awaited ? since_ms + wants->options.answer_ms / WANTS_RENEWS
                                    : UINT64_MAX;
}

static struct wants_effect open_link(struct wants *wants, struct link *link)
{
    link->number = ++wants->streams;
    link->unanswered = 0;
    return (struct wants_effect){.kind = WANTS_OPEN, .number = link->number, .peer = &link->peer};
}

static bool reach(struct wants *wants, uint64_t now_ms, struct wanted *wanted,
                  struct wants_effect *ret_effect)
{
    struct link *link = link_of(wants, wanted);
    if (link == NULL)
        return false;
    if (link->number == 0 && now_ms >= link->retry_ms) {
        *ret_effect = open_link(wants, link);
        return true;
    }
    if (now_ms < ask_ms(wants, wanted, link))
        return false;
    link->unanswered++;
    wanted->asking = true;
    wanted->stream = link->number;
    wanted->asked_ms = now_ms;
    *ret_effect = (struct wants_effect){.kind = WANTS_ASK,
                                        .number = link->number,
                                        .peer = &link->peer,
                                        .want = {wanted->id, wanted->name}};
    return true;
}

bool wants_next(struct wants *wants, uint64_t now_ms, struct wants_effect *ret_effect)
{
    if (name_silent(wants, now_ms, ret_effect))
        return true;
    if (wants->awaited != NULL && reach(wants, now_ms, wants->awaited, ret_effect))
        return true;
    for (uint32_t i = 0; i < WANTS_MAX; i++)
        if (reach(wants, now_ms, &wants->list[i], ret_effect))
            return true;
    return false;
}

/* Whether the slot's values over the boundary come from that member. */
static bool comes_from(const struct wants *wants, const struct peer *peer, struct value_name name)
{
    struct place giver;
    for (name.way = 0; name.way < VALUE_WAY_COUNT; name.way++)
        if (find_giver(wants, &name, &giver) && giver.stage == peer->stage &&
            giver.rank == peer->rank)
            return true;
    return false;
}

/* Whether the place takes values from that member: of a node's first or last slot, whose ways
 * through the places are all that there are. Members of one place hand each other sums. */
static bool takes_from(const struct wants *wants, const struct peer *peer)
{
    const struct boundaries *boundaries = wants->options.boundaries;
    const struct executor_value any = {.slot = 0};
    struct value_name first = boundaries_name(&wants->ticket, wants->place.rank, &any),
                      last = first;
    if (peer->stage == wants->place.stage)
        return peer->rank != wants->place.rank;
    last.slot = boundaries_last_slot(boundaries, &wants->ticket);
    for (first.boundary = last.boundary = 1; first.boundary < boundaries->units;
         last.boundary = ++first.boundary)
        if (comes_from(wants, peer, first) || comes_from(wants, peer, last))
            return true;
    return false;
}

bool wants_next_stream(struct wants *wants, uint64_t now_ms, struct wants_effect *ret_effect)
{
    for (; wants->ahead < wants->link_count; wants->ahead++) {
        struct link *link = &wants->links[wants->ahead];
        if (link->number != 0 || now_ms < link->retry_ms || !takes_from(wants, &link->peer))
            continue;
        *ret_effect = open_link(wants, link);
        return true;
    }
    return false;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

bool wants_waits(const struct wants *wants)
{
    return wants->awaited != NULL;
}

uint64_t wants_wake_ms(const struct wants *wants)
{
    uint64_t wake = UINT64_MAX;
    for (uint32_t i = 0; i < WANTS_MAX; i++) {
        const struct wanted *wanted = &wants->list[i];
        uint32_t at = link_index(wants, wanted);
        if (at == UINT32_MAX)
            continue;
        const struct link *link = &wants->links[at];
        if (link->number == 0)
            wake = sooner(wake, link->retry_ms);
        wake = sooner(wake, ask_ms(wants, wanted, link));
        if (wanted == wants->awaited)
            wake = sooner(wake, deadline_ms(wants, link));
    }
    return wake;
}

bool wants_uses(const struct wants *wants, uint64_t number)
{
    for (uint32_t i = 0; i < wants->link_count; i++)
        if (wants->links[i].number == number)
            return true;
    return false;
}

/* ---- what comes ---- */

/* An answer: its credit is back. NULL: nobody waits for it. */
static struct wanted *answered(struct wants *wants, struct link *link, uint64_t id)
{
    struct wanted *wanted = wanted_there(wants, link->number, id);
    link->failures = 0;
    if (wanted == NULL)
        return NULL;
    if (wanted->asking) {
        check(link->unanswered > 0);
        link->unanswered--;
        wanted->asking = false;
    }
    if (wanted->dropped)
        *wanted = (struct wanted){0};
    return is_open(wanted) ? wanted : NULL;
}

/* An answer that is no refusal renews the deadline, whatever it is about. */
static void heard(struct link *link, uint64_t now_ms)
{
    link->heard_ms = now_ms;
    link->named_ms = 0;
}

bool wants_have(struct wants *wants, uint64_t now_ms, uint64_t number, const struct from_peer *have,
                void *value)
{
    struct link *link = link_of_stream(wants, number);
    if (link == NULL)
        return false;
    heard(link, now_ms);
    struct wanted *wanted = answered(wants, link, have->have.id);
    if (wanted == NULL)
        return false;
    wanted->value = value;
    wanted->as_sent = (struct wants_value){.value = value,
                                           .bytes = have->payload_bytes,
                                           .digest = have->have.digest,
                                           .member = link->peer.member};
    judge_size(wants, wanted); /* which may release it */
    return true;
}

void wants_part(struct wants *wants, uint64_t now_ms, uint64_t number)
{
    struct link *link = link_of_stream(wants, number);
    if (link == NULL)
        return;
    heard(link, now_ms);
    link->part_ms = now_ms;
}

void wants_parked(struct wants *wants, uint64_t now_ms, uint64_t number, uint64_t id)
{
    struct link *link = link_of_stream(wants, number);
    if (link == NULL)
        return;
    heard(link, now_ms); /* S7: the deadline is for an answer, not for the value */
    struct wanted *wanted = answered(wants, link, id);
    if (wanted == NULL)
        return;
    wanted->refusal = ERR_OK;
    wanted->refusals = 0;
}

void wants_heard(struct wants *wants, uint64_t now_ms, uint64_t member)
{
    for (uint32_t i = 0; i < wants->link_count; i++)
        if (wants->links[i].peer.member == member)
            heard(&wants->links[i], now_ms);
}

void wants_gone(struct wants *wants, uint64_t now_ms, uint64_t number, uint64_t id, enum err code)
{
    struct link *link = link_of_stream(wants, number);
    struct wanted *wanted = link == NULL ? NULL : answered(wants, link, id);
    if (wanted == NULL)
        return;
    wanted->as_sent.member = link->peer.member;
    wanted->stream = 0;
    wanted->refusal = code == ERR_OK ? ERR_MALFORMED : code;
    wanted->retry_ms = now_ms + agent_backoff_ms(&wants->jitter, wanted->refusals);
    if (wanted->refusals < WANTS_REFUSALS)
        wanted->refusals++;
    if (code == ERR_OLD_GENERATION) /* S8: it is this member that is behind */
        wanted->failed = code;
}

void wants_lost(struct wants *wants, uint64_t now_ms, uint64_t number)
{
    struct link *link = link_of_stream(wants, number);
    if (link == NULL)
        return;
    link->number = 0;
    link->unanswered = 0;
    link->retry_ms = now_ms + agent_backoff_ms(&wants->jitter, link->failures);
    if (link->failures < WANTS_REFUSALS)
        link->failures++;
    forget_stream(wants, number);
}

void wants_check(const struct wants *wants)
{
    for (uint32_t i = 0; i < wants->link_count; i++) {
        const struct link *link = &wants->links[i];
        uint32_t unanswered = 0;
        for (uint32_t j = 0; link->number != 0 && j < WANTS_MAX; j++)
            unanswered += wants->list[j].asking && wants->list[j].stream == link->number;
        check(link->unanswered == unanswered && unanswered <= WIRE_CREDITS); /* 1 */
    }
    for (uint32_t j = 0; j < WANTS_MAX; j++)
        check(wants->list[j].value == NULL || !wants->list[j].asking); /* 2 */
}
