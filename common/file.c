/* Files by system calls; what must survive a crash goes through the table of operations. */
#include "common/file.h"

#include "common/scoped.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int real_open(const struct file_ops *ops, const char *path, int flags, unsigned mode)
{
    (void)ops;
    return open(path, flags, (mode_t)mode);
}

static ssize_t real_write(const struct file_ops *ops, int fd, const void *data, size_t bytes)
{
    (void)ops;
    return write(fd, data, bytes);
}

static int real_fsync(const struct file_ops *ops, int fd)
{
    (void)ops;
    return fsync(fd);
}

static int real_truncate(const struct file_ops *ops, int fd, uint64_t bytes)
{
    (void)ops;
    return ftruncate(fd, (off_t)bytes);
}

static int real_rename(const struct file_ops *ops, const char *from, const char *to)
{
    (void)ops;
    return rename(from, to);
}

static int real_unlink(const struct file_ops *ops, const char *path)
{
    (void)ops;
    return unlink(path);
}

const struct file_ops file_ops_real = {
    .open = real_open,
    .write = real_write,
    .fsync = real_fsync,
    .truncate = real_truncate,
    .rename = real_rename,
    .unlink = real_unlink,
};

/* The error of the system call that just failed. */
static enum err failed(const char *verb, const char *path, struct reason *reason)
{
    int number = errno;
    return reason_set(reason, err_from_errno(number), "cannot %s %s: %s", verb, path,
                      strerror(number));
}

static void close_scoped(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static enum err open_to_read(const char *path, int *ret_fd, struct stat *ret_status,
                             struct reason *reason)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return failed("open", path, reason);
    if (fstat(fd, ret_status) != 0) {
        enum err err = failed("read", path, reason);
        close(fd);
        return err;
    }
    *ret_fd = fd;
    return ERR_OK;
}

enum err file_read(const char *path, size_t bytes_max, struct buf *bytes, struct reason *reason)
{
    scoped(close_scoped) int fd = -1;
    struct stat status;
    TRY(open_to_read(path, &fd, &status, reason));
    /* The size is a hint: a pipe has none, and a file may grow meanwhile. */
    size_t piece = status.st_size > 0 && (size_t)status.st_size < bytes_max
                       ? (size_t)status.st_size + 1
                       : 65536;
    for (size_t total = 0;;) {
        if (buf_reserve(bytes, piece) != ERR_OK)
            return reason_set(reason, ERR_NOMEM, "no memory to read %s", path);
        ssize_t got = read(fd, bytes->data + bytes->bytes, piece);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return failed("read", path, reason);
        if (got == 0)
            return ERR_OK;
        total += (size_t)got;
        if (total > bytes_max)
            return reason_set(reason, ERR_MALFORMED, "%s has more than %zu bytes", path, bytes_max);
        bytes->bytes += (size_t)got;
    }
}

enum err file_map_open(const char *path, struct file_map *ret_map, struct reason *reason)
{
    scoped(close_scoped) int fd = -1;
    struct stat status;
    TRY(open_to_read(path, &fd, &status, reason));
    if (!S_ISREG(status.st_mode))
        return reason_set(reason, ERR_INVALID, "%s is not a regular file", path);
    struct file_map map = {{(const uint8_t *)"", (size_t)status.st_size}};
    if (map.bytes.bytes > 0) {
        void *data = mmap(NULL, map.bytes.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            return failed("map", path, reason);
        map.bytes.data = data;
    }
    *ret_map = map;
    return ERR_OK;
}

void file_map_release(struct file_map *map)
{
    if (map->bytes.bytes > 0)
        check(munmap((void *)(uintptr_t)map->bytes.data, map->bytes.bytes) == 0);
    *map = (struct file_map){0};
}

static enum err write_all(const struct file_ops *ops, int fd, struct slice bytes, const char *path,
                          struct reason *reason)
{
    while (bytes.bytes > 0) {
        ssize_t written = ops->write(ops, fd, bytes.data, bytes.bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return failed("write", path, reason);
        bytes = (struct slice){bytes.data + written, bytes.bytes - (size_t)written};
    }
    return ERR_OK;
}

static enum err sync_path(const struct file_ops *ops, const char *path, int flags,
                          struct reason *reason)
{
    scoped(close_scoped) int fd = ops->open(ops, path, O_RDONLY | O_CLOEXEC | flags, 0);
    if (fd < 0)
        return failed("open", path, reason);
    if (ops->fsync(ops, fd) != 0)
        return failed("sync", path, reason);
    return ERR_OK;
}

enum err file_sync(const struct file_ops *ops, const char *path, struct reason *reason)
{
    return sync_path(ops, path, 0, reason);
}

enum err file_sync_dir(const struct file_ops *ops, const char *path, struct reason *reason)
{
    return sync_path(ops, path, O_DIRECTORY, reason);
}

static enum err sync_parent(const struct file_ops *ops, const char *path, struct reason *reason)
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
    /* What a crash left behind goes first: its mode may be another. */
    ops->unlink(ops, writer.path_tmp);
    writer.fd =
        ops->open(ops, writer.path_tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (writer.fd < 0) {
        enum err err = failed("create", writer.path_tmp, reason);
        free(writer.path);
        free(writer.path_tmp);
        return err;
    }
    *ret_writer = writer;
    return ERR_OK;
}

enum err file_writer_write(struct file_writer *writer, struct slice bytes, struct reason *reason)
{
    TRY(write_all(writer->ops, writer->fd, bytes, writer->path_tmp, reason));
    writer->bytes += bytes.bytes;
    return ERR_OK;
}

enum err file_writer_commit(struct file_writer *writer, struct reason *reason)
{
    const struct file_ops *ops = writer->ops;
    if (ops->fsync(ops, writer->fd) != 0)
        return failed("sync", writer->path_tmp, reason);
    if (ops->rename(ops, writer->path_tmp, writer->path) != 0)
        return failed("rename to", writer->path, reason);
    free(writer->path_tmp);
    writer->path_tmp = NULL;
    return sync_parent(ops, writer->path, reason);
}

void file_writer_release(struct file_writer *writer)
{
    if (writer->path == NULL)
        return;
    close(writer->fd);
    if (writer->path_tmp != NULL)
        writer->ops->unlink(writer->ops, writer->path_tmp);
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
    struct stat status;
    if (log.fd < 0 || fstat(log.fd, &status) != 0)
        return failed("open", path, reason);
    log.bytes = (uint64_t)status.st_size;
    TRY(sync_parent(ops, path, reason));
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
        return failed("take back an append to", log->path, reason);
    return err;
}

enum err file_log_sync(struct file_log *log, struct reason *reason)
{
    if (log->ops->fsync(log->ops, log->fd) != 0)
        return failed("sync", log->path, reason);
    return ERR_OK;
}

enum err file_log_truncate(struct file_log *log, uint64_t bytes, struct reason *reason)
{
    if (bytes > log->bytes)
        return reason_set(reason, ERR_CORRUPT, "%s has %llu bytes, %llu were written", log->path,
                          (unsigned long long)log->bytes, (unsigned long long)bytes);
    if (log->ops->truncate(log->ops, log->fd, bytes) != 0)
        return failed("shorten", log->path, reason);
    log->bytes = bytes;
    return file_log_sync(log, reason);
}

void file_log_release(struct file_log *log)
{
    if (log->path != NULL && log->fd >= 0)
        close(log->fd);
    free(log->path);
    *log = (struct file_log){0};
}

/* A folder's name must survive a crash as what is in it does. */
static enum err make_dir(const char *path, unsigned mode, struct reason *reason)
{
    if (mkdir(path, (mode_t)mode) != 0)
        return errno == EEXIST ? ERR_EXISTS : failed("make folder", path, reason);
    return sync_parent(&file_ops_real, path, reason);
}

enum err file_make_dirs(const char *path, unsigned mode, struct reason *reason)
{
    scoped(free_scoped) char *part = strdup(path);
    if (part == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to make %s", path);
    for (char *c = part + 1; *part != 0 && *c != 0; c++) {
        if (*c != '/')
            continue;
        *c = 0;
        enum err err = make_dir(part, mode, reason);
        if (err != ERR_OK && err != ERR_EXISTS)
            return err;
        *c = '/';
    }
    struct stat status;
    enum err err = make_dir(path, mode, reason);
    if (err != ERR_EXISTS)
        return err;
    if (stat(path, &status) != 0)
        return failed("make folder", path, reason);
    if (!S_ISDIR(status.st_mode))
        return reason_set(reason, ERR_EXISTS, "%s is there and is no folder", path);
    return ERR_OK;
}

/* Removes what `name` in the folder `at` is; -1 and errno. */
static int remove_at(int at, const char *name)
{
    if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR)
        return -1;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (folder == NULL) {
        close_scoped(&fd);
        return -1;
    }
    int result = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(folder)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            result = remove_at(fd, entry->d_name);
    int number = errno;
    closedir(folder);
    errno = number;
    return result == 0 ? unlinkat(at, name, AT_REMOVEDIR) : result;
}

enum err file_remove_tree(const char *path, struct reason *reason)
{
    return remove_at(AT_FDCWD, path) == 0 ? ERR_OK : failed("remove", path, reason);
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

static enum err list_entries(DIR *folder, const char *path, struct file_names *names,
                             struct reason *reason)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (entry == NULL)
            return errno == 0 ? ERR_OK : failed("list", path, reason);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (file_names_add(names, entry->d_name) != ERR_OK)
            return reason_set(reason, ERR_NOMEM, "no memory to list %s", path);
    }
}

enum err file_list(const char *path, struct file_names *ret_names, struct reason *reason)
{
    DIR *folder = opendir(path);
    if (folder == NULL)
        return failed("open", path, reason);
    scoped(file_names_release) struct file_names names = {0};
    enum err err = list_entries(folder, path, &names, reason);
    closedir(folder);
    TRY(err);
    file_names_sort(&names);
    *ret_names = names;
    names = (struct file_names){0};
    return ERR_OK;
}

static enum err copy_paths(const glob_t *found, struct file_names *names)
{
    for (size_t i = 0; i < found->gl_pathc; i++)
        TRY(file_names_add(names, found->gl_pathv[i]));
    return ERR_OK;
}

enum err file_glob(const char *pattern, struct file_names *ret_names, struct reason *reason)
{
    glob_t found;
    int result = glob(pattern, GLOB_NOSORT | GLOB_ERR, NULL, &found);
    if (result == GLOB_NOMATCH)
        return reason_set(reason, ERR_NOT_FOUND, "nothing matches %s", pattern);
    if (result != 0)
        return result == GLOB_NOSPACE
                   ? reason_set(reason, ERR_NOMEM, "no memory to find %s", pattern)
                   : failed("read a folder of", pattern, reason);
    scoped(file_names_release) struct file_names names = {0};
    enum err err = copy_paths(&found, &names);
    globfree(&found);
    if (err != ERR_OK)
        return reason_set(reason, err, "no memory to find %s", pattern);
    file_names_sort(&names);
    *ret_names = names;
    names = (struct file_names){0};
    return ERR_OK;
}

enum err file_stat(const char *path, struct file_info *ret_info, struct reason *reason)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return failed("look at", path, reason);
    *ret_info = (struct file_info){
        .kind = S_ISREG(status.st_mode)   ? FILE_REGULAR
                : S_ISDIR(status.st_mode) ? FILE_FOLDER
                                          : FILE_OTHER,
        .bytes = (uint64_t)status.st_size,
        .modified_ns =
            (uint64_t)status.st_mtim.tv_sec * 1000000000 + (uint64_t)status.st_mtim.tv_nsec,
    };
    return ERR_OK;
}

enum err file_resolve(const char *path, char **ret_path, struct reason *reason)
{
    char *resolved = realpath(path, NULL);
    if (resolved == NULL)
        return failed("look at", path, reason);
    *ret_path = resolved;
    return ERR_OK;
}
