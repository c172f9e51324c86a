/* Two runs are equal: every element of dwte and dwpe has one thread, which adds its rows in (b,t)
 * order; that is the CPU's order too.
 *
 * The rows of a token are found, not sorted: the block of a token's first row walks the token list
 * from there and adds the rows that have the same one; all other blocks meet an earlier row with
 * their token and end. A token that is frequent is met soon, so this costs little beside reading
 * dout once, and no memory. */
#include "kernels/cuda/elements.cuh"

template <typename Element, int COUNT>
static __global__ void forward(Element *out, const int32_t *tokens, const Element *wte,
                               const Element *wpe, int64_t n, int64_t T, int64_t C, int64_t first,
                               int64_t rows, int64_t V)
{
    int64_t i = element_index() * COUNT;
    if (i >= n)
        return;
    int64_t row = i / C, c = i % C, token = tokens[row];
    device_check(token >= 0 && token < V);
    bool here = token >= first && token < first + rows;
    pack<float, COUNT> sum = {};
    if (here)
        sum = values(load<COUNT>(wte + (token - first) * C + c));
    if (here && wpe != NULL) {
        pack<float, COUNT> position = values(load<COUNT>(wpe + row % T * C + c));
        for (int j = 0; j < COUNT; j++)
            sum.at[j] += position.at[j];
    }
    store(out + i, rounded<Element>(sum));
}

void cuda_embedding_forward(SELF, element *out, const int32_t *tokens, const element *wte,
                            const element *wpe, int64_t B, int64_t T, int64_t C, int64_t first,
                            int64_t rows, int64_t V)
{
    int64_t n = B * T * C;
    bool packed = packs_fit(k, C, out, wte, wpe);
    LAUNCH_PACKS(k, packed, ceil_div(n, (int64_t)THREADS * pack_count(k, packed)), THREADS, 0,
                 forward, out, tokens, wte, wpe, n, T, C, first, rows, V);
}

/* Whether a row before `first` has its token; the same answer in all threads of the block. */
static __device__ bool seen_before(const int32_t *tokens, int64_t first)
{
    for (int64_t base = 0; base < first; base += THREADS) {
        int64_t row = base + threadIdx.x;
        if (__syncthreads_or(row < first && tokens[row] == tokens[first]))
            return true;
    }
    return false;
}

/* found[0 …] = the threads that say `same`, in their order; returns how many. */
static __device__ int list_threads(int *found, bool same)
{
    __shared__ int counts[THREADS / WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, before = 0, all = 0;
    unsigned votes = __ballot_sync(0xffffffffu, same);
    if (lane == 0) /* all have read the counts of an earlier call before its last barrier … */
        counts[warp] = __popc(votes);
    __syncthreads(); /* … and what it found before this one */
    for (int i = 0; i < THREADS / WARP; i++) {
        before += i < warp ? counts[i] : 0;
        all += counts[i];
    }
    if (same)
        found[before + __popc(votes & ((1u << lane) - 1))] = (int)threadIdx.x;
    __syncthreads();
    return all;
}

/* A block a row. */
template <typename Element>
static __global__ void backward_tokens(float *dwte, const int32_t *tokens, const Element *dout,
                                       int64_t N, int64_t C, int64_t first, int64_t rows, int64_t V)
{
    __shared__ int found[THREADS];
    int64_t own = blockIdx.x, token = tokens[own];
    device_check(token >= 0 && token < V);
    if (token < first || token >= first + rows || seen_before(tokens, own))
        return;
    dwte += (token - first) * C;
    for (int64_t base = own; base < N; base += THREADS) {
        int64_t row = base + threadIdx.x;
        int count = list_threads(found, row < N && tokens[row] == token);
        for (int64_t c = threadIdx.x; c < C && count > 0; c += THREADS) {
            float sum = dwte[c];
            for (int i = 0; i < count; i++)
                sum += value(dout[(base + found[i]) * C + c]);
            dwte[c] = sum;
        }
    }
}

/* A thread for each element of dwpe (n = T*C). */
template <typename Element>
static __global__ void backward_positions(float *dwpe, const Element *dout, int64_t B, int64_t n)
{
    int64_t i = element_index();
    if (i >= n)
        return;
    float sum = dwpe[i];
    for (int64_t b = 0; b < B; b++)
        sum += value(dout[b * n + i]);
    dwpe[i] = sum;
}

void cuda_embedding_backward(SELF, float *dwte, float *dwpe, const int32_t *tokens,
                             const element *dout, int64_t B, int64_t T, int64_t C, int64_t first,
                             int64_t rows, int64_t V)
{
    LAUNCH_ELEMENTS(k, B * T, THREADS, 0, backward_tokens, dwte, tokens, dout, B * T, C, first,
                    rows, V);
    if (dwpe != NULL)
        LAUNCH_ELEMENTS(k, ceil_div(T * C, THREADS), THREADS, 0, backward_positions, dwpe, dout, B,
                        T * C);
}
