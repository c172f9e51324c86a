/* Growing and counted bytes. */
#include "common/buf.h"

#include <stdarg.h>
#include <string.h>

void buf_release(struct buf *buf)
{
    free(buf->data);
}

void buf_clear(struct buf *buf)
{
    buf_release(buf);
    *buf = (struct buf){.bytes_max = buf->bytes_max};
}

enum err buf_reserve(struct buf *buf, size_t more)
{
    if (buf->bytes_max != 0 && more > buf->bytes_max - buf->bytes)
        return ERR_BUSY;
    if (more <= buf->capacity - buf->bytes)
        return ERR_OK;
    size_t wanted, capacity = buf->capacity < 64 ? 64 : buf->capacity * 2;
    if (__builtin_add_overflow(buf->bytes, more, &wanted))
        return ERR_NOMEM;
    if (capacity < wanted)
        capacity = wanted;
    uint8_t *data = realloc(buf->data, capacity);
    if (data == NULL)
        return ERR_NOMEM;
    buf->data = data;
    buf->capacity = capacity;
    return ERR_OK;
}

enum err buf_append(struct buf *buf, const void *data, size_t bytes)
{
    TRY(buf_reserve(buf, bytes));
    if (bytes != 0)
        memcpy(buf->data + buf->bytes, data, bytes);
    buf->bytes += bytes;
    return ERR_OK;
}

enum err buf_printf(struct buf *buf, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    check(wanted >= 0);
    TRY(buf_reserve(buf, (size_t)wanted + 1));
    va_start(arguments, format);
    vsnprintf((char *)buf->data + buf->bytes, (size_t)wanted + 1, format, arguments);
    va_end(arguments);
    buf->bytes += (size_t)wanted; /* the terminating 0 stays behind the content */
    return ERR_OK;
}

struct buf buf_detach(struct buf *buf)
{
    struct buf content = *buf;
    *buf = (struct buf){.bytes_max = content.bytes_max};
    return content;
}

struct counted *counted_new(size_t bytes)
{
    _Static_assert(sizeof(struct counted) <= COUNTED_HEAD_BYTES, "the head fits");
    struct counted *counted = aligned_alloc(64, (COUNTED_HEAD_BYTES + bytes + 63) / 64 * 64);
    if (counted == NULL)
        return NULL;
    atomic_init(&counted->references, 1); /* only ever written atomically */
    counted->bytes = bytes;
    counted->released = NULL;
    counted->owner = NULL;
    counted->data = (uint8_t *)counted + COUNTED_HEAD_BYTES;
    return counted;
}

struct counted *counted_ref(struct counted *counted)
{
    /* Release: the thread that drops this reference has then seen what came before it, also when a
     * library that the thread sanitizer does not watch handed it over. */
    atomic_fetch_add_explicit(&counted->references, 1, memory_order_release);
    return counted;
}

void counted_unref(struct counted *counted)
{
    if (counted == NULL)
        return;
    unsigned before = atomic_fetch_sub_explicit(&counted->references, 1, memory_order_acq_rel);
    check(before != 0);
    if (before != 1)
        return;
    if (counted->released != NULL)
        counted->released(counted, counted->owner);
    else
        free(counted);
}
