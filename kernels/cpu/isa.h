/* Which instructions this CPU and its operating system offer. */
#ifndef ROOST_KERNELS_CPU_ISA_H
#define ROOST_KERNELS_CPU_ISA_H

#include <stdbool.h>

static inline bool isa_sse2(void)
{
    return true; /* x86-64 */
}

static inline bool isa_sse42(void)
{
    return __builtin_cpu_supports("sse4.2");
}

static inline bool isa_avx(void)
{
    return __builtin_cpu_supports("avx");
}

static inline bool isa_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static inline bool isa_avx512(void)
{
    return isa_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

static inline bool isa_avx512_bf16(void)
{
    return isa_avx512() && __builtin_cpu_supports("avx512bf16");
}

#endif
