/* The bounded queue into an owner thread: many post, one takes.
 *
 * Items are plain structs of one size, copied in and out; nothing is allocated after inbox_new().
 * What an item points to belongs to the receiver once the post has succeeded. Items of one sender
 * arrive in its order. Full means ERR_BUSY to the sender, never growth. */
#ifndef ROOST_COMMON_INBOX_H
#define ROOST_COMMON_INBOX_H

#include "common/err.h"
#include "common/scoped.h"

#include <stddef.h>
#include <stdint.h>

struct inbox;

struct inbox_limits {
    size_t item_bytes;
    size_t items_max;
};

enum err inbox_new(struct inbox_limits limits, struct inbox **ret_inbox) MUST_USE;
/* No thread may still post or take. Items left inside are forgotten: drain them first. */
void inbox_free(struct inbox *inbox);
SCOPED_FREE(struct inbox, inbox_free)

/* Copies the item in and wakes the owner. Any thread; never waits for room.
 * ERR_BUSY: full. ERR_CANCELLED: closed. */
enum err inbox_post(struct inbox *inbox, const void *item) MUST_USE;

/* The same, but ERR_BUSY where `items_max` are inside: the places beyond are others'. */
enum err inbox_post_below(struct inbox *inbox, const void *item, size_t items_max) MUST_USE;

/* Moves up to `items_max` items to `items`, oldest first, waiting for the first one until
 * `deadline_ns` (0: do not wait). Owner thread only.
 * ERR_DEADLINE: none came. ERR_CANCELLED: closed and empty. */
enum err inbox_take(struct inbox *inbox, uint64_t deadline_ns, size_t items_max, void *items,
                    size_t *ret_count) MUST_USE;

/* Refuses further posts; the owner still gets the items inside, then ERR_CANCELLED. Any thread. */
void inbox_close(struct inbox *inbox);

#endif
