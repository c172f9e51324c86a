/* The executor: sums of nodes, hooks, memory, validation. Numbers of the models themselves are in
 * test_gpt.c and test_mlp.c. */
#include "tests/unit/executor_fixture.h"
#include "tests/unit/program_rows.h"

/* The sum of a node's slots, each computed as a ticket of its own, in tree order. */
static float *tree_sum(struct executor_fixture *f, struct executor *single, uint64_t step,
                       struct node node)
{
    if (node.level == 0) {
        fixture_run(f, single, fixture_ticket(step, 0, node.index));
        return fixture_gradients(f, single);
    }
    float *left = tree_sum(f, single, step, (struct node){node.level - 1, node.index * 2});
    struct node right_node = {node.level - 1, node.index * 2 + 1};
    if (node_slots(right_node, f->train.slots) == 0)
        return left;
    float *right = tree_sum(f, single, step, right_node);
    for (size_t i = 0; i < fixture_gradient_floats(f); i++)
        left[i] = left[i] + right[i];
    free(right);
    return left;
}

/* What one ticket computes. */
static float *gradients_of(struct executor_fixture *f, struct executor *executor,
                           struct ticket ticket)
{
    fixture_run(f, executor, ticket);
    return fixture_gradients(f, executor);
}

static void check_nodes(struct spec_model settings, uint32_t slots)
{
    struct executor_fixture f = {.settings = settings, .train = fixture_train()};
    f.train.slots = slots;
    executor_set_up(&f);
    struct executor *single = fixture_executor(&f, 1);
    for (uint32_t level = 0; level <= tree_level(slots); level++) {
        for (uint32_t index = 0; node_valid((struct node){level, index}, slots); index++) {
            scoped(free_scoped) float *node =
                gradients_of(&f, f.executor, fixture_ticket(3, level, index));
            scoped(free_scoped) float *slot_by_slot =
                tree_sum(&f, single, 3, (struct node){level, index});
            assert_memory_equal(node, slot_by_slot, fixture_gradient_floats(&f) * sizeof(float));
        }
    }
    executor_tear_down(&f);
}

TEST(a_node_has_the_bits_of_its_slots_summed_in_tree_order)
{
    check_nodes(fixture_mlp(), 8);
    check_nodes(fixture_mlp(), 7);
    check_nodes(fixture_mlp(), 5);
    check_nodes(fixture_gpt(), 6);
    check_nodes(fixture_gpt(), 1);
}

TEST_F(a_node_holds_few_gradient_sets, executor, .settings = fixture_mlp())
{
    struct executor *executor = fixture_executor(f, 1);
    struct executor_memory one = executor_memory(executor);
    assert_int_equal(one.gradient_sets, 1);
    assert_int_equal(executor_memory(f->executor).gradient_sets, 4);
    assert_int_equal(executor_memory(fixture_executor(f, 6)).gradient_sets, 3);
    assert_int_equal(executor_memory(f->executor).gradients, 4 * one.gradients);
    assert_int_equal(one.total, one.weights + one.gradients + one.activations + one.scratch);
}

TEST_F(recompute_gives_the_same_bits_in_less_memory, executor, .settings = fixture_gpt())
{
    struct executor *keeping = f->executor;
    f->train.recompute = true;
    struct executor *recomputing = fixture_executor(f, 8);
    scoped(free_scoped) float *kept = gradients_of(f, keeping, fixture_ticket(0, 1, 1));
    scoped(free_scoped) float *again = gradients_of(f, recomputing, fixture_ticket(0, 1, 1));
    assert_memory_equal(kept, again, fixture_gradient_floats(f) * sizeof(float));
    assert_true(executor_memory(recomputing).activations < executor_memory(keeping).activations);
    assert_int_equal(rows_of(executor_program(recomputing), ACT_RC), 3 * 2);
}

/* Unit 1 of 0 to 3. */
TEST_F(every_second_unit_is_computed_again, executor, .settings = fixture_gpt())
{
    uint64_t most = executor_memory(f->executor).activations;
    f->train.recompute = SPEC_RECOMPUTE_EVERY;
    f->train.recompute_every = 2;
    struct executor *second = fixture_executor(f, 8);
    f->train.recompute = SPEC_RECOMPUTE_ALL;
    uint64_t least = executor_memory(fixture_executor(f, 8)).activations;
    scoped(free_scoped) float *kept = gradients_of(f, f->executor, fixture_ticket(0, 1, 1));
    scoped(free_scoped) float *again = gradients_of(f, second, fixture_ticket(0, 1, 1));
    assert_memory_equal(kept, again, fixture_gradient_floats(f) * sizeof(float));
    assert_int_equal(rows_of(executor_program(second), ACT_RC), 2);
    assert_true(executor_memory(second).activations < most);
    assert_true(executor_memory(second).activations > least);
}

TEST_F(offloaded_activations_are_in_the_hosts_memory, executor, .settings = fixture_llama())
{
    const struct executor_memory resident = executor_memory(f->executor);
    f->train.offload = true;
    struct executor *offloading = fixture_executor(f, 8);
    scoped(free_scoped) float *kept = gradients_of(f, f->executor, fixture_ticket(0, 1, 1));
    scoped(free_scoped) float *again = gradients_of(f, offloading, fixture_ticket(0, 1, 1));
    assert_memory_equal(kept, again, fixture_gradient_floats(f) * sizeof(float));
    assert_int_equal(resident.hosted, 0);
    assert_true(executor_memory(offloading).hosted > 0);
    assert_true(executor_memory(offloading).activations < resident.activations);
    assert_int_equal(rows_of(executor_program(offloading), ACT_OFF_IN), 3 * 2);
}

/* Another order of rows, all microbatches forward first, is another program, not other code. */
TEST_F(a_program_of_another_shape_runs_as_well, executor, .settings = fixture_mlp())
{
    const char *text = "LOAD,ZERO,0UNSHARD,1UNSHARD,2UNSHARD,0F0,0F1,1F0,1F1,2F0,2F1,2B0,2B1,2SUM,"
                       "2LOSS,2REDUCE_GRAD,"
                       "1B0,1B1,1REDUCE_GRAD,0B0,0B1,0REDUCE_GRAD";
    scoped(program_release) struct program program = {0};
    assert_int_equal(program_parse(slice_of(text), &program, NULL), ERR_OK);
    const struct executor_options options = {.kernels = f->k,
                                             .model = &f->model,
                                             .train = &f->train,
                                             .node_slots_max = 8,
                                             .program = &program};
    struct executor *other = NULL;
    assert_int_equal(executor_new(&options, &other, NULL), ERR_OK);
    fixture_weights(f, other);
    scoped(free_scoped) float *a = gradients_of(f, f->executor, fixture_ticket(0, 2, 0));
    scoped(free_scoped) float *b = gradients_of(f, other, fixture_ticket(0, 2, 0));
    assert_memory_equal(a, b, fixture_gradient_floats(f) * sizeof(float));
    assert_true(executor_memory(other).activations > executor_memory(f->executor).activations);
    executor_free(other);
}

TEST_F(a_program_that_does_not_fit_is_refused, executor, .settings = fixture_mlp())
{
    scoped(program_release) struct program program = {0};
    struct executor *executor = NULL;
    struct reason reason;
    const struct executor_options options = {
        .kernels = f->k, .model = &f->model, .train = &f->train, .program = &program};
    assert_int_equal(program_training(&program, &(struct program_shape){3, 3}), ERR_OK);
    assert_int_equal(executor_new(&options, &executor, &reason), ERR_INVALID);
    program.microbatches = 2;
    assert_int_equal(executor_new(&options, &executor, &reason), ERR_INVALID);
}

/* A valid program. */
TEST_F(a_run_that_needs_more_than_it_may_take_is_refused_with_the_ledger, executor,
       .settings = fixture_mlp())
{
    struct executor_options options = {
        .kernels = f->k,
        .model = &f->model,
        .train = &f->train,
        .node_slots_max = 8, /* as f's */
        .memory_max = executor_memory(f->executor).total,
    };
    struct executor *executor = NULL;
    struct reason reason = {.text = ""};
    assert_int_equal(executor_new(&options, &executor, &reason), ERR_OK);
    executor_free(executor);
    options.memory_max--;
    assert_int_equal(executor_new(&options, &executor, &reason), ERR_UNSUPPORTED);
    assert_non_null(strstr(reason.text, "weights"));
    assert_non_null(strstr(reason.text, "mesh.stage"));
}

TEST_F(a_program_of_several_places_needs_a_mesh, executor, .settings = fixture_mlp())
{
    const char *text = "LOAD,0UNSHARD,0F0,0SEND_F0,0RECV_B0,0CLEAR,0B0,0REDUCE_GRAD\n"
                       "LOAD,1UNSHARD,1RECV_F0,1CLEAR,1F0,1B0,1SEND_B0,1SUM,1LOSS,1REDUCE_GRAD\n";
    scoped(program_release) struct program program = {0};
    struct executor *executor = NULL;
    struct reason reason = {.text = ""};
    const struct executor_options options = {
        .kernels = f->k, .model = &f->model, .train = &f->train, .program = &program};
    assert_int_equal(program_parse(slice_of(text), &program, &reason), ERR_OK);
    assert_int_equal(executor_new(&options, &executor, &reason), ERR_INVALID);
    assert_string_equal(reason.text, "program has 2 places, and there is no mesh of them");
}

/* ---- local steps ---- */

static struct executor *local_executor(struct executor_fixture *f, uint32_t steps)
{
    struct executor *executor = NULL;
    const struct executor_options options = {.kernels = f->k,
                                             .model = &f->model,
                                             .train = &f->train,
                                             .node_slots_max = 8,
                                             .local = {.steps = steps,
                                                       .optimizer = {.kind = SPEC_ADAMW,
                                                                     .lr = 0.01,
                                                                     .betas = {0.9, 0.99},
                                                                     .eps = 1e-8,
                                                                     .clip_norm = 1}}};
    assert_int_equal(executor_new(&options, &executor, NULL), ERR_OK);
    fixture_weights(f, executor);
    return executor;
}

TEST_F(local_steps_leave_the_pulled_weights_as_they_were, executor, .settings = fixture_gpt())
{
    struct executor *local = local_executor(f, 3);
    assert_true(executor_memory(local).local == 3 * executor_memory(local).weights);
    struct executor_loss loss = fixture_run(f, local, fixture_ticket(1, 0, 2));
    assert_int_equal(loss.samples, 3 * f->train.slot_samples);
    scoped(free_scoped) float *first = fixture_gradients(f, local);
    for (uint32_t p = 0; p < f->model.parameters_count; p++)
        assert_memory_equal(executor_weights(local, p), executor_weights(f->executor, p),
                            f->model.parameters[p].weights * sizeof(float));
    fixture_run(f, local, fixture_ticket(1, 0, 3)); /* another slot leaves no trace */
    scoped(free_scoped) float *again = gradients_of(f, local, fixture_ticket(1, 0, 2));
    assert_memory_equal(first, again, fixture_gradient_floats(f) * sizeof(float));
    executor_free(local);
}

TEST_F(a_node_of_local_slots_is_the_sum_of_their_differences, executor, .settings = fixture_gpt())
{
    struct executor *local = local_executor(f, 2);
    scoped(free_scoped) float *left = gradients_of(f, local, fixture_ticket(0, 0, 2));
    scoped(free_scoped) float *right = gradients_of(f, local, fixture_ticket(0, 0, 3));
    scoped(free_scoped) float *both = gradients_of(f, local, fixture_ticket(0, 1, 1));
    for (size_t i = 0; i < fixture_gradient_floats(f); i++)
        assert_true(both[i] == left[i] + right[i]);
    executor_free(local);
}

/* A tied parameter's difference is one part; servers add the parts. */
TEST_F(a_difference_is_in_the_first_part, executor, .settings = fixture_gpt())
{
    uint32_t tied = 0;
    struct executor *local = local_executor(f, 2);
    fixture_run(f, local, fixture_ticket(0, 0, 0));
    for (uint32_t p = 0; p < f->model.parameters_count; p++) {
        bool moved = false;
        for (uint64_t i = 0; i < f->model.parameters[p].weights; i++) {
            moved |= executor_gradient(local, p, 0)[i] != 0;
            for (uint32_t part = 1; part < f->model.parameters[p].parts; part++)
                assert_true(executor_gradient(local, p, part)[i] == 0);
        }
        assert_true(moved);
        tied += f->model.parameters[p].parts > 1;
    }
    assert_int_equal(tied, 1);
    executor_free(local);
}

/* ---- hooks ---- */

struct record {
    struct executor_fixture *f;
    char text[256];
    uint32_t fail_pull, fail_push; /* unit + 1 */
    uint32_t rows_left;            /* until cancelled; 0: never */
};

static enum err record_pull(void *context, uint32_t unit)
{
    struct record *record = context;
    size_t length = strlen(record->text);
    snprintf(record->text + length, sizeof record->text - length, "<%u", unit);
    return record->fail_pull == unit + 1 ? ERR_TOO_LATE : ERR_OK;
}

static enum err record_push(void *context, uint32_t unit, struct node node)
{
    (void)node;
    struct record *record = context;
    size_t length = strlen(record->text);
    snprintf(record->text + length, sizeof record->text - length, ">%u", unit);
    return record->fail_push == unit + 1 ? ERR_OLD_GENERATION : ERR_OK;
}

static bool record_cancelled(void *context)
{
    struct record *record = context;
    return record->rows_left > 0 && --record->rows_left == 0;
}

static enum err run_recorded(struct executor_fixture *f, struct record *record,
                             struct ticket ticket)
{
    const struct executor_hooks hooks = {
        .context = record, .pull = record_pull, .push = record_push, .cancelled = record_cancelled};
    struct executor_loss loss;
    record->text[0] = 0;
    return executor_run(f->executor, &ticket, &f->samples, &hooks, &loss);
}

TEST_F(a_node_pulls_upwards_and_pushes_downwards_once, executor, .settings = fixture_mlp())
{
    struct record record = {.f = f};
    assert_int_equal(run_recorded(f, &record, fixture_ticket(0, 0, 5)), ERR_OK);
    assert_string_equal(record.text, "<0<1<2>2>1>0");
    assert_int_equal(run_recorded(f, &record, fixture_ticket(0, 3, 0)), ERR_OK);
    assert_string_equal(record.text, "<0<1<2>2>1>0");
}

/* Rows that began, and the microbatches of forwards that ended. */
struct rows {
    uint32_t begun, ended;
    char forwards[64];
};

static void count_begun(void *context, const struct program_row *row)
{
    (void)row;
    struct rows *rows = context;
    assert_int_equal(rows->begun++, rows->ended);
}

static void count_ended(void *context, const struct program_row *row)
{
    struct rows *rows = context;
    size_t length = strlen(rows->forwards);
    rows->ended++;
    if (row->act == ACT_F)
        snprintf(rows->forwards + length, sizeof rows->forwards - length, "%u.%u ", row->unit,
                 row->microbatch);
}

TEST_F(whoever_measures_hears_of_each_row_before_and_after_it, executor, .settings = fixture_mlp())
{
    struct rows rows = {0};
    const struct executor_hooks hooks = {
        .context = &rows, .row_begins = count_begun, .row_ends = count_ended};
    const struct ticket ticket = fixture_ticket(0, 0, 3);
    struct executor_loss loss;
    assert_int_equal(executor_run(f->executor, &ticket, &f->samples, &hooks, &loss), ERR_OK);
    assert_int_equal(rows.ended, executor_program(f->executor)->places[0].rows_count);
    assert_string_equal(rows.forwards, "0.0 1.0 2.0 0.1 1.1 2.1 ");
}

TEST_F(an_error_of_a_hook_ends_the_run_there, executor, .settings = fixture_mlp())
{
    struct record record = {.f = f, .fail_pull = 2};
    assert_int_equal(run_recorded(f, &record, fixture_ticket(0, 1, 0)), ERR_TOO_LATE);
    assert_string_equal(record.text, "<0<1");
    record = (struct record){.f = f, .fail_push = 2};
    assert_int_equal(run_recorded(f, &record, fixture_ticket(0, 1, 0)), ERR_OLD_GENERATION);
    assert_string_equal(record.text, "<0<1<2>2>1");
}

TEST_F(a_cancelled_run_ends_between_rows_and_the_next_one_is_right, executor,
       .settings = fixture_gpt())
{
    scoped(free_scoped) float *wanted = gradients_of(f, f->executor, fixture_ticket(0, 2, 0));
    for (uint32_t rows = 1; rows < 60; rows += 7) {
        struct record record = {.f = f, .rows_left = rows};
        assert_int_equal(run_recorded(f, &record, fixture_ticket(0, 2, 0)), ERR_CANCELLED);
    }
    scoped(free_scoped) float *got = gradients_of(f, f->executor, fixture_ticket(0, 2, 0));
    assert_memory_equal(got, wanted, fixture_gradient_floats(f) * sizeof(float));
}

TEST_F(nodes_that_the_run_does_not_have_are_refused, executor, .settings = fixture_mlp())
{
    struct executor *executor = fixture_executor(f, 2);
    const struct executor_hooks none = {0};
    struct executor_loss loss;
    struct ticket tickets[] = {fixture_ticket(0, 0, 6), fixture_ticket(0, 4, 0),
                               fixture_ticket(0, 2, 0), fixture_ticket(0, 31, UINT32_MAX)};
    for (size_t i = 0; i < sizeof tickets / sizeof *tickets; i++)
        assert_int_equal(executor_run(executor, &tickets[i], &f->samples, &none, &loss),
                         ERR_MALFORMED);
    struct ticket shorter = fixture_ticket(0, 2, 1); /* four slots by name, two in fact */
    assert_int_equal(executor_run(executor, &shorter, &f->samples, &none, &loss), ERR_OK);
}

/* ---- losses ---- */

TEST_F(the_loss_chunk_carries_losses_samples_and_hits, executor, .settings = fixture_gpt())
{
    struct executor_loss loss = fixture_run(f, f->executor, fixture_ticket(2, 1, 2));
    const float *chunk = executor_gradient(f->executor, f->model.loss_parameter, 0);
    assert_true((double)chunk[MODEL_LOSS_SUM] == loss.loss_sum);
    assert_true(chunk[MODEL_LOSS_COUNT] == 8);
    assert_int_equal(loss.samples, 8);
    assert_true((uint64_t)chunk[MODEL_LOSS_CORRECT] == loss.correct);
    assert_true(chunk[MODEL_LOSS_RESERVED] == 0);
    assert_true(loss.loss_sum > 8 * 3.0 && loss.loss_sum < 8 * 20.0); /* log 37 and more */
}

/* Held-out samples of the made-up set are other ones: read the training set's instead. */
static enum err read_training(void *context, enum ticket_kind kind, uint64_t first, uint32_t count,
                              void *ret_inputs, int32_t *ret_targets)
{
    assert_int_equal(kind, TICKET_VALIDATE);
    return fixture_read(context, TICKET_TRAIN, first, count, ret_inputs, ret_targets);
}

/* The ticket on held-out samples. */
static enum err validate(struct executor *executor, struct ticket ticket,
                         const struct executor_samples *samples, struct executor_loss *ret_loss)
{
    const struct executor_hooks none = {0};
    ticket.kind = TICKET_VALIDATE;
    return executor_run(executor, &ticket, samples, &none, ret_loss);
}

TEST_F(validation_is_the_training_loss_without_gradients, executor, .settings = fixture_gpt())
{
    struct executor *executor = fixture_executor(f, 0);
    const struct executor_samples samples = {f, read_training, 24};
    struct ticket ticket = fixture_ticket(0, 0, 2);
    struct executor_loss trained = fixture_run(f, f->executor, ticket), validated;
    assert_int_equal(validate(executor, ticket, &samples, &validated), ERR_OK);
    assert_true((float)validated.loss_sum == (float)trained.loss_sum);
    assert_int_equal(validated.samples, trained.samples);
    assert_int_equal(validated.correct, trained.correct);
    assert_int_equal(executor_memory(executor).gradients, 0);
}

TEST_F(held_out_samples_may_end_inside_a_slot, executor, .settings = fixture_gpt())
{
    struct executor_loss all, part, sum = {0};
    f->samples.held_out = 11; /* slots of 4, 4 and 3 */
    assert_int_equal(validate(f->executor, fixture_ticket(0, 2, 0), &f->samples, &all), ERR_OK);
    for (uint32_t slot = 0; slot < 3; slot++) {
        struct ticket ticket = fixture_ticket(0, 0, slot);
        assert_int_equal(validate(f->executor, ticket, &f->samples, &part), ERR_OK);
        sum.loss_sum += part.loss_sum;
        sum.samples += part.samples;
        sum.correct += part.correct;
    }
    assert_true(sum.loss_sum == all.loss_sum);
    assert_int_equal(all.samples, 11);
    assert_int_equal(sum.samples, 11);
    assert_int_equal(sum.correct, all.correct);
    assert_int_equal(validate(f->executor, fixture_ticket(0, 0, 3), &f->samples, &part),
                     ERR_MALFORMED);
}

TEST(logits_are_never_more_than_the_limit)
{
    struct executor_fixture f = {.settings = fixture_gpt()};
    f.settings.vocabulary = 1000;
    executor_set_up(&f);
    struct executor_loss wanted = fixture_run(&f, f.executor, fixture_ticket(0, 0, 0));
    uint64_t whole = executor_memory(f.executor).scratch;
    f.train.logits_bytes_max = 9 * 1024 * sizeof(float); /* 9 rows; a microbatch has 14 */
    struct executor *blocked = fixture_executor(&f, 8);
    struct executor_loss got = fixture_run(&f, blocked, fixture_ticket(0, 0, 0));
    assert_true(got.loss_sum - wanted.loss_sum < 1e-5 && wanted.loss_sum - got.loss_sum < 1e-5);
    assert_int_equal(got.correct, wanted.correct);
    assert_true(executor_memory(blocked).scratch == whole - (14 - 9) * 1024 * sizeof(float));
    const struct executor_samples samples = {&f, read_training, 24};
    assert_int_equal(validate(blocked, fixture_ticket(0, 0, 0), &samples, &got), ERR_OK);
    assert_true(got.loss_sum - wanted.loss_sum < 1e-5 && wanted.loss_sum - got.loss_sum < 1e-5);
    executor_tear_down(&f);
}

/* ---- chunks ---- */

TEST_F(chunks_come_out_as_they_went_in, executor, .settings = fixture_gpt())
{
    static uint8_t bytes[4 * MODEL_CHUNK_WEIGHTS_MAX];
    fixture_run(f, f->executor, fixture_ticket(0, 0, 0));
    for (uint32_t chunk = 0; chunk < f->model.chunks_count; chunk++) {
        uint32_t parameter = f->model.chunks[chunk].parameter;
        uint32_t part = f->model.parameters[parameter].parts - 1;
        executor_encode(f->executor, chunk, part, CODEC_FP32, bytes);
        struct slice slice = {bytes, blocks_bytes(&f->model, chunk, CODEC_FP32)};
        struct cursor cursor = {.slices = &slice, .slice_count = 1};
        executor_decode(f->executor, chunk, CODEC_FP32, &cursor);
    }
    /* Every chunk once: the weights are now the last part's gradients. */
    for (uint32_t i = 0; i < f->model.parameters_count; i++) {
        const struct model_parameter *parameter = &f->model.parameters[i];
        assert_memory_equal(executor_weights(f->executor, i),
                            executor_gradient(f->executor, i, parameter->parts - 1),
                            parameter->weights * sizeof(float));
    }
}

/* Whoever sends them has a reference. */
TEST_F(gradients_that_are_still_read_stay_as_they_are, executor, .settings = fixture_gpt())
{
    struct executor_rows lie, next;
    enum { PARAMETER = 1 }; /* positions: each has a gradient */
    uint32_t chunk = f->model.parameters[PARAMETER].chunk_first;
    size_t bytes = f->model.chunks[chunk].cols * sizeof(float); /* of its first row */
    scoped(free_scoped) uint8_t *copy = malloc(bytes);
    fixture_run(f, f->executor, fixture_ticket(0, 0, 0));
    assert_true(executor_lend(f->executor, chunk, 0, &lie));
    assert_ptr_equal(lie.block->data + lie.offset, executor_gradient(f->executor, PARAMETER, 0));
    memcpy(copy, lie.block->data + lie.offset, bytes);
    struct counted *read = counted_ref(lie.block);
    fixture_run(f, f->executor, fixture_ticket(0, 1, 0));
    assert_true(executor_lend(f->executor, chunk, 0, &next));
    assert_ptr_not_equal(next.block, read);
    assert_ptr_equal(next.block->data + next.offset, executor_gradient(f->executor, PARAMETER, 0));
    assert_memory_equal(read->data + lie.offset, copy, bytes);
    assert_memory_not_equal(next.block->data + next.offset, copy, bytes);
    counted_unref(read);
    fixture_run(f, f->executor, fixture_ticket(0, 2, 0)); /* nobody reads them */
    assert_true(executor_lend(f->executor, chunk, 0, &lie));
    assert_ptr_equal(lie.block, next.block);
}

/* ---- memory ---- */

struct counting {
    struct kernels k;
    uint64_t bytes;
    uint32_t calls;
    uint32_t refuse; /* this call and all later ones; 0: none */
};

static struct counting counting;

static void *counting_alloc(const struct kernels *k, size_t bytes)
{
    (void)k;
    counting.calls++;
    counting.bytes += bytes;
    if (counting.refuse > 0 && counting.calls >= counting.refuse)
        return NULL;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void counting_free(const struct kernels *k, void *memory)
{
    (void)k;
    free(memory);
}

TEST_F(device_memory_is_taken_at_the_start_and_is_what_the_ledger_says, executor,
       .settings = fixture_gpt())
{
    counting = (struct counting){.k = *f->k};
    counting.k.alloc = counting_alloc;
    counting.k.free = counting_free;
    const struct kernels *k = f->k;
    f->k = &counting.k;
    struct executor *executor = fixture_executor(f, 8);
    uint32_t calls = counting.calls;
    const struct executor_memory memory = executor_memory(executor);
    assert_true(counting.bytes == memory.total - memory.gradients); /* which are of the pool */
    fixture_run(f, executor, fixture_ticket(0, 3, 0));
    assert_int_equal(counting.calls, calls);
    f->k = k;
}

TEST_F(every_refused_allocation_is_an_error_and_leaks_nothing, executor, .settings = fixture_mlp())
{
    counting = (struct counting){.k = *f->k};
    counting.k.alloc = counting_alloc;
    counting.k.free = counting_free;
    const struct executor_options options = {
        .kernels = &counting.k, .model = &f->model, .train = &f->train, .node_slots_max = 4};
    struct executor *executor = NULL;
    enum err err = ERR_NOMEM;
    for (uint32_t refuse = 1; err == ERR_NOMEM; refuse++) {
        counting.calls = 0;
        counting.refuse = refuse;
        err = executor_new(&options, &executor, NULL);
        assert_true(refuse < 20);
    }
    assert_int_equal(err, ERR_OK);
    executor_free(executor);
}
