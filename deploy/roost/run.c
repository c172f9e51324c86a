/* roost run: starts a run on a cluster of daemons and watches it. roost watch: watches one that is
 * there. */
#include "common/model/model.h"
#include "common/scoped.h"
#include "common/settings/flags.h"
#include "common/settings/options.h"
#include "common/time.h"
#include "deploy/roost/arguments.h"
#include "deploy/roost/command.h"
#include "deploy/roost/launch.h"
#include "deploy/roost/watch.h"

#include <string.h>
#include <unistd.h>

enum { SEARCH_MS = 200 /* between two questions while a checkpoint or a data set is read */ };

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
                      uint64_t *ret_run, struct reason *reason)
{
    scoped(client_answer_release) struct client_answer answer = {0};
    struct start_run_reply reply;
    struct start_run_request request =
        launch_request(launch, &options->launch, options->directory, options->servers);
    enum err err;
    while ((err = client_start_run(client, &request, &answer, &reply, reason)) == ERR_SEARCHING)
        usleep(SEARCH_MS * 1000);
    TRY(config_path_error(err)); /* of the run's directory */
    if (reply.notes[0] != 0)
        fprintf(stderr, "%s\n", reply.notes);
    *ret_run = reply.run;
    return ERR_OK;
}

/* What is known of the run before it is watched. */
struct followed {
    uint64_t run;           /* its number; 0: not known */
    bool described;         /* the coordinator has said its spec, or the command has it */
    uint64_t sample_tokens; /* until then 1: samples are shown */
    double unigram_entropy; /* 0: not known */
    bool json;
    int exit_code; /* of a watch that a signal ended */
    bool stopped;  /* the run is, before its end */
};

/* The run is the cluster's, not the terminal's: it goes on when nobody watches. Of a coordinator that
 * does not answer nobody is sure. */
static void print_detached(const struct client_options *options, bool sure)
{
    fprintf(stderr, "the run %s on. Watch it again: roost watch ", sure ? "goes" : "may go");
    client_print_options(stderr, options);
    fputs("\nStop it after a checkpoint: roost stop ", stderr);
    client_print_options(stderr, options);
    fputc('\n', stderr);
}

/* The run that the cluster has, if its coordinator has the spec. */
static enum err describe(struct client *client, struct followed *followed, struct reason *reason)
{
    scoped(client_answer_release) struct client_answer answer = {0};
    struct describe_reply reply;
    struct spec spec;
    TRY(client_describe(client, &answer, &reply, reason));
    if (!reply.has_run)
        return ERR_OK;
    struct slice text = {(const uint8_t *)reply.spec, strlen(reply.spec)};
    TRY(spec_parse(text, "the run's spec", NULL, &spec, reason));
    followed->described = true;
    followed->run = reply.run;
    followed->sample_tokens = model_sample(&spec.model).predictions;
    return ERR_OK;
}

/* A watch that began before the coordinator had the run's spec. */
struct early_watch {
    struct client *client;
    struct followed *followed;
    struct progress *progress;
};

static void describe_late(void *context, const struct status_reply *status)
{
    const struct early_watch *early = context;
    struct reason reason = {0};
    if (early->followed->described || status->state == RUN_STARTING)
        return;
    ignore(describe(early->client, early->followed, &reason)); /* the next status asks again */
    early->progress->sample_tokens = early->followed->sample_tokens;
}

/* Watches the run to its end and prints its summary, or until a signal comes. */
static enum err follow(const struct client_options *options, struct client *client,
                       struct followed *followed, const struct watch_signals *signals,
                       struct reason *reason)
{
    scoped(client_answer_release) struct client_answer answer = {0};
    struct status_reply status = {0}; /* who is interrupted may have had none */
    struct progress progress = progress_new(followed->sample_tokens);
    struct early_watch early = {client, followed, &progress};
    struct watch watch = {.client = client,
                          .run = followed->run,
                          .progress = &progress,
                          .signals = signals,
                          .detaches = true,
                          .see = describe_late,
                          .context = &early};
    enum err err = watch_run(&watch, &answer, &status, reason);
    if (err != ERR_OK && err != ERR_NOT_FOUND) /* then the run is over */
        print_detached(options, err == ERR_UNTRUSTED);
    TRY(err);
    if (!watch_is_over(&status)) {
        print_detached(options, status.state != RUN_NONE);
        followed->exit_code = watch_exit_code(signals);
        return ERR_OK;
    }
    struct summary summary = {.status = &status,
                              .unigram_entropy = followed->unigram_entropy,
                              .sample_tokens = followed->sample_tokens};
    summary_print(&summary, followed->json);
    followed->stopped = status.state == RUN_STOPPED;
    return status.state == RUN_FAILED ? reason_set(reason, ERR_RUN_FAILED, "%s", status.reason)
                                      : ERR_OK;
}

static enum err run(struct run_options *options, struct watch_signals *signals, int *ret_exit_code,
                    struct reason *reason)
{
    scoped(client_release) struct client client = {0};
    scoped(launch_release) struct launch launch = {0};
    uint64_t number;
    TRY(launch_read(&options->launch, &launch, reason));
    TRY(client_open(&options->client, &client, reason));
    watch_signals_set_ending(signals, "interrupted before the coordinator answered: `roost status` "
                                      "says whether the run began");
    TRY(start(options, &client, &launch, &number, reason));
    watch_signals_set_ending(signals, NULL);
    if (options->detach)
        return ERR_OK;
    struct followed followed = {.run = number,
                                .described = true,
                                .sample_tokens = model_sample(&launch.spec.model).predictions,
                                .unigram_entropy = launch.unigram_entropy,
                                .json = options->launch.json};
    TRY(follow(&options->client, &client, &followed, signals, reason));
    if (followed.stopped)
        fputs("the run was stopped before its end: --resume goes on with it\n", stderr);
    *ret_exit_code = followed.stopped ? EXIT_STOPPED : followed.exit_code;
    return ERR_OK;
}

/* ERR_NO_RUN: the cluster has none, and had none since its coordinator began. A coordinator that
 * cannot go on with its run yet has a status for it, but no spec. */
static enum err find_run(struct client *client, struct followed *followed, struct reason *reason)
{
    scoped(client_answer_release) struct client_answer answer = {0};
    struct status_reply status;
    TRY(describe(client, followed, reason));
    if (followed->described)
        return ERR_OK;
    TRY(client_status(client, &answer, &status, reason));
    if (status.state != RUN_STARTING && status.state != RUN_TRAINING)
        return reason_set(reason, ERR_NO_RUN, "nothing to watch; `roost run` starts a run");
    followed->run = status.run;
    return ERR_OK;
}

static enum err watch(const struct arguments *arguments, struct watch_signals *signals,
                      int *ret_exit_code, struct reason *reason)
{
    scoped(client_release) struct client client = {0};
    struct followed followed = {.sample_tokens = 1, .json = arguments->json};
    TRY(client_open(&arguments->client, &client, reason));
    TRY(find_run(&client, &followed, reason));
    watch_signals_set_ending(signals, NULL);
    TRY(follow(&arguments->client, &client, &followed, signals, reason));
    *ret_exit_code = followed.exit_code;
    return ERR_OK;
}

int command_run(int argc, char **argv)
{
    static const struct argp_option rows[] = {
        {"directory", 'd', "DIR", 0,
         "the run's directory, as the coordinator's daemon sees it (its --run-dir, then run-2, "
         "run-3, ... in that; with --resume the one with the newest checkpoint, wherever SPEC "
         "lies)",
         0},
        {"servers", 'S', "N", 0, "wait for so many servers (1)", 0},
        {"detach", 'D', NULL, 0, "do not watch", 0},
        {0},
    };
    static const struct argp_child children[] = {
        {&client_argp, 0, NULL, 0}, {&launch_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        rows,
        parse_option,
        "SPEC",
        "Starts a run on the cluster and watches it. Ctrl-C ends the watching, not the run: "
        "`roost watch` attaches again, `roost stop` stops it.",
        children,
        NULL,
        NULL};
    struct run_options options = {.directory = "", .servers = 1, .launch.elsewhere = true};
    struct watch_signals *signals;
    struct reason reason = {0};
    argp_err_exit_status = EXIT_USAGE;
    flags_parse(&argp, argc, argv, &options);
    if (options.launch.spec_path == NULL) {
        fprintf(stderr, "roost run: which spec? `roost run --help`\n");
        return EXIT_USAGE;
    }
    int exit_code = EXIT_SUCCESS;
    enum err err = watch_signals_start("interrupted before the run was started", &signals);
    if (err == ERR_OK) {
        err = run(&options, signals, &exit_code, &reason);
        watch_signals_free(signals);
    }
    return err == ERR_OK ? exit_code : client_fail(&options.client, err, &reason);
}

int command_watch(int argc, char **argv)
{
    static const struct arguments_about about = {
        .cluster = true,
        .json = true,
        .summary = "Watches the cluster's run to its end and prints its summary. Ctrl-C ends the "
                   "watching, not the run."};
    struct arguments arguments;
    struct watch_signals *signals;
    struct reason reason = {0};
    int exit_code = EXIT_SUCCESS;
    arguments_parse(&about, argc, argv, &arguments);
    enum err err = watch_signals_start("interrupted before the coordinator answered", &signals);
    if (err == ERR_OK) {
        err = watch(&arguments, signals, &exit_code, &reason);
        watch_signals_free(signals);
    }
    return err == ERR_OK ? exit_code : client_fail(&arguments.client, err, &reason);
}
