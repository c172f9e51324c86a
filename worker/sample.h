/* Text from a language model's weights, a token after another: temperature, top-k, a seed. */
#ifndef ROOST_WORKER_SAMPLE_H
#define ROOST_WORKER_SAMPLE_H

#include "common/buf.h"
#include "common/model/model.h"
#include "kernels/kernels.h"

struct sample_options {
    uint32_t tokens;    /* how many to write after the prompt */
    double temperature; /* 0: always the likeliest token */
    uint32_t top_k;     /* 0: all */
    uint64_t seed;      /* same weights, options and machine: same text */
    bool bytes;         /* the model has learnt bytes of a text, whatever its vocabulary */
};

/* Continues `prompt` and appends only what is new to `buf`. With a vocabulary of 256, or
 * `bytes`, bytes are tokens (an empty prompt starts with a newline), and no others are drawn; else the
 * prompt is the tokens' numbers, between spaces or commas, and so is what is written, a space before
 * each. `weights` are whole
 * parameters in storage order, fp32, by parameter number. ERR_UNSUPPORTED: a model without tokens,
 * or weights that are NaN; ERR_INVALID: a prompt without numbers; ERR_NOMEM. */
enum err sample_text(const struct kernels *k, const struct model *model, float *const *weights,
                     struct slice prompt, const struct sample_options *options, struct buf *buf,
                     struct reason *reason) MUST_USE;

#endif
