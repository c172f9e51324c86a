/* The disks of all machines in memory, as one tree of names that all share: the system half of
 * common/file.h. The files above it (common/file.c, checkpoints, journals) are production's.
 *
 * A file lies on the disk of the machine that made it. Each operation takes its time, and a process
 * may be killed between two, or in the middle of a write. When its machine goes down as well, bytes
 * that were not synced, and names whose folder was not, are lost, torn or there, each for
 * itself. */
#ifndef ROOST_TESTS_SIM_DISK_H
#define ROOST_TESTS_SIM_DISK_H

#include "common/buf.h"
#include "common/rand.h"
#include "tests/sim/scenario.h"

#include <stdbool.h>

#define SIM_RUN "run"
#define SIM_CHECKPOINTS SIM_RUN "/checkpoints"

/* Their machine, which never goes down. */
enum { DISK_COORDINATORS = SIM_SERVERS_MAX };

struct sim;

struct disk_file {
    char *path;    /* NULL: it was removed */
    char *durable; /* the name that it has after a power cut; NULL: none */
    uint64_t hash; /* of `path` */
    uint32_t machine;
    bool folder;
    struct buf bytes;
    size_t synced;
    size_t failed_from, failed_to; /* of a sync that failed: no later one brings them to the disk */
};

struct disks {
    struct disk_file **files; /* one that is open is found by its place */
    size_t count, capacity;
};

void disk_release(struct sim *sim);

/* The file is there, whole and under that name, whatever happens to the machine. */
bool disk_has(struct sim *sim, uint32_t machine, const char *path);
/* Flips that bit, of as many as the file has; twice: it is as it was. False: there is no file. */
bool disk_flip(struct sim *sim, const char *path, uint64_t bit);
/* The machine goes down. */
void disk_power_cut(struct sim *sim, uint32_t machine);
void disk_clear(struct sim *sim, uint32_t machine); /* the machine has another one */

#endif
