/* Life, the decision of a step and its execution, snapshots. Pushes, pulls, moves and async runs
 * have files of their own above shard_core.h. */
#include "server/shard/shard_async.h"
#include "server/shard/shard_move.h"
#include "server/shard/shard_pull.h"
#include "server/shard/shard_snapshot.h"

/* ---- life ---- */

static bool steps_fit(const struct shard_config *config)
{
    return config->slots > 0 && config->slots <= TREE_SLOTS_MAX &&
           config->delay <= SHARD_DELAY_MAX && config->node_level <= tree_level(config->slots) &&
           (config->cut_versions == 0 || config->cut_versions == config->delay);
}

static bool async_fits(const struct shard_config *config)
{
    const struct shard_async *async = &config->async;
    return !async->on ||
           (async->window > 0 && async->window <= APPLIED_WINDOW_MAX && config->delay == 0);
}

static bool chunk_fits(const struct shard_chunk *chunk)
{
    bool has_rows = chunk->cols == 0 || (!chunk->loss && chunk->n % chunk->cols == 0);
    return chunk->n > 0 && chunk->n <= MODEL_CHUNK_WEIGHTS_MAX && chunk->parts > 0 &&
           chunk->parts <= SHARD_PARTS_MAX && has_rows &&
           (!chunk->loss || (chunk->n == MODEL_LOSS_WEIGHTS && chunk->rule == MODEL_NONE));
}

static uint32_t weights_max(const struct shard_config *config)
{
    return config->weights_max == 0 ? MODEL_CHUNK_WEIGHTS_MAX : config->weights_max;
}

static enum err config_judge(const struct shard_config *config)
{
    if (!steps_fit(config) || !async_fits(config) || config->snapshot_copies == 0 ||
        config->push_codec >= CODEC_COUNT || config->weights_codec >= CODEC_COUNT)
        return ERR_INVALID;
    for (uint32_t i = 0; i < config->chunk_count; i++)
        if (!chunk_fits(&config->chunks[i]) || config->chunks[i].n > weights_max(config) ||
            (i > 0 && config->chunks[i].chunk <= config->chunks[i - 1].chunk))
            return ERR_INVALID;
    return ERR_OK;
}

static enum err shard_init(struct shard *shard, const struct shard_config *config)
{
    shard->config = *config;
    shard->config.chunks = NULL;
    shard->config.weights_max = weights_max(config);
    shard->version = shard->decided = config->version;
    shard->file = config->file;
    TRY(parked_init(&shard->parked, config->parked_member_bytes_max));
    TRY(digest_keyed_new(config->key, &shard->digest));
    TRY(chunk_store_init(&shard->store, config, shard->config.weights_max));
    if (config->async.on)
        TRY(async_init(&shard->async, config, &shard->store));
    TRY(shard_core_seals(shard));
    shard->steps = calloc(shard->store.open_steps, sizeof *shard->steps);
    shard->copies = calloc(config->snapshot_copies, sizeof *shard->copies);
    shard->later = parked_ring();
    shard->again = parked_ring();
    bool all = shard->steps != NULL && shard->copies != NULL && shard->later != NULL &&
               shard->again != NULL;
    return all ? ERR_OK : ERR_NOMEM;
}

enum err shard_new(const struct shard_config *config, struct shard **ret_shard)
{
    TRY(config_judge(config));
    struct shard *shard = calloc(1, sizeof *shard);
    if (shard == NULL)
        return ERR_NOMEM;
    enum err err = shard_init(shard, config);
    if (err == ERR_OK)
        *ret_shard = shard;
    else
        shard_free(shard);
    return err;
}

void shard_free(struct shard *shard)
{
    if (shard == NULL)
        return;
    shard_core_begin(shard);
    for (uint32_t i = 0; i < shard->copies_made; i++)
        counted_unref(shard->copies[i]);
    async_release(&shard->async);
    for (uint32_t i = 0; i < shard->store.count; i++) {
        parked_free(&shard->parked, shard->store.chunks[i].waiting);
        shard->store.chunks[i].waiting = NULL;
    }
    chunk_store_release(&shard->store);
    parked_free(&shard->parked, shard->later);
    parked_free(&shard->parked, shard->again);
    parked_release(&shard->parked);
    digest_keyed_free(shard->digest);
    free(shard->copies);
    free(shard->steps);
    free(shard->seals);
    free(shard);
}

struct shard_state shard_state(const struct shard *shard, uint32_t index)
{
    check(index < shard->store.count);
    return shard->store.chunks[index].state;
}

enum err shard_publish(struct shard *shard, uint32_t index, uint64_t version, const float *values)
{
    check(index < shard->store.count && version < shard->version &&
          shard->version - version <= shard->store.cut_versions);
    return chunk_publish(&shard->store, &shard->store.chunks[index], version, values);
}

enum err shard_start(struct shard *shard)
{
    for (uint32_t i = 0; i < shard->store.count; i++) {
        struct chunk *chunk = &shard->store.chunks[i];
        TRY(chunk_publish_own(&shard->store, chunk, shard->version));
    }
    return ERR_OK;
}

/* ---- commit ---- */

static bool is_carried_out(const struct shard *shard)
{
    return !shard->applying && shard->awaited_count == 0;
}

/* The shard has decided that step already. A later attempt at its cut begins it anew: the disks
 * were full, and nothing has been decided since. */
static enum err commit_again(struct shard *shard, const struct commit *commit,
                             const struct shard_moves *moves, struct shard_effects *effects)
{
    bool last = shard->has_decision && commit->step + 1 == shard->decided;
    if (last && !seal_same_decision(commit, &shard->decision))
        return ERR_EXISTS;
    if (last && commit->cut && moves->attempt > shard->attempt && is_carried_out(shard)) {
        shard_move_again(shard, moves);
        if (shard->file != SHARD_FILE_NONE)
            shard_snapshot_start(shard);
    }
    if (is_carried_out(shard) || commit->step + 1 < shard->decided) /* else it is under way */
        shard_core_committed(shard, commit->step, effects);
    return ERR_OK;
}

/* P7: a command of an older term is refused, a newer term is adopted first. P3: commands name the
 * boot that they are for. */
static enum err commit_fence(struct shard *shard, uint64_t boot, const struct commit *commit)
{
    if (commit->term < shard->config.term)
        return ERR_OLD_TERM;
    if (boot != shard->config.boot)
        return ERR_OLD_BOOT;
    shard->config.term = commit->term;
    return shard_core_fence(shard, commit->generation);
}

/* The shard takes the decision. A later step may be reduced by that alone, when only chunks that
 * leave now had missing sums; it is reported. */
static enum err commit_take(struct shard *shard, const struct commit *commit,
                            const struct shard_moves *moves, struct shard_effects *effects)
{
    bool reduced_before[SHARD_DELAY_MAX + 1];
    for (uint32_t i = 0; i <= shard->config.delay; i++)
        reduced_before[i] = shard_core_reduced(shard, commit->step + i);
    TRY(shard_move_begin(shard, commit->step, moves));
    shard->decision = *commit;
    shard->has_decision = shard->applying = true;
    shard->decided = commit->step + 1;
    for (uint32_t i = 1; i <= shard->config.delay; i++)
        if (!reduced_before[i] && shard_core_reduced(shard, commit->step + i))
            shard_core_report(shard, commit->step + i, effects);
    return ERR_OK;
}

enum err shard_commit(struct shard *shard, uint64_t boot, const struct commit *commit,
                      const struct shard_moves *moves, struct shard_effects *effects)
{
    const struct shard_moves none = {.file = shard->file};
    shard_core_begin(shard);
    TRY(commit_fence(shard, boot, commit));
    if (commit->step < shard->decided)
        return commit_again(shard, commit, moves != NULL ? moves : &none, effects);
    if (!is_carried_out(shard)) /* P6: commit(t + 1) waits for the acknowledgement of commit(t) */
        return ERR_TOO_EARLY;
    /* A shard without chunks takes any decision: it is behind with none. */
    if (shard->store.count == 0)
        shard->version = shard->decided = commit->step;
    bool async = shard->config.async.on; /* an async run's steps are only counted */
    if (!async && (commit->step != shard->decided || !shard_core_reduced(shard, commit->step)))
        return ERR_TOO_EARLY;
    TRY(commit_take(shard, commit, moves != NULL ? moves : &none, effects));
    shard->apply_next = shard->answer_next = async ? shard->store.count : 0;
    parked_join(shard->again, shard->later);
    /* The cut must have every ticket that the log got before the cut was ordered: then that log may
     * be removed. */
    shard->cut_after = async && commit->cut ? shard->async.accepted : 0;
    return ERR_OK;
}

/* Every chunk has the new version: the next step is open for pushes, which may come as soon as the
 * pulls are answered. */
static void version_reached(struct shard *shard)
{
    shard_core_step(shard, shard->decision.step)->summed_count = 0;
    shard->version = shard->decided;
}

static void apply_end(struct shard *shard, struct shard_effects *effects)
{
    if (shard->store.count == 0 || shard->config.async.on)
        version_reached(shard);
    shard->applying = shard->is_held_up = false;
    if (shard->decision.cut && shard->file != SHARD_FILE_NONE)
        shard_snapshot_start(shard);
    if (shard->awaited_count == 0)
        shard_core_committed(shard, shard->decision.step, effects);
    if (shard->config.async.on) {
        async_open(&shard->async, shard->decided);
        shard_async_report(shard, effects);
    }
}

/* ---- snapshot ---- */

bool shard_snapshot_begin(struct shard *shard)
{
    if (shard->snapshot || shard->applying)
        return false;
    shard_snapshot_start(shard);
    return true;
}

/* ---- work ---- */

/* A chunk is handed out before a later step changes it. */
static bool may_apply(const struct shard *shard)
{
    return shard->apply_next < shard->store.count &&
           (!shard->snapshot || shard->snapshot_next > shard->apply_next);
}

static enum err apply_chunk(struct shard *shard, struct chunk *chunk, bool *ret_done)
{
    struct counted **spare = NULL;
    *ret_done = true;
    if (chunk->since > shard->decision.step) /* it came with this commit and has the version */
        return ERR_OK;
    if (chunk_needs_spare(chunk, &shard->decision)) {
        TRY(shard_snapshot_spare(shard, &spare));
        *ret_done = spare != NULL;
        if (spare == NULL)
            return ERR_OK;
    }
    TRY(chunk_apply(&shard->store, chunk, &shard->decision, spare));
    if (spare != NULL)
        shard_snapshot_spare_used(shard);
    return ERR_OK;
}

/* Applies the next chunk, and those behind it that only change their version: nobody pulls the
 * loss, so a worker that has all weights expects the loss to be ready too. *ret_done false: the
 * writer of a cut holds all buffers. */
static enum err apply_next(struct shard *shard, struct shard_effects *effects, bool *ret_done)
{
    struct chunk *chunks = shard->store.chunks;
    do {
        TRY(apply_chunk(shard, &chunks[shard->apply_next], ret_done));
        if (!*ret_done)
            return ERR_OK;
        shard->apply_next++;
    } while (may_apply(shard) && chunks[shard->apply_next].spec.rule == MODEL_NONE);
    if (shard->apply_next == shard->store.count)
        version_reached(shard);
    shard_pull_applied(shard, effects);
    return ERR_OK;
}

/* Pulls are answered before work is done. False: there are more answers than effects have room
 * for. */
static bool answer_pulls(struct shard *shard, struct shard_effects *effects)
{
    if (!shard_pull_again(shard, effects))
        return false;
    if (shard->applying)
        shard_pull_applied(shard, effects);
    return !shard->applying || shard->answer_next == shard->apply_next;
}

enum err shard_work(struct shard *shard, struct shard_effects *effects, bool *ret_more)
{
    shard_core_begin(shard);
    if (shard->config.async.on && async_has_work(&shard->async)) {
        *ret_more = true;
        return shard_async_work(shard, effects);
    }
    if (!answer_pulls(shard, effects)) {
        *ret_more = true;
        return ERR_OK;
    }
    if (shard->applying && !shard->snapshot && shard->async.applied < shard->cut_after) {
        *ret_more = false; /* until shard_logged() */
        return ERR_OK;
    }
    bool done = true;
    bool applies = shard->applying;
    uint32_t leaver = shard_move_next(shard);
    if (shard->applying && may_apply(shard))
        TRY(apply_next(shard, effects, &done));
    else if (shard->snapshot)
        TRY(shard_snapshot_next(shard, effects, &done));
    else if (shard->applying)
        apply_end(shard, effects);
    else if (shard_snapshot_wants_spare(shard))
        shard_snapshot_make_spare(shard);
    if (!done && applies && !shard->is_held_up) {
        shard->is_held_up = true;
        shard->statistics.held_up++;
    }
    if (leaver < shard->store.count)
        shard_move_send(shard, leaver, effects);
    bool more = shard->applying || shard->snapshot || shard_snapshot_wants_spare(shard);
    *ret_more = (done && more) || shard_move_next(shard) < shard->store.count;
    return ERR_OK;
}

/* ---- reports ---- */

void shard_report(const struct shard *shard, struct shard_effects *effects)
{
    if (shard->config.async.on) {
        shard_async_report(shard, effects);
        return;
    }
    for (uint64_t t = shard->decided; shard_core_open(shard, t); t++)
        if (shard_core_reduced(shard, t))
            shard_core_report(shard, t, effects);
}

uint64_t shard_generation(const struct shard *shard)
{
    return shard->config.generation;
}

uint64_t shard_version(const struct shard *shard)
{
    return shard->version;
}

struct shard_statistics shard_statistics(const struct shard *shard)
{
    struct shard_statistics statistics = shard->statistics;
    statistics.open_nodes = shard->store.open_nodes;
    statistics.open_nodes_max = shard->store.open_nodes_most;
    statistics.parked = shard->parked.count;
    return statistics;
}

bool shard_is_held_up(const struct shard *shard)
{
    return shard->is_held_up;
}
