#include "tests/sim/lent.h"

#include "common/files/checkpoint.h"
#include "tests/sim/sim.h"

/* The newest of those at one place: an older one's memory is gone, or the same block is handed out
 * again. */
static struct lent_block *find_lent(struct sim *sim, const void *weights)
{
    for (uint32_t i = 0; i < LENT_BLOCKS_MAX; i++)
        if (sim->lent.blocks[i].weights == weights)
            return &sim->lent.blocks[i];
    return NULL;
}

static uint64_t digest_of(const struct lent_block *block)
{
    return digest_fast64((struct slice){block->weights, block->weights_bytes}) ^
           ~digest_fast64((struct slice){block->rest, block->rest_bytes});
}

void lent_handed(struct sim *sim, const struct shard_effect *snapshot)
{
    if (snapshot->snapshot.block == NULL)
        return;
    size_t bytes = snapshot->snapshot.n * sizeof(float);
    size_t arrays = (size_t)snapshot->snapshot.states + snapshot->snapshot.versions;
    const float *weights = shard_snapshot_weights(snapshot);
    struct lent_block *block = find_lent(sim, weights);
    if (block == NULL)
        block = &sim->lent.blocks[sim->lent.next++ % LENT_BLOCKS_MAX];
    *block = (struct lent_block){.weights = weights,
                                 .weights_bytes = bytes,
                                 .rest = shard_snapshot_rest(snapshot),
                                 .rest_bytes = arrays * bytes + snapshot->snapshot.extra_bytes};
    block->digest = digest_of(block);
}

enum err __real_checkpoint_writer_add(struct checkpoint_writer *writer, uint32_t chunk, uint32_t n,
                                      const float *weights, const void *rest,
                                      struct reason *reason);
enum err __wrap_checkpoint_writer_add(struct checkpoint_writer *writer, uint32_t chunk, uint32_t n,
                                      const float *weights, const void *rest,
                                      struct reason *reason);

enum err __wrap_checkpoint_writer_add(struct checkpoint_writer *writer, uint32_t chunk, uint32_t n,
                                      const float *weights, const void *rest, struct reason *reason)
{
    enum err err = __real_checkpoint_writer_add(writer, chunk, n, weights, rest, reason);
    struct lent_block *block = world.life == NULL ? NULL : find_lent(world.sim, weights);
    if (block == NULL)
        return err;
    if (life_acts() && digest_of(block) != block->digest)
        sim_violated(world.sim, 16, "chunk %u changes while the writer of a cut has it", chunk);
    block->weights = NULL;
    return err;
}
