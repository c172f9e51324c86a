/* libroost-cuda.so: finds the device, takes what operations need beside their arguments, and fills
 * the table. CUDA_VISIBLE_DEVICES chooses among which devices. */
#include "kernels/cuda.h"
#include "kernels/cuda/gemm.cuh"

#include <sched.h>
#include <stdarg.h>
#include <string.h>

/* -- errors ------------------------------------------------------------------------------------ */

void cuda_fail(SELF, const char *format, ...)
{
    struct failure *failure = k->state->failure;
    if (k->state->capturing) {
        k->state->refused = true;
        return;
    }
    if (__atomic_exchange_n(&failure->failing, 1, __ATOMIC_ACQ_REL))
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->text, sizeof failure->text, format, arguments);
    va_end(arguments);
    __atomic_store_n(&failure->failed, 1, __ATOMIC_RELEASE);
}

bool cuda_ok(SELF, cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        cuda_fail(k, "%s: CUDA: %s", what, cudaGetErrorString(error));
    return error == cudaSuccess;
}

/* NULL: nothing failed. Another thread that failed first may still write the sentence. */
static const char *failure_text(SELF)
{
    const struct failure *failure = k->state->failure;
    if (!__atomic_load_n(&failure->failing, __ATOMIC_ACQUIRE))
        return NULL;
    while (!__atomic_load_n(&failure->failed, __ATOMIC_ACQUIRE))
        sched_yield();
    return failure->text;
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

enum { TABLES = 3 }; /* of a device: what computes, and its `in` and `out` */

/* For what CUDA takes when it is first needed: cuBLASLt's kernels, loaded one by one, and graphs.
 * Devices so small that this would be much of them run models with few shapes. */
enum { RESERVED_BYTES = 512 << 20, RESERVED_SHARE = 16 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void device_memory(SELF, struct kernels_memory *ret_memory)
{
    size_t free = 0, total = 0;
    cuda_ok(k, cudaMemGetInfo(&free, &total), "memory");
    *ret_memory = {total, free, WORKSPACE_BYTES + TABLES * STAGING_BYTES,
                   smaller(smaller(RESERVED_BYTES, total / RESERVED_SHARE), free)};
}

/* Waits for the slot's copy; what came from the device goes where it belongs. */
static void settle(SELF, unsigned slot)
{
    struct ring *ring = &k->state->ring;
    bool copied = cuda_ok(k, cudaEventSynchronize(ring->copied[slot]), "copy");
    if (copied && ring->pending[slot].to)
        memcpy(ring->pending[slot].to, ring->memory + (size_t)slot * SLOT_BYTES,
               ring->pending[slot].bytes);
    ring->pending[slot].to = NULL;
}

static void settle_all(SELF)
{
    for (unsigned i = 0; i < RING_SLOTS; i++)
        settle(k, (k->state->ring.next + i) % RING_SLOTS);
}

void *cuda_room(SELF)
{
    unsigned slot = k->state->ring.next % RING_SLOTS;
    settle(k, slot);
    return k->state->ring.memory + (size_t)slot * SLOT_BYTES;
}

static void give_slot(SELF)
{
    unsigned slot = k->state->ring.next++ % RING_SLOTS;
    cuda_ok(k, cudaEventRecord(k->state->ring.copied[slot], k->state->stream), "copy");
}

/* A graph would copy again what the host's memory held when it was made. */
static bool refused_to_copy(SELF)
{
    k->state->refused |= k->state->capturing;
    return k->state->capturing;
}

void cuda_give_in(SELF, void *memory, const void *host, size_t bytes)
{
    if (refused_to_copy(k))
        return;
    check(bytes <= SLOT_BYTES);
    void *room = cuda_room(k);
    if (host != room)
        memcpy(room, host, bytes);
    cuda_ok(k, cudaMemcpyAsync(memory, room, bytes, cudaMemcpyHostToDevice, k->state->stream),
            "copy to the device");
    give_slot(k);
}

static void copy_from_device(SELF, void *pinned, const void *memory, size_t bytes)
{
    cuda_ok(k, cudaMemcpyAsync(pinned, memory, bytes, cudaMemcpyDeviceToHost, k->state->stream),
            "copy from the device");
}

void cuda_give_out(SELF, void *host, const void *memory, size_t bytes)
{
    if (refused_to_copy(k))
        return;
    check(bytes <= SLOT_BYTES);
    for (size_t here; (here = pins_reach(k, host, bytes)) > 0; bytes -= here) {
        copy_from_device(k, host, memory, here);
        host = (char *)host + here;
        memory = (const char *)memory + here;
    }
    if (bytes == 0)
        return;
    struct ring *ring = &k->state->ring;
    copy_from_device(k, cuda_room(k), memory, bytes);
    ring->pending[ring->next % RING_SLOTS] = {host, bytes};
    give_slot(k);
}

void cuda_copy_in(SELF, void *memory, const void *host, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += SLOT_BYTES)
        cuda_give_in(k, (char *)memory + at, (const char *)host + at,
                     smaller(bytes - at, SLOT_BYTES));
}

void cuda_copy_out(SELF, void *host, const void *memory, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += SLOT_BYTES)
        cuda_give_out(k, (char *)host + at, (const char *)memory + at,
                      smaller(bytes - at, SLOT_BYTES));
    if (refused_to_copy(k))
        return;
    settle_all(k);
    cuda_ok(k, cudaStreamSynchronize(k->state->stream), "copy from the device");
}

static void device_zero(SELF, void *memory, size_t bytes)
{
    cuda_ok(k, cudaMemsetAsync(memory, 0, bytes, k->state->stream), "zero");
}

static void device_copy(SELF, void *memory, const void *from, size_t bytes)
{
    cuda_ok(k, cudaMemcpyAsync(memory, from, bytes, cudaMemcpyDeviceToDevice, k->state->stream),
            "copy");
}

static const char *device_synchronize(SELF)
{
    settle_all(k);
    cuda_ok(k, cudaStreamSynchronize(k->state->stream), "synchronize");
    return failure_text(k);
}

static uint32_t device_multiprocessors(SELF)
{
    return k->state->multiprocessors;
}

static void stream_mark(SELF, uint32_t number)
{
    cuda_ok(k, cudaEventRecord(k->state->marks[number % KERNELS_MARKS], k->state->stream), "mark");
}

static void stream_after(SELF, const struct kernels *other, uint32_t number)
{
    cudaEvent_t mark = other->state->marks[number % KERNELS_MARKS];
    cuda_ok(k, cudaStreamWaitEvent(k->state->stream, mark, 0), "order of streams");
}

/* -- other devices ----------------------------------------------------------------------------- */

static uint32_t device_count(SELF)
{
    int count = 1;
    cuda_ok(k, cudaGetDeviceCount(&count), "number of devices");
    return (uint32_t)count;
}

static void device_use(SELF)
{
    cuda_ok(k, cudaSetDevice(k->state->device), "choice of the device");
}

/* Has kernels of this device read the other one's memory where it lies. False: it cannot be. */
static bool open_peer(SELF, int other)
{
    int may = 0;
    if (cudaDeviceCanAccessPeer(&may, k->state->device, other) != cudaSuccess || !may)
        return false;
    cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled)
        (void)cudaGetLastError(); /* which it is from then on, and no failure */
    return error == cudaSuccess || error == cudaErrorPeerAccessAlreadyEnabled;
}

/* The driver is asked once. */
static bool reaches(SELF, int other)
{
    struct kernels_state *state = k->state;
    if (other == state->device)
        return true;
    if (other >= PEERS_MAX)
        return false;
    if (!state->peers[other].asked)
        state->peers[other] = (struct peer){true, open_peer(k, other)};
    return state->peers[other].reached;
}

/* Where the device cannot read the other's memory, it is copied piece by piece. */
static void device_add_other(SELF, float *out, const struct kernels *other, const float *b,
                             int64_t n)
{
    struct kernels_state *state = k->state;
    const int64_t most = STAGING_BYTES / sizeof(float);
    float *staging = (float *)state->staging;
    if (reaches(k, other->state->device)) {
        cuda_add(k, out, out, b, n);
        return;
    }
    for (int64_t i = 0; i < n; i += most) {
        int64_t count = n - i < most ? n - i : most;
        cuda_ok(k,
                cudaMemcpyPeerAsync(staging, state->device, b + i, other->state->device,
                                    (size_t)count * sizeof *b, state->stream),
                "copy from another device");
        cuda_add(k, out + i, out + i, staging, count);
    }
}

/* -- graphs ------------------------------------------------------------------------------------ */

/* The stream's capture, which what cannot be captured has ended or not. */
static cudaGraph_t end_capture(SELF)
{
    cudaGraph_t graph = NULL;
    k->state->capturing = false;
    bool whole = cudaStreamEndCapture(k->state->stream, &graph) == cudaSuccess;
    if (whole && !k->state->refused)
        return graph;
    if (graph)
        cudaGraphDestroy(graph);
    return NULL;
}

/* Errors on the way only say that it cannot be done: done directly they come again, if at all. */
static struct kernels_graph *graph_new(SELF, void (*work)(void *context), void *context)
{
    cudaGraphExec_t ready = NULL;
    k->state->refused = false;
    if (cudaStreamBeginCapture(k->state->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess) {
        k->state->capturing = true;
        work(context);
        cudaGraph_t graph = end_capture(k);
        if (graph && cudaGraphInstantiate(&ready, graph, 0) != cudaSuccess)
            ready = NULL;
        if (graph)
            cudaGraphDestroy(graph);
    }
    if (!ready)
        cudaGetLastError(); /* forgets it */
    return (struct kernels_graph *)ready;
}

static void graph_run(SELF, struct kernels_graph *graph)
{
    cuda_ok(k, cudaGraphLaunch((cudaGraphExec_t)graph, k->state->stream), "graph");
}

static void graph_free(SELF, struct kernels_graph *graph)
{
    if (graph)
        cuda_ok(k, cudaGraphExecDestroy((cudaGraphExec_t)graph), "graph");
}

/* -- opening ----------------------------------------------------------------------------------- */

#define FAIL(...) (snprintf(reason, reason_bytes, __VA_ARGS__), false)

/* The device of that number, when our kernels run on it. The calling thread uses it. */
static bool find_device(uint32_t wanted, int *ret_number, cudaDeviceProp *ret_device, char *reason,
                        size_t reason_bytes)
{
    int count = 0, driver = 0;
    cudaError_t error = cudaDriverGetVersion(&driver);
    if (error == cudaSuccess && driver == 0)
        return FAIL("no CUDA device: this machine has no NVIDIA driver");
    if (error == cudaSuccess)
        error = cudaGetDeviceCount(&count);
    *ret_number = count > 0 ? (int)(wanted % (uint32_t)count) : 0;
    if (error == cudaSuccess && count > 0)
        error = cudaSetDevice(*ret_number);
    if (error == cudaSuccess && count > 0)
        error = cudaGetDeviceProperties(ret_device, *ret_number);
    if (error != cudaSuccess)
        return FAIL("no CUDA device: %s", cudaGetErrorString(error));
    if (count == 0)
        return FAIL("no CUDA device");
    if (ret_device->major < 8)
        return FAIL("%s has CUDA compute capability %d.%d; 8.0 or later is needed",
                    ret_device->name, ret_device->major, ret_device->minor);
    return true;
}

static cudaError_t new_events(cudaEvent_t *events, int count)
{
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < count && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming);
    return error;
}

static void free_events(cudaEvent_t *events, int count)
{
    for (int i = 0; i < count; i++)
        if (events[i])
            cudaEventDestroy(events[i]);
}

/* What every table has of its own. */
static cudaError_t take_stream(struct kernels_state *state)
{
    cudaError_t error = cudaStreamCreateWithFlags(&state->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = new_events(state->marks, KERNELS_MARKS);
    if (error == cudaSuccess)
        error = new_events(state->ring.copied, RING_SLOTS);
    if (error == cudaSuccess)
        error = cudaMallocHost((void **)&state->ring.memory, (size_t)RING_SLOTS * SLOT_BYTES);
    if (error == cudaSuccess)
        error = cudaMalloc(&state->staging, STAGING_BYTES);
    return error;
}

static void close_table(struct kernels *k)
{
    struct kernels_state *state = k->state;
    if (state->stream)
        cudaStreamSynchronize(state->stream);
    cudaFree(state->staging);
    cudaFreeHost(state->ring.memory);
    free_events(state->ring.copied, RING_SLOTS);
    free_events(state->marks, KERNELS_MARKS);
    if (state->stream)
        cudaStreamDestroy(state->stream);
    free(state);
    free(k);
}

static void device_close(SELF)
{
    device_use(k);
    struct kernels_state *state = k->state;
    if (k->in)
        close_table((struct kernels *)k->in);
    struct pins *pins = k->out ? k->out->state->pins : NULL;
    if (k->out)
        close_table((struct kernels *)k->out);
    pins_free(pins); /* nothing is under way any more */
    gemm_free(state->gemm);
    cudaFree(state->workspace);
    free(state->failure);
    close_table((struct kernels *)k);
}

#define OPERATION_MEMBER(operation) k->operation = cuda_##operation;

static void fill_table(struct kernels *k)
{
    CUDA_OPERATIONS(OPERATION_MEMBER)
    k->name = k->state->name;
    k->numerics = gemm_numerics(k->state->gemm);
    k->mark = stream_mark;
    k->after = stream_after;
    k->use = device_use;
    k->add_other = device_add_other;
    k->devices = device_count;
    k->multiprocessors = device_multiprocessors;
    k->graph_new = graph_new;
    k->graph_run = graph_run;
    k->graph_free = graph_free;
    k->time_products = gemm_time;
    k->write_products = gemm_write_products;
    k->element_bytes = k->state->bf16 ? sizeof(bf16) : sizeof(float);
    k->alloc = device_alloc;
    k->free = device_free;
    k->memory = device_memory;
    k->copy_in = cuda_copy_in;
    k->copy_out = cuda_copy_out;
    k->zero = device_zero;
    k->copy = device_copy;
    k->synchronize = device_synchronize;
    k->close = device_close;
}

/* The same operations on a stream of its own. */
static void fill_copying(SELF, struct kernels *copying)
{
    struct kernels_state *state = copying->state;
    *copying = *k;
    copying->state = state;
}

static struct kernels *new_table(void)
{
    struct kernels_state *state = (struct kernels_state *)calloc(1, sizeof *state);
    struct kernels *k = (struct kernels *)calloc(1, sizeof *k);
    if (!state || !k) {
        free(state);
        free(k);
        return NULL;
    }
    k->state = state;
    return k;
}

/* A table for copies beside `k`. */
static struct kernels *new_copying(SELF)
{
    struct kernels *copying = new_table();
    if (!copying)
        return NULL;
    copying->state->bf16 = k->state->bf16;
    copying->state->device = k->state->device;
    copying->state->failure = k->state->failure;
    return copying;
}

static bool new_tables(struct kernels *k)
{
    k->state->failure = (struct failure *)calloc(1, sizeof *k->state->failure);
    k->in = new_copying(k);
    k->out = new_copying(k);
    return k->state->failure && k->in && k->out;
}

static bool open_device(const struct kernels_options *options, const cudaDeviceProp *device,
                        struct kernels *k, char *reason, size_t reason_bytes)
{
    struct kernels_state *state = k->state;
    state->bf16 = options->compute == KERNELS_COMPUTE_BF16;
    state->multiprocessors = (uint32_t)device->multiProcessorCount;
    state->groups = device->major == 9 && device->minor == 0;
    snprintf(state->name, sizeof state->name, "CUDA, %s, %zu MiB", device->name,
             device->totalGlobalMem >> 20);
    if (!new_tables(k))
        return FAIL("out of memory");
    cudaError_t error = take_stream(state);
    if (error == cudaSuccess)
        error = take_stream(k->in->state);
    if (error == cudaSuccess)
        error = take_stream(k->out->state);
    if (error == cudaSuccess)
        error = cudaMalloc(&state->workspace, WORKSPACE_BYTES);
    if (error != cudaSuccess)
        return FAIL("CUDA: %s", cudaGetErrorString(error));
    return gemm_new(options, device, &state->gemm, reason, reason_bytes);
}

extern "C" __attribute__((visibility("default"))) cuda_entry roost_cuda_kernels;

extern "C" bool roost_cuda_kernels(const struct kernels_options *options,
                                   const struct kernels **ret_kernels, char *reason,
                                   size_t reason_bytes)
{
    int number;
    cudaDeviceProp device;
    if (!find_device(options->device, &number, &device, reason, reason_bytes))
        return false;
    struct kernels *k = new_table();
    if (!k)
        return FAIL("out of memory");
    k->state->device = number;
    if (!open_device(options, &device, k, reason, reason_bytes)) {
        device_close(k);
        return false;
    }
    fill_table(k);
    fill_copying(k, (struct kernels *)k->in);
    fill_copying(k, (struct kernels *)k->out);
    *ret_kernels = k;
    return true;
}
