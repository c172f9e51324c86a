/* The limits that push and pull are compared with: the same bytes over a plain socket, a socket with
 * OpenSSL's TLS 1.3, or a ring in shared memory, with the same work on arrival, one thread at each end,
 * two processes. */
#ifndef ROOST_TESTS_BENCH_LIMIT_H
#define ROOST_TESTS_BENCH_LIMIT_H

#include "common/buf.h"
#include "common/digest.h"
#include "common/rpc/tls.h"
#include "tests/bench/pair.h"

#include <stdbool.h>

enum limit_direction {
    LIMIT_PUSH, /* the client sends, the server adds float32 into an array */
    LIMIT_PULL  /* the server sends, the client receives into an array */
};

struct limit_config {
    enum limit_direction direction;
    size_t tensor_bytes;                        /* sent again in each pass */
    unsigned passes;                            /* timed; one more before to warm up */
    size_t receive_bytes;                       /* asked for at a time */
    const struct tls_identity *server, *client; /* NULL: no TLS */
    bool ring;   /* the bytes go through one; words go over a socket */
    bool tree;   /* what is pushed is summed as a shard does it (limit_sums), not in one array */
    bool digest; /* of what is pushed, made beside the sums, with a key, as a shard does it */
};

/* One run of it, in two fresh processes. */
enum err limit_run(const struct limit_config *config, struct pair_result *ret_result) MUST_USE;

/* sum[i] += the i-th float of `bytes`, which may lie anywhere. */
void limit_accumulate(float *sum, const uint8_t *bytes, size_t count);

/* Passes are added in pairs, pairs of these in pairs, and so on, as a shard does it (server/shard/
 * reduce.h): the sums that are open lie in the first arrays. */
enum { LIMIT_ARRAYS_MAX = 8 };
struct limit_sums {
    float *arrays[LIMIT_ARRAYS_MAX];
    unsigned pass;
};

/* Values of slices that follow each other and may end in the middle of a float. */
struct limit_sink {
    struct limit_sums *sums;     /* of this pass; NULL: one array */
    float *sum;                  /* accumulate into, without `sums`; both NULL: copy */
    uint8_t *copy;               /* copy into; NULL: accumulate */
    size_t bytes;                /* received so far */
    uint8_t carry[4];            /* the begun float */
    struct digest_keyed *digest; /* NULL: none */
};
void limit_sink_take(struct limit_sink *sink, const uint8_t *data, size_t bytes);

/* The congestion control of connections on this machine, e.g. "bbr". */
void limit_congestion_control(char ret_name[static 16]);

#endif
