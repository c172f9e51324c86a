/* A thread that owns one shard: takes pushes, pulls and commands from its inbox, carries out what
 * the core asks for, and between two messages a piece of what a commit left to do.
 *
 * Waits only for its inbox. Never for a peer: answers are sent or refused, not waited for; never
 * for the writer of cuts: without a free copy the snapshot pauses until shard_thread_wake(). */
#ifndef ROOST_SERVER_THREADS_SHARD_THREAD_H
#define ROOST_SERVER_THREADS_SHARD_THREAD_H

#include "common/log.h"
#include "server/disk/cut_writer.h"
#include "server/disk/order_writer.h"
#include "server/disk/prepared.h"
#include "server/threads/exchange_stream.h"
#include "server/threads/transfer.h"

/* What a thread reports; called on it. What is pointed to is borrowed. `index` is the thread's. */
struct shard_thread_events {
    /* `shard` is NULL when `err` is not OK. */
    void (*ready)(void *owner, uint32_t index, uint64_t generation, enum err err,
                  const struct shard *shard, const struct reason *reason);
    void (*reduced)(void *owner, uint32_t index, const struct reduced *reduced);
    void (*committed)(void *owner, uint32_t index, uint64_t generation, uint64_t step,
                      const struct shard_statistics *statistics);
    void (*wrong_bits)(void *owner, uint32_t index, const struct shard_effect *effect);
};

struct shard_thread_config {
    uint32_t index;
    uint32_t count; /* threads of this server: chunk c is thread c % count's */
    uint64_t boot;
    const struct kernels *kernels;
    const struct logger *logger;
    struct cut_writer *cut_writer;
    struct order_writer *order_writer;
    struct transfer_peers *peers;
    const struct shard_thread_events *events;
    void *owner;
};

struct shard_thread;

enum err shard_thread_new(const struct shard_thread_config *config,
                          struct shard_thread **ret_thread) MUST_USE;
/* Ends the thread when it has taken what is in its inbox. Calls do no harm afterwards. */
void shard_thread_stop(struct shard_thread *thread);
/* After the stop, and after the writer of cuts, which may still wake it. NULL is fine. */
void shard_thread_free(struct shard_thread *thread);

/* Any thread. ERR_BUSY: too many messages wait; the message is still the caller's. */
enum err shard_thread_message(struct shard_thread *thread,
                              struct exchange_message *message) MUST_USE;
/* The stream is closed: its parked pulls are to be forgotten. Takes a reference. Any thread. */
void shard_thread_gone(struct shard_thread *thread, struct exchange_stream *stream);
/* A copy that the writer of cuts held is free. Any thread. */
void shard_thread_wake(struct shard_thread *thread);

/* So many gradients of the shard of that generation are on disk. Any thread. */
void shard_thread_logged(struct shard_thread *thread, uint64_t generation, uint64_t durable);
/* A chunk comes. Any thread. ERR_BUSY, ERR_CANCELLED: it is still the caller's. */
enum err shard_thread_arrival(struct shard_thread *thread,
                              struct transfer_arrival *arrival) MUST_USE;
/* What became of a chunk that was sent. Any thread. */
void shard_thread_transferred(struct shard_thread *thread, struct transfer_sent *take_sent);

/* Commands, of one thread at a time. ERR_BUSY: the thread is far behind; nothing was done. */
/* Forgets its shard, makes that of `prepared`, and reports `ready`. Takes a reference. */
enum err shard_thread_prepare(struct shard_thread *thread, struct prepared *prepared) MUST_USE;
/* What a commit's moves mean here: the run's model, and of each move the peer that it goes to. */
struct thread_moves {
    const struct model *model;
    const uint32_t *peers;
};
enum err shard_thread_commit(struct shard_thread *thread, const struct server_command *command,
                             const struct thread_moves *about) MUST_USE;
/* Reports `reduced` again where a report may be lost. */
enum err shard_thread_report(struct shard_thread *thread) MUST_USE;
/* Forgets its shard. */
enum err shard_thread_end(struct shard_thread *thread) MUST_USE;

#endif
