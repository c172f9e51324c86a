/* A chunk's published copies: which memory the next version is written to. */
#include "tests/unit/unit.h"

#include "server/shard/published.h"

enum { BYTES = 16 };

static struct counted *publish(struct published *published, uint64_t version)
{
    void *data;
    struct counted *before;
    assert_int_equal(published_next(published, version, &data, &before), ERR_OK);
    assert_ptr_equal(published_get(published, version)->data, data);
    counted_unref(before);
    return published_get(published, version);
}

TEST(a_copy_that_nobody_holds_is_written_again)
{
    scoped(published_release) struct published published;
    assert_int_equal(published_init(&published, NULL, 0, 1, BYTES), ERR_OK);
    struct counted *first = publish(&published, 1);
    assert_ptr_equal(publish(&published, 2), first);
}

TEST(a_copy_that_is_held_is_freed_with_its_last_reference)
{
    scoped(published_release) struct published published;
    assert_int_equal(published_init(&published, NULL, 0, 1, BYTES), ERR_OK);
    struct counted *first = counted_ref(publish(&published, 1));
    struct counted *second = publish(&published, 2);
    assert_ptr_not_equal(second, first);
    assert_int_equal(atomic_load(&first->references), 1); /* the reader's alone */
    counted_unref(first);
    assert_ptr_equal(publish(&published, 3), second);
}

TEST(what_a_version_takes_the_place_of_stays_until_it_is_let_go)
{
    scoped(published_release) struct published published;
    assert_int_equal(published_init(&published, NULL, 0, 1, BYTES), ERR_OK);
    struct counted *reader = counted_ref(publish(&published, 1)), *before;
    void *data;
    assert_int_equal(published_next(&published, 2, &data, &before), ERR_OK);
    assert_ptr_equal(before, reader);
    counted_unref(reader);
    memset(before->data, 7, BYTES);
    counted_unref(before);
}

TEST(versions_that_are_read_lie_in_blocks)
{
    static const struct shared_part parts[] = {{0, BYTES}, {0, BYTES}};
    struct shared_blocks *blocks;
    struct published published[2];
    struct counted *held[3][2];
    assert_int_equal(shared_blocks_new(parts, 2, 3, NULL, &blocks), ERR_OK);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(published_init(&published[i], blocks, i, 1, BYTES), ERR_OK);
    for (uint64_t version = 1; version <= 9; version++) {
        for (uint32_t i = 0; i < 2; i++) {
            if (version > 3)
                counted_unref(held[version % 3][i]);
            held[version % 3][i] = counted_ref(publish(&published[i], version));
        }
        assert_ptr_equal(held[version % 3][1]->data, held[version % 3][0]->data + BYTES);
    }
    for (uint32_t i = 0; i < 2; i++) {
        published_release(&published[i]);
        for (uint32_t turn = 0; turn < 3; turn++)
            counted_unref(held[turn][i]);
    }
    shared_blocks_unref(blocks);
}
