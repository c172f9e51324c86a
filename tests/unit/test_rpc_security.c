/* Who may connect: certificates, TLS versions, plain connections. Real loopback sockets. */
#include "tests/unit/rpc_fixture.h"

#include "common/file.h"
#include "common/rpc/grpc/core.h"

#include <arpa/inet.h>
#include <limits.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

struct security_fixture {
    struct rpc_loop *loop;
    struct authority authority, foreign;
    struct tls_identity server_identity;
    struct rpc_server *server;
    struct reason reason; /* of the last call_as() */
};

static void echo(void *owner, struct rpc_request *request, struct slice bytes)
{
    (void)owner, (void)bytes;
    struct buf answer = {0};
    rpc_reply(request, &answer);
}

static void same(void *owner, struct rpc_request *request, struct slice bytes)
{
    (void)owner;
    struct buf answer = {0};
    assert_int_equal(buf_append(&answer, bytes.data, bytes.bytes), ERR_OK);
    rpc_reply(request, &answer);
}

static const struct rpc_method methods[] = {
    {.path = "/test.T/Echo", .roles = TLS_ROLES_ALL, .requested = echo},
    {.path = "/test.T/Same", .roles = TLS_ROLES_ALL, .requested = same}};

static void security_set_up(struct security_fixture *world)
{
    struct rpc_settings settings = rpc_settings_default();
    settings.threads = 1;
    world->loop = loop_new(&settings);
    world->authority = authority_new("nest");
    world->foreign = authority_new("nest");
    world->server_identity = identity_of_role(&world->authority, "nest", TLS_ROLE_SERVER);
    world->server = server_new(world->loop, &world->server_identity, methods, 2);
}

static void security_tear_down(struct security_fixture *world)
{
    rpc_server_free(world->server);
    rpc_loop_free(world->loop);
    tls_identity_release(&world->server_identity);
    authority_release(&world->authority);
    authority_release(&world->foreign);
}

static enum err call_as(struct security_fixture *world, const struct tls_identity *identity)
{
    struct rpc_channel *channel =
        channel_new(world->loop, rpc_server_port(world->server), identity);
    struct buf response = {0};
    world->reason.text[0] = 0;
    enum err err =
        rpc_call(channel, "/test.T/Echo", (struct slice){0}, 5000, &response, &world->reason);
    buf_release(&response);
    rpc_channel_free(channel);
    return err;
}

/* A worker's certificate as most have it. */
static struct tls_identity worker_identity(const struct security_fixture *world)
{
    return identity_of_role(&world->authority, "nest", TLS_ROLE_WORKER);
}

TEST_F(a_certificate_is_let_in_when_both_ends_trust_it_now, security)
{
    const struct {
        const char *what;
        const struct authority *issuer, *trusted;
        const char *cluster;
        int64_t age_s;
        enum err err;
        const char *reason;
    } rows[] = {
        {"of the cluster", &f->authority, &f->authority, "nest", 0, ERR_OK, ""},
        {"expired", &f->authority, &f->authority, "nest", 3700, ERR_UNREACHABLE,
         "does the server trust worker.crt?"},
        {"of another CA", &f->foreign, &f->authority, "nest", 0, ERR_UNREACHABLE,
         "does the server trust worker.crt?"},
        {"which trusts another CA", &f->authority, &f->foreign, "nest", 0, ERR_UNTRUSTED,
         " has a certificate that the CA in ca.crt did not sign, or that has ended; both ends need "
         "folders that one `roost cert` has made (--certs)"},
        {"of another cluster", &f->authority, &f->authority, "other", 0, ERR_UNTRUSTED, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tls_holder holder = {.role = TLS_ROLE_WORKER, .name = "w1"};
        snprintf(holder.cluster, sizeof holder.cluster, "%s", rows[i].cluster);
        struct tls_identity identity =
            identity_new(rows[i].issuer, rows[i].trusted, holder, fixture_now_s() - rows[i].age_s);
        enum err err = call_as(f, &identity);
        tls_identity_release(&identity);
        if (err != rows[i].err || strstr(f->reason.text, rows[i].reason) == NULL)
            fail_msg("a certificate %s: %s, %s", rows[i].what, err_name(err), f->reason.text);
    }
}

/* Sizes around those of the library's slices, of TLS records and of what shares one. */
TEST_F(what_is_encrypted_arrives_as_it_was, security)
{
    static const size_t sizes[] = {0,    1,     22,    23,    24,    255,   4090,   4095,
                                   4096, 16360, 16383, 16384, 16385, 65536, 300000, 1000000};
    static uint8_t sent[1000000];
    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (uint8_t)(i * 31 + i / 256);
    assert_true(rpc_protects_slices());
    struct tls_identity identity = worker_identity(f);
    struct rpc_channel *channel = channel_new(f->loop, rpc_server_port(f->server), &identity);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct buf got = {0};
        struct reason reason = {0};
        if (rpc_call(channel, "/test.T/Same", (struct slice){sent, sizes[i]}, 5000, &got,
                     &reason) != ERR_OK)
            fail_msg("%zu bytes: %s", sizes[i], reason.text);
        assert_int_equal(got.bytes, sizes[i]);
        if (got.bytes > 0)
            assert_memory_equal(got.data, sent, got.bytes);
        buf_release(&got);
    }
    rpc_channel_free(channel);
    tls_identity_release(&identity);
}

/* A directory of certificates by a CA of its own, made again each time. */
static void certificates_make(const char *dir)
{
    static const char *const files[] = {"ca.crt", "ca.key"};
    for (size_t i = 0; i < 2; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        (void)unlink(path);
    }
    struct tls_certificates wanted = {.cluster = "nest", .now_s = fixture_now_s()};
    struct reason reason = {0};
    if (tls_make_cluster_certificates(dir, &wanted, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
}

static struct tls_identity identity_in(const char *dir, enum tls_role role)
{
    struct tls_identity identity = {0};
    struct reason reason = {0};
    if (tls_identity_read(dir, role, fixture_now_s(), &identity, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    return identity;
}

/* Renewed certificates are taken by a server at the next handshake, by a channel that cannot
 * connect with what it has, and by a new channel. */
TEST_F(certificates_are_renewed_without_a_restart, security)
{
    char dir[] = "/tmp/roost-renewed-XXXXXX";
    assert_non_null(mkdtemp(dir));
    certificates_make(dir);
    struct tls_identity server_identity = identity_in(dir, TLS_ROLE_SERVER);
    struct tls_identity worker_identity = identity_in(dir, TLS_ROLE_WORKER);
    struct rpc_server *server = server_new(f->loop, &server_identity, methods, 1);
    unsigned port = rpc_server_port(server);
    struct rpc_channel *before = channel_new(f->loop, port, &worker_identity);
    struct buf response = {0};
    certificates_make(dir);

    uint64_t deadline_ns = time_after_ms(time_now_ns(), FIXTURE_WAIT_MS);
    enum err by_old, by_new;
    do
        by_old = rpc_call(before, "/test.T/Echo", (struct slice){0}, 5000, &response, NULL);
    while (by_old != ERR_OK && time_now_ns() < deadline_ns);
    struct rpc_channel *after = channel_new(f->loop, port, &worker_identity);
    by_new = rpc_call(after, "/test.T/Echo", (struct slice){0}, 5000, &response, NULL);

    /* a connection that stands, when its owner wants that */
    bool none = rpc_channel_renew(after);
    certificates_make(dir);
    bool renewed = rpc_channel_renew(after), again = rpc_channel_renew(after);
    enum err by_renewed = rpc_call(after, "/test.T/Echo", (struct slice){0}, 5000, &response, NULL);

    rpc_channel_free(after);
    rpc_channel_free(before);
    rpc_server_free(server);
    tls_identity_release(&server_identity);
    tls_identity_release(&worker_identity);
    buf_release(&response);
    assert_int_equal(by_old, ERR_OK);
    assert_int_equal(by_new, ERR_OK);
    assert_true(!none && renewed && !again);
    assert_int_equal(by_renewed, ERR_OK);
    assert_int_equal(file_remove_tree(dir, NULL), ERR_OK);
}

/* What judges why a call failed, and what that has to wait for. */
enum { JUDGED, RENEWED, ANSWERED };
static struct tally *_Atomic judging; /* NULL: it does not wait */
static bool changed;

enum err __real_tls_identity_valid(const struct tls_identity *identity, int64_t now_s,
                                   struct reason *reason);
enum err __wrap_tls_identity_valid(const struct tls_identity *identity, int64_t now_s,
                                   struct reason *reason);

enum err __wrap_tls_identity_valid(const struct tls_identity *identity, int64_t now_s,
                                   struct reason *reason)
{
    struct tally *tally = judging;
    if (tally != NULL) {
        struct tls_identity before = *identity;
        judging = NULL;
        tally_add(tally, JUDGED);
        tally_wait(tally, RENEWED, 1);
        changed = identity->modified_ns != before.modified_ns;
    }
    return __real_tls_identity_valid(identity, now_s, reason);
}

static void tally_answered(void *owner, enum err err, struct slice response,
                           const struct reason *reason)
{
    (void)err, (void)response, (void)reason;
    tally_add(owner, ANSWERED);
}

TEST_F(a_certificate_that_is_renewed_is_not_changed_under_a_call_that_ends, security)
{
    char dir[] = "/tmp/roost-renewed-XXXXXX";
    struct tally tally;
    struct buf request = {0};
    tally_init(&tally);
    assert_non_null(mkdtemp(dir));
    certificates_make(dir);
    struct tls_identity identity = identity_in(dir, TLS_ROLE_WORKER);
    struct rpc_channel *channel = channel_new(f->loop, 1, &identity); /* nobody is there */
    struct rpc_call_config config = {
        .path = "/test.T/Echo", .timeout_ms = 5000, .answered = tally_answered, .owner = &tally};
    judging = &tally;
    enum err err = rpc_call_start(channel, &config, &request);
    assert_int_equal(err, ERR_OK);
    tally_wait(&tally, JUDGED, 1);
    certificates_make(dir);
    bool renewed = rpc_channel_renew(channel);
    tally_add(&tally, RENEWED);
    tally_wait(&tally, ANSWERED, 1);
    rpc_channel_free(channel);
    tls_identity_release(&identity);
    tally_release(&tally);
    assert_true(renewed);
    assert_false(changed);
    assert_int_equal(file_remove_tree(dir, NULL), ERR_OK);
}

/* The list is read again while the server runs. A connection that stands is reset, too. */
TEST_F(a_revoked_certificate_is_let_in_no_longer, security)
{
    char dir[] = "/tmp/roost-revoked-XXXXXX", path[PATH_MAX];
    assert_non_null(mkdtemp(dir));
    certificates_make(dir);
    struct tls_identity server_identity = identity_in(dir, TLS_ROLE_SERVER);
    struct tls_identity worker_identity = identity_in(dir, TLS_ROLE_WORKER);
    struct tls_identity operator_identity = identity_in(dir, TLS_ROLE_OPERATOR);
    struct rpc_server *server = server_new(f->loop, &server_identity, methods, 1);
    unsigned port = rpc_server_port(server);
    struct rpc_channel *standing = channel_new(f->loop, port, &worker_identity);
    struct rpc_channel *other = channel_new(f->loop, port, &operator_identity);
    struct buf response = {0};
    enum err before, after, others;
    before = rpc_call(standing, "/test.T/Echo", (struct slice){0}, 5000, &response, NULL);
    snprintf(path, sizeof path, "%s/worker/worker.crt", dir);
    assert_int_equal(tls_revoke(dir, path, fixture_now_s(), NULL), ERR_OK);
    uint64_t deadline_ns = time_after_ms(time_now_ns(), FIXTURE_WAIT_MS);
    do
        after = rpc_call(standing, "/test.T/Echo", (struct slice){0}, 5000, &response, NULL);
    while (after == ERR_OK && time_now_ns() < deadline_ns);
    others = rpc_call(other, "/test.T/Echo", (struct slice){0}, 5000, &response, NULL);
    rpc_channel_free(standing);
    rpc_channel_free(other);
    rpc_server_free(server);
    tls_identity_release(&server_identity);
    tls_identity_release(&worker_identity);
    tls_identity_release(&operator_identity);
    buf_release(&response);
    assert_int_equal(before, ERR_OK);
    assert_int_equal(after, ERR_UNREACHABLE);
    assert_int_equal(others, ERR_OK);
    assert_int_equal(file_remove_tree(dir, NULL), ERR_OK);
}

TEST_F(an_expired_certificate_is_found_before_it_is_used, security)
{
    struct tls_identity identity = worker_identity(f);
    identity.not_after_s = 1000000000;
    struct rpc_channel *channel = NULL;
    struct reason reason = {0};
    assert_int_equal(rpc_channel_new(f->loop, "127.0.0.1:1", &identity, &channel, &reason),
                     ERR_UNTRUSTED);
    assert_string_equal(
        reason.text,
        "worker.crt: expired at 2001-09-09T01:46:40.000Z; make a new one (roost cert)");
    tls_identity_release(&identity);
}

TEST_F(a_workers_certificate_does_not_make_a_server, security)
{
    rpc_server_free(f->server);
    struct tls_identity identity = worker_identity(f);
    f->server = server_new(f->loop, &identity, methods, 1);
    assert_int_equal(call_as(f, &identity), ERR_UNTRUSTED);
    tls_identity_release(&identity);
}

TEST_F(a_server_at_an_address_its_certificate_does_not_name_is_refused, security)
{
    struct rpc_server_config config = {.loop = f->loop,
                                       .address = "127.0.0.2:0",
                                       .identity = &f->server_identity,
                                       .methods = methods,
                                       .method_count = 1};
    struct rpc_server *server = NULL;
    struct reason reason = {0};
    assert_int_equal(rpc_server_new(&config, &server, &reason), ERR_OK);
    struct tls_identity identity = worker_identity(f);
    char address[32];
    snprintf(address, sizeof address, "127.0.0.2:%u", rpc_server_port(server));
    struct rpc_channel *channel = NULL;
    struct buf response = {0};
    assert_int_equal(rpc_channel_new(f->loop, address, &identity, &channel, &reason), ERR_OK);
    enum err err = rpc_call(channel, "/test.T/Echo", (struct slice){0}, 5000, &response, &reason);
    rpc_channel_free(channel);
    rpc_server_free(server);
    tls_identity_release(&identity);
    if (err != ERR_UNTRUSTED ||
        strstr(reason.text, " has a certificate that is not for 127.0.0.2; add") == NULL)
        fail_msg("%s: %s", err_name(err), reason.text);
}

TEST_F(a_server_is_called_by_an_ipv6_address_that_is_written_at_length, security)
{
    struct rpc_server_config config = {.loop = f->loop,
                                       .address = "[::1]:0",
                                       .identity = &f->server_identity,
                                       .methods = methods,
                                       .method_count = 1};
    struct rpc_server *server = NULL;
    struct reason reason = {0};
    if (rpc_server_new(&config, &server, &reason) != ERR_OK)
        skip(); /* a machine without IPv6 */
    struct tls_identity identity = worker_identity(f);
    char address[40];
    snprintf(address, sizeof address, "[0:0:0:0:0:0:0:1]:%u", rpc_server_port(server));
    struct rpc_channel *channel = NULL;
    struct buf response = {0};
    assert_int_equal(rpc_channel_new(f->loop, address, &identity, &channel, &reason), ERR_OK);
    enum err err = rpc_call(channel, "/test.T/Echo", (struct slice){0}, 5000, &response, &reason);
    assert_string_equal(rpc_channel_address(channel), address); /* as it was given */
    rpc_channel_free(channel);
    rpc_server_free(server);
    tls_identity_release(&identity);
    buf_release(&response);
    if (err != ERR_OK)
        fail_msg("%s: %s", err_name(err), reason.text);
}

/* c-ares refuses a name with an empty label by itself: no name server is asked. */
TEST_F(a_name_that_does_not_resolve_is_named, security)
{
    struct tls_identity identity = worker_identity(f);
    struct rpc_channel *channel = NULL;
    struct buf response = {0};
    struct reason reason = {0};
    assert_int_equal(rpc_channel_new(f->loop, "a..b:7400", &identity, &channel, &reason), ERR_OK);
    enum err err = rpc_call(channel, "/test.T/Echo", (struct slice){0}, 5000, &response, &reason);
    rpc_channel_free(channel);
    tls_identity_release(&identity);
    assert_int_equal(err, ERR_UNREACHABLE);
    assert_string_equal(reason.text,
                        "cannot connect to a..b:7400: that name does not resolve (Misformatted "
                        "domain name); check it, or use the machine's address");
}

TEST_F(a_plain_client_gets_nothing_from_a_tls_server, security)
{
    assert_int_equal(call_as(f, NULL), ERR_UNREACHABLE);
}

TEST_F(without_tls_only_loopback_is_allowed, security)
{
    static const char *const refused[] = {"0.0.0.0:0", "[::]:0", "192.0.2.1:80", "example.org:80",
                                          "128.0.0.1:80"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct rpc_server_config config = {.loop = f->loop, .address = refused[i]};
        struct rpc_server *server = NULL;
        struct rpc_channel *channel = NULL;
        struct reason reason = {0};
        assert_int_equal(rpc_server_new(&config, &server, &reason), ERR_INVALID);
        assert_int_equal(rpc_channel_new(f->loop, refused[i], NULL, &channel, &reason),
                         ERR_INVALID);
    }
    static const char *const fine[] = {"127.0.0.1:0", "127.1.2.3:0", "localhost:0"};
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        struct rpc_server_config config = {.loop = f->loop, .address = fine[i]};
        struct rpc_server *server = NULL;
        assert_int_equal(rpc_server_new(&config, &server, NULL), ERR_OK);
        rpc_server_free(server);
    }
}

/* ---- A client of its own, to do what ours does not ---- */

static int connect_to(unsigned port)
{
    int file = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(file, (struct sockaddr *)&address, sizeof address), 0);
    struct timeval limit = {.tv_sec = FIXTURE_WAIT_MS / 1000};
    setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return file;
}

static void use_certificate(SSL_CTX *context, const struct tls_identity *identity)
{
    BIO *certificate_bio =
        BIO_new_mem_buf(identity->certificate.data, (int)identity->certificate.bytes);
    BIO *key_bio = BIO_new_mem_buf(identity->key.data, (int)identity->key.bytes);
    X509 *certificate = PEM_read_bio_X509(certificate_bio, NULL, NULL, NULL);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(key_bio, NULL, NULL, NULL);
    assert_int_equal(SSL_CTX_use_certificate(context, certificate), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(context, key), 1);
    X509_free(certificate);
    EVP_PKEY_free(key);
    BIO_free(certificate_bio);
    BIO_free(key_bio);
}

/* Connects, says nothing, reads: true when the server sends something (its HTTP/2 settings). */
static bool server_talks(struct security_fixture *world, int version,
                         const struct tls_identity *identity)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(context, version);
    SSL_CTX_set_max_proto_version(context, version);
    SSL_CTX_set_cipher_list(context, "ALL:@SECLEVEL=0");
    SSL_CTX_set_alpn_protos(context, (const uint8_t *)"\x02h2", 3);
    if (identity != NULL)
        use_certificate(context, identity);
    SSL *connection = SSL_new(context);
    int file = connect_to(rpc_server_port(world->server));
    SSL_set_fd(connection, file);
    char byte;
    bool talks = SSL_connect(connection) == 1 && SSL_read(connection, &byte, 1) == 1;
    ERR_clear_error();
    SSL_free(connection);
    SSL_CTX_free(context);
    close(file);
    return talks;
}

TEST_F(a_client_needs_a_certificate, security)
{
    struct tls_identity identity = worker_identity(f);
    assert_true(server_talks(f, TLS1_3_VERSION, &identity));
    assert_false(server_talks(f, TLS1_3_VERSION, NULL));
    tls_identity_release(&identity);
}

TEST_F(tls_1_2_is_refused, security)
{
    struct tls_identity identity = worker_identity(f);
    assert_false(server_talks(f, TLS1_2_VERSION, &identity));
    tls_identity_release(&identity);
}

static int count_session(SSL *connection, SSL_SESSION *session)
{
    (void)session;
    ++*(unsigned *)SSL_get_app_data(connection);
    return 0;
}

/* Who resumes a session shows no certificate: it would go on when its certificate has ended. */
TEST_F(no_session_can_be_resumed, security)
{
    unsigned sessions = 0;
    char byte;
    struct tls_identity identity = identity_of_role(&f->authority, "nest", TLS_ROLE_WORKER);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT);
    SSL_CTX_sess_set_new_cb(context, count_session);
    SSL_CTX_set_alpn_protos(context, (const uint8_t *)"\x02h2", 3);
    use_certificate(context, &identity);
    BIO *connection_bio = BIO_new_socket(connect_to(rpc_server_port(f->server)), BIO_CLOSE);
    SSL *connection = SSL_new(context);
    SSL_set_app_data(connection, &sessions);
    SSL_clear_options(connection, SSL_OP_NO_TICKET); /* which tls_process_init() sets at each */
    SSL_set_bio(connection, connection_bio, connection_bio);
    assert_int_equal(SSL_connect(connection), 1);
    assert_int_equal(SSL_read(connection, &byte, 1), 1); /* behind what would be a ticket */
    assert_int_equal(sessions, 0);
    SSL_free(connection);
    SSL_CTX_free(context);
    tls_identity_release(&identity);
}

/* ---- workers among themselves ---- */

static void say_shown(void *owner, struct rpc_request *request, struct slice bytes)
{
    (void)owner, (void)bytes;
    struct buf answer = {0};
    const struct digest *shown = &rpc_request_peer(request)->shown;
    if (buf_append(&answer, shown, sizeof *shown) == ERR_OK)
        rpc_reply(request, &answer);
    else
        rpc_fail(request, ERR_NOMEM, "");
}

static const struct rpc_method worker_methods[] = {
    {.path = "/test.T/Shown", .roles = TLS_ROLE_BIT(TLS_ROLE_WORKER), .requested = say_shown}};

/* A worker is known by its certificate, whatever its address, at both ends. */
TEST_F(a_worker_is_the_one_that_shows_its_certificate, security)
{
    struct tls_identity one = worker_identity(f), other = worker_identity(f);
    struct digest shown[2];
    assert_int_equal(tls_certificate_digest(buf_slice(&one.certificate), &shown[0]), ERR_OK);
    assert_int_equal(tls_certificate_digest(buf_slice(&other.certificate), &shown[1]), ERR_OK);
    struct rpc_server *server = server_new(f->loop, &one, worker_methods, 1);
    for (int i = 0; i < 2; i++) {
        char address[32];
        snprintf(address, sizeof address, "127.0.0.1:%u", rpc_server_port(server));
        struct rpc_channel *channel = NULL;
        assert_int_equal(
            rpc_channel_new_worker(f->loop, address, &other, &shown[i], &channel, NULL), ERR_OK);
        scoped(buf_release) struct buf response = {0};
        enum err err =
            rpc_call(channel, "/test.T/Shown", (struct slice){0}, 5000, &response, &f->reason);
        rpc_channel_free(channel);
        assert_int_equal(err == ERR_OK, i == 0);
        if (err != ERR_OK)
            continue;
        assert_int_equal(response.bytes, sizeof shown[1]);
        assert_memory_equal(response.data, &shown[1], sizeof shown[1]);
    }
    rpc_server_free(server);
    tls_identity_release(&one);
    tls_identity_release(&other);
}

/* ---- what a connection leaves unfinished ---- */

enum { LARGE_BYTES = 1000000 };

static void count_closed(void *owner, struct rpc_stream *stream, enum err err,
                         const struct reason *reason)
{
    (void)stream, (void)err, (void)reason;
    tally_add(owner, 0);
}

static const struct rpc_stream_events reads_nothing = {.open = NULL};
static const struct rpc_stream_events counts_closed = {.closed = count_closed};
static const struct rpc_method holding_methods[] = {
    {.path = "/test.T/Same", .roles = TLS_ROLES_ALL, .requested = same},
    {.path = "/test.T/Hold", .roles = TLS_ROLES_ALL, .kind = RPC_STREAM, .events = &reads_nothing}};

/* Twelve times as much as a connection may leave unfinished, beside a stream that stays open. */
TEST_F(calls_that_are_answered_leave_nothing, security)
{
    static const uint8_t large[LARGE_BYTES];
    struct tally tally;
    struct rpc_stream *stream = NULL;
    tally_init(&tally);
    struct rpc_server *server = server_new(f->loop, &f->server_identity, holding_methods, 2);
    struct tls_identity identity = worker_identity(f);
    struct rpc_channel *channel = channel_new(f->loop, rpc_server_port(server), &identity);
    enum err err = rpc_stream_open(channel, "/test.T/Hold", &counts_closed, &tally, &stream);
    assert_int_equal(err, ERR_OK);
    for (unsigned i = 0; i < 60 && err == ERR_OK; i++) {
        scoped(buf_release) struct buf got = {0};
        err = rpc_call(channel, "/test.T/Same", (struct slice){large, sizeof large},
                       FIXTURE_WAIT_MS, &got, NULL);
    }
    unsigned closed = tally_of(&tally, 0);
    rpc_stream_cancel(stream);
    rpc_stream_unref(stream);
    tally_wait(&tally, 0, 1);
    rpc_channel_free(channel);
    rpc_server_free(server);
    tls_identity_release(&identity);
    tally_release(&tally);
    assert_int_equal(err, ERR_OK);
    assert_int_equal(closed, 0);
}
