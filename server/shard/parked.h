/* Parked pulls. Each waits in a ring, for a chunk's turn or for a later commit. Chunks get a new
 * version in ascending order, so a pull is answered at the turn of its last chunk. The bytes of
 * each member's parked pulls are bounded, and all members may have so many at the same time: none
 * takes another's room, with however many streams. */
#ifndef ROOST_SERVER_SHARD_PARKED_H
#define ROOST_SERVER_SHARD_PARKED_H

#include "common/err.h"
#include "common/id_table.h"
#include "proto/wire.h"

/* A pull, or the head of a ring. */
struct parked_pull {
    struct parked_pull *before, *behind;
    uint64_t sender;
    struct parked_member *member;
    uint64_t id;
    uint64_t version;
    uint32_t chunk_count;
    uint32_t chunks[];
};

enum { PARKED_MEMBERS_MAX = 4096 /* COORDINATOR_MEMBERS_MAX */ };

struct parked {
    size_t member_bytes_max;
    uint64_t count;
    struct id_table members; /* those that have parked pulls */
};

/* Who asks: the stream, which gets the answer, and its member. */
struct pull_sender {
    uint64_t stream, member;
};

enum err parked_init(struct parked *parked, size_t member_bytes_max) MUST_USE; /* ERR_NOMEM */
/* All rings were freed. */
void parked_release(struct parked *parked);

/* An empty ring's head; NULL: no memory. Freed with parked_free(). */
struct parked_pull *parked_ring(void) MUST_USE;
/* Frees the ring with all pulls in it; NULL is fine. */
void parked_free(struct parked *parked, struct parked_pull *ring);
/* Parks a copy of the pull, behind those of the ring. ERR_BUSY: no room for the member. */
enum err parked_add(struct parked *parked, struct parked_pull *ring, struct pull_sender sender,
                    const struct pull *pull) MUST_USE;
/* The oldest of the ring that waits for at most `version`; NULL: none. */
struct parked_pull *parked_find(const struct parked_pull *ring, uint64_t version);
/* Takes the pull out of its ring. The caller frees it with free(). */
void parked_take(struct parked *parked, struct parked_pull *pull);
/* Puts the pull behind those of another ring. */
void parked_move(struct parked_pull *ring, struct parked_pull *pull);
/* Moves all of `from` behind those of `ring`. */
void parked_join(struct parked_pull *ring, struct parked_pull *from);
/* Whether the member has parked pulls. */
bool parked_has(const struct parked *parked, uint64_t member);
/* Whose pull that is. */
uint64_t parked_by(const struct parked_pull *pull);
void parked_cancel(struct parked *parked, struct parked_pull *ring, uint64_t sender);

#endif
