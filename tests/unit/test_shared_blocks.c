/* Arrays in a pool: parts one after another, in blocks. */
#include "tests/unit/unit.h"

#include "common/shared/shared_blocks.h"
#include "common/thread.h"

#include <sys/mman.h>
#include <unistd.h>

enum { BEFORE = 2, PARTS = 3, BLOCKS = 2 }; /* the array in the middle */

static const struct shared_part parts[] = {{0, 64},   {0, 128},  {1, 4096},
                                           {1, 8192}, {1, 4100}, {2, 1024}};

struct blocks_fixture {
    struct shared_pool *pool;
    struct shared_blocks *blocks;
};

static void blocks_set_up(struct blocks_fixture *f)
{
    assert_int_equal(shared_pool_new(&f->pool, NULL), ERR_OK);
    assert_int_equal(
        shared_blocks_new(parts, sizeof parts / sizeof *parts, BLOCKS, f->pool, &f->blocks),
        ERR_OK);
}

static void blocks_tear_down(struct blocks_fixture *f)
{
    shared_blocks_unref(f->blocks);
    shared_pool_free(f->pool);
}

/* A place for each of the array's parts, one after another in memory. */
static void take_whole(struct blocks_fixture *f, uint64_t version,
                       struct counted *ret_copies[static PARTS])
{
    for (uint32_t i = PARTS; i-- > 0;) {
        ret_copies[i] = shared_blocks_take(f->blocks, BEFORE + i, version);
        assert_int_equal(ret_copies[i]->bytes, parts[BEFORE + i].bytes);
    }
    for (uint32_t i = 1; i < PARTS; i++)
        assert_ptr_equal(ret_copies[i]->data,
                         ret_copies[i - 1]->data + parts[BEFORE + i - 1].bytes);
    assert_int_equal((uintptr_t)ret_copies[0]->data % 64, 0);
}

static void drop(struct counted *copies[static PARTS])
{
    for (uint32_t i = 0; i < PARTS; i++)
        counted_unref(copies[i]);
}

TEST_F(parts_of_an_array_lie_one_after_another_in_blocks, blocks)
{
    struct counted *even[PARTS], *odd[PARTS];
    take_whole(f, 0, even);
    take_whole(f, 1, odd);
    assert_ptr_not_equal(even[0]->data, odd[0]->data);
    uint64_t offset;
    assert_true(shared_pool_find(f->pool, (struct slice){odd[2]->data, odd[2]->bytes}, &offset));
    drop(even);
    drop(odd);
}

TEST_F(a_third_copy_of_a_part_lies_alone, blocks)
{
    struct counted *even[PARTS], *odd[PARTS];
    take_whole(f, 0, even);
    take_whole(f, 1, odd);
    struct counted *third = shared_blocks_take(f->blocks, BEFORE + 1, 2);
    assert_int_equal(third->bytes, parts[BEFORE + 1].bytes);
    assert_ptr_not_equal(third->data, even[1]->data);
    assert_ptr_not_equal(third->data, odd[1]->data);
    drop(even);
    drop(odd);
    memset(third->data, 7, third->bytes); /* it is there yet */
    counted_unref(third);
}

TEST_F(a_place_that_is_free_is_taken_again, blocks)
{
    struct counted *even[PARTS], *odd[PARTS];
    take_whole(f, 0, even);
    take_whole(f, 1, odd);
    const uint8_t *place = even[1]->data;
    counted_unref(even[1]);
    even[1] = shared_blocks_take(f->blocks, BEFORE + 1, 1);
    assert_ptr_equal(even[1]->data, place);
    drop(even);
    drop(odd);
}

/* A reader still has one part: the others are free, yet the next version lies in the other block. */
TEST_F(a_version_lies_in_one_block_while_a_reader_holds_a_part_of_another, blocks)
{
    struct counted *first[PARTS], *second[PARTS], *third[PARTS];
    take_whole(f, 1, first);
    take_whole(f, 2, second);
    counted_unref(first[0]);
    counted_unref(first[2]);
    drop(second);
    take_whole(f, 3, third);
    counted_unref(first[1]);
    drop(third);
}

/* Where all blocks have a reader, parts of a version still come together as far as they can. */
TEST_F(parts_of_a_version_find_each_other_where_no_block_is_free, blocks)
{
    struct counted *first[PARTS], *second[PARTS];
    take_whole(f, 1, first);
    take_whole(f, 2, second);
    counted_unref(first[0]);
    counted_unref(second[0]);
    counted_unref(second[1]);
    struct counted *late = shared_blocks_take(f->blocks, BEFORE + 1, 3);
    struct counted *next = shared_blocks_take(f->blocks, BEFORE, 3);
    assert_ptr_equal(late->data, next->data + next->bytes);
    counted_unref(first[1]);
    counted_unref(first[2]);
    counted_unref(second[2]);
    counted_unref(late);
    counted_unref(next);
}

/* Pages that lie whole in the memory, and how many of them the system has given. */
static void count_pages(const uint8_t *data, size_t bytes, size_t *ret_pages, size_t *ret_there)
{
    unsigned char there[8];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)data + page - 1) / page * page;
    *ret_pages = ((uintptr_t)data + bytes - first) / page;
    *ret_there = 0;
    assert_in_range(*ret_pages, 1, sizeof there);
    assert_int_equal(mincore((void *)first, *ret_pages * page, there), 0); // NOLINT: an address
    for (size_t i = 0; i < *ret_pages; i++)
        *ret_there += there[i] & 1;
}

TEST_F(what_is_touched_has_memory_before_anybody_takes_it, blocks)
{
    size_t pages, there;
    struct counted *copy = shared_blocks_take(f->blocks, BEFORE + 1, 1);
    shared_blocks_touch(f->blocks, BEFORE + 1);
    struct counted *next = shared_blocks_take(f->blocks, BEFORE + 1, 2);
    count_pages(next->data, next->bytes, &pages, &there);
    assert_int_equal(there, pages);
    counted_unref(copy);
    counted_unref(next);
}

/* ---- readers leave while a part is touched ---- */

struct readers {
    struct counted *held[2];
    atomic_bool leave;
};

static void leave_when_told(void *argument)
{
    struct readers *readers = argument;
    while (!atomic_load(&readers->leave))
        ;
    counted_unref(readers->held[0]);
    counted_unref(readers->held[1]);
}

/* Who touches holds no place: its copy lies elsewhere. The first part's place is free in one block. */
TEST(memory_stays_while_it_is_touched_though_its_readers_leave)
{
    enum { LARGE = 64 << 20 }; /* it takes longer to touch than to leave */
    const struct shared_part two[] = {{0, LARGE}, {0, 64}};
    struct shared_blocks *blocks;
    struct readers readers = {0};
    struct thread thread;
    assert_int_equal(shared_blocks_new(two, 2, BLOCKS, NULL, &blocks), ERR_OK);
    readers.held[0] = shared_blocks_take(blocks, 0, 1);
    readers.held[1] = shared_blocks_take(blocks, 1, 2);
    assert_int_equal(thread_start(&thread, "readers", leave_when_told, &readers), ERR_OK);
    atomic_store(&readers.leave, true);
    shared_blocks_touch(blocks, 0);
    thread_join(&thread);
    shared_blocks_unref(blocks);
}

static const uint8_t *lowest_of(struct shared_pool *pool)
{
    struct counted *counted = shared_pool_counted(pool, 64);
    const uint8_t *data = counted->data;
    counted_unref(counted);
    return data;
}

TEST_F(what_is_touched_where_nobody_holds_a_place_is_given_back, blocks)
{
    const uint8_t *lowest = lowest_of(f->pool);
    shared_blocks_touch(f->blocks, BEFORE);
    assert_ptr_equal(lowest_of(f->pool), lowest);
}

TEST_F(a_block_goes_with_the_last_of_its_places, blocks)
{
    struct counted *even[PARTS];
    take_whole(f, 0, even);
    const uint8_t *block = even[0]->data;
    drop(even);
    struct counted *other = shared_pool_counted(f->pool, 64);
    assert_ptr_equal(other->data, block); /* the pool's lowest memory is free again */
    counted_unref(other);
}

TEST_F(a_copy_outlives_who_made_it, blocks)
{
    struct counted *even[PARTS];
    take_whole(f, 0, even);
    shared_blocks_unref(f->blocks);
    f->blocks = NULL;
    memset(even[2]->data, 7, even[2]->bytes);
    drop(even);
}

TEST(without_a_pool_blocks_are_on_the_heap)
{
    struct shared_blocks *blocks;
    assert_int_equal(shared_blocks_new(parts, 1, BLOCKS, NULL, &blocks), ERR_OK);
    struct counted *copy = shared_blocks_take(blocks, 0, 0);
    assert_int_equal(copy->bytes, parts[0].bytes);
    counted_unref(copy);
    shared_blocks_unref(blocks);
}
