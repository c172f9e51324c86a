/* What tickets cost goes with the Complete of a ticket of the same place and kind. */
#include "worker/worker_meter.h"

#include "tests/unit/unit.h"

static struct place_cost moved(uint64_t bytes)
{
    return (struct place_cost){.device_bytes = 1, .busy_ns = 10 * bytes, .peer_bytes = bytes};
}

static uint64_t told(struct worker *worker, enum ticket_kind kind, const struct place *place)
{
    const struct place_cost cost = worker_meter_take(worker, kind, place);
    assert_int_equal(cost.busy_ns, 10 * cost.peer_bytes);
    return cost.peer_bytes;
}

/* Two lanes: the ticket of training still pushes when that of validation is done. */
TEST(a_ticket_takes_nothing_of_the_other_kind)
{
    static struct worker worker;
    const struct place place = {.stage = 1};
    const struct place_cost training = moved(100), validation = moved(7);
    worker = (struct worker){0};
    worker_meter_add(&worker, TICKET_TRAIN, &place, &training);
    worker_meter_add(&worker, TICKET_VALIDATE, &place, &validation);
    assert_int_equal(told(&worker, TICKET_VALIDATE, &place), 7);
    assert_int_equal(told(&worker, TICKET_TRAIN, &place), 100);
    assert_int_equal(told(&worker, TICKET_TRAIN, &place), 0);
}

TEST(what_nobody_was_told_goes_with_the_next_of_its_kind)
{
    static struct worker worker;
    const struct place place = {.stage = 1};
    const struct place_cost training = moved(100);
    worker = (struct worker){0};
    worker_meter_add(&worker, TICKET_TRAIN, &place, &training);
    worker_meter_add(&worker, TICKET_TRAIN, &place, &training);
    assert_int_equal(told(&worker, TICKET_TRAIN, &place), 200);
}

TEST(another_place_is_told_nothing_of_this_one)
{
    static struct worker worker;
    const struct place before = {.stage = 1}, after = {.stage = 2};
    const struct place_cost training = moved(100);
    worker = (struct worker){0};
    worker_meter_add(&worker, TICKET_TRAIN, &before, &training);
    assert_int_equal(told(&worker, TICKET_TRAIN, &after), 0);
    worker_meter_add(&worker, TICKET_TRAIN, &after, &training);
    assert_int_equal(told(&worker, TICKET_TRAIN, &before), 0);
    assert_int_equal(told(&worker, TICKET_TRAIN, &after), 100);
}
