/* Tickets applied one by one: the shard core of an async run, driven event by event. */
#include "tests/unit/unit.h"

#include "common/rand.h"
#include "server/shard/async.h"

enum { N = 40, COLS = 10, SLOTS = 4, WINDOW = 64, COUNT = 3 };
enum { FIRST = 3, TIED = 4, LOSS = 9 }; /* the chunks' numbers in the run */
enum { GENERATION = 5, BOOT = 77, TERM = 2, ALICE = 100 };

static const struct shard_chunk chunks[COUNT] = {
    {.chunk = FIRST, .n = N, .cols = COLS, .parts = 1, .rule = MODEL_OPTIMIZER},
    {.chunk = TIED, .n = N, .parts = 2, .rule = MODEL_OPTIMIZER},
    {.chunk = LOSS, .n = MODEL_LOSS_WEIGHTS, .parts = 1, .rule = MODEL_NONE, .loss = true},
};

struct async_fixture {
    enum spec_optimizer_kind optimizer;
    bool logged;
    const struct kernels *kernels;
    struct shard_config config;
    struct shard *shard;
    struct shard_effects effects;
    uint64_t id;
};

static struct shard *new_shard(const struct async_fixture *f)
{
    struct shard *shard = NULL;
    assert_int_equal(shard_new(&f->config, &shard), ERR_OK);
    return shard;
}

static void async_set_up(struct async_fixture *f)
{
    struct kernels_options options = {.backend = KERNELS_CPU};
    char reason[256];
    assert_true(kernels_new(&options, &f->kernels, reason, sizeof reason));
    f->config = (struct shard_config){
        .kernels = f->kernels,
        .generation = GENERATION,
        .boot = BOOT,
        .term = TERM,
        .slots = SLOTS,
        .ahead_max = SLOTS,
        .parked_member_bytes_max = 1000,
        .snapshot_copies = 1,
        .optimizer = {.kind = f->optimizer, .betas = {0.9, 0.999}, .eps = 1e-8, .momentum = 0.5},
        .async = {.on = true,
                  .logged = f->logged,
                  .staleness_max = 10,
                  .window = WINDOW,
                  .slot_samples = 1,
                  .seal = {.schedule = {.kind = SPEC_CONSTANT, .lr = 1, .step_samples = SLOTS},
                           .beta1 = f->optimizer == SPEC_ADAMW ? 0.9 : 0,
                           .beta2 = f->optimizer == SPEC_ADAMW ? 0.999 : 0}},
        .chunk_count = COUNT,
        .chunks = chunks,
    };
    f->shard = new_shard(f);
    assert_int_equal(shard_start(f->shard), ERR_OK);
    shard_check(f->shard);
}

/* Drops the references that effects gave us. */
static void clear(struct async_fixture *f)
{
    for (uint32_t i = 0; i < f->effects.count; i++) {
        struct shard_effect *e = &f->effects.items[i];
        for (uint32_t c = 0; e->kind == SHARD_WEIGHTS && c < e->weights.header.chunk_count; c++)
            counted_unref(e->weights.copies[c]);
        for (uint32_t c = 0; e->kind == SHARD_ORDER && c < e->order.count; c++)
            counted_unref(e->order.entries[c].gradient);
        if (e->kind == SHARD_SNAPSHOT)
            shard_snapshot_drop(e);
    }
    f->effects.count = 0;
}

static void async_tear_down(struct async_fixture *f)
{
    clear(f);
    shard_free(f->shard);
    kernels_free(f->kernels);
}

static const struct shard_effect *effect(const struct async_fixture *f, enum shard_effect_kind kind)
{
    for (uint32_t i = 0; i < f->effects.count; i++)
        if (f->effects.items[i].kind == kind)
            return &f->effects.items[i];
    return NULL;
}

/* ---- messages ---- */

struct message {
    struct push push;
    struct push_entry entries[COUNT];
    float values[COUNT * N];
    uint32_t value_count;
};

static struct message message_of(struct async_fixture *f, uint64_t ticket)
{
    return (struct message){.push = {.id = ++f->id,
                                     .generation = GENERATION,
                                     .step = ticket / SLOTS,
                                     .node = {0, (uint32_t)(ticket % SLOTS)},
                                     .attempt = 1000 + ticket,
                                     .member = ALICE + 1,
                                     .boot = BOOT,
                                     .scale = 1}};
}

static void add(struct message *m, uint32_t chunk, uint64_t version, float value)
{
    uint32_t n = chunk == LOSS ? MODEL_LOSS_WEIGHTS : N;
    m->entries[m->push.entry_count++] = (struct push_entry){
        .chunk = chunk, .bytes = n * (uint32_t)sizeof(float), .version = version};
    for (uint32_t i = 0; i < n; i++)
        m->values[m->value_count++] = value;
}

static struct shard_ack send(struct async_fixture *f, struct message *m)
{
    clear(f);
    m->push.entries = m->entries;
    struct slice slice = {(const uint8_t *)m->values, m->value_count * sizeof(float)};
    struct shard_ack ack =
        shard_push(f->shard, ALICE, &m->push, (struct cursor){&slice, 1, 0, 0}, &f->effects);
    shard_check(f->shard);
    return ack;
}

/* Drops what effects hold: the shard writes over their entries. */
static uint64_t version_of(struct async_fixture *f, uint32_t index)
{
    clear(f);
    struct shard_effects effects = {0};
    uint32_t next = index;
    assert_true(shard_begin_order(f->shard, &next, &effects));
    return effects.items[0].order.entries[0].version;
}

/* The whole ticket, with gradients of 1, computed on what the chunks have now. */
static struct shard_ack push_ticket(struct async_fixture *f, uint64_t ticket)
{
    uint64_t versions[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        versions[i] = version_of(f, i);
    struct message m = message_of(f, ticket);
    add(&m, FIRST, versions[0], 1);
    add(&m, TIED, versions[1], 1);
    add(&m, LOSS, versions[2], (float)(ticket + 1));
    return send(f, &m);
}

static void assert_weights(const struct async_fixture *f, uint32_t index, float value)
{
    for (uint32_t i = 0; i < N; i++)
        assert_true(shard_state(f->shard, index).weights[i] == value);
}

static void push_tickets(struct async_fixture *f, uint64_t first, uint64_t end)
{
    for (uint64_t ticket = first; ticket < end; ticket++)
        assert_int_equal(push_ticket(f, ticket).code, ERR_OK);
}

static bool work_once(struct async_fixture *f)
{
    bool more;
    clear(f);
    assert_int_equal(shard_work(f->shard, &f->effects, &more), ERR_OK);
    return more;
}

static void work(struct async_fixture *f)
{
    while (work_once(f))
        shard_check(f->shard);
    shard_check(f->shard);
}

static void commit(struct async_fixture *f, uint64_t step, bool cut)
{
    const struct commit commit = {.generation = GENERATION, .term = TERM, .step = step, .cut = cut};
    clear(f);
    assert_int_equal(shard_commit(f->shard, BOOT, &commit, NULL, &f->effects), ERR_OK);
}

/* ---- tickets ---- */

TEST_F(each_chunk_takes_each_ticket_once_in_any_order, async)
{
    struct rand_state rand = {5};
    enum { TICKETS = 200 };
    for (uint32_t round = 0; round < 20000; round++) {
        uint64_t ticket = rand_below(&rand, TICKETS);
        uint32_t chunk = rand_below(&rand, 2) == 0 ? FIRST : TIED, index = chunk == TIED;
        uint64_t before = version_of(f, index);
        struct message m = message_of(f, ticket);
        add(&m, chunk, before, 1);
        enum err err = send(f, &m).code;
        assert_true(err == ERR_OK || err == ERR_BEYOND);
        assert_true(shard_state(f->shard, index).weights[0] == -(float)version_of(f, index));
    }
    assert_weights(f, 0, -TICKETS);
    assert_weights(f, 1, -TICKETS);
    assert_int_equal(version_of(f, 0), TICKETS);
    assert_true(shard_statistics(f->shard).duplicates > 1000);
}

/* Row 2 of the first chunk, of a gradient that is 0 elsewhere; and all of the loss. */
static void push_row(struct async_fixture *f, uint64_t ticket)
{
    static const uint32_t rows[] = {2};
    struct message m = message_of(f, ticket);
    add(&m, FIRST, version_of(f, 0), 1);
    m.entries[0].sparse = true;
    m.entries[0].rows = rows;
    m.entries[0].row_count = 1;
    m.entries[0].bytes = COLS * sizeof(float);
    m.value_count = COLS;
    add(&m, LOSS, 0, 1);
    assert_int_equal(send(f, &m).code, ERR_OK);
}

static void check_row(struct async_fixture *f)
{
    push_tickets(f, 0, 1);
    push_row(f, 1);
    push_row(f, 1); /* a duplicate */
    assert_int_equal(shard_statistics(f->shard).duplicates, 2);
    assert_int_equal(shard_statistics(f->shard).spared_bytes, (N - COLS) * sizeof(float));
    if (f->logged) {
        shard_logged(f->shard, 5);
        work(f);
    }
    for (uint32_t i = 0; i < N; i++)
        assert_true(shard_state(f->shard, 0).weights[i] == (i / COLS == 2 ? -2 : -1));
    struct message m = message_of(f, 2);
    add(&m, FIRST, version_of(f, 0), 1);
    m.entries[0].sparse = true; /* and has all bytes */
    assert_int_equal(send(f, &m).code, ERR_MALFORMED);
}

TEST_F(rows_alone_are_applied_like_all_rows, async)
{
    check_row(f);
}

TEST_F(rows_alone_wait_for_the_log_like_all_rows, async, .logged = true)
{
    check_row(f);
}

TEST_F(tickets_of_the_oldest_step_that_some_chunk_misses_are_told, async)
{
    uint64_t slots[WIRE_SLOT_WORDS_MAX], step = 1;
    push_tickets(f, 0, 2);
    push_tickets(f, 3, 6);
    assert_true(shard_missing(f->shard, &step, slots));
    assert_int_equal(step, 0);
    assert_int_equal(slots[0], 1 << 2);
    push_tickets(f, 2, 3);
    assert_false(shard_missing(f->shard, &step, slots));
    step = 2;
    assert_true(shard_missing(f->shard, &step, slots));
    assert_int_equal(step, 1);
    assert_int_equal(slots[0], 1 << 2 | 1 << 3);
}

TEST_F(a_commit_of_a_step_far_ahead_costs_no_more_than_the_next, async)
{
    push_tickets(f, 0, 2);
    commit(f, WIRE_STEP_MAX, false); /* a server that comes back hears the newest one */
    work(f);
    assert_int_equal(shard_version(f->shard), WIRE_STEP_MAX + 1);
}

TEST_F(a_pull_brings_the_newest_of_each_chunk_and_is_written_down, async)
{
    struct message m = message_of(f, 2);
    add(&m, TIED, 0, 3);
    assert_int_equal(send(f, &m).code, ERR_OK);
    const struct shard_effect *took = effect(f, SHARD_ORDER);
    assert_int_equal(took->order.kind, SHARD_ORDER_TAKE);
    assert_int_equal(took->order.ticket, 2);
    assert_int_equal(took->order.attempt, 1002);
    assert_int_equal(took->order.count, 1);
    assert_int_equal(took->order.entries[0].chunk, TIED);
    assert_int_equal(took->order.entries[0].version, 0);
    clear(f);
    const uint32_t wanted[] = {TIED, FIRST};
    struct pull pull = {.id = 7,
                        .generation = GENERATION,
                        .chunk_count = 2,
                        .chunks = wanted,
                        .newest = true,
                        .attempt = 9};
    shard_pull(f->shard, (struct pull_sender){ALICE, 1}, &pull, &f->effects);
    const struct shard_effect *weights = effect(f, SHARD_WEIGHTS);
    assert_int_equal(weights->sender, ALICE);
    assert_int_equal(weights->weights.header.versions[0], 1);
    assert_int_equal(weights->weights.header.versions[1], 0);
    assert_true(((const float *)(const void *)weights->weights.copies[0]->data)[0] == -3);
    assert_true(((const float *)(const void *)weights->weights.copies[1]->data)[0] == 0);
    const struct shard_effect *gave = effect(f, SHARD_ORDER);
    assert_true(gave < weights); /* written down before the answer leaves */
    assert_int_equal(gave->order.kind, SHARD_ORDER_PULL);
    assert_int_equal(gave->order.attempt, 9);
    assert_int_equal(gave->order.entries[0].chunk, TIED);
    assert_int_equal(gave->order.entries[0].version, 1);
    clear(f);
    pull.attempt = 0; /* a validation's: nothing depends on it */
    shard_pull(f->shard, (struct pull_sender){ALICE, 1}, &pull, &f->effects);
    assert_null(effect(f, SHARD_ORDER));
    clear(f);
    pull.newest = false;
    shard_pull(f->shard, (struct pull_sender){ALICE, 1}, &pull, &f->effects);
    assert_int_equal(effect(f, SHARD_REFUSAL)->refusal.code, ERR_MALFORMED);
}

static enum err refusal_of(struct async_fixture *f, struct message *m)
{
    uint64_t versions[] = {version_of(f, 0), version_of(f, 1)};
    struct shard_ack ack = send(f, m);
    assert_null(effect(f, SHARD_ORDER));
    assert_int_equal(ack.first_refused, 0);
    assert_int_equal(version_of(f, 0), versions[0]);
    assert_int_equal(version_of(f, 1), versions[1]);
    return ack.code;
}

TEST_F(what_does_not_fit_is_refused_and_changes_nothing, async)
{
    push_tickets(f, 0, 12);
    struct message m = message_of(f, 20);
    add(&m, FIRST, 2, 1); /* 10 behind */
    const struct message fits = m;
#define REFUSED(change, err)                                                                       \
    do {                                                                                           \
        change;                                                                                    \
        assert_int_equal(refusal_of(f, &m), err);                                                  \
        m = fits;                                                                                  \
    } while (0)
    REFUSED(m.entries[0].version = 1, ERR_STALE); /* 11 behind */
    REFUSED(m.push.boot = BOOT - 1, ERR_STALE);
    REFUSED(m.entries[0].version = 13, ERR_MALFORMED);
    REFUSED(m.entries[0].part = 1, ERR_MALFORMED);
    REFUSED(m.push.node.level = 1, ERR_MALFORMED);
    REFUSED(m.push.step = UINT64_MAX / SLOTS, ERR_MALFORMED);
    REFUSED(m.push.step = (12 + WINDOW) / SLOTS, ERR_BEYOND);
    REFUSED(m.push.generation = GENERATION - 1, ERR_OLD_GENERATION);
    REFUSED(m.push.scale = -0.5f, ERR_MALFORMED); /* clipping never turns a gradient round, */
    REFUSED(m.push.scale = 1.5f, ERR_MALFORMED);  /* nor makes it longer */
    REFUSED(m.push.scale = __builtin_nanf(""), ERR_MALFORMED);
    REFUSED(m.push.scale = __builtin_inff(), ERR_MALFORMED);
#undef REFUSED
    assert_int_equal(send(f, &m).code, ERR_OK);
    struct message loss = message_of(f, 20);
    add(&loss, LOSS, 0, 1); /* nobody pulls it */
    assert_int_equal(send(f, &loss).code, ERR_OK);
}

TEST_F(entries_before_the_refused_one_are_taken, async)
{
    struct message m = message_of(f, 0);
    add(&m, FIRST, 0, 1);
    add(&m, TIED, 1, 1); /* it has version 0 */
    struct shard_ack ack = send(f, &m);
    assert_int_equal(ack.code, ERR_MALFORMED);
    assert_int_equal(ack.first_refused, 1);
    assert_int_equal(version_of(f, 0), 1);
    assert_int_equal(version_of(f, 1), 0);
}

TEST_F(the_scale_clips_and_a_scale_of_0_leaves_the_weights, async)
{
    struct message m = message_of(f, 0);
    add(&m, FIRST, 0, 8);
    m.push.scale = 0.25f;
    assert_int_equal(send(f, &m).code, ERR_OK);
    assert_weights(f, 0, -2);
    struct message nan = message_of(f, 1);
    add(&nan, FIRST, 1, __builtin_nanf(""));
    nan.push.scale = 0;
    assert_int_equal(send(f, &nan).code, ERR_OK);
    assert_weights(f, 0, -2);
    assert_int_equal(version_of(f, 0), 2);
}

static void assert_not_finite(const struct async_fixture *f, uint64_t ticket, uint32_t chunk)
{
    const struct shard_effect *told = effect(f, SHARD_NOT_FINITE);
    assert_non_null(told);
    assert_int_equal(told->not_finite.member, ALICE + 1);
    assert_int_equal(told->not_finite.step * SLOTS + told->not_finite.slot, ticket);
    assert_int_equal(told->not_finite.chunk, chunk);
}

/* Of the two chunks the second has one value that is not finite; what the worker says of it, is that
 * it is. */
static void push_one_not_finite(struct async_fixture *f, uint64_t ticket, float value)
{
    struct message m = message_of(f, ticket);
    add(&m, FIRST, version_of(f, 0), 1);
    add(&m, TIED, version_of(f, 1), 1);
    m.values[2 * N - 1] = value;
    assert_int_equal(send(f, &m).code, ERR_OK);
    assert_not_finite(f, ticket, TIED);
    assert_int_equal(send(f, &m).code, ERR_OK);
    assert_null(effect(f, SHARD_NOT_FINITE)); /* a duplicate was told of */
    if (!f->logged)
        return;
    shard_logged(f->shard, 2 * (ticket + 1));
    work(f);
}

static void check_not_finite(struct async_fixture *f)
{
    static const float values[] = {__builtin_nanf(""), __builtin_inff(), -__builtin_inff()};
    for (uint64_t ticket = 0; ticket < 3; ticket++) {
        push_one_not_finite(f, ticket, values[ticket]);
        assert_int_equal(version_of(f, 1), ticket + 1);
        assert_weights(f, 1, 0);
        assert_true(shard_state(f->shard, 1).state[0][N - 1] == 0);
        assert_true(shard_state(f->shard, 0).weights[0] < 0); /* each chunk decides by itself */
    }
}

TEST_F(values_that_are_not_finite_leave_the_weights_and_who_brought_them_is_told, async,
       .optimizer = SPEC_MOMENTUM)
{
    check_not_finite(f);
}

TEST_F(values_in_the_log_that_are_not_finite_leave_the_weights, async, .optimizer = SPEC_MOMENTUM,
       .logged = true)
{
    check_not_finite(f);
}

TEST_F(who_says_that_a_gradient_is_not_finite_is_told_of, async)
{
    struct message m = message_of(f, 1);
    add(&m, FIRST, 0, 1);
    add(&m, TIED, 0, 1);
    m.push.scale = 0;
    assert_int_equal(send(f, &m).code, ERR_OK);
    assert_not_finite(f, 1, FIRST);
    push_tickets(f, 2, 3);
    assert_null(effect(f, SHARD_NOT_FINITE));
}

static void check_counts(struct async_fixture *f)
{
    f->config.slot_samples = 3;
    shard_free(f->shard);
    f->shard = new_shard(f);
    assert_int_equal(shard_start(f->shard), ERR_OK);
    static const float forged[] = {2, 4, -3, __builtin_nanf(""), __builtin_inff()};
    for (size_t i = 0; i < sizeof forged / sizeof forged[0]; i++) {
        struct message m = message_of(f, 0);
        add(&m, LOSS, 0, forged[i]);
        assert_int_equal(refusal_of(f, &m), ERR_MALFORMED);
        assert_int_equal(version_of(f, 2), 0);
    }
    struct message m = message_of(f, 0);
    add(&m, LOSS, 0, 3);
    assert_int_equal(send(f, &m).code, ERR_OK);
    assert_int_equal(effect(f, SHARD_ORDER)->order.count, 1);
}

TEST_F(a_loss_of_other_samples_than_the_slot_has_is_refused, async)
{
    check_counts(f);
}

TEST_F(a_loss_of_other_samples_is_not_written_to_the_log, async, .logged = true)
{
    check_counts(f);
}

/* ---- steps ---- */

TEST_F(a_step_is_reduced_when_every_chunk_has_all_its_tickets, async)
{
    for (uint64_t ticket = 2 * SLOTS; ticket-- > 1;) {
        assert_int_equal(push_ticket(f, ticket).code, ERR_OK);
        assert_null(effect(f, SHARD_REDUCED));
    }
    struct message m = message_of(f, 0);
    add(&m, FIRST, 7, 1);
    add(&m, TIED, 7, 1);
    assert_int_equal(send(f, &m).code, ERR_OK);
    assert_null(effect(f, SHARD_REDUCED)); /* the loss misses it */
    assert_int_equal(push_ticket(f, 0).code, ERR_OK);
    const struct shard_effect *reduced = effect(f, SHARD_REDUCED);
    assert_int_equal(reduced->reduced.step, 0);
    assert_true(reduced->reduced.has_loss && reduced->reduced.loss_sum == 1 + 2 + 3 + 4);
    assert_true(reduced->reduced.seal_count == COUNT && reduced->reduced.seals[0].finite);
    commit(f, 0, false);
    work_once(f);
    assert_int_equal(effect(f, SHARD_COMMITTED)->committed.step, 0);
    assert_int_equal(effect(f, SHARD_REDUCED)->reduced.step, 1); /* complete as well */
    assert_true(effect(f, SHARD_REDUCED)->reduced.loss_sum == 5 + 6 + 7 + 8);
    assert_int_equal(shard_version(f->shard), 1);
    clear(f);
    shard_report(f->shard, &f->effects);
    assert_int_equal(effect(f, SHARD_REDUCED)->reduced.step, 1);
}

TEST_F(the_step_after_one_that_is_being_committed_is_not_reduced_yet, async)
{
    push_tickets(f, 0, SLOTS);
    commit(f, 0, false);
    clear(f);
    shard_report(f->shard, &f->effects);
    assert_null(effect(f, SHARD_REDUCED));
    work(f);
    shard_report(f->shard, &f->effects);
    assert_null(effect(f, SHARD_REDUCED));
}

TEST_F(a_commit_may_run_ahead_of_a_shard_that_lost_tickets, async)
{
    commit(f, 6, false);
    commit(f, 6, false);
    work(f);
    assert_int_equal(shard_version(f->shard), 7);
    for (uint64_t ticket = 0; ticket < 8 * SLOTS; ticket++) {
        assert_int_equal(push_ticket(f, ticket).code, ERR_OK);
        assert_true((effect(f, SHARD_REDUCED) != NULL) == (ticket == 8 * SLOTS - 1));
    }
}

/* ---- cuts ---- */

static void fill_from(struct shard *shard, const struct shard_effect *snapshot, uint32_t index)
{
    struct shard_state to = shard_state(shard, index);
    size_t bytes = snapshot->snapshot.n * sizeof(float);
    const float *rest = shard_snapshot_rest(snapshot);
    memcpy(to.weights, shard_snapshot_weights(snapshot), bytes);
    for (uint32_t s = 0; s < snapshot->snapshot.states; s++, rest += snapshot->snapshot.n)
        memcpy(to.state[s], rest, bytes);
    assert_int_equal(snapshot->snapshot.extra_bytes, shard_extra_bytes(shard));
    assert_int_equal(shard_load_extra(shard, index, (const uint8_t *)rest), ERR_OK);
}

TEST_F(a_cut_knows_what_each_chunk_took, async, .optimizer = SPEC_MOMENTUM)
{
    assert_int_equal(push_ticket(f, 0).code, ERR_OK);
    assert_int_equal(push_ticket(f, 5).code, ERR_OK);
    commit(f, 0, true);
    struct shard *again = new_shard(f);
    uint32_t index = 0;
    for (bool more = true; more;) {
        more = work_once(f);
        const struct shard_effect *snapshot = effect(f, SHARD_SNAPSHOT);
        if (snapshot == NULL)
            continue;
        fill_from(again, snapshot, index++);
        assert_int_equal(snapshot->snapshot.last, index == COUNT);
        clear(f);
        if (index == 1) /* chunks of a cut need not agree */
            assert_int_equal(push_ticket(f, 1).code, ERR_OK);
    }
    assert_int_equal(index, COUNT);
    assert_int_equal(shard_start(again), ERR_OK);
    shard_check(again);
    struct shard *first = f->shard;
    f->shard = again;
    assert_int_equal(version_of(f, 0), 2);
    assert_int_equal(version_of(f, 1), 3);
    assert_int_equal(push_ticket(f, 1).code, ERR_OK);
    f->shard = first;
    for (uint32_t i = 0; i < 2; i++)
        assert_memory_equal(shard_state(again, i).weights, shard_state(first, i).weights,
                            N * sizeof(float));
    clear(f); /* effects of `again` */
    shard_free(again);
}

TEST_F(samples_of_tickets_that_a_cut_has_count_in_their_step, async)
{
    const uint64_t extra[3 + WINDOW / 64] = {3, 3, 2, 1 << 3}; /* 0, 1 and, of step 1, 5 */
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(shard_load_extra(f->shard, i, (const uint8_t *)extra), ERR_OK);
    push_tickets(f, 2, SLOTS);
    const struct shard_effect *reduced = effect(f, SHARD_REDUCED);
    assert_non_null(reduced);
    assert_true(reduced->reduced.sample_count == 2 + 3 + 4); /* of a ticket in the cut 1 each */
    assert_true(reduced->reduced.loss_sum == 9);             /* at the mean of 3 and 4 samples */
}

/* The step's tickets are all in it. */
TEST_F(a_loss_that_only_a_cut_had_is_not_known, async)
{
    const uint64_t extra[3 + WINDOW / 64] = {SLOTS, SLOTS, SLOTS, 0};
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(shard_load_extra(f->shard, i, (const uint8_t *)extra), ERR_OK);
    shard_report(f->shard, &f->effects);
    const struct shard_effect *reduced = effect(f, SHARD_REDUCED);
    assert_non_null(reduced);
    assert_true(reduced->reduced.sample_count == SLOTS);
    assert_true(__builtin_isnan(reduced->reduced.loss_sum));
    assert_true(__builtin_isnan(reduced->reduced.correct_count));
}

TEST_F(samples_of_a_cut_s_tickets_that_are_far_ahead_count_as_well, async)
{
    enum { FAR = 27, TICKET = FAR * SLOTS, LOW = 60 };
    const uint64_t extra[3 + WINDOW / 64] = {LOW + 1, LOW + 1, LOW, UINT64_C(1) << (TICKET - LOW)};
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(shard_load_extra(f->shard, i, (const uint8_t *)extra), ERR_OK);
    commit(f, FAR - 1, false);
    work(f);
    push_tickets(f, LOW, TICKET);
    push_tickets(f, TICKET + 1, TICKET + SLOTS);
    const struct shard_effect *reduced = effect(f, SHARD_REDUCED);
    assert_int_equal(reduced->reduced.step, FAR);
    assert_true(reduced->reduced.sample_count == 1 + 110 + 111 + 112);
}

TEST_F(an_extra_of_another_run_is_corrupt, async)
{
    /* A chunk's version is the count of its tickets. */
    static const struct {
        uint64_t extra[3 + WINDOW / 64];
        enum err err;
    } rows[] = {{{2, 2, 1, 2}, ERR_OK},
                {{3, 2, 1, 2}, ERR_CORRUPT},
                {{2, 3, 1, 2}, ERR_CORRUPT},
                {{2, 2, 1, 1}, ERR_CORRUPT}};
    assert_int_equal(sizeof rows[0].extra, shard_extra_bytes(f->shard));
    for (size_t i = 0; i < 4; i++)
        if (shard_load_extra(f->shard, 0, (const uint8_t *)rows[i].extra) != rows[i].err)
            fail_msg("row %zu", i);
}

/* ---- logged ---- */

TEST_F(nothing_is_applied_or_acknowledged_before_the_log_is_on_disk, async, .logged = true)
{
    struct shard_ack ack = push_ticket(f, 0);
    assert_int_equal(ack.code, ERR_OK);
    assert_int_equal(ack.after, COUNT);
    const struct shard_effect *order = effect(f, SHARD_ORDER);
    assert_int_equal(order->order.count, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_non_null(order->order.entries[i].gradient);
    assert_int_equal(version_of(f, 0), 0);
    assert_weights(f, 0, 0);
    assert_int_equal(push_ticket(f, 0).after, COUNT); /* again: waits for the same */
    assert_null(effect(f, SHARD_ORDER));
    assert_int_equal(push_ticket(f, 1).code, ERR_OK);
    assert_int_equal(effect(f, SHARD_ORDER)->order.entries[0].version, 1);
    shard_logged(f->shard, COUNT);
    work(f);
    assert_int_equal(shard_taken(f->shard), COUNT);
    assert_weights(f, 0, -1);
    assert_int_equal(version_of(f, 0), 1);
    assert_int_equal(push_ticket(f, 0).after, 0); /* on disk: at once */
    shard_logged(f->shard, 2 * COUNT);
    shard_logged(f->shard, COUNT); /* said before: it changes nothing */
    work(f);
    assert_weights(f, 1, -2);
    assert_int_equal(push_ticket(f, 1).after, 0);
}

/* What the log got before the cut goes with it (order_writer.c): so the cut must have it. */
TEST_F(p12_a_cut_waits_for_what_the_log_got_before_it, async, .logged = true)
{
    bool more = true;
    assert_int_equal(push_ticket(f, 0).code, ERR_OK);
    commit(f, 0, true);
    while (more) {
        more = work_once(f);
        assert_null(effect(f, SHARD_SNAPSHOT));
    }
    shard_logged(f->shard, COUNT);
    while (effect(f, SHARD_SNAPSHOT) == NULL)
        work_once(f);
    assert_true(shard_snapshot_weights(effect(f, SHARD_SNAPSHOT))[0] == -1);
}

TEST_F(a_step_is_reduced_only_when_it_is_on_disk, async, .logged = true)
{
    for (uint64_t ticket = 0; ticket < SLOTS; ticket++) {
        assert_int_equal(push_ticket(f, ticket).code, ERR_OK);
        assert_null(effect(f, SHARD_REDUCED));
    }
    shard_logged(f->shard, SLOTS * COUNT);
    uint32_t reduced = 0;
    for (bool more = true; more;) {
        more = work_once(f);
        reduced += effect(f, SHARD_REDUCED) != NULL;
    }
    assert_int_equal(reduced, 1);
}

TEST_F(more_than_the_log_may_hold_is_busy, async, .logged = true)
{
    f->config.async.staleness_max = 1000;
    f->config.async.window = 4096;
    shard_free(f->shard);
    f->shard = new_shard(f);
    assert_int_equal(shard_start(f->shard), ERR_OK);
    uint64_t ticket = 0;
    enum err err = ERR_OK;
    while (err == ERR_OK)
        err = push_ticket(f, ticket++).code;
    assert_int_equal(err, ERR_BUSY);
    assert_int_equal(ticket, ASYNC_WAITING_MAX / COUNT + 1);
    shard_logged(f->shard, 10);
    work(f);
    assert_int_equal(push_ticket(f, ticket - 1).code, ERR_OK);
}

TEST_F(p12_the_log_played_again_gives_the_same_bits, async, .optimizer = SPEC_ADAMW)
{
    struct shard *again = new_shard(f);
    struct rand_state rand = {9};
    uint64_t order[] = {3, 0, 2, 1, 6, 4};
    const float losses[MODEL_LOSS_WEIGHTS] = {1, 2, 3};
    assert_int_equal(shard_start(again), ERR_OK);
    for (uint32_t i = 0; i < 6; i++) {
        struct async_record loss = {MODEL_LOSS_WEIGHTS, order[i], i, 0.5f, losses};
        assert_int_equal(shard_redo(again, LOSS, &loss), ERR_OK);
        struct message m = message_of(f, order[i]);
        m.push.scale = i == 0 || i == 2 ? 0 : 0.5f;
        add(&m, FIRST, i, 0);
        for (uint32_t k = 0; k < N; k++)
            m.values[k] = (float)rand_unit(&rand);
        if (i == 4)
            m.values[7] = __builtin_nanf("");
        assert_int_equal(send(f, &m).code, ERR_OK);
        struct async_record record = {N, order[i], i, m.push.scale, m.values};
        assert_int_equal(shard_redo(again, FIRST, &record), ERR_OK);
        assert_int_equal(shard_redo(again, FIRST, &record), ERR_OK); /* known already */
        record.version = i + 2;
        assert_int_equal(shard_redo(again, FIRST, &record), ERR_CORRUPT); /* a gap */
        record.version = i + 1;
        assert_int_equal(shard_redo(again, FIRST, &record), ERR_CORRUPT); /* the ticket is taken */
        assert_int_equal(shard_redo(again, 1000, &record), ERR_OK);       /* another shard's */
        record.ticket = 40, record.n = N - 1;
        assert_int_equal(shard_redo(again, FIRST, &record), ERR_CORRUPT); /* another model's */
    }
    shard_check(again);
    for (uint32_t s = 0; s < 2; s++)
        assert_memory_equal(shard_state(again, 0).state[s], shard_state(f->shard, 0).state[s],
                            N * sizeof(float));
    assert_memory_equal(shard_state(again, 0).weights, shard_state(f->shard, 0).weights,
                        N * sizeof(float));
    for (uint32_t k = 0; k < N; k++)
        assert_true(__builtin_isfinite(shard_state(again, 0).weights[k]));
    shard_free(again);
}

TEST_F(losses_of_a_log_that_is_far_ahead_count_in_their_steps, async)
{
    enum { STEPS = 30 };
    float values[N];
    for (uint64_t ticket = 0; ticket < STEPS * SLOTS; ticket++)
        for (uint32_t i = 0; i < COUNT; i++) {
            for (uint32_t k = 0; k < N; k++)
                values[k] = (float)(ticket / SLOTS);
            struct async_record record = {chunks[i].n, ticket, ticket, 1, values};
            assert_int_equal(shard_redo(f->shard, chunks[i].chunk, &record), ERR_OK);
        }
    commit(f, STEPS - 2, false);
    work(f);
    shard_report(f->shard, &f->effects);
    const struct shard_effect *reduced = effect(f, SHARD_REDUCED);
    assert_int_equal(reduced->reduced.step, STEPS - 1);
    assert_true(reduced->reduced.loss_sum == SLOTS * (STEPS - 1));
}

/* The server has been away, and hears of the newest commit later than the workers do. */
TEST_F(losses_of_tickets_that_are_far_ahead_count_in_their_steps, async)
{
    enum { STEPS = WINDOW / SLOTS };
    push_tickets(f, 0, STEPS * SLOTS);
    commit(f, STEPS - 2, false);
    work(f);
    shard_report(f->shard, &f->effects);
    const struct shard_effect *reduced = effect(f, SHARD_REDUCED);
    assert_int_equal(reduced->reduced.step, STEPS - 1);
    assert_true(reduced->reduced.loss_sum == STEPS * SLOTS * SLOTS - SLOTS * (SLOTS - 1) / 2);
}

TEST_F(what_all_chunks_have_is_told, async)
{
    uint64_t words[WINDOW / 64];
    struct applied met = {0, WINDOW, words};
    assert_int_equal(push_ticket(f, 0).code, ERR_OK);
    assert_int_equal(push_ticket(f, 2).code, ERR_OK);
    struct message m = message_of(f, 1);
    add(&m, FIRST, 2, 1);
    assert_int_equal(send(f, &m).code, ERR_OK);
    assert_true(shard_meet(f->shard, &met, true));
    assert_int_equal(met.low, 1);
    assert_int_equal(applied_find(&met, 2), APPLIED_TAKEN);
    assert_int_equal(applied_find(&met, 1), APPLIED_NEW);
}
