/* The worker's streams: one for its membership, one to each server. Main thread; for worker*.c
 * only. Their events carry the number of the stream. */
#ifndef ROOST_WORKER_WORKER_LINK_H
#define ROOST_WORKER_WORKER_LINK_H

#include "worker/worker_core.h"

/* Opens the stream to that server, with hello. */
enum err worker_link_exchange(struct worker *worker, uint32_t server) MUST_USE;
/* Opens the membership's stream, with a first heartbeat. */
enum err worker_link_member(struct worker *worker) MUST_USE;
void worker_link_heartbeat(struct worker *worker);
/* S7: a heartbeat that says that this peer does not answer in the lease. */
void worker_link_unreachable(struct worker *worker, uint64_t attempt, uint64_t member);
/* Looks for a renewed certificate. With one it is no member any more, and its next join shows it:
 * neighbours of a mesh take nobody with another certificate than the one of that member's join. */
void worker_link_renew(struct worker *worker);
/* Warns once a day of a certificate that ends within a week. */
void worker_link_warn(struct worker *worker);
/* Whether to warn of the link's error now. A certificate may be refused for days: that is said at
 * once and then each minute. */
bool worker_link_warning_is_due(struct worker_link *link, enum err err);
/* Gives the stream up, if there is one. */
void worker_link_close(struct worker_link *link);

/* Links to the servers of a new membership. */
enum err worker_links_open(struct worker *worker,
                           const struct describe_reply *description) MUST_USE;
/* The servers of a newer map. Links to servers that stay are kept. */
enum err worker_links_change(struct worker *worker,
                             const struct describe_reply *description) MUST_USE;
/* Ends all streams of the membership; waits until their last events are posted. */
void worker_links_free(struct worker *worker);
/* How many servers' payloads pass through shared memory. */
uint32_t worker_links_shared(const struct worker *worker);

#endif
