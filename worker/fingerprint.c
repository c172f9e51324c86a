#include "worker/fingerprint.h"

#include "common/scoped.h"

#include <string.h>

/* The largest arrays any probed operation takes; inputs are filled once. */
struct probe {
    const struct kernels *k;
    const struct model *model;
    int64_t rows;         /* predictions of a microbatch */
    size_t count;         /* elements or floats in each array */
    float *a, *b, *c, *d; /* as large as floats need */
    float *host;
    struct digest_stream digest;
};

/* Values in [-0.5, 0.5) that look random and are exact in fp32. */
static void fill(struct probe *probe, element *array, uint32_t salt)
{
    for (size_t i = 0; i < probe->count; i++) {
        uint32_t x = (uint32_t)i * 2654435761u + salt * 40503u;
        x ^= x >> 15;
        x *= 2246822519u;
        x ^= x >> 13;
        probe->host[i] = (float)(x >> 8) / 16777216.0f - 0.5f;
    }
    probe->k->cast_from_f32(probe->k, array, probe->host, (int64_t)probe->count);
}

static void add_bytes(struct probe *probe, const void *array, size_t bytes)
{
    probe->k->copy_out(probe->k, probe->host, array, bytes);
    digest_stream_add(&probe->digest, (struct slice){(const uint8_t *)probe->host, bytes});
}

static void add_result(struct probe *probe, const element *array, int64_t n)
{
    add_bytes(probe, array, (size_t)n * probe->k->element_bytes);
}

/* out = a (N,I) · b (O,I), its backward, N rows at a time as the model calls it. */
static void probe_linear(struct probe *probe, const struct model_operation *operation, int64_t N,
                         int64_t I, int64_t O)
{
    const element *bias = operation->uses_count > 1 ? probe->b : NULL;
    const struct kernels *k = probe->k;
    k->linear_forward(k, probe->c, probe->a, probe->b, bias, N, I, O);
    add_result(probe, probe->c, N * O);
    if (bias != NULL || operation->kind == MODEL_LINEAR) { /* nothing is added to logits */
        k->linear_add_forward(k, probe->d, probe->c, probe->a, probe->b, bias, N, I, O);
        add_result(probe, probe->d, N * O);
    }
    if (bias != NULL) {
        k->linear_gelu_forward(k, probe->c, probe->d, probe->a, probe->b, bias, N, I, O);
        add_result(probe, probe->c, N * O);
    }
    k->linear_backward_input(k, probe->d, probe->a, probe->b, N, I, O);
    add_result(probe, probe->d, N * I);
    float *dbias = bias != NULL ? probe->c : NULL;
    k->zero(k, probe->c, (size_t)O * sizeof(float));
    k->zero(k, probe->d, probe->count * sizeof(float));
    k->linear_backward_weight(k, probe->d, dbias, probe->a, probe->a, N, I, O);
    add_bytes(probe, probe->d, (size_t)(O * I) * sizeof(float));
    if (dbias != NULL)
        add_bytes(probe, dbias, (size_t)O * sizeof(float));
}

/* The newest operation that multiplies by this parameter; NULL: none does. */
static const struct model_operation *multiplier_of(const struct model *model, uint32_t parameter)
{
    const struct model_parameter *p = &model->parameters[parameter];
    const struct model_unit *unit = &model->units[p->part_units[p->parts - 1]];
    for (uint32_t i = unit->operations_count; i-- > 0;) {
        const struct model_operation *operation = &unit->operations[i];
        bool multiplies = operation->kind == MODEL_LINEAR || operation->kind == MODEL_CLASSIFIER;
        if (multiplies && model->uses[unit->use_first + operation->use].parameter == parameter)
            return operation;
    }
    return NULL;
}

/* Rows that the model gives a linear at once: the classifier makes logits in blocks of rows. */
static int64_t linear_rows(const struct probe *probe, uint32_t parameter,
                           const struct model_operation *operation, const struct spec_train *train)
{
    uint64_t row_bytes =
        (uint64_t)probe->model->parameters[parameter].rows * probe->k->element_bytes;
    int64_t block = (int64_t)(train->logits_bytes_max / row_bytes);
    if (operation->kind != MODEL_CLASSIFIER || probe->rows <= block)
        return probe->rows;
    return block > 0 ? block : 1;
}

/* An earlier linear has this one's shape. */
static bool is_seen(const struct model *model, uint32_t parameter)
{
    const struct model_parameter *p = &model->parameters[parameter];
    for (uint32_t q = 0; q < parameter; q++)
        if (model->parameters[q].rows == p->rows && model->parameters[q].cols == p->cols &&
            multiplier_of(model, q) != NULL)
            return true;
    return false;
}

static void probe_linears(struct probe *probe, const struct spec_train *train)
{
    const struct model *model = probe->model;
    for (uint32_t p = 0; p < model->parameters_count; p++) {
        const struct model_parameter *parameter = &model->parameters[p];
        const struct model_operation *operation = multiplier_of(model, p);
        if (operation == NULL || is_seen(model, p))
            continue;
        probe_linear(probe, operation, linear_rows(probe, p, operation, train), parameter->cols,
                     parameter->rows);
    }
}

/* The first operation of that kind, and its unit; NULL: the model has none. */
static const struct model_operation *find_operation(const struct model *model,
                                                    enum model_operation_kind kind,
                                                    const struct model_unit **ret_unit)
{
    for (uint32_t u = 0; u < model->units_count; u++) {
        const struct model_unit *unit = *ret_unit = &model->units[u];
        for (uint32_t i = 0; i < unit->operations_count; i++)
            if (unit->operations[i].kind == kind)
                return &unit->operations[i];
    }
    return NULL;
}

/* Turns what attention left in d (B,T,(H+2G)S). */
static void probe_rope(struct probe *probe, int64_t B, int64_t H, int64_t G, int64_t C)
{
    const struct kernels *k = probe->k;
    struct kernels_rope rope = {.high = {0}};
    int64_t T = probe->model->sample_tokens, S = C / H;
    for (int64_t i = 0; i < S / 2; i++)
        rope.high[i] = 1 / (float)(6 + i);
    k->rope_forward(k, probe->d, &rope, B, T, C, H, G);
    add_result(probe, probe->d, B * T * (H + 2 * G) * S);
}

static enum err probe_attention(struct probe *probe, int64_t B)
{
    const struct kernels *k = probe->k;
    const struct model_unit *unit;
    const struct model_operation *o = find_operation(probe->model, MODEL_ATTENTION, &unit);
    if (o == NULL)
        return ERR_OK;
    int64_t T = probe->model->sample_tokens, C = unit->arrays[o->out].width;
    int64_t H = o->heads, G = o->kv_heads, wide = unit->arrays[o->in].width;
    void *scratch = k->alloc(k, k->attention_scratch_bytes(k, T, C, H));
    float *lse = k->alloc(k, (size_t)(B * H * T) * sizeof(float));
    if (scratch == NULL || lse == NULL) {
        k->free(k, scratch);
        k->free(k, lse);
        return ERR_NOMEM;
    }
    k->attention_forward(k, probe->c, lse, scratch, probe->a, true, B, T, C, H, G);
    add_result(probe, probe->c, B * T * C);
    k->attention_backward(k, probe->d, scratch, probe->b, probe->c, lse, probe->a, true, B, T, C, H,
                          G);
    add_result(probe, probe->d, B * T * wide);
    if (find_operation(probe->model, MODEL_ROPE, &unit) != NULL)
        probe_rope(probe, B, o->heads, o->kv_heads, C);
    k->free(k, scratch);
    k->free(k, lse);
    return ERR_OK;
}

static void probe_elementwise(struct probe *probe)
{
    const struct kernels *k = probe->k;
    int64_t n = 4096;
    k->gelu_forward(k, probe->c, probe->a, n);
    add_result(probe, probe->c, n);
    k->gelu_backward(k, probe->c, probe->b, probe->a, n);
    add_result(probe, probe->c, n);
    k->tanh_forward(k, probe->c, probe->a, n);
    add_result(probe, probe->c, n);
    float *mean = probe->d, *rstd = probe->d + 64;
    k->layernorm_forward(k, probe->c, mean, rstd, probe->a, probe->b, probe->b, 64, 64);
    add_result(probe, probe->c, n);
    const struct model_unit *unit;
    if (find_operation(probe->model, MODEL_RMSNORM, &unit) != NULL) {
        k->rmsnorm_forward(k, probe->c, rstd, probe->a, probe->b, 64, 64);
        add_result(probe, probe->c, n);
    }
    if (find_operation(probe->model, MODEL_SWIGLU, &unit) != NULL) {
        k->swiglu_forward(k, probe->c, probe->a, 64, 32);
        add_result(probe, probe->c, n / 2);
    }
    double sum;
    k->sum_squares(k, &sum, probe->a, n);
    digest_stream_add(&probe->digest, (struct slice){(const uint8_t *)&sum, sizeof sum});
}

static size_t largest_array(const struct probe *probe, const struct spec_train *train)
{
    size_t most = 8192;
    for (uint32_t p = 0; p < probe->model->parameters_count; p++) {
        const struct model_parameter *parameter = &probe->model->parameters[p];
        size_t wide = parameter->rows > parameter->cols ? parameter->rows : parameter->cols;
        const struct model_operation *operation = multiplier_of(probe->model, p);
        size_t rows = operation != NULL ? (size_t)linear_rows(probe, p, operation, train) : 1;
        size_t rows_times = rows * wide;
        if (parameter->weights > most)
            most = parameter->weights;
        if (rows_times > most)
            most = rows_times;
    }
    return most;
}

static enum err probe_all(struct probe *probe, const struct spec_train *train,
                          struct reason *reason)
{
    const struct kernels *k = probe->k;
    probe->a = k->alloc(k, probe->count * sizeof(float));
    probe->b = k->alloc(k, probe->count * sizeof(float));
    probe->c = k->alloc(k, probe->count * sizeof(float));
    probe->d = k->alloc(k, probe->count * sizeof(float));
    probe->host = malloc(probe->count * sizeof(float));
    if (probe->a == NULL || probe->b == NULL || probe->c == NULL || probe->d == NULL ||
        probe->host == NULL)
        return reason_set(reason, ERR_NOMEM,
                          "the numerics probe needs %zu bytes of device memory beside the run's",
                          4 * probe->count * sizeof(float));
    fill(probe, probe->a, 1);
    fill(probe, probe->b, 2);
    probe_linears(probe, train);
    TRY(probe_attention(probe, train->microbatch));
    probe_elementwise(probe);
    digest_stream_add(&probe->digest, /* last: it may grow with the shapes */
                      (struct slice){(const uint8_t *)k->numerics, strlen(k->numerics)});
    const char *failure = k->synchronize(k);
    return failure == NULL ? ERR_OK : reason_set(reason, ERR_IO, "numerics probe: %s", failure);
}

enum err fingerprint_probe(const struct kernels *k, const struct model *model,
                           const struct spec_train *train, struct digest *ret_digest,
                           struct reason *reason)
{
    struct probe probe = {
        .k = k, .model = model, .rows = (int64_t)train->microbatch * model->sample_tokens};
    probe.count = largest_array(&probe, train);
    TRY(digest_stream_init(&probe.digest));
    enum err err = probe_all(&probe, train, reason);
    if (err == ERR_OK)
        *ret_digest = digest_stream_finish(&probe.digest);
    digest_stream_release(&probe.digest);
    k->free(k, probe.a);
    k->free(k, probe.b);
    k->free(k, probe.c);
    k->free(k, probe.d);
    free(probe.host);
    return err;
}
