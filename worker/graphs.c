#include "worker/graphs.h"

#include <stdlib.h>

enum err graphs_init(struct graphs *graphs, const struct kernels *k, size_t entries_count,
                     bool direct)
{
    *graphs = (struct graphs){.k = k, .direct = direct || k->graph_new == NULL};
    if (graphs->direct)
        return ERR_OK;
    graphs->entries = calloc(entries_count, sizeof *graphs->entries);
    graphs->entries_count = entries_count;
    return graphs->entries != NULL ? ERR_OK : ERR_NOMEM;
}

void graphs_release(struct graphs *graphs)
{
    for (size_t i = 0; graphs->entries != NULL && i < graphs->entries_count; i++)
        graphs->k->graph_free(graphs->k, graphs->entries[i].graph);
    free(graphs->entries);
    *graphs = (struct graphs){0};
}

struct graph_work {
    void (*operation)(const struct unit_call *call);
    const struct unit_call *call;
};

static void give_work(void *context)
{
    const struct graph_work *work = context;
    work->operation(work->call);
}

static void make_graph(struct graphs *graphs, struct graphs_entry *entry, struct graph_work *work)
{
    if (graphs->made_count == GRAPHS_MAX)
        return;
    entry->graph = graphs->k->graph_new(graphs->k, give_work, work);
    if (entry->graph != NULL)
        graphs->made_count++;
    else
        graphs->direct = graphs->refused = true;
}

void graphs_run(struct graphs *graphs, size_t number,
                void (*operation)(const struct unit_call *call), const struct unit_call *call)
{
    struct graph_work work = {operation, call};
    struct graphs_entry *entry = graphs->direct ? NULL : &graphs->entries[number];
    if (entry != NULL && entry->seen && entry->graph == NULL)
        make_graph(graphs, entry, &work);
    if (entry != NULL && entry->graph != NULL) {
        graphs->k->graph_run(graphs->k, entry->graph);
        return;
    }
    if (entry != NULL)
        entry->seen = true;
    operation(call);
}
