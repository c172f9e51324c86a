/* One subject after another: streams, pulls, pushes; of each what comes in, then what goes out. */
#include "worker/agent_traffic.h"

#include "worker/agent_map.h"

/* ---- streams ---- */

void agent_stream_up(struct agent *agent, uint64_t now_ms, uint32_t server, uint64_t boot)
{
    (void)now_ms;
    if (agent->phase != MEMBER || server >= agent->server_count)
        return;
    agent->servers[server].opening = false;
    agent->servers[server].open = true;
    agent->servers[server].boot = boot;
    uint64_t pulled = agent->servers[server].ticket_boot;
    if (agent->has_ticket && pulled != 0 && pulled != boot)
        agent_core_end_ticket(agent, ERR_STALE); /* P12: what it was computed on may be lost */
}

static void retry_push(struct agent *agent, struct push_slot *slot, uint32_t first)
{
    for (uint32_t i = first; !slot->forsaken && i < slot->count; i++) {
        struct piece *piece = &agent->pieces[slot->pieces[i]];
        piece->state = PIECE_WAITING;
        queue_put(&agent->servers[agent->chunks[piece->chunk].server].pushes, slot->pieces[i]);
    }
    slot->id = 0;
}

static void retry_pull(struct agent *agent, struct pull_slot *slot)
{
    for (uint32_t i = 0; i < slot->count; i++) {
        uint32_t chunk = slot->chunks[i];
        if (agent->chunks[chunk].asked != slot->id)
            continue; /* it arrived */
        agent->chunks[chunk].asked = 0;
        queue_put(&agent->servers[agent->chunks[chunk].server].pulls, chunk);
    }
    slot->id = 0;
}

/* Everything that was not answered is said again on the next stream: names make that harmless. */
void agent_stream_lost(struct agent *agent, uint64_t now_ms, uint32_t server_index, enum err err)
{
    if (agent->phase != MEMBER || server_index >= agent->server_count)
        return;
    struct server *server = &agent->servers[server_index];
    server->open = server->opening = false;
    if (err != ERR_OK && !agent_core_is_passing(err)) {
        agent_core_react(agent, now_ms, err);
        return;
    }
    server->retry_at = now_ms + agent_core_backoff_ms(agent, server->failures++);
    for (uint32_t i = 0; i < WIRE_CREDITS; i++)
        if (server->push_slots[i].id != 0)
            retry_push(agent, &server->push_slots[i], 0);
    bool unanswered = false;
    for (uint32_t i = 0; i < PULL_SLOTS; i++) {
        if (server->pull_slots[i].id == 0)
            continue;
        unanswered = unanswered || !server->pull_slots[i].forsaken;
        retry_pull(agent, &server->pull_slots[i]);
    }
    if (agent->config.async && agent->has_ticket && unanswered)
        agent_core_end_ticket(agent, ERR_STALE); /* asked again, a chunk might be another version */
}

/* One that has none is not needed. */
static bool owns_chunks(const struct server *server)
{
    return server->pulls.capacity > 0;
}

static bool next_open(struct agent *agent, uint32_t server_index, struct agent_effect *effect)
{
    struct server *server = &agent->servers[server_index];
    if (server->open || server->opening || !owns_chunks(server))
        return false;
    server->opening = true;
    effect->kind = AGENT_OPEN;
    effect->server = server_index;
    return true;
}

/* What is said of an earlier ticket matters only when it is about more than that. */
static void answer_forsaken(struct agent *agent, uint64_t now_ms, enum err err)
{
    if (err_reaction(err) == REACT_REJOIN)
        agent_core_go_away(agent, now_ms);
}

/* ---- pull ---- */

static struct pull_slot *find_pull(struct server *server, uint64_t id)
{
    for (uint32_t i = 0; id != 0 && i < PULL_SLOTS; i++)
        if (server->pull_slots[i].id == id)
            return &server->pull_slots[i];
    return NULL;
}

static bool weights_fit(const struct agent *agent, const struct weights *weights)
{
    bool versions = weights->versions != NULL;
    if (!agent->has_ticket || versions != agent->config.async ||
        (!versions && weights->version != agent->ticket.version) ||
        weights->codec != agent->config.weights_codec)
        return false;
    for (uint32_t i = 0; i < weights->chunk_count; i++)
        if (weights->chunks[i] >= agent->config.model->chunks_count ||
            agent->chunks[weights->chunks[i]].asked != weights->id)
            return false;
    return true;
}

static void chunk_arrived(struct agent *agent, uint32_t chunk)
{
    const struct model *model = agent->config.model;
    const struct model_parameter *parameter = &model->parameters[model->chunks[chunk].parameter];
    struct chunk_state *state = &agent->chunks[chunk];
    state->asked = 0;
    state->held_generation = agent->ticket.generation;
    state->held_version = agent->ticket.version;
    agent->statistics.pulled_bytes +=
        (uint64_t)model->chunks[chunk].weights * codec_bytes(agent->config.weights_codec);
    for (uint32_t part = 0; part < parameter->parts; part++) {
        check(agent->unit_missing[parameter->part_units[part]] > 0);
        agent->unit_missing[parameter->part_units[part]]--;
    }
}

bool agent_weights(struct agent *agent, uint64_t now_ms, uint32_t server_index,
                   const struct weights *weights)
{
    (void)now_ms;
    if (agent->phase != MEMBER || server_index >= agent->server_count)
        return false;
    struct server *server = &agent->servers[server_index];
    struct pull_slot *slot = find_pull(server, weights->id);
    if (slot == NULL || weights->chunk_count > slot->missing ||
        (!slot->forsaken && !weights_fit(agent, weights)))
        return false;
    bool wanted = !slot->forsaken;
    for (uint32_t i = 0; wanted && i < weights->chunk_count; i++)
        if (agent->chunks[weights->chunks[i]].asked == weights->id) {
            chunk_arrived(agent, weights->chunks[i]);
            if (agent->config.async)
                agent->chunks[weights->chunks[i]].version = weights->versions[i];
        }
    if (wanted)
        server->ticket_boot = server->boot;
    slot->missing -= weights->chunk_count;
    if (slot->missing == 0)
        slot->id = 0;
    server->failures = 0;
    return wanted;
}

void agent_refused(struct agent *agent, uint64_t now_ms, uint32_t server_index,
                   const struct pull_refusal *refusal)
{
    if (agent->phase != MEMBER || server_index >= agent->server_count)
        return;
    struct server *server = &agent->servers[server_index];
    struct pull_slot *slot = find_pull(server, refusal->id);
    if (slot == NULL)
        return;
    if (refusal->code == ERR_TOO_EARLY) {
        slot->parked = true;
    } else if (slot->forsaken) {
        slot->id = 0;
        answer_forsaken(agent, now_ms, refusal->code);
    } else if (agent_core_is_passing(refusal->code)) {
        if (refusal->code == ERR_MOVED)
            agent_map_want(agent, now_ms);
        retry_pull(agent, slot);
        server->retry_at = now_ms + agent_core_backoff_ms(agent, server->failures++);
    } else {
        slot->id = 0;
        agent_core_react(agent, now_ms, refusal->code);
    }
}

/* A free record, if another pull may be unanswered: parked ones hold no credit. PULL_SLOTS: none.
 */
static uint32_t free_pull(const struct server *server)
{
    uint32_t free_slot = PULL_SLOTS, unanswered = 0;
    for (uint32_t i = 0; i < PULL_SLOTS; i++) {
        if (server->pull_slots[i].id == 0)
            free_slot = i;
        else
            unanswered += !server->pull_slots[i].parked;
    }
    return unanswered < WIRE_CREDITS ? free_slot : PULL_SLOTS;
}

static bool may_pull(const struct server *server)
{
    return server->pulls.count > 0 && free_pull(server) < PULL_SLOTS;
}

/* Whose weights servers note: those that gradients come from. */
static uint64_t pull_attempt(const struct agent *agent)
{
    bool noted = agent->config.async && agent->ticket.kind == TICKET_TRAIN;
    return noted ? agent->ticket.attempt : 0;
}

static bool next_pull(struct agent *agent, uint32_t server_index, struct agent_effect *effect)
{
    struct server *server = &agent->servers[server_index];
    if (!may_pull(server))
        return false;
    struct pull_slot *slot = &server->pull_slots[free_pull(server)];
    slot->id = ++agent->last_id;
    slot->parked = slot->forsaken = false;
    slot->count = 0;
    for (uint64_t bytes = 0; server->pulls.count > 0 && slot->count < WIRE_ENTRIES_MAX;) {
        uint32_t chunk = queue_peek(&server->pulls);
        bytes += (uint64_t)agent->config.model->chunks[chunk].weights *
                 codec_bytes(agent->config.weights_codec);
        if (bytes > WIRE_PAYLOAD_BYTES_MAX && slot->count > 0)
            break;
        queue_drop_first(&server->pulls);
        agent->chunks[chunk].asked = slot->id;
        slot->chunks[slot->count++] = chunk;
    }
    slot->missing = slot->count;
    effect->kind = AGENT_PULL;
    effect->server = server_index;
    effect->pull = (struct pull){.id = slot->id,
                                 .generation = agent->ticket.generation,
                                 .version = agent->ticket.version,
                                 .chunk_count = slot->count,
                                 .chunks = slot->chunks,
                                 .newest = agent->config.async,
                                 .attempt = pull_attempt(agent)};
    return true;
}

/* ---- push ---- */

void agent_gradient(struct agent *agent, uint64_t now_ms, uint32_t unit)
{
    (void)now_ms;
    const struct model *model = agent->config.model;
    if (!agent->has_ticket || !agent->compute_started || agent->config.async)
        return; /* a dropped ticket's, or its scale is not known yet */
    for (uint32_t u = 0; u < model->units[unit].uses_count; u++) {
        const struct model_use *use = &model->uses[model->units[unit].use_first + u];
        const struct model_parameter *parameter = &model->parameters[use->parameter];
        for (uint32_t i = 0; i < parameter->chunks_count; i++) {
            const struct chunk_state *chunk = &agent->chunks[parameter->chunk_first + i];
            uint32_t piece = chunk->first_piece + use->part;
            check(agent->pieces[piece].state == PIECE_NONE);
            agent->pieces[piece].state = PIECE_WAITING;
            queue_put(&agent->servers[chunk->server].pushes, piece);
        }
    }
}

static struct push_slot *find_push(struct server *server, uint64_t id)
{
    for (uint32_t i = 0; id != 0 && i < WIRE_CREDITS; i++)
        if (server->push_slots[i].id == id)
            return &server->push_slots[i];
    return NULL;
}

static void pieces_acked(struct agent *agent, const struct push_slot *slot, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        agent->pieces[slot->pieces[i]].state = PIECE_ACKED;
        agent->pieces_left--;
        agent->statistics.pushed_bytes += slot->entries[i].bytes;
    }
}

void agent_acked(struct agent *agent, uint64_t now_ms, uint32_t server_index,
                 const struct push_ack *ack)
{
    if (agent->phase != MEMBER || server_index >= agent->server_count)
        return;
    struct server *server = &agent->servers[server_index];
    struct push_slot *slot = find_push(server, ack->id);
    if (slot == NULL)
        return;
    if (slot->forsaken) {
        slot->id = 0;
        answer_forsaken(agent, now_ms, ack->code);
        return;
    }
    bool passing = ack->code != ERR_OK && agent_core_is_passing(ack->code);
    if (ack->code == ERR_MOVED)
        agent_map_want(agent, now_ms);
    if (ack->code != ERR_OK && !passing) {
        slot->id = 0;
        agent_core_react(agent, now_ms, ack->code);
        return;
    }
    uint32_t counted = passing ? ack->first_refused : slot->count;
    if (counted > slot->count)
        counted = slot->count;
    pieces_acked(agent, slot, counted);
    retry_push(agent, slot, counted);
    server->busy = ack->code == ERR_BUSY && counted == 0 ? server->busy + 1 : 0;
    if (passing)
        server->retry_at = now_ms + agent_core_backoff_ms(agent, server->failures++);
    else
        server->failures = 0;
    if (server->busy == AGENT_BUSY_MAX)
        agent_core_end_ticket(agent, ERR_BUSY);
    else
        agent_core_settle(agent);
}

/* A free record; WIRE_CREDITS: none. */
static uint32_t free_push(const struct server *server)
{
    uint32_t i = 0;
    while (i < WIRE_CREDITS && server->push_slots[i].id != 0)
        i++;
    return i;
}

static bool may_push(const struct server *server)
{
    return server->pushes.count > 0 && free_push(server) < WIRE_CREDITS;
}

static uint32_t piece_bytes(const struct agent *agent, const struct piece *piece)
{
    const struct model *model = agent->config.model;
    const struct model_chunk *chunk = &model->chunks[piece->chunk];
    enum codec codec =
        chunk->parameter == model->loss_parameter ? CODEC_FP32 : agent->config.push_codec;
    return chunk->weights * codec_bytes(codec);
}

static void fill_push(struct agent *agent, struct server *server, struct push_slot *slot)
{
    slot->count = 0;
    for (uint64_t bytes = 0; server->pushes.count > 0 && slot->count < WIRE_ENTRIES_MAX;) {
        uint32_t index = queue_peek(&server->pushes);
        struct piece *piece = &agent->pieces[index];
        uint32_t one = piece_bytes(agent, piece);
        bytes += one;
        if (bytes > WIRE_PAYLOAD_BYTES_MAX && slot->count > 0)
            break;
        queue_drop_first(&server->pushes);
        piece->state = PIECE_SENT;
        slot->pieces[slot->count] = index;
        slot->entries[slot->count++] =
            (struct push_entry){.chunk = piece->chunk,
                                .part = piece->part,
                                .bytes = one,
                                .version = agent->chunks[piece->chunk].version};
    }
}

static bool next_push(struct agent *agent, uint32_t server_index, struct agent_effect *effect)
{
    struct server *server = &agent->servers[server_index];
    if (!may_push(server))
        return false;
    struct push_slot *slot = &server->push_slots[free_push(server)];
    slot->id = ++agent->last_id;
    slot->forsaken = false;
    fill_push(agent, server, slot);
    effect->kind = AGENT_PUSH;
    effect->server = server_index;
    effect->push.push = (struct push){.id = slot->id,
                                      .generation = agent->ticket.generation,
                                      .step = agent->ticket.step,
                                      .node = agent->ticket.node,
                                      .codec = agent->config.push_codec,
                                      .entry_count = slot->count,
                                      .entries = slot->entries};
    if (server->ticket_boot == 0) /* nothing of it is pulled: it has the loss alone */
        server->ticket_boot = server->boot;
    if (agent->config.async) {
        effect->push.push.attempt = agent->ticket.attempt;
        effect->push.push.boot = server->ticket_boot;
        effect->push.push.scale = agent->result.scale;
    }
    effect->push.entries = slot->entries;
    return true;
}

/* ---- what is next ---- */

static bool may_send(const struct agent *agent)
{
    return agent->has_ticket && agent->compute_started && agent_map_is_known(agent);
}

bool agent_traffic_next(struct agent *agent, uint64_t now_ms, struct agent_effect *effect)
{
    for (uint32_t s = 0; s < agent->server_count; s++) {
        if (now_ms < agent->servers[s].retry_at)
            continue;
        if (next_open(agent, s, effect))
            return true;
        if (agent->servers[s].open && may_send(agent) &&
            (next_push(agent, s, effect) || next_pull(agent, s, effect)))
            return true;
    }
    return false;
}

bool agent_traffic_waits(const struct agent *agent, const struct server *server)
{
    if (!server->open)
        return !server->opening && owns_chunks(server);
    return may_send(agent) && (may_push(server) || may_pull(server));
}
