/* What bench.c measures and bench_operations.c calls. */
#ifndef ROOST_TESTS_GPU_BENCH_H
#define ROOST_TESTS_GPU_BENCH_H

#include "kernels/kernels.h"

/* What all operations share on the device. Inputs are elements or floats of about [-0.5, 0.5);
 * operations write elsewhere, so that they stay. */
struct bench {
    const struct kernels *k;
    int rounds;
    int64_t B, T, C, H, V, Vp, N;
    element *logits;      /* (N,Vp) */
    element *wide[2];     /* (N,4C): read */
    element *wide_out;    /* (N,4C) */
    element *narrow[2];   /* (N,C): read */
    element *narrow_out;  /* (N,C) */
    element *weights[2];  /* (Vp,C): read */
    float *gradients[2];  /* (Vp,C): added to */
    float *values[4];     /* (Vp,C): an optimizer's */
    float *rows[2], *lse; /* (N), (B,H,T) */
    int32_t *tokens;      /* (N) */
    int32_t *correct;     /* (N) */
    void *scratch, *host; /* host: (Vp,C) floats */
    struct kernels_rope rope;
    double bytes_limit, copy_limit, flops_limit; /* a second */
};

/* What one call of an operation comes to. */
struct work {
    double bytes, flops;
    bool crosses; /* between host and device */
};

struct operation {
    const char *name;
    struct work (*call)(const struct bench *b);
};

/* The last one has no name. What reads an array that another one fills comes after it. */
extern const struct operation operations[];

static inline struct work work(const struct bench *b, int64_t elements, int64_t floats,
                               double flops)
{
    double bytes = (double)(elements * (int64_t)b->k->element_bytes + floats * 4);
    return (struct work){bytes, flops, false};
}

static inline struct work crossing(int64_t bytes)
{
    return (struct work){.bytes = (double)bytes, .crosses = true};
}

static inline int64_t wide(const struct bench *b)
{
    return b->N * 4 * b->C;
}

static inline int64_t narrow(const struct bench *b)
{
    return b->N * b->C;
}

static inline int64_t table(const struct bench *b)
{
    return b->Vp * b->C;
}

#endif
