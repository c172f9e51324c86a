/* The collectives that one member of a place takes part in, one after another, within one try. A pure
 * core: a carrier brings the parts that others send, in whatever order they arrive, and sends what
 * this says. All members begin the same collectives in the same order; their numbers name them.
 *
 * A part is used where it lies when it is its turn, or when it is copied to a place that nothing
 * else uses; otherwise it is kept. What one sender may have kept here has a bound, its credit, which
 * is what an honest one can be ahead with: parts of this collective, and of the next one, which the
 * sender may have begun (collective.h says why it cannot be further). More is refused.
 *
 * The array is lent from running_begin() to DONE. Bytes that are to be sent stay as they are until
 * their receiver has them: whoever overwrites them has got something from it that depends on them. A
 * peer that lies about that spoils what it gets itself.
 *
 * S6: who has refused a part, or been told so, gives the place up; a collective that has failed stays
 * so, and a new try begins with a new one of these. No call allocates.
 *
 * Invariants, checked where they change:
 *  1 what is kept of one sender, of one collective, is at most its credit;
 *  2 a step is done once, after all before it, but copies into the array, which may be done before
 *    what receives;
 *  3 DONE comes after the last step, when all that was to be sent is sent. */
#ifndef ROOST_WORKER_COLLECTIVE_RUNNING_H
#define ROOST_WORKER_COLLECTIVE_RUNNING_H

#include "proto/wire.h"
#include "worker/collective/collective.h"

#include <stddef.h>

struct running;

struct running_options {
    uint64_t attempt; /* of the lease */
    uint32_t tries;   /* of the place */
    uint32_t ranks, rank;
    uint64_t elements_max; /* of an array */
    uint32_t element_bytes_max;
};
/* The memory that running_init() takes. ERR_INVALID: there can be no such member; arrays are at most
 * WIRE_VALUE_BYTES_MAX. */
enum err running_bytes(const struct running_options *options, size_t *ret_bytes,
                       struct reason *reason) MUST_USE;
/* `memory` has that size, begins at a multiple of 64 and is borrowed; nothing is to be released. */
struct running *running_init(const struct running_options *options, void *memory);

/* out (count) = left + right; `out` is one of them. All three are aligned as elements are. */
typedef void running_add(void *context, void *out, const void *left, const void *right,
                         size_t count);

struct running_work {
    struct collective collective;
    uint32_t element_bytes;
    void *array;
    void *output; /* of an all-to-all; else NULL */
    running_add *add;
    void *context;
    uint64_t deadline_ns; /* a moment; TIME_NEVER is none */
};
/* The next collective, after DONE. ERR_INVALID: it is larger than the options say, or is none. */
enum err running_begin(struct running *running, const struct running_work *work,
                       struct reason *reason) MUST_USE;

/* The header of a part came from that rank; part->bytes bytes follow by running_payload(). Refused,
 * with a sentence: ERR_NOT_FOUND: of another lease; ERR_TOO_LATE: of an older try; ERR_BEHIND: of a
 * newer one, which this member has not heard of; ERR_MALFORMED: no such rank, round or range, or it
 * was there before; ERR_BUSY: beyond the sender's credit. */
enum err running_part(struct running *running, uint32_t from, const struct part *part,
                      struct reason *reason) MUST_USE;
/* The next bytes of the part that began. They may end anywhere, and lie anywhere. */
void running_payload(struct running *running, uint32_t from, const void *bytes, size_t count);
/* Whether the next part of that rank would be used as it comes, so that it can wait elsewhere until
 * then. */
bool running_waits_for(const struct running *running, uint32_t from);

enum running_effect_kind { RUNNING_SEND = 1, RUNNING_DONE, RUNNING_FAILED };
struct running_effect {
    enum running_effect_kind kind;
    uint32_t rank; /* SEND: to whom; FAILED: who is to blame */
    struct part part;
    const void *bytes;  /* lent until running_sent() */
    enum err err;       /* FAILED: DEADLINE, UNREACHABLE, MALFORMED */
    const char *reason; /* FAILED: a sentence */
};
/* What is to be done now; false: nothing until something comes. DONE and FAILED come once. */
bool running_next(struct running *running, uint64_t now_ns, struct running_effect *ret_effect);
/* The bytes of one effect to that rank are on their way, and are not read any more. */
void running_sent(struct running *running, uint32_t to);
/* The rank can no longer be reached. */
void running_lost(struct running *running, uint32_t rank);

#endif
