/* Token files: what is one, what is not, and where it goes wrong. */
#include "tests/unit/unit.h"

#include "common/data/tokens.h"

#define HEADER 1024

/* A file of llm.c with that header and `payload` bytes after it. */
static uint8_t file[HEADER + 64];

static struct slice make(uint32_t magic, uint32_t version, uint32_t count, size_t payload)
{
    memset(file, 0, sizeof file);
    const uint32_t header[3] = {magic, version, count};
    memcpy(file, header, sizeof header);
    for (size_t i = 0; i < payload; i++)
        file[HEADER + i] = (uint8_t)(i + 1);
    return (struct slice){file, HEADER + payload};
}

TEST(llm_c_files_of_both_widths_are_read)
{
    static const struct {
        uint32_t magic, version, count;
        uint8_t width, first_byte;
        int32_t second; /* token */
    } rows[] = {{20240520, 1, 3, 2, 0x88, 0x0403}, {20240801, 7, 2, 4, 0xA1, 0x08070605}};
    for (size_t i = 0; i < 2; i++) {
        struct tokens tokens;
        int32_t read;
        struct slice bytes =
            make(rows[i].magic, rows[i].version, rows[i].count, rows[i].count * rows[i].width);
        assert_int_equal(bytes.data[0], rows[i].first_byte);
        assert_memory_equal(bytes.data + 2, "\x34\x01", 2);
        assert_int_equal(tokens_parse("f", bytes, &tokens, NULL), ERR_OK);
        assert_int_equal(tokens.count, rows[i].count);
        assert_int_equal(tokens.width, rows[i].width);
        assert_ptr_equal(tokens.data, file + HEADER);
        tokens_read(&tokens, 1, 1, &read);
        assert_int_equal(read, rows[i].second);
    }
}

TEST(a_file_without_a_header_is_16_bits_throughout)
{
    static const uint8_t bytes[] = {0x01, 0x00, 0x52, 0xC4};
    struct tokens tokens;
    int32_t read[2];
    assert_int_equal(tokens_parse("f", (struct slice){bytes, 4}, &tokens, NULL), ERR_OK);
    tokens_read(&tokens, 0, 2, read);
    assert_int_equal(read[0], 1);
    assert_int_equal(read[1], 50258);
    assert_int_equal(tokens_parse("f", (struct slice){bytes, 2}, &tokens, NULL), ERR_OK);
    assert_int_equal(tokens.count, 1);
}

static void assert_refused(struct slice bytes, const char *words)
{
    struct tokens tokens;
    struct reason reason;
    assert_int_equal(tokens_parse("train.bin", bytes, &tokens, &reason), ERR_MALFORMED);
    if (strstr(reason.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", reason.text, words);
}

TEST(a_size_that_is_not_exact_is_refused_with_its_place)
{
    assert_refused(make(20240520, 1, 3, 5),
                   "train.bin: offset 1030: the header's 3 tokens end here, the file at 1029");
    assert_refused(make(20240520, 1, 3, 7), "offset 1030");
    assert_refused(make(20240520, 1, 3, 8), "the file at 1032");
    assert_refused(make(20240801, 7, 3, 6), "offset 1036");
    assert_refused((struct slice){make(20240520, 1, 0, 0).data, 1023},
                   "offset 1023: the file ends in its header");
    assert_refused((struct slice){make(20240520, 1, 0, 0).data, 4}, "offset 4");
    assert_refused((struct slice){(const uint8_t *)"abc", 3}, "offset 2: half a token");
    assert_refused((struct slice){NULL, 0}, "offset 0: the file is empty");
}

TEST(a_header_that_is_wrong_is_refused_with_its_place)
{
    assert_refused(make(20240520, 2, 3, 6), "offset 4: version 2, not 1");
    assert_refused(make(20240801, 1, 3, 12), "offset 4: version 1, not 7");
    assert_refused(make(20240520, 1, 0x80000000, 6), "offset 8: 2147483648 tokens");
    assert_refused(make(20240520, 1, 0xffffffff, 6), "offset 8");
}

TEST(other_files_of_llm_c_are_named)
{
    assert_refused(make(20240522, 1, 3, 6), "an evaluation set of llm.c");
    assert_refused(make(20240326, 3, 3, 6), "a model of llm.c");
    assert_refused(make(20240328, 2, 3, 6), "a tokenizer of llm.c");
}

TEST(the_first_token_outside_the_vocabulary_is_named)
{
    static uint16_t many[5000];
    struct tokens tokens;
    struct reason reason;
    struct slice bytes = {(const uint8_t *)many, sizeof many};
    many[4000] = 50257;
    many[4001] = 50257;
    assert_int_equal(tokens_parse("f", bytes, &tokens, NULL), ERR_OK);
    assert_int_equal(tokens_check("f", bytes, &tokens, 50258, &reason), ERR_OK);
    assert_int_equal(tokens_check("f", bytes, &tokens, 50257, &reason), ERR_MALFORMED);
    assert_string_equal(reason.text,
                        "f: offset 8000: token 50257 is not in the vocabulary of 50257");
    bytes = make(20240801, 7, 2, 8);
    memset(file + HEADER + 4, 0xff, 4);
    assert_int_equal(tokens_parse("f", bytes, &tokens, NULL), ERR_OK);
    assert_int_equal(tokens_check("f", bytes, &tokens, 0x7fffffff, &reason), ERR_MALFORMED);
    assert_non_null(strstr(reason.text, "offset 1028: token 4294967295"));
}
