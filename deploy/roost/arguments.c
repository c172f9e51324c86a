#include "deploy/roost/arguments.h"

#include "common/options.h"

#include <inttypes.h>

struct parsing {
    const struct arguments_about *about;
    struct arguments *arguments;
};

static void take_subject(const struct parsing *parsing, const char *argument,
                         const struct argp_state *state)
{
    const char *subject = parsing->about->subject;
    if (subject == NULL)
        argp_error(state, "unexpected argument %s", argument);
    else if (parsing->arguments->subject != NULL)
        argp_error(state, "more than one %s: %s", subject, argument);
    parsing->arguments->subject = argument;
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
    if (about->cluster)
        children[child++].argp = &client_argp;
    if (about->own != NULL)
        children[child].argp = about->own;
    const struct argp argp = {about->json ? json : NULL,
                              parse_option,
                              about->subject,
                              about->summary,
                              children,
                              NULL,
                              NULL};
    struct parsing parsing = {about, ret_arguments};
    *ret_arguments = (struct arguments){0};
    argp_err_exit_status = EXIT_USAGE;
    argp_parse(&argp, argc, argv, 0, NULL, &parsing);
}

uint32_t arguments_count(const char *value, const char *what, uint32_t max,
                         const struct argp_state *state)
{
    char *end;
    unsigned long count = strtoul(value, &end, 10);
    if (*end != 0 || count == 0 || count > max)
        argp_error(state, "%s %s is not 1 to %" PRIu32, what, value, max);
    return (uint32_t)count;
}
