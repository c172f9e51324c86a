/* Who was convicted in the run: workers that computed wrongly, and those that called tickets
 * complete which they had not pushed. The store keeps them, so that who simply starts anew is
 * refused, also by a later coordinator.
 *
 * A conviction is of whoever shows the same certificate, if nobody else had it in the run when the
 * worker was convicted. Where other workers share it, as those of `roost up` do, or there is none,
 * it is of the worker of that name on that host: the others go on. Who has a new certificate is
 * somebody else. Pure. */
#ifndef ROOST_SERVER_COORDINATOR_CONVICTIONS_H
#define ROOST_SERVER_COORDINATOR_CONVICTIONS_H

#include "proto/wire.h"

enum {
    CONVICTIONS_MAX = 64, /* workers of a run, the newest */
    CONVICTION_TEXT_BYTES = 128
};

struct conviction {
    uint64_t member;
    uint64_t certificate; /* 0: none */
    bool by_certificate;  /* under any name; else only with its name and host */
    char name[64];
    char host[64];
    uint64_t step;
    bool wrong_bits; /* else it called tickets complete that it had not pushed */
    char reason[CONVICTION_TEXT_BYTES];
    bool undo;          /* the run is to go back for it, and has not yet (audit_rewind.h) */
    uint64_t undo_from; /* to a version that does not have this step */
};

struct convictions {
    uint32_t count;
    struct conviction list[CONVICTIONS_MAX]; /* the oldest first */
};

/* Takes the place of an earlier one of the same worker. Where there are too many the oldest is
 * forgotten for which the run need not go back any more. What an earlier one is still to undo, the
 * newest one undoes: it is returned as it is kept, until the next is added. */
const struct conviction *convictions_add(struct convictions *convictions,
                                         const struct conviction *conviction);
/* The conviction of who asks; NULL: it may join. */
const struct conviction *convictions_find(const struct convictions *convictions,
                                          const struct join_request *request);
/* Whether the run is still to go back for one of them; the earliest step that is to be undone. */
bool convictions_undo(const struct convictions *convictions, uint64_t *ret_from);
/* It has gone back. */
void convictions_undone(struct convictions *convictions);

#endif
