/* protobuf-c behind the encoder: memory from an arena, limits, and one sentence for each way to be
 * wrong. For files of proto/ only. */
#ifndef ROOST_PROTO_PB_H
#define ROOST_PROTO_PB_H

#include "common/arena.h"
#include "common/buf.h"
#include "common/scoped.h"
#include "proto/wire.h"

#include "roost.pb-c.h"

/* A decoded message takes a few times its bytes in small structs. */
#define PB_ARENA_BYTES_MAX ((size_t)8 * WIRE_CONTROL_BYTES_MAX)

enum err pb_pack(const ProtobufCMessage *message, struct buf *buf) MUST_USE;
/* The unpacked message in `arena`. */
enum err pb_unpack(const ProtobufCMessageDescriptor *descriptor, struct slice bytes,
                   struct arena *arena, void *ret_message, struct reason *reason) MUST_USE;

/* What protobuf-c wants for an array: pointers to `count` new messages of `bytes` each, not filled,
 * in `arena`. NULL: no memory. */
void *pb_new_list(size_t count, size_t bytes, struct arena *arena) MUST_USE;

/* Which field a sentence is about: "ticket." and "kind". */
struct pb_label {
    const char *prefix, *field;
};

/* Checks of what a peer sent: ERR_MALFORMED names the field and its limit. The sentences of what is
 * tested for every number of every message are written out of line. */
enum err pb_too_large(uint64_t value, uint64_t max, struct pb_label label, struct reason *reason);
static inline MUST_USE enum err pb_range(uint64_t value, uint64_t max, struct pb_label label,
                                         struct reason *reason)
{
    return value <= max ? ERR_OK : pb_too_large(value, max, label, reason);
}
/* An enum whose values are min to max. */
enum err pb_choice(int value, int min, int max, struct pb_label label,
                   struct reason *reason) MUST_USE;
enum err pb_finite(float value, const char *label, struct reason *reason) MUST_USE;
/* An `enum err` from the wire; unknown codes are malformed. */
enum err pb_code(uint32_t value, struct pb_label label, enum err *ret_code,
                 struct reason *reason) MUST_USE;
/* `text` of at most `bytes_max` bytes of valid UTF-8 that no log and no terminal takes for more
 * than text (utf8_plain_length()). It has also none of the ASCII characters `without`; newline and
 * tab it has only when `lines` is set. */
struct pb_words {
    bool lines;
    const char *without;
};
enum err pb_text(const char *text, size_t bytes_max, struct pb_words words, struct pb_label label,
                 const char **ret_text, struct reason *reason) MUST_USE;
/* The same into a fixed array of `ret_bytes`. */
enum err pb_name(const char *text, struct pb_words words, struct pb_label label, char *ret_name,
                 size_t ret_bytes, struct reason *reason) MUST_USE;
/* The text as pb_text() takes it: a question mark stands for each byte of what it may not have, and it
 * is cut between two characters. Itself, where nothing is to be changed; else in `arena`. NULL: no
 * memory. */
char *pb_said(const char *text, size_t bytes_max, struct pb_words words,
              struct arena *arena) MUST_USE;
/* Exactly WIRE_DIGEST_BYTES, or zeros for an empty field. */
enum err pb_digest(const ProtobufCBinaryData *data, struct pb_label label,
                   uint8_t ret_digest[static WIRE_DIGEST_BYTES], struct reason *reason) MUST_USE;
/* Exactly WIRE_PROOF_BYTES, or zeros for an empty field. */
enum err pb_proof(const ProtobufCBinaryData *data, struct pb_label label, struct proof *ret_proof,
                  struct reason *reason) MUST_USE;
/* Each of `count` numbers names a chunk. */
enum err pb_chunks(const uint32_t *chunks, size_t count, struct reason *reason) MUST_USE;
/* `message` is there. */
enum err pb_there(const void *message, const char *field, struct reason *reason) MUST_USE;

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
