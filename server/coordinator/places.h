/* Who computes at which place: leases that several members share (S1 to S5, S8; gangs.h).
 *
 * A node is leased whole, to as many idle members as there are places. A member keeps what it
 * produced, and is not idle, until the lease is over: every place is complete, or tickets ended the
 * lease (the step is committed, it lapsed, another attempt was faster, a new generation). A place
 * that loses its member is empty again, even if it was complete, and whoever fills it begins at the
 * node's start. Empty places come first, the oldest lease's before others'. When nobody idle is
 * there to fill them, the youngest lease is given up for an older one.
 *
 * Part of the coordinator's core; places.c alone writes run->gangs. */
#ifndef ROOST_SERVER_COORDINATOR_PLACES_H
#define ROOST_SERVER_COORDINATOR_PLACES_H

#include "server/coordinator/run.h"

/* Fills empty places and grants what is free. */
void places_grant(struct coordinator *coordinator, uint64_t now_ms);

/* The member says how its place ended. True: all places of the lease are complete: *ret_ticket, which
 * its gang holds, is done, and *ret_result is of its validation. */
bool places_complete(struct coordinator *coordinator, uint64_t now_ms, struct member *member,
                     const struct complete_request *request, struct ticket *ret_ticket,
                     struct validation_result *ret_result);
/* All leases on that ticket's node are over, and their members have made so many slots done. */
void places_done(struct coordinator *coordinator, uint64_t now_ms, const struct ticket *ticket,
                 uint32_t slots);
/* The member is gone. Returns how many places it had. */
uint32_t places_lost(struct coordinator *coordinator, uint64_t now_ms, const struct member *member);
/* Leases that tickets ended are over. */
void places_sweep(struct coordinator *coordinator, uint64_t now_ms);

/* Whether the member's lease, whose ticket is its newest, goes on. */
bool places_hold(const struct run *run, const struct member *member);
/* Whom the run waits for, because too few members are there; "": it does not. */
void places_wait_for(const struct coordinator *coordinator, char *ret_text, size_t bytes);

#endif
