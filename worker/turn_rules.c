#include "worker/turn_rules.h"

uint32_t turn_stored(uint32_t stored, enum act act)
{
    return act == ACT_F ? stored + 1 : act == ACT_B || act == ACT_W ? stored - 1 : stored;
}

struct turn_room turn_room(const struct program_place *place)
{
    struct turn_room room = {0};
    const struct program_row *first = NULL;
    for (uint32_t i = 0, stored = 0; i < place->rows_count; i++) {
        const struct program_row *row = &place->rows[i];
        stored = turn_stored(stored, row->act);
        room.most = stored > room.most ? stored : room.most;
        if (first == NULL && row->act == ACT_F)
            first = row;
        room.each += row->act == ACT_F && row->microbatch == first->microbatch ? 1 : 0;
    }
    return room;
}

bool turn_goes_on(enum act act, uint32_t microbatch, const struct program_row *row)
{
    bool computes = row->act == ACT_E || turn_stored(1, row->act) != 1 || row->act == ACT_I;
    return !computes || (row->act == act && row->microbatch == microbatch);
}
