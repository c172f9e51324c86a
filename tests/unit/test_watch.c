/* roost run and roost watch: with a coordinator that still reads its run's data set when the watch
 * begins, that ends, or that has another run by now. */
#include "common/settings/options.h"
#include "deploy/roost/arguments.h"
#include "deploy/roost/command.h"
#include "deploy/roost/launch.h"
#include "deploy/roost/watch.h"
#include "tests/unit/fake_client.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

static const char spec[] =
    "model: {kind: gpt, layers: 2, heads: 2, width: 32, context: 16, vocabulary: 256}\n"
    "data: {kind: text, path: corpus}\n";

/* ---- the cluster ---- */

enum { ANSWERS_MAX = 6 };

/* One a Status. */
struct watch_answer {
    enum err err;
    enum run_state state;
    uint64_t run;
    int signals[2]; /* that come before it; 0: none */
};

static struct watch_answer answers[ANSWERS_MAX];
static atomic_uint asked; /* how often; the thread of signals reads it as the time */
static unsigned stops;    /* that were asked for */

/* Those of different numbers do not wait for each other. */
static void signals_come(const int numbers[2])
{
    sigset_t pending;
    for (int i = 0; i < 2; i++)
        assert_true(numbers[i] == 0 || kill(getpid(), numbers[i]) == 0);
    for (int i = 0; i < 2; i++)
        while (sigpending(&pending) == 0 && numbers[i] != 0 && sigismember(&pending, numbers[i]))
            sched_yield();
}

uint64_t __wrap_time_now_ns(void);

/* A long time between two answers; what waits until a moment waits no longer. */
uint64_t __wrap_time_now_ns(void)
{
    return (1 + 12 * (uint64_t)asked) * 1000000000;
}

enum err client_status(struct client *client, struct client_answer *answer,
                       struct status_reply *ret_status, struct reason *reason)
{
    (void)client, (void)answer;
    assert_true(asked < ANSWERS_MAX);
    const struct watch_answer *now = &answers[asked++];
    signals_come(now->signals);
    if (now->err != ERR_OK)
        return reason_set(reason, now->err, "the coordinator ends");
    *ret_status =
        (struct status_reply){.state = now->state, .run = now->run, .reason = "", .cut_state = ""};
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

enum err client_start_run(struct client *client, const struct start_run_request *request,
                          struct client_answer *answer, struct start_run_reply *ret_reply,
                          struct reason *reason)
{
    (void)client, (void)request, (void)answer, (void)reason;
    *ret_reply = (struct start_run_reply){.run = 1, .notes = ""};
    return ERR_OK;
}

/* ---- the rest of the commands ---- */

static error_t take_spec(int key, char *argument, struct argp_state *state)
{
    struct launch_options *options = state->input;
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    options->spec_path = argument;
    return 0;
}

const struct argp client_argp, launch_argp = {.parser = take_spec};
static char failure[512]; /* a command's sentence */

void arguments_parse(const struct arguments_about *about, int argc, char **argv,
                     struct arguments *ret_arguments)
{
    (void)about, (void)argc, (void)argv;
    *ret_arguments = (struct arguments){0};
}

/* What only other commands need. */

uint32_t arguments_count(const char *value, const char *what, uint32_t max,
                         const struct argp_state *state)
{
    (void)value, (void)what, (void)max, (void)state;
    fail();
    return 0;
}

enum err client_stop_run(struct client *client, const char *why, struct reason *reason)
{
    (void)client, (void)why, (void)reason;
    stops++;
    return ERR_OK;
}

void client_print_options(FILE *out, const struct client_options *options)
{
    (void)options;
    fputs("--cluster there", out);
}

int client_fail(const struct client_options *options, enum err err, const struct reason *reason)
{
    (void)options;
    snprintf(failure, sizeof failure, "%s", reason_text(err, reason));
    return options_exit_code(err);
}

enum err launch_read(const struct launch_options *options, struct launch *ret_launch,
                     struct reason *reason)
{
    *ret_launch = (struct launch){0};
    return spec_parse(slice_of(spec), options->spec_path, NULL, &ret_launch->spec, reason);
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
    return (struct start_run_request){0};
}

/* ---- what is shown ---- */

static struct {
    uint64_t line[ANSWERS_MAX]; /* tokens of a sample, by its status; 0: it is not shown */
    uint64_t summary;           /* the same; 0: there is none */
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

/* The fixture: what the coordinator answers, and what is said on stderr. */
struct watch_fixture {
    struct watch_answer answers[ANSWERS_MAX];
    int stderr_before, said;
    char text[1024];
};

static void watch_set_up(struct watch_fixture *f)
{
    memcpy(answers, f->answers, sizeof answers);
    memset(&shown, 0, sizeof shown);
    asked = stops = 0;
    failure[0] = 0;
    signal(SIGHUP, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    f->stderr_before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    f->said = memfd_create("stderr", MFD_CLOEXEC);
    assert_int_equal(dup2(f->said, STDERR_FILENO), STDERR_FILENO);
}

static void watch_tear_down(struct watch_fixture *f)
{
    assert_int_equal(dup2(f->stderr_before, STDERR_FILENO), STDERR_FILENO);
    close(f->stderr_before);
    close(f->said);
}

static const char *said_of(struct watch_fixture *f)
{
    ssize_t bytes = pread(f->said, f->text, sizeof f->text - 1, 0);
    assert_true(bytes >= 0);
    f->text[bytes] = 0;
    return f->text;
}

static int run_to_end(void)
{
    char *words[] = {"roost run", "run.yaml", NULL};
    return command_run(2, words);
}

TEST_F(a_language_model_whose_data_are_read_first_is_shown_in_tokens, watch,
       .answers = {{.state = RUN_STARTING}, {.state = RUN_TRAINING}, {.state = RUN_ENDED}})
{
    (void)f;
    assert_int_equal(command_watch(0, NULL), EXIT_SUCCESS);
    assert_int_equal(asked, 3);
    assert_int_equal(shown.line[1], 16);
    assert_int_equal(shown.line[2], 16);
    assert_int_equal(shown.summary, 16);
}

/* Whoever started run 1 must not take it for done. */
static void assert_end_not_seen(struct watch_fixture *f, int exit_code)
{
    assert_string_equal(said_of(f), "");
    assert_int_equal(exit_code, EXIT_FAILURE);
    assert_string_equal(failure, "run 1 is over, and its end was not seen here; the cluster has "
                                 "run 2");
    assert_int_equal(shown.line[asked - 1], 0);
    assert_int_equal(shown.summary, 0);
}

TEST_F(another_runs_end_is_not_that_of_the_run_that_was_started, watch,
       .answers = {{.state = RUN_ENDED, .run = 2}})
{
    assert_end_not_seen(f, run_to_end());
}

TEST_F(another_runs_end_is_not_that_of_the_run_that_is_watched, watch,
       .answers = {{.state = RUN_STARTING, .run = 1},
                   {.state = RUN_TRAINING, .run = 1},
                   {.state = RUN_ENDED, .run = 2}})
{
    assert_end_not_seen(f, command_watch(0, NULL));
}

/* It does not say a number before it has read its store. */
TEST_F(a_coordinator_that_begins_again_has_no_other_run, watch,
       .answers = {
           {.state = RUN_TRAINING, .run = 1}, {.state = RUN_NONE}, {.state = RUN_ENDED, .run = 1}})
{
    (void)f;
    assert_int_equal(run_to_end(), EXIT_SUCCESS);
    assert_int_equal(shown.summary, 16);
}

static void assert_run_not_known(int exit_code)
{
    assert_int_equal(exit_code, EXIT_FAILURE);
    assert_string_equal(failure, "the coordinator knows no run 1");
    assert_int_equal(asked, 4);
    assert_int_equal(shown.line[0], 16);
    for (unsigned i = 1; i < 4; i++)
        assert_int_equal(shown.line[i], 0);
    assert_int_equal(shown.summary, 0);
}

/* Its store was lost. */
TEST_F(a_run_that_the_coordinator_does_not_know_any_more_is_not_waited_for, watch,
       .answers = {{.state = RUN_TRAINING, .run = 1}})
{
    (void)f;
    assert_run_not_known(run_to_end());
}

TEST_F(a_coordinator_that_ends_is_asked_until_it_is_back, watch,
       .answers = {{.state = RUN_TRAINING, .run = 1},
                   {.err = ERR_UNREACHABLE},
                   {.err = ERR_UNREACHABLE},
                   {.state = RUN_ENDED, .run = 1}})
{
    (void)f;
    assert_int_equal(run_to_end(), EXIT_SUCCESS);
    assert_int_equal(shown.summary, 16);
}

/* As `roost up` does. */
static enum err watch_and_stop(void)
{
    struct client client = {0};
    struct client_answer answer = {0};
    struct status_reply status;
    struct progress progress = {0};
    struct watch_signals *signals;
    struct reason reason = {0};
    assert_int_equal(watch_signals_start(NULL, &signals), ERR_OK);
    struct watch watch = {.client = &client, .progress = &progress, .signals = signals};
    enum err err = watch_run(&watch, &answer, &status, &reason);
    watch_signals_free(signals);
    return err;
}

/* `timeout` signals its child, and then the child's group. */
TEST_F(one_stop_that_arrives_as_two_signals_is_one, watch,
       .answers = {{.state = RUN_TRAINING, .signals = {SIGHUP, SIGINT}},
                   {.state = RUN_TRAINING},
                   {.state = RUN_TRAINING},
                   {.state = RUN_STOPPED}})
{
    assert_int_equal(watch_and_stop(), ERR_OK);
    assert_int_equal(stops, 1);
    assert_string_equal(said_of(f), "stopping after a checkpoint (again: at once)\n");
}

TEST_F(a_second_ctrl_c_some_looks_later_gives_up, watch,
       .answers = {{.state = RUN_TRAINING, .signals = {SIGINT}},
                   {.state = RUN_TRAINING},
                   {.state = RUN_TRAINING},
                   {.state = RUN_TRAINING},
                   {.state = RUN_TRAINING, .signals = {SIGINT}},
                   {.state = RUN_TRAINING}})
{
    (void)f;
    assert_int_equal(watch_and_stop(), ERR_CANCELLED);
}

static void assert_detached(struct watch_fixture *f, const char *how)
{
    char wanted[256];
    snprintf(wanted, sizeof wanted,
             "the run %s on. Watch it again: roost watch --cluster there\n"
             "Stop it after a checkpoint: roost stop --cluster there\n",
             how);
    assert_string_equal(said_of(f), wanted);
    assert_int_equal(stops, 0);
    assert_int_equal(shown.summary, 0);
}

TEST_F(who_no_longer_watches_is_told_that_the_run_goes_on, watch,
       .answers = {{.state = RUN_TRAINING, .signals = {SIGINT}}, {.state = RUN_TRAINING}})
{
    assert_int_equal(run_to_end(), 128 + SIGINT);
    assert_detached(f, "goes");
}

TEST_F(of_a_coordinator_that_has_not_answered_nothing_is_known, watch,
       .answers = {{.err = ERR_UNREACHABLE, .signals = {SIGHUP}}, {.err = ERR_UNREACHABLE}})
{
    assert_int_equal(run_to_end(), 128 + SIGHUP);
    assert_detached(f, "may go");
}

/* An operator's certificate lasts 30 days, a run perhaps longer. */
TEST_F(a_watch_whose_certificate_ends_says_that_the_run_goes_on, watch,
       .answers = {{.state = RUN_TRAINING}, {.err = ERR_UNTRUSTED}})
{
    assert_int_equal(run_to_end(), EXIT_CONFIG);
    assert_detached(f, "goes");
}
