/* Members that did not bring what they held. */
#include "server/coordinator/doubt.h"

enum err doubt_init(struct doubt *doubt, uint32_t members_max)
{
    return id_table_init(&doubt->members, members_max);
}

void doubt_release(struct doubt *doubt)
{
    id_table_release(&doubt->members);
}

void doubt_add(struct doubt *doubt, uint64_t member)
{
    if (doubt->members.count < doubt->members.count_max && !doubt_has(doubt, member))
        id_table_add(&doubt->members, member, doubt);
}

void doubt_end(struct doubt *doubt, uint64_t member)
{
    (void)id_table_take(&doubt->members, member);
}

bool doubt_has(const struct doubt *doubt, uint64_t member)
{
    return id_table_find(&doubt->members, member) != NULL;
}
