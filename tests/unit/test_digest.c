/* Digests against published answers: FIPS 180-4's examples, XXH3 of nothing (xxHash's sanity test),
 * the check value of CRC-32C and RFC 3720 B.4. */
#include "tests/unit/unit.h"

#include "common/digest.h"

TEST(sha256_gives_the_published_answers)
{
    static const char *const rows[][2] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct digest digest;
        assert_int_equal(digest_sha256(slice_of(rows[i][0]), &digest), ERR_OK);
        assert_string_equal(digest_to_hex(&digest).text, rows[i][1]);
    }
}

TEST(pieces_have_the_digest_of_the_whole_and_a_stream_serves_again)
{
    scoped(digest_stream_release) struct digest_stream stream = {0};
    struct digest whole;
    assert_int_equal(digest_stream_init(&stream), ERR_OK);
    assert_int_equal(digest_sha256(slice_of("one two three"), &whole), ERR_OK);
    for (int turn = 0; turn < 2; turn++) {
        digest_stream_add(&stream, slice_of("one "));
        digest_stream_add(&stream, slice_of(""));
        digest_stream_add(&stream, slice_of("two three"));
        struct digest pieces = digest_stream_finish(&stream);
        assert_memory_equal(&pieces, &whole, sizeof whole);
    }
}

/* RFC 4231, 4.2 and 4.3: HMAC fills a shorter key up with zeros. */
TEST(hmac_gives_the_published_answers)
{
    static const struct {
        const char *key, *text, *answer;
    } rows[] = {
        {"\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b",
         "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"Jefe", "what do ya want for nothing?",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
    };
    scoped(digest_mac_release) struct digest_mac mac;
    assert_int_equal(digest_mac_init(&mac), ERR_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t key[DIGEST_KEY_BYTES] = {0};
        memcpy(key, rows[i].key, strlen(rows[i].key));
        digest_mac_set_key(&mac, key);
        for (int turn = 0; turn < 2; turn++) {
            struct digest answer = digest_mac(&mac, slice_of(rows[i].text));
            assert_string_equal(digest_to_hex(&answer).text, rows[i].answer);
        }
    }
}

TEST(bytes_are_the_same_or_differ_anywhere)
{
    assert_true(digest_same("secret", "secret", 6));
    assert_false(digest_same("secret", "Secret", 6));
    assert_false(digest_same("secret", "secreT", 6));
}

TEST(hexadecimal_digits_go_both_ways)
{
    struct digest digest, back;
    for (int i = 0; i < 32; i++)
        digest.bytes[i] = (uint8_t)(i * 7 + 3);
    assert_int_equal(digest_from_hex(digest_to_hex(&digest).text, &back), ERR_OK);
    assert_memory_equal(&digest, &back, sizeof digest);
    struct digest_hex upper = digest_to_hex(&digest);
    for (int i = 0; i < 64; i++)
        if (upper.text[i] >= 'a')
            upper.text[i] = (char)(upper.text[i] - 'a' + 'A');
    assert_int_equal(digest_from_hex(upper.text, &back), ERR_OK);
    assert_memory_equal(&digest, &back, sizeof digest);
}

TEST(what_is_no_digest_is_malformed)
{
    struct digest digest, back;
    memset(&digest, 0, sizeof digest);
    struct digest_hex hex = digest_to_hex(&digest);
    assert_int_equal(digest_from_hex(hex.text + 1, &back), ERR_MALFORMED);
    assert_int_equal(digest_from_hex("", &back), ERR_MALFORMED);
    static const char wrong[] = {'g', ' ', '/', ':', '@', '`', 'G', (char)0xff};
    for (size_t i = 0; i < sizeof wrong; i++) {
        hex.text[63] = wrong[i];
        assert_int_equal(digest_from_hex(hex.text, &back), ERR_MALFORMED);
    }
}

TEST(the_fast_digest_is_xxh3)
{
    assert_true(digest_fast64(slice_of("")) == 0x2d06800538d394c2);
    scoped(digest_fast_release) struct digest_fast fast = {0};
    assert_int_equal(digest_fast_init(&fast), ERR_OK);
    assert_true(digest_fast_finish(&fast) == 0x2d06800538d394c2);
}

TEST(the_keyed_digest_depends_on_all_bytes_and_on_the_key_and_not_on_pieces)
{
    uint8_t key[DIGEST_KEY_BYTES] = {1}, bytes[3000] = {0};
    struct digest_keyed *one = NULL, *other = NULL;
    assert_int_equal(digest_keyed_new(key, &one), ERR_OK);
    key[31] ^= 1;
    assert_int_equal(digest_keyed_new(key, &other), ERR_OK);
    digest_keyed_add(one, (struct slice){bytes, sizeof bytes});
    digest_keyed_add(other, (struct slice){bytes, sizeof bytes});
    uint64_t digest = digest_keyed_finish(one);
    assert_true(digest != digest_keyed_finish(other));
    assert_true(digest != digest_fast64((struct slice){bytes, sizeof bytes}));
    for (size_t i = 0; i < sizeof bytes; i += 125)
        digest_keyed_add(one, (struct slice){bytes + i, 125});
    assert_true(digest == digest_keyed_finish(one));
    bytes[2999] ^= 0x80;
    digest_keyed_add(one, (struct slice){bytes, sizeof bytes});
    assert_true(digest != digest_keyed_finish(one));
    digest_keyed_free(one);
    digest_keyed_free(other);
    digest_keyed_free(NULL);
}

TEST(the_fast_digest_of_pieces_is_that_of_the_whole)
{
    static uint8_t bytes[1000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * i);
    scoped(digest_fast_release) struct digest_fast fast = {0};
    assert_int_equal(digest_fast_init(&fast), ERR_OK);
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < sizeof bytes; i += 125)
            digest_fast_add(&fast, (struct slice){bytes + i, 125});
        assert_true(digest_fast_finish(&fast) ==
                    digest_fast64((struct slice){bytes, sizeof bytes}));
    }
}

TEST(crc32c_gives_the_published_answers)
{
    uint8_t bytes[32] = {0};
    assert_int_equal(digest_crc32c(0, slice_of("")), 0);
    assert_int_equal(digest_crc32c(0, slice_of("123456789")), 0xE3069283);
    assert_int_equal(digest_crc32c(0, (struct slice){bytes, 32}), 0x8A9136AA);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(digest_crc32c(0, (struct slice){bytes, 32}), 0x62A8AB43);
    for (uint8_t i = 0; i < 32; i++)
        bytes[i] = i;
    assert_int_equal(digest_crc32c(0, (struct slice){bytes, 32}), 0x46DD794E);
}

/* The definition, a bit at a time. */
static uint32_t crc32c_by_bits(struct slice bytes)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < bytes.bytes; i++) {
        crc ^= bytes.data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
    }
    return ~crc;
}

TEST(crc32c_holds_for_every_length_place_and_piece)
{
    uint8_t bytes[64];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37 + 11);
    for (size_t from = 0; from < 9; from++)
        for (size_t count = 0; from + count <= sizeof bytes; count++) {
            struct slice whole = {bytes + from, count};
            uint32_t expected = crc32c_by_bits(whole);
            assert_int_equal(digest_crc32c(0, whole), expected);
            assert_int_equal(digest_crc32c_table(0, whole), expected);
            uint32_t half = digest_crc32c(0, (struct slice){whole.data, count / 3});
            assert_int_equal(
                digest_crc32c(half, (struct slice){whole.data + count / 3, count - count / 3}),
                expected);
        }
}
