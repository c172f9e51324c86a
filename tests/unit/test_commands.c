/* What roost status, stop, drain and checkpoint say of what the coordinator answers. */
#include "deploy/roost/arguments.h"
#include "deploy/roost/command.h"
#include "deploy/roost/progress.h"
#include "tests/unit/fake_client.h"

/* ---- the coordinator ---- */

static struct status_reply told;       /* to each Status */
static struct status_reply told_later; /* behind the first `looks_before` */
static unsigned looks_before, looks;
static enum err stop_err;       /* of a StopRun */
static enum err checkpoint_err; /* of a Checkpoint */
static enum err drain_err;      /* of a Drain */
static enum err failed;         /* a command */
static char failure[512];       /* its sentence */

enum err client_status(struct client *client, struct client_answer *answer,
                       struct status_reply *ret_status, struct reason *reason)
{
    (void)client, (void)answer, (void)reason;
    *ret_status = looks++ < looks_before ? told : told_later;
    return ERR_OK;
}

enum err client_describe(struct client *client, struct client_answer *answer,
                         struct describe_reply *ret_reply, struct reason *reason)
{
    (void)client, (void)answer, (void)reason;
    *ret_reply = (struct describe_reply){0};
    return ERR_OK;
}

enum err client_stop_run(struct client *client, const char *why, struct reason *reason)
{
    (void)client, (void)why;
    return stop_err == ERR_OK ? ERR_OK : reason_set(reason, stop_err, "no run is active");
}

enum err client_drain(struct client *client, const struct drain_request *request,
                      struct client_answer *answer, struct drain_reply *ret_reply,
                      struct reason *reason)
{
    (void)client, (void)request, (void)answer;
    *ret_reply = (struct drain_reply){.drained = true, .waits_for = ""};
    return drain_err == ERR_OK ? ERR_OK : reason_set(reason, drain_err, "no server s2 is known");
}

enum err client_checkpoint(struct client *client, struct cut_name *ret_newest,
                           struct reason *reason)
{
    (void)client;
    *ret_newest = (struct cut_name){0};
    return checkpoint_err == ERR_OK ? ERR_OK
                                    : reason_set(reason, checkpoint_err, "Deadline Exceeded");
}

/* ---- the rest of the commands ---- */

const struct argp client_argp;
static struct arguments asked_for;

/* The options of a drain are --lost. */
void arguments_parse(const struct arguments_about *about, int argc, char **argv,
                     struct arguments *ret_arguments)
{
    (void)argc, (void)argv;
    if (about->own_input != NULL)
        *(bool *)about->own_input = true;
    *ret_arguments = asked_for;
}

void client_print_options(FILE *out, const struct client_options *options)
{
    (void)options;
    fputs("--cluster here", out);
}

int client_fail(const struct client_options *options, enum err err, const struct reason *reason)
{
    (void)options;
    failed = err;
    snprintf(failure, sizeof failure, "%s", reason_text(err, reason));
    return EXIT_FAILURE;
}

/* What only other commands need. */

int command_fail(enum err err, const struct reason *reason)
{
    fail_msg("%s: %s", err_name(err), reason->text);
    return EXIT_FAILURE;
}

uint32_t arguments_count(const char *value, const char *what, uint32_t max,
                         const struct argp_state *state)
{
    (void)value, (void)what, (void)max, (void)state;
    fail();
    return 0;
}

void progress_show(struct progress *progress, uint64_t now_ms, const struct status_reply *status)
{
    (void)progress, (void)now_ms, (void)status;
    fail();
}

void progress_clear(struct progress *progress)
{
    (void)progress;
    fail();
}

/* ---- what is said ---- */

static char said[8192]; /* on stdout and stderr */
static int exit_code;

/* The fixture: a run that trains. */
struct commands_fixture {
    enum run_state state;
    const char *reason;
    bool stops;
    const char *cut_state;
    uint64_t step;
    struct cut_name cut;
    uint64_t samples_here;
    double loss;
    uint32_t server_count;
    struct server_description servers[2];
    bool json;
};

static void commands_set_up(struct commands_fixture *f)
{
    told = (struct status_reply){
        .run = 1,
        .state = f->state,
        .step = f->step,
        .reason = f->reason == NULL ? "" : f->reason,
        .stops = f->stops,
        .cut = f->cut,
        .samples_here = f->samples_here,
        .loss = f->loss,
        .directory = "",
        .coordinator = "",
        .cut_state = f->cut_state == NULL ? "" : f->cut_state,
        .server_count = f->server_count,
        .servers = f->servers,
    };
    told_later = told;
    looks_before = looks = 0;
    asked_for = (struct arguments){.subject = "s2", .json = f->json};
    stop_err = checkpoint_err = drain_err = failed = ERR_OK;
    failure[0] = 0;
}

static void commands_tear_down(struct commands_fixture *f)
{
    (void)f;
}

static void say(command_fn *command)
{
    FILE *out = stdout, *err = stderr;
    memset(said, 0, sizeof said);
    FILE *both = fmemopen(said, sizeof said - 1, "w");
    assert_non_null(both);
    stdout = stderr = both;
    exit_code = command(0, NULL);
    stdout = out;
    stderr = err;
    fclose(both);
}

static void assert_says(const char *words)
{
    if (strstr(said, words) == NULL)
        fail_msg("\"%s\" is not in: %s", words, said);
}

static void assert_does_not_say(const char *words)
{
    if (strstr(said, words) != NULL)
        fail_msg("\"%s\" is in: %s", words, said);
}

TEST_F(a_stop_says_that_the_run_stops_after_a_checkpoint, commands, .state = RUN_TRAINING,
       .stops = true)
{
    (void)f;
    say(command_stop);
    assert_string_equal(said,
                        "the run stops after a checkpoint. Watch it: roost watch --cluster here\n");
}

TEST_F(a_stop_that_ended_the_run_at_once_says_how_it_ended, commands, .state = RUN_STOPPED,
       .reason = "roost stop; version 280 is dropped, the newest checkpoint is of version 30")
{
    (void)f;
    say(command_stop);
    assert_string_equal(said, "the run has stopped: roost stop; version 280 is dropped, the newest "
                              "checkpoint is of version 30\n");
}

/* The answer to the first one was lost. */
TEST_F(a_second_stop_of_a_run_that_has_stopped_is_done, commands, .state = RUN_STOPPED,
       .reason = "roost stop")
{
    (void)f;
    stop_err = ERR_NO_RUN;
    say(command_stop);
    assert_int_equal(exit_code, EXIT_SUCCESS);
    assert_string_equal(said, "the run has stopped: roost stop\n");
}

TEST_F(a_stop_of_a_run_that_has_ended_is_done, commands, .state = RUN_ENDED)
{
    (void)f;
    stop_err = ERR_NO_RUN;
    say(command_stop);
    assert_int_equal(exit_code, EXIT_SUCCESS);
    assert_string_equal(said, "the run has ended\n");
}

TEST_F(a_stop_of_a_run_that_has_failed_says_why_it_failed, commands, .state = RUN_FAILED,
       .reason = "too many steps in a row were not finite")
{
    (void)f;
    stop_err = ERR_NO_RUN;
    say(command_stop);
    assert_int_equal(failed, ERR_RUN_FAILED);
    assert_string_equal(failure, "the run has failed: too many steps in a row were not finite");
}

TEST_F(a_stop_where_there_never_was_a_run_finds_none, commands, .state = RUN_NONE)
{
    (void)f;
    stop_err = ERR_NO_RUN;
    say(command_stop);
    assert_int_equal(failed, ERR_NO_RUN);
    assert_string_equal(failure, "no run is active");
    assert_string_equal(said, "");
}

TEST_F(a_run_goes_on_without_a_lost_server_that_it_needed, commands, .state = RUN_TRAINING,
       .server_count = 2,
       .servers = {{.name = "s1", .state = "serving"}, {.name = "s2", .state = "serving"}})
{
    (void)f;
    say(command_drain);
    assert_says("the run goes on without s2");
}

TEST_F(a_coordinator_that_started_again_may_wait_for_a_lost_server, commands, .state = RUN_STARTING,
       .server_count = 1, .servers = {{.name = "s1", .state = "idle"}})
{
    (void)f;
    say(command_drain);
    assert_says("the run goes on without s2");
}

TEST_F(no_run_needs_a_lost_server_without_a_place, commands, .state = RUN_TRAINING,
       .server_count = 2,
       .servers = {{.name = "s1", .state = "serving"}, {.name = "s2", .state = "idle"}})
{
    (void)f;
    say(command_drain);
    assert_string_equal(said, "no run needs s2\n");
}

TEST_F(no_run_needs_a_lost_server_when_it_is_over, commands, .state = RUN_ENDED, .server_count = 1,
       .servers = {{.name = "s2", .state = "serving"}})
{
    (void)f;
    say(command_drain);
    assert_string_equal(said, "no run needs s2\n");
}

/* A user's mistake: exit code 78. */
TEST_F(a_server_that_is_not_known_is_a_wrong_argument, commands, .state = RUN_TRAINING)
{
    (void)f;
    drain_err = ERR_NOT_FOUND;
    say(command_drain);
    assert_int_equal(failed, ERR_INVALID);
    assert_string_equal(failure, "no server s2 is known");
}

TEST_F(a_run_without_a_checkpoint_has_none, commands, .state = RUN_STARTING,
       .reason = "servers connected: 3 of 4")
{
    (void)f;
    say(command_status);
    assert_says("newest checkpoint: none\n");
    assert_does_not_say("generation 0 version 0");
}

/* Whoever asks for the exit code alone looks at the disk as well. */
TEST_F(a_run_whose_checkpoints_fail_is_not_ready, commands, .state = RUN_TRAINING,
       .cut = {.generation = 1, .version = 4},
       .cut_state = "server s1 could not write the checkpoint of version 8")
{
    (void)f;
    say(command_status);
    assert_int_equal(exit_code, 3);
    assert_says(
        "newest checkpoint: generation 1 version 4; NO CHECKPOINT: server s1 could not write "
        "the checkpoint of version 8\n");
}

TEST_F(a_run_that_trains_and_writes_its_checkpoints_is_ready, commands, .state = RUN_TRAINING,
       .cut = {.generation = 1, .version = 4})
{
    (void)f;
    say(command_status);
    assert_int_equal(exit_code, EXIT_SUCCESS);
    assert_does_not_say("NO CHECKPOINT");
}

TEST_F(what_is_not_known_of_a_step_is_null, commands, .state = RUN_STOPPED, .json = true)
{
    (void)f;
    say(command_status);
    assert_says("\"loss\":null,\"accuracy\":null,");
    assert_says("\"lr\":null,\"norm\":null,");
    assert_says("\"seconds\":null,");
}

TEST_F(what_is_known_of_a_step_is_a_number, commands, .state = RUN_TRAINING, .json = true,
       .samples_here = 32, .loss = 2)
{
    (void)f;
    say(command_status);
    assert_says("\"loss\":2,");
}

/* One that was being written when it was asked for is another one. */
TEST_F(a_checkpoint_that_takes_long_is_waited_for, commands, .state = RUN_TRAINING, .step = 400,
       .cut = {.generation = 1, .version = 400})
{
    (void)f;
    checkpoint_err = ERR_DEADLINE;
    looks_before = 2;
    told_later.step = 410;
    told_later.cut.version = 401;
    say(command_checkpoint);
    assert_int_equal(exit_code, EXIT_SUCCESS);
    assert_int_equal(looks, 3);
    assert_says("its step is not done, or it is still being written; waiting for it");
    assert_says("generation 1 version 401\n");
}

TEST_F(a_checkpoint_is_waited_for_no_longer_than_the_run_goes_on, commands, .state = RUN_TRAINING,
       .step = 400, .cut = {.generation = 1, .version = 300})
{
    (void)f;
    checkpoint_err = ERR_DEADLINE;
    looks_before = 1;
    told_later.state = RUN_FAILED;
    say(command_checkpoint);
    assert_int_equal(failed, ERR_RUN_FAILED);
    assert_string_equal(failure, "run 1 is over, without a checkpoint after step 400");
}

TEST_F(another_run_s_checkpoint_is_not_the_one_that_was_asked_for, commands, .state = RUN_TRAINING,
       .step = 400)
{
    (void)f;
    checkpoint_err = ERR_DEADLINE;
    looks_before = 1;
    told_later.run = 2;
    told_later.cut = (struct cut_name){2, 500};
    say(command_checkpoint);
    assert_int_equal(failed, ERR_RUN_FAILED);
}

/* The coordinator may be another one by now. */
TEST_F(a_checkpoint_of_an_earlier_generation_is_not_waited_for, commands, .state = RUN_TRAINING,
       .step = 400)
{
    (void)f;
    checkpoint_err = ERR_DEADLINE;
    looks_before = 1;
    told_later.generation = 2;
    say(command_checkpoint);
    assert_int_equal(failed, ERR_DEADLINE);
    assert_non_null(strstr(failure, "ask again"));
}

TEST_F(a_checkpoint_that_a_run_cannot_write_while_it_waits_says_what_for, commands,
       .state = RUN_TRAINING, .reason = "servers connected: 3 of 4")
{
    (void)f;
    checkpoint_err = ERR_DEADLINE;
    say(command_checkpoint);
    assert_int_equal(failed, ERR_DEADLINE);
    assert_non_null(strstr(failure, "while the run waits: servers connected: 3 of 4"));
}

TEST_F(a_checkpoint_that_has_no_room_says_what_it_needs, commands, .state = RUN_TRAINING,
       .cut_state = "server s1 could not write the checkpoint of version 8: No space left on "
                    "device; a checkpoint takes 1.4 MB")
{
    (void)f;
    checkpoint_err = ERR_DEADLINE;
    say(command_checkpoint);
    assert_non_null(strstr(failure, "a checkpoint takes 1.4 MB"));
    assert_null(strstr(failure, "its step is not done"));
}
