/* What a server's process says to the coordinator. Over a link that is broken nothing is said; it
 * is said again when the link is back. */
#ifndef ROOST_TESTS_SIM_SIM_REPORT_H
#define ROOST_TESTS_SIM_SIM_REPORT_H

#include "server/shard/shard.h"

struct sim;
struct sim_server;

void sim_report(struct sim *sim, struct sim_server *server, struct server_report *what);
void sim_report_ready(struct sim *sim, struct sim_server *server);
void sim_report_manifest(struct sim *sim, struct sim_server *server, struct cut_name cut,
                         enum err code);
void sim_report_committed(struct sim *sim, struct sim_server *server, uint64_t step);
void sim_report_reduced(struct sim *sim, struct sim_server *server, const struct reduced *reduced);
void sim_report_wrong_bits(struct sim *sim, struct sim_server *server,
                           const struct shard_effect *effect);

#endif
