/* What a member keeps and gives: rules S2, S3, S7, S8, and who may ask for what. The member has
 * stage 1; stage 2 asks it. */
#include "tests/unit/mesh_fixture.h"

#include "worker/outbox.h"

struct outbox_fixture {
    struct mesh_fixture mesh;
    bool insecure;
    struct outbox *outbox;
    struct outbox_asker *asker; /* member 3, which has stage 2 */
    struct outbox_answer answer;
};

static const struct digest shown = {{1, 2, 3}};

static struct outbox_asker *asker_of(struct outbox_fixture *f, uint64_t member)
{
    struct outbox_asker *asker = outbox_asker_new(f->outbox, member, &shown);
    assert_non_null(asker);
    return asker;
}

static void outbox_set_up(struct outbox_fixture *f)
{
    mesh_set_up(&f->mesh);
    for (int i = 0; i < STAGES; i++)
        memcpy(f->mesh.peers[i].certificate, shown.bytes, sizeof shown.bytes);
    const struct outbox_options options = {&f->mesh.boundaries, f->insecure};
    assert_int_equal(outbox_new(&options, &f->outbox), ERR_OK);
    f->asker = asker_of(f, 3);
}

static void outbox_tear_down(struct outbox_fixture *f)
{
    outbox_check(f->outbox);
    counted_unref(f->answer.value);
    outbox_asker_free(f->asker);
    outbox_free(f->outbox);
    mesh_tear_down(&f->mesh);
}

static void grant(struct outbox_fixture *f)
{
    const struct place place = mesh_place(1);
    assert_int_equal(outbox_lease(f->outbox, &f->mesh.ticket, &place, &f->mesh.places), ERR_OK);
}

/* The value over boundary 2 whose bytes are all `byte`. */
static enum err give(struct outbox_fixture *f, uint32_t microbatch, uint8_t byte)
{
    const struct value_name name = mesh_name(&f->mesh, 2, microbatch);
    struct counted *value = counted_new(8);
    memset(value->data, byte, 8);
    return outbox_give(f->outbox, ATTEMPT, &name, value, 1000 + byte);
}

static void ask_name(struct outbox_asker *asker, uint64_t id, const struct value_name *name)
{
    const struct want want = {id, *name};
    assert_int_equal(outbox_want(asker, &want), ERR_OK);
}

static void ask(struct outbox_fixture *f, uint64_t id, uint32_t microbatch)
{
    const struct value_name name = mesh_name(&f->mesh, 2, microbatch);
    ask_name(f->asker, id, &name);
}

/* The next answer is of that kind; f->answer has it. */
static void answers(struct outbox_fixture *f, enum from_peer_kind kind)
{
    counted_unref(f->answer.value);
    f->answer.value = NULL;
    assert_true(outbox_next(f->asker, &f->answer));
    assert_int_equal(f->answer.message.kind, kind);
}

static void refuses(struct outbox_fixture *f, enum err code)
{
    answers(f, FROM_PEER_GONE);
    assert_int_equal(f->answer.message.gone.code, code);
}

static void is_silent(struct outbox_fixture *f)
{
    assert_false(outbox_next(f->asker, &f->answer));
}

TEST_F(a_value_that_is_there_is_given_as_often_as_it_is_asked_for, outbox)
{
    grant(f);
    assert_int_equal(give(f, 0, 7), ERR_OK);
    for (uint64_t id = 1; id <= 3; id++) {
        ask(f, id, 0);
        answers(f, FROM_PEER_HAVE);
        assert_int_equal(f->answer.message.have.id, id);
        assert_int_equal(f->answer.message.have.digest, 1007);
        assert_int_equal(f->answer.message.payload_bytes, 8);
        assert_int_equal(f->answer.value->data[7], 7);
        is_silent(f);
    }
}

TEST_F(s2_a_want_that_comes_first_is_parked_and_answered_by_the_value, outbox)
{
    grant(f);
    ask(f, 1, 0);
    ask(f, 2, 1);
    answers(f, FROM_PEER_PARKED);
    answers(f, FROM_PEER_PARKED);
    is_silent(f);
    assert_int_equal(give(f, 1, 9), ERR_OK);
    answers(f, FROM_PEER_HAVE);
    assert_int_equal(f->answer.message.have.id, 2);
    is_silent(f);
}

TEST_F(s2_a_want_before_its_lease_or_generation_is_known_is_parked, outbox)
{
    outbox_generation(f->outbox, GENERATION - 1);
    ask(f, 1, 0);
    answers(f, FROM_PEER_PARKED);
    outbox_generation(f->outbox, GENERATION);
    grant(f);
    is_silent(f);
    assert_int_equal(give(f, 0, 1), ERR_OK);
    answers(f, FROM_PEER_HAVE);
}

TEST_F(s2_a_parked_want_that_is_asked_again_is_parked_once, outbox)
{
    grant(f);
    for (int i = 0; i < 100; i++) {
        ask(f, 1, 0);
        answers(f, FROM_PEER_PARKED);
        is_silent(f);
    }
    assert_int_equal(give(f, 0, 1), ERR_OK);
    answers(f, FROM_PEER_HAVE);
    is_silent(f);
}

TEST_F(s2_a_second_value_of_a_name_has_the_same_bits, outbox)
{
    grant(f);
    assert_int_equal(give(f, 0, 1), ERR_OK);
    assert_int_equal(give(f, 0, 1), ERR_OK);
    assert_int_equal(give(f, 0, 2), ERR_WRONG_BITS);
    assert_int_equal(outbox_bytes(f->outbox), 8);
    ask(f, 1, 0);
    answers(f, FROM_PEER_HAVE);
    assert_int_equal(f->answer.value->data[0], 1); /* the first one stays */
}

TEST_F(s2_what_a_member_computed_at_another_place_is_as_good, outbox)
{
    grant(f);
    assert_int_equal(give(f, 0, 1), ERR_OK);
    const struct place place = mesh_place(3);
    assert_int_equal(outbox_lease(f->outbox, &f->mesh.ticket, &place, &f->mesh.places), ERR_OK);
    ask(f, 1, 0);
    answers(f, FROM_PEER_HAVE);
    ask(f, 2, 1);
    refuses(f, ERR_NOT_FOUND); /* it will not compute that one */
}

TEST_F(s3_values_are_kept_until_the_lease_is_over, outbox)
{
    static const uint64_t kept[] = {ATTEMPT, ATTEMPT + 1}, others[] = {ATTEMPT + 1};
    grant(f);
    assert_int_equal(give(f, 0, 1), ERR_OK);
    outbox_keep(f->outbox, kept, 2);
    assert_int_equal(outbox_bytes(f->outbox), 8);
    outbox_keep(f->outbox, others, 1);
    assert_int_equal(outbox_bytes(f->outbox), 0);
    assert_int_equal(give(f, 1, 1), ERR_OK); /* as the compute thread may not have heard yet */
    assert_int_equal(outbox_bytes(f->outbox), 0);
    ask(f, 1, 0);
    answers(f, FROM_PEER_PARKED);
}

TEST_F(s3_a_value_on_its_way_outlives_its_lease, outbox)
{
    grant(f);
    assert_int_equal(give(f, 0, 5), ERR_OK);
    ask(f, 1, 0);
    outbox_keep(f->outbox, NULL, 0);
    answers(f, FROM_PEER_HAVE);
    assert_int_equal(f->answer.value->data[0], 5);
}

TEST_F(s3_more_leases_than_a_member_keeps_are_refused, outbox)
{
    const struct place place = mesh_place(1);
    for (uint64_t i = 0; i <= WIRE_LEASES_MAX + 1; i++) {
        f->mesh.ticket.attempt = 100 + i;
        f->mesh.ticket.step = i;
        enum err err = outbox_lease(f->outbox, &f->mesh.ticket, &place, &f->mesh.places);
        assert_int_equal(err, i <= WIRE_LEASES_MAX ? ERR_OK : ERR_BUSY);
    }
}

TEST_F(s7_older_places_change_nothing, outbox)
{
    grant(f);
    f->mesh.peers[2].member = 30;
    f->mesh.places.number = 5; /* not newer */
    outbox_places(f->outbox, &f->mesh.places);
    ask(f, 1, 0);
    answers(f, FROM_PEER_PARKED);
    f->mesh.places.number = 6;
    outbox_places(f->outbox, &f->mesh.places);
    refuses(f, ERR_NO_GRANT); /* member 3 is none of the lease's any more */
}

TEST_F(s7_who_is_a_peer_only_by_newer_places_asks_again, outbox)
{
    struct outbox_asker *newer = asker_of(f, 30), *older = f->asker;
    const struct value_name name = mesh_name(&f->mesh, 2, 0);
    grant(f);
    f->asker = newer;
    ask_name(newer, 1, &name);
    refuses(f, ERR_NO_GRANT);
    f->mesh.peers[2].member = 30;
    f->mesh.places.number++;
    outbox_places(f->outbox, &f->mesh.places);
    ask_name(newer, 1, &name);
    answers(f, FROM_PEER_PARKED);
    outbox_asker_free(newer);
    f->asker = older;
}

TEST_F(s8_a_new_generation_empties_the_outbox, outbox)
{
    grant(f);
    ask(f, 1, 0);
    answers(f, FROM_PEER_PARKED);
    assert_int_equal(give(f, 1, 1), ERR_OK);
    outbox_generation(f->outbox, GENERATION + 1);
    refuses(f, ERR_OLD_GENERATION);
    assert_int_equal(outbox_bytes(f->outbox), 0);
    ask(f, 2, 1);
    refuses(f, ERR_OLD_GENERATION);
    is_silent(f);
}

TEST_F(s8_a_grant_of_a_newer_generation_ends_older_leases, outbox)
{
    const struct place place = mesh_place(1);
    grant(f);
    assert_int_equal(give(f, 0, 1), ERR_OK);
    f->mesh.ticket.generation++;
    f->mesh.ticket.attempt++;
    assert_int_equal(outbox_lease(f->outbox, &f->mesh.ticket, &place, &f->mesh.places), ERR_OK);
    assert_int_equal(outbox_bytes(f->outbox), 0);
}

/* What each of these members may ask for, when all of stage 1 is given. */
TEST_F(a_name_that_no_neighbour_asks_for_is_refused, outbox)
{
    static const struct {
        uint32_t boundary, microbatch, slot;
        enum value_way way;
    } rows[] = {
        {1, 0, 2, VALUE_FORWARD},  /* what this member itself takes */
        {3, 0, 2, VALUE_FORWARD},  /* of the asker's own */
        {2, 2, 2, VALUE_FORWARD},  /* no such microbatch */
        {0, 0, 2, VALUE_FORWARD},  /* no such boundary */
        {2, 0, 2, VALUE_BACKWARD}, /* what the asker gives */
        {1, 0, 3, VALUE_BACKWARD}, /* for stage 0 */
        {4, 0, 3, VALUE_BACKWARD},
    };
    grant(f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct value_name name = mesh_name(&f->mesh, rows[i].boundary, rows[i].microbatch);
        name.way = rows[i].way;
        name.slot = rows[i].slot;
        ask_name(f->asker, i + 1, &name);
        refuses(f, ERR_NOT_FOUND);
    }
}

TEST_F(who_shows_another_certificate_is_refused, outbox)
{
    static const struct digest other = {{9}};
    grant(f);
    assert_int_equal(give(f, 0, 1), ERR_OK);
    outbox_asker_free(f->asker);
    f->asker = outbox_asker_new(f->outbox, 3, &other);
    ask(f, 1, 0);
    refuses(f, ERR_UNTRUSTED);
}

TEST_F(insecure_compares_no_certificate, outbox, .insecure = true)
{
    static const struct digest none;
    grant(f);
    assert_int_equal(give(f, 0, 1), ERR_OK);
    outbox_asker_free(f->asker);
    f->asker = outbox_asker_new(f->outbox, 3, &none);
    ask(f, 1, 0);
    answers(f, FROM_PEER_HAVE);
}

TEST_F(wants_without_an_answer_are_bounded, outbox)
{
    grant(f);
    for (uint64_t id = 1; id <= OUTBOX_UNANSWERED_MAX; id++)
        ask(f, id, 0);
    const struct want want = {99, mesh_name(&f->mesh, 2, 0)};
    assert_int_equal(outbox_want(f->asker, &want), ERR_MALFORMED);
    answers(f, FROM_PEER_PARKED); /* parked ones hold none */
    assert_int_equal(outbox_want(f->asker, &want), ERR_OK);
}

/* Who asks takes the value for the answer to both, and asks for others with that credit. */
TEST_F(wants_that_cross_their_values_are_no_breach, outbox)
{
    grant(f);
    for (uint64_t id = 1; id <= OUTBOX_PARKED_MAX; id++) {
        ask(f, id, 0);
        answers(f, FROM_PEER_PARKED);
    }
    assert_int_equal(give(f, 0, 1), ERR_OK);
    for (uint64_t id = 1; id <= OUTBOX_PARKED_MAX; id++)
        answers(f, FROM_PEER_HAVE);
    for (uint64_t id = 1; id <= OUTBOX_PARKED_MAX + WIRE_CREDITS; id++)
        ask(f, id, 0);
    for (uint64_t id = 1; id <= OUTBOX_PARKED_MAX + WIRE_CREDITS; id++)
        answers(f, FROM_PEER_HAVE);
    is_silent(f);
}

TEST_F(the_oldest_of_too_many_parked_wants_goes, outbox)
{
    grant(f);
    for (uint64_t id = 1; id <= 2 * OUTBOX_PARKED_MAX; id++) {
        ask(f, id, 0);
        answers(f, FROM_PEER_PARKED);
    }
    assert_int_equal(give(f, 0, 1), ERR_OK);
    for (uint64_t id = 1; id <= OUTBOX_PARKED_MAX; id++) {
        answers(f, FROM_PEER_HAVE);
        assert_int_equal(f->answer.message.have.id, OUTBOX_PARKED_MAX + id);
    }
    is_silent(f);
}
