/* Chunks that change their server with a commit (P11).
 *
 * At the old owner a chunk takes part in the commit and in its cut; from the decision on it counts
 * no more sums. When the chunk has its last version, and the cut has its copy, it is sent. The
 * chunk stays, to be read and to be sent again, until the new owner has it. The new owner's answer
 * shows that, or the next commit does, because P6: commit(t + 1) waits for every server's
 * acknowledgement of commit(t).
 *
 * The new owner makes a place for the chunk with the decision. It counts pushes of the next step at
 * once. Pulls wait for the transfer, and so does the report that the decision is carried out. */
#include "server/shard/shard_move.h"

/* ---- the decision ---- */

static bool has_open_sums(const struct shard *shard, const struct chunk *chunk, uint64_t step)
{
    for (uint64_t t = step + 1; t <= step + shard->config.delay; t++)
        for (uint32_t p = 0; p < chunk->spec.parts; p++)
            if (chunk->parts[p].trees[t % shard->store.open_steps].held_count > 0)
                return true;
    return false;
}

static enum err judge_moves(const struct shard *shard, uint64_t step,
                            const struct shard_moves *moves)
{
    const struct chunk_store *store = &shard->store;
    if (shard->config.async.on && moves->leave_count + moves->take_count > 0)
        return ERR_MALFORMED; /* P11: a chunk moves inside commit(t); async chunks take no part */
    for (uint32_t i = 0; i < moves->leave_count; i++) {
        uint32_t index = chunk_find(store, moves->leaves[i].chunk);
        if (index == store->count || store->chunks[index].leaving ||
            has_open_sums(shard, &store->chunks[index], step))
            return ERR_MALFORMED;
    }
    for (uint32_t i = 0; i < moves->take_count; i++) {
        uint32_t index = chunk_find(store, moves->takes[i].chunk);
        if (index < store->count && !store->chunks[index].leaving)
            return ERR_MALFORMED;
    }
    return ERR_OK;
}

/* The chunk is at its new owner. */
static void remove_chunk(struct shard *shard, uint32_t index)
{
    struct chunk *chunk = &shard->store.chunks[index];
    shard->leaving_count--;
    shard->transfers -= chunk->sent;
    parked_join(shard->again, chunk->waiting);
    chunk_remove(&shard->store, index);
    if (index < shard->snapshot_next)
        shard->snapshot_next--;
}

static void remove_leavers(struct shard *shard)
{
    for (uint32_t i = shard->store.count; shard->leaving_count > 0 && i-- > 0;)
        if (shard->store.chunks[i].leaving)
            remove_chunk(shard, i);
}

static enum err await_chunk(struct shard *shard, uint64_t step, const struct shard_chunk *spec)
{
    uint32_t index;
    TRY(chunk_add(&shard->store, spec, &index));
    shard->store.chunks[index].since = step + 1;
    shard->store.chunks[index].first_cut = step + 2;
    shard->store.chunks[index].awaited = true;
    shard->awaited_count++;
    if (index <= shard->snapshot_next)
        shard->snapshot_next++; /* it is not in that cut */
    return ERR_OK;
}

/* Takes the new chunks out again. */
static void give_back(struct shard *shard)
{
    for (uint32_t i = shard->store.count; i-- > 0;)
        if (shard->store.chunks[i].awaited) {
            chunk_remove(&shard->store, i);
            if (i < shard->snapshot_next)
                shard->snapshot_next--;
        }
    shard->awaited_count = 0;
}

enum err shard_move_begin(struct shard *shard, uint64_t step, const struct shard_moves *moves)
{
    TRY(judge_moves(shard, step, moves));
    remove_leavers(shard);
    enum err err = ERR_OK;
    for (uint32_t i = 0; err == ERR_OK && i < moves->take_count; i++)
        err = await_chunk(shard, step, &moves->takes[i]);
    if (err == ERR_OK)
        err = shard_core_seals(shard);
    if (err != ERR_OK) {
        give_back(shard);
        return err;
    }
    for (uint32_t i = 0; i < moves->leave_count; i++) {
        struct chunk *chunk =
            &shard->store.chunks[chunk_find(&shard->store, moves->leaves[i].chunk)];
        chunk->leaving = true;
        chunk->to = moves->leaves[i].to;
        shard->leaving_count++;
    }
    shard->file = moves->file;
    shard->attempt = moves->attempt;
    return ERR_OK;
}

/* P11: every server has acknowledged the commit, so each chunk is at its new owner, whose file it
 * is in now. */
void shard_move_again(struct shard *shard, const struct shard_moves *moves)
{
    check(shard->awaited_count == 0);
    remove_leavers(shard);
    for (uint32_t i = 0; i < shard->store.count; i++)
        if (shard->store.chunks[i].first_cut > shard->version)
            shard->store.chunks[i].first_cut = shard->version;
    shard->file = moves->file;
    shard->attempt = moves->attempt;
}

/* ---- sending ---- */

uint32_t shard_move_next(const struct shard *shard)
{
    const struct chunk_store *store = &shard->store;
    if (shard->applying || shard->transfers == shard->leaving_count ||
        shard->transfers == SHARD_TRANSFERS_MAX)
        return store->count;
    uint32_t end = shard->snapshot ? shard->snapshot_next : store->count;
    for (uint32_t i = 0; i < end; i++)
        if (store->chunks[i].leaving && !store->chunks[i].sent)
            return i;
    return store->count;
}

void shard_move_send(struct shard *shard, uint32_t index, struct shard_effects *effects)
{
    struct chunk *chunk = &shard->store.chunks[index];
    struct shard_effect *effect = shard_core_emit(effects, SHARD_TRANSFER);
    chunk->sent = true;
    shard->transfers++;
    effect->transfer.to = chunk->to;
    effect->transfer.header = (struct transfer){
        .generation = shard->config.generation,
        .version = shard->version,
        .chunk = chunk->spec.chunk,
        .weights = chunk->spec.n,
        .arrays = chunk_copy_arrays(&shard->store),
    };
}

/* The index of the transfer's chunk, if the chunk is still on its way; else the count. */
static uint32_t find_sent(const struct shard *shard, const struct transfer *transfer)
{
    uint32_t index = chunk_find(&shard->store, transfer->chunk);
    bool ours = index < shard->store.count && shard->store.chunks[index].sent &&
                transfer->generation == shard->config.generation &&
                transfer->version == shard->version;
    return ours ? index : shard->store.count;
}

void shard_transfer_copy(const struct shard *shard, const struct transfer *transfer, void *ret_data)
{
    uint32_t index = find_sent(shard, transfer);
    check(index < shard->store.count);
    chunk_copy(&shard->store, &shard->store.chunks[index], transfer->version, ret_data);
}

void shard_transferred(struct shard *shard, const struct transfer *transfer, enum err err)
{
    shard_core_begin(shard);
    uint32_t index = find_sent(shard, transfer);
    if (index == shard->store.count)
        return;
    if (err == ERR_OK || err == ERR_TOO_LATE) {
        remove_chunk(shard, index);
        return;
    }
    shard->store.chunks[index].sent = false;
    shard->transfers--;
}

/* ---- arriving ---- */

/* Whether the chunk is awaited. OK: it was taken before; TOO_EARLY: its commit has not come. */
static enum err judge_arrival(const struct shard *shard, const struct transfer *transfer,
                              uint32_t *ret_index, bool *ret_awaited)
{
    TRY(shard_core_fence(shard, transfer->generation));
    uint32_t index = chunk_find(&shard->store, transfer->chunk);
    *ret_index = index;
    *ret_awaited = false;
    if (transfer->version > shard->decided)
        return ERR_TOO_EARLY;
    if (index == shard->store.count || shard->store.chunks[index].since != transfer->version)
        return ERR_TOO_LATE; /* it was here, and has left again */
    *ret_awaited = shard->store.chunks[index].awaited;
    return ERR_OK;
}

enum err shard_arrive(struct shard *shard, const struct transfer *transfer, struct cursor payload,
                      struct shard_effects *effects)
{
    shard_core_begin(shard);
    uint32_t index;
    bool awaited;
    TRY(judge_arrival(shard, transfer, &index, &awaited));
    if (!awaited)
        return ERR_OK; /* P11: the transfer is taken once */
    struct chunk *chunk = &shard->store.chunks[index];
    size_t bytes = (size_t)transfer->weights * transfer->arrays * sizeof(float);
    if (transfer->weights != chunk->spec.n ||
        transfer->arrays != chunk_copy_arrays(&shard->store) || cursor_bytes(&payload) != bytes)
        return ERR_MALFORMED;
    TRY(chunk_restore(&shard->store, chunk, transfer->version, &payload));
    chunk->awaited = false;
    shard->awaited_count--;
    parked_join(shard->again, chunk->waiting);
    if (shard->awaited_count == 0 && !shard->applying)
        shard_core_committed(shard, shard->decision.step, effects);
    return ERR_OK;
}
