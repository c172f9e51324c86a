#include "deploy/roost/stored.h"

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

void stored_release(struct stored *stored)
{
    model_release(&stored->model);
    checkpoint_free(stored->checkpoint);
}
