/* Decides when a check that visits the whole state is due. Each event adds a few steps to an
 * account. The check is made when the account has as many steps as the check needs. So the check
 * takes the same small share of the time however large the state is. A check that would hold up the
 * next event for too long is never made; the checks of what an event has touched remain. */
#ifndef ROOST_COMMON_CHECK_ACCOUNT_H
#define ROOST_COMMON_CHECK_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    /* added by an event; a step is a comparison or two: a nanosecond or two */
    CHECK_STEPS_PAID = 8,
    CHECK_STEPS_MAX = 1 << 20, /* a millisecond or two */
    /* every so many events one chunk, server or member is checked, in turn */
    CHECK_TURN_EVENTS = 4,
};

struct check_account {
    uint64_t paid;
};

/* Adds an event's steps to the account. True: the check of that many steps is to be made now. */
static inline bool check_is_due(struct check_account *account, uint64_t steps)
{
    account->paid += CHECK_STEPS_PAID;
    if (steps > CHECK_STEPS_MAX || account->paid < steps)
        return false;
    account->paid = 0;
    return true;
}

#endif
