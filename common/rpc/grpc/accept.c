/* Takes connections itself and hands each to the library.
 *
 * The library's own listener stops for good when a process has no file left (1.51), and knows no
 * limits. It has a hook for foreign listeners: a port named "external:…" leaves a handler in a
 * channel argument. That handler is a C++ object of a class that is not in the library's headers:
 *
 *     class TcpServerFdHandler {
 *       virtual ~TcpServerFdHandler();
 *       virtual void Handle(int listener_fd, int fd, grpc_byte_buffer *pending_read) = 0;
 *     };
 *
 * so its table of functions holds two destructors and then Handle (Itanium C++ ABI 2.5), and before
 * them the class' type, whose base names the class. The name is compared before the first call. */
#include "common/file.h"
#include "common/log.h"
#include "common/rpc/grpc/core.h"
#include "common/scoped.h"
#include "common/time.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    PORTS_MAX = 8,    /* addresses of one host name */
    ACCEPTS_MAX = 64, /* from one port, before the others are looked at */
    FULL_MS = 50,     /* the pause when no file is left */
    LOOK_MS = 1000,   /* how often look_around() */
    /* So many connections ended or bytes were dropped, or a limit closed a connection: memory goes
     * back to the system. */
    ENDED_MIN = 64,
    DROPPED_BYTES_MIN = 4 << 20,
    UNPROVED_BYTES_MAX = 256 << 10, /* a handshake with the longest chain */
    READ_AHEAD_BYTES = 4 << 20,     /* a message that nobody reads: 3 to 4 MiB were seen */
    RESETS_MAX = 512,
    REKEYS_MAX = 32,                    /* OpenSSL and gRPC renew none by themselves */
    HEADER_FRAMES_BYTES_MAX = 32 << 10, /* gRPC takes half of that in each frame (seen) */
    HEADER_BYTE_MEANS = 128,            /* 115 bytes of memory were seen */
    CALLS_FACTOR = 2 /* a peer that has the end of a call may begin the next before we have it */
};

#define LOOK_NS 1000000000ull
#define SHOW_NS (ACCEPTED_SHOW_S * 1000000000ull)
#define QUIET_NS 5000000000ull /* without a new connection, before memory goes back */

/* ---- The library's side ---- */

struct handler {
    const void *const *functions;
};
typedef void handle_fn(struct handler *handler, int listener_file, int take_file,
                       grpc_byte_buffer *take_pending);
enum { FUNCTION_TYPE = -1, FUNCTION_HANDLE = 2, TYPE_NAME = 1, TYPE_BASE = 2 };

static bool handler_is_known(const struct handler *handler)
{
    if (handler == NULL)
        return false;
    const void *const *type = handler->functions[FUNCTION_TYPE];
    const void *const *base = type[TYPE_BASE];
    return base != NULL && strcmp(base[TYPE_NAME], "N9grpc_core18TcpServerFdHandlerE") == 0;
}

static void *pointer_copy(void *pointer)
{
    return pointer;
}

static void pointer_drop(void *pointer)
{
    (void)pointer;
}

static int pointer_compare(void *a, void *b)
{
    return ((uintptr_t)a > (uintptr_t)b) - ((uintptr_t)a < (uintptr_t)b);
}

/* ---- The listener ---- */

struct rpc_listener {
    int ports[PORTS_MAX];
    nfds_t port_count;
    int stopping; /* an eventfd */
    bool tls, started;
    uint32_t keepalive_timeout_ms;
    const struct logger *logger; /* NULL: nobody hears what was closed */
    int file_max;                /* files from this number on are for others than connections */
    struct handler *handler;
    struct accepted_table *table;
    struct thread thread;
    char revoked_path[TLS_PATH_BYTES_MAX]; /* "": no list */
    struct tls_revoked revoked;
    uint64_t quiet_since_ns, looked_ns, wrote_off_ns;
    struct accepted_counts given; /* when memory went back last */
};

static void on_proved(void *owner, const struct tls_peer *peer)
{
    accepted_proved(owner, peer);
}

static void on_received(void *owner, size_t bytes)
{
    rpc_protector_watched(owner);
    accepted_received(owner, bytes);
}

static void on_gone(void *owner)
{
    accepted_gone(owner);
}

static bool on_rekeyed(void *owner)
{
    return accepted_rekeyed(owner, time_now_ns());
}

static const struct tls_observer observer = {on_proved, on_received, on_rekeyed, on_gone};

static void hand_over(struct rpc_listener *listener, int take_file)
{
    handle_fn *handle;
    memcpy(&handle, &listener->handler->functions[FUNCTION_HANDLE], sizeof handle);
    handle(listener->handler, -1, take_file, NULL);
}

static void take_connection(struct rpc_listener *listener, int take_file,
                            const struct sockaddr *address)
{
    static const int on = 1;
    (void)setsockopt(take_file, IPPROTO_TCP, TCP_NODELAY, &on,
                     sizeof on); /* a test's socket may not be TCP */
    (void)setsockopt(take_file, IPPROTO_TCP, TCP_USER_TIMEOUT, &listener->keepalive_timeout_ms,
                     sizeof listener->keepalive_timeout_ms);
    if (!listener->tls) {
        hand_over(listener, take_file);
        return;
    }
    int duplicate = fcntl(take_file, F_DUPFD_CLOEXEC, 0);
    struct accepted *accepted =
        duplicate < 0 ? NULL : accepted_add(listener->table, address, duplicate);
    if (accepted == NULL) {
        (void)close(take_file);
        return;
    }
    tls_watch_begin(&observer, accepted);
    hand_over(listener, take_file);
    if (!tls_watch_end())
        accepted_gone(accepted); /* it ended before its handshake began */
}

/* False: nothing waits there, or no file is left for it. */
static bool accept_one(struct rpc_listener *listener, int port)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    int file = accept4(port, (struct sockaddr *)&address, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (file >= 0 && file < listener->file_max) {
        take_connection(listener, file, (const struct sockaddr *)&address);
        return true;
    }
    if (file < 0 && (errno == ECONNABORTED || errno == EINTR))
        return true;
    if (file < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return false;
    if (file >= 0)
        (void)close(file);
    (void)accepted_shed(listener->table);
    (void)poll(NULL, 0, FULL_MS); /* until others have closed theirs */
    return false;
}

/* glibc keeps what a flood needed, as it is told to (rpc_process_init()). */
static void give_memory_back(struct rpc_listener *listener)
{
    struct accepted_counts counts = accepted_count(listener->table);
    const struct accepted_counts *given = &listener->given;
    if (counts.ended - given->ended < ENDED_MIN && counts.closed == given->closed &&
        counts.dropped_bytes - given->dropped_bytes < DROPPED_BYTES_MIN)
        return;
    listener->given = counts;
    (void)malloc_trim(0);
}

/* A list that cannot be read changes nothing; the daemon's loop reports it. */
static void read_revoked(struct rpc_listener *listener)
{
    bool news = false;
    if (listener->revoked_path[0] != 0 &&
        tls_revoked_read(listener->revoked_path, &listener->revoked, &news, NULL) == ERR_OK &&
        news && accepted_revoke(listener->table, &listener->revoked) != ERR_OK)
        listener->revoked.modified_ns = 0; /* no memory: once more */
}

static void say_closed(const struct rpc_listener *listener, enum closing closing,
                       const struct closed *closed)
{
    char peer[TLS_NAME_BYTES_MAX + 16];
    bool proved = closed->holder.role != TLS_ROLE_NONE;
    snprintf(peer, sizeof peer, "%s/%s", tls_role_name(closed->holder.role), closed->holder.name);
    log_warning(listener->logger, "connection closed", log_text("peer", proved ? peer : NULL),
                log_text("address", closed->address), log_text("limit", closing_word(closing)),
                log_text("why", closing_text(closing)), log_uint("closed", closed->count));
}

static void say_all_closed(const struct rpc_listener *listener, uint64_t now_ns)
{
    struct closed closed;
    for (unsigned i = 0; i < CLOSING_COUNT && listener->logger != NULL; i++)
        if (accepted_closed_take(listener->table, i, now_ns, &closed))
            say_closed(listener, i, &closed);
}

/* After each connection, and each second without one. */
static void look_around(struct rpc_listener *listener, bool came)
{
    uint64_t now_ns = time_now_ns();
    if (now_ns - listener->looked_ns >= LOOK_NS) {
        listener->looked_ns = now_ns;
        read_revoked(listener);
        accepted_expire(listener->table, (int64_t)time_wall_s());
        say_all_closed(listener, now_ns);
    }
    if (now_ns - listener->wrote_off_ns >= SHOW_NS) {
        listener->wrote_off_ns = now_ns;
        accepted_write_off(listener->table);
    }
    if (came || listener->quiet_since_ns == 0)
        listener->quiet_since_ns = now_ns;
    if (now_ns - listener->quiet_since_ns < QUIET_NS)
        return;
    listener->quiet_since_ns = now_ns;
    give_memory_back(listener);
}

static void accept_connections(void *argument)
{
    struct rpc_listener *listener = argument;
    struct pollfd files[PORTS_MAX + 1];
    nfds_t count = listener->port_count;
    for (nfds_t i = 0; i < count; i++)
        files[i] = (struct pollfd){.fd = listener->ports[i], .events = POLLIN};
    files[count] = (struct pollfd){.fd = listener->stopping, .events = POLLIN};
    for (;;) {
        int ready = poll(files, count + 1, LOOK_MS);
        look_around(listener, ready > 0);
        if (ready <= 0)
            continue;
        if (files[count].revents != 0)
            return;
        for (nfds_t i = 0; i < count; i++)
            for (int accepts = 0; files[i].revents != 0 && accepts < ACCEPTS_MAX; accepts++)
                if (!accept_one(listener, files[i].fd))
                    break;
    }
}

/* ---- Starting and stopping ---- */

SCOPED_FREE(struct addrinfo, freeaddrinfo)

/* -1 with errno. */
static int listen_at(const struct addrinfo *found, unsigned port)
{
    static const int on = 1, off = 0;
    struct sockaddr_storage address = {0};
    memcpy(&address, found->ai_addr, found->ai_addrlen);
    if (port != 0 && found->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)&address)->sin6_port = htons((uint16_t)port);
    else if (port != 0)
        ((struct sockaddr_in *)&address)->sin_port = htons((uint16_t)port);
    int file = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (file < 0)
        return -1;
    (void)setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (found->ai_family == AF_INET6) /* "[::]" is both */
        (void)setsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(file, (struct sockaddr *)&address, found->ai_addrlen) == 0 &&
        listen(file, SOMAXCONN) == 0)
        return file;
    int number = errno;
    (void)close(file);
    errno = number;
    return -1;
}

static unsigned port_of(int file)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    (void)getsockname(file, (struct sockaddr *)&address, &bytes);
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

static enum err bind_failed(const char *address, int number, struct reason *reason)
{
    enum err err = number == EADDRINUSE ? ERR_EXISTS : err_from_errno(number);
    if (number == EADDRNOTAVAIL)
        err = ERR_INVALID;
    return reason_set(reason, err, "cannot listen on %s: %s", address, strerror(number));
}

/* All addresses of the host, at one port. One that this machine lacks does not matter if it has
 * another; none may be somebody else's. */
static enum err bind_host(struct rpc_listener *listener, const char *address, const char *host,
                          struct reason *reason)
{
    const char *wanted = strrchr(address, ':') + 1;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    scoped(freeaddrinfo_scoped) struct addrinfo *found = NULL;
    int failed = getaddrinfo(host, wanted, &hints, &found);
    if (failed != 0)
        return reason_set(reason, ERR_INVALID, "cannot listen on %s: %s", address,
                          gai_strerror(failed));
    int number = 0;
    for (const struct addrinfo *next = found; next != NULL && listener->port_count < PORTS_MAX;
         next = next->ai_next) {
        int file = listen_at(next, listener->port_count > 0 ? port_of(listener->ports[0]) : 0);
        if (file >= 0)
            listener->ports[listener->port_count++] = file;
        else
            number = errno;
        if (number == EADDRINUSE && strcmp(wanted, "0") != 0)
            break;
    }
    bool bound = listener->port_count > 0 && number != EADDRINUSE;
    return bound ? ERR_OK : bind_failed(address, number, reason);
}

static enum err bind_all(struct rpc_listener *listener, const char *address, struct reason *reason)
{
    char host[RPC_HOST_BYTES];
    TRY(rpc_address_host(address, host, reason));
    /* "[::]" is all addresses of either kind, where a machine has both. */
    if (strcmp(host, "0.0.0.0") == 0 && bind_host(listener, address, "::", NULL) == ERR_OK)
        return ERR_OK;
    return bind_host(listener, address, host, reason);
}

static struct accepted_limits limits_of(const struct rpc_settings *settings, uint32_t file_max)
{
    struct accepted_limits limits = {.unfinished_bytes_max = settings->unfinished_bytes_max,
                                     .calls_max = CALLS_FACTOR * settings->calls_max,
                                     .resets_max = RESETS_MAX,
                                     .rekeys_max = REKEYS_MAX,
                                     .headers_bytes_max = HEADER_FRAMES_BYTES_MAX,
                                     .header_byte_means = HEADER_BYTE_MEANS};
    accepted_limits_files(&limits, file_max, settings->connections_max);
    limits.role_bytes_max[TLS_ROLE_NONE] = UNPROVED_BYTES_MAX;
    for (unsigned role = TLS_ROLE_SERVER; role < TLS_ROLE_COUNT; role++)
        limits.role_bytes_max[role] = READ_AHEAD_BYTES + settings->role_bytes_max[role];
    return limits;
}

static enum err first_revoked(struct rpc_listener *listener, struct reason *reason)
{
    bool news = false;
    TRY(tls_revoked_read(listener->revoked_path, &listener->revoked, &news, reason));
    return news ? accepted_revoke(listener->table, &listener->revoked) : ERR_OK;
}

enum err rpc_listener_new(const struct rpc_listener_config *config,
                          struct rpc_listener **ret_listener, unsigned *ret_port,
                          struct reason *reason)
{
    struct rpc_listener *listener = calloc(1, sizeof *listener);
    if (listener == NULL)
        return ERR_NOMEM;
    listener->tls = config->identity != NULL;
    if (listener->tls)
        memcpy(listener->revoked_path, config->identity->revoked, sizeof listener->revoked_path);
    listener->keepalive_timeout_ms = config->settings->keepalive_timeout_ms;
    listener->logger = config->settings->logger;
    uint32_t file_max = file_limit_raise();
    file_max -= file_max / 8 + 32; /* for checkpoints, journals and what a process has open */
    listener->file_max = (int)file_max;
    struct accepted_limits limits = limits_of(config->settings, file_max);
    enum err err = accepted_table_new(&limits, &listener->table);
    listener->stopping = eventfd(0, EFD_CLOEXEC);
    if (err == ERR_OK && listener->stopping < 0)
        err = reason_set(reason, ERR_BUSY, "no file is left to listen with");
    if (err == ERR_OK && listener->revoked_path[0] != 0)
        err = first_revoked(listener, reason);
    if (err == ERR_OK)
        err = bind_all(listener, config->address, reason);
    if (err != ERR_OK) {
        rpc_listener_free(listener);
        return err;
    }
    *ret_port = port_of(listener->ports[0]);
    *ret_listener = listener;
    return ERR_OK;
}

void rpc_listener_argument(struct rpc_listener *listener, struct rpc_arguments *arguments)
{
    static const grpc_arg_pointer_vtable table = {pointer_copy, pointer_drop, pointer_compare};
    check(arguments->all.num_args < RPC_ARGUMENTS_MAX);
    arguments->rows[arguments->all.num_args++] =
        (grpc_arg){.type = GRPC_ARG_POINTER,
                   .key = (char *)(uintptr_t)RPC_LISTENER_PORT,
                   .value.pointer = {&listener->handler, &table}};
}

enum err rpc_listener_start(struct rpc_listener *listener, struct reason *reason)
{
    if (!handler_is_known(listener->handler) || (listener->tls && !rpc_protects_slices()))
        return reason_set(reason, ERR_UNSUPPORTED,
                          "gRPC's library (core %s) takes no connections from others; roost is "
                          "made for 1.51",
                          grpc_version_string());
    TRY(thread_start(&listener->thread, "accept", accept_connections, listener));
    listener->started = true;
    return ERR_OK;
}

struct accepted_table *rpc_listener_table(const struct rpc_listener *listener)
{
    return listener->table;
}

void rpc_listener_stop(struct rpc_listener *listener)
{
    if (listener->started) {
        check(eventfd_write(listener->stopping, 1) == 0);
        thread_join(&listener->thread);
        listener->started = false;
        say_all_closed(listener, UINT64_MAX);
    }
    while (listener->port_count > 0)
        (void)close(listener->ports[--listener->port_count]);
}

void rpc_listener_free(struct rpc_listener *listener)
{
    if (listener == NULL)
        return;
    rpc_listener_stop(listener);
    if (listener->stopping >= 0)
        (void)close(listener->stopping);
    accepted_table_unref(listener->table);
    free(listener);
}
