/* Initial weights from safetensors: every kind of number, both spellings of names, padding. */
#include "tests/models.h"
#include "tests/unit/folder.h"

#include "common/files/safetensors.h"
#include "server/disk/prepared.h"
#include "server/disk/restore.h"

#include <math.h>

static struct model gpt(void)
{
    return model_of(
        (struct spec_model){SPEC_GPT, .layers = 1, .heads = 2, .width = 8, .vocabulary = 5});
}

/* What stands at place (i, j) of a parameter in the file; small integers are exact in all kinds. */
static float value(uint32_t parameter, uint32_t i, uint32_t j)
{
    return (float)((parameter * 31 + i * 7 + j) % 200) - 100;
}

/* How the file differs from a right one. */
struct change {
    const char *prefix;
    enum safetensors_dtype dtype;
    uint32_t leave_out; /* a parameter; UINT32_MAX: none */
    uint32_t widen;     /* a parameter with one row too many; UINT32_MAX: none */
    const char *more;   /* a tensor besides, with the values of wte.weight; NULL: none */
    float more_offset;  /* added to its values */
};

static const struct change right = {
    .prefix = "", .dtype = SAFETENSORS_F32, .leave_out = UINT32_MAX, .widen = UINT32_MAX};

static uint16_t half_of(float value)
{
    if (value == 0)
        return 0;
    int exponent;
    float fraction = frexpf(fabsf(value), &exponent); /* in [0.5, 1) */
    uint32_t bits = (uint32_t)((exponent + 14) << 10) | ((uint32_t)(fraction * 2048) & 1023);
    return (uint16_t)(bits | (value < 0 ? 0x8000 : 0));
}

static void put_value(struct buf *out, enum safetensors_dtype dtype, float number)
{
    uint32_t bits;
    memcpy(&bits, &number, 4);
    uint16_t half = dtype == SAFETENSORS_F16 ? half_of(number) : (uint16_t)(bits >> 16);
    if (dtype == SAFETENSORS_F32)
        assert_int_equal(buf_append(out, &number, 4), ERR_OK);
    else
        assert_int_equal(buf_append(out, &half, 2), ERR_OK);
}

static const char *write_file(void **state, const struct model *model, const struct change *change)
{
    struct safetensors_tensor tensors[64];
    char names[64][80];
    uint32_t numbers[64];
    size_t count = 0;
    scoped(buf_release) struct buf file = {0};
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *about = &model->tensors[i];
        uint32_t p = about->parameter;
        if (p == change->leave_out)
            continue;
        snprintf(names[count], sizeof names[count], "%s%s", change->prefix, about->name);
        tensors[count] = (struct safetensors_tensor){
            .name = names[count],
            .dtype = change->dtype,
            .dims = about->dims,
            .shape = {about->shape[0] + (p == change->widen), about->shape[1]}};
        count++;
    }
    if (change->more != NULL) {
        tensors[count] = tensors[0]; /* of wte.weight */
        tensors[count++].name = change->more;
    }
    assert_int_equal(safetensors_put_header(&file, tensors, count, NULL), ERR_OK);
    for (size_t t = 0; t < count; t++) { /* they were put in writing order */
        bool more = tensors[t].name == change->more;
        numbers[t] = more ? 0 : model_find_tensor(model, tensors[t].name + strlen(change->prefix));
        uint64_t cols = tensors[t].dims == 2 ? tensors[t].shape[1] : 1;
        for (uint32_t i = 0; i < tensors[t].shape[0]; i++)
            for (uint32_t j = 0; j < cols; j++)
                put_value(&file, change->dtype,
                          value(numbers[t], i, j) + (more ? change->more_offset : 0));
    }
    return folder_write(state, "model.safetensors", file.data, file.bytes);
}

/* What the file has for a weight of the storage; 0: padding, or the loss. */
static float restored_value(const struct model *model, uint32_t parameter, uint32_t row,
                            uint32_t col)
{
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        if (tensor->parameter != parameter || row < tensor->row ||
            row >= tensor->row + tensor->rows)
            continue;
        return tensor->transpose ? value(i, col, row - tensor->row)
                                 : value(i, row - tensor->row, col);
    }
    return 0;
}

static void assert_restored(const struct model *model, const char *path)
{
    scoped(restore_free_scoped) struct restore *restore = NULL;
    struct reason reason;
    if (restore_open(path, model, &restore, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    for (uint32_t c = 0; c < model->chunks_count; c++) {
        const struct model_chunk *chunk = &model->chunks[c];
        float values[4096];
        assert_true(chunk->weights <= 4096);
        restore_chunk(restore, c, values);
        for (uint32_t r = 0; r < chunk->rows; r++) {
            for (uint32_t k = 0; k < chunk->cols; k++) {
                float expected =
                    restored_value(model, chunk->parameter, chunk->row + r, chunk->col + k);
                assert_true(values[r * chunk->cols + k] == expected);
            }
        }
    }
}

TEST_IN_FOLDER(every_kind_of_number_is_read)
{
    scoped(model_release) struct model model = gpt();
    const enum safetensors_dtype kinds[] = {SAFETENSORS_F32, SAFETENSORS_F16, SAFETENSORS_BF16};
    for (int i = 0; i < 3; i++) {
        struct change change = right;
        change.dtype = kinds[i];
        assert_restored(&model, write_file(state, &model, &change));
    }
}

TEST_IN_FOLDER(parts_of_a_parameter_are_read_from_tensors_of_their_own)
{
    scoped(model_release) struct model model =
        model_of((struct spec_model){SPEC_LLAMA, .layers = 1, .heads = 4, .kv_heads = 2, .width = 8,
                                     .hidden = 12, .vocabulary = 5});
    assert_restored(&model, write_file(state, &model, &right));
}

TEST_IN_FOLDER(names_may_have_the_state_dict_s_prefix)
{
    scoped(model_release) struct model model = gpt();
    struct change change = right;
    change.prefix = "transformer.";
    assert_restored(&model, write_file(state, &model, &change));
}

TEST_IN_FOLDER(halves_of_every_size_are_exact)
{ /* 0x0001 is 2^-24, 0x0400 2^-14, 0x7bff 65504 */
    scoped(model_release) struct model model = gpt();
    struct change change = right;
    change.dtype = SAFETENSORS_F16;
    const char *path = write_file(state, &model, &change);
    scoped(buf_release) struct buf file = {0};
    struct reason reason;
    assert_int_equal(file_read(path, 1 << 20, &file, &reason), ERR_OK);
    const uint16_t halves[] = {0x0001, 0x8001, 0x03ff, 0x0400, 0x3c00, 0x7bff, 0xfbff, 0x7c00};
    const float floats[] = {0x1p-24f, -0x1p-24f, 0x1p-14f - 0x1p-24f, 0x1p-14f, 1, 65504,
                            -65504,   INFINITY};
    scoped(safetensors_release) struct safetensors header = {0};
    assert_int_equal(safetensors_parse("f", buf_slice(&file), file.bytes, &header, &reason),
                     ERR_OK);
    const struct safetensors_tensor *wpe = safetensors_find(&header, "wpe.weight");
    memcpy(file.data + header.buffer_offset + wpe->begin, halves, sizeof halves);
    path = folder_write(state, "halves", file.data, file.bytes);
    scoped(restore_free_scoped) struct restore *restore = NULL;
    assert_int_equal(restore_open(path, &model, &restore, &reason), ERR_OK);
    uint32_t p = parameter_named(&model, "wpe.weight");
    float out[4096];
    restore_chunk(restore, model.parameters[p].chunk_first, out);
    assert_int_equal(model.parameters[p].chunks_count, 1);
    assert_memory_equal(out, floats, sizeof floats);
}

TEST_IN_FOLDER(what_does_not_fit_is_named)
{
    scoped(model_release) struct model model = gpt();
    struct restore *restore = NULL;
    struct reason reason;
    struct change changes[] = {right, right, right};
    changes[0].leave_out = parameter_named(&model, "wpe.weight");
    changes[1].widen = parameter_named(&model, "ln_f.bias");
    changes[2].dtype = SAFETENSORS_I16;
    static const struct {
        enum err err;
        const char *words;
    } rows[] = {{ERR_NOT_FOUND, "model.safetensors: no tensor wpe.weight"},
                {ERR_SPEC_DIFFERS, "ln_f.bias"},
                {ERR_UNSUPPORTED, "I16"}};
    for (int i = 0; i < 3; i++) {
        const char *path = write_file(state, &model, &changes[i]);
        if (restore_open(path, &model, &restore, &reason) != rows[i].err ||
            strstr(reason.text, rows[i].words) == NULL)
            fail_msg("%s: %s", rows[i].words, reason.text);
    }
    const char *noise = folder_write(state, "noise", "nothing of the kind", 19);
    assert_int_equal(restore_open(noise, &model, &restore, &reason), ERR_MALFORMED);
    assert_non_null(strstr(reason.text, "noise"));
    assert_null(restore);
}

TEST_IN_FOLDER(masks_and_a_tied_head_are_passed_over)
{
    scoped(model_release) struct model model = gpt();
    const char *const names[] = {"h.0.attn.bias", "transformer.h.0.attn.masked_bias",
                                 "lm_head.weight"};
    for (int i = 0; i < 3; i++) {
        struct change change = right;
        change.more = names[i];
        assert_restored(&model, write_file(state, &model, &change));
    }
}

TEST_IN_FOLDER(what_the_model_has_no_place_for_is_named)
{
    scoped(model_release) struct model model = gpt();
    const char *const names[] = {"h.1.ln_1.weight", "loss", "lm_head.weight"};
    for (int i = 0; i < 3; i++) {
        struct restore *restore = NULL;
        struct reason reason;
        struct change change = right;
        change.more = names[i];
        change.more_offset = 1;
        const char *path = write_file(state, &model, &change);
        assert_int_equal(restore_open(path, &model, &restore, &reason), ERR_SPEC_DIFFERS);
        assert_non_null(strstr(reason.text, names[i]));
        assert_non_null(strstr(reason.text, "model.safetensors: "));
    }
}

/* Judges a file of the model beside which this text is config.json. */
static enum err open_beside(void **state, const struct model *model, const char *config,
                            struct reason *reason)
{
    scoped(restore_free_scoped) struct restore *restore = NULL;
    const char *path = write_file(state, model, &right);
    folder_write(state, "config.json", config, strlen(config));
    enum err err = restore_open(path, model, &restore, reason);
    assert_int_equal(restore_check(path, model, NULL), err);
    return err;
}

TEST_IN_FOLDER(a_config_beside_the_file_has_what_no_tensor_shows)
{
    static const struct {
        bool llama;
        enum err err;
        const char *config, *words;
    } rows[] = {
        {true, ERR_OK,
         "{\"rope_theta\": 10000.0, \"rope_scaling\": null, \"rms_norm_eps\": 1e-05, "
         "\"hidden_act\": \"silu\", \"num_attention_heads\": 4, \"max_position_embeddings\": 9}",
         ""},
        {true, ERR_OK, "{\"rms_norm_eps\": 9.999999747378752e-06}", ""},
        {true, ERR_OK, "{\"rope_parameters\": {\"rope_theta\": 10000, \"rope_type\": \"default\"}}",
         ""},
        {true, ERR_OK, "[]", ""},
        {true, ERR_SPEC_DIFFERS, "{\"rope_theta\": 500000.0}",
         "config.json: rope_theta is 500000, the model's is 10000"},
        {true, ERR_SPEC_DIFFERS, "{\"rms_norm_eps\": 1e-06}",
         "config.json: rms_norm_eps is 1e-06, the model's is 1e-05"},
        {true, ERR_SPEC_DIFFERS, "{\"rope_scaling\": {\"rope_type\": \"llama3\"}}",
         "config.json: rope_scaling is set, the model's is null"},
        {true, ERR_SPEC_DIFFERS, "{\"rope_parameters\": {\"rope_theta\": 500000.0}}",
         "rope_theta is 500000"},
        {true, ERR_SPEC_DIFFERS, "{\"rope_parameters\": {\"rope_type\": \"llama3\"}}",
         "rope_type is llama3, the model's is default"},
        {true, ERR_SPEC_DIFFERS, "{\"hidden_act\": \"gelu\"}", "hidden_act is gelu"},
        {true, ERR_SPEC_DIFFERS, "{\"num_attention_heads\": 2}", "num_attention_heads is 2"},
        {true, ERR_MALFORMED, "{\"rope_theta\": \"10000\"}",
         "config.json: \"rope_theta\" is not a number"},
        {true, ERR_MALFORMED, "{\"rope_theta\": ", "config.json:1:"},
        {false, ERR_OK,
         "{\"n_head\": 2, \"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-05}",
         ""},
        {false, ERR_SPEC_DIFFERS, "{\"n_head\": 4}", "n_head is 4, the model's is 2"},
        {false, ERR_SPEC_DIFFERS, "{\"activation_function\": \"relu\"}",
         "activation_function is relu, the model's is gelu_new"},
        {false, ERR_SPEC_DIFFERS, "{\"layer_norm_epsilon\": 1e-06}", "layer_norm_epsilon is 1e-06"},
    };
    scoped(model_release) struct model gpts = gpt();
    scoped(model_release) struct model llamas =
        model_of((struct spec_model){SPEC_LLAMA, .layers = 1, .heads = 4, .kv_heads = 2, .width = 8,
                                     .hidden = 12, .vocabulary = 5});
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct reason reason = {{0}};
        enum err err = open_beside(state, rows[i].llama ? &llamas : &gpts, rows[i].config, &reason);
        if (err != rows[i].err || strstr(reason.text, rows[i].words) == NULL)
            fail_msg("%s: %s", rows[i].config, reason.text);
    }
}

TEST_IN_FOLDER(a_check_of_the_header_leaves_the_values_to_who_reads_them)
{
    scoped(model_release) struct model model = gpt();
    struct restore *restore = NULL;
    struct reason reason;
    struct change change = right;
    change.more = "lm_head.weight";
    change.more_offset = 1; /* other values than those of its twin */
    const char *path = write_file(state, &model, &change);
    assert_int_equal(restore_open(path, &model, &restore, &reason), ERR_SPEC_DIFFERS);
    assert_int_equal(restore_check(path, &model, &reason), ERR_OK);
    change.more = "h.1.ln_1.weight";
    path = write_file(state, &model, &change);
    assert_int_equal(restore_check(path, &model, &reason), ERR_SPEC_DIFFERS);
}

/* ---- what a cut takes ---- */

TEST(a_cut_takes_four_bytes_for_each_weight_and_each_of_its_states)
{
    scoped(model_release) struct model model = gpt();
    struct spec spec = {.optimizer = {.kind = SPEC_SGD}};
    uint64_t weights = 0;
    for (uint32_t i = 0; i < model.parameters_count; i++)
        weights += model.parameters[i].weights;
    assert_int_equal(prepared_cut_bytes(&spec, &model), weights * 4);
    spec.optimizer.kind = SPEC_ADAMW;
    assert_int_equal(prepared_cut_bytes(&spec, &model), weights * 12);
}
