/* Two runs are equal: one thread an element. The bytes are the host's; pieces of them pass through
 * the staging memory on the device. */
#include "kernels/cuda/bf16.cuh"

static const int64_t PIECE = STAGING_BYTES / sizeof(uint16_t);

static int64_t piece(int64_t left)
{
    return left < PIECE ? left : PIECE;
}

static __global__ void to_bytes(uint16_t *bytes, const float *src, int64_t n)
{
    int64_t i = element_index();
    if (i < n)
        bytes[i] = to_bf16(src[i]);
}

void cuda_cast_to_bf16(SELF, void *bytes, const float *src, int64_t n)
{
    uint16_t *staging = (uint16_t *)k->state->staging;
    for (int64_t i = 0; i < n; i += PIECE) {
        launch_each(k, piece(n - i), to_bytes, staging, src + i, piece(n - i));
        cuda_copy_out(k, (char *)bytes + 2 * i, staging, (size_t)piece(n - i) * sizeof *staging);
    }
}

static __global__ void from_bytes(float *dst, const uint16_t *bytes, int64_t n)
{
    int64_t i = element_index();
    if (i < n)
        dst[i] = from_bf16(bytes[i]);
}

void cuda_cast_from_bf16(SELF, float *dst, const void *bytes, int64_t n)
{
    uint16_t *staging = (uint16_t *)k->state->staging;
    for (int64_t i = 0; i < n; i += PIECE) {
        cuda_copy_in(k, staging, (const char *)bytes + 2 * i,
                     (size_t)piece(n - i) * sizeof *staging);
        launch_each(k, piece(n - i), from_bytes, dst + i, staging, piece(n - i));
    }
}
