/* Which samples a ticket has. */
#include "tests/unit/unit.h"

#include "common/data/sampler.h"

/* Made by another program (Python), so that an order never changes unnoticed. */
TEST(orders_have_the_expected_places)
{
    static const uint64_t expected[20] = {2, 1, 5, 3, 7, 4, 0, 6, 9, 8,
                                          6, 1, 4, 2, 8, 3, 7, 5, 0, 9};
    const struct sampler sampler = {.seed = 1, .sample_count = 10, .slot_samples = 4};
    for (uint64_t position = 0; position < 20; position++)
        assert_int_equal(sampler_sample(&sampler, position), expected[position]);
}

TEST(every_sample_comes_once_in_an_epoch_whatever_the_slots)
{
    for (uint64_t samples = 1; samples < 40; samples++) {
        const struct sampler sampler = {.seed = 3, .sample_count = samples, .slot_samples = 3};
        unsigned seen[40] = {0};
        for (uint64_t position = 0; position < 5 * samples; position++)
            seen[sampler_sample(&sampler, position)]++;
        for (uint64_t i = 0; i < 40; i++)
            assert_int_equal(seen[i], i < samples ? 5 : 0);
    }
}
