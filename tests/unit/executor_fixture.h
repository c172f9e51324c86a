/* A small model with its executor, initial weights and made-up samples. */
#ifndef ROOST_TESTS_UNIT_EXECUTOR_FIXTURE_H
#define ROOST_TESTS_UNIT_EXECUTOR_FIXTURE_H

#include "tests/unit/unit.h"

#include "common/model/pieces.h"
#include "common/rand.h"
#include "worker/executor.h"

struct executor_fixture {
    struct spec_model settings;
    struct spec_train train;
    const struct kernels *k;
    struct model model;
    struct executor *executor;
    struct executor_samples samples;
    struct executor *made[8]; /* by fixture_executor_of() */
    uint32_t made_count;
};

static inline struct spec_model fixture_gpt(void)
{
    return (struct spec_model){.kind = SPEC_GPT,
                               .layers = 2,
                               .heads = 2,
                               .width = 16,
                               .context = 7,
                               .vocabulary = 37,
                               .tensor_max = 8};
}

static inline struct spec_model fixture_llama(void)
{
    return (struct spec_model){.kind = SPEC_LLAMA,
                               .layers = 2,
                               .heads = 4,
                               .kv_heads = 2,
                               .width = 16,
                               .hidden = 24,
                               .context = 7,
                               .vocabulary = 37,
                               .tensor_max = 8};
}

static inline struct spec_model fixture_mlp(void)
{
    return (struct spec_model){.kind = SPEC_MLP,
                               .sizes_count = 4,
                               .sizes = {5, 11, 9, 4},
                               .activation = SPEC_TANH,
                               .tensor_max = 8};
}

/* Of so many words: an embedding of which a slot, which has 28 tokens, has few rows. */
static inline struct spec_model fixture_words(struct spec_model settings, uint32_t words)
{
    settings.vocabulary = words;
    return settings;
}

static inline struct spec_train fixture_train(void)
{
    return (struct spec_train){
        .slots = 6,
        .slot_samples = 4,
        .microbatch = 2,
        .seed = 7,
        .threads = 1,
        .logits_bytes_max = 1 << 20,
    };
}

/* Sample n of the made-up set is a function of n alone; the held-out set is another one. */
static inline enum err fixture_read(void *context, enum ticket_kind kind, uint64_t first,
                                    uint32_t count, void *ret_inputs, int32_t *ret_targets)
{
    const struct executor_fixture *f = context;
    const struct model_sample about = model_sample(&f->settings);
    uint32_t inputs = about.inputs, classes = about.classes;
    struct rand_state state = {0};
    for (uint32_t i = 0; i < count; i++) {
        state.state = (first + i) * 1000 + kind;
        for (uint32_t j = 0; j < inputs; j++) {
            if (about.tokens)
                ((int32_t *)ret_inputs)[i * inputs + j] = (int32_t)rand_below(&state, classes);
            else
                ((float *)ret_inputs)[i * inputs + j] = (float)rand_unit(&state) - 0.5F;
        }
        for (uint32_t j = 0; j < about.predictions; j++)
            *ret_targets++ = (int32_t)rand_below(&state, classes);
    }
    return ERR_OK;
}

static inline void fixture_weights(struct executor_fixture *f, struct executor *executor)
{
    float values[MODEL_CHUNK_WEIGHTS_MAX];
    for (uint32_t chunk = 0; chunk < f->model.chunks_count; chunk++) {
        model_initial(&f->model, f->train.seed, chunk, values);
        /* Larger than real ones, and no two parameters alike: no gradient is close to nothing, and
         * none can stand for another. */
        struct rand_state state = {chunk};
        for (uint32_t i = 0; i < f->model.chunks[chunk].weights; i++)
            values[i] = 3 * values[i] + (float)(rand_unit(&state) - 0.5);
        const struct model_chunk *block = &f->model.chunks[chunk];
        float *weights = executor_weights(executor, block->parameter);
        for (uint32_t r = 0; r < block->rows; r++)
            memcpy(weights + pieces_row_offset(&f->model, chunk, r), values + r * block->cols,
                   block->cols * sizeof *values);
    }
}

/* Of the fixture's kernels and model, and of its settings where the options have none; without
 * weights. Freed with the fixture. */
static inline struct executor *fixture_executor_of(struct executor_fixture *f,
                                                   struct executor_options options)
{
    struct executor *executor = NULL;
    struct reason reason = {.text = ""};
    options.kernels = f->k;
    options.model = &f->model;
    options.train = options.train != NULL ? options.train : &f->train;
    enum err err = executor_new(&options, &executor, &reason);
    if (err != ERR_OK)
        fail_msg("%s %s", err_name(err), reason.text);
    assert_true(f->made_count < sizeof f->made / sizeof f->made[0]);
    return f->made[f->made_count++] = executor;
}

static inline struct executor *fixture_executor(struct executor_fixture *f, uint32_t node_slots_max)
{
    const struct executor_options options = {.node_slots_max = node_slots_max};
    struct executor *executor = fixture_executor_of(f, options);
    fixture_weights(f, executor);
    return executor;
}

static inline void executor_set_up(struct executor_fixture *f)
{
    struct reason reason = {.text = ""};
    char why[256];
    if (f->train.slots == 0)
        f->train = fixture_train();
    if (!kernels_new(&(struct kernels_options){.gemm_core = "auto"}, &f->k, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(model_init(&f->model, &f->settings, &reason), ERR_OK);
    f->samples = (struct executor_samples){.context = f, .read = fixture_read, .held_out = 10};
    f->executor = fixture_executor(f, 8);
}

static inline void executor_tear_down(struct executor_fixture *f)
{
    while (f->made_count > 0)
        executor_free(f->made[--f->made_count]);
    model_release(&f->model);
    kernels_free(f->k);
}

static inline struct ticket fixture_ticket(uint64_t step, uint32_t level, uint32_t index)
{
    return (struct ticket){.kind = TICKET_TRAIN, .step = step, .node = {level, index}};
}

static inline struct executor_loss fixture_run(struct executor_fixture *f,
                                               struct executor *executor, struct ticket ticket)
{
    static const struct executor_hooks none = {0};
    struct executor_loss loss;
    assert_int_equal(executor_run(executor, &ticket, &f->samples, &none, &loss), ERR_OK);
    return loss;
}

/* Floats of all gradients of all uses, and a copy of them. */
static inline size_t fixture_gradient_floats(const struct executor_fixture *f)
{
    size_t floats = 0;
    for (uint32_t use = 0; use < f->model.uses_count; use++)
        floats += f->model.parameters[f->model.uses[use].parameter].weights;
    return floats;
}

static inline float *fixture_gradients(const struct executor_fixture *f,
                                       const struct executor *executor)
{
    float *copy = malloc(fixture_gradient_floats(f) * sizeof *copy);
    float *at = copy;
    for (uint32_t use = 0; use < f->model.uses_count; use++) {
        struct model_use u = f->model.uses[use];
        uint64_t weights = f->model.parameters[u.parameter].weights;
        memcpy(at, executor_gradient(executor, u.parameter, u.part), weights * sizeof *at);
        at += weights;
    }
    return copy;
}

#endif
