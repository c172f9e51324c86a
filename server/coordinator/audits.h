/* Audits: tickets that two workers compute on purpose, so that a worker that computes wrongly is
 * found although nobody was slow (train.audit; server/shard/audited.h has which tickets).
 *
 * Both leases are one decision: the ticket's first lease is granted, and from then on the audit
 * waits for another worker that asks, before that worker gets anything else. It is the same node on
 * the same version, and no ticket says so: servers tell an audited push by its grant, which only
 * they can read (proof.h), and count it by itself. The second worker has another name than the
 * first, and another certificate and another machine, where there is one; a third worker differs
 * from both. Nothing waits for an audit: the step is committed when its sums are complete. The
 * servers compare a push until commit(t + 1); a second push that comes later, or never, is not
 * compared.
 *
 * When the bits of two workers differ, nobody knows which of the two is wrong (wrong_bits.h). From
 * then on all tickets of both are audited by a third worker, AUDITS_WATCH_MAX of each at most, and
 * the one that the third contradicts as well is the wrong one.
 *
 * How long that takes. The audited share is a. A worker is wrong in a share q of the tickets that
 * it computes, on its own and as a second worker alike. Of all tickets computed, 1 in 1 + a is a
 * first one, which is audited with probability a, and a in 1 + a is a second one, which always is
 * compared. So a computed ticket is compared with probability 2a / (1 + a), and the first
 * difference comes after (1 + a) / (2aq) of the worker's tickets. From then on all are compared,
 * and the second difference comes after another 1 / q. Together the worker is named after
 *
 *     ((1 + a) / (2a) + 1) / q        of its tickets, as a mean,
 *
 * as long as every second push comes in time; with a compared share c of the audits it is 1 / c of
 * that. audits_expected() is the numerator. (A worker that can tell second tickets, by the order in
 * which it gets them, and is right in those, is compared in a / (1 + a) of its tickets at first.)
 *
 * Only two others of two opinions (members.h) name a worker. Where there are not so many of any
 * worker that is there, audits name nobody, and log and status say so. Where all but one have one
 * certificate, they name any of these, and not that one.
 *
 * An audit of step t is over when every server has acknowledged commit(t + 1) (P6): what differs
 * has been reported by then. It has agreed when both workers completed it before commit(t + 1) was
 * decided and nothing was reported. So each worker is known to have been right at some step, and
 * what it brought later is unconfirmed. Servers compare what comes under one name. Where slots of the
 * ticket were granted as a part of another node before, they may have the sums from there, and
 * compare nothing: such an audit has not agreed. Neither has one of step t that is not complete when
 * commit(t) moves chunks (P11): names do not travel with a chunk.
 *
 * In a run with stages a side is a whole lease. The second one shares no member with the first, and
 * nobody who has the same opinion as another about one of its members. It goes on when the first is
 * over, also when the step is committed, until servers compare no more; so does the first one when
 * the second is faster. Who fills an empty place may have sat on the other side: a second lease
 * that loses a member is over, and another one is granted; so is a first one whose second is
 * complete. What differs is told by the places' boundaries (said.h), and by servers.
 *
 * Part of the coordinator's core; audits.c alone writes run->audits. */
#ifndef ROOST_SERVER_COORDINATOR_AUDITS_H
#define ROOST_SERVER_COORDINATOR_AUDITS_H

#include "server/coordinator/run.h"

enum {
    AUDITS_WATCH_MAX = 2000, /* tickets; who is wrong in 1 of 200 is missed once in 20,000 times */
    AUDITS_LOOK_MAX = 8,     /* audits that a worker who asks is tried for */
};

/* The tickets of a worker until it is named, times the share in which it is wrong; 0: never. */
double audits_expected(double share);

enum err audits_init(struct run *run) MUST_USE; /* ERR_NOMEM */
void audits_release(struct run *run);

/* A generation begins at the run's version: nothing of the one before is compared any more, and
 * what was confirmed from that version on is void. */
void audits_forget(struct coordinator *coordinator);

/* The coordinator goes on where another one was: of the open steps nobody knows what that one
 * granted. */
void audits_adopt(struct run *run);

/* Whether some audit waits for a second worker. */
bool audits_wait(const struct run *run);
/* Gives the member the second lease of an audit. False: there is none for it. */
bool audits_grant(struct coordinator *coordinator, uint64_t now_ms, const struct member *member,
                  const struct lease **ret_lease);
/* Those members have got the first lease of a training ticket, whose holder is one of them, or the
 * number of their gang. Returns whether it is audited. */
struct audits_holder {
    uint64_t holder;
    struct member *const *members;
    uint32_t count;
};
bool audits_granted(struct coordinator *coordinator, const struct audits_holder *holder,
                    const struct lease *lease);

/* Of several places: the audits that wait for a second lease, the oldest first; NULL: no more. */
struct audit *audits_waiting(const struct run *run, const struct audit *after);
/* Whether the member may have a place of the second lease. */
bool audits_may_sit(const struct coordinator *coordinator, const struct audit *audit,
                    const struct member *member);
/* The gang of that number has the second lease. False: the ticket is not leased any more. */
bool audits_grant_gang(struct coordinator *coordinator, uint64_t now_ms, struct audit *audit,
                       uint64_t gang, const struct lease **ret_lease);
/* Whether the lease is one side of an audit, and the other one is complete. */
bool audits_other_done(const struct run *run, const struct ticket *ticket);

/* The ticket is complete: its pushes are acknowledged. */
void audits_done(struct run *run, const struct ticket *ticket);
/* A lease ended without that; attempt 0: all of the member's. */
void audits_lost(struct run *run, uint64_t member, uint64_t attempt);
/* Two workers' bits of that node differ: of a lease's, or of a pushed half of it. */
void audits_differ(struct run *run, uint64_t step, struct node node);
/* Chunks move with the commit of that step: their new owners compare nothing of it. */
void audits_moved(struct run *run, uint64_t step);
/* The step is decided, and the decision before is acknowledged by all. */
void audits_decided(struct coordinator *coordinator, uint64_t step);

/* The counts, and how long it takes to name a worker. */
struct audit_status audits_status(const struct coordinator *coordinator);
/* Training begins: logs how long that takes, or that it takes for ever. */
void audits_announce(struct coordinator *coordinator);
/* A member came or went: logs it again if that has changed. */
void audits_members_changed(struct coordinator *coordinator);

#endif
