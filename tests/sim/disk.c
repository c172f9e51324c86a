#include "tests/sim/disk.h"

#include <string.h>

bool disk_same(struct cut_name a, struct cut_name b)
{
    return a.generation == b.generation && a.version == b.version;
}

bool disk_older(struct cut_name a, struct cut_name b)
{
    return a.generation < b.generation || (a.generation == b.generation && a.version < b.version);
}

static void cut_release(const struct disk *disk, struct disk_cut *cut)
{
    for (uint32_t c = 0; cut->values != NULL && c < disk->chunks_count; c++)
        free(cut->values[c]);
    free(cut->values);
}

void disk_release(struct disk *disk)
{
    for (uint32_t i = 0; i < disk->count; i++)
        cut_release(disk, &disk->cuts[i]);
}

void disk_clear(struct disk *disk)
{
    disk_release(disk);
    *disk = (struct disk){.chunks_count = disk->chunks_count, .threads = disk->threads};
}

/* ---- write and read ---- */

static struct disk_cut *find(struct disk *disk, struct cut_name name)
{
    for (uint32_t i = 0; i < disk->count; i++)
        if (disk_same(disk->cuts[i].name, name))
            return &disk->cuts[i];
    return NULL;
}

bool disk_write(struct disk *disk, const struct disk_chunk *chunk)
{
    struct disk_cut *cut = find(disk, chunk->cut);
    if (cut == NULL) {
        check(disk->count < DISK_CUTS_MAX);
        cut = &disk->cuts[disk->count++];
        *cut = (struct disk_cut){.name = chunk->cut};
        cut->values = calloc(disk->chunks_count, sizeof *cut->values);
        check(cut->values != NULL);
    }
    check(cut->stage == DISK_WRITING); /* nobody writes a file of the same name again */
    if (chunk->values != NULL) {
        size_t bytes = (size_t)chunk->arrays * chunk->n * sizeof(float) + chunk->extra_bytes;
        cut->values[chunk->chunk] = malloc(bytes);
        check(cut->values[chunk->chunk] != NULL);
        memcpy(cut->values[chunk->chunk], chunk->values, bytes);
    }
    cut->lasts += chunk->last;
    if (cut->lasts == disk->threads)
        cut->stage = DISK_WRITTEN;
    return cut->stage == DISK_WRITTEN;
}

const struct disk_cut *disk_find(const struct disk *disk, struct cut_name name)
{
    for (uint32_t i = 0; i < disk->count; i++)
        if (disk_same(disk->cuts[i].name, name) && disk->cuts[i].stage >= DISK_RENAMED)
            return &disk->cuts[i];
    return NULL;
}

enum disk_stage disk_advance(struct disk *disk, struct cut_name name, bool skip_sync)
{
    struct disk_cut *cut = find(disk, name);
    if (cut == NULL || cut->stage == DISK_WRITING || cut->stage == DISK_DURABLE)
        return DISK_WRITING;
    cut->stage++;
    if (cut->stage == DISK_SYNCED)
        cut->synced = !skip_sync;
    return cut->stage;
}

/* ---- remove ---- */

typedef bool gone_fn(const struct disk_cut *cut, struct cut_name name);

static void remove_those(struct disk *disk, gone_fn *gone, struct cut_name name)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < disk->count; i++) {
        if (gone(&disk->cuts[i], name))
            cut_release(disk, &disk->cuts[i]);
        else
            disk->cuts[kept++] = disk->cuts[i];
    }
    disk->count = kept;
}

static bool is_same(const struct disk_cut *cut, struct cut_name name)
{
    return disk_same(cut->name, name);
}

static bool is_older(const struct disk_cut *cut, struct cut_name name)
{
    return disk_older(cut->name, name);
}

static bool is_not_newer(const struct disk_cut *cut, struct cut_name name)
{
    return !disk_older(name, cut->name);
}

static bool is_unfinished(const struct disk_cut *cut, struct cut_name name)
{
    (void)name;
    return cut->stage < DISK_RENAMED;
}

void disk_remove(struct disk *disk, struct cut_name name)
{
    remove_those(disk, is_same, name);
}

void disk_remove_older(struct disk *disk, struct cut_name name)
{
    remove_those(disk, is_older, name);
}

void disk_remove_up_to(struct disk *disk, struct cut_name name)
{
    remove_those(disk, is_not_newer, name);
}

void disk_remove_unfinished(struct disk *disk)
{
    remove_those(disk, is_unfinished, (struct cut_name){0, 0});
}

/* Luck alone kept its name, or did not. */
static bool is_lost(struct disk_cut *cut, bool power, struct rand_state *random)
{
    if (cut->stage < DISK_RENAMED)
        return true;
    if (!power)
        return false;
    cut->torn = cut->torn || (!cut->synced && rand_below(random, 2) == 0);
    return cut->stage < DISK_DURABLE && rand_below(random, 2) == 0;
}

void disk_crash(struct disk *disk, bool power, struct rand_state *random)
{
    for (uint32_t i = disk->count; i-- > 0;)
        if (is_lost(&disk->cuts[i], power, random))
            disk_remove(disk, disk->cuts[i].name);
}
