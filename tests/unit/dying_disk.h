/* A disk on which each operation may be the last one that is carried out.
 *
 * After it the process is gone, and in three of four ways the machine as well: then bytes that were
 * not synced are lost (the file keeps half of them, or their places with zeros in the first half),
 * and names that were not synced either too, or they are the only thing that survives. */
#ifndef ROOST_TESTS_UNIT_DYING_DISK_H
#define ROOST_TESTS_UNIT_DYING_DISK_H

#include "tests/unit/unit.h"

#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum death { PROCESS, MACHINE, MACHINE_KEEPS_NAMES, MACHINE_SCRAMBLES, DEATHS };

enum { FILES_MAX = 64 };

/* A file since it was created: how much of it is safe, and under which name. */
struct written {
    char path[512], path_before[512]; /* renamed from, "": not renamed */
    int fd;
    off_t bytes, synced_bytes;
    bool name_synced;
};

struct disk {
    struct file_ops ops;
    int count, die_at; /* operations; the last one */
    size_t file_count;
    struct written files[FILES_MAX];
};

static inline struct disk *disk_of(const struct file_ops *ops)
{
    return ops->context;
}

/* Nothing is carried out any more. */
static inline bool is_dead(const struct file_ops *ops)
{
    errno = EIO;
    return disk_of(ops)->count++ >= disk_of(ops)->die_at;
}

static inline int disk_open(const struct file_ops *ops, const char *path, int flags, unsigned mode)
{
    struct disk *disk = disk_of(ops);
    if (is_dead(ops))
        return -1;
    int fd = file_ops_real.open(ops, path, flags, mode);
    if (fd < 0)
        return fd;
    for (size_t i = 0; i < disk->file_count; i++)
        if (disk->files[i].fd == fd)
            disk->files[i].fd = -1; /* closed since */
    assert_true(disk->file_count < FILES_MAX);
    struct written *file = &disk->files[disk->file_count++];
    *file = (struct written){.fd = fd};
    snprintf(file->path, sizeof file->path, "%s", path);
    return fd;
}

static inline struct written *opened(const struct file_ops *ops, int fd)
{
    struct disk *disk = disk_of(ops);
    for (size_t i = disk->file_count; i-- > 0;)
        if (disk->files[i].fd == fd)
            return &disk->files[i];
    fail_msg("nobody opened it");
    return NULL;
}

static inline ssize_t disk_write(const struct file_ops *ops, int fd, const void *data, size_t bytes)
{
    if (is_dead(ops))
        return -1;
    ssize_t written = file_ops_real.write(ops, fd, data, bytes);
    opened(ops, fd)->bytes += written;
    return written;
}

/* Of a file: its bytes are safe; of a folder: the names in it. */
static inline int disk_fsync(const struct file_ops *ops, int fd)
{
    struct disk *disk = disk_of(ops);
    if (is_dead(ops))
        return -1;
    struct written *file = opened(ops, fd);
    file->synced_bytes = file->bytes;
    size_t length = strlen(file->path);
    for (size_t i = 0; i < disk->file_count; i++) {
        const char *path = disk->files[i].path;
        if (strncmp(path, file->path, length) == 0 && path[length] == '/' &&
            strchr(path + length + 1, '/') == NULL)
            disk->files[i].name_synced = true;
    }
    return 0;
}

static inline int disk_rename(const struct file_ops *ops, const char *from, const char *to)
{
    struct disk *disk = disk_of(ops);
    if (is_dead(ops) || rename(from, to) != 0)
        return -1;
    for (size_t i = disk->file_count; i-- > 0;) {
        struct written *file = &disk->files[i];
        if (strcmp(file->path, from) == 0) {
            snprintf(file->path_before, sizeof file->path_before, "%s", from);
            snprintf(file->path, sizeof file->path, "%s", to);
            file->name_synced = false;
            return 0;
        }
    }
    fail_msg("%s was not written", from);
    return -1;
}

static inline int disk_unlink(const struct file_ops *ops, const char *path)
{
    return is_dead(ops) ? -1 : file_ops_real.unlink(ops, path);
}

static inline int disk_truncate(const struct file_ops *ops, int fd, uint64_t bytes)
{
    if (is_dead(ops))
        return -1;
    opened(ops, fd)->bytes = (off_t)bytes;
    return file_ops_real.truncate(ops, fd, bytes);
}

static inline void disk_init(struct disk *disk, int die_at)
{
    *disk = (struct disk){.ops = file_ops_real, .die_at = die_at};
    disk->ops.open = disk_open;
    disk->ops.write = disk_write;
    disk->ops.fsync = disk_fsync;
    disk->ops.rename = disk_rename;
    disk->ops.truncate = disk_truncate;
    disk->ops.unlink = disk_unlink;
    disk->ops.context = disk;
}

/* Pages are written in any order: the first ones may be missing. */
static inline void disk_scramble(const char *path, off_t begin, off_t end)
{
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    for (; begin < end; begin++)
        assert_int_equal(pwrite(fd, "", 1, begin), 1);
    close(fd);
}

/* What the machine's end takes with it. */
static inline void disk_lose(const struct disk *disk, enum death death)
{
    for (size_t i = disk->file_count; death != PROCESS && i-- > 0;) {
        const struct written *file = &disk->files[i];
        off_t half = file->synced_bytes + (file->bytes - file->synced_bytes) / 2;
        bool lost = file->bytes > file->synced_bytes && access(file->path, F_OK) == 0;
        if (lost && death == MACHINE_SCRAMBLES)
            disk_scramble(file->path, file->synced_bytes, half);
        else if (lost)
            assert_int_equal(truncate(file->path, half), 0);
        if (death == MACHINE && !file->name_synced && file->path_before[0] != 0)
            assert_int_equal(rename(file->path, file->path_before), 0);
    }
}

#endif
