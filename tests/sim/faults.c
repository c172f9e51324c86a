#include "tests/sim/sim.h"

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
        if (worker->alive == alive)
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

/* For a moment, or longer than its lease. */
static bool stop_worker(struct sim *sim)
{
    struct sim_worker *worker = pick_worker(sim, true);
    uint64_t lease_us = (uint64_t)sim->scenario.office.lease_ms * 1000;
    if (worker == NULL || worker->stopped)
        return false;
    uint64_t for_us = sim_below(sim, 2) == 0 ? lease_us / 8 : 5 * lease_us / 2;
    sim_worker_stop(sim, worker, sim->now_us + 1 + sim_below(sim, for_us));
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
    if (worker == NULL || worker->stopped)
        return false;
    sim_worker_leave(sim, worker, sim_below(sim, 8 * sim->scenario.compute_us) / 1000);
    return true;
}

/* Half of them go at once, others come. */
static bool storm(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_WORKERS_MAX; i++) {
        struct sim_worker *worker = &sim->workers[i];
        if (sim_below(sim, 2) == 0)
            continue;
        if (worker->alive)
            sim_worker_kill(sim, worker, sim_below(sim, 2) == 0);
        queue_put(&sim->queue,
                  (struct event){.at_us = sim->now_us + sim_below(sim, 4 * sim->scenario.delay_us),
                                 .kind = EVENT_WORKER_START,
                                 .index = i});
    }
    return true;
}

/* All but one. */
static bool cull(struct sim *sim)
{
    const struct sim_worker *kept = pick_worker(sim, true);
    for (uint32_t i = 0; i < SIM_WORKERS_MAX; i++)
        if (sim->workers[i].alive && &sim->workers[i] != kept)
            sim_worker_kill(sim, &sim->workers[i], sim_below(sim, 2) == 0);
    return kept != NULL;
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
    sim_trace(sim, "stream %llu breaks (w%u, s%u)", (unsigned long long)stream->number,
              stream->worker, stream->server);
    network_break(sim, stream);
    return true;
}

static bool clog_stream(struct sim *sim)
{
    struct stream *stream = pick_stream(sim, (enum stream_kind)sim_below(sim, 3));
    if (stream == NULL)
        return false;
    network_clog(sim, stream, sim->now_us + sim_below(sim, 2000000));
    return true;
}

/* A worker, a server or the coordinator hears nothing, is not heard, or both. */
static bool cut_off(struct sim *sim)
{
    struct faults *faults = &sim->faults;
    struct place place = {(enum place_kind)sim_below(sim, 3), 0};
    if (faults->partition_count == FAULTS_PARTITIONS_MAX)
        return false;
    if (place.kind != PLACE_COORDINATOR)
        place.index = (uint32_t)sim_below(sim, place.kind == PLACE_WORKER ? SIM_WORKERS_MAX
                                                                          : sim->scenario.servers);
    uint64_t which = sim_below(sim, 3);
    faults->partitions[faults->partition_count++] =
        (struct partition){.place = place,
                           .from = which != 0,
                           .to = which != 1,
                           .until_us = sim->now_us + sim_below(sim, 3000000)};
    return true;
}

static bool fill_disk(struct sim *sim)
{
    uint64_t until_us = sim->now_us + sim_below(sim, 8 * sim->scenario.write_us + 100000);
    uint64_t which = sim_below(sim, sim->scenario.servers + 1);
    sim->faults.was_full = true;
    sim_trace(sim, "a disk is full until %.3f s", (double)until_us / 1e6);
    if (which == sim->scenario.servers)
        sim->faults.store_full_us = until_us;
    else
        sim->servers[which].disk.full_us = until_us;
    return true;
}

static bool crash_server(struct sim *sim)
{
    struct sim_server *server = &sim->servers[sim_below(sim, sim->scenario.servers)];
    if (!server->up)
        return false;
    if (sim_below(sim, 2) == 0)
        return set_trap(sim, (enum trap)(TRAP_COMMIT + sim_below(sim, TRAP_COUNT - TRAP_COMMIT)));
    sim_server_crash(sim, server);
    return true;
}

/* Now, or in the middle of what its next call asks for. */
static bool crash_coordinator(struct sim *sim)
{
    if (sim->coordinator.core == NULL)
        return false;
    if (sim_below(sim, 2) == 0)
        sim_coordinator_crash(sim);
    else
        sim->coordinator.effects_left = 1 + sim_below(sim, 6);
    return true;
}

static bool inject(struct sim *sim, enum fault_kind kind)
{
    switch (kind) {
    case FAULT_KILL_WORKER:
        return kill_worker(sim);
    case FAULT_ADD_WORKER:
        return add_worker(sim);
    case FAULT_STOP_WORKER:
        return stop_worker(sim);
    case FAULT_SLOW_WORKER:
        return slow_worker(sim);
    case FAULT_LEAVE_WORKER:
        return leave_worker(sim);
    case FAULT_STORM:
        return storm(sim);
    case FAULT_CULL:
        return cull(sim);
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
    case FAULT_DISK_FULL:
        return fill_disk(sim);
    case FAULT_CRASH_SERVER:
        return crash_server(sim);
    case FAULT_CRASH_COORDINATOR:
        return crash_coordinator(sim);
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
    if (inject(sim, kind))
        sim_fault(sim, kind);
}

void faults_end(struct sim *sim)
{
    bool somebody = false;
    sim_trace(sim, "no more faults");
    sim->calm = true;
    sim->faults.trap = TRAP_NONE;
    for (uint32_t i = 0; i < SIM_WORKERS_MAX; i++) {
        sim->workers[i].slowness = 1;
        somebody |= sim->workers[i].alive && !sim->workers[i].leaving;
    }
    if (!somebody)
        check(add_worker(sim));
}

static void break_link(struct sim *sim, const struct sim_server *server)
{
    if (server->link != 0)
        network_break(sim, network_stream(sim, server->link));
}

/* Somebody else than that server: what was waiting there is now of an old generation. The decision
 * that it waits for may be lost with the link. */
static void crash_another(struct sim *sim, uint32_t index)
{
    if (sim_below(sim, 2) == 0)
        break_link(sim, &sim->servers[index]);
    uint32_t other = (index + 1) % sim->scenario.servers;
    if (other != index && sim->servers[other].up)
        sim_server_crash(sim, &sim->servers[other]);
    else if (sim->coordinator.core != NULL)
        sim_coordinator_crash(sim);
}

void faults_spring(struct sim *sim, enum trap trap, uint32_t index)
{
    if (sim->faults.trap != trap)
        return;
    sim->faults.trap = TRAP_NONE;
    if (trap == TRAP_PUSH)
        sim_worker_kill(sim, &sim->workers[index], sim_below(sim, 2) == 0);
    else if (trap == TRAP_REDUCED)
        break_link(sim, &sim->servers[index]);
    else if (trap == TRAP_PARK)
        crash_another(sim, index);
    else
        sim_server_crash(sim, &sim->servers[index]);
}

static bool same_place(struct place a, struct place b)
{
    return a.kind == b.kind && a.index == b.index;
}

uint64_t faults_held_us(const struct sim *sim, struct place from, struct place to)
{
    uint64_t held_us = 0;
    for (uint32_t i = 0; i < sim->faults.partition_count; i++) {
        const struct partition *partition = &sim->faults.partitions[i];
        bool between = (partition->from && same_place(from, partition->place)) ||
                       (partition->to && same_place(to, partition->place));
        if (between && partition->until_us > sim->now_us && partition->until_us > held_us)
            held_us = partition->until_us;
    }
    return held_us;
}
