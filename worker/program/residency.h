/* Where a place's weights are between their uses: in the device's memory, or streamed.
 *
 * Streamed, a place holds the weights of the units that it computes next: they are asked for some
 * units ahead (ASK), are in place when the unit is computed (PULL), and are forgotten after it
 * (FORGET). Every use pulls again: ZeRO-3 (Rajbhandari et al. 2020, section 5.3), FSDP (Zhao et al.
 * 2023); kept from forward to backward it is FSDP's SHARD_GRAD_OP. Weights keep their version, so
 * the bits are the same.
 *
 * Gradients are freed likewise, which is ZeRO-2: before a unit's gradients begin (CLEAR), those
 * that were pushed are with the servers (FREE), but for as many units as are asked for ahead. A
 * unit that a node has several slots of is not freed: the slots' sums stay. Nor is anything freed
 * where all units' gradients begin before the first are final: microbatch by microbatch. */
#ifndef ROOST_WORKER_PROGRAM_RESIDENCY_H
#define ROOST_WORKER_PROGRAM_RESIDENCY_H

#include "common/program/program.h"

struct residency {
    bool streamed;
    bool keep_after_forward; /* until the unit's backward */
    bool by_unit;      /* a unit's microbatches one after another, where the schedule lets them */
    uint32_t prefetch; /* units that are asked for ahead of the one that is computed, or pushed and
                          not freed behind it */
};

/* Consecutive forwards (or backwards) of compute acts, unit by unit instead of microbatch by
 * microbatch. In place. */
void residency_order(struct program *compute);

/* The program with ASK, PULL and FORGET around each use instead of its PULL rows, and FREE. The
 * units of `program` are pulled before their first use, as passes.h has it. ERR_NOMEM. */
enum err residency_stream(const struct program *program, const struct residency *residency,
                          struct program *ret_program) MUST_USE;

#endif
