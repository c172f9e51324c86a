/* A server's process: commands and effects carried out. */
#include "tests/sim/sim.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "server/disk/prepared.h"
#include "server/shard/prepare.h"

#include <string.h>

enum { DRAIN_POLL_US = 250000, GIVE_UP_POLL_US = 20000 };

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
    if (sim->run.async)
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
    sim_report_committed(sim, server, step);
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
        sim_report_reduced(sim, server, &effect->reduced);
        faults_spring(sim, TRAP_REDUCED, server->index);
        break;
    case SHARD_COMMITTED:
        thread_committed(sim, server, thread, effect->committed.step);
        break;
    case SHARD_SNAPSHOT:
        sim_cuts_write(sim, server, thread, effect);
        break;
    case SHARD_WRONG_BITS:
        sim_report_wrong_bits(sim, server, effect);
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
    server->finishing = (struct cut_name){0, 0};
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
    holdings_end(&server->answer);
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
void sim_server_report_step(struct sim *sim, struct sim_server *server)
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
    sim_report_ready(sim, server);
    if (server->committed > server->threads[0].ledger.start)
        sim_report_committed(sim, server, server->committed - 1);
    if (server->manifest.kind == SERVER_MANIFEST)
        sim_report(sim, server, &server->manifest);
    sim_server_report_step(sim, server);
}

static void answer(struct sim *sim, struct sim_server *server)
{
    struct server_report held = {.kind = SERVER_HELD,
                                 .held = holdings_answer(&server->answer, server->committed)};
    sim_report(sim, server, &held);
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
    sim_report(sim, server, &hello);
    report_again(sim, server);
}

void sim_server_start(struct sim *sim, struct sim_server *server)
{
    if (server->up)
        return;
    pairs_event(sim, MEETING_ADD);
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
    pairs_event(sim, MEETING_CRASH);
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
    pairs_event(sim, MEETING_DRAIN);
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
    sim_report(sim, server, &drain);
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

void sim_server_close(struct sim *sim, struct sim_server *server)
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
    holdings_commit(&server->answer, command);
    if (sim->run.async && command->commit.cut)
        sim_writer_cut(sim, server, command->commit.step + 1);
    if (!sim_server_holds(server))
        return;
    for (uint32_t t = 0; t < server->thread_count; t++)
        commit_thread(sim, server, &server->threads[t], command);
    if (shard_generation(server->threads[0].shard) == command->commit.generation)
        faults_spring(sim, TRAP_COMMIT, server->index);
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
        sim_prepare(sim, server, &command);
        break;
    case SERVER_COMMIT:
        commit(sim, server, &command);
        break;
    case SERVER_RECORDED:
        sim_cuts_prune(sim, server, command.recorded);
        if (sim->run.async)
            sim_writer_recorded(sim, server, command.recorded);
        break;
    case SERVER_END:
        if (sim_server_holds(server))
            sim_server_close(sim, server);
        break;
    case SERVER_LEAVE:
        if (sim_server_holds(server))
            sim_server_close(sim, server);
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
        sim_cuts_written(sim, server);
    else if (event->kind == EVENT_SERVER_FILE)
        sim_cuts_file(sim, server, event->detail);
}
