/* Chunks that move between two shards inside a commit (P11): from whom to whom, when, and once. */
#include "tests/unit/unit.h"

#include "server/shard/shard.h"

enum { N = 20, SLOTS = 2, CHUNKS = 4, GENERATION = 3, OLD = 0, NEW = 1, SENDER = 100 };

static const struct shard_chunk chunk_list[CHUNKS] = {
    {.chunk = 2, .n = N, .parts = 1, .rule = MODEL_OPTIMIZER},
    {.chunk = 5, .n = N, .parts = 1, .rule = MODEL_OPTIMIZER},
    {.chunk = 6, .n = N, .parts = 1, .rule = MODEL_OPTIMIZER},
    {.chunk = 9, .n = N, .parts = 1, .rule = MODEL_OPTIMIZER},
};

/* Two servers of one shard each: chunks 2, 5, 6 on OLD, chunk 9 on NEW. */
struct pair_fixture {
    const struct kernels *kernels;
    struct shard *shards[2];
    struct shard_effects effects;
    uint32_t delay;
    bool begun;                   /* chunk 5 leaves with step 0, as in move_begun() */
    bool early;                   /* what a step beside a cut takes is made early */
    struct shared_blocks *blocks; /* of NEW */
    uint64_t id;
    uint32_t answered; /* pulls, by weights */
    uint64_t committed[2], reduced[2];
    uint32_t snapshots[2];
    bool has_transfer;
    struct transfer transfer; /* the newest sent */
    float values[3 * N + SHARD_DELAY_MAX * N];
};

static struct shard *make(const struct pair_fixture *f, const struct shard_chunk *chunks,
                          uint32_t count, uint32_t boot)
{
    const struct shard_config config = {
        .kernels = f->kernels,
        .generation = GENERATION,
        .boot = boot,
        .slots = SLOTS,
        .delay = f->delay,
        .cut_versions = f->delay,
        .ahead_max = SLOTS,
        .parked_member_bytes_max = 1000,
        .snapshot_copies = 1,
        .snapshot_early = f->early,
        .weights_max = f->early ? N : 0,
        .blocks = boot == NEW ? f->blocks : NULL,
        .optimizer = {.kind = SPEC_MOMENTUM, .momentum = 0.5},
        .chunk_count = count,
        .chunks = chunks,
    };
    struct shard *shard;
    assert_int_equal(shard_new(&config, &shard), ERR_OK);
    for (uint32_t c = 0; c < count; c++)
        for (uint32_t i = 0; i < chunks[c].n; i++)
            shard_state(shard, c).weights[i] = (float)(chunks[c].chunk + i);
    assert_int_equal(shard_start(shard), ERR_OK);
    return shard;
}

static void pair_tear_down(struct pair_fixture *f)
{
    shard_free(f->shards[OLD]);
    shard_free(f->shards[NEW]);
    shared_blocks_unref(f->blocks);
    kernels_free(f->kernels);
}

/* What the last call of a shard asked for. */
static void carry_out(struct pair_fixture *f, uint32_t server)
{
    for (uint32_t i = 0; i < f->effects.count; i++) {
        const struct shard_effect *e = &f->effects.items[i];
        if (e->kind == SHARD_WEIGHTS) {
            f->answered++;
            for (uint32_t c = 0; c < e->weights.header.chunk_count; c++)
                counted_unref(e->weights.copies[c]);
        } else if (e->kind == SHARD_SNAPSHOT) {
            f->snapshots[server]++;
            shard_snapshot_drop(e);
        } else if (e->kind == SHARD_COMMITTED) {
            f->committed[server] = e->committed.step + 1;
        } else if (e->kind == SHARD_REDUCED) {
            f->reduced[server] = e->reduced.step + 1;
        } else if (e->kind == SHARD_TRANSFER) {
            f->has_transfer = true;
            f->transfer = e->transfer.header;
            assert_int_equal(e->transfer.to, 7);
            shard_transfer_copy(f->shards[server], &f->transfer, f->values);
        }
    }
    f->effects.count = 0;
    shard_check(f->shards[server]);
}

static void work(struct pair_fixture *f, uint32_t server)
{
    bool more = true;
    for (uint32_t i = 0; more && i < 100; i++) {
        assert_int_equal(shard_work(f->shards[server], &f->effects, &more), ERR_OK);
        carry_out(f, server);
    }
    assert_false(more); /* a shard that waits does not spin */
}

static enum err push(struct pair_fixture *f, uint32_t server, uint64_t step, uint32_t slot,
                     uint32_t chunk)
{
    float values[N];
    for (uint32_t i = 0; i < N; i++)
        values[i] = (float)(step + 1) * (float)(slot + 1) + (float)chunk;
    const struct push_entry entry = {.chunk = chunk, .bytes = sizeof values};
    const struct push push = {.id = ++f->id,
                              .generation = GENERATION,
                              .step = step,
                              .node = {0, slot},
                              .entry_count = 1,
                              .entries = &entry};
    const struct slice slice = {(const uint8_t *)values, sizeof values};
    struct shard_ack ack =
        shard_push(f->shards[server], SENDER, &push, (struct cursor){&slice, 1, 0, 0}, &f->effects);
    carry_out(f, server);
    return ack.code;
}

static void push_all(struct pair_fixture *f, uint32_t server, uint64_t step, uint32_t chunk)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        assert_int_equal(push(f, server, step, slot, chunk), ERR_OK);
}

/* OK: answered with weights now. */
static enum err pull(struct pair_fixture *f, uint32_t server, uint64_t version, uint32_t chunk)
{
    const struct pull pull = {.id = ++f->id,
                              .generation = GENERATION,
                              .version = version,
                              .chunk_count = 1,
                              .chunks = &chunk};
    shard_pull(f->shards[server], (struct pull_sender){SENDER, 1}, &pull, &f->effects);
    const struct shard_effect *effect = &f->effects.items[0];
    enum err err = effect->kind == SHARD_WEIGHTS ? ERR_OK : effect->refusal.code;
    carry_out(f, server);
    return err;
}

static struct commit decision(uint64_t step, bool cut)
{
    return (struct commit){.generation = GENERATION,
                           .step = step,
                           .apply = true,
                           .cut = cut,
                           .scale = 0.5f,
                           .lr = 0.25f,
                           .bias1 = 1,
                           .bias2 = 1};
}

static enum err commit(struct pair_fixture *f, uint32_t server, uint64_t step, bool cut,
                       const struct shard_moves *moves)
{
    struct commit commit = decision(step, cut);
    enum err err = shard_commit(f->shards[server], server, &commit, moves, &f->effects);
    carry_out(f, server);
    return err;
}

static const struct shard_leave leave_5 = {.chunk = 5, .to = 7};
static const struct shard_moves leaving = {.leave_count = 1, .leaves = &leave_5};
static const struct shard_moves coming = {.take_count = 1, .takes = &chunk_list[1]};

/* What stays on OLD; what NEW has once chunk 5 is its own; everything before chunk 5 has moved. */
static void push_old(struct pair_fixture *f, uint64_t step)
{
    push_all(f, OLD, step, 2);
    push_all(f, OLD, step, 6);
}

static void push_new(struct pair_fixture *f, uint64_t step)
{
    push_all(f, NEW, step, 5);
    push_all(f, NEW, step, 9);
}

static void push_step(struct pair_fixture *f, uint64_t step)
{
    push_old(f, step);
    push_all(f, OLD, step, 5);
    push_all(f, NEW, step, 9);
}

static enum err arrive(struct pair_fixture *f, const struct transfer *transfer)
{
    size_t bytes = (size_t)transfer->weights * transfer->arrays * sizeof(float);
    const struct slice slice = {(const uint8_t *)f->values, bytes};
    enum err err =
        shard_arrive(f->shards[NEW], transfer, (struct cursor){&slice, 1, 0, 0}, &f->effects);
    carry_out(f, NEW);
    return err;
}

/* Step 0 is decided, and chunk 5 leaves with it; both have carried out what they can. */
static void move_begun(struct pair_fixture *f, bool cut)
{
    push_step(f, 0);
    assert_int_equal(commit(f, OLD, 0, cut, &leaving), ERR_OK);
    assert_int_equal(commit(f, NEW, 0, cut, &coming), ERR_OK);
    work(f, OLD);
    work(f, NEW);
    assert_true(f->has_transfer);
}

/* An array for each of the run's chunks. */
static struct shared_blocks *make_blocks(void)
{
    struct shared_part parts[10];
    struct shared_blocks *blocks;
    for (uint32_t i = 0; i < sizeof parts / sizeof *parts; i++)
        parts[i] = (struct shared_part){i, N * sizeof(float)};
    assert_int_equal(shared_blocks_new(parts, sizeof parts / sizeof *parts, 3, NULL, &blocks),
                     ERR_OK);
    return blocks;
}

static void pair_set_up(struct pair_fixture *f)
{
    struct kernels_options options = {.backend = KERNELS_CPU};
    char text[256];
    if (f->early)
        f->blocks = make_blocks();
    assert_true(kernels_new(&options, &f->kernels, text, sizeof text));
    f->shards[OLD] = make(f, chunk_list, 3, OLD);
    f->shards[NEW] = make(f, chunk_list + 3, 1, NEW);
    if (f->begun)
        move_begun(f, false);
}

TEST_F(a_chunk_that_has_not_arrived_has_no_memory_to_be_touched, pair, .begun = true, .early = true)
{
    assert_int_equal(f->committed[NEW], 0);
    assert_int_equal(arrive(f, &f->transfer), ERR_OK);
    assert_int_equal(f->committed[NEW], 1);
}

TEST_F(p11_a_chunk_leaves_with_its_commit_and_arrives_once, pair, .begun = true)
{
    assert_int_equal(f->transfer.chunk, 5);
    assert_int_equal(f->transfer.version, 1);
    assert_int_equal(f->committed[OLD], 1);
    assert_int_equal(f->committed[NEW], 0); /* not before the chunk is there */
    assert_int_equal(arrive(f, &f->transfer), ERR_OK);
    assert_int_equal(f->committed[NEW], 1);
    f->values[0] += 1; /* a copy that differs changes nothing */
    assert_int_equal(arrive(f, &f->transfer), ERR_OK);
    shard_transferred(f->shards[OLD], &f->transfer, ERR_OK);
    shard_check(f->shards[OLD]);
    work(f, NEW);
    assert_int_equal(pull(f, OLD, 1, 5), ERR_MOVED);
    assert_int_equal(pull(f, NEW, 1, 5), ERR_OK);
    /* Step 1 is reduced where its chunks are now. */
    push_old(f, 1);
    assert_int_equal(f->reduced[OLD], 2);
    push_all(f, NEW, 1, 9);
    assert_int_equal(f->reduced[NEW], 1);
    push_all(f, NEW, 1, 5);
    assert_int_equal(f->reduced[NEW], 2);
}

/* The disks were full: the version is written again, when all have acknowledged the commit. */
TEST_F(p11_a_later_attempt_at_the_cut_has_the_chunk_at_its_new_owner, pair)
{
    struct shard_moves again = {.attempt = 1};
    move_begun(f, true);
    assert_int_equal(arrive(f, &f->transfer), ERR_OK);
    for (uint32_t server = 0; server < 2; server++) {
        f->snapshots[server] = 0;
        assert_int_equal(commit(f, server, 0, true, &again), ERR_OK);
        work(f, server);
    }
    assert_int_equal(f->snapshots[OLD], 2);
    assert_int_equal(f->snapshots[NEW], 2);
}

/* Moved and not moved, a chunk has the same bits two steps later. */
TEST(a_moved_chunk_goes_on_with_the_same_bits)
{
    struct pair_fixture still = {0}, moved = {0};
    pair_set_up(&still);
    pair_set_up(&moved);
    move_begun(&moved, false);
    assert_int_equal(arrive(&moved, &moved.transfer), ERR_OK);
    push_step(&still, 0);
    assert_int_equal(commit(&still, OLD, 0, false, NULL), ERR_OK);
    work(&still, OLD);
    for (uint64_t step = 1; step < 3; step++) {
        push_old(&moved, step);
        push_new(&moved, step);
        for (uint32_t server = 0; server < 2; server++) {
            assert_int_equal(commit(&moved, server, step, false, NULL), ERR_OK);
            work(&moved, server);
        }
        push_all(&still, OLD, step, 2);
        push_all(&still, OLD, step, 5);
        push_all(&still, OLD, step, 6);
        assert_int_equal(commit(&still, OLD, step, false, NULL), ERR_OK);
        work(&still, OLD);
    }
    struct shard_state a = shard_state(still.shards[OLD], 1), b = shard_state(moved.shards[NEW], 0);
    assert_memory_equal(a.weights, b.weights, N * sizeof(float));
    assert_memory_equal(a.state[0], b.state[0], N * sizeof(float));
    pair_tear_down(&still);
    pair_tear_down(&moved);
}

TEST_F(p11_the_old_owner_counts_no_more_sums_and_still_answers_pulls, pair, .begun = true)
{
    assert_int_equal(push(f, OLD, 1, 0, 5), ERR_MOVED);
    assert_int_equal(push(f, OLD, 0, 0, 5), ERR_OK); /* counted before */
    assert_int_equal(pull(f, OLD, 1, 5), ERR_OK);
    assert_int_equal(push(f, NEW, 1, 0, 5), ERR_OK); /* its place is there already */
    assert_int_equal(push(f, NEW, 0, 0, 5), ERR_OK);
}

TEST_F(a_pull_waits_for_the_commit_and_then_for_the_chunk, pair)
{
    push_step(f, 0);
    assert_int_equal(pull(f, NEW, 1, 5), ERR_TOO_EARLY); /* the commit has not come */
    assert_int_equal(pull(f, NEW, 0, 5), ERR_MOVED);
    assert_int_equal(commit(f, OLD, 0, false, &leaving), ERR_OK);
    assert_int_equal(commit(f, NEW, 0, false, &coming), ERR_OK);
    work(f, OLD);
    work(f, NEW); /* goes past the chunk's turn without answering */
    assert_int_equal(pull(f, NEW, 1, 5), ERR_TOO_EARLY);
    assert_int_equal(f->answered, 0);
    assert_int_equal(arrive(f, &f->transfer), ERR_OK);
    work(f, NEW);
    assert_int_equal(f->answered, 2);
    assert_int_equal(shard_statistics(f->shards[NEW]).parked, 0);
}

TEST_F(p11_a_transfer_is_taken_only_by_who_awaits_it, pair)
{
    push_step(f, 0);
    assert_int_equal(commit(f, OLD, 0, false, &leaving), ERR_OK);
    work(f, OLD);
    struct transfer wrong[] = {f->transfer, f->transfer, f->transfer, f->transfer, f->transfer};
    const enum err errs[] = {ERR_OLD_GENERATION, ERR_BEHIND, ERR_TOO_LATE, ERR_TOO_LATE,
                             ERR_MALFORMED};
    assert_int_equal(arrive(f, &f->transfer), ERR_TOO_EARLY); /* its commit has not come */
    assert_int_equal(commit(f, NEW, 0, false, &coming), ERR_OK);
    wrong[0].generation--;
    wrong[1].generation++;
    wrong[2].version = 0;
    wrong[3].chunk = 6;
    wrong[4].weights--;
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(arrive(f, &wrong[i]), errs[i]);
    assert_int_equal(arrive(f, &f->transfer), ERR_OK);
}

TEST_F(p11_a_chunk_leaves_after_its_cut, pair)
{
    move_begun(f, true);
    assert_int_equal(f->snapshots[OLD], 3); /* the chunk is in the old owner's file … */
    assert_int_equal(arrive(f, &f->transfer), ERR_OK);
    work(f, NEW);
    assert_int_equal(f->snapshots[NEW], 1); /* … and not in the new one's */
    shard_transferred(f->shards[OLD], &f->transfer, ERR_OK);
    push_old(f, 1);
    push_new(f, 1);
    assert_int_equal(commit(f, OLD, 1, true, NULL), ERR_OK);
    assert_int_equal(commit(f, NEW, 1, true, NULL), ERR_OK);
    work(f, OLD);
    work(f, NEW);
    assert_int_equal(f->snapshots[OLD], 3 + 2);
    assert_int_equal(f->snapshots[NEW], 1 + 2);
}

TEST_F(what_was_not_taken_is_sent_again, pair, .begun = true)
{
    f->has_transfer = false;
    shard_transferred(f->shards[OLD], &f->transfer, ERR_UNREACHABLE);
    work(f, OLD);
    assert_true(f->has_transfer);
    assert_int_equal(arrive(f, &f->transfer), ERR_OK);
    /* The answer is lost: the next commit proves that the chunk is there. */
    push_old(f, 1);
    assert_int_equal(commit(f, OLD, 1, false, NULL), ERR_OK);
    work(f, OLD);
    assert_int_equal(pull(f, OLD, 1, 5), ERR_MOVED);
    shard_transferred(f->shards[OLD], &f->transfer, ERR_OK); /* late */
    shard_check(f->shards[OLD]);
}

TEST_F(the_next_commit_waits_for_what_comes, pair, .begun = true)
{
    push_new(f, 1);
    assert_int_equal(commit(f, NEW, 1, false, NULL), ERR_TOO_EARLY);
    assert_int_equal(arrive(f, &f->transfer), ERR_OK);
    assert_int_equal(commit(f, NEW, 1, false, NULL), ERR_OK);
    work(f, NEW);
    assert_int_equal(f->committed[NEW], 2);
}

/* The answer to its first transfer was lost, and it is about to go on to the next server. */
TEST_F(p11_a_chunk_that_is_given_again_on_its_way_to_the_next_is_here_still, pair, .begun = true)
{
    const struct transfer first = f->transfer;
    assert_int_equal(arrive(f, &first), ERR_OK);
    push_new(f, 1);
    assert_int_equal(commit(f, NEW, 1, false, &leaving), ERR_OK);
    work(f, NEW);
    assert_int_equal(f->transfer.version, 2);
    assert_int_equal(arrive(f, &first), ERR_OK);
    assert_int_equal(pull(f, NEW, 2, 5), ERR_OK); /* it is what it was */
    shard_transferred(f->shards[NEW], &f->transfer, ERR_OK);
    assert_int_equal(arrive(f, &first), ERR_TOO_LATE);
}

TEST_F(a_shard_without_chunks_joins_at_any_step_and_is_emptied_again, pair)
{
    shard_free(f->shards[NEW]);
    f->shards[NEW] = make(f, NULL, 0, NEW);
    for (uint64_t step = 0; step < 2; step++) {
        push_all(f, OLD, step, 2);
        push_all(f, OLD, step, 5);
        push_all(f, OLD, step, 6);
        assert_int_equal(commit(f, OLD, step, false, step == 1 ? &leaving : NULL), ERR_OK);
        work(f, OLD);
    }
    assert_int_equal(commit(f, NEW, 1, false, &coming), ERR_OK);
    assert_int_equal(arrive(f, &f->transfer), ERR_OK);
    work(f, NEW);
    assert_int_equal(f->committed[NEW], 2);
    push_all(f, NEW, 2, 5);
    assert_int_equal(f->reduced[NEW], 3);
    assert_int_equal(commit(f, NEW, 2, false, &leaving), ERR_OK);
    work(f, NEW);
    shard_transferred(f->shards[NEW], &f->transfer, ERR_OK);
    work(f, NEW);
    assert_int_equal(pull(f, NEW, 2, 5), ERR_MOVED);
}

TEST_F(p11_moves_that_are_not_of_what_is_here_are_refused, pair)
{
    push_step(f, 0);
    const struct shard_leave strange = {.chunk = 9};
    const struct shard_moves not_here = {.leave_count = 1, .leaves = &strange};
    assert_int_equal(commit(f, OLD, 0, false, &not_here), ERR_MALFORMED);
    assert_int_equal(commit(f, OLD, 0, false, &coming), ERR_MALFORMED); /* it is here */
    assert_int_equal(commit(f, OLD, 0, false, &leaving), ERR_OK);
}

TEST_F(p11_with_a_delay_open_sums_do_not_move, pair, .delay = 1)
{
    push_step(f, 0);
    assert_int_equal(push(f, OLD, 1, 0, 5), ERR_OK);
    assert_int_equal(commit(f, OLD, 0, false, &leaving), ERR_MALFORMED);
}

TEST_F(p11_with_a_delay_old_versions_move, pair, .delay = 1, .begun = true)
{
    assert_int_equal(f->transfer.arrays, 3); /* weights, momentum, the version before */
    assert_int_equal(arrive(f, &f->transfer), ERR_OK);
    work(f, NEW);
    assert_int_equal(pull(f, NEW, 0, 5), ERR_OK);
    assert_int_equal(pull(f, NEW, 1, 5), ERR_OK);
    assert_float_equal(f->values[2 * N + 3], 5 + 3, 0); /* version 0 as it was */
}

TEST_F(p11_what_leaves_may_be_all_that_a_later_step_misses, pair, .delay = 1)
{
    push_step(f, 0);
    push_old(f, 1); /* those of chunk 5 go to the new owner, who has heard of it first */
    assert_int_equal(f->reduced[OLD], 1);
    assert_int_equal(commit(f, OLD, 0, false, &leaving), ERR_OK);
    assert_int_equal(f->reduced[OLD], 2);
}
