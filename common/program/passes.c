#include "common/program/passes.h"

#include "common/program/writer.h"
#include "common/scoped.h"

#include <stdlib.h>
#include <string.h>

struct passes {
    const struct program *compute;
    struct passes_options options;
    struct writer writer;
    uint32_t place;
    uint32_t *owners; /* (units, slots) */
    bool *begun;      /* (units, slots): the gradients */
    bool *pulled;     /* (units), by the place */
    bool *loaded;     /* (slots), by the place */
};

static void passes_release(struct passes *passes)
{
    free(passes->owners);
    free(passes->begun);
    free(passes->pulled);
    free(passes->loaded);
}

static void add(struct passes *passes, enum act act, struct program_row row)
{
    row.act = act;
    writer_add(&passes->writer, passes->place, row);
}

/* A row about the unit and slot of `row`. */
static void add_slot(struct passes *passes, enum act act, struct program_row row)
{
    row.microbatch = program_slot(passes->compute, row);
    if (act_facts(act)->scope == ACT_OF_SLOT)
        row.unit = 0;
    add(passes, act, row);
}

static bool is_last(const struct passes *passes, struct program_row row)
{
    return row.unit + 1 == passes->compute->units;
}

/* Whether `unit`, beside the row's, is another place's in the row's slot. */
static bool elsewhere(const struct passes *passes, uint32_t unit, struct program_row row)
{
    const struct program *program = passes->compute;
    return unit < program->units &&
           passes->owners[(size_t)unit * program->slots + program_slot(program, row)] !=
               passes->place;
}

static bool kept_apart(const struct passes *passes, struct program_row row)
{
    uint32_t every = passes->options.offload ? 1 : passes->options.recompute;
    return program_recomputes(every, row.unit, passes->compute->units);
}

static void load(struct passes *passes, struct program_row row)
{
    bool *loaded = &passes->loaded[program_slot(passes->compute, row)];
    if (!*loaded && (row.unit == 0 || is_last(passes, row)))
        add_slot(passes, ACT_LOAD, row);
    *loaded |= row.unit == 0 || is_last(passes, row);
}

static void pull(struct passes *passes, struct program_row row)
{
    if (!passes->pulled[row.unit])
        add(passes, ACT_PULL, (struct program_row){.unit = row.unit, .number = row.number});
    passes->pulled[row.unit] = true;
}

static void begin(struct passes *passes, struct program_row row)
{
    const struct program *program = passes->compute;
    bool *begun = &passes->begun[(size_t)row.unit * program->slots + program_slot(program, row)];
    if (!*begun)
        add_slot(passes, ACT_CLEAR, row);
    *begun = true;
}

static void complete_forward(struct passes *passes, struct program_row row)
{
    load(passes, row);
    pull(passes, row);
    if (row.unit > 0 && elsewhere(passes, row.unit - 1, row))
        add(passes, ACT_RECV_F, row);
    if (is_last(passes, row) && row.act == ACT_F)
        begin(passes, row); /* its forward adds the head's gradients (act.h) */
    add(passes, row.act, row);
    if (elsewhere(passes, row.unit + 1, row))
        add(passes, row.act == ACT_F ? ACT_SEND_F : ACT_SEND_E, row);
    if (kept_apart(passes, row) && row.act == ACT_F)
        add(passes, passes->options.recompute ? ACT_DROP : ACT_OFF_OUT, row);
}

/* The gradient of the unit's input: I, or the first half of B. */
static void complete_input(struct passes *passes, struct program_row row)
{
    if (elsewhere(passes, row.unit + 1, row))
        add(passes, ACT_RECV_B, row);
    if (kept_apart(passes, row))
        add(passes, passes->options.recompute ? ACT_RC : ACT_OFF_IN, row);
    begin(passes, row);
    add(passes, row.act, row);
    if (row.unit > 0 && elsewhere(passes, row.unit - 1, row))
        add(passes, ACT_SEND_B, row);
}

/* After a slot's last backward, or its last E. */
static void complete_slot(struct passes *passes, struct program_row row)
{
    uint32_t microbatches = passes->compute->microbatches / passes->compute->slots;
    if ((row.microbatch + 1) % microbatches != 0)
        return;
    if (is_last(passes, row))
        add_slot(passes, ACT_SUM, row);
    if (row.act == ACT_E)
        return;
    if (is_last(passes, row))
        add_slot(passes, ACT_LOSS, row);
    add_slot(passes, ACT_PUSH, row);
}

static void complete_row(struct passes *passes, struct program_row row)
{
    bool forward = row.act == ACT_F || row.act == ACT_E;
    check(forward || row.act == ACT_B || row.act == ACT_I || row.act == ACT_W);
    if (forward)
        complete_forward(passes, row);
    if (row.act == ACT_B || row.act == ACT_I)
        complete_input(passes, row);
    if (row.act == ACT_W)
        add(passes, ACT_W, row);
    if (row.act == ACT_E || row.act == ACT_B || row.act == ACT_W)
        complete_slot(passes, row);
}

static void complete_places(struct passes *passes)
{
    const struct program *compute = passes->compute;
    for (passes->place = 0; passes->place < compute->places_count; passes->place++) {
        const struct program_place *place = &compute->places[passes->place];
        memset(passes->pulled, 0, compute->units * sizeof *passes->pulled);
        memset(passes->loaded, 0, compute->slots * sizeof *passes->loaded);
        for (uint32_t i = 0; i < place->rows_count; i++)
            complete_row(passes, place->rows[i]);
    }
}

enum err passes_complete(const struct program *compute, const struct passes_options *options,
                         struct program *ret_program)
{
    scoped(passes_release) struct passes passes = {.compute = compute, .options = *options};
    check(!(options->recompute && options->offload));
    TRY(program_owners(compute, &passes.owners));
    passes.begun = calloc((size_t)compute->units * compute->slots, sizeof *passes.begun);
    passes.pulled = calloc(compute->units, sizeof *passes.pulled);
    passes.loaded = calloc(compute->slots, sizeof *passes.loaded);
    if (passes.begun == NULL || passes.pulled == NULL || passes.loaded == NULL)
        return ERR_NOMEM;
    TRY(writer_init(&passes.writer, compute));
    complete_places(&passes);
    return writer_finish(&passes.writer, ret_program);
}
