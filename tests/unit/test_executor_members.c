/* The members of a place: each has some pieces of the model, and all together have the bits of one
 * process that has them all. */
#include "tests/unit/cut_models.h"

#include "common/model/pieces.h"
#include "common/thread.h"
#include "common/time.h"
#include "worker/plan.h"
#include "worker/program/mesh.h"
#include "worker/replicated.h"

#include <math.h>
#include <stdatomic.h>

enum { RANKS_MAX = 4, STAGES_MAX = 4, UNITS_MAX = 4, PARTS_MAX = 8192 };

/* A part of a sum, within the stage; or a value, from a rank of one stage to that of the other. */
struct name {
    bool is_value;
    uint32_t stage;
    struct executor_part part;
    struct executor_value value;
};

struct given {
    struct name name;
    size_t bytes;
    uint8_t *data;
};

struct group;
struct member {
    struct group *group;
    uint32_t stage;
    struct model model;
    struct executor *executor;
    struct thread thread;
    struct executor_loss loss;
    enum err err;
    bool has[UNITS_MAX]; /* their weights */
    uint32_t given;      /* parts, */
    size_t received;     /* and bytes */
    size_t arrived;      /* of values */
};

/* What members gave stays until the group closes. */
struct group {
    struct executor_fixture *f;
    struct ticket ticket;
    uint32_t ranks, count; /* members */
    struct member members[STAGES_MAX * RANKS_MAX];
    struct thread_mutex mutex;
    struct thread_cond changed;
    struct given parts[PARTS_MAX];
    uint32_t parts_count;
    bool broken; /* nobody gets anything any more */
};

static void give(struct member *member, const struct name *name, const void *bytes, size_t count)
{
    struct group *group = member->group;
    const struct given part = {*name, count, malloc(count + 1)};
    thread_lock(&group->mutex);
    assert_true(group->parts_count < PARTS_MAX);
    memcpy(part.data, bytes, count);
    group->parts[group->parts_count++] = part;
    thread_wake_all(&group->changed);
    thread_unlock(&group->mutex);
}

static bool same_name(const struct name *a, const struct name *b)
{
    if (a->is_value != b->is_value || a->part.rank != b->part.rank)
        return false;
    if (a->is_value)
        return a->value.way == b->value.way && a->value.boundary == b->value.boundary &&
               a->value.slot == b->value.slot && a->value.microbatch == b->value.microbatch;
    return a->stage == b->stage && a->part.sequence == b->part.sequence &&
           a->part.round == b->part.round;
}

static const struct given *find_part(const struct group *group, const struct name *name)
{
    for (uint32_t i = group->parts_count; i-- > 0;)
        if (same_name(&group->parts[i].name, name))
            return &group->parts[i];
    return NULL;
}

/* Waits for it. */
static enum err take(struct member *member, const struct name *name, void *ret_bytes, size_t count)
{
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
    return ERR_OK;
}

static _Thread_local bool has_failed; /* this member's device, as it has heard */

static enum err give_part(void *context, uint32_t sequence, uint32_t round, const void *bytes,
                          size_t count)
{
    struct member *member = context;
    const struct name name = {.stage = member->stage,
                              .part = {sequence, round, member->model.rank}};
    assert_false(has_failed);
    give(member, &name, bytes, count);
    member->given++;
    return ERR_OK;
}

static enum err take_part(void *context, const struct executor_part *part, void *ret_bytes,
                          size_t count)
{
    struct member *member = context;
    const struct name name = {.stage = member->stage, .part = *part};
    TRY(take(member, &name, ret_bytes, count));
    member->received += count;
    return ERR_OK;
}

static struct name name_of(const struct member *member, const struct executor_value *value)
{
    return (struct name){.is_value = true, .part.rank = member->model.rank, .value = *value};
}

static enum err send(void *context, const struct executor_value *value, const void *memory)
{
    const struct name name = name_of(context, value);
    give(context, &name, memory, value->bytes);
    return ERR_OK;
}

static enum err receive(void *context, const struct executor_value *value, void *memory)
{
    struct member *member = context;
    const struct name name = name_of(member, value);
    member->arrived += value->bytes;
    return take(member, &name, memory, value->bytes);
}

static void copy_chunk(const struct executor_fixture *f, struct member *member, uint32_t number)
{
    const struct model_chunk *chunk = &f->model.chunks[number];
    for (uint32_t r = 0; r < chunk->rows; r++)
        memcpy(executor_weights(member->executor, chunk->parameter) +
                   pieces_row_offset(&member->model, number, r),
               executor_weights(f->executor, chunk->parameter) +
                   pieces_row_offset(&f->model, number, r),
               chunk->cols * sizeof(float));
}

/* The weights of the fixture's executor, as far as the member has them. */
static enum err pull(void *context, uint32_t unit)
{
    struct member *member = context;
    const struct executor_fixture *f = member->group->f;
    const struct model_unit *u = &f->model.units[unit];
    for (uint32_t use = u->use_first; !member->has[unit] && use < u->use_first + u->uses_count;
         use++) {
        const struct model_parameter *p = &f->model.parameters[f->model.uses[use].parameter];
        for (uint32_t c = p->chunk_first; c < p->chunk_first + p->chunks_count; c++)
            if (pieces_holds(&member->model, c))
                copy_chunk(f, member, c);
    }
    member->has[unit] = true;
    return ERR_OK;
}

static void compute(void *context)
{
    struct member *member = context;
    const struct group *group = member->group;
    const struct executor_hooks hooks = {.context = member,
                                         .pull = pull,
                                         .send = send,
                                         .receive = receive,
                                         .give_part = give_part,
                                         .take_part = take_part};
    member->err =
        executor_run(member->executor, &group->ticket, &group->f->samples, &hooks, &member->loss);
}

static void member_open(struct group *group, struct executor_options options, uint32_t rank)
{
    struct member *member = &group->members[group->count++];
    struct reason reason = {.text = ""};
    member->group = group;
    member->stage = options.place;
    assert_true(group->f->model.units_count <= UNITS_MAX);
    assert_int_equal(pieces_share(&group->f->model, rank, group->ranks, &member->model), ERR_OK);
    options.kernels = group->f->k;
    options.model = &member->model;
    options.train = &group->f->train;
    if (executor_new(&options, &member->executor, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
}

enum { NODE_SLOTS_MAX = 8 };

/* One place; or those of the options' mesh. */
static void group_open_mesh(struct group *group, struct executor_fixture *f, uint32_t ranks,
                            struct executor_options options)
{
    uint32_t stages = options.mesh != NULL ? options.mesh->places : 1;
    *group = (struct group){.f = f, .ranks = ranks};
    thread_mutex_init(&group->mutex);
    thread_cond_init(&group->changed);
    for (options.place = 0; options.place < stages; options.place++)
        for (uint32_t rank = 0; rank < ranks; rank++)
            member_open(group, options, rank);
}

static void group_open(struct group *group, struct executor_fixture *f, uint32_t ranks)
{
    group_open_mesh(group, f, ranks, (struct executor_options){.node_slots_max = NODE_SLOTS_MAX});
}

static void group_run(struct group *group, struct ticket ticket)
{
    group->ticket = ticket;
    for (uint32_t i = 0; i < group->count; i++)
        assert_int_equal(
            thread_start(&group->members[i].thread, "member", compute, &group->members[i]), ERR_OK);
    for (uint32_t i = 0; i < group->count; i++)
        thread_join(&group->members[i].thread);
}

static void forget_parts(struct group *group)
{
    for (uint32_t i = 0; i < group->parts_count; i++)
        free(group->parts[i].data);
    group->parts_count = 0;
}

static void group_close(struct group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        executor_free(group->members[i].executor);
        model_release(&group->members[i].model);
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

/* Of what the member has. */
static void assert_same_gradients(const struct group *group, const struct member *member)
{
    const struct model *model = &group->f->model;
    for (uint32_t c = 0; c < model->chunks_count; c++) {
        const struct model_parameter *p = &model->parameters[model->chunks[c].parameter];
        for (uint32_t part = 0; part < p->parts && pieces_holds(&member->model, c); part++)
            if (member->has[p->part_units[part]])
                assert_same_gradient(group, member, c, part);
    }
}

/* Of one name, whoever gave it: the coordinator compares them (server/coordinator/said.h). */
static void assert_same_values(const struct group *group)
{
    for (uint32_t i = 0; i < group->parts_count; i++) {
        const struct given *part = &group->parts[i];
        struct name name = part->name;
        for (name.part.rank = 0; name.is_value && name.part.rank < group->ranks; name.part.rank++)
            assert_memory_equal(part->data, find_part(group, &name)->data, part->bytes);
    }
}

static void assert_same(const struct group *group, const struct executor_loss *wanted)
{
    assert_same_values(group);
    for (uint32_t i = 0; i < group->count; i++) {
        const struct member *member = &group->members[i];
        assert_int_equal(member->err, ERR_OK);
        if (group->ticket.kind == TICKET_TRAIN)
            assert_same_gradients(group, member);
        if (!member->has[group->f->model.units_count - 1])
            continue;
        assert_true(member->loss.loss_sum == wanted->loss_sum);
        assert_int_equal(member->loss.samples, wanted->samples);
        assert_int_equal(member->loss.correct, wanted->correct);
    }
}

static void check_mesh(struct executor_fixture *f, uint32_t ranks, const struct mesh *mesh)
{
    static const struct ticket tickets[] = {
        {.kind = TICKET_TRAIN, .step = 3, .node = {1, 1}},
        {.kind = TICKET_VALIDATE, .node = {0, 1}},
    };
    for (size_t i = 0; i < sizeof tickets / sizeof tickets[0]; i++) {
        static struct group group;
        const struct executor_options options = {.mesh = mesh, .node_slots_max = NODE_SLOTS_MAX};
        group_open_mesh(&group, f, ranks, options);
        group_run(&group, tickets[i]);
        struct executor_loss wanted = fixture_run(f, f->executor, tickets[i]);
        assert_true(wanted.samples > 0);
        assert_same(&group, &wanted);
        group_close(&group);
    }
}

static void check_group(struct executor_fixture *f, uint32_t ranks)
{
    check_mesh(f, ranks, NULL);
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

/* With every number of slots of a node, and a last held-out microbatch of one sample. */
TEST(members_with_ranges_of_tokens_have_the_bits_of_all)
{
    for (uint32_t m = 0; m < RANGED_MODELS; m++)
        for (uint32_t pieces = 2; pieces <= 4; pieces *= 2)
            for (uint32_t ranks = 2; ranks <= pieces; ranks *= 2) {
                struct executor_fixture f = {.settings = ranged_models[m](pieces)};
                executor_set_up(&f);
                f.samples.held_out = 7;
                check_group(&f, ranks);
                executor_tear_down(&f);
            }
}

TEST(members_with_ranges_compute_activations_again)
{
    for (uint32_t m = 0; m < RANGED_MODELS; m++) {
        struct executor_fixture f = {.settings = ranged_models[m](4)};
        executor_set_up(&f);
        f.train.recompute = SPEC_RECOMPUTE_ALL;
        check_group(&f, 2);
        check_group(&f, 4);
        executor_tear_down(&f);
    }
}

/* What passes between two stages is whole; zb-h1 has backward in halves. */
TEST(stages_whose_members_have_ranges_have_the_bits_of_one)
{
    static const enum schedule_kind schedules[] = {SCHEDULE_1F1B, SCHEDULE_ZB_H1};
    for (uint32_t m = 0; m < RANGED_MODELS; m++)
        for (uint32_t i = 0; i < 2; i++) {
            struct executor_fixture f = {.settings = ranged_models[m](4)};
            const struct mesh mesh = {.schedule = schedules[i], .places = 2, .runs = 1};
            executor_set_up(&f);
            check_mesh(&f, 2, &mesh);
            check_mesh(&f, 4, &mesh);
            executor_tear_down(&f);
        }
}

/* A unit each: what the head computes in takes less than the value that comes to it. */
TEST_F(a_stage_with_the_head_alone_has_room_for_what_passes, executor, .settings = ranged_gpt(4))
{
    const struct mesh mesh = {.schedule = SCHEDULE_1F1B, .places = 4, .runs = 1};
    f->train.logits_bytes_max = 384 * sizeof(float);
    f->executor = fixture_executor(f, 8);
    check_mesh(f, 4, &mesh);
}

/* A device apart from the host that fails at a wait, and at all that follow. */
static struct {
    struct kernels k;
    struct group *group;
    atomic_uint waits, fails_at;
} failing;

static const char *wait_and_fail(const struct kernels *k)
{
    (void)k;
    if (atomic_fetch_add(&failing.waits, 1) < atomic_load(&failing.fails_at))
        return NULL;
    has_failed = true;
    thread_lock(&failing.group->mutex);
    failing.group->broken = true;
    thread_wake_all(&failing.group->changed);
    thread_unlock(&failing.group->mutex);
    return "launch failure";
}

/* False: it did not come so far. */
static bool run_failing(struct executor_fixture *f, struct ticket ticket, uint32_t fails_at)
{
    static struct group group;
    const struct kernels *k = f->k;
    failing.k = *k;
    failing.k.synchronize = wait_and_fail;
    failing.k.in = k;
    failing.group = &group;
    f->k = &failing.k;
    group_open(&group, f, 2);
    atomic_store(&failing.waits, 0);
    atomic_store(&failing.fails_at, fails_at);
    group_run(&group, ticket);
    bool failed = false;
    for (uint32_t i = 0; i < group.count; i++)
        failed |= group.members[i].err == ERR_IO;
    assert_int_equal(failed, group.broken);
    group_close(&group);
    f->k = k;
    return failed;
}

/* give_part() checks that it is so. */
TEST(a_member_whose_device_has_failed_gives_nothing)
{
    struct spec_model (*models[])(uint32_t pieces) = {cut_models[0], cut_models[1], ranged_gpt};
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        struct executor_fixture f = {.settings = models[m](2)};
        executor_set_up(&f);
        uint32_t fails_at = 0;
        while (run_failing(&f, fixture_ticket(3, 0, 1), fails_at))
            fails_at++;
        assert_true(fails_at > 8);
        executor_tear_down(&f);
    }
}

static struct executor_memory memory_of(struct spec_model settings, const struct mesh *mesh,
                                        uint32_t ranks)
{
    static struct group group;
    struct executor_fixture f = {.settings = settings};
    const struct executor_options options = {.mesh = mesh, .node_slots_max = NODE_SLOTS_MAX};
    executor_set_up(&f);
    group_open_mesh(&group, &f, ranks, options);
    struct executor_memory memory = executor_memory(group.members[0].executor);
    group_close(&group);
    executor_tear_down(&f);
    return memory;
}

static struct spec_model whole_gpt(void)
{
    struct spec_model whole = ranged_gpt(4);
    whole.norms = SPEC_NORMS_WHOLE;
    return whole;
}

/* The results of three units, two residuals in between, and one gradient. */
TEST(a_member_keeps_its_ranges_of_the_residual_stream)
{
    const uint64_t array = 16 * 48 * sizeof(float);
    for (uint32_t ranks = 1; ranks <= 4; ranks *= 2)
        assert_int_equal(memory_of(ranged_gpt(4), NULL, ranks).activations,
                         memory_of(whole_gpt(), NULL, ranks).activations -
                             6 * (array - array / ranks));
}

TEST(what_is_kept_for_another_stage_is_whole)
{
    const struct mesh mesh = {.schedule = SCHEDULE_1F1B, .places = 2, .runs = 1};
    assert_int_equal(memory_of(ranged_gpt(4), &mesh, 2).kept,
                     memory_of(whole_gpt(), &mesh, 2).kept);
}

/* As small as a block of logits may be: the head's sum is one, after the last block. */
TEST_F(members_with_ranges_have_the_bits_whatever_the_block_of_logits, executor,
       .settings = ranged_gpt(4))
{
    f->train.logits_bytes_max = 3 * 384 * sizeof(float);
    f->executor = fixture_executor(f, 8);
    check_group(f, 2);
    check_group(f, 4);
}

/* A device that has memory of its own: what passes is copied out and in. */
static void check_on_device(struct executor_fixture *f)
{
    const struct kernels *host = f->k;
    struct kernels device = *host;
    device.in = host;
    f->k = &device;
    check_group(f, 2);
    check_group(f, 4);
    f->k = host;
}

TEST_F(members_with_devices_have_the_bits_of_all_pieces, executor, .settings = cut_llama(4))
{
    check_on_device(f);
}

TEST_F(members_with_devices_and_ranges_do_too, executor, .settings = ranged_gpt(4))
{
    check_on_device(f);
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

/* Infinite logits of one member's classes: their sum is a NaN, whose sign the others do not see. */
TEST_F(members_say_the_same_digest_of_a_loss_that_is_no_number, executor, .settings = cut_gpt(4))
{
    static struct group group;
    scoped(replicated_release) struct replicated replicated = {0};
    assert_int_equal(replicated_init(&replicated, &f->model), ERR_OK);
    executor_weights(f->executor, 0)[0] = INFINITY;
    group_open(&group, f, 2);
    group_run(&group, fixture_ticket(0, 0, 0));
    assert_true(isnan(executor_gradient(group.members[0].executor, f->model.loss_parameter, 0)[0]));
    assert_true(replicated_of(&replicated, group.members[0].executor) ==
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
    assert_int_equal(plan_place(&plan, program, &result, member->stage, &bytes), ERR_OK);
    const struct executor_memory taken = executor_memory(member->executor);
    assert_int_equal(bytes.weights, taken.weights);
    assert_int_equal(bytes.activations, taken.activations);
    assert_int_equal(bytes.scratch, taken.scratch);
    assert_int_equal(bytes.kept, taken.kept + taken.sums);
    assert_int_equal(bytes.exchanged.bytes, member->received);
    assert_int_equal(bytes.exchanged.sum_messages + bytes.exchanged.gathers, member->given);
    assert_int_equal(result.places[member->stage].arrived_bytes, member->arrived);
}

static void check_planned_mesh(struct executor_fixture *f, uint32_t ranks, const struct mesh *mesh)
{
    static struct group group;
    group_open_mesh(&group, f, ranks, (struct executor_options){.mesh = mesh, .node_slots_max = 1});
    group_run(&group, fixture_ticket(0, 0, 0));
    for (uint32_t i = 0; i < group.count; i++) {
        assert_int_equal(group.members[i].err, ERR_OK);
        assert_planned(&group, &group.members[i]);
    }
    group_close(&group);
}

/* Also where the loss is computed block by block. */
static void check_planned(struct executor_fixture *f, uint32_t ranks, uint64_t logits_bytes_max)
{
    uint64_t usual = f->train.logits_bytes_max;
    f->train.logits_bytes_max = logits_bytes_max != 0 ? logits_bytes_max : usual;
    check_planned_mesh(f, ranks, NULL);
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

/* Also with activations computed again, and where values pass between stages, backward in halves. */
TEST(members_with_ranges_receive_what_their_plan_says)
{
    static const struct mesh stages[] = {{.schedule = SCHEDULE_1F1B, .places = 2, .runs = 1},
                                         {.schedule = SCHEDULE_ZB_H1, .places = 2, .runs = 1}};
    for (uint32_t m = 0; m < RANGED_MODELS; m++)
        for (uint32_t ranks = 2; ranks <= 4; ranks *= 2) {
            struct executor_fixture f = {.settings = ranged_models[m](4)};
            executor_set_up(&f);
            check_planned(&f, ranks, 0);
            check_planned(&f, ranks, 5000);
            check_planned_mesh(&f, ranks, &stages[0]);
            check_planned_mesh(&f, ranks, &stages[1]);
            f.train.recompute = SPEC_RECOMPUTE_ALL;
            check_planned(&f, ranks, 0);
            check_planned_mesh(&f, ranks, &stages[0]);
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

/* As many bytes in other messages: 16 rows of 48; and of each other member the sums of norms'
 * gradients, of 2 layers two gammas and betas, of the head one. */
static void check_ranged_traffic(struct executor_fixture *f, uint32_t ranks)
{
    static struct group group;
    const size_t rows = 16, microbatches = 2, all_reduce = 2 * rows * 48 * sizeof(float);
    const size_t numbers = 3 * rows * sizeof(float), norms = 10 * 48 * sizeof(float);
    group_open(&group, f, ranks);
    group_run(&group, fixture_ticket(0, 0, 0));
    for (uint32_t rank = 0; rank < ranks; rank++)
        assert_int_equal(group.members[rank].received,
                         microbatches * (10 * all_reduce / ranks + numbers + norms) * (ranks - 1));
    group_close(&group);
}

TEST_F(ranges_are_scattered_and_gathered_for_the_bytes_of_a_sum, executor,
       .settings = ranged_gpt(4))
{
    check_ranged_traffic(f, 2);
    check_ranged_traffic(f, 4);
}
