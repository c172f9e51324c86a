/* A name and its number in one mapping: `recompute: {every: 2}`. For config.c. */
#ifndef ROOST_COMMON_SETTINGS_CONFIG_SHORT_H
#define ROOST_COMMON_SETTINGS_CONFIG_SHORT_H

#include "common/settings/config_yaml.h"

/* Writes such a mapping of the setting `name` out as two settings: `recompute: every` and
 * `recompute_every: 2`, when `number` is the second one's path. What is no such mapping stays, and so
 * does one whose number is set beside it as well: the table refuses both. */
void config_short_expand(struct config_document *document, const char *name, const char *number);

#endif
