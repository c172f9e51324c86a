/* The coordinator's daemon: calls and streams in, effects out. */
#include "tests/sim/sim.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "server/coordinator/run.h"

#include <string.h>

/* ---- life ---- */

void sim_coordinator_init(struct sim *sim, uint32_t index)
{
    struct sim_coordinator *coordinator = &sim->coordinators[index];
    *coordinator = (struct sim_coordinator){.index = index, .tick_us = UINT64_MAX};
    process_init(sim, &coordinator->process);
}

void sim_coordinator_release(struct sim_coordinator *coordinator)
{
    process_release(&coordinator->process);
    coordinator_free(coordinator->core);
}

static uint64_t now_ms(const struct sim *sim, const struct sim_coordinator *coordinator)
{
    return process_now_ms(sim, &coordinator->process);
}

struct sim_coordinator *sim_coordinator_in_office(struct sim *sim)
{
    return &sim->coordinators[sim->office];
}

uint32_t sim_coordinator_find(struct sim *sim)
{
    uint32_t other = 1 - sim->office;
    bool stale = sim->coordinators[other].core != NULL && sim_below(sim, 4) == 0;
    return stale ? other : sim->office;
}

static bool carry_out_all(struct sim *sim, struct sim_coordinator *coordinator);

static void start_later(struct sim *sim, uint32_t index)
{
    queue_put(&sim->queue, (struct event){.at_us = sim->now_us + sim_restart_us(sim),
                                          .kind = EVENT_COORDINATOR_START,
                                          .index = index});
}

void sim_coordinator_start(struct sim *sim, struct sim_coordinator *coordinator)
{
    struct coordinator_settings settings = sim->scenario.office;
    struct reason reason;
    if (coordinator->core != NULL || coordinator->index != sim->office)
        return;
    struct coordinator_run run = sim->run;
    uint32_t named = sim->store.stored ? sim->store.past.cut.server_count : 0;
    if (named > 0 && named < run.servers_min)
        run.servers_min = named; /* not for those that were drained (office.c) */
    run.cut_servers = run.async;
    coordinator->term = settings.term = ++sim->store.term;
    coordinator->core = coordinator_new(&settings);
    check(coordinator->core != NULL);
    sim_trace(sim, "c%u starts, term %llu", coordinator->index,
              (unsigned long long)coordinator->term);
    check(coordinator_start(coordinator->core, now_ms(sim, coordinator), &run,
                            sim->store.stored ? &sim->store.past : NULL, &reason) == ERR_OK);
    carry_out_all(sim, coordinator);
}

static void end_process(struct sim *sim, struct sim_coordinator *coordinator)
{
    for (size_t i = 0; i < sim->network.stream_count; i++) {
        struct stream *stream = sim->network.streams[i];
        if (stream->kind != STREAM_EXCHANGE && stream->office == coordinator->index)
            network_close(sim, stream, ACCEPTOR, false);
    }
    for (uint32_t i = 0; i < coordinator->pending_count; i++)
        if (sim_below(sim, 2) == 0)
            network_respond(sim, coordinator->pending[i].call, ERR_CANCELLED, NULL);
    process_kill(&coordinator->process);
    coordinator_free(coordinator->core);
    coordinator->core = NULL;
    coordinator->pending_count = coordinator->storing_count = 0;
    coordinator->tick_us = UINT64_MAX;
    coordinator->effects_left = 0;
}

void sim_coordinator_crash(struct sim *sim, struct sim_coordinator *coordinator)
{
    sim_trace(sim, "c%u crashes", coordinator->index);
    end_process(sim, coordinator);
    start_later(sim, sim->office);
}

static bool in_office(const struct sim *sim, const struct sim_coordinator *coordinator)
{
    return coordinator->term == sim->store.term;
}

bool sim_coordinator_succeed(struct sim *sim)
{
    struct sim_coordinator *first = sim_coordinator_in_office(sim);
    struct sim_coordinator *second = &sim->coordinators[1 - sim->office];
    if (first->core == NULL || second->core != NULL)
        return false;
    sim_trace(sim, "c%u takes the office of c%u, which goes on", second->index, first->index);
    sim->office = second->index;
    start_later(sim, second->index);
    queue_put(&sim->queue, (struct event){.at_us = sim->now_us + 1 + sim_below(sim, 6000000),
                                          .kind = EVENT_COORDINATOR_OVER,
                                          .index = first->index,
                                          .number = first->term});
    return true;
}

void sim_coordinator_over(struct sim *sim, const struct event *event)
{
    struct sim_coordinator *coordinator = &sim->coordinators[event->index];
    if (coordinator->core == NULL || coordinator->term != event->number)
        return;
    sim_trace(sim, "c%u learns that its office is over", coordinator->index);
    end_process(sim, coordinator);
    start_later(sim, sim->office); /* unless it is up */
}

/* ---- effects ---- */

/* Its open stream of that member or link; NULL. */
static struct stream *find_stream(struct sim *sim, const struct sim_coordinator *coordinator,
                                  enum stream_kind kind, uint64_t name)
{
    for (size_t i = sim->network.stream_count; i-- > 0;) {
        struct stream *stream = sim->network.streams[i];
        if (stream->kind == kind && stream->office == coordinator->index && stream->greeted &&
            !stream->closed[ACCEPTOR] &&
            (kind == STREAM_LINK ? stream->link : stream->member) == name)
            return stream;
    }
    return NULL;
}

static struct server_entry *entry_of(const struct coordinator *core, uint32_t server)
{
    struct coordinator *inside = (struct coordinator *)(uintptr_t)core;
    char name[16];
    snprintf(name, sizeof name, "s%u", server);
    return servers_named(&inside->servers, name);
}

/* Drained; or its daemon ends all the same, and the run waits for it. */
static void let_go(struct sim *sim, const struct sim_coordinator *coordinator, uint32_t server)
{
    const struct server_entry *entry = entry_of(coordinator->core, server);
    if (in_office(sim, coordinator) && entry->left_boot == entry->boot)
        ledger_let_go(sim, server);
}

/* Chunks move, and one of their owners hears of it late. */
static void delay_moves(struct sim *sim, struct stream *stream)
{
    if (sim->calm)
        return;
    if (sim_below(sim, 8) == 0)
        sim->faults.trap = TRAP_DECIDE; /* … or not at all */
    if (sim_below(sim, 4) != 0)
        return;
    sim_fault(sim, FAULT_CLOG);
    network_clog(stream, OPENER,
                 sim->now_us +
                     sim_below(sim, 40 * (sim->scenario.delay_us + sim->scenario.compute_us)));
}

static void command(struct sim *sim, const struct sim_coordinator *coordinator,
                    const struct effect *effect)
{
    struct stream *stream = find_stream(sim, coordinator, STREAM_LINK, effect->command.link);
    if (stream == NULL)
        return; /* it broke; the core will hear of it */
    if (effect->command.command.kind == SERVER_LEAVE)
        let_go(sim, coordinator, stream->server);
    if (effect->command.command.kind == SERVER_COMMIT && effect->command.command.move_count > 0)
        delay_moves(sim, stream);
    network_send(sim, stream, OPENER,
                 sim_scratch_message(
                     sim, wire_encode_server_command(&effect->command.command, &sim->scratch)));
    if (effect->command.command.kind == SERVER_COMMIT)
        faults_spring(sim, TRAP_DECIDE, coordinator->index);
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

static void answer(struct sim *sim, struct sim_coordinator *coordinator,
                   const struct effect *effect)
{
    struct acquire_reply reply = effect->answer.reply;
    struct message *message = NULL;
    uint64_t call;
    if (effect->answer.err == ERR_OK)
        mutate_reply(sim, &reply);
    if (effect->answer.err == ERR_OK && reply.result == ACQUIRE_TICKET &&
        !ledger_is_late(sim, reply.ticket.generation, coordinator->term))
        ledger_granted(sim, &reply.ticket, in_office(sim, coordinator));
    if (!take_pending(coordinator, effect->answer.member, &call))
        return; /* nobody waits for it any more */
    if (effect->answer.err == ERR_OK)
        message = sim_scratch_message(sim, wire_encode_acquire_reply(&reply, &sim->scratch));
    network_respond(sim, call, effect->answer.err, message);
}

static void notice(struct sim *sim, const struct sim_coordinator *coordinator,
                   const struct effect *effect)
{
    for (size_t i = 0; i < sim->network.stream_count; i++) {
        struct stream *stream = sim->network.streams[i];
        if (stream->kind != STREAM_MEMBER || stream->office != coordinator->index ||
            !stream->greeted || stream->closed[ACCEPTOR])
            continue;
        network_send(
            sim, stream, OPENER,
            sim_scratch_message(sim, wire_encode_member_notice(&effect->notice, &sim->scratch)));
    }
}

/* P7: a write is conditional on the term; who is told so ends. False: it did. */
static bool may_store(struct sim *sim, struct sim_coordinator *coordinator)
{
    if (in_office(sim, coordinator) || sim->options.mutation == MUTATE_STORE_UNFENCED)
        return true;
    sim_trace(sim, "the store refuses c%u, whose term is over", coordinator->index);
    end_process(sim, coordinator);
    start_later(sim, sim->office); /* unless it is up */
    return false;
}

/* The store has written the oldest of the cuts given to it. False: the coordinator is no more. */
static bool cut_stored(struct sim *sim, struct sim_coordinator *coordinator)
{
    struct cut_record *record = &coordinator->storing[0];
    struct cut_name name = record->name;
    enum err err = sim->faults.store_full_us > sim->now_us ? ERR_NO_SPACE : ERR_OK;
    if (!may_store(sim, coordinator))
        return false;
    if (err == ERR_OK) {
        ledger_recorded(sim, record);
        sim->store.past.cut = *record;
    }
    memmove(record, record + 1, --coordinator->storing_count * sizeof *record);
    coordinator_cut_stored(coordinator->core, now_ms(sim, coordinator), name, err);
    return true;
}

/* Written down at once, or later while other things happen. */
static bool store_cut(struct sim *sim, struct sim_coordinator *coordinator,
                      const struct cut_record *record)
{
    check(coordinator->storing_count < SIM_STORING_MAX);
    coordinator->storing[coordinator->storing_count++] = *record;
    if (coordinator->storing_count == 1 && sim->scenario.seed % 2 == 0)
        return cut_stored(sim, coordinator);
    queue_put(&sim->queue,
              (struct event){.at_us = sim->now_us + 1 + sim_below(sim, sim->scenario.write_us),
                             .kind = EVENT_COORDINATOR_STORED,
                             .index = coordinator->index,
                             .number = coordinator->term});
    return true;
}

void sim_coordinator_stored(struct sim *sim, const struct event *event)
{
    struct sim_coordinator *coordinator = &sim->coordinators[event->index];
    if (coordinator->core == NULL || event->number != coordinator->term ||
        coordinator->storing_count == 0)
        return;
    if (cut_stored(sim, coordinator))
        carry_out_all(sim, coordinator);
}

/* A fact for the store; false: the coordinator is no more. */
static bool store(struct sim *sim, struct sim_coordinator *coordinator, const struct effect *effect)
{
    struct sim_store *store = &sim->store;
    if (!may_store(sim, coordinator))
        return false;
    switch (effect->kind) {
    case EFFECT_STORE_REWIND:
        store->stored = true;
        store->past.generation = effect->generation;
        store->past.recorded = store->past.cut.name.version;
        ledger_generation(sim, effect->generation, store->past.cut.name);
        break;
    case EFFECT_STORE_FINGERPRINT:
        store->past.has_fingerprint = true;
        memcpy(store->past.fingerprint, effect->fingerprint, sizeof effect->fingerprint);
        break;
    case EFFECT_STORE_CUT:
        return store_cut(sim, coordinator, effect->cut);
    default:
        store->state = effect->state.state;
        if (effect->state.state > RUN_TRAINING)
            ledger_over(sim, effect->state.state, effect->state.reason);
        break;
    }
    return true;
}

/* Each has a log of its own, of which the store's counts. */
static void adopt(struct sim *sim, const struct sim_coordinator *coordinator,
                  struct cut_name adopted)
{
    ledger_adopted(sim, adopted, coordinator->term);
    if (in_office(sim, coordinator))
        sim->store.past.recorded = adopted.version;
}

static void step(struct sim *sim, const struct sim_coordinator *coordinator,
                 const struct step_row *row)
{
    if (!ledger_is_late(sim, row->generation, coordinator->term))
        ledger_step(sim, row, in_office(sim, coordinator));
    if (in_office(sim, coordinator))
        sim->store.past.recorded = row->step + 1;
}

/* False: the coordinator is no more. */
static bool carry_out(struct sim *sim, struct sim_coordinator *coordinator,
                      const struct effect *effect)
{
    struct stream *stream;
    switch (effect->kind) {
    case EFFECT_STORE_REWIND:
    case EFFECT_STORE_FINGERPRINT:
    case EFFECT_STORE_CUT:
    case EFFECT_STORE_STATE:
        return store(sim, coordinator, effect);
    case EFFECT_STORE_ORDER:
        order_logged(sim, &effect->order);
        break;
    case EFFECT_COMMAND:
        command(sim, coordinator, effect);
        break;
    case EFFECT_ANSWER:
        answer(sim, coordinator, effect);
        break;
    case EFFECT_EXPEL:
        stream = find_stream(sim, coordinator, STREAM_MEMBER, effect->member);
        if (stream != NULL)
            network_close(sim, stream, ACCEPTOR, false);
        break;
    case EFFECT_UNLINK:
        stream = find_stream(sim, coordinator, STREAM_LINK, effect->link);
        if (stream != NULL)
            network_close(sim, stream, ACCEPTOR, false);
        break;
    case EFFECT_NOTICE:
        notice(sim, coordinator, effect);
        break;
    case EFFECT_ADOPT:
        adopt(sim, coordinator, effect->adopted);
        break;
    case EFFECT_STEP:
        step(sim, coordinator, &effect->step);
        break;
    case EFFECT_VALIDATION:
        ledger_validation(sim, &effect->validation);
        break;
    case EFFECT_LOG:
        sim_trace(sim, "c%u: %s", coordinator->index, effect->log.text);
        break;
    }
    return true;
}

static void tick_at(struct sim *sim, struct sim_coordinator *coordinator, uint64_t at_us)
{
    if (at_us >= coordinator->tick_us)
        return;
    coordinator->tick_us = at_us;
    queue_put(&sim->queue, (struct event){.at_us = at_us,
                                          .kind = EVENT_COORDINATOR_TICK,
                                          .index = coordinator->index,
                                          .number = coordinator->term});
}

static void arm_tick(struct sim *sim, struct sim_coordinator *coordinator)
{
    uint64_t due_us = process_at_us(&coordinator->process, coordinator_next_ms(coordinator->core));
    if (due_us < UINT64_MAX)
        tick_at(sim, coordinator, due_us > sim->now_us ? due_us : sim->now_us);
}

/* THE ONE RULE OF USE of coordinator.h. False: it died on the way; nothing more is said. */
static bool carry_out_all(struct sim *sim, struct sim_coordinator *coordinator)
{
    size_t count;
    coordinator_effects(coordinator->core, &count);
    for (size_t i = 0; i < count; i++) {
        if (coordinator->effects_left > 0 && --coordinator->effects_left == 0 && !sim->over) {
            sim_coordinator_crash(sim, coordinator);
            return false;
        }
        if (!carry_out(sim, coordinator, &coordinator_effects(coordinator->core, &count)[i]))
            return false;
        coordinator_effects(coordinator->core, &count); /* a stored cut has further ones */
    }
    coordinator_effects_clear(coordinator->core);
    coordinator_check(coordinator->core);
    if (in_office(sim, coordinator))
        ledger_map(sim, &coordinator->core->run, &coordinator->core->servers);
    arm_tick(sim, coordinator);
    return true;
}

bool sim_coordinator_ask_cut(struct sim *sim)
{
    struct sim_coordinator *coordinator = sim_coordinator_in_office(sim);
    if (coordinator->core == NULL || coordinator->process.stopped)
        return false;
    ignore(coordinator_checkpoint(coordinator->core)); /* the run may be over */
    carry_out_all(sim, coordinator);
    return true;
}

bool sim_coordinator_stop_run(struct sim *sim)
{
    struct sim_coordinator *coordinator = sim_coordinator_in_office(sim);
    if (coordinator->core == NULL || coordinator->process.stopped)
        return false;
    sim->ledger.stopping = true;
    ignore(coordinator_stop(coordinator->core, now_ms(sim, coordinator), "told to"));
    carry_out_all(sim, coordinator);
    return true;
}

bool sim_coordinator_drain(struct sim *sim, uint32_t server)
{
    struct sim_coordinator *coordinator = &sim->coordinators[sim_coordinator_find(sim)];
    struct coordinator_drained drained;
    char name[16];
    if (coordinator->core == NULL || coordinator->process.stopped)
        return true;
    snprintf(name, sizeof name, "s%u", server);
    enum err err =
        coordinator_drain(coordinator->core, now_ms(sim, coordinator), name, &drained, NULL);
    bool again = err == ERR_OK && !drained.drained;
    if (!again || !sim->servers[server].drains)
        sim_trace(sim, "c%u is asked to drain %s: %s", coordinator->index, name, err_name(err));
    carry_out_all(sim, coordinator);
    return again;
}

bool sim_coordinator_give_up(struct sim *sim, uint32_t server)
{
    struct sim_coordinator *coordinator = &sim->coordinators[sim_coordinator_find(sim)];
    char name[16];
    if (coordinator->core == NULL || coordinator->process.stopped)
        return false;
    snprintf(name, sizeof name, "s%u", server);
    enum err err = coordinator_give_up(coordinator->core, now_ms(sim, coordinator), name, NULL);
    if (err == ERR_OK)
        sim_trace(sim, "c%u is asked to give up %s: OK", coordinator->index, name);
    carry_out_all(sim, coordinator);
    return err == ERR_OK;
}

bool sim_coordinator_let_go(struct sim *sim, uint32_t server)
{
    const struct sim_coordinator *coordinator = sim_coordinator_in_office(sim);
    const struct server_entry *entry =
        coordinator->core == NULL ? NULL : entry_of(coordinator->core, server);
    return entry != NULL && entry->left_boot == sim->servers[server].boot;
}

bool sim_coordinator_needs(struct sim *sim, uint32_t server)
{
    const struct sim_coordinator *coordinator = sim_coordinator_in_office(sim);
    return sim->over || coordinator->core == NULL || ledger_names(sim, server) ||
           !sim_coordinator_let_go(sim, server);
}

void sim_coordinator_jump(struct sim *sim, struct sim_coordinator *coordinator, uint64_t us)
{
    coordinator->process.clock_us += us;
    if (coordinator->core != NULL)
        tick_at(sim, coordinator, sim->now_us);
}

void sim_coordinator_tick(struct sim *sim, const struct event *event)
{
    struct sim_coordinator *coordinator = &sim->coordinators[event->index];
    if (coordinator->core == NULL || event->number != coordinator->term ||
        event->at_us < coordinator->tick_us)
        return;
    coordinator->tick_us = UINT64_MAX;
    coordinator_tick(coordinator->core, now_ms(sim, coordinator));
    uint64_t due_ms = coordinator_next_ms(coordinator->core);
    if (carry_out_all(sim, coordinator) && due_ms <= now_ms(sim, coordinator))
        sim_violated(sim, 8, "c%u's loop spins: due again at %llu ms", coordinator->index,
                     (unsigned long long)due_ms);
}

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
    enum err err =
        coordinator_join(coordinator->core, now_ms(sim, coordinator), &request, &reply, NULL);
    if (!carry_out_all(sim, coordinator))
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
    if (take_pending(coordinator, request.member, &older))
        network_respond(sim, older, ERR_CANCELLED, NULL); /* the member has asked anew */
    check(coordinator->pending_count < SIM_PENDING_MAX);
    coordinator->pending[coordinator->pending_count++] =
        (struct pending){call->number, request.member};
    const struct lease *given = lease_given(coordinator->core, &request);
    uint64_t attempt = given != NULL ? given->attempt : 0;
    enum err err = coordinator_acquire(coordinator->core, now_ms(sim, coordinator), &request);
    if (attempt > 0 && err == ERR_OK)
        check_again(sim, coordinator, attempt);
    if (carry_out_all(sim, coordinator) && err != ERR_OK &&
        take_pending(coordinator, request.member, &older))
        network_respond(sim, call->number, err, NULL);
}

static void complete(struct sim *sim, struct sim_coordinator *coordinator, const struct call *call,
                     struct slice bytes, struct arena *arena)
{
    struct complete_request request;
    check(wire_decode_complete_request(bytes, arena, &request, NULL) == ERR_OK);
    mutate_complete(sim, &request);
    uint64_t version = sim->ledger.versions[sim->ledger.generation];
    enum err err = coordinator_complete(coordinator->core, now_ms(sim, coordinator), &request);
    if (err == ERR_OK && in_office(sim, coordinator) &&
        (sim->run.async || request.ticket.step >= version))
        ledger_completed(sim, &request);
    if (carry_out_all(sim, coordinator))
        network_respond(sim, call->number, err, NULL);
}

static void leave(struct sim *sim, struct sim_coordinator *coordinator, const struct call *call,
                  struct slice bytes, struct arena *arena)
{
    struct leave_request request;
    check(wire_decode_leave_request(bytes, arena, &request, NULL) == ERR_OK);
    enum err err = coordinator_leave(coordinator->core, now_ms(sim, coordinator), request.member,
                                     request.reason);
    if (carry_out_all(sim, coordinator))
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
    enum err err =
        coordinator_heartbeat(coordinator->core, now_ms(sim, coordinator), report.member);
    if (carry_out_all(sim, coordinator) && err != ERR_OK)
        network_close(sim, stream, ACCEPTOR, false);
}

void sim_coordinator_member_lost(struct sim *sim, struct stream *stream)
{
    struct sim_coordinator *coordinator = &sim->coordinators[stream->office];
    if (coordinator->core == NULL || !stream->greeted)
        return;
    coordinator_member_lost(coordinator->core, now_ms(sim, coordinator), stream->member,
                            "its stream broke");
    carry_out_all(sim, coordinator);
}

/* ---- servers ---- */

static void hello(struct sim *sim, struct sim_coordinator *coordinator, struct stream *stream,
                  const struct server_report *report)
{
    check(report->kind == SERVER_HELLO);
    stream->greeted = true;
    check(coordinator_server_hello(coordinator->core, now_ms(sim, coordinator), report,
                                   &stream->link, NULL) == ERR_OK);
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
        enum err err = coordinator_server_report(coordinator->core, now_ms(sim, coordinator),
                                                 stream->link, &report);
        trace_report(sim, stream, &report, err);
        if (err == ERR_NOT_FOUND)
            network_close(sim, stream, ACCEPTOR, false); /* a dead link: it shall say hello again */
        if (err == ERR_MALFORMED)
            sim_violated(sim, 7, "the coordinator calls a report of s%u malformed", stream->server);
    }
    carry_out_all(sim, coordinator);
}

void sim_coordinator_link_lost(struct sim *sim, struct stream *stream)
{
    struct sim_coordinator *coordinator = &sim->coordinators[stream->office];
    if (coordinator->core == NULL || !stream->greeted)
        return;
    coordinator_server_lost(coordinator->core, now_ms(sim, coordinator), stream->link);
    carry_out_all(sim, coordinator);
}
