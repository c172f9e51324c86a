#include "server/control/run_request.h"

#include "common/scoped.h"

#include <string.h>

/* Whether the store has a run there that has trained. Its checkpoints may have been moved elsewhere. */
static enum err find_trained(const struct run_places *places, const char *spelled, bool *ret_found,
                             struct reason *reason)
{
    scoped(store_run_release) struct store_run run = {0};
    char name[WIRE_TEXT_BYTES_MAX + 1];
    struct cut_name oldest;
    TRY(run_directory_name(spelled, places->folder, name, sizeof name, reason));
    enum err err = store_find_run(places->store, name, &run, reason);
    if (err == ERR_NOT_FOUND) /* an older version stored it as it was spelled */
        err = store_find_run(places->store, spelled, &run, reason);
    if (err == ERR_OK)
        err = store_oldest_cut(places->store, run.run, &oldest, reason);
    *ret_found = err == ERR_OK;
    return err == ERR_NOT_FOUND ? ERR_OK : err;
}

/* The first that no run has taken. */
static enum err choose_unused(const struct run_places *places, const struct run_directories *all,
                              struct run_directory *ret_chosen, struct reason *reason)
{
    for (unsigned number = 1; number < RUN_DIRECTORIES_MAX; number++) {
        struct run_directory directory = run_directory(all, number);
        bool taken = run_directory_has_checkpoint(directory.path);
        if (!taken)
            TRY(find_trained(places, directory.path, &taken, reason));
        if (taken)
            continue;
        *ret_chosen = directory;
        return ERR_OK;
    }
    return reason_set(reason, ERR_EXISTS, "%s, %s%s2, ... all hold runs; name a directory",
                      all->base, all->base, all->joint);
}

/* The later ones lie inside the first, which all servers see: it may be a shared file system. */
static enum err choose_directory(struct run_request *wanted, const struct run_places *places,
                                 struct reason *reason)
{
    const struct run_directories all = {places->run_dir, "/run-"};
    if (!wanted->request.resume)
        return choose_unused(places, &all, &wanted->chosen, reason);
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
        TRY(choose_directory(wanted, places, reason));
        wanted->spelled = wanted->chosen.path;
    }
    TRY(run_directory_name(wanted->spelled, places->folder, wanted->directory,
                           sizeof wanted->directory, reason));
    wanted->reads = request->samples == 0;
    return wanted->reads ? read_facts(&wanted->request, reader, now_ns, reason) : ERR_OK;
}
