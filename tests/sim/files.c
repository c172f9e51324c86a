#include "tests/sim/files.h"

#include "common/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct files_one *find_open(const struct file_ops *ops, int fd)
{
    struct files *files = ops->context;
    for (uint32_t i = 0; i < files->count; i++)
        if (files->list[i].fd == fd || files->list[i].read_fd == fd)
            return &files->list[i];
    return NULL;
}

static struct files_one *add(struct files *files, const char *path)
{
    struct files_one *list = realloc(files->list, (files->count + 1) * sizeof *list);
    check(list != NULL);
    files->list = list;
    uint32_t at = files->count++;
    for (; at > 0 && strcmp(list[at - 1].path, path) > 0; at--)
        list[at] = list[at - 1];
    list[at] = (struct files_one){.path = strdup(path), .fd = -1, .read_fd = -1};
    check(list[at].path != NULL);
    return &list[at];
}

/* What is opened is a number, and of no bytes. */
static int open_one(const struct file_ops *ops, const char *path, int flags, unsigned mode)
{
    struct files *files = ops->context;
    bool writes = (flags & O_ACCMODE) != O_RDONLY;
    (void)mode;
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    check(fd >= 0);
    struct files_one *old = find_open(ops, fd);
    if (old != NULL) /* it was closed */
        *(old->fd == fd ? &old->fd : &old->read_fd) = -1;
    if ((flags & O_DIRECTORY) != 0)
        return fd;
    uint32_t i = 0;
    while (i < files->count && strcmp(files->list[i].path, path) != 0)
        i++;
    check(writes || i < files->count);
    struct files_one *one = i < files->count ? &files->list[i] : add(files, path);
    *(writes ? &one->fd : &one->read_fd) = fd;
    return fd;
}

static ssize_t write_one(const struct file_ops *ops, int fd, const void *data, size_t bytes)
{
    struct files *files = ops->context;
    struct files_one *one = find_open(ops, fd);
    check(one != NULL);
    if (files->full || (files->dying && files->bytes_left == 0)) {
        errno = files->full ? ENOSPC : EIO;
        return -1;
    }
    if (files->dying && bytes > files->bytes_left)
        bytes = files->bytes_left;
    files->bytes_left -= files->dying ? bytes : 0;
    check(buf_append(&one->bytes, data, bytes) == ERR_OK);
    return (ssize_t)bytes;
}

static int fsync_one(const struct file_ops *ops, int fd)
{
    struct files *files = ops->context;
    struct files_one *one = find_open(ops, fd);
    if (files->dying) {
        errno = EIO;
        return -1;
    }
    if (one != NULL)
        one->synced = one->bytes.bytes;
    for (uint32_t i = 0; one == NULL && i < files->count; i++)
        files->list[i].named = true;
    return 0;
}

static int truncate_one(const struct file_ops *ops, int fd, uint64_t bytes)
{
    struct files *files = ops->context;
    struct files_one *one = find_open(ops, fd);
    check(one != NULL && bytes <= one->bytes.bytes);
    if (files->dying) {
        errno = EIO;
        return -1;
    }
    one->bytes.bytes = bytes;
    return 0;
}

void files_init(struct files *files)
{
    *files = (struct files){.ops = {.open = open_one,
                                    .write = write_one,
                                    .fsync = fsync_one,
                                    .truncate = truncate_one,
                                    .context = files}};
}

void files_remove(struct files *files, uint32_t index)
{
    free(files->list[index].path);
    buf_release(&files->list[index].bytes);
    memmove(&files->list[index], &files->list[index + 1],
            (--files->count - index) * sizeof files->list[0]);
}

void files_release(struct files *files)
{
    while (files->count > 0)
        files_remove(files, files->count - 1);
    free(files->list);
    files->list = NULL;
}

/* Of what was not synced some may be there, and not as it was written. */
static void lose(struct files_one *one, struct rand_state *random)
{
    size_t unsynced = one->bytes.bytes - one->synced;
    if (unsynced == 0)
        return;
    size_t first = one->synced + rand_below(random, unsynced);
    if (rand_below(random, 2) == 0)
        one->bytes.bytes = first;
    else
        memset(one->bytes.data + first, 0, 1 + rand_below(random, one->bytes.bytes - first));
}

void files_crash(struct files *files, bool power, struct rand_state *random)
{
    files->dying = files->full = false;
    for (uint32_t i = files->count; i-- > 0;) {
        struct files_one *one = &files->list[i];
        one->fd = one->read_fd = -1;
        if (!power)
            continue;
        lose(one, random);
        one->synced = one->bytes.bytes; /* it is what the disk has */
        if (!one->named && rand_below(random, 2) == 0)
            files_remove(files, i);
        else
            one->named = true;
    }
}
