/* The store on a disk that is full or broken. SQLite reaches it through a VFS of this file's, which
 * is the system's, but for operations that fail as a test says. */
#include "tests/unit/folder.h"

#include "server/disk/store.h"

#include <errno.h>
#include <sqlite3.h>

/* Which file fails. */
enum { MAIN, LOG, FILES };

static struct {
    sqlite3_vfs *real, vfs;
    const sqlite3_io_methods *methods[FILES]; /* the system's */
    sqlite3_io_methods faulty[FILES];
    int write_number; /* the errno of writes to `file`; 0: they do not fail */
    int sync_code;    /* SQLite's code for its syncs; 0: they do not fail */
    int file;
    unsigned main_writes;
} disk;

static ssize_t full_pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    (void)fd, (void)data, (void)bytes, (void)offset;
    errno = disk.write_number;
    return -1;
}

static ssize_t full_write(int fd, const void *data, size_t bytes)
{
    return full_pwrite(fd, data, bytes, 0);
}

/* SQLite's own VFS says what an errno is, so the system's calls fail beneath it: that one of them
 * which it was built for. */
static void writes_fail(bool fail)
{
    static const char *const names[] = {"pwrite", "pwrite64", "write"};
    const sqlite3_syscall_ptr calls[] = {(sqlite3_syscall_ptr)full_pwrite,
                                         (sqlite3_syscall_ptr)full_pwrite,
                                         (sqlite3_syscall_ptr)full_write};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        disk.real->xSetSystemCall(disk.real, names[i], fail ? calls[i] : NULL);
}

static int write_file(int which, sqlite3_file *file, const void *data, int bytes,
                      sqlite3_int64 offset)
{
    bool fails = disk.write_number != 0 && disk.file == which;
    writes_fail(fails);
    int code = disk.methods[which]->xWrite(file, data, bytes, offset);
    writes_fail(false);
    disk.main_writes += which == MAIN && !fails ? 1 : 0;
    return code;
}

static int write_main(sqlite3_file *file, const void *data, int bytes, sqlite3_int64 offset)
{
    return write_file(MAIN, file, data, bytes, offset);
}

static int write_log(sqlite3_file *file, const void *data, int bytes, sqlite3_int64 offset)
{
    return write_file(LOG, file, data, bytes, offset);
}

static int sync_file(int which, sqlite3_file *file, int flags)
{
    errno = EIO;
    return disk.sync_code != 0 && disk.file == which ? disk.sync_code
                                                     : disk.methods[which]->xSync(file, flags);
}

static int sync_main(sqlite3_file *file, int flags)
{
    return sync_file(MAIN, file, flags);
}

static int sync_log(sqlite3_file *file, int flags)
{
    return sync_file(LOG, file, flags);
}

static int open_file(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags,
                     int *ret_flags)
{
    int code = disk.real->xOpen(vfs, path, file, flags, ret_flags);
    int which = (flags & SQLITE_OPEN_MAIN_DB) != 0 ? MAIN : LOG;
    if (code != SQLITE_OK)
        return code;
    disk.methods[which] = file->pMethods;
    disk.faulty[which] = *file->pMethods;
    disk.faulty[which].xWrite = which == MAIN ? write_main : write_log;
    disk.faulty[which].xSync = which == MAIN ? sync_main : sync_log;
    file->pMethods = &disk.faulty[which];
    return SQLITE_OK;
}

struct broken_store_fixture {
    void *folder;
    struct store *store;
    uint64_t term;
    struct reason reason;
};

static void reopen(struct broken_store_fixture *f)
{
    store_free(f->store);
    f->store = NULL;
    assert_int_equal(store_open_sqlite(folder_path(&f->folder, "roost.db"), &f->store, NULL),
                     ERR_OK);
}

static void broken_store_set_up(struct broken_store_fixture *f)
{
    disk.write_number = disk.sync_code = 0;
    disk.real = sqlite3_vfs_find("unix");
    assert_non_null(disk.real);
    disk.vfs = *disk.real;
    disk.vfs.zName = "faulty";
    disk.vfs.xOpen = open_file;
    assert_int_equal(sqlite3_vfs_register(&disk.vfs, 1), SQLITE_OK);
    assert_int_equal(folder_make(&f->folder), 0);
    reopen(f);
    assert_int_equal(store_take_term(f->store, &f->term, NULL), ERR_OK);
}

static void broken_store_tear_down(struct broken_store_fixture *f)
{
    disk.write_number = disk.sync_code = 0;
    store_free(f->store);
    folder_remove(&f->folder);
    sqlite3_vfs_unregister(&disk.vfs);
}

static enum err put_generation(struct broken_store_fixture *f, uint64_t generation)
{
    return store_put_generation(f->store, f->term, 1, generation, &f->reason);
}

static uint64_t generation(struct broken_store_fixture *f)
{
    struct coordinator_past past;
    assert_int_equal(store_get_past(f->store, 1, &past, NULL), ERR_OK);
    return past.generation;
}

TEST_F(a_full_disk_and_a_full_quota_have_no_space_and_are_tried_again, broken_store)
{
    static const struct {
        int number;
        enum err err;
    } rows[] = {{ENOSPC, ERR_NO_SPACE}, {EDQUOT, ERR_NO_SPACE}, {EIO, ERR_IO}};
    assert_int_equal(put_generation(f, 1), ERR_OK);
    for (uint64_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        disk.file = LOG;
        disk.write_number = rows[i].number;
        assert_int_equal(put_generation(f, 2 + i), rows[i].err);
        assert_int_equal(put_generation(f, 2 + i), rows[i].err);
        assert_non_null(strstr(f->reason.text, "roost.db"));
        disk.write_number = 0;
        assert_int_equal(generation(f), 1 + i);
        assert_int_equal(put_generation(f, 2 + i), ERR_OK);
        assert_int_equal(generation(f), 2 + i);
    }
}

TEST_F(what_may_not_be_on_disk_is_not_synced, broken_store)
{
    static const int codes[] = {SQLITE_IOERR_FSYNC, SQLITE_IOERR_DIR_FSYNC};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        disk.file = LOG;
        disk.sync_code = codes[i];
        assert_int_equal(put_generation(f, 5), ERR_NOT_SYNCED);
        disk.sync_code = 0;
        reopen(f); /* as the daemon does that ends */
        assert_int_equal(put_generation(f, 6), ERR_OK);
    }
}

/* ---- the log is folded into the file ---- */

enum { WRITES = 200, LOG_BYTES_MAX = 64 * 4096 };

TEST_F(the_log_stays_small, broken_store)
{
    struct file_info info;
    disk.main_writes = 0;
    for (uint64_t i = 1; i <= WRITES; i++)
        assert_int_equal(put_generation(f, i), ERR_OK);
    assert_in_range(disk.main_writes, 4, WRITES);
    assert_int_equal(file_stat(folder_path(&f->folder, "roost.db-wal"), &info, NULL), ERR_OK);
    assert_in_range(info.bytes, 1, LOG_BYTES_MAX);
}

TEST_F(a_sync_that_fails_as_the_log_is_folded_is_known_before_the_next_fact, broken_store)
{
    enum err err = ERR_OK;
    uint64_t next = 0;
    disk.file = MAIN;
    disk.sync_code = SQLITE_IOERR_FSYNC;
    while (err == ERR_OK && next < WRITES)
        err = put_generation(f, ++next);
    assert_int_equal(err, ERR_NOT_SYNCED);
    assert_int_equal(generation(f), next - 1);
    disk.sync_code = 0;
    reopen(f);
    assert_int_equal(generation(f), next - 1);
}

TEST_F(a_log_that_has_no_room_in_the_file_is_folded_later, broken_store)
{
    disk.main_writes = 0;
    disk.file = MAIN;
    disk.write_number = EDQUOT;
    for (uint64_t i = 1; i <= WRITES; i++)
        assert_int_equal(put_generation(f, i), ERR_OK);
    assert_int_equal(disk.main_writes, 0);
    disk.write_number = 0;
    assert_int_equal(put_generation(f, WRITES + 1), ERR_OK);
    assert_true(disk.main_writes > 0);
    reopen(f);
    assert_int_equal(generation(f), WRITES + 1);
}
