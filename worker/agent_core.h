/* What the files of the agent share: its state. For agent*.c only. */
#ifndef ROOST_WORKER_AGENT_CORE_H
#define ROOST_WORKER_AGENT_CORE_H

#include "worker/agent.h"

#include <string.h>

enum {
    /* Parked pulls hold no credit, but a record each: so much may arrive at once. */
    PULL_SLOTS = 2 * WIRE_CREDITS,
};

enum phase {
    AWAY,    /* no member; joins at `join_at` */
    JOINING, /* asked */
    MEMBER,
    STOPPED
};

/* A push that waits for its acknowledgement. When its ticket is over before, it is forsaken: only
 * the credit is still the server's. */
struct push_slot {
    uint64_t id; /* 0: free */
    bool forsaken;
    uint32_t count;
    uint32_t pieces[WIRE_ENTRIES_MAX];
    struct push_entry entries[WIRE_ENTRIES_MAX];
};

/* A pull that waits for (the rest of) its weights. */
struct pull_slot {
    uint64_t id; /* 0: free */
    bool parked;
    bool forsaken;
    uint32_t missing;
    uint32_t count;
    uint32_t chunks[WIRE_ENTRIES_MAX];
};

/* First in, first out; a number is inside at most once, so `capacity` is never exceeded. */
struct queue {
    uint32_t *items;
    uint32_t capacity, first, count;
};

struct server {
    bool open;
    bool opening;
    uint64_t boot;        /* of the server, by its newest stream */
    uint64_t ticket_boot; /* async: the one that this ticket's weights came from; 0: none yet */
    uint64_t retry_at;    /* nothing is opened or sent before */
    unsigned failures;    /* in a row */
    unsigned busy;        /* pushes of this ticket refused in a row */
    struct queue pulls;   /* chunks to ask for */
    struct queue pushes;  /* pieces to send */
    struct push_slot push_slots[WIRE_CREDITS];
    struct pull_slot pull_slots[PULL_SLOTS];
};

struct chunk_state {
    uint32_t server;
    uint32_t first_piece;                   /* of its parts */
    uint64_t held_generation, held_version; /* generation 0: nothing held */
    uint64_t asked;                         /* id of the pull under way; 0: none */
    uint64_t version;                       /* async: as it was pulled */
};

enum piece_state { PIECE_NONE, PIECE_WAITING, PIECE_SENT, PIECE_ACKED };

/* One part of one chunk: what a push entry carries. */
struct piece {
    uint32_t chunk, part;
    enum piece_state state;
};

struct agent {
    struct agent_config config;
    struct rand_state jitter;
    struct agent_statistics statistics;

    enum phase phase;
    enum err stop;
    bool stop_said;
    uint64_t join_at;
    unsigned join_failures;
    uint64_t member, generation;

    bool acquiring;
    uint64_t acquire_at;
    unsigned acquire_failures;
    uint64_t sequence;

    uint64_t map_number;
    uint32_t map_servers;     /* how many servers that map has */
    uint64_t ticket_map;      /* the one that the ticket was granted under */
    bool map_wanted, mapping; /* a newer map is needed; it is asked for */
    uint64_t map_at;          /* and not before this moment */
    unsigned map_failures;    /* in a row: no newer one came */

    bool has_ticket;
    struct ticket ticket;
    bool compute_started; /* for this ticket */
    bool compute_ended;
    bool computing; /* the executor runs, for this ticket or a dropped one */
    bool cancel_due, cancel_said;
    struct agent_result result;
    uint32_t pieces_left; /* not acknowledged */
    bool complete_due;
    struct complete_request complete;
    uint64_t complete_boots[WIRE_SERVERS_MAX];

    bool leaving, leave_said;
    uint64_t leave_at;

    uint64_t last_id;
    uint32_t server_count;
    struct server *servers;
    struct chunk_state *chunks;
    struct piece *pieces;
    uint32_t piece_count;
    uint32_t *unit_missing; /* chunks not in place; UINT32_MAX: said to be ready */
};

static inline void queue_put(struct queue *queue, uint32_t item)
{
    check(queue->count < queue->capacity);
    uint32_t at = queue->first + queue->count++;
    queue->items[at < queue->capacity ? at : at - queue->capacity] = item;
}

static inline uint32_t queue_peek(const struct queue *queue)
{
    return queue->items[queue->first];
}

static inline void queue_drop_first(struct queue *queue)
{
    queue->first = queue->first + 1 == queue->capacity ? 0 : queue->first + 1;
    queue->count--;
}

/* How many pieces a chunk is pushed in: its parts; async pushes whole chunks. */
uint32_t agent_core_pieces(const struct agent *agent, uint32_t chunk);
/* agent_backoff_ms() with the agent's own jitter. */
uint64_t agent_core_backoff_ms(struct agent *agent, unsigned failures);

/* Whether it may be otherwise when asked again. A daemon that ends cancels the calls it has not
 * answered. */
bool agent_core_is_passing(enum err err);
/* What an error of a peer means for this worker. */
void agent_core_react(struct agent *agent, uint64_t now_ms, enum err err);
/* The member is forgotten and joins anew. */
void agent_core_go_away(struct agent *agent, uint64_t now_ms);
/* Nothing goes on: STOP for that reason, when a compute under way has ended. */
void agent_core_stop(struct agent *agent, enum err err);

/* The ticket at hand is over: COMPLETE is due with that outcome, what is under way for it forsaken.
 */
void agent_core_end_ticket(struct agent *agent, enum err outcome);
/* Ends it when it is computed and all of it is acknowledged. */
void agent_core_settle(struct agent *agent);

#endif
