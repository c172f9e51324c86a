/* The coordinator of an async run. */
#include "tests/unit/coordinator_fixture.h"

/* ---- async ---- */

static enum err complete_so(struct coordinator_fixture *f, uint64_t member, uint64_t number,
                            const uint64_t *boots, enum err outcome)
{
    const struct ticket ticket = {.kind = TICKET_TRAIN,
                                  .generation = f->generation,
                                  .step = number / SLOTS,
                                  .node = {0, (uint32_t)(number % SLOTS)},
                                  .attempt = 1000 + number};
    struct complete_request request = {.member = member,
                                       .secret = secret_of(member),
                                       .ticket = sign(ticket, member),
                                       .outcome = outcome,
                                       .boot_count = SERVERS,
                                       .boots = boots};
    return say_complete(f, &request);
}

static enum err complete_boots(struct coordinator_fixture *f, uint64_t member, uint64_t number,
                               const uint64_t *boots)
{
    return complete_so(f, member, number, boots, ERR_OK);
}

static void complete_tickets(struct coordinator_fixture *f, uint64_t member, uint64_t first,
                             uint64_t last)
{
    for (uint64_t number = first; number <= last; number++)
        assert_int_equal(complete_boots(f, member, number, f->boot), ERR_OK);
}

/* What a worker that joins now is granted; UINT64_MAX: nothing. */
static uint64_t granted(struct coordinator_fixture *f)
{
    uint64_t member = join(f), number = UINT64_MAX;
    assert_int_equal(acquire(f, member, 1, 0), ERR_OK);
    struct acquire_reply reply = answer(f, member);
    if (reply.result == ACQUIRE_TICKET)
        number = reply.ticket.step * SLOTS + reply.ticket.node.index;
    assert_int_equal(leave(f, member, "enough"), ERR_OK);
    look(f);
    return number;
}

static enum err say_taken(struct coordinator_fixture *f, uint32_t i, uint64_t version, uint64_t low,
                          uint64_t bits)
{
    struct server_report ready = {.kind = SERVER_READY};
    ready.ready.cut = (struct cut_name){f->generation, version};
    ready.ready.applied_low = low;
    ready.ready.applied_words = 1;
    ready.ready.applied = &bits;
    return report(f, i, ready);
}

TEST_F(async_grants_as_far_as_the_window_and_one_step_ahead_of_commits, coordinator, .steps = 5,
       .async = true, .workers = 1)
{
    for (uint64_t i = 0; i < 8; i++) {
        struct ticket ticket = ticket_of(f, f->worker, 1 + i);
        assert_int_equal(ticket.step * SLOTS + ticket.node.index, i);
    }
    assert_int_equal(granted(f), UINT64_MAX);
    complete_tickets(f, f->worker, 1, 3);
    assert_int_equal(granted(f), UINT64_MAX); /* 0 is not done */
    complete_tickets(f, f->worker, 0, 0);
    assert_int_equal(granted(f), 8); /* no commit was needed */
    complete_tickets(f, f->worker, 4, 11);
    assert_int_equal(granted(f), UINT64_MAX);
    reduce_all(f, 0);
    assert_int_equal(granted(f), 12);
    commit_all(f, 0);
}

TEST_F(p12_a_complete_that_names_an_older_boot_does_not_count, coordinator, .steps = 5,
       .async = true, .workers = 1)
{
    const uint64_t older[] = {f->boot[0], f->boot[1] - 1};
    assert_int_equal(complete_boots(f, f->worker, 0, older), ERR_OK);
    assert_int_equal(granted(f), 0);
    complete_tickets(f, f->worker, 0, 0);
    assert_int_equal(granted(f), 1);
}

TEST_F(p12_a_new_boot_begins_alone_and_what_it_lost_is_granted_again, coordinator, .steps = 5,
       .async = true)
{
    uint64_t worker = join(f), generation = f->generation;
    complete_tickets(f, worker, 0, 5);
    assert_int_equal(granted(f), 6);
    restart_server(f, 1);
    assert_null(command(f, 0, SERVER_PREPARE));
    const struct server_command *prepare = command(f, 1, SERVER_PREPARE);
    assert_non_null(prepare);
    assert_int_equal(prepare->prepare.generation, generation);
    assert_true(prepare->prepare.from_cut);
    assert_int_equal(say_taken(f, 1, 0, 1, 1 << 1), ERR_OK); /* it has 0 and 2 */
    assert_int_equal(status(f).generation, generation);
    assert_int_equal(granted(f), 1);
    complete_tickets(f, worker, 1, 1);
    assert_int_equal(granted(f), 3);
    complete_tickets(f, worker, 3, 4);
    assert_int_equal(granted(f), 5);
}

TEST_F(p12_tickets_of_steps_that_are_committed_are_granted_again_too, coordinator, .steps = 5,
       .async = true, .workers = 1)
{
    complete_tickets(f, f->worker, 0, 7);
    step(f, 0);
    step(f, 1);
    assert_int_equal(granted(f), 8);
    restart_server(f, 0);
    assert_int_equal(say_taken(f, 0, 0, 2, 0), ERR_OK);
    assert_int_equal(command(f, 0, SERVER_COMMIT)->commit.step, 1); /* where the run is */
    assert_int_equal(status(f).version, 2);
    assert_int_equal(granted(f), 2);
    complete_tickets(f, f->worker, 2, 7);
    assert_int_equal(granted(f), 8);
    say_committed(f, 0, 1);
    step(f, 2);
    assert_int_equal(status(f).version, 3);
}

/* Its old grants are of this generation and term. */
TEST_F(p12_who_has_ended_brings_nothing_to_a_server_that_lacks_its_steps_again, coordinator,
       .plan = 9, .async = true)
{
    f->run.cut_every = 3;
    start(f, &f->run);
    const uint64_t gone = join_named(f, "a");
    assert_int_equal(leave(f, gone, "enough"), ERR_OK);
    for (uint64_t i = 0; i < 2; i++)
        step(f, i);
    restart_server(f, 1); /* from the cut of version 0 */
    const struct server_command *told = command(f, 1, SERVER_ENDED);
    assert_non_null(told);
    assert_int_equal(told->ended.member_count, 1);
    assert_int_equal(told->ended.members[0], gone);
    assert_true(told->ended.step > 1); /* it hears of commit(1) before it has the tickets */
    assert_int_equal(say_taken(f, 1, 0, 8, 0), ERR_OK);
    say_committed(f, 1, 1);
    step_cuts(f, 2, true);
    record_all(f, 3);
    restart_server(f, 1);
    assert_null(command(f, 1, SERVER_ENDED));
}

TEST_F(p12_what_a_lost_boot_said_was_reduced_is_forgotten, coordinator, .steps = 5, .async = true)
{
    assert_int_equal(say_reduced(f, 1, 0, 1), ERR_OK);
    restart_server(f, 1);
    assert_int_equal(say_taken(f, 1, 0, 0, 0), ERR_OK);
    assert_int_equal(say_reduced(f, 0, 0, 1), ERR_OK);
    assert_int_equal(status(f).version, 0);
    assert_int_equal(say_reduced(f, 1, 0, 1), ERR_OK);
    assert_int_equal(status(f).version, 1);
}

TEST_F(p12_a_new_generation_knows_what_all_servers_have, coordinator, .plan = 5, .async = true)
{
    struct coordinator_past past = {
        .generation = 4,
        .cut = {.name = {4, 1}, .server_count = 2, .servers = {{"s0", {0}}, {"s1", {0}}}}};
    start_preparing(f, &f->run, &past);
    assert_int_equal(say_taken(f, 0, 1, 6, 1 << 3), ERR_OK);
    assert_int_equal(say_taken(f, 1, 1, 5, 1 << 4), ERR_OK); /* 9 */
    assert_int_equal(status(f).state, RUN_TRAINING);
    assert_int_equal(granted(f), 5);
    uint64_t worker = join(f);
    complete_tickets(f, worker, 5, 8);
    assert_int_equal(granted(f), 10);
}

/* Of steps 1 and 2, beside tickets of step 3. */
TEST_F(samples_that_servers_read_again_are_known_when_training_begins, coordinator, .plan = 5,
       .async = true)
{
    struct coordinator_past past = {
        .generation = 4,
        .cut = {.name = {4, 1}, .server_count = 2, .servers = {{"s0", {0}}, {"s1", {0}}}}};
    start_preparing(f, &f->run, &past);
    assert_int_equal(status(f).read_again, 0);
    assert_int_equal(say_taken(f, 0, 1, 13, 0), ERR_OK);
    assert_int_equal(say_taken(f, 1, 1, 14, 0), ERR_OK);
    assert_int_equal(status(f).state, RUN_TRAINING);
    assert_int_equal(status(f).read_again, 2 * SLOTS * f->run.slot_samples);
    step(f, 1);
    assert_int_equal(status(f).read_again, SLOTS * f->run.slot_samples);
}

TEST_F(p12_what_all_servers_have_of_the_windows_last_step_is_not_granted, coordinator, .plan = 5,
       .async = true)
{
    struct coordinator_past past = {
        .generation = 4,
        .cut = {.name = {4, 1}, .server_count = 2, .servers = {{"s0", {0}}, {"s1", {0}}}}};
    start_preparing(f, &f->run, &past);
    for (uint32_t i = 0; i < SERVERS; i++)
        assert_int_equal(say_taken(f, i, 1, 5, 1 << 4), ERR_OK); /* 9 */
    uint64_t worker = join(f);
    for (uint64_t i = 0; i < 4; i++) {
        struct ticket ticket = ticket_of(f, worker, 1 + i);
        assert_int_equal(ticket.step * SLOTS + ticket.node.index, 5 + i);
    }
    assert_int_equal(granted(f), 10);
}

TEST_F(p12_a_successor_waits_for_the_servers_of_the_cut, coordinator, .plan = 5, .async = true)
{
    struct coordinator_past past = {.generation = 4, .cut = {.name = {4, 1}, .server_count = 1}};
    snprintf(past.cut.servers[0].name, sizeof past.cut.servers[0].name, "s1");
    f->run.servers_min = 1;
    f->run.restarts = true;
    hello(f, 1, 4);
    lose_server(f, 1);
    hello(f, 0, 0); /* enough, but s1 may be alive and acknowledge pushes */
    begin(f, &f->run, &past);
    assert_null(command(f, 0, SERVER_PREPARE));
    hello(f, 1, 4);
    assert_int_equal(command(f, 1, SERVER_PREPARE)->prepare.cut.version, 1);
}

TEST_F(p12_an_operator_who_resumes_answers_for_the_servers_of_the_cut, coordinator, .plan = 5,
       .async = true)
{
    struct coordinator_past past = {.generation = 4, .cut = {.name = {4, 1}, .server_count = 1}};
    snprintf(past.cut.servers[0].name, sizeof past.cut.servers[0].name, "s1");
    f->run.servers_min = 1;
    hello(f, 0, 0);
    begin(f, &f->run, &past);
    assert_int_equal(command(f, 0, SERVER_PREPARE)->prepare.cut.version, 1);
}

TEST_F(p12_who_lost_its_memory_writes_no_second_file_of_a_cut, coordinator, .plan = 5,
       .async = true)
{
    f->run.cut_every = 2;
    start(f, &f->run);
    step(f, 0);
    step_cuts(f, 1, true);
    assert_int_equal(say_manifest(f, 1, 2, ERR_OK), ERR_OK); /* s1 has written its file */
    restart_server(f, 1);
    assert_int_equal(say_taken(f, 1, 0, 0, 0), ERR_OK);
    const struct server_command *again = command(f, 1, SERVER_COMMIT);
    assert_int_equal(again->commit.step, 1);
    assert_false(again->commit.cut);
    say_committed(f, 1, 1);
    assert_int_equal(say_manifest(f, 0, 2, ERR_OK), ERR_OK);
    assert_int_equal(status(f).cut.version, 0); /* one file is older than the other's answers */
    reduce_all(f, 2);
    assert_true(command(f, 1, SERVER_COMMIT)->commit.cut); /* at once, not at the interval */
    commit_all(f, 2);
    record_all(f, 3);
    assert_int_equal(status(f).cut.version, 3);
}

TEST_F(async_words_that_shards_do_not_bear_out_are_doubted, coordinator, .steps = 5, .async = true,
       .workers = 1)
{
    complete_tickets(f, f->worker, 0, 3);
    assert_int_equal(granted(f), 4);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(coordinator_heartbeat(f->coordinator, f->now_ms, f->worker), ERR_OK);
        tick(f, LEASE_MS / 2);
    }
    assert_int_equal(granted(f), 0);
}

/* The seals are there before the worker's words. */
TEST_F(async_a_steps_last_tickets_are_credited_when_the_servers_are_faster, coordinator, .steps = 5,
       .async = true, .workers = 1)
{
    for (uint64_t i = 0; i < SLOTS; i++)
        assert_int_equal(ticket_of(f, f->worker, 1 + i).node.index, i);
    const struct ticket next = ticket_of(f, f->worker, 1 + SLOTS); /* of a step that stays open */
    assert_int_equal(next.step, 1);
    f->now_ms += 40;
    reduce_all(f, 0);
    assert_int_equal(status(f).last_step.slot_ms, SLOTS * 40);
    assert_int_equal(status(f).wasted_ms, 0);
    commit_all(f, 0);
    f->now_ms += 10;
    reduce_all(f, 1);
    assert_int_equal(status(f).last_step.slot_ms, 50);
}

/* Nobody completes anything for a lease. */
static uint64_t asked(struct coordinator_fixture *f)
{
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(coordinator_heartbeat(f->coordinator, f->now_ms, f->worker), ERR_OK);
        tick(f, LEASE_MS / 2);
    }
    const struct server_command *question = command(f, 0, SERVER_ASK_MISSING);
    assert_non_null(question);
    return question->ask_missing.question;
}

static enum err say_missing(struct coordinator_fixture *f, uint64_t question, uint64_t step,
                            uint64_t slots)
{
    struct server_report missing = {.kind = SERVER_MISSING};
    missing.missing.generation = f->generation;
    missing.missing.step = step;
    missing.missing.question = question;
    missing.missing.word_count = 1;
    missing.missing.slots = &slots;
    return report(f, 0, missing);
}

TEST_F(async_who_completes_twice_what_servers_lack_is_expelled, coordinator, .steps = 5,
       .async = true, .workers = 1)
{
    complete_tickets(f, f->worker, 0, 7); /* and has not pushed 2 and 5 */
    assert_int_equal(say_missing(f, asked(f), 0, 1 << 2), ERR_OK);
    assert_null(seen(f, EFFECT_EXPEL));
    assert_int_equal(granted(f), 2);
    complete_tickets(f, f->worker, 2, 2);
    reduce_all(f, 0);
    commit_all(f, 0);
    assert_int_equal(granted(f), 8);
    assert_int_equal(say_missing(f, asked(f), 1, 1 << 1), ERR_OK);
    assert_non_null(seen(f, EFFECT_EXPEL));
    const struct ticket again = ticket_of(f, join_named(f, "honest"), 1);
    assert_int_equal(again.step * SLOTS + again.node.index, 5);
}

TEST_F(p12_what_a_new_boot_lost_was_pushed, coordinator, .steps = 5, .async = true, .workers = 1)
{
    complete_tickets(f, f->worker, 0, 7);
    restart_server(f, 0);
    assert_int_equal(coordinator_heartbeat(f->coordinator, f->now_ms, f->worker), ERR_OK);
    tick(f, LEASE_MS);
    assert_null(command(f, 0, SERVER_ASK_MISSING)); /* it has not said yet what it has */
    const struct server_command *other = command(f, 1, SERVER_ASK_MISSING);
    assert_non_null(other);
    uint64_t question = other->ask_missing.question;
    assert_int_equal(say_taken(f, 0, 0, 2, 0), ERR_OK);
    assert_int_equal(granted(f), 2);
    assert_int_equal(say_missing(f, question, 0, 3 << 2), ERR_OK);
    assert_null(seen(f, EFFECT_LOG));
    assert_int_equal(granted(f), 2);
}

/* Two steps are committed, and server 0 comes back with the first two tickets alone. */
static void lose_committed(struct coordinator_fixture *f)
{
    complete_tickets(f, f->worker, 0, 7);
    step(f, 0);
    step(f, 1);
    restart_server(f, 0);
    assert_int_equal(say_taken(f, 0, 0, 2, 0), ERR_OK);
    say_committed(f, 0, 1);
}

/* Slots of a step, not the tickets behind it. */
TEST_F(async_nobody_lacks_a_slot_that_the_step_has_not, coordinator, .steps = 5, .async = true,
       .workers = 1)
{
    lose_committed(f);
    complete_tickets(f, f->worker, 2, 7);
    assert_int_equal(say_missing(f, 0, 0, 1 << SLOTS), ERR_MALFORMED);
    assert_int_equal(granted(f), 8);
}

TEST_F(p12_what_is_missing_of_committed_steps_is_granted_again, coordinator, .steps = 5,
       .async = true, .workers = 1)
{
    lose_committed(f);
    complete_tickets(f, f->worker, 2, 11); /* and has not pushed 3 */
    assert_int_equal(say_missing(f, asked(f), 0, 1 << 3), ERR_OK);
    assert_int_equal(granted(f), 3);
    complete_tickets(f, f->worker, 3, 3);
    assert_int_equal(granted(f), 12);
}

/* The ticket that is missing keeps the server's window where it is: all that is granted next is
 * beyond it. */
TEST_F(p12_what_is_missing_is_asked_for_when_a_ticket_is_beyond_a_window, coordinator, .steps = 5,
       .async = true, .workers = 1)
{
    lose_committed(f);
    complete_tickets(f, f->worker, 2, 7); /* and has not pushed 2 */
    assert_int_equal(granted(f), 8);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(complete_so(f, f->worker, 8, f->boot, ERR_BEYOND), ERR_OK);
        tick(f, 0);
        assert_true((command(f, 0, SERVER_ASK_MISSING) != NULL) == (i == 0)); /* no storm */
    }
    assert_int_equal(coordinator_heartbeat(f->coordinator, f->now_ms, f->worker), ERR_OK);
    tick(f, 100); /* a heartbeat */
    const struct server_command *question = command(f, 0, SERVER_ASK_MISSING);
    assert_non_null(question);
    assert_int_equal(say_missing(f, question->ask_missing.question, 0, 1 << 2), ERR_OK);
    assert_int_equal(granted(f), 2);
}

TEST_F(async_a_run_ends_with_its_last_cut_and_rewinds_when_that_is_lost, coordinator, .steps = 1,
       .async = true)
{
    uint64_t generation = f->generation;
    reduce_all(f, 0); /* before the workers' words came */
    assert_true(command(f, 0, SERVER_COMMIT)->commit.cut);
    commit_all(f, 0);
    restart_server(f, 0);
    assert_int_equal(command(f, 1, SERVER_PREPARE)->prepare.generation, generation + 1);
    f->generation++;
    assert_int_equal(say_taken(f, 0, 0, 0, 0), ERR_OK);
    assert_int_equal(say_taken(f, 1, 0, 0, 0), ERR_OK);
    reduce_all(f, 0);
    commit_all(f, 0);
    record_all(f, 1);
    assert_int_equal(status(f).state, RUN_ENDED);
}

/* Resumed with the steps that it has: its servers have tickets of the two after these, as far as the
 * window went. */
TEST_F(async_a_run_that_is_resumed_with_the_steps_that_it_has_is_over, coordinator, .plan = 2,
       .async = true)
{
    struct coordinator_past past = {
        .generation = 4,
        .cut = {.name = {4, 2}, .server_count = 2, .servers = {{"s0", {0}}, {"s1", {0}}}}};
    start_preparing(f, &f->run, &past);
    assert_int_equal(say_taken(f, 0, 2, 2 * SLOTS + 3, 1 << 2), ERR_OK);
    assert_int_equal(say_taken(f, 1, 2, 2 * SLOTS + 1, 1 << 1), ERR_OK);
    assert_int_equal(status(f).state, RUN_ENDED);
}

/* One step more than it has: what servers have of the one after that is not asked for. */
TEST_F(async_a_run_is_resumed_with_fewer_steps_than_its_servers_took_tickets_of, coordinator,
       .plan = 3, .async = true)
{
    struct coordinator_past past = {
        .generation = 4,
        .cut = {.name = {4, 2}, .server_count = 2, .servers = {{"s0", {0}}, {"s1", {0}}}}};
    start_preparing(f, &f->run, &past);
    assert_int_equal(say_taken(f, 0, 2, 3 * SLOTS + 2, 1 << 3), ERR_OK);
    assert_int_equal(say_taken(f, 1, 2, 3 * SLOTS - 1, 1 << 2), ERR_OK);
    assert_int_equal(status(f).state, RUN_TRAINING);
    assert_int_equal(granted(f), 3 * SLOTS - 1);
    step(f, 2);
    record_all(f, 3);
    assert_int_equal(status(f).state, RUN_ENDED);
}

TEST_F(async_a_bitmap_of_no_such_run_is_malformed, coordinator, .steps = 5, .async = true)
{
    restart_server(f, 1);
    assert_int_equal(say_taken(f, 1, 0, 3, 1), ERR_MALFORMED);
    assert_int_equal(say_taken(f, 1, 0, 3, 0), ERR_OK);
}
