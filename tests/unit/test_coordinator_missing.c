/* Members that complete what they did not push. */
#include "tests/unit/coordinator_fixture.h"

/* The newest question of the coordinator to server 0. */
static const struct server_command *question(struct coordinator_fixture *f)
{
    const struct server_command *asked = command(f, 0, SERVER_ASK_MISSING);
    assert_non_null(asked);
    assert_non_null(command(f, 1, SERVER_ASK_MISSING));
    assert_int_equal(asked->ask_missing.generation, f->generation);
    return asked;
}

/* Server i lacks those slots. */
static enum err say_missing(struct coordinator_fixture *f, uint32_t i, uint64_t number,
                            uint64_t slots)
{
    struct server_report missing = {.kind = SERVER_MISSING};
    missing.missing.generation = f->generation;
    missing.missing.step = status(f).version;
    missing.missing.question = number;
    missing.missing.word_count = 1;
    missing.missing.slots = &slots;
    return report(f, i, missing);
}

static const char *state_of(struct coordinator_fixture *f, uint32_t place)
{
    static struct coordinator_member member;
    assert_true(coordinator_member(f->coordinator, place, &member));
    return member.state;
}

TEST_F(who_completes_twice_what_servers_lack_is_expelled, coordinator, .steps = 4)
{
    uint64_t liar = join(f);
    for (uint64_t turn = 1; turn <= 2; turn++) {
        assert_int_equal(complete(f, liar, ticket_of(f, liar, turn), ERR_OK), ERR_OK);
        assert_null(command(f, 0, SERVER_ASK_MISSING));
        coordinator_check(f->coordinator);
        const struct member_report alive = {liar, secret_of(liar)};
        tick(f, LEASE_MS / 2);
        assert_int_equal(coordinator_member_hello(f->coordinator, f->now_ms, &alive), ERR_OK);
        tick(f, LEASE_MS / 2);
        uint64_t number = question(f)->ask_missing.question;
        assert_int_equal(say_missing(f, 0, number, 1), ERR_OK);
        assert_true((seen(f, EFFECT_EXPEL) != NULL) == (turn == 2));
        assert_int_equal(say_missing(f, 1, number, 1), ERR_OK); /* of the same ticket */
        assert_null(seen(f, EFFECT_EXPEL));
    }
    assert_string_equal(state_of(f, 0), "false complete");
    struct join_request request = join_request();
    request.previous_member = liar;
    assert_int_equal(ask_to_join(f, &request), ERR_EXPELLED);
    uint64_t honest = join_named(f, "honest");
    assert_int_equal(ticket_of(f, honest, 1).node.index, 0); /* it is free again */
}

/* Its second ticket of that kind, whatever it did in between. */
TEST_F(who_completes_what_servers_lack_and_starts_anew_is_expelled_too, coordinator, .steps = 4)
{
    for (uint64_t turn = 1; turn <= 2; turn++) {
        uint64_t liar = join(f);
        assert_int_equal(complete(f, liar, ticket_of(f, liar, 1), ERR_OK), ERR_OK);
        tick(f, LEASE_MS - 1);
        const struct member_report alive = {liar, secret_of(liar)};
        assert_int_equal(coordinator_member_hello(f->coordinator, f->now_ms, &alive), ERR_OK);
        tick(f, 1);
        assert_int_equal(say_missing(f, 0, question(f)->ask_missing.question, 1), ERR_OK);
        if (turn == 1)
            assert_int_equal(leave(f, liar, "enough"), ERR_OK);
    }
    assert_string_equal(state_of(f, 0), "false complete");
}

TEST_F(what_is_completed_after_the_question_is_not_missing, coordinator, .steps = 4, .workers = 2)
{
    struct ticket first = ticket_of(f, f->a, 1), second = ticket_of(f, f->b, 1);
    assert_int_equal(complete(f, f->a, first, ERR_OK), ERR_OK);
    tick(f, LEASE_MS - 1);
    const struct member_report alive_a = {f->a, secret_of(f->a)}, alive_b = {f->b, secret_of(f->b)};
    assert_int_equal(coordinator_member_hello(f->coordinator, f->now_ms, &alive_a), ERR_OK);
    assert_int_equal(coordinator_member_hello(f->coordinator, f->now_ms, &alive_b), ERR_OK);
    tick(f, 1);
    uint64_t number = question(f)->ask_missing.question;
    assert_int_equal(complete(f, f->b, second, ERR_OK), ERR_OK);
    assert_int_equal(say_missing(f, 0, number, 2), ERR_OK);
    assert_null(seen(f, EFFECT_LOG));
    assert_int_equal(say_missing(f, 0, number + 1000, 3), ERR_OK); /* nobody asked that */
    assert_null(seen(f, EFFECT_LOG));
    f->generation--;
    assert_int_equal(say_missing(f, 0, number, 3), ERR_OK); /* P2 */
    assert_null(seen(f, EFFECT_LOG));
    f->generation++;
    assert_int_equal(say_missing(f, 0, number, 3), ERR_OK);
    assert_non_null(seen(f, EFFECT_LOG)); /* slot 0 was completed before it */
}
