#include "common/settings/options.h"

#include "common/file.h"
#include "common/log.h"
#include "common/scoped.h"
#include "common/settings/flags.h"
#include "common/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

enum {
    KEY_CONFIG = 0x100,
    KEY_CHECK,
    KEY_SET,
    KEY_FIELD,
    FLAGS_MAX = 64,
    NAME_BYTES = 48,
    TEXT_BYTES = 160
};

const char *argp_program_version = "roost " ROOST_VERSION;

struct command_line {
    const struct options *options;
    const char *file;
    bool check;
    size_t flag_count;
    struct buf texts[FLAGS_MAX];
    const char *flags[FLAGS_MAX];
    char names[CONFIG_FIELDS_MAX][NAME_BYTES];
    char values[CONFIG_FIELDS_MAX][TEXT_BYTES]; /* "error|warning", where only these may be */
    char helps[CONFIG_FIELDS_MAX][TEXT_BYTES];  /* with the default */
    struct argp_option argp_options[CONFIG_FIELDS_MAX + 4];
};

/* ---- the table as argp's options ---- */

static void flag_name(const char *path, char name[static NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%s", path);
    for (char *at = name; *at != 0; at++)
        if (*at == '_')
            *at = '-';
}

static const char *list_names(const char *const *names, char text[static TEXT_BYTES])
{
    size_t bytes = 0;
    for (size_t i = 0; names[i] != NULL && bytes < TEXT_BYTES; i++)
        bytes +=
            (size_t)snprintf(text + bytes, TEXT_BYTES - bytes, "%s%s", i > 0 ? "|" : "", names[i]);
    return text;
}

static const char *value_name(const struct config_field *field, char text[static TEXT_BYTES])
{
    switch (field->type) {
    case CONFIG_BOOL:
        return NULL;
    case CONFIG_U32:
    case CONFIG_U64:
    case CONFIG_REAL:
        return "N";
    case CONFIG_NAME:
        return list_names(field->names, text);
    default:
        return "VALUE";
    }
}

/* "most detailed lines written (info)" */
static const char *help_text(const struct config_field *field, char text[static TEXT_BYTES])
{
    if (field->initial == NULL || field->type == CONFIG_BOOL)
        return field->help;
    snprintf(text, TEXT_BYTES, "%s (%s)", field->help, field->initial);
    return text;
}

static void list_options(struct command_line *line)
{
    const struct config_table *table = line->options->table;
    struct argp_option *option = line->argp_options;
    *option++ = (struct argp_option){"config", KEY_CONFIG, "FILE", 0, "settings as YAML", 0};
    *option++ = (struct argp_option){
        "check-config", KEY_CHECK, NULL, 0, "print the effective settings and exit", 0};
    for (size_t i = 0; i < table->fields_count; i++) {
        const struct config_field *field = &table->fields[i];
        flag_name(field->path, line->names[i]);
        *option++ = (struct argp_option){line->names[i],
                                         KEY_FIELD + (int)i,
                                         value_name(field, line->values[i]),
                                         0,
                                         help_text(field, line->helps[i]),
                                         1};
    }
    *option = (struct argp_option){0};
}

static void add_flag(struct command_line *line, struct argp_state *state, const char *path,
                     const char *value)
{
    if (line->flag_count == FLAGS_MAX)
        argp_error(state, "more than %d flags", FLAGS_MAX);
    struct buf *text = &line->texts[line->flag_count];
    if (buf_printf(text, "%s=%s", path, value) != ERR_OK)
        argp_failure(state, EXIT_FAILURE, 0, "out of memory");
    line->flags[line->flag_count++] = (const char *)text->data;
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct command_line *line = state->input;
    const struct config_table *table = line->options->table;
    if (key == KEY_CONFIG) {
        line->file = argument;
    } else if (key == KEY_CHECK) {
        line->check = true;
    } else if (key >= KEY_FIELD && key < KEY_FIELD + (int)table->fields_count) {
        const char *path = table->fields[key - KEY_FIELD].path;
        add_flag(line, state, path, argument != NULL ? argument : "true");
    } else if (key == ARGP_KEY_ARG) {
        argp_error(state, "unexpected argument %s", argument);
    } else {
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* ---- the settings ---- */

static enum err read_settings(const struct command_line *line, void *ret_settings,
                              struct reason *reason)
{
    scoped(buf_release) struct buf text = {0};
    struct config_overrides overrides = {
        .flags = line->flags,
        .flags_count = line->flag_count,
        .flags_alone = true,
        .environment = (const char *const *)environ,
    };
    enum err err = ERR_OK;
    if (line->file != NULL)
        err = config_path_error(file_read(line->file, CONFIG_FILE_BYTES_MAX, &text, reason));
    TRY(err);
    return config_parse(line->options->table, buf_slice(&text),
                        line->file == NULL ? "settings" : line->file, &overrides, ret_settings,
                        NULL, reason);
}

static enum err print_settings(const struct config_table *table, const void *settings)
{
    scoped(buf_release) struct buf text = {0};
    TRY(config_print(table, settings, &text));
    fwrite(text.data, 1, text.bytes, stdout);
    return ERR_OK;
}

/* A daemon inherits the settings of other programs, too. These two are near each other. */
static bool is_of_others(const char *line)
{
    static const char *const others[] = {"ROOST_LEASE_MS=", "ROOST_LEAVE_MS="};
    bool found = false;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        found = found || strncmp(line, others[i], strlen(others[i])) == 0;
    return found;
}

static void warn_of_slip(const char *program, const char *line, const char *meant)
{
    struct logger logger = log_stderr(LOG_LEVEL_WARNING, options_environment("JOURNAL_STREAM", ""));
    fprintf(stderr, "%s%s: warning: %.*s is no setting (did you mean " CONFIG_ENVIRONMENT_PREFIX,
            log_mark(&logger, LOG_LEVEL_WARNING), program, (int)strcspn(line, "="), line);
    for (; *meant != 0; meant++)
        fputc(*meant == '.' ? '_' : toupper((unsigned char)*meant), stderr);
    fputs("?)\n", stderr);
}

void options_warn_of_slips(const char *program, const struct config_table *table)
{
    for (char **line = environ; *line != NULL; line++) {
        const char *meant = is_of_others(*line) ? NULL : config_meant(table, *line);
        if (meant != NULL)
            warn_of_slip(program, *line, meant);
    }
}

enum err options_parse(const struct options *options, int argc, char **argv, void *ret_settings,
                       bool *ret_check, struct reason *reason)
{
    struct command_line *line = calloc(1, sizeof *line);
    if (line == NULL)
        return ERR_NOMEM;
    line->options = options;
    list_options(line);
    struct argp argp = {line->argp_options, parse_option, NULL, options->summary, NULL, NULL, NULL};
    argp_err_exit_status = EXIT_USAGE;
    flags_parse(&argp, argc, argv, line);
    options_warn_of_slips(options->program, options->table);
    enum err err = read_settings(line, ret_settings, reason);
    if (err == ERR_OK && line->check)
        err = print_settings(options->table, ret_settings);
    *ret_check = line->check;
    for (size_t i = 0; i < line->flag_count; i++)
        buf_release(&line->texts[i]);
    free(line);
    return err;
}

const char *options_environment(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value != NULL ? value : otherwise;
}

void options_forget_environment(const char *const *names)
{
    for (; *names != NULL; names++)
        unsetenv(*names);
}

/* Errors that a new start does not mend: somebody has to change a setting or a machine. */
static bool is_configuration(enum err err)
{
    static const enum err errors[] = {ERR_INVALID,      ERR_DENIED,      ERR_UNTRUSTED,
                                      ERR_WIRE_VERSION, ERR_FINGERPRINT, ERR_DATA_SET,
                                      ERR_SPEC_DIFFERS, ERR_WRONG_BITS,  ERR_UNSUPPORTED,
                                      ERR_NAME_TAKEN,   ERR_EXPELLED};
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i] == err)
            return true;
    return false;
}

enum err options_check_name(const char *name, struct reason *reason)
{
    if (utf8_is_word(name))
        return ERR_OK;
    return reason_set(
        reason, ERR_INVALID,
        "name \"%s\" is empty, or has a space, a quote, a backslash, an equals sign or "
        "a character that does not show",
        name);
}

void options_complain(const struct options *options, enum err err, const struct reason *reason)
{
    struct logger logger = log_stderr(LOG_LEVEL_ERROR, options_environment("JOURNAL_STREAM", ""));
    fprintf(stderr, "%s%s: %s\n", log_mark(&logger, LOG_LEVEL_ERROR), options->program,
            reason_text(err, reason));
}

/* The other end of the pipe that standard output is has been closed. */
static bool reader_is_gone(void)
{
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

enum err options_printed(struct reason *reason)
{
    /* Why it failed earlier is not kept. */
    bool failed = ferror(stdout) != 0 && !reader_is_gone();
    clearerr(stdout); /* said once */
    if (fflush(stdout) != 0)
        return errno == EPIPE ? ERR_OK : file_failed("write", "the standard output", reason);
    return failed
               ? reason_set(reason, ERR_NO_SPACE,
                            "cannot write all of the standard output: its disk is full, or fails")
               : ERR_OK;
}

int options_exit_code(enum err err)
{
    if (err == ERR_OK)
        return EXIT_SUCCESS;
    if (is_configuration(err))
        return EXIT_CONFIG;
    enum reaction reaction = err_reaction(err);
    bool again = reaction == REACT_RETRY || reaction == REACT_WAIT || err == ERR_RUN_CHANGED;
    return again ? EXIT_AGAIN : EXIT_FAILURE;
}
