/* The answer to a server's hello: the server goes on where it was, has lost its memory, or has no
 * part in the run. A table decides, by the server's state and the run's phase. Internal to the
 * coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_HELLO_H
#define ROOST_SERVER_COORDINATOR_HELLO_H

#include "server/coordinator/run.h"

/* The server is connected under a new link. */
void hello_answer(struct coordinator *coordinator, struct server_entry *server);

#endif
