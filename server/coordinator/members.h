/* The members: workers that joined, when the coordinator last heard from each, and what each asked
 * for. Also the former members, and why each is gone. Pure; one owner.
 *
 * A membership belongs to one generation: after a rewind all workers have to join again. A member
 * stays in the list until it joins again or its lease lapses. When a worker joins again while its
 * earlier membership is in the list, that counts neither as a join nor as a loss.
 *
 * Parked members are a line, and all are in a heap by when something is due of them, so that
 * neither asking nor waiting costs more where there are thousands. */
#ifndef ROOST_SERVER_COORDINATOR_MEMBERS_H
#define ROOST_SERVER_COORDINATOR_MEMBERS_H

#include "common/err.h"
#include "common/ring.h"
#include "proto/wire.h"
#include "server/coordinator/brought.h"

enum {
    MEMBERS_MAX = 4096,         /* present at a time; COORDINATOR_MEMBERS_MAX */
    MEMBERS_PAST_MAX = 64,      /* former members that are remembered */
    MEMBERS_REFUSED_MAX = 16,   /* workers whose join was refused, beside them */
    MEMBERS_SUSPECTS_MAX = 256, /* workers that are gone and have something against them */
    MEMBERS_SHARED_MAX = 256,   /* certificates of several workers that are remembered */
    MEMBERS_REASON_BYTES = 128
};

#define MEMBER_STATE_TABLE(X)                                                                      \
    X(JOINED, "joined")                                                                            \
    X(LEFT, "left")                                                                                \
    X(PREEMPTED, "preempted")                                                                      \
    X(TIMED_OUT, "timed out")                                                                      \
    X(TOO_SMALL, "too small")                                                                      \
    X(KILLED_TWICE, "killed twice")                                                                \
    X(REFUSED, "refused")                                                                          \
    X(WRONG_BITS, "wrong bits")                                                                    \
    X(FALSE_COMPLETE, "false complete")                                                            \
    X(ERROR, "error")

#define MEMBER_STATE_ENUM(state, text) MEMBER_##state,
enum member_state { MEMBER_STATE_TABLE(MEMBER_STATE_ENUM) MEMBER_STATE_COUNT };
#undef MEMBER_STATE_ENUM

const char *member_state_name(enum member_state state);

/* Whose opinion it is when two workers' bits differ (wrong_bits.h). */
struct opinion {
    char name[64]; /* "": nobody's */
    char host[64];
    uint64_t certificate; /* 0: none */
};

struct member {
    uint64_t id; /* proof_member_number(): never the same again, not even by a successor */
    struct proof secret;
    struct opinion own;
    char device[64];
    uint32_t devices;                 /* that compute together */
    char address[WIRE_ADDRESS_BYTES]; /* where other workers reach it; "": none may */
    uint8_t shown[WIRE_DIGEST_BYTES]; /* SHA-256 of its certificate */
    enum member_state state;
    char reason[MEMBERS_REASON_BYTES]; /* why it is gone, or why it is suspected */
    uint64_t joined_ms;
    uint64_t seen_ms;
    uint64_t slots_done;
    uint64_t kept_bytes; /* it reports: of values that others of its leases may ask for */
    bool killed;         /* its stream broke while it computed a place */
    bool brings_nothing; /* at its newest place it did nothing while others waited for it */
    uint64_t small; /* a bit for each stage in which it was killed twice: it is too small for it */
    /* These stay with the worker when it joins anew (suspects.h). */
    struct opinion suspected;       /* who it was when the first of them was noted; "": none is */
    uint64_t wrong_bits;            /* pushes of its own that differed from somebody else's */
    uint32_t false_completes;       /* tickets that it completed and of which pushes are missing */
    struct opinion contradicted_by; /* of the first worker whose bits differed */
    uint32_t watched;               /* tickets that were audited because of that */
    struct brought brought;         /* steps of which it had tickets */
    uint64_t confirmed; /* an audit of the step before this one agreed; 0: none did (audits.h) */
    /* Its newest acquire. */
    uint64_t sequence;
    struct ticket ticket;             /* the answer's ticket; attempt 0: none was given */
    uint64_t leases[WIRE_LEASES_MAX]; /* attempts of its places' leases, over or not (places.h) */
    uint64_t waits[WIRE_LEASES_MAX];  /* it reports: of those in which its place waits for others */
    struct member_named {
        uint64_t attempt, member;   /* it reports: of a lease, who does not answer there */
        uint64_t first_ms, last_ms; /* when it said so */
    } named[WIRE_LEASES_MAX];       /* of each lease */
    uint32_t seat;                  /* in each of them (gangs.h); UINT32_MAX: it had none */
    bool parked;                    /* the acquire waits */
    uint64_t parked_until_ms;
    struct ring line; /* of those who are parked */
    uint64_t due_ms;  /* no later than when it lapses or has waited long enough */
    uint32_t due_place;
};

struct members {
    uint64_t term;
    uint32_t lease_ms;        /* who is silent for so long lapses, */
    uint64_t spared_until_ms; /* and nobody before this time */
    uint32_t certificate_max; /* members with one certificate; 0: any */
    uint32_t serial;
    uint32_t count;
    uint32_t devices;     /* of all */
    uint32_t small_count; /* who is too small for a stage */
    struct member **list; /* ascending ids */
    struct member **due;  /* a heap by due_ms */
    uint32_t past_count;
    uint32_t past_next;
    struct member *past; /* a ring */
    uint32_t refused_count;
    uint32_t refused_next;
    struct member *refused; /* a ring of its own: who may not join pushes no member out */
    uint32_t suspect_count;
    struct member *suspects; /* as they were when they ended, the oldest first (suspects.h) */
    uint32_t shared_count;
    uint32_t shared_next;
    uint64_t shared[MEMBERS_SHARED_MAX]; /* a ring: certificates that several had at a time */
    uint32_t parked_count;
    struct ring line; /* the parked, who waits longest first */
    /* joined: without those that joined again in their own place; lost: gone without leaving */
    uint64_t joined_count, lost_count;
    uint64_t gone_ms; /* how long former members were members, summed */
};

/* In its place: it may not move. ERR_NOMEM. */
enum err members_init(struct members *members, uint64_t term, uint32_t lease_ms) MUST_USE;
/* Who joins from now on is numbered under this higher term; who is there keeps its number. */
void members_raise_term(struct members *members, uint64_t term);
void members_release(struct members *members);

/* The run's conditions for a worker. */
struct members_demands {
    const uint8_t *fingerprint; /* NULL: any */
    const uint8_t *data_digest;
    bool data_served; /* a worker needs no copy of the data */
};

/* Whether the worker may join. ERR_INVALID: it has no name; ERR_WIRE_VERSION, ERR_FINGERPRINT,
 * ERR_DATA_SET: `reason` names both sides. */
enum err members_judge(const struct members_demands *demands, const struct join_request *request,
                       struct reason *reason) MUST_USE;

/* Adds a member. When request->previous_member is still in the list, that membership ends, and its
 * counts go to the new one. ERR_BUSY: MEMBERS_MAX are there, or certificate_max with this
 * certificate; ERR_NOMEM. A member lives until it is
 * removed. */
enum err members_add(struct members *members, uint64_t now_ms, const struct join_request *request,
                     struct member **ret_member) MUST_USE;
/* The member of that number, if the secret is its own; NULL: nobody. */
struct member *members_prove(struct members *members, uint64_t id, const struct proof *secret);
/* How long workers were members, summed, each until its newest message. */
uint64_t members_present_ms(const struct members *members);
struct member *members_find(const struct members *members, uint64_t id); /* NULL: unknown */
/* When the member lapses, if nothing is heard of it. */
uint64_t members_lapse_ms(const struct members *members, const struct member *member);
/* How the membership ended; MEMBER_JOINED: it has not, or it is forgotten. */
enum member_state members_end(const struct members *members, uint64_t id);
/* A present or former member; NULL: forgotten. Borrowed until the next add or remove. */
const struct member *members_known(struct members *members, uint64_t id);
/* Its name. */
const char *members_name(struct members *members, uint64_t id);
/* Whether two opinions count as one: names are the workers' choice, so certificates decide where
 * members with several were there. */
bool members_one_opinion(const struct members *members, const struct opinion *a,
                         const struct opinion *b);
/* Whether two present members under other names than that one's have two opinions. */
bool members_two_opinions_beside(const struct members *members, const struct member *member);
/* Nobody is too small for a stage, until it was killed there twice again. */
void members_forget_killed(struct members *members);
/* The member is gone; `state` is not JOINED. */
void members_remove(struct members *members, struct member *member, enum member_state state,
                    const char *reason);
/* All members have left, and another run begins: nothing counts against anybody. */
void members_dismiss(struct members *members, const char *reason);
/* A rewind to that version: what was brought from it on is undone, and audits of it confirm nothing
 * any more. */
void members_rewound(struct members *members, uint64_t version);
/* Remembers a worker whose join was refused. */
void members_refused(struct members *members, uint64_t now_ms, const struct join_request *request,
                     const char *reason);

void members_park(struct members *members, struct member *member, uint64_t until_ms);
void members_unpark(struct members *members, struct member *member);
/* The longest parked member, and the one that was parked after that; NULL: none. */
struct member *members_first_parked(const struct members *members);
struct member *members_next_parked(const struct members *members, const struct member *member);

/* A member that has lapsed, or whose question has waited long enough; NULL: none. The caller
 * removes or unparks it. */
struct member *members_find_due(struct members *members, uint64_t now_ms);
/* No later than when the next one is; UINT64_MAX: nobody is there. */
uint64_t members_due_ms(const struct members *members);

/* The i-th of the present members, then of the former ones, then of those who were refused, each
 * newest first; NULL beyond the last. */
const struct member *members_at(const struct members *members, uint32_t i);
/* How many there are. */
static inline uint32_t members_listed(const struct members *members)
{
    return members->count + members->past_count + members->refused_count;
}

#endif
