/* roost digest: SHA-256 of a checkpoint's weights and optimizer state. */
#include "common/scoped.h"
#include "deploy/roost/arguments.h"
#include "deploy/roost/command.h"
#include "deploy/roost/stored.h"

int command_digest(int argc, char **argv)
{
    static const struct arguments_about about = {
        .subject = "DIR",
        .summary = "Prints the SHA-256 over the name-sorted parameters of the newest checkpoint in "
                   "a run's directory, or of one checkpoint's folder: fp32 weights, then optimizer "
                   "state. Equal digests are equal bytes, whatever the cluster was."};
    scoped(stored_release) struct stored stored = {0};
    struct arguments arguments;
    struct digest digest;
    struct reason reason = {0};
    arguments_parse(&about, argc, argv, &arguments);
    enum err err = stored_open(arguments.subject, &stored, &reason);
    if (err == ERR_OK)
        err = checkpoint_digest(stored.checkpoint, &stored.model, &digest, &reason);
    if (err != ERR_OK)
        return command_fail(err, &reason);
    printf("%s  %s\n", digest_to_hex(&digest).text, checkpoint_path(stored.checkpoint));
    return EXIT_SUCCESS;
}
