/* Schedules: who computes what when, in a pipeline of places.
 *
 * A generator makes the compute acts alone (F, B, or I and W); passes.h adds what they need. The
 * model's units are cut into places × runs consecutive runs; run r belongs to place r mod places.
 * Below, P is the number of places and N of microbatches; times are with F 1 and B 2 (I = W = 1).
 *
 *   naive        one microbatch at a time: N·3P
 *   gpipe        all forwards, then all backwards (Huang et al. 2019): 3(N + P − 1); place p keeps
 * N 1f1b         place p goes P − 1 − p forwards ahead, then a backward follows each forward
 *                (PipeDream-Flush: Narayanan et al. 2021): 3(N + P − 1); place p keeps P − p
 *   interleaved  v runs a place, each 1/v of the time (Megatron-LM: Narayanan et al. 2021, section
 *                2.2): 3(N + (P − 1)/v); for N a multiple of P
 *   zb-h1        as 1f1b, but place p does p of its W later (Qi et al. 2023, section 2.2):
 *                3N + P − 1; every place keeps P; for N ≥ P
 *   chimera      two half nodes run opposite ways, so that each place has a run of both (Li and
 *                Hoefler 2021): with N = P 3N + 2(P − 2), and 3P − 2 where B takes as long as F
 *
 * Without the losses' fused backward: the last unit's F does a part of its B (act.h), which
 * measured costs have and these formulas have not. */
#ifndef ROOST_WORKER_PROGRAM_SCHEDULE_H
#define ROOST_WORKER_PROGRAM_SCHEDULE_H

#include "common/program/program.h"

/* Run r is units cuts[r] to cuts[r + 1] − 1; (places × runs + 1) cuts. The shape is judged.
 * ERR_NOMEM.
 */
enum err schedule_generate(const struct schedule_shape *shape, const uint32_t *cuts,
                           struct program *ret_program) MUST_USE;

/* Validation: forward alone (E), a run after the other, whatever the schedule. ERR_NOMEM. */
enum err schedule_validation(const struct schedule_shape *shape, const struct pipeline_runs *runs,
                             struct program *ret_program) MUST_USE;

#endif
