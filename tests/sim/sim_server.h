/* A server's process around its shard cores, one a thread, and its disk. Threads take what comes at
 * the same moment, in any order, and work each in its own time. */
#ifndef ROOST_TESTS_SIM_SIM_SERVER_H
#define ROOST_TESTS_SIM_SIM_SERVER_H

#include "server/member/holdings.h"
#include "server/shard/shard.h"
#include "tests/sim/disk.h"
#include "tests/sim/network.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_writer.h"

enum { SIM_WRITES_MAX = 32, SIM_WINDOW_WORDS = 4, SIM_GIVE_UPS_MAX = 64 };

/* What the ledger knows of a shard. */
struct server_ledger {
    uint64_t generation;
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

struct sim_thread {
    uint32_t index, number; /* of the server, and within it */
    struct shard *shard;    /* NULL in all: nothing prepared */
    uint32_t chunk_count;
    struct shard_chunk *chunks;
    struct shard_effects effects;
    uint32_t parked; /* pulls that wait in the shard */
    bool work_armed;
    uint64_t committed; /* versions */
    unsigned failures;  /* of transfers, in a row */
    struct server_ledger ledger;
};

/* async, logged: a push whose gradients are not on disk yet. */
struct deferred {
    uint64_t stream;
    struct push_ack ack;
    uint64_t after[SIM_THREADS_MAX]; /* so many are taken in each thread */
    uint64_t ticket;
    uint32_t count; /* chunks that have it then */
    uint32_t *chunks;
};

struct sim_server {
    uint32_t index;
    uint64_t boot;
    bool there; /* its machine is: up, or up again soon */
    bool up;
    struct process process;
    uint64_t link; /* stream to the coordinator; 0: none */
    uint64_t term; /* the highest seen */
    uint32_t thread_count;
    struct sim_thread threads[SIM_THREADS_MAX];
    uint64_t committed; /* versions, of all threads */
    bool spoilt;        /* the push that is being handled */
    bool ending;        /* told to (SIGTERM): it drains first */
    uint32_t give_ups;  /* so often more an operator asks to go on without it */
    bool drains;        /* an operator waits until it has given its chunks away */

    struct server_report manifest; /* the newest of this shard; kind 0: none */
    struct holdings answer;        /* to a new coordinator */
    struct disk disk;
    /* Chunks on their way to the disk, oldest first. */
    struct cut_name finishing; /* its file is whole and not durable yet; generation 0: none's */
    uint32_t writing_count;
    struct writing {
        struct disk_chunk file;
        struct counted *copy;
        uint32_t thread;
    } writing[SIM_WRITES_MAX];
    struct cut_name recorded[DISK_CUTS_MAX]; /* newest last */
    uint32_t recorded_count;

    /* async: */
    uint32_t map_index;
    struct sim_writer writer;
    struct applied taken; /* what the chunks began with; words NULL: it has none */
    uint64_t taken_words[SIM_WINDOW_WORDS], taken_said[SIM_WINDOW_WORDS];
    uint32_t deferred_count, deferred_capacity;
    struct deferred *deferred;
};

void sim_server_init(struct sim *sim, uint32_t index);
void sim_server_release(struct sim_server *server);

void sim_server_start(struct sim *sim, struct sim_server *server);
void sim_server_crash(struct sim *sim, struct sim_server *server);
/* SIGTERM: it ends when its chunks are elsewhere, or when it has waited long enough. */
void sim_server_terminate(struct sim *sim, struct sim_server *server);
/* An operator asks the coordinator, and again until it is done or refused. */
void sim_server_ask_drain(struct sim *sim, struct sim_server *server);
void sim_server_ask_give_up(struct sim *sim, struct sim_server *server);
/* The faults are over: there are as many servers as a run needs to begin. */
void sim_servers_suffice(struct sim *sim);
/* The next piece of its work comes soon. */
void sim_server_work_later(struct sim *sim, const struct sim_server *server,
                           struct sim_thread *thread);
/* What the shard's last call asked for, its invariants, and, with `more`, its next piece of work.
 */
void sim_server_carry_out(struct sim *sim, struct sim_server *server, struct sim_thread *thread,
                          bool more);
/* Its open steps may be complete as they are. */
void sim_server_report_step(struct sim *sim, struct sim_server *server);
/* Ends what it holds, in good order. */
void sim_server_close(struct sim *sim, struct sim_server *server);
bool sim_server_holds(const struct sim_server *server); /* something is prepared */
struct sim_thread *sim_server_thread(struct sim_server *server, uint32_t chunk);
/* So many of the thread's gradients are on disk. */
void sim_server_logged(struct sim *sim, struct sim_server *server, struct sim_thread *thread,
                       uint64_t durable);
void sim_server_event(struct sim *sim, struct event *event);

void sim_server_command(struct sim *sim, struct stream *stream, const struct message *message);
void sim_server_link_lost(struct sim *sim, struct stream *stream);

#endif
