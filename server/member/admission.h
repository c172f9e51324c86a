/* Who may push to a server and pull from it: what the server knows of its coordinator's term, and
 * what it answers to a member by that. Pure; the exchange's streams share one, behind a mutex.
 *
 * A member that the server cannot judge yet waits: BEHIND, or NO_RUN. One of an older term is to
 * join again: OLD_GENERATION. One without the right secret does not exist: UNKNOWN_MEMBER. A push
 * that its tickets do not cover gets NO_GRANT. */
#ifndef ROOST_SERVER_MEMBER_ADMISSION_H
#define ROOST_SERVER_MEMBER_ADMISSION_H

#include "server/member/proof.h"

/* The fields of commands about the term. */
struct admission_term {
    uint64_t term;                 /* 0: no command has come yet */
    uint64_t run;                  /* 0: the server holds none, or has not received it */
    uint8_t key[DIGEST_KEY_BYTES]; /* zeros: the command had none, so nobody is admitted */
};

/* Members that have ended, until the newest step is decided that they may have tickets of; async:
 * for the generation. */
struct admission_ended {
    uint64_t generation;
    uint64_t step;
    uint32_t count;
    uint64_t *members; /* WIRE_ENDED_MAX */
};

struct admission {
    struct digest_mac key;
    uint64_t term, run;
    struct admission_ended ended;
};

enum err admission_init(struct admission *admission) MUST_USE; /* ERR_NOMEM */
void admission_release(struct admission *admission);           /* {0} is fine */

/* SERVER_ENDED: from now on these are unknown. */
void admission_end(struct admission *admission, const struct server_command *command);
bool admission_has_ended(const struct admission *admission, uint64_t member);
/* The step of the generation is decided. */
void admission_decided(struct admission *admission, uint64_t generation, uint64_t step);

void admission_set(struct admission *admission, const struct admission_term *term);
/* ERR_BEHIND, ERR_NO_RUN, ERR_OLD_GENERATION, ERR_UNKNOWN_MEMBER. */
enum err admission_member(struct admission *admission, uint64_t member,
                          const struct proof *secret) MUST_USE;
/* Whether a member, which was admitted, may push that: the first ticket is its own, each was
 * granted, for this step and these chunks, and the node lies inside the nodes of all. Once for a
 * message, not for each entry of it. Notes in push->audited whether one of them is audited. The
 * errors above, and ERR_NO_GRANT. */
enum err admission_push(struct admission *admission, uint64_t member, struct push *push) MUST_USE;

#endif
