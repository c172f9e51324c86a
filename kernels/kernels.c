#include "kernels/kernels.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda.h"

bool kernels_new(const struct kernels_options *options, const struct kernels **ret_kernels,
                 char *reason, size_t reason_bytes)
{
    check(options->backend == KERNELS_CPU || options->backend == KERNELS_CUDA);
    if (options->backend == KERNELS_CUDA)
        return cuda_load(options, ret_kernels, reason, reason_bytes);
    if (options->compute != KERNELS_COMPUTE_FP32) {
        snprintf(reason, reason_bytes, "a CPU computes in fp32 only");
        return false;
    }
    return cpu_new(options, ret_kernels, reason, reason_bytes);
}

void kernels_free(const struct kernels *k)
{
    if (k)
        k->close(k);
}

const char *kernels_gemm_core_auto(void)
{
    return gemm_core_auto();
}
