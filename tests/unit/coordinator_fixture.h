/* A coordinator of two servers (COORDINATOR_SERVERS) with a chunk each as its daemon and the
 * simulator see it: calls in, effects out. The reports of servers, the calls of workers. */
#ifndef ROOST_TESTS_UNIT_COORDINATOR_FIXTURE_H
#define ROOST_TESTS_UNIT_COORDINATOR_FIXTURE_H

#include "tests/unit/unit.h"

#include "server/coordinator/coordinator.h"
#include "server/member/proof.h"

#include <math.h>

#ifndef COORDINATOR_SERVERS
#define COORDINATOR_SERVERS 2 /* at most 3 */
#endif

enum {
    SLOTS = 4,
    SERVERS = COORDINATOR_SERVERS,
    LEASE_MS = 1000,
    HEARTBEAT_MS = 100,
    STOP_MS = 500,
    EFFECTS_SEEN_MAX = 256,
};

/* The coordinator, and its effects since the last look. */
struct coordinator_fixture {
    uint64_t plan;    /* steps of `run`, which the test begins */
    uint64_t steps;   /* of `run`, which is ready to grant version 0 */
    bool whole_steps; /* each is one ticket */
    bool chosen;      /* node_slots 0: the coordinator chooses */
    uint64_t cut_every;
    bool validated; /* every second step */
    double audit;
    bool async;
    bool staged;           /* two places: each pushes one of two chunks */
    uint32_t ranks;        /* members of each of them; 0: 1 */
    bool pieces_pass;      /* over the boundary between them */
    uint32_t leases;       /* that a member shares: with a delay of one less; 0: 1 */
    bool halves;           /* … of the left half of a node, and the other one of the right half */
    bool stops;            /* an earlier coordinator was told to stop it */
    uint32_t workers;      /* that join: one, or a and b */
    uint64_t worker, a, b; /* their members' numbers */
    struct coordinator *coordinator;
    uint64_t term; /* 0: the first */
    uint64_t now_ms;
    uint64_t boot[SERVERS];
    uint64_t link[SERVERS];
    uint64_t generation;
    size_t count;
    struct effect seen[EFFECTS_SEEN_MAX];
    enum err store;     /* what writing a cut down ends in */
    enum err rewind;    /* the same of a generation */
    bool state_is_late; /* the store has no room for the run's state */
    bool fingerprint_is_late;
    uint32_t attempt; /* which of the cut's manifests are */
    struct cut_record stored;
    struct coordinator_run run;
    struct join_reply joined; /* the newest answer to who asked to join */
};

static const struct map_parameter parameters[] = {
    {0, 1, 400, 400}, {1, 1, 400, 400}, {2, 1, 400, 400}};

static const struct coordinator_place stages[] = {
    {.range_count = 1, .ranges = {{{0, 1}, {0, 1}}}},
    {.range_count = 2, .ranges = {{{1, 1}, {0, 1}}, {{0, 1}, {1, 1}}}}};
static const uint8_t chunk_ranks[] = {0, 1, 0};
static const bool boundary_pieces[] = {false, true};
static const struct coordinator_place half_stages[] = {
    {.range_count = 2, .ranges = {{{0, 1}, {0, 1}}, {{1, 1}, {0, 1}}}, .right_first = 1},
    {.range_count = 2, .ranges = {{{1, 1}, {0, 1}}, {{0, 1}, {0, 1}}}, .right_first = 1}};

static inline struct coordinator_run run_of(uint64_t steps)
{
    return (struct coordinator_run){
        .run = 1,
        .steps = steps,
        .servers_min = SERVERS,
        .slots = SLOTS,
        .slot_samples = 2,
        .node_slots = 1,
        .seal = {.schedule = {.kind = SPEC_CONSTANT, .lr = 1, .step_samples = 8},
                 .sample_predictions = 1,
                 .skip_max = 2},
        .parameter_count = SERVERS,
        .parameters = parameters,
        .parameter_bytes_max = 1 << 20,
        .spec = "train: {}",
        .checkpoint_dir = "checkpoints",
    };
}

static inline struct coordinator_run async_run(uint64_t steps)
{
    struct coordinator_run run = run_of(steps);
    run.async = true;
    run.window = 2 * SLOTS;
    return run;
}

static inline void coordinator_tear_down(struct coordinator_fixture *f)
{
    coordinator_free(f->coordinator);
}

/* Carries out: the test looks at copies. Cuts and generations are written down at once. */
static inline void look(struct coordinator_fixture *f)
{
    size_t count;
    coordinator_check(f->coordinator);
    const struct effect *effects = coordinator_effects(f->coordinator, &count);
    f->count = 0;
    for (size_t i = 0; i < count; i++) {
        assert_true(f->count < EFFECTS_SEEN_MAX);
        f->seen[f->count++] = effects[i];
        if (effects[i].kind == EFFECT_STORE_CUT) {
            f->stored = *effects[i].cut;
            coordinator_cut_stored(f->coordinator, f->now_ms, f->stored.name, f->store);
            effects = coordinator_effects(f->coordinator, &count);
        } else if (effects[i].kind == EFFECT_STORE_FINGERPRINT && !f->fingerprint_is_late) {
            coordinator_fingerprint_stored(f->coordinator, f->now_ms);
            effects = coordinator_effects(f->coordinator, &count);
        } else if (effects[i].kind == EFFECT_STORE_REWIND) {
            coordinator_rewind_stored(f->coordinator, f->now_ms, effects[i].generation, f->rewind);
            effects = coordinator_effects(f->coordinator, &count);
        } else if (effects[i].kind == EFFECT_STORE_STATE && !f->state_is_late) {
            coordinator_state_stored(f->coordinator);
            effects = coordinator_effects(f->coordinator, &count);
        }
    }
    coordinator_check(f->coordinator);
    coordinator_effects_clear(f->coordinator);
}

static inline const struct effect *seen(const struct coordinator_fixture *f, enum effect_kind kind)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->seen[i].kind == kind)
            return &f->seen[i];
    return NULL;
}

static inline size_t place_of(const struct coordinator_fixture *f, enum effect_kind kind)
{
    const struct effect *effect = seen(f, kind);
    assert_non_null(effect);
    return (size_t)(effect - f->seen);
}

/* The command of that kind to server i; NULL: none was sent. */
static inline const struct server_command *command(const struct coordinator_fixture *f, uint32_t i,
                                                   enum server_command_kind kind)
{
    for (size_t k = 0; k < f->count; k++)
        if (f->seen[k].kind == EFFECT_COMMAND && f->seen[k].command.link == f->link[i] &&
            f->seen[k].command.command.kind == kind)
            return &f->seen[k].command.command;
    return NULL;
}

static inline struct coordinator_status status(const struct coordinator_fixture *f)
{
    struct coordinator_status result;
    coordinator_status(f->coordinator, &result);
    return result;
}

/* ---- servers ---- */

static inline void hello(struct coordinator_fixture *f, uint32_t i, uint64_t held_generation)
{
    struct server_report report = {.kind = SERVER_HELLO, .boot = f->boot[i]};
    snprintf(report.hello.name, sizeof report.hello.name, "s%u", i);
    report.hello.generation = held_generation;
    assert_int_equal(
        coordinator_server_hello(f->coordinator, f->now_ms, &report, &f->link[i], NULL), ERR_OK);
    look(f);
}

static inline enum err report(struct coordinator_fixture *f, uint32_t i,
                              struct server_report report)
{
    report.boot = f->boot[i];
    enum err err = coordinator_server_report(f->coordinator, f->now_ms, f->link[i], &report);
    look(f);
    return err;
}

static inline enum err say_ready(struct coordinator_fixture *f, uint32_t i, uint64_t version)
{
    struct server_report ready = {.kind = SERVER_READY};
    ready.ready.cut = (struct cut_name){f->generation, version};
    return report(f, i, ready);
}

static inline enum err say_unready(struct coordinator_fixture *f, uint32_t i, enum err code)
{
    struct server_report ready = {.kind = SERVER_READY};
    ready.ready.cut.generation = status(f).generation;
    ready.ready.code = code;
    ready.ready.text = "g4-v9: block 3";
    return report(f, i, ready);
}

static inline enum err say_manifest(struct coordinator_fixture *f, uint32_t i, uint64_t version,
                                    enum err code)
{
    struct server_report manifest = {.kind = SERVER_MANIFEST};
    manifest.manifest.cut = (struct cut_name){f->generation, version};
    manifest.manifest.attempt = f->attempt;
    manifest.manifest.code = code;
    manifest.manifest.digest[0] = (uint8_t)(i + 1);
    return report(f, i, manifest);
}

static inline enum err say_committed(struct coordinator_fixture *f, uint32_t i, uint64_t step)
{
    struct server_report committed = {.kind = SERVER_COMMITTED};
    committed.committed.generation = f->generation;
    committed.committed.step = step;
    return report(f, i, committed);
}

/* Server i owns chunk i; the last server the loss as well. */
static inline enum err say_reduced(struct coordinator_fixture *f, uint32_t i, uint64_t step,
                                   double sumsq)
{
    struct chunk_seal seal = {i, isfinite(sumsq), sumsq};
    struct server_report reduced = {.kind = SERVER_REDUCED};
    reduced.reduced = (struct reduced){.generation = f->generation,
                                       .step = step,
                                       .seal_count = 1,
                                       .seals = &seal,
                                       .has_loss = i == SERVERS - 1,
                                       .loss_sum = 4,
                                       .sample_count = 8};
    return report(f, i, reduced);
}

static inline void reduce_all(struct coordinator_fixture *f, uint64_t step)
{
    for (uint32_t i = 0; i < SERVERS; i++)
        assert_int_equal(say_reduced(f, i, step, 1), ERR_OK);
}

static inline void commit_all(struct coordinator_fixture *f, uint64_t step)
{
    for (uint32_t i = 0; i < SERVERS; i++)
        assert_int_equal(say_committed(f, i, step), ERR_OK);
}

static inline void ready_all(struct coordinator_fixture *f, uint64_t version)
{
    for (uint32_t i = 0; i < SERVERS; i++)
        assert_int_equal(say_ready(f, i, version), ERR_OK);
}

static inline void record_all(struct coordinator_fixture *f, uint64_t version)
{
    for (uint32_t i = 0; i < SERVERS; i++)
        assert_int_equal(say_manifest(f, i, version, ERR_OK), ERR_OK);
}

/* A step from its pushes to the acknowledged commit; the commit stays in f->seen of server 0. */
static inline void step(struct coordinator_fixture *f, uint64_t step_number)
{
    reduce_all(f, step_number);
    commit_all(f, step_number);
}

/* A step that must be a cut, or must be none. */
static inline void step_cuts(struct coordinator_fixture *f, uint64_t step_number, bool cuts)
{
    reduce_all(f, step_number);
    assert_int_equal(command(f, 0, SERVER_COMMIT)->commit.cut, cuts);
    commit_all(f, step_number);
}

/* With the servers that are there; `past`: NULL: it has none. */
static inline void begin(struct coordinator_fixture *f, const struct coordinator_run *run,
                         const struct coordinator_past *past)
{
    assert_int_equal(coordinator_start(f->coordinator, f->now_ms, run, past, NULL), ERR_OK);
    look(f);
}

/* A run on both servers, which are told to prepare. */
static inline void start_preparing(struct coordinator_fixture *f, const struct coordinator_run *run,
                                   const struct coordinator_past *past)
{
    for (uint32_t i = 0; i < SERVERS; i++)
        hello(f, i, 0);
    begin(f, run, past);
    f->generation = status(f).generation;
}

/* A run on both servers, ready to grant version 0. */
static inline void start(struct coordinator_fixture *f, const struct coordinator_run *run)
{
    start_preparing(f, run, NULL);
    ready_all(f, 0);
    record_all(f, 0);
    assert_int_equal(status(f).state, RUN_TRAINING);
}

static inline void stop(struct coordinator_fixture *f)
{
    assert_int_equal(coordinator_stop(f->coordinator, f->now_ms, "operator"), ERR_OK);
    look(f);
}

static inline void lose_server(struct coordinator_fixture *f, uint32_t i)
{
    coordinator_server_lost(f->coordinator, f->now_ms, f->link[i]);
    look(f);
}

/* It comes back without its memory. */
static inline void restart_server(struct coordinator_fixture *f, uint32_t i)
{
    lose_server(f, i);
    f->boot[i] += 100;
    hello(f, i, 0);
}

/* ---- workers ---- */

static inline struct join_request join_request(void)
{
    struct join_request request = {.wire_version = WIRE_VERSION, .name = "w", .device = "cpu"};
    request.fingerprint[0] = 5;
    return request;
}

static inline enum err ask_to_join(struct coordinator_fixture *f,
                                   const struct join_request *request)
{
    enum err err = coordinator_join(f->coordinator, f->now_ms, request, &f->joined, NULL);
    look(f);
    return err;
}

/* From that machine, with that certificate. */
static inline uint64_t join_from(struct coordinator_fixture *f, const char *name, const char *host,
                                 uint64_t certificate)
{
    struct join_request request = join_request();
    snprintf(request.name, sizeof request.name, "%s", name);
    snprintf(request.host, sizeof request.host, "%s", host);
    request.certificate = certificate;
    assert_int_equal(ask_to_join(f, &request), ERR_OK);
    return f->joined.member;
}

static inline uint64_t join_named(struct coordinator_fixture *f, const char *name)
{
    return join_from(f, name, "", 0);
}

static inline uint64_t join(struct coordinator_fixture *f)
{
    uint64_t member = join_named(f, "w");
    assert_int_equal(f->joined.generation, f->generation);
    return member;
}

static inline void coordinator_set_up(struct coordinator_fixture *f)
{
    f->now_ms = 1000;
    for (uint32_t i = 0; i < SERVERS; i++)
        f->boot[i] = 11 + i;
    f->coordinator =
        coordinator_new(&(struct coordinator_settings){.term = f->term > 0 ? f->term : 1,
                                                       .heartbeat_ms = HEARTBEAT_MS,
                                                       .lease_ms = LEASE_MS,
                                                       .speculation_percent = 200,
                                                       .speculation_ms_min = 10,
                                                       .stop_ms = STOP_MS});
    assert_non_null(f->coordinator);
    uint64_t steps = f->steps > 0 ? f->steps : f->plan;
    f->run = f->async ? async_run(steps) : run_of(steps);
    if (f->steps == 0)
        return;
    f->run.node_slots = f->whole_steps || f->validated ? SLOTS : 1;
    f->run.cut_every = f->cut_every;
    f->run.audit = f->audit;
    f->run.place_count = f->staged ? 2 : 0;
    f->run.place_ranks = f->ranks;
    f->run.chunk_ranks = f->ranks > 1 ? chunk_ranks : NULL;
    f->run.boundary_count = f->pieces_pass ? 2 : 0;
    f->run.boundary_pieces = f->pieces_pass ? boundary_pieces : NULL;
    f->run.place_leases = f->leases;
    f->run.delay = f->leases > 0 ? f->leases - 1 : f->run.delay;
    f->run.places = f->halves ? half_stages : stages;
    f->run.node_slots = f->chosen ? 0 : f->halves ? 2 : f->run.node_slots;
    if (f->validated) {
        f->run.validate_every = 2;
        f->run.validation_samples = 5; /* three pieces of two, two and one */
    }
    start(f, &f->run);
    if (f->workers == 1)
        f->worker = join(f);
    if (f->workers == 2) {
        f->a = join_named(f, "a");
        f->b = join_named(f, "b");
    }
}

/* What JoinReply gave to that member. */
static inline struct proof secret_of(uint64_t member)
{
    scoped(digest_mac_release) struct digest_mac key;
    assert_int_equal(digest_mac_init(&key), ERR_OK);
    return proof_member(&key, run_of(1).run, member);
}

/* The ticket as if the coordinator had granted it so to that member. */
static inline struct ticket sign(struct ticket ticket, uint64_t member)
{
    scoped(digest_mac_release) struct digest_mac key;
    assert_int_equal(digest_mac_init(&key), ERR_OK);
    ticket.member = member;
    ticket.grant = proof_ticket(&key, run_of(1).run, &ticket);
    return ticket;
}

static inline uint64_t join_again(struct coordinator_fixture *f, uint64_t previous)
{
    struct join_request request = join_request();
    request.previous_member = previous;
    request.previous_secret = secret_of(previous);
    assert_int_equal(ask_to_join(f, &request), ERR_OK);
    return f->joined.member;
}

static inline enum err acquire(struct coordinator_fixture *f, uint64_t member, uint64_t sequence,
                               uint32_t wait_ms)
{
    enum err err = coordinator_acquire(f->coordinator, f->now_ms,
                                       &(struct acquire_request){.member = member,
                                                                 .secret = secret_of(member),
                                                                 .generation = f->generation,
                                                                 .sequence = sequence,
                                                                 .wait_ms = wait_ms});
    look(f);
    return err;
}

/* The answer that member got; it must have got one. */
static inline struct acquire_reply answer(const struct coordinator_fixture *f, uint64_t member)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->seen[i].kind == EFFECT_ANSWER && f->seen[i].answer.member == member) {
            assert_int_equal(f->seen[i].answer.err, ERR_OK);
            return f->seen[i].answer.reply;
        }
    fail_msg("member %llu got no answer", (unsigned long long)member);
    return (struct acquire_reply){.result = ACQUIRE_WAIT};
}

static inline struct ticket ticket_of(struct coordinator_fixture *f, uint64_t member,
                                      uint64_t sequence)
{
    assert_int_equal(acquire(f, member, sequence, 5000), ERR_OK);
    struct acquire_reply reply = answer(f, member);
    assert_int_equal(reply.result, ACQUIRE_TICKET);
    return reply.ticket;
}

static inline enum err leave(struct coordinator_fixture *f, uint64_t member, const char *why)
{
    const struct leave_request request = {member, secret_of(member), why};
    return coordinator_leave(f->coordinator, f->now_ms, &request);
}

static inline enum err say_complete(struct coordinator_fixture *f,
                                    const struct complete_request *request)
{
    enum err err = coordinator_complete(f->coordinator, f->now_ms, request);
    look(f);
    return err;
}

static inline enum err complete(struct coordinator_fixture *f, uint64_t member,
                                struct ticket ticket, enum err outcome)
{
    struct complete_request request = {.member = member,
                                       .secret = secret_of(member),
                                       .ticket = sign(ticket, member),
                                       .outcome = outcome,
                                       .loss_sum = 10.0 * (ticket.node.index + 1),
                                       .sample_count = ticket.node.index == 2 ? 1 : 2,
                                       .correct_count = 1};
    return say_complete(f, &request);
}

static inline void tick(struct coordinator_fixture *f, uint64_t after_ms)
{
    f->now_ms += after_ms;
    coordinator_tick(f->coordinator, f->now_ms);
    look(f);
}

#endif
