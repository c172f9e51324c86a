/* What an Exchange stream may say, and when: hello first, no more than its credits; what ends it
 * and what that ends. */
#include "tests/unit/shards_fixture.h"

static void assert_closed(struct world *world, const char *words)
{
    tally_wait(&world->tally, CLOSED, 1);
    assert_int_equal(world->closed_err, ERR_MALFORMED);
    if (strstr(world->closed_reason.text, words) == NULL)
        fail_msg("closed with: %s", world->closed_reason.text);
}

TEST_IN_FOLDER(a_stream_begins_with_hello)
{
    struct world *world = world_new(state, small, 1);
    open_stream(world);
    pull_all(world, 0);
    assert_closed(world, "hello is the first");
    world_free(world);
}

TEST_IN_FOLDER(a_second_hello_ends_the_stream)
{
    struct world *world = world_new(state, small, 1);
    open_stream(world);
    hello(world);
    struct to_shard message = {.kind = TO_SHARD_HELLO, .hello = {.member = 43}};
    send_message(world, &message, NULL);
    assert_closed(world, "hello is the first");
    world_free(world);
}

TEST_IN_FOLDER(noise_ends_the_stream_and_nothing_else)
{
    struct world *world = prepared_world(state, 1);
    for (int i = 0; i < 3; i++) { /* what follows the first is not even looked at */
        struct buf noise = {0};
        assert_int_equal(buf_append(&noise, "\xff\xfe\xfd noise", 9), ERR_OK);
        enum err err = rpc_stream_send(world->stream, RPC_NORMAL, &noise, NULL, 0);
        assert_true(err == ERR_OK || err == ERR_CANCELLED);
    }
    assert_closed(world, "");
    rpc_stream_unref(world->stream);
    open_stream(world);
    hello(world);
    tally_wait(&world->tally, WELCOME, 2);
    pull_all(world, 0);
    tally_wait(&world->tally, WEIGHTS, 1);
    assert_initial(world);
    world_free(world);
}

/* While its thread makes millions of weights, a shard answers nothing. */
static void prepare_large(struct world *world)
{
    static const char large[] = "model: {kind: mlp, layers: [2, 2000, 2000, 3]}\n"
                                "data: {kind: spiral}\n"
                                "train: {steps: 4, slots: 2, slot_samples: 4, seed: 5}\n";
    struct spec spec;
    struct reason reason;
    scoped(model_release) struct model model = {0};
    assert_int_equal(spec_parse(slice_of(large), "spec", NULL, &spec, &reason), ERR_OK);
    assert_int_equal(model_init(&model, &spec.model, &reason), ERR_OK);
    struct server_command prepare = prepare_command(world, large, 1);
    struct chunk_range all = {0, model.chunks_count, 0};
    prepare.prepare.ranges = &all;
    command(world, prepare);
}

TEST_IN_FOLDER(more_pulls_than_credits_end_the_stream)
{
    struct world *world = world_new(state, small, 1);
    open_stream(world);
    hello(world);
    prepare_large(world);
    const uint32_t first = 0;
    for (int i = 0; i < WIRE_CREDITS + 1; i++)
        pull(world, 0, &first, 1);
    assert_closed(world, "more pulls");
    assert_int_equal(wait_report(world, SERVER_READY, 1).ready.code, ERR_OK);
    /* Many more chunks than copies that the writer may have. */
    assert_int_equal(wait_report(world, SERVER_MANIFEST, 1).manifest.code, ERR_OK);
    world_free(world);
}

TEST_IN_FOLDER(more_pushes_than_credits_end_the_stream)
{
    struct world *world = world_new(state, small, 1);
    open_stream(world);
    hello(world);
    prepare_large(world);
    for (uint32_t i = 0; i < WIRE_CREDITS + 1; i++)
        push_all(world, 0, 0, 1);
    assert_closed(world, "more pushes");
    assert_int_equal(wait_report(world, SERVER_READY, 1).ready.code, ERR_OK);
    world_free(world);
}

TEST_IN_FOLDER(an_acknowledgement_gives_its_credit_back)
{
    struct world *world = prepared_world(state, 2);
    for (uint32_t i = 1; i <= 3 * WIRE_CREDITS; i++) {
        push_all(world, 0, 0, 1);
        tally_wait(&world->tally, ACK, i);
        assert_int_equal(last_received(world).ack.code, ERR_OK);
    }
    world_free(world);
}

/* What a stream asked for just before it went is not parked after it was forgotten. */
TEST_IN_FOLDER(pulls_that_outlive_their_stream_are_passed_over)
{
    struct world *world = world_new(state, small, 1);
    open_stream(world);
    hello(world);
    struct rpc_stream *other = world->stream;
    open_stream(world);
    tally_wait(&world->tally, WELCOME, 1);
    struct to_shard message = {.kind = TO_SHARD_HELLO, .hello = {.member = 43}};
    send_message(world, &message, NULL);
    tally_wait(&world->tally, WELCOME, 2);
    prepare_large(world);
    const uint32_t first = 0;
    for (uint32_t i = 0; i < WIRE_CREDITS; i++) { /* a batch of the shard thread */
        push_all(world, 0, 0, 1);
        pull(world, 1, &first, 1);
    }
    struct rpc_stream *stays = world->stream;
    world->stream = other;
    for (uint32_t i = 0; i < WIRE_CREDITS; i++)
        pull(world, 1, &first, 1);
    send_message(world, &message, NULL); /* a second hello: ended after all that came before */
    tally_wait(&world->tally, CLOSED, 1);
    assert_int_equal(wait_report(world, SERVER_READY, 1).ready.code, ERR_OK);
    tally_wait(&world->tally, ACK, WIRE_CREDITS);
    command(world, (struct server_command){.kind = SERVER_END}); /* tells all that are parked */
    wait_report(world, SERVER_READY, 1);
    tally_wait(&world->tally, REFUSAL, 2 * WIRE_CREDITS);
    rpc_stream_unref(other);
    world->stream = stays;
    world_free(world);
}

int main(void)
{
    rpc_process_init(false);
    return unit_run(NULL, NULL);
}
