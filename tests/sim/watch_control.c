/* The same as watch.c between the coordinator's daemon and its core, and between a server's daemon
 * and what it reports. */
#include "tests/sim/watch.h"

#include "common/scoped.h"
#include "server/connection.h"
#include "server/control/control_run.h"
#include "server/coordinator/places.h"
#include "server/coordinator/run.h"
#include "server/coordinator/said.h"
#include "server/disk/order_log.h"
#include "server/disk/record.h"
#include "server/member/proof.h"
#include "server/threads/shards.h"
#include "tests/sim/forge.h"
#include "tests/sim/sim.h"
#include "tests/sim/timers.h"

#include <string.h>

#define REAL(result, name, ...)                                                                    \
    result __real_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__)

/* The coordinator that runs; NULL: none, or it is dead. */
static struct sim_coordinator *coordinator_here(void)
{
    bool here = life_acts() && world.life->place.kind == MACHINE_COORDINATOR;
    return here ? &world.sim->coordinators[world.life->place.index] : NULL;
}

static struct sim_server *server_here(void)
{
    bool here = life_acts() && world.life->place.kind == MACHINE_SERVER;
    return here ? &world.sim->servers[world.life->place.index] : NULL;
}

bool watch_effect(void)
{
    struct sim_coordinator *coordinator = coordinator_here();
    if (coordinator != NULL && coordinator->effects_left > 0 && --coordinator->effects_left == 0 &&
        !world.sim->over)
        sim_coordinator_crash(world.sim, coordinator);
    return life_acts();
}

/* ---- the core ---- */

REAL(struct coordinator *, coordinator_new, const struct coordinator_settings *settings);
REAL(void, coordinator_free, struct coordinator *core);
REAL(enum err, coordinator_acquire, struct coordinator *core, uint64_t now_ms,
     const struct acquire_request *request);
REAL(enum err, coordinator_complete, struct coordinator *core, uint64_t now_ms,
     const struct complete_request *request);
REAL(enum err, coordinator_server_report, struct coordinator *core, uint64_t now_ms, uint64_t link,
     const struct server_report *report);
REAL(void, coordinator_cut_stored, struct coordinator *core, uint64_t now_ms, struct cut_name name,
     enum err err);
REAL(void, control_effects_carry_out, struct control *control, uint64_t now_ns);

struct coordinator *__wrap_coordinator_new(const struct coordinator_settings *settings)
{
    struct coordinator *core = __real_coordinator_new(settings);
    if (coordinator_here() != NULL)
        coordinator_here()->core = core;
    return core;
}

/* Its daemon ends, which takes a while. */
void __wrap_coordinator_free(struct coordinator *core)
{
    if (coordinator_here() != NULL && coordinator_here()->core == core)
        coordinator_here()->core = NULL;
    __real_coordinator_free(core);
}

/* P1: the lease that the member was given for that very question, if it still has it. */
static uint64_t attempt_given(struct coordinator *core, const struct acquire_request *request)
{
    const struct member *member = members_find(&core->members, request->member);
    if (member == NULL || member->sequence != request->sequence || member->ticket.attempt == 0)
        return 0;
    const struct lease *lease = tickets_find(&core->run.tickets, member->ticket.attempt);
    bool holds = core->run.gangs.seats == 0 || places_hold(&core->run, member);
    return lease != NULL && holds ? lease->attempt : 0;
}

/* Asked again, the answer is the lease already given. */
static void check_again(struct sim *sim, const struct coordinator *core, uint64_t attempt)
{
    size_t count;
    const struct effect *effects = coordinator_effects(core, &count);
    for (size_t i = 0; i < count; i++)
        if (effects[i].kind == EFFECT_ANSWER && effects[i].answer.err == ERR_OK &&
            effects[i].answer.reply.ticket.attempt == attempt)
            return;
    sim_violated(sim, 3, "an acquire asked again is not answered with its lease, attempt %llu",
                 (unsigned long long)attempt);
}

enum err __wrap_coordinator_acquire(struct coordinator *core, uint64_t now_ms,
                                    const struct acquire_request *request)
{
    if (coordinator_here() == NULL)
        return __real_coordinator_acquire(core, now_ms, request);
    uint64_t attempt = attempt_given(core, request);
    enum err err = __real_coordinator_acquire(core, now_ms, request);
    if (attempt > 0 && err == ERR_OK)
        check_again(world.sim, core, attempt);
    return err;
}

/* What a planted bug changes is granted: the bug is in the core behind the proof. */
static void sign_again(struct coordinator *core, struct ticket *ticket)
{
    if (world.sim->options.mutation != MUTATE_NONE)
        ticket->grant = proof_ticket(&core->key, core->run.settings.run, ticket);
}

/* Of its gang all others are complete. */
static bool is_last(const struct coordinator *core, const struct complete_request *complete)
{
    const struct gang *gang = gangs_find(&core->run.gangs, complete->ticket.attempt);
    return gang != NULL && gang->done_count + 1 == core->run.gangs.seats;
}

/* In chimera the half of a node that a place has is another one for each of its units: looked at
 * when all places are complete. */
static bool is_whole(const struct sim *sim, const struct coordinator *core,
                     struct complete_request *complete, bool last)
{
    const struct spec_mesh *mesh = &sim->scenario.spec.mesh;
    if (mesh->stages <= 1 || mesh->schedule != SCHEDULE_CHIMERA)
        return true;
    complete->ticket.chunks = (struct number_range){0, UINT32_MAX};
    complete->ticket.parts = (struct number_range){0, UINT32_MAX};
    return last && gangs_find(&core->run.gangs, complete->ticket.attempt) == NULL;
}

/* Its place is complete, and others compute at theirs. */
static void spring_done(struct sim *sim, struct coordinator *core,
                        const struct complete_request *complete)
{
    unsigned worker;
    const char *name = members_name(&core->members, complete->member);
    if (complete->outcome == ERR_OK && name != NULL && sscanf(name, "w%u", &worker) == 1 &&
        sim->workers[worker].life != NULL && /* nor is it dead already */
        gangs_find(&core->run.gangs, complete->ticket.attempt) != NULL)
        faults_spring(sim, TRAP_DONE, worker);
}

/* "slot 3", or where several workers share it "stage 1 of slot 3". */
struct share {
    char text[48];
};

static struct share share_of(const struct ticket *ticket, const struct place *place)
{
    struct share share;
    int at = place_is_shared(place)
                 ? snprintf(share.text, sizeof share.text, "stage %u of ", place->stage)
                 : 0;
    snprintf(share.text + at, sizeof share.text - (size_t)at, "slot %u", ticket->node.index);
    return share;
}

enum { SLIPS = 16 /* in one of so many completes */ };

/* What the member says of the gradients that each member of its place has is wrong, once. */
static void slip(struct sim *sim, struct coordinator *core, struct complete_request *complete)
{
    unsigned worker;
    const char *name = members_name(&core->members, complete->member);
    const struct member *member = members_find(&core->members, complete->member);
    if (core->run.gangs.ranks <= 1 || sim->slip.made || sim->calm || sim->options.story != NULL ||
        complete->replicated == 0 || name == NULL || member == NULL ||
        sscanf(name, "w%u", &worker) != 1 ||
        places_completes(&core->run, member, complete) == NULL ||
        rand_below(&sim->keys, SLIPS) != 0)
        return;
    complete->replicated ^= 1;
    sim->slip = (struct slip){.made = true,
                              .worker = worker,
                              .member = complete->member,
                              .attempt = complete->ticket.attempt,
                              .step = complete->ticket.step,
                              .node = complete->ticket.node,
                              .place = complete->place};
}

/* S6: when another member of its place has said what it has, too, the one that slipped is named. */
static void check_slip(struct sim *sim, struct coordinator *core)
{
    const struct slip *slip = &sim->slip;
    const struct member *member = slip->made ? members_find(&core->members, slip->member) : NULL;
    bool own = false, other = false;
    if (member == NULL || core->run.gangs.ranks <= 1)
        return;
    for (const struct statement *said = said_newest(&core->run, slip->step, slip->node);
         said != NULL; said = said_next(said)) {
        if (said->attempt != slip->attempt || said->stage != slip->place.stage ||
            said->try_number != slip->place.try_number)
            continue;
        own = own || said->member == slip->member;
        other = other || said->member != slip->member;
    }
    if (own && other && member->wrong_bits == 0)
        sim_violated(sim, 23,
                     "%s says other bits than another member of its place, and is not named",
                     member->own.name);
}

enum err __wrap_coordinator_complete(struct coordinator *core, uint64_t now_ms,
                                     const struct complete_request *request)
{
    struct sim *sim = world.sim;
    const struct sim_coordinator *coordinator = coordinator_here();
    struct complete_request changed = *request;
    if (coordinator == NULL)
        return __real_coordinator_complete(core, now_ms, request);
    mutate_complete(sim, &changed);
    sign_again(core, &changed.ticket);
    uint64_t version = sim->ledger.versions[sim->ledger.generation];
    const char *name = members_name(&core->members, request->member);
    forge_complete(sim, core, now_ms, &changed);
    stray_complete(sim, core, now_ms, &changed);
    slip(sim, core, &changed);
    bool last = is_last(core, &changed);
    enum err err = __real_coordinator_complete(core, now_ms, &changed);
    if (name != NULL && request->outcome == ERR_OK)
        story_tell(sim, "c%u hears from %s that %s of step %llu is done%s", coordinator->index,
                   name, share_of(&request->ticket, &request->place).text,
                   (unsigned long long)request->ticket.step, err == ERR_OK ? "" : ", too late");
    if (err == ERR_OK && sim_coordinator_holds_office(sim, coordinator) &&
        (sim->run.async || changed.ticket.step >= version) && is_whole(sim, core, &changed, last))
        ledger_completed(sim, &changed);
    spring_done(sim, core, &changed);
    check_slip(sim, core);
    return err;
}

static void trace_report(struct sim *sim, uint64_t link, const struct server_report *report,
                         enum err err)
{
    static const char *const names[] = {
        [SERVER_READY] = "ready",           [SERVER_REDUCED] = "reduced",
        [SERVER_COMMITTED] = "committed",   [SERVER_MANIFEST] = "manifest",
        [SERVER_WRONG_BITS] = "wrong bits", [SERVER_STATISTICS] = "statistics",
        [SERVER_DRAIN] = "drain",           [SERVER_HELD] = "held",
        [SERVER_MISSING] = "missing"};
    uint64_t step = report->kind == SERVER_REDUCED     ? report->reduced.step
                    : report->kind == SERVER_COMMITTED ? report->committed.step
                    : report->kind == SERVER_MANIFEST  ? report->manifest.cut.version
                    : report->kind == SERVER_HELD      ? report->held.decision.step
                    : report->kind == SERVER_MISSING   ? report->missing.step
                                                       : report->ready.cut.version;
    sim_trace(sim, "c%u hears %s(%llu) over link %llx: %s", world.life->place.index,
              names[report->kind], (unsigned long long)step, (unsigned long long)link,
              err_name(err));
}

static const char *server_of_link(const struct servers *servers, uint64_t link)
{
    for (uint32_t i = 0; i < servers->count; i++)
        if (servers->list[i].link == link)
            return servers->list[i].name;
    return NULL;
}

static void tell_held(struct sim *sim, const char *teller, const char *name,
                      const struct server_held *held)
{
    if (held->generation == 0)
        story_tell_once(sim, "%s hears from %s that it holds nothing", teller, name);
    else if (!held->has_decision)
        story_tell_once(sim, "%s hears from %s that it holds generation %llu, and no commit",
                        teller, name, (unsigned long long)held->generation);
    else
        story_tell_once(sim, "%s hears from %s that it holds generation %llu and commit(%llu)",
                        teller, name, (unsigned long long)held->generation,
                        (unsigned long long)held->decision.step);
}

static void tell_report(struct sim *sim, const struct coordinator *core, uint64_t link,
                        const struct server_report *report, enum err err)
{
    const char *name = server_of_link(&core->servers, link);
    char teller[16];
    process_print(world.life->place, teller, sizeof teller);
    if (name == NULL || err != ERR_OK)
        return;
    if (report->kind == SERVER_READY)
        story_tell_once(sim, "%s hears from %s that it is ready at version %llu", teller, name,
                        (unsigned long long)report->ready.cut.version);
    else if (report->kind == SERVER_REDUCED)
        story_tell_once(sim, "%s hears from %s that step %llu is reduced", teller, name,
                        (unsigned long long)report->reduced.step);
    else if (report->kind == SERVER_COMMITTED)
        story_tell_once(sim, "%s hears from %s that commit(%llu) is applied", teller, name,
                        (unsigned long long)report->committed.step);
    else if (report->kind == SERVER_MANIFEST)
        story_tell_once(sim, "%s hears from %s that its file of the cut of version %llu is durable",
                        teller, name, (unsigned long long)report->manifest.cut.version);
    else if (report->kind == SERVER_HELD)
        tell_held(sim, teller, name, &report->held);
    else if (report->kind == SERVER_DRAIN)
        story_tell_once(sim, "%s hears from %s that it wants to leave", teller, name);
}

/* Only the worker that lied once is said to have completed what it did not push. */
static void check_accused(struct sim *sim, const struct coordinator *core)
{
    char liar[16];
    process_print((struct machine){MACHINE_WORKER, sim->lie.worker}, liar, sizeof liar);
    for (uint32_t i = 0; i < core->members.count; i++) {
        const struct member *member = core->members.list[i];
        if (member->false_completes > 0 && (!sim->lie.told || strcmp(member->own.name, liar) != 0))
            sim_violated(sim, 17, "%s is accused of a false complete", member->own.name);
    }
}

enum err __wrap_coordinator_server_report(struct coordinator *core, uint64_t now_ms, uint64_t link,
                                          const struct server_report *report)
{
    if (coordinator_here() == NULL)
        return __real_coordinator_server_report(core, now_ms, link, report);
    twin_hello(world.sim, core, now_ms);
    stray_report(world.sim, core, now_ms, link, report);
    bool fails = report->kind == SERVER_MANIFEST && report->manifest.code != ERR_OK &&
                 cuts_ordered(&core->run.cuts, report->manifest.cut) &&
                 report->manifest.attempt == cuts_attempt(&core->run.cuts, report->manifest.cut);
    enum err err = __real_coordinator_server_report(core, now_ms, link, report);
    twin_note(world.sim, report, err);
    if (fails && err == ERR_OK)
        tables_check_failed(world.sim, core, server_of_link(&core->servers, link));
    trace_report(world.sim, link, report, err);
    tell_report(world.sim, core, link, report, err);
    if (err == ERR_MALFORMED)
        sim_violated(world.sim, 7, "the coordinator calls a report malformed");
    check_accused(world.sim, core);
    story_act(world.sim);
    return err;
}

void __wrap_coordinator_cut_stored(struct coordinator *core, uint64_t now_ms, struct cut_name name,
                                   enum err err)
{
    bool fails = err != ERR_OK && run_active(&core->run) && cuts_ordered(&core->run.cuts, name);
    __real_coordinator_cut_stored(core, now_ms, name, err);
    if (fails && coordinator_here() != NULL)
        tables_check_failed(world.sim, core, "the coordinator");
}

/* After each event of the core. */
void __wrap_control_effects_carry_out(struct control *control, uint64_t now_ns)
{
    struct sim_coordinator *coordinator = coordinator_here();
    if (coordinator != NULL && coordinator->core != NULL)
        tables_check_effects(world.sim, &coordinator->tables, coordinator->core);
    __real_control_effects_carry_out(control, now_ns);
    coordinator = coordinator_here();
    if (coordinator == NULL || coordinator->core == NULL)
        return;
    coordinator_check(coordinator->core);
    timers_check_rows(control);
    tables_check(world.sim, &coordinator->tables, coordinator->core);
    if (sim_coordinator_holds_office(world.sim, coordinator))
        ledger_map(world.sim, &coordinator->core->run, &coordinator->core->servers);
}

void timers_violated(const char *what)
{
    const struct sim_coordinator *coordinator = coordinator_here();
    if (coordinator != NULL)
        sim_violated(world.sim, 8, "c%u: %s", coordinator->index, what);
}

/* ---- effects ---- */

REAL(void, connections_command, const struct connection *server,
     const struct server_command *command);
struct call;
struct waiting;
REAL(struct call *, waiting_take_acquire, struct waiting *waiting, uint64_t member);
REAL(enum err, wire_encode_acquire_reply, const struct acquire_reply *reply, struct buf *out);
REAL(enum err, record_open, struct record *record, const struct record_run *run,
     uint64_t *ret_reached, struct reason *reason);
REAL(void, record_step, struct record *record, const struct step_row *row);
REAL(void, record_validation, struct record *record, const struct validation_row *row);
REAL(void, record_rewind, struct record *record, uint64_t version);
REAL(enum err, order_log_add, struct order_log *log, const struct order_step *step,
     struct reason *reason);

/* Chunks move, and one of their owners gets the commit late. */
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

static void tell_command(struct sim *sim, uint32_t server, const struct server_command *command)
{
    char teller[16];
    process_print(world.life->place, teller, sizeof teller);
    if (command->kind == SERVER_PREPARE && command->prepare.joins)
        story_tell(sim, "%s tells s%u to join generation %llu, without chunks yet", teller, server,
                   (unsigned long long)command->prepare.generation);
    else if (command->kind == SERVER_PREPARE && command->prepare.from_cut)
        story_tell(sim, "%s tells s%u to prepare generation %llu from the cut of version %llu",
                   teller, server, (unsigned long long)command->prepare.generation,
                   (unsigned long long)command->prepare.cut.version);
    else if (command->kind == SERVER_PREPARE)
        story_tell(sim, "%s tells s%u to prepare generation %llu", teller, server,
                   (unsigned long long)command->prepare.generation);
    else if (command->kind == SERVER_COMMIT)
        story_tell(sim, "%s sends commit(%llu) to s%u%s%s", teller,
                   (unsigned long long)command->commit.step, server,
                   command->commit.cut ? ", with a cut" : "",
                   command->move_count > 0 ? ", with chunks that move" : "");
    else if (command->kind == SERVER_LEAVE)
        story_tell(sim, "%s lets s%u go", teller, server);
    else if (command->kind == SERVER_ASK)
        story_tell(sim, "%s asks s%u what it holds", teller, server);
}

/* Drained; or its daemon ends all the same, and the run waits for it. */
static void let_go(struct sim *sim, const struct sim_coordinator *coordinator, uint32_t server)
{
    const struct server_entry *entry = sim_coordinator_entry(coordinator->core, server);
    if (sim_coordinator_holds_office(sim, coordinator) && entry->leaving == SERVER_HAS_LEFT)
        ledger_let_go(sim, server);
}

/* What was sent to an earlier boot, or by an earlier coordinator, comes once more over the new link
 * (P3, P7). */
static void repeat_outdated(struct sim *sim, struct stream *stream,
                            const struct server_command *command)
{
    const struct sim_server *server = &sim->servers[stream->server];
    bool older = server->command_term < command->term ||
                 (server->command_term == command->term && server->command_boot != command->boot);
    if (server->command == NULL || !older || sim->calm || sim_below(sim, 4) != 0)
        return;
    sim_fault(sim, FAULT_OLD_COMMAND);
    server->command->references++;
    network_send(sim, stream, OPENER, server->command);
}

static void keep_command(struct sim_server *server, const struct server_command *command)
{
    scoped(buf_release) struct buf bytes = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    check(wire_encode_server_command(command, &bytes) == ERR_OK);
    message_unref(server->command);
    server->command = message_new(bytes.data, bytes.bytes);
    server->command_boot = command->boot;
    server->command_term = command->term;
}

/* To the server of that link, around what was sent before. */
static void send_command(struct sim *sim, const struct connection *server,
                         const struct server_command *command)
{
    struct stream *stream = rpc_network_stream(sim, server->stream);
    repeat_outdated(sim, stream, command);
    __real_connections_command(server, command);
    repeat_outdated(sim, stream, command);
    keep_command(&sim->servers[stream->server], command);
}

void __wrap_connections_command(const struct connection *server,
                                const struct server_command *command)
{
    struct sim *sim = world.sim;
    if (watch_effect()) {
        struct stream *stream = rpc_network_stream(sim, server->stream);
        tell_command(sim, stream->server, command);
        if (command->kind == SERVER_LEAVE)
            let_go(sim, coordinator_here(), stream->server);
        if (command->kind == SERVER_COMMIT && command->move_count > 0)
            delay_moves(sim, stream);
    }
    if (life_acts())
        send_command(sim, server, command);
    else
        __real_connections_command(server, command);
    story_act(sim);
    if (life_acts() && command->kind == SERVER_COMMIT)
        faults_spring(sim, TRAP_DECIDE, world.life->place.index);
}

/* A ticket that nobody waits for any more is granted all the same: its slots have their version. */
static void granted_to_nobody(struct sim *sim, const struct sim_coordinator *coordinator,
                              uint64_t member)
{
    size_t count;
    const struct effect *effects = coordinator_effects(coordinator->core, &count);
    for (size_t i = 0; i < count; i++) {
        const struct acquire_reply *reply = &effects[i].answer.reply;
        if (effects[i].kind == EFFECT_ANSWER && effects[i].answer.member == member &&
            effects[i].answer.err == ERR_OK && reply->result == ACQUIRE_TICKET &&
            !ledger_is_late(sim, reply->ticket.generation, coordinator->term))
            order_granted(sim, &reply->ticket);
    }
}

struct call *__wrap_waiting_take_acquire(struct waiting *waiting, uint64_t member)
{
    struct call *call = __real_waiting_take_acquire(waiting, member);
    if (call == NULL && coordinator_here() != NULL)
        granted_to_nobody(world.sim, coordinator_here(), member);
    return call;
}

static void tell_granted(struct sim *sim, const struct sim_coordinator *coordinator,
                         const struct acquire_reply *reply)
{
    struct coordinator *core = coordinator->core;
    const struct ticket *ticket = &reply->ticket;
    const struct lease *lease = tickets_find(&core->run.tickets, ticket->attempt);
    const char *name = lease != NULL ? members_name(&core->members, ticket->member) : NULL;
    if (name == NULL)
        return;
    sim->options.progress->speculative += lease->speculative ? 1 : 0;
    sim->options.progress->audits += lease->audit ? 1 : 0;
    story_tell(sim, "c%u grants %s of step %llu to %s%s", coordinator->index,
               share_of(ticket, &reply->place).text, (unsigned long long)ticket->step, name,
               lease->audit         ? ", as an audit"
               : lease->speculative ? ", as a second attempt"
                                    : "");
}

enum err __wrap_wire_encode_acquire_reply(const struct acquire_reply *reply, struct buf *out)
{
    struct sim *sim = world.sim;
    struct acquire_reply changed = *reply;
    const struct sim_coordinator *coordinator = watch_effect() ? coordinator_here() : NULL;
    if (coordinator == NULL)
        return __real_wire_encode_acquire_reply(reply, out);
    mutate_reply(sim, &changed);
    if (changed.result == ACQUIRE_TICKET)
        sign_again(coordinator->core, &changed.ticket);
    if (changed.result == ACQUIRE_TICKET &&
        !ledger_is_late(sim, changed.ticket.generation, coordinator->term))
        ledger_granted(sim, &changed.ticket, sim_coordinator_holds_office(sim, coordinator));
    if (changed.result == ACQUIRE_TICKET)
        tell_granted(sim, coordinator, &changed);
    return __real_wire_encode_acquire_reply(&changed, out);
}

/* The run goes on, although the store says that it is to go back for a worker that was wrong. */
static void check_undone(struct sim *sim, const struct sim_coordinator *coordinator)
{
    uint64_t from;
    if (sim_coordinator_holds_office(sim, coordinator) &&
        convictions_undo(&sim->store.past.convictions, &from))
        sim_violated(sim, 19, "c%u goes on, and was to go back before step %llu",
                     coordinator->index, (unsigned long long)from);
}

/* P7: it would put its own logs in the place of those that its successor appends to. */
enum err __wrap_record_open(struct record *record, const struct record_run *run,
                            uint64_t *ret_reached, struct reason *reason)
{
    struct sim *sim = world.sim;
    const struct sim_coordinator *coordinator = coordinator_here();
    if (coordinator != NULL && !sim_coordinator_holds_office(sim, coordinator))
        sim_violated(sim, 7, "c%u opens the run's logs, and its term is over", coordinator->index);
    return __real_record_open(record, run, ret_reached, reason);
}

void __wrap_record_step(struct record *record, const struct step_row *row)
{
    struct sim *sim = world.sim;
    const struct sim_coordinator *coordinator = watch_effect() ? coordinator_here() : NULL;
    if (coordinator != NULL)
        check_undone(sim, coordinator);
    if (coordinator != NULL && !ledger_is_late(sim, row->generation, coordinator->term))
        ledger_step(sim, row, sim_coordinator_holds_office(sim, coordinator));
    __real_record_step(record, row);
    if (coordinator != NULL)
        story_tell(sim, "c%u decides commit(%llu)", coordinator->index,
                   (unsigned long long)row->step);
    story_act(sim);
}

void __wrap_record_validation(struct record *record, const struct validation_row *row)
{
    if (watch_effect())
        ledger_validation(world.sim, row);
    __real_record_validation(record, row);
}

static void adopt(struct sim *sim, const struct sim_coordinator *coordinator,
                  struct cut_name adopted)
{
    check_undone(sim, coordinator);
    const struct run *run = &coordinator->core->run;
    if (run_active(run) && run->steps.version > run->cuts.newest.name.version &&
        !run->cuts.wanted && run->cuts.pending_count == 0)
        sim_violated(sim, 10, "c%u goes on at version %llu, and asks for no cut of it",
                     coordinator->index, (unsigned long long)run->steps.version);
    ledger_adopted(sim, adopted, coordinator->term);
    story_tell(sim, "c%u goes on with generation %llu at version %llu", coordinator->index,
               (unsigned long long)adopted.generation, (unsigned long long)adopted.version);
    if (!sim_coordinator_holds_office(sim, coordinator) || !run_active(&coordinator->core->run))
        return; /* a run that is stopped at once needs nobody any more, whether that is stored or not */
    for (uint32_t s = 0; s < SIM_SERVERS_MAX; s++) {
        const struct server_entry *entry = sim_coordinator_entry(coordinator->core, s);
        if (entry == NULL || entry->map_index == SERVERS_NONE)
            ledger_left_out(sim, s);
    }
}

/* Another coordinator's steps are gone on with; a rewind calls it as well. */
void __wrap_record_rewind(struct record *record, uint64_t version)
{
    const struct sim_coordinator *coordinator = watch_effect() ? coordinator_here() : NULL;
    size_t count = 0;
    const struct effect *effects =
        coordinator != NULL ? coordinator_effects(coordinator->core, &count) : NULL;
    for (size_t i = 0; i < count; i++)
        if (effects[i].kind == EFFECT_ADOPT && effects[i].adopted.version == version)
            adopt(world.sim, coordinator, effects[i].adopted);
    __real_record_rewind(record, version);
}

enum err __wrap_order_log_add(struct order_log *log, const struct order_step *step,
                              struct reason *reason)
{
    if (watch_effect())
        order_logged(world.sim, step);
    return __real_order_log_add(log, step, reason);
}

/* ---- the run ---- */

REAL(enum err, control_run_new, struct store_run *take_stored, struct control_run **ret_run,
     struct reason *reason);

/* The scenario's settings beside the spec's. */
enum err __wrap_control_run_new(struct store_run *take_stored, struct control_run **ret_run,
                                struct reason *reason)
{
    enum err err = __real_control_run_new(take_stored, ret_run, reason);
    if (err == ERR_OK) {
        (*ret_run)->settings.data_served = true;
        (*ret_run)->settings.parameter_bytes_max = world.sim->scenario.parameter_bytes_max;
        (*ret_run)->settings.validation_samples = world.sim->scenario.validation_samples;
    }
    return err;
}

/* ---- a server's reports and commands ---- */

REAL(void, link_report, void *owner, const struct server_report *report);
REAL(void, shards_command, struct shards *shards, const struct server_command *command);
REAL(struct cut_name, shards_held, struct shards *shards);
REAL(void, shards_report_again, struct shards *shards);

/* A coordinator whose term is over, or a command that was under way for long, may name a cut that a
 * newer one took the place of, or (async) a beginning whose journals are gone with it. So may the
 * newest command, when a cut of its generation is recorded: then the run has not waited for this
 * server, which has drained (P11). */
static bool is_outdated(struct sim *sim, const struct sim_server *server)
{
    const struct coordinator_past *past = &sim->store.past;
    const struct server_command *command = &server->newest;
    uint64_t generation = command->prepare.generation;
    if (command->term == sim->store.term && generation == past->generation &&
        past->cut.name.generation != generation)
        return false;
    return (sim->run.async && generation < past->generation) ||
           (command->prepare.from_cut && watch_is_pruned(sim, command->prepare.cut));
}

static void check_ready(struct sim *sim, const struct sim_server *server,
                        const struct server_report *report)
{
    bool damaged = report->ready.code == ERR_CORRUPT && server->newest.prepare.from_cut &&
                   damage_is_of(sim, server->newest.prepare.cut);
    if (report->ready.code != ERR_OK && !damaged && !is_outdated(sim, server))
        sim_violated(sim, sim->run.async ? 16 : 10, "s%u cannot prepare generation %llu: %s",
                     server->index, (unsigned long long)report->ready.cut.generation,
                     report->ready.text);
}

void __wrap_link_report(void *owner, const struct server_report *report)
{
    struct sim_server *server = server_here();
    if (server != NULL)
        server->link = owner;
    if (server != NULL && report->kind == SERVER_READY)
        check_ready(world.sim, server, report);
    __real_link_report(owner, report);
}

void watch_report(const struct sim_server *server, const struct server_report *report)
{
    world.watching = false; /* it acts */
    if (server->link != NULL)
        __real_link_report(server->link, report);
    world.watching = true;
}

void __wrap_shards_command(struct shards *shards, const struct server_command *command)
{
    struct sim_server *server = server_here();
    bool can_lose = command->kind == SERVER_PREPARE || command->kind == SERVER_COMMIT;
    if (server != NULL)
        server->shards = shards;
    if (server != NULL && server->loses_command && can_lose) {
        server->loses_command = false; /* it obeys an older one, when that comes once more */
        sim_trace(world.sim, "s%u loses a command", server->index);
        return;
    }
    if (server != NULL) {
        if (command->boot == server->boot && command->term > server->term)
            server->term = command->term;
        bool obeyed = command->boot == server->boot && command->term >= server->term;
        if (obeyed && command->kind == SERVER_PREPARE &&
            command->prepare.generation > server->newest.prepare.generation)
            server->newest = *command;
        if (obeyed && command->kind == SERVER_RECORDED)
            server->journals.recorded =
                (struct cut_name){command->recorded.generation, command->recorded.version};
    }
    __real_shards_command(shards, command);
}

struct cut_name __wrap_shards_held(struct shards *shards)
{
    struct cut_name held = __real_shards_held(shards);
    const struct sim_server *server = server_here();
    if (server != NULL && world.sim->options.mutation == MUTATE_SAME_BOOT)
        held.generation = server->threads[0].ledger.generation;
    return held;
}

void __wrap_shards_report_again(struct shards *shards)
{
    if (server_here() == NULL || world.sim->options.mutation != MUTATE_LOSE_REPORT)
        __real_shards_report_again(shards);
}

/* ---- lines for people ---- */

/* A moment later the convicted machine starts again, and perhaps the coordinator as well. */
static void start_again(struct sim *sim, uint32_t worker)
{
    uint64_t us = sim->now_us + 1 + rand_below(&sim->keys, 4 * sim->scenario.compute_us);
    if (sim->calm || sim->options.story != NULL)
        return;
    queue_put(&sim->queue,
              (struct event){.at_us = us, .kind = EVENT_WORKER_START, .index = worker});
    if (rand_below(&sim->keys, 2) == 0)
        coordinator_here()->effects_left = 1 + rand_below(&sim->keys, 8);
}

/* On a full disk a conviction waits for room: a coordinator that dies meanwhile takes it along. */
static bool is_stored(const struct sim *sim, uint32_t worker)
{
    const struct convictions *stored = &sim->store.past.convictions;
    char name[16];
    process_print((struct machine){MACHINE_WORKER, worker}, name, sizeof name);
    for (uint32_t i = 0; i < stored->count; i++)
        if (strcmp(stored->list[i].name, name) == 0)
            return true;
    return false;
}

static void hear_of_convicted(struct sim *sim, const char *event)
{
    uint32_t worker;
    const struct sim_coordinator *coordinator = coordinator_here();
    bool joins = sscanf(event, "worker joined  worker=w%u ", &worker) == 1;
    bool goes = sscanf(event, "worker gone  worker=w%u ", &worker) == 1;
    if (coordinator == NULL || !(joins || goes) || !sim_coordinator_holds_office(sim, coordinator))
        return;
    check(worker < SIM_WORKERS_MAX);
    if (joins && sim->convicted[worker] && is_stored(sim, worker))
        sim_violated(sim, 18, "w%u is taken as a member, and was convicted", worker);
    if (joins || (strstr(event, " state=\"wrong bits\" ") == NULL &&
                  strstr(event, " state=\"false complete\" ") == NULL))
        return;
    sim->convicted[worker] = true;
    start_again(sim, worker);
}

REAL(void, log_event, const struct logger *logger, enum log_level level, const char *event,
     const struct log_field *fields);

void __wrap_log_event(const struct logger *logger, enum log_level level, const char *event,
                      const struct log_field *fields)
{
    char name[16];
    scoped(buf_release) struct buf line = {0};
    if (world.life == NULL) {
        __real_log_event(logger, level, event, fields);
        return;
    }
    if (world.life->dead || level > logger->level)
        return;
    process_print(world.life->place, name, sizeof name);
    if (world.life->place.kind == MACHINE_COORDINATOR) {
        hear_of_convicted(world.sim, event);
        story_log(world.sim, name, event);
    }
    if (!world.sim->options.trace)
        return;
    check(log_format(&line, 0, level, event, fields) == ERR_OK);
    line.data[line.bytes - 1] = 0;
    sim_trace(world.sim, "%s: %s", name, strchr((const char *)line.data, ' ') + 1);
}
