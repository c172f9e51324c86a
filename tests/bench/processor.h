/* The processor time of a benchmark. */
#ifndef ROOST_TESTS_BENCH_PROCESSOR_H
#define ROOST_TESTS_BENCH_PROCESSOR_H

#include "common/check.h"

#include <stdint.h>
#include <time.h>

/* What this process has used, all threads. */
static inline uint64_t processor_ns(void)
{
    struct timespec used;
    check(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0);
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

#endif
