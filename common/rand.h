/* Random numbers, counted: value `index` of a stream is a function of (key, index) alone, so any
 * process can make any of them, in any order, with the same bits on every machine (Philox4x32-10,
 * no libm). One stream serves one kind of value: uniform, normal or permutation, not several. */
#ifndef ROOST_COMMON_RAND_H
#define ROOST_COMMON_RAND_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

/* What a stream is for. The order is part of every result: append only. */
enum rand_domain {
    RAND_WEIGHTS, /* number: the parameter's index; index: the weight's */
    RAND_ORDER,   /* number: the epoch; a permutation of the samples */
    RAND_DATA,    /* number: which part of a generated data set */
    RAND_SAMPLE,  /* number: which text is being written; index: its token */
    RAND_DOMAIN_COUNT
};

struct rand_key {
    uint64_t seed;
    uint64_t stream;
};

struct rand_key rand_key(uint64_t seed, enum rand_domain domain, uint64_t number); /* < 2^56 */

/* Philox4x32-10: block `counter` of the generator with that key. */
void rand_philox(const uint32_t key[static 2], const uint32_t counter[static 4],
                 uint32_t ret_words[static 4]);
/* Block `index` of a stream. */
void rand_words(struct rand_key key, uint64_t index, uint32_t ret_words[static 4]);

float rand_uniform(struct rand_key key, uint64_t index); /* k / 2^24 in [0, 1) */
/* Standard normal: the inverse of its distribution function at a 52-bit point (AS 241, double,
 * about 1e-15 relative), rounded to float; |value| < 8.3. */
float rand_normal(struct rand_key key, uint64_t index);
/* ret_values[i] = rand_normal(key, first + i), in half the time. */
void rand_normal_fill(struct rand_key key, uint64_t first, size_t count, float *ret_values);

/* Where the keyed permutation of [0, n) sends i (i < n): a Feistel network over the smallest power
 * of two that holds n, walked until it is back inside. No state. */
uint64_t rand_permute(struct rand_key key, uint64_t n, uint64_t i);

/* A small generator with state (splitmix64), for jitter and simulators: {seed} starts one. */
struct rand_state {
    uint64_t state;
};
uint64_t rand_next(struct rand_state *state);
uint64_t rand_below(struct rand_state *state, uint64_t limit); /* in [0, limit), even; limit > 0 */
double rand_unit(struct rand_state *state);                    /* in [0, 1), 53 bits */

/* Bytes nobody can guess, from the system: identities, secrets, the seed of a jitter. */
enum err rand_system(void *bytes, size_t count) MUST_USE;

#endif
