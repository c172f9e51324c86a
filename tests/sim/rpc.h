/* common/rpc/rpc.h over the simulator's network: streams and calls are its messages, so they are
 * late, lost, repeated and broken as the seed has it. */
#ifndef ROOST_TESTS_SIM_RPC_H
#define ROOST_TESTS_SIM_RPC_H

#include "tests/sim/life.h"
#include "tests/sim/network.h"

#define SIM_DESCRIBE_PATH "/roost.v1.Cluster/Describe"
#define SIM_LEAVE_PATH "/roost.v1.Cluster/Leave"

/* A call between two processes, from rpc_call_start() on. */
struct rpc_call {
    uint64_t number;
    struct rpc_channel *channel; /* NULL: it is answered */
    struct machine from, to;
    const char *path;
    uint64_t deadline_us;
    rpc_answered_fn *answered;
    void *owner;
};

struct rpc_calls {
    struct rpc_call **list; /* number n at n - 1 */
    size_t count, capacity;
};

void rpc_calls_release(struct rpc_calls *calls);

/* From the network, to that end of the stream. */
void rpc_stream_arrived(struct sim *sim, struct stream *stream, enum end to,
                        struct message *message);
void rpc_stream_lost(struct sim *sim, struct stream *stream, enum end to);
/* The nth stream of that kind that the process has opened and not ended; NULL: there is none. */
struct stream *rpc_opened(const struct life *life, enum stream_kind kind, uint32_t nth);
/* Who is called, or gets the answer. */
struct machine rpc_event_place(struct sim *sim, const struct event *event);
/* Events: a stream's message has left, a stream is cancelled; a call's request, a call's answer. */
void rpc_event(struct sim *sim, struct event *event);
/* A call comes to that process; who called gets the answer under the name `call`. */
enum rpc_caller { RPC_PROCESS, RPC_OPERATOR };
void rpc_request_deliver(struct life *life, const char *path, enum rpc_caller caller, uint64_t call,
                         struct message *message);
/* The process was killed: its callers learn of it, or do not. */
void rpc_killed(struct life *life);
/* The network's stream. */
struct stream *rpc_network_stream(struct sim *sim, const struct rpc_stream *rpc);

#endif
