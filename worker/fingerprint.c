#include "worker/fingerprint.h"

#include "common/model/pieces.h"
#include "common/scoped.h"
#include "worker/carve.h"
#include "worker/model/unit.h"

#include <math.h>
#include <string.h>

enum {
    HOST_NUMBERS = 1 << 18, /* that cross between host and device at once */
    USES_MAX = 2 * MODEL_UNIT_OPERATIONS_MAX
};

struct probe {
    const struct kernels *k;
    const struct model *model; /* by pieces: of who has the first one */
    struct unit_exchange exchange;
    const struct spec_train *train;
    struct model_sample sample;
    void *host; /* HOST_NUMBERS of 4 bytes */
    struct digest_stream digest;
    struct digest_fast results; /* of one array; the stream gets their digests */
};

/* A unit's arrays, in one piece of memory. */
struct unit_memory {
    uint64_t inputs, outputs; /* numbers */
    element *weights[USES_MAX];
    float *gradients[USES_MAX];
    struct unit_sizes sizes;
    struct unit_call call;
};

/* ---- made-up numbers ---- */

static uint32_t scramble(uint64_t i, uint32_t salt)
{
    uint32_t x = (uint32_t)i * 2654435761u + salt * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return x;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Values in [-0.5, 0.5) that look random and are exact in fp32. */
static void make_up(struct probe *probe, element *out, uint64_t count, uint32_t salt)
{
    float *host = probe->host;
    for (uint64_t at = 0; at < count; at += HOST_NUMBERS) {
        uint64_t n = smaller(HOST_NUMBERS, count - at);
        for (uint64_t i = 0; i < n; i++)
            host[i] = (float)(scramble(at + i, salt) >> 8) / 16777216.0f - 0.5f;
        probe->k->cast_from_f32(probe->k, kernels_at(probe->k, out, (int64_t)at), host, (int64_t)n);
    }
}

/* Tokens or classes. */
static void make_up_classes(struct probe *probe, int32_t *out, uint64_t count, uint32_t salt)
{
    int32_t *host = probe->host;
    for (uint64_t at = 0; at < count; at += HOST_NUMBERS) {
        uint64_t n = smaller(HOST_NUMBERS, count - at);
        for (uint64_t i = 0; i < n; i++)
            host[i] = (int32_t)(scramble(at + i, salt) % probe->sample.classes);
        probe->k->copy_in(probe->k, out + at, host, n * sizeof *out);
    }
}

static void add_result(struct probe *probe, const void *array, uint64_t bytes)
{
    uint64_t step = HOST_NUMBERS * sizeof(float);
    for (uint64_t at = 0; at < bytes; at += step) {
        uint64_t n = smaller(step, bytes - at);
        probe->k->copy_out(probe->k, probe->host, (const uint8_t *)array + at, n);
        digest_fast_add(&probe->results, (struct slice){probe->host, n});
    }
    uint64_t digest = digest_fast_finish(&probe->results);
    digest_stream_add(&probe->digest, (struct slice){(const uint8_t *)&digest, sizeof digest});
}

/* ---- what members of a place do together: there are no others, and their pieces add nothing ---- */

static void add_nothing(void *probe, element *array, int64_t n)
{
    (void)probe, (void)array, (void)n;
}

/* Others' ranges are like this one's. */
static void repeat_own(void *context, element *array, int64_t n)
{
    const struct probe *probe = context;
    uint32_t ranks = probe->model->ranks;
    size_t bytes = (size_t)(n / ranks) * probe->k->element_bytes;
    for (uint32_t rank = 1; rank < ranks; rank++)
        probe->k->copy(probe->k, kernels_at(probe->k, array, rank * (n / ranks)), array, bytes);
}

static void add_no_numbers(void *probe, float *numbers, int64_t n)
{
    (void)probe, (void)numbers, (void)n;
}

static void no_larger(void *context, float *largest, float *logit, int64_t rows)
{
    struct probe *probe = context;
    float *host = probe->host;
    uint64_t count = (probe->model->settings.pieces - UINT64_C(1)) * (uint64_t)rows;
    (void)logit;
    for (uint64_t i = 0; i < smaller(HOST_NUMBERS, count); i++)
        host[i] = -INFINITY;
    for (uint64_t at = 0; at < count; at += HOST_NUMBERS)
        probe->k->copy_in(probe->k, largest + rows + at, host,
                          smaller(HOST_NUMBERS, count - at) * sizeof *host);
}

static void no_more(void *context, float *sums, int32_t *correct, int64_t rows)
{
    struct probe *probe = context;
    uint64_t count = (probe->model->settings.pieces - UINT64_C(1)) * (uint64_t)rows;
    (void)correct;
    probe->k->zero(probe->k, sums + rows, count * sizeof *sums);
}

/* ---- a unit ---- */

static const struct model_parameter *parameter_of(const struct model *model,
                                                  const struct model_unit *unit, uint32_t use)
{
    return &model->parameters[model->uses[unit->use_first + use].parameter];
}

static void place_arrays(const struct probe *probe, uint32_t number, uint32_t samples,
                         struct carve *carve, struct unit_memory *memory)
{
    const struct model *model = probe->model;
    const struct model_unit *unit = &model->units[number];
    uint64_t N = (uint64_t)samples * model->sample_tokens, element_bytes = probe->k->element_bytes;
    bool last = number + 1 == model->units_count;
    unit_size(probe->k, model, number, samples, probe->train->logits_bytes_max, &memory->sizes);
    memory->inputs =
        number > 0 ? N * unit->arrays[MODEL_IN].width : (uint64_t)samples * probe->sample.inputs;
    memory->outputs = last ? 0 : N * unit->arrays[MODEL_OUT].width;
    check(unit->uses_count <= USES_MAX);
    for (uint32_t use = 0; use < unit->uses_count; use++) {
        uint64_t weights = parameter_of(model, unit, use)->weights;
        memory->weights[use] = carve_take(carve, weights * element_bytes);
        memory->gradients[use] = carve_take(carve, weights * sizeof(float));
    }
    struct unit_call *call = &memory->call;
    *call = (struct unit_call){.k = probe->k,
                               .model = model,
                               .exchange = model->ranks > 1 ? &probe->exchange : NULL,
                               .unit = number,
                               .samples = samples,
                               .logits_bytes_max = probe->train->logits_bytes_max,
                               .weights = memory->weights,
                               .gradients = memory->gradients};
    call->input = carve_take(carve, memory->inputs * sizeof(int32_t)); /* or elements: no more */
    call->targets = carve_take(carve, N * sizeof(int32_t));
    call->output = carve_take(carve, memory->sizes.output);
    call->saved = carve_take(carve, memory->sizes.saved);
    call->scratch = carve_take(carve, memory->sizes.scratch);
    call->doutput = carve_take(carve, memory->outputs * element_bytes);
    call->dinput = carve_take(carve, memory->sizes.dinput);
    call->losses = carve_take(carve, N * sizeof(float));
    call->correct = carve_take(carve, N * sizeof(int32_t));
}

static void fill_arrays(struct probe *probe, const struct unit_memory *memory)
{
    const struct unit_call *call = &memory->call;
    const struct model_unit *unit = &probe->model->units[call->unit];
    enum { INPUT, TARGETS, DOUTPUT, WEIGHTS };
    if (call->unit == 0 && probe->sample.tokens)
        make_up_classes(probe, (int32_t *)call->input, memory->inputs, INPUT);
    else
        make_up(probe, (element *)call->input, memory->inputs, INPUT);
    make_up_classes(probe, (int32_t *)call->targets,
                    (uint64_t)call->samples * probe->model->sample_tokens, TARGETS);
    make_up(probe, call->doutput, memory->outputs, DOUTPUT);
    for (uint32_t use = 0; use < unit->uses_count; use++) {
        uint64_t weights = parameter_of(probe->model, unit, use)->weights;
        make_up(probe, memory->weights[use], weights, WEIGHTS + use);
        probe->k->zero(probe->k, memory->gradients[use], weights * sizeof(float));
    }
}

static void forward(struct probe *probe, struct unit_memory *memory, bool training)
{
    struct unit_call *call = &memory->call;
    call->training = training;
    unit_forward(call);
    add_result(probe, call->output, memory->sizes.output);
    if (call->unit + 1 == probe->model->units_count)
        add_result(probe, call->losses,
                   (uint64_t)call->samples * probe->model->sample_tokens * sizeof(float));
}

static void backward(struct probe *probe, const struct unit_memory *memory)
{
    const struct unit_call *call = &memory->call;
    const struct model_unit *unit = &probe->model->units[call->unit];
    unit_backward(call);
    if (memory->sizes.in_place)
        add_result(probe, call->doutput, memory->outputs * probe->k->element_bytes);
    else /* the gradient of an input in pieces is in pieces, and its array has room for all of them */
        add_result(probe, call->dinput,
                   smaller(memory->sizes.dinput, memory->inputs * probe->k->element_bytes));
    for (uint32_t use = 0; use < unit->uses_count; use++)
        add_result(probe, memory->gradients[use],
                   parameter_of(probe->model, unit, use)->weights * sizeof(float));
}

static enum err probe_unit(struct probe *probe, uint32_t unit, uint32_t samples, bool training,
                           struct reason *reason)
{
    struct unit_memory memory;
    struct carve carve = {0};
    place_arrays(probe, unit, samples, &carve, &memory);
    void *taken = probe->k->alloc(probe->k, carve.bytes);
    if (taken == NULL)
        return reason_set(reason, ERR_NOMEM,
                          "the numerics probe needs %zu bytes of device memory for unit %s",
                          (size_t)carve.bytes, probe->model->units[unit].name);
    carve = (struct carve){.base = taken};
    place_arrays(probe, unit, samples, &carve, &memory);
    fill_arrays(probe, &memory);
    forward(probe, &memory, training);
    if (training)
        backward(probe, &memory);
    const char *failure = probe->k->synchronize(probe->k);
    enum err err =
        failure == NULL ? ERR_OK : reason_set(reason, ERR_IO, "numerics probe: %s", failure);
    probe->k->free(probe->k, taken);
    return err;
}

/* ---- all units ---- */

static bool same_array(const struct model_array *a, const struct model_array *b)
{
    return a->where == b->where && a->width == b->width && a->gradient == b->gradient &&
           a->gelu_of == b->gelu_of && a->pieces == b->pieces && a->ranged == b->ranged;
}

static bool same_operation(const struct model_operation *a, const struct model_operation *b)
{
    return a->kind == b->kind && a->in == b->in && a->out == b->out && a->with == b->with &&
           a->use == b->use && a->uses_count == b->uses_count && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->rope_base == b->rope_base;
}

static bool same_shape(const struct model *model, const struct model_unit *a,
                       const struct model_unit *b)
{
    bool same = a->uses_count == b->uses_count && a->din == b->din &&
                a->arrays_count == b->arrays_count && a->operations_count == b->operations_count;
    for (uint32_t i = 0; same && i < a->arrays_count; i++)
        same = same_array(&a->arrays[i], &b->arrays[i]);
    for (uint32_t i = 0; same && i < a->operations_count; i++)
        same = same_operation(&a->operations[i], &b->operations[i]);
    for (uint32_t use = 0; same && use < a->uses_count; use++) {
        const struct model_parameter *of_a = parameter_of(model, a, use);
        const struct model_parameter *of_b = parameter_of(model, b, use);
        same = of_a->rows == of_b->rows && of_a->cols == of_b->cols && of_a->pieces == of_b->pieces;
    }
    return same;
}

static bool is_new(const struct model *model, uint32_t unit)
{
    for (uint32_t before = 0; before < unit; before++)
        if (same_shape(model, &model->units[before], &model->units[unit]))
            return false;
    return true;
}

static enum err probe_all(struct probe *probe, uint64_t held_out, struct reason *reason)
{
    uint32_t whole = probe->train->microbatch, rest = (uint32_t)(held_out % whole);
    for (uint32_t unit = 0; unit < probe->model->units_count; unit++) {
        if (!is_new(probe->model, unit))
            continue;
        TRY(probe_unit(probe, unit, whole, true, reason));
        if (held_out > 0)
            TRY(probe_unit(probe, unit, rest > 0 ? rest : whole, false, reason));
    }
    digest_stream_add(
        &probe->digest, /* last: it may grow with the shapes */
        (struct slice){(const uint8_t *)probe->k->numerics, strlen(probe->k->numerics)});
    return ERR_OK;
}

enum err fingerprint_probe(const struct fingerprint_options *options, struct digest *ret_digest,
                           struct reason *reason)
{
    scoped(free_scoped) void *host = malloc(HOST_NUMBERS * sizeof(float));
    scoped(digest_stream_release) struct digest_stream digest = {0};
    scoped(digest_fast_release) struct digest_fast results = {0};
    if (host == NULL)
        return ERR_NOMEM;
    uint32_t pieces = options->model->settings.pieces;
    scoped(model_release) struct model share = {0};
    TRY(digest_stream_init(&digest));
    TRY(digest_fast_init(&results));
    if (pieces > 1)
        TRY(pieces_share(options->model, 0, pieces, &share));
    struct probe probe = {.k = options->kernels,
                          .model = pieces > 1 ? &share : options->model,
                          .train = options->train,
                          .sample = model_sample(&options->model->settings),
                          .host = host,
                          .digest = digest,
                          .results = results};
    probe.exchange = (struct unit_exchange){&probe,         add_nothing, add_nothing, repeat_own,
                                            add_no_numbers, no_larger,   no_more};
    TRY(probe_all(&probe, options->held_out, reason));
    *ret_digest = digest_stream_finish(&digest);
    return ERR_OK;
}
