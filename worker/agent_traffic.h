/* The agent's traffic: a stream to each server, weights in and gradients out, with credits. For
 * agent*.c only. agent_traffic.c has the streams, the routing and the choice of the next message.
 * agent_pull.c and agent_push.c have the messages, agent_units.c has what belongs to a ticket's
 * place.
 *
 * A ticket's flow is what it still has to bring in and out: the units whose weights are missing,
 * and the pieces of its gradient that wait, are sent, or are acknowledged. Each server has a share
 * of every flow. In a mesh of several places these are the units of the ticket's place, and pieces
 * that the ticket names.
 *
 * Invariants (agent_traffic_check):
 *  1 at most WIRE_CREDITS pushes, and as many pulls that are not parked, are unanswered per server,
 *    those of tickets that are over included;
 *  2 a piece is waiting, sent in exactly one message, or acknowledged; none is of another place;
 *  3 no pulls or pushes without a ticket;
 *  4 a chunk to pull, or a piece to push, waits at its chunk's server, and is not under way. */
#ifndef ROOST_WORKER_AGENT_TRAFFIC_H
#define ROOST_WORKER_AGENT_TRAFFIC_H

#include "common/model/pipeline.h"
#include "worker/agent_tickets.h"

enum {
    /* Parked pulls hold no credit, but each has a record: so many answers may arrive at once. */
    AGENT_PULLS_MAX = 2 * WIRE_CREDITS,
};

/* First in, first out; a number is inside at most once, so `capacity` is never exceeded. */
struct agent_queue {
    uint32_t *items;
    uint32_t capacity, first, count;
};

enum agent_piece_state {
    AGENT_PIECE_NONE,
    AGENT_PIECE_WAITING,
    AGENT_PIECE_SENT,
    AGENT_PIECE_ACKED
};

/* One part of one chunk: what a push entry carries. */
struct agent_piece {
    uint32_t chunk, part;
};

/* A chunk in a lane's executor. */
struct agent_held {
    uint64_t generation, version; /* generation 0: nothing held. Async: the version as pulled */
    uint64_t pull_id;             /* of the one under way; 0: none */
    bool copied;                  /* it waits for another lane's */
    bool lent;                    /* it is in its server's memory */
};

/* Of the ticket in a lane. */
struct agent_flow {
    struct agent_ticket *ticket; /* NULL: none */
    struct agent_held *held;     /* by chunk; stays from ticket to ticket */
    bool *units;                 /* that the place has */
    uint32_t *unit_missing; /* chunks not in place; UINT32_MAX: none is asked for, or UNIT_READY was
                                    sent */
    uint32_t *unit_unacked; /* streamed: its pieces that are not acknowledged; UINT32_MAX: it is not
                               pushed, or UNIT_ACKED was sent */
    struct node
        *unit_nodes; /* mesh: the ticket's node, or the half of it that is pushed of the unit */
    enum agent_piece_state *pieces;
    struct agent_queue copies; /* chunks to copy from another lane, which has or pulls them */
    uint32_t pieces_count;     /* that the place pushes */
    uint32_t pieces_left;      /* not acknowledged */
};

/* A push that waits for its acknowledgement. */
struct agent_push_slot {
    uint64_t id;             /* 0: free */
    struct agent_flow *flow; /* NULL: its ticket is over, but the push still holds a credit */
    struct node node;        /* of all its pieces */
    uint32_t count;
    uint32_t pieces[WIRE_ENTRIES_MAX];
    struct push_entry entries[WIRE_ENTRIES_MAX];
};

/* A pull that waits for (the rest of) its weights. */
struct agent_pull_slot {
    uint64_t id;             /* 0: free */
    struct agent_flow *flow; /* NULL: its ticket is over */
    bool parked;
    uint32_t missing;
    uint32_t count;
    uint32_t chunks[WIRE_ENTRIES_MAX];
};

/* A flow's share at one server. */
struct agent_share {
    struct agent_queue pulls;  /* chunks to ask for */
    struct agent_queue pushes; /* pieces to send */
    uint64_t boot;             /* P12: the boot that the ticket's weights came from; 0: none yet */
    unsigned busy;             /* pushes refused in a row */
};

struct agent_server {
    bool open, opening;
    uint64_t boot;     /* by its newest stream */
    uint64_t retry_at; /* nothing is opened or sent before */
    unsigned failures; /* in a row */
    struct agent_share shares[AGENT_LANES_MAX];
    struct agent_push_slot pushes[WIRE_CREDITS];
    struct agent_pull_slot pulls[AGENT_PULLS_MAX];
};

struct agent_chunk {
    uint32_t server;
    uint32_t first_piece; /* of its parts */
};

struct agent_traffic {
    const struct agent_config *config; /* borrowed, like the next */
    struct rand_state *jitter;
    uint64_t last_id;
    struct agent_server *servers;
    uint32_t server_count;
    struct agent_chunk *chunks;
    struct agent_piece *pieces;
    uint32_t piece_count;
    struct pipeline_runs runs; /* of the mesh; none: one place has all units */
    uint32_t stage, rank;      /* that the weights which are held are of */
    uint32_t lanes;
    struct agent_flow flows[AGENT_LANES_MAX];
};

/* What the agent has to do about a server's answer. */
struct agent_answer {
    struct agent_ticket *ticket; /* the ticket that it is about; NULL: one that is over, or none */
    enum err err;                /* an error to react to; OK: none */
    enum err end;                /* the ticket is over, with that outcome; OK: it is not */
    bool map_is_doubted;         /* there may be a newer one */
};

/* ERR_NOMEM. */
enum err agent_traffic_init(struct agent_traffic *traffic, const struct agent_config *config,
                            struct rand_state *jitter) MUST_USE;
void agent_traffic_release(struct agent_traffic *traffic); /* {0} is fine */

/* ---- servers and streams ---- */

/* The servers of a new membership, without streams; those of the last are released. ERR_NOMEM. */
enum err agent_traffic_begin(struct agent_traffic *traffic, const struct agent_map *map) MUST_USE;
/* The servers of a newer map. What waits is moved to each chunk's new server. ERR_NOMEM. */
enum err agent_traffic_reroute(struct agent_traffic *traffic, const struct agent_map *map) MUST_USE;

void agent_traffic_stream_up(struct agent_traffic *traffic, uint32_t server, uint64_t boot);
void agent_traffic_stream_down(struct agent_traffic *traffic, uint32_t server);
/* Everything that was not answered is sent again on the next stream: names make that harmless. */
void agent_traffic_retry(struct agent_traffic *traffic, uint64_t now_ms, uint32_t server);
/* The ticket's weights came from another boot of the server. */
bool agent_traffic_is_stale(const struct agent_traffic *traffic, const struct agent_ticket *ticket,
                            uint32_t server);
/* A pull for the ticket is unanswered at the server. */
bool agent_traffic_is_pulling(const struct agent_traffic *traffic,
                              const struct agent_ticket *ticket, uint32_t server);

/* ---- flows ---- */

/* The lane's ticket, whose compute begins: what it misses waits to be asked for. */
void agent_traffic_start(struct agent_traffic *traffic, struct agent_ticket *ticket, uint32_t lane);
/* Nothing of the ticket is sent any more. Answers to what was sent are ignored. */
void agent_traffic_stop(struct agent_traffic *traffic, const struct agent_ticket *ticket);
/* Every piece of the ticket is acknowledged. */
bool agent_traffic_is_done(const struct agent_traffic *traffic, const struct agent_ticket *ticket);
/* P12: `complete` names the boots that acknowledged. The boots that the ticket's gradients went to,
 * of the first `count` servers; for a server that got none of them its newest boot. */
void agent_traffic_boots(const struct agent_traffic *traffic, const struct agent_ticket *ticket,
                         uint32_t count, uint64_t *ret_boots);
/* The compute of a ticket has begun: the place's executor waits for weights and gives gradients. */
bool agent_traffic_flows(const struct agent_flow *flow);
/* Which flow, the lane's, is the ticket's; AGENT_LANES_MAX: it has none. */
uint32_t agent_traffic_flow(const struct agent_traffic *traffic, const struct agent_ticket *ticket);

/* ---- what belongs to a place (agent_units.c) ---- */

/* ERR_NOMEM; ERR_INVALID: more runs of units than the model has units. */
enum err agent_units_init(struct agent_traffic *traffic) MUST_USE;
/* The units and pieces of the flow's ticket. */
void agent_units_begin(struct agent_traffic *traffic, struct agent_flow *flow);
bool agent_units_has_piece(const struct agent_traffic *traffic, const struct agent_flow *flow,
                           uint32_t piece);
/* Whether the place's member holds the chunk, which a unit of the place uses. */
bool agent_units_has_chunk(const struct agent_traffic *traffic, const struct agent_flow *flow,
                           uint32_t chunk);
/* Which of the place's units the parameter is pulled for; the place has one. */
uint32_t agent_units_first_use(const struct agent_flow *flow,
                               const struct model_parameter *parameter);
uint32_t agent_units_of_piece(const struct agent_traffic *traffic, uint32_t piece);
/* What a piece is pushed as. */
struct node agent_units_node(const struct agent_traffic *traffic, const struct agent_flow *flow,
                             uint32_t piece);

/* ---- pulls (agent_pull.c) ---- */

/* The result of agent_weights(). */
bool agent_pull_weights(struct agent_traffic *traffic, uint32_t server,
                        const struct weights *weights, uint32_t *ret_lane);
struct agent_answer agent_pull_refused(struct agent_traffic *traffic, uint64_t now_ms,
                                       uint32_t server, const struct pull_refusal *refusal);
/* The chunk will be asked for again. */
void agent_pull_retry(struct agent_traffic *traffic, struct agent_pull_slot *slot);
/* The ticket is over; its messages under way still hold credits. */
void agent_pull_forsake(struct agent_pull_slot *slot);
/* Lent chunks are not there any more. */
void agent_pull_forget_lent(struct agent_traffic *traffic);
/* Puts the chunks that the flow misses into its servers' queues: of a ticket that begins, all of
 * them, or none where weights are streamed; of one unit, which is asked for again. */
void agent_pull_begin(struct agent_traffic *traffic, uint32_t number);
void agent_pull_unit(struct agent_traffic *traffic, uint32_t number, uint32_t unit);
/* The next chunk that another lane has. */
bool agent_pull_next_copy(struct agent_traffic *traffic, struct agent_effect *effect);
bool agent_pull_may(const struct agent_server *server, uint32_t share);
bool agent_pull_next(struct agent_traffic *traffic, uint32_t server, uint32_t share,
                     struct agent_effect *effect);
/* The next unit whose weights have come into place. */
bool agent_pull_next_unit(struct agent_traffic *traffic, struct agent_effect *effect);

/* ---- pushes (agent_push.c) ---- */

/* How many pieces a chunk is pushed in: its parts; async pushes whole chunks. */
uint32_t agent_push_pieces(const struct agent_config *config, uint32_t chunk);
/* Puts the unit's gradients of the node, or all, into their servers' queues. */
void agent_push_unit(struct agent_traffic *traffic, const struct agent_ticket *ticket,
                     uint32_t unit, struct node node);
void agent_push_all(struct agent_traffic *traffic, const struct agent_ticket *ticket);
struct agent_answer agent_push_acked(struct agent_traffic *traffic, uint64_t now_ms,
                                     uint32_t server, const struct push_ack *ack);
/* The next unit whose gradients are acknowledged. */
bool agent_push_next_unit(struct agent_traffic *traffic, struct agent_effect *effect);
/* Puts the push's pieces back into the queue, without the first `first`. */
void agent_push_retry(struct agent_traffic *traffic, struct agent_push_slot *slot, uint32_t first);
bool agent_push_may(const struct agent_server *server, uint32_t share);
bool agent_push_next(struct agent_traffic *traffic, uint32_t server, uint32_t share,
                     struct agent_effect *effect);

/* ---- what is next ---- */

/* The next effect: a stream to open, a push or a pull. Only with `routed` there are pushes and
 * pulls: the tickets' map is known. */
bool agent_traffic_next(struct agent_traffic *traffic, uint64_t now_ms, bool routed,
                        struct agent_effect *effect);
/* When there may be an effect; UINT64_MAX: not before an event. */
uint64_t agent_traffic_wake_ms(const struct agent_traffic *traffic, bool routed);

void agent_traffic_check(const struct agent_traffic *traffic);
/* The number of things that agent_traffic_check() visits; and the checks after every event: the
 * cheap ones, and those of one server in turn. */
uint64_t agent_traffic_check_steps(const struct agent_traffic *traffic);
void agent_traffic_check_in_turn(const struct agent_traffic *traffic, uint64_t turn);

static inline void agent_queue_put(struct agent_queue *queue, uint32_t item)
{
    check(queue->count < queue->capacity);
    uint32_t at = queue->first + queue->count++;
    queue->items[at < queue->capacity ? at : at - queue->capacity] = item;
}

static inline uint32_t agent_queue_peek(const struct agent_queue *queue)
{
    return queue->items[queue->first];
}

static inline void agent_queue_drop_first(struct agent_queue *queue)
{
    queue->first = queue->first + 1 == queue->capacity ? 0 : queue->first + 1;
    queue->count--;
}

#endif
