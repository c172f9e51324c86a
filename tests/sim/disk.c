#include "tests/sim/disk.h"

#include "common/digest.h"
#include "common/file.h"
#include "common/scoped.h"
#include "tests/sim/sim.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum {
    FD_FIRST = 1 << 24, /* no descriptor of the system's */
    FD_DEAD = FD_FIRST - 1,
};

/* ---- files ---- */

static uint64_t hash_of(const char *path)
{
    return digest_fast64((struct slice){(const uint8_t *)path, strlen(path)});
}

static struct disk_file *find(const struct sim *sim, const char *path)
{
    uint64_t hash = hash_of(path);
    for (size_t i = 0; i < sim->disks.count; i++) {
        struct disk_file *file = sim->disks.files[i];
        if (file->path != NULL && file->hash == hash && strcmp(file->path, path) == 0)
            return file;
    }
    return NULL;
}

static void name_it(struct disk_file *file, const char *path)
{
    free(file->path);
    file->path = strdup(path);
    check(file->path != NULL);
    file->hash = hash_of(path);
}

static uint32_t machine_of_world(void)
{
    bool server = world.life != NULL && world.life->place.kind == MACHINE_SERVER;
    return server ? world.life->place.index : (uint32_t)DISK_COORDINATORS;
}

static struct disk_file *make(struct sim *sim, const char *path, bool folder)
{
    struct disks *disks = &sim->disks;
    struct disk_file *file =
        network_add((void ***)&disks->files, &disks->count, &disks->capacity, sizeof *file);
    *file = (struct disk_file){.machine = machine_of_world(), .folder = folder};
    name_it(file, path);
    return file;
}

static void forget_name(char **name)
{
    free(*name);
    *name = NULL;
}

/* Whoever has it open or mapped goes on with it. */
static void remove_file(struct disk_file *file)
{
    forget_name(&file->path);
    forget_name(&file->durable);
}

void disk_release(struct sim *sim)
{
    for (size_t i = 0; i < sim->disks.count; i++) {
        remove_file(sim->disks.files[i]);
        buf_release(&sim->disks.files[i]->bytes);
        free(sim->disks.files[i]);
    }
    free(sim->disks.files);
}

static bool is_in(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && path[length] == '/';
}

static bool is_directly_in(const char *path, const char *folder)
{
    return is_in(path, folder) && strchr(path + strlen(folder) + 1, '/') == NULL;
}

bool disk_has(struct sim *sim, uint32_t machine, const char *path)
{
    const struct disk_file *file = find(sim, path);
    return file != NULL && file->machine == machine && file->synced == file->bytes.bytes &&
           file->durable != NULL && strcmp(file->durable, path) == 0;
}

/* ---- what goes wrong ---- */

bool disk_flip(struct sim *sim, const char *path, uint64_t bit)
{
    struct disk_file *file = find(sim, path);
    if (file == NULL || file->bytes.bytes == 0)
        return false;
    uint64_t at = bit % (8 * (uint64_t)file->bytes.bytes);
    file->bytes.data[at / 8] ^= (uint8_t)(1U << at % 8);
    return true;
}

/* Of what was not synced some may be there, and not as it was written. */
static void lose_bytes(struct sim *sim, struct disk_file *file)
{
    size_t unsynced = file->bytes.bytes - file->synced;
    if (unsynced == 0)
        return;
    size_t first = file->synced + sim_below(sim, unsynced);
    if (sim_below(sim, 2) == 0)
        file->bytes.bytes = first;
    else
        memset(file->bytes.data + first, 0, 1 + sim_below(sim, file->bytes.bytes - first));
    file->synced = file->bytes.bytes; /* it is what the disk has */
}

/* It has the name that it had, or none. */
static void lose_name(struct disk_file *file)
{
    if (file->durable == NULL)
        remove_file(file);
    else
        name_it(file, file->durable);
}

/* What the page cache kept of a write that failed. */
static void forget_failed(struct disk_file *file)
{
    size_t to = file->failed_to < file->bytes.bytes ? file->failed_to : file->bytes.bytes;
    if (file->failed_from < to)
        memset(file->bytes.data + file->failed_from, 0, to - file->failed_from);
    file->failed_from = file->failed_to = 0;
}

void disk_power_cut(struct sim *sim, uint32_t machine)
{
    for (size_t i = 0; i < sim->disks.count; i++) {
        struct disk_file *file = sim->disks.files[i];
        if (file->path == NULL || file->machine != machine || file->folder)
            continue;
        forget_failed(file);
        lose_bytes(sim, file);
        bool named = file->durable != NULL && strcmp(file->durable, file->path) == 0;
        if (!named && sim_below(sim, 2) == 0)
            lose_name(file);
    }
}

void disk_clear(struct sim *sim, uint32_t machine)
{
    for (size_t i = 0; i < sim->disks.count; i++)
        if (sim->disks.files[i]->machine == machine && !sim->disks.files[i]->folder)
            remove_file(sim->disks.files[i]);
}

/* ---- operations ---- */

/* Time passes; false: the process is dead, and nothing of this is done.
 *
 * Not for run.yaml: two coordinators that begin at once would remove each other's run.yaml.tmp, and
 * the run of the second would wait for an operator. A real store is open in one of them only. */
static bool goes_on(unsigned often, const char *path)
{
    bool at_once = path != NULL && strstr(path, "/run.yaml") != NULL;
    if (world.life == NULL)
        return true;
    if (!at_once && sim_below(world.sim, often) == 0)
        life_spend(1 + sim_below(world.sim, 2 * world.sim->scenario.write_us));
    return !world.life->dead;
}

static struct disk_file *opened(int fd)
{
    check(fd >= FD_FIRST && (size_t)(fd - FD_FIRST) < world.sim->disks.count);
    return world.sim->disks.files[fd - FD_FIRST];
}

static const char *path_of(int fd)
{
    return fd == FD_DEAD ? NULL : opened(fd)->path;
}

static int place_of(const struct disk_file *file)
{
    size_t i = 0;
    while (world.sim->disks.files[i] != file)
        i++;
    return FD_FIRST + (int)i;
}

static int disk_open(const struct file_ops *ops, const char *path, int flags, unsigned mode)
{
    (void)ops, (void)mode;
    if (world.life != NULL && world.life->dead)
        return FD_DEAD;
    struct disk_file *file = find(world.sim, path);
    errno = file == NULL ? ENOENT : EEXIST;
    if ((file == NULL && (flags & O_CREAT) == 0) || (file != NULL && (flags & O_EXCL) != 0))
        return -1;
    return place_of(file != NULL ? file : make(world.sim, path, false));
}

static int disk_close(const struct file_ops *ops, int fd)
{
    (void)ops, (void)fd;
    return 0;
}

/* Whose disk it is may be killed just here. */
static void spring(const struct disk_file *file)
{
    bool journal = file->path != NULL && strstr(file->path, "/journal/") != NULL;
    if (world.life != NULL && file->machine < SIM_SERVERS_MAX)
        faults_spring(world.sim, journal ? TRAP_LOG : TRAP_WRITE, file->machine);
}

static ssize_t disk_write(const struct file_ops *ops, int fd, const void *data, size_t bytes)
{
    (void)ops;
    struct sim *sim = world.sim;
    if (!goes_on(2, path_of(fd)))
        return (ssize_t)bytes;
    struct disk_file *file = opened(fd);
    if (world.life != NULL && faults_write(sim, file->machine)) {
        errno = ENOSPC;
        return -1;
    }
    size_t written = bytes > 1 && sim_below(sim, 8) == 0 ? 1 + sim_below(sim, bytes - 1) : bytes;
    check(buf_append(&file->bytes, data, written) == ERR_OK);
    spring(file);
    return (ssize_t)written;
}

/* What was not synced may be gone, though its file shows it until the machine goes down. */
static void note_failed(struct disk_file *file)
{
    if (file->folder || file->synced == file->bytes.bytes)
        return;
    if (file->failed_to == 0)
        file->failed_from = file->synced;
    file->failed_to = file->bytes.bytes;
}

static bool fails_to_sync(struct sim *sim, const struct disk_file *file)
{
    uint32_t machine = file->folder ? machine_of_world() : file->machine;
    uint32_t *left = &sim->faults.sync_fails[machine];
    if (sim->calm || world.life == NULL || *left == 0 || --*left > 0)
        return false;
    sim_trace(sim, "a sync of %s fails", file->path != NULL ? file->path : "a removed file");
    return true;
}

static int disk_fsync(const struct file_ops *ops, int fd)
{
    (void)ops;
    struct sim *sim = world.sim;
    enum mutation mutation = sim->options.mutation;
    if (!goes_on(1, path_of(fd)))
        return 0;
    struct disk_file *folder = opened(fd);
    if (fails_to_sync(sim, folder)) {
        note_failed(folder);
        errno = EIO;
        return -1;
    }
    if (!folder->folder && mutation != MUTATE_NO_FSYNC)
        folder->synced = folder->bytes.bytes;
    for (size_t i = 0; folder->folder && mutation != MUTATE_NO_FOLDER_SYNC && i < sim->disks.count;
         i++) {
        struct disk_file *file = sim->disks.files[i];
        if (file->path == NULL || folder->path == NULL || /* it was removed since it was opened */
            !is_directly_in(file->path, folder->path))
            continue;
        free(file->durable);
        file->durable = strdup(file->path);
        check(file->durable != NULL);
    }
    spring(folder);
    return 0;
}

static int disk_truncate(const struct file_ops *ops, int fd, uint64_t bytes)
{
    (void)ops;
    if (!goes_on(2, path_of(fd)))
        return 0;
    struct disk_file *file = opened(fd);
    if (bytes > file->bytes.bytes) { /* another has made it shorter meanwhile */
        check(buf_reserve(&file->bytes, bytes - file->bytes.bytes) == ERR_OK);
        memset(file->bytes.data + file->bytes.bytes, 0, bytes - file->bytes.bytes);
    }
    file->bytes.bytes = bytes;
    file->synced = file->synced < bytes ? file->synced : bytes;
    return 0;
}

/* P7: coordinators share a run's directory, and a successor's records are not written over. */
static void check_term(const char *path)
{
    struct sim *sim = world.sim;
    bool coordinator = world.life != NULL && world.life->place.kind == MACHINE_COORDINATOR;
    const char *name = strrchr(path, '/');
    if (!coordinator || name == NULL || strcmp(name, "/cut.json") != 0)
        return;
    const struct sim_coordinator *writer = &sim->coordinators[world.life->place.index];
    if (!sim_coordinator_holds_office(sim, writer))
        sim_violated(sim, 11, "c%u, whose term is over, writes %s", writer->index, path);
}

static int disk_rename(const struct file_ops *ops, const char *from, const char *to)
{
    (void)ops;
    if (!goes_on(1, from))
        return 0;
    check_term(to);
    struct disk_file *file = find(world.sim, from), *before = find(world.sim, to);
    errno = ENOENT;
    if (file == NULL)
        return -1;
    if (before != NULL)
        remove_file(before);
    name_it(file, to);
    spring(file);
    return 0;
}

static int disk_unlink(const struct file_ops *ops, const char *path)
{
    (void)ops;
    if (!goes_on(2, path))
        return 0;
    struct disk_file *file = find(world.sim, path);
    errno = ENOENT;
    if (file == NULL)
        return -1;
    remove_file(file);
    return 0;
}

const struct file_ops file_ops_real = {
    .open = disk_open,
    .close = disk_close,
    .write = disk_write,
    .fsync = disk_fsync,
    .truncate = disk_truncate,
    .rename = disk_rename,
    .unlink = disk_unlink,
};

/* ---- the rest of common/file.h ---- */

/* Of a process that is dead nothing is seen; what it still asks is answered so that it ends. */
static bool is_dead(void)
{
    return world.life != NULL && world.life->dead;
}

static enum err not_found(const char *path, struct reason *reason)
{
    errno = ENOENT;
    return file_failed("open", path, reason);
}

enum err file_make_dirs(const char *path, unsigned mode, struct reason *reason)
{
    (void)mode, (void)reason;
    scoped(free_scoped) char *part = strdup(path);
    check(part != NULL);
    for (char *end = part; !is_dead() && end != NULL; end = strchr(end + 1, '/')) {
        if (end != part)
            *end = 0;
        if (end != part && find(world.sim, part) == NULL)
            make(world.sim, part, true);
        if (end != part)
            *end = '/';
    }
    if (!is_dead() && find(world.sim, path) == NULL)
        make(world.sim, path, true);
    return ERR_OK;
}

enum err file_make_public_dirs(const char *path, struct reason *reason)
{
    return file_make_dirs(path, 0755, reason);
}

enum err file_write_public(const char *path, struct slice bytes, struct reason *reason)
{
    return file_write_atomic(&file_ops_real, path, 0644, bytes, reason);
}

enum err file_read(const char *path, size_t bytes_max, struct buf *bytes, struct reason *reason)
{
    const struct disk_file *file = is_dead() ? NULL : find(world.sim, path);
    if (file == NULL)
        return not_found(path, reason);
    check(file->bytes.bytes <= bytes_max);
    return buf_append(bytes, file->bytes.data, file->bytes.bytes);
}

enum err file_read_part(const char *path, uint64_t offset, size_t bytes, struct buf *part,
                        struct reason *reason)
{
    const struct disk_file *file = is_dead() ? NULL : find(world.sim, path);
    if (file == NULL)
        return not_found(path, reason);
    size_t left = offset < file->bytes.bytes ? file->bytes.bytes - (size_t)offset : 0;
    if (left == 0)
        return ERR_OK; /* an empty file has no bytes to point at */
    return buf_append(part, file->bytes.data + offset, left < bytes ? left : bytes);
}

bool file_log_in_place(const struct file_log *log)
{
    return !is_dead() && opened(log->fd) == find(world.sim, log->path);
}

enum err file_map_open(const char *path, struct file_map *ret_map, struct reason *reason)
{
    const struct disk_file *file = is_dead() ? NULL : find(world.sim, path);
    if (file == NULL)
        return not_found(path, reason);
    *ret_map = (struct file_map){buf_slice(&file->bytes)};
    return ERR_OK;
}

void file_map_release(struct file_map *map)
{
    *map = (struct file_map){0};
}

void file_forget_cached(const char *path)
{
    struct disk_file *file = is_dead() ? NULL : find(world.sim, path);
    if (file != NULL)
        forget_failed(file);
}

enum err file_map_load(struct slice bytes)
{
    (void)bytes;
    return ERR_OK;
}

void file_read_ahead(struct slice bytes)
{
    (void)bytes;
}

enum err file_list(const char *path, struct file_names *ret_names, struct reason *reason)
{
    struct file_names names = {0};
    if (!is_dead() && find(world.sim, path) == NULL)
        return not_found(path, reason);
    for (size_t i = 0; !is_dead() && i < world.sim->disks.count; i++) {
        const char *name = world.sim->disks.files[i]->path;
        if (name != NULL && is_directly_in(name, path))
            check(file_names_add(&names, name + strlen(path) + 1) == ERR_OK);
    }
    file_names_sort(&names);
    *ret_names = names;
    return ERR_OK;
}

enum err file_stat(const char *path, struct file_info *ret_info, struct reason *reason)
{
    const struct disk_file *file = is_dead() ? NULL : find(world.sim, path);
    if (file == NULL && !is_dead())
        return not_found(path, reason);
    *ret_info = (struct file_info){0};
    if (file != NULL)
        *ret_info = (struct file_info){.kind = file->folder ? FILE_FOLDER : FILE_REGULAR,
                                       .bytes = file->bytes.bytes};
    return ERR_OK;
}

enum err file_remove_tree(const char *path, struct reason *reason)
{
    (void)reason;
    for (size_t i = 0; !is_dead() && i < world.sim->disks.count; i++) {
        struct disk_file *file = world.sim->disks.files[i];
        if (file->path != NULL && (strcmp(file->path, path) == 0 || is_in(file->path, path)))
            remove_file(file);
    }
    return ERR_OK;
}

/* Only data sets are looked for so, and there is none. */
enum err file_glob(const char *pattern, struct file_names *ret_names, struct reason *reason)
{
    (void)ret_names;
    return not_found(pattern, reason);
}

enum err file_resolve(const char *path, char **ret_path, struct reason *reason)
{
    (void)ret_path;
    return not_found(path, reason);
}

/* No operator works on the checkpoints here. */
enum err file_claim_take(const char *path, bool shared, struct file_claim *ret_claim,
                         struct reason *reason)
{
    (void)path, (void)shared, (void)reason;
    *ret_claim = (struct file_claim){.held = true};
    return ERR_OK;
}

void file_claim_release(struct file_claim *claim)
{
    *claim = (struct file_claim){0};
}
