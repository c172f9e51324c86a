/* roost sample: text from a run's newest checkpoint. The model's code is the worker's: this only
 * finds the program and becomes it. */
#include "deploy/roost/arguments.h"
#include "deploy/roost/children.h"
#include "deploy/roost/command.h"

#include <string.h>
#include <unistd.h>

enum { ARGUMENTS_MAX = 16 };

struct sample_command {
    const char *values[ARGUMENTS_MAX]; /* flag and value of the worker, in turn */
    size_t count;
};

static void pass_on(struct sample_command *sample, const char *flag, const char *value,
                    const struct argp_state *state)
{
    if (sample->count + 2 > ARGUMENTS_MAX)
        argp_error(state, "more than %d options", ARGUMENTS_MAX / 2);
    sample->values[sample->count++] = flag;
    sample->values[sample->count++] = value;
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct sample_command *sample = state->input;
    switch (key) {
    case 'p':
        pass_on(sample, "--prompt", argument, state);
        return 0;
    case 'n':
        pass_on(sample, "--tokens", argument, state);
        return 0;
    case 't':
        pass_on(sample, "--temperature", argument, state);
        return 0;
    case 'k':
        pass_on(sample, "--top-k", argument, state);
        return 0;
    case 'S':
        pass_on(sample, "--seed", argument, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int command_sample(int argc, char **argv)
{
    static const struct argp_option rows[] = {
        {"prompt", 'p', "TEXT", 0,
         "text to go on from; of a model whose tokens are not bytes, their numbers: '464 3290'", 0},
        {"tokens", 'n', "N", 0, "how many to write (400)", 0},
        {"temperature", 't', "X", 0, "0: always the likeliest (0.8)", 0},
        {"top-k", 'k', "N", 0, "choose among the likeliest N; 0: all (40)", 0},
        {"seed", 'S', "N", 0, "same seed, same text (1)", 0},
        {0},
    };
    static const struct argp own = {.options = rows, .parser = parse_option};
    struct sample_command sample = {0};
    const struct arguments_about about = {
        .subject = "DIR",
        .own = &own,
        .own_input = &sample,
        .summary = "Writes text from the newest checkpoint in a run's directory, or from one "
                   "checkpoint."};
    struct arguments command;
    struct reason reason = {0};
    char program[512];
    /* Its errors begin with the name that it is called by. */
    const char *arguments[ARGUMENTS_MAX + 4] = {"roost sample", "--sample"};
    arguments_parse(&about, argc, argv, &command);
    enum err err = children_program("roost-worker", program, sizeof program, &reason);
    if (err != ERR_OK)
        return command_fail(err, &reason);
    arguments[2] = command.subject;
    memcpy(arguments + 3, sample.values, sample.count * sizeof *arguments);
    execv(program, (char *const *)(uintptr_t)arguments);
    reason_set(&reason, ERR_IO, "%s cannot be run", program);
    return command_fail(ERR_IO, &reason);
}
