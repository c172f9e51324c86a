/* Text from a gpt's weights, a token after another: temperature, top-k, a seed. */
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
};

/* Continues `prompt` (bytes are tokens: vocabulary 256; empty: starts with a newline) and appends
 * only the new bytes to `buf`. `weights` are whole parameters in storage order, fp32, by parameter
 * number. ERR_UNSUPPORTED: not a gpt over bytes; ERR_NOMEM. */
enum err sample_text(const struct kernels *k, const struct model *model, float *const *weights,
                     struct slice prompt, const struct sample_options *options, struct buf *buf,
                     struct reason *reason) MUST_USE;

#endif
