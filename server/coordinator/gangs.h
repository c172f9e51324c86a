/* Gangs: the members that compute a lease together, each on a seat of its own: one of the ranks of a
 * place (a stage of the model). A gang exists for that one lease only. In tickets.h it is the holder
 * of the lease, under a number that no member has. Seats are numbered by place, then by rank.
 *
 * The members of one place sum parts while they compute, so a place is computed by all of them
 * together. When one of them is lost, all lose their seats, and whoever gets one begins at the
 * node's start, under a new try (S6).
 *
 * Pure; one owner. Invariants (gangs_check):
 *  1 the list ascends by age: a lease is as old as its node, and a copy is younger than every first
 *    lease (S1);
 *  2 an empty seat is not done (S4); empty_count and done_count count them; somebody is there; the
 *    seats of a place have one try, and no other place has that one;
 *  3 who is late is an audit's copy; late_count counts them, empty_count the empty seats of all. */
#ifndef ROOST_SERVER_COORDINATOR_GANGS_H
#define ROOST_SERVER_COORDINATOR_GANGS_H

#include "common/id_table.h"
#include "server/coordinator/leases.h"
#include "server/coordinator/validation.h"

struct gang {
    uint64_t id;          /* the holder of the lease */
    struct ticket ticket; /* of the lease, granted to nobody */
    bool copy;            /* of a node that an older lease has */
    bool lost;            /* a place's member is gone, and no place was filled since */
    bool audited;         /* a side of an audit: it goes on when the other one is over */
    bool late;            /* its step is committed, and what it brings is compared still */
    bool prolonged;       /* its time was over, and who kept it from its end lost its place (S7) */
    uint64_t number;      /* rises with each change of its seats (S7) */
    uint32_t empty_count, done_count;
    struct validation_result result; /* of the place that has the last unit */
    struct gang_seat {
        uint64_t member; /* 0: the seat is empty */
        bool done;
        uint64_t completed;  /* done: the newest attempt or question then (tickets_question()) */
        uint32_t tries;      /* of the place: 1, and one more with each loss */
        uint64_t try_number; /* of the newest of them: no other place and lease has it (S6) */
        uint64_t since_ms;   /* that the member has it, or that it is empty */
    } * seats;
};

/* Members that lost their seats with another one. */
struct gang_left {
    uint32_t count;
    uint64_t members[WIRE_PLACES_MAX];
};

struct gangs {
    uint32_t seats; /* of a lease; 0: leases have one member each, and there are no gangs */
    uint32_t ranks; /* seats of a place */
    uint32_t count, count_max;
    uint32_t late_count;
    uint32_t empty_count; /* seats of all */
    struct gang **list;   /* the oldest first */
    struct id_table by_attempt;
    uint64_t ids, numbers, tries; /* the newest */
    uint64_t done_ms;             /* when a seat was done last */
};

/* `first`: numbers of changes are above it. ERR_NOMEM. */
enum err gangs_init(struct gangs *gangs, uint32_t places, uint32_t ranks, uint32_t count_max,
                    uint64_t first) MUST_USE;
void gangs_release(struct gangs *gangs);

/* The number that the next gang will have as a holder. */
uint64_t gangs_next_id(const struct gangs *gangs);
/* A gang of that number, all of whose seats are empty. NULL: out of memory. */
struct gang *gangs_add(struct gangs *gangs, const struct lease *lease, uint64_t generation,
                       uint64_t step);
void gangs_remove(struct gangs *gangs, struct gang *gang);
/* The ticket's lease is over, and the gang goes on, younger than every first lease. */
void gangs_make_late(struct gangs *gangs, struct gang *gang);
struct gang *gangs_find(const struct gangs *gangs, uint64_t attempt); /* NULL: it is over */

/* The seat, which is empty, has that member. */
void gangs_seat(struct gangs *gangs, uint64_t now_ms, struct gang *gang, uint32_t seat,
                uint64_t member);
/* The member has none any more, nor has who shares its place. False: it had none. */
bool gangs_unseat(struct gangs *gangs, uint64_t now_ms, struct gang *gang, uint64_t member,
                  struct gang_left *ret_left);
/* `newest`: the newest attempt. False: the seat is not that member's, or was done before. */
bool gangs_done(struct gangs *gangs, uint64_t now_ms, struct gang *gang, uint32_t seat,
                uint64_t member, uint64_t newest);

/* S1. Validation of a version is older than the steps behind that version's. */
bool gangs_is_older(const struct gang *a, const struct gang *b);
/* The oldest with an empty seat; NULL: there is none. */
struct gang *gangs_oldest_empty(const struct gangs *gangs);

void gangs_check(const struct gangs *gangs); /* walks over all */

#endif
