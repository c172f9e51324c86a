#include "server/control/asked.h"

#include <string.h>

/* The later ones lie inside the first, which all servers see: it may be a shared file system. */
static enum err choose_directory(struct asked *asked, const char *run_dir, struct reason *reason)
{
    const struct run_directories all = {run_dir, "/run-"};
    if (!asked->request.resume)
        return run_directory_unused(&all, &asked->chosen, reason);
    if (run_directory_newest(&all, &asked->chosen, NULL) != ERR_OK)
        asked->chosen = run_directory(&all, 1); /* the store may know a run without a checkpoint */
    return ERR_OK;
}

static enum err read_data(struct asked *asked, struct reason *reason)
{
    struct start_run_request *request = &asked->request;
    struct slice text = {(const uint8_t *)request->spec, strlen(request->spec)};
    struct spec spec;
    struct reason why;
    TRY(spec_parse(text, "the run's spec", NULL, &spec, reason));
    enum err err = run_data_open(&spec, NULL, &asked->data, &why);
    if (err == ERR_DATA_SET)
        return reason_set(reason, err,
                          "the operator's machine has no copy of the data, nor has the "
                          "coordinator's: %s",
                          why.text);
    if (err != ERR_OK)
        return reason_set(reason, err, "%s", reason_text(err, &why));
    memcpy(request->data_digest, data_digest(asked->data)->bytes, WIRE_DIGEST_BYTES);
    request->samples = data_count(asked->data, DATA_TRAIN);
    request->validation_samples = data_count(asked->data, DATA_VALIDATION);
    if (spec.data.kind == SPEC_TEXT)
        request->unigram_entropy = data_entropy(asked->data);
    return ERR_OK;
}

enum err asked_init(struct asked *asked, const struct start_run_request *request,
                    const char *run_dir, struct reason *reason)
{
    *asked = (struct asked){.request = *request, .directory = request->directory};
    if (request->directory[0] == 0) {
        TRY(choose_directory(asked, run_dir, reason));
        asked->directory = asked->chosen.path;
    }
    return request->samples == 0 ? read_data(asked, reason) : ERR_OK;
}

void asked_release(struct asked *asked)
{
    data_free(asked->data);
    asked->data = NULL;
}
