/* Growing and counted bytes. */
#include "tests/unit/unit.h"

#include "common/buf.h"

TEST(appended_bytes_stay_in_order_while_it_grows)
{
    scoped(buf_release) struct buf buf = {0};
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(buf_append(&buf, &(uint8_t){(uint8_t)i}, 1), ERR_OK);
    assert_int_equal(buf_slice(&buf).bytes, 1000);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(buf.data[i], (uint8_t)i);
}

TEST(nothing_may_be_appended_to_nothing)
{
    scoped(buf_release) struct buf buf = {0};
    assert_int_equal(buf_append(&buf, NULL, 0), ERR_OK);
    assert_int_equal(buf.bytes, 0);
}

TEST(its_limit_is_exact)
{
    scoped(buf_release) struct buf buf = {.bytes_max = 10};
    assert_int_equal(buf_append(&buf, "0123456789", 10), ERR_OK);
    assert_int_equal(buf_append(&buf, "", 0), ERR_OK);
    assert_int_equal(buf_append(&buf, "x", 1), ERR_BUSY);
    assert_int_equal(buf.bytes, 10);
    assert_int_equal(buf_reserve(&buf, SIZE_MAX), ERR_BUSY);
}

TEST(more_than_the_machine_has_is_an_error)
{
    scoped(buf_release) struct buf buf = {0};
    assert_int_equal(buf_append(&buf, "abc", 3), ERR_OK);
    assert_int_equal(buf_reserve(&buf, SIZE_MAX), ERR_NOMEM);
    assert_int_equal(buf_reserve(&buf, SIZE_MAX / 2), ERR_NOMEM);
    assert_memory_equal(buf.data, "abc", 3);
}

TEST(printed_text_is_appended_without_its_end)
{
    scoped(buf_release) struct buf buf = {0};
    assert_int_equal(buf_printf(&buf, "%s-%d", "step", 7), ERR_OK);
    assert_int_equal(buf_printf(&buf, "!"), ERR_OK);
    assert_int_equal(buf.bytes, 7);
    assert_string_equal((const char *)buf.data, "step-7!");
}

TEST(a_detached_content_leaves_it_empty_with_its_limit)
{
    scoped(buf_release) struct buf buf = {.bytes_max = 4};
    assert_int_equal(buf_append(&buf, "abcd", 4), ERR_OK);
    scoped(buf_release) struct buf content = buf_detach(&buf);
    assert_int_equal(content.bytes, 4);
    assert_null(buf.data);
    assert_int_equal(buf.bytes, 0);
    assert_int_equal(buf.bytes_max, 4);
}

TEST(clearing_makes_it_usable_again)
{
    scoped(buf_release) struct buf buf = {.bytes_max = 4};
    assert_int_equal(buf_append(&buf, "abcd", 4), ERR_OK);
    buf_clear(&buf);
    assert_int_equal(buf_append(&buf, "efgh", 4), ERR_OK);
    assert_memory_equal(buf.data, "efgh", 4);
}

static void released_once(struct counted *counted, void *owner)
{
    (*(int *)owner)++;
    free(counted);
}

TEST(the_last_reference_releases_counted_bytes)
{
    int releases = 0;
    struct counted *counted = counted_new(100);
    assert_non_null(counted);
    assert_int_equal(counted->bytes, 100);
    assert_int_equal((uintptr_t)counted->data % 64, 0);
    counted->released = released_once;
    counted->owner = &releases;
    assert_ptr_equal(counted_ref(counted), counted);
    counted_unref(counted);
    assert_int_equal(releases, 0);
    counted_unref(counted);
    assert_int_equal(releases, 1);
    counted_unref(NULL);
}

TEST(counted_bytes_free_themselves)
{
    struct counted *counted = counted_new(0);
    assert_non_null(counted);
    counted_unref(counted);
}
