/* Weights: pulls, and their answers. */
#include "worker/agent_map.h"
#include "worker/agent_traffic.h"

/* ---- what is missing ---- */

static bool chunk_is_held(const struct agent_held *held, const struct ticket *ticket)
{
    return held->generation == ticket->generation && held->version == ticket->version;
}

/* The lane, not that one, in which the chunk's weights are those of the ticket; traffic->lanes:
 * none.
 */
static uint32_t lane_with(const struct agent_traffic *traffic, uint32_t number, uint32_t chunk)
{
    const struct ticket *ticket = &traffic->flows[number].ticket->ticket;
    uint32_t n = 0;
    while (n < traffic->lanes &&
           (n == number || !chunk_is_held(&traffic->flows[n].held[chunk], ticket)))
        n++;
    return n;
}

/* Whether another lane pulls the chunk in that version. All lanes' chunks are the same place's. */
static bool is_pulled(const struct agent_traffic *traffic, uint32_t number, uint32_t chunk)
{
    const struct ticket *ticket = &traffic->flows[number].ticket->ticket;
    for (uint32_t n = 0; n < traffic->lanes; n++) {
        const struct agent_flow *flow = &traffic->flows[n];
        if (n != number && flow->ticket != NULL && !flow->held[chunk].copied &&
            flow->ticket->ticket.generation == ticket->generation &&
            flow->ticket->ticket.version == ticket->version)
            return true;
    }
    return false;
}

static void chunk_waits(struct agent_traffic *traffic, uint32_t number, uint32_t chunk)
{
    struct agent_flow *flow = &traffic->flows[number];
    uint32_t server = traffic->chunks[chunk].server;
    flow->held[chunk].copied =
        !traffic->config->streamed &&
        (lane_with(traffic, number, chunk) < traffic->lanes || is_pulled(traffic, number, chunk));
    if (flow->held[chunk].copied)
        agent_queue_put(&flow->copies, chunk);
    else
        agent_queue_put(&traffic->servers[server].shares[number].pulls, chunk);
}

/* Whether the unit's use has weights to pull; the loss parameter has none. */
static const struct model_parameter *use_weights(const struct model *model, uint32_t unit,
                                                 uint32_t u)
{
    const struct model_use *use = &model->uses[model->units[unit].use_first + u];
    return use->parameter == model->loss_parameter ? NULL : &model->parameters[use->parameter];
}

/* A unit is complete when every chunk of its weights is held at the ticket's version. Streamed
 * chunks are held by nobody: the next use asks for them again. */
void agent_pull_unit(struct agent_traffic *traffic, uint32_t number, uint32_t unit)
{
    const struct model *model = traffic->config->model;
    struct agent_flow *flow = &traffic->flows[number];
    bool streamed = traffic->config->streamed;
    uint32_t missing = 0;
    check(flow->units[unit]);
    check(!streamed || flow->unit_missing[unit] == UINT32_MAX);
    for (uint32_t u = 0; u < model->units[unit].uses_count; u++) {
        const struct model_parameter *parameter = use_weights(model, unit, u);
        /* a later use shares the first one's pull */
        bool pulls =
            parameter != NULL && (streamed || agent_units_first_use(flow, parameter) == unit);
        for (uint32_t i = 0; parameter != NULL && i < parameter->chunks_count; i++) {
            uint32_t index = parameter->chunk_first + i;
            if (!agent_units_has_chunk(traffic, flow, index) ||
                chunk_is_held(&flow->held[index], &flow->ticket->ticket))
                continue;
            missing++;
            if (pulls)
                chunk_waits(traffic, number, index);
        }
    }
    flow->unit_missing[unit] = missing;
}

void agent_pull_begin(struct agent_traffic *traffic, uint32_t number)
{
    struct agent_flow *flow = &traffic->flows[number];
    for (uint32_t unit = 0; unit < traffic->config->model->units_count; unit++)
        if (traffic->config->streamed || !flow->units[unit])
            flow->unit_missing[unit] = UINT32_MAX;
        else
            agent_pull_unit(traffic, number, unit);
}

void agent_pull_forget_lent(struct agent_traffic *traffic)
{
    for (uint32_t n = 0; n < traffic->lanes; n++)
        for (uint32_t c = 0; c < traffic->config->model->chunks_count; c++) {
            struct agent_held *held = &traffic->flows[n].held[c];
            if (held->lent)
                held->generation = 0;
            held->lent = false;
        }
}

bool agent_pull_next_unit(struct agent_traffic *traffic, struct agent_effect *effect)
{
    for (uint32_t n = 0; n < traffic->lanes; n++) {
        struct agent_flow *flow = &traffic->flows[n];
        if (flow->ticket == NULL || !flow->ticket->compute_begun)
            continue;
        for (uint32_t unit = 0; unit < traffic->config->model->units_count; unit++)
            if (flow->unit_missing[unit] == 0) {
                flow->unit_missing[unit] = UINT32_MAX;
                effect->kind = AGENT_UNIT_READY;
                effect->lane = n;
                effect->unit = unit;
                return true;
            }
    }
    return false;
}

/* ---- answers ---- */

static struct agent_pull_slot *find_pull(struct agent_server *server, uint64_t id)
{
    for (uint32_t i = 0; id != 0 && i < AGENT_PULLS_MAX; i++)
        if (server->pulls[i].id == id)
            return &server->pulls[i];
    return NULL;
}

void agent_pull_retry(struct agent_traffic *traffic, struct agent_pull_slot *slot)
{
    for (uint32_t i = 0; slot->flow != NULL && i < slot->count; i++) {
        struct agent_held *held = &slot->flow->held[slot->chunks[i]];
        if (held->pull_id != slot->id)
            continue; /* the chunk has arrived */
        uint32_t lane = agent_traffic_flow(traffic, slot->flow->ticket);
        uint32_t server = traffic->chunks[slot->chunks[i]].server;
        held->pull_id = 0;
        agent_queue_put(&traffic->servers[server].shares[lane].pulls, slot->chunks[i]);
    }
    slot->id = 0;
}

void agent_pull_forsake(struct agent_pull_slot *slot)
{
    for (uint32_t i = 0; slot->flow != NULL && slot->id != 0 && i < slot->count; i++)
        if (slot->flow->held[slot->chunks[i]].pull_id == slot->id)
            slot->flow->held[slot->chunks[i]].pull_id = 0;
    slot->flow = NULL;
}

static bool weights_fit(const struct agent_traffic *traffic, const struct agent_flow *flow,
                        const struct weights *weights)
{
    bool versions = weights->versions != NULL;
    if (versions != traffic->config->async ||
        (!versions && weights->version != flow->ticket->ticket.version) ||
        weights->codec != traffic->config->weights_codec)
        return false;
    for (uint32_t i = 0; i < weights->chunk_count; i++)
        if (weights->chunks[i] >= traffic->config->model->chunks_count ||
            flow->held[weights->chunks[i]].pull_id != weights->id)
            return false;
    return true;
}

static uint32_t chunk_bytes(const struct agent_traffic *traffic, uint32_t chunk)
{
    return traffic->config->model->chunks[chunk].weights *
           codec_bytes(traffic->config->weights_codec);
}

static void chunk_arrived(struct agent_traffic *traffic, struct agent_flow *flow, uint32_t index)
{
    const struct model *model = traffic->config->model;
    const struct model_parameter *parameter = &model->parameters[model->chunks[index].parameter];
    struct agent_held *held = &flow->held[index];
    held->pull_id = 0;
    held->lent = false;
    if (!traffic->config->streamed) {
        held->generation = flow->ticket->ticket.generation;
        held->version = flow->ticket->ticket.version;
    }
    for (uint32_t part = 0; part < parameter->parts; part++) {
        uint32_t unit = parameter->part_units[part];
        uint32_t *missing = &flow->unit_missing[unit];
        if (!flow->units[unit] || (traffic->config->streamed && *missing == UINT32_MAX))
            continue; /* the other unit that has the parameter asked */
        check(*missing > 0);
        --*missing;
    }
}

/* The first chunk that the lane waits for. False: there is none, or another lane still pulls it. */
static bool next_copy(struct agent_traffic *traffic, uint32_t number, struct agent_effect *effect)
{
    struct agent_flow *flow = &traffic->flows[number];
    while (agent_traffic_flows(flow) && flow->copies.count > 0) {
        uint32_t chunk = agent_queue_peek(&flow->copies);
        uint32_t from = lane_with(traffic, number, chunk), server = traffic->chunks[chunk].server;
        if (from == traffic->lanes && is_pulled(traffic, number, chunk))
            return false;
        agent_queue_drop_first(&flow->copies);
        flow->held[chunk].copied = false;
        if (from == traffic->lanes) { /* no lane has it, and none will */
            agent_queue_put(&traffic->servers[server].shares[number].pulls, chunk);
            continue;
        }
        chunk_arrived(traffic, flow, chunk);
        effect->kind = AGENT_COPY;
        effect->lane = number;
        effect->chunk = chunk;
        effect->from = from;
        return true;
    }
    return false;
}

bool agent_pull_next_copy(struct agent_traffic *traffic, struct agent_effect *effect)
{
    for (uint32_t n = 0; n < traffic->lanes; n++)
        if (next_copy(traffic, n, effect))
            return true;
    return false;
}

/* A chunk that the message names twice arrives once. Returns how many arrived. */
static uint32_t chunks_arrived(struct agent_traffic *traffic, struct agent_flow *flow,
                               const struct weights *weights)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < weights->chunk_count; i++)
        if (flow->held[weights->chunks[i]].pull_id == weights->id) {
            chunk_arrived(traffic, flow, weights->chunks[i]);
            if (traffic->config->async)
                flow->held[weights->chunks[i]].version = weights->versions[i];
            count++;
        }
    return count;
}

bool agent_pull_weights(struct agent_traffic *traffic, uint32_t server_index,
                        const struct weights *weights, uint32_t *ret_lane)
{
    struct agent_server *server = &traffic->servers[server_index];
    struct agent_pull_slot *slot = find_pull(server, weights->id);
    if (slot == NULL || weights->chunk_count > slot->missing ||
        (slot->flow != NULL && !weights_fit(traffic, slot->flow, weights)))
        return false;
    bool wanted = slot->flow != NULL;
    uint32_t arrived = weights->chunk_count;
    if (wanted) {
        *ret_lane = agent_traffic_flow(traffic, slot->flow->ticket);
        arrived = chunks_arrived(traffic, slot->flow, weights);
        server->shares[*ret_lane].boot = server->boot;
    }
    slot->missing -= arrived;
    if (slot->missing == 0)
        slot->id = 0;
    server->failures = 0;
    return wanted;
}

struct agent_answer agent_pull_refused(struct agent_traffic *traffic, uint64_t now_ms,
                                       uint32_t server_index, const struct pull_refusal *refusal)
{
    struct agent_server *server = &traffic->servers[server_index];
    struct agent_pull_slot *slot = find_pull(server, refusal->id);
    struct agent_answer answer = {0};
    if (slot == NULL)
        return answer;
    /* P5: version v is readable from its publishing on: the weights will come */
    if (refusal->code == ERR_TOO_EARLY) {
        slot->parked = true;
        return answer;
    }
    if (slot->flow != NULL)
        answer.ticket = slot->flow->ticket;
    if (slot->flow != NULL && agent_backoff_helps(refusal->code)) {
        answer.map_is_doubted = agent_map_is_doubted_by(refusal->code);
        agent_pull_retry(traffic, slot);
        /* Async: another thread of the server may have written down what it gives the attempt, and
         * its weights may come behind the refusal. A second pull might bring another version. */
        answer.end = traffic->config->async ? ERR_STALE : ERR_OK;
        server->retry_at = now_ms + agent_backoff_ms(traffic->jitter, server->failures++);
        return answer;
    }
    answer.err = refusal->code;
    agent_pull_forsake(slot);
    slot->id = 0;
    return answer;
}

/* ---- what goes out ---- */

/* A free record, if another pull may be unanswered: parked ones hold no credit. AGENT_PULLS_MAX:
 * none. */
static uint32_t free_pull(const struct agent_server *server)
{
    uint32_t free_slot = AGENT_PULLS_MAX, unanswered = 0;
    for (uint32_t i = 0; i < AGENT_PULLS_MAX; i++) {
        if (server->pulls[i].id == 0)
            free_slot = i;
        else
            unanswered += !server->pulls[i].parked;
    }
    return unanswered < WIRE_CREDITS ? free_slot : AGENT_PULLS_MAX;
}

bool agent_pull_may(const struct agent_server *server, uint32_t share)
{
    return server->shares[share].pulls.count > 0 && free_pull(server) < AGENT_PULLS_MAX;
}

/* As many chunks as a message takes, at least one. */
static void fill_pull(struct agent_traffic *traffic, struct agent_queue *queue,
                      struct agent_pull_slot *slot)
{
    slot->count = 0;
    for (uint64_t bytes = 0; queue->count > 0 && slot->count < WIRE_ENTRIES_MAX;) {
        uint32_t chunk = agent_queue_peek(queue);
        bytes += chunk_bytes(traffic, chunk);
        if (bytes > WIRE_PAYLOAD_BYTES_MAX && slot->count > 0)
            break;
        agent_queue_drop_first(queue);
        slot->flow->held[chunk].pull_id = slot->id;
        slot->chunks[slot->count++] = chunk;
    }
    slot->missing = slot->count;
}

bool agent_pull_next(struct agent_traffic *traffic, uint32_t server_index, uint32_t share,
                     struct agent_effect *effect)
{
    struct agent_server *server = &traffic->servers[server_index];
    if (!agent_pull_may(server, share))
        return false;
    struct agent_flow *flow = &traffic->flows[share];
    const struct ticket *ticket = &flow->ticket->ticket;
    struct agent_pull_slot *slot = &server->pulls[free_pull(server)];
    slot->id = ++traffic->last_id;
    slot->parked = false;
    slot->flow = flow;
    fill_pull(traffic, &server->shares[share].pulls, slot);
    /* Servers note whose weights gradients come from. */
    bool noted = traffic->config->async && ticket->kind == TICKET_TRAIN;
    effect->kind = AGENT_PULL;
    effect->server = server_index;
    effect->pull = (struct pull){.id = slot->id,
                                 .generation = ticket->generation,
                                 .version = ticket->version,
                                 .chunk_count = slot->count,
                                 .chunks = slot->chunks,
                                 .newest = traffic->config->async,
                                 .attempt = noted ? ticket->attempt : 0};
    return true;
}
