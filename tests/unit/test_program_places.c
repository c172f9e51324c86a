/* Programs of several places: what the validator refuses, and what the passes add. */
#include "tests/unit/schedule_fixture.h"

#include "worker/program/mesh.h"

/* "" when the text is a valid program, else what the validator says. */
static void judged(const char *text, const char *wanted)
{
    scoped(program_release) struct program program = {0};
    struct reason reason = {.text = ""};
    assert_int_equal(program_parse(slice_of(text), &program, &reason), ERR_OK);
    enum err err = program_validate(&program, &reason);
    if (strstr(reason.text, wanted) == NULL || err != (wanted[0] ? ERR_INVALID : ERR_OK))
        fail_msg("\"%s\" is said, not \"%s\"", reason.text, wanted);
}

#define LOW "LOAD,0UNSHARD,0F0,0SEND_F0,0RECV_B0,0CLEAR,0B0,0REDUCE_GRAD\n"
#define HIGH "LOAD,1UNSHARD,1RECV_F0,1CLEAR,1F0,1B0,1SEND_B0,1SUM,1LOSS,1REDUCE_GRAD\n"

TEST(two_places_together_compute_what_one_does)
{
    judged(LOW HIGH, "");
    judged(HIGH LOW, "");
    judged(LOW "LOAD,1UNSHARD,1RECV_F0,1CLEAR,1F0,1I0,1SEND_B0,1W0,1SUM,1LOSS,1REDUCE_GRAD\n", "");
}

TEST(places_that_wait_for_each_other_are_named)
{
    judged(
        "LOAD,0UNSHARD,0F0,0RECV_B0,0SEND_F0,0CLEAR,0B0,0REDUCE_GRAD\n" HIGH,
        "program place 0, row 4 (RECV_B of unit 0, microbatch 0): place 1 sends it in row 7, but "
        "waits itself in row 3: the places wait for each other");
}

TEST(what_nobody_sends_is_not_waited_for)
{
    judged("LOAD,0UNSHARD,0F0,0RECV_B0,0CLEAR,0B0,0REDUCE_GRAD\n" HIGH,
           "program place 1, row 3 (RECV_F of unit 1, microbatch 0): nobody sends it");
    judged(LOW "LOAD,1UNSHARD,1RECV_F0,1RECV_F0,1CLEAR,1F0\n",
           "program place 1, row 4 (RECV_F of unit 1, microbatch 0): nobody sends it, or not once");
}

TEST(what_is_sent_is_received)
{
    judged("LOAD,0UNSHARD,0F0,0SEND_F0,0CLEAR,0B0\n" HIGH,
           "program place 0, row 6 (B of unit 0, microbatch 0): the gradient of its result");
    judged(LOW "LOAD,1UNSHARD,1CLEAR,1F0",
           "program place 1, row 4 (F of unit 1, microbatch 0): the unit's input has not arrived");
    judged("LOAD,0UNSHARD,0F0,0SEND_F0,0SEND_F0\n" HIGH, "row 5 (SEND_F of unit 0, microbatch 0): "
                                                         "it is sent already");
}

TEST(what_is_sent_again_is_left_over)
{
    judged("LOAD,0UNSHARD,0F0,0SEND_F0,0RECV_B0,0SEND_F0,0CLEAR,0B0,0REDUCE_GRAD\n" HIGH,
           "program place 0 ends after row 9: unit 0 has a result that nobody receives");
}

TEST(values_go_to_another_place_only)
{
    judged("LOAD,ZERO,0UNSHARD,1UNSHARD,0F0,0SEND_F0,1RECV_F0,1F0",
           "program row 6 (SEND_F of unit 0, microbatch 0): no other place has the next unit");
    judged("LOAD,ZERO,0UNSHARD,1UNSHARD,0F0,1RECV_F0,1F0", "no other place has the unit before");
    judged(LOW "LOAD,1UNSHARD,1RECV_B0,1RECV_F0,1CLEAR,1F0", "no other place has the next unit");
}

TEST(a_unit_and_slot_is_one_places)
{
    judged(LOW HIGH "\n", "");
    judged("LOAD,0UNSHARD,0F0,0SEND_F0,1LOSS\n" HIGH,
           "program place 0, row 5 (LOSS of unit 1): another place has this unit");
    judged("0F0\n1F0\n1F0\n", "program has 3 places, more than its 2 units");
}

#define SLOT0 "LOAD,0UNSHARD,0CLEAR,0F0,0B0,0SUM,0LOSS,0REDUCE_GRAD,"

TEST(slots_are_pushed_in_order)
{
    judged(SLOT0 "LOAD1,0CLEAR1,0F1,0B1,0SUM1,0LOSS1,0REDUCE_GRAD1", "");
    judged("LOAD,LOAD1,0UNSHARD,0CLEAR,0CLEAR1,0F0,0F1,0B0,0B1,0SUM1,0LOSS1,0SUM,0LOSS,"
           "0REDUCE_GRAD,0REDUCE_GRAD1",
           "");
    judged("LOAD,LOAD1,0UNSHARD,0CLEAR,0CLEAR1,0F0,0F1,0B0,0B1,0SUM1,0LOSS1,0SUM,0LOSS,"
           "0REDUCE_GRAD1",
           "row 14 (PUSH of unit 0, slot 1): slots add up in order");
    judged(SLOT0 "LOAD1,0CLEAR1,0F1,0F2", "microbatches, 3, do not divide into 2 slots");
    judged(SLOT0 "LOAD1,LOAD1,0F1", "row 10 (LOAD of slot 1): samples are loaded already");
    judged(SLOT0 "0CLEAR1,0F1", "row 10 (F of unit 0, microbatch 1): no samples are loaded");
}

/* ---- passes ---- */

static void completed(struct schedule_shape shape, struct passes_options passes, const char *wanted)
{
    scoped(buf_release) struct buf text = {0};
    struct schedule_fixture f = {.shape = shape, .passes = passes};
    schedule_set_up(&f);
    assert_int_equal(program_print(&f.program, &text), ERR_OK);
    assert_int_equal(buf_append(&text, "", 1), ERR_OK);
    if (strcmp((const char *)text.data, wanted) != 0)
        fail_msg("%s", (const char *)text.data);
    schedule_tear_down(&f);
}

TEST(passes_add_what_a_pipeline_needs)
{
    completed((struct schedule_shape){SCHEDULE_1F1B, 2, 1, 3, 2, 1}, (struct passes_options){0},
              "LOAD,0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0CLEAR,0B0,0RECV_B1,0B1,"
              "0REDUCE_GRAD\n"
              "1UNSHARD,1RECV_F0,1F0,LOAD,2UNSHARD,2CLEAR,2F0,2B0,1CLEAR,1B0,1SEND_B0,1RECV_F1,1F1,"
              "2F1,2B1,2SUM,2LOSS,2REDUCE_GRAD,1B1,1SEND_B1,1REDUCE_GRAD\n");
    completed((struct schedule_shape){SCHEDULE_ZB_H1, 2, 1, 2, 2, 2},
              (struct passes_options){.recompute = true},
              "LOAD,0UNSHARD,0F0,0SEND_F0,0DROP0,LOAD1,0F1,0SEND_F1,0DROP1,0RECV_B0,0RC0,0CLEAR,"
              "0I0,0W0,0REDUCE_GRAD,0RECV_B1,0RC1,0CLEAR1,0I1,0W1,0REDUCE_GRAD1\n"
              "LOAD,1UNSHARD,1RECV_F0,1CLEAR,1F0,1I0,1SEND_B0,LOAD1,1RECV_F1,1CLEAR1,1F1,1I1,"
              "1SEND_B1,1W0,1SUM,1LOSS,1REDUCE_GRAD,1W1,1SUM1,1LOSS1,1REDUCE_GRAD1\n");
    completed((struct schedule_shape){SCHEDULE_NAIVE, 1, 1, 2, 1, 1},
              (struct passes_options){.offload = true},
              "LOAD,0UNSHARD,0F0,0OFF_OUT0,1UNSHARD,1CLEAR,1F0,1B0,1SUM,1LOSS,1REDUCE_GRAD,"
              "0OFF_IN0,0CLEAR,0B0,0REDUCE_GRAD\n");
}

/* PipeDream's versions with one microbatch a node; 2BW's two, but for the last place. */
TEST(a_place_has_a_lane_for_each_lease_between_forward_and_backward)
{
    const struct mesh mesh = {.schedule = SCHEDULE_1F1B, .places = 4, .runs = 1};
    const struct mesh halves = {.schedule = SCHEDULE_CHIMERA, .places = 4, .runs = 1};
    const uint32_t pipedream[] = {4, 3, 2, 1}, two[] = {2, 2, 2, 1}, chimera[] = {2, 2, 2, 2};
    for (uint32_t place = 0; place < 4; place++) {
        assert_int_equal(mesh_lanes(&mesh, place, 1, 4), pipedream[place]);
        assert_int_equal(mesh_lanes(&mesh, place, 8, 4), two[place]);
        assert_int_equal(mesh_lanes(&mesh, place, 1, 2), two[place]);
        assert_int_equal(mesh_lanes(&mesh, place, 1, 1), 1);
        assert_int_equal(mesh_lanes(&halves, place, 8, 4), chimera[place]);
    }
}

/* Twelve stages, of which a place has any two or more. */
TEST(places_of_a_written_program_have_lanes_by_the_runs_behind_their_first)
{
    const struct mesh mesh = {.schedule = SCHEDULE_1F1B,
                              .places = 3,
                              .runs = 1,
                              .rows = "1F0,3F0,3B0,1B0;2F0,10F0,10B0,2B0;0F0,11F0,11B0,0B0"};
    const uint32_t behind[] = {10, 9, 11}, lanes[] = {5, 4, 5};
    for (uint32_t place = 0; place < 3; place++) {
        assert_int_equal(mesh_behind(&mesh, place), behind[place]);
        assert_int_equal(mesh_lanes(&mesh, place, 3, 8), lanes[place]);
    }
}

/* Each half of a chimera's node is pulled, and pushed, where it is computed. */
TEST(a_chimera_place_has_a_run_of_each_half)
{
    completed((struct schedule_shape){SCHEDULE_CHIMERA, 2, 1, 2, 2, 2}, (struct passes_options){0},
              "LOAD,0UNSHARD,0F0,0SEND_F0,LOAD1,1UNSHARD,1RECV_F1,1CLEAR1,1F1,1B1,1SEND_B1,1SUM1,"
              "1LOSS1,1REDUCE_GRAD1,0RECV_B0,0CLEAR,0B0,0REDUCE_GRAD\n"
              "LOAD1,0UNSHARD,0F1,0SEND_F1,LOAD,1UNSHARD,1RECV_F0,1CLEAR,1F0,1B0,1SEND_B0,1SUM,"
              "1LOSS,1REDUCE_GRAD,0RECV_B1,0CLEAR1,0B1,0REDUCE_GRAD1\n");
}

static void validated(struct schedule_shape shape, uint32_t *cuts, const char *wanted)
{
    uint32_t places[] = {0, 1, 0, 1};
    const struct pipeline_runs runs = {shape.places * shape.runs, cuts, places};
    scoped(program_release) struct program compute = {0}, program = {0};
    scoped(buf_release) struct buf text = {0};
    struct reason reason = {.text = ""};
    assert_int_equal(schedule_validation(&shape, &runs, &compute), ERR_OK);
    assert_int_equal(
        passes_complete(&compute, &(struct passes_options){.recompute = true}, &program), ERR_OK);
    assert_int_equal(program_validate(&program, &reason), ERR_OK);
    assert_int_equal(program_print(&program, &text), ERR_OK);
    assert_int_equal(buf_append(&text, "", 1), ERR_OK);
    assert_string_equal((const char *)text.data, wanted);
}

TEST(validation_goes_forward_alone_through_the_places)
{
    validated((struct schedule_shape){SCHEDULE_1F1B, 2, 1, 3, 2, 1}, (uint32_t[]){0, 1, 3},
              "LOAD,0UNSHARD,0E0,0SEND_E0,0E1,0SEND_E1\n"
              "1UNSHARD,1RECV_F0,1E0,LOAD,2UNSHARD,2E0,1RECV_F1,1E1,2E1,2SUM\n");
    validated((struct schedule_shape){SCHEDULE_INTERLEAVED, 2, 2, 4, 1, 1},
              (uint32_t[]){0, 1, 2, 3, 4},
              "LOAD,0UNSHARD,0E0,0SEND_E0,2UNSHARD,2RECV_F0,2E0,2SEND_E0\n"
              "1UNSHARD,1RECV_F0,1E0,1SEND_E0,LOAD,3UNSHARD,3RECV_F0,3E0,3SUM\n");
    judged("LOAD,0UNSHARD,0E0,0SEND_E0,0SEND_E0\n1UNSHARD,1E0\n", "row 5 (SEND_E of unit 0, micro");
    judged("LOAD,0UNSHARD,0E0\nLOAD,1UNSHARD,1RECV_F0,1E0,1SUM\n", "nobody sends it");
}

/* ---- what is kept ---- */

TEST(gradients_of_slots_are_a_binary_counter)
{
    static const struct {
        struct schedule_shape shape;
        uint32_t wanted;
    } rows[] = {
        {{SCHEDULE_1F1B, 2, 1, 2, 4, 1}, 1},    {{SCHEDULE_1F1B, 2, 1, 2, 8, 2}, 2},
        {{SCHEDULE_1F1B, 2, 1, 2, 16, 4}, 3},   {{SCHEDULE_1F1B, 2, 1, 2, 32, 8}, 4},
        {{SCHEDULE_CHIMERA, 2, 1, 2, 4, 2}, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct schedule_fixture f = {.shape = rows[i].shape};
        uint32_t sets[2];
        schedule_set_up(&f);
        assert_int_equal(simulate_gradient_sets(&f.program, 0, sets), ERR_OK);
        assert_int_equal(sets[0], rows[i].wanted);
        schedule_tear_down(&f);
    }
}

/* 1000 bytes saved a unit, boundaries of 64. */
TEST(a_place_holds_what_its_schedule_keeps)
{
    struct schedule_fixture f = {.shape = {SCHEDULE_1F1B, 4, 1, 4, 8, 1}, .boundary_bytes = 64};
    schedule_set_up(&f);
    /* Of each microbatch kept: what arrived, the result, what is saved; two gradients at the end. */
    assert_int_equal(f.result.places[1].arena_bytes, 3 * (64 + 64 + 1024) + 64 + 64);
    assert_int_equal(f.result.places[1].outbox_bytes, 2 * 8 * 64);
    assert_int_equal(f.result.places[1].arrived_bytes, 2 * 8 * 64);
    assert_int_equal(f.result.places[1].hosted_bytes, 0);
    schedule_tear_down(&f);
    f = (struct schedule_fixture){.shape = f.shape, .passes = {.offload = true}};
    schedule_set_up(&f);
    assert_int_equal(f.result.places[1].hosted_bytes, 3 * 1024);
    schedule_tear_down(&f);
}

/* ---- the way between places ---- */

/* Forward and back again, over two ways of 3000 ticks. */
TEST(a_place_waits_until_a_value_has_come)
{
    struct schedule_fixture f = {.shape = {SCHEDULE_1F1B, 2, 1, 2, 1, 1}, .boundary_bytes = 64};
    const struct simulate_cost costs[] = {{100, 50, 70}, {200, 10, 20}};
    const struct program_sizes sizes[] = {{.output = 64}, {.dinput = 64}};
    const struct simulate_options options = {costs, sizes, .link_bytes = 32, .link_ticks = 1500};
    schedule_set_up(&f);
    simulate_release(&f.result);
    assert_int_equal(simulate_program(&f.program, &options, &f.result), ERR_OK);
    assert_int_equal(f.result.time, 100 + 3000 + 200 + 30 + 3000 + 120);
    assert_int_equal(f.result.places[0].busy, 220);
    assert_idle_share(&f, 1 - 450. / (2 * 6450));
    schedule_tear_down(&f);
}
