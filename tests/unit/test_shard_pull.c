/* Pulls from a shard: what is there, what waits, what is bounded. */
#include "tests/unit/shard_fixture.h"

TEST_F(a_pull_is_at_most_one_message, shard, .later = true)
{
    struct shard_chunk large[2] = {{.chunk = 0, .n = MODEL_CHUNK_WEIGHTS_MAX, .parts = 1},
                                   {.chunk = 1, .n = 1, .parts = 1}};
    f->config.chunks = large;
    f->config.chunk_count = 2;
    assert_int_equal(shard_new(&f->config, &f->shard), ERR_OK);
    assert_int_equal(shard_start(f->shard), ERR_OK);
    const uint32_t both[2] = {0, 1};
    assert_int_equal(refusal(pull_some(f, ALICE, 0, both, 2)), ERR_MALFORMED);
    assert_int_equal(pull_some(f, ALICE, 0, both, 1)->kind, SHARD_WEIGHTS);
}

TEST_F(p5_a_pull_waits_for_its_version, shard)
{
    const uint32_t both[2] = {TIED, FIRST};
    assert_int_equal(refusal(pull_some(f, BOB, 1, both, 2)), ERR_TOO_EARLY);
    uint64_t bobs = f->id;
    assert_int_equal(refusal(pull_some(f, ALICE, 1, both + 1, 1)), ERR_TOO_EARLY);
    uint64_t alices = f->id;
    assert_int_equal(refusal(pull_some(f, ALICE, 2, both + 1, 1)), ERR_TOO_EARLY);
    assert_int_equal(shard_statistics(f->shard).parked, 3);
    push_step(f, 0);
    begin(f, decision(0));
    assert_int_equal(refusal(pull_one(f, 0, FIRST)), ERR_TOO_LATE); /* decided: gone */
    assert_true(work(f)); /* FIRST is there, later chunks are not */
    assert_int_equal(f->effects.count, 1);
    assert_int_equal(f->effects.items[0].sender, ALICE);
    assert_int_equal(f->effects.items[0].weights.header.id, alices);
    assert_int_equal(pull_one(f, 1, FIRST)->kind, SHARD_WEIGHTS);
    assert_int_equal(refusal(pull_one(f, 1, LOSS)), ERR_TOO_EARLY);
    assert_true(work(f)); /* TIED */
    assert_int_equal(f->effects.count, 1);
    assert_int_equal(f->effects.items[0].sender, BOB);
    assert_int_equal(f->effects.items[0].weights.header.id, bobs);
    assert_int_equal(f->effects.items[0].weights.header.chunks[0], TIED);
    assert_int_equal(f->effects.items[0].weights.copies[0]->bytes, N_TIED * 4);
    assert_int_equal(f->effects.items[0].weights.copies[1]->bytes, N_FIRST * 4);
    uint64_t pulled = shard_statistics(f->shard).pulled_bytes;
    shard_unsent(f->shard, N_FIRST * 4);
    assert_int_equal(shard_statistics(f->shard).pulled_bytes, pulled - N_FIRST * 4);
    work_until_committed(f, 0);
    assert_int_equal(shard_statistics(f->shard).parked, 1);
    shard_cancel(f->shard, ALICE);
    assert_int_equal(shard_statistics(f->shard).parked, 0);
    do_step(f, 1);
}

TEST_F(who_has_all_weights_may_push_at_once, shard)
{
    const uint32_t weights[] = {FIRST, TIED, MEAN};
    assert_int_equal(refusal(pull_some(f, ALICE, 1, weights, 3)), ERR_TOO_EARLY);
    push_step(f, 0);
    struct commit c = decision(0);
    assert_int_equal(commit(f, &c), ERR_OK);
    for (bool answered = false; !answered; answered = effect(f, SHARD_WEIGHTS) != NULL) {
        assert_int_equal(push_all(f, 1, (struct node){0, 0}), ERR_TOO_EARLY);
        assert_true(work(f));
    }
    assert_null(effect(f, SHARD_COMMITTED));
    push_step(f, 1);
    assert_non_null(effect(f, SHARD_REDUCED));
    c = decision(1);
    assert_int_equal(commit(f, &c), ERR_TOO_EARLY); /* committed(0) is not said yet */
    work_until_committed(f, 0);
    carry_out(f, c);
}

TEST_F(many_parked_pulls_are_answered_piece_by_piece, shard, .later = true)
{
    f->config.parked_member_bytes_max = 100000;
    start(f);
    enum { PULLS = 3 * SHARD_EFFECTS_MAX };
    const uint32_t first = FIRST;
    for (uint32_t i = 0; i < PULLS; i++)
        assert_int_equal(refusal(pull_some(f, ALICE, 1, &first, 1)), ERR_TOO_EARLY);
    uint64_t expected = f->id - PULLS + 1;
    push_step(f, 0);
    begin(f, decision(0));
    bool committed = false;
    while (!committed) {
        work(f);
        for (uint32_t i = 0; i < f->effects.count; i++) {
            if (f->effects.items[i].kind == SHARD_WEIGHTS)
                assert_int_equal(f->effects.items[i].weights.header.id, expected++);
            else
                committed = true;
        }
    }
    assert_int_equal(expected, f->id - 4 + 1); /* four pushes took ids since */
}

/* The last chunk's pulls are answered by the call that says the commit is carried out, if there is room. */
TEST_F(parked_pulls_that_fill_the_effects_leave_room_for_what_follows, shard, .later = true)
{
    f->config.parked_member_bytes_max = 100000;
    start(f);
    const uint32_t weights[] = {FIRST, TIED, MEAN};
    for (uint32_t pulls = SHARD_EFFECTS_MAX - 4; pulls <= 2 * SHARD_EFFECTS_MAX + 1; pulls++) {
        uint64_t step = shard_version(f->shard);
        uint32_t answered = 0;
        for (uint32_t i = 0; i < pulls; i++)
            assert_int_equal(refusal(pull_some(f, ALICE, step + 1, weights, 3)), ERR_TOO_EARLY);
        push_step(f, step);
        begin(f, decision(step));
        for (bool committed = false; !committed;) {
            work(f);
            for (uint32_t i = 0; i < f->effects.count; i++) {
                answered += f->effects.items[i].kind == SHARD_WEIGHTS;
                committed |= f->effects.items[i].kind == SHARD_COMMITTED;
            }
        }
        assert_int_equal(answered, pulls);
    }
}

/* It would be parked for ever, and take the place of others. */
TEST_F(a_version_far_beyond_the_newest_is_refused, shard)
{
    const uint32_t first = FIRST;
    assert_int_equal(refusal(pull_some(f, ALICE, 16, &first, 1)), ERR_TOO_EARLY);
    assert_int_equal(refusal(pull_some(f, ALICE, 17, &first, 1)), ERR_MALFORMED);
    assert_int_equal(refusal(pull_some(f, ALICE, UINT64_MAX, &first, 1)), ERR_MALFORMED);
}

TEST_F(a_members_parked_pulls_are_bounded_and_take_nobody_elses_room, shard)
{
    const uint32_t first = FIRST;
    uint32_t parked = 0;
    while (parked < 1000 && refusal(pull_some(f, ALICE, 1, &first, 1)) == ERR_TOO_EARLY)
        parked++;
    assert_int_equal(refusal(pull_some(f, ALICE, 1, &first, 1)), ERR_BUSY);
    assert_int_equal(refusal(pull_some(f, ALICE + 1, 1, &first, 1)),
                     ERR_BUSY); /* its other stream */
    assert_true(parked > 5 && parked < 1000 / 4);
    for (uint32_t i = 0; i < parked; i++)
        assert_int_equal(refusal(pull_some(f, BOB, 1, &first, 1)), ERR_TOO_EARLY);
    assert_int_equal(refusal(pull_some(f, BOB, 1, &first, 1)), ERR_BUSY);
    shard_cancel(f->shard, ALICE);
    assert_int_equal(refusal(pull_some(f, ALICE + 1, 1, &first, 1)), ERR_TOO_EARLY);
}

TEST_F(the_parked_pulls_of_a_member_that_has_ended_are_refused, shard, .later = true)
{
    f->config.parked_member_bytes_max = 100000;
    start(f);
    enum { PULLS = SHARD_EFFECTS_MAX + 1 };
    const uint32_t first = FIRST;
    uint32_t refused = 0;
    assert_int_equal(refusal(pull_some(f, BOB, 1, &first, 1)), ERR_TOO_EARLY);
    for (uint32_t i = 0; i < PULLS; i++) /* some wait for a later commit */
        assert_int_equal(refusal(pull_some(f, ALICE, 1 + i % 2, &first, 1)), ERR_TOO_EARLY);
    for (bool all = false; !all;) {
        clear(f);
        all = shard_end_member(f->shard, ALICE / 100, &f->effects);
        refused += f->effects.count;
        for (uint32_t i = 0; i < f->effects.count; i++) {
            assert_int_equal(f->effects.items[i].sender, ALICE);
            assert_int_equal(refusal(&f->effects.items[i]), ERR_UNKNOWN_MEMBER);
        }
    }
    assert_int_equal(refused, PULLS);
    assert_int_equal(shard_statistics(f->shard).parked, 1);
    clear(f);
    assert_true(shard_end_member(f->shard, ALICE / 100, &f->effects));
    assert_int_equal(f->effects.count, 0);
}

TEST_F(closing_tells_who_waits, shard)
{
    const uint32_t first = FIRST;
    assert_int_equal(refusal(pull_some(f, BOB, 1, &first, 1)), ERR_TOO_EARLY);
    clear(f);
    assert_true(shard_close(f->shard, &f->effects));
    assert_int_equal(f->effects.count, 1);
    assert_int_equal(f->effects.items[0].sender, BOB);
    assert_int_equal(refusal(&f->effects.items[0]), ERR_OLD_GENERATION);
}
