/* The digest of a run's state. */
#include "tests/unit/unit.h"

#include "common/files/state_digest.h"
#include "tests/models.h"

/* Value of (parameter, array, place in the storage); one of them may be changed. */
struct source {
    const struct model *model;
    uint64_t changed_parameter, changed_array, changed_place;
};

static float value(const struct source *source, uint32_t parameter, uint32_t array, uint64_t place)
{
    bool changed = parameter == source->changed_parameter && array == source->changed_array &&
                   place == source->changed_place;
    return (float)(parameter * 1000 + array * 100) + (float)place / 1024 + (changed ? 1 : 0);
}

static enum err read_values(void *context, uint32_t chunk, uint32_t array, float *ret_values)
{
    const struct source *source = context;
    const struct model_chunk *c = &source->model->chunks[chunk];
    for (uint32_t row = 0; row < c->rows; row++)
        for (uint32_t col = 0; col < c->cols; col++)
            *ret_values++ = value(source, c->parameter, array,
                                  model_row_offset(source->model, chunk, row) + col);
    return ERR_OK;
}

static enum err read_nothing(void *context, uint32_t chunk, uint32_t array, float *ret_values)
{
    (void)context;
    (void)array;
    (void)ret_values;
    return chunk == 3 ? ERR_CORRUPT : ERR_OK;
}

static void init(struct model *model, uint32_t tensor_max)
{
    const struct spec_model settings = {
        .kind = SPEC_MLP, .sizes_count = 3, .sizes = {96, 192, 128}, .tensor_max = tensor_max};
    assert_int_equal(model_init(model, &settings, NULL), ERR_OK);
}

static struct digest digest_of(const struct model *model, struct source changed)
{
    changed.model = model;
    const struct state_digest_source source = {
        .context = &changed, .read = read_values, .arrays = 3};
    struct digest digest;
    assert_int_equal(state_digest(model, &source, &digest), ERR_OK);
    return digest;
}

static const struct source unchanged = {.changed_parameter = UINT64_MAX};

/* fc1.bias, fc1.weight, fc2.bias, fc2.weight; of each weights, m, v. */
static struct digest by_hand(const struct model *model)
{
    static const char *const names[] = {"fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight"};
    scoped(buf_release) struct buf buf = {0};
    for (int i = 0; i < 4; i++) {
        uint32_t parameter = parameter_named(model, names[i]);
        assert_true(parameter < model->parameters_count);
        for (uint32_t array = 0; array < 3; array++)
            for (uint64_t place = 0; place < model->parameters[parameter].weights; place++) {
                float v = value(&unchanged, parameter, array, place);
                assert_int_equal(buf_append(&buf, &v, sizeof v), ERR_OK);
            }
    }
    struct digest digest;
    assert_int_equal(digest_sha256(buf_slice(&buf), &digest), ERR_OK);
    return digest;
}

TEST(it_is_of_whole_arrays_in_the_order_of_names_whatever_the_grid)
{
    scoped(model_release) struct model fine = {0}, coarse = {0};
    init(&fine, 8);
    init(&coarse, 1);
    assert_true(fine.chunks_count > coarse.chunks_count);
    struct digest a = digest_of(&fine, unchanged), b = digest_of(&coarse, unchanged);
    struct digest c = by_hand(&fine);
    assert_memory_equal(&a, &b, sizeof a);
    assert_memory_equal(&a, &c, sizeof a);
}

TEST(every_value_counts)
{
    scoped(model_release) struct model model = {0};
    init(&model, 8);
    struct digest before = digest_of(&model, unchanged);
    for (uint32_t parameter = 0; parameter < model.loss_parameter; parameter++)
        for (uint32_t array = 0; array < 3; array++) {
            uint64_t last = model.parameters[parameter].weights - 1;
            struct source changed = {.changed_parameter = parameter,
                                     .changed_array = array,
                                     .changed_place = array % 2 ? 0 : last};
            struct digest after = digest_of(&model, changed);
            assert_memory_not_equal(&after, &before, sizeof after);
        }
}

TEST(an_error_of_the_source_is_passed_up)
{
    scoped(model_release) struct model model = {0};
    init(&model, 8);
    const struct state_digest_source source = {.read = read_nothing, .arrays = 1};
    struct digest digest;
    assert_int_equal(state_digest(&model, &source, &digest), ERR_CORRUPT);
}
