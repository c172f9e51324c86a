/* All connections are a ring, those half open another one in the order in which they came; so are the
 * open calls of each. */
#include "common/rpc/accepted.h"

#include "common/digest.h"
#include "common/id_table.h"
#include "common/ring.h"
#include "common/rpc/frames.h"
#include "common/thread.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 65536, HALF_OPEN_MAX = 1024 /* 22 KiB of memory each */ };
enum { MESSAGE_PREFIX_BYTES = 5 /* what gRPC has before each message */ };
#define RECENT_NS 10000000000u

/* How often something has happened within RECENT_NS. */
struct recent {
    uint64_t since_ns;
    uint32_t count;
};

struct accepted_table {
    struct accepted_limits limits;
    atomic_uint references; /* the server's, and one of each connection */
    atomic_llong unfinished_bytes;
    atomic_uint_fast64_t dropped_bytes;
    struct thread_mutex lock; /* guards the rest, and where a comment says so, the connections */
    struct id_table by_address;
    struct ring all, half_open;
    uint32_t connections, half_open_count;
    uint64_t *revoked; /* certificates */
    uint32_t revoked_count;
    uint64_t ended, closed;
    struct closings closings;
};

struct accepted {
    struct accepted_table *table;
    struct ring all, half_open;      /* the table's lock */
    uint64_t address, host;          /* digests */
    char text[CLOSED_ADDRESS_BYTES]; /* the address */
    int file;
    bool proved, closing, gone; /* the table's lock */
    struct tls_peer peer;       /* zeros until it is proved; the table's lock */
    atomic_uint references;
    atomic_bool framed; /* it is proved: frames count */

    struct frames frames;                /* of whichever thread reads, one at a time */
    atomic_llong open_bytes;             /* as in `frames`, */
    atomic_llong call_bytes;             /* and what calls brought that may still be kept */
    atomic_uint_fast64_t brought_bytes;  /* by calls, so far */
    atomic_uint_fast64_t streams, ended; /* calls that frames began; those that have ended */
    uint64_t begun; /* shown by the library, or refused; the table's lock, as the next four */
    uint64_t streams_before; /* `streams` at the last accepted_write_off() */
    uint64_t known_bytes; /* `brought_bytes` when it had shown all, last before the newest frames */
    struct ring calls;    /* open, in the order in which they began */
    struct recent resets;
    struct recent rekeys; /* as `frames` */
};

struct accepted_call {
    struct accepted *accepted;
    struct ring open;
    uint64_t from_bytes; /* what it brought came after so many of its connection's */
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

static void close_locked(struct accepted *accepted, enum closing why)
{
    if (accepted->closing || accepted->gone)
        return;
    accepted->closing = true;
    accepted->table->closed++;
    closings_add(&accepted->table->closings, why, &accepted->peer.holder, accepted->text);
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
        close_locked(accepted, CLOSING_HALF_OPEN);
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

static void close_one(struct accepted *accepted, enum closing why)
{
    thread_lock(&accepted->table->lock);
    close_locked(accepted, why);
    thread_unlock(&accepted->table->lock);
}

/* Once more: whether that is too often. */
static bool is_too_often(struct recent *recent, uint32_t count_max, uint64_t now_ns)
{
    if (now_ns - recent->since_ns > RECENT_NS)
        *recent = (struct recent){.since_ns = now_ns};
    return ++recent->count > count_max;
}

static long long own_bytes(struct accepted *accepted)
{
    return atomic_load(&accepted->open_bytes) + atomic_load(&accepted->call_bytes);
}

/* So many bytes of calls, or what there is of them: returns that. */
static long long take_off(struct accepted *accepted, long long bytes)
{
    long long own = atomic_load(&accepted->call_bytes), less;
    do {
        less = bytes < own ? bytes : own;
    } while (!atomic_compare_exchange_weak(&accepted->call_bytes, &own, own - less));
    atomic_fetch_sub(&accepted->table->unfinished_bytes, less);
    return less;
}

static void take_off_dropped(struct accepted *accepted, long long bytes)
{
    long long dropped = take_off(accepted, bytes);
    atomic_fetch_add(&accepted->table->dropped_bytes, (uint64_t)dropped);
}

static void set_open_bytes(struct accepted *accepted, uint32_t bytes)
{
    long long before = atomic_exchange(&accepted->open_bytes, bytes);
    atomic_fetch_add(&accepted->table->unfinished_bytes, (long long)bytes - before);
}

/* The one that has most, when those that are not closing have too much. The bytes of those that close
 * are still counted, until the library has ended them: no other one is to go for these. */
static void close_largest(struct accepted_table *table)
{
    thread_lock(&table->lock);
    struct accepted *largest = NULL;
    long long most = 0, sum = 0;
    for (struct ring *link = table->all.behind; link != &table->all; link = link->behind) {
        struct accepted *accepted = RING_ITEM(link, struct accepted, all);
        long long bytes = accepted->closing ? 0 : own_bytes(accepted);
        sum += bytes;
        if (bytes <= most)
            continue;
        largest = accepted;
        most = bytes;
    }
    if (sum > (long long)table->limits.unfinished_bytes_max)
        close_locked(largest, CLOSING_MOST_UNFINISHED);
    thread_unlock(&table->lock);
}

/* ---- Come and go ---- */

/* *ret_bytes: its last 16 or 4 bytes, of an IPv4 address also where it is mapped into IPv6. */
static size_t host_bytes(const struct sockaddr *address, uint8_t ret_bytes[static 16])
{
    const struct sockaddr_in *four = (const void *)address;
    const struct sockaddr_in6 *six = (const void *)address;
    if (address->sa_family != AF_INET6) {
        memcpy(ret_bytes, &four->sin_addr, 4);
        return 4;
    }
    bool mapped = IN6_IS_ADDR_V4MAPPED(&six->sin6_addr);
    memcpy(ret_bytes, six->sin6_addr.s6_addr + (mapped ? 12 : 0), mapped ? 4 : 16);
    return mapped ? 4 : 16;
}

/* The address as the library prints it, and its digest: one of this link alone with the link's number.
 * `host`: a digest of what a host cannot choose: its IPv4 address, or the network (/64) of its IPv6
 * address. */
static void set_address(struct accepted *accepted, const struct sockaddr *address)
{
    const struct sockaddr_in *four = (const void *)address;
    const struct sockaddr_in6 *six = (const void *)address;
    char host[INET6_ADDRSTRLEN] = "", scope[12] = "", *text = accepted->text;
    uint8_t bytes[16];
    bool is_four = host_bytes(address, bytes) == 4;
    in_port_t port = address->sa_family == AF_INET6 ? six->sin6_port : four->sin_port;
    (void)inet_ntop(is_four ? AF_INET : AF_INET6, bytes, host, sizeof host);
    if (!is_four && six->sin6_scope_id != 0)
        snprintf(scope, sizeof scope, "%%%" PRIu32, six->sin6_scope_id);
    int count = snprintf(text, sizeof accepted->text, is_four ? "%s%s:%u" : "[%s%s]:%u", host,
                         scope, ntohs(port));
    accepted->host = digest_fast64((struct slice){bytes, is_four ? 4 : 8}) | 1;
    accepted->address = digest_fast64((struct slice){(const uint8_t *)text, (size_t)count});
}

static bool add_locked(struct accepted_table *table, struct accepted *accepted)
{
    const struct accepted_limits *limits = &table->limits;
    if (half_open_of_locked(table, accepted->host) >= limits->half_open_host_max)
        (void)shed_locked(table, accepted->host);
    else if (table->half_open_count >= limits->half_open_max)
        (void)shed_locked(table, 0);
    bool full = table->connections >= limits->connections_max;
    if (full)
        closings_add(&table->closings, CLOSING_PLACES, NULL, accepted->text);
    if (full || id_table_find(&table->by_address, accepted->address) != NULL)
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
        set_address(accepted, address);
        ring_init(&accepted->calls);
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

static bool is_revoked_locked(const struct accepted_table *table, uint64_t certificate)
{
    for (uint32_t i = 0; i < table->revoked_count; i++)
        if (table->revoked[i] == certificate)
            return true;
    return false;
}

/* Why one more peer that proves itself may not stay. CLOSING_COUNT: it may. */
static enum closing refused_locked(const struct accepted_table *table, const struct tls_peer *peer)
{
    uint32_t with_certificate = 0, workers = 0;
    for (const struct ring *link = table->all.behind; link != &table->all; link = link->behind) {
        const struct accepted *accepted = RING_ITEM(link, struct accepted, all);
        if (!accepted->proved || accepted->closing)
            continue;
        with_certificate += accepted->peer.certificate == peer->certificate;
        workers += !has_places_kept(accepted->peer.holder.role);
    }
    if (is_revoked_locked(table, peer->certificate))
        return CLOSING_REVOKED;
    if (with_certificate >= table->limits.certificate_max)
        return CLOSING_CERTIFICATE;
    bool room = has_places_kept(peer->holder.role) || workers < table->limits.workers_max;
    return room ? CLOSING_COUNT : CLOSING_WORKERS;
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
        if (accepted->proved && is_revoked_locked(table, accepted->peer.certificate))
            close_locked(accepted, CLOSING_REVOKED);
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
        if (accepted->proved && now_s > accepted->peer.ends_s)
            close_locked(accepted, CLOSING_EXPIRED);
    }
    thread_unlock(&table->lock);
}

void accepted_proved(struct accepted *accepted, const struct tls_peer *peer)
{
    struct accepted_table *table = accepted->table;
    thread_lock(&table->lock);
    end_half_open_locked(accepted);
    enum closing why = refused_locked(table, peer);
    accepted->peer = *peer;
    accepted->proved = true;
    if (why != CLOSING_COUNT)
        close_locked(accepted, why);
    thread_unlock(&table->lock);
    (void)take_off(accepted, LLONG_MAX); /* the handshake has been read */
    atomic_store(&accepted->framed, true);
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
    take_off_dropped(take_accepted, LLONG_MAX);
    atomic_fetch_add(&table->dropped_bytes, take_accepted->frames.headers_bytes_sum);
    set_open_bytes(take_accepted, 0);
    accepted_unref(take_accepted);
}

/* ---- Bytes ---- */

static void judge(struct accepted *accepted)
{
    struct accepted_table *table = accepted->table;
    const struct accepted_limits *limits = &table->limits;
    long long own_max = (long long)limits->role_bytes_max[accepted->peer.holder.role];
    if (own_bytes(accepted) > own_max)
        close_one(accepted,
                  atomic_load(&accepted->framed) ? CLOSING_UNFINISHED : CLOSING_HANDSHAKE);
    else if (atomic_load(&table->unfinished_bytes) > (long long)limits->unfinished_bytes_max)
        close_largest(table);
}

static void count_call_bytes(struct accepted *accepted, size_t bytes)
{
    atomic_fetch_add(&accepted->brought_bytes, bytes); /* first: drop_ended_locked() */
    atomic_fetch_add(&accepted->call_bytes, (long long)bytes);
    atomic_fetch_add(&accepted->table->unfinished_bytes, (long long)bytes);
}

void accepted_received(struct accepted *accepted, size_t bytes)
{
    if (atomic_load(&accepted->framed))
        return;
    count_call_bytes(accepted, bytes);
    judge(accepted);
}

static uint64_t open_calls(const struct accepted *accepted)
{
    return atomic_load(&accepted->streams) - atomic_load(&accepted->ended);
}

static void begin_streams(struct accepted *accepted, uint32_t count)
{
    thread_lock(&accepted->table->lock);
    if (accepted->begun == atomic_load(&accepted->streams))
        accepted->known_bytes = atomic_load(&accepted->brought_bytes);
    atomic_fetch_add(&accepted->streams, count);
    if (open_calls(accepted) > accepted->table->limits.calls_max)
        close_locked(accepted, CLOSING_CALLS);
    thread_unlock(&accepted->table->lock);
}

bool accepted_rekeyed(struct accepted *accepted, uint64_t now_ns)
{
    bool stays = !is_too_often(&accepted->rekeys, accepted->table->limits.rekeys_max, now_ns);
    if (!stays)
        close_one(accepted, CLOSING_REKEYS);
    return stays;
}

void accepted_answered(struct accepted *accepted)
{
    accepted->frames.answered = true;
}

/* Of headers whose meaning nothing bounds but they themselves. */
static uint32_t meant_bytes(const struct accepted *accepted)
{
    const struct frames *frames = &accepted->frames;
    uint32_t most = accepted->table->limits.headers_bytes_max;
    uint32_t bytes = frames->headers_bytes < most ? frames->headers_bytes : most;
    return frames->acknowledged ? 0 : bytes * accepted->table->limits.header_byte_means;
}

void accepted_brought(struct accepted *accepted, struct slice plain)
{
    struct frames_brought brought = {0};
    frames_read(&accepted->frames, plain, &brought);
    if (brought.streams > 0)
        begin_streams(accepted, brought.streams);
    if (open_calls(accepted) > 0)
        count_call_bytes(accepted, brought.call_bytes);
    set_open_bytes(accepted, accepted->frames.open_bytes + meant_bytes(accepted));
    if (accepted->frames.headers_bytes_most > accepted->table->limits.headers_bytes_max)
        close_one(accepted, CLOSING_HEADERS);
    judge(accepted);
}

/* ---- Calls ---- */

/* Until here the connection brought nothing for calls that the library has not shown yet. */
static uint64_t known_bytes_locked(const struct accepted *accepted)
{
    return accepted->begun == atomic_load(&accepted->streams)
               ? atomic_load(&accepted->brought_bytes)
               : accepted->known_bytes;
}

/* (1) What came before all open calls began, and was not delivered, is gone. */
static void drop_ended_locked(struct accepted *accepted)
{
    long long kept = atomic_load(&accepted->call_bytes); /* first: it may grow meanwhile */
    uint64_t from = ring_is_empty(&accepted->calls)
                        ? known_bytes_locked(accepted)
                        : RING_ITEM(accepted->calls.behind, struct accepted_call, open)->from_bytes;
    long long since = (long long)(atomic_load(&accepted->brought_bytes) - from);
    if (kept > since)
        take_off_dropped(accepted, kept - since);
}

static void end_locked(struct accepted *accepted)
{
    atomic_fetch_add(&accepted->ended, 1);
    drop_ended_locked(accepted);
}

static struct accepted_call *begin_locked(struct accepted *accepted)
{
    struct accepted_call *call = calloc(1, sizeof *call);
    if (call != NULL) {
        atomic_fetch_add(&accepted->references, 1);
        call->accepted = accepted;
        call->from_bytes = known_bytes_locked(accepted);
        ring_add(&accepted->calls, &call->open);
    }
    if (accepted->begun < atomic_load(&accepted->streams))
        accepted->begun++;
    else
        atomic_fetch_sub(&accepted->ended, 1); /* it was written off, and comes all the same */
    if (call == NULL)
        end_locked(accepted);
    return call;
}

/* (2) What was there the last time, and is not shown. */
static void write_off_locked(struct accepted *accepted)
{
    if (accepted->streams_before > accepted->begun) {
        atomic_fetch_add(&accepted->ended, accepted->streams_before - accepted->begun);
        accepted->begun = accepted->streams_before;
        drop_ended_locked(accepted);
    }
    accepted->streams_before = atomic_load(&accepted->streams);
}

void accepted_write_off(struct accepted_table *table)
{
    thread_lock(&table->lock);
    for (struct ring *link = table->all.behind; link != &table->all; link = link->behind)
        write_off_locked(RING_ITEM(link, struct accepted, all));
    thread_unlock(&table->lock);
}

enum err accepted_call_begin(struct accepted_table *table, const char *address,
                             struct accepted_call **ret_call)
{
    uint64_t id = digest_fast64((struct slice){(const uint8_t *)address, strlen(address)});
    thread_lock(&table->lock);
    struct accepted *accepted = id_table_find(&table->by_address, id);
    struct accepted_call *call = accepted != NULL ? begin_locked(accepted) : NULL;
    thread_unlock(&table->lock);
    if (accepted != NULL && call == NULL)
        return ERR_NOMEM;
    *ret_call = call;
    return ERR_OK;
}

void accepted_call_end(struct accepted_call *take_call)
{
    if (take_call == NULL)
        return;
    struct accepted *accepted = take_call->accepted;
    thread_lock(&accepted->table->lock);
    ring_take(&take_call->open);
    end_locked(accepted);
    thread_unlock(&accepted->table->lock);
    accepted_unref(accepted);
    free(take_call);
}

struct tls_peer accepted_call_peer(const struct accepted_call *call)
{
    if (call == NULL)
        return (struct tls_peer){0};
    thread_lock(&call->accepted->table->lock);
    struct tls_peer peer = call->accepted->peer;
    thread_unlock(&call->accepted->table->lock);
    return peer;
}

void accepted_delivered(struct accepted_call *call, size_t bytes)
{
    if (call != NULL)
        (void)take_off(call->accepted, (long long)(MESSAGE_PREFIX_BYTES + bytes));
}

void accepted_reset(struct accepted_call *call, uint64_t now_ns)
{
    if (call == NULL)
        return;
    struct accepted *accepted = call->accepted;
    thread_lock(&accepted->table->lock);
    if (is_too_often(&accepted->resets, accepted->table->limits.resets_max, now_ns))
        close_locked(accepted, CLOSING_RESETS);
    thread_unlock(&accepted->table->lock);
}

bool accepted_closed_take(struct accepted_table *table, enum closing closing, uint64_t now_ns,
                          struct closed *ret_closed)
{
    thread_lock(&table->lock);
    bool due = closings_take(&table->closings, closing, now_ns, ret_closed);
    thread_unlock(&table->lock);
    return due;
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
    counts.dropped_bytes = atomic_load(&table->dropped_bytes);
    return counts;
}
