/* Members that wait for each other in threads, by names as an outbox has them. */
#include "tests/unit/unit.h"

#include "common/rand.h"
#include "common/thread.h"
#include "common/time.h"
#include "worker/collective/walk.h"

enum { RANKS = 4, ELEMENTS = 333, ROUNDS = 8 };

struct given {
    bool there;
    size_t bytes;
    float values[ELEMENTS];
};

struct place_of_threads {
    struct collective collective;
    bool lends;
    struct thread_mutex mutex; /* guards `given` */
    struct thread_cond changed;
    struct given given[RANKS][ROUNDS];
};

struct member {
    struct place_of_threads *place;
    uint32_t rank;
    enum err refuses; /* what its carrier says to the last round */
    enum err err;
    float array[ELEMENTS], output[ELEMENTS];
};

static enum err give(void *context, uint32_t round, const void *bytes, size_t count)
{
    struct member *member = context;
    struct given *given = &member->place->given[member->rank][round];
    check(round < ROUNDS && !given->there); /* once a round */
    thread_lock(&member->place->mutex);
    given->there = true;
    given->bytes = count;
    if (count > 0)
        memcpy(given->values, bytes, count);
    thread_wake_all(&member->place->changed);
    thread_unlock(&member->place->mutex);
    return member->refuses;
}

static enum err take(void *context, uint32_t rank, uint32_t round, void *ret_bytes, size_t count)
{
    struct member *member = context;
    struct given *given = &member->place->given[rank][round];
    uint64_t deadline_ns = time_after_ms(time_now_ns(), 5000);
    enum err err = ERR_OK;
    thread_lock(&member->place->mutex);
    while (!given->there && err == ERR_OK)
        err = thread_wait_locked(&member->place->changed, &member->place->mutex, deadline_ns);
    thread_unlock(&member->place->mutex);
    check(err != ERR_OK || given->bytes == count);
    if (err == ERR_OK && count > 0)
        memcpy(ret_bytes, given->values, count);
    return err;
}

/* What a rank has given stays where it is. */
static enum err lend(void *context, uint32_t rank, uint32_t round, void *scratch, size_t count,
                     const void **ret_bytes)
{
    struct member *member = context;
    TRY(take(context, rank, round, scratch, count));
    memset(scratch, 0xFF, count); /* NaNs: it is not read */
    *ret_bytes = member->place->given[rank][round].values;
    return ERR_OK;
}

static void add_floats(void *context, void *out, const void *left, const void *right, size_t count)
{
    float *sums = out;
    const float *a = left, *b = right;
    (void)context;
    for (size_t i = 0; i < count; i++)
        sums[i] = a[i] + b[i];
}

static float value_of(uint32_t rank, uint64_t index)
{
    return rand_uniform(rand_key(3, RAND_DATA, rank), index) * 1e3f - 3e2f;
}

static void live(void *argument)
{
    struct member *member = argument;
    const struct collective *collective = &member->place->collective;
    const struct walk_work work = {
        .collective = *collective,
        .element_bytes = sizeof(float),
        .array = member->array,
        .output = collective->kind == COLLECTIVE_ALL_TO_ALL ? member->output : NULL,
        .add = add_floats};
    const struct walk_carrier carrier = {
        .give = give, .take = take, .context = member, .lend = member->place->lends ? lend : NULL};
    size_t bytes = walk_bytes(collective, member->rank, sizeof(float));
    void *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
    check(memory != NULL);
    for (uint64_t i = 0; i < collective->elements; i++)
        member->array[i] = value_of(member->rank, i);
    member->err = walk_collective(&work, member->rank, &carrier, memory);
    free(memory);
}

static void all_live(struct member *members, struct collective collective, bool lends)
{
    static struct place_of_threads place;
    struct thread threads[RANKS];
    memset(&place, 0, sizeof place);
    place.collective = collective;
    place.lends = lends;
    thread_mutex_init(&place.mutex);
    thread_cond_init(&place.changed);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        members[rank].place = &place;
        members[rank].rank = rank;
        assert_int_equal(thread_start(&threads[rank], "member", live, &members[rank]), ERR_OK);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++)
        thread_join(&threads[rank]);
    thread_cond_release(&place.changed);
    thread_mutex_release(&place.mutex);
}

TEST(members_that_take_by_name_have_the_tree_s_sum)
{
    for (unsigned run = 0; run < 4;
         run++) { /* with bytes that are copied, and with those that are lent */
        static struct member members[RANKS];
        memset(members, 0, sizeof members);
        all_live(members,
                 (struct collective){.kind = COLLECTIVE_ALL_REDUCE,
                                     .way = run % 2 == 0 ? COLLECTIVE_DIRECT : COLLECTIVE_HALVING,
                                     .ranks = RANKS,
                                     .elements = ELEMENTS},
                 run >= 2);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            for (uint64_t i = 0; i < ELEMENTS; i++) {
                float sum = (value_of(0, i) + value_of(1, i)) + (value_of(2, i) + value_of(3, i));
                assert_int_equal(members[rank].err, ERR_OK);
                assert_memory_equal(&members[rank].array[i], &sum, sizeof sum);
            }
    }
}

TEST(members_that_take_by_name_gather_and_exchange)
{
    static const enum collective_kind kinds[] = {COLLECTIVE_ALL_GATHER, COLLECTIVE_ALL_TO_ALL,
                                                 COLLECTIVE_BROADCAST};
    for (int k = 0; k < 3; k++) {
        static struct member members[RANKS];
        memset(members, 0, sizeof members);
        all_live(members,
                 (struct collective){
                     .kind = kinds[k], .ranks = RANKS, .root = 1, .elements = 320, .each = 80},
                 false);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            for (uint32_t i = 0; i < 320; i++) {
                bool apart = kinds[k] == COLLECTIVE_ALL_TO_ALL;
                uint32_t from = kinds[k] == COLLECTIVE_BROADCAST ? 1 : i / 80;
                float right = value_of(from, apart ? rank * 80 + i % 80 : i);
                float is = apart ? members[rank].output[i] : members[rank].array[i];
                assert_int_equal(members[rank].err, ERR_OK);
                if (!apart || from != rank)
                    assert_memory_equal(&is, &right, sizeof right);
            }
    }
}

TEST(an_error_of_the_carrier_ends_it)
{
    static struct member members[RANKS];
    for (uint32_t rank = 0; rank < RANKS; rank++)
        members[rank].refuses = ERR_CANCELLED;
    all_live(
        members,
        (struct collective){.kind = COLLECTIVE_ALL_REDUCE, .ranks = RANKS, .elements = ELEMENTS},
        false);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(members[rank].err, ERR_CANCELLED);
}
