/* Devices that compute one ticket together, on a CPU: an executor each. */
#include "tests/unit/executor_fixture.h"

#include "worker/crew.h"

#include <stdatomic.h>

enum { UNITS_MAX = 8 };

struct crewed {
    struct executor_fixture base;
    struct crew *crew;
    atomic_int locked;
    uint32_t pushed_count;
    uint32_t pushed[UNITS_MAX];
    struct node node; /* of the newest push */
    uint32_t pulled_count;
    uint32_t failing; /* device whose samples cannot be read; 0: none */
    atomic_bool cancelled;
};

static void lock(void *context)
{
    struct crewed *c = context;
    assert_int_equal(atomic_fetch_add(&c->locked, 1), 0);
}

static void unlock(void *context)
{
    struct crewed *c = context;
    assert_int_equal(atomic_fetch_sub(&c->locked, 1), 1);
}

static enum err read_nothing(void *context, enum ticket_kind kind, uint64_t first, uint32_t count,
                             void *ret_inputs, int32_t *ret_targets)
{
    (void)context, (void)kind, (void)first, (void)count, (void)ret_inputs, (void)ret_targets;
    return ERR_CORRUPT;
}

static void set_up(struct crewed *c, struct spec_model settings, uint32_t slots, uint32_t devices)
{
    struct executor_fixture *f = &c->base;
    f->settings = settings;
    f->train = fixture_train();
    f->train.slots = slots;
    executor_set_up(f);
    struct crew_options options = {
        .model = &f->model, .slots = slots, .count = devices, .lock = {c, lock, unlock}};
    const struct executor_options part = {.node_slots_max = crew_part_slots(devices, slots),
                                          .sum_slots_max = slots};
    for (uint32_t i = 0; i < devices; i++) {
        options.executors[i] = fixture_executor_of(f, part);
        fixture_weights(f, options.executors[i]);
        options.samples[i] = f->samples;
        if (c->failing > 0 && i == c->failing)
            options.samples[i].read = read_nothing;
    }
    assert_int_equal(crew_new(&options, &c->crew), ERR_OK);
}

static void tear_down(struct crewed *c)
{
    crew_free(c->crew);
    executor_tear_down(&c->base);
}

static enum err pull(void *context, uint32_t unit)
{
    struct crewed *c = context;
    assert_int_equal(unit, c->pulled_count++);
    return ERR_OK;
}

static enum err push(void *context, uint32_t unit, struct node node)
{
    struct crewed *c = context;
    assert_true(c->pushed_count < UNITS_MAX);
    c->pushed[c->pushed_count++] = unit;
    c->node = node;
    return ERR_OK;
}

static bool is_cancelled(void *context)
{
    return atomic_load(&((struct crewed *)context)->cancelled);
}

static enum err run(struct crewed *c, struct ticket ticket, struct executor_loss *ret_loss)
{
    const struct executor_hooks hooks = {
        .context = c, .pull = pull, .push = push, .cancelled = is_cancelled};
    c->pushed_count = c->pulled_count = 0;
    return crew_run(c->crew, &ticket, &hooks, ret_loss);
}

/* The crew's first executor beside one that computes alone. */
static void check_ticket(struct crewed *c, struct ticket ticket)
{
    struct executor_fixture *f = &c->base;
    struct executor_loss together, alone = fixture_run(f, f->executor, ticket);
    size_t bytes = fixture_gradient_floats(f) * sizeof(float);
    assert_int_equal(run(c, ticket, &together), ERR_OK);
    scoped(free_scoped) float *wanted = fixture_gradients(f, f->executor);
    scoped(free_scoped) float *seen = fixture_gradients(f, f->made[1]);
    assert_memory_equal(seen, wanted, bytes);
    assert_memory_equal(&together, &alone, sizeof alone);
    assert_int_equal(c->pulled_count, f->model.units_count);
    assert_int_equal(c->pushed_count, f->model.units_count);
    for (uint32_t i = 0; i < c->pushed_count; i++)
        assert_int_equal(c->pushed[i], f->model.units_count - 1 - i);
    assert_true(node_equal(c->node, ticket.node));
}

static void check_nodes(struct spec_model settings, uint32_t slots, uint32_t devices)
{
    struct crewed c = {0};
    set_up(&c, settings, slots, devices);
    for (uint32_t level = 0; level <= tree_level(slots); level++)
        for (uint32_t index = 0; node_valid((struct node){level, index}, slots); index++)
            check_ticket(&c, fixture_ticket(3, level, index));
    tear_down(&c);
}

TEST(several_devices_have_the_bits_of_one)
{
    check_nodes(fixture_mlp(), 8, 2);
    check_nodes(fixture_mlp(), 8, 3); /* of which two have something to do */
    check_nodes(fixture_gpt(), 8, 4);
    check_nodes(fixture_llama(), 4, 2);
}

TEST(the_last_nodes_of_a_step_have_fewer_parts)
{
    check_nodes(fixture_mlp(), 7, 4);
    check_nodes(fixture_mlp(), 5, 4);
    check_nodes(fixture_gpt(), 6, 2);
    check_nodes(fixture_mlp(), 1, 2);
}

/* The embedding's gradient has few rows of so many words; the first device's gets those of all. */
TEST(rows_of_all_devices_have_room_in_the_first)
{
    check_nodes(fixture_words(fixture_gpt(), 2000), 8, 4);
}

TEST(a_device_has_gradients_for_its_part_alone)
{
    struct crewed c = {0};
    set_up(&c, fixture_mlp(), 8, 4);
    assert_int_equal(executor_memory(c.base.executor).gradient_sets, 4); /* alone */
    for (uint32_t i = 1; i <= 4; i++)
        assert_int_equal(executor_memory(c.base.made[i]).gradient_sets, 2);
    tear_down(&c);
    assert_int_equal(crew_part_slots(8, 8), 1);
    assert_int_equal(crew_part_slots(4, 6), 2);
    assert_int_equal(crew_part_slots(2, 6), 4);
    assert_int_equal(crew_part_slots(1, 6), 6);
    assert_int_equal(crew_part_slots(8, 1), 1);
}

/* Of six slots six of eight devices compute one each. */
TEST(a_crew_has_no_more_devices_than_have_work)
{
    assert_int_equal(crew_devices(8, 1), 1);
    assert_int_equal(crew_devices(8, 2), 2);
    assert_int_equal(crew_devices(8, 4), 4);
    assert_int_equal(crew_devices(8, 6), 8);
    assert_int_equal(crew_devices(7, 6), 4);
    assert_int_equal(crew_devices(16, 16), 16);
    assert_int_equal(crew_devices(1, 16), 1);
}

TEST(the_first_error_ends_all_parts)
{
    struct crewed c = {.failing = 1};
    struct executor_loss loss;
    set_up(&c, fixture_mlp(), 8, 4);
    assert_int_equal(run(&c, fixture_ticket(0, 3, 0), &loss), ERR_CORRUPT);
    assert_int_equal(c.pushed_count, 0);
    check_ticket(&c, fixture_ticket(0, 0, 1)); /* of one slot, which the first device computes */
    tear_down(&c);
}

TEST(who_is_cancelled_ends_and_computes_the_next_ticket)
{
    struct crewed c = {0};
    struct executor_loss loss;
    set_up(&c, fixture_mlp(), 8, 2);
    atomic_store(&c.cancelled, true);
    assert_int_equal(run(&c, fixture_ticket(0, 3, 0), &loss), ERR_CANCELLED);
    atomic_store(&c.cancelled, false);
    check_ticket(&c, fixture_ticket(0, 3, 0));
    tear_down(&c);
}

TEST(a_node_that_the_step_has_not_is_refused)
{
    struct crewed c = {0};
    struct executor_loss loss;
    set_up(&c, fixture_mlp(), 4, 2);
    assert_int_equal(run(&c, fixture_ticket(0, 0, 4), &loss), ERR_MALFORMED);
    assert_int_equal(run(&c, fixture_ticket(0, 2, 1), &loss), ERR_MALFORMED);
    tear_down(&c);
}

/* They compute on the first one's weights, wherever those lie. */
TEST(weights_of_the_first_device_are_those_of_all)
{
    struct crewed c = {0};
    struct executor_fixture *f = &c.base;
    set_up(&c, fixture_mlp(), 8, 2);
    const float *own = executor_weights(f->made[1], 0);
    uint64_t count = f->model.parameters[0].weights;
    scoped(free_scoped) float *moved = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    for (uint64_t i = 0; i < count; i++)
        moved[i] = own[i] * 1.5F;
    executor_point(f->made[1], 0, moved);
    memcpy(executor_weights(f->executor, 0), moved, count * sizeof(float));
    check_ticket(&c, fixture_ticket(0, 3, 0));
    executor_point(f->made[1], 0, NULL);
    tear_down(&c);
}
