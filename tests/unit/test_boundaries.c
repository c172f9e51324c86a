/* What passes between places: which two, in which order, under which name. */
#include "tests/unit/mesh_fixture.h"

#include "worker/boundary_sums.h"
#include "worker/program/mesh.h"

static bool is_way(enum act act, enum value_way way)
{
    return way == VALUE_FORWARD ? act == ACT_SEND_F || act == ACT_SEND_E || act == ACT_RECV_F
                                : act == ACT_SEND_B || act == ACT_RECV_B;
}

static bool sends(enum act act)
{
    return act == ACT_SEND_F || act == ACT_SEND_E || act == ACT_SEND_B;
}

/* The name of what the row sends or receives: a forward's unit sends over the boundary behind
 * it. */
static struct value_name name_of(const struct ticket *ticket, const struct program *program,
                                 struct program_row row, uint32_t microbatches)
{
    bool behind = row.act == ACT_SEND_F || row.act == ACT_SEND_E || row.act == ACT_RECV_B;
    const struct executor_value value = {
        is_way(row.act, VALUE_FORWARD) ? EXECUTOR_FORWARD : EXECUTOR_BACKWARD, row.unit + behind,
        program_slot(program, row), row.microbatch % microbatches, 8};
    return boundaries_name(ticket, 0, &value);
}

/* Each row of the program that sends or receives is a value that passes from or to its place. */
static uint32_t passes(const struct mesh_fixture *f, const struct ticket *ticket,
                       const struct program *program)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < program->places_count; p++)
        for (uint32_t i = 0; i < program->places[p].rows_count; i++) {
            struct program_row row = program->places[p].rows[i];
            struct passage passage;
            if (!is_way(row.act, VALUE_FORWARD) && !is_way(row.act, VALUE_BACKWARD))
                continue;
            struct value_name name = name_of(ticket, program, row, f->boundaries.microbatches);
            assert_true(boundaries_pass(&f->boundaries, ticket, &name, &passage));
            assert_int_equal(sends(row.act) ? passage.from : passage.to, p);
            assert_true(boundaries_index(&f->boundaries, ticket, &name) <
                        boundaries_values(&f->boundaries, ticket));
            count++;
        }
    return count;
}

TEST(what_a_program_sends_passes_from_its_place_to_the_one_that_receives_it)
{
    static const struct {
        enum schedule_kind schedule;
        uint32_t places, runs;
        struct node node;
        uint32_t boundaries; /* crossed by each microbatch */
        const char *written;
    } rows[] = {
        {SCHEDULE_1F1B,
         2,
         1,
         {1, 1},
         2,
         "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1;0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1"},
        {SCHEDULE_1F1B, 4, 1, {1, 1}, 3},
        {SCHEDULE_ZB_H1, 4, 1, {0, 3}, 3},
        {SCHEDULE_INTERLEAVED, 2, 2, {1, 0}, 3},
        {SCHEDULE_CHIMERA, 4, 1, {1, 2}, 3},
        {SCHEDULE_CHIMERA, 2, 1, {2, 0}, 1},
        {SCHEDULE_CHIMERA, 4, 1, {2, 1}, 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mesh_fixture f = {.schedule = rows[i].schedule};
        struct program program;
        mesh_set_up(&f);
        boundaries_release(&f.boundaries);
        f.spec.mesh =
            (struct spec_mesh){rows[i].places, 1, rows[i].schedule, rows[i].runs, "my.csv"};
        if (rows[i].written != NULL)
            snprintf(f.spec.mesh.rows, sizeof f.spec.mesh.rows, "%s", rows[i].written);
        assert_int_equal(boundaries_init(&f.boundaries, &f.spec, &f.model), ERR_OK);
        f.ticket.node = rows[i].node;
        const struct mesh mesh = mesh_of(&f.spec);
        struct mesh_node node = {node_slots(f.ticket.node, f.spec.train.slots), 2};
        assert_int_equal(mesh_training(&mesh, &f.model, node, &program, NULL), ERR_OK);
        /* both ways, sent and received */
        assert_int_equal(passes(&f, &f.ticket, &program),
                         4 * rows[i].boundaries * node.slots * node.microbatches);
        program_release(&program);
        struct ticket piece = f.ticket;
        piece.kind = TICKET_VALIDATE;
        piece.node = (struct node){0, 40}; /* no slot of a step */
        struct mesh_node one = {1, 2};
        assert_int_equal(mesh_validation(&mesh, &f.model, one, &program), ERR_OK);
        assert_int_equal(passes(&f, &piece, &program), 2 * rows[i].boundaries * 2);
        program_release(&program);
        mesh_tear_down(&f);
    }
}

TEST_F(a_name_is_of_one_lease_alone, mesh)
{
    const struct value_name right = mesh_name(f, 1, 0);
    struct value_name wrong[7];
    for (int i = 0; i < 7; i++)
        wrong[i] = right;
    wrong[0].generation++;
    wrong[1].kind = TICKET_VALIDATE;
    wrong[2].step++;
    wrong[3].version++;
    wrong[4].slot = 1;
    wrong[5].slot = 4;
    wrong[6].slot = UINT32_MAX;
    assert_int_equal(right.slot, 2);
    assert_true(boundaries_cover(&f->boundaries, &f->ticket, &right));
    for (int i = 0; i < 7; i++)
        assert_false(boundaries_cover(&f->boundaries, &f->ticket, &wrong[i]));
}

TEST_F(what_no_neighbour_sends_does_not_pass, mesh)
{
    struct passage passage;
    struct value_name names[5];
    for (int i = 0; i < 5; i++)
        names[i] = mesh_name(f, 1, 0);
    assert_true(boundaries_pass(&f->boundaries, &f->ticket, &names[0], &passage));
    names[0].boundary = 0;
    names[1].boundary = STAGES;
    names[2].microbatch = 2;
    names[3].slot = 7;
    names[4].boundary = UINT32_MAX;
    for (int i = 0; i < 5; i++)
        assert_false(boundaries_pass(&f->boundaries, &f->ticket, &names[i], &passage));
}

TEST_F(values_follow_each_other_to_the_end_of_the_half, mesh, .schedule = SCHEDULE_CHIMERA)
{
    struct value_name name = mesh_name(f, 1, 0);
    assert_true(boundaries_next(&f->boundaries, &f->ticket, &name));
    assert_int_equal(name.microbatch, 1);
    assert_false(boundaries_next(&f->boundaries, &f->ticket, &name)); /* the other half goes up */
    name = mesh_name(f, 1, 0);
    name.slot = 3;
    assert_true(boundaries_next(&f->boundaries, &f->ticket, &name));
    assert_false(boundaries_next(&f->boundaries, &f->ticket, &name));
}

/* ---- what a place says of them ---- */

TEST(a_sum_is_of_one_boundary_one_way_and_one_direction)
{
    struct boundary_sums sums = {0}, other = {0};
    const struct boundary_sum values[] = {
        {2, VALUE_FORWARD, true, 1, 10}, {2, VALUE_FORWARD, true, 1, UINT64_MAX},
        {2, VALUE_FORWARD, false, 1, 1}, {2, VALUE_BACKWARD, true, 1, 2},
        {2, VALUE_FORWARD, true, 3, 3},  {1, VALUE_FORWARD, true, 1, 4}};
    for (size_t i = 0; i < 6; i++)
        boundary_sums_add(&sums, &values[i]);
    assert_int_equal(sums.count, 5);
    assert_int_equal(sums.list[0].sum, 9);
    boundary_sums_add(&other, &values[1]);
    boundary_sums_add(&other, &values[0]); /* in whatever order they passed */
    assert_int_equal(other.list[0].sum, 9);
}
