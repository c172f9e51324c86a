/* Bugs planted between the cores, to see that the invariants find them. Each changes messages or
 * effects on their way, as a core with that bug would have sent or taken them; the cores stay as
 * they are. */
#ifndef ROOST_TESTS_SIM_MUTATE_H
#define ROOST_TESTS_SIM_MUTATE_H

#include "common/files/checkpoint.h"

#include <stdbool.h>
#include <stdint.h>

#define MUTATIONS(X)                                                                               \
    X(NONE, "none", "")                                                                            \
    X(COUNT_TWICE, "count-twice", "a shard counts a duplicate as the next missing slot")           \
    X(ARRIVAL_ORDER, "arrival-order", "a shard sums slots in the order of arrival")                \
    X(PUSH_UNFENCED, "push-unfenced", "a shard counts pushes of an older generation")              \
    X(NO_ACK, "no-ack", "a shard does not acknowledge duplicates")                                 \
    X(PULL_UNFENCED, "pull-unfenced", "a shard serves pulls of an older generation")               \
    X(PUBLISH_EARLY, "publish-early", "a shard serves the old weights for a version to come")      \
    X(FORGET_PARKED, "forget-parked", "a shard forgets every fourth parked pull")                  \
    X(APPLY_SKIPPED, "apply-skipped", "a shard applies a step that was skipped")                   \
    X(OTHER_SCALE, "other-scale", "servers get different scales for one step")                     \
    X(EARLY_MANIFEST, "early-manifest", "a server sends a cut's manifest before it is durable")    \
    X(NO_FSYNC, "no-fsync", "a server renames a cut's file that it has not synced")                \
    X(NO_FOLDER_SYNC, "no-folder-sync", "a server does not sync the name of a cut's file")         \
    X(PRUNE_ALL, "prune-all", "a server prunes the cut that was just recorded")                    \
    X(SAME_BOOT, "same-boot", "a server that lost its memory says the old boot")                   \
    X(BOOT_AGAIN, "boot-again", "a server whose directory was lost counts its boots from 1 again") \
    X(TERM_AGAIN, "term-again", "a coordinator whose store is from a backup takes a term again")   \
    X(GRANT_EARLY, "grant-early", "a ticket is granted for the version to come")                   \
    X(COMPLETE_LATE, "complete-late", "a complete of an earlier step counts for the open one")     \
    X(COMPLETE_EARLY, "complete-early", "a worker calls a ticket complete when it is computed")    \
    X(STALE_WEIGHTS, "stale-weights", "a worker computes before a chunk's weights are in place")   \
    X(LOST_IS_ACKED, "lost-is-acked", "a worker takes pushes on a broken stream for counted")      \
    X(LOSE_REPORT, "lose-report", "a server does not report again after its link broke")           \
    X(ACK_EARLY, "ack-early", "P12: a server acknowledges what its journal may lose")              \
    X(STORE_UNFENCED, "store-unfenced",                                                            \
      "P7: the store takes writes of a coordinator whose term is over")

#define MUTATION_ENUM(name, option, text) MUTATE_##name,
enum mutation { MUTATIONS(MUTATION_ENUM) MUTATION_COUNT };
#undef MUTATION_ENUM

const char *mutation_name(enum mutation mutation);
const char *mutation_text(enum mutation mutation);
/* MUTATION_COUNT: there is none of that name. */
enum mutation mutation_find(const char *name);

struct sim;
struct sim_thread;
struct sim_server;
struct shard_effect;
struct shard_effects;
struct push;
struct truth;
struct pull;
struct commit;
struct complete_request;
struct acquire_reply;
struct shard_statistics;

/* Each does nothing unless its mutation was asked for. Calls of a shard: */
void mutate_push(struct sim *sim, struct sim_thread *thread, struct push *push,
                 struct truth *truth);
void mutate_pull(struct sim *sim, struct sim_thread *thread, struct pull *pull);
void mutate_commit(struct sim *sim, struct sim_thread *thread, struct commit *commit);
/* A shard's effects, after a push, a pull, a piece of work. */
/* False: the push is not answered. */
bool mutate_pushed(struct sim *sim, struct sim_thread *thread,
                   const struct shard_statistics *before);
void mutate_served(struct sim *sim, struct shard_effect *answer, uint64_t asked_version);
void mutate_worked(struct sim *sim, struct shard_effects *effects);
/* A server's files. */
void mutate_snapshot(const struct sim *sim, struct sim_server *server,
                     const struct shard_effect *effect);
void mutate_pruned(const struct sim *sim, const char *checkpoint_dir,
                   struct checkpoint_name recorded);
/* The coordinator's calls and answers. */
void mutate_complete(struct sim *sim, struct complete_request *complete);
void mutate_reply(struct sim *sim, struct acquire_reply *reply);

#endif
