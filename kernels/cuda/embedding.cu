/* Two runs are equal: every element of dwte and dwpe has one thread, which adds its rows in (b,t)
 * order; that is the CPU's order too.
 *
 * The rows of a token are found by a counting sort that keeps their order. Rows are cut into chunks, a
 * block counts each token in its chunk (rank_rows); then a thread a token makes the counts of chunks
 * into places of its own rows (place_chunks), one block makes all tokens' counts into where each
 * token's rows begin (place_tokens), and each row goes to its place (sort_rows). Tokens that the table
 * does not have are left out. Nothing is counted atomically. */
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

enum {
    CHUNK_ROWS = 1024, /* at least; a multiple of THREADS */
    SCAN_THREADS = 1024,
    ADD_THREADS = 128,
};

/* In the workspace; `table`: the rows of the table. */
struct sorting {
    int N, table, first;    /* rows of tokens, tokens, the first of them */
    int chunks, chunk_rows; /* of each but the last, which may have fewer */
    int *counts;            /* (chunks,table): of a token in a chunk, then in those before it */
    int *starts;            /* (table + 1): of a token, then of those before it */
    int *ranks;             /* (N): how many rows of its chunk before it have the row's token */
    int *sorted;            /* (N): rows by token, then as they come */
};

/* The table's row of a token; -1: it has none. */
static __device__ inline int table_row(const struct sorting &sorting, int token)
{
    int row = token - sorting.first;
    return row >= 0 && row < sorting.table ? row : -1;
}

/* A block a chunk, THREADS rows at a time. */
static __global__ void rank_rows(struct sorting sorting, const int32_t *tokens, int V)
{
    __shared__ int own[THREADS];
    const int begin = (int)blockIdx.x * sorting.chunk_rows, thread = threadIdx.x;
    int *counts = sorting.counts + (int64_t)blockIdx.x * sorting.table;
    for (int base = begin; base < begin + sorting.chunk_rows; base += THREADS) {
        int row = base + thread, token = -1, rank = 0, later = 0, before = 0;
        if (row < sorting.N) {
            device_check(tokens[row] >= 0 && tokens[row] < V);
            token = table_row(sorting, tokens[row]);
        }
        own[thread] = token;
        __syncthreads();
        for (int i = 0; i < THREADS; i++) {
            rank += own[i] == token && i < thread;
            later += own[i] == token && i > thread;
        }
        if (token >= 0)
            before = counts[token];
        __syncthreads(); /* all have read the counts, and own[] */
        if (token >= 0) {
            sorting.ranks[row] = before + rank;
            if (later == 0)
                counts[token] = before + rank + 1;
        }
    }
}

/* A thread a token. */
static __global__ void place_chunks(struct sorting sorting)
{
    int token = (int)element_index(), sum = 0;
    if (token >= sorting.table)
        return;
    for (int chunk = 0; chunk < sorting.chunks; chunk++) {
        int *count = sorting.counts + (int64_t)chunk * sorting.table + token, own = *count;
        *count = sum;
        sum += own;
    }
    sorting.starts[token] = sum;
}

/* One block, whose threads have as many tokens each. */
static __global__ void place_tokens(struct sorting sorting)
{
    __shared__ int sums[2][SCAN_THREADS];
    const int thread = threadIdx.x, each = (sorting.table + SCAN_THREADS - 1) / SCAN_THREADS;
    const int first = thread * each;
    const int end = first + each < sorting.table ? first + each : sorting.table;
    int sum = 0, now = 0;
    for (int token = first; token < end; token++)
        sum += sorting.starts[token];
    sums[0][thread] = sum;
    for (int away = 1; away < SCAN_THREADS; away *= 2, now = 1 - now) {
        __syncthreads();
        sums[1 - now][thread] = sums[now][thread] + (thread < away ? 0 : sums[now][thread - away]);
    }
    __syncthreads();
    int before = thread == 0 ? 0 : sums[now][thread - 1];
    for (int token = first; token < end; token++) {
        int own = sorting.starts[token];
        sorting.starts[token] = before;
        before += own;
    }
    if (thread == SCAN_THREADS - 1)
        sorting.starts[sorting.table] = sums[now][thread];
}

static __global__ void sort_rows(struct sorting sorting, const int32_t *tokens)
{
    int row = (int)element_index(), token = row < sorting.N ? table_row(sorting, tokens[row]) : -1;
    if (token < 0)
        return;
    int chunk = row / sorting.chunk_rows;
    int before = sorting.counts[(int64_t)chunk * sorting.table + token];
    sorting.sorted[sorting.starts[token] + before + sorting.ranks[row]] = row;
}

/* A block a place in the order, of which those with a token's first row add all of that token's. */
template <typename Element, int COUNT>
static __global__ void backward_tokens(float *dwte, const int32_t *tokens, const Element *dout,
                                       struct sorting sorting, int C)
{
    __shared__ int rows[ADD_THREADS];
    const int place = (int)blockIdx.x, thread = threadIdx.x;
    if (place >= sorting.starts[sorting.table])
        return;
    const int token = table_row(sorting, tokens[sorting.sorted[place]]);
    const int end = sorting.starts[token + 1];
    if (place != sorting.starts[token])
        return;
    dwte += (int64_t)token * C;
    for (int base = place; base < end; base += ADD_THREADS) {
        const int count = end - base < ADD_THREADS ? end - base : ADD_THREADS;
        __syncthreads(); /* the rows before have been added */
        if (thread < count)
            rows[thread] = sorting.sorted[base + thread];
        __syncthreads();
        for (int c = thread * COUNT; c < C; c += ADD_THREADS * COUNT) {
            pack<float, COUNT> sum = load<COUNT>(dwte + c);
#pragma unroll 8
            for (int i = 0; i < count; i++) {
                pack<float, COUNT> d = values(load<COUNT>(dout + (int64_t)rows[i] * C + c));
                for (int j = 0; j < COUNT; j++)
                    sum.at[j] += d.at[j];
            }
            store(dwte + c, sum);
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

/* False: the workspace has no room for so many, and synchronize() says so. */
static bool sort_tokens(SELF, struct sorting *ret_sorting, const int32_t *tokens, int64_t N,
                        int64_t first, int64_t rows, int64_t V)
{
    int64_t room = WORKSPACE_BYTES / (int64_t)sizeof(int) - 2 * N - rows - 1;
    int64_t wanted = ceil_div(N, CHUNK_ROWS);
    if (room < rows) {
        cuda_fail(k, "embedding: %lld tokens of %lld at a time are too many", (long long)N,
                  (long long)rows);
        return false;
    }
    int64_t chunks = wanted * rows <= room ? wanted : room / rows;
    int64_t chunk_rows = ceil_div(ceil_div(N, chunks), CHUNK_ROWS) * CHUNK_ROWS;
    check(V <= INT32_MAX);
    struct sorting sorting;
    sorting.N = (int)N;
    sorting.table = (int)rows;
    sorting.first = (int)first;
    sorting.chunk_rows = (int)chunk_rows;
    sorting.chunks = (int)ceil_div(N, chunk_rows);
    sorting.counts = (int *)k->state->workspace;
    sorting.starts = sorting.counts + sorting.chunks * rows;
    sorting.ranks = sorting.starts + rows + 1;
    sorting.sorted = sorting.ranks + N;
    if (!cuda_ok(k,
                 cudaMemsetAsync(sorting.counts, 0,
                                 (size_t)(sorting.chunks * rows) * sizeof *sorting.counts,
                                 k->state->stream),
                 "counting tokens"))
        return false;
    launch(k, sorting.chunks, THREADS, 0, rank_rows, sorting, tokens, (int)V);
    launch_each(k, rows, place_chunks, sorting);
    launch(k, 1, SCAN_THREADS, 0, place_tokens, sorting);
    launch_each(k, N, sort_rows, sorting, tokens);
    *ret_sorting = sorting;
    return true;
}

void cuda_embedding_backward(SELF, float *dwte, float *dwpe, const int32_t *tokens,
                             const element *dout, int64_t B, int64_t T, int64_t C, int64_t first,
                             int64_t rows, int64_t V)
{
    struct sorting sorting;
    if (B * T > 0 && rows > 0 && sort_tokens(k, &sorting, tokens, B * T, first, rows, V))
        LAUNCH_PACKS(k, packs_fit(k, C, dwte, dout), B * T, ADD_THREADS, 0, backward_tokens, dwte,
                     tokens, dout, sorting, C);
    if (dwpe != NULL)
        LAUNCH_ELEMENTS(k, ceil_div(T * C, THREADS), THREADS, 0, backward_positions, dwpe, dout, B,
                        T * C);
}
