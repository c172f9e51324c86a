/* Commands whose answer is late: PREPARE and COMMIT are sent again, as long as the server is
 * connected and does not answer. A command may be lost although its link is up: a server that
 * cannot take one drops it. Servers answer a repeated command as they did the first. Internal to
 * the coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_OVERDUE_H
#define ROOST_SERVER_COORDINATOR_OVERDUE_H

#include "server/coordinator/run.h"

/* After each event: gives a command that was sent its deadline, settings.lease_ms from now. */
void overdue_note(struct coordinator *coordinator, uint64_t now_ms);
/* Sends what is late again. */
void overdue_send(struct coordinator *coordinator, uint64_t now_ms);
/* When the next one is late; UINT64_MAX: none is awaited. */
uint64_t overdue_due_ms(const struct coordinator *coordinator);

#endif
