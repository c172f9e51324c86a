#include "common/settings/flags.h"

#include "common/file.h"
#include "common/scoped.h"
#include "common/slip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/* One argument of the command line, without its dashes and what follows an equals sign. */
struct flag {
    char name[64];
    bool known;
    bool takes_value;
    struct slip slip;
};

/* An abbreviation is known too: argp judges whether it is of several. */
static void compare_option(struct flag *flag, const struct argp_option *option)
{
    slip_try_flag(&flag->slip, option->name);
    if (strncmp(option->name, flag->name, strlen(flag->name)) != 0)
        return;
    flag->known = true;
    flag->takes_value = option->arg != NULL && (option->flags & OPTION_ARG_OPTIONAL) == 0;
}

static void compare_options(struct flag *flag, const struct argp *argp)
{
    const struct argp_option *option = argp->options;
    for (; option != NULL && (option->name != NULL || option->key != 0 || option->doc != NULL);
         option++)
        if (option->name != NULL)
            compare_option(flag, option);
    for (const struct argp_child *child = argp->children; child != NULL && child->argp != NULL;
         child++)
        compare_options(flag, child->argp);
}

/* A flag that is near no other is left to argp's own words. */
static void check_flag(const struct argp *argp, const char *program, struct flag *flag)
{
    static const struct argp_option own[] = {
        {.name = "help"}, {.name = "usage"}, {.name = "version"}};
    flag->slip = slip_of(flag->name);
    compare_options(flag, argp);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        compare_option(flag, &own[i]);
    if (flag->known || flag->slip.meant == NULL)
        return;
    fprintf(stderr, "%s: no flag --%s (did you mean --%s?)\n", program, flag->name,
            flag->slip.meant);
    exit(argp_err_exit_status);
}

void flags_add_set(struct flags_sets *sets, const char *argument, const struct argp_state *state)
{
    if (sets->count == FLAGS_SETS_MAX)
        argp_error(state, "more than %d --set", FLAGS_SETS_MAX);
    sets->list[sets->count++] = argument;
}

enum err flags_read_spec(const char *path, const struct flags_sets *sets, struct spec *ret_spec,
                         struct reason *reason)
{
    scoped(buf_release) struct buf text = {0};
    const struct config_overrides overrides = {.flags = sets->list,
                                               .flags_count = sets->count,
                                               .environment = (const char *const *)environ};
    TRY(config_path_error(file_read(path, CONFIG_FILE_BYTES_MAX, &text, reason)));
    return spec_parse(buf_slice(&text), path, &overrides, ret_spec, reason);
}

/* A flag or a variable is written in the shell, beside its working folder. */
static bool is_of_file(const struct flags_sets *sets, const char *key)
{
    size_t bytes = strlen(key);
    for (size_t i = 0; i < sets->count; i++)
        if (strncmp(sets->list[i], key, bytes) == 0 && sets->list[i][bytes] == '=')
            return false;
    return config_environment((const char *const *)environ, key) == NULL;
}

/* The folder that relative paths of the spec's file begin in. */
static char *folder_of(const char *spec_path)
{
    const char *slash = strrchr(spec_path, '/');
    scoped(free_scoped) char *folder =
        slash == NULL ? strdup(".") : strndup(spec_path, (size_t)(slash - spec_path) + 1);
    return folder == NULL ? NULL : realpath(folder, NULL);
}

enum err flags_absolute(const char *spec_path, const struct flags_sets *sets, const char *key,
                        const char *path, struct buf *ret_absolute, struct reason *reason)
{
    scoped(free_scoped) char *folder = NULL;
    if (path[0] == '/')
        return buf_printf(ret_absolute, "%s", path);
    folder = is_of_file(sets, key) ? folder_of(spec_path) : realpath(".", NULL);
    if (folder == NULL)
        return reason_set(reason, ERR_IO, "the folder that %s is relative to cannot be named",
                          path);
    return buf_printf(ret_absolute, "%s/%s", folder, path);
}

void flags_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        struct flag flag = {{0}};
        if (strncmp(argv[i], "--", 2) != 0)
            continue;
        snprintf(flag.name, sizeof flag.name, "%.*s", (int)strcspn(argv[i] + 2, "="), argv[i] + 2);
        check_flag(argp, argv[0], &flag);
        if (flag.takes_value && strchr(argv[i], '=') == NULL)
            i++;
    }
    argp_parse(argp, argc, argv, 0, NULL, input);
}
