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
                                     .calls_max = 6,
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

/* ---- what a peer sends (RFC 9113 4.1) ---- */

enum { DATA = 0, HEADERS = 1, PING = 6, CONTINUATION = 9, END_HEADERS = 4, HEADERS_BYTES = 70 };
enum { FRAME_BYTES = 9, PREFIX_BYTES = 5, SENT_BYTES_MAX = 8192 };

/* What is on its way. */
struct sent {
    uint8_t bytes[SENT_BYTES_MAX];
    size_t count;
};

/* A frame that says that it has so many bytes, and some of them. */
static void put_part(struct sent *sent, uint8_t type, uint8_t flags, uint32_t stream, size_t bytes,
                     size_t part_bytes)
{
    const uint8_t header[FRAME_BYTES] = {(uint8_t)(bytes >> 16),
                                         (uint8_t)(bytes >> 8),
                                         (uint8_t)bytes,
                                         type,
                                         flags,
                                         (uint8_t)(stream >> 24),
                                         (uint8_t)(stream >> 16),
                                         (uint8_t)(stream >> 8),
                                         (uint8_t)stream};
    assert_true(sent->count + sizeof header + part_bytes <= sizeof sent->bytes);
    memcpy(sent->bytes + sent->count, header, sizeof header);
    memset(sent->bytes + sent->count + sizeof header, 'x', part_bytes);
    sent->count += sizeof header + part_bytes;
}

static void put(struct sent *sent, uint8_t type, uint8_t flags, uint32_t stream, size_t bytes)
{
    put_part(sent, type, flags, stream, bytes, bytes);
}

static void bring(struct accepted_fixture *world, unsigned number, struct sent *sent)
{
    accepted_brought(world->peers[number], (struct slice){sent->bytes, sent->count});
    sent->count = 0;
}

/* A worker from HOST, whose preface has come. */
static unsigned worker_from(struct accepted_fixture *world, uint64_t certificate)
{
    unsigned number = peer_from(world, HOST);
    prove(world, number, TLS_ROLE_WORKER, certificate);
    accepted_brought(world->peers[number],
                     (struct slice){(const uint8_t *)"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24});
    return number;
}

static void bring_data(struct accepted_fixture *world, unsigned number, uint32_t stream,
                       size_t bytes)
{
    struct sent sent = {.count = 0};
    put(&sent, DATA, 0, stream, bytes);
    bring(world, number, &sent);
}

static struct accepted_call *call_at(struct accepted_fixture *world, const char *address)
{
    struct accepted_call *call = NULL;
    assert_int_equal(accepted_call_begin(world->table, address, &call), ERR_OK);
    return call;
}

static struct accepted_call *show_call(struct accepted_fixture *world, unsigned number)
{
    char address[32];
    snprintf(address, sizeof address, "10.0.0.1:%u", 1000 + number);
    return call_at(world, address);
}

/* Its headers come, and the library shows the call at once. */
static struct accepted_call *call_of(struct accepted_fixture *world, unsigned number,
                                     uint32_t stream)
{
    struct sent sent = {.count = 0};
    put(&sent, HEADERS, END_HEADERS, stream, HEADERS_BYTES);
    bring(world, number, &sent);
    return show_call(world, number);
}

static uint64_t unfinished(struct accepted_fixture *world)
{
    return accepted_count(world->table).unfinished_bytes;
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
    struct accepted_call *call = call_of(f, proved, 1);
    assert_int_equal(accepted_call_peer(call).ends_s, 1000);
    assert_int_equal(accepted_call_peer(call).certificate, 7);
    assert_int_equal(accepted_call_peer(NULL).ends_s, 0);
    accepted_call_end(call);
    accepted_expire(f->table, 1000); /* the certificate's last second */
    assert_true(is_open(f, proved));
    accepted_expire(f->table, 1001);
    assert_false(is_open(f, proved));
    assert_true(is_open(f, half_open));
}

/* ---- what is not finished ---- */

TEST_F(a_handshake_has_so_many_bytes, accepted)
{
    unsigned peer = peer_from(f, HOST), other = peer_from(f, HOST);
    accepted_received(f->peers[peer], 1000);
    accepted_received(f->peers[other], 1001);
    assert_true(is_open(f, peer));
    assert_false(is_open(f, other));
    prove(f, peer, TLS_ROLE_WORKER, 7);
    assert_int_equal(unfinished(f), 1001);
    accepted_received(f->peers[peer], 5000); /* its frames count from now on */
    assert_true(is_open(f, peer));
}

TEST_F(what_is_delivered_is_not_held_against_a_peer, accepted)
{
    unsigned honest = worker_from(f, 7);
    struct accepted_call *call = call_of(f, honest, 1);
    for (unsigned i = 0; i < 100; i++) {
        bring_data(f, honest, 1, PREFIX_BYTES + 1400);
        accepted_delivered(call, 1400);
    }
    assert_int_equal(unfinished(f), 0);
    bring_data(f, honest, 1, 2000);
    assert_true(is_open(f, honest));
    bring_data(f, honest, 1, 1);
    assert_false(is_open(f, honest));
    accepted_call_end(call);
}

/* Each had more bytes than its prefix and itself: a flood of them would make room for others. */
TEST_F(empty_messages_take_off_no_more_than_they_brought, accepted)
{
    unsigned peer = worker_from(f, 7);
    struct accepted_call *call = call_of(f, peer, 1), *other = call_of(f, peer, 3);
    bring_data(f, peer, 3, 1500);
    for (unsigned i = 0; i < 100; i++) {
        bring_data(f, peer, 1, PREFIX_BYTES);
        accepted_delivered(call, 0);
    }
    assert_int_equal(unfinished(f), 1500);
    accepted_call_end(call);
    accepted_call_end(other);
}

TEST_F(a_role_that_may_send_more_may_have_more_unfinished, accepted)
{
    unsigned server = worker_from(f, 7);
    prove(f, server, TLS_ROLE_SERVER, 7);
    struct accepted_call *call = call_of(f, server, 1);
    bring_data(f, server, 1, 4000);
    assert_true(is_open(f, server));
    accepted_call_end(call);
}

TEST_F(the_one_with_most_goes_when_all_together_have_too_much, accepted)
{
    struct accepted_call *calls[3];
    for (unsigned i = 0; i < 3; i++) {
        calls[i] = call_of(f, worker_from(f, 7 + i), 1);
        bring_data(f, i, 1, i == 1 ? 2000 : 1500);
    }
    assert_true(is_open(f, 1));
    bring_data(f, 0, 1, 1);
    assert_false(is_open(f, 1));
    assert_true(is_open(f, 0) && is_open(f, 2));
    accepted_gone(f->peers[1]);
    f->peers[1] = NULL;
    assert_int_equal(unfinished(f), 3001);
    assert_int_equal(accepted_count(f->table).dropped_bytes, 2000);
    for (unsigned i = 0; i < 3; i++)
        accepted_call_end(calls[i]);
}

/* The attack: messages in some calls that do not end, and other calls that end meanwhile. */
TEST_F(the_end_of_a_call_takes_off_nothing_that_another_may_keep, accepted)
{
    unsigned peer = worker_from(f, 7);
    struct accepted_call *keeps = call_of(f, peer, 1);
    for (uint32_t stream = 3; stream < 23; stream += 2) {
        struct accepted_call *ends = call_of(f, peer, stream);
        bring_data(f, peer, 1, 200);
        accepted_call_end(ends);
    }
    assert_int_equal(unfinished(f), 2000);
    assert_true(is_open(f, peer));
    bring_data(f, peer, 1, 1);
    assert_false(is_open(f, peer));
    accepted_call_end(keeps);
}

TEST_F(the_end_of_its_calls_ends_what_a_peer_left_unfinished, accepted)
{
    unsigned peer = worker_from(f, 7);
    struct accepted_call *first = call_of(f, peer, 1), *second = call_of(f, peer, 3);
    assert_null(call_at(f, "10.0.0.1:1001"));
    bring_data(f, peer, 1, 1500);
    accepted_call_end(first); /* it may be the second's */
    assert_int_equal(unfinished(f), 1500);
    accepted_call_end(second);
    assert_int_equal(unfinished(f), 0);
    assert_int_equal(accepted_count(f->table).dropped_bytes, 1500);
}

/* As an honest worker does that opens its stream to a shard anew, for days: the next one is open
 * before the end of the one before is seen. */
TEST_F(what_came_before_all_open_calls_began_is_gone, accepted)
{
    unsigned peer = worker_from(f, 7);
    struct accepted_call *call = call_of(f, peer, 1);
    for (uint32_t stream = 3; stream < 1000; stream += 2) {
        bring_data(f, peer, stream - 2, 900);
        struct accepted_call *next = call_of(f, peer, stream);
        bring_data(f, peer, stream, 100);
        accepted_call_end(call);
        assert_int_equal(unfinished(f), 100);
        call = next;
    }
    assert_true(is_open(f, peer));
    accepted_call_end(call);
}

/* Bytes of a call that the library has not shown yet are that call's. */
TEST_F(what_a_call_brings_with_its_headers_is_not_taken_off, accepted)
{
    unsigned peer = worker_from(f, 7);
    struct accepted_call *before = call_of(f, peer, 1);
    struct sent sent = {.count = 0};
    put(&sent, HEADERS, END_HEADERS, 3, HEADERS_BYTES);
    put(&sent, DATA, 0, 3, 700);
    bring(f, peer, &sent);
    bring_data(f, peer, 3, 800);
    accepted_call_end(before);
    assert_int_equal(unfinished(f), 1500);
    struct accepted_call *call = show_call(f, peer);
    accepted_call_end(call_of(f, peer, 5));
    assert_int_equal(unfinished(f), 1500);
    accepted_call_end(call);
    assert_int_equal(unfinished(f), 0);
}

/* The server ended the stream; the client had sent more before it knew. */
TEST_F(what_comes_while_no_call_is_open_is_not_kept, accepted)
{
    unsigned peer = worker_from(f, 7);
    accepted_call_end(call_of(f, peer, 1));
    for (unsigned i = 0; i < 10; i++)
        bring_data(f, peer, 1, 1000);
    assert_int_equal(unfinished(f), 0);
}

TEST_F(frames_that_are_whole_are_not_held_against_a_peer, accepted)
{
    unsigned peer = worker_from(f, 7);
    struct sent sent = {.count = 0};
    for (unsigned i = 0; i < 1000; i++) {
        put(&sent, PING, 0, 0, 8);
        bring(f, peer, &sent);
    }
    assert_int_equal(unfinished(f), 0);
    put_part(&sent, PING, 0, 0, 1000, 900);
    bring(f, peer, &sent);
    assert_int_equal(unfinished(f), 900);
}

TEST_F(headers_count_until_they_are_whole, accepted)
{
    unsigned peer = worker_from(f, 7);
    struct sent sent = {.count = 0};
    put(&sent, HEADERS, 0, 1, 800);
    put(&sent, CONTINUATION, 0, 1, 900);
    bring(f, peer, &sent);
    assert_int_equal(unfinished(f), 1700);
    put(&sent, CONTINUATION, END_HEADERS, 1, 100);
    bring(f, peer, &sent);
    assert_int_equal(unfinished(f), 0);
    put(&sent, HEADERS, 0, 3, 2001);
    bring(f, peer, &sent);
    assert_false(is_open(f, peer));
    accepted_gone(f->peers[peer]);
    f->peers[peer] = NULL;
    assert_int_equal(unfinished(f), 0);
}

/* What the end of a call takes off is none of the headers that are coming. */
TEST_F(headers_count_also_when_calls_end_meanwhile, accepted)
{
    unsigned peer = worker_from(f, 7);
    struct accepted_call *call = call_of(f, peer, 1);
    struct sent sent = {.count = 0};
    put(&sent, HEADERS, 0, 1, 1500); /* of the open call: its trailers */
    bring(f, peer, &sent);
    accepted_call_end(call);
    assert_int_equal(unfinished(f), 1500);
}

TEST_F(frames_may_come_in_any_pieces, accepted)
{
    unsigned peer = worker_from(f, 7);
    struct sent sent = {.count = 0};
    put(&sent, HEADERS, 0, 1, 30);
    put(&sent, CONTINUATION, END_HEADERS, 1, 0);
    put(&sent, DATA, 0, 1, 0);
    put(&sent, DATA, 0, 1, 300);
    put(&sent, PING, 0, 0, 8);
    put_part(&sent, DATA, 0, 1, 70000, 40);
    for (size_t at = 0; at < sent.count; at++)
        accepted_brought(f->peers[peer], (struct slice){sent.bytes + at, 1});
    assert_int_equal(unfinished(f), 340);
    accepted_call_end(show_call(f, peer));
    assert_int_equal(unfinished(f), 0);
}

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

static bool no_memory;

void *__wrap_calloc(size_t count, size_t bytes)
{
    return no_memory ? NULL : __real_calloc(count, bytes);
}

TEST_F(a_call_for_which_there_is_no_memory_leaves_nothing, accepted)
{
    unsigned peer = worker_from(f, 7);
    for (uint32_t i = 0; i < 10; i++) {
        struct sent sent = {.count = 0};
        struct accepted_call *call = NULL;
        put(&sent, HEADERS, END_HEADERS, 2 * i + 1, HEADERS_BYTES);
        put(&sent, DATA, 0, 2 * i + 1, 500);
        bring(f, peer, &sent);
        no_memory = true;
        enum err err = accepted_call_begin(f->table, "10.0.0.1:1000", &call);
        no_memory = false;
        assert_int_equal(err, ERR_NOMEM);
        assert_null(call);
    }
    assert_true(is_open(f, peer));
    accepted_call_end(call_of(f, peer, 101));
    assert_int_equal(unfinished(f), 0);
}

TEST_F(who_opens_too_many_calls_goes, accepted)
{
    unsigned peer = worker_from(f, 7);
    struct accepted_call *calls[7];
    for (unsigned i = 0; i < 20; i++) /* one after another */
        accepted_call_end(call_of(f, peer, 2 * i + 1));
    for (unsigned i = 0; i < 6; i++)
        calls[i] = call_of(f, peer, 2 * i + 101);
    /* The number of an open one, and an even one, begin none. */
    struct sent sent = {.count = 0};
    put(&sent, HEADERS, END_HEADERS, 101, HEADERS_BYTES);
    put(&sent, HEADERS, END_HEADERS, 200, HEADERS_BYTES);
    bring(f, peer, &sent);
    assert_true(is_open(f, peer));
    calls[6] = call_of(f, peer, 201);
    assert_false(is_open(f, peer));
    for (unsigned i = 0; i < 7; i++)
        accepted_call_end(calls[i]);
}

TEST_F(who_gives_up_too_many_calls_goes, accepted)
{
    unsigned peer = worker_from(f, 7);
    struct accepted_call *call = call_of(f, peer, 1);
    for (unsigned i = 0; i < 12; i++) /* one in four seconds */
        accepted_reset(call, NOW_NS * 4ull * (i + 10));
    assert_true(is_open(f, peer));
    for (unsigned i = 0; i < 4; i++)
        accepted_reset(call, NOW_NS * 100ull + i);
    assert_false(is_open(f, peer));
    accepted_call_end(call);
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
