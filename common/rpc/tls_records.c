#include "common/rpc/tls_records.h"

#include "common/buf.h"

#include <stdbool.h>
#include <stdlib.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

struct tls_records {
    SSL *connection;
    BIO_METHOD *method;
    const struct tls_records_events *events;
    void *owner;
    bool ran_dry;         /* the last call of OpenSSL wanted bytes that have not come */
    uint64_t key_records; /* that were encrypted with the present key */
};

/* ---- What OpenSSL writes to and reads from ---- */

static int bytes_out(BIO *bio, const char *bytes, size_t count, size_t *ret_written)
{
    struct tls_records *records = BIO_get_data(bio);
    records->events->send(records->owner, (struct slice){(const uint8_t *)bytes, count});
    *ret_written = count;
    return 1;
}

static int bytes_in(BIO *bio, char *ret_bytes, size_t count, size_t *ret_read)
{
    struct tls_records *records = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    *ret_read = records->events->receive(records->owner, (uint8_t *)ret_bytes, count);
    if (*ret_read > 0)
        return 1;
    records->ran_dry = true;
    BIO_set_retry_read(bio);
    return 0;
}

static long control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static bool method_init(struct tls_records *records)
{
    records->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "records");
    return records->method != NULL && BIO_meth_set_write_ex(records->method, bytes_out) == 1 &&
           BIO_meth_set_read_ex(records->method, bytes_in) == 1 &&
           BIO_meth_set_ctrl(records->method, control) == 1;
}

/* ---- Records ---- */

struct tls_records *tls_records_new(void *connection, const struct tls_records_events *events,
                                    void *owner)
{
    struct tls_records *records = calloc(1, sizeof *records);
    if (records == NULL)
        return NULL;
    (void)SSL_up_ref(connection);
    *records = (struct tls_records){.connection = connection, .events = events, .owner = owner};
    BIO *bio = method_init(records) ? BIO_new(records->method) : NULL;
    if (bio == NULL) {
        tls_records_free(records);
        return NULL;
    }
    BIO_set_data(bio, records);
    BIO_set_init(bio, 1);
    SSL_set_bio(records->connection, bio, bio);
    return records;
}

void tls_records_free(struct tls_records *records)
{
    if (records == NULL)
        return;
    SSL_free(records->connection);
    BIO_meth_free(records->method);
    free(records);
}

/* OpenSSL leaves that to its user. The peer need not renew its own key: it counts for itself. */
static void renew_key(struct tls_records *records)
{
    records->key_records = 0;
    if (SSL_key_update(records->connection, SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
        ERR_clear_error(); /* TLS 1.2 has none */
}

enum err tls_records_write(struct tls_records *records, struct slice plain)
{
    size_t written = 0; /* all of it: nothing is refused by bytes_out() */
    size_t count = (plain.bytes + TLS_RECORD_BYTES_MAX - 1) / TLS_RECORD_BYTES_MAX;
    if (records->key_records + count > records->events->key_records)
        renew_key(records);
    records->key_records += count;
    if (plain.bytes == 0 ||
        SSL_write_ex(records->connection, plain.data, plain.bytes, &written) == 1)
        return ERR_OK;
    ERR_clear_error();
    return ERR_UNREACHABLE;
}

enum err tls_records_next(struct tls_records *records, size_t *ret_bytes)
{
    uint8_t first;
    size_t count;
    records->ran_dry = false;
    *ret_bytes = 0;
    if (SSL_peek_ex(records->connection, &first, 1, &count) == 1) {
        *ret_bytes = (size_t)SSL_pending(records->connection);
        return ERR_OK;
    }
    bool ended = (SSL_get_shutdown(records->connection) & SSL_RECEIVED_SHUTDOWN) != 0 &&
                 ERR_peek_error() == 0; /* otherwise the peer said that something is wrong */
    if (records->ran_dry || ended)
        return ERR_OK;
    ERR_clear_error();
    return ERR_MALFORMED;
}

enum err tls_records_read(struct tls_records *records, uint8_t *ret_bytes, size_t count)
{
    size_t done = 0;
    if (SSL_read_ex(records->connection, ret_bytes, count, &done) == 1 && done == count)
        return ERR_OK;
    ERR_clear_error();
    return ERR_MALFORMED;
}
