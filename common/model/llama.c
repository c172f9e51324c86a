/* Llama: token embeddings; blocks of RMSNorm, attention with rotary positions and grouped queries,
 * RMSNorm, SwiGLU, each half added to the residual; a last RMSNorm and a head of its own; no
 * biases. (Touvron et al. 2023, arXiv:2302.13971 and 2307.09288; names and shapes as in Hugging
 * Face's LlamaForCausalLM.)
 *
 * Queries, keys and values come from one matrix, as do gate and up: a Hugging Face file has their
 * rows as tensors of their own. */
#include "common/model/kind.h"

#include <string.h>

/* Hugging Face's initializer_range, for every matrix. */
static const double llama_std = 0.02;
/* What the rotary angles are powers of, and what is below RMSNorm's root (kernels/kernels.h). */
static const double rope_base = 10000, norm_epsilon = 1e-5;

static struct model_sample sample(const struct spec_model *settings)
{
    return (struct model_sample){.tokens = true,
                                 .inputs = settings->context,
                                 .predictions = settings->context,
                                 .classes = settings->vocabulary};
}

/* ---- what the units share ---- */

static struct model_parameter *add_norm(struct model *model, const char *name)
{
    struct model_parameter *norm = kind_add(model, model->settings.width, 0);
    snprintf(norm->name, sizeof norm->name, "%s", name);
    norm->initial = MODEL_ONES;
    kind_add_tensor(model);
    return norm;
}

/* The token embedding and the head have a row for each token. */
static void add_token_rows(struct model *model, const char *name)
{
    struct model_parameter *rows =
        kind_add(model, model->settings.vocabulary, model->settings.width);
    snprintf(rows->name, sizeof rows->name, "%s", name);
    kind_pad_rows(rows);
    rows->split = MODEL_SPLIT_ROWS;
    kind_start_normal(rows, llama_std);
    kind_add_tensor(model);
}

/* ---- embedding ---- */

static void add_embedding(struct model *model)
{
    struct model_unit *unit = kind_begin_unit(model, 0);
    snprintf(unit->name, sizeof unit->name, "embedding");
    add_token_rows(model, "model.embed_tokens.weight");
    const struct model_operation operations[] = {
        {MODEL_EMBEDDING, .in = MODEL_IN, .out = MODEL_OUT, .uses_count = 1},
    };
    kind_compute(model, &(struct kind_program){.output_width = model->settings.width,
                                               .operations = operations,
                                               .operations_count = 1});
}

/* ---- block ---- */

/* The uses of a block, in the order in which add_block() adds them. */
enum { INPUT_NORM, QKV_PROJ, O_PROJ, POST_NORM, GATE_UP_PROJ, DOWN_PROJ };

/* Channels of queries, keys and values together. */
static uint32_t qkv_width(const struct spec_model *settings)
{
    return settings->width / settings->heads * (settings->heads + 2 * settings->kv_heads);
}

struct matrix {
    const char *name;
    uint32_t rows, cols;
    enum model_split split;
    uint32_t groups, heads; /* of the split dim */
    uint32_t joined;        /* groups */
};

static struct model_parameter *add_matrix(struct model *model, uint32_t layer,
                                          const struct matrix *matrix)
{
    struct model_parameter *parameter = kind_add(model, matrix->rows, matrix->cols);
    snprintf(parameter->name, sizeof parameter->name, "model.layers.%u.%s", layer, matrix->name);
    parameter->split = matrix->split;
    parameter->split_groups = matrix->groups;
    parameter->split_heads = matrix->heads;
    parameter->split_joined = matrix->joined;
    kind_start_normal(parameter, llama_std);
    return parameter;
}

/* The next rows of the newest parameter are a tensor. */
static void add_rows(struct model *model, uint32_t layer, const char *name, uint32_t rows)
{
    struct model_tensor *tensor = kind_add_tensor_rows(model, rows);
    snprintf(tensor->name, sizeof tensor->name, "model.layers.%u.%s.weight", layer, name);
}

static void add_attention(struct model *model, uint32_t layer)
{
    const struct spec_model *s = &model->settings;
    uint32_t kv_rows = s->width / s->heads * s->kv_heads, queries = s->heads / s->kv_heads;
    /* Each group is one query head of every key head, the last two the keys and the values. */
    const struct matrix qkv = {"self_attn.qkv_proj.weight",
                               qkv_width(s),
                               s->width,
                               MODEL_SPLIT_ROWS,
                               queries + 2,
                               s->kv_heads,
                               queries};
    add_matrix(model, layer, &qkv);
    add_rows(model, layer, "self_attn.q_proj", s->width);
    add_rows(model, layer, "self_attn.k_proj", kv_rows);
    add_rows(model, layer, "self_attn.v_proj", kv_rows);

    const struct matrix out = {
        "self_attn.o_proj.weight", s->width, s->width, MODEL_SPLIT_COLS, 1, s->kv_heads, 1};
    add_matrix(model, layer, &out);
    kind_add_tensor(model);
}

static void add_mlp(struct model *model, uint32_t layer)
{
    const struct spec_model *s = &model->settings;
    const struct matrix gate_up = {
        "mlp.gate_up_proj.weight", 2 * s->hidden, s->width, MODEL_SPLIT_ROWS, 2, 0, 1};
    add_matrix(model, layer, &gate_up);
    add_rows(model, layer, "mlp.gate_proj", s->hidden);
    add_rows(model, layer, "mlp.up_proj", s->hidden);

    const struct matrix down = {
        "mlp.down_proj.weight", s->width, s->hidden, MODEL_SPLIT_COLS, 1, 0, 1};
    add_matrix(model, layer, &down);
    kind_add_tensor(model);
}

/* A block's own arrays. */
enum {
    NORM1 = MODEL_OWN_ARRAYS,
    QKV,
    MIXED,
    RESIDUAL,
    NORM2,
    GATE_UP,
    PRODUCT,
    WIDE,
    MIDDLE,
    NARROW,
    BLOCK_ARRAYS
};

static void compute_block(struct model *model)
{
    const struct spec_model *s = &model->settings;
    const uint32_t C = s->width, F = s->hidden, H = s->heads, G = s->kv_heads;
    const uint32_t wide = qkv_width(s) > 2 * F ? qkv_width(s) : 2 * F;
    const struct model_array arrays[] = {
        {MODEL_SAVED, C, .gradient = NARROW},          /* NORM1 */
        {MODEL_SAVED, qkv_width(s), .gradient = WIDE}, /* QKV */
        {MODEL_SAVED, C, .gradient = NARROW},          /* MIXED */
        {MODEL_SAVED, C, .gradient = MODEL_DIN},       /* RESIDUAL */
        {MODEL_SAVED, C, .gradient = NARROW},          /* NORM2 */
        {MODEL_SAVED, 2 * F, .gradient = WIDE},        /* GATE_UP */
        {MODEL_SAVED, F, .gradient = MIDDLE},          /* PRODUCT */
        {MODEL_SCRATCH, wide},                         /* WIDE */
        {MODEL_SCRATCH, F},                            /* MIDDLE */
        {MODEL_SCRATCH, C},                            /* NARROW */
    };
    const struct model_operation operations[] = {
        {MODEL_RMSNORM, .in = MODEL_IN, .out = NORM1, .use = INPUT_NORM, .uses_count = 1},
        {MODEL_LINEAR, .in = NORM1, .out = QKV, .use = QKV_PROJ, .uses_count = 1},
        {MODEL_ROPE, .in = QKV, .out = QKV, .heads = H, .kv_heads = G, .rope_base = rope_base},
        {MODEL_ATTENTION, .in = QKV, .out = MIXED, .heads = H, .kv_heads = G},
        {MODEL_LINEAR, .in = MIXED, .out = RESIDUAL, .with = MODEL_IN, .use = O_PROJ,
         .uses_count = 1},
        {MODEL_RMSNORM, .in = RESIDUAL, .out = NORM2, .use = POST_NORM, .uses_count = 1},
        {MODEL_LINEAR, .in = NORM2, .out = GATE_UP, .use = GATE_UP_PROJ, .uses_count = 1},
        {MODEL_SWIGLU, .in = GATE_UP, .out = PRODUCT},
        {MODEL_LINEAR, .in = PRODUCT, .out = MODEL_OUT, .with = RESIDUAL, .use = DOWN_PROJ,
         .uses_count = 1},
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
    const struct spec_model *s = &model->settings;
    char name[MODEL_NAME_BYTES];
    double tokens = s->context, width = s->width;
    double weights = width * (qkv_width(s) + width + 3.0 * s->hidden);
    double attention = 2 * 2 * tokens * tokens * width; /* scores, then values */
    struct model_unit *unit = kind_begin_unit(model, 2 * weights * tokens + attention);
    snprintf(unit->name, sizeof unit->name, "layers.%u", layer);
    snprintf(name, sizeof name, "model.layers.%u.input_layernorm.weight", layer);
    add_norm(model, name);
    add_attention(model, layer);
    snprintf(name, sizeof name, "model.layers.%u.post_attention_layernorm.weight", layer);
    add_norm(model, name);
    add_mlp(model, layer);
    compute_block(model);
}

/* ---- head ---- */

static void add_head(struct model *model)
{
    const struct spec_model *s = &model->settings;
    struct model_unit *unit = kind_begin_unit(model, 2.0 * s->vocabulary * s->width * s->context);
    snprintf(unit->name, sizeof unit->name, "head");
    add_norm(model, "model.norm.weight");
    add_token_rows(model, "lm_head.weight");
    kind_add_loss(model);

    enum { NORM = MODEL_OWN_ARRAYS };
    const struct model_array arrays[] = {
        {MODEL_SAVED, s->width, .gradient = NORM}, /* when training it becomes its gradient */
    };
    const struct model_operation operations[] = {
        {MODEL_RMSNORM, .in = MODEL_IN, .out = NORM, .uses_count = 1},
        {MODEL_CLASSIFIER, .in = NORM, .use = 1, .uses_count = 1},
    };
    kind_compute(model, &(struct kind_program){.input_width = s->width,
                                               .din = MODEL_DIN_ZEROED,
                                               .arrays = arrays,
                                               .arrays_count = 1,
                                               .operations = operations,
                                               .operations_count = 2});
}

static enum err describe(struct model *model)
{
    uint32_t layers = model->settings.layers;
    const struct kind_counts counts = {.parameters = 1 + 6 * layers + 3,
                                       .units = layers + 2,
                                       .uses = 1 + 6 * layers + 3,
                                       .tensors = 1 + 9 * layers + 2};
    TRY(kind_reserve(model, counts));
    add_embedding(model);
    for (uint32_t layer = 0; layer < layers; layer++)
        add_block(model, layer);
    add_head(model);
    check(model->parameters_count == counts.parameters && model->tensors_count == counts.tensors);
    return ERR_OK;
}

/* ---- Hugging Face ---- */

static uint32_t config(const struct spec_model *settings,
                       struct model_member ret_members[static MODEL_MEMBERS_MAX])
{
    const struct model_member members[] = {
        {"model_type", MODEL_TEXT, .text = "llama"},
        {"architectures", MODEL_TEXTS, .text = "LlamaForCausalLM"},
        {"vocab_size", MODEL_UINT, .number = settings->vocabulary},
        {"max_position_embeddings", MODEL_UINT, .number = settings->context},
        {"hidden_size", MODEL_UINT, .number = settings->width},
        {"intermediate_size", MODEL_UINT, .number = settings->hidden},
        {"num_hidden_layers", MODEL_UINT, .number = settings->layers},
        {"num_attention_heads", MODEL_UINT, .number = settings->heads, .only_here = true},
        {"num_key_value_heads", MODEL_UINT, .number = settings->kv_heads},
        {"hidden_act", MODEL_TEXT, .text = "silu", .only_here = true},
        {"rms_norm_eps", MODEL_REAL, .real = norm_epsilon, .only_here = true},
        {"rope_theta", MODEL_REAL, .real = rope_base, .only_here = true},
        {"rope_scaling", MODEL_NULL, .only_here = true},
        {"tie_word_embeddings", MODEL_BOOL, .number = false},
        {"attention_bias", MODEL_BOOL, .number = false},
        {"mlp_bias", MODEL_BOOL, .number = false},
        {"bos_token_id", MODEL_NULL},
        {"eos_token_id", MODEL_NULL},
    };
    _Static_assert(sizeof members <= MODEL_MEMBERS_MAX * sizeof *members, "room for all");
    memcpy(ret_members, members, sizeof members);
    return sizeof members / sizeof *members;
}

/* Frequencies of the rotary positions, which older files hold. */
static const char *const frequencies[] = {".rotary_emb.inv_freq", NULL};

const struct kind kind_llama = {
    .sample = sample,
    .describe = describe,
    .files = {.prefix = "", .passed_over = frequencies, .config = config},
};
