/* Two runs are equal: the elements of a thread, the tree of a block and the tree over blocks follow
 * from n alone. */
#include "kernels/cuda/cuda.cuh"

static const int PARTS_MAX = 1024; /* blocks of the first stage; threads of the second */

/* parts[block] = the block's sum: every gridDim-th run of THREADS elements is its own. */
static __global__ void sum_part(double *parts, const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = element_index(); i < n; i += (int64_t)gridDim.x * THREADS)
        sum += (double)x[i] * (double)x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

static __global__ void sum_parts(double *sum, const double *parts, int count)
{
    double all = block_sum((int)threadIdx.x < count ? parts[threadIdx.x] : 0);
    if (threadIdx.x == 0)
        *sum = all;
}

/* Parts of at least 8 elements a thread; none for n = 0, whose sum is 0. */
static int parts_of(int64_t n)
{
    int64_t parts = ceil_div(n, 8 * THREADS);
    return (int)(parts < PARTS_MAX ? parts : PARTS_MAX);
}

void cuda_sum_squares(SELF, double *sum, const float *x, int64_t n)
{
    double *parts = (double *)k->state->workspace;
    launch(k, parts_of(n), THREADS, 0, sum_part, parts, x, n);
    launch(k, 1, PARTS_MAX, 0, sum_parts, parts + PARTS_MAX, parts, parts_of(n));
    cuda_copy_out(k, sum, parts + PARTS_MAX, sizeof *sum);
}
