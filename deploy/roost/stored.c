#include "deploy/roost/stored.h"

#include "common/thread.h"

#include <string.h>

static enum err open_model(struct stored *stored, struct reason *reason)
{
    const struct checkpoint_record *about = checkpoint_about(stored->checkpoint);
    struct slice text = {(const uint8_t *)about->spec, strlen(about->spec)};
    TRY(spec_parse(text, checkpoint_path(stored->checkpoint), NULL, &stored->spec, reason));
    TRY(model_init(&stored->model, &stored->spec.model, reason));
    return checkpoint_fits(stored->checkpoint, &stored->model,
                           checkpoint_arrays(stored->checkpoint).states, reason);
}

enum err stored_open(const char *path, struct stored *ret_stored, struct reason *reason)
{
    struct stored stored = {0};
    TRY(checkpoint_open_any(path, &stored.checkpoint, reason));
    enum err err = open_model(&stored, reason);
    if (err != ERR_OK) {
        stored_release(&stored);
        return err;
    }
    *ret_stored = stored;
    return ERR_OK;
}

struct verification {
    const struct checkpoint *checkpoint;
    enum err err;
    struct reason reason;
};

static void verify(void *argument)
{
    struct verification *verification = argument;
    verification->err = checkpoint_verify(verification->checkpoint, &verification->reason);
}

enum err stored_digest(const struct stored *stored, struct digest *ret_digest,
                       struct reason *reason)
{
    struct verification verification = {.checkpoint = stored->checkpoint};
    struct digest digest;
    struct thread thread;
    bool beside = thread_start(&thread, "verify", verify, &verification) == ERR_OK;
    if (!beside) /* the machine has no more threads */
        verify(&verification);
    enum err err = checkpoint_digest(stored->checkpoint, &stored->model, &digest, reason);
    if (beside)
        thread_join(&thread);
    if (verification.err != ERR_OK)
        return reason_set(reason, verification.err, "%s", verification.reason.text);
    if (err == ERR_OK)
        *ret_digest = digest;
    return err;
}

void stored_release(struct stored *stored)
{
    model_release(&stored->model);
    checkpoint_free(stored->checkpoint);
}
