/* An executor of one place among several: what it takes, what it asks its neighbours for, when it
 * waits. That all of them together have the bits of one place is docs/equivalence.md. */
#include "tests/unit/executor_fixture.h"

#include "worker/program/mesh.h"

enum { PLACES = 2, VALUES_MAX = 64 };

/* The executors of a mesh of two places, and what was sent. */
struct pair {
    struct executor_fixture *f;
    struct executor *executors[PLACES];
    struct executor_value sent[VALUES_MAX];
    uint8_t *bytes[VALUES_MAX];
    uint32_t sent_count, received_count, waits;
    char text[512]; /* of hooks: "0<0" place 0 pulls unit 0, "1>2" it pushes */
};

struct end {
    struct pair *pair;
    uint32_t place;
};

static enum err end_pull(void *context, uint32_t unit)
{
    const struct end *end = context;
    size_t length = strlen(end->pair->text);
    snprintf(end->pair->text + length, sizeof end->pair->text - length, "%u<%u ", end->place, unit);
    return ERR_OK;
}

static enum err end_push(void *context, uint32_t unit, struct node node)
{
    const struct end *end = context;
    size_t length = strlen(end->pair->text);
    snprintf(end->pair->text + length, sizeof end->pair->text - length, "%u>%u:%u/%u ", end->place,
             unit, node.level, node.index);
    return ERR_OK;
}

static enum err end_send(void *context, const struct executor_value *value, const void *memory)
{
    struct pair *pair = ((struct end *)context)->pair;
    assert_true(pair->sent_count < VALUES_MAX);
    pair->bytes[pair->sent_count] = malloc(value->bytes);
    memcpy(pair->bytes[pair->sent_count], memory, value->bytes);
    pair->sent[pair->sent_count++] = *value;
    return ERR_OK;
}

static bool same_name(const struct executor_value *a, const struct executor_value *b)
{
    return a->way == b->way && a->boundary == b->boundary && a->slot == b->slot &&
           a->microbatch == b->microbatch;
}

static enum err end_receive(void *context, const struct executor_value *value, void *memory)
{
    struct pair *pair = ((struct end *)context)->pair;
    for (uint32_t i = 0; i < pair->sent_count; i++)
        if (same_name(&pair->sent[i], value)) {
            assert_int_equal(pair->sent[i].bytes, value->bytes);
            memcpy(memory, pair->bytes[i], value->bytes);
            pair->received_count++;
            return ERR_OK;
        }
    pair->waits++;
    return ERR_BEHIND;
}

static void pair_open(struct pair *pair, struct executor_fixture *f, enum schedule_kind schedule,
                      uint32_t node_slots_max)
{
    const struct mesh mesh = {.schedule = schedule, .places = PLACES, .runs = 1};
    *pair = (struct pair){.f = f};
    for (uint32_t p = 0; p < PLACES; p++) {
        const struct executor_options options = {.kernels = f->k,
                                                 .model = &f->model,
                                                 .train = &f->train,
                                                 .node_slots_max = node_slots_max,
                                                 .mesh = &mesh,
                                                 .place = p};
        assert_int_equal(executor_new(&options, &pair->executors[p], NULL), ERR_OK);
    }
    /* Weights as the fixture's executor of one place has them. */
    for (uint32_t use = 0; use < f->model.uses_count; use++) {
        uint32_t parameter = f->model.uses[use].parameter;
        bool last = use >= f->model.units[f->model.units_count / 2].use_first;
        memcpy(executor_weights(pair->executors[last], parameter),
               executor_weights(f->executor, parameter),
               f->model.parameters[parameter].weights * sizeof(float));
    }
}

static void pair_close(struct pair *pair)
{
    for (uint32_t p = 0; p < PLACES; p++)
        executor_free(pair->executors[p]);
    for (uint32_t i = 0; i < pair->sent_count; i++)
        free(pair->bytes[i]);
}

/* Both places in turn; the loss of the last. */
static struct executor_loss pair_run(struct pair *pair, struct ticket ticket)
{
    struct end ends[PLACES];
    enum err errs[PLACES];
    struct executor_loss loss = {0}, sum = {0};
    for (uint32_t p = 0; p < PLACES; p++) {
        ends[p] = (struct end){pair, p};
        const struct executor_hooks hooks = {.context = &ends[p],
                                             .pull = end_pull,
                                             .push = end_push,
                                             .send = end_send,
                                             .receive = end_receive};
        errs[p] = executor_begin(pair->executors[p], &ticket, &pair->f->samples, &hooks);
        assert_int_equal(errs[p], ERR_OK);
        errs[p] = ERR_BEHIND;
    }
    for (int turn = 0; turn < 1000 && (errs[0] == ERR_BEHIND || errs[1] == ERR_BEHIND); turn++)
        if (errs[turn % PLACES] == ERR_BEHIND)
            errs[turn % PLACES] = executor_advance(pair->executors[turn % PLACES]);
    for (uint32_t p = 0; p < PLACES; p++) {
        assert_int_equal(executor_end(pair->executors[p], errs[p], &loss), ERR_OK);
        sum.loss_sum += loss.loss_sum;
        sum.samples += loss.samples;
        sum.correct += loss.correct;
    }
    return sum;
}

TEST_F(two_places_have_the_loss_and_gradients_of_one, executor, .settings = fixture_mlp())
{
    struct pair pair;
    pair_open(&pair, f, SCHEDULE_1F1B, 4);
    struct executor_loss wanted = fixture_run(f, f->executor, fixture_ticket(3, 2, 0));
    struct executor_loss got = pair_run(&pair, fixture_ticket(3, 2, 0));
    assert_true(got.loss_sum == wanted.loss_sum && got.samples == 16);
    assert_int_equal(got.correct, wanted.correct);
    for (uint32_t use = 0; use < f->model.uses_count; use++) {
        struct model_use u = f->model.uses[use];
        bool last = use >= f->model.units[1].use_first;
        assert_memory_equal(executor_gradient(pair.executors[last], u.parameter, u.part),
                            executor_gradient(f->executor, u.parameter, u.part),
                            f->model.parameters[u.parameter].weights * sizeof(float));
    }
    /* 4 slots of 2 microbatches, one boundary, both ways; each is asked for until it is there. */
    assert_int_equal(pair.sent_count, 16);
    assert_int_equal(pair.received_count, 16);
    assert_true(pair.waits > 0);
    assert_string_equal(pair.text, "0<0 1<1 1<2 1>2:2/0 1>1:2/0 0>0:2/0 ");
    pair_close(&pair);
}

TEST_F(two_places_validate_a_slot_that_ends_early, executor, .settings = fixture_mlp())
{
    struct pair pair;
    struct ticket ticket = {.kind = TICKET_VALIDATE, .node = {0, 2}}; /* samples 8 and 9 of 10 */
    pair_open(&pair, f, SCHEDULE_GPIPE, 1);
    struct executor_loss wanted = fixture_run(f, f->executor, ticket);
    struct executor_loss got = pair_run(&pair, ticket);
    assert_true(got.loss_sum == wanted.loss_sum && got.samples == 2 && wanted.samples == 2);
    assert_int_equal(pair.sent_count, 1); /* the second microbatch has no samples */
    assert_string_equal(pair.text, "0<0 1<1 1<2 ");
    pair_close(&pair);
}

/* Left half down, right half up: both places push both ends' units, as nodes of one slot. */
TEST_F(a_chimera_pushes_its_halves_as_nodes_of_their_own, executor, .settings = fixture_mlp())
{
    struct pair pair;
    struct executor *executors[] = {NULL, NULL};
    const struct mesh mesh = {.schedule = SCHEDULE_CHIMERA, .places = PLACES, .runs = 1};
    pair = (struct pair){.f = f};
    for (uint32_t p = 0; p < PLACES; p++) {
        const struct executor_options options = {.kernels = f->k,
                                                 .model = &f->model,
                                                 .train = &f->train,
                                                 .node_slots_max = 2,
                                                 .mesh = &mesh,
                                                 .place = p};
        assert_int_equal(executor_new(&options, &executors[p], NULL), ERR_OK);
        fixture_weights(f, executors[p]); /* each has every unit, of one half */
        pair.executors[p] = executors[p];
    }
    struct executor_loss wanted = fixture_run(f, f->executor, fixture_ticket(0, 1, 2));
    struct executor_loss got = pair_run(&pair, fixture_ticket(0, 1, 2));
    assert_int_equal(got.samples, wanted.samples);
    assert_int_equal(got.correct, wanted.correct);
    assert_non_null(strstr(pair.text, "0>0:0/4"));
    assert_non_null(strstr(pair.text, "1>0:0/5"));
    assert_non_null(strstr(pair.text, "1>2:0/4"));
    assert_non_null(strstr(pair.text, "0>2:0/5"));
    struct ticket one = fixture_ticket(0, 0, 0);
    const struct executor_hooks none = {0};
    assert_int_equal(executor_begin(executors[0], &one, &f->samples, &none), ERR_MALFORMED);
    pair_close(&pair);
}

TEST_F(a_place_takes_memory_for_its_own_units_alone, executor, .settings = fixture_gpt())
{
    struct pair pair;
    pair_open(&pair, f, SCHEDULE_1F1B, 1);
    uint64_t weights = 0, twice = 0;
    for (uint32_t p = 0; p < PLACES; p++)
        weights += executor_memory(pair.executors[p]).weights;
    for (uint32_t i = 0; i < f->model.parameters_count; i++)
        if (f->model.parameters[i].parts > 1) /* tied: both places have it */
            twice += f->model.parameters[i].weights * sizeof(float);
    assert_int_equal(weights, executor_memory(f->executor).weights + twice);
    pair_close(&pair);
}

static void refused(struct executor_fixture *f, struct mesh mesh, struct local_settings local,
                    const char *wanted)
{
    struct executor *executor = NULL;
    struct reason reason = {.text = ""};
    const struct executor_options options = {.kernels = f->k,
                                             .model = &f->model,
                                             .train = &f->train,
                                             .node_slots_max = 2,
                                             .local = local,
                                             .mesh = &mesh};
    assert_int_equal(executor_new(&options, &executor, &reason), ERR_INVALID);
    assert_string_equal(reason.text, wanted);
}

TEST_F(what_other_places_may_ask_for_is_in_the_ledger, executor, .settings = fixture_mlp())
{
    struct pair pair;
    uint64_t sent[PLACES] = {0};
    const struct mesh mesh = {.schedule = SCHEDULE_1F1B, .places = PLACES, .runs = 1};
    pair_open(&pair, f, SCHEDULE_1F1B, 4);
    pair_run(&pair, fixture_ticket(3, 2, 0));
    for (uint32_t i = 0; i < pair.sent_count; i++)
        sent[pair.sent[i].way == EXECUTOR_BACKWARD] += pair.sent[i].bytes;
    for (uint32_t p = 0; p < PLACES; p++) {
        const struct executor_memory memory = executor_memory(pair.executors[p]);
        struct executor_options options = {.kernels = f->k,
                                           .model = &f->model,
                                           .train = &f->train,
                                           .node_slots_max = 4,
                                           .mesh = &mesh,
                                           .place = p,
                                           .memory_max = 2 * memory.total + 5 * memory.kept,
                                           .executors = 2,
                                           .leases = 5};
        struct executor *executor = NULL;
        struct reason reason = {.text = ""};
        assert_int_equal(memory.kept, sent[p]);
        assert_int_equal(executor_new(&options, &executor, &reason), ERR_OK);
        executor_free(executor);
        options.memory_max--;
        assert_int_equal(executor_new(&options, &executor, &reason), ERR_UNSUPPORTED);
        assert_non_null(strstr(reason.text, "kept for others"));
    }
    pair_close(&pair);
}

TEST_F(a_mesh_that_the_model_does_not_have_is_refused, executor, .settings = fixture_mlp())
{
    refused(f, (struct mesh){.schedule = SCHEDULE_1F1B, .places = 4, .runs = 1},
            (struct local_settings){0},
            "4 stages need as many units, and the model has 3; 3 stages would do");
    refused(f, (struct mesh){.schedule = SCHEDULE_CHIMERA, .places = 3, .runs = 1},
            (struct local_settings){0},
            "chimera needs an even number of stages, not 3; 2 would do");
    refused(f, (struct mesh){.schedule = SCHEDULE_1F1B, .places = 2, .runs = 1},
            (struct local_settings){.steps = 2}, "local steps need all units in one place");
}

/* 128 slots of gpipe: the head begins all gradients before the first is final. */
TEST_F(more_gradients_at_once_than_there_are_sets_for_are_refused, executor,
       .settings = fixture_mlp())
{
    struct executor *executor = NULL;
    struct reason reason = {.text = ""};
    f->train.slots = 128;
    const struct mesh mesh = {.schedule = SCHEDULE_GPIPE, .places = 2, .runs = 1};
    const struct executor_options options = {.kernels = f->k,
                                             .model = &f->model,
                                             .train = &f->train,
                                             .node_slots_max = 128,
                                             .mesh = &mesh,
                                             .place = 1};
    assert_int_equal(executor_new(&options, &executor, &reason), ERR_INVALID);
    assert_string_equal(reason.text, "place 1 keeps the gradients of 128 slots at once, and 64 is "
                                     "the most; another schedule or smaller nodes would do");
}
