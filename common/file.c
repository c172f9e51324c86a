/* Files above the table of operations: files that appear whole, files that grow. */
#include "common/file.h"

#include "common/rand.h"
#include "common/scoped.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum err file_failed(const char *verb, const char *path, struct reason *reason)
{
    int number = errno;
    return reason_set(reason, err_from_errno(number), "cannot %s %s: %s", verb, path,
                      strerror(number));
}

/* Whatever the system's error is: what was written may be lost, and a second fsync() that succeeds
 * does not bring it back. */
static enum err sync_failed(const char *path, struct reason *reason)
{
    return reason_set(reason, ERR_NOT_SYNCED, "cannot sync %s: %s", path, strerror(errno));
}

static enum err write_all(const struct file_ops *ops, int fd, struct slice bytes, const char *path,
                          struct reason *reason)
{
    while (bytes.bytes > 0) {
        ssize_t written = ops->write(ops, fd, bytes.data, bytes.bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return file_failed("write", path, reason);
        bytes = (struct slice){bytes.data + written, bytes.bytes - (size_t)written};
    }
    return ERR_OK;
}

static enum err sync_path(const struct file_ops *ops, const char *path, int flags,
                          struct reason *reason)
{
    int fd = ops->open(ops, path, O_RDONLY | O_CLOEXEC | flags, 0);
    if (fd < 0)
        return file_failed("open", path, reason);
    enum err err = ops->fsync(ops, fd) == 0 ? ERR_OK : sync_failed(path, reason);
    ops->close(ops, fd);
    return err;
}

enum err file_settle(const struct file_ops *ops, const char *path, struct reason *reason)
{
    TRY(sync_path(ops, path, 0, reason));
    file_forget_cached(path);
    return ERR_OK;
}

enum err file_sync_dir(const struct file_ops *ops, const char *path, struct reason *reason)
{
    return sync_path(ops, path, O_DIRECTORY, reason);
}

enum err file_sync_parent(const struct file_ops *ops, const char *path, struct reason *reason)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return file_sync_dir(ops, ".", reason);
    scoped(free_scoped) char *parent = strndup(path, slash == path ? 1 : (size_t)(slash - path));
    if (parent == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to sync the folder of %s", path);
    return file_sync_dir(ops, parent, reason);
}

enum err file_writer_open(const struct file_ops *ops, const char *path, unsigned mode,
                          struct file_writer *ret_writer, struct reason *reason)
{
    struct file_writer writer = {.ops = ops, .path = strdup(path), .fd = -1};
    if (writer.path == NULL || asprintf(&writer.path_tmp, "%s.tmp", path) < 0) {
        free(writer.path);
        return reason_set(reason, ERR_NOMEM, "no memory to write %s", path);
    }
    /* Removes a file that a crash left behind first: its mode may be another. */
    ops->unlink(ops, writer.path_tmp);
    writer.fd =
        ops->open(ops, writer.path_tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (writer.fd < 0) {
        enum err err = file_failed("create", writer.path_tmp, reason);
        free(writer.path);
        free(writer.path_tmp);
        return err;
    }
    *ret_writer = writer;
    return ERR_OK;
}

/* So at most two such pieces of a large file wait in memory for the disk: its last fsync() is
 * short, and so are those of other files, which it would hold up. */
static enum err write_back(struct file_writer *writer, struct reason *reason)
{
    const uint64_t piece_bytes = 8 << 20;
    const struct file_ops *ops = writer->ops;
    uint64_t from = writer->before.offset + writer->before.bytes;
    if (ops->write_back == NULL || writer->bytes - from < piece_bytes)
        return ERR_OK;
    struct file_range piece = {from, writer->bytes - from};
    if (ops->write_back(ops, writer->fd, writer->before, piece) != 0)
        return sync_failed(writer->path_tmp, reason);
    writer->before = piece;
    return ERR_OK;
}

void file_writer_direct(struct file_writer *writer)
{
    const struct file_ops *ops = writer->ops;
    const size_t page_bytes = 4096;
    check(writer->bytes == 0 && writer->staged == NULL);
    writer->staged = ops->direct == NULL ? NULL : aligned_alloc(page_bytes, FILE_DIRECT_BYTES);
    if (writer->staged != NULL && ops->direct(ops, writer->fd, true) != 0) {
        free(writer->staged);
        writer->staged = NULL;
    }
}

/* The rest goes through the page cache: a file's end has no whole pages, and some file systems
 * refuse the first direct write. */
static enum err end_direct(struct file_writer *writer, struct reason *reason)
{
    scoped(free_scoped) uint8_t *staged = writer->staged;
    writer->staged = NULL;
    if (staged == NULL)
        return ERR_OK;
    if (writer->ops->direct(writer->ops, writer->fd, false) != 0)
        return file_failed("write", writer->path_tmp, reason);
    struct slice rest = {staged, writer->staged_bytes};
    return write_all(writer->ops, writer->fd, rest, writer->path_tmp, reason);
}

/* What the disk does not take as a whole (EINVAL, or less) goes through the page cache, and so does
 * all that follows. */
static enum err write_staged(struct file_writer *writer, struct reason *reason)
{
    const struct file_ops *ops = writer->ops;
    ssize_t written = ops->write(ops, writer->fd, writer->staged, writer->staged_bytes);
    if (written < 0 && errno != EINVAL && errno != EINTR)
        return file_failed("write", writer->path_tmp, reason);
    writer->staged_bytes -= written < 0 ? 0 : (size_t)written;
    if (writer->staged_bytes == 0)
        return ERR_OK;
    memmove(writer->staged, writer->staged + FILE_DIRECT_BYTES - writer->staged_bytes,
            writer->staged_bytes);
    return end_direct(writer, reason);
}

/* Takes from *bytes what there is room for. */
static void stage(struct file_writer *writer, struct slice *bytes)
{
    size_t room = FILE_DIRECT_BYTES - writer->staged_bytes;
    size_t part = bytes->bytes < room ? bytes->bytes : room;
    memcpy(writer->staged + writer->staged_bytes, bytes->data, part);
    writer->staged_bytes += part;
    *bytes = (struct slice){bytes->data + part, bytes->bytes - part};
}

enum err file_writer_write(struct file_writer *writer, struct slice bytes, struct reason *reason)
{
    writer->bytes += bytes.bytes;
    while (writer->staged != NULL && bytes.bytes > 0) {
        stage(writer, &bytes);
        if (writer->staged_bytes == FILE_DIRECT_BYTES)
            TRY(write_staged(writer, reason));
    }
    if (writer->staged != NULL)
        return ERR_OK;
    TRY(write_all(writer->ops, writer->fd, bytes, writer->path_tmp, reason));
    return write_back(writer, reason);
}

enum err file_writer_commit(struct file_writer *writer, struct reason *reason)
{
    const struct file_ops *ops = writer->ops;
    TRY(end_direct(writer, reason));
    if (ops->fsync(ops, writer->fd) != 0)
        return sync_failed(writer->path_tmp, reason);
    if (ops->rename(ops, writer->path_tmp, writer->path) != 0)
        return file_failed("rename to", writer->path, reason);
    free(writer->path_tmp);
    writer->path_tmp = NULL;
    return file_sync_parent(ops, writer->path, reason);
}

void file_writer_release(struct file_writer *writer)
{
    if (writer->path == NULL)
        return;
    writer->ops->close(writer->ops, writer->fd);
    if (writer->path_tmp != NULL)
        writer->ops->unlink(writer->ops, writer->path_tmp);
    free(writer->staged);
    free(writer->path_tmp);
    free(writer->path);
    *writer = (struct file_writer){0};
}

enum err file_write_atomic(const struct file_ops *ops, const char *path, unsigned mode,
                           struct slice bytes, struct reason *reason)
{
    scoped(file_writer_release) struct file_writer writer = {0};
    TRY(file_writer_open(ops, path, mode, &writer, reason));
    TRY(file_writer_write(&writer, bytes, reason));
    return file_writer_commit(&writer, reason);
}

enum err file_log_open(const struct file_ops *ops, const char *path, struct file_log *ret_log,
                       struct reason *reason)
{
    scoped(file_log_release) struct file_log log = {.ops = ops, .path = strdup(path), .fd = -1};
    if (log.path == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to open %s", path);
    log.fd = ops->open(ops, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log.fd < 0)
        return file_failed("open", path, reason);
    struct file_info info;
    TRY(file_stat(path, &info, reason));
    log.bytes = info.bytes;
    TRY(file_sync_parent(ops, path, reason));
    *ret_log = log;
    log = (struct file_log){0};
    return ERR_OK;
}

/* Two processes that replace a log at once do not write one file. */
static enum err name_of_its_own(const char *path, char **ret_path, struct reason *reason)
{
    uint64_t number;
    if (rand_system(&number, sizeof number) != ERR_OK)
        return reason_set(reason, ERR_IO, "the system gives no random numbers");
    if (asprintf(ret_path, "%s.%016llx.tmp", path, (unsigned long long)number) < 0)
        return reason_set(reason, ERR_NOMEM, "no memory to write %s", path);
    return ERR_OK;
}

static enum err put_in_place(struct file_log *log, const char *path_tmp, struct slice bytes,
                             struct reason *reason)
{
    TRY(file_log_append(log, bytes, reason));
    TRY(file_log_sync(log, reason));
    if (log->ops->rename(log->ops, path_tmp, log->path) != 0)
        return file_failed("rename to", log->path, reason);
    return file_sync_parent(log->ops, log->path, reason);
}

enum err file_log_replace(const struct file_ops *ops, const char *path, struct slice bytes,
                          struct file_log *ret_log, struct reason *reason)
{
    scoped(file_log_release) struct file_log log = {.ops = ops, .path = strdup(path), .fd = -1};
    scoped(free_scoped) char *path_tmp = NULL;
    if (log.path == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to open %s", path);
    TRY(name_of_its_own(path, &path_tmp, reason));
    log.fd = ops->open(ops, path_tmp,
                       O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (log.fd < 0)
        return file_failed("create", path_tmp, reason);
    enum err err = put_in_place(&log, path_tmp, bytes, reason);
    if (err != ERR_OK) {
        ops->unlink(ops, path_tmp);
        return err;
    }
    *ret_log = log;
    log = (struct file_log){0};
    return ERR_OK;
}

enum err file_log_append(struct file_log *log, struct slice bytes, struct reason *reason)
{
    enum err err = write_all(log->ops, log->fd, bytes, log->path, reason);
    if (err == ERR_OK)
        log->bytes += bytes.bytes;
    else if (log->ops->truncate(log->ops, log->fd, log->bytes) != 0)
        return file_failed("take back an append to", log->path, reason);
    return err;
}

enum err file_log_sync(struct file_log *log, struct reason *reason)
{
    if (log->ops->fsync(log->ops, log->fd) != 0)
        return sync_failed(log->path, reason);
    return ERR_OK;
}

enum err file_log_truncate(struct file_log *log, uint64_t bytes, struct reason *reason)
{
    if (bytes > log->bytes)
        return reason_set(reason, ERR_CORRUPT, "%s has %llu bytes, %llu were written", log->path,
                          (unsigned long long)log->bytes, (unsigned long long)bytes);
    if (log->ops->truncate(log->ops, log->fd, bytes) != 0)
        return file_failed("shorten", log->path, reason);
    log->bytes = bytes;
    return file_log_sync(log, reason);
}

void file_log_release(struct file_log *log)
{
    if (log->path != NULL && log->fd >= 0)
        log->ops->close(log->ops, log->fd);
    free(log->path);
    *log = (struct file_log){0};
}

void file_names_release(struct file_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
    *names = (struct file_names){0};
}

enum err file_names_add(struct file_names *names, const char *name)
{
    /* Room doubles at every power of two. */
    if ((names->count & (names->count - 1)) == 0) {
        size_t room = names->count == 0 ? 1 : names->count * 2;
        char **larger = reallocarray(names->names, room, sizeof *larger);
        if (larger == NULL)
            return ERR_NOMEM;
        names->names = larger;
    }
    char *copy = strdup(name);
    if (copy == NULL)
        return ERR_NOMEM;
    names->names[names->count++] = copy;
    return ERR_OK;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void file_names_sort(struct file_names *names)
{
    if (names->count > 1)
        qsort(names->names, names->count, sizeof *names->names, by_bytes);
}
