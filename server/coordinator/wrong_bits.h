/* Which worker computes wrongly.
 *
 * Two pushes of one name must have the same bits. When they differ, one of the two workers is
 * wrong, and nothing says which: both are named, in the log and in status, each with the other. A
 * third opinion comes by itself, because whoever computes wrongly sooner or later differs from
 * somebody else too: the one that two different workers contradict is the wrong one, as long as
 * there is but one. It is no member any more and may not be one again; those it had contradicted
 * are cleared. (Should both sides of a difference have been contradicted by others before, then
 * more than one is wrong, and nobody is judged.) The name is what counts as a worker here, so that
 * one that comes back is no second opinion.
 *
 * What was counted stays: the first push of a name is in the sums, right or wrong.
 *
 * Where the run allows workers of other numerics (`numerics: any`) bits differ by nature, and
 * nothing is said. */
#ifndef ROOST_SERVER_COORDINATOR_WRONG_BITS_H
#define ROOST_SERVER_COORDINATOR_WRONG_BITS_H

#include "server/coordinator/run.h"

/* `report` is a server's WRONG_BITS. */
void wrong_bits_report(struct coordinator *coordinator, uint64_t now_ms,
                       const struct server_entry *server, const struct server_report *report);

#endif
