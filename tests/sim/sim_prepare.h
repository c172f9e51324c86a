/* PREPARE, as server/disk/prepared.c and server/threads/shard_thread.c: a server opens its shards,
 * and fills them from disks and journals that all servers can read. */
#ifndef ROOST_TESTS_SIM_SIM_PREPARE_H
#define ROOST_TESTS_SIM_SIM_PREPARE_H

#include "proto/wire.h"

struct sim;
struct sim_server;

void sim_prepare(struct sim *sim, struct sim_server *server, const struct server_command *command);

#endif
