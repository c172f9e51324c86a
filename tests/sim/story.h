/* Stories: a run of the simulator whose plan is written down, told event by event as sentences
 * (tests/sim/stories/). `sim --story FILE` prints the file anew: its first line and its plan as
 * they are, then what happens. tests/sim/suite compares.
 *
 * A story has nothing random: messages take one time, calls are never lost, and each choice that a
 * seed makes is the middle one (sim_below()). Sentences name workers, servers and coordinators, and
 * count steps, slots and generations; they have no times, addresses or member numbers, so that a
 * text changes only when the protocol does. The events that are told are those of the cores and of
 * the messages between them (watch.c, watch_control.c, sim_store.c).
 *
 * A plan's lines are `key: value`, indented: servers, workers, stages, steps, slots; `checkpoint
 * every` (steps); `consistency: async` (with a journal); `second attempt after` (percent of the
 * usual time); `slow` (a worker and how many times longer it takes); `told from` (the first
 * sentence that is told); `when` (a sentence, once told …) and `then` (… what is done, in order). */
#ifndef ROOST_TESTS_SIM_STORY_H
#define ROOST_TESTS_SIM_STORY_H

#include "tests/sim/network.h"
#include "tests/sim/scenario.h"

struct sim;
struct story;

/* NULL: the file cannot be read, or its plan is none; standard error has the reason. */
struct story *story_read(const char *path);
void story_free(struct story *story);
void story_scenario(const struct story *story, struct scenario *ret_scenario);
/* The file as it should be, on standard output. False: something that the plan waits for was never
 * told. */
bool story_print(const struct story *story);

/* Each of these does nothing when the seed is no story. */
void story_tell(struct sim *sim, const char *format, ...) PRINTF_LIKE(2, 3);
/* Unless it was told before, since the newest chapter began: a coordinator or a generation. */
void story_tell_once(struct sim *sim, const char *format, ...) PRINTF_LIKE(2, 3);
void story_chapter(struct sim *sim);
void story_over(struct sim *sim);
/* What the plan does after the sentences told so far; somebody may be dead afterwards. */
void story_act(struct sim *sim);
void story_event(struct sim *sim, const struct event *event);
/* A line of a coordinator's log, as a sentence if it is one of those that are told. */
void story_log(struct sim *sim, const char *teller, const char *line);

/* How long the worker computes a slot; whether what it computes is wrong from now on. */
uint64_t story_compute_us(const struct sim *sim, uint32_t worker);
bool story_is_wrong(const struct sim *sim, uint32_t worker);

#endif
