/* Servers of the release before, whose wire version is 2: one start of a server in four. What they
 * do not know is not sent to them. Invariant 24. */
#ifndef ROOST_TESTS_SIM_OLDER_H
#define ROOST_TESTS_SIM_OLDER_H

#include "proto/wire.h"

struct sim;

/* What a server gets that began with that boot. */
void older_pushed(struct sim *sim, uint64_t boot, const struct push *push);

#endif
