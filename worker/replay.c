#include "worker/replay.h"

#include <stdlib.h>

enum err replay_init(struct replay *replay, const struct kernels *k, size_t places_count,
                     bool direct)
{
    *replay = (struct replay){.k = k, .direct = direct || k->graph_new == NULL};
    if (replay->direct)
        return ERR_OK;
    replay->places = calloc(places_count, sizeof *replay->places);
    replay->places_count = places_count;
    return replay->places != NULL ? ERR_OK : ERR_NOMEM;
}

void replay_release(struct replay *replay)
{
    for (size_t i = 0; replay->places != NULL && i < replay->places_count; i++)
        replay->k->graph_free(replay->k, replay->places[i].graph);
    free(replay->places);
    *replay = (struct replay){0};
}

struct work {
    void (*operation)(const struct unit_call *call);
    const struct unit_call *call;
};

static void give(void *context)
{
    const struct work *work = context;
    work->operation(work->call);
}

static void make_graph(struct replay *replay, struct replay_place *place, struct work *work)
{
    if (replay->graphs_count == REPLAY_GRAPHS_MAX)
        return;
    place->graph = replay->k->graph_new(replay->k, give, work);
    if (place->graph != NULL)
        replay->graphs_count++;
    else
        replay->direct = replay->refused = true;
}

void replay_run(struct replay *replay, size_t number,
                void (*operation)(const struct unit_call *call), const struct unit_call *call)
{
    struct work work = {operation, call};
    struct replay_place *place = replay->direct ? NULL : &replay->places[number];
    if (place != NULL && place->seen && place->graph == NULL)
        make_graph(replay, place, &work);
    if (place != NULL && place->graph != NULL) {
        replay->k->graph_run(replay->k, place->graph);
        return;
    }
    if (place != NULL)
        place->seen = true;
    operation(call);
}
