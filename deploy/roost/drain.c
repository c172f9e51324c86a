/* roost drain: a server gives its chunks away while the run goes on, and ends. */
#include "common/options.h"
#include "common/scoped.h"
#include "common/time.h"
#include "deploy/roost/client.h"
#include "deploy/roost/command.h"
#include "deploy/roost/print.h"

#include <inttypes.h>
#include <unistd.h>

enum { ASK_MS = 100, SAY_S = 5 };

struct drain_options {
    struct client_options client;
    const char *server;
    bool json;
};

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct drain_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->client;
        return 0;
    case 'j':
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->server != NULL)
            argp_error(state, "more than one SERVER: %s", argument);
        options->server = argument;
        return 0;
    case ARGP_KEY_END:
        if (options->server == NULL)
            argp_error(state, "which SERVER? `roost status` has their names");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Asks until nothing is needed of the server any more; says now and then what it waits for. */
static enum err drain(struct client *client, const char *server, struct reason *reason)
{
    uint64_t said_ns = time_now_ns();
    for (;;) {
        scoped(client_answer_release) struct client_answer answer = {0};
        struct drain_reply reply;
        TRY(client_drain(client, server, &answer, &reply, reason));
        if (reply.drained)
            return ERR_OK;
        if (time_now_ns() - said_ns >= SAY_S * UINT64_C(1000000000)) {
            said_ns = time_now_ns();
            fprintf(stderr, "%s: %u chunks left%s%s\n", server, reply.chunks_left,
                    reply.waits_for[0] != 0 ? "; " : "", reply.waits_for);
        }
        usleep(ASK_MS * 1000);
    }
}

static void print_drained(const struct drain_options *options, double seconds,
                          const struct status_reply *status)
{
    scoped(buf_release) struct buf text = {0};
    struct json_writer writer = json_writer(&text);
    if (!options->json) {
        printf("%s has drained in %.2f s; longest step while chunks moved %.0f ms, an ordinary one "
               "%.0f ms\n",
               options->server, seconds, status->moves.gap_ms_max, status->moves.step_ms);
        return;
    }
    json_put_object(&writer);
    print_text(&writer, "server", options->server);
    print_real(&writer, "seconds", seconds);
    print_moves(&writer, &status->moves);
    json_put_end(&writer);
    print_json(&writer);
}

int command_drain(int argc, char **argv)
{
    static const struct argp_option names[] = {
        {"json", 'j', NULL, 0, "one JSON object on stdout", 0}, {0}};
    static const struct argp_child children[] = {{&client_argp, 0, NULL, 0}, {0}};
    const struct argp argp = {
        names,
        parse_option,
        "SERVER",
        "Moves the server's chunks to the others while the run goes on; when a "
        "checkpoint without it is recorded, its daemon ends.",
        children,
        NULL,
        NULL};
    struct drain_options options = {0};
    scoped(client_release) struct client client = {0};
    scoped(client_answer_release) struct client_answer answer = {0};
    struct status_reply status;
    struct reason reason = {0};
    argp_err_exit_status = EXIT_USAGE;
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    uint64_t began_ns = time_now_ns();
    enum err err = client_open(&options.client, &client, &reason);
    if (err == ERR_OK)
        err = drain(&client, options.server, &reason);
    double seconds = (double)(time_now_ns() - began_ns) / 1e9;
    if (err == ERR_OK)
        err = client_status(&client, &answer, &status, &reason);
    if (err != ERR_OK)
        return command_fail(err, &reason);
    print_drained(&options, seconds, &status);
    return EXIT_SUCCESS;
}
