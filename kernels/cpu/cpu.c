/* Picks a variant, adds memory operations and OpenBLAS: the CPU's table. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"

#include <string.h>
#include <strings.h>

static void *host_alloc(SELF, size_t bytes)
{
    return aligned_alloc(64, bytes ? (bytes + 63) / 64 * 64 : 64);
}

static void host_free(SELF, void *memory)
{
    free(memory);
}

static void host_memory(SELF, struct kernels_memory *ret_memory)
{
    *ret_memory = (struct kernels_memory){0};
}

static void host_copy(SELF, void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

static void host_zero(SELF, void *memory, size_t bytes)
{
    memset(memory, 0, bytes);
}

static const char *host_synchronize(SELF)
{
    return NULL;
}

/* An operation is done when it returns. */
static void host_mark(SELF, uint32_t number)
{
    (void)number;
}

static void host_after(SELF, const struct kernels *other, uint32_t number)
{
    (void)other;
    (void)number;
}

static void cpu_close(const struct kernels *k)
{
    free(k->state);
    free((void *)k);
}

/* Widest first: "auto" takes the first that runs here. */
static const struct variant {
    enum kernels_isa isa;
    const char *name;
    const struct kernels *table;
    bool (*runs_here)(void);
} variants[] = {
    {KERNELS_ISA_AVX512, "AVX-512", &table_avx512, isa_avx512},
    {KERNELS_ISA_AVX2, "AVX2", &table_avx2, isa_avx2},
    {KERNELS_ISA_SCALAR, "scalar", &table_scalar, isa_sse2},
};

static const struct variant *find_variant(enum kernels_isa isa)
{
    const struct variant *variant = variants;
    while (isa == KERNELS_ISA_AUTO ? !variant->runs_here() : variant->isa != isa)
        variant++;
    return variant;
}

bool cpu_new(const struct kernels_options *options, const struct kernels **ret_kernels,
             char *reason, size_t reason_bytes)
{
    const struct variant *variant = find_variant(options->isa);
    if (!variant->runs_here()) {
        snprintf(reason, reason_bytes, "this CPU has no %s", variant->name);
        return false;
    }
    struct kernels_state *state = calloc(1, sizeof *state);
    struct kernels *k = calloc(1, sizeof *k);
    const char *core = options->gemm_core;
    if (core && strcasecmp(core, "auto") == 0)
        core = gemm_core_auto();
    int threads = options->gemm_threads ? options->gemm_threads : 1;
    bool ready = state && k;
    if (!ready)
        snprintf(reason, reason_bytes, "out of memory");
    else if (core)
        ready = gemm_init(&state->gemm, core, threads, reason, reason_bytes);
    if (!ready) {
        free(state);
        free(k);
        return false;
    }
    snprintf(state->name, sizeof state->name, "CPU, %s", variant->name);
    *k = *variant->table;
    k->name = state->name;
    k->numerics = state->gemm.numerics;
    k->element_bytes = sizeof(float);
    k->state = state;
    k->alloc = host_alloc;
    k->free = host_free;
    k->memory = host_memory;
    k->copy_in = k->copy_out = k->copy = host_copy;
    k->zero = host_zero;
    k->synchronize = host_synchronize;
    k->mark = host_mark;
    k->after = host_after;
    k->in = k->out = k;
    k->close = cpu_close;
    *ret_kernels = k;
    return true;
}
