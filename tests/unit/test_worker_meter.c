/* What tickets cost goes with the Complete of a ticket of the same place and kind. */
#include "worker/worker_meter.h"

#include "tests/unit/executor_fixture.h"

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

/* The first place of a gpipe keeps all microbatches of the node. */
TEST_F(the_room_for_younger_tickets_is_that_of_the_ticket_s_program, executor,
       .settings = fixture_mlp())
{
    static struct worker worker;
    struct worker_lane *lane = &worker.lanes[1];
    const struct mesh mesh = {.schedule = SCHEDULE_GPIPE, .places = 2, .runs = 1};
    const struct executor_options options = {.kernels = f->k,
                                             .model = &f->model,
                                             .train = &f->train,
                                             .node_slots_max = 2,
                                             .mesh = &mesh};
    const uint32_t behind = mesh_behind(&mesh, 0), of_slot = 2;
    struct executor_hooks hooks = {.context = lane};
    worker = (struct worker){.run.mesh = mesh};
    assert_int_equal(executor_new(&options, &worker.run.executors[1], NULL), ERR_OK);
    lane->worker = &worker;
    lane->number = 1;
    turn_init(&worker.turn);
    worker_meter_hooks(&hooks);
    for (uint8_t level = 0; level < 2; level++) {
        const struct ticket ticket = fixture_ticket(0, level, 0);
        assert_int_equal(executor_begin(worker.run.executors[1], &ticket, &f->samples, &hooks),
                         ERR_OK);
        worker_meter_begin(lane);
        turn_begin(&worker.turn, 1, &ticket);
        hooks.row_begins(lane, executor_ticket_program(worker.run.executors[1])->places[0].rows);
        assert_int_equal(lane->meter.room.most,
                         lane->meter.room.each * ((of_slot << level) + behind));
        turn_end(&worker.turn, 1);
        ignore(executor_end(worker.run.executors[1], ERR_CANCELLED, NULL));
    }
    turn_release(&worker.turn);
    executor_free(worker.run.executors[1]);
}
