/* A worker's process: production's worker_run(), from its settings to its end, as a life (life.h).
 */
#ifndef ROOST_TESTS_SIM_SIM_WORKER_H
#define ROOST_TESTS_SIM_SIM_WORKER_H

#include "tests/sim/life.h"
#include "worker/agent.h"
#include "worker/agent_leases.h"
#include "worker/notice.h"

enum {
    SIM_LEASES_MAX = 64, /* that it was told of last */
    SIM_EARLY_MAX = 32,  /* wants that came before their lease, or after its generation */
};

/* Somebody asked for a value of a lease that the worker had not heard of, or of a generation that is
 * older than one it had heard of. */
struct early_want {
    const void *asker;
    uint64_t id;
    struct value_name name;
    bool old;
};

/* What the coordinator gave it. */
struct granted_seat {
    uint64_t member, attempt, try_number;
    bool begun; /* under that try */
};

/* A notice's, or an answer's. */
struct heard_places {
    uint64_t attempt, number;
};

struct sim_worker {
    uint32_t index;
    struct process process;
    struct life *life; /* NULL: down */
    bool leaving;      /* it was told to */
    uint64_t slowness; /* computing takes so many times longer */
    uint32_t lane;     /* that was newly told to compute; by lane: */
    struct ticket tickets[WIRE_LEASES_MAX];
    uint32_t encoding;   /* pushes that its encoder was given since it was drained */
    uint64_t waited_us;  /* its loop waited last then … */
    uint32_t waits;      /* … so often in a row */
    bool map_is_doubted; /* an answer said so, and it does not want the map yet */
    struct heartbeat {
        uint64_t stream, at_ms, clock_us, stops; /* its clock, and how often it was stopped */
        bool waited;                             /* it joins or leaves, and the loop waited since */
    } heartbeat;                                 /* the newest */
    /* In a mesh (watch_places.c). */
    const struct agent *agent; /* as its loop waited last; NULL: it has not yet */
    uint64_t reached;          /* the member that it last opened a stream to */
    uint32_t lease_count, seat_count, early_count;
    struct ticket leases[SIM_LEASES_MAX];
    struct granted_seat seats[SIM_LEASES_MAX];
    struct early_want early[SIM_EARLY_MAX];
    uint64_t generation; /* the newest that its outbox heard of */
    uint32_t heard_count;
    struct heard_places heard[AGENT_EARLY_MAX]; /* the newest */
    struct places older;                        /* of the newest notice */
    struct peer older_peers[WIRE_PLACES_MAX];
};

void sim_worker_init(struct sim *sim, uint32_t index);
void sim_worker_release(struct sim *sim, struct sim_worker *worker);

/* Unless it is up. */
void sim_worker_start(struct sim *sim, struct sim_worker *worker);
/* kill -9; `silent`: the machine is gone, and nobody is told. */
void sim_worker_kill(struct sim *sim, struct sim_worker *worker, bool silent);
/* It has run to its end. */
void sim_worker_ended(struct sim *sim, struct sim_worker *worker);
void sim_worker_jump(struct sim *sim, struct sim_worker *worker, uint64_t us); /* its clock */
/* By a signal or by its cloud's notice, perhaps twice. */
void sim_worker_leave(struct sim *sim, struct sim_worker *worker);

/* The cloud reports that to a process that watches for notices (sim_notice.c). */
void sim_notice_report(struct life *life, enum notice_verdict verdict);

#endif
