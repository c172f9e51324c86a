/* A GPU made of fibers: a block's threads take turns on one CPU thread, switching where they meet
 * (__syncthreads, shuffles, votes). It is slow and says nothing about speed; it finds what can be
 * wrong without a GPU:
 *
 * - Every launch runs its blocks, and every block its warps, in another random order, each warp as
 *   far as it comes without the others: a missing barrier, or a sum that depends on scheduling,
 *   gives two runs different bits.
 * - A stream's work is done as late as can be: when something waits for it, and then no further
 *   than that. So a missing mark between two streams, or pinned memory that is used again too
 * early, shows in what is computed.
 * - Device memory is new, filled with NaNs, ends at a page that cannot be touched, and is out of
 *   reach altogether unless a kernel or a copy runs. So are the rules on shared memory's size, on
 *   all 32 lanes meeting, and on copies' directions.
 *
 * It does not emulate that warps run in parallel: memory that two threads of a block write at the
 * same time is found only when the order of their turns shows. */
#include "tests/gpu/emulator/device.h"
#include "kernels/cuda/wgmma.cuh"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static const unsigned LANES = 32, THREADS_MAX = 1024;
static const size_t STACK_BYTES = 64 << 10, PAGE_BYTES = 4096, ALIGNMENT = 256;
static const size_t FILLED_BYTES_MAX = 1 << 20; /* with NaNs; more would take long */
/* of a block: what every GPU has since compute capability 8.0, and without asking for more */
static const size_t SHARED_BYTES_MAX = 99 << 10, SHARED_BYTES_DEFAULT = 48 << 10;

static void complain(const char *what)
{
    fprintf(stderr, "emulator: %s\n", what);
    abort();
}

/* -- devices ----------------------------------------------------------------------------------- */

enum { DEVICES_MAX = 8, ALL_DEVICES = -1 };

static thread_local int current_device;
static bool enabled_peers[DEVICES_MAX]
                         [DEVICES_MAX]; /* who may read whose memory; the memory's lock */

/* ROOST_EMULATED_DEVICES, when a test pretends that there are several. */
static int device_count()
{
    const char *count = getenv("ROOST_EMULATED_DEVICES");
    return count ? std::min(atoi(count), (int)DEVICES_MAX) : 1;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = device_count();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int number)
{
    if (number < 0 || number >= device_count())
        return cudaErrorInvalidDevice;
    current_device = number;
    return cudaSuccess;
}

/* ROOST_EMULATED_PEERS, when a test pretends that devices read each other's memory. */
cudaError_t cudaDeviceCanAccessPeer(int *may, int number, int other)
{
    *may = number != other && getenv("ROOST_EMULATED_PEERS") != NULL;
    return cudaSuccess;
}

/* -- memory ------------------------------------------------------------------------------------ */

struct allocation {
    char *pages;
    size_t pages_bytes;
    int device;
};

static struct {
    std::mutex mutex; /* guards the rest; held while device memory is open */
    std::map<char *, allocation> allocations;
    std::map<char *, size_t> pinned; /* of the host's */
    size_t taken[DEVICES_MAX], registered;
} memory;

static bool may_allocate();
static int stream_device(cudaStream_t stream);

/* ROOST_EMULATED_BYTES, when a test pretends that it is less: of all, or of each, with commas. */
static size_t memory_total(int device)
{
    const char *bytes = getenv("ROOST_EMULATED_BYTES");
    while (bytes && device-- > 0 && strchr(bytes, ','))
        bytes = strchr(bytes, ',') + 1;
    return bytes ? strtoull(bytes, NULL, 10) : (size_t)1 << 30;
}

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* Of that device, or of all. */
static void protect(int rights, int device)
{
    for (const auto &entry : memory.allocations)
        if (device == ALL_DEVICES || entry.second.device == device)
            mprotect(entry.second.pages, entry.second.pages_bytes, rights);
}

void device_open()
{
    memory.mutex.lock();
    protect(PROT_READ | PROT_WRITE, ALL_DEVICES);
}

/* What a kernel of the device may touch. */
static void device_open_one(int device)
{
    memory.mutex.lock();
    protect(PROT_READ | PROT_WRITE, device);
    for (int other = 0; other < DEVICES_MAX; other++)
        if (enabled_peers[device][other])
            protect(PROT_READ | PROT_WRITE, other);
}

void device_close()
{
    protect(PROT_NONE, ALL_DEVICES);
    memory.mutex.unlock();
}

cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned)
{
    int may;
    std::lock_guard<std::mutex> lock(memory.mutex);
    if (other < 0 || other >= device_count() ||
        cudaDeviceCanAccessPeer(&may, current_device, other) != cudaSuccess || !may)
        return cudaErrorInvalidDevice;
    if (enabled_peers[current_device][other])
        return cudaErrorPeerAccessAlreadyEnabled;
    enabled_peers[current_device][other] = true;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **ret_memory, size_t bytes)
{
    if (!may_allocate())
        return cudaErrorStreamCaptureUnsupported;
    std::lock_guard<std::mutex> lock(memory.mutex);
    size_t aligned = round_up(bytes, ALIGNMENT), pages_bytes = round_up(aligned, PAGE_BYTES);
    if (memory.taken[current_device] + pages_bytes > memory_total(current_device))
        return cudaErrorMemoryAllocation;
    void *pages = mmap(NULL, pages_bytes + PAGE_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    memset(pages, 0xff, std::min(pages_bytes, FILLED_BYTES_MAX));
    mprotect(pages, pages_bytes + PAGE_BYTES, PROT_NONE);
    char *begin = (char *)pages + pages_bytes - aligned;
    memory.allocations[begin] = {(char *)pages, pages_bytes, current_device};
    memory.taken[current_device] += pages_bytes;
    *ret_memory = begin;
    return cudaSuccess;
}

cudaError_t cudaFree(void *begin)
{
    if (!may_allocate())
        return cudaErrorStreamCaptureUnsupported;
    std::lock_guard<std::mutex> lock(memory.mutex);
    if (!begin)
        return cudaSuccess;
    auto found = memory.allocations.find((char *)begin);
    if (found == memory.allocations.end())
        return cudaErrorInvalidValue;
    munmap(found->second.pages, found->second.pages_bytes + PAGE_BYTES);
    memory.taken[found->second.device] -= found->second.pages_bytes;
    memory.allocations.erase(found);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_total)
{
    std::lock_guard<std::mutex> lock(memory.mutex);
    *ret_total = memory_total(current_device);
    *ret_free = *ret_total - memory.taken[current_device];
    return cudaSuccess;
}

static bool on_device(const void *at, size_t bytes, int device)
{
    auto after = memory.allocations.upper_bound((char *)at);
    if (after == memory.allocations.begin())
        return false;
    const allocation &found = std::prev(after)->second;
    return found.device == device && (const char *)at + bytes <= found.pages + found.pages_bytes;
}

cudaError_t cudaMallocHost(void **ret_memory, size_t bytes)
{
    std::lock_guard<std::mutex> lock(memory.mutex);
    *ret_memory = malloc(bytes);
    memory.pinned[(char *)*ret_memory] = bytes;
    return *ret_memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *begin)
{
    std::lock_guard<std::mutex> lock(memory.mutex);
    memory.pinned.erase((char *)begin);
    free(begin);
    return cudaSuccess;
}

/* ROOST_EMULATED_PINNED: no more bytes than that, when a test pretends that there is a limit. */
cudaError_t cudaHostRegister(void *begin, size_t bytes, unsigned)
{
    std::lock_guard<std::mutex> lock(memory.mutex);
    const char *most = getenv("ROOST_EMULATED_PINNED");
    if (memory.pinned.count((char *)begin))
        return cudaErrorInvalidValue;
    if (most && memory.registered + bytes > strtoull(most, NULL, 10))
        return cudaErrorMemoryAllocation;
    memory.pinned[(char *)begin] = bytes;
    memory.registered += bytes;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *begin)
{
    std::lock_guard<std::mutex> lock(memory.mutex);
    auto found = memory.pinned.find((char *)begin);
    if (found == memory.pinned.end())
        return cudaErrorInvalidValue;
    memory.registered -= found->second;
    memory.pinned.erase(found);
    return cudaSuccess;
}

static bool is_pinned(const void *at, size_t bytes)
{
    auto after = memory.pinned.upper_bound((char *)at);
    if (after == memory.pinned.begin())
        return false;
    const auto &found = *std::prev(after);
    return (const char *)at + bytes <= found.first + found.second;
}

static void give_copy(cudaStream_t stream, void *to, const void *from, size_t bytes)
{
    stream_give(stream, [=] {
        device_open();
        memcpy(to, from, bytes);
        device_close();
    });
}

/* ROOST_EMULATED_LOST: a file, from whose making on the device gives nothing as long as a gradient,
 * and says so late: what was computed meanwhile did not fail. */
static bool is_lost(size_t bytes)
{
    const char *lost = getenv("ROOST_EMULATED_LOST");
    if (bytes < 4096 || !lost || access(lost, F_OK) != 0)
        return false;
    static std::atomic<bool> said;
    if (!said.exchange(true))
        usleep(500000);
    return true;
}

/* What the host has must be pinned: kernels/cuda promises that copies do not wait. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    device_open();
    bool to_device = kind != cudaMemcpyDeviceToHost, from_device = kind != cudaMemcpyHostToDevice;
    int device = stream_device(stream);
    bool right = (to_device ? on_device(to, bytes, device) : is_pinned(to, bytes)) &&
                 (from_device ? on_device(from, bytes, device) : is_pinned(from, bytes));
    device_close();
    if (!right)
        return cudaErrorInvalidValue;
    if (!to_device && is_lost(bytes))
        return cudaErrorLaunchFailure;
    give_copy(stream, to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream)
{
    if (width > to_pitch || width > from_pitch)
        return cudaErrorInvalidValue;
    cudaError_t error = cudaSuccess;
    for (size_t row = 0; row < height && error == cudaSuccess; row++)
        error = cudaMemcpyAsync((char *)to + row * to_pitch, (const char *)from + row * from_pitch,
                                width, kind, stream);
    return error;
}

cudaError_t cudaMemsetAsync(void *begin, int value, size_t bytes, cudaStream_t stream)
{
    device_open();
    bool right = on_device(begin, bytes, stream_device(stream));
    device_close();
    if (!right)
        return cudaErrorInvalidValue;
    stream_give(stream, [=] {
        device_open();
        memset(begin, value, bytes);
        device_close();
    });
    return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream)
{
    device_open();
    bool right = on_device(to, bytes, to_device) && on_device(from, bytes, from_device);
    device_close();
    if (!right)
        return cudaErrorInvalidValue;
    give_copy(stream, to, from, bytes);
    return cudaSuccess;
}

/* -- streams ----------------------------------------------------------------------------------- */

struct emulator_graph {
    std::deque<std::function<void()>> work;
};

struct emulator_stream {
    int device;
    std::deque<std::function<void()>> work;
    uint64_t given, done;
    emulator_graph *capturing; /* takes what is given */
    std::thread::id capturer;  /* for which waiting and allocating spoils it */
    bool spoiled;
};

struct emulator_event {
    emulator_stream *stream; /* NULL: never recorded */
    uint64_t place;
};

static struct {
    std::recursive_mutex mutex; /* guards the rest, also while work runs */
    std::set<emulator_stream *> all;
    unsigned waits, graphs;
} streams;

typedef std::lock_guard<std::recursive_mutex> streams_lock;

static std::atomic<uint64_t> works_given;

extern "C" __attribute__((visibility("default"))) uint64_t emulator_given()
{
    return works_given;
}

static int stream_device(cudaStream_t stream)
{
    return stream->device;
}

void stream_give(cudaStream_t stream, std::function<void()> run)
{
    works_given++;
    streams_lock lock(streams.mutex);
    if (stream->capturing) {
        stream->capturing->work.push_back(run);
        return;
    }
    stream->work.push_back(run);
    stream->given++;
}

static void run_to(emulator_stream *stream, uint64_t place)
{
    while (stream->done < place) {
        std::function<void()> run = stream->work.front();
        stream->work.pop_front();
        run();
        stream->done++;
    }
}

/* Before a call that waits or allocates; false while its thread captures a stream, which it spoils.
 */
static bool may_wait()
{
    streams.waits++;
    for (emulator_stream *stream : streams.all) {
        if (!stream->capturing || stream->capturer != std::this_thread::get_id())
            continue;
        stream->spoiled = true;
        return false;
    }
    return true;
}

/* Allocating waits for all streams, as cudaFree() does. */
static bool may_allocate()
{
    streams_lock lock(streams.mutex);
    if (!may_wait())
        return false;
    for (emulator_stream *stream : streams.all)
        run_to(stream, stream->given);
    return true;
}

/* For tests: how often something has waited or allocated so far, how many graphs were given, and
 * how much work no one has waited for. */
extern "C" __attribute__((visibility("default"))) unsigned emulator_waits()
{
    streams_lock lock(streams.mutex);
    return streams.waits;
}

extern "C" __attribute__((visibility("default"))) unsigned emulator_graphs()
{
    streams_lock lock(streams.mutex);
    return streams.graphs;
}

extern "C" __attribute__((visibility("default"))) uint64_t emulator_left()
{
    streams_lock lock(streams.mutex);
    uint64_t left = 0;
    for (emulator_stream *stream : streams.all)
        left += stream->given - stream->done;
    return left;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned)
{
    streams_lock lock(streams.mutex);
    *ret_stream = new emulator_stream();
    (*ret_stream)->device = current_device;
    streams.all.insert(*ret_stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    streams_lock lock(streams.mutex);
    run_to(stream, stream->given);
    streams.all.erase(stream);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned)
{
    *ret_event = new emulator_event();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    streams_lock lock(streams.mutex);
    *event = {stream, stream->given};
    return cudaSuccess;
}

/* A piece of work takes a microsecond. */
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begun, cudaEvent_t ended)
{
    streams_lock lock(streams.mutex);
    *milliseconds = (float)(ended->place - begun->place) / 1000;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    streams_lock lock(streams.mutex);
    if (event->stream)
        stream_give(stream, [recorded = *event] { run_to(recorded.stream, recorded.place); });
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    streams_lock lock(streams.mutex);
    if (getenv("ROOST_EMULATED_GRAPHS")) /* a test pretends that there are none */
        return cudaErrorStreamCaptureUnsupported;
    stream->capturing = new emulator_graph();
    stream->capturer = std::this_thread::get_id();
    stream->spoiled = false;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *ret_graph)
{
    streams_lock lock(streams.mutex);
    *ret_graph = stream->spoiled ? NULL : stream->capturing;
    if (stream->spoiled)
        delete stream->capturing;
    stream->capturing = NULL;
    return stream->spoiled ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ret_ready, cudaGraph_t graph, unsigned long long)
{
    *ret_ready = new emulator_graph(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t ready, cudaStream_t stream)
{
    streams_lock lock(streams.mutex);
    streams.graphs++;
    for (const std::function<void()> &run : ready->work)
        stream_give(stream, run);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t ready)
{
    delete ready;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

/* -- fibers ------------------------------------------------------------------------------------ */

enum fiber_state { RUNNABLE, AT_WARP, AT_BLOCK, DONE };

struct fiber {
    fiber_state state;
    bool started;
    jmp_buf place;
    ucontext_t context;
    char *stack;
    unsigned meetings; /* of its warp so far: two in turn use different halves of `bits` */
    uint64_t bits[2];
    int vote;
};

/* One block at a time on each of our threads. */
struct block {
    std::vector<fiber> fibers;
    unsigned threads;
    fiber *running;
    jmp_buf scheduler;
    const std::function<void()> *run;
    int votes; /* of the last meeting of the block */
    bool trapped;
    std::mt19937 random;

    ~block()
    {
        for (fiber &fiber : fibers)
            free(fiber.stack);
    }
};

thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;
alignas(1024) thread_local float4 shared[SHARED_BYTES_MAX / sizeof(float4)];
static thread_local block here;

/* Back to the scheduler, until it comes here again. */
static void wait(fiber_state state)
{
    here.running->state = state;
    if (_setjmp(here.running->place) == 0)
        _longjmp(here.scheduler, 1);
}

/* A fiber serves one block after another. */
static void begin_fiber()
{
    for (;;) {
        (*here.run)();
        wait(DONE);
    }
}

static void resume(unsigned number)
{
    fiber &fiber = here.fibers[number];
    here.running = &fiber;
    threadIdx = dim3(number, 0, 0);
    if (_setjmp(here.scheduler) != 0)
        return;
    if (fiber.started)
        _longjmp(fiber.place, 1);
    fiber.started = true;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&fiber.context, begin_fiber, 0);
    setcontext(&fiber.context);
}

/* Lets the warp that begins at `first` go on when all its lanes have met. */
static bool release_warp(unsigned first)
{
    unsigned met = 0, done = 0;
    for (unsigned i = first; i < first + LANES; i++) {
        met += here.fibers[i].state == AT_WARP;
        done += here.fibers[i].state == DONE;
    }
    if (met > 0 && done > 0)
        complain("a lane has ended that others wait for");
    if (met < LANES)
        return false;
    for (unsigned i = first; i < first + LANES; i++)
        here.fibers[i].state = RUNNABLE;
    return true;
}

/* Lets the block go on when all its threads have met, which have not ended. */
static bool release_block()
{
    int votes = 0;
    for (unsigned i = 0; i < here.threads; i++) {
        if (here.fibers[i].state != AT_BLOCK && here.fibers[i].state != DONE)
            return false;
        votes |= here.fibers[i].state == AT_BLOCK && here.fibers[i].vote;
    }
    here.votes = votes;
    bool any = false;
    for (unsigned i = 0; i < here.threads; i++) {
        if (here.fibers[i].state != AT_BLOCK)
            continue;
        here.fibers[i].state = RUNNABLE;
        any = true;
    }
    return any;
}

static bool all_done()
{
    return std::all_of(here.fibers.begin(), here.fibers.begin() + here.threads,
                       [](const fiber &fiber) { return fiber.state == DONE; });
}

static void reset_fibers(unsigned threads)
{
    here.threads = threads;
    while (here.fibers.size() < threads) {
        here.fibers.emplace_back();
        here.fibers.back().stack = (char *)malloc(STACK_BYTES);
    }
    for (fiber &fiber : here.fibers) { /* those beyond `threads` are not looked at */
        fiber.state = RUNNABLE;
        fiber.meetings = 0;
    }
}

/* 0 … count - 1 in a random order, `step` apart */
static std::vector<unsigned> shuffled(unsigned count, unsigned step = 1)
{
    std::vector<unsigned> order(count);
    for (unsigned i = 0; i < count; i++)
        order[i] = i * step;
    std::shuffle(order.begin(), order.end(), here.random);
    return order;
}

/* A warp as far as it comes without the block's others. */
static void run_warp(unsigned first)
{
    std::vector<unsigned> lanes = shuffled(LANES);
    do {
        for (unsigned lane : lanes)
            if (here.fibers[first + lane].state == RUNNABLE && !here.trapped)
                resume(first + lane);
    } while (release_warp(first) && !here.trapped);
}

static void run_block(unsigned threads)
{
    reset_fibers(threads);
    memset(shared, 0xff, sizeof shared);
    while (!all_done() && !here.trapped) {
        for (unsigned first : shuffled(threads / LANES, LANES))
            run_warp(first);
        if (!release_block() && !all_done() && !here.trapped)
            complain("threads wait for each other at different places");
    }
}

/* -- what kernels call ------------------------------------------------------------------------- */

void __syncthreads()
{
    here.running->vote = 0;
    wait(AT_BLOCK);
}

int __syncthreads_or(int condition)
{
    here.running->vote = condition;
    wait(AT_BLOCK);
    return here.votes;
}

void __trap()
{
    here.trapped = true;
    _longjmp(here.scheduler, 1);
}

/* Leaves the lane's bits for the others; returns which half of `bits` they are in. */
static unsigned meet(unsigned lanes, uint64_t bits)
{
    if (lanes != 0xffffffffu)
        complain("not all lanes are to meet");
    unsigned half = here.running->meetings++ % 2;
    here.running->bits[half] = bits;
    wait(AT_WARP);
    return half;
}

uint64_t emulator_exchange(unsigned lanes, uint64_t bits, int mask)
{
    unsigned half = meet(lanes, bits);
    return here.fibers[threadIdx.x ^ (unsigned)mask].bits[half];
}

unsigned __ballot_sync(unsigned lanes, int condition)
{
    unsigned half = meet(lanes, condition != 0), votes = 0;
    for (unsigned lane = 0; lane < LANES; lane++)
        votes |= (unsigned)here.fibers[threadIdx.x / LANES * LANES + lane].bits[half] << lane;
    return votes;
}

/* -- tensor cores ------------------------------------------------------------------------------ */

/* What every lane of the warp brings, by lane. */
struct brought {
    uint64_t bits[LANES];
};

static brought bring(uint64_t bits)
{
    unsigned half = meet(0xffffffffu, bits), first = threadIdx.x / LANES * LANES;
    brought all;
    for (unsigned lane = 0; lane < LANES; lane++)
        all.bits[lane] = here.fibers[first + lane].bits[half];
    return all;
}

static uint64_t joined(unsigned low, unsigned high)
{
    return low | (uint64_t)high << 32;
}

/* Of the pairs that lie `place` 16-bit numbers up in a lane's 64 bits. */
static float number(uint64_t bits, unsigned place)
{
    return value(bf16{(uint16_t)(bits >> 16 * place)});
}

/* Lane l of the left factor has in pair q row l/4 + q%2*8, inner l%4*2 + q/2*8; of the right one
 * column l/4, inner l%4*2 + q*8 (PTX ISA, matrix fragments for mma.m16n8k16). */
void mma(mma_sum &sum, const mma_left &a, const mma_right &b)
{
    brought first = bring(joined(a.pairs[0], a.pairs[1]));
    brought second = bring(joined(a.pairs[2], a.pairs[3]));
    brought right = bring(joined(b.pairs[0], b.pairs[1]));
    unsigned lane = threadIdx.x % LANES;
    for (unsigned j = 0; j < 4; j++) {
        unsigned row = lane / 4 + j / 2 * 8, column = lane % 4 * 2 + j % 2;
        for (unsigned inner = 0; inner < 16; inner++) {
            unsigned of_row = row % 8 * 4 + inner % 8 / 2, of_column = column * 4 + inner % 8 / 2;
            const brought &left = inner < 8 ? first : second;
            sum.at[j] += number(left.bits[of_row], row / 8 * 2 + inner % 2) *
                         number(right.bits[of_column], inner / 8 * 2 + inner % 2);
        }
    }
}

static const bf16 *shared_row(uint64_t bits)
{
    const bf16 *row = (const bf16 *)(uintptr_t)bits;
    if ((const char *)row < (const char *)shared ||
        (const char *)(row + 8) > (const char *)(&shared + 1))
        complain("a tile's row is not in shared memory");
    if ((uintptr_t)row % 16 != 0)
        complain("a tile's row is not aligned");
    return row;
}

void load_tiles(unsigned (&pairs)[4], const bf16 *row)
{
    brought rows = bring((uint64_t)(uintptr_t)row);
    unsigned lane = threadIdx.x % LANES;
    for (unsigned tile = 0; tile < 4; tile++) {
        const bf16 *from = shared_row(rows.bits[tile * 8 + lane / 4]) + lane % 4 * 2;
        pairs[tile] = from[0].bits | (unsigned)from[1].bits << 16;
    }
}

void load_tiles_transposed(unsigned (&pairs)[4], const bf16 *row)
{
    brought rows = bring((uint64_t)(uintptr_t)row);
    unsigned lane = threadIdx.x % LANES;
    for (unsigned tile = 0; tile < 4; tile++) {
        const bf16 *low = shared_row(rows.bits[tile * 8 + lane % 4 * 2]);
        const bf16 *high = shared_row(rows.bits[tile * 8 + lane % 4 * 2 + 1]);
        pairs[tile] = low[lane / 4].bits | (unsigned)high[lane / 4].bits << 16;
    }
}

void copy_async(bf16 *to, const bf16 *from, bool there)
{
    shared_row((uint64_t)(uintptr_t)to);
    if ((uintptr_t)from % 16 != 0)
        complain("an asynchronous copy is not aligned");
    if (there)
        memcpy(to, from, 16);
    else
        memset(to, 0, 16);
}

void copy_async(float *to, const float *from, bool there)
{
    *to = there ? *from : 0;
}

/* -- products of warpgroups -------------------------------------------------------------------- */

static uintptr_t shared_begin()
{
    return (uintptr_t)&shared / GROUP_ALIGNMENT * GROUP_ALIGNMENT;
}

/* Of shared memory, from an address that its alignments divide as well. */
unsigned __cvta_generic_to_shared(const void *at)
{
    return (unsigned)((uintptr_t)at - shared_begin());
}

/* A factor as its descriptor says it (PTX ISA, "Matrix descriptor format" and "Shared memory matrix
 * layout"): eight rows of 128 bytes, the next eight the stride away, and of each address the bits of
 * a pack changed by those of its row. */
static float factor_at(uint64_t factor, unsigned row, unsigned column)
{
    unsigned begin = (factor & 0x3fff) << 4, eight_rows = (factor >> 32 & 0x3fff) << 4;
    if (factor >> 62 != 1 || (factor >> 49 & 7) != 0)
        complain("a factor is not swizzled by 128 bytes");
    if (begin % GROUP_ALIGNMENT >= 128)
        complain("a factor does not begin in the first of eight rows");
    unsigned at = begin + row / 8 * eight_rows + row % 8 * 128 + column * (unsigned)sizeof(bf16);
    at ^= (at >> 7 & 7) << 4;
    const bf16 *there = (const bf16 *)(shared_begin() + at);
    if ((const char *)there < (const char *)&shared ||
        (const char *)(there + 1) > (const char *)(&shared + 1))
        complain("a factor is not in shared memory");
    return value(*there);
}

/* Where the lane's j-th number of the i-th result of pair p lies. */
static unsigned group_row(unsigned j)
{
    return threadIdx.x / LANES % GROUP_WARPS * 16 + threadIdx.x % LANES / 4 + j / 2 * 8;
}

static unsigned group_column(unsigned p, unsigned i, unsigned j)
{
    return p * 16 + i * 8 + threadIdx.x % LANES % 4 * 2 + j % 2;
}

/* sums[row][column] += left(row, inner) right(column, inner) */
template <typename Left, typename Right>
static void add_product(mma_sum (*sums)[2], const Left &left, const Right &right)
{
    for (unsigned p = 0; p < GROUP_COLUMNS / 16; p++)
        for (unsigned i = 0; i < 2; i++)
            for (unsigned j = 0; j < 4; j++)
                for (unsigned inner = 0; inner < 16; inner++)
                    sums[p][i].at[j] += left(j, inner) * right(group_column(p, i, j), inner);
}

void group_multiply(mma_sum (*sums)[2], uint64_t left, uint64_t right)
{
    for (unsigned p = 0; p < GROUP_COLUMNS / 16; p++)
        sums[p][0] = sums[p][1] = mma_sum{};
    group_multiply_add(sums, left, right);
}

void group_multiply_add(mma_sum (*sums)[2], uint64_t left, uint64_t right)
{
    add_product(
        sums, [=](unsigned j, unsigned inner) { return factor_at(left, group_row(j), inner); },
        [=](unsigned column, unsigned inner) { return factor_at(right, column, inner); });
}

void group_add(mma_sum (*sums)[2], const mma_left &left, uint64_t right)
{
    brought first = bring(joined(left.pairs[0], left.pairs[1]));
    brought second = bring(joined(left.pairs[2], left.pairs[3]));
    add_product(
        sums,
        [&](unsigned j, unsigned inner) {
            const brought &pairs = inner < 8 ? first : second;
            return number(pairs.bits[threadIdx.x % LANES / 4 * 4 + inner % 8 / 2],
                          j / 2 * 2 + inner % 2);
        },
        [=](unsigned column, unsigned inner) { return factor_at(right, inner, column); });
}

/* -- launches ---------------------------------------------------------------------------------- */

static struct {
    std::mutex mutex;                            /* guards the rest */
    std::map<const void *, size_t> shared_bytes; /* that a kernel asked for */
    cudaError_t error;                           /* after a trap: for good, as on a GPU */
} device;

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int value)
{
    std::lock_guard<std::mutex> lock(device.mutex);
    if (value < 0 || (size_t)value > SHARED_BYTES_MAX)
        return cudaErrorInvalidValue;
    device.shared_bytes[kernel] = (size_t)value;
    return cudaSuccess;
}

static bool launchable(const cudaLaunchConfig_t *config, const void *kernel)
{
    std::lock_guard<std::mutex> lock(device.mutex);
    auto found = device.shared_bytes.find(kernel);
    size_t most = found == device.shared_bytes.end() ? SHARED_BYTES_DEFAULT : found->second;
    return config->gridDim.x > 0 && config->blockDim.x > 0 && config->blockDim.x <= THREADS_MAX &&
           config->blockDim.x % LANES == 0 && config->dynamicSmemBytes <= most;
}

static void run_blocks(unsigned blocks, unsigned threads)
{
    for (unsigned number : shuffled(blocks)) {
        blockIdx = dim3(number, 0, 0);
        run_block(threads);
    }
}

static void run_kernel(const cudaLaunchConfig_t *config, const std::function<void()> &run)
{
    if (device.error != cudaSuccess)
        return;
    gridDim = config->gridDim;
    blockDim = config->blockDim;
    here.run = &run;
    here.trapped = false;
    device_open_one(stream_device(config->stream));
    run_blocks(gridDim.x, blockDim.x);
    device_close();
    if (here.trapped)
        device.error = cudaErrorLaunchFailure;
}

cudaError_t emulator_launch(const cudaLaunchConfig_t *config, const void *kernel,
                            const std::function<void()> &run)
{
    if (device.error != cudaSuccess)
        return device.error;
    if (stream_device(config->stream) != current_device)
        return cudaErrorInvalidResourceHandle;
    if (!launchable(config, kernel))
        return cudaErrorInvalidConfiguration;
    stream_give(config->stream, [config = *config, run] { run_kernel(&config, run); });
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    streams_lock lock(streams.mutex);
    if (!may_wait())
        return cudaErrorStreamCaptureUnsupported;
    run_to(stream, stream->given);
    return device.error;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    streams_lock lock(streams.mutex);
    if (!may_wait())
        return cudaErrorStreamCaptureUnsupported;
    if (event->stream)
        run_to(event->stream, event->place);
    return device.error;
}

/* -- the device -------------------------------------------------------------------------------- */

const char *cudaGetErrorString(cudaError_t error)
{
    static const char *const texts[] = {"no error",
                                        "invalid argument",
                                        "out of memory",
                                        "invalid configuration argument",
                                        "unspecified launch failure",
                                        "operation not permitted when stream is capturing",
                                        "invalid device ordinal",
                                        "peer access is already enabled",
                                        "invalid resource handle"};
    return texts[error];
}

/* What failed has said so itself. */
cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 1;
    return cudaSuccess;
}

/* ROOST_EMULATED_CAPABILITY, when a test pretends that it is an older one; ROOST_EMULATED_PROCESSORS,
 * that it is a large one. */
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *ret_device, int device)
{
    const char *capability = getenv("ROOST_EMULATED_CAPABILITY");
    const char *processors = getenv("ROOST_EMULATED_PROCESSORS");
    int number = capability ? atoi(capability) : 90;
    *ret_device = {"emulated GPU", memory_total(device), number / 10, number % 10,
                   processors ? atoi(processors) : 1};
    return cudaSuccess;
}
