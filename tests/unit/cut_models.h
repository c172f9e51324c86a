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

/* The same in ranges of tokens as well. */
static inline struct spec_model ranged_gpt(uint32_t pieces)
{
    struct spec_model gpt = cut_gpt(pieces);
    gpt.context = 8;
    gpt.norms = SPEC_NORMS_SPLIT;
    return gpt;
}

static inline struct spec_model ranged_llama(uint32_t pieces)
{
    struct spec_model llama = cut_llama(pieces);
    llama.context = 8;
    llama.norms = SPEC_NORMS_SPLIT;
    return llama;
}

/* An embedding that the grid leaves whole, and a head. */
static inline struct spec_model ranged_bytes(uint32_t pieces)
{
    struct spec_model gpt = ranged_gpt(pieces);
    gpt.vocabulary = 256;
    return gpt;
}

static struct spec_model (*const cut_models[])(uint32_t pieces) = {cut_gpt, cut_llama, cut_mlp};
static struct spec_model (*const ranged_models[])(uint32_t pieces) = {ranged_gpt, ranged_llama,
                                                                      ranged_bytes};
enum {
    CUT_MODELS = sizeof cut_models / sizeof *cut_models,
    RANGED_MODELS = sizeof ranged_models / sizeof *ranged_models,
};

#endif
