/* Two runs are equal: a pair has one thread. */
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/math.cuh"

/* A block a row of queries and keys, a thread COUNT pairs that lie together at a time; `way` 1
 * turns them forwards, -1 back. */
template <typename Element, int COUNT>
static __global__ void turn(Element *qkv, struct kernels_rope rope, float way, int64_t T,
                            int64_t wide, int heads, int half)
{
    Element *row = qkv + blockIdx.x * wide;
    float position = (float)(blockIdx.x % T);
    const int step = (int)blockDim.x * COUNT;
    for (int pair = (int)threadIdx.x * COUNT; pair < heads * half; pair += step) {
        int head = pair / half, first = pair % half;
        Element *left = row + head * 2 * half + first, *right = left + half;
        pack<float, COUNT> as = values(load<COUNT>(left)), bs = values(load<COUNT>(right));
        for (int j = 0; j < COUNT; j++) {
            int i = first + j;
            float circles = circles_of(position, rope.high[i], rope.low[i]);
            float cosine = cos_circles(circles), sine = way * sin_circles(circles);
            float a = as.at[j], b = bs.at[j];
            as.at[j] = fmaf(-b, sine, a * cosine);
            bs.at[j] = fmaf(a, sine, b * cosine);
        }
        store(left, rounded<Element>(as));
        store(right, rounded<Element>(bs));
    }
}

static void turn_rows(SELF, element *qkv, const struct kernels_rope *rope, float way, int64_t B,
                      int64_t T, int64_t C, int64_t H, int64_t G)
{
    int64_t half = C / H / 2;
    check(half * 2 * H == C);
    check(half <= KERNELS_ROPE_PAIRS_MAX);
    bool packed = packs_fit(k, half, qkv);
    int64_t warps = ceil_div((H + G) * half, (int64_t)pack_count(k, packed) * WARP);
    int threads = warps * WARP < THREADS ? (int)warps * WARP : THREADS;
    LAUNCH_PACKS(k, packed, B * T, threads, 0, turn, qkv, *rope, way, T, (H + 2 * G) * 2 * half,
                 H + G, half);
}

void cuda_rope_forward(SELF, element *qkv, const struct kernels_rope *rope, int64_t B, int64_t T,
                       int64_t C, int64_t H, int64_t G)
{
    turn_rows(k, qkv, rope, 1, B, T, C, H, G);
}

void cuda_rope_backward(SELF, element *dqkv, const struct kernels_rope *rope, int64_t B, int64_t T,
                        int64_t C, int64_t H, int64_t G)
{
    turn_rows(k, dqkv, rope, -1, B, T, C, H, G);
}
