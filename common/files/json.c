/* Reading through jansson, which stays in this file; writing by hand, which is shorter. */
#include "common/files/json.h"

#include "common/utf8.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

/* A struct json * is a json_t * with another name. */
static const json_t *inside(const struct json *json)
{
    return (const json_t *)json;
}

enum err json_parse(const char *name, struct slice bytes, struct json **ret_json,
                    struct reason *reason)
{
    json_error_t error;
    json_t *value = json_loadb((const char *)bytes.data, bytes.bytes,
                               JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (value == NULL)
        return reason_set(reason, ERR_MALFORMED, "%s:%d:%d: %s", name, error.line, error.column,
                          error.text);
    *ret_json = (struct json *)value;
    return ERR_OK;
}

void json_free(struct json *json)
{
    json_decref((json_t *)json);
}

typedef bool type_test(const json_t *value);

static bool is_uint(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

static bool is_number(const json_t *value)
{
    return json_is_number(value);
}

static bool is_boolean(const json_t *value)
{
    return json_is_boolean(value);
}

static bool is_text(const json_t *value)
{
    return json_is_string(value);
}

static bool is_array(const json_t *value)
{
    return json_is_array(value);
}

/* The member; NULL, with the reason, when it is missing or of another type. */
static const json_t *member(const struct json *object, const char *key, type_test *is,
                            const char *wanted, struct reason *reason)
{
    const json_t *value = json_object_get(inside(object), key);
    if (value != NULL && is(value))
        return value;
    const char *fault = value == NULL ? "is missing; it must be" : "is not";
    ignore(
        reason_set(reason, ERR_MALFORMED, "\"%s\" %s %s", key, fault, wanted)); /* the caller's */
    return NULL;
}

enum err json_get_uint(const struct json *object, const char *key, uint64_t *ret_value,
                       struct reason *reason)
{
    const json_t *value = member(object, key, is_uint, "a whole number from 0", reason);
    if (value == NULL)
        return ERR_MALFORMED;
    *ret_value = (uint64_t)json_integer_value(value);
    return ERR_OK;
}

enum err json_get_real(const struct json *object, const char *key, double *ret_value,
                       struct reason *reason)
{
    const json_t *value = member(object, key, is_number, "a number", reason);
    if (value == NULL)
        return ERR_MALFORMED;
    *ret_value = json_number_value(value);
    return ERR_OK;
}

enum err json_get_bool(const struct json *object, const char *key, bool *ret_value,
                       struct reason *reason)
{
    const json_t *value = member(object, key, is_boolean, "true or false", reason);
    if (value == NULL)
        return ERR_MALFORMED;
    *ret_value = json_is_true(value);
    return ERR_OK;
}

/* jansson refuses \u0000 by default, so a text holds no 0 byte. */
enum err json_get_text(const struct json *object, const char *key, const char **ret_value,
                       struct reason *reason)
{
    const json_t *value = member(object, key, is_text, "a text", reason);
    if (value == NULL)
        return ERR_MALFORMED;
    *ret_value = json_string_value(value);
    return ERR_OK;
}

enum err json_get_array(const struct json *object, const char *key, const struct json **ret_value,
                        struct reason *reason)
{
    const json_t *value = member(object, key, is_array, "an array", reason);
    if (value == NULL)
        return ERR_MALFORMED;
    *ret_value = (const struct json *)value;
    return ERR_OK;
}

bool json_has(const struct json *object, const char *key)
{
    return json_object_get(inside(object), key) != NULL;
}

bool json_lacks(const struct json *object, const char *key)
{
    const json_t *value = json_object_get(inside(object), key);
    return value == NULL || json_typeof(value) == JSON_NULL;
}

const struct json *json_object_of(const struct json *object, const char *key)
{
    const json_t *value = json_object_get(inside(object), key);
    return json_is_object(value) ? (const struct json *)value : NULL;
}

size_t json_count(const struct json *array)
{
    return json_array_size(inside(array));
}

const struct json *json_at(const struct json *array, size_t index)
{
    check(index < json_count(array));
    return (const struct json *)json_array_get(inside(array), index);
}

const char *json_text(const struct json *value)
{
    return json_string_value((const json_t *)value);
}

static void put(struct json_writer *writer, const void *bytes, size_t count)
{
    if (writer->err == ERR_OK)
        writer->err = buf_append(writer->out, bytes, count);
}

/* The comma before a member or a value, where one belongs. */
static void put_comma(struct json_writer *writer, bool key)
{
    if (writer->keyed) {
        check(!key);
        writer->keyed = false;
        return;
    }
    if (writer->depth == 0)
        return;
    check(key == (writer->close[writer->depth - 1] == '}'));
    if (writer->filled[writer->depth - 1])
        put(writer, ",", 1);
    writer->filled[writer->depth - 1] = true;
}

static void open_level(struct json_writer *writer, const char *open, char close)
{
    put_comma(writer, false);
    check(writer->depth < JSON_DEPTH_MAX);
    put(writer, open, 1);
    writer->filled[writer->depth] = false;
    writer->close[writer->depth++] = close;
}

void json_put_object(struct json_writer *writer)
{
    open_level(writer, "{", '}');
}

void json_put_array(struct json_writer *writer)
{
    open_level(writer, "[", ']');
}

void json_put_end(struct json_writer *writer)
{
    check(writer->depth > 0);
    check(!writer->keyed);
    put(writer, &writer->close[--writer->depth], 1);
}

static void put_character(struct json_writer *writer, const uint8_t *character, size_t length)
{
    char escape[8];
    if (length == 0)
        put(writer, "\xEF\xBF\xBD", 3);
    else if (*character == '"' || *character == '\\')
        put(writer, escape, (size_t)snprintf(escape, sizeof escape, "\\%c", *character));
    else if (*character == '\n')
        put(writer, "\\n", 2);
    else if (*character < ' ')
        put(writer, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", *character));
    else
        put(writer, character, length);
}

static void put_string(struct json_writer *writer, const char *text)
{
    put(writer, "\"", 1);
    struct slice rest = {(const uint8_t *)text, strlen(text)};
    while (rest.bytes > 0) {
        size_t length = utf8_length(rest);
        put_character(writer, rest.data, length);
        length = length == 0 ? 1 : length;
        rest = (struct slice){rest.data + length, rest.bytes - length};
    }
    put(writer, "\"", 1);
}

void json_put_key(struct json_writer *writer, const char *key)
{
    put_comma(writer, true);
    put_string(writer, key);
    put(writer, ":", 1);
    writer->keyed = true;
}

void json_put_text(struct json_writer *writer, const char *text)
{
    put_comma(writer, false);
    put_string(writer, text);
}

void json_put_uint(struct json_writer *writer, uint64_t value)
{
    put_comma(writer, false);
    char digits[24];
    put(writer, digits, (size_t)snprintf(digits, sizeof digits, "%" PRIu64, value));
}

/* 17 digits always suffice; most numbers people write need fewer. */
void json_put_real(struct json_writer *writer, double value)
{
    put_comma(writer, false);
    char digits[32] = "null";
    if (__builtin_isfinite(value))
        for (int precision = 1; precision <= 17; precision++) {
            snprintf(digits, sizeof digits, "%.*g", precision, value);
            if (strtod(digits, NULL) == value)
                break;
        }
    put(writer, digits, strlen(digits));
}

void json_put_bool(struct json_writer *writer, bool value)
{
    put_comma(writer, false);
    put(writer, value ? "true" : "false", value ? 4 : 5);
}

void json_member_uint(struct json_writer *writer, const char *key, uint64_t value)
{
    json_put_key(writer, key);
    json_put_uint(writer, value);
}

void json_member_real(struct json_writer *writer, const char *key, double value)
{
    json_put_key(writer, key);
    json_put_real(writer, value);
}

void json_member_text(struct json_writer *writer, const char *key, const char *value)
{
    json_put_key(writer, key);
    json_put_text(writer, value);
}

void json_member_bool(struct json_writer *writer, const char *key, bool value)
{
    json_put_key(writer, key);
    json_put_bool(writer, value);
}

void json_member_hex(struct json_writer *writer, const char *key, uint64_t value)
{
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)value);
    json_member_text(writer, key, text);
}

enum err json_writer_finish(struct json_writer *writer)
{
    check(writer->depth == 0);
    return writer->err;
}
