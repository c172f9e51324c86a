/* From the reduced sums of a step to its one decision.
 *
 * Shards, not workers, decide that a step is done (P1): each reports the sum of squares of each of
 * its chunks. The coordinator adds them in chunk order, whatever the order of the reports, and does
 * all scalar arithmetic of the step here, once: clip factor, learning rate, bias corrections. In
 * double, rounded to float once, without libm, so every machine and every build gets the same bits;
 * the single process of tests/reference calls the same functions.
 *
 * Pure: no I/O, no clock, no threads; one owner. */
#ifndef ROOST_SERVER_SHARD_SEAL_H
#define ROOST_SERVER_SHARD_SEAL_H

#include "common/err.h"
#include "common/settings/schedule.h"
#include "proto/wire.h"

/* The spec's settings for the scalars of a step. */
struct seal_settings {
    struct schedule schedule;
    double clip_norm;            /* 0: no clipping */
    double beta1, beta2;         /* adamw; 0, 0: no bias correction (both factors 1) */
    uint32_t sample_predictions; /* per sample: a gpt makes its context's, an mlp 1 */
    uint32_t mean_slots;         /* local: a sum is of so many slots' weight differences, of which
                                    the mean is applied; 0: of samples' gradients */
    uint32_t skip_max;           /* this many skipped steps in a row fail the run; 0: never */
};

struct seal_settings seal_settings_of_spec(const struct spec *spec);

/* The numbers that a decision is computed from beside the step itself. P8: decisions and cuts carry
 * them. */
struct seal_counters {
    uint64_t samples; /* of all steps committed so far, skipped ones included */
    uint64_t applied; /* updates, skipped steps not included */
    uint64_t skips_in_row;
};

/* The metrics of a step. */
struct seal_metrics {
    double loss;     /* mean over the step's samples */
    double accuracy; /* correct / predictions; 0 where the model does not count */
    double norm;     /* of the mean gradient, before clipping */
    double lr;
    uint64_t samples; /* as they were counted with the gradients */
    uint64_t digest;  /* of the sums of all chunks and the loss: equal bits, equal digest */
};

/* The reports of one step that have come so far. {0} before seal_init. */
struct seal {
    uint32_t chunk_count;
    uint32_t sealed_count; /* chunks reported so far */
    struct chunk_seal *chunks;
    bool *sealed;
    bool has_loss;
    double loss_sum, sample_count, correct_count;
};

enum err seal_init(struct seal *ret_seal, uint32_t chunk_count) MUST_USE; /* ERR_NOMEM */
void seal_release(struct seal *seal);
void seal_restart(struct seal *seal); /* for the next step: nothing is reported yet */

/* Takes in one report. A chunk that was reported before is ignored, so a report may come twice, and
 * a server may send its chunks in several reports. The caller has fenced generation and step.
 * ERR_MALFORMED: it names a chunk that the run does not have; nothing of it was taken. */
enum err seal_add(struct seal *seal, const struct reduced *reduced) MUST_USE;

/* Forgets a chunk's report, which is not true any more. */
void seal_forget(struct seal *seal, uint32_t chunk);

/* Whether every chunk and the loss are reported. */
bool seal_complete(const struct seal *seal);

/* The decision for a complete seal. Fills everything in *ret_commit but generation, term, step and
 * cut, and moves `counters` on.
 * ERR_NON_FINITE: this is skip number skip_max in a row; the outputs are filled all the same. */
enum err seal_decide(const struct seal_settings *settings, struct seal_counters *counters,
                     const struct seal *seal, struct commit *ret_commit,
                     struct seal_metrics *ret_metrics) MUST_USE;

/* Whether both are the same decision. The two may differ in the term, which only names the
 * coordinator that sends the decision again, and in the cut, which may have been given up
 * meanwhile. */
bool seal_same_decision(const struct commit *a, const struct commit *b);

/* async: a step is over, and was applied ticket by ticket. The counters move on, and the commit has
 * nothing else. The norm is not known, and the loss is not known when nobody could sum it: both are
 * not a number then. */
void seal_count(const struct seal_settings *settings, struct seal_counters *counters,
                const struct seal *seal, struct commit *ret_commit,
                struct seal_metrics *ret_metrics);

/* async: the decision for one ticket that a chunk takes by itself. The chunk's version stands for
 * the samples before it, so the scalars follow from the chunk's own history. */
struct seal_ticket {
    uint32_t slot_samples;
    uint64_t version; /* tickets that the chunk took before */
    uint64_t updates; /* the tickets among them that were applied */
    float scale;      /* the worker's clip factor; 0: not finite, so not applied */
};
/* Everything in it but generation, term, step and cut. */
struct commit seal_ticket(const struct seal_settings *settings, const struct seal_ticket *ticket);

#endif
