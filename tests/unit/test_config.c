/* The table-driven settings: sources, types, limits, places of errors, printing. */
#include "tests/unit/unit.h"

#include "common/settings/config.h"

struct settings {
    uint32_t kind;
    uint32_t wheels;
    double length, weight;
    bool loud;
    char name[12];
    uint32_t seats_count, seats[4];
    double range[2];
    uint64_t id;
    uint32_t deep;
};

static const char *const kinds[] = {"car", "boat", NULL};

#define AT(member) .offset = offsetof(struct settings, member)
static const struct config_field fields[] = {
    {"kind", "what it is", CONFIG_NAME, AT(kind), .names = kinds, .initial = "car"},
    {"body.length", "metres", CONFIG_REAL, AT(length), .real_min = 0.25, .real_max = 9,
     .real_below = true, .initial = "4.5"},
    {"body.wheels", "how many", CONFIG_U32, AT(wheels), .min = 3, .max = 18, .initial = "4",
     .when_path = "kind", .when_mask = 1},
    {"body.weight", "tonnes", CONFIG_REAL, AT(weight), .real_max = 100, .initial = "1",
     .when_path = "kind", .when_mask = 1},
    {"body.weight", "tonnes", CONFIG_REAL, AT(weight), .real_max = 100, .initial = "20",
     .when_path = "kind", .when_mask = 2},
    {"body.loud", "or not", CONFIG_BOOL, AT(loud), .initial = "false"},
    {"name", "painted on", CONFIG_TEXT, AT(name), .min = 1, .max = 11},
    {"seats", "in rows", CONFIG_U32S, AT(seats), .min = 1, .max = 9, .count_min = 1, .count_max = 4,
     .count_offset = offsetof(struct settings, seats_count), .initial = "[2, 3]"},
    {"range", "from, to", CONFIG_REALS, AT(range), .real_max = 1e6, .count_min = 2, .count_max = 2,
     .initial = "[0, 10]"},
    {"id", "unique", CONFIG_U64, AT(id), .max = UINT64_MAX, .initial = "7"},
    {"very.far.down", "nested", CONFIG_U32, AT(deep), .max = 9, .initial = "1"},
};
static const struct config_table table = {fields, sizeof fields / sizeof fields[0],
                                          sizeof(struct settings)};

static enum err parse(const char *text, const struct config_overrides *overrides,
                      struct settings *ret_settings, struct reason *reason)
{
    return config_parse(&table, slice_of(text), "a.yaml", overrides, ret_settings, NULL, reason);
}

static struct settings parsed(const char *text, const struct config_overrides *overrides)
{
    struct settings settings;
    struct reason reason = {{0}};
    if (parse(text, overrides, &settings, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    return settings;
}

static void expect_reason(const char *text, const struct config_overrides *overrides,
                          const char *wanted)
{
    struct settings settings;
    struct reason reason = {{0}};
    assert_int_equal(parse(text, overrides, &settings, &reason), ERR_INVALID);
    assert_string_equal(reason.text, wanted);
}

TEST(an_empty_file_gives_every_default)
{
    static const char *const empty[] = {"", "# nothing\n", "---\n", "body:\n", "body: ~\nvery: {}"};
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        struct settings settings = parsed(empty[i], NULL);
        assert_int_equal(settings.kind, 0);
        assert_int_equal(settings.wheels, 4);
        assert_true(settings.length == 4.5);
        assert_false(settings.loud);
        assert_string_equal(settings.name, "");
        assert_int_equal(settings.seats_count, 2);
        assert_int_equal(settings.seats[1], 3);
        assert_true(settings.range[1] == 10);
        assert_int_equal(settings.id, 7);
        assert_int_equal(settings.deep, 1);
    }
}

TEST(block_and_flow_style_say_the_same)
{
    struct settings block = parsed("body:\n  length: 3.25\n  wheels: 6\nseats:\n- 1\n- 2\n- 3\n"
                                   "name: \"a \\\"b\\\"\"\nvery:\n  far:\n    down: 9\n",
                                   NULL);
    struct settings flow = parsed("{body: {length: 325e-2, wheels: 6}, seats: [1, 2, 3], "
                                  "name: 'a \"b\"', very: {far: {down: 9}}}",
                                  NULL);
    assert_memory_equal(&block, &flow, sizeof block);
    assert_int_equal(block.seats_count, 3);
    assert_string_equal(block.name, "a \"b\"");
}

TEST(a_flag_beats_the_environment_beats_the_file_beats_the_default)
{
    static const char *const flags[] = {"body.wheels=7", "body.wheels=8", "seats=[ 4,5 ]"};
    static const char *const environment[] = {
        "PATH=/bin",        "ROOST_BODY_WHEELS=5", "ROOST_BODY_LENGTH=1.5",
        "ROOST_NAME=a: [b", "ROOST_UNHEARD_OF=1",  NULL};
    struct config_overrides both = {flags, 3, environment};
    struct config_overrides one = {NULL, 0, environment};
    const char *text = "body: {wheels: 6, length: 2, loud: true}";
    struct settings settings = parsed(text, &both);
    assert_int_equal(settings.wheels, 8);
    assert_int_equal(settings.seats[0], 4);
    assert_int_equal(settings.seats[1], 5);
    assert_true(settings.length == 1.5);
    assert_string_equal(settings.name, "a: [b");
    assert_true(settings.loud);
    assert_int_equal(parsed(text, &one).wheels, 5);
    assert_int_equal(parsed(text, NULL).wheels, 6);
}

TEST(a_value_that_does_not_count_is_not_judged)
{
    static const char *const flags[] = {"body.wheels=8"};
    struct config_overrides overrides = {flags, 1, NULL};
    assert_int_equal(parsed("body: {wheels: none}", &overrides).wheels, 8);
}

TEST(a_row_of_another_kind_stays_zero)
{
    struct settings boat = parsed("kind: boat", NULL);
    assert_int_equal(boat.wheels, 0);
    assert_true(boat.weight == 20);
    assert_true(parsed("kind: car", NULL).weight == 1);
}

TEST(every_wrong_file_is_named_with_its_line)
{
    static const struct {
        const char *text, *reason;
    } rows[] = {
        {"\n\nwheel: 4", "a.yaml:3: unknown key wheel (did you mean body.wheels?)"},
        {"body:\n  length: 1\n  wheel: 4",
         "a.yaml:3: unknown key body.wheel (did you mean body.wheels?)"},
        {"bodi: {wheels: 4}", "a.yaml:1: unknown key bodi (did you mean body?)"},
        {"cabin: {wheels: 4}", "a.yaml:1: unknown key cabin"},
        {"kind: car\nbody: {wheels: 4,\n wheels: 5}",
         "a.yaml:3: body.wheels is already set in line 2"},
        {"body: {}\nkind: car\nbody: {}", "a.yaml:3: body is already set in line 1"},
        {"body: 3", "a.yaml:1: body must be a mapping of keys to values"},
        {"\nbody: [3]", "a.yaml:2: body must be a mapping of keys to values"},
        {"seats: {a: 1}", "a.yaml:1: seats must be a list of 1 to 4 integers from 1 to 9, "
                          "not a mapping"},
        {"kind: plane", "a.yaml:1: kind must be one of car, boat, not \"plane\""},
        {"kind:", "a.yaml:1: kind has no value"},
        {"body: {wheels: ~}", "a.yaml:1: body.wheels has no value"},
        {"name: null", "a.yaml:1: name has no value"},
        {"body:\n  wheels: 2", "a.yaml:2: body.wheels must be an integer from 3 to 18, not \"2\""},
        {"body:\n  wheels:\n    19",
         "a.yaml:3: body.wheels must be an integer from 3 to 18, not \"19\""},
        {"body: {wheels: 4.0}",
         "a.yaml:1: body.wheels must be an integer from 3 to 18, not \"4.0\""},
        {"body: {wheels: -4}", "a.yaml:1: body.wheels must be an integer from 3 to 18, not \"-4\""},
        {"body: {wheels: 010}",
         "a.yaml:1: body.wheels must be an integer from 3 to 18, not \"010\""},
        {"body: {wheels: \"4\"}",
         "a.yaml:1: body.wheels must be an integer from 3 to 18, not \"4\""},
        {"body: {wheels: 4294967300}",
         "a.yaml:1: body.wheels must be an integer from 3 to 18, not \"4294967300\""},
        {"body: {wheels: [4]}",
         "a.yaml:1: body.wheels must be an integer from 3 to 18, not a list"},
        {"id: 18446744073709551616",
         "a.yaml:1: id must be an integer from 0 to 18446744073709551615, not "
         "\"18446744073709551616\""},
        {"body: {length: 0}", "a.yaml:1: body.length must be a number from 0.25 to below 9, "
                              "not \"0\""},
        {"body: {length: 9.0}", "a.yaml:1: body.length must be a number from 0.25 to below 9, "
                                "not \"9.0\""},
        {"body: {length: .inf}", "a.yaml:1: body.length must be a number from 0.25 to below 9, "
                                 "not \".inf\""},
        {"body: {length: nan}", "a.yaml:1: body.length must be a number from 0.25 to below 9, "
                                "not \"nan\""},
        {"body: {length: 0x1}", "a.yaml:1: body.length must be a number from 0.25 to below 9, "
                                "not \"0x1\""},
        {"body: {length: 1e999}", "a.yaml:1: body.length must be a number from 0.25 to below 9, "
                                  "not \"1e999\""},
        {"body: {length: 1e}", "a.yaml:1: body.length must be a number from 0.25 to below 9, "
                               "not \"1e\""},
        {"body: {length: -.}", "a.yaml:1: body.length must be a number from 0.25 to below 9, "
                               "not \"-.\""},
        {"body: {weight: -1}", "a.yaml:1: body.weight must be a number from 0 to 100, not \"-1\""},
        {"body: {loud: yes}", "a.yaml:1: body.loud must be true or false, not \"yes\""},
        {"name: longer than it", "a.yaml:1: name must be printable text of 1 to 11 bytes, "
                                 "not \"longer than it\""},
        {"name: \"a\\nb\"", "a.yaml:1: name must be printable text of 1 to 11 bytes, not \"a?b\""},
        {"name: \"a\\0\"", "a.yaml:1: name must be printable text of 1 to 11 bytes, not \"a?\""},
        {"name: \"\\L\"", "a.yaml:1: name must be printable text of 1 to 11 bytes, not \"???\""},
        {"name: \"a\\u202Eb\"",
         "a.yaml:1: name must be printable text of 1 to 11 bytes, not \"a???b\""},
        {"name: \"\\u061C\"", "a.yaml:1: name must be printable text of 1 to 11 bytes, not \"??\""},
        {"seats: 3", "a.yaml:1: seats must be a list of 1 to 4 integers from 1 to 9, not \"3\""},
        {"seats: []", "a.yaml:1: seats must be a list of 1 to 4 integers from 1 to 9, "
                      "not a list of 0"},
        {"seats: [1, 1, 1, 1, 1]", "a.yaml:1: seats must be a list of 1 to 4 integers from 1 to 9, "
                                   "not a list of 5"},
        {"seats:\n- 1\n- 10", "a.yaml:3: seats must be a list of 1 to 4 integers from 1 to 9, "
                              "not \"10\""},
        {"seats:\n- 1\n- [2]", "a.yaml:3: a list holds single values only"},
        {"range: [1]", "a.yaml:1: range must be a list of 2 numbers from 0 to 1000000, "
                       "not a list of 1"},
        {"kind: boat\nbody:\n  wheels: 4", "a.yaml:3: body.wheels is no setting when kind is boat"},
        {"a b: 4", "a.yaml:1: a key is a word of a-z, 0-9 and _"},
        {"very.far.down: 4", "a.yaml:1: a key is a word of a-z, 0-9 and _"},
        {"? [1]\n: 4", "a.yaml:1: a key is a word of a-z, 0-9 and _"},
        {"- 1", "a.yaml:1: the file must be a mapping of keys to values"},
        {"\nhello", "a.yaml:2: the file must be a mapping of keys to values"},
        {"kind: car\n---\nkind: boat", "a.yaml:2: the file must be one document"},
        {"kind: &a car", "a.yaml:1: anchors and aliases (& and *) are not supported"},
        {"kind: car\nname: *a", "a.yaml:2: anchors and aliases (& and *) are not supported"},
        {"body: !!map {}", "a.yaml:1: tags (!) are not supported"},
        {"kind: !x car", "a.yaml:1: tags (!) are not supported"},
        {"a: {b: {c: {d: {e: 1}}}}", "a.yaml:1: mappings are nested too deep"},
        {"kind: car\nbody: {wheels: 4\nname: x",
         "a.yaml:3: not YAML: did not find expected ',' or '}' while parsing a flow mapping"},
        {"kind: car\n\tname: x", "a.yaml:2: not YAML: found a tab character that violates "
                                 "indentation while scanning a plain scalar"},
        {"kind: car\nname: \xff", "a.yaml:2: not YAML: invalid leading UTF-8 octet"},
        {"kind: car\n\nname: \x01", "a.yaml:3: not YAML: control characters are not allowed"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_reason(rows[i].text, NULL, rows[i].reason);
}

TEST(a_wrong_override_is_named_as_it_was_given)
{
    static const struct {
        const char *flag, *environment, *reason;
    } rows[] = {
        {"body.wheel=3", NULL,
         "--set body.wheel=3: unknown key body.wheel (did you mean body.wheels?)"},
        {"body.wheels", NULL, "--set body.wheels: must be key=value"},
        {"body=3", NULL, "--set body=3: unknown key body"},
        {"body.wheels=x", NULL,
         "--set body.wheels=x: body.wheels must be an integer from 3 to 18, not \"x\""},
        {"body.wheels=", NULL, "--set body.wheels=: body.wheels has no value"},
        {"name=\x1b[2J", NULL,
         "--set name=?[2J: name must be printable text of 1 to 11 bytes, not \"?[2J\""},
        {"name=", NULL, "--set name=: name must be printable text of 1 to 11 bytes, not \"\""},
        {"seats=3", NULL,
         "--set seats=3: seats must be a list of 1 to 4 integers from 1 to 9, not \"3\""},
        {"seats=[3,,4]", NULL, "--set seats=[3,,4]: seats has no value"},
        {"kind=boat", "ROOST_BODY_WHEELS=4",
         "ROOST_BODY_WHEELS=4: body.wheels is no setting when kind is boat"},
        {NULL, "ROOST_BODY_WHEELS=99",
         "ROOST_BODY_WHEELS=99: body.wheels must be an integer from 3 to 18, not \"99\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *environment[] = {rows[i].environment, NULL};
        struct config_overrides overrides = {&rows[i].flag, rows[i].flag != NULL, environment};
        expect_reason("kind: car", &overrides, rows[i].reason);
    }
}

TEST(a_text_from_outside_a_file_is_verbatim)
{
    static const char *const texts[] = {"null", "~", "no", "[a]", " a "};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char flag[32];
        snprintf(flag, sizeof flag, "name=%s", texts[i]);
        const char *const flags[] = {flag};
        struct config_overrides overrides = {flags, 1, NULL};
        assert_string_equal(parsed("kind: car", &overrides).name, texts[i]);
    }
}

TEST(an_endless_list_or_file_is_refused)
{
    scoped(buf_release) struct buf text = {0};
    assert_int_equal(buf_printf(&text, "seats=[1"), ERR_OK);
    for (int i = 0; i < 200; i++)
        assert_int_equal(buf_printf(&text, ",1"), ERR_OK);
    assert_int_equal(buf_printf(&text, "]"), ERR_OK);
    const char *flag = (const char *)text.data;
    struct config_overrides overrides = {&flag, 1, NULL};
    struct settings settings;
    struct reason reason;
    assert_int_equal(parse("", &overrides, &settings, &reason), ERR_INVALID);

    for (int i = 0; i < CONFIG_FILE_BYTES_MAX; i++)
        assert_int_equal(buf_append(&text, " ", 1), ERR_OK);
    assert_int_equal(
        config_parse(&table, buf_slice(&text), "a.yaml", NULL, &settings, NULL, &reason),
        ERR_INVALID);
}

TEST(a_failure_leaves_the_settings_alone)
{
    struct settings settings, before;
    memset(&settings, 0x5a, sizeof settings);
    before = settings;
    struct reason reason;
    assert_int_equal(parse("id: 3\nkind: plane", NULL, &settings, &reason), ERR_INVALID);
    assert_memory_equal(&settings, &before, sizeof settings);
}

TEST(what_is_printed_is_read_back)
{
    static const char *const texts[] = {
        "",
        "kind: boat\nname: \"12\"",
        "{name: 'a\"\\#: ', range: [0.1, 1e-7], seats: [9, 8, 7, 6]}",
        "body: {length: 0.30000000000000004, weight: -0.0, loud: true}",
        "name: \"null\"",
        "name: \"\xc3\xa9\xe2\x82\xac\"",
        "id: 18446744073709551615"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct settings settings = parsed(texts[i], NULL);
        if (settings.name[0] == 0)
            strcpy(settings.name, "x"); /* this table has no way to say an empty name */
        scoped(buf_release) struct buf buf = {0};
        assert_int_equal(config_print(&table, &settings, &buf), ERR_OK);
        struct settings again = parsed((const char *)buf.data, NULL);
        assert_memory_equal(&settings, &again, sizeof settings);
    }
}

TEST(printing_is_yaml_in_table_order)
{
    struct settings settings = parsed("{kind: boat, name: \"a b\"}", NULL);
    scoped(buf_release) struct buf buf = {0};
    assert_int_equal(config_print(&table, &settings, &buf), ERR_OK);
    assert_string_equal((const char *)buf.data, "kind: boat\n"
                                                "body:\n"
                                                "  length: 4.5\n"
                                                "  weight: 20\n"
                                                "  loud: false\n"
                                                "name: \"a b\"\n"
                                                "seats: [2, 3]\n"
                                                "range: [0, 10]\n"
                                                "id: 7\n"
                                                "very:\n"
                                                "  far:\n"
                                                "    down: 1\n");
}

TEST(the_reference_has_a_row_for_every_field)
{
    scoped(buf_release) struct buf buf = {0};
    assert_int_equal(config_print_reference(&table, &buf), ERR_OK);
    const char *text = (const char *)buf.data;
    size_t lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    assert_int_equal(lines, 2 + table.fields_count);
    assert_non_null(strstr(text, "| `body.wheels` (kind car) | `4` | an integer from 3 to 18 | "
                                 "how many |\n"));
    assert_non_null(strstr(text, "| `name` |  | printable text of 1 to 11 bytes | painted on |\n"));
}

TEST(a_complaint_stands_where_the_stronger_source_spoke)
{
    static const char *const flags[] = {"id=9"};
    struct config_overrides overrides = {flags, 1, NULL};
    struct settings settings;
    struct config_places places;
    struct reason reason;
    const char *text = "kind: car\nbody:\n  wheels: 5\nid: 3";
    assert_int_equal(
        config_parse(&table, slice_of(text), "a.yaml", NULL, &settings, &places, &reason), ERR_OK);
    static const struct {
        const char *path, *other, *reason;
    } rows[] = {
        {"body.wheels", "id", "a.yaml:3: no 7"}, {"id", "body.wheels", "a.yaml:4: no 7"},
        {"body.length", "id", "a.yaml:4: no 7"}, {"body.length", NULL, "a.yaml:2: no 7"},
        {"seats", "range", "a.yaml:1: no 7"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(config_complain(&table, &settings, &places, rows[i].path, rows[i].other,
                                         &reason, "no %d", 7),
                         ERR_INVALID);
        assert_string_equal(reason.text, rows[i].reason);
    }
    assert_int_equal(
        config_parse(&table, slice_of(text), "a.yaml", &overrides, &settings, &places, &reason),
        ERR_OK);
    assert_int_equal(
        config_complain(&table, &settings, &places, "body.wheels", "id", &reason, "no"),
        ERR_INVALID);
    assert_string_equal(reason.text, "--set id=9: no");
    overrides.flags_alone = true; /* --id 9 */
    assert_int_equal(
        config_parse(&table, slice_of(text), "a.yaml", &overrides, &settings, &places, &reason),
        ERR_OK);
    assert_int_equal(config_complain(&table, &settings, &places, "id", NULL, &reason, "no"),
                     ERR_INVALID);
    assert_string_equal(reason.text, "--id=9: no");
}
