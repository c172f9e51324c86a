/* A stack of its own to run a function on: the simulator's threads. One runs at a time, until it
 * gives the processor back; nothing is preempted, so a seed gives one order. */
#ifndef ROOST_TESTS_SIM_FIBER_H
#define ROOST_TESTS_SIM_FIBER_H

#include <stdbool.h>

struct fiber;

/* `run` begins at the first fiber_resume(). */
struct fiber *fiber_new(void (*run)(void *), void *argument);
/* Ended, or never begun. */
void fiber_free(struct fiber *fiber);
/* Goes on with it until it waits or ends. Not from a fiber. */
void fiber_resume(struct fiber *fiber);
/* Back to where fiber_resume() was called. In a fiber. */
void fiber_wait(void);
bool fiber_ended(const struct fiber *fiber);

#endif
