/* Writes down what an async run's shards do (common/files/order.h), and with `durability: logged`
 * what they take (journal.h).
 *
 * The order log is written by the shard threads themselves, a record at a time, before the answers
 * that the record is about are sent: so a server that is killed has given no attempt a version that
 * the log misses. (A machine that dies may lose records; only the journal is synced.) Gradients go
 * to the writer's thread. Gradients that arrive while it writes are one group: one record of the
 * journal and one fsync. Then it reports to each shard thread how many of the thread's gradients
 * are on disk. On a full disk the writer tries again until there is room, and only then are the
 * waiting gradients acknowledged; so it does when there is no room for the journal of a generation
 * that begins. When another generation, the run's end or the daemon's comes first, they are dropped.
 * Any other failure of the journal is final: nothing is acknowledged any more, and `failed` gets the
 * reason. Only the order log may have gaps, and the log of the daemon reports each. */
#ifndef ROOST_SERVER_DISK_ORDER_WRITER_H
#define ROOST_SERVER_DISK_ORDER_WRITER_H

#include "common/file.h"
#include "common/log.h"
#include "server/disk/prepared.h"

struct order_writer_config {
    const struct file_ops *ops; /* must outlive the writer */
    const struct logger *logger;
    uint32_t threads; /* shard threads */
    uint64_t boot;    /* this start of the server, which names the files */
    /* `durable` gradients of that thread's shard of that generation are on disk. */
    void (*logged)(void *owner, uint32_t thread, uint64_t generation, uint64_t durable);
    /* The journal waits for room on the disk; false: it does so no more. */
    void (*full)(void *owner, bool full);
    void (*failed)(void *owner, const struct reason *reason);
    void *owner;
};

struct order_writer;

enum err order_writer_new(const struct order_writer_config *config,
                          struct order_writer **ret_writer) MUST_USE;
/* Writes what there is room for. After the shard threads are stopped, before they are freed. NULL is fine. */
void order_writer_free(struct order_writer *writer);

/* The calls below: any thread; ERR_BUSY, ERR_NOMEM: nothing was done. */

/* From now on it writes for this run. Takes a reference. Also when it fails, what the run before
 * waits for is dropped. */
enum err order_writer_prepare(struct order_writer *writer, struct prepared *run) MUST_USE;
/* The run has ended: what it waits for on a full disk is dropped. */
void order_writer_end(struct order_writer *writer);
/* Waits until the newest run that was prepared has begun: then nothing of an earlier one is written
 * any more, and the journal can be read. It does not wait for room on the disk. Returns at once for
 * a generation that was not prepared. */
void order_writer_wait(struct order_writer *writer, uint64_t generation);
/* An ORDER effect of that thread's shard, with its gradients' references, also when it fails. */
enum err order_writer_add(struct order_writer *writer, uint32_t thread, uint64_t generation,
                          const struct shard_order *take_order) MUST_USE;
/* A cut of that version was ordered, and no shard has begun its snapshot: the cut needs the
 * gradients that are taken from now on beside it. */
enum err order_writer_cut(struct order_writer *writer, uint64_t version) MUST_USE;
/* The cut is recorded: earlier gradients are not needed. */
enum err order_writer_recorded(struct order_writer *writer, struct cut_name cut) MUST_USE;

#endif
