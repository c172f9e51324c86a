/* Between a server's threads and its shards: the linker leads the calls of the shard core here
 * (--wrap), and from here they go on to the core. So the ledger learns of every call, and planted
 * bugs (mutate.h) change calls and answers of a shard, while both sides stay production's. */
#ifndef ROOST_TESTS_SIM_WATCH_H
#define ROOST_TESTS_SIM_WATCH_H

#include "proto/wire.h"
#include "tests/sim/network.h"

struct sim;
struct sim_server;

/* Chunks that arrived and were taken. */
struct watch {
    size_t taken_count, taken_capacity;
    struct watch_taken {
        uint32_t server, chunk;
        uint64_t generation, version;
    } * taken;
};

/* A worker's message has come over an exchange stream. */
void watch_received(struct sim *sim, struct stream *stream, struct message *message);
/* A server answers over it. False: a planted bug keeps the answer back. */
bool watch_answer(struct sim *sim, struct stream *stream, const struct message *message);
/* A worker sends over it (watch_worker.c), which may die of it; an answer has come to the
 * worker. */
void watch_send(struct sim *sim, struct stream *stream, struct message *take_message);
void watch_answered(struct sim *sim, struct stream *stream, const struct message *message);
void watch_release_stream(struct stream *stream);
/* A worker's heartbeat goes out. */
void watch_heartbeat(struct sim *sim, const struct stream *stream);
/* A worker says that it leaves. */
void watch_leave(struct sim *sim, uint32_t worker, struct slice request);
/* A thread has waited for a call's answer, and did nothing else meanwhile: only who is no member
 * may. */
void watch_waited(void);

/* One who is asked for a value has answered the worker that asks (watch_places.c). */
/* The member that the worker `opener` means by another one, and that this is now; 0: none. */
uint64_t watch_peer_member(const struct sim *sim, uint32_t opener, uint32_t worker);
void watch_peer_answered(struct sim *sim, struct stream *stream, const struct message *message);

/* An effect of a coordinator is carried out. False: its process is dead, perhaps just now. */
bool watch_effect(void);
/* A server's process sends a report that its shards did not make. */
void watch_report(const struct sim_server *server, const struct server_report *report);

/* The process is no more. */
void watch_forget(struct sim_server *server);
/* Files of the cut are gone; one that is there and damaged is not. */
bool watch_is_pruned(struct sim *sim, struct cut_name cut);

#endif
