#include "worker/collective/running.h"

#include <inttypes.h>
#include <string.h>

enum {
    ALIGNMENT = 64,
    ELEMENT_BYTES_MAX = 8,
    BOUNCE_BYTES = 4096,
    AHEAD = 2, /* collectives that parts may be of: this one and the next */
    NO_STEP = COLLECTIVE_STEPS_MAX,
    KEPT_MAX = COLLECTIVE_RANKS_MAX, /* parts of one sender, of one collective */
};

/* A part that came before its turn. */
struct kept {
    struct part part;
    size_t offset;
    uint64_t got;
    uint32_t step; /* NO_STEP: its collective has not begun */
};

enum { KEPT_BYTES = (KEPT_MAX * sizeof(struct kept) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT };

/* What one sender has kept here of one collective. */
struct credit {
    uint8_t *bytes;
    size_t used, limit;
    uint32_t count;
    struct kept *parts; /* KEPT_MAX */
};

/* One of the other members. */
struct sender {
    struct credit credits[AHEAD]; /* by sequence, modulo */
    uint64_t left;                /* bytes of the part that is being received */
    struct kept *kept;            /* where it goes; NULL: it is used as it comes, */
    uint32_t step;                /* at this step, */
    uint64_t at;                  /* from this byte of the range on */
    uint32_t rest_bytes;          /* of an element that has begun */
    uint8_t rest[ELEMENT_BYTES_MAX];
};

enum phase { IDLE, UNDER_WAY, FAILED, SAID };

struct running {
    struct running_options options;
    enum phase phase;
    uint32_t sequence; /* of the newest collective; 0: none has begun */
    struct running_work work;
    struct collective_schedule schedule;
    bool done[COLLECTIVE_STEPS_MAX];
    uint32_t at; /* the step that is next */
    uint32_t unsent[COLLECTIVE_RANKS_MAX], unsent_count;
    enum err err; /* FAILED */
    uint32_t blamed;
    struct reason reason;
    uint8_t *scratch;
    struct sender senders[COLLECTIVE_RANKS_MAX];
    _Alignas(ALIGNMENT) uint8_t bounce[BOUNCE_BYTES];
};

/* ---- memory ---- */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Whether the step's part can come before its turn: what a sender can send only when this member has
 * sent its own, and is copied into the array, cannot. */
static bool can_be_early(const struct collective *collective, const struct collective_step *step)
{
    bool answers =
        collective->kind == COLLECTIVE_ALL_REDUCE || collective->kind == COLLECTIVE_BROADCAST;
    return !answers || step->act != COLLECTIVE_COPY || step->place > 0;
}

struct sizes {
    size_t credits[COLLECTIVE_RANKS_MAX]; /* of each sender */
    size_t scratch;
};

static size_t range_bytes(const struct running_options *options, uint64_t elements)
{
    /* cuts of a shorter array may be longer by COLLECTIVE_ALIGN */
    return aligned((size_t)(elements + COLLECTIVE_ALIGN) * options->element_bytes_max);
}

static void size_for(const struct running_options *options, const struct collective *collective,
                     struct sizes *sizes)
{
    struct collective_schedule schedule;
    size_t early[COLLECTIVE_RANKS_MAX] = {0};
    collective_plan(collective, options->rank, &schedule);
    for (uint32_t i = 0; i < schedule.count; i++) {
        const struct collective_step *step = &schedule.steps[i];
        if (collective_receives(step) && can_be_early(collective, step))
            early[step->peer] += range_bytes(options, step->range.count);
    }
    for (uint32_t from = 0; from < options->ranks; from++)
        if (early[from] > sizes->credits[from])
            sizes->credits[from] = early[from];
    size_t scratch = range_bytes(options, schedule.scratch_elements) * schedule.scratch_places;
    if (scratch > sizes->scratch)
        sizes->scratch = scratch;
}

static void sizes_of(const struct running_options *options, struct sizes *ret_sizes)
{
    *ret_sizes = (struct sizes){0};
    for (unsigned which = 0; which < COLLECTIVE_KIND_COUNT * COLLECTIVE_WAY_COUNT; which++) {
        const struct collective collective = {.kind = which / COLLECTIVE_WAY_COUNT,
                                              .way = which % COLLECTIVE_WAY_COUNT,
                                              .ranks = options->ranks,
                                              .elements = options->elements_max};
        if (collective_check(&collective, NULL) == ERR_OK)
            size_for(options, &collective, ret_sizes);
    }
}

enum err running_bytes(const struct running_options *options, size_t *ret_bytes,
                       struct reason *reason)
{
    uint32_t size = options->element_bytes_max;
    if (options->ranks < 1 || options->ranks > COLLECTIVE_RANKS_MAX ||
        options->rank >= options->ranks)
        return reason_set(reason, ERR_INVALID, "rank %u is none of %u ranks", options->rank,
                          options->ranks);
    if (size < 1 || size > ELEMENT_BYTES_MAX || (size & (size - 1)) != 0)
        return reason_set(reason, ERR_INVALID, "elements have 1, 2, 4 or 8 bytes, not %u", size);
    if (options->elements_max > WIRE_VALUE_BYTES_MAX / size)
        return reason_set(reason, ERR_INVALID, "an array has at most %d bytes",
                          (int)WIRE_VALUE_BYTES_MAX);
    struct sizes sizes;
    sizes_of(options, &sizes);
    *ret_bytes = aligned(sizeof(struct running)) + sizes.scratch;
    for (uint32_t from = 0; from < options->ranks; from++)
        *ret_bytes += AHEAD * (KEPT_BYTES + sizes.credits[from]);
    return ERR_OK;
}

struct running *running_init(const struct running_options *options, void *memory)
{
    struct running *running = memory;
    struct sizes sizes;
    uint8_t *at = (uint8_t *)memory + aligned(sizeof *running);
    check((uintptr_t)memory % ALIGNMENT == 0);
    sizes_of(options, &sizes);
    memset(running, 0, sizeof *running);
    running->options = *options;
    running->scratch = at;
    at += sizes.scratch;
    for (uint32_t i = 0; i < AHEAD * options->ranks; i++) {
        struct credit *credit = &running->senders[i / AHEAD].credits[i % AHEAD];
        credit->parts = (struct kept *)(void *)at;
        credit->bytes = at + KEPT_BYTES;
        credit->limit = sizes.credits[i / AHEAD];
        at += KEPT_BYTES + credit->limit;
    }
    return running;
}

/* ---- what parts do ---- */

static void give_up(struct running *running, uint32_t rank, enum err err, const char *why)
{
    if (running->phase == FAILED || running->phase == SAID)
        return;
    running->phase = FAILED;
    running->err = err;
    running->blamed = rank;
    if (running->reason.text[0] == 0)
        ignore(reason_set(&running->reason, err, "collective %" PRIu32 ": rank %" PRIu32 " %s",
                          running->sequence, rank, why)); /* it is what is to be said */
}

static uint8_t *memory_at(const struct running *running, const struct collective_step *step,
                          uint32_t place)
{
    const struct running_work *work = &running->work;
    const struct collective_memory memory = {work->array, work->output, running->scratch,
                                             work->element_bytes};
    return collective_at(&memory, &running->schedule, step, place);
}

static uint64_t bytes_of(const struct running *running, const struct collective_step *step)
{
    return step->range.count * running->work.element_bytes;
}

static void add(const struct running *running, bool left, uint8_t *ours, const void *theirs,
                size_t count)
{
    const struct running_work *work = &running->work;
    work->add(work->context, ours, left ? theirs : ours, left ? ours : theirs, count);
}

/* Adds bytes that may begin and end within an element, or lie so that none can be read there. */
static void add_bytes(struct running *running, struct sender *sender, const uint8_t *bytes,
                      size_t count)
{
    const struct collective_step *step = &running->schedule.steps[sender->step];
    size_t size = running->work.element_bytes;
    bool left = step->act == COLLECTIVE_ADD_LEFT;
    uint8_t *ours = memory_at(running, step, step->place) + sender->at - sender->rest_bytes;
    sender->at += count;
    if (sender->rest_bytes == 0 && (uintptr_t)bytes % size == 0) {
        size_t whole = count - count % size;
        if (whole > 0)
            add(running, left, ours, bytes, whole / size);
        ours += whole;
        bytes += whole;
        count -= whole;
    }
    while (count > 0) {
        size_t rest = sender->rest_bytes, room = BOUNCE_BYTES - rest;
        size_t more = count < room ? count : room, whole = (rest + more) / size * size;
        memcpy(running->bounce, sender->rest, rest);
        memcpy(running->bounce + rest, bytes, more);
        if (whole > 0)
            add(running, left, ours, running->bounce, whole / size);
        sender->rest_bytes = (uint32_t)(rest + more - whole);
        memcpy(sender->rest, running->bounce + whole, sender->rest_bytes);
        ours += whole;
        bytes += more;
        count -= more;
    }
}

/* Bytes of the step's range, from sender->at on. */
static void use_bytes(struct running *running, struct sender *sender, const uint8_t *bytes,
                      size_t count)
{
    const struct collective_step *step = &running->schedule.steps[sender->step];
    check(sender->at + count <= bytes_of(running, step));
    if (count == 0)
        return;
    if (step->act == COLLECTIVE_COPY) {
        memcpy(memory_at(running, step, step->place) + sender->at, bytes, count);
        sender->at += count;
    } else {
        add_bytes(running, sender, bytes, count);
    }
    if (sender->at == bytes_of(running, step))
        check(sender->rest_bytes == 0);
}

static void fold(const struct running *running, const struct collective_step *step)
{
    if (step->range.count > 0)
        add(running, step->act == COLLECTIVE_FOLD_LEFT, memory_at(running, step, step->place - 1),
            memory_at(running, step, step->place), (size_t)step->range.count);
}

static struct kept *kept_for(struct running *running, uint32_t step)
{
    uint32_t from = running->schedule.steps[step].peer;
    struct credit *credit = &running->senders[from].credits[running->sequence % AHEAD];
    for (uint32_t i = 0; i < credit->count; i++)
        if (credit->parts[i].step == step)
            return &credit->parts[i];
    return NULL;
}

/* Uses the whole part that was kept for the step; false: there is none yet. */
static bool use_kept(struct running *running, uint32_t step)
{
    uint32_t from = running->schedule.steps[step].peer;
    struct kept *kept = kept_for(running, step);
    if (kept == NULL || kept->got < kept->part.bytes)
        return false;
    struct sender apart = {.step = step};
    use_bytes(running, &apart,
              running->senders[from].credits[running->sequence % AHEAD].bytes + kept->offset,
              (size_t)kept->part.bytes);
    running->done[step] = true;
    return true;
}

/* Does the steps that can be done, up to one that sends. */
static void go_on(struct running *running)
{
    for (; running->phase == UNDER_WAY && running->at < running->schedule.count; running->at++) {
        const struct collective_step *step = &running->schedule.steps[running->at];
        if (step->act == COLLECTIVE_SEND)
            return;
        if (!collective_receives(step))
            fold(running, step);
        else if (!running->done[running->at] && !use_kept(running, running->at))
            return;
    }
}

/* ---- what comes ---- */

static uint32_t step_of(const struct running *running, uint32_t from, uint32_t round)
{
    for (uint32_t i = 0; i < running->schedule.count; i++) {
        const struct collective_step *step = &running->schedule.steps[i];
        if (collective_receives(step) && step->peer == from && step->round == round)
            return i;
    }
    return NO_STEP;
}

/* Where the sender's range begins: of an all-to-all it is this member's, in the sender's input. */
static uint64_t first_of(const struct running *running, const struct collective_step *step)
{
    const struct collective *collective = &running->work.collective;
    return collective->kind == COLLECTIVE_ALL_TO_ALL
               ? collective_range(collective, running->options.rank).first
               : step->range.first;
}

/* Which step of this collective the part is for. */
static enum err judge_range(const struct running *running, uint32_t from, const struct part *part,
                            uint32_t *ret_step, struct reason *reason)
{
    uint32_t at = step_of(running, from, part->round);
    if (at == NO_STEP)
        return reason_set(reason, ERR_MALFORMED,
                          "rank %u sent round %u of collective %u, which has none for rank %u",
                          from, part->round, part->sequence, running->options.rank);
    const struct collective_step *step = &running->schedule.steps[at];
    if (part->bytes != bytes_of(running, step))
        return reason_set(reason, ERR_MALFORMED,
                          "rank %u sent %" PRIu64
                          " bytes in round %u of collective %u, not %" PRIu64,
                          from, part->bytes, part->round, part->sequence, bytes_of(running, step));
    if (part->first != first_of(running, step))
        return reason_set(reason, ERR_MALFORMED,
                          "rank %u sent elements from %" PRIu64 " on in round %u of collective %u, "
                          "not from %" PRIu64,
                          from, part->first, part->round, part->sequence, first_of(running, step));
    *ret_step = at;
    return ERR_OK;
}

static enum err judge_name(const struct running *running, uint32_t from, const struct part *part,
                           struct reason *reason)
{
    const struct running_options *options = &running->options;
    if (part->attempt != options->attempt)
        return reason_set(reason, ERR_NOT_FOUND, "rank %u sent a part of another lease", from);
    if (part->tries < options->tries)
        return reason_set(reason, ERR_TOO_LATE, "rank %u sent a part of try %u in try %u", from,
                          part->tries, options->tries);
    if (part->tries > options->tries)
        return reason_set(reason, ERR_BEHIND, "rank %u sent a part of try %u in try %u", from,
                          part->tries, options->tries);
    if (part->rank != from)
        return reason_set(reason, ERR_MALFORMED, "rank %u sent a part as rank %u", from,
                          part->rank);
    bool over = part->sequence < running->sequence ||
                (part->sequence == running->sequence && running->phase == IDLE);
    if (over || part->sequence - running->sequence >= AHEAD)
        return reason_set(reason, ERR_MALFORMED,
                          "rank %u sent a part of collective %u, where the newest is %u", from,
                          part->sequence, running->sequence);
    return ERR_OK;
}

static const struct kept *of_round(const struct credit *credit, uint32_t round)
{
    for (uint32_t i = 0; i < credit->count; i++)
        if (credit->parts[i].part.round == round)
            return &credit->parts[i];
    return NULL;
}

static enum err keep(struct running *running, uint32_t from, const struct part *part, uint32_t step,
                     struct reason *reason)
{
    struct sender *sender = &running->senders[from];
    struct credit *credit = &sender->credits[part->sequence % AHEAD];
    if (credit->count == KEPT_MAX || part->bytes > credit->limit - credit->used)
        return reason_set(reason, ERR_BUSY, "rank %u is ahead by more than its credit of %zu bytes",
                          from, credit->limit);
    sender->kept = &credit->parts[credit->count++];
    *sender->kept = (struct kept){*part, credit->used, 0, step};
    credit->used += (size_t)part->bytes;
    check(credit->used <= credit->limit); /* 1 */
    return ERR_OK;
}

/* Whether the step's bytes may be used as they come. 2: what is copied into the array lies where no
 * other step receives. */
static bool is_due(const struct running *running, uint32_t at)
{
    const struct collective_step *step = &running->schedule.steps[at];
    return running->phase == UNDER_WAY &&
           (at == running->at || (step->act == COLLECTIVE_COPY && step->place == 0));
}

enum err running_part(struct running *running, uint32_t from, const struct part *part,
                      struct reason *reason)
{
    struct sender *sender = &running->senders[from];
    uint32_t step = NO_STEP;
    check(from < running->options.ranks && from != running->options.rank && sender->left == 0);
    go_on(running);
    TRY(judge_name(running, from, part, reason));
    bool current = part->sequence == running->sequence;
    if (current)
        TRY(judge_range(running, from, part, &step, reason));
    if ((current && running->done[step]) ||
        of_round(&sender->credits[part->sequence % AHEAD], part->round) != NULL)
        return reason_set(reason, ERR_MALFORMED, "rank %u sent round %u of collective %u twice",
                          from, part->round, part->sequence);
    sender->kept = NULL;
    if (!current || !is_due(running, step))
        TRY(keep(running, from, part, step, reason));
    sender->left = part->bytes;
    sender->step = step;
    sender->at = 0;
    if (part->bytes == 0 && sender->kept == NULL)
        running->done[step] = true;
    return ERR_OK;
}

void running_payload(struct running *running, uint32_t from, const void *bytes, size_t count)
{
    struct sender *sender = &running->senders[from];
    struct kept *kept = sender->kept;
    check(count <= sender->left);
    sender->left -= count;
    if (kept != NULL) {
        const struct credit *credit = &sender->credits[kept->part.sequence % AHEAD];
        if (count > 0)
            memcpy(credit->bytes + kept->offset + kept->got, bytes, count);
        kept->got += count;
    } else if (running->phase == UNDER_WAY) {
        use_bytes(running, sender, bytes, count);
        running->done[sender->step] = sender->left == 0;
    }
}

bool running_waits_for(const struct running *running, uint32_t from)
{
    if (running->phase != UNDER_WAY)
        return false;
    for (uint32_t i = running->at; i < running->schedule.count; i++) {
        const struct collective_step *step = &running->schedule.steps[i];
        /* the sender's own steps are in this order, too */
        if (collective_receives(step) && step->peer == from && !running->done[i])
            return is_due(running, i);
    }
    return false;
}

/* ---- one after another ---- */

/* Parts that came before the collective began. */
static void judge_early(struct running *running)
{
    for (uint32_t from = 0; from < running->options.ranks; from++) {
        struct credit *credit = &running->senders[from].credits[running->sequence % AHEAD];
        for (uint32_t i = 0; i < credit->count; i++) {
            struct kept *kept = &credit->parts[i];
            if (judge_range(running, from, &kept->part, &kept->step, &running->reason) != ERR_OK)
                give_up(running, from, ERR_MALFORMED, "");
        }
    }
}

enum err running_begin(struct running *running, const struct running_work *work,
                       struct reason *reason)
{
    const struct running_options *options = &running->options;
    TRY(collective_check(&work->collective, reason));
    if (work->collective.ranks != options->ranks ||
        work->collective.elements > options->elements_max ||
        work->element_bytes > options->element_bytes_max)
        return reason_set(reason, ERR_INVALID,
                          "a collective of %" PRIu64
                          " elements among %u ranks, where there is room for %" PRIu64 " among %u",
                          work->collective.elements, work->collective.ranks, options->elements_max,
                          options->ranks);
    check(running->phase != UNDER_WAY && running->phase != SAID);
    check(running->sequence < UINT32_MAX);
    check((work->collective.kind == COLLECTIVE_ALL_TO_ALL) == (work->output != NULL));
    if (running->phase != IDLE)
        return ERR_OK; /* running_next() says why */
    for (uint32_t from = 0; from < options->ranks; from++) {
        struct credit *credit = &running->senders[from].credits[running->sequence % AHEAD];
        credit->used = 0;
        credit->count = 0;
    }
    running->work = *work;
    running->sequence++;
    running->phase = UNDER_WAY;
    running->at = 0;
    memset(running->done, 0, sizeof running->done);
    collective_plan(&work->collective, options->rank, &running->schedule);
    judge_early(running);
    return ERR_OK;
}

static struct running_effect send_effect(struct running *running,
                                         const struct collective_step *step)
{
    running->unsent[step->peer]++;
    running->unsent_count++;
    running->at++;
    return (struct running_effect){.kind = RUNNING_SEND,
                                   .rank = step->peer,
                                   .part = {.attempt = running->options.attempt,
                                            .tries = running->options.tries,
                                            .sequence = running->sequence,
                                            .round = step->round,
                                            .rank = running->options.rank,
                                            .first = step->range.first,
                                            .bytes = bytes_of(running, step)},
                                   .bytes = memory_at(running, step, 0)};
}

/* Who is waited for: who the next step receives from, else who has not taken what is sent. */
static uint32_t waited_for(const struct running *running)
{
    if (running->at < running->schedule.count)
        return running->schedule.steps[running->at].peer;
    for (uint32_t rank = 0; rank < running->options.ranks; rank++)
        if (running->unsent[rank] > 0)
            return rank;
    check_unreachable("a collective that waits for nobody is done");
}

static bool fail_effect(struct running *running, struct running_effect *ret_effect)
{
    if (running->phase != FAILED)
        return false;
    running->phase = SAID;
    *ret_effect = (struct running_effect){.kind = RUNNING_FAILED,
                                          .rank = running->blamed,
                                          .err = running->err,
                                          .reason = running->reason.text};
    return true;
}

bool running_next(struct running *running, uint64_t now_ns, struct running_effect *ret_effect)
{
    go_on(running);
    if (running->phase == UNDER_WAY && running->at < running->schedule.count) {
        const struct collective_step *step = &running->schedule.steps[running->at];
        if (step->act == COLLECTIVE_SEND) {
            *ret_effect = send_effect(running, step);
            return true;
        }
    }
    if (running->phase == UNDER_WAY && running->at == running->schedule.count &&
        running->unsent_count == 0) { /* 3 */
        running->phase = IDLE;
        *ret_effect = (struct running_effect){.kind = RUNNING_DONE};
        return true;
    }
    if (running->phase == UNDER_WAY && now_ns >= running->work.deadline_ns)
        give_up(running, waited_for(running), ERR_DEADLINE, "sent nothing before the deadline");
    return fail_effect(running, ret_effect);
}

void running_sent(struct running *running, uint32_t to)
{
    check(running->unsent[to] > 0);
    running->unsent[to]--;
    running->unsent_count--;
}

void running_lost(struct running *running, uint32_t rank)
{
    give_up(running, rank, ERR_UNREACHABLE, "can no longer be reached");
}
