/* Which worker computes wrongly.
 *
 * Two pushes of one name must have the same bits. When they differ, one of the two workers is
 * wrong, and nobody knows which. The log and status name both, each with the other. A third opinion
 * comes by itself, because a worker that computes wrongly will differ from another worker too: the
 * worker that two others contradict is the wrong one, as long as only one is wrong. It is no member
 * any more and may not be one again; those it had contradicted are cleared. (Should both sides of a
 * difference have been contradicted by others before, then more than one is wrong, and nobody is
 * judged.) A worker is identified by its name here, so that a worker that comes back is not a
 * second opinion; what counts against it stays with it (suspects.h). An opinion is somebody's: what
 * differs from a worker that nobody remembers counts against nobody. But names are the workers' choice: where members have several certificates, the
 * certificate counts instead, so nobody alone convicts another's worker.
 *
 * The first push of a name is in the sums, right or wrong. The log lists the steps of which the
 * wrong one had tickets, and below which step an audit of it agreed (audits.h). It stays counted,
 * or the run goes back to before it (audit_rewind.h).
 *
 * In a run with stages two pushes of one name differ also because somebody before in the line
 * computed wrongly. There the places' boundaries tell whose inputs were equal (said.h): only those
 * two contradict each other. So do neighbours, one of whom did not take what the other gave.
 *
 * Where the run allows workers of other numerics (`numerics: any`), bits differ by nature, and
 * nothing is reported. */
#ifndef ROOST_SERVER_COORDINATOR_WRONG_BITS_H
#define ROOST_SERVER_COORDINATOR_WRONG_BITS_H

#include "server/coordinator/run.h"

/* `report` is a server's WRONG_BITS. */
void wrong_bits_report(struct coordinator *coordinator, uint64_t now_ms,
                       const struct server_entry *server, const struct server_report *report);
/* The member of that seat of the gang says that its place is complete, and what passed there (said.h).
 * Members may be expelled: the gang may be over afterwards. */
void wrong_bits_said(struct coordinator *coordinator, uint64_t now_ms, const struct gang *gang,
                     uint32_t seat, const struct complete_request *request);

#endif
