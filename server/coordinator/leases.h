/* The leases of tickets (tickets.h): found by attempt and by member, and in two orders, each in
 * constant time, so that a step costs as much a ticket with thousands of workers as with ten.
 *
 * Leases of as many slots are a class: they take equally long, so within a class the lease that was
 * granted first lapses first (unless members share leases: tickets.h gives some more time), and the
 * node whose youngest attempt is oldest is overdue first. A lease on a node that is leased already
 * is a twin of those before: leases that overlap have the same node.
 *
 * Pure; one owner. Invariants (leases_check): in a class both orders ascend; twins have one node
 * and one out_ms; every lease is found by its attempt and among its member's. */
#ifndef ROOST_SERVER_COORDINATOR_LEASES_H
#define ROOST_SERVER_COORDINATOR_LEASES_H

#include "common/err.h"
#include "common/id_table.h"
#include "common/ring.h"
#include "common/tree.h"
#include "proto/wire.h"

struct lease {
    enum ticket_kind kind;
    uint64_t step;    /* training */
    uint64_t version; /* to compute on */
    struct node node;
    uint32_t slots;   /* that the node has */
    uint64_t attempt; /* never the same again */
    uint64_t member;
    uint64_t granted_ms;
    uint64_t out_ms; /* since when nobody was given the node: the youngest twin's granted_ms, of
                        those that are not doubted; 0: all are */
    bool speculative;
    bool audit;                  /* second on purpose */
    bool doubted;                /* of a doubted member (doubt.h) */
    bool untimed;                /* when its end comes does not tell how long it took */
    struct ring all;             /* in the order of granting */
    struct ring granted, out;    /* of the class, in the order of granted_ms and of out_ms; out:
                                    unless the node is known to be done */
    struct ring twins, siblings; /* without a head: of the same node; of the same member */
};

enum { LEASE_CLASSES = 1 + 2 * (TREE_LEVEL_MAX + 1) /* pieces; a level's nodes; a shorter one */ };

struct leases {
    uint32_t count, count_max;
    uint32_t used; /* places of the pool that ever had a lease */
    struct lease *pool;
    struct lease_rings *rings; /* by itself: a struct leases may move */
    uint64_t attempts;         /* the newest */
    struct id_table by_attempt, by_member;
};

/* Attempts are numbered from attempts_first + 1 on. ERR_NOMEM. */
enum err leases_init(struct leases *leases, uint32_t count_max, uint64_t attempts_first) MUST_USE;
void leases_release(struct leases *leases);

/* Attempts are numbered above that from now on. */
void leases_number_above(struct leases *leases, uint64_t attempts);

/* Adds a copy of what the caller filled in, `attempt` and `out_ms` apart; `twin`: a lease on the
 * same node; NULL: there is none. There is room. */
struct lease *leases_add(struct leases *leases, const struct lease *lease, struct lease *twin);
void leases_remove(struct leases *leases, struct lease *lease);
/* As if it had been granted now. */
void leases_renew(struct leases *leases, struct lease *lease, uint64_t now_ms);

/* Of that attempt; NULL: it is over. */
struct lease *leases_find(const struct leases *leases, uint64_t attempt);
/* One of the member's, whose others are its siblings; NULL: it has none. */
struct lease *leases_of(const struct leases *leases, uint64_t member);
uint32_t leases_count_of(const struct leases *leases, uint64_t member);
/* Of all: the youngest, and the one granted before `lease`. NULL: there is none. */
struct lease *leases_youngest(const struct leases *leases);
struct lease *leases_before(const struct leases *leases, const struct lease *lease);

/* Of a class: the one that was granted first, and the one granted after `lease`; the one that is out
 * longest, and the one that is out longest after `lease`. NULL: there is none. */
struct lease *leases_oldest(const struct leases *leases, uint32_t lease_class);
struct lease *leases_next(const struct leases *leases, const struct lease *lease);
struct lease *leases_longest_out(const struct leases *leases, uint32_t lease_class);
struct lease *leases_next_out(const struct leases *leases, const struct lease *lease);
/* All slots of the lease's node are done: it is not out any more; they are not after all. */
void leases_not_out(struct lease *lease);
void leases_out_again(struct leases *leases, struct lease *lease);

void leases_check(const struct leases *leases); /* walks over all */

#endif
