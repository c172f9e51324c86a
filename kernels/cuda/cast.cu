/* Two runs are equal: one thread an element. The bytes are the host's; pieces of them pass through
 * the staging memory on the device, unless elements are written as they are. */
#include "kernels/cuda/elements.cuh"

template <typename To, typename From>
static __global__ void cast(To *to, const From *from, int64_t n)
{
    int64_t i = element_index();
    if (i < n)
        to[i] = rounded<To>(value(from[i]));
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

template <typename To, typename From>
static void cast_in(SELF, element *to, const void *bytes, int64_t n)
{
    const int64_t most = STAGING_BYTES / sizeof(From);
    From *staging = (From *)k->state->staging;
    for (int64_t i = 0; i < n; i += most) {
        int64_t count = smaller(n - i, most);
        cuda_copy_in(k, staging, (const From *)bytes + i, (size_t)count * sizeof(From));
        launch_each(k, count, cast<To, From>, (To *)to + i, staging, count);
    }
}

void cuda_cast_from_f32(SELF, element *dst, const void *bytes, int64_t n)
{
    if (k->state->bf16)
        cast_in<bf16, float>(k, dst, bytes, n);
    else
        cuda_copy_in(k, dst, bytes, (size_t)n * sizeof(float));
}

void cuda_cast_from_bf16(SELF, element *dst, const void *bytes, int64_t n)
{
    if (k->state->bf16)
        cuda_copy_in(k, dst, bytes, (size_t)n * sizeof(bf16));
    else
        cast_in<float, bf16>(k, dst, bytes, n);
}

void cuda_cast_to_bf16(SELF, void *bytes, const float *src, int64_t n)
{
    const int64_t most = STAGING_BYTES / sizeof(bf16);
    bf16 *staging = (bf16 *)k->state->staging;
    for (int64_t i = 0; i < n; i += most) {
        int64_t count = smaller(n - i, most);
        launch_each(k, count, cast<bf16, float>, staging, src + i, count);
        cuda_copy_out(k, (bf16 *)bytes + i, staging, (size_t)count * sizeof(bf16));
    }
}
