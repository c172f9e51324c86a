#include "tests/sim/sim.h"

#include <string.h>

enum { MEETINGS_US = 20000000 /* so long after the last planned fault they may begin */ };

void faults_plan(struct sim *sim)
{
    const struct scenario *scenario = &sim->scenario;
    for (uint32_t i = 0; i < scenario->fault_count; i++)
        queue_put(&sim->queue, (struct event){.at_us = scenario->faults[i].at_us,
                                              .kind = EVENT_FAULT,
                                              .index = scenario->faults[i].kind});
    queue_put(&sim->queue, (struct event){.at_us = scenario->calm_us, .kind = EVENT_CALM});
}

/* A worker at random among those that are (not) there; NULL: there is none. */
static struct sim_worker *pick_worker(struct sim *sim, bool alive)
{
    uint32_t first = (uint32_t)sim_below(sim, SIM_WORKERS_MAX);
    for (uint32_t i = 0; i < SIM_WORKERS_MAX; i++) {
        struct sim_worker *worker = &sim->workers[(first + i) % SIM_WORKERS_MAX];
        if ((worker->life != NULL) == alive)
            return worker;
    }
    return NULL;
}

/* Set now, sprung later, unless another one is. */
static bool set_trap(struct sim *sim, enum trap trap)
{
    sim->faults.trap = trap;
    return true;
}

static bool kill_worker(struct sim *sim)
{
    struct sim_worker *worker = pick_worker(sim, true);
    if (worker == NULL)
        return false;
    if (spec_mesh_ranks(&sim->scenario.spec.mesh) > 1 && sim_below(sim, 2) == 0)
        return set_trap(sim, TRAP_PART);
    if (spec_mesh_is_shared(&sim->scenario.spec.mesh) && sim_below(sim, 2) == 0)
        return set_trap(sim, sim_below(sim, 2) == 0 ? TRAP_VALUE : TRAP_DONE);
    if (sim_below(sim, 3) == 0)
        return set_trap(sim, TRAP_PUSH);
    sim_worker_kill(sim, worker, sim_below(sim, 100) < 30);
    return true;
}

static bool add_worker(struct sim *sim)
{
    struct sim_worker *worker = pick_worker(sim, false);
    if (worker == NULL)
        return false;
    sim_worker_start(sim, worker);
    return true;
}

/* Any process that is there. False: the one that was picked is not. */
static bool pick_place(struct sim *sim, struct machine *ret_place)
{
    enum machine_kind kind = (enum machine_kind)sim_below(sim, 3);
    const struct sim_worker *worker = pick_worker(sim, true);
    const struct sim_server *server = &sim->servers[sim_below(sim, SIM_SERVERS_MAX)];
    const struct sim_coordinator *coordinator =
        &sim->coordinators[sim_below(sim, 8) == 0 ? 1 - sim->office : sim->office];
    switch (kind) {
    case MACHINE_WORKER:
        *ret_place = (struct machine){kind, worker != NULL ? worker->index : 0};
        return worker != NULL;
    case MACHINE_SERVER:
        *ret_place = (struct machine){kind, server->index};
        return server->up;
    default:
        *ret_place = (struct machine){kind, coordinator->index};
        return coordinator->core != NULL;
    }
}

/* For a moment, or longer than a lease. */
static bool stop_somebody(struct sim *sim)
{
    struct machine place;
    uint64_t lease_us = (uint64_t)sim->scenario.office.lease_ms * 1000;
    uint64_t for_us = sim_below(sim, 2) == 0 ? lease_us / 8 : 5 * lease_us / 2;
    return pick_place(sim, &place) &&
           process_stop(sim, place, sim->now_us + 1 + sim_below(sim, for_us));
}

static bool jump_clock(struct sim *sim)
{
    struct machine place;
    if (!pick_place(sim, &place) || place.kind == MACHINE_SERVER || process_of(sim, place)->stopped)
        return false;
    uint64_t us = sim_below(sim, sim_below(sim, 2) == 0 ? 1000000 : 100000000);
    char name[16];
    process_print(place, name, sizeof name);
    sim_trace(sim, "%s's clock jumps %.3f s ahead", name, (double)us / 1e6);
    if (place.kind == MACHINE_WORKER)
        sim_worker_jump(sim, &sim->workers[place.index], us);
    else
        sim_coordinator_jump(sim, &sim->coordinators[place.index], us);
    return true;
}

static bool slow_worker(struct sim *sim)
{
    struct sim_worker *worker = pick_worker(sim, true);
    if (worker == NULL)
        return false;
    worker->slowness = 2 + sim_below(sim, 30);
    return true;
}

static bool leave_worker(struct sim *sim)
{
    struct sim_worker *worker = pick_worker(sim, true);
    if (worker == NULL || worker->process.stopped)
        return false;
    sim_worker_leave(sim, worker);
    return true;
}

/* Half of them go at once, others come. */
static bool storm(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_WORKERS_MAX; i++) {
        struct sim_worker *worker = &sim->workers[i];
        if (sim_below(sim, 2) == 0)
            continue;
        if (worker->life != NULL)
            sim_worker_kill(sim, worker, sim_below(sim, 2) == 0);
        queue_put(&sim->queue,
                  (struct event){.at_us = sim->now_us + sim_below(sim, 4 * sim->scenario.delay_us),
                                 .kind = EVENT_WORKER_START,
                                 .index = i});
    }
    return true;
}

/* All that are not there come at once. */
static bool herd(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_WORKERS_MAX; i++)
        if (sim->workers[i].life == NULL)
            sim_worker_start(sim, &sim->workers[i]);
    return true;
}

/* Most get the signal to leave, all at once: the zone is closed. */
static bool exodus(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_WORKERS_MAX; i++) {
        struct sim_worker *worker = &sim->workers[i];
        if (worker->life != NULL && !worker->process.stopped && sim_below(sim, 4) != 0)
            sim_worker_leave(sim, worker);
    }
    return true;
}

/* All but one. */
static bool cull(struct sim *sim)
{
    const struct sim_worker *kept = pick_worker(sim, true);
    for (uint32_t i = 0; i < SIM_WORKERS_MAX; i++)
        if (sim->workers[i].life != NULL && &sim->workers[i] != kept)
            sim_worker_kill(sim, &sim->workers[i], sim_below(sim, 2) == 0);
    return kept != NULL;
}

/* It loses its lease at once, while its pushes are under way and go on for long; others come and
 * get what it had, in smaller pieces. */
static void orphan_pushes(struct sim *sim, const struct sim_worker *worker)
{
    struct stream *stream;
    for (uint32_t i = 0; (stream = rpc_opened(worker->life, STREAM_EXCHANGE, i)) != NULL; i++)
        network_clog(stream, ACCEPTOR,
                     sim->now_us + 20 * sim->scenario.delay_us +
                         sim_below(sim, 40 * sim->scenario.compute_us));
    stream = rpc_opened(worker->life, STREAM_MEMBER, 0);
    if (stream != NULL)
        network_break(sim, stream);
    for (uint32_t i = 0; i < 3; i++)
        add_worker(sim);
}

static struct stream *pick_stream(struct sim *sim, enum stream_kind kind)
{
    size_t count = sim->network.stream_count;
    size_t first = count == 0 ? 0 : sim_below(sim, count);
    for (size_t i = 0; i < count; i++) {
        struct stream *stream = sim->network.streams[(first + i) % count];
        if (stream->kind == kind && !stream->closed[OPENER] && !stream->closed[ACCEPTOR])
            return stream;
    }
    return NULL;
}

static bool break_stream(struct sim *sim, enum stream_kind kind)
{
    struct stream *stream = pick_stream(sim, kind);
    if (stream == NULL)
        return false;
    if (kind == STREAM_LINK)
        pairs_event(sim, MEETING_LINK);
    sim_trace(sim, "stream %llu breaks (w%u, s%u)", (unsigned long long)stream->number,
              stream->worker, stream->server);
    network_break(sim, stream);
    return true;
}

static bool clog_stream(struct sim *sim)
{
    uint64_t kinds =
        spec_mesh_is_shared(&sim->scenario.spec.mesh) ? STREAM_PEER + 1 : STREAM_LINK + 1;
    struct stream *stream = pick_stream(sim, (enum stream_kind)sim_below(sim, kinds));
    if (stream == NULL)
        return false;
    uint64_t which = sim_below(sim, 3), until_us = sim->now_us + sim_below(sim, 2000000);
    for (enum end to = OPENER; to <= ACCEPTOR; to++)
        if (which != to)
            network_clog(stream, to, until_us);
    return true;
}

/* One direction of one stream after another, each until a moment of its own. */
static bool clog_all(struct sim *sim)
{
    uint64_t at_us = sim->now_us, step_us = 1 + sim->scenario.delay_us / 4;
    for (size_t i = 0; i < sim->network.stream_count; i++) {
        const struct stream *stream = sim->network.streams[i];
        enum end to = (enum end)sim_below(sim, 2);
        if (stream->closed[OPENER] || stream->closed[ACCEPTOR] || sim_below(sim, 4) == 0)
            continue;
        at_us += sim_below(sim, step_us);
        queue_put(&sim->queue, (struct event){.at_us = at_us,
                                              .kind = EVENT_CLOG,
                                              .index = to,
                                              .number = stream->number,
                                              .detail = at_us + sim_below(sim, 1000000)});
    }
    return true;
}

/* A worker, a server or the coordinator receives nothing, or nothing from it arrives, or both. */
static bool cut_off(struct sim *sim)
{
    struct faults *faults = &sim->faults;
    struct machine place = {(enum machine_kind)sim_below(sim, 3), 0};
    if (faults->partition_count == FAULTS_PARTITIONS_MAX)
        return false;
    if (place.kind == MACHINE_COORDINATOR)
        place.index = sim->office;
    else
        place.index = (uint32_t)sim_below(sim, place.kind == MACHINE_WORKER ? SIM_WORKERS_MAX
                                                                            : SIM_SERVERS_MAX);
    uint64_t which = sim_below(sim, 3);
    faults->partitions[faults->partition_count++] =
        (struct partition){.place = place,
                           .from = which != 0,
                           .to = which != 1,
                           .until_us = sim->now_us + sim_below(sim, 3000000)};
    return true;
}

enum { PAIR_US = 20000000 /* two deadlines of who asks, and more */ };

/* Two workers do not reach each other, and everybody else both of them. */
static bool cut_pair(struct sim *sim)
{
    struct faults *faults = &sim->faults;
    const struct sim_worker *first = pick_worker(sim, true), *second = pick_worker(sim, true);
    if (faults->partition_count == FAULTS_PARTITIONS_MAX || first == second)
        return false;
    sim_trace(sim, "w%u and w%u do not reach each other for a while", first->index, second->index);
    faults->partitions[faults->partition_count++] =
        (struct partition){.place = {MACHINE_WORKER, first->index},
                           .from = true,
                           .to = true,
                           .pair = true,
                           .other = {MACHINE_WORKER, second->index},
                           .until_us = sim->now_us + PAIR_US + sim_below(sim, 2 * PAIR_US)};
    return true;
}

static bool fill_disk(struct sim *sim)
{
    uint64_t until_us = sim->now_us + sim_below(sim, 8 * sim->scenario.write_us + 100000);
    uint64_t which = sim_below(sim, SIM_SERVERS_MAX + 1);
    sim_trace(sim, "a disk is full until %.3f s", (double)until_us / 1e6);
    if (which < SIM_SERVERS_MAX && sim->servers[which].there) {
        sim->servers[which].full_us = until_us;
        return true;
    }
    /* The coordinator's for so long that daemons meet it when they start, as well. */
    sim->faults.store_full_us = sim->now_us + 8 * (until_us - sim->now_us);
    sim->faults.store_refuses = (uint32_t)(until_us % 4);
    return true;
}

/* One of the next of a server's disk, or of the coordinator's: a file's, or a transaction's. It is
 * counted when it comes. */
static bool fill_write(struct sim *sim)
{
    bool coordinator = sim_below(sim, 2) == 0;
    uint64_t machine = coordinator ? SIM_SERVERS_MAX : sim_below(sim, sim->scenario.servers);
    uint64_t most = UINT64_C(1) << sim_below(sim, 6);
    sim->faults.full_writes[machine] = (struct full_writes){
        .well = (uint32_t)sim_below(sim, most), .full = 1 + (uint32_t)sim_below(sim, 3)};
    return false;
}

bool faults_full(const struct sim *sim, uint32_t machine)
{
    const struct full_writes *writes = &sim->faults.full_writes[machine];
    uint64_t until_us =
        machine < SIM_SERVERS_MAX ? sim->servers[machine].full_us : sim->faults.store_full_us;
    return until_us > sim->now_us || (writes->full > 0 && writes->well == 0);
}

bool faults_write(struct sim *sim, uint32_t machine)
{
    struct full_writes *writes = &sim->faults.full_writes[machine];
    bool full = faults_full(sim, machine);
    if (writes->well > 0) {
        writes->well--;
    } else if (writes->full > 0) {
        writes->full--;
        sim_trace(sim, "a write of machine %u finds no room", machine);
        sim_fault(sim, FAULT_FULL_WRITE);
    }
    return full;
}

/* One of the next of a server's disk, or of the coordinator's. */
static bool break_sync(struct sim *sim)
{
    bool coordinator = sim_below(sim, 4) == 0;
    uint64_t machine = coordinator ? SIM_SERVERS_MAX : sim_below(sim, sim->scenario.servers);
    sim->faults.sync_fails[machine] = 1 + (uint32_t)sim_below(sim, 4);
    return true;
}

/* A disk that does not answer: coordinators end, and cannot start. */
static bool lose_store(struct sim *sim)
{
    sim->faults.store_gone_us = sim->now_us + sim_below(sim, 1000000);
    sim_trace(sim, "the store is gone until %.3f s", (double)sim->faults.store_gone_us / 1e6);
    return true;
}

/* A server at random among those that are up, or not there at all; NULL: there is none. */
static struct sim_server *pick_server(struct sim *sim, bool up)
{
    uint32_t first = (uint32_t)sim_below(sim, SIM_SERVERS_MAX);
    for (uint32_t i = 0; i < SIM_SERVERS_MAX; i++) {
        struct sim_server *server = &sim->servers[(first + i) % SIM_SERVERS_MAX];
        if (up ? server->up : !server->there)
            return server;
    }
    return NULL;
}

/* Its `--dir`; what it wrote for the run is elsewhere. */
static bool lose_dir(struct sim *sim)
{
    struct sim_server *server = pick_server(sim, true);
    if (server == NULL)
        return false;
    pairs_event(sim, MEETING_LOSE_DIR);
    sim_server_crash(sim, server);
    server->dir_lost = true;
    return true;
}

/* A machine with an empty disk. */
static bool add_server(struct sim *sim)
{
    struct sim_server *server = pick_server(sim, false);
    if (server == NULL)
        return false;
    sim_server_start(sim, server);
    return true;
}

/* One that came while the run went on; NULL: none is up. */
static struct sim_server *pick_newcomer(struct sim *sim)
{
    for (uint32_t i = SIM_SERVERS_MAX; i-- > sim->scenario.servers;)
        if (sim->servers[i].up)
            return &sim->servers[i];
    return NULL;
}

/* One server, or all but one; by an operator or by the signal that its machine sends. */
static bool drain_server(struct sim *sim)
{
    struct sim_server *chosen =
        sim_below(sim, 3) == 0 ? pick_newcomer(sim) : pick_server(sim, true);
    bool others = sim_below(sim, 5) == 0;
    for (uint32_t i = 0; chosen != NULL && i < SIM_SERVERS_MAX; i++) {
        struct sim_server *server = &sim->servers[i];
        if (!server->up || server->process.stopped || (server != chosen) != others)
            continue;
        if (sim_below(sim, 2) == 0)
            sim_server_terminate(sim, server);
        else
            sim_server_ask_drain(sim, server);
    }
    return chosen != NULL;
}

/* Workers' messages arrive late: they belong to a generation that is over by then. */
static void delay_pushes(struct sim *sim)
{
    for (size_t i = 0; i < sim->network.stream_count; i++) {
        struct stream *stream = sim->network.streams[i];
        if (stream->kind == STREAM_EXCHANGE && !stream->closed[OPENER] && !stream->closed[ACCEPTOR])
            network_clog(stream, ACCEPTOR, sim->now_us + sim_below(sim, 1500000));
    }
}

static bool crash_server(struct sim *sim)
{
    struct sim_server *server = pick_server(sim, true);
    if (server == NULL)
        return false;
    if (sim->scenario.spec.checkpoint.durability == SPEC_DURABILITY_LOGGED &&
        sim_below(sim, 2) == 0)
        return set_trap(sim, TRAP_LOG);
    if (sim_below(sim, 2) == 0)
        return set_trap(sim, (enum trap)(TRAP_COMMIT + sim_below(sim, TRAP_COUNT - TRAP_COMMIT)));
    if (sim_below(sim, 3) != 0)
        delay_pushes(sim);
    sim_server_crash(sim, server);
    return true;
}

/* One whose process is away; NULL: there is none. */
static struct sim_server *pick_dead_server(struct sim *sim)
{
    uint32_t first = (uint32_t)sim_below(sim, SIM_SERVERS_MAX);
    for (uint32_t i = 0; i < SIM_SERVERS_MAX; i++) {
        struct sim_server *server = &sim->servers[(first + i) % SIM_SERVERS_MAX];
        if (server->there && !server->up)
            return server;
    }
    return NULL;
}

/* Its process dies or is only out of reach; it comes back at some time, to everybody's surprise. */
static bool give_up_server(struct sim *sim)
{
    struct sim_server *server = sim_below(sim, 2) == 0 ? pick_dead_server(sim) : NULL;
    if (server == NULL)
        server = pick_server(sim, true);
    if (server == NULL || sim->faults.partition_count == FAULTS_PARTITIONS_MAX)
        return false;
    if (server->up && sim_below(sim, 3) != 0)
        sim_server_crash(sim, server);
    else if (server->up)
        sim->faults.partitions[sim->faults.partition_count++] =
            (struct partition){.place = {MACHINE_SERVER, server->index},
                               .from = true,
                               .to = true,
                               .until_us = sim->now_us + sim_below(sim, 3000000)};
    server->give_ups = 1 + (uint32_t)sim_below(sim, SIM_GIVE_UPS_MAX);
    sim_server_ask_give_up(sim, server);
    return true;
}

/* Now, or in the middle of what its next call asks for. */
/* Its directory comes from a backup: from before some of the terms, which servers have obeyed. */
static bool restore_store(struct sim *sim)
{
    struct sim_coordinator *coordinator = sim_coordinator_in_office(sim);
    bool alone = sim->coordinators[0].life == NULL || sim->coordinators[1].life == NULL;
    if (coordinator->core == NULL || !alone)
        return false;
    pairs_event(sim, MEETING_OLD_STORE);
    sim_coordinator_crash(sim, coordinator);
    sim->store.term = sim_below(sim, sim->store.term);
    sim->store.restored = true;
    sim_trace(sim, "the store is of term %llu", (unsigned long long)sim->store.term);
    return true;
}

static bool crash_coordinator(struct sim *sim)
{
    struct sim_coordinator *coordinator = sim_coordinator_in_office(sim);
    if (coordinator->core == NULL)
        return false;
    bool begun = sim->ledger.recorded.generation > 0; /* else there is nothing to go on with */
    if (sim->scenario.headless && (!begun || sim_below(sim, 2) == 0))
        return set_trap(sim, TRAP_DECIDE);
    if (sim_below(sim, 3) != 0)
        delay_pushes(sim);
    if (sim_below(sim, 2) == 0)
        sim_coordinator_crash(sim, coordinator);
    else
        coordinator->effects_left = 1 + sim_below(sim, 6);
    return true;
}

/* The first one does not know of it: it goes on, is stopped for a while, or is cut off. Links may
 * lead to it still. */
static bool add_coordinator(struct sim *sim)
{
    struct machine first = {MACHINE_COORDINATOR, sim->office};
    if (!sim_coordinator_succeed(sim))
        return false;
    delay_pushes(sim);
    if (sim_below(sim, 2) == 0)
        process_stop(sim, first, sim->now_us + 1 + sim_below(sim, 4000000));
    for (size_t i = 0; i < sim->network.stream_count; i++) {
        struct stream *stream = sim->network.streams[i];
        if (stream->kind == STREAM_LINK && !stream->closed[OPENER] && !stream->closed[ACCEPTOR] &&
            sim_below(sim, 2) == 0)
            network_break(sim, stream);
    }
    return true;
}

/* The next PREPARE or COMMIT that comes to it is lost, although its link is up. */
static bool lose_command(struct sim *sim)
{
    struct sim_server *server = pick_server(sim, true);
    if (server == NULL)
        return false;
    server->loses_command = true;
    return true;
}

/* A server goes down, so that all read the newest checkpoint. */
static bool damage_cut(struct sim *sim)
{
    struct sim_server *server = pick_server(sim, true);
    if (server == NULL || !damage_newest(sim))
        return false;
    pairs_event(sim, MEETING_DAMAGE);
    sim_server_crash(sim, server);
    return true;
}

static bool repeat_name(struct sim *sim)
{
    const struct sim_server *server = pick_server(sim, true);
    if (server == NULL || !twin_start(sim, server->index))
        return false;
    pairs_event(sim, MEETING_NAME);
    return true;
}

static bool inject(struct sim *sim, enum fault_kind kind)
{
    switch (kind) {
    case FAULT_KILL_WORKER:
        return kill_worker(sim);
    case FAULT_ADD_WORKER:
        return add_worker(sim);
    case FAULT_STOP:
        return stop_somebody(sim);
    case FAULT_JUMP_CLOCK:
        return jump_clock(sim);
    case FAULT_HERD:
        return herd(sim);
    case FAULT_EXODUS:
        return exodus(sim);
    case FAULT_CLOG_ALL:
        return clog_all(sim);
    case FAULT_SUCCESSOR:
        return add_coordinator(sim);
    case FAULT_SLOW_WORKER:
        return slow_worker(sim);
    case FAULT_LEAVE_WORKER:
        return leave_worker(sim);
    case FAULT_STORM:
        return storm(sim);
    case FAULT_CULL:
        return cull(sim);
    case FAULT_ORPHAN:
        return set_trap(sim, TRAP_ORPHAN);
    case FAULT_BREAK_EXCHANGE:
        return break_stream(sim, STREAM_EXCHANGE);
    case FAULT_BREAK_MEMBER:
        return break_stream(sim, STREAM_MEMBER);
    case FAULT_BREAK_LINK:
        if (sim_below(sim, 2) == 0)
            return set_trap(sim, TRAP_REDUCED);
        return break_stream(sim, STREAM_LINK);
    case FAULT_CLOG:
        return clog_stream(sim);
    case FAULT_PARTITION:
        return cut_off(sim);
    case FAULT_BREAK_PEER:
        return break_stream(sim, STREAM_PEER);
    case FAULT_PARTITION_PAIR:
        return cut_pair(sim);
    case FAULT_DISK_FULL:
        return fill_disk(sim);
    case FAULT_FULL_WRITE:
        return fill_write(sim);
    case FAULT_SYNC_FAILS:
        return break_sync(sim);
    case FAULT_DAMAGE_CUT:
        return damage_cut(sim);
    case FAULT_REPEAT_NAME:
        return repeat_name(sim);
    case FAULT_LOSE_COMMAND:
        return lose_command(sim);
    case FAULT_STORE_GONE:
        return lose_store(sim);
    case FAULT_LOSE_DIR:
        return lose_dir(sim);
    case FAULT_CRASH_SERVER:
        return crash_server(sim);
    case FAULT_CRASH_COORDINATOR:
        return crash_coordinator(sim);
    case FAULT_OLD_STORE:
        return restore_store(sim);
    case FAULT_ADD_SERVER:
        return add_server(sim);
    case FAULT_GIVE_UP_SERVER:
        return give_up_server(sim);
    case FAULT_DRAIN_SERVER:
        return drain_server(sim);
    case FAULT_ASK_CUT:
        return sim_coordinator_ask_cut(sim);
    case FAULT_STOP_RUN:
        return sim_coordinator_stop_run(sim);
    default:
        check_unreachable("a fault of the plan");
    }
}

void faults_inject(struct sim *sim, enum fault_kind kind)
{
    if (!sim->calm && inject(sim, kind)) /* one that follows a state may come too late */
        sim_fault(sim, kind);
}

/* The hoarder, who is too small for a stage, and who lied or slipped and may be expelled. */
static bool brings_nothing(const struct sim *sim, uint32_t worker)
{
    return sim->hoarder == worker + 1 || sim->scenario.small_worker == worker + 1 ||
           (sim->lie.told && sim->lie.worker == worker) ||
           (sim->slip.made && sim->slip.worker == worker);
}

static bool stays(const struct sim *sim, uint32_t worker)
{
    return sim->workers[worker].life != NULL && !sim->workers[worker].leaving &&
           !brings_nothing(sim, worker);
}

/* One that is not there or, where all are, one in the place of one that is about to leave. */
static void start_honest(struct sim *sim)
{
    uint32_t first = (uint32_t)sim_below(sim, SIM_WORKERS_MAX), chosen = SIM_WORKERS_MAX;
    for (uint32_t i = 0; i < SIM_WORKERS_MAX; i++) {
        uint32_t worker = (first + i) % SIM_WORKERS_MAX;
        if (!brings_nothing(sim, worker) && !stays(sim, worker) &&
            (chosen == SIM_WORKERS_MAX || sim->workers[chosen].life != NULL))
            chosen = worker;
    }
    if (sim->workers[chosen].life != NULL)
        sim_worker_kill(sim, &sim->workers[chosen], false);
    sim_worker_start(sim, &sim->workers[chosen]);
}

void faults_end(struct sim *sim)
{
    const struct spec_mesh *mesh = &sim->scenario.spec.mesh;
    uint32_t wanted = spec_mesh_is_shared(mesh) ? mesh->stages * spec_mesh_ranks(mesh) : 1;
    if (pairs_awaited(sim) && sim->now_us < sim->scenario.calm_us + MEETINGS_US) {
        queue_put(&sim->queue,
                  (struct event){.at_us = sim->now_us + MEETINGS_US / 32, .kind = EVENT_CALM});
        return;
    }
    sim_trace(sim, "no more faults");
    sim->calm = true;
    sim->calm_us = sim->now_us;
    sim->faults.trap = TRAP_NONE;
    sim->twin.here = false;
    memset(sim->faults.full_writes, 0, sizeof sim->faults.full_writes);
    for (uint32_t i = 0; i < SIM_SERVERS_MAX; i++)
        sim->servers[i].loses_command = false;
    for (uint32_t i = 0; i < SIM_WORKERS_MAX; i++) {
        sim->workers[i].slowness = 1;
        wanted -= wanted > 0 && stays(sim, i);
    }
    for (; wanted > 0; wanted--)
        start_honest(sim);
    sim_servers_suffice(sim);
}

static void break_link(struct sim *sim, const struct sim_server *server)
{
    pairs_event(sim, MEETING_LINK);
    struct stream *link = sim_server_link(sim, server);
    if (link != NULL)
        network_break(sim, link);
}

/* Somebody else than that server: what was waiting there is now of an old generation. The decision
 * that it waits for may be lost with the link. */
static void crash_another(struct sim *sim, uint32_t index)
{
    if (sim_below(sim, 2) == 0)
        break_link(sim, &sim->servers[index]);
    uint32_t other = (index + 1) % SIM_SERVERS_MAX;
    while (other != index && !sim->servers[other].up)
        other = (other + 1) % SIM_SERVERS_MAX;
    if (other != index)
        sim_server_crash(sim, &sim->servers[other]);
    else if (sim_coordinator_in_office(sim)->core != NULL)
        sim_coordinator_crash(sim, sim_coordinator_in_office(sim));
}

void faults_spring(struct sim *sim, enum trap trap, uint32_t index)
{
    if (sim->faults.trap != trap)
        return;
    sim->faults.trap = TRAP_NONE;
    if (trap == TRAP_PUSH || trap == TRAP_VALUE || trap == TRAP_PART || trap == TRAP_DONE)
        sim_worker_kill(sim, &sim->workers[index], sim_below(sim, 2) == 0);
    else if (trap == TRAP_ORPHAN)
        orphan_pushes(sim, &sim->workers[index]);
    else if (trap == TRAP_REDUCED)
        break_link(sim, &sim->servers[index]);
    else if (trap == TRAP_PARK)
        crash_another(sim, index);
    else if (trap == TRAP_DECIDE)
        sim->coordinators[index].effects_left = 1; /* before the next */
    else if (trap == TRAP_TRANSFER && sim_below(sim, 4) == 0 &&
             sim_coordinator_in_office(sim)->core != NULL)
        sim_coordinator_crash(sim, sim_coordinator_in_office(sim));
    else if (sim->servers[index].up)
        sim_server_crash(sim, &sim->servers[index]);
}

static bool same_place(struct machine a, struct machine b)
{
    return a.kind == b.kind && a.index == b.index;
}

uint64_t faults_held_us(const struct sim *sim, struct machine from, struct machine to)
{
    uint64_t held_us = 0;
    for (uint32_t i = 0; i < sim->faults.partition_count; i++) {
        const struct partition *partition = &sim->faults.partitions[i];
        bool leaves = partition->from && same_place(from, partition->place) &&
                      (!partition->pair || same_place(to, partition->other));
        bool comes = partition->to && same_place(to, partition->place) &&
                     (!partition->pair || same_place(from, partition->other));
        if ((leaves || comes) && partition->until_us > sim->now_us && partition->until_us > held_us)
            held_us = partition->until_us;
    }
    return held_us;
}
