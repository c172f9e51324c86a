/* Unigram entropy: what a model that knows only how often each token occurs would reach. */
#ifndef ROOST_COMMON_DATA_ENTROPY_H
#define ROOST_COMMON_DATA_ENTROPY_H

#include <stddef.h>
#include <stdint.h>

double entropy_nats(const uint64_t *counts, size_t count); /* 0 when all counts are 0 */

#endif
