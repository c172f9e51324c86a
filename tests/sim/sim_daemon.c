#include "tests/sim/sim_daemon.h"

#include "common/log.h"
#include "server/server.h"
#include "tests/sim/sim.h"

static void run(struct life *life)
{
    const struct coordinator_settings *office = &life->sim->scenario.office;
    bool coordinator = life->place.kind == MACHINE_COORDINATOR;
    struct server_settings settings = {.address = "localhost:0",
                                       .dir = "coordinator",
                                       .insecure = true,
                                       .no_chunks = coordinator,
                                       .shards = coordinator ? 1 : life->sim->scenario.threads,
                                       .heartbeat_ms = office->heartbeat_ms,
                                       .lease_ms = office->lease_ms,
                                       .stop_ms = office->stop_ms,
                                       .speculation_percent = office->speculation_percent,
                                       .speculation_ms_min = office->speculation_ms_min,
                                       .log_level = LOG_LEVEL_INFO};
    struct reason reason = {.text = ""};
    process_print(life->place, settings.name, sizeof settings.name);
    snprintf(settings.advertise, sizeof settings.advertise, "%s:1", settings.name);
    if (!coordinator) {
        process_print(life->place, settings.dir, sizeof settings.dir);
        snprintf(settings.coordinator, sizeof settings.coordinator, "%s", SIM_COORDINATOR_ADDRESS);
    }
    enum err err = server_run(&settings, &reason);
    if (!life->dead)
        sim_trace(life->sim, "%s has ended: %s %s", settings.name, err_name(err), reason.text);
}

struct life *sim_daemon_start(struct sim *sim, struct machine place)
{
    return life_new(sim, place, run);
}

void sim_daemon_kill(struct sim *sim, struct life *life)
{
    rpc_killed(life);
    life_kill(life);
    network_close_all(sim, life->place, false);
}

void sim_daemon_ended(struct sim *sim, struct machine place)
{
    if (place.kind == MACHINE_WORKER)
        sim_worker_ended(sim, &sim->workers[place.index]);
    else if (place.kind == MACHINE_SERVER)
        sim_server_ended(sim, &sim->servers[place.index]);
    else
        sim_coordinator_ended(sim, &sim->coordinators[place.index]);
}

void sim_daemon_failed(struct sim *sim, struct machine place)
{
    if (place.kind == MACHINE_WORKER)
        sim_worker_kill(sim, &sim->workers[place.index], false);
    else if (place.kind == MACHINE_SERVER)
        sim_server_crash(sim, &sim->servers[place.index]);
    else
        sim_coordinator_crash(sim, &sim->coordinators[place.index]);
}
