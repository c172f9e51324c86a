/* Small models that the grid cuts, so that they can be computed by pieces. */
#ifndef ROOST_TESTS_UNIT_CUT_MODELS_H
#define ROOST_TESTS_UNIT_CUT_MODELS_H

#include "tests/unit/executor_fixture.h"

static inline struct spec_model cut_gpt(uint32_t pieces)
{
    struct spec_model gpt = fixture_gpt();
    gpt.heads = 4;
    gpt.width = 48;
    gpt.vocabulary = 300;
    gpt.pieces = pieces;
    return gpt;
}

static inline struct spec_model cut_llama(uint32_t pieces)
{
    struct spec_model llama = fixture_llama();
    llama.heads = 8;
    llama.kv_heads = 4;
    llama.width = 48;
    llama.hidden = 72;
    llama.vocabulary = 300;
    llama.pieces = pieces;
    return llama;
}

/* A pair of linears, and a last one by rows. */
static inline struct spec_model cut_mlp(uint32_t pieces)
{
    struct spec_model mlp = fixture_mlp();
    const uint32_t sizes[] = {64, 256, 128, 128};
    memcpy(mlp.sizes, sizes, sizeof sizes);
    mlp.pieces = pieces;
    return mlp;
}

static struct spec_model (*const cut_models[])(uint32_t pieces) = {cut_gpt, cut_llama, cut_mlp};
enum { CUT_MODELS = sizeof cut_models / sizeof *cut_models };

#endif
