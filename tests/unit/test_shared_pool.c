/* Memory that other processes may read: what is given, used again, and who may do what with it. */
#include "tests/unit/unit.h"

#include "common/shared/shared_loans.h"
#include "common/shared/shared_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { KIB = 1 << 10, BLOCKS = 8 };

struct pool_fixture {
    struct shared_pool *pool;
    struct counted *blocks[BLOCKS];
    struct reason reason;
};

static void pool_set_up(struct pool_fixture *f)
{
    assert_int_equal(shared_pool_new(&f->pool, &f->reason), ERR_OK);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        f->blocks[i] = shared_pool_counted(f->pool, 10 * KIB);
        assert_non_null(f->blocks[i]);
    }
}

static void give(struct pool_fixture *f, uint32_t block)
{
    counted_unref(f->blocks[block]);
    f->blocks[block] = NULL;
}

static void pool_tear_down(struct pool_fixture *f)
{
    for (uint32_t i = 0; i < BLOCKS; i++)
        counted_unref(f->blocks[i]);
    shared_pool_free(f->pool);
}

static uint64_t offset_of(const struct pool_fixture *f, const struct counted *counted)
{
    uint64_t offset = 0;
    assert_true(shared_pool_find(f->pool, (struct slice){counted->data, counted->bytes}, &offset));
    return offset;
}

/* What is given next lies there. */
static void expect_next_at(const struct pool_fixture *f, size_t bytes, uint64_t offset)
{
    struct counted *next = shared_pool_counted(f->pool, bytes);
    assert_non_null(next);
    assert_int_equal(offset_of(f, next), offset);
    counted_unref(next);
}

TEST_F(blocks_do_not_touch_each_other, pool)
{
    for (uint32_t i = 0; i < BLOCKS; i++)
        memset(f->blocks[i]->data, (int)i, f->blocks[i]->bytes);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        assert_int_equal((uintptr_t)f->blocks[i]->data % 64, 0);
        assert_int_equal(atomic_load(&f->blocks[i]->references), 1);
        for (size_t k = 0; k < f->blocks[i]->bytes; k++)
            assert_int_equal(f->blocks[i]->data[k], i);
    }
}

TEST_F(the_lowest_memory_that_is_free_is_given_again, pool)
{
    uint64_t second = offset_of(f, f->blocks[2]), first = offset_of(f, f->blocks[1]);
    give(f, 2);
    expect_next_at(f, 10 * KIB, second);
    expect_next_at(f, 5 * KIB, second);
    give(f, 4);
    give(f, 1); /* 1 and 2 are one gap now, and 4 is another */
    expect_next_at(f, 20 * KIB, first);
    give(f, 3);
    expect_next_at(f, 40 * KIB, first);
    uint64_t each = offset_of(f, f->blocks[7]) - offset_of(f, f->blocks[6]);
    expect_next_at(f, 41 * KIB, offset_of(f, f->blocks[7]) + each); /* behind all of them */
}

TEST_F(what_is_not_in_the_pool_is_not_found, pool)
{
    uint64_t offset;
    struct counted *other = counted_new(KIB);
    assert_non_null(other);
    assert_false(shared_pool_find(f->pool, (struct slice){other->data, KIB}, &offset));
    assert_false(shared_pool_find(NULL, (struct slice){f->blocks[0]->data, KIB}, &offset));
    assert_false(shared_pool_find(f->pool, (struct slice){f->blocks[0]->data, SIZE_MAX}, &offset));
    counted_unref(other);
}

TEST_F(what_has_no_room_comes_from_the_heap, pool)
{
    struct counted *none = shared_pool_counted(NULL, KIB);
    assert_non_null(none);
    assert_null(none->owner);
    counted_unref(none);
    assert_null(shared_pool_counted(f->pool, SIZE_MAX / 2)); /* nor has the heap */
}

TEST_F(what_was_given_stays_when_its_owner_is_gone, pool)
{
    memset(f->blocks[3]->data, 7, f->blocks[3]->bytes);
    shared_pool_free(f->pool);
    f->pool = NULL;
    for (size_t k = 0; k < f->blocks[3]->bytes; k++)
        assert_int_equal(f->blocks[3]->data[k], 7);
}

TEST_F(others_read_and_cannot_write, pool)
{
    struct slice there;
    int file = shared_pool_file(f->pool);
    f->blocks[5]->data[0] = 42;
    assert_int_equal(shared_pool_map(file, &there, &f->reason), ERR_OK);
    assert_int_equal(there.data[offset_of(f, f->blocks[5])], 42);
    f->blocks[5]->data[0] = 43;
    assert_int_equal(there.data[offset_of(f, f->blocks[5])], 43);
    munmap((void *)(uintptr_t)there.data, there.bytes);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), MAP_FAILED);
    assert_true(write(file, "x", 1) < 0);
    assert_int_equal(errno, EPERM);
    assert_true(ftruncate(file, 0) != 0);
}

TEST_F(memory_that_can_shrink_is_not_mapped, pool)
{
    struct slice there;
    int file = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(file, 4096), 0);
    assert_int_equal(shared_pool_map(file, &there, &f->reason), ERR_MALFORMED);
    assert_string_equal(f->reason.text, "memory for payloads that can shrink");
    close(file);
}

/* Two streams with such a peer would take all addresses that a process has. */
TEST_F(memory_larger_than_the_machine_s_is_not_mapped, pool)
{
    struct slice there;
    int file = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(file, (off_t)shared_pool_memory(f->pool).bytes + (1 << 20)), 0);
    assert_int_equal(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(shared_pool_map(file, &there, &f->reason), ERR_MALFORMED);
    assert_string_equal(f->reason.text, "memory for payloads larger than the machine's");
    close(file);
}

/* Reading a huge page that the kernel has not would end the reader by a signal. */
TEST_F(memory_of_huge_pages_is_not_mapped, pool)
{
    struct slice there;
    int file = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (file < 0)
        skip(); /* a kernel without huge pages */
    assert_int_equal(ftruncate(file, 1 << 30), 0);
    assert_int_equal(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(shared_pool_map(file, &there, &f->reason), ERR_MALFORMED);
    assert_string_equal(f->reason.text, "memory for payloads that is no ordinary memory");
    close(file);
}

TEST_F(a_file_is_not_mapped, pool)
{
    struct slice there;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), 4096), 0);
    assert_int_equal(shared_pool_map(fileno(file), &there, &f->reason), ERR_MALFORMED);
    fclose(file);
}

/* ---- loans ---- */

struct loans_fixture {
    struct shared_returns *returns;
    struct shared_loans loans;
    void *lent[SHARED_LOANS_MAX];
    int items[SHARED_LOANS_MAX];
};

static void loans_set_up(struct loans_fixture *f)
{
    f->returns = aligned_alloc(64, sizeof *f->returns);
    assert_non_null(f->returns);
    memset(f->returns, 0, sizeof *f->returns);
    f->loans.returns = f->returns;
    f->loans.items = f->lent;
}

static void loans_tear_down(struct loans_fixture *f)
{
    free(f->returns);
}

TEST_F(nothing_is_lent_to_who_has_no_memory, loans)
{
    assert_false(shared_loans_may(&f->loans));
    atomic_store(&f->returns->accepts, 1);
    assert_true(shared_loans_may(&f->loans));
}

TEST_F(loans_come_back_in_any_order, loans)
{
    atomic_store(&f->returns->accepts, 1);
    for (uint32_t i = 0; i < SHARED_LOANS_MAX; i++)
        assert_int_equal(shared_loans_lend(&f->loans, &f->items[i]), i);
    assert_false(shared_loans_may(&f->loans));
    assert_null(shared_loans_next(&f->loans, false));
    shared_returns_give(f->returns, 200);
    shared_returns_give(f->returns, 3);
    assert_ptr_equal(shared_loans_next(&f->loans, false), &f->items[3]);
    assert_ptr_equal(shared_loans_next(&f->loans, false), &f->items[200]);
    assert_null(shared_loans_next(&f->loans, false));
    assert_int_equal(shared_loans_lend(&f->loans, &f->items[3]), 3);
    assert_null(shared_loans_next(&f->loans, false)); /* the first return was of the first loan */
    for (uint32_t i = 0; i < SHARED_LOANS_MAX - 1; i++)
        assert_non_null(shared_loans_next(&f->loans, true));
    assert_null(shared_loans_next(&f->loans, true));
}

TEST_F(what_was_not_lent_does_not_come_back, loans)
{
    atomic_store(&f->returns->accepts, 1);
    shared_returns_give(f->returns, 0); /* a receiver may write what it likes */
    shared_returns_give(f->returns, 255);
    assert_null(shared_loans_next(&f->loans, false));
    assert_int_equal(shared_loans_lend(&f->loans, &f->items[0]), 0);
    assert_null(shared_loans_next(&f->loans, false));
}
