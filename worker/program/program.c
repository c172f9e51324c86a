/* Acts, the generator for one stage, and counting. */
#include "worker/program/program.h"

#include <stdlib.h>

static const struct {
    const char *name;
    bool names_microbatch;
} acts[ACT_COUNT] = {
    [ACT_F] = {"F", true},       [ACT_B] = {"B", true},        [ACT_RC] = {"RC", true},
    [ACT_DROP] = {"DROP", true}, [ACT_PULL] = {"PULL", false}, [ACT_PUSH] = {"PUSH", false},
};

const char *act_name(enum act act)
{
    check(act < ACT_COUNT);
    return acts[act].name;
}

bool act_names_microbatch(enum act act)
{
    check(act < ACT_COUNT);
    return acts[act].names_microbatch;
}

void program_release(struct program *program)
{
    free(program->rows);
    *program = (struct program){0};
}

uint32_t program_count(const struct program *program, enum act act)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < program->rows_count; i++)
        count += program->rows[i].act == act;
    return count;
}

static void emit(struct program *program, enum act act, uint32_t unit, uint32_t microbatch)
{
    program->rows[program->rows_count++] = (struct row){act, unit, microbatch};
}

static void emit_forward(struct program *program, uint32_t microbatch, bool recompute)
{
    for (uint32_t unit = 0; unit < program->units; unit++) {
        if (microbatch == 0)
            emit(program, ACT_PULL, unit, 0);
        emit(program, ACT_F, unit, microbatch);
        if (recompute && unit + 1 < program->units)
            emit(program, ACT_DROP, unit, microbatch);
    }
}

static void emit_backward(struct program *program, uint32_t microbatch, bool recompute)
{
    for (uint32_t unit = program->units; unit-- > 0;) {
        if (recompute && unit + 1 < program->units)
            emit(program, ACT_RC, unit, microbatch);
        emit(program, ACT_B, unit, microbatch);
        if (microbatch + 1 == program->microbatches)
            emit(program, ACT_PUSH, unit, 0);
    }
}

enum err program_generate(struct program *program, uint32_t units, uint32_t microbatches,
                          bool recompute)
{
    check(units > 0);
    check(microbatches > 0);
    uint64_t rows = 2 * (uint64_t)units + (recompute ? 4 : 2) * (uint64_t)units * microbatches;
    struct program made = {.units = units, .microbatches = microbatches};
    made.rows = calloc(rows, sizeof *made.rows);
    if (made.rows == NULL)
        return ERR_NOMEM;
    for (uint32_t microbatch = 0; microbatch < microbatches; microbatch++) {
        emit_forward(&made, microbatch, recompute);
        emit_backward(&made, microbatch, recompute);
    }
    *program = made;
    return ERR_OK;
}
