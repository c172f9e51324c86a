/* A server's process: the shard core's effects carried out, cuts written to a disk. */
#include "tests/sim/sim.h"

#include "common/arena.h"
#include "common/digest.h"
#include "common/scoped.h"
#include "server/async.h"
#include "server/prepare.h"
#include "server/prepared.h"

#include <string.h>

enum { DRAIN_POLL_US = 250000, GIVE_UP_POLL_US = 20000 };

/* ---- reports ---- */

static void report(struct sim *sim, struct sim_server *server, struct server_report *what)
{
    what->boot = server->boot;
    if (server->link == 0)
        return; /* said again when the link is back */
    network_send(sim, network_stream(sim, server->link), ACCEPTOR,
                 sim_scratch_message(sim, wire_encode_server_report(what, &sim->scratch)));
}

static bool is_async(const struct sim *sim)
{
    return sim->scenario.spec.consistency.kind == SPEC_ASYNC;
}

static void report_ready(struct sim *sim, struct sim_server *server)
{
    struct server_report ready = {
        .kind = SERVER_READY,
        .ready = {.cut = {server->threads[0].ledger.generation, server->committed}, .text = ""}};
    if (is_async(sim)) {
        ready.ready.applied_low = server->taken.words != NULL ? server->taken.low : UINT64_MAX;
        ready.ready.applied_words =
            server->taken.words != NULL ? applied_words(server->taken.window) : 0;
        ready.ready.applied = server->taken_said;
    }
    report(sim, server, &ready);
}

static void report_manifest(struct sim *sim, struct sim_server *server, struct cut_name cut,
                            enum err code)
{
    struct server_report *manifest = &server->manifest;
    *manifest =
        (struct server_report){.kind = SERVER_MANIFEST, .manifest = {.cut = cut, .code = code}};
    memset(manifest->manifest.digest, (int)(1 + server->index), sizeof manifest->manifest.digest);
    report(sim, server, manifest);
}

static void report_committed(struct sim *sim, struct sim_server *server, uint64_t step)
{
    report(
        sim, server,
        &(struct server_report){.kind = SERVER_COMMITTED,
                                .committed = {shard_generation(server->threads[0].shard), step}});
}

/* At once, or in two parts as from two threads. */
static void report_reduced(struct sim *sim, struct sim_server *server,
                           const struct reduced *reduced)
{
    struct server_report part = {.kind = SERVER_REDUCED, .reduced = *reduced};
    uint32_t first = (uint32_t)sim_below(sim, reduced->seal_count + 1);
    if (first > 0 && first < reduced->seal_count) {
        part.reduced.seal_count = first;
        part.reduced.has_loss = false; /* the loss is the last chunk */
        report(sim, server, &part);
        part.reduced.seals = reduced->seals + first;
        part.reduced.seal_count = reduced->seal_count - first;
        part.reduced.has_loss = reduced->has_loss;
    }
    report(sim, server, &part);
}

/* ---- effects ---- */

/* The chunks [first, end) of an answered pull in one message. */
static void send_weights(struct sim *sim, const struct shard_effect *effect, uint32_t first,
                         uint32_t end)
{
    struct counted **copies = effect->weights.copies;
    struct from_shard message = {.kind = FROM_SHARD_WEIGHTS, .weights = effect->weights.header};
    message.weights.chunks += first;
    if (message.weights.versions != NULL)
        message.weights.versions += first;
    message.weights.chunk_count = end - first;
    for (uint32_t i = first; i < end; i++)
        message.payload_bytes += copies[i]->bytes;
    sim_exchange_answer(sim, effect->sender, &message, copies + first, end - first);
}

/* At once, or in two parts as from two threads. */
static void answer_weights(struct sim *sim, struct sim_thread *thread,
                           const struct shard_effect *effect)
{
    const struct weights *header = &effect->weights.header;
    uint32_t first = (uint32_t)sim_below(sim, 2 * (uint64_t)header->chunk_count);
    if (is_async(sim))
        history_published(sim, header, effect->weights.copies);
    else
        ledger_published(sim, thread, header, effect->weights.copies);
    if (first > 0 && first < header->chunk_count)
        send_weights(sim, effect, 0, first);
    else
        first = 0;
    send_weights(sim, effect, first, header->chunk_count);
}

void sim_server_work_later(struct sim *sim, const struct sim_server *server,
                           struct sim_thread *thread)
{
    if (thread->work_armed)
        return;
    thread->work_armed = true;
    queue_put(&sim->queue,
              (struct event){.at_us = sim->now_us + 1 + sim_below(sim, 2 * sim->scenario.apply_us),
                             .kind = EVENT_SERVER_WORK,
                             .index = server->index,
                             .number = server->boot,
                             .detail = thread->number});
}

/* A chunk goes to the disk; when it is there its copy is free again. */
static void write_chunk(struct sim *sim, struct sim_server *server, const struct sim_thread *thread,
                        const struct shard_effect *effect)
{
    check(server->writing_count < SIM_WRITES_MAX);
    if (is_async(sim))
        history_snapshot(sim, effect);
    server->writing[server->writing_count++] = (struct writing){
        .file = {.cut = effect->snapshot.cut,
                 .chunk = effect->snapshot.chunk,
                 .n = effect->snapshot.n,
                 .arrays = 1 + effect->snapshot.states + effect->snapshot.versions,
                 .extra_bytes = effect->snapshot.extra_bytes,
                 .last = effect->snapshot.last,
                 .values = effect->snapshot.copy != NULL ? effect->snapshot.copy->data : NULL},
        .copy = effect->snapshot.copy,
        .thread = thread->number,
    };
    queue_put(&sim->queue,
              (struct event){.at_us = sim->now_us + 1 + sim_below(sim, 2 * sim->scenario.write_us),
                             .kind = EVENT_SERVER_WRITTEN,
                             .index = server->index,
                             .number = server->boot});
}

/* Two workers never differ, but a push may have been spoilt on purpose. */
static void report_wrong_bits(struct sim *sim, struct sim_server *server,
                              const struct shard_effect *effect)
{
    struct server_report wrong = {.kind = SERVER_WRONG_BITS};
    if (!server->spoilt)
        sim_violated(sim, 13, "s%u: a push of step %llu node %u:%u chunk %u differs from the first",
                     server->index, (unsigned long long)effect->wrong_bits.step,
                     effect->wrong_bits.node.level, effect->wrong_bits.node.index,
                     effect->wrong_bits.chunk);
    wrong.wrong_bits.member = effect->wrong_bits.member;
    wrong.wrong_bits.first_member = effect->wrong_bits.first_member;
    wrong.wrong_bits.step = effect->wrong_bits.step;
    wrong.wrong_bits.node = effect->wrong_bits.node;
    wrong.wrong_bits.chunk = effect->wrong_bits.chunk;
    sim->options.progress->wrong_bits++;
    report(sim, server, &wrong);
}

/* Said when all threads have done so (shards.c). */
static void thread_committed(struct sim *sim, struct sim_server *server, struct sim_thread *thread,
                             uint64_t step)
{
    uint64_t least = UINT64_MAX;
    ledger_committed(sim, thread, step);
    if (thread->committed < step + 1)
        thread->committed = step + 1;
    for (uint32_t t = 0; t < server->thread_count; t++)
        if (server->threads[t].committed < least)
            least = server->threads[t].committed;
    if (least <= step)
        return;
    server->committed = least;
    report_committed(sim, server, step);
}

static void carry_out(struct sim *sim, struct sim_server *server, struct sim_thread *thread,
                      const struct shard_effect *effect)
{
    struct from_shard message = {.kind = FROM_SHARD_REFUSAL};
    switch (effect->kind) {
    case SHARD_ACK:
        break; /* one for all threads */
    case SHARD_WEIGHTS:
        answer_weights(sim, thread, effect);
        break;
    case SHARD_REFUSAL:
        message.refusal = effect->refusal;
        sim_exchange_answer(sim, effect->sender, &message, NULL, 0);
        break;
    case SHARD_REDUCED:
        ledger_reduced(sim, thread, &effect->reduced);
        report_reduced(sim, server, &effect->reduced);
        faults_spring(sim, TRAP_REDUCED, server->index);
        break;
    case SHARD_COMMITTED:
        thread_committed(sim, server, thread, effect->committed.step);
        break;
    case SHARD_SNAPSHOT:
        write_chunk(sim, server, thread, effect);
        break;
    case SHARD_WRONG_BITS:
        report_wrong_bits(sim, server, effect);
        break;
    case SHARD_TRANSFER:
        sim_transfer_send(sim, server, thread, effect);
        break;
    case SHARD_ORDER:
        history_order(sim, thread, &effect->order);
        sim_writer_add(sim, server, thread->number, &effect->order);
        break;
    }
}

/* Carries out what the last call of the shard asked for, looks at its invariants, and goes on. */
void sim_server_carry_out(struct sim *sim, struct sim_server *server, struct sim_thread *thread,
                          bool more)
{
    for (uint32_t i = 0; i < thread->effects.count; i++)
        carry_out(sim, server, thread, &thread->effects.items[i]);
    thread->effects.count = 0;
    shard_check(thread->shard);
    if (shard_statistics(thread->shard).parked != thread->parked)
        sim_violated(sim, 5, "s%u holds %llu parked pulls, not %u", server->index,
                     (unsigned long long)shard_statistics(thread->shard).parked, thread->parked);
    if (more)
        sim_server_work_later(sim, server, thread);
}

/* Pulls that waited are answered by the effects. */
static void count_answered(struct sim *sim, struct sim_thread *thread)
{
    for (uint32_t i = 0; i < thread->effects.count; i++)
        if (thread->effects.items[i].kind == SHARD_WEIGHTS ||
            thread->effects.items[i].kind == SHARD_REFUSAL) {
            network_stream(sim, thread->effects.items[i].sender)->parked[thread->number]--;
            thread->parked--;
        }
}

bool sim_server_holds(const struct sim_server *server)
{
    return server->threads[0].shard != NULL;
}

struct sim_thread *sim_server_thread(struct sim_server *server, uint32_t chunk)
{
    return &server->threads[prepared_thread(chunk, server->thread_count)];
}

/* ---- life ---- */

void sim_server_init(struct sim *sim, uint32_t index)
{
    struct sim_server *server = &sim->servers[index];
    *server = (struct sim_server){.index = index, .thread_count = sim->scenario.threads};
    server->there = index < sim->scenario.servers;
    process_init(sim, &server->process);
    server->disk.chunks_count = sim->compute.model.chunks_count;
    sim_writer_init(&server->writer);
    server->disk.threads = server->thread_count;
    for (uint32_t t = 0; t < server->thread_count; t++) {
        struct sim_thread *thread = &server->threads[t];
        thread->index = index;
        thread->number = t;
        thread->ledger.counted = calloc((size_t)(SIM_DELAY_MAX + 1) * sim->compute.piece_count,
                                        sizeof *thread->ledger.counted);
        check(thread->ledger.counted != NULL);
    }
}

static void drop_writes(struct sim_server *server)
{
    for (uint32_t i = 0; i < server->writing_count; i++)
        counted_unref(server->writing[i].copy);
    server->writing_count = 0;
    disk_remove_unfinished(&server->disk);
}

static void drop_deferred(struct sim_server *server)
{
    for (uint32_t i = 0; i < server->deferred_count; i++)
        free(server->deferred[i].chunks);
    server->deferred_count = 0;
}

static void drop_shards(struct sim_server *server)
{
    drop_writes(server);
    drop_deferred(server);
    for (uint32_t t = 0; t < server->thread_count; t++) {
        struct sim_thread *thread = &server->threads[t];
        shard_free(thread->shard);
        free(thread->chunks);
        thread->shard = NULL;
        thread->chunks = NULL;
        thread->chunk_count = thread->parked = thread->failures = 0;
    }
    server->manifest = (struct server_report){0};
    held_end(&server->answer);
}

void sim_server_release(struct sim_server *server)
{
    drop_shards(server);
    process_release(&server->process);
    disk_release(&server->disk);
    sim_writer_release(&server->writer);
    free(server->deferred);
    for (uint32_t t = 0; t < server->thread_count; t++)
        free(server->threads[t].ledger.counted);
}

/* Its open steps may be complete as they are. */
static void report_step(struct sim *sim, struct sim_server *server)
{
    for (uint32_t t = 0; t < server->thread_count; t++) {
        struct sim_thread *thread = &server->threads[t];
        thread->effects.count = 0;
        shard_report(thread->shard, &thread->effects);
        sim_server_carry_out(sim, server, thread, false);
    }
}

static void connect_later(struct sim *sim, const struct sim_server *server)
{
    queue_put(&sim->queue, (struct event){.at_us = sim->now_us + sim_restart_us(sim),
                                          .kind = EVENT_SERVER_CONNECT,
                                          .index = server->index,
                                          .number = server->boot});
}

/* What the coordinator may not have heard of (shards_report_again()). */
static void report_again(struct sim *sim, struct sim_server *server)
{
    if (!sim_server_holds(server) || sim->options.mutation == MUTATE_LOSE_REPORT)
        return;
    report_ready(sim, server);
    if (server->committed > server->threads[0].ledger.start)
        report_committed(sim, server, server->committed - 1);
    if (server->manifest.kind == SERVER_MANIFEST)
        report(sim, server, &server->manifest);
    report_step(sim, server);
}

static void answer(struct sim *sim, struct sim_server *server)
{
    struct server_report held = {.kind = SERVER_HELD,
                                 .held = held_answer(&server->answer, server->committed)};
    report(sim, server, &held);
    report_again(sim, server);
}

static void connect(struct sim *sim, struct sim_server *server)
{
    struct server_report hello = {.kind = SERVER_HELLO};
    snprintf(hello.hello.name, sizeof hello.hello.name, "s%u", server->index);
    snprintf(hello.hello.address, sizeof hello.hello.address, "s%u", server->index);
    const struct sim_thread *first = &server->threads[0];
    if (sim_server_holds(server)) {
        hello.hello.generation = shard_generation(first->shard);
        hello.hello.version = server->committed;
    }
    if (sim->options.mutation == MUTATE_SAME_BOOT)
        hello.hello.generation = first->ledger.generation;
    server->link = network_open(sim, (struct stream){.kind = STREAM_LINK,
                                                     .server = server->index,
                                                     .office = sim_coordinator_find(sim)})
                       ->number;
    report(sim, server, &hello);
    report_again(sim, server);
}

void sim_server_start(struct sim *sim, struct sim_server *server)
{
    if (server->up)
        return;
    server->there = server->up = true;
    server->boot += sim->options.mutation == MUTATE_SAME_BOOT && server->boot > 0 ? 0 : 1;
    sim_trace(sim, "s%u starts, boot %llu", server->index, (unsigned long long)server->boot);
    connect(sim, server);
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
    drop_shards(server);
    for (uint32_t t = 0; t < server->thread_count; t++)
        server->threads[t].work_armed = false;
    server->up = server->ending = false;
    server->recorded_count = 0;
}

static void start_later(struct sim *sim, const struct sim_server *server)
{
    queue_put(&sim->queue, (struct event){.at_us = sim->now_us + sim_restart_us(sim),
                                          .kind = EVENT_SERVER_START,
                                          .index = server->index});
}

void sim_server_crash(struct sim *sim, struct sim_server *server)
{
    sim_trace(sim, "s%u crashes", server->index);
    bool power = sim_below(sim, 2) == 0;
    sim_writer_crash(sim, server, power);
    end_process(sim, server);
    disk_crash(&server->disk, power, &sim->random);
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
    sim_writer_end(sim, server);
    end_process(sim, server);
    sim->options.progress->left += !needed;
    if (needed || sim_below(sim, 4) == 0) {
        start_later(sim, server);
        return;
    }
    disk_clear(&server->disk);
    files_release(&server->writer.files);
    server->there = server->drains = false;
    if (sim->calm)
        sim_servers_suffice(sim);
}

void sim_server_terminate(struct sim *sim, struct sim_server *server)
{
    struct server_report drain = {.kind = SERVER_DRAIN};
    if (server->ending)
        return;
    sim_trace(sim, "s%u is told to end", server->index);
    if (!sim_server_holds(server) || server->link == 0) {
        leave(sim, server);
        return;
    }
    server->ending = true;
    queue_put(&sim->queue,
              (struct event){.at_us = sim->now_us + (uint64_t)sim->scenario.office.stop_ms * 1000,
                             .kind = EVENT_SERVER_GIVE_UP,
                             .index = server->index,
                             .number = server->boot});
    report(sim, server, &drain);
}

void sim_server_ask_drain(struct sim *sim, struct sim_server *server)
{
    if (sim->over || !server->there)
        return;
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
    if (sim_coordinator_give_up(sim, server->index))
        server->give_ups = 0;
    else
        queue_put(&sim->queue, (struct event){.at_us = sim->now_us + GIVE_UP_POLL_US,
                                              .kind = EVENT_SERVER_FORSAKE,
                                              .index = server->index});
}

/* ---- commands ---- */

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
        if (is_async(sim))
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
    if (is_async(sim))
        read_journal(sim, server, thread);
}

static void close_shards(struct sim *sim, struct sim_server *server)
{
    for (uint32_t i = 0; i < server->deferred_count; i++) {
        const struct from_shard answer = {
            .kind = FROM_SHARD_ACK, .ack = {server->deferred[i].ack.id, ERR_OLD_GENERATION, 0}};
        sim_exchange_answer(sim, server->deferred[i].stream, &answer, NULL, 0);
    }
    for (uint32_t t = 0; t < server->thread_count; t++) {
        struct sim_thread *thread = &server->threads[t];
        for (bool done = false; !done;) {
            thread->effects.count = 0;
            done = shard_close(thread->shard, &thread->effects);
            count_answered(sim, thread);
            sim_server_carry_out(sim, server, thread, false);
        }
    }
    drop_shards(server);
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
    if (is_async(sim) && !sim_writer_prepare(sim, server, command, journal)) {
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
    return (is_async(sim) && generation < past->cut.name.generation) ||
           (command->prepare.from_cut && is_pruned(sim, command->prepare.cut));
}

static void prepare(struct sim *sim, struct sim_server *server,
                    const struct server_command *command)
{
    if (is_outdated(sim, command)) {
        report(sim, server,
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
            close_shards(sim, server);
        if (!open_shards(sim, server, command))
            return;
        held_prepare(&server->answer, command);
    }
    report_ready(sim, server);
    if (command->prepare.generation > held && is_async(sim))
        report_step(sim, server);
}

static int compare_chunks(const void *a, const void *b)
{
    const struct shard_chunk *first = a, *second = b;
    return first->chunk < second->chunk ? -1 : first->chunk > second->chunk;
}

static bool is_leaver(const struct shard_moves *moves, uint32_t chunk)
{
    for (uint32_t i = 0; i < moves->leave_count; i++)
        if (moves->leaves[i].chunk == chunk)
            return true;
    return false;
}

/* The thread's chunks are those whose sums of the next step it counts. */
static void decided(struct sim *sim, struct sim_thread *thread, const struct commit *decision,
                    const struct shard_moves *moves)
{
    bool again = decision->step < thread->ledger.decided;
    uint32_t room = thread->chunk_count + moves->take_count, count = 0;
    ledger_decided(sim, thread, decision);
    if (again || moves->leave_count + moves->take_count == 0)
        return;
    struct shard_chunk *chunks = calloc(room + 1, sizeof *chunks);
    check(chunks != NULL);
    for (uint32_t i = 0; i < thread->chunk_count; i++)
        if (!is_leaver(moves, thread->chunks[i].chunk))
            chunks[count++] = thread->chunks[i];
    for (uint32_t i = 0; i < moves->take_count; i++)
        chunks[count++] = moves->takes[i];
    qsort(chunks, count, sizeof *chunks, compare_chunks);
    free(thread->chunks);
    thread->chunks = chunks;
    thread->chunk_count = count;
}

/* The thread's share of what moves, in the arena (shard_thread_commit()). */
static struct shard_moves choose_moves(struct sim *sim, const struct sim_thread *thread,
                                       const struct server_command *command, struct arena *arena)
{
    const struct model *model = &sim->compute.model;
    struct shard_leave *leaves = arena_array(arena, model->chunks_count, sizeof *leaves);
    struct shard_chunk *takes = arena_array(arena, model->chunks_count, sizeof *takes);
    struct shard_moves moves = {.file = command->file, .leaves = leaves, .takes = takes};
    check(leaves != NULL && takes != NULL);
    for (uint32_t i = 0; i < command->move_count; i++) {
        const struct server_move *move = &command->moves[i];
        unsigned to = 0;
        check(move->to[0] == 0 || sscanf(move->to, "s%u", &to) == 1);
        for (uint32_t c = move->first; c < move->first + move->count; c++) {
            if (prepared_thread(c, sim->scenario.threads) != thread->number)
                continue;
            if (move->to[0] == 0)
                takes[moves.take_count++] = prepare_chunk(model, c);
            else
                leaves[moves.leave_count++] = (struct shard_leave){c, to};
        }
    }
    return moves;
}

static void trace_moves(struct sim *sim, const struct sim_thread *thread,
                        const struct shard_moves *moves)
{
    for (uint32_t i = 0; i < moves->leave_count; i++)
        sim_trace(sim, "s%u: chunk %u goes to s%u", thread->index, moves->leaves[i].chunk,
                  moves->leaves[i].to);
    for (uint32_t i = 0; i < moves->take_count; i++)
        sim_trace(sim, "s%u: chunk %u comes", thread->index, moves->takes[i].chunk);
}

static void commit_thread(struct sim *sim, struct sim_server *server, struct sim_thread *thread,
                          const struct server_command *command)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct shard_moves moves = choose_moves(sim, thread, command, &arena);
    struct commit decision = command->commit;
    mutate_commit(sim, thread, &decision);
    thread->effects.count = 0;
    enum err err = shard_commit(thread->shard, command->boot, &decision, &moves, &thread->effects);
    sim_trace(sim, "s%u commit(%llu)%s%s: %s", server->index, (unsigned long long)decision.step,
              decision.apply ? "" : " skip", decision.cut ? " cut" : "", err_name(err));
    trace_moves(sim, thread, &moves);
    if (err == ERR_OK)
        decided(sim, thread, &decision, &moves);
    else if (err != ERR_OLD_GENERATION && err != ERR_BEHIND)
        sim_violated(sim, 4, "s%u refuses commit(%llu): %s", server->index,
                     (unsigned long long)decision.step, err_name(err));
    sim_server_carry_out(sim, server, thread, true);
}

static void commit(struct sim *sim, struct sim_server *server, const struct server_command *command)
{
    held_commit(&server->answer, command);
    if (is_async(sim) && command->commit.cut)
        sim_writer_cut(sim, server, command->commit.step + 1);
    if (!sim_server_holds(server))
        return;
    for (uint32_t t = 0; t < server->thread_count; t++)
        commit_thread(sim, server, &server->threads[t], command);
    if (shard_generation(server->threads[0].shard) == command->commit.generation)
        faults_spring(sim, TRAP_COMMIT, server->index);
}

/* Files of the newest `keep` recorded cuts stay, and whatever is newer. */
static void prune(struct sim *sim, struct sim_server *server, struct cut_name recorded)
{
    uint32_t keep = sim->scenario.spec.checkpoint.keep;
    if (server->recorded_count > 0 &&
        !disk_older(server->recorded[server->recorded_count - 1], recorded))
        return;
    check(server->recorded_count < DISK_CUTS_MAX);
    server->recorded[server->recorded_count++] = recorded;
    if (sim->options.mutation == MUTATE_PRUNE_ALL)
        disk_remove_up_to(&server->disk, recorded);
    else if (server->recorded_count >= keep)
        disk_remove_older(&server->disk, server->recorded[server->recorded_count - keep]);
}

void sim_server_command(struct sim *sim, struct stream *stream, const struct message *message)
{
    struct sim_server *server = &sim->servers[stream->server];
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct server_command command;
    struct slice bytes = {message->data, message->bytes};
    check(wire_decode_server_command(bytes, &arena, &command, NULL) == ERR_OK);
    if (command.boot != server->boot || command.term < server->term)
        return; /* P3, P7 */
    server->term = command.term;
    switch (command.kind) {
    case SERVER_PREPARE:
        prepare(sim, server, &command);
        break;
    case SERVER_COMMIT:
        commit(sim, server, &command);
        break;
    case SERVER_RECORDED:
        prune(sim, server, command.recorded);
        if (is_async(sim))
            sim_writer_recorded(sim, server, command.recorded);
        break;
    case SERVER_END:
        if (sim_server_holds(server))
            close_shards(sim, server);
        break;
    case SERVER_LEAVE:
        if (sim_server_holds(server))
            close_shards(sim, server);
        leave(sim, server);
        break;
    case SERVER_ASK:
        answer(sim, server);
        break;
    }
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

static void work(struct sim *sim, struct sim_server *server, struct sim_thread *thread)
{
    bool more = false;
    thread->work_armed = false;
    if (thread->shard == NULL)
        return;
    thread->effects.count = 0;
    check(shard_work(thread->shard, &thread->effects, &more) == ERR_OK);
    count_answered(sim, thread);
    mutate_worked(sim, thread);
    sim_server_carry_out(sim, server, thread, more);
    sim_exchange_taken(sim, server);
}

void sim_server_logged(struct sim *sim, struct sim_server *server, struct sim_thread *thread,
                       uint64_t durable)
{
    if (thread->shard == NULL)
        return;
    shard_logged(thread->shard, durable);
    sim_server_work_later(sim, server, thread);
}

/* Its file is no more; what still comes of it is dropped. */
static void give_up_cut(struct sim *sim, struct sim_server *server, struct cut_name cut)
{
    if (disk_same(server->disk.failed, cut))
        return;
    server->disk.failed = cut;
    disk_remove(&server->disk, cut);
    report_manifest(sim, server, cut, ERR_NO_SPACE);
}

/* A cut's name in an event. */
static uint64_t pack_cut(struct cut_name cut)
{
    return cut.generation << 32 | cut.version;
}

static void file_later(struct sim *sim, const struct sim_server *server, struct cut_name cut)
{
    queue_put(&sim->queue,
              (struct event){.at_us = sim->now_us + 1 + sim_below(sim, 2 * sim->scenario.write_us),
                             .kind = EVENT_SERVER_FILE,
                             .index = server->index,
                             .number = server->boot,
                             .detail = pack_cut(cut)});
}

/* Synced, renamed, its folder synced; what is said to be durable is. */
static void file_further(struct sim *sim, struct sim_server *server, uint64_t packed)
{
    struct cut_name cut = {packed >> 32, packed & UINT32_MAX};
    enum disk_stage stage =
        disk_advance(&server->disk, cut, sim->options.mutation == MUTATE_NO_FSYNC);
    bool early = sim->options.mutation == MUTATE_NO_FOLDER_SYNC && stage == DISK_RENAMED;
    if (stage == DISK_DURABLE || early)
        report_manifest(sim, server, cut, ERR_OK);
    else if (stage != DISK_WRITING)
        file_later(sim, server, cut);
    faults_spring(sim, TRAP_WRITE, server->index);
}

static void written(struct sim *sim, struct sim_server *server)
{
    if (server->writing_count == 0)
        return; /* given up with its shard */
    struct writing writing = server->writing[0];
    memmove(server->writing, server->writing + 1,
            --server->writing_count * sizeof server->writing[0]);
    if (server->disk.full_us > sim->now_us || disk_same(server->disk.failed, writing.file.cut)) {
        give_up_cut(sim, server, writing.file.cut);
    } else {
        if (disk_write(&server->disk, &writing.file))
            file_later(sim, server, writing.file.cut);
        if (sim->options.mutation == MUTATE_EARLY_MANIFEST)
            report_manifest(sim, server, writing.file.cut, ERR_OK);
    }
    counted_unref(writing.copy);
    sim_server_work_later(sim, server, &server->threads[writing.thread]);
    faults_spring(sim, TRAP_WRITE, server->index);
}

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
    else if (event->kind == EVENT_SERVER_WORK)
        work(sim, server, &server->threads[event->detail]);
    else if (event->kind == EVENT_SERVER_LOGGED)
        sim_writer_event(sim, server);
    else if (event->kind == EVENT_SERVER_WRITTEN)
        written(sim, server);
    else if (event->kind == EVENT_SERVER_FILE)
        file_further(sim, server, event->detail);
}
