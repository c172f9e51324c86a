/* Finds the item that has an id, in a table of fixed room: open addressing; when an item is taken
 * out, those that follow move up (Knuth, The Art of Computer Programming 3, algorithm 6.4R). One
 * owner. */
#ifndef ROOST_COMMON_ID_TABLE_H
#define ROOST_COMMON_ID_TABLE_H

#include "common/err.h"

#include <stdint.h>

struct id_table {
    uint32_t count, count_max;
    uint32_t shift; /* 64 - log2 of the places */
    struct id_place {
        uint64_t id;
        void *item; /* NULL: the place is free */
    } * places;
};

enum err id_table_init(struct id_table *table, uint32_t count_max) MUST_USE; /* ERR_NOMEM */
void id_table_release(struct id_table *table);

/* The item, not NULL, is borrowed; the id is not in the table yet, and there is room. */
void id_table_add(struct id_table *table, uint64_t id, void *item);
/* NULL: nothing has the id. */
void *id_table_find(const struct id_table *table, uint64_t id);
/* Gives the id to another item. */
void id_table_replace(struct id_table *table, uint64_t id, void *item);
/* Takes the id out and returns its item; NULL: nothing has it. */
void *id_table_take(struct id_table *table, uint64_t id);

#endif
