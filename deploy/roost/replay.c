/* roost replay: a run again, in one process. That links servers' and workers' code, so this only
 * finds the program and becomes it. */
#include "common/settings/options.h"
#include "deploy/roost/children.h"
#include "deploy/roost/command.h"

#include <unistd.h>

int command_replay(int argc, char **argv)
{
    enum { ARGUMENTS_MAX = 16 };
    char program[512];
    const char *arguments[ARGUMENTS_MAX + 1] = {"roost replay"};
    struct reason reason = {0};
    if (argc > ARGUMENTS_MAX) {
        fprintf(stderr, "roost replay: too many arguments\n");
        return EXIT_USAGE;
    }
    enum err err = children_program("roost-replay", program, sizeof program, &reason);
    if (err != ERR_OK)
        return command_fail(err, &reason);
    for (int i = 1; i < argc; i++)
        arguments[i] = argv[i];
    execv(program, (char *const *)(uintptr_t)arguments);
    reason_set(&reason, ERR_IO, "%s cannot be run", program);
    return command_fail(ERR_IO, &reason);
}
