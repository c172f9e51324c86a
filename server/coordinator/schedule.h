/* The learning rate as a function of the samples seen, not of steps or workers. Pure; in double,
 * without libm: the same bits on every machine. */
#ifndef ROOST_SERVER_COORDINATOR_SCHEDULE_H
#define ROOST_SERVER_COORDINATOR_SCHEDULE_H

#include "common/spec.h"

struct schedule {
    enum spec_schedule kind;
    double lr;               /* after warm-up */
    double lr_min;           /* where linear and cosine end, and stay */
    uint64_t warmup_samples; /* 0: none */
    uint64_t decay_samples;  /* lr_min is reached here */
    uint64_t step_samples;   /* of each step */
};

struct schedule schedule_of_spec(const struct spec *spec);

/* The rate of the step that begins after `samples`. As llm.c's schedulers.h, counted in samples:
 * lr * (samples + step) / warmup while samples < warmup, then from lr down to lr_min over what is
 * left until decay_samples. */
double schedule_rate(const struct schedule *schedule, uint64_t samples);

#endif
