/* What an accepted connection may bring, leave unfinished and repeat before it goes. */
#include "tests/unit/accepted_fixture.h"

#include "common/thread.h"

#define NOW_NS 1000000000u

/* ---- what a peer sends (RFC 9113 4.1) ---- */

enum { DATA = 0, HEADERS = 1, SETTINGS = 4, PING = 6, CONTINUATION = 9, HEADERS_BYTES = 70 };
enum { END_HEADERS = 4, ACK = 1 };
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

/* So many bytes with the frame's header. */
static void put_headers(struct sent *sent, uint8_t flags, uint32_t stream, size_t bytes)
{
    put(sent, HEADERS, flags, stream, bytes - FRAME_BYTES);
}

static void bring(struct accepted_fixture *world, unsigned number, struct sent *sent)
{
    accepted_brought(world->peers[number], (struct slice){sent->bytes, sent->count});
    sent->count = 0;
}

static void acknowledge(struct accepted_fixture *world, unsigned number)
{
    struct sent sent = {.count = 0};
    put(&sent, SETTINGS, ACK, 0, 0);
    bring(world, number, &sent);
}

/* A worker from HOST, whose preface has come. */
static unsigned silent_worker_from(struct accepted_fixture *world, uint64_t certificate)
{
    unsigned number = peer_from(world, HOST);
    prove(world, number, TLS_ROLE_WORKER, certificate);
    accepted_brought(world->peers[number],
                     (struct slice){(const uint8_t *)"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24});
    return number;
}

/* And who knows what the server has set. */
static unsigned worker_from(struct accepted_fixture *world, uint64_t certificate)
{
    unsigned number = silent_worker_from(world, certificate);
    accepted_answered(world->peers[number]);
    acknowledge(world, number);
    return number;
}

static void bring_data(struct accepted_fixture *world, unsigned number, uint32_t stream,
                       size_t bytes)
{
    struct sent sent = {.count = 0};
    put(&sent, DATA, 0, stream, bytes);
    bring(world, number, &sent);
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

/* ---- what is not finished ---- */

TEST_F(a_handshake_has_so_many_bytes, accepted)
{
    unsigned peer = peer_from(f, HOST), other = peer_from(f, HOST);
    accepted_received(f->peers[peer], 1000);
    accepted_received(f->peers[other], 1001);
    assert_true(is_open(f, peer));
    assert_false(is_open(f, other));
    assert_int_equal(closed_by(f, CLOSING_HANDSHAKE), 1);
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
    assert_int_equal(closed_by(f, CLOSING_UNFINISHED), 1);
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
    assert_int_equal(closed_by(f, CLOSING_MOST_UNFINISHED), 1);
    assert_true(is_open(f, 0) && is_open(f, 2));
    bring_data(f, 0, 1, 1); /* what the closing one has still counts, but for nobody else */
    assert_true(is_open(f, 0) && is_open(f, 2));
    accepted_gone(f->peers[1]);
    f->peers[1] = NULL;
    assert_int_equal(unfinished(f), 3002);
    assert_int_equal(accepted_count(f->table).dropped_bytes, 2000 + FRAME_BYTES + HEADERS_BYTES);
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

TEST_F(headers_of_one_call_have_so_many_bytes, accepted)
{
    unsigned peer = worker_from(f, 7);
    struct sent sent = {.count = 0};
    for (uint32_t stream = 1; stream < 9; stream += 2) { /* whole ones do not add up */
        put_headers(&sent, 0, stream, 1500);
        put(&sent, CONTINUATION, END_HEADERS, stream, 1000 - FRAME_BYTES);
        bring(f, peer, &sent);
    }
    assert_true(is_open(f, peer));
    put_headers(&sent, END_HEADERS, 9, 2501);
    bring(f, peer, &sent);
    assert_false(is_open(f, peer));
    assert_int_equal(closed_by(f, CLOSING_HEADERS), 1);
}

/* Who does not acknowledge the settings is bound by none: gRPC takes lists of 16 MiB of it, of which
 * a byte may mean hundreds (RFC 7541 6.1). */
TEST_F(headers_add_up_until_the_settings_are_acknowledged, accepted)
{
    unsigned peer = silent_worker_from(f, 7), other = silent_worker_from(f, 8);
    struct sent sent = {.count = 0};
    put_headers(&sent, END_HEADERS, 1, 1500);
    put_headers(&sent, END_HEADERS, 3, 1000);
    bring(f, peer, &sent);
    assert_true(is_open(f, peer));
    put_headers(&sent, END_HEADERS, 5, FRAME_BYTES);
    bring(f, peer, &sent);
    assert_false(is_open(f, peer));

    accepted_answered(f->peers[other]);
    for (uint32_t stream = 1; stream < 9; stream += 2) {
        put_headers(&sent, END_HEADERS, stream, 2000);
        put(&sent, SETTINGS, ACK, 0, 0);
        bring(f, other, &sent);
    }
    assert_true(is_open(f, other));
}

/* Many connections may each have what one may. */
TEST_F(headers_count_as_what_they_may_mean_until_then, accepted, .header_byte_means = 3)
{
    unsigned first = silent_worker_from(f, 7), second = silent_worker_from(f, 8);
    struct sent sent = {.count = 0};
    put_headers(&sent, END_HEADERS, 1, 600);
    bring(f, first, &sent);
    assert_int_equal(unfinished(f), 1800);
    put_headers(&sent, END_HEADERS, 1, 500);
    bring(f, second, &sent);
    assert_int_equal(unfinished(f), 3300);
    accepted_answered(f->peers[first]);
    acknowledge(f, first);
    assert_int_equal(unfinished(f), 1500);
    assert_true(is_open(f, second));
    put_headers(&sent, END_HEADERS, 3, 500); /* more than a worker may leave unfinished */
    bring(f, second, &sent);
    assert_false(is_open(f, second));
}

/* It would be one of settings that gRPC has not sent, so that those hold that are there before. */
TEST_F(what_is_acknowledged_before_it_was_sent_does_not_count, accepted)
{
    unsigned peer = silent_worker_from(f, 7);
    struct sent sent = {.count = 0};
    acknowledge(f, peer);
    accepted_answered(f->peers[peer]);
    put_headers(&sent, END_HEADERS, 1, 2000);
    put_headers(&sent, END_HEADERS, 3, 501);
    bring(f, peer, &sent);
    assert_false(is_open(f, peer));
}

TEST_F(headers_of_a_connection_that_ended_are_dropped_bytes, accepted)
{
    unsigned peer = worker_from(f, 7);
    struct sent sent = {.count = 0};
    put_headers(&sent, END_HEADERS, 1, 1500);
    put_headers(&sent, END_HEADERS, 3, 1000);
    bring(f, peer, &sent);
    accepted_call_end(show_call(f, peer));
    accepted_call_end(show_call(f, peer));
    accepted_gone(f->peers[peer]);
    f->peers[peer] = NULL;
    assert_int_equal(accepted_count(f->table).dropped_bytes, 2500);
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
    assert_int_equal(closed_by(f, CLOSING_CALLS), 1);
    for (unsigned i = 0; i < 7; i++)
        accepted_call_end(calls[i]);
}

/* Another method than POST, no path, no `te: trailers`: gRPC refuses such a call and shows it nobody. */
TEST_F(calls_that_the_library_never_shows_count_for_a_while, accepted)
{
    unsigned peer = worker_from(f, 7);
    struct sent sent = {.count = 0};
    for (uint32_t stream = 1; stream < 31; stream += 2) {
        put(&sent, HEADERS, END_HEADERS, stream, HEADERS_BYTES);
        put(&sent, DATA, 0, stream, 100);
        bring(f, peer, &sent);
        if (stream % 3 == 0) /* then there are three more */
            accepted_write_off(f->table);
    }
    assert_true(is_open(f, peer));
    for (unsigned i = 0; i < 2; i++)
        accepted_write_off(f->table);
    assert_int_equal(unfinished(f), 0);
    for (uint32_t stream = 31; stream < 45; stream += 2)
        put(&sent, HEADERS, END_HEADERS, stream, HEADERS_BYTES);
    bring(f, peer, &sent);
    assert_false(is_open(f, peer));
}

TEST_F(calls_that_are_open_count_for_good, accepted)
{
    unsigned peer = worker_from(f, 7);
    struct accepted_call *calls[7];
    struct sent sent = {.count = 0};
    put(&sent, HEADERS, END_HEADERS, 1, HEADERS_BYTES);
    bring(f, peer, &sent);
    for (unsigned i = 0; i < 3; i++)
        accepted_write_off(f->table);
    calls[0] = show_call(f, peer); /* late */
    for (uint32_t i = 1; i < 6; i++)
        calls[i] = call_of(f, peer, 1 + 2 * i);
    for (unsigned i = 0; i < 3; i++)
        accepted_write_off(f->table);
    assert_true(is_open(f, peer));
    calls[6] = call_of(f, peer, 13);
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
    assert_int_equal(closed_by(f, CLOSING_RESETS), 1);
    accepted_call_end(call);
}

enum { RESETS_OF_EACH = 20000 };

struct resetting {
    struct accepted_call *call;
    atomic_uint *begun;
};

/* Begins when the other thread does. */
static void reset_often(void *argument)
{
    struct resetting *resetting = argument;
    atomic_fetch_add(resetting->begun, 1);
    while (atomic_load(resetting->begun) < 2) {
    }
    for (unsigned i = 0; i < RESETS_OF_EACH; i++)
        accepted_reset(resetting->call, NOW_NS * 100ull);
}

/* Calls through shared memory end on other threads than the connection's. */
TEST_F(calls_given_up_on_two_threads_are_all_counted, accepted, .resets_max = 2 * RESETS_OF_EACH)
{
    unsigned peer = worker_from(f, 7);
    atomic_uint begun = 0;
    struct resetting here = {call_of(f, peer, 1), &begun}, there = {call_of(f, peer, 3), &begun};
    struct thread other;
    assert_int_equal(thread_start(&other, "other", reset_often, &there), ERR_OK);
    reset_often(&here);
    thread_join(&other);
    assert_true(is_open(f, peer));
    accepted_reset(here.call, NOW_NS * 100ull);
    assert_false(is_open(f, peer));
    accepted_call_end(here.call);
    accepted_call_end(there.call);
}

TEST_F(who_renews_its_keys_too_often_goes, accepted)
{
    unsigned peer = worker_from(f, 7);
    for (unsigned i = 0; i < 12; i++) /* one in four seconds */
        assert_true(accepted_rekeyed(f->peers[peer], NOW_NS * 4ull * (i + 10)));
    for (unsigned i = 0; i < 3; i++)
        assert_true(accepted_rekeyed(f->peers[peer], NOW_NS * 100ull));
    assert_true(is_open(f, peer));
    assert_false(accepted_rekeyed(f->peers[peer], NOW_NS * 100ull + 1));
    assert_false(is_open(f, peer));
    assert_int_equal(closed_by(f, CLOSING_REKEYS), 1);
}
