/* GPT-2: token and position embeddings; blocks of LayerNorm, attention, LayerNorm, MLP, each half
 * added to the residual; a last LayerNorm and a head that shares the token embedding's weights.
 * (Radford et al. 2019; names and shapes as in Hugging Face's GPT2LMHeadModel.)
 *
 * The gradient of the residual is one array that every block's backward adds to in place: the
 * LayerNorm kernels do `dinp +=`. */
#include "worker/model/classifier.h"
#include "worker/model/unit.h"

/* Order of the uses of each kind of unit (common/model/model.c). */
enum { WTE, WPE };
enum {
    LN1_WEIGHT,
    LN1_BIAS,
    QKV_WEIGHT,
    QKV_BIAS,
    PROJ_WEIGHT,
    PROJ_BIAS,
    LN2_WEIGHT,
    LN2_BIAS,
    FC_WEIGHT,
    FC_BIAS,
    FCPROJ_WEIGHT,
    FCPROJ_BIAS
};
enum { LNF_WEIGHT, LNF_BIAS, HEAD_WEIGHT };

struct dims {
    int64_t B, T, C, H, N, V, Vp;
};

static struct dims dims(const struct model *model, uint32_t samples)
{
    const struct spec_model *s = &model->settings;
    uint32_t wte = model->uses[model->units[0].use_first + WTE].parameter;
    return (struct dims){.B = samples,
                         .T = s->context,
                         .C = s->width,
                         .H = s->heads,
                         .N = (int64_t)samples * s->context,
                         .V = s->vocabulary,
                         .Vp = model->parameters[wte].rows};
}

static bool is_head(const struct model *model, uint32_t unit)
{
    return unit + 1 == model->units_count;
}

/* Memory that is given out piece by piece, 64-byte aligned; with base NULL it only counts. */
struct region {
    const struct kernels *k;
    uint8_t *base;
    uint64_t bytes;
};

static void *take_bytes(struct region *region, uint64_t bytes)
{
    void *at = region->base != NULL ? region->base + region->bytes : NULL;
    region->bytes += (bytes + 63) / 64 * 64;
    return at;
}

static element *take(struct region *region, int64_t elements)
{
    return take_bytes(region, (uint64_t)elements * region->k->element_bytes);
}

static float *take_floats(struct region *region, int64_t floats)
{
    return take_bytes(region, (uint64_t)floats * sizeof(float));
}

/* ---- embedding ---- */

static void embedding_forward(const struct unit_call *call)
{
    struct dims d = dims(call->model, call->samples);
    call->k->embedding_forward(call->k, call->output, call->input, call->weights[WTE],
                               call->weights[WPE], d.B, d.T, d.C, d.V);
}

static void embedding_backward(const struct unit_call *call)
{
    struct dims d = dims(call->model, call->samples);
    call->k->embedding_backward(call->k, call->gradients[WTE], call->gradients[WPE], call->input,
                                call->doutput, d.B, d.T, d.C, d.V);
}

/* ---- block ---- */

/* What a block keeps for its backward: 15 C elements and 4 + H floats a token. */
struct block {
    element *ln1, *qkv;         /* (N,C), (N,3C) */
    element *attention;         /* (N,C) */
    element *residual;          /* (N,C): input + attention's half */
    element *ln2, *fc, *gelu;   /* (N,C), (N,4C), (N,4C) */
    float *ln1_mean, *ln1_rstd; /* (N) */
    float *ln2_mean, *ln2_rstd; /* (N) */
    float *lse;                 /* (B,H,T) */
};

static struct block block(struct region *region, struct dims d)
{
    struct block b;
    b.ln1 = take(region, d.N * d.C);
    b.qkv = take(region, d.N * 3 * d.C);
    b.attention = take(region, d.N * d.C);
    b.residual = take(region, d.N * d.C);
    b.ln2 = take(region, d.N * d.C);
    b.fc = take(region, d.N * 4 * d.C);
    b.gelu = take(region, d.N * 4 * d.C);
    b.ln1_mean = take_floats(region, d.N);
    b.ln1_rstd = take_floats(region, d.N);
    b.ln2_mean = take_floats(region, d.N);
    b.ln2_rstd = take_floats(region, d.N);
    b.lse = take_floats(region, d.N * d.H);
    return b;
}

struct block_scratch {
    element *wide;   /* (N,4C): gradient of fc, then of qkv */
    element *narrow; /* (N,C) */
    void *attention;
};

static struct block_scratch block_scratch(struct region *region, struct dims d)
{
    const struct kernels *k = region->k;
    struct block_scratch s;
    s.wide = take(region, d.N * 4 * d.C);
    s.narrow = take(region, d.N * d.C);
    s.attention = take_bytes(region, k->attention_scratch_bytes(k, d.T, d.C, d.H));
    return s;
}

static void block_forward(const struct unit_call *call)
{
    const struct kernels *k = call->k;
    struct dims d = dims(call->model, call->samples);
    element *const *w = call->weights;
    struct block b = block(&(struct region){.k = k, .base = call->saved}, d);
    struct block_scratch s = block_scratch(&(struct region){.k = k, .base = call->scratch}, d);
    const element *input = call->input;
    element *output = call->output;

    k->layernorm_forward(k, b.ln1, b.ln1_mean, b.ln1_rstd, input, w[LN1_WEIGHT], w[LN1_BIAS], d.N,
                         d.C);
    k->linear_forward(k, b.qkv, b.ln1, w[QKV_WEIGHT], w[QKV_BIAS], d.N, d.C, 3 * d.C);
    k->attention_forward(k, b.attention, b.lse, s.attention, b.qkv, true, d.B, d.T, d.C, d.H, d.H);
    k->linear_add_forward(k, b.residual, input, b.attention, w[PROJ_WEIGHT], w[PROJ_BIAS], d.N, d.C,
                          d.C);

    k->layernorm_forward(k, b.ln2, b.ln2_mean, b.ln2_rstd, b.residual, w[LN2_WEIGHT], w[LN2_BIAS],
                         d.N, d.C);
    k->linear_gelu_forward(k, b.gelu, b.fc, b.ln2, w[FC_WEIGHT], w[FC_BIAS], d.N, d.C, 4 * d.C);
    k->linear_add_forward(k, output, b.residual, b.gelu, w[FCPROJ_WEIGHT], w[FCPROJ_BIAS], d.N,
                          4 * d.C, d.C);
}

static void block_backward(const struct unit_call *call)
{
    const struct kernels *k = call->k;
    struct dims d = dims(call->model, call->samples);
    element *const *w = call->weights;
    float *const *g = call->gradients;
    struct block b = block(&(struct region){.k = k, .base = call->saved}, d);
    struct block_scratch s = block_scratch(&(struct region){.k = k, .base = call->scratch}, d);
    element *dres = call->doutput; /* = dinput */

    k->linear_backward_weight(k, g[FCPROJ_WEIGHT], g[FCPROJ_BIAS], dres, b.gelu, d.N, 4 * d.C, d.C);
    k->linear_gelu_backward_input(k, s.wide, dres, w[FCPROJ_WEIGHT], b.fc, d.N, 4 * d.C, d.C);
    k->linear_backward_weight(k, g[FC_WEIGHT], g[FC_BIAS], s.wide, b.ln2, d.N, d.C, 4 * d.C);
    k->linear_backward_input(k, s.narrow, s.wide, w[FC_WEIGHT], d.N, d.C, 4 * d.C);
    k->layernorm_backward(k, dres, g[LN2_WEIGHT], g[LN2_BIAS], s.narrow, b.residual, b.ln2_mean,
                          b.ln2_rstd, w[LN2_WEIGHT], d.N, d.C);

    k->linear_backward_weight(k, g[PROJ_WEIGHT], g[PROJ_BIAS], dres, b.attention, d.N, d.C, d.C);
    k->linear_backward_input(k, s.narrow, dres, w[PROJ_WEIGHT], d.N, d.C, d.C);
    k->attention_backward(k, s.wide, s.attention, s.narrow, b.attention, b.lse, b.qkv, true, d.B,
                          d.T, d.C, d.H, d.H);
    k->linear_backward_weight(k, g[QKV_WEIGHT], g[QKV_BIAS], s.wide, b.ln1, d.N, d.C, 3 * d.C);
    k->linear_backward_input(k, s.narrow, s.wide, w[QKV_WEIGHT], d.N, d.C, 3 * d.C);
    k->layernorm_backward(k, dres, g[LN1_WEIGHT], g[LN1_BIAS], s.narrow, call->input, b.ln1_mean,
                          b.ln1_rstd, w[LN1_WEIGHT], d.N, d.C);
}

/* ---- head ---- */

struct head {
    element *ln;        /* (N,C); when training it becomes its own gradient */
    float *mean, *rstd; /* (N) */
};

static struct head head(struct region *region, struct dims d)
{
    struct head h;
    h.ln = take(region, d.N * d.C);
    h.mean = take_floats(region, d.N);
    h.rstd = take_floats(region, d.N);
    return h;
}

static void head_forward(const struct unit_call *call)
{
    const struct kernels *k = call->k;
    struct dims d = dims(call->model, call->samples);
    struct head h = head(&(struct region){.k = k, .base = call->saved}, d);
    k->layernorm_forward(k, h.ln, h.mean, h.rstd, call->input, call->weights[LNF_WEIGHT],
                         call->weights[LNF_BIAS], d.N, d.C);
    struct classifier c = {
        .N = d.N,
        .C = d.C,
        .V = d.V,
        .Vp = d.Vp,
        .input = h.ln,
        .weight = call->weights[HEAD_WEIGHT],
        .dloss = (float)(1.0 / (double)d.T),
    };
    if (call->training) {
        c.dinput = h.ln;
        c.dweight = call->gradients[HEAD_WEIGHT];
    }
    classifier(k, &c, call->logits_bytes_max, call->targets, call->losses, call->correct,
               call->scratch);
}

static void head_backward(const struct unit_call *call)
{
    const struct kernels *k = call->k;
    struct dims d = dims(call->model, call->samples);
    struct head h = head(&(struct region){.k = k, .base = call->saved}, d);
    k->zero(k, call->dinput, (size_t)(d.N * d.C) * k->element_bytes);
    k->layernorm_backward(k, call->dinput, call->gradients[LNF_WEIGHT], call->gradients[LNF_BIAS],
                          h.ln, call->input, h.mean, h.rstd, call->weights[LNF_WEIGHT], d.N, d.C);
}

/* ---- the three kinds of unit ---- */

static void gpt_sizes(const struct kernels *k, const struct model *model, uint32_t unit,
                      uint32_t samples, uint64_t logits_bytes_max, struct unit_sizes *ret_sizes)
{
    struct dims d = dims(model, samples);
    struct region saved = {.k = k}, scratch = {.k = k};
    uint64_t stream = (uint64_t)(d.N * d.C) * k->element_bytes;
    struct unit_sizes sizes = {0};
    if (is_head(model, unit)) {
        head(&saved, d);
        sizes.dinput = stream;
        sizes.scratch = classifier_scratch_bytes(k, d.N, d.Vp, logits_bytes_max);
    } else if (unit == 0) {
        sizes.output = stream;
    } else {
        block(&saved, d);
        block_scratch(&scratch, d);
        sizes.output = stream;
        sizes.in_place = true;
        sizes.scratch = scratch.bytes;
    }
    sizes.saved = saved.bytes;
    *ret_sizes = sizes;
}

static void gpt_forward(const struct unit_call *call)
{
    if (call->unit == 0)
        embedding_forward(call);
    else if (is_head(call->model, call->unit))
        head_forward(call);
    else
        block_forward(call);
}

static void gpt_backward(const struct unit_call *call)
{
    if (call->unit == 0)
        embedding_backward(call);
    else if (is_head(call->model, call->unit))
        head_backward(call);
    else
        block_backward(call);
}

const struct unit_operations unit_gpt = {
    .sizes = gpt_sizes,
    .forward = gpt_forward,
    .backward = gpt_backward,
};
