/* When a check that walks over everything is due. Each event pays for it, so that it takes the same
 * small share of the time however large the state is; one that would stand in the way of the next
 * event for too long is left to those that look at what an event has touched. */
#ifndef ROOST_COMMON_CHECK_ACCOUNT_H
#define ROOST_COMMON_CHECK_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CHECK_STEPS_PAID = 8,      /* by an event; a step is a comparison or two: a nanosecond or two */
    CHECK_STEPS_MAX = 1 << 20, /* a millisecond or two */
    CHECK_TURN_EVENTS = 4,     /* so often it is the turn of one chunk, server, member */
};

struct check_account {
    uint64_t paid;
};

/* An event pays. True: the check of so many steps is to be made now. */
static inline bool check_is_due(struct check_account *account, uint64_t steps)
{
    account->paid += CHECK_STEPS_PAID;
    if (steps > CHECK_STEPS_MAX || account->paid < steps)
        return false;
    account->paid = 0;
    return true;
}

#endif
