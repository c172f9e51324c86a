#include "common/cursor.h"

size_t cursor_bytes(const struct cursor *cursor)
{
    size_t bytes = 0;
    for (size_t i = cursor->index; i < cursor->slice_count; i++)
        bytes += cursor->slices[i].bytes;
    return bytes - cursor->offset;
}

/* The rest of the present slice, which is not empty. */
static struct slice cursor_rest(struct cursor *cursor)
{
    check(cursor->index < cursor->slice_count);
    while (cursor->offset == cursor->slices[cursor->index].bytes) {
        cursor->index++;
        cursor->offset = 0;
        check(cursor->index < cursor->slice_count);
    }
    const struct slice *slice = &cursor->slices[cursor->index];
    return (struct slice){slice->data + cursor->offset, slice->bytes - cursor->offset};
}

void cursor_skip(struct cursor *cursor, size_t bytes)
{
    while (bytes > 0) {
        size_t rest = cursor_rest(cursor).bytes;
        size_t step = rest < bytes ? rest : bytes;
        cursor->offset += step;
        bytes -= step;
    }
}

size_t cursor_values(struct cursor *cursor, size_t size, size_t count_max, uint8_t value[static 8],
                     const uint8_t **ret_values)
{
    struct slice rest = cursor_rest(cursor);
    size_t count = rest.bytes / size < count_max ? rest.bytes / size : count_max;
    if (count > 0) {
        cursor->offset += count * size;
        *ret_values = rest.data;
        return count;
    }
    for (size_t i = 0; i < size; i++) {
        value[i] = *cursor_rest(cursor).data;
        cursor->offset++;
    }
    *ret_values = value;
    return 1;
}
