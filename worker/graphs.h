/* Units' work as graphs: the work that one act gave the device once is given again as a whole.
 *
 * A launch costs the host some microseconds, which small units notice. An entry is an act on a
 * microbatch with the arrays that it always has: the first time its work is given directly
 * (products are planned then), the second time a graph is made of it, from then on the graph is
 * given. The bits are the same. Work is given directly where there are no graphs (CPU), when the
 * device refuses one, and beyond GRAPHS_MAX, which bounds the memory that a driver takes for them.
 *
 * Threads: the one that gives the table its work. */
#ifndef ROOST_WORKER_GRAPHS_H
#define ROOST_WORKER_GRAPHS_H

#include "common/err.h"
#include "worker/model/unit.h"

enum { GRAPHS_MAX = 512 };

struct graphs_entry {
    bool seen;
    struct kernels_graph *graph;
};

struct graphs {
    const struct kernels *k; /* borrowed */
    struct graphs_entry *entries;
    size_t entries_count;
    uint32_t made_count;
    bool direct;  /* nothing is kept: the table has no graphs, or … */
    bool refused; /* … the device could not make one */
};

/* ERR_NOMEM. `direct`: without graphs in any case. */
enum err graphs_init(struct graphs *graphs, const struct kernels *k, size_t entries_count,
                     bool direct) MUST_USE;
void graphs_release(struct graphs *graphs);

/* The unit's forward or backward: `call` is the same for an entry each time. */
void graphs_run(struct graphs *graphs, size_t entry,
                void (*operation)(const struct unit_call *call), const struct unit_call *call);

#endif
