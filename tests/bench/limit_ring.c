#include "tests/bench/limit_ring.h"

#include "common/check.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum {
    RING_BYTES = 512 << 10, /* of 64 KiB to 4 MiB the fastest here */
    BLOCK_BYTES = 32 << 10, /* shown to the reader at a time */
    LOOKS_MAX = 1000,       /* before the core is given up */
};

struct limit_ring {
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) _Atomic uint64_t read;
    _Alignas(64) uint8_t bytes[RING_BYTES];
};

struct limit_ring *limit_ring_new(void)
{
    void *at = mmap(NULL, sizeof(struct limit_ring), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(at != MAP_FAILED);
    return at;
}

void limit_ring_free(struct limit_ring *ring)
{
    if (ring != NULL)
        munmap(ring, sizeof *ring);
}

/* Until the position is another one. */
static uint64_t wait_for(_Atomic uint64_t *position, uint64_t other_than)
{
    uint64_t now;
    for (unsigned i = 0; (now = atomic_load_explicit(position, memory_order_acquire)) == other_than;
         i++)
        if (i % LOOKS_MAX == LOOKS_MAX - 1)
            sched_yield();
    return now;
}

void limit_ring_write(struct limit_ring *ring, const uint8_t *data, size_t bytes)
{
    uint64_t at = atomic_load_explicit(&ring->written, memory_order_relaxed);
    while (bytes > 0) {
        size_t piece = RING_BYTES - at % RING_BYTES;
        piece = piece < BLOCK_BYTES ? piece : BLOCK_BYTES;
        piece = piece < bytes ? piece : bytes;
        uint64_t read = atomic_load_explicit(&ring->read, memory_order_acquire);
        while (at + piece - read > RING_BYTES)
            read = wait_for(&ring->read, read);
        memcpy(ring->bytes + at % RING_BYTES, data, piece);
        at += piece;
        atomic_store_explicit(&ring->written, at, memory_order_release);
        data += piece;
        bytes -= piece;
    }
}

size_t limit_ring_look(struct limit_ring *ring, const uint8_t **ret_data)
{
    uint64_t at = atomic_load_explicit(&ring->read, memory_order_relaxed);
    uint64_t there = wait_for(&ring->written, at) - at;
    uint64_t to_end = RING_BYTES - at % RING_BYTES;
    *ret_data = ring->bytes + at % RING_BYTES;
    there = there < to_end ? there : to_end;
    return (size_t)(there < BLOCK_BYTES ? there : BLOCK_BYTES);
}

void limit_ring_took(struct limit_ring *ring, size_t bytes)
{
    atomic_fetch_add_explicit(&ring->read, bytes, memory_order_release);
}
