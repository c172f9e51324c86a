/* What a model is made of, as plain data: parameters, units, the grid of chunks, initial values.
 *
 * Servers, workers, checkpoints and export all derive the same lists from the same spec, so a
 * chunk's number means the same everywhere and needs no negotiation.
 *
 * Parameters. Storage is a row-major (rows, cols) array; a linear's weight is (out, in); a vector
 * of n is (n, 1). Logical and storage shape differ only in the rows of `wte.weight`: the
 * vocabulary is padded to a multiple of 128; the padding is zero, masked in the loss (its
 * gradient is zero) and stripped on export. The order is: forward order, `loss` last.
 * `loss` (rule NONE, always fp32 on the wire) carries a slot's [sum of losses, tokens or samples
 * counted, correct predictions, 0]; it is no weight of the model and not part of a digest.
 *
 * Units. Consecutive layers that an act names. gpt: unit 0 the embeddings (wte, wpe), units 1 … L
 * the blocks, unit L + 1 the final LayerNorm, the head (wte again: part 1) and the loss. mlp: one
 * unit per linear, the last also has the loss.
 *
 * The grid. Each parameter is cut by row boundaries × column boundaries into
 * blocks of at most MODEL_CHUNK_WEIGHTS_MAX weights, a function of the model and tensor_max only:
 *  1. The dim that 1-D tensor parallelism splits (rows of c_attn, c_fc, wte and of an mlp's odd
 *     linears with their biases; columns of the two c_proj and of an mlp's even linears) is cut
 *     in p equal pieces, p the largest power of two ≤ tensor_max that divides it. c_attn's rows
 *     are (3, heads, head size): p divides the heads, in each of q, k and v. c_proj's columns
 *     are (heads, head size).
 *  2. A matrix's other dim (of wpe: the columns) is cut in 2 when even (2-D and 3-D meshes,
 *     q² ≤ 8), if tensor_max > 1. Vectors that 1. does not cut stay whole: meshes replicate them.
 *  3. A unit of fewer than MODEL_UNIT_CUT_MIN weights is not cut by 1. and 2.: meshes replicate it
 *     as a whole. wte counts in unit 0.
 *  4. Pieces still too large are cut further in rows of equal number (within one); where a single
 *     row is too large, first in columns of equal number.
 * So any placement on an admissible mesh is a union of whole chunks. */
#ifndef ROOST_COMMON_MODEL_MODEL_H
#define ROOST_COMMON_MODEL_MODEL_H

#include "common/err.h"
#include "common/settings/spec.h"

#include <stdbool.h>
#include <stdint.h>

#define MODEL_CHUNK_WEIGHTS_MAX 131072
#define MODEL_CHUNKS_MAX (1 << 20) /* as many as a message of the wire can name */
#define MODEL_UNIT_CUT_MIN 16384
#define MODEL_VOCABULARY_MULTIPLE 128
#define MODEL_PARTS_MAX 2
#define MODEL_NAME_BYTES 48
#define MODEL_LOSS_WEIGHTS 4

/* The places in the `loss` chunk. */
enum model_loss { MODEL_LOSS_SUM, MODEL_LOSS_COUNT, MODEL_LOSS_CORRECT, MODEL_LOSS_RESERVED };

/* What a commit does with a parameter's sum: the optimizer's step; the mean becomes the value
 * (running statistics); nothing. */
enum model_rule { MODEL_OPTIMIZER, MODEL_MEAN, MODEL_NONE };

enum model_initial_kind { MODEL_ZEROS, MODEL_ONES, MODEL_NORMAL };

/* How 1-D tensor parallelism splits a parameter (rule 1 above). */
enum model_split { MODEL_SPLIT_NONE, MODEL_SPLIT_ROWS, MODEL_SPLIT_COLS };

struct model_parameter {
    char name[MODEL_NAME_BYTES]; /* GPT-2 Hub name ("h.0.attn.c_attn.weight"), mlp: "fc1.weight" */
    uint32_t dims;               /* 1 or 2 */
    uint32_t shape[2];           /* logical; shape[1] is 1 for a vector */
    uint32_t rows, cols;         /* storage */
    uint64_t weights;            /* rows × cols */
    bool decay;                  /* weight decay applies: matrices only */
    enum model_rule rule;
    uint32_t parts;                       /* 1, or 2 when two units contribute (tied wte) */
    uint32_t part_units[MODEL_PARTS_MAX]; /* the unit of each part, ascending */
    enum model_initial_kind initial;
    float initial_std;   /* NORMAL */
    bool cut_for_meshes; /* rule 3: its unit is large enough */
    enum model_split split;
    uint32_t split_groups; /* the split dim is (groups, heads, rest): c_attn's rows (3, heads, ·) */
    uint32_t split_heads;  /* 0: any element may begin a piece */
    uint32_t split_pieces;              /* p of rule 1, in each group; 1 when the unit is not cut */
    uint32_t chunk_first, chunks_count; /* its chunks: consecutive, row-major over the blocks */
    uint32_t row_cuts, col_cuts;        /* chunks_count = row_cuts × col_cuts */
};

/* One block of one parameter; stored and sent contiguously, row-major (rows, cols). */
struct model_chunk {
    uint32_t parameter;
    uint32_t row, rows; /* [row, row + rows) of the parameter's storage rows */
    uint32_t col, cols;
    uint32_t weights; /* rows × cols ≤ MODEL_CHUNK_WEIGHTS_MAX */
};

/* A unit's use of a parameter: which part of the parameter's gradient it contributes. */
struct model_use {
    uint32_t parameter;
    uint32_t part;
};

struct model_unit {
    char name[16];                  /* "embedding", "h.0", "head", "fc1" */
    uint32_t use_first, uses_count; /* in model.uses */
    double flops_forward;           /* a sample; backward is twice that */
};

struct model {
    struct spec_model settings;
    uint32_t parameters_count, units_count, uses_count, chunks_count;
    struct model_parameter *parameters; /* owned, like the three below */
    struct model_unit *units;
    struct model_use *uses;
    struct model_chunk *chunks;
    uint32_t loss_parameter;  /* the last parameter */
    uint32_t sample_tokens;   /* predictions a sample: gpt context, mlp 1 */
    uint64_t weights;         /* stored, padding included, `loss` not */
    uint64_t weights_logical; /* without padding; 124,439,808 for gpt2 */
    double flops_forward;     /* a sample; a training step costs three times that. Counted as model
                                 FLOPs utilisation does (PaLM, appendix B): 2 per multiply-add of
                                 matrix products, attention without the causal half left out */
};

/* The model of these settings, which come from spec_parse(). ERR_NOMEM; ERR_INVALID with a reason:
 * more chunks than MODEL_CHUNKS_MAX. */
enum err model_init(struct model *model, const struct spec_model *settings,
                    struct reason *reason) MUST_USE;
void model_release(struct model *model);
void model_check(const struct model *model); /* the grid's invariants; for tests, O(chunks) */

/* The parameter of that name; parameters_count: none. */
uint32_t model_find(const struct model *model, const char *name);

/* Where chunk's row r (0 ≤ r < rows) begins in the parameter's storage, in weights; its `cols`
 * weights are contiguous there. */
static inline uint64_t model_row_offset(const struct model *model, uint32_t chunk, uint32_t r)
{
    const struct model_chunk *c = &model->chunks[chunk];
    return (uint64_t)(c->row + r) * model->parameters[c->parameter].cols + c->col;
}

/* Copy one chunk out of (gather) or into (scatter) the whole parameter's storage. */
void model_gather(const struct model *model, uint32_t chunk, float *out, const float *parameter);
void model_scatter(const struct model *model, uint32_t chunk, float *parameter, const float *inp);

/* The initial values of a chunk, `weights` floats: a function of (seed, parameter, element's place
 * in the storage) alone, whatever the grid. */
void model_initial(const struct model *model, uint64_t seed, uint32_t chunk, float *out);

/* The parameter as Hugging Face files have it: name, shape, and whether the storage must be
 * transposed (Conv1D keeps (in, out)) ; rows beyond shape are padding. ERR_NOT_FOUND: it is not
 * exported (`loss`). */
struct model_export {
    const char *name; /* borrowed from the model */
    uint32_t dims;
    uint32_t shape[2]; /* as in the file */
    bool transpose;    /* file[i][j] = storage[j][i] */
};
enum err model_export(const struct model *model, uint32_t parameter,
                      struct model_export *ret_export) MUST_USE;

#endif
