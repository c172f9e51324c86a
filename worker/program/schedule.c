#include "worker/program/schedule.h"

#include "common/program/writer.h"
#include "common/scoped.h"
#include "common/tree.h"

#include <stdlib.h>

struct generator {
    struct schedule_shape shape;
    const uint32_t *cuts;
    struct writer writer;
};

/* One act of a place on one of its runs and a microbatch. */
struct turn {
    enum act act;
    uint32_t run, microbatch;
};

static void emit(struct generator *g, uint32_t place, struct turn turn)
{
    writer_add_run(
        &g->writer, place, g->cuts,
        (struct program_row){.act = turn.act, .unit = turn.run, .microbatch = turn.microbatch});
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- one forward, one backward ---- */

/* So many forwards ahead, then a backward after each forward: turn i of 2 × microbatches. */
static struct turn turn_of(uint32_t i, uint32_t ahead, uint32_t microbatches)
{
    uint32_t paired = 2 * (microbatches - ahead);
    if (i < ahead)
        return (struct turn){.act = ACT_F, .microbatch = i};
    i -= ahead;
    if (i >= paired)
        return (struct turn){.act = ACT_B, .microbatch = microbatches - ahead + i - paired};
    return i % 2 == 0 ? (struct turn){.act = ACT_F, .microbatch = ahead + i / 2}
                      : (struct turn){.act = ACT_B, .microbatch = i / 2};
}

static void emit_ahead(struct generator *g, uint32_t place, uint32_t ahead)
{
    uint32_t microbatches = g->shape.microbatches;
    for (uint32_t i = 0; i < 2 * microbatches; i++) {
        struct turn turn = turn_of(i, smaller(ahead, microbatches), microbatches);
        turn.run = place;
        emit(g, place, turn);
    }
}

static enum err generate_naive(struct generator *g)
{
    for (uint32_t place = 0; place < g->shape.places; place++)
        emit_ahead(g, place, 0);
    return ERR_OK;
}

static enum err generate_gpipe(struct generator *g)
{
    for (uint32_t place = 0; place < g->shape.places; place++)
        emit_ahead(g, place, g->shape.microbatches);
    return ERR_OK;
}

static enum err generate_1f1b(struct generator *g)
{
    for (uint32_t place = 0; place < g->shape.places; place++)
        emit_ahead(g, place, g->shape.places - 1 - place);
    return ERR_OK;
}

/* ---- interleaved ---- */

/* Microbatches go in groups of `places`: a group passes all runs of a place before the next one. */
static struct turn turn_in_groups(const struct schedule_shape *shape, uint32_t place, uint32_t i)
{
    uint32_t group = i / (shape->places * shape->runs), rest = i % (shape->places * shape->runs);
    return (struct turn){.act = ACT_F,
                         .run = rest / shape->places * shape->places + place,
                         .microbatch = group * shape->places + rest % shape->places};
}

/* Backwards pass the runs the other way round. */
static struct turn turn_back(const struct schedule_shape *shape, uint32_t place, uint32_t i)
{
    struct turn turn = turn_in_groups(shape, place, i);
    turn.act = ACT_B;
    turn.run = (shape->runs - 1) * shape->places + 2 * place - turn.run;
    return turn;
}

static enum err generate_interleaved(struct generator *g)
{
    const struct schedule_shape *shape = &g->shape;
    uint32_t all = shape->microbatches * shape->runs;
    for (uint32_t place = 0; place < shape->places; place++) {
        uint32_t ahead = 2 * (shape->places - 1 - place) + (shape->runs - 1) * shape->places;
        if (shape->runs == 1)
            ahead = shape->places - 1 - place;
        for (uint32_t i = 0; i < 2 * all; i++) {
            struct turn turn = turn_of(i, smaller(ahead, all), all);
            bool forward = turn.act == ACT_F;
            emit(g, place, (forward ? turn_in_groups : turn_back)(shape, place, turn.microbatch));
        }
    }
    return ERR_OK;
}

/* ---- zero bubble ---- */

static enum err generate_zb_h1(struct generator *g)
{
    uint32_t microbatches = g->shape.microbatches;
    for (uint32_t place = 0; place < g->shape.places; place++) {
        uint32_t ahead = smaller(g->shape.places - 1 - place, microbatches), weights = 0;
        for (uint32_t i = 0; i < 2 * microbatches; i++) {
            struct turn turn = turn_of(i, ahead, microbatches);
            turn.run = place;
            if (turn.act == ACT_F) {
                emit(g, place, turn);
                continue;
            }
            emit(g, place, (struct turn){ACT_I, place, turn.microbatch});
            if (turn.microbatch >= place)
                emit(g, place, (struct turn){ACT_W, place, weights++});
        }
        while (weights < microbatches)
            emit(g, place, (struct turn){ACT_W, place, weights++});
    }
    return ERR_OK;
}

/* ---- chimera ---- */

/* Two pipelines of 1f1b, merged as they would run if each act took the same time. */
struct chimera {
    struct generator *g;
    uint32_t microbatches; /* of a half */
    uint32_t time;
    uint32_t *next; /* (places, 2): the turn of each half that comes next */
    uint32_t *ends; /* (2 halves, runs, F or B, microbatches): when it ends; 0: not yet */
};

enum { DOWN, UP };

/* The run that a place has of a half. */
static uint32_t run_of(const struct chimera *c, uint32_t place, uint32_t half)
{
    return half == DOWN ? place : c->g->shape.places - 1 - place;
}

static uint32_t *turn_ends(const struct chimera *c, uint32_t half, struct turn turn)
{
    size_t line = ((size_t)half * c->g->shape.places + turn.run) * 2 + (turn.act == ACT_B);
    return &c->ends[line * c->microbatches + turn.microbatch];
}

/* What the half's next turn at a place is; false: none, or its input is not there. At most P / 2
 * forwards go ahead in a half, so that a place keeps P at most. */
static bool turn_ready(const struct chimera *c, uint32_t place, uint32_t half,
                       struct turn *ret_turn)
{
    uint32_t places = c->g->shape.places, run = run_of(c, place, half);
    uint32_t ahead = smaller(smaller(places - 1 - run, places / 2 - 1), c->microbatches);
    uint32_t i = c->next[2 * place + half];
    if (i == 2 * c->microbatches)
        return false;
    struct turn turn = turn_of(i, ahead, c->microbatches);
    turn.run = run;
    *ret_turn = turn;
    if (turn.run == (turn.act == ACT_F ? 0 : places - 1))
        return true;
    struct turn input = turn;
    input.run += turn.act == ACT_F ? -1U : 1;
    uint32_t end = *turn_ends(c, half, input);
    return end > 0 && end <= c->time;
}

/* A backward comes before a forward, then the lower microbatch. */
static bool comes_before(struct turn a, struct turn b)
{
    if (a.act != b.act)
        return a.act == ACT_B;
    return a.microbatch < b.microbatch;
}

static bool take_turn(struct chimera *c, uint32_t place)
{
    struct turn turns[2];
    bool ready[2] = {turn_ready(c, place, DOWN, &turns[DOWN]),
                     turn_ready(c, place, UP, &turns[UP])};
    if (!ready[DOWN] && !ready[UP])
        return false;
    uint32_t half = ready[DOWN] && !(ready[UP] && comes_before(turns[UP], turns[DOWN])) ? DOWN : UP;
    struct turn turn = turns[half];
    *turn_ends(c, half, turn) = c->time + 1;
    c->next[2 * place + half]++;
    turn.microbatch += half * c->microbatches;
    emit(c->g, place, turn);
    return true;
}

static enum err generate_chimera(struct generator *g)
{
    uint32_t places = g->shape.places;
    struct chimera c = {.g = g, .microbatches = g->shape.microbatches / 2};
    size_t turns = (size_t)4 * places * c.microbatches;
    scoped(free_scoped) void *next = c.next = calloc(places, 2 * sizeof *c.next);
    scoped(free_scoped) void *ends = c.ends = calloc(turns, sizeof *c.ends);
    if (next == NULL || ends == NULL)
        return ERR_NOMEM;
    for (size_t taken = 0; taken < turns; c.time++)
        for (uint32_t place = 0; place < places; place++)
            taken += take_turn(&c, place);
    return ERR_OK;
}

/* ---- the table ---- */

static enum err (*const generate[SCHEDULE_COUNT])(struct generator *g) = {
    [SCHEDULE_NAIVE] = generate_naive, [SCHEDULE_GPIPE] = generate_gpipe,
    [SCHEDULE_1F1B] = generate_1f1b,   [SCHEDULE_INTERLEAVED] = generate_interleaved,
    [SCHEDULE_ZB_H1] = generate_zb_h1, [SCHEDULE_CHIMERA] = generate_chimera,
};

static enum err begin(struct generator *g, const struct schedule_shape *shape, const uint32_t *cuts)
{
    const struct program about = {.units = shape->units,
                                  .microbatches = shape->microbatches,
                                  .slots = shape->slots,
                                  .places_count = shape->places};
    *g = (struct generator){.shape = *shape, .cuts = cuts};
    return writer_init(&g->writer, &about);
}

enum err schedule_generate(const struct schedule_shape *shape, const uint32_t *cuts,
                           struct program *ret_program)
{
    struct generator g;
    check(cuts[0] == 0 && cuts[(size_t)shape->places * shape->runs] == shape->units);
    TRY(begin(&g, shape, cuts));
    enum err err = generate[shape->schedule](&g);
    if (err != ERR_OK)
        g.writer.err = err;
    return writer_finish(&g.writer, ret_program);
}

enum err schedule_validation(const struct schedule_shape *shape, const struct pipeline_runs *runs,
                             struct program *ret_program)
{
    struct generator g;
    check(runs->cuts[0] == 0 && runs->cuts[runs->count] == shape->units);
    TRY(begin(&g, shape, runs->cuts));
    for (uint32_t run = 0; run < runs->count; run++)
        for (uint32_t microbatch = 0; microbatch < shape->microbatches; microbatch++)
            emit(&g, runs->places[run], (struct turn){ACT_E, run, microbatch});
    return writer_finish(&g.writer, ret_program);
}
