/* A server prepares: from a cut, its journals, or nothing. */
#include "tests/sim/sim.h"

#include "server/disk/prepared.h"
#include "server/shard/async.h"
#include "server/shard/prepare.h"

#include <string.h>

/* Checkpoints are shared: whoever wrote the chunk, all can read it. NULL: nobody did. */
static const struct disk_cut *find_chunk(const struct sim *sim, struct cut_name name,
                                         uint32_t chunk)
{
    for (uint32_t s = 0; s < SIM_SERVERS_MAX; s++) {
        const struct disk_cut *cut = disk_find(&sim->servers[s].disk, name);
        if (cut != NULL && cut->values[chunk] != NULL)
            return cut;
    }
    return NULL;
}

static const float *read_chunk(struct sim *sim, const struct sim_server *reader,
                               struct cut_name name, uint32_t chunk)
{
    const struct disk_cut *cut = find_chunk(sim, name, chunk);
    if (cut != NULL && cut->torn)
        sim_violated(sim, 10, "s%u is to begin from the cut of version %llu, which is torn",
                     reader->index, (unsigned long long)name.version);
    if (cut != NULL)
        return cut->values[chunk];
    sim_violated(sim, 10,
                 "s%u is to begin from the cut of generation %llu version %llu, "
                 "whose chunk %u is on no disk",
                 reader->index, (unsigned long long)name.generation,
                 (unsigned long long)name.version, chunk);
}

static void load(struct sim *sim, const struct sim_server *server, struct sim_thread *thread,
                 struct cut_name name)
{
    const struct shard_config config = scenario_shard(&sim->scenario);
    uint32_t states = optimizer_states(config.optimizer.kind);
    for (uint32_t i = 0; i < thread->chunk_count; i++) {
        const struct shard_chunk *chunk = &thread->chunks[i];
        const float *values = read_chunk(sim, server, name, chunk->chunk);
        struct shard_state state = shard_state(thread->shard, i);
        memcpy(state.weights, values, chunk->n * sizeof *values);
        for (uint32_t s = 0; s < states; s++)
            memcpy(state.state[s], values + (size_t)(1 + s) * chunk->n, chunk->n * sizeof *values);
        for (uint32_t back = 1; back <= config.cut_versions && back <= name.version; back++)
            check(shard_publish(thread->shard, i, name.version - back,
                                values + (size_t)(states + back) * chunk->n) == ERR_OK);
        if (sim->run.async)
            check(shard_load_extra(thread->shard, i,
                                   (const uint8_t *)(values + (size_t)(1 + states) * chunk->n)) ==
                  ERR_OK);
    }
}

/* Those of a thread's chunks that are its own stay. */
static void choose_chunks(struct sim_thread *thread, uint32_t thread_count)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < thread->chunk_count; i++)
        if (prepared_thread(thread->chunks[i].chunk, thread_count) == thread->number)
            thread->chunks[count++] = thread->chunks[i];
    thread->chunk_count = count;
}

/* As prepared.c and shard_thread.c: what the journal has beyond the cut, and what that makes. */
static void read_journal(struct sim *sim, struct sim_server *server, struct sim_thread *thread)
{
    const struct journal_reader reader = {thread->shard, prepared_redo};
    struct reason reason = {.text = ""};
    uint32_t next = 0;
    if (sim_writer_read(sim, &reader, &reason) != ERR_OK)
        sim_violated(sim, 16, "s%u cannot begin from its journal: %s", server->index, reason.text);
    for (bool whole = false; !whole;) {
        thread->effects.count = 0;
        whole = shard_begin_order(thread->shard, &next, &thread->effects);
        sim_server_carry_out(sim, server, thread, false);
    }
    bool first = server->taken.words == NULL;
    struct applied *taken = &server->taken;
    if (first)
        *taken = (struct applied){0, applied_window(scenario_shard(&sim->scenario).async.window),
                                  server->taken_words};
    check(applied_words(taken->window) <= SIM_WINDOW_WORDS);
    if (!shard_meet(thread->shard, taken, first))
        taken->words = first ? NULL : taken->words;
    else
        applied_store(taken, server->taken_said);
}

static void open_shard(struct sim *sim, struct sim_server *server, struct sim_thread *thread,
                       const struct server_command *command)
{
    const struct model *model = &sim->compute.model;
    struct shard_config config = scenario_shard(&sim->scenario);
    check(prepare_chunks(model, command->prepare.ranges, command->prepare.range_count,
                         command->prepare.server, &thread->chunks, &thread->chunk_count) == ERR_OK);
    choose_chunks(thread, server->thread_count);
    config.kernels = sim->options.kernels;
    config.generation = command->prepare.generation;
    config.boot = server->boot;
    config.term = command->term;
    bool goes_on = command->prepare.from_cut || command->prepare.joins;
    config.version = goes_on ? command->prepare.cut.version : 0;
    config.file = command->prepare.server;
    config.run_chunk_count = model->chunks_count;
    config.chunk_count = thread->chunk_count;
    config.chunks = thread->chunks;
    check(shard_new(&config, &thread->shard) == ERR_OK);
    if (command->prepare.from_cut)
        load(sim, server, thread, command->prepare.cut);
    else
        prepare_initial(thread->shard, model, sim->scenario.spec.train.seed, thread->chunks,
                        thread->chunk_count);
    check(shard_start(thread->shard) == ERR_OK);
    thread->committed = config.version;
    if (sim->run.async)
        read_journal(sim, server, thread);
}

/* False: the daemon ended. */
static bool open_shards(struct sim *sim, struct sim_server *server,
                        const struct server_command *command)
{
    const struct journal_name journal = {.generation = command->prepare.generation,
                                         .boot = server->boot,
                                         .server = command->prepare.server};
    server->map_index = command->prepare.server;
    server->taken = (struct applied){0};
    bool cuts =
        command->prepare.cuts || !(command->prepare.from_cut || command->prepare.joins); /* P9 */
    if (sim->run.async && !sim_writer_prepare(sim, server, command, journal)) {
        sim_server_crash(sim, server);
        return false;
    }
    for (uint32_t t = 0; t < server->thread_count; t++) {
        struct sim_thread *thread = &server->threads[t];
        open_shard(sim, server, thread, command);
        ledger_prepared(sim, thread, command->prepare.joins);
        if (cuts)
            check(shard_snapshot_begin(thread->shard));
        sim_server_work_later(sim, server, thread);
    }
    server->committed = server->threads[0].committed;
    return true;
}

/* Servers that were away when it was pruned have their files yet. */
static bool is_pruned(const struct sim *sim, struct cut_name cut)
{
    uint32_t chunk = 0;
    while (chunk < sim->compute.model.chunks_count && find_chunk(sim, cut, chunk) != NULL)
        chunk++;
    return chunk < sim->compute.model.chunks_count;
}

/* A coordinator whose office is over, or a command that was under way for long, may name a cut that
 * a newer one took the place of, or (async) a beginning whose journals are gone with it. */
static bool is_outdated(const struct sim *sim, const struct server_command *command)
{
    const struct coordinator_past *past = &sim->store.past;
    uint64_t generation = command->prepare.generation;
    if (command->term == sim->store.term && generation == past->generation)
        return false;
    return (sim->run.async && generation < past->cut.name.generation) ||
           (command->prepare.from_cut && is_pruned(sim, command->prepare.cut));
}

void sim_prepare(struct sim *sim, struct sim_server *server, const struct server_command *command)
{
    if (is_outdated(sim, command)) {
        sim_report(sim, server,
                   &(struct server_report){.kind = SERVER_READY,
                                           .ready = {.cut = {command->prepare.generation, 0},
                                                     .code = ERR_NOT_FOUND,
                                                     .text = "the cut is gone"}});
        return;
    }
    bool holds = sim_server_holds(server);
    uint64_t held = holds ? shard_generation(server->threads[0].shard) : 0;
    if (command->prepare.generation < held)
        return;
    sim_trace(sim, "s%u prepares generation %llu from %s version %llu", server->index,
              (unsigned long long)command->prepare.generation,
              command->prepare.from_cut ? "the cut of"
              : command->prepare.joins  ? "nothing, to join at"
                                        : "nothing:",
              (unsigned long long)command->prepare.cut.version);
    if (command->prepare.generation > held) {
        if (holds)
            sim_server_close(sim, server);
        if (!open_shards(sim, server, command))
            return;
        holdings_prepare(&server->answer, command);
    }
    sim_report_ready(sim, server);
    if (command->prepare.generation > held && sim->run.async)
        sim_server_report_step(sim, server);
}
