/* Who was convicted in the run: workers that computed wrongly, and those that called tickets
 * complete which they had not pushed. The store keeps them, so that who simply starts anew is
 * refused, also by a later coordinator.
 *
 * A conviction is of whoever shows the same certificate, where members have several. Where all
 * share one, as those of `roost up` do, or have none, it is of the worker of that name on that
 * host: the others go on. Who has a new certificate is somebody else. Pure. */
#ifndef ROOST_SERVER_COORDINATOR_CONVICTIONS_H
#define ROOST_SERVER_COORDINATOR_CONVICTIONS_H

#include "proto/wire.h"

enum {
    CONVICTIONS_MAX = 64, /* the newest of a run */
    CONVICTION_TEXT_BYTES = 128
};

struct conviction {
    uint64_t member;
    uint64_t certificate; /* 0: none */
    bool several;         /* other members had other certificates */
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

/* Where there are too many the oldest is forgotten. */
void convictions_add(struct convictions *convictions, const struct conviction *conviction);
/* The conviction of who asks; NULL: it may join. `several`: there are members with another
 * certificate. */
const struct conviction *convictions_find(const struct convictions *convictions,
                                          const struct join_request *request, bool several);
/* Whether the run is still to go back for one of them; the earliest step that is to be undone. */
bool convictions_undo(const struct convictions *convictions, uint64_t *ret_from);
/* It has gone back. */
void convictions_undone(struct convictions *convictions);

#endif
