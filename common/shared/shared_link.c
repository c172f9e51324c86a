#include "common/shared/shared_link.h"

#include "common/shared/shared_loans.h"
#include "common/shared/shared_ring.h"
#include "common/time.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    LINE_BYTES = 64, /* headers and payloads begin at multiples of it */
    PAGE_BYTES = 4096,
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

/* What a message begins with; the header follows, the payload begins at the next line. */
struct frame {
    uint32_t header_bytes, zero;
    uint64_t payload_bytes;
};

/* The first page of the memory; the rings follow, in this order. */
struct page {
    struct shared_positions ways[2]; /* from who connects, to who connects */
    struct shared_returns returns[2];
};

struct shared_link {
    struct shared_link_options options;
    atomic_uint references; /* the owner's, and one for each loan that is held */
    int socket;
    bool ended;
    struct page *page; /* mapped */
    size_t mapped_bytes;
    struct shared_ring out, in;
    struct shared_loans loans;      /* of this side */
    struct shared_returns *returns; /* of what the other one lends */
    struct slice lent;              /* its pool, mapped; {0}: not yet */
    uint64_t out_left, out_pad;     /* of the payload that is being written, and behind it */
    uint64_t in_left, in_pad;
    uint64_t written_seen, read_seen; /* positions of the other side, when the last wait ended */
    _Alignas(LINE_BYTES) uint8_t header[LINE_BYTES + SHARED_LINK_HEADER_BYTES_MAX];
};

/* ---- begin and end ---- */

static enum err io_error(struct reason *reason, const char *what)
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
    _Static_assert(sizeof(struct page) <= PAGE_BYTES, "rings begin at the second page");
    size_t bytes = PAGE_BYTES + 2 * (size_t)ring_bytes;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (at == MAP_FAILED)
        return io_error(reason, "mapping shared memory");
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
                                     (uint8_t *)at + PAGE_BYTES + (size_t)way * ring_bytes,
                                     ring_bytes, 0, 0};
    }
    return ERR_OK;
}

/* The other process has this one's user. */
static enum err judge_user(int unix_socket, struct reason *reason)
{
    struct ucred other;
    socklen_t bytes = sizeof other;
    if (getsockopt(unix_socket, SOL_SOCKET, SO_PEERCRED, &other, &bytes) != 0)
        return io_error(reason, "asking who is at the other end of a socket");
    if (other.uid != getuid())
        return reason_set(reason, ERR_DENIED, "process %d belongs to user %u, not to %u",
                          (int)other.pid, (unsigned)other.uid, (unsigned)getuid());
    return ERR_OK;
}

static struct shared_link *link_over(int unix_socket, const struct shared_link_options *options)
{
    struct shared_link *link = aligned_alloc(LINE_BYTES, sizeof *link);
    if (link == NULL) {
        close(unix_socket);
        return NULL;
    }
    *link = (struct shared_link){.options = *options, .socket = unix_socket};
    atomic_init(&link->references, 1);
    return link;
}

static void drop(struct shared_link *link)
{
    if (atomic_fetch_sub_explicit(&link->references, 1, memory_order_acq_rel) != 1)
        return;
    if (link->page != NULL)
        munmap(link->page, link->mapped_bytes);
    if (link->lent.data != NULL)
        munmap((void *)(uintptr_t)link->lent.data, link->lent.bytes);
    close(link->socket);
    free(link);
}

void shared_link_free(struct shared_link *link)
{
    if (link != NULL)
        drop(link);
}

/* Memory of that size, which keeps it. *ret_memory: close(). */
static enum err make_memory(uint64_t ring_bytes, int *ret_memory, struct reason *reason)
{
    int memory = memfd_create("roost", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory < 0)
        return io_error(reason, "making shared memory");
    if (ftruncate(memory, (off_t)(PAGE_BYTES + 2 * ring_bytes)) != 0 ||
        fcntl(memory, F_ADD_SEALS, SEALS) != 0) {
        enum err err = io_error(reason, "sealing shared memory");
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
        return io_error(reason, "handing over shared memory");
    return ERR_OK;
}

static enum err send_memory(int unix_socket, int memory, const struct shared_link_options *options,
                            struct reason *reason)
{
    struct hello hello = {.magic = hello_magic, .ring_bytes = options->ring_bytes};
    memcpy(hello.word, options->word, sizeof hello.word);
    return send_file(unix_socket, memory, &hello, sizeof hello, reason);
}

/* With the first byte that wakes the other side. If it cannot be sent, nothing is lent. */
static enum err send_pool(const struct shared_link *link, struct reason *reason)
{
    const struct shared_pool *pool = link->options.pool;
    return pool == NULL ? ERR_OK : send_file(link->socket, shared_pool_file(pool), "", 1, reason);
}

static enum err offer(struct shared_link *link, struct reason *reason)
{
    int memory = -1;
    TRY(judge_user(link->socket, reason));
    TRY(make_memory(link->options.ring_bytes, &memory, reason));
    enum err err = map(link, memory, link->options.ring_bytes, true, reason);
    if (err == ERR_OK)
        err = send_memory(link->socket, memory, &link->options, reason);
    if (err == ERR_OK)
        err = send_pool(link, reason);
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

/* A positive number of milliseconds until the moment, as poll() takes it; -1: for ever. */
static int poll_ms(uint64_t deadline_ns)
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
        int ready = poll(&poll_one, 1, poll_ms(deadline_ns));
        if (ready > 0)
            return ERR_OK;
        if (ready < 0 && errno != EINTR)
            return io_error(reason, what);
        if (time_now_ns() >= deadline_ns)
            return reason_set(reason, ERR_DEADLINE, "%s: nothing came before the deadline", what);
    }
}

/* What came with the words; -1: no file, or more than one, which may have come all the same. */
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
    if (fstat(memory, &about) != 0 || (uint64_t)about.st_size != PAGE_BYTES + 2 * hello->ring_bytes)
        return reason_set(reason, ERR_MALFORMED, "shared memory of another size than it should be");
    return ERR_OK;
}

static enum err receive_memory(struct shared_link *link, struct reason *reason)
{
    struct hello hello = {0};
    union control control;
    struct iovec vector = {&hello, sizeof hello};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t got = recvmsg(link->socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0)
        return io_error(reason, "taking shared memory");
    int memory = file_of(&message);
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
    enum err err = judge_user(link->socket, reason);
    if (err == ERR_OK)
        err = wait_readable(link->socket, deadline_ns, "taking shared memory", reason);
    if (err == ERR_OK)
        err = receive_memory(link, reason);
    if (err == ERR_OK)
        err = send_pool(link, reason);
    if (err != ERR_OK)
        shared_link_free(link);
    else
        *ret_link = link;
    return err;
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
        return io_error(reason, "making a socket");
    if (bind(listener, (const struct sockaddr *)&address, bytes) != 0 ||
        listen(listener, BACKLOG) != 0) {
        enum err err = errno == EADDRINUSE
                           ? reason_set(reason, ERR_EXISTS, "somebody listens as %s", name)
                           : io_error(reason, "listening");
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
        return io_error(reason, "accepting");
    return shared_link_take(accepted, options, deadline_ns, ret_link, reason);
}

enum err shared_link_connect(const char *name, const struct shared_link_options *options,
                             struct shared_link **ret_link, struct reason *reason)
{
    struct sockaddr_un address;
    socklen_t bytes;
    TRY(address_of(name, &address, &bytes, reason));
    int connected = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connected < 0)
        return io_error(reason, "making a socket");
    if (connect(connected, (const struct sockaddr *)&address, bytes) != 0) {
        close(connected);
        return reason_set(reason, ERR_UNREACHABLE, "nobody takes links as %s", name);
    }
    return shared_link_offer(connected, options, ret_link, reason);
}

/* ---- send ---- */

static void wake(struct shared_link *link, atomic_uint *sleeps)
{
    atomic_thread_fence(
        memory_order_seq_cst); /* the position before the look; see shared_link_wait */
    if (atomic_load_explicit(sleeps, memory_order_relaxed) == 0)
        return;
    atomic_store_explicit(sleeps, 0, memory_order_relaxed);
    (void)send(link->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); /* a full socket wakes as well */
}

static uint64_t to_line(uint64_t bytes)
{
    return (LINE_BYTES - bytes % LINE_BYTES) % LINE_BYTES;
}

/* Copies into room that is known to be there. */
static enum err put(struct shared_link *link, const uint8_t *bytes, size_t count,
                    struct reason *reason)
{
    while (count > 0) {
        uint8_t *at;
        size_t room;
        TRY(shared_ring_room(&link->out, &at, &room, reason));
        size_t some = count < room ? count : room;
        memcpy(at, bytes, some);
        shared_ring_wrote(&link->out, some);
        bytes += some;
        count -= some;
    }
    return ERR_OK;
}

/* Zeros behind a payload, as far as there is room. */
static enum err pad(struct shared_link *link, struct reason *reason)
{
    static const uint8_t zeros[LINE_BYTES];
    uint64_t room;
    if (link->out_pad == 0 || link->out_left > 0)
        return ERR_OK;
    TRY(shared_ring_room_bytes(&link->out, &room, reason));
    if (room < link->out_pad)
        return ERR_OK;
    TRY(put(link, zeros, (size_t)link->out_pad, reason));
    link->out_pad = 0;
    return ERR_OK;
}

enum err shared_link_begin(struct shared_link *link, struct slice header, uint64_t payload_bytes,
                           struct reason *reason)
{
    uint8_t block[LINE_BYTES + SHARED_LINK_HEADER_BYTES_MAX] = {0};
    const struct frame frame = {(uint32_t)header.bytes, 0, payload_bytes};
    uint64_t room;
    check(link->out_left == 0 && header.bytes <= SHARED_LINK_HEADER_BYTES_MAX);
    check(payload_bytes <= link->options.payload_bytes_max);
    size_t bytes = sizeof frame + header.bytes;
    bytes += (size_t)to_line(bytes);
    TRY(pad(link, reason));
    TRY(shared_ring_room_bytes(&link->out, &room, reason));
    if (link->out_pad > 0 || room < bytes)
        return ERR_BUSY;
    memcpy(block, &frame, sizeof frame);
    memcpy(block + sizeof frame, header.data, header.bytes);
    TRY(put(link, block, bytes, reason));
    link->out_left = payload_bytes;
    link->out_pad = to_line(payload_bytes);
    wake(link, &link->out.positions->reader_sleeps);
    return ERR_OK;
}

enum err shared_link_write(struct shared_link *link, const void *bytes, size_t count,
                           size_t *ret_written, struct reason *reason)
{
    const uint8_t *from = bytes;
    size_t written = 0;
    check(count <= link->out_left);
    while (written < count) {
        uint8_t *at;
        size_t room;
        TRY(shared_ring_room(&link->out, &at, &room, reason));
        size_t some = count - written < room ? count - written : room;
        if (some == 0)
            break;
        memcpy(at, from + written, some);
        shared_ring_wrote(&link->out, some);
        written += some;
    }
    link->out_left -= written;
    if (written > 0)
        wake(link, &link->out.positions->reader_sleeps);
    *ret_written = written;
    return ERR_OK;
}

/* ---- receive ---- */

/* Copies what is known to be there; the same bytes are not read again. */
static enum err get(struct shared_link *link, uint8_t *bytes, size_t count, struct reason *reason)
{
    while (count > 0) {
        struct slice there;
        TRY(shared_ring_look(&link->in, &there, reason));
        size_t some = count < there.bytes ? count : there.bytes;
        memcpy(bytes, there.data, some);
        shared_ring_took(&link->in, some);
        bytes += some;
        count -= some;
    }
    atomic_signal_fence(memory_order_seq_cst); /* what follows looks at the copy */
    return ERR_OK;
}

/* Skips what fills the line behind a payload. */
static enum err skip_pad(struct shared_link *link, struct reason *reason)
{
    uint8_t ignored[LINE_BYTES];
    uint64_t there;
    TRY(shared_ring_there_bytes(&link->in, &there, reason));
    if (there < link->in_pad)
        return ERR_BUSY;
    TRY(get(link, ignored, (size_t)link->in_pad, reason));
    link->in_pad = 0;
    return ERR_OK;
}

static enum err judge_frame(const struct shared_link *link, const struct frame *frame,
                            struct reason *reason)
{
    if (frame->header_bytes > SHARED_LINK_HEADER_BYTES_MAX)
        return reason_set(reason, ERR_MALFORMED, "a message with a header of %u bytes",
                          frame->header_bytes);
    if (frame->payload_bytes > link->options.payload_bytes_max)
        return reason_set(reason, ERR_MALFORMED,
                          "a message of %" PRIu64 " bytes, where there are at most %" PRIu64,
                          frame->payload_bytes, link->options.payload_bytes_max);
    return ERR_OK;
}

enum err shared_link_next(struct shared_link *link, struct slice *ret_header,
                          uint64_t *ret_payload_bytes, struct reason *reason)
{
    struct frame frame;
    uint64_t there;
    check(link->in_left == 0);
    TRY(skip_pad(link, reason));
    /* A writer shows the header's lines one after another where the ring ends; the first one says how
     * many there are, and is read again when the others are there. */
    TRY(shared_ring_there_bytes(&link->in, &there, reason));
    if (there < LINE_BYTES)
        return ERR_BUSY;
    struct shared_ring before = link->in;
    struct slice line;
    TRY(shared_ring_look(&before, &line, reason));
    memcpy(link->header, line.data, sizeof frame); /* lines do not wrap */
    atomic_signal_fence(memory_order_seq_cst);
    memcpy(&frame, link->header, sizeof frame);
    TRY(judge_frame(link, &frame, reason));
    uint64_t bytes = sizeof frame + frame.header_bytes;
    bytes += to_line(bytes);
    if (there < bytes)
        return ERR_BUSY;
    TRY(get(link, link->header, (size_t)bytes, reason));
    link->in_left = frame.payload_bytes;
    link->in_pad = to_line(frame.payload_bytes);
    *ret_header = (struct slice){link->header + sizeof frame, frame.header_bytes};
    *ret_payload_bytes = frame.payload_bytes;
    wake(link, &link->in.positions->writer_sleeps);
    return ERR_OK;
}

enum err shared_link_look(struct shared_link *link, struct slice *ret_bytes, struct reason *reason)
{
    TRY(shared_ring_look(&link->in, ret_bytes, reason));
    if (ret_bytes->bytes > link->in_left)
        ret_bytes->bytes = (size_t)link->in_left;
    return ERR_OK;
}

void shared_link_took(struct shared_link *link, size_t count)
{
    check(count <= link->in_left);
    link->in_left -= count;
    shared_ring_took(&link->in, count);
    wake(link, &link->in.positions->writer_sleeps);
}

/* ---- lend ---- */

bool shared_link_may_lend(const struct shared_link *link)
{
    return shared_loans_may(&link->loans);
}

uint32_t shared_link_lend(struct shared_link *link, void *item)
{
    return shared_loans_lend(&link->loans, item);
}

void *shared_link_returned(struct shared_link *link, bool all)
{
    return shared_loans_next(&link->loans, all);
}

bool shared_link_rests_lent(struct shared_link *link)
{
    atomic_store(&link->loans.returns->sleeps, 1);
    atomic_thread_fence(memory_order_seq_cst); /* the word before the look; see wake() */
    return link->loans.count > 0 && !shared_loans_are_back(&link->loans);
}

enum err shared_link_borrow(struct shared_link *link, uint64_t number, struct reason *reason)
{
    if (number >= SHARED_LOANS_MAX || link->lent.data == NULL)
        return reason_set(reason, ERR_MALFORMED, "loan %" PRIu64 ", which nobody makes", number);
    atomic_fetch_add_explicit(&link->references, 1, memory_order_relaxed);
    return ERR_OK;
}

void shared_link_give_back(struct shared_link *link, uint32_t number)
{
    shared_returns_give(link->returns, number);
    wake(link, &link->returns->sleeps);
    drop(link);
}

enum err shared_link_borrowed(const struct shared_link *link, uint64_t offset, uint64_t bytes,
                              struct slice *ret_bytes, struct reason *reason)
{
    if (offset > link->lent.bytes || bytes > link->lent.bytes - offset)
        return reason_set(reason, ERR_MALFORMED,
                          "a loan of %" PRIu64 " bytes from %" PRIu64
                          " on, outside of the sender's memory",
                          bytes, offset);
    *ret_bytes = (struct slice){link->lent.data + offset, (size_t)bytes};
    return ERR_OK;
}

/* ---- wait ---- */

static bool has_news(struct shared_link *const *links, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (links[i] != NULL &&
            (atomic_load(&links[i]->in.positions->written) != links[i]->written_seen ||
             atomic_load(&links[i]->out.positions->read) != links[i]->read_seen))
            return true;
    return false;
}

/* What changes from now on is news. */
static void see(struct shared_link *const *links, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (links[i] != NULL) {
            links[i]->written_seen = atomic_load(&links[i]->in.positions->written);
            links[i]->read_seen = atomic_load(&links[i]->out.positions->read);
        }
}

static bool spin(struct shared_link *const *links, uint32_t count)
{
    uint32_t spins = 0;
    for (uint32_t i = 0; i < count; i++)
        if (links[i] != NULL && links[i]->options.spins > spins)
            spins = links[i]->options.spins;
    for (uint32_t i = 0; i < spins; i++) {
        if (has_news(links, count))
            return true;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    return has_news(links, count);
}

static void say_sleeps(struct shared_link *const *links, uint32_t count, unsigned sleeps)
{
    for (uint32_t i = 0; i < count; i++)
        if (links[i] != NULL) {
            atomic_store(&links[i]->in.positions->reader_sleeps, sleeps);
            atomic_store(&links[i]->out.positions->writer_sleeps, sleeps);
        }
    atomic_thread_fence(memory_order_seq_cst); /* before the positions are looked at again */
}

/* Who cannot have it is lent nothing. */
static void take_pool(struct shared_link *link, int file)
{
    struct reason reason;
    if (link->lent.data == NULL && shared_pool_map(file, &link->lent, &reason) == ERR_OK)
        atomic_store_explicit(&link->returns->accepts, 1, memory_order_relaxed);
    close(file);
}

/* The socket's end is the link's. */
void shared_link_woken(struct shared_link *link)
{
    uint8_t bytes[256];
    union control control;
    struct iovec vector = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t got = recvmsg(link->socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    int file = got > 0 ? file_of(&message) : -1;
    if (file >= 0)
        take_pool(link, file);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        link->ended = true;
}

bool shared_link_ended(const struct shared_link *link)
{
    return link->ended;
}

/* Says that this side sleeps, and looks once more: who wrote before the word was there wakes nobody. */
static bool rests(atomic_uint *sleeps, const _Atomic uint64_t *position, uint64_t seen)
{
    atomic_store(sleeps, 1);
    atomic_thread_fence(memory_order_seq_cst); /* the word before the look; see wake() */
    if (atomic_load(position) == seen)
        return true;
    atomic_store(sleeps, 0);
    return false;
}

bool shared_link_rests(struct shared_link *link)
{
    return rests(&link->in.positions->reader_sleeps, &link->in.positions->written, link->in.theirs);
}

bool shared_link_rests_full(struct shared_link *link)
{
    return rests(&link->out.positions->writer_sleeps, &link->out.positions->read, link->out.theirs);
}

int shared_link_socket(const struct shared_link *link)
{
    return link->socket;
}

/* Until a socket has something, which is taken. False: it has not. */
static bool sleep_until(struct shared_link *const *links, uint32_t count, uint64_t deadline_ns)
{
    struct pollfd sockets[SHARED_LINK_WAIT_MAX];
    for (uint32_t i = 0; i < count; i++)
        sockets[i] = (struct pollfd){
            .fd = links[i] == NULL || links[i]->ended ? -1 : links[i]->socket, .events = POLLIN};
    int ready = poll(sockets, count, poll_ms(deadline_ns));
    for (uint32_t i = 0; i < count && ready > 0; i++)
        if (sockets[i].fd >= 0 && sockets[i].revents != 0)
            shared_link_woken(links[i]);
    return ready > 0;
}

enum err shared_link_wait(struct shared_link *const *links, uint32_t count, uint64_t deadline_ns)
{
    check(count <= SHARED_LINK_WAIT_MAX);
    bool news = spin(links, count);
    if (!news) {
        say_sleeps(links, count, 1);
        news = has_news(links, count) || sleep_until(links, count, deadline_ns);
        say_sleeps(links, count, 0);
    }
    see(links, count);
    return news || time_now_ns() < deadline_ns ? ERR_OK : ERR_DEADLINE;
}
