/* What tls_issue.c has of tls.c beside tls.h: certificates as OpenSSL has them. For these two
 * only. */
#ifndef ROOST_COMMON_RPC_TLS_CORE_H
#define ROOST_COMMON_RPC_TLS_CORE_H

#include "common/buf.h"
#include "common/scoped.h"

#include <stdbool.h>
#include <stdint.h>

#include <openssl/x509v3.h>

enum { TLS_DAY_S = 86400, TLS_CHAIN_MAX = 16 /* certificates in one file */ };

SCOPED_FREE(BIO, BIO_free_all)
SCOPED_FREE(EVP_PKEY, EVP_PKEY_free)
SCOPED_FREE(GENERAL_NAMES, GENERAL_NAMES_free)

struct tls_chain {
    X509 *certificates[TLS_CHAIN_MAX]; /* its holder's first */
    size_t count;
};

void tls_chain_release(struct tls_chain *chain);
/* ERR_UNTRUSTED: no certificate is there; `path` for sentences, as below. */
enum err tls_chain_parse(struct slice pem, const char *path, struct tls_chain *ret_chain,
                         struct reason *reason) MUST_USE;
enum err tls_key_parse(struct slice pem, const char *path, EVP_PKEY **ret_key,
                       struct reason *reason) MUST_USE;
void tls_secret_release(struct buf *secret); /* nothing of it stays in memory */

/* Of a cluster or a holder: its letters, and all of it. */
bool tls_name_character(char c);
bool tls_name_valid(const char *name);

struct tls_validity {
    int64_t from_s, to_s, now_s;
};

struct tls_validity tls_validity_of(const X509 *certificate, int64_t now_s);
/* ERR_UNTRUSTED: it is over. ERR_NOT_VALID_YET: it has not begun. */
enum err tls_validity_check(struct tls_validity validity, const char *path,
                            struct reason *reason) MUST_USE;

#endif
