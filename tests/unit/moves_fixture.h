/* Servers that come and go, as the coordinator sees them: three are played, each with the chunks
 * that it was told to own, and a worker that takes tickets. */
#ifndef ROOST_TESTS_UNIT_MOVES_FIXTURE_H
#define ROOST_TESTS_UNIT_MOVES_FIXTURE_H

#include "tests/unit/unit.h"

#include "server/coordinator/coordinator.h"

enum { SERVERS = 3, CHUNKS = 6, SLOTS = 2, LOSS = 5 };

/* Six parameters of a chunk each; the last is the loss. */
static const struct map_parameter parameters[CHUNKS] = {{0, 1, 400, 400}, {1, 1, 400, 400},
                                                        {2, 1, 400, 400}, {3, 1, 400, 400},
                                                        {4, 1, 400, 400}, {5, 1, 16, 16}};

struct player {
    uint64_t boot, link, generation, invitation;
    bool owns[CHUNKS];
    bool cuts; /* it was told to write what it begins with */
    bool told_leave;
    uint32_t attempt; /* at its newest cut */
};

struct moves_fixture {
    bool trains; /* version 0 of a run on servers 0 and 1 is recorded; or the test begins */
    bool async;
    struct coordinator *coordinator;
    uint64_t now_ms, generation;
    struct player players[SERVERS];
    bool committed; /* a commit is to be acknowledged … */
    struct commit commit;
    uint32_t move_count; /* … that moves so many ranges, … */
    bool told[SERVERS];  /* … by these, … */
    uint32_t file[SERVERS];
    bool state_is_late;       /* the store has no room for the run's state */
    enum err rewind;          /* what writing a generation down ends in */
    bool store_is_slow;       /* cuts are stored later: */
    struct cut_record stored; /* the newest that was to be */
    struct coordinator_drained drained;
    uint64_t member, sequence, granted; /* the newest ticket; UINT64_MAX: none */
    struct proof secret;
    struct ticket ticket; /* the newest */
};

static inline void obey_prepare(struct moves_fixture *f, struct player *player,
                                const struct server_command *command)
{
    player->generation = f->generation = command->prepare.generation;
    player->cuts = command->prepare.cuts;
    player->invitation = command->prepare.invitation;
    memset(player->owns, 0, sizeof player->owns);
    for (uint32_t i = 0; i < command->prepare.range_count; i++)
        for (uint32_t c = 0; c < command->prepare.ranges[i].count; c++)
            player->owns[command->prepare.ranges[i].first + c] =
                command->prepare.ranges[i].server == command->prepare.server &&
                !command->prepare.joins;
}

static inline void obey_commit(struct moves_fixture *f, uint32_t i,
                               const struct server_command *command)
{
    f->committed = f->told[i] = true;
    f->commit = command->commit;
    f->file[i] = command->file;
    f->players[i].attempt = command->attempt;
    f->move_count += command->move_count;
    for (uint32_t m = 0; m < command->move_count; m++)
        for (uint32_t c = 0; c < command->moves[m].count; c++) {
            bool *owns = &f->players[i].owns[command->moves[m].first + c];
            bool takes = command->moves[m].to[0] == 0;
            assert_int_equal(*owns, !takes);
            *owns = takes;
        }
}

static inline void obey(struct moves_fixture *f, uint64_t link,
                        const struct server_command *command)
{
    for (uint32_t i = 0; i < SERVERS; i++) {
        if (f->players[i].link != link)
            continue;
        if (command->kind == SERVER_PREPARE)
            obey_prepare(f, &f->players[i], command);
        else if (command->kind == SERVER_COMMIT)
            obey_commit(f, i, command);
        else if (command->kind == SERVER_LEAVE)
            f->players[i].told_leave = true;
    }
}

static inline void hear(struct moves_fixture *f, const struct acquire_reply *reply)
{
    if (reply->result == ACQUIRE_TICKET && reply->ticket.kind == TICKET_TRAIN)
        f->granted = reply->ticket.step * SLOTS + reply->ticket.node.index;
    f->ticket = reply->ticket;
}

static inline void look(struct moves_fixture *f)
{
    size_t count;
    const struct effect *effects = coordinator_effects(f->coordinator, &count);
    for (size_t i = 0; i < count; i++) {
        if (effects[i].kind == EFFECT_COMMAND)
            obey(f, effects[i].command.link, &effects[i].command.command);
        if (effects[i].kind == EFFECT_EXPEL)
            f->member = 0;
        if (effects[i].kind == EFFECT_ANSWER && effects[i].answer.err == ERR_OK)
            hear(f, &effects[i].answer.reply);
        if (effects[i].kind == EFFECT_STORE_STATE && !f->state_is_late)
            coordinator_state_stored(f->coordinator);
        if (effects[i].kind == EFFECT_STORE_FINGERPRINT)
            coordinator_fingerprint_stored(f->coordinator, f->now_ms);
        if (effects[i].kind == EFFECT_STORE_REWIND)
            coordinator_rewind_stored(f->coordinator, f->now_ms, effects[i].generation, f->rewind);
        if (effects[i].kind == EFFECT_STORE_CUT)
            f->stored = *effects[i].cut;
        if (effects[i].kind == EFFECT_STORE_CUT && !f->store_is_slow)
            coordinator_cut_stored(f->coordinator, f->now_ms, f->stored.name, ERR_OK);
        effects = coordinator_effects(f->coordinator, &count);
    }
    coordinator_effects_clear(f->coordinator);
    coordinator_check(f->coordinator);
}

static inline struct coordinator_status status(const struct moves_fixture *f)
{
    struct coordinator_status result;
    coordinator_status(f->coordinator, &result);
    return result;
}

/* ---- servers ---- */

static inline void report(struct moves_fixture *f, uint32_t i, struct server_report report)
{
    report.boot = f->players[i].boot;
    assert_int_equal(
        coordinator_server_report(f->coordinator, f->now_ms, f->players[i].link, &report), ERR_OK);
    look(f);
}

static inline void connect(struct moves_fixture *f, uint32_t i, uint64_t boot)
{
    struct player *player = &f->players[i];
    struct server_report hello = {.kind = SERVER_HELLO, .boot = boot};
    snprintf(hello.hello.name, sizeof hello.hello.name, "s%u", i);
    snprintf(hello.hello.address, sizeof hello.hello.address, "s%u:1", i);
    if (player->boot != boot) { /* it has lost its memory */
        player->generation = 0;
        memset(player->owns, 0, sizeof player->owns);
    }
    hello.hello.generation = player->generation;
    player->boot = boot;
    player->told_leave = false;
    assert_int_equal(
        coordinator_server_hello(f->coordinator, f->now_ms, &hello, &player->link, NULL), ERR_OK);
    look(f);
}

static inline void lose(struct moves_fixture *f, uint32_t i)
{
    coordinator_server_lost(f->coordinator, f->now_ms, f->players[i].link);
    f->players[i].link = 0;
    look(f);
}

/* It dies, and another start of it comes back. */
static inline void restart(struct moves_fixture *f, uint32_t i)
{
    lose(f, i);
    connect(f, i, 20 + i);
}

static inline void ready(struct moves_fixture *f, uint32_t i)
{
    uint64_t version = status(f).version;
    report(f, i,
           (struct server_report){.kind = SERVER_READY,
                                  .ready = {.cut = {f->players[i].generation, version},
                                            .invitation = f->players[i].invitation,
                                            .applied_low = version * SLOTS}});
}

static inline void cannot_prepare(struct moves_fixture *f, uint32_t i, enum err code,
                                  const char *text)
{
    struct server_report sorry = {.kind = SERVER_READY,
                                  .ready = {.cut = {f->generation, status(f).version},
                                            .invitation = f->players[i].invitation,
                                            .code = code,
                                            .text = text}};
    report(f, i, sorry);
}

static inline void manifest(struct moves_fixture *f, uint32_t i, uint64_t version, enum err code)
{
    report(f, i,
           (struct server_report){.kind = SERVER_MANIFEST,
                                  .manifest = {.cut = {f->players[i].generation, version},
                                               .attempt = f->players[i].attempt,
                                               .code = code}});
}

static inline uint32_t owned(const struct moves_fixture *f, uint32_t i)
{
    uint32_t count = 0;
    for (uint32_t c = 0; c < CHUNKS && f->players[i].generation == f->generation; c++)
        count += f->players[i].owns[c];
    return count;
}

/* The cut of that version is written by all that have chunks. */
static inline void record(struct moves_fixture *f, uint64_t version)
{
    bool owns[SERVERS];
    for (uint32_t i = 0; i < SERVERS; i++)
        owns[i] = owned(f, i) > 0;
    for (uint32_t i = 0; i < SERVERS; i++)
        if (owns[i])
            manifest(f, i, version, ERR_OK);
}

static inline void reduce(struct moves_fixture *f, uint32_t i)
{
    struct chunk_seal seals[CHUNKS];
    struct server_report reduced = {.kind = SERVER_REDUCED};
    reduced.reduced = (struct reduced){.generation = f->generation,
                                       .step = status(f).version,
                                       .seals = seals,
                                       .has_loss = f->players[i].owns[LOSS],
                                       .loss_sum = 1,
                                       .sample_count = SLOTS};
    for (uint32_t c = 0; c < CHUNKS; c++)
        if (f->players[i].owns[c])
            seals[reduced.reduced.seal_count++] = (struct chunk_seal){c, true, 1};
    report(f, i, reduced);
}

/* Everybody reduces, so the coordinator commits; whoever was told so is noted, not answered. */
static inline void commit_said(struct moves_fixture *f)
{
    bool owns[SERVERS];
    f->committed = false;
    f->move_count = 0;
    memset(f->told, 0, sizeof f->told);
    for (uint32_t i = 0; i < SERVERS; i++)
        owns[i] = owned(f, i) > 0;
    for (uint32_t i = 0; i < SERVERS; i++)
        if (owns[i])
            reduce(f, i);
    assert_true(f->committed);
}

static inline void acknowledge_one(struct moves_fixture *f, uint32_t i, uint64_t step)
{
    report(f, i,
           (struct server_report){.kind = SERVER_COMMITTED, .committed = {f->generation, step}});
}

static inline void acknowledge(struct moves_fixture *f)
{
    uint64_t step = f->commit.step;
    bool told[SERVERS];
    memcpy(told, f->told, sizeof told);
    for (uint32_t i = 0; i < SERVERS; i++)
        if (told[i])
            acknowledge_one(f, i, step);
}

static inline enum err drain(struct moves_fixture *f, uint32_t i, struct reason *reason)
{
    char name[8];
    snprintf(name, sizeof name, "s%u", i);
    enum err err = coordinator_drain(f->coordinator, f->now_ms, name, &f->drained, reason);
    look(f);
    return err;
}

/* ---- the run ---- */

static inline struct coordinator_run run_of_two(void)
{
    return (struct coordinator_run){
        .run = 1,
        .steps = 50,
        .servers_min = 2,
        .slots = SLOTS,
        .slot_samples = 1,
        .seal = {.schedule = {.kind = SPEC_CONSTANT, .lr = 1, .step_samples = SLOTS},
                 .sample_predictions = 1},
        .parameter_count = CHUNKS,
        .parameters = parameters,
        .parameter_bytes_max = 1 << 20,
        .spec = "",
        .checkpoint_dir = "c",
    };
}

static inline struct coordinator_run async_run(void)
{
    struct coordinator_run run = run_of_two();
    run.async = true;
    run.window = 2 * SLOTS;
    run.node_slots = 1;
    run.restarts = true;
    run.numerics_any = true;
    run.data_served = true;
    return run;
}

static inline void start(struct moves_fixture *f, const struct coordinator_run *run,
                         const struct coordinator_past *past)
{
    assert_int_equal(coordinator_start(f->coordinator, f->now_ms, run, past, NULL), ERR_OK);
    look(f);
}

/* On servers 0 and 1. */
static inline void begin(struct moves_fixture *f, const struct coordinator_run *run,
                         const struct coordinator_past *past)
{
    connect(f, 0, 10);
    connect(f, 1, 11);
    start(f, run, past);
    ready(f, 0);
    ready(f, 1);
}

/* A cut of another start, with files of two servers. */
static inline struct coordinator_past past_of(const char *first, const char *second)
{
    struct coordinator_past past = {.generation = 4, .cut = {.name = {4, 7}, .server_count = 2}};
    snprintf(past.cut.servers[0].name, sizeof past.cut.servers[0].name, "%s", first);
    snprintf(past.cut.servers[1].name, sizeof past.cut.servers[1].name, "%s", second);
    return past;
}

/* Servers 0 and 1 hold version 0, whose cut is recorded. */
static inline void train_run(struct moves_fixture *f, const struct coordinator_run *run)
{
    begin(f, run, NULL);
    manifest(f, 0, 0, ERR_OK);
    manifest(f, 1, 0, ERR_OK);
    assert_int_equal(status(f).state, RUN_TRAINING);
}

static inline void moves_set_up(struct moves_fixture *f)
{
    f->now_ms = 1000;
    f->coordinator = coordinator_new(&(struct coordinator_settings){.term = 1,
                                                                    .heartbeat_ms = 100,
                                                                    .lease_ms = 1000,
                                                                    .speculation_percent = 300,
                                                                    .speculation_ms_min = 1000000,
                                                                    .stop_ms = 500});
    assert_non_null(f->coordinator);
    if (f->trains) {
        struct coordinator_run run = f->async ? async_run() : run_of_two();
        train_run(f, &run);
    }
}

static inline void moves_tear_down(struct moves_fixture *f)
{
    coordinator_free(f->coordinator);
}

/* The next ticket that a worker is given now; UINT64_MAX: none. */
static inline uint64_t granted(struct moves_fixture *f)
{
    struct join_reply reply;
    if (f->member == 0) {
        const struct join_request join = {.wire_version = WIRE_VERSION, .name = "w", .device = "d"};
        assert_int_equal(coordinator_join(f->coordinator, f->now_ms, &join, &reply, NULL), ERR_OK);
        f->member = reply.member;
        f->secret = reply.secret;
        look(f);
    }
    f->granted = UINT64_MAX;
    const struct acquire_request acquire = {.member = f->member,
                                            .secret = f->secret,
                                            .generation = status(f).generation,
                                            .sequence = ++f->sequence};
    assert_int_equal(coordinator_acquire(f->coordinator, f->now_ms, &acquire), ERR_OK);
    look(f);
    return f->granted;
}

#endif
