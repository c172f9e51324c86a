/* From the reduced sums of a step to its one decision. */
#include "server/shard/seal.h"

#include "common/clip.h"
#include "common/digest.h"
#include "common/model/model.h"

#include <stdlib.h>
#include <string.h>

struct seal_settings seal_settings_of_spec(const struct spec *spec)
{
    const struct spec_optimizer optimizer = spec_server_optimizer(spec);
    return (struct seal_settings){
        .schedule = schedule_of(&optimizer, spec_step_samples(spec)),
        .clip_norm = optimizer.clip_norm,
        .beta1 = optimizer.betas[0],
        .beta2 = optimizer.betas[1],
        .mean_slots = spec->consistency.kind == SPEC_LOCAL ? spec->train.slots : 0,
        .sample_predictions = model_sample(&spec->model).predictions,
        .skip_max = spec->train.skip_max,
    };
}

enum err seal_init(struct seal *ret_seal, uint32_t chunk_count)
{
    struct seal seal = {.chunk_count = chunk_count};
    seal.chunks = calloc(chunk_count, sizeof *seal.chunks);
    seal.sealed = calloc(chunk_count, sizeof *seal.sealed);
    if (seal.chunks == NULL || seal.sealed == NULL) {
        seal_release(&seal);
        return ERR_NOMEM;
    }
    *ret_seal = seal;
    return ERR_OK;
}

void seal_release(struct seal *seal)
{
    free(seal->chunks);
    free(seal->sealed);
    *seal = (struct seal){0};
}

void seal_restart(struct seal *seal)
{
    memset(seal->sealed, 0, seal->chunk_count * sizeof *seal->sealed);
    seal->sealed_count = 0;
    seal->has_loss = false;
}

enum err seal_add(struct seal *seal, const struct reduced *reduced)
{
    for (uint32_t i = 0; i < reduced->seal_count; i++)
        if (reduced->seals[i].chunk >= seal->chunk_count)
            return ERR_MALFORMED;
    for (uint32_t i = 0; i < reduced->seal_count; i++) {
        uint32_t chunk = reduced->seals[i].chunk;
        if (seal->sealed[chunk])
            continue;
        seal->sealed[chunk] = true;
        seal->sealed_count++;
        seal->chunks[chunk] = reduced->seals[i];
    }
    if (reduced->has_loss && !seal->has_loss) {
        seal->has_loss = true;
        seal->loss_sum = reduced->loss_sum;
        seal->sample_count = reduced->sample_count;
        seal->correct_count = reduced->correct_count;
    }
    return ERR_OK;
}

void seal_forget(struct seal *seal, uint32_t chunk)
{
    check(chunk < seal->chunk_count);
    seal->sealed_count -= seal->sealed[chunk] ? 1 : 0;
    seal->sealed[chunk] = false;
}

bool seal_complete(const struct seal *seal)
{
    return seal->sealed_count == seal->chunk_count && seal->has_loss;
}

/* The sum of squares of the whole gradient, in chunk order; false: something is not finite. */
static bool sum_squares(const struct seal *seal, double *ret_sum)
{
    bool finite = true;
    double sum = 0;
    for (uint32_t i = 0; i < seal->chunk_count; i++) {
        finite = finite && seal->chunks[i].finite;
        sum += seal->chunks[i].sumsq;
    }
    *ret_sum = sum;
    return finite && __builtin_isfinite(sum) && __builtin_isfinite(seal->loss_sum) &&
           __builtin_isfinite(seal->sample_count) && seal->sample_count > 0;
}

/* Which NaN a sum of several is depends on the order of arrival: all count as one. */
static double one_nan(double value)
{
    return __builtin_isnan(value) ? __builtin_nan("") : value;
}

/* A digest over all chunks' digests, in order, and the loss. */
static uint64_t digest_of(const struct seal *seal)
{
    struct {
        uint64_t before, chunk, finite;
        double sumsq;
    } link = {0};
    const struct {
        double loss_sum, sample_count, correct_count;
    } loss = {one_nan(seal->loss_sum), one_nan(seal->sample_count), one_nan(seal->correct_count)};
    for (uint32_t i = 0; i < seal->chunk_count; i++) {
        link.chunk = seal->chunks[i].chunk;
        link.finite = seal->chunks[i].finite;
        link.sumsq = one_nan(seal->chunks[i].sumsq);
        link.before = digest_fast64((struct slice){(const uint8_t *)&link, sizeof link});
    }
    return link.before ^ digest_fast64((struct slice){(const uint8_t *)&loss, sizeof loss});
}

static uint64_t whole(double count)
{
    return count >= 0 && count < 0x1p53 ? (uint64_t)count : 0;
}

enum err seal_decide(const struct seal_settings *settings, struct seal_counters *counters,
                     const struct seal *seal, struct commit *ret_commit,
                     struct seal_metrics *ret_metrics)
{
    check(seal_complete(seal));
    double sumsq;
    bool finite = sum_squares(seal, &sumsq);
    double count = settings->mean_slots > 0 ? settings->mean_slots : seal->sample_count;
    double mean = finite ? 1 / count : 0;
    double norm = finite ? __builtin_sqrt(sumsq) * mean : __builtin_nan("");
    double rate = schedule_rate(&settings->schedule, counters->samples);

    counters->samples += settings->schedule.step_samples;
    counters->applied += finite ? 1 : 0;
    counters->skips_in_row = finite ? 0 : counters->skips_in_row + 1;
    *ret_metrics = (struct seal_metrics){
        .loss = seal->loss_sum / seal->sample_count,
        .accuracy = seal->correct_count / (seal->sample_count * settings->sample_predictions),
        .norm = norm,
        .lr = rate,
        .samples = whole(seal->sample_count),
        .digest = digest_of(seal),
    };
    *ret_commit = (struct commit){
        .apply = finite,
        .scale = (float)(mean * clip_factor(settings->clip_norm, norm)),
        .lr = (float)rate,
        .bias1 = schedule_bias_correction(settings->beta1, counters->applied),
        .bias2 = schedule_bias_correction(settings->beta2, counters->applied),
        .samples = counters->samples,
        .applied = counters->applied,
        .skips_in_row = counters->skips_in_row,
    };
    bool failed = settings->skip_max > 0 && counters->skips_in_row >= settings->skip_max;
    return failed ? ERR_NON_FINITE : ERR_OK;
}

/* ---- tickets by themselves ---- */

bool seal_same_decision(const struct commit *a, const struct commit *b)
{
    return a->step == b->step && a->apply == b->apply &&
           memcmp(&a->scale, &b->scale, sizeof a->scale) == 0 &&
           memcmp(&a->lr, &b->lr, sizeof a->lr) == 0 &&
           memcmp(&a->bias1, &b->bias1, sizeof a->bias1) == 0 &&
           memcmp(&a->bias2, &b->bias2, sizeof a->bias2) == 0 && a->samples == b->samples &&
           a->applied == b->applied && a->skips_in_row == b->skips_in_row;
}

void seal_count(const struct seal_settings *settings, struct seal_counters *counters,
                const struct seal *seal, struct commit *ret_commit,
                struct seal_metrics *ret_metrics)
{
    check(seal_complete(seal));
    double count = seal->sample_count > 0 ? seal->sample_count : __builtin_nan("");
    *ret_metrics = (struct seal_metrics){
        .loss = seal->loss_sum / count,
        .accuracy = seal->correct_count / (count * settings->sample_predictions),
        .norm = __builtin_nan(""),
        .lr = schedule_rate(&settings->schedule, counters->samples),
        .samples = whole(seal->sample_count),
        .digest = digest_of(seal),
    };
    counters->samples += settings->schedule.step_samples;
    counters->applied++;
    *ret_commit = (struct commit){
        .apply = true,
        .samples = counters->samples,
        .applied = counters->applied,
    };
}

struct commit seal_ticket(const struct seal_settings *settings, const struct seal_ticket *ticket)
{
    struct schedule schedule = settings->schedule;
    schedule.step_samples = ticket->slot_samples;
    bool apply = ticket->scale != 0;
    uint64_t applied = ticket->updates + (apply ? 1 : 0);
    uint64_t samples = ticket->version * ticket->slot_samples;
    return (struct commit){
        .apply = apply,
        .scale = (float)((double)ticket->scale / ticket->slot_samples),
        .lr = (float)schedule_rate(&schedule, samples),
        .bias1 = schedule_bias_correction(settings->beta1, applied),
        .bias2 = schedule_bias_correction(settings->beta2, applied),
        .samples = samples + ticket->slot_samples,
        .applied = applied,
    };
}
