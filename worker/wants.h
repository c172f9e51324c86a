/* The values that a member's place waits for, and of whom it asks them. A pure core: the carrier
 * (peers.h) opens streams and sends what it says, and brings what comes.
 *
 * A value is asked of the member that has its place by the newest places of the lease (S7: older
 * ones are ignored), and of the next one when that member is replaced, or over the next stream when
 * one breaks. The deadline is for an answer, never for the value: a parked want is asked again
 * before it passes, so that a live peer renews it. What a peer does not answer it refuses: a want
 * that comes before its receiver has heard of the lease's newest places is asked again (S2). When
 * nothing but that comes, the peer is named, once.
 *
 * Only the time counts in which the place waits, from wants_begin() on: a peer that is asked ahead
 * has no deadline. Streams to the peers that will be asked can be opened ahead as well, so that the
 * first value from each does not wait for a handshake.
 *
 * Invariants (wants_check()):
 *  1 at most WIRE_CREDITS wants of a stream are without an answer, and so many are counted;
 *  2 a want that has its value is asked of nobody. */
#ifndef ROOST_WORKER_WANTS_H
#define ROOST_WORKER_WANTS_H

#include "worker/boundaries.h"

enum {
    WANTS_MAX = 64,     /* values: what is waited for, and what is asked for ahead */
    WANTS_AHEAD = 2,    /* of the values that follow one that is waited for */
    WANTS_RENEWS = 3,   /* questions within a deadline */
    WANTS_REFUSALS = 3, /* in a row, that raise the pause before the next question */
};

struct wants;

struct wants_options {
    const struct boundaries *boundaries; /* borrowed */
    uint32_t answer_ms;
    uint64_t seed; /* of the jitter */
    void (*release)(void *value);
};
enum err wants_new(const struct wants_options *options, struct wants **ret_wants) MUST_USE;
void wants_free(struct wants *wants); /* NULL is fine */
/* Who is asked has so long to answer, from now on; not 0. */
void wants_answer_within(struct wants *wants, uint32_t answer_ms);

/* A lease is granted: nothing of another one is wanted any more. Streams to members that are peers
 * again stay, unless they were opened as another member (ticket->member). */
void wants_lease(struct wants *wants, const struct ticket *ticket, const struct place *place,
                 const struct places *places);
void wants_places(struct wants *wants, uint64_t now_ms, const struct places *places);

/* The place waits for the value, of `bytes`, from now on: others that follow it are asked for as
 * well, as far as there is room. ERR_NOT_FOUND: the lease's place takes no such value. */
enum err wants_begin(struct wants *wants, uint64_t now_ms, const struct value_name *name,
                     size_t bytes) MUST_USE;
/* The place will wait for the value: it is asked for by now, if there is room. */
void wants_expect(struct wants *wants, const struct value_name *name, size_t bytes);
/* Whether the value is there. BEHIND: not yet; OK: *ret_value is lent until wants_judge(); others:
 * how it failed, and *ret_member is who is to blame; it is not wanted any more. */
struct wants_value {
    uint64_t stream, id; /* as which it is asked for, also when it is not there; 0: not yet */
    void *value;         /* as it came */
    size_t bytes;
    uint64_t digest;
    uint64_t member; /* who sent it */
};
enum err wants_look(struct wants *wants, const struct value_name *name,
                    struct wants_value *ret_value, uint64_t *ret_member) MUST_USE;
/* Whether the value that is there has its digest; it is released. OK: it is not wanted any more. If
 * not, it is asked for once more, BEHIND, and then it is ERR_WRONG_BITS. */
enum err wants_judge(struct wants *wants, const struct value_name *name, bool right) MUST_USE;

enum wants_effect_kind {
    WANTS_OPEN = 1,   /* a stream to `peer`, with that number */
    WANTS_ASK,        /* `want`, over that stream */
    WANTS_UNREACHABLE /* `peer` of the lease of that attempt */
};
struct wants_effect {
    enum wants_effect_kind kind;
    uint64_t number;         /* of the stream */
    const struct peer *peer; /* borrowed until the next call */
    struct want want;
    uint64_t attempt;
};
/* What is to be done now; false: nothing until wants_wake_ms(). */
bool wants_next(struct wants *wants, uint64_t now_ms, struct wants_effect *ret_effect);
uint64_t wants_wake_ms(const struct wants *wants);
/* Whether the place waits for a value. */
bool wants_waits(const struct wants *wants);
/* A stream that the lease will need and that was not opened since its newest places came: OPEN. False:
 * there is none. */
bool wants_next_stream(struct wants *wants, uint64_t now_ms, struct wants_effect *ret_effect);
/* Whether a stream is still used; others may be closed. */
bool wants_uses(const struct wants *wants, uint64_t number);

/* What a stream brings. wants_have(): true: the value is taken. */
bool wants_have(struct wants *wants, uint64_t now_ms, uint64_t number, const struct from_peer *have,
                void *value) MUST_USE;
/* A part of a value. While parts come nothing that was asked over the stream is asked for again: it
 * may lie behind that value, and the deadline is for an answer, not for the value. */
void wants_part(struct wants *wants, uint64_t now_ms, uint64_t number);
void wants_parked(struct wants *wants, uint64_t now_ms, uint64_t number, uint64_t id);
void wants_gone(struct wants *wants, uint64_t now_ms, uint64_t number, uint64_t id, enum err code);
/* The member has answered the worker elsewhere: it is not silent. */
void wants_heard(struct wants *wants, uint64_t now_ms, uint64_t member);
/* It broke, or could not be opened. */
void wants_lost(struct wants *wants, uint64_t now_ms, uint64_t number);

/* The numbered invariants; a walk over everything. */
void wants_check(const struct wants *wants);

#endif
