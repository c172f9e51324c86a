/* An agent without anything around it, at a time that the test sets: what comes from outside, and
 * what it asked for last. */
#ifndef ROOST_TESTS_UNIT_AGENT_FIXTURE_H
#define ROOST_TESTS_UNIT_AGENT_FIXTURE_H

#include "tests/unit/unit.h"

#include "worker/agent.h"

enum { SERVERS = 2, EFFECTS_MAX = 128, BACKOFF_MS = 15001 /* longer than any */ };
enum { BOOT = 70 }; /* of server 0 of an async run */

/* An agent, the time, and what it asked for last. */
struct agent_fixture {
    bool large; /* one unit of more than forty chunks, each of which fills a message */
    bool async;
    bool streamed;
    bool tied;             /* three units, the first and the last of which share a parameter */
    bool cut;              /* three units, in two pieces */
    struct spec_mesh mesh; /* of the run */
    uint32_t leases;       /* in it, at a time; */
    uint32_t lanes[2];     /* by stage, of two */
    enum codec codec;      /* of weights */
    enum { STILL, GRANTED, PUSHED } begin; /* with a ticket; with one whose gradients are pushed */
    struct model model;
    struct agent *agent;
    uint32_t *chunk_servers;
    uint64_t now_ms;
    uint64_t member; /* of the newest join */
    uint32_t count;
    struct agent_effect effects[EFFECTS_MAX];
};

/* Two units; chunks fc1.weight, fc1.bias, fc2.weight, fc2.bias, loss on servers 0, 1, 0, 1, 0. */
static const struct spec_model small = {
    .kind = SPEC_MLP, .sizes_count = 3, .sizes = {4, 6, 3}, .tensor_max = 8};
static const struct spec_model tied = {.kind = SPEC_GPT,
                                       .layers = 1,
                                       .heads = 1,
                                       .width = 8,
                                       .context = 4,
                                       .vocabulary = 16,
                                       .tensor_max = 1};
static const struct spec_model cut = {
    .kind = SPEC_MLP, .sizes_count = 4, .sizes = {64, 256, 128, 128}, .pieces = 2, .tensor_max = 2};
static const struct spec_model large = {
    .kind = SPEC_MLP, .sizes_count = 2, .sizes = {4096, 1024}, .tensor_max = 1};

static inline void agent_tear_down(struct agent_fixture *f)
{
    agent_free(f->agent);
    model_release(&f->model);
    free(f->chunk_servers);
}

/* Everything that is to be done now; then nothing is, until an event or the time. */
static inline void look(struct agent_fixture *f)
{
    f->count = 0;
    while (agent_next(f->agent, f->now_ms, &f->effects[f->count])) {
        f->count++;
        assert_true(f->count < EFFECTS_MAX);
    }
    agent_check(f->agent);
    assert_true(agent_wake_ms(f->agent) > f->now_ms);
}

static inline uint32_t count(const struct agent_fixture *f, enum agent_effect_kind kind)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < f->count; i++)
        found += f->effects[i].kind == kind;
    return found;
}

/* The n-th effect of that kind. */
static inline const struct agent_effect *seen(const struct agent_fixture *f,
                                              enum agent_effect_kind kind, uint32_t n)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->effects[i].kind == kind && n-- == 0)
            return &f->effects[i];
    fail_msg("no such effect");
    return NULL;
}

static inline void wait(struct agent_fixture *f, uint64_t ms)
{
    f->now_ms += ms;
    look(f);
}

/* ---- what comes from outside ---- */

static inline void joined(struct agent_fixture *f, uint64_t generation)
{
    const struct join_reply reply = {.member = ++f->member, .run = 1, .generation = generation};
    const struct agent_map map = {1, SERVERS, f->chunk_servers, generation};
    agent_joined(f->agent, f->now_ms, &reply, &map);
    look(f);
}

static inline void streams_up(struct agent_fixture *f)
{
    for (uint32_t s = 0; s < SERVERS; s++)
        agent_stream_up(f->agent, f->now_ms, s, f->async ? BOOT + s : 1);
    look(f);
}

/* A member with open streams that has asked for a ticket. */
static inline struct acquire_request start(struct agent_fixture *f)
{
    look(f);
    assert_int_equal(count(f, AGENT_JOIN), 1);
    joined(f, 1);
    struct acquire_request request = seen(f, AGENT_ACQUIRE, 0)->acquire;
    assert_int_equal(count(f, AGENT_OPEN), SERVERS);
    streams_up(f);
    return request;
}

static inline struct ticket ticket_of(uint64_t generation, uint64_t version)
{
    return (struct ticket){.kind = TICKET_TRAIN,
                           .generation = generation,
                           .step = version,
                           .version = version,
                           .node = {0, 3},
                           .attempt = 9};
}

static inline void granted(struct agent_fixture *f, uint64_t sequence, struct ticket ticket)
{
    const struct acquire_reply reply = {ACQUIRE_TICKET, ticket};
    agent_acquired(f->agent, f->now_ms, sequence, ERR_OK, &reply);
    look(f);
}

/* All of the pull; true: the agent wants it. */
static inline bool weights(struct agent_fixture *f, const struct agent_effect *pull)
{
    const struct weights weights = {.id = pull->pull.id,
                                    .version = pull->pull.version,
                                    .chunk_count = pull->pull.chunk_count,
                                    .chunks = pull->pull.chunks};
    uint32_t lane;
    bool wanted = agent_weights(f->agent, f->now_ms, pull->server, &weights, &lane);
    look(f);
    return wanted;
}

static inline void refused(struct agent_fixture *f, const struct agent_effect *pull, enum err err)
{
    agent_refused(f->agent, f->now_ms, pull->server, &(struct pull_refusal){pull->pull.id, err});
    look(f);
}

static inline void acked(struct agent_fixture *f, const struct agent_effect *push, enum err err,
                         uint32_t first_refused)
{
    const struct push_ack ack = {push->push.id, err, first_refused};
    agent_acked(f->agent, f->now_ms, push->server, &ack);
    look(f);
}

static inline void gradients(struct agent_fixture *f)
{
    for (uint32_t unit = f->model.units_count; unit-- > 0;)
        agent_gradient(f->agent, f->now_ms, 0, unit, ticket_of(1, 0).node);
    look(f);
}

static inline void computed(struct agent_fixture *f, enum err err)
{
    agent_computed(f->agent, f->now_ms, &(struct agent_result){.err = err});
    look(f);
}

/* Takes the ticket up to the point where all weights are there. */
static inline void pull_all(struct agent_fixture *f)
{
    struct agent_effect pulls[EFFECTS_MAX];
    uint32_t pull_count = count(f, AGENT_PULL);
    for (uint32_t i = 0; i < pull_count; i++)
        pulls[i] = *seen(f, AGENT_PULL, i);
    for (uint32_t i = 0; i < pull_count; i++)
        assert_true(weights(f, &pulls[i]));
}

/* A started fixture at work on a ticket whose gradients are pushed, one message a server. */
static inline uint64_t start_pushed(struct agent_fixture *f)
{
    uint64_t sequence = start(f).sequence;
    granted(f, sequence, ticket_of(1, 0));
    pull_all(f);
    gradients(f);
    assert_int_equal(count(f, AGENT_PUSH), SERVERS);
    return sequence;
}

static inline void agent_set_up(struct agent_fixture *f)
{
    f->now_ms = 1000;
    f->member = 40;
    const struct spec_model *model = f->large ? &large : f->tied ? &tied : f->cut ? &cut : &small;
    assert_int_equal(model_init(&f->model, model, NULL), ERR_OK);
    assert_in_range(f->model.chunks_count, f->large ? 34 : 5, model != &small ? 64 : 5);
    f->chunk_servers = calloc(f->model.chunks_count, sizeof *f->chunk_servers);
    assert_non_null(f->chunk_servers);
    for (uint32_t c = 0; c < f->model.chunks_count; c++)
        f->chunk_servers[c] = c % SERVERS;
    const struct agent_config config = {.model = &f->model,
                                        .async = f->async,
                                        .streamed = f->streamed,
                                        .mesh = f->mesh,
                                        .leases = f->leases,
                                        .lanes = {f->lanes[0], f->lanes[1]},
                                        .weights_codec = f->codec,
                                        .seed = 5};
    assert_int_equal(agent_new(&config, &f->agent), ERR_OK);
    if (f->begin == GRANTED)
        granted(f, start(f).sequence, ticket_of(1, 0));
    if (f->begin == PUSHED)
        start_pushed(f);
}

#endif
