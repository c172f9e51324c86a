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
    SCAN_THREADS = WARP * WARP,
    SCAN_COUNT = PACK_BYTES / (int)sizeof(int), /* tokens of a thread */
    ADD_THREADS = 128,
    ADD_GROUPS = 4096, /* of tokens, at most */
    ADD_ROWS = 512,    /* of a token, whose places in dout are kept at once */
    ROWS_AHEAD = 32,   /* loaded before the first is added: a register each … */
    LAST_AHEAD = 4,    /* … and of those that are left over */
    BATCHES_AHEAD = 8,
};

/* In the workspace; `table`: the rows of the table. */
struct sorting {
    int N, table, first;    /* rows of tokens, tokens, the first of them */
    int chunks, chunk_rows; /* of each but the last, which may have fewer */
    int *starts;            /* (table + 1): of a token, then of those before it */
    int *counts;            /* (chunks,table): of a token in a chunk, then in those before it */
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

/* Sums over the lanes or threads before this one, and over all. */
struct scan {
    int before, all;
};

static __device__ struct scan scan_warp(int x)
{
    struct scan scan = {0, x};
    for (int away = 1; away < WARP; away *= 2) {
        int other = __shfl_xor_sync(0xffffffffu, scan.all, away);
        scan.before += threadIdx.x & away ? other : 0;
        scan.all += other;
    }
    return scan;
}

/* Over SCAN_THREADS. */
static __device__ struct scan scan_block(int x)
{
    __shared__ int sums[WARP];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    struct scan scan = scan_warp(x);
    __syncthreads(); /* the sums of an earlier call have been read */
    if (lane == 0)
        sums[warp] = scan.all;
    __syncthreads();
    scan.before += warp_sum(lane < warp ? sums[lane] : 0);
    scan.all = warp_sum(sums[lane]);
    return scan;
}

/* One block, whose threads have SCAN_COUNT tokens each at a time. */
static __global__ void place_tokens(struct sorting sorting)
{
    const int tile = SCAN_THREADS * SCAN_COUNT;
    int token = (int)threadIdx.x * SCAN_COUNT, before = 0;
    pack<int, SCAN_COUNT> next = load_at<SCAN_COUNT>(sorting.starts, token, sorting.table);
    for (int base = 0; base < sorting.table; base += tile, token += tile) {
        pack<int, SCAN_COUNT> starts = next;
        next = load_at<SCAN_COUNT>(sorting.starts, token + tile, sorting.table);
        int sum = 0;
        for (int j = 0; j < SCAN_COUNT; j++) {
            int own = starts.at[j];
            starts.at[j] = sum;
            sum += own;
        }
        struct scan scan = scan_block(sum);
        for (int j = 0; j < SCAN_COUNT; j++)
            starts.at[j] += before + scan.before;
        store_at(sorting.starts, token, sorting.table, starts);
        before += scan.all;
    }
    if (threadIdx.x == 0)
        sorting.starts[sorting.table] = before;
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

/* sum += the first `count` of what has been loaded, in its order. */
template <int AHEAD, int COUNT, typename Element>
static __device__ inline void add_ahead(pack<float, COUNT> &sum,
                                        const pack<Element, COUNT> (&ahead)[AHEAD], int count)
{
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        pack<float, COUNT> d = values(ahead[i]);
        for (int j = 0; j < COUNT; j++)
            sum.at[j] = i < count ? sum.at[j] + d.at[j] : sum.at[j];
    }
}

/* sum += the first `count` rows of `dout`, AHEAD at most; how many bytes after it each begins. */
template <int AHEAD, int COUNT, typename Element>
static __device__ inline void add_rows(pack<float, COUNT> &sum, const Element *dout,
                                       const int64_t *bytes, int count)
{
    pack<Element, COUNT> ahead[AHEAD] = {};
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        if (i < count)
            ahead[i] = load<COUNT>((const Element *)((const char *)dout + bytes[i]));
    add_ahead(sum, ahead, count);
}

/* Columns c … of dwte += those of a token's rows: `count` that begin at `sorted`. */
template <typename Element, int COUNT>
static __device__ void add_token(float *dwte, const Element *dout, const int *sorted, int count,
                                 int c, int C)
{
    __shared__ int64_t bytes[ADD_ROWS]; /* before a row */
    const bool has_columns = c < C;
    const int64_t row_bytes = (int64_t)sizeof(Element) * C;
    const int thread = threadIdx.x;
    pack<float, COUNT> sum = {};
    if (has_columns)
        sum = load<COUNT>(dwte + c);
    for (; count > 0; count -= ADD_ROWS, sorted += ADD_ROWS) {
        const int some = count < ADD_ROWS ? count : ADD_ROWS;
        __syncthreads(); /* the rows before have been added */
#pragma unroll
        for (int base = 0; base < ADD_ROWS; base += ADD_THREADS)
            if (base + thread < some)
                bytes[base + thread] = sorted[base + thread] * row_bytes;
        __syncthreads();
        int row = has_columns ? 0 : some;
        for (; row + ROWS_AHEAD <= some; row += ROWS_AHEAD)
            add_rows<ROWS_AHEAD>(sum, dout + c, bytes + row, ROWS_AHEAD);
        for (; row < some; row += LAST_AHEAD)
            add_rows<LAST_AHEAD>(sum, dout + c, bytes + row, some - row);
    }
    if (has_columns)
        store(dwte + c, sum);
}

/* A block some columns of a group of tokens: every groups-th, so that the frequent ones, which often
 * lie together, are in different groups. `parts`: of the columns. */
template <typename Element, int COUNT>
static __global__ void __launch_bounds__(ADD_THREADS, 8)
    backward_tokens(float *dwte, const Element *dout, struct sorting sorting, int C, int parts)
{
    __shared__ int begins[ADD_THREADS], counts[ADD_THREADS];
    const int groups = gridDim.x / parts, group = blockIdx.x / parts, thread = threadIdx.x;
    const int c = ((int)blockIdx.x % parts * ADD_THREADS + thread) * COUNT;
    for (int first = group; first < sorting.table; first += groups * ADD_THREADS) {
        int own = first + thread * groups;
        bool is_token = own < sorting.table;
        __syncthreads(); /* the counts before have been read */
        begins[thread] = is_token ? sorting.starts[own] : 0;
        counts[thread] = is_token ? sorting.starts[own + 1] - begins[thread] : 0;
        __syncthreads();
        for (int i = 0; i < ADD_THREADS && first + i * groups < sorting.table; i++)
            if (counts[i] > 0)
                add_token<Element, COUNT>(dwte + (int64_t)(first + i * groups) * C, dout,
                                          sorting.sorted + begins[i], counts[i], c, C);
    }
}

/* sum += AHEAD batches, n elements apart. */
template <int AHEAD, int COUNT, typename Element>
static __device__ inline void add_batches(pack<float, COUNT> &sum, const Element *dout, int64_t n)
{
    pack<Element, COUNT> ahead[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        ahead[i] = load<COUNT>(dout + i * n);
    add_ahead(sum, ahead, AHEAD);
}

/* A thread for COUNT elements of dwpe (n = T*C). */
template <typename Element, int COUNT>
static __global__ void __launch_bounds__(THREADS, 3)
    backward_positions(float *dwpe, const Element *dout, int B, int64_t n)
{
    int64_t i = first_element<COUNT>();
    if (i >= n)
        return;
    int b = 0;
    pack<float, COUNT> sum = load<COUNT>(dwpe + i);
    for (; b + BATCHES_AHEAD <= B; b += BATCHES_AHEAD)
        add_batches<BATCHES_AHEAD>(sum, dout + b * n + i, n);
    for (; b < B; b++)
        add_batches<1>(sum, dout + b * n + i, n);
    store(dwpe + i, sum);
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
    sorting.starts = (int *)k->state->workspace; /* first: a pack is aligned */
    sorting.counts = sorting.starts + rows + 1;
    sorting.ranks = sorting.counts + sorting.chunks * rows;
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

/* dwte += dout by token; a thread has 4 bytes of a row, or one element. */
static void add_tokens(SELF, float *dwte, const element *dout, const struct sorting &sorting,
                       int64_t C)
{
    bool pairs = k->state->bf16 && packs_fit(k, C, dwte, dout);
    int64_t parts = ceil_div(C, ADD_THREADS * (pairs ? 2 : 1));
    int64_t groups = sorting.table < sorting.N ? sorting.table : sorting.N;
    if (groups > ADD_GROUPS)
        groups = ADD_GROUPS;
    if (pairs)
        launch(k, groups * parts, ADD_THREADS, 0, backward_tokens<bf16, 2>, dwte, dout, sorting, C,
               parts);
    else if (k->state->bf16)
        launch(k, groups * parts, ADD_THREADS, 0, backward_tokens<bf16, 1>, dwte, dout, sorting, C,
               parts);
    else
        launch(k, groups * parts, ADD_THREADS, 0, backward_tokens<float, 1>, dwte, dout, sorting, C,
               parts);
}

void cuda_embedding_backward(SELF, float *dwte, float *dwpe, const int32_t *tokens,
                             const element *dout, int64_t B, int64_t T, int64_t C, int64_t first,
                             int64_t rows, int64_t V)
{
    struct sorting sorting;
    if (B * T > 0 && rows > 0 && sort_tokens(k, &sorting, tokens, B * T, first, rows, V))
        add_tokens(k, dwte, dout, sorting, C);
    if (dwpe != NULL)
        LAUNCH_EACH(k, packs_fit(k, T * C, dwpe, dout), T * C, backward_positions, dwpe, dout, B,
                    T * C);
}
