/* SHA-256 by OpenSSL, XXH3 by libxxhash, CRC-32C by the processor's instruction or a table. */
#include "common/digest.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#ifdef XXHASH_CHOOSES
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

enum err digest_stream_init(struct digest_stream *stream)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (context == NULL)
        return ERR_NOMEM;
    if (EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(context);
        return ERR_NOMEM;
    }
    *stream = (struct digest_stream){context};
    return ERR_OK;
}

void digest_stream_add(struct digest_stream *stream, struct slice bytes)
{
    check(EVP_DigestUpdate(stream->state, bytes.data, bytes.bytes) == 1);
}

struct digest digest_stream_finish(struct digest_stream *stream)
{
    struct digest digest;
    unsigned bytes;
    check(EVP_DigestFinal_ex(stream->state, digest.bytes, &bytes) == 1);
    check(bytes == sizeof digest.bytes);
    check(EVP_DigestInit_ex(stream->state, NULL, NULL) == 1);
    return digest;
}

void digest_stream_release(struct digest_stream *stream)
{
    EVP_MD_CTX_free(stream->state);
}

enum err digest_sha256(struct slice bytes, struct digest *ret_digest)
{
    struct digest_stream stream;
    TRY(digest_stream_init(&stream));
    digest_stream_add(&stream, bytes);
    *ret_digest = digest_stream_finish(&stream);
    digest_stream_release(&stream);
    return ERR_OK;
}

enum err digest_mac_init(struct digest_mac *mac)
{
    memset(mac->key, 0, sizeof mac->key);
    return digest_stream_init(&mac->stream);
}

void digest_mac_set_key(struct digest_mac *mac, const uint8_t key[static DIGEST_KEY_BYTES])
{
    memcpy(mac->key, key, DIGEST_KEY_BYTES);
}

static void add_padded_key(struct digest_mac *mac, uint8_t pad)
{
    uint8_t block[sizeof mac->key];
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = mac->key[i] ^ pad;
    digest_stream_add(&mac->stream, (struct slice){block, sizeof block});
}

/* RFC 2104, 2: H(key ^ opad, H(key ^ ipad, bytes)). OpenSSL's own HMAC allocates with each use. */
struct digest digest_mac(struct digest_mac *mac, struct slice bytes)
{
    add_padded_key(mac, 0x36);
    digest_stream_add(&mac->stream, bytes);
    struct digest inner = digest_stream_finish(&mac->stream);
    add_padded_key(mac, 0x5c);
    digest_stream_add(&mac->stream, (struct slice){inner.bytes, sizeof inner.bytes});
    return digest_stream_finish(&mac->stream);
}

void digest_mac_release(struct digest_mac *mac)
{
    digest_stream_release(&mac->stream);
    OPENSSL_cleanse(mac->key, sizeof mac->key);
}

bool digest_same(const void *a, const void *b, size_t count)
{
    return CRYPTO_memcmp(a, b, count) == 0;
}

struct digest_hex digest_to_hex(const struct digest *digest)
{
    struct digest_hex hex = {{0}};
    for (size_t i = 0; i < sizeof digest->bytes; i++) {
        hex.text[2 * i] = "0123456789abcdef"[digest->bytes[i] >> 4];
        hex.text[2 * i + 1] = "0123456789abcdef"[digest->bytes[i] & 15];
    }
    return hex;
}

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

enum err digest_from_hex(const char *hex, struct digest *ret_digest)
{
    struct digest digest;
    if (strlen(hex) != 2 * sizeof digest.bytes)
        return ERR_MALFORMED;
    for (size_t i = 0; i < sizeof digest.bytes; i++) {
        int high = hex_value(hex[2 * i]), low = hex_value(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return ERR_MALFORMED;
        digest.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *ret_digest = digest;
    return ERR_OK;
}

uint64_t digest_fast64(struct slice bytes)
{
    return XXH3_64bits(bytes.data, bytes.bytes);
}

enum err digest_fast_init(struct digest_fast *fast)
{
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL)
        return ERR_NOMEM;
    XXH3_64bits_reset(state);
    *fast = (struct digest_fast){state};
    return ERR_OK;
}

void digest_fast_add(struct digest_fast *fast, struct slice bytes)
{
    check(XXH3_64bits_update(fast->state, bytes.data, bytes.bytes) == XXH_OK);
}

uint64_t digest_fast_finish(struct digest_fast *fast)
{
    uint64_t digest = XXH3_64bits_digest(fast->state);
    XXH3_64bits_reset(fast->state);
    return digest;
}

void digest_fast_release(struct digest_fast *fast)
{
    XXH3_freeState(fast->state);
}

enum { SECRET_DIGESTS = 6 /* 192 bytes, as many as XXH3's own secret has */ };

struct digest_keyed {
    XXH3_state_t *state;
    struct digest secret[SECRET_DIGESTS];
};

static void begin_keyed(struct digest_keyed *keyed)
{
    XXH3_64bits_reset_withSecret(keyed->state, keyed->secret, sizeof keyed->secret);
}

/* XXH3's secret must be as long as its own and without pattern: so it is made of the key. */
static enum err set_secret(struct digest_keyed *keyed, const uint8_t key[static DIGEST_KEY_BYTES])
{
    struct digest_mac mac;
    TRY(digest_mac_init(&mac));
    digest_mac_set_key(&mac, key);
    for (uint8_t i = 0; i < SECRET_DIGESTS; i++)
        keyed->secret[i] = digest_mac(&mac, (struct slice){&i, sizeof i});
    digest_mac_release(&mac);
    return ERR_OK;
}

enum err digest_keyed_new(const uint8_t key[static DIGEST_KEY_BYTES],
                          struct digest_keyed **ret_keyed)
{
    struct digest_keyed *keyed = calloc(1, sizeof *keyed);
    if (keyed == NULL)
        return ERR_NOMEM;
    keyed->state = XXH3_createState();
    if (keyed->state == NULL || set_secret(keyed, key) != ERR_OK) {
        digest_keyed_free(keyed);
        return ERR_NOMEM;
    }
    begin_keyed(keyed);
    *ret_keyed = keyed;
    return ERR_OK;
}

void digest_keyed_add(struct digest_keyed *keyed, struct slice bytes)
{
    check(XXH3_64bits_update(keyed->state, bytes.data, bytes.bytes) == XXH_OK);
}

uint64_t digest_keyed_finish(struct digest_keyed *keyed)
{
    uint64_t digest = XXH3_64bits_digest(keyed->state);
    begin_keyed(keyed);
    return digest;
}

void digest_keyed_free(struct digest_keyed *keyed)
{
    if (keyed == NULL)
        return;
    XXH3_freeState(keyed->state);
    OPENSSL_cleanse(keyed->secret, sizeof keyed->secret);
    free(keyed);
}

/* The remainders of each byte by the polynomial 0x1EDC6F41, bits reversed. */
static const uint32_t crc32c_table[256] = {
    0x00000000, 0xf26b8303, 0xe13b70f7, 0x1350f3f4, 0xc79a971f, 0x35f1141c, 0x26a1e7e8, 0xd4ca64eb,
    0x8ad958cf, 0x78b2dbcc, 0x6be22838, 0x9989ab3b, 0x4d43cfd0, 0xbf284cd3, 0xac78bf27, 0x5e133c24,
    0x105ec76f, 0xe235446c, 0xf165b798, 0x030e349b, 0xd7c45070, 0x25afd373, 0x36ff2087, 0xc494a384,
    0x9a879fa0, 0x68ec1ca3, 0x7bbcef57, 0x89d76c54, 0x5d1d08bf, 0xaf768bbc, 0xbc267848, 0x4e4dfb4b,
    0x20bd8ede, 0xd2d60ddd, 0xc186fe29, 0x33ed7d2a, 0xe72719c1, 0x154c9ac2, 0x061c6936, 0xf477ea35,
    0xaa64d611, 0x580f5512, 0x4b5fa6e6, 0xb93425e5, 0x6dfe410e, 0x9f95c20d, 0x8cc531f9, 0x7eaeb2fa,
    0x30e349b1, 0xc288cab2, 0xd1d83946, 0x23b3ba45, 0xf779deae, 0x05125dad, 0x1642ae59, 0xe4292d5a,
    0xba3a117e, 0x4851927d, 0x5b016189, 0xa96ae28a, 0x7da08661, 0x8fcb0562, 0x9c9bf696, 0x6ef07595,
    0x417b1dbc, 0xb3109ebf, 0xa0406d4b, 0x522bee48, 0x86e18aa3, 0x748a09a0, 0x67dafa54, 0x95b17957,
    0xcba24573, 0x39c9c670, 0x2a993584, 0xd8f2b687, 0x0c38d26c, 0xfe53516f, 0xed03a29b, 0x1f682198,
    0x5125dad3, 0xa34e59d0, 0xb01eaa24, 0x42752927, 0x96bf4dcc, 0x64d4cecf, 0x77843d3b, 0x85efbe38,
    0xdbfc821c, 0x2997011f, 0x3ac7f2eb, 0xc8ac71e8, 0x1c661503, 0xee0d9600, 0xfd5d65f4, 0x0f36e6f7,
    0x61c69362, 0x93ad1061, 0x80fde395, 0x72966096, 0xa65c047d, 0x5437877e, 0x4767748a, 0xb50cf789,
    0xeb1fcbad, 0x197448ae, 0x0a24bb5a, 0xf84f3859, 0x2c855cb2, 0xdeeedfb1, 0xcdbe2c45, 0x3fd5af46,
    0x7198540d, 0x83f3d70e, 0x90a324fa, 0x62c8a7f9, 0xb602c312, 0x44694011, 0x5739b3e5, 0xa55230e6,
    0xfb410cc2, 0x092a8fc1, 0x1a7a7c35, 0xe811ff36, 0x3cdb9bdd, 0xceb018de, 0xdde0eb2a, 0x2f8b6829,
    0x82f63b78, 0x709db87b, 0x63cd4b8f, 0x91a6c88c, 0x456cac67, 0xb7072f64, 0xa457dc90, 0x563c5f93,
    0x082f63b7, 0xfa44e0b4, 0xe9141340, 0x1b7f9043, 0xcfb5f4a8, 0x3dde77ab, 0x2e8e845f, 0xdce5075c,
    0x92a8fc17, 0x60c37f14, 0x73938ce0, 0x81f80fe3, 0x55326b08, 0xa759e80b, 0xb4091bff, 0x466298fc,
    0x1871a4d8, 0xea1a27db, 0xf94ad42f, 0x0b21572c, 0xdfeb33c7, 0x2d80b0c4, 0x3ed04330, 0xccbbc033,
    0xa24bb5a6, 0x502036a5, 0x4370c551, 0xb11b4652, 0x65d122b9, 0x97baa1ba, 0x84ea524e, 0x7681d14d,
    0x2892ed69, 0xdaf96e6a, 0xc9a99d9e, 0x3bc21e9d, 0xef087a76, 0x1d63f975, 0x0e330a81, 0xfc588982,
    0xb21572c9, 0x407ef1ca, 0x532e023e, 0xa145813d, 0x758fe5d6, 0x87e466d5, 0x94b49521, 0x66df1622,
    0x38cc2a06, 0xcaa7a905, 0xd9f75af1, 0x2b9cd9f2, 0xff56bd19, 0x0d3d3e1a, 0x1e6dcdee, 0xec064eed,
    0xc38d26c4, 0x31e6a5c7, 0x22b65633, 0xd0ddd530, 0x0417b1db, 0xf67c32d8, 0xe52cc12c, 0x1747422f,
    0x49547e0b, 0xbb3ffd08, 0xa86f0efc, 0x5a048dff, 0x8ecee914, 0x7ca56a17, 0x6ff599e3, 0x9d9e1ae0,
    0xd3d3e1ab, 0x21b862a8, 0x32e8915c, 0xc083125f, 0x144976b4, 0xe622f5b7, 0xf5720643, 0x07198540,
    0x590ab964, 0xab613a67, 0xb831c993, 0x4a5a4a90, 0x9e902e7b, 0x6cfbad78, 0x7fab5e8c, 0x8dc0dd8f,
    0xe330a81a, 0x115b2b19, 0x020bd8ed, 0xf0605bee, 0x24aa3f05, 0xd6c1bc06, 0xc5914ff2, 0x37faccf1,
    0x69e9f0d5, 0x9b8273d6, 0x88d28022, 0x7ab90321, 0xae7367ca, 0x5c18e4c9, 0x4f48173d, 0xbd23943e,
    0xf36e6f75, 0x0105ec76, 0x12551f82, 0xe03e9c81, 0x34f4f86a, 0xc69f7b69, 0xd5cf889d, 0x27a40b9e,
    0x79b737ba, 0x8bdcb4b9, 0x988c474d, 0x6ae7c44e, 0xbe2da0a5, 0x4c4623a6, 0x5f16d052, 0xad7d5351,
};

uint32_t digest_crc32c_table(uint32_t crc, struct slice bytes)
{
    crc = ~crc;
    for (size_t i = 0; i < bytes.bytes; i++)
        crc = crc >> 8 ^ crc32c_table[(crc ^ bytes.data[i]) & 255];
    return ~crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc32c_by_instruction(uint32_t crc,
                                                                        struct slice bytes)
{
    uint64_t wide = crc, word;
    size_t i = 0;
    for (; i + sizeof word <= bytes.bytes; i += sizeof word) {
        memcpy(&word, bytes.data + i, sizeof word);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; i < bytes.bytes; i++)
        crc = __builtin_ia32_crc32qi(crc, bytes.data[i]);
    return crc;
}
#endif

uint32_t digest_crc32c(uint32_t crc, struct slice bytes)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2"))
        return ~crc32c_by_instruction(~crc, bytes);
#endif
    return digest_crc32c_table(crc, bytes);
}
