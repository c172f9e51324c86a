/* A step log of a long run, for tests and figures:
 *     long_log make DIR STEPS     rows of that many steps, written as a coordinator does
 *     long_log skip DIR STEPS     the same, but all closed segments are holes with a footer at their
 *                                 end: what 100 million steps come to without 37 GB of rows
 *     long_log cut DIR VERSION    the newest cut of the run there once more, as that of VERSION, so that
 *                                 a coordinator goes on from such a log; of one server
 *     long_log open DIR VERSION   opens it as a coordinator that goes on at VERSION, and prints the
 *                                 seconds and the memory that this takes
 *     long_log rewind DIR VERSION goes back, and prints the same
 *     long_log times DIR STEP     where the time of the steps from STEP on went, as `roost up` asks at
 *                                 its end, and prints the same */
#include "common/file.h"
#include "common/files/checkpoint.h"
#include "common/files/step_log.h"
#include "common/files/step_log_format.h"
#include "common/scoped.h"
#include "common/time.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SLOTS = 8, SLOT_SAMPLES = 4, EPOCH_SAMPLES = 240, BATCH_BYTES = 65536, SKIP_STEPS = 22000 };

static void must(enum err err, const struct reason *reason)
{
    if (err == ERR_OK)
        return;
    fprintf(stderr, "long_log: %s\n", reason_text(err, reason));
    exit(EXIT_FAILURE);
}

static void print_row(struct buf *out, uint64_t step)
{
    const struct reason none = {{0}};
    must(buf_printf(out,
                    "{\"step\":%" PRIu64
                    ",\"loss\":1.0986122886681098,\"accuracy\":0.34375,\"norm\":0.4811252243246881,"
                    "\"lr\":0.01,\"samples\":%" PRIu64 ",\"skipped\":false,\"ticket\":%" PRIu64
                    ",\"slots\":%d,\"slot_samples\":%d,\"step_samples\":%d,\"epoch_samples\":%d,"
                    "\"digest\":\"%016" PRIx64
                    "\",\"behind\":0,\"workers\":2,\"redone\":0,\"speculative\":0,"
                    "\"duration_ms\":3,\"slot_ms\":5,\"generation\":1,\"time\":1763838000.125}\n",
                    step, (step + 1) * SLOTS * SLOT_SAMPLES, step * SLOTS, SLOTS, SLOT_SAMPLES,
                    SLOTS * SLOT_SAMPLES, EPOCH_SAMPLES, step * UINT64_C(0x9e3779b97f4a7c15)),
         &none);
}

static void append(struct step_log *log, uint64_t first, uint64_t end)
{
    scoped(buf_release) struct buf rows = {0};
    struct reason reason = {{0}};
    for (uint64_t i = first; i < end; i++) {
        print_row(&rows, i);
        if (rows.bytes < BATCH_BYTES && i + 1 < end)
            continue;
        must(step_log_append(log, buf_slice(&rows), &reason), &reason);
        rows.bytes = 0;
    }
}

static void open_log(const char *directory, uint64_t version, struct step_log *log,
                     uint64_t *ret_reached)
{
    struct reason reason = {{0}};
    const struct step_log_place from = {.version = version};
    must(step_log_open(&file_ops_real, directory, from, log, ret_reached, &reason), &reason);
}

static void make(const char *directory, uint64_t steps)
{
    struct step_log log;
    uint64_t reached;
    open_log(directory, 0, &log, &reached);
    append(&log, 0, steps);
    step_log_release(&log);
}

/* The sums after `end` steps. */
static struct ledger sums_at(uint64_t end)
{
    uint64_t position = end * SLOTS * SLOT_SAMPLES;
    return (struct ledger){
        .by_positions = true,
        .step_count = end,
        .position = position,
        .samples = position,
        .last = {
            .step = end - 1, .generation = 1, .samples = position, .epoch_samples = EPOCH_SAMPLES}};
}

/* What the rows of a segment say that append() writes. */
static struct step_times times_of(uint64_t number)
{
    return (struct step_times){.slot_ms = 5 * SKIP_STEPS,
                               .gap_us = 1000 * (number % 1000),
                               .newest_us = UINT64_C(1763838000125000)};
}

static struct digest write_hole(const char *directory, uint64_t number, const struct digest *before)
{
    char path[STEP_LOG_PATH_BYTES];
    struct reason reason = {{0}};
    struct step_log_footer written = {0},
                           footer = {.state.sums = sums_at((number + 1) * SKIP_STEPS),
                                     .state.times = times_of(number),
                                     .state.segment_count = number + 1,
                                     .before = *before,
                                     .rows_bytes = STEP_LOG_SEGMENT_BYTES};
    scoped(buf_release) struct buf line = {0};
    snprintf(path, sizeof path, "%s/steps/%012" PRIu64 ".jsonl", directory, number * SKIP_STEPS);
    must(step_log_print_footer(&footer, &line), &reason);
    must(file_write_atomic(&file_ops_real, path, 0644, (struct slice){NULL, 0}, &reason), &reason);
    scoped(file_log_release) struct file_log log = {0};
    must(file_log_open(&file_ops_real, path, &log, &reason), &reason);
    if (ftruncate(log.fd, STEP_LOG_SEGMENT_BYTES - 1) != 0)
        must(file_failed("lengthen", path, &reason), &reason);
    must(file_log_append(&log, (struct slice){(const uint8_t *)"\n", 1}, &reason), &reason);
    must(file_log_append(&log, buf_slice(&line), &reason), &reason);
    must(step_log_read_footer(path, &written, &reason), &reason);
    ledger_release(&written.state.sums);
    return written.state.newest;
}

static void skip(const char *directory, uint64_t steps)
{
    char folder[STEP_LOG_PATH_BYTES];
    struct reason reason = {{0}};
    struct step_log log;
    uint64_t reached, segments = steps / SKIP_STEPS;
    struct digest before = {{0}};
    snprintf(folder, sizeof folder, "%s/steps", directory);
    must(file_make_dirs(folder, 0755, &reason), &reason);
    for (uint64_t i = 0; i < segments; i++)
        before = write_hole(directory, i, &before);
    open_log(directory, segments * SKIP_STEPS, &log, &reached);
    append(&log, segments * SKIP_STEPS, steps);
    step_log_release(&log);
}

static void copy_chunks(const struct checkpoint *from, struct checkpoint_writer *to)
{
    struct checkpoint_chunk chunk;
    struct reason reason = {{0}};
    enum err err = checkpoint_read(from, 0, &chunk, &reason);
    for (uint32_t i = 0; err == ERR_OK; err = checkpoint_read(from, ++i, &chunk, &reason))
        must(checkpoint_writer_add(to, i, chunk.n, chunk.values, chunk.values + chunk.n, &reason),
             &reason);
    if (err != ERR_NOT_FOUND)
        must(err, &reason);
}

static void cut(const char *directory, uint64_t version)
{
    char cuts[STEP_LOG_PATH_BYTES];
    struct reason reason = {{0}};
    scoped(checkpoint_free_scoped) struct checkpoint *from = NULL;
    scoped(checkpoint_writer_free_scoped) struct checkpoint_writer *to = NULL;
    snprintf(cuts, sizeof cuts, "%s/checkpoints", directory);
    must(checkpoint_open_any(directory, &from, &reason), &reason);
    struct checkpoint_record record = *checkpoint_about(from);
    record.name.version = record.counters.applied = version;
    record.counters.samples = version * SLOTS * SLOT_SAMPLES;
    must(checkpoint_writer_new(&file_ops_real, cuts, record.name, 0, checkpoint_arrays(from), &to,
                               &reason),
         &reason);
    copy_chunks(from, to);
    must(checkpoint_writer_finish(to, &record.manifests[0], &reason), &reason);
    must(checkpoint_record(&file_ops_real, cuts, &record, &reason), &reason);
}

static void print_cost(const char *what, uint64_t begin_ns)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%s  seconds=%.3f memory=%.1f MiB\n", what, (double)(time_now_ns() - begin_ns) / 1e9,
           (double)usage.ru_maxrss / 1024);
}

static void times(const char *directory, uint64_t step)
{
    struct step_times seen;
    struct reason reason;
    uint64_t reached, begin_ns = time_now_ns();
    must(step_log_times(directory, step, &seen, &reached, &reason), &reason);
    printf("slot_ms=%" PRIu64 " gap_us=%" PRIu64 "  ", seen.slot_ms, seen.gap_us);
    print_cost("times", begin_ns);
}

static void open_or_rewind(const char *directory, uint64_t version, bool rewinds)
{
    struct step_log log;
    struct reason reason = {{0}};
    uint64_t reached, begin_ns = time_now_ns();
    open_log(directory, version, &log, &reached);
    if (rewinds)
        begin_ns = time_now_ns();
    if (rewinds)
        must(step_log_rewind(&log, version, &reason), &reason);
    printf("version=%" PRIu64 " reached=%" PRIu64 "  ", version, reached);
    print_cost(rewinds ? "rewind" : "open", begin_ns);
    step_log_release(&log);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: long_log make|skip|cut|open|rewind|times DIR NUMBER\n");
        return 2;
    }
    uint64_t number = strtoull(argv[3], NULL, 10);
    if (strcmp(argv[1], "make") == 0)
        make(argv[2], number);
    else if (strcmp(argv[1], "skip") == 0)
        skip(argv[2], number);
    else if (strcmp(argv[1], "cut") == 0)
        cut(argv[2], number);
    else if (strcmp(argv[1], "times") == 0)
        times(argv[2], number);
    else
        open_or_rewind(argv[2], number, strcmp(argv[1], "rewind") == 0);
    return EXIT_SUCCESS;
}
