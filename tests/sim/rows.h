/* What a run that is over has left for people, in the coordinator's directory: each step's row once
 * and in order, and for TensorBoard all numbers of a step (server/disk/record.h). Invariant 13. */
#ifndef ROOST_TESTS_SIM_ROWS_H
#define ROOST_TESTS_SIM_ROWS_H

struct sim;

void rows_check(struct sim *sim);

#endif
