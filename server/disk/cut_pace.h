/* When the writer of a cut takes its time: while steps go on that its haste would make longer, and
 * the next cut is far. An operator or a leaving server waits for a cut at any other version than a
 * multiple of every_steps; such a cut does not take its time, nor does the run's last one. No I/O; time is
 * an argument. */
#ifndef ROOST_SERVER_DISK_CUT_PACE_H
#define ROOST_SERVER_DISK_CUT_PACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* One thread notes that steps end, another one asks whether to rest, others say that they wait. */
struct cut_pace {
    atomic_uint_fast64_t
        step_ns; /* of the two newest the shorter: one may have waited for workers; 0:
                                     not known yet */
    atomic_uint_fast64_t ended_ns;
    uint64_t newest_ns;            /* between the ends of the two newest */
    atomic_uint_fast64_t waits_ns; /* when a step waited the last time; 0: none did */
};

struct cut_progress {
    uint64_t version, steps; /* the run's */
    uint64_t every_steps;    /* 0: all are asked for */
    uint64_t begun_ns;
    uint64_t bytes, bytes_all;
};

void cut_pace_step_ended(struct cut_pace *pace, uint64_t now_ns);
/* A step waits for what the writer holds: for as long as a step takes it does not take its time. Any
 * thread. */
void cut_pace_step_waits(struct cut_pace *pace, uint64_t now_ns);
/* Nobody waits for the cut, steps go on, and it would be over in three quarters of the time until
 * the next one. */
bool cut_pace_rests(const struct cut_pace *pace, const struct cut_progress *progress,
                    uint64_t now_ns);

#endif
