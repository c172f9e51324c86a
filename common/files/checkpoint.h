/* Checkpoints on disk: the files of a cut, how a cut is recorded, and how it is read.
 *
 *     RUN/checkpoints/g3-v1200/          the cut of version 1200 made under generation 3
 *         server-0.roost, server-1.roost  all chunks: weights and optimizer state
 *         cut.json                        written last, by the coordinator: the cut is recorded
 *
 * A server's file (little-endian):
 *     head    64 bytes: "roostcut", format 1, states, generation, version, server, versions,
 *             extra bytes, zeros
 *     blocks  for each chunk n weights, n values of each state, and n of each of the published
 *             versions before the cut's, newest first (`versions` of them: with a delay steps are
 *             open that compute on these; below 0: version 0's again), fp32; behind them
 *             the extra bytes (async: which tickets the chunk took); without gaps
 *     table   48 bytes a chunk, ascending by chunk: chunk, n, offset of the block, its SHA-256
 *     tail    64 bytes: offset of the table, chunks, SHA-256 of head and table, file bytes,
 *             "cut-ends"
 * So every bit is covered: blocks by the table, head and table by the tail (that digest is the
 * file's *manifest*, which cut.json repeats), the rest of the tail by its fixed values. cut.json is
 * covered by its last member, the SHA-256 of the object without it. Version 0 of a fresh run is a
 * cut.json with `by_seed` and no files: its values are made anew from the spec (P9).
 *
 * A block's digest is compared when it is read, everything else when the cut is opened; so a
 * flipped bit is found before use. Chunks are found in whatever file they are: a run may go on with
 * another number of servers. Only recorded cuts are ever read; folders without cut.json are
 * leftovers or in the making. Errors that concern bytes are ERR_CORRUPT and name file and
 * offset. */
#ifndef ROOST_COMMON_FILES_CHECKPOINT_H
#define ROOST_COMMON_FILES_CHECKPOINT_H

#include "common/file.h"
#include "common/files/state_digest.h"
#include "common/model/model.h"
#include "common/scoped.h"
#include "common/side_thread.h"

enum {
    CHECKPOINT_SERVERS_MAX = 256,
    CHECKPOINT_STATES_MAX = 2,
    CHECKPOINT_VERSIONS_MAX = 32,
    CHECKPOINT_EXTRA_BYTES_MAX = 16384,
    CHECKPOINT_PATH_BYTES = 4096
};

/* Names order by generation, then version: the newest is the greatest. */
struct checkpoint_name {
    uint64_t generation;
    uint64_t version;
};

/* RUN/checkpoints/gG-vV, or a file in it. ERR_INVALID: too long. */
struct checkpoint_path {
    char text[CHECKPOINT_PATH_BYTES];
};
enum err checkpoint_folder(const char *checkpoint_dir, struct checkpoint_name name,
                           struct checkpoint_path *ret_path) MUST_USE;
enum err checkpoint_file(const char *checkpoint_dir, struct checkpoint_name name, uint32_t server,
                         struct checkpoint_path *ret_path) MUST_USE;

/* Its cut.json. */
enum err checkpoint_record_file(const char *checkpoint_dir, struct checkpoint_name name,
                                struct checkpoint_path *ret_path) MUST_USE;

/* ---- writing ---- */

/* The arrays of a chunk beside its weights. */
struct checkpoint_arrays {
    uint32_t states;      /* of the optimizer */
    uint32_t versions;    /* published before the cut's */
    uint32_t extra_bytes; /* behind the arrays; a multiple of 4 */
};

/* One server's file in the making; appears whole or not at all. One thread. */
struct checkpoint_writer;

/* Makes the cut's folder when it is not there. `ops` must outlive the writer. */
enum err checkpoint_writer_new(const struct file_ops *ops, const char *checkpoint_dir,
                               struct checkpoint_name name, uint32_t server,
                               struct checkpoint_arrays arrays,
                               struct checkpoint_writer **ret_writer,
                               struct reason *reason) MUST_USE;
/* The blocks from now on are written by one thread while another one computes their digests. NULL:
 * the caller does so itself. They must outlive the writer. `rests`: digests take about twice as
 * long, and the core is free for others in between. */
struct checkpoint_threads {
    struct side_thread *digests, *writes;
    bool rests;
};
void checkpoint_writer_threads(struct checkpoint_writer *writer, struct checkpoint_threads threads);
/* Without finish, nothing stays behind. NULL is fine. */
void checkpoint_writer_free(struct checkpoint_writer *writer);
SCOPED_FREE(struct checkpoint_writer, checkpoint_writer_free)
/* n weights; `rest`: n of each state, n of each version, the extra bytes. Each chunk once, in any
 * order. */
enum err checkpoint_writer_add(struct checkpoint_writer *writer, uint32_t chunk, uint32_t n,
                               const float *weights, const void *rest,
                               struct reason *reason) MUST_USE;
/* Table, tail, fsync, rename, fsync of the folder; *ret_manifest is what cut.json repeats. */
enum err checkpoint_writer_finish(struct checkpoint_writer *writer, struct digest *ret_manifest,
                                  struct reason *reason) MUST_USE;

/* P8: a cut carries the coordinator's counters, from which a decision is computed. */
struct checkpoint_counters {
    uint64_t samples;
    uint64_t applied;
    uint64_t skips_in_row;
};

/* cut.json: the content of a recorded cut beside its chunks. */
struct checkpoint_record {
    struct checkpoint_name name;
    uint64_t run;
    struct checkpoint_counters counters;
    struct digest fingerprint; /* of the run's numerics; zeros: none */
    struct digest data_digest;
    const char *spec; /* YAML */
    uint32_t server_count;
    struct digest manifests[CHECKPOINT_SERVERS_MAX]; /* of server-0 … */
    /* P9: version 0 of a fresh run is recorded by its seed, without files: the spec defines it, and
     * the manifests are zeros. What its chunks' blocks would have: */
    bool by_seed;
    struct checkpoint_arrays arrays;
};

/* Makes the cut a recorded one: every server's file must be there and durable. */
enum err checkpoint_record(const struct file_ops *ops, const char *checkpoint_dir,
                           const struct checkpoint_record *record, struct reason *reason) MUST_USE;

/* Removes old cuts, unless `recorded` is here and damaged: then all stay (ERR_CORRUPT), because a
 * damaged cut takes no whole one's place. `recorded` is a recorded cut of the store. Of it and the
 * older recorded ones the newest `keep` (at least 1) stay; unrecorded folders older than it are
 * removed. Newer folders stay: their cut.json may be there before the store has the cut (P9).
 * Several processes may do it at a time. */
enum err checkpoint_prune(const char *checkpoint_dir, struct checkpoint_name recorded,
                          uint32_t keep, struct reason *reason) MUST_USE;

/* The same, but what is older than `oldest` goes: who may go back to that one knows better than the
 * folder, in which are damaged cuts that nobody goes back to, and such as were never recorded for good.
 * Whatever a peer calls the oldest, `recorded` and what is newer stay. */
enum err checkpoint_prune_older(const char *checkpoint_dir, struct checkpoint_name recorded,
                                struct checkpoint_name oldest, struct reason *reason) MUST_USE;

/* ---- going back ---- */

/* An operator chooses an older recorded cut, the run not going on: a file `restore` beside the
 * cuts' folders names it. From then on those that are newer are set aside: nobody takes one for the
 * newest. They are removed when the run goes on from the chosen one. */
enum err checkpoint_choose(const char *checkpoint_dir, struct checkpoint_name name,
                           struct reason *reason) MUST_USE;
/* ERR_NOT_FOUND: none is chosen. */
enum err checkpoint_chosen(const char *checkpoint_dir, struct checkpoint_name *ret_name,
                           struct reason *reason) MUST_USE;
/* The run goes on from the chosen cut, and the store knows: the newer ones go, then the choice. */
enum err checkpoint_take_chosen(const char *checkpoint_dir, struct reason *reason) MUST_USE;

/* ---- reading ---- */

/* A name as its folder has it, like g1-v400; false: it is none. */
bool checkpoint_name_parse(const char *text, struct checkpoint_name *ret_name);

/* The recorded cuts, the newest first; checkpoint_names_release(). */
struct checkpoint_names {
    size_t count;
    size_t set_aside; /* so many of the first */
    struct checkpoint_name *names;
};
void checkpoint_names_release(struct checkpoint_names *names); /* {0} is fine */
enum err checkpoint_list(const char *checkpoint_dir, struct checkpoint_names *ret_names,
                         struct reason *reason) MUST_USE;
bool checkpoint_is_recorded(const char *checkpoint_dir, struct checkpoint_name name);
/* The newest recorded cut that is not set aside. ERR_NOT_FOUND: there is none. */
enum err checkpoint_newest(const char *checkpoint_dir, struct checkpoint_name *ret_name,
                           struct reason *reason) MUST_USE;

/* An opened cut: read only, any number of threads. */
struct checkpoint;

/* Reads cut.json, maps every file, and verifies all but the blocks; ERR_CORRUPT also when a chunk is
 * in no file, and a later one is. */
enum err checkpoint_open(const char *checkpoint_dir, struct checkpoint_name name,
                         struct checkpoint **ret_checkpoint, struct reason *reason) MUST_USE;
/* The same with the path of the cut's folder itself. */
enum err checkpoint_open_folder(const char *folder, struct checkpoint **ret_checkpoint,
                                struct reason *reason) MUST_USE;
/* `path` may be a cut's folder, a run's directory or its checkpoints/: of these the newest. This is
 * the meaning of DIR on the command line. */
enum err checkpoint_open_any(const char *path, struct checkpoint **ret_checkpoint,
                             struct reason *reason) MUST_USE;
void checkpoint_free(struct checkpoint *checkpoint); /* NULL is fine */
SCOPED_FREE(struct checkpoint, checkpoint_free)

/* Borrowed from the checkpoint. */
const struct checkpoint_record *checkpoint_about(const struct checkpoint *checkpoint);
const char *checkpoint_path(const struct checkpoint *checkpoint); /* of the folder */
struct checkpoint_arrays checkpoint_arrays(const struct checkpoint *checkpoint);
bool checkpoint_is_by_seed(const struct checkpoint *checkpoint);

/* Whether it has exactly the chunks of this model, with so many states. ERR_SPEC_DIFFERS names the
 * first difference; ERR_CORRUPT: what it has fits, and it lacks others. */
enum err checkpoint_fits(const struct checkpoint *checkpoint, const struct model *model,
                         uint32_t states, struct reason *reason) MUST_USE;

/* A chunk's values after its digest was compared: n weights, n of each state, n of each version,
 * then the extra bytes. Borrowed from the checkpoint. ERR_NOT_FOUND, ERR_CORRUPT. */
struct checkpoint_chunk {
    uint32_t n;
    const float *values;
};
enum err checkpoint_read(const struct checkpoint *checkpoint, uint32_t chunk,
                         struct checkpoint_chunk *ret_chunk, struct reason *reason) MUST_USE;
/* A whole parameter in storage shape: array 0 the weights, 1 … the states. The checkpoint fits the
 * model. */
enum err checkpoint_read_parameter(const struct checkpoint *checkpoint, const struct model *model,
                                   uint32_t parameter, uint32_t array, float *ret_values,
                                   struct reason *reason) MUST_USE;
/* Opens the cut and reads every block of it: ERR_OK: it is whole. */
enum err checkpoint_judge(const char *checkpoint_dir, struct checkpoint_name name,
                          struct reason *reason) MUST_USE;
/* Reads blocks from *next (0: the first) on, at least one, and some `bytes` of them at most; moves
 * *next on. *ret_done: all are read. */
enum err checkpoint_verify_part(const struct checkpoint *checkpoint, uint64_t bytes, uint32_t *next,
                                bool *ret_done, struct reason *reason) MUST_USE;
/* Reads every block once. */
enum err checkpoint_verify(const struct checkpoint *checkpoint, struct reason *reason) MUST_USE;
/* The run's digest (common/files/state_digest.h) of the cut, which fits the model. Passes over the
 * values once, and leaves their blocks' digests to checkpoint_verify(), which another thread may
 * call at the same time. */
enum err checkpoint_digest(const struct checkpoint *checkpoint, const struct model *model,
                           struct digest *ret_digest, struct reason *reason) MUST_USE;

#endif
