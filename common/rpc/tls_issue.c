/* New certificates: the cluster's CA, and those that it issues. */
#include "common/rpc/tls.h"
#include "common/rpc/tls_core.h"

#include <arpa/inet.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

enum {
    BACKDATE_S = 300, /* clocks of a cluster differ by less */
    VALID_DAYS_MAX = 36500
};

SCOPED_FREE(X509, X509_free)
SCOPED_FREE(X509_EXTENSION, X509_EXTENSION_free)

static enum err openssl_failed(struct reason *reason, const char *what)
{
    char text[256];
    ERR_error_string_n(ERR_get_error(), text, sizeof text);
    ERR_clear_error();
    return reason_set(reason, ERR_INVALID, "%s: %s", what, text);
}

static enum err pem_of_bio(BIO *bio, struct buf *ret_pem)
{
    char *data = NULL;
    long bytes = BIO_get_mem_data(bio, &data);
    scoped(tls_secret_release) struct buf pem = {0};
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
    if (valid_s >= 1 && valid_s <= (int64_t)VALID_DAYS_MAX * TLS_DAY_S)
        return ERR_OK;
    return reason_set(reason, ERR_INVALID, "a certificate's validity is 1 second to %d days",
                      VALID_DAYS_MAX);
}

static enum err name_wanted(const char *what, const char *name, struct reason *reason)
{
    if (tls_name_valid(name))
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

/* ---- Hosts ---- */

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
        if (*c == '.' || *c == '-' ? label == 0 : !tls_name_character(*c) || *c == '_')
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

enum err tls_hosts_of(struct slice certificate, struct tls_hosts *ret_hosts, struct reason *reason)
{
    scoped(tls_chain_release) struct tls_chain chain = {0};
    *ret_hosts = (struct tls_hosts){0};
    TRY(tls_chain_parse(certificate, "certificate", &chain, reason));
    scoped(GENERAL_NAMES_free_scoped) GENERAL_NAMES *names =
        X509_get_ext_d2i(chain.certificates[0], NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++)
        TRY(host_add(ret_hosts, sk_GENERAL_NAME_value(names, i), reason));
    return ERR_OK;
}

/* ---- Issuing ---- */

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

/* With its alternative names. */
static enum err request_wanted(const struct tls_request *request, struct buf *names,
                               struct reason *reason)
{
    check(request->holder.role != TLS_ROLE_NONE);
    TRY(name_wanted("cluster", request->holder.cluster, reason));
    TRY(name_wanted("name", request->holder.name, reason));
    TRY(validity_wanted(request->valid_s, reason));
    return names_text(request, names, reason);
}

enum err tls_request_check(const struct tls_request *request, struct reason *reason)
{
    scoped(buf_release) struct buf names = {0};
    return request_wanted(request, &names, reason);
}

enum err tls_issue(struct slice ca, struct slice ca_key, const struct tls_request *request,
                   struct buf *ret_certificate, struct buf *ret_key, struct reason *reason)
{
    const struct tls_holder *holder = &request->holder;
    scoped(buf_release) struct buf names = {0};
    TRY(request_wanted(request, &names, reason));
    scoped(tls_chain_release) struct tls_chain authorities = {0};
    scoped(EVP_PKEY_free_scoped) EVP_PKEY *authority_key = NULL;
    TRY(tls_chain_parse(ca, "CA's certificate", &authorities, reason));
    TRY(tls_key_parse(ca_key, "CA's key", &authority_key, reason));
    X509 *authority = authorities.certificates[0];
    if (X509_check_private_key(authority, authority_key) != 1)
        return openssl_failed(reason, "CA's key does not belong to CA's certificate");
    struct tls_validity authority_validity = tls_validity_of(authority, request->now_s);
    TRY(tls_validity_check(authority_validity, "CA's certificate", reason));

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
