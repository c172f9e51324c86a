/* A table of few accepted connections: whose peers have proved what, and which are open still. */
#ifndef ROOST_TESTS_UNIT_ACCEPTED_FIXTURE_H
#define ROOST_TESTS_UNIT_ACCEPTED_FIXTURE_H

#include "tests/unit/unit.h"

#include "common/rpc/accepted.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PEERS_MAX = 16, HOST = 0x0a000001, OTHER_HOST = 0x0a000002 };

struct accepted_fixture {
    struct accepted_table *table;
    struct accepted *peers[PEERS_MAX];
    int files[PEERS_MAX]; /* the other ends */
    unsigned count;
    uint32_t workers_max; /* 0: any */
    uint32_t header_byte_means;
    uint32_t resets_max; /* 0: 3 */
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
                                     .resets_max = world->resets_max > 0 ? world->resets_max : 3,
                                     .rekeys_max = 3,
                                     .headers_bytes_max = 2500,
                                     .header_byte_means = world->header_byte_means};
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

static unsigned peer_at(struct accepted_fixture *world, const void *address)
{
    unsigned number = world->count++;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    world->files[number] = ends[1];
    world->peers[number] = accepted_add(world->table, address, ends[0]);
    return number;
}

/* The port is 1000 and its number. */
static unsigned peer_from(struct accepted_fixture *world, unsigned host)
{
    struct sockaddr_in address = address_of(host, 1000 + world->count);
    return peer_at(world, &address);
}

static void prove(struct accepted_fixture *world, unsigned number, enum tls_role role,
                  uint64_t certificate)
{
    struct tls_peer peer = {.holder.role = role, .certificate = certificate, .ends_s = 1000};
    accepted_proved(world->peers[number], &peer);
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

/* How many that limit has closed since it was asked last. */
static uint64_t closed_by(struct accepted_fixture *world, enum closing closing)
{
    struct closed closed = {0};
    (void)accepted_closed_take(world->table, closing, UINT64_MAX, &closed);
    return closed.count;
}

static bool is_open(const struct accepted_fixture *world, unsigned number)
{
    struct pollfd file = {.fd = world->files[number], .events = POLLIN};
    return world->peers[number] != NULL && poll(&file, 1, 0) == 0;
}

#endif
