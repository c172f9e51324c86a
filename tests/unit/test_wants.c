/* What a place asks for, of whom, and when it names somebody: rules S2, S7, S8 at the side that
 * asks. The place is stage 2: activations come from member 2, gradients from member 4. */
#include "tests/unit/mesh_fixture.h"

#include "worker/wants.h"

enum { ANSWER_MS = 1000, PAUSE_MS = 10000 /* longer than any backoff */ };

struct wants_fixture {
    struct mesh_fixture mesh;
    uint64_t now_ms;
    struct wants *wants;
    struct wants_effect effect;
    struct peer peer; /* the effect's */
    unsigned released;
};

static unsigned released_count;

static void released(void *value)
{
    (void)value;
    released_count++;
}

static void wants_set_up(struct wants_fixture *f)
{
    const struct place place = mesh_place(2);
    mesh_set_up(&f->mesh);
    const struct wants_options options = {&f->mesh.boundaries, ANSWER_MS, 1, released};
    assert_int_equal(wants_new(&options, &f->wants), ERR_OK);
    wants_lease(f->wants, &f->mesh.ticket, &place, &f->mesh.places);
    f->now_ms = 100000;
    released_count = 0;
}

static void wants_tear_down(struct wants_fixture *f)
{
    wants_check(f->wants);
    wants_free(f->wants);
    mesh_tear_down(&f->mesh);
}

static struct value_name name_at(const struct wants_fixture *f, uint32_t microbatch)
{
    return mesh_name(&f->mesh, 2, microbatch);
}

static void begin(struct wants_fixture *f, uint32_t microbatch)
{
    const struct value_name name = name_at(f, microbatch);
    assert_int_equal(wants_begin(f->wants, f->now_ms, &name, 8), ERR_OK);
}

static enum err look(struct wants_fixture *f, uint32_t microbatch)
{
    const struct value_name name = name_at(f, microbatch);
    struct wants_value value;
    uint64_t member;
    return wants_look(f->wants, &name, &value, &member);
}

/* The next effect is of that kind and about that member. */
static void expect(struct wants_fixture *f, enum wants_effect_kind kind, uint64_t member)
{
    assert_true(wants_next(f->wants, f->now_ms, &f->effect));
    assert_int_equal(f->effect.kind, kind);
    f->peer = *f->effect.peer;
    assert_int_equal(f->peer.member, member);
}

static void expect_nothing(struct wants_fixture *f)
{
    assert_false(wants_next(f->wants, f->now_ms, &f->effect));
    assert_true(wants_wake_ms(f->wants) > f->now_ms);
}

/* Carries out what is to be done; what was asked last is in f->effect. */
static void carry_out_all(struct wants_fixture *f)
{
    struct wants_effect effect;
    while (wants_next(f->wants, f->now_ms, &effect))
        f->effect = effect;
}

/* The first value, asked of member 2; the effect is the question. */
static void begin_first(struct wants_fixture *f)
{
    begin(f, 0);
    expect(f, WANTS_OPEN, 2);
    expect(f, WANTS_ASK, 2);
    struct wants_effect first = f->effect;
    const struct value_name name = name_at(f, 0);
    assert_true(boundaries_same(&first.want.name, &name));
    carry_out_all(f);
    f->effect = first;
}

static bool have(struct wants_fixture *f, const struct wants_effect *of, size_t bytes,
                 uint64_t digest)
{
    const struct from_peer message = {
        .kind = FROM_PEER_HAVE, .have = {of->want.id, digest}, .payload_bytes = bytes};
    return wants_have(f->wants, f->now_ms, of->number, &message, f);
}

static void parked(struct wants_fixture *f, const struct wants_effect *of)
{
    wants_parked(f->wants, f->now_ms, of->number, of->want.id);
}

static enum err judge(struct wants_fixture *f, uint32_t microbatch, bool right)
{
    const struct value_name name = name_at(f, microbatch);
    return wants_judge(f->wants, &name, right);
}

TEST_F(a_value_is_asked_for_and_taken, wants)
{
    begin_first(f);
    assert_int_equal(look(f, 0), ERR_BEHIND);
    assert_true(have(f, &f->effect, 8, 5));
    assert_int_equal(look(f, 0), ERR_OK);
    assert_int_equal(judge(f, 0, true), ERR_OK);
    assert_int_equal(released_count, 1);
    assert_false(have(f, &f->effect, 8, 5)); /* once more: nobody wants it */
}

TEST_F(values_that_follow_are_asked_for_ahead, wants)
{
    unsigned asked = 0;
    begin(f, 0);
    expect(f, WANTS_OPEN, 2);
    while (wants_next(f->wants, f->now_ms, &f->effect)) {
        assert_int_equal(f->effect.kind, WANTS_ASK);
        assert_true(have(f, &f->effect, 8, 5));
        asked++;
    }
    assert_int_equal(asked, 1 + WANTS_AHEAD);
    assert_int_equal(look(f, 0), ERR_OK);
    assert_int_equal(judge(f, 0, true), ERR_OK);
    begin(f, 1);
    assert_int_equal(look(f, 1), ERR_OK); /* there already */
}

/* Gradients come from member 4, and nothing from the stages beside its neighbours. */
TEST_F(what_the_place_waits_for_is_asked_for_first, wants)
{
    begin(f, 0);
    begin(f, 1);
    expect(f, WANTS_OPEN, 2);
    expect(f, WANTS_ASK, 2);
    const struct value_name awaited = name_at(f, 1);
    assert_true(boundaries_same(&f->effect.want.name, &awaited));
}

TEST_F(streams_that_will_be_needed_are_opened_ahead, wants)
{
    begin_first(f);
    assert_true(wants_next_stream(f->wants, f->now_ms, &f->effect));
    assert_int_equal(f->effect.kind, WANTS_OPEN);
    assert_int_equal(f->effect.peer->member, 4);
    wants_lost(f->wants, f->now_ms, f->effect.number);
    assert_false(wants_next_stream(f->wants, f->now_ms, &f->effect)); /* who waits opens it again */
    f->mesh.places.number++;
    f->mesh.peers[3].member = 40;
    wants_places(f->wants, f->now_ms, &f->mesh.places);
    assert_true(wants_next_stream(f->wants, f->now_ms, &f->effect));
    assert_int_equal(f->effect.peer->member, 40);
    assert_false(wants_next_stream(f->wants, f->now_ms, &f->effect));
}

TEST_F(a_place_asks_for_nothing_that_is_not_its_own, wants)
{
    const struct value_name above = mesh_name(&f->mesh, 3, 0);
    assert_int_equal(wants_begin(f->wants, f->now_ms, &above, 8), ERR_NOT_FOUND);
    expect_nothing(f);
}

TEST_F(a_want_is_asked_again_over_the_next_stream, wants)
{
    begin_first(f);
    uint64_t before = f->effect.number;
    parked(f, &f->effect);
    wants_lost(f->wants, f->now_ms, before);
    assert_false(wants_uses(f->wants, before));
    expect_nothing(f); /* not at once */
    f->now_ms = wants_wake_ms(f->wants);
    expect(f, WANTS_OPEN, 2);
    assert_true(f->effect.number > before);
    expect(f, WANTS_ASK, 2);
    assert_true(have(f, &f->effect, 8, 5));
}

TEST_F(a_stream_has_no_more_wants_without_an_answer_than_credits, wants)
{
    unsigned asked = 0;
    struct wants_effect old[4];
    for (uint32_t slot = 0; slot < 2; slot++)
        for (uint32_t microbatch = 0; microbatch < 2; microbatch++) {
            struct value_name name = name_at(f, microbatch);
            name.slot += slot;
            assert_int_equal(wants_begin(f->wants, f->now_ms, &name, 8), ERR_OK);
        }
    while (wants_next(f->wants, f->now_ms, &f->effect))
        if (f->effect.kind == WANTS_ASK)
            old[asked++] = f->effect;
    assert_int_equal(asked, 4);
    /* another lease, of which nothing is known there: the old wants hold their credits */
    const struct place place = mesh_place(2);
    f->mesh.ticket.node.level = 2; /* twice as many */
    f->mesh.ticket.node.index = 0;
    wants_lease(f->wants, &f->mesh.ticket, &place, &f->mesh.places);
    for (uint32_t slot = 0; slot < 4; slot++)
        for (uint32_t microbatch = 0; microbatch < 2; microbatch++) {
            struct value_name name = name_at(f, microbatch);
            name.slot = slot;
            assert_int_equal(wants_begin(f->wants, f->now_ms, &name, 8), ERR_OK);
        }
    asked = 0;
    while (wants_next(f->wants, f->now_ms, &f->effect))
        asked += f->effect.kind == WANTS_ASK;
    assert_int_equal(asked, WIRE_CREDITS - 4);
    for (int i = 0; i < 4; i++)
        parked(f, &old[i]); /* what they held is free */
    while (wants_next(f->wants, f->now_ms, &f->effect))
        asked += f->effect.kind == WANTS_ASK;
    assert_int_equal(asked, 8);
}

TEST_F(s2_a_refused_want_is_asked_again, wants)
{
    begin_first(f);
    for (int i = 0; i < 3; i++) {
        wants_gone(f->wants, f->now_ms, f->effect.number, f->effect.want.id, ERR_NO_GRANT);
        assert_int_equal(look(f, 0), ERR_BEHIND);
        expect_nothing(f);
        f->now_ms = wants_wake_ms(f->wants);
        if (f->now_ms >= 100000 + ANSWER_MS)
            break;
        expect(f, WANTS_ASK, 2);
    }
    assert_true(have(f, &f->effect, 8, 5));
}

TEST_F(s2_who_only_ever_refuses_is_named, wants)
{
    begin_first(f);
    uint64_t end_ms = f->now_ms + ANSWER_MS;
    while (f->now_ms < end_ms) {
        wants_gone(f->wants, f->now_ms, f->effect.number, f->effect.want.id, ERR_NO_GRANT);
        f->now_ms = wants_wake_ms(f->wants);
        assert_true(f->now_ms <= end_ms);
        if (f->now_ms < end_ms)
            expect(f, WANTS_ASK, 2);
    }
    expect(f, WANTS_UNREACHABLE, 2);
}

TEST_F(a_name_that_the_peer_does_not_know_fails, wants)
{
    begin_first(f);
    wants_gone(f->wants, f->now_ms, f->effect.number, f->effect.want.id, ERR_NOT_FOUND);
    assert_int_equal(look(f, 0), ERR_BEHIND); /* it may not have heard of this lease's order */
    f->now_ms += ANSWER_MS;
    carry_out_all(f);
    assert_int_equal(look(f, 0), ERR_NOT_FOUND);
}

TEST_F(s7_the_deadline_is_for_an_answer_not_for_the_value, wants)
{
    begin_first(f);
    for (int i = 0; i < 100; i++) {
        parked(f, &f->effect);
        expect_nothing(f);
        f->now_ms = wants_wake_ms(f->wants);
        expect(f, WANTS_ASK, 2); /* is it still there? */
    }
    assert_true(f->now_ms > 100000 + 10 * ANSWER_MS);
    struct wants_effect asked = f->effect;
    f->now_ms = wants_wake_ms(f->wants); /* it does not answer */
    expect(f, WANTS_UNREACHABLE, 2);
    assert_int_equal(f->effect.attempt, ATTEMPT);
    assert_int_equal(look(f, 0), ERR_BEHIND);
    f->now_ms += ANSWER_MS / WANTS_RENEWS - 1;
    expect_nothing(f);
    f->now_ms++;
    expect(f, WANTS_UNREACHABLE, 2); /* and again, until it is heard */
    parked(f, &asked);
    f->now_ms += ANSWER_MS / WANTS_RENEWS;
    expect(f, WANTS_ASK, 2);
    expect_nothing(f);
}

/* Its value may lie behind that of another want on the stream. */
TEST_F(s7_a_want_is_not_asked_for_again_while_parts_of_another_value_come, wants)
{
    begin_first(f);
    parked(f, &f->effect);
    for (int i = 0; i < 10; i++) {
        f->now_ms += ANSWER_MS / WANTS_RENEWS - 1;
        wants_part(f->wants, f->now_ms, f->effect.number);
        expect_nothing(f);
    }
    f->now_ms += ANSWER_MS / WANTS_RENEWS;
    expect(f, WANTS_ASK, 2);
}

TEST_F(s7_a_peer_that_cannot_be_reached_is_named, wants)
{
    uint64_t end_ms = f->now_ms + ANSWER_MS;
    begin(f, 0);
    for (;;) {
        assert_true(wants_next(f->wants, f->now_ms, &f->effect));
        if (f->effect.kind == WANTS_UNREACHABLE)
            break;
        assert_int_equal(f->effect.kind, WANTS_OPEN);
        wants_lost(f->wants, f->now_ms, f->effect.number);
        assert_true(wants_wake_ms(f->wants) > f->now_ms);
        f->now_ms = wants_wake_ms(f->wants);
    }
    assert_int_equal(f->now_ms, end_ms);
}

TEST_F(s7_who_answers_in_another_lane_is_not_named, wants)
{
    begin_first(f);
    f->now_ms += ANSWER_MS - 1;
    wants_heard(f->wants, f->now_ms, 2);
    f->now_ms += ANSWER_MS - 1;
    expect_nothing(f);
    f->now_ms++;
    expect(f, WANTS_UNREACHABLE, 2);
}

TEST_F(s7_time_that_the_place_does_not_wait_does_not_count, wants)
{
    begin_first(f);
    parked(f, &f->effect);
    f->now_ms += PAUSE_MS; /* it computed something else */
    begin(f, 0);
    expect(f, WANTS_ASK, 2);
    expect_nothing(f);
}

TEST_F(s7_a_place_without_a_member_is_waited_for_without_a_deadline, wants)
{
    begin_first(f);
    f->mesh.places.number++;
    f->mesh.places.peer_count = 1; /* stage 0 alone */
    wants_places(f->wants, f->now_ms, &f->mesh.places);
    assert_int_equal(wants_wake_ms(f->wants), UINT64_MAX);
    f->now_ms += PAUSE_MS;
    assert_false(wants_next(f->wants, f->now_ms, &f->effect));
    f->mesh.places.number++;
    f->mesh.places.peer_count = STAGES;
    f->mesh.peers[1].member = 20;
    wants_places(f->wants, f->now_ms, &f->mesh.places);
    expect(f, WANTS_OPEN, 20);
    expect(f, WANTS_ASK, 20);
}

TEST_F(s7_the_newest_places_tell_who_is_asked, wants)
{
    begin_first(f);
    uint64_t before = f->effect.number;
    f->mesh.peers[1].member = 20;
    wants_places(f->wants, f->now_ms, &f->mesh.places); /* not newer */
    expect_nothing(f);
    f->mesh.places.number++;
    wants_places(f->wants, f->now_ms, &f->mesh.places);
    assert_false(wants_uses(f->wants, before));
    assert_false(have(f, &f->effect, 8, 5)); /* of a stream that is none any more */
    expect(f, WANTS_OPEN, 20);
    expect(f, WANTS_ASK, 20);
    assert_true(have(f, &f->effect, 8, 5));
}

TEST_F(s7_a_member_with_another_address_is_asked_there, wants)
{
    begin_first(f);
    f->mesh.places.number++;
    snprintf(f->mesh.peers[1].address, sizeof f->mesh.peers[1].address, "elsewhere:7");
    wants_places(f->wants, f->now_ms, &f->mesh.places);
    expect(f, WANTS_OPEN, 2);
    assert_string_equal(f->peer.address, "elsewhere:7");
}

/* Its peers know it by the number that it said when the stream began. */
TEST_F(s8_who_has_joined_anew_asks_over_new_streams, wants)
{
    const struct place place = mesh_place(2);
    begin_first(f);
    uint64_t before = f->effect.number;
    wants_lease(f->wants, &f->mesh.ticket, &place, &f->mesh.places);
    assert_true(wants_uses(f->wants, before));
    f->mesh.ticket.member++;
    wants_lease(f->wants, &f->mesh.ticket, &place, &f->mesh.places);
    assert_false(wants_uses(f->wants, before));
    begin(f, 0);
    expect(f, WANTS_OPEN, 2);
    expect(f, WANTS_ASK, 2);
    assert_true(have(f, &f->effect, 8, 5));
}

TEST_F(s7_members_that_change_places_are_asked_by_their_new_ones, wants)
{
    begin_first(f);
    f->mesh.places.number++;
    f->mesh.peers[1].stage = 3;
    f->mesh.peers[3].stage = 1;
    wants_places(f->wants, f->now_ms, &f->mesh.places);
    expect(f, WANTS_OPEN, 4);
    expect(f, WANTS_ASK, 4);
    assert_true(have(f, &f->effect, 8, 5));
}

TEST_F(s7_what_is_asked_of_another_holds_no_credit, wants)
{
    begin_first(f);
    for (uint32_t times = 0; times < 2 * WIRE_CREDITS; times++) {
        bool changed = times % 2 == 0;
        unsigned asked = 0;
        f->mesh.places.number++;
        f->mesh.peers[1].stage = changed ? 3 : 1;
        f->mesh.peers[3].stage = changed ? 1 : 3;
        wants_places(f->wants, f->now_ms, &f->mesh.places);
        while (wants_next(f->wants, f->now_ms, &f->effect))
            asked += f->effect.kind == WANTS_ASK;
        assert_int_equal(asked, 1 + WANTS_AHEAD);
    }
}

TEST_F(s8_a_peer_of_a_newer_generation_ends_the_wait, wants)
{
    begin_first(f);
    wants_gone(f->wants, f->now_ms, f->effect.number, f->effect.want.id, ERR_OLD_GENERATION);
    assert_int_equal(look(f, 0), ERR_OLD_GENERATION);
}

TEST_F(a_new_lease_wants_nothing_of_the_one_before, wants)
{
    const struct place place = mesh_place(2);
    begin_first(f);
    struct wants_effect old = f->effect;
    f->mesh.ticket.attempt++;
    f->mesh.places.attempt++;
    wants_lease(f->wants, &f->mesh.ticket, &place, &f->mesh.places);
    assert_true(wants_uses(f->wants, old.number)); /* the same member: its stream stays */
    assert_int_equal(look(f, 0), ERR_CANCELLED);
    assert_false(have(f, &old, 8, 5));
    begin(f, 0);
    expect(f, WANTS_ASK, 2);
    assert_true(f->effect.want.id != old.want.id);
}

TEST_F(a_value_of_another_size_is_asked_for_once_more, wants)
{
    begin_first(f);
    assert_true(have(f, &f->effect, 9, 5));
    assert_int_equal(released_count, 1);
    assert_int_equal(look(f, 0), ERR_BEHIND);
    expect(f, WANTS_ASK, 2);
    assert_true(have(f, &f->effect, 7, 5));
    assert_int_equal(look(f, 0), ERR_MALFORMED);
    assert_int_equal(released_count, 2);
}

TEST_F(a_value_with_another_digest_is_asked_for_once_more, wants)
{
    const struct value_name name = name_at(f, 0);
    struct wants_value value;
    uint64_t member = 0;
    begin_first(f);
    assert_true(have(f, &f->effect, 8, 5));
    assert_int_equal(judge(f, 0, false), ERR_BEHIND);
    expect(f, WANTS_ASK, 2);
    assert_true(have(f, &f->effect, 8, 5));
    assert_int_equal(judge(f, 0, false), ERR_BEHIND);
    assert_int_equal(wants_look(f->wants, &name, &value, &member), ERR_WRONG_BITS);
    assert_int_equal(member, 2);
}
