/* A whole cluster in one process, from one seed. No threads, sockets, sleeps; every message goes
 * through proto/wire.c, so the bytes are real.
 *
 * Daemons run production's server_run() and workers its worker_run(), from the settings to the end:
 * their own main loops, threads, writers, links, methods and calls, over fakes of common/thread.h,
 * common/signals.h, common/rpc/rpc.h, worker/notice_watch.h, worker/executor.h, the clock, the
 * system's files and the store, which the linker finds before the libraries. Threads are fibers.
 * Each wait, each piece of a shard's work, each unit of a ticket and each disk operation takes
 * time, and is a moment at which the process can die.
 *
 * Files: main (seeds, jobs), scenario (what a seed is), sim (the loop), queue (what happens next),
 * network, process (clocks, stop and resume), faults (what goes wrong), pairs (rare things
 * together), story (a plan that is written down, told as sentences); life (a process that runs
 * production's loop) with fiber, threads, rpc, disk, sim_store, sim_notify, sim_notice, sim_device
 * and sim_place, the fakes; sim_daemon, sim_server, sim_coordinator, of which there may be two at
 * once, and sim_worker; watch, watch_control and watch_worker, between the processes and their
 * cores, watch_places, between workers, watch_agent, watch_parts, watch_run and watch_seats, between
 * a core's parts; stray (messages that came astray), tables, timers and rows (what shows late, or
 * only to people); forge (a stranger among the workers), older (servers of the release before);
 * compute (gradients), expected (what must come out), ledger, order and history (the invariants),
 * mutate (bugs planted to see that they are found).
 *
 * Invariants, looked at after every event that could break them:
 *   1 each name (step, slot, chunk, part) is counted once, and none is missing in a reduced sum; as
 *     a sample is a function of step and slot, it is in an epoch once;
 *   2 nothing is readable before its commit, and what is read is the reference's version;
 *   3 a ticket is granted only when its version is committed, which is exactly the run's delay
 *     behind its step, the same one when it is asked for again, and computed on exactly these
 *     weights;
 *   4 versions grow by one within a generation, also when another coordinator goes on in it, which
 *     does so with the newest decision that anybody heard of (P7); generations, boots and terms
 *     never go back, and a generation is stored before it is prepared;
 *   5 no push and no pull waits for ever on an open stream, and none is parked for who is gone;
 *   6 at most WIRE_CREDITS pushes, and as many pulls that are not parked, are unanswered;
 *   7 the cores' own numbered invariants (their *_check());
 *   8 once the faults are over the run ends within a bounded time; nobody's loop spins; no worker
 *     stops with an error;
 *   9 a ticket is complete only when every server has counted all of it;
 *  10 a recorded cut is durable on the disk of every server, as are its steps on the
 *     coordinator's, newer than the one before, and found again, whole;
 *  11 what belongs to another generation, boot or term is not counted, served or acted on;
 *  12 the lowest missing slot is always admitted: BUSY never stops the step;
 *  13 each step's metrics, each validation and the final state are the reference's, bit for bit;
 *  14 ssp: a slot is computed on one version, within the bound, and that is what is logged;
 *  15 a chunk has one owner a step: no other counts or reports it, and it arrives where its commit
 *     has come; a recorded cut has each chunk in one file; the map's number never goes back, and
 *     one number is one map; a server that leaves is in no recorded cut that is the newest (P11);
 *  16 async: a chunk takes a ticket once, computed on what its attempt was given, within the bound;
 *     what was acknowledged with `logged`, and what is in the cut, is not lost; journals that a
 *     recorded cut covers are removed before the next cut that is ordered (journals.h);
 *  17 nobody acts for a member without its secret, nor for one that has ended; nothing is pushed or
 *     completed that was not granted so; whose key is not known yet waits (forge.h);
 *  18 who was convicted is never again taken as a member, whoever the coordinator is;
 *  19 a run that is to go back for a worker that was wrong goes on in no other way, whoever the
 *     coordinator is;
 *  20 a stop that was acknowledged is not forgotten, whoever the coordinator is;
 *  21 a second start of a server's name does not take the place of one that lives (twin.h);
 *  22 what places of a mesh hand each other is what its name says: whoever computes it has the same
 *     bits, and nobody takes others (handed.h);
 *  23 who shares a lease keeps what it produced until the lease is over, refuses nothing before it
 *     has heard, names nobody that answers, and does not wait for members of a younger lease; who
 *     says other bits than another member of its place is named;
 *  24 a server of the release before gets no push that it does not know (older.h).
 */
#ifndef ROOST_TESTS_SIM_SIM_H
#define ROOST_TESTS_SIM_SIM_H

#include "tests/sim/compute.h"
#include "tests/sim/damage.h"
#include "tests/sim/disk.h"
#include "tests/sim/expected.h"
#include "tests/sim/faults.h"
#include "tests/sim/handed.h"
#include "tests/sim/history.h"
#include "tests/sim/journals.h"
#include "tests/sim/ledger.h"
#include "tests/sim/lent.h"
#include "tests/sim/life.h"
#include "tests/sim/mutate.h"
#include "tests/sim/network.h"
#include "tests/sim/order.h"
#include "tests/sim/pairs.h"
#include "tests/sim/process.h"
#include "tests/sim/queue.h"
#include "tests/sim/rows.h"
#include "tests/sim/rpc.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_daemon.h"
#include "tests/sim/sim_server.h"
#include "tests/sim/sim_worker.h"
#include "tests/sim/story.h"
#include "tests/sim/stray.h"
#include "tests/sim/tables.h"
#include "tests/sim/twin.h"
#include "tests/sim/watch.h"

/* The results of seeds, in memory that the supervising process sees. */
struct progress {
    uint64_t seed, event;  /* where it is */
    uint64_t seeds, found; /* finished; violations */
    uint64_t shared;       /* seeds with leases that several workers share */
    uint64_t events;
    uint64_t faults[FAULT_KIND_COUNT];
    uint64_t met[STATE_COUNT][MEETING_COUNT]; /* in so many seeds */
    uint64_t duplicates, wrong_bits, busy, rewinds, adopted, speculative, audits, skipped, moved,
        left;
    uint64_t too_small;   /* ends of workers that a stage did not fit */
    uint64_t calm_us_max; /* the longest from the last fault to the end, in fake time */
};

struct sim_options {
    enum mutation mutation;
    bool trace;
    const struct kernels *kernels;
    struct progress *progress;
    struct story *story; /* NULL: the seed decides */
};

struct sim {
    struct scenario scenario;
    struct sim_options options;
    struct rand_state random, keys;
    struct compute compute;
    struct expected expected; /* when the spec says what steps are computed on */
    struct order order;
    struct history history;
    struct lent lent;
    struct queue queue;
    struct network network;
    struct rpc_calls calls;
    struct handed handed;
    struct disks disks;
    struct watch watch;
    struct stray stray;
    struct life *dead;        /* to be buried */
    uint64_t waits, requests; /* of threads, of processes; ever */
    struct sim_ledger ledger;
    struct faults faults;
    struct pairs pairs;
    struct damage damage;
    struct twin twin;
    struct coordinator_run run;
    struct map_parameter *parameters; /* of the run */
    struct sim_store store;
    uint32_t office; /* the place of the coordinator that holds it */
    struct sim_coordinator coordinators[SIM_COORDINATORS];
    struct sim_server servers[SIM_SERVERS_MAX];
    struct sim_worker workers[SIM_WORKERS_MAX];
    uint64_t now_us;
    uint64_t events;
    bool calm;                       /* the faults are over … */
    uint64_t calm_us;                /* … since then */
    bool over;                       /* the run is */
    bool spoilt;                     /* a push was computed wrongly */
    bool damaged;                    /* a value between workers was, on its way */
    bool convicted[SIM_WORKERS_MAX]; /* a coordinator in office said so */
    /* Once a worker does not push what it completes: this server takes nothing of that. */
    struct lie {
        bool told;
        uint32_t worker;
        uint64_t generation, step;
        struct node node;
    } lie;
    /* Once a member of a place of several says other bits of what all of them have (invariant 23). */
    struct slip {
        bool made;
        uint32_t worker;
        uint64_t member, attempt, step;
        struct node node;
        struct place place;
    } slip;
    /* This worker, from 1, keeps what it is granted until nobody waits for it, while its heartbeats
     * go on, from its start to the end of the run (invariant 8). 0: none does. */
    uint32_t hoarder;
    struct buf scratch;
};

/* Runs one seed to its end. */
void sim_run(uint64_t seed, const struct sim_options *options);

uint64_t sim_below(struct sim *sim, uint64_t limit); /* at random */
/* Whether that is what the worker lied about. */
bool sim_lied(const struct sim *sim, uint64_t generation, uint64_t step, struct node node);
/* Carries the event out, or keeps it while its process is stopped. */
void sim_dispatch(struct sim *sim, struct event *event);
uint64_t sim_restart_us(struct sim *sim); /* how long a daemon is away: a moment, or longer */
/* The message that was just encoded into the scratch buffer; `err` is the encoding's result. */
struct message *sim_scratch_message(struct sim *sim, enum err err);
void sim_fault(struct sim *sim, enum fault_kind kind); /* one more was injected */
void sim_trace(struct sim *sim, const char *format, ...) PRINTF_LIKE(2, 3);
/* The invariant of that number is broken: prints seed, event and the sentence, and ends the
 * process. */
__attribute__((noreturn)) void sim_violated(struct sim *sim, unsigned invariant, const char *format,
                                            ...) PRINTF_LIKE(3, 4);

#endif
