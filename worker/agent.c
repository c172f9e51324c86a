/* Joining, tickets, leaving, and what is to be done next. */
#include "worker/agent_map.h"
#include "worker/agent_traffic.h"

/* ---- life ---- */

void agent_free(struct agent *agent)
{
    if (agent == NULL)
        return;
    agent_map_release(agent);
    free(agent->chunks);
    free(agent->pieces);
    free(agent->unit_missing);
    free(agent);
}

static void name_pieces(struct agent *agent)
{
    const struct model *model = agent->config.model;
    uint32_t piece = 0;
    for (uint32_t c = 0; c < model->chunks_count; c++) {
        agent->chunks[c].first_piece = piece;
        uint32_t parts = agent_core_pieces(agent, c);
        for (uint32_t part = 0; part < parts; part++)
            agent->pieces[piece++] = (struct piece){.chunk = c, .part = part};
    }
    check(piece == agent->piece_count);
}

enum err agent_new(const struct agent_config *config, struct agent **ret_agent)
{
    const struct model *model = config->model;
    struct agent *agent = calloc(1, sizeof *agent);
    if (agent == NULL)
        return ERR_NOMEM;
    agent->config = *config;
    agent->jitter = (struct rand_state){config->seed};
    for (uint32_t c = 0; c < model->chunks_count; c++)
        agent->piece_count += agent_core_pieces(agent, c);
    agent->chunks = calloc(model->chunks_count, sizeof *agent->chunks);
    agent->pieces = calloc(agent->piece_count, sizeof *agent->pieces);
    agent->unit_missing = calloc(model->units_count, sizeof *agent->unit_missing);
    if (agent->chunks == NULL || agent->pieces == NULL || agent->unit_missing == NULL) {
        agent_free(agent);
        return ERR_NOMEM;
    }
    name_pieces(agent);
    *ret_agent = agent;
    return ERR_OK;
}

/* ---- joining ---- */

void agent_joined(struct agent *agent, uint64_t now_ms, const struct join_reply *reply,
                  const struct agent_map *map)
{
    (void)now_ms;
    if (agent->phase != JOINING)
        return;
    agent->ticket_map = 0;
    enum err err = agent_map_begin(agent, map);
    if (err != ERR_OK) {
        agent_core_stop(agent, err);
        return;
    }
    agent->phase = MEMBER;
    agent->join_failures = 0;
    agent->member = reply->member;
    agent->generation = reply->generation;
    if (map->generation != reply->generation)
        agent->map_number = 0; /* any of this generation is newer */
    agent->acquire_at = 0;
    agent->acquire_failures = 0;
    agent->sequence++;
    agent->statistics.joins++;
}

void agent_join_failed(struct agent *agent, uint64_t now_ms, enum err err)
{
    if (agent->phase != JOINING)
        return;
    if (!agent_core_is_passing(err) && err_reaction(err) != REACT_REJOIN) {
        agent_core_stop(agent, err);
        return;
    }
    /* What waiting mends comes soon; an unreachable coordinator is asked ever less often. */
    unsigned failures = agent->join_failures++;
    if (err_reaction(err) == REACT_WAIT && failures > AGENT_WAIT_FAILURES_MAX)
        failures = AGENT_WAIT_FAILURES_MAX;
    agent->phase = AWAY;
    agent->join_at = now_ms + agent_core_backoff_ms(agent, failures);
}

void agent_member_lost(struct agent *agent, uint64_t now_ms)
{
    if (agent->phase == MEMBER)
        agent_core_go_away(agent, now_ms);
}

/* ---- tickets ---- */

/* A unit is complete when every chunk of its weights is held at the ticket's version. */
static bool chunk_is_held(const struct agent *agent, uint32_t chunk)
{
    const struct chunk_state *state = &agent->chunks[chunk];
    return state->held_generation == agent->ticket.generation &&
           state->held_version == agent->ticket.version;
}

/* The chunks of unit's use u that are weights; the loss parameter has none. */
static const struct model_parameter *use_weights(const struct model *model, uint32_t unit,
                                                 uint32_t u)
{
    const struct model_use *use = &model->uses[model->units[unit].use_first + u];
    return use->parameter == model->loss_parameter ? NULL : &model->parameters[use->parameter];
}

static void ask_for_unit(struct agent *agent, uint32_t unit)
{
    const struct model *model = agent->config.model;
    uint32_t missing = 0;
    for (uint32_t u = 0; u < model->units[unit].uses_count; u++) {
        const struct model_parameter *parameter = use_weights(model, unit, u);
        if (parameter == NULL)
            continue;
        for (uint32_t i = 0; i < parameter->chunks_count; i++) {
            uint32_t chunk = parameter->chunk_first + i;
            if (chunk_is_held(agent, chunk))
                continue;
            missing++;
            if (parameter->part_units[0] == unit) /* a later use shares the first one's pull */
                queue_put(&agent->servers[agent->chunks[chunk].server].pulls, chunk);
        }
    }
    agent->unit_missing[unit] = missing;
}

static void begin_ticket(struct agent *agent, const struct ticket *ticket)
{
    agent->has_ticket = true;
    agent->ticket = *ticket;
    agent->compute_started = false;
    agent->compute_ended = false;
    agent->result = (struct agent_result){0};
    agent->pieces_left = ticket->kind == TICKET_TRAIN ? agent->piece_count : 0;
    for (uint32_t s = 0; s < agent->server_count; s++)
        agent->servers[s].ticket_boot = 0;
    for (uint32_t c = 0; agent->config.async && c < agent->config.model->chunks_count; c++)
        agent->chunks[c].held_generation = 0; /* there may be newer ones */
    for (uint32_t unit = 0; unit < agent->config.model->units_count; unit++)
        ask_for_unit(agent, unit);
}

static void acquire_failed(struct agent *agent, uint64_t now_ms, enum err err)
{
    if (!agent_core_is_passing(err)) {
        agent_core_react(agent, now_ms, err);
        return;
    }
    agent->acquire_at = now_ms + agent_core_backoff_ms(agent, agent->acquire_failures++);
}

void agent_acquired(struct agent *agent, uint64_t now_ms, uint64_t sequence, enum err err,
                    const struct acquire_reply *reply)
{
    if (agent->phase != MEMBER || !agent->acquiring || sequence != agent->sequence)
        return;
    agent->acquiring = false;
    if (err != ERR_OK) {
        acquire_failed(agent, now_ms, err);
        return;
    }
    agent->sequence++;
    agent->acquire_failures = 0;
    agent->ticket_map = reply->map_number;
    if (!agent_map_is_known(agent))
        agent_map_want(agent, now_ms);
    if (reply->result == ACQUIRE_TICKET && !agent->leaving)
        begin_ticket(agent, &reply->ticket);
    else if (reply->result == ACQUIRE_END)
        agent_run_over(agent, now_ms);
}

/* Async: the scale of all of it is known. */
static void queue_all_pieces(struct agent *agent)
{
    for (uint32_t piece = 0; piece < agent->piece_count; piece++) {
        agent->pieces[piece].state = PIECE_WAITING;
        uint32_t server = agent->chunks[agent->pieces[piece].chunk].server;
        queue_put(&agent->servers[server].pushes, piece);
    }
}

void agent_computed(struct agent *agent, uint64_t now_ms, const struct agent_result *result)
{
    (void)now_ms;
    check(agent->computing);
    agent->computing = false;
    agent->cancel_due = false;
    if (!agent->has_ticket || !agent->compute_started)
        return; /* it was a dropped ticket's */
    if (result->err != ERR_OK) {
        agent_core_stop(agent, result->err);
        return;
    }
    agent->compute_ended = true;
    agent->result = *result;
    if (agent->config.async && agent->ticket.kind == TICKET_TRAIN)
        queue_all_pieces(agent);
    agent_core_settle(agent);
}

/* ---- the end ---- */

void agent_leave(struct agent *agent, uint64_t now_ms, uint64_t deadline_ms)
{
    agent->leave_at = agent->leaving ? now_ms : deadline_ms;
    agent->leaving = true;
}

void agent_run_over(struct agent *agent, uint64_t now_ms)
{
    if (agent->phase != MEMBER) {
        agent_core_stop(agent, ERR_OK);
        return;
    }
    if (agent->has_ticket)
        agent_core_end_ticket(agent, ERR_CANCELLED);
    agent->complete_due = false; /* nobody counts it any more */
    agent->leaving = true;       /* a member that leaves is not a lost one */
    agent->leave_at = now_ms;
}

/* ---- effects ---- */

static bool next_membership(struct agent *agent, uint64_t now_ms, struct agent_effect *effect)
{
    if (agent->phase == AWAY && now_ms >= agent->join_at) {
        agent->phase = JOINING;
        effect->kind = AGENT_JOIN;
        return true;
    }
    if (agent->complete_due) {
        agent->complete_due = false;
        effect->kind = AGENT_COMPLETE;
        effect->complete = agent->complete;
        return true;
    }
    if (agent->phase != MEMBER || agent->has_ticket || agent->acquiring ||
        now_ms < agent->acquire_at)
        return false;
    agent->acquiring = true;
    effect->kind = AGENT_ACQUIRE;
    effect->acquire = (struct acquire_request){.member = agent->member,
                                               .generation = agent->generation,
                                               .sequence = agent->sequence,
                                               .wait_ms = AGENT_ACQUIRE_WAIT_MS};
    return true;
}

static bool next_leave(struct agent *agent, uint64_t now_ms, struct agent_effect *effect)
{
    if (!agent->leaving || agent->leave_said)
        return false;
    if (agent->has_ticket && now_ms >= agent->leave_at)
        agent_core_end_ticket(agent, ERR_CANCELLED);
    if (agent->has_ticket || agent->complete_due)
        return false; /* the ticket's end is said first */
    agent->leave_said = true;
    bool known = agent->phase == MEMBER;
    agent_core_stop(agent, ERR_OK);
    effect->kind = AGENT_LEAVE;
    return known;
}

static bool next_compute(struct agent *agent, struct agent_effect *effect)
{
    if (agent->cancel_due) {
        agent->cancel_due = false;
        agent->cancel_said = true;
        effect->kind = AGENT_CANCEL;
        return true;
    }
    if (!agent->has_ticket || agent->compute_started || agent->computing)
        return false;
    agent->compute_started = true;
    agent->computing = true;
    agent->cancel_said = false;
    effect->kind = AGENT_COMPUTE;
    effect->ticket = agent->ticket;
    return true;
}

static bool next_unit(struct agent *agent, struct agent_effect *effect)
{
    for (uint32_t unit = 0; unit < agent->config.model->units_count; unit++)
        if (agent->unit_missing[unit] == 0) {
            agent->unit_missing[unit] = UINT32_MAX;
            effect->kind = AGENT_UNIT_READY;
            effect->unit = unit;
            return true;
        }
    return false;
}

bool agent_next(struct agent *agent, uint64_t now_ms, struct agent_effect *ret_effect)
{
    if (agent->cancel_due && next_compute(agent, ret_effect))
        return true;
    if (next_leave(agent, now_ms, ret_effect))
        return true;
    if (agent->phase == STOPPED) {
        if (agent->stop_said || agent->computing)
            return false;
        agent->stop_said = true;
        ret_effect->kind = AGENT_STOP;
        ret_effect->stop = agent->stop;
        return true;
    }
    if (next_membership(agent, now_ms, ret_effect))
        return true;
    if (agent->phase != MEMBER)
        return false;
    if (next_compute(agent, ret_effect))
        return true;
    if (agent->has_ticket && agent->compute_started && next_unit(agent, ret_effect))
        return true;
    return agent_map_next(agent, now_ms, ret_effect) ||
           agent_traffic_next(agent, now_ms, ret_effect);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t agent_wake_ms(const struct agent *agent)
{
    uint64_t wake = UINT64_MAX;
    if (agent->phase == AWAY)
        wake = agent->join_at;
    if (agent->leaving && agent->has_ticket)
        wake = earlier(wake, agent->leave_at);
    if (agent->phase != MEMBER)
        return wake;
    if (!agent->has_ticket && !agent->acquiring)
        wake = earlier(wake, agent->acquire_at);
    if (agent->map_wanted && !agent->mapping)
        wake = earlier(wake, agent->map_at);
    for (uint32_t s = 0; s < agent->server_count; s++) {
        const struct server *server = &agent->servers[s];
        if (agent_traffic_waits(agent, server))
            wake = earlier(wake, server->retry_at);
    }
    return wake;
}

struct agent_statistics agent_statistics(const struct agent *agent)
{
    return agent->statistics;
}
