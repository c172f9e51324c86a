/* Which tickets of an async run may be granted (P12).
 *
 * Steps overlap: tickets are granted from the oldest step that is not done on, as many as the
 * window has. So no chunk gets a ticket beyond its bitmap. The worker completes a ticket and names
 * the boots that acknowledged it. A boot's tickets are gone with the boot: when a server comes back
 * with a new one, the coordinator reads its bitmap again, and grants again the tickets that it
 * misses (P12). The oldest step may then be older than the run's version, which only counts commits
 * and never goes back.
 *
 * A commit means that all chunks have all tickets of a step; the window runs at most one step ahead
 * of it. A step stays open until then, so that who completed its tickets is known (missing.h). Part
 * of the coordinator's core. */
#ifndef ROOST_SERVER_COORDINATOR_WINDOW_H
#define ROOST_SERVER_COORDINATOR_WINDOW_H

#include "server/coordinator/run.h"

/* Steps that tickets are granted of at a time: `window` tickets or less, at least one step's. */
uint32_t window_steps(const struct coordinator_run *settings);

enum err window_init(struct run *run) MUST_USE;
void window_release(struct run *run);

/* A generation begins: nothing is known of any server. */
void window_forget(struct run *run);
/* Takes in a server's report of the tickets that all its chunks have. Keeps the tickets of earlier
 * reports that this server has as well. ERR_MALFORMED: it is no bitmap of this run. */
enum err window_meet(struct run *run, const struct server_report *ready) MUST_USE;
/* Opens the tickets that are not done yet, as far as the coordinator knows. */
void window_open(struct run *run);
/* The ticket, of an open step, is done. */
void window_done(struct run *run, const struct ticket *ticket);
/* A server misses the ticket, which was completed: it is granted again. */
void window_undo(struct run *run, uint64_t step, uint32_t slot);
/* All chunks have all tickets up to the end of this step, by their seals (P1). */
void window_sealed(struct run *run, uint64_t step);
/* A granted ticket was beyond a server's window: it lacks one that was called complete. */
void window_refused(struct run *run);
/* Servers are asked what they lack. */
void window_asked(struct run *run);
/* Whether workers have completed all tickets up to the end of this step. */
bool window_has(const struct run *run, uint64_t step);
/* Steps behind the run's version of which all chunks have all tickets: where training begins, those
 * that servers read again from their journals. */
uint64_t window_taken_steps(const struct run *run);
/* These completions do not count any more: tickets that are not committed are granted again. */
void window_doubt(struct run *run);
/* Whether the request names the present boots of the run's servers: then the acknowledged ticket is
 * not lost (P12). */
bool window_boots_hold(struct coordinator *coordinator, const struct complete_request *request);
void window_check(const struct run *run);

#endif
