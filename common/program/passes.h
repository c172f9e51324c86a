/* What a schedule's compute acts need around them: samples, weights, zeros, values of other places,
 * recomputation, pushes.
 *
 * In each place: LOAD before a slot's first act of the model's first or last unit; PULL before a
 * unit's first F; RECV_F and SEND_F, RECV_B and SEND_B where the neighbouring unit is another
 * place's; CLEAR before the first act that adds to a slot's gradients; after the last one SUM and
 * LOSS (last unit) and PUSH. In a validation LOAD, PULL, RECV_F, SEND_E and SUM. */
#ifndef ROOST_COMMON_PROGRAM_PASSES_H
#define ROOST_COMMON_PROGRAM_PASSES_H

#include "common/program/program.h"

struct passes_options {
    uint32_t recompute; /* program_recomputes(): DROP after F, RC before B or I */
    bool offload;       /* OFF_OUT and OFF_IN, of every unit but the last; not both */
};

/* `compute` has F, B, I and W rows only, or E rows only. The result is valid when these are in a
 * possible order. ERR_NOMEM. */
enum err passes_complete(const struct program *compute, const struct passes_options *options,
                         struct program *ret_program) MUST_USE;

#endif
