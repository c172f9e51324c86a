/* The optimizers against their formulas in double, and what they publish. */
#include "tests/unit/test_kernels.h"

enum { WEIGHTS = 77, STEPS = 10 };

struct problem {
    const struct kernels *k;
    float w[WEIGHTS], m[WEIGHTS], v[WEIGHTS], g[WEIGHTS];
    double exact_w[WEIGHTS], exact_m[WEIGHTS], exact_v[WEIGHTS];
};

static struct problem problem_make(void)
{
    struct problem p = {.k = kernels_for(KERNELS_ISA_AUTO)};
    for (uint32_t i = 0; i < WEIGHTS; i++)
        p.exact_w[i] = p.w[i] = hash_float(1, i);
    return p;
}

static void problem_gradient(struct problem *p, int step)
{
    for (uint32_t i = 0; i < WEIGHTS; i++)
        p->g[i] = 0.1f * hash_float(2 + (uint32_t)step, i);
}

static void assert_followed(struct problem *p)
{
    assert_true(distance(p->w, p->exact_w, WEIGHTS) < 5e-7);
    assert_true(distance(p->m, p->exact_m, WEIGHTS) < 5e-7);
    assert_true(distance(p->v, p->exact_v, WEIGHTS) < 5e-7);
    kernels_free(p->k);
}

TEST(sgd_is_its_formula)
{
    struct problem p = problem_make();
    const struct kernels_sgd settings = {.scale = 0.5f, .lr = 0.1f, .weight_decay = 0.01f};
    for (int step = 0; step < STEPS; step++) {
        problem_gradient(&p, step);
        p.k->sgd(p.k, p.w, NULL, KERNELS_NONE, p.g, &settings, WEIGHTS);
        for (int i = 0; i < WEIGHTS; i++)
            p.exact_w[i] -= 0.1 * (0.5 * p.g[i] + 0.01 * p.exact_w[i]);
    }
    assert_followed(&p);
}

static void momentum_with(bool nesterov)
{
    struct problem p = problem_make();
    const struct kernels_momentum settings = {0.5f, 0.1f, 0.01f, 0.9f, nesterov};
    for (int step = 0; step < STEPS; step++) {
        problem_gradient(&p, step);
        p.k->momentum(p.k, p.w, p.m, NULL, KERNELS_NONE, p.g, &settings, WEIGHTS);
        for (int i = 0; i < WEIGHTS; i++) {
            double d = 0.5 * p.g[i] + 0.01 * p.exact_w[i];
            p.exact_m[i] = 0.9 * p.exact_m[i] + d;
            p.exact_w[i] -= 0.1 * (nesterov ? d + 0.9 * p.exact_m[i] : p.exact_m[i]);
        }
    }
    assert_followed(&p);
}

TEST(momentum_is_its_formula)
{
    momentum_with(false);
    momentum_with(true);
}

static struct kernels_adamw adamw_settings(int t)
{
    return (struct kernels_adamw){
        .scale = 0.5f,
        .decay = (float)(1 - 1e-2 * 0.1),
        .beta1 = 0.9f,
        .one_minus_beta1 = (float)(1 - 0.9),
        .beta2 = 0.95f,
        .one_minus_beta2 = (float)(1 - 0.95),
        .rate = (float)(1e-2 / (1 - pow(0.9, t))),
        .root = (float)(1 / sqrt(1 - pow(0.95, t))),
        .eps = 1e-8f,
    };
}

TEST(adamw_is_its_formula)
{
    struct problem p = problem_make();
    for (int t = 1; t <= STEPS; t++) {
        problem_gradient(&p, t);
        struct kernels_adamw settings = adamw_settings(t);
        p.k->adamw(p.k, p.w, p.m, p.v, NULL, KERNELS_NONE, p.g, &settings, WEIGHTS);
        for (int i = 0; i < WEIGHTS; i++) {
            double g = 0.5 * p.g[i];
            p.exact_m[i] = 0.9 * p.exact_m[i] + 0.1 * g;
            p.exact_v[i] = 0.95 * p.exact_v[i] + 0.05 * g * g;
            double m = p.exact_m[i] / (1 - pow(0.9, t)), v = p.exact_v[i] / (1 - pow(0.95, t));
            p.exact_w[i] = p.exact_w[i] * (1 - 1e-2 * 0.1) - 1e-2 * m / (sqrt(v) + 1e-8);
        }
    }
    assert_followed(&p);
}

TEST_ON_CPU(a_weight_without_gradient_only_decays)
{
    struct kernels_adamw settings = adamw_settings(1);
    float w = 2, m = 0, v = 0, g = 0;
    k->adamw(k, &w, &m, &v, NULL, KERNELS_NONE, &g, &settings, 1);
    assert_true(w == 2 * settings.decay && m == 0 && v == 0);
}

TEST(mean_scales_the_sum)
{
    struct problem p = problem_make();
    problem_gradient(&p, 0);
    p.k->mean(p.k, p.w, NULL, KERNELS_NONE, p.g, 0.25f, WEIGHTS);
    for (int i = 0; i < WEIGHTS; i++)
        assert_true(p.w[i] == 0.25f * p.g[i]);
    kernels_free(p.k);
}

/* Runs all four once with `format`; `published` then holds what the last wrote. */
static void run_each(struct problem *p, enum kernels_format format, unsigned char *published,
                     int which)
{
    const struct kernels *k = p->k;
    const struct kernels_sgd sgd = {1, 0.1f, 0};
    const struct kernels_momentum momentum = {1, 0.1f, 0, 0.9f, true};
    struct kernels_adamw adamw = adamw_settings(1);
    switch (which) {
    case 0:
        k->sgd(k, p->w, published, format, p->g, &sgd, WEIGHTS);
        break;
    case 1:
        k->momentum(k, p->w, p->m, published, format, p->g, &momentum, WEIGHTS);
        break;
    case 2:
        k->adamw(k, p->w, p->m, p->v, published, format, p->g, &adamw, WEIGHTS);
        break;
    default:
        k->mean(k, p->w, published, format, p->g, 0.5f, WEIGHTS);
    }
}

TEST(what_is_published_is_the_new_weights)
{
    for (int which = 0; which < 4; which++) {
        struct problem p = problem_make();
        problem_gradient(&p, 0);
        unsigned char bytes[4 * WEIGHTS + 2], rounded[2 * WEIGHTS];
        memset(bytes, 0xee, sizeof bytes);
        run_each(&p, KERNELS_F32, bytes + 1, which);
        assert_memory_equal(bytes + 1, p.w, sizeof p.w);
        assert_true(bytes[0] == 0xee && bytes[1 + sizeof p.w] == 0xee);

        memset(bytes, 0xee, sizeof bytes);
        run_each(&p, KERNELS_BF16, bytes + 1, which);
        p.k->cast_to_bf16(p.k, rounded, p.w, WEIGHTS);
        assert_memory_equal(bytes + 1, rounded, sizeof rounded);
        assert_true(bytes[0] == 0xee && bytes[1 + sizeof rounded] == 0xee);
        kernels_free(p.k);
    }
}
