/* The content of a seed: the run, the cluster, the network and the faults. Plain data, a function
 * of the seed alone. */
#ifndef ROOST_TESTS_SIM_SCENARIO_H
#define ROOST_TESTS_SIM_SCENARIO_H

#include "common/model/model.h"
#include "common/rand.h"
#include "common/settings/spec.h"
#include "server/coordinator/coordinator.h"
#include "server/shard/shard.h"

enum {
    SIM_SERVERS_MAX = 6,
    SIM_SERVERS_FIRST = 3, /* at most, at the start */
    SIM_WORKERS_MAX = 12,
    SIM_FAULTS_MAX = 64,
    SIM_MEETINGS_MAX = 4,
    SIM_STEPS_MAX = 8,
    SIM_SLOTS_MAX = 16,
    SIM_CHUNK_WEIGHTS_MAX = 1024,
    SIM_THREADS_MAX = 3,
    SIM_DELAY_MAX = 3,
    SIM_UNITS_MAX = 16,
    SIM_STAGES_MAX = 4,
};

#define SIM_FAULTS(X)                                                                              \
    X(KILL_WORKER, "workers killed")                                                               \
    X(ADD_WORKER, "workers added")                                                                 \
    X(STOP, "processes stopped and resumed")                                                       \
    X(JUMP_CLOCK, "clocks that jumped")                                                            \
    X(SLOW_WORKER, "workers slowed")                                                               \
    X(LEAVE_WORKER, "workers told to leave")                                                       \
    X(STORM, "storms of joins and losses")                                                         \
    X(HERD, "storms of joins")                                                                     \
    X(EXODUS, "storms of leaves")                                                                  \
    X(CULL, "losses of all workers but one")                                                       \
    X(ORPHAN, "leases lost while pushes are under way")                                            \
    X(BREAK_EXCHANGE, "exchange streams broken")                                                   \
    X(BREAK_MEMBER, "member streams broken")                                                       \
    X(BREAK_LINK, "server links broken")                                                           \
    X(CLOG, "streams clogged")                                                                     \
    X(CLOG_ALL, "clogs of all streams, released in random order")                                  \
    X(PARTITION, "one-way and other partitions")                                                   \
    X(DISK_FULL, "disks full for a while")                                                         \
    X(FULL_WRITE, "single writes that found a full disk")                                          \
    X(SYNC_FAILS, "syncs that failed")                                                             \
    X(STORE_GONE, "stores gone for a while")                                                       \
    X(CRASH_SERVER, "servers crashed")                                                             \
    X(LOSE_DIR, "servers crashed, their directories lost")                                         \
    X(ADD_SERVER, "servers added")                                                                 \
    X(GIVE_UP_SERVER, "servers crashed and given up")                                              \
    X(DRAIN_SERVER, "servers drained")                                                             \
    X(CRASH_COORDINATOR, "coordinators crashed")                                                   \
    X(SUCCESSOR, "second coordinators at once")                                                    \
    X(OLD_STORE, "coordinators crashed, their directories from a backup")                          \
    X(ASK_CUT, "cuts asked for")                                                                   \
    X(STOP_RUN, "runs stopped")                                                                    \
    X(DAMAGE_CUT, "newest checkpoints damaged")                                                    \
    X(REPEAT_NAME, "servers' names that came twice")                                               \
    X(LOSE_COMMAND, "commands lost in a server")                                                   \
    X(LOSE_CALL, "calls lost")                                                                     \
    X(REPEAT_CALL, "calls repeated")                                                               \
    X(LATE_MESSAGE, "messages very late")                                                          \
    X(OLD_COMMAND, "commands of an older boot or term delivered")                                  \
    X(BREAK_PEER, "streams between workers broken")                                                \
    X(PARTITION_PAIR, "partitions between two workers")                                            \
    X(DAMAGE_VALUE, "values between workers damaged")

#define SIM_FAULT_ENUM(name, text) FAULT_##name,
enum fault_kind { SIM_FAULTS(SIM_FAULT_ENUM) FAULT_KIND_COUNT };
#undef SIM_FAULT_ENUM

const char *fault_text(enum fault_kind kind);

/* States: each lasts for a while; the fault that causes it; its name in a table of 20 columns. */
#define SIM_STATES(X)                                                                              \
    X(ABSENT, FAULT_CRASH_COORDINATOR, "no coordinator")                                           \
    X(UNADOPTED, FAULT_CRASH_COORDINATOR, "run not adopted")                                       \
    X(TWO, FAULT_SUCCESSOR, "two coordinators")                                                    \
    X(GATHER, FAULT_CRASH_SERVER, "gathering servers")                                             \
    X(REWIND, FAULT_CRASH_SERVER, "rewinding")                                                     \
    X(LOST, FAULT_BREAK_LINK, "a server lost")                                                     \
    X(DRAIN, FAULT_DRAIN_SERVER, "a server drains")                                                \
    X(LEAVE, FAULT_DRAIN_SERVER, "a server may leave")                                             \
    X(MOVE, FAULT_ADD_SERVER, "chunks move")                                                       \
    X(SEAL, FAULT_ASK_CUT, "step partly reduced")                                                  \
    X(COMMIT, FAULT_BREAK_LINK, "commit under way")                                                \
    X(CUT, FAULT_ASK_CUT, "cut pending")                                                           \
    X(FULL, FAULT_DISK_FULL, "a disk full")                                                        \
    X(STOP, FAULT_STOP_RUN, "run stopping")                                                        \
    X(LAST, FAULT_ASK_CUT, "last cut")

#define SIM_STATE_ENUM(name, cause, text) STATE_##name,
enum state { SIM_STATES(SIM_STATE_ENUM) STATE_COUNT };
#undef SIM_STATE_ENUM

/* Events that may happen in a state: the fault that does it; its name at the head of a column. */
#define SIM_MEETING_EVENTS(X)                                                                      \
    X(DRAIN, FAULT_DRAIN_SERVER, "drain")                                                          \
    X(ADD, FAULT_ADD_SERVER, "start")                                                              \
    X(GIVE_UP, FAULT_GIVE_UP_SERVER, "give up")                                                    \
    X(CUT, FAULT_ASK_CUT, "ask cut")                                                               \
    X(STOP, FAULT_STOP_RUN, "stop")                                                                \
    X(CRASH, FAULT_CRASH_SERVER, "crash")                                                          \
    X(LOSE_DIR, FAULT_LOSE_DIR, "dir lost")                                                        \
    X(LINK, FAULT_BREAK_LINK, "break")                                                             \
    X(COORDINATOR, FAULT_CRASH_COORDINATOR, "c crash")                                             \
    X(SUCCESSOR, FAULT_SUCCESSOR, "c second")                                                      \
    X(OLD_STORE, FAULT_OLD_STORE, "c backup")                                                      \
    X(DAMAGE, FAULT_DAMAGE_CUT, "damage")                                                          \
    X(NAME, FAULT_REPEAT_NAME, "2nd name")

#define SIM_MEETING_ENUM(name, fault, text) MEETING_##name,
enum meeting_event { SIM_MEETING_EVENTS(SIM_MEETING_ENUM) MEETING_COUNT };
#undef SIM_MEETING_ENUM

/* When the run has come to the version, the state is brought about; when that begins, the event
 * follows soon (pairs.h). */
struct meeting {
    enum state state;
    enum meeting_event event;
    uint64_t version;
};

struct fault {
    enum fault_kind kind;
    uint64_t at_us;
};

enum scenario_model { SCENARIO_TOY, SCENARIO_MLP, SCENARIO_DEEP, SCENARIO_GPT };

struct scenario {
    uint64_t seed;
    struct spec spec; /* model, train, optimizer, checkpoint */
    enum scenario_model model;
    bool executor; /* real gradients; else made-up ones */
    uint64_t validation_samples;
    uint32_t bad_percent; /* steps with a gradient that is not finite */

    uint32_t servers; /* at the start */
    bool moving;      /* servers come and go often, in a longer run */
    bool headless;    /* coordinators come and go often, in a longer run; servers seldom */
    uint32_t threads; /* of each server */
    uint32_t workers; /* at the start */
    /* This worker, from 1, has too little memory for that stage (0: none has), and ends when it is to
     * compute there. */
    uint32_t small_worker, small_stage;
    uint64_t parameter_bytes_max;
    struct coordinator_settings office;
    /* Settings of every shard beside the spec's. */
    uint32_t ahead_max;
    uint32_t parked_member_bytes_max;
    uint32_t snapshot_copies;

    uint64_t delay_us; /* of a message, usually */
    uint32_t late_permille;
    uint64_t late_us_max;
    uint32_t lost_permille; /* of calls, either way */
    uint32_t repeat_permille;
    uint64_t compute_us; /* of a slot, usually */
    uint64_t apply_us;   /* of a chunk */
    uint64_t write_us;   /* of a chunk to the disk */

    uint64_t calm_us; /* faults happen before */
    uint32_t fault_count;
    struct fault faults[SIM_FAULTS_MAX];
    uint32_t meeting_count;
    struct meeting meetings[SIM_MEETINGS_MAX];
};

void scenario_init(struct scenario *scenario, uint64_t seed);

/* The model of a scenario. SCENARIO_TOY has what is rare in real ones of this size: parameters of
 * several chunks, one of two parts, one that is a mean. Release with model_release(). */
void scenario_model(const struct scenario *scenario, struct model *ret_model);

/* The run's settings for the coordinator. `ret_parameters` has model->parameters_count places. */
struct coordinator_run scenario_run(const struct scenario *scenario, const struct model *model,
                                    struct map_parameter *ret_parameters);
/* The settings of every shard but kernels, chunks and fences. */
struct shard_config scenario_shard(const struct scenario *scenario);

/* Whether the spec decides what each step is computed on, so that the run is known beforehand. */
bool scenario_is_foretold(const struct scenario *scenario);
/* Whether that step's gradient is not finite, and whose slot it is. */
bool scenario_bad(const struct scenario *scenario, uint64_t step, uint32_t *ret_slot);

/* Prints the seed's choices in one line. */
void scenario_print(const struct scenario *scenario);

#endif
