/* A message whose last field, 15, is a payload of many bytes: a header that protobuf decodes, and
 * the payload, which stays where gRPC put it. A received message is looked at only up to its
 * payload. Any thread. */
#ifndef ROOST_PROTO_PAYLOAD_H
#define ROOST_PROTO_PAYLOAD_H

#include "common/buf.h"

struct arena;

struct payload_split {
    struct slice header;
    size_t payload_offset; /* in the message */
    size_t payload_bytes;
};

/* Appends the payload field's tag and length, which the payload follows; nothing when it is empty.
 * ERR_NOMEM; ERR_BUSY past the buffer's limit. */
enum err payload_put_length(size_t payload_bytes, struct buf *buf) MUST_USE;

/* `slices` are the message. The header is borrowed from them, or copied to `arena` when it spans
 * slices. ERR_MALFORMED: the payload is not the last field, or the header is larger than
 * WIRE_HEADER_BYTES_MAX; ERR_NOMEM. */
enum err payload_split(const struct slice *slices, size_t slice_count, struct arena *arena,
                       struct payload_split *ret_split, struct reason *reason) MUST_USE;

#endif
