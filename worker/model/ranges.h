/* Ranges of a microbatch's predictions (common/model/pieces.h): which of them a member has of a ranged
 * array, and how it gets the others. Who is alone has all, and nothing is exchanged. */
#ifndef ROOST_WORKER_MODEL_RANGES_H
#define ROOST_WORKER_MODEL_RANGES_H

#include "worker/model/act_arrays.h"

/* Members among whom a ranged array is divided. */
uint32_t ranges_members(const struct act_arrays *act);
/* Rows of the array that are here. */
int64_t ranges_rows(const struct act_arrays *act, uint8_t array);

/* Where an operation makes or finds all predictions of the array: there, or, when it is divided, in
 * the operation's scratch memory, in its first ranges_all_bytes(). */
element *ranges_all(const struct act_arrays *act, uint8_t array);
uint64_t ranges_all_bytes(const struct act_arrays *act, uint8_t array);

/* Where the member's ranges begin in such an array (N, width). */
element *ranges_own(const struct act_arrays *act, const element *all, int64_t width);
/* They are set to own (N / members, width). */
void ranges_put(const struct act_arrays *act, element *all, const element *own, int64_t width);
/* The other members' ranges come. */
void ranges_gather(const struct act_arrays *act, element *all, int64_t width);

#endif
