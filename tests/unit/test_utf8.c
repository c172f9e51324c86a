/* UTF-8: every character goes both ways, and nothing else is one. */
#include "tests/unit/unit.h"

#include "common/utf8.h"

#include <string.h>

TEST(every_character_goes_both_ways)
{
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        if (code >= 0xD800 && code <= 0xDFFF)
            continue;
        uint8_t bytes[4];
        size_t length = utf8_encode(code, bytes);
        if (utf8_length((struct slice){bytes, length}) != length ||
            utf8_length((struct slice){bytes, length - 1}) != 0)
            fail_msg("U+%04X", code);
    }
}

TEST(the_encoding_is_the_published_one)
{
    uint8_t bytes[4];
    assert_int_equal(utf8_encode(0x24, bytes), 1);
    assert_memory_equal(bytes, "$", 1);
    assert_int_equal(utf8_encode(0xA3, bytes), 2);
    assert_memory_equal(bytes, "\xC2\xA3", 2);
    assert_int_equal(utf8_encode(0x20AC, bytes), 3);
    assert_memory_equal(bytes, "\xE2\x82\xAC", 3);
    assert_int_equal(utf8_encode(0x10348, bytes), 4);
    assert_memory_equal(bytes, "\xF0\x90\x8D\x88", 4);
}

TEST(what_is_not_utf8_is_refused)
{
    static const char *const wrong[] = {
        "\x80",             /* no first byte */
        "\xBF",             /* */
        "\xC0\x80",         /* longer than needed */
        "\xC1\xBF",         /* */
        "\xE0\x9F\xBF",     /* */
        "\xF0\x8F\xBF\xBF", /* */
        "\xED\xA0\x80",     /* a surrogate */
        "\xED\xBF\xBF",     /* */
        "\xF4\x90\x80\x80", /* above U+10FFFF */
        "\xF5\x80\x80\x80", /* */
        "\xFF",             /* */
        "\xC3",             /* cut */
        "\xE2\x82",         /* */
        "\xE2\x28\xA1",     /* the second byte is none */
        "\xE2\x82\x28",     /* the third */
        "\xF0\x90\x8D\x41", /* the fourth */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(utf8_length((struct slice){(const uint8_t *)wrong[i], strlen(wrong[i])}),
                         0);
    assert_int_equal(utf8_length((struct slice){NULL, 0}), 0);
}
