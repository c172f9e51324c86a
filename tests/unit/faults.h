/* File operations that fail when a test says so: a full disk, a file that cannot be synced, a
 * process that dies. (A machine that dies is in dying_disk.h.) */
#ifndef ROOST_TESTS_UNIT_FAULTS_H
#define ROOST_TESTS_UNIT_FAULTS_H

#include "tests/unit/unit.h"

#include "common/file.h"

#include <errno.h>

/* The real operations, of which the `fail_at`-th (from 1) fails with `number`. */
struct faults {
    struct file_ops ops;
    int count, fail_at, number;
    bool dies;         /* all behind it fail, too */
    bool short_writes; /* one byte at a time */
};

static inline bool fault_now(const struct file_ops *ops)
{
    struct faults *faults = ops->context;
    errno = faults->number;
    return ++faults->count == faults->fail_at || (faults->dies && faults->count > faults->fail_at);
}

static inline int fault_open(const struct file_ops *ops, const char *path, int flags, unsigned mode)
{
    return fault_now(ops) ? -1 : file_ops_real.open(ops, path, flags, mode);
}

static inline ssize_t fault_write(const struct file_ops *ops, int fd, const void *data,
                                  size_t bytes)
{
    const struct faults *faults = ops->context;
    if (fault_now(ops))
        return -1;
    return file_ops_real.write(ops, fd, data, faults->short_writes && bytes > 1 ? 1 : bytes);
}

static inline int fault_fsync(const struct file_ops *ops, int fd)
{
    return fault_now(ops) ? -1 : file_ops_real.fsync(ops, fd);
}

static inline int fault_truncate(const struct file_ops *ops, int fd, uint64_t bytes)
{
    return fault_now(ops) ? -1 : file_ops_real.truncate(ops, fd, bytes);
}

static inline int fault_rename(const struct file_ops *ops, const char *from, const char *to)
{
    return fault_now(ops) ? -1 : file_ops_real.rename(ops, from, to);
}

static inline int fault_write_back(const struct file_ops *ops, int fd, struct file_range before,
                                   struct file_range bytes)
{
    assert_int_equal(bytes.offset, before.offset + before.bytes);
    return fault_now(ops) ? -1 : file_ops_real.write_back(ops, fd, before, bytes);
}

static inline void faults_init(struct faults *faults, int fail_at, int number)
{
    *faults = (struct faults){
        .ops = {fault_open, file_ops_real.close, fault_write, fault_fsync, fault_truncate,
                fault_rename, file_ops_real.unlink, fault_write_back, file_ops_real.direct, faults},
        .fail_at = fail_at,
        .number = number,
    };
}

/* ---- single operations, for a copy of the real ones ---- */

static inline ssize_t full_write(const struct file_ops *ops, int fd, const void *data, size_t bytes)
{
    (void)ops, (void)fd, (void)data, (void)bytes;
    errno = ENOSPC;
    return -1;
}

static inline int broken_fsync(const struct file_ops *ops, int fd)
{
    (void)ops, (void)fd;
    errno = EIO;
    return -1;
}

static inline int no_fsync(const struct file_ops *ops, int fd)
{
    (void)ops, (void)fd;
    return 0;
}

/* The real operations, but a sync that costs nothing: for what is not about crashes of the
 * machine. */
static inline struct file_ops quick_ops(void)
{
    struct file_ops ops = file_ops_real;
    ops.fsync = no_fsync;
    return ops;
}

#endif
