/* The same as watch.c between a worker's loop and its core, and on its streams to servers: what is
 * unanswered there, and for how long. */
#include "tests/sim/watch.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "tests/sim/sim.h"
#include "worker/agent_core.h"
#include "worker/encoder.h"
#include "worker/worker_compute.h"

enum {
    UNANSWERED_US = 90000000, /* longer than any fault lasts, backoffs included */
    WAITS_MAX = 100           /* of a loop in one moment */
};

#define REAL(result, name, ...)                                                                    \
    result __real_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__)

/* The worker that runs; NULL: it is dead. */
static struct sim_worker *worker_here(void)
{
    return life_acts() ? &world.sim->workers[world.life->place.index] : NULL;
}

/* ---- its messages to servers ---- */

/* `pull_chunks` = 0: a push. */
static void note_sent(struct sim *sim, struct stream *stream, uint64_t id, uint32_t pull_chunks)
{
    bool pull = pull_chunks > 0;
    uint32_t count = 0;
    if (stream->unanswered_count == stream->unanswered_capacity) {
        stream->unanswered_capacity = 2 * stream->unanswered_capacity + 16;
        stream->unanswered =
            realloc(stream->unanswered, stream->unanswered_capacity * sizeof *stream->unanswered);
        check(stream->unanswered != NULL);
    }
    stream->unanswered[stream->unanswered_count++] =
        (struct unanswered){.id = id, .pull = pull, .missing = pull_chunks, .sent_us = sim->now_us};
    for (uint32_t i = 0; i < stream->unanswered_count; i++)
        count += stream->unanswered[i].pull == pull && !stream->unanswered[i].parked;
    if (count > WIRE_CREDITS)
        sim_violated(sim, 6, "w%u has %u %s unanswered at s%u", stream->worker, count,
                     pull ? "pulls" : "pushes", stream->server);
}

static void send_pull(struct sim *sim, struct stream *stream, const struct pull *pull,
                      struct message *take_message)
{
    const struct sim_worker *worker = &sim->workers[stream->worker];
    sim_trace(sim, "w%u pulls %u chunks of version %llu from s%u, id %llu", stream->worker,
              pull->chunk_count, (unsigned long long)pull->version, stream->server,
              (unsigned long long)pull->id);
    note_sent(sim, stream, pull->id, pull->chunk_count);
    take_message->truth = (struct truth){
        .generation = worker->tickets[worker->lane].generation, .id = pull->id, .pull = true};
    network_send(sim, stream, ACCEPTOR, take_message);
}

/* In chimera a place computes half of the ticket's node for a unit. */
static struct node computed_node(const struct sim *sim, const struct ticket *ticket,
                                 struct node node)
{
    const struct spec_mesh *mesh = &sim->scenario.spec.mesh;
    bool halves = mesh->stages > 1 && mesh->schedule == SCHEDULE_CHIMERA;
    uint32_t slots = sim->scenario.spec.train.slots;
    bool is_half = node_first(node) >= node_first(ticket->node) &&
                   node_end(node) <= node_end(ticket->node) &&
                   2 * node_slots(node, slots) == node_slots(ticket->node, slots);
    return halves && is_half ? node : ticket->node;
}

/* What the worker was told to compute: in a lane of that attempt, else in the newest. */
static const struct ticket *pushed_ticket(const struct sim_worker *worker, const struct push *push)
{
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++)
        if (worker->tickets[i].attempt == push->tickets[0].attempt)
            return &worker->tickets[i];
    return &worker->tickets[worker->lane];
}

static void send_push(struct sim *sim, struct stream *stream, const struct push *push,
                      struct message *take_message)
{
    const struct ticket *ticket = pushed_ticket(&sim->workers[stream->worker], push);
    sim_trace(sim, "w%u pushes %u pieces of step %llu node %u:%u to s%u, id %llu", stream->worker,
              push->entry_count, (unsigned long long)push->step, push->node.level, push->node.index,
              stream->server, (unsigned long long)push->id);
    if (push->node.level > 0)
        faults_spring(sim, TRAP_ORPHAN, stream->worker);
    note_sent(sim, stream, push->id, 0);
    take_message->truth =
        (struct truth){ticket->generation, ticket->step, computed_node(sim, ticket, push->node),
                       ticket->version,    push->id,     false};
    network_send(sim, stream, ACCEPTOR, take_message);
    faults_spring(sim, TRAP_PUSH, stream->worker);
}

void watch_send(struct sim *sim, struct stream *stream, struct message *take_message)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct slice slices[MESSAGE_SLICES_MAX];
    struct to_shard to;
    check(wire_decode_to_shard(slices, message_slices(take_message, slices), &arena, &to, NULL) ==
          ERR_OK);
    if (to.kind == TO_SHARD_PULL)
        send_pull(sim, stream, &to.pull, take_message);
    else if (to.kind == TO_SHARD_PUSH)
        send_push(sim, stream, &to.push, take_message);
    else
        network_send(sim, stream, ACCEPTOR, take_message);
}

/* ---- the answers ---- */

/* Of a pull some of the chunks have come. */
static void note_answered(struct stream *stream, uint64_t id, uint32_t chunks)
{
    for (uint32_t i = 0; i < stream->unanswered_count; i++) {
        struct unanswered *one = &stream->unanswered[i];
        if (one->id != id)
            continue;
        one->missing = one->missing > chunks ? one->missing - chunks : 0;
        if (one->missing == 0)
            *one = stream->unanswered[--stream->unanswered_count];
        return;
    }
}

/* It will be answered when its version is there. */
static void note_parked(struct stream *stream, uint64_t id)
{
    for (uint32_t i = 0; i < stream->unanswered_count; i++)
        stream->unanswered[i].parked |= stream->unanswered[i].id == id;
}

void watch_answered(struct sim *sim, struct stream *stream, const struct message *message)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct slice slices[MESSAGE_SLICES_MAX];
    struct from_shard from;
    (void)sim;
    check(wire_decode_from_shard(slices, message_slices(message, slices), &arena, &from, NULL) ==
          ERR_OK);
    if (from.kind == FROM_SHARD_ACK)
        note_answered(stream, from.ack.id, UINT32_MAX);
    else if (from.kind == FROM_SHARD_WEIGHTS)
        note_answered(stream, from.weights.id, from.weights.chunk_count);
    else if (from.kind == FROM_SHARD_REFUSAL && from.refusal.code == ERR_TOO_EARLY)
        note_parked(stream, from.refusal.id);
    else if (from.kind == FROM_SHARD_REFUSAL)
        note_answered(stream, from.refusal.id, UINT32_MAX);
}

/* 5: whatever is unanswered is so for a bounded time. */
static void check_unanswered(struct sim *sim, const struct stream *stream)
{
    for (uint32_t i = 0; i < stream->unanswered_count; i++) {
        const struct unanswered *one = &stream->unanswered[i];
        if (sim->now_us - one->sent_us > UNANSWERED_US)
            sim_violated(sim, 5, "w%u waits for s%u's answer to %s %llu since %.3f s",
                         stream->worker, stream->server, one->pull ? "pull" : "push",
                         (unsigned long long)one->id, (double)one->sent_us / 1e6);
    }
}

/* 8: a worker that runs says so in time, whatever else it waits for. */
void watch_heartbeat(struct sim *sim, const struct stream *stream)
{
    struct sim_worker *worker = &sim->workers[stream->worker];
    const struct process *process = &worker->process;
    const struct heartbeat before = worker->heartbeat;
    uint64_t now_ms = process_now_ms(sim, process), usual_ms = sim->scenario.office.heartbeat_ms;
    worker->heartbeat =
        (struct heartbeat){stream->number, now_ms, process->clock_us, process->stops, false};
    if (before.stream == stream->number && !before.waited && before.stops == process->stops &&
        before.clock_us == process->clock_us && now_ms - before.at_ms > 2 * usual_ms)
        sim_violated(sim, 8, "w%u's heartbeat comes %llu ms after the one before, not %llu",
                     worker->index, (unsigned long long)(now_ms - before.at_ms),
                     (unsigned long long)usual_ms);
}

/* 17: only members leave. */
void watch_leave(struct sim *sim, uint32_t worker, struct slice request)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct leave_request leave;
    check(wire_decode_leave_request(request, &arena, &leave, NULL) == ERR_OK);
    if (leave.member == 0)
        sim_violated(sim, 17, "w%u leaves, and never was a member", worker);
}

void watch_waited(void)
{
    if (!life_acts() || world.life->place.kind != MACHINE_WORKER)
        return;
    struct sim_worker *worker = worker_here();
    worker->heartbeat.waited |= worker->agent == NULL || !agent_is_member(worker->agent);
}

/* ---- the core ---- */

REAL(void, worker_compute_begin, struct worker *worker, uint32_t lane, const struct ticket *ticket,
     const struct place *place);
REAL(enum err, worker_link_exchange, struct worker *worker, uint32_t server);
REAL(enum err, encoder_push, struct encoder *encoder, const struct encoder_job *job);
REAL(void, encoder_drain, struct encoder *encoder);
REAL(uint64_t, agent_wake_ms, const struct agent *agent);
REAL(void, agent_computed, struct agent *agent, uint64_t now_ms, const struct agent_result *result);
REAL(void, agent_stream_lost, struct agent *agent, uint64_t now_ms, uint32_t server, enum err err);

enum err __wrap_encoder_push(struct encoder *encoder, const struct encoder_job *job)
{
    enum err err = __real_encoder_push(encoder, job);
    if (err == ERR_OK && worker_here() != NULL)
        worker_here()->encoding++;
    return err;
}

void __wrap_encoder_drain(struct encoder *encoder)
{
    __real_encoder_drain(encoder);
    if (worker_here() != NULL)
        worker_here()->encoding = 0;
}

void __wrap_worker_compute_begin(struct worker *worker, uint32_t lane, const struct ticket *ticket,
                                 const struct place *place)
{
    __real_worker_compute_begin(worker, lane, ticket,
                                place); /* sends what waits of the one before */
    if (worker_here() != NULL) {
        if (life_acts() && worker_here()->encoding > 0)
            sim_violated(world.sim, 3, "w%u computes while gradients may wait to be sent",
                         worker_here()->index);
        worker_here()->lane = lane;
        worker_here()->tickets[lane] = *ticket;
    }
}

enum err __wrap_worker_link_exchange(struct worker *worker, uint32_t server)
{
    enum err err = __real_worker_link_exchange(worker, server);
    if (err == ERR_OK && worker_here() != NULL) /* it is the newest */
        rpc_opened(world.life, STREAM_EXCHANGE, 0)->link = server;
    return err;
}

/* 8: there is nothing to do now, and what the loop waits for takes time. */
static void check_wait(struct sim *sim, struct sim_worker *worker, uint64_t wake_ms)
{
    uint64_t now_ms = process_now_ms(sim, &worker->process);
    worker->waits = worker->waited_us == sim->now_us ? worker->waits + 1 : 0;
    worker->waited_us = sim->now_us;
    if (wake_ms <= now_ms || worker->waits > WAITS_MAX)
        sim_violated(sim, 8, "w%u's loop spins: nothing to do at %llu ms, wakes at %llu ms",
                     worker->index, (unsigned long long)now_ms, (unsigned long long)wake_ms);
}

/* Before the loop waits. */
uint64_t __wrap_agent_wake_ms(const struct agent *agent)
{
    const struct stream *stream;
    struct sim_worker *worker = worker_here();
    uint64_t wake_ms = __real_agent_wake_ms(agent);
    if (worker == NULL)
        return wake_ms;
    agent_check(agent);
    worker->agent = agent;
    places_check_lanes(world.sim, worker);
    for (uint32_t i = 0; (stream = rpc_opened(worker->life, STREAM_EXCHANGE, i)) != NULL; i++)
        check_unanswered(world.sim, stream);
    check_wait(world.sim, worker, wake_ms);
    if (worker->map_is_doubted)
        sim_violated(world.sim, 15, "w%u has reason to doubt its map, and asks for none",
                     worker->index);
    return wake_ms;
}

/* ---- planted bugs ---- */

static void take_for_acked(struct agent *agent, uint64_t now_ms, const struct stream *stream)
{
    for (uint32_t i = 0; i < stream->unanswered_count; i++)
        if (!stream->unanswered[i].pull)
            agent_acked(agent, now_ms, stream->link,
                        &(struct push_ack){.id = stream->unanswered[i].id});
}

void __wrap_agent_computed(struct agent *agent, uint64_t now_ms, const struct agent_result *result)
{
    const struct stream *stream;
    const struct sim_worker *worker = worker_here();
    __real_agent_computed(agent, now_ms, result);
    if (worker == NULL || world.sim->options.mutation != MUTATE_COMPLETE_EARLY ||
        result->err != ERR_OK)
        return;
    for (uint32_t i = 0; (stream = rpc_opened(worker->life, STREAM_EXCHANGE, i)) != NULL; i++)
        take_for_acked(agent, now_ms, stream);
}

/* The worker's newest stream to that server. */
static const struct stream *newest_stream(const struct sim *sim, const struct sim_worker *worker,
                                          uint32_t server)
{
    for (size_t i = sim->network.stream_count; i-- > 0;) {
        const struct stream *stream = sim->network.streams[i];
        if (stream->kind == STREAM_EXCHANGE && stream->worker == worker->index &&
            stream->link == server)
            return stream;
    }
    return NULL;
}

void __wrap_agent_stream_lost(struct agent *agent, uint64_t now_ms, uint32_t server, enum err err)
{
    const struct sim_worker *worker = worker_here();
    if (worker != NULL && world.sim->options.mutation == MUTATE_LOST_IS_ACKED) {
        const struct stream *stream = newest_stream(world.sim, worker, server);
        if (stream != NULL)
            take_for_acked(agent, now_ms, stream);
    }
    __real_agent_stream_lost(agent, now_ms, server, err);
}
