/* Elementary functions in double, made of + - * / only: the same bits on every machine and
 * with every compiler, which libm does not promise (its results change with the CPU). */
#ifndef ROOST_COMMON_ELEMENTARY_H
#define ROOST_COMMON_ELEMENTARY_H

#include <stdint.h>

double elementary_log(double x); /* x > 0 and finite; error below 1 ulp */
double elementary_exp(double x); /* |x| <= 700; error below 2 ulp */
double elementary_sin(double x); /* |x| <= 1e5; error below 1e-15 absolute */
double elementary_cos(double x);
double elementary_power(double base, uint64_t exponent); /* by squaring; error about log2(n) ulp */

#endif
