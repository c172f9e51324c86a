/* GPT-2: token and position embeddings; blocks of LayerNorm, attention, LayerNorm, MLP, each half
 * added to the residual; a last LayerNorm and a head that shares the token embedding's weights.
 * (Radford et al. 2019; names and shapes as in Hugging Face's GPT2LMHeadModel.)
 *
 * The gradient of the residual is one array that every block's backward adds to in place. */
#include "common/model/kind.h"

#include <string.h>

/* GPT-2's and nanoGPT's initial values: 0.02, residual projections 0.02 / sqrt(2 L). */
static const double gpt_std = 0.02;

static struct model_sample sample(const struct spec_model *settings)
{
    return (struct model_sample){.tokens = true,
                                 .inputs = settings->context,
                                 .predictions = settings->context,
                                 .classes = settings->vocabulary};
}

/* ---- embedding ---- */

static void add_embeddings(struct model *model)
{
    const struct spec_model *settings = &model->settings;
    struct model_unit *unit = kind_begin_unit(model, 0);
    snprintf(unit->name, sizeof unit->name, "embedding");

    struct model_parameter *wte = kind_add(model, settings->vocabulary, settings->width);
    snprintf(wte->name, sizeof wte->name, "wte.weight");
    kind_pad_rows(wte);
    wte->split = MODEL_SPLIT_ROWS;
    kind_start_normal(wte, gpt_std);
    kind_add_tensor(model);

    struct model_parameter *wpe = kind_add(model, settings->context, settings->width);
    snprintf(wpe->name, sizeof wpe->name, "wpe.weight");
    kind_start_normal(wpe, gpt_std);
    kind_add_tensor(model);

    const struct model_operation operations[] = {
        {MODEL_EMBEDDING, .in = MODEL_IN, .out = MODEL_OUT, .uses_count = 2},
    };
    kind_compute(model, &(struct kind_program){.output_width = settings->width,
                                               .operations = operations,
                                               .operations_count = 1});
}

/* ---- block ---- */

/* One parameter of a block; rows and cols in widths. */
struct block_row {
    const char *name;
    uint32_t rows, cols;
    enum model_initial_kind initial;
    bool residual; /* writes to the residual stream */
    enum model_split split;
    uint32_t groups; /* of the split dim, before the heads */
    bool by_heads;   /* what splits is a head, not a channel */
};

/* In the order of the operations' uses. */
enum { LN_1 = 0, C_ATTN = 2, C_PROJ = 4, LN_2 = 6, C_FC = 8, MLP_C_PROJ = 10 };
static const struct block_row block_rows[] = {
    {"ln_1.weight", 1, 0, MODEL_ONES, false, MODEL_SPLIT_NONE, 1, false},
    {"ln_1.bias", 1, 0, MODEL_ZEROS, false, MODEL_SPLIT_NONE, 1, false},
    {"attn.c_attn.weight", 3, 1, MODEL_NORMAL, false, MODEL_SPLIT_ROWS, 3, true},
    {"attn.c_attn.bias", 3, 0, MODEL_ZEROS, false, MODEL_SPLIT_ROWS, 3, true},
    {"attn.c_proj.weight", 1, 1, MODEL_NORMAL, true, MODEL_SPLIT_COLS, 1, true},
    {"attn.c_proj.bias", 1, 0, MODEL_ZEROS, false, MODEL_SPLIT_NONE, 1, false},
    {"ln_2.weight", 1, 0, MODEL_ONES, false, MODEL_SPLIT_NONE, 1, false},
    {"ln_2.bias", 1, 0, MODEL_ZEROS, false, MODEL_SPLIT_NONE, 1, false},
    {"mlp.c_fc.weight", 4, 1, MODEL_NORMAL, false, MODEL_SPLIT_ROWS, 1, false},
    {"mlp.c_fc.bias", 4, 0, MODEL_ZEROS, false, MODEL_SPLIT_ROWS, 1, false},
    {"mlp.c_proj.weight", 1, 4, MODEL_NORMAL, true, MODEL_SPLIT_COLS, 1, false},
    {"mlp.c_proj.bias", 1, 0, MODEL_ZEROS, false, MODEL_SPLIT_NONE, 1, false},
};
enum { BLOCK_ROWS = sizeof block_rows / sizeof block_rows[0] };

static void add_block_row(struct model *model, uint32_t layer, const struct block_row *row)
{
    const struct spec_model *settings = &model->settings;
    struct model_parameter *parameter =
        kind_add(model, row->rows * settings->width, row->cols * settings->width);
    snprintf(parameter->name, sizeof parameter->name, "h.%u.%s", layer, row->name);
    parameter->split = row->split;
    parameter->split_groups = row->groups;
    parameter->split_heads = row->by_heads ? settings->heads : 0;
    parameter->initial = row->initial;
    if (row->initial == MODEL_NORMAL)
        kind_start_normal(parameter,
                          row->residual ? gpt_std / kind_root(2.0 * settings->layers) : gpt_std);

    struct model_tensor *tensor = kind_add_tensor(model);
    if (parameter->dims == 2) { /* Conv1D: (in, out) */
        tensor->shape[0] = parameter->shape[1];
        tensor->shape[1] = parameter->shape[0];
        tensor->transpose = true;
    }
}

/* The block's own arrays: 15 C elements a token are kept for backward. */
enum { LN1 = MODEL_OWN_ARRAYS, QKV, MIXED, RESIDUAL, LN2, FC, GELU, WIDE, NARROW, BLOCK_ARRAYS };

static void compute_block(struct model *model)
{
    const uint32_t C = model->settings.width, H = model->settings.heads;
    const struct model_array arrays[] = {
        {MODEL_SAVED, C, .gradient = NARROW},                  /* LN1 */
        {MODEL_SAVED, 3 * C, .gradient = WIDE},                /* QKV */
        {MODEL_SAVED, C, .gradient = NARROW},                  /* MIXED */
        {MODEL_SAVED, C, .gradient = MODEL_DIN},               /* RESIDUAL */
        {MODEL_SAVED, C, .gradient = NARROW},                  /* LN2 */
        {MODEL_SAVED, 4 * C, .gradient = WIDE},                /* FC */
        {MODEL_SAVED, 4 * C, .gradient = WIDE, .gelu_of = FC}, /* GELU */
        {MODEL_SCRATCH, 4 * C},                                /* WIDE */
        {MODEL_SCRATCH, C},                                    /* NARROW */
    };
    const struct model_operation operations[] = {
        {MODEL_LAYERNORM, .in = MODEL_IN, .out = LN1, .use = LN_1, .uses_count = 2},
        {MODEL_LINEAR, .in = LN1, .out = QKV, .use = C_ATTN, .uses_count = 2},
        {MODEL_ATTENTION, .in = QKV, .out = MIXED, .heads = H, .kv_heads = H},
        {MODEL_LINEAR, .in = MIXED, .out = RESIDUAL, .with = MODEL_IN, .use = C_PROJ,
         .uses_count = 2},
        {MODEL_LAYERNORM, .in = RESIDUAL, .out = LN2, .use = LN_2, .uses_count = 2},
        {MODEL_LINEAR, .in = LN2, .out = GELU, .use = C_FC, .uses_count = 2},
        {MODEL_LINEAR, .in = GELU, .out = MODEL_OUT, .with = RESIDUAL, .use = MLP_C_PROJ,
         .uses_count = 2},
    };
    _Static_assert(sizeof arrays / sizeof *arrays == BLOCK_ARRAYS - MODEL_OWN_ARRAYS, "a row each");
    kind_compute(model, &(struct kind_program){
                            .input_width = C,
                            .output_width = C,
                            .din = MODEL_DIN_INPLACE,
                            .arrays = arrays,
                            .arrays_count = sizeof arrays / sizeof *arrays,
                            .operations = operations,
                            .operations_count = sizeof operations / sizeof *operations,
                        });
}

static void add_block(struct model *model, uint32_t layer)
{
    double tokens = model->settings.context, width = model->settings.width;
    double linears = 2 * 12 * width * width * tokens;
    double attention = 2 * 2 * tokens * tokens * width; /* scores, then values */
    struct model_unit *unit = kind_begin_unit(model, linears + attention);
    snprintf(unit->name, sizeof unit->name, "h.%u", layer);
    for (uint32_t i = 0; i < BLOCK_ROWS; i++)
        add_block_row(model, layer, &block_rows[i]);
    compute_block(model);
}

/* ---- head ---- */

static void add_head(struct model *model)
{
    const struct spec_model *settings = &model->settings;
    struct model_unit *unit =
        kind_begin_unit(model, 2.0 * settings->vocabulary * settings->width * settings->context);
    snprintf(unit->name, sizeof unit->name, "head");
    struct model_parameter *weight = kind_add(model, settings->width, 0);
    snprintf(weight->name, sizeof weight->name, "ln_f.weight");
    weight->initial = MODEL_ONES;
    kind_add_tensor(model);
    struct model_parameter *bias = kind_add(model, settings->width, 0);
    snprintf(bias->name, sizeof bias->name, "ln_f.bias");
    kind_add_tensor(model);
    kind_use(model, 0); /* wte again: the tied head */
    kind_add_loss(model);

    enum { LN = MODEL_OWN_ARRAYS };
    const struct model_array arrays[] = {
        {MODEL_SAVED, settings->width, .gradient = LN}, /* when training it becomes its gradient */
    };
    const struct model_operation operations[] = {
        {MODEL_LAYERNORM, .in = MODEL_IN, .out = LN, .uses_count = 2},
        {MODEL_CLASSIFIER, .in = LN, .use = 2, .uses_count = 1},
    };
    kind_compute(model, &(struct kind_program){.input_width = settings->width,
                                               .din = MODEL_DIN_ZEROED,
                                               .arrays = arrays,
                                               .arrays_count = 1,
                                               .operations = operations,
                                               .operations_count = 2});
}

static enum err describe(struct model *model)
{
    uint32_t layers = model->settings.layers;
    const uint32_t weights = 2 + BLOCK_ROWS * layers + 2;
    const struct kind_counts counts = {
        .parameters = weights + 1, .units = layers + 2, .uses = weights + 2, .tensors = weights};
    TRY(kind_reserve(model, counts));
    add_embeddings(model);
    for (uint32_t layer = 0; layer < layers; layer++)
        add_block(model, layer);
    add_head(model);
    check(model->parameters_count == counts.parameters && model->uses_count == counts.uses);
    return ERR_OK;
}

/* ---- Hugging Face ---- */

/* GPT-2's own vocabulary ends in the token that begins and ends a text; others have none. */
static struct model_member end_token(const char *key, uint32_t vocabulary)
{
    const uint32_t end_of_text = 50256;
    return (struct model_member){key, end_of_text < vocabulary ? MODEL_UINT : MODEL_NULL,
                                 .number = end_of_text};
}

static uint32_t config(const struct spec_model *settings,
                       struct model_member ret_members[static MODEL_MEMBERS_MAX])
{
    const struct model_member members[] = {
        {"model_type", MODEL_TEXT, .text = "gpt2"},
        {"architectures", MODEL_TEXTS, .text = "GPT2LMHeadModel"},
        {"vocab_size", MODEL_UINT, .number = settings->vocabulary},
        {"n_positions", MODEL_UINT, .number = settings->context},
        {"n_embd", MODEL_UINT, .number = settings->width},
        {"n_layer", MODEL_UINT, .number = settings->layers},
        {"n_head", MODEL_UINT, .number = settings->heads, .only_here = true},
        {"activation_function", MODEL_TEXT, .text = "gelu_new", .only_here = true},
        {"layer_norm_epsilon", MODEL_REAL, .real = 1e-5, .only_here = true},
        end_token("bos_token_id", settings->vocabulary),
        end_token("eos_token_id", settings->vocabulary),
        {"resid_pdrop", MODEL_REAL, .real = 0}, /* we train without dropout */
        {"embd_pdrop", MODEL_REAL, .real = 0},
        {"attn_pdrop", MODEL_REAL, .real = 0},
    };
    _Static_assert(sizeof members <= MODEL_MEMBERS_MAX * sizeof *members, "room for all");
    memcpy(ret_members, members, sizeof members);
    return sizeof members / sizeof *members;
}

/* Causal masks, which older files hold. */
static const char *const masks[] = {".attn.bias", ".attn.masked_bias", NULL};

const struct kind kind_gpt = {
    .sample = sample,
    .describe = describe,
    .files = {.prefix = "transformer.",
              .twin = "lm_head.weight",
              .twin_of = "wte.weight",
              .passed_over = masks,
              .config = config},
};
