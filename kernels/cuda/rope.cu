/* Two runs are equal: one thread a pair. */
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/math.cuh"

/* A block a row of queries and keys; `way` 1 turns them forwards, -1 back. */
template <typename Element>
static __global__ void turn(Element *qkv, struct kernels_rope rope, float way, int64_t T,
                            int64_t wide, int heads, int half)
{
    Element *row = qkv + blockIdx.x * wide;
    float position = (float)(blockIdx.x % T);
    for (int pair = (int)threadIdx.x; pair < heads * half; pair += THREADS) {
        int head = pair / half, i = pair % half;
        Element *left = row + head * 2 * half + i, *right = left + half;
        float circles = circles_of(position, rope.high[i], rope.low[i]);
        float cosine = cos_circles(circles), sine = way * sin_circles(circles);
        float a = value(*left), b = value(*right);
        *left = rounded<Element>(fmaf(-b, sine, a * cosine));
        *right = rounded<Element>(fmaf(a, sine, b * cosine));
    }
}

static void turn_rows(SELF, element *qkv, const struct kernels_rope *rope, float way, int64_t B,
                      int64_t T, int64_t C, int64_t H, int64_t G)
{
    int64_t half = C / H / 2;
    check(half * 2 * H == C);
    check(half <= KERNELS_ROPE_PAIRS_MAX);
    LAUNCH_ELEMENTS(k, B * T, THREADS, 0, turn, qkv, *rope, way, T, (H + 2 * G) * 2 * half, H + G,
                    half);
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
