/* The daemons that the coordinator knows. */
#include "tests/unit/unit.h"

#include "server/coordinator/servers.h"

struct servers_fixture {
    struct servers list;
};

static void servers_set_up(struct servers_fixture *f)
{
    assert_int_equal(servers_init(&f->list), ERR_OK);
}

static void servers_tear_down(struct servers_fixture *f)
{
    servers_release(&f->list);
}

static struct server_entry *hello(struct servers *servers, const char *name, uint64_t boot)
{
    struct server_report report = {.kind = SERVER_HELLO, .boot = boot};
    struct server_entry *server;
    uint64_t older;
    snprintf(report.hello.name, sizeof report.hello.name, "%s", name);
    snprintf(report.hello.address, sizeof report.hello.address, "%s:%u", name, (unsigned)boot);
    assert_int_equal(servers_hello(servers, &report, &server, &older), ERR_OK);
    return server;
}

TEST_F(a_name_is_known_once_whatever_its_boot, servers)
{
    struct server_entry *first = hello(&f->list, "a", 1);
    uint64_t link = first->link;
    struct server_entry *again = hello(&f->list, "a", 2);
    assert_ptr_equal(first, again);
    assert_int_equal(again->boot, 2);
    assert_string_equal(again->address, "a:2");
    assert_null(servers_find(&f->list, link)); /* the older link is dead */
    assert_ptr_equal(servers_find(&f->list, again->link), again);
    assert_null(servers_find(&f->list, 0));
}

TEST_F(a_runs_servers_are_numbered_by_their_names, servers)
{
    hello(&f->list, "c", 1);
    hello(&f->list, "a", 1);
    servers_lost(hello(&f->list, "b", 1)); /* not connected: not chosen */
    assert_int_equal(servers_available(&f->list, NULL), 2);
    assert_int_equal(servers_choose(&f->list), 2);
    assert_string_equal(servers_of_map(&f->list, 0)->name, "a");
    assert_string_equal(servers_of_map(&f->list, 1)->name, "c");
    assert_int_equal(servers_of_map(&f->list, 1)->map_index, 1);
    servers_unchoose(&f->list);
    assert_int_equal(f->list.chosen_count, 0);
    for (uint32_t i = 0; i < f->list.count; i++)
        assert_int_equal(f->list.list[i].map_index, SERVERS_NONE);
}

TEST_F(there_is_a_last_server, servers)
{
    struct server_report report = {.kind = SERVER_HELLO, .hello.name = "one more"};
    struct server_entry *server;
    uint64_t older;
    for (uint32_t i = 0; i < WIRE_SERVERS_MAX; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%u", i);
        hello(&f->list, name, 1);
    }
    assert_int_equal(servers_hello(&f->list, &report, &server, &older), ERR_BUSY);
    hello(&f->list, "s7", 2); /* a known one may always come back */
    assert_false(servers_forget_gone(servers_named(&f->list, "s7"))); /* it is connected */
    servers_lost(servers_named(&f->list, "s7"));
    assert_true(servers_forget_gone(servers_named(&f->list, "s7")));
    assert_int_equal(servers_hello(&f->list, &report, &server, &older), ERR_OK);
    assert_null(servers_named(&f->list, "s7"));
}

static void choose_and_prepare(struct servers *servers, struct server_entry *server)
{
    assert_true(servers_choose_one(servers, server));
    assert_int_equal(server->state, SERVER_IS_CHOSEN);
    servers_prepare(server);
    servers_note_ready(server);
    assert_int_equal(server->state, SERVER_SERVES);
    assert_true(servers_ready(servers));
}

TEST_F(p3_a_new_boot_of_a_server_with_a_place_has_lost_its_memory, servers)
{
    struct server_entry *server = hello(&f->list, "a", 1);
    choose_and_prepare(&f->list, server);
    hello(&f->list, "a", 1);
    assert_int_equal(server->state, SERVER_SERVES); /* the same start: it has only connected anew */
    hello(&f->list, "a", 2);
    assert_int_equal(server->state, SERVER_HAS_LOST);
    assert_false(servers_ready(&f->list));
    assert_false(servers_was_told(server)); /* a READY of it would be of before */
    servers_prepare(server);
    assert_int_equal(server->state, SERVER_PREPARES);
    hello(&f->list, "a", 3);
    assert_int_equal(server->state, SERVER_HAS_LOST);
}

TEST_F(who_is_invited_by_one_start_is_invited_anew_by_the_next, servers)
{
    struct server_entry *server = hello(&f->list, "a", 1);
    servers_invite(server, 3);
    servers_note_ready(server);
    assert_int_equal(server->state, SERVER_HAS_JOINED);
    hello(&f->list, "a", 2);
    assert_int_equal(server->state, SERVER_IS_IDLE);
    servers_invite(server, 4);
    servers_note_ready(server);
    assert_true(servers_add(&f->list, server)); /* its first chunks come with a commit … */
    servers_take_back(&f->list, server);        /* … or not after all */
    assert_int_equal(server->state, SERVER_HAS_JOINED);
    assert_int_equal(f->list.chosen_count, 0);
    assert_true(servers_add(&f->list, server));
    servers_serve(server);
    assert_int_equal(server->state, SERVER_SERVES);
}

TEST_F(one_that_is_emptied_stays_so_until_it_has_no_place, servers)
{
    struct server_entry *server = hello(&f->list, "a", 1);
    choose_and_prepare(&f->list, server);
    servers_drain(server, false);
    servers_empty(server);
    assert_null(servers_active(&f->list, 0));
    servers_prepare(server); /* without chunks: nobody waits for it */
    servers_note_ready(server);
    hello(&f->list, "a", 2);
    assert_int_equal(server->state, SERVER_IS_EMPTIED);
    servers_unchoose_one(&f->list, server);
    assert_int_equal(server->state, SERVER_IS_IDLE);
}

TEST_F(what_a_start_asked_for_ends_with_it_and_what_an_operator_did_does_not, servers)
{
    struct server_entry *ends = hello(&f->list, "a", 1), *drains = hello(&f->list, "b", 1);
    servers_drain(ends, true);
    servers_drain(drains, false);
    servers_note_unfit(drains);
    hello(&f->list, "a", 2);
    hello(&f->list, "b", 2);
    assert_int_equal(ends->leaving, SERVER_STAYS);
    assert_int_equal(drains->leaving, SERVER_DRAINS);
    assert_false(drains->unfit);
    servers_leave(drains);
    assert_false(servers_is_available(drains));
    hello(&f->list, "b", 3); /* who has left may come back */
    assert_true(servers_is_available(drains));
}
