/* The invariants of a shard; shard.h has their numbers. After each event the cheap ones are
 * checked, after many the ones of a single chunk, in turn, and all of them on a schedule
 * (common/check_account.h). */
#include "server/shard/shard_pull.h"

/* ---- a chunk ---- */

static void check_versions(const struct shard *shard, uint32_t index)
{
    const struct chunk *chunk = &shard->store.chunks[index];
    bool ahead = (shard->applying && index < shard->apply_next) || chunk->since > shard->version;
    uint64_t newest = ahead ? shard->decided : shard->version;
    for (uint64_t v = shard_pull_oldest(shard, chunk); !chunk->awaited && v <= newest; v++)
        check(published_get(&chunk->published, v) != NULL); /* 2: P5 */
}

static void check_moving(const struct shard *shard, const struct chunk *chunk)
{
    check(!chunk->sent || chunk->leaving); /* 8 */
    check(!chunk->leaving || !chunk->awaited);
    check(!chunk->awaited || chunk->since == shard->decided);
    for (uint64_t t = shard->decided; chunk->leaving && t <= shard->version + shard->config.delay;
         t++)
        check(!chunk->summed[t % shard->store.open_steps]);
}

static void check_chunk(const struct shard *shard, uint32_t index)
{
    const struct chunk *chunk = &shard->store.chunks[index];
    check(index == 0 || chunk[-1].spec.chunk < chunk->spec.chunk);
    if (shard->config.async.on) {
        async_check_chunk(&shard->async, index);
        return;
    }
    /* 3, 4, 6 */
    chunk_check(&shard->store, chunk, shard->decided, shard->version + shard->config.delay);
    check(chunk->lends || !chunk_is_lent(chunk)); /* 9 */
    check_versions(shard, index);
    check_moving(shard, chunk);
}

/* ---- all of them ---- */

static void check_sums(const struct shard *shard)
{
    uint64_t last_open = shard->version + shard->config.delay, open_nodes = 0;
    for (uint32_t i = 0; i < shard->store.count; i++) {
        const struct chunk *chunk = &shard->store.chunks[i];
        for (uint32_t p = 0; p < chunk->spec.parts; p++)
            for (uint32_t t = 0; t < shard->store.open_steps; t++)
                open_nodes += chunk->parts[p].trees[t].held_count;
    }
    check(open_nodes == shard->store.open_nodes);
    for (uint64_t t = shard->decided; t <= last_open; t++) { /* 1, 3 */
        uint32_t summed = 0;
        for (uint32_t i = 0; i < shard->store.count; i++)
            summed += shard->store.chunks[i].summed[t % shard->store.open_steps] > 0 ? 1 : 0;
        check(summed == shard_core_step(shard, t)->summed_count);
    }
}

static void check_parked(const struct shard *shard)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < shard->store.count; i++) { /* 5 */
        const struct chunk *chunk = &shard->store.chunks[i];
        bool unanswered = shard->applying && i >= shard->answer_next;
        uint64_t newest = shard->decided - unanswered;
        const struct parked_pull *ring = chunk->waiting;
        for (const struct parked_pull *p = ring->behind; p != ring; p = p->behind, count++)
            check(chunk->awaited || p->version > newest);
    }
    for (const struct parked_pull *p = shard->later->behind; p != shard->later; p = p->behind)
        count++;
    for (const struct parked_pull *p = shard->again->behind; p != shard->again; p = p->behind)
        count++;
    check(count == shard->parked.count);
}

static void check_moves(const struct shard *shard)
{
    uint32_t leaving = 0, awaited = 0, sent = 0;
    for (uint32_t i = 0; i < shard->store.count; i++) { /* 8 */
        leaving += shard->store.chunks[i].leaving;
        awaited += shard->store.chunks[i].awaited;
        sent += shard->store.chunks[i].sent;
    }
    check(leaving == shard->leaving_count);
    check(awaited == shard->awaited_count);
    check(sent == shard->transfers);
}

/* ---- numbers ---- */

static void check_decision(const struct shard *shard)
{
    bool changing = shard->applying && shard->apply_next < shard->store.count;
    check(shard->decided == shard->version + changing || shard->store.count == 0); /* 1 */
    check(!shard->applying || shard->has_decision);
    check(!shard->applying || shard->apply_next <= shard->store.count);
    check(!shard->applying || shard->answer_next <= shard->apply_next);
    check(!shard->has_decision || shard->decision.step + 1 == shard->decided);             /* P6 */
    check(!shard->has_decision || shard->decision.generation == shard->config.generation); /* P2 */
    check(!shard->has_decision || shard->decision.term <= shard->config.term);             /* P7 */
    check(!shard->snapshot || !shard->applying ||
          shard->snapshot_next >= shard->apply_next); /* 7 */
}

static void check_numbers(const struct shard *shard)
{
    check(shard->version <= shard->decided);
    check(!shard->snapshot || shard->snapshot_next <= shard->store.count);
    check(!shard->snapshot || shard->snapshot_cut.generation == shard->config.generation); /* P9 */
    check(shard->leaving_count + shard->awaited_count <= shard->store.count);
    check(shard->transfers <= shard->leaving_count);
    check(shard->transfers <= SHARD_TRANSFERS_MAX);
    check((shard->parked.count == 0) == (shard->parked.members.count == 0));
    check(shard->outgoing_count <= SHARD_COPIES_MAX);
    check(shard->store.open_nodes <= shard->store.open_nodes_most);
    check(shard->store.count <= shard->store.room);
    if (shard->config.async.on)
        async_check_numbers(&shard->async);
    else
        check_decision(shard);
}

/* The number of things that shard_check() visits. */
static uint64_t whole_steps(const struct shard *shard)
{
    uint64_t chunk = 16 + (uint64_t)8 * shard->store.open_steps;
    return 64 + chunk * shard->store.count + 4 * shard->store.open_nodes + 2 * shard->parked.count +
           (shard->config.async.on ? async_waiting_count(&shard->async) : 0);
}

void shard_check(const struct shard *shard)
{
    check_numbers(shard);
    for (uint32_t i = 0; i < shard->store.count; i++)
        check_chunk(shard, i);
    if (shard->config.async.on) {
        async_check(&shard->async);
        return;
    }
    check_sums(shard);
    check_parked(shard);
    check_moves(shard);
}

void shard_check_event(struct shard *shard)
{
    if (check_is_due(&shard->check_account, whole_steps(shard))) {
        shard_check(shard);
        return;
    }
    check_numbers(shard);
    uint64_t turn = shard->check_turn++;
    if (shard->store.count > 0 && turn % CHECK_TURN_EVENTS == 0)
        check_chunk(shard, (uint32_t)(turn / CHECK_TURN_EVENTS % shard->store.count));
}

void shard_describe(const void *object, char *text, size_t bytes)
{
    const struct shard *shard = object;
    snprintf(text, bytes,
             "generation=%llu boot=%llu term=%llu version=%llu decided=%llu chunks=%u async=%d "
             "applying=%d apply=%u answer=%u snapshot=%d snapshot_next=%u leaving=%u awaited=%u "
             "transfers=%u open_nodes=%llu parked=%llu",
             (unsigned long long)shard->config.generation, (unsigned long long)shard->config.boot,
             (unsigned long long)shard->config.term, (unsigned long long)shard->version,
             (unsigned long long)shard->decided, shard->store.count, shard->config.async.on,
             shard->applying, shard->apply_next, shard->answer_next, shard->snapshot,
             shard->snapshot_next, shard->leaving_count, shard->awaited_count, shard->transfers,
             (unsigned long long)shard->store.open_nodes, (unsigned long long)shard->parked.count);
}
