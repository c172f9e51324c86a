/* How a side waits for what the other one does. */
#include "common/shared/shared_link.h"

#include "common/shared/shared_link_core.h"
#include "common/time.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

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
    int file;
    ssize_t got = shared_link_receive(link, bytes, sizeof bytes, &file);
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
    atomic_thread_fence(
        memory_order_seq_cst); /* the word before the look; see shared_link_wake() */
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
    int ready = poll(sockets, count, shared_link_poll_ms(deadline_ns));
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
