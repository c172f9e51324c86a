/* What a run must come to: one shard and the coordinator's arithmetic in a straight loop, slots
 * pushed in order; no cluster. As tests/reference, with this scenario's gradients; where these are
 * the executor's, tests/reference runs as well and must end alike. */
#ifndef ROOST_TESTS_SIM_EXPECTED_H
#define ROOST_TESTS_SIM_EXPECTED_H

#include "common/digest.h"
#include "tests/sim/compute.h"

struct expected_step {
    struct seal_metrics metrics;
    bool skipped;
};

struct expected_validation {
    double loss, accuracy;
    uint64_t samples;
};

struct expected {
    uint64_t *published; /* digest of chunk c's copy of version v, at v * chunks_count + c */
    struct expected_step steps[SIM_STEPS_MAX];
    struct expected_validation validations[SIM_STEPS_MAX + 1]; /* of every version */
    bool failed;                              /* too many steps in a row are not finite … */
    uint64_t failed_step;                     /* … with this one */
    struct digest digests[SIM_STEPS_MAX + 1]; /* of every version's state */
};

void expected_run(struct expected *expected, struct compute *compute);
void expected_release(struct expected *expected);

uint64_t expected_published(const struct expected *expected, const struct compute *compute,
                            uint64_t version, uint32_t chunk);

#endif
