#include "common/settings/config_guess.h"

#include "common/slip.h"

#include <stdio.h>
#include <string.h>

/* "rate" of "optimizer.rate". */
static const char *own_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot == NULL ? path : dot + 1;
}

static bool same_section(const char *a, const char *b)
{
    size_t a_bytes = (size_t)(own_part(a) - a), b_bytes = (size_t)(own_part(b) - b);
    return a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0;
}

/* "learning_rate", of what is explained as "learning rate", or "learning rate at the end". */
static bool is_explained(const char *key, const char *help)
{
    size_t i = 0;
    for (; key[i] != 0; i++)
        if (help[i] != (key[i] == '_' ? ' ' : key[i]))
            return false;
    return i > 0 && (help[i] == 0 || help[i] == ' ' || help[i] == ';');
}

/* "warmup_steps" and "warmup_samples". */
static bool same_first_word(const char *a, const char *b)
{
    size_t bytes = strcspn(a, "_");
    return a[bytes] == '_' && strncmp(a, b, bytes + 1) == 0;
}

enum { BY_NAME = 0, BY_WORD = 2 * SLIP_MAX, NO_KEY = BY_WORD + 4 };

/* How far `key` is from a known path: by its own part first, its section is often left out. */
static size_t how_far(const char *key, const char *path, const char *help)
{
    const char *own = own_part(key), *known = own_part(path);
    size_t apart = slip_distance(own, known), elsewhere = same_section(key, path) ? 0 : 1;
    if (strcmp(key, path) == 0)
        return NO_KEY;
    if (apart < SLIP_MAX)
        return BY_NAME + 2 * apart + elsewhere;
    if (is_explained(own, help))
        return BY_WORD + elsewhere;
    return same_first_word(own, known) ? BY_WORD + 2 + elsewhere : NO_KEY;
}

struct config_guess config_guess(const char *key)
{
    return (struct config_guess){.key = key, .apart = NO_KEY};
}

static void try_path(struct config_guess *guess, const char *path, const char *help)
{
    size_t apart = how_far(guess->key, path, help);
    if (apart >= guess->apart)
        return;
    guess->apart = apart;
    snprintf(guess->path, sizeof guess->path, "%s", path);
}

void config_guess_try(struct config_guess *guess, const char *path, const char *help)
{
    char section[CONFIG_YAML_PATH_BYTES];
    snprintf(section, sizeof section, "%s", path);
    for (char *dot; (dot = strrchr(section, '.')) != NULL;) {
        *dot = 0;
        try_path(guess, section, "");
    }
    try_path(guess, path, help);
}
