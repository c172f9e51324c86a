/* The doubted: members that held a lease until it was overdue, and did not bring it before it
 * lapsed or others' work ended the step. Each is doubted until it makes a slot done, or is gone.
 *
 * A doubted member holds one lease at a time, of one slot, and an idle worker is given that slot at
 * once as well (tickets.h). So a hoarder costs the run the bound once for each membership. The
 * bound is that of speculation (by default twice the usual time of completed leases, and at least
 * 100 ms): nobody is doubted for what no other was allowed to take. An honest worker that is slow,
 * even ten times, loses nothing by doubt but that its work may be done twice: where its slots are
 * needed the others are busy, and its lease lapses only after 16 times the usual time; if it
 * completes after that, it counts (P1).
 *
 * Pure; one owner. */
#ifndef ROOST_SERVER_COORDINATOR_DOUBT_H
#define ROOST_SERVER_COORDINATOR_DOUBT_H

#include "common/id_table.h"

#include <stdbool.h>

struct doubt {
    struct id_table members;
};

enum err doubt_init(struct doubt *doubt, uint32_t members_max) MUST_USE; /* ERR_NOMEM */
void doubt_release(struct doubt *doubt);

/* From now on the member is doubted; beyond members_max nobody more is. */
void doubt_add(struct doubt *doubt, uint64_t member);
/* It has made a slot done, or is gone. */
void doubt_end(struct doubt *doubt, uint64_t member);
bool doubt_has(const struct doubt *doubt, uint64_t member);

#endif
