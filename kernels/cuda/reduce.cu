/* Two runs are equal: one thread an element. The bytes are the host's; pieces of them pass through
 * the staging memory on the device. */
#include "kernels/cuda/elements.cuh"

template <typename Wire> static __global__ void add(float *acc, const Wire *bytes, int64_t n)
{
    int64_t i = element_index();
    if (i < n)
        acc[i] += value(bytes[i]);
}

template <typename Wire> static void add_bytes(SELF, float *acc, const void *bytes, int64_t n)
{
    const int64_t most = STAGING_BYTES / sizeof(Wire);
    Wire *staging = (Wire *)k->state->staging;
    for (int64_t i = 0; i < n; i += most) {
        int64_t count = n - i < most ? n - i : most;
        cuda_copy_in(k, staging, (const Wire *)bytes + i, (size_t)count * sizeof *staging);
        launch_each(k, count, add<Wire>, acc + i, staging, count);
    }
}

void cuda_add_f32(SELF, float *acc, const void *bytes, int64_t n)
{
    add_bytes<float>(k, acc, bytes, n);
}

void cuda_add_bf16(SELF, float *acc, const void *bytes, int64_t n)
{
    add_bytes<bf16>(k, acc, bytes, n);
}
