/* Unigram entropy. */
#include "tests/unit/unit.h"

#include "common/data/entropy.h"

/* Of an even distribution the logarithm of how many; of one token, or of none, nothing. */
TEST(entropy_is_that_of_the_counts)
{
    static const struct {
        uint64_t counts[8];
        double nats;
    } rows[] = {{{3, 3, 3, 3, 0, 0, 3, 0}, 1.6094379124341003}, /* ln 5 */
                {{1, 3}, 0.5623351446188083},
                {{0, 1000000000000, 0}, 0},
                {{0, 0}, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double error = entropy_nats(rows[i].counts, 8) - rows[i].nats;
        if (!(error < 1e-14 && error > -1e-14) || (rows[i].nats == 0 && error != 0))
            fail_msg("row %zu is %g away", i, error);
    }
    assert_true(entropy_nats(rows[0].counts, 0) == 0);
}
