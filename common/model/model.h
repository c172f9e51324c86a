/* What a model is made of, as plain data: parameters, units, the grid of chunks, initial values.
 *
 * Servers, workers, checkpoints and export all derive the same lists from the same spec, so a
 * chunk's number means the same everywhere and needs no negotiation.
 *
 * Parameters. Storage is a row-major (rows, cols) array; a linear's weight is (out, in); a vector
 * of n is (n, 1). Logical and storage shape differ only in the rows of `wte.weight`: the
 * vocabulary is padded to a multiple of 128; the padding is zero, masked in the loss (its
 * gradient is zero) and stripped on export. The order is: forward order, `loss` last.
 * `loss` (rule NONE, always fp32 on the wire) carries a slot's [sum over samples of the mean loss,
 * samples, correct predictions, 0]; it is no weight of the model and not part of a digest.
 *
 * Units. Consecutive layers that an act names. A unit has a table of operations on arrays: what it
 * computes, with every shape. worker/model/unit.c carries the table out.
 *
 * Kinds. A kind of model is one file of common/model/ (gpt.c, mlp.c), which fills all of these
 * tables (common/model/kind.h); docs/add-a-model.md is the way to a new one.
 *
 * The grid. Each parameter is cut by row boundaries × column boundaries into
 * blocks of at most MODEL_CHUNK_WEIGHTS_MAX weights, a function of the model and of the largest
 * tensor degree, spec_tensor_max(), alone:
 *  1. The dim that 1-D tensor parallelism splits (rows of what a block's first linears make, of the
 *     token embedding and of an mlp's odd linears, with their biases; columns of a block's linears
 *     that add to the residual and of an mlp's even linears) is cut in p equal pieces, p the
 *     largest power of two ≤ that degree which divides it. Where heads split it, the dim is
 *     (groups, heads, head size), and p divides the heads in each of the groups: c_attn's rows are
 *     (3, heads, ·) for q, k and v, c_proj's columns (1, heads, ·), a llama's qkv_proj
 *     (heads / kv_heads + 2, kv_heads, ·).
 *  2. A matrix's other dim (of wpe: the columns) is cut in 2 when even (2-D and 3-D meshes,
 *     q² ≤ 8), if that degree is more than 1. Vectors that 1. does not cut stay whole: meshes replicate them.
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
#define MODEL_NAME_BYTES 64
#define MODEL_UNIT_ARRAYS_MAX 16
#define MODEL_UNIT_OPERATIONS_MAX 16
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
    char name[MODEL_NAME_BYTES]; /* gpt: "h.0.attn.c_attn.weight", mlp: "fc1.weight" */
    uint32_t dims;               /* 1 or 2 */
    uint32_t shape[2];           /* logical; shape[1] is 1 for a vector */
    uint32_t rows, cols;         /* storage */
    uint64_t weights;            /* rows × cols; in a member's model what the member holds of it */
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
    uint32_t split_joined; /* so many groups, from the first on, are one run of heads: a llama's
                              queries. Else 1 */
    uint32_t split_pieces; /* p of rule 1, in each group; 1 when the unit is not cut */
    uint32_t pieces;       /* that a worker computes it by (common/model/pieces.h); 1: as a whole */
    uint32_t chunk_first, chunks_count; /* its chunks: consecutive, row-major over the blocks */
    uint32_t tensor_first, tensors_count;
    uint32_t row_cuts, col_cuts; /* chunks_count = row_cuts × col_cuts */
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

/* Where an array of a unit is while the unit computes. */
enum model_where {
    MODEL_NO_ARRAY,
    MODEL_IN,      /* the previous unit's output; unit 0: the samples */
    MODEL_OUT,     /* the next unit's input */
    MODEL_DIN,     /* the gradient of IN; the same array as DOUT where a unit works in place */
    MODEL_DOUT,    /* the gradient of OUT */
    MODEL_SAVED,   /* kept from forward to backward */
    MODEL_SCRATCH, /* within one act */
};

/* An array of a unit: so many elements for each prediction (that is, token) of the microbatch.
 * Arrays MODEL_IN … MODEL_DOUT of a unit are what their names say; SAVED and SCRATCH ones follow
 * from MODEL_OWN_ARRAYS on. */
enum { MODEL_OWN_ARRAYS = MODEL_DOUT + 1 };
struct model_array {
    enum model_where where;
    uint32_t width;
    uint8_t gradient; /* the array its gradient is in; NO_ARRAY: nobody wants the gradient. Backward
                         reuses arrays: two may have their gradients in one, one after the other */
    uint8_t gelu_of;  /* this array is gelu() of that one, in the linear that makes both; the
                         gradient is that of gelu's input */
    uint8_t pieces;   /* it lies as (pieces, predictions, width / pieces) (common/model/pieces.h) */
    bool split;       /* in pieces. In a member's model, width and pieces are those that it holds */
    bool ranged;      /* a member has only its ranges of the predictions */
};

/* What the operations of units are; the kernels of kernels/kernels.h have the formulas. `with`,
 * `heads` and `kv_heads` are for those that name them. */
enum model_operation_kind {
    MODEL_EMBEDDING,  /* out = rows of a table, by tokens; uses: the table, and one of positions */
    MODEL_LAYERNORM,  /* uses: gamma, beta. dIN += */
    MODEL_RMSNORM,    /* uses: gamma. dIN += */
    MODEL_LINEAR,     /* out = in weight^T + bias, plus the array `with`, whose gradient is out's;
                         uses: weight, and a bias */
    MODEL_ROPE,       /* in place on (heads + 2 kv_heads) heads; out is in */
    MODEL_ATTENTION,  /* causal; in: (heads + 2 kv_heads) heads */
    MODEL_SWIGLU,     /* in: gate and up side by side */
    MODEL_RELU,       /* in place */
    MODEL_TANH,       /* in place */
    MODEL_CLASSIFIER, /* the last linear and the loss; uses: weight, and a bias. Forward computes
                         the gradients as well, when training */
    MODEL_OPERATIONS_COUNT
};

struct model_operation {
    enum model_operation_kind kind;
    uint8_t in, out, with;   /* arrays of the unit */
    uint8_t use, uses_count; /* consecutive uses of the unit, from its first on */
    uint32_t heads, kv_heads;
    double rope_base; /* ROPE: pair i of a head of S channels turns by base^(-2i/S) a token */
};

/* What the gradient of a unit's input begins as. */
enum model_din {
    MODEL_DIN_ABSENT, /* unit 0: nobody wants it */
    MODEL_DIN_SET,    /* an operation overwrites it */
    MODEL_DIN_ZEROED, /* operations add to it: it begins as zeros */
    MODEL_DIN_INPLACE /* it begins as the gradient of the output, in the same array */
};

struct model_unit {
    char name[24];                  /* "embedding", "h.0", "head", "fc1" */
    uint32_t use_first, uses_count; /* in model.uses */
    double flops_forward;           /* a sample; backward is twice that */
    enum model_din din;
    uint32_t arrays_count, operations_count;
    struct model_array arrays[MODEL_UNIT_ARRAYS_MAX];
    struct model_operation operations[MODEL_UNIT_OPERATIONS_MAX]; /* forward: first to last */
};

/* One tensor of a Hugging Face file: some rows of a parameter, all or a part of them. */
struct model_tensor {
    char name[MODEL_NAME_BYTES];
    uint32_t parameter;
    uint32_t row, rows; /* of the parameter's storage, without padding */
    uint32_t dims;
    uint32_t shape[2]; /* as in the file; shape[1] is 1 for a vector */
    bool transpose;    /* file[i][j] = storage[row + j][i]: Conv1D keeps (in, out) */
};

/* One sample: 4-byte inputs (tokens, or floats) and one int32 target for each prediction. */
struct model_sample {
    bool tokens;
    uint32_t inputs;
    uint32_t predictions;
    uint32_t classes; /* targets are below that, and tokens */
};

/* One member of config.json, with one of the values. */
struct model_member {
    const char *key;
    enum { MODEL_UINT, MODEL_REAL, MODEL_BOOL, MODEL_TEXT, MODEL_TEXTS, MODEL_NULL } type;
    uint64_t number; /* UINT, BOOL */
    double real;
    const char *text; /* TEXTS: an array of this one */
    bool only_here;   /* no tensor shows it: a file with another value is of another model */
};
#define MODEL_MEMBERS_MAX 24

/* What a kind's Hugging Face files are beside their tensors. */
struct model_files {
    const char *prefix; /* that state_dict() puts before names; "": nothing */
    /* A tensor that is the same as another one, in files that have it; NULL: none. */
    const char *twin, *twin_of;
    const char *const *passed_over; /* endings of names that are no weights, until NULL */
    /* The members of config.json, and how many; NULL: the kind has no such file. */
    uint32_t (*config)(const struct spec_model *settings,
                       struct model_member ret_members[static MODEL_MEMBERS_MAX]);
};

struct model {
    struct spec_model settings;
    uint32_t parameters_count, units_count, uses_count, chunks_count, tensors_count;
    struct model_parameter *parameters; /* owned, like the four below */
    struct model_unit *units;
    struct model_use *uses;
    struct model_chunk *chunks;
    struct model_tensor *tensors; /* by parameter, then by row: they cover every weight once */
    const struct model_files *files;
    uint32_t rank, ranks;     /* the member whose model it is (pieces_share); else 0 of 1 */
    uint32_t loss_parameter;  /* the last parameter */
    uint32_t sample_tokens;   /* predictions a sample: a gpt's context, 1 of an mlp */
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
/* The invariants of the grid, and of tensors and operations; model_init() has checked them. */
void model_check(const struct model *model);
void model_check_tables(const struct model *model);

/* What one sample is made of: a function of the settings alone. */
struct model_sample model_sample(const struct spec_model *settings);

/* Where chunk's row r (0 ≤ r < rows) begins in the parameter's storage, in weights; its `cols`
 * weights are contiguous there. */
static inline uint64_t model_row_offset(const struct model *model, uint32_t chunk, uint32_t r)
{
    const struct model_chunk *c = &model->chunks[chunk];
    return (uint64_t)(c->row + r) * model->parameters[c->parameter].cols + c->col;
}

/* Copies one chunk into the whole parameter's storage. */
void model_scatter(const struct model *model, uint32_t chunk, float *parameter, const float *inp);

/* The initial values of a chunk, `weights` floats: a function of (seed, parameter, element's place
 * in the storage) alone, whatever the grid. */
void model_initial(const struct model *model, uint64_t seed, uint32_t chunk, float *out);

/* The tensor of that name; tensors_count: none. */
uint32_t model_find_tensor(const struct model *model, const char *name);

#endif
