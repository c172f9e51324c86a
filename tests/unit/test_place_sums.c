/* Partial sums between the members of a place (S6): what one keeps and gives, and what the other
 * asks for. Stage 1 has two members: 2 is rank 0, 3 is rank 1. */
#include "tests/unit/mesh_fixture.h"

#include "worker/outbox.h"
#include "worker/wants.h"

enum { TRY = 2 };

struct place_fixture {
    struct mesh_fixture mesh;
    struct outbox *outbox; /* of rank 0 */
    struct outbox_asker *asker;
    struct outbox_answer answer;
    struct wants *wants; /* of rank 1 */
};

static const struct digest shown = {{1, 2, 3}};

static struct place seat(uint32_t rank, uint32_t number)
{
    return (struct place){
        .stage = 1, .stages = STAGES, .rank = rank, .ranks = 2, .try_number = number};
}

static void hears(struct place_fixture *f, uint32_t number)
{
    for (int i = 1; i <= 2; i++)
        f->mesh.peers[i].try_number = number;
    f->mesh.places.number++;
    outbox_places(f->outbox, &f->mesh.places);
}

static void release(void *value)
{
    (void)value;
}

static void place_set_up(struct place_fixture *f)
{
    const struct place own = seat(0, TRY), other = seat(1, TRY);
    mesh_set_up(&f->mesh);
    for (uint32_t i = 0; i < STAGES; i++) {
        memcpy(f->mesh.peers[i].certificate, shown.bytes, sizeof shown.bytes);
        f->mesh.peers[i].try_number = TRY;
    }
    f->mesh.peers[2].stage = 1;
    f->mesh.peers[2].rank = 1;
    const struct outbox_options outbox = {&f->mesh.boundaries, false};
    assert_int_equal(outbox_new(&outbox, &f->outbox), ERR_OK);
    assert_int_equal(outbox_lease(f->outbox, &f->mesh.ticket, &own, &f->mesh.places), ERR_OK);
    f->asker = outbox_asker_new(f->outbox, 3, &shown);
    assert_non_null(f->asker);
    const struct wants_options wants = {&f->mesh.boundaries, 1000, 1, release};
    assert_int_equal(wants_new(&wants, &f->wants), ERR_OK);
    wants_lease(f->wants, &f->mesh.ticket, &other, &f->mesh.places);
}

static void place_tear_down(struct place_fixture *f)
{
    counted_unref(f->answer.value);
    outbox_asker_free(f->asker);
    outbox_free(f->outbox);
    wants_free(f->wants);
    mesh_tear_down(&f->mesh);
}

static struct value_name name_of(const struct place_fixture *f, uint32_t number, uint32_t sequence)
{
    const struct place place = seat(0, number);
    const struct executor_part part = {.sequence = sequence, .round = 1, .rank = 0};
    return boundaries_sum_name(&f->mesh.ticket, &place, &part);
}

static enum err give(struct place_fixture *f, uint32_t number, uint32_t sequence, uint8_t byte)
{
    const struct value_name name = name_of(f, number, sequence);
    struct counted *value = counted_new(8);
    memset(value->data, byte, 8);
    return outbox_give(f->outbox, ATTEMPT, &name, value, 1000 + byte);
}

static void ask_name(struct place_fixture *f, const struct value_name *name)
{
    const struct want want = {1, *name};
    assert_int_equal(outbox_want(f->asker, &want), ERR_OK);
}

static void ask(struct place_fixture *f, uint32_t number, uint32_t sequence)
{
    const struct value_name name = name_of(f, number, sequence);
    ask_name(f, &name);
}

static void answers(struct place_fixture *f, enum from_peer_kind kind)
{
    counted_unref(f->answer.value);
    f->answer.value = NULL;
    assert_true(outbox_next(f->asker, &f->answer));
    assert_int_equal(f->answer.message.kind, kind);
}

TEST_F(s6_a_sum_of_another_round_is_another, place)
{
    struct value_name next = name_of(f, TRY, 1);
    next.round++;
    assert_int_equal(give(f, TRY, 1, 7), ERR_OK);
    ask_name(f, &next);
    answers(f, FROM_PEER_PARKED);
}

TEST_F(s6_a_partial_sum_is_parked_and_then_given_as_often_as_it_is_asked_for, place)
{
    ask(f, TRY, 1);
    answers(f, FROM_PEER_PARKED);
    assert_int_equal(give(f, TRY, 1, 7), ERR_OK);
    answers(f, FROM_PEER_HAVE);
    ask(f, TRY, 1);
    answers(f, FROM_PEER_HAVE);
    assert_int_equal(f->answer.value->data[7], 7);
    assert_int_equal(give(f, TRY, 1, 7), ERR_OK);
    assert_int_equal(give(f, TRY, 1, 8), ERR_WRONG_BITS);
}

/* The names of the second member's next question. */
static struct value_name asked(struct place_fixture *f, uint32_t sequence)
{
    struct wants_effect effect;
    while (wants_next(f->wants, 0, &effect) && effect.kind == WANTS_OPEN)
        ;
    assert_int_equal(effect.kind, WANTS_ASK);
    assert_int_equal(effect.want.name.sequence, sequence);
    return effect.want.name;
}

TEST_F(sums_that_will_be_taken_are_asked_for_with_the_first_that_is_waited_for, place)
{
    const struct value_name first = name_of(f, TRY, 1), second = name_of(f, TRY, 2);
    struct wants_effect effect;
    wants_expect(f->wants, &first, 8);
    wants_expect(f->wants, &second, 8);
    wants_expect(f->wants, &second, 8); /* once is enough */
    assert_int_equal(wants_begin(f->wants, 0, &first, 8), ERR_OK);
    asked(f, 1);
    asked(f, 2);
    assert_false(wants_next(f->wants, 0, &effect));
}

TEST_F(more_than_one_largest_value_is_not_asked_for_ahead, place)
{
    const struct value_name first = name_of(f, TRY, 1), second = name_of(f, TRY, 2);
    struct wants_effect effect;
    wants_expect(f->wants, &first, WIRE_VALUE_BYTES_MAX);
    wants_expect(f->wants, &second, 1);
    assert_int_equal(wants_begin(f->wants, 0, &first, WIRE_VALUE_BYTES_MAX), ERR_OK);
    asked(f, 1);
    assert_false(wants_next(f->wants, 0, &effect));
}

TEST_F(s6_a_question_of_an_older_try_is_refused_one_of_a_newer_waits, place)
{
    assert_int_equal(give(f, TRY, 1, 7), ERR_OK);
    ask(f, TRY - 1, 1);
    answers(f, FROM_PEER_GONE);
    ask(f, TRY + 1, 1);
    answers(f, FROM_PEER_PARKED);
    hears(f, TRY + 1);
    assert_false(outbox_next(f->asker, &f->answer)); /* the sum of the older try is not it */
    assert_int_equal(give(f, TRY + 1, 1, 9), ERR_OK);
    answers(f, FROM_PEER_HAVE);
    assert_int_equal(f->answer.value->data[0], 9);
}

TEST_F(s6_sums_of_an_older_try_are_not_kept, place)
{
    assert_int_equal(give(f, TRY, 1, 7), ERR_OK);
    hears(f, TRY + 1);
    assert_int_equal(outbox_bytes(f->outbox), 0);
    assert_int_equal(give(f, TRY, 2, 7), ERR_OK); /* the lane has not heard yet */
    assert_int_equal(outbox_bytes(f->outbox), 0);
}

TEST_F(s6_the_newest_sum_and_the_one_before_are_kept, place)
{
    for (uint32_t sequence = 1; sequence <= 5; sequence++)
        assert_int_equal(give(f, TRY, sequence, (uint8_t)sequence), ERR_OK);
    assert_int_equal(outbox_bytes(f->outbox), 2 * 8);
    ask(f, TRY, 4);
    answers(f, FROM_PEER_HAVE);
    ask(f, TRY, 3);
    answers(f, FROM_PEER_GONE);
}

/* Those that come are not behind those of before. */
TEST_F(s6_of_a_lease_that_is_granted_again_no_sums_are_kept, place)
{
    const struct place own = seat(0, TRY);
    for (uint32_t sequence = 1; sequence <= 5; sequence++)
        assert_int_equal(give(f, TRY, sequence, (uint8_t)sequence), ERR_OK);
    assert_int_equal(outbox_lease(f->outbox, &f->mesh.ticket, &own, &f->mesh.places), ERR_OK);
    assert_int_equal(outbox_bytes(f->outbox), 0);
    for (uint32_t sequence = 1; sequence <= 4; sequence++)
        assert_int_equal(give(f, TRY, sequence, (uint8_t)sequence), ERR_OK);
    assert_int_equal(outbox_bytes(f->outbox), 2 * 8);
}

TEST_F(s6_only_the_other_members_of_the_place_are_given_sums, place)
{
    assert_int_equal(give(f, TRY, 1, 7), ERR_OK);
    struct value_name name = name_of(f, TRY, 1);
    name.rank = 1; /* the asker's own */
    ask_name(f, &name);
    answers(f, FROM_PEER_GONE);
    name.rank = 2; /* nobody's */
    ask_name(f, &name);
    answers(f, FROM_PEER_GONE);
    f->mesh.peers[2].stage = 2;
    hears(f, TRY);
    ask(f, TRY, 1);
    answers(f, FROM_PEER_GONE);
}

TEST_F(s3_sums_go_with_their_lease, place)
{
    assert_int_equal(give(f, TRY, 1, 7), ERR_OK);
    outbox_keep(f->outbox, NULL, 0);
    assert_int_equal(outbox_bytes(f->outbox), 0);
}

/* ---- who asks ---- */

TEST_F(s6_a_sum_is_asked_of_the_member_that_gives_it, place)
{
    const struct value_name name = name_of(f, TRY, 1);
    struct wants_effect effect;
    assert_int_equal(wants_begin(f->wants, 5000, &name, 8), ERR_OK);
    assert_true(wants_next(f->wants, 5000, &effect));
    assert_int_equal(effect.kind, WANTS_OPEN);
    assert_int_equal(effect.peer->member, 2);
    assert_true(wants_next(f->wants, 5000, &effect));
    assert_int_equal(effect.kind, WANTS_ASK);
    assert_true(boundaries_same(&effect.want.name, &name));
    assert_false(wants_next(f->wants, 5000, &effect)); /* nothing is asked ahead */
}

/* Asks for the first sum, and is told that it has so many bytes. */
static void brings(struct place_fixture *f, const struct value_name *name, uint64_t now_ms,
                   size_t bytes)
{
    struct wants_effect effect = {0};
    while (wants_next(f->wants, now_ms, &effect))
        ;
    assert_int_equal(effect.kind, WANTS_ASK);
    assert_true(boundaries_same(&effect.want.name, name));
    const struct from_peer have = {
        .kind = FROM_PEER_HAVE, .have = {effect.want.id, 5}, .payload_bytes = bytes};
    ignore(wants_have(f->wants, now_ms, effect.number, &have, f)); /* the core releases it */
}

TEST_F(s6_a_sum_of_another_size_or_digest_fails_the_second_time, place)
{
    const struct value_name name = name_of(f, TRY, 1);
    struct wants_value value;
    uint64_t member = 0;
    assert_int_equal(wants_begin(f->wants, 5000, &name, 8), ERR_OK);
    brings(f, &name, 5000, 7);
    assert_int_equal(wants_look(f->wants, &name, &value, &member), ERR_BEHIND);
    brings(f, &name, 5000, 9);
    assert_int_equal(wants_look(f->wants, &name, &value, &member), ERR_MALFORMED);
    assert_int_equal(member, 2);
    assert_int_equal(wants_begin(f->wants, 5000, &name, 8), ERR_OK);
    brings(f, &name, 5000, 8);
    assert_int_equal(wants_judge(f->wants, &name, false), ERR_BEHIND);
    brings(f, &name, 5000, 8);
    assert_int_equal(wants_judge(f->wants, &name, false), ERR_BEHIND);
    assert_int_equal(wants_look(f->wants, &name, &value, &member), ERR_WRONG_BITS);
}

/* It answers, but never that it has to wait for the sum. */
TEST_F(s6_who_only_ever_refuses_a_sum_fails_the_place, place)
{
    const struct value_name name = name_of(f, TRY, 1);
    struct wants_value value;
    struct wants_effect effect;
    uint64_t member = 0;
    enum err err = ERR_BEHIND;
    assert_int_equal(wants_begin(f->wants, 5000, &name, 8), ERR_OK);
    for (uint64_t now_ms = 5000; err == ERR_BEHIND && now_ms < 7000; now_ms += 10) {
        while (wants_next(f->wants, now_ms, &effect))
            if (effect.kind == WANTS_ASK)
                wants_gone(f->wants, now_ms, effect.number, effect.want.id, ERR_NOT_FOUND);
        err = wants_look(f->wants, &name, &value, &member);
    }
    assert_int_equal(err, ERR_NOT_FOUND);
    assert_int_equal(member, 2);
}

TEST_F(s6_sums_of_another_try_and_the_own_ones_are_not_asked_for, place)
{
    struct value_name names[] = {name_of(f, TRY - 1, 1), name_of(f, TRY + 1, 1),
                                 name_of(f, TRY, 1)};
    names[2].rank = 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(wants_begin(f->wants, 5000, &names[i], 8), ERR_NOT_FOUND);
}

TEST_F(streams_to_the_members_of_the_place_are_opened_ahead, place)
{
    struct wants_effect effect;
    assert_true(wants_next_stream(f->wants, 5000, &effect));
    assert_int_equal(effect.peer->member, 2);
    assert_false(wants_next_stream(f->wants, 5000, &effect)); /* the others' rank 1 is not there */
}

TEST_F(values_between_places_come_from_the_member_of_the_same_rank, place)
{
    struct value_name name = mesh_name(&f->mesh, 1, 0);
    struct wants_effect effect;
    assert_int_equal(wants_begin(f->wants, 5000, &name, 8), ERR_NOT_FOUND); /* rank 0's */
    name.rank = 1;
    assert_int_equal(wants_begin(f->wants, 5000, &name, 8), ERR_OK);
    assert_false(wants_next(f->wants, 5000, &effect)); /* stage 0 has rank 0 alone so far */
    f->mesh.peers[3] = (struct peer){.stage = 0, .rank = 1, .member = 9};
    f->mesh.places.number++;
    wants_places(f->wants, 5000, &f->mesh.places);
    assert_true(wants_next(f->wants, 5000, &effect));
    assert_int_equal(effect.peer->member, 9);
}
