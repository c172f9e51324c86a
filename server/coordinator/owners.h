/* Which server owns which chunk: the run's map and its number, which rises whenever map or servers
 * change. Internal to the coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_OWNERS_H
#define ROOST_SERVER_COORDINATOR_OWNERS_H

#include "server/coordinator/run.h"

/* Makes that the map from now on, and releases the one before. */
void owners_take(struct run *run, struct map *take_map);
/* Map or servers have changed: gives the map a new number. */
void owners_count_change(struct run *run);
/* Gives the map a number above every map of this generation, also above those that an earlier
 * coordinator than `term`'s may still make (P11: map numbers never go back). */
void owners_adopt(struct run *run, uint64_t term);

#endif
