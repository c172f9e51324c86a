/* Digests: SHA-256 where bytes must be proven, a fast 64-bit one where accidents must be found, and
 * CRC-32C where a format asks for it. */
#ifndef ROOST_COMMON_DIGEST_H
#define ROOST_COMMON_DIGEST_H

#include "common/buf.h"

#include <stdbool.h>

/* SHA-256. Plain data: compare with memcmp. */
struct digest {
    uint8_t bytes[32];
};
enum err digest_sha256(struct slice bytes, struct digest *ret_digest) MUST_USE;
/* The same from pieces. After finish it may be used again. */
struct digest_stream {
    void *state;
};
enum err digest_stream_init(struct digest_stream *stream) MUST_USE;
void digest_stream_add(struct digest_stream *stream, struct slice bytes);
struct digest digest_stream_finish(struct digest_stream *stream);
void digest_stream_release(struct digest_stream *stream); /* {0} is fine */

/* HMAC-SHA256 (RFC 2104): proof that who made it knew the key. digest_mac_init() takes the memory;
 * what follows allocates nothing, so a pure core may call it. One thread at a time. */
enum { DIGEST_KEY_BYTES = 32 };
struct digest_mac {
    struct digest_stream stream;
    uint8_t key[64]; /* a block of SHA-256, zeros behind the key */
};
enum err digest_mac_init(struct digest_mac *mac) MUST_USE; /* the key is zeros */
void digest_mac_set_key(struct digest_mac *mac, const uint8_t key[static DIGEST_KEY_BYTES]);
struct digest digest_mac(struct digest_mac *mac, struct slice bytes);
void digest_mac_release(struct digest_mac *mac); /* {0} is fine */
/* Whether `count` bytes are equal, in a time that does not depend on where they differ. */
bool digest_same(const void *a, const void *b, size_t count);

/* 64 lower-case digits and a 0, and back. ERR_MALFORMED: anything but 64 hexadecimal digits. */
struct digest_hex {
    char text[65];
};
struct digest_hex digest_to_hex(const struct digest *digest);
enum err digest_from_hex(const char *hex, struct digest *ret_digest) MUST_USE;

/* XXH3, 64 bits: fast, not for adversaries. */
uint64_t digest_fast64(struct slice bytes);
struct digest_fast {
    void *state;
};
enum err digest_fast_init(struct digest_fast *fast) MUST_USE;
void digest_fast_add(struct digest_fast *fast, struct slice bytes);
uint64_t digest_fast_finish(struct digest_fast *fast); /* starts anew afterwards */
void digest_fast_release(struct digest_fast *fast);    /* {0} is fine */

/* XXH3, 64 bits, with a key: who does not know the key, and is never shown a digest, cannot choose
 * bytes that have the digest of others. After finish it may be used again. One thread at a time. */
struct digest_keyed;
enum err digest_keyed_new(const uint8_t key[static DIGEST_KEY_BYTES],
                          struct digest_keyed **ret_keyed) MUST_USE; /* ERR_NOMEM */
void digest_keyed_add(struct digest_keyed *keyed, struct slice bytes);
uint64_t digest_keyed_finish(struct digest_keyed *keyed);
void digest_keyed_free(struct digest_keyed *keyed); /* NULL is fine */

/* CRC-32C (Castagnoli) of `bytes`, continued from `crc`; 0 starts one. */
uint32_t digest_crc32c(uint32_t crc, struct slice bytes);
/* The same without the processor's instruction, for machines that lack it. */
uint32_t digest_crc32c_table(uint32_t crc, struct slice bytes);

#endif
