/* Bytes from one process to another through memory that both have mapped: a ring with one writer and
 * one reader. The arithmetic alone; shared_link.h makes the memory and wakes who sleeps.
 *
 * The other side may write anything anywhere in that memory, at any moment. So each side keeps its own
 * position for itself and only shows it, and judges the other's each time that it reads it: a position
 * that goes back, or is where no honest one can be, is ERR_MALFORMED, for good. Nothing that lies in
 * the ring decides where this side reads or writes. Bytes of a message may still change while they
 * are read: that is a sender's harm to its own message, so whoever judges bytes copies them first.
 *
 * One thread at each end. */
#ifndef ROOST_COMMON_SHARED_SHARED_RING_H
#define ROOST_COMMON_SHARED_SHARED_RING_H

#include "common/buf.h"

#include <stdatomic.h>
#include <stdbool.h>

/* What both sides see; bytes since the beginning. Each part has a line of the cache. */
struct shared_positions {
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) _Atomic uint64_t read;
    _Alignas(64) atomic_uint reader_sleeps; /* it wants to be woken when `written` rises */
    _Alignas(64) atomic_uint writer_sleeps; /* … when `read` rises */
};

/* One side of a ring; `mine` is its position, `theirs` the newest of the other's. */
struct shared_ring {
    struct shared_positions *positions; /* borrowed */
    uint8_t *bytes;                     /* borrowed */
    uint64_t capacity;
    uint64_t mine, theirs;
};

/* The room that lies in one piece behind what was written, perhaps none, of which the caller fills
 * `count` bytes and says so. */
enum err shared_ring_room(struct shared_ring *writer, uint8_t **ret_at, size_t *ret_bytes,
                          struct reason *reason) MUST_USE;
void shared_ring_wrote(struct shared_ring *writer, size_t count);
/* The same of all room, not of its first piece. */
enum err shared_ring_room_bytes(struct shared_ring *writer, uint64_t *ret_bytes,
                                struct reason *reason) MUST_USE;

/* What is there, in one piece, perhaps nothing: lent until shared_ring_took(). */
enum err shared_ring_look(struct shared_ring *reader, struct slice *ret_bytes,
                          struct reason *reason) MUST_USE;
void shared_ring_took(struct shared_ring *reader, size_t count);
enum err shared_ring_there_bytes(struct shared_ring *reader, uint64_t *ret_bytes,
                                 struct reason *reason) MUST_USE;

#endif
