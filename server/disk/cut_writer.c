/* One thread, a file for each cut in the making: with two shard threads, one may be at the next cut
 * while the other still gives chunks of the last. A file goes around the page cache
 * (file_writer_direct()), and its blocks' digests are computed while they are written: with nothing
 * else to do a cut is as fast as the disk.
 *
 * Digests and writes are what takes time, and two side threads do them where a core is free: steps
 * never wait for such a thread, but where others want all cores it stands still. So when a block
 * takes them too long (late_ms), the cuts' thread does the next ones itself, with a small share of
 * the cores, for a while (SMALL_TIMES as long), and then tries again. It alone takes locks that
 * training waits for. While steps go on and the cut is ahead (cut_pace.h), it has time: no block is
 * late, and the digests' thread rests now and then.
 *
 * A chunk that finds no room in the inbox is dropped, and its cut must never be taken for whole. So
 * the shard thread reports the cut as lost, in room that chunks cannot take; and a file is finished
 * only when it has as many chunks as the shard threads handed out. */
#include "server/disk/cut_writer.h"

#include "common/inbox.h"
#include "common/log.h"
#include "common/thread.h"
#include "common/time.h"
#include "server/disk/cut_pace.h"

#include <string.h>

enum {
    JOBS_MAX = 4,
    /* Of each shard thread; twice what its shard hands out ahead: the writer may still have chunks of
     * a run that has ended, or of an earlier attempt. */
    CHUNKS_MAX = 2 * SHARD_AHEAD_MAX,
    LOST_MAX = 16,      /* of each shard thread, cuts that it reports as lost, and … */
    COMMANDS_MAX = 256, /* … of all others, commands: chunks cannot take this room */
    BATCH = 8,
    SMALL_TIMES = 20
};

enum cut_item_kind { ITEM_CHUNK, ITEM_LOST, ITEM_PREPARE, ITEM_PRUNE };

struct lost_cut {
    struct cut_name cut;
    uint32_t attempt;
};

struct cut_item {
    enum cut_item_kind kind;
    union {
        struct prepared *run;
        struct recorded_cut recorded;
        struct lost_cut lost;
        struct {
            uint32_t thread;
            struct shard_effect snapshot;
        } chunk;
    };
};

/* A cut in the making. */
struct job {
    bool used;
    bool failed; /* reported already; the rest of its chunks is passed over */
    struct cut_name cut;
    uint32_t attempt;
    uint32_t lasts;  /* threads that have given their last chunk … */
    uint32_t given;  /* … and so many chunks before it and with it */
    uint32_t chunks; /* that came */
    uint64_t begun_ns;
    uint64_t bytes; /* of the chunks */
    struct checkpoint_writer *file;
};

struct cut_writer {
    struct cut_writer_config config;
    struct inbox *inbox;
    struct thread thread;
    struct cut_pace pace;
    atomic_uint chunks;    /* in the inbox */
    struct lost_cut *lost; /* each shard thread's own: the newest that it has reported */

    /* The thread's own. */
    struct prepared *run; /* a reference; NULL: no run yet */
    uint64_t weights;     /* of the run's chunks, as it began */
    struct checkpoint_threads idle, small;
    uint64_t small_until_ns; /* nobody has a free core for the idle ones */
    struct job jobs[JOBS_MAX];
};

static void job_end(struct job *job)
{
    checkpoint_writer_free(job->file);
    *job = (struct job){0};
}

static void log_written(const struct cut_writer *writer, const struct job *job)
{
    log_info(writer->config.logger, "checkpoint written",
             log_uint("generation", job->cut.generation), log_uint("version", job->cut.version),
             log_uint("bytes", job->bytes),
             log_uint("ms", (time_now_ns() - job->begun_ns) / 1000000));
}

static void say(struct cut_writer *writer, const struct job *job, enum err err,
                const struct digest *manifest, const struct reason *reason)
{
    struct cut_name cut = job->cut;
    if (err != ERR_OK)
        log_error(writer->config.logger, "checkpoint not written",
                  log_uint("generation", cut.generation), log_uint("version", cut.version),
                  log_text("err", err_name(err)), log_text("reason", reason->text));
    writer->config.written(writer->config.owner, &(struct cut_written){cut, job->attempt, err},
                           manifest, reason);
}

/* The job of that cut; the cut's first item begins it. Two jobs are enough: a thread gives chunks
 * of the next cut only when all threads have committed its step. An older one that is still there
 * has lost a last chunk, and was reported: it makes room. So does an earlier attempt at the same
 * cut. NULL: a later attempt is in the making. */
static struct job *job_of(struct cut_writer *writer, struct cut_name cut, uint32_t attempt)
{
    struct job *oldest = &writer->jobs[0];
    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        struct job *job = &writer->jobs[i];
        check(!job->used || job->cut.generation == writer->run->generation);
        if (job->used && job->cut.generation == cut.generation && job->cut.version == cut.version) {
            if (job->attempt >= attempt)
                return job->attempt == attempt ? job : NULL;
            oldest = job;
            break;
        }
        if (!job->used || (oldest->used && job->cut.version < oldest->cut.version))
            oldest = job;
    }
    job_end(oldest);
    *oldest = (struct job){.used = true, .cut = cut, .attempt = attempt, .begun_ns = time_now_ns()};
    return oldest;
}

/* Nobody waits for the cut, and it has time. */
static bool is_ahead(const struct cut_writer *writer, const struct job *job, size_t arrays,
                     uint64_t now_ns)
{
    const struct cut_progress progress = {.version = job->cut.version,
                                          .steps = writer->run->spec.train.steps,
                                          .every_steps = writer->run->spec.checkpoint.every_steps,
                                          .begun_ns = job->begun_ns,
                                          .bytes = job->bytes,
                                          .bytes_all = writer->weights * arrays * sizeof(float)};
    return cut_pace_rests(&writer->pace, &progress, now_ns);
}

static enum err write_chunk(struct cut_writer *writer, struct job *job,
                            const struct shard_effect *snapshot, struct reason *reason)
{
    struct checkpoint_name name = {job->cut.generation, job->cut.version};
    check(job->cut.generation == writer->run->generation); /* P9: it is named so */
    if (job->file == NULL)
        TRY(checkpoint_writer_new(
            writer->config.ops, writer->run->checkpoint_dir, name, snapshot->snapshot.file,
            (struct checkpoint_arrays){snapshot->snapshot.states, snapshot->snapshot.versions,
                                       snapshot->snapshot.extra_bytes},
            &job->file, reason));
    if (snapshot->snapshot.block == NULL)
        return ERR_OK;
    uint64_t begun_ns = time_now_ns();
    size_t arrays = (size_t)1 + snapshot->snapshot.states + snapshot->snapshot.versions;
    bool ahead = is_ahead(writer, job, arrays, begun_ns);
    bool idle = ahead || begun_ns >= writer->small_until_ns;
    struct checkpoint_threads threads = idle ? writer->idle : writer->small;
    threads.rests = ahead;
    checkpoint_writer_threads(job->file, threads);
    job->chunks++;
    job->bytes += arrays * snapshot->snapshot.n * sizeof(float) + snapshot->snapshot.extra_bytes;
    enum err err = checkpoint_writer_add(job->file, snapshot->snapshot.chunk, snapshot->snapshot.n,
                                         shard_snapshot_weights(snapshot),
                                         shard_snapshot_rest(snapshot), reason);
    uint64_t ended_ns = time_now_ns();
    if (idle && ended_ns >= time_after_ms(begun_ns, writer->config.late_ms))
        writer->small_until_ns =
            time_after_ms(ended_ns, SMALL_TIMES * (uint64_t)writer->config.late_ms);
    return err;
}

/* P9: a cut is recorded when every server says that its file is whole. */
static enum err finish(struct cut_writer *writer, struct job *job, struct digest *ret_manifest,
                       struct reason *reason)
{
    if (job->chunks != job->given)
        return reason_set(reason, ERR_BUSY, "%u of its %u chunks came", job->chunks, job->given);
    TRY(checkpoint_writer_finish(job->file, ret_manifest, reason));
    log_written(writer, job);
    return ERR_OK;
}

static void job_fail(struct cut_writer *writer, struct job *job, enum err err,
                     const struct reason *reason)
{
    job->failed = true;
    checkpoint_writer_free(job->file);
    job->file = NULL;
    say(writer, job, err, &(struct digest){{0}}, reason);
}

static void take_chunk(struct cut_writer *writer, const struct shard_effect *snapshot)
{
    struct job *job = job_of(writer, snapshot->snapshot.cut, snapshot->snapshot.attempt);
    if (job == NULL)
        return;
    check(job->lasts < writer->config.threads); /* else it had ended */
    check(!job->failed || job->file == NULL);
    struct reason reason = {{0}};
    struct digest manifest = {{0}};
    enum err err = job->failed ? ERR_OK : write_chunk(writer, job, snapshot, &reason);
    check(err != ERR_OK || job->failed || job->file != NULL);
    if (snapshot->snapshot.last) {
        job->lasts++;
        job->given += snapshot->snapshot.given;
    }
    bool whole = job->lasts == writer->config.threads;
    if (err == ERR_OK && whole && !job->failed) {
        err = finish(writer, job, &manifest, &reason);
        if (err == ERR_OK)
            say(writer, job, ERR_OK, &manifest, &reason);
    }
    if (err != ERR_OK)
        job_fail(writer, job, err, &reason);
    if (whole)
        job_end(job);
}

/* Else it is of a run that has ended: nobody waits for it. */
static bool is_of_run(const struct cut_writer *writer, struct cut_name cut)
{
    return writer->run != NULL && writer->run->generation == cut.generation;
}

static void handle_chunk(struct cut_writer *writer, uint32_t thread,
                         const struct shard_effect *snapshot)
{
    unsigned chunks = atomic_fetch_sub(&writer->chunks, 1);
    check(chunks > 0); /* each was counted before it was posted */
    check(thread < writer->config.threads);
    if (is_of_run(writer, snapshot->snapshot.cut))
        take_chunk(writer, snapshot);
    shard_snapshot_drop(snapshot);
    writer->config.freed(writer->config.owner, thread);
}

/* The last chunks may be among those that were dropped, so the cut is reported at once. */
static void handle_lost(struct cut_writer *writer, const struct lost_cut *lost)
{
    struct reason reason;
    struct job *job =
        is_of_run(writer, lost->cut) ? job_of(writer, lost->cut, lost->attempt) : NULL;
    if (job != NULL && !job->failed)
        job_fail(writer, job, reason_set(&reason, ERR_BUSY, "too many chunks wait for the disk"),
                 &reason);
}

static void handle_prepare(struct cut_writer *writer, struct prepared *take_run)
{
    for (uint32_t i = 0; i < JOBS_MAX; i++)
        job_end(&writer->jobs[i]);
    prepared_unref(writer->run);
    writer->run = take_run;
    writer->weights = 0;
    for (uint32_t i = 0; take_run != NULL && i < take_run->chunk_count; i++)
        writer->weights += take_run->chunks[i].n;
}

static void handle_prune(struct cut_writer *writer, const struct recorded_cut *cut)
{
    struct checkpoint_name recorded = {cut->generation, cut->version};
    struct checkpoint_name oldest = {cut->oldest.generation, cut->oldest.version};
    struct reason reason;
    if (writer->run == NULL)
        return;
    enum err err =
        oldest.generation > 0
            ? checkpoint_prune_older(writer->run->checkpoint_dir, recorded, oldest, &reason)
            : checkpoint_prune(writer->run->checkpoint_dir, recorded,
                               writer->run->spec.checkpoint.keep, &reason);
    /* Another server may have removed the same folder meanwhile. */
    if (err != ERR_OK && err != ERR_NOT_FOUND)
        log_warning(writer->config.logger, "old checkpoints not removed",
                    log_text("err", err_name(err)), log_text("reason", reason.text),
                    log_text("next", "after the next checkpoint"));
}

static void write_cuts(void *argument)
{
    struct cut_writer *writer = argument;
    struct cut_item items[BATCH];
    size_t count;
    thread_lower_priority(THREAD_SHARE_SMALL);
    while (inbox_take(writer->inbox, TIME_NEVER, BATCH, items, &count) == ERR_OK) {
        check(thread_is_current(&writer->thread));
        for (size_t i = 0; i < count; i++) {
            switch (items[i].kind) {
            case ITEM_CHUNK:
                handle_chunk(writer, items[i].chunk.thread, &items[i].chunk.snapshot);
                break;
            case ITEM_LOST:
                handle_lost(writer, &items[i].lost);
                break;
            case ITEM_PREPARE:
                handle_prepare(writer, items[i].run);
                break;
            case ITEM_PRUNE:
                handle_prune(writer, &items[i].recorded);
                break;
            }
        }
    }
    handle_prepare(writer, NULL);
}

static enum err start_threads(struct cut_writer *writer)
{
    TRY(side_thread_new("idle digests", THREAD_SHARE_IDLE, &writer->idle.digests));
    TRY(side_thread_new("idle writes", THREAD_SHARE_IDLE, &writer->idle.writes));
    TRY(side_thread_new("digests", THREAD_SHARE_SMALL, &writer->small.digests));
    return thread_start(&writer->thread, "cuts", write_cuts, writer);
}

static void release(struct cut_writer *writer)
{
    side_thread_free(writer->idle.digests);
    side_thread_free(writer->idle.writes);
    side_thread_free(writer->small.digests);
    inbox_free(writer->inbox);
    free(writer->lost);
    free(writer);
}

enum err cut_writer_new(const struct cut_writer_config *config, struct cut_writer **ret_writer)
{
    struct cut_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL)
        return ERR_NOMEM;
    writer->config = *config;
    writer->lost = calloc(config->threads, sizeof *writer->lost);
    size_t items_max = (size_t)config->threads * (CHUNKS_MAX + LOST_MAX) + COMMANDS_MAX;
    enum err err =
        writer->lost == NULL
            ? ERR_NOMEM
            : inbox_new((struct inbox_limits){sizeof(struct cut_item), items_max}, &writer->inbox);
    if (err == ERR_OK)
        err = start_threads(writer);
    if (err != ERR_OK) {
        release(writer);
        return err;
    }
    *ret_writer = writer;
    return ERR_OK;
}

void cut_writer_free(struct cut_writer *writer)
{
    if (writer == NULL)
        return;
    inbox_close(writer->inbox);
    thread_join(&writer->thread);
    release(writer);
}

enum err cut_writer_prepare(struct cut_writer *writer, struct prepared *run)
{
    struct cut_item item = {.kind = ITEM_PREPARE, .run = prepared_ref(run)};
    enum err err = inbox_post(writer->inbox, &item);
    if (err != ERR_OK)
        prepared_unref(run);
    return err;
}

/* Once for each attempt. When there is no room for that either, the next chunk that is dropped
 * reports it. */
static void report_lost(struct cut_writer *writer, uint32_t thread,
                        const struct shard_effect *snapshot)
{
    struct lost_cut *reported = &writer->lost[thread];
    struct cut_item item = {.kind = ITEM_LOST,
                            .lost = {snapshot->snapshot.cut, snapshot->snapshot.attempt}};
    bool again = reported->cut.generation == item.lost.cut.generation &&
                 reported->cut.version == item.lost.cut.version &&
                 reported->attempt == item.lost.attempt;
    if (!again && inbox_post(writer->inbox, &item) == ERR_OK)
        *reported = item.lost;
}

void cut_writer_add(struct cut_writer *writer, uint32_t thread,
                    const struct shard_effect *take_snapshot)
{
    struct cut_item item = {.kind = ITEM_CHUNK, .chunk = {thread, *take_snapshot}};
    check(thread < writer->config.threads);
    enum err err = ERR_BUSY;
    if (atomic_fetch_add(&writer->chunks, 1) < writer->config.threads * CHUNKS_MAX)
        err = inbox_post(writer->inbox, &item);
    if (err == ERR_OK)
        return;
    atomic_fetch_sub(&writer->chunks, 1);
    report_lost(writer, thread, take_snapshot);
    shard_snapshot_drop(take_snapshot);
}

enum err cut_writer_prune(struct cut_writer *writer, struct recorded_cut recorded)
{
    struct cut_item item = {.kind = ITEM_PRUNE, .recorded = recorded};
    return inbox_post(writer->inbox, &item);
}

void cut_writer_step_ended(struct cut_writer *writer, uint64_t now_ns)
{
    cut_pace_step_ended(&writer->pace, now_ns);
}

void cut_writer_step_waits(struct cut_writer *writer, uint64_t now_ns)
{
    cut_pace_step_waits(&writer->pace, now_ns);
}
