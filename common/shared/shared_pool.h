/* Memory of this process for payloads, which other processes of the machine may read where it lies.
 *
 * One memfd, as large as the machine's memory and empty until it is used: pages are taken when they
 * are first written, and used again, the lowest first; they are given back with the pool alone. It is
 * sealed against shrinking and growing, so that no page can go away under a reader, and against
 * writing by others: only the mapping that was made here, before the seal, can be written.
 *
 * Whoever has the file reads all of the pool: nothing but payloads may lie in it. Any thread. */
#ifndef ROOST_COMMON_SHARED_SHARED_POOL_H
#define ROOST_COMMON_SHARED_SHARED_POOL_H

#include "common/buf.h"

#include <stdbool.h>

struct shared_pool;

/* ERR_NOMEM; ERR_IO. */
enum err shared_pool_new(struct shared_pool **ret_pool, struct reason *reason) MUST_USE;
/* What it gave stays until its last reference is gone. NULL is fine. */
void shared_pool_free(struct shared_pool *pool);
int shared_pool_file(const struct shared_pool *pool); /* lent */
/* All of it, most of which is empty: touch nothing that was not given. */
struct slice shared_pool_memory(const struct shared_pool *pool);

/* As counted_new(): from the pool, or from the heap if it is full or NULL. */
struct counted *shared_pool_counted(struct shared_pool *pool, size_t bytes) MUST_USE;
/* Where these bytes lie in the file; false: not there. NULL has none. */
bool shared_pool_find(const struct shared_pool *pool, struct slice bytes, uint64_t *ret_offset);

/* The memory of another process's pool: read-only, munmap(). It takes as many addresses as the pool is
 * large, which no pool of this machine is more than its memory. ERR_MALFORMED: a page of it could be
 * missing when it is read, or it is larger. ERR_IO. */
enum err shared_pool_map(int file, struct slice *ret_bytes, struct reason *reason) MUST_USE;

#endif
