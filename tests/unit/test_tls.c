/* Certificates in memory: names, issuing, checks. The clock is 2026-01-01. */
#include "common/rpc/tls.h"
#include "tests/unit/unit.h"

#include <sys/wait.h>
#include <unistd.h>

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

enum { NOW_S = 1767225600, HOUR_S = 3600 };

struct pair {
    struct buf certificate, key;
};

static void pair_release(struct pair *pair)
{
    buf_release(&pair->certificate);
    buf_release(&pair->key);
}

static struct pair ca_of(const char *cluster, int64_t valid_s)
{
    struct pair ca = {0};
    struct reason reason = {0};
    if (tls_ca_create(cluster, NOW_S, valid_s, &ca.certificate, &ca.key, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    return ca;
}

static struct tls_request request_of(enum tls_role role)
{
    return (struct tls_request){.holder = {.role = role, .cluster = "nest", .name = "n-1.x_y"},
                                .now_s = NOW_S,
                                .valid_s = HOUR_S};
}

static int exit_pipe[2];

static void say_freed(void)
{
    check(write(exit_pipe[1], "f", 1) == 1);
}

/* The first test: the library is asked in a process that has not used it. */
TEST(what_openssl_has_is_not_freed_at_exit)
{
    char said;
    int status;
    assert_int_equal(pipe(exit_pipe), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tls_process_init();
        SSL_CTX_free(SSL_CTX_new(TLS_method()));
        exit(OPENSSL_atexit(say_freed) == 1 ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    close(exit_pipe[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
    assert_int_equal(read(exit_pipe[0], &said, 1), 0);
    close(exit_pipe[0]);
}

static enum err issue(const struct pair *ca, const struct tls_request *request,
                      struct pair *ret_pair, struct reason *reason)
{
    return tls_issue(buf_slice(&ca->certificate), buf_slice(&ca->key), request,
                     &ret_pair->certificate, &ret_pair->key, reason);
}

/* An identity of these texts; the caller checks it. */
static struct tls_identity identity_of(const struct buf *ca, const struct buf *certificate,
                                       const struct buf *key)
{
    struct tls_identity identity = {.path = "w.crt"};
    assert_int_equal(buf_append(&identity.ca, ca->data, ca->bytes), ERR_OK);
    assert_int_equal(buf_append(&identity.certificate, certificate->data, certificate->bytes),
                     ERR_OK);
    assert_int_equal(buf_append(&identity.key, key->data, key->bytes), ERR_OK);
    return identity;
}

static enum err check_at(struct tls_identity *identity, enum tls_role role, int64_t now_s,
                         struct reason *reason)
{
    struct tls_expected expected = {
        .ca_path = "ca.crt", .key_path = "w.key", .role = role, .now_s = now_s};
    return tls_identity_check(identity, &expected, reason);
}

TEST(a_uri_names_cluster_role_and_holder)
{
    struct tls_holder holder = {0};
    assert_int_equal(tls_holder_of_uri("spiffe://nest/operator/ann", &holder, NULL), ERR_OK);
    assert_int_equal(holder.role, TLS_ROLE_OPERATOR);
    assert_string_equal(holder.cluster, "nest");
    assert_string_equal(holder.name, "ann");
    static const char long_name[] = /* 65 letters */
        "spiffe://nest/worker/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    static const char *const bad[] = {"",
                                      "spiffe://",
                                      "spiffe://nest/worker",
                                      "spiffe://nest/worker/",
                                      "spiffe://nest/admin/ann",
                                      "spiffe://nest/none/ann",
                                      "spiffe:///worker/ann",
                                      "spiffe://nest/worker/a/b",
                                      "spiffe://nest/worker/a b",
                                      "https://nest/worker/a",
                                      "SPIFFE://nest/worker/a",
                                      long_name};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(tls_holder_of_uri(bad[i], &holder, NULL), ERR_UNTRUSTED);
    assert_int_equal(holder.role, TLS_ROLE_OPERATOR); /* untouched */
}

TEST(roles_have_names_and_names_roles)
{
    for (unsigned role = TLS_ROLE_SERVER; role < TLS_ROLE_COUNT; role++)
        assert_int_equal(tls_role_of_name(tls_role_name((enum tls_role)role)), role);
    assert_int_equal(tls_role_of_name("none"), TLS_ROLE_NONE);
    assert_int_equal(tls_role_of_name("root"), TLS_ROLE_NONE);
}

TEST(an_issued_certificate_passes_its_check_and_says_who_holds_it)
{
    scoped(pair_release) struct pair ca = ca_of("nest", 10 * HOUR_S);
    for (unsigned role = TLS_ROLE_SERVER; role < TLS_ROLE_COUNT; role++) {
        scoped(pair_release) struct pair pair = {0};
        struct tls_request request = request_of((enum tls_role)role);
        struct reason reason = {0};
        assert_int_equal(issue(&ca, &request, &pair, &reason), ERR_OK);
        scoped(tls_identity_release) struct tls_identity identity =
            identity_of(&ca.certificate, &pair.certificate, &pair.key);
        if (check_at(&identity, (enum tls_role)role, NOW_S, &reason) != ERR_OK)
            fail_msg("%s", reason.text);
        assert_int_equal(identity.holder.role, role);
        assert_string_equal(identity.holder.cluster, "nest");
        assert_string_equal(identity.holder.name, "n-1.x_y");
        assert_int_equal(identity.not_before_s, NOW_S - 300);
        assert_int_equal(identity.not_after_s, NOW_S + HOUR_S);
    }
}

static X509 *certificate_of(const struct buf *pem)
{
    BIO *bio = BIO_new_mem_buf(pem->data, (int)pem->bytes);
    X509 *certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    assert_non_null(certificate);
    BIO_free(bio);
    return certificate;
}

static bool fit_for(const struct pair *pair, int purpose)
{
    X509 *certificate = certificate_of(&pair->certificate);
    bool fit = X509_check_purpose(certificate, purpose, 0) == 1;
    X509_free(certificate);
    return fit;
}

/* A worker's is one for other workers, under a name that is no address. */
TEST(an_operators_certificate_makes_no_server)
{
    scoped(pair_release) struct pair ca = ca_of("nest", 10 * HOUR_S);
    for (unsigned role = TLS_ROLE_SERVER; role < TLS_ROLE_COUNT; role++) {
        scoped(pair_release) struct pair pair = {0};
        struct tls_request request = request_of((enum tls_role)role);
        assert_int_equal(issue(&ca, &request, &pair, NULL), ERR_OK);
        assert_int_equal(fit_for(&pair, X509_PURPOSE_SSL_SERVER), role != TLS_ROLE_OPERATOR);
        assert_true(fit_for(&pair, X509_PURPOSE_SSL_CLIENT));
    }
}

TEST(a_certificate_ends_with_its_ca)
{
    scoped(pair_release) struct pair ca = ca_of("nest", HOUR_S / 2), pair = {0};
    struct tls_request request = request_of(TLS_ROLE_WORKER);
    struct reason reason = {0};
    assert_int_equal(issue(&ca, &request, &pair, &reason), ERR_OK);
    scoped(tls_identity_release) struct tls_identity identity =
        identity_of(&ca.certificate, &pair.certificate, &pair.key);
    assert_int_equal(check_at(&identity, TLS_ROLE_WORKER, NOW_S, &reason), ERR_OK);
    assert_int_equal(identity.not_after_s, NOW_S + HOUR_S / 2);
    request.now_s += HOUR_S;
    pair_release(&pair);
    pair = (struct pair){0};
    assert_int_equal(issue(&ca, &request, &pair, &reason), ERR_UNTRUSTED);
}

TEST(what_is_wrong_with_an_identity_is_said)
{
    scoped(pair_release) struct pair ca = ca_of("nest", 10 * HOUR_S);
    scoped(pair_release) struct pair foreign = ca_of("nest", 10 * HOUR_S);
    scoped(pair_release) struct pair pair = {0};
    scoped(pair_release) struct pair other = {0};
    struct tls_request request = request_of(TLS_ROLE_WORKER);
    struct reason reason = {0};
    assert_int_equal(issue(&ca, &request, &pair, &reason), ERR_OK);
    assert_int_equal(issue(&ca, &request, &other, &reason), ERR_OK);
    struct buf text = {(uint8_t *)(uintptr_t) "no PEM", 6, 0, 0};

    const struct {
        const struct buf *ca, *certificate, *key;
        enum tls_role role;
        int64_t now_s;
        enum err err;
        const char *text;
    } rows[] = {
        {&ca.certificate, &pair.certificate, &pair.key, TLS_ROLE_WORKER, NOW_S + HOUR_S + 1,
         ERR_UNTRUSTED, "w.crt: expired at 2026-01-01T01:00:00.000Z; make a new one (roost cert)"},
        {&ca.certificate, &pair.certificate, &pair.key, TLS_ROLE_WORKER, NOW_S - 301,
         ERR_NOT_VALID_YET,
         "w.crt: valid only from 2025-12-31T23:55:00.000Z on; is this machine's clock right?"},
        {&foreign.certificate, &pair.certificate, &pair.key, TLS_ROLE_WORKER, NOW_S, ERR_UNTRUSTED,
         "w.crt: was not issued by the CA in ca.crt"},
        {&ca.certificate, &pair.certificate, &other.key, TLS_ROLE_WORKER, NOW_S, ERR_UNTRUSTED,
         "w.key: is not the key of w.crt"},
        {&ca.certificate, &pair.certificate, &pair.key, TLS_ROLE_OPERATOR, NOW_S, ERR_UNTRUSTED,
         "w.crt: is a certificate for role worker, not operator"},
        {&ca.certificate, &ca.certificate, &ca.key, TLS_ROLE_WORKER, NOW_S, ERR_UNTRUSTED,
         "w.crt: names no role (its alternative names hold 0 URIs, not one)"},
        {&text, &pair.certificate, &pair.key, TLS_ROLE_WORKER, NOW_S, ERR_UNTRUSTED,
         "ca.crt: holds no certificate (PEM)"},
        {&ca.certificate, &text, &pair.key, TLS_ROLE_WORKER, NOW_S, ERR_UNTRUSTED,
         "w.crt: holds no certificate (PEM)"},
        {&ca.certificate, &pair.certificate, &text, TLS_ROLE_WORKER, NOW_S, ERR_UNTRUSTED,
         "w.key: holds no private key (PEM, no password)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        scoped(tls_identity_release) struct tls_identity identity =
            identity_of(rows[i].ca, rows[i].certificate, rows[i].key);
        assert_int_equal(check_at(&identity, rows[i].role, rows[i].now_s, &reason), rows[i].err);
        assert_string_equal(reason.text, rows[i].text);
    }
}

static X509_EXTENSION *names_of(const char *text)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, NULL, NULL, NULL, NULL, 0);
    return X509V3_EXT_conf_nid(NULL, &context, NID_subject_alt_name, text);
}

/* One alternative name with any bytes, which OpenSSL's own text of names cannot have. */
static X509_EXTENSION *name_of(int type, struct slice bytes)
{
    GENERAL_NAMES *names = GENERAL_NAMES_new();
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_STRING *value =
        ASN1_STRING_type_new(type == GEN_IPADD ? V_ASN1_OCTET_STRING : V_ASN1_IA5STRING);
    assert_int_equal(ASN1_STRING_set(value, bytes.data, (int)bytes.bytes), 1);
    GENERAL_NAME_set0_value(name, type, value);
    assert_true(sk_GENERAL_NAME_push(names, name) > 0);
    X509_EXTENSION *extension = X509V3_EXT_i2d(NID_subject_alt_name, 0, names);
    GENERAL_NAMES_free(names);
    return extension;
}

static void issuer_set(X509 *certificate, const struct pair *ca)
{
    X509 *authority = certificate_of(&ca->certificate);
    assert_int_equal(X509_set_issuer_name(certificate, X509_get_subject_name(authority)), 1);
    X509_free(authority);
}

/* A certificate of the CA, for the CA's own key, as an older roost made it, or another tool. */
struct foreign {
    const char *use;       /* NULL: any */
    X509_EXTENSION *names; /* freed */
    struct slice number;   /* {0}: 0 */
};

static struct buf signed_with(const struct pair *ca, struct foreign wanted)
{
    struct buf pem = {0};
    char *data;
    BIO *bio = BIO_new_mem_buf(ca->key.data, (int)ca->key.bytes), *out = BIO_new(BIO_s_mem());
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    X509 *certificate = X509_new();
    X509V3_CTX context;
    X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
    assert_int_equal(X509_set_version(certificate, X509_VERSION_3), 1);
    assert_int_equal(X509_set_pubkey(certificate, key), 1);
    issuer_set(certificate, ca);
    assert_int_equal(ASN1_STRING_set(X509_get_serialNumber(certificate), wanted.number.data,
                                     (int)wanted.number.bytes),
                     1);
    assert_non_null(ASN1_TIME_set(X509_getm_notBefore(certificate), NOW_S));
    assert_non_null(ASN1_TIME_set(X509_getm_notAfter(certificate), NOW_S + HOUR_S));
    X509_EXTENSION *extensions[] = {
        wanted.names, wanted.use != NULL
                          ? X509V3_EXT_conf_nid(NULL, &context, NID_ext_key_usage, wanted.use)
                          : NULL};
    for (size_t i = 0; i < 2 && extensions[i] != NULL; i++) {
        assert_int_equal(X509_add_ext(certificate, extensions[i], -1), 1);
        X509_EXTENSION_free(extensions[i]);
    }
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    assert_int_equal(PEM_write_bio_X509(out, certificate), 1);
    size_t bytes = (size_t)BIO_get_mem_data(out, &data);
    assert_int_equal(buf_append(&pem, data, bytes), ERR_OK);
    assert_int_equal(buf_append(&pem, "", 1), ERR_OK);
    pem.bytes--;
    X509_free(certificate);
    EVP_PKEY_free(key);
    BIO_free(bio);
    BIO_free(out);
    return pem;
}

TEST(with_which_certificates_a_worker_can_be_asked)
{
#define CLIENT_ONLY                                                                                \
    "w.crt: is for clients only, so that no other worker can ask this one; make a new one (roost " \
    "cert)"
#define NAMELESS                                                                                   \
    "w.crt: does not name worker.roost.invalid, so that no other worker can ask this one; make a " \
    "new one (roost cert)"
    static const struct {
        const char *use, *names, *text;
    } rows[] = {
        {"serverAuth,clientAuth", "URI:x,DNS:worker.roost.invalid", ""},
        {NULL, "DNS:worker.roost.invalid", ""},
        {"clientAuth", "URI:x", CLIENT_ONLY},
        {"clientAuth", "DNS:worker.roost.invalid", CLIENT_ONLY},
        {"serverAuth", "URI:x", NAMELESS},
        {"serverAuth", "DNS:w7.example", NAMELESS},
    };
    scoped(pair_release) struct pair ca = ca_of("nest", 10 * HOUR_S);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct reason reason = {.text = ""};
        struct buf pem =
            signed_with(&ca, (struct foreign){rows[i].use, names_of(rows[i].names), {0}});
        scoped(tls_identity_release) struct tls_identity identity =
            identity_of(&ca.certificate, &pem, &ca.key);
        enum err err = tls_identity_serves(&identity, NOW_S, &reason);
        assert_string_equal(reason.text, rows[i].text);
        assert_int_equal(err, rows[i].text[0] == 0 ? ERR_OK : ERR_UNTRUSTED);
        buf_release(&pem);
    }
}

#define BYTES(text) ((struct slice){(const uint8_t *)(text), sizeof(text) - 1})

/* What C reads of it ends at the byte 0, and is an operator's. */
TEST(a_byte_0_ends_no_holders_name)
{
    static const struct {
        struct slice uri;
        const char *text;
    } rows[] = {
        {BYTES("spiffe://nest/operator/x"), ""},
        {BYTES("spiffe://nest/operator/x\0"), "w.crt: names no role (its URI has a byte 0)"},
        {BYTES("spiffe://nest/operator/x\0/y"), "w.crt: names no role (its URI has a byte 0)"},
        {BYTES("\0spiffe://nest/operator/x"), "w.crt: names no role (its URI has a byte 0)"},
    };
    scoped(pair_release) struct pair ca = ca_of("nest", 10 * HOUR_S);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct reason reason = {.text = ""};
        enum err expected = rows[i].text[0] == 0 ? ERR_OK : ERR_UNTRUSTED;
        scoped(buf_release) struct buf line = {0};
        scoped(buf_release) struct buf pem =
            signed_with(&ca, (struct foreign){.names = name_of(GEN_URI, rows[i].uri)});
        scoped(tls_identity_release) struct tls_identity identity =
            identity_of(&ca.certificate, &pem, &ca.key);
        enum err err = check_at(&identity, TLS_ROLE_OPERATOR, NOW_S, &reason);
        assert_string_equal(reason.text, rows[i].text);
        assert_int_equal(err, expected);
        assert_int_equal(tls_revoked_line(buf_slice(&pem), "w.crt", NOW_S, &line, NULL), expected);
    }
}

/* A host that is cut short, or read beyond its end, would be another one's. */
TEST(a_certificates_hosts_are_taken_whole_or_not_at_all)
{
    static const struct {
        int type;
        struct slice bytes;
        const char *host; /* NULL: it can be none */
    } rows[] = {
        {GEN_DNS, BYTES("ps1.example"), "ps1.example"},
        {GEN_DNS, BYTES("ps1.example\0.nest"), NULL},
        {GEN_DNS, BYTES("ps1.example\0"), NULL},
        {GEN_DNS, BYTES("\0ps1.example"), NULL},
        {GEN_DNS, BYTES(""), NULL},
        {GEN_IPADD, BYTES("\12\0\0\7"), "10.0.0.7"},
        {GEN_IPADD, BYTES("\12\0\0\7\1"), NULL},
        {GEN_IPADD, BYTES("\12\0\0"), NULL},
        {GEN_IPADD, BYTES("\375\0\0\0\0\0\0\0\0\0\0\0\0\0\0\7"), "fd00::7"},
    };
    scoped(pair_release) struct pair ca = ca_of("nest", 10 * HOUR_S);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tls_hosts hosts;
        struct reason reason = {.text = ""};
        scoped(buf_release) struct buf pem =
            signed_with(&ca, (struct foreign){.names = name_of(rows[i].type, rows[i].bytes)});
        enum err err = tls_hosts_of(buf_slice(&pem), &hosts, &reason);
        assert_int_equal(err, rows[i].host != NULL ? ERR_OK : ERR_INVALID);
        assert_int_equal(hosts.count, rows[i].host != NULL);
        if (rows[i].host != NULL)
            assert_string_equal(hosts.names[0], rows[i].host);
        else
            assert_string_equal(reason.text, "one of its hosts is neither a name nor an address");
    }
}

/* A CA as another tool makes it: there may be more CAs below it. `issuer` NULL: its own. */
static struct pair foreign_ca(const char *cluster, const struct pair *issuer)
{
    struct pair ca = ca_of(cluster, 10 * HOUR_S);
    const struct pair *above = issuer != NULL ? issuer : &ca;
    char *data;
    BIO *bio = BIO_new_mem_buf(above->key.data, (int)above->key.bytes), *out = BIO_new(BIO_s_mem());
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    X509 *certificate = certificate_of(&ca.certificate);
    issuer_set(certificate, above);
    int limit = X509_get_ext_by_NID(certificate, NID_basic_constraints, -1);
    X509_EXTENSION_free(X509_delete_ext(certificate, limit));
    X509V3_CTX context;
    X509V3_set_ctx(&context, NULL, NULL, NULL, NULL, 0);
    X509_EXTENSION *below =
        X509V3_EXT_conf_nid(NULL, &context, NID_basic_constraints, "critical,CA:TRUE");
    assert_int_equal(X509_add_ext(certificate, below, -1), 1);
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    assert_int_equal(PEM_write_bio_X509(out, certificate), 1);
    size_t bytes = (size_t)BIO_get_mem_data(out, &data);
    buf_release(&ca.certificate);
    ca.certificate = (struct buf){0};
    assert_int_equal(buf_append(&ca.certificate, data, bytes), ERR_OK);
    X509_EXTENSION_free(below);
    X509_free(certificate);
    EVP_PKEY_free(key);
    BIO_free(bio);
    BIO_free(out);
    return ca;
}

/* Its times do not matter to who revokes it: it is of 2026-01-01, for an hour. */
TEST(a_certificate_is_its_cas_through_others_in_its_file_as_well)
{
    scoped(pair_release) struct pair root = foreign_ca("nest", NULL);
    scoped(pair_release) struct pair between = foreign_ca("nest-2", &root);
    scoped(pair_release) struct pair other = foreign_ca("nest", NULL), leaf = {0};
    scoped(buf_release) struct buf whole = {0};
    const struct tls_request request = request_of(TLS_ROLE_WORKER);
    assert_int_equal(issue(&between, &request, &leaf, NULL), ERR_OK);
    assert_int_equal(buf_append(&whole, leaf.certificate.data, leaf.certificate.bytes), ERR_OK);
    assert_int_equal(buf_append(&whole, between.certificate.data, between.certificate.bytes),
                     ERR_OK);
    const struct {
        const struct buf *certificate, *ca;
        bool issued;
    } rows[] = {
        {&whole, &root.certificate, true},
        {&between.certificate, &root.certificate, true},
        {&leaf.certificate, &root.certificate, false},
        {&whole, &other.certificate, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct tls_issuance issuance = {buf_slice(rows[i].certificate), buf_slice(rows[i].ca),
                                              "w.crt", "ca.crt"};
        struct reason reason = {.text = ""};
        bool issued = !rows[i].issued;
        assert_int_equal(tls_issued(&issuance, &issued, &reason), ERR_OK);
        assert_int_equal(issued, rows[i].issued);
        scoped(tls_identity_release) struct tls_identity identity =
            identity_of(rows[i].ca, rows[i].certificate, &leaf.key);
        bool taken = check_at(&identity, TLS_ROLE_WORKER, NOW_S, &reason) == ERR_OK;
        assert_true(taken == (i == 0)); /* the second names no worker */
    }
}

/* A list with it would be refused as a whole. */
TEST(a_number_that_no_list_can_name_is_refused)
{
    static const uint8_t digits[] = {[0] = 0x7f, [20] = 1};
    scoped(pair_release) struct pair ca = ca_of("nest", 10 * HOUR_S);
    static const size_t counts[] = {1, 20, 21};
    for (size_t i = 0; i < 3; i++) {
        static struct tls_revoked revoked;
        struct reason reason = {.text = ""};
        scoped(buf_release) struct buf line = {0};
        scoped(buf_release) struct buf pem =
            signed_with(&ca, (struct foreign){.names = names_of("URI:spiffe://nest/worker/x"),
                                              .number = {digits, counts[i]}});
        enum err err = tls_revoked_line(buf_slice(&pem), "w.crt", NOW_S, &line, &reason);
        assert_int_equal(err, counts[i] <= 20 ? ERR_OK : ERR_UNTRUSTED);
        if (err == ERR_OK)
            assert_int_equal(tls_revoked_parse(buf_slice(&line), "list", &revoked, NULL), ERR_OK);
        else
            assert_non_null(strstr(reason.text, "w.crt: its number has more than 20 bytes"));
    }
}

/* 1 to 20 bytes, in small letters, without a zero in front. */
TEST(a_line_without_a_whole_number_is_named)
{
    static const char *const bad[] = {
        "", "\n", " aabb", "aab worker/w1", "AABB", "aabg", "aabb\tworker/w1", "00aabb worker/w1",
        /* two lines in one, and 21 bytes */
        "72b5540a1b2c3d4e5f60718293a4b5c672b5540a1b2c3d4e5f60718293a4b5c6 worker/w1",
        "aabbccddeeff00112233445566778899aabbccddee worker/w1"};
    static const char *const good[] = {"00", "aabb", "aa worker/w1 a laptop",
                                       "aabbccddeeff00112233445566778899aabbccdd"};
    static struct tls_revoked revoked;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct reason reason = {.text = ""};
        scoped(buf_release) struct buf list = {0};
        assert_int_equal(buf_printf(&list, "aabb worker/w0\n%s\n", bad[i]), ERR_OK);
        assert_int_equal(tls_revoked_parse(buf_slice(&list), "list", &revoked, &reason),
                         ERR_UNTRUSTED);
        assert_string_equal(
            reason.text, "list: line 2 begins with no certificate's number (roost cert --revoke)");
    }
    assert_int_equal(revoked.count, 0);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct slice list = {(const uint8_t *)good[i], strlen(good[i])};
        assert_int_equal(tls_revoked_parse(list, "list", &revoked, NULL), ERR_OK);
        assert_int_equal(revoked.count, 1);
    }
}

TEST(names_hosts_and_times_that_cannot_be_are_refused)
{
    scoped(pair_release) struct pair ca = ca_of("nest", 10 * HOUR_S);
    static const char *const bad_hosts[] = {"",     "a b",       "a,DNS:evil", "a.",  ".a",
                                            "a..b", "1.2.3.4:5", "a_b",        "a/b", "[::1]"};
    for (size_t i = 0; i < sizeof bad_hosts / sizeof bad_hosts[0]; i++) {
        scoped(pair_release) struct pair pair = {0};
        struct tls_request request = request_of(TLS_ROLE_SERVER);
        request.hosts = &bad_hosts[i];
        request.host_count = 1;
        assert_int_equal(issue(&ca, &request, &pair, NULL), ERR_INVALID);
    }
    static const char *const good_hosts[] = {"a", "node-7.example.org", "10.0.0.7", "fd00::7"};
    scoped(pair_release) struct pair pair = {0};
    struct tls_request request = request_of(TLS_ROLE_SERVER);
    request.hosts = good_hosts;
    request.host_count = 4;
    assert_int_equal(issue(&ca, &request, &pair, NULL), ERR_OK);
    struct pair none = {0};
    request.holder.name[0] = '/';
    assert_int_equal(issue(&ca, &request, &none, NULL), ERR_INVALID);
    request = request_of(TLS_ROLE_WORKER);
    request.valid_s = 0;
    assert_int_equal(issue(&ca, &request, &none, NULL), ERR_INVALID);
    assert_int_equal(tls_ca_create("a b", NOW_S, HOUR_S, &none.certificate, &none.key, NULL),
                     ERR_INVALID);
    assert_int_equal(tls_ca_create("a", NOW_S, INT64_MAX, &none.certificate, &none.key, NULL),
                     ERR_INVALID);
}

TEST(a_ca_names_its_cluster)
{
    scoped(pair_release) struct pair ca = ca_of("nest-2", HOUR_S);
    char cluster[TLS_NAME_BYTES_MAX + 1];
    assert_int_equal(tls_ca_cluster(buf_slice(&ca.certificate), "ca.crt", cluster, NULL), ERR_OK);
    assert_string_equal(cluster, "nest-2");
}
