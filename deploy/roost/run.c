/* roost run: starts a run on a cluster of daemons and watches it. */
#include "common/model/model.h"
#include "common/scoped.h"
#include "common/settings/options.h"
#include "common/time.h"
#include "deploy/roost/arguments.h"
#include "deploy/roost/command.h"
#include "deploy/roost/launch.h"
#include "deploy/roost/watch.h"

struct run_options {
    struct client_options client;
    struct launch_options launch;
    const char *directory;
    uint32_t servers;
    bool detach;
};

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct run_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->client;
        state->child_inputs[1] = &options->launch;
        return 0;
    case 'd':
        options->directory = argument;
        return 0;
    case 'S':
        options->servers = arguments_count(argument, "servers", WIRE_SERVERS_MAX, state);
        return 0;
    case 'D':
        options->detach = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static enum err start(struct run_options *options, struct client *client, struct launch *launch,
                      struct reason *reason)
{
    scoped(client_answer_release) struct client_answer answer = {0};
    struct start_run_reply reply;
    struct start_run_request request =
        launch_request(launch, &options->launch, options->directory, options->servers);
    TRY(client_start_run(client, &request, &answer, &reply, reason));
    if (reply.notes[0] != 0)
        fprintf(stderr, "%s\n", reply.notes);
    return ERR_OK;
}

static enum err run(struct run_options *options, struct watch_signals *signals,
                    struct reason *reason)
{
    scoped(client_release) struct client client = {0};
    scoped(client_answer_release) struct client_answer answer = {0};
    scoped(launch_release) struct launch launch = {0};
    struct status_reply status;
    TRY(launch_read(&options->launch, &launch, reason));
    TRY(client_open(&options->client, &client, reason));
    TRY(start(options, &client, &launch, reason));
    if (options->detach)
        return ERR_OK;
    uint64_t tokens = model_sample(&launch.spec.model).predictions;
    struct progress progress = progress_new(tokens);
    struct watch watch = {.client = &client, .progress = &progress, .signals = signals};
    TRY(watch_run(&watch, &answer, &status, reason));
    struct summary summary = {
        .status = &status, .unigram_entropy = launch.unigram_entropy, .sample_tokens = tokens};
    summary_print(&summary, options->launch.json);
    return status.state == RUN_FAILED ? reason_set(reason, ERR_RUN_FAILED, "%s", status.reason)
                                      : ERR_OK;
}

int command_run(int argc, char **argv)
{
    static const struct argp_option rows[] = {
        {"directory", 'd', "DIR", 0,
         "the run's directory, as the coordinator's daemon sees it (default: its own)", 0},
        {"servers", 'S', "N", 0, "wait for so many servers (1)", 0},
        {"detach", 'D', NULL, 0, "do not watch", 0},
        {0},
    };
    static const struct argp_child children[] = {
        {&client_argp, 0, NULL, 0}, {&launch_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        rows,     parse_option,
        "SPEC",   "Starts a run on the cluster and watches it. Ctrl-C stops it after a checkpoint.",
        children, NULL,
        NULL};
    struct run_options options = {.directory = "", .servers = 1};
    struct watch_signals *signals;
    struct reason reason = {0};
    argp_err_exit_status = EXIT_USAGE;
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    if (options.launch.spec_path == NULL) {
        fprintf(stderr, "roost run: which spec? `roost run --help`\n");
        return EXIT_USAGE;
    }
    enum err err = watch_signals_start(&signals);
    if (err == ERR_OK) {
        err = run(&options, signals, &reason);
        watch_signals_free(signals);
    }
    return err == ERR_OK ? EXIT_SUCCESS : command_fail(err, &reason);
}
