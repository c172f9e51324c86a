/* Which chunk map the agent knows, and whether it needs a newer one. For agent*.c only.
 *
 * P11: a chunk's move is ordered inside commit(t), so a ticket's owners are those of its map or of
 * a newer one. An older owner that has not received the move would count a push that it must not
 * count. An older owner that has no chunks left receives no commits, and would keep a pull for
 * ever.
 *
 * Invariant (agent_map_check): a map is asked for only when one is wanted. */
#ifndef ROOST_WORKER_AGENT_MAP_H
#define ROOST_WORKER_AGENT_MAP_H

#include "worker/agent_backoff.h"
#include "worker/agent_effects.h"

struct agent_map_state {
    uint64_t number;
    uint32_t server_count; /* of that map; streams to others may still be open */
    uint64_t named;        /* the map number that the newest answer to Acquire names */
    bool wanted, asking;
    uint64_t ask_at;   /* it is not asked for before */
    unsigned failures; /* in a row: answers without a newer map */
};

/* The map of a new membership in `generation`. */
void agent_map_begin(struct agent_map_state *state, const struct agent_map *map,
                     uint64_t generation);
/* A newer map has come. If the newest ticket's is newer still, it is asked for at once. */
void agent_map_take(struct agent_map_state *state, const struct agent_map *map);

/* Whether the newest ticket's map, or a newer one, is known. Nothing is pulled or pushed before. */
bool agent_map_is_known(const struct agent_map_state *state);
/* An answer to Acquire names a map. */
void agent_map_name(struct agent_map_state *state, uint64_t now_ms, uint64_t number);
/* Whether a server that answers so may have no chunks any more: MOVED; or it has no run, or is behind
 * ours, and nobody will tell it, because a newer generation goes on without it. */
bool agent_map_is_doubted_by(enum err answer);
/* A newer map is needed: a server's answer makes this one doubtful, or it cannot be reached and may
 * have left. */
void agent_map_want(struct agent_map_state *state, uint64_t now_ms);
/* The answer had no newer map (the coordinator is ahead of its servers, or they are ahead of
 * it). */
void agent_map_same(struct agent_map_state *state, uint64_t now_ms, struct rand_state *jitter);
/* There was no answer: the agent asks again later, after a longer pause each time. */
void agent_map_later(struct agent_map_state *state, uint64_t now_ms, struct rand_state *jitter);

/* The effect that asks for a map, if it is due. */
bool agent_map_next(struct agent_map_state *state, uint64_t now_ms, struct agent_effect *effect);
/* When it will be due; UINT64_MAX: never. */
uint64_t agent_map_wake_ms(const struct agent_map_state *state);

void agent_map_check(const struct agent_map_state *state);

#endif
