/* Which thread writes a cut's blocks. */
#include "tests/unit/unit.h"

#include "common/file.h"
#include "common/inbox.h"
#include "common/time.h"
#include "server/disk/cut_writer.h"

#include <pthread.h>

enum { LATE_MS = 1, WEIGHTS = 4, NAME_BYTES = 16, CHUNKS_MAX = 2000 };

struct cut_writer_fixture {
    uint64_t every_steps;
    char dir[64];
    struct logger logger;
    struct file_ops ops;
    struct inbox *freed;   /* an item for each chunk that is written */
    char name[NAME_BYTES]; /* of the thread that wrote the newest one */
    struct counted *block;
    struct cut_writer *writer;
    uint32_t chunks;
    struct cut_written written;
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
    f->written = *written; /* before note_freed() */
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
    f->ops.write = write_slowly;
    f->ops.direct = NULL;
    assert_int_equal(inbox_new((struct inbox_limits){sizeof(uint32_t), 8}, &f->freed), ERR_OK);
    const struct cut_writer_config config = {.ops = &f->ops,
                                             .logger = &f->logger,
                                             .threads = 1,
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
    assert_int_equal(file_remove_tree(f->dir, NULL), ERR_OK);
}

/* Gives the next chunk, and waits until it is written: by whom. */
static const char *write_next(struct cut_writer_fixture *f, bool last)
{
    uint32_t thread;
    size_t count;
    const struct shard_effect effect = {.kind = SHARD_SNAPSHOT,
                                        .snapshot = {.cut = {1, 1},
                                                     .chunk = f->chunks++,
                                                     .n = WEIGHTS,
                                                     .block = counted_ref(f->block),
                                                     .last = last}};
    cut_writer_add(f->writer, 0, &effect);
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
    assert_int_equal(f->written.err, ERR_OK);
    assert_int_equal(f->written.cut.version, 1);
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
