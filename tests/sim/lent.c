#include "tests/sim/lent.h"

#include "common/files/checkpoint.h"
#include "tests/sim/sim.h"

/* The newest of those at one place: an older one's memory is gone, or the same block is handed out
 * again. */
static struct lent_block *find_lent(struct sim *sim, const void *values)
{
    for (uint32_t i = 0; i < LENT_BLOCKS_MAX; i++)
        if (sim->lent.blocks[i].values == values)
            return &sim->lent.blocks[i];
    return NULL;
}

void lent_handed(struct sim *sim, const struct shard_effect *snapshot)
{
    if (snapshot->snapshot.block == NULL)
        return;
    const uint8_t *values = snapshot->snapshot.block->data;
    size_t arrays = (size_t)1 + snapshot->snapshot.states + snapshot->snapshot.versions;
    size_t bytes = arrays * snapshot->snapshot.n * sizeof(float) + snapshot->snapshot.extra_bytes;
    struct lent_block *block = find_lent(sim, values);
    if (block == NULL)
        block = &sim->lent.blocks[sim->lent.next++ % LENT_BLOCKS_MAX];
    *block = (struct lent_block){values, bytes, digest_fast64((struct slice){values, bytes})};
}

enum err __real_checkpoint_writer_add(struct checkpoint_writer *writer, uint32_t chunk, uint32_t n,
                                      const float *values, struct reason *reason);
enum err __wrap_checkpoint_writer_add(struct checkpoint_writer *writer, uint32_t chunk, uint32_t n,
                                      const float *values, struct reason *reason);

enum err __wrap_checkpoint_writer_add(struct checkpoint_writer *writer, uint32_t chunk, uint32_t n,
                                      const float *values, struct reason *reason)
{
    enum err err = __real_checkpoint_writer_add(writer, chunk, n, values, reason);
    struct lent_block *block = world.life == NULL ? NULL : find_lent(world.sim, values);
    if (block == NULL)
        return err;
    struct slice bytes = {(const uint8_t *)values, block->bytes};
    if (life_acts() && digest_fast64(bytes) != block->digest)
        sim_violated(world.sim, 16, "chunk %u changes while the writer of a cut has it", chunk);
    block->values = NULL;
    return err;
}
