#include "tests/sim/crash.h"

#include "common/check.h"
#include "common/rand.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum change_kind { MAKE_FOLDER, MAKE_FILE, WRITE, SYNC_FILE, SYNC_FOLDER, RENAME, REMOVE, NOTE };

struct change {
    enum change_kind kind;
    uint32_t file;    /* MAKE_FILE, WRITE, SYNC_FILE, RENAME: serial of the file */
    char *path, *new; /* below the root; of a SYNC_FOLDER the folder's */
    size_t offset, bytes;
    uint8_t *data;
};

enum { FDS_MAX = 1024 };

static struct {
    char root[PATH_MAX];
    enum crash_fault fault;
    size_t count, capacity;
    struct change *changes;
    uint32_t files;
    struct {
        char *path; /* of a folder; NULL: a file, or none of ours */
        uint32_t file;
    } fds[FDS_MAX];
} disk;

/* ---- remembering ---- */

static struct change *add(enum change_kind kind)
{
    if (disk.count == disk.capacity) {
        disk.capacity = disk.capacity == 0 ? 256 : 2 * disk.capacity;
        disk.changes = reallocarray(disk.changes, disk.capacity, sizeof *disk.changes);
        check(disk.changes != NULL);
    }
    struct change *change = &disk.changes[disk.count++];
    *change = (struct change){.kind = kind};
    return change;
}

/* The path below the root, "" for the root; NULL: it is not there. */
static const char *below(const char *path)
{
    size_t length = strlen(disk.root);
    if (length == 0 || strncmp(path, disk.root, length) != 0)
        return NULL;
    return path[length] == '/' ? path + length + 1 : path[length] == 0 ? "" : NULL;
}

static char *copy(const char *text)
{
    char *bytes = strdup(text);
    check(bytes != NULL);
    return bytes;
}

/* The file that has that name now; 0: none. */
static uint32_t file_at(const char *path)
{
    uint32_t file = 0;
    for (size_t i = 0; i < disk.count; i++) {
        const struct change *change = &disk.changes[i];
        if (change->kind == MAKE_FILE && strcmp(change->path, path) == 0)
            file = change->file;
        else if (change->kind == RENAME && strcmp(change->new, path) == 0)
            file = change->file;
    }
    return file;
}

static void remember_fd(int fd, const char *path, int flags)
{
    check(fd < FDS_MAX);
    free(disk.fds[fd].path);
    disk.fds[fd].path = NULL;
    disk.fds[fd].file = 0;
    if ((flags & O_DIRECTORY) != 0)
        disk.fds[fd].path = copy(path);
    else if ((flags & O_CREAT) != 0)
        disk.fds[fd].file = file_at(path);
}

/* ---- what the linker leads here ---- */

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
int __wrap_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __real_unlinkat(int at, const char *name, int flags);
int __wrap_unlinkat(int at, const char *name, int flags);

int __wrap_open64(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    bool made = (flags & O_CREAT) != 0 && access(path, F_OK) != 0;
    int fd = __real_open64(path, flags, mode);
    const char *ours = fd < 0 ? NULL : below(path);
    if (ours == NULL)
        return fd;
    if (made) {
        struct change *change = add(MAKE_FILE);
        change->path = copy(ours);
        change->file = ++disk.files;
    }
    remember_fd(fd, ours, flags);
    return fd;
}

ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    ssize_t written = __real_write(fd, data, bytes);
    if (written <= 0 || fd >= FDS_MAX || disk.fds[fd].file == 0)
        return written;
    off_t end = lseek(fd, 0, SEEK_CUR);
    check(end >= written);
    struct change *change = add(WRITE);
    change->file = disk.fds[fd].file;
    change->offset = (size_t)(end - written);
    change->bytes = (size_t)written;
    change->data = malloc(change->bytes);
    check(change->data != NULL);
    memcpy(change->data, data, change->bytes);
    return written;
}

int __wrap_fsync(int fd)
{
    struct change *change = NULL;
    if (disk.fds[fd].path != NULL)
        change = add(disk.fault == CRASH_NO_FOLDER_SYNC ? NOTE : SYNC_FOLDER);
    else if (disk.fds[fd].file != 0)
        change = add(disk.fault == CRASH_NO_FSYNC ? NOTE : SYNC_FILE);
    if (change != NULL) {
        change->file = disk.fds[fd].file;
        change->path = disk.fds[fd].path != NULL ? copy(disk.fds[fd].path) : NULL;
    }
    return 0; /* the real one would only take time */
}

int __wrap_rename(const char *from, const char *to)
{
    int result = __real_rename(from, to);
    if (result == 0 && below(from) != NULL) {
        uint32_t file = file_at(below(from));
        struct change *change = add(RENAME);
        change->file = file;
        change->path = copy(below(from));
        change->new = copy(below(to));
    }
    return result;
}

static int removed(int result, const char *path)
{
    int number = errno;
    if (result == 0 && below(path) != NULL)
        add(REMOVE)->path = copy(below(path));
    errno = number;
    return result;
}

int __wrap_unlink(const char *path)
{
    return removed(__real_unlink(path), path);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    int result = __real_mkdir(path, mode);
    int number = errno;
    if (result == 0 && below(path) != NULL)
        add(MAKE_FOLDER)->path = copy(below(path));
    errno = number;
    return result;
}

int __wrap_unlinkat(int at, const char *name, int flags)
{
    char link[64], folder[PATH_MAX] = "", path[2 * PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t length = at == AT_FDCWD ? 0 : readlink(link, folder, sizeof folder - 1);
    check(length >= 0);
    folder[length] = 0;
    snprintf(path, sizeof path, "%s%s%s", folder, length > 0 ? "/" : "", name);
    return removed(__real_unlinkat(at, name, flags), path);
}

void crash_begin(const char *root, enum crash_fault fault)
{
    crash_end();
    snprintf(disk.root, sizeof disk.root, "%s", root);
    disk.fault = fault;
}

void crash_end(void)
{
    for (size_t i = 0; i < disk.count; i++) {
        free(disk.changes[i].path);
        free(disk.changes[i].new);
        free(disk.changes[i].data);
    }
    for (int fd = 0; fd < FDS_MAX; fd++)
        free(disk.fds[fd].path);
    free(disk.changes);
    memset(&disk, 0, sizeof disk);
}

void crash_note(void)
{
    add(NOTE);
}

size_t crash_changes(void)
{
    return disk.count;
}

const char *crash_name(size_t change)
{
    static const char *const names[] = {"mkdir", "create", "write",  "fsync",
                                        "fsync", "rename", "unlink", "fact"};
    static char text[PATH_MAX + 16];
    const struct change *what = &disk.changes[change];
    const char *path = what->path;
    for (size_t i = change; path == NULL && what->file != 0 && i-- > 0;)
        if (disk.changes[i].kind == MAKE_FILE && disk.changes[i].file == what->file)
            path = disk.changes[i].path;
    snprintf(text, sizeof text, "%s %s", names[what->kind], path != NULL ? path : "");
    return text;
}

/* ---- laying out ---- */

/* A name in the image, and the file it leads to. */
struct entry {
    const char *path; /* NULL: gone */
    bool folder;
    uint32_t file;
};

struct image {
    size_t changes;
    bool power;
    struct rand_state random;
    size_t count;
    struct entry *entries;
};

static bool is_parent(const char *folder, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : (size_t)(slash - path);
    return strlen(folder) == length && strncmp(folder, path, length) == 0;
}

/* A change of a name survives when its folder was synced later, else by luck. */
static bool name_survives(struct image *image, size_t change, const char *path)
{
    if (!image->power)
        return true;
    for (size_t i = change + 1; i < image->changes; i++)
        if (disk.changes[i].kind == SYNC_FOLDER && is_parent(disk.changes[i].path, path))
            return true;
    return rand_below(&image->random, 2) == 0;
}

static void forget(struct image *image, const char *path)
{
    for (size_t i = 0; i < image->count; i++)
        if (image->entries[i].path != NULL && strcmp(image->entries[i].path, path) == 0)
            image->entries[i].path = NULL;
}

static void put(struct image *image, struct entry entry)
{
    forget(image, entry.path);
    image->entries[image->count++] = entry;
}

static void apply_name(struct image *image, size_t at)
{
    const struct change *change = &disk.changes[at];
    switch (change->kind) {
    case MAKE_FOLDER:
    case MAKE_FILE:
        if (name_survives(image, at, change->path))
            put(image, (struct entry){change->path, change->kind == MAKE_FOLDER, change->file});
        break;
    case RENAME:
        if (name_survives(image, at, change->new)) {
            forget(image, change->path);
            put(image, (struct entry){change->new, false, change->file});
        }
        break;
    case REMOVE:
        if (name_survives(image, at, change->path))
            forget(image, change->path);
        break;
    default:
        break;
    }
}

static bool bytes_survive(const struct image *image, size_t change)
{
    for (size_t i = change + 1; i < image->changes; i++)
        if (disk.changes[i].kind == SYNC_FILE && disk.changes[i].file == disk.changes[change].file)
            return true;
    return !image->power;
}

/* Kept, lost, or its first half and then something else. */
static void lay_out_write(struct image *image, size_t at, int fd)
{
    const struct change *change = &disk.changes[at];
    size_t kept = change->bytes;
    uint64_t luck = bytes_survive(image, at) ? 0 : rand_below(&image->random, 3);
    if (luck == 1)
        return;
    if (luck == 2)
        kept /= 2;
    check(pwrite(fd, change->data, kept, (off_t)change->offset) == (ssize_t)kept);
    for (size_t i = kept; i < change->bytes; i++)
        check(pwrite(fd, "\xa5", 1, (off_t)(change->offset + i)) == 1);
}

static void lay_out_file(struct image *image, const char *path, uint32_t file)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return; /* its folder is gone */
    for (size_t i = 0; i < image->changes; i++)
        if (disk.changes[i].kind == WRITE && disk.changes[i].file == file)
            lay_out_write(image, i, fd);
    close(fd);
}

void crash_image(size_t changes, enum crash_kind kind, uint64_t seed, const char *into)
{
    struct image image = {.changes = changes, .power = kind == CRASH_POWER, .random = {seed}};
    image.entries = calloc(changes + 1, sizeof *image.entries);
    check(image.entries != NULL && changes <= disk.count);
    for (size_t i = 0; i < changes; i++)
        apply_name(&image, i);
    for (size_t i = 0; i < image.count; i++) { /* folders come before what is in them */
        const struct entry *entry = &image.entries[i];
        char path[2 * PATH_MAX];
        if (entry->path == NULL)
            continue;
        snprintf(path, sizeof path, "%s/%s", into, entry->path);
        if (entry->folder)
            check(__real_mkdir(path, 0755) == 0 || errno == ENOENT);
        else
            lay_out_file(&image, path, entry->file);
    }
    free(image.entries);
}
