/* Which server owns which chunk: the run's map and its number, which rises whenever map or servers
 * change. Internal to the coordinator. */
#ifndef ROOST_SERVER_COORDINATOR_OWNERS_H
#define ROOST_SERVER_COORDINATOR_OWNERS_H

#include "server/coordinator/run.h"

/* That is the map from now on; the last one is released. */
void owners_take(struct run *run, struct map *take_map);
/* Map or servers are other ones than workers know. */
void owners_count_change(struct run *run);
/* Above every map of this generation, also those that a coordinator before `term` may still make. */
void owners_adopt(struct run *run, uint64_t term);

#endif
