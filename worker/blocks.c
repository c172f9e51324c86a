#include "worker/blocks.h"

#include "common/model/pieces.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire's floats are little-endian");

enum codec blocks_codec(const struct model *model, uint32_t chunk, enum codec codec)
{
    return model->chunks[chunk].parameter == model->loss_parameter ? CODEC_FP32 : codec;
}

size_t blocks_bytes(const struct model *model, uint32_t chunk, enum codec codec)
{
    return (size_t)model->chunks[chunk].weights * codec_bytes(blocks_codec(model, chunk, codec));
}

/* Weights that have left all caches when they are used (server/shard/chunk.c says how many). */
static bool is_uncached(const struct kernels *k, const struct model *model)
{
    const size_t cached_bytes_max = 16 << 20;
    return k->copy_in_uncached != NULL && model->weights * sizeof(float) > cached_bytes_max;
}

/* The next `count` numbers at the cursor. */
static void decode_run(const struct kernels *k, bool uncached, enum codec codec, element *out,
                       size_t count, struct cursor *cursor)
{
    while (count > 0) {
        uint8_t value[8];
        const uint8_t *values;
        size_t here = cursor_values(cursor, codec_bytes(codec), count, value, &values);
        if (codec == CODEC_BF16)
            k->cast_from_bf16(k, out, values, (int64_t)here);
        else if (uncached)
            k->copy_in_uncached(k, out, values, here * sizeof(float));
        else
            k->cast_from_f32(k, out, values, (int64_t)here);
        out = kernels_at(k, out, (int64_t)here);
        count -= here;
    }
}

/* ---- memory of a device: a block at once ---- */

/* A chunk's block in its parameter. */
struct block {
    enum kernels_format format;
    int64_t first, stride, rows, cols;
};

static struct block block_of(const struct model *model, uint32_t chunk, enum codec codec)
{
    const struct model_chunk *c = &model->chunks[chunk];
    _Static_assert(MODEL_CHUNK_WEIGHTS_MAX * sizeof(float) <= KERNELS_BLOCK_BYTES_MAX, "a chunk");
    return (struct block){
        .format = codec == CODEC_BF16 ? KERNELS_BF16 : KERNELS_F32,
        .first = (int64_t)pieces_row_offset(model, chunk, 0),
        .stride = pieces_cols(&model->parameters[c->parameter]),
        .rows = c->rows,
        .cols = c->cols,
    };
}

static void read_bytes(struct cursor *cursor, size_t count, uint8_t *ret_bytes)
{
    while (count > 0) {
        uint8_t value[8];
        const uint8_t *bytes;
        size_t here = cursor_values(cursor, 1, count, value, &bytes);
        memcpy(ret_bytes, bytes, here);
        ret_bytes += here;
        count -= here;
    }
}

static void decode_block(const struct kernels *k, const struct model *model, uint32_t chunk,
                         enum codec codec, struct cursor *cursor, element *parameter)
{
    struct block b = block_of(model, chunk, codec);
    uint8_t *room = k->block_room(k);
    read_bytes(cursor, blocks_bytes(model, chunk, codec), room);
    k->decode_block(k, kernels_at(k, parameter, b.first), b.stride, room, b.format, b.rows, b.cols);
}

/* ---- memory of the host: rows ---- */

/* A block as runs of numbers that lie together: its rows, or one run when it is as wide as the
 * parameter, or as a piece of it. */
struct runs {
    uint32_t count;
    size_t length;
};

static struct runs runs(const struct model *model, uint32_t chunk)
{
    const struct model_chunk *c = &model->chunks[chunk];
    if (c->cols == pieces_cols(&model->parameters[c->parameter]))
        return (struct runs){1, c->weights};
    return (struct runs){c->rows, c->cols};
}

static void decode_rows(const struct kernels *k, const struct model *model, uint32_t chunk,
                        enum codec codec, struct cursor *cursor, element *parameter)
{
    struct runs r = runs(model, chunk);
    for (uint32_t i = 0; i < r.count; i++)
        decode_run(k, is_uncached(k, model), codec,
                   kernels_at(k, parameter, (int64_t)pieces_row_offset(model, chunk, i)), r.length,
                   cursor);
}

static void copy_rows(const struct kernels *k, const struct model *model, uint32_t chunk,
                      const element *from, element *parameter)
{
    struct runs r = runs(model, chunk);
    for (uint32_t i = 0; i < r.count; i++) {
        int64_t first = (int64_t)pieces_row_offset(model, chunk, i);
        k->copy(k, kernels_at(k, parameter, first),
                kernels_at(k, (element *)(uintptr_t)from, first), r.length * k->element_bytes);
    }
}

void blocks_encode_run(const struct kernels *k, enum codec codec, const float *run, size_t count,
                       void *ret_bytes)
{
    if (codec == CODEC_BF16)
        k->cast_to_bf16(k, ret_bytes, run, (int64_t)count);
    else
        k->copy_out(k, ret_bytes, run, count * sizeof *run);
}

static void encode_rows(const struct kernels *k, const struct model *model, uint32_t chunk,
                        enum codec codec, const float *parameter, void *ret_bytes)
{
    struct runs r = runs(model, chunk);
    uint8_t *bytes = ret_bytes;
    for (uint32_t i = 0; i < r.count; i++) {
        blocks_encode_run(k, codec, parameter + pieces_row_offset(model, chunk, i), r.length,
                          bytes);
        bytes += r.length * codec_bytes(codec);
    }
}

/* ---- either ---- */

void blocks_decode(const struct kernels *k, const struct model *model, uint32_t chunk,
                   enum codec codec, struct cursor *cursor, element *parameter)
{
    codec = blocks_codec(model, chunk, codec);
    if (k->decode_block != NULL)
        decode_block(k, model, chunk, codec, cursor, parameter);
    else
        decode_rows(k, model, chunk, codec, cursor, parameter);
}

void blocks_copy(const struct kernels *k, const struct model *model, uint32_t chunk,
                 const element *from, element *parameter)
{
    if (k->copy_block == NULL) {
        copy_rows(k, model, chunk, from, parameter);
        return;
    }
    struct block b = block_of(model, chunk, CODEC_FP32);
    k->copy_block(k, kernels_at(k, parameter, b.first), kernels_at(k, from, b.first), b.stride,
                  b.rows, b.cols);
}

void blocks_encode(const struct kernels *k, const struct model *model, uint32_t chunk,
                   enum codec codec, const float *parameter, void *ret_bytes)
{
    codec = blocks_codec(model, chunk, codec);
    if (k->encode_block == NULL) {
        encode_rows(k, model, chunk, codec, parameter, ret_bytes);
        return;
    }
    struct block b = block_of(model, chunk, codec);
    k->encode_block(k, ret_bytes, b.format, parameter + b.first, b.stride, b.rows, b.cols);
}
