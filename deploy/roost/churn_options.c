#include "deploy/roost/churn_options.h"

#include "common/file.h"
#include "common/scoped.h"
#include "common/settings/options.h"
#include "deploy/roost/arguments.h"

enum { TRACE_BYTES_MAX = 64 << 20, RATE_MAX = 1000, SPEED_MAX = 100000 };

enum key { KEY_CHURN = 0x100, KEY_SERVERS, KEY_SEED, KEY_TRACE, KEY_SPEED };

static void judge(const struct churn_options *options, struct argp_state *state)
{
    if (options->rate > 0 && options->trace != NULL)
        argp_error(state, "--churn and --trace: one of them");
    if ((options->servers || options->seed != 0) && options->rate == 0)
        argp_error(state, "--churn-servers and --churn-seed go with --churn");
    if (options->speed != 1 && options->trace == NULL)
        argp_error(state, "--speed goes with --trace");
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct churn_options *options = state->input;
    switch (key) {
    case KEY_CHURN:
        options->rate = arguments_positive(argument, "churn", RATE_MAX, state);
        return 0;
    case KEY_SERVERS:
        options->servers = true;
        return 0;
    case KEY_SEED:
        options->seed = arguments_integer(argument, "churn-seed", state);
        return 0;
    case KEY_TRACE:
        options->trace = argument;
        return 0;
    case KEY_SPEED:
        options->speed = arguments_positive(argument, "speed", SPEED_MAX, state);
        return 0;
    case ARGP_KEY_END:
        judge(options, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option churn_rows[] = {
    {"churn", KEY_CHURN, "RATE", 0, "kill and start workers at random, so many a second", 0},
    {"churn-servers", KEY_SERVERS, NULL, 0, "kill servers as well; they are started again", 0},
    {"churn-seed", KEY_SEED, "N", 0, "which ones and when (0)", 0},
    {"trace", KEY_TRACE, "FILE", 0,
     "workers come and go as recorded: lines milliseconds,add|remove,node", 0},
    {"speed", KEY_SPEED, "X", 0, "of the trace, times the recorded one (1)", 0},
    {0},
};

const struct argp churn_argp = {churn_rows, parse_option, NULL, NULL, NULL, NULL, NULL};

enum err churn_open(const struct churn_options *options, uint32_t workers, uint32_t servers,
                    struct churn *ret_churn, struct reason *reason)
{
    scoped(buf_release) struct buf text = {0};
    if (options->trace == NULL) {
        *ret_churn = churn_at_rate(&(struct churn_rate){.rate = options->rate,
                                                        .seed = options->seed,
                                                        .workers = workers,
                                                        .servers = options->servers ? servers : 0});
        return ERR_OK;
    }
    TRY(config_path_error(file_read(options->trace, TRACE_BYTES_MAX, &text, reason)));
    return churn_of_trace(options->trace, buf_slice(&text), options->speed, ret_churn, reason);
}
