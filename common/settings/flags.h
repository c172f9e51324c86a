/* argp, with settings over a file's (--set), and a guess for a flag that is a slip of the finger away
 * from a known one. */
#ifndef ROOST_COMMON_SETTINGS_FLAGS_H
#define ROOST_COMMON_SETTINGS_FLAGS_H

#include "common/settings/spec.h"

#include <argp.h>

enum { FLAGS_SETS_MAX = 128 };

/* What follows each --set: settings over a spec's. Borrowed from the command line. */
struct flags_sets {
    const char *list[FLAGS_SETS_MAX + 2]; /* two for what a command adds */
    size_t count;
};
/* Their row of an option table; key 's'. */
#define FLAGS_SET_ROW                                                                              \
    {                                                                                              \
        "set", 's', "KEY=VALUE", 0, "a setting over the spec's, like train.slots=8; repeatable", 0 \
    }
void flags_add_set(struct flags_sets *sets, const char *argument, const struct argp_state *state);
/* The spec's file with these settings over it, and the environment's. ERR_INVALID: it is none, or it
 * is not there; the reason begins with the place. */
enum err flags_read_spec(const char *path, const struct flags_sets *sets, struct spec *ret_spec,
                         struct reason *reason) MUST_USE;

/* A path of the spec, the setting `key`, from the root and ending in a 0: it is relative to the spec's
 * file, and where a flag or a variable sets it to the working folder. ERR_IO, ERR_NOMEM. */
enum err flags_absolute(const char *spec_path, const struct flags_sets *sets, const char *key,
                        const char *path, struct buf *ret_absolute, struct reason *reason) MUST_USE;

/* Ends the process with argp_err_exit_status where the command line is wrong, with 0 after
 * --help. */
void flags_parse(const struct argp *argp, int argc, char **argv, void *input);

#endif
