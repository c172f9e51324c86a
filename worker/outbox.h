/* What a member has computed for the other places of its leases, and who asks for it. A pure core:
 * the carrier (peers.h) brings what happens, and sends the answers.
 *
 * A value is kept until its lease is over (S3), and is given to whoever is a peer of the lease and
 * stands where the value goes. The name is all that fences (S2): a want for a lease or a generation
 * that this member has not heard of is parked, and answered when that has come. A parked want is a
 * favour, not a promise: the asker renews it, and the oldest goes where there are too many.
 *
 * Partial sums of a place with several members (S6) pass inside one try alone: a question of a newer
 * try is parked until this member has heard of it, one of an older is refused. All members make the
 * same sums one after another, and who asks for one has finished the one before; so two are kept.
 *
 * Invariants, checked where they change:
 *  1 kept_bytes are those of all leases' values;
 *  2 sums that are kept are of the place's try, and of the newest sequence or the one before;
 *  3 an asker has at most OUTBOX_WANTS_MAX wants; at most OUTBOX_UNANSWERED_MAX of them wait for
 *    their first answer, the others are parked. */
#ifndef ROOST_WORKER_OUTBOX_H
#define ROOST_WORKER_OUTBOX_H

#include "common/digest.h"
#include "worker/boundaries.h"

enum {
    OUTBOX_PARKED_MAX = 64, /* wants of one asker, before a new one takes the oldest one's place */
    /* A parked want that is asked again may cross its value, which its asker takes for the answer:
     * all that were parked may be under way once more, beside those that hold credits. */
    OUTBOX_UNANSWERED_MAX = OUTBOX_PARKED_MAX + WIRE_CREDITS,
    OUTBOX_WANTS_MAX = OUTBOX_PARKED_MAX + OUTBOX_UNANSWERED_MAX,
};

struct outbox;
struct outbox_asker; /* a stream whose caller has said who it is */

struct outbox_options {
    const struct boundaries *boundaries; /* borrowed */
    bool insecure;                       /* certificates are not compared */
};
enum err outbox_new(const struct outbox_options *options, struct outbox **ret_outbox) MUST_USE;
void outbox_free(struct outbox *outbox); /* after its askers; NULL is fine */

/* A lease is granted, perhaps once more: sums made before are dropped. Copies all. ERR_NOMEM;
 * ERR_BUSY: more than WIRE_LEASES_MAX are kept. */
enum err outbox_lease(struct outbox *outbox, const struct ticket *ticket, const struct place *place,
                      const struct places *places) MUST_USE;
/* Older numbers, and leases that are not kept, change nothing (S7). */
void outbox_places(struct outbox *outbox, const struct places *places);
/* Leases of other attempts are over (S3). */
void outbox_keep(struct outbox *outbox, const uint64_t *attempts, uint32_t count);
/* Leases of older generations are over (S8). */
void outbox_generation(struct outbox *outbox, uint64_t generation);

/* A value of that lease, or its partial sum, if it is kept. The same value may come again.
 * ERR_WRONG_BITS: with another digest; the first one stays. */
enum err outbox_give(struct outbox *outbox, uint64_t attempt, const struct value_name *name,
                     struct counted *take_value, uint64_t digest) MUST_USE;
uint64_t outbox_bytes(const struct outbox *outbox); /* of the values kept */

/* Who asks, by the certificate that it showed. NULL: no memory. */
struct outbox_asker *outbox_asker_new(struct outbox *outbox, uint64_t member,
                                      const struct digest *shown) MUST_USE;
void outbox_asker_free(struct outbox_asker *asker); /* NULL is fine */

/* ERR_MALFORMED: more wants without an answer than credits allow; the stream ends. */
enum err outbox_want(struct outbox_asker *asker, const struct want *want) MUST_USE;

struct outbox_answer {
    struct from_peer message; /* a value's payload_bytes are set */
    struct counted *value;    /* a reference; NULL: the message has none */
};
/* The next answer for that asker; false: there is none now. */
bool outbox_next(struct outbox_asker *asker, struct outbox_answer *ret_answer);

/* Invariants 1 and 3; a walk over everything. */
void outbox_check(const struct outbox *outbox);
#endif
