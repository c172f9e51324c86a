/* The program: what one worker does over one slot of a ticket, as data.
 *
 * A program is a list of rows. A row is an act on a unit (consecutive layers, common/model/model.h)
 * and, for acts on activations, a microbatch. A generator writes the rows, the validator proves
 * them, the executor walks them; who wants another schedule writes another generator.
 *
 *   act   text          meaning
 *   F     2F0           forward of unit 2, microbatch 0
 *   B     2B0           backward: gradient of its input and of its weights
 *   RC    2RC0          its activations again, from its input, after DROP
 *   DROP  2DROP0        its activations are forgotten, its input is kept
 *   PULL  2UNSHARD      the unit's weights are in place when this row ends
 *   PUSH  2REDUCE_GRAD  the unit's gradients are final for the slot
 *
 * The text form is the CSV of torch.distributed.pipelining's schedules: a line for each rank
 * (here one), a cell for each row, `<stage><act>[<microbatch>]`; a unit is written as a stage.
 * RC and DROP are ours. Empty cells are skipped. */
#ifndef ROOST_WORKER_PROGRAM_PROGRAM_H
#define ROOST_WORKER_PROGRAM_PROGRAM_H

#include "common/buf.h"

#include <stdbool.h>

enum { PROGRAM_UNITS_MAX = 4096, PROGRAM_MICROBATCHES_MAX = 65536, PROGRAM_ROWS_MAX = 1 << 20 };

enum act { ACT_F, ACT_B, ACT_RC, ACT_DROP, ACT_PULL, ACT_PUSH, ACT_COUNT };

const char *act_name(enum act act);      /* "PULL" */
bool act_names_microbatch(enum act act); /* false: PULL, PUSH */

struct row {
    enum act act;
    uint32_t unit;
    uint32_t microbatch; /* 0 where the act names none */
};

struct program {
    uint32_t units;
    uint32_t microbatches;
    uint32_t rows_count;
    struct row *rows; /* owned */
};

void program_release(struct program *program);

/* One stage that holds all units: PULL before a unit's first F; for each microbatch F upwards, B
 * downwards; PUSH right after the last microbatch's B. With `recompute`, every unit but the last
 * drops its activations after F and has them computed again before B. ERR_NOMEM. */
enum err program_generate(struct program *program, uint32_t units, uint32_t microbatches,
                          bool recompute) MUST_USE;

/* Whether the rows compute the slot's gradients, each once, and in microbatch order:
 *  1. a unit is pulled, once, before its first F;
 *  2. F of a microbatch runs once, upwards through the units; B once, downwards, after F of
 *     the last unit;
 *  3. backward finds the unit's activations: DROP after F, then RC before B, or neither;
 *  4. what adds to a unit's gradients (B; the last unit's F) runs in microbatch order;
 *  5. each unit is pushed once, after the last of them.
 * ERR_INVALID: `reason` names the row (counted from 1) and its text. */
enum err program_validate(const struct program *program, struct reason *reason) MUST_USE;

/* Text form. Parsing does not validate beyond the limits above: units and microbatches are the
 * largest numbers named, plus one. ERR_MALFORMED names line and column. */
enum err program_print(const struct program *program, struct buf *buf) MUST_USE;
enum err program_parse(struct slice text, struct program *ret_program,
                       struct reason *reason) MUST_USE;

/* Bytes that a unit needs for one microbatch.
 * - output: its result, the next unit's input; alive from F to the unit's own backward.
 * - saved: what F leaves for backward; alive from F or RC to backward or DROP.
 * - dinput: gradient of its input = of the previous unit's output; alive from its backward (the
 *   last unit's: from its F) to the previous unit's. With `in_place` it is computed in the place of
 *   the gradient of its output. */
struct program_sizes {
    uint64_t output;
    uint64_t saved;
    uint64_t dinput;
    bool in_place;
};

#define PROGRAM_NOWHERE UINT64_MAX

/* Where a row finds and leaves activations: offsets into the arena, PROGRAM_NOWHERE for none. */
struct program_place {
    uint64_t input, output, saved, doutput, dinput;
};

/* All activations of a program in one arena; a place is reused as soon as it is free. */
struct program_places {
    struct program_place *rows; /* owned; one a row */
    uint64_t arena_bytes;       /* high-water mark of the places */
    uint64_t live_bytes_max; /* predicted peak: most bytes alive at once. arena_bytes is more only
                                where what was freed does not fit what comes */
};

/* Places for a valid program; `sizes` has one entry a unit. All offsets are multiples of 64.
 * ERR_NOMEM. */
enum err program_place(const struct program *program, const struct program_sizes *sizes,
                       struct program_places *ret_places) MUST_USE;
void program_places_release(struct program_places *places);

/* Rows of an act. */
uint32_t program_count(const struct program *program, enum act act);

#endif
