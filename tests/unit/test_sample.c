/* Text from weights. */
#include "tests/models.h"
#include "tests/unit/executor_fixture.h"

#include "worker/sample.h"
#include "worker/text.h"

#include <math.h>
#include <stdlib.h>

static struct spec_model bytes_model(void)
{
    struct spec_model settings = fixture_gpt();
    settings.vocabulary = 256;
    return settings;
}

static struct spec_model bytes_llama(void)
{
    struct spec_model settings = fixture_llama();
    settings.vocabulary = 256;
    return settings;
}

/* The executor's weights as sample_text() wants them. */
static void text_of(struct executor_fixture *f, const char *prompt, struct sample_options options,
                    struct buf *buf)
{
    float *weights[64];
    for (uint32_t i = 0; i < f->model.parameters_count; i++)
        weights[i] = executor_weights(f->executor, i);
    struct reason reason = {.text = ""};
    assert_int_equal(
        sample_text(f->k, &f->model, weights, slice_of(prompt), &options, buf, &reason), ERR_OK);
    bool bytes = f->settings.vocabulary == 256 || options.bytes;
    assert_true(!bytes || buf->bytes == options.tokens);
}

TEST_F(the_same_seed_writes_the_same_text_and_another_one_another, executor,
       .settings = bytes_model())
{
    scoped(buf_release) struct buf a = {0}, b = {0}, c = {0};
    struct sample_options options = {.tokens = 30, .temperature = 1, .seed = 5};
    text_of(f, "abc", options, &a);
    text_of(f, "abc", options, &b);
    options.seed = 6;
    text_of(f, "abc", options, &c);
    assert_memory_equal(a.data, b.data, 30);
    assert_memory_not_equal(a.data, c.data, 30);
}

/* What the model says after the window: the executor's loss of each next token, lowest wins. */
static int likeliest(struct executor_fixture *f, const int32_t *window, uint32_t count);
static int likeliest_below(struct executor_fixture *f, const int32_t *window, uint32_t count,
                           int32_t limit);

static void check_the_likeliest_bytes(struct executor_fixture *f)
{
    scoped(buf_release) struct buf cold = {0}, top = {0};
    text_of(f, "\n", (struct sample_options){.tokens = 12}, &cold);
    text_of(f, "", (struct sample_options){.tokens = 12, .temperature = 2, .top_k = 1, .seed = 9},
            &top);
    assert_memory_equal(cold.data, top.data, 12); /* an empty prompt is a newline */
    int32_t written[13] = {'\n'};
    for (uint32_t i = 0; i < 12; i++)
        written[i + 1] = cold.data[i];
    for (uint32_t i = 0; i < 12; i++) { /* of the last 7 bytes before it: the context */
        uint32_t count = i + 1 < 7 ? i + 1 : 7;
        assert_int_equal(likeliest(f, written + i + 1 - count, count), cold.data[i]);
    }
}

TEST_F(without_temperature_the_likeliest_byte_is_written, executor, .settings = bytes_model())
{
    check_the_likeliest_bytes(f);
}

TEST_F(so_it_is_from_a_llama, executor, .settings = bytes_llama())
{
    check_the_likeliest_bytes(f);
}

struct guess {
    const int32_t *window;
    uint32_t count;
    int32_t next;
};

static enum err read_guess(void *context, enum ticket_kind kind, uint64_t first, uint32_t count,
                           void *ret_inputs, int32_t *ret_targets)
{
    const struct guess *guess = context;
    (void)kind;
    (void)first;
    assert_int_equal(count, 1);
    for (uint32_t i = 0; i < 7; i++) {
        ((int32_t *)ret_inputs)[i] = i < guess->count ? guess->window[i] : 0;
        ret_targets[i] = i + 1 == guess->count ? guess->next : -1; /* only one counts */
    }
    return ERR_OK;
}

static int likeliest_below(struct executor_fixture *f, const int32_t *window, uint32_t count,
                           int32_t limit)
{
    static const struct executor_hooks none = {0};
    const struct ticket ticket = {.kind = TICKET_VALIDATE};
    double best_loss = 1e30;
    int best = -1;
    for (int32_t next = 0; next < limit; next++) {
        struct guess guess = {window, count, next};
        const struct executor_samples samples = {&guess, read_guess, 1};
        struct executor_loss loss;
        assert_int_equal(executor_run(f->executor, &ticket, &samples, &none, &loss), ERR_OK);
        if (loss.loss_sum < best_loss) {
            best_loss = loss.loss_sum;
            best = next;
        }
    }
    return best;
}

static int likeliest(struct executor_fixture *f, const int32_t *window, uint32_t count)
{
    return likeliest_below(f, window, count, (int32_t)f->settings.vocabulary);
}

TEST_F(a_prompt_longer_than_the_context_counts_with_its_end, executor, .settings = bytes_model())
{
    static const char prompt[] = "The Quick-Brown_fox";
    uint32_t differ = 0;
    int last = -1;
    for (uint32_t length = 8; length < sizeof prompt; length++) {
        scoped(buf_release) struct buf buf = {0};
        char text[sizeof prompt];
        int32_t window[7];
        memcpy(text, prompt, length);
        text[length] = 0;
        for (uint32_t i = 0; i < 7; i++)
            window[i] = text[length - 7 + i];
        text_of(f, text, (struct sample_options){.tokens = 1}, &buf);
        assert_int_equal(buf.data[0], likeliest(f, window, 7));
        differ += buf.data[0] != last;
        last = buf.data[0];
    }
    assert_true(differ > 3); /* the model is not one that always says the same */
}

static struct spec_model larger_model(void)
{
    struct spec_model settings = fixture_gpt();
    settings.vocabulary =
        2048; /* of these few are bytes, and weights that learnt nothing draw all */
    return settings;
}

TEST_F(a_text_of_bytes_may_have_a_larger_vocabulary, executor, .settings = larger_model())
{
    static const int32_t window[7] = {'T', 'h', 'e', ' '};
    scoped(buf_release) struct buf buf = {0};
    text_of(f, "The ", (struct sample_options){.tokens = 1, .bytes = true}, &buf);
    assert_true(likeliest(f, window, 4) >= 256); /* which no byte says */
    assert_int_equal(buf.data[0], likeliest_below(f, window, 4, 256));
}

TEST_F(tokens_that_are_not_bytes_are_read_and_written_as_numbers, executor,
       .settings = fixture_gpt())
{
    static const char *const prompts[] = {"36 4 17", " 36,4,\n17 "};
    for (uint32_t p = 0; p < 2; p++) {
        scoped(buf_release) struct buf buf = {0};
        int32_t window[7] = {36, 4, 17};
        text_of(f, prompts[p], (struct sample_options){.tokens = 4}, &buf);
        assert_int_equal(buf_append(&buf, "", 1), ERR_OK);
        char *text = (char *)buf.data;
        for (uint32_t count = 3; count < 7; count++) {
            assert_int_equal(*text, ' ');
            window[count] = (int32_t)strtol(text, &text, 10);
            assert_int_equal(window[count], likeliest(f, window, count));
        }
        assert_int_equal(*text, 0);
    }
}

TEST_F(a_prompt_that_is_no_numbers_is_refused_with_what_to_give, executor,
       .settings = fixture_gpt())
{
    static const char *const bad[] = {"", " ", "the", "3 37", "3 x", "-1", "99999999999999"};
    const struct sample_options options = {.tokens = 1};
    float *weights[64] = {0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        scoped(buf_release) struct buf buf = {0};
        struct reason reason;
        assert_int_equal(
            sample_text(f->k, &f->model, weights, slice_of(bad[i]), &options, &buf, &reason),
            ERR_INVALID);
        assert_non_null(strstr(reason.text, "from 0 to 36, as --prompt '12 18'"));
    }
}

TEST_F(nothing_is_drawn_from_weights_that_are_nan, executor, .settings = bytes_model())
{
    float *weights[64];
    for (uint32_t i = 0; i < f->model.parameters_count; i++)
        weights[i] = executor_weights(f->executor, i);
    for (uint64_t i = 0; i < f->model.parameters[0].weights; i++)
        weights[0][i] = (float)NAN;
    const struct sample_options options = {.tokens = 1};
    struct reason reason;
    scoped(buf_release) struct buf buf = {0};
    assert_int_equal(sample_text(f->k, &f->model, weights, slice_of("x"), &options, &buf, &reason),
                     ERR_UNSUPPORTED);
}

/* A model whose blocks and embeddings are zero draws from softmax(ln_f.bias wte^T) alone. */
TEST_F(bytes_are_drawn_as_often_as_the_model_says, executor, .settings = bytes_model())
{
    for (uint32_t i = 0; i < f->model.parameters_count; i++)
        memset(executor_weights(f->executor, i), 0, f->model.parameters[i].weights * sizeof(float));
    uint32_t wte = parameter_named(&f->model, "wte.weight");
    executor_weights(f->executor, parameter_named(&f->model, "ln_f.bias"))[0] = 1;
    for (uint32_t token = 0; token < 256; token++) /* 'a' : 'b' : 'c' = 1 : e : e^2 */
        executor_weights(f->executor, wte)[token * 16] =
            token >= 'a' && token <= 'c' ? (float)(token - 'a') : -40;
    scoped(buf_release) struct buf buf = {0};
    text_of(f, "x", (struct sample_options){.tokens = 4000, .temperature = 1, .seed = 1}, &buf);
    int counts[3] = {0};
    for (size_t i = 0; i < buf.bytes; i++) {
        assert_in_range(buf.data[i], 'a', 'c');
        counts[buf.data[i] - 'a']++;
    }
    assert_in_range(counts[0], 360 - 75, 360 + 75); /* 4000 × 0.0900, four deviations */
    assert_in_range(counts[1], 979 - 110, 979 + 110);
    assert_in_range(counts[2], 2661 - 120, 2661 + 120);
}

TEST_F(other_models_are_refused, executor, .settings = fixture_mlp())
{
    struct reason reason;
    const struct sample_options options = {.tokens = 1};
    scoped(buf_release) struct buf buf = {0};
    assert_int_equal(sample_text(f->k, &f->model, NULL, (struct slice){0}, &options, &buf, &reason),
                     ERR_UNSUPPORTED);
}

/* OpenBLAS is loaded with this machine's core type, so that the checkpoint's does not open. */
TEST_F(a_core_type_that_does_not_open_is_a_warning, executor, .settings = bytes_model())
{
    static char said[512]; /* on stderr */
    struct reason reason = {.text = ""};
    FILE *err = stderr;
    if (strcmp(kernels_gemm_core_auto(), "Prescott") == 0) /* as the checkpoint has it */
        skip();
    stderr = fmemopen(said, sizeof said - 1, "w");
    assert_non_null(stderr);
    enum err code = text_write(SOURCE_ROOT "/tests/cluster/before-stages", "",
                               &(struct sample_options){.tokens = 1}, &reason);
    fclose(stderr);
    stderr = err;
    assert_non_null(strstr(said, "warning: OpenBLAS runs with core type "));
    assert_int_equal(code, ERR_UNSUPPORTED); /* it is an mlp's */
    assert_null(strstr(reason.text, "OpenBLAS"));
}
