/* Pulls that wait for a version, each in the list of its last chunk: chunks get a new version in
 * ascending order, so that chunk's turn is the moment to answer. Bounded in bytes. */
#ifndef ROOST_SERVER_PARKED_H
#define ROOST_SERVER_PARKED_H

#include "common/err.h"
#include "proto/wire.h"

struct parked_pull {
    struct parked_pull *before, *behind; /* in its list, a ring through the list's head */
    uint64_t sender;
    uint64_t id;
    uint64_t version;
    uint32_t last; /* index of the chunk whose turn it waits for */
    uint32_t chunk_count;
    uint32_t chunks[];
};

struct parked {
    struct parked_pull *lists; /* heads, one per chunk index */
    uint32_t list_count;
    size_t bytes;
    size_t bytes_max;
    uint64_t count;
};

enum err parked_init(struct parked *parked, uint32_t list_count, size_t bytes_max) MUST_USE;
void parked_release(struct parked *parked); /* {0} is fine */
/* Parks a copy of the pull, behind those of its list. ERR_BUSY: no room. */
enum err parked_add(struct parked *parked, uint64_t sender, const struct pull *pull,
                    uint32_t last) MUST_USE;
/* The oldest of list `last` that waits for at most `version`; NULL: none. */
struct parked_pull *parked_find(const struct parked *parked, uint32_t last, uint64_t version);
/* Out of its list; the caller frees it with free(). */
void parked_take(struct parked *parked, struct parked_pull *pull);
void parked_cancel(struct parked *parked, uint64_t sender);

#endif
