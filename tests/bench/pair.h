/* A measurement in two fresh processes, a server and a client: time, and processor time of both. */
#ifndef ROOST_TESTS_BENCH_PAIR_H
#define ROOST_TESTS_BENCH_PAIR_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The client's view of its server. */
struct pair_link {
    unsigned port;
    int to, from; /* pipes */
    pid_t server; /* its process */
};

struct pair_result {
    double bytes;
    double seconds;
    double cpu_seconds; /* of both processes */
    char about[64];     /* e.g. the congestion control */
};

/* A clock over the timed part, run by the client. */
struct pair_clock {
    uint64_t began_ns, cpu_began_ns, server_cpu_began_ns;
};
struct pair_clock pair_clock_start(const struct pair_link *link);
/* Fills seconds and cpu_seconds. */
void pair_clock_stop(const struct pair_clock *clock, const struct pair_link *link,
                     struct pair_result *result);

/* How much memory of the server is resident now. */
size_t pair_server_bytes(const struct pair_link *link);

struct pair_config {
    /* In the server's process: starts to serve in other threads, returns the port. */
    unsigned (*serve)(const void *context);
    /* In the client's process: does the work, with a clock over the timed part. */
    void (*measure)(const void *context, const struct pair_link *link, struct pair_result *result);
    const void *context;
};

/* Runs the two; the calling process may have no other threads. ERR_IO: one of them failed. */
enum err pair_run(const struct pair_config *config, struct pair_result *ret_result) MUST_USE;

/* The value in the middle; sorts `values`. */
double pair_median(double *values, unsigned count);

#endif
