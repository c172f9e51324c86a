#include "common/files/run_directory.h"

#include "common/check.h"
#include "common/file.h"
#include "common/files/checkpoint.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct run_directory run_directory(const struct run_directories *all, unsigned number)
{
    struct run_directory directory;
    char suffix[24] = "";
    if (number > 1)
        snprintf(suffix, sizeof suffix, "%.12s%u", all->joint, number);
    snprintf(directory.path, sizeof directory.path, "%.*s%s", RUN_DIRECTORY_BASE_BYTES_MAX,
             all->base, suffix);
    return directory;
}

/* Appends the parts of a path to one that has `length` bytes. False: they do not fit. */
static bool add_parts(const char *path, char *name, size_t bytes, size_t *length)
{
    while (*path != 0) {
        size_t part = strcspn(path, "/");
        if (part > 0 && strncmp(path, ".", part) != 0) {
            if (*length + 1 + part >= bytes)
                return false;
            name[(*length)++] = '/';
            memcpy(name + *length, path, part);
            *length += part;
        }
        path += part + (path[part] == '/' ? 1 : 0);
    }
    return true;
}

enum err run_directory_name(const char *directory, const char *folder, char *ret_name, size_t bytes,
                            struct reason *reason)
{
    size_t length = 0;
    check(bytes > 1);
    if (directory[0] != '/' && folder[0] != '/')
        return reason_set(reason, ERR_INVALID,
                          "%s is relative, and the folder that it would begin in was removed",
                          directory);
    bool fits = (directory[0] == '/' || add_parts(folder, ret_name, bytes, &length)) &&
                add_parts(directory, ret_name, bytes, &length);
    if (!fits)
        return reason_set(reason, ERR_INVALID, "%.100s...: the directory's path is longer than %zu",
                          directory, bytes - 1);
    if (length == 0)
        ret_name[length++] = '/';
    ret_name[length] = 0;
    return ERR_OK;
}

static enum err find_checkpoint(const char *directory, struct checkpoint_name *ret_newest)
{
    char path[RUN_DIRECTORY_BYTES + 16];
    snprintf(path, sizeof path, "%s/checkpoints", directory);
    return checkpoint_newest(path, ret_newest, NULL);
}

bool run_directory_has_checkpoint(const char *directory)
{
    struct checkpoint_name newest;
    return find_checkpoint(directory, &newest) == ERR_OK;
}

static bool is_later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

static void take_later(const char *path, struct timespec *latest)
{
    struct stat about;
    if (stat(path, &about) == 0 && is_later(&about.st_mtim, latest))
        *latest = about.st_mtim;
}

/* When its newest checkpoint was recorded, or chosen by an operator. The folder itself also changes
 * when an older one is removed. False: there is none. */
static bool find_time(const char *directory, struct timespec *ret_time)
{
    char path[RUN_DIRECTORY_BYTES + 80];
    struct checkpoint_path record;
    struct checkpoint_name newest;
    struct timespec time = {0};
    if (find_checkpoint(directory, &newest) != ERR_OK)
        return false;
    snprintf(path, sizeof path, "%s/checkpoints", directory);
    if (checkpoint_record_file(path, newest, &record) == ERR_OK)
        take_later(record.text, &time);
    snprintf(path, sizeof path, "%s/checkpoints/restore", directory);
    take_later(path, &time);
    *ret_time = time;
    return true;
}

enum err run_directory_newest(const struct run_directories *all,
                              struct run_directory *ret_directory, struct reason *reason)
{
    struct timespec time, newest = {0};
    unsigned chosen = 0;
    for (unsigned number = 1; number < RUN_DIRECTORIES_MAX; number++) {
        struct run_directory directory = run_directory(all, number);
        if (!find_time(directory.path, &time) || !is_later(&time, &newest))
            continue;
        newest = time;
        chosen = number;
    }
    if (chosen == 0)
        return reason_set(reason, ERR_NOT_FOUND,
                          "neither %s nor %s%s2, ... has a checkpoint to resume from", all->base,
                          all->base, all->joint);
    *ret_directory = run_directory(all, chosen);
    return ERR_OK;
}

/* Coordinators share the claim, and roost checkpoint has it alone. */
static bool can_claim(const char *path, bool shared)
{
    struct file_claim claim = {0};
    enum err err = file_claim_take(path, shared, &claim, NULL);
    file_claim_release(&claim);
    return err != ERR_EXISTS;
}

enum run_directory_use run_directory_use(const char *directory)
{
    char path[RUN_DIRECTORY_BYTES + 16];
    snprintf(path, sizeof path, "%s/lock", directory);
    if (access(path, F_OK) != 0 || can_claim(path, false))
        return RUN_DIRECTORY_UNUSED;
    return can_claim(path, true) ? RUN_DIRECTORY_RUNS : RUN_DIRECTORY_EDITED;
}
