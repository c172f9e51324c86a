/* Records between two ends in memory, whose handshake OpenSSL does with a shared secret. */
#include "tests/unit/unit.h"

#include "common/buf.h"
#include "common/rpc/tls.h"
#include "common/rpc/tls_records.h"

#include <string.h>

#include <openssl/ssl.h>

struct side {
    SSL *connection;
    struct tls_records *records;
    struct buf arrived; /* from the other one; `read` of it are received */
    size_t read;
    struct side *other;
};

struct records_fixture {
    SSL_CTX *client_context, *server_context;
    struct side client, server;
    unsigned rekeys_max; /* 0: nobody watches the server's side */
    unsigned rekeys;
    uint64_t key_records;
    struct tls_records_events events;
};

static void on_send(void *owner, struct slice bytes)
{
    struct side *side = owner;
    assert_int_equal(buf_append(&side->other->arrived, bytes.data, bytes.bytes), ERR_OK);
}

static size_t on_receive(void *owner, uint8_t *ret_bytes, size_t count)
{
    struct side *side = owner;
    size_t there = side->arrived.bytes - side->read;
    size_t bytes = count < there ? count : there;
    if (bytes > 0)
        memcpy(ret_bytes, side->arrived.data + side->read, bytes);
    side->read += bytes;
    return bytes;
}

static unsigned secret_of_server(SSL *connection, const char *identity, unsigned char *ret_secret,
                                 unsigned bytes_max)
{
    (void)connection, (void)identity, (void)bytes_max;
    memset(ret_secret, 7, 32);
    return 32;
}

static unsigned secret_of_client(SSL *connection, const char *hint, char *ret_identity,
                                 unsigned identity_bytes_max, unsigned char *ret_secret,
                                 unsigned bytes_max)
{
    (void)hint;
    snprintf(ret_identity, identity_bytes_max, "%s", "test");
    return secret_of_server(connection, "test", ret_secret, bytes_max);
}

static SSL_CTX *context_new(const SSL_METHOD *method)
{
    SSL_CTX *context = SSL_CTX_new(method);
    assert_non_null(context);
    assert_int_equal(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION), 1);
    assert_int_equal(SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256"), 1);
    (void)SSL_CTX_set_num_tickets(context, 0);
    return context;
}

static void on_proved(void *owner, const struct tls_peer *peer)
{
    (void)owner, (void)peer;
}

static void on_received(void *owner, size_t bytes)
{
    (void)owner, (void)bytes;
}

static bool on_rekeyed(void *owner)
{
    struct records_fixture *f = owner;
    return ++f->rekeys <= f->rekeys_max;
}

static void on_gone(void *owner)
{
    (void)owner;
}

static void watch_server(struct records_fixture *f)
{
    static const struct tls_observer observer = {on_proved, on_received, on_rekeyed, on_gone};
    tls_process_init();
    tls_watch_begin(&observer, f);
}

static void records_set_up(struct records_fixture *f)
{
    f->client_context = context_new(TLS_client_method());
    f->server_context = context_new(TLS_server_method());
    SSL_CTX_set_psk_client_callback(f->client_context, secret_of_client);
    SSL_CTX_set_psk_server_callback(f->server_context, secret_of_server);
    f->client.connection = SSL_new(f->client_context);
    if (f->rekeys_max > 0)
        watch_server(f);
    f->server.connection = SSL_new(f->server_context);
    f->client.other = &f->server;
    f->server.other = &f->client;
    BIO *client_bio = NULL, *server_bio = NULL;
    assert_int_equal(BIO_new_bio_pair(&client_bio, 0, &server_bio, 0), 1);
    SSL_set_bio(f->client.connection, client_bio, client_bio);
    SSL_set_bio(f->server.connection, server_bio, server_bio);
    SSL_set_connect_state(f->client.connection);
    SSL_set_accept_state(f->server.connection);
    for (int i = 0; i < 4; i++) {
        (void)SSL_do_handshake(f->client.connection);
        (void)SSL_do_handshake(f->server.connection);
    }
    assert_true(SSL_is_init_finished(f->client.connection));
    assert_true(SSL_is_init_finished(f->server.connection));
    f->events = (struct tls_records_events){on_send, on_receive,
                                            f->key_records > 0 ? f->key_records : TLS_KEY_RECORDS};
    f->client.records = tls_records_new(f->client.connection, &f->events, &f->client);
    f->server.records = tls_records_new(f->server.connection, &f->events, &f->server);
    assert_non_null(f->client.records);
    assert_non_null(f->server.records);
}

static void side_release(struct side *side)
{
    tls_records_free(side->records);
    SSL_free(side->connection);
    buf_release(&side->arrived);
}

static void records_tear_down(struct records_fixture *f)
{
    side_release(&f->client);
    side_release(&f->server);
    SSL_CTX_free(f->client_context);
    SSL_CTX_free(f->server_context);
}

static void write_bytes(struct side *side, const uint8_t *data, size_t bytes)
{
    assert_int_equal(tls_records_write(side->records, (struct slice){data, bytes}), ERR_OK);
}

static size_t next(struct side *side)
{
    size_t bytes = 1;
    assert_int_equal(tls_records_next(side->records, &bytes), ERR_OK);
    return bytes;
}

TEST_F(bytes_arrive_as_they_were_in_whole_records, records)
{
    static uint8_t sent[3 * TLS_RECORD_BYTES_MAX], got[TLS_RECORD_BYTES_MAX];
    static const size_t sizes[] = {0, 1, TLS_RECORD_BYTES_MAX, TLS_RECORD_BYTES_MAX + 1,
                                   sizeof sent};
    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (uint8_t)(i * 31 + i / 256);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t before = f->server.arrived.bytes, done = 0;
        write_bytes(&f->client, sent, sizes[i]);
        size_t records = (sizes[i] + TLS_RECORD_BYTES_MAX - 1) / TLS_RECORD_BYTES_MAX;
        assert_int_equal(f->server.arrived.bytes - before,
                         sizes[i] + records * TLS_RECORD_OVERHEAD);
        for (size_t bytes = next(&f->server); bytes > 0; bytes = next(&f->server)) {
            assert_true(bytes <= sizeof got);
            assert_int_equal(tls_records_read(f->server.records, got, bytes), ERR_OK);
            assert_memory_equal(got, sent + done, bytes);
            done += bytes;
        }
        assert_int_equal(done, sizes[i]);
    }
}

TEST_F(a_record_that_is_not_whole_waits_for_the_rest, records)
{
    uint8_t got[5];
    write_bytes(&f->server, (const uint8_t *)"hello", 5);
    size_t all = f->client.arrived.bytes;
    for (f->client.arrived.bytes = 0; f->client.arrived.bytes < all; f->client.arrived.bytes++)
        assert_int_equal(next(&f->client), 0);
    assert_int_equal(next(&f->client), 5);
    assert_int_equal(tls_records_read(f->client.records, got, 5), ERR_OK);
    assert_memory_equal(got, "hello", 5);
}

TEST_F(a_changed_bit_is_no_record_of_the_connection, records)
{
    size_t bytes;
    assert_int_equal(next(&f->server), 0);
    write_bytes(&f->client, (const uint8_t *)"hello", 5);
    f->server.arrived.data[f->server.arrived.bytes - 1] ^= 1;
    assert_int_equal(tls_records_next(f->server.records, &bytes), ERR_MALFORMED);
    assert_int_equal(tls_records_next(f->client.records, &bytes), ERR_MALFORMED); /* is told */
}

TEST_F(what_is_no_record_is_refused, records)
{
    size_t bytes;
    on_send(&f->client, (struct slice){(const uint8_t *)"GET / HTTP/1.1\r\n\r\n", 18});
    assert_int_equal(tls_records_next(f->server.records, &bytes), ERR_MALFORMED);
}

TEST_F(a_peer_that_ends_has_nothing_more, records)
{
    (void)SSL_shutdown(f->client.connection);
    assert_int_equal(next(&f->server), 0);
    assert_int_equal(next(&f->server), 0);
}

/* RFC 8446 4.6.3: who is asked for new keys answers with its own, unasked by its user. */
TEST_F(keys_change_when_the_peer_asks, records)
{
    uint8_t got[3];
    assert_int_equal(SSL_key_update(f->client.connection, SSL_KEY_UPDATE_REQUESTED), 1);
    write_bytes(&f->client, (const uint8_t *)"one", 3);
    assert_int_equal(next(&f->server), 3);
    assert_int_equal(tls_records_read(f->server.records, got, 3), ERR_OK);
    write_bytes(&f->server, (const uint8_t *)"two", 3);
    assert_int_equal(next(&f->client), 3);
    assert_int_equal(tls_records_read(f->client.records, got, 3), ERR_OK);
    assert_memory_equal(got, "two", 3);
}

TEST_F(a_key_is_renewed_before_it_has_encrypted_too_much, records, .rekeys_max = 3,
       .key_records = 3)
{
    for (uint8_t i = 0, got = 0; i < 10; i++) {
        write_bytes(&f->client, &i, 1);
        assert_int_equal(next(&f->server), 1);
        assert_int_equal(tls_records_read(f->server.records, &got, 1), ERR_OK);
        assert_int_equal(got, i);
        assert_int_equal(f->rekeys, i / 3);
    }
}

static void renew_keys(struct side *side, unsigned count)
{
    SSL_set_bio(side->connection, BIO_new(BIO_s_null()), BIO_new(BIO_s_mem()));
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(SSL_key_update(side->connection, SSL_KEY_UPDATE_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(side->connection), 1);
    }
    char *bytes;
    long all = BIO_get_mem_data(SSL_get_wbio(side->connection), &bytes);
    on_send(side, (struct slice){(const uint8_t *)bytes, (size_t)all});
}

/* Each costs 50 us, and its answer is kept: a read of 512 KiB had 19,000 of them. */
TEST_F(who_renews_its_keys_too_often_is_not_read_any_more, records, .rekeys_max = 3)
{
    size_t bytes;
    renew_keys(&f->client, 3);
    assert_int_equal(next(&f->server), 0);
    renew_keys(&f->client, 100);
    ignore(tls_records_next(f->server.records, &bytes));
    ignore(tls_records_next(f->server.records, &bytes));
    assert_int_equal(f->rekeys, 4);
    assert_int_equal(bytes, 0);
}
