/* The agent's leases: those that it has, or had, a place of. For agent*.c only.
 *
 * In a mesh of several places a ticket is leased to as many members as there are places. What a
 * member produced for a lease others may ask for until the lease is over, also when its own place
 * is complete (S3): a notice says that, or an answer to Acquire that does not name the lease. Until
 * then the lease has a record here, with the newest list of who computes its places. A notice may
 * come before the answer that grants the lease, for the first time or once more: the newest ones of
 * leases that have no record are remembered.
 *
 * A run without a mesh has no records, and none of the effects below.
 *
 * Invariants (agent_leases_check):
 *  1 each record has another attempt, and so has what was heard early;
 *  2 a lease that is kept has peers: without peers it is over;
 *  3 the loop is told of changes of a lease that it knows. */
#ifndef ROOST_WORKER_AGENT_LEASES_H
#define ROOST_WORKER_AGENT_LEASES_H

#include "worker/agent_effects.h"

enum {
    AGENT_LEASES_MAX = WIRE_LEASES_MAX + 1, /* those that an answer names, and the one it grants */
    AGENT_EARLY_MAX = AGENT_LEASES_MAX      /* all of these may end while an answer is awaited */
};

struct agent_places {
    struct places places; /* `peers` is the array below; attempt 0: none */
    struct peer peers[WIRE_PLACES_MAX];
};

struct agent_lease {
    struct agent_places who; /* attempt 0: the record is free */
    struct ticket ticket;
    struct place place; /* the own one */
    bool begun;         /* the loop was told in which lane it is computed */
    bool told;          /* it knows the lease … */
    bool changed;       /* … but not the newest places */
};

struct agent_leases {
    struct agent_lease *all;         /* (AGENT_LEASES_MAX); NULL: no mesh */
    struct agent_places *early;      /* (AGENT_EARLY_MAX) */
    uint32_t early_turn;             /* the one that is overwritten next */
    uint64_t generation;             /* of the membership */
    bool generation_due;             /* the loop is to hear of it, */
    bool keep_due;                   /* that leases are over */
    uint64_t kept[AGENT_LEASES_MAX]; /* what an effect says */
};

/* ERR_NOMEM. */
enum err agent_leases_init(struct agent_leases *leases, const struct agent_config *config) MUST_USE;
void agent_leases_release(struct agent_leases *leases); /* {0} is fine */

/* S8: a new membership has no leases. */
void agent_leases_begin(struct agent_leases *leases, uint64_t generation);
/* All are over, as far as this member is concerned. */
void agent_leases_clear(struct agent_leases *leases);
/* S3: those that the coordinator does not name are over. */
void agent_leases_keep(struct agent_leases *leases, const struct acquire_reply *reply);
/* Records what a reply grants, which agent_leases_fits(). False: the reply says that the lease is
 * over, or a notice has said so already. */
bool agent_leases_hold(struct agent_leases *leases, const struct acquire_reply *reply) MUST_USE;
void agent_leases_forget(struct agent_leases *leases, uint64_t attempt);
/* A notice. True: the lease was kept, and is over. */
bool agent_leases_hear(struct agent_leases *leases, const struct places *places) MUST_USE;

/* Whether the reply grants a place of the run's mesh, or all of a ticket where there is none. */
bool agent_leases_fits(const struct agent_config *config, const struct acquire_reply *reply);
/* Whether the lease is not over, and whether the loop was told of it. */
bool agent_leases_has(const struct agent_leases *leases, uint64_t attempt);
bool agent_leases_told(const struct agent_leases *leases, uint64_t attempt);
/* Whether the member computes at a place of the lease, as far as was heard. */
bool agent_leases_names(const struct agent_leases *leases, uint64_t attempt, uint64_t member);
uint32_t agent_leases_count(const struct agent_leases *leases);

/* Its place will be computed from the start once more, perhaps in another lane. */
void agent_leases_again(struct agent_leases *leases, uint64_t attempt);

/* The effects GENERATION, KEEP and PLACES, when they are due; and LEASE of an attempt whose compute
 * is about to begin, once. */
bool agent_leases_next(struct agent_leases *leases, struct agent_effect *effect);
bool agent_leases_next_first(struct agent_leases *leases, uint64_t attempt,
                             struct agent_effect *effect);

void agent_leases_check(const struct agent_leases *leases);

#endif
