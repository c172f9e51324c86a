/* Certificates with OpenSSL 3: names, checks, issuing. The files are tls_dir.c's matter. */
#include "common/rpc/tls.h"

#include "common/scoped.h"
#include "common/time.h"

#include <arpa/inet.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

enum {
    BACKDATE_S = 300, /* clocks of a cluster differ by less */
    DAY_S = 86400,
    WARNING_DAYS = 7,
    VALID_DAYS_MAX = 36500,
    CHAIN_MAX = 16,       /* certificates in one file */
    NUMBER_BYTES_MAX = 20 /* RFC 5280 4.1.2.2 */
};

SCOPED_FREE(ASN1_TIME, ASN1_TIME_free)
SCOPED_FREE(BIO, BIO_free_all)
SCOPED_FREE(EVP_PKEY, EVP_PKEY_free)
SCOPED_FREE(GENERAL_NAMES, GENERAL_NAMES_free)
SCOPED_FREE(X509, X509_free)
SCOPED_FREE(X509_EXTENSION, X509_EXTENSION_free)
SCOPED_FREE(X509_STORE, X509_STORE_free)
SCOPED_FREE(X509_STORE_CTX, X509_STORE_CTX_free)

/* ---- Certificates ---- */

struct chain {
    X509 *certificates[CHAIN_MAX];
    size_t count;
};

static void chain_release(struct chain *chain)
{
    for (size_t i = 0; i < chain->count; i++)
        X509_free(chain->certificates[i]);
}

static void secret_release(struct buf *secret)
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

static bool name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

static bool name_valid(const char *name)
{
    size_t bytes = strnlen(name, TLS_NAME_BYTES_MAX + 1);
    if (bytes == 0 || bytes > TLS_NAME_BYTES_MAX)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (!name_character(name[i]))
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
    return name_valid(ret_name);
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

static enum err openssl_failed(struct reason *reason, const char *what)
{
    char text[256];
    ERR_error_string_n(ERR_get_error(), text, sizeof text);
    ERR_clear_error();
    return reason_set(reason, ERR_INVALID, "%s: %s", what, text);
}

static enum err chain_parse(struct slice pem, const char *path, struct chain *ret_chain,
                            struct reason *reason)
{
    if (pem.bytes > TLS_PEM_BYTES_MAX)
        return reason_set(reason, ERR_UNTRUSTED, "%s: longer than %d bytes", path,
                          TLS_PEM_BYTES_MAX);
    scoped(BIO_free_all_scoped) BIO *bio = BIO_new_mem_buf(pem.data, (int)pem.bytes);
    if (bio == NULL)
        return ERR_NOMEM;
    struct chain chain = {0};
    while (chain.count < CHAIN_MAX) {
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

static enum err key_parse(struct slice pem, const char *path, EVP_PKEY **ret_key,
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
    return (int64_t)days * DAY_S + seconds;
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

struct validity {
    int64_t from_s, to_s, now_s;
};

static enum err validity_check(struct validity validity, const char *path, struct reason *reason)
{
    if (validity.now_s > validity.to_s)
        return reason_set(reason, ERR_UNTRUSTED, "%s: expired at %s; make a new one (roost cert)",
                          path, moment_text(validity.to_s).text);
    if (validity.now_s < validity.from_s)
        return reason_set(reason, ERR_UNTRUSTED,
                          "%s: valid only from %s on; is this machine's clock right?", path,
                          moment_text(validity.from_s).text);
    return ERR_OK;
}

static struct validity validity_of(const X509 *certificate, int64_t now_s)
{
    return (struct validity){.from_s = seconds_of(X509_get0_notBefore(certificate)),
                             .to_s = seconds_of(X509_get0_notAfter(certificate)),
                             .now_s = now_s};
}

bool tls_ends_soon(int64_t ends_s, int64_t now_s)
{
    return ends_s != 0 && ends_s - now_s <= (int64_t)WARNING_DAYS * DAY_S;
}

bool tls_warning_is_due(int64_t ends_s, int64_t now_s, int64_t *warned_s)
{
    bool today = *warned_s != 0 && now_s >= *warned_s && now_s - *warned_s < DAY_S;
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
    return validity_check((struct validity){identity->not_before_s, identity->not_after_s, now_s},
                          identity->path, reason);
}

/* Was `chain` (its holder first) issued by one of the CAs? Times are judged elsewhere. */
static enum err chain_verify(const struct chain *chain, const struct chain *authorities,
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
    scoped(chain_release) struct chain authorities = {0};
    scoped(chain_release) struct chain chain = {0};
    scoped(EVP_PKEY_free_scoped) EVP_PKEY *key = NULL;
    TRY(chain_parse(buf_slice(&identity->ca), expected->ca_path, &authorities, reason));
    TRY(chain_parse(buf_slice(&identity->certificate), path, &chain, reason));
    TRY(key_parse(buf_slice(&identity->key), expected->key_path, &key, reason));
    X509 *certificate = chain.certificates[0];

    struct validity validity = validity_of(certificate, expected->now_s);
    TRY(validity_check(validity, path, reason));
    TRY(validity_check(validity_of(authorities.certificates[0], expected->now_s), expected->ca_path,
                       reason));
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
    scoped(chain_release) struct chain chain = {0};
    const char *path = identity->path, *lacks;
    bool newer = tls_identity_renewed(identity, now_s, &renewed);
    const struct buf *certificate = newer ? &renewed.certificate : &identity->certificate;
    TRY(chain_parse(buf_slice(certificate), path, &chain, reason));
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
    secret_release(&identity->key);
}

/* ---- Issuing ---- */

static enum err pem_of_bio(BIO *bio, struct buf *ret_pem)
{
    char *data = NULL;
    long bytes = BIO_get_mem_data(bio, &data);
    scoped(secret_release) struct buf pem = {0};
    TRY(buf_append(&pem, data, (size_t)bytes));
    TRY(buf_append(&pem, "", 1));
    pem.bytes--;
    *ret_pem = buf_detach(&pem);
    return ERR_OK;
}

static enum err pem_of(X509 *certificate, EVP_PKEY *key, struct buf *ret_certificate,
                       struct buf *ret_key)
{
    scoped(BIO_free_all_scoped) BIO *certificate_bio = BIO_new(BIO_s_mem());
    scoped(BIO_free_all_scoped) BIO *key_bio = BIO_new(BIO_s_secmem());
    if (certificate_bio == NULL || key_bio == NULL ||
        PEM_write_bio_X509(certificate_bio, certificate) != 1 ||
        PEM_write_bio_PrivateKey(key_bio, key, NULL, NULL, 0, NULL, NULL) != 1)
        return ERR_NOMEM;
    scoped(buf_release) struct buf certificate_pem = {0};
    TRY(pem_of_bio(certificate_bio, &certificate_pem));
    TRY(pem_of_bio(key_bio, ret_key));
    *ret_certificate = buf_detach(&certificate_pem);
    return ERR_OK;
}

static bool serial_set(X509 *certificate)
{
    uint8_t bytes[16]; /* RFC 5280 4.1.2.2: positive, at most 20 octets */
    if (RAND_bytes(bytes, sizeof bytes) != 1)
        return false;
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    BIGNUM *number = BN_bin2bn(bytes, sizeof bytes, NULL);
    bool set =
        number != NULL && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != NULL;
    BN_free(number);
    return set;
}

static bool name_add(X509_NAME *name, const char *field, const char *text)
{
    return X509_NAME_add_entry_by_txt(name, field, MBSTRING_ASC, (const uint8_t *)text, -1, -1,
                                      0) == 1;
}

static bool extension_add(X509 *certificate, X509V3_CTX *context, int nid, const char *text)
{
    scoped(X509_EXTENSION_free_scoped) X509_EXTENSION *extension =
        X509V3_EXT_conf_nid(NULL, context, nid, text);
    return extension != NULL && X509_add_ext(certificate, extension, -1) == 1;
}

/* What CA and other certificates have in common: serial, names, times, key. */
struct body {
    const char *organization, *common_name;
    const X509_NAME *issuer; /* NULL: itself */
    int64_t from_s, to_s;
    EVP_PKEY *key;
};

static bool body_set(X509 *certificate, const struct body *body)
{
    X509_NAME *subject = X509_get_subject_name(certificate);
    return X509_set_version(certificate, X509_VERSION_3) == 1 && serial_set(certificate) &&
           name_add(subject, "O", body->organization) &&
           name_add(subject, "CN", body->common_name) &&
           X509_set_issuer_name(certificate, body->issuer == NULL ? subject : body->issuer) == 1 &&
           ASN1_TIME_set(X509_getm_notBefore(certificate), (time_t)body->from_s) != NULL &&
           ASN1_TIME_set(X509_getm_notAfter(certificate), (time_t)body->to_s) != NULL &&
           X509_set_pubkey(certificate, body->key) == 1;
}

static enum err validity_wanted(int64_t valid_s, struct reason *reason)
{
    if (valid_s >= 1 && valid_s <= (int64_t)VALID_DAYS_MAX * DAY_S)
        return ERR_OK;
    return reason_set(reason, ERR_INVALID, "a certificate's validity is 1 second to %d days",
                      VALID_DAYS_MAX);
}

static enum err name_wanted(const char *what, const char *name, struct reason *reason)
{
    if (name_valid(name))
        return ERR_OK;
    return reason_set(reason, ERR_INVALID,
                      "%s \"%.80s\": a name has 1 to %d letters, digits, '.', '_' or '-'", what,
                      name, TLS_NAME_BYTES_MAX);
}

enum err tls_ca_create(const char *cluster, int64_t now_s, int64_t valid_s,
                       struct buf *ret_certificate, struct buf *ret_key, struct reason *reason)
{
    TRY(name_wanted("cluster", cluster, reason));
    TRY(validity_wanted(valid_s, reason));
    scoped(EVP_PKEY_free_scoped) EVP_PKEY *key = EVP_EC_gen("P-256");
    scoped(X509_free_scoped) X509 *certificate = X509_new();
    if (key == NULL || certificate == NULL)
        return openssl_failed(reason, "making the CA's key");
    struct body body = {.organization = cluster,
                        .common_name = "roost CA",
                        .from_s = now_s - BACKDATE_S,
                        .to_s = now_s + valid_s,
                        .key = key};
    bool made = body_set(certificate, &body);
    X509V3_CTX context;
    X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
    made =
        made &&
        extension_add(certificate, &context, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
        extension_add(certificate, &context, NID_key_usage, "critical,keyCertSign,cRLSign") &&
        extension_add(certificate, &context, NID_subject_key_identifier, "hash") &&
        X509_sign(certificate, key, EVP_sha256()) > 0;
    if (!made)
        return openssl_failed(reason, "making the CA");
    return pem_of(certificate, key, ret_certificate, ret_key);
}

static bool host_is_address(const char *host)
{
    uint8_t address[16];
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

/* A DNS name: labels of letters, digits and, not first, '-', with dots between them. */
static bool host_is_name(const char *host)
{
    size_t label = 0;
    for (const char *c = host; *c != 0; c++) {
        if (*c == '.' || *c == '-' ? label == 0 : !name_character(*c) || *c == '_')
            return false;
        label = *c == '.' ? 0 : label + 1;
        if (label > 63)
            return false;
    }
    return label > 0 && strlen(host) <= TLS_HOST_BYTES_MAX;
}

static const char *const local_hosts[] = {"localhost", "127.0.0.1", "::1"};
enum { LOCAL_HOSTS = sizeof local_hosts / sizeof local_hosts[0] };

enum err tls_hosts_add(struct tls_hosts *hosts, const char *host, struct reason *reason)
{
    for (size_t i = 0; i < LOCAL_HOSTS; i++)
        if (strcmp(local_hosts[i], host) == 0)
            return ERR_OK;
    for (size_t i = 0; i < hosts->count; i++)
        if (strcmp(hosts->names[i], host) == 0)
            return ERR_OK;
    if (hosts->count == TLS_HOSTS_MAX)
        return reason_set(reason, ERR_INVALID, "more than %d hosts for one certificate",
                          TLS_HOSTS_MAX);
    if (strlen(host) > TLS_HOST_BYTES_MAX)
        return reason_set(reason, ERR_INVALID, "host \"%.80s...\": neither a name nor an address",
                          host);
    memcpy(hosts->names[hosts->count++], host, strlen(host) + 1);
    return ERR_OK;
}

/* Whole or not at all: what stands before a byte 0 is another host. */
static enum err host_add(struct tls_hosts *hosts, const GENERAL_NAME *name, struct reason *reason)
{
    char text[TLS_HOST_BYTES_MAX + 1] = "";
    const ASN1_STRING *value = name->type == GEN_DNS     ? name->d.dNSName
                               : name->type == GEN_IPADD ? name->d.iPAddress
                                                         : NULL;
    if (value == NULL)
        return ERR_OK;
    const uint8_t *bytes = ASN1_STRING_get0_data(value);
    size_t count = (size_t)ASN1_STRING_length(value);
    if (name->type == GEN_IPADD && (count == 4 || count == 16))
        (void)inet_ntop(count == 4 ? AF_INET : AF_INET6, bytes, text, sizeof text);
    else if (name->type == GEN_DNS && count < sizeof text && memchr(bytes, 0, count) == NULL)
        memcpy(text, bytes, count);
    if (text[0] == 0)
        return reason_set(reason, ERR_INVALID, "one of its hosts is neither a name nor an address");
    return tls_hosts_add(hosts, text, reason);
}

enum err tls_certificate_digest(struct slice certificate, struct digest *ret_digest)
{
    scoped(chain_release) struct chain chain = {0};
    TRY(chain_parse(certificate, "certificate", &chain, NULL));
    return X509_digest(chain.certificates[0], EVP_sha256(), ret_digest->bytes, NULL) == 1
               ? ERR_OK
               : ERR_NOMEM;
}

enum err tls_hosts_of(struct slice certificate, struct tls_hosts *ret_hosts, struct reason *reason)
{
    scoped(chain_release) struct chain chain = {0};
    *ret_hosts = (struct tls_hosts){0};
    TRY(chain_parse(certificate, "certificate", &chain, reason));
    scoped(GENERAL_NAMES_free_scoped) GENERAL_NAMES *names =
        X509_get_ext_d2i(chain.certificates[0], NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++)
        TRY(host_add(ret_hosts, sk_GENERAL_NAME_value(names, i), reason));
    return ERR_OK;
}

/* The alternative names, as OpenSSL's configuration has them. */
static enum err names_text(const struct tls_request *request, struct buf *text,
                           struct reason *reason)
{
    const struct tls_holder *holder = &request->holder;
    TRY(buf_printf(text, "URI:spiffe://%s/%s/%s", holder->cluster, tls_role_name(holder->role),
                   holder->name));
    if (holder->role == TLS_ROLE_WORKER)
        TRY(buf_printf(text, ",DNS:%s", TLS_WORKER_HOST));
    if (holder->role != TLS_ROLE_SERVER)
        return ERR_OK;
    if (request->host_count > TLS_HOSTS_MAX)
        return reason_set(reason, ERR_INVALID, "more than %d hosts for one certificate",
                          TLS_HOSTS_MAX);
    for (size_t i = 0; i < LOCAL_HOSTS + request->host_count; i++) {
        const char *host = i < LOCAL_HOSTS ? local_hosts[i] : request->hosts[i - LOCAL_HOSTS];
        bool address = host_is_address(host);
        if (!address && !host_is_name(host))
            return reason_set(reason, ERR_INVALID, "host \"%.80s\": neither a name nor an address",
                              host);
        TRY(buf_printf(text, ",%s:%s", address ? "IP" : "DNS", host));
    }
    return ERR_OK;
}

static bool leaf_sign(X509 *certificate, X509 *ca, EVP_PKEY *ca_key, enum tls_role role,
                      const char *names)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, ca, certificate, NULL, NULL, 0);
    const char *use = role == TLS_ROLE_OPERATOR ? "clientAuth" : "serverAuth,clientAuth";
    return extension_add(certificate, &context, NID_basic_constraints, "critical,CA:FALSE") &&
           extension_add(certificate, &context, NID_key_usage, "critical,digitalSignature") &&
           extension_add(certificate, &context, NID_ext_key_usage, use) &&
           extension_add(certificate, &context, NID_subject_key_identifier, "hash") &&
           extension_add(certificate, &context, NID_authority_key_identifier, "keyid:always") &&
           extension_add(certificate, &context, NID_subject_alt_name, names) &&
           X509_sign(certificate, ca_key, EVP_sha256()) > 0;
}

enum err tls_issue(struct slice ca, struct slice ca_key, const struct tls_request *request,
                   struct buf *ret_certificate, struct buf *ret_key, struct reason *reason)
{
    const struct tls_holder *holder = &request->holder;
    check(holder->role != TLS_ROLE_NONE);
    TRY(name_wanted("cluster", holder->cluster, reason));
    TRY(name_wanted("name", holder->name, reason));
    TRY(validity_wanted(request->valid_s, reason));
    scoped(buf_release) struct buf names = {0};
    TRY(names_text(request, &names, reason));
    scoped(chain_release) struct chain authorities = {0};
    scoped(EVP_PKEY_free_scoped) EVP_PKEY *authority_key = NULL;
    TRY(chain_parse(ca, "CA's certificate", &authorities, reason));
    TRY(key_parse(ca_key, "CA's key", &authority_key, reason));
    X509 *authority = authorities.certificates[0];
    if (X509_check_private_key(authority, authority_key) != 1)
        return openssl_failed(reason, "CA's key does not belong to CA's certificate");
    struct validity authority_validity = validity_of(authority, request->now_s);
    TRY(validity_check(authority_validity, "CA's certificate", reason));

    scoped(EVP_PKEY_free_scoped) EVP_PKEY *key = EVP_EC_gen("P-256");
    scoped(X509_free_scoped) X509 *certificate = X509_new();
    if (key == NULL || certificate == NULL)
        return openssl_failed(reason, "making a key");
    struct body body = {.organization = holder->cluster,
                        .common_name = holder->name,
                        .issuer = X509_get_subject_name(authority),
                        .from_s = request->now_s - BACKDATE_S,
                        .to_s = request->now_s + request->valid_s,
                        .key = key};
    if (body.to_s > authority_validity.to_s)
        body.to_s = authority_validity.to_s;
    if (!body_set(certificate, &body) ||
        !leaf_sign(certificate, authority, authority_key, holder->role, (const char *)names.data))
        return openssl_failed(reason, "making a certificate");
    return pem_of(certificate, key, ret_certificate, ret_key);
}

enum err tls_ca_cluster(struct slice ca, const char *path,
                        char ret_cluster[static TLS_NAME_BYTES_MAX + 1], struct reason *reason)
{
    scoped(chain_release) struct chain chain = {0};
    TRY(chain_parse(ca, path, &chain, reason));
    char cluster[TLS_NAME_BYTES_MAX + 1];
    X509_NAME *subject = X509_get_subject_name(chain.certificates[0]);
    if (X509_NAME_get_text_by_NID(subject, NID_organizationName, cluster, sizeof cluster) < 0 ||
        !name_valid(cluster))
        return reason_set(reason, ERR_UNTRUSTED, "%s: is not a CA of roost (names no cluster)",
                          path);
    memcpy(ret_cluster, cluster, sizeof cluster);
    return ERR_OK;
}

/* ---- Revoked certificates ---- */

enum err tls_revoked_line(struct slice certificate, const char *path, int64_t now_s,
                          struct buf *ret_line, struct reason *reason)
{
    scoped(chain_release) struct chain chain = {0};
    struct tls_holder holder;
    TRY(chain_parse(certificate, path, &chain, reason));
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
