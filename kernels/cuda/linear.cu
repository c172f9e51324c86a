/* Two runs are equal: cuBLASLt's algorithms are fixed a shape (gemm.cuh), and the bias' gradient is
 * summed as columns.cuh says. It has a pass of its own: cuBLASLt's epilogue for it (BGRADB) is one
 * as well, which took 80 us where the 201 MB that it reads take 48 (tests/bench/RESULTS.md).
 *
 * No norm adds the residual to its input: linear_add_forward() has already, in the product's pass.
 * Product and norm so move 4 (N,C) beside the product's factors (read the residual, write the sum;
 * read it, write the norm's output); a product that wrote its result alone, and a norm that added
 * it to the residual, would move 5. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/gemm.cuh"

static struct gemm_matrix as_is(const element *data)
{
    return gemm_matrix{data, false};
}

static struct gemm_matrix transposed(const element *data)
{
    return gemm_matrix{data, true};
}

/* out (N,O) = inp (N,I) weight (O,I)^T */
static struct gemm_product forward(element *out, const element *inp, const element *weight,
                                   const element *bias, int64_t N, int64_t I, int64_t O)
{
    struct gemm_product product = {};
    product.c = out;
    product.a = as_is(inp);
    product.b = transposed(weight);
    product.bias = bias;
    product.M = N;
    product.N = O;
    product.K = I;
    return product;
}

/* The bias in a pass of its own where no algorithm adds it. */
static void multiply_and_add_bias(SELF, struct gemm_product product)
{
    element *out = (element *)product.c;
    product.epilogue = GEMM_BIAS;
    if (product.bias && gemm_fuse(k, &product))
        return;
    product.epilogue = GEMM_PLAIN;
    gemm_multiply(k, &product);
    if (product.bias)
        cuda_linear_finish(k, out, NULL, out, product.bias, product.M, product.N);
}

void cuda_linear_forward(SELF, element *out, const element *inp, const element *weight,
                         const element *bias, int64_t N, int64_t I, int64_t O)
{
    multiply_and_add_bias(k, forward(out, inp, weight, bias, N, I, O));
}

void cuda_linear_add_forward(SELF, element *out, const element *residual, const element *inp,
                             const element *weight, const element *bias, int64_t N, int64_t I,
                             int64_t O)
{
    struct gemm_product product = forward(out, inp, weight, bias, N, I, O);
    product.add = residual;
    multiply_and_add_bias(k, product);
}

void cuda_linear_gelu_forward(SELF, element *out, element *pre, const element *inp,
                              const element *weight, const element *bias, int64_t N, int64_t I,
                              int64_t O)
{
    struct gemm_product product = forward(out, inp, weight, bias, N, I, O);
    product.pre = pre;
    product.epilogue = GEMM_GELU;
    if (bias && gemm_fuse(k, &product))
        return;
    cuda_linear_forward(k, pre, inp, weight, bias, N, I, O);
    cuda_gelu_forward(k, out, pre, N * O);
}

template <typename Element, int COUNT>
static __global__ void finish(Element *out, const Element *residual, const Element *sum,
                              const Element *bias, int64_t n, int64_t O)
{
    int64_t i = first_element<COUNT>();
    pack<Element, COUNT> x = load_at<COUNT>(sum, i, n), more = {}, to_all = {};
    if (residual)
        more = load_at<COUNT>(residual, i, n);
    if (bias && i < n)
        to_all = load_at<COUNT>(bias, i % O, O);
    for (int j = 0; j < COUNT; j++) {
        float y = value(x.at[j]);
        if (bias)
            y += value(to_all.at[j]);
        x.at[j] = rounded<Element>(residual ? value(more.at[j]) + y : y);
    }
    store_at(out, i, n, x);
}

void cuda_linear_finish(SELF, element *out, const element *residual, const element *sum,
                        const element *bias, int64_t N, int64_t O)
{
    bool packed = are_aligned(out, residual, sum, bias) && (!bias || packs_fit(k, O, bias));
    LAUNCH_EACH(k, packed, N * O, finish, out, residual, sum, bias, N * O, O);
}

/* dinp (N,I) = dout (N,O) weight (O,I) */
static struct gemm_product backward_input(element *dinp, const element *dout, const element *weight,
                                          int64_t N, int64_t I, int64_t O)
{
    struct gemm_product product = {};
    product.c = dinp;
    product.a = as_is(dout);
    product.b = as_is(weight);
    product.M = N;
    product.N = I;
    product.K = O;
    return product;
}

void cuda_linear_backward_input(SELF, element *dinp, const element *dout, const element *weight,
                                int64_t N, int64_t I, int64_t O)
{
    struct gemm_product product = backward_input(dinp, dout, weight, N, I, O);
    gemm_multiply(k, &product);
}

void cuda_linear_gelu_backward_input(SELF, element *dpre, const element *dout,
                                     const element *weight, const element *pre, int64_t N,
                                     int64_t I, int64_t O)
{
    struct gemm_product product = backward_input(dpre, dout, weight, N, I, O);
    product.pre = (element *)pre;
    product.epilogue = GEMM_GELU_BACKWARD;
    if (gemm_fuse(k, &product))
        return;
    cuda_linear_backward_input(k, dpre, dout, weight, N, I, O);
    cuda_gelu_backward(k, dpre, dpre, pre, N * I);
}

enum { ROWS_AHEAD = 4 }; /* loaded before the first is added */

/* sum += AHEAD of a thread's rows, ROW_LANES apart. */
template <int AHEAD, typename Element, int COUNT>
static __device__ void add_some(float (&sum)[COUNT], const Element *rows, int64_t O)
{
    pack<Element, COUNT> ahead[AHEAD];
#pragma unroll
    for (int j = 0; j < AHEAD; j++)
        ahead[j] = load<COUNT>(rows + j * ROW_LANES * O);
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
        pack<float, COUNT> d = values(ahead[j]);
        for (int i = 0; i < COUNT; i++)
            sum[i] += d.at[i];
    }
}

/* The first stage of dbias (O) += the rows of dout (N,O). */
template <typename Element, int COUNT>
static __global__ void add_rows(float *sums, const Element *dout, struct row_parts parts, int64_t N,
                                int64_t O)
{
    struct column_walk walk = column_walk<COUNT>(parts, N);
    float sum[COUNT] = {};
    int rows = walk.column < O ? (int)(walk.end - walk.row + ROW_LANES - 1) / ROW_LANES : 0;
    dout += walk.row * O + walk.column;
    for (; rows >= ROWS_AHEAD; rows -= ROWS_AHEAD, dout += ROWS_AHEAD * ROW_LANES * O)
        add_some<ROWS_AHEAD>(sum, dout, O);
#pragma unroll 1
    for (; rows > 0; rows--, dout += ROW_LANES * O)
        add_some<1>(sum, dout, O);
    store_part(sums, walk, sum, O);
}

/* dbias (O) += the rows of dout (N,O), in a pass of its own */
static void backward_bias(SELF, float *dbias, const element *dout, int64_t N, int64_t O)
{
    bool packed = packs_fit(k, O, dout);
    struct row_parts parts = row_parts(N, O, pack_count(k, packed));
    float *sums = part_sums(k, parts, O, 0);
    LAUNCH_PACKS(k, packed, part_blocks(parts), THREADS, 0, add_rows, sums, dout, parts, N, O);
    add_parts(k, dbias, sums, parts.count, O);
}

void cuda_linear_backward_weight(SELF, float *dweight, float *dbias, const element *dout,
                                 const element *inp, int64_t N, int64_t I, int64_t O)
{
    if (N == 0)
        return;
    struct gemm_product product = {};
    product.c = dweight;
    product.c_is_float = true;
    product.add = dweight;
    product.a = transposed(dout);
    product.b = as_is(inp);
    product.M = O;
    product.N = I;
    product.K = N;
    gemm_multiply(k, &product);
    if (dbias)
        backward_bias(k, dbias, dout, N, O);
}
