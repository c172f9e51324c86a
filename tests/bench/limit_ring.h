/* A ring in memory that two processes share, one writer, one reader: what a program written for nothing
 * else would have. Who waits looks again and again, as there is a core for each. */
#ifndef ROOST_TESTS_BENCH_LIMIT_RING_H
#define ROOST_TESTS_BENCH_LIMIT_RING_H

#include <stddef.h>
#include <stdint.h>

struct limit_ring;

struct limit_ring *limit_ring_new(void);       /* before the processes are forked */
void limit_ring_free(struct limit_ring *ring); /* NULL is fine */

void limit_ring_write(struct limit_ring *ring, const uint8_t *data, size_t bytes);
/* What is there in one piece, at least a byte, until it is taken. */
size_t limit_ring_look(struct limit_ring *ring, const uint8_t **ret_data);
void limit_ring_took(struct limit_ring *ring, size_t bytes);

#endif
