/* roost watch, with a coordinator that still reads its run's data set when the watch begins. */
#include "deploy/roost/arguments.h"
#include "deploy/roost/command.h"
#include "deploy/roost/launch.h"
#include "deploy/roost/watch.h"
#include "tests/unit/fake_client.h"

static const char spec[] =
    "model: {kind: gpt, layers: 2, heads: 2, width: 32, context: 16, vocabulary: 256}\n"
    "data: {kind: text, path: corpus}\n";

/* ---- the cluster ---- */

static const enum run_state states[] = {RUN_STARTING, RUN_TRAINING, RUN_ENDED}; /* one a Status */
static unsigned asked;                                                          /* how often */

enum err client_status(struct client *client, struct client_answer *answer,
                       struct status_reply *ret_status, struct reason *reason)
{
    (void)client, (void)answer, (void)reason;
    assert_true(asked < sizeof states / sizeof states[0]);
    *ret_status = (struct status_reply){.state = states[asked++], .reason = "", .cut_state = ""};
    return ERR_OK;
}

enum err client_describe(struct client *client, struct client_answer *answer,
                         struct describe_reply *ret_reply, struct reason *reason)
{
    (void)client, (void)answer, (void)reason;
    bool read = asked > 1; /* its data set: it is no longer starting */
    *ret_reply = (struct describe_reply){.has_run = read, .spec = read ? spec : ""};
    return ERR_OK;
}

/* ---- the rest of the command ---- */

const struct argp client_argp, launch_argp;

void arguments_parse(const struct arguments_about *about, int argc, char **argv,
                     struct arguments *ret_arguments)
{
    (void)about, (void)argc, (void)argv;
    *ret_arguments = (struct arguments){0};
}

/* What only other commands and a failed one need. */

uint32_t arguments_count(const char *value, const char *what, uint32_t max,
                         const struct argp_state *state)
{
    (void)value, (void)what, (void)max, (void)state;
    fail();
    return 0;
}

enum err client_start_run(struct client *client, const struct start_run_request *request,
                          struct client_answer *answer, struct start_run_reply *ret_reply,
                          struct reason *reason)
{
    (void)client, (void)request, (void)answer, (void)ret_reply, (void)reason;
    fail();
    return ERR_CANCELLED;
}

enum err client_stop_run(struct client *client, const char *why, struct reason *reason)
{
    (void)client, (void)why, (void)reason;
    fail();
    return ERR_CANCELLED;
}

void client_print_options(FILE *out, const struct client_options *options)
{
    (void)out, (void)options;
    fail();
}

int client_fail(const struct client_options *options, enum err err, const struct reason *reason)
{
    (void)options;
    fail_msg("%s: %s", err_name(err), reason->text);
    return EXIT_FAILURE;
}

enum err launch_read(const struct launch_options *options, struct launch *ret_launch,
                     struct reason *reason)
{
    (void)options, (void)ret_launch, (void)reason;
    fail();
    return ERR_CANCELLED;
}

void launch_release(struct launch *launch)
{
    (void)launch;
}

struct start_run_request launch_request(const struct launch *launch,
                                        const struct launch_options *options, const char *directory,
                                        uint32_t servers)
{
    (void)launch, (void)options, (void)directory, (void)servers;
    fail();
    return (struct start_run_request){0};
}

/* ---- what is shown ---- */

static struct {
    uint64_t line[sizeof states / sizeof states[0]]; /* tokens of a sample, by its status's state */
    uint64_t summary;
} shown;

struct progress progress_new(uint64_t sample_tokens)
{
    return (struct progress){.sample_tokens = sample_tokens};
}

void progress_show(struct progress *progress, uint64_t now_ms, const struct status_reply *status)
{
    (void)now_ms, (void)status;
    shown.line[asked - 1] = progress->sample_tokens;
}

void progress_clear(struct progress *progress)
{
    (void)progress;
}

void __wrap_summary_print(const struct summary *summary, bool json);

void __wrap_summary_print(const struct summary *summary, bool json)
{
    (void)json;
    shown.summary = summary->sample_tokens;
}

TEST(a_language_model_whose_data_are_read_first_is_shown_in_tokens)
{
    assert_int_equal(command_watch(0, NULL), EXIT_SUCCESS);
    assert_int_equal(asked, 3);
    assert_int_equal(shown.line[1], 16);
    assert_int_equal(shown.line[2], 16);
    assert_int_equal(shown.summary, 16);
}
