/* The invariants of a shard, by the numbers that shard.h gives them. */
#include "server/shard/shard_pull.h"

static void check_chunks(const struct shard *shard)
{
    uint64_t last_open = shard->version + shard->config.delay, open_nodes = 0;
    for (uint32_t i = 0; i < shard->store.count; i++) { /* 2, 3, 4, 6 */
        const struct chunk *chunk = &shard->store.chunks[i];
        chunk_check(&shard->store, chunk, shard->decided, last_open);
        bool ahead = (shard->applying && i < shard->apply_next) || chunk->since > shard->version;
        uint64_t newest = ahead ? shard->decided : shard->version;
        for (uint64_t v = shard_pull_oldest(shard, chunk); !chunk->awaited && v <= newest; v++)
            check(published_get(&chunk->published, v) != NULL);
        for (uint32_t p = 0; p < chunk->spec.parts; p++)
            for (uint32_t t = 0; t < shard->store.open_steps; t++)
                open_nodes += chunk->parts[p].trees[t].held_count;
    }
    check(open_nodes == shard->store.open_nodes);
    for (uint64_t t = shard->decided; t <= last_open; t++) { /* 1, 3 */
        uint32_t summed = 0;
        for (uint32_t i = 0; i < shard->store.count; i++)
            summed += shard->store.chunks[i].summed[t % shard->store.open_steps];
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
        const struct chunk *chunk = &shard->store.chunks[i];
        leaving += chunk->leaving;
        awaited += chunk->awaited;
        sent += chunk->sent;
        check(!chunk->sent || chunk->leaving);
        check(!chunk->leaving || !chunk->awaited);
        check(!chunk->awaited || chunk->since == shard->decided);
        for (uint64_t t = shard->decided;
             chunk->leaving && t <= shard->version + shard->config.delay; t++)
            check(!chunk->summed[t % shard->store.open_steps]);
    }
    check(leaving == shard->leaving_count);
    check(awaited == shard->awaited_count);
    check(sent == shard->transfers && sent <= SHARD_TRANSFERS_MAX);
}

void shard_check(const struct shard *shard)
{
    if (shard->config.async.on) {
        async_check(&shard->async);
        return;
    }
    bool changing = shard->applying && shard->apply_next < shard->store.count;
    check(shard->decided == shard->version + changing || shard->store.count == 0);
    check(!shard->applying || shard->answer_next <= shard->apply_next);
    check_chunks(shard);
    check_parked(shard);
    check_moves(shard);
    check(!shard->snapshot || !shard->applying ||
          shard->snapshot_next >= shard->apply_next); /* 7 */
}
