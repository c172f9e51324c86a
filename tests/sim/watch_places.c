/* The same as watch.c between workers that share leases (S2 to S7): what the coordinator thinks of
 * its gangs beside what their members keep, who refuses what, and who is named unreachable. */
#include "common/arena.h"
#include "common/scoped.h"
#include "server/coordinator/places.h"
#include "tests/sim/sim.h"
#include "worker/agent_core.h"
#include "worker/outbox.h"
#include "worker/wants.h"

#include <string.h>

enum { ANSWER_MS = 5000 /* worker/worker_places.c */, CLOCK_MS = 10 /* of milliseconds */ };

#define REAL(result, name, ...)                                                                    \
    result __real_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__)

static struct sim_worker *worker_here(void)
{
    return life_acts() ? &world.sim->workers[world.life->place.index] : NULL;
}

/* Who joined under that number; NULL: nobody who is a member there. */
static struct sim_worker *worker_of(struct sim *sim, struct coordinator *core, uint64_t member)
{
    unsigned index;
    const char *name = members_name(&core->members, member);
    return name != NULL && sscanf(name, "w%u", &index) == 1 ? &sim->workers[index] : NULL;
}

/* ---- the coordinator ---- */

REAL(void, send_ticket, struct coordinator *coordinator, struct member *member);

void __wrap_send_ticket(struct coordinator *coordinator, struct member *member)
{
    struct sim_worker *worker = life_acts() ? worker_of(world.sim, coordinator, member->id) : NULL;
    const struct gang *gang = gangs_find(&coordinator->run.gangs, member->ticket.attempt);
    if (worker != NULL && gang != NULL)
        worker->seats[worker->seat_count++ % SIM_LEASES_MAX] =
            (struct granted_seat){.member = member->id,
                                  .attempt = member->ticket.attempt,
                                  .try_number = gang->seats[member->seat].try_number};
    __real_send_ticket(coordinator, member);
}

/* S6: who has a seat was given it under the place's try. */
static void check_tries(struct sim *sim, struct coordinator *core, const struct gang *gang)
{
    for (uint32_t i = 0; i < core->run.gangs.seats; i++) {
        const struct gang_seat *seat = &gang->seats[i];
        const struct sim_worker *worker = worker_of(sim, core, seat->member);
        uint64_t number = seat->try_number;
        for (uint32_t k = 0; worker != NULL && k < SIM_LEASES_MAX; k++) {
            const struct granted_seat *granted =
                &worker->seats[(worker->seat_count + k) % SIM_LEASES_MAX]; /* the newest last */
            if (granted->member == seat->member && granted->attempt == gang->ticket.attempt)
                number = granted->try_number;
        }
        if (number != seat->try_number)
            sim_violated(sim, 23, "w%u computes under try %llu of a place whose try is %llu",
                         worker->index, (unsigned long long)number,
                         (unsigned long long)seat->try_number);
    }
}

/* S3: a member keeps what it produced until the lease is over. */
static void check_kept(struct sim *sim, struct coordinator *core, const struct gang *gang)
{
    for (uint32_t i = 0; i < core->run.gangs.seats; i++) {
        const struct gang_seat *seat = &gang->seats[i];
        const struct sim_worker *worker = seat->done ? worker_of(sim, core, seat->member) : NULL;
        const struct agent *agent = worker != NULL ? worker->agent : NULL;
        if (agent != NULL && agent_is_member(agent) && !agent->member.leaving &&
            agent->member.member == seat->member &&
            !agent_leases_has(&agent->leases, gang->ticket.attempt))
            sim_violated(sim, 23, "w%u has forgotten step %llu slot %u, whose lease goes on",
                         worker->index, (unsigned long long)gang->ticket.step,
                         node_first(gang->ticket.node));
    }
}

/* Whether free members are given places now. */
static bool grants(const struct coordinator *core)
{
    const struct run *run = &core->run;
    return !run->fingerprint_late && (run->phase == PHASE_STEPS || run->phase == PHASE_LAST) &&
           servers_connected(&core->servers);
}

/* Whether the member shares leases that are younger than that one, and no other. */
static bool only_younger(const struct run *run, const struct member *member,
                         const struct gang *gang)
{
    uint64_t attempts[WIRE_LEASES_MAX];
    uint32_t count = places_leases(run, member, attempts);
    for (uint32_t i = 0; i < count; i++)
        if (!gangs_is_older(gang, gangs_find(&run->gangs, attempts[i])))
            return false;
    return count > 0;
}

/* S5: an older lease does not wait for a member while a younger one has some. Where some members
 * are apart or too small (S7), others may be the wrong ones. */
static void check_room(struct sim *sim, const struct coordinator *core)
{
    const struct run *run = &core->run;
    const struct gangs *gangs = &run->gangs;
    const struct gang *oldest = gangs_oldest_empty(gangs);
    uint64_t attempts[WIRE_LEASES_MAX];
    uint32_t idle = 0, younger = 0, most = run->settings.place_leases;
    if (oldest == NULL || oldest == gangs->list[gangs->count - 1] || !grants(core) ||
        run->unreachable.apart_count > 0 || core->members.small_count > 0)
        return;
    for (uint32_t i = 0; i < core->members.count; i++) {
        const struct member *member = core->members.list[i];
        idle += places_leases(run, member, attempts) < (most > 0 ? most : 1);
        younger += only_younger(run, member, oldest);
    }
    if (idle < oldest->empty_count && younger > 0)
        sim_violated(sim, 23, "step %llu slot %u waits for a member, and a younger lease has some",
                     (unsigned long long)oldest->ticket.step, node_first(oldest->ticket.node));
}

/* P6: an audit's lease that outlives its step is whole: nobody fills a place of it. */
static void check_late(struct sim *sim, const struct gang *gang)
{
    if (gang->late && gang->empty_count > 0)
        sim_violated(sim, 23, "step %llu slot %u is committed, and its audit waits for a member",
                     (unsigned long long)gang->ticket.step, node_first(gang->ticket.node));
}

void places_check(struct sim *sim, struct coordinator *core)
{
    const struct gangs *gangs = &core->run.gangs;
    for (uint32_t i = 0; i < gangs->count; i++)
        check_late(sim, gangs->list[i]);
    for (uint32_t i = 0; i < gangs->count; i++)
        check_kept(sim, core, gangs->list[i]);
    for (uint32_t i = 0; i < gangs->count; i++)
        check_tries(sim, core, gangs->list[i]);
    check_room(sim, core);
}

/* ---- the worker ---- */

/* The youngest ticket in a lane; NULL: a lane is free, or will be soon. */
static const struct agent_ticket *youngest_computed(const struct agent_tickets *tickets,
                                                    const struct agent_ticket *waiting)
{
    const struct agent_ticket *youngest = NULL;
    uint32_t lanes = tickets->config->lanes[waiting->place.stage];
    for (uint32_t i = 0; i < (lanes > 0 ? lanes : 1); i++) {
        const struct agent_ticket *ticket = tickets->lanes[i].ticket;
        if (ticket == NULL)
            return NULL;
        if (youngest == NULL || ticket_is_older(&youngest->ticket, &ticket->ticket))
            youngest = ticket;
    }
    return youngest;
}

static struct agent_lease *find_lease(const struct agent *agent, uint64_t attempt)
{
    for (uint32_t i = 0; agent->leases.all != NULL && i < AGENT_LEASES_MAX; i++)
        if (attempt != 0 && agent->leases.all[i].who.places.attempt == attempt)
            return &agent->leases.all[i];
    return NULL;
}

/* S7: of what an answer and notices say, the newest counts, whichever came first. */
static void check_heard(struct sim *sim, const struct sim_worker *worker)
{
    for (uint32_t i = 0; i < AGENT_EARLY_MAX; i++) {
        const struct heard_places *heard = &worker->heard[i];
        const struct agent_lease *lease = find_lease(worker->agent, heard->attempt);
        if (lease != NULL && lease->who.places.number < heard->number)
            sim_violated(sim, 23, "w%u has places of number %llu, and was told those of %llu",
                         worker->index, (unsigned long long)lease->who.places.number,
                         (unsigned long long)heard->number);
    }
}

/* S9: no lease waits for the lane of a younger one. */
void places_check_lanes(struct sim *sim, const struct sim_worker *worker)
{
    const struct agent_tickets *tickets = &worker->agent->tickets;
    check_heard(sim, worker);
    for (uint32_t i = 0; i < tickets->count; i++) {
        const struct agent_ticket *waiting = &tickets->all[i], *younger;
        if (waiting->state != AGENT_TICKET_HELD || waiting->compute_begun ||
            !place_is_shared(&waiting->place) || !agent_is_member(worker->agent))
            continue;
        younger = youngest_computed(tickets, waiting);
        if (younger != NULL && ticket_is_older(&waiting->ticket, &younger->ticket))
            sim_violated(sim, 23, "w%u computes step %llu slot %u, and step %llu slot %u waits",
                         worker->index, (unsigned long long)younger->ticket.step,
                         node_first(younger->ticket.node), (unsigned long long)waiting->ticket.step,
                         node_first(waiting->ticket.node));
    }
}

/* ---- who is asked ---- */

REAL(enum err, outbox_lease, struct outbox *outbox, const struct ticket *ticket,
     const struct place *place, const struct places *places);
REAL(void, outbox_generation, struct outbox *outbox, uint64_t generation);
REAL(enum err, outbox_want, struct outbox_asker *asker, const struct want *want);
REAL(bool, outbox_next, struct outbox_asker *asker, struct outbox_answer *ret_answer);

/* It hears of a lease again with each try of its place. */
static bool was_told(const struct sim_worker *worker, uint64_t attempt)
{
    for (uint32_t i = 0; i < SIM_LEASES_MAX; i++)
        if (worker->leases[i].attempt == attempt)
            return true;
    return false;
}

static void hear_of(struct sim_worker *worker, uint64_t generation)
{
    if (worker != NULL && worker->generation < generation)
        worker->generation = generation;
}

void __wrap_outbox_generation(struct outbox *outbox, uint64_t generation)
{
    hear_of(worker_here(), generation);
    __real_outbox_generation(outbox, generation);
}

/* S6: none of several members begins its place again alone. */
static void begins(struct sim_worker *worker, const struct ticket *ticket,
                   const struct place *place)
{
    for (uint32_t i = 0; i < SIM_LEASES_MAX; i++) {
        struct granted_seat *granted = &worker->seats[i];
        if (granted->member != ticket->member || granted->attempt != ticket->attempt ||
            granted->try_number != place->try_number)
            continue;
        if (granted->begun && place->ranks > 1)
            sim_violated(world.sim, 23, "w%u begins step %llu slot %u again under try %llu",
                         worker->index, (unsigned long long)ticket->step, node_first(ticket->node),
                         (unsigned long long)place->try_number);
        granted->begun = true;
    }
}

enum err __wrap_outbox_lease(struct outbox *outbox, const struct ticket *ticket,
                             const struct place *place, const struct places *places)
{
    struct sim_worker *worker = worker_here();
    if (worker != NULL && !was_told(worker, ticket->attempt))
        worker->leases[worker->lease_count++ % SIM_LEASES_MAX] = *ticket;
    if (worker != NULL)
        begins(worker, ticket, place);
    hear_of(worker, ticket->generation);
    return __real_outbox_lease(outbox, ticket, place, places);
}

/* Whether the worker was told of a lease that the name may be about. */
static bool has_heard(const struct sim_worker *worker, const struct value_name *name)
{
    uint32_t slots = world.sim->scenario.spec.train.slots;
    for (uint32_t i = 0; i < SIM_LEASES_MAX; i++) {
        const struct ticket *ticket = &worker->leases[i];
        uint32_t first = node_first(ticket->node);
        if (ticket->attempt != 0 && ticket->generation == name->generation &&
            ticket->kind == name->kind && ticket->step == name->step && name->slot >= first &&
            name->slot - first < (ticket->kind == TICKET_TRAIN ? slots : 1))
            return true;
    }
    return false;
}

enum err __wrap_outbox_want(struct outbox_asker *asker, const struct want *want)
{
    struct sim_worker *worker = worker_here();
    for (uint32_t i = 0; worker != NULL && i < SIM_EARLY_MAX; i++)
        if (worker->early[i].asker == asker && worker->early[i].id == want->id)
            worker->early[i].asker = NULL; /* another want has its number now */
    bool old = worker != NULL && want->name.generation < worker->generation;
    if (worker != NULL && (old || !has_heard(worker, &want->name)))
        worker->early[worker->early_count++ % SIM_EARLY_MAX] =
            (struct early_want){asker, want->id, want->name, old};
    return __real_outbox_want(asker, want);
}

/* S8: a new generation ends all leases. */
static void check_over(const struct sim_worker *worker, const struct early_want *want,
                       const struct from_peer *answer)
{
    if (answer->kind != FROM_PEER_GONE || answer->gone.code != ERR_OLD_GENERATION)
        sim_violated(
            world.sim, 23,
            "w%u is asked for a value of generation %llu, and does not say that it is over: "
            "it has heard of %llu",
            worker->index, (unsigned long long)want->name.generation,
            (unsigned long long)worker->generation);
}

static uint64_t answered(const struct from_peer *message)
{
    return message->kind == FROM_PEER_HAVE   ? message->have.id
           : message->kind == FROM_PEER_GONE ? message->gone.id
                                             : message->parked.id;
}

/* S2: who has not heard of the lease waits until it has. */
bool __wrap_outbox_next(struct outbox_asker *asker, struct outbox_answer *ret_answer)
{
    const struct sim_worker *worker = worker_here();
    bool any = __real_outbox_next(asker, ret_answer);
    const struct from_peer *message = &ret_answer->message;
    for (uint32_t i = 0; any && worker != NULL && i < SIM_EARLY_MAX; i++) {
        const struct early_want *early = &worker->early[i];
        if (early->old && early->asker == asker && early->id == answered(message))
            check_over(worker, early, message);
        if (message->kind == FROM_PEER_GONE && message->gone.code != ERR_OLD_GENERATION &&
            early->asker == asker && early->id == message->gone.id &&
            !has_heard(worker, &early->name))
            sim_violated(world.sim, 23, "w%u refuses a value of a lease that it has not heard of",
                         worker->index);
    }
    return any;
}

REAL(size_t, fragments_bytes, size_t value_bytes);

/* In every second seed values, of 8 or 24 bytes, come in several messages, each time in others. */
size_t __wrap_fragments_bytes(size_t value_bytes)
{
    return world.sim->scenario.seed % 2 == 0 && value_bytes > 0
               ? 1 + sim_below(world.sim, value_bytes)
               : __real_fragments_bytes(value_bytes);
}

/* ---- notices ---- */

REAL(void, agent_places, struct agent *agent, uint64_t now_ms, const struct places *places);

static void check_newest(const struct agent *agent, const struct places *places)
{
    for (uint32_t i = 0; agent->leases.all != NULL && i < AGENT_LEASES_MAX; i++) {
        const struct places *known = &agent->leases.all[i].who.places;
        if (known->attempt == places->attempt && known->number < places->number)
            sim_violated(world.sim, 23, "w%u takes places of number %llu for newer than %llu",
                         world.life->place.index, (unsigned long long)known->number,
                         (unsigned long long)places->number);
    }
}

/* Places that are known come once more, which changes nothing. */
static void hear_again(struct sim_worker *worker, struct agent *agent, uint64_t now_ms)
{
    const struct agent_lease *lease = find_lease(agent, worker->older.attempt);
    if (lease == NULL || lease->changed || lease->who.places.number != worker->older.number)
        return;
    __real_agent_places(agent, now_ms, &worker->older);
    if (lease->changed)
        sim_violated(world.sim, 23, "w%u takes places that it knows for new ones", worker->index);
}

/* S7: places that are older than what was heard come once more, which changes nothing. */
void __wrap_agent_places(struct agent *agent, uint64_t now_ms, const struct places *places)
{
    struct sim_worker *worker = worker_here();
    if (worker != NULL && agent_is_member(agent)) {
        worker->heard[worker->heard_count++ % AGENT_EARLY_MAX] =
            (struct heard_places){places->attempt, places->number};
        hear_again(worker, agent, now_ms);
    }
    __real_agent_places(agent, now_ms, places);
    if (worker == NULL || places->peer_count == 0 || !agent_is_member(agent))
        return;
    if (worker->older.attempt == places->attempt && worker->older.number < places->number)
        __real_agent_places(agent, now_ms, &worker->older);
    check_newest(agent, places);
    worker->older = *places;
    worker->older.peers = worker->older_peers;
    memcpy(worker->older_peers, places->peers, places->peer_count * sizeof *places->peers);
}

/* ---- who asks ---- */

uint64_t watch_peer_member(const struct sim *sim, uint32_t opener, uint32_t worker)
{
    const struct agent *agent = sim->workers[worker].agent;
    uint64_t reached = sim->workers[opener].reached;
    return agent != NULL && agent->member.member == reached ? reached : 0;
}

/* A value's messages follow each other. */
static void check_follows(struct sim *sim, struct stream *stream, const struct from_peer *message)
{
    bool begins = message->kind == FROM_PEER_HAVE;
    if (!begins && message->kind != FROM_PEER_FRAGMENT)
        return;
    if (begins != (stream->rest == 0))
        sim_violated(sim, 23, "w%u gets a message of a value between those of another one",
                     stream->worker);
    stream->rest = begins ? message->have.rest : message->fragment.rest;
}

REAL(enum err, wants_judge, struct wants *wants, const struct value_name *name, bool right);

/* Who answers sends what has its digest, and who asks puts it together as it was. */
enum err __wrap_wants_judge(struct wants *wants, const struct value_name *name, bool right)
{
    if (!right && !world.sim->damaged)
        sim_violated(world.sim, 23, "a worker refuses a value that nobody damaged");
    return __real_wants_judge(wants, name, right);
}

void watch_peer_answered(struct sim *sim, struct stream *stream, const struct message *message)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    const struct process *process = &sim->workers[stream->worker].process;
    struct slice slices[MESSAGE_SLICES_MAX];
    struct from_peer from;
    check(wire_decode_from_peer(slices, message_slices(message, slices), &arena, &from, NULL) ==
          ERR_OK);
    check_follows(sim, stream, &from);
    if (from.kind != FROM_PEER_GONE)
        stream->answered = (struct answered){sim->now_us, process->clock_us, process->stops};
}

REAL(bool, wants_next, struct wants *wants, uint64_t now_ms, struct wants_effect *ret_effect);
REAL(bool, wants_next_stream, struct wants *wants, uint64_t now_ms,
     struct wants_effect *ret_effect);

/* As peers_joined() has it. */
static uint64_t answer_us(const struct sim *sim)
{
    uint32_t half_ms = sim->scenario.office.lease_ms / 2;
    return (uint64_t)1000 * ((half_ms < ANSWER_MS ? half_ms : ANSWER_MS) - CLOCK_MS);
}

/* S7: who answers, be it that the value is not there yet, is not named; what it answers as the member
 * that it was before, or to who means that one, is nobody's. */
static void check_silent(struct sim *sim, const struct sim_worker *worker, uint64_t member)
{
    struct coordinator *core = sim_coordinator_in_office(sim)->core;
    const struct sim_worker *named = core != NULL ? worker_of(sim, core, member) : NULL;
    if (named == NULL || named->agent == NULL || named->agent->member.member != member)
        return; /* it answers as somebody else now */
    for (size_t i = 0; i < sim->network.stream_count; i++) {
        const struct stream *stream = sim->network.streams[i];
        const struct answered *answered = &stream->answered;
        if (stream->kind == STREAM_PEER && stream->worker == worker->index &&
            stream->peer_member == member && !stream->closed[OPENER] && !stream->closed[ACCEPTOR] &&
            answered->at_us > 0 && answered->clock_us == worker->process.clock_us &&
            answered->stops == worker->process.stops &&
            sim->now_us - answered->at_us < answer_us(sim))
            sim_violated(sim, 23, "w%u names w%u, which answered %.3f s ago", worker->index,
                         named->index, (double)(sim->now_us - answered->at_us) / 1e6);
    }
}

bool __wrap_wants_next(struct wants *wants, uint64_t now_ms, struct wants_effect *ret_effect)
{
    struct sim_worker *worker = worker_here();
    bool any = __real_wants_next(wants, now_ms, ret_effect);
    wants_check(wants);
    if (any && worker != NULL && ret_effect->kind == WANTS_UNREACHABLE)
        check_silent(world.sim, worker, ret_effect->peer->member);
    if (any && worker != NULL && ret_effect->kind == WANTS_OPEN)
        worker->reached = ret_effect->peer->member;
    return any;
}

bool __wrap_wants_next_stream(struct wants *wants, uint64_t now_ms, struct wants_effect *ret_effect)
{
    struct sim_worker *worker = worker_here();
    bool any = __real_wants_next_stream(wants, now_ms, ret_effect);
    if (any && worker != NULL)
        worker->reached = ret_effect->peer->member;
    return any;
}
