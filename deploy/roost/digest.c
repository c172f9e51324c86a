/* roost digest: SHA-256 of a checkpoint's weights and optimizer state. */
#include "common/options.h"
#include "common/scoped.h"
#include "deploy/roost/command.h"
#include "deploy/roost/stored.h"

#include <argp.h>

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    const char **path = state->input;
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    if (*path != NULL)
        argp_error(state, "more than one DIR: %s", argument);
    *path = argument;
    return 0;
}

int command_digest(int argc, char **argv)
{
    static const struct argp argp = {
        NULL,
        parse_option,
        "DIR",
        "Prints the SHA-256 over the name-sorted parameters of the newest checkpoint in a run's "
        "directory, or of one checkpoint's folder: fp32 weights, then optimizer state. Equal "
        "digests are equal bytes, whatever the cluster was.",
        NULL,
        NULL,
        NULL};
    scoped(stored_release) struct stored stored = {0};
    const char *path = NULL;
    struct digest digest;
    struct reason reason = {0};
    argp_err_exit_status = EXIT_USAGE;
    argp_parse(&argp, argc, argv, 0, NULL, &path);
    if (path == NULL) {
        fprintf(stderr, "roost digest: which DIR?\n");
        return EXIT_USAGE;
    }
    enum err err = stored_open(path, &stored, &reason);
    if (err == ERR_OK)
        err = checkpoint_digest(stored.checkpoint, &stored.model, &digest, &reason);
    if (err != ERR_OK)
        return command_fail(err, &reason);
    printf("%s  %s\n", digest_to_hex(&digest).text, checkpoint_path(stored.checkpoint));
    return EXIT_SUCCESS;
}
