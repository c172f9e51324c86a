/* Sampling: the whole window is computed again for every token, as in nanoGPT's generate(); no
 * cache of keys and values. A token is drawn with the Gumbel-max trick (Gumbel 1954): the largest
 * of logit / temperature - log(-log(u)) has the softmax's distribution, without an exponential. */
#include "worker/sample.h"

#include "common/elementary.h"
#include "common/rand.h"
#include "common/scoped.h"
#include "worker/model/unit.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 256 };

/* Device memory for one window, and the window. */
struct sampler {
    const struct kernels *k;
    const struct model *model;
    float **weights; /* by use */
    uint8_t *activations[2];
    uint8_t *saved, *scratch;
    int32_t *tokens; /* (context) on the device */
    float *logits;
    int32_t *window; /* (context) on the host */
    uint32_t length;
    uint32_t classes;
    bool bytes;
    uint32_t drawn;              /* the first so many classes may be */
    float *host_logits, *sorted; /* (classes) */
};

static void sampler_release(struct sampler *s)
{
    void *const device[] = {s->activations[0], s->activations[1], s->saved,
                            s->scratch,        s->tokens,         s->logits};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        s->k->free(s->k, device[i]);
    free(s->weights);
    free(s->window);
    free(s->host_logits);
    free(s->sorted);
}

static enum err alloc_arrays(struct sampler *s, uint64_t output, uint64_t saved, uint64_t scratch)
{
    const struct kernels *k = s->k;
    uint32_t context = s->model->sample_tokens;
    s->activations[0] = k->alloc(k, output);
    s->activations[1] = k->alloc(k, output);
    s->saved = k->alloc(k, saved);
    s->scratch = k->alloc(k, scratch);
    s->tokens = k->alloc(k, context * sizeof(int32_t));
    s->logits = k->alloc(k, unit_logits_count(s->model) * sizeof(float));
    s->window = calloc(context, sizeof *s->window);
    s->host_logits = calloc(s->classes, sizeof *s->host_logits);
    s->sorted = calloc(s->classes, sizeof *s->sorted);
    bool all = s->activations[0] != NULL && s->activations[1] != NULL && s->saved != NULL &&
               s->scratch != NULL && s->tokens != NULL && s->logits != NULL && s->window != NULL &&
               s->host_logits != NULL && s->sorted != NULL;
    return all ? ERR_OK : ERR_NOMEM;
}

static enum err set_up(struct sampler *s, float *const *weights)
{
    const struct model *model = s->model;
    uint64_t output = 0, saved = 0, scratch = 0;
    for (uint32_t unit = 0; unit < model->units_count; unit++) {
        struct unit_sizes sizes;
        unit_size(s->k, model, unit, 1, 0, &sizes);
        output = sizes.output > output ? sizes.output : output;
        saved = sizes.saved > saved ? sizes.saved : saved;
        scratch = sizes.scratch > scratch ? sizes.scratch : scratch;
    }
    TRY(alloc_arrays(s, output, saved, scratch));
    s->weights = calloc(model->uses_count, sizeof *s->weights);
    if (s->weights == NULL)
        return ERR_NOMEM;
    for (uint32_t use = 0; use < model->uses_count; use++)
        s->weights[use] = weights[model->uses[use].parameter];
    return ERR_OK;
}

static struct unit_call unit_call(struct sampler *s, const struct model *model, uint32_t unit,
                                  const void *input)
{
    return (struct unit_call){.k = s->k,
                              .model = model,
                              .unit = unit,
                              .samples = 1,
                              .weights = s->weights + model->units[unit].use_first,
                              .input = input,
                              .output = (float *)(void *)s->activations[unit % 2],
                              .saved = s->saved,
                              .scratch = s->scratch};
}

/* The window's hidden states: (length, width). */
static const float *forward(struct sampler *s)
{
    struct model shorter = *s->model; /* a window of `length` has the first positions only */
    shorter.sample_tokens = s->length;
    s->k->copy_in(s->k, s->tokens, s->window, s->length * sizeof(int32_t));
    const void *input = s->tokens;
    for (uint32_t unit = 0; unit + 1 < shorter.units_count; unit++) {
        const struct unit_call call = unit_call(s, &shorter, unit, input);
        unit_forward(&call);
        input = call.output;
    }
    return input;
}

/* Logits of the token after the window, in host_logits. */
static enum err next_logits(struct sampler *s, struct reason *reason)
{
    const struct kernels *k = s->k;
    struct model last = *s->model; /* of the window's last token alone */
    last.sample_tokens = 1;
    uint32_t head = last.units_count - 1;
    uint64_t width = last.units[head].arrays[MODEL_IN].width;
    const float *states = forward(s);
    const struct unit_call call = unit_call(s, &last, head, states + (s->length - 1) * width);
    unit_logits(&call, s->logits);
    const char *failure = k->synchronize(k);
    if (failure != NULL)
        return reason_set(reason, ERR_IO, "device: %s", failure);
    k->copy_out(k, s->host_logits, s->logits, s->classes * sizeof(float));
    return ERR_OK;
}

static int descending(const void *a, const void *b)
{
    float left = *(const float *)a, right = *(const float *)b;
    return left > right ? -1 : left < right;
}

/* The smallest logit that may be drawn. */
static float threshold(const struct sampler *s, uint32_t top_k)
{
    memcpy(s->sorted, s->host_logits, s->drawn * sizeof *s->sorted);
    qsort(s->sorted, s->drawn, sizeof *s->sorted, descending);
    return s->sorted[(top_k == 0 || top_k > s->drawn ? s->drawn : top_k) - 1];
}

/* -1: nothing can be drawn, the weights are NaN. */
static int32_t draw(const struct sampler *s, const struct sample_options *options, uint32_t index)
{
    struct rand_key key = rand_key(options->seed, RAND_SAMPLE, 0);
    float least = threshold(s, options->top_k);
    double best_score = 0;
    int32_t best = -1;
    for (uint32_t token = 0; token < s->drawn; token++) {
        double score = (double)s->host_logits[token];
        if (options->temperature > 0) {
            /* Between the generator's 2^-24 steps: never 0 or 1, which have no such logarithm. */
            double u = (double)rand_uniform(key, (uint64_t)index * s->classes + token);
            score = score / options->temperature - elementary_log(-elementary_log(u + 0x1p-25));
        }
        if (s->host_logits[token] >= least && (best < 0 || score > best_score)) {
            best = (int32_t)token;
            best_score = score;
        }
    }
    return best;
}

static void append(struct sampler *s, int32_t token)
{
    if (s->length == s->model->sample_tokens) {
        s->length--;
        memmove(s->window, s->window + 1, s->length * sizeof *s->window);
    }
    s->window[s->length++] = token;
}

/* ---- text of tokens ---- */

static void read_bytes(struct sampler *s, struct slice prompt)
{
    if (prompt.bytes == 0)
        append(s, '\n');
    for (size_t i = 0; i < prompt.bytes; i++)
        append(s, prompt.data[i]);
}

static bool between_numbers(uint8_t byte)
{
    return byte == ' ' || byte == ',' || byte == '\n';
}

static void skip_between(struct slice *prompt)
{
    for (; prompt->bytes > 0 && between_numbers(prompt->data[0]); prompt->bytes--)
        prompt->data++;
}

/* Takes a number off the front of *prompt. False: there is none below `classes`. */
static bool take_number(struct slice *prompt, uint32_t classes, int32_t *ret_token)
{
    uint32_t token = 0, digits = 0;
    for (; prompt->bytes > 0 && !between_numbers(prompt->data[0]); digits++) {
        uint32_t digit = (uint32_t)*prompt->data++ - '0';
        prompt->bytes--;
        if (digit > 9 || token >= classes)
            return false;
        token = 10 * token + digit;
    }
    *ret_token = (int32_t)token;
    return digits > 0 && token < classes;
}

static enum err read_numbers(struct sampler *s, struct slice prompt, struct reason *reason)
{
    skip_between(&prompt);
    do {
        int32_t token;
        if (!take_number(&prompt, s->classes, &token))
            return reason_set(reason, ERR_INVALID,
                              "this model's tokens are numbers, and so is what is written: give "
                              "it some from 0 to %u, as --prompt '%u %u'",
                              s->classes - 1, s->classes / 3, s->classes / 2);
        append(s, token);
        skip_between(&prompt);
    } while (prompt.bytes > 0);
    return ERR_OK;
}

static enum err write_token(const struct sampler *s, int32_t token, struct buf *buf)
{
    if (!s->bytes)
        return buf_printf(buf, " %d", token);
    const uint8_t byte = (uint8_t)token;
    return buf_append(buf, &byte, 1);
}

static enum err write_text(struct sampler *s, const struct sample_options *options, struct buf *buf,
                           struct reason *reason)
{
    for (uint32_t index = 0; index < options->tokens; index++) {
        TRY(next_logits(s, reason));
        int32_t token = draw(s, options, index);
        if (token < 0)
            return reason_set(reason, ERR_UNSUPPORTED, "the model's weights are NaN");
        TRY(write_token(s, token, buf));
        append(s, token);
    }
    return ERR_OK;
}

enum err sample_text(const struct kernels *k, const struct model *model, float *const *weights,
                     struct slice prompt, const struct sample_options *options, struct buf *buf,
                     struct reason *reason)
{
    const struct model_sample about = model_sample(&model->settings);
    if (!about.tokens)
        return reason_set(reason, ERR_UNSUPPORTED, "text comes only from a model of tokens");
    bool bytes = options->bytes || about.classes == BYTES;
    scoped(sampler_release) struct sampler sampler = {
        .k = k,
        .model = model,
        .classes = about.classes,
        .bytes = bytes,
        .drawn = bytes && about.classes > BYTES ? BYTES : about.classes};
    TRY(set_up(&sampler, weights));
    if (bytes)
        read_bytes(&sampler, prompt);
    else
        TRY(read_numbers(&sampler, prompt, reason));
    return write_text(&sampler, options, buf, reason);
}
