/* protobuf-c behind the encoder: memory from an arena, limits, and one way to say what is wrong.
 * For files of proto/ only. */
#ifndef ROOST_PROTO_PB_H
#define ROOST_PROTO_PB_H

#include "common/arena.h"
#include "common/buf.h"
#include "common/scoped.h"
#include "proto/wire.h"

#include "roost.pb-c.h"

/* A decoded message takes a few times its bytes in small structs. */
#define PB_ARENA_BYTES_MAX ((size_t)8 * WIRE_CONTROL_BYTES_MAX)
/* What an encoder's messages lie in, to the end of its scope. */
#define PB_ARENA(name) scoped(arena_release) struct arena name = {.bytes_max = PB_ARENA_BYTES_MAX}

enum err pb_pack(const ProtobufCMessage *message, struct buf *buf) MUST_USE;
/* The unpacked message in `arena`. */
enum err pb_unpack(const ProtobufCMessageDescriptor *descriptor, struct slice bytes,
                   struct arena *arena, void *ret_message, struct reason *reason) MUST_USE;

/* The array that protobuf-c wants: pointers to `count` messages of `bytes` each, in `arena`. NULL:
 * no memory, or `messages` is NULL for that reason. */
void *pb_pointers(void *messages, size_t count, size_t bytes, struct arena *arena);

/* `text` of at most `bytes_max` bytes without control characters but newline and tab. */
enum err pb_text(const char *text, size_t bytes_max, const char *field, const char **ret_text,
                 struct reason *reason) MUST_USE;
/* The same into a fixed array of `ret_bytes`. */
enum err pb_name(const char *text, const char *field, char *ret_name, size_t ret_bytes,
                 struct reason *reason) MUST_USE;
/* Exactly WIRE_DIGEST_BYTES, or zeros for an empty field. */
enum err pb_digest(const ProtobufCBinaryData *data, const char *field,
                   uint8_t ret_digest[static WIRE_DIGEST_BYTES], struct reason *reason) MUST_USE;
enum err pb_range(uint64_t value, uint64_t max, const char *field, struct reason *reason) MUST_USE;
/* An `enum err` from the wire; unknown codes are malformed. */
enum err pb_code(uint32_t value, const char *field, enum err *ret_code,
                 struct reason *reason) MUST_USE;
/* `message` is there. */
enum err pb_there(const void *message, const char *field, struct reason *reason) MUST_USE;

/* A node that names slots of some step; whether of this one is the core's to judge. */
enum err pb_node(const Roost__V1__Node *node, struct node *ret_node,
                 struct reason *reason) MUST_USE;
/* The pieces that several messages share; the pb side lives in the caller's frame. */
void pb_put_node(struct node node, Roost__V1__Node *ret_node);

struct pb_ticket {
    Roost__V1__Ticket ticket;
    Roost__V1__Node node;
};
void pb_put_ticket(const struct ticket *ticket, struct pb_ticket *ret_ticket);
enum err pb_ticket(const Roost__V1__Ticket *ticket, struct ticket *ret_ticket,
                   struct reason *reason) MUST_USE;

/* Chunk ranges, as pointers to pb messages in `arena`; and back. */
enum err pb_put_ranges(const struct chunk_range *ranges, uint32_t count, struct arena *arena,
                       Roost__V1__ChunkRange ***ret_ranges) MUST_USE;
enum err pb_ranges(Roost__V1__ChunkRange *const *ranges, size_t count, struct arena *arena,
                   const struct chunk_range **ret_ranges, struct reason *reason) MUST_USE;

/* protobuf-c's strings are not const; it does not write to what it packs. */
static inline char *pb_string(const char *text)
{
    return (char *)(uintptr_t)(text == NULL ? "" : text);
}
static inline ProtobufCBinaryData pb_bytes(const uint8_t *data, size_t bytes)
{
    return (ProtobufCBinaryData){.len = bytes, .data = (uint8_t *)(uintptr_t)data};
}

#endif
