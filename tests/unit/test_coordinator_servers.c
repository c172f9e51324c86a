/* The coordinator: servers that are lost, and a successor. */
#include "tests/unit/coordinator_fixture.h"

/* ---- losing servers ---- */

TEST_F(a_lost_server_pauses_the_run_by_name, coordinator, .steps = 9, .workers = 1)
{
    lose_server(f, 1);
    assert_string_equal(status(f).reason, "server s1 is lost; waiting for it");
    assert_int_equal(acquire(f, f->worker, 1, 5000), ERR_OK);
    assert_null(seen(f, EFFECT_ANSWER));
}

TEST_F(the_same_boot_goes_on_where_it_was, coordinator, .steps = 9, .workers = 1)
{
    reduce_all(f, 0);
    assert_int_equal(say_committed(f, 0, 0), ERR_OK);
    lose_server(f, 1);
    hello(f, 1, f->generation);
    assert_int_equal(command(f, 1, SERVER_COMMIT)->commit.step, 0); /* it may have missed it */
    assert_null(command(f, 0, SERVER_COMMIT));
    assert_null(seen(f, EFFECT_STORE_REWIND));
    assert_int_equal(ticket_of(f, f->worker, 1).version, 1);
}

/* Each has another name, as machines of a cloud have. */
TEST_F(more_servers_come_and_go_than_can_be_known_at_once, coordinator, .steps = 9)
{
    lose_server(f, 1); /* of the run, and of its checkpoint: it is awaited */
    for (uint32_t i = 0; i < 2 * WIRE_SERVERS_MAX; i++) {
        uint64_t link;
        struct server_report report = {.kind = SERVER_HELLO, .boot = 5};
        snprintf(report.hello.name, sizeof report.hello.name, "spot-%u", i);
        assert_int_equal(coordinator_server_hello(f->coordinator, f->now_ms, &report, &link, NULL),
                         ERR_OK);
        look(f);
        coordinator_server_lost(f->coordinator, f->now_ms, link);
        look(f);
    }
    assert_string_equal(status(f).reason, "server s1 is lost; waiting for it");
    hello(f, 1, f->generation);
    step(f, 0);
}

/* Server 1 restarts; both are there afterwards, told to prepare. */
TEST_F(p3_a_new_boot_means_a_new_generation_from_the_newest_cut, coordinator, .steps = 9,
       .cut_every = 2)
{
    for (uint64_t i = 0; i < 3; i++)
        step(f, i);
    record_all(f, 2);
    restart_server(f, 1);
    const struct server_command *prepare = command(f, 1, SERVER_PREPARE);
    assert_int_equal(prepare->boot, f->boot[1]);
    assert_int_equal(prepare->prepare.generation, f->generation + 1);
    assert_true(prepare->prepare.from_cut);
    assert_int_equal(prepare->prepare.cut.generation, f->generation);
    assert_int_equal(prepare->prepare.cut.version, 2);
    assert_non_null(command(f, 0, SERVER_PREPARE));
    f->generation++;
    ready_all(f, 2);
    assert_int_equal(status(f).version, 2);
    assert_int_equal(status(f).counters.samples, 16);
    uint64_t worker = join(f);
    assert_int_equal(ticket_of(f, worker, 1).version, 2);
    step(f, 2);
    assert_int_equal(status(f).counters.samples, 24);
}

static enum err other_start(struct coordinator_fixture *f, uint64_t boot, struct reason *reason)
{
    const struct server_report other = {
        .kind = SERVER_HELLO, .boot = boot, .hello = {.name = "s1", .address = "elsewhere:1"}};
    uint64_t link;
    enum err err = coordinator_server_hello(f->coordinator, f->now_ms, &other, &link, reason);
    if (err == ERR_OK)
        f->link[1] = link;
    look(f);
    return err;
}

TEST_F(p3_another_server_of_a_name_that_answers_changes_nothing, coordinator, .steps = 9)
{
    struct reason reason;
    assert_int_equal(other_start(f, 3, &reason), ERR_BUSY);
    assert_non_null(command(f, 1, SERVER_ASK));
    assert_null(command(f, 0, SERVER_ASK));
    assert_int_equal(other_start(f, 3, &reason), ERR_BUSY); /* not asked again */
    assert_null(command(f, 1, SERVER_ASK));
    /* It may have been sent before it died. */
    assert_int_equal(report(f, 1, (struct server_report){.kind = SERVER_STATISTICS}), ERR_OK);
    assert_int_equal(other_start(f, 3, &reason), ERR_BUSY);
    assert_int_equal(report(f, 1, (struct server_report){.kind = SERVER_HELD}), ERR_OK);
    assert_int_equal(other_start(f, 3, &reason), ERR_NAME_TAKEN);
    assert_non_null(strstr(reason.text, "a server s1 of"));
    assert_int_equal(other_start(f, 300, &reason), ERR_BUSY); /* a third */
    assert_int_equal(status(f).generation, f->generation);
    step(f, 0);
}

TEST_F(a_server_that_speaks_other_versions_of_the_wire_is_refused_with_a_sentence, coordinator)
{
    static const struct {
        uint32_t oldest, newest;
        enum err err;
    } versions[] = {{1, WIRE_VERSION_MIN - 1, ERR_WIRE_VERSION}, /* too old */
                    {WIRE_VERSION + 1, 99, ERR_WIRE_VERSION},    /* too new */
                    {1, 99, ERR_OK},
                    {WIRE_VERSION_MIN, WIRE_VERSION, ERR_OK}};
    for (uint32_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        uint64_t link;
        struct reason reason = {0};
        struct server_report hello = {.kind = SERVER_HELLO, .boot = 5};
        snprintf(hello.hello.name, sizeof hello.hello.name, "server-%u", i);
        hello.hello.wire_version_min = versions[i].oldest;
        hello.hello.wire_version = versions[i].newest;
        assert_int_equal(
            coordinator_server_hello(f->coordinator, f->now_ms, &hello, &link, &reason),
            versions[i].err);
        look(f);
        assert_true(versions[i].err == ERR_OK ||
                    strstr(reason.text, "speaks the wire versions") != NULL);
    }
    struct coordinator_server server;
    assert_true(coordinator_server(f->coordinator, 1, &server));
    assert_false(coordinator_server(f->coordinator, 2, &server)); /* the refused are not known */
}

TEST_F(p3_a_restart_of_a_dead_server_is_welcome_at_once, coordinator, .steps = 9)
{
    assert_int_equal(other_start(f, 3, NULL), ERR_BUSY);
    lose_server(f, 1); /* its stream closes */
    assert_int_equal(other_start(f, 3, NULL), ERR_OK);
    assert_non_null(command(f, 1, SERVER_PREPARE));
}

TEST_F(p3_a_restart_of_a_server_that_is_silent_is_welcome_soon, coordinator, .steps = 9)
{
    assert_int_equal(other_start(f, 3, NULL), ERR_BUSY);
    f->now_ms += LEASE_MS / 2 - 1;
    assert_int_equal(other_start(f, 3, NULL), ERR_BUSY);
    f->now_ms++;
    uint64_t dead = f->link[1];
    assert_int_equal(other_start(f, 3, NULL), ERR_OK);
    assert_int_equal(seen(f, EFFECT_UNLINK)->link, dead);
    assert_non_null(command(f, 1, SERVER_PREPARE));
}

TEST_F(p10_a_rewind_is_stored_before_it_is_acted_on, coordinator, .steps = 9, .workers = 1)
{
    ticket_of(f, f->worker, 1);
    restart_server(f, 1);
    assert_int_equal(seen(f, EFFECT_STORE_REWIND)->generation, f->generation + 1);
    assert_true(place_of(f, EFFECT_STORE_REWIND) < place_of(f, EFFECT_COMMAND));
    assert_true(place_of(f, EFFECT_STORE_REWIND) < place_of(f, EFFECT_EXPEL));
    assert_int_equal(seen(f, EFFECT_EXPEL)->member, f->worker);
}

TEST_F(p10_a_parked_question_of_the_old_generation_is_answered_so, coordinator, .steps = 9,
       .whole_steps = true, .workers = 2)
{
    ticket_of(f, f->a, 1);
    assert_int_equal(acquire(f, f->b, 1, 60000), ERR_OK);
    restart_server(f, 1);
    assert_int_equal(seen(f, EFFECT_ANSWER)->answer.member, f->b);
    assert_int_equal(seen(f, EFFECT_ANSWER)->answer.err, ERR_OLD_GENERATION);
    assert_int_equal(status(f).members_lost, 0); /* they only join again */
}

/* Server 0 restarts, and the store has no room for the rewind. The cut of version 1 is pending. */
static void rewind_without_room(struct coordinator_fixture *f)
{
    step_cuts(f, 0, true);
    f->rewind = ERR_NO_SPACE;
    restart_server(f, 0);
    assert_non_null(seen(f, EFFECT_STORE_REWIND));
}

TEST_F(p10_a_rewind_waits_for_room_in_the_store, coordinator, .steps = 5, .cut_every = 1)
{
    rewind_without_room(f);
    assert_string_equal(status(f).reason, "it waits for room: the coordinator could not store "
                                          "generation 2: no space left on device");
    tick(f, 999);
    assert_null(seen(f, EFFECT_STORE_REWIND));
    tick(f, 1);
    assert_non_null(seen(f, EFFECT_STORE_REWIND));
    tick(f, 1999); /* the second time it waits twice as long */
    assert_null(seen(f, EFFECT_STORE_REWIND));
    f->rewind = ERR_OK;
    tick(f, 1);
    assert_int_equal(command(f, 0, SERVER_PREPARE)->prepare.generation, f->generation + 1);
    assert_int_equal(command(f, 1, SERVER_PREPARE)->prepare.cut.version, 0);
}

TEST_F(p10_while_a_rewind_waits_for_room_nothing_of_the_old_generation_counts, coordinator,
       .steps = 5, .cut_every = 1, .workers = 1)
{
    struct join_request request = join_request();
    rewind_without_room(f);
    assert_null(seen(f, EFFECT_EXPEL));
    assert_null(seen(f, EFFECT_COMMAND)); /* nobody has heard of the next one */
    for (uint32_t i = 0; i < SERVERS; i++)
        assert_int_equal(say_manifest(f, i, 1, ERR_OK), ERR_OLD_GENERATION);
    assert_int_equal(say_reduced(f, 1, 1, 1), ERR_OLD_GENERATION);
    assert_int_equal(say_committed(f, 1, 7), ERR_OLD_GENERATION); /* another coordinator's */
    assert_int_equal(say_unready(f, 1, ERR_CORRUPT), ERR_OLD_GENERATION);
    assert_int_equal(acquire(f, f->worker, 1, 5000), ERR_OK);
    assert_null(seen(f, EFFECT_ANSWER));
    assert_int_equal(ask_to_join(f, &request), ERR_NO_RUN);
    assert_null(coordinator_map(f->coordinator)); /* the next one's, under the old number */
    assert_int_equal(status(f).version, 1);
    assert_int_equal(status(f).cut.version, 0);
}

TEST_F(p10_a_rewind_that_waits_for_room_waits_for_its_servers, coordinator, .steps = 5,
       .cut_every = 1)
{
    rewind_without_room(f);
    f->rewind = ERR_OK;
    lose_server(f, 1);
    tick(f, 1000);
    assert_null(seen(f, EFFECT_STORE_REWIND));
    hello(f, 1, f->generation);
    assert_non_null(command(f, 0, SERVER_PREPARE));
    assert_non_null(command(f, 1, SERVER_PREPARE));
}

TEST_F(p10_a_run_that_stops_needs_no_rewind_that_waits_for_room, coordinator, .steps = 5,
       .cut_every = 1)
{
    rewind_without_room(f);
    assert_int_equal(coordinator_stop(f->coordinator, f->now_ms, "a test"), ERR_OK);
    look(f);
    assert_int_equal(status(f).state, RUN_STOPPED);
    assert_string_equal(status(f).reason, "a test; version 1 is dropped, the newest checkpoint is "
                                          "of version 0");
    tick(f, 1000);
    assert_null(seen(f, EFFECT_STORE_REWIND));
}

TEST_F(p9_manifests_of_before_a_rewind_do_not_count, coordinator, .steps = 9, .cut_every = 1)
{
    step(f, 0);
    assert_int_equal(say_manifest(f, 0, 1, ERR_OK), ERR_OK);
    restart_server(f, 1);
    assert_int_equal(say_manifest(f, 1, 1, ERR_OK), ERR_OLD_GENERATION);
    assert_int_equal(status(f).cut.version, 0);
}

TEST_F(both_servers_lost_wait_for_both, coordinator, .steps = 9)
{
    coordinator_server_lost(f->coordinator, f->now_ms, f->link[0]);
    restart_server(f, 1);
    assert_null(seen(f, EFFECT_STORE_REWIND));
    f->boot[0] += 7;
    hello(f, 0, 0);
    assert_int_equal(command(f, 0, SERVER_PREPARE)->boot, f->boot[0]);
    assert_int_equal(command(f, 1, SERVER_PREPARE)->boot, f->boot[1]);
}

TEST_F(a_server_that_restarts_while_it_prepares_prepares_again, coordinator, .plan = 9)
{
    start_preparing(f, &f->run, NULL);
    assert_int_equal(say_ready(f, 0, 0), ERR_OK);
    restart_server(f, 1);
    assert_int_equal(status(f).generation, f->generation + 1);
    assert_false(command(f, 1, SERVER_PREPARE)->prepare.from_cut);
}

TEST_F(a_server_that_lost_the_run_without_a_new_boot_rewinds_too, coordinator, .steps = 9)
{
    lose_server(f, 1);
    hello(f, 1, 0);
    assert_non_null(seen(f, EFFECT_STORE_REWIND));
}

TEST_F(a_prepare_that_may_be_lost_is_said_again, coordinator, .plan = 9)
{
    start_preparing(f, &f->run, NULL);
    uint64_t generation = status(f).generation;
    lose_server(f, 1);
    hello(f, 1, 0);
    assert_int_equal(command(f, 1, SERVER_PREPARE)->prepare.generation, generation);
}

/* ---- a successor ---- */

static struct coordinator_past past_of(uint64_t generation, struct cut_name cut)
{
    struct coordinator_past past = {.generation = generation, .has_fingerprint = true};
    past.fingerprint[0] = 5;
    past.cut.name = cut;
    past.cut.counters = (struct seal_counters){.samples = 8 * cut.version, .applied = cut.version};
    return past;
}

TEST_F(p7_a_new_coordinator_rewinds_before_it_decides, coordinator, .plan = 9)
{
    struct coordinator_past past = past_of(4, (struct cut_name){3, 6});
    hello(f, 0, 4); /* both still hold the old generation */
    hello(f, 1, 4);
    begin(f, &f->run, &past);
    assert_int_equal(seen(f, EFFECT_STORE_REWIND)->generation, 5);
    assert_int_equal(command(f, 0, SERVER_PREPARE)->prepare.cut.version, 6);
    f->generation = 5;
    ready_all(f, 6);
    step(f, 6);
    assert_int_equal(status(f).counters.samples, 8 * 7);
}

/* Two of three servers are there; the third had drained when the newest cut was written. */
static void start_with_two_of_three(struct coordinator_fixture *f, bool restarts)
{
    struct coordinator_run run = run_of(10);
    struct coordinator_past past = past_of(4, (struct cut_name){3, 6});
    past.cut.server_count = 2;
    snprintf(past.cut.servers[0].name, sizeof past.cut.servers[0].name, "s0");
    snprintf(past.cut.servers[1].name, sizeof past.cut.servers[1].name, "s1");
    run.servers_min = 3;
    run.restarts = restarts;
    assert_int_equal(coordinator_start(f->coordinator, f->now_ms, &run, &past, NULL), ERR_OK);
    hello(f, 0, 0);
    assert_null(command(f, 0, SERVER_PREPARE));
    hello(f, 1, 0);
}

TEST_F(a_restart_does_not_wait_for_more_servers_than_its_checkpoint_has, coordinator)
{
    start_with_two_of_three(f, true);
    assert_non_null(command(f, 0, SERVER_PREPARE));
}

/* A checkpoint may be older than a drain, which nobody remembers. */
TEST_F(who_waits_for_a_server_that_may_be_gone_for_good_says_which_one_and_what_helps, coordinator)
{
    struct coordinator_run run = run_of(10);
    struct coordinator_past past = past_of(4, (struct cut_name){3, 6});
    past.cut.server_count = 2;
    snprintf(past.cut.servers[0].name, sizeof past.cut.servers[0].name, "s1");
    snprintf(past.cut.servers[1].name, sizeof past.cut.servers[1].name, "s2");
    run.servers_min = 2;
    run.restarts = true;
    assert_int_equal(coordinator_start(f->coordinator, f->now_ms, &run, &past, NULL), ERR_OK);
    assert_string_equal(status(f).reason, "servers connected: 0 of 2");
    hello(f, 1, 0);
    tick(f, LEASE_MS);
    assert_string_equal(status(f).reason,
                        "servers connected: 1 of 2; if s2 of the newest checkpoint never comes, "
                        "`roost drain s2 --lost` goes on without it");
}

/* A checkpoint that was taken from its directory does not say who wrote its files. */
TEST_F(no_server_without_a_name_is_given_up, coordinator, .plan = 9)
{
    struct coordinator_past past = past_of(4, (struct cut_name){3, 6});
    struct reason reason;
    past.cut.server_count = SERVERS; /* none of which has a name */
    hello(f, 0, 0);
    begin(f, &f->run, &past);
    assert_int_equal(coordinator_give_up(f->coordinator, f->now_ms, "", &reason), ERR_NOT_FOUND);
}

TEST_F(an_operator_who_resumes_says_how_many_servers_there_are_to_be, coordinator)
{
    start_with_two_of_three(f, false);
    assert_null(command(f, 0, SERVER_PREPARE));
    assert_int_equal(status(f).state, RUN_STARTING);
}

TEST_F(a_stored_fingerprint_is_still_demanded, coordinator, .plan = 9)
{
    struct coordinator_past past = past_of(4, (struct cut_name){3, 6});
    struct join_request request = join_request();
    hello(f, 0, 0);
    hello(f, 1, 0);
    begin(f, &f->run, &past);
    request.fingerprint[0] = 77;
    assert_int_equal(ask_to_join(f, &request), ERR_FINGERPRINT);
}

TEST_F(a_generation_is_above_all_that_any_server_ever_held, coordinator, .plan = 9)
{
    hello(f, 0, 41); /* of a cluster whose store was lost */
    hello(f, 1, 0);
    begin(f, &f->run, NULL);
    assert_int_equal(command(f, 0, SERVER_PREPARE)->prepare.generation, 42);
}

TEST_F(a_generation_is_above_all_that_any_server_has_prepared, coordinator, .plan = 9)
{
    struct server_report holds_nothing = {
        .kind = SERVER_HELLO, .boot = f->boot[0], .hello = {.name = "s0", .prepared = 41}};
    assert_int_equal(
        coordinator_server_hello(f->coordinator, f->now_ms, &holds_nothing, &f->link[0], NULL),
        ERR_OK);
    hello(f, 1, 0);
    begin(f, &f->run, NULL);
    assert_int_equal(command(f, 0, SERVER_PREPARE)->prepare.generation, 42);
}

TEST_F(a_run_that_had_ended_ends_again_when_it_is_continued, coordinator, .plan = 6)
{
    struct coordinator_past past = past_of(4, (struct cut_name){3, 6});
    start_preparing(f, &f->run, &past);
    f->generation = 5;
    ready_all(f, 6);
    assert_int_equal(status(f).state, RUN_ENDED);
}

TEST_F(a_server_without_a_run_is_told_that_there_is_nothing_to_hold, coordinator)
{
    hello(f, 0, 7); /* it missed the end */
    assert_non_null(command(f, 0, SERVER_END));
    hello(f, 1, 0);
    assert_non_null(command(f, 1, SERVER_END));
}

TEST_F(statistics_are_kept, coordinator, .steps = 9)
{
    struct coordinator_server server;
    struct server_report statistics = {.kind = SERVER_STATISTICS};
    statistics.statistics.duplicates = 3;
    statistics.statistics.audited = 2;
    assert_int_equal(report(f, 1, statistics), ERR_OK);
    assert_true(coordinator_map_server(f->coordinator, 1, &server));
    assert_int_equal(server.duplicates, 3);
    assert_int_equal(server.audited, 2);
    assert_int_equal(server.chunk_count, 1);
    assert_int_equal(coordinator_map(f->coordinator)->range_count, 2);
}
