/* The thread that writes down what async shards do, at its edges; the rest is seen in whole runs.
 */
#include "tests/unit/folder.h"

#include "server/disk/journal.h"
#include "server/disk/order_writer.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>

/* A disk that has no more room for files of the first generation. */
struct disk {
    struct file_ops ops;
    atomic_int fd; /* of its journal */
    atomic_bool full;
    atomic_uint refused;
    atomic_uint logged, failed;
};

static int disk_open(const struct file_ops *ops, const char *path, int flags, unsigned mode)
{
    struct disk *disk = ops->context;
    int fd = file_ops_real.open(ops, path, flags, mode);
    bool first = strstr(path, "g00000000000000000001-") != NULL;
    if (first || fd == atomic_load(&disk->fd)) /* which was closed since */
        atomic_store(&disk->fd, first ? fd : -1);
    return fd;
}

static ssize_t disk_write(const struct file_ops *ops, int fd, const void *data, size_t bytes)
{
    struct disk *disk = ops->context;
    if (fd != atomic_load(&disk->fd) || !atomic_load(&disk->full))
        return file_ops_real.write(ops, fd, data, bytes);
    atomic_fetch_add(&disk->refused, 1);
    errno = ENOSPC;
    return -1;
}

static void logged(void *owner, uint32_t thread, uint64_t generation, uint64_t durable)
{
    struct disk *disk = owner;
    (void)thread;
    (void)generation;
    (void)durable;
    atomic_fetch_add(&disk->logged, 1);
}

static void failed(void *owner, const struct reason *reason)
{
    struct disk *disk = owner;
    (void)reason;
    atomic_fetch_add(&disk->failed, 1);
}

static void prepare(struct order_writer *writer, uint64_t generation, const char *folder)
{
    struct prepared *run = calloc(1, sizeof *run);
    assert_non_null(run);
    atomic_init(&run->references, 1);
    run->generation = generation;
    run->spec.checkpoint.durability = SPEC_DURABILITY_LOGGED;
    run->checkpoint_dir = strdup(folder);
    assert_int_equal(order_writer_prepare(writer, run), ERR_OK);
    prepared_unref(run);
}

static void take(struct order_writer *writer, uint64_t generation)
{
    struct counted *gradient = counted_new(4 * sizeof(float));
    assert_non_null(gradient);
    memset(gradient->data, 0, 4 * sizeof(float));
    const struct shard_order_entry entry = {.gradient = gradient};
    const struct shard_order order = {.kind = SHARD_ORDER_TAKE, .count = 1, .entries = &entry};
    assert_int_equal(order_writer_add(writer, 0, generation, &order), ERR_OK);
}

static enum err count_one(void *context, const struct journal_entry *entry, struct reason *reason)
{
    (void)entry;
    (void)reason;
    ++*(unsigned *)context;
    return ERR_OK;
}

TEST_IN_FOLDER(a_new_generation_does_not_wait_for_room_for_the_old_one)
{
    const char *folder = folder_path(state, "run/checkpoints");
    const struct logger quiet = {LOG_LEVEL_ERROR, -1};
    struct disk disk = {.ops = file_ops_real, .fd = -1};
    struct order_writer *writer;
    unsigned count = 0;
    uint64_t torn;
    disk.ops.open = disk_open;
    disk.ops.write = disk_write;
    disk.ops.context = &disk;
    const struct order_writer_config config = {.ops = &disk.ops,
                                               .logger = &quiet,
                                               .threads = 1,
                                               .boot = 1,
                                               .logged = logged,
                                               .failed = failed,
                                               .owner = &disk};
    assert_int_equal(order_writer_new(&config, &writer), ERR_OK);
    order_writer_wait(writer, 1); /* nobody asked for it: at once */
    prepare(writer, 1, folder);
    order_writer_wait(writer, 1);
    atomic_store(&disk.full, true);
    take(writer, 1);
    while (atomic_load(&disk.refused) == 0)
        sched_yield();
    prepare(writer, 2, folder);
    order_writer_wait(writer, 2);
    char journal[512];
    snprintf(journal, sizeof journal, "%s/" JOURNAL_FOLDER, folder);
    const struct journal_reader reader = {&count, count_one};
    assert_int_equal(journal_read(&file_ops_real, journal, &reader, &torn, NULL), ERR_OK);
    assert_int_equal(count, 0);
    order_writer_free(writer);
    assert_int_equal(atomic_load(&disk.logged), 0);
    assert_int_equal(atomic_load(&disk.failed), 0);
}

TEST_IN_FOLDER(a_cut_does_not_wait_for_room_when_a_new_generation_begins)
{
    const char *folder = folder_path(state, "run/checkpoints");
    const struct logger quiet = {LOG_LEVEL_ERROR, -1};
    struct disk disk = {.ops = file_ops_real, .fd = -1};
    struct order_writer *writer;
    disk.ops.open = disk_open;
    disk.ops.write = disk_write;
    disk.ops.context = &disk;
    const struct order_writer_config config = {.ops = &disk.ops,
                                               .logger = &quiet,
                                               .threads = 1,
                                               .boot = 1,
                                               .logged = logged,
                                               .failed = failed,
                                               .owner = &disk};
    assert_int_equal(order_writer_new(&config, &writer), ERR_OK);
    prepare(writer, 1, folder);
    order_writer_wait(writer, 1);
    atomic_store(&disk.full, true);
    take(writer, 1);
    assert_int_equal(order_writer_cut(writer, 1), ERR_OK);
    while (atomic_load(&disk.refused) == 0)
        sched_yield();
    prepare(writer, 2, folder);
    order_writer_wait(writer, 2);
    order_writer_free(writer);
    assert_int_equal(atomic_load(&disk.logged), 0);
    assert_int_equal(atomic_load(&disk.failed), 0);
}

static int broken_fsync(const struct file_ops *ops, int fd)
{
    struct disk *disk = ops->context;
    if (fd != atomic_load(&disk->fd) || !atomic_load(&disk->full))
        return file_ops_real.fsync(ops, fd);
    errno = ENOSPC; /* as a disk that allocates late reports it */
    return -1;
}

/* Appended again it would be in the journal twice. */
TEST_IN_FOLDER(a_journal_that_cannot_be_synced_is_not_tried_again)
{
    const struct logger quiet = {LOG_LEVEL_ERROR, -1};
    struct disk disk = {.ops = file_ops_real, .fd = -1};
    struct order_writer *writer;
    disk.ops.open = disk_open;
    disk.ops.fsync = broken_fsync;
    disk.ops.context = &disk;
    const struct order_writer_config config = {.ops = &disk.ops,
                                               .logger = &quiet,
                                               .threads = 1,
                                               .boot = 1,
                                               .logged = logged,
                                               .failed = failed,
                                               .owner = &disk};
    assert_int_equal(order_writer_new(&config, &writer), ERR_OK);
    prepare(writer, 1, folder_path(state, "run/checkpoints"));
    order_writer_wait(writer, 1);
    atomic_store(&disk.full, true);
    take(writer, 1);
    while (atomic_load(&disk.failed) == 0)
        sched_yield();
    order_writer_free(writer);
    assert_int_equal(atomic_load(&disk.logged), 0);
    assert_int_equal(atomic_load(&disk.failed), 1);
}

TEST_IN_FOLDER(what_is_written_when_a_generation_has_begun_is_all_of_the_one_before)
{
    const char *folder = folder_path(state, "run/checkpoints");
    const struct logger quiet = {LOG_LEVEL_ERROR, -1};
    struct disk disk = {.fd = -1};
    struct order_writer *writer;
    unsigned before = 0, after = 0;
    uint64_t torn;
    const struct order_writer_config config = {.ops = &file_ops_real,
                                               .logger = &quiet,
                                               .threads = 1,
                                               .boot = 1,
                                               .logged = logged,
                                               .failed = failed,
                                               .owner = &disk};
    assert_int_equal(order_writer_new(&config, &writer), ERR_OK);
    prepare(writer, 1, folder);
    for (unsigned i = 0; i < 200; i++)
        take(writer, 1);
    prepare(writer, 2, folder);
    order_writer_wait(writer, 2);
    char journal[512];
    snprintf(journal, sizeof journal, "%s/" JOURNAL_FOLDER, folder);
    const struct journal_reader first = {&before, count_one}, second = {&after, count_one};
    assert_int_equal(journal_read(&file_ops_real, journal, &first, &torn, NULL), ERR_OK);
    order_writer_free(writer);
    assert_int_equal(journal_read(&file_ops_real, journal, &second, &torn, NULL), ERR_OK);
    assert_int_equal(before, 200);
    assert_int_equal(after, 200);
}
