/* Two runs are equal: cuBLASLt's algorithms are fixed a shape and split no sum (gemm.cuh), and the
 * bias' gradient is summed by columns.cuh. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/gemm.cuh"

static struct gemm_matrix as_is(const float *data)
{
    return gemm_matrix{data, false};
}

static struct gemm_matrix transposed(const float *data)
{
    return gemm_matrix{data, true};
}

void cuda_linear_forward(SELF, float *out, const float *inp, const float *weight, const float *bias,
                         int64_t N, int64_t I, int64_t O)
{
    gemm_multiply(k, out, as_is(inp), transposed(weight), bias, 0, N, O, I);
}

void cuda_linear_backward_input(SELF, float *dinp, const float *dout, const float *weight,
                                int64_t N, int64_t I, int64_t O)
{
    gemm_multiply(k, dinp, as_is(dout), as_is(weight), NULL, 0, N, I, O);
}

/* The first stage of dbias (O) += the rows of dout (N,O). */
static __global__ void add_rows(float *sums, const float *dout, struct row_parts parts, int64_t N,
                                int64_t O)
{
    struct column_walk walk = column_walk(parts, N, O);
    float sum = 0;
    if (walk.column < O)
        for (int64_t row = walk.row; row < walk.end; row += ROW_LANES)
            sum += dout[row * O + walk.column];
    store_part(sums, walk, sum, O);
}

void cuda_linear_backward_weight(SELF, float *dweight, float *dbias, const float *dout,
                                 const float *inp, int64_t N, int64_t I, int64_t O)
{
    gemm_multiply(k, dweight, transposed(dout), as_is(inp), NULL, 1, O, I, N);
    if (!dbias || N == 0)
        return;
    struct row_parts parts = row_parts(N, O);
    float *sums = part_sums(k, parts, O, 0);
    launch(k, part_blocks(parts, O), THREADS, 0, add_rows, sums, dout, parts, N, O);
    launch_each(k, O, add_parts, dbias, sums, parts.count, O);
}
