/* The generators for one place, and what every program has. */
#include "common/program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void program_release(struct program *program)
{
    for (uint32_t i = 0; i < program->places_count; i++)
        free(program->places[i].rows);
    free(program->places);
    *program = (struct program){0};
}

enum err program_copy(const struct program *program, struct program *ret_copy)
{
    struct program copy = *program;
    copy.places_count = 0;
    copy.places = calloc(program->places_count + 1, sizeof *copy.places);
    if (copy.places == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < program->places_count; i++) {
        const struct program_place *from = &program->places[i];
        struct program_place *to = &copy.places[copy.places_count++];
        *to = *from;
        to->rows = malloc((from->rows_count + 1) * sizeof *to->rows);
        if (to->rows == NULL) {
            program_release(&copy);
            return ERR_NOMEM;
        }
        memcpy(to->rows, from->rows, from->rows_count * sizeof *to->rows);
    }
    *ret_copy = copy;
    return ERR_OK;
}

uint32_t program_slot(const struct program *program, struct program_row row)
{
    enum act_scope scope = act_facts(row.act)->scope;
    if (scope == ACT_OF_MICROBATCH)
        return row.microbatch / (program->microbatches / program->slots);
    return scope == ACT_OF_SLOT || scope == ACT_OF_UNIT_SLOT ? row.microbatch : 0;
}

enum err program_owners(const struct program *program, uint32_t **ret_owners)
{
    size_t cells = (size_t)program->units * program->slots;
    uint32_t *owners = calloc(cells + 1, sizeof *owners);
    if (owners == NULL)
        return ERR_NOMEM;
    for (uint32_t p = program->places_count; p-- > 0;) {
        const struct program_place *place = &program->places[p];
        for (uint32_t i = 0; i < place->rows_count; i++) {
            struct program_row row = place->rows[i];
            if ((row.act == ACT_F || row.act == ACT_E) && row.unit < program->units &&
                row.microbatch < program->microbatches)
                owners[(size_t)row.unit * program->slots + program_slot(program, row)] = p;
        }
    }
    *ret_owners = owners;
    return ERR_OK;
}

struct program_row_text program_row_text(const struct program *program, struct program_row row)
{
    struct program_row_text out;
    enum act_scope scope = row.act < ACT_COUNT ? act_facts(row.act)->scope : ACT_OF_MICROBATCH;
    const char *name = row.act < ACT_COUNT ? act_facts(row.act)->name : "?";
    bool slots = program->slots > 1;
    char unit[24] = "", slot[24] = "";
    if (scope == ACT_OF_UNIT || scope == ACT_OF_UNIT_SLOT || scope == ACT_OF_MICROBATCH)
        snprintf(unit, sizeof unit, " of unit %u", row.unit);
    if (scope == ACT_OF_MICROBATCH)
        snprintf(slot, sizeof slot, ", microbatch %u", row.microbatch);
    else if (slots && scope == ACT_OF_UNIT_SLOT)
        snprintf(slot, sizeof slot, ", slot %u", row.microbatch);
    else if (slots && scope == ACT_OF_SLOT)
        snprintf(slot, sizeof slot, " of slot %u", row.microbatch);
    snprintf(out.text, sizeof out.text, "%s%s%s", name, unit, slot);
    return out;
}

/* ---- generators ---- */

struct generator {
    struct program *program;
    struct program_place *place;
    struct program_shape shape;
    uint64_t rows_max;
};

static enum err begin_program(struct generator *g, struct program *program,
                              const struct program_shape *shape)
{
    check(shape->units > 0);
    check(shape->microbatches > 0);
    uint64_t cells = (uint64_t)shape->units * shape->microbatches;
    *program = (struct program){.units = shape->units,
                                .microbatches = shape->microbatches,
                                .slots = 1,
                                .local_steps = shape->local_steps};
    *g = (struct generator){.program = program, .shape = *shape};
    /* For each cell F, B, DROP and RC; for each unit PULL, OWN, DIFF and PUSH; LOAD, ZERO, SUM,
     * STEP and LOSS. */
    g->rows_max = 4 * cells + 4 * (uint64_t)shape->units + 5;
    program->places = calloc(1, sizeof *program->places);
    if (program->places == NULL)
        return ERR_NOMEM;
    program->places_count = 1;
    g->place = program->places;
    g->place->rows = calloc(g->rows_max, sizeof *g->place->rows);
    if (g->place->rows != NULL)
        return ERR_OK;
    program_release(program);
    return ERR_NOMEM;
}

static void emit(struct generator *g, enum act act, uint32_t unit, uint32_t microbatch)
{
    check(g->place->rows_count < g->rows_max);
    g->place->rows[g->place->rows_count++] = (struct program_row){act, unit, microbatch};
}

static void emit_push(struct generator *g, uint32_t unit)
{
    if (unit + 1 == g->shape.units)
        emit(g, ACT_LOSS, unit, 0);
    emit(g, ACT_PUSH, unit, 0);
}

static void emit_forward(struct generator *g, uint32_t microbatch)
{
    bool pulls = microbatch == 0 && g->shape.local_steps == 0;
    for (uint32_t unit = 0; unit < g->shape.units; unit++) {
        if (pulls)
            emit(g, ACT_PULL, unit, 0);
        emit(g, ACT_F, unit, microbatch);
        if (program_recomputes(g->shape.recompute, unit, g->shape.units))
            emit(g, ACT_DROP, unit, microbatch);
    }
}

static void emit_backward(struct generator *g, uint32_t microbatch)
{
    bool ends = microbatch + 1 == g->shape.microbatches;
    for (uint32_t unit = g->shape.units; unit-- > 0;) {
        bool last = unit + 1 == g->shape.units;
        if (program_recomputes(g->shape.recompute, unit, g->shape.units))
            emit(g, ACT_RC, unit, microbatch);
        emit(g, ACT_B, unit, microbatch);
        if (ends && last)
            emit(g, ACT_SUM, unit, 0);
        if (ends && g->shape.local_steps == 0)
            emit_push(g, unit);
    }
}

static void emit_gradients(struct generator *g)
{
    emit(g, ACT_LOAD, 0, 0);
    emit(g, ACT_ZERO, 0, 0);
    for (uint32_t microbatch = 0; microbatch < g->shape.microbatches; microbatch++) {
        emit_forward(g, microbatch);
        emit_backward(g, microbatch);
    }
}

static void emit_local_steps(struct generator *g)
{
    for (uint32_t unit = 0; unit < g->shape.units; unit++) {
        emit(g, ACT_PULL, unit, 0);
        emit(g, ACT_OWN, unit, 0);
    }
    g->place->body_first = g->place->rows_count;
    emit_gradients(g);
    emit(g, ACT_STEP, 0, 0);
    g->place->body_end = g->place->rows_count;
    for (uint32_t unit = g->shape.units; unit-- > 0;) {
        emit(g, ACT_DIFF, unit, 0);
        emit_push(g, unit);
    }
}

enum err program_training(struct program *program, const struct program_shape *shape)
{
    struct generator g;
    TRY(begin_program(&g, program, shape));
    if (shape->local_steps > 0)
        emit_local_steps(&g);
    else
        emit_gradients(&g);
    return ERR_OK;
}

enum err program_validation(struct program *program, const struct program_shape *shape)
{
    struct generator g;
    struct program_shape once = {.units = shape->units, .microbatches = shape->microbatches};
    TRY(begin_program(&g, program, &once));
    emit(&g, ACT_LOAD, 0, 0);
    for (uint32_t microbatch = 0; microbatch < shape->microbatches; microbatch++)
        for (uint32_t unit = 0; unit < shape->units; unit++) {
            if (microbatch == 0)
                emit(&g, ACT_PULL, unit, 0);
            emit(&g, ACT_E, unit, microbatch);
        }
    emit(&g, ACT_SUM, shape->units - 1, 0);
    return ERR_OK;
}
