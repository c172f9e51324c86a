/* Units' work as graphs: what a place of the program gave the device once is given again at once.
 *
 * A launch costs the host some microseconds, which small units notice. A place is an act on a
 * microbatch with the arrays that it always has there: the first time its work is given directly
 * (products are planned then), the second time a graph is made of it, from then on the graph is
 * given. The bits are the same. Where there are no graphs (CPU), when the device refuses one and
 * beyond GRAPHS_MAX, which bounds the memory that a driver takes for them, work is given directly.
 *
 * Threads: the one that gives the table its work. */
#ifndef ROOST_WORKER_REPLAY_H
#define ROOST_WORKER_REPLAY_H

#include "common/err.h"
#include "worker/model/unit.h"

enum { REPLAY_GRAPHS_MAX = 512 };

/* What a place knows. */
struct replay_place {
    bool seen;
    struct kernels_graph *graph;
};

struct replay {
    const struct kernels *k; /* borrowed */
    struct replay_place *places;
    size_t places_count;
    uint32_t graphs_count;
    bool direct;  /* nothing is kept: the table has no graphs, or … */
    bool refused; /* … the device could not make one */
};

/* ERR_NOMEM. `direct`: without graphs in any case. */
enum err replay_init(struct replay *replay, const struct kernels *k, size_t places_count,
                     bool direct) MUST_USE;
void replay_release(struct replay *replay);

/* The unit's forward or backward at a place: `call` is the same there each time. */
void replay_run(struct replay *replay, size_t place,
                void (*operation)(const struct unit_call *call), const struct unit_call *call);

#endif
