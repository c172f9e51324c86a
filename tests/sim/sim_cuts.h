/* The thread of a server that writes cuts, as server/disk/cut_writer.c: chunks go to its fake disk
 * one by one, then the file is synced, renamed, and its folder synced, each in its own time. */
#ifndef ROOST_TESTS_SIM_SIM_CUTS_H
#define ROOST_TESTS_SIM_SIM_CUTS_H

#include "server/shard/shard.h"

struct sim;
struct sim_server;
struct sim_thread;

/* Carries out SHARD_SNAPSHOT: when the chunk is on the disk its copy is free again. */
void sim_cuts_write(struct sim *sim, struct sim_server *server, const struct sim_thread *thread,
                    const struct shard_effect *effect);
/* Events: a chunk is written; a file has come a stage further, by its packed name. */
void sim_cuts_written(struct sim *sim, struct sim_server *server);
void sim_cuts_file(struct sim *sim, struct sim_server *server, uint64_t packed);
/* Files of the newest recorded cuts that are kept stay, and whatever is newer. */
void sim_cuts_prune(struct sim *sim, struct sim_server *server, struct cut_name recorded);

#endif
