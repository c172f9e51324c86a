#include "deploy/roost/arguments.h"

#include "common/settings/flags.h"
#include "common/settings/options.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct parsing {
    const struct arguments_about *about;
    struct arguments *arguments;
};

static void take_subject(const struct parsing *parsing, const char *argument,
                         const struct argp_state *state)
{
    const char *subject = parsing->about->subject, *second = parsing->about->second;
    struct arguments *arguments = parsing->arguments;
    if (subject == NULL)
        argp_error(state, "unexpected argument %s", argument);
    else if (arguments->subject == NULL)
        arguments->subject = argument;
    else if (second == NULL || arguments->second != NULL)
        argp_error(state, "more than one %s: %s", second == NULL ? subject : second, argument);
    else
        arguments->second = argument;
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    const struct parsing *parsing = state->input;
    const struct arguments_about *about = parsing->about;
    unsigned child = 0;
    switch (key) {
    case ARGP_KEY_INIT:
        if (about->cluster)
            state->child_inputs[child++] = &parsing->arguments->client;
        if (about->own != NULL)
            state->child_inputs[child] = about->own_input;
        return 0;
    case 'j':
        parsing->arguments->json = true;
        return 0;
    case ARGP_KEY_ARG:
        take_subject(parsing, argument, state);
        return 0;
    case ARGP_KEY_END:
        if (about->subject != NULL && parsing->arguments->subject == NULL)
            argp_error(state, "which %s?%s%s", about->subject, about->hint != NULL ? " " : "",
                       about->hint != NULL ? about->hint : "");
        if (about->second != NULL && parsing->arguments->second == NULL)
            argp_error(state, "which %s?", about->second);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void arguments_parse(const struct arguments_about *about, int argc, char **argv,
                     struct arguments *ret_arguments)
{
    static const struct argp_option json[] = {
        {"json", 'j', NULL, 0, "one JSON object on stdout", 0}, {0}};
    struct argp_child children[3] = {{0}};
    unsigned child = 0;
    char subjects[64];
    if (about->cluster)
        children[child++].argp = &client_argp;
    if (about->own != NULL)
        children[child].argp = about->own;
    snprintf(subjects, sizeof subjects, "%s%s%s", about->subject != NULL ? about->subject : "",
             about->second != NULL ? " " : "", about->second != NULL ? about->second : "");
    const struct argp argp = {about->json ? json : NULL,
                              parse_option,
                              about->subject != NULL ? subjects : NULL,
                              about->summary,
                              children,
                              NULL,
                              NULL};
    struct parsing parsing = {about, ret_arguments};
    *ret_arguments = (struct arguments){0};
    argp_err_exit_status = EXIT_USAGE;
    flags_parse(&argp, argc, argv, &parsing);
}

/* Digits only: strtoull() takes -1 for the largest number there is. */
static bool parse_integer(const char *value, uint64_t *ret_integer)
{
    if (value[0] == 0 || value[strspn(value, "0123456789")] != 0)
        return false;
    errno = 0;
    *ret_integer = strtoull(value, NULL, 10);
    return errno == 0;
}

uint32_t arguments_count(const char *value, const char *what, uint32_t max,
                         const struct argp_state *state)
{
    uint64_t count = 0;
    if (!parse_integer(value, &count) || count == 0 || count > max)
        argp_error(state, "%s %s is not 1 to %" PRIu32, what, value, max);
    return (uint32_t)count;
}

double arguments_positive(const char *value, const char *what, uint32_t max,
                          const struct argp_state *state)
{
    char *end;
    double number = strtod(value, &end);
    if (end == value || *end != 0 || !(number > 0 && number <= max))
        argp_error(state, "%s %s is not a number above 0 and at most %" PRIu32, what, value, max);
    return number;
}

uint64_t arguments_integer(const char *value, const char *what, const struct argp_state *state)
{
    uint64_t integer = 0;
    if (!parse_integer(value, &integer))
        argp_error(state, "%s %s is not an integer from 0 to %" PRIu64, what, value, UINT64_MAX);
    return integer;
}
