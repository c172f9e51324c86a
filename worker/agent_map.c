#include "worker/agent_map.h"

enum { MAP_FAILURES_MAX = 5 /* no newer map in a row: what is heard next asks again */ };

bool agent_map_is_known(const struct agent_map_state *state)
{
    return state->number >= state->named;
}

void agent_map_take(struct agent_map_state *state, const struct agent_map *map)
{
    state->number = map->number;
    state->server_count = map->server_count;
    state->asking = false;
    state->wanted = !agent_map_is_known(state); /* a ticket named another meanwhile */
    state->failures = 0;
}

void agent_map_begin(struct agent_map_state *state, const struct agent_map *map,
                     uint64_t generation)
{
    state->named = 0;
    agent_map_take(state, map);
    if (map->generation != generation)
        state->number = 0; /* any of this generation is newer */
}

bool agent_map_is_doubted_by(enum err answer)
{
    return answer == ERR_MOVED || answer == ERR_NO_RUN || answer == ERR_BEHIND;
}

void agent_map_want(struct agent_map_state *state, uint64_t now_ms)
{
    if (state->wanted)
        return;
    state->wanted = true;
    state->ask_at = now_ms;
}

void agent_map_name(struct agent_map_state *state, uint64_t now_ms, uint64_t number)
{
    state->named = number;
    if (!agent_map_is_known(state))
        agent_map_want(state, now_ms);
}

void agent_map_later(struct agent_map_state *state, uint64_t now_ms, struct rand_state *jitter)
{
    state->asking = false;
    state->ask_at = now_ms + agent_backoff_ms(jitter, state->failures++);
}

void agent_map_same(struct agent_map_state *state, uint64_t now_ms, struct rand_state *jitter)
{
    agent_map_later(state, now_ms, jitter);
    state->wanted = state->failures < MAP_FAILURES_MAX || !agent_map_is_known(state);
}

bool agent_map_next(struct agent_map_state *state, uint64_t now_ms, struct agent_effect *effect)
{
    if (!state->wanted || state->asking || now_ms < state->ask_at)
        return false;
    state->asking = true;
    effect->kind = AGENT_DESCRIBE;
    return true;
}

uint64_t agent_map_wake_ms(const struct agent_map_state *state)
{
    return state->wanted && !state->asking ? state->ask_at : UINT64_MAX;
}

void agent_map_check(const struct agent_map_state *state)
{
    check(!state->asking || state->wanted);
}
