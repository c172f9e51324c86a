/* Snapshots of a shard for cuts (P9). */
#include "tests/unit/shard_fixture.h"

#include "server/shard/prepare.h"

/* A writer's references. */
static struct shard_effect hold(const struct shard_effect *snapshot)
{
    struct shard_effect held = *snapshot;
    held.snapshot.block = counted_ref(snapshot->snapshot.block);
    if (snapshot->snapshot.weights != NULL)
        counted_ref(snapshot->snapshot.weights);
    return held;
}

static void let_go(struct shard_effect *held)
{
    shard_snapshot_drop(held);
    *held = (struct shard_effect){0};
}

/* n weights and n of the one state. */
static void copy_held(const struct shard_effect *held, float *ret_values)
{
    uint32_t n = held->snapshot.n;
    memcpy(ret_values, shard_snapshot_weights(held), n * sizeof *ret_values);
    memcpy(ret_values + n, shard_snapshot_rest(held), n * sizeof *ret_values);
}

TEST_F(a_snapshot_is_the_state_of_the_cut, shard)
{
    do_step(f, 0);
    push_step(f, 1);
    carry_out(f, cut_decision(1));
    float expected[COUNT][2 * N_FIRST];
    for (uint32_t i = 0; i < COUNT; i++) {
        memcpy(expected[i], shard_state(f->shard, i).weights, chunks[i].n * 4);
        memcpy(expected[i] + chunks[i].n, shard_state(f->shard, i).state[0], chunks[i].n * 4);
    }
    /* The next step is applied while the one copy buffer is with a slow writer. */
    push_step(f, 2);
    begin(f, decision(2));
    uint32_t handed = 0;
    bool committed = false;
    struct shard_effect writer = {0};
    float values[2 * N_FIRST];
    for (uint32_t i = 0; i < 40 && !(committed && handed == COUNT); i++) {
        bool more = work(f);
        committed |= effect(f, SHARD_COMMITTED) != NULL;
        struct shard_effect *snapshot = effect(f, SHARD_SNAPSHOT);
        if (snapshot != NULL) {
            assert_null(writer.snapshot.block); /* one at a time */
            assert_int_equal(snapshot->snapshot.cut.version, 2);
            assert_int_equal(snapshot->snapshot.cut.generation, GENERATION);
            assert_int_equal(snapshot->snapshot.chunk, chunks[handed].chunk);
            assert_int_equal(snapshot->snapshot.n, chunks[handed].n);
            assert_int_equal(snapshot->snapshot.states, 1);
            assert_int_equal(snapshot->snapshot.last, handed == COUNT - 1);
            assert_int_equal(snapshot->snapshot.given, handed + 1);
            writer = hold(snapshot);
            copy_held(&writer, values);
            assert_memory_equal(values, expected[handed], chunks[handed].n * 8);
            handed++;
        } else if (!more && writer.snapshot.block != NULL) {
            /* It waits for the writer; pushes and pulls are answered all the same. */
            assert_int_equal(push_all(f, 2, (struct node){0, 0}), ERR_OK);
            if (!committed)
                assert_int_equal(refusal(pull_one(f, 3, LOSS)), ERR_TOO_EARLY);
            let_go(&writer);
        }
    }
    assert_true(committed);
    assert_int_equal(handed, COUNT);
    let_go(&writer);
    shard_cancel(f->shard, ALICE);
}

/* Carries out step 2 beside the cut of version 2 with that many copy buffers, none of which comes
 * back; the cut's copies are the caller's. Returns whether the step is committed. */
static bool step_beside_cut(struct shard_fixture *f, uint32_t copies, struct shard_effect *ret_held)
{
    f->config.snapshot_copies = copies;
    start(f);
    do_step(f, 0);
    push_step(f, 1);
    carry_out(f, cut_decision(1));
    push_step(f, 2);
    begin(f, decision(2));
    bool more = true, committed = false;
    for (uint32_t held = 0; more;) {
        more = work(f);
        committed |= effect(f, SHARD_COMMITTED) != NULL;
        if (effect(f, SHARD_SNAPSHOT) != NULL)
            ret_held[held++] = hold(effect(f, SHARD_SNAPSHOT));
    }
    return committed;
}

TEST_F(a_step_goes_on_while_the_writer_holds_the_copies, shard, .later = true)
{
    struct shard_effect held[COUNT] = {0};
    assert_true(step_beside_cut(f, COUNT, held));
    assert_int_equal(shard_statistics(f->shard).held_up, 0);
    for (uint32_t i = 0; i < COUNT; i++)
        let_go(&held[i]);
}

TEST_F(a_step_waits_for_the_writer_when_its_memory_is_used_up, shard, .later = true)
{
    struct shard_effect held[COUNT] = {0};
    assert_false(step_beside_cut(f, COUNT - 1, held));
    assert_int_equal(shard_statistics(f->shard).held_up, 1);
    assert_null(held[COUNT - 1].snapshot.block);
    for (uint32_t i = 0; i < COUNT; i++)
        let_go(&held[i]);
    work_until_committed(f, 2);
    assert_int_equal(shard_statistics(f->shard).held_up, 1);
}

/* With N_FIRST as the run's largest, FIRST and TIED lend their values. */
TEST_F(a_step_beside_a_cut_is_the_same_whether_chunks_lend_or_are_copied, shard, .later = true)
{
    struct shard_effect lent[COUNT] = {0}, copied[COUNT] = {0};
    float values[2][2 * N_FIRST];
    struct shard_fixture copying = *f;
    f->config.weights_max = N_FIRST;
    assert_true(step_beside_cut(f, COUNT, lent));
    assert_true(step_beside_cut(&copying, COUNT, copied));
    for (uint32_t i = 0; i < COUNT; i++) {
        struct shard_state state = shard_state(f->shard, i), other = shard_state(copying.shard, i);
        copy_held(&lent[i], values[0]);
        copy_held(&copied[i], values[1]);
        assert_memory_equal(values[0], values[1], chunks[i].n * 8);
        assert_memory_equal(state.weights, other.weights, chunks[i].n * 4);
        assert_memory_equal(state.state[0], other.state[0], chunks[i].n * 4);
        let_go(&copied[i]);
    }
    clear(&copying);
    shard_free(copying.shard);
    for (uint32_t i = 0; i < COUNT; i++)
        let_go(&lent[i]);
    do_step(f, 3); /* in place: what was lent is the shard's again */
}

TEST_F(a_step_waits_while_all_buffers_are_lent, shard, .later = true)
{
    struct shard_effect held[COUNT] = {0};
    f->config.weights_max = N_FIRST;
    assert_false(step_beside_cut(f, 1, held));
    assert_int_equal(shard_statistics(f->shard).held_up, 1);
    assert_non_null(held[1].snapshot.block); /* it is lent, and its new values have no place */
    assert_null(held[2].snapshot.block);
    let_go(&held[0]);
    assert_true(work(f));
    let_go(&held[1]);
    work_until_committed(f, 2);
    assert_int_equal(shard_statistics(f->shard).held_up, 1);
}

TEST_F(a_skipped_step_needs_no_buffer_for_what_is_lent, shard, .later = true)
{
    f->config.weights_max = N_FIRST;
    start(f);
    do_step(f, 0);
    push_step(f, 1);
    carry_out(f, cut_decision(1));
    struct shard_effect held[COUNT] = {0};
    for (uint32_t i = 0; i < 2; i++) {
        work(f);
        held[i] = hold(effect(f, SHARD_SNAPSHOT));
    }
    push_step(f, 2);
    struct commit skip = decision(2);
    skip.apply = false;
    carry_out(f, skip);
    assert_ptr_equal(shard_snapshot_weights(&held[0]), shard_state(f->shard, 0).weights);
    assert_ptr_equal(shard_snapshot_rest(&held[0]), shard_state(f->shard, 0).state[0]);
    for (uint32_t i = 0; i < 2; i++)
        let_go(&held[i]);
}

TEST_F(buffers_are_made_before_a_cut_needs_them, shard, .later = true)
{
    f->config.weights_max = N_FIRST;
    f->config.snapshot_early = true;
    f->config.snapshot_copies = COUNT;
    start(f);
    do_step(f, 0);
    assert_true(work(f)); /* one for FIRST, one for TIED */
    assert_false(work(f));
}

/* Bytes of the pool that are given, where none was given back. */
static size_t given(struct shared_pool *pool)
{
    struct counted *next = shared_pool_counted(pool, 1);
    size_t before = (size_t)(next->data - shared_pool_memory(pool).data);
    counted_unref(next);
    return before;
}

TEST_F(blocks_of_large_chunks_are_touched_before_a_cut_needs_them, shard, .later = true)
{
    enum { CHUNKS = LOSS + 1, BLOCKS = 3 };
    struct shared_part parts[CHUNKS];
    struct shared_pool *pool;
    for (uint32_t i = 0; i < CHUNKS; i++)
        parts[i] = (struct shared_part){i, sizeof(float) * N_FIRST};
    assert_int_equal(shared_pool_new(&pool, NULL), ERR_OK);
    assert_int_equal(shared_blocks_new(parts, CHUNKS, BLOCKS, pool, &f->config.blocks), ERR_OK);
    f->config.weights_max = N_FIRST;
    f->config.snapshot_early = true;
    f->config.snapshot_copies = COUNT;
    start(f);
    do_step(f, 0);
    size_t before = given(pool), block = sizeof(float) * N_FIRST;
    assert_true(work(f)); /* of FIRST */
    assert_in_range(given(pool) - before, 2 * block, 3 * block);
    assert_false(work(f)); /* of TIED */
    assert_in_range(given(pool) - before, 4 * block, 6 * block);
    shared_blocks_unref(f->config.blocks);
    shared_pool_free(pool);
}

/* ---- how far the writer's queue may go ---- */

enum { AHEAD = 8, AHEAD_MAX = SHARD_AHEAD_MAX, WIDE_MAX = AHEAD_MAX + 2, WIDE_N = 4 };

/* Chunks of four weights, and slots that are steps. */
static void start_wide(struct shard_fixture *f, uint32_t count)
{
    static struct shard_chunk wide[WIDE_MAX];
    for (uint32_t i = 0; i < count; i++)
        wide[i] = (struct shard_chunk){
            .chunk = i, .n = WIDE_N, .parts = 1, .rule = MODEL_OPTIMIZER, .decay = true};
    f->config.chunks = wide;
    f->config.chunk_count = f->config.run_chunk_count = f->config.snapshot_copies = count;
    f->config.slots = f->config.ahead_max = 1;
    assert_int_equal(shard_new(&f->config, &f->shard), ERR_OK);
    for (uint32_t i = 0; i < count; i++)
        memset(shard_state(f->shard, i).weights, 0, WIDE_N * sizeof(float));
    assert_int_equal(shard_start(f->shard), ERR_OK);
    assert_true(shard_snapshot_begin(f->shard));
}

/* Works while there is something to do; returns how many blocks the writer then has. */
static uint32_t hand_out(struct shard_fixture *f, struct shard_effect *held, uint32_t count)
{
    for (bool more = true; more;) {
        more = work(f);
        if (effect(f, SHARD_SNAPSHOT) != NULL)
            held[count++] = hold(effect(f, SHARD_SNAPSHOT));
    }
    return count;
}

static void let_all_go(struct shard_effect *held, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        let_go(&held[i]);
}

/* Copied, or lent. */
static void check_ahead(struct shard_fixture *f, uint32_t weights_max)
{
    struct shard_effect held[2 * AHEAD];
    f->config.weights_max = weights_max;
    start_wide(f, 2 * AHEAD);
    uint32_t count = hand_out(f, held, 0);
    assert_int_equal(count, AHEAD);
    let_all_go(held, 0, 3);
    count = hand_out(f, held, count);
    assert_int_equal(count, AHEAD + 3);
    let_all_go(held, 3, count);
}

TEST_F(while_no_step_waits_the_writer_has_a_few_blocks_ahead, shard, .later = true)
{
    check_ahead(f, 0);
}

TEST_F(while_no_step_waits_few_chunks_are_lent_ahead, shard, .later = true)
{
    check_ahead(f, WIDE_N);
}

/* Otherwise the step would wait for the disk although there is memory. */
TEST_F(a_step_that_waits_fills_the_writers_queue, shard, .later = true)
{
    static struct shard_effect held[WIDE_MAX];
    start_wide(f, WIDE_MAX);
    for (uint32_t chunk = 0; chunk < WIDE_MAX;) {
        struct message m;
        message_begin(f, &m, 0, (struct node){0, 0});
        for (uint32_t i = 0; i < 8 && chunk < WIDE_MAX; i++)
            message_add(&m, chunk++, 0, WIDE_N);
        assert_int_equal(send(f, ALICE, &m).code, ERR_OK);
    }
    begin(f, decision(0));
    uint32_t count = hand_out(f, held, 0);
    assert_int_equal(count, AHEAD_MAX);
    assert_int_equal(shard_statistics(f->shard).held_up, 1);
    let_all_go(held, 0, WIDE_MAX - AHEAD_MAX);
    count = hand_out(f, held, count);
    assert_int_equal(count, WIDE_MAX);
    let_all_go(held, WIDE_MAX - AHEAD_MAX, count);
}

/* What a cut of one chunk holds. */
static void take_snapshot(struct shard_fixture *f, uint32_t number, float *ret_values)
{
    for (uint32_t i = 0; i < 100; i++) {
        bool more = work(f);
        struct shard_effect *snapshot = effect(f, SHARD_SNAPSHOT);
        if (snapshot != NULL && snapshot->snapshot.chunk == number) {
            uint32_t n = snapshot->snapshot.n;
            uint32_t rest = snapshot->snapshot.states + snapshot->snapshot.versions;
            memcpy(ret_values, shard_snapshot_weights(snapshot), n * sizeof *ret_values);
            memcpy(ret_values + n, shard_snapshot_rest(snapshot), rest * n * sizeof *ret_values);
        }
        if (!more)
            return;
    }
    fail_msg("the snapshot never ends");
}

TEST_F(p9_with_a_delay_a_cut_holds_the_versions_that_open_steps_compute_on, shard, .later = true)
{
    float cut[4 * N_FIRST], first[4 * N_FIRST], again[N_FIRST];
    f->config.delay = f->config.cut_versions = 2;
    f->config.weights_codec = CODEC_BF16; /* older versions come back with the same bits */
    start(f);
    assert_true(shard_snapshot_begin(f->shard));
    take_snapshot(f, FIRST, first);
    assert_memory_equal(first + 2 * N_FIRST, first + 3 * N_FIRST, N_FIRST * 4); /* version 0 */
    for (uint64_t step = 0; step < 3; step++) {
        push_step(f, step);
        struct commit c = decision(step);
        c.cut = step == 2;
        assert_int_equal(commit(f, &c), ERR_OK);
        if (!c.cut)
            work_until_committed(f, step);
    }
    take_snapshot(f, FIRST, cut);
    uint16_t version1[N_FIRST];
    memcpy(version1, pull_one(f, 1, FIRST)->weights.copies[0]->data, sizeof version1);
    f->kernels->cast_from_bf16(f->kernels, again, version1, N_FIRST);
    assert_memory_equal(cut + 3 * N_FIRST, again, sizeof again);

    clear(f); /* what effects point to goes with the shard */
    shard_free(f->shard);
    f->config.version = 3;
    assert_int_equal(shard_new(&f->config, &f->shard), ERR_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        for (uint32_t back = 1; back <= 2; back++)
            assert_int_equal(shard_publish(f->shard, i, 3 - back, cut + (1 + back) * N_FIRST),
                             ERR_OK);
    assert_int_equal(shard_start(f->shard), ERR_OK);
    shard_check(f->shard);
    assert_memory_equal(pull_one(f, 1, FIRST)->weights.copies[0]->data, version1, sizeof version1);
    assert_int_equal(refusal(pull_one(f, 0, FIRST)), ERR_TOO_LATE);
    push_step(f, 5); /* computed on version 3 */
}

TEST_F(the_first_version_can_be_a_cut, shard)
{
    assert_true(shard_snapshot_begin(f->shard));
    assert_false(shard_snapshot_begin(f->shard));
    assert_true(work(f));
    assert_int_equal(effect(f, SHARD_SNAPSHOT)->snapshot.cut.version, 0);
    while (work(f))
        ;
    assert_true(effect(f, SHARD_SNAPSHOT)->snapshot.last);
    assert_true(shard_snapshot_begin(f->shard));
}

/* Of every chunk, in order. */
static void expect_whole(struct shard_fixture *f, uint32_t attempt)
{
    uint32_t handed = 0;
    bool last = false;
    while (!last) {
        work(f);
        const struct shard_effect *snapshot = effect(f, SHARD_SNAPSHOT);
        assert_non_null(snapshot);
        assert_int_equal(snapshot->snapshot.cut.version, 1);
        assert_int_equal(snapshot->snapshot.attempt, attempt);
        assert_int_equal(snapshot->snapshot.file, attempt);
        last = snapshot->snapshot.last;
        handed++;
    }
    assert_int_equal(handed, COUNT);
}

TEST_F(a_later_attempt_at_a_cut_hands_the_version_out_again, shard)
{
    push_step(f, 0);
    struct commit c = decision(0);
    struct shard_moves moves = {.file = 0};
    c.cut = true;
    clear(f);
    assert_int_equal(shard_commit(f->shard, BOOT, &c, &moves, &f->effects), ERR_OK);
    work_until_committed(f, 0);
    expect_whole(f, 0);
    for (uint32_t attempt = 1; attempt < 3; attempt++) {
        moves.attempt = moves.file = attempt;
        clear(f);
        assert_int_equal(shard_commit(f->shard, BOOT, &c, &moves, &f->effects), ERR_OK);
        assert_non_null(effect(f, SHARD_COMMITTED));
        if (attempt == 1)
            work(f); /* one chunk; the rest is given up with the next attempt */
    }
    expect_whole(f, 2);
    clear(f);
    assert_int_equal(shard_commit(f->shard, BOOT, &c, &moves, &f->effects), ERR_OK);
    assert_false(work(f)); /* the same attempt, sent again */
    assert_null(effect(f, SHARD_SNAPSHOT));
}

TEST_F(a_shard_without_chunks_follows, shard, .later = true)
{
    f->config.chunk_count = 0;
    start(f);
    carry_out(f, cut_decision(0));
    begin(f, decision(1));
    assert_true(work(f));
    struct shard_effect *snapshot = effect(f, SHARD_SNAPSHOT);
    assert_non_null(snapshot);
    assert_true(snapshot->snapshot.last);
    assert_null(snapshot->snapshot.block);
    work_until_committed(f, 1);
}

TEST(p9_the_cuts_of_a_run_with_a_delay_hold_as_many_versions)
{
    struct spec spec = {.consistency = {.kind = SPEC_DELAY, .delay = 3}};
    assert_int_equal(prepare_config(&spec).delay, 3);
    assert_int_equal(prepare_config(&spec).cut_versions, 3);
    spec.consistency.kind = SPEC_SSP;
    assert_int_equal(prepare_config(&spec).cut_versions, 0);
}

TEST(copies_take_the_memory_of_the_spec_or_what_the_machine_has)
{
    enum { COPY_BYTES = 3 * MODEL_CHUNK_WEIGHTS_MAX * 4 }; /* adamw: weights and two moments */
    const struct spec spec = {.optimizer.kind = SPEC_ADAMW,
                              .checkpoint.memory_bytes = 100 * COPY_BYTES + 1};
    const struct shard_config config = prepare_config(&spec);
    assert_int_equal(prepare_copies(&spec, &config, 0, 1), 100);
    assert_int_equal(prepare_copies(&spec, &config, 0, 3), 34);
    assert_int_equal(prepare_copies(&spec, &config, 200 * COPY_BYTES, 1), 100);
    assert_int_equal(prepare_copies(&spec, &config, 40 * COPY_BYTES, 2), 20);
    assert_int_equal(prepare_copies(&spec, &config, 1, 2), 1);
}
