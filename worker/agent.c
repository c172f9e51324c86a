#include "worker/agent.h"

#include <string.h>

enum {
    /* Parked pulls hold no credit, but a record each: so much may arrive at once. */
    PULL_SLOTS = 2 * WIRE_CREDITS,
    MAP_FAILURES_MAX = 5, /* no newer map in a row: the next answer MOVED asks again */
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

/* ---- queues ---- */

static void queue_put(struct queue *queue, uint32_t item)
{
    check(queue->count < queue->capacity);
    uint32_t at = queue->first + queue->count++;
    queue->items[at < queue->capacity ? at : at - queue->capacity] = item;
}

static uint32_t queue_peek(const struct queue *queue)
{
    return queue->items[queue->first];
}

static void queue_drop_first(struct queue *queue)
{
    queue->first = queue->first + 1 == queue->capacity ? 0 : queue->first + 1;
    queue->count--;
}

/* ---- life ---- */

static void queues_free(struct server *servers, uint32_t count)
{
    for (uint32_t s = 0; s < count; s++) {
        free(servers[s].pulls.items);
        free(servers[s].pushes.items);
    }
    free(servers);
}

static void servers_free(struct agent *agent)
{
    queues_free(agent->servers, agent->server_count);
    agent->servers = NULL;
    agent->server_count = 0;
}

void agent_free(struct agent *agent)
{
    if (agent == NULL)
        return;
    servers_free(agent);
    free(agent->chunks);
    free(agent->pieces);
    free(agent->unit_missing);
    free(agent);
}

/* Async pushes whole chunks. */
static uint32_t chunk_pieces(const struct agent *agent, uint32_t chunk)
{
    const struct model *model = agent->config.model;
    return agent->config.async ? 1 : model->parameters[model->chunks[chunk].parameter].parts;
}

static void name_pieces(struct agent *agent)
{
    const struct model *model = agent->config.model;
    uint32_t piece = 0;
    for (uint32_t c = 0; c < model->chunks_count; c++) {
        agent->chunks[c].first_piece = piece;
        uint32_t parts = chunk_pieces(agent, c);
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
        agent->piece_count += chunk_pieces(agent, c);
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

/* ---- small decisions ---- */

uint64_t agent_backoff_ms(struct rand_state *jitter, unsigned failures)
{
    uint64_t ms = AGENT_BACKOFF_MS_MIN;
    while (failures-- > 0 && ms < AGENT_BACKOFF_MS_MAX)
        ms *= 2;
    if (ms > AGENT_BACKOFF_MS_MAX)
        ms = AGENT_BACKOFF_MS_MAX;
    return ms / 2 + rand_below(jitter, ms + 1);
}

static uint64_t backoff_ms(struct agent *agent, unsigned failures)
{
    return agent_backoff_ms(&agent->jitter, failures);
}

/* Nothing of the ticket is to be sent or sent again; what was sent is forsaken. */
static void forget_traffic(struct agent *agent)
{
    for (uint32_t s = 0; s < agent->server_count; s++) {
        struct server *server = &agent->servers[s];
        server->pulls.count = 0;
        server->pushes.count = 0;
        server->busy = 0;
        for (uint32_t i = 0; i < WIRE_CREDITS; i++)
            server->push_slots[i].forsaken = true;
        for (uint32_t i = 0; i < PULL_SLOTS; i++)
            server->pull_slots[i].forsaken = true;
    }
    for (uint32_t c = 0; c < agent->config.model->chunks_count; c++)
        agent->chunks[c].asked = 0;
    for (uint32_t p = 0; p < agent->piece_count; p++)
        agent->pieces[p].state = PIECE_NONE;
}

static void stop(struct agent *agent, enum err err)
{
    if (agent->phase == STOPPED)
        return;
    agent->phase = STOPPED;
    agent->stop = err;
    agent->cancel_due = agent->computing && !agent->cancel_said;
    agent->has_ticket = false;
    forget_traffic(agent);
}

/* The boots that acknowledged; of a server without chunks its newest. */
static void name_boots(struct agent *agent)
{
    for (uint32_t s = 0; s < agent->server_count; s++) {
        const struct server *server = &agent->servers[s];
        agent->complete_boots[s] = server->ticket_boot != 0 ? server->ticket_boot : server->boot;
    }
    agent->complete.boot_count = agent->server_count;
    agent->complete.boots = agent->complete_boots;
}

static void end_ticket(struct agent *agent, enum err outcome)
{
    agent->has_ticket = false;
    agent->cancel_due = agent->computing && !agent->cancel_said;
    agent->complete_due = true;
    agent->complete = (struct complete_request){
        .member = agent->member,
        .ticket = agent->ticket,
        .outcome = outcome,
        .loss_sum = agent->result.loss_sum,
        .sample_count = agent->result.sample_count,
        .correct_count = agent->result.correct_count,
    };
    if (agent->config.async && outcome == ERR_OK)
        name_boots(agent);
    if (outcome == ERR_OK)
        agent->statistics.tickets++;
    else
        agent->statistics.dropped++;
    forget_traffic(agent);
}

static void go_away(struct agent *agent, uint64_t now_ms)
{
    if (agent->phase == STOPPED)
        return;
    if (agent->has_ticket)
        end_ticket(agent, ERR_UNKNOWN_MEMBER);
    agent->complete_due = false; /* nobody would know us */
    agent->acquiring = false;
    agent->phase = AWAY;
    agent->join_at = now_ms + backoff_ms(agent, agent->join_failures++);
}

/* What an error of a peer means for this worker. */
static void react(struct agent *agent, uint64_t now_ms, enum err err)
{
    if (err_reaction(err) == REACT_REJOIN)
        go_away(agent, now_ms);
    else if (agent->has_ticket && err_reaction(err) == REACT_DROP)
        end_ticket(agent, err);
    else
        stop(agent, err);
}

/* It may be otherwise when asked again. A daemon that ends cancels the calls it has not answered.
 */
static bool is_passing(enum err err)
{
    enum reaction reaction = err_reaction(err);
    return err == ERR_CANCELLED || reaction == REACT_RETRY || reaction == REACT_WAIT;
}

/* ---- joining ---- */

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
                pieces += chunk_pieces(agent, c);
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
    agent->map_wanted = agent->mapping = false;
    agent->map_failures = 0;
}

static enum err servers_new(struct agent *agent, const struct agent_map *map)
{
    servers_free(agent);
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

/* P11: the sums of a ticket's step are those of the owners under its map. An older owner may not
 * have heard that it is none, and would count what it must not. */
static bool knows_owners(const struct agent *agent)
{
    return agent->map_number >= agent->ticket_map;
}

/* Asks again later, and less often each time. */
static void map_later(struct agent *agent, uint64_t now_ms)
{
    agent->mapping = false;
    agent->map_at = now_ms + backoff_ms(agent, agent->map_failures++);
}

void agent_mapped(struct agent *agent, uint64_t now_ms, const struct agent_map *map)
{
    if (agent->phase != MEMBER || !agent->mapping)
        return;
    if (map->number <= agent->map_number) {
        map_later(agent, now_ms); /* the coordinator is ahead of its servers, or they of it */
        agent->map_wanted = agent->map_failures < MAP_FAILURES_MAX || !knows_owners(agent);
        return;
    }
    enum err err = servers_change(agent, map);
    if (err != ERR_OK)
        stop(agent, err);
}

void agent_map_failed(struct agent *agent, uint64_t now_ms, enum err err)
{
    if (agent->phase != MEMBER || !agent->mapping)
        return;
    if (is_passing(err))
        map_later(agent, now_ms);
    else
        react(agent, now_ms, err);
}

/* A server says that a chunk is not its. */
static void want_map(struct agent *agent, uint64_t now_ms)
{
    if (agent->map_wanted)
        return;
    agent->map_wanted = true;
    agent->map_at = now_ms;
}

void agent_joined(struct agent *agent, uint64_t now_ms, const struct join_reply *reply,
                  const struct agent_map *map)
{
    (void)now_ms;
    if (agent->phase != JOINING)
        return;
    agent->ticket_map = 0;
    enum err err = servers_new(agent, map);
    if (err != ERR_OK) {
        stop(agent, err);
        return;
    }
    agent->phase = MEMBER;
    agent->join_failures = 0;
    agent->member = reply->member;
    agent->generation = reply->generation;
    agent->acquire_at = 0;
    agent->acquire_failures = 0;
    agent->sequence++;
    agent->statistics.joins++;
}

void agent_join_failed(struct agent *agent, uint64_t now_ms, enum err err)
{
    if (agent->phase != JOINING)
        return;
    if (!is_passing(err) && err_reaction(err) != REACT_REJOIN) {
        stop(agent, err);
        return;
    }
    /* What waiting mends comes soon; an unreachable coordinator is asked ever less often. */
    unsigned failures = agent->join_failures++;
    if (err_reaction(err) == REACT_WAIT && failures > AGENT_WAIT_FAILURES_MAX)
        failures = AGENT_WAIT_FAILURES_MAX;
    agent->phase = AWAY;
    agent->join_at = now_ms + backoff_ms(agent, failures);
}

void agent_member_lost(struct agent *agent, uint64_t now_ms)
{
    if (agent->phase == MEMBER)
        go_away(agent, now_ms);
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
    if (!is_passing(err)) {
        react(agent, now_ms, err);
        return;
    }
    agent->acquire_at = now_ms + backoff_ms(agent, agent->acquire_failures++);
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
    if (!knows_owners(agent))
        want_map(agent, now_ms);
    if (reply->result == ACQUIRE_TICKET && !agent->leaving)
        begin_ticket(agent, &reply->ticket);
    else if (reply->result == ACQUIRE_END)
        agent_run_over(agent, now_ms);
}

static void settle_ticket(struct agent *agent)
{
    if (agent->has_ticket && agent->compute_ended && agent->pieces_left == 0)
        end_ticket(agent, ERR_OK);
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
        stop(agent, result->err);
        return;
    }
    agent->compute_ended = true;
    agent->result = *result;
    if (agent->config.async && agent->ticket.kind == TICKET_TRAIN)
        queue_all_pieces(agent);
    settle_ticket(agent);
}

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
        end_ticket(agent, ERR_STALE); /* P12: what it was computed on may be lost */
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
    if (err != ERR_OK && !is_passing(err)) {
        react(agent, now_ms, err);
        return;
    }
    server->retry_at = now_ms + backoff_ms(agent, server->failures++);
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
        end_ticket(agent, ERR_STALE); /* asked again, a chunk might be another version */
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

/* What is said of an earlier ticket matters only when it is about more than that. */
static void answer_forsaken(struct agent *agent, uint64_t now_ms, enum err err)
{
    if (err_reaction(err) == REACT_REJOIN)
        go_away(agent, now_ms);
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
    } else if (is_passing(refusal->code)) {
        if (refusal->code == ERR_MOVED)
            want_map(agent, now_ms);
        retry_pull(agent, slot);
        server->retry_at = now_ms + backoff_ms(agent, server->failures++);
    } else {
        slot->id = 0;
        react(agent, now_ms, refusal->code);
    }
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
    bool passing = ack->code != ERR_OK && is_passing(ack->code);
    if (ack->code == ERR_MOVED)
        want_map(agent, now_ms);
    if (ack->code != ERR_OK && !passing) {
        slot->id = 0;
        react(agent, now_ms, ack->code);
        return;
    }
    uint32_t counted = passing ? ack->first_refused : slot->count;
    if (counted > slot->count)
        counted = slot->count;
    pieces_acked(agent, slot, counted);
    retry_push(agent, slot, counted);
    server->busy = ack->code == ERR_BUSY && counted == 0 ? server->busy + 1 : 0;
    if (passing)
        server->retry_at = now_ms + backoff_ms(agent, server->failures++);
    else
        server->failures = 0;
    if (server->busy == AGENT_BUSY_MAX)
        end_ticket(agent, ERR_BUSY);
    else
        settle_ticket(agent);
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
        stop(agent, ERR_OK);
        return;
    }
    if (agent->has_ticket)
        end_ticket(agent, ERR_CANCELLED);
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
        end_ticket(agent, ERR_CANCELLED);
    if (agent->has_ticket || agent->complete_due)
        return false; /* the ticket's end is said first */
    agent->leave_said = true;
    bool known = agent->phase == MEMBER;
    stop(agent, ERR_OK);
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

/* A free record; WIRE_CREDITS: none. */
static uint32_t free_push(const struct server *server)
{
    uint32_t i = 0;
    while (i < WIRE_CREDITS && server->push_slots[i].id != 0)
        i++;
    return i;
}

static bool may_push(const struct agent *agent, const struct server *server)
{
    return knows_owners(agent) && server->pushes.count > 0 && free_push(server) < WIRE_CREDITS;
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
    if (!may_push(agent, server))
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
    if (agent->config.async) {
        effect->push.push.attempt = agent->ticket.attempt;
        effect->push.push.boot = server->ticket_boot;
        effect->push.push.scale = agent->result.scale;
    }
    effect->push.entries = slot->entries;
    return true;
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

static bool next_map(struct agent *agent, uint64_t now_ms, struct agent_effect *effect)
{
    if (!agent->map_wanted || agent->mapping || now_ms < agent->map_at)
        return false;
    agent->mapping = true;
    effect->kind = AGENT_DESCRIBE;
    return true;
}

static bool next_traffic(struct agent *agent, uint64_t now_ms, struct agent_effect *effect)
{
    for (uint32_t s = 0; s < agent->server_count; s++) {
        if (now_ms < agent->servers[s].retry_at)
            continue;
        if (next_open(agent, s, effect))
            return true;
        if (agent->servers[s].open && agent->has_ticket && agent->compute_started &&
            (next_push(agent, s, effect) || next_pull(agent, s, effect)))
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
    return next_map(agent, now_ms, ret_effect) || next_traffic(agent, now_ms, ret_effect);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Only its retry_at is between the server and something to be done. */
static bool waits_for_retry(const struct agent *agent, const struct server *server)
{
    if (!server->open)
        return !server->opening && owns_chunks(server);
    return agent->has_ticket && agent->compute_started &&
           (may_push(agent, server) || may_pull(server));
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
        if (waits_for_retry(agent, server))
            wake = earlier(wake, server->retry_at);
    }
    return wake;
}

struct agent_statistics agent_statistics(const struct agent *agent)
{
    return agent->statistics;
}

/* ---- invariants ---- */

static void check_server(const struct agent *agent, const struct server *server, uint32_t *waiting,
                         uint32_t *sent)
{
    uint32_t unanswered = 0;
    for (uint32_t i = 0; i < PULL_SLOTS; i++) {
        const struct pull_slot *slot = &server->pull_slots[i];
        unanswered += slot->id != 0 && !slot->parked;
        check(slot->id == 0 || slot->forsaken || agent->has_ticket);
    }
    check(unanswered <= WIRE_CREDITS);
    *waiting += server->pushes.count;
    for (uint32_t i = 0; i < WIRE_CREDITS; i++) {
        const struct push_slot *slot = &server->push_slots[i];
        if (slot->id == 0 || slot->forsaken)
            continue;
        check(agent->has_ticket);
        *sent += slot->count;
        for (uint32_t p = 0; p < slot->count; p++)
            check(agent->pieces[slot->pieces[p]].state == PIECE_SENT);
    }
}

void agent_check(const struct agent *agent)
{
    uint32_t waiting = 0, sent = 0;
    uint32_t states[PIECE_ACKED + 1] = {0};
    check(!agent->has_ticket || agent->phase == MEMBER);
    for (uint32_t s = 0; s < agent->server_count; s++)
        check_server(agent, &agent->servers[s], &waiting, &sent);
    for (uint32_t p = 0; p < agent->piece_count; p++)
        states[agent->pieces[p].state]++;
    check(waiting == states[PIECE_WAITING]);
    check(sent == states[PIECE_SENT]);
    if (agent->has_ticket && agent->ticket.kind == TICKET_TRAIN)
        check(agent->pieces_left == agent->piece_count - states[PIECE_ACKED]);
}
