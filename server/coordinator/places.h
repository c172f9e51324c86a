/* Who computes at which place: leases that several members share (S1 to S5, S7, S8; gangs.h).
 *
 * A node is leased whole, to as many idle members as there are places. A member keeps what it
 * produced, and is not idle, until the lease is over: every place is complete, or tickets ended the
 * lease (the step is committed, it lapsed, another attempt was faster, a new generation). With a
 * delay a member shares several leases (settings.place_leases), all of one stage: it is idle as
 * long as it shares fewer, and the idler ones come first (S9). A place that loses its member is
 * empty again, even if it was complete, and whoever fills it begins at the node's start. Empty
 * places come first, the oldest lease's before others'. When nobody idle is there to fill them, the
 * youngest lease is given up for an older one.
 *
 * A member that waits for its neighbour in vain names it, and waits on. The coordinator does not ask
 * that one: it hears of every member by heartbeats, so who is silent is lost when it lapses, and the
 * reporter keeps its place; of who is heard the pair failed, and the reporter's place is empty. Two
 * that failed twice are not put side by side again. A lease whose empty place only such members could
 * fill is given up, and leased anew in another order; when there is no order of the members present,
 * all failures are forgotten (S7; unreachable.h, seating.h).
 *
 * When a lease's time is over (tickets.h), those lose their places who are not done and do not say that
 * they wait for others, and the lease has twice as much time again. Who is not done with an older lease,
 * which comes first (S9) and may have more time, is not to blame, unless it loses its place there, too.
 * The second time, or where nobody is to blame, or an older slot is free for which servers keep their
 * room, the lease lapses, and is leased anew as a whole. What it waited for another member after a loss
 * does not count, and when the place is filled all of the time begins anew. Members that give places up
 * change nothing: one that does so again and again may be what another waits for in vain.
 *
 * Part of the coordinator's core; places.c alone writes run->gangs and
 * run->unreachable. */
#ifndef ROOST_SERVER_COORDINATOR_PLACES_H
#define ROOST_SERVER_COORDINATOR_PLACES_H

#include "server/coordinator/run.h"

/* Fills empty places and grants what is free. */
void places_grant(struct coordinator *coordinator, uint64_t now_ms);

/* The gang of which the member completes its place with that request; NULL: of none. */
const struct gang *places_completes(const struct run *run, const struct member *member,
                                    const struct complete_request *request);
/* The member says how its place ended. True: all places of the lease are complete: *ret_ticket,
 * which its gang holds, is done, and *ret_result is of its validation. */
bool places_complete(struct coordinator *coordinator, uint64_t now_ms, struct member *member,
                     const struct complete_request *request, struct ticket *ret_ticket,
                     struct validation_result *ret_result);
/* The ticket's lease is over, and so are copies of its node, but for sides of an audit. Its members
 * have made so many slots done. */
void places_done(struct coordinator *coordinator, uint64_t now_ms, const struct ticket *ticket,
                 uint32_t slots);
/* Whether somebody completed a place of a lease of that step, which goes on. */
bool places_some_done(const struct run *run, uint64_t step);
/* A server answers that question that it lacks a part. Where a lease of the step goes on, and the
 * place that pushes the part had been called complete before the question, the place is empty again.
 * Returns who had it; NULL: there is no such place. */
struct member *places_undo(struct coordinator *coordinator, uint64_t now_ms, uint64_t question,
                           uint64_t step, const struct lack *lack);
/* The member is gone. `wrong`: it computed wrongly, and nobody goes on with what it gave: its lease
 * is over. Returns how many places it had. */
uint32_t places_lost(struct coordinator *coordinator, uint64_t now_ms, const struct member *member,
                     bool wrong);
/* The member has not begun its place of that lease, and will not. */
void places_leave(struct coordinator *coordinator, uint64_t now_ms, const struct member *member,
                  uint64_t attempt);
/* The member joined again as another; 0: it is gone. */
void places_renamed(struct run *run, uint64_t member, uint64_t as);
/* The member hears who shares its leases, and which of them are over. */
void places_tell(struct coordinator *coordinator, const struct member *member);
/* S7: a member's heartbeat says in which leases its place waits for others, and whom it waits for in
 * vain. True: its place is empty, and there may be something to grant. */
bool places_report(struct coordinator *coordinator, uint64_t now_ms, struct member *member,
                   const struct member_report *report);
/* S7: time in which a lease waits for a member does not count until it lapses. Of a lease whose time is
 * over those lose their places who wait for nobody, if others do or are done. */
void places_wait(struct coordinator *coordinator, uint64_t now_ms);
/* Leases that tickets ended are over; but who audits a step that is committed goes on, until
 * servers compare no more. */
void places_sweep(struct coordinator *coordinator, uint64_t now_ms);

/* Whether the lease of that attempt goes on although its step is committed. */
bool places_late(const struct run *run, uint64_t attempt);
/* Whether the member's lease, whose ticket is its newest, goes on, and its step is open. */
bool places_hold(const struct run *run, const struct member *member);
/* The leases that the member has a place of; returns their number. */
uint32_t places_leases(const struct run *run, const struct member *member,
                       uint64_t ret_attempts[static WIRE_LEASES_MAX]);
/* Whether the member has a place that is not done. */
bool places_computes(const struct run *run, const struct member *member);
/* Whom the run waits for, because too few members are there; "": it does not. */
void places_wait_for(const struct coordinator *coordinator, char *ret_text, size_t bytes);

#endif
