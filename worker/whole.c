/* Chunk by chunk, in the host's memory, whatever computed it. */
#include "worker/whole.h"

#include "common/clip.h"

#include <stdlib.h>
#include <string.h>

enum { LANES = 16 };

enum err whole_init(struct whole *whole, const struct executor *executor, const struct model *model)
{
    *whole = (struct whole){.executor = executor, .model = model};
    whole->sum = malloc(MODEL_CHUNK_WEIGHTS_MAX * sizeof *whole->sum);
    whole->part = malloc(MODEL_CHUNK_WEIGHTS_MAX * sizeof *whole->part);
    return whole->sum != NULL && whole->part != NULL ? ERR_OK : ERR_NOMEM;
}

void whole_release(struct whole *whole)
{
    free(whole->sum);
    free(whole->part);
}

static uint32_t parts_of(const struct whole *whole, uint32_t chunk)
{
    return whole->model->parameters[whole->model->chunks[chunk].parameter].parts;
}

/* The chunk's gradient at whole->sum. */
static enum err add_parts(const struct whole *whole, uint32_t chunk)
{
    uint32_t n = whole->model->chunks[chunk].weights;
    executor_encode(whole->executor, chunk, 0, CODEC_FP32, whole->sum);
    TRY(executor_encoded(whole->executor));
    for (uint32_t part = 1; part < parts_of(whole, chunk); part++) {
        executor_encode(whole->executor, chunk, part, CODEC_FP32, whole->part);
        TRY(executor_encoded(whole->executor));
        for (uint32_t i = 0; i < n; i++)
            whole->sum[i] += whole->part[i];
    }
    return ERR_OK;
}

/* To the nearest bf16, ties to even; what is not a number stays so. */
static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

enum err whole_encode(const struct whole *whole, uint32_t chunk, enum codec codec, void *ret_bytes)
{
    if (parts_of(whole, chunk) == 1) {
        executor_encode(whole->executor, chunk, 0, codec, ret_bytes);
        return ERR_OK;
    }
    uint32_t n = whole->model->chunks[chunk].weights;
    uint8_t *out = ret_bytes;
    TRY(add_parts(whole, chunk));
    if (codec == CODEC_FP32)
        memcpy(out, whole->sum, n * sizeof *whole->sum);
    for (uint32_t i = 0; codec == CODEC_BF16 && i < n; i++) {
        uint16_t value = to_bf16(whole->sum[i]);
        memcpy(out + i * sizeof value, &value, sizeof value);
    }
    return ERR_OK;
}

static double sum_squares(const float *values, uint32_t n)
{
    double lanes[LANES] = {0}, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        lanes[i % LANES] += (double)values[i] * (double)values[i];
    for (uint32_t lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    return sum;
}

enum err whole_scale(const struct whole *whole, double clip_norm, uint64_t samples,
                     float *ret_scale)
{
    double sum = 0;
    for (uint32_t chunk = 0; chunk < whole->model->chunks_count; chunk++) {
        const struct model_chunk *c = &whole->model->chunks[chunk];
        if (whole->model->parameters[c->parameter].rule != MODEL_OPTIMIZER)
            continue;
        TRY(add_parts(whole, chunk));
        sum += sum_squares(whole->sum, c->weights);
    }
    *ret_scale = __builtin_isfinite(sum)
                     ? (float)clip_factor(clip_norm, __builtin_sqrt(sum) / (double)samples)
                     : 0;
    return ERR_OK;
}
