/* A spec file, and after a 0 byte a --set flag. What is accepted prints, and the printed text is
 * the same spec; a model of moderate size has a grid that covers it. */
#include "tests/fuzz/fuzz.h"

#include "common/model/model.h"
#include "common/scoped.h"
#include "common/settings/spec.h"

#include <string.h>

/* Models whose grid takes no time. */
static bool is_moderate(const struct spec_model *model)
{
    if (model_sample(model).tokens)
        return model->layers <= 4 && model->width <= 512 && model->hidden <= 4096 &&
               model->context <= 4096 && model->vocabulary <= 4096;
    for (uint32_t i = 0; i < model->sizes_count; i++)
        if (model->sizes[i] > 2048)
            return false;
    return true;
}

static void cut(const struct spec_model *settings)
{
    struct model model;
    struct reason reason;
    check(model_init(&model, settings, &reason) == ERR_OK);
    model_check(&model);
    model_check_tables(&model);
    model_release(&model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const uint8_t *zero = bytes == 0 ? NULL : memchr(data, 0, bytes);
    struct slice text = {data, zero == NULL ? bytes : (size_t)(zero - data)};
    scoped(free_scoped) char *flag =
        zero == NULL ? NULL : strndup((const char *)zero + 1, bytes - text.bytes - 1);
    const char *flags[] = {flag};
    struct config_overrides overrides = {flags, flag != NULL, NULL};
    struct spec spec, again;
    struct reason reason = {{0}};
    if (spec_parse(text, "run.yaml", &overrides, &spec, &reason) != ERR_OK) {
        check(reason.text[0] != 0);
        return 0;
    }
    scoped(buf_release) struct buf printed = {0};
    check(spec_print(&spec, &printed) == ERR_OK);
    check(spec_parse(buf_slice(&printed), "again", NULL, &again, &reason) == ERR_OK);
    check(memcmp(&spec, &again, sizeof spec) == 0);
    if (is_moderate(&spec.model))
        cut(&spec.model);
    return 0;
}
