/* safetensors headers: the known answer, what may be, and each thing that may not. */
#include "tests/unit/unit.h"

#include "common/files/safetensors.h"

/* A file of that header and `buffer` bytes; only its beginning exists. */
static enum err parse(const char *header, uint64_t buffer, struct safetensors *ret_header,
                      struct reason *reason)
{
    static uint8_t file[8192];
    uint64_t length = strlen(header);
    assert_true(length <= sizeof file - 8);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    return safetensors_parse("model.safetensors", (struct slice){file, 8 + length},
                             8 + length + buffer, ret_header, reason);
}

TEST(the_known_file_is_read)
{
    static const char known[] =
        "\x3C\0\0\0\0\0\0\0{\"test\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}";
    uint8_t file[8 + 60 + 16] = {0};
    memcpy(file, known, 68);
    scoped(safetensors_release) struct safetensors header = {0};
    assert_int_equal(
        safetensors_parse("f", (struct slice){file, sizeof file}, sizeof file, &header, NULL),
        ERR_OK);
    assert_int_equal(header.count, 1);
    assert_int_equal(header.buffer_offset, 68);
    const struct safetensors_tensor *tensor = safetensors_find(&header, "test");
    assert_non_null(tensor);
    assert_int_equal(tensor->dtype, SAFETENSORS_I32);
    assert_int_equal(tensor->dims, 2);
    assert_int_equal(tensor->shape[1], 2);
    assert_int_equal(tensor->begin, 0);
    assert_int_equal(tensor->end, 16);
    assert_null(safetensors_find(&header, "tes"));
}

TEST(what_may_be_is_read)
{
    static const struct {
        const char *header;
        uint64_t buffer;
        size_t tensors;
    } rows[] = {
        {"{}", 0, 0},
        {"{}   ", 0, 0},
        {"{\"__metadata__\":{}}", 0, 0},
        {"{\"__metadata__\":{\"format\":\"pt\",\"b\":\"\"}}  ", 0, 0},
        {"{\"s\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8, 1},
        {"{\"e\":{\"dtype\":\"F64\",\"shape\":[0,7],\"data_offsets\":[0,0]}}", 0, 1},
        {"{\"f4\":{\"dtype\":\"F4\",\"shape\":[6],\"data_offsets\":[0,3]}}", 3, 1},
        {"{\"f6\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3, 1},
        {"{ \"b\" : { \"data_offsets\" : [ 2 , 4 ] , \"dtype\" : \"BF16\" , \"shape\" : [ 1 ] } ,\n"
         "\"a\":{\"shape\":[2],\"dtype\":\"U8\",\"data_offsets\":[0,2]}}",
         4, 2},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]},"
         "\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]},"
         "\"y\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}",
         1, 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct reason reason = {{0}};
        scoped(safetensors_release) struct safetensors header = {0};
        if (parse(rows[i].header, rows[i].buffer, &header, &reason) != ERR_OK)
            fail_msg("%s: %s", rows[i].header, reason.text);
        assert_int_equal(header.count, rows[i].tensors);
        for (size_t k = 1; k < header.count; k++)
            assert_true(header.tensors[k - 1].end == header.tensors[k].begin);
    }
}

#define A(dtype, shape, offsets)                                                                   \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define T "{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}"

TEST(what_may_not_be_is_refused_with_its_place)
{
    static const struct {
        const char *header;
        uint64_t buffer;
        const char *words;
    } rows[] = {
        {"", 0, "does not begin with '{'"},
        {" {}", 0, "does not begin with '{'"},
        {"[]", 0, "does not begin with '{'"},
        {"{}x", 0, "offset 10: something follows"},
        {"{\"a\":" T, 2, "'}' is missing"},
        {"{\"a\":" T "}", 1, "tensor a ends at 2 of the buffer, the file at 1"},
        {"{\"a\":" T "}", 3, "the file has 3"},
        {"{\"a\":" T ",\"a\":" T "}", 2, "tensor a comes twice"},
        {"{\"a\":" T ",\"\\u0061\":" T "}", 2, "tensor a comes twice"},
        {"{\"a\":" T ",\"b\":" T "}", 2, "tensor b begins at 0 of the buffer, not at 2"},
        {"{\"a\":" T ",\"b\":" T "}", 4, "tensor b begins at 0"},
        {A("U8", "[2]", "[1,3]"), 3, "begins at 1"},
        {"{\"a\":" T ",\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]}}", 4,
         "tensor b begins at 3 of the buffer, not at 2"},
        {A("U8", "[2]", "[2,0]"), 2, "do not fit"},
        {A("U8", "[3]", "[0,2]"), 2, "do not fit"},
        {A("F4", "[3]", "[0,1]"), 1, "do not fit"},
        {A("U8", "[4294967296,4294967296]", "[0,0]"), 0, "do not fit"},
        {A("F64", "[2305843009213693952]", "[0,0]"), 0, "do not fit"},
        {A("U7", "[2]", "[0,2]"), 2, "no such dtype"},
        {A("U8", "[2,-1]", "[0,2]"), 2, "a whole number is missing"},
        {A("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "too many numbers"},
        {A("U8", "[2]", "[2]"), 2, "not two numbers"},
        {A("U8", "[2]", "[0,2,4]"), 2, "too many numbers"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2]}}", 2, "needs dtype, shape and data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,2]}}", 2, "needs dtype"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,2]}}", 2, "needs dtype"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
         "comes twice"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2],\"more\":1}}", 2,
         "no such key"},
        {"{\"a\":[]}", 0, "'{' is missing"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "'\"' is missing"},
        {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "metadata a comes twice"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ comes twice"},
        {"{\"\xff\":" T "}", 2, "not UTF-8"},
        {"{\"a\\u0000b\":" T "}", 2, "no character"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct reason reason = {{0}};
        struct safetensors header = {0};
        assert_int_equal(parse(rows[i].header, rows[i].buffer, &header, &reason), ERR_MALFORMED);
        assert_null(header.tensors);
        assert_memory_equal(reason.text, "model.safetensors: ", 19);
        if (strstr(reason.text, rows[i].words) == NULL)
            fail_msg("%s: \"%s\" does not say \"%s\"", rows[i].header, reason.text, rows[i].words);
    }
}

TEST(lengths_beyond_the_file_or_the_limit_are_refused)
{
    struct reason reason;
    struct safetensors header;
    uint8_t file[16] = {9, 0, 0, 0, 0, 0, 0, 0, '{', '}', ' ', ' ', ' ', ' ', ' ', ' '};
    for (size_t bytes = 0; bytes < 8; bytes++)
        assert_int_equal(
            safetensors_parse("f", (struct slice){file, bytes}, bytes, &header, &reason),
            ERR_MALFORMED);
    assert_int_equal(safetensors_parse("f", (struct slice){file, 16}, 16, &header, &reason),
                     ERR_MALFORMED);
    file[0] = 8;
    assert_int_equal(safetensors_parse("f", (struct slice){file, 16}, 16, &header, &reason),
                     ERR_OK);
    safetensors_release(&header);
    memset(file, 0xff, 8);
    assert_int_equal(safetensors_parse("f", (struct slice){file, 16}, 16, &header, &reason),
                     ERR_MALFORMED);
}

TEST(every_cut_of_a_header_is_refused)
{
    static const char whole[] = "{\"__metadata__\":{\"format\":\"pt\"},\"a\\u00e4\":" T "}";
    char part[sizeof whole];
    scoped(safetensors_release) struct safetensors header = {0};
    for (size_t bytes = 0; bytes < sizeof whole - 1; bytes++) {
        memcpy(part, whole, bytes);
        part[bytes] = 0;
        assert_int_equal(parse(part, 2, &header, NULL), ERR_MALFORMED);
    }
    assert_int_equal(parse(whole, 2, &header, NULL), ERR_OK);
    assert_string_equal(header.tensors[0].name, "a\xc3\xa4");
}

TEST(a_written_header_is_in_order_aligned_and_read_back)
{
    struct safetensors_tensor tensors[] = {
        {.name = "b", .dtype = SAFETENSORS_BF16, .dims = 1, .shape = {3}},
        {.name = "wte.weight", .dtype = SAFETENSORS_F32, .dims = 2, .shape = {2, 3}},
        {.name = "a \"quoted\"", .dtype = SAFETENSORS_F32, .dims = 0},
        {.name = "i", .dtype = SAFETENSORS_I64, .dims = 1, .shape = {0}},
    };
    scoped(buf_release) struct buf out = {0};
    assert_int_equal(safetensors_put_header(&out, tensors, 4, NULL), ERR_OK);
    assert_int_equal(out.bytes % 8, 0);
    assert_string_equal(tensors[0].name, "i");
    assert_string_equal(tensors[1].name, "a \"quoted\"");
    assert_string_equal(tensors[2].name, "wte.weight");
    assert_string_equal(tensors[3].name, "b");
    assert_int_equal(tensors[3].begin, 28);
    assert_int_equal(tensors[3].end, 34);
    scoped(safetensors_release) struct safetensors header = {0};
    assert_int_equal(safetensors_parse("f", buf_slice(&out), out.bytes + 34, &header, NULL),
                     ERR_OK);
    assert_int_equal(header.count, 4);
    assert_int_equal(header.buffer_offset, out.bytes);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(header.tensors[i].name, tensors[i].name);
        assert_int_equal(header.tensors[i].dtype, tensors[i].dtype);
        assert_int_equal(header.tensors[i].dims, tensors[i].dims);
        assert_memory_equal(header.tensors[i].shape, tensors[i].shape, sizeof tensors[i].shape);
        assert_int_equal(header.tensors[i].begin, tensors[i].begin);
        assert_int_equal(header.tensors[i].end, tensors[i].end);
    }
}

TEST(tensors_without_whole_bytes_are_not_written)
{
    struct reason reason;
    scoped(buf_release) struct buf out = {0};
    struct safetensors_tensor half = {
        .name = "half", .dtype = SAFETENSORS_F4, .dims = 1, .shape = {3}};
    assert_int_equal(safetensors_put_header(&out, &half, 1, &reason), ERR_INVALID);
    struct safetensors_tensor large = {
        .name = "large", .dtype = SAFETENSORS_F32, .dims = 2, .shape = {1ull << 40, 1ull << 40}};
    assert_int_equal(safetensors_put_header(&out, &large, 1, &reason), ERR_INVALID);
    assert_int_equal(out.bytes, 0);
}

TEST(dtypes_have_names)
{
    assert_string_equal(safetensors_dtype_name(SAFETENSORS_BF16), "BF16");
    assert_int_equal(SAFETENSORS_DTYPE_COUNT, 22);
}
