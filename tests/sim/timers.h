/* The timers of the coordinator's daemon: whoever sleeps until one of them sleeps no longer than until
 * the first (invariant 8), and each call that waits is in every table that finds it. A file of its
 * own: the daemon's events and the simulator's have one name. */
#ifndef ROOST_TESTS_SIM_TIMERS_H
#define ROOST_TESTS_SIM_TIMERS_H

struct control;

/* After an event: the rows of a run that is over are on the disk, unless that is full. */
void timers_check_rows(const struct control *control);
/* In the coordinator that runs (watch_control.c). */
void timers_violated(const char *what);

#endif
