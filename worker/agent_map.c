/* Servers, and what waits at each. */
#include "worker/agent_map.h"

enum { MAP_FAILURES_MAX = 5 /* no newer map in a row: the next answer MOVED asks again */ };

static void queues_free(struct server *servers, uint32_t count)
{
    for (uint32_t s = 0; s < count; s++) {
        free(servers[s].pulls.items);
        free(servers[s].pushes.items);
    }
    free(servers);
}

void agent_map_release(struct agent *agent)
{
    queues_free(agent->servers, agent->server_count);
    agent->servers = NULL;
    agent->server_count = 0;
}

static enum err queue_init(struct queue *queue, uint32_t capacity)
{
    *queue = (struct queue){.capacity = capacity};
    queue->items = calloc(capacity + 1, sizeof *queue->items);
    return queue->items != NULL ? ERR_OK : ERR_NOMEM;
}

/* Queues for what each server owns; all are empty. */
static enum err queues_new(struct agent *agent, const struct agent_map *map, struct server *servers)
{
    const struct model *model = agent->config.model;
    for (uint32_t s = 0; s < map->server_count; s++) {
        uint32_t chunks = 0, pieces = 0;
        for (uint32_t c = 0; c < model->chunks_count; c++)
            if (map->chunk_servers[c] == s) {
                chunks++;
                pieces += agent_core_pieces(agent, c);
            }
        TRY(queue_init(&servers[s].pulls, chunks));
        TRY(queue_init(&servers[s].pushes, pieces));
    }
    return ERR_OK;
}

static void take_map(struct agent *agent, const struct agent_map *map)
{
    for (uint32_t c = 0; c < agent->config.model->chunks_count; c++)
        agent->chunks[c].server = map->chunk_servers[c];
    agent->map_number = map->number;
    agent->map_servers = map->server_count;
    agent->map_wanted = agent->mapping = false;
    agent->map_failures = 0;
}

enum err agent_map_begin(struct agent *agent, const struct agent_map *map)
{
    agent_map_release(agent);
    agent->servers = calloc(map->server_count, sizeof *agent->servers);
    if (agent->servers == NULL)
        return ERR_NOMEM;
    agent->server_count = map->server_count;
    TRY(queues_new(agent, map, agent->servers));
    take_map(agent, map);
    return ERR_OK;
}

/* What waited at each server waits at its chunk's new one, in the same order. */
static void requeue(struct agent *agent, const struct server *before, uint32_t count)
{
    for (uint32_t s = 0; s < count; s++) {
        struct queue pulls = before[s].pulls, pushes = before[s].pushes;
        for (; pulls.count > 0; queue_drop_first(&pulls)) {
            uint32_t chunk = queue_peek(&pulls);
            queue_put(&agent->servers[agent->chunks[chunk].server].pulls, chunk);
        }
        for (; pushes.count > 0; queue_drop_first(&pushes)) {
            uint32_t piece = queue_peek(&pushes), chunk = agent->pieces[piece].chunk;
            queue_put(&agent->servers[agent->chunks[chunk].server].pushes, piece);
        }
    }
}

/* Streams and what is under way on them stay; the queues are new. */
static enum err servers_change(struct agent *agent, const struct agent_map *map)
{
    struct server *before = agent->servers;
    uint32_t count_before = agent->server_count;
    uint32_t count = map->server_count > count_before ? map->server_count : count_before;
    struct server *servers = calloc(count, sizeof *servers);
    if (servers == NULL)
        return ERR_NOMEM;
    memcpy(servers, before, count_before * sizeof *servers);
    for (uint32_t s = 0; s < count; s++)
        servers[s].pulls = servers[s].pushes = (struct queue){0};
    enum err err =
        queues_new(agent, &(struct agent_map){map->number, count, map->chunk_servers}, servers);
    if (err != ERR_OK) {
        queues_free(servers, count);
        return err;
    }
    for (uint32_t s = 0; s < count; s++)
        servers[s].retry_at = 0;
    agent->servers = servers;
    agent->server_count = count;
    take_map(agent, map);
    requeue(agent, before, count_before);
    queues_free(before, count_before);
    return ERR_OK;
}

/* ---- a newer map ---- */

bool agent_map_is_known(const struct agent *agent)
{
    return agent->map_number >= agent->ticket_map;
}

void agent_map_want(struct agent *agent, uint64_t now_ms)
{
    if (agent->map_wanted)
        return;
    agent->map_wanted = true;
    agent->map_at = now_ms;
}

/* Asks again later, and less often each time. */
static void map_later(struct agent *agent, uint64_t now_ms)
{
    agent->mapping = false;
    agent->map_at = now_ms + agent_core_backoff_ms(agent, agent->map_failures++);
}

bool agent_takes_map(const struct agent *agent, uint64_t generation, uint64_t number)
{
    return agent->phase == MEMBER && agent->mapping && generation == agent->generation &&
           number > agent->map_number;
}

void agent_mapped(struct agent *agent, uint64_t now_ms, const struct agent_map *map)
{
    if (agent->phase != MEMBER || !agent->mapping)
        return;
    if (map->generation > agent->generation) {
        /* P2: nobody answers OLD_GENERATION to a worker that waits for its ticket's map. */
        agent_core_react(agent, now_ms, ERR_OLD_GENERATION);
        return;
    }
    if (!agent_takes_map(agent, map->generation, map->number)) {
        map_later(agent, now_ms); /* the coordinator is ahead of its servers, or they of it */
        agent->map_wanted = agent->map_failures < MAP_FAILURES_MAX || !agent_map_is_known(agent);
        return;
    }
    enum err err = servers_change(agent, map);
    if (err != ERR_OK)
        agent_core_stop(agent, err);
}

void agent_map_failed(struct agent *agent, uint64_t now_ms, enum err err)
{
    if (agent->phase != MEMBER || !agent->mapping)
        return;
    if (agent_core_is_passing(err))
        map_later(agent, now_ms);
    else
        agent_core_react(agent, now_ms, err);
}

bool agent_map_next(struct agent *agent, uint64_t now_ms, struct agent_effect *effect)
{
    if (!agent->map_wanted || agent->mapping || now_ms < agent->map_at)
        return false;
    agent->mapping = true;
    effect->kind = AGENT_DESCRIBE;
    return true;
}
