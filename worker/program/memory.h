/* Where activations lie: offsets into one arena, decided before the run.
 *
 * So a step allocates nothing, and its peak is known from the program alone. An array's life is
 * from the act that writes it to the one that ends it (act.h); its place is given to others then.
 */
#ifndef ROOST_WORKER_PROGRAM_MEMORY_H
#define ROOST_WORKER_PROGRAM_MEMORY_H

#include "common/program/program.h"

/* Bytes that a unit needs for one microbatch: of its result, of what its forward leaves for its
 * backward, of the gradient of its input. `in_place`: that gradient takes the place of the gradient
 * of its output. `left`: what I leaves for W. */
struct program_sizes {
    uint64_t output;
    uint32_t ranges; /* of the result, of which `output` is one; 0: 1 */
    uint64_t saved;
    uint64_t dinput;
    bool in_place;
    uint64_t left;
    uint64_t weights, gradients; /* for all microbatches */
};

/* The unit's result as another place gets it: whole. */
static inline uint64_t program_value_bytes(const struct program_sizes *sizes)
{
    return sizes->output * (sizes->ranges > 1 ? sizes->ranges : 1);
}

#define PROGRAM_NOWHERE UINT64_MAX

/* Where a row finds and leaves activations, PROGRAM_NOWHERE for none. */
struct program_offsets {
    uint64_t input, output, saved, doutput, dinput, left;
    uint64_t hosted;  /* in the host's memory */
    uint64_t weights; /* among the weights; of ASK, or of PULL without one, in a streamed program */
    uint64_t gradients; /* among the gradients; of CLEAR, in a program that frees them */
};

struct program_memory {
    struct program_offsets *rows; /* owned; one a row of the place */
    uint64_t arena_bytes;
    uint64_t hosted_bytes;  /* of a second arena, in the host's memory */
    uint64_t sent_bytes;    /* of values for other places, which are kept until the lease is over */
    uint64_t weights_bytes; /* of a third one, for weights that are streamed; 0: they are not */
    uint64_t
        gradients_bytes;     /* of a fourth one, for gradients that are freed; 0: those of all units
                                 stay, because no FREE makes them less, or a unit has several slots */
    uint64_t live_bytes_max; /* predicted peak: most bytes alive at once. arena_bytes is more only
                                where what was freed does not fit what comes */
};

/* For a place of a valid program; what other places have is not in its arena. `sizes` has one entry
 * a unit. All offsets are multiples of 64. ERR_NOMEM. */
enum err program_memory_plan(const struct program *program, const struct program_place *place,
                             const struct program_sizes *sizes,
                             struct program_memory *ret_memory) MUST_USE;
void program_memory_release(struct program_memory *memory);

#endif
