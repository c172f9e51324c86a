/* Which server has which chunk, as the agent knows it. For agent*.c only. */
#ifndef ROOST_WORKER_AGENT_MAP_H
#define ROOST_WORKER_AGENT_MAP_H

#include "worker/agent_core.h"

/* The servers of a new membership; those of the last are released. ERR_NOMEM. */
enum err agent_map_begin(struct agent *agent, const struct agent_map *map) MUST_USE;
void agent_map_release(struct agent *agent);
/* P11: a ticket's owners are those of its map, or of a newer one. An older owner that has not heard
 * that it is none would count a push that it must not; one that has no chunks left hears of no
 * commit, and would keep a pull for ever. */
bool agent_map_is_known(const struct agent *agent);
/* A newer one is needed: a server says that a chunk is not its, or a ticket names it. */
void agent_map_want(struct agent *agent, uint64_t now_ms);
/* The effect that asks for it, if it is due. */
bool agent_map_next(struct agent *agent, uint64_t now_ms, struct agent_effect *effect);

#endif
