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

/* The facts that the operator's machine would have sent. */
static enum err read_facts(struct start_run_request *request, struct data_reader *reader,
                           uint64_t now_ns, struct reason *reason)
{
    const struct data_wish wish = {.spec = request->spec, .entropy = true};
    struct reason why = {0};
    enum err err = data_reader_ask(reader, &wish, now_ns, &why);
    if (err == ERR_DATA_SET)
        return reason_set(reason, err,
                          "the operator's machine has no copy of the data, nor has the "
                          "coordinator's: %s",
                          why.text);
    if (err != ERR_OK)
        return reason_set(reason, err, "%s", why.text);
    memcpy(request->data_digest, data_digest(reader->data)->bytes, WIRE_DIGEST_BYTES);
    request->samples = data_count(reader->data, DATA_TRAIN);
    request->validation_samples = data_count(reader->data, DATA_VALIDATION);
    request->unigram_entropy = reader->unigram_entropy;
    return ERR_OK;
}

enum err run_request_init(struct run_request *wanted, const struct start_run_request *request,
                          const struct run_places *places, struct data_reader *reader,
                          uint64_t now_ns, struct reason *reason)
{
    *wanted = (struct run_request){.request = *request, .spelled = request->directory};
    if (request->directory[0] == 0) {
        TRY(choose_directory(wanted, places->run_dir, reason));
        wanted->spelled = wanted->chosen.path;
    }
    TRY(run_directory_name(wanted->spelled, places->folder, wanted->directory,
                           sizeof wanted->directory, reason));
    wanted->reads = request->samples == 0;
    return wanted->reads ? read_facts(&wanted->request, reader, now_ns, reason) : ERR_OK;
}
