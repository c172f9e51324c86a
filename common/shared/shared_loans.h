/* Payloads that stay in the memory of who sends them (shared_pool.h) until who receives them has given
 * them back: which are out. The arithmetic alone, for one way of a link (shared_link.h).
 *
 * The receiver may write anything into what both sides see: then a loan comes back early, which is its
 * own harm, or does not come back, as if it did not read. */
#ifndef ROOST_COMMON_SHARED_SHARED_LOANS_H
#define ROOST_COMMON_SHARED_SHARED_LOANS_H

#include "common/check.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A message of weights is out as long as its receiver computes on it: a chunk of at most half a MiB
 * each, 8 GiB. */
enum { SHARED_LOANS_MAX = 16384, SHARED_LOANS_WORDS = SHARED_LOANS_MAX / 64 };

/* What both sides see; a bit for each loan. Each part has a line of the cache. */
struct shared_returns {
    _Alignas(64) _Atomic uint64_t returned[SHARED_LOANS_WORDS];
    _Alignas(64) atomic_uint accepts; /* the receiver has the sender's memory */
};

/* The sender's side. */
struct shared_loans {
    struct shared_returns *returns; /* borrowed */
    uint64_t out[SHARED_LOANS_WORDS];
    uint32_t words; /* of them that were ever used */
    uint32_t count;
    void **items; /* SHARED_LOANS_MAX; borrowed, and not touched before they are used */
};

/* The receiver has the memory, and not too many are out. */
bool shared_loans_may(const struct shared_loans *loans);
/* Its number; shared_loans_may(). */
uint32_t shared_loans_lend(struct shared_loans *loans, void *item);
/* The item of one that has come back, or of any with `all`; NULL: there is none. */
void *shared_loans_next(struct shared_loans *loans, bool all);

/* The receiver gives one back: its reads are over. Any thread. */
static inline void shared_returns_give(struct shared_returns *returns, uint32_t number)
{
    check(number < SHARED_LOANS_MAX);
    atomic_fetch_or_explicit(&returns->returned[number / 64], UINT64_C(1) << number % 64,
                             memory_order_release);
}

#endif
