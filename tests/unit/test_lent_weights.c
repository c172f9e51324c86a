/* Weights that stay where their server published them, and when they do not. */
#include "tests/unit/executor_fixture.h"

#include "tests/models.h"
#include "worker/lent_weights.h"

enum { CHUNKS = 3, SLICES = 2 };

/* A model whose first layer's weight has three chunks, and a block of another process with it. */
struct lent_fixture {
    struct executor_fixture of;
    struct lent_weights lent;
    uint32_t parameter, first, unit;
    float *block; /* the whole weight */
    struct slice slices[CHUNKS][SLICES];
    struct rpc_message messages[CHUNKS]; /* one reference each */
};

static uint32_t weights_of(const struct lent_fixture *f, uint32_t i)
{
    return f->of.model.chunks[f->first + i].weights;
}

/* The chunk's bytes come behind a header, as from a server. */
static void lend(struct lent_fixture *f, uint32_t i, const float *values)
{
    static const uint8_t header[5];
    f->slices[i][0] = (struct slice){header, sizeof header};
    f->slices[i][1] = (struct slice){(const uint8_t *)values, weights_of(f, i) * sizeof *values};
    f->messages[i] = (struct rpc_message){.lent = true,
                                          .slice_count = SLICES,
                                          .bytes = sizeof header + f->slices[i][1].bytes,
                                          .slices = f->slices[i]};
    atomic_init(&f->messages[i].references, 1);
}

static void lent_set_up(struct lent_fixture *f)
{
    f->of.settings = (struct spec_model){
        .kind = SPEC_MLP, .sizes_count = 3, .sizes = {512, 600, 4}, .tensor_max = 1};
    executor_set_up(&f->of);
    const struct model *model = &f->of.model;
    f->parameter = parameter_named(model, "fc1.weight");
    const struct model_parameter *weight = &model->parameters[f->parameter];
    assert_int_equal(weight->chunks_count, CHUNKS);
    f->first = weight->chunk_first;
    f->unit = weight->part_units[0];
    f->block = aligned_alloc(64, weight->weights * sizeof *f->block);
    for (uint64_t i = 0; i < weight->weights; i++)
        f->block[i] = (float)(i % 1000);
    const float *values = f->block;
    for (uint32_t i = 0; i < CHUNKS; values += weights_of(f, i++))
        lend(f, i, values);
    assert_int_equal(lent_weights_init(&f->lent, f->of.executor, model), ERR_OK);
    assert_non_null(f->lent.chunks);
}

static void lent_tear_down(struct lent_fixture *f)
{
    lent_weights_release(&f->lent);
    for (uint32_t i = 0; i < CHUNKS; i++)
        assert_int_equal(atomic_load(&f->messages[i].references), 1);
    free(f->block);
    executor_tear_down(&f->of);
}

/* As pull_receive() does. */
static bool receive(struct lent_fixture *f, uint32_t i)
{
    struct cursor cursor = {f->slices[i], SLICES, 0, 0};
    cursor_skip(&cursor, f->slices[i][0].bytes);
    bool kept = lent_weights_keep(&f->lent, f->first + i, &cursor, &f->messages[i]);
    if (!kept)
        executor_decode(f->of.executor, f->first + i, CODEC_FP32, &cursor);
    assert_int_equal(cursor_bytes(&cursor), 0);
    return kept;
}

static void has_weights(const struct lent_fixture *f, bool where_they_lie)
{
    const float *weights = executor_weights(f->of.executor, f->parameter);
    assert_int_equal(weights == f->block, where_they_lie);
    assert_memory_equal(weights, f->block,
                        f->of.model.parameters[f->parameter].weights * sizeof *weights);
}

TEST_F(a_parameter_whose_chunks_lie_together_is_used_there, lent)
{
    for (uint32_t i = CHUNKS; i-- > 0;)
        assert_true(receive(f, i));
    lent_weights_settle(&f->lent, f->unit);
    has_weights(f, true);
    lent_weights_settle(&f->lent, f->unit); /* for the next ticket of that version */
    has_weights(f, true);
    fixture_run(&f->of, f->of.executor, fixture_ticket(0, 0, 0)); /* reads it alone */
    has_weights(f, true);
}

TEST_F(what_was_given_back_comes_again, lent)
{
    for (uint32_t i = 0; i < CHUNKS; i++)
        assert_true(receive(f, i));
    lent_weights_settle(&f->lent, f->unit);
    assert_true(lent_weights_has(&f->lent, f->first));
    lent_weights_give_back(&f->lent);
    assert_false(lent_weights_has(&f->lent, f->first));
    assert_true(executor_weights(f->of.executor, f->parameter) != f->block);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        assert_int_equal(atomic_load(&f->messages[i].references), 1);
        assert_true(receive(f, i));
    }
    lent_weights_settle(&f->lent, f->unit);
    has_weights(f, true);
}

TEST_F(chunks_that_lie_apart_are_decoded, lent)
{
    scoped(free_scoped) float *apart = malloc(weights_of(f, 1) * sizeof *apart);
    memcpy(apart, f->block + weights_of(f, 0), weights_of(f, 1) * sizeof *apart);
    lend(f, 1, apart);
    for (uint32_t i = 0; i < CHUNKS; i++)
        assert_true(receive(f, i));
    lent_weights_settle(&f->lent, f->unit);
    has_weights(f, false);
    assert_int_equal(atomic_load(&f->messages[0].references), 1); /* given back */
}

TEST_F(a_chunk_that_comes_over_the_network_brings_the_others_with_it, lent)
{
    for (uint32_t i = 0; i < CHUNKS; i++)
        assert_true(receive(f, i));
    lent_weights_settle(&f->lent, f->unit);
    f->messages[2].lent = false;
    assert_true(receive(f, 0) && receive(f, 1) && !receive(f, 2));
    lent_weights_settle(&f->lent, f->unit);
    has_weights(f, false);
    f->messages[2].lent = true;
    assert_true(receive(f, 0) && receive(f, 1) && receive(f, 2));
    lent_weights_settle(&f->lent, f->unit);
    has_weights(f, true);
}

/* A block that does not begin where kernels want arrays to begin. */
TEST_F(a_parameter_that_is_not_aligned_is_decoded, lent)
{
    uint64_t weights = f->of.model.parameters[f->parameter].weights;
    scoped(free_scoped) float *moved = aligned_alloc(64, (weights + 16) * sizeof *moved);
    memcpy(moved + 1, f->block, weights * sizeof *moved);
    const float *values = moved + 1;
    for (uint32_t i = 0; i < CHUNKS; values += weights_of(f, i++)) {
        lend(f, i, values);
        assert_true(receive(f, i));
    }
    lent_weights_settle(&f->lent, f->unit);
    has_weights(f, false);
}

TEST_F(a_chunk_in_two_slices_is_decoded, lent)
{
    struct slice *last = &f->slices[0][1];
    struct slice slices[] = {
        f->slices[0][0], {last->data, 100}, {last->data + 100, last->bytes - 100}};
    struct cursor cursor = {slices, 3, 0, 0};
    cursor_skip(&cursor, slices[0].bytes);
    assert_false(lent_weights_keep(&f->lent, f->first, &cursor, &f->messages[0]));
    assert_int_equal(cursor_bytes(&cursor), last->bytes);
}
