/* The thread that writes cuts: takes chunks from the shard threads, writes this server's
 * file (common/files/checkpoint.h), and reports when the file is durable, or why it will not be. */
#ifndef ROOST_SERVER_DISK_CUT_WRITER_H
#define ROOST_SERVER_DISK_CUT_WRITER_H

#include "common/files/checkpoint.h"
#include "common/log.h"
#include "server/disk/prepared.h"

enum { CUT_WRITER_LATE_MS = 100 }; /* as it is shipped */

struct cut_written {
    struct cut_name cut;
    uint32_t attempt;
    enum err err; /* OK: the file is durable */
};
/* Called on the writer's thread, at most once for each attempt at a cut. Not for an attempt that is
 * given up, with its run or for a later attempt at the same cut. */
typedef void cut_written_fn(void *owner, const struct cut_written *written,
                            const struct digest *manifest, const struct reason *reason);

struct cut_writer_config {
    const struct file_ops *ops; /* must outlive the writer */
    const struct logger *logger;
    uint32_t threads; /* shard threads: a cut is whole when each has given its last chunk */
    uint32_t late_ms; /* a block takes longer only where no core is free */
    cut_written_fn *written;
    /* A copy that came from that shard thread is free again. Called on the writer's thread. */
    void (*freed)(void *owner, uint32_t thread);
    void *owner;
};

struct cut_writer;

/* Starts the thread. ERR_NOMEM, ERR_BUSY: the system has none. */
enum err cut_writer_new(const struct cut_writer_config *config,
                        struct cut_writer **ret_writer) MUST_USE;
/* A cut that is not whole is given up. After the shard threads are stopped, before they are freed.
 * NULL is fine. */
void cut_writer_free(struct cut_writer *writer);

/* From now on cuts are of this run. A cut of another run that is not whole is given up. Takes a
 * reference. Any thread. ERR_BUSY: nothing was done. */
enum err cut_writer_prepare(struct cut_writer *writer, struct prepared *run) MUST_USE;
/* One SNAPSHOT effect of that thread's shard, with its copy's reference. On that thread. There is room
 * for twice what a shard hands out ahead (SHARD_AHEAD_MAX). A disk that hangs over several cuts or
 * runs fills that, too: then the cut is lost, and `written` is called with ERR_BUSY. */
void cut_writer_add(struct cut_writer *writer, uint32_t thread,
                    const struct shard_effect *take_snapshot);
/* A step was committed: while steps go on, cuts are written more slowly (cut_pace.h). Always the same
 * thread. */
void cut_writer_step_ended(struct cut_writer *writer, uint64_t now_ns);
/* A step waits for copies that the cuts hold. Any thread. */
void cut_writer_step_waits(struct cut_writer *writer, uint64_t now_ns);
/* That cut is recorded: what is older than its `oldest` goes, or, without that, than the newest that
 * the spec's `keep` wants. Any thread. ERR_BUSY: nothing was
 * done; the next call removes them. */
enum err cut_writer_prune(struct cut_writer *writer, struct recorded_cut recorded) MUST_USE;

#endif
