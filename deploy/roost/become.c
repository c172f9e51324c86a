/* roost replay, roost program: what links workers' or servers' code is a program of its own, which
 * parses its own arguments. This finds it and becomes it. */
#include "common/settings/options.h"
#include "deploy/roost/children.h"
#include "deploy/roost/command.h"

#include <unistd.h>

static int become(const char *name, int argc, char **argv)
{
    enum { ARGUMENTS_MAX = 300 };
    char program[512];
    const char *arguments[ARGUMENTS_MAX + 1] = {0};
    struct reason reason = {0};
    if (argc > ARGUMENTS_MAX) {
        fprintf(stderr, "%s: too many arguments\n", argv[0]);
        return EXIT_USAGE;
    }
    enum err err = children_program(name, program, sizeof program, &reason);
    if (err != ERR_OK)
        return command_fail(err, &reason);
    for (int i = 0; i < argc; i++)
        arguments[i] = argv[i];
    execv(program, (char *const *)(uintptr_t)arguments);
    reason_set(&reason, ERR_IO, "%s cannot be run", program);
    return command_fail(ERR_IO, &reason);
}

int command_replay(int argc, char **argv)
{
    return become("roost-replay", argc, argv);
}

int command_program(int argc, char **argv)
{
    return become("roost-program", argc, argv);
}
