/* The pull parser: texts, numbers, arrays, objects, and where each goes wrong. */
#include "tests/unit/unit.h"

#include "common/files/json_pull.h"

static struct json_pull start(const char *words, struct reason *reason)
{
    struct json_pull pull;
    assert_int_equal(json_pull_init(&pull, "f", slice_of(words), 0, reason), ERR_OK);
    return pull;
}

static void assert_text(const char *json, const char *expected)
{
    struct reason reason;
    scoped(json_pull_release) struct json_pull pull = start(json, &reason);
    const char *text = NULL;
    enum err err = json_pull_text(&pull, &text);
    if (expected == NULL) {
        assert_int_equal(err, ERR_MALFORMED);
        assert_memory_equal(reason.text, "f: offset ", 10);
        return;
    }
    assert_int_equal(err, ERR_OK);
    assert_string_equal(text, expected);
    assert_int_equal(json_pull_end(&pull), ERR_OK);
}

TEST(texts_are_unescaped)
{
    assert_text("\"\"", "");
    assert_text(" \t\r\n\"a b\" ", "a b");
    assert_text("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t");
    assert_text("\"\\u0041\\u00e4\\u20AC\"", "A\xc3\xa4\xe2\x82\xac");
    assert_text("\"\\ud800\\udf48\"", "\xf0\x90\x8d\x88");
    assert_text("\"\xf0\x90\x8d\x88\"", "\xf0\x90\x8d\x88");
}

TEST(texts_that_are_none_are_refused)
{
    static const char *const wrong[] = {
        "",
        "a",
        "\"a",
        "\"\\x\"",
        "\"\\\"",
        "\"a\nb\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\u",
        "\"\\u0000\"",
        "\"\\udc00\"",
        "\"\\ud800\"",
        "\"\\ud800x\"",
        "\"\xff\"",
        "\"\\ud800\\u0041\"",
        "\"\xc3\"",
        "\"\\ud800\\ue000\"",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_text(wrong[i], NULL);
}

TEST(numbers_are_whole_and_fit_64_bits)
{
    static const struct {
        const char *json;
        uint64_t value;
    } rows[] = {{"[0]", 0}, {"[ 7 ]", 7}, {"[18446744073709551615]", UINT64_MAX}};
    struct reason reason;
    uint64_t value = 0;
    unsigned count;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        scoped(json_pull_release) struct json_pull pull = start(rows[i].json, &reason);
        assert_int_equal(json_pull_uints(&pull, 1, &value, &count), ERR_OK);
        assert_true(value == rows[i].value);
        assert_int_equal(json_pull_end(&pull), ERR_OK);
    }
    static const char *const wrong[] = {"[-1]",
                                        "[+1]",
                                        "[01]",
                                        "[00]",
                                        "[18446744073709551616]",
                                        "[99999999999999999999]",
                                        "[\"]",
                                        "[1e3]",
                                        "[1.0]",
                                        "[",
                                        "7"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        scoped(json_pull_release) struct json_pull pull = start(wrong[i], &reason);
        assert_int_equal(json_pull_uints(&pull, 1, &value, &count), ERR_MALFORMED);
    }
}

TEST(arrays_hold_up_to_so_many_numbers)
{
    struct reason reason;
    uint64_t values[3];
    unsigned count = 9;
    scoped(json_pull_release) struct json_pull three = start("[1, 2,3 ]", &reason);
    assert_int_equal(json_pull_uints(&three, 3, values, &count), ERR_OK);
    assert_int_equal(count, 3);
    assert_int_equal(values[2], 3);
    scoped(json_pull_release) struct json_pull none = start("[ ]", &reason);
    assert_int_equal(json_pull_uints(&none, 0, values, &count), ERR_OK);
    assert_int_equal(count, 0);
    static const char *const wrong[] = {"[1,2,3,4]", "[1,]", "[,1]", "[1 2]", "[1", "1", "[[1]]"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        scoped(json_pull_release) struct json_pull pull = start(wrong[i], &reason);
        assert_int_equal(json_pull_uints(&pull, 3, values, &count), ERR_MALFORMED);
    }
}

static enum err add_member(struct json_pull *pull, const char *key, void *context)
{
    uint64_t value = 0;
    unsigned count;
    if (strcmp(key, "inner") == 0)
        return json_pull_members(pull, add_member, context);
    TRY(json_pull_uints(pull, 1, &value, &count));
    *(uint64_t *)context += value;
    return ERR_OK;
}

TEST(objects_hand_out_their_members)
{
    struct reason reason;
    uint64_t sum = 0;
    scoped(json_pull_release) struct json_pull pull =
        start("{\"a\":[1], \"inner\" : {\"b\":[20]} ,\"e\":{}}", &reason);
    assert_int_equal(json_pull_members(&pull, add_member, &sum), ERR_MALFORMED);
    assert_int_equal(sum, 21);
    static const char *const wrong[] = {
        "{", "{\"a\"}", "{\"a\":[1],}", "{a:[1]}", "{\"a\":[1] \"b\":[2]}", "[]", "{\"a\":[1]]"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        scoped(json_pull_release) struct json_pull p = start(wrong[i], &reason);
        assert_int_equal(json_pull_members(&p, add_member, &sum), ERR_MALFORMED);
    }
    scoped(json_pull_release) struct json_pull empty = start("{ } x", &reason);
    assert_int_equal(json_pull_members(&empty, add_member, &sum), ERR_OK);
    assert_int_equal(json_pull_end(&empty), ERR_MALFORMED);
}
