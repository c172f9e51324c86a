/* How a link begins, over a Unix socket, and ends. */
#include "common/shared/shared_link.h"

#include "common/shared/shared_link_core.h"
#include "common/time.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    HEAD_BYTES = 8192,
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
    BACKLOG = 256,
};
static const uint64_t hello_magic = UINT64_C(0x32306b6e696c6472);

/* What goes with the memory. */
struct hello {
    uint64_t magic;
    uint64_t ring_bytes;
    uint8_t word[SHARED_LINK_WORD_BYTES];
};

/* ---- memory ---- */

enum err shared_link_io_error(struct reason *reason, const char *what)
{
    int number = errno;
    return reason_set(reason, err_from_errno(number), "%s: %s", what, strerror(number));
}

static bool ring_bytes_fit(uint64_t bytes)
{
    return bytes >= SHARED_LINK_RING_BYTES_MIN && bytes <= SHARED_LINK_RING_BYTES_MAX &&
           (bytes & (bytes - 1)) == 0;
}

static enum err map(struct shared_link *link, int memory, uint64_t ring_bytes, bool connects,
                    struct reason *reason)
{
    _Static_assert(sizeof(struct shared_link_page) <= HEAD_BYTES, "rings begin behind it");
    size_t bytes = HEAD_BYTES + 2 * (size_t)ring_bytes;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (at == MAP_FAILED)
        return shared_link_io_error(reason, "mapping shared memory");
    link->page = at;
    link->mapped_bytes = bytes;
    for (int way = 0; way < 2; way++) {
        bool out = (way == 0) == connects;
        struct shared_ring *ring = out ? &link->out : &link->in;
        if (out)
            link->loans.returns = &link->page->returns[way];
        else
            link->returns = &link->page->returns[way];
        *ring = (struct shared_ring){&link->page->ways[way],
                                     (uint8_t *)at + HEAD_BYTES + (size_t)way * ring_bytes,
                                     ring_bytes, 0, 0};
    }
    return ERR_OK;
}

enum err shared_link_judge_user(int unix_socket, struct reason *reason)
{
    struct ucred other;
    socklen_t bytes = sizeof other;
    if (getsockopt(unix_socket, SOL_SOCKET, SO_PEERCRED, &other, &bytes) != 0)
        return shared_link_io_error(reason, "asking who is at the other end of a socket");
    if (other.uid != getuid())
        return reason_set(reason, ERR_DENIED, "process %d belongs to user %u, not to %u",
                          (int)other.pid, (unsigned)other.uid, (unsigned)getuid());
    return ERR_OK;
}

static struct shared_link *link_over(int unix_socket, const struct shared_link_options *options)
{
    struct shared_link *link = aligned_alloc(SHARED_LINK_LINE_BYTES, sizeof *link);
    void **items = malloc(SHARED_LOANS_MAX * sizeof *items); /* most of it is never touched */
    if (link == NULL || items == NULL) {
        free(items);
        free(link);
        close(unix_socket);
        return NULL;
    }
    *link =
        (struct shared_link){.options = *options, .socket = unix_socket, .loans = {.items = items}};
    atomic_init(&link->references, 1);
    atomic_init(&link->held, 0);
    return link;
}

void shared_link_drop(struct shared_link *link)
{
    if (atomic_fetch_sub_explicit(&link->references, 1, memory_order_acq_rel) != 1)
        return;
    if (link->page != NULL)
        munmap(link->page, link->mapped_bytes);
    if (link->lent.data != NULL)
        munmap((void *)(uintptr_t)link->lent.data, link->lent.bytes);
    close(link->socket);
    free(link->loans.items);
    free(link);
}

void shared_link_free(struct shared_link *link)
{
    if (link != NULL)
        shared_link_drop(link);
}

/* Memory of that size, which keeps it. *ret_memory: close(). */
static enum err make_memory(uint64_t ring_bytes, int *ret_memory, struct reason *reason)
{
    int memory = memfd_create("roost", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory < 0)
        return shared_link_io_error(reason, "making shared memory");
    if (ftruncate(memory, (off_t)(HEAD_BYTES + 2 * ring_bytes)) != 0 ||
        fcntl(memory, F_ADD_SEALS, SEALS) != 0) {
        enum err err = shared_link_io_error(reason, "sealing shared memory");
        close(memory);
        return err;
    }
    *ret_memory = memory;
    return ERR_OK;
}

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* The file goes with the words. */
static enum err send_file(int unix_socket, int file, const void *words, size_t bytes,
                          struct reason *reason)
{
    union control control = {.bytes = {0}};
    struct iovec vector = {(void *)(uintptr_t)words, bytes};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(rights), &file, sizeof file);
    if (sendmsg(unix_socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)bytes)
        return shared_link_io_error(reason, "handing over shared memory");
    return ERR_OK;
}

static enum err send_memory(int unix_socket, int memory, const struct shared_link_options *options,
                            struct reason *reason)
{
    struct hello hello = {.magic = hello_magic, .ring_bytes = options->ring_bytes};
    memcpy(hello.word, options->word, sizeof hello.word);
    return send_file(unix_socket, memory, &hello, sizeof hello, reason);
}

/* With the first byte that wakes the other side. */
static enum err send_pool(const struct shared_link *link, struct reason *reason)
{
    const struct shared_pool *pool = link->options.pool;
    return pool == NULL ? ERR_OK : send_file(link->socket, shared_pool_file(pool), "", 1, reason);
}

static enum err offer(struct shared_link *link, struct reason *reason)
{
    int memory = -1;
    TRY(shared_link_judge_user(link->socket, reason));
    TRY(make_memory(link->options.ring_bytes, &memory, reason));
    enum err err = map(link, memory, link->options.ring_bytes, true, reason);
    if (err == ERR_OK)
        err = send_memory(link->socket, memory, &link->options, reason);
    if (err == ERR_OK)
        ignore(send_pool(link, reason)); /* the other side may have the link: nothing is lent */
    close(memory);
    return err;
}

enum err shared_link_offer(int take_socket, const struct shared_link_options *options,
                           struct shared_link **ret_link, struct reason *reason)
{
    check(ring_bytes_fit(options->ring_bytes));
    struct shared_link *link = link_over(take_socket, options);
    if (link == NULL)
        return ERR_NOMEM;
    enum err err = offer(link, reason);
    if (err != ERR_OK)
        shared_link_free(link);
    else
        *ret_link = link;
    return err;
}

int shared_link_poll_ms(uint64_t deadline_ns)
{
    uint64_t now = time_now_ns();
    if (deadline_ns == TIME_NEVER)
        return -1;
    uint64_t ms = deadline_ns <= now ? 0 : (deadline_ns - now + 999999) / 1000000;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* Until there is something to read. */
static enum err wait_readable(int unix_socket, uint64_t deadline_ns, const char *what,
                              struct reason *reason)
{
    struct pollfd poll_one = {.fd = unix_socket, .events = POLLIN};
    for (;;) {
        int ready = poll(&poll_one, 1, shared_link_poll_ms(deadline_ns));
        if (ready > 0)
            return ERR_OK;
        if (ready < 0 && errno != EINTR)
            return shared_link_io_error(reason, what);
        if (time_now_ns() >= deadline_ns)
            return reason_set(reason, ERR_DEADLINE, "%s: nothing came before the deadline", what);
    }
}

/* What came with the words; -1: no file. */
static int file_of(struct msghdr *message)
{
    struct cmsghdr *rights = CMSG_FIRSTHDR(message);
    int file;
    if (rights == NULL || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS ||
        rights->cmsg_len != CMSG_LEN(sizeof file))
        return -1;
    memcpy(&file, CMSG_DATA(rights), sizeof file);
    return file;
}

static enum err judge_memory(int memory, const struct hello *hello, struct reason *reason)
{
    struct stat about;
    int seals = fcntl(memory, F_GET_SEALS);
    if (hello->magic != hello_magic || !ring_bytes_fit(hello->ring_bytes))
        return reason_set(reason, ERR_MALFORMED, "shared memory with a hello that is none");
    if (seals < 0 || (seals & SEALS) != SEALS)
        return reason_set(reason, ERR_MALFORMED, "shared memory that is not sealed");
    if ((seals & F_SEAL_WRITE) != 0)
        return reason_set(reason, ERR_MALFORMED, "shared memory that cannot be written");
    if (fstat(memory, &about) != 0 || (uint64_t)about.st_size != HEAD_BYTES + 2 * hello->ring_bytes)
        return reason_set(reason, ERR_MALFORMED, "shared memory of another size than it should be");
    return ERR_OK;
}

ssize_t shared_link_receive(const struct shared_link *link, void *bytes, size_t bytes_max,
                            int *ret_file)
{
    union control control;
    struct iovec vector = {bytes, bytes_max};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_LEN(sizeof(int))}; /* others stay there */
    ssize_t got = recvmsg(link->socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    *ret_file = got > 0 ? file_of(&message) : -1;
    return got;
}

static enum err receive_memory(struct shared_link *link, struct reason *reason)
{
    struct hello hello = {0};
    int memory;
    ssize_t got = shared_link_receive(link, &hello, sizeof hello, &memory);
    if (got < 0)
        return shared_link_io_error(reason, "taking shared memory");
    if (memory < 0)
        return reason_set(reason, ERR_MALFORMED, "a hello without shared memory");
    enum err err = got == (ssize_t)sizeof hello
                       ? judge_memory(memory, &hello, reason)
                       : reason_set(reason, ERR_MALFORMED, "a hello of %zd bytes", got);
    if (err == ERR_OK)
        err = map(link, memory, hello.ring_bytes, false, reason);
    memcpy(link->options.word, hello.word, sizeof hello.word);
    close(memory);
    return err;
}

const uint8_t *shared_link_word(const struct shared_link *link)
{
    return link->options.word;
}

enum err shared_link_take(int take_socket, const struct shared_link_options *options,
                          uint64_t deadline_ns, struct shared_link **ret_link,
                          struct reason *reason)
{
    struct shared_link *link = link_over(take_socket, options);
    if (link == NULL)
        return ERR_NOMEM;
    enum err err = shared_link_judge_user(link->socket, reason);
    if (err == ERR_OK)
        err = wait_readable(link->socket, deadline_ns, "taking shared memory", reason);
    if (err == ERR_OK)
        err = receive_memory(link, reason);
    if (err != ERR_OK)
        shared_link_free(link);
    else
        *ret_link = link;
    return err;
}

enum err shared_link_admit(struct shared_link *link, struct reason *reason)
{
    return send_pool(link, reason);
}

/* An abstract name begins with a zero byte; *ret_bytes is the address's length. */
static enum err address_of(const char *name, struct sockaddr_un *ret_address, socklen_t *ret_bytes,
                           struct reason *reason)
{
    size_t bytes = strlen(name);
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (bytes == 0 || bytes >= sizeof ret_address->sun_path)
        return reason_set(reason, ERR_INVALID, "a name of %zu bytes", bytes);
    memcpy(ret_address->sun_path + 1, name, bytes);
    *ret_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes);
    return ERR_OK;
}

enum err shared_link_listen(const char *name, int *ret_socket, struct reason *reason)
{
    struct sockaddr_un address;
    socklen_t bytes;
    TRY(address_of(name, &address, &bytes, reason));
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0)
        return shared_link_io_error(reason, "making a socket");
    if (bind(listener, (const struct sockaddr *)&address, bytes) != 0 ||
        listen(listener, BACKLOG) != 0) {
        enum err err = errno == EADDRINUSE
                           ? reason_set(reason, ERR_EXISTS, "somebody listens as %s", name)
                           : shared_link_io_error(reason, "listening");
        close(listener);
        return err;
    }
    *ret_socket = listener;
    return ERR_OK;
}

enum err shared_link_accept(int listener, const struct shared_link_options *options,
                            uint64_t deadline_ns, struct shared_link **ret_link,
                            struct reason *reason)
{
    TRY(wait_readable(listener, deadline_ns, "accepting", reason));
    int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (accepted < 0)
        return shared_link_io_error(reason, "accepting");
    return shared_link_take(accepted, options, deadline_ns, ret_link, reason);
}

enum err shared_link_reach(const char *name, int *ret_socket, struct reason *reason)
{
    struct sockaddr_un address;
    socklen_t bytes;
    TRY(address_of(name, &address, &bytes, reason));
    int connected = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connected < 0)
        return shared_link_io_error(reason, "making a socket");
    if (connect(connected, (const struct sockaddr *)&address, bytes) != 0) {
        close(connected);
        return reason_set(reason, ERR_UNREACHABLE, "nobody takes links as %s", name);
    }
    *ret_socket = connected;
    return ERR_OK;
}

enum err shared_link_connect(const char *name, const struct shared_link_options *options,
                             struct shared_link **ret_link, struct reason *reason)
{
    int connected;
    TRY(shared_link_reach(name, &connected, reason));
    return shared_link_offer(connected, options, ret_link, reason);
}
