/* A server's disk: the files of cuts. It keeps what was finished; a cut is there when all its
 * chunks and the manifest are written. Unsynced and torn writes belong here. */
#ifndef ROOST_TESTS_SIM_DISK_H
#define ROOST_TESTS_SIM_DISK_H

#include "proto/wire.h"

enum { DISK_CUTS_MAX = 64 };

/* A file: the values (weights, then each state) of every chunk of the server. */
struct disk_cut {
    struct cut_name name;
    bool durable;
    float **values; /* by chunk number; NULL: not there */
};

struct disk {
    uint32_t chunks_count;  /* of the model */
    uint64_t full_us;       /* until then nothing more fits */
    struct cut_name failed; /* the newest that did not */
    uint32_t count;
    struct disk_cut cuts[DISK_CUTS_MAX];
};

void disk_release(struct disk *disk);

/* A chunk's values, `n` in each of its arrays; `last`: the cut is durable now. NULL: a
 * server without chunks. */
struct disk_chunk {
    struct cut_name cut;
    uint32_t chunk, n, arrays;
    bool last;
    const void *values;
};
void disk_write(struct disk *disk, const struct disk_chunk *chunk);

/* The durable cut of that name; NULL: there is none. */
const struct disk_cut *disk_find(const struct disk *disk, struct cut_name name);

void disk_remove(struct disk *disk, struct cut_name name);
void disk_remove_older(struct disk *disk, struct cut_name name);
void disk_remove_up_to(struct disk *disk, struct cut_name name); /* older ones, and itself */
void disk_remove_unfinished(struct disk *disk);

bool disk_same(struct cut_name a, struct cut_name b);
bool disk_older(struct cut_name a, struct cut_name b);

#endif
