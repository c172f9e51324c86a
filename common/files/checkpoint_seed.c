/* Version 0 out of the spec: initial weights, states of zeros, in every version before it version
 * 0's weights again, and no tickets taken (async: zeros). */
#include "common/files/checkpoint_seed.h"

#include "common/files/checkpoint_format.h"
#include "common/settings/spec.h"
#include "common/thread.h"

struct checkpoint_seed {
    struct model model;
    uint64_t seed;
    struct checkpoint_arrays arrays;
    struct thread_mutex mutex; /* guards the making of values; what is made stays */
    float **values;            /* of each chunk; NULL: not made yet */
};

static enum err seed_init(struct checkpoint_seed *seed, const char *text, const char *path,
                          struct reason *reason)
{
    struct spec spec;
    TRY(spec_parse((struct slice){(const uint8_t *)text, strlen(text)}, path, NULL, &spec, reason));
    TRY(model_init(&seed->model, &spec.model, reason));
    seed->seed = spec.train.seed;
    seed->values = calloc(seed->model.chunks_count, sizeof *seed->values);
    return seed->values == NULL ? reason_set(reason, ERR_NOMEM, "no memory to open %s", path)
                                : ERR_OK;
}

enum err checkpoint_seed_new(const char *spec, struct checkpoint_arrays arrays, const char *path,
                             struct checkpoint_seed **ret_seed, struct reason *reason)
{
    struct checkpoint_seed *seed = calloc(1, sizeof *seed);
    if (seed == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to open %s", path);
    seed->arrays = arrays;
    thread_mutex_init(&seed->mutex);
    enum err err = seed_init(seed, spec, path, reason);
    if (err == ERR_OK)
        *ret_seed = seed;
    else
        checkpoint_seed_free(seed);
    return err;
}

void checkpoint_seed_free(struct checkpoint_seed *seed)
{
    if (seed == NULL)
        return;
    for (uint32_t c = 0; seed->values != NULL && c < seed->model.chunks_count; c++)
        free(seed->values[c]);
    free(seed->values);
    thread_mutex_release(&seed->mutex);
    model_release(&seed->model);
    free(seed);
}

uint32_t checkpoint_seed_count(const struct checkpoint_seed *seed)
{
    return seed->model.chunks_count;
}

uint32_t checkpoint_seed_weights(const struct checkpoint_seed *seed, uint32_t chunk)
{
    return seed->model.chunks[chunk].weights;
}

static float *make_values(const struct checkpoint_seed *seed, uint32_t chunk)
{
    uint32_t n = seed->model.chunks[chunk].weights;
    float *values = calloc(1, checkpoint_block_bytes(seed->arrays, n));
    if (values == NULL)
        return NULL;
    model_initial(&seed->model, seed->seed, chunk, values);
    float *version = values + (size_t)n * (1 + seed->arrays.states);
    for (uint32_t v = 0; v < seed->arrays.versions; v++, version += n)
        memcpy(version, values, n * sizeof *values);
    return values;
}

struct checkpoint_chunk checkpoint_seed_read(struct checkpoint_seed *seed, uint32_t chunk)
{
    thread_lock(&seed->mutex);
    if (seed->values[chunk] == NULL)
        seed->values[chunk] = make_values(seed, chunk);
    const float *values = seed->values[chunk];
    thread_unlock(&seed->mutex);
    return (struct checkpoint_chunk){seed->model.chunks[chunk].weights, values};
}
