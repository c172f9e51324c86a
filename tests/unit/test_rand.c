/* Counted random numbers. Known answers: Random123's kat_vectors, splitmix64.c, and for the normal
 * numbers the quantile function at 160 bits (mpmath), rounded to float. */
#include "tests/unit/unit.h"

#include "common/rand.h"

TEST(philox_gives_the_published_answers)
{
    static const struct {
        uint32_t counter[4], key[2], words[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t words[4];
        rand_philox(rows[i].key, rows[i].counter, words);
        assert_memory_equal(words, rows[i].words, sizeof words);
    }
}

static const uint64_t seed = 0x123456789abcdef0;

TEST(uniform_numbers_have_the_expected_bits)
{
    static const float expected[] = {0xfdca8ap-24f, 0x3341cp-24f,  0xec5c68p-24f,
                                     0xa60745p-24f, 0x7901afp-24f, 0x17205cp-24f};
    for (uint64_t i = 0; i < 6; i++)
        assert_true(rand_uniform(rand_key(seed, RAND_DATA, 7), i) == expected[i]);
}

TEST(normal_numbers_have_the_expected_bits)
{
    static const float expected[] = {-0x1.3349fp-3f, -0x1.0340fap+0f, 0x1.001224p+1f,
                                     0x1.f5becp-1f,  0x1.3cef3ap+0f,  0x1.4c6fdcp+1f};
    struct rand_key key = rand_key(seed, RAND_WEIGHTS, 5);
    for (uint64_t i = 0; i < 6; i++)
        assert_true(rand_normal(key, i) == expected[i]);
    assert_true(rand_normal(key, 1000001) == -0x1.ff2d2p+0f);
}

TEST(a_filled_range_has_the_single_numbers)
{
    struct rand_key key = rand_key(1, RAND_WEIGHTS, 0);
    for (uint64_t first = 0; first < 3; first++)
        for (size_t count = 0; count < 5; count++) {
            float values[5] = {0};
            rand_normal_fill(key, first, count, values);
            for (size_t i = 0; i < count; i++)
                assert_true(values[i] == rand_normal(key, first + i));
        }
}

TEST(streams_and_seeds_differ)
{
    const struct rand_key keys[] = {rand_key(1, RAND_WEIGHTS, 0), rand_key(2, RAND_WEIGHTS, 0),
                                    rand_key(1, RAND_ORDER, 0), rand_key(1, RAND_WEIGHTS, 1),
                                    rand_key(1 + ((uint64_t)1 << 32), RAND_WEIGHTS, 0)};
    uint32_t words[5][4];
    for (int i = 0; i < 5; i++) {
        rand_words(keys[i], 0, words[i]);
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(words[i], words[j], sizeof words[i]);
    }
}

#define DRAWS 200000

TEST(normal_numbers_are_normal)
{
    double sum = 0, squares = 0, fourths = 0;
    unsigned beyond_3 = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double x = (double)rand_normal(rand_key(3, RAND_WEIGHTS, 0), i);
        sum += x;
        squares += x * x;
        fourths += x * x * x * x;
        beyond_3 += x > 3 || x < -3;
    }
    /* five standard errors around 0, 1, 3 and 0.27 % */
    assert_true(sum / DRAWS > -0.0112 && sum / DRAWS < 0.0112);
    assert_true(squares / DRAWS > 0.984 && squares / DRAWS < 1.016);
    assert_true(fourths / DRAWS > 2.89 && fourths / DRAWS < 3.11);
    assert_in_range(beyond_3, 424, 656);
}

/* Every place is hit once, so it is a permutation. */
static void assert_permutes(struct rand_key key, uint64_t n)
{
    scoped(free_scoped) uint8_t *hit = calloc(n, 1);
    assert_non_null(hit);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t place = rand_permute(key, n, i);
        assert_true(place < n);
        assert_int_equal(hit[place]++, 0);
    }
}

TEST(permutations_hit_every_place_once)
{
    for (uint64_t n = 1; n <= 70; n++)
        for (uint64_t epoch = 0; epoch < 20; epoch++)
            assert_permutes(rand_key(n, RAND_ORDER, epoch), n);
    for (unsigned power = 7; power <= 14; power++)
        for (uint64_t n = (1u << power) - 1; n <= (1u << power) + 1; n++)
            assert_permutes(rand_key(7, RAND_ORDER, power), n);
    assert_permutes(rand_key(1, RAND_ORDER, 0), 60000);
}

TEST(permutations_of_large_ranges_stay_inside_and_differ)
{
    const uint64_t n = ((uint64_t)1 << 62) - 12345;
    uint64_t before = n;
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t place = rand_permute(rand_key(1, RAND_ORDER, 0), n, n - 1 - i);
        assert_true(place < n);
        assert_true(place != before);
        before = place;
    }
}

TEST(small_permutations_are_all_equally_likely)
{
    unsigned seen[27] = {0};
    for (uint64_t epoch = 0; epoch < 6000; epoch++) {
        uint64_t code = 0;
        for (uint64_t i = 0; i < 3; i++)
            code = code * 3 + rand_permute(rand_key(9, RAND_ORDER, epoch), 3, i);
        seen[code]++;
    }
    unsigned kinds = 0;
    for (int i = 0; i < 27; i++) {
        kinds += seen[i] != 0;
        assert_true(seen[i] == 0 || (seen[i] > 850 && seen[i] < 1150)); /* five deviations */
    }
    assert_int_equal(kinds, 6);
}

/* Where place 0 of 1000 goes, over many epochs: every tenth of the range equally often; and
 * neighbours do not stay neighbours. */
TEST(places_spread_evenly)
{
    unsigned tenths[10] = {0}, neighbours = 0;
    for (uint64_t epoch = 0; epoch < 10000; epoch++) {
        struct rand_key key = rand_key(11, RAND_ORDER, epoch);
        uint64_t first = rand_permute(key, 1000, 0), second = rand_permute(key, 1000, 1);
        tenths[first / 100]++;
        neighbours += second == first + 1;
    }
    for (int i = 0; i < 10; i++)
        assert_in_range(tenths[i], 850, 1150);
    assert_in_range(neighbours, 0, 27); /* 10 expected */
}

TEST(splitmix_gives_the_published_answers)
{
    struct rand_state random = {1234567};
    assert_true(rand_next(&random) == 6457827717110365317u);
    assert_true(rand_next(&random) == 3203168211198807973u);
    assert_true(rand_next(&random) == 9817491932198370423u);
}

TEST(numbers_below_a_limit_are_even)
{
    struct rand_state random = {1};
    unsigned seen[3] = {0};
    for (int i = 0; i < 30000; i++)
        seen[rand_below(&random, 3)]++;
    for (int i = 0; i < 3; i++)
        assert_in_range(seen[i], 9600, 10400);
    assert_int_equal(rand_below(&random, 1), 0);
    for (int i = 0; i < 100; i++) {
        double unit = rand_unit(&random);
        assert_true(unit >= 0 && unit < 1);
    }
}

TEST(the_systems_numbers_differ_each_time)
{
    uint8_t once[16], again[16];
    assert_int_equal(rand_system(once, sizeof once), ERR_OK);
    assert_int_equal(rand_system(again, sizeof again), ERR_OK);
    assert_memory_not_equal(once, again, sizeof once);
}
