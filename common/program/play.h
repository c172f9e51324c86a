/* The state of a validation: which arrays are there, and what a row does to them. */
#ifndef ROOST_COMMON_PROGRAM_PLAY_H
#define ROOST_COMMON_PROGRAM_PLAY_H

#include "common/program/program.h"

/* Sets of arrays. */
struct state {
    uint32_t there;
    uint32_t whole; /* of them: nothing is missing */
};

/* Of places that are played in turn: how far each is. */
struct play {
    const struct program *program;
    uint32_t slot_microbatches;
    uint32_t *owners;              /* (units, slots) */
    struct state *cells;           /* (units, microbatches) */
    struct state *slots;           /* (units, slots) */
    struct state *held;            /* (places, units) */
    uint32_t (*added)[ARRAY_SUMS]; /* (units, slots) microbatches in each sum */
    uint32_t *next;                /* (places) the row that comes next */
    uint32_t place;                /* that is played */
};

/* The program has units, microbatches, slots and places, and slots divide the microbatches.
 * ERR_NOMEM, then too play_release(). */
enum err play_init(struct play *play, const struct program *program) MUST_USE;
void play_release(struct play *play);

/* The place that has a unit and slot. */
uint32_t play_owner(const struct play *play, uint32_t unit, uint32_t slot);

/* Whether the place's row, which names what there is, receives what is not sent yet. */
bool play_waits(const struct play *play, struct program_row row);
/* Plays a row of the place; what is wrong with it, or NULL. */
const char *play_row(struct play *play, struct program_row row);

/* What is wrong when this set of arrays is left at the end; NULL: nothing. */
const char *play_left(uint32_t set);

#endif
