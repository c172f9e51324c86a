/* The coordinator: tickets that a second worker computes on purpose. */
#include "tests/unit/coordinator_fixture.h"

#include "server/coordinator/audits.h"

static void differ(struct coordinator_fixture *f, uint64_t member, uint64_t first,
                   const struct ticket *ticket)
{
    struct server_report wrong = {.kind = SERVER_WRONG_BITS};
    wrong.wrong_bits.member = member;
    wrong.wrong_bits.first_member = first;
    wrong.wrong_bits.step = ticket->step;
    wrong.wrong_bits.node = ticket->node;
    assert_int_equal(report(f, 0, wrong), ERR_OK);
}

/* Steps are decided until those audits are over. */
static void steps_to(struct coordinator_fixture *f, uint64_t version)
{
    while (status(f).version < version)
        step(f, status(f).version);
}

TEST_F(the_second_worker_gets_the_ticket_and_nothing_in_it_says_so, coordinator, .steps = 9,
       .audit = 1, .workers = 2)
{
    struct ticket first = ticket_of(f, f->a, 1), second = ticket_of(f, f->b, 1);
    assert_int_equal(second.step, first.step);
    assert_int_equal(second.version, first.version);
    assert_true(node_equal(second.node, first.node));
    assert_true(second.attempt > first.attempt);
    first.attempt = second.attempt;
    first = sign(first, f->b);
    assert_memory_not_equal(&first.grant, &second.grant, sizeof second.grant); /* for servers */
    first.grant = second.grant;
    assert_memory_equal(&first, &second, sizeof second);
}

TEST_F(the_two_leases_go_to_two_hosts_and_two_certificates_where_there_are, coordinator, .steps = 9,
       .audit = 1)
{
    uint64_t a = join_from(f, "a", "h1", 1), b = join_from(f, "b", "h1", 1);
    uint64_t c = join_from(f, "c", "h2", 1), d = join_from(f, "d", "h1", 2);
    struct ticket first = ticket_of(f, a, 1);
    assert_false(node_equal(ticket_of(f, b, 1).node, first.node));
    assert_false(node_equal(ticket_of(f, c, 1).node, first.node));
    assert_true(node_equal(ticket_of(f, d, 1).node, first.node));
}

TEST_F(an_audit_that_the_best_did_not_take_goes_to_any_other_at_the_end_of_the_step, coordinator,
       .steps = 9, .audit = 1)
{
    uint64_t a = join_from(f, "a", "h1", 0), b = join_from(f, "b", "h1", 0);
    join_from(f, "c", "h2", 0);
    struct ticket first = ticket_of(f, a, 1);
    uint32_t slots = SLOTS, out = node_slots(first.node, slots);
    for (uint64_t sequence = 2; out < slots; sequence++)
        out += node_slots(ticket_of(f, a, sequence).node, slots);
    assert_true(node_equal(ticket_of(f, b, 1).node, first.node));
}

TEST_F(an_audit_agrees_when_both_are_complete_and_nothing_was_reported, coordinator, .steps = 9,
       .audit = 1, .workers = 2)
{
    struct ticket first = ticket_of(f, f->a, 1), second = ticket_of(f, f->b, 1);
    assert_int_equal(complete(f, f->a, first, ERR_OK), ERR_OK);
    steps_to(f, 1);
    assert_int_equal(complete(f, f->b, second, ERR_OK), ERR_OK); /* before commit(1) */
    steps_to(f, 2);
    assert_int_equal(status(f).audits.agreed, 0); /* a report may be under way */
    steps_to(f, 3);
    assert_int_equal(status(f).audits.agreed, 1);
    assert_int_equal(status(f).audits.chosen, 1);
}

TEST_F(a_second_that_comes_after_the_next_commit_is_not_compared, coordinator, .steps = 9,
       .audit = 1, .workers = 2)
{
    struct ticket first = ticket_of(f, f->a, 1), second = ticket_of(f, f->b, 1);
    assert_int_equal(complete(f, f->a, first, ERR_OK), ERR_OK);
    steps_to(f, 2); /* nobody waits for it */
    assert_int_equal(complete(f, f->b, second, ERR_OK), ERR_OK);
    steps_to(f, 3);
    assert_int_equal(status(f).audits.agreed, 0);
    assert_int_equal(status(f).audits.not_compared, 1);
}

/* Server 0 has server 1's chunk as well. */
static void step_alone(struct coordinator_fixture *f, uint64_t number)
{
    const struct chunk_seal seals[] = {{0, true, 1}, {1, true, 1}};
    struct server_report reduced = {.kind = SERVER_REDUCED};
    reduced.reduced = (struct reduced){.generation = f->generation,
                                       .step = number,
                                       .seal_count = 2,
                                       .seals = seals,
                                       .has_loss = true,
                                       .loss_sum = 4,
                                       .sample_count = 8};
    assert_int_equal(report(f, 0, reduced), ERR_OK);
    assert_int_equal(say_committed(f, 0, number), ERR_OK);
}

/* The second pushes to the chunk's new owner, which knows no names of the step. */
TEST_F(p11_an_audit_that_ends_after_its_steps_commit_moved_chunks_is_not_compared, coordinator,
       .steps = 9, .audit = 1, .whole_steps = true, .workers = 2)
{
    struct coordinator_drained drained;
    struct ticket first = ticket_of(f, f->a, 1), second = ticket_of(f, f->b, 1);
    assert_int_equal(complete(f, f->a, first, ERR_OK), ERR_OK);
    assert_int_equal(coordinator_drain(f->coordinator, f->now_ms, "s1", &drained, NULL), ERR_OK);
    step(f, 0);
    assert_int_equal(status(f).moves.commits, 1);
    assert_int_equal(complete(f, f->b, second, ERR_OK), ERR_OK);
    first = ticket_of(f, f->a, 2), second = ticket_of(f, f->b, 2);
    assert_int_equal(complete(f, f->a, first, ERR_OK), ERR_OK);
    assert_int_equal(complete(f, f->b, second, ERR_OK), ERR_OK);
    step_alone(f, 1);
    step_alone(f, 2);
    assert_int_equal(status(f).audits.not_compared, 1);
    step_alone(f, 3);
    assert_int_equal(status(f).audits.agreed, 1); /* nothing moved with commit(1) */
}

TEST_F(p11_an_audit_that_is_complete_before_chunks_move_agrees, coordinator, .steps = 9, .audit = 1,
       .whole_steps = true, .workers = 2)
{
    struct coordinator_drained drained;
    struct ticket first = ticket_of(f, f->a, 1), second = ticket_of(f, f->b, 1);
    assert_int_equal(complete(f, f->a, first, ERR_OK), ERR_OK);
    assert_int_equal(complete(f, f->b, second, ERR_OK), ERR_OK);
    assert_int_equal(coordinator_drain(f->coordinator, f->now_ms, "s1", &drained, NULL), ERR_OK);
    step(f, 0);
    assert_int_equal(status(f).moves.commits, 1);
    step_alone(f, 1);
    step_alone(f, 2);
    assert_int_equal(status(f).audits.agreed, 1);
}

/* Servers may have the sum of all four slots from the one that is lost, and compare nothing then that
 * comes under other names. */
TEST_F(an_audit_of_slots_that_were_granted_as_another_node_is_not_compared, coordinator, .steps = 9,
       .audit = 1, .chosen = true)
{
    uint64_t lost = join_named(f, "lost");
    assert_int_equal(ticket_of(f, lost, 1).node.level, 2);
    coordinator_member_lost(f->coordinator, f->now_ms, lost, "stream broke");
    look(f);
    uint64_t a = join_named(f, "a"), b = join_named(f, "b");
    struct ticket first = ticket_of(f, a, 1), second = ticket_of(f, b, 1);
    assert_int_equal(first.node.level, 1);
    assert_true(node_equal(first.node, second.node));
    assert_int_equal(complete(f, a, first, ERR_OK), ERR_OK);
    assert_int_equal(complete(f, b, second, ERR_OK), ERR_OK);
    steps_to(f, 1);
    first = ticket_of(f, a, 2), second = ticket_of(f, b, 2);
    assert_int_equal(complete(f, a, first, ERR_OK), ERR_OK);
    assert_int_equal(complete(f, b, second, ERR_OK), ERR_OK);
    steps_to(f, 3);
    assert_int_equal(status(f).audits.agreed, 0);
    assert_int_equal(status(f).audits.not_compared, 1);
    steps_to(f, 4);
    assert_int_equal(status(f).audits.agreed, 1);
}

TEST_F(an_audit_of_a_ticket_that_is_done_is_granted_while_the_step_is_open, coordinator, .steps = 9,
       .audit = 1)
{
    uint64_t a = join_named(f, "a");
    struct ticket first = ticket_of(f, a, 1);
    assert_int_equal(complete(f, a, first, ERR_OK), ERR_OK);
    assert_int_equal(ticket_of(f, a, 2).node.index, 1); /* its own it does not get again */
    uint64_t b = join_named(f, "b");
    assert_true(node_equal(ticket_of(f, b, 1).node, first.node));
    steps_to(f, 1);
    assert_int_equal(ticket_of(f, b, 2).step, 1);
}

TEST_F(audits_count_neither_as_redone_nor_as_speculative_nor_as_wasted, coordinator, .steps = 9,
       .audit = 1, .workers = 2)
{
    struct ticket first = ticket_of(f, f->a, 1), second = ticket_of(f, f->b, 1);
    f->now_ms += 20;
    assert_int_equal(complete(f, f->b, second, ERR_OK), ERR_OK); /* the second is faster */
    f->now_ms += 10;
    assert_int_equal(complete(f, f->a, first, ERR_OK), ERR_OK);
    assert_int_equal(status(f).useful_ms, 20);
    assert_int_equal(status(f).wasted_ms, 0);
    assert_int_equal(status(f).audits.ms, 30);
    assert_int_equal(status(f).redone, 0);
    assert_int_equal(status(f).speculative, 0);
    steps_to(f, 1);
    assert_int_equal(status(f).last_step.audited, 1);
}

TEST_F(a_second_worker_that_is_lost_gets_a_successor, coordinator, .steps = 9, .audit = 1,
       .workers = 2)
{
    struct ticket first = ticket_of(f, f->a, 1);
    ticket_of(f, f->b, 1);
    coordinator_member_lost(f->coordinator, f->now_ms, f->b, "stream broke");
    look(f);
    f->b = join_named(f, "b");
    struct ticket again = ticket_of(f, f->b, 1);
    assert_true(node_equal(again.node, first.node));
    coordinator_member_lost(f->coordinator, f->now_ms, f->a,
                            "stream broke"); /* b is the first now */
    look(f);
    uint64_t c = join_named(f, "c");
    assert_true(node_equal(ticket_of(f, c, 1).node, first.node));
    assert_int_equal(status(f).redone, 0);
}

TEST_F(a_second_that_drops_its_ticket_leaves_the_audit_to_another, coordinator, .steps = 9,
       .audit = 1, .workers = 2)
{
    struct ticket first = ticket_of(f, f->a, 1), second = ticket_of(f, f->b, 1);
    assert_int_equal(complete(f, f->b, second, ERR_TOO_LATE), ERR_OK);
    uint64_t c = join_named(f, "c");
    assert_true(node_equal(ticket_of(f, c, 1).node, first.node));
}

TEST_F(without_a_share_nothing_is_audited_and_a_small_one_chooses_few, coordinator, .steps = 9,
       .audit = 0.25)
{
    uint64_t a = join_named(f, "a"), sequence = 0;
    for (uint64_t version = 0; version < 8; version++) {
        for (uint32_t slot = 0; slot < SLOTS; slot++)
            assert_int_equal(complete(f, a, ticket_of(f, a, ++sequence), ERR_OK), ERR_OK);
        steps_to(f, version + 1);
    }
    assert_in_range(status(f).audits.chosen, 4,
                    14); /* of 32; the same in each run of this secret */
}

TEST_F(tickets_of_both_suspects_are_audited_by_a_third, coordinator, .steps = 9, .audit = 1e-9,
       .workers = 2)
{
    struct ticket of_a = ticket_of(f, f->a, 1), of_b = ticket_of(f, f->b, 1);
    assert_int_equal(status(f).audits.chosen, 0);
    differ(f, f->b, f->a, &of_a);
    assert_int_equal(complete(f, f->a, of_a, ERR_OK), ERR_OK);
    assert_int_equal(complete(f, f->b, of_b, ERR_OK), ERR_OK);
    ticket_of(f, f->a, 2);
    assert_int_equal(status(f).audits.chosen, 0); /* there is no third */
    uint64_t c = join_named(f, "c");
    struct ticket watched = ticket_of(f, f->b, 2);
    assert_int_equal(status(f).audits.chosen, 1);
    assert_int_equal(acquire(f, f->a, 3, 5000), ERR_OK);
    assert_null(seen(f, EFFECT_ANSWER)); /* a's opinion is known */
    struct ticket third = ticket_of(f, c, 1);
    assert_true(node_equal(third.node, watched.node));
    differ(f, c, f->b, &third);
    assert_int_equal(seen(f, EFFECT_EXPEL)->member, f->b);
}

TEST_F(how_long_it_takes_is_known_beforehand, coordinator)
{
    assert_true(audits_expected(0) == 0);
    assert_true(fabs(audits_expected(1) - 2) < 1e-12);       /* the first lie, and the second */
    assert_true(fabs(audits_expected(0.05) - 11.5) < 1e-12); /* 1.05 / 0.1 + 1 */
}

/* ---- who can be named at all ---- */

static const char *logged(const struct coordinator_fixture *f, const char *begin)
{
    const char *text = NULL;
    for (size_t i = 0; i < f->count; i++)
        if (f->seen[i].kind == EFFECT_LOG && strstr(f->seen[i].log.text, begin) != NULL)
            text = f->seen[i].log.text;
    return text;
}

TEST_F(with_fewer_than_two_others_audits_say_that_they_name_nobody, coordinator, .steps = 9,
       .audit = 1, .workers = 2)
{
    assert_true(status(f).audits.tickets_to_name == 0);
    assert_true(status(f).audits.steps_to_name == 0);
    join_named(f, "c");
    assert_non_null(strstr(logged(f, "tickets are audited"), "named_after_tickets=200"));
    assert_true(status(f).audits.tickets_to_name == 200);
    assert_true(status(f).audits.steps_to_name > 0);
    join_named(f, "d");
    assert_null(logged(f, "tickets are audited")); /* no news */
}

TEST_F(when_too_few_are_left_audits_say_that_they_name_nobody, coordinator, .steps = 9, .audit = 1,
       .workers = 2)
{
    uint64_t c = join_named(f, "c");
    coordinator_member_lost(f->coordinator, f->now_ms, c, "stream broke");
    look(f);
    assert_non_null(strstr(logged(f, "tickets are audited"), "audits name nobody: "));
}

TEST_F(where_all_others_have_one_certificate_its_worker_is_not_named, coordinator, .steps = 9,
       .audit = 1)
{
    uint64_t a = join_from(f, "a", "h", 1), d = join_from(f, "d", "h", 2);
    assert_true(status(f).audits.tickets_to_name == 0);
    uint64_t b = join_from(f, "b", "h", 1), c = join_from(f, "c", "h", 1);
    struct ticket ticket = {0};
    differ(f, d, a, &ticket);
    differ(f, d, b, &ticket);
    differ(f, d, c, &ticket);
    assert_int_equal(status(f).member_count, 4);
    assert_true(status(f).audits.tickets_to_name == 200); /* for the others */
}

TEST_F(those_who_share_a_certificate_are_named_by_one_of_them_and_one_with_another, coordinator,
       .steps = 9, .audit = 1)
{
    uint64_t a = join_from(f, "a", "h", 1), b = join_from(f, "b", "h", 1);
    join_from(f, "c", "h", 1);
    uint64_t d = join_from(f, "d", "h", 2);
    struct ticket ticket = {0};
    differ(f, a, b, &ticket);
    differ(f, a, d, &ticket);
    assert_int_equal(seen(f, EFFECT_EXPEL)->member, a);
}
