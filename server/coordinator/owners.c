/* Which server owns which chunk. */
#include "server/coordinator/owners.h"

void owners_take(struct run *run, struct map *take_map)
{
    check(take_map->chunk_count == run->chunk_count);
    check(take_map->range_count > 0);
    map_release(&run->map);
    run->map = *take_map;
    *take_map = (struct map){0};
}

void owners_count_change(struct run *run)
{
    run->map_number++;
}

void owners_adopt(struct run *run, uint64_t term)
{
    run->map_number = (term << 32) + 1;
}
