/* Two members of a mesh in one process, over real loopback sockets: values in both orders, with
 * and without TLS, and who is refused. Member 2 has stage 1 and gives, member 3 has stage 2 and
 * takes. */
#include "tests/unit/mesh_fixture.h"
#include "tests/unit/rpc_fixture.h"

#include "common/arena.h"
#include "common/log.h"
#include "worker/peers.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

enum { VALUE_BYTES = (8 << 20) + 3, ANSWER_MS = 300, LONG_MS = 60000 };
enum { GIVES, TAKES };
enum { UNREACHABLE, TAKEN };

struct peers_fixture {
    struct mesh_fixture mesh;
    bool tls;
    bool network;       /* not through shared memory */
    uint32_t answer_ms; /* 0: so long that nobody is named */
    uint32_t lease_ms;  /* of a member; 0: the same */
    struct authority authority;
    struct tls_identity identities[2];
    struct rpc_loop *loop;
    struct peers *peers[2];
    struct rpc_server *liar; /* NULL: none */
    size_t lie_bytes;
    struct tally tally;
    uint64_t unreachable; /* the newest */
    struct logger logger;
    struct thread thread;
    bool taking; /* the thread was started, and not joined */
    uint8_t *given, *taken;
    enum err err; /* of take() */
};

static void unreachable(void *context, uint64_t attempt, uint64_t member)
{
    struct peers_fixture *f = context;
    f->unreachable = attempt == ATTEMPT ? member : 0;
    tally_add(&f->tally, UNREACHABLE);
}

static struct peers *make_peers(struct peers_fixture *f, int which)
{
    const struct peers_options options = {.loop = f->loop,
                                          .identity = f->tls ? &f->identities[which] : NULL,
                                          .address = "127.0.0.1:0",
                                          .spec = &f->mesh.spec,
                                          .model = &f->mesh.model,
                                          .answer_ms = f->answer_ms,
                                          .lanes = 1,
                                          .context = f,
                                          .unreachable = unreachable,
                                          .logger = &f->logger};
    struct peers *peers = NULL;
    struct reason reason = {0};
    if (peers_new(&options, &peers, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    if (f->lease_ms > 0)
        peers_joined(peers, f->lease_ms);
    return peers;
}

static struct peers_lane *lane_of(const struct peers_fixture *f, int which)
{
    return peers_lane(f->peers[which], 0);
}

/* The member's address and certificate, as the coordinator tells them. */
static void describe(struct peers_fixture *f, int which)
{
    struct peer *peer = &f->mesh.peers[1 + which];
    struct digest shown;
    snprintf(peer->address, sizeof peer->address, "%s", peers_address(f->peers[which]));
    if (!f->tls)
        return;
    const struct buf *certificate = &f->identities[which].certificate;
    assert_int_equal(tls_certificate_digest(buf_slice(certificate), &shown), ERR_OK);
    memcpy(peer->certificate, shown.bytes, sizeof shown.bytes);
}

static void peers_set_up(struct peers_fixture *f)
{
    struct rpc_settings settings = rpc_settings_default();
    settings.threads = 1;
    if (f->network)
        settings.shared_ring_bytes = 0;
    peers_settings(&settings);
    mesh_set_up(&f->mesh);
    f->logger = (struct logger){.fd = -1};
    f->answer_ms = f->answer_ms > 0 ? f->answer_ms : LONG_MS;
    tally_init(&f->tally);
    f->loop = loop_new(&settings);
    f->authority = authority_new("nest");
    f->given = malloc(VALUE_BYTES);
    f->taken = calloc(1, VALUE_BYTES);
    for (size_t i = 0; i < VALUE_BYTES; i++)
        f->given[i] = (uint8_t)(i * 7 + i / 1000);
    for (int i = 0; i < 2; i++) {
        f->identities[i] = identity_of_role(&f->authority, "nest", TLS_ROLE_WORKER);
        f->peers[i] = make_peers(f, i);
        describe(f, i);
    }
}

static void peers_tear_down(struct peers_fixture *f)
{
    if (f->taking) { /* the test has failed */
        peers_cancel(lane_of(f, TAKES));
        thread_join(&f->thread);
    }
    for (int i = 0; i < 2; i++) {
        peers_free(f->peers[i]);
        tls_identity_release(&f->identities[i]);
    }
    rpc_server_free(f->liar);
    rpc_loop_free(f->loop);
    authority_release(&f->authority);
    tally_release(&f->tally);
    free(f->given);
    free(f->taken);
    mesh_tear_down(&f->mesh);
}

static void grant(struct peers_fixture *f, int which)
{
    const struct place place = mesh_place(1 + (uint32_t)which);
    assert_int_equal(peers_lease(lane_of(f, which), 2 + (uint64_t)which, &f->mesh.ticket, &place,
                                 &f->mesh.places),
                     ERR_OK);
}

static struct executor_value value_of(uint32_t microbatch)
{
    return (struct executor_value){EXECUTOR_FORWARD, 2, 0, microbatch, VALUE_BYTES};
}

static void give(struct peers_fixture *f, uint32_t microbatch)
{
    const struct executor_value value = value_of(microbatch);
    assert_int_equal(peers_give(lane_of(f, GIVES), &value, f->given), ERR_OK);
}

static enum err take(struct peers_fixture *f, uint32_t microbatch)
{
    const struct executor_value value = value_of(microbatch);
    memset(f->taken, 0, VALUE_BYTES);
    f->err = peers_take(lane_of(f, TAKES), &value, f->taken);
    return f->err;
}

static void take_first(void *argument)
{
    struct peers_fixture *f = argument;
    ignore(take(f, 0)); /* f->err */
    tally_add(&f->tally, TAKEN);
}

static void begin_to_take(struct peers_fixture *f)
{
    assert_int_equal(thread_start(&f->thread, "take", take_first, f), ERR_OK);
    f->taking = true;
}

static enum err end_taking(struct peers_fixture *f)
{
    tally_wait(&f->tally, TAKEN, 1);
    thread_join(&f->thread);
    f->taking = false;
    return f->err;
}

static void assert_taken(struct peers_fixture *f, uint64_t times)
{
    assert_memory_equal(f->taken, f->given, VALUE_BYTES);
    assert_int_equal(peers_bytes(lane_of(f, TAKES)), times * VALUE_BYTES);
}

/* Given before it is asked for, asked for ahead, and asked for before it is given. */
static void both_orders(struct peers_fixture *f)
{
    grant(f, GIVES);
    grant(f, TAKES);
    give(f, 0);
    assert_int_equal(take(f, 0), ERR_OK);
    assert_taken(f, 1);
    begin_to_take(f); /* the same once more */
    assert_int_equal(end_taking(f), ERR_OK);
    assert_taken(f, 2);
    give(f, 1);
    assert_int_equal(take(f, 1), ERR_OK);
    assert_taken(f, 3);
    assert_int_equal(peers_kept_bytes(f->peers[GIVES]), 2 * VALUE_BYTES);
    peers_keep(f->peers[GIVES], NULL, 0);
    assert_int_equal(peers_kept_bytes(f->peers[GIVES]), 0);
    assert_int_equal(peers_lane_kept_bytes(lane_of(f, GIVES)), 2 * VALUE_BYTES);
    assert_int_equal(tally_of(&f->tally, UNREACHABLE), 0);
}

TEST_F(values_pass_in_either_order, peers)
{
    both_orders(f);
}

/* Both ends say the same of what passed, each once a ticket. */
TEST_F(both_ends_sum_what_passed, peers)
{
    struct boundary_sums given, taken, none;
    grant(f, GIVES);
    grant(f, TAKES);
    for (uint32_t i = 0; i < 2; i++) {
        give(f, i);
        assert_int_equal(take(f, i), ERR_OK);
    }
    peers_sums(lane_of(f, GIVES), &given);
    peers_sums(lane_of(f, TAKES), &taken);
    assert_int_equal(given.count, 1);
    assert_int_equal(taken.count, 1);
    assert_true(given.list[0].given && !taken.list[0].given);
    assert_int_equal(given.list[0].stage, 2);
    assert_int_equal(taken.list[0].stage, 1);
    assert_true(given.list[0].sum == taken.list[0].sum);
    peers_sums(lane_of(f, GIVES), &none);
    assert_int_equal(none.count, 0);
}

TEST_F(values_pass_in_either_order_encrypted, peers, .tls = true)
{
    both_orders(f);
}

TEST_F(values_pass_in_either_order_over_the_network, peers, .network = true)
{
    both_orders(f);
}

TEST_F(values_pass_in_either_order_encrypted_over_the_network, peers, .network = true, .tls = true)
{
    both_orders(f);
}

TEST_F(s2_a_value_is_waited_for_before_its_lease_is_known, peers)
{
    grant(f, TAKES);
    begin_to_take(f);
    grant(f, GIVES);
    give(f, 0);
    assert_int_equal(end_taking(f), ERR_OK);
    assert_taken(f, 1);
    assert_int_equal(tally_of(&f->tally, UNREACHABLE), 0);
}

/* Waits in vain: the peer is named, and the wait ends by a cancel. */
static void assert_named(struct peers_fixture *f)
{
    begin_to_take(f);
    tally_wait(&f->tally, UNREACHABLE, 1);
    assert_int_equal(f->unreachable, 2);
    peers_cancel(lane_of(f, TAKES));
    assert_int_equal(end_taking(f), ERR_CANCELLED);
    assert_int_equal(take(f, 0), ERR_CANCELLED); /* until the next lease */
}

TEST_F(who_shows_another_certificate_is_not_asked, peers, .tls = true, .answer_ms = ANSWER_MS)
{
    f->mesh.peers[1].certificate[0] ^= 1;
    grant(f, GIVES);
    grant(f, TAKES);
    give(f, 0);
    assert_named(f);
}

TEST_F(who_shows_another_certificate_gets_nothing, peers, .tls = true, .answer_ms = ANSWER_MS)
{
    f->mesh.peers[2].certificate[0] ^= 1;
    grant(f, GIVES);
    grant(f, TAKES);
    give(f, 0);
    assert_named(f);
}

TEST_F(s7_a_peer_that_accepts_and_never_answers_is_named, peers, .lease_ms = 2 * ANSWER_MS)
{
    int file = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    assert_int_equal(bind(file, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(file, 1), 0);
    assert_int_equal(getsockname(file, (struct sockaddr *)&address, &bytes), 0);
    snprintf(f->mesh.peers[1].address, sizeof f->mesh.peers[1].address, "127.0.0.1:%u",
             ntohs(address.sin_port));
    grant(f, TAKES);
    assert_named(f);
    (void)close(file);
}

TEST_F(s8_a_peer_of_a_newer_generation_ends_the_wait, peers)
{
    grant(f, GIVES);
    grant(f, TAKES);
    give(f, 0);
    peers_generation(f->peers[GIVES], GENERATION + 1);
    assert_int_equal(take(f, 0), ERR_OLD_GENERATION);
    assert_int_equal(peers_blamed(lane_of(f, TAKES)), 2);
}

/* The member is lost while it is waited for; who takes its place is asked. */
TEST_F(s7_who_takes_the_place_is_asked, peers)
{
    grant(f, GIVES);
    grant(f, TAKES);
    begin_to_take(f);
    peers_free(f->peers[GIVES]);
    f->peers[GIVES] = make_peers(f, GIVES);
    describe(f, GIVES);
    f->mesh.places.number++;
    grant(f, GIVES);
    peers_places(f->peers[TAKES], &f->mesh.places);
    give(f, 0);
    assert_int_equal(end_taking(f), ERR_OK);
    assert_taken(f, 1);
}

/* ---- callers of another make ---- */

struct caller {
    struct tally tally;
    enum err err;
};

static void caller_closed(void *owner, struct rpc_stream *stream, enum err err,
                          const struct reason *reason)
{
    (void)stream, (void)reason;
    struct caller *caller = owner;
    caller->err = err;
    tally_add(&caller->tally, 0);
}

/* How a stream ends on which those bytes are sent, so often. */
static enum err call_with(struct peers_fixture *f, const struct tls_identity *identity,
                          struct slice bytes, unsigned times)
{
    static const struct rpc_stream_events events = {.closed = caller_closed};
    struct caller caller = {0};
    struct digest shown;
    struct rpc_channel *channel = NULL;
    struct rpc_stream *stream = NULL;
    tally_init(&caller.tally);
    memcpy(shown.bytes, f->mesh.peers[1].certificate, sizeof shown.bytes);
    assert_int_equal(rpc_channel_new_worker(f->loop, peers_address(f->peers[GIVES]), identity,
                                            &shown, &channel, NULL),
                     ERR_OK);
    assert_int_equal(rpc_stream_open(channel, "/roost.v1.Peer/Exchange", &events, &caller, &stream),
                     ERR_OK);
    for (unsigned i = 0; i < times; i++) {
        struct buf message = {0};
        assert_int_equal(buf_append(&message, bytes.data, bytes.bytes), ERR_OK);
        ignore(rpc_stream_send(stream, RPC_NORMAL, &message, NULL, 0)); /* it may have ended */
    }
    tally_wait(&caller.tally, 0, 1);
    rpc_stream_unref(stream);
    rpc_channel_free(channel);
    tally_release(&caller.tally);
    return caller.err;
}

static struct buf encoded(const struct to_peer *message)
{
    struct buf bytes = {0};
    assert_int_equal(wire_encode_to_peer(message, &bytes), ERR_OK);
    return bytes;
}

TEST_F(only_workers_may_ask, peers, .tls = true)
{
    static const enum tls_role roles[] = {TLS_ROLE_SERVER, TLS_ROLE_OPERATOR};
    const struct to_peer hello = {.kind = TO_PEER_HELLO, .hello = {3}};
    scoped(buf_release) struct buf bytes = encoded(&hello);
    grant(f, GIVES);
    for (int i = 0; i < 2; i++) {
        struct tls_identity identity = identity_of_role(&f->authority, "nest", roles[i]);
        assert_int_equal(call_with(f, &identity, buf_slice(&bytes), 1), ERR_DENIED);
        tls_identity_release(&identity);
    }
}

TEST_F(a_stream_that_begins_otherwise_than_with_one_hello_ends, peers)
{
    const struct to_peer hello = {.kind = TO_PEER_HELLO, .hello = {3}};
    const struct to_peer want = {.kind = TO_PEER_WANT, .want = {1, mesh_name(&f->mesh, 2, 0)}};
    scoped(buf_release) struct buf hello_bytes = encoded(&hello), want_bytes = encoded(&want);
    scoped(free_scoped) uint8_t *large = calloc(1, 100000);
    assert_int_equal(call_with(f, NULL, buf_slice(&hello_bytes), 2), ERR_MALFORMED);
    assert_int_equal(call_with(f, NULL, buf_slice(&want_bytes), 1), ERR_MALFORMED);
    assert_int_equal(call_with(f, NULL, slice_of("no message"), 1), ERR_MALFORMED);
    assert_int_equal(call_with(f, NULL, (struct slice){large, 100000}, 1), ERR_MALFORMED);
}

enum { CALLER_CLOSED, CALLER_READS, WANTS = 20000, BUSY_MAX = 500 };

static void caller_reads_late(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    (void)stream;
    struct caller *caller = owner;
    rpc_message_unref(message);
    tally_wait(&caller->tally, CALLER_READS, 1);
}

/* Asks until all is asked, or nobody takes it any more. */
static void ask_on(const struct peers_fixture *f, struct rpc_stream *stream)
{
    unsigned busy = 0;
    for (uint64_t id = 1; id <= WANTS && busy < BUSY_MAX;) {
        const struct to_peer want = {.kind = TO_PEER_WANT, .want = {id, mesh_name(&f->mesh, 2, 0)}};
        struct buf bytes = encoded(&want);
        enum err err = rpc_stream_send(stream, RPC_NORMAL, &bytes, NULL, 0);
        busy = err == ERR_BUSY ? busy + 1 : 0;
        id += err == ERR_BUSY ? 0 : 1;
        if (err == ERR_BUSY)
            usleep(1000);
    }
}

/* Its answers fill the connection, then its credits. */
TEST_F(who_asks_on_and_reads_no_answer_ends, peers)
{
    static const struct rpc_stream_events events = {.message = caller_reads_late,
                                                    .closed = caller_closed};
    const struct to_peer hello = {.kind = TO_PEER_HELLO, .hello = {3}};
    struct rpc_settings settings = rpc_settings_default();
    struct caller caller = {0};
    const struct digest shown = {{0}};
    struct rpc_channel *channel = NULL;
    struct rpc_stream *stream = NULL;
    settings.threads = 2; /* one waits in the message */
    struct rpc_loop *loop = loop_new(&settings);
    tally_init(&caller.tally);
    assert_int_equal(
        rpc_channel_new_worker(loop, peers_address(f->peers[GIVES]), NULL, &shown, &channel, NULL),
        ERR_OK);
    assert_int_equal(rpc_stream_open(channel, "/roost.v1.Peer/Exchange", &events, &caller, &stream),
                     ERR_OK);
    struct buf bytes = encoded(&hello);
    assert_int_equal(rpc_stream_send(stream, RPC_NORMAL, &bytes, NULL, 0), ERR_OK);
    ask_on(f, stream);
    tally_add(&caller.tally, CALLER_READS);
    tally_wait(&caller.tally, CALLER_CLOSED, 1);
    assert_int_equal(caller.err, ERR_MALFORMED);
    rpc_stream_unref(stream);
    rpc_channel_free(channel);
    rpc_loop_free(loop);
    tally_release(&caller.tally);
}

/* ---- a value's messages ---- */

enum { MESSAGES_MAX = 16 };

struct listener {
    struct tally tally;
    unsigned count;
    struct from_peer messages[MESSAGES_MAX];
};

static void listener_hears(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    (void)stream;
    struct listener *listener = owner;
    struct arena arena = {.bytes_max = 1 << 16};
    struct from_peer *heard = &listener->messages[listener->count++];
    assert_true(listener->count <= MESSAGES_MAX);
    assert_int_equal(
        wire_decode_from_peer(message->slices, message->slice_count, &arena, heard, NULL), ERR_OK);
    bool last = heard->kind == FROM_PEER_HAVE       ? heard->have.rest == 0
                : heard->kind == FROM_PEER_FRAGMENT ? heard->fragment.rest == 0
                                                    : false;
    arena_release(&arena);
    rpc_message_unref(message);
    if (last)
        tally_add(&listener->tally, 0);
}

/* The messages in which a caller gets the value that was given. */
static void listen_to(struct peers_fixture *f, bool fragments, struct listener *listener)
{
    static const struct rpc_stream_events events = {.message = listener_hears};
    const struct to_peer hello = {.kind = TO_PEER_HELLO, .hello = {3, fragments}};
    const struct to_peer want = {.kind = TO_PEER_WANT, .want = {1, mesh_name(&f->mesh, 2, 0)}};
    struct buf hello_bytes = encoded(&hello), want_bytes = encoded(&want);
    const struct digest shown = {{0}};
    struct rpc_channel *channel = NULL;
    struct rpc_stream *stream = NULL;
    grant(f, GIVES);
    give(f, 0);
    tally_init(&listener->tally);
    assert_int_equal(rpc_channel_new_worker(f->loop, peers_address(f->peers[GIVES]), NULL, &shown,
                                            &channel, NULL),
                     ERR_OK);
    assert_int_equal(
        rpc_stream_open(channel, "/roost.v1.Peer/Exchange", &events, listener, &stream), ERR_OK);
    assert_int_equal(rpc_stream_send(stream, RPC_NORMAL, &hello_bytes, NULL, 0), ERR_OK);
    assert_int_equal(rpc_stream_send(stream, RPC_NORMAL, &want_bytes, NULL, 0), ERR_OK);
    tally_wait(&listener->tally, 0, 1);
    rpc_stream_unref(stream);
    rpc_channel_free(channel);
    tally_release(&listener->tally);
}

TEST_F(a_long_value_goes_in_fragments, peers, .network = true)
{
    struct listener listener = {0};
    listen_to(f, true, &listener);
    size_t bytes = listener.messages[0].payload_bytes;
    assert_true(listener.count > 1);
    assert_int_equal(listener.messages[0].kind, FROM_PEER_HAVE);
    assert_int_equal(listener.messages[0].have.rest, VALUE_BYTES - bytes);
    for (unsigned i = 1; i < listener.count; i++) {
        assert_int_equal(listener.messages[i].kind, FROM_PEER_FRAGMENT);
        bytes += listener.messages[i].payload_bytes;
        assert_int_equal(listener.messages[i].fragment.rest, VALUE_BYTES - bytes);
    }
    assert_int_equal(bytes, VALUE_BYTES);
}

TEST_F(who_does_not_know_fragments_gets_a_value_whole, peers, .network = true)
{
    struct listener listener = {0};
    listen_to(f, false, &listener);
    assert_int_equal(listener.count, 1);
    assert_int_equal(listener.messages[0].payload_bytes, VALUE_BYTES);
}

/* ---- peers of another make ---- */

/* So many zeros as the next message of a value, of which so many more follow. */
static void send_zeros(struct rpc_stream *stream, struct from_peer message, size_t bytes)
{
    struct counted *value = counted_new(bytes);
    const struct rpc_part part = {value, 0, bytes};
    struct buf header = {0};
    memset(value->data, 0, bytes);
    message.payload_bytes = bytes;
    ignore(wire_encode_from_peer(&message, &header)); /* the test fails if nothing comes */
    ignore(rpc_stream_send(stream, RPC_NORMAL, &header, &part, 1));
    counted_unref(value);
}

/* Whether it is a want. */
static bool read_want(struct rpc_message *take_message, struct to_peer *ret_want)
{
    uint8_t bytes[256];
    struct arena arena = {.bytes_max = 1 << 16};
    const struct slice asked = {bytes, take_message->bytes};
    assert_true(asked.bytes <= sizeof bytes);
    rpc_message_copy(take_message, 0, asked.bytes, bytes);
    rpc_message_unref(take_message);
    enum err err = wire_decode_to_peer(asked, &arena, ret_want, NULL);
    arena_release(&arena);
    return err == ERR_OK && ret_want->kind == TO_PEER_WANT;
}

/* Answers each want with so many zeros, in two messages, under the digest 1. */
static void liar_message(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    const size_t *bytes = owner;
    struct to_peer want;
    if (read_want(message, &want)) {
        const struct from_peer fragment = {.kind = FROM_PEER_FRAGMENT};
        send_zeros(
            stream,
            (struct from_peer){.kind = FROM_PEER_HAVE, .have = {want.want.id, 1, *bytes / 2}},
            *bytes - *bytes / 2);
        send_zeros(stream, fragment, *bytes / 2);
    }
}

static enum err liar_open(void *owner, struct rpc_stream *stream, const struct rpc_peer *peer,
                          void **ret_owner, struct reason *reason)
{
    (void)stream, (void)peer, (void)reason;
    *ret_owner = owner;
    return ERR_OK;
}

/* A peer of another make, whose messages that function takes, has the place that is asked. */
static void ask_the_liar(struct peers_fixture *f,
                         void (*takes)(void *, struct rpc_stream *, struct rpc_message *),
                         size_t bytes)
{
    static struct rpc_stream_events events = {.open = liar_open};
    static struct rpc_method method = {
        .path = "/roost.v1.Peer/Exchange", .kind = RPC_STREAM, .events = &events};
    events.message = takes;
    method.owner = &f->lie_bytes;
    f->lie_bytes = bytes;
    f->liar = server_new(f->loop, NULL, &method, 1);
    snprintf(f->mesh.peers[1].address, sizeof f->mesh.peers[1].address, "127.0.0.1:%u",
             rpc_server_port(f->liar));
    grant(f, TAKES);
}

static void assert_lie_is_found(struct peers_fixture *f, size_t bytes, enum err err)
{
    ask_the_liar(f, liar_message, bytes);
    assert_int_equal(take(f, 0), err);
    assert_int_equal(peers_blamed(lane_of(f, TAKES)), 2);
    assert_int_equal(peers_bytes(lane_of(f, TAKES)), 0);
}

TEST_F(a_value_with_another_digest_is_refused, peers)
{
    assert_lie_is_found(f, VALUE_BYTES, ERR_WRONG_BITS);
}

TEST_F(a_value_of_another_size_is_refused, peers)
{
    assert_lie_is_found(f, VALUE_BYTES - 1, ERR_MALFORMED);
}

/* It has no bytes, and others come for it. */
TEST_F(a_value_without_bytes_has_none, peers, .network = true)
{
    const struct executor_value value = {EXECUTOR_FORWARD, 2, 0, 0, 0};
    ask_the_liar(f, liar_message, 2 * VALUE_BYTES);
    assert_int_equal(peers_take(lane_of(f, TAKES), &value, f->taken), ERR_MALFORMED);
}

/* ---- a want that is answered more than once over one stream ---- */

enum { COPIED_US = 200000 /* by then the lane has copied what has come */ };

struct second_answer {
    struct thread thread;
    struct rpc_stream *stream;
    uint64_t id;
    unsigned wants;
};

static void send_whole(struct second_answer *answer, size_t first)
{
    const struct from_peer have = {.kind = FROM_PEER_HAVE,
                                   .have = {answer->id, 1, VALUE_BYTES - first}};
    send_zeros(answer->stream, have, first);
    usleep(COPIED_US);
    send_zeros(answer->stream, (struct from_peer){.kind = FROM_PEER_FRAGMENT, .fragment = {1}},
               VALUE_BYTES - first - 1);
    usleep(COPIED_US);
    send_zeros(answer->stream, (struct from_peer){.kind = FROM_PEER_FRAGMENT}, 1);
}

/* Almost all of the value, that there is none, the rest of it; and when it is asked for once more, the
 * value from its beginning. */
static void answer_twice(void *argument)
{
    struct second_answer *answer = argument;
    const struct from_peer gone = {.kind = FROM_PEER_GONE, .gone = {answer->id, ERR_BEHIND}};
    struct buf header = {0};
    if (answer->wants > 1) {
        send_whole(answer, 1);
        return;
    }
    send_zeros(answer->stream,
               (struct from_peer){.kind = FROM_PEER_HAVE, .have = {answer->id, 1, 1}},
               VALUE_BYTES - 1);
    usleep(COPIED_US);
    ignore(wire_encode_from_peer(&gone, &header)); /* the test fails if nothing comes */
    ignore(rpc_stream_send(answer->stream, RPC_NORMAL, &header, NULL, 0));
    send_zeros(answer->stream, (struct from_peer){.kind = FROM_PEER_FRAGMENT}, 1);
}

static struct second_answer second_answer;

static void twice_message(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    (void)owner;
    struct to_peer asked;
    struct second_answer *answer = &second_answer;
    if (!read_want(message, &asked) || asked.want.name.microbatch != 0)
        return;
    if (answer->wants > 0)
        thread_join(&answer->thread);
    else
        answer->stream = rpc_stream_ref(stream);
    answer->wants++;
    answer->id = asked.want.id;
    assert_int_equal(thread_start(&answer->thread, "answers", answer_twice, answer), ERR_OK);
}

TEST_F(what_was_copied_of_one_answer_is_none_of_another, peers, .network = true)
{
    second_answer = (struct second_answer){0};
    ask_the_liar(f, twice_message, VALUE_BYTES);
    assert_int_equal(take(f, 0), ERR_WRONG_BITS);
    thread_join(&second_answer.thread);
    assert_true(second_answer.wants > 1);
    rpc_stream_unref(second_answer.stream);
}
