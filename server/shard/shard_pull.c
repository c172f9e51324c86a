/* Pulls: answered, parked, judged again. */
#include "server/shard/shard_pull.h"

#include "server/shard/shard_async.h"

/* Versions; a pull of a later one would be parked for long. A ticket's version is decided, or the
 * commit that makes it is on its way. */
enum { AHEAD_MAX = 16 };

uint64_t shard_pull_oldest(const struct shard *shard, const struct chunk *chunk)
{
    uint64_t low = shard->decided > shard->config.delay ? shard->decided - shard->config.delay : 0;
    uint64_t versions = shard->store.cut_versions;
    uint64_t oldest = chunk->since > versions ? chunk->since - versions : 0;
    return low > oldest ? low : oldest;
}

/* Whether one chunk of a pull can be read here, at once or later. TOO_EARLY: only the next commit
 * decides whether the chunk will be here (P11: chunks move inside a commit). */
static enum err judge_chunk(const struct shard *shard, const struct pull *pull, uint32_t chunk,
                            uint32_t *ret_index)
{
    uint32_t index = chunk_find(&shard->store, chunk);
    const struct chunk *here = index < shard->store.count ? &shard->store.chunks[index] : NULL;
    bool future = pull->version > shard->decided;
    if (here == NULL && shard_core_not_here(shard, chunk) != ERR_MOVED)
        return ERR_NOT_FOUND;
    if (here == NULL || (here->leaving && future))
        return future ? ERR_TOO_EARLY : ERR_MOVED;
    if (pull->version <
        shard_pull_oldest(
            shard, here)) /* P5: version v is readable until commit(v + d): older ones are gone */
        return ERR_TOO_LATE;
    *ret_index = index;
    return ERR_OK;
}

/* Whether `chunks` can be read at `version`. TOO_EARLY: the pull waits in *ret_ring. */
static enum err pull_place(const struct shard *shard, const struct pull *pull,
                           struct parked_pull **ret_ring)
{
    uint32_t last = 0;
    struct parked_pull *awaited = NULL;
    *ret_ring = shard->later;
    for (uint32_t i = 0; i < pull->chunk_count; i++) {
        uint32_t index;
        TRY(judge_chunk(shard, pull, pull->chunks[i], &index));
        const struct chunk *chunk = &shard->store.chunks[index];
        awaited = chunk->awaited ? chunk->waiting : awaited;
        last = index > last ? index : last;
    }
    *ret_ring = awaited != NULL ? awaited : shard->store.chunks[last].waiting;
    bool there = pull->version <= shard->version ||
                 (pull->version == shard->decided && last < shard->apply_next);
    return there && awaited == NULL ? ERR_OK : ERR_TOO_EARLY;
}

static enum err all_here(const struct shard *shard, const struct pull *pull)
{
    for (uint32_t i = 0; i < pull->chunk_count; i++)
        if (chunk_find(&shard->store, pull->chunks[i]) == shard->store.count)
            return shard_core_not_here(shard, pull->chunks[i]);
    return ERR_OK;
}

static bool is_far(const struct shard *shard, const struct pull *pull)
{
    return !pull->newest && pull->version > shard->decided &&
           pull->version - shard->decided > AHEAD_MAX;
}

static enum err pull_judge(const struct shard *shard, const struct pull *pull,
                           struct parked_pull **ret_ring)
{
    TRY(shard_core_fence(shard, pull->generation));
    size_t bytes = 0;
    for (uint32_t i = 0; i < pull->chunk_count; i++) {
        uint32_t index = chunk_find(&shard->store, pull->chunks[i]);
        if (index < shard->store.count)
            bytes += shard->store.chunks[index].published.bytes;
    }
    if (is_far(shard, pull) || pull->chunk_count == 0 || pull->chunk_count > WIRE_ENTRIES_MAX ||
        bytes > WIRE_PAYLOAD_BYTES_MAX || pull->newest != shard->config.async.on)
        return ERR_MALFORMED;
    return pull->newest ? all_here(shard, pull) : pull_place(shard, pull, ret_ring);
}

static void emit_weights(struct shard *shard, uint64_t sender, const struct weights *header,
                         struct shard_effects *effects)
{
    check(shard->outgoing_count + header->chunk_count <= SHARD_COPIES_MAX);
    struct shard_effect *effect = shard_core_emit(effects, SHARD_WEIGHTS);
    effect->sender = sender;
    effect->weights.header = *header;
    effect->weights.copies = &shard->outgoing[shard->outgoing_count];
    for (uint32_t i = 0; i < header->chunk_count; i++) {
        const struct chunk *chunk =
            &shard->store.chunks[chunk_find(&shard->store, header->chunks[i])];
        struct counted *copy = published_get(&chunk->published, header->version);
        shard->outgoing[shard->outgoing_count++] = counted_ref(copy);
        shard->statistics.pulled_bytes += copy->bytes;
    }
}

static void emit_refusal(uint64_t sender, uint64_t id, enum err err, struct shard_effects *effects)
{
    struct shard_effect *effect = shard_core_emit(effects, SHARD_REFUSAL);
    effect->sender = sender;
    effect->refusal = (struct pull_refusal){id, err};
}

void shard_pull(struct shard *shard, struct pull_sender sender, const struct pull *pull,
                struct shard_effects *effects)
{
    shard_core_begin(shard);
    struct parked_pull *ring;
    enum err err = pull_judge(shard, pull, &ring);
    if (err == ERR_OK && pull->newest) {
        shard_async_pull(shard, sender.stream, pull, effects);
        return;
    }
    if (err == ERR_OK) {
        struct weights header = {pull->id, pull->version, shard->config.weights_codec,
                                 pull->chunk_count, pull->chunks};
        emit_weights(shard, sender.stream, &header, effects);
        return;
    }
    if (err == ERR_TOO_EARLY && parked_add(&shard->parked, ring, sender, pull) != ERR_OK)
        err = ERR_BUSY;
    emit_refusal(sender.stream, pull->id, err, effects);
}

void shard_unsent(struct shard *shard, uint64_t bytes)
{
    shard->statistics.pulled_bytes -= bytes;
}

void shard_cancel(struct shard *shard, uint64_t sender)
{
    for (uint32_t i = 0; i < shard->store.count; i++)
        parked_cancel(&shard->parked, shard->store.chunks[i].waiting, sender);
    parked_cancel(&shard->parked, shard->later, sender);
    parked_cancel(&shard->parked, shard->again, sender);
}

/* ---- those that waited ---- */

static bool effects_full(const struct shard *shard, const struct shard_effects *effects,
                         const struct parked_pull *pull)
{
    return effects->count >= SHARD_ANSWERS_MAX ||
           shard->outgoing_count + pull->chunk_count > SHARD_COPIES_MAX;
}

/* Answers a parked pull, or parks it for something else. Effects have room for one more. */
static void judge_again(struct shard *shard, struct parked_pull *parked,
                        struct shard_effects *effects)
{
    const struct pull pull = {parked->id, shard->config.generation, parked->version,
                              parked->chunk_count, parked->chunks};
    struct parked_pull *ring;
    enum err err = pull_place(shard, &pull, &ring);
    if (err == ERR_TOO_EARLY) {
        parked_move(ring, parked);
        return;
    }
    parked_take(&shard->parked, parked);
    parked->behind = shard->answered;
    shard->answered = parked;
    struct weights header = {pull.id, pull.version, shard->config.weights_codec, pull.chunk_count,
                             pull.chunks};
    if (err == ERR_OK)
        emit_weights(shard, parked->sender, &header, effects);
    else
        emit_refusal(parked->sender, pull.id, err, effects);
}

bool shard_pull_again(struct shard *shard, struct shard_effects *effects)
{
    while (shard->again->behind != shard->again) {
        if (effects_full(shard, effects, shard->again->behind))
            return false;
        judge_again(shard, shard->again->behind, effects);
    }
    return true;
}

void shard_pull_applied(struct shard *shard, struct shard_effects *effects)
{
    while (shard->answer_next < shard->apply_next) {
        const struct chunk *chunk = &shard->store.chunks[shard->answer_next];
        struct parked_pull *pull = parked_find(chunk->waiting, shard->decided);
        if (pull == NULL || chunk->awaited) { /* the chunk's arrival answers it */
            shard->answer_next++;
            continue;
        }
        if (effects_full(shard, effects, pull))
            return;
        judge_again(shard, pull, effects);
    }
}

/* `member`: NULL: everybody's. False: there is no room for more effects. */
static bool refuse_ring(struct shard *shard, const struct parked_pull *ring, const uint64_t *member,
                        struct shard_effects *effects)
{
    for (struct parked_pull *pull = ring->behind, *next; pull != ring; pull = next) {
        next = pull->behind;
        if (member != NULL && parked_by(pull) != *member)
            continue;
        if (effects->count == SHARD_EFFECTS_MAX)
            return false;
        emit_refusal(pull->sender, pull->id,
                     member == NULL ? ERR_OLD_GENERATION : ERR_UNKNOWN_MEMBER, effects);
        parked_take(&shard->parked, pull);
        free(pull);
    }
    return true;
}

static bool refuse_all(struct shard *shard, const uint64_t *member, struct shard_effects *effects)
{
    for (uint32_t i = 0; i < shard->store.count; i++)
        if (!refuse_ring(shard, shard->store.chunks[i].waiting, member, effects))
            return false;
    return refuse_ring(shard, shard->later, member, effects) &&
           refuse_ring(shard, shard->again, member, effects);
}

bool shard_end_member(struct shard *shard, uint64_t member, struct shard_effects *effects)
{
    shard_core_begin(shard);
    return !parked_has(&shard->parked, member) || refuse_all(shard, &member, effects);
}

bool shard_close(struct shard *shard, struct shard_effects *effects)
{
    shard_core_begin(shard);
    return refuse_all(shard, NULL, effects);
}
