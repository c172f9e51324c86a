/* Who computes what. */
#include "tests/unit/unit.h"

#include "server/coordinator/tickets.h"

enum { LEASE_MS = 1000 };

static struct tickets tickets_of(uint32_t slots, uint32_t node_slots)
{
    struct tickets tickets;
    const struct tickets_settings settings = {.slots = slots,
                                              .open_steps = 1,
                                              .pieces = 3,
                                              .node_slots = node_slots,
                                              .leases_max = 64,
                                              .lease_ms = LEASE_MS,
                                              .overdue_percent = 200,
                                              .overdue_ms_min = 10};
    assert_int_equal(tickets_init(&tickets, &settings), ERR_OK);
    tickets_open(&tickets, (struct tickets_open){.steps = 1});
    return tickets;
}

struct tickets_fixture {
    uint32_t slots, node_slots; /* 0: any */
    bool usual; /* of two slots the first one took 20 ms, so a slot is overdue after 40 */
    struct lease second;
    struct tickets tickets;
};

static void tickets_tear_down(struct tickets_fixture *f)
{
    tickets_release(&f->tickets);
}

/* The lease granted, which must be one. */
static struct lease grant_to(struct tickets *tickets, uint64_t now_ms,
                             const struct tickets_worker *worker)
{
    const struct lease *lease = NULL;
    assert_true(tickets_grant(tickets, now_ms, worker, &lease));
    tickets_check(tickets);
    return *lease;
}

/* To one of so many workers of one device each. */
static struct lease grant(struct tickets *tickets, uint64_t now_ms, uint64_t member,
                          uint32_t workers)
{
    return grant_to(tickets, now_ms, &(struct tickets_worker){member, 1, workers});
}

static void grants_nothing(struct tickets *tickets, uint64_t now_ms, uint64_t member)
{
    const struct lease *lease;
    assert_false(tickets_grant(tickets, now_ms, &(struct tickets_worker){member, 1, 1}, &lease));
}

static void expect_node(struct lease lease, uint32_t level, uint32_t index)
{
    assert_int_equal(lease.node.level, level);
    assert_int_equal(lease.node.index, index);
}

static void done(struct tickets *tickets, uint64_t now_ms, struct lease lease)
{
    tickets_done(tickets, now_ms,
                 &(struct ticket){.kind = lease.kind,
                                  .step = lease.step,
                                  .node = lease.node,
                                  .attempt = lease.attempt,
                                  .member = lease.member});
    tickets_check(tickets);
}

static void tickets_set_up(struct tickets_fixture *f)
{
    f->tickets = f->usual ? tickets_of(2, 1) : tickets_of(f->slots, f->node_slots);
    if (!f->usual)
        return;
    struct lease first = grant(&f->tickets, 0, 1, 2);
    f->second = grant(&f->tickets, 0, 2, 2);
    done(&f->tickets, 20, first);
}

TEST_F(the_lowest_free_slot_is_granted_first, tickets, .slots = 4, .node_slots = 1)
{
    expect_node(grant(&f->tickets, 0, 1, 9), 0, 0);
    struct lease second = grant(&f->tickets, 0, 2, 9);
    expect_node(second, 0, 1);
    expect_node(grant(&f->tickets, 0, 3, 9), 0, 2);
    tickets_drop(&f->tickets, 0, second.attempt, 2);
    tickets_check(&f->tickets);
    expect_node(grant(&f->tickets, 0, 4, 9), 0, 1);
    expect_node(grant(&f->tickets, 0, 4, 9), 0, 3);
}

/* An audit's pushes find no room before that is there (places.c). */
TEST_F(what_is_free_is_older_than_a_later_slot, tickets, .slots = 3, .node_slots = 1)
{
    struct lease first = grant(&f->tickets, 0, 1, 1);
    grant(&f->tickets, 0, 2, 1);
    assert_false(tickets_older_free(&f->tickets, 0, 1));
    tickets_drop(&f->tickets, 0, first.attempt, 1);
    assert_true(tickets_older_free(&f->tickets, 0, 1));
    assert_false(tickets_older_free(&f->tickets, 0, 0));
    assert_true(tickets_older_free(&f->tickets, 1, 0));
}

TEST_F(one_worker_gets_the_whole_step, tickets, .slots = 6)
{
    expect_node(grant(&f->tickets, 0, 1, 1), 3, 0); /* six slots and two missing leaves */
    assert_int_equal(f->tickets.train[0].free_count, 0);
}

TEST_F(runs_of_slots_leave_every_worker_its_share, tickets, .slots = 16)
{
    expect_node(grant(&f->tickets, 0, 1, 3), 2, 0);
    expect_node(grant(&f->tickets, 0, 2, 3), 2, 1);
    expect_node(grant(&f->tickets, 0, 3, 3), 1, 4); /* eight are left: two each */
    expect_node(grant(&f->tickets, 0, 3, 3), 1, 5);
    expect_node(grant(&f->tickets, 0, 3, 3), 0, 12);
}

TEST_F(a_run_is_as_long_as_its_program_can_be, tickets, .slots = 16)
{
    f->tickets.settings.chosen_max = 4;
    expect_node(grant(&f->tickets, 0, 1, 1), 2, 0);
    expect_node(grant_to(&f->tickets, 0, &(struct tickets_worker){2, 8, 8}), 2, 1);
}

/* A worker of four devices and one of two: by devices, and something for each. */
TEST_F(devices_share_what_is_free, tickets, .slots = 16)
{
    const struct tickets_worker four = {1, 4, 6}, two = {2, 2, 6};
    expect_node(grant_to(&f->tickets, 0, &four), 3, 0); /* ten are its share */
    expect_node(grant_to(&f->tickets, 0, &two), 1, 4);  /* of eight */
    expect_node(grant_to(&f->tickets, 0, &two), 1, 5);
    expect_node(grant_to(&f->tickets, 0, &four), 2, 3); /* of four: two, but it has four devices */
}

TEST(a_run_takes_about_a_second_at_most)
{
    struct tickets tickets = tickets_of(64, 0);
    struct lease first = grant(&tickets, 0, 1, 1);
    expect_node(first, 4, 0); /* how long a slot takes is not known: sixteen */
    done(&tickets, 16 * 100, first);
    expect_node(grant(&tickets, 1600, 1, 1), 3, 2);   /* eight of 100 ms */
    expect_node(grant(&tickets, 1600, 2, 40), 0, 24); /* its share is less */
    tickets_release(&tickets);
    tickets = tickets_of(64, 0);
    first = grant(&tickets, 0, 1, 1);
    done(&tickets, 16 * 5000, first);
    expect_node(grant(&tickets, 80000, 1, 1), 0, 16); /* one, however long it takes */
    tickets_release(&tickets);
}

TEST_F(p4_runs_are_aligned_so_nodes_only_nest, tickets, .slots = 8)
{
    struct lease first = grant(&f->tickets, 0, 1, 8);
    expect_node(first, 0, 0);
    expect_node(grant(&f->tickets, 0, 2, 2), 0, 1); /* not {1, 2} */
    expect_node(grant(&f->tickets, 0, 3, 2), 1, 1);
    expect_node(grant(&f->tickets, 0, 3, 1), 2, 1);
}

TEST_F(p4_with_a_lossy_codec_every_node_has_the_runs_size, tickets, .slots = 6, .node_slots = 4)
{
    expect_node(grant(&f->tickets, 0, 1, 99), 2, 0);
    struct lease tail = grant(&f->tickets, 0, 2, 99);
    expect_node(tail, 2, 1); /* slots 4 and 5 */
    tickets_drop(&f->tickets, 0, tail.attempt, 2);
    expect_node(grant(&f->tickets, 0, 1, 1), 2, 1);
    grants_nothing(&f->tickets, 0, 3);
}

TEST_F(a_lost_workers_slots_are_free_at_once_and_counted_as_redone, tickets, .slots = 8)
{
    grant(&f->tickets, 0, 1, 2);
    grant(&f->tickets, 0, 2, 1);
    assert_int_equal(tickets_drop_member(&f->tickets, 0, 1), 1);
    tickets_check(&f->tickets);
    assert_int_equal(f->tickets.train[0].free_count, 4);
    expect_node(grant(&f->tickets, 1, 3, 1), 2, 0);
    assert_int_equal(f->tickets.redone, 4);
}

TEST_F(p1_done_stays_done_whatever_happens_to_the_lease, tickets, .slots = 2, .node_slots = 1)
{
    struct lease first = grant(&f->tickets, 0, 1, 1);
    done(&f->tickets, 1, first);
    tickets_drop(&f->tickets, 0, first.attempt, 1);
    tickets_drop_member(&f->tickets, 0, 1);
    expect_node(grant(&f->tickets, 2, 2, 1), 0, 1);
    grants_nothing(&f->tickets, 2, 3);
    assert_true(f->tickets.train[0].slots[0].done);
}

TEST_F(p1_a_completion_counts_although_its_lease_lapsed, tickets, .slots = 1, .node_slots = 1)
{
    struct lease first = grant(&f->tickets, 0, 1, 1);
    tickets_drop_member(&f->tickets, 0, 1);
    done(&f->tickets, 5, first);
    assert_true(tickets_all_done(&f->tickets, TICKET_TRAIN));
    grants_nothing(&f->tickets, 5, 2);
    done(&f->tickets, 6, first); /* said twice */
}

TEST_F(only_the_holder_can_drop_a_lease, tickets, .slots = 1, .node_slots = 1)
{
    struct lease first = grant(&f->tickets, 0, 1, 1);
    tickets_drop(&f->tickets, 0, first.attempt, 2);
    assert_non_null(tickets_find(&f->tickets, first.attempt));
    tickets_drop(&f->tickets, 0, first.attempt, 1);
    assert_null(tickets_find(&f->tickets, first.attempt));
}

TEST_F(an_idle_worker_gets_an_overdue_ticket_of_another, tickets, .usual = true)
{
    grants_nothing(&f->tickets, 39, 1);
    assert_int_equal(tickets_overdue_ms(&f->tickets), 40);
    grants_nothing(&f->tickets, 40, 2); /* its own */
    struct lease backup = grant(&f->tickets, 40, 1, 2);
    assert_true(backup.speculative);
    expect_node(backup, 0, 1);
    assert_int_equal(f->tickets.speculative, 1);
    assert_int_equal(f->tickets.redone, 0);
    grants_nothing(&f->tickets, 41, 3); /* the youngest attempt has its time too */
    assert_int_equal(tickets_overdue_ms(&f->tickets), 80);
}

TEST_F(speculation_takes_the_slowest_first, tickets, .slots = 3, .node_slots = 1)
{
    struct lease a = grant(&f->tickets, 0, 1, 3);
    grant(&f->tickets, 5, 2, 3);
    done(&f->tickets, 10, a);
    grant(&f->tickets, 10, 1, 3);
    expect_node(grant(&f->tickets, 100, 3, 3), 0, 1); /* granted at 5 */
}

TEST_F(the_second_completion_of_a_speculated_ticket_changes_nothing, tickets, .usual = true)
{
    struct lease backup = grant(&f->tickets, 50, 1, 2);
    done(&f->tickets, 60, backup);
    assert_true(tickets_all_done(&f->tickets, TICKET_TRAIN));
    done(&f->tickets, 70, f->second);
    assert_int_equal(f->tickets.leases.count, 0);
    assert_int_equal(f->tickets.train[0].done_count, 2);
}

TEST_F(a_speculated_slot_is_free_only_when_nobody_holds_it, tickets, .usual = true)
{
    grant(&f->tickets, 50, 1, 2);
    tickets_drop_member(&f->tickets, 0, 2);
    tickets_check(&f->tickets);
    assert_int_equal(f->tickets.train[0].free_count, 0);
    tickets_drop_member(&f->tickets, 0, 1);
    tickets_check(&f->tickets);
    assert_int_equal(f->tickets.train[0].free_count, 1);
}

TEST_F(while_no_time_is_usual_nothing_is_overdue_before_a_lease_is, tickets, .slots = 1,
       .node_slots = 1)
{
    grant(&f->tickets, 0, 1, 1);
    grants_nothing(&f->tickets, LEASE_MS - 1, 2);
    assert_true(grant(&f->tickets, LEASE_MS, 2, 1).speculative);
}

TEST_F(a_forgotten_ticket_lapses_although_its_holder_lives, tickets, .usual = true)
{
    uint64_t due_ms;
    assert_int_equal(tickets_lapse(&f->tickets, 100, &due_ms), 0);
    assert_int_equal(due_ms, LEASE_MS); /* more than 16 times 20 ms */
    assert_int_equal(tickets_lapse(&f->tickets, LEASE_MS, &due_ms), 1);
    assert_int_equal(due_ms, UINT64_MAX);
    tickets_check(&f->tickets);
    expect_node(grant(&f->tickets, LEASE_MS, 2, 1), 0, 1); /* even to the one who forgot it */
}

/* Who shared it computes no further. */
TEST_F(slots_of_a_shared_lease_that_lapsed_get_twice_the_time, tickets, .slots = 1, .node_slots = 1)
{
    uint64_t due_ms, now_ms = 0, after_ms = 10 * LEASE_MS;
    f->tickets.settings.shared = true;
    for (int times = 0; times < 4; times++) {
        grant(&f->tickets, now_ms, 1, 1);
        assert_int_equal(tickets_lapse(&f->tickets, now_ms + after_ms - 1, &due_ms), 0);
        assert_int_equal(due_ms, now_ms + after_ms);
        now_ms = due_ms;
        assert_int_equal(tickets_lapse(&f->tickets, now_ms, &due_ms), 1);
        after_ms *= 2;
    }
}

TEST_F(a_shared_lease_with_more_time_keeps_none_behind_it_from_lapsing, tickets, .slots = 3,
       .node_slots = 1)
{
    uint64_t due_ms, after_ms = 10 * LEASE_MS;
    f->tickets.settings.shared = true;
    grant(&f->tickets, 0, 1, 1);
    assert_int_equal(tickets_lapse(&f->tickets, after_ms, &due_ms), 1);
    expect_node(grant(&f->tickets, after_ms, 2, 1), 0, 0); /* until 3 * after_ms */
    expect_node(grant(&f->tickets, after_ms + 1, 3, 1), 0, 1);
    expect_node(grant(&f->tickets, after_ms + 2, 4, 1), 0, 2);
    assert_int_equal(tickets_lapse(&f->tickets, after_ms + 2, &due_ms), 0);
    assert_int_equal(due_ms, 2 * after_ms + 1);
    assert_int_equal(tickets_lapse(&f->tickets, due_ms, &due_ms), 1);
    tickets_check(&f->tickets);
    assert_int_equal(due_ms, 2 * after_ms + 2);
    assert_int_equal(tickets_lapse(&f->tickets, due_ms, &due_ms), 1);
    assert_int_equal(due_ms, 3 * after_ms);
    assert_int_equal(tickets_lapse(&f->tickets, due_ms, &due_ms), 1);
    assert_int_equal(due_ms, UINT64_MAX);
}

/* Of the next step a slot is granted: how long until it lapses. */
static uint64_t next_lapses_after(struct tickets *tickets, uint64_t now_ms)
{
    uint64_t due_ms;
    tickets_settle(tickets, now_ms, tickets->step, NULL);
    tickets_open(tickets, (struct tickets_open){.version = 1, .step = 1, .steps = 1});
    grant(tickets, now_ms, 2, 1);
    assert_int_equal(tickets_lapse(tickets, now_ms, &due_ms), 0);
    return due_ms - now_ms;
}

/* What is learned weighs a quarter. */
TEST_F(slots_that_suddenly_take_longer_than_a_lapse_do_not_lapse_in_every_step, tickets,
       .usual = true)
{
    uint64_t due_ms;
    assert_int_equal(tickets_lapse(&f->tickets, LEASE_MS, &due_ms), 1);
    done(&f->tickets, 4020, f->second); /* P1 */
    assert_int_equal(next_lapses_after(&f->tickets, 4020), 16 * (20 + 4000 / 4));
}

TEST_F(a_lapsed_lease_whose_pushes_end_the_step_teaches_how_long_it_took, tickets, .usual = true)
{
    uint64_t due_ms;
    assert_int_equal(tickets_lapse(&f->tickets, LEASE_MS, &due_ms), 1);
    assert_int_equal(next_lapses_after(&f->tickets, 4020), 16 * (20 + 4000 / 4));
}

/* Of a ticket that is a whole step the seals often come before the complete. */
TEST_F(a_lease_that_seals_end_teaches_how_long_it_took, tickets, .usual = true)
{
    assert_int_equal(next_lapses_after(&f->tickets, 900), 16 * (20 + 880 / 4));
}

TEST_F(a_ticket_that_others_have_too_teaches_nothing_when_seals_end_it, tickets, .usual = true)
{
    grant(&f->tickets, 800, 1, 1);
    assert_int_equal(next_lapses_after(&f->tickets, 900), LEASE_MS);
}

TEST_F(a_forgotten_ticket_that_another_brings_teaches_nothing, tickets, .usual = true)
{
    uint64_t due_ms;
    assert_int_equal(tickets_lapse(&f->tickets, LEASE_MS, &due_ms), 1);
    grant(&f->tickets, LEASE_MS, 1, 1);
    assert_int_equal(next_lapses_after(&f->tickets, LEASE_MS + 20), LEASE_MS);
}

/* Member 2 held the second slot until member 1 brought it, and the step is over. */
static struct tickets tickets_with_hoarder(uint64_t now_ms)
{
    struct tickets_fixture f = {.usual = true};
    tickets_set_up(&f);
    done(&f.tickets, now_ms, grant(&f.tickets, now_ms - 10, 1, 2));
    tickets_settle(&f.tickets, now_ms, f.tickets.step, NULL);
    tickets_open(&f.tickets, (struct tickets_open){.version = 1, .step = 1, .steps = 1});
    return f.tickets;
}

TEST(who_held_a_ticket_until_another_brought_it_holds_one_slot_at_a_time_and_not_alone)
{
    scoped(tickets_release) struct tickets tickets = tickets_with_hoarder(60);
    expect_node(grant(&tickets, 60, 2, 1), 0, 0);
    grants_nothing(&tickets, 60, 2);
    expect_node(grant(&tickets, 60, 1, 1), 0, 1);
    struct lease at_once = grant(&tickets, 60, 3, 1); /* without waiting for it */
    assert_true(at_once.speculative);
    expect_node(at_once, 0, 0);
    grants_nothing(&tickets, 60, 4); /* who is not doubted has its time */
    assert_int_equal(tickets_overdue_ms(&tickets), 60 + 2 * 17); /* 20 and 10 ms: usually 17 */
}

TEST(who_brings_a_ticket_is_doubted_no_more)
{
    scoped(tickets_release) struct tickets tickets = tickets_with_hoarder(60);
    struct lease first = grant(&tickets, 60, 2, 1);
    uint64_t due_ms;
    assert_int_equal(tickets_lapse(&tickets, 60 + LEASE_MS, &due_ms), 1);
    done(&tickets, 61 + LEASE_MS, first); /* P1: although it lapsed */
    tickets_open(&tickets, (struct tickets_open){.version = 2, .step = 2, .steps = 1});
    grant(&tickets, 2000, 2, 9);
    grant(&tickets, 2000, 2, 9);
    grants_nothing(&tickets, 2000, 1);
}

TEST(who_is_as_late_as_anybody_may_be_is_not_doubted)
{
    scoped(tickets_release) struct tickets tickets = tickets_of(2, 1);
    struct lease first = grant(&tickets, 0, 1, 2);
    grant(&tickets, 0, 2, 2);
    done(&tickets, 20, first);
    tickets_mark(&tickets, 0, 1, true); /* shards have it */
    tickets_settle(&tickets, 39, tickets.step, NULL);
    tickets_open(&tickets, (struct tickets_open){.version = 1, .step = 1, .steps = 1});
    grant(&tickets, 39, 2, 9);
    grant(&tickets, 39, 2, 9);
}

/* Ten times slower than the others: whenever its slot is needed, nobody is idle, and it is done. */
TEST(a_slow_worker_completes_what_is_needed)
{
    scoped(tickets_release) struct tickets tickets = tickets_with_hoarder(60);
    uint64_t due_ms, now_ms = 60;
    struct lease slow = grant(&tickets, now_ms, 2, 2);
    for (; now_ms < 60 + 200; now_ms += 20) { /* the other has its hands full */
        struct lease fast = grant(&tickets, now_ms, 1, 2);
        expect_node(fast, 0, 1);
        assert_int_equal(tickets_lapse(&tickets, now_ms, &due_ms), 0);
        done(&tickets, now_ms + 20, fast);
        tickets_mark(&tickets, 1, 1, false);
    }
    done(&tickets, now_ms, slow);
    assert_true(tickets.train[0].slots[0].done);
}

TEST_F(validation_comes_after_training_piece_by_piece, tickets, .slots = 1)
{
    tickets_open(&f->tickets, (struct tickets_open){.steps = 1, .validate = true});
    assert_int_equal(grant(&f->tickets, 0, 1, 1).kind, TICKET_TRAIN);
    for (uint32_t piece = 0; piece < 3; piece++) {
        struct lease lease = grant(&f->tickets, 0, 2, 1);
        assert_int_equal(lease.kind, TICKET_VALIDATE);
        expect_node(lease, 0, piece);
        done(&f->tickets, 1, lease);
    }
    assert_true(tickets_all_done(&f->tickets, TICKET_VALIDATE));
    assert_false(tickets_all_done(&f->tickets, TICKET_TRAIN));
}

TEST_F(a_validation_that_is_stopped_leaves_the_steps_as_they_are, tickets, .slots = 1)
{
    tickets_open(&f->tickets, (struct tickets_open){.steps = 1, .validate = true});
    struct lease train = grant(&f->tickets, 0, 1, 1), piece = grant(&f->tickets, 0, 2, 1);
    tickets_stop_validation(&f->tickets);
    tickets_check(&f->tickets);
    assert_null(tickets_find(&f->tickets, piece.attempt));
    assert_non_null(tickets_find(&f->tickets, train.attempt));
    assert_int_equal(tickets_held(&f->tickets, 2), 0);
    assert_false(tickets_free(&f->tickets));
    done(&f->tickets, 1, train);
    assert_true(tickets_all_done(&f->tickets, TICKET_TRAIN));
}

TEST_F(a_new_step_starts_with_everything_free, tickets, .slots = 2, .node_slots = 1)
{
    struct lease old = grant(&f->tickets, 0, 1, 1);
    done(&f->tickets, 1, grant(&f->tickets, 0, 1, 1));
    tickets_open(&f->tickets, (struct tickets_open){.step = 1, .steps = 1});
    tickets_check(&f->tickets);
    assert_null(tickets_find(&f->tickets, old.attempt));
    assert_int_equal(f->tickets.train[0].free_count, 2);
    assert_true(grant(&f->tickets, 2, 1, 1).attempt > old.attempt);
}

static struct tickets overlapping(uint32_t open_steps, uint32_t slots)
{
    struct tickets tickets = tickets_of(slots, 1);
    struct tickets_settings settings = tickets.settings;
    settings.open_steps = open_steps;
    settings.delay = open_steps - 1;
    tickets_release(&tickets);
    assert_int_equal(tickets_init(&tickets, &settings), ERR_OK);
    tickets_open(&tickets, (struct tickets_open){.step = 10, .steps = open_steps});
    return tickets;
}

TEST(the_oldest_step_comes_first_then_validation_then_later_steps)
{
    scoped(tickets_release) struct tickets tickets = overlapping(3, 1);
    tickets_open(&tickets, (struct tickets_open){.step = 10, .steps = 3, .validate = true});
    assert_int_equal(grant(&tickets, 0, 1, 1).step, 10);
    for (uint32_t piece = 0; piece < 3; piece++)
        assert_int_equal(grant(&tickets, 0, 1, 1).kind, TICKET_VALIDATE);
    assert_int_equal(grant(&tickets, 0, 1, 1).step, 11);
    assert_int_equal(grant(&tickets, 0, 1, 1).step, 12);
    grants_nothing(&tickets, 0, 1);
}

TEST(a_later_step_keeps_its_leases_when_the_oldest_closes)
{
    scoped(tickets_release) struct tickets tickets = overlapping(2, 2);
    struct lease late = grant(&tickets, 0, 1, 1);
    done(&tickets, 1, grant(&tickets, 0, 2, 1));
    struct lease kept = grant(&tickets, 2, 3, 1);
    assert_int_equal(kept.step, 11);
    done(&tickets, 3, grant(&tickets, 2, 4, 1));
    tickets_open(&tickets, (struct tickets_open){.step = 11, .steps = 2});
    tickets_check(&tickets);
    assert_null(tickets_find(&tickets, late.attempt));
    assert_int_equal(tickets_find(&tickets, kept.attempt)->member, 3);
    done(&tickets, 4, late); /* of a closed step: nothing */
    assert_false(tickets_all_done(&tickets, TICKET_TRAIN));
    done(&tickets, 4, kept);
    assert_true(tickets_all_done(&tickets, TICKET_TRAIN));
    struct lease next = grant(&tickets, 5, 1, 1);
    assert_int_equal(next.step, 12);
    expect_node(next, 0, 0);
}

TEST(a_rewind_opens_all_steps_anew)
{
    scoped(tickets_release) struct tickets tickets = overlapping(2, 1);
    done(&tickets, 1, grant(&tickets, 0, 1, 1));
    struct lease held = grant(&tickets, 0, 1, 1);
    tickets_open(&tickets, (struct tickets_open){0});
    tickets_check(&tickets);
    grants_nothing(&tickets, 2, 1);
    tickets_open(&tickets, (struct tickets_open){.step = 10, .steps = 2});
    tickets_check(&tickets);
    assert_null(tickets_find(&tickets, held.attempt));
    assert_int_equal(grant(&tickets, 3, 1, 1).step, 10);
    assert_int_equal(grant(&tickets, 3, 1, 1).step, 11);
}

static struct tickets stale(uint32_t staleness, uint32_t slots, uint32_t node_slots)
{
    struct tickets tickets = overlapping(staleness + 1, slots);
    struct tickets_settings settings = tickets.settings;
    settings.newest = true;
    settings.node_slots = node_slots;
    tickets_release(&tickets);
    assert_int_equal(tickets_init(&tickets, &settings), ERR_OK);
    tickets_open(&tickets,
                 (struct tickets_open){.version = 10, .step = 10, .steps = staleness + 1});
    return tickets;
}

TEST(p5_a_delayed_step_is_computed_exactly_so_far_behind)
{
    scoped(tickets_release) struct tickets tickets = overlapping(3, 1);
    uint8_t behind[1];
    assert_int_equal(grant(&tickets, 0, 1, 1).version, 8);
    assert_int_equal(grant(&tickets, 0, 1, 1).version, 9);
    assert_int_equal(tickets_behind(&tickets, behind), 2);
    assert_int_equal(behind[0], 2);
    tickets_open(&tickets, (struct tickets_open){0});
    tickets_open(&tickets, (struct tickets_open){.version = 1, .step = 1, .steps = 3});
    assert_int_equal(grant(&tickets, 0, 1, 1).version, 0); /* there is none before */
}

TEST(ssp_computes_a_slot_on_the_newest_version_when_it_is_first_granted)
{
    scoped(tickets_release) struct tickets tickets = stale(2, 2, 1);
    uint8_t behind[2];
    struct lease first = grant(&tickets, 0, 1, 1), second = grant(&tickets, 0, 2, 1);
    struct lease ahead = grant(&tickets, 0, 3, 1);
    assert_int_equal(first.version, 10);
    assert_int_equal(ahead.step, 11);
    assert_int_equal(ahead.version, 10);
    assert_int_equal(tickets_behind(&tickets, behind), 0);
    done(&tickets, 1, first);
    done(&tickets, 1, second);
    tickets_open(&tickets, (struct tickets_open){.version = 11, .step = 11, .steps = 3});
    tickets_check(&tickets);
    assert_int_equal(grant(&tickets, 2, 1, 1).version, 11); /* the other slot of step 11 */
    assert_int_equal(tickets_behind(&tickets, behind), 1);
    assert_int_equal(behind[0], 1);
    assert_int_equal(behind[1], 0);
}

TEST(p5_ssp_gives_a_slot_again_on_the_same_version)
{
    scoped(tickets_release) struct tickets tickets = stale(1, 2, 0);
    done(&tickets, 1, grant(&tickets, 0, 1, 1));  /* step 10 */
    struct lease lost = grant(&tickets, 1, 1, 2); /* a slot of step 11, on version 10 */
    tickets_open(&tickets, (struct tickets_open){.version = 11, .step = 11, .steps = 2});
    assert_int_equal(tickets_drop_member(&tickets, 0, 1), 1);
    struct lease again = grant(&tickets, 2, 2, 1); /* alone, yet not with its neighbour */
    expect_node(again, 0, lost.node.index);
    assert_int_equal(again.version, 10);
    struct lease neighbour = grant(&tickets, 2, 3, 1);
    expect_node(neighbour, 0, 1);
    assert_int_equal(neighbour.version, 11);
    struct lease speculative = grant(&tickets, 5000, 4, 9);
    while (!speculative.speculative)
        speculative = grant(&tickets, 5000, 4, 9);
    assert_int_equal(speculative.step, 11);
    assert_int_equal(speculative.version, speculative.node.index == 0 ? 10 : 11);
    tickets_check(&tickets);
}

TEST(speculation_names_the_step_of_the_slowest)
{
    scoped(tickets_release) struct tickets tickets = overlapping(2, 1);
    grant(&tickets, 0, 1, 2);
    done(&tickets, 20, grant(&tickets, 0, 2, 2));
    struct lease again = grant(&tickets, 100, 2, 2);
    assert_true(again.speculative);
    assert_int_equal(again.step, 10);
}

TEST_F(what_shards_never_saw_can_be_done_again, tickets, .slots = 2)
{
    done(&f->tickets, 1, grant(&f->tickets, 0, 1, 1));
    grants_nothing(&f->tickets, 2, 1);
    tickets_reopen(&f->tickets);
    tickets_check(&f->tickets);
    expect_node(grant(&f->tickets, 3, 2, 1), 1, 0);
    assert_int_equal(f->tickets.redone, 2);
}

TEST(training_may_go_back_to_older_steps)
{
    scoped(tickets_release) struct tickets tickets = {0};
    const struct tickets_settings settings = {
        .slots = 2, .open_steps = 2, .pieces = 1, .node_slots = 1, .leases_max = 8, .lease_ms = 9};
    assert_int_equal(tickets_init(&tickets, &settings), ERR_OK);
    tickets_open(&tickets, (struct tickets_open){.step = 5, .steps = 2, .validate = true});
    tickets_mark(&tickets, 5, 0, true);
    struct lease kept = grant(&tickets, 0, 1, 1); /* slot 1 of step 5 */
    struct lease piece = grant(&tickets, 0, 1, 1);
    assert_int_equal(piece.kind, TICKET_VALIDATE);
    tickets_move(&tickets, 4, 2);
    tickets_check(&tickets);
    assert_non_null(tickets_find(&tickets, kept.attempt));
    assert_non_null(tickets_find(&tickets, piece.attempt));
    assert_int_equal(grant(&tickets, 0, 2, 1).step, 4);
    tickets_mark(&tickets, 5, 0, false);
    tickets_mark(&tickets, 5, 0, false);
    tickets_check(&tickets);
    tickets_mark(&tickets, 4, 1, true);
    struct lease again = grant(&tickets, 0, 2, 1);
    assert_int_equal(again.step, 5);
    expect_node(again, 0, 0);
}

TEST(attempts_are_numbered_from_where_it_is_said)
{
    scoped(tickets_release) struct tickets tickets = {0};
    const struct tickets_settings settings = {
        .slots = 2, .open_steps = 1, .leases_max = 8, .attempts_first = UINT64_C(7) << 32};
    assert_int_equal(tickets_init(&tickets, &settings), ERR_OK);
    tickets_open(&tickets, (struct tickets_open){.steps = 1});
    assert_true(grant(&tickets, 0, 1, 1).attempt > UINT64_C(7) << 32);
}

TEST_F(a_unit_s_time_is_useful_once_and_what_else_was_leased_is_wasted, tickets, .slots = 4,
       .node_slots = 2)
{
    struct lease first = grant(&f->tickets, 100, 1, 2), second = grant(&f->tickets, 110, 2, 2);
    done(&f->tickets, 150, first);
    assert_int_equal(f->tickets.useful_ms, 50);
    tickets_drop_member(&f->tickets, 170, 2);
    assert_int_equal(f->tickets.wasted_ms, 60);
    second = grant(&f->tickets, 180, 1, 2);
    expect_node(second, 1, 1);
    tickets_done(&f->tickets, 190, &(struct ticket){.kind = TICKET_TRAIN, .node = {0, 2}});
    done(&f->tickets, 220, second); /* half of it was done already */
    assert_int_equal(f->tickets.useful_ms, 50 + 20);
    assert_int_equal(f->tickets.wasted_ms, 60 + 20);
    assert_int_equal(tickets_settle(&f->tickets, 300, f->tickets.step, NULL), 70);
}

TEST_F(a_step_that_is_over_credits_the_youngest_of_those_who_did_not_say_so, tickets, .slots = 2,
       .node_slots = 1)
{
    grant(&f->tickets, 0, 1, 3);
    grant(&f->tickets, 5, 2, 3);
    expect_node(grant(&f->tickets, LEASE_MS, 3, 3), 0, 0); /* the slowest one as well */
    assert_int_equal(tickets_settle(&f->tickets, LEASE_MS + 10, f->tickets.step, NULL),
                     10 + LEASE_MS + 5);
    tickets_check(&f->tickets);
    assert_int_equal(f->tickets.wasted_ms, LEASE_MS + 10);
    assert_int_equal(f->tickets.leases.count, 0);
    /* the second slot's; of the first one nobody knows who brought it */
    assert_true(f->tickets.train_usual_ms == LEASE_MS + 5);
    tickets_open(&f->tickets, (struct tickets_open){.step = 1, .steps = 1});
    assert_int_equal(tickets_settle(&f->tickets, LEASE_MS + 10, f->tickets.step, NULL), 0);
}

TEST_F(a_rewind_wastes_all_that_is_leased, tickets, .slots = 4, .node_slots = 1)
{
    grant(&f->tickets, 10, 1, 2);
    grant(&f->tickets, 20, 2, 2);
    tickets_drop_all(&f->tickets, 50);
    tickets_check(&f->tickets);
    assert_int_equal(f->tickets.wasted_ms, 40 + 30);
    assert_int_equal(f->tickets.train[0].free_count, 4);
}
