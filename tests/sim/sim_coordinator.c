/* The coordinator's daemon: its life, and effects out. */
#include "tests/sim/sim.h"

#include "common/files/checkpoint.h"
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

uint64_t sim_coordinator_now_ms(const struct sim *sim, const struct sim_coordinator *coordinator)
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
    check(coordinator_start(coordinator->core, sim_coordinator_now_ms(sim, coordinator), &run,
                            sim->store.stored ? &sim->store.past : NULL, &reason) == ERR_OK);
    sim_coordinator_carry_out(sim, coordinator);
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
    pairs_event(sim, MEETING_COORDINATOR);
    sim_trace(sim, "c%u crashes", coordinator->index);
    end_process(sim, coordinator);
    start_later(sim, sim->office);
}

bool sim_coordinator_holds_office(const struct sim *sim, const struct sim_coordinator *coordinator)
{
    return coordinator->term == sim->store.term;
}

bool sim_coordinator_succeed(struct sim *sim)
{
    struct sim_coordinator *first = sim_coordinator_in_office(sim);
    struct sim_coordinator *second = &sim->coordinators[1 - sim->office];
    if (first->core == NULL || second->core != NULL)
        return false;
    pairs_event(sim, MEETING_SUCCESSOR);
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
    if (sim_coordinator_holds_office(sim, coordinator) && entry->left_boot == entry->boot)
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

bool sim_coordinator_take_pending(struct sim_coordinator *coordinator, uint64_t member,
                                  uint64_t *ret_call)
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
        ledger_granted(sim, &reply.ticket, sim_coordinator_holds_office(sim, coordinator));
    if (!sim_coordinator_take_pending(coordinator, effect->answer.member, &call))
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
    if (sim_coordinator_holds_office(sim, coordinator) ||
        sim->options.mutation == MUTATE_STORE_UNFENCED)
        return true;
    sim_trace(sim, "the store refuses c%u, whose term is over", coordinator->index);
    end_process(sim, coordinator);
    start_later(sim, sim->office); /* unless it is up */
    return false;
}

/* cut.json, before the store is told (control_effects.c). */
static void write_record(const struct cut_record *record)
{
    struct checkpoint_record written = {
        .name = {record->name.generation, record->name.version},
        .counters = {record->counters.samples, record->counters.applied,
                     record->counters.skips_in_row},
        .spec = "",
        .server_count = record->server_count,
    };
    for (uint32_t i = 0; i < record->server_count; i++)
        memcpy(written.manifests[i].bytes, record->servers[i].digest, WIRE_DIGEST_BYTES);
    check(checkpoint_record(&file_ops_real, SIM_CHECKPOINTS, &written, NULL) == ERR_OK);
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
        write_record(record);
        ledger_recorded(sim, record);
        sim->store.past.cut = *record;
    }
    memmove(record, record + 1, --coordinator->storing_count * sizeof *record);
    coordinator_cut_stored(coordinator->core, sim_coordinator_now_ms(sim, coordinator), name, err);
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
        sim_coordinator_carry_out(sim, coordinator);
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
    if (!sim_coordinator_holds_office(sim, coordinator))
        return;
    sim->store.past.recorded = adopted.version;
    for (uint32_t s = 0; s < SIM_SERVERS_MAX; s++) {
        const struct server_entry *entry = entry_of(coordinator->core, s);
        if (entry == NULL || entry->map_index == SERVERS_NONE)
            ledger_left_out(sim, s);
    }
}

static void step(struct sim *sim, const struct sim_coordinator *coordinator,
                 const struct step_row *row)
{
    if (!ledger_is_late(sim, row->generation, coordinator->term))
        ledger_step(sim, row, sim_coordinator_holds_office(sim, coordinator));
    if (sim_coordinator_holds_office(sim, coordinator))
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

bool sim_coordinator_carry_out(struct sim *sim, struct sim_coordinator *coordinator)
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
    if (sim_coordinator_holds_office(sim, coordinator))
        ledger_map(sim, &coordinator->core->run, &coordinator->core->servers);
    arm_tick(sim, coordinator);
    return true;
}

bool sim_coordinator_ask_cut(struct sim *sim)
{
    struct sim_coordinator *coordinator = sim_coordinator_in_office(sim);
    if (coordinator->core == NULL || coordinator->process.stopped)
        return false;
    pairs_event(sim, MEETING_CUT);
    ignore(coordinator_checkpoint(coordinator->core)); /* the run may be over */
    sim_coordinator_carry_out(sim, coordinator);
    return true;
}

bool sim_coordinator_stop_run(struct sim *sim)
{
    struct sim_coordinator *coordinator = sim_coordinator_in_office(sim);
    if (coordinator->core == NULL || coordinator->process.stopped)
        return false;
    pairs_event(sim, MEETING_STOP);
    sim->ledger.stopping = true;
    ignore(
        coordinator_stop(coordinator->core, sim_coordinator_now_ms(sim, coordinator), "told to"));
    sim_coordinator_carry_out(sim, coordinator);
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
    enum err err = coordinator_drain(coordinator->core, sim_coordinator_now_ms(sim, coordinator),
                                     name, &drained, NULL);
    bool again = err == ERR_OK && !drained.drained;
    if (!again || !sim->servers[server].drains)
        sim_trace(sim, "c%u is asked to drain %s: %s", coordinator->index, name, err_name(err));
    sim_coordinator_carry_out(sim, coordinator);
    return again;
}

bool sim_coordinator_give_up(struct sim *sim, uint32_t server)
{
    struct sim_coordinator *coordinator = &sim->coordinators[sim_coordinator_find(sim)];
    char name[16];
    if (coordinator->core == NULL || coordinator->process.stopped)
        return false;
    snprintf(name, sizeof name, "s%u", server);
    enum err err = coordinator_give_up(coordinator->core, sim_coordinator_now_ms(sim, coordinator),
                                       name, NULL);
    if (err == ERR_OK)
        sim_trace(sim, "c%u is asked to give up %s: OK", coordinator->index, name);
    sim_coordinator_carry_out(sim, coordinator);
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
    coordinator_tick(coordinator->core, sim_coordinator_now_ms(sim, coordinator));
    uint64_t due_ms = coordinator_next_ms(coordinator->core);
    if (sim_coordinator_carry_out(sim, coordinator) &&
        due_ms <= sim_coordinator_now_ms(sim, coordinator))
        sim_violated(sim, 8, "c%u's loop spins: due again at %llu ms", coordinator->index,
                     (unsigned long long)due_ms);
}
