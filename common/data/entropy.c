/* Sum over p ln(1/p), in index order. */
#include "common/data/entropy.h"

#include "common/elementary.h"

double entropy_nats(const uint64_t *counts, size_t count)
{
    double total = 0, nats = 0;
    for (size_t i = 0; i < count; i++)
        total += (double)counts[i];
    for (size_t i = 0; i < count; i++)
        if (counts[i] > 0)
            nats += (double)counts[i] / total * elementary_log(total / (double)counts[i]);
    return nats;
}
