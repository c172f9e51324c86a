/* A daemon's command line: every row of its settings table is a flag, a key of its file and an
 * environment variable (`log_level`: --log-level, log_level:, ROOST_LOG_LEVEL). */
#ifndef ROOST_COMMON_SETTINGS_OPTIONS_H
#define ROOST_COMMON_SETTINGS_OPTIONS_H

#include "common/settings/config.h"

/* Exit codes of all our programs. */
enum {
    EXIT_USAGE = 2,
    EXIT_AGAIN = 75, /* EX_TEMPFAIL: try again */
    EXIT_CONFIG = 78 /* EX_CONFIG */
};

struct options {
    const char *program; /* "roost-worker" */
    const char *summary; /* one sentence for --help */
    const struct config_table *table;
};

/* Flag over environment over --config FILE over default, into *ret_settings. Handles --help,
 * --version and wrong usage (exits 2 with a sentence); --check-config prints the effective settings
 * and sets *ret_check. ERR_INVALID: a bad value, with its place; no such file. */
enum err options_parse(const struct options *options, int argc, char **argv, void *ret_settings,
                       bool *ret_check, struct reason *reason) MUST_USE;

/* Says which variables of the environment are a slip away from a setting of the table: they set
 * nothing. */
void options_warn_of_slips(const char *program, const struct config_table *table);

/* The environment variable `name`; `otherwise` when it is not set. */
const char *options_environment(const char *name, const char *otherwise);
/* Programs that are started from now on do not get these variables; `names` ends with NULL. Before
 * there are threads. */
void options_forget_environment(const char *const *names);

/* A server's or worker's name stands in log lines of others: ERR_INVALID unless utf8_is_word(). */
enum err options_check_name(const char *name, struct reason *reason) MUST_USE;

/* The sentence of an error on stderr; the journal knows it as one. */
void options_complain(const struct options *options, enum err err, const struct reason *reason);

/* To be asked at a program's end: whether stdout took all that was printed, so that nothing is cut
 * short in silence. A reader that went away wanted no more: ERR_OK. ERR_NO_SPACE, ERR_IO. */
enum err options_printed(struct reason *reason) MUST_USE;

/* The exit status of a program that ended with `err`: 0, 78 for settings, 75 when trying again may
 * help, else 1. */
int options_exit_code(enum err err);

#endif
