/* Faults: what goes wrong, and to which process. */
#ifndef ROOST_TESTS_SIM_FAULTS_H
#define ROOST_TESTS_SIM_FAULTS_H

#include "tests/sim/process.h"
#include "tests/sim/scenario.h"

struct sim;

enum { FAULTS_PARTITIONS_MAX = 8 };

/* Moments at which a process dies that others wait for. A fault sets a trap; the event that it
 * waits for springs it. */
enum trap {
    TRAP_NONE,
    TRAP_PUSH,    /* a worker has sent one of its pushes: it dies */
    TRAP_ORPHAN,  /* a worker sends a push of several slots: it loses its lease, the push is late */
    TRAP_REDUCED, /* a server has reported that a step is reduced: its link breaks */
    TRAP_LOG,     /* a server has gradients for its journal: it dies, perhaps while it writes */
    TRAP_DECIDE,  /* the coordinator has sent a decision to one server: it dies */
    TRAP_COMMIT,  /* a server has taken a decision, and not yet applied it: it dies */
    TRAP_WRITE,   /* a server has written a part of a cut: it dies */
    TRAP_PARK,    /* a pull is parked: another server dies, or the coordinator */
    TRAP_TRANSFER, /* a chunk is on its way: its old or its new owner dies */
    TRAP_VALUE,    /* a worker has given a value to its neighbours: it dies */
    TRAP_PART,     /* a worker has given a part to the others of its place: it dies */
    TRAP_DONE,     /* a worker's place is complete, the lease is not: it dies */
    TRAP_COUNT
};

/* Nothing from that place, nothing to it, or neither, arrives before `until_us`. */
struct partition {
    struct machine place;
    bool from, to;
    bool pair; /* between it and `other` alone */
    struct machine other;
    uint64_t until_us;
};

/* Of the next writes so many find room, and then so many none. */
struct full_writes {
    uint32_t well, full;
};

struct faults {
    enum trap trap;
    uint32_t partition_count;
    struct partition partitions[FAULTS_PARTITIONS_MAX];
    uint64_t store_full_us; /* the coordinator's disk is full until then … */
    uint64_t store_gone_us; /* … and its store is not there at all */
    uint32_t store_refuses; /* so many of the next rewinds and fingerprints, whenever they come,
                               find it full */
    /* By machine, the coordinator's last: the how-manieth sync from now on fails; 0: none. */
    uint32_t sync_fails[SIM_SERVERS_MAX + 1];
    struct full_writes full_writes[SIM_SERVERS_MAX + 1]; /* by machine as well */
};

void faults_plan(struct sim *sim);
void faults_inject(struct sim *sim, enum fault_kind kind);
void faults_end(struct sim *sim); /* all processes are well again */

/* The next write of that machine, or to the store, finds no room. */
bool faults_full(const struct sim *sim, uint32_t machine);
/* This one does. */
bool faults_write(struct sim *sim, uint32_t machine);

/* The trap's moment has come, for the worker, server or coordinator of that index. */
void faults_spring(struct sim *sim, enum trap trap, uint32_t index);
/* The moment before which nothing from one to the other arrives; 0: nothing holds it back. */
uint64_t faults_held_us(const struct sim *sim, struct machine from, struct machine to);

#endif
