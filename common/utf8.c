/* The table of well-formed byte sequences (Unicode standard, table 3-7). */
#include "common/utf8.h"

#include "common/check.h"

#include <string.h>

/* A first byte in [first, last], then a second in [low, high], then others in [0x80, 0xBF]. */
static const struct {
    uint8_t first, last, low, high, length;
} rows[] = {
    {0x00, 0x7F, 0x00, 0x00, 1}, {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
    {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
    {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
};

size_t utf8_length(struct slice text)
{
    if (text.bytes == 0)
        return 0;
    const uint8_t *c = text.data;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (c[0] < rows[i].first || c[0] > rows[i].last)
            continue;
        if (rows[i].length > text.bytes)
            return 0;
        if (rows[i].length > 1 && (c[1] < rows[i].low || c[1] > rows[i].high))
            return 0;
        for (size_t k = 2; k < rows[i].length; k++)
            if ((c[k] & 0xC0) != 0x80)
                return 0;
        return rows[i].length;
    }
    return 0;
}

static uint32_t decode(const uint8_t *character, size_t length)
{
    static const uint8_t first_bits[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t code = character[0] & first_bits[length];
    for (size_t i = 1; i < length; i++)
        code = code << 6 | (character[i] & 0x3F);
    return code;
}

static bool is_plain(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } others[] = {{0x00, 0x1F},     {0x7F, 0x9F},     {0x061C, 0x061C},
                  {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x2069}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (code >= others[i].first && code <= others[i].last)
            return false;
    return true;
}

size_t utf8_plain_length(struct slice text)
{
    size_t length = utf8_length(text);
    return length > 0 && is_plain(decode(text.data, length)) ? length : 0;
}

void utf8_make_plain(char *text)
{
    size_t bytes = strlen(text);
    for (size_t at = 0; at < bytes;) {
        size_t length = utf8_plain_length((struct slice){(const uint8_t *)text + at, bytes - at});
        if (length == 0)
            text[at] = '?';
        at += length > 0 ? length : 1;
    }
}

bool utf8_is_word(const char *text)
{
    size_t bytes = strlen(text), at = 0, length = 1;
    for (; at < bytes && length > 0; at += length)
        length = strchr("\"\\ =", text[at]) == NULL
                     ? utf8_plain_length((struct slice){(const uint8_t *)text + at, bytes - at})
                     : 0;
    return bytes > 0 && length > 0;
}

size_t utf8_encode(uint32_t code, uint8_t ret_bytes[static 4])
{
    check(code <= 0x10FFFF);
    check(code < 0xD800 || code > 0xDFFF);
    if (code < 0x80) {
        ret_bytes[0] = (uint8_t)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, code >>= 6)
        ret_bytes[i] = (uint8_t)(0x80 | (code & 0x3F));
    static const uint8_t marks[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    ret_bytes[0] = (uint8_t)(marks[length] | code);
    return length;
}
