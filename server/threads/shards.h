/* All shards of one daemon: their threads, the writer of checkpoints, and the Exchange method. The
 * core in server/member/ decides what a command does and what is reported. This file carries the
 * core's effects out, on threads and files.
 *
 * The daemon's main thread gives commands. Reports are made on the shards' own threads, for the
 * whole server: READY, COMMITTED and MANIFEST when all threads are that far; REDUCED by each thread
 * for its own chunks (the coordinator adds them up). */
#ifndef ROOST_SERVER_THREADS_SHARDS_H
#define ROOST_SERVER_THREADS_SHARDS_H

#include "common/log.h"
#include "common/rpc/rpc.h"
#include "proto/wire.h"

struct shards;

struct shards_config {
    uint32_t threads; /* shard threads; 0: one per core */
    uint64_t boot;    /* of this start; in every report and in Welcome */
    /* To reach other servers; must outlive the shards. NULL, NULL: none. */
    struct rpc_loop *loop;
    const struct tls_identity *identity;
    const struct logger *logger;
    /* Of copies for cuts, however large checkpoint.memory_bytes is; 0: that alone. */
    uint64_t copies_bytes_max;
    /* A report for the coordinator; any thread of the shards; must not block. What it points to is
     * borrowed for the call. */
    void (*report)(void *owner, const struct server_report *report);
    void *owner;
    /* The shards cannot go on: the journal failed, or a command that must not be lost does not
     * reach a thread. Ends the process, so that the next start reads what is on disk; any thread.
     */
    void (*failed)(const struct logger *logger, const struct reason *reason);
};

/* Starts the threads. ERR_NOMEM, ERR_BUSY: the system has none; ERR_UNSUPPORTED: no kernels here.
 */
enum err shards_new(const struct shards_config *config, struct shards **ret_shards,
                    struct reason *reason) MUST_USE;
/* After the rpc server is gone; waits for the threads. NULL is fine. */
void shards_free(struct shards *shards);

/* Carries the command out, in the background where it takes long (member_command()). Main thread.
 */
void shards_command(struct shards *shards, const struct server_command *command);
/* The connection to the coordinator is new (member_report_again()). Main thread. */
void shards_report_again(struct shards *shards);
/* The server holds what the coordinator's newest command wants, which may be nothing. Any
 * thread. */
bool shards_loaded(struct shards *shards);
/* What a hello reports: the generation that is prepared or being prepared, and its version; 0, 0:
 * nothing. Any thread. */
struct cut_name shards_held(struct shards *shards);
/* The highest term of any command that was obeyed (P7); 0: none. Any thread. */
uint64_t shards_term(struct shards *shards);
/* The highest generation of any run that was prepared (member_prepared_generation()); 0: none. Any
 * thread. */
uint64_t shards_prepared(struct shards *shards);

/* The coordinator needs nothing of this server any more. Main thread. */
bool shards_may_leave(struct shards *shards);
/* Asks the coordinator to move the chunks elsewhere, because the daemon is to end. When that is
 * done, shards_may_leave() is true. Main thread. */
void shards_drain(struct shards *shards);

/* The rows of Shard.Exchange and Shard.Transfer for the daemon's method table. */
struct rpc_method shards_exchange_method(struct shards *shards);
struct rpc_method shards_transfer_method(struct shards *shards);

#endif
