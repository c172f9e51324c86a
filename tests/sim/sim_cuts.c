/* A server's files of cuts. */
#include "tests/sim/sim.h"

#include <string.h>

static void written_later(struct sim *sim, const struct sim_server *server)
{
    queue_put(&sim->queue,
              (struct event){.at_us = sim->now_us + 1 + sim_below(sim, 2 * sim->scenario.write_us),
                             .kind = EVENT_SERVER_WRITTEN,
                             .index = server->index,
                             .number = server->boot});
}

/* A chunk goes to the disk; when it is there its copy is free again. */
void sim_cuts_write(struct sim *sim, struct sim_server *server, const struct sim_thread *thread,
                    const struct shard_effect *effect)
{
    check(server->writing_count < SIM_WRITES_MAX);
    if (sim->run.async)
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
    written_later(sim, server);
}

/* Its file is no more; what still comes of it is dropped. */
static void give_up_cut(struct sim *sim, struct sim_server *server, struct cut_name cut)
{
    if (disk_same(server->disk.failed, cut))
        return;
    server->disk.failed = cut;
    disk_remove(&server->disk, cut);
    sim_report_manifest(sim, server, cut, ERR_NO_SPACE);
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
void sim_cuts_file(struct sim *sim, struct sim_server *server, uint64_t packed)
{
    struct cut_name cut = {packed >> 32, packed & UINT32_MAX};
    enum disk_stage stage =
        disk_advance(&server->disk, cut, sim->options.mutation == MUTATE_NO_FSYNC);
    bool early = sim->options.mutation == MUTATE_NO_FOLDER_SYNC && stage == DISK_RENAMED;
    if (disk_same(server->finishing, cut) && (stage == DISK_DURABLE || stage == DISK_WRITING))
        server->finishing = (struct cut_name){0, 0};
    if (stage == DISK_DURABLE || early)
        sim_report_manifest(sim, server, cut, ERR_OK);
    else if (stage != DISK_WRITING)
        file_later(sim, server, cut);
    faults_spring(sim, TRAP_WRITE, server->index);
}

void sim_cuts_written(struct sim *sim, struct sim_server *server)
{
    if (server->writing_count == 0)
        return; /* given up with its shard */
    if (server->finishing.generation > 0) {
        written_later(sim, server); /* one thread writes: a file is durable before it goes on */
        return;
    }
    struct writing writing = server->writing[0];
    memmove(server->writing, server->writing + 1,
            --server->writing_count * sizeof server->writing[0]);
    if (server->disk.full_us > sim->now_us || disk_same(server->disk.failed, writing.file.cut)) {
        give_up_cut(sim, server, writing.file.cut);
    } else {
        if (disk_write(&server->disk, &writing.file)) {
            server->finishing = writing.file.cut;
            file_later(sim, server, writing.file.cut);
        }
        if (sim->options.mutation == MUTATE_EARLY_MANIFEST)
            sim_report_manifest(sim, server, writing.file.cut, ERR_OK);
    }
    counted_unref(writing.copy);
    sim_server_work_later(sim, server, &server->threads[writing.thread]);
    faults_spring(sim, TRAP_WRITE, server->index);
}

/* Files of the newest `keep` recorded cuts stay, and whatever is newer. */
void sim_cuts_prune(struct sim *sim, struct sim_server *server, struct cut_name recorded)
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
