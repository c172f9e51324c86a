/* The protocol side of a worker, without anything around it. */
#include "tests/unit/unit.h"

#include "worker/agent.h"

#include <stdlib.h>

enum { SERVERS = 2, EFFECTS_MAX = 128, BACKOFF_MS = 15001 /* longer than any */ };

/* An agent, the time, and what it asked for last. */
struct fixture {
    struct model model;
    struct agent *agent;
    uint32_t *chunk_servers;
    uint64_t now_ms;
    uint64_t member; /* of the newest join */
    uint32_t count;
    struct agent_effect effects[EFFECTS_MAX];
};

static void setup_model(struct fixture *f, struct spec_model settings)
{
    *f = (struct fixture){.now_ms = 1000, .member = 40};
    assert_int_equal(model_init(&f->model, &settings, NULL), ERR_OK);
    f->chunk_servers = calloc(f->model.chunks_count, sizeof *f->chunk_servers);
    assert_non_null(f->chunk_servers);
    for (uint32_t c = 0; c < f->model.chunks_count; c++)
        f->chunk_servers[c] = c % SERVERS;
    const struct agent_config config = {.model = &f->model, .seed = 5};
    assert_int_equal(agent_new(&config, &f->agent), ERR_OK);
}

/* Two units; chunks fc1.weight, fc1.bias, fc2.weight, fc2.bias, loss on servers 0, 1, 0, 1, 0. */
static void setup(struct fixture *f)
{
    setup_model(f, (struct spec_model){
                       .kind = SPEC_MLP, .sizes_count = 3, .sizes = {4, 6, 3}, .tensor_max = 8});
    assert_int_equal(f->model.chunks_count, 5);
}

/* One unit of more than forty chunks, each of which fills a message. */
static void setup_large(struct fixture *f)
{
    setup_model(f, (struct spec_model){
                       .kind = SPEC_MLP, .sizes_count = 2, .sizes = {4096, 1024}, .tensor_max = 1});
    assert_in_range(f->model.chunks_count, 34, 64);
}

static void teardown(struct fixture *f)
{
    agent_free(f->agent);
    model_release(&f->model);
    free(f->chunk_servers);
}

/* Everything that is to be done now; then nothing is, until an event or the time. */
static void look(struct fixture *f)
{
    f->count = 0;
    while (agent_next(f->agent, f->now_ms, &f->effects[f->count])) {
        f->count++;
        assert_true(f->count < EFFECTS_MAX);
    }
    agent_check(f->agent);
    assert_true(agent_wake_ms(f->agent) > f->now_ms);
}

static uint32_t count(const struct fixture *f, enum agent_effect_kind kind)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < f->count; i++)
        found += f->effects[i].kind == kind;
    return found;
}

/* The n-th effect of that kind. */
static const struct agent_effect *seen(const struct fixture *f, enum agent_effect_kind kind,
                                       uint32_t n)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->effects[i].kind == kind && n-- == 0)
            return &f->effects[i];
    fail_msg("no such effect");
    return NULL;
}

static void wait(struct fixture *f, uint64_t ms)
{
    f->now_ms += ms;
    look(f);
}

/* ---- what comes from outside ---- */

static void joined(struct fixture *f, uint64_t generation)
{
    const struct join_reply reply = {.member = ++f->member, .run = 1, .generation = generation};
    const struct agent_map map = {1, SERVERS, f->chunk_servers, generation};
    agent_joined(f->agent, f->now_ms, &reply, &map);
    look(f);
}

static void streams_up(struct fixture *f)
{
    for (uint32_t s = 0; s < SERVERS; s++)
        agent_stream_up(f->agent, f->now_ms, s, 1);
    look(f);
}

/* A member with open streams that has asked for a ticket. */
static struct acquire_request start(struct fixture *f)
{
    look(f);
    assert_int_equal(count(f, AGENT_JOIN), 1);
    joined(f, 1);
    struct acquire_request request = seen(f, AGENT_ACQUIRE, 0)->acquire;
    assert_int_equal(count(f, AGENT_OPEN), SERVERS);
    streams_up(f);
    return request;
}

static struct ticket ticket_of(uint64_t generation, uint64_t version)
{
    return (struct ticket){.kind = TICKET_TRAIN,
                           .generation = generation,
                           .step = version,
                           .version = version,
                           .node = {0, 3},
                           .attempt = 9};
}

static void granted(struct fixture *f, uint64_t sequence, struct ticket ticket)
{
    const struct acquire_reply reply = {ACQUIRE_TICKET, ticket};
    agent_acquired(f->agent, f->now_ms, sequence, ERR_OK, &reply);
    look(f);
}

/* All of the pull; true: the agent wants it. */
static bool weights(struct fixture *f, const struct agent_effect *pull)
{
    const struct weights weights = {.id = pull->pull.id,
                                    .version = pull->pull.version,
                                    .chunk_count = pull->pull.chunk_count,
                                    .chunks = pull->pull.chunks};
    bool wanted = agent_weights(f->agent, f->now_ms, pull->server, &weights);
    look(f);
    return wanted;
}

static void refused(struct fixture *f, const struct agent_effect *pull, enum err err)
{
    agent_refused(f->agent, f->now_ms, pull->server, &(struct pull_refusal){pull->pull.id, err});
    look(f);
}

static void acked(struct fixture *f, const struct agent_effect *push, enum err err,
                  uint32_t first_refused)
{
    const struct push_ack ack = {push->push.push.id, err, first_refused};
    agent_acked(f->agent, f->now_ms, push->server, &ack);
    look(f);
}

static void gradients(struct fixture *f)
{
    for (uint32_t unit = f->model.units_count; unit-- > 0;)
        agent_gradient(f->agent, f->now_ms, unit);
    look(f);
}

static void computed(struct fixture *f, enum err err)
{
    agent_computed(f->agent, f->now_ms, &(struct agent_result){.err = err});
    look(f);
}

/* Takes the ticket up to the point where all weights are there. */
static void pull_all(struct fixture *f)
{
    struct agent_effect pulls[EFFECTS_MAX];
    uint32_t pull_count = count(f, AGENT_PULL);
    for (uint32_t i = 0; i < pull_count; i++)
        pulls[i] = *seen(f, AGENT_PULL, i);
    for (uint32_t i = 0; i < pull_count; i++)
        assert_true(weights(f, &pulls[i]));
}

/* A started fixture at work on a ticket whose gradients are pushed, one message a server. */
static uint64_t start_pushed(struct fixture *f)
{
    uint64_t sequence = start(f).sequence;
    granted(f, sequence, ticket_of(1, 0));
    pull_all(f);
    gradients(f);
    assert_int_equal(count(f, AGENT_PUSH), SERVERS);
    return sequence;
}

/* ---- a ticket ---- */

static void a_ticket_goes_from_acquire_to_complete(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    struct acquire_request request = start(&f);
    assert_int_equal(request.member, 41);
    assert_int_equal(request.generation, 1);
    granted(&f, request.sequence, ticket_of(1, 0));
    assert_int_equal(count(&f, AGENT_COMPUTE), 1);
    assert_int_equal(count(&f, AGENT_PULL), SERVERS);
    assert_int_equal(count(&f, AGENT_ACQUIRE), 0); /* one at a time */
    pull_all(&f);
    gradients(&f);
    struct agent_effect pushes[SERVERS] = {*seen(&f, AGENT_PUSH, 0), *seen(&f, AGENT_PUSH, 1)};
    assert_int_equal(pushes[0].push.push.entry_count + pushes[1].push.push.entry_count, 5);
    assert_int_equal(pushes[0].push.push.node.index, 3);
    acked(&f, &pushes[0], ERR_OK, 0);
    computed(&f, ERR_OK);
    assert_int_equal(f.count, 0); /* one push is not acknowledged */
    acked(&f, &pushes[1], ERR_OK, 0);
    const struct complete_request *complete = &seen(&f, AGENT_COMPLETE, 0)->complete;
    assert_int_equal(complete->outcome, ERR_OK);
    assert_int_equal(complete->member, 41);
    assert_int_equal(complete->ticket.attempt, 9);
    assert_true(seen(&f, AGENT_ACQUIRE, 0)->acquire.sequence > request.sequence);
    assert_int_equal(agent_statistics(f.agent).tickets, 1);
    teardown(&f);
}

static void a_ticket_is_not_complete_before_it_is_computed(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    struct agent_effect pushes[SERVERS] = {*seen(&f, AGENT_PUSH, 0), *seen(&f, AGENT_PUSH, 1)};
    acked(&f, &pushes[0], ERR_OK, 0);
    acked(&f, &pushes[1], ERR_OK, 0);
    assert_int_equal(count(&f, AGENT_COMPLETE), 0);
    computed(&f, ERR_OK);
    assert_int_equal(count(&f, AGENT_COMPLETE), 1);
    teardown(&f);
}

static void a_unit_is_ready_when_all_its_chunks_are_there(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    granted(&f, start(&f).sequence, ticket_of(1, 0));
    struct agent_effect first = *seen(&f, AGENT_PULL, 0), second = *seen(&f, AGENT_PULL, 1);
    const uint32_t chunks[] = {0, 2}; /* fc1.weight before fc2.weight */
    assert_int_equal(first.pull.chunk_count, 2);
    assert_memory_equal(first.pull.chunks, chunks, sizeof chunks);
    assert_true(weights(&f, &first));
    assert_int_equal(count(&f, AGENT_UNIT_READY), 0);
    assert_true(weights(&f, &second));
    assert_int_equal(seen(&f, AGENT_UNIT_READY, 0)->unit, 0);
    assert_int_equal(seen(&f, AGENT_UNIT_READY, 1)->unit, 1);
    teardown(&f);
}

static void weights_may_come_in_several_messages(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    granted(&f, start(&f).sequence, ticket_of(1, 0));
    struct agent_effect pull = *seen(&f, AGENT_PULL, 0);
    struct agent_effect half = pull;
    assert_true(weights(&f, seen(&f, AGENT_PULL, 1)));
    half.pull.chunk_count = 1;
    assert_true(weights(&f, &half));
    assert_int_equal(count(&f, AGENT_UNIT_READY), 1);
    half.pull.chunks = pull.pull.chunks + 1;
    assert_true(weights(&f, &half));
    assert_int_equal(count(&f, AGENT_UNIT_READY), 1);
    assert_false(weights(&f, &half)); /* once more */
    teardown(&f);
}

/* Both pushes acknowledged and the compute over: the sequence of the next acquire. */
static uint64_t finish(struct fixture *f)
{
    struct agent_effect pushes[SERVERS] = {*seen(f, AGENT_PUSH, 0), *seen(f, AGENT_PUSH, 1)};
    computed(f, ERR_OK);
    acked(f, &pushes[0], ERR_OK, 0);
    acked(f, &pushes[1], ERR_OK, 0);
    return seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
}

static void weights_that_are_held_are_not_pulled_again(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    granted(&f, finish(&f), ticket_of(1, 0));
    assert_int_equal(count(&f, AGENT_PULL), 0);
    assert_int_equal(count(&f, AGENT_UNIT_READY), 2);
    gradients(&f);
    granted(&f, finish(&f), ticket_of(1, 1));
    assert_int_equal(count(&f, AGENT_PULL), SERVERS); /* the next version is not held */
    teardown(&f);
}

static void weights_of_another_generation_are_not_held(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    acked(&f, seen(&f, AGENT_PUSH, 0), ERR_OLD_GENERATION, 0);
    computed(&f, ERR_CANCELLED);
    wait(&f, BACKOFF_MS);
    joined(&f, 2);
    uint64_t sequence = seen(&f, AGENT_ACQUIRE, 0)->acquire.sequence;
    streams_up(&f);
    granted(&f, sequence, ticket_of(2, 0));
    assert_int_equal(count(&f, AGENT_PULL), SERVERS);
    teardown(&f);
}

static void a_held_out_piece_is_computed_without_pushes_and_its_sums_are_told(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    struct ticket ticket = ticket_of(1, 0);
    ticket.kind = TICKET_VALIDATE;
    granted(&f, start(&f).sequence, ticket);
    pull_all(&f);
    agent_computed(f.agent, f.now_ms, &(struct agent_result){ERR_OK, 1.5, 4, 3});
    look(&f);
    const struct complete_request *complete = &seen(&f, AGENT_COMPLETE, 0)->complete;
    assert_int_equal(complete->outcome, ERR_OK);
    assert_true(complete->loss_sum == 1.5);
    assert_int_equal(complete->sample_count, 4);
    assert_int_equal(complete->correct_count, 3);
    assert_int_equal(count(&f, AGENT_PUSH), 0);
    teardown(&f);
}

/* ---- again ---- */

static void busy_is_said_again_after_a_backoff_and_only_what_was_not_counted(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    struct agent_effect push = *seen(&f, AGENT_PUSH, 0);
    uint32_t entries = push.push.push.entry_count;
    assert_true(entries > 1);
    uint32_t refused_chunk = push.push.entries[1].chunk;
    acked(&f, &push, ERR_BUSY, 1);
    assert_int_equal(count(&f, AGENT_PUSH), 0);
    assert_true(agent_wake_ms(f.agent) >= f.now_ms + AGENT_BACKOFF_MS_MIN / 2);
    wait(&f, AGENT_BACKOFF_MS_MIN * 3 / 2);
    const struct agent_effect *again = seen(&f, AGENT_PUSH, 0);
    assert_int_equal(again->server, push.server);
    assert_int_equal(again->push.push.entry_count, entries - 1);
    assert_int_equal(again->push.entries[0].chunk, refused_chunk);
    assert_true(again->push.push.id != push.push.push.id);
    teardown(&f);
}

static void busy_again_and_again_drops_the_ticket(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    struct agent_effect push = *seen(&f, AGENT_PUSH, 0);
    for (uint32_t i = 1; i < AGENT_BUSY_MAX; i++) {
        acked(&f, &push, ERR_BUSY, 0);
        wait(&f, BACKOFF_MS);
        push = *seen(&f, AGENT_PUSH, 0);
    }
    acked(&f, &push, ERR_BUSY, 0);
    assert_int_equal(seen(&f, AGENT_COMPLETE, 0)->complete.outcome, ERR_BUSY);
    assert_int_equal(count(&f, AGENT_CANCEL), 1);
    assert_int_equal(count(&f, AGENT_ACQUIRE), 1);
    teardown(&f);
}

static void a_counted_piece_begins_the_count_of_busy_anew(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    struct agent_effect push = *seen(&f, AGENT_PUSH, 0);
    for (uint32_t i = 0; i < 2 * AGENT_BUSY_MAX; i++) {
        uint32_t counted = i == AGENT_BUSY_MAX - 1 ? 1 : 0;
        if (i == 2 * AGENT_BUSY_MAX - 1)
            assert_int_equal(count(&f, AGENT_COMPLETE), 0);
        acked(&f, &push, ERR_BUSY, counted);
        if (i < 2 * AGENT_BUSY_MAX - 1) {
            wait(&f, BACKOFF_MS);
            push = *seen(&f, AGENT_PUSH, 0);
        }
    }
    assert_int_equal(count(&f, AGENT_COMPLETE), 1);
    teardown(&f);
}

static void busy_of_an_earlier_ticket_does_not_count(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    struct agent_effect push = *seen(&f, AGENT_PUSH, 0), other = *seen(&f, AGENT_PUSH, 1);
    for (uint32_t i = 1; i < AGENT_BUSY_MAX; i++) {
        acked(&f, &push, ERR_BUSY, 0);
        wait(&f, BACKOFF_MS);
        push = *seen(&f, AGENT_PUSH, 0);
    }
    acked(&f, &other, ERR_TOO_LATE, 0);
    uint64_t sequence = seen(&f, AGENT_ACQUIRE, 0)->acquire.sequence;
    computed(&f, ERR_CANCELLED);
    granted(&f, sequence, ticket_of(1, 0));
    gradients(&f);
    acked(&f, seen(&f, AGENT_PUSH, 0), ERR_BUSY, 0);
    assert_int_equal(count(&f, AGENT_COMPLETE), 0);
    teardown(&f);
}

static void a_push_for_a_version_not_there_yet_is_said_again(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    acked(&f, seen(&f, AGENT_PUSH, 1), ERR_TOO_EARLY, 0);
    wait(&f, BACKOFF_MS);
    assert_int_equal(count(&f, AGENT_PUSH), 1);
    assert_int_equal(seen(&f, AGENT_PUSH, 0)->server, 1);
    teardown(&f);
}

static void a_pull_that_cannot_be_parked_is_said_again(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    granted(&f, start(&f).sequence, ticket_of(1, 0));
    struct agent_effect pull = *seen(&f, AGENT_PULL, 0);
    refused(&f, &pull, ERR_BUSY);
    assert_int_equal(count(&f, AGENT_PULL), 0);
    wait(&f, BACKOFF_MS);
    assert_int_equal(seen(&f, AGENT_PULL, 0)->pull.chunk_count, pull.pull.chunk_count);
    assert_false(weights(&f, &pull)); /* the refused one has ended */
    teardown(&f);
}

static void what_a_lost_stream_left_unanswered_is_said_again_on_the_next(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    struct agent_effect push = *seen(&f, AGENT_PUSH, 0);
    agent_stream_lost(f.agent, f.now_ms, 0, ERR_UNREACHABLE);
    look(&f);
    assert_int_equal(f.count, 0); /* not before the backoff */
    wait(&f, BACKOFF_MS);
    assert_int_equal(seen(&f, AGENT_OPEN, 0)->server, 0);
    assert_int_equal(count(&f, AGENT_PUSH), 0);
    agent_stream_up(f.agent, f.now_ms, 0, 1);
    look(&f);
    assert_int_equal(seen(&f, AGENT_PUSH, 0)->push.push.entry_count, push.push.push.entry_count);
    acked(&f, &push, ERR_OK, 0); /* the old stream's: late */
    computed(&f, ERR_OK);
    assert_int_equal(count(&f, AGENT_COMPLETE), 0);
    teardown(&f);
}

static void pulls_that_a_lost_stream_left_unanswered_are_asked_for_again(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    granted(&f, start(&f).sequence, ticket_of(1, 0));
    refused(&f, seen(&f, AGENT_PULL, 1), ERR_TOO_EARLY); /* parked */
    agent_stream_lost(f.agent, f.now_ms, 1, ERR_UNREACHABLE);
    wait(&f, BACKOFF_MS);
    agent_stream_up(f.agent, f.now_ms, 1, 1);
    look(&f);
    assert_int_equal(count(&f, AGENT_PULL), 1);
    assert_int_equal(seen(&f, AGENT_PULL, 0)->server, 1);
    assert_int_equal(seen(&f, AGENT_PULL, 0)->pull.chunk_count, 2);
    teardown(&f);
}

static void an_acquire_that_failed_is_asked_again_under_the_same_number(void **state)
{
    (void)state;
    static const enum err failures[] = {ERR_UNREACHABLE, ERR_DEADLINE, ERR_BUSY, ERR_CANCELLED,
                                        ERR_NO_RUN};
    struct fixture f;
    setup(&f);
    uint64_t sequence = start(&f).sequence;
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        agent_acquired(f.agent, f.now_ms, sequence, failures[i], NULL);
        look(&f);
        assert_int_equal(count(&f, AGENT_ACQUIRE), 0);
        wait(&f, BACKOFF_MS);
        assert_int_equal(seen(&f, AGENT_ACQUIRE, 0)->acquire.sequence, sequence);
    }
    agent_acquired(f.agent, f.now_ms, sequence, ERR_OK,
                   &(struct acquire_reply){.result = ACQUIRE_WAIT});
    look(&f);
    assert_true(seen(&f, AGENT_ACQUIRE, 0)->acquire.sequence > sequence);
    teardown(&f);
}

/* ---- drop ---- */

static void too_late_drops_the_ticket_and_says_so(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    granted(&f, start(&f).sequence, ticket_of(1, 0));
    refused(&f, seen(&f, AGENT_PULL, 0), ERR_TOO_LATE);
    assert_int_equal(seen(&f, AGENT_COMPLETE, 0)->complete.outcome, ERR_TOO_LATE);
    assert_int_equal(count(&f, AGENT_CANCEL), 1);
    assert_int_equal(count(&f, AGENT_ACQUIRE), 1);
    assert_int_equal(agent_statistics(f.agent).dropped, 1);
    teardown(&f);
}

static void nothing_is_computed_before_a_cancelled_compute_has_ended(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    granted(&f, start(&f).sequence, ticket_of(1, 0));
    refused(&f, seen(&f, AGENT_PULL, 0), ERR_TOO_LATE);
    granted(&f, seen(&f, AGENT_ACQUIRE, 0)->acquire.sequence, ticket_of(1, 1));
    assert_int_equal(f.count, 0); /* nor pulled: the weights' place is in use */
    agent_gradient(f.agent, f.now_ms, 1);
    look(&f);
    assert_int_equal(f.count, 0); /* the dropped ticket's */
    computed(&f, ERR_CANCELLED);
    assert_int_equal(seen(&f, AGENT_COMPUTE, 0)->ticket.version, 1);
    assert_int_equal(count(&f, AGENT_PULL), SERVERS);
    gradients(&f);
    assert_int_equal(count(&f, AGENT_PUSH), SERVERS);
    teardown(&f);
}

static void credits_of_a_dropped_ticket_are_free_when_its_answers_come(void **state)
{
    (void)state;
    struct fixture f;
    setup_large(&f);
    granted(&f, start(&f).sequence, ticket_of(1, 0));
    struct agent_effect old[2 * WIRE_CREDITS];
    assert_int_equal(count(&f, AGENT_PULL), 2 * WIRE_CREDITS);
    for (uint32_t i = 0; i < 2 * WIRE_CREDITS; i++)
        old[i] = *seen(&f, AGENT_PULL, i);
    refused(&f, &old[0], ERR_TOO_LATE);
    uint64_t sequence = seen(&f, AGENT_ACQUIRE, 0)->acquire.sequence;
    computed(&f, ERR_CANCELLED);
    granted(&f, sequence, ticket_of(1, 1));
    assert_int_equal(count(&f, AGENT_PULL), 1); /* the one that was answered */
    assert_false(weights(&f, &old[1]));
    assert_int_equal(count(&f, AGENT_PULL), 1);
    assert_int_equal(seen(&f, AGENT_PULL, 0)->server, old[1].server);
    refused(&f, &old[2], ERR_TOO_LATE); /* says nothing about this ticket */
    assert_int_equal(count(&f, AGENT_PULL), 1);
    assert_int_equal(count(&f, AGENT_COMPLETE), 0);
    refused(&f, &old[3], ERR_TOO_EARLY);
    assert_int_equal(count(&f, AGENT_PULL), 1);
    teardown(&f);
}

static void credits_of_a_dropped_tickets_pushes_are_free_when_its_answers_come(void **state)
{
    (void)state;
    struct fixture f;
    setup_large(&f);
    granted(&f, start(&f).sequence, ticket_of(1, 0));
    gradients(&f);
    struct agent_effect old[2 * WIRE_CREDITS];
    assert_int_equal(count(&f, AGENT_PUSH), 2 * WIRE_CREDITS);
    for (uint32_t i = 0; i < 2 * WIRE_CREDITS; i++)
        old[i] = *seen(&f, AGENT_PUSH, i);
    acked(&f, &old[0], ERR_TOO_LATE, 0);
    uint64_t sequence = seen(&f, AGENT_ACQUIRE, 0)->acquire.sequence;
    computed(&f, ERR_CANCELLED);
    granted(&f, sequence, ticket_of(1, 1));
    gradients(&f);
    assert_int_equal(count(&f, AGENT_PUSH), 1); /* the one that was answered */
    acked(&f, &old[1], ERR_OK, 0);
    assert_int_equal(count(&f, AGENT_PUSH), 1);
    acked(&f, &old[2], ERR_TOO_LATE, 0); /* says nothing about this ticket */
    assert_int_equal(count(&f, AGENT_PUSH), 1);
    assert_int_equal(count(&f, AGENT_COMPLETE), 0);
    agent_stream_lost(f.agent, f.now_ms, old[3].server, ERR_UNREACHABLE);
    wait(&f, BACKOFF_MS);
    agent_stream_up(f.agent, f.now_ms, old[3].server, 1);
    look(&f);
    assert_int_equal(count(&f, AGENT_PUSH), WIRE_CREDITS); /* a new stream, all of them */
    teardown(&f);
}

/* ---- rejoin ---- */

static void rejoins(struct fixture *f)
{
    assert_int_equal(count(f, AGENT_JOIN), 0); /* not before the backoff */
    assert_int_equal(count(f, AGENT_COMPLETE), 0);
    wait(f, BACKOFF_MS);
    assert_int_equal(count(f, AGENT_JOIN), 1);
    joined(f, 2);
    assert_int_equal(seen(f, AGENT_ACQUIRE, 0)->acquire.member, f->member);
    assert_int_equal(seen(f, AGENT_ACQUIRE, 0)->acquire.generation, 2);
    assert_int_equal(count(f, AGENT_OPEN), SERVERS);
}

static void an_old_generation_means_joining_anew(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    struct agent_effect late = *seen(&f, AGENT_PUSH, 1);
    acked(&f, seen(&f, AGENT_PUSH, 0), ERR_OLD_GENERATION, 0);
    assert_int_equal(count(&f, AGENT_CANCEL), 1);
    acked(&f, &late, ERR_OK, 0);
    assert_int_equal(f.count, 0);
    computed(&f, ERR_CANCELLED);
    rejoins(&f);
    teardown(&f);
}

static void an_old_generation_said_of_an_earlier_ticket_means_it_too(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    struct agent_effect push = *seen(&f, AGENT_PUSH, 0), other = *seen(&f, AGENT_PUSH, 1);
    acked(&f, &other, ERR_TOO_LATE, 0);
    computed(&f, ERR_CANCELLED);
    acked(&f, &push, ERR_OLD_GENERATION, 0);
    rejoins(&f);
    teardown(&f);
}

static void a_parked_pull_of_an_old_generation_means_joining_anew(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    granted(&f, start(&f).sequence, ticket_of(1, 0));
    struct agent_effect pull = *seen(&f, AGENT_PULL, 0);
    refused(&f, &pull, ERR_TOO_EARLY);
    refused(&f, &pull, ERR_OLD_GENERATION);
    rejoins(&f);
    teardown(&f);
}

static void an_unknown_member_joins_anew(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    agent_acquired(f.agent, f.now_ms, start(&f).sequence, ERR_UNKNOWN_MEMBER, NULL);
    look(&f);
    rejoins(&f);
    teardown(&f);
}

/* The map with the chunks of server 0 at server 1, by another number. */
static void map_to(struct fixture *f, uint64_t number, uint32_t server)
{
    uint32_t servers[64];
    const uint32_t count = f->model.chunks_count;
    assert_true(count <= 64);
    for (uint32_t c = 0; c < count; c++)
        servers[c] = f->chunk_servers[c] == 0 ? server : f->chunk_servers[c];
    const struct agent_map map = {number, SERVERS, servers, 1};
    agent_mapped(f->agent, f->now_ms, &map);
    look(f);
}

static void a_moved_push_goes_to_the_new_owner_as_it_is(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    const struct agent_effect moved = *seen(&f, AGENT_PUSH, 0);
    assert_int_equal(moved.server, 0);
    acked(&f, &moved, ERR_MOVED, 0);
    assert_int_equal(count(&f, AGENT_DESCRIBE), 1);
    assert_int_equal(count(&f, AGENT_PUSH), 0); /* not before the map is known */
    map_to(&f, 2, 1);
    assert_int_equal(f.count, 1); /* nothing is computed again */
    const struct agent_effect *again = seen(&f, AGENT_PUSH, 0);
    assert_int_equal(again->server, 1);
    assert_int_equal(again->push.push.step, moved.push.push.step);
    teardown(&f);
}

static void p11_nothing_is_said_before_the_tickets_map_is_known(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    const struct acquire_reply reply = {ACQUIRE_TICKET, ticket_of(1, 0), 2};
    agent_acquired(f.agent, f.now_ms, start(&f).sequence, ERR_OK, &reply);
    look(&f);
    assert_int_equal(count(&f, AGENT_DESCRIBE), 1);
    assert_int_equal(count(&f, AGENT_PULL), 0);
    for (uint32_t i = 0; i < 10; i++) {
        map_to(&f, 1, 0); /* of a coordinator that is behind */
        wait(&f, AGENT_BACKOFF_MS_MAX * 2);
        assert_int_equal(count(&f, AGENT_DESCRIBE), 1); /* asked until it is known */
        assert_int_equal(count(&f, AGENT_PULL), 0);
    }
    map_to(&f, 2, 1);
    assert_int_equal(seen(&f, AGENT_PULL, 0)->server, 1);
    pull_all(&f);
    gradients(&f);
    assert_int_equal(seen(&f, AGENT_PUSH, 0)->server, 1);
    teardown(&f);
}

static void a_map_of_another_generation_is_not_taken(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    acked(&f, seen(&f, AGENT_PUSH, 0), ERR_MOVED, 0);
    assert_true(agent_takes_map(f.agent, 1, 2));
    assert_false(agent_takes_map(f.agent, 1, 1));
    assert_false(agent_takes_map(f.agent, 2, 2));
    const struct agent_map old = {7, SERVERS, f.chunk_servers, 0};
    agent_mapped(f.agent, f.now_ms, &old);
    look(&f);
    wait(&f, AGENT_BACKOFF_MS_MAX);
    assert_int_equal(count(&f, AGENT_DESCRIBE), 1); /* asked again */
    assert_true(agent_takes_map(f.agent, 1, 2));
    teardown(&f);
}

static void a_map_that_is_not_newer_is_asked_for_again_later(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    acked(&f, seen(&f, AGENT_PUSH, 0), ERR_MOVED, 0);
    assert_int_equal(count(&f, AGENT_DESCRIBE), 1);
    map_to(&f, 1, 1);
    assert_int_equal(count(&f, AGENT_DESCRIBE), 0);
    wait(&f, AGENT_BACKOFF_MS_MAX);
    assert_int_equal(count(&f, AGENT_DESCRIBE), 1);
    teardown(&f);
}

static void a_lost_control_stream_means_joining_anew(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    agent_member_lost(f.agent, f.now_ms);
    look(&f);
    assert_int_equal(count(&f, AGENT_CANCEL), 1);
    agent_member_lost(f.agent, f.now_ms); /* said twice */
    look(&f);
    rejoins(&f);
    teardown(&f);
}

/* Joining fails, and is tried again about `usual_ms` later. */
static void joins_again_after(struct fixture *f, enum err err, uint64_t usual_ms)
{
    agent_join_failed(f->agent, f->now_ms, err);
    look(f);
    assert_int_equal(f->count, 0);
    uint64_t wait_ms = agent_wake_ms(f->agent) - f->now_ms;
    assert_in_range(wait_ms, usual_ms / 2, usual_ms * 3 / 2);
    wait(f, wait_ms);
    assert_int_equal(count(f, AGENT_JOIN), 1);
}

static void a_run_that_is_not_there_yet_is_asked_for_again_soon(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    look(&f);
    for (int i = 0; i < 8; i++)
        joins_again_after(&f, ERR_NO_RUN,
                          (uint64_t)AGENT_BACKOFF_MS_MIN
                              << (i < AGENT_WAIT_FAILURES_MAX ? i : AGENT_WAIT_FAILURES_MAX));
    teardown(&f);
}

static void joining_waits_longer_after_each_failure(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    look(&f);
    for (int i = 0; i < 8; i++) {
        uint64_t usual_ms = (uint64_t)AGENT_BACKOFF_MS_MIN << i;
        joins_again_after(&f, i % 2 == 0 ? ERR_UNREACHABLE : ERR_CANCELLED,
                          usual_ms < AGENT_BACKOFF_MS_MAX ? usual_ms : AGENT_BACKOFF_MS_MAX);
    }
    joined(&f, 1);
    agent_member_lost(f.agent, f.now_ms);
    look(&f);
    assert_true(agent_wake_ms(f.agent) <= f.now_ms + AGENT_BACKOFF_MS_MIN * 3 / 2);
    teardown(&f);
}

/* ---- credits ---- */

static void credits_are_never_exceeded(void **state)
{
    (void)state;
    struct fixture f;
    setup_large(&f);
    granted(&f, start(&f).sequence, ticket_of(1, 0));
    assert_int_equal(count(&f, AGENT_PULL), SERVERS * WIRE_CREDITS);
    struct agent_effect pull = *seen(&f, AGENT_PULL, 0);
    assert_int_equal(pull.pull.chunk_count, 1); /* a message holds no more */
    assert_true(weights(&f, &pull));
    assert_int_equal(count(&f, AGENT_PULL), 1);
    while (count(&f, AGENT_PULL) > 0)
        pull_all(&f);
    teardown(&f);
}

static void pushes_have_credits_of_their_own(void **state)
{
    (void)state;
    struct fixture f;
    setup_large(&f);
    granted(&f, start(&f).sequence, ticket_of(1, 0));
    gradients(&f); /* while all pulls are unanswered */
    assert_int_equal(count(&f, AGENT_PUSH), SERVERS * WIRE_CREDITS);
    struct agent_effect push = *seen(&f, AGENT_PUSH, 3);
    acked(&f, &push, ERR_OK, 0);
    assert_int_equal(count(&f, AGENT_PUSH), 1);
    assert_int_equal(seen(&f, AGENT_PUSH, 0)->server, push.server);
    teardown(&f);
}

static void a_parked_pull_holds_no_credit(void **state)
{
    (void)state;
    struct fixture f;
    setup_large(&f);
    granted(&f, start(&f).sequence, ticket_of(1, 0));
    struct agent_effect pull = *seen(&f, AGENT_PULL, 0);
    refused(&f, &pull, ERR_TOO_EARLY);
    assert_int_equal(count(&f, AGENT_PULL), 1);
    assert_true(weights(&f, &pull));            /* it was waiting for it all the time */
    assert_int_equal(count(&f, AGENT_PULL), 0); /* the credit was free before */
    teardown(&f);
}

/* ---- stale answers ---- */

static void answers_to_questions_nobody_asked_are_ignored(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    uint64_t sequence = start_pushed(&f);
    granted(&f, sequence, ticket_of(1, 0)); /* the answer that was taken, again */
    assert_int_equal(f.count, 0);
    const uint32_t chunk = 0;
    assert_false(agent_weights(
        f.agent, f.now_ms, 0,
        &(struct weights){.id = 777, .version = 0, .chunk_count = 1, .chunks = &chunk}));
    agent_acked(f.agent, f.now_ms, 0, &(struct push_ack){777, ERR_OLD_GENERATION, 0});
    agent_acked(f.agent, f.now_ms, SERVERS, &(struct push_ack){1, ERR_OK, 0});
    agent_refused(f.agent, f.now_ms, 1, &(struct pull_refusal){777, ERR_TOO_LATE});
    agent_stream_up(f.agent, f.now_ms, SERVERS, 1);
    agent_stream_lost(f.agent, f.now_ms, SERVERS, ERR_UNREACHABLE);
    joined(&f, 7);
    assert_int_equal(f.count, 0);
    teardown(&f);
}

static void weights_of_another_version_are_not_taken(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    granted(&f, start(&f).sequence, ticket_of(1, 3));
    struct agent_effect pull = *seen(&f, AGENT_PULL, 0), wrong = pull;
    wrong.pull.version = 2;
    assert_false(weights(&f, &wrong));
    assert_true(weights(&f, &pull));
    teardown(&f);
}

static void a_lease_of_an_earlier_membership_is_not_taken(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    uint64_t sequence = start(&f).sequence;
    agent_member_lost(f.agent, f.now_ms);
    wait(&f, BACKOFF_MS);
    joined(&f, 1);
    assert_true(seen(&f, AGENT_ACQUIRE, 0)->acquire.sequence > sequence);
    granted(&f, sequence, ticket_of(1, 0));
    assert_int_equal(f.count, 0);
    teardown(&f);
}

/* ---- the end ---- */

static void who_leaves_without_a_ticket_leaves_at_once(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start(&f);
    agent_leave(f.agent, f.now_ms, f.now_ms + 5000);
    look(&f);
    assert_int_equal(f.count, 2);
    assert_int_equal(f.effects[0].kind, AGENT_LEAVE);
    assert_int_equal(f.effects[1].kind, AGENT_STOP);
    assert_int_equal(f.effects[1].stop, ERR_OK);
    teardown(&f);
}

static void who_leaves_finishes_the_ticket_first(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    struct agent_effect pushes[SERVERS] = {*seen(&f, AGENT_PUSH, 0), *seen(&f, AGENT_PUSH, 1)};
    agent_leave(f.agent, f.now_ms, f.now_ms + 5000);
    computed(&f, ERR_OK);
    acked(&f, &pushes[0], ERR_OK, 0);
    assert_int_equal(f.count, 0);
    acked(&f, &pushes[1], ERR_OK, 0);
    assert_int_equal(count(&f, AGENT_ACQUIRE), 0);
    assert_int_equal(seen(&f, AGENT_COMPLETE, 0)->complete.outcome, ERR_OK);
    assert_int_equal(count(&f, AGENT_LEAVE), 1);
    assert_int_equal(count(&f, AGENT_STOP), 1);
    teardown(&f);
}

static void who_leaves_drops_the_ticket_at_the_deadline(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    agent_leave(f.agent, f.now_ms, f.now_ms + 5000);
    look(&f);
    assert_int_equal(f.count, 0);
    assert_int_equal(agent_wake_ms(f.agent), f.now_ms + 5000);
    wait(&f, 5000);
    assert_int_equal(seen(&f, AGENT_COMPLETE, 0)->complete.outcome, ERR_CANCELLED);
    assert_int_equal(count(&f, AGENT_CANCEL), 1);
    assert_int_equal(count(&f, AGENT_LEAVE), 1);
    assert_int_equal(count(&f, AGENT_STOP), 0); /* the compute has not ended */
    computed(&f, ERR_CANCELLED);
    assert_int_equal(count(&f, AGENT_STOP), 1);
    teardown(&f);
}

static void who_is_told_twice_leaves_at_once(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    agent_leave(f.agent, f.now_ms, f.now_ms + 5000);
    agent_leave(f.agent, f.now_ms, f.now_ms + 5000);
    look(&f);
    assert_int_equal(seen(&f, AGENT_COMPLETE, 0)->complete.outcome, ERR_CANCELLED);
    assert_int_equal(count(&f, AGENT_LEAVE), 1);
    teardown(&f);
}

static void who_is_no_member_just_stops(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    look(&f);
    agent_leave(f.agent, f.now_ms, f.now_ms + 5000);
    look(&f);
    assert_int_equal(f.count, 1);
    assert_int_equal(f.effects[0].kind, AGENT_STOP);
    joined(&f, 1);
    assert_int_equal(f.count, 0);
    teardown(&f);
}

static void a_run_that_is_over_ends_compute_membership_and_worker(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    agent_run_over(f.agent, f.now_ms);
    look(&f);
    assert_int_equal(f.count, 2); /* nobody counts the ticket any more */
    assert_int_equal(f.effects[0].kind, AGENT_CANCEL);
    assert_int_equal(f.effects[1].kind, AGENT_LEAVE);
    agent_run_over(f.agent, f.now_ms);
    look(&f);
    assert_int_equal(f.count, 0);
    computed(&f, ERR_CANCELLED);
    assert_int_equal(f.count, 1);
    assert_int_equal(f.effects[0].kind, AGENT_STOP);
    assert_int_equal(f.effects[0].stop, ERR_OK);
    assert_true(agent_wake_ms(f.agent) == UINT64_MAX);
    teardown(&f);
}

static void an_answer_that_the_run_is_over_is_enough(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    agent_acquired(f.agent, f.now_ms, start(&f).sequence, ERR_OK,
                   &(struct acquire_reply){.result = ACQUIRE_END});
    look(&f);
    assert_int_equal(f.count, 2);
    assert_int_equal(f.effects[0].kind, AGENT_LEAVE);
    assert_int_equal(f.effects[1].kind, AGENT_STOP);
    teardown(&f);
}

static void a_machine_that_may_not_join_stops_and_says_why(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    look(&f);
    agent_join_failed(f.agent, f.now_ms, ERR_FINGERPRINT);
    look(&f);
    assert_int_equal(f.count, 1);
    assert_int_equal(f.effects[0].stop, ERR_FINGERPRINT);
    teardown(&f);
}

static void a_device_that_fails_stops_the_worker_and_says_why(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start_pushed(&f);
    computed(&f, ERR_IO);
    assert_int_equal(f.count, 1);
    assert_int_equal(f.effects[0].kind, AGENT_STOP);
    assert_int_equal(f.effects[0].stop, ERR_IO);
    teardown(&f);
}

/* A zone's worth of workers that lost the coordinator in the same instant. */
static void those_who_lost_the_same_at_once_do_not_come_back_at_once(void **state)
{
    (void)state;
    enum { WORKERS = 400, BUCKET_MS = 100, FROM_MS = 2000, UNTIL_MS = 60000 };
    struct fixture f;
    setup(&f);
    struct agent *agents[WORKERS];
    uint32_t tries[UNTIL_MS / BUCKET_MS] = {0};
    uint32_t all = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        const struct agent_config config = {.model = &f.model, .seed = i};
        assert_int_equal(agent_new(&config, &agents[i]), ERR_OK);
    }
    for (uint64_t ms = 0; ms < UNTIL_MS; ms++)
        for (uint32_t i = 0; i < WORKERS; i++) {
            struct agent_effect effect;
            if (agent_wake_ms(agents[i]) > ms || !agent_next(agents[i], ms, &effect))
                continue;
            assert_int_equal(effect.kind, AGENT_JOIN);
            agent_join_failed(agents[i], ms, ERR_UNREACHABLE);
            tries[ms / BUCKET_MS]++;
            all++;
        }
    for (uint32_t i = FROM_MS / BUCKET_MS; i < UNTIL_MS / BUCKET_MS; i++)
        assert_in_range(tries[i], 0, WORKERS / 10);
    assert_in_range(all, 8 * WORKERS, 20 * WORKERS); /* ever less often, but nobody gives up */
    for (uint32_t i = 0; i < WORKERS; i++)
        agent_free(agents[i]);
    teardown(&f);
}

/* ---- async ---- */

enum { BOOT = 70 };

/* At work on a ticket whose chunk c was pulled at version 100 + c from boots 70, 71. */
static uint64_t start_async(struct fixture *f)
{
    setup(f);
    agent_free(f->agent);
    const struct agent_config config = {.model = &f->model, .async = true, .seed = 5};
    assert_int_equal(agent_new(&config, &f->agent), ERR_OK);
    look(f);
    joined(f, 1);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    for (uint32_t s = 0; s < SERVERS; s++)
        agent_stream_up(f->agent, f->now_ms, s, BOOT + s);
    look(f);
    granted(f, sequence, ticket_of(1, 0));
    return sequence;
}

static bool newest(struct fixture *f, const struct agent_effect *pull)
{
    uint64_t versions[WIRE_ENTRIES_MAX];
    assert_true(pull->pull.newest);
    for (uint32_t i = 0; i < pull->pull.chunk_count; i++)
        versions[i] = 100 + pull->pull.chunks[i];
    const struct weights weights = {.id = pull->pull.id,
                                    .chunk_count = pull->pull.chunk_count,
                                    .chunks = pull->pull.chunks,
                                    .versions = versions};
    bool wanted = agent_weights(f->agent, f->now_ms, pull->server, &weights);
    look(f);
    return wanted;
}

static void pull_newest(struct fixture *f)
{
    struct agent_effect pulls[SERVERS] = {*seen(f, AGENT_PULL, 0), *seen(f, AGENT_PULL, 1)};
    assert_int_equal(count(f, AGENT_PULL), SERVERS);
    for (uint32_t i = 0; i < SERVERS; i++) {
        assert_int_equal(pulls[i].pull.attempt, 9);
        assert_true(newest(f, &pulls[i]));
    }
}

static void scaled(struct fixture *f, float scale)
{
    agent_computed(f->agent, f->now_ms, &(struct agent_result){.err = ERR_OK, .scale = scale});
    look(f);
}

static void async_pushes_say_what_they_were_computed_on(void **state)
{
    (void)state;
    struct fixture f;
    start_async(&f);
    pull_newest(&f);
    gradients(&f);
    assert_int_equal(count(&f, AGENT_PUSH), 0); /* the scale is not known */
    scaled(&f, 0.5f);
    struct agent_effect pushes[SERVERS] = {*seen(&f, AGENT_PUSH, 0), *seen(&f, AGENT_PUSH, 1)};
    for (uint32_t i = 0; i < SERVERS; i++) {
        const struct push *push = &pushes[i].push.push;
        assert_int_equal(push->attempt, 9);
        assert_int_equal(push->boot, BOOT + pushes[i].server);
        assert_true(push->scale == 0.5f);
        for (uint32_t e = 0; e < push->entry_count; e++) {
            bool loss = f.model.chunks[push->entries[e].chunk].parameter == f.model.loss_parameter;
            assert_int_equal(push->entries[e].version, loss ? 0 : 100 + push->entries[e].chunk);
        }
    }
    acked(&f, &pushes[0], ERR_OK, 0);
    acked(&f, &pushes[1], ERR_OK, 0);
    const struct complete_request *complete = &seen(&f, AGENT_COMPLETE, 0)->complete;
    assert_int_equal(complete->boot_count, SERVERS);
    assert_int_equal(complete->boots[0], BOOT);
    assert_int_equal(complete->boots[1], BOOT + 1);
    teardown(&f);
}

static void async_pulls_every_chunk_anew_for_each_ticket(void **state)
{
    (void)state;
    struct fixture f;
    start_async(&f);
    pull_newest(&f);
    gradients(&f);
    scaled(&f, 1);
    struct agent_effect pushes[SERVERS] = {*seen(&f, AGENT_PUSH, 0), *seen(&f, AGENT_PUSH, 1)};
    acked(&f, &pushes[0], ERR_OK, 0);
    acked(&f, &pushes[1], ERR_OK, 0);
    granted(&f, seen(&f, AGENT_ACQUIRE, 0)->acquire.sequence, ticket_of(1, 0));
    assert_int_equal(count(&f, AGENT_PULL), SERVERS);
    pull_newest(&f);
    teardown(&f);
}

static void expect_dropped(struct fixture *f, enum err outcome)
{
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.outcome, outcome);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.boot_count, 0);
    assert_int_equal(count(f, AGENT_ACQUIRE), 1);
    assert_int_equal(count(f, AGENT_JOIN), 0);
}

static void async_what_is_stale_or_beyond_drops_the_ticket(void **state)
{
    (void)state;
    const enum err errs[] = {ERR_STALE, ERR_BEYOND};
    for (uint32_t i = 0; i < 2; i++) {
        struct fixture f;
        start_async(&f);
        pull_newest(&f);
        gradients(&f);
        scaled(&f, 1);
        struct agent_effect push = *seen(&f, AGENT_PUSH, 0);
        acked(&f, &push, errs[i], 0);
        expect_dropped(&f, errs[i]);
        teardown(&f);
    }
}

static void p12_a_new_boot_ends_the_attempt_that_pulled_from_the_old(void **state)
{
    (void)state;
    struct fixture f;
    start_async(&f);
    pull_newest(&f);
    agent_stream_lost(f.agent, f.now_ms, 1, ERR_UNREACHABLE);
    wait(&f, BACKOFF_MS);
    assert_int_equal(count(&f, AGENT_COMPLETE), 0); /* it may be the same */
    agent_stream_up(f.agent, f.now_ms, 1, BOOT + 1);
    look(&f);
    assert_int_equal(count(&f, AGENT_COMPLETE), 0);
    agent_stream_lost(f.agent, f.now_ms, 1, ERR_UNREACHABLE);
    wait(&f, BACKOFF_MS);
    agent_stream_up(f.agent, f.now_ms, 1, BOOT + 50);
    look(&f);
    expect_dropped(&f, ERR_STALE);
    teardown(&f);
}

static void async_an_attempt_asks_each_chunk_once(void **state)
{
    (void)state;
    struct fixture f;
    start_async(&f);
    struct agent_effect pull = *seen(&f, AGENT_PULL, 0);
    refused(&f, &pull, ERR_NO_RUN); /* nothing was given */
    wait(&f, BACKOFF_MS);
    pull = *seen(&f, AGENT_PULL, 0);
    agent_stream_lost(f.agent, f.now_ms, pull.server, ERR_UNREACHABLE);
    look(&f);
    expect_dropped(&f, ERR_STALE);
    teardown(&f);
}

static void async_weights_without_versions_are_not_wanted(void **state)
{
    (void)state;
    struct fixture f;
    start_async(&f);
    struct agent_effect pull = *seen(&f, AGENT_PULL, 0);
    assert_false(weights(&f, &pull));
    assert_true(newest(&f, &pull));
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_who_lost_the_same_at_once_do_not_come_back_at_once),
        cmocka_unit_test(a_ticket_goes_from_acquire_to_complete),
        cmocka_unit_test(a_ticket_is_not_complete_before_it_is_computed),
        cmocka_unit_test(a_unit_is_ready_when_all_its_chunks_are_there),
        cmocka_unit_test(weights_may_come_in_several_messages),
        cmocka_unit_test(weights_that_are_held_are_not_pulled_again),
        cmocka_unit_test(weights_of_another_generation_are_not_held),
        cmocka_unit_test(a_held_out_piece_is_computed_without_pushes_and_its_sums_are_told),
        cmocka_unit_test(busy_is_said_again_after_a_backoff_and_only_what_was_not_counted),
        cmocka_unit_test(busy_again_and_again_drops_the_ticket),
        cmocka_unit_test(a_counted_piece_begins_the_count_of_busy_anew),
        cmocka_unit_test(busy_of_an_earlier_ticket_does_not_count),
        cmocka_unit_test(a_push_for_a_version_not_there_yet_is_said_again),
        cmocka_unit_test(a_pull_that_cannot_be_parked_is_said_again),
        cmocka_unit_test(what_a_lost_stream_left_unanswered_is_said_again_on_the_next),
        cmocka_unit_test(pulls_that_a_lost_stream_left_unanswered_are_asked_for_again),
        cmocka_unit_test(an_acquire_that_failed_is_asked_again_under_the_same_number),
        cmocka_unit_test(too_late_drops_the_ticket_and_says_so),
        cmocka_unit_test(nothing_is_computed_before_a_cancelled_compute_has_ended),
        cmocka_unit_test(credits_of_a_dropped_ticket_are_free_when_its_answers_come),
        cmocka_unit_test(credits_of_a_dropped_tickets_pushes_are_free_when_its_answers_come),
        cmocka_unit_test(an_old_generation_means_joining_anew),
        cmocka_unit_test(an_old_generation_said_of_an_earlier_ticket_means_it_too),
        cmocka_unit_test(a_parked_pull_of_an_old_generation_means_joining_anew),
        cmocka_unit_test(an_unknown_member_joins_anew),
        cmocka_unit_test(a_moved_push_goes_to_the_new_owner_as_it_is),
        cmocka_unit_test(a_map_of_another_generation_is_not_taken),
        cmocka_unit_test(p11_nothing_is_said_before_the_tickets_map_is_known),
        cmocka_unit_test(a_map_that_is_not_newer_is_asked_for_again_later),
        cmocka_unit_test(a_lost_control_stream_means_joining_anew),
        cmocka_unit_test(a_run_that_is_not_there_yet_is_asked_for_again_soon),
        cmocka_unit_test(joining_waits_longer_after_each_failure),
        cmocka_unit_test(credits_are_never_exceeded),
        cmocka_unit_test(pushes_have_credits_of_their_own),
        cmocka_unit_test(a_parked_pull_holds_no_credit),
        cmocka_unit_test(answers_to_questions_nobody_asked_are_ignored),
        cmocka_unit_test(weights_of_another_version_are_not_taken),
        cmocka_unit_test(a_lease_of_an_earlier_membership_is_not_taken),
        cmocka_unit_test(who_leaves_without_a_ticket_leaves_at_once),
        cmocka_unit_test(who_leaves_finishes_the_ticket_first),
        cmocka_unit_test(who_leaves_drops_the_ticket_at_the_deadline),
        cmocka_unit_test(who_is_told_twice_leaves_at_once),
        cmocka_unit_test(who_is_no_member_just_stops),
        cmocka_unit_test(a_run_that_is_over_ends_compute_membership_and_worker),
        cmocka_unit_test(an_answer_that_the_run_is_over_is_enough),
        cmocka_unit_test(a_machine_that_may_not_join_stops_and_says_why),
        cmocka_unit_test(a_device_that_fails_stops_the_worker_and_says_why),
        cmocka_unit_test(async_pushes_say_what_they_were_computed_on),
        cmocka_unit_test(async_pulls_every_chunk_anew_for_each_ticket),
        cmocka_unit_test(async_what_is_stale_or_beyond_drops_the_ticket),
        cmocka_unit_test(p12_a_new_boot_ends_the_attempt_that_pulled_from_the_old),
        cmocka_unit_test(async_an_attempt_asks_each_chunk_once),
        cmocka_unit_test(async_weights_without_versions_are_not_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
