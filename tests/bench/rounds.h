/* Push and pull, with TLS, without, and through shared memory, against the limits of the same rounds:
 * shared memory against TCP without TLS.
 *
 * Each round runs every case once, each in two fresh processes, the limit first; a ratio is the
 * median of the rounds' ratios. */
#ifndef ROOST_TESTS_BENCH_ROUNDS_H
#define ROOST_TESTS_BENCH_ROUNDS_H

#include "common/rpc/rpc.h"
#include "tests/bench/limit.h"

enum { ROUNDS_MAX = 101 };

/* One measurement: what `serve` and `measure` of a pair get as their context. */
struct rounds_case {
    enum limit_direction direction;
    size_t tensor_bytes;
    unsigned passes;  /* timed; a quarter of what was asked for with TLS */
    unsigned threads; /* polling threads of each process; 0: one per core */
    bool shared;      /* through shared memory, as processes of one machine do by themselves */
    bool digest;      /* the limit makes one of what is pushed, as a shard does */
    const struct tls_identity *server, *client; /* NULL: no TLS */
};

struct rounds_config {
    const char *program; /* for messages */
    const char *what;    /* the column's head */
    unsigned rounds;     /* 1 … ROUNDS_MAX */
    unsigned passes;
    unsigned threads;
    size_t tensor_bytes;
    size_t block_bytes; /* what the limit receives at a time */
    const char *only;   /* the one case to run, e.g. "push tls"; NULL: all */
    bool pulls;         /* what is measured knows no other way */
    bool tree;          /* the limit sums as limit_config says, and in one case digests */
    unsigned (*serve)(const void *context);
    void (*measure)(const void *context, const struct pair_link *link, struct pair_result *result);
};

/* Runs and prints. Returns the program's exit status. */
int rounds_run(const struct rounds_config *config);

/* A server's and a worker's certificate of a CA of their own, valid for a day. */
struct identities {
    struct tls_identity server, client;
};
void identities_init(struct identities *identities);
void identities_release(struct identities *identities);

/* The polling threads of a measured process. */
struct rpc_settings rounds_settings(const struct rounds_case *about);
struct rpc_loop *rounds_loop(const struct rounds_case *about);

#endif
