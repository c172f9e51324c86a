/* How far the run is: its version, the sums of the open steps, the newest decision and the counters
 * that the next one is computed from (P8). Callers decide when; only this file writes struct steps.
 * Internal to the coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_STEPS_H
#define ROOST_SERVER_COORDINATOR_STEPS_H

#include "server/coordinator/run.h"

enum err steps_init(struct run *run) MUST_USE; /* ERR_NOMEM */
void steps_release(struct run *run);

/* Puts the run where that cut is: its version and its counters, and nothing else. */
void steps_rewind(struct run *run, const struct cut_record *cut);
/* The same for a coordinator that follows another: where the newest cut is. */
void steps_follow(struct run *run, const struct coordinator_past *past);
/* Puts the run at `version`, after `decision` (NULL: after the cut), which is sent again in `term`.
 * The coordinator before may have granted tickets that this one does not know. */
void steps_adopt(struct run *run, uint64_t version, const struct commit *decision, uint64_t term);
/* The version that a stop drops, where it is above that of the newest cut: also what a rewind left and
 * nobody has done again. */
uint64_t steps_dropped(const struct run *run);
/* The newest decision is a cut, also one that was adopted without it. */
void steps_cut(struct run *run);
/* The newest decision is sent again in that term. */
void steps_raise_term(struct run *run, uint64_t term);
/* The step's duration counts from now on. */
void steps_time(struct run *run, uint64_t now_ms);
/* A ticket of that step is granted. */
void steps_granted(struct run *run, uint64_t step);

/* A server has reported what is reduced of an open step. ERR_MALFORMED: no such chunk. */
enum err steps_reduced(struct run *run, const struct reduced *reduced) MUST_USE;
/* P12: the chunks of this server may have lost what they were about to seal. */
void steps_unseal(struct run *run, uint32_t map_index);

/* The decision for step `version`, without its cut, and the counters after it (P8). ERR_NON_FINITE:
 * too many in a row, and the run is to end. */
enum err steps_decide(struct coordinator *coordinator, struct commit *ret_commit,
                      struct seal_metrics *ret_metrics) MUST_USE;
/* Makes that the newest decision. */
void steps_take(struct run *run, const struct commit *commit);
/* The step's row, for people and for the log; borrowed until the next row. */
const struct step_row *steps_report(struct coordinator *coordinator, uint64_t now_ms,
                                    const struct seal_metrics *metrics);
/* The run goes to the next version. */
void steps_next(struct run *run);

#endif
