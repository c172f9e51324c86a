/* The result that a run must have, without a cluster: one shard and the coordinator's arithmetic in
 * a straight loop, slots pushed in order. It does what tests/reference does, with this scenario's
 * gradients. Where the gradients are the executor's, tests/reference runs as well and must have the
 * same result.
 *
 * With `ssp` the result follows from the order log alone: there is one `expected` for each
 * generation, and it makes a step when the coordinator logs the versions that the step was computed
 * on. */
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

struct single;

struct expected {
    struct single *single; /* the loop's state, as long as there are steps to come */
    uint64_t version;      /* the newest version so far */
    /* How many versions behind its step each slot was computed. */
    uint8_t behind[SIM_STEPS_MAX][SIM_SLOTS_MAX];
    uint64_t *published; /* digest of chunk c's copy of version v, at v * chunks_count + c */
    struct expected_step steps[SIM_STEPS_MAX];
    struct expected_validation validations[SIM_STEPS_MAX + 1]; /* of every version */
    bool failed;                              /* too many steps in a row are not finite … */
    uint64_t failed_step;                     /* … with this one */
    struct digest digests[SIM_STEPS_MAX + 1]; /* of every version's state */
};

/* Computes the whole run, when the spec decides what steps are computed on. */
void expected_run(struct expected *expected, struct compute *compute);
/* One step after another: from the beginning; from where `from` was at `version`; a step further,
 * slot i computed on behind[i] versions before the step's. */
void expected_begin(struct expected *expected, struct compute *compute);
void expected_branch(struct expected *expected, const struct expected *from, uint64_t version,
                     struct compute *compute);
void expected_step(struct expected *expected, const uint8_t *behind);
void expected_release(struct expected *expected);

uint64_t expected_published(const struct expected *expected, const struct compute *compute,
                            uint64_t version, uint32_t chunk);

#endif
