/* roost drain: a server gives its chunks away while the run goes on, and ends. */
#include "common/scoped.h"
#include "common/time.h"
#include "deploy/roost/arguments.h"
#include "deploy/roost/command.h"
#include "deploy/roost/print.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum {
    ASK_MS = 100,
    SAY_MS = 5000,
    SILENT_MS = 60000, /* a coordinator that starts again answers before, and knows its servers */
    GONE_MS = 5000,    /* a server that lives looks for its coordinator twice a second */
};

/* Whether a coordinator that was told of the drain may have been started again since: it does not
 * answer yet, or has not met the server, nor those that could take its chunks, or does not know yet
 * how its run goes on. */
static bool may_be_new(enum err err)
{
    enum reaction reaction = err_reaction(err);
    return reaction == REACT_RETRY || reaction == REACT_WAIT || err == ERR_NOT_FOUND ||
           err == ERR_INVALID;
}

static void say(const struct drain_request *request, const struct drain_reply *reply,
                const char *why)
{
    if (why != NULL)
        fprintf(stderr, "%s: asked for again: %s\n", request->server, why);
    else
        fprintf(stderr, "%s: %u chunk%s left%s%s\n", request->server, reply->chunks_left,
                plural(reply->chunks_left), reply->waits_for[0] != 0 ? "; " : "", reply->waits_for);
}

/* Whether that coordinator's run goes on, though it has not met the server. */
static bool trains(struct client *client)
{
    scoped(client_answer_release) struct client_answer answer = {0};
    struct status_reply status;
    return client_status(client, &answer, &status, NULL) == ERR_OK && status.state == RUN_TRAINING;
}

/* Asks until nothing is needed of the server any more; says now and then what it waits for. The
 * coordinator does not keep that it was asked: one that starts again learns it here. A server that
 * ends just before its coordinator does is never met by the next one. */
static enum err drain(struct client *client, const struct drain_request *request,
                      struct reason *reason)
{
    uint64_t said_ms = time_now_ns() / 1000000, answered_ms = 0, gone_ms = 0;
    for (;;) {
        scoped(client_answer_release) struct client_answer answer = {0};
        struct drain_reply reply = {0};
        enum err err = client_drain(client, request, &answer, &reply, reason);
        uint64_t now_ms = time_now_ns() / 1000000;
        if (err == ERR_OK && reply.drained)
            return ERR_OK;
        if (err == ERR_OK || (err == ERR_BUSY && answered_ms > 0))
            answered_ms = now_ms;
        else if (answered_ms == 0 || !may_be_new(err) || now_ms - answered_ms > SILENT_MS)
            return err;
        if (err != ERR_NOT_FOUND || !trains(client))
            gone_ms = 0;
        else if (gone_ms == 0)
            gone_ms = now_ms;
        else if (now_ms - gone_ms >= GONE_MS)
            return ERR_OK;
        if (now_ms - said_ms >= SAY_MS) {
            said_ms = now_ms;
            say(request, &reply, err != ERR_OK ? reason_text(err, reason) : NULL);
        }
        usleep(ASK_MS * 1000);
    }
}

/* Whether the run cannot go on without the server: it has a place, or no generation has begun since
 * the coordinator's start, so that it may be awaited. */
static bool is_needed(const struct status_reply *status, const char *name)
{
    bool any_serves = false, has_place = false;
    for (uint32_t i = 0; i < status->server_count; i++) {
        const struct server_description *server = &status->servers[i];
        bool serves = strcmp(server->state, "serving") == 0;
        any_serves = any_serves || serves;
        if (strcmp(server->name, name) == 0)
            has_place = serves || strcmp(server->state, "draining") == 0;
    }
    bool active = status->state == RUN_STARTING || status->state == RUN_TRAINING;
    return active && (has_place || !any_serves);
}

/* A server that is lost for good. */
static enum err give_up(struct client *client, const char *name, bool *ret_needed,
                        struct reason *reason)
{
    scoped(client_answer_release) struct client_answer answer = {0};
    struct status_reply status;
    TRY(client_status(client, &answer, &status, reason));
    *ret_needed = is_needed(&status, name);
    return drain(client, &(struct drain_request){name, true}, reason);
}

static void print_given_up(const char *name, bool needed)
{
    if (needed)
        printf("the run goes on without %s, from its newest recorded checkpoint\n", name);
    else
        printf("no run needs %s\n", name);
}

/* `status`: NULL: the coordinator does not answer any more. */
static void print_drained(const struct arguments *arguments, double seconds,
                          const struct status_reply *status)
{
    scoped(buf_release) struct buf text = {0};
    struct json_writer writer = json_writer(&text);
    if (!arguments->json && status == NULL) {
        printf("%s has drained in %.2f s\n", arguments->subject, seconds);
        return;
    }
    if (!arguments->json) {
        printf("%s has drained in %.2f s; longest step while chunks moved %.0f ms, an ordinary one "
               "%.0f ms\n",
               arguments->subject, seconds, status->moves.gap_ms_max, status->moves.step_ms);
        return;
    }
    json_put_object(&writer);
    json_member_text(&writer, "server", arguments->subject);
    json_member_real(&writer, "seconds", seconds);
    if (status != NULL)
        print_moves(&writer, &status->moves);
    json_put_end(&writer);
    print_json(&writer);
}

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    (void)value;
    bool *lost = state->input;
    if (key != 'l')
        return ARGP_ERR_UNKNOWN;
    *lost = true;
    return 0;
}

int command_drain(int argc, char **argv)
{
    static const struct argp_option rows[] = {
        {"lost", 'l', NULL, 0,
         "it will not come back: go on without it, from the newest recorded checkpoint", 0},
        {0}};
    static const struct argp own = {.options = rows, .parser = parse_option};
    bool lost = false, needed = false;
    const struct arguments_about about = {
        .subject = "SERVER",
        .hint = "`roost status` has their names",
        .cluster = true,
        .json = true,
        .own = &own,
        .own_input = &lost,
        .summary = "Moves the server's chunks to the others while the run goes on; when a "
                   "checkpoint without it is recorded, its daemon ends."};
    struct arguments arguments;
    scoped(client_release) struct client client = {0};
    scoped(client_answer_release) struct client_answer answer = {0};
    struct status_reply status;
    struct reason reason = {0};
    arguments_parse(&about, argc, argv, &arguments);
    uint64_t began_ns = time_now_ns();
    enum err err = client_open(&arguments.client, &client, &reason);
    if (err == ERR_OK)
        err = lost ? give_up(&client, arguments.subject, &needed, &reason)
                   : drain(&client, &(struct drain_request){arguments.subject, false}, &reason);
    if (err == ERR_NOT_FOUND) /* the argument is wrong */
        err = ERR_INVALID;
    double seconds = (double)(time_now_ns() - began_ns) / 1e9;
    if (err != ERR_OK)
        return client_fail(&arguments.client, err, &reason);
    if (lost && !arguments.json)
        print_given_up(arguments.subject, needed);
    else
        print_drained(&arguments, seconds,
                      client_status(&client, &answer, &status, &reason) == ERR_OK ? &status : NULL);
    return EXIT_SUCCESS;
}
