#include "worker/model/piece_sum.h"

#include "common/tree.h"
#include "worker/carve.h"

static uint64_t array_bytes(const struct kernels *k, int64_t n)
{
    return carve_align((uint64_t)n * k->element_bytes);
}

uint64_t piece_sum_bytes(const struct kernels *k, uint32_t count, int64_t n)
{
    return tree_level(count) * array_bytes(k, n);
}

/* The nodes that are complete and wait for their right halves: the binary digits of how many pieces
 * there are so far. */
void piece_sum(const struct kernels *k, element *out, void *scratch, uint32_t count, int64_t n,
               piece_product *product, const void *context)
{
    element *nodes[TREE_LEVEL_MAX + 1] = {out};
    uint32_t waiting = 0;
    check(count > 0 && (count & (count - 1)) == 0 && tree_level(count) <= TREE_LEVEL_MAX);
    for (uint32_t level = 0; level < tree_level(count); level++)
        nodes[level + 1] = (element *)(void *)((uint8_t *)scratch + level * array_bytes(k, n));
    for (uint32_t piece = 0; piece < count; piece++) {
        product(context, piece, nodes[waiting]);
        for (uint32_t bits = piece; bits & 1; bits >>= 1, waiting--)
            k->linear_finish(k, nodes[waiting - 1], nodes[waiting - 1], nodes[waiting], NULL, 1, n);
        waiting++;
    }
}
