/* From an id to what has it. */
#include "tests/unit/unit.h"

#include "common/id_table.h"
#include "common/rand.h"

#include <stdbool.h>

enum { IDS = 64 };

/* The upper half of the ids begins its search where the lower half does, 64 places on. */
TEST(ids_that_collide_are_all_found_whichever_goes_first)
{
    struct id_table table;
    struct rand_key key = rand_key(1, RAND_DATA, 0);
    bool there[IDS] = {0};
    char items[IDS];
    uint64_t ids[IDS];
    for (uint32_t i = 0; i < IDS; i++)
        ids[i] = i % 2 == 0 ? UINT64_C(1) << 63 | i : i;
    assert_int_equal(id_table_init(&table, IDS), ERR_OK);
    for (uint32_t turn = 0; turn < 20000; turn++) {
        uint32_t words[4];
        rand_words(key, turn, words);
        uint32_t i = words[0] % IDS;
        if (there[i])
            assert_ptr_equal(id_table_take(&table, ids[i]), &items[i]);
        else
            id_table_add(&table, ids[i], &items[i]);
        there[i] = !there[i];
        for (uint32_t k = 0; k < IDS; k++)
            assert_ptr_equal(id_table_find(&table, ids[k]), there[k] ? &items[k] : NULL);
    }
    id_table_release(&table);
}

TEST(an_id_that_nothing_has_is_not_found)
{
    struct id_table table;
    char item, other;
    assert_int_equal(id_table_init(&table, 1), ERR_OK);
    assert_null(id_table_find(&table, 0));
    assert_null(id_table_take(&table, 0));
    id_table_add(&table, 0, &item);
    assert_ptr_equal(id_table_find(&table, 0), &item);
    assert_null(id_table_find(&table, 1));
    id_table_replace(&table, 0, &other);
    assert_ptr_equal(id_table_take(&table, 0), &other);
    assert_null(id_table_find(&table, 0));
    id_table_release(&table);
}
