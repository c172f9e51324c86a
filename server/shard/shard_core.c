/* Helpers of all events of a shard. */
#include "server/shard/shard_core.h"

enum err shard_core_seals(struct shard *shard)
{
    if (shard->seals != NULL && shard->seals_room >= shard->store.count)
        return ERR_OK;
    uint32_t room = shard->store.room > 0 ? shard->store.room : 1;
    struct chunk_seal *seals = calloc((size_t)shard->store.open_steps * room, sizeof *seals);
    if (seals == NULL)
        return ERR_NOMEM;
    free(shard->seals);
    shard->seals = seals;
    shard->seals_room = room;
    return ERR_OK;
}

void shard_core_begin(struct shard *shard)
{
    while (shard->answered != NULL) {
        struct parked_pull *pull = shard->answered;
        shard->answered = pull->behind;
        free(pull);
    }
    shard->outgoing_count = 0;
}

struct shard_effect *shard_core_emit(struct shard_effects *effects, enum shard_effect_kind kind)
{
    check(effects->count < SHARD_EFFECTS_MAX);
    struct shard_effect *effect = &effects->items[effects->count++];
    memset(effect, 0, sizeof *effect);
    effect->kind = kind;
    return effect;
}

enum err shard_core_fence(const struct shard *shard, uint64_t generation)
{
    if (generation < shard->config.generation)
        return ERR_OLD_GENERATION;
    return generation > shard->config.generation ? ERR_BEHIND : ERR_OK;
}

enum err shard_core_not_here(const struct shard *shard, uint32_t chunk)
{
    uint32_t count = shard->config.run_chunk_count;
    return count > 0 && chunk >= count ? ERR_NOT_FOUND : ERR_MOVED;
}

void shard_core_committed(const struct shard *shard, uint64_t step, struct shard_effects *effects)
{
    struct shard_effect *effect = shard_core_emit(effects, SHARD_COMMITTED);
    effect->committed.generation = shard->config.generation;
    effect->committed.step = step;
}

/* ---- steps ---- */

struct step *shard_core_step(const struct shard *shard, uint64_t step)
{
    return &shard->steps[step % shard->store.open_steps];
}

bool shard_core_open(const struct shard *shard, uint64_t step)
{
    return step >= shard->decided && step - shard->version <= shard->config.delay;
}

/* P11: another server sums a chunk that leaves. */
bool shard_core_reduced(const struct shard *shard, uint64_t step)
{
    uint32_t ours = shard->store.count - shard->leaving_count;
    return shard_core_open(shard, step) && shard_core_step(shard, step)->summed_count == ours;
}

void shard_core_report(const struct shard *shard, uint64_t number, struct shard_effects *effects)
{
    const struct step *step = shard_core_step(shard, number);
    uint32_t place = (uint32_t)(number % shard->store.open_steps), count = 0;
    struct chunk_seal *seals = shard->seals + (size_t)place * shard->seals_room;
    bool has_loss = false;
    for (uint32_t i = 0; i < shard->store.count; i++) {
        const struct chunk *chunk = &shard->store.chunks[i];
        if (chunk->leaving)
            continue;
        seals[count++] = chunk->seals[place];
        has_loss |= chunk->spec.loss;
    }
    shard_core_emit(effects, SHARD_REDUCED)->reduced =
        (struct reduced){.generation = shard->config.generation,
                         .step = number,
                         .seal_count = count,
                         .seals = seals,
                         .has_loss = has_loss,
                         .loss_sum = step->loss[MODEL_LOSS_SUM],
                         .sample_count = step->loss[MODEL_LOSS_COUNT],
                         .correct_count = step->loss[MODEL_LOSS_CORRECT]};
}
