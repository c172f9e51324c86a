#include "kernels/cpu/gemm.h"
#include "kernels/cpu/isa.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LIBRARY "libopenblas.so.0"

/* Core types that may be asked for, best first, with what the CPU must have: OpenBLAS itself does
 * not look and would die of an illegal instruction. "auto" is the first automatic one that runs.
 *
 * Measured on an EPYC 9005 core at GPT-2 124M's shapes (B 4, T 64; GFLOP/s): SkylakeX 234-258,
 * Cooperlake 223-259, Zen 131-139, Haswell 125-134. Zen and Haswell give equal bits, so Haswell
 * stands for both. */
static const struct {
    const char *name;
    bool (*runs_here)(void);
    bool automatic;
} cores[] = {
    {"SkylakeX", isa_avx512, true}, {"Cooperlake", isa_avx512_bf16, false},
    {"Haswell", isa_avx2, true},    {"Zen", isa_avx2, false},
    {"Sandybridge", isa_avx, true}, {"Nehalem", isa_sse42, true},
    {"Prescott", isa_sse2, true},
};
#define CORES (sizeof cores / sizeof *cores)

const char *gemm_core_auto(void)
{
    size_t i = 0;
    while (!cores[i].automatic || !cores[i].runs_here())
        i++;
    return cores[i].name;
}

#define FAIL(...) (snprintf(reason, reason_bytes, __VA_ARGS__), false)

static bool core_runs_here(const char *core, char *reason, size_t reason_bytes)
{
    for (size_t i = 0; i < CORES; i++) {
        if (strcasecmp(cores[i].name, core) == 0)
            return cores[i].runs_here() ||
                   FAIL("OpenBLAS core type %s needs instructions that this CPU lacks", core);
    }
    return FAIL("unknown OpenBLAS core type %s", core);
}

struct library {
    void *handle;
    bool first; /* nobody had loaded it before us */
    const char *(*config)(void);
    const char *(*core_name)(void);
    int (*threads)(void);
    void (*set_threads)(int threads);
};

static bool library_symbol(const struct library *library, void *ret_function, const char *name,
                           char *reason, size_t reason_bytes)
{
    void *symbol = dlsym(library->handle, name);
    memcpy(ret_function, &symbol, sizeof symbol);
    return symbol || FAIL("%s has no %s", LIBRARY, name);
}

static bool library_load(struct library *library, struct gemm *gemm, const char *core, int threads,
                         char *reason, size_t reason_bytes)
{
    library->handle = dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    library->first = !library->handle;
    if (library->first) {
        char count[16];
        snprintf(count, sizeof count, "%d", threads);
        setenv("OPENBLAS_CORETYPE", core, 1);
        setenv("OPENBLAS_NUM_THREADS", count, 1);
        library->handle = dlopen(LIBRARY, RTLD_NOW);
    }
    if (!library->handle)
        return FAIL("%s", dlerror()); /* it names the file */
#define SYMBOL(function, name) library_symbol(library, function, name, reason, reason_bytes)
    return SYMBOL(&gemm->sgemm, "cblas_sgemm") && SYMBOL(&library->config, "openblas_get_config") &&
           SYMBOL(&library->core_name, "openblas_get_corename") &&
           SYMBOL(&library->threads, "openblas_get_num_threads") &&
           SYMBOL(&library->set_threads, "openblas_set_num_threads");
#undef SYMBOL
}

bool gemm_init(struct gemm *gemm, const char *core, int threads, char *reason, size_t reason_bytes)
{
    struct library library;
    if (!core_runs_here(core, reason, reason_bytes) ||
        !library_load(&library, gemm, core, threads, reason, reason_bytes))
        return false;
    if (library.first)
        library.set_threads(threads);
    if (strcasecmp(library.core_name(), core) != 0)
        return FAIL("OpenBLAS runs with core type %s, not %s", library.core_name(), core);
    if (library.threads() != threads)
        return FAIL("OpenBLAS runs with %d threads, not %d", library.threads(), threads);
    /* the configuration starts with "OpenBLAS 0.3.21 " */
    const char *config = library.config(), *version = strchr(config, ' ');
    size_t length = version ? strcspn(version + 1, " ") : 0;
    snprintf(gemm->numerics, sizeof gemm->numerics, "OpenBLAS %.*s core=%s threads=%d", (int)length,
             version ? version + 1 : "", library.core_name(), threads);
    return true;
}

static int blas_int(int64_t value)
{
    check(value >= 0 && value <= INT_MAX);
    return (int)value;
}

void gemm_multiply(const struct gemm *gemm, float *c, int64_t c_stride, float alpha,
                   struct gemm_matrix a, struct gemm_matrix b, float beta, int64_t M, int64_t N,
                   int64_t K)
{
    const int row_major = 101;
    check(gemm->sgemm); /* the table was opened with a gemm_core */
    if (M == 0 || N == 0)
        return;
    gemm->sgemm(row_major, (int)a.transpose, (int)b.transpose, blas_int(M), blas_int(N),
                blas_int(K), alpha, a.data, blas_int(a.stride), b.data, blas_int(b.stride), beta, c,
                blas_int(c_stride));
}
