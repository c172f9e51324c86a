/* Proofs: what the coordinator gives to members, and what it and the servers check. A proof is an
 * HMAC-SHA256 under the key of the coordinator's term, cut to 16 bytes. The key is random, lives in
 * memory alone, and servers get it with every command. So nobody else can make a proof, and a
 * proof of an earlier term is worth nothing. Pure.
 *
 * What is signed, in this order, without gaps: 8 bytes that name the kind of proof, filled up with
 * zeros, so that no proof stands for one of another kind; then numbers of 64 bits, little-endian:
 *
 *   "member", run, member
 *   "grant", run, generation, kind, step, version, node.level, node.index, attempt, member,
 *            chunks.first, chunks.count, parts.first, parts.count; where a ticket has more ranges
 *            than that, also_count, and the same four numbers of each `also`
 *   "audited", the same: a ticket that two workers compute on purpose (train.audit). Servers count
 *            its pushes by that, and a worker cannot tell the two kinds of grants
 *
 * Whoever has a key serves one thread at a time (struct digest_mac). */
#ifndef ROOST_SERVER_MEMBER_PROOF_H
#define ROOST_SERVER_MEMBER_PROOF_H

#include "common/digest.h"
#include "proto/wire.h"

/* JoinReply.secret: the bearer is that member of the run. */
struct proof proof_member(struct digest_mac *key, uint64_t run, uint64_t member);
/* Ticket.grant: the coordinator granted that ticket, of that run, to that member. */
struct proof proof_ticket(struct digest_mac *key, uint64_t run, const struct ticket *ticket);
/* The same, of a ticket that is audited. */
struct proof proof_audited(struct digest_mac *key, uint64_t run, const struct ticket *ticket);
/* Whether the ticket's grant is one of the two; *ret_audited: the second. */
bool proof_granted(struct digest_mac *key, uint64_t run, const struct ticket *ticket,
                   bool *ret_audited);
/* In a time that does not depend on where they differ. */
bool proof_same(const struct proof *a, const struct proof *b);

/* A member's number says which term gave it; the serial never repeats within the term. */
static inline uint64_t proof_member_number(uint64_t term, uint32_t serial)
{
    return term << 32 | serial;
}

static inline uint64_t proof_member_term(uint64_t member)
{
    return member >> 32;
}

#endif
