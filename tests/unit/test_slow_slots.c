/* Slots that suddenly take much longer than they usually do: made-up workers bring a run's steps. */
#include "tests/unit/unit.h"

#include "server/coordinator/tickets.h"

#include <math.h>

enum { LEASE_MS = 1000, WORKERS_MAX = 64, SLOTS_MAX = 64, COMPUTED_MAX = 1000 };

/* A worker computes its ticket to the end, though its lease lapses; one of a shared lease stops. */
struct slow_worker {
    struct lease lease; /* attempt 0: it is idle */
    double left_ms;
};

struct slow_slots_fixture {
    uint32_t workers, slots, cores; /* 0 cores: one for each worker */
    bool shared;
    bool sealed;    /* the step is over before its last worker says that its ticket is complete */
    double slot_ms; /* on a core of its own */
    struct tickets tickets;
    struct slow_worker list[WORKERS_MAX];
    double now_ms;
    uint64_t gangs; /* shared: a lease is held by a gang of its own */
    bool brought[SLOTS_MAX];
    uint32_t lapsed, computed; /* leases, slots: since the step began */
};

static void slow_slots_set_up(struct slow_slots_fixture *f)
{
    const struct tickets_settings settings = {.slots = f->slots,
                                              .open_steps = 1,
                                              .leases_max = 4 * WORKERS_MAX,
                                              .shared = f->shared,
                                              .lease_ms = LEASE_MS,
                                              .overdue_percent = 200,
                                              .overdue_ms_min = 100};
    assert_int_equal(tickets_init(&f->tickets, &settings), ERR_OK);
    tickets_open(&f->tickets, (struct tickets_open){.steps = 1});
}

static void slow_slots_tear_down(struct slow_slots_fixture *f)
{
    tickets_release(&f->tickets);
}

static double share_of(const struct slow_slots_fixture *f)
{
    uint32_t busy = 0;
    for (uint32_t i = 0; i < f->workers; i++)
        busy += f->list[i].lease.attempt != 0 ? 1 : 0;
    return f->cores == 0 || busy <= f->cores ? 1 : (double)f->cores / busy;
}

static void grant_all(struct slow_slots_fixture *f)
{
    for (uint32_t i = 0; i < f->workers; i++) {
        struct slow_worker *worker = &f->list[i];
        const struct lease *lease;
        uint64_t member = f->shared ? f->gangs + 1 : i + 1;
        if (worker->lease.attempt != 0 ||
            !tickets_grant(&f->tickets, (uint64_t)f->now_ms,
                           &(struct tickets_worker){member, 1, f->workers}, &lease))
            continue;
        f->gangs++;
        worker->lease = *lease;
        worker->left_ms = f->slot_ms * lease->slots;
        f->computed += lease->slots;
    }
}

/* Until something ends, lapses or is overdue. */
static void pass_time(struct slow_slots_fixture *f)
{
    uint64_t due_ms;
    assert_int_equal(tickets_lapse(&f->tickets, (uint64_t)f->now_ms, &due_ms), 0);
    uint64_t overdue_ms = tickets_overdue_ms(&f->tickets);
    double share = share_of(f), until_ms = (double)due_ms;
    if ((double)overdue_ms > f->now_ms && overdue_ms < due_ms)
        until_ms = (double)overdue_ms;
    for (uint32_t i = 0; i < f->workers; i++)
        if (f->list[i].lease.attempt != 0)
            until_ms = fmin(until_ms, f->now_ms + f->list[i].left_ms / share);
    for (uint32_t i = 0; i < f->workers; i++)
        f->list[i].left_ms -= (until_ms - f->now_ms) * share;
    f->now_ms = until_ms;
}

/* Servers have counted every slot. */
static bool is_over(const struct slow_slots_fixture *f)
{
    for (uint32_t i = 0; i < f->slots; i++)
        if (!f->brought[i])
            return false;
    return true;
}

static void bring(struct slow_slots_fixture *f, const struct lease *lease)
{
    if (lease->step != f->tickets.step)
        return;
    for (uint32_t i = 0; i < lease->slots; i++)
        f->brought[node_first(lease->node) + i] = true;
    if (f->sealed && is_over(f))
        return;
    tickets_done(&f->tickets, (uint64_t)f->now_ms,
                 &(struct ticket){.kind = TICKET_TRAIN,
                                  .step = lease->step,
                                  .node = lease->node,
                                  .attempt = lease->attempt,
                                  .member = lease->member});
}

static void end_all(struct slow_slots_fixture *f)
{
    uint64_t due_ms;
    for (uint32_t i = 0; i < f->workers; i++) {
        struct slow_worker *worker = &f->list[i];
        if (worker->lease.attempt == 0 || worker->left_ms > 1e-6)
            continue;
        bring(f, &worker->lease);
        worker->lease.attempt = 0;
    }
    f->lapsed += tickets_lapse(&f->tickets, (uint64_t)f->now_ms, &due_ms);
    for (uint32_t i = 0; f->shared && i < f->workers; i++)
        if (tickets_find(&f->tickets, f->list[i].lease.attempt) == NULL)
            f->list[i].lease.attempt = 0;
    tickets_check(&f->tickets);
}

static void make_step(struct slow_slots_fixture *f)
{
    f->lapsed = f->computed = 0;
    while (!is_over(f)) {
        assert_true(f->computed < COMPUTED_MAX);
        grant_all(f);
        pass_time(f);
        end_all(f);
    }
    uint64_t step = f->tickets.step + 1;
    tickets_settle(&f->tickets, (uint64_t)f->now_ms, f->tickets.step, NULL);
    tickets_open(&f->tickets, (struct tickets_open){.version = step, .step = step, .steps = 1});
    memset(f->brought, 0, sizeof f->brought);
    for (uint32_t i = 0; f->shared && i < f->workers; i++)
        f->list[i].lease.attempt = 0;
}

/* Five ordinary steps; from the next one on each slot takes that many times as long. */
static void become_slower(struct slow_slots_fixture *f, double times)
{
    for (int i = 0; i < 5; i++)
        make_step(f);
    assert_int_equal(f->lapsed, 0);
    f->slot_ms *= times;
    make_step(f);
    assert_true(f->lapsed > 0);
}

/* Each slot once, in the time that it takes. */
static void goes_on(struct slow_slots_fixture *f)
{
    for (int i = 0; i < 5; i++) {
        make_step(f);
        assert_int_equal(f->lapsed, 0);
        assert_int_equal(f->computed, f->slots);
    }
}

TEST_F(slots_that_take_20_times_as_long_lapse_in_one_step, slow_slots, .workers = 8, .slots = 16,
       .slot_ms = 100)
{
    become_slower(f, 20);
    assert_int_equal(f->computed, f->slots); /* P1: what lapsed counts */
    goes_on(f);
}

TEST_F(slots_that_take_2000_times_as_long_do, slow_slots, .workers = 8, .slots = 16, .slot_ms = 10)
{
    become_slower(f, 2000);
    assert_true(f->computed < 2 * f->slots);
    goes_on(f);
}

TEST_F(so_they_do_when_one_worker_is_alone, slow_slots, .workers = 1, .slots = 1, .slot_ms = 10)
{
    become_slower(f, 200);
    assert_int_equal(f->computed, 1);
    goes_on(f);
}

/* Who is given a slot again would take the processor from who has it. */
TEST_F(so_they_do_when_a_crowd_shares_two_cores, slow_slots, .workers = 50, .slots = 50, .cores = 2,
       .slot_ms = 10)
{
    become_slower(f, 200);
    assert_int_equal(f->computed, f->slots);
    goes_on(f);
}

/* Members stop when it lapses: what they did is lost, and each lease has twice the time. */
TEST_F(shared_leases_that_take_200_times_as_long_lapse_in_one_step, slow_slots, .workers = 8,
       .slots = 16, .slot_ms = 100, .shared = true)
{
    become_slower(f, 200);
    assert_true(f->computed < 4 * f->slots);
    goes_on(f);
}

/* The servers' seals are always faster than the last member's complete. */
TEST_F(so_does_a_shared_lease_that_is_a_whole_step, slow_slots, .workers = 1, .slots = 4,
       .slot_ms = 1, .shared = true, .sealed = true)
{
    become_slower(f, 1500);
    assert_int_equal(f->lapsed, 3); /* after 1, 2 and 4 s */
    goes_on(f);
}

TEST_F(so_does_a_lease_that_is_a_whole_step, slow_slots, .workers = 1, .slots = 4, .slot_ms = 1,
       .sealed = true)
{
    become_slower(f, 2000);
    assert_int_equal(f->computed, f->slots);
    goes_on(f);
}
