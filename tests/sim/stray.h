/* Messages that came astray. Beside real calls, a core now and then gets calls that no fence may let
 * through: of another boot, generation or term, of a step that is not open, about a chunk that
 * another server owns, what was decided otherwise. Behind its daemon a core hardly ever meets them,
 * because the daemon, the link and the member's core have fences too; each must hold by itself. The
 * core answers as its header says, and what it knows stays as it was (invariant 11). Their dice are
 * their own, so the plan of a seed does not depend on them. From watch.c and watch_control.c. */
#ifndef ROOST_TESTS_SIM_STRAY_H
#define ROOST_TESTS_SIM_STRAY_H

#include "common/rand.h"
#include "server/shard/shard.h"

struct sim;
struct coordinator;

struct stray {
    struct rand_state random;
    struct shard_effects effects; /* of shards; nobody carries them out */
    uint64_t answer_link; /* over it a server gave a successor another decision than its own */
    struct commit answer_truth;
};

/* Whether one comes now. */
bool stray_comes(struct sim *sim);
/* Before a server's report, or a member's complete. */
void stray_report(struct sim *sim, struct coordinator *core, uint64_t now_ms, uint64_t link,
                  const struct server_report *seen);
void stray_complete(struct sim *sim, struct coordinator *core, uint64_t now_ms,
                    const struct complete_request *seen);
/* Before a commit, and after it was taken. */
void stray_commit(struct sim *sim, struct shard *shard, uint64_t boot, const struct commit *seen);
void stray_commit_again(struct sim *sim, struct shard *shard, uint64_t boot,
                        const struct commit *taken);
/* Before a server notes that decision for a successor. */
struct holdings;
void stray_decision(struct sim *sim, struct holdings *holdings, const struct server_command *seen);
/* Before a push, or a pull. */
void stray_push(struct sim *sim, struct shard *shard, uint64_t sender, const struct push *seen,
                struct cursor payload);
void stray_pull(struct sim *sim, struct shard *shard, struct pull_sender sender,
                const struct pull *seen);
/* Before a pull: many of one member. */
void stray_park(struct sim *sim, struct shard *shard, const struct pull *seen);

#endif
