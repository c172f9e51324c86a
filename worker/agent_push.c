/* Gradients: pushes, and their acknowledgements. */
#include "worker/agent_map.h"
#include "worker/agent_traffic.h"

uint32_t agent_push_pieces(const struct agent_config *config, uint32_t chunk)
{
    const struct model *model = config->model;
    return config->async ? 1 : model->parameters[model->chunks[chunk].parameter].parts;
}

/* ---- what waits ---- */

static void piece_waits(struct agent_traffic *traffic, uint32_t number, uint32_t piece)
{
    uint32_t server = traffic->chunks[traffic->pieces[piece].chunk].server;
    traffic->flows[number].pieces[piece] = AGENT_PIECE_WAITING;
    agent_queue_put(&traffic->servers[server].shares[number].pushes, piece);
}

void agent_push_unit(struct agent_traffic *traffic, const struct agent_ticket *ticket,
                     uint32_t unit, struct node node)
{
    const struct model *model = traffic->config->model;
    uint32_t number = agent_traffic_flow(traffic, ticket);
    struct agent_flow *flow = &traffic->flows[number];
    uint32_t waiting = 0;
    check(flow->units[unit] && node_contains(ticket->ticket.node, node));
    flow->unit_nodes[unit] = node;
    for (uint32_t u = 0; u < model->units[unit].uses_count; u++) {
        const struct model_use *use = &model->uses[model->units[unit].use_first + u];
        const struct model_parameter *parameter = &model->parameters[use->parameter];
        for (uint32_t i = 0; i < parameter->chunks_count; i++) {
            uint32_t piece = traffic->chunks[parameter->chunk_first + i].first_piece + use->part;
            check(flow->pieces[piece] == AGENT_PIECE_NONE);
            if (!agent_units_has_piece(traffic, flow, piece))
                continue;
            piece_waits(traffic, number, piece);
            waiting++;
        }
    }
    flow->unit_unacked[unit] = waiting;
}

void agent_push_all(struct agent_traffic *traffic, const struct agent_ticket *ticket)
{
    uint32_t number = agent_traffic_flow(traffic, ticket);
    for (uint32_t piece = 0; piece < traffic->piece_count; piece++)
        piece_waits(traffic, number, piece);
}

/* ---- answers ---- */

static struct agent_push_slot *find_push(struct agent_server *server, uint64_t id)
{
    for (uint32_t i = 0; id != 0 && i < WIRE_CREDITS; i++)
        if (server->pushes[i].id == id)
            return &server->pushes[i];
    return NULL;
}

void agent_push_retry(struct agent_traffic *traffic, struct agent_push_slot *slot, uint32_t first)
{
    for (uint32_t i = first; slot->flow != NULL && i < slot->count; i++)
        piece_waits(traffic, agent_traffic_flow(traffic, slot->flow->ticket), slot->pieces[i]);
    slot->id = 0;
}

static void pieces_acked(const struct agent_traffic *traffic, const struct agent_push_slot *slot,
                         uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        slot->flow->pieces[slot->pieces[i]] = AGENT_PIECE_ACKED;
        slot->flow->pieces_left--;
        if (traffic->config->streamed)
            slot->flow->unit_unacked[agent_units_of_piece(traffic, slot->pieces[i])]--;
    }
}

bool agent_push_next_unit(struct agent_traffic *traffic, struct agent_effect *effect)
{
    for (uint32_t n = 0; n < traffic->lanes && traffic->config->streamed; n++) {
        struct agent_flow *flow = &traffic->flows[n];
        for (uint32_t unit = 0; flow->ticket != NULL && unit < traffic->config->model->units_count;
             unit++)
            if (flow->unit_unacked[unit] == 0) {
                flow->unit_unacked[unit] = UINT32_MAX;
                effect->kind = AGENT_UNIT_ACKED;
                effect->lane = n;
                effect->unit = unit;
                return true;
            }
    }
    return false;
}

/* The first `counted` pieces are counted, the others are sent again. */
static void count_pieces(struct agent_traffic *traffic, struct agent_push_slot *slot,
                         struct agent_share *share, const struct push_ack *ack)
{
    uint32_t counted = ack->code == ERR_OK ? slot->count : ack->first_refused;
    if (counted > slot->count)
        counted = slot->count;
    pieces_acked(traffic, slot, counted);
    agent_push_retry(traffic, slot, counted);
    share->busy = ack->code == ERR_BUSY && counted == 0 ? share->busy + 1 : 0;
}

struct agent_answer agent_push_acked(struct agent_traffic *traffic, uint64_t now_ms,
                                     uint32_t server_index, const struct push_ack *ack)
{
    struct agent_server *server = &traffic->servers[server_index];
    struct agent_push_slot *slot = find_push(server, ack->id);
    struct agent_answer answer = {0};
    if (slot == NULL)
        return answer;
    bool again = ack->code != ERR_OK && agent_backoff_helps(ack->code);
    if (slot->flow == NULL || (ack->code != ERR_OK && !again)) {
        answer.ticket = slot->flow != NULL ? slot->flow->ticket : NULL;
        answer.err = ack->code;
        slot->id = 0;
        return answer;
    }
    answer.ticket = slot->flow->ticket;
    answer.map_is_doubted = agent_map_is_doubted_by(ack->code);
    struct agent_share *share = &server->shares[agent_traffic_flow(traffic, answer.ticket)];
    count_pieces(traffic, slot, share, ack);
    if (share->busy == AGENT_BUSY_MAX) {
        answer.end = ERR_BUSY;
        server->failures = 0; /* the next ticket may be the one that the server waits for */
    }
    if (again)
        server->retry_at = now_ms + agent_backoff_ms(traffic->jitter, server->failures++);
    else
        server->failures = 0;
    return answer;
}

/* ---- what goes out ---- */

/* A free record; WIRE_CREDITS: none. */
static uint32_t free_push(const struct agent_server *server)
{
    uint32_t i = 0;
    while (i < WIRE_CREDITS && server->pushes[i].id != 0)
        i++;
    return i;
}

bool agent_push_may(const struct agent_server *server, uint32_t share)
{
    return server->shares[share].pushes.count > 0 && free_push(server) < WIRE_CREDITS;
}

static uint32_t piece_bytes(const struct agent_traffic *traffic, const struct agent_piece *piece)
{
    const struct model *model = traffic->config->model;
    const struct model_chunk *chunk = &model->chunks[piece->chunk];
    enum codec codec =
        chunk->parameter == model->loss_parameter ? CODEC_FP32 : traffic->config->push_codec;
    return chunk->weights * codec_bytes(codec);
}

/* As many pieces of one node as a message takes, at least one. */
static void fill_push(struct agent_traffic *traffic, struct agent_queue *queue,
                      struct agent_push_slot *slot)
{
    slot->count = 0;
    slot->node = agent_units_node(traffic, slot->flow, agent_queue_peek(queue));
    for (uint64_t bytes = 0; queue->count > 0 && slot->count < WIRE_ENTRIES_MAX;) {
        uint32_t index = agent_queue_peek(queue);
        const struct agent_piece *piece = &traffic->pieces[index];
        uint32_t one = piece_bytes(traffic, piece);
        bytes += one;
        if (slot->count > 0 &&
            (bytes > WIRE_PAYLOAD_BYTES_MAX ||
             !node_equal(agent_units_node(traffic, slot->flow, index), slot->node)))
            break;
        agent_queue_drop_first(queue);
        slot->flow->pieces[index] = AGENT_PIECE_SENT;
        slot->pieces[slot->count] = index;
        slot->entries[slot->count++] =
            (struct push_entry){.chunk = piece->chunk,
                                .part = piece->part,
                                .bytes = one,
                                .version = slot->flow->held[piece->chunk].version};
    }
}

bool agent_push_next(struct agent_traffic *traffic, uint32_t server_index, uint32_t share_number,
                     struct agent_effect *effect)
{
    struct agent_server *server = &traffic->servers[server_index];
    struct agent_share *share = &server->shares[share_number];
    struct agent_flow *flow = &traffic->flows[share_number];
    if (!agent_push_may(server, share_number))
        return false;
    const struct ticket *ticket = &flow->ticket->ticket;
    struct agent_push_slot *slot = &server->pushes[free_push(server)];
    slot->id = ++traffic->last_id;
    slot->flow = flow;
    fill_push(traffic, &share->pushes, slot);
    effect->kind = AGENT_PUSH;
    effect->server = server_index;
    effect->lane = share_number;
    effect->push = (struct push){.id = slot->id,
                                 .generation = ticket->generation,
                                 .step = ticket->step,
                                 .node = slot->node,
                                 .codec = traffic->config->push_codec,
                                 .entry_count = slot->count,
                                 .entries = slot->entries,
                                 .ticket_count = 1,
                                 .tickets = ticket};
    if (share->boot == 0) /* nothing is pulled from it: it has only the loss */
        share->boot = server->boot;
    if (traffic->config->async) {
        effect->push.attempt = ticket->attempt;
        effect->push.boot = share->boot;
        effect->push.scale = flow->ticket->result.scale;
    }
    return true;
}
