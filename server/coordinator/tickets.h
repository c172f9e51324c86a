/* Who computes what: the slots of the open steps and the held-out pieces of the open version, each
 * free, leased or done, and the leases on them.
 *
 * Grant: the lowest free slot of the oldest step first, then validation, for which the next commit
 * waits, then the steps behind (a delay lets them overlap). One lease may cover an aligned
 * power-of-two run of slots (a node): either always node_slots of them, or as many as still leave
 * every worker its share of what is free, so that nobody idles and few nodes travel (guided
 * self-scheduling, Polychronopoulos and Kuck 1987), and take about a second at most: that bounds
 * what is lost with a worker, and what the first one to join takes from those who come later.
 *
 * Speculation: when nothing is free, the outstanding node whose youngest attempt is oldest and
 * overdue is given to another worker as well; the first push wins and the bits are the same.
 * Overdue is a multiple of the usual time per slot, learned from completed leases, so a healthy
 * step is not computed twice. Servers that have no room for a slot wait for the lowest one that is
 * missing: when a ticket was given up for that, and somebody holds the lowest, what is overdue
 * comes before what is free, which servers would refuse as well.
 *
 * Doubt (doubt.h): a member that held a lease until it was overdue, and did not bring it before it
 * lapsed or others' work ended the step, is doubted until it makes a slot done. It holds one lease
 * at a time, of one slot, and an idle worker is given that slot at once as well.
 *
 * A slot is computed on one version, whoever does it and however often (docs/spec.md, table of
 * consistency): exactly `delay` behind its step, or (ssp) the newest when it is granted for the
 * first time. So what a name stands for has the same bits from every attempt, and a version that a
 * slot may still need stays readable (P5).
 *
 * P1: `complete` marks a ticket done until a rewind: a slot that is done stays done until
 * tickets_open(), whatever happens to leases. When a lease lapses, is dropped or loses its member,
 * its slots that nobody else holds are free again. A lease may lapse although its member lives,
 * after many times the usual time: so a worker that forgot a ticket cannot stop the step. If that
 * worker completes the ticket after all, it counts, and its time is learned, also when the seals
 * end the step before: where slots suddenly take longer than the lease, those of the next steps do
 * not lapse. Members that share a lease stop when it lapses: each time its slots get twice as long,
 * and what the last lease took is learned.
 *
 * Pure; one owner. Invariants (tickets_check):
 *  1 a slot's holders are the leases that cover it;
 *  2 a slot is free exactly when it is neither done nor held; the leases on it have its version;
 *  3 free_count and done_count count them; nothing below `lowest` is free. */
#ifndef ROOST_SERVER_COORDINATOR_TICKETS_H
#define ROOST_SERVER_COORDINATOR_TICKETS_H

#include "server/coordinator/doubt.h"
#include "server/coordinator/leases.h"

struct tickets_settings {
    uint32_t slots;           /* of a step */
    uint32_t open_steps;      /* at a time, at most; at least 1 */
    uint32_t delay;           /* a slot's version is exactly this far behind its step; but: */
    bool newest;              /* ssp: a slot's version is the newest when it is first granted */
    uint32_t pieces;          /* of a validation */
    uint32_t node_slots;      /* a power of two: always this run of slots; 0: chosen */
    uint32_t chosen_max;      /* then at most so many; 0: any number */
    uint32_t leases_max;      /* at a time */
    bool shared;              /* leases are several members', whose work ends when theirs lapses */
    uint64_t attempts_first;  /* attempts are numbered from here on */
    uint32_t lease_ms;        /* of a member: no ticket lapses before */
    uint32_t overdue_percent; /* of the usual time; 0: at once */
    uint32_t overdue_ms_min;
};

/* The slots of one step; or of the validation, whose slots are its held-out pieces. */
struct work {
    uint32_t count; /* 0: nothing to do */
    uint32_t count_max;
    uint32_t free_count, done_count;
    uint32_t lowest;
    uint64_t useful_ms;
    struct slot {
        bool done;
        bool given;     /* granted before, since open */
        uint8_t lapses; /* of its leases, since open */
        uint8_t level;  /* given: of the newest node that it was given in */
        bool renamed;   /* it was given in nodes of several levels since open */
        uint32_t holders;
        uint32_t found;   /* tickets_check(): leases that cover it */
        uint64_t version; /* given: to compute on */
        /* the first lease that lapsed since open, of those that begin with this slot; attempt 0:
         * none has */
        struct lapsed {
            uint64_t attempt, granted_ms;
            uint32_t slots;
        } lapsed;
        /* done: who completed it, by which attempt, and the newest attempt then; 0: not known */
        uint64_t member, attempt, completed;
    } * slots;
};

struct tickets {
    struct tickets_settings settings;
    uint64_t version;   /* the newest committed */
    uint64_t step;      /* the oldest open */
    uint32_t steps;     /* open: step … step + steps - 1 */
    struct work *train; /* step t at t % open_steps */
    struct work validate;
    double train_usual_ms, validate_usual_ms; /* a slot takes this long; 0: not known yet */
    struct leases leases;
    struct doubt doubt;
    uint64_t done_ms;     /* when a ticket last made something done */
    bool refused;         /* a ticket was given up since then: servers had no room for it */
    uint64_t question_ms; /* when tickets_question() was last called */
    uint64_t redone;      /* slots granted again after a loss */
    uint64_t speculative; /* slots granted to a second worker */
    uint64_t audited;     /* the same on purpose */
    /* Attempts that are over, each from its lease to its end: what made slots done, each slot's
     * share once, and the rest (lost, dropped or second). */
    uint64_t useful_ms, wasted_ms;
    uint64_t audit_ms; /* the rest of those that were second on purpose */
};

enum err tickets_init(struct tickets *tickets, const struct tickets_settings *settings) MUST_USE;
void tickets_release(struct tickets *tickets);

/* Opens steps and a validation. Steps that were open before keep their done and leased slots. All
 * other leases are gone, those of the earlier validation too. */
struct tickets_open {
    uint64_t version; /* the newest committed; the validation's */
    uint64_t step;    /* the oldest: the version's */
    uint32_t steps;   /* 0: no training */
    bool validate;
};
void tickets_open(struct tickets *tickets, struct tickets_open open);
/* The validation and its leases are gone. */
void tickets_stop_validation(struct tickets *tickets);
/* The same for training alone, which may go back to older steps. */
void tickets_move(struct tickets *tickets, uint64_t step, uint32_t steps);
/* Marks a slot of an open step as done, or as not done. */
void tickets_mark(struct tickets *tickets, uint64_t step, uint32_t index, bool done);
/* Frees the done slots of the oldest step again: workers completed them, but shards miss pushes
 * (P1: only seals decide). */
void tickets_reopen(struct tickets *tickets);

/* A question about what was completed so far: a number that no attempt has, in this term or in
 * another. */
uint64_t tickets_question(struct tickets *tickets, uint64_t now_ms);
/* The slot of an open step, which was done when the question was asked, is not: it is free again
 * where nobody holds it. *ret_member: whose complete made it done; 0: it was returned before for
 * another slot of the same ticket. False: the slot stays as it is. */
bool tickets_undo(struct tickets *tickets, uint64_t question, uint64_t step, uint32_t index,
                  uint64_t *ret_member);

/* Whether some slot of an open step is free. */
bool tickets_train_free(const struct tickets *tickets);
/* Whether some slot is free that is older than that one of an open step. */
bool tickets_older_free(const struct tickets *tickets, uint64_t step, uint32_t slot);
/* Whether a slot of an open step, or a piece to validate, is free. */
bool tickets_free(const struct tickets *tickets);
/* Whether tickets_grant() would find something for some member now. */
bool tickets_any(struct tickets *tickets, uint64_t now_ms);
/* Gives the member a lease: its share of what is free, by devices, and a slot for each of its own at
 * least. False: nothing for it now. The lease is borrowed until the next call that changes leases. */
struct tickets_worker {
    uint64_t member;
    uint32_t devices;     /* 1 at least, like the next */
    uint32_t all_devices; /* of all members */
};
bool tickets_grant(struct tickets *tickets, uint64_t now_ms, const struct tickets_worker *worker,
                   const struct lease **ret_lease);
/* Gives `member` a second lease of a training ticket, on purpose (audits.h): `attempt` is the
 * first. False: the step is not open, the member is doubted, or holds the ticket or a part of it,
 * or the ticket is not leased as that node any more, nor done. */
struct tickets_twin {
    uint64_t step;
    struct node node;
    uint64_t version;
    uint64_t attempt;
};
bool tickets_grant_twin(struct tickets *tickets, uint64_t now_ms, uint64_t member,
                        const struct tickets_twin *twin, const struct lease **ret_lease);
/* When tickets_grant() for some idle worker could succeed without anything else happening, by
 * speculation; UINT64_MAX: never. */
uint64_t tickets_overdue_ms(struct tickets *tickets);
/* The lease of that attempt; NULL: it is over. */
const struct lease *tickets_find(const struct tickets *tickets, uint64_t attempt);
/* Whether some slot of the training lease was granted before as a part of another node. */
bool tickets_renamed(const struct tickets *tickets, const struct lease *lease);
/* Whom the oldest step, or the validation, waits for: the oldest lease whose node is not done;
 * NULL: nobody has any. */
const struct lease *tickets_awaited(const struct tickets *tickets);
/* How many leases of one slot of the oldest step, which is not done, lapsed: the most. */
uint32_t tickets_lapses(const struct tickets *tickets);
uint32_t tickets_held(const struct tickets *tickets, uint64_t member);

/* The ticket, whose node is valid, is done; the lease of its attempt, if it is still there, ends.
 * A step that is not open is passed over. Returns the slots that this made done. */
uint32_t tickets_done(struct tickets *tickets, uint64_t now_ms, const struct ticket *ticket);
/* Hears whose lease brought slots that nobody completed. */
struct tickets_credit {
    void *context;
    void (*give)(void *context, uint64_t member, uint32_t slots);
};

/* The steps up to `last` are over, by the shards' seals: so their leased slots were counted too,
 * although nobody completed them. Their leases end, the youngest first, which gets the credit, and
 * those of audits last; credit: NULL: nobody wants to know. Returns the useful time of `last`, in
 * milliseconds. */
uint64_t tickets_settle(struct tickets *tickets, uint64_t now_ms, uint64_t last,
                        const struct tickets_credit *credit);
/* The lease of that attempt, which is not over, begins now: what came before is not counted, until
 * it lapses, is overdue or ends. */
void tickets_renew(struct tickets *tickets, uint64_t now_ms, uint64_t attempt);
/* Whether the time of the attempt's lease is over, so that tickets_lapse() would end it. */
bool tickets_over(const struct tickets *tickets, uint64_t now_ms, uint64_t attempt);
/* Instead of that: it begins now, and its slots have twice as long from now on. */
void tickets_prolong(struct tickets *tickets, uint64_t now_ms, uint64_t attempt);
/* What is said of the attempt comes late: how long it took is not learned. */
void tickets_untimed(struct tickets *tickets, uint64_t attempt);
/* That member will not complete the attempt. */
void tickets_drop(struct tickets *tickets, uint64_t now_ms, uint64_t attempt, uint64_t member);
/* The same, of a training ticket for which servers had no room. */
void tickets_refused(struct tickets *tickets, uint64_t now_ms, uint64_t attempt, uint64_t member);
/* The member is gone; returns its leases' number. */
uint32_t tickets_drop_member(struct tickets *tickets, uint64_t now_ms, uint64_t member);
/* All leases end without having been completed. */
void tickets_drop_all(struct tickets *tickets, uint64_t now_ms);
/* Drops leases that are far too old; returns how many. *ret_due_ms: when the next would be. */
uint32_t tickets_lapse(struct tickets *tickets, uint64_t now_ms, uint64_t *ret_due_ms);

/* How many versions behind the step each slot of the oldest step was computed: `slots` entries.
 * Returns the largest. */
uint32_t tickets_behind(const struct tickets *tickets, uint8_t *ret_behind);
/* Training: any slot of the oldest step. */
bool tickets_some_done(const struct tickets *tickets);
/* Training: all slots of the oldest step. */
bool tickets_all_done(const struct tickets *tickets, enum ticket_kind kind);
void tickets_check(struct tickets *tickets); /* walks over all slots and leases */

#endif
