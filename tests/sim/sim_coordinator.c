/* The coordinator's daemon: calls and streams in, effects out. */
#include "tests/sim/sim.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "server/coordinator/run.h"

#include <string.h>

/* ---- life ---- */

void sim_coordinator_init(struct sim *sim)
{
    struct sim_coordinator *coordinator = &sim->coordinator;
    const struct model *model = &sim->compute.model;
    *coordinator = (struct sim_coordinator){.tick_us = UINT64_MAX};
    coordinator->parameters = calloc(model->parameters_count, sizeof *coordinator->parameters);
    check(coordinator->parameters != NULL);
    coordinator->run = scenario_run(&sim->scenario, model, coordinator->parameters);
}

void sim_coordinator_release(struct sim_coordinator *coordinator)
{
    coordinator_free(coordinator->core);
    free(coordinator->parameters);
}

static bool carry_out_all(struct sim *sim);

void sim_coordinator_start(struct sim *sim)
{
    struct sim_coordinator *coordinator = &sim->coordinator;
    struct coordinator_settings settings = sim->scenario.office;
    struct reason reason;
    if (coordinator->core != NULL)
        return;
    settings.term = ++coordinator->term;
    coordinator->core = coordinator_new(&settings);
    check(coordinator->core != NULL);
    sim_trace(sim, "coordinator starts, term %llu", (unsigned long long)coordinator->term);
    check(coordinator_start(coordinator->core, sim_now_ms(sim), &coordinator->run,
                            coordinator->stored ? &coordinator->past : NULL, &reason) == ERR_OK);
    carry_out_all(sim);
}

void sim_coordinator_crash(struct sim *sim)
{
    struct sim_coordinator *coordinator = &sim->coordinator;
    sim_trace(sim, "coordinator crashes");
    for (size_t i = 0; i < sim->network.stream_count; i++)
        if (sim->network.streams[i]->kind != STREAM_EXCHANGE && sim->network.streams[i]->greeted)
            network_close(sim, sim->network.streams[i], ACCEPTOR, false);
    for (uint32_t i = 0; i < coordinator->pending_count; i++)
        if (sim_below(sim, 2) == 0)
            network_respond(sim, coordinator->pending[i].call, ERR_CANCELLED, NULL);
    coordinator_free(coordinator->core);
    coordinator->core = NULL;
    coordinator->pending_count = coordinator->storing_count = 0;
    coordinator->tick_us = UINT64_MAX;
    coordinator->effects_left = 0;
    queue_put(&sim->queue, (struct event){.at_us = sim->now_us + sim_restart_us(sim),
                                          .kind = EVENT_COORDINATOR_START});
}

/* ---- effects ---- */

/* The open stream of that member or link; NULL. */
static struct stream *find_stream(struct sim *sim, enum stream_kind kind, uint64_t name)
{
    for (size_t i = sim->network.stream_count; i-- > 0;) {
        struct stream *stream = sim->network.streams[i];
        if (stream->kind == kind && stream->greeted && !stream->closed[ACCEPTOR] &&
            (kind == STREAM_LINK ? stream->link : stream->member) == name)
            return stream;
    }
    return NULL;
}

static void command(struct sim *sim, const struct effect *effect)
{
    struct stream *stream = find_stream(sim, STREAM_LINK, effect->command.link);
    if (stream == NULL)
        return; /* it broke; the core will hear of it */
    network_send(sim, stream, OPENER,
                 sim_scratch_message(
                     sim, wire_encode_server_command(&effect->command.command, &sim->scratch)));
}

/* Takes the member's waiting question out; false: there is none. */
static bool take_pending(struct sim_coordinator *coordinator, uint64_t member, uint64_t *ret_call)
{
    for (uint32_t i = 0; i < coordinator->pending_count; i++) {
        if (coordinator->pending[i].member != member)
            continue;
        *ret_call = coordinator->pending[i].call;
        coordinator->pending[i] = coordinator->pending[--coordinator->pending_count];
        return true;
    }
    return false;
}

static void answer(struct sim *sim, const struct effect *effect)
{
    struct sim_coordinator *coordinator = &sim->coordinator;
    struct acquire_reply reply = effect->answer.reply;
    struct message *message = NULL;
    uint64_t call;
    if (effect->answer.err == ERR_OK)
        mutate_reply(sim, &reply);
    if (effect->answer.err == ERR_OK && reply.result == ACQUIRE_TICKET)
        ledger_granted(sim, &reply.ticket);
    if (!take_pending(coordinator, effect->answer.member, &call))
        return; /* nobody waits for it any more */
    if (effect->answer.err == ERR_OK)
        message = sim_scratch_message(sim, wire_encode_acquire_reply(&reply, &sim->scratch));
    network_respond(sim, call, effect->answer.err, message);
}

static void notice(struct sim *sim, const struct effect *effect)
{
    for (size_t i = 0; i < sim->network.stream_count; i++) {
        struct stream *stream = sim->network.streams[i];
        if (stream->kind != STREAM_MEMBER || !stream->greeted || stream->closed[ACCEPTOR])
            continue;
        network_send(
            sim, stream, OPENER,
            sim_scratch_message(sim, wire_encode_member_notice(&effect->notice, &sim->scratch)));
    }
}

/* The store has written the oldest of the cuts given to it. */
static void cut_stored(struct sim *sim)
{
    struct sim_coordinator *coordinator = &sim->coordinator;
    struct cut_record *record = &coordinator->storing[0];
    struct cut_name name = record->name;
    enum err err = sim->faults.store_full_us > sim->now_us ? ERR_NO_SPACE : ERR_OK;
    if (err == ERR_OK) {
        ledger_recorded(sim, record);
        coordinator->past.cut = *record;
    }
    memmove(record, record + 1, --coordinator->storing_count * sizeof *record);
    coordinator_cut_stored(coordinator->core, sim_now_ms(sim), name, err);
}

/* Written down at once, or later while other things happen. */
static void store_cut(struct sim *sim, const struct cut_record *record)
{
    struct sim_coordinator *coordinator = &sim->coordinator;
    check(coordinator->storing_count < SIM_STORING_MAX);
    coordinator->storing[coordinator->storing_count++] = *record;
    if (coordinator->storing_count == 1 && sim->scenario.seed % 2 == 0)
        cut_stored(sim);
    else
        queue_put(&sim->queue,
                  (struct event){.at_us = sim->now_us + 1 + sim_below(sim, sim->scenario.write_us),
                                 .kind = EVENT_COORDINATOR_STORED,
                                 .number = coordinator->term});
}

void sim_coordinator_stored(struct sim *sim, const struct event *event)
{
    struct sim_coordinator *coordinator = &sim->coordinator;
    if (coordinator->core == NULL || event->number != coordinator->term ||
        coordinator->storing_count == 0)
        return;
    cut_stored(sim);
    carry_out_all(sim);
}

static void store(struct sim *sim, const struct effect *effect)
{
    struct sim_coordinator *coordinator = &sim->coordinator;
    switch (effect->kind) {
    case EFFECT_STORE_REWIND:
        coordinator->stored = true;
        coordinator->past.generation = effect->generation;
        ledger_generation(sim, effect->generation, coordinator->past.cut.name.version);
        break;
    case EFFECT_STORE_FINGERPRINT:
        coordinator->past.has_fingerprint = true;
        memcpy(coordinator->past.fingerprint, effect->fingerprint, sizeof effect->fingerprint);
        break;
    case EFFECT_STORE_CUT:
        store_cut(sim, effect->cut);
        break;
    default:
        coordinator->state = effect->state.state;
        break;
    }
}

static void carry_out(struct sim *sim, const struct effect *effect)
{
    struct stream *stream;
    switch (effect->kind) {
    case EFFECT_STORE_REWIND:
    case EFFECT_STORE_FINGERPRINT:
    case EFFECT_STORE_CUT:
        store(sim, effect);
        break;
    case EFFECT_STORE_STATE:
        store(sim, effect);
        if (effect->state.state > RUN_TRAINING)
            ledger_over(sim, effect->state.state, effect->state.reason);
        break;
    case EFFECT_COMMAND:
        command(sim, effect);
        break;
    case EFFECT_ANSWER:
        answer(sim, effect);
        break;
    case EFFECT_EXPEL:
        stream = find_stream(sim, STREAM_MEMBER, effect->member);
        if (stream != NULL)
            network_close(sim, stream, ACCEPTOR, false);
        break;
    case EFFECT_UNLINK:
        stream = find_stream(sim, STREAM_LINK, effect->link);
        if (stream != NULL)
            network_close(sim, stream, ACCEPTOR, false);
        break;
    case EFFECT_NOTICE:
        notice(sim, effect);
        break;
    case EFFECT_STEP:
        ledger_step(sim, &effect->step);
        break;
    case EFFECT_VALIDATION:
        ledger_validation(sim, &effect->validation);
        break;
    case EFFECT_LOG:
        sim_trace(sim, "coordinator: %s", effect->log.text);
        break;
    }
}

static void arm_tick(struct sim *sim)
{
    struct sim_coordinator *coordinator = &sim->coordinator;
    uint64_t due_ms = coordinator_next_ms(coordinator->core);
    if (due_ms > UINT64_MAX / 1000)
        return;
    uint64_t due_us = due_ms * 1000 > sim->now_us ? due_ms * 1000 : sim->now_us;
    if (due_us >= coordinator->tick_us)
        return;
    coordinator->tick_us = due_us;
    queue_put(&sim->queue, (struct event){.at_us = due_us,
                                          .kind = EVENT_COORDINATOR_TICK,
                                          .number = coordinator->term});
}

/* THE ONE RULE OF USE of coordinator.h. False: it died on the way; nothing more is said. */
static bool carry_out_all(struct sim *sim)
{
    struct sim_coordinator *coordinator = &sim->coordinator;
    size_t count;
    coordinator_effects(coordinator->core, &count);
    for (size_t i = 0; i < count; i++) {
        if (coordinator->effects_left > 0 && --coordinator->effects_left == 0 && !sim->over) {
            sim_coordinator_crash(sim);
            return false;
        }
        carry_out(sim, &coordinator_effects(coordinator->core, &count)[i]);
        coordinator_effects(coordinator->core, &count); /* a stored cut has further ones */
    }
    coordinator_effects_clear(coordinator->core);
    coordinator_check(coordinator->core);
    arm_tick(sim);
    return true;
}

bool sim_coordinator_ask_cut(struct sim *sim)
{
    if (sim->coordinator.core == NULL)
        return false;
    ignore(coordinator_checkpoint(sim->coordinator.core)); /* the run may be over */
    carry_out_all(sim);
    return true;
}

bool sim_coordinator_stop_run(struct sim *sim)
{
    if (sim->coordinator.core == NULL)
        return false;
    sim->ledger.stopping = true;
    ignore(coordinator_stop(sim->coordinator.core, sim_now_ms(sim), "told to"));
    carry_out_all(sim);
    return true;
}

void sim_coordinator_tick(struct sim *sim, const struct event *event)
{
    struct sim_coordinator *coordinator = &sim->coordinator;
    if (coordinator->core == NULL || event->number != coordinator->term ||
        event->at_us < coordinator->tick_us)
        return;
    coordinator->tick_us = UINT64_MAX;
    coordinator_tick(coordinator->core, sim_now_ms(sim));
    uint64_t due_ms = coordinator_next_ms(coordinator->core);
    if (!carry_out_all(sim))
        return;
    if (due_ms <= sim_now_ms(sim))
        sim_violated(sim, 8, "the coordinator's loop spins: due again at %llu ms",
                     (unsigned long long)due_ms);
}

/* ---- calls ---- */

static bool run_is_active(const struct coordinator_status *status)
{
    return status->state == RUN_STARTING || status->state == RUN_TRAINING;
}

static void describe(struct sim *sim, const struct call *call)
{
    const struct coordinator *core = sim->coordinator.core;
    struct coordinator_status status;
    struct coordinator_server servers[SIM_SERVERS_MAX];
    struct server_description descriptions[SIM_SERVERS_MAX];
    struct describe_reply reply = {.wire_version = WIRE_VERSION, .spec = ""};
    const struct map *map = coordinator_map(core);
    coordinator_status(core, &status);
    reply.state = status.state;
    reply.has_run = run_is_active(&status);
    reply.run = status.run;
    reply.generation = status.generation;
    while (map != NULL && reply.server_count < SIM_SERVERS_MAX &&
           coordinator_map_server(core, reply.server_count, &servers[reply.server_count])) {
        const struct coordinator_server *server = &servers[reply.server_count];
        descriptions[reply.server_count++] = (struct server_description){
            server->name, server->address, server->boot, server->connected};
    }
    reply.servers = descriptions;
    reply.range_count = map != NULL ? map->range_count : 0;
    reply.ranges = map != NULL ? map->ranges : NULL;
    network_respond(sim, call->number, ERR_OK,
                    sim_scratch_message(sim, wire_encode_describe_reply(&reply, &sim->scratch)));
}

static void join(struct sim *sim, const struct call *call, struct slice bytes, struct arena *arena)
{
    struct join_request request;
    struct join_reply reply;
    check(wire_decode_join_request(bytes, arena, &request, NULL) == ERR_OK);
    enum err err = coordinator_join(sim->coordinator.core, sim_now_ms(sim), &request, &reply, NULL);
    if (!carry_out_all(sim))
        return;
    struct message *message = NULL;
    if (err == ERR_OK)
        message = sim_scratch_message(sim, wire_encode_join_reply(&reply, &sim->scratch));
    network_respond(sim, call->number, err, message);
}

/* P1: the lease that the member was given for that very question, if it still has it. */
static const struct lease *lease_given(const struct coordinator *core,
                                       const struct acquire_request *request)
{
    struct coordinator *inside = (struct coordinator *)(uintptr_t)core;
    const struct member *member = members_find(&inside->members, request->member);
    if (member == NULL || member->sequence != request->sequence || member->ticket.attempt == 0)
        return NULL;
    return tickets_find(&inside->run.tickets, member->ticket.attempt);
}

/* Asked again, the answer is the lease already given. */
static void check_again(struct sim *sim, uint64_t attempt)
{
    size_t count;
    const struct effect *effects = coordinator_effects(sim->coordinator.core, &count);
    for (size_t i = 0; i < count; i++)
        if (effects[i].kind == EFFECT_ANSWER && effects[i].answer.err == ERR_OK &&
            effects[i].answer.reply.ticket.attempt == attempt)
            return;
    sim_violated(sim, 3, "an acquire asked again is not answered with its lease, attempt %llu",
                 (unsigned long long)attempt);
}

static void acquire(struct sim *sim, const struct call *call, struct slice bytes,
                    struct arena *arena)
{
    struct sim_coordinator *coordinator = &sim->coordinator;
    struct acquire_request request;
    uint64_t older;
    check(wire_decode_acquire_request(bytes, arena, &request, NULL) == ERR_OK);
    if (take_pending(coordinator, request.member, &older))
        network_respond(sim, older, ERR_CANCELLED, NULL); /* the member has asked anew */
    check(coordinator->pending_count < SIM_PENDING_MAX);
    coordinator->pending[coordinator->pending_count++] =
        (struct pending){call->number, request.member};
    const struct lease *given = lease_given(coordinator->core, &request);
    uint64_t attempt = given != NULL ? given->attempt : 0;
    enum err err = coordinator_acquire(coordinator->core, sim_now_ms(sim), &request);
    if (attempt > 0 && err == ERR_OK)
        check_again(sim, attempt);
    if (carry_out_all(sim) && err != ERR_OK && take_pending(coordinator, request.member, &older))
        network_respond(sim, call->number, err, NULL);
}

static void complete(struct sim *sim, const struct call *call, struct slice bytes,
                     struct arena *arena)
{
    struct complete_request request;
    check(wire_decode_complete_request(bytes, arena, &request, NULL) == ERR_OK);
    mutate_complete(sim, &request);
    uint64_t version = sim->ledger.versions[sim->ledger.generation];
    enum err err = coordinator_complete(sim->coordinator.core, sim_now_ms(sim), &request);
    if (err == ERR_OK && request.ticket.step == version)
        ledger_completed(sim, &request);
    if (carry_out_all(sim))
        network_respond(sim, call->number, err, NULL);
}

static void leave(struct sim *sim, const struct call *call, struct slice bytes, struct arena *arena)
{
    struct leave_request request;
    check(wire_decode_leave_request(bytes, arena, &request, NULL) == ERR_OK);
    enum err err =
        coordinator_leave(sim->coordinator.core, sim_now_ms(sim), request.member, request.reason);
    if (carry_out_all(sim))
        network_respond(sim, call->number, err, NULL);
}

void sim_coordinator_call(struct sim *sim, struct call *call, const struct message *message)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct slice bytes = {message->data, message->bytes};
    if (sim->coordinator.core == NULL)
        network_respond(sim, call->number, sim_below(sim, 2) == 0 ? ERR_UNREACHABLE : ERR_CANCELLED,
                        NULL);
    else if (call->kind == CALL_DESCRIBE)
        describe(sim, call);
    else if (call->kind == CALL_JOIN)
        join(sim, call, bytes, &arena);
    else if (call->kind == CALL_ACQUIRE)
        acquire(sim, call, bytes, &arena);
    else if (call->kind == CALL_COMPLETE)
        complete(sim, call, bytes, &arena);
    else
        leave(sim, call, bytes, &arena);
}

/* ---- members ---- */

void sim_coordinator_heartbeat(struct sim *sim, struct stream *stream,
                               const struct message *message)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct slice bytes = {message->data, message->bytes};
    struct member_report report;
    check(wire_decode_member_report(bytes, &arena, &report, NULL) == ERR_OK);
    if (sim->coordinator.core == NULL) {
        network_close(sim, stream, ACCEPTOR, false);
        return;
    }
    stream->greeted = true;
    stream->member = report.member;
    enum err err = coordinator_heartbeat(sim->coordinator.core, sim_now_ms(sim), report.member);
    if (carry_out_all(sim) && err != ERR_OK)
        network_close(sim, stream, ACCEPTOR, false);
}

void sim_coordinator_member_lost(struct sim *sim, struct stream *stream)
{
    if (sim->coordinator.core == NULL || !stream->greeted)
        return;
    coordinator_member_lost(sim->coordinator.core, sim_now_ms(sim), stream->member,
                            "its stream broke");
    carry_out_all(sim);
}

/* ---- servers ---- */

static void hello(struct sim *sim, struct stream *stream, const struct server_report *report)
{
    check(report->kind == SERVER_HELLO);
    stream->greeted = true;
    check(coordinator_server_hello(sim->coordinator.core, sim_now_ms(sim), report, &stream->link,
                                   NULL) == ERR_OK);
}

static void trace_report(struct sim *sim, const struct stream *stream,
                         const struct server_report *report, enum err err)
{
    static const char *const names[] = {
        [SERVER_READY] = "ready",           [SERVER_REDUCED] = "reduced",
        [SERVER_COMMITTED] = "committed",   [SERVER_MANIFEST] = "manifest",
        [SERVER_WRONG_BITS] = "wrong bits", [SERVER_STATISTICS] = "statistics"};
    uint64_t step = report->kind == SERVER_REDUCED     ? report->reduced.step
                    : report->kind == SERVER_COMMITTED ? report->committed.step
                    : report->kind == SERVER_MANIFEST  ? report->manifest.cut.version
                                                       : report->ready.cut.version;
    sim_trace(sim, "coordinator hears %s(%llu) of s%u: %s", names[report->kind],
              (unsigned long long)step, stream->server, err_name(err));
}

void sim_coordinator_report(struct sim *sim, struct stream *stream, const struct message *message)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct slice bytes = {message->data, message->bytes};
    struct server_report report;
    check(wire_decode_server_report(bytes, &arena, &report, NULL) == ERR_OK);
    if (sim->coordinator.core == NULL) {
        network_close(sim, stream, ACCEPTOR, false);
        return;
    }
    if (!stream->greeted) {
        hello(sim, stream, &report);
    } else {
        enum err err = coordinator_server_report(sim->coordinator.core, sim_now_ms(sim),
                                                 stream->link, &report);
        trace_report(sim, stream, &report, err);
        if (err == ERR_NOT_FOUND)
            network_close(sim, stream, ACCEPTOR, false); /* a dead link: it shall say hello again */
        if (err == ERR_MALFORMED)
            sim_violated(sim, 7, "the coordinator calls a report of s%u malformed", stream->server);
    }
    carry_out_all(sim);
}

void sim_coordinator_link_lost(struct sim *sim, struct stream *stream)
{
    if (sim->coordinator.core == NULL || !stream->greeted)
        return;
    coordinator_server_lost(sim->coordinator.core, sim_now_ms(sim), stream->link);
    carry_out_all(sim);
}
