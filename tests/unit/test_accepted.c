/* Which connections a server keeps, and which one goes. */
#include "tests/unit/accepted_fixture.h"

static unsigned peer_from_six(struct accepted_fixture *world, const char *host)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6,
                                   .sin6_port = htons((uint16_t)(1000 + world->count))};
    assert_int_equal(inet_pton(AF_INET6, host, &address.sin6_addr), 1);
    return peer_at(world, &address);
}

TEST_F(the_first_of_those_half_open_makes_room_for_the_next, accepted)
{
    for (unsigned i = 0; i < 3; i++)
        peer_from(f, HOST);
    unsigned other = peer_from(f, OTHER_HOST);
    unsigned next = peer_from(f, OTHER_HOST); /* there are four places */
    assert_false(is_open(f, 0));
    assert_true(is_open(f, 1) && is_open(f, 2) && is_open(f, other) && is_open(f, next));
    assert_int_equal(accepted_count(f->table).half_open, 4);
}

TEST_F(a_host_does_not_take_the_places_of_another, accepted)
{
    unsigned other = peer_from(f, OTHER_HOST);
    for (unsigned i = 0; i < 6; i++)
        peer_from(f, HOST);
    assert_true(is_open(f, other));
    assert_int_equal(accepted_count(f->table).half_open, 4);
    assert_int_equal(accepted_count(f->table).closed, 3);
    assert_int_equal(closed_by(f, CLOSING_HALF_OPEN), 3);
}

/* Who has one address of a network of IPv6 (/64) has them all. */
TEST_F(a_network_of_ipv6_is_one_host, accepted)
{
    unsigned other = peer_from_six(f, "2001:db8:0:2::1");
    for (unsigned i = 0; i < 3; i++) {
        peer_from_six(f, "2001:db8:0:1::1");
        peer_from_six(f, "2001:db8:0:1:ffff::2");
    }
    assert_true(is_open(f, other));
    assert_int_equal(accepted_count(f->table).half_open, 4);
    assert_int_equal(accepted_count(f->table).closed, 3);
}

TEST_F(a_peer_that_has_proved_itself_stays, accepted)
{
    unsigned honest = peer_from(f, HOST);
    prove(f, honest, TLS_ROLE_WORKER, 7);
    for (unsigned i = 0; i < 5; i++)
        peer_from(f, HOST);
    assert_true(is_open(f, honest));
    while (accepted_shed(f->table)) {
    }
    assert_true(is_open(f, honest));
    assert_int_equal(accepted_count(f->table).half_open, 0);
}

TEST_F(all_places_taken_means_that_the_next_is_refused, accepted)
{
    for (unsigned i = 0; i < 8; i++)
        prove(f, peer_from(f, HOST), TLS_ROLE_WORKER, 10 + i);
    assert_null(f->peers[peer_from(f, HOST)]);
    assert_int_equal(closed_by(f, CLOSING_PLACES), 1);
}

TEST_F(a_certificate_has_so_many_connections, accepted)
{
    for (unsigned i = 0; i < 3; i++)
        prove(f, peer_from(f, HOST), TLS_ROLE_WORKER, 7);
    prove(f, peer_from(f, HOST), TLS_ROLE_WORKER, 8);
    assert_true(is_open(f, 0) && is_open(f, 1) && is_open(f, 3));
    assert_false(is_open(f, 2));
    assert_int_equal(closed_by(f, CLOSING_CERTIFICATE), 1);
}

TEST_F(servers_and_operators_get_in_where_workers_have_all_their_places, accepted, .workers_max = 3)
{
    for (unsigned i = 0; i < 3; i++)
        prove(f, peer_from(f, HOST), TLS_ROLE_WORKER, 10 + i);
    prove(f, peer_from(f, HOST), TLS_ROLE_OPERATOR, 20);
    prove(f, peer_from(f, HOST), TLS_ROLE_SERVER, 21);
    prove(f, peer_from(f, HOST), TLS_ROLE_WORKER, 22);
    prove(f, peer_from(f, HOST), TLS_ROLE_NONE, 23);
    assert_true(is_open(f, 3) && is_open(f, 4));
    assert_false(is_open(f, 5));
    assert_false(is_open(f, 6));
    assert_int_equal(closed_by(f, CLOSING_WORKERS), 2);
    assert_true(is_open(f, 0) && is_open(f, 1) && is_open(f, 2));
}

/* Half open ones and those of workers leave room for servers and operators, and no certificate has
 * more than half, whatever the process may open. */
TEST(the_limits_leave_room_for_others)
{
    for (uint32_t files = 64; files < 1u << 20; files += files / 3) {
        struct accepted_limits limits = {0};
        accepted_limits_files(&limits, files, 2112);
        assert_true(limits.connections_max <= files / 2);
        assert_true(limits.certificate_max <= limits.connections_max / 2);
        assert_true(limits.certificate_max < limits.workers_max);
        assert_true(limits.workers_max + limits.half_open_max <
                    limits.connections_max - limits.connections_max / 9);
        assert_true(limits.half_open_host_max < limits.half_open_max);
    }
}

TEST(the_limits_of_a_process_with_many_files_are_those_that_it_asks_for)
{
    struct accepted_limits limits = {0};
    accepted_limits_files(&limits, 1u << 20, 2112);
    assert_int_equal(limits.connections_max, 65536);
    assert_int_equal(limits.half_open_max, 1024);
    assert_int_equal(limits.certificate_max, 2112);
    accepted_limits_files(&limits, 864, 2112); /* of 1,024 */
    assert_int_equal(limits.certificate_max, 216);
}

TEST_F(a_connection_does_not_outlive_its_certificate, accepted)
{
    unsigned proved = peer_from(f, HOST), half_open = peer_from(f, HOST);
    prove(f, proved, TLS_ROLE_WORKER, 7);
    struct accepted_call *call = show_call(f, proved);
    assert_int_equal(accepted_call_peer(call).ends_s, 1000);
    assert_int_equal(accepted_call_peer(call).certificate, 7);
    assert_int_equal(accepted_call_peer(NULL).ends_s, 0);
    accepted_call_end(call);
    accepted_expire(f->table, 1000); /* the certificate's last second */
    assert_true(is_open(f, proved));
    accepted_expire(f->table, 1001);
    assert_false(is_open(f, proved));
    assert_true(is_open(f, half_open));
    assert_int_equal(closed_by(f, CLOSING_EXPIRED), 1);
}

TEST_F(a_revoked_certificate_ends_its_connections_and_is_let_in_no_more, accepted)
{
    static const struct tls_revoked revoked = {.count = 1, .certificates = {7}};
    prove(f, peer_from(f, HOST), TLS_ROLE_WORKER, 7);
    assert_int_equal(accepted_revoke(f->table, &revoked), ERR_OK);
    prove(f, peer_from(f, HOST), TLS_ROLE_WORKER, 7);
    assert_false(is_open(f, 0) || is_open(f, 1));
    assert_int_equal(closed_by(f, CLOSING_REVOKED), 2);
}

/* ---- what the log says ---- */

#define S 1000000000ull

TEST_F(what_a_limit_closes_is_named_now_and_then, accepted)
{
    struct closed closed;
    for (unsigned i = 0; i < 3; i++)
        prove(f, peer_from(f, HOST), TLS_ROLE_WORKER, 7);
    assert_true(accepted_closed_take(f->table, CLOSING_CERTIFICATE, S, &closed));
    assert_int_equal(closed.count, 1);
    assert_int_equal(closed.holder.role, TLS_ROLE_WORKER);
    assert_string_equal(closed.address, "10.0.0.1:1002");
    for (unsigned i = 0; i < 2; i++)
        prove(f, peer_from(f, HOST), TLS_ROLE_OPERATOR, 7);
    assert_false(accepted_closed_take(f->table, CLOSING_CERTIFICATE, 11 * S - 1, &closed));
    assert_true(accepted_closed_take(f->table, CLOSING_CERTIFICATE, 11 * S, &closed));
    assert_int_equal(closed.count, 2);
    assert_int_equal(closed.holder.role, TLS_ROLE_OPERATOR);
    assert_string_equal(closed.address, "10.0.0.1:1003");
    assert_false(accepted_closed_take(f->table, CLOSING_CERTIFICATE, 99 * S, &closed));
}

TEST_F(strangers_are_named_once_a_minute, accepted)
{
    struct closed closed;
    peer_from(f, HOST);
    assert_true(accepted_shed(f->table));
    assert_true(accepted_closed_take(f->table, CLOSING_HALF_OPEN, S, &closed));
    assert_int_equal(closed.holder.role, TLS_ROLE_NONE);
    peer_from(f, HOST);
    assert_true(accepted_shed(f->table));
    assert_false(accepted_closed_take(f->table, CLOSING_HALF_OPEN, 61 * S - 1, &closed));
    assert_true(accepted_closed_take(f->table, CLOSING_HALF_OPEN, UINT64_MAX, &closed));
}

/* ---- addresses ---- */

TEST_F(a_second_connection_of_one_address_is_refused, accepted)
{
    unsigned peer = peer_from(f, HOST);
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = htons(1000)};
    assert_int_equal(inet_pton(AF_INET6, "::ffff:10.0.0.1", &mapped.sin6_addr), 1);
    assert_null(accepted_add(f->table, (const struct sockaddr *)&mapped, dup(f->files[peer])));
}

/* The text is the library's, also of an address that is one of a link alone. */
TEST_F(a_call_finds_its_connection_by_the_address_that_the_library_prints, accepted)
{
    const struct {
        const char *host;
        uint32_t scope;
        const char *printed;
    } rows[] = {
        {"fd00::1", 0, "[fd00::1]:1000"},
        {"fe80::1", 2, "[fe80::1%2]:1000"},
        {"fe80::1", 4000000000, "[fe80::1%4000000000]:1000"},
        {"::ffff:10.0.0.7", 0, "10.0.0.7:1000"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sockaddr_in6 address = {
            .sin6_family = AF_INET6, .sin6_port = htons(1000), .sin6_scope_id = rows[i].scope};
        assert_int_equal(inet_pton(AF_INET6, rows[i].host, &address.sin6_addr), 1);
        struct accepted *six = accepted_add(f->table, (const struct sockaddr *)&address, dup(0));
        struct tls_peer peer = {.certificate = 70 + i};
        assert_non_null(six);
        accepted_proved(six, &peer);
        struct accepted_call *call = call_at(f, rows[i].printed);
        if (accepted_call_peer(call).certificate != 70 + i)
            fail_msg("%s: no connection", rows[i].printed);
        accepted_gone(six);
        accepted_call_end(call);
    }
}
