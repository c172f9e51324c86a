/* Files by system calls. Writes that must survive a crash go through the table of operations
 * (file.c). */
#include "common/file.h"

#include "common/scoped.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ /* headers that are older than the kernel */
#define MADV_POPULATE_READ 22
#endif

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

static int real_close(const struct file_ops *ops, int fd)
{
    (void)ops;
    return close(fd);
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

/* The wait also takes an error of the bytes from the file, so that fsync() does not see it: it
 * counts here. Where the system cannot do this at all, fsync() does. */
static int real_write_back(const struct file_ops *ops, int fd, struct file_range before,
                           struct file_range bytes)
{
    const unsigned wait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER;
    (void)ops;
    int failed =
        sync_file_range(fd, (off64_t)bytes.offset, (off64_t)bytes.bytes, SYNC_FILE_RANGE_WRITE);
    if (failed == 0 && before.bytes > 0)
        failed = sync_file_range(fd, (off64_t)before.offset, (off64_t)before.bytes,
                                 SYNC_FILE_RANGE_WRITE | wait);
    bool lost = errno == EIO || errno == ENOSPC || errno == EDQUOT;
    return failed != 0 && lost ? -1 : 0;
}

static int real_direct(const struct file_ops *ops, int fd, bool on)
{
    (void)ops;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return -1;
    return fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT);
}

const struct file_ops file_ops_real = {
    .open = real_open,
    .close = real_close,
    .write = real_write,
    .fsync = real_fsync,
    .truncate = real_truncate,
    .rename = real_rename,
    .unlink = real_unlink,
    .write_back = real_write_back,
    .direct = real_direct,
};

static void close_scoped(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

/* A pipe that nobody writes to would make the caller wait: only regular files are read. */
static enum err open_to_read(const char *path, int *ret_fd, struct stat *ret_status,
                             struct reason *reason)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENXIO) /* a socket, or a device without a driver */
        return reason_set(reason, ERR_INVALID, "%s is not a regular file", path);
    if (fd < 0)
        return file_failed("open", path, reason);
    if (fstat(fd, ret_status) != 0) {
        enum err err = file_failed("read", path, reason);
        close(fd);
        return err;
    }
    if (!S_ISREG(ret_status->st_mode)) {
        close(fd);
        return reason_set(reason, ERR_INVALID, "%s is not a regular file", path);
    }
    *ret_fd = fd;
    return ERR_OK;
}

enum err file_read(const char *path, size_t bytes_max, struct buf *bytes, struct reason *reason)
{
    scoped(close_scoped) int fd = -1;
    struct stat status;
    TRY(open_to_read(path, &fd, &status, reason));
    /* The size is a hint: files of /proc have none, and a file may grow meanwhile. */
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
            return file_failed("read", path, reason);
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
    struct file_map map = {{(const uint8_t *)"", (size_t)status.st_size}};
    if (map.bytes.bytes > 0) {
        void *data = mmap(NULL, map.bytes.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            return file_failed("map", path, reason);
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

static struct slice pages_of(struct slice bytes)
{
    size_t before = (uintptr_t)bytes.data % 4096;
    return (struct slice){bytes.data - before, bytes.bytes > 0 ? bytes.bytes + before : 0};
}

enum err file_map_load(struct slice bytes)
{
    struct slice pages = pages_of(bytes);
    if (pages.bytes == 0 ||
        madvise((void *)(uintptr_t)pages.data, pages.bytes, MADV_POPULATE_READ) == 0)
        return ERR_OK;
    return errno == EFAULT || errno == EHWPOISON ? ERR_IO : ERR_OK; /* an older kernel */
}

void file_read_ahead(struct slice bytes)
{
    struct slice pages = pages_of(bytes);
    /* Only a hint. */
    if (pages.bytes > 0 &&
        posix_madvise((void *)(uintptr_t)pages.data, pages.bytes, POSIX_MADV_WILLNEED) != 0)
        return;
}

void file_forget_cached(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* only a hint */
    close(fd);
}

enum err file_write_public(const char *path, struct slice bytes, struct reason *reason)
{
    enum { MODE = 0644 };
    scoped(file_writer_release) struct file_writer writer = {0};
    TRY(file_writer_open(&file_ops_real, path, MODE, &writer, reason));
    if (fchmod(writer.fd, MODE) != 0)
        return file_failed("set the mode of", writer.path_tmp, reason);
    TRY(file_writer_write(&writer, bytes, reason));
    return file_writer_commit(&writer, reason);
}

/* A folder's name must survive a crash, as its files do. */
enum err file_make_dir(const char *path, unsigned mode, struct reason *reason)
{
    if (mkdir(path, (mode_t)mode) != 0)
        return errno == EEXIST ? ERR_EXISTS : file_failed("make folder", path, reason);
    return file_sync_parent(&file_ops_real, path, reason);
}

static enum err make_public_dir(const char *path, unsigned mode, struct reason *reason)
{
    TRY(file_make_dir(path, mode, reason));
    return chmod(path, (mode_t)mode) == 0 ? ERR_OK : file_failed("set the mode of", path, reason);
}

typedef enum err make_dir(const char *path, unsigned mode, struct reason *reason);

/* Each that is not there by `make`. */
static enum err make_dirs(const char *path, unsigned mode, make_dir *make, struct reason *reason)
{
    scoped(free_scoped) char *part = strdup(path);
    if (part == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to make %s", path);
    for (char *c = part + 1; *part != 0 && *c != 0; c++) {
        if (*c != '/')
            continue;
        *c = 0;
        enum err err = make(part, mode, reason);
        if (err != ERR_OK && err != ERR_EXISTS)
            return err;
        *c = '/';
    }
    struct stat status;
    enum err err = make(path, mode, reason);
    if (err != ERR_EXISTS)
        return err;
    if (stat(path, &status) != 0)
        return file_failed("make folder", path, reason);
    if (!S_ISDIR(status.st_mode))
        return reason_set(reason, ERR_EXISTS, "%s is there and is no folder", path);
    return ERR_OK;
}

enum err file_make_dirs(const char *path, unsigned mode, struct reason *reason)
{
    return make_dirs(path, mode, file_make_dir, reason);
}

enum err file_make_public_dirs(const char *path, struct reason *reason)
{
    return make_dirs(path, 0755, make_public_dir, reason);
}

/* Removes the file or folder `name` in the folder `at`; -1 and errno. */
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
    return remove_at(AT_FDCWD, path) == 0 ? ERR_OK : file_failed("remove", path, reason);
}

static enum err list_entries(DIR *folder, const char *path, struct file_names *names,
                             struct reason *reason)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (entry == NULL)
            return errno == 0 ? ERR_OK : file_failed("list", path, reason);
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
        return file_failed("open", path, reason);
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
                   : file_failed("read a folder of", pattern, reason);
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
        return file_failed("look at", path, reason);
    *ret_info = (struct file_info){
        .kind = S_ISREG(status.st_mode)   ? FILE_REGULAR
                : S_ISDIR(status.st_mode) ? FILE_FOLDER
                                          : FILE_OTHER,
        .bytes = (uint64_t)status.st_size,
        .modified_ns =
            (uint64_t)status.st_mtim.tv_sec * 1000000000 + (uint64_t)status.st_mtim.tv_nsec,
        .mode = status.st_mode & 07777,
    };
    return ERR_OK;
}

enum err file_resolve(const char *path, char **ret_path, struct reason *reason)
{
    char *resolved = realpath(path, NULL);
    if (resolved == NULL)
        return file_failed("look at", path, reason);
    *ret_path = resolved;
    return ERR_OK;
}

enum err file_read_part(const char *path, uint64_t offset, size_t bytes, struct buf *part,
                        struct reason *reason)
{
    scoped(close_scoped) int fd = -1;
    struct stat status;
    TRY(open_to_read(path, &fd, &status, reason));
    if (buf_reserve(part, bytes) != ERR_OK)
        return reason_set(reason, ERR_NOMEM, "no memory to read %s", path);
    while (bytes > 0) {
        ssize_t got = pread(fd, part->data + part->bytes, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return file_failed("read", path, reason);
        if (got == 0)
            break;
        part->bytes += (size_t)got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return ERR_OK;
}

bool file_log_in_place(const struct file_log *log)
{
    struct stat ours, theirs;
    return fstat(log->fd, &ours) == 0 && stat(log->path, &theirs) == 0 &&
           ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev;
}

void file_standard_open(void)
{
    static const int flags[] = {
        [STDIN_FILENO] = O_RDONLY, [STDOUT_FILENO] = O_RDONLY, [STDERR_FILENO] = O_WRONLY};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        /* What is inherited is open and has no FD_CLOEXEC; gRPC opens an eventfd before main. */
        if (fcntl(fd, F_GETFD) == 0)
            continue;
        int opened = open("/dev/null", flags[fd]);
        if (opened >= 0 && opened != fd) {
            dup2(opened, fd);
            close(opened);
        }
    }
}

enum err file_claim_take(const char *path, bool shared, struct file_claim *ret_claim,
                         struct reason *reason)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return file_failed("open", path, reason);
    if (flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0 || errno == ENOLCK ||
        errno == EOPNOTSUPP) {
        *ret_claim = (struct file_claim){.held = true, .fd = fd};
        return ERR_OK;
    }
    enum err err = errno == EWOULDBLOCK
                       ? reason_set(reason, ERR_EXISTS, "%s: another process has it", path)
                       : file_failed("lock", path, reason);
    close(fd);
    return err;
}

void file_claim_release(struct file_claim *claim)
{
    if (claim->held)
        close(claim->fd);
    *claim = (struct file_claim){0};
}

uint32_t file_limit_raise(void)
{
    enum { WANTED = 1 << 20 }; /* more only costs: some programs close each file that could be */
    struct rlimit limit = {.rlim_cur = 256}; /* if the system does not report one */
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return (uint32_t)limit.rlim_cur;
    rlim_t before = limit.rlim_cur;
    rlim_t wanted = limit.rlim_max < WANTED ? limit.rlim_max : WANTED;
    if (before < wanted) {
        limit.rlim_cur = wanted;
        limit.rlim_cur = setrlimit(RLIMIT_NOFILE, &limit) == 0 ? wanted : before;
    }
    return limit.rlim_cur < WANTED ? (uint32_t)limit.rlim_cur : WANTED;
}
