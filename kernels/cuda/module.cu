/* libroost-cuda.so: finds the device, takes what operations need beside their arguments, and fills
 * the table. It uses the process's first device (CUDA_VISIBLE_DEVICES chooses which that is). */
#include "kernels/cuda.h"
#include "kernels/cuda/gemm.cuh"

#include <stdarg.h>

/* -- errors ------------------------------------------------------------------------------------ */

void cuda_fail(SELF, const char *format, ...)
{
    struct kernels_state *state = k->state;
    if (__atomic_exchange_n(&state->failing, 1, __ATOMIC_ACQ_REL))
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(state->failure, sizeof state->failure, format, arguments);
    va_end(arguments);
    __atomic_store_n(&state->failed, 1, __ATOMIC_RELEASE);
}

bool cuda_ok(SELF, cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        cuda_fail(k, "%s: CUDA: %s", what, cudaGetErrorString(error));
    return error == cudaSuccess;
}

/* -- memory ------------------------------------------------------------------------------------ */

static void *device_alloc(SELF, size_t bytes)
{
    (void)k;
    void *memory = NULL;
    if (cudaMalloc(&memory, bytes ? bytes : 1) != cudaSuccess)
        return NULL;
    return memory;
}

static void device_free(SELF, void *memory)
{
    cuda_ok(k, cudaFree(memory), "free");
}

static void device_memory(SELF, struct kernels_memory *ret_memory)
{
    size_t free = 0, total = 0;
    cuda_ok(k, cudaMemGetInfo(&free, &total), "memory");
    *ret_memory = {total, free, WORKSPACE_BYTES + STAGING_BYTES};
}

void cuda_copy_in(SELF, void *memory, const void *host, size_t bytes)
{
    cuda_ok(k, cudaMemcpyAsync(memory, host, bytes, cudaMemcpyHostToDevice, k->state->stream),
            "copy to the device");
}

void cuda_copy_out(SELF, void *host, const void *memory, size_t bytes)
{
    if (cuda_ok(k, cudaMemcpyAsync(host, memory, bytes, cudaMemcpyDeviceToHost, k->state->stream),
                "copy from the device"))
        cuda_ok(k, cudaStreamSynchronize(k->state->stream), "copy from the device");
}

static void device_zero(SELF, void *memory, size_t bytes)
{
    cuda_ok(k, cudaMemsetAsync(memory, 0, bytes, k->state->stream), "zero");
}

static const char *device_synchronize(SELF)
{
    cuda_ok(k, cudaStreamSynchronize(k->state->stream), "synchronize");
    return __atomic_load_n(&k->state->failed, __ATOMIC_ACQUIRE) ? k->state->failure : NULL;
}

/* -- opening ----------------------------------------------------------------------------------- */

#define FAIL(...) (snprintf(reason, reason_bytes, __VA_ARGS__), false)

/* The first device, when our kernels run on it. */
static bool find_device(cudaDeviceProp *ret_device, char *reason, size_t reason_bytes)
{
    int count = 0, driver = 0;
    cudaError_t error = cudaDriverGetVersion(&driver);
    if (error == cudaSuccess && driver == 0)
        return FAIL("no CUDA device: this machine has no NVIDIA driver");
    if (error == cudaSuccess)
        error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0)
        error = cudaGetDeviceProperties(ret_device, 0);
    if (error != cudaSuccess)
        return FAIL("no CUDA device: %s", cudaGetErrorString(error));
    if (count == 0)
        return FAIL("no CUDA device");
    if (ret_device->major < 8)
        return FAIL("%s has CUDA compute capability %d.%d; 8.0 or later is needed",
                    ret_device->name, ret_device->major, ret_device->minor);
    return true;
}

static bool take_memory(struct kernels_state *state, char *reason, size_t reason_bytes)
{
    cudaError_t error = cudaStreamCreateWithFlags(&state->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaMalloc(&state->workspace, WORKSPACE_BYTES);
    if (error == cudaSuccess)
        error = cudaMalloc(&state->staging, STAGING_BYTES);
    return error == cudaSuccess || FAIL("CUDA: %s", cudaGetErrorString(error));
}

static void device_close(SELF)
{
    struct kernels_state *state = k->state;
    gemm_free(state->gemm);
    cudaFree(state->workspace);
    cudaFree(state->staging);
    if (state->stream)
        cudaStreamDestroy(state->stream);
    free(state);
    free((void *)k);
}

#define OPERATION_MEMBER(operation) k->operation = cuda_##operation;

static void fill_table(struct kernels *k)
{
    CUDA_OPERATIONS(OPERATION_MEMBER)
    k->name = k->state->name;
    k->numerics = gemm_numerics(k->state->gemm);
    k->element_bytes = k->state->bf16 ? sizeof(bf16) : sizeof(float);
    k->alloc = device_alloc;
    k->free = device_free;
    k->memory = device_memory;
    k->copy_in = cuda_copy_in;
    k->copy_out = cuda_copy_out;
    k->zero = device_zero;
    k->synchronize = device_synchronize;
    k->close = device_close;
}

static bool open_device(const struct kernels_options *options, const cudaDeviceProp *device,
                        struct kernels_state *state, char *reason, size_t reason_bytes)
{
    state->bf16 = options->compute == KERNELS_COMPUTE_BF16;
    snprintf(state->name, sizeof state->name, "CUDA, %s, %zu MiB", device->name,
             device->totalGlobalMem >> 20);
    return take_memory(state, reason, reason_bytes) &&
           gemm_new(options, device, &state->gemm, reason, reason_bytes);
}

extern "C" __attribute__((visibility("default"))) cuda_entry roost_cuda_kernels;

extern "C" bool roost_cuda_kernels(const struct kernels_options *options,
                                   const struct kernels **ret_kernels, char *reason,
                                   size_t reason_bytes)
{
    cudaDeviceProp device;
    if (!find_device(&device, reason, reason_bytes))
        return false;
    struct kernels_state *state = (struct kernels_state *)calloc(1, sizeof *state);
    struct kernels *k = (struct kernels *)calloc(1, sizeof *k);
    if (!state || !k) {
        free(state);
        free(k);
        return FAIL("out of memory");
    }
    k->state = state;
    if (!open_device(options, &device, state, reason, reason_bytes)) {
        device_close(k);
        return false;
    }
    fill_table(k);
    *ret_kernels = k;
    return true;
}
