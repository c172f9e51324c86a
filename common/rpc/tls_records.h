/* The records of a TLS connection whose handshake is over (RFC 8446 5), encrypted from and decrypted
 * into the user's memory. OpenSSL gets and gives their bytes through two functions of the user's
 * instead of a buffer between (a BIO pair). One thread at a time. */
#ifndef ROOST_COMMON_RPC_TLS_RECORDS_H
#define ROOST_COMMON_RPC_TLS_RECORDS_H

#include "common/err.h"

#include <stdint.h>

struct slice;
struct tls_records;

enum {
    TLS_RECORD_BYTES_MAX = 16384, /* without what encryption adds */
    TLS_RECORD_OVERHEAD = 22,     /* its header, kind and tag */
    TLS_KEY_RECORDS = 1 << 24     /* AES-GCM with one key: below the 2^24.5 of RFC 8446 5.5 */
};

struct tls_records_events {
    /* The next bytes for the peer. */
    void (*send)(void *owner, struct slice bytes);
    /* At most `count` bytes from the peer; returns how many, 0: for now there are no more. */
    size_t (*receive)(void *owner, uint8_t *ret_bytes, size_t count);
    uint64_t key_records; /* after so many records the next ones have a new key */
};

/* `connection` is OpenSSL's SSL, whose handshake left nothing to be sent; it is referred to until
 * the end. NULL: no memory. */
struct tls_records *tls_records_new(void *connection, const struct tls_records_events *events,
                                    void *owner);
void tls_records_free(struct tls_records *records); /* NULL is fine */

/* Sends `plain` in as many records as it needs, before them a KeyUpdate if one is due (TLS 1.3). An
 * error ends the connection. */
enum err tls_records_write(struct tls_records *records, struct slice plain) MUST_USE;

/* Receives until a record is whole. *ret_bytes: how many it has; 0: what there was is received, or
 * the peer has said that it ends. ERR_MALFORMED: no record of this connection. */
enum err tls_records_next(struct tls_records *records, size_t *ret_bytes) MUST_USE;
/* Decrypted, all the bytes of that record. */
enum err tls_records_read(struct tls_records *records, uint8_t *ret_bytes, size_t count) MUST_USE;

#endif
