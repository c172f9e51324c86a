/* roost: the operator's tool. `roost COMMAND --help` explains each command. */
#include "common/file.h"
#include "common/rpc/rpc.h"
#include "common/settings/options.h"
#include "common/slip.h"
#include "deploy/roost/command.h"

#include <string.h>

struct command {
    const char *name;
    command_fn *run;
    const char *summary;
};

static const struct command commands[] = {
    {"up", command_up, "train on this machine: servers, workers and a run, started and watched"},
    {"run", command_run, "start a run on a cluster and watch it"},
    {"watch", command_watch, "watch the cluster's run to its end"},
    {"status", command_status, "what a cluster does; exit code 3: it needs somebody"},
    {"stop", command_stop, "end the run after a checkpoint"},
    {"checkpoint", command_checkpoint,
     "make the next step a checkpoint; list, verify, restore or prune them"},
    {"replay", command_replay, "repeat a run in one process and compare its bytes"},
    {"program", command_program,
     "what a pipeline of stages would cost: printed, checked and drawn"},
    {"drain", command_drain, "move a server's chunks to the others and end it; the run goes on"},
    {"sample", command_sample, "text from a run's newest checkpoint"},
    {"digest", command_digest, "SHA-256 of a checkpoint's weights and optimizer state"},
    {"ledger", command_ledger,
     "that every sample of an epoch was counted exactly once, and from what"},
    {"export", command_export, "a checkpoint's weights as safetensors, with Hugging Face names"},
    {"restore", command_restore, "train on from the weights of a safetensors file"},
    {"cert", command_cert, "make the cluster's CA and certificates"},
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

int command_fail(enum err err, const struct reason *reason)
{
    fprintf(stderr, "roost: %s\n", reason_text(err, reason));
    return options_exit_code(err);
}

/* A command that failed says why by its exit code; whoever reads stdout must know, too. */
static int printed(int exit_code)
{
    struct reason reason = {0};
    enum err err = options_printed(&reason);
    int failed = err == ERR_OK ? EXIT_SUCCESS : command_fail(err, &reason);
    return exit_code == EXIT_SUCCESS ? failed : exit_code;
}

static void print_usage(FILE *out)
{
    fprintf(out, "usage: roost COMMAND [OPTION...]\n\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n`roost COMMAND --help` explains a command.\n");
}

static int unknown(const char *name)
{
    struct slip slip = slip_of(name);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        slip_try(&slip, commands[i].name);
    if (slip.meant != NULL)
        fprintf(stderr, "roost: no command %s (did you mean %s?)\n", name, slip.meant);
    else
        fprintf(stderr, "roost: no command %s; `roost --help` lists them\n", name);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    file_standard_open();
    if (argc < 2) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("roost %s\n", ROOST_VERSION);
        return printed(EXIT_SUCCESS);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return printed(EXIT_SUCCESS);
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            char name[64];
            snprintf(name, sizeof name, "roost %s", commands[i].name);
            argv[1] = name; /* what argp calls the program */
            file_faults_explain();
            rpc_process_init(false);
            return printed(commands[i].run(argc - 1, argv + 1));
        }
    return unknown(argv[1]);
}
