/* Certificates with OpenSSL 3: names, checks, connections, revoked ones. tls_issue.c makes them;
 * their files are tls_dir.c's matter. */
#include "common/rpc/tls.h"

#include "common/rpc/tls_core.h"
#include "common/time.h"

#include <string.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

enum {
    WARNING_DAYS = 7,
    NUMBER_BYTES_MAX = 20 /* RFC 5280 4.1.2.2 */
};

SCOPED_FREE(ASN1_TIME, ASN1_TIME_free)
SCOPED_FREE(X509_STORE, X509_STORE_free)
SCOPED_FREE(X509_STORE_CTX, X509_STORE_CTX_free)

/* ---- Certificates ---- */

void tls_chain_release(struct tls_chain *chain)
{
    for (size_t i = 0; i < chain->count; i++)
        X509_free(chain->certificates[i]);
}

void tls_secret_release(struct buf *secret)
{
    if (secret->data != NULL)
        OPENSSL_cleanse(secret->data, secret->capacity);
    buf_release(secret);
}

/* ---- Roles and names ---- */

static const char *const role_names[TLS_ROLE_COUNT] = {
    [TLS_ROLE_NONE] = "none",
    [TLS_ROLE_SERVER] = "server",
    [TLS_ROLE_WORKER] = "worker",
    [TLS_ROLE_OPERATOR] = "operator",
};

const char *tls_role_name(enum tls_role role)
{
    return role_names[role];
}

enum tls_role tls_role_of_name(const char *name)
{
    for (unsigned role = TLS_ROLE_SERVER; role < TLS_ROLE_COUNT; role++)
        if (strcmp(name, role_names[role]) == 0)
            return (enum tls_role)role;
    return TLS_ROLE_NONE;
}

bool tls_name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

bool tls_name_valid(const char *name)
{
    size_t bytes = strnlen(name, TLS_NAME_BYTES_MAX + 1);
    if (bytes == 0 || bytes > TLS_NAME_BYTES_MAX)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (!tls_name_character(name[i]))
            return false;
    return true;
}

/* Moves the part of *text before the next '/' (or its end) into `ret_name`. */
static bool name_take(const char **text, char ret_name[static TLS_NAME_BYTES_MAX + 1])
{
    size_t bytes = strcspn(*text, "/");
    if (bytes > TLS_NAME_BYTES_MAX)
        return false;
    memcpy(ret_name, *text, bytes);
    ret_name[bytes] = 0;
    *text += bytes;
    if (**text == '/')
        (*text)++;
    return tls_name_valid(ret_name);
}

enum err tls_holder_of_uri(const char *uri, struct tls_holder *ret_holder, struct reason *reason)
{
    static const char scheme[] = "spiffe://";
    struct tls_holder holder = {0};
    char role[TLS_NAME_BYTES_MAX + 1];
    const char *rest = uri;
    if (strncmp(uri, scheme, sizeof scheme - 1) == 0) {
        rest += sizeof scheme - 1;
        if (name_take(&rest, holder.cluster) && name_take(&rest, role) &&
            name_take(&rest, holder.name) && *rest == 0)
            holder.role = tls_role_of_name(role);
    }
    if (holder.role == TLS_ROLE_NONE)
        return reason_set(reason, ERR_UNTRUSTED,
                          "certificate names \"%.200s\", not spiffe://CLUSTER/ROLE/NAME", uri);
    *ret_holder = holder;
    return ERR_OK;
}

/* ---- Parsing and checking ---- */

enum err tls_chain_parse(struct slice pem, const char *path, struct tls_chain *ret_chain,
                         struct reason *reason)
{
    if (pem.bytes > TLS_PEM_BYTES_MAX)
        return reason_set(reason, ERR_UNTRUSTED, "%s: longer than %d bytes", path,
                          TLS_PEM_BYTES_MAX);
    scoped(BIO_free_all_scoped) BIO *bio = BIO_new_mem_buf(pem.data, (int)pem.bytes);
    if (bio == NULL)
        return ERR_NOMEM;
    struct tls_chain chain = {0};
    while (chain.count < TLS_CHAIN_MAX) {
        X509 *certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL);
        if (certificate == NULL)
            break;
        chain.certificates[chain.count++] = certificate;
    }
    ERR_clear_error(); /* the end of the text is one of its errors */
    if (chain.count == 0)
        return reason_set(reason, ERR_UNTRUSTED, "%s: holds no certificate (PEM)", path);
    *ret_chain = chain;
    return ERR_OK;
}

enum err tls_key_parse(struct slice pem, const char *path, EVP_PKEY **ret_key,
                       struct reason *reason)
{
    scoped(BIO_free_all_scoped) BIO *bio = NULL;
    if (pem.bytes <= TLS_PEM_BYTES_MAX)
        bio = BIO_new_mem_buf(pem.data, (int)pem.bytes);
    /* An empty password rather than a question on the terminal. */
    EVP_PKEY *key = bio == NULL ? NULL : PEM_read_bio_PrivateKey(bio, NULL, NULL, (void *)"");
    ERR_clear_error();
    if (key == NULL)
        return reason_set(reason, ERR_UNTRUSTED, "%s: holds no private key (PEM, no password)",
                          path);
    *ret_key = key;
    return ERR_OK;
}

static enum err holder_of(X509 *certificate, const char *path, struct tls_holder *ret_holder,
                          struct reason *reason)
{
    scoped(GENERAL_NAMES_free_scoped) GENERAL_NAMES *names =
        X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    const ASN1_IA5STRING *uri = NULL;
    int uris = 0;
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type == GEN_URI) {
            uri = name->d.uniformResourceIdentifier;
            uris++;
        }
    }
    if (uris != 1)
        return reason_set(reason, ERR_UNTRUSTED,
                          "%s: names no role (its alternative names hold %d URIs, not one)", path,
                          uris);
    const char *text = (const char *)ASN1_STRING_get0_data(uri);
    if (strlen(text) != (size_t)ASN1_STRING_length(uri))
        return reason_set(reason, ERR_UNTRUSTED, "%s: names no role (its URI has a byte 0)", path);
    struct reason why;
    if (tls_holder_of_uri(text, ret_holder, &why) != ERR_OK)
        return reason_set(reason, ERR_UNTRUSTED, "%s: %.400s", path, why.text);
    return ERR_OK;
}

/* ---- Connections ---- */

struct watch {
    const struct tls_observer *observer;
    void *owner;
};

/* Of the next connection: the library that makes it passes nothing of ours on. */
static _Thread_local struct watch next_watch;

void tls_watch_begin(const struct tls_observer *observer, void *owner)
{
    next_watch = (struct watch){observer, owner};
}

bool tls_watch_end(void)
{
    bool made = next_watch.observer == NULL;
    next_watch = (struct watch){0};
    return made;
}

static uint64_t number_digest(const uint8_t *number, size_t bytes)
{
    return digest_fast64((struct slice){number, bytes}) | 1;
}

static uint64_t certificate_digest(X509 *certificate)
{
    const ASN1_INTEGER *number = X509_get0_serialNumber(certificate);
    return number_digest(ASN1_STRING_get0_data(number), (size_t)ASN1_STRING_length(number));
}

static int64_t seconds_of(const ASN1_TIME *time)
{
    scoped(ASN1_TIME_free_scoped) ASN1_TIME *epoch = ASN1_TIME_set(NULL, 0);
    int days = 0, seconds = 0;
    if (epoch == NULL || ASN1_TIME_diff(&days, &seconds, epoch, time) != 1)
        return 0;
    return (int64_t)days * TLS_DAY_S + seconds;
}

static void proved(const SSL *connection, const struct watch *watch)
{
    struct tls_peer peer = {0};
    X509 *certificate = SSL_get0_peer_certificate(connection);
    if (certificate == NULL)
        return;
    /* Who is no holder of ours is refused at each call, with a sentence. */
    ignore(holder_of(certificate, "certificate", &peer.holder, NULL));
    peer.certificate = certificate_digest(certificate);
    peer.ends_s = seconds_of(X509_get0_notAfter(certificate));
    /* without memory it stays zeros, which is nobody's */
    (void)X509_digest(certificate, EVP_sha256(), peer.shown.bytes, NULL);
    watch->observer->proved(watch->owner, &peer);
}

/* OpenSSL handles and answers each such message of all that was read, unless it takes the peer for
 * one that has ended. */
static void rekeyed(SSL *connection, const struct watch *watch)
{
    if (!watch->observer->rekeyed(watch->owner))
        SSL_set_shutdown(connection, SSL_get_shutdown(connection) | SSL_RECEIVED_SHUTDOWN);
}

/* A record's five bytes (RFC 8446 5.1), or a message of a handshake. */
static void message_seen(int sent, int version, int type, const void *bytes, size_t count,
                         SSL *connection, void *argument)
{
    (void)version;
    const struct watch *watch = argument;
    const uint8_t *data = bytes;
    if (sent || count == 0)
        return;
    if (type == SSL3_RT_HEADER && count == SSL3_RT_HEADER_LENGTH)
        watch->observer->received(watch->owner, count + (size_t)(data[3] << 8 | data[4]));
    else if (type == SSL3_RT_HANDSHAKE && data[0] == SSL3_MT_FINISHED)
        proved(connection, watch);
    else if (type == SSL3_RT_HANDSHAKE && data[0] == SSL3_MT_KEY_UPDATE)
        rekeyed(connection, watch);
}

/* OpenSSL calls this for every connection that this process makes … */
static void connection_made(void *connection, void *pointer, CRYPTO_EX_DATA *data, int index,
                            long number, void *argument)
{
    (void)pointer, (void)number, (void)argument;
    SSL_set_mode(connection, SSL_MODE_RELEASE_BUFFERS);
    /* A session that is resumed proves no certificate: it would outlive the end of one. */
    (void)SSL_set_num_tickets(connection, 0);
    SSL_set_options(connection, SSL_OP_NO_TICKET);
    if (next_watch.observer == NULL)
        return;
    struct watch *watch = malloc(sizeof *watch);
    if (watch == NULL || CRYPTO_set_ex_data(data, index, watch) != 1) {
        free(watch); /* tls_watch_end() reports it */
        return;
    }
    *watch = next_watch;
    next_watch = (struct watch){0};
    SSL_set_msg_callback(connection, message_seen);
    SSL_set_msg_callback_arg(connection, watch);
}

/* … and this when it frees one. */
static void connection_freed(void *connection, void *pointer, CRYPTO_EX_DATA *data, int index,
                             long number, void *argument)
{
    (void)connection, (void)data, (void)index, (void)number, (void)argument;
    struct watch *watch = pointer;
    if (watch == NULL)
        return;
    watch->observer->gone(watch->owner);
    free(watch);
}

void tls_process_init(void)
{
    /* OpenSSL would free what threads have of it when the process exits, while gRPC's own threads,
     * which nobody can wait for, end and free the same: a double free. */
    check(OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL) == 1);
    check(SSL_get_ex_new_index(0, NULL, connection_made, NULL, connection_freed) >= 0);
}

/* ---- Validity ---- */

static struct time_text moment_text(int64_t moment_s)
{
    return time_format_utc(moment_s < 0 ? 0 : (uint64_t)moment_s * 1000000000);
}

enum err tls_validity_check(struct tls_validity validity, const char *path, struct reason *reason)
{
    if (validity.now_s > validity.to_s)
        return reason_set(reason, ERR_UNTRUSTED, "%s: expired at %s; make a new one (roost cert)",
                          path, moment_text(validity.to_s).text);
    if (validity.now_s < validity.from_s)
        return reason_set(reason, ERR_NOT_VALID_YET,
                          "%s: valid only from %s on; is this machine's clock right?", path,
                          moment_text(validity.from_s).text);
    return ERR_OK;
}

struct tls_validity tls_validity_of(const X509 *certificate, int64_t now_s)
{
    return (struct tls_validity){.from_s = seconds_of(X509_get0_notBefore(certificate)),
                                 .to_s = seconds_of(X509_get0_notAfter(certificate)),
                                 .now_s = now_s};
}

bool tls_ends_soon(int64_t ends_s, int64_t now_s)
{
    return ends_s != 0 && ends_s - now_s <= (int64_t)WARNING_DAYS * TLS_DAY_S;
}

bool tls_warning_is_due(int64_t ends_s, int64_t now_s, int64_t *warned_s)
{
    bool today = *warned_s != 0 && now_s >= *warned_s && now_s - *warned_s < TLS_DAY_S;
    if (today || !tls_ends_soon(ends_s, now_s))
        return false;
    *warned_s = now_s;
    return true;
}

bool tls_identity_ends_soon(const struct tls_identity *identity, int64_t now_s,
                            struct reason *ret_sentence)
{
    if (!tls_ends_soon(identity->not_after_s, now_s))
        return false;
    reason_set(ret_sentence, ERR_OK, "%s ends at %s; make a new one (roost cert)", identity->path,
               moment_text(identity->not_after_s).text);
    return true;
}

enum err tls_identity_valid(const struct tls_identity *identity, int64_t now_s,
                            struct reason *reason)
{
    return tls_validity_check(
        (struct tls_validity){identity->not_before_s, identity->not_after_s, now_s}, identity->path,
        reason);
}

/* Was `chain` (its holder first) issued by one of the CAs? Times are judged elsewhere. */
static enum err chain_verify(const struct tls_chain *chain, const struct tls_chain *authorities,
                             bool *ret_issued)
{
    scoped(X509_STORE_free_scoped) X509_STORE *store = X509_STORE_new();
    scoped(X509_STORE_CTX_free_scoped) X509_STORE_CTX *context = X509_STORE_CTX_new();
    STACK_OF(X509) *between = sk_X509_new_null();
    bool built = store != NULL && context != NULL && between != NULL;
    for (size_t i = 0; built && i < authorities->count; i++)
        built = X509_STORE_add_cert(store, authorities->certificates[i]) == 1;
    for (size_t i = 1; built && i < chain->count; i++)
        built = sk_X509_push(between, chain->certificates[i]) > 0;
    built = built && X509_STORE_CTX_init(context, store, chain->certificates[0], between) == 1;
    if (built) {
        X509_STORE_CTX_set_flags(context, X509_V_FLAG_NO_CHECK_TIME);
        *ret_issued = X509_verify_cert(context) == 1;
    }
    X509_STORE_CTX_cleanup(context);
    sk_X509_free(between);
    ERR_clear_error();
    return built ? ERR_OK : ERR_NOMEM;
}

/* ---- Identities ---- */

enum err tls_identity_check(struct tls_identity *identity, const struct tls_expected *expected,
                            struct reason *reason)
{
    const char *path = identity->path;
    scoped(tls_chain_release) struct tls_chain authorities = {0};
    scoped(tls_chain_release) struct tls_chain chain = {0};
    scoped(EVP_PKEY_free_scoped) EVP_PKEY *key = NULL;
    TRY(tls_chain_parse(buf_slice(&identity->ca), expected->ca_path, &authorities, reason));
    TRY(tls_chain_parse(buf_slice(&identity->certificate), path, &chain, reason));
    TRY(tls_key_parse(buf_slice(&identity->key), expected->key_path, &key, reason));
    X509 *certificate = chain.certificates[0];

    struct tls_validity validity = tls_validity_of(certificate, expected->now_s);
    TRY(tls_validity_check(validity, path, reason));
    TRY(tls_validity_check(tls_validity_of(authorities.certificates[0], expected->now_s),
                           expected->ca_path, reason));
    bool issued = false;
    TRY(chain_verify(&chain, &authorities, &issued));
    if (!issued)
        return reason_set(reason, ERR_UNTRUSTED, "%s: was not issued by the CA in %s", path,
                          expected->ca_path);
    if (X509_check_private_key(certificate, key) != 1) {
        ERR_clear_error();
        return reason_set(reason, ERR_UNTRUSTED, "%s: is not the key of %s", expected->key_path,
                          path);
    }
    TRY(holder_of(certificate, path, &identity->holder, reason));
    if (identity->holder.role != expected->role)
        return reason_set(reason, ERR_UNTRUSTED, "%s: is a certificate for role %s, not %s", path,
                          tls_role_name(identity->holder.role), tls_role_name(expected->role));
    identity->not_before_s = validity.from_s;
    identity->not_after_s = validity.to_s;
    return ERR_OK;
}

enum err tls_identity_serves(const struct tls_identity *identity, int64_t now_s,
                             struct reason *reason)
{
    scoped(tls_identity_release) struct tls_identity renewed = {0};
    scoped(tls_chain_release) struct tls_chain chain = {0};
    const char *path = identity->path, *lacks;
    bool newer = tls_identity_renewed(identity, now_s, &renewed);
    const struct buf *certificate = newer ? &renewed.certificate : &identity->certificate;
    TRY(tls_chain_parse(buf_slice(certificate), path, &chain, reason));
    if (X509_check_purpose(chain.certificates[0], X509_PURPOSE_SSL_SERVER, 0) != 1)
        lacks = "is for clients only";
    else if (X509_check_host(chain.certificates[0], TLS_WORKER_HOST, 0,
                             X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) != 1)
        lacks = "does not name " TLS_WORKER_HOST;
    else
        return ERR_OK;
    ERR_clear_error();
    return reason_set(
        reason, ERR_UNTRUSTED,
        "%s: %s, so that no other worker can ask this one; make a new one (roost cert)", path,
        lacks);
}

void tls_identity_release(struct tls_identity *identity)
{
    buf_release(&identity->ca);
    buf_release(&identity->certificate);
    tls_secret_release(&identity->key);
}

/* ---- What a certificate says ---- */

enum err tls_certificate_digest(struct slice certificate, struct digest *ret_digest)
{
    scoped(tls_chain_release) struct tls_chain chain = {0};
    TRY(tls_chain_parse(certificate, "certificate", &chain, NULL));
    return X509_digest(chain.certificates[0], EVP_sha256(), ret_digest->bytes, NULL) == 1
               ? ERR_OK
               : ERR_NOMEM;
}

enum err tls_ca_cluster(struct slice ca, const char *path,
                        char ret_cluster[static TLS_NAME_BYTES_MAX + 1], struct reason *reason)
{
    scoped(tls_chain_release) struct tls_chain chain = {0};
    TRY(tls_chain_parse(ca, path, &chain, reason));
    char cluster[TLS_NAME_BYTES_MAX + 1];
    X509_NAME *subject = X509_get_subject_name(chain.certificates[0]);
    if (X509_NAME_get_text_by_NID(subject, NID_organizationName, cluster, sizeof cluster) < 0 ||
        !tls_name_valid(cluster))
        return reason_set(reason, ERR_UNTRUSTED, "%s: is not a CA of roost (names no cluster)",
                          path);
    memcpy(ret_cluster, cluster, sizeof cluster);
    return ERR_OK;
}

/* ---- Revoked certificates ---- */

enum err tls_issued(const struct tls_issuance *issuance, bool *ret_issued, struct reason *reason)
{
    scoped(tls_chain_release) struct tls_chain chain = {0}, authorities = {0};
    TRY(tls_chain_parse(issuance->ca, issuance->ca_path, &authorities, reason));
    TRY(tls_chain_parse(issuance->certificate, issuance->path, &chain, reason));
    return chain_verify(&chain, &authorities, ret_issued);
}

enum err tls_revoked_line(struct slice certificate, const char *path, int64_t now_s,
                          struct buf *ret_line, struct reason *reason)
{
    scoped(tls_chain_release) struct tls_chain chain = {0};
    struct tls_holder holder;
    TRY(tls_chain_parse(certificate, path, &chain, reason));
    TRY(holder_of(chain.certificates[0], path, &holder, reason));
    const ASN1_INTEGER *number = X509_get0_serialNumber(chain.certificates[0]);
    const uint8_t *bytes = ASN1_STRING_get0_data(number);
    if (ASN1_STRING_length(number) > NUMBER_BYTES_MAX)
        return reason_set(reason, ERR_UNTRUSTED,
                          "%s: its number has more than %d bytes, so no list can name it; make a "
                          "new CA (roost cert)",
                          path, NUMBER_BYTES_MAX);
    for (int i = 0; i < ASN1_STRING_length(number); i++)
        TRY(buf_printf(ret_line, "%02x", bytes[i]));
    return buf_printf(ret_line, " %s/%s %s\n", tls_role_name(holder.role), holder.name,
                      moment_text(now_s).text);
}

/* The number at the beginning of a line, as tls_revoked_line() writes it. 0: there is none. A zero in
 * front is none of it: no certificate's number has one, so that line would revoke nothing. */
static uint64_t line_digest(const char *line, size_t bytes)
{
    uint8_t number[NUMBER_BYTES_MAX];
    size_t digits = 0;
    while (digits < bytes && line[digits] != ' ')
        digits++;
    if (digits == 0 || digits % 2 != 0 || digits > 2 * sizeof number)
        return 0;
    for (size_t i = 0; i < digits; i++) {
        char c = line[i];
        int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (value < 0)
            return 0;
        number[i / 2] = (uint8_t)(i % 2 == 0 ? value << 4 : number[i / 2] | value);
    }
    return number[0] == 0 && digits > 2 ? 0 : number_digest(number, digits / 2);
}

enum err tls_revoked_parse(struct slice text, const char *path, struct tls_revoked *ret_revoked,
                           struct reason *reason)
{
    uint32_t count = 0;
    uint64_t certificates[TLS_REVOKED_MAX];
    size_t at = 0;
    for (unsigned line = 1; at < text.bytes; line++) {
        const char *from = (const char *)text.data + at;
        const char *end = memchr(from, '\n', text.bytes - at);
        size_t bytes = end != NULL ? (size_t)(end - from) : text.bytes - at;
        uint64_t certificate = line_digest(from, bytes);
        if (certificate == 0)
            return reason_set(
                reason, ERR_UNTRUSTED,
                "%s: line %u begins with no certificate's number (roost cert --revoke)", path,
                line);
        if (count == TLS_REVOKED_MAX)
            return reason_set(reason, ERR_UNTRUSTED,
                              "%s: line %u is one too many; remove lines of certificates that have "
                              "expired",
                              path, line);
        certificates[count++] = certificate;
        at += bytes + 1;
    }
    memcpy(ret_revoked->certificates, certificates, count * sizeof *certificates);
    ret_revoked->count = count;
    return ERR_OK;
}
