/* log by atanh's series; exp by Taylor's after taking out multiples of ln 2, sin and cos after
 * taking out multiples of pi/2. */
#include "common/elementary.h"

#include "common/check.h"

#include <string.h>

/* ln 2 and pi / 2 in pieces; the first ones have so few bits that their products with the small
 * whole numbers below are exact (Cody and Waite). */
static const double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
static const double half_pi_high = 0x1.921fb544p+0, half_pi_middle = 0x1.0b4611a6p-34,
                    half_pi_low = 0x1.3198a2e037073p-69;

/* m * 2^k = x with m in [sqrt(1/2), sqrt(2)). */
static double split(double x, int *ret_k)
{
    int k = 0;
    if (x < 0x1p-1022) { /* subnormal */
        x *= 0x1p54;
        k = -54;
    }
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    k += (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffff) | 0x3ff0000000000000;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m >= 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        k++;
    }
    *ret_k = k;
    return m;
}

/* With f = m - 1, s = f / (2 + f), z = s^2:
 * log m = 2 atanh s = f - s (f - R) = f - (f^2/2 - s (f^2/2 + R)), R = 2 z/3 + 2 z^2/5 + … .
 * z < 0.0295, so eleven terms leave less than 1e-19. */
double elementary_log(double x)
{
    check(x > 0 && x <= 0x1.fffffffffffffp+1023);
    int k;
    double f = split(x, &k) - 1;
    double s = f / (2 + f), z = s * s, r = 0;
    for (int n = 11; n >= 1; n--)
        r = z * (r + 2.0 / (2 * n + 1));
    double half = 0.5 * f * f;
    return k * ln2_high - ((half - (s * (half + r) + k * ln2_low)) - f);
}

/* e^x = 2^k e^r, |r| <= ln 2 / 2: the next term is below 1e-19. */
double elementary_exp(double x)
{
    check(x >= -700 && x <= 700);
    int k = (int)(x * 0x1.71547652b82fep+0 + (x < 0 ? -0.5 : 0.5));
    double r = (x - k * ln2_high) - k * ln2_low, sum = 1;
    for (int n = 15; n >= 1; n--)
        sum = 1 + r * sum / n;
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

/* |r| <= pi/4; the next terms are below 1e-19. */
static double sin_near_0(double r)
{
    double z = r * r, sum = 0;
    for (int n = 17; n >= 3; n -= 2)
        sum = (1 - sum) * z / ((n - 1) * n);
    return r - r * sum;
}

static double cos_near_0(double r)
{
    double z = r * r, sum = 0;
    for (int n = 18; n >= 2; n -= 2)
        sum = (1 - sum) * z / ((n - 1) * n);
    return 1 - sum;
}

/* sin(x + quarters * pi/2) */
static double sin_shifted(double x, int quarters)
{
    check(x >= -1e5 && x <= 1e5);
    double n = (double)(int)(x * 0x1.45f306dc9c883p-1 + (x < 0 ? -0.5 : 0.5));
    double r = ((x - n * half_pi_high) - n * half_pi_middle) - n * half_pi_low;
    double value = ((int)n + quarters) & 1 ? cos_near_0(r) : sin_near_0(r);
    return ((int)n + quarters) & 2 ? -value : value;
}

double elementary_sin(double x)
{
    return sin_shifted(x, 0);
}

double elementary_cos(double x)
{
    return sin_shifted(x, 1);
}

double elementary_power(double base, uint64_t exponent)
{
    double power = 1;
    for (; exponent != 0; exponent >>= 1) {
        if (exponent & 1)
            power *= base;
        base *= base;
    }
    return power;
}
