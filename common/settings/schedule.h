/* The scalars of an update that follow from earlier steps: the learning rate as a function of the
 * samples seen (not of steps or workers), Adam's bias corrections, the clip factor. Pure; in
 * double, without libm: the same bits on every machine. */
#ifndef ROOST_COMMON_SETTINGS_SCHEDULE_H
#define ROOST_COMMON_SETTINGS_SCHEDULE_H

#include "common/settings/spec.h"

struct schedule {
    enum spec_schedule kind;
    double lr;               /* after warm-up */
    double lr_min;           /* where linear and cosine end, and stay */
    uint64_t warmup_samples; /* 0: none */
    uint64_t decay_samples;  /* lr_min is reached here */
    uint64_t step_samples;   /* of each step */
};

struct schedule schedule_of(const struct spec_optimizer *optimizer, uint64_t step_samples);

/* The rate of the step that begins after `samples`. As llm.c's schedulers.h, counted in samples:
 * lr * (samples + step) / warmup while samples < warmup, then from lr down to lr_min over what is
 * left until decay_samples. */
double schedule_rate(const struct schedule *schedule, uint64_t samples);

/* 1 - beta^applied: the correction of Adam's averages for their start at zero (Kingma & Ba 2015,
 * section 3); 1 for beta 0. */
float schedule_bias_correction(double beta, uint64_t applied);

#endif
