/* See json_pull.h. */
#include "common/files/json_pull.h"

#include "common/utf8.h"

#include <stdbool.h>
#include <string.h>

enum err json_pull_init(struct json_pull *pull, const char *name, struct slice text, size_t at,
                        struct reason *reason)
{
    check(at <= text.bytes);
    /* Unescaping never makes a string longer, and its quotes leave room for the 0. */
    char *texts = malloc(text.bytes - at + 1);
    if (texts == NULL)
        return reason_set(reason, ERR_NOMEM, "%s: no memory to parse it", name);
    *pull =
        (struct json_pull){.name = name, .text = text, .at = at, .texts = texts, .reason = reason};
    return ERR_OK;
}

void json_pull_release(struct json_pull *pull)
{
    free(pull->texts);
}

char *json_pull_detach_texts(struct json_pull *pull)
{
    char *texts = pull->texts;
    pull->texts = NULL;
    return texts;
}

enum err json_pull_fail(const struct json_pull *pull, size_t offset, const char *what)
{
    return reason_set(pull->reason, ERR_MALFORMED, "%s: offset %zu: %s", pull->name, offset, what);
}

static enum err malformed(const struct json_pull *pull, const char *what)
{
    return json_pull_fail(pull, pull->at, what);
}

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* The next byte that is no space; 0 at the header's end. */
static uint8_t peek(struct json_pull *pull)
{
    while (pull->at < pull->text.bytes && is_space(pull->text.data[pull->at]))
        pull->at++;
    return pull->at < pull->text.bytes ? pull->text.data[pull->at] : 0;
}

static enum err expect(struct json_pull *pull, char c)
{
    if (peek(pull) != (uint8_t)c) {
        char what[] = "'?' is missing";
        what[1] = c;
        return malformed(pull, what);
    }
    pull->at++;
    return ERR_OK;
}

static enum err parse_hex4(struct json_pull *pull, uint32_t *ret_code)
{
    uint32_t code = 0;
    for (int i = 0; i < 4; i++, pull->at++) {
        uint8_t c = pull->at < pull->text.bytes ? pull->text.data[pull->at] : 0;
        if (c >= '0' && c <= '9')
            code = code << 4 | (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            code = code << 4 | (uint32_t)((c | 32) - 'a' + 10);
        else
            return malformed(pull, "four hexadecimal digits are missing");
    }
    *ret_code = code;
    return ERR_OK;
}

/* What follows \u; a character above U+FFFF is written as two surrogates. */
static enum err parse_unicode(struct json_pull *pull)
{
    uint32_t code = 0, low = 0;
    TRY(parse_hex4(pull, &code));
    if (code >= 0xD800 && code <= 0xDBFF) {
        if (pull->text.bytes - pull->at < 2 || memcmp(pull->text.data + pull->at, "\\u", 2) != 0)
            return malformed(pull, "half a surrogate pair");
        pull->at += 2;
        TRY(parse_hex4(pull, &low));
        if (low < 0xDC00 || low > 0xDFFF)
            return malformed(pull, "half a surrogate pair");
        code = 0x10000 + ((code & 0x3FF) << 10) + (low & 0x3FF);
    } else if (code == 0 || (code >= 0xDC00 && code <= 0xDFFF)) {
        return malformed(pull, "no character");
    }
    pull->texts_bytes += utf8_encode(code, (uint8_t *)pull->texts + pull->texts_bytes);
    return ERR_OK;
}

static enum err parse_escape(struct json_pull *pull)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    uint8_t c = pull->at < pull->text.bytes ? pull->text.data[pull->at] : 0;
    if (c == 'u') {
        pull->at++;
        return parse_unicode(pull);
    }
    const char *place = c == 0 ? NULL : strchr(from, c);
    if (place == NULL)
        return malformed(pull, "no such escape");
    pull->at++;
    pull->texts[pull->texts_bytes++] = to[place - from];
    return ERR_OK;
}

/* A string's content in pull->texts, which has room: unescaping never makes it longer. */
enum err json_pull_text(struct json_pull *pull, const char **ret_text)
{
    TRY(expect(pull, '"'));
    const char *text = pull->texts + pull->texts_bytes;
    for (;;) {
        uint8_t c = pull->at < pull->text.bytes ? pull->text.data[pull->at] : 0;
        if (c < ' ')
            return malformed(pull, "a string is not closed");
        if (c == '"')
            break;
        if (c == '\\') {
            pull->at++;
            TRY(parse_escape(pull));
            continue;
        }
        size_t length =
            utf8_length((struct slice){pull->text.data + pull->at, pull->text.bytes - pull->at});
        if (length == 0)
            return malformed(pull, "not UTF-8");
        memcpy(pull->texts + pull->texts_bytes, pull->text.data + pull->at, length);
        pull->texts_bytes += length;
        pull->at += length;
    }
    pull->at++;
    pull->texts[pull->texts_bytes++] = 0;
    *ret_text = text;
    return ERR_OK;
}

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static enum err pull_uint(struct json_pull *pull, uint64_t *ret_value)
{
    if (!is_digit(peek(pull)))
        return malformed(pull, "a whole number is missing");
    uint64_t value = 0;
    size_t begin = pull->at;
    for (; pull->at < pull->text.bytes && is_digit(pull->text.data[pull->at]); pull->at++)
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(pull->text.data[pull->at] - '0'), &value))
            return json_pull_fail(pull, begin, "a number above 2^64");
    if (pull->text.data[begin] == '0' && pull->at - begin > 1)
        return json_pull_fail(pull, begin, "a number with a 0 before it");
    *ret_value = value;
    return ERR_OK;
}

/* [u, u, …], at most `max`. */
enum err json_pull_uints(struct json_pull *pull, unsigned max, uint64_t *ret_values,
                         unsigned *ret_count)
{
    unsigned count = 0;
    TRY(expect(pull, '['));
    if (peek(pull) != ']')
        for (;;) {
            if (count == max)
                return malformed(pull, "too many numbers");
            TRY(pull_uint(pull, &ret_values[count++]));
            if (peek(pull) != ',')
                break;
            pull->at++;
        }
    TRY(expect(pull, ']'));
    *ret_count = count;
    return ERR_OK;
}

/* {"key": value, …}; `member` parses each value. */
enum err json_pull_members(struct json_pull *pull, json_pull_member *member, void *context)
{
    TRY(expect(pull, '{'));
    if (peek(pull) != '}')
        for (;;) {
            const char *key = NULL;
            TRY(json_pull_text(pull, &key));
            TRY(expect(pull, ':'));
            TRY(member(pull, key, context));
            if (peek(pull) != ',')
                break;
            pull->at++;
        }
    return expect(pull, '}');
}

enum err json_pull_end(struct json_pull *pull)
{
    peek(pull);
    return pull->at == pull->text.bytes ? ERR_OK : malformed(pull, "something follows the end");
}
