/* A worker's process from start to end. */
#include "worker/worker.h"

#include "tests/sim/sim.h"

#include <signal.h>
#include <string.h>

static struct machine place_of(const struct sim_worker *worker)
{
    return (struct machine){MACHINE_WORKER, worker->index};
}

/* It says which stage has no room in it. */
static bool is_too_small(const struct sim *sim, uint32_t index, enum err err, const char *reason)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "place %u: the run needs", sim->scenario.small_stage);
    return err == ERR_UNSUPPORTED && index + 1 == sim->scenario.small_worker &&
           strncmp(reason, wanted, strlen(wanted)) == 0;
}

static void run(struct life *life)
{
    struct sim *sim = life->sim;
    char name[16], address[24];
    const struct logger logger = {.level = LOG_LEVEL_DEBUG};
    bool shared = spec_mesh_is_shared(&sim->scenario.spec.mesh);
    const struct worker_config config = {
        .coordinator = SIM_COORDINATOR_ADDRESS,
        .name = name,
        .address = shared ? address : NULL,
        .advertise = shared ? name : NULL,
        .leave_ms = (uint32_t)(sim_below(sim, 16 * sim->scenario.compute_us) / 1000),
        .notice_cloud = -1,
        .logger = &logger,
    };
    struct reason reason = {.text = ""};
    process_print(life->place, name, sizeof name);
    snprintf(address, sizeof address, "%s:1", name);
    enum err err = worker_run(&config, &reason);
    if (life->dead)
        return;
    sim_trace(sim, "%s has ended: %s %s", name, err_name(err), reason.text);
    bool expelled =
        (err == ERR_EXPELLED || err == ERR_WRONG_BITS) && sim->convicted[life->place.index];
    bool small = is_too_small(sim, life->place.index, err, reason.text);
    sim->options.progress->too_small += small;
    if (err != ERR_OK && !expelled && !small && !story_is_wrong(sim, life->place.index))
        sim_violated(sim, 8, "%s stops with %s: %s", name, err_name(err), reason.text);
}

void sim_worker_init(struct sim *sim, uint32_t index)
{
    struct sim_worker *worker = &sim->workers[index];
    *worker = (struct sim_worker){.index = index};
    process_init(sim, &worker->process);
}

static void forget(struct sim_worker *worker)
{
    process_kill(&worker->process);
    worker->life = NULL;
    worker->agent = NULL;
}

void sim_worker_release(struct sim *sim, struct sim_worker *worker)
{
    if (worker->life != NULL)
        life_kill(worker->life);
    life_bury(sim);
    forget(worker);
    process_release(&worker->process);
}

void sim_worker_start(struct sim *sim, struct sim_worker *worker)
{
    if (worker->life != NULL)
        return;
    sim_trace(sim, "w%u starts", worker->index);
    worker->leaving = worker->map_is_doubted = false;
    worker->slowness = 1;
    memset(worker->leases, 0, sizeof worker->leases);
    memset(worker->early, 0, sizeof worker->early);
    worker->generation = 0;
    worker->older.attempt = 0;
    worker->life = life_new(sim, place_of(worker), run);
}

void sim_worker_kill(struct sim *sim, struct sim_worker *worker, bool silent)
{
    sim_trace(sim, "w%u is killed%s", worker->index, silent ? ", its machine is gone" : "");
    life_kill(worker->life);
    forget(worker);
    network_close_all(sim, place_of(worker), silent);
}

void sim_worker_ended(struct sim *sim, struct sim_worker *worker)
{
    (void)sim;
    life_free(worker->life);
    forget(worker);
}

void sim_worker_jump(struct sim *sim, struct sim_worker *worker, uint64_t us)
{
    (void)sim;
    worker->process.clock_us += us;
    if (worker->life != NULL)
        life_wake(worker->life);
}

void sim_worker_leave(struct sim *sim, struct sim_worker *worker)
{
    sim_trace(sim, "w%u is told to leave", worker->index);
    worker->leaving = true;
    if (worker->life->signalled == NULL) { /* it has not come to that yet */
        sim_worker_kill(sim, worker, false);
        return;
    }
    bool notice = worker->life->notice != NULL && sim_below(sim, 2) == 0;
    if (notice)
        sim_notice_report(worker->life, NOTICE_LEAVE);
    if (!notice || sim_below(sim, 4) == 0)
        life_signal(worker->life, SIGTERM);
}
