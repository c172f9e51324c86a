/* JSON, read with limits and written exactly. */
#include "tests/unit/unit.h"

#include "common/files/json.h"

#include <float.h>

TEST(members_come_out_by_type)
{
    scoped(json_free_scoped) struct json *json = NULL;
    struct reason reason;
    assert_int_equal(json_parse("f",
                                slice_of("{\"u\": 7, \"r\": 2.5, \"b\": true, \"t\": \"\\u00e4\", "
                                         "\"a\": [1, {\"y\": 2}]}"),
                                &json, &reason),
                     ERR_OK);
    uint64_t number;
    double real;
    bool yes;
    const char *words;
    const struct json *inner;
    assert_int_equal(json_get_uint(json, "u", &number, &reason), ERR_OK);
    assert_int_equal(number, 7);
    assert_int_equal(json_get_real(json, "r", &real, &reason), ERR_OK);
    assert_true(real == 2.5);
    assert_int_equal(json_get_real(json, "u", &real, &reason), ERR_OK);
    assert_true(real == 7);
    assert_int_equal(json_get_bool(json, "b", &yes, &reason), ERR_OK);
    assert_true(yes);
    assert_int_equal(json_get_text(json, "t", &words, &reason), ERR_OK);
    assert_string_equal(words, "\xc3\xa4");
    assert_int_equal(json_get_array(json, "a", &inner, &reason), ERR_OK);
    assert_int_equal(json_count(inner), 2);
    assert_int_equal(json_get_uint(json_at(inner, 1), "y", &number, &reason), ERR_OK);
    assert_int_equal(number, 2);
    assert_int_equal(json_get_uint(json_at(inner, 0), "y", &number, &reason), ERR_MALFORMED);
    assert_true(json_has(json, "u"));
    assert_false(json_has(json, "v"));
}

TEST(a_member_may_be_null_or_an_object)
{
    scoped(json_free_scoped) struct json *json = NULL;
    uint64_t number;
    assert_int_equal(
        json_parse("f", slice_of("{\"n\": null, \"o\": {\"x\": 3}, \"u\": 7}"), &json, NULL),
        ERR_OK);
    assert_true(json_lacks(json, "n") && json_lacks(json, "none"));
    assert_false(json_lacks(json, "u") || json_lacks(json, "o"));
    assert_null(json_object_of(json, "n"));
    assert_null(json_object_of(json, "none"));
    assert_null(json_object_of(json, "u"));
    const struct json *inner = json_object_of(json, "o");
    assert_int_equal(json_get_uint(inner, "x", &number, NULL), ERR_OK);
    assert_int_equal(number, 3);
}

TEST(a_member_of_another_type_is_named)
{
    scoped(json_free_scoped) struct json *json = NULL;
    struct reason reason;
    uint64_t number;
    double real;
    bool yes;
    const char *words;
    const struct json *inner;
    assert_int_equal(
        json_parse("f", slice_of("{\"t\": \"x\", \"n\": -1, \"f\": 1.0}"), &json, &reason), ERR_OK);
    assert_int_equal(json_get_uint(json, "none", &number, &reason), ERR_MALFORMED);
    assert_int_equal(json_get_uint(json, "n", &number, &reason), ERR_MALFORMED);
    assert_int_equal(json_get_uint(json, "f", &number, &reason), ERR_MALFORMED);
    assert_int_equal(json_get_real(json, "t", &real, &reason), ERR_MALFORMED);
    assert_int_equal(json_get_bool(json, "t", &yes, &reason), ERR_MALFORMED);
    assert_int_equal(json_get_text(json, "n", &words, &reason), ERR_MALFORMED);
    assert_int_equal(json_get_array(json, "t", &inner, &reason), ERR_MALFORMED);
}

TEST(what_is_not_json_is_refused_with_its_place)
{
    static const char *const wrong[] = {
        "",        "{",           "{\"a\": 1}}",       "{\"a\": 1, \"a\": 2}",        "[1,]",
        "{'a':1}", "\"\\ud800\"", "\"\xff\"",          "99999999999999999999",        "[1 2]",
        "nul",     "\"a\nb\"",    "{\"a\\u0000b\":1}", "\"text with \\u0000 in it\"",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct json *json = NULL;
        struct reason reason;
        assert_int_equal(json_parse("steps.jsonl", slice_of(wrong[i]), &json, &reason),
                         ERR_MALFORMED);
        assert_null(json);
        assert_memory_equal(reason.text, "steps.jsonl:", 12);
    }
    struct json *json = NULL;
    struct reason reason;
    assert_int_equal(json_parse("f", slice_of("{\n  \"a\": ?}"), &json, &reason), ERR_MALFORMED);
    assert_memory_equal(reason.text, "f:2:", 4);
}

TEST(deep_nesting_is_refused_not_followed)
{
    static char deep[100001];
    memset(deep, '[', sizeof deep - 1);
    struct json *json = NULL;
    assert_int_equal(json_parse("f", slice_of(deep), &json, NULL), ERR_MALFORMED);
}

TEST(values_are_written_in_their_order)
{
    scoped(buf_release) struct buf out = {0};
    struct json_writer w = json_writer(&out);
    json_put_object(&w);
    json_put_key(&w, "z");
    json_put_uint(&w, UINT64_MAX);
    json_put_key(&w, "a");
    json_put_array(&w);
    json_put_bool(&w, true);
    json_put_bool(&w, false);
    json_put_object(&w);
    json_put_end(&w);
    json_put_array(&w);
    json_put_end(&w);
    json_put_end(&w);
    json_put_key(&w, "t");
    json_put_text(&w, "x");
    json_put_end(&w);
    assert_int_equal(json_writer_finish(&w), ERR_OK);
    assert_int_equal(buf_append(&out, "", 1), ERR_OK);
    assert_string_equal((const char *)out.data,
                        "{\"z\":18446744073709551615,\"a\":[true,false,{},[]],"
                        "\"t\":\"x\"}");
}

static void assert_written_text(const char *words, const char *expected)
{
    scoped(buf_release) struct buf out = {0};
    struct json_writer w = json_writer(&out);
    json_put_text(&w, words);
    assert_int_equal(json_writer_finish(&w), ERR_OK);
    assert_int_equal(buf_append(&out, "", 1), ERR_OK);
    assert_string_equal((const char *)out.data, expected);
}

TEST(texts_are_escaped)
{
    assert_written_text("", "\"\"");
    assert_written_text("say \"no\" \\", "\"say \\\"no\\\" \\\\\"");
    assert_written_text("a\nb\tc\x01", "\"a\\nb\\u0009c\\u0001\"");
    assert_written_text("\xc3\xa4\xf0\x90\x8d\x88", "\"\xc3\xa4\xf0\x90\x8d\x88\"");
    assert_written_text("\xff\xc3", "\"\xef\xbf\xbd\xef\xbf\xbd\"");
}

static void assert_written_real(double value, const char *expected)
{
    scoped(buf_release) struct buf out = {0};
    struct json_writer w = json_writer(&out);
    json_put_real(&w, value);
    assert_int_equal(json_writer_finish(&w), ERR_OK);
    assert_int_equal(buf_append(&out, "", 1), ERR_OK);
    assert_string_equal((const char *)out.data, expected);
}

TEST(doubles_are_written_with_as_few_digits_as_bring_them_back)
{
    assert_written_real(0, "0");
    assert_written_real(0.1, "0.1");
    assert_written_real(-2.5, "-2.5");
    assert_written_real(0.1 + 0.2, "0.30000000000000004");
    assert_written_real(1e22, "1e+22");
    assert_written_real(123456789, "123456789");
    assert_written_real(DBL_MAX, "1.7976931348623157e+308");
    assert_written_real(0x1p-1074, "5e-324");
    assert_written_real(__builtin_inf(), "null");
    assert_written_real(-__builtin_nan(""), "null");
}

TEST(what_is_written_is_read_back)
{
    scoped(buf_release) struct buf out = {0};
    struct json_writer w = json_writer(&out);
    char words[256];
    for (int i = 1; i < 128; i++)
        words[i - 1] = (char)i;
    words[127] = 0;
    json_put_object(&w);
    json_put_key(&w, words);
    json_put_text(&w, words);
    json_put_key(&w, "third");
    json_put_real(&w, 1.0 / 3);
    json_put_end(&w);
    assert_int_equal(json_writer_finish(&w), ERR_OK);
    scoped(json_free_scoped) struct json *json = NULL;
    const char *back;
    double third;
    assert_int_equal(json_parse("f", buf_slice(&out), &json, NULL), ERR_OK);
    assert_int_equal(json_get_text(json, words, &back, NULL), ERR_OK);
    assert_string_equal(back, words);
    assert_int_equal(json_get_real(json, "third", &third, NULL), ERR_OK);
    assert_true(third == 1.0 / 3);
}

TEST(a_full_buffer_is_said_at_the_end)
{
    scoped(buf_release) struct buf out = {.bytes_max = 5};
    struct json_writer w = json_writer(&out);
    json_put_array(&w);
    json_put_text(&w, "\x01"); /* six bytes, and then two that would fit */
    json_put_end(&w);
    assert_int_equal(json_writer_finish(&w), ERR_BUSY);
}
