#include "tests/sim/sim.h"

#include "common/file.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

enum {
    EVENTS_MAX = 4000000,
    /* From the last fault to the end. Backoffs reach 15 s, a dead machine is noticed after 20 s, a
     * forgotten ticket lapses after ten leases or sixteen times what a slow worker took; each of
     * them a few times. The most in 200,000 seeds was 431 s. */
    CALM_MS_MAX = 1000000,
    GOODBYE_MS_MAX = 120000, /* … and until everybody knows it */
    HOARDERS = 8,            /* in one seed of so many */
};

/* ---- what everybody uses ---- */

uint64_t sim_below(struct sim *sim, uint64_t limit)
{
    if (sim->options.story != NULL)
        return limit / 2;
    return rand_below(&sim->random, limit == 0 ? 1 : limit);
}

bool sim_lied(const struct sim *sim, uint64_t generation, uint64_t step, struct node node)
{
    const struct lie *lie = &sim->lie;
    return lie->told && lie->generation == generation && lie->step == step &&
           node_contains(node, lie->node); /* half of it, in chimera */
}

uint64_t sim_restart_us(struct sim *sim)
{
    uint64_t at_most_us = sim_below(sim, 2) == 0 ? 2 * sim->scenario.delay_us : 500000;
    return 100 + sim_below(sim, at_most_us);
}

struct message *sim_scratch_message(struct sim *sim, enum err err)
{
    check(err == ERR_OK);
    struct message *message = message_new(sim->scratch.data, sim->scratch.bytes);
    sim->scratch.bytes = 0;
    return message;
}

void sim_fault(struct sim *sim, enum fault_kind kind)
{
    sim->options.progress->faults[kind]++;
}

void sim_trace(struct sim *sim, const char *format, ...)
{
    va_list arguments;
    if (!sim->options.trace)
        return;
    printf("%6llu %12.6f  ", (unsigned long long)sim->events, (double)sim->now_us / 1e6);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

void sim_violated(struct sim *sim, unsigned invariant, const char *format, ...)
{
    va_list arguments;
    printf("seed %llu event %llu at %.6f s: invariant %u: ", (unsigned long long)sim->scenario.seed,
           (unsigned long long)sim->events, (double)sim->now_us / 1e6, invariant);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
    sim->options.progress->found++;
    _exit(1);
}

/* ---- one event ---- */

void sim_dispatch(struct sim *sim, struct event *event)
{
    if (process_keeps(sim, event))
        return;
    switch (event->kind) {
    case EVENT_STREAM_DATA:
        network_deliver(sim, event);
        break;
    case EVENT_STREAM_END:
        network_ended(sim, event);
        break;
    case EVENT_WORKER_START:
        sim_worker_start(sim, &sim->workers[event->index]);
        break;
    case EVENT_SERVER_START:
        sim_server_start(sim, &sim->servers[event->index]);
        break;
    case EVENT_SERVERS:
        sim_servers_suffice(sim);
        break;
    case EVENT_SERVER_DRAIN:
        if (sim->servers[event->index].drains)
            sim_server_ask_drain(sim, &sim->servers[event->index]);
        break;
    case EVENT_SERVER_FORSAKE:
        sim_server_ask_give_up(sim, &sim->servers[event->index]);
        break;
    case EVENT_THREAD:
        life_event(sim, event);
        break;
    case EVENT_STREAM_SENT:
    case EVENT_STREAM_CANCELLED:
    case EVENT_RPC_REQUEST:
    case EVENT_RPC_ANSWER:
        rpc_event(sim, event);
        break;
    case EVENT_COORDINATOR_START:
        sim_coordinator_start(sim, &sim->coordinators[event->index]);
        break;
    case EVENT_COORDINATOR_OVER:
        sim_coordinator_over(sim, event);
        break;
    case EVENT_PROCESS_RESUME:
        process_resume(sim, event);
        break;
    case EVENT_PROCESS_EXIT:
        life_exit(sim, event);
        break;
    case EVENT_CLOG:
        network_clog(network_stream(sim, event->number), (enum end)event->index, event->detail);
        break;
    case EVENT_FAULT:
        faults_inject(sim, (enum fault_kind)event->index);
        break;
    case EVENT_STORY:
        story_event(sim, event);
        break;
    case EVENT_CALM:
        faults_end(sim);
        break;
    default:
        check_unreachable("an event");
    }
}

/* ---- a seed ---- */

/* Its dice are its own: the plan of a seed does not depend on it. */
static uint32_t choose_hoarder(const struct sim *sim, uint64_t seed)
{
    struct rand_state random = {seed ^ UINT64_C(0x686f617264)};
    uint32_t workers = sim->scenario.workers;
    bool shared =
        spec_mesh_is_shared(&sim->scenario.spec.mesh); /* it would be a part of each lease */
    if (sim->options.story != NULL || sim->run.async || workers < 2 || shared ||
        rand_below(&random, HOARDERS) != 0)
        return 0;
    return 1 + (uint32_t)rand_below(&random, workers);
}

static void init(struct sim *sim, uint64_t seed, const struct sim_options *options)
{
    *sim = (struct sim){.options = *options, .random = {~seed}, .keys = {seed}};
    sim->stray.random = (struct rand_state){seed ^ UINT64_C(0x7374726179)};
    world = (struct world){.sim = sim};
    if (options->story != NULL)
        story_scenario(options->story, &sim->scenario);
    else
        scenario_init(&sim->scenario, seed);
    compute_init(&sim->compute, &sim->scenario, options->kernels);
    if (scenario_is_foretold(&sim->scenario))
        expected_run(&sim->expected, &sim->compute);
    ledger_init(sim);
    if (options->trace)
        scenario_print(&sim->scenario);
    sim->parameters = calloc(sim->compute.model.parameters_count, sizeof *sim->parameters);
    check(sim->parameters != NULL);
    sim->run = scenario_run(&sim->scenario, &sim->compute.model, sim->parameters);
    sim->hoarder = choose_hoarder(sim, seed);
    sim->store.state = RUN_STARTING;
    check(file_make_dirs(SIM_CHECKPOINTS, 0755, NULL) == ERR_OK);
    history_init(sim);
    for (uint32_t i = 0; i < SIM_COORDINATORS; i++)
        sim_coordinator_init(sim, i);
    for (uint32_t i = 0; i < SIM_SERVERS_MAX; i++)
        sim_server_init(sim, i);
    for (uint32_t i = 0; i < SIM_WORKERS_MAX; i++)
        sim_worker_init(sim, i);
}

static void release(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_WORKERS_MAX; i++)
        sim_worker_release(sim, &sim->workers[i]);
    for (uint32_t i = 0; i < SIM_SERVERS_MAX; i++)
        sim_server_release(sim, &sim->servers[i]);
    for (uint32_t i = 0; i < SIM_COORDINATORS; i++)
        sim_coordinator_release(sim, &sim->coordinators[i]);
    free(sim->parameters);
    queue_release(&sim->queue);
    network_release(&sim->network);
    rpc_calls_release(&sim->calls);
    handed_release(&sim->handed);
    disk_release(sim);
    free(sim->watch.taken);
    ledger_drop(&sim->ledger);
    expected_release(&sim->expected);
    order_release(&sim->order);
    history_release(sim);
    compute_release(&sim->compute);
    buf_release(&sim->scratch);
}

/* Everybody comes up at about the same time, in any order. */
static void begin(struct sim *sim)
{
    const struct scenario *scenario = &sim->scenario;
    uint64_t within_us = 4 * scenario->delay_us + 1000;
    queue_put(&sim->queue,
              (struct event){.at_us = sim_below(sim, within_us), .kind = EVENT_COORDINATOR_START});
    for (uint32_t i = 0; i < scenario->servers; i++)
        queue_put(&sim->queue, (struct event){.at_us = sim_below(sim, within_us),
                                              .kind = EVENT_SERVER_START,
                                              .index = i});
    for (uint32_t i = 0; i < scenario->workers; i++)
        queue_put(&sim->queue, (struct event){.at_us = sim_below(sim, within_us),
                                              .kind = EVENT_WORKER_START,
                                              .index = i});
    faults_plan(sim);
}

static void step(struct sim *sim)
{
    struct event event;
    if (!queue_take(&sim->queue, &event))
        sim_violated(sim, 8, "nothing will ever happen again");
    check(event.at_us >= sim->now_us);
    sim->now_us = event.at_us;
    sim->options.progress->event = ++sim->events;
    sim_dispatch(sim, &event);
    message_unref(event.message);
    story_act(sim);
    life_bury(sim);
    pairs_look(sim);
    if (sim->events > EVENTS_MAX)
        sim_violated(sim, 8, "the run does not end");
}

/* 8: workers that hear the coordinator know that it is over, and servers that may leave do. */
static bool somebody_waits(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_SERVERS_MAX; i++)
        if (sim->servers[i].up && sim_coordinator_let_go(sim, i))
            return true;
    for (uint32_t i = 0; i < SIM_WORKERS_MAX; i++)
        if (sim->workers[i].life != NULL &&
            rpc_opened(sim->workers[i].life, STREAM_MEMBER, 0) != NULL)
            return true;
    return false;
}

static void run(struct sim *sim)
{
    begin(sim);
    while (!sim->over) {
        step(sim);
        if (sim->calm && sim->now_us - sim->calm_us > (uint64_t)CALM_MS_MAX * 1000)
            sim_violated(sim, 8, "the run has not ended %u s after the last fault",
                         (unsigned)CALM_MS_MAX / 1000);
    }
    uint64_t over_us = sim->now_us;
    struct progress *progress = sim->options.progress;
    if (sim->calm && over_us - sim->calm_us > progress->calm_us_max)
        progress->calm_us_max = over_us - sim->calm_us;
    while (somebody_waits(sim)) {
        step(sim);
        if (sim->now_us > over_us + (uint64_t)GOODBYE_MS_MAX * 1000)
            sim_violated(
                sim, 8,
                "a worker does not learn that the run is over, or a server that it may leave");
    }
    rows_check(sim);
}

void sim_run(uint64_t seed, const struct sim_options *options)
{
    struct sim *sim = calloc(1, sizeof *sim);
    check(sim != NULL);
    options->progress->seed = seed;
    options->progress->event = 0;
    init(sim, seed, options);
    run(sim);
    sim_trace(sim, "over after %llu events", (unsigned long long)sim->events);
    options->progress->events += sim->events;
    options->progress->seeds++;
    options->progress->shared += spec_mesh_is_shared(&sim->scenario.spec.mesh) ? 1 : 0;
    release(sim);
    world = (struct world){0};
    free(sim);
}
