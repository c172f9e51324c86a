/* Tokens for measurements: common and rare ones as in text, about 1/rank. */
#ifndef ROOST_TESTS_BENCH_TOKENS_H
#define ROOST_TESTS_BENCH_TOKENS_H

#include <stdint.h>

/* The same for the same place (splitmix64's finalizer spreads them). */
static inline int32_t token_at(uint64_t place, int64_t vocabulary)
{
    uint64_t x = (place + 1) * 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    double u = (double)((x ^ (x >> 31)) >> 11) / 9007199254740992.0;
    return (int32_t)((double)(vocabulary - 1) * u * u * u * u);
}

#endif
