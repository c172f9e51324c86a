#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector_math.h"

/* Sixteen pairs of every head at position t; `way` 1 turns them forwards, -1 back. */
static void turn(float *row, const struct kernels_rope *rope, float way, int64_t t, int64_t i,
                 int64_t heads, int64_t half)
{
    vec high = vec_load(rope->high + i, half - i), low = vec_load(rope->low + i, half - i);
    vec circles = vec_circles(vec_set((float)t), high, low);
    vec cosine = vec_cos_circles(circles), sine = vec_mul(vec_set(way), vec_sin_circles(circles));
    for (int64_t head = 0; head < heads; head++) {
        float *left = row + head * 2 * half + i, *right = left + half;
        vec a = vec_load(left, half - i), b = vec_load(right, half - i);
        vec_store(left, vec_fnma(b, sine, vec_mul(a, cosine)), half - i);
        vec_store(right, vec_fma(a, sine, vec_mul(b, cosine)), half - i);
    }
}

static void turn_rows(float *qkv, const struct kernels_rope *rope, float way, int64_t B, int64_t T,
                      int64_t C, int64_t H, int64_t G)
{
    int64_t half = C / H / 2;
    check(half * 2 * H == C);
    check(half <= KERNELS_ROPE_PAIRS_MAX);
    for (int64_t row = 0; row < B * T; row++, qkv += (H + 2 * G) * 2 * half)
        for (int64_t i = 0; i < half; i += LANES)
            turn(qkv, rope, way, row % T, i, H + G, half);
}

void VARIANT(rope_forward)(SELF, float *qkv, const struct kernels_rope *rope, int64_t B, int64_t T,
                           int64_t C, int64_t H, int64_t G)
{
    turn_rows(qkv, rope, 1, B, T, C, H, G);
}

/* A rotation's transpose is the rotation back. */
void VARIANT(rope_backward)(SELF, float *dqkv, const struct kernels_rope *rope, int64_t B,
                            int64_t T, int64_t C, int64_t H, int64_t G)
{
    turn_rows(dqkv, rope, -1, B, T, C, H, G);
}
