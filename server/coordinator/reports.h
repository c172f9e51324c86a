/* What servers report about the run: ready, reduced, committed, manifests. Internal to the
 * coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_REPORTS_H
#define ROOST_SERVER_COORDINATOR_REPORTS_H

#include "server/coordinator/run.h"

/* Any report but the hello. OLD_GENERATION: fenced (P2); MALFORMED: it breaks the run's limits. */
enum err reports_take(struct coordinator *coordinator, uint64_t now_ms, struct server_entry *server,
                      const struct server_report *report) MUST_USE;
/* The result of writing down a cut (coordinator_cut_stored()). */
void reports_cut_stored(struct coordinator *coordinator, uint64_t now_ms, struct cut_name name,
                        enum err err);

/* Whether an older cut is looked for, since a server cannot read the newest. */
bool reports_want_cut(const struct run *run);
/* The newest cut that is whole, after a server could not read the newest (coordinator.h). */
void reports_cut_found(struct coordinator *coordinator, uint64_t now_ms,
                       const struct cut_record *whole, const char *unready);

#endif
