/* A worker of an async run (P12): every pull is recorded, every push names what it was computed on.
 */
#include "tests/unit/agent_fixture.h"

static bool newest(struct agent_fixture *f, const struct agent_effect *pull)
{
    uint64_t versions[WIRE_ENTRIES_MAX];
    assert_true(pull->pull.newest);
    for (uint32_t i = 0; i < pull->pull.chunk_count; i++)
        versions[i] = 100 + pull->pull.chunks[i];
    const struct weights weights = {.id = pull->pull.id,
                                    .chunk_count = pull->pull.chunk_count,
                                    .chunks = pull->pull.chunks,
                                    .versions = versions};
    uint32_t lane;
    bool wanted = agent_weights(f->agent, f->now_ms, pull->server, &weights, &lane);
    look(f);
    return wanted;
}

static void pull_newest(struct agent_fixture *f)
{
    struct agent_effect pulls[SERVERS] = {*seen(f, AGENT_PULL, 0), *seen(f, AGENT_PULL, 1)};
    assert_int_equal(count(f, AGENT_PULL), SERVERS);
    for (uint32_t i = 0; i < SERVERS; i++) {
        assert_int_equal(pulls[i].pull.attempt, 9);
        assert_true(newest(f, &pulls[i]));
    }
}

static void scaled(struct agent_fixture *f, float scale)
{
    agent_computed(f->agent, f->now_ms, &(struct agent_result){.err = ERR_OK, .scale = scale});
    look(f);
}

TEST_F(async_pushes_say_what_they_were_computed_on, agent, .async = true, .begin = GRANTED)
{
    pull_newest(f);
    gradients(f);
    assert_int_equal(count(f, AGENT_PUSH), 0); /* the scale is not known */
    scaled(f, 0.5f);
    struct agent_effect pushes[SERVERS] = {*seen(f, AGENT_PUSH, 0), *seen(f, AGENT_PUSH, 1)};
    for (uint32_t i = 0; i < SERVERS; i++) {
        const struct push *push = &pushes[i].push;
        assert_int_equal(push->attempt, 9);
        assert_int_equal(push->boot, BOOT + pushes[i].server);
        assert_true(push->scale == 0.5f);
        for (uint32_t e = 0; e < push->entry_count; e++) {
            bool loss =
                f->model.chunks[push->entries[e].chunk].parameter == f->model.loss_parameter;
            assert_int_equal(push->entries[e].version, loss ? 0 : 100 + push->entries[e].chunk);
        }
    }
    acked(f, &pushes[0], ERR_OK, 0);
    acked(f, &pushes[1], ERR_OK, 0);
    const struct complete_request *complete = &seen(f, AGENT_COMPLETE, 0)->complete;
    assert_int_equal(complete->boot_count, SERVERS);
    assert_int_equal(complete->boots[0], BOOT);
    assert_int_equal(complete->boots[1], BOOT + 1);
}

TEST_F(p12_who_has_the_loss_alone_is_told_its_own_boot, agent, .async = true)
{
    for (uint32_t c = 0; c < f->model.chunks_count; c++)
        f->chunk_servers[c] = f->model.chunks[c].parameter == f->model.loss_parameter ? 1 : 0;
    granted(f, start(f).sequence, ticket_of(1, 0));
    assert_int_equal(count(f, AGENT_PULL), 1);
    struct agent_effect pull = *seen(f, AGENT_PULL, 0);
    assert_true(newest(f, &pull));
    gradients(f);
    scaled(f, 1);
    struct agent_effect pushes[SERVERS] = {*seen(f, AGENT_PUSH, 0), *seen(f, AGENT_PUSH, 1)};
    for (uint32_t i = 0; i < SERVERS; i++)
        assert_int_equal(pushes[i].push.boot, BOOT + pushes[i].server);
}

/* It joined with the map of the generation before, which had a server more. */
TEST_F(p12_complete_names_the_boots_of_the_maps_servers, agent, .async = true)
{
    agent_free(f->agent);
    const struct agent_config config = {.model = &f->model, .async = true, .seed = 5};
    assert_int_equal(agent_new(&config, &f->agent), ERR_OK);
    look(f);
    const struct join_reply reply = {.member = 41, .run = 1, .generation = 2};
    const struct agent_map before = {8, SERVERS, f->chunk_servers, 1};
    agent_joined(f->agent, f->now_ms, &reply, &before);
    look(f);
    const struct acquire_reply grant = {ACQUIRE_TICKET, ticket_of(2, 0), 2};
    agent_acquired(f->agent, f->now_ms, seen(f, AGENT_ACQUIRE, 0)->acquire.sequence, ERR_OK,
                   &grant);
    look(f);
    assert_int_equal(count(f, AGENT_DESCRIBE), 1);
    memset(f->chunk_servers, 0, f->model.chunks_count * sizeof *f->chunk_servers);
    const struct agent_map map = {2, 1, f->chunk_servers, 2};
    agent_mapped(f->agent, f->now_ms, &map);
    agent_stream_up(f->agent, f->now_ms, 0, BOOT);
    look(f);
    assert_int_equal(count(f, AGENT_PULL), 1);
    struct agent_effect pull = *seen(f, AGENT_PULL, 0);
    assert_true(newest(f, &pull));
    gradients(f);
    scaled(f, 1);
    struct agent_effect push = *seen(f, AGENT_PUSH, 0);
    acked(f, &push, ERR_OK, 0);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.boot_count, 1);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.boots[0], BOOT);
}

TEST_F(async_pulls_every_chunk_anew_for_each_ticket, agent, .async = true, .begin = GRANTED)
{
    pull_newest(f);
    gradients(f);
    scaled(f, 1);
    struct agent_effect pushes[SERVERS] = {*seen(f, AGENT_PUSH, 0), *seen(f, AGENT_PUSH, 1)};
    acked(f, &pushes[0], ERR_OK, 0);
    acked(f, &pushes[1], ERR_OK, 0);
    granted(f, seen(f, AGENT_ACQUIRE, 0)->acquire.sequence, ticket_of(1, 0));
    assert_int_equal(count(f, AGENT_PULL), SERVERS);
    pull_newest(f);
}

static void expect_dropped(struct agent_fixture *f, enum err outcome)
{
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.outcome, outcome);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.boot_count, 0);
    assert_int_equal(count(f, AGENT_ACQUIRE), 1);
    assert_int_equal(count(f, AGENT_JOIN), 0);
}

TEST(async_what_is_stale_or_beyond_drops_the_ticket)
{
    const enum err errs[] = {ERR_STALE, ERR_BEYOND};
    for (uint32_t i = 0; i < 2; i++) {
        struct agent_fixture f = {.async = true, .begin = GRANTED};
        agent_set_up(&f);
        pull_newest(&f);
        gradients(&f);
        scaled(&f, 1);
        struct agent_effect push = *seen(&f, AGENT_PUSH, 0);
        acked(&f, &push, errs[i], 0);
        expect_dropped(&f, errs[i]);
        agent_tear_down(&f);
    }
}

TEST_F(p12_a_new_boot_ends_the_attempt_that_pulled_from_the_old, agent, .async = true,
       .begin = GRANTED)
{
    pull_newest(f);
    agent_stream_lost(f->agent, f->now_ms, 1, ERR_UNREACHABLE);
    wait(f, BACKOFF_MS);
    assert_int_equal(count(f, AGENT_COMPLETE), 0); /* it may be the same */
    agent_stream_up(f->agent, f->now_ms, 1, BOOT + 1);
    look(f);
    assert_int_equal(count(f, AGENT_COMPLETE), 0);
    agent_stream_lost(f->agent, f->now_ms, 1, ERR_UNREACHABLE);
    wait(f, BACKOFF_MS);
    agent_stream_up(f->agent, f->now_ms, 1, BOOT + 50);
    look(f);
    expect_dropped(f, ERR_STALE);
}

TEST_F(async_an_attempt_asks_each_chunk_once, agent, .async = true, .begin = GRANTED)
{
    struct agent_effect pull = *seen(f, AGENT_PULL, 0);
    agent_stream_lost(f->agent, f->now_ms, pull.server, ERR_UNREACHABLE);
    look(f);
    expect_dropped(f, ERR_STALE);
}

/* One thread of the server was full; another one has written down what it gave the attempt. */
TEST_F(async_a_refused_pull_is_asked_again_by_another_attempt, agent, .async = true,
       .begin = GRANTED)
{
    struct agent_effect pull = *seen(f, AGENT_PULL, 0);
    uint32_t server = pull.server;
    refused(f, &pull, ERR_BUSY);
    expect_dropped(f, ERR_STALE);
    struct agent_effect acquire = *seen(f, AGENT_ACQUIRE, 0);
    assert_false(newest(f, &pull)); /* what the other thread gave came behind */
    computed(f, ERR_CANCELLED);
    struct ticket ticket = ticket_of(1, 0);
    ticket.attempt = 10;
    granted(f, acquire.acquire.sequence, ticket);
    assert_int_equal(count(f, AGENT_PULL), SERVERS - 1); /* that server is given time */
    wait(f, BACKOFF_MS);
    assert_int_equal(seen(f, AGENT_PULL, 0)->server, server);
    assert_int_equal(seen(f, AGENT_PULL, 0)->pull.attempt, 10);
}

TEST_F(async_weights_without_versions_are_not_wanted, agent, .async = true, .begin = GRANTED)
{
    struct agent_effect pull = *seen(f, AGENT_PULL, 0);
    assert_false(weights(f, &pull));
    assert_true(newest(f, &pull));
}
