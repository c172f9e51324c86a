/* A commit's scalars and a run's settings, as each optimizer's kernel gets them. */
#include "tests/unit/unit.h"

#include "common/rand.h"
#include "server/shard/optimizer.h"

#include <math.h>

enum { N = 19 };

/* A kernel table that notes what it is called with. */
static struct {
    struct kernels_sgd sgd;
    struct kernels_momentum momentum;
    struct kernels_adamw adamw;
    float mean_scale;
    const void *state[2];
    enum kernels_format format;
} seen;

static void note_sgd(const struct kernels *k, float *w, void *published, enum kernels_format format,
                     const float *g, const struct kernels_sgd *step, int64_t n)
{
    (void)k, (void)w, (void)published, (void)g;
    assert_int_equal(n, N);
    seen.format = format;
    seen.sgd = *step;
}

static void note_momentum(const struct kernels *k, float *w, float *m, void *published,
                          enum kernels_format format, const float *g,
                          const struct kernels_momentum *step, int64_t n)
{
    (void)k, (void)w, (void)published, (void)g, (void)n, (void)format;
    seen.state[0] = m;
    seen.momentum = *step;
}

static void note_adamw(const struct kernels *k, float *w, float *m, float *v, void *published,
                       enum kernels_format format, const float *g, const struct kernels_adamw *step,
                       int64_t n)
{
    (void)k, (void)w, (void)published, (void)g, (void)n;
    seen.format = format;
    seen.state[0] = m;
    seen.state[1] = v;
    seen.adamw = *step;
}

static void note_mean(const struct kernels *k, float *w, void *published,
                      enum kernels_format format, const float *g, float scale, int64_t n)
{
    (void)k, (void)w, (void)published, (void)g, (void)n, (void)format;
    seen.mean_scale = scale;
}

static const struct kernels table = {
    .sgd = note_sgd, .momentum = note_momentum, .adamw = note_adamw, .mean = note_mean};

static float arrays[5][N];
static const struct commit commit = {
    .apply = true, .scale = 0.125f, .lr = 0.25f, .bias1 = 0.5f, .bias2 = 0.0625f};

static struct optimizer_chunk chunk(enum model_rule rule, bool decay)
{
    return (struct optimizer_chunk){.rule = rule,
                                    .decay = decay,
                                    .n = N,
                                    .weights = arrays[0],
                                    .state = {arrays[1], arrays[2]},
                                    .sum = arrays[3],
                                    .published = arrays[4]};
}

TEST(states_are_counted)
{
    assert_int_equal(optimizer_states(SPEC_SGD), 0);
    assert_int_equal(optimizer_states(SPEC_MOMENTUM), 1);
    assert_int_equal(optimizer_states(SPEC_ADAMW), 2);
}

TEST(sgd_decays_what_decays)
{
    struct spec_optimizer settings = {.kind = SPEC_SGD, .weight_decay = 0.5};
    struct optimizer_chunk with = chunk(MODEL_OPTIMIZER, true), without = with;
    without.decay = false;
    optimizer_apply(&table, &settings, &commit, 4, &with);
    assert_true(seen.sgd.scale == 0.125f && seen.sgd.lr == 0.25f && seen.sgd.weight_decay == 0.5f);
    assert_int_equal(seen.format, KERNELS_BF16);
    optimizer_apply(&table, &settings, &commit, 4, &without);
    assert_true(seen.sgd.weight_decay == 0);
    without.published = NULL;
    optimizer_apply(&table, &settings, &commit, 4, &without);
    assert_int_equal(seen.format, KERNELS_NONE);
}

TEST(momentum_gets_its_settings)
{
    struct spec_optimizer settings = {
        .kind = SPEC_MOMENTUM, .weight_decay = 0.5, .momentum = 0.75, .nesterov = true};
    struct optimizer_chunk work = chunk(MODEL_OPTIMIZER, true);
    optimizer_apply(&table, &settings, &commit, 4, &work);
    assert_true(seen.momentum.momentum == 0.75f && seen.momentum.nesterov);
    assert_true(seen.momentum.weight_decay == 0.5f && seen.momentum.lr == 0.25f);
    assert_ptr_equal(seen.state[0], arrays[1]);
}

TEST(adamw_gets_its_scalars_rounded_once)
{
    struct spec_optimizer settings = {
        .kind = SPEC_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1};
    struct optimizer_chunk work = chunk(MODEL_OPTIMIZER, true);
    optimizer_apply(&table, &settings, &commit, 4, &work);
    assert_true(seen.adamw.scale == 0.125f);
    assert_true(seen.adamw.decay == (float)(1 - 0.25 * 0.1));
    assert_true(seen.adamw.beta1 == 0.9f && seen.adamw.one_minus_beta1 == (float)(1 - 0.9));
    assert_true(seen.adamw.beta2 == 0.95f && seen.adamw.one_minus_beta2 == (float)(1 - 0.95));
    assert_true(seen.adamw.rate == 0.5f); /* lr / bias1 */
    assert_true(seen.adamw.root == 4.0f); /* 1 / sqrt(bias2) */
    assert_true(seen.adamw.eps == 1e-8f);
    assert_ptr_equal(seen.state[0], arrays[1]);
    assert_ptr_equal(seen.state[1], arrays[2]);
    work.decay = false;
    optimizer_apply(&table, &settings, &commit, 4, &work);
    assert_true(seen.adamw.decay == 1);
}

TEST(a_mean_divides_by_the_slots)
{
    struct spec_optimizer settings = {.kind = SPEC_ADAMW};
    struct optimizer_chunk work = chunk(MODEL_MEAN, false);
    optimizer_apply(&table, &settings, &commit, 6, &work);
    assert_true(seen.mean_scale == (float)(1.0 / 6));
}

/* Weights on whole lines; state that is not. */
TEST(what_is_updated_apart_has_the_bits_of_what_is_updated_in_place)
{
    enum { COUNT = 4097 };
    static float from[3 * COUNT], place[3 * COUNT], kept[3 * COUNT], sum[COUNT];
    static _Alignas(64) float apart[3 * COUNT];
    static uint8_t published[2][COUNT * 4];
    struct kernels_options options = {.backend = KERNELS_CPU};
    const struct kernels *kernels;
    char reason[256];
    struct rand_state rand = {7};
    assert_true(kernels_new(&options, &kernels, reason, sizeof reason));
    for (uint32_t i = 0; i < 3 * COUNT; i++)
        from[i] = (float)rand_unit(&rand);
    memcpy(sum, from + COUNT, sizeof sum);
    for (int kind = SPEC_SGD; kind <= SPEC_ADAMW + 1; kind++) {
        bool mean = kind > SPEC_ADAMW;
        struct spec_optimizer settings = {.kind =
                                              mean ? SPEC_ADAMW : (enum spec_optimizer_kind)kind,
                                          .betas = {0.9, 0.95},
                                          .eps = 1e-8,
                                          .momentum = 0.75,
                                          .weight_decay = 0.1};
        size_t bytes = (1 + optimizer_states(settings.kind)) * (size_t)COUNT * sizeof(float);
        struct optimizer_chunk work = {.rule = mean ? MODEL_MEAN : MODEL_OPTIMIZER,
                                       .decay = true,
                                       .n = COUNT,
                                       .weights = place,
                                       .state = {place + COUNT, place + 2 * COUNT},
                                       .sum = sum,
                                       .published = published[0]};
        memcpy(place, from, sizeof place);
        optimizer_apply(kernels, &settings, &commit, 4, &work);
        uint32_t states = optimizer_states(settings.kind);
        memcpy(kept, from, sizeof kept);
        work.weights = kept;
        work.state[0] = kept + COUNT;
        work.state[1] = kept + 2 * COUNT;
        work.apart = (struct kernels_apart){apart, states > 0 ? apart + COUNT : NULL,
                                            states > 1 ? apart + 2 * COUNT : NULL};
        work.published = published[1];
        optimizer_apply(kernels, &settings, &commit, 4, &work);
        assert_memory_equal(apart, place, bytes);
        assert_memory_equal(kept, from, sizeof kept);
        assert_memory_equal(published[1], published[0], COUNT * 2);
    }
    kernels_free(kernels);
}
