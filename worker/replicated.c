#include "worker/replicated.h"

#include <stdlib.h>

enum err replicated_init(struct replicated *replicated, const struct model *model)
{
    replicated->model = model;
    replicated->values = malloc(MODEL_CHUNK_WEIGHTS_MAX * sizeof *replicated->values);
    return replicated->values != NULL ? digest_fast_init(&replicated->digest) : ERR_NOMEM;
}

void replicated_release(struct replicated *replicated)
{
    digest_fast_release(&replicated->digest);
    free(replicated->values);
    *replicated = (struct replicated){0};
}

/* Three numbers of 64 bits, little-endian. */
static void digest_name(struct replicated *replicated, uint32_t unit, struct node node)
{
    const uint64_t numbers[] = {unit, node.level, node.index};
    uint8_t bytes[sizeof numbers];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(numbers[i / 8] >> i % 8 * 8);
    digest_fast_add(&replicated->digest, (struct slice){bytes, sizeof bytes});
}

static enum err digest_use(struct replicated *replicated, const struct executor *executor,
                           const struct model_use *use)
{
    const struct model_parameter *parameter = &replicated->model->parameters[use->parameter];
    for (uint32_t i = 0; i < parameter->chunks_count; i++) {
        uint32_t chunk = parameter->chunk_first + i;
        executor_encode(executor, chunk, use->part, CODEC_FP32, replicated->values);
        TRY(executor_encoded(executor));
        digest_fast_add(&replicated->digest,
                        (struct slice){(const uint8_t *)replicated->values,
                                       replicated->model->chunks[chunk].weights * sizeof(float)});
    }
    return ERR_OK;
}

enum err replicated_add(struct replicated *replicated, const struct executor *executor,
                        uint32_t unit, struct node node, uint64_t *sum)
{
    const struct model *model = replicated->model;
    enum err err = ERR_OK;
    digest_name(replicated, unit, node);
    for (uint32_t u = 0; u < model->units[unit].uses_count && err == ERR_OK; u++) {
        const struct model_use *use = &model->uses[model->units[unit].use_first + u];
        if (model->parameters[use->parameter].pieces <= 1)
            err = digest_use(replicated, executor, use);
    }
    uint64_t digest = digest_fast_finish(&replicated->digest);
    *sum += err == ERR_OK ? digest : 0;
    return err;
}
