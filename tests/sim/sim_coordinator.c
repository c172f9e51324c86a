/* The coordinator's daemon from start to end, and what operators ask of it. */
#include "tests/sim/sim.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "server/coordinator/run.h"

#include <string.h>

/* ---- life ---- */

void sim_coordinator_init(struct sim *sim, uint32_t index)
{
    struct sim_coordinator *coordinator = &sim->coordinators[index];
    *coordinator = (struct sim_coordinator){.index = index};
    process_init(sim, &coordinator->process);
}

static void forget(struct sim_coordinator *coordinator)
{
    process_kill(&coordinator->process);
    coordinator->life = NULL;
    coordinator->core = NULL;
    coordinator->effects_left = 0;
    coordinator->tables = (struct tables){0};
}

void sim_coordinator_release(struct sim *sim, struct sim_coordinator *coordinator)
{
    if (coordinator->life != NULL)
        life_kill(coordinator->life);
    life_bury(sim);
    forget(coordinator);
    process_release(&coordinator->process);
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

bool sim_coordinator_holds_office(const struct sim *sim, const struct sim_coordinator *coordinator)
{
    return coordinator->term == sim->store.term;
}

static void start_later(struct sim *sim, uint32_t index)
{
    queue_put(&sim->queue, (struct event){.at_us = sim->now_us + sim_restart_us(sim),
                                          .kind = EVENT_COORDINATOR_START,
                                          .index = index});
}

void sim_coordinator_start(struct sim *sim, struct sim_coordinator *coordinator)
{
    if (coordinator->life != NULL || coordinator->index != sim->office)
        return;
    sim_trace(sim, "c%u starts", coordinator->index);
    coordinator->life =
        sim_daemon_start(sim, (struct machine){MACHINE_COORDINATOR, coordinator->index});
}

void sim_coordinator_crash(struct sim *sim, struct sim_coordinator *coordinator)
{
    pairs_event(sim, MEETING_COORDINATOR);
    sim_trace(sim, "c%u crashes", coordinator->index);
    sim_daemon_kill(sim, coordinator->life);
    forget(coordinator);
    start_later(sim, sim->office);
}

void sim_coordinator_ended(struct sim *sim, struct sim_coordinator *coordinator)
{
    life_free(coordinator->life);
    forget(coordinator);
    start_later(sim, sim->office); /* unless it is up */
}

bool sim_coordinator_succeed(struct sim *sim)
{
    struct sim_coordinator *first = sim_coordinator_in_office(sim);
    struct sim_coordinator *second = &sim->coordinators[1 - sim->office];
    if (first->core == NULL || second->life != NULL)
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
    sim_trace(sim, "c%u is ended, because its office is over", coordinator->index);
    sim_coordinator_crash(sim, coordinator);
}

void sim_coordinator_jump(struct sim *sim, struct sim_coordinator *coordinator, uint64_t us)
{
    coordinator->process.clock_us += us;
    if (coordinator->life != NULL)
        life_wake(coordinator->life);
    (void)sim;
}

/* ---- operators ---- */

enum operator_call { ASK_CUT, ASK_STOP, ASK_DRAIN, ASK_GIVE_UP };

static uint64_t pack(enum operator_call what, uint32_t server)
{
    return (uint64_t)what * SIM_SERVERS_MAX + server;
}

/* The request is in the scratch buffer. */
static bool ask(struct sim *sim, uint32_t index, const char *path, uint64_t call, enum err encoded)
{
    const struct sim_coordinator *coordinator = &sim->coordinators[index];
    struct message *message = sim_scratch_message(sim, encoded);
    bool there = coordinator->core != NULL && coordinator->life->methods != NULL &&
                 !coordinator->process.stopped;
    if (there)
        rpc_request_deliver(coordinator->life, path, RPC_OPERATOR, call, message);
    message_unref(message);
    return there;
}

bool sim_coordinator_ask_cut(struct sim *sim)
{
    pairs_event(sim, MEETING_CUT);
    return ask(sim, sim->office, "/roost.v1.Cluster/Checkpoint", pack(ASK_CUT, 0), ERR_OK);
}

bool sim_coordinator_stop_run(struct sim *sim)
{
    const struct stop_run_request request = {.reason = "told to"};
    pairs_event(sim, MEETING_STOP);
    bool there = ask(sim, sim->office, "/roost.v1.Cluster/StopRun", pack(ASK_STOP, 0),
                     wire_encode_stop_run_request(&request, &sim->scratch));
    sim->ledger.stopping = sim->ledger.stopping || there;
    return there;
}

static void ask_of(struct sim *sim, uint32_t server, bool lost)
{
    char name[16];
    snprintf(name, sizeof name, "s%u", server);
    const struct drain_request request = {.server = name, .lost = lost};
    ask(sim, sim_coordinator_find(sim), "/roost.v1.Cluster/Drain",
        pack(lost ? ASK_GIVE_UP : ASK_DRAIN, server),
        wire_encode_drain_request(&request, &sim->scratch));
}

void sim_coordinator_drain(struct sim *sim, uint32_t server)
{
    ask_of(sim, server, false);
}

void sim_coordinator_give_up(struct sim *sim, uint32_t server)
{
    ask_of(sim, server, true);
}

/* Until it is done, or refused. */
static void drain_answered(struct sim_server *server, enum err err, struct slice response)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct drain_reply reply = {.drained = true};
    if (err == ERR_OK)
        check(wire_decode_drain_reply(response, &arena, &reply, NULL) == ERR_OK);
    server->drains = server->drains && !reply.drained;
}

void sim_operator_answered(struct sim *sim, uint64_t call, enum err err, struct slice response)
{
    enum operator_call what = (enum operator_call)(call / SIM_SERVERS_MAX);
    struct sim_server *server = &sim->servers[call % SIM_SERVERS_MAX];
    if (what == ASK_DRAIN)
        drain_answered(server, err, response);
    else if (what == ASK_GIVE_UP && err == ERR_OK)
        server->give_ups = 0;
    else if (what == ASK_STOP && err == ERR_OK)
        ledger_stop(sim);
}

/* ---- what it thinks of servers ---- */

struct server_entry *sim_coordinator_entry(const struct coordinator *core, uint32_t server)
{
    struct coordinator *inside = (struct coordinator *)(uintptr_t)core;
    struct servers *servers = &inside->servers;
    _Static_assert(SIM_SERVERS_MAX <= 10, "s0, s1, ...: one digit");
    for (uint32_t i = 0; i < servers->count; i++)
        if (servers->list[i].name[1] == (char)('0' + server))
            return &servers->list[i];
    return NULL;
}

bool sim_coordinator_let_go(struct sim *sim, uint32_t server)
{
    const struct sim_coordinator *coordinator = sim_coordinator_in_office(sim);
    const struct server_entry *entry =
        coordinator->core == NULL ? NULL : sim_coordinator_entry(coordinator->core, server);
    return entry != NULL && entry->leaving == SERVER_HAS_LEFT &&
           entry->boot == sim->servers[server].boot;
}

bool sim_coordinator_needs(struct sim *sim, uint32_t server)
{
    const struct sim_coordinator *coordinator = sim_coordinator_in_office(sim);
    return sim->over || coordinator->core == NULL || ledger_names(sim, server) ||
           !sim_coordinator_let_go(sim, server);
}
