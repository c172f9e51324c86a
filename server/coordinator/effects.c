/* The effects of one call of the coordinator. */
#include "server/coordinator/effects.h"

#include <stdarg.h>
#include <stdlib.h>

enum err effects_init(struct effects *effects)
{
    effects->count = 0;
    effects->items = calloc(EFFECTS_MAX, sizeof *effects->items);
    return effects->items == NULL ? ERR_NOMEM : ERR_OK;
}

void effects_release(struct effects *effects)
{
    free(effects->items);
    *effects = (struct effects){0};
}

struct effect *effects_add(struct effects *effects, enum effect_kind kind)
{
    check(effects->count < EFFECTS_MAX);
    struct effect *effect = &effects->items[effects->count++];
    *effect = (struct effect){.kind = kind};
    return effect;
}

void effects_log(struct effects *effects, bool warning, const char *format, ...)
{
    struct effect *effect = effects_add(effects, EFFECT_LOG);
    effect->log.warning = warning;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(effect->log.text, sizeof effect->log.text, format, arguments);
    va_end(arguments);
}
