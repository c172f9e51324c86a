/* What an unknown key is likely to mean. */
#ifndef ROOST_COMMON_SETTINGS_CONFIG_GUESS_H
#define ROOST_COMMON_SETTINGS_CONFIG_GUESS_H

#include "common/settings/config_yaml.h"

#include <stddef.h>

struct config_guess {
    const char *key; /* borrowed */
    size_t apart;
    char path[CONFIG_YAML_PATH_BYTES]; /* of a section or a setting; "": none is near */
};

struct config_guess config_guess(const char *key);

/* A setting that is known. */
struct config_known {
    const char *path;
    const char *help;   /* what explains it; NULL: nothing does */
    const char *called; /* what other systems call it: words with spaces between, or NULL */
};
/* It, and the sections that it is in. */
void config_guess_try(struct config_guess *guess, const struct config_known *known);

#endif
