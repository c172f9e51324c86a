/* Gradients against finite differences of the loss, parameter by parameter. */
#ifndef ROOST_TESTS_UNIT_GRADIENT_FIXTURE_H
#define ROOST_TESTS_UNIT_GRADIENT_FIXTURE_H

#include "tests/models.h"
#include "tests/unit/executor_fixture.h"

#include <math.h>

static inline enum err gradient_read(void *context, enum ticket_kind kind, uint64_t first,
                                     uint32_t count, void *ret_inputs, int32_t *ret_targets)
{
    (void)kind; /* the same samples for both passes */
    return fixture_read(context, TICKET_TRAIN, first, count, ret_inputs, ret_targets);
}

static inline double gradient_loss(struct executor_fixture *f)
{
    static const struct executor_hooks none = {0};
    const struct executor_samples samples = {f, gradient_read, f->train.slot_samples};
    const struct ticket ticket = {.kind = TICKET_VALIDATE};
    struct executor_loss loss;
    assert_int_equal(executor_run(f->executor, &ticket, &samples, &none, &loss), ERR_OK);
    return loss.loss_sum;
}

/* The loss' slope along `direction` of one parameter, from both sides. */
static inline double gradient_slope(struct executor_fixture *f, uint32_t parameter,
                                    const double *direction, double step)
{
    float *weights = executor_weights(f->executor, parameter);
    uint64_t count = f->model.parameters[parameter].weights;
    float *kept = malloc(count * sizeof *kept);
    memcpy(kept, weights, count * sizeof *kept);
    double losses[2];
    for (int side = 0; side < 2; side++) {
        for (uint64_t i = 0; i < count; i++)
            weights[i] = (float)((double)kept[i] + (side ? -step : step) * direction[i]);
        losses[side] = gradient_loss(f);
    }
    memcpy(weights, kept, count * sizeof *kept);
    free(kept);
    return (losses[0] - losses[1]) / (2 * step);
}

/* Of one parameter: along its gradient, and along a random direction. */
static inline void gradient_check(struct executor_fixture *f, uint32_t parameter)
{
    const double step = 1e-3;
    const struct model_parameter *p = &f->model.parameters[parameter];
    scoped(free_scoped) double *gradient = calloc(p->weights, sizeof *gradient);
    scoped(free_scoped) double *direction = calloc(p->weights, sizeof *direction);
    struct rand_state state = {parameter};
    double norm = 0, random_norm = 0, random_slope = 0;
    for (uint64_t i = 0; i < p->weights; i++) {
        for (uint32_t part = 0; part < p->parts; part++)
            gradient[i] += (double)executor_gradient(f->executor, parameter, part)[i];
        norm += gradient[i] * gradient[i];
        direction[i] = rand_unit(&state) - 0.5;
        random_norm += direction[i] * direction[i];
        random_slope += direction[i] * gradient[i];
    }
    norm = sqrt(norm);
    random_norm = sqrt(random_norm);
    assert_true(norm > 0.05);
    for (uint64_t i = 0; i < p->weights; i++) {
        gradient[i] /= norm;
        direction[i] /= random_norm;
    }
    double along = gradient_slope(f, parameter, gradient, step);
    double random = gradient_slope(f, parameter, direction, step);
    if (!(fabs(along - norm) <= 2e-3 * norm + 2e-3))
        fail_msg("%s: slope %g along a gradient of %g", p->name, along, norm);
    if (!(fabs(random - random_slope / random_norm) <= 2e-3 * norm + 2e-3))
        fail_msg("%s: slope %g, predicted %g", p->name, random, random_slope / random_norm);
}

static inline void gradient_check_all(struct spec_model settings)
{
    struct executor_fixture f = {.settings = settings};
    executor_set_up(&f);
    fixture_run(&f, f.executor, fixture_ticket(0, 0, 0));
    for (uint32_t parameter = 0; parameter < f.model.loss_parameter; parameter++)
        gradient_check(&f, parameter);
    executor_tear_down(&f);
}

/* Of the parameter whose rows behind the vocabulary are padding: no gradient, and no influence. */
static inline void padding_check(struct executor_fixture *f, const char *name)
{
    uint32_t number = parameter_named(&f->model, name);
    const struct model_parameter *p = &f->model.parameters[number];
    uint64_t first = (uint64_t)p->shape[0] * p->cols;
    assert_true(first < p->weights);
    struct executor_loss before = fixture_run(f, f->executor, fixture_ticket(0, 0, 0));
    for (uint64_t i = first; i < p->weights; i++) {
        for (uint32_t part = 0; part < p->parts; part++)
            assert_true(executor_gradient(f->executor, number, part)[i] == 0);
        executor_weights(f->executor, number)[i] = 9;
    }
    struct executor_loss after = fixture_run(f, f->executor, fixture_ticket(0, 0, 0));
    assert_true(after.loss_sum == before.loss_sum);
}

#endif
