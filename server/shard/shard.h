/* The shard core: the chunks of one shard thread, their gradients' sums, optimizer state, and
 * published versions. A pure core: events in, effects out; no sockets, threads, files or clocks.
 * The daemon's shard thread (shard_thread.c), the simulator and the reference drive the same code.
 *
 * Life: shard_new() under one generation -> the caller fills shard_state() of every chunk (initial
 * values or a cut's) -> shard_start() publishes -> push, pull, commit … -> shard_close(). A rewind
 * is a close and a new shard.
 *
 * A step t goes: pushes are counted (each name once: generation, step, node, chunk, part) into one
 * tree per chunk and part; when all trees are complete, the roots are added in part order, and the
 * shard reports `reduced(t)` with each chunk's sum of squares. shard_commit() takes the one
 * decision for t; shard_work() carries it out chunk by chunk in ascending order (weights, state and
 * the published copy of version t + 1 in one pass), answers the pulls that wait for them, and
 * reports `committed(t)` after the last answer. Other events may come between two chunks.
 *
 * Answers:
 * - sender's generation lower than ours: OLD_GENERATION; higher: BEHIND (P2).
 * - push of a step below our version: every name of it was counted, so it is acknowledged again;
 *   above version + delay: TOO_EARLY, not counted. Duplicates are acknowledged, and when their
 *   digest differs from the first's (remembered for the open steps and the one before) there is a
 *   WRONG_BITS effect as well. BUSY: no room for that sum now (reduce.h).
 * - pull of a version that is not there yet: parked, with a TOO_EARLY refusal as notice; of one
 *   that is gone (P5: v is readable until commit(v + delay)): TOO_LATE.
 * - a pull of more than WIRE_PAYLOAD_BYTES_MAX of this shard's weights: MALFORMED.
 * - a chunk that the run has not: NOT_FOUND. One that is not ours: MOVED; a pull of a version
 *   behind the newest decision is parked instead, because the commit that brings the chunk may
 *   be under way.
 * - sizes, parts and nodes that do not fit: MALFORMED. With a lossy push codec only nodes of the
 *   run's node size fit (P4).
 *
 * `async`: each ticket is applied by itself, when its push comes (async.h has the answers). A pull
 * is answered with the version that each chunk has. A commit only ends a step and orders cuts. The
 * effect ORDER names the versions that a pull was given and the tickets that a chunk took, NOT_FINITE
 * who brought a gradient that is not applied.
 *
 * A cut: after a commit with `cut` every chunk's state is handed out as a counted block, in
 * ascending order; a later apply never overtakes the snapshot. A large chunk lends its own values.
 * A step that comes while the writer holds them reads them there and writes the new ones into
 * another buffer; the lent one takes that one's place among the copy buffers. So nothing is copied,
 * and a step moves as many bytes as without a cut. Small chunks, and those whose cut has more than
 * their values (delay, async), are copied into a copy buffer. When the writer holds all of these,
 * the apply waits, as shard_work() returns, while pushes and pulls go on: memory is bounded. The
 * buffers are made one at a time while there is nothing else to do, and kept.
 *
 * Moves (P11): a commit may take chunks from this shard and bring others: shard_move.c.
 *
 * Memory, all taken in shard_new(), and by a commit that brings chunks: states, a published copy
 * (+ delay), which has the weights in fp32, else the weights as well, the sums' buffers (touched only
 * when used). Later the copy buffers, a parked pull's names (capped), and a chunk's next published
 * copy while somebody reads the one whose place it takes.
 *
 * Invariants (shard_check):
 *  1 a chunk's sums are those of steps in [version, version + delay], and of the step that is being
 *    applied when the chunk's turn has not come;
 *  2 applying: chunks below the apply cursor have the new version published, the others the old;
 *  3 step t is reduced exactly when every chunk's sum of t is there, and a chunk's sum is there
 *    exactly when the trees of all its parts were complete: it is then held by part 0's alone;
 *  4 every readable version of a chunk is a copy that we hold a reference to; in fp32 one of them
 *    has the weights;
 *  5 every parked pull waits for a version above its last chunk's, in that chunk's list;
 *  6 every buffer of a chunk is either free or in exactly one tree or sum;
 *  7 the snapshot cursor is at or above the apply cursor while a snapshot is under way;
 *  8 a chunk that leaves has no sums of steps that are not decided; one that is awaited comes with
 *    the newest decision, and only then that is carried out (shard_move.c);
 *  9 only a chunk that lends its values shares them, and those that it shares do not change. */
#ifndef ROOST_SERVER_SHARD_SHARD_H
#define ROOST_SERVER_SHARD_SHARD_H

#include "common/buf.h"
#include "common/err.h"
#include "common/scoped.h"
#include "common/shared/shared_blocks.h"
#include "kernels/kernels.h"
#include "proto/wire.h"
#include "server/shard/applied.h"
#include "server/shard/optimizer.h"
#include "server/shard/parked.h"
#include "server/shard/reduce.h"
#include "server/shard/seal.h"

enum {
    SHARD_PARTS_MAX = 4,
    SHARD_EFFECTS_MAX = 64,
    SHARD_ANSWERS_MAX = SHARD_EFFECTS_MAX - 4, /* to pulls that waited; a call has three more */
    SHARD_COPIES_MAX = 2048,
    SHARD_AHEAD_MAX = 2048, /* chunks of a cut that the writer holds, while a step waits */
    SHARD_DELAY_MAX = 32,
    SHARD_TRANSFERS_MAX = 4, /* sent and not answered, at a time */
};
#define SHARD_FILE_NONE UINT32_MAX /* the server is not in the cut */

/* Settings of `async`. */
struct shard_async {
    bool on;
    bool logged; /* applied, published and acknowledged when the log is on disk */
    uint32_t staleness_max;
    uint32_t window; /* tickets that may be granted at a time */
    uint32_t slot_samples;
    enum codec push_codec;
    struct seal_settings seal; /* where a chunk's scalars come from */
};

/* One chunk as the run defines it. */
struct shard_chunk {
    uint32_t chunk; /* its number in the run */
    uint32_t n;     /* weights */
    uint32_t cols;  /* of each of its rows, which a sparse push names; 0: it takes none */
    uint32_t parts; /* contributions per node, 1 … SHARD_PARTS_MAX */
    enum model_rule rule;
    bool decay;
    bool loss; /* the `loss` parameter's chunk (common/model/model.h), always fp32 on the wire */
};

struct shard_config {
    const struct kernels *kernels; /* borrowed for the shard's life */
    struct shared_blocks *blocks;  /* where published copies lie; NULL: on the heap. Borrowed for
                                      the call */
    uint64_t generation;
    uint64_t boot;
    uint64_t term;    /* of the coordinator that prepared it */
    uint64_t version; /* of the state that the caller fills in before shard_start() */
    uint32_t slots;
    uint32_t slot_samples;         /* that a slot's gradients must count; 0: any */
    uint8_t key[DIGEST_KEY_BYTES]; /* by which pushes are compared: random, known to nobody else */
    uint32_t delay; /* steps that are open behind the oldest, and versions that stay readable behind
                       the newest (P5); 0: sync */
    uint32_t cut_versions; /* how many of these a cut holds beside its own (P9): 0 or delay */
    enum codec push_codec;
    enum codec weights_codec;
    uint32_t node_level; /* with a lossy push codec: 2^node_level slots, the only node size */
    bool
        audited; /* train.audit: each node's name has a place of its own (names.h), and a push brings
                   * all that its ticket names */
    bool halves;        /* … or half of it (chimera) */
    uint32_t ahead_max; /* sums a chunk and part may hold ahead of the lowest missing slot */
    uint32_t parked_member_bytes_max;
    uint32_t file; /* of its first cut, when there is none before it: shard_snapshot_begin() */
    uint32_t snapshot_copies; /* buffers beside the chunks' own, at least 1 */
    bool snapshot_early;      /* they are made before the first cut: steps go on beside it */
    uint32_t weights_max;     /* of the run's largest chunk; 0: MODEL_CHUNK_WEIGHTS_MAX */
    struct spec_optimizer optimizer;
    struct shard_async async;
    uint32_t run_chunk_count; /* numbers from there on are no chunk of the run; 0: not known */
    uint32_t chunk_count;
    const struct shard_chunk *chunks; /* ascending numbers; copied */
};

/* What moves with a commit (P11), of this shard's chunks. */
struct shard_moves {
    uint32_t file;    /* this server's in the commit's cut, if it is one; SHARD_FILE_NONE */
    uint32_t attempt; /* at writing that cut; a later one hands the same version out again */
    uint32_t leave_count;
    const struct shard_leave {
        uint32_t chunk;
        uint32_t to; /* the caller's name for the new owner */
    } * leaves;
    uint32_t take_count;
    const struct shard_chunk *takes;
};

/* What the optimizer works on; `n` values each, NULL beyond optimizer_states(). */
struct shard_state {
    float *weights;
    float *state[OPTIMIZER_STATES_MAX];
};

enum shard_effect_kind {
    SHARD_WEIGHTS = 1,
    SHARD_REFUSAL,
    SHARD_REDUCED,
    SHARD_COMMITTED,
    SHARD_SNAPSHOT,
    SHARD_WRONG_BITS,
    SHARD_ORDER,
    SHARD_NOT_FINITE,
    SHARD_TRANSFER
};

/* async: the version that a pull was given, the ticket that a chunk took, or (BEGIN) the version
 * that the chunk began with. */
enum shard_order_kind { SHARD_ORDER_BEGIN = 1, SHARD_ORDER_PULL, SHARD_ORDER_TAKE };

struct shard_order_entry {
    uint32_t chunk;
    uint64_t version; /* it had */
    uint64_t used;    /* TAKE: the version that the gradient was computed on */
    struct counted
        *gradient; /* TAKE, logged: what was taken, fp32; the reference is the caller's */
    bool skipped;  /* TAKE: it is not finite, so the weights stay as they are */
};

struct shard_order {
    enum shard_order_kind kind;
    uint64_t attempt;
    uint64_t ticket; /* TAKE */
    float scale;     /* TAKE */
    uint32_t count;
    const struct shard_order_entry *entries;
};

/* An effect, which the caller must carry out, in order. Pointers live until the next call of the
 * shard, unless the field's comment has something else. */
struct shard_effect {
    enum shard_effect_kind kind;
    uint64_t sender; /* WEIGHTS, REFUSAL, WRONG_BITS: who pushed or pulled */
    union {
        struct {
            struct weights header;
            struct counted **copies; /* one per chunk; the references are the caller's now */
        } weights;
        struct pull_refusal refusal;
        struct reduced reduced;
        struct {
            uint64_t generation;
            uint64_t step;
        } committed;
        struct {
            struct cut_name cut;
            uint32_t file; /* the server's in the cut */
            uint32_t attempt;
            uint32_t chunk;
            uint32_t n;
            uint32_t states;
            uint32_t versions;
            uint32_t extra_bytes; /* async: of what the chunk took, behind the values */
            bool last;
            uint32_t given; /* chunks of the cut that the shard has handed out, this one too */
            /* n weights, n of each state, then n of each of the versions before the cut's, newest
             * first (below 0: version 0's), fp32; it may be longer. The weights may lie in a copy of
             * their own instead. Both references are the caller's, shard_snapshot_drop(): dropping
             * them gives room for the next chunk. A shard without chunks hands out one effect
             * without a block. */
            struct counted *block, *weights;
        } snapshot;
        struct {
            uint64_t member, first_member;
            uint64_t step;
            struct node node;
            uint32_t chunk;
            uint32_t part;
        } wrong_bits;
        struct shard_order order;
        struct { /* async: who brought a gradient that leaves the weights as they are */
            uint64_t member;
            uint64_t step;
            uint32_t slot;
            uint32_t chunk; /* the first of those */
        } not_finite;
        struct {
            uint32_t to;
            struct transfer header; /* its values: shard_transfer_copy(), before the next call */
        } transfer;
    };
};

/* Effects of the calls since it was last emptied; the caller carries them out and sets count to 0
 * before every call. */
struct shard_effects {
    uint32_t count;
    struct shard_effect items[SHARD_EFFECTS_MAX];
};

/* Since shard_new(). */
struct shard_statistics {
    uint64_t pushed_bytes; /* gradients counted, each as long as its chunk */
    uint64_t spared_bytes; /* of these: zeros that did not travel */
    uint64_t pulled_bytes; /* answered, less what shard_unsent() took back */
    uint64_t duplicates;
    uint64_t audited; /* second pushes of audited tickets; not among the duplicates */
    uint64_t busy;
    uint64_t wrong_bits;
    uint64_t open_nodes;     /* sums held now, over all chunks and parts */
    uint64_t open_nodes_max; /* the most ever */
    uint64_t parked;         /* pulls parked now */
    uint64_t held_up;        /* steps that waited for copies which the writer of a cut held */
};

struct shard;
struct async_record;

/* ERR_NOMEM; ERR_INVALID for a configuration beyond the limits. */
enum err shard_new(const struct shard_config *config, struct shard **ret_shard) MUST_USE;
void shard_free(struct shard *shard); /* NULL is fine */
SCOPED_FREE(struct shard, shard_free)

/* Where the state of chunks[index] lies until the next call, zeros at first: written by the caller
 * before shard_start(), only read afterwards. */
struct shard_state shard_state(const struct shard *shard, uint32_t index);
/* Publishes n values of chunks[index] as a version before the one that is filled in, because
 * tickets are computed on it (P9). To be called before shard_start() for each of the cut_versions
 * versions before that one, as far as they exist. */
enum err shard_publish(struct shard *shard, uint32_t index, uint64_t version,
                       const float *values) MUST_USE; /* ERR_NOMEM */
/* Publishes the version that was filled in. */
enum err shard_start(struct shard *shard) MUST_USE; /* ERR_NOMEM */

/* async: the tickets that a chunk took. Between the filling and the start: as a cut has them behind
 * the chunk's values (`extra` of shard_extra_bytes()). After the start: those of its log beyond the
 * cut, in the log's order (async.h). ERR_CORRUPT: not of this run; the log has a gap. ERR_NOMEM. */
uint32_t shard_extra_bytes(const struct shard *shard); /* 0: not async */
enum err shard_load_extra(struct shard *shard, uint32_t index, const uint8_t *extra) MUST_USE;
void shard_store_extra(const struct shard *shard, uint32_t index, uint8_t *ret_extra);
enum err shard_redo(struct shard *shard, uint32_t chunk,
                    const struct async_record *record) MUST_USE;
/* async: ORDER (BEGIN) of all chunks, as many as effects may name at a time; false: call again. */
bool shard_begin_order(struct shard *shard, uint32_t *next, struct shard_effects *effects);
/* async, logged: that many of the gradients that ORDER handed out are on disk. */
void shard_logged(struct shard *shard, uint64_t durable);
/* async, logged: that many of them are applied and published. */
uint64_t shard_taken(const struct shard *shard);
/* async: keeps those tickets in *met that all chunks of this shard have taken as well. Returns
 * whether there are chunks. `first`: *met is empty so far. */
bool shard_meet(const struct shard *shard, struct applied *met, bool first);

/* The acknowledgement of a push. */
struct shard_ack {
    enum err code;
    uint32_t first_refused; /* index of the entry that `code` is about; the entries before it are
                               counted */
    uint64_t after;         /* to be sent when shard_taken() has come to it; 0: now */
};

/* `sender` is the caller's name for who asks: a stream. `payload` holds the entries' bytes, one
 * after another; it is read before the call returns. Effects: WRONG_BITS, REDUCED, ORDER,
 * NOT_FINITE; they are carried out before the acknowledgement is sent. */
struct shard_ack shard_push(struct shard *shard, uint64_t sender, const struct push *push,
                            struct cursor payload, struct shard_effects *effects) MUST_USE;
/* Whether slots of *step are missing: a chunk that is here has no sum yet in which they are. Their
 * bits are set in *ret_slots (WIRE_SLOT_WORDS_MAX words), the others are not. Only the oldest open
 * step is looked at: before the commit of an earlier one nobody knows whose chunks a later one has.
 * async: the tickets that a chunk has not taken; *step goes back to the oldest step of such. */
bool shard_missing(const struct shard *shard, uint64_t *step, uint64_t *ret_slots);
/* Of the lowest slots that shard_missing() found in that step, one chunk's part each that lacks it.
 * Returns how many; async: none. */
uint32_t shard_lacks(const struct shard *shard, uint64_t step,
                     struct lack ret_lacks[static WIRE_LACKS_MAX]);
/* Effects: in async runs the ORDER of what an attempt is given; then, last and once, the answer to
 * this pull: WEIGHTS with all its chunks, or a REFUSAL. */
void shard_pull(struct shard *shard, struct pull_sender sender, const struct pull *pull,
                struct shard_effects *effects);
/* That many bytes of WEIGHTS were not sent, for lack of room: they will be pulled again. */
void shard_unsent(struct shard *shard, uint64_t bytes);
/* The sender is gone: its parked pulls are forgotten. */
void shard_cancel(struct shard *shard, uint64_t sender);
/* The member has ended: its parked pulls get UNKNOWN_MEMBER. False: call again for the rest. */
bool shard_end_member(struct shard *shard, uint64_t member, struct shard_effects *effects);

/* The coordinator's decision for a step, for the server's start `boot`. OK: taken, shard_work()
 * carries it out; for a step below the version: COMMITTED comes again. Else nothing changed:
 * OLD_TERM, OLD_BOOT, OLD_GENERATION, BEHIND; TOO_EARLY: not reduced, or the last one is still
 * being carried out; EXISTS: another decision for that step was taken before; MALFORMED: its moves
 * are not of what is here, or not with no open sums; NOMEM: for what comes.
 * `moves` may be NULL: nothing moves, and the file's number stays. */
enum err shard_commit(struct shard *shard, uint64_t boot, const struct commit *commit,
                      const struct shard_moves *moves, struct shard_effects *effects) MUST_USE;
/* Does one bounded piece of what is left to do: applies a chunk, answers parked pulls, hands out a
 * snapshot's chunk, sends one that leaves, or applies what waited for the log. *ret_more: call it
 * again; otherwise nothing is left, or it waits for a copy that the writer holds, or for a
 * transfer's answer. ERR_NOMEM: nothing changed. Effects: WEIGHTS, REFUSAL, COMMITTED, SNAPSHOT,
 * TRANSFER. */
enum err shard_work(struct shard *shard, struct shard_effects *effects, bool *ret_more) MUST_USE;

/* The values that are sent of a chunk that leaves: header.arrays times header.weights values, in
 * the order of a snapshot's copy. Only in a SHARD_TRANSFER effect of the newest call. */
void shard_transfer_copy(const struct shard *shard, const struct transfer *header, void *ret_data);
/* The new owner's answer. OK, TOO_LATE: the new owner has the chunk, and this shard drops it.
 * Anything else: shard_work() sends the chunk again. Late answers are ignored. */
void shard_transferred(struct shard *shard, const struct transfer *header, enum err err);
/* A chunk arrives; `payload` holds its values and is read before the call returns. OK: the shard
 * has the chunk, from this transfer or from an earlier one (P11: it is taken once). OLD_GENERATION,
 * BEHIND; TOO_EARLY: the commit that brings it has not come; TOO_LATE: the chunk was here and has
 * left; MALFORMED; NOMEM: send it again. shard_work() answers the pulls that waited. Effects:
 * COMMITTED. */
enum err shard_arrive(struct shard *shard, const struct transfer *header, struct cursor payload,
                      struct shard_effects *effects) MUST_USE;

/* Reports REDUCED again for every complete step that is not committed, because a report may be
 * lost. */
void shard_report(const struct shard *shard, struct shard_effects *effects);
/* Hands out the present version as if its commit had ordered a cut (version 0 is a cut). Not while
 * a commit is being carried out or another snapshot is under way: false. */
bool shard_snapshot_begin(struct shard *shard);
/* Of a SHARD_SNAPSHOT with a block: its n weights, what a cut has behind them, and the end of both.
 * Any thread. */
const float *shard_snapshot_weights(const struct shard_effect *snapshot);
const float *shard_snapshot_rest(const struct shard_effect *snapshot);
void shard_snapshot_drop(const struct shard_effect *snapshot); /* without a block: nothing */
/* Answers parked pulls with OLD_GENERATION; false: call again for the rest. */
bool shard_close(struct shard *shard, struct shard_effects *effects);

uint64_t shard_generation(const struct shard *shard);
uint64_t shard_version(const struct shard *shard); /* readable in all chunks */
struct shard_statistics shard_statistics(const struct shard *shard);
/* The step that is being applied waits, or has waited, for the writer of a cut. */
bool shard_is_held_up(const struct shard *shard);
/* The numbered invariants; a walk over everything. */
void shard_check(const struct shard *shard);
/* The same for the shard's thread, after every event: of the numbers and of one chunk in turn, of
 * everything as often as events have paid for it. */
void shard_check_event(struct shard *shard);
/* The state in a line, for the log (scene.h); `object` is a struct shard. */
void shard_describe(const void *object, char *text, size_t bytes);

#endif
