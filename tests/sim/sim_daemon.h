/* A daemon's process: production's server_run(), from its settings to its end, as a life (life.h).
 */
#ifndef ROOST_TESTS_SIM_SIM_DAEMON_H
#define ROOST_TESTS_SIM_SIM_DAEMON_H

#include "tests/sim/life.h"

#define SIM_COORDINATOR_ADDRESS "coordinator" /* whoever that is */

/* It begins soon. */
struct life *sim_daemon_start(struct sim *sim, struct machine place);
/* It dies at once; those at the other ends of its streams and calls learn of it. */
void sim_daemon_kill(struct sim *sim, struct life *life);
/* It has ended by itself, or cannot go on. */
void sim_daemon_ended(struct sim *sim, struct machine place);
void sim_daemon_failed(struct sim *sim, struct machine place);

#endif
