/* What places said of the values that passed there, in runs whose leases have several places.
 *
 * The member that completes a place brings a sum of digests for each boundary, way and direction
 * (boundary_sum). Values are named by what they are, and their bits follow from the name, so two
 * who computed the same place of the same node said the same, whatever the lease: the holder of a
 * place and who filled it after a loss, the first lease, a copy, an audit. What a place gives
 * forward follows from what it took forward over the boundaries below; what it gives backward, from
 * all that it took forward, and from what it took backward over the boundaries above. So:
 *
 *   computed  equal inputs, another output: one of the two computes wrongly;
 *   passed    in one lease, what a place gave is not what its neighbour took. Digests of values are
 *             compared on arrival, so one of the two says something untrue. Only while the giver's
 *             place has had one member: else the neighbour may have taken it from an earlier one;
 *   members   in one try of a place with several members (mesh.tensor), one has other bits than
 *             another of what each of them computes: of what they give, or of gradients that are
 *             not in pieces (worker/replicated.h), where they took the same. What passes in pieces
 *             (some of mlp's boundaries) is of each rank alone, and is no part of this;
 *   pushed    servers hold two sums of one name (SERVER_WRONG_BITS): of the two who brought them
 *             one computes wrongly, if they had equal inputs. With other inputs neither need be
 *             wrong: who is lies before them, and is found there.
 *
 * Where places have several members nothing is compared beyond a try: what one gives depends on the
 * parts that the others of its place gave, and of these nothing is said. Inside one try all have the
 * same sums of parts.
 *
 * Which of the two is wrong only a third can tell (wrong_bits.h). A place without sums (a worker of
 * an older version) is compared with nothing. So is validation: nothing of it is in the weights.
 *
 * What was said of a step is kept until its audits are over (audits.h), at most SAID_MAX places:
 * what comes then is compared with nothing. A new generation forgets all.
 *
 * Part of the coordinator's core; said.c alone writes run->said. */
#ifndef ROOST_SERVER_COORDINATOR_SAID_H
#define ROOST_SERVER_COORDINATOR_SAID_H

#include "server/coordinator/run.h"

enum { SAID_MAX = 1 << 17, SAID_DIFFERENCES_MAX = 8 };

/* Of one seat. */
struct statement {
    struct statement *next; /* of the same step and first slot; said_next() */
    uint64_t step;
    struct node node;
    uint64_t attempt, gang, member;
    uint32_t seat, stage;
    uint64_t try_number;
    uint64_t replicated; /* 0: not said */
    uint32_t count;
    struct boundary_sum sums[];
};

enum said_kind { SAID_COMPUTED, SAID_PASSED, SAID_MEMBERS, SAID_PUSHED };

struct said_difference {
    enum said_kind kind;
    uint64_t first, second; /* members, who may be the same; COMPUTED, PUSHED: in that order */
    uint64_t step;
    struct node node; /* of the lease; PUSHED: of the push (run_leased()) */
    uint32_t which;   /* boundary; MEMBERS: stage; PUSHED: chunk */
};

enum err said_init(struct run *run) MUST_USE; /* ERR_NOMEM */
void said_release(struct run *run);
void said_forget(struct run *run);
/* The step is decided. */
void said_decided(struct run *run, uint64_t step);

/* The member, which has that seat of the gang, says that it is complete. Returns how many
 * differences that shows. */
uint32_t said_add(struct run *run, const struct gang *gang, uint32_t seat,
                  const struct complete_request *request,
                  struct said_difference ret_differences[static SAID_DIFFERENCES_MAX]);

/* Servers hold other sums of `second` than of `first`, for that chunk. True: they had equal inputs.
 * When one of the two has not said what it had, said_add() comes back to it. */
bool said_pushed(struct run *run, const struct said_difference *push);

/* The newest that was said of the node; NULL: nothing was. */
const struct statement *said_newest(const struct run *run, uint64_t step, struct node node);
const struct statement *said_next(const struct statement *statement);
/* Who said that it completed that seat of the attempt; 0: nobody. */
uint64_t said_by(const struct run *run, uint64_t step, struct node node, uint64_t attempt,
                 uint32_t seat);
/* Whether who has the seat pushes the lack's chunk for that slot of the node. */
bool said_pushes(const struct run *run, uint32_t seat, struct node node, const struct lack *lack);
/* Who said that it completed the seat of the gang that pushes the lack's chunk; 0: nobody. */
uint64_t said_to_have(const struct run *run, uint64_t step, uint64_t gang, const struct lack *lack);

#endif
