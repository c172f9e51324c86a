/* Programs that a user wrote: what is taken of their file, what is refused and how it is named. */
#include "tests/unit/unit.h"

#include "common/program/rows.h"
#include "tests/models.h"
#include "worker/program/mesh.h"

static const char right[] = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"; /* another warm-up than 1f1b */
static const char taken[] = "0F0,0F1,0B0,0B1;1F0,1F1,1B0,1B1";

static struct schedule_shape shape_of(const char *rows, uint32_t places)
{
    return (struct schedule_shape){.schedule = SCHEDULE_1F1B,
                                   .places = places,
                                   .runs = 1,
                                   .units = 4,
                                   .microbatches = 2,
                                   .slots = 1,
                                   .program = "my.csv",
                                   .rows = rows};
}

static void assert_taken(const char *text, const char *wanted)
{
    scoped(buf_release) struct buf rows = {0};
    struct reason reason = {.text = ""};
    if (rows_of_file("my.csv", slice_of(text), &rows, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    assert_string_equal((const char *)rows.data, wanted);
}

TEST(a_file_is_taken_without_what_is_blank)
{
    assert_taken(right, taken);
    assert_taken("0F0, 0F1,,0B0,\t0B1,\r\n\r\n1F0,1F1,1B0,1B1", taken);
}

/* As `roost program` prints it. */
TEST(of_all_acts_those_that_compute_are_taken)
{
    scoped(program_release) struct program whole = {0};
    scoped(buf_release) struct buf text = {0}, rows = {0};
    struct model model =
        model_of((struct spec_model){.kind = SPEC_MLP, .sizes_count = 3, .sizes = {5, 11, 4}});
    const struct mesh mesh = {.schedule = SCHEDULE_GPIPE, .places = 2, .runs = 1};
    assert_int_equal(mesh_training(&mesh, &model, (struct mesh_node){1, 2}, &whole, NULL), ERR_OK);
    assert_int_equal(program_print(&whole, &text), ERR_OK);
    assert_int_equal(rows_of_file("my.csv", buf_slice(&text), &rows, NULL), ERR_OK);
    assert_string_equal((const char *)rows.data, "0F0,0F1,0B0,0B1;1F0,1F1,1B0,1B1");
    model_release(&model);
}

TEST(a_file_that_is_none_is_refused_with_its_place)
{
    static char large[5 * SPEC_ROWS_BYTES];
    static const struct {
        const char *text, *wanted;
    } rows[] = {
        {"", "my.csv has no acts"},
        {",,\n\r\n", "my.csv has no acts"},
        {"0F0,0F1\n1F0;0Q1", "my.csv line 3, column 2: no such act"},
        {"0F0,\x01", "my.csv line 1, column 5: no such act"},
        {"2(,0F0,0B0,)", "my.csv has local steps, which need all units in one place"},
        {"0UNSHARD,0F0,1F0\n1B0,0B0",
         "my.csv place 0, row 2 (F of unit 0, microbatch 0): no samples are loaded"},
        {"0F0,0B0\n1SEND_F0", "my.csv place 1 computes nothing"},
        {large, "my.csv: its acts take 45870 bytes, and a run's program may take 32767"},
    };
    for (size_t i = 0; i < 2 * SPEC_ROWS_BYTES / 10; i++)
        memcpy(large + 7 * i, "10F100,", 7);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scoped(buf_release) struct buf buf = {0};
        struct reason reason = {.text = ""};
        assert_int_equal(rows_of_file("my.csv", slice_of(rows[i].text), &buf, &reason),
                         ERR_INVALID);
        assert_string_equal(reason.text, rows[i].wanted);
    }
    struct buf none = {0};
    const struct slice zero = {(const uint8_t *)"0F0,\0", 5};
    assert_int_equal(rows_of_file("my.csv", zero, &none, NULL), ERR_INVALID);
}

TEST(rows_that_no_run_could_follow_are_refused_with_place_and_row)
{
    static const struct {
        uint32_t places;
        const char *rows, *wanted;
    } rows[] = {
        {3, taken, "my.csv has 2 places, and the mesh 3"},
        {2, "0F0,0E1,0B0,0B1;1F0,1F1,1B0,1B1",
         "my.csv place 0, row 2 (E of unit 0, microbatch 1): F, B, I and W compute, and roost adds "
         "the others"},
        {2, "0F0,0B0;1F0,1B0,2F0,2B0,3F0,3B0,4F0,4B0",
         "my.csv names 5 stages, and the model has 4 units to give to them"},
        {2, "0F0,0B0;1F65535,1B65535",
         "my.csv place 0 ends after row 2 without F of unit 0, microbatch 1"},
        {2, "0F0,0F1,0B0;1F0,1F1,1B0,1B1",
         "my.csv place 0 ends after row 3 without B of unit 0, microbatch 1"},
        {2, "0F0,0F1,0B0,0B1;1F0,1F1,1B1",
         "my.csv place 1 ends after row 3 without B of unit 1, microbatch 0"},
        {2, "0F0,0F1,0I0,0W0,0I1;1F0,1F1",
         "my.csv place 0 ends after row 5 without W of unit 0, microbatch 1"},
        {2, "0F0,0B0;2F0,2B0", "my.csv has no acts of unit 1"},
        {2, "0F0,0B0;1F0,1B0",
         "my.csv has 1 microbatch, and a slot of the run 2 (train.slot_samples / "
         "train.microbatch): a multiple of that would do"},
        {2, "0F0,0F1,0B0,0B1,0F2,0F3,0B2,0B3;1F0,1F1,1B0,1B1,1F2,1F3,1B2,1B3",
         "my.csv has the microbatches of 2 slots, and a node has 1: train.node_slots: 2 would do"},
        {2, "0F0,0F1,0B0,0B1;0F0,0F1,0B0,0B1",
         "my.csv place 1, row 1 (F of unit 0, microbatch 0): place 0 has acts of this unit, too"},
        {2, "0F0,0F1,0B0,0B1,0F0,0F1;2F0,2F1,2B0,2B1,2F0,2F1", "my.csv has no acts of unit 1"},
        {4, "0F0,0F1,0B0,0B1;2F0,2F1,2B0,2B1;1F0,1F1,1B0,1B1;3F0,3F1,3B0,3B1",
         "my.csv: place 0 hands unit 0's result to place 2, and only places beside each other can, "
         "and the last and the first"},
        {2, "0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1;1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1",
         "my.csv place 0 computes unit 3, the last one, which the last place does: another order "
         "of "
         "the lines would do"},
        /* deadlock; a gradient that is dropped, or never comes; sums out of order; a forward twice */
        {2, "0F0,0B0,0F1,0B1;1F0,1F1,1B0,1B1",
         "my.csv place 0, row 2 (RECV_B of unit 0, microbatch 0): place 1 sends it in row 3, but "
         "waits itself in row 2: the places wait for each other"},
        {2, "0F0,0F1,0B0,0F1;1F0,1F1,1B0,1B1",
         "my.csv place 0, row 4 (F of unit 0, microbatch 1): this forward has run already"},
        {2, "0F0,0F1,0B0,0B1;1F0,1F1,1B0,1I1",
         "my.csv place 1 ends after row 4: unit 1 has a forward without a backward"},
        {2, "0F0,0F1,0B0,0B1;1F0,1F1,1B1,1B0",
         "my.csv place 1, row 3 (B of unit 1, microbatch 1): microbatches add up in order, and "
         "this "
         "is not the next one"},
        {2, "0F0,0F1,0B1,0B0;1F0,1F1,1B0,1B1",
         "my.csv place 0, row 3 (B of unit 0, microbatch 1): microbatches add up in order, and "
         "this "
         "is not the next one"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct reason reason = {.text = ""};
        const struct schedule_shape shape = shape_of(rows[i].rows, rows[i].places);
        assert_int_equal(rows_judge(&shape, &reason), ERR_INVALID);
        assert_string_equal(reason.text, rows[i].wanted);
    }
}

/* Stages alternate over two places: "0F0,2F0,…,2B0,0B0;1F0,3F0,…". */
static void write_alternating(struct buf *text, uint32_t stages)
{
    for (uint32_t place = 0; place < 2; place++) {
        for (uint32_t stage = place; stage < stages; stage += 2)
            assert_int_equal(buf_printf(text, "%uF0,", stage), ERR_OK);
        for (uint32_t stage = stages - 2 + place; stage < stages; stage -= 2)
            assert_int_equal(
                buf_printf(text, "%uB0%s", stage, stage > 1 ? "," : (place == 0 ? ";" : "")),
                ERR_OK);
    }
}

/* A worker keeps a sum of digests for each boundary and way (worker/boundary_sums.h). */
TEST(a_place_has_at_most_sixteen_boundaries_with_others)
{
    for (uint32_t stages = 16; stages <= 18; stages += 2) {
        scoped(buf_release) struct buf text = {0};
        struct reason reason = {.text = ""};
        write_alternating(&text, stages);
        struct schedule_shape shape = shape_of((const char *)text.data, 2);
        shape.units = 18;
        shape.microbatches = 1;
        assert_int_equal(rows_judge(&shape, &reason), stages == 16 ? ERR_OK : ERR_INVALID);
        assert_string_equal(reason.text,
                            stages == 16
                                ? ""
                                : "my.csv place 0 has 17 boundaries with other places, and a place "
                                  "may have 16: fewer stages, or more places, would do");
    }
}

static uint32_t rows_of(const struct program *program, uint32_t place, enum act act)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < program->places[place].rows_count; i++)
        count += program->places[place].rows[i].act == act;
    return count;
}

/* Stages may be runs of units, a place may have two that do not follow each other, and larger nodes are
 * repetitions: whatever the worker adds, it is a program. */
TEST(what_is_judged_well_is_a_program_of_the_model_for_nodes_of_every_size)
{
    static const struct {
        uint32_t places;
        const char *rows;
        uint32_t pulls; /* of place 0 */
    } rows[] = {
        {2, taken, 2},
        {2, "0F0,0F1,0B0,0B1;1F0,1I0,1F1,1I1,1W0,1W1", 2},
        {2, "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1;0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1", 2},
        {3, "0F0,0F1,0B0,0B1;1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1;3F0,3B0,3F1,3B1", 1},
    };
    struct model model = model_of(
        (struct spec_model){.kind = SPEC_MLP, .sizes_count = 5, .sizes = {5, 11, 9, 7, 4}});
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (uint32_t slots = 1; slots <= 4; slots++)
            for (int kind = 0; kind < 4; kind++) {
                scoped(program_release) struct program program = {0}, validation = {0};
                struct reason reason = {.text = ""};
                const struct mesh mesh = {
                    .places = rows[i].places,
                    .runs = 1,
                    .schedule = SCHEDULE_1F1B,
                    .recompute = kind == 1,
                    .offload = kind == 2,
                    .residency = {.streamed = kind == 3, .by_unit = true, .prefetch = 1},
                    .program = "my.csv",
                    .rows = rows[i].rows};
                const struct mesh_node node = {slots, 2};
                if (mesh_training(&mesh, &model, node, &program, &reason) != ERR_OK ||
                    program_validate(&program, &reason) != ERR_OK)
                    fail_msg("row %zu, %u slots: %s", i, slots, reason.text);
                assert_int_equal(mesh_validation(&mesh, &model, node, &validation), ERR_OK);
                assert_int_equal(program_validate(&validation, &reason), ERR_OK);
                if (kind < 3)
                    assert_int_equal(rows_of(&program, 0, ACT_PULL), rows[i].pulls);
            }
    model_release(&model);
}
