/* The coordinator's order log as a file: kept over restarts and rewinds, late on a full disk. */
#include "tests/unit/faults.h"
#include "tests/unit/folder.h"

#include "server/disk/order_log.h"

static const char *directory(void **state)
{
    return folder_path(state, "run");
}

static enum err add(struct order_log *log, uint64_t number)
{
    const uint8_t behind[2] = {0, number > 0};
    const struct order_step step = {.generation = 1, .step = number, .slots = 2, .behind = behind};
    return order_log_add(log, &step, NULL);
}

/* The steps in the file, which must be in order. */
static uint64_t stored(void **state)
{
    scoped(buf_release) struct buf bytes = {0};
    struct order_record record;
    struct order_step step;
    char path[400];
    size_t offset = 0;
    uint64_t steps = 0;
    snprintf(path, sizeof path, "%s/order/coordinator.log", directory(state));
    assert_int_equal(file_read(path, 16 << 20, &bytes, NULL), ERR_OK);
    while (order_next(buf_slice(&bytes), path, &offset, &record, NULL) == ERR_OK) {
        assert_int_equal(order_step(&record, &step), ERR_OK);
        assert_int_equal(step.step, steps++);
    }
    assert_int_equal(offset, bytes.bytes);
    return steps;
}

TEST_IN_FOLDER(what_was_synced_is_there_after_a_restart)
{
    struct order_log log;
    assert_int_equal(order_log_open(&log, directory(state), 0, NULL), ERR_OK);
    for (uint64_t step = 0; step < 5; step++)
        assert_int_equal(add(&log, step), ERR_OK);
    assert_int_equal(order_log_sync(&log, NULL), ERR_OK);
    assert_int_equal(stored(state), 5);
    order_log_release(&log);
    assert_int_equal(order_log_open(&log, directory(state), 3, NULL), ERR_OK);
    assert_int_equal(stored(state), 3); /* the cut it goes on from */
    assert_int_equal(add(&log, 3), ERR_OK);
    order_log_release(&log);
    assert_int_equal(stored(state), 4);
}

TEST_IN_FOLDER(a_rewind_forgets_the_steps_behind_its_cut)
{
    scoped(order_log_release) struct order_log log = {0};
    assert_int_equal(order_log_open(&log, directory(state), 0, NULL), ERR_OK);
    for (uint64_t step = 0; step < 4; step++)
        assert_int_equal(add(&log, step), ERR_OK);
    assert_int_equal(order_log_sync(&log, NULL), ERR_OK);
    assert_int_equal(add(&log, 4), ERR_OK); /* late */
    assert_int_equal(order_log_rewind(&log, 2, NULL), ERR_OK);
    assert_int_equal(add(&log, 2), ERR_OK);
    assert_int_equal(order_log_sync(&log, NULL), ERR_OK);
    assert_int_equal(stored(state), 3);
}

TEST_IN_FOLDER(a_full_disk_makes_it_late_not_wrong)
{
    scoped(order_log_release) struct order_log log = {0};
    struct file_ops full = file_ops_real;
    full.write = full_write;
    assert_int_equal(order_log_open(&log, directory(state), 0, NULL), ERR_OK);
    log.file.ops = &full;
    for (uint64_t step = 0; step < 3000; step++) /* more than a batch */
        assert_int_equal(add(&log, step), ERR_OK);
    assert_int_equal(order_log_sync(&log, NULL), ERR_NO_SPACE);
    log.file.ops = &file_ops_real;
    assert_int_equal(order_log_sync(&log, NULL), ERR_OK);
    assert_int_equal(stored(state), 3000);
}

TEST_IN_FOLDER(a_disk_that_stays_full_leaves_a_gap)
{
    scoped(order_log_release) struct order_log log = {0};
    struct file_ops full = file_ops_real;
    uint64_t step = 0;
    full.write = full_write;
    assert_int_equal(order_log_open(&log, directory(state), 0, NULL), ERR_OK);
    log.late_bytes_max = 100000;
    log.file.ops = &full;
    for (; !log.steps_lost && step < 10000; step++)
        assert_int_equal(add(&log, step), ERR_OK);
    assert_true(log.steps_lost);
    assert_in_range(step, 100000 / 64, 100000 / 32);
    assert_int_equal(log.late.bytes, 0);
    assert_int_equal(order_log_sync(&log, NULL), ERR_OK); /* no checkpoint waits for what is lost */
    log.file.ops = &file_ops_real;
    assert_int_equal(add(&log, 0), ERR_OK);
    assert_int_equal(order_log_sync(&log, NULL), ERR_OK);
    assert_int_equal(stored(state), 1);
}

static int full_truncate(const struct file_ops *ops, int fd, uint64_t bytes)
{
    (void)ops, (void)fd, (void)bytes;
    errno = ENOSPC;
    return -1;
}

TEST_IN_FOLDER(a_rewind_for_which_there_is_no_room_comes_before_the_next_steps)
{
    scoped(order_log_release) struct order_log log = {0};
    struct file_ops full = file_ops_real;
    full.truncate = full_truncate;
    assert_int_equal(order_log_open(&log, directory(state), 0, NULL), ERR_OK);
    for (uint64_t step = 0; step < 6; step++)
        assert_int_equal(add(&log, step), ERR_OK);
    assert_int_equal(order_log_sync(&log, NULL), ERR_OK);
    log.file.ops = &full;
    assert_int_equal(order_log_rewind(&log, 4, NULL), ERR_OK);
    assert_int_equal(order_log_rewind(&log, 3, NULL), ERR_OK);
    assert_int_equal(add(&log, 3), ERR_OK);
    assert_int_equal(order_log_sync(&log, NULL), ERR_NO_SPACE); /* P9: it keeps a cut back */
    assert_int_equal(stored(state), 6);
    log.file.ops = &file_ops_real;
    assert_int_equal(order_log_sync(&log, NULL), ERR_OK);
    assert_int_equal(stored(state), 4);
    assert_int_equal(add(&log, 4), ERR_OK);
    assert_int_equal(order_log_sync(&log, NULL), ERR_OK);
    assert_int_equal(stored(state), 5); /* it was owed once */
}

/* It is read in pieces of 4 MiB, into which records do not fit evenly. */
TEST_IN_FOLDER(a_long_log_is_cut_back_at_any_step)
{
    static const uint64_t versions[] = {200000, 199999, 95326, 95325, 7, 0};
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        scoped(order_log_release) struct order_log log = {0};
        uint64_t half = versions[i] / 2;
        assert_int_equal(order_log_open(&log, directory(state), 0, NULL), ERR_OK);
        for (uint64_t step = 0; step < 200000; step++)
            assert_int_equal(add(&log, step), ERR_OK);
        order_log_release(&log);
        assert_int_equal(order_log_open(&log, directory(state), versions[i], NULL), ERR_OK);
        assert_int_equal(stored(state), versions[i]);
        assert_int_equal(order_log_rewind(&log, half, NULL), ERR_OK);
        assert_int_equal(stored(state), half);
        assert_int_equal(add(&log, half), ERR_OK);
        assert_int_equal(order_log_sync(&log, NULL), ERR_OK);
        assert_int_equal(stored(state), half + 1);
    }
}

TEST(a_run_that_keeps_none_has_nothing_to_do)
{
    scoped(order_log_release) struct order_log log = {0};
    assert_int_equal(order_log_sync(&log, NULL), ERR_OK);
    assert_int_equal(order_log_rewind(&log, 3, NULL), ERR_OK);
}
