/* A worker among those that share a ticket with it: where they reach it, and what the agent says of
 * leases, to the carrier (peers.h). Main thread; for worker*.c only. */
#ifndef ROOST_WORKER_WORKER_PLACES_H
#define ROOST_WORKER_WORKER_PLACES_H

#include "worker/worker_core.h"

/* Listens, when workers of the run share tickets. ERR_INVALID: without an address; and the errors of
 * peers_new(). */
enum err worker_places_open(struct worker *worker) MUST_USE;
/* Before each join: the certificate may be another one. ERR_UNTRUSTED: others could not ask this
 * worker. */
enum err worker_places_may_join(struct worker *worker) MUST_USE;
/* GENERATION, KEEP, LEASE, PLACES. */
void worker_places_carry_out(struct worker *worker, const struct agent_effect *effect);

#endif
