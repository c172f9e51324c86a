#include "worker/turn_rules.h"

uint32_t turn_stored(uint32_t stored, enum act act)
{
    return act == ACT_F ? stored + 1 : act == ACT_B || act == ACT_W ? stored - 1 : stored;
}

struct turn_room turn_room(const struct mesh *mesh, const struct program *program, uint32_t place)
{
    struct turn_room room = {0};
    const struct program_row *first = NULL;
    uint32_t behind = mesh_behind(mesh, place);
    bool written = mesh->rows != NULL && mesh->rows[0] != 0;
    for (uint32_t i = 0, stored = 0; i < program->places[place].rows_count; i++) {
        const struct program_row *row = &program->places[place].rows[i];
        stored = turn_stored(stored, row->act);
        room.most = stored > room.most ? stored : room.most;
        if (first == NULL && row->act == ACT_F)
            first = row;
        room.each += row->act == ACT_F && row->microbatch == first->microbatch ? 1 : 0;
    }
    if (mesh->schedule == SCHEDULE_1F1B && !written)
        room.most = room.each * (behind + 1);
    else
        room.most += room.each * behind;
    return room;
}

bool turn_goes_on(enum act act, uint32_t microbatch, const struct program_row *row)
{
    bool computes = row->act == ACT_E || turn_stored(1, row->act) != 1 || row->act == ACT_I;
    return !computes || (row->act == act && row->microbatch == microbatch);
}
