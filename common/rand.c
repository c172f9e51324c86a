/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
 * 2011) and what is made of its words. */
#include "common/rand.h"

#include "common/elementary.h"

#include <errno.h>
#include <sys/random.h>

struct rand_key rand_key(uint64_t seed, enum rand_domain domain, uint64_t number)
{
    check(number < (uint64_t)1 << 56);
    return (struct rand_key){.seed = seed, .stream = (uint64_t)domain << 56 | number};
}

void rand_philox(const uint32_t key[static 2], const uint32_t counter[static 4],
                 uint32_t ret_words[static 4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53 * c0, p1 = (uint64_t)0xCD9E8D57 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    ret_words[0] = c0;
    ret_words[1] = c1;
    ret_words[2] = c2;
    ret_words[3] = c3;
}

void rand_words(struct rand_key key, uint64_t index, uint32_t ret_words[static 4])
{
    const uint32_t halves[2] = {(uint32_t)key.seed, (uint32_t)(key.seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)key.stream,
                                 (uint32_t)(key.stream >> 32)};
    rand_philox(halves, counter, ret_words);
}

float rand_uniform(struct rand_key key, uint64_t index)
{
    uint32_t words[4];
    rand_words(key, index / 4, words);
    return (float)(words[index % 4] >> 8) * 0x1p-24f;
}

static double polynomial(const double coefficients[static 8], double x)
{
    double value = coefficients[7];
    for (int i = 6; i >= 0; i--)
        value = value * x + coefficients[i];
    return value;
}

/* M. J. Wichura, "Algorithm AS 241: The percentage points of the normal distribution", Applied
 * Statistics 37 (1988), PPND16: two rational functions for the tails, one for the middle. */
static const double middle_above[8] = {3.3871328727963666080e0, 1.3314166789178437745e2,
                                       1.9715909503065514427e3, 1.3731693765509461125e4,
                                       4.5921953931549871457e4, 6.7265770927008700853e4,
                                       3.3430575583588128105e4, 2.5090809287301226727e3};
static const double middle_below[8] = {1.0,
                                       4.2313330701600911252e1,
                                       6.8718700749205790830e2,
                                       5.3941960214247511077e3,
                                       2.1213794301586595867e4,
                                       3.9307895800092710610e4,
                                       2.8729085735721942674e4,
                                       5.2264952788528545610e3};
static const double tail_above[8] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                     5.76949722146069140550e0,  3.64784832476320460504e0,
                                     1.27045825245236838258e0,  2.41780725177450611770e-1,
                                     2.27238449892691845833e-2, 7.74545014278341407640e-4};
static const double tail_below[8] = {1.0,
                                     2.05319162663775882187e0,
                                     1.67638483018380384940e0,
                                     6.89767334985100004550e-1,
                                     1.48103976427480074590e-1,
                                     1.51986665636164571966e-2,
                                     5.47593808499534494600e-4,
                                     1.05075007164441684324e-9};
static const double far_above[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                    1.78482653991729133580e0,  2.96560571828504891230e-1,
                                    2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                    2.71155556874348757815e-5, 2.01033439929228813265e-7};
static const double far_below[8] = {1.0,
                                    5.99832206555887937690e-1,
                                    1.36929880922735805310e-1,
                                    1.48753612908506148525e-2,
                                    7.86869131145613259100e-4,
                                    1.84631831751005468180e-5,
                                    1.42151175831644588870e-7,
                                    2.04426310338993978564e-15};

static double normal_quantile(double p)
{
    double q = p - 0.5;
    if (q >= -0.425 && q <= 0.425) {
        double r = 0.180625 - q * q;
        return q * polynomial(middle_above, r) / polynomial(middle_below, r);
    }
    double r = __builtin_sqrt(-elementary_log(q < 0 ? p : 1 - p));
    double value = r <= 5 ? polynomial(tail_above, r - 1.6) / polynomial(tail_below, r - 1.6)
                          : polynomial(far_above, r - 5) / polynomial(far_below, r - 5);
    return q < 0 ? -value : value;
}

/* The point is in the middle of one of 2^52 cells, so neither 0 nor 1, and exact. */
static float normal_from_words(const uint32_t words[static 2])
{
    uint64_t cell = ((uint64_t)words[1] << 32 | words[0]) >> 12;
    return (float)normal_quantile(((double)cell + 0.5) * 0x1p-52);
}

float rand_normal(struct rand_key key, uint64_t index)
{
    uint32_t words[4];
    rand_words(key, index / 2, words);
    return normal_from_words(words + index % 2 * 2);
}

void rand_normal_fill(struct rand_key key, uint64_t first, size_t count, float *ret_values)
{
    uint32_t words[4];
    for (size_t i = 0; i < count; i++) {
        uint64_t index = first + i;
        if (i == 0 || index % 2 == 0)
            rand_words(key, index / 2, words);
        ret_values[i] = normal_from_words(words + index % 2 * 2);
    }
}

#define PERMUTE_ROUNDS 8

/* One turn of the Feistel network on [0, 2^bits): each half in turn is mixed with a keyed function
 * of the other, which can be undone whatever the function; so the whole is a permutation. */
static uint64_t feistel(struct rand_key key, unsigned bits, uint64_t i)
{
    const unsigned right_bits = (bits + 1) / 2;
    const uint64_t right_mask = ((uint64_t)1 << right_bits) - 1;
    const uint64_t left_mask = ((uint64_t)1 << (bits - right_bits)) - 1;
    uint64_t left = i >> right_bits, right = i & right_mask;
    for (uint64_t round = 0; round < PERMUTE_ROUNDS; round++) {
        uint32_t words[4];
        rand_words(key, round << 32 | (round % 2 == 0 ? left : right), words);
        if (round % 2 == 0)
            right ^= words[0] & right_mask;
        else
            left ^= words[0] & left_mask;
    }
    return left << right_bits | right;
}

uint64_t rand_permute(struct rand_key key, uint64_t n, uint64_t i)
{
    check(i < n);
    check(n <= (uint64_t)1 << 62);
    unsigned bits = 0;
    while ((uint64_t)1 << bits < n)
        bits++;
    do
        i = feistel(key, bits, i);
    while (i >= n);
    return i;
}

/* Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014. */
uint64_t rand_next(struct rand_state *state)
{
    uint64_t z = state->state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

uint64_t rand_below(struct rand_state *state, uint64_t limit)
{
    check(limit > 0);
    uint64_t uneven =
        -limit % limit; /* 2^64 mod limit: so many of the lowest values are too much */
    uint64_t value;
    do
        value = rand_next(state);
    while (value < uneven);
    return value % limit;
}

double rand_unit(struct rand_state *state)
{
    return (double)(rand_next(state) >> 11) * 0x1p-53;
}

enum err rand_system(void *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        ssize_t got = getrandom((uint8_t *)bytes + done, count - done, 0);
        if (got < 0 && errno != EINTR)
            return ERR_IO;
        done += got > 0 ? (size_t)got : 0;
    }
    return ERR_OK;
}
