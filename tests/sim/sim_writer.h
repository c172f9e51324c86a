/* The thread of a server that writes an async run's journal, as server/disk/order_writer.c: what
 * has come together meanwhile is one group, written and synced by server/disk/journal.c onto a fake
 * disk. */
#ifndef ROOST_TESTS_SIM_SIM_WRITER_H
#define ROOST_TESTS_SIM_SIM_WRITER_H

#include "server/disk/journal.h"
#include "server/shard/shard.h"
#include "tests/sim/files.h"
#include "tests/sim/scenario.h"

struct sim;
struct sim_server;

struct writer_item {
    enum { WRITER_GRADIENT, WRITER_CUT, WRITER_RECORDED } kind;
    uint32_t thread;
    struct journal_entry entry;
    struct counted *gradient;
    struct cut_name cut;
};

struct sim_writer {
    struct files files;
    bool open, armed;
    struct journal journal;
    uint64_t put[SIM_THREADS_MAX], durable[SIM_THREADS_MAX];
    size_t count, capacity;
    struct writer_item *items;
};

void sim_writer_init(struct sim_writer *writer);
void sim_writer_release(struct sim_writer *writer);

/* A generation begins: what is left of the one before is written, or is not. False: the daemon ends
 * because the journal cannot be opened. */
bool sim_writer_prepare(struct sim *sim, struct sim_server *server,
                        const struct server_command *prepare, struct journal_name name);
/* What the journals of all servers have of the shard's chunks: their folder is shared. */
enum err sim_writer_read(struct sim *sim, const struct journal_reader *reader,
                         struct reason *reason);
/* An ORDER effect, with its gradients' references. */
void sim_writer_add(struct sim *sim, struct sim_server *server, uint32_t thread,
                    const struct shard_order *take_order);
void sim_writer_cut(struct sim *sim, struct sim_server *server, uint64_t version);
void sim_writer_recorded(struct sim *sim, struct sim_server *server, struct cut_name cut);
void sim_writer_event(struct sim *sim, struct sim_server *server);
/* The daemon ends in good order: it writes what it has. */
void sim_writer_end(struct sim *sim, struct sim_server *server);
void sim_writer_crash(struct sim *sim, struct sim_server *server, bool power);

#endif
