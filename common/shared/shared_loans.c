#include "common/shared/shared_loans.h"

bool shared_loans_may(const struct shared_loans *loans)
{
    return loans->count < SHARED_LOANS_MAX &&
           atomic_load_explicit(&loans->returns->accepts, memory_order_relaxed) != 0;
}

uint32_t shared_loans_lend(struct shared_loans *loans, void *item)
{
    check(loans->count < SHARED_LOANS_MAX);
    uint32_t word = 0;
    while (loans->out[word] == UINT64_MAX)
        word++;
    if (word >= loans->words)
        loans->words = word + 1;
    uint32_t number = word * 64 + (uint32_t)__builtin_ctzll(~loans->out[word]);
    uint64_t bit = UINT64_C(1) << number % 64;
    /* a bit that the other side set before is no return of this loan */
    atomic_fetch_and_explicit(&loans->returns->returned[word], ~bit, memory_order_relaxed);
    loans->out[word] |= bit;
    loans->items[number] = item;
    loans->count++;
    return number;
}

void *shared_loans_next(struct shared_loans *loans, bool all)
{
    for (uint32_t word = 0; word < loans->words && loans->count > 0; word++) {
        uint64_t back = loans->out[word];
        if (!all) /* acquire: the receiver's reads are over before the memory is used again */
            back &= atomic_load_explicit(&loans->returns->returned[word], memory_order_acquire);
        if (back == 0)
            continue;
        loans->out[word] &= ~(back & -back);
        loans->count--;
        return loans->items[word * 64 + (uint32_t)__builtin_ctzll(back)];
    }
    return NULL;
}
