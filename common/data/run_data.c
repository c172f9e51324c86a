/* See run_data.h. */
#include "common/data/run_data.h"

enum err run_data_open(const struct spec *spec, const char *path, struct data **ret_data,
                       struct reason *reason)
{
    return run_data_open_until(spec, path, NULL, ret_data, reason);
}

enum err run_data_open_until(const struct spec *spec, const char *path, const atomic_bool *stop,
                             struct data **ret_data, struct reason *reason)
{
    const char *paths[] = {path != NULL ? path : spec->data.path};
    struct data_settings settings = {
        .paths = paths,
        .path_count = 1,
        .context = spec->model.context,
        .vocabulary = spec->model.vocabulary,
        .validation = spec->data.validation,
        .stop = stop,
    };
    switch (spec->data.kind) {
    case SPEC_TEXT:
        settings.kind = DATA_TEXT;
        break;
    case SPEC_TOKENS:
        settings.kind = DATA_TOKENS;
        break;
    case SPEC_SPIRAL:
        settings.kind = DATA_SPIRAL;
        settings.path_count = 0;
        settings.spiral.seed = spec->train.seed;
        settings.spiral.points = spec->data.points;
        settings.spiral.classes = spec->data.classes;
        settings.spiral.noise = spec->data.noise;
        break;
    }
    enum err err = data_open(&settings, ret_data, reason);
    if (err == ERR_NOT_FOUND) /* starting again does not bring it, */
        return ERR_DATA_SET;
    return err == ERR_MALFORMED ? ERR_INVALID : err; /* nor does it mend a file */
}
