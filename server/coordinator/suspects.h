/* What counts against a worker stays with it, whatever becomes of its membership: that another's
 * bits differed from its own, and whose (wrong_bits.h), and that it called a ticket complete which
 * it had not pushed (missing.h). Else a worker that is wrong would only have to join anew before
 * the second time.
 *
 * A worker is its certificate, under whatever name it comes. Where several workers were members
 * with the certificate at a time, or there is none, it is the certificate, the name and the host:
 * one faulty machine makes no suspects of a fleet. That is seen when the second one is there: who
 * came after a suspect under another name is none from then on. All memberships of one worker share
 * what counts against it. When one of them ends, a table keeps it, one entry a worker, and the next
 * one has it again. In which stages it was killed is known from its former memberships alone, as
 * long as these are remembered.
 *
 * The table is bounded. When it is full a worker takes the place of another one with its own
 * certificate if there is one, so that no holder of a certificate makes the coordinator forget the
 * others. The tables are in the members (members.h); suspects.c alone writes them, but that another
 * run begins without suspects. Pure. */
#ifndef ROOST_SERVER_COORDINATOR_SUSPECTS_H
#define ROOST_SERVER_COORDINATOR_SUSPECTS_H

#include "server/coordinator/members.h"

/* Whether several workers were members with that certificate at a time. */
bool suspects_shared(const struct members *members, uint64_t certificate);

/* The member is new in the list: it has what counts against its worker. */
void suspects_joined(struct members *members, struct member *member);
/* Something new counts against the member: so it does against its worker's other memberships. */
void suspects_note(struct members *members, struct member *member);
/* The membership, which is still in the list, ends in that state. Who is convicted is no suspect any
 * more (convictions.h). */
void suspects_ended(struct members *members, const struct member *member, enum member_state state);
/* S7: whether an earlier membership of its worker, which is still known, was killed in the stage that
 * the member has a seat of; a place has so many ranks. Memberships that were there at a time are
 * several workers', also under one name: workers of one machine lose their streams together. */
bool suspects_killed_before(const struct members *members, const struct member *member,
                            uint32_t ranks);
/* The member, which is new, is too small for stages in which its worker was killed twice. */
void suspects_note_small(struct members *members, struct member *member, uint32_t ranks);
/* That one computes wrongly: its opinion counts against nobody. */
void suspects_clear(struct members *members, const struct member *guilty);

/* What the member's worker brought in all memberships that are known, and below which step the
 * newest audit of it agreed (audits.h). */
struct suspects_brought {
    struct brought brought;
    uint64_t confirmed;
};
struct suspects_brought suspects_brought(const struct members *members,
                                         const struct member *member);

#endif
