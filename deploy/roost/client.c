#include "deploy/roost/client.h"

#include "common/scoped.h"
#include "common/settings/options.h"
#include "common/thread.h"
#include "common/time.h"
#include "deploy/roost/command.h"
#include "deploy/roost/print.h"

#include <string.h>

enum {
    CALL_MS = 15000,
    DATA_MS = 600000,
    SIGNAL_MS = 100, /* between two looks at the signals */
    ANSWER_BYTES_MAX = 64 << 20
};

/* ---- options ---- */

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct client_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        options->cluster = options_environment("ROOST_CLUSTER", "127.0.0.1:7400");
        options->certs = options_environment("ROOST_CERTS", "certs");
        options->named = options_environment("ROOST_CLUSTER", NULL) != NULL;
        return 0;
    case 'C':
        options->cluster = argument;
        options->named = true;
        return 0;
    case 'k':
        options->certs = argument;
        return 0;
    case 'I':
        options->insecure = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option client_options[] = {
    {"cluster", 'C', "HOST:PORT", 0, "the coordinator (ROOST_CLUSTER; 127.0.0.1:7400)", 0},
    {"certs", 'k', "DIR", 0, "folder of operator.crt and its key (ROOST_CERTS; certs)", 0},
    {"insecure", 'I', NULL, 0, "no TLS; loopback only", 0},
    {0},
};

const struct argp client_argp = {client_options, parse_option, NULL, NULL, NULL, NULL, NULL};

void client_print_options(FILE *out, const struct client_options *options)
{
    fputs("--cluster ", out);
    print_quoted(out, options->cluster);
    if (options->insecure) {
        fputs(" --insecure", out);
        return;
    }
    fputs(" --certs ", out);
    print_quoted(out, options->certs);
}

int client_fail(const struct client_options *options, enum err err, const struct reason *reason)
{
    int exit_code = command_fail(err, reason);
    if (!options->named && (err == ERR_UNREACHABLE || err == ERR_UNTRUSTED))
        fprintf(stderr,
                "no cluster was named, so %s was meant: paste the options of the `roost status "
                "...` line that `roost up` prints, or give --cluster and --certs\n",
                options->cluster);
    return exit_code;
}

/* ---- connection ---- */

enum err client_open(const struct client_options *options, struct client *ret_client,
                     struct reason *reason)
{
    struct rpc_settings settings = rpc_settings_default();
    settings.threads = 1;
    settings.message_bytes_max = WIRE_CONTROL_BYTES_MAX;
    *ret_client = (struct client){0};
    if (!options->insecure)
        TRY(tls_identity_read(options->certs, TLS_ROLE_OPERATOR, (int64_t)time_wall_s(),
                              &ret_client->identity, reason));
    struct reason soon;
    if (!options->insecure &&
        tls_identity_ends_soon(&ret_client->identity, (int64_t)time_wall_s(), &soon))
        fprintf(stderr, "warning: %s\n", soon.text);
    enum err err = rpc_loop_new(&settings, &ret_client->loop);
    if (err == ERR_OK)
        err = rpc_channel_new(ret_client->loop, options->cluster,
                              options->insecure ? NULL : &ret_client->identity,
                              &ret_client->channel, reason);
    if (err != ERR_OK) {
        client_release(ret_client);
        *ret_client = (struct client){0};
    }
    return err;
}

void client_release(struct client *client)
{
    rpc_channel_free(client->channel);
    if (client->loop != NULL)
        rpc_loop_free(client->loop);
    tls_identity_release(&client->identity);
}

/* ---- calls ---- */

void client_answer_release(struct client_answer *answer)
{
    buf_clear(&answer->bytes);
    arena_release(&answer->arena);
    answer->arena.bytes_max = ANSWER_BYTES_MAX;
}

/* A call under way. Who gave it up leaves it to the transport, which answers each call once. */
struct question {
    struct thread_mutex mutex; /* guards the rest */
    struct thread_cond answered;
    bool done, given_up;
    enum err err;
    struct buf bytes;
    struct reason reason;
};

static struct question *question_new(void)
{
    struct question *question = calloc(1, sizeof *question);
    if (question == NULL)
        return NULL;
    thread_mutex_init(&question->mutex);
    thread_cond_init(&question->answered);
    return question;
}

static void question_free(struct question *question)
{
    buf_release(&question->bytes);
    thread_cond_release(&question->answered);
    thread_mutex_release(&question->mutex);
    free(question);
}

static void on_answer(void *owner, enum err err, struct slice bytes, const struct reason *reason)
{
    struct question *question = owner;
    thread_lock(&question->mutex);
    question->err = err == ERR_OK ? buf_append(&question->bytes, bytes.data, bytes.bytes) : err;
    question->reason = *reason;
    question->done = true;
    bool given_up = question->given_up;
    thread_wake_all(&question->answered);
    thread_unlock(&question->mutex);
    if (given_up)
        question_free(question);
}

static bool is_interrupted(const struct client *client)
{
    return client->signals != NULL && atomic_load(client->signals) > client->signals_heard;
}

/* False: a signal came first. */
static bool question_wait(struct question *question, const struct client *client)
{
    thread_lock(&question->mutex);
    while (!question->done && !question->given_up) {
        uint64_t look_ns = time_after_ms(time_now_ns(), SIGNAL_MS);
        if (thread_wait_locked(&question->answered, &question->mutex, look_ns) == ERR_DEADLINE)
            question->given_up = !question->done && is_interrupted(client);
    }
    bool done = question->done;
    thread_unlock(&question->mutex);
    return done;
}

static enum err question_result(struct question *take_question, struct buf *ret_bytes,
                                struct reason *reason)
{
    enum err err = take_question->err;
    if (err == ERR_OK)
        *ret_bytes = buf_detach(&take_question->bytes);
    else if (err == ERR_CANCELLED) /* a coordinator that ends cancels its calls, and is back soon */
        err =
            reason_set(reason, ERR_UNREACHABLE, "the coordinator ends: ask again when it is back");
    else if (reason != NULL)
        *reason = take_question->reason;
    question_free(take_question);
    return err;
}

static enum err call_for(struct client *client, uint32_t timeout_ms, const char *path,
                         struct buf *take_request, struct client_answer *answer,
                         struct reason *reason)
{
    client_answer_release(answer);
    struct question *question = question_new();
    if (question == NULL) {
        buf_release(take_request);
        return reason_set(reason, ERR_NOMEM, "no memory to ask the coordinator");
    }
    const struct rpc_call_config config = {
        .path = path, .timeout_ms = timeout_ms, .answered = on_answer, .owner = question};
    enum err err = rpc_call_start(client->channel, &config, take_request);
    if (err != ERR_OK) {
        question_free(question);
        return reason_set(reason, err, "%s: %s", rpc_channel_address(client->channel),
                          err_text(err));
    }
    if (!question_wait(question, client))
        return reason_set(reason, ERR_UNREACHABLE,
                          "the coordinator had not answered when a signal came");
    return question_result(question, &answer->bytes, reason);
}

static enum err call(struct client *client, const char *path, struct buf *take_request,
                     struct client_answer *answer, struct reason *reason)
{
    return call_for(client, CALL_MS, path, take_request, answer, reason);
}

enum err client_status(struct client *client, struct client_answer *answer,
                       struct status_reply *ret_status, struct reason *reason)
{
    struct buf request = {0}; /* StatusRequest has no fields */
    TRY(call(client, "/roost.v1.Cluster/Status", &request, answer, reason));
    return wire_decode_status_reply(buf_slice(&answer->bytes), &answer->arena, ret_status, reason);
}

enum err client_describe(struct client *client, struct client_answer *answer,
                         struct describe_reply *ret_reply, struct reason *reason)
{
    scoped(buf_release) struct buf bytes = {0};
    struct describe_request request = {0};
    TRY(wire_encode_describe_request(&request, &bytes));
    TRY(call(client, "/roost.v1.Cluster/Describe", &bytes, answer, reason));
    return wire_decode_describe_reply(buf_slice(&answer->bytes), &answer->arena, ret_reply, reason);
}

enum err client_start_run(struct client *client, const struct start_run_request *request,
                          struct client_answer *answer, struct start_run_reply *ret_reply,
                          struct reason *reason)
{
    scoped(buf_release) struct buf bytes = {0};
    TRY(wire_encode_start_run_request(request, &bytes));
    /* A coordinator of an older version reads the data set before it answers. */
    uint32_t timeout_ms = request->samples == 0 ? DATA_MS : CALL_MS;
    enum err err =
        call_for(client, timeout_ms, "/roost.v1.Cluster/StartRun", &bytes, answer, reason);
    if (err == ERR_SEARCHING && !client->search_said)
        fprintf(stderr, "%s\n", reason->text);
    client->search_said = err == ERR_SEARCHING;
    TRY(err);
    return wire_decode_start_run_reply(buf_slice(&answer->bytes), &answer->arena, ret_reply,
                                       reason);
}

enum err client_stop_run(struct client *client, const char *why, struct reason *reason)
{
    scoped(buf_release) struct buf bytes = {0};
    scoped(client_answer_release) struct client_answer answer = {0};
    struct stop_run_request request = {.reason = why};
    TRY(wire_encode_stop_run_request(&request, &bytes));
    return call(client, "/roost.v1.Cluster/StopRun", &bytes, &answer, reason);
}

enum err client_drain(struct client *client, const struct drain_request *request,
                      struct client_answer *answer, struct drain_reply *ret_reply,
                      struct reason *reason)
{
    scoped(buf_release) struct buf bytes = {0};
    TRY(wire_encode_drain_request(request, &bytes));
    TRY(call(client, "/roost.v1.Cluster/Drain", &bytes, answer, reason));
    return wire_decode_drain_reply(buf_slice(&answer->bytes), &answer->arena, ret_reply, reason);
}

enum err client_checkpoint(struct client *client, struct cut_name *ret_newest,
                           struct reason *reason)
{
    struct buf request = {0}; /* CheckpointRequest has no fields */
    scoped(client_answer_release) struct client_answer answer = {0};
    TRY(call(client, "/roost.v1.Cluster/Checkpoint", &request, &answer, reason));
    return wire_decode_cut_name(buf_slice(&answer.bytes), &answer.arena, ret_newest, reason);
}
