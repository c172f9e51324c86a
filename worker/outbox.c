#include "worker/outbox.h"

#include "common/ring.h"

#include <stdlib.h>
#include <string.h>

struct value {
    struct counted *bytes; /* a reference; NULL: it was not given yet */
    uint64_t digest;
};

/* A partial sum, as one round of its exchange gives it. */
struct sum {
    struct ring link;
    uint32_t sequence, round;
    struct value value;
};

struct lease {
    struct ticket ticket; /* attempt 0: the row is free */
    struct place place;
    uint64_t number; /* of the newest places */
    uint32_t peer_count;
    struct peer peers[WIRE_PLACES_MAX];
    size_t value_count;
    struct value *values; /* owned, by boundaries_index() */
    struct ring sums;     /* of struct sum, owned: the newest last */
};

struct outbox {
    struct outbox_options options;
    uint64_t generation;
    uint64_t kept_bytes;
    struct ring askers;
    struct lease leases[WIRE_LEASES_MAX + 1]; /* one is being granted */
};

/* A want as it stands: `answer` is due, or it is parked. */
struct question {
    struct want want;
    bool due, parked; /* parked: that was said before */
    enum from_peer_kind answer;
    enum err code;
    struct counted *value; /* HAVE: a reference, so that it outlives its lease */
    uint64_t digest;
};

struct outbox_asker {
    struct outbox *outbox;
    struct ring link;
    uint64_t member;
    struct digest shown;
    uint32_t count; /* in the order in which they came */
    struct question questions[OUTBOX_WANTS_MAX];
};

/* ---- leases ---- */

static void value_drop(struct outbox *outbox, const struct value *value)
{
    if (value->bytes == NULL)
        return;
    check(outbox->kept_bytes >= value->bytes->bytes);
    outbox->kept_bytes -= value->bytes->bytes;
    counted_unref(value->bytes);
}

static struct sum *oldest_sum(const struct lease *lease)
{
    return ring_is_empty(&lease->sums) ? NULL : RING_ITEM(lease->sums.behind, struct sum, link);
}

/* Those of sequences before that one. */
static void drop_sums(struct outbox *outbox, struct lease *lease, uint64_t sequence)
{
    struct sum *sum = oldest_sum(lease);
    for (; sum != NULL && sum->sequence < sequence; sum = oldest_sum(lease)) {
        value_drop(outbox, &sum->value);
        ring_take(&sum->link);
        free(sum);
    }
}

static void drop_values(struct outbox *outbox, struct lease *lease)
{
    for (size_t i = 0; i < lease->value_count; i++) {
        value_drop(outbox, &lease->values[i]);
        lease->values[i] = (struct value){0};
    }
}

static void lease_end(struct outbox *outbox, struct lease *lease)
{
    if (lease->ticket.attempt == 0)
        return;
    drop_values(outbox, lease);
    drop_sums(outbox, lease, UINT64_MAX);
    free(lease->values);
    *lease = (struct lease){0};
}

static struct lease *lease_of(struct outbox *outbox, uint64_t attempt)
{
    for (uint32_t i = 0; i <= WIRE_LEASES_MAX; i++)
        if (outbox->leases[i].ticket.attempt == attempt)
            return &outbox->leases[i];
    return NULL;
}

enum err outbox_new(const struct outbox_options *options, struct outbox **ret_outbox)
{
    struct outbox *outbox = calloc(1, sizeof *outbox);
    if (outbox == NULL)
        return ERR_NOMEM;
    outbox->options = *options;
    ring_init(&outbox->askers);
    *ret_outbox = outbox;
    return ERR_OK;
}

void outbox_free(struct outbox *outbox)
{
    if (outbox == NULL)
        return;
    check(ring_is_empty(&outbox->askers));
    for (uint32_t i = 0; i <= WIRE_LEASES_MAX; i++)
        lease_end(outbox, &outbox->leases[i]);
    check(outbox->kept_bytes == 0);
    free(outbox);
}

uint64_t outbox_bytes(const struct outbox *outbox)
{
    return outbox->kept_bytes;
}

/* ---- what is answered ---- */

static const struct peer *peer_of(const struct lease *lease, uint64_t member)
{
    for (uint32_t i = 0; i < lease->peer_count; i++)
        if (lease->peers[i].member == member)
            return &lease->peers[i];
    return NULL;
}

static struct sum *sum_of(const struct lease *lease, const struct value_name *name)
{
    const struct ring *head = &lease->sums;
    for (struct ring *link = head->behind; link != head; link = link->behind) {
        struct sum *sum = RING_ITEM(link, struct sum, link);
        if (sum->sequence == name->sequence && sum->round == name->round)
            return sum;
    }
    return NULL;
}

/* S6: what the place has of the partial sum, which another of its members asks for. */
static enum err judge_sum(const struct lease *lease, const struct peer *peer,
                          const struct value_name *name, struct value *ret_value)
{
    const struct place *place = &lease->place;
    const struct sum *sum = sum_of(lease, name);
    const struct sum *oldest = oldest_sum(lease);
    if (peer->stage != place->stage || peer->rank == place->rank || name->rank != place->rank)
        return ERR_NOT_FOUND;
    if (name->try_number != place->try_number)
        return name->try_number > place->try_number ? ERR_BEHIND : ERR_NOT_FOUND;
    if (sum == NULL)
        return oldest == NULL || name->sequence >= oldest->sequence ? ERR_BEHIND : ERR_NOT_FOUND;
    *ret_value = sum->value;
    return ERR_OK;
}

/* What a lease that the name is about has for the asker. */
static enum err judge_lease(const struct outbox_asker *asker, const struct lease *lease,
                            const struct value_name *name, struct value *ret_value)
{
    const struct outbox_options *options = &asker->outbox->options;
    const struct peer *peer = peer_of(lease, asker->member);
    struct passage passage;
    if (peer == NULL)
        return ERR_NO_GRANT;
    if (!options->insecure &&
        memcmp(peer->certificate, asker->shown.bytes, sizeof peer->certificate) != 0)
        return ERR_UNTRUSTED;
    if (boundaries_is_sum(name))
        return judge_sum(lease, peer, name, ret_value);
    if (!boundaries_pass(options->boundaries, &lease->ticket, name, &passage) ||
        passage.to != peer->stage)
        return ERR_NOT_FOUND;
    if (name->rank != lease->place.rank) /* one of the two has not heard yet */
        return ERR_BEHIND;
    *ret_value = lease->values[boundaries_index(options->boundaries, &lease->ticket, name)];
    if (ret_value->bytes != NULL)
        return ERR_OK; /* S2: also of a place that this member had before */
    return passage.from == lease->place.stage ? ERR_BEHIND : ERR_NOT_FOUND;
}

/* OK: *ret_value is the value; BEHIND: it is to be waited for; others refuse. */
static enum err judge(const struct outbox_asker *asker, const struct value_name *name,
                      struct value *ret_value)
{
    struct outbox *outbox = asker->outbox;
    enum err found = ERR_BEHIND; /* S2: nothing is known of it yet */
    if (name->generation < outbox->generation)
        return ERR_OLD_GENERATION; /* S8 */
    for (uint32_t i = 0; i <= WIRE_LEASES_MAX; i++) {
        const struct lease *lease = &outbox->leases[i];
        if (lease->ticket.attempt == 0 ||
            !boundaries_cover(outbox->options.boundaries, &lease->ticket, name))
            continue;
        found = judge_lease(asker, lease, name, ret_value);
        if (found == ERR_OK || found == ERR_BEHIND)
            return found;
    }
    return found;
}

/* Looks again at a want that has no answer but "parked". */
static void settle(const struct outbox_asker *asker, struct question *question)
{
    struct value value = {0};
    enum err err = judge(asker, &question->want.name, &value);
    if (err == ERR_BEHIND)
        return;
    question->due = true;
    question->answer = err == ERR_OK ? FROM_PEER_HAVE : FROM_PEER_GONE;
    question->code = err;
    if (err == ERR_OK) {
        question->value = counted_ref(value.bytes);
        question->digest = value.digest;
    }
}

static bool is_open(const struct question *question)
{
    return !question->due || question->answer == FROM_PEER_PARKED;
}

/* What is known has changed. */
static void settle_all(struct outbox *outbox)
{
    struct ring *head = &outbox->askers;
    for (struct ring *link = head->behind; link != head; link = link->behind) {
        struct outbox_asker *asker = RING_ITEM(link, struct outbox_asker, link);
        for (uint32_t i = 0; i < asker->count; i++)
            if (is_open(&asker->questions[i]))
                settle(asker, &asker->questions[i]);
    }
}

/* ---- what happens ---- */

/* S6: sums of an older try are nobody's. */
static void set_try(struct outbox *outbox, struct lease *lease, uint64_t number)
{
    if (number <= lease->place.try_number)
        return;
    lease->place.try_number = number;
    drop_sums(outbox, lease, UINT64_MAX);
}

static void set_places(struct outbox *outbox, struct lease *lease, const struct places *places)
{
    for (uint32_t i = 0; i < places->peer_count; i++)
        if (places->peers[i].stage == lease->place.stage)
            set_try(outbox, lease, places->peers[i].try_number);
    check(places->peer_count <= WIRE_PLACES_MAX); /* the decoder's limit */
    lease->number = places->number;
    lease->peer_count = places->peer_count;
    if (places->peer_count > 0)
        memcpy(lease->peers, places->peers, places->peer_count * sizeof lease->peers[0]);
}

/* A free row for the lease. */
static enum err lease_begin(struct outbox *outbox, const struct ticket *ticket,
                            struct lease **ret_lease)
{
    struct lease *lease = lease_of(outbox, 0);
    if (lease == NULL)
        return ERR_BUSY;
    size_t count = boundaries_values(outbox->options.boundaries, ticket);
    lease->values = calloc(count > 0 ? count : 1, sizeof *lease->values);
    if (lease->values == NULL)
        return ERR_NOMEM;
    lease->value_count = count;
    ring_init(&lease->sums);
    lease->ticket = *ticket;
    *ret_lease = lease;
    return ERR_OK;
}

/* Another one than before, if there was one. Members of another rank give other values. */
static void set_seat(struct outbox *outbox, struct lease *lease, const struct place *place)
{
    if (place->rank != lease->place.rank)
        drop_values(outbox, lease);
    lease->place = *place;
}

enum err outbox_lease(struct outbox *outbox, const struct ticket *ticket, const struct place *place,
                      const struct places *places)
{
    check(ticket->attempt != 0);
    outbox_generation(outbox, ticket->generation);
    struct lease *lease = lease_of(outbox, ticket->attempt);
    bool again = lease != NULL;
    if (!again)
        TRY(lease_begin(outbox, ticket, &lease));
    drop_sums(outbox, lease, UINT64_MAX); /* the place is computed from the node's start */
    if (!again || place->stage != lease->place.stage || place->rank != lease->place.rank)
        set_seat(outbox, lease, place);
    set_try(outbox, lease, place->try_number);
    if (!again || places->number >= lease->number)
        set_places(outbox, lease, places);
    settle_all(outbox);
    return ERR_OK;
}

void outbox_places(struct outbox *outbox, const struct places *places)
{
    struct lease *lease = places->attempt == 0 ? NULL : lease_of(outbox, places->attempt);
    if (lease == NULL || places->number <= lease->number)
        return; /* S7: older ones are ignored */
    set_places(outbox, lease, places);
    settle_all(outbox);
}

static bool is_among(const uint64_t *attempts, uint32_t count, uint64_t attempt)
{
    for (uint32_t i = 0; i < count; i++)
        if (attempts[i] == attempt)
            return true;
    return false;
}

void outbox_keep(struct outbox *outbox, const uint64_t *attempts, uint32_t count)
{
    for (uint32_t i = 0; i <= WIRE_LEASES_MAX; i++) {
        struct lease *lease = &outbox->leases[i];
        if (lease->ticket.attempt != 0 && !is_among(attempts, count, lease->ticket.attempt))
            lease_end(outbox, lease);
    }
}

void outbox_generation(struct outbox *outbox, uint64_t generation)
{
    if (generation <= outbox->generation)
        return;
    outbox->generation = generation;
    for (uint32_t i = 0; i <= WIRE_LEASES_MAX; i++) {
        struct lease *lease = &outbox->leases[i];
        if (lease->ticket.attempt != 0 && lease->ticket.generation < generation)
            lease_end(outbox, lease);
    }
    settle_all(outbox);
}

/* Where the value is to be kept; NULL: it is not. A lane that was cancelled may still give what is
 * of the seat that this member had before. */
static struct value *row_of(struct outbox *outbox, struct lease *lease,
                            const struct value_name *name)
{
    const struct boundaries *boundaries = outbox->options.boundaries;
    struct passage passage;
    check(boundaries_pass(boundaries, &lease->ticket, name, &passage)); /* our own program */
    if (passage.from != lease->place.stage || name->rank != lease->place.rank)
        return NULL;
    return &lease->values[boundaries_index(boundaries, &lease->ticket, name)];
}

/* The same of a partial sum. S6: of an older try it is nobody's. ERR_NOMEM. */
static enum err sum_row(struct outbox *outbox, struct lease *lease, const struct value_name *name,
                        struct value **ret_row)
{
    if (name->rank != lease->place.rank || name->try_number != lease->place.try_number)
        return ERR_OK;
    struct sum *sum = sum_of(lease, name);
    if (sum == NULL) {
        sum = calloc(1, sizeof *sum);
        if (sum == NULL)
            return ERR_NOMEM;
        sum->sequence = name->sequence;
        sum->round = name->round;
        drop_sums(outbox, lease, name->sequence - UINT64_C(1));
        ring_add(&lease->sums, &sum->link);
    }
    *ret_row = &sum->value;
    return ERR_OK;
}

enum err outbox_give(struct outbox *outbox, uint64_t attempt, const struct value_name *name,
                     struct counted *take_value, uint64_t digest)
{
    struct lease *lease = attempt == 0 ? NULL : lease_of(outbox, attempt);
    struct value *value = NULL;
    enum err err = ERR_OK;
    if (lease != NULL && boundaries_is_sum(name))
        err = sum_row(outbox, lease, name, &value);
    else if (lease != NULL)
        value = row_of(outbox, lease, name);
    if (value == NULL || value->bytes != NULL) {
        bool differs =
            value != NULL && (value->digest != digest || value->bytes->bytes != take_value->bytes);
        counted_unref(take_value);
        return differs ? ERR_WRONG_BITS : err; /* S2 */
    }
    *value = (struct value){take_value, digest};
    outbox->kept_bytes += take_value->bytes;
    settle_all(outbox);
    return ERR_OK;
}

/* ---- who asks ---- */

struct outbox_asker *outbox_asker_new(struct outbox *outbox, uint64_t member,
                                      const struct digest *shown)
{
    struct outbox_asker *asker = calloc(1, sizeof *asker);
    if (asker == NULL)
        return NULL;
    asker->outbox = outbox;
    asker->member = member;
    asker->shown = *shown;
    ring_add(&outbox->askers, &asker->link);
    return asker;
}

static void question_take(struct outbox_asker *asker, uint32_t at)
{
    counted_unref(asker->questions[at].value);
    asker->count--;
    memmove(&asker->questions[at], &asker->questions[at + 1],
            (asker->count - at) * sizeof asker->questions[0]);
}

void outbox_asker_free(struct outbox_asker *asker)
{
    if (asker == NULL)
        return;
    while (asker->count > 0)
        question_take(asker, asker->count - 1);
    ring_take(&asker->link);
    free(asker);
}

/* The want of that id, if it is still open. */
static struct question *open_question(struct outbox_asker *asker, uint64_t id)
{
    for (uint32_t i = 0; i < asker->count; i++)
        if (asker->questions[i].want.id == id && is_open(&asker->questions[i]))
            return &asker->questions[i];
    return NULL;
}

/* Wants that wait for their first answer. */
static uint32_t unanswered(const struct outbox_asker *asker)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < asker->count; i++)
        count += asker->questions[i].due && !asker->questions[i].parked;
    return count;
}

/* Room for one more parked want: the oldest goes, its asker renews it. */
static void make_room(struct outbox_asker *asker)
{
    uint32_t parked = 0, oldest = 0;
    for (uint32_t i = asker->count; i-- > 0;)
        if (asker->questions[i].parked) {
            parked++;
            oldest = i;
        }
    if (parked >= OUTBOX_PARKED_MAX)
        question_take(asker, oldest);
}

enum err outbox_want(struct outbox_asker *asker, const struct want *want)
{
    if (unanswered(asker) >= OUTBOX_UNANSWERED_MAX)
        return ERR_MALFORMED;
    struct question *question = open_question(asker, want->id);
    if (question == NULL) {
        make_room(asker);
        check(asker->count < OUTBOX_WANTS_MAX);
        question = &asker->questions[asker->count++];
    }
    /* parked, until something else is known of it */
    *question = (struct question){.want = *want, .due = true, .answer = FROM_PEER_PARKED};
    settle(asker, question);
    return ERR_OK;
}

bool outbox_next(struct outbox_asker *asker, struct outbox_answer *ret_answer)
{
    uint32_t at = 0;
    while (at < asker->count && !asker->questions[at].due)
        at++;
    if (at == asker->count)
        return false;
    struct question *question = &asker->questions[at];
    uint64_t id = question->want.id;
    *ret_answer = (struct outbox_answer){.message = {.kind = question->answer}};
    switch (question->answer) {
    case FROM_PEER_PARKED:
        ret_answer->message.parked.id = id;
        question->parked = true;
        question->due = false;
        return true;
    case FROM_PEER_HAVE:
        ret_answer->message.have.id = id;
        ret_answer->message.have.digest = question->digest;
        ret_answer->message.payload_bytes = question->value->bytes;
        ret_answer->value = question->value;
        question->value = NULL;
        break;
    case FROM_PEER_GONE:
        ret_answer->message.gone.id = id;
        ret_answer->message.gone.code = question->code;
        break;
    case FROM_PEER_FRAGMENT: /* no answer, but how the carrier sends a long one */
        break;
    }
    question_take(asker, at);
    return true;
}

/* ---- invariants ---- */

/* The bytes that the lease keeps. */
static uint64_t bytes_of(const struct lease *lease)
{
    uint64_t kept_bytes = 0;
    for (size_t i = 0; i < lease->value_count; i++)
        kept_bytes += lease->values[i].bytes != NULL ? lease->values[i].bytes->bytes : 0;
    for (struct ring *link = lease->sums.behind; link != &lease->sums; link = link->behind)
        kept_bytes += RING_ITEM(link, struct sum, link)->value.bytes->bytes;
    return kept_bytes;
}

void outbox_check(const struct outbox *outbox)
{
    uint64_t kept_bytes = 0;
    for (uint32_t i = 0; i <= WIRE_LEASES_MAX; i++)
        kept_bytes += outbox->leases[i].ticket.attempt != 0 ? bytes_of(&outbox->leases[i]) : 0;
    check(kept_bytes == outbox->kept_bytes); /* 1 */
    for (struct ring *link = outbox->askers.behind; link != &outbox->askers; link = link->behind) {
        const struct outbox_asker *asker = RING_ITEM(link, struct outbox_asker, link);
        check(asker->count <= OUTBOX_WANTS_MAX &&
              unanswered(asker) <= OUTBOX_UNANSWERED_MAX); /* 3 */
    }
}
