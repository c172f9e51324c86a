/* What a program gives the GPU, as the GPU did it: loaded by the driver into any CUDA program that
 * is started with CUDA_INJECTION64_PATH naming this library, it writes a line for each kernel and
 * copy to $GPU_TRACE.PID, from its beginning to its end:
 *
 *     kernel|in|out|other|fill STREAM BEGIN_NS END_NS BYTES NAME
 *
 * `in` comes from the host, `out` goes there, `fill` is a memset; times count from the program's
 * start. trace_report reads it. Lines come when CUPTI's buffers are full, out of order. */
#include <cupti.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BUFFER_BYTES = 8 << 20 };

/* CUPTI has no context for callbacks: the one place with a global. */
static struct {
    FILE *out;
    uint64_t begun_ns;
} trace;

char *__cxa_demangle(const char *name, char *out, size_t *out_bytes, int *status);
int InitializeInjection(void);

static void say(const char *kind, uint32_t stream, uint64_t begin_ns, uint64_t end_ns,
                uint64_t bytes, const char *name)
{
    fprintf(trace.out, "%s %u %llu %llu %llu %s\n", kind, stream,
            (unsigned long long)(begin_ns - trace.begun_ns),
            (unsigned long long)(end_ns - trace.begun_ns), (unsigned long long)bytes, name);
}

static void say_kernel(const CUpti_ActivityKernel10 *kernel)
{
    int status;
    char *plain = __cxa_demangle(kernel->name, NULL, NULL, &status);
    say("kernel", kernel->streamId, kernel->start, kernel->end, 0, plain ? plain : kernel->name);
    free(plain);
}

static void say_copy(const CUpti_ActivityMemcpy6 *copy)
{
    const char *kind = copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "in"
                       : copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "out"
                                                                           : "other";
    say(kind, copy->streamId, copy->start, copy->end, copy->bytes, "copy");
}

static void say_fill(const CUpti_ActivityMemset4 *fill)
{
    say("fill", fill->streamId, fill->start, fill->end, fill->bytes, "fill");
}

static void say_record(const CUpti_Activity *record)
{
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        say_kernel((const CUpti_ActivityKernel10 *)record);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        say_copy((const CUpti_ActivityMemcpy6 *)record);
        break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        say_fill((const CUpti_ActivityMemset4 *)record);
        break;
    default:
        break;
    }
}

static void CUPTIAPI take_buffer(uint8_t **ret_buffer, size_t *ret_bytes, size_t *ret_records_max)
{
    *ret_buffer = aligned_alloc(8, BUFFER_BYTES);
    *ret_bytes = *ret_buffer ? BUFFER_BYTES : 0;
    *ret_records_max = 0; /* as many as there is room for */
}

static void CUPTIAPI give_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes,
                                 size_t bytes_filled)
{
    CUpti_Activity *record = NULL;
    (void)context;
    (void)stream;
    (void)bytes;
    while (cuptiActivityGetNextRecord(buffer, bytes_filled, &record) == CUPTI_SUCCESS)
        say_record(record);
    free(buffer);
}

static void finish(void)
{
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    fflush(trace.out);
}

static bool start(void)
{
    const char *to = getenv("GPU_TRACE");
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", to ? to : "trace", (int)getpid());
    trace.out = fopen(path, "w");
    return trace.out != NULL &&
           cuptiActivityRegisterCallbacks(take_buffer, give_buffer) == CUPTI_SUCCESS &&
           cuptiGetTimestamp(&trace.begun_ns) == CUPTI_SUCCESS &&
           cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS &&
           cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY) == CUPTI_SUCCESS &&
           cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET) == CUPTI_SUCCESS;
}

/* The driver calls this when the program first uses CUDA. Without CUPTI the program runs all the
 * same, and its trace is empty. */
__attribute__((visibility("default"))) int InitializeInjection(void)
{
    if (start())
        atexit(finish);
    else
        fprintf(stderr, "trace: CUPTI cannot be used here\n");
    return 1;
}
