/* A server's process (sim_daemon.h): when it starts, dies and comes back, and what an operator asks
 * of the coordinator about it. */
#ifndef ROOST_TESTS_SIM_SIM_SERVER_H
#define ROOST_TESTS_SIM_SIM_SERVER_H

#include "server/coordinator/coordinator.h"
#include "server/member/holdings.h"
#include "server/shard/shard.h"
#include "tests/sim/journals.h"
#include "tests/sim/life.h"
#include "tests/sim/network.h"
#include "tests/sim/scenario.h"

enum { SIM_WINDOW_WORDS = 4, SIM_GIVE_UPS_MAX = 64 };

/* The ledger's record of a shard. */
struct server_ledger {
    uint64_t generation, boot;
    bool left_out;    /* a coordinator went on in this generation without it: ledger_left_out() */
    uint64_t start;   /* the version it began with */
    uint64_t version; /* readable in all chunks */
    uint64_t decided; /* steps */
    /* Of the open steps, from `decided` on; step t's at t % (delay + 1). */
    bool reduced[SIM_DELAY_MAX + 1]; /* was said */
    uint64_t *counted;               /* slots, a bit each; by piece */
    uint32_t arrived_count;
    uint32_t arrived[TREE_LEVEL_MAX]; /* slots of it in the order of arrival */
};

/* A shard thread, seen from outside (watch.c). */
struct sim_thread {
    uint32_t index, number; /* of the server, and within it */
    struct shard *shard;    /* NULL: it has none */
    uint32_t chunk_count;   /* whose sums of the next step it counts */
    struct shard_chunk *chunks;
    const struct shard_effects *effects; /* of the shard's newest call */
    uint32_t parked;                     /* pulls that wait in the shard */
    /* async: it began when its chunks had begun in a newer generation: the command was under way for
     * long, or a server that has restarted obeys the older of two coordinators, which the store
     * refuses (P7). What it does is lost. */
    bool is_late;
    /* async: so many gradients were taken when the newest cut was ordered, of that version */
    uint64_t before_cut, cut_version;
    struct server_ledger ledger;
};

struct shards;

struct sim_server {
    uint32_t index;
    uint64_t boot; /* of the newest start that has one */
    bool dir_lost; /* and with it what the next start's boot is */
    bool there;    /* its machine is: up, or up again soon */
    bool up;
    struct process process;
    struct life *life; /* NULL: down */
    /* Of that process, NULL: none yet. */
    void *link;
    struct shards *shards;
    const struct holdings *holdings;
    struct server_command newest; /* PREPARE; what it points to is gone */
    struct journals journals;     /* the same process */
    uint64_t term;                /* the highest that it has heard of */
    uint32_t thread_count;
    struct sim_thread threads[SIM_THREADS_MAX];
    bool loses_command;                  /* the next one that it has to answer */
    bool spoilt;                         /* the push that is being handled */
    bool ending;                         /* told to (SIGTERM): it drains first */
    uint32_t give_ups;                   /* so often more an operator asks to go on without it */
    bool drains;                         /* an operator waits until it has given its chunks away */
    uint64_t full_us;                    /* until then nothing more fits on its disk */
    struct message *command;             /* the newest that was sent to it, NULL: none, … */
    uint64_t command_boot, command_term; /* … to that boot, under that term */
    uint32_t map_index;
};

void sim_server_init(struct sim *sim, uint32_t index);
void sim_server_release(struct sim *sim, struct sim_server *server);

void sim_server_start(struct sim *sim, struct sim_server *server);
/* At once, in the middle of whatever it does. */
void sim_server_crash(struct sim *sim, struct sim_server *server);
/* SIGTERM: it ends when its chunks are elsewhere, or when it has waited long enough. */
void sim_server_terminate(struct sim *sim, struct sim_server *server);
/* It has run to its end. */
void sim_server_ended(struct sim *sim, struct sim_server *server);
/* An operator asks the coordinator, and again until it is done or refused. */
void sim_server_ask_drain(struct sim *sim, struct sim_server *server);
void sim_server_ask_give_up(struct sim *sim, struct sim_server *server);
/* The faults are over: there are as many servers as a run needs to begin. */
void sim_servers_suffice(struct sim *sim);
/* The same, when the faults are over, in an event of its own. */
void sim_servers_suffice_soon(struct sim *sim);
/* Its newest stream to a coordinator that is open; NULL: none. */
struct stream *sim_server_link(const struct sim *sim, const struct sim_server *server);

#endif
