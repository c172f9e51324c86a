/* What a kind of model is: one file that fills a model's tables, with the words below.
 *
 * describe() tells the model in forward order: units, in each unit its parameters, `loss` last; for
 * each parameter its initial values, its split and its tensors; for each unit its arrays and
 * operations. model_init() has put settings and sample_tokens there before and cuts the grid after.
 */
#ifndef ROOST_COMMON_MODEL_KIND_H
#define ROOST_COMMON_MODEL_KIND_H

#include "common/model/model.h"

struct kind {
    struct model_sample (*sample)(const struct spec_model *settings);
    enum err (*describe)(struct model *model); /* ERR_NOMEM */
    struct model_files files;
};

extern const struct kind kind_gpt;   /* gpt.c */
extern const struct kind kind_mlp;   /* mlp.c */
extern const struct kind kind_llama; /* llama.c */

/* How long a model's tables get: describe() begins with kind_reserve(), and fills them exactly. */
struct kind_counts {
    uint32_t parameters, units, uses, tensors;
};
enum err kind_reserve(struct model *model, struct kind_counts counts) MUST_USE;

/* The next unit; the functions below are about it. The caller names it. */
struct model_unit *kind_begin_unit(struct model *model, double flops_forward);

/* A new parameter of that storage; cols 0: a vector. It begins as zeros, is not split and belongs
 * to one part; the caller names it. */
struct model_parameter *kind_add(struct model *model, uint32_t rows, uint32_t cols);
/* The unit uses a parameter of an earlier unit as well: the parameter's next part. */
void kind_use(struct model *model, uint32_t parameter);
/* The parameter `loss` of the last unit. */
void kind_add_loss(struct model *model);

/* Rows beyond the logical ones, so that MODEL_VOCABULARY_MULTIPLE divides them. */
void kind_pad_rows(struct model_parameter *parameter);
void kind_start_normal(struct model_parameter *parameter, double std);

/* The newest parameter, whole and as it is, is a tensor of the same name. */
struct model_tensor *kind_add_tensor(struct model *model);
/* So many rows of it are, after those that are tensors already; the caller names the tensor. */
struct model_tensor *kind_add_tensor_rows(struct model *model, uint32_t rows);

/* The unit's own arrays, from MODEL_OWN_ARRAYS on, and what it computes. */
struct kind_program {
    uint32_t input_width, output_width; /* of IN and OUT; 0: samples, or none */
    enum model_din din;
    const struct model_array *arrays;
    uint32_t arrays_count;
    const struct model_operation *operations;
    uint32_t operations_count;
};
void kind_compute(struct model *model, const struct kind_program *program);

/* IEEE 754 has it rounded correctly, so it has the same bits everywhere. */
static inline double kind_root(double number)
{
    return __builtin_sqrt(number);
}

#endif
