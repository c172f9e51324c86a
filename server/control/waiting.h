/* Calls that are answered later: acquires that are parked, and checkpoints until their cut is
 * recorded. Main thread. */
#ifndef ROOST_SERVER_CONTROL_WAITING_H
#define ROOST_SERVER_CONTROL_WAITING_H

#include "common/id_table.h"
#include "server/coordinator/coordinator.h"
#include "server/events.h"

enum { WAITING_MAX = COORDINATOR_MEMBERS_MAX + 64 };

struct waiting {
    size_t count, checkpoint_count;
    struct id_table by_number, by_member; /* calls; acquires */
    struct waiting_call {
        struct call *call;
        uint64_t after_version; /* a checkpoint: answered by a cut above this */
    } * list;
};

enum err waiting_init(struct waiting *waiting) MUST_USE; /* ERR_NOMEM */
/* Calls that still wait are answered with CANCELLED. */
void waiting_release(struct waiting *waiting);

/* Fails the call with BUSY when too many wait. */
void waiting_add(struct waiting *waiting, const struct waiting_call *take_call);
/* Takes a call off the list: the one at that place; the acquire of a member; the one of that
 * number. NULL: there is no such call. */
struct call *waiting_take(struct waiting *waiting, size_t i);
struct call *waiting_take_acquire(struct waiting *waiting, uint64_t member);
struct call *waiting_take_number(struct waiting *waiting, uint64_t number);

#endif
