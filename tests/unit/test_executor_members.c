/* The members of a place: each has some pieces of the model, and all together have the bits of one
 * process that has them all. */
#include "tests/unit/cut_models.h"

#include "common/model/pieces.h"
#include "common/thread.h"
#include "common/time.h"
#include "worker/plan.h"
#include "worker/replicated.h"

enum { RANKS_MAX = 4, PARTS_MAX = 8192 };

struct given {
    struct executor_part name;
    size_t bytes;
    uint8_t *data;
};

struct group;
struct member {
    struct group *group;
    struct model model;
    struct executor *executor;
    struct thread thread;
    struct executor_loss loss;
    enum err err;
    uint32_t given;  /* parts, */
    size_t received; /* and bytes */
};

/* What members gave stays until the group closes. */
struct group {
    struct executor_fixture *f;
    struct ticket ticket;
    uint32_t ranks;
    struct member members[RANKS_MAX];
    struct thread_mutex mutex;
    struct thread_cond changed;
    struct given parts[PARTS_MAX];
    uint32_t parts_count;
    bool broken; /* nobody gets anything any more */
};

static enum err give_part(void *context, uint32_t sequence, uint32_t round, const void *bytes,
                          size_t count)
{
    struct member *member = context;
    struct group *group = member->group;
    const struct given part = {{sequence, round, member->model.rank}, count, malloc(count + 1)};
    thread_lock(&group->mutex);
    assert_true(group->parts_count < PARTS_MAX);
    memcpy(part.data, bytes, count);
    group->parts[group->parts_count++] = part;
    member->given++;
    thread_wake_all(&group->changed);
    thread_unlock(&group->mutex);
    return ERR_OK;
}

static const struct given *find_part(const struct group *group, const struct executor_part *name)
{
    for (uint32_t i = group->parts_count; i-- > 0;) {
        const struct executor_part *of = &group->parts[i].name;
        if (of->sequence == name->sequence && of->round == name->round && of->rank == name->rank)
            return &group->parts[i];
    }
    return NULL;
}

static enum err take_part(void *context, const struct executor_part *name, void *ret_bytes,
                          size_t count)
{
    struct member *member = context;
    struct group *group = member->group;
    const struct given *part = NULL;
    thread_lock(&group->mutex);
    while (!group->broken && (part = find_part(group, name)) == NULL)
        assert_int_equal(thread_wait_locked(&group->changed, &group->mutex,
                                            time_now_ns() + UINT64_C(20000000000)),
                         ERR_OK);
    thread_unlock(&group->mutex);
    if (part == NULL)
        return ERR_UNREACHABLE;
    assert_int_equal(part->bytes, count);
    memcpy(ret_bytes, part->data, count);
    member->received += count;
    return ERR_OK;
}

static void compute(void *context)
{
    struct member *member = context;
    const struct group *group = member->group;
    const struct executor_hooks hooks = {
        .context = member, .give_part = give_part, .take_part = take_part};
    member->err =
        executor_run(member->executor, &group->ticket, &group->f->samples, &hooks, &member->loss);
}

/* The weights of the fixture's executor, as far as the member has them. */
static void copy_weights(const struct executor_fixture *f, struct member *member)
{
    for (uint32_t c = 0; c < f->model.chunks_count; c++) {
        const struct model_chunk *chunk = &f->model.chunks[c];
        if (!pieces_holds(&member->model, c))
            continue;
        for (uint32_t r = 0; r < chunk->rows; r++)
            memcpy(executor_weights(member->executor, chunk->parameter) +
                       pieces_row_offset(&member->model, c, r),
                   executor_weights(f->executor, chunk->parameter) +
                       pieces_row_offset(&f->model, c, r),
                   chunk->cols * sizeof(float));
    }
}

static void group_open(struct group *group, struct executor_fixture *f, uint32_t ranks)
{
    *group = (struct group){.f = f, .ranks = ranks};
    thread_mutex_init(&group->mutex);
    thread_cond_init(&group->changed);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct member *member = &group->members[rank];
        struct reason reason = {.text = ""};
        member->group = group;
        assert_int_equal(pieces_share(&f->model, rank, ranks, &member->model), ERR_OK);
        const struct executor_options options = {
            .kernels = f->k, .model = &member->model, .train = &f->train, .node_slots_max = 8};
        if (executor_new(&options, &member->executor, &reason) != ERR_OK)
            fail_msg("%s", reason.text);
        copy_weights(f, member);
    }
}

static void group_run(struct group *group, struct ticket ticket)
{
    group->ticket = ticket;
    for (uint32_t rank = 0; rank < group->ranks; rank++)
        assert_int_equal(
            thread_start(&group->members[rank].thread, "member", compute, &group->members[rank]),
            ERR_OK);
    for (uint32_t rank = 0; rank < group->ranks; rank++)
        thread_join(&group->members[rank].thread);
}

static void forget_parts(struct group *group)
{
    for (uint32_t i = 0; i < group->parts_count; i++)
        free(group->parts[i].data);
    group->parts_count = 0;
}

static void group_close(struct group *group)
{
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        executor_free(group->members[rank].executor);
        model_release(&group->members[rank].model);
    }
    forget_parts(group);
    thread_cond_release(&group->changed);
    thread_mutex_release(&group->mutex);
}

/* Of the chunk's part, as it would be pushed. */
static void assert_same_gradient(const struct group *group, const struct member *member, uint32_t c,
                                 uint32_t part)
{
    static float wanted[MODEL_CHUNK_WEIGHTS_MAX], got[MODEL_CHUNK_WEIGHTS_MAX];
    const struct model_chunk *chunk = &group->f->model.chunks[c];
    executor_encode(group->f->executor, c, part, CODEC_FP32, wanted);
    executor_encode(member->executor, c, part, CODEC_FP32, got);
    if (memcmp(wanted, got, chunk->weights * sizeof *got) != 0)
        fail_msg("rank %u of %u has other bits of %s", member->model.rank, group->ranks,
                 group->f->model.parameters[chunk->parameter].name);
}

static void assert_same(const struct group *group, const struct executor_loss *wanted)
{
    const struct model *model = &group->f->model;
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        const struct member *member = &group->members[rank];
        assert_int_equal(member->err, ERR_OK);
        assert_true(member->loss.loss_sum == wanted->loss_sum);
        assert_int_equal(member->loss.samples, wanted->samples);
        assert_int_equal(member->loss.correct, wanted->correct);
        for (uint32_t c = 0; c < model->chunks_count && group->ticket.kind == TICKET_TRAIN; c++) {
            uint32_t parts = model->parameters[model->chunks[c].parameter].parts;
            for (uint32_t part = 0; part < parts && pieces_holds(&member->model, c); part++)
                assert_same_gradient(group, member, c, part);
        }
    }
}

static void check_group(struct executor_fixture *f, uint32_t ranks)
{
    static const struct ticket tickets[] = {
        {.kind = TICKET_TRAIN, .step = 3, .node = {1, 1}},
        {.kind = TICKET_VALIDATE, .node = {0, 1}},
    };
    for (size_t i = 0; i < sizeof tickets / sizeof tickets[0]; i++) {
        static struct group group;
        group_open(&group, f, ranks);
        group_run(&group, tickets[i]);
        struct executor_loss wanted = fixture_run(f, f->executor, tickets[i]);
        assert_true(wanted.samples > 0);
        assert_same(&group, &wanted);
        group_close(&group);
    }
}

/* So that 0 is larger than all logits: nobody may take it for one. */
static void lower_logits(struct executor_fixture *f)
{
    const struct model_parameter *bias = &f->model.parameters[f->model.loss_parameter - 1];
    assert_int_equal(bias->dims, 1);
    for (uint64_t i = 0; i < bias->weights; i++)
        executor_weights(f->executor, f->model.loss_parameter - 1)[i] -= 100;
}

TEST(members_have_the_bits_of_all_pieces)
{
    for (uint32_t m = 0; m < CUT_MODELS; m++)
        for (uint32_t pieces = 2; pieces <= 4; pieces *= 2)
            for (uint32_t ranks = 2; ranks <= pieces; ranks *= 2) {
                struct executor_fixture f = {.settings = cut_models[m](pieces)};
                executor_set_up(&f);
                if (f.settings.kind == SPEC_MLP)
                    lower_logits(&f);
                check_group(&f, ranks);
                executor_tear_down(&f);
            }
}

static uint64_t replicated_of(struct replicated *replicated, const struct executor *executor)
{
    const struct node node = {0, 0};
    uint64_t sum = 0;
    for (uint32_t unit = 0; unit < replicated->model->units_count; unit++)
        assert_int_equal(replicated_add(replicated, executor, unit, node, &sum), ERR_OK);
    return sum;
}

TEST_F(members_say_the_same_digest_of_what_all_have, executor, .settings = cut_gpt(4))
{
    static struct group group;
    scoped(replicated_release) struct replicated replicated = {0};
    assert_int_equal(replicated_init(&replicated, &f->model), ERR_OK);
    group_open(&group, f, 2);
    group_run(&group, fixture_ticket(0, 0, 0));
    uint64_t sum = replicated_of(&replicated, group.members[0].executor);
    assert_true(sum != 0);
    assert_true(replicated_of(&replicated, group.members[1].executor) == sum);
    float *norm = executor_weights(group.members[1].executor, 2);
    assert_int_equal(f->model.parameters[2].pieces, 1);
    norm[0] += 1; /* of one member alone */
    forget_parts(&group);
    group_run(&group, fixture_ticket(0, 0, 0));
    assert_true(replicated_of(&replicated, group.members[0].executor) !=
                replicated_of(&replicated, group.members[1].executor));
    group_close(&group);
}

/* Of a sum so narrow that all of it is one member's part, the other adds nothing, and needs no memory
 * for it. */
static struct spec_model narrow_mlp(void)
{
    struct spec_model mlp = cut_mlp(2);
    const uint32_t sizes[] = {64, 4096, 8, 128};
    memcpy(mlp.sizes, sizes, sizeof sizes);
    return mlp;
}

TEST_F(members_of_a_narrow_sum_have_its_bits, executor, .settings = narrow_mlp())
{
    check_group(f, 2);
}

/* Whoever misses a part ends; so do all who need something of it. */
TEST_F(a_member_that_gets_nothing_ends_with_the_error, executor, .settings = cut_gpt(4))
{
    static struct group group;
    group_open(&group, f, 2);
    group.broken = true;
    group_run(&group, fixture_ticket(0, 0, 0));
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(group.members[rank].err, ERR_UNREACHABLE);
        assert_int_equal(group.members[rank].given, 1); /* and nothing after it */
    }
    group_close(&group);
}

/* A plan of the member's program counts what it received, and what it gave. */
static void assert_planned(const struct group *group, const struct member *member)
{
    enum { UNITS_MAX = 16 };
    scoped(simulate_release) struct simulate_result result = {0};
    const struct plan plan = {group->f->k, &member->model, &group->f->train};
    const struct simulate_cost costs[UNITS_MAX] = {{0, 0, 0}};
    struct program_sizes sizes[UNITS_MAX];
    const struct simulate_options options = {.costs = costs, .sizes = sizes};
    const struct program *program = executor_program(member->executor);
    struct plan_bytes bytes;
    assert_true(member->model.units_count <= UNITS_MAX);
    plan_sizes(&plan, sizes);
    assert_int_equal(simulate_program(program, &options, &result), ERR_OK);
    assert_int_equal(plan_place(&plan, program, &result, 0, &bytes), ERR_OK);
    const struct executor_memory taken = executor_memory(member->executor);
    assert_int_equal(bytes.weights, taken.weights);
    assert_int_equal(bytes.activations, taken.activations);
    assert_int_equal(bytes.scratch, taken.scratch);
    assert_int_equal(bytes.exchanged.bytes, member->received);
    assert_int_equal(bytes.exchanged.sum_messages + bytes.exchanged.gathers, member->given);
}

/* Also where the loss is computed block by block. */
static void check_planned(struct executor_fixture *f, uint32_t ranks, uint64_t logits_bytes_max)
{
    static struct group group;
    uint64_t usual = f->train.logits_bytes_max;
    f->train.logits_bytes_max = logits_bytes_max != 0 ? logits_bytes_max : usual;
    group_open(&group, f, ranks);
    group_run(&group, fixture_ticket(0, 0, 0));
    for (uint32_t rank = 0; rank < ranks; rank++) {
        assert_int_equal(group.members[rank].err, ERR_OK);
        assert_planned(&group, &group.members[rank]);
    }
    group_close(&group);
    f->train.logits_bytes_max = usual;
}

TEST(members_receive_what_their_plan_says)
{
    for (uint32_t m = 0; m < CUT_MODELS; m++) {
        struct executor_fixture f = {.settings = cut_models[m](4)};
        executor_set_up(&f);
        for (uint32_t ranks = 2; ranks <= 4; ranks *= 2) {
            check_planned(&f, ranks, 0);
            check_planned(&f, ranks, 5000);
        }
        executor_tear_down(&f);
    }
}

/* 2 layers, 7 tokens, microbatches of 2: 14 rows of 48. Of each microbatch 4 sums a layer, one of
 * the embedding, one of the head, and three numbers a row of each other member. */
static void check_traffic(struct executor_fixture *f, uint32_t ranks, size_t of_sum)
{
    static struct group group;
    const size_t rows = 14, microbatches = 2;
    group_open(&group, f, ranks);
    group_run(&group, fixture_ticket(0, 0, 0));
    for (uint32_t rank = 0; rank < ranks; rank++)
        assert_int_equal(group.members[rank].received,
                         microbatches * (10 * of_sum + 3 * rows * 4 * (ranks - 1)));
    group_close(&group);
}

TEST_F(members_tell_each_other_sums_and_three_numbers_a_row, executor, .settings = cut_gpt(4))
{
    const size_t value = 14 * 48 * sizeof(float);
    check_traffic(f, 2, value);
    check_traffic(f, 4, value / 2 * 3);
}
