/* The parts that every simulated process has: a monotonic clock of its own, a signal that stops it,
 * and one that lets it go on. While a process is stopped, the others go on: its events wait, in
 * order, until it is resumed or killed.
 *
 * A clock begins anywhere and may jump ahead (a machine that was suspended), never back. There is
 * no other clock here: the cores must not read one, and must not compare moments of two
 * machines. */
#ifndef ROOST_TESTS_SIM_PROCESS_H
#define ROOST_TESTS_SIM_PROCESS_H

#include "tests/sim/queue.h"

struct sim;
struct life;

/* Where a process runs; one at a time. */
enum machine_kind { MACHINE_WORKER, MACHINE_SERVER, MACHINE_COORDINATOR };

struct machine {
    enum machine_kind kind;
    uint32_t index;
};

struct process {
    uint64_t clock_us; /* its clock is ahead of the simulator's by this */
    bool stopped;
    uint64_t stops; /* serial: which stop a resume belongs to */
    size_t backlog_count, backlog_capacity;
    struct event *backlog;
};

/* Its clock shows some time up to a month. */
void process_init(struct sim *sim, struct process *process);
void process_release(struct process *process);

uint64_t process_now_ms(const struct sim *sim, const struct process *process);

/* SIGSTOP until then. False: it is stopped already. */
bool process_stop(struct sim *sim, struct machine place, uint64_t until_us);
void process_resume(struct sim *sim, const struct event *event);
void process_kill(struct process *process); /* its waiting events are dropped */
/* Keeps the event when the process that it happens to is stopped. */
bool process_keeps(struct sim *sim, struct event *event);

struct process *process_of(struct sim *sim, struct machine place);
/* The life of production's shell at that place; NULL: there is none. */
struct life *process_life(struct sim *sim, struct machine place);
void process_print(struct machine place, char *ret_name, size_t bytes); /* "w3", "s0", "c1" */

#endif
