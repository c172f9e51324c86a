/* All connections are a ring, those half open another one in the order in which they came. */
#include "common/rpc/accepted.h"

#include "common/digest.h"
#include "common/id_table.h"
#include "common/ring.h"
#include "common/thread.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* HTTP/2 and TLS around what is delivered: 31 bytes for 16 KiB, a message's or a call's headers. */
enum { FRAMES_SHIFT = 7, HEADERS_BYTES = 256 };
enum { CONNECTIONS_MAX = 65536, HALF_OPEN_MAX = 1024 /* 22 KiB of memory each */ };
/* Pings, which belong to no call. */
enum { PING_BYTES_S = 64 };
#define SECOND_NS 1000000000u
#define RESETS_NS 10000000000u

struct accepted_table {
    struct accepted_limits limits;
    atomic_uint references; /* the server's, and one of each connection */
    atomic_llong unfinished_bytes;
    struct thread_mutex lock; /* guards the rest, and where a comment says so, the connections */
    struct id_table by_address;
    struct ring all, half_open;
    uint32_t connections, half_open_count;
    uint64_t *revoked; /* certificates */
    uint32_t revoked_count;
    uint64_t ended, closed;
};

struct accepted {
    struct accepted_table *table;
    struct ring all, half_open; /* the table's lock */
    uint64_t address, host;     /* digests */
    int file;
    bool proved, closing, gone; /* the table's lock */
    enum tls_role role;
    int64_t ends_s;      /* the certificate; the table's lock */
    struct digest shown; /* the same */
    atomic_uint references;
    atomic_uint_fast64_t certificate, bytes;
    atomic_llong unfinished_bytes;
    atomic_uint calls;
    atomic_uint_fast64_t pings_ns; /* of whichever thread of gRPC reads, one at a time */
    uint64_t resets_since_ns;      /* of the connection's polling thread */
    uint32_t resets;
};

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void accepted_limits_files(struct accepted_limits *limits, uint32_t file_max,
                           uint32_t certificate_max)
{
    uint32_t connections = least(file_max / 2, CONNECTIONS_MAX);
    uint32_t half_open = least(connections / 4, HALF_OPEN_MAX);
    limits->connections_max = connections;
    limits->half_open_max = half_open;
    limits->half_open_host_max = half_open - half_open / 4;
    limits->workers_max = connections - half_open - connections / 8;
    limits->certificate_max = least(connections / 2, certificate_max);
}

enum err accepted_table_new(const struct accepted_limits *limits, struct accepted_table **ret_table)
{
    struct accepted_table *table = calloc(1, sizeof *table);
    if (table == NULL || id_table_init(&table->by_address, limits->connections_max) != ERR_OK) {
        free(table);
        return ERR_NOMEM;
    }
    table->limits = *limits;
    atomic_init(&table->references, 1);
    thread_mutex_init(&table->lock);
    ring_init(&table->all);
    ring_init(&table->half_open);
    *ret_table = table;
    return ERR_OK;
}

void accepted_table_unref(struct accepted_table *table)
{
    if (table == NULL || atomic_fetch_sub(&table->references, 1) != 1)
        return;
    check(ring_is_empty(&table->all));
    id_table_release(&table->by_address);
    free(table->revoked);
    thread_mutex_release(&table->lock);
    free(table);
}

static void accepted_unref(struct accepted *accepted)
{
    if (atomic_fetch_sub(&accepted->references, 1) != 1)
        return;
    struct accepted_table *table = accepted->table;
    free(accepted);
    accepted_table_unref(table);
}

/* ---- Which one has to go ---- */

static void close_locked(struct accepted *accepted)
{
    if (accepted->closing || accepted->gone)
        return;
    accepted->closing = true;
    accepted->table->closed++;
    /* An address of no family resets a connection and drops what lies unread in its queue, which
     * shutdown() does not (tcp_disconnect() in Linux). */
    static const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    if (connect(accepted->file, &nowhere, sizeof nowhere) != 0)
        (void)shutdown(accepted->file, SHUT_RDWR); /* the other end may have closed it */
}

static void end_half_open_locked(struct accepted *accepted)
{
    if (ring_is_empty(&accepted->half_open))
        return;
    ring_take(&accepted->half_open);
    accepted->table->half_open_count--;
}

/* The first that came and is half open, of that host or of any (0). */
static bool shed_locked(struct accepted_table *table, uint64_t host)
{
    for (struct ring *link = table->half_open.behind; link != &table->half_open;
         link = link->behind) {
        struct accepted *accepted = RING_ITEM(link, struct accepted, half_open);
        if (host != 0 && accepted->host != host)
            continue;
        end_half_open_locked(accepted);
        close_locked(accepted);
        return true;
    }
    return false;
}

bool accepted_shed(struct accepted_table *table)
{
    thread_lock(&table->lock);
    bool shed = shed_locked(table, 0);
    thread_unlock(&table->lock);
    return shed;
}

static uint32_t half_open_of_locked(const struct accepted_table *table, uint64_t host)
{
    uint32_t count = 0;
    for (const struct ring *link = table->half_open.behind; link != &table->half_open;
         link = link->behind)
        count += RING_ITEM(link, struct accepted, half_open)->host == host;
    return count;
}

static void close_one(struct accepted *accepted)
{
    thread_lock(&accepted->table->lock);
    close_locked(accepted);
    thread_unlock(&accepted->table->lock);
}

static void take_off(struct accepted *accepted, long long bytes)
{
    long long own = atomic_load(&accepted->unfinished_bytes), less;
    do {
        less = bytes < own ? bytes : own;
    } while (!atomic_compare_exchange_weak(&accepted->unfinished_bytes, &own, own - less));
    atomic_fetch_sub(&accepted->table->unfinished_bytes, less);
}

static void close_largest(struct accepted_table *table)
{
    thread_lock(&table->lock);
    struct accepted *largest = NULL;
    long long most = 0;
    for (struct ring *link = table->all.behind; link != &table->all; link = link->behind) {
        struct accepted *accepted = RING_ITEM(link, struct accepted, all);
        long long bytes = atomic_load(&accepted->unfinished_bytes);
        if (accepted->closing || bytes <= most)
            continue;
        largest = accepted;
        most = bytes;
    }
    if (largest != NULL)
        close_locked(largest);
    thread_unlock(&table->lock);
}

/* ---- Come and go ---- */

/* A digest of the address as rpc_peer prints it. *ret_host: one of what a host cannot choose: its
 * IPv4 address, or the network of its IPv6 address. */
static uint64_t address_digest(const struct sockaddr *address, uint64_t *ret_host)
{
    char host[INET6_ADDRSTRLEN] = "", text[64];
    uint8_t bytes[16] = {0};
    size_t host_bytes = 8; /* of an IPv6 address: /64 */
    in_port_t port;
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const void *)address;
        port = ntohs(six->sin6_port);
        memcpy(bytes, &six->sin6_addr, 16);
        if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
            memmove(bytes, bytes + 12, 4);
            host_bytes = 4;
        }
    } else {
        const struct sockaddr_in *four = (const void *)address;
        port = ntohs(four->sin_port);
        memcpy(bytes, &four->sin_addr, 4);
        host_bytes = 4;
    }
    bool is_four = host_bytes == 4;
    (void)inet_ntop(is_four ? AF_INET : AF_INET6, bytes, host, sizeof host);
    int count = snprintf(text, sizeof text, is_four ? "%s:%u" : "[%s]:%u", host, port);
    *ret_host = digest_fast64((struct slice){bytes, host_bytes}) | 1;
    return digest_fast64((struct slice){(const uint8_t *)text, (size_t)count});
}

static bool add_locked(struct accepted_table *table, struct accepted *accepted)
{
    const struct accepted_limits *limits = &table->limits;
    if (half_open_of_locked(table, accepted->host) >= limits->half_open_host_max)
        (void)shed_locked(table, accepted->host);
    else if (table->half_open_count >= limits->half_open_max)
        (void)shed_locked(table, 0);
    if (table->connections >= limits->connections_max ||
        id_table_find(&table->by_address, accepted->address) != NULL)
        return false;
    id_table_add(&table->by_address, accepted->address, accepted);
    ring_add(&table->all, &accepted->all);
    ring_add(&table->half_open, &accepted->half_open);
    table->connections++;
    table->half_open_count++;
    atomic_fetch_add(&table->references, 1);
    return true;
}

struct accepted *accepted_add(struct accepted_table *table, const struct sockaddr *address,
                              int take_file)
{
    struct accepted *accepted = calloc(1, sizeof *accepted);
    bool added = false;
    if (accepted != NULL) {
        accepted->table = table;
        accepted->file = take_file;
        accepted->address = address_digest(address, &accepted->host);
        atomic_init(&accepted->references, 1);
        thread_lock(&table->lock);
        added = add_locked(table, accepted);
        thread_unlock(&table->lock);
    }
    if (added)
        return accepted;
    (void)close(take_file);
    free(accepted);
    return NULL;
}

static bool has_places_kept(enum tls_role role)
{
    return role == TLS_ROLE_SERVER || role == TLS_ROLE_OPERATOR;
}

/* Whether one more peer that proves itself may stay. */
static bool has_room_locked(const struct accepted_table *table, const struct tls_peer *peer)
{
    uint32_t with_certificate = 0, workers = 0;
    for (const struct ring *link = table->all.behind; link != &table->all; link = link->behind) {
        const struct accepted *accepted = RING_ITEM(link, struct accepted, all);
        if (!accepted->proved || accepted->closing)
            continue;
        with_certificate += atomic_load(&accepted->certificate) == peer->certificate;
        workers += !has_places_kept(accepted->role);
    }
    return with_certificate < table->limits.certificate_max &&
           (has_places_kept(peer->holder.role) || workers < table->limits.workers_max);
}

static bool is_revoked_locked(const struct accepted_table *table, uint64_t certificate)
{
    for (uint32_t i = 0; i < table->revoked_count; i++)
        if (table->revoked[i] == certificate)
            return true;
    return false;
}

enum err accepted_revoke(struct accepted_table *table, const struct tls_revoked *revoked)
{
    size_t bytes = revoked->count * sizeof revoked->certificates[0];
    uint64_t *certificates = malloc(bytes + 1);
    if (certificates == NULL)
        return ERR_NOMEM;
    memcpy(certificates, revoked->certificates, bytes);
    thread_lock(&table->lock);
    uint64_t *before = table->revoked;
    table->revoked = certificates;
    table->revoked_count = revoked->count;
    for (struct ring *link = table->all.behind; link != &table->all; link = link->behind) {
        struct accepted *accepted = RING_ITEM(link, struct accepted, all);
        if (accepted->proved && is_revoked_locked(table, atomic_load(&accepted->certificate)))
            close_locked(accepted);
    }
    thread_unlock(&table->lock);
    free(before);
    return ERR_OK;
}

void accepted_expire(struct accepted_table *table, int64_t now_s)
{
    thread_lock(&table->lock);
    for (struct ring *link = table->all.behind; link != &table->all; link = link->behind) {
        struct accepted *accepted = RING_ITEM(link, struct accepted, all);
        if (accepted->proved && now_s > accepted->ends_s)
            close_locked(accepted);
    }
    thread_unlock(&table->lock);
}

void accepted_proved(struct accepted *accepted, const struct tls_peer *peer)
{
    struct accepted_table *table = accepted->table;
    thread_lock(&table->lock);
    end_half_open_locked(accepted);
    bool room = has_room_locked(table, peer) && !is_revoked_locked(table, peer->certificate);
    atomic_store(&accepted->certificate, peer->certificate);
    accepted->role = peer->holder.role;
    accepted->ends_s = peer->ends_s;
    accepted->shown = peer->shown;
    accepted->proved = true;
    if (!room)
        close_locked(accepted);
    thread_unlock(&table->lock);
    take_off(accepted, LLONG_MAX); /* the handshake has been read */
}

void accepted_gone(struct accepted *take_accepted)
{
    struct accepted_table *table = take_accepted->table;
    thread_lock(&table->lock);
    end_half_open_locked(take_accepted);
    take_accepted->gone = true;
    (void)close(take_accepted->file);
    (void)id_table_take(&table->by_address, take_accepted->address);
    ring_take(&take_accepted->all);
    table->connections--;
    table->ended++;
    thread_unlock(&table->lock);
    take_off(take_accepted, LLONG_MAX);
    accepted_unref(take_accepted);
}

uint64_t accepted_certificate(const struct accepted *accepted)
{
    return accepted == NULL ? 0 : atomic_load(&accepted->certificate);
}

int64_t accepted_ends_s(struct accepted *accepted)
{
    if (accepted == NULL)
        return 0;
    thread_lock(&accepted->table->lock);
    int64_t ends_s = accepted->ends_s;
    thread_unlock(&accepted->table->lock);
    return ends_s;
}

struct digest accepted_shown(struct accepted *accepted)
{
    if (accepted == NULL)
        return (struct digest){{0}};
    thread_lock(&accepted->table->lock);
    struct digest shown = accepted->shown;
    thread_unlock(&accepted->table->lock);
    return shown;
}

/* ---- Bytes ---- */

void accepted_received(struct accepted *accepted, size_t bytes, uint64_t now_ns)
{
    struct accepted_table *table = accepted->table;
    const struct accepted_limits *limits = &table->limits;
    long long count = (long long)bytes;
    uint64_t quiet_ns = now_ns - atomic_load(&accepted->pings_ns);
    if (quiet_ns >= SECOND_NS) {
        uint64_t pings = quiet_ns / SECOND_NS * PING_BYTES_S;
        take_off(accepted, pings < LLONG_MAX ? (long long)pings : LLONG_MAX);
        atomic_store(&accepted->pings_ns, now_ns);
    }
    atomic_fetch_add(&accepted->bytes, bytes);
    long long own = atomic_fetch_add(&accepted->unfinished_bytes, count) + count;
    long long all = atomic_fetch_add(&table->unfinished_bytes, count) + count;
    if (own > (long long)limits->role_bytes_max[accepted->role])
        close_one(accepted);
    else if (all > (long long)limits->unfinished_bytes_max)
        close_largest(table);
}

uint64_t accepted_bytes(const struct accepted *accepted)
{
    return accepted == NULL ? 0 : atomic_load(&accepted->bytes);
}

void accepted_delivered(struct accepted *accepted, size_t bytes)
{
    if (accepted != NULL)
        take_off(accepted, (long long)(bytes + (bytes >> FRAMES_SHIFT) + HEADERS_BYTES));
}

void accepted_sent(struct accepted *accepted, size_t bytes)
{
    if (accepted != NULL)
        take_off(accepted, (long long)((bytes >> FRAMES_SHIFT) + HEADERS_BYTES));
}

struct accepted *accepted_call_begin(struct accepted_table *table, const char *address)
{
    uint64_t id = digest_fast64((struct slice){(const uint8_t *)address, strlen(address)});
    thread_lock(&table->lock);
    struct accepted *accepted = id_table_find(&table->by_address, id);
    if (accepted != NULL) {
        atomic_fetch_add(&accepted->references, 1);
        atomic_fetch_add(&accepted->calls, 1);
    }
    thread_unlock(&table->lock);
    return accepted;
}

void accepted_call_end(struct accepted *take_accepted, uint64_t begun_bytes,
                       size_t message_bytes_max)
{
    if (take_accepted == NULL)
        return;
    uint64_t since = atomic_load(&take_accepted->bytes) - begun_bytes;
    uint64_t own = since < message_bytes_max ? since : message_bytes_max;
    if (atomic_fetch_sub(&take_accepted->calls, 1) == 1)
        own = LLONG_MAX; /* no call is left that could keep something */
    take_off(take_accepted, (long long)own);
    accepted_unref(take_accepted);
}

void accepted_reset(struct accepted *accepted, uint64_t now_ns)
{
    if (accepted == NULL)
        return;
    if (now_ns - accepted->resets_since_ns > RESETS_NS) {
        accepted->resets_since_ns = now_ns;
        accepted->resets = 0;
    }
    if (++accepted->resets > accepted->table->limits.resets_max)
        close_one(accepted);
}

struct accepted_counts accepted_count(struct accepted_table *table)
{
    thread_lock(&table->lock);
    struct accepted_counts counts = {.connections = table->connections,
                                     .half_open = table->half_open_count,
                                     .ended = table->ended,
                                     .closed = table->closed};
    thread_unlock(&table->lock);
    long long bytes = atomic_load(&table->unfinished_bytes);
    counts.unfinished_bytes = bytes > 0 ? (uint64_t)bytes : 0;
    return counts;
}
