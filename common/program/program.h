/* The program: the work on a node of slots, as data.
 *
 * A program has a list of rows for each place (a stage of the model). A row is an act (act.h) on a
 * unit (consecutive layers, common/model/model.h) and, for acts on activations, a microbatch. A
 * generator writes the rows, the validator proves them, the planner of memory decides where
 * activations lie, the executor walks them; another schedule is another generator. Training,
 * training with local steps and validation are three programs.
 *
 * Slots. Microbatches are numbered through the node: with two slots of four, slot 1 has 4 to 7. So
 * a pipeline need not run empty between slots. The gradients of a slot begin (CLEAR) and are final
 * (PUSH) unit by unit. Whoever walks the rows adds final slots in the tree of common/tree.h, and
 * pushes the node's sum at the last slot's PUSH: the bits of slots pushed one by one. A program of
 * one slot may also be walked once for each slot of a node. Where a unit's slots are two places'
 * (chimera), each place has an aligned half, sums it and pushes it as a node of its own.
 *
 * Places. schedule.h makes programs of several places, simulate.h plays them; an executor walks the
 * rows of one.
 *
 * Local steps. The rows of the body are walked `local_steps` times, each time on samples of their
 * own; the rows before and after are walked once. Acts then compute on the slot's own weights.
 *
 * The text form is the CSV of torch.distributed.pipelining's schedules: a line for each place, a
 * cell for each row, `<stage><act>[<microbatch>]`; a unit is written as a stage. Ours are the acts
 * that PyTorch does not have (act.h), acts without a stage (`ZERO`), and the body: it begins after
 * a cell `<local steps>(` and ends with a cell `)`. Empty cells are skipped; a semicolon ends a line,
 * too. */
#ifndef ROOST_COMMON_PROGRAM_PROGRAM_H
#define ROOST_COMMON_PROGRAM_PROGRAM_H

#include "common/buf.h"
#include "common/model/pipeline.h"
#include "common/program/act.h"

enum {
    PROGRAM_UNITS_MAX = 4096,
    PROGRAM_LOCAL_STEPS_MAX = 65536,
};

struct program_row {
    enum act act;
    uint32_t unit;       /* 0 where the act names none, likewise below */
    uint32_t microbatch; /* of the node; of an act on a slot: the slot */
    uint32_t number;     /* of the row of a file that it is or was made for, from 1; 0: of none */
};

/* What one place does. */
struct program_place {
    struct program_row *rows; /* owned */
    uint32_t rows_count;
    uint32_t body_first, body_end; /* of the rows; equal where there are no local steps */
};

struct program {
    uint32_t units;
    uint32_t microbatches; /* of all slots */
    uint32_t slots;
    uint32_t local_steps; /* 0: the slot brings a gradient */
    uint32_t places_count;
    struct program_place *places; /* owned */
};

void program_release(struct program *program);
enum err program_copy(const struct program *program, struct program *ret_copy) MUST_USE;

struct program_shape {
    uint32_t units, microbatches;
    uint32_t local_steps;
    uint32_t recompute; /* program_recomputes() */
};

/* Training in one place that holds all units: PULL before a unit's first F; for each microbatch F
 * upwards, B downwards; PUSH right after the last microbatch's B. With `recompute`, units
 * drop their activations after F and have them computed again before B. With local steps:
 * PULL and OWN of all units; in the body F and B as before, then STEP; then DIFF and PUSH.
 * ERR_NOMEM.
 */
enum err program_training(struct program *program, const struct program_shape *shape) MUST_USE;

/* Validation: PULL before a unit's first E, for each microbatch E upwards. */
enum err program_validation(struct program *program, const struct program_shape *shape) MUST_USE;

/* Whether the rows of all places together compute the gradients of each slot, each once, and in
 * microbatch order.
 *  1. An array that an act reads is there and whole. An array that it writes is not there yet, or
 *     the act changes it in place (act.h has the table). So a unit is pulled once, before its first
 *     F; F goes upwards and B downwards, each once; a B finds its activations, which were not
 *     dropped, or computed again.
 *  2. Acts add to a sum in microbatch order.
 *  3. The losses are summed, and each unit whose gradients are computed is pushed, once.
 *  4. Nothing of a microbatch is left at the end, nor at the beginning and end of the body, which
 *     can therefore be walked again.
 *  5. One place has a unit and slot: it alone computes and pushes there. Slots are pushed in order.
 *  6. A place that receives waits until the value is sent. Every place comes to its end, and what
 * is
 *     sent is received once.
 * ERR_INVALID: `reason` names the place (counted from 0, like units; where there are several), the
 * row (its number, or counted from 1) and its text. */
enum err program_validate(const struct program *program, struct reason *reason) MUST_USE;

/* Text form. Parsing does not validate beyond the limits above: units, microbatches and slots are
 * the largest numbers named, plus one. ERR_MALFORMED names line and column. */
enum err program_print(const struct program *program, struct buf *buf) MUST_USE;
enum err program_parse(struct slice text, struct program *ret_program,
                       struct reason *reason) MUST_USE;

/* Which place has a unit and slot: the first one with a forward (F, E) of it. (units × slots), to
 * be freed by the caller; place 0 where there is no forward. ERR_NOMEM. */
enum err program_owners(const struct program *program, uint32_t **ret_owners) MUST_USE;

/* The slot that a row of these scopes is about; 0 for others. */
uint32_t program_slot(const struct program *program, struct program_row row);

/* "PUSH of unit 2, slot 1", as in errors. */
struct program_row_text {
    char text[64];
};
struct program_row_text program_row_text(const struct program *program, struct program_row row);

/* Whether a unit's activations are dropped after its forward: those of every so many-th unit (0: of
 * none), but not of the model's last one. */
static inline bool program_recomputes(uint32_t every, uint32_t unit, uint32_t units)
{
    return every > 0 && unit % every == every - 1 && unit + 1 < units;
}

/* A unit's place in the model. */
static inline struct act_unit program_unit(const struct program *program, uint32_t unit)
{
    return (struct act_unit){.first = unit == 0, .last = unit + 1 == program->units};
}

#endif
