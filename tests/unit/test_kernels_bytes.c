/* Casts, sums of received bytes, sum of squares. */
#include "tests/unit/test_kernels.h"

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t to_bf16(const struct kernels *k, float x)
{
    uint16_t bits;
    k->cast_to_bf16(k, &bits, &x, 1);
    return bits;
}

TEST_ON_CPU(bf16_rounds_to_nearest_even)
{
    assert_int_equal(to_bf16(k, 1), 0x3f80);
    assert_int_equal(to_bf16(k, float_of(0x3f807fff)), 0x3f80); /* below the middle */
    assert_int_equal(to_bf16(k, float_of(0x3f808000)), 0x3f80); /* the middle: to even */
    assert_int_equal(to_bf16(k, float_of(0x3f818000)), 0x3f82); /* the middle: to even */
    assert_int_equal(to_bf16(k, float_of(0x3f808001)), 0x3f81); /* above the middle */
    assert_int_equal(to_bf16(k, float_of(0x3fffffff)), 0x4000); /* carries into the exponent */
    assert_int_equal(to_bf16(k, -0.0f), 0x8000);
    assert_int_equal(to_bf16(k, float_of(0x00000001)), 0); /* the smallest subnormal */
}

TEST_ON_CPU(bf16_keeps_infinities_and_nans)
{
    assert_int_equal(to_bf16(k, INFINITY), 0x7f80);
    assert_int_equal(to_bf16(k, -INFINITY), 0xff80);
    assert_int_equal(to_bf16(k, float_of(0x7f7fffff)), 0x7f80); /* the largest float */
    assert_int_equal(to_bf16(k, float_of(0x7f800001)), 0x7fc0); /* would be cut to infinity */
    assert_int_equal(to_bf16(k, float_of(0xffffffff)), 0xffff); /* would carry to zero */
}

TEST_ON_CPU(every_bf16_survives_the_way_to_fp32_and_back)
{
    static uint16_t all[1 << 16], back[1 << 16];
    static float wide[1 << 16];
    for (uint32_t i = 0; i < 1 << 16; i++)
        all[i] = (uint16_t)i;
    k->cast_from_bf16(k, wide, all, 1 << 16);
    k->cast_to_bf16(k, back, wide, 1 << 16);
    for (uint32_t i = 0; i < 1 << 16; i++) {
        bool quieted = (i & 0x7fff) > 0x7f80;
        assert_int_equal(back[i], quieted ? (i | 0x40) : i);
        uint32_t bits;
        memcpy(&bits, &wide[i], sizeof bits);
        assert_int_equal(bits, i << 16);
    }
}

TEST_ON_CPU(casts_touch_exactly_their_values)
{
    for (int64_t n = 0; n <= 40; n++) {
        float src[40], dst[41];
        unsigned char bytes[83];
        for (int i = 0; i < 40; i++)
            src[i] = (float)i;
        memset(bytes, 0xee, sizeof bytes);
        k->cast_to_bf16(k, bytes + 1, src, n);
        assert_int_equal(bytes[0], 0xee);
        assert_int_equal(bytes[1 + 2 * n], 0xee);
        dst[n] = -7;
        k->cast_from_bf16(k, dst, bytes + 1, n);
        assert_true(dst[n] == -7);
        assert_memory_equal(src, dst, (size_t)n * sizeof *src);
    }
}

static void check_copy_around(const struct kernels *k, size_t shift, size_t bytes)
{
    enum { MOST = 40 << 10 };
    static unsigned char from[MOST], to[MOST], expected[MOST];
    check(shift + bytes < MOST);
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (unsigned char)(i * 7 + i / 1000 + 1);
    memset(to, 0xee, sizeof to);
    memset(expected, 0xee, sizeof expected);
    memcpy(expected + shift, from + shift % 5, bytes);
    k->copy_in_uncached(k, to + shift, from + shift % 5, bytes);
    assert_memory_equal(to, expected, sizeof to);
}

TEST_ON_CPU(a_copy_around_the_caches_writes_exactly_its_bytes)
{
    enum { LINE = 64, STREAMS = 4 * 4096 };
    for (size_t shift = 0; shift < LINE; shift += 7) {
        for (size_t bytes = 0; bytes <= 3 * LINE; bytes++)
            check_copy_around(k, shift, bytes);
        for (size_t bytes = STREAMS - 1; bytes <= 2 * STREAMS + 2 * LINE; bytes += 1021)
            check_copy_around(k, shift, bytes);
    }
}

TEST_ON_CPU(sums_take_bytes_from_any_address)
{
    for (int shift = 0; shift < 4; shift++) {
        for (int64_t n = 0; n <= 40; n++) {
            float acc[41], add[40];
            char bytes[4 * 40 + 4];
            for (int i = 0; i < 40; i++)
                acc[i] = 0.5f, add[i] = (float)i;
            acc[n] = -7;
            memcpy(bytes + shift, add, sizeof add);
            k->add_f32(k, acc, bytes + shift, n);
            k->cast_to_bf16(k, bytes + shift, add, n);
            k->add_bf16(k, acc, bytes + shift, n);
            for (int i = 0; i < n; i++)
                assert_true(acc[i] == 0.5f + 2 * (float)i);
            assert_true(acc[n] == -7);
        }
    }
}

TEST_ON_CPU(sum_of_squares_is_exact_in_double)
{
    scoped(arrays_release) struct arrays a = {0};
    int64_t n = 131072;
    float *x = arrays_floats(&a, 1, n, 1e18f);
    double sum = -1, expected = 0;
    for (int64_t i = 0; i < n; i++)
        expected += (double)x[i] * (double)x[i];
    k->sum_squares(k, &sum, x, n);
    assert_true(fabs(sum / expected - 1) < 1e-13);
    k->sum_squares(k, &sum, x, 0);
    assert_true(sum == 0);
}

TEST_ON_CPU(sum_of_squares_shows_what_is_not_finite)
{
    float x[37] = {0};
    double sum;
    x[3] = 3.4e38f;
    k->sum_squares(k, &sum, x, 37);
    assert_true(isfinite(sum));
    const float wrong[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        for (int at = 0; at < 37; at++) {
            float kept = x[at];
            x[at] = wrong[i];
            k->sum_squares(k, &sum, x, 37);
            assert_true(!isfinite(sum));
            x[at] = kept;
        }
    }
}
