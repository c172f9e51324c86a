/* The scalars of an update that follow from earlier steps. */
#include "common/settings/schedule.h"

#include "common/elementary.h"

struct schedule schedule_of(const struct spec_optimizer *optimizer, uint64_t step_samples)
{
    return (struct schedule){
        .kind = optimizer->schedule,
        .lr = optimizer->lr,
        .lr_min = optimizer->lr_min,
        .warmup_samples = optimizer->warmup_samples,
        .decay_samples = optimizer->decay_samples,
        .step_samples = step_samples,
    };
}

/* How far the decay is, 0 … 1. */
static double progress(const struct schedule *schedule, uint64_t samples)
{
    if (samples >= schedule->decay_samples)
        return 1;
    return (double)(samples - schedule->warmup_samples) /
           (double)(schedule->decay_samples - schedule->warmup_samples);
}

double schedule_rate(const struct schedule *schedule, uint64_t samples)
{
    const double pi = 0x1.921fb54442d18p+1;
    if (samples < schedule->warmup_samples) {
        double share =
            (double)(samples + schedule->step_samples) / (double)schedule->warmup_samples;
        return schedule->lr * (share < 1 ? share : 1);
    }
    double range = schedule->lr - schedule->lr_min;
    switch (schedule->kind) {
    case SPEC_CONSTANT:
        break;
    case SPEC_LINEAR:
        return schedule->lr_min + range * (1 - progress(schedule, samples));
    case SPEC_COSINE:
        return schedule->lr_min +
               range * (0.5 * (1 + elementary_cos(pi * progress(schedule, samples))));
    }
    return schedule->lr;
}

float schedule_bias_correction(double beta, uint64_t applied)
{
    return (float)(beta > 0 ? 1 - elementary_power(beta, applied) : 1);
}
