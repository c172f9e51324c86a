/* Pushes to a shard: duplicates, what is refused, what is busy. */
#include "tests/unit/shard_fixture.h"

#include "server/shard/names.h"

#include <math.h>

TEST_F(a_duplicate_is_acknowledged_and_not_counted, shard)
{
    assert_int_equal(push_all(f, 0, (struct node){0, 2}), ERR_OK);
    uint64_t pushed = shard_statistics(f->shard).pushed_bytes;
    assert_int_equal(push_all(f, 0, (struct node){0, 2}), ERR_OK);
    assert_int_equal(shard_statistics(f->shard).pushed_bytes, pushed);
    assert_int_equal(shard_statistics(f->shard).duplicates, 5);
    assert_int_equal(push_all(f, 0, (struct node){1, 0}), ERR_OK);
    assert_int_equal(push_all(f, 0, (struct node){0, 1}), ERR_OK); /* inside (1,0) */
    assert_int_equal(shard_statistics(f->shard).duplicates, 10);
    assert_int_equal(push_all(f, 0, (struct node){2, 0}), ERR_OK); /* around all */
    assert_non_null(effect(f, SHARD_REDUCED));
    assert_int_equal(push_all(f, 0, (struct node){0, 3}), ERR_OK); /* after reduced */
    assert_null(effect(f, SHARD_REDUCED));
    assert_int_equal(shard_statistics(f->shard).duplicates, 15);
}

TEST_F(the_second_push_of_an_audited_ticket_is_no_duplicate, shard)
{
    assert_int_equal(push_all(f, 0, (struct node){0, 1}), ERR_OK);
    struct message m;
    message_all(f, &m, 0, (struct node){0, 1});
    m.push.audited = true;
    assert_int_equal(send(f, BOB, &m).code, ERR_OK); /* the first worker, again */
    assert_int_equal(shard_statistics(f->shard).duplicates, 5);
    assert_int_equal(shard_statistics(f->shard).audited, 0);
    m.push.member = 8;
    assert_int_equal(send(f, BOB, &m).code, ERR_OK);
    assert_int_equal(shard_statistics(f->shard).duplicates, 5);
    assert_int_equal(shard_statistics(f->shard).audited, 5);
}

static enum err push_of_ticket(struct shard_fixture *f, struct node granted, uint32_t tickets,
                               struct node node)
{
    const struct ticket ticket[2] = {{.node = granted}, {.node = granted}};
    struct message m;
    message_all(f, &m, 0, node);
    m.push.tickets = ticket;
    m.push.ticket_count = tickets;
    return send(f, ALICE, &m).code;
}

/* The second worker's sum would have no other to be compared with. */
TEST_F(in_an_audited_run_a_ticket_is_pushed_whole, shard, .later = true)
{
    const struct node pair = {1, 0}, slot = {0, 0}, all = {2, 0};
    f->config.audited = true;
    start(f);
    assert_int_equal(push_of_ticket(f, pair, 1, slot), ERR_NO_GRANT);
    assert_int_equal(push_of_ticket(f, pair, 1, all), ERR_NO_GRANT);
    assert_int_equal(push_of_ticket(f, pair, 1, (struct node){1, 1}), ERR_NO_GRANT);
    assert_int_equal(push_of_ticket(f, pair, 2, pair), ERR_NO_GRANT);
    assert_int_equal(push_of_ticket(f, pair, 1, pair), ERR_OK);
}

TEST_F(in_an_audited_run_of_chimera_a_ticket_is_pushed_in_halves, shard, .later = true)
{
    const struct node pair = {1, 0}, first = {0, 0}, second = {0, 1};
    f->config.audited = true;
    f->config.halves = true;
    start(f);
    assert_int_equal(push_of_ticket(f, pair, 1, pair), ERR_NO_GRANT);
    assert_int_equal(push_of_ticket(f, (struct node){2, 0}, 1, first), ERR_NO_GRANT);
    assert_int_equal(push_of_ticket(f, pair, 1, first), ERR_OK);
    assert_int_equal(push_of_ticket(f, pair, 1, second), ERR_OK);
}

TEST(in_an_audited_run_each_name_keeps_its_place)
{
    enum { SLOTS_MANY = SPEC_AUDITED_SLOTS_MAX };
    static struct name list[2 * NAMES_AUDITED_PLACES_MAX];
    struct names names = {.steps = 2,
                          .places = names_places(SLOTS_MANY, true),
                          .root_level = tree_level(SLOTS_MANY),
                          .names = list};
    struct push push = {.step = 3, .member = 1};
    for (push.node.index = 0; push.node.index < SLOTS_MANY; push.node.index++)
        names_remember(&names, &push, push.node.index);
    for (push.node.index = 0; push.node.index < SLOTS_MANY; push.node.index++)
        assert_int_equal(names_first(&names, &push)->digest, push.node.index);
    assert_int_equal(names_places(SLOTS_MANY, false), NAMES_PLACES_MAX);
}

TEST_F(a_duplicate_with_other_bits_names_both_senders, shard)
{
    assert_int_equal(push_all(f, 0, (struct node){0, 1}), ERR_OK);
    struct message m;
    message_all(f, &m, 0, (struct node){0, 1});
    m.push.member = 8;
    m.values[N_FIRST] += 1;
    m.values[N_FIRST + N_TIED] += 1;
    assert_int_equal(send(f, BOB, &m).code, ERR_OK);
    struct shard_effect *wrong = effect(f, SHARD_WRONG_BITS);
    assert_non_null(wrong);
    assert_int_equal(wrong->wrong_bits.member, 8);
    assert_int_equal(wrong->wrong_bits.first_member, 0);
    assert_int_equal(wrong->wrong_bits.chunk, TIED);
    assert_int_equal(wrong->wrong_bits.part, 0);
    assert_int_equal(wrong->wrong_bits.node.index, 1);
    assert_int_equal(f->effects.count, 1); /* one of the two is enough */
    assert_int_equal(shard_statistics(f->shard).wrong_bits, 2);

    do_step(f, 0); /* the step before is remembered */
    assert_int_equal(send(f, BOB, &m).code, ERR_OK);
    assert_non_null(effect(f, SHARD_WRONG_BITS));
}

/* Every byte that is pushed is compared, wherever slices and runs end, also of a long chunk. */
TEST_F(a_duplicate_with_one_other_bit_anywhere_is_found, shard)
{
    assert_int_equal(push_all(f, 0, (struct node){0, 1}), ERR_OK);
    struct message m;
    message_all(f, &m, 0, (struct node){0, 1});
    m.push.member = 8;
    uint64_t found = 0;
    for (uint32_t at = 0; at < (m.value_count - MODEL_LOSS_WEIGHTS) * sizeof(float); at++) {
        uint8_t *byte = (uint8_t *)m.values + at;
        *byte ^= 0x10;
        assert_int_equal(send(f, BOB, &m).code, ERR_OK);
        assert_int_equal(shard_statistics(f->shard).wrong_bits, ++found);
        *byte ^= 0x10;
    }
    assert_int_equal(send(f, BOB, &m).code, ERR_OK);
    assert_int_equal(shard_statistics(f->shard).wrong_bits, found);
}

TEST_F(slots_that_some_chunk_misses_are_told, shard)
{
    uint64_t slots[WIRE_SLOT_WORDS_MAX];
    struct message m;
    assert_int_equal(push_all(f, 0, (struct node){0, 1}), ERR_OK);
    message_begin(f, &m, 0, (struct node){0, 0});
    message_add(&m, FIRST, 0, N_FIRST); /* and nothing of the others */
    assert_int_equal(send(f, ALICE, &m).code, ERR_OK);
    uint64_t step = 0;
    memset(slots, 0xff, sizeof slots); /* of an earlier question */
    assert_true(shard_missing(f->shard, &step, slots));
    assert_int_equal(slots[0], ((1 << SLOTS) - 1) ^ 1 << 1);
    assert_int_equal(slots[1], 0);
    struct lack lacks[WIRE_LACKS_MAX];
    assert_int_equal(shard_lacks(f->shard, step, lacks), SLOTS - 1);
    assert_int_equal(lacks[0].slot, 0);
    assert_int_not_equal(lacks[0].chunk, FIRST);
    assert_int_equal(lacks[1].slot, 2);
    assert_int_equal(lacks[1].chunk, FIRST);
    push_step(f, 0);
    assert_false(shard_missing(f->shard, &step, slots));
    assert_int_equal(slots[0], 0);
}

TEST_F(p11_before_the_commit_that_may_move_chunks_nothing_is_said_to_be_missing, shard,
       .later = true)
{
    uint64_t slots[WIRE_SLOT_WORDS_MAX], first = 0, second = 1;
    f->config.delay = 1;
    start(f);
    assert_true(shard_missing(f->shard, &first, slots));
    assert_false(shard_missing(f->shard, &second, slots));
    do_step(f, 0);
    assert_true(shard_missing(f->shard, &second, slots));
}

TEST_F(a_push_that_counts_other_samples_than_its_tickets_have_is_refused, shard, .later = true)
{
    f->config.slot_samples = 3;
    start(f);
    assert_int_equal(push_all(f, 0, (struct node){0, 1}), ERR_MALFORMED); /* it says 4 */
    assert_int_equal(push_all(f, 0, (struct node){0, 0}), ERR_MALFORMED); /* it says 2 */
    assert_int_equal(push_all(f, 0, (struct node){1, 0}), ERR_OK);        /* 6 of two slots */
}

/* A sender whose payload is its own memory, and who writes there what was read of it already. */
static struct message *changing;
static uint32_t read_count;
static void (*really_add)(const struct kernels *k, float *acc, const void *bytes, int64_t n);

static void change_and_add(const struct kernels *k, float *acc, const void *bytes, int64_t n)
{
    for (int64_t i = 0; changing != NULL && i < n; i++)
        changing->values[read_count++] += 1000;
    really_add(k, acc, bytes, n);
}

TEST_F(what_is_added_is_what_the_digest_is_of, shard)
{
    struct message m;
    really_add = f->table.add_f32;
    f->table.add_f32 = change_and_add;
    assert_int_equal(push_all(f, 0, (struct node){0, 0}), ERR_OK);
    message_begin(f, &m, 0, (struct node){0, 1});
    message_add(&m, FIRST, 0, N_FIRST);
    changing = &m;
    read_count = 0;
    assert_int_equal(send(f, ALICE, &m).code, ERR_OK);
    changing = NULL;
    assert_true(m.values[0] > 900);
    assert_int_equal(push_all(f, 0, (struct node){0, 1}), ERR_OK); /* as it was before */
    assert_null(effect(f, SHARD_WRONG_BITS));
}

TEST_F(digests_of_other_steps_are_not_compared, shard)
{
    do_step(f, 0);
    do_step(f, 1);
    assert_int_equal(push_all(f, 2, (struct node){1, 0}), ERR_OK);
    struct message m;
    message_all(f, &m, 2, (struct node){0, 1}); /* its first in step 2, inside (1,0) */
    m.values[0] += 1;
    assert_int_equal(send(f, BOB, &m).code, ERR_OK);
    assert_null(effect(f, SHARD_WRONG_BITS));
}

TEST_F(busy_says_from_which_entry_on, shard, .later = true)
{
    f->config.ahead_max = 0;
    start(f);
    struct message m;
    message_begin(f, &m, 0, (struct node){0, 0});
    message_add(&m, FIRST, 0, N_FIRST);
    assert_int_equal(send(f, ALICE, &m).code, ERR_OK);
    message_all(f, &m, 0, (struct node){0, 1}); /* FIRST: a pair; TIED: 0 is missing */
    struct shard_ack ack = send(f, ALICE, &m);
    assert_int_equal(ack.code, ERR_BUSY);
    assert_int_equal(ack.first_refused, 1);
    assert_int_equal(shard_statistics(f->shard).busy, 1);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        assert_int_equal(push_all(f, 0, (struct node){0, slot}), ERR_OK);
    assert_non_null(effect(f, SHARD_REDUCED));
}

TEST_F(what_does_not_fit_is_refused, shard)
{
    struct message m;
    const struct node slot = {0, 0};
#define REFUSED(change, error, index)                                                              \
    do {                                                                                           \
        message_all(f, &m, 0, slot);                                                               \
        change;                                                                                    \
        struct shard_ack ack = send(f, ALICE, &m);                                                 \
        assert_int_equal(ack.code, error);                                                         \
        assert_int_equal(ack.first_refused, index);                                                \
    } while (0)
    REFUSED(m.push.generation--, ERR_OLD_GENERATION, 0);
    REFUSED(m.push.generation++, ERR_BEHIND, 0);
    REFUSED(m.push.step++, ERR_TOO_EARLY, 0);
    REFUSED(m.push.codec = CODEC_BF16, ERR_MALFORMED, 0);
    REFUSED(m.push.node.index = SLOTS, ERR_MALFORMED, 0);
    REFUSED(m.push.node.level = 3, ERR_MALFORMED, 0);
    REFUSED(m.entries[0].chunk = 5, ERR_MOVED, 0);
    REFUSED(m.entries[0].chunk = 20, ERR_NOT_FOUND, 0);
    assert_int_equal(shard_statistics(f->shard).pushed_bytes, 0);
    REFUSED(m.entries[1].part = 2, ERR_MALFORMED, 1);
    REFUSED(m.entries[2].bytes -= 4, ERR_MALFORMED, 2);
    REFUSED(m.value_count -= 1, ERR_MALFORMED, 4); /* payload shorter than its entries */
#undef REFUSED
    assert_int_equal(pull_one(f, 0, 5)->refusal.code, ERR_MOVED);
    assert_int_equal(pull_one(f, 0, 20)->refusal.code, ERR_NOT_FOUND);
    assert_int_equal(pull_one(f, 7, 20)->refusal.code, ERR_NOT_FOUND);
    assert_int_equal(refusal(pull_some(f, ALICE, 0, NULL, 0)), ERR_MALFORMED);
}

/* ---- some rows of a chunk ---- */

static const uint32_t second_and_last[] = {1, ROWS - 1};

/* A slot's message in which the tied chunk's first part has these rows, and zeros; sparse or not. */
static void message_rows(struct shard_fixture *f, struct message *m, uint32_t slot, bool sparse)
{
    float *values = &m->values[N_FIRST];
    message_all(f, m, 0, (struct node){0, slot});
    memset(values, 0, N_COLS * sizeof *values);
    memset(values + 2 * N_COLS, 0, (ROWS - 3) * N_COLS * sizeof *values);
    if (!sparse)
        return;
    memmove(values, values + N_COLS, N_COLS * sizeof *values);
    memmove(values + N_COLS, values + (ROWS - 1) * N_COLS,
            (m->value_count - N_FIRST - (ROWS - 1) * N_COLS) * sizeof *values);
    m->value_count -= (ROWS - 2) * N_COLS;
    m->entries[1].sparse = true;
    m->entries[1].rows = second_and_last;
    m->entries[1].row_count = 2;
    m->entries[1].bytes = 2 * N_COLS * sizeof *values;
}

TEST_F(rows_alone_are_the_same_push, shard)
{
    struct message m;
    for (uint32_t slot = 0; slot < 2; slot++) { /* one is added to the other */
        message_rows(f, &m, slot, true);
        assert_int_equal(send(f, ALICE, &m).code, ERR_OK);
        assert_int_equal(shard_statistics(f->shard).duplicates, 5 * slot);
        assert_int_equal(shard_statistics(f->shard).spared_bytes,
                         (slot + 1) * (ROWS - 2) * N_COLS * sizeof(float));
        assert_int_equal(shard_statistics(f->shard).pushed_bytes,
                         (slot + 1) * (N_ALL + N_TIED) * sizeof(float));
        m.push.member = 8;
        message_rows(f, &m, slot, slot == 0);
        assert_int_equal(send(f, BOB, &m).code, ERR_OK); /* a duplicate of either form */
        assert_int_equal(shard_statistics(f->shard).wrong_bits, 0);
    }
    message_rows(f, &m, 0, true);
    m.push.member = 8;
    m.values[N_FIRST + N_COLS] += 1;
    assert_int_equal(send(f, BOB, &m).code, ERR_OK);
    assert_int_equal(shard_statistics(f->shard).wrong_bits, 1);
    const uint32_t others[] = {2, ROWS - 1};
    message_rows(f, &m, 0, true);
    m.push.member = 8;
    m.entries[1].rows = others; /* the same values, in another row */
    assert_int_equal(send(f, BOB, &m).code, ERR_OK);
    assert_int_equal(shard_statistics(f->shard).wrong_bits, 2);
}

TEST_F(rows_alone_make_the_same_weights, shard)
{
    float wanted[N_TIED];
    for (uint32_t sparse = 0; sparse < 2; sparse++) {
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            struct message m;
            message_rows(f, &m, slot, sparse && slot != 2);
            assert_int_equal(send(f, ALICE, &m).code, ERR_OK);
        }
        carry_out(f, decision(0));
        const float *weights = shard_state(f->shard, 1).weights;
        if (sparse)
            assert_memory_equal(weights, wanted, sizeof wanted);
        memcpy(wanted, weights, sizeof wanted);
        shard_free(f->shard);
        start(f);
    }
}

TEST_F(rows_that_the_chunk_does_not_have_are_refused, shard)
{
    struct message m;
    const uint32_t beyond[] = {1, ROWS};
    uint32_t every[ROWS + 1];
    for (uint32_t i = 0; i <= ROWS; i++)
        every[i] = i;
#define REFUSED(change, index)                                                                     \
    do {                                                                                           \
        message_rows(f, &m, 0, true);                                                              \
        change;                                                                                    \
        struct shard_ack ack = send(f, ALICE, &m);                                                 \
        assert_int_equal(ack.code, ERR_MALFORMED);                                                 \
        assert_int_equal(ack.first_refused, index);                                                \
    } while (0)
    REFUSED(m.entries[1].rows = beyond, 1);
    REFUSED(m.entries[1].bytes -= 4, 1);
    REFUSED(m.entries[1].bytes += 4, 1);
    REFUSED(m.entries[1].row_count = 1, 1);
    REFUSED((m.entries[1].rows = every, m.entries[1].row_count = ROWS + 1,
             m.entries[1].bytes = (ROWS + 1) * N_COLS * 4),
            1);
    REFUSED((m.entries[1].row_count = 0, m.entries[1].sparse = false), 1);
    /* The first chunk has no rows in this run, and the loss never has. */
    REFUSED((m.entries[0].sparse = true, m.entries[0].bytes = 0), 0);
    REFUSED((m.entries[4].sparse = true, m.entries[4].bytes = 0), 4);
#undef REFUSED
    message_rows(f, &m, 0, true);
    m.entries[1].row_count = 0; /* none of its rows: all is zeros */
    m.entries[1].bytes = 0;
    assert_int_equal(send(f, ALICE, &m).code, ERR_OK);
}

TEST_F(lossy_pushes_have_one_node_size, shard, .later = true)
{
    f->config.push_codec = f->config.weights_codec = CODEC_BF16;
    f->config.node_level = 1;
    start(f);
    float sums[2][N_MEAN];
    for (uint32_t i = 0; i < 2; i++)
        node_values(0, (struct node){1, i}, MEAN, 0, N_MEAN, sums[i]);
    for (uint32_t level = 0; level <= 2; level++) {
        uint16_t halves[N_MEAN];
        f->kernels->cast_to_bf16(f->kernels, halves, sums[0], N_MEAN);
        struct push_entry entry = {MEAN, 0, sizeof halves, 1};
        struct push push = {1, GENERATION, 0, {level, 0}, CODEC_BF16, 1, &entry};
        struct slice slice = {(const uint8_t *)halves, sizeof halves};
        clear(f);
        struct shard_ack ack =
            shard_push(f->shard, ALICE, &push, (struct cursor){&slice, 1, 0, 0}, &f->effects);
        assert_int_equal(ack.code, level == 1 ? ERR_OK : ERR_MALFORMED);
    }
    struct message m; /* the loss is never rounded */
    message_begin(f, &m, 0, (struct node){1, 1});
    m.push.codec = CODEC_BF16;
    message_add(&m, LOSS, 0, 4);
    clear(f);
    struct slice slice = {(const uint8_t *)m.values, 16};
    struct shard_ack ack =
        shard_push(f->shard, ALICE, &m.push, (struct cursor){&slice, 1, 0, 0}, &f->effects);
    assert_int_equal(ack.code, ERR_OK);
    assert_int_equal(pull_one(f, 0, LOSS)->weights.copies[0]->bytes, 4 * 4);
    assert_int_equal(pull_one(f, 0, FIRST)->weights.copies[0]->bytes, N_FIRST * 2);
}

TEST_F(infinite_gradients_are_reported, shard)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        struct message m;
        message_all(f, &m, 0, (struct node){0, slot});
        if (slot == 2)
            m.values[N_FIRST + 3] = INFINITY;
        assert_int_equal(send(f, ALICE, &m).code, ERR_OK);
    }
    const struct reduced *reduced = &effect(f, SHARD_REDUCED)->reduced;
    assert_true(reduced->seals[0].finite);
    assert_false(reduced->seals[1].finite);
}
