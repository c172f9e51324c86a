/* The order log's bytes: round trips, what a dying writer leaves, what a disk may do to it. */
#include "tests/unit/unit.h"

#include "common/files/order.h"

enum { SLOTS = 3, STEPS = 4 };

static void append(struct buf *buf, uint64_t number)
{
    uint8_t behind[SLOTS] = {0, number > 0, number > 1 ? 2 : 0};
    struct order_step step = {.generation = 7, .step = number, .slots = SLOTS, .behind = behind};
    assert_int_equal(order_append_step(buf, &step), ERR_OK);
}

static void fill(struct buf *buf)
{
    for (uint64_t step = 0; step < STEPS; step++)
        append(buf, step);
}

/* Steps until the log ends; *ret_err: what it ends with. */
static uint64_t count(struct slice log, enum err *ret_err)
{
    struct order_record record;
    struct order_step step;
    size_t offset = 0;
    uint64_t steps = 0;
    while ((*ret_err = order_next(log, "order.log", &offset, &record, NULL)) == ERR_OK) {
        assert_int_equal(order_step(&record, &step), ERR_OK);
        assert_int_equal(step.generation, 7);
        assert_int_equal(step.step, steps);
        assert_int_equal(step.slots, SLOTS);
        assert_int_equal(step.behind[2], steps > 1 ? 2 : 0);
        steps++;
    }
    return steps;
}

TEST(what_is_appended_is_read)
{
    scoped(buf_release) struct buf buf = {0};
    enum err err;
    fill(&buf);
    assert_int_equal(count(buf_slice(&buf), &err), STEPS);
    assert_int_equal(err, ERR_NOT_FOUND);
    assert_int_equal(count((struct slice){NULL, 0}, &err), 0);
    assert_int_equal(err, ERR_NOT_FOUND);
}

TEST(a_tail_that_was_being_written_ends_the_log_before_it)
{
    scoped(buf_release) struct buf buf = {0};
    enum err err;
    fill(&buf);
    size_t record = buf.bytes / STEPS;
    for (size_t bytes = 0; bytes <= buf.bytes; bytes++) {
        assert_int_equal(count((struct slice){buf.data, bytes}, &err), bytes / record);
        assert_int_equal(err, ERR_NOT_FOUND);
    }
}

TEST(no_flipped_bit_changes_what_is_read)
{
    scoped(buf_release) struct buf buf = {0};
    enum err err;
    fill(&buf);
    size_t record = buf.bytes / STEPS;
    for (size_t bit = 0; bit < 8 * buf.bytes; bit++) {
        buf.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(count(buf_slice(&buf), &err), bit / 8 / record); /* those before it */
        buf.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    buf.data[record + 8] ^= 1; /* in the payload: said at once */
    struct order_record read;
    struct reason reason;
    size_t offset = record;
    assert_int_equal(order_next(buf_slice(&buf), "order.log", &offset, &read, &reason),
                     ERR_CORRUPT);
    char wanted[100];
    snprintf(wanted, sizeof wanted, "order.log: offset %zu: a record does not match its hash",
             record);
    assert_string_equal(reason.text, wanted);
}

TEST(a_rewind_keeps_what_led_to_its_cut)
{
    scoped(buf_release) struct buf buf = {0};
    fill(&buf);
    size_t record = buf.bytes / STEPS;
    for (uint64_t version = 0; version < 2 * STEPS; version++)
        assert_int_equal(order_keep_steps(buf_slice(&buf), version),
                         record * (version < STEPS ? version : STEPS));
    buf.bytes -= 1;
    assert_int_equal(order_keep_steps(buf_slice(&buf), STEPS), record * (STEPS - 1));
}

TEST(a_step_that_cannot_be_is_corrupt)
{
    scoped(buf_release) struct buf buf = {0};
    struct order_record record;
    struct order_step step;
    size_t offset = 0;
    fill(&buf);
    assert_int_equal(order_next(buf_slice(&buf), "", &offset, &record, NULL), ERR_OK);
    record.payload.bytes--;
    assert_int_equal(order_step(&record, &step), ERR_CORRUPT);
    record.payload.bytes = 19;
    assert_int_equal(order_step(&record, &step), ERR_CORRUPT);
    record.payload.bytes = 20 + SLOTS;
    buf.data[8 + 20] = 1; /* step 0 cannot be behind */
    assert_int_equal(order_step(&record, &step), ERR_CORRUPT);
    buf.data[8 + 20] = 0;
    assert_int_equal(order_step(&record, &step), ERR_OK);
    record.kind = (enum order_kind)99;
    assert_int_equal(order_step(&record, &step), ERR_CORRUPT);
}

TEST(what_servers_of_an_async_run_write_is_read_back)
{
    const struct order_chunk chunks[] = {{3, 100, 99}, {9, 7, 7}};
    const struct order_chunks written[] = {
        {.kind = ORDER_BEGIN, .generation = 4, .boot = 5, .count = 1, .chunks = chunks},
        {.kind = ORDER_PULL, .attempt = 11, .count = 2, .chunks = chunks},
        {.kind = ORDER_TAKE,
         .attempt = 11,
         .ticket = 12,
         .scale = 0.5f,
         .count = 2,
         .chunks = chunks},
    };
    scoped(buf_release) struct buf buf = {0};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(order_append_chunks(&buf, &written[i]), ERR_OK);
    size_t offset = 0;
    for (size_t i = 0; i < 3; i++) {
        struct order_record record;
        struct order_chunk room[ORDER_CHUNKS_MAX];
        struct order_chunks read;
        assert_int_equal(order_next(buf_slice(&buf), "log", &offset, &record, NULL), ERR_OK);
        assert_int_equal(order_chunks(&record, room, &read), ERR_OK);
        assert_int_equal(read.kind, written[i].kind);
        assert_int_equal(read.attempt, written[i].attempt);
        assert_int_equal(read.ticket, written[i].ticket);
        assert_true(read.scale == written[i].scale);
        assert_int_equal(read.generation, written[i].generation);
        assert_int_equal(read.boot, written[i].boot);
        assert_int_equal(read.count, written[i].count);
        for (uint32_t c = 0; c < read.count; c++) {
            assert_int_equal(read.chunks[c].chunk, chunks[c].chunk);
            assert_int_equal(read.chunks[c].version, chunks[c].version);
            assert_int_equal(read.chunks[c].used, chunks[c].used);
        }
        record.payload.bytes--;
        assert_int_equal(order_chunks(&record, room, &read), ERR_CORRUPT);
        record.kind = ORDER_STEP;
        assert_int_equal(order_chunks(&record, room, &read), ERR_CORRUPT);
    }
}
