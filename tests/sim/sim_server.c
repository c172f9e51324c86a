/* A server's process from start to end. */
#include "tests/sim/sim.h"

#include <signal.h>

enum { DRAIN_POLL_US = 250000, GIVE_UP_POLL_US = 20000 };

/* ---- life ---- */

void sim_server_init(struct sim *sim, uint32_t index)
{
    struct sim_server *server = &sim->servers[index];
    *server = (struct sim_server){.index = index, .thread_count = sim->scenario.threads};
    server->there = index < sim->scenario.servers;
    process_init(sim, &server->process);
    for (uint32_t t = 0; t < server->thread_count; t++) {
        struct sim_thread *thread = &server->threads[t];
        thread->index = index;
        thread->number = t;
        thread->ledger.counted = calloc((size_t)(SIM_DELAY_MAX + 1) * sim->compute.piece_count,
                                        sizeof *thread->ledger.counted);
        check(thread->ledger.counted != NULL);
    }
}

static void forget(struct sim_server *server)
{
    process_kill(&server->process);
    server->up = server->ending = false;
    server->life = NULL;
    server->link = NULL;
    server->shards = NULL;
    server->holdings = NULL;
    server->newest = (struct server_command){0};
    server->journals = (struct journals){0};
    watch_forget(server);
}

void sim_server_release(struct sim *sim, struct sim_server *server)
{
    if (server->life != NULL)
        life_kill(server->life);
    life_bury(sim);
    forget(server);
    process_release(&server->process);
    message_unref(server->command);
    for (uint32_t t = 0; t < server->thread_count; t++)
        free(server->threads[t].ledger.counted);
}

void sim_server_start(struct sim *sim, struct sim_server *server)
{
    if (server->up)
        return;
    pairs_event(sim, MEETING_ADD);
    server->there = server->up = true;
    sim_trace(sim, "s%u starts", server->index);
    story_tell(sim, "s%u starts", server->index);
    server->life = sim_daemon_start(sim, (struct machine){MACHINE_SERVER, server->index});
}

static void start_later(struct sim *sim, const struct sim_server *server)
{
    queue_put(&sim->queue, (struct event){.at_us = sim->now_us + sim_restart_us(sim),
                                          .kind = EVENT_SERVER_START,
                                          .index = server->index});
}

void sim_server_crash(struct sim *sim, struct sim_server *server)
{
    bool power = sim_below(sim, 2) == 0;
    pairs_event(sim, MEETING_CRASH);
    sim_trace(sim, "s%u crashes%s", server->index, power ? ", its machine as well" : "");
    sim_daemon_kill(sim, server->life);
    forget(server);
    if (power)
        disk_power_cut(sim, server->index);
    start_later(sim, server);
}

/* ---- coming and going ---- */

/* A coordinator that starts again waits for as many as the newest cut has, which may be an older one
 * again, with servers that have left since. Its status says so, and an operator adds some. */
static uint32_t servers_wanted(const struct sim *sim)
{
    uint32_t of_cut = sim->ledger.record.server_count, begun_with = sim->scenario.servers;
    return sim->ledger.recorded.generation == 0 || of_cut > begun_with ? begun_with : of_cut;
}

void sim_servers_suffice(struct sim *sim)
{
    uint32_t count = 0, wanted = servers_wanted(sim);
    for (uint32_t i = 0; i < SIM_SERVERS_MAX; i++)
        count += sim->servers[i].there;
    for (uint32_t i = 0; i < SIM_SERVERS_MAX && count < wanted; i++)
        if (!sim->servers[i].there) {
            sim_server_start(sim, &sim->servers[i]);
            count++;
        }
}

void sim_servers_suffice_soon(struct sim *sim)
{
    if (sim->calm)
        queue_put(&sim->queue, (struct event){.at_us = sim->now_us + 1, .kind = EVENT_SERVERS});
}

/* Whose chunks are elsewhere may take its disk with it. */
void sim_server_ended(struct sim *sim, struct sim_server *server)
{
    bool needed = sim_coordinator_needs(sim, server->index);
    sim_trace(sim, "s%u is gone%s", server->index, needed ? ", and is needed" : "");
    story_tell(sim, "s%u ends", server->index);
    life_free(server->life);
    forget(server);
    sim->options.progress->left += !needed;
    if (needed || sim_below(sim, 4) == 0) {
        start_later(sim, server);
        return;
    }
    disk_clear(sim, server->index);
    server->dir_lost = true;
    server->there = server->drains = false;
    if (sim->calm)
        sim_servers_suffice(sim);
}

void sim_server_terminate(struct sim *sim, struct sim_server *server)
{
    if (server->ending)
        return;
    pairs_event(sim, MEETING_DRAIN);
    sim_trace(sim, "s%u is told to end", server->index);
    server->ending = true;
    life_signal(server->life, SIGTERM);
}

void sim_server_ask_drain(struct sim *sim, struct sim_server *server)
{
    if (sim->over || !server->there)
        return;
    if (!server->drains)
        pairs_event(sim, MEETING_DRAIN);
    server->drains = true;
    sim_coordinator_drain(sim, server->index);
    queue_put(&sim->queue, (struct event){.at_us = sim->now_us + DRAIN_POLL_US,
                                          .kind = EVENT_SERVER_DRAIN,
                                          .index = server->index});
}

void sim_server_ask_give_up(struct sim *sim, struct sim_server *server)
{
    if (sim->over || server->give_ups == 0)
        return;
    pairs_event(sim, MEETING_GIVE_UP);
    server->give_ups--;
    sim_coordinator_give_up(sim, server->index);
    queue_put(&sim->queue, (struct event){.at_us = sim->now_us + GIVE_UP_POLL_US,
                                          .kind = EVENT_SERVER_FORSAKE,
                                          .index = server->index});
}

struct stream *sim_server_link(const struct sim *sim, const struct sim_server *server)
{
    for (size_t i = sim->network.stream_count; i-- > 0;) {
        struct stream *stream = sim->network.streams[i];
        if (stream->kind == STREAM_LINK && stream->server == server->index)
            return stream->closed[OPENER] ? NULL : stream;
    }
    return NULL;
}
