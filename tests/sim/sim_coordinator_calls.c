/* What comes to a coordinator's daemon: calls, members' streams, servers' links. */
#include "tests/sim/sim.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "server/coordinator/run.h"

/* ---- calls ---- */

static bool run_is_active(const struct coordinator_status *status)
{
    return status->state == RUN_STARTING || status->state == RUN_TRAINING;
}

static void describe(struct sim *sim, const struct sim_coordinator *coordinator,
                     const struct call *call)
{
    const struct coordinator *core = coordinator->core;
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
    reply.map_number = status.map_number;
    reply.range_count = map != NULL ? map->range_count : 0;
    reply.ranges = map != NULL ? map->ranges : NULL;
    network_respond(sim, call->number, ERR_OK,
                    sim_scratch_message(sim, wire_encode_describe_reply(&reply, &sim->scratch)));
}

static void join(struct sim *sim, struct sim_coordinator *coordinator, const struct call *call,
                 struct slice bytes, struct arena *arena)
{
    struct join_request request;
    struct join_reply reply;
    check(wire_decode_join_request(bytes, arena, &request, NULL) == ERR_OK);
    enum err err = coordinator_join(coordinator->core, sim_coordinator_now_ms(sim, coordinator),
                                    &request, &reply, NULL);
    if (!sim_coordinator_carry_out(sim, coordinator))
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
static void check_again(struct sim *sim, const struct sim_coordinator *coordinator,
                        uint64_t attempt)
{
    size_t count;
    const struct effect *effects = coordinator_effects(coordinator->core, &count);
    for (size_t i = 0; i < count; i++)
        if (effects[i].kind == EFFECT_ANSWER && effects[i].answer.err == ERR_OK &&
            effects[i].answer.reply.ticket.attempt == attempt)
            return;
    sim_violated(sim, 3, "an acquire asked again is not answered with its lease, attempt %llu",
                 (unsigned long long)attempt);
}

static void acquire(struct sim *sim, struct sim_coordinator *coordinator, const struct call *call,
                    struct slice bytes, struct arena *arena)
{
    struct acquire_request request;
    uint64_t older;
    check(wire_decode_acquire_request(bytes, arena, &request, NULL) == ERR_OK);
    if (sim_coordinator_take_pending(coordinator, request.member, &older))
        network_respond(sim, older, ERR_CANCELLED, NULL); /* the member has asked anew */
    check(coordinator->pending_count < SIM_PENDING_MAX);
    coordinator->pending[coordinator->pending_count++] =
        (struct pending){call->number, request.member};
    const struct lease *given = lease_given(coordinator->core, &request);
    uint64_t attempt = given != NULL ? given->attempt : 0;
    enum err err =
        coordinator_acquire(coordinator->core, sim_coordinator_now_ms(sim, coordinator), &request);
    if (attempt > 0 && err == ERR_OK)
        check_again(sim, coordinator, attempt);
    if (sim_coordinator_carry_out(sim, coordinator) && err != ERR_OK &&
        sim_coordinator_take_pending(coordinator, request.member, &older))
        network_respond(sim, call->number, err, NULL);
}

static void complete(struct sim *sim, struct sim_coordinator *coordinator, const struct call *call,
                     struct slice bytes, struct arena *arena)
{
    struct complete_request request;
    check(wire_decode_complete_request(bytes, arena, &request, NULL) == ERR_OK);
    mutate_complete(sim, &request);
    uint64_t version = sim->ledger.versions[sim->ledger.generation];
    enum err err =
        coordinator_complete(coordinator->core, sim_coordinator_now_ms(sim, coordinator), &request);
    if (err == ERR_OK && sim_coordinator_holds_office(sim, coordinator) &&
        (sim->run.async || request.ticket.step >= version))
        ledger_completed(sim, &request);
    if (sim_coordinator_carry_out(sim, coordinator))
        network_respond(sim, call->number, err, NULL);
}

static void leave(struct sim *sim, struct sim_coordinator *coordinator, const struct call *call,
                  struct slice bytes, struct arena *arena)
{
    struct leave_request request;
    check(wire_decode_leave_request(bytes, arena, &request, NULL) == ERR_OK);
    enum err err = coordinator_leave(coordinator->core, sim_coordinator_now_ms(sim, coordinator),
                                     request.member, request.reason);
    if (sim_coordinator_carry_out(sim, coordinator))
        network_respond(sim, call->number, err, NULL);
}

void sim_coordinator_call(struct sim *sim, struct call *call, const struct message *message)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct slice bytes = {message->data, message->bytes};
    struct sim_coordinator *coordinator = &sim->coordinators[call->office];
    if (coordinator->core == NULL)
        network_respond(sim, call->number, sim_below(sim, 2) == 0 ? ERR_UNREACHABLE : ERR_CANCELLED,
                        NULL);
    else if (call->kind == CALL_DESCRIBE)
        describe(sim, coordinator, call);
    else if (call->kind == CALL_JOIN)
        join(sim, coordinator, call, bytes, &arena);
    else if (call->kind == CALL_ACQUIRE)
        acquire(sim, coordinator, call, bytes, &arena);
    else if (call->kind == CALL_COMPLETE)
        complete(sim, coordinator, call, bytes, &arena);
    else
        leave(sim, coordinator, call, bytes, &arena);
}

/* ---- members ---- */

void sim_coordinator_heartbeat(struct sim *sim, struct stream *stream,
                               const struct message *message)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct slice bytes = {message->data, message->bytes};
    struct sim_coordinator *coordinator = &sim->coordinators[stream->office];
    struct member_report report;
    check(wire_decode_member_report(bytes, &arena, &report, NULL) == ERR_OK);
    if (coordinator->core == NULL) {
        network_close(sim, stream, ACCEPTOR, false);
        return;
    }
    stream->greeted = true;
    stream->member = report.member;
    enum err err = coordinator_heartbeat(coordinator->core,
                                         sim_coordinator_now_ms(sim, coordinator), report.member);
    if (sim_coordinator_carry_out(sim, coordinator) && err != ERR_OK)
        network_close(sim, stream, ACCEPTOR, false);
}

void sim_coordinator_member_lost(struct sim *sim, struct stream *stream)
{
    struct sim_coordinator *coordinator = &sim->coordinators[stream->office];
    if (coordinator->core == NULL || !stream->greeted)
        return;
    coordinator_member_lost(coordinator->core, sim_coordinator_now_ms(sim, coordinator),
                            stream->member, "its stream broke");
    sim_coordinator_carry_out(sim, coordinator);
}

/* ---- servers ---- */

static void hello(struct sim *sim, struct sim_coordinator *coordinator, struct stream *stream,
                  const struct server_report *report)
{
    check(report->kind == SERVER_HELLO);
    enum err err = coordinator_server_hello(
        coordinator->core, sim_coordinator_now_ms(sim, coordinator), report, &stream->link, NULL);
    stream->greeted = err == ERR_OK;
    if (err == ERR_OK)
        return;
    check(err == ERR_OLD_BOOT); /* P3: an earlier start's, late */
    sim_trace(sim, "c%u refuses s%u: %s", stream->office, stream->server, err_name(err));
    network_close(sim, stream, ACCEPTOR, false);
}

static void trace_report(struct sim *sim, const struct stream *stream,
                         const struct server_report *report, enum err err)
{
    static const char *const names[] = {
        [SERVER_READY] = "ready",           [SERVER_REDUCED] = "reduced",
        [SERVER_COMMITTED] = "committed",   [SERVER_MANIFEST] = "manifest",
        [SERVER_WRONG_BITS] = "wrong bits", [SERVER_STATISTICS] = "statistics",
        [SERVER_DRAIN] = "drain",           [SERVER_HELD] = "held"};
    uint64_t step = report->kind == SERVER_REDUCED     ? report->reduced.step
                    : report->kind == SERVER_COMMITTED ? report->committed.step
                    : report->kind == SERVER_MANIFEST  ? report->manifest.cut.version
                    : report->kind == SERVER_HELD      ? report->held.decision.step
                                                       : report->ready.cut.version;
    sim_trace(sim, "c%u hears %s(%llu) of s%u: %s", stream->office, names[report->kind],
              (unsigned long long)step, stream->server, err_name(err));
}

void sim_coordinator_report(struct sim *sim, struct stream *stream, const struct message *message)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct slice bytes = {message->data, message->bytes};
    struct sim_coordinator *coordinator = &sim->coordinators[stream->office];
    struct server_report report;
    check(wire_decode_server_report(bytes, &arena, &report, NULL) == ERR_OK);
    if (coordinator->core == NULL) {
        network_close(sim, stream, ACCEPTOR, false);
        return;
    }
    if (!stream->greeted) {
        hello(sim, coordinator, stream, &report);
    } else {
        enum err err = coordinator_server_report(
            coordinator->core, sim_coordinator_now_ms(sim, coordinator), stream->link, &report);
        trace_report(sim, stream, &report, err);
        if (err == ERR_NOT_FOUND)
            network_close(sim, stream, ACCEPTOR, false); /* a dead link: it shall say hello again */
        if (err == ERR_MALFORMED)
            sim_violated(sim, 7, "the coordinator calls a report of s%u malformed", stream->server);
    }
    sim_coordinator_carry_out(sim, coordinator);
}

void sim_coordinator_link_lost(struct sim *sim, struct stream *stream)
{
    struct sim_coordinator *coordinator = &sim->coordinators[stream->office];
    if (coordinator->core == NULL || !stream->greeted)
        return;
    coordinator_server_lost(coordinator->core, sim_coordinator_now_ms(sim, coordinator),
                            stream->link);
    sim_coordinator_carry_out(sim, coordinator);
}
