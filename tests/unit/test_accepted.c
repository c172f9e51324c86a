/* Which connections a server keeps, and which one goes. */
#include "common/rpc/accepted.h"

#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PEERS_MAX = 16, HOST = 0x0a000001, OTHER_HOST = 0x0a000002 };
#define NOW_NS 1000000000u

struct accepted_fixture {
    struct accepted_table *table;
    struct accepted *peers[PEERS_MAX];
    int files[PEERS_MAX]; /* the other ends */
    unsigned count;
    uint32_t workers_max; /* 0: any */
};

static void accepted_set_up(struct accepted_fixture *world)
{
    struct accepted_limits limits = {.connections_max = 8,
                                     .half_open_max = 4,
                                     .half_open_host_max = 3,
                                     .workers_max = world->workers_max > 0 ? world->workers_max : 8,
                                     .certificate_max = 2,
                                     .unfinished_bytes_max = 5000,
                                     .role_bytes_max = {1000, 4000, 2000, 2000},
                                     .resets_max = 3};
    assert_int_equal(accepted_table_new(&limits, &world->table), ERR_OK);
}

static void accepted_tear_down(struct accepted_fixture *world)
{
    for (unsigned i = 0; i < world->count; i++) {
        if (world->peers[i] != NULL)
            accepted_gone(world->peers[i]);
        close(world->files[i]);
    }
    accepted_table_unref(world->table);
}

static struct sockaddr_in address_of(unsigned host, unsigned port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(host)};
}

/* The port is 1000 and its number. */
static unsigned peer_from(struct accepted_fixture *world, unsigned host)
{
    unsigned number = world->count++;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    struct sockaddr_in address = address_of(host, 1000 + number);
    world->files[number] = ends[1];
    world->peers[number] = accepted_add(world->table, (const struct sockaddr *)&address, ends[0]);
    return number;
}

static void prove(struct accepted_fixture *world, unsigned number, enum tls_role role,
                  uint64_t certificate)
{
    struct tls_peer peer = {.holder.role = role, .certificate = certificate, .ends_s = 1000};
    accepted_proved(world->peers[number], &peer);
}

static bool is_open(const struct accepted_fixture *world, unsigned number)
{
    struct pollfd file = {.fd = world->files[number], .events = POLLIN};
    return world->peers[number] != NULL && poll(&file, 1, 0) == 0;
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
}

TEST_F(a_certificate_has_so_many_connections, accepted)
{
    for (unsigned i = 0; i < 3; i++)
        prove(f, peer_from(f, HOST), TLS_ROLE_WORKER, 7);
    prove(f, peer_from(f, HOST), TLS_ROLE_WORKER, 8);
    assert_true(is_open(f, 0) && is_open(f, 1) && is_open(f, 3));
    assert_false(is_open(f, 2));
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
    assert_int_equal(accepted_ends_s(f->peers[proved]), 1000);
    assert_int_equal(accepted_ends_s(f->peers[half_open]), 0);
    accepted_expire(f->table, 1000); /* the certificate's last second */
    assert_true(is_open(f, proved));
    accepted_expire(f->table, 1001);
    assert_false(is_open(f, proved));
    assert_true(is_open(f, half_open));
}

TEST_F(what_is_delivered_is_not_held_against_a_peer, accepted)
{
    unsigned honest = peer_from(f, HOST);
    prove(f, honest, TLS_ROLE_WORKER, 7);
    for (unsigned i = 0; i < 100; i++) {
        accepted_received(f->peers[honest], 1500, NOW_NS);
        accepted_delivered(f->peers[honest], 1400);
    }
    assert_true(is_open(f, honest));
    accepted_received(f->peers[honest], 2001, NOW_NS);
    assert_false(is_open(f, honest));
}

TEST_F(a_role_that_may_send_more_may_have_more_unfinished, accepted)
{
    unsigned server = peer_from(f, HOST);
    prove(f, server, TLS_ROLE_SERVER, 7);
    accepted_received(f->peers[server], 4000, NOW_NS);
    assert_true(is_open(f, server));
}

TEST_F(the_one_with_most_goes_when_all_together_have_too_much, accepted)
{
    for (unsigned i = 0; i < 3; i++) {
        prove(f, peer_from(f, HOST), TLS_ROLE_WORKER, 7 + i);
        accepted_received(f->peers[i], i == 1 ? 2000 : 1500, NOW_NS);
    }
    assert_true(is_open(f, 1));
    accepted_received(f->peers[0], 1, NOW_NS);
    assert_false(is_open(f, 1));
    assert_true(is_open(f, 0) && is_open(f, 2));
    accepted_gone(f->peers[1]);
    f->peers[1] = NULL;
    assert_int_equal(accepted_count(f->table).unfinished_bytes, 3001);
}

TEST_F(the_end_of_its_calls_ends_what_a_peer_left_unfinished, accepted)
{
    unsigned peer = peer_from(f, HOST);
    prove(f, peer, TLS_ROLE_WORKER, 7);
    struct accepted *first = accepted_call_begin(f->table, "10.0.0.1:1000");
    struct accepted *second = accepted_call_begin(f->table, "10.0.0.1:1000");
    assert_ptr_equal(first, f->peers[peer]);
    assert_null(accepted_call_begin(f->table, "10.0.0.1:1001"));
    accepted_received(f->peers[peer], 1500, NOW_NS);
    accepted_call_end(first, 0, 1000); /* no more than one message was its own */
    assert_int_equal(accepted_count(f->table).unfinished_bytes, 500);
    accepted_call_end(second, 1500, 1000); /* nothing came since it began, but it was the last */
    assert_int_equal(accepted_count(f->table).unfinished_bytes, 0);
}

TEST_F(pings_are_not_held_against_a_peer, accepted)
{
    unsigned peer = peer_from(f, HOST);
    prove(f, peer, TLS_ROLE_WORKER, 7);
    struct accepted *call = accepted_call_begin(f->table, "10.0.0.1:1000");
    for (uint64_t second = 0; second < 1000; second++)
        accepted_received(f->peers[peer], 39, NOW_NS * (second + 1));
    assert_true(is_open(f, peer));
    accepted_call_end(call, 0, 0);
}

TEST_F(who_gives_up_too_many_calls_goes, accepted)
{
    unsigned peer = peer_from(f, HOST);
    prove(f, peer, TLS_ROLE_WORKER, 7);
    for (unsigned i = 0; i < 12; i++) /* one in four seconds */
        accepted_reset(f->peers[peer], NOW_NS * 4ull * (i + 10));
    assert_true(is_open(f, peer));
    for (unsigned i = 0; i < 4; i++)
        accepted_reset(f->peers[peer], NOW_NS * 100ull + i);
    assert_false(is_open(f, peer));
}

TEST_F(a_second_connection_of_one_address_is_refused, accepted)
{
    unsigned peer = peer_from(f, HOST);
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = htons(1000)};
    assert_int_equal(inet_pton(AF_INET6, "::ffff:10.0.0.1", &mapped.sin6_addr), 1);
    int file = dup(f->files[peer]);
    assert_null(accepted_add(f->table, (const struct sockaddr *)&mapped, file));
    assert_int_equal(inet_pton(AF_INET6, "fd00::1", &mapped.sin6_addr), 1);
    struct accepted *six =
        accepted_add(f->table, (const struct sockaddr *)&mapped, dup(f->files[peer]));
    struct accepted *call = accepted_call_begin(f->table, "[fd00::1]:1000");
    assert_ptr_equal(call, six);
    accepted_gone(six);
    accepted_call_end(call, 0, 0);
}
