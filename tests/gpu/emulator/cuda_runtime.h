/* A stand-in for CUDA's header: kernels/cuda, compiled with it as plain C++, computes on the CPU
 * (device.cc). It has what those files use and nothing else. */
#ifndef ROOST_TESTS_GPU_EMULATOR_CUDA_RUNTIME_H
#define ROOST_TESTS_GPU_EMULATOR_CUDA_RUNTIME_H

#include <functional>

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* -- the language ------------------------------------------------------------------------------ */

/* All threads of a block run on one thread of ours; a thread_local at block scope is static, so
 * they share it. */
#define __shared__ thread_local
#define __device__
#define __global__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

struct alignas(16) float4 {
    float x, y, z, w;
};

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

extern thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

void __syncthreads();
int __syncthreads_or(int condition);
unsigned __ballot_sync(unsigned lanes, int condition);
[[noreturn]] void __trap();

/* The lanes' 64 bits, swapped with the lane `mask` away. */
uint64_t emulator_exchange(unsigned lanes, uint64_t bits, int mask);

template <typename Value> Value __shfl_xor_sync(unsigned lanes, Value value, int mask)
{
    static_assert(sizeof(Value) <= sizeof(uint64_t), "one exchange");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = emulator_exchange(lanes, bits, mask);
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Tensor cores and asynchronous copies, as kernels/cuda/mma.cuh has them for a GPU. Copies are
 * there at once. */
struct mma_sum;
struct mma_left;
struct mma_right;
struct bf16;
void mma(mma_sum &sum, const mma_left &a, const mma_right &b);
void load_tiles(unsigned (&pairs)[4], const bf16 *row);
void load_tiles_transposed(unsigned (&pairs)[4], const bf16 *row);
void copy_async(bf16 *to, const bf16 *from, bool there);
void copy_async(float *to, const float *from, bool there);

/* Products of warpgroups, as kernels/cuda/wgmma.cuh has them: they are over at once. */
unsigned __cvta_generic_to_shared(const void *at);
void group_multiply(mma_sum (*sums)[2], uint64_t left, uint64_t right);
void group_multiply_add(mma_sum (*sums)[2], uint64_t left, uint64_t right);
void group_add(mma_sum (*sums)[2], const mma_left &left, uint64_t right);
static inline void group_begin()
{
}
static inline void group_commit()
{
}
template <int GROUPS> void group_wait()
{
}
static inline void group_settle(mma_sum (*)[2])
{
}
static inline void group_hold(const mma_left &)
{
}
static inline void group_publish()
{
}

static inline float exp2_of(float x)
{
    return exp2f(x);
}
static inline void copies_are_a_group()
{
}
template <int GROUPS> void wait_for_copies()
{
}

static inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}

static inline unsigned __float_as_uint(float x)
{
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float __uint_as_float(unsigned bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* PTX: "the value converted from input a is stored in the upper half of d and the value converted
 * from input b … in the lower half"; to nearest, ties to even, and one NaN for all. */
static inline unsigned rounded_to_bf16(float x)
{
    unsigned bits = __float_as_uint(x);
    return x == x ? (bits + ((bits >> 16 & 1) + 0x7fff)) >> 16 : 0x7fff;
}

static inline unsigned rounded_pair(float a, float b)
{
    return rounded_to_bf16(a) << 16 | rounded_to_bf16(b);
}

/* -- the library ------------------------------------------------------------------------------- */

enum cudaError_t {
    cudaSuccess,
    cudaErrorInvalidValue,
    cudaErrorMemoryAllocation,
    cudaErrorInvalidConfiguration,
    cudaErrorLaunchFailure,
    cudaErrorStreamCaptureUnsupported,
    cudaErrorInvalidDevice,
    cudaErrorPeerAccessAlreadyEnabled,
    cudaErrorInvalidResourceHandle,
};
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum { cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
typedef struct emulator_stream *cudaStream_t;
typedef struct emulator_event *cudaEvent_t;
typedef struct emulator_graph *cudaGraph_t, *cudaGraphExec_t;

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    int major, minor, multiProcessorCount;
};

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
};

const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int number);
cudaError_t cudaDeviceCanAccessPeer(int *may, int number, int other);
cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned flags);
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *device, int number);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ready, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t ready, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t ready);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begun, cudaEvent_t ended);
const unsigned cudaHostRegisterDefault = 0;
cudaError_t cudaMallocHost(void **memory, size_t bytes);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *memory);
cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value);

cudaError_t emulator_launch(const cudaLaunchConfig_t *config, const void *kernel,
                            const std::function<void()> &run);

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...),
                               Arguments &&...arguments)
{
    return emulator_launch(config, (const void *)kernel, [=] { kernel(arguments...); });
}

#endif
