/* Reads received bytes that lie in several slices, which may end anywhere, also inside a value.
 * Plain data; the slices are borrowed. The reader has counted the bytes before: running out of them
 * is our bug. */
#ifndef ROOST_COMMON_CURSOR_H
#define ROOST_COMMON_CURSOR_H

#include "common/buf.h"

struct cursor {
    const struct slice *slices;
    size_t slice_count;
    size_t index;  /* the slice that is being read */
    size_t offset; /* in it */
};

/* Bytes that are still to be read. */
size_t cursor_bytes(const struct cursor *cursor);
/* Passes over `bytes`. */
void cursor_skip(struct cursor *cursor, size_t bytes);
/* Passes over the next values, of `size` bytes each (at most 8), and returns how many: as many as
 * lie together, at least 1, at most `count_max`. *ret_values points to them. A value that is cut by
 * a slice's end is put together in `value`. */
size_t cursor_values(struct cursor *cursor, size_t size, size_t count_max, uint8_t value[static 8],
                     const uint8_t **ret_values);

#endif
