/* The table of well-formed byte sequences (Unicode standard, table 3-7). */
#include "common/utf8.h"

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
