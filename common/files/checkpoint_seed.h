/* The values of a cut that is recorded by its seed: version 0 of a fresh run (P9). A chunk's values
 * are made when they are asked for, and kept. Only for checkpoint_read.c. Any number of threads. */
#ifndef ROOST_COMMON_FILES_CHECKPOINT_SEED_H
#define ROOST_COMMON_FILES_CHECKPOINT_SEED_H

#include "common/files/checkpoint.h"

struct checkpoint_seed;

/* `spec`: YAML; `path` for the reasons. */
enum err checkpoint_seed_new(const char *spec, struct checkpoint_arrays arrays, const char *path,
                             struct checkpoint_seed **ret_seed, struct reason *reason) MUST_USE;
void checkpoint_seed_free(struct checkpoint_seed *seed); /* NULL is fine */

uint32_t checkpoint_seed_count(const struct checkpoint_seed *seed); /* chunks */
uint32_t checkpoint_seed_weights(const struct checkpoint_seed *seed, uint32_t chunk);
/* Borrowed from the seed. */
struct checkpoint_chunk checkpoint_seed_read(struct checkpoint_seed *seed, uint32_t chunk);

#endif
