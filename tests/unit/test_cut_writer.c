/* Which thread writes a cut's blocks, and that a file without some of its chunks is never whole. */
#include "tests/unit/unit.h"

#include "common/file.h"
#include "common/inbox.h"
#include "common/time.h"
#include "server/disk/cut_writer.h"

#include <pthread.h>

enum { LATE_MS = 1, WEIGHTS = 4, NAME_BYTES = 16, CHUNKS_MAX = 2000, INBOX_MAX = 16384 };

struct cut_writer_fixture {
    uint64_t every_steps;
    uint32_t threads; /* of shards; 0: one */
    bool hangs;       /* the disk, until released has something */
    struct inbox *released;
    char dir[64];
    struct logger logger;
    struct file_ops ops;
    struct inbox *freed;   /* an item for each chunk that is written */
    char name[NAME_BYTES]; /* of the thread that wrote the newest one */
    struct counted *block;
    struct cut_writer *writer;
    uint32_t chunks;
    struct inbox *reports; /* of struct cut_written */
};

/* Each takes some time, as if its thread had no core. */
static ssize_t write_slowly(const struct file_ops *ops, int fd, const void *data, size_t bytes)
{
    struct cut_writer_fixture *f = ops->context;
    uint64_t until_ns = time_after_ms(time_now_ns(), 3 * LATE_MS);
    assert_int_equal(pthread_getname_np(pthread_self(), f->name, sizeof f->name), 0);
    while (time_now_ns() < until_ns)
        sched_yield();
    return file_ops_real.write(ops, fd, data, bytes);
}

static ssize_t write_when_released(const struct file_ops *ops, int fd, const void *data,
                                   size_t bytes)
{
    struct cut_writer_fixture *f = ops->context;
    uint32_t released;
    size_t count;
    if (f->hangs)
        assert_int_equal(inbox_take(f->released, TIME_NEVER, 1, &released, &count), ERR_OK);
    f->hangs = false;
    return file_ops_real.write(ops, fd, data, bytes);
}

static void note_freed(void *owner, uint32_t thread)
{
    struct cut_writer_fixture *f = owner;
    assert_int_equal(inbox_post(f->freed, &thread), ERR_OK);
}

static void note_written(void *owner, const struct cut_written *written,
                         const struct digest *manifest, const struct reason *reason)
{
    struct cut_writer_fixture *f = owner;
    (void)manifest, (void)reason;
    assert_int_equal(inbox_post(f->reports, written), ERR_OK); /* before note_freed() */
}

static void cut_writer_set_up(struct cut_writer_fixture *f)
{
    struct prepared *run = calloc(1, sizeof *run);
    snprintf(f->dir, sizeof f->dir, "/tmp/roost-cuts-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->logger = (struct logger){.fd = -1};
    f->block = counted_new(WEIGHTS * sizeof(float));
    memset(f->block->data, 0, WEIGHTS * sizeof(float));
    f->ops = file_ops_real;
    f->ops.context = f;
    f->ops.write = f->hangs ? write_when_released : write_slowly;
    f->ops.direct = NULL;
    const struct inbox_limits numbers = {sizeof(uint32_t), INBOX_MAX},
                              reports = {sizeof(struct cut_written), 8};
    assert_int_equal(inbox_new(numbers, &f->freed), ERR_OK);
    assert_int_equal(inbox_new(numbers, &f->released), ERR_OK);
    assert_int_equal(inbox_new(reports, &f->reports), ERR_OK);
    const struct cut_writer_config config = {.ops = &f->ops,
                                             .logger = &f->logger,
                                             .threads = f->threads > 0 ? f->threads : 1,
                                             .late_ms = LATE_MS,
                                             .written = note_written,
                                             .freed = note_freed,
                                             .owner = f};
    assert_int_equal(cut_writer_new(&config, &f->writer), ERR_OK);
    *run = (struct prepared){.references = 1,
                             .generation = 1,
                             .checkpoint_dir = strdup(f->dir),
                             .spec.checkpoint.every_steps = f->every_steps};
    assert_int_equal(cut_writer_prepare(f->writer, run), ERR_OK);
    prepared_unref(run);
}

static void cut_writer_tear_down(struct cut_writer_fixture *f)
{
    cut_writer_free(f->writer);
    counted_unref(f->block);
    inbox_free(f->freed);
    inbox_free(f->released);
    inbox_free(f->reports);
    assert_int_equal(file_remove_tree(f->dir, NULL), ERR_OK);
}

static void give_next(struct cut_writer_fixture *f, bool last)
{
    uint32_t chunk = f->chunks++;
    const struct shard_effect effect = {.kind = SHARD_SNAPSHOT,
                                        .snapshot = {.cut = {1, 1},
                                                     .chunk = chunk,
                                                     .n = WEIGHTS,
                                                     .block = counted_ref(f->block),
                                                     .last = last,
                                                     .given = f->chunks}};
    cut_writer_add(f->writer, 0, &effect);
}

/* What is reported next. */
static struct cut_written written(struct cut_writer_fixture *f)
{
    struct cut_written written;
    size_t count;
    assert_int_equal(inbox_take(f->reports, TIME_NEVER, 1, &written, &count), ERR_OK);
    return written;
}

/* Gives the next chunk, and waits until it is written: by whom. */
static const char *write_next(struct cut_writer_fixture *f, bool last)
{
    uint32_t thread;
    size_t count;
    give_next(f, last);
    assert_int_equal(inbox_take(f->freed, TIME_NEVER, 1, &thread, &count), ERR_OK);
    return f->name;
}

static void write_until(struct cut_writer_fixture *f, const char *name)
{
    while (strcmp(write_next(f, false), name) != 0)
        assert_true(f->chunks < CHUNKS_MAX);
}

/* The last name is of the cuts' thread: it wrote the table. */
TEST_F(where_no_core_is_free_the_cuts_thread_writes_for_a_while_by_itself, cut_writer)
{
    assert_string_equal(write_next(f, false), "idle writes");
    write_until(f, "cuts");
    write_until(f, "idle writes");
    assert_string_equal(write_next(f, true), "cuts");
    struct cut_written cut = written(f);
    assert_int_equal(cut.err, ERR_OK);
    assert_int_equal(cut.cut.version, 1);
}

/* While steps of a minute go on, and the cut is ahead of their time. */
TEST_F(where_nobody_waits_for_the_cut_no_block_is_late, cut_writer, .every_steps = 1)
{
    uint64_t now_ns = time_now_ns();
    cut_writer_step_ended(f->writer, now_ns - UINT64_C(60000000000));
    cut_writer_step_ended(f->writer, now_ns);
    for (int i = 0; i < 20; i++)
        assert_string_equal(write_next(f, false), "idle writes");
    cut_writer_step_waits(f->writer, time_now_ns());
    write_until(f, "cuts");
}

static bool has_file(const struct cut_writer_fixture *f)
{
    struct checkpoint_path path;
    struct file_info info;
    assert_int_equal(checkpoint_file(f->dir, (struct checkpoint_name){1, 1}, 0, &path), ERR_OK);
    return file_stat(path.text, &info, NULL) == ERR_OK;
}

TEST_F(a_file_that_lacks_a_chunk_is_not_finished, cut_writer)
{
    write_next(f, false);
    f->chunks++; /* this one is lost */
    write_next(f, true);
    assert_int_equal(written(f).err, ERR_BUSY);
    assert_false(has_file(f));
}

/* Whether the last chunk is among the dropped ones, or comes when there is room again. */
static void overflow(struct cut_writer_fixture *f, bool last_is_dropped)
{
    struct prepared *run = calloc(1, sizeof *run);
    uint32_t one = 1, thread;
    size_t count;
    for (uint32_t i = 0; i < INBOX_MAX / 2; i++)
        give_next(f, false);
    if (last_is_dropped)
        give_next(f, true);
    assert_int_equal(inbox_post(f->released, &one), ERR_OK);
    if (!last_is_dropped) { /* half of them are there */
        for (uint32_t i = 0; i < INBOX_MAX / 8; i++)
            assert_int_equal(inbox_take(f->freed, TIME_NEVER, 1, &thread, &count), ERR_OK);
        give_next(f, true);
    }
    struct cut_written cut = written(f);
    assert_int_equal(cut.err, ERR_BUSY);
    assert_int_equal(cut.cut.version, 1);
    *run = (struct prepared){.references = 1, .generation = 2, .checkpoint_dir = strdup(f->dir)};
    assert_int_equal(cut_writer_prepare(f->writer, run), ERR_OK);
    prepared_unref(run);
    cut_writer_free(f->writer);
    f->writer = NULL;
    assert_int_equal(inbox_take(f->reports, 0, 1, &cut, &count), ERR_DEADLINE); /* once */
    assert_false(has_file(f));
}

TEST_F(a_cut_whose_last_chunk_finds_no_room_is_reported_as_lost, cut_writer, .hangs = true)
{
    overflow(f, true);
}

TEST_F(a_cut_whose_middle_chunks_find_no_room_is_reported_as_lost, cut_writer, .hangs = true)
{
    overflow(f, false);
}

TEST_F(while_chunks_fill_the_queue_a_new_run_finds_room, cut_writer, .hangs = true)
{
    struct prepared *run = calloc(1, sizeof *run);
    uint32_t one = 1;
    for (uint32_t i = 0; i < INBOX_MAX / 2; i++)
        give_next(f, false);
    *run = (struct prepared){.references = 1, .generation = 2, .checkpoint_dir = strdup(f->dir)};
    assert_int_equal(cut_writer_prepare(f->writer, run), ERR_OK);
    prepared_unref(run);
    assert_int_equal(inbox_post(f->released, &one), ERR_OK);
}

/* However many shards there are: each hands so many out ahead within a few milliseconds. */
TEST_F(what_shards_hand_out_ahead_finds_room, cut_writer, .hangs = true, .threads = 6)
{
    uint32_t one = 1;
    for (uint32_t thread = 0; thread < f->threads; thread++)
        for (uint32_t i = 0; i < SHARD_AHEAD_MAX; i++) {
            const struct shard_effect effect = {.kind = SHARD_SNAPSHOT,
                                                .snapshot = {.cut = {1, 1},
                                                             .chunk = thread * SHARD_AHEAD_MAX + i,
                                                             .n = WEIGHTS,
                                                             .block = counted_ref(f->block),
                                                             .last = i + 1 == SHARD_AHEAD_MAX,
                                                             .given = i + 1}};
            cut_writer_add(f->writer, thread, &effect);
        }
    assert_int_equal(inbox_post(f->released, &one), ERR_OK);
    assert_int_equal(written(f).err, ERR_OK);
    assert_true(has_file(f));
}
