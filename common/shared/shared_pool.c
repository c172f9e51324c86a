#include "common/shared/shared_pool.h"

#include "common/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
    UNIT_BYTES = 64, /* what is given begins at multiples of it */
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL,
};

/* Memory that is free; it begins with this, and lies before the next one. */
struct gap {
    struct gap *next;
    size_t bytes;
};

struct shared_pool {
    atomic_uint references; /* the owner's, and one for each that was given */
    int file;
    uint8_t *memory;
    size_t bytes;
    struct thread_mutex mutex; /* guards the next, and the gaps themselves */
    struct gap *gaps;
};

/* ---- life ---- */

static uint64_t machine_bytes(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The machine's memory, unless files may not be so long. */
static size_t pool_bytes(void)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), bytes = machine_bytes();
    struct rlimit longest;
    if (getrlimit(RLIMIT_FSIZE, &longest) == 0 && bytes > longest.rlim_cur)
        bytes = longest.rlim_cur;
    return (size_t)(bytes / page * page);
}

static enum err io_error(struct reason *reason, const char *what)
{
    int number = errno;
    return reason_set(reason, err_from_errno(number), "%s: %s", what, strerror(number));
}

static enum err make_memory(struct shared_pool *pool, struct reason *reason)
{
    pool->file = memfd_create("roost-payloads", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (pool->file < 0 || ftruncate(pool->file, (off_t)pool->bytes) != 0)
        return io_error(reason, "making memory for payloads");
    void *at =
        mmap(NULL, pool->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, pool->file, 0);
    if (at == MAP_FAILED)
        return io_error(reason, "mapping memory for payloads");
    pool->memory = at;
    (void)madvise(at, pool->bytes, MADV_DONTDUMP); /* a core file is as long as what is used */
    if (fcntl(pool->file, F_ADD_SEALS, SEALS) != 0)
        return io_error(reason, "sealing memory for payloads");
    pool->gaps = at;
    *pool->gaps = (struct gap){NULL, pool->bytes};
    return ERR_OK;
}

static void drop(struct shared_pool *pool)
{
    if (atomic_fetch_sub_explicit(&pool->references, 1, memory_order_acq_rel) != 1)
        return;
    if (pool->memory != NULL)
        munmap(pool->memory, pool->bytes);
    if (pool->file >= 0)
        close(pool->file);
    thread_mutex_release(&pool->mutex);
    free(pool);
}

enum err shared_pool_new(struct shared_pool **ret_pool, struct reason *reason)
{
    struct shared_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return ERR_NOMEM;
    atomic_init(&pool->references, 1);
    thread_mutex_init(&pool->mutex);
    pool->file = -1;
    pool->bytes = pool_bytes();
    enum err err = make_memory(pool, reason);
    if (err != ERR_OK)
        drop(pool);
    else
        *ret_pool = pool;
    return err;
}

void shared_pool_free(struct shared_pool *pool)
{
    if (pool != NULL)
        drop(pool);
}

int shared_pool_file(const struct shared_pool *pool)
{
    return pool->file;
}

struct slice shared_pool_memory(const struct shared_pool *pool)
{
    return (struct slice){pool->memory, pool->bytes};
}

/* ---- gaps ---- */

/* The lowest gap that is large enough, less what is taken from its beginning. NULL: none is. */
static void *take_locked(struct shared_pool *pool, size_t bytes)
{
    struct gap **at = &pool->gaps;
    while (*at != NULL && (*at)->bytes < bytes)
        at = &(*at)->next;
    struct gap *gap = *at;
    if (gap == NULL)
        return NULL;
    const struct gap old = *gap;
    if (old.bytes == bytes) {
        *at = old.next;
    } else {
        *at = (struct gap *)((uint8_t *)gap + bytes);
        **at = (struct gap){old.next, old.bytes - bytes};
    }
    return gap;
}

/* One gap, if they touch. */
static void join(struct gap *gap)
{
    struct gap *next = gap->next;
    if (next == NULL || (uint8_t *)gap + gap->bytes != (uint8_t *)next)
        return;
    gap->bytes += next->bytes;
    gap->next = next->next;
}

static void give_locked(struct shared_pool *pool, void *memory, size_t bytes)
{
    struct gap *before = NULL, *gap = memory;
    for (struct gap *at = pool->gaps; at != NULL && at < gap; at = at->next)
        before = at;
    *gap = (struct gap){before != NULL ? before->next : pool->gaps, bytes};
    join(gap);
    if (before == NULL) {
        pool->gaps = gap;
    } else {
        before->next = gap;
        join(before);
    }
}

/* ---- counted ---- */

static size_t taken_bytes(size_t bytes)
{
    return (COUNTED_HEAD_BYTES + bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
}

static void give_back(struct counted *counted, void *owner)
{
    struct shared_pool *pool = owner;
    thread_lock(&pool->mutex);
    give_locked(pool, counted, taken_bytes(counted->bytes));
    thread_unlock(&pool->mutex);
    drop(pool);
}

struct counted *shared_pool_counted(struct shared_pool *pool, size_t bytes)
{
    struct counted *counted = NULL;
    if (pool == NULL || bytes > pool->bytes)
        return counted_new(bytes);
    thread_lock(&pool->mutex);
    counted = take_locked(pool, taken_bytes(bytes));
    thread_unlock(&pool->mutex);
    if (counted == NULL)
        return counted_new(bytes);
    atomic_fetch_add_explicit(&pool->references, 1, memory_order_relaxed);
    atomic_init(&counted->references, 1);
    counted->bytes = bytes;
    counted->released = give_back;
    counted->owner = pool;
    counted->data = (uint8_t *)counted + COUNTED_HEAD_BYTES;
    return counted;
}

bool shared_pool_find(const struct shared_pool *pool, struct slice bytes, uint64_t *ret_offset)
{
    if (pool == NULL || bytes.data < pool->memory || bytes.data >= pool->memory + pool->bytes)
        return false;
    *ret_offset = (uint64_t)(bytes.data - pool->memory);
    return bytes.bytes <= pool->bytes - *ret_offset;
}

/* ---- another process's ---- */

/* Of pages of the ordinary size: where one is missing, the kernel makes it when it is read. Of huge
 * pages it may have none, which is a signal to the reader. */
static bool has_ordinary_pages(int file)
{
    struct statfs about;
    return fstatfs(file, &about) == 0 && about.f_type == TMPFS_MAGIC;
}

enum err shared_pool_map(int file, struct slice *ret_bytes, struct reason *reason)
{
    struct stat about;
    if (!has_ordinary_pages(file))
        return reason_set(reason, ERR_MALFORMED, "memory for payloads that is no ordinary memory");
    int seals = fcntl(file, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(file, &about) != 0 || about.st_size <= 0)
        return reason_set(reason, ERR_MALFORMED, "memory for payloads that can shrink");
    if ((uint64_t)about.st_size > machine_bytes())
        return reason_set(reason, ERR_MALFORMED, "memory for payloads larger than the machine's");
    size_t bytes = (size_t)about.st_size;
    void *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (at == MAP_FAILED)
        return io_error(reason, "mapping another process's memory for payloads");
    (void)madvise(at, bytes, MADV_DONTDUMP);
    *ret_bytes = (struct slice){at, bytes};
    return ERR_OK;
}
