/* Bytes: borrowed (slice.h), growing (buf), shared and immutable (counted). */
#ifndef ROOST_COMMON_BUF_H
#define ROOST_COMMON_BUF_H

#include "common/err.h"
#include "common/slice.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Growing bytes. {0} is an empty one without a limit; `bytes_max` bounds growth (0: none). */
struct buf {
    uint8_t *data;
    size_t bytes;
    size_t capacity;
    size_t bytes_max;
};

void buf_release(struct buf *buf);
void buf_clear(struct buf *buf); /* release, then empty again */
/* Room for `more` bytes after the content. ERR_NOMEM; ERR_BUSY past `bytes_max`. */
enum err buf_reserve(struct buf *buf, size_t more) MUST_USE;
enum err buf_append(struct buf *buf, const void *data, size_t bytes) MUST_USE;
enum err buf_printf(struct buf *buf, const char *format, ...) PRINTF_LIKE(2, 3) MUST_USE;
struct buf buf_detach(struct buf *buf); /* the content; `buf` is empty afterwards */
static inline struct slice buf_slice(const struct buf *buf)
{
    return (struct slice){buf->data, buf->bytes};
}

/* Bytes with a reference count: their maker fills them once, then they are only read. Any thread
 * may hold and drop references. The last drop frees them. 64-byte aligned. */
struct counted {
    atomic_uint references;
    size_t bytes;
    void (*released)(struct counted *counted, void *owner); /* NULL: free() */
    void *owner;
    uint8_t *data; /* behind this, or where its maker says */
};
enum { COUNTED_HEAD_BYTES = 64 }; /* up to the data, where they lie behind */

struct counted *counted_new(size_t bytes) MUST_USE; /* one reference; NULL: out of memory */
struct counted *counted_ref(struct counted *counted);
void counted_unref(struct counted *counted); /* NULL is fine */

#endif
