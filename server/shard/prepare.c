/* A spec's settings as a shard's configuration. */
#include "server/shard/prepare.h"

#include "server/shard/async.h"

enum {
    /* Sums ahead of the lowest missing slot: leases are granted lowest first, so this many workers
     * may be ahead of the slowest in every second slot before their pushes are answered BUSY. */
    AHEAD_MAX = 32,
};

struct shard_chunk prepare_chunk(const struct model *model, uint32_t chunk)
{
    const struct model_chunk *about = &model->chunks[chunk];
    const struct model_parameter *parameter = &model->parameters[about->parameter];
    bool loss = about->parameter == model->loss_parameter;
    return (struct shard_chunk){.chunk = chunk,
                                .n = about->weights,
                                .cols = loss ? 0 : about->cols,
                                .parts = parameter->parts,
                                .rule = parameter->rule,
                                .decay = parameter->decay,
                                .loss = loss};
}

enum err prepare_chunks(const struct model *model, const struct chunk_range *ranges,
                        uint32_t range_count, uint32_t server, struct shard_chunk **ret_chunks,
                        uint32_t *ret_count)
{
    uint32_t count = 0, next = 0;
    for (uint32_t i = 0; i < range_count; i++) {
        if (ranges[i].first < next || ranges[i].first > model->chunks_count ||
            ranges[i].count > model->chunks_count - ranges[i].first)
            return ERR_INVALID;
        next = ranges[i].first + ranges[i].count;
        count += ranges[i].server == server ? ranges[i].count : 0;
    }
    struct shard_chunk *chunks = calloc(count == 0 ? 1 : count, sizeof *chunks);
    if (chunks == NULL)
        return ERR_NOMEM;
    *ret_chunks = chunks;
    *ret_count = count;
    for (uint32_t i = 0; i < range_count; i++) {
        for (uint32_t c = 0; ranges[i].server == server && c < ranges[i].count; c++)
            *chunks++ = prepare_chunk(model, ranges[i].first + c);
    }
    return ERR_OK;
}

uint32_t prepare_weights_max(const struct model *model)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < model->chunks_count; i++)
        most = model->chunks[i].weights > most ? model->chunks[i].weights : most;
    return most;
}

uint64_t prepare_copies_bytes(const struct spec *spec, uint64_t bytes_max)
{
    uint64_t bytes = spec->checkpoint.memory_bytes;
    return bytes_max > 0 && bytes_max < bytes ? bytes_max : bytes;
}

uint32_t prepare_copies(const struct spec *spec, const struct shard_config *config,
                        uint64_t bytes_max, uint32_t threads)
{
    size_t arrays = (size_t)1 + optimizer_states(config->optimizer.kind) + config->cut_versions;
    size_t copy_bytes = arrays * MODEL_CHUNK_WEIGHTS_MAX * sizeof(float);
    uint64_t bytes = prepare_copies_bytes(spec, bytes_max);
    if (config->async.on)
        copy_bytes += async_extra_bytes(config->async.window);
    uint64_t copies = (bytes / copy_bytes + threads - 1) / threads;
    return copies > 0 ? (uint32_t)copies : 1;
}

struct shard_config prepare_config(const struct spec *spec)
{
    enum codec codec = spec->train.precision == SPEC_BF16 ? CODEC_BF16 : CODEC_FP32;
    uint32_t level = 0, slots = spec->train.slots;
    while (UINT32_C(2) << level <= spec_push_slots(spec))
        level++;
    const struct spec_consistency *consistency = &spec->consistency;
    struct shard_async async = {.on = consistency->kind == SPEC_ASYNC,
                                .logged = spec->checkpoint.durability == SPEC_DURABILITY_LOGGED,
                                .staleness_max = consistency->staleness_max,
                                .window = consistency->window > slots ? consistency->window : slots,
                                .slot_samples = spec->train.slot_samples,
                                .push_codec = codec,
                                .seal = seal_settings_of_spec(spec)};
    struct shard_config config = {
        .slots = slots,
        .slot_samples = (uint32_t)spec_slot_samples(spec),
        .delay = spec_staleness(spec),
        .cut_versions = spec->consistency.kind == SPEC_DELAY ? spec->consistency.delay : 0,
        .push_codec = codec,
        .weights_codec = codec,
        .node_level = level,
        .audited = spec->train.audit > 0,
        .halves = spec_pushes_halves(spec),
        .ahead_max = slots < AHEAD_MAX ? slots : AHEAD_MAX,
        .optimizer = spec_server_optimizer(spec),
        .async = async};
    config.snapshot_copies = prepare_copies(spec, &config, 0, 1);
    config.snapshot_early = spec->checkpoint.every_steps > 0;
    return config;
}

void prepare_initial(struct shard *shard, const struct model *model, uint64_t seed,
                     const struct shard_chunk *chunks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        model_initial(model, seed, chunks[i].chunk, shard_state(shard, i).weights);
}
