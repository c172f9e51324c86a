/* See pb.h. */
#include "proto/pb.h"

#include "common/utf8.h"

#include <inttypes.h>
#include <string.h>

enum err pb_pack(const ProtobufCMessage *message, struct buf *buf)
{
    size_t bytes = protobuf_c_message_get_packed_size(message);
    if (bytes == 0) /* all defaults; `buf` may have no memory yet */
        return ERR_OK;
    TRY(buf_reserve(buf, bytes));
    check(protobuf_c_message_pack(message, buf->data + buf->bytes) == bytes);
    buf->bytes += bytes;
    return ERR_OK;
}

static void *arena_alloc(void *arena, size_t bytes)
{
    return arena_take(arena, bytes);
}

static void arena_keep(void *arena, void *pointer)
{
    (void)arena; /* everything goes at once, with the arena */
    (void)pointer;
}

enum err pb_unpack(const ProtobufCMessageDescriptor *descriptor, struct slice bytes,
                   struct arena *arena, void *ret_message, struct reason *reason)
{
    ProtobufCAllocator allocator = {arena_alloc, arena_keep, arena};
    ProtobufCMessage *message =
        protobuf_c_message_unpack(descriptor, &allocator, bytes.bytes, bytes.data);
    if (message == NULL)
        return reason_set(reason, ERR_MALFORMED, "%s of %zu bytes does not decode",
                          descriptor->name, bytes.bytes);
    *(ProtobufCMessage **)ret_message = message;
    return ERR_OK;
}

void *pb_new_list(size_t count, size_t bytes, struct arena *arena)
{
    void **pointers = arena_take(arena, count * sizeof *pointers);
    char *messages = arena_take(arena, count * bytes);
    if (pointers == NULL || messages == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++)
        pointers[i] = messages + i * bytes;
    return pointers;
}

enum err pb_too_large(uint64_t value, uint64_t max, struct pb_label label, struct reason *reason)
{
    return reason_set(reason, ERR_MALFORMED, "%s%s is %" PRIu64 ", at most %" PRIu64 " is allowed",
                      label.prefix, label.field, value, max);
}

enum err pb_choice(int value, int min, int max, struct pb_label label, struct reason *reason)
{
    if (value < min || value > max)
        return reason_set(reason, ERR_MALFORMED, "%s%s %d is unknown", label.prefix, label.field,
                          value);
    return ERR_OK;
}

enum err pb_finite(float value, const char *label, struct reason *reason)
{
    return __builtin_isfinite(value) ? ERR_OK
                                     : reason_set(reason, ERR_MALFORMED, "%s is not finite", label);
}

enum err pb_code(uint32_t value, struct pb_label label, enum err *ret_code, struct reason *reason)
{
    TRY(pb_range(value, ERR_COUNT - 1, label, reason));
    *ret_code = err_from_wire(value);
    return ERR_OK;
}

/* The bytes of the character that begins `text`, if it is allowed; 0: it is not. */
static size_t allowed_length(struct slice text, struct pb_words words)
{
    char c = (char)text.data[0];
    if (c == '\n' || c == '\t')
        return words.lines ? 1 : 0;
    return strchr(words.without, c) == NULL ? utf8_plain_length(text) : 0;
}

/* How many bytes of the text come before a character that is not allowed. */
static size_t allowed_bytes(const char *text, size_t bytes, struct pb_words words)
{
    size_t at = 0, length = 1;
    for (; at < bytes && length > 0; at += length)
        length = allowed_length((struct slice){(const uint8_t *)text + at, bytes - at}, words);
    return at;
}

enum err pb_text(const char *text, size_t bytes_max, struct pb_words words, struct pb_label label,
                 const char **ret_text, struct reason *reason)
{
    size_t bytes = strlen(text);
    if (bytes > bytes_max)
        return reason_set(reason, ERR_MALFORMED, "%s%s has %zu bytes, at most %zu are allowed",
                          label.prefix, label.field, bytes, bytes_max);
    size_t allowed = allowed_bytes(text, bytes, words);
    if (allowed < bytes)
        return reason_set(reason, ERR_MALFORMED,
                          "%s%s has a character at byte %zu that is not allowed", label.prefix,
                          label.field, allowed);
    *ret_text = text;
    return ERR_OK;
}

/* `ret_said` has bytes_max + 1. */
static void replace_others(const char *text, size_t bytes, size_t bytes_max, struct pb_words words,
                           char *ret_said)
{
    size_t said = 0;
    for (size_t at = 0; at < bytes;) {
        size_t length =
            allowed_length((struct slice){(const uint8_t *)text + at, bytes - at}, words);
        size_t whole = length > 0 ? length : 1;
        if (said + whole > bytes_max)
            break;
        memcpy(ret_said + said, length > 0 ? text + at : "?", whole);
        said += whole;
        at += whole;
    }
    ret_said[said] = 0;
}

char *pb_said(const char *text, size_t bytes_max, struct pb_words words, struct arena *arena)
{
    char *plain = pb_string(text);
    size_t bytes = strlen(plain);
    if (bytes <= bytes_max && allowed_bytes(plain, bytes, words) == bytes)
        return plain;
    size_t room = bytes < bytes_max ? bytes : bytes_max;
    char *said = arena_take(arena, room + 1);
    if (said != NULL)
        replace_others(plain, bytes, room, words, said);
    return said;
}

enum err pb_name(const char *text, struct pb_words words, struct pb_label label, char *ret_name,
                 size_t ret_bytes, struct reason *reason)
{
    const char *checked;
    TRY(pb_text(text, ret_bytes - 1, words, label, &checked, reason));
    memcpy(ret_name, checked, strlen(checked) + 1);
    return ERR_OK;
}

/* All of `bytes`, or zeros for an empty field. */
static enum err get_whole(const ProtobufCBinaryData *data, struct pb_label label, void *ret_data,
                          size_t bytes, struct reason *reason)
{
    if (data->len != 0 && data->len != bytes)
        return reason_set(reason, ERR_MALFORMED, "%s%s has %zu bytes, not %zu", label.prefix,
                          label.field, data->len, bytes);
    memset(ret_data, 0, bytes);
    if (data->len != 0)
        memcpy(ret_data, data->data, bytes);
    return ERR_OK;
}

enum err pb_digest(const ProtobufCBinaryData *data, struct pb_label label,
                   uint8_t ret_digest[static WIRE_DIGEST_BYTES], struct reason *reason)
{
    return get_whole(data, label, ret_digest, WIRE_DIGEST_BYTES, reason);
}

enum err pb_proof(const ProtobufCBinaryData *data, struct pb_label label, struct proof *ret_proof,
                  struct reason *reason)
{
    return get_whole(data, label, ret_proof->bytes, sizeof ret_proof->bytes, reason);
}

enum err pb_chunks(const uint32_t *chunks, size_t count, struct reason *reason)
{
    for (size_t i = 0; i < count; i++)
        TRY(pb_range(chunks[i], WIRE_CHUNKS_MAX - 1, (struct pb_label){"", "chunk"}, reason));
    return ERR_OK;
}

enum err pb_there(const void *message, const char *field, struct reason *reason)
{
    return message != NULL ? ERR_OK : reason_set(reason, ERR_MALFORMED, "%s is missing", field);
}
