/* What an Exchange stream may say, and when: hello first, no more than its credits; what ends it
 * and what that ends. */
#include "tests/unit/shards_fixture.h"

static void assert_closed(struct shards_fixture *world, const char *words)
{
    tally_wait(&world->tally, CLOSED, 1);
    assert_int_equal(world->closed_err, ERR_MALFORMED);
    if (strstr(world->closed_reason.text, words) == NULL)
        fail_msg("closed with: %s", world->closed_reason.text);
}

TEST_F(a_stream_begins_with_hello, shards, .threads = 1)
{
    open_stream(f);
    pull_all(f, 0);
    assert_closed(f, "hello is the first");
}

TEST_F(a_second_hello_ends_the_stream, shards, .threads = 1, .welcome = true)
{
    struct to_shard message = hello_of(43);
    send_message(f, &message, NULL);
    assert_closed(f, "hello is the first");
}

TEST_F(noise_ends_the_stream_and_nothing_else, shards, .threads = 1, .prepared = true)
{
    for (int i = 0; i < 3; i++) { /* what follows the first is not even looked at */
        struct buf noise = {0};
        assert_int_equal(buf_append(&noise, "\xff\xfe\xfd noise", 9), ERR_OK);
        enum err err = rpc_stream_send(f->stream, RPC_NORMAL, &noise, NULL, 0);
        assert_true(err == ERR_OK || err == ERR_CANCELLED);
    }
    assert_closed(f, "");
    rpc_stream_unref(f->stream);
    open_stream(f);
    hello(f);
    tally_wait(&f->tally, WELCOME, 2);
    pull_all(f, 0);
    tally_wait(&f->tally, WEIGHTS, 1);
    assert_initial(f);
}

/* While its thread makes millions of weights, a shard answers nothing. */
static void prepare_large(struct shards_fixture *world)
{
    static const char large[] = "model: {kind: mlp, layers: [2, 2000, 2000, 3]}\n"
                                "data: {kind: spiral}\n"
                                "train: {steps: 4, slots: 2, slot_samples: 4, seed: 5}\n";
    struct spec spec;
    scoped(model_release) struct model model = {0};
    assert_int_equal(spec_parse(slice_of(large), "spec", NULL, &spec, NULL), ERR_OK);
    assert_int_equal(model_init(&model, &spec.model, NULL), ERR_OK);
    struct server_command prepare = prepare_command(world, large, 1);
    struct chunk_range all = {0, model.chunks_count, 0};
    prepare.prepare.ranges = &all;
    command(world, prepare);
}

TEST_F(more_pulls_than_credits_end_the_stream, shards, .threads = 1, .welcome = true)
{
    prepare_large(f);
    const uint32_t first = 0;
    for (int i = 0; i < WIRE_CREDITS + 1; i++)
        pull(f, 0, &first, 1);
    assert_closed(f, "more pulls");
    assert_int_equal(wait_report(f, SERVER_READY, 1).ready.code, ERR_OK);
    /* Many more chunks than copies that the writer may have. */
    assert_int_equal(wait_report(f, SERVER_MANIFEST, 1).manifest.code, ERR_OK);
}

TEST_F(more_pushes_than_credits_end_the_stream, shards, .threads = 1, .welcome = true)
{
    prepare_large(f);
    for (uint32_t i = 0; i < WIRE_CREDITS + 1; i++)
        push_all(f, 0, 0);
    assert_closed(f, "more pushes");
    assert_int_equal(wait_report(f, SERVER_READY, 1).ready.code, ERR_OK);
}

TEST_F(an_acknowledgement_gives_its_credit_back, shards, .threads = 2, .prepared = true)
{
    for (uint32_t i = 1; i <= 3 * WIRE_CREDITS; i++) {
        push_all(f, 0, 0);
        tally_wait(&f->tally, ACK, i);
        assert_int_equal(last_received(f).ack.code, ERR_OK);
    }
}

TEST_F(the_largest_push_fits, shards, .threads = 1, .welcome = true)
{
    static const uint32_t rows[] = {1 << 16, 1 << 17, 1 << 18, 1 << 19};
    struct push_entry entries[WIRE_ENTRIES_MAX];
    for (uint32_t i = 0; i < WIRE_ENTRIES_MAX; i++)
        entries[i] = (struct push_entry){.chunk = WIRE_CHUNKS_MAX - 1,
                                         .version = i,
                                         .sparse = true,
                                         .row_count = sizeof rows / sizeof rows[0],
                                         .rows = rows};
    const struct to_shard message = {.kind = TO_SHARD_PUSH,
                                     .push = {.entry_count = WIRE_ENTRIES_MAX, .entries = entries}};
    send_message(f, &message, NULL);
    tally_wait(&f->tally, ACK, 1); /* it is nobody's ticket, but it is answered */
    assert_int_equal(last_received(f).ack.first_refused, 0);
}

static enum err refusal_of(struct shards_fixture *world, struct to_shard message, unsigned streams)
{
    open_stream(world);
    send_message(world, &message, NULL);
    tally_wait(&world->tally, WELCOME, streams);
    pull_all(world, 0);
    tally_wait(&world->tally, REFUSAL, streams);
    return last_received(world).refusal.code;
}

TEST_F(who_has_another_s_secret_or_none_is_nobody, shards, .threads = 1)
{
    command(f, prepare_command(f, small, 1));
    wait_report(f, SERVER_READY, 1);
    struct to_shard message = hello_of(7);
    message.hello.secret.bytes[WIRE_PROOF_BYTES - 1] ^= 1;
    assert_int_equal(refusal_of(f, message, 1), ERR_UNKNOWN_MEMBER);
    rpc_stream_unref(f->stream);
    message.hello.secret = hello_of(8).hello.secret;
    assert_int_equal(refusal_of(f, message, 2), ERR_UNKNOWN_MEMBER);
    rpc_stream_unref(f->stream);
    message.hello.secret = (struct proof){{0}};
    assert_int_equal(refusal_of(f, message, 3), ERR_UNKNOWN_MEMBER);
    push_all(f, 0, 0);
    tally_wait(&f->tally, ACK, 1);
    assert_int_equal(last_received(f).ack.code, ERR_UNKNOWN_MEMBER);
    assert_int_equal(last_received(f).ack.first_refused, 0);
}

TEST_F(a_member_of_an_earlier_term_joins_again_and_one_of_a_later_term_waits, shards, .threads = 1)
{
    command(f, prepare_command(f, small, 1));
    wait_report(f, SERVER_READY, 1);
    struct to_shard message = hello_of(7);
    message.hello.member = proof_member_number(TERM - 1, 7);
    assert_int_equal(refusal_of(f, message, 1), ERR_OLD_GENERATION);
    rpc_stream_unref(f->stream);
    message.hello.member = proof_member_number(TERM + 1, 7);
    assert_int_equal(refusal_of(f, message, 2), ERR_BEHIND);
}

/* Signed for another member: the stream's own secret does not help. */
TEST_F(another_s_grant_counts_nothing, shards, .threads = 1, .prepared = true)
{
    rpc_stream_unref(f->stream);
    struct to_shard message = hello_of(43); /* push_all() brings tickets of member 42 */
    open_stream(f);
    send_message(f, &message, NULL);
    tally_wait(&f->tally, WELCOME, 2);
    push_all(f, 0, 0);
    tally_wait(&f->tally, ACK, 1);
    assert_int_equal(last_received(f).ack.code, ERR_NO_GRANT);
    assert_int_equal(last_received(f).ack.first_refused, 0);
}

/* What a stream asked for just before it went is not parked after it was forgotten. */
TEST_F(pulls_that_outlive_their_stream_are_passed_over, shards, .threads = 1, .welcome = true)
{
    struct rpc_stream *other = f->stream;
    open_stream(f);
    tally_wait(&f->tally, WELCOME, 1);
    struct to_shard message = hello_of(43);
    send_message(f, &message, NULL);
    tally_wait(&f->tally, WELCOME, 2);
    prepare_large(f);
    const uint32_t first = 0;
    for (uint32_t i = 0; i < WIRE_CREDITS; i++) { /* a batch of the shard thread */
        push_all(f, 0, 0);
        pull(f, 1, &first, 1);
    }
    struct rpc_stream *stays = f->stream;
    f->stream = other;
    for (uint32_t i = 0; i < WIRE_CREDITS; i++)
        pull(f, 1, &first, 1);
    send_message(f, &message, NULL); /* a second hello: ended after all that came before */
    tally_wait(&f->tally, CLOSED, 1);
    assert_int_equal(wait_report(f, SERVER_READY, 1).ready.code, ERR_OK);
    tally_wait(&f->tally, ACK, WIRE_CREDITS);
    command(f, (struct server_command){.kind = SERVER_END}); /* tells all that are parked */
    wait_report(f, SERVER_READY, 1);
    tally_wait(&f->tally, REFUSAL, 2 * WIRE_CREDITS);
    rpc_stream_unref(other);
    f->stream = stays;
}
