#include "worker/agent_traffic.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static void name_pieces(struct agent_traffic *traffic)
{
    uint32_t piece = 0;
    for (uint32_t c = 0; c < traffic->config->model->chunks_count; c++) {
        traffic->chunks[c].first_piece = piece;
        uint32_t parts = agent_push_pieces(traffic->config, c);
        for (uint32_t part = 0; part < parts; part++)
            traffic->pieces[piece++] = (struct agent_piece){.chunk = c, .part = part};
    }
    check(piece == traffic->piece_count);
}

static enum err init_queue(struct agent_queue *queue, uint32_t capacity)
{
    *queue = (struct agent_queue){.capacity = capacity};
    queue->items = calloc(capacity + 1, sizeof *queue->items);
    return queue->items != NULL ? ERR_OK : ERR_NOMEM;
}

static enum err init_flow(const struct agent_traffic *traffic, struct agent_flow *flow)
{
    uint32_t units = traffic->config->model->units_count;
    flow->units = calloc(units, sizeof *flow->units);
    flow->unit_missing = calloc(units, sizeof *flow->unit_missing);
    flow->unit_unacked = calloc(units, sizeof *flow->unit_unacked);
    flow->unit_nodes = calloc(units, sizeof *flow->unit_nodes);
    flow->pieces = calloc(traffic->piece_count, sizeof *flow->pieces);
    TRY(init_queue(&flow->copies, traffic->config->model->chunks_count));
    flow->held = calloc(traffic->config->model->chunks_count, sizeof *flow->held);
    return flow->units != NULL && flow->unit_missing != NULL && flow->unit_unacked != NULL &&
                   flow->unit_nodes != NULL && flow->pieces != NULL && flow->held != NULL
               ? ERR_OK
               : ERR_NOMEM;
}

enum err agent_traffic_init(struct agent_traffic *traffic, const struct agent_config *config,
                            struct rand_state *jitter)
{
    const struct model *model = config->model;
    *traffic = (struct agent_traffic){
        .config = config, .jitter = jitter, .lanes = agent_lanes_max(config)};
    for (uint32_t c = 0; c < model->chunks_count; c++)
        traffic->piece_count += agent_push_pieces(config, c);
    traffic->chunks = calloc(model->chunks_count, sizeof *traffic->chunks);
    traffic->pieces = calloc(traffic->piece_count, sizeof *traffic->pieces);
    if (traffic->chunks == NULL || traffic->pieces == NULL)
        return ERR_NOMEM;
    for (uint32_t n = 0; n < traffic->lanes; n++)
        TRY(init_flow(traffic, &traffic->flows[n]));
    name_pieces(traffic);
    return agent_units_init(traffic);
}

static void free_servers(struct agent_server *servers, uint32_t count)
{
    for (uint32_t s = 0; s < count; s++)
        for (uint32_t n = 0; n < AGENT_LANES_MAX; n++) {
            free(servers[s].shares[n].pulls.items);
            free(servers[s].shares[n].pushes.items);
        }
    free(servers);
}

void agent_traffic_release(struct agent_traffic *traffic)
{
    free_servers(traffic->servers, traffic->server_count);
    for (uint32_t n = 0; n < traffic->lanes; n++) {
        free(traffic->flows[n].units);
        free(traffic->flows[n].unit_missing);
        free(traffic->flows[n].unit_unacked);
        free(traffic->flows[n].unit_nodes);
        free(traffic->flows[n].pieces);
        free(traffic->flows[n].held);
        free(traffic->flows[n].copies.items);
    }
    pipeline_runs_release(&traffic->runs);
    free(traffic->chunks);
    free(traffic->pieces);
}

/* ---- servers ---- */

/* Makes empty queues, with room for the chunks that each server owns. */
static enum err init_queues(const struct agent_traffic *traffic, const uint32_t *chunk_servers,
                            struct agent_server *servers, uint32_t count)
{
    for (uint32_t s = 0; s < count; s++) {
        uint32_t chunks = 0, pieces = 0;
        for (uint32_t c = 0; c < traffic->config->model->chunks_count; c++)
            if (chunk_servers[c] == s) {
                chunks++;
                pieces += agent_push_pieces(traffic->config, c);
            }
        for (uint32_t n = 0; n < traffic->lanes; n++) {
            TRY(init_queue(&servers[s].shares[n].pulls, chunks));
            TRY(init_queue(&servers[s].shares[n].pushes, pieces));
        }
    }
    return ERR_OK;
}

static void take_owners(struct agent_traffic *traffic, const struct agent_map *map)
{
    for (uint32_t c = 0; c < traffic->config->model->chunks_count; c++)
        traffic->chunks[c].server = map->chunk_servers[c];
}

enum err agent_traffic_begin(struct agent_traffic *traffic, const struct agent_map *map)
{
    free_servers(traffic->servers, traffic->server_count);
    traffic->server_count = 0;
    traffic->servers = calloc(map->server_count, sizeof *traffic->servers);
    if (traffic->servers == NULL)
        return ERR_NOMEM;
    traffic->server_count = map->server_count;
    take_owners(traffic, map);
    return init_queues(traffic, map->chunk_servers, traffic->servers, traffic->server_count);
}

/* Moves what waited at a server to each chunk's new server, in the same order. */
static void requeue(struct agent_traffic *traffic, const struct agent_server *before, uint32_t n)
{
    struct agent_queue pulls = before->shares[n].pulls, pushes = before->shares[n].pushes;
    for (; pulls.count > 0; agent_queue_drop_first(&pulls)) {
        uint32_t chunk = agent_queue_peek(&pulls), server = traffic->chunks[chunk].server;
        agent_queue_put(&traffic->servers[server].shares[n].pulls, chunk);
    }
    for (; pushes.count > 0; agent_queue_drop_first(&pushes)) {
        uint32_t piece = agent_queue_peek(&pushes);
        uint32_t server = traffic->chunks[traffic->pieces[piece].chunk].server;
        agent_queue_put(&traffic->servers[server].shares[n].pushes, piece);
    }
}

/* Streams stay, with all that is under way on them; the queues are new. */
enum err agent_traffic_reroute(struct agent_traffic *traffic, const struct agent_map *map)
{
    struct agent_server *before = traffic->servers;
    uint32_t count_before = traffic->server_count;
    uint32_t count = map->server_count > count_before ? map->server_count : count_before;
    struct agent_server *servers = calloc(count, sizeof *servers);
    if (servers == NULL)
        return ERR_NOMEM;
    memcpy(servers, before, count_before * sizeof *servers);
    for (uint32_t s = 0; s < count; s++) {
        servers[s].retry_at = 0;
        for (uint32_t n = 0; n < traffic->lanes; n++)
            servers[s].shares[n].pulls = servers[s].shares[n].pushes = (struct agent_queue){0};
    }
    enum err err = init_queues(traffic, map->chunk_servers, servers, count);
    if (err != ERR_OK) {
        free_servers(servers, count);
        return err;
    }
    traffic->servers = servers;
    traffic->server_count = count;
    take_owners(traffic, map);
    for (uint32_t s = 0; s < count_before; s++)
        for (uint32_t n = 0; n < traffic->lanes; n++)
            requeue(traffic, &before[s], n);
    free_servers(before, count_before);
    return ERR_OK;
}

/* ---- streams ---- */

void agent_traffic_stream_up(struct agent_traffic *traffic, uint32_t server, uint64_t boot)
{
    traffic->servers[server].opening = false;
    traffic->servers[server].open = true;
    traffic->servers[server].boot = boot;
}

void agent_traffic_stream_down(struct agent_traffic *traffic, uint32_t server)
{
    traffic->servers[server].open = traffic->servers[server].opening = false;
}

void agent_traffic_retry(struct agent_traffic *traffic, uint64_t now_ms, uint32_t server_index)
{
    struct agent_server *server = &traffic->servers[server_index];
    server->retry_at = now_ms + agent_backoff_ms(traffic->jitter, server->failures++);
    for (uint32_t i = 0; i < WIRE_CREDITS; i++)
        if (server->pushes[i].id != 0)
            agent_push_retry(traffic, &server->pushes[i], 0);
    for (uint32_t i = 0; i < AGENT_PULLS_MAX; i++)
        if (server->pulls[i].id != 0)
            agent_pull_retry(traffic, &server->pulls[i]);
}

bool agent_traffic_is_stale(const struct agent_traffic *traffic, const struct agent_ticket *ticket,
                            uint32_t server_index)
{
    const struct agent_server *server = &traffic->servers[server_index];
    uint32_t n = agent_traffic_flow(traffic, ticket);
    uint64_t pulled = n < AGENT_LANES_MAX ? server->shares[n].boot : 0;
    return pulled != 0 && pulled != server->boot;
}

bool agent_traffic_is_pulling(const struct agent_traffic *traffic,
                              const struct agent_ticket *ticket, uint32_t server)
{
    for (uint32_t i = 0; i < AGENT_PULLS_MAX; i++) {
        const struct agent_pull_slot *slot = &traffic->servers[server].pulls[i];
        if (slot->id != 0 && slot->flow != NULL && slot->flow->ticket == ticket)
            return true;
    }
    return false;
}

/* ---- flows ---- */

uint32_t agent_traffic_flow(const struct agent_traffic *traffic, const struct agent_ticket *ticket)
{
    for (uint32_t n = 0; n < traffic->lanes; n++)
        if (traffic->flows[n].ticket == ticket)
            return n;
    return AGENT_LANES_MAX;
}

void agent_traffic_start(struct agent_traffic *traffic, struct agent_ticket *ticket, uint32_t lane)
{
    check(lane < traffic->lanes);
    struct agent_flow *flow = &traffic->flows[lane];
    check(flow->ticket == NULL);
    flow->ticket = ticket;
    agent_units_begin(traffic, flow);
    flow->pieces_left = ticket->ticket.kind == TICKET_TRAIN ? flow->pieces_count : 0;
    for (uint32_t unit = 0; unit < traffic->config->model->units_count; unit++)
        flow->unit_unacked[unit] = UINT32_MAX;
    for (uint32_t s = 0; s < traffic->server_count; s++)
        traffic->servers[s].shares[lane].boot = 0;
    for (uint32_t c = 0; traffic->config->async && c < traffic->config->model->chunks_count; c++)
        flow->held[c].generation = 0; /* the servers may have newer ones */
    agent_pull_begin(traffic, lane);
}

static void stop_at(const struct agent_flow *flow, struct agent_server *server, uint32_t lane)
{
    struct agent_share *share = &server->shares[lane];
    share->pulls.count = 0;
    share->pushes.count = 0;
    share->busy = 0;
    for (uint32_t i = 0; i < WIRE_CREDITS; i++)
        if (server->pushes[i].flow == flow)
            server->pushes[i].flow = NULL;
    for (uint32_t i = 0; i < AGENT_PULLS_MAX; i++)
        if (server->pulls[i].flow == flow)
            agent_pull_forsake(&server->pulls[i]);
}

void agent_traffic_stop(struct agent_traffic *traffic, const struct agent_ticket *ticket)
{
    uint32_t n = agent_traffic_flow(traffic, ticket);
    if (n == AGENT_LANES_MAX)
        return; /* its compute has not begun */
    for (uint32_t s = 0; s < traffic->server_count; s++)
        stop_at(&traffic->flows[n], &traffic->servers[s], n);
    for (uint32_t p = 0; p < traffic->piece_count; p++)
        traffic->flows[n].pieces[p] = AGENT_PIECE_NONE;
    for (; traffic->flows[n].copies.count > 0; agent_queue_drop_first(&traffic->flows[n].copies))
        traffic->flows[n].held[agent_queue_peek(&traffic->flows[n].copies)].copied = false;
    traffic->flows[n].ticket = NULL;
}

bool agent_traffic_is_done(const struct agent_traffic *traffic, const struct agent_ticket *ticket)
{
    uint32_t n = agent_traffic_flow(traffic, ticket);
    check(n < AGENT_LANES_MAX);
    return traffic->flows[n].pieces_left == 0;
}

void agent_traffic_boots(const struct agent_traffic *traffic, const struct agent_ticket *ticket,
                         uint32_t count, uint64_t *ret_boots)
{
    uint32_t n = agent_traffic_flow(traffic, ticket);
    check(n < AGENT_LANES_MAX);
    for (uint32_t s = 0; s < count; s++) {
        const struct agent_server *server = &traffic->servers[s];
        ret_boots[s] = server->shares[n].boot != 0 ? server->shares[n].boot : server->boot;
    }
}

/* ---- what is next ---- */

/* A server without chunks needs no stream. */
static bool owns_chunks(const struct agent_server *server)
{
    return server->shares[0].pulls.capacity > 0;
}

static bool may_open(const struct agent_server *server)
{
    return !server->open && !server->opening && owns_chunks(server);
}

bool agent_traffic_flows(const struct agent_flow *flow)
{
    return flow->ticket != NULL && flow->ticket->compute_begun && flow->ticket->placed;
}

bool agent_traffic_next(struct agent_traffic *traffic, uint64_t now_ms, bool routed,
                        struct agent_effect *effect)
{
    for (uint32_t s = 0; s < traffic->server_count; s++) {
        struct agent_server *server = &traffic->servers[s];
        if (now_ms < server->retry_at)
            continue;
        if (may_open(server)) {
            server->opening = true;
            effect->kind = AGENT_OPEN;
            effect->server = s;
            return true;
        }
        for (uint32_t n = 0; server->open && routed && n < traffic->lanes; n++)
            if (agent_traffic_flows(&traffic->flows[n]) &&
                (agent_push_next(traffic, s, n, effect) || agent_pull_next(traffic, s, n, effect)))
                return true;
    }
    return false;
}

/* Whether the server has something to do that only waits for retry_at. */
static bool waits(const struct agent_traffic *traffic, const struct agent_server *server,
                  bool routed)
{
    if (may_open(server))
        return true;
    for (uint32_t n = 0; server->open && routed && n < traffic->lanes; n++)
        if (agent_traffic_flows(&traffic->flows[n]) &&
            (agent_push_may(server, n) || agent_pull_may(server, n)))
            return true;
    return false;
}

uint64_t agent_traffic_wake_ms(const struct agent_traffic *traffic, bool routed)
{
    uint64_t wake = UINT64_MAX;
    for (uint32_t s = 0; s < traffic->server_count; s++) {
        const struct agent_server *server = &traffic->servers[s];
        if (server->retry_at < wake && waits(traffic, server, routed))
            wake = server->retry_at;
    }
    return wake;
}

/* ---- invariants ---- */

static bool is_live(const struct agent_traffic *traffic, const struct agent_flow *flow)
{
    return flow >= traffic->flows && flow < traffic->flows + AGENT_LANES_MAX &&
           flow->ticket != NULL && flow->ticket->state == AGENT_TICKET_HELD;
}

/* Invariants 1 and 3, and that pieces of a push are marked as sent. */
static void check_slots(const struct agent_traffic *traffic, const struct agent_server *server)
{
    uint32_t unanswered = 0;
    for (uint32_t i = 0; i < AGENT_PULLS_MAX; i++) {
        const struct agent_pull_slot *slot = &server->pulls[i];
        unanswered += slot->id != 0 && !slot->parked;
        check(slot->id <= traffic->last_id);
        check(slot->id == 0 || slot->flow == NULL || is_live(traffic, slot->flow));
        check(slot->id == 0 || (slot->missing <= slot->count && slot->count <= WIRE_ENTRIES_MAX));
    }
    check(unanswered <= WIRE_CREDITS);
    check(!server->open || !server->opening);
    for (uint32_t i = 0; i < WIRE_CREDITS; i++) {
        const struct agent_push_slot *slot = &server->pushes[i];
        check(slot->id <= traffic->last_id);
        if (slot->id == 0 || slot->flow == NULL)
            continue;
        check(is_live(traffic, slot->flow));
        check(slot->count > 0 && slot->count <= WIRE_ENTRIES_MAX);
        for (uint32_t p = 0; p < slot->count; p++)
            check(slot->flow->pieces[slot->pieces[p]] == AGENT_PIECE_SENT);
    }
}

static void check_queues(const struct agent_traffic *traffic, uint32_t s)
{
    for (uint32_t n = 0; n < traffic->lanes; n++) {
        struct agent_queue pulls = traffic->servers[s].shares[n].pulls;
        struct agent_queue pushes = traffic->servers[s].shares[n].pushes;
        check(pulls.count + pushes.count == 0 || is_live(traffic, &traffic->flows[n]));
        for (; pulls.count > 0; agent_queue_drop_first(&pulls)) {
            uint32_t chunk = agent_queue_peek(&pulls);
            check(traffic->chunks[chunk].server == s);
            check(traffic->flows[n].held[chunk].pull_id == 0);
        }
        for (; pushes.count > 0; agent_queue_drop_first(&pushes)) {
            uint32_t piece = agent_queue_peek(&pushes);
            check(traffic->chunks[traffic->pieces[piece].chunk].server == s);
            check(traffic->flows[n].pieces[piece] == AGENT_PIECE_WAITING);
        }
    }
}

/* Of all units. */
static uint32_t count_unacked(const struct agent_traffic *traffic, const struct agent_flow *flow)
{
    uint32_t count = 0;
    for (uint32_t unit = 0; unit < traffic->config->model->units_count; unit++)
        count += flow->unit_unacked[unit] != UINT32_MAX ? flow->unit_unacked[unit] : 0;
    return count;
}

/* Invariant 2: as many pieces wait, are sent and are acknowledged as there are. */
static void check_pieces(const struct agent_traffic *traffic, uint32_t n)
{
    const struct agent_flow *flow = &traffic->flows[n];
    uint32_t waiting = 0, sent = 0, states[AGENT_PIECE_ACKED + 1] = {0};
    for (uint32_t s = 0; s < traffic->server_count; s++) {
        const struct agent_server *server = &traffic->servers[s];
        waiting += server->shares[n].pushes.count;
        for (uint32_t i = 0; i < WIRE_CREDITS; i++)
            if (server->pushes[i].id != 0 && server->pushes[i].flow == flow)
                sent += server->pushes[i].count;
    }
    for (uint32_t p = 0; p < traffic->piece_count; p++) {
        states[flow->pieces[p]]++;
        check(flow->pieces[p] == AGENT_PIECE_NONE || agent_units_has_piece(traffic, flow, p));
    }
    check(waiting == states[AGENT_PIECE_WAITING]);
    check(sent == states[AGENT_PIECE_SENT]);
    check(!traffic->config->streamed || flow->ticket == NULL ||
          count_unacked(traffic, flow) == waiting + sent);
    if (flow->ticket != NULL && flow->ticket->ticket.kind == TICKET_TRAIN)
        check(flow->pieces_left == flow->pieces_count - states[AGENT_PIECE_ACKED]);
}

uint64_t agent_traffic_check_steps(const struct agent_traffic *traffic)
{
    uint64_t server = 4 * WIRE_CREDITS + 2 * AGENT_PULLS_MAX;
    return server * traffic->server_count +
           (uint64_t)2 * traffic->lanes * (traffic->piece_count + 16);
}

void agent_traffic_check_in_turn(const struct agent_traffic *traffic, uint64_t turn)
{
    check(traffic->server_count <= WIRE_SERVERS_MAX);
    for (uint32_t n = 0; n < traffic->lanes; n++)
        check(traffic->flows[n].pieces_left <= traffic->piece_count);
    if (traffic->server_count > 0)
        check_slots(traffic, &traffic->servers[turn % traffic->server_count]);
}

void agent_traffic_check(const struct agent_traffic *traffic)
{
    for (uint32_t s = 0; s < traffic->server_count; s++) {
        check_slots(traffic, &traffic->servers[s]);
        check_queues(traffic, s);
    }
    for (uint32_t n = 0; n < traffic->lanes; n++)
        check_pieces(traffic, n);
}
