/* The gradient of an embedding that is the head too, kept by rows: beside an executor that keeps it
 * whole, as does every one whose largest node has too many tokens. */
#include "tests/unit/executor_fixture.h"

#include "worker/carve.h"

enum {
    WORDS = 4000,   /* 4,096 rows */
    SLOTS = 7,      /* so that there are nodes of one, two and three */
    NODE_MAX = 8,   /* of 28 tokens a slot: 224 rows */
    WHOLE_MAX = 128 /* 3,584 */
};

/* Of 40 words: some come again within a slot, and most in the next one. */
static enum err read_again(void *context, enum ticket_kind kind, uint64_t first, uint32_t count,
                           void *ret_inputs, int32_t *ret_targets)
{
    const struct executor_fixture *f = context;
    TRY(fixture_read(context, kind, first, count, ret_inputs, ret_targets));
    for (uint32_t i = 0; i < count * model_sample(&f->settings).inputs; i++)
        ((int32_t *)ret_inputs)[i] = ((int32_t *)ret_inputs)[i] % 40 * 99 + 99;
    return ERR_OK;
}

struct few_executor_fixture {
    struct executor_fixture base;
    struct spec_model settings; /* {0}: of a gpt */
    struct executor *few, *whole;
};

static void few_executor_set_up(struct few_executor_fixture *f)
{
    f->base.settings =
        f->settings.vocabulary > 0 ? f->settings : fixture_words(fixture_gpt(), WORDS);
    f->base.train = fixture_train();
    f->base.train.slots = SLOTS;
    executor_set_up(&f->base);
    f->base.samples.read = read_again;
    f->few = f->base.executor;
    f->whole = fixture_executor(&f->base, WHOLE_MAX);
}

static void few_executor_tear_down(struct few_executor_fixture *f)
{
    executor_tear_down(&f->base);
}

/* The first chunk of the embedding's part, and of the head's. */
static bool lends(const struct executor *executor, uint32_t part)
{
    struct executor_rows lie;
    return executor_lend(executor, 0, part, &lie);
}

/* Each chunk as it is pushed, and the parameter as tests see it. */
static void check_same(const struct few_executor_fixture *f, const struct executor *few,
                       const struct executor *whole)
{
    static uint8_t seen[4 * MODEL_CHUNK_WEIGHTS_MAX], wanted[4 * MODEL_CHUNK_WEIGHTS_MAX];
    const struct model *model = &f->base.model;
    assert_true(!lends(few, 0) && lends(few, 1) && lends(whole, 0));
    for (uint32_t chunk = 0; chunk < model->chunks_count; chunk++)
        for (uint32_t part = 0; part < model->parameters[model->chunks[chunk].parameter].parts;
             part++)
            for (enum codec codec = CODEC_FP32; codec <= CODEC_BF16; codec++) {
                memset(seen, 0x5a, blocks_bytes(model, chunk, codec));
                executor_encode(few, chunk, part, codec, seen);
                executor_encode(whole, chunk, part, codec, wanted);
                assert_memory_equal(seen, wanted, blocks_bytes(model, chunk, codec));
            }
    scoped(free_scoped) float *all = fixture_gradients(&f->base, few);
    scoped(free_scoped) float *all_wanted = fixture_gradients(&f->base, whole);
    assert_memory_equal(all, all_wanted, fixture_gradient_floats(&f->base) * sizeof *all);
}

static void check_nodes(struct few_executor_fixture *f)
{
    for (uint32_t level = 0; level <= tree_level(SLOTS); level++)
        for (uint32_t index = 0; node_valid((struct node){level, index}, SLOTS); index++) {
            fixture_run(&f->base, f->few, fixture_ticket(3, level, index));
            fixture_run(&f->base, f->whole, fixture_ticket(3, level, index));
            check_same(f, f->few, f->whole);
        }
}

TEST_F(every_node_has_the_bits_of_a_whole_gradient, few_executor)
{
    check_nodes(f);
}

/* The table's rows lie in pieces, and its chunks do not begin at column 0. */
TEST_F(a_table_in_pieces_has_them_too, few_executor,
       .settings = {.kind = SPEC_GPT,
                    .layers = 1,
                    .heads = 2,
                    .width = 16,
                    .context = 7,
                    .vocabulary = WORDS,
                    .tensor_max = 8,
                    .pieces = 2})
{
    check_nodes(f);
}

static void check_microbatch(uint32_t microbatch)
{
    struct few_executor_fixture f = {0};
    few_executor_set_up(&f);
    f.base.train.microbatch = microbatch;
    struct executor *few = fixture_executor(&f.base, NODE_MAX);
    struct executor *whole = fixture_executor(&f.base, WHOLE_MAX);
    fixture_run(&f.base, few, fixture_ticket(1, 1, 1));
    fixture_run(&f.base, whole, fixture_ticket(1, 1, 1));
    check_same(&f, few, whole);
    few_executor_tear_down(&f);
}

TEST(a_slot_has_any_number_of_microbatches)
{
    check_microbatch(1);
    check_microbatch(4);
}

TEST_F(two_executors_are_added, few_executor)
{
    struct executor_fixture *base = &f->base;
    struct executor *other = fixture_executor(base, NODE_MAX);
    fixture_run(base, f->few, fixture_ticket(2, 1, 0));
    fixture_run(base, other, fixture_ticket(2, 1, 1));
    for (uint32_t unit = 0; unit < base->model.units_count; unit++)
        executor_add(f->few, other, unit);
    fixture_run(base, f->whole, fixture_ticket(2, 2, 0));
    check_same(f, f->few, f->whole);
}

/* ---- when it is kept so ---- */

static uint64_t set_bytes(const struct executor *executor)
{
    struct executor_memory memory = executor_memory(executor);
    return memory.gradients / memory.gradient_sets;
}

TEST_F(the_ledger_has_the_rows_that_there_is_room_for, few_executor)
{
    const struct executor_memory memory = executor_memory(f->few);
    const struct model_parameter *table = &f->base.model.parameters[0];
    uint64_t rows = NODE_MAX * 28;
    uint64_t few = carve_align(table->rows * 4) + 2 * carve_align(rows * 4) +
                   carve_align(rows * table->cols * 4);
    assert_true(few < table->weights * 4 / 8);
    assert_int_equal(set_bytes(f->few), set_bytes(f->whole) - table->weights * 4 + few);
    assert_int_equal(memory.total,
                     memory.weights + memory.gradients + memory.activations + memory.scratch);
}

TEST_F(local_steps_have_a_whole_one, few_executor)
{
    struct executor *local = fixture_executor_of(
        &f->base, (struct executor_options){.node_slots_max = NODE_MAX,
                                            .local = {.steps = 2, .optimizer = {.lr = 0.1}}});
    assert_int_equal(set_bytes(local), set_bytes(f->whole));
    fixture_run(&f->base, local, fixture_ticket(0, 1, 1));
    assert_true(lends(local, 0));
}

/* An eighth of the table's 4,096 rows are 16 slots of 32 tokens. */
TEST_F(many_rows_are_kept_whole, few_executor,
       .settings = {.kind = SPEC_GPT,
                    .layers = 1,
                    .heads = 2,
                    .width = 16,
                    .context = 8,
                    .vocabulary = WORDS,
                    .tensor_max = 8})
{
    struct executor *few =
        fixture_executor_of(&f->base, (struct executor_options){.node_slots_max = 15});
    struct executor *many =
        fixture_executor_of(&f->base, (struct executor_options){.node_slots_max = 16});
    assert_true(set_bytes(few) < set_bytes(f->whole));
    assert_int_equal(set_bytes(many), set_bytes(f->whole));
}

TEST_F(an_embedding_that_is_not_tied_is_kept_whole, executor,
       .settings = fixture_words(fixture_llama(), WORDS))
{
    fixture_run(f, f->executor, fixture_ticket(0, 0, 0));
    assert_true(lends(f->executor, 0));
}
