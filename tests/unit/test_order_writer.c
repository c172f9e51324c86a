/* The thread that writes down what async shards do, at its edges; the rest is seen in whole runs.
 */
#include "tests/unit/folder.h"

#include "common/files/order.h"
#include "common/time.h"
#include "server/disk/journal.h"
#include "server/disk/order_writer.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>

enum { WAIT_MS = 5000 };

/* A disk that has no more room for files of the first generation. */
struct disk {
    struct file_ops ops;
    atomic_int fd; /* of its journal */
    atomic_bool full;
    bool syncs_fail; /* a full one takes the bytes and cannot sync them */
    atomic_uint refused;
    atomic_uint logged, failed, waits, goes_on;
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
    if (disk->syncs_fail || fd != atomic_load(&disk->fd) || !atomic_load(&disk->full))
        return file_ops_real.write(ops, fd, data, bytes);
    atomic_fetch_add(&disk->refused, 1);
    errno = ENOSPC;
    return -1;
}

static void logged(void *owner, uint32_t thread, uint64_t generation, uint64_t durable)
{
    struct disk *disk = owner;
    (void)thread, (void)generation, (void)durable;
    atomic_fetch_add(&disk->logged, 1);
}

static void full(void *owner, bool is_full)
{
    struct disk *disk = owner;
    atomic_fetch_add(is_full ? &disk->waits : &disk->goes_on, 1);
}

static void failed(void *owner, const struct reason *reason)
{
    struct disk *disk = owner;
    (void)reason;
    atomic_fetch_add(&disk->failed, 1);
}

struct writer_fixture {
    void *folder;
    const char *checkpoints;
    struct disk disk;
    struct order_writer *writer;
};

static int broken_fsync(const struct file_ops *ops, int fd)
{
    struct disk *disk = ops->context;
    if (!disk->syncs_fail || fd != atomic_load(&disk->fd) || !atomic_load(&disk->full))
        return file_ops_real.fsync(ops, fd);
    errno = ENOSPC; /* as a disk that allocates late reports it */
    return -1;
}

static void writer_set_up(struct writer_fixture *f)
{
    static const struct logger quiet = {LOG_LEVEL_ERROR, -1};
    assert_int_equal(folder_make(&f->folder), 0);
    f->checkpoints = folder_path(&f->folder, "run/checkpoints");
    f->disk.ops = file_ops_real;
    f->disk.ops.open = disk_open;
    f->disk.ops.write = disk_write;
    f->disk.ops.fsync = broken_fsync;
    f->disk.ops.context = &f->disk;
    f->disk.fd = -1;
    const struct order_writer_config config = {.ops = &f->disk.ops,
                                               .logger = &quiet,
                                               .threads = 1,
                                               .boot = 1,
                                               .logged = logged,
                                               .full = full,
                                               .failed = failed,
                                               .owner = &f->disk};
    assert_int_equal(order_writer_new(&config, &f->writer), ERR_OK);
}

static void writer_tear_down(struct writer_fixture *f)
{
    order_writer_free(f->writer);
    folder_remove(&f->folder);
}

/* It writes what it has, and ends. */
static void end(struct writer_fixture *f)
{
    order_writer_free(f->writer);
    f->writer = NULL;
}

static void prepare(struct writer_fixture *f, uint64_t generation)
{
    struct prepared *run = calloc(1, sizeof *run);
    assert_non_null(run);
    atomic_init(&run->references, 1);
    run->generation = generation;
    run->spec.checkpoint.durability = SPEC_DURABILITY_LOGGED;
    run->checkpoint_dir = strdup(f->checkpoints);
    assert_int_equal(order_writer_prepare(f->writer, run), ERR_OK);
    prepared_unref(run);
}

static void take(struct writer_fixture *f, uint64_t generation)
{
    struct counted *gradient = counted_new(4 * sizeof(float));
    assert_non_null(gradient);
    memset(gradient->data, 0, 4 * sizeof(float));
    const struct shard_order_entry entry = {.gradient = gradient};
    const struct shard_order order = {.kind = SHARD_ORDER_TAKE, .count = 1, .entries = &entry};
    assert_int_equal(order_writer_add(f->writer, 0, generation, &order), ERR_OK);
}

static size_t files_of(const char *folder)
{
    struct file_names names = {0};
    assert_int_equal(file_list(folder, &names, NULL), ERR_OK);
    size_t count = names.count;
    file_names_release(&names);
    return count;
}

/* Generation 1 has an entry for which there is no room. */
static void fill_disk(struct writer_fixture *f)
{
    prepare(f, 1);
    order_writer_wait(f->writer, 1);
    atomic_store(&f->disk.full, true);
    take(f, 1);
}

static enum err count_one(void *context, const struct journal_entry *entry, struct reason *reason)
{
    (void)entry, (void)reason;
    ++*(unsigned *)context;
    return ERR_OK;
}

static unsigned entries_of_journal(const struct writer_fixture *f)
{
    char journal[512];
    unsigned count = 0;
    uint64_t torn;
    const struct journal_reader reader = {&count, count_one};
    snprintf(journal, sizeof journal, "%s/" JOURNAL_FOLDER, f->checkpoints);
    assert_int_equal(journal_read(&file_ops_real, journal, &reader, &torn, NULL), ERR_OK);
    return count;
}

TEST_F(a_new_generation_does_not_wait_for_room_for_the_old_one, writer)
{
    order_writer_wait(f->writer, 1); /* nobody asked for it: at once */
    fill_disk(f);
    while (atomic_load(&f->disk.refused) == 0)
        sched_yield();
    prepare(f, 2);
    order_writer_wait(f->writer, 2);
    assert_int_equal(entries_of_journal(f), 0);
    end(f);
    assert_int_equal(atomic_load(&f->disk.logged), 0);
    assert_int_equal(atomic_load(&f->disk.failed), 0);
}

TEST_F(a_cut_does_not_wait_for_room_when_a_new_generation_begins, writer)
{
    fill_disk(f);
    assert_int_equal(order_writer_cut(f->writer, 1), ERR_OK);
    while (atomic_load(&f->disk.refused) == 0)
        sched_yield();
    prepare(f, 2);
    order_writer_wait(f->writer, 2);
    end(f);
    assert_int_equal(atomic_load(&f->disk.logged), 0);
    assert_int_equal(atomic_load(&f->disk.failed), 0);
}

TEST_F(it_says_that_it_waits_for_room_and_that_it_goes_on, writer)
{
    fill_disk(f);
    while (atomic_load(&f->disk.refused) < 2)
        sched_yield();
    assert_int_equal(atomic_load(&f->disk.waits), 1);
    assert_int_equal(atomic_load(&f->disk.goes_on), 0);
    atomic_store(&f->disk.full, false);
    while (atomic_load(&f->disk.logged) == 0)
        sched_yield();
    end(f);
    assert_int_equal(entries_of_journal(f), 1);
    assert_int_equal(atomic_load(&f->disk.waits), 1);
    assert_int_equal(atomic_load(&f->disk.goes_on), 1);
}

/* Appended again it would be in the journal twice. */
TEST_F(a_journal_that_cannot_be_synced_is_not_tried_again, writer, .disk.syncs_fail = true)
{
    fill_disk(f);
    while (atomic_load(&f->disk.failed) == 0)
        sched_yield();
    end(f);
    assert_int_equal(atomic_load(&f->disk.logged), 0);
    assert_int_equal(atomic_load(&f->disk.failed), 1);
}

static void await_refusals(struct writer_fixture *f, unsigned count)
{
    while (atomic_load(&f->disk.refused) < count) {
        assert_int_equal(atomic_load(&f->disk.failed), 0);
        sched_yield();
    }
}

TEST_F(a_generation_that_begins_on_a_full_disk_waits_for_room, writer)
{
    atomic_store(&f->disk.full, true);
    prepare(f, 1);
    order_writer_wait(f->writer, 1); /* the shards begin all the same */
    take(f, 1);
    await_refusals(f, 2);
    assert_int_equal(atomic_load(&f->disk.waits), 1);
    assert_int_equal(atomic_load(&f->disk.logged), 0);
    atomic_store(&f->disk.full, false);
    while (atomic_load(&f->disk.logged) == 0)
        sched_yield();
    assert_int_equal(atomic_load(&f->disk.goes_on), 1);
    end(f);
    assert_int_equal(entries_of_journal(f), 1);
    assert_int_equal(files_of(folder_path(&f->folder, "run/checkpoints/" JOURNAL_FOLDER)), 1);
}

TEST_F(a_daemon_that_ends_does_not_wait_for_room_to_begin_a_generation, writer)
{
    atomic_store(&f->disk.full, true);
    prepare(f, 1);
    await_refusals(f, 1);
    end(f);
    assert_int_equal(atomic_load(&f->disk.failed), 0);
    assert_int_equal(atomic_load(&f->disk.goes_on), 1);
}

TEST_F(a_run_that_has_ended_waits_for_no_room, writer)
{
    fill_disk(f);
    await_refusals(f, 1);
    order_writer_end(f->writer);
    uint64_t until_ns = time_after_ms(time_now_ns(), WAIT_MS);
    while (atomic_load(&f->disk.goes_on) == 0 && time_now_ns() < until_ns)
        sched_yield();
    assert_int_equal(atomic_load(&f->disk.goes_on), 1);
    end(f);
    assert_int_equal(atomic_load(&f->disk.logged), 0);
    assert_int_equal(atomic_load(&f->disk.failed), 0);
}

TEST_F(a_daemon_that_ends_drops_what_it_has_no_room_for, writer)
{
    fill_disk(f);
    await_refusals(f, 1);
    end(f);
    assert_int_equal(atomic_load(&f->disk.failed), 0);
}

TEST_F(what_comes_after_a_run_that_waited_for_room_has_ended_is_dropped, writer)
{
    fill_disk(f);
    await_refusals(f, 1);
    order_writer_end(f->writer);
    take(f, 1);
    end(f);
    assert_int_equal(atomic_load(&f->disk.waits), 1);
    assert_int_equal(atomic_load(&f->disk.failed), 0);
}

/* Of a coordinator that has lost its store, and does not know what the servers have prepared. */
TEST_F(another_run_of_the_same_generation_has_files_of_its_own, writer)
{
    const char *order = folder_path(&f->folder, "other/" ORDER_FOLDER);
    fill_disk(f);
    await_refusals(f, 1);
    f->checkpoints = folder_path(&f->folder, "other/checkpoints");
    prepare(f, 1);
    order_writer_wait(f->writer, 1);
    assert_int_equal(files_of(order), 1);
    end(f);
    assert_int_equal(atomic_load(&f->disk.failed), 0);
}

/* A server that lost its folder lost its boots as well: the next one may be lower. */
TEST_F(an_order_log_stands_behind_those_of_earlier_boots, writer)
{
    const char *order = folder_path(&f->folder, "run/" ORDER_FOLDER);
    assert_int_equal(file_make_dirs(order, 0755, NULL), ERR_OK);
    folder_write(&f->folder, "run/order/server-0-g1-b7.log", "", 0);
    folder_write(&f->folder, "run/order/server-0-g2-b20.log", "", 0);
    folder_write(&f->folder, "run/order/server-1-g1-b30.log", "", 0);
    folder_write(&f->folder, "run/order/server-0-g1-b40.log.tmp", "", 0);
    prepare(f, 1);
    order_writer_wait(f->writer, 1);
    end(f);
    assert_int_equal(files_of(order), 5);
    const char *log = folder_path(&f->folder, "run/order/server-0-g1-b8.log");
    assert_int_equal(file_stat(log, &(struct file_info){0}, NULL), ERR_OK);
}

TEST_F(what_is_written_when_a_generation_has_begun_is_all_of_the_one_before, writer)
{
    prepare(f, 1);
    for (unsigned i = 0; i < 200; i++)
        take(f, 1);
    prepare(f, 2);
    order_writer_wait(f->writer, 2);
    assert_int_equal(entries_of_journal(f), 200);
    end(f);
    assert_int_equal(entries_of_journal(f), 200);
}
