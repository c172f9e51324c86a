#include "tests/sim/older.h"

#include "server/threads/exchange_stream.h"
#include "tests/sim/sim.h"

enum { OLDER = 4 /* one of so many */ };

enum err __real_exchange_stream_send(struct exchange_stream *stream, enum rpc_priority priority,
                                     const struct from_shard *message, const struct rpc_part *parts,
                                     size_t part_count);
enum err __wrap_exchange_stream_send(struct exchange_stream *stream, enum rpc_priority priority,
                                     const struct from_shard *message, const struct rpc_part *parts,
                                     size_t part_count);

static bool is_older(const struct sim *sim, uint64_t boot)
{
    return (sim->scenario.seed ^ boot) % OLDER == 0;
}

/* Its Welcome says nothing of a version. */
enum err __wrap_exchange_stream_send(struct exchange_stream *stream, enum rpc_priority priority,
                                     const struct from_shard *message, const struct rpc_part *parts,
                                     size_t part_count)
{
    struct from_shard said = *message;
    if (said.kind == FROM_SHARD_WELCOME && is_older(world.sim, said.welcome.boot))
        said.welcome.wire_version = 0;
    return __real_exchange_stream_send(stream, priority, &said, parts, part_count);
}

void older_pushed(struct sim *sim, uint64_t boot, const struct push *push)
{
    for (uint32_t i = 0; i < push->entry_count && is_older(sim, boot); i++)
        if (push->entries[i].sparse)
            sim_violated(sim, 24, "a server of wire version 2 gets some rows of chunk %u",
                         push->entries[i].chunk);
}
