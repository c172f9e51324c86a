/* A thread that owns one shard: takes pushes, pulls and commands from its inbox and carries out the
 * effects of the core. Between two messages it does a piece of the work that a commit left.
 *
 * The thread waits only for its inbox. It never waits for a peer: the transport takes an answer at
 * once or refuses it. It never waits for the writer of cuts: without a free copy the snapshot
 * pauses until shard_thread_wake(). */
#ifndef ROOST_SERVER_THREADS_SHARD_THREAD_H
#define ROOST_SERVER_THREADS_SHARD_THREAD_H

#include "common/log.h"
#include "server/disk/cut_writer.h"
#include "server/disk/order_writer.h"
#include "server/disk/prepared.h"
#include "server/threads/exchange_stream.h"
#include "server/threads/transfer.h"

/* A question of the coordinator about a step, and the slots that the thread's shard lacks. */
struct thread_missing {
    uint64_t generation, step, question;
    uint64_t slots[WIRE_SLOT_WORDS_MAX]; /* shard_missing() */
    uint32_t lack_count;
    struct lack lacks[WIRE_LACKS_MAX]; /* shard_lacks() */
};

/* A thread's reports; called on that thread, `index` is its number. Pointers are borrowed for the
 * call. */
struct shard_thread_events {
    /* `shard` is NULL when `err` is not OK. */
    void (*ready)(void *owner, uint32_t index, uint64_t generation, enum err err,
                  const struct shard *shard, const struct reason *reason);
    void (*reduced)(void *owner, uint32_t index, const struct reduced *reduced);
    void (*committed)(void *owner, uint32_t index, uint64_t generation, uint64_t step,
                      const struct shard_statistics *statistics);
    void (*missing)(void *owner, uint32_t index, const struct thread_missing *missing);
    void (*wrong_bits)(void *owner, uint32_t index, const struct shard_effect *effect);
};

struct shard_thread_config {
    uint32_t index;
    uint32_t count; /* threads of this server: chunk c is thread c % count's */
    uint64_t boot;
    const struct kernels *kernels;
    uint64_t copies_bytes_max; /* of all threads together (shards.h) */
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
/* Ends the thread when it has handled what is in its inbox. Later calls do no harm. */
void shard_thread_stop(struct shard_thread *thread);
/* To be called after the stop, and after the writer of cuts is freed, because the writer may wake
 * the thread. NULL is fine. */
void shard_thread_free(struct shard_thread *thread);

/* Any thread. ERR_BUSY: too many messages wait; the message is still the caller's. */
enum err shard_thread_message(struct shard_thread *thread,
                              struct exchange_message *message) MUST_USE;
/* The stream is closed: the shard forgets the stream's parked pulls. Takes a reference. Any
 * thread. */
void shard_thread_gone(struct shard_thread *thread, struct exchange_stream *stream);
/* A copy that the writer of cuts held is free. Any thread. */
void shard_thread_wake(struct shard_thread *thread);

/* That many gradients of the shard of that generation are on disk. Any thread. */
void shard_thread_logged(struct shard_thread *thread, uint64_t generation, uint64_t durable);
/* A chunk arrives. Any thread. ERR_BUSY, ERR_CANCELLED: the chunk is still the caller's. */
enum err shard_thread_arrival(struct shard_thread *thread,
                              struct transfer_arrival *arrival) MUST_USE;
/* The result of sending a chunk. Any thread. */
void shard_thread_transferred(struct shard_thread *thread, struct transfer_sent *take_sent);

/* Commands, of one thread at a time. ERR_BUSY: the thread is far behind; nothing was done. */
/* Forgets its shard, makes that of `prepared`, and reports `ready`. Takes a reference. */
enum err shard_thread_prepare(struct shard_thread *thread, struct prepared *prepared) MUST_USE;
/* A commit's moves for this server: the run's model, and for each move the peer that gets the
 * chunks. */
struct thread_moves {
    const struct model *model;
    const uint32_t *peers;
};
enum err shard_thread_commit(struct shard_thread *thread, const struct server_command *command,
                             const struct thread_moves *about) MUST_USE;
/* Sends `reduced` again for each step whose report may be lost. */
enum err shard_thread_report(struct shard_thread *thread) MUST_USE;
/* Reports `missing` when slots of the command's step are. */
enum err shard_thread_ask_missing(struct shard_thread *thread,
                                  const struct server_command *command) MUST_USE;
/* The command's members have ended, as the exchange knows already: the shard refuses their parked
 * pulls, and those that were admitted before and come behind this. ERR_NOMEM. */
enum err shard_thread_end_members(struct shard_thread *thread,
                                  const struct server_command *command) MUST_USE;
/* Forgets its shard. */
enum err shard_thread_end(struct shard_thread *thread) MUST_USE;

#endif
