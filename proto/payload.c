/* See payload.h. */
#include "proto/payload.h"

#include "common/arena.h"
#include "proto/wire.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

enum { PAYLOAD_TAG = 15 << 3 | 2, WIRE_TYPE_BYTES = 2, WIRE_TYPE_VARINT = 0 };

enum err payload_put_length(size_t payload_bytes, struct buf *buf)
{
    if (payload_bytes == 0)
        return ERR_OK;
    size_t used = 2; /* the tag, and the last byte of the length */
    for (size_t rest = payload_bytes; rest > 0x7f; rest >>= 7)
        used++;
    TRY(buf_reserve(buf, used));
    uint8_t *at = buf->data + buf->bytes;
    buf->bytes += used;
    *at++ = PAYLOAD_TAG;
    for (; payload_bytes > 0x7f; payload_bytes >>= 7)
        *at++ = (uint8_t)(payload_bytes | 0x80);
    *at = (uint8_t)payload_bytes;
    return ERR_OK;
}

struct field_cursor {
    const struct slice *slices;
    size_t slice_count, slice; /* current slice, and the place in it */
    size_t at;
    size_t offset; /* in the whole message */
};

static bool cursor_byte(struct field_cursor *cursor, uint8_t *ret_byte)
{
    while (cursor->slice < cursor->slice_count &&
           cursor->at == cursor->slices[cursor->slice].bytes) {
        cursor->slice++;
        cursor->at = 0;
    }
    if (cursor->slice == cursor->slice_count)
        return false;
    *ret_byte = cursor->slices[cursor->slice].data[cursor->at++];
    cursor->offset++;
    return true;
}

static bool cursor_varint(struct field_cursor *cursor, uint64_t *ret_value)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte;
        if (!cursor_byte(cursor, &byte))
            return false;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *ret_value = value;
            return true;
        }
    }
    return false;
}

static bool cursor_skip(struct field_cursor *cursor, uint64_t bytes)
{
    while (bytes > 0) {
        if (cursor->slice == cursor->slice_count)
            return false;
        size_t left = cursor->slices[cursor->slice].bytes - cursor->at;
        size_t now = bytes < left ? (size_t)bytes : left;
        cursor->at += now;
        cursor->offset += now;
        bytes -= now;
        if (now == left) {
            cursor->slice++;
            cursor->at = 0;
        }
    }
    return true;
}

/* Walks the top-level fields up to the payload, which must be the last one. Of the header only the
 * length is known then. */
static enum err split_message(const struct slice *slices, size_t slice_count,
                              struct payload_split *ret_split, struct reason *reason)
{
    size_t total = 0;
    for (size_t i = 0; i < slice_count; i++)
        total += slices[i].bytes;
    struct field_cursor cursor = {.slices = slices, .slice_count = slice_count};
    while (cursor.offset < total) {
        size_t field = cursor.offset;
        if (field > WIRE_HEADER_BYTES_MAX)
            return reason_set(reason, ERR_MALFORMED, "header is larger than %d bytes",
                              WIRE_HEADER_BYTES_MAX);
        uint64_t tag, value;
        if (!cursor_varint(&cursor, &tag) || !cursor_varint(&cursor, &value))
            return reason_set(reason, ERR_MALFORMED, "field at byte %zu is cut off", field);
        if (tag == PAYLOAD_TAG) {
            if (value != total - cursor.offset)
                return reason_set(reason, ERR_MALFORMED,
                                  "payload of %" PRIu64 " bytes is not the last %zu bytes", value,
                                  total - cursor.offset);
            *ret_split = (struct payload_split){{NULL, field}, cursor.offset, (size_t)value};
            return ERR_OK;
        }
        uint64_t type = tag & 7;
        if (type != WIRE_TYPE_VARINT && (type != WIRE_TYPE_BYTES || !cursor_skip(&cursor, value)))
            return reason_set(reason, ERR_MALFORMED, "field at byte %zu does not decode", field);
    }
    *ret_split = (struct payload_split){{NULL, total}, total, 0};
    return total <= WIRE_HEADER_BYTES_MAX
               ? ERR_OK
               : reason_set(reason, ERR_MALFORMED, "header is larger than %d bytes",
                            WIRE_HEADER_BYTES_MAX);
}

/* The header's bytes, contiguous: where they are, or copied when they span slices. */
static enum err gather_header(const struct slice *slices, struct arena *arena, struct slice *header)
{
    size_t bytes = header->bytes;
    if (bytes == 0)
        return ERR_OK;
    if (slices[0].bytes >= bytes) {
        header->data = slices[0].data;
        return ERR_OK;
    }
    uint8_t *copy = arena_take(arena, bytes);
    if (copy == NULL)
        return ERR_NOMEM;
    size_t used = 0;
    for (size_t i = 0; used < bytes; i++) {
        size_t now = slices[i].bytes < bytes - used ? slices[i].bytes : bytes - used;
        memcpy(copy + used, slices[i].data, now);
        used += now;
    }
    header->data = copy;
    return ERR_OK;
}

enum err payload_split(const struct slice *slices, size_t slice_count, struct arena *arena,
                       struct payload_split *ret_split, struct reason *reason)
{
    TRY(split_message(slices, slice_count, ret_split, reason));
    return gather_header(slices, arena, &ret_split->header);
}
