/* roost digest: SHA-256 of a checkpoint's weights and optimizer state. */
#include "common/scoped.h"
#include "common/settings/config.h"
#include "deploy/roost/arguments.h"
#include "deploy/roost/command.h"
#include "deploy/roost/print.h"
#include "deploy/roost/stored.h"

static void say(const struct arguments *arguments, const struct checkpoint *checkpoint,
                const struct digest *digest)
{
    scoped(buf_release) struct buf text = {0};
    struct json_writer writer = json_writer(&text);
    if (!arguments->json) {
        printf("%s  %s\n", digest_to_hex(digest).text, checkpoint_path(checkpoint));
        return;
    }
    json_put_object(&writer);
    json_member_text(&writer, "digest", digest_to_hex(digest).text);
    json_member_text(&writer, "checkpoint", checkpoint_path(checkpoint));
    json_put_end(&writer);
    print_json(&writer);
}

int command_digest(int argc, char **argv)
{
    static const struct arguments_about about = {
        .subject = "DIR",
        .json = true,
        .summary = "Prints the SHA-256 over the name-sorted parameters of the newest checkpoint in "
                   "a run's directory, or of one checkpoint's folder: fp32 weights, then optimizer "
                   "state. Equal digests are equal bytes, whatever the cluster was."};
    scoped(stored_release) struct stored stored = {0};
    struct arguments arguments;
    struct digest digest;
    struct reason reason = {0};
    arguments_parse(&about, argc, argv, &arguments);
    enum err err = config_path_error(stored_open(arguments.subject, &stored, &reason));
    if (err == ERR_OK)
        err = stored_digest(&stored, &digest, &reason);
    if (err != ERR_OK)
        return command_fail(err, &reason);
    say(&arguments, stored.checkpoint, &digest);
    return EXIT_SUCCESS;
}
