#include "worker/program/simulate.h"

#include "common/scoped.h"

#include <stdlib.h>
#include <string.h>

struct simulation {
    const struct program *program;
    const struct simulate_options *options;
    struct simulate_result *result;
    uint64_t *mail;
    uint32_t *owners; /* (units, slots) */
    uint32_t *next;   /* (places) rows */
    uint64_t *clocks; /* (places) */
};

static void simulation_release(struct simulation *s)
{
    free(s->mail);
    free(s->owners);
    free(s->next);
    free(s->clocks);
}

/* ---- time ---- */

static bool is_send(enum act act)
{
    return act == ACT_SEND_F || act == ACT_SEND_E || act == ACT_SEND_B;
}

static bool is_receive(enum act act)
{
    return act == ACT_RECV_F || act == ACT_RECV_B;
}

/* By way, unit and microbatch. */
size_t simulate_mail_count(const struct program *program)
{
    return (size_t)2 * program->units * program->microbatches;
}

struct simulate_parcel simulate_parcel(const struct program *program,
                                       const struct simulate_options *options, uint64_t *mail,
                                       struct program_row row)
{
    if (!is_send(row.act) && !is_receive(row.act))
        return (struct simulate_parcel){0};
    bool forward = row.act != ACT_SEND_B && row.act != ACT_RECV_B;
    uint32_t sender = !is_receive(row.act) ? row.unit : forward ? row.unit - 1 : row.unit + 1;
    uint32_t boundary = forward ? sender : sender - 1; /* the unit whose result it is, or follows */
    size_t cell = (size_t)sender * program->microbatches + row.microbatch;
    uint64_t bytes = program_value_bytes(&options->sizes[boundary]);
    return (struct simulate_parcel){
        .there = &mail[cell + (forward ? 0 : (size_t)program->units * program->microbatches)],
        .received = is_receive(row.act),
        .bytes = bytes,
        .ticks = options->link_bytes == 0 ? 0 : bytes * options->link_ticks / options->link_bytes};
}

uint64_t simulate_act(const struct simulate_cost *cost, enum act act)
{
    if (act == ACT_F || act == ACT_RC || act == ACT_E)
        return cost->forward;
    if (act == ACT_B)
        return cost->input + cost->weights;
    return act == ACT_I ? cost->input : act == ACT_W ? cost->weights : 0;
}

/* False: the row waits for a value that is not sent yet. */
static bool walk_row(struct simulation *s, uint32_t p)
{
    struct simulate_place *place = &s->result->places[p];
    struct program_row row = s->program->places[p].rows[s->next[p]];
    uint64_t *clock = &s->clocks[p], begin = *clock;
    uint64_t cost = simulate_act(&s->options->costs[row.unit], row.act);
    struct simulate_parcel parcel = simulate_parcel(s->program, s->options, s->mail, row);
    if (parcel.received) {
        if (*parcel.there == 0)
            return false;
        begin = *parcel.there - 1 > begin ? *parcel.there - 1 : begin;
        place->arrived_bytes += parcel.bytes;
    }
    *clock = begin + cost;
    place->busy += cost;
    place->rows[s->next[p]++] = (struct simulate_span){begin, *clock};
    if (parcel.there != NULL && !parcel.received)
        *parcel.there = 1 + *clock + parcel.ticks;
    if (cost > 0 && *clock > s->result->time)
        s->result->time = *clock;
    return true;
}

static void walk(struct simulation *s)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t p = 0; p < s->program->places_count; p++)
            while (s->next[p] < s->program->places[p].rows_count && walk_row(s, p))
                moved = true;
    }
    for (uint32_t p = 0; p < s->program->places_count; p++)
        check(s->next[p] == s->program->places[p].rows_count); /* the program is valid */
}

/* ---- what is kept ---- */

static bool is_here(const struct simulation *s, uint32_t place, uint32_t unit, uint32_t slot)
{
    return unit < s->program->units && s->owners[(size_t)unit * s->program->slots + slot] == place;
}

/* A run keeps a microbatch from the forward of its first unit to the last act of that unit. */
static void count_stored(struct simulation *s, uint32_t p)
{
    const struct program_place *place = &s->program->places[p];
    struct simulate_place *result = &s->result->places[p];
    uint32_t stored = 0;
    for (uint32_t i = 0; i < place->rows_count; i++) {
        struct program_row row = place->rows[i];
        bool first = !is_here(s, p, row.unit - 1, program_slot(s->program, row));
        stored += first && row.act == ACT_F;
        if (stored > result->stored)
            result->stored = stored;
        stored -= first && (row.act == ACT_B || row.act == ACT_W);
    }
}

static enum err measure_place(struct simulation *s, uint32_t p)
{
    scoped(program_memory_release) struct program_memory memory = {0};
    count_stored(s, p);
    TRY(program_memory_plan(s->program, &s->program->places[p], s->options->sizes, &memory));
    s->result->places[p].arena_bytes = memory.arena_bytes;
    s->result->places[p].hosted_bytes = memory.hosted_bytes;
    s->result->places[p].outbox_bytes = memory.sent_bytes;
    s->result->places[p].weights_bytes = memory.weights_bytes;
    s->result->places[p].gradients_bytes = memory.gradients_bytes;
    return ERR_OK;
}

/* How many slots' gradients of a unit were begun, and are final. */
struct sums {
    uint32_t begun, ended;
};

static void begin_slot(struct sums *sums, uint32_t *most)
{
    uint32_t alive = ++sums->begun - sums->ended + (uint32_t)__builtin_popcount(sums->ended);
    *most = alive > *most ? alive : *most;
}

enum err simulate_gradient_sets(const struct program *program, uint32_t place, uint32_t *ret_sets)
{
    const struct program_place *rows = &program->places[place];
    scoped(free_scoped) struct sums *sums = calloc(program->units, sizeof *sums);
    if (sums == NULL)
        return ERR_NOMEM;
    memset(ret_sets, 0, program->units * sizeof *ret_sets);
    for (uint32_t i = 0; i < rows->rows_count; i++) {
        uint32_t unit = rows->rows[i].unit;
        if (rows->rows[i].act == ACT_CLEAR)
            begin_slot(&sums[unit], &ret_sets[unit]);
        for (uint32_t u = 0; rows->rows[i].act == ACT_ZERO && u < program->units; u++)
            begin_slot(&sums[u], &ret_sets[u]);
        sums[unit].ended += rows->rows[i].act == ACT_PUSH;
    }
    return ERR_OK;
}

/* ---- all of it ---- */

static enum err alloc_result(const struct program *program, struct simulate_result *result)
{
    *result = (struct simulate_result){.places_count = program->places_count};
    result->places = calloc(program->places_count, sizeof *result->places);
    if (result->places == NULL)
        return ERR_NOMEM;
    for (uint32_t p = 0; p < program->places_count; p++) {
        struct simulate_place *place = &result->places[p];
        place->rows = calloc(program->places[p].rows_count + 1, sizeof *place->rows);
        if (place->rows == NULL)
            return ERR_NOMEM;
    }
    return ERR_OK;
}

static enum err simulate(struct simulation *s)
{
    const struct program *program = s->program;
    s->mail = calloc(simulate_mail_count(program), sizeof *s->mail);
    s->next = calloc(program->places_count, sizeof *s->next);
    s->clocks = calloc(program->places_count, sizeof *s->clocks);
    if (s->mail == NULL || s->next == NULL || s->clocks == NULL)
        return ERR_NOMEM;
    TRY(program_owners(program, &s->owners));
    TRY(alloc_result(program, s->result));
    walk(s);
    for (uint32_t p = 0; p < program->places_count; p++)
        TRY(measure_place(s, p));
    return ERR_OK;
}

enum err simulate_program(const struct program *program, const struct simulate_options *options,
                          struct simulate_result *ret_result)
{
    struct simulate_result result = {0};
    scoped(simulation_release) struct simulation s = {
        .program = program, .options = options, .result = &result};
    enum err err = simulate(&s);
    if (err != ERR_OK) {
        simulate_release(&result);
        return err;
    }
    *ret_result = result;
    return ERR_OK;
}

void simulate_release(struct simulate_result *result)
{
    for (uint32_t p = 0; result->places != NULL && p < result->places_count; p++)
        free(result->places[p].rows);
    free(result->places);
    *result = (struct simulate_result){0};
}

double simulate_idle_share(const struct simulate_result *result)
{
    uint64_t busy = 0;
    for (uint32_t p = 0; p < result->places_count; p++)
        busy += result->places[p].busy;
    double all = (double)result->time * result->places_count;
    return all > 0 ? (all - (double)busy) / all : 0;
}

uint64_t simulate_peer_bytes(const struct simulate_result *result)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < result->places_count; p++)
        bytes += result->places[p].arrived_bytes;
    return bytes;
}
