/* A server's process from start to end, its reports and commands. */
#include "tests/sim/sim.h"

#include "common/arena.h"
#include "common/scoped.h"

#include <string.h>

enum { DRAIN_POLL_US = 250000, GIVE_UP_POLL_US = 20000 };

/* ---- reports ---- */

static void send_report(struct sim *sim, const struct sim_server *server,
                        const struct server_report *report)
{
    if (server->link == 0)
        return; /* reported again when the link is back */
    network_send(sim, network_stream(sim, server->link), ACCEPTOR,
                 sim_scratch_message(sim, wire_encode_server_report(report, &sim->scratch)));
}

/* A coordinator whose term is over, or a command that was under way for long, may name a cut that a
 * newer one took the place of, or (async) a beginning whose journals are gone with it. */
static bool is_outdated(struct sim *sim, const struct sim_server *server)
{
    const struct coordinator_past *past = &sim->store.past;
    const struct server_command *command = &server->newest;
    uint64_t generation = command->prepare.generation;
    if (command->term == sim->store.term && generation == past->generation)
        return false;
    return (sim->run.async && generation < past->cut.name.generation) ||
           (command->prepare.from_cut && watch_is_pruned(sim, command->prepare.cut));
}

static void check_ready(struct sim *sim, const struct sim_server *server,
                        const struct server_report *report)
{
    if (report->ready.code != ERR_OK && !is_outdated(sim, server))
        sim_violated(sim, sim->run.async ? 16 : 10, "s%u cannot prepare generation %llu: %s",
                     server->index, (unsigned long long)report->ready.cut.generation,
                     report->ready.text);
}

void sim_server_report(void *owner, const struct server_report *report)
{
    struct sim_server *server = owner;
    struct sim *sim = world.sim;
    if (world.life != NULL && world.life->dead)
        return;
    if (report->kind == SERVER_READY)
        check_ready(sim, server, report);
    send_report(sim, server, report);
}

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

static void free_shards(struct life *life)
{
    shards_free(life->owner);
}

static void failed(const struct logger *logger, const struct reason *reason)
{
    (void)logger;
    if (!life_acts())
        return;
    struct sim_server *server = &world.sim->servers[world.life->place.index];
    sim_trace(world.sim, "s%u ends: %s", server->index, reason->text);
    if (server->up)
        sim_server_crash(world.sim, server);
}

static void start_shards(struct sim *sim, struct sim_server *server)
{
    static const struct logger silent = {LOG_LEVEL_ERROR, -1};
    struct reason reason;
    struct life *life =
        life_new(sim, (struct place){PLACE_SERVER, server->index}, free_shards, NULL);
    const struct shards_config config = {.threads = server->thread_count,
                                         .boot = server->boot,
                                         .loop = (struct rpc_loop *)life, /* any */
                                         .logger = &silent,
                                         .report = sim_server_report,
                                         .owner = server,
                                         .failed = failed};
    server->life = life;
    life_enter(life);
    check(shards_new(&config, &server->shards, &reason) == ERR_OK);
    life->owner = server->shards;
    life->methods[life->method_count++] = shards_exchange_method(server->shards);
    life->methods[life->method_count++] = shards_transfer_method(server->shards);
    life_leave();
}

static void close_streams(struct sim *sim, struct sim_server *server)
{
    for (size_t i = 0; i < sim->network.stream_count; i++) {
        struct stream *stream = sim->network.streams[i];
        if (stream->server != server->index)
            continue;
        if (stream->kind == STREAM_EXCHANGE)
            network_close(sim, stream, ACCEPTOR, false);
        else if (stream->kind == STREAM_LINK)
            network_close(sim, stream, OPENER, false);
    }
    server->link = 0;
}

static void end_process(struct sim *sim, struct sim_server *server)
{
    close_streams(sim, server);
    process_kill(&server->process);
    server->up = server->ending = false;
    server->holdings = NULL;
    server->shards = NULL;
    server->newest = (struct server_command){0};
    watch_forget(server);
}

/* In good order. */
static void end_life(struct sim *sim, struct sim_server *server)
{
    server->up = false;
    server->link = 0;
    life_end(server->life);
    server->life = NULL;
    end_process(sim, server);
}

void sim_server_release(struct sim *sim, struct sim_server *server)
{
    if (server->life != NULL)
        life_kill(server->life);
    server->life = NULL;
    life_bury(sim);
    watch_forget(server);
    process_release(&server->process);
    for (uint32_t t = 0; t < server->thread_count; t++)
        free(server->threads[t].ledger.counted);
}

static void connect_later(struct sim *sim, const struct sim_server *server)
{
    queue_put(&sim->queue, (struct event){.at_us = sim->now_us + sim_restart_us(sim),
                                          .kind = EVENT_SERVER_CONNECT,
                                          .index = server->index,
                                          .number = server->boot});
}

static void connect(struct sim *sim, struct sim_server *server)
{
    struct server_report hello = {.kind = SERVER_HELLO, .boot = server->boot};
    snprintf(hello.hello.name, sizeof hello.hello.name, "s%u", server->index);
    snprintf(hello.hello.address, sizeof hello.hello.address, "s%u", server->index);
    life_enter(server->life);
    struct cut_name held = shards_held(server->shards);
    hello.hello.generation = held.generation;
    hello.hello.version = held.version;
    if (sim->options.mutation == MUTATE_SAME_BOOT)
        hello.hello.generation = server->threads[0].ledger.generation;
    server->link = network_open(sim, (struct stream){.kind = STREAM_LINK,
                                                     .server = server->index,
                                                     .office = sim_coordinator_find(sim)})
                       ->number;
    send_report(sim, server, &hello);
    if (sim->options.mutation != MUTATE_LOSE_REPORT)
        shards_report_again(server->shards);
    life_leave();
}

void sim_server_start(struct sim *sim, struct sim_server *server)
{
    if (server->up)
        return;
    pairs_event(sim, MEETING_ADD);
    server->there = server->up = true;
    server->boot += sim->options.mutation == MUTATE_SAME_BOOT && server->boot > 0 ? 0 : 1;
    sim_trace(sim, "s%u starts, boot %llu", server->index, (unsigned long long)server->boot);
    start_shards(sim, server);
    connect(sim, server);
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
    life_kill(server->life);
    server->life = NULL;
    end_process(sim, server);
    if (power)
        disk_power_cut(sim, server->index);
    start_later(sim, server);
}

/* ---- coming and going ---- */

void sim_servers_suffice(struct sim *sim)
{
    uint32_t count = 0, wanted = sim->ledger.recorded.generation == 0 ? sim->scenario.servers : 1;
    for (uint32_t i = 0; i < SIM_SERVERS_MAX; i++)
        count += sim->servers[i].there;
    for (uint32_t i = 0; i < SIM_SERVERS_MAX && count < wanted; i++)
        if (!sim->servers[i].there) {
            sim_server_start(sim, &sim->servers[i]);
            count++;
        }
}

/* The process ends in good order. Whose chunks are elsewhere may take its disk with it. */
static void leave(struct sim *sim, struct sim_server *server)
{
    bool needed = sim_coordinator_needs(sim, server->index);
    sim_trace(sim, "s%u ends%s", server->index, needed ? ", and is needed" : "");
    end_life(sim, server);
    sim->options.progress->left += !needed;
    if (needed || sim_below(sim, 4) == 0) {
        start_later(sim, server);
        return;
    }
    disk_clear(sim, server->index);
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
    life_enter(server->life);
    bool holds = shards_held(server->shards).generation != 0;
    life_leave();
    if (!holds || server->link == 0) {
        leave(sim, server);
        return;
    }
    server->ending = true;
    queue_put(&sim->queue,
              (struct event){.at_us = sim->now_us + (uint64_t)sim->scenario.office.stop_ms * 1000,
                             .kind = EVENT_SERVER_GIVE_UP,
                             .index = server->index,
                             .number = server->boot});
    life_enter(server->life);
    shards_drain(server->shards);
    life_leave();
}

void sim_server_ask_drain(struct sim *sim, struct sim_server *server)
{
    if (sim->over || !server->there)
        return;
    if (!server->drains)
        pairs_event(sim, MEETING_DRAIN);
    server->drains = sim_coordinator_drain(sim, server->index);
    if (server->drains)
        queue_put(&sim->queue, (struct event){.at_us = sim->now_us + DRAIN_POLL_US,
                                              .kind = EVENT_SERVER_DRAIN,
                                              .index = server->index});
}

void sim_server_ask_give_up(struct sim *sim, struct sim_server *server)
{
    if (sim->over || server->give_ups == 0)
        return;
    server->give_ups--;
    pairs_event(sim, MEETING_GIVE_UP);
    if (sim_coordinator_give_up(sim, server->index))
        server->give_ups = 0;
    else
        queue_put(&sim->queue, (struct event){.at_us = sim->now_us + GIVE_UP_POLL_US,
                                              .kind = EVENT_SERVER_FORSAKE,
                                              .index = server->index});
}

/* ---- commands ---- */

void sim_server_command(struct sim *sim, struct stream *stream, const struct message *message)
{
    struct sim_server *server = &sim->servers[stream->server];
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct server_command command;
    struct slice bytes = {message->data, message->bytes};
    check(wire_decode_server_command(bytes, &arena, &command, NULL) == ERR_OK);
    if (stream->number != server->link)
        return;
    if (command.boot == server->boot && command.term > server->term)
        server->term = command.term;
    if (command.kind == SERVER_PREPARE && command.boot == server->boot &&
        command.prepare.generation > server->newest.prepare.generation)
        server->newest = command;
    life_enter(server->life);
    shards_command(server->shards, &command);
    bool may_leave = server->up && shards_may_leave(server->shards);
    life_leave();
    if (may_leave)
        leave(sim, server);
}

void sim_server_link_lost(struct sim *sim, struct stream *stream)
{
    struct sim_server *server = &sim->servers[stream->server];
    if (stream->number != server->link)
        return;
    sim_trace(sim, "s%u loses its link", server->index);
    server->link = 0;
    if (server->ending)
        leave(sim, server); /* nobody can be told that it drains */
    else
        connect_later(sim, server);
}

/* ---- events ---- */

void sim_server_event(struct sim *sim, struct event *event)
{
    struct sim_server *server = &sim->servers[event->index];
    if (event->kind == EVENT_SERVER_START) {
        sim_server_start(sim, server);
        return;
    }
    if (!server->up || event->number != server->boot)
        return;
    if (event->kind == EVENT_SERVER_GIVE_UP)
        leave(sim, server);
    else if (event->kind == EVENT_SERVER_CONNECT && server->link == 0)
        connect(sim, server);
}
