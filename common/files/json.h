/* JSON: a reader with limits and places in its errors, and a writer into a buf. */
#ifndef ROOST_COMMON_FILES_JSON_H
#define ROOST_COMMON_FILES_JSON_H

#include "common/buf.h"
#include "common/scoped.h"

#include <stdbool.h>

/* A value read; values inside it are borrowed from the outermost one. Duplicate keys are refused.
 */
struct json;

/* `name` (a file's) begins the reason: "NAME:LINE:COLUMN: …". ERR_MALFORMED. */
enum err json_parse(const char *name, struct slice bytes, struct json **ret_json,
                    struct reason *reason) MUST_USE;
void json_free(struct json *json); /* of a parse only; NULL is fine */
SCOPED_FREE(struct json, json_free)

/* The member `key` of an object, of that type. ERR_MALFORMED: missing, of another type, or out of
 * range; the reason names the key. Texts and values are borrowed. */
enum err json_get_uint(const struct json *object, const char *key, uint64_t *ret_value,
                       struct reason *reason) MUST_USE; /* 0 … 2^63 - 1 */
enum err json_get_real(const struct json *object, const char *key, double *ret_value,
                       struct reason *reason) MUST_USE; /* integers too */
enum err json_get_bool(const struct json *object, const char *key, bool *ret_value,
                       struct reason *reason) MUST_USE;
enum err json_get_text(const struct json *object, const char *key, const char **ret_value,
                       struct reason *reason) MUST_USE; /* without 0 bytes inside */
enum err json_get_array(const struct json *object, const char *key, const struct json **ret_value,
                        struct reason *reason) MUST_USE;
bool json_has(const struct json *object, const char *key);
bool json_lacks(const struct json *object, const char *key); /* it is missing, or null */
/* NULL: the member is missing, or no object. */
const struct json *json_object_of(const struct json *object, const char *key);
/* An array's elements. An element that is no object has no members: getters refuse it. */
size_t json_count(const struct json *array);
const struct json *json_at(const struct json *array, size_t index); /* index < count */
const char *json_text(const struct json *value);                    /* NULL: it is no text */

/* Writes one value into `out`. Errors stick: look once, at json_writer_finish().
 *     json_put_object(&w); json_put_key(&w, "step"); json_put_uint(&w, 7); json_put_end(&w); */
#define JSON_DEPTH_MAX 16
struct json_writer {
    struct buf *out;
    enum err err;
    unsigned depth;
    bool keyed;                  /* a key waits for its value */
    bool filled[JSON_DEPTH_MAX]; /* that level has a member */
    char close[JSON_DEPTH_MAX];
};
static inline struct json_writer json_writer(struct buf *out)
{
    return (struct json_writer){.out = out};
}
void json_put_object(struct json_writer *writer);
void json_put_array(struct json_writer *writer);
void json_put_end(struct json_writer *writer); /* of the innermost object or array */
void json_put_key(struct json_writer *writer, const char *key);
void json_put_text(struct json_writer *writer,
                   const char *text); /* bytes that are no UTF-8: U+FFFD */
void json_put_uint(struct json_writer *writer, uint64_t value);
/* The shortest digits that read back as the same double; null when not finite. */
void json_put_real(struct json_writer *writer, double value);
void json_put_bool(struct json_writer *writer, bool value);
/* A member of the innermost object: the key and the value. */
void json_member_uint(struct json_writer *writer, const char *key, uint64_t value);
void json_member_real(struct json_writer *writer, const char *key, double value); /* NAN: null */
void json_member_text(struct json_writer *writer, const char *key, const char *value);
void json_member_bool(struct json_writer *writer, const char *key, bool value);
/* As 16 hexadecimal digits: readers that take numbers for doubles would round it. */
void json_member_hex(struct json_writer *writer, const char *key, uint64_t value);
enum err json_writer_finish(struct json_writer *writer) MUST_USE; /* all ends must be there */

#endif
