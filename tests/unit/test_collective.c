/* The schedules of all ranks, played together: messages take any time, and each member does its steps
 * in their order. */
#include "tests/unit/unit.h"

#include "common/rand.h"
#include "common/tree.h"
#include "worker/collective/collective.h"

#include <math.h>

enum { RANKS = 16, ELEMENTS = 1200, ROUNDS = 2 * RANKS };

struct member {
    struct collective_schedule schedule;
    uint32_t at;            /* the step that is next */
    float array[ELEMENTS];  /* input and output of all but all-to-all */
    float output[ELEMENTS]; /* all-to-all's */
    float scratch[8 * ELEMENTS];
};

/* What one member sent another in a round. */
struct sent {
    bool there;
    struct collective_range range;
    float values[ELEMENTS];
};

struct play {
    struct collective collective;
    struct member members[RANKS];
    struct sent sent[RANKS][RANKS][ROUNDS + 1]; /* from, to, round */
    float before[RANKS][ELEMENTS];
    uint32_t under_way;
};

static struct play play; /* one at a time */

/* Not to be turned round by the compiler: of two NaNs the first one's bits come out. */
__attribute__((noinline)) static float sum(float left, float right)
{
    return left + right;
}

static float value_of(uint32_t rank, uint64_t index)
{
    static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-44f, 3e38f, -3e38f};
    struct rand_key key = rand_key(7, RAND_DATA, rank);
    uint32_t words[4];
    rand_words(key, index, words);
    if (words[0] % 8 == 0)
        return odd[words[1] / 2 % 8];
    return ldexpf((float)words[2] / 4e9f - 0.5f, (int)(words[3] % 40) - 20);
}

static float *memory_of(struct member *member, const struct collective_step *step, uint32_t place)
{
    if (place > 0)
        return member->scratch + (place - 1) * member->schedule.scratch_elements;
    bool apart = play.collective.kind == COLLECTIVE_ALL_TO_ALL && step->act != COLLECTIVE_SEND;
    return (apart ? member->output : member->array) + step->range.first;
}

static void do_send(uint32_t rank, const struct collective_step *step)
{
    struct sent *sent = &play.sent[rank][step->peer][step->round];
    assert_false(sent->there); /* one message a name */
    sent->there = true;
    sent->range = step->range;
    if (step->range.count > 0)
        memcpy(sent->values, memory_of(&play.members[rank], step, 0),
               step->range.count * sizeof(float));
    play.under_way++;
}

static void add(float *out, const float *left, const float *right, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = sum(left[i], right[i]);
}

static void do_receive(uint32_t rank, const struct collective_step *step)
{
    struct sent *sent = &play.sent[step->peer][rank][step->round];
    const struct collective_step from = {.act = COLLECTIVE_SEND, .range = sent->range};
    float *ours = memory_of(&play.members[rank], step, step->place);
    size_t bytes = step->range.count * sizeof(float);
    assert_int_equal(sent->range.count, step->range.count);
    /* A range that was sent stays as it is until it is there. */
    if (bytes > 0)
        assert_memory_equal(sent->values, memory_of(&play.members[step->peer], &from, 0), bytes);
    if (play.collective.kind != COLLECTIVE_ALL_TO_ALL)
        assert_int_equal(sent->range.first, step->range.first);
    if (step->act == COLLECTIVE_COPY && bytes > 0)
        memcpy(ours, sent->values, bytes);
    else if (step->act == COLLECTIVE_ADD_LEFT)
        add(ours, sent->values, ours, step->range.count);
    else if (step->act == COLLECTIVE_ADD_RIGHT)
        add(ours, ours, sent->values, step->range.count);
    sent->there = false;
    play.under_way--;
}

static void do_fold(uint32_t rank, const struct collective_step *step)
{
    float *theirs = memory_of(&play.members[rank], step, step->place);
    float *ours = memory_of(&play.members[rank], step, step->place - 1);
    if (step->act == COLLECTIVE_FOLD_LEFT)
        add(ours, theirs, ours, step->range.count);
    else
        add(ours, ours, theirs, step->range.count);
}

/* Does the member's next step, if it can. */
static bool go_on(uint32_t rank)
{
    struct member *member = &play.members[rank];
    if (member->at == member->schedule.count)
        return false;
    const struct collective_step *step = &member->schedule.steps[member->at];
    if (collective_receives(step) && !play.sent[step->peer][rank][step->round].there)
        return false;
    if (step->act == COLLECTIVE_SEND)
        do_send(rank, step);
    else if (collective_receives(step))
        do_receive(rank, step);
    else
        do_fold(rank, step);
    member->at++;
    return true;
}

static void begin(const struct collective *collective)
{
    struct reason reason;
    memset(&play, 0, sizeof play);
    play.collective = *collective;
    assert_int_equal(collective_check(collective, &reason), ERR_OK);
    for (uint32_t rank = 0; rank < collective->ranks; rank++) {
        collective_plan(collective, rank, &play.members[rank].schedule);
        assert_true(play.members[rank].schedule.scratch_places <= 7);
        for (uint64_t i = 0; i < collective->elements; i++)
            play.before[rank][i] = play.members[rank].array[i] = value_of(rank, i);
    }
}

/* In an order that the seed says; whoever is done knows that all have begun. */
static void play_all(uint64_t seed)
{
    struct rand_key key = rand_key(seed, RAND_DATA, 99);
    uint32_t ranks = play.collective.ranks, begun = 0, left = 0;
    for (uint32_t rank = 0; rank < ranks; rank++)
        left += play.members[rank].schedule.count;
    for (uint64_t turn = 0; left > 0; turn++) {
        uint32_t words[4];
        rand_words(key, turn, words);
        bool moved = false;
        for (uint32_t k = 0; k < ranks && !moved; k++) {
            uint32_t rank = (words[0] + k) % ranks;
            begun += play.members[rank].at == 0;
            moved = go_on(rank);
            begun -= play.members[rank].at == 0;
            if (moved && play.members[rank].at == play.members[rank].schedule.count)
                assert_int_equal(begun, ranks);
        }
        assert_true(moved); /* or it would wait for ever */
        left--;
    }
    assert_int_equal(play.under_way, 0);
}

/* ---- what must come out ---- */

static float tree_sum(struct node node, uint64_t index)
{
    if (node.level == 0)
        return play.before[node.index][index];
    struct node left = {node.level - 1, node.index * 2}, right = node_sibling(left);
    float ours = tree_sum(left, index);
    return node_slots(right, play.collective.ranks) == 0 ? ours : sum(ours, tree_sum(right, index));
}

static uint32_t owner_of(uint64_t index)
{
    for (uint32_t rank = 0; rank < play.collective.ranks; rank++) {
        struct collective_range range = collective_range(&play.collective, rank);
        if (index >= range.first && index - range.first < range.count)
            return rank;
    }
    fail();
    return 0;
}

static float ring_sum(uint64_t index)
{
    uint32_t ranks = play.collective.ranks, first = owner_of(index) + 1;
    float total = play.before[first % ranks][index];
    for (uint32_t k = 1; k < ranks; k++)
        total = sum(total, play.before[(first + k) % ranks][index]);
    return total;
}

static float expected(uint32_t rank, uint64_t index)
{
    const struct collective *collective = &play.collective;
    uint32_t owner = owner_of(index);
    switch (collective->kind) {
    case COLLECTIVE_ALL_REDUCE:
    case COLLECTIVE_REDUCE_SCATTER:
        return collective->way == COLLECTIVE_RING
                   ? ring_sum(index)
                   : tree_sum((struct node){tree_level(collective->ranks), 0}, index);
    case COLLECTIVE_ALL_GATHER:
        return play.before[owner][index];
    case COLLECTIVE_ALL_TO_ALL:
        return play.before[owner][collective_range(collective, rank).first + index -
                                  collective_range(collective, owner).first];
    default:
        return play.before[collective->root][index];
    }
}

static void check_values(void)
{
    const struct collective *collective = &play.collective;
    bool scatter = collective->kind == COLLECTIVE_REDUCE_SCATTER;
    bool apart = collective->kind == COLLECTIVE_ALL_TO_ALL;
    for (uint32_t rank = 0; rank < collective->ranks; rank++)
        for (uint64_t i = 0; i < collective->elements; i++) {
            const float *result = apart ? play.members[rank].output : play.members[rank].array;
            uint32_t owner = owner_of(i);
            if ((scatter && owner != rank) || (apart && owner == rank))
                continue;
            float right = expected(rank, i);
            assert_memory_equal(&result[i], &right, sizeof right);
        }
}

static void check_one(struct collective collective)
{
    struct reason reason;
    if (collective_check(&collective, &reason) != ERR_OK)
        return;
    begin(&collective);
    play_all(collective.elements + collective.ranks);
    check_values();
}

TEST(every_schedule_ends_with_the_right_bits_in_any_order_of_arrival)
{
    static const uint64_t sizes[] = {0, 1, 16, 17, 100, 333, 1024};
    static const uint32_t ranks[] = {1, 2, 3, 4, 5, 7, 8, 16};
    for (size_t n = 0; n < sizeof sizes / sizeof sizes[0]; n++)
        for (size_t t = 0; t < sizeof ranks / sizeof ranks[0]; t++)
            for (unsigned which = 0; which < COLLECTIVE_KIND_COUNT * COLLECTIVE_WAY_COUNT;
                 which++) {
                struct collective collective = {
                    .kind = which / COLLECTIVE_WAY_COUNT,
                    .way = which % COLLECTIVE_WAY_COUNT,
                    .ranks = ranks[t],
                    .root = ranks[t] / 2,
                    .elements = sizes[n],
                };
                if (collective.kind == COLLECTIVE_ALL_TO_ALL) { /* its ranges are equal */
                    collective.each = sizes[n] / ranks[t];
                    collective.elements = collective.each * ranks[t];
                }
                check_one(collective);
            }
}

TEST(ranges_of_a_size_that_is_given_go_between_ranks)
{
    for (unsigned kind = COLLECTIVE_REDUCE_SCATTER; kind <= COLLECTIVE_ALL_GATHER; kind++)
        for (unsigned way = COLLECTIVE_DIRECT; way <= COLLECTIVE_RING; way++)
            check_one((struct collective){
                .kind = kind, .way = way, .ranks = 4, .elements = 28, .each = 7});
}

/* ---- bytes ---- */

TEST(an_all_reduce_sends_each_member_s_share_twice)
{
    for (unsigned way = 0; way < COLLECTIVE_WAY_COUNT; way++)
        for (uint32_t rank = 0; rank < 4; rank++) {
            const struct collective collective = {
                .kind = COLLECTIVE_ALL_REDUCE, .way = way, .ranks = 4, .elements = 1024};
            struct collective_traffic traffic = collective_bytes(&collective, rank, 4);
            uint32_t messages = way == COLLECTIVE_HALVING ? 2 * 2 : 2 * 3;
            assert_int_equal(traffic.sent_bytes, 2 * 3 * 1024);
            assert_int_equal(traffic.received_bytes, 2 * 3 * 1024);
            assert_int_equal(traffic.sent_messages, messages);
            assert_int_equal(traffic.received_messages, messages);
        }
}

TEST(ranges_begin_at_multiples_of_sixteen_and_are_all)
{
    const struct collective collective = {
        .kind = COLLECTIVE_ALL_REDUCE, .way = COLLECTIVE_DIRECT, .ranks = 7, .elements = 333};
    uint64_t next = 0;
    for (uint32_t rank = 0; rank < 7; rank++) {
        struct collective_range range = collective_range(&collective, rank);
        assert_int_equal(range.first, next);
        assert_true(range.first % COLLECTIVE_ALIGN == 0 || range.first == 333);
        next += range.count;
    }
    assert_int_equal(next, 333);
}

TEST(the_largest_number_of_ranks_has_room)
{
    struct collective_schedule schedule;
    for (unsigned way = 0; way < COLLECTIVE_WAY_COUNT; way++)
        for (uint32_t rank = 0; rank < COLLECTIVE_RANKS_MAX; rank++) {
            const struct collective collective = {.kind = COLLECTIVE_ALL_REDUCE,
                                                  .way = way,
                                                  .ranks = COLLECTIVE_RANKS_MAX,
                                                  .elements = COLLECTIVE_ELEMENTS_MAX};
            collective_plan(&collective, rank, &schedule);
            assert_true(schedule.count > 0);
        }
}

/* ---- what there is not ---- */

TEST(what_no_schedule_is_for_is_refused_in_a_sentence)
{
    static const struct {
        struct collective collective;
        const char *text;
    } rows[] = {
        {{.ranks = 0}, "a collective has 1 to 64 ranks, not 0"},
        {{.ranks = 65}, "a collective has 1 to 64 ranks, not 65"},
        {{.ranks = 6, .way = COLLECTIVE_HALVING}, "halving needs a power of two of ranks, not 6"},
        {{.ranks = 2, .kind = COLLECTIVE_BROADCAST, .way = COLLECTIVE_RING},
         "no such collective is done that way"},
        {{.ranks = 2, .kind = COLLECTIVE_KIND_COUNT}, "no such collective is done that way"},
        {{.ranks = 2, .kind = COLLECTIVE_BROADCAST, .root = 2}, "root 2 is none of 2 ranks"},
        {{.ranks = 2, .elements = 5, .each = 2}, "the ranges of 2 ranks are not the whole array"},
        {{.ranks = 2, .elements = UINT64_MAX},
         "an array of a collective has at most 2^40 elements"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct reason reason = {{0}};
        assert_int_equal(collective_check(&rows[i].collective, &reason), ERR_INVALID);
        assert_string_equal(reason.text, rows[i].text);
    }
}
