/* At most half of the places are taken. */
#include "common/id_table.h"

#include <stdlib.h>

enum err id_table_init(struct id_table *table, uint32_t count_max)
{
    uint32_t bits = 1;
    while (UINT32_C(1) << bits < 2 * (uint64_t)count_max)
        bits++;
    *table = (struct id_table){.count_max = count_max, .shift = 64 - bits};
    table->places = calloc((size_t)1 << bits, sizeof *table->places);
    return table->places == NULL ? ERR_NOMEM : ERR_OK;
}

void id_table_release(struct id_table *table)
{
    free(table->places);
    *table = (struct id_table){0};
}

static size_t mask(const struct id_table *table)
{
    return ((size_t)1 << (64 - table->shift)) - 1;
}

/* Where the search for an id begins (Fibonacci hashing, Knuth 6.4). */
static size_t home(const struct id_table *table, uint64_t id)
{
    return (size_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> table->shift);
}

/* The id's place, or the free one where the search for it ends. */
static size_t place_of(const struct id_table *table, uint64_t id)
{
    size_t i = home(table, id);
    while (table->places[i].item != NULL && table->places[i].id != id)
        i = (i + 1) & mask(table);
    return i;
}

void id_table_add(struct id_table *table, uint64_t id, void *item)
{
    size_t i = place_of(table, id);
    check(item != NULL);
    check(table->places[i].item == NULL);
    check(table->count < table->count_max);
    table->places[i] = (struct id_place){id, item};
    table->count++;
}

void *id_table_find(const struct id_table *table, uint64_t id)
{
    return table->places[place_of(table, id)].item;
}

void id_table_replace(struct id_table *table, uint64_t id, void *item)
{
    size_t i = place_of(table, id);
    check(table->places[i].item != NULL);
    table->places[i].item = item;
}

/* Items behind the gap whose home is not behind it move into it. */
static void close_gap(struct id_table *table, size_t gap)
{
    for (size_t i = (gap + 1) & mask(table); table->places[i].item != NULL;
         i = (i + 1) & mask(table)) {
        size_t from_home = (i - home(table, table->places[i].id)) & mask(table);
        size_t from_gap = (i - gap) & mask(table);
        if (from_home < from_gap)
            continue;
        table->places[gap] = table->places[i];
        gap = i;
    }
    table->places[gap].item = NULL;
}

void *id_table_take(struct id_table *table, uint64_t id)
{
    size_t i = place_of(table, id);
    void *item = table->places[i].item;
    if (item == NULL)
        return NULL;
    close_gap(table, i);
    table->count--;
    return item;
}
