/* The replies to Describe and Status. */
#include "server/control/replies.h"

#include "common/files/run_directory.h"

#include <string.h>

void replies_send(struct call *take_call, enum err err, struct buf *take_response)
{
    if (err == ERR_OK) {
        call_reply(take_call, take_response);
        return;
    }
    buf_release(take_response);
    call_fail(take_call, err, err_text(err));
}

/* A text that outlives the caller's struct, in the call's arena; "" when there is no room. */
static const char *keep(struct arena *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = arena_take(arena, bytes);
    if (copy == NULL)
        return "";
    memcpy(copy, text, bytes);
    return copy;
}

static struct server_description describe_server(struct arena *arena,
                                                 const struct coordinator_server *server)
{
    return (struct server_description){
        .name = keep(arena, server->name),
        .address = keep(arena, server->address),
        .boot = server->boot,
        .connected = server->connected,
        .chunks = server->chunk_count,
        .state = server->state,
    };
}

/* The run's servers in map order, or, without a map, all that are known. */
static enum err describe_servers(const struct replies_facts *facts, struct arena *arena,
                                 const struct server_description **ret_servers, uint32_t *ret_count)
{
    struct server_description *servers = arena_array(arena, WIRE_SERVERS_MAX, sizeof *servers);
    struct coordinator_server server;
    uint32_t count = 0;
    bool mapped = coordinator_map(facts->coordinator) != NULL;
    if (servers == NULL)
        return ERR_NOMEM;
    while (count < WIRE_SERVERS_MAX &&
           (mapped ? coordinator_map_server(facts->coordinator, count, &server)
                   : coordinator_server(facts->coordinator, count, &server)))
        servers[count++] = describe_server(arena, &server);
    *ret_servers = servers;
    *ret_count = count;
    return ERR_OK;
}

static enum err describe_chunks(const struct model *model, struct arena *arena,
                                struct describe_reply *reply)
{
    struct chunk_description *chunks = arena_array(arena, model->chunks_count, sizeof *chunks);
    if (chunks == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < model->chunks_count; i++) {
        const struct model_chunk *chunk = &model->chunks[i];
        chunks[i] = (struct chunk_description){
            .parameter = model->parameters[chunk->parameter].name,
            .row = chunk->row,
            .rows = chunk->rows,
            .col = chunk->col,
            .cols = chunk->cols,
            .parts = model->parameters[chunk->parameter].parts,
        };
    }
    reply->chunk_count = model->chunks_count;
    reply->chunks = chunks;
    return ERR_OK;
}

static enum err describe_run(const struct replies_facts *facts, struct call *call,
                             struct describe_reply *reply)
{
    struct coordinator_status status;
    const struct control_run *run = facts->run;
    const struct map *map = coordinator_map(facts->coordinator);
    coordinator_status(facts->coordinator, &status);
    reply->has_run = true;
    reply->run = run->stored.run;
    reply->generation = status.generation;
    /* P9: a worker that hears of the end leaves for good. */
    reply->state = status.end_late ? RUN_TRAINING : status.state;
    reply->spec = run->stored.spec;
    reply->samples = run->stored.samples;
    reply->validation_samples = control_run_held_out(run);
    memcpy(reply->data_digest, run->stored.data_digest, WIRE_DIGEST_BYTES);
    if (map != NULL) {
        reply->range_count = map->range_count;
        reply->ranges = map->ranges;
        reply->map_number = status.map_number;
    }
    return call->describe.with_chunks ? describe_chunks(&run->model, &call->arena, reply) : ERR_OK;
}

static enum err encode_description(const struct replies_facts *facts, struct call *call,
                                   struct buf *response)
{
    struct describe_reply reply = {
        .wire_version = WIRE_VERSION, .wire_version_min = WIRE_VERSION_MIN, .spec = ""};
    if (facts->run != NULL)
        TRY(describe_run(facts, call, &reply));
    TRY(describe_servers(facts, &call->arena, &reply.servers, &reply.server_count));
    return wire_encode_describe_reply(&reply, response);
}

void replies_describe(const struct replies_facts *facts, struct call *take_call)
{
    struct buf response = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    enum err err = encode_description(facts, take_call, &response);
    replies_send(take_call, err, &response);
}

/* ---- status ---- */

static uint64_t ends_of(const struct connection *connection)
{
    return connection == NULL ? 0 : (uint64_t)connection->certificate_ends_s;
}

static uint64_t server_ends(const struct replies_facts *facts, uint64_t link)
{
    if (link == 0)
        return 0;
    return link == facts->local_link ? (uint64_t)facts->ends_s
                                     : ends_of(connections_server(facts->connections, link));
}

/* All that are known, but for those that have left. */
static enum err status_servers(const struct replies_facts *facts, struct arena *arena,
                               struct status_reply *reply)
{
    struct server_description *servers = arena_array(arena, WIRE_SERVERS_MAX, sizeof *servers);
    struct coordinator_server server;
    if (servers == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; coordinator_server(facts->coordinator, i, &server); i++) {
        if (!server.connected && server.has_left)
            continue;
        servers[reply->server_count] = describe_server(arena, &server);
        servers[reply->server_count++].certificate_ends_s = server_ends(facts, server.link);
    }
    reply->servers = servers;
    return ERR_OK;
}

static enum err status_members(const struct replies_facts *facts, struct arena *arena,
                               struct status_reply *reply)
{
    struct coordinator_member member;
    uint32_t count = 0;
    while (coordinator_member(facts->coordinator, count, &member))
        count++;
    struct member_status *members = arena_array(arena, count > 0 ? count : 1, sizeof *members);
    if (members == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < count; i++) {
        check(coordinator_member(facts->coordinator, i, &member));
        members[i] = (struct member_status){
            .member = member.member,
            .name = keep(arena, member.name),
            .device = keep(arena, member.device),
            .state = member.state,
            .reason = keep(arena, member.reason),
            .tickets = member.slots_done,
            .silent_seconds =
                member.seen_ms > 0 ? (double)(facts->now_ms - member.seen_ms) / 1000 : 0,
            .certificate_ends_s = ends_of(connections_member(facts->connections, member.member)),
            .kept_bytes = member.kept_bytes,
        };
    }
    reply->member_count = count;
    reply->members = members;
    return ERR_OK;
}

static enum err status_places(const struct replies_facts *facts, struct arena *arena,
                              struct status_reply *reply)
{
    struct coordinator_seat seat;
    struct coordinator_pair pair;
    struct place_status *places = arena_array(arena, WIRE_PLACES_SHOWN_MAX, sizeof *places);
    struct unreachable_status *pairs = arena_array(arena, WIRE_PLACES_SHOWN_MAX, sizeof *pairs);
    uint32_t count = 0;
    if (places == NULL || pairs == NULL)
        return ERR_NOMEM;
    for (; count < WIRE_PLACES_SHOWN_MAX && coordinator_seat(facts->coordinator, count, &seat);
         count++)
        places[count] = (struct place_status){
            .kind = seat.kind,
            .step = seat.step,
            .slot = seat.slot,
            .slots = seat.slots,
            .attempt = seat.attempt,
            .copy = seat.copy,
            .stage = seat.stage,
            .rank = seat.rank,
            .member = seat.member,
            .name = keep(arena, seat.name),
            .done = seat.done,
            .tries = seat.tries,
            .seconds = (double)(facts->now_ms - seat.since_ms) / 1000,
        };
    reply->place_count = count;
    reply->places = places;
    for (count = 0;
         count < WIRE_PLACES_SHOWN_MAX && coordinator_pair(facts->coordinator, count, &pair);
         count++)
        pairs[count] = (struct unreachable_status){.worker = keep(arena, pair.worker),
                                                   .other = keep(arena, pair.other),
                                                   .times = pair.times,
                                                   .apart = pair.apart};
    reply->unreachable_count = count;
    reply->unreachable = pairs;
    return ERR_OK;
}

static void status_traffic(const struct replies_facts *facts, struct status_reply *reply)
{
    struct coordinator_server server;
    for (uint32_t i = 0; coordinator_server(facts->coordinator, i, &server); i++) {
        reply->pushed_bytes += server.pushed_bytes;
        reply->spared_bytes += server.spared_bytes;
        reply->pulled_bytes += server.pulled_bytes;
        reply->duplicates += server.duplicates;
        reply->audits.pushes += server.audited;
    }
}

/* A coordinator without a run says what its store has of one. */
static struct coordinator_status status_now(const struct replies_facts *facts)
{
    const struct control_told *told = facts->told;
    struct coordinator_status now;
    coordinator_status(facts->coordinator, &now);
    if (now.state != RUN_NONE || told->state == RUN_NONE)
        return now;
    now.run = told->run;
    now.state = told->state;
    now.stops = told->stops && told->state <= RUN_TRAINING; /* one that is over does not */
    now.steps = told->steps;
    now.cut = told->cut;
    now.version = told->cut.version;
    now.generation = told->cut.generation;
    now.counters.samples = told->samples;
    snprintf(now.reason, sizeof now.reason, "%s", told->reason);
    return now;
}

/* Absolute: who asks is in another folder, or on another machine. */
static enum err status_directory(const struct replies_facts *facts, struct arena *arena,
                                 struct status_reply *reply)
{
    const char *directory =
        facts->run != NULL ? facts->run->stored.directory : facts->told->directory;
    reply->directory = directory;
    if (directory[0] == 0 || directory[0] == '/')
        return ERR_OK;
    char *absolute = arena_take(arena, WIRE_TEXT_BYTES_MAX + 1);
    if (absolute == NULL)
        return ERR_NOMEM;
    if (run_directory_name(directory, facts->folder, absolute, WIRE_TEXT_BYTES_MAX + 1, NULL) ==
        ERR_OK)
        reply->directory = absolute;
    return ERR_OK;
}

static enum err status(const struct replies_facts *facts, struct call *call, struct buf *response)
{
    const struct coordinator_status now = status_now(facts);
    struct status_reply reply = {
        .state = now.state,
        .reason = now.reason,
        .coordinator = facts->name,
        .run = now.run,
        .generation = now.generation,
        .step = now.version,
        .steps = now.steps,
        .loss = now.last_step.metrics.loss,
        .accuracy = now.last_step.metrics.accuracy,
        .validation_loss = now.last_validation.loss,
        .validation_accuracy = now.last_validation.accuracy,
        .has_validation = now.last_validation.generation > 0,
        .stops = now.stops,
        .samples = now.counters.samples,
        .seconds = facts->seconds,
        .samples_here = facts->samples_here,
        .workers_joined = now.members_joined,
        .workers_lost = now.members_lost,
        .tickets_redone = now.redone,
        .skipped_steps = now.skipped,
        .cut = now.cut,
        .cut_state = now.cut_error[0] != 0 ? now.cut_error : facts->log_error,
        .lr = now.last_step.metrics.lr,
        .norm = now.last_step.metrics.norm,
        .member_ms = now.member_ms,
        .useful_ms = now.useful_ms,
        .wasted_ms = now.wasted_ms,
        .map_number = now.map_number,
        .moves = now.moves,
        .audits = now.audits,
        .cost_count = facts->costs->count,
        .costs = facts->costs->places,
        .validation_peer_bytes = facts->costs->validation_bytes,
    };
    status_traffic(facts, &reply);
    TRY(status_directory(facts, &call->arena, &reply));
    TRY(status_members(facts, &call->arena, &reply));
    TRY(status_servers(facts, &call->arena, &reply));
    TRY(status_places(facts, &call->arena, &reply));
    return wire_encode_status_reply(&reply, response);
}

void replies_status(const struct replies_facts *facts, struct call *take_call)
{
    struct buf response = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    enum err err = status(facts, take_call, &response);
    replies_send(take_call, err, &response);
}
