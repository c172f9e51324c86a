/* Chunks from server to server, over real loopback sockets; the shards at both ends are this file.
 */
#include "tests/unit/rpc_fixture.h"

#include "server/threads/transfer.h"

enum { ARRIVED, SENT, TAKEN };
enum { WEIGHTS = 5, ARRAYS = 3, THREAD = 2 };

/* The old owner's shard, as transfer.c asks it. */
struct shard {
    float first;
};

void shard_transfer_copy(const struct shard *shard, const struct transfer *header, void *ret_data)
{
    uint8_t *to = ret_data; /* it lies anywhere in a message */
    for (uint32_t i = 0; i < header->weights * header->arrays; i++) {
        float value = shard->first + (float)i;
        memcpy(to + i * sizeof value, &value, sizeof value);
    }
}

struct transfer_fixture {
    struct tally tally;
    struct rpc_loop *loop;
    struct rpc_server *server;
    struct rpc_method method;
    struct transfer_peers *peers;
    enum err take;   /* what `arrived` says … */
    enum err answer; /* … and then the new owner's shard */
    bool holds;      /* it answers later: */
    struct transfer_arrival *held[2];
    struct transfer arrived;
    float values[WEIGHTS * ARRAYS];
    struct transfer_sent sent;
};

static enum err chunk_arrived(void *owner, struct transfer_arrival *arrival)
{
    struct transfer_fixture *world = owner;
    if (world->take != ERR_OK)
        return world->take;
    world->arrived = arrival->header;
    if (arrival->payload.bytes == sizeof world->values)
        memcpy(world->values, arrival->payload.data, sizeof world->values);
    bool holds = world->holds;
    if (holds)
        world->held[world->held[0] != NULL] = arrival;
    tally_add(&world->tally, ARRIVED);
    if (!holds)
        transfer_answer(arrival, world->answer);
    return ERR_OK;
}

static void chunk_sent(void *owner, struct transfer_sent *take_sent)
{
    struct transfer_fixture *world = owner;
    world->sent = *take_sent;
    free(take_sent);
    if (world->sent.err == ERR_OK)
        tally_add(&world->tally, TAKEN);
    tally_add(&world->tally, SENT);
}

/* NULL: no TLS. */
static void set_up(struct transfer_fixture *world, const struct tls_identity *identity)
{
    struct rpc_settings settings = rpc_settings_default();
    settings.message_bytes_max = WIRE_TRANSFER_BYTES_MAX;
    settings.role_bytes_max[TLS_ROLE_SERVER] = WIRE_TRANSFER_BYTES_MAX + WIRE_CONTROL_BYTES_MAX;
    tally_init(&world->tally);
    world->loop = loop_new(&settings);
    const struct transfer_config config = {.loop = world->loop,
                                           .identity = identity,
                                           .sent = chunk_sent,
                                           .arrived = chunk_arrived,
                                           .owner = world};
    assert_int_equal(transfer_peers_new(&config, &world->peers), ERR_OK);
    world->method = transfer_method(world->peers);
    world->server = server_new(world->loop, identity, &world->method, 1);
}

static void transfer_set_up(struct transfer_fixture *world)
{
    set_up(world, NULL);
}

static void transfer_tear_down(struct transfer_fixture *world)
{
    transfer_peers_free(world->peers);
    rpc_server_free(world->server);
    rpc_loop_free(world->loop);
    tally_release(&world->tally);
}

static uint32_t peer_at(struct transfer_fixture *world, unsigned port)
{
    char address[32];
    uint32_t peer;
    struct reason reason = {{0}};
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    if (transfer_peer(world->peers, address, &peer, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    return peer;
}

static uint32_t peer_of(struct transfer_fixture *world)
{
    return peer_at(world, rpc_server_port(world->server));
}

static const struct transfer chunk = {
    .generation = 3, .version = 8, .chunk = 41, .weights = WEIGHTS, .arrays = ARRAYS};

static enum err begin_send_of(struct transfer_fixture *world, uint32_t peer,
                              const struct transfer *header)
{
    const struct shard shard = {.first = 0.5f};
    const struct shard_effect effect = {.kind = SHARD_TRANSFER,
                                        .transfer = {.to = peer, .header = *header}};
    return transfer_send(world->peers, THREAD, &shard, &effect);
}

static enum err begin_send(struct transfer_fixture *world, uint32_t peer)
{
    return begin_send_of(world, peer, &chunk);
}

static void send(struct transfer_fixture *world)
{
    assert_int_equal(begin_send(world, peer_of(world)), ERR_OK);
    tally_wait(&world->tally, SENT, 1);
    assert_int_equal(world->sent.thread, THREAD);
    assert_int_equal(world->sent.header.chunk, chunk.chunk);
    assert_int_equal(world->sent.header.version, chunk.version);
}

TEST_F(a_chunk_arrives_with_all_its_arrays_and_its_sender_hears_of_it, transfer)
{
    send(f);
    assert_int_equal(f->sent.err, ERR_OK);
    assert_int_equal(tally_of(&f->tally, ARRIVED), 1);
    assert_int_equal(f->arrived.generation, chunk.generation);
    assert_int_equal(f->arrived.version, chunk.version);
    assert_int_equal(f->arrived.chunk, chunk.chunk);
    assert_int_equal(f->arrived.weights, WEIGHTS);
    assert_int_equal(f->arrived.arrays, ARRAYS);
    for (uint32_t i = 0; i < WEIGHTS * ARRAYS; i++)
        assert_true(f->values[i] == 0.5f + (float)i);
}

TEST_F(the_new_owners_error_is_the_senders, transfer)
{
    f->answer = ERR_TOO_EARLY;
    send(f);
    assert_int_equal(f->sent.err, ERR_TOO_EARLY);
}

TEST_F(why_a_chunk_was_not_taken_and_by_whom_is_the_senders, transfer)
{
    f->take = ERR_BUSY;
    send(f);
    assert_string_equal(f->sent.reason.text, err_text(ERR_BUSY));
    assert_int_equal(begin_send(f, peer_at(f, 1)), ERR_OK); /* nobody listens there */
    tally_wait(&f->tally, SENT, 2);
    assert_int_equal(f->sent.err, ERR_UNREACHABLE);
    assert_string_equal(f->sent.address, "127.0.0.1:1");
    assert_non_null(strstr(f->sent.reason.text, "cannot connect to 127.0.0.1:1"));
}

TEST_F(a_chunk_that_no_thread_takes_is_answered_with_the_error, transfer)
{
    f->take = ERR_BUSY;
    send(f);
    assert_int_equal(f->sent.err, ERR_BUSY);
    assert_int_equal(tally_of(&f->tally, ARRIVED), 0);
}

TEST_F(an_address_is_one_peer_however_often_it_is_named, transfer)
{
    uint32_t other = UINT32_MAX;
    uint32_t first = peer_of(f);
    assert_int_equal(transfer_peer(f->peers, "127.0.0.1:1", &other, NULL), ERR_OK);
    assert_int_not_equal(other, first);
    assert_int_equal(peer_of(f), first);
}

enum { OTHER_PORTS = 100 }; /* the first of others, where nobody listens */

/* As many others as there is room for. */
static void name_others(struct transfer_fixture *world)
{
    for (unsigned i = 0; i < TRANSFER_PEERS_MAX; i++)
        peer_at(world, OTHER_PORTS + i);
}

TEST_F(who_was_named_longest_ago_makes_room, transfer)
{
    uint32_t before = peer_of(f);
    name_others(f);
    uint32_t second = peer_at(f, OTHER_PORTS + 1);
    assert_int_equal(begin_send(f, before), ERR_UNREACHABLE); /* to nobody else */
    send(f);
    assert_int_equal(f->sent.err, ERR_OK);
    assert_int_equal(peer_at(f, OTHER_PORTS + 1), second);
}

TEST_F(a_call_under_way_is_not_cut_off_to_make_room, transfer)
{
    f->holds = true;
    uint32_t peer = peer_of(f);
    assert_int_equal(begin_send(f, peer), ERR_OK);
    tally_wait(&f->tally, ARRIVED, 1);
    name_others(f);
    assert_int_equal(peer_of(f), peer);
    transfer_answer(f->held[0], ERR_OK);
    tally_wait(&f->tally, SENT, 1);
    assert_int_equal(f->sent.err, ERR_OK);
}

TEST_F(few_bytes_are_under_way_beside_each_other, transfer)
{
    f->holds = true;
    uint32_t peer = peer_of(f);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(begin_send(f, peer), ERR_OK);
    tally_wait(&f->tally, ARRIVED, 2);
    for (unsigned i = 0; i < 2; i++)
        transfer_answer(f->held[i], ERR_OK);
    tally_wait(&f->tally, SENT, 2);
}

/* Of one server, over one connection of its role, with the limits of a daemon. */
TEST(chunks_of_many_arrays_do_not_break_the_connection_that_all_of_them_share)
{
    enum { CHUNKS = 8 };
    static const struct transfer large = {
        .generation = 3, .version = 8, .chunk = 42, .weights = 131072, .arrays = 36};
    struct transfer_fixture world = {0};
    struct authority authority = authority_new("nest");
    struct tls_identity identity = identity_of_role(&authority, "nest", TLS_ROLE_SERVER);
    set_up(&world, &identity);
    uint32_t peer = peer_of(&world);
    for (unsigned i = 1; i <= CHUNKS; i++)
        assert_int_equal(begin_send_of(&world, peer, &large), ERR_OK);
    tally_wait(&world.tally, SENT, CHUNKS);
    assert_int_equal(tally_of(&world.tally, TAKEN), CHUNKS);
    transfer_tear_down(&world);
    tls_identity_release(&identity);
    authority_release(&authority);
}

TEST(without_a_loop_no_server_can_be_reached)
{
    struct transfer_peers *peers = NULL;
    struct reason reason = {{0}};
    uint32_t peer;
    assert_int_equal(transfer_peers_new(&(struct transfer_config){0}, &peers), ERR_OK);
    assert_int_equal(transfer_peer(peers, "127.0.0.1:1", &peer, &reason), ERR_BUSY);
    transfer_peers_free(peers);
}

TEST_F(a_server_that_speaks_other_versions_of_the_wire_is_refused_with_a_sentence, transfer)
{
    struct rpc_channel *channel = channel_new(f->loop, rpc_server_port(f->server), NULL);
    static const struct {
        uint32_t oldest, newest;
        enum err err;
    } versions[] = {{1, WIRE_VERSION_MIN - 1, ERR_WIRE_VERSION}, /* too old */
                    {WIRE_VERSION + 1, 99, ERR_WIRE_VERSION},    /* too new */
                    {1, 99, ERR_OK},
                    {0, 0, ERR_OK}}; /* it speaks 2 alone */
    _Static_assert(WIRE_VERSION_MIN == 2, "else who says none is refused");
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        scoped(buf_release) struct buf request = {0};
        scoped(buf_release) struct buf response = {0};
        static const float values[WEIGHTS * ARRAYS];
        struct reason reason = {0};
        struct transfer header = chunk;
        header.wire_version_min = versions[i].oldest;
        header.wire_version = versions[i].newest;
        assert_int_equal(wire_encode_transfer(&header, &request), ERR_OK);
        assert_int_equal(buf_append(&request, values, sizeof values), ERR_OK);
        assert_int_equal(rpc_call(channel, "/roost.v1.Shard/Transfer", buf_slice(&request),
                                  FIXTURE_WAIT_MS, &response, &reason),
                         versions[i].err);
        assert_true(versions[i].err == ERR_OK ||
                    strstr(reason.text, "speaks the wire versions") != NULL);
    }
    assert_int_equal(tally_of(&f->tally, ARRIVED), 2);
    rpc_channel_free(channel);
}

TEST_F(what_is_no_chunk_is_refused_before_any_thread_sees_it, transfer)
{
    struct rpc_channel *channel = channel_new(f->loop, rpc_server_port(f->server), NULL);
    static const char *const requests[] = {"no chunk", "" /* no weights, no arrays, no payload */};
    for (size_t i = 0; i < 2; i++) {
        struct buf response = {0};
        struct reason reason;
        assert_int_equal(rpc_call(channel, "/roost.v1.Shard/Transfer", slice_of(requests[i]),
                                  FIXTURE_WAIT_MS, &response, &reason),
                         ERR_MALFORMED);
    }
    assert_int_equal(tally_of(&f->tally, ARRIVED), 0);
    rpc_channel_free(channel);
}
