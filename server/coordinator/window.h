/* Which tickets of an async run may be granted (P12).
 *
 * Steps overlap: granted are tickets of the steps from the oldest that is not done, as many as the
 * window has; so no chunk meets a ticket beyond its bitmap. That a ticket is done the worker says,
 * who names the boots that acknowledged it; what a boot took is gone with it, so when a server
 * comes back with a new one, its bitmap is read again and what it misses is granted again. The
 * oldest step may then be older than the run's version, which only counts commits and never goes
 * back.
 *
 * A commit says that all chunks have all of a step; the window runs at most one step ahead of it.
 * Part of the coordinator's core. */
#ifndef ROOST_SERVER_COORDINATOR_WINDOW_H
#define ROOST_SERVER_COORDINATOR_WINDOW_H

#include "server/coordinator/run.h"

/* Steps that may be open: `tickets` or more of them, at least one step's. */
uint32_t window_steps(const struct coordinator_run *settings);

enum err window_init(struct run *run) MUST_USE;
void window_release(struct run *run);

/* Nothing is known: a generation begins. */
void window_forget(struct run *run);
/* What all chunks of a server have taken, as it says; what others said before stays, as far as this
 * one has it as well. ERR_MALFORMED: it is no bitmap of this run's. */
enum err window_meet(struct run *run, const struct server_report *ready) MUST_USE;
/* Opens the tickets that are to be done, as far as is known. */
void window_open(struct run *run);
/* The ticket, of an open step, is done. */
void window_done(struct run *run, const struct ticket *ticket);
/* All chunks have all tickets up to the end of this step: their seals say so. */
void window_sealed(struct run *run, uint64_t step);
/* All tickets up to the end of this step are done, by workers' words. */
bool window_has(const struct run *run, uint64_t step);
/* These words are not believed any more: what is not committed is granted again. */
void window_doubt(struct run *run);
/* The boots are those of the run's servers now: what they acknowledged is there. */
bool window_boots_hold(struct coordinator *coordinator, const struct complete_request *request);
void window_check(const struct run *run);

#endif
