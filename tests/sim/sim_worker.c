/* A worker's process, as worker.c is one. */
#include "tests/sim/sim.h"

#include "common/arena.h"
#include "common/digest.h"
#include "common/scoped.h"

#include <string.h>

enum {
    CALL_MS = 10000, /* as worker.c */
};

/* ---- life ---- */

void sim_worker_init(struct sim *sim, uint32_t index)
{
    struct sim_worker *worker = &sim->workers[index];
    uint32_t chunks = sim->compute.model.chunks_count;
    *worker = (struct sim_worker){.index = index};
    process_init(sim, &worker->process);
    worker->weights = calloc(compute_weights_count(&sim->compute), sizeof *worker->weights);
    worker->gradients = calloc(compute_gradients_count(&sim->compute), sizeof *worker->gradients);
    worker->held = calloc(chunks, sizeof *worker->held);
    worker->chunk_servers = calloc(chunks, sizeof *worker->chunk_servers);
    check(worker->weights && worker->gradients && worker->held && worker->chunk_servers);
    check(sim->compute.model.units_count <= SIM_UNITS_MAX);
}

static uint64_t now_ms(const struct sim *sim, const struct sim_worker *worker)
{
    return process_now_ms(sim, &worker->process);
}

void sim_worker_release(struct sim_worker *worker)
{
    process_release(&worker->process);
    agent_free(worker->agent);
    free(worker->weights);
    free(worker->gradients);
    free(worker->held);
    free(worker->chunk_servers);
}

static void close_streams(struct sim *sim, struct sim_worker *worker, bool silent)
{
    for (uint32_t i = 0; i < worker->link_count; i++) {
        if (worker->links[i].stream != 0)
            network_close(sim, network_stream(sim, worker->links[i].stream), OPENER, silent);
        worker->links[i] = (struct sim_link){0};
    }
    if (worker->member_stream != 0)
        network_close(sim, network_stream(sim, worker->member_stream), OPENER, silent);
    worker->member_stream = 0;
    worker->link_count = 0;
}

static void end_process(struct sim *sim, struct sim_worker *worker, bool silent)
{
    close_streams(sim, worker, silent);
    process_kill(&worker->process);
    agent_free(worker->agent);
    worker->agent = NULL;
    worker->alive = worker->computing = false;
    worker->compute++;
    worker->membership++;
}

static void pump(struct sim *sim, struct sim_worker *worker);

void sim_worker_start(struct sim *sim, struct sim_worker *worker)
{
    check(!worker->alive);
    const struct agent_config config = {
        .model = &sim->compute.model,
        .push_codec = compute_codec(&sim->compute),
        .weights_codec = compute_codec(&sim->compute),
        .async = sim->run.async,
        .seed = rand_next(&sim->random),
    };
    worker->life++;
    worker->member = 0;
    worker->alive = true;
    worker->leaving = false;
    worker->slowness = 1;
    worker->wake_us = UINT64_MAX;
    memset(worker->weights, 0xff, compute_weights_count(&sim->compute) * sizeof(float));
    memset(worker->held, 0, sim->compute.model.chunks_count * sizeof *worker->held);
    check(agent_new(&config, &worker->agent) == ERR_OK);
    sim_trace(sim, "w%u starts, life %llu", worker->index, (unsigned long long)worker->life);
    pump(sim, worker);
}

void sim_worker_kill(struct sim *sim, struct sim_worker *worker, bool silent)
{
    sim_trace(sim, "w%u is killed%s", worker->index, silent ? ", its machine is gone" : "");
    end_process(sim, worker, silent);
}

static void wake_at(struct sim *sim, struct sim_worker *worker, uint64_t at_us)
{
    if (at_us >= worker->wake_us)
        return; /* the timer comes before that, and is then set again */
    worker->wake_us = at_us;
    queue_put(&sim->queue, (struct event){.at_us = at_us,
                                          .kind = EVENT_WORKER_WAKE,
                                          .index = worker->index,
                                          .number = worker->life});
}

void sim_worker_jump(struct sim *sim, struct sim_worker *worker, uint64_t us)
{
    worker->process.clock_us += us;
    if (worker->alive)
        wake_at(sim, worker, sim->now_us);
}

void sim_worker_leave(struct sim *sim, struct sim_worker *worker, uint64_t budget_ms)
{
    sim_trace(sim, "w%u is told to leave within %llu ms", worker->index,
              (unsigned long long)budget_ms);
    worker->leaving = true;
    agent_leave(worker->agent, now_ms(sim, worker), now_ms(sim, worker) + budget_ms);
    pump(sim, worker);
}

/* ---- calls ---- */

static void call(struct sim *sim, struct sim_worker *worker, enum call_kind kind, uint64_t tag,
                 struct message *take_request, uint64_t timeout_ms)
{
    const struct call what = {.kind = kind,
                              .worker = worker->index,
                              .office = worker->office,
                              .life = worker->life,
                              .tag = tag};
    network_call(sim, &what, take_request, timeout_ms);
}

enum { DESCRIBE_TO_JOIN, DESCRIBE_MAP };

static void call_describe(struct sim *sim, struct sim_worker *worker, uint64_t why)
{
    const struct describe_request request = {0};
    worker->office = sim_coordinator_find(sim);
    call(sim, worker, CALL_DESCRIBE, why,
         sim_scratch_message(sim, wire_encode_describe_request(&request, &sim->scratch)), CALL_MS);
}

static void call_join(struct sim *sim, struct sim_worker *worker)
{
    struct join_request request = {.wire_version = WIRE_VERSION,
                                   .device = "cpu",
                                   .previous_member = worker->member,
                                   .previous_secret = worker->secret};
    snprintf(request.name, sizeof request.name, "w%u", worker->index);
    memset(request.fingerprint, 7, sizeof request.fingerprint);
    call(sim, worker, CALL_JOIN, 0,
         sim_scratch_message(sim, wire_encode_join_request(&request, &sim->scratch)), CALL_MS);
}

static void call_acquire(struct sim *sim, struct sim_worker *worker,
                         const struct acquire_request *request)
{
    call(sim, worker, CALL_ACQUIRE, request->sequence,
         sim_scratch_message(sim, wire_encode_acquire_request(request, &sim->scratch)),
         request->wait_ms + CALL_MS);
}

static void call_complete(struct sim *sim, struct sim_worker *worker,
                          const struct complete_request *request)
{
    sim_trace(sim, "w%u completes step %llu node %u:%u attempt %llu: %s", worker->index,
              (unsigned long long)request->ticket.step, request->ticket.node.level,
              request->ticket.node.index, (unsigned long long)request->ticket.attempt,
              err_name(request->outcome));
    call(sim, worker, CALL_COMPLETE, 0,
         sim_scratch_message(sim, wire_encode_complete_request(request, &sim->scratch)), CALL_MS);
}

static void call_leave(struct sim *sim, struct sim_worker *worker)
{
    const struct leave_request request = {worker->member, worker->secret, "told to leave"};
    call(sim, worker, CALL_LEAVE, 0,
         sim_scratch_message(sim, wire_encode_leave_request(&request, &sim->scratch)), CALL_MS);
}

/* ---- joining ---- */

static void beat_later(struct sim *sim, const struct sim_worker *worker)
{
    queue_put(&sim->queue,
              (struct event){.at_us = sim->now_us + (uint64_t)worker->heartbeat_ms * 1000,
                             .kind = EVENT_WORKER_BEAT,
                             .index = worker->index,
                             .number = worker->membership});
}

static void send_heartbeat(struct sim *sim, struct sim_worker *worker)
{
    const struct member_report report = {worker->member, worker->secret};
    if (worker->member_stream == 0)
        return;
    network_send(sim, network_stream(sim, worker->member_stream), ACCEPTOR,
                 sim_scratch_message(sim, wire_encode_member_report(&report, &sim->scratch)));
    beat_later(sim, worker);
}

static uint32_t server_of(const struct server_description *description)
{
    unsigned server;
    return sscanf(description->address, "s%u", &server) == 1 ? server : SIM_SERVERS_MAX;
}

static bool chunks_have_servers(const struct describe_reply *reply)
{
    for (uint32_t i = 0; i < reply->range_count; i++)
        if (reply->ranges[i].server >= reply->server_count ||
            server_of(&reply->servers[reply->ranges[i].server]) == SIM_SERVERS_MAX)
            return false;
    return reply->range_count > 0;
}

static void take_ranges(struct sim_worker *worker, const struct describe_reply *reply)
{
    for (uint32_t i = 0; i < reply->range_count; i++)
        for (uint32_t c = 0; c < reply->ranges[i].count; c++)
            worker->chunk_servers[reply->ranges[i].first + c] = reply->ranges[i].server;
}

/* Which of the run's servers is which of ours, by its address. */
static enum err described(struct sim *sim, struct sim_worker *worker, const struct message *message)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct describe_reply reply;
    struct slice bytes = {message->data, message->bytes};
    check(wire_decode_describe_reply(bytes, &arena, &reply, NULL) == ERR_OK);
    if (!reply.has_run || reply.server_count == 0)
        return ERR_NO_RUN;
    if (!chunks_have_servers(&reply))
        return ERR_NO_RUN;
    close_streams(sim, worker, false);
    worker->map_number = reply.map_number;
    worker->map_generation = reply.generation;
    worker->link_count = reply.server_count;
    for (uint32_t s = 0; s < reply.server_count; s++)
        worker->links[s] = (struct sim_link){.server = server_of(&reply.servers[s])};
    take_ranges(worker, &reply);
    return ERR_OK;
}

/* Streams to servers that stay are kept (worker.c: change_links()). */
static enum err relink(struct sim *sim, struct sim_worker *worker, const struct message *message,
                       struct agent_map *ret_map)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct describe_reply reply;
    struct slice bytes = {message->data, message->bytes};
    check(wire_decode_describe_reply(bytes, &arena, &reply, NULL) == ERR_OK);
    if (!reply.has_run || !chunks_have_servers(&reply))
        return ERR_NO_RUN;
    *ret_map = (struct agent_map){reply.map_number, reply.server_count, worker->chunk_servers,
                                  reply.generation};
    if (!agent_takes_map(worker->agent, reply.generation, reply.map_number))
        return ERR_OK;
    for (uint32_t s = 0; s < reply.server_count; s++) {
        uint32_t server = server_of(&reply.servers[s]);
        bool fresh = s >= worker->link_count || worker->links[s].server == SIM_SERVERS_MAX;
        if (!fresh && worker->links[s].server == server)
            continue;
        if (!fresh) {
            if (worker->links[s].stream != 0)
                network_close(sim, network_stream(sim, worker->links[s].stream), OPENER, false);
            agent_stream_lost(worker->agent, now_ms(sim, worker), s, ERR_UNREACHABLE);
        }
        worker->links[s] = (struct sim_link){.server = server};
    }
    if (reply.server_count > worker->link_count)
        worker->link_count = reply.server_count;
    take_ranges(worker, &reply);
    return ERR_OK;
}

static void mapped(struct sim *sim, struct sim_worker *worker, enum err err,
                   const struct message *message)
{
    if (!sim->calm && sim_below(sim, 3) == 0) { /* it learns late that chunks have moved */
        sim_fault(sim, FAULT_LOSE_CALL);
        err = ERR_UNREACHABLE;
    }
    struct agent_map map = {0};
    if (err == ERR_OK)
        err = relink(sim, worker, message, &map);
    if (err == ERR_OK)
        agent_mapped(worker->agent, now_ms(sim, worker), &map);
    else
        agent_map_failed(worker->agent, now_ms(sim, worker), err);
}

static void joined(struct sim *sim, struct sim_worker *worker, const struct message *message)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct join_reply reply;
    struct slice bytes = {message->data, message->bytes};
    check(wire_decode_join_reply(bytes, &arena, &reply, NULL) == ERR_OK);
    worker->member = reply.member;
    worker->secret = reply.secret;
    worker->membership++;
    worker->heartbeat_ms = reply.heartbeat_ms;
    worker->member_stream = network_open(sim, (struct stream){.kind = STREAM_MEMBER,
                                                              .worker = worker->index,
                                                              .office = worker->office})
                                ->number;
    send_heartbeat(sim, worker);
    sim_trace(sim, "w%u is member %llx, generation %llu", worker->index,
              (unsigned long long)reply.member, (unsigned long long)reply.generation);
    const struct agent_map map = {worker->map_number, worker->link_count, worker->chunk_servers,
                                  worker->map_generation};
    agent_joined(worker->agent, now_ms(sim, worker), &reply, &map);
}

/* ---- effects ---- */

static void stop(struct sim *sim, struct sim_worker *worker, enum err err)
{
    sim_trace(sim, "w%u stops: %s", worker->index, err_name(err));
    if (err != ERR_OK && !story_is_wrong(sim, worker->index))
        sim_violated(sim, 8, "w%u stops with %s", worker->index, err_name(err));
    end_process(sim, worker, false);
}

static void carry_out(struct sim *sim, struct sim_worker *worker, const struct agent_effect *effect)
{
    switch (effect->kind) {
    case AGENT_JOIN:
        call_describe(sim, worker, DESCRIBE_TO_JOIN);
        break;
    case AGENT_DESCRIBE:
        call_describe(sim, worker, DESCRIBE_MAP);
        break;
    case AGENT_OPEN:
        sim_link_open(sim, worker, effect->server);
        break;
    case AGENT_ACQUIRE:
        call_acquire(sim, worker, &effect->acquire);
        break;
    case AGENT_COMPUTE:
        sim_device_begin(sim, worker, &effect->ticket);
        break;
    case AGENT_CANCEL:
        sim_device_cancel(sim, worker);
        break;
    case AGENT_PULL:
        sim_link_pull(sim, worker, effect->server, &effect->pull);
        break;
    case AGENT_UNIT_READY:
        sim_device_unit_ready(sim, worker, effect->unit);
        break;
    case AGENT_PUSH:
        if (effect->push.push.node.level > 0)
            faults_spring(sim, TRAP_ORPHAN, worker->index);
        sim_link_push(sim, worker, effect->server, &effect->push.push, effect->push.entries);
        faults_spring(sim, TRAP_PUSH, worker->index);
        break;
    case AGENT_COMPLETE:
        call_complete(sim, worker, &effect->complete);
        break;
    case AGENT_LEAVE:
        call_leave(sim, worker);
        break;
    case AGENT_STOP:
        stop(sim, worker, effect->stop);
        break;
    }
}

/* Everything that is to be done now; then the timer. */
static void pump(struct sim *sim, struct sim_worker *worker)
{
    struct agent_effect effect;
    while (worker->alive && agent_next(worker->agent, now_ms(sim, worker), &effect))
        carry_out(sim, worker, &effect);
    if (!worker->alive)
        return;
    agent_check(worker->agent);
    sim_link_check(sim, worker);
    uint64_t wake_ms = agent_wake_ms(worker->agent);
    if (wake_ms <= now_ms(sim, worker))
        sim_violated(sim, 8, "w%u's loop spins: nothing to do at %llu ms, wakes at %llu ms",
                     worker->index, (unsigned long long)now_ms(sim, worker),
                     (unsigned long long)wake_ms);
    wake_at(sim, worker, process_at_us(&worker->process, wake_ms));
}

/* ---- events ---- */

static void take_result(struct sim *sim, struct sim_worker *worker, enum err err)
{
    struct agent_result result = worker->result;
    result.err = err;
    worker->computing = false;
    agent_computed(worker->agent, now_ms(sim, worker), &result);
    if (sim->options.mutation != MUTATE_COMPLETE_EARLY || err != ERR_OK)
        return;
    for (uint32_t l = 0; l < worker->link_count; l++)
        for (uint32_t i = 0; i < worker->links[l].count; i++)
            if (!worker->links[l].unanswered[i].pull)
                agent_acked(worker->agent, now_ms(sim, worker), l,
                            &(struct push_ack){.id = worker->links[l].unanswered[i].id});
}

static void take_weights(struct sim *sim, struct sim_worker *worker, uint32_t link,
                         const struct from_shard *message, const struct message *bytes)
{
    const struct weights *weights = &message->weights;
    const struct model *model = &sim->compute.model;
    if (!agent_weights(worker->agent, now_ms(sim, worker), link, weights))
        return;
    for (uint32_t i = 0; i < weights->chunk_count; i++) {
        uint32_t chunk = weights->chunks[i];
        const struct counted *copy = bytes->copies[i];
        const struct model_parameter *parameter =
            &model->parameters[model->chunks[chunk].parameter];
        for (uint32_t p = 0; p < parameter->parts; p++)
            if (worker->computing && worker->ready[parameter->part_units[p]])
                sim_violated(sim, 3, "w%u's chunk %u changes while it is computed on",
                             worker->index, chunk);
        if (sim->options.mutation != MUTATE_STALE_WEIGHTS || sim_below(sim, 16) != 0) {
            compute_decode(&sim->compute, chunk, copy->data, worker->weights);
            worker->held[chunk] = digest_fast64((struct slice){copy->data, copy->bytes});
        }
    }
}

static void take_from_shard(struct sim *sim, struct sim_worker *worker, uint32_t link,
                            const struct message *bytes)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct slice slices[1 + MESSAGE_COPIES_MAX] = {{bytes->data, bytes->bytes}};
    struct sim_link *at = &worker->links[link];
    struct from_shard message;
    for (uint32_t i = 0; i < bytes->copy_count; i++)
        slices[1 + i] = (struct slice){bytes->copies[i]->data, bytes->copies[i]->bytes};
    check(wire_decode_from_shard(slices, 1 + bytes->copy_count, &arena, &message, NULL) == ERR_OK);
    uint64_t at_ms = now_ms(sim, worker);
    switch (message.kind) {
    case FROM_SHARD_WELCOME:
        agent_stream_up(worker->agent, at_ms, link, message.welcome.boot);
        break;
    case FROM_SHARD_ACK:
        sim_link_answered(at, message.ack.id);
        agent_acked(worker->agent, at_ms, link, &message.ack);
        break;
    case FROM_SHARD_WEIGHTS:
        sim_link_partly_answered(at, message.weights.id, message.weights.chunk_count);
        take_weights(sim, worker, link, &message, bytes);
        break;
    case FROM_SHARD_REFUSAL:
        if (message.refusal.code == ERR_TOO_EARLY)
            sim_link_partly_answered(at, message.refusal.id, 0);
        else
            sim_link_answered(at, message.refusal.id);
        agent_refused(worker->agent, at_ms, link, &message.refusal);
        break;
    }
}

static void take_notice(struct sim *sim, struct sim_worker *worker, const struct message *message)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct member_notice notice;
    struct slice bytes = {message->data, message->bytes};
    check(wire_decode_member_notice(bytes, &arena, &notice, NULL) == ERR_OK);
    if (notice.kind == NOTICE_CHANGED)
        agent_member_lost(worker->agent, now_ms(sim, worker));
    else if (notice.kind == NOTICE_RUN_OVER)
        agent_run_over(worker->agent, now_ms(sim, worker));
}

void sim_worker_message(struct sim *sim, struct stream *stream, struct message *message)
{
    struct sim_worker *worker = &sim->workers[stream->worker];
    check(worker->alive); /* else that end is closed */
    if (stream->number == worker->member_stream)
        take_notice(sim, worker, message);
    for (uint32_t link = 0; link < worker->link_count; link++)
        if (stream->number == worker->links[link].stream)
            take_from_shard(sim, worker, link, message);
    pump(sim, worker);
}

void sim_worker_stream_lost(struct sim *sim, struct stream *stream)
{
    struct sim_worker *worker = &sim->workers[stream->worker];
    uint64_t at_ms = now_ms(sim, worker);
    check(worker->alive);
    if (stream->number == worker->member_stream) {
        sim_trace(sim, "w%u loses its member stream", worker->index);
        worker->member_stream = 0;
        agent_member_lost(worker->agent, at_ms);
    }
    for (uint32_t l = 0; l < worker->link_count; l++) {
        struct sim_link *link = &worker->links[l];
        if (stream->number != link->stream)
            continue;
        sim_trace(sim, "w%u loses its stream to s%u", worker->index, link->server);
        for (uint32_t i = 0; i < link->count; i++)
            if (sim->options.mutation == MUTATE_LOST_IS_ACKED && !link->unanswered[i].pull)
                agent_acked(worker->agent, at_ms, l,
                            &(struct push_ack){.id = link->unanswered[i].id});
        link->stream = 0;
        link->count = 0;
        agent_stream_lost(worker->agent, at_ms, l, ERR_UNREACHABLE);
    }
    pump(sim, worker);
}

static void take_acquired(struct sim *sim, struct sim_worker *worker, uint64_t sequence,
                          enum err err, const struct message *message)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct acquire_reply reply = {0};
    if (err == ERR_OK)
        err = wire_decode_acquire_reply((struct slice){message->data, message->bytes}, &arena,
                                        &reply, NULL);
    agent_acquired(worker->agent, now_ms(sim, worker), sequence, err, &reply);
}

static void take_response(struct sim *sim, struct sim_worker *worker, enum call_kind kind,
                          uint64_t tag, enum err err, const struct message *message)
{
    switch (kind) {
    case CALL_DESCRIBE:
        if (tag == DESCRIBE_MAP) {
            mapped(sim, worker, err, message);
            break;
        }
        err = err == ERR_OK ? described(sim, worker, message) : err;
        if (err == ERR_OK)
            call_join(sim, worker);
        else
            agent_join_failed(worker->agent, now_ms(sim, worker), err);
        break;
    case CALL_JOIN:
        if (err == ERR_OK)
            joined(sim, worker, message);
        else
            agent_join_failed(worker->agent, now_ms(sim, worker), err);
        break;
    case CALL_ACQUIRE:
        take_acquired(sim, worker, tag, err, message);
        break;
    case CALL_COMPLETE:
    case CALL_LEAVE:
        break; /* nobody waits for it */
    }
}

static void call_event(struct sim *sim, struct sim_worker *worker, const struct event *event)
{
    struct call *of = network_find_call(sim, event->number);
    if (of->answered || of->life != worker->life || !worker->alive)
        return;
    of->answered = true;
    enum err err = event->kind == EVENT_CALL_DEADLINE ? ERR_DEADLINE : (enum err)event->detail;
    take_response(sim, worker, of->kind, of->tag, err, event->message);
    pump(sim, worker);
}

static bool is_of_compute(const struct sim_worker *worker, const struct event *event)
{
    return worker->alive && worker->computing && event->number == worker->compute;
}

void sim_worker_event(struct sim *sim, struct event *event)
{
    struct sim_worker *worker = &sim->workers[event->index];
    switch (event->kind) {
    case EVENT_CALL_RESPONSE:
    case EVENT_CALL_DEADLINE:
        call_event(sim, worker, event);
        return;
    case EVENT_WORKER_START:
        if (!worker->alive)
            sim_worker_start(sim, worker);
        return;
    case EVENT_WORKER_WAKE:
        if (!worker->alive || event->number != worker->life || event->at_us < worker->wake_us)
            return;
        worker->wake_us = UINT64_MAX;
        break;
    case EVENT_WORKER_BEAT:
        if (!worker->alive || event->number != worker->membership)
            return;
        send_heartbeat(sim, worker);
        break;
    case EVENT_WORKER_UNIT:
        if (!is_of_compute(worker, event))
            return;
        agent_gradient(worker->agent, now_ms(sim, worker), (uint32_t)event->detail);
        break;
    case EVENT_WORKER_RESULT:
        if (!is_of_compute(worker, event))
            return;
        take_result(sim, worker, (enum err)event->detail);
        break;
    default:
        check_unreachable("an event of a worker");
    }
    pump(sim, worker);
}
