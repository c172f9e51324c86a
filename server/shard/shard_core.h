/* The shard core's state, which its files share. For shard*.c only. */
#ifndef ROOST_SERVER_SHARD_SHARD_CORE_H
#define ROOST_SERVER_SHARD_SHARD_CORE_H

#include "common/check_account.h"
#include "server/shard/async.h"
#include "server/shard/chunk.h"
#include "server/shard/shard.h"

#include <string.h>

/* An open step. */
struct step {
    uint32_t summed_count; /* chunks whose sum is there */
    double loss[MODEL_LOSS_WEIGHTS];
};

struct shard {
    struct shard_config config; /* without the chunks: they are in the store */
    struct chunk_store store;
    struct async async;          /* when config.async.on */
    struct digest_keyed *digest; /* of what is pushed, by config.key */

    uint64_t version;   /* readable in all chunks that are here */
    uint64_t decided;   /* steps decided: version, or version + 1 while chunks are applied */
    bool applying;      /* until the last chunk has the version */
    uint64_t cut_after; /* async: so many gradients must be taken before the decision's cut */
    bool has_decision;
    struct commit decision; /* of step decided - 1 */
    uint32_t apply_next;    /* chunks below have version `decided` */
    uint32_t answer_next;   /* the pulls that waited for chunks below are answered */

    uint32_t file;    /* of a cut of the newest version */
    uint32_t attempt; /* at that cut */
    bool snapshot;
    struct cut_name snapshot_cut;
    uint32_t snapshot_file, snapshot_attempt;
    uint32_t snapshot_next;  /* chunks below are handed out, or not in this cut */
    uint32_t snapshot_given; /* chunks that were handed out */
    uint32_t snapshot_lent;  /* chunks below, as far as known, have no values with the writer */
    struct counted **copies; /* room for snapshot_copies; copies_made, which are kept, are there */
    uint32_t copies_made;
    uint32_t copies_next; /* a ring: the copy to be used next; those before it … */
    uint32_t copies_out;  /* … are with the writer, as far as known */
    bool is_held_up;      /* the step that is being applied waited for a copy */

    uint32_t leaving_count; /* chunks that are another server's now */
    uint32_t awaited_count; /* chunks that have not arrived yet */
    uint32_t transfers;     /* sent and not answered */

    struct step *steps;       /* step t at t % open_steps */
    struct chunk_seal *seals; /* of a report: room for every chunk, for each open step */
    uint32_t seals_room;
    struct parked parked;
    /* Pulls of a chunk that is not here, of a later version: a later commit may bring both. */
    struct parked_pull *later;
    struct parked_pull *again; /* pulls to be judged again */
    struct shard_statistics statistics;
    struct check_account check_account;
    uint64_t check_turn; /* events; the chunk whose turn it is: shard_check_event() */

    /* Memory that effects point to until the next call. */
    struct parked_pull *answered;
    uint32_t outgoing_count;
    struct counted *outgoing[SHARD_COPIES_MAX];
};

/* Begins a call: the last call's effects are carried out. */
void shard_core_begin(struct shard *shard);
struct shard_effect *shard_core_emit(struct shard_effects *effects, enum shard_effect_kind kind);
/* P2. */
enum err shard_core_fence(const struct shard *shard, uint64_t generation) MUST_USE;
/* Reports that the newest decision is carried out. */
void shard_core_committed(const struct shard *shard, uint64_t step, struct shard_effects *effects);
/* Takes memory for reports of the present chunks. */
enum err shard_core_seals(struct shard *shard) MUST_USE;

/* Why a chunk is not here: another server has it, or the run has none of that number. */
enum err shard_core_not_here(const struct shard *shard, uint32_t chunk) MUST_USE;

struct step *shard_core_step(const struct shard *shard, uint64_t step);
/* An open step is one that may be pushed to: not decided, and its version may be known (P5). */
bool shard_core_open(const struct shard *shard, uint64_t step);
/* Whether the step is open and all its sums are complete. */
bool shard_core_reduced(const struct shard *shard, uint64_t step);
/* Reports such a step. */
void shard_core_report(const struct shard *shard, uint64_t step, struct shard_effects *effects);

#endif
