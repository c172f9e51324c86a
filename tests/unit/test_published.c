/* A chunk's published copies: which memory the next version is written to. */
#include "tests/unit/unit.h"

#include "server/shard/published.h"

enum { BYTES = 16 };

static struct counted *publish(struct published *published, uint64_t version)
{
    void *data;
    assert_int_equal(published_next(published, version, &data), ERR_OK);
    assert_ptr_equal(published_get(published, version)->data, data);
    return published_get(published, version);
}

TEST(a_copy_that_nobody_holds_is_written_again)
{
    scoped(published_release) struct published published;
    assert_int_equal(published_init(&published, NULL, 1, BYTES), ERR_OK);
    struct counted *first = publish(&published, 1);
    assert_ptr_equal(publish(&published, 2), first);
}

TEST(of_two_copies_that_are_held_the_older_is_freed_with_its_last_reference)
{
    scoped(published_release) struct published published;
    assert_int_equal(published_init(&published, NULL, 1, BYTES), ERR_OK);
    struct counted *first = counted_ref(publish(&published, 1));
    struct counted *second = counted_ref(publish(&published, 2));
    struct counted *third = publish(&published, 3);
    assert_ptr_not_equal(second, first);
    assert_ptr_not_equal(third, first);
    assert_ptr_not_equal(third, second);
    assert_int_equal(atomic_load(&first->references), 1); /* the reader's alone */
    counted_unref(first);
    counted_unref(second);
    assert_ptr_equal(publish(&published, 4), third);
}
