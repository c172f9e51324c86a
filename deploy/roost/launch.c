#include "deploy/roost/launch.h"

#include "common/data/run_data.h"
#include "common/file.h"
#include "common/files/safetensors.h"
#include "common/program/spec_file.h"
#include "common/scoped.h"
#include "common/settings/options.h"

#include <string.h>

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct launch_options *options = state->input;
    switch (key) {
    case 's':
        flags_add_set(&options->sets, argument, state);
        return 0;
    case 'r':
        options->resume = true;
        return 0;
    case 'F':
        options->restore = argument;
        return 0;
    case 'j':
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->spec_path != NULL)
            argp_error(state, "more than one spec: %s", argument);
        options->spec_path = argument;
        return 0;
    case ARGP_KEY_END:
        if (options->restore != NULL && options->resume)
            argp_error(state, "--from begins a run, --resume goes on with one");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option launch_options[] = {
    FLAGS_SET_ROW,
    {"resume", 'r', NULL, 0, "go on from the directory's newest checkpoint", 0},
    {"from", 'F', "FILE", 0, "initial weights: a safetensors file, which all servers read", 0},
    {"json", 'j', NULL, 0, "the summary as one JSON object, the last line of stdout", 0},
    {0},
};

const struct argp launch_argp = {launch_options, parse_option, NULL, NULL, NULL, NULL, NULL};

static enum err read_data(struct launch *launch, struct reason *reason)
{
    scoped(data_free_scoped) struct data *data = NULL;
    TRY(run_data_open(&launch->spec, NULL, &data, reason));
    memcpy(launch->data_digest, data_digest(data)->bytes, WIRE_DIGEST_BYTES);
    launch->samples = data_count(data, DATA_TRAIN);
    launch->validation_samples = data_count(data, DATA_VALIDATION);
    if (launch->spec.data.kind == SPEC_TEXT)
        launch->unigram_entropy = data_entropy(data, NULL);
    return ERR_OK;
}

/* A run may begin from a machine that has no copy of the data, or a folder without files in its
 * place. */
static enum err find_data(const struct launch_options *options, struct launch *launch,
                          struct reason *reason)
{
    struct file_info info;
    const char *path = launch->spec.data.path;
    enum err err = read_data(launch, reason);
    if (err != ERR_DATA_SET || !options->elsewhere)
        return err;
    fprintf(stderr, "%s %s on this machine: the coordinator's reads its copy\n", path,
            file_stat(path, &info, NULL) == ERR_OK ? "has no files" : "is not");
    return ERR_OK;
}

/* Before a process is started for them; whether they fit the model the coordinator says. */
static enum err check_weights(const char *path, struct reason *reason)
{
    scoped(file_map_release) struct file_map file = {0};
    scoped(safetensors_release) struct safetensors header = {0};
    TRY(config_path_error(file_map_open(path, &file, reason)));
    return config_path_error(
        safetensors_parse(path, file.bytes, file.bytes.bytes, &header, reason));
}

/* Servers open it, from other working folders. */
static enum err name_restore(const struct launch_options *options, struct launch *launch,
                             struct reason *reason)
{
    const char *path = options->restore;
    scoped(free_scoped) char *folder = NULL;
    scoped(buf_release) struct buf absolute = {0};
    if (path == NULL)
        return ERR_OK;
    if (path[0] != '/')
        folder = realpath(".", NULL);
    if (path[0] != '/' && folder == NULL)
        return reason_set(reason, ERR_IO, "the working folder cannot be named");
    TRY(buf_printf(&absolute, "%s%s%s", folder == NULL ? "" : folder, folder == NULL ? "" : "/",
                   path));
    launch->restore = strndup((const char *)absolute.data, absolute.bytes);
    if (launch->restore == NULL)
        return ERR_NOMEM;
    return options->elsewhere ? ERR_OK : check_weights(launch->restore, reason);
}

/* Servers and workers run elsewhere in the tree. */
static enum err make_path_absolute(const struct launch_options *options, struct launch *launch,
                                   struct reason *reason)
{
    char *path = launch->spec.data.path;
    scoped(buf_release) struct buf absolute = {0};
    if (launch->spec.data.kind == SPEC_SPIRAL)
        return ERR_OK;
    TRY(flags_absolute(options->spec_path, &options->sets, "data.path", path, &absolute, reason));
    if (absolute.bytes >= sizeof launch->spec.data.path)
        return reason_set(reason, ERR_INVALID, "data.path is too long when absolute: %s",
                          (const char *)absolute.data);
    memcpy(path, absolute.data, absolute.bytes + 1);
    return ERR_OK;
}

static enum err fill(const struct launch_options *options, struct launch *launch,
                     struct reason *reason)
{
    options_warn_of_slips("roost", spec_table());
    TRY(spec_file_read(options->spec_path, &options->sets, options->resume, &launch->spec, reason));
    TRY(make_path_absolute(options, launch, reason));
    TRY(find_data(options, launch, reason));
    TRY(name_restore(options, launch, reason));
    TRY(spec_print(&launch->spec, &launch->spec_text));
    return buf_append(&launch->spec_text, "", 1); /* ends in a 0 */
}

enum err launch_read(const struct launch_options *options, struct launch *ret_launch,
                     struct reason *reason)
{
    struct launch launch = {0};
    enum err err = fill(options, &launch, reason);
    if (err != ERR_OK) {
        launch_release(&launch);
        return err;
    }
    *ret_launch = launch;
    return ERR_OK;
}

void launch_release(struct launch *launch)
{
    buf_release(&launch->spec_text);
    free(launch->restore);
}

struct start_run_request launch_request(const struct launch *launch,
                                        const struct launch_options *options, const char *directory,
                                        uint32_t servers)
{
    struct start_run_request request = {
        .spec = (const char *)launch->spec_text.data,
        .servers_min = servers,
        .resume = options->resume,
        .directory = directory,
        .samples = launch->samples,
        .validation_samples = launch->validation_samples,
        .restore = launch->restore == NULL ? "" : launch->restore,
        .unigram_entropy = launch->unigram_entropy,
    };
    memcpy(request.data_digest, launch->data_digest, WIRE_DIGEST_BYTES);
    return request;
}
