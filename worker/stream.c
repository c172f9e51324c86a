#include "worker/stream.h"

#include "common/scoped.h"
#include "worker/turn_rules.h"

#include <stdlib.h>

/* A place of a lease. */
struct stream_part {
    bool begun, done;
    uint32_t next;       /* row */
    uint64_t ready;      /* the next row's inputs are there, and the one before it has ended */
    uint32_t stored;     /* activations */
    enum act act;        /* the newest that computes, */
    uint32_t microbatch; /* and of which */
};

struct stream {
    const struct program *program;
    const struct stream_options *options;
    uint32_t leases;
    struct stream_part *parts; /* (places, leases) */
    uint64_t *clocks;          /* (places): the device is free */
    struct turn_room *rooms;   /* (places) */
    uint64_t *mail;   /* (leases, ways, units, microbatches): 1 + when it is there; 0: not sent */
    uint64_t *over;   /* (leases) 1 + when; 0: not yet */
    uint64_t *latest; /* (leases) of those before `first`: the latest up to that one */
    uint32_t first;   /* all before this one are over */
    uint32_t end;     /* none from this one on is granted yet */
};

static void stream_release(struct stream *s)
{
    free(s->parts);
    free(s->clocks);
    free(s->rooms);
    free(s->mail);
    free(s->over);
    free(s->latest);
}

static struct stream_part *part_of(const struct stream *s, uint32_t place, uint32_t lease)
{
    return &s->parts[(size_t)place * s->leases + lease];
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- leases ---- */

/* A member shares so many. */
static uint32_t shared(const struct stream *s)
{
    return s->options->delay + 1;
}

/* S9: as many leases at a time as versions overlap, and all of the steps before those are over. 0: not
 * yet; else 1 + when. */
static uint64_t granted(const struct stream *s, uint32_t lease)
{
    uint32_t step = lease / s->options->nodes, delay = s->options->delay;
    uint32_t before = step > delay ? (step - delay) * s->options->nodes : 0;
    uint64_t when = 1;
    if (before > s->first || (lease >= shared(s) && s->over[lease - shared(s)] == 0))
        return 0;
    when = before > 0 ? later(when, s->latest[before - 1]) : when;
    return lease >= shared(s) ? later(when, s->over[lease - shared(s)]) : when;
}

static void note_over(struct stream *s, uint32_t lease, uint64_t when)
{
    uint32_t end = lease + 1 + shared(s);
    s->over[lease] = 1 + when;
    s->end = end > s->end ? end : s->end;
    s->end = s->end < s->leases ? s->end : s->leases;
    for (; s->first < s->leases && s->over[s->first] > 0; s->first++)
        s->latest[s->first] = later(s->over[s->first], s->first > 0 ? s->latest[s->first - 1] : 0);
}

static void begin_part(const struct stream *s, uint32_t place, uint32_t lease)
{
    struct stream_part *part = part_of(s, place, lease);
    uint32_t lanes = s->options->lanes[place];
    const struct stream_part *before = lease >= lanes ? part_of(s, place, lease - lanes) : NULL;
    if (part->begun || (before != NULL && !before->done))
        return;
    uint64_t when = granted(s, lease);
    if (when == 0)
        return;
    part->begun = true;
    part->ready = before != NULL ? later(when - 1, before->ready) : when - 1;
}

static void end_part(struct stream *s, uint32_t place, uint32_t lease)
{
    part_of(s, place, lease)->done = true;
    uint64_t when = 0;
    for (uint32_t p = 0; p < s->program->places_count; p++) {
        if (!part_of(s, p, lease)->done)
            return;
        when = later(when, part_of(s, p, lease)->ready);
    }
    note_over(s, lease, when);
}

/* ---- rows ---- */

static const struct program_row *next_row(const struct stream *s, uint32_t place, uint32_t lease)
{
    return &s->program->places[place].rows[part_of(s, place, lease)->next];
}

static uint64_t cost_of(const struct stream *s, const struct program_row *row)
{
    return simulate_act(&s->options->simulate->costs[row->unit], row->act);
}

static void pass(struct stream *s, uint32_t place, uint32_t lease)
{
    struct stream_part *part = part_of(s, place, lease);
    const struct program_row *row = next_row(s, place, lease);
    part->stored = turn_stored(part->stored, row->act);
    part->next++;
}

/* Rows that take no time, as far as what they wait for is sent. */
static void pass_free(struct stream *s, uint32_t place, uint32_t lease)
{
    struct stream_part *part = part_of(s, place, lease);
    uint64_t *mail = s->mail + lease * simulate_mail_count(s->program);
    while (part->next < s->program->places[place].rows_count) {
        const struct program_row *row = next_row(s, place, lease);
        struct simulate_parcel parcel =
            simulate_parcel(s->program, s->options->simulate, mail, *row);
        if (cost_of(s, row) > 0 || (parcel.received && *parcel.there == 0))
            return;
        if (parcel.received)
            part->ready = later(part->ready, *parcel.there - 1);
        else if (parcel.there != NULL)
            *parcel.there = 1 + part->ready + parcel.ticks;
        pass(s, place, lease);
    }
    end_part(s, place, lease);
}

static void compute(struct stream *s, uint32_t place, uint32_t lease)
{
    struct stream_part *part = part_of(s, place, lease);
    const struct program_row *row = next_row(s, place, lease);
    part->act = row->act;
    part->microbatch = row->microbatch;
    part->ready = s->clocks[place] = later(part->ready, s->clocks[place]) + cost_of(s, row);
    pass(s, place, lease);
    pass_free(s, place, lease);
}

/* ---- whose turn it is ---- */

/* Its next row computes, and has all that it needs. */
static bool can_compute(const struct stream *s, uint32_t place, uint32_t lease)
{
    const struct stream_part *part = part_of(s, place, lease);
    return part->begun && !part->done && cost_of(s, next_row(s, place, lease)) > 0;
}

/* As turn.h has it. */
static bool is_early(const struct stream *s, uint32_t place, uint32_t lease)
{
    uint32_t stored = 0;
    bool has_older = false;
    for (uint32_t i = s->first; i < s->end; i++) {
        const struct stream_part *part = part_of(s, place, i);
        bool computes = part->begun && !part->done;
        stored += computes ? part->stored : 0;
        has_older = has_older || (computes && i < lease);
    }
    struct turn_room room = s->rooms[place];
    return next_row(s, place, lease)->act == ACT_F && has_older && stored + room.each > room.most;
}

struct turn_of {
    uint32_t place, lease;
    uint64_t at;
};

/* The oldest lease that can go on when the device is free, or the one that can first. `in_vain`:
 * also forwards that are early, because nothing else can go on. */
static bool next_at(const struct stream *s, uint32_t place, bool in_vain, struct turn_of *ret_turn)
{
    bool found = false;
    for (uint32_t lease = s->first; lease < s->end; lease++) {
        if (!can_compute(s, place, lease) || (!in_vain && is_early(s, place, lease)))
            continue;
        uint64_t at = later(part_of(s, place, lease)->ready, s->clocks[place]);
        if (!found || at < ret_turn->at)
            *ret_turn = (struct turn_of){place, lease, at};
        found = true;
    }
    return found;
}

static bool next_turn(const struct stream *s, bool in_vain, struct turn_of *ret_turn)
{
    bool found = false;
    for (uint32_t place = 0; place < s->program->places_count; place++) {
        struct turn_of turn;
        if (!next_at(s, place, in_vain, &turn) || (found && turn.at >= ret_turn->at))
            continue;
        *ret_turn = turn;
        found = true;
    }
    return found;
}

static void look(struct stream *s)
{
    for (uint32_t place = 0; place < s->program->places_count; place++)
        for (uint32_t lease = s->first; lease < s->end; lease++) {
            begin_part(s, place, lease);
            const struct stream_part *part = part_of(s, place, lease);
            if (part->begun && !part->done)
                pass_free(s, place, lease);
        }
}

/* Times ascend: what is sent before a turn is known when it is given. */
static void walk(struct stream *s)
{
    struct turn_of turn;
    for (look(s); next_turn(s, false, &turn) || next_turn(s, true, &turn); look(s)) {
        const struct stream_part *part = part_of(s, turn.place, turn.lease);
        do
            compute(s, turn.place, turn.lease);
        while (can_compute(s, turn.place, turn.lease) &&
               turn_goes_on(part->act, part->microbatch, next_row(s, turn.place, turn.lease)));
    }
}

enum err stream_simulate(const struct program *program, const struct stream_options *options,
                         uint64_t *ret_ends)
{
    uint32_t places = program->places_count, leases = options->steps * options->nodes;
    scoped(stream_release) struct stream s = {
        .program = program, .options = options, .leases = leases};
    s.end = shared(&s) < leases ? shared(&s) : leases;
    s.parts = calloc((size_t)places * leases, sizeof *s.parts);
    s.clocks = calloc(places, sizeof *s.clocks);
    s.rooms = calloc(places, sizeof *s.rooms);
    s.mail = calloc(leases * simulate_mail_count(program), sizeof *s.mail);
    s.over = calloc(leases, sizeof *s.over);
    s.latest = calloc(leases, sizeof *s.latest);
    if (s.parts == NULL || s.clocks == NULL || s.rooms == NULL || s.mail == NULL ||
        s.over == NULL || s.latest == NULL)
        return ERR_NOMEM;
    for (uint32_t place = 0; place < places; place++)
        s.rooms[place] = turn_room(options->mesh, program, place);
    walk(&s);
    for (uint32_t i = 0; i < leases; i++) {
        uint64_t *end = &ret_ends[i / options->nodes];
        check(s.over[i] > 0); /* the program is valid */
        *end = i % options->nodes == 0 ? s.over[i] - 1 : later(*end, s.over[i] - 1);
    }
    return ERR_OK;
}
