/* UTF-8: every character goes both ways, and nothing else is one. */
#include "tests/unit/unit.h"

#include "common/utf8.h"

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

TEST(a_character_that_could_move_or_turn_a_line_is_not_plain)
{
    static const char *const wrong[] = {
        "\n",           "\x1b[2J", "\x7f", /* C0 and DEL */
        "\xC2\x9B",                        /* C1: U+009B begins a sequence as ESC [ does */
        "\xD8\x9C",                        /* U+061C */
        "\xE2\x80\x8E",                    /* U+200E */
        "\xE2\x80\xA8",                    /* U+2028 */
        "\xE2\x80\xAE",                    /* U+202E */
        "\xE2\x81\xA6",                    /* U+2066 */
        "\xED\xA0\x80", "\xFF",            /* no UTF-8 */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(utf8_plain_length(slice_of(wrong[i])), 0);
    assert_int_equal(utf8_plain_length(slice_of("a")), 1);
    assert_int_equal(utf8_plain_length(slice_of("\xC3\xA9")), 2);
    assert_int_equal(utf8_plain_length(slice_of("\xE2\x82\xAC")), 3);
    assert_int_equal(utf8_plain_length(slice_of("\xF0\x9F\x90\x94")), 4);
}

TEST(a_word_has_nothing_that_a_log_line_quotes)
{
    assert_true(utf8_is_word("gpu-7.rack\xC3\xA4"));
    static const char *const wrong[] = {"", "two words", "a=b", "\"", "back\\slash", "w\n", "\xC3"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(utf8_is_word(wrong[i]));
}

TEST(what_may_not_be_shown_becomes_question_marks)
{
    char text[] = "a\nb\x1B[2J \xC3\xA9 \xE2\x80\xAE \xC2\x9B \xFF \xE2\x82\xAC\xC3";
    utf8_make_plain(text);
    assert_string_equal(text, "a?b?[2J \xC3\xA9 ??? ?? ? \xE2\x82\xAC?");
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
