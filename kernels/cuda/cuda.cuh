/* What the CUDA operations share: the table's state, errors, launching, sums.
 *
 * Each operation's file stands beside its namesake in kernels/cpu and does the same arithmetic:
 * fmaf where the CPU fuses and nowhere else (-fmad=false), divisions and roots rounded correctly,
 * elementary functions from the same polynomials (math.cuh). So elementwise operations have the
 * CPU's bits. Where a sum is shared by threads its order differs from the CPU's, but it is fixed
 * by the shapes alone: every output is written by one thread, partial sums are added by trees or
 * loops whose order is written down, nothing is added atomically, and no block looks at what
 * another one of the same launch has done. Two runs are therefore equal bit for bit, whatever
 * multiprocessor runs a block and however many there are.
 *
 * A table is a stream: what it is given runs in that order. Nothing waits but synchronize() and
 * what fills the host's memory. Copies pass through the table's ring of pinned memory, so that the
 * device fetches them while the host goes on. An operation that fails leaves a sentence for the
 * synchronize() of all the device's tables. */
#ifndef ROOST_KERNELS_CUDA_CUDA_CUH
#define ROOST_KERNELS_CUDA_CUDA_CUH

#include "kernels/kernels.h"

#include <cuda_runtime.h>

struct gemm;
struct pins;

enum {
    WARP = 32,
    THREADS = 256,              /* of a block, unless an operation says otherwise */
    WORKSPACE_BYTES = 32 << 20, /* what NVIDIA recommends for cuBLASLt on Hopper */
    STAGING_BYTES = 1 << 20,
    RING_SLOTS = 4,
    SLOT_BYTES = KERNELS_BLOCK_BYTES_MAX,
};

/* The first failure of a device's tables. */
struct failure {
    int failing; /* set by it … */
    int failed;  /* … and this when its sentence is complete */
    char text[256];
};

/* Copies take the slots in turn. `pending` has for each where its bytes belong on the host, until
 * they were put there; NULL: nowhere, they go to the device. */
struct ring {
    char *memory; /* pinned, on the host */
    cudaEvent_t copied[RING_SLOTS];
    struct {
        void *to;
        size_t bytes;
    } pending[RING_SLOTS];
    unsigned next;
};

/* Another device of the machine. */
struct peer {
    bool asked, reached;
};

enum { PEERS_MAX = 64 };

struct kernels_state {
    bool bf16;   /* elements are */
    bool groups; /* the device has products of warpgroups (wgmma.cuh) */
    int device;
    uint32_t multiprocessors;
    bool capturing; /* what it is given is kept as a graph … */
    bool refused;   /* … and something of it cannot be */
    cudaStream_t stream;
    cudaEvent_t marks[KERNELS_MARKS];
    struct ring ring;
    void *staging;           /* on the device, STAGING_BYTES: wire bytes to or from the host */
    void *workspace;         /* on the device: whatever the running operation needs */
    struct gemm *gemm;       /* this and the workspace: of the table that computes */
    struct failure *failure; /* shared by the device's tables */
    struct pins *pins;       /* of the table that copies out; NULL: the host shares no memory */
    struct peer peers[PEERS_MAX];
    char name[288];
};

/* Every member of struct kernels that is an operation; each is cuda_NAME in its file. */
#define CUDA_OPERATIONS(X)                                                                         \
    X(linear_forward)                                                                              \
    X(linear_add_forward)                                                                          \
    X(linear_gelu_forward)                                                                         \
    X(linear_finish)                                                                               \
    X(linear_backward_input)                                                                       \
    X(linear_gelu_backward_input)                                                                  \
    X(linear_backward_weight)                                                                      \
    X(embedding_forward)                                                                           \
    X(embedding_backward)                                                                          \
    X(layernorm_forward)                                                                           \
    X(layernorm_backward)                                                                          \
    X(rmsnorm_forward)                                                                             \
    X(rmsnorm_backward)                                                                            \
    X(rope_forward)                                                                                \
    X(rope_backward)                                                                               \
    X(attention_scratch_bytes)                                                                     \
    X(attention_forward)                                                                           \
    X(attention_backward)                                                                          \
    X(add)                                                                                         \
    X(subtract)                                                                                    \
    X(gelu_forward)                                                                                \
    X(gelu_backward)                                                                               \
    X(relu_forward)                                                                                \
    X(relu_backward)                                                                               \
    X(tanh_forward)                                                                                \
    X(tanh_backward)                                                                               \
    X(swiglu_forward)                                                                              \
    X(swiglu_backward)                                                                             \
    X(classifier_forward)                                                                          \
    X(classifier_forward_backward)                                                                 \
    X(pieces_largest)                                                                              \
    X(pieces_exponentials)                                                                         \
    X(pieces_gradient)                                                                             \
    X(cast_from_f32)                                                                               \
    X(cast_from_bf16)                                                                              \
    X(cast_to_bf16)                                                                                \
    X(block_room)                                                                                  \
    X(decode_block)                                                                                \
    X(encode_block)                                                                                \
    X(share)                                                                                       \
    X(copy_block)                                                                                  \
    X(add_f32)                                                                                     \
    X(add_bf16)                                                                                    \
    X(sum_squares)                                                                                 \
    X(sgd)                                                                                         \
    X(momentum)                                                                                    \
    X(adamw)                                                                                       \
    X(mean)

#define SELF const struct kernels *k

/* A prototype for each, with the type that the table says. */
#define OPERATION_PROTOTYPE(operation)                                                             \
    __typeof__(*((struct kernels *)0)->operation) cuda_##operation;
CUDA_OPERATIONS(OPERATION_PROTOTYPE)

/* -- host: errors, copies, launches ------------------------------------------------------------ */

/* Keeps the sentence of the first failure for synchronize(); while a graph is made it only ends
 * that. Any thread. */
void cuda_fail(SELF, const char *format, ...) PRINTF_LIKE(2, 3);

/* The same when `error` is one; `what` was tried. True: it is none. */
bool cuda_ok(SELF, cudaError_t error, const char *what);

/* Between the device and the host's (pageable) memory, in the stream's order. The host's memory may
 * be used again on return. */
void cuda_copy_in(SELF, void *memory, const void *host, size_t bytes);
void cuda_copy_out(SELF, void *host, const void *memory, size_t bytes);

/* The next slot's SLOT_BYTES, free to be used. */
void *cuda_room(SELF);
/* At most SLOT_BYTES. In: from the room, or from elsewhere by way of it. Out: there when the table
 * is waited for, by way of a slot unless the device reaches it (pins.cu). */
void cuda_give_in(SELF, void *memory, const void *host, size_t bytes);
void cuda_give_out(SELF, void *host, const void *memory, size_t bytes);

/* Bytes from there on that the device writes itself, at most `bytes`; 0: none. */
size_t pins_reach(SELF, const void *host, size_t bytes);
void pins_free(struct pins *pins); /* NULL is fine */

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* A kernel on blocks × threads with so much dynamic shared memory; none for 0 blocks. */
template <typename... Parameters, typename... Arguments>
static void launch(SELF, int64_t blocks, int threads, size_t shared_bytes,
                   void (*kernel)(Parameters...), Arguments... arguments)
{
    if (blocks == 0)
        return;
    check(blocks > 0);
    check(blocks <= INT32_MAX);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = k->state->stream;
    cuda_ok(k, cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "launch");
}

/* A thread for each of n elements, which the kernel finds with element_index(). */
template <typename... Parameters, typename... Arguments>
static void launch_each(SELF, int64_t n, void (*kernel)(Parameters...), Arguments... arguments)
{
    launch(k, ceil_div(n, THREADS), THREADS, 0, kernel, arguments...);
}

/* -- device ------------------------------------------------------------------------------------ */

static __device__ inline int64_t element_index(void)
{
    return (int64_t)blockIdx.x * THREADS + threadIdx.x;
}

/* check() on the device: ends the launch, and synchronize() says so. */
static __device__ inline void device_check(bool condition)
{
    if (!condition)
        __trap();
}

/* The same tree in every lane: with the lane 16 away, then 8, 4, 2, 1; with fewer `lanes` (a power
 * of two) each such group for itself. */
template <typename Value> static __device__ inline Value warp_sum(Value x, int lanes = WARP)
{
    for (int half = lanes / 2; half > 0; half /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, half);
    return x;
}

/* Of a number and a NaN the number. */
static __device__ inline float larger(float a, float b)
{
    return fmaxf(a, b);
}

static __device__ inline float warp_largest(float x, int lanes = WARP)
{
    for (int half = lanes / 2; half > 0; half /= 2)
        x = larger(x, __shfl_xor_sync(0xffffffffu, x, half));
    return x;
}

/* Over all threads of a block (whole warps), known to all: a tree in each warp, then one over the
 * warps. */
template <typename Value> static __device__ inline Value block_sum(Value x)
{
    __shared__ Value sums[WARP];
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    x = warp_sum(x);
    __syncthreads(); /* the sums of an earlier call have been read */
    if (lane == 0)
        sums[warp] = x;
    __syncthreads();
    return warp_sum(lane < blockDim.x / WARP ? sums[lane] : Value(0));
}

static __device__ inline float block_largest(float x)
{
    __shared__ float largest[WARP];
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    x = warp_largest(x);
    __syncthreads();
    if (lane == 0)
        largest[warp] = x;
    __syncthreads();
    return warp_largest(lane < blockDim.x / WARP ? largest[lane] : -INFINITY);
}

#endif
