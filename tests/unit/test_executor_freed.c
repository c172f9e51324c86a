/* Gradients that are freed when the servers have acknowledged them: with streamed weights, unit by
 * unit. */
#include "tests/unit/executor_fixture.h"

/* Weights come from an executor that has them all; gradients are kept as they were pushed. */
struct streaming {
    struct executor_fixture *f;
    struct executor *executor;
    float **pushed;               /* (uses) owned */
    uint32_t awaits;              /* a bit for each unit that is pushed and not acknowledged */
    uint32_t awaits_max, awaited; /* most at once; how often the executor waited */
    uint32_t fail;                /* unit + 1: that is not acknowledged */
};

static uint64_t weights_of(const struct streaming *s, uint32_t use)
{
    return s->f->model.parameters[s->f->model.uses[use].parameter].weights;
}

static enum err pull(void *context, uint32_t unit)
{
    const struct streaming *s = context;
    const struct model_unit *u = &s->f->model.units[unit];
    for (uint32_t use = u->use_first; use < u->use_first + u->uses_count; use++) {
        uint32_t parameter = s->f->model.uses[use].parameter;
        memcpy(executor_weights(s->executor, parameter),
               executor_weights(s->f->executor, parameter), weights_of(s, use) * sizeof(float));
    }
    return ERR_OK;
}

/* What is not acknowledged may be encoded again: it is what was pushed. */
static void assert_kept(const struct streaming *s)
{
    for (uint32_t unit = 0; unit < s->f->model.units_count; unit++) {
        const struct model_unit *u = &s->f->model.units[unit];
        bool awaits = s->awaits & UINT32_C(1) << unit;
        for (uint32_t use = u->use_first; awaits && use < u->use_first + u->uses_count; use++)
            assert_memory_equal(executor_gradient(s->executor, s->f->model.uses[use].parameter,
                                                  s->f->model.uses[use].part),
                                s->pushed[use], weights_of(s, use) * sizeof(float));
    }
}

static enum err push(void *context, uint32_t unit, struct node node)
{
    (void)node;
    struct streaming *s = context;
    const struct model_unit *u = &s->f->model.units[unit];
    for (uint32_t use = u->use_first; use < u->use_first + u->uses_count; use++) {
        size_t bytes = weights_of(s, use) * sizeof(float);
        s->pushed[use] = malloc(bytes);
        memcpy(s->pushed[use],
               executor_gradient(s->executor, s->f->model.uses[use].parameter,
                                 s->f->model.uses[use].part),
               bytes);
    }
    s->awaits |= UINT32_C(1) << unit;
    uint32_t awaits = (uint32_t)__builtin_popcount(s->awaits);
    s->awaits_max = awaits > s->awaits_max ? awaits : s->awaits_max;
    assert_kept(s);
    return ERR_OK;
}

static enum err acknowledged(void *context, uint32_t unit)
{
    struct streaming *s = context;
    assert_true(s->awaits & UINT32_C(1) << unit);
    assert_kept(s);
    s->awaits &= ~(UINT32_C(1) << unit);
    s->awaited++;
    return s->fail == unit + 1 ? ERR_CANCELLED : ERR_OK;
}

static enum err run_streaming(struct executor_fixture *f, struct executor *executor,
                              struct streaming *s, struct executor_loss *ret_loss)
{
    const struct executor_hooks hooks = {
        .context = s, .pull = pull, .push = push, .acknowledged = acknowledged};
    const struct ticket ticket = fixture_ticket(3, 0, 2);
    s->f = f;
    s->executor = executor;
    s->pushed = calloc(f->model.uses_count, sizeof *s->pushed);
    return executor_run(executor, &ticket, &f->samples, &hooks, ret_loss);
}

static void release(struct streaming *s)
{
    for (uint32_t use = 0; use < s->f->model.uses_count; use++)
        free(s->pushed[use]);
    free(s->pushed);
}

/* `f` keeps its weights; the executors made from now on stream them. */
static struct executor *streamed(struct executor_fixture *f, enum spec_order order,
                                 uint32_t prefetch, uint32_t node_slots_max)
{
    struct spec_train train = f->train;
    train.residency =
        (struct spec_residency){.weights = SPEC_STREAMED, .order = order, .prefetch = prefetch};
    return fixture_executor_of(
        f, (struct executor_options){.train = &train, .node_slots_max = node_slots_max});
}

static void same_bits(struct executor_fixture *f, uint32_t prefetch)
{
    struct executor *executor = streamed(f, SPEC_BY_UNIT, prefetch, 1);
    struct executor_loss loss, wanted = fixture_run(f, f->executor, fixture_ticket(3, 0, 2));
    struct streaming s = {0};
    assert_int_equal(run_streaming(f, executor, &s, &loss), ERR_OK);
    assert_true(loss.loss_sum == wanted.loss_sum);
    assert_int_equal(loss.samples, wanted.samples);
    assert_int_equal(loss.correct, wanted.correct);
    for (uint32_t use = 0; use < f->model.uses_count; use++)
        assert_memory_equal(
            s.pushed[use],
            executor_gradient(f->executor, f->model.uses[use].parameter, f->model.uses[use].part),
            weights_of(&s, use) * sizeof(float));
    assert_int_equal(s.awaits_max, prefetch + 1);
    assert_int_equal(s.awaited, f->model.units_count - 1 - prefetch);
    assert_true(executor_memory(executor).freed);
    release(&s);
}

TEST_F(freed_gradients_have_the_bits_of_those_that_stay, executor, .settings = fixture_gpt())
{
    same_bits(f, 0);
    same_bits(f, 1);
}

TEST_F(fewer_units_have_gradients_at_once, executor, .settings = fixture_gpt())
{
    uint64_t whole = executor_memory(streamed(f, SPEC_BY_MICROBATCH, 0, 1)).gradients;
    uint64_t one = executor_memory(streamed(f, SPEC_BY_UNIT, 0, 1)).gradients;
    uint64_t two = executor_memory(streamed(f, SPEC_BY_UNIT, 1, 1)).gradients;
    assert_true(one < two && two < whole);
}

/* Sums of slots stay, and a node's rows are walked again: no unit is waited for. */
TEST_F(a_node_of_several_slots_keeps_its_gradients, executor, .settings = fixture_mlp())
{
    struct executor *executor = streamed(f, SPEC_BY_UNIT, 0, 4);
    assert_false(executor_memory(executor).freed);
    assert_int_equal(executor_memory(executor).gradient_sets, 3);
    struct streaming s = {0};
    struct executor_loss loss;
    assert_int_equal(run_streaming(f, executor, &s, &loss), ERR_OK);
    assert_int_equal(s.awaited, 0);
    release(&s);
}

TEST_F(a_wait_that_is_cancelled_ends_the_run, executor, .settings = fixture_mlp())
{
    struct executor *executor = streamed(f, SPEC_BY_UNIT, 0, 1);
    struct streaming s = {.fail = 2};
    struct executor_loss loss;
    assert_int_equal(run_streaming(f, executor, &s, &loss), ERR_CANCELLED);
    assert_int_equal(s.awaited, 2);
    release(&s);
    s = (struct streaming){0};
    assert_int_equal(run_streaming(f, executor, &s, &loss), ERR_OK);
    release(&s);
}
