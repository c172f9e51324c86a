/* A server's disk: the files of cuts. A file is written chunk by chunk under another name, synced,
 * renamed, and its folder is synced: then it is durable. A process that dies before the rename
 * leaves nothing that is ever read; a machine that loses power also loses names that were not
 * synced, and tears bytes that were not. (cut_points.c does the same with the real files.) */
#ifndef ROOST_TESTS_SIM_DISK_H
#define ROOST_TESTS_SIM_DISK_H

#include "common/rand.h"
#include "proto/wire.h"

enum { DISK_CUTS_MAX = 64 };

enum disk_stage { DISK_WRITING, DISK_WRITTEN, DISK_SYNCED, DISK_RENAMED, DISK_DURABLE };

/* A file: the values (weights, then each state) of every chunk of the server. */
struct disk_cut {
    struct cut_name name;
    enum disk_stage stage;
    uint32_t lasts; /* threads that have given all */
    bool synced;    /* its bytes are */
    bool torn;      /* what is read is not what was written */
    float **values; /* by chunk number; NULL: not there */
};

struct disk {
    uint32_t chunks_count;  /* of the model */
    uint32_t threads;       /* each says which chunk is its last */
    uint64_t full_us;       /* until then nothing more fits */
    struct cut_name failed; /* the newest that did not */
    uint32_t count;
    struct disk_cut cuts[DISK_CUTS_MAX];
};

void disk_release(struct disk *disk);
void disk_clear(struct disk *disk); /* the machine has another one */

/* A chunk's values, `n` in each of its arrays, and what an async run has behind them; `last`:
 * nothing follows from its thread. NULL: a server without chunks. */
struct disk_chunk {
    struct cut_name cut;
    uint32_t chunk, n, arrays, extra_bytes;
    bool last;
    const void *values;
};
/* True: the file is whole now. */
bool disk_write(struct disk *disk, const struct disk_chunk *chunk);

/* The file goes a stage further; returns which it has reached. DISK_WRITING: it is gone. */
enum disk_stage disk_advance(struct disk *disk, struct cut_name name, bool skip_sync);
/* The process dies, or the machine with it. */
void disk_crash(struct disk *disk, bool power, struct rand_state *random);

/* The cut that a reader finds under that name; NULL: there is none. */
const struct disk_cut *disk_find(const struct disk *disk, struct cut_name name);

void disk_remove(struct disk *disk, struct cut_name name);
void disk_remove_older(struct disk *disk, struct cut_name name);
void disk_remove_up_to(struct disk *disk, struct cut_name name); /* older ones, and itself */
void disk_remove_unfinished(struct disk *disk);

bool disk_same(struct cut_name a, struct cut_name b);
bool disk_older(struct cut_name a, struct cut_name b);

#endif
