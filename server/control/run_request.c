#include "server/control/run_request.h"

#include <string.h>

/* The later ones lie inside the first, which all servers see: it may be a shared file system. */
static enum err choose_directory(struct run_request *wanted, const char *run_dir,
                                 struct reason *reason)
{
    const struct run_directories all = {run_dir, "/run-"};
    if (!wanted->request.resume)
        return run_directory_unused(&all, &wanted->chosen, reason);
    if (run_directory_newest(&all, &wanted->chosen, NULL) != ERR_OK)
        wanted->chosen = run_directory(&all, 1); /* the store may know a run without a checkpoint */
    return ERR_OK;
}

static enum err read_data(struct run_request *wanted, struct reason *reason)
{
    struct start_run_request *request = &wanted->request;
    struct slice text = {(const uint8_t *)request->spec, strlen(request->spec)};
    struct spec spec;
    struct reason why;
    TRY(spec_parse(text, "the run's spec", NULL, &spec, reason));
    enum err err = run_data_open(&spec, NULL, &wanted->data, &why);
    if (err == ERR_DATA_SET)
        return reason_set(reason, err,
                          "the operator's machine has no copy of the data, nor has the "
                          "coordinator's: %s",
                          why.text);
    if (err != ERR_OK)
        return reason_set(reason, err, "%s", reason_text(err, &why));
    memcpy(request->data_digest, data_digest(wanted->data)->bytes, WIRE_DIGEST_BYTES);
    request->samples = data_count(wanted->data, DATA_TRAIN);
    request->validation_samples = data_count(wanted->data, DATA_VALIDATION);
    if (spec.data.kind == SPEC_TEXT)
        request->unigram_entropy = data_entropy(wanted->data);
    return ERR_OK;
}

enum err run_request_init(struct run_request *wanted, const struct start_run_request *request,
                          const char *run_dir, struct reason *reason)
{
    *wanted = (struct run_request){.request = *request, .directory = request->directory};
    if (request->directory[0] == 0) {
        TRY(choose_directory(wanted, run_dir, reason));
        wanted->directory = wanted->chosen.path;
    }
    return request->samples == 0 ? read_data(wanted, reason) : ERR_OK;
}

void run_request_release(struct run_request *wanted)
{
    data_free(wanted->data);
    wanted->data = NULL;
}
