/* What a PREPARE names is opened once; each thread then fills its own chunks. */
#include "server/disk/prepared.h"

#include "common/rand.h"
#include "common/scoped.h"
#include "server/shard/async.h"

#include <string.h>

uint64_t prepared_cut_bytes(const struct spec *spec, const struct model *model)
{
    const struct shard_config config = prepare_config(spec);
    uint64_t weights = 0;
    for (uint32_t i = 0; i < model->parameters_count; i++)
        weights += model->parameters[i].weights;
    return weights * sizeof(float) *
           (1 + optimizer_states(config.optimizer.kind) + config.cut_versions);
}

/* ---- the command ---- */

struct checkpoint_arrays prepared_arrays(const struct spec *spec)
{
    struct shard_config config = prepare_config(spec);
    return (struct checkpoint_arrays){
        .states = optimizer_states(config.optimizer.kind),
        .versions = config.cut_versions,
        .extra_bytes = config.async.on ? async_extra_bytes(config.async.window) : 0};
}

static enum err open_cut(struct prepared *prepared, struct cut_name cut, struct reason *reason)
{
    struct checkpoint_name name = {cut.generation, cut.version};
    prepared->version = cut.version;
    TRY(checkpoint_open(prepared->checkpoint_dir, name, &prepared->checkpoint, reason));
    struct checkpoint_arrays wanted = prepared_arrays(&prepared->spec);
    uint32_t versions = checkpoint_arrays(prepared->checkpoint).versions;
    if (versions != wanted.versions)
        return reason_set(reason, ERR_SPEC_DIFFERS,
                          "%s: holds %u versions before its own, the run's consistency needs %u",
                          checkpoint_path(prepared->checkpoint), versions, wanted.versions);
    uint32_t extra = checkpoint_arrays(prepared->checkpoint).extra_bytes;
    if (extra != wanted.extra_bytes)
        return reason_set(reason, ERR_SPEC_DIFFERS,
                          "%s: holds %u bytes of each chunk's tickets, the run needs %u "
                          "(consistency.window)",
                          checkpoint_path(prepared->checkpoint), extra, wanted.extra_bytes);
    return checkpoint_fits(prepared->checkpoint, &prepared->model, wanted.states, reason);
}

/* Room for the published copies of each parameter's chunks. */
static enum err make_blocks(struct prepared *prepared, struct shared_pool *pool)
{
    const struct model *model = &prepared->model;
    const struct shard_config config = prepare_config(&prepared->spec);
    struct shared_part *parts = calloc(model->chunks_count, sizeof *parts);
    if (parts == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < model->chunks_count; i++) {
        uint32_t parameter = model->chunks[i].parameter;
        enum codec own = parameter == model->loss_parameter ? CODEC_FP32 : config.weights_codec;
        parts[i] = (struct shared_part){parameter,
                                        (uint32_t)(model->chunks[i].weights * codec_bytes(own))};
    }
    /* beside the versions that are readable the next one, and one that somebody still reads */
    uint32_t count = config.delay + 3;
    enum err err = shared_blocks_new(parts, model->chunks_count, count, pool, &prepared->blocks);
    free(parts);
    return err;
}

static enum err prepared_init(struct prepared *prepared, const struct server_command *command,
                              struct shared_pool *pool, struct reason *reason)
{
    const char *spec = command->prepare.spec;
    struct slice text = {(const uint8_t *)spec, strlen(spec)};
    TRY(spec_parse(text, "the coordinator's spec", NULL, &prepared->spec, reason));
    TRY(model_init(&prepared->model, &prepared->spec.model, reason));
    prepared->checkpoint_dir = strdup(command->prepare.checkpoint_dir);
    if (prepared->checkpoint_dir == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to prepare a run");
    enum err err =
        prepare_chunks(&prepared->model, command->prepare.ranges, command->prepare.range_count,
                       command->prepare.server, &prepared->chunks, &prepared->chunk_count);
    if (err != ERR_OK)
        return reason_set(reason, err, "the chunk map does not fit the model: %s", err_text(err));
    err = make_blocks(prepared, pool);
    if (err != ERR_OK)
        return reason_set(reason, err, "no memory to prepare a run");
    if (command->prepare.joins)
        prepared->version = command->prepare.cut.version;
    if (command->prepare.from_cut)
        return open_cut(prepared, command->prepare.cut, reason);
    const char *restore = command->prepare.restore;
    if (restore != NULL && restore[0] != 0)
        return restore_open(restore, &prepared->model, &prepared->restore, reason);
    return ERR_OK;
}

enum err prepared_new(const struct server_command *command, struct shared_pool *pool,
                      struct prepared **ret_prepared, struct reason *reason)
{
    struct prepared *prepared = calloc(1, sizeof *prepared);
    if (prepared == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to prepare a run");
    atomic_init(&prepared->references, 1);
    prepared->generation = command->prepare.generation;
    prepared->term = command->term;
    prepared->server = command->prepare.server;
    prepared->from_cut = command->prepare.from_cut;
    prepared->joins = command->prepare.joins;
    prepared->cuts = command->prepare.cuts;
    enum err err = rand_system(prepared->key, sizeof prepared->key);
    if (err != ERR_OK)
        ignore(reason_set(reason, err, "no random key for the digests of pushes"));
    else
        err = prepared_init(prepared, command, pool, reason);
    if (err == ERR_OK)
        *ret_prepared = prepared;
    else
        prepared_unref(prepared);
    return err;
}

struct prepared *prepared_ref(struct prepared *prepared)
{
    unsigned before = atomic_fetch_add_explicit(&prepared->references, 1, memory_order_relaxed);
    check(before > 0);
    return prepared;
}

static void close_files(struct prepared *prepared)
{
    restore_free(prepared->restore);
    checkpoint_free(prepared->checkpoint);
    prepared->restore = NULL;
    prepared->checkpoint = NULL;
}

void prepared_unref(struct prepared *prepared)
{
    if (prepared == NULL ||
        atomic_fetch_sub_explicit(&prepared->references, 1, memory_order_acq_rel) != 1)
        return;
    shared_blocks_unref(prepared->blocks);
    close_files(prepared);
    model_release(&prepared->model);
    free(prepared->checkpoint_dir);
    free(prepared->chunks);
    free(prepared);
}

/* ---- a thread's shard ---- */

static enum err fill_from_cut(const struct prepared *prepared, struct shard *shard,
                              const struct shard_chunk *chunks, uint32_t count,
                              struct reason *reason)
{
    struct checkpoint_arrays arrays = checkpoint_arrays(prepared->checkpoint);
    for (uint32_t i = 0; i < count; i++) {
        struct checkpoint_chunk stored;
        TRY(checkpoint_read(prepared->checkpoint, chunks[i].chunk, &stored, reason));
        struct shard_state state = shard_state(shard, i);
        size_t bytes = stored.n * sizeof(float);
        memcpy(state.weights, stored.values, bytes);
        const float *array = stored.values + stored.n;
        for (uint32_t s = 0; s < arrays.states; s++, array += stored.n)
            memcpy(state.state[s], array, bytes);
        for (uint32_t v = 0; v < arrays.versions && v < prepared->version; v++, array += stored.n)
            TRY(shard_publish(shard, i, prepared->version - 1 - v, array));
        if (arrays.extra_bytes > 0 && shard_load_extra(shard, i, (const uint8_t *)array) != ERR_OK)
            return reason_set(reason, ERR_CORRUPT, "%s: chunk %u: its tickets are none of this run",
                              checkpoint_path(prepared->checkpoint), chunks[i].chunk);
    }
    return ERR_OK;
}

/* ---- the journal ---- */

/* The context is the shard, which is started. ERR_CORRUPT: the entry does not continue the cut. */
static enum err redo(void *context, const struct journal_entry *entry, struct reason *reason)
{
    struct shard *shard = context;
    const struct async_record record = {.n = entry->n,
                                        .ticket = entry->ticket,
                                        .version = entry->version,
                                        .scale = entry->scale,
                                        .gradient = entry->gradient};
    enum err err = shard_redo(shard, entry->chunk, &record);
    return err == ERR_OK ? ERR_OK
                         : reason_set(reason, err,
                                      "the journal does not continue the checkpoint: chunk %u, "
                                      "version %llu, ticket %llu",
                                      entry->chunk, (unsigned long long)entry->version,
                                      (unsigned long long)entry->ticket);
}

/* Redoes what was acknowledged since the cut. `reason` is set when a crash left a torn end in a
 * file. */
static enum err read_journal(const struct prepared *prepared, struct shard *shard,
                             struct reason *reason)
{
    char folder[CHECKPOINT_PATH_BYTES];
    uint64_t torn;
    struct journal_reader reader = {shard, redo, prepared->generation, prepared->server};
    if (shard_extra_bytes(shard) == 0 || prepared->joins)
        return ERR_OK;
    snprintf(folder, sizeof folder, "%.4000s/" JOURNAL_FOLDER, prepared->checkpoint_dir);
    return journal_read(&file_ops_real, folder, &reader, &torn, reason);
}

static enum err fill_chunks(const struct prepared *prepared, struct shard *shard,
                            const struct shard_chunk *chunks, uint32_t count, struct reason *reason)
{
    /* P9: a rewind to version 0 that is recorded by its seed makes the values anew. */
    if (prepared->checkpoint != NULL && !checkpoint_is_by_seed(prepared->checkpoint))
        return fill_from_cut(prepared, shard, chunks, count, reason);
    if (prepared->restore == NULL)
        prepare_initial(shard, &prepared->model, prepared->spec.train.seed, chunks, count);
    for (uint32_t i = 0; prepared->restore != NULL && i < count; i++)
        restore_chunk(prepared->restore, chunks[i].chunk, shard_state(shard, i).weights);
    return ERR_OK;
}

/* Twice what a worker needs that pulls each chunk once, in AGENT_PULLS_MAX pulls: 4 bytes for each
 * chunk and 56 for each pull. The rest is for clients that pull in smaller pieces. */
static uint32_t parked_bytes(uint32_t chunk_count)
{
    return 40 * 1024 + 8 * chunk_count;
}

static enum err make_shard(const struct prepared *prepared, const struct prepared_shard *about,
                           struct shard **ret_shard, struct reason *reason)
{
    scoped(free_scoped) struct shard_chunk *chunks =
        calloc((size_t)prepared->chunk_count + 1, sizeof *chunks);
    if (chunks == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory for the chunks of a shard");
    uint32_t count = 0;
    for (uint32_t i = 0; i < prepared->chunk_count; i++)
        if (prepared_thread(prepared->chunks[i].chunk, about->thread_count) == about->thread)
            chunks[count++] = prepared->chunks[i];
    struct shard_config config = prepare_config(&prepared->spec);
    config.kernels = about->kernels;
    config.blocks = prepared->blocks;
    config.generation = prepared->generation;
    config.boot = about->boot;
    config.term = prepared->term;
    memcpy(config.key, prepared->key, sizeof config.key);
    config.version = prepared->version;
    config.file = prepared->server;
    config.run_chunk_count = prepared->model.chunks_count;
    config.weights_max = prepare_weights_max(&prepared->model);
    config.parked_member_bytes_max = parked_bytes(prepared->model.chunks_count);
    config.snapshot_copies =
        prepare_copies(&prepared->spec, &config, about->copies_bytes_max, about->thread_count);
    config.chunks = chunks;
    config.chunk_count = count;
    scoped(shard_free_scoped) struct shard *shard = NULL;
    enum err err = shard_new(&config, &shard);
    if (err == ERR_OK)
        TRY(fill_chunks(prepared, shard, chunks, count, reason));
    if (err == ERR_OK)
        err = shard_start(shard);
    if (err == ERR_OK) /* the journal's gradients follow the published version */
        TRY(read_journal(prepared, shard, reason));
    if (err != ERR_OK)
        return reason_set(reason, err, "cannot hold a shard of %u chunks: %s", count,
                          err_text(err));
    *ret_shard = shard;
    shard = NULL;
    return ERR_OK;
}

enum err prepared_shard_new(struct prepared *prepared, const struct prepared_shard *about,
                            struct shard **ret_shard, struct reason *reason)
{
    enum err err = make_shard(prepared, about, ret_shard, reason);
    uint32_t filled = atomic_fetch_add(&prepared->filled, 1) + 1;
    check(filled <= about->thread_count);
    if (filled == about->thread_count)
        close_files(prepared);
    return err;
}
