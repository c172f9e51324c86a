/* Plain sockets, OpenSSL, a ring: as little as can be between the bytes and the wire. */
#include "tests/bench/limit.h"

#include "tests/bench/limit_ring.h"

#include "common/thread.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/pem.h>
#include <openssl/ssl.h>

/* ---- What is done with received bytes ---- */

enum { LANES = 16 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

static inline __attribute__((always_inline)) void add_floats(float *sum, const uint8_t *bytes,
                                                             size_t count)
{
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        lanes values, old;
        memcpy(&values, bytes + i * sizeof *sum, sizeof values);
        memcpy(&old, sum + i, sizeof old);
        values += old;
        memcpy(sum + i, &values, sizeof values);
    }
    for (; i < count; i++) {
        float value;
        memcpy(&value, bytes + i * sizeof value, sizeof value);
        sum[i] += value;
    }
}

__attribute__((target("avx512f"))) static void add_avx512(float *sum, const uint8_t *bytes,
                                                          size_t count)
{
    add_floats(sum, bytes, count);
}

__attribute__((target("avx2"))) static void add_avx2(float *sum, const uint8_t *bytes, size_t count)
{
    add_floats(sum, bytes, count);
}

/* As wide as the processor adds: a compiler's -O2 would add one float at a time. */
void limit_accumulate(float *sum, const uint8_t *bytes, size_t count)
{
    if (__builtin_cpu_supports("avx512f"))
        add_avx512(sum, bytes, count);
    else if (__builtin_cpu_supports("avx2"))
        add_avx2(sum, bytes, count);
    else
        add_floats(sum, bytes, count);
}

static unsigned bits_of(unsigned number)
{
    return (unsigned)__builtin_popcount(number);
}

/* The first of a pair is copied, the second added, and the pair added to the one before it, if it is a
 * second one as well, and so on. */
static void add_to_sums(const struct limit_sums *sums, size_t at, const uint8_t *bytes,
                        size_t count)
{
    unsigned pair = sums->pass / 2, open = bits_of(pair);
    check(open < LIMIT_ARRAYS_MAX);
    if (sums->pass % 2 == 0) {
        memcpy(sums->arrays[open] + at, bytes, count * sizeof(float));
        return;
    }
    limit_accumulate(sums->arrays[open] + at, bytes, count);
    for (; pair % 2 == 1; pair /= 2, open--)
        limit_accumulate(sums->arrays[open - 1] + at, (const uint8_t *)(sums->arrays[open] + at),
                         count);
}

static void add_run(const struct limit_sink *sink, size_t at, const uint8_t *bytes, size_t count)
{
    if (sink->sums != NULL)
        add_to_sums(sink->sums, at, bytes, count);
    else
        limit_accumulate(sink->sum + at, bytes, count);
    if (sink->digest != NULL)
        digest_keyed_add(sink->digest, (struct slice){bytes, count * sizeof(float)});
}

/* With a digest in runs that are still in the nearest cache when it reads them. */
static void add(const struct limit_sink *sink, size_t at, const uint8_t *bytes, size_t count)
{
    enum { RUN_VALUES = 2048 };
    while (count > 0) {
        size_t run = sink->digest != NULL && count > RUN_VALUES ? RUN_VALUES : count;
        add_run(sink, at, bytes, run);
        at += run;
        bytes += run * sizeof(float);
        count -= run;
    }
}

void limit_sink_take(struct limit_sink *sink, const uint8_t *data, size_t bytes)
{
    if (sink->copy != NULL) {
        memcpy(sink->copy + sink->bytes, data, bytes);
        sink->bytes += bytes;
        return;
    }
    check(sink->sum != NULL || sink->sums != NULL);
    size_t begun = sink->bytes % 4;
    while (begun != 0 && bytes > 0) {
        sink->carry[begun++] = *data++;
        sink->bytes++;
        bytes--;
        if (begun == 4) {
            add(sink, sink->bytes / 4 - 1, sink->carry, 1);
            begun = 0;
        }
    }
    add(sink, sink->bytes / 4, data, bytes / 4);
    memcpy(sink->carry, data + bytes / 4 * 4, bytes % 4);
    sink->bytes += bytes;
}

/* ---- A connection, with TLS or without ---- */

struct connection {
    int file;
    SSL *tls;                /* NULL: none */
    struct limit_ring *ring; /* of tensors; NULL: none */
};

static void connection_send(struct connection *connection, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t sent;
        if (connection->tls != NULL)
            sent = SSL_write(connection->tls, data, bytes > 512 << 10 ? 512 << 10 : (int)bytes);
        else
            sent = send(connection->file, data, bytes, MSG_NOSIGNAL);
        check(sent > 0);
        data += sent;
        bytes -= (size_t)sent;
    }
}

static size_t connection_receive(struct connection *connection, uint8_t *data, size_t bytes_max)
{
    ssize_t got;
    if (connection->tls != NULL)
        got = SSL_read(connection->tls, data, (int)bytes_max);
    else
        got = recv(connection->file, data, bytes_max, 0);
    return got > 0 ? (size_t)got : 0;
}

static void context_identity(SSL_CTX *context, const struct tls_identity *identity)
{
    BIO *bio = BIO_new_mem_buf(identity->certificate.data, (int)identity->certificate.bytes);
    X509 *certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    bio = BIO_new_mem_buf(identity->key.data, (int)identity->key.bytes);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    BIO_free(bio);
    bio = BIO_new_mem_buf(identity->ca.data, (int)identity->ca.bytes);
    X509 *ca = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    check(SSL_CTX_use_certificate(context, certificate) == 1);
    check(SSL_CTX_use_PrivateKey(context, key) == 1);
    check(X509_STORE_add_cert(SSL_CTX_get_cert_store(context), ca) == 1);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    X509_free(certificate);
    X509_free(ca);
    EVP_PKEY_free(key);
}

static struct connection connection_of(int file, const struct tls_identity *identity, bool server)
{
    int one = 1;
    setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (identity == NULL)
        return (struct connection){.file = file};
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    context_identity(context, identity);
    SSL *tls = SSL_new(context);
    SSL_CTX_free(context);
    SSL_set_fd(tls, file);
    check((server ? SSL_accept(tls) : SSL_connect(tls)) == 1);
    return (struct connection){.file = file, .tls = tls};
}

/* ---- Both ends ---- */

static void send_tensor(struct connection *connection, const struct limit_config *config,
                        const uint8_t *tensor)
{
    for (size_t at = 0; at < config->tensor_bytes; at += config->receive_bytes) {
        size_t left = config->tensor_bytes - at;
        size_t bytes = left < config->receive_bytes ? left : config->receive_bytes;
        if (connection->ring != NULL)
            limit_ring_write(connection->ring, tensor + at, bytes);
        else
            connection_send(connection, tensor + at, bytes);
    }
}

/* What comes through the ring is used where it lies. */
static size_t take_from_ring(struct limit_ring *ring, struct limit_sink *sink)
{
    const uint8_t *there;
    size_t bytes = limit_ring_look(ring, &there);
    limit_sink_take(sink, there, bytes);
    limit_ring_took(ring, bytes);
    return bytes;
}

static size_t take_from_socket(struct connection *connection, const struct limit_config *config,
                               uint8_t *block, struct limit_sink *sink)
{
    size_t left = config->tensor_bytes - sink->bytes;
    uint8_t *to = sink->copy != NULL ? sink->copy + sink->bytes : block;
    size_t got = connection_receive(connection, to,
                                    left < config->receive_bytes ? left : config->receive_bytes);
    if (sink->copy != NULL)
        sink->bytes += got;
    else
        limit_sink_take(sink, block, got);
    return got;
}

static bool receive_tensor(struct connection *connection, const struct limit_config *config,
                           uint8_t *block, struct limit_sink sink)
{
    while (sink.bytes < config->tensor_bytes) {
        size_t got = connection->ring != NULL ? take_from_ring(connection->ring, &sink)
                                              : take_from_socket(connection, config, block, &sink);
        if (got == 0)
            return false;
    }
    return true;
}

static uint8_t *tensor_new(size_t bytes)
{
    uint8_t *tensor = aligned_alloc(64, bytes);
    check(tensor != NULL);
    float *values = (float *)(void *)tensor;
    for (size_t i = 0; i < bytes / sizeof *values; i++)
        values[i] = (float)(i % 1000);
    return tensor;
}

/* What the two processes of a run are made with. */
struct limit_run {
    const struct limit_config *config;
    struct limit_ring *ring; /* NULL: none */
};

struct serving {
    const struct limit_run *run;
    int listener;
    struct thread thread;
};

/* What sums lie in: one array, or those of a tree of all passes. */
static void sums_init(struct limit_sums *sums, const struct limit_config *config)
{
    unsigned arrays = 1;
    for (unsigned passes = config->passes + 1; config->tree && passes > 1; passes /= 2)
        arrays++;
    check(arrays <= LIMIT_ARRAYS_MAX);
    *sums = (struct limit_sums){0};
    for (unsigned i = 0; i < arrays; i++)
        sums->arrays[i] = (float *)(void *)tensor_new(config->tensor_bytes);
}

static void sums_release(struct limit_sums *sums)
{
    for (unsigned i = 0; i < LIMIT_ARRAYS_MAX; i++)
        free(sums->arrays[i]);
}

/* A byte from the client starts a pass, a byte from the server says that it is over. */
static void serve(void *argument)
{
    struct serving *serving = argument;
    const struct limit_config *config = serving->run->config;
    int file = accept(serving->listener, NULL, NULL);
    check(file >= 0);
    struct connection connection = connection_of(file, config->server, true);
    connection.ring = serving->run->ring;
    uint8_t *block = malloc(config->receive_bytes), byte = 0;
    struct limit_sums sums;
    sums_init(&sums, config);
    struct digest_keyed *digest = NULL;
    if (config->digest)
        check(digest_keyed_new((const uint8_t[DIGEST_KEY_BYTES]){1}, &digest) == ERR_OK);
    for (; connection_receive(&connection, &byte, 1) == 1; sums.pass++) {
        const struct limit_sink sink = {
            .sums = config->tree ? &sums : NULL, .sum = sums.arrays[0], .digest = digest};
        if (config->direction == LIMIT_PULL)
            send_tensor(&connection, config, (const uint8_t *)sums.arrays[0]);
        else if (!receive_tensor(&connection, config, block, sink))
            break;
        connection_send(&connection, &byte, 1);
    }
    free(block);
    sums_release(&sums);
    digest_keyed_free(digest);
}

static unsigned serve_start(const void *context)
{
    static struct serving serving; /* of this process, which does nothing else */
    serving = (struct serving){.run = context, .listener = socket(AF_INET, SOCK_STREAM, 0)};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    check(bind(serving.listener, (struct sockaddr *)&address, bytes) == 0);
    check(listen(serving.listener, 1) == 0);
    check(getsockname(serving.listener, (struct sockaddr *)&address, &bytes) == 0);
    check(thread_start(&serving.thread, "limit", serve, &serving) == ERR_OK);
    return ntohs(address.sin_port);
}

static void client_pass(struct connection *connection, const struct limit_config *config,
                        uint8_t *block, uint8_t *tensor)
{
    uint8_t byte = 1;
    connection_send(connection, &byte, 1);
    if (config->direction == LIMIT_PUSH)
        send_tensor(connection, config, tensor);
    else
        check(receive_tensor(connection, config, block, (struct limit_sink){.copy = tensor}));
    check(connection_receive(connection, &byte, 1) == 1);
}

static void measure(const void *context, const struct pair_link *link, struct pair_result *result)
{
    const struct limit_run *run = context;
    const struct limit_config *config = run->config;
    int file = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)link->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    check(connect(file, (struct sockaddr *)&address, sizeof address) == 0);
    struct connection connection = connection_of(file, config->client, false);
    connection.ring = run->ring;
    uint8_t *tensor = tensor_new(config->tensor_bytes), *block = malloc(config->receive_bytes);
    client_pass(&connection, config, block, tensor);
    struct pair_clock clock = pair_clock_start(link);
    for (unsigned i = 0; i < config->passes; i++)
        client_pass(&connection, config, block, tensor);
    pair_clock_stop(&clock, link, result);
    result->bytes = (double)config->passes * (double)config->tensor_bytes;
    if (connection.tls != NULL)
        snprintf(result->about, sizeof result->about, "%s", SSL_get_cipher(connection.tls));
    free(block);
    free(tensor);
}

enum err limit_run(const struct limit_config *config, struct pair_result *ret_result)
{
    const struct limit_run run = {config, config->ring ? limit_ring_new() : NULL};
    const struct pair_config pair = {.serve = serve_start, .measure = measure, .context = &run};
    enum err err = pair_run(&pair, ret_result);
    limit_ring_free(run.ring);
    return err;
}

void limit_congestion_control(char ret_name[static 16])
{
    memset(ret_name, 0, 16);
    int file = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t bytes = 15;
    getsockopt(file, IPPROTO_TCP, TCP_CONGESTION, ret_name, &bytes);
    close(file);
}
