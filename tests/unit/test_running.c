/* Members with collectives under way, and a carrier that brings parts late, in pieces, and in any
 * order but a sender's own. */
#include "tests/unit/unit.h"

#include "common/rand.h"
#include "common/time.h"
#include "worker/collective/running.h"

enum { RANKS = 8, ELEMENTS = 500, WORKS = 6, QUEUE = 64, ATTEMPT = 77, TRIES = 3 };

struct sent {
    struct part part;
    uint8_t bytes[ELEMENTS * 4 + 1]; /* from the second one on: nothing is aligned */
};

struct running_fixture {
    uint32_t ranks;
    enum collective_way way;
    struct running *running[RANKS];
    void *memory[RANKS];
    float arrays[RANKS][ELEMENTS], outputs[RANKS][ELEMENTS];
    uint32_t works_done[RANKS];
    bool under_way[RANKS];
    struct sent *queues[RANKS][RANKS]; /* from, to: QUEUE of them */
    uint32_t first[RANKS][RANKS], end[RANKS][RANKS];
    uint64_t taken[RANKS][RANKS]; /* bytes of the first */
    bool begun[RANKS][RANKS];     /* the first one's header was taken */
    bool patient;                 /* parts wait in the queue until they are due */
    struct reason reason;
};

static void running_set_up(struct running_fixture *f)
{
    if (f->ranks == 0)
        f->ranks = 2;
    for (uint32_t rank = 0; rank < f->ranks; rank++) {
        const struct running_options options = {ATTEMPT, TRIES, f->ranks, rank, ELEMENTS, 4};
        size_t bytes;
        assert_int_equal(running_bytes(&options, &bytes, &f->reason), ERR_OK);
        f->memory[rank] = aligned_alloc(64, bytes);
        assert_non_null(f->memory[rank]);
        f->running[rank] = running_init(&options, f->memory[rank]);
        for (uint32_t to = 0; to < f->ranks; to++) {
            f->queues[rank][to] = calloc(QUEUE, sizeof(struct sent));
            assert_non_null(f->queues[rank][to]);
        }
    }
}

static void running_tear_down(struct running_fixture *f)
{
    for (uint32_t rank = 0; rank < f->ranks; rank++) {
        free(f->memory[rank]);
        for (uint32_t to = 0; to < f->ranks; to++)
            free(f->queues[rank][to]);
    }
}

static void add_floats(void *context, void *out, const void *left, const void *right, size_t count)
{
    float *sums = out;
    const float *a = left, *b = right;
    (void)context;
    assert_int_equal(((uintptr_t)out | (uintptr_t)left | (uintptr_t)right) % sizeof(float), 0);
    for (size_t i = 0; i < count; i++)
        sums[i] = a[i] + b[i];
}

/* What rank `rank` has before work `number`. */
static float value_of(uint32_t rank, uint32_t number, uint64_t index)
{
    return rand_uniform(rand_key(number, RAND_DATA, rank), index) * 1e3f - 3e2f;
}

/* The works that all do, one after another: each kind, of another size. */
static struct running_work work_of(struct running_fixture *f, uint32_t rank, uint32_t number)
{
    static const uint64_t sizes[WORKS] = {ELEMENTS, 33, 0, ELEMENTS, 480, 1};
    static const enum collective_kind kinds[WORKS] = {COLLECTIVE_ALL_REDUCE, COLLECTIVE_ALL_GATHER,
                                                      COLLECTIVE_ALL_REDUCE, COLLECTIVE_BROADCAST,
                                                      COLLECTIVE_ALL_TO_ALL, COLLECTIVE_ALL_REDUCE};
    enum collective_kind kind = kinds[number];
    bool apart = kind == COLLECTIVE_ALL_TO_ALL;
    return (struct running_work){
        .collective = {.kind = kind,
                       .way = kind == COLLECTIVE_ALL_REDUCE ? f->way : COLLECTIVE_DIRECT,
                       .ranks = f->ranks,
                       .root = f->ranks - 1,
                       .elements = sizes[number],
                       .each = apart ? sizes[number] / f->ranks : 0},
        .element_bytes = sizeof(float),
        .array = f->arrays[rank],
        .output = apart ? f->outputs[rank] : NULL,
        .add = add_floats,
        .deadline_ns = 1000};
}

static void begin(struct running_fixture *f, uint32_t rank)
{
    struct running_work work = work_of(f, rank, f->works_done[rank]);
    for (uint32_t i = 0; i < work.collective.elements; i++)
        f->arrays[rank][i] = value_of(rank, f->works_done[rank], i);
    assert_int_equal(running_begin(f->running[rank], &work, &f->reason), ERR_OK);
    f->under_way[rank] = true;
}

static float sum_of(const struct running_fixture *f, uint32_t number, uint64_t i)
{
    float x[4] = {0};
    for (uint32_t rank = 0; rank < f->ranks; rank++)
        x[rank] = value_of(rank, number, i);
    return f->ranks == 4   ? (x[0] + x[1]) + (x[2] + x[3])
           : f->ranks == 3 ? (x[0] + x[1]) + x[2]
                           : x[0] + x[1];
}

static void check_result(struct running_fixture *f, uint32_t rank)
{
    uint32_t number = f->works_done[rank];
    const struct running_work work = work_of(f, rank, number);
    const struct collective *collective = &work.collective;
    for (uint32_t from = 0; from < f->ranks; from++) {
        struct collective_range range = collective_range(collective, from);
        struct collective_range own = collective_range(collective, rank);
        for (uint64_t i = range.first; i < range.first + range.count; i++) {
            float right = value_of(from, number, i), is = f->arrays[rank][i];
            if (collective->kind == COLLECTIVE_ALL_REDUCE)
                right = sum_of(f, number, i);
            else if (collective->kind == COLLECTIVE_BROADCAST)
                right = value_of(collective->root, number, i);
            else if (collective->kind == COLLECTIVE_ALL_TO_ALL) {
                right = value_of(from, number, own.first + i - range.first);
                is = f->outputs[rank][i];
                if (from == rank)
                    continue;
            }
            assert_memory_equal(&is, &right, sizeof right);
        }
    }
}

/* Puts what the member sends into the queues, and sees its end. */
static bool carry_out(struct running_fixture *f, uint32_t rank)
{
    struct running_effect effect;
    bool moved = false;
    while (running_next(f->running[rank], 1, &effect)) {
        moved = true;
        if (effect.kind == RUNNING_DONE) {
            check_result(f, rank);
            f->works_done[rank]++;
            f->under_way[rank] = false;
            continue;
        }
        assert_int_equal(effect.kind, RUNNING_SEND);
        struct sent *sent = &f->queues[rank][effect.rank][f->end[rank][effect.rank]++];
        assert_true(f->end[rank][effect.rank] <= QUEUE);
        sent->part = effect.part;
        if (effect.part.bytes > 0)
            memcpy(sent->bytes + 1, effect.bytes, effect.part.bytes);
        running_sent(f->running[rank], effect.rank);
    }
    return moved;
}

/* Brings the header, or the next bytes, of the oldest part. */
static bool bring(struct running_fixture *f, uint32_t from, uint32_t to, uint32_t some)
{
    if (f->first[from][to] == f->end[from][to])
        return false;
    const struct sent *sent = &f->queues[from][to][f->first[from][to]];
    if (!f->begun[from][to]) {
        if (f->patient && !running_waits_for(f->running[to], from))
            return false;
        if (running_part(f->running[to], from, &sent->part, &f->reason) != ERR_OK)
            fail_msg("%s", f->reason.text);
        f->begun[from][to] = true;
        f->taken[from][to] = 0;
    } else {
        uint64_t left = sent->part.bytes - f->taken[from][to], count = 1 + some % 333;
        if (count > left)
            count = left;
        running_payload(f->running[to], from, sent->bytes + 1 + f->taken[from][to], count);
        f->taken[from][to] += count;
    }
    if (f->taken[from][to] == sent->part.bytes) {
        f->begun[from][to] = false;
        f->first[from][to]++;
    }
    return true;
}

static bool all_done(const struct running_fixture *f)
{
    for (uint32_t rank = 0; rank < f->ranks; rank++)
        if (f->works_done[rank] < WORKS)
            return false;
    return true;
}

static bool act(struct running_fixture *f, const uint32_t words[static 4])
{
    uint32_t rank = words[0] % f->ranks, from = words[1] % f->ranks;
    if (!f->under_way[rank] && f->works_done[rank] < WORKS && words[2] % 64 == 0) {
        begin(f, rank);
        return true;
    }
    if (f->under_way[rank] && words[2] % 2 == 0)
        return carry_out(f, rank);
    return from != rank && bring(f, from, rank, words[3]);
}

static void run(struct running_fixture *f, uint64_t seed)
{
    for (uint64_t turn = 0, idle = 0; !all_done(f); turn++) {
        uint32_t words[4];
        rand_words(rand_key(seed, RAND_DATA, 1), turn, words);
        idle = act(f, words) ? 0 : idle + 1;
        assert_true(idle < 100000); /* or somebody waits for ever */
    }
}

TEST_F(two_members_do_all_works_direct, running, .ranks = 2)
{
    run(f, 1);
}

TEST_F(three_members_do_all_works_direct, running, .ranks = 3)
{
    run(f, 2);
}

TEST_F(four_members_do_all_works_direct, running, .ranks = 4)
{
    run(f, 3);
}

TEST_F(four_members_do_all_works_by_halving, running, .ranks = 4, .way = COLLECTIVE_HALVING)
{
    run(f, 4);
}

TEST_F(two_members_do_all_works_in_a_ring, running, .ranks = 2, .way = COLLECTIVE_RING)
{
    run(f, 5);
}

TEST_F(parts_may_wait_with_the_carrier_until_they_are_due, running, .ranks = 4, .patient = true)
{
    run(f, 6);
}

/* ---- refusals ---- */

/* What rank 1 sends first of work 0. */
static struct part honest(const struct running_fixture *f)
{
    struct part part = {ATTEMPT, TRIES, 1, 0, 1, 0, 0};
    const struct running_work work = work_of((struct running_fixture *)(uintptr_t)f, 0, 0);
    part.bytes = collective_range(&work.collective, 0).count * sizeof(float);
    return part;
}

static void refused(struct running_fixture *f, struct part part, enum err err, const char *text)
{
    f->reason.text[0] = 0;
    assert_int_equal(running_part(f->running[0], 1, &part, &f->reason), err);
    assert_string_equal(f->reason.text, text);
}

TEST_F(a_part_of_another_name_is_refused_in_a_sentence, running)
{
    struct part part = honest(f);
    begin(f, 0);
    assert_true(carry_out(f, 0));
    part.attempt++;
    refused(f, part, ERR_NOT_FOUND, "rank 1 sent a part of another lease");
    part = honest(f);
    part.tries--;
    refused(f, part, ERR_TOO_LATE, "rank 1 sent a part of try 2 in try 3");
    part.tries += 2;
    refused(f, part, ERR_BEHIND, "rank 1 sent a part of try 4 in try 3");
    part = honest(f);
    part.rank = 0;
    refused(f, part, ERR_MALFORMED, "rank 1 sent a part as rank 0");
    part = honest(f);
    part.sequence = 0;
    refused(f, part, ERR_MALFORMED, "rank 1 sent a part of collective 0, where the newest is 1");
    part.sequence = 3;
    refused(f, part, ERR_MALFORMED, "rank 1 sent a part of collective 3, where the newest is 1");
}

TEST_F(a_part_of_another_range_is_refused_in_a_sentence, running)
{
    struct part part = honest(f);
    begin(f, 0);
    assert_true(carry_out(f, 0));
    part.round = 9;
    refused(f, part, ERR_MALFORMED,
            "rank 1 sent round 9 of collective 1, which has none for rank 0");
    part = honest(f);
    part.bytes -= 4;
    refused(f, part, ERR_MALFORMED, "rank 1 sent 1020 bytes in round 0 of collective 1, not 1024");
    part = honest(f);
    part.first = 16;
    refused(f, part, ERR_MALFORMED,
            "rank 1 sent elements from 16 on in round 0 of collective 1, not from 0");
    part = honest(f);
    assert_int_equal(running_part(f->running[0], 1, &part, &f->reason), ERR_OK);
    running_payload(f->running[0], 1, f->arrays[1], part.bytes);
    refused(f, part, ERR_MALFORMED, "rank 1 sent round 0 of collective 1 twice");
}

/* Nothing is under way: parts of the first collective are kept. */
TEST_F(more_than_its_credit_is_kept_of_nobody, running)
{
    struct part part = {ATTEMPT, TRIES, 1, 0, 1, 0, 256};
    enum err err = ERR_OK;
    uint64_t kept = 0;
    for (; err == ERR_OK && part.round < 100; part.round++) {
        err = running_part(f->running[0], 1, &part, &f->reason);
        if (err == ERR_OK)
            running_payload(f->running[0], 1, f->arrays[1], part.bytes);
        kept += err == ERR_OK ? part.bytes : 0;
    }
    assert_int_equal(err, ERR_BUSY);
    assert_non_null(strstr(f->reason.text, "rank 1 is ahead by more than its credit of "));
    assert_true(kept >= ELEMENTS / 2 * 4 && kept <= ELEMENTS / 2 * 4 + 256);
}

static void fails(struct running_fixture *f, uint64_t now_ns, enum err err, const char *text)
{
    struct running_effect effect = {0};
    while (running_next(f->running[0], now_ns, &effect) && effect.kind == RUNNING_SEND)
        running_sent(f->running[0], effect.rank);
    assert_int_equal(effect.kind, RUNNING_FAILED);
    assert_int_equal(effect.err, err);
    assert_int_equal(effect.rank, 1);
    assert_string_equal(effect.reason, text);
    assert_false(running_next(f->running[0], now_ns, &effect)); /* once */
}

TEST_F(an_early_part_that_the_collective_does_not_have_fails_it, running)
{
    struct part part = honest(f);
    part.round = 5;
    part.bytes = 0;
    assert_int_equal(running_part(f->running[0], 1, &part, &f->reason), ERR_OK);
    begin(f, 0);
    fails(f, 1, ERR_MALFORMED, "rank 1 sent round 5 of collective 1, which has none for rank 0");
}

TEST_F(who_sends_nothing_is_named_at_the_deadline, running)
{
    struct running_effect effect;
    begin(f, 0);
    assert_true(carry_out(f, 0));
    assert_false(running_next(f->running[0], 999, &effect));
    fails(f, 1000, ERR_DEADLINE, "collective 1: rank 1 sent nothing before the deadline");
}

TEST_F(who_is_lost_between_collectives_fails_the_next, running)
{
    running_lost(f->running[0], 1);
    begin(f, 0);
    fails(f, 1, ERR_UNREACHABLE, "collective 0: rank 1 can no longer be reached");
}

TEST_F(what_is_larger_than_was_said_is_not_begun, running)
{
    struct running_work work = work_of(f, 0, 0);
    work.collective.elements++;
    assert_int_equal(running_begin(f->running[0], &work, &f->reason), ERR_INVALID);
    assert_string_equal(
        f->reason.text,
        "a collective of 501 elements among 2 ranks, where there is room for 500 among 2");
}
