/* A PREPARE command judged and opened, for all shard threads of a server. Reads files, so it is not
 * part of prepare.h, which the simulator and the reference share. */
#ifndef ROOST_SERVER_DISK_PREPARED_H
#define ROOST_SERVER_DISK_PREPARED_H

#include "common/files/checkpoint.h"
#include "server/disk/journal.h"
#include "server/disk/restore.h"
#include "server/shard/prepare.h"

/* Nothing changes it after it is made, but that the last thread to fill its shard closes what all
 * were filled from: pruned files have no space back while they are open. References are counted; any
 * thread. */
struct prepared {
    atomic_uint references;
    atomic_uint filled; /* threads that need `checkpoint` and `restore` no more */
    uint64_t generation;
    uint64_t term;
    uint64_t version;              /* of the state that shards begin with */
    uint32_t server;               /* this server's index in the map */
    uint8_t key[DIGEST_KEY_BYTES]; /* of the shards' digests: random, and nowhere else */
    bool from_cut;
    bool joins; /* without chunks, while the run goes on */
    bool cuts;  /* what it begins with is a cut of its generation */
    struct spec spec;
    struct model model;
    struct checkpoint *checkpoint; /* from_cut: opened, and it fits; else NULL, and when closed */
    struct restore *restore;       /* a file with the initial weights; NULL: from the seed */
    char *checkpoint_dir;
    struct shared_blocks *blocks; /* of all shards' published copies */
    uint32_t chunk_count;         /* of this server */
    struct shard_chunk *chunks;
};

/* What the blocks of the run's cuts have beside the weights. */
struct checkpoint_arrays prepared_arrays(const struct spec *spec);

/* `pool`: of published copies, borrowed for as long as any is held; NULL: on the heap. The reason names
 * the wrong field of the command, and the file. */
enum err prepared_new(const struct server_command *command, struct shared_pool *pool,
                      struct prepared **ret_prepared, struct reason *reason) MUST_USE;
struct prepared *prepared_ref(struct prepared *prepared);
void prepared_unref(struct prepared *prepared); /* NULL is fine */

/* Of a cut's files together: weights, optimizer states, versions before the cut's; heads and
 * digests beside them are little. */
uint64_t prepared_cut_bytes(const struct spec *spec, const struct model *model);

/* The shard thread that owns a chunk: neighbours, which are asked for one after another, are
 * spread. */
static inline uint32_t prepared_thread(uint32_t chunk, uint32_t thread_count)
{
    return chunk % thread_count;
}

struct prepared_shard {
    const struct kernels *kernels;
    uint64_t boot;
    uint64_t copies_bytes_max; /* of all threads together; 0: what the spec says */
    uint32_t thread, thread_count;
};

/* The shard of those of the server's chunks that belong to `thread`, filled and started; in an
 * async run also with the gradients that its journal has beyond the cut (when the journal's torn
 * end is cut off, the result is OK with a reason). Takes long: every value is made or read. Once for
 * each thread. */
enum err prepared_shard_new(struct prepared *prepared, const struct prepared_shard *about,
                            struct shard **ret_shard, struct reason *reason) MUST_USE;

#endif
