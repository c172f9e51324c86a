/* bf16 as 16 bits: the upper half of a float. */
#ifndef ROOST_KERNELS_CUDA_BF16_CUH
#define ROOST_KERNELS_CUDA_BF16_CUH

#include "kernels/cuda/cuda.cuh"

/* To nearest, ties to even; NaN stays NaN (kernels/cpu/vector.h says how). */
static __device__ inline uint16_t to_bf16(float x)
{
    unsigned bits = __float_as_uint(x);
    bits = x == x ? bits + ((bits >> 16 & 1) + 0x7fff) : bits | 0x400000;
    return (uint16_t)(bits >> 16);
}

static __device__ inline float from_bf16(uint16_t bits)
{
    return __uint_as_float((unsigned)bits << 16);
}

#endif
