#include "common/settings/config_guess.h"

#include "common/slip.h"

#include <ctype.h>
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

/* The next letter of a key or of what explains it, in lower case: "learningRate", "learning_rate"
 * and "learning rate" have the same letters. 0: the end. */
static char next_letter(const char **text)
{
    *text += strspn(*text, "_- ");
    return **text == 0 ? 0 : (char)tolower((unsigned char)*(*text)++);
}

/* What follows the letters of `key` in `text`; NULL: `text` begins otherwise. */
static const char *after_letters(const char *text, const char *key)
{
    for (char letter; (letter = next_letter(&key)) != 0;)
        if (next_letter(&text) != letter)
            return NULL;
    return text;
}

static bool same_letters(const char *a, const char *b)
{
    const char *rest = after_letters(a, b);
    return rest != NULL && next_letter(&rest) == 0;
}

/* "learning_rate", of what is explained as "learning rate", or "learning rate at the end". */
static bool is_explained(const char *key, const char *help)
{
    const char *rest = after_letters(help, key);
    return key[0] != 0 && rest != NULL && (*rest == 0 || strchr(" ;,", *rest) != NULL);
}

/* One of the words in `called`. */
static bool is_called(const char *key, const char *called)
{
    char word[CONFIG_YAML_PATH_BYTES];
    while (called != NULL && *called != 0) {
        size_t bytes = strcspn(called, " ");
        snprintf(word, sizeof word, "%.*s", (int)bytes, called);
        if (same_letters(key, word))
            return true;
        called += bytes + strspn(called + bytes, " ");
    }
    return false;
}

enum { BEGINNING_MIN = 3 };

/* "every" of "every_steps", "vocab" of "vocabulary". */
static bool is_beginning(const char *key, const char *known)
{
    return strlen(key) >= BEGINNING_MIN && after_letters(known, key) != NULL;
}

/* "max_steps" and "steps_total" mean "steps"; "logging_steps" does not. */
static bool has_words(const char *key, const char *known)
{
    static const char *const around[] = {"max", "min", "total", "num", "count", "n"};
    char word[CONFIG_YAML_PATH_BYTES];
    bool found = false;
    for (size_t i = 0; i < sizeof around / sizeof around[0]; i++) {
        snprintf(word, sizeof word, "%s_%s", around[i], known);
        found = found || strcmp(key, word) == 0;
        snprintf(word, sizeof word, "%s_%s", known, around[i]);
        found = found || strcmp(key, word) == 0;
    }
    return found;
}

/* "warmup_steps" and "warmup_samples". */
static bool same_first_word(const char *a, const char *b)
{
    size_t bytes = strcspn(a, "_");
    return a[bytes] == '_' && strncmp(a, b, bytes + 1) == 0;
}

/* Ways to mean a setting, the likeliest first; between them the slips. */
enum { SAME = 0, EXPLAINED = SLIP_MAX, BEGINNING, FIRST_WORD, HAS_WORDS, OTHERWISE };

static size_t own_apart(const char *own, const char *name, const struct config_known *known)
{
    size_t slips = slip_distance(own, name);
    if (same_letters(own, name) || (known != NULL && is_called(own, known->called)))
        return SAME;
    if (slips < SLIP_MAX)
        return slips;
    if (known != NULL && is_explained(own, known->help))
        return EXPLAINED;
    if (is_beginning(own, name))
        return BEGINNING;
    if (same_first_word(own, name))
        return FIRST_WORD;
    return has_words(own, name) ? HAS_WORDS : OTHERWISE;
}

enum { NO_KEY = 2 * OTHERWISE };

/* How far `key` is from a known path: by its own part first, its section is often left out. */
static size_t how_far(const char *key, const char *path, const struct config_known *known)
{
    size_t apart = own_apart(own_part(key), own_part(path), known);
    if (strcmp(key, path) == 0 || apart == OTHERWISE)
        return NO_KEY;
    return 2 * apart + (same_section(key, path) ? 0 : 1);
}

struct config_guess config_guess(const char *key)
{
    return (struct config_guess){.key = key, .apart = NO_KEY};
}

/* `known` is NULL for a section. */
static void try_path(struct config_guess *guess, const char *path, const struct config_known *known)
{
    size_t apart = how_far(guess->key, path, known);
    if (apart >= guess->apart)
        return;
    guess->apart = apart;
    snprintf(guess->path, sizeof guess->path, "%s", path);
}

void config_guess_try(struct config_guess *guess, const struct config_known *known)
{
    char section[CONFIG_YAML_PATH_BYTES];
    snprintf(section, sizeof section, "%s", known->path);
    for (char *dot; (dot = strrchr(section, '.')) != NULL;) {
        *dot = 0;
        try_path(guess, section, NULL);
    }
    try_path(guess, known->path, known);
}
