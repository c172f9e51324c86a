/* Our own exponential, hyperbolic tangent and logarithm against double, over their domains. */
#include "tests/unit/unit.h"

#include "kernels/cpu/vector_math.h"

#include <math.h>

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* |x - exact| in units of the float spacing at `exact`. */
static double ulps(float x, double exact)
{
    float nearest = (float)exact, size = fabsf(nearest);
    double spacing = (double)nextafterf(size, INFINITY) - (double)size;
    return fabs((double)x - exact) / spacing;
}

TEST(nan_is_the_worst_error)
{
    assert_true(worst_of(1, 2) == 2 && worst_of(2, 1) == 2);
    assert_true(isnan(worst_of(1, NAN)) && isnan(worst_of(NAN, 1)));
}

/* The largest error over every stride-th float from `first` to `last` (both of one sign). The
 * stride is odd, so that all low bits occur. */
static double worst(vec (*ours)(vec), double (*exact)(double), float first, float last)
{
    uint32_t from, to;
    memcpy(&from, &first, sizeof from);
    memcpy(&to, &last, sizeof to);
    const uint32_t stride = 997;
    double ret = 0;
    for (uint32_t bits = from; bits <= to; bits += LANES * stride) {
        float x[LANES], y[LANES];
        for (uint32_t i = 0; i < LANES; i++)
            x[i] = float_of(bits + i * stride <= to ? bits + i * stride : to);
        vec_store(y, ours(vec_load(x, LANES)), LANES);
        for (int i = 0; i < LANES; i++)
            ret = worst_of(ret, ulps(y[i], exact(x[i])));
    }
    return ret;
}

static void assert_within(const char *what, double error, double limit)
{
    printf("# %s: %.3f ulp\n", what, error);
    if (!(error <= limit))
        fail_msg("%s: %.3f ulp, more than %.2f", what, error, limit);
}

TEST(exp_is_within_one_ulp)
{
    assert_within("exp above 0", worst(vec_exp, exp, 1e-9f, 88), 1.0);
    assert_within("exp below 0", worst(vec_exp, exp, -1e-9f, -87.3f), 1.0);
}

TEST(tanh_is_within_one_and_a_half_ulp)
{
    assert_within("tanh above 0", worst(vec_tanh, tanh, 1e-30f, 90), 1.5);
    assert_within("tanh below 0", worst(vec_tanh, tanh, -1e-30f, -90), 1.5);
}

TEST(log_is_within_one_ulp_from_one_on)
{
    assert_within("log", worst(vec_log, log, 1.0000001f, 3e38f), 1.0);
}

/* At positions and turns of a long context, against the same angle in double. */
TEST(sin_and_cos_of_circles_are_within_their_bound)
{
    double worst_sin = 0, worst_cos = 0;
    for (int position = 0; position < 200000; position += 37)
        for (int i = 0; i < 7; i++) {
            double circles = pow(1e4, -i / 7.0) / (2 * M_PI);
            float high = (float)circles, low = (float)(circles - (double)high);
            vec u = vec_circles(vec_set((float)position), vec_set(high), vec_set(low));
            double angle = 2 * M_PI * fmod((double)position * circles, 1);
            double sin_error = fabs((double)vec_first(vec_sin_circles(u)) - sin(angle));
            double cos_error = fabs((double)vec_first(vec_cos_circles(u)) - cos(angle));
            worst_sin = worst_of(worst_sin, sin_error);
            worst_cos = worst_of(worst_cos, cos_error);
        }
    printf("# sin %.1e, cos %.1e away\n", worst_sin, worst_cos);
    assert_true(worst_sin < 4e-7 && worst_cos < 4e-7);
}

static float at(vec (*ours)(vec), float x)
{
    return vec_first(ours(vec_set(x)));
}

TEST(the_ends_of_the_domains)
{
    assert_true(at(vec_exp, 0) == 1);
    assert_true(at(vec_exp, -INFINITY) == 0);
    assert_true(at(vec_exp, -1e30f) == 0);
    assert_true(at(vec_exp, 1e30f) == at(vec_exp, 88) && isfinite(at(vec_exp, 88)));
    assert_true(at(vec_tanh, INFINITY) == 1 && at(vec_tanh, -INFINITY) == -1);
    assert_true(at(vec_tanh, -0.0f) == 0);
    assert_true(at(vec_log, 1) == 0);
    assert_true(at(vec_sin_circles, 0) == 0 && at(vec_cos_circles, 0) == 1);
    assert_true(at(vec_sin_circles, 0.25f) == 1 && at(vec_cos_circles, 0.25f) == 0);
    assert_true(at(vec_sin_circles, -0.5f) == 0 && at(vec_cos_circles, -0.5f) == -1);
}

TEST(nan_stays_nan)
{
    assert_true(isnan(at(vec_exp, NAN)));
    assert_true(isnan(at(vec_tanh, NAN)));
    assert_true(isnan(at(vec_log, NAN)));
}
