/* The run's settings (`run.yaml`): parsed, checked and completed once, then plain data.
 *
 * Every number is inside the limits of the table in spec.c, so that steps × slots × slot_samples
 * and every size derived from the model stay below 2^63. Fields of another kind (betas of an sgd
 * run) are zero. Two specs are the same run exactly when spec_print() gives the same text. */
#ifndef ROOST_COMMON_SETTINGS_SPEC_H
#define ROOST_COMMON_SETTINGS_SPEC_H

#include "common/buf.h"
#include "common/err.h"
#include "common/settings/config.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SPEC_SIZES_MAX 64 /* layer sizes of an mlp, inputs and outputs included */
#define SPEC_PATH_BYTES 512
#define SPEC_CORE_BYTES 24
#define SPEC_ROWS_BYTES 32768     /* of a program that a user wrote */
#define SPEC_PRODUCTS_BYTES 16384 /* of the algorithms of some hundred shapes */
#define SPEC_PLACE_LEASES_MAX 8
#define SPEC_STAGES_MAX 64 /* places times members of each */
#define SPEC_AUDITED_SLOTS_MAX 1024
/* Of a slot's samples that a server streams (data.serve): they come in one message. */
#define SPEC_SERVED_BYTES_MAX ((8u << 20) - (64u << 10))

enum spec_model_kind { SPEC_GPT, SPEC_MLP, SPEC_LLAMA };
enum spec_activation { SPEC_RELU, SPEC_TANH };
enum spec_data_kind { SPEC_TEXT, SPEC_TOKENS, SPEC_SPIRAL };
enum spec_precision { SPEC_FP32, SPEC_BF16 };
enum spec_optimizer_kind { SPEC_SGD, SPEC_MOMENTUM, SPEC_ADAMW };
enum spec_schedule { SPEC_CONSTANT, SPEC_LINEAR, SPEC_COSINE };
enum spec_consistency_kind { SPEC_SYNC, SPEC_DELAY, SPEC_SSP, SPEC_ASYNC, SPEC_LOCAL };
enum spec_outer_kind { SPEC_AVERAGE, SPEC_NESTEROV };
enum spec_durability { SPEC_DURABILITY_CUT, SPEC_DURABILITY_LOGGED };
enum spec_numerics { SPEC_EXACT, SPEC_ANY };
enum spec_norms { SPEC_NORMS_WHOLE, SPEC_NORMS_SPLIT };
enum spec_recompute {
    SPEC_RECOMPUTE_NONE,
    SPEC_RECOMPUTE_ALL,
    SPEC_RECOMPUTE_EVERY,
    SPEC_RECOMPUTE_COUNT
};

struct spec_model {
    enum spec_model_kind kind;
    /* gpt, llama; heads divide width */
    uint32_t layers, heads, width, context, vocabulary;
    uint32_t kv_heads, hidden; /* llama; kv_heads divide heads */
    /* mlp: sizes[0] inputs, …, sizes[sizes_count − 1] classes (`layers:` in the file) */
    uint32_t sizes_count;
    uint32_t sizes[SPEC_SIZES_MAX];
    enum spec_activation activation; /* between an mlp's linears */
    uint32_t tensor_max;             /* 0: as many as pieces; spec_tensor_max() */
    uint32_t pieces;       /* train.pieces: products that a split layer is computed by; 0 is 1 */
    enum spec_norms norms; /* train.tensor_norms; SPLIT: gpt, llama, pieces divide context */
};

struct spec_data {
    enum spec_data_kind kind;
    char path[SPEC_PATH_BYTES]; /* text, tokens: a file or a glob */
    double validation;          /* fraction of the samples held out, 0 … 0.5 */
    bool serve;                 /* daemons stream samples to workers without a copy */
    /* spiral */
    uint32_t points; /* a class */
    uint32_t classes;
    double noise;
};

/* The number format of a worker's products (kernels/kernels.h, in this order). */
enum spec_compute { SPEC_COMPUTE_FP32, SPEC_COMPUTE_TF32, SPEC_COMPUTE_BF16 };

enum spec_weights { SPEC_RESIDENT, SPEC_STREAMED };
enum spec_order { SPEC_BY_UNIT, SPEC_BY_MICROBATCH };

/* Who computes what when, in a pipeline of stages (worker/program/schedule.h). */
enum schedule_kind {
    SCHEDULE_NAIVE,
    SCHEDULE_GPIPE,
    SCHEDULE_1F1B,
    SCHEDULE_INTERLEAVED,
    SCHEDULE_ZB_H1,
    SCHEDULE_CHIMERA,
    SCHEDULE_COUNT
};

/* "zb-h1". */
const char *schedule_name(enum schedule_kind schedule);

/* How workers share a ticket: each takes a place of it, that is, the units of one stage; or `ranks`
 * workers share that place, each with some of the pieces (common/model/pieces.h). */
struct spec_mesh {
    uint32_t stages;
    uint32_t ranks; /* 0: 1 */
    enum schedule_kind schedule;
    uint32_t runs; /* of units that a place holds */
    /* A program that a user wrote, instead of the schedule's: its file as the spec names it, and what
     * is in that (common/program/rows.h). Empty: none; the rows alone: they are read at the start */
    char program[SPEC_PATH_BYTES];
    char rows[SPEC_ROWS_BYTES];
    uint64_t memory; /* bytes of weights and gradients that a place may have; 0: any */
};

/* Where a worker's weights are between their uses (worker/program/residency.h). */
struct spec_residency {
    enum spec_weights weights;
    bool keep_after_forward;
    enum spec_order order;
    uint32_t prefetch; /* units */
};

struct spec_train {
    uint64_t steps;
    uint32_t slots;        /* fixed pieces of a step's batch */
    uint32_t slot_samples; /* samples of one slot; local: of each local step */
    uint32_t microbatch;   /* divides slot_samples */
    uint64_t seed;
    enum spec_precision
        precision; /* of the wire and of published copies; weights, state, sums: fp32 */
    enum spec_compute compute;
    uint32_t threads;    /* of one worker's kernels */
    uint32_t node_slots; /* slots a push sums, a power of two ≤ slots; 0: the coordinator
                            chooses (fp32 only: a lossy push codec needs a fixed node) */
    char gemm_core[SPEC_CORE_BYTES]; /* OPENBLAS_CORETYPE, or "auto" */
    /* How GPUs compute products: "heuristic"; "timed", until the first worker has timed them; or the
     * algorithms that it took (struct kernels_options) */
    char products[SPEC_PRODUCTS_BYTES];
    uint32_t validate_every;       /* steps; 0: only at the end */
    uint32_t validation_samples;   /* at most so many of the held-out samples; 0: all */
    enum spec_recompute recompute; /* activations of a unit again in backward (act RC) */
    uint32_t recompute_every;      /* EVERY: of each so many-th unit */
    bool offload;                  /* activations wait in the host's memory (OFF_OUT) */
    struct spec_residency residency;
    uint64_t logits_bytes_max; /* rows of logits are computed in blocks up to this */
    uint32_t skip_max;         /* non-finite steps in a row before the run stops */
    double audit;              /* share of tickets that a second worker computes as well */
    bool audit_rewind;         /* who computes wrongly is undone */
};

struct spec_optimizer {
    enum spec_optimizer_kind kind;
    double lr;
    double betas[2]; /* adamw */
    double eps;      /* adamw */
    double momentum; /* momentum */
    bool nesterov;   /* momentum */
    double weight_decay;
    double clip_norm; /* 0: no clipping */
    enum spec_schedule schedule;
    uint64_t warmup_samples; /* lr rises linearly from 0 over these */
    uint64_t decay_samples;  /* linear, cosine: lr_min is reached here, and kept; > warmup_samples
                                (default: the run's end) */
    double lr_min;           /* linear, cosine */
};

/* Which version a ticket is computed on and when its gradient is applied: docs/spec.md has the
 * table.
 */
struct spec_consistency {
    enum spec_consistency_kind kind;
    uint32_t delay;     /* delay: a ticket of step t uses version max(0, t - delay); 0 is sync */
    uint32_t staleness; /* ssp: one version in [t - staleness, t]; 0 is sync */
    uint32_t staleness_max; /* async: a gradient of weights further behind is computed again */
    uint32_t window;        /* async: tickets that may be granted at a time, in whole steps */
    /* local: `optimizer` steps on the worker, from new state each time; servers apply the mean
     * difference of the slots (spec_server_optimizer) */
    uint32_t local_steps; /* of slot_samples each */
    struct spec_outer {
        enum spec_outer_kind kind;
        double lr;
        double momentum; /* nesterov */
    } outer;
};

struct spec_checkpoint {
    uint64_t every_steps;            /* 0: only version 0 and the last */
    uint32_t keep;                   /* newest recorded cuts kept */
    uint64_t memory_bytes;           /* of a server, for copies of what steps change before a cut is
                                        written */
    enum spec_durability durability; /* async: what is durable when a push is acknowledged */
};

struct spec {
    struct spec_model model;
    struct spec_data data;
    struct spec_train train;
    struct spec_mesh mesh;
    struct spec_optimizer optimizer;
    struct spec_consistency consistency;
    struct spec_checkpoint checkpoint;
    enum spec_numerics numerics;
};

/* Of each how many-th unit activations are computed again; 0: of none. */
static inline uint32_t spec_recompute(const struct spec_train *train)
{
    return train->recompute == SPEC_RECOMPUTE_EVERY ? train->recompute_every
                                                    : train->recompute == SPEC_RECOMPUTE_ALL;
}

/* The settings in `text` (YAML, named `file` in errors), with `overrides` (may be NULL) over it,
 * every default filled in, every limit and cross-field rule checked.
 * ERR_INVALID: `reason` is one sentence that begins with its place: "run.yaml:3: …",
 * "--set train.steps=x: …" or "ROOST_TRAIN_STEPS=x: …". Pure; any thread. */
enum err spec_parse(struct slice text, const char *file, const struct config_overrides *overrides,
                    struct spec *ret_spec, struct reason *reason) MUST_USE;

/* The effective settings as YAML, every key; spec_parse() of it gives the same spec. */
enum err spec_print(const struct spec *spec, struct buf *buf) MUST_USE;

/* The reference of every key as a Markdown table: key, default, limits, meaning. A test compares
 * docs/spec.md with it. */
enum err spec_print_reference(struct buf *buf) MUST_USE;

/* All keys, for a look at their names. */
const struct config_table *spec_table(void);

/* Whether a run may be continued with a changed setting. */
enum spec_resume {
    SPEC_RESUME_FREE,   /* the weights come out the same */
    SPEC_RESUME_DIGEST, /* allowed, and reported: the weights differ from an uninterrupted run's */
    SPEC_RESUME_REFUSED /* the stored state cannot be continued with it */
};

struct spec_change {
    const char *path; /* "optimizer.lr"; constant text */
    enum spec_resume verdict;
    char text[160];  /* "optimizer.lr: 0.001 -> 0.0005", cut to fit */
    const char *why; /* " (...)", of some that are refused, else ""; constant text */
};

#define SPEC_CHANGES_MAX CONFIG_FIELDS_MAX

struct spec_changes {
    uint32_t count;
    struct spec_change changes[SPEC_CHANGES_MAX];
};

/* Every setting that differs between the stored run's spec and the new one, in table order.
 * ERR_SPEC_DIFFERS when one is refused; `reason` then names all refused ones. *ret_changes is
 * filled in both cases. */
enum err spec_compare_for_resume(const struct spec *stored, const struct spec *wanted,
                                 struct spec_changes *ret_changes, struct reason *reason) MUST_USE;

/* Derived numbers. */
/* The largest tensor degree that the grid of chunks admits; a power of two. */
static inline uint32_t spec_tensor_max(const struct spec_model *model)
{
    uint32_t pieces = model->pieces > 0 ? model->pieces : 1;
    return model->tensor_max > 0 ? model->tensor_max : pieces;
}
/* The first worker is to time them. */
static inline bool spec_times_products(const char *products)
{
    return strcmp(products, "timed") == 0;
}
static inline uint32_t spec_mesh_ranks(const struct spec_mesh *mesh)
{
    return mesh->ranks > 1 ? mesh->ranks : 1;
}
/* Several workers share a ticket. */
static inline bool spec_mesh_is_shared(const struct spec_mesh *mesh)
{
    return mesh->stages > 1 || spec_mesh_ranks(mesh) > 1;
}
/* Leases that a member of a mesh shares at a time (S9): with a delay, steps overlap. */
static inline uint32_t spec_place_leases(const struct spec *spec)
{
    uint64_t leases =
        spec->consistency.kind == SPEC_DELAY ? spec->consistency.delay + UINT64_C(1) : 1;
    return leases < SPEC_PLACE_LEASES_MAX ? (uint32_t)leases : SPEC_PLACE_LEASES_MAX;
}

static inline uint32_t spec_local_steps(const struct spec *spec)
{
    return spec->consistency.kind == SPEC_LOCAL ? spec->consistency.local_steps : 1;
}
/* The most versions that a ticket's weights may be behind its step (P5): delay, ssp. */
static inline uint32_t spec_staleness(const struct spec *spec)
{
    const struct spec_consistency *consistency = &spec->consistency;
    return consistency->kind == SPEC_DELAY ? consistency->delay
           : consistency->kind == SPEC_SSP ? consistency->staleness
                                           : 0;
}
/* In chimera a place pushes the halves of a ticket's node. */
static inline bool spec_pushes_halves(const struct spec *spec)
{
    return spec->mesh.stages > 1 && spec->mesh.schedule == SCHEDULE_CHIMERA;
}
/* Slots that a push sums, where the run has a size for that (node_slots). */
static inline uint32_t spec_push_slots(const struct spec *spec)
{
    return spec_pushes_halves(spec) ? spec->train.node_slots / 2 : spec->train.node_slots;
}
static inline uint64_t spec_slot_samples(const struct spec *spec)
{
    return (uint64_t)spec->train.slot_samples * spec_local_steps(spec);
}
static inline uint64_t spec_step_samples(const struct spec *spec)
{
    return spec->train.slots * spec_slot_samples(spec);
}
static inline uint64_t spec_run_samples(const struct spec *spec)
{
    return spec->train.steps * spec_step_samples(spec);
}

/* The optimizer that servers apply to their sums: `optimizer`, or for `local` the outer one. */
struct spec_optimizer spec_server_optimizer(const struct spec *spec);

#endif
