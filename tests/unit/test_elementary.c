/* log, exp, sin, cos and powers against values computed with 200 bits (mpmath). */
#include "tests/unit/unit.h"

#include "common/elementary.h"

static double distance(double a, double b)
{
    return a > b ? a - b : b - a;
}

TEST(logarithms_are_right_to_the_last_place)
{
    static const struct {
        double x, log;
    } rows[] = {
        {0x1.0000000000000p+0, 0x0.0p+0},
        {0x1.0000000000000p+1, 0x1.62e42fefa39efp-1},
        {0x1.0000000000000p-1, -0x1.62e42fefa39efp-1},
        {0x1.4000000000000p+3, 0x1.26bb1bbb55516p+1},
        {0x1.999999999999ap-4, -0x1.26bb1bbb55515p+1},
        {0x1.8000000000000p+0, 0x1.9f323ecbf984cp-2},
        {0x1.6a09e667f3bccp-1, -0x1.62e42fefa39f1p-2},
        {0x1.6a09e667f3bcep-1, -0x1.62e42fefa39ebp-2},
        {0x1.6a09e667f3bcdp+0, 0x1.62e42fefa39f0p-2},
        {0x1.56e1fc2f8f359p-997, -0x1.5963447f87fb5p+9},
        {0x0.0000000000001p-1022, -0x1.74385446d71c3p+9},
        {0x1.fffffffffffffp+1023, 0x1.62e42fefa39efp+9},
        {0x1.ffffde7210be9p-1, -0x1.0c6f82d74d230p-20},
        {0x1.000010c6f7a0bp+0, 0x1.0c6f713f33a1dp-20},
        {0x1.8000000000000p+1, 0x1.193ea7aad030bp+0},
        {0x1.9385c44dd7885p-51, -0x1.1729e2643c243p+5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double size = distance(rows[i].log, 0);
        assert_true(distance(elementary_log(rows[i].x), rows[i].log) <= size * 0x1p-52);
    }
}

TEST(exponentials_are_right_to_the_last_place_but_one)
{
    static const struct {
        double x, exp;
    } rows[] = {
        {0x0.0p+0, 0x1.0000000000000p+0},
        {0x1.0000000000000p+0, 0x1.5bf0a8b145769p+1},
        {-0x1.0000000000000p+0, 0x1.78b56362cef38p-2},
        {0x1.0000000000000p-1, 0x1.a61298e1e069cp+0},
        {0x1.62e42fefa39efp-2, 0x1.6a09e667f3bccp+0},
        {0x1.62e42fefa39f0p-2, 0x1.6a09e667f3bcdp+0},
        {-0x1.62eb1c432ca58p-2, 0x1.6a0773cd678a4p-1},
        {0x1.4000000000000p+3, 0x1.5829dcf950560p+14},
        {-0x1.4000000000000p+3, 0x1.7cd79b5647c9bp-15},
        {0x1.62ccccccccccdp+6, 0x1.f4705bbffae5cp+127},
        {-0x1.26bb1bbb55516p+3, 0x1.a36e2eb1c4326p-14},
        {-0x1.26bb1bbb55515p+1, 0x1.999999999999bp-4},
        {0x1.19799812dea11p-40, 0x1.0000000001198p+0},
        {-0x1.2c40000000000p+8, 0x1.c758233102acep-434},
        {0x1.5dc0000000000p+9, 0x1.1f0df6d72215ep+1009},
        {-0x1.5e00000000000p+9, 0x1.14f2b0fb9307fp-1010},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_true(distance(elementary_exp(rows[i].x), rows[i].exp) <= rows[i].exp * 0x1p-51);
}

TEST(sines_and_cosines_are_right_to_1e15)
{
    static const struct {
        double x, sin, cos;
    } rows[] = {
        {0x0.0p+0, 0x0.0p+0, 0x1.0000000000000p+0},
        {0x1.12e0be826d695p-30, 0x1.12e0be826d695p-30, 0x1.0000000000000p+0},
        {0x1.0000000000000p-1, 0x1.eaee8744b05f0p-2, 0x1.c1528065b7d50p-1},
        {0x1.921fb54442d15p-1, 0x1.6a09e667f3bcap-1, 0x1.6a09e667f3bcfp-1},
        {0x1.921fb54442d18p-1, 0x1.6a09e667f3bccp-1, 0x1.6a09e667f3bcdp-1},
        {0x1.0000000000000p+0, 0x1.aed548f090ceep-1, 0x1.14a280fb5068cp-1},
        {0x1.921fb54442d18p+0, 0x1.0000000000000p+0, 0x1.1a62633145c07p-54},
        {0x1.0000000000000p+1, 0x1.d18f6ead1b446p-1, -0x1.aa22657537205p-2},
        {0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53, -0x1.0000000000000p+0},
        {0x1.0000000000000p+2, -0x1.837b9dddc1eaep-1, -0x1.4eaa606db24c1p-1},
        {0x1.0000000000000p+3, 0x1.fa8d2a028cf7bp-1, -0x1.29fbebf632f94p-3},
        {0x1.7cccccccccccdp+3, -0x1.3c7c77b300fe3p-1, 0x1.9277ce4c90cb0p-1},
        {0x1.8000000000000p+3, -0x1.12b9af7d765a5p-1, 0x1.b00da046b65e3p-1},
        {0x1.9000000000000p+6, -0x1.03425b78c4db8p-1, 0x1.b981dbf665fdfp-1},
        {-0x1.0000000000000p-1, -0x1.eaee8744b05f0p-2, 0x1.c1528065b7d50p-1},
        {-0x1.0000000000000p+2, 0x1.837b9dddc1eaep-1, -0x1.4eaa606db24c1p-1},
        {-0x1.9100000000000p+6, 0x1.1bf00980dc35cp-2, 0x1.ebec72ba6b0ecp-1},
        {0x1.869f800000000p+16, 0x1.055f282f41bdap-1, -0x1.b8428c9f69a31p-1},
        {-0x1.86a0000000000p+16, -0x1.24daa9c527e96p-5, -0x1.ffac3841b3da7p-1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_true(distance(elementary_sin(rows[i].x), rows[i].sin) < 1e-15);
        assert_true(distance(elementary_cos(rows[i].x), rows[i].cos) < 1e-15);
    }
}

TEST(powers_multiply)
{
    assert_true(elementary_power(0.9, 0) == 1.0);
    assert_true(elementary_power(-2.0, 31) == -2147483648.0);
    assert_true(elementary_power(2.0, 1023) == 0x1p1023);
    assert_true(elementary_power(0.5, 5000) == 0.0);
    /* 0.999^1000 = 0.36769542477096371… */
    assert_true(distance(elementary_power(0.999, 1000), 0.36769542477096371) < 1e-13);
}
