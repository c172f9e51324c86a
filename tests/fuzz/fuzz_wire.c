/* Every message of the wire: the first byte picks which (kept inputs begin with that number, so one
 * that is put between others shifts those behind it). What decodes must encode, and then decode
 * and encode to the same bytes. */
#include "tests/fuzz/fuzz.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "proto/wire.h"

#include <string.h>

enum { ARENA_BYTES_MAX = 1 << 20 };

static void same_bytes(const struct buf *first, const struct buf *second)
{
    check(first->bytes == second->bytes);
    check(first->bytes == 0 || memcmp(first->data, second->data, first->bytes) == 0);
}

#define DEFINE_ONCE(name)                                                                          \
    static bool once_##name(struct slice bytes, struct buf *ret_buf)                               \
    {                                                                                              \
        scoped(arena_release) struct arena arena = {.bytes_max = ARENA_BYTES_MAX};                 \
        struct name message;                                                                       \
        struct reason reason;                                                                      \
        if (wire_decode_##name(bytes, &arena, &message, &reason) != ERR_OK)                        \
            return false;                                                                          \
        check(wire_encode_##name(&message, ret_buf) == ERR_OK);                                    \
        return true;                                                                               \
    }
WIRE_MESSAGES(DEFINE_ONCE)
#undef DEFINE_ONCE

/* Data messages are read from slices: two of them, cut in the middle. The payload stays behind. */
#define DEFINE_DATA_ONCE(name)                                                                     \
    static bool once_##name(struct slice bytes, struct buf *ret_buf)                               \
    {                                                                                              \
        scoped(arena_release) struct arena arena = {.bytes_max = ARENA_BYTES_MAX};                 \
        size_t half = bytes.bytes / 2;                                                             \
        const struct slice slices[2] = {{bytes.data, half},                                        \
                                        {bytes.data + half, bytes.bytes - half}};                  \
        struct name message;                                                                       \
        struct reason reason;                                                                      \
        if (wire_decode_##name(slices, 2, &arena, &message, &reason) != ERR_OK)                    \
            return false;                                                                          \
        check(message.payload_offset + (size_t)message.payload_bytes <= bytes.bytes);              \
        check(wire_encode_##name(&message, ret_buf) == ERR_OK);                                    \
        check(buf_append(ret_buf, bytes.data + message.payload_offset, message.payload_bytes) ==   \
              ERR_OK);                                                                             \
        return true;                                                                               \
    }
DEFINE_DATA_ONCE(to_shard)
DEFINE_DATA_ONCE(from_shard)
DEFINE_DATA_ONCE(from_peer)
#undef DEFINE_DATA_ONCE

/* A chunk that moves: the payload is behind the header. */
static bool once_transfer(struct slice bytes, struct buf *ret_buf)
{
    scoped(arena_release) struct arena arena = {.bytes_max = ARENA_BYTES_MAX};
    struct transfer message;
    struct slice payload;
    struct reason reason;
    if (wire_decode_transfer(bytes, &arena, &message, &payload, &reason) != ERR_OK)
        return false;
    check(payload.data >= bytes.data && payload.data + payload.bytes <= bytes.data + bytes.bytes);
    check(payload.bytes == (size_t)message.weights * message.arrays * sizeof(float));
    check(wire_encode_transfer(&message, ret_buf) == ERR_OK);
    check(buf_append(ret_buf, payload.data, payload.bytes) == ERR_OK);
    return true;
}

typedef bool once(struct slice bytes, struct buf *ret_buf);
#define ONCE(name) once_##name,
static once *const onces[] = {once_to_shard, once_from_shard, WIRE_MESSAGES(ONCE) once_transfer,
                              once_from_peer};
#undef ONCE

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    once *decode_and_encode = onces[data[0] % (sizeof onces / sizeof onces[0])];
    scoped(buf_release) struct buf first = {0}, second = {0};
    if (!decode_and_encode((struct slice){data + 1, bytes - 1}, &first))
        return 0;
    check(decode_and_encode(buf_slice(&first), &second));
    same_bytes(&first, &second);
    return 0;
}
