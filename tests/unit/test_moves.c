/* Servers that come and go, as the coordinator sees them (P11): three servers are played, each with
 * the chunks that it was told to own. */
#include "tests/unit/unit.h"

#include "server/coordinator/coordinator.h"

#include <string.h>

enum { SERVERS = 3, CHUNKS = 6, SLOTS = 2, LOSS = 5, EFFECTS_MAX = 128 };

/* Six parameters of a chunk each; the last is the loss. */
static const struct map_parameter parameters[CHUNKS] = {{0, 1, 400, 400}, {1, 1, 400, 400},
                                                        {2, 1, 400, 400}, {3, 1, 400, 400},
                                                        {4, 1, 400, 400}, {5, 1, 16, 16}};

struct player {
    uint64_t boot, link, generation;
    bool owns[CHUNKS];
    uint32_t index; /* in the map */
    bool told_leave;
};

struct fixture {
    struct coordinator *coordinator;
    uint64_t now_ms, generation;
    struct player players[SERVERS];
    struct cut_record stored;
    bool committed; /* a commit is to be acknowledged … */
    struct commit commit;
    bool told[SERVERS]; /* … by these */
    uint32_t file[SERVERS];
};

static void obey_prepare(struct fixture *f, struct player *player,
                         const struct server_command *command)
{
    player->generation = f->generation = command->prepare.generation;
    player->index = command->prepare.server;
    memset(player->owns, 0, sizeof player->owns);
    for (uint32_t i = 0; i < command->prepare.range_count; i++)
        for (uint32_t c = 0; c < command->prepare.ranges[i].count; c++)
            player->owns[command->prepare.ranges[i].first + c] =
                command->prepare.ranges[i].server == player->index && !command->prepare.joins;
}

static void obey_commit(struct fixture *f, uint32_t i, const struct server_command *command)
{
    f->committed = f->told[i] = true;
    f->commit = command->commit;
    f->file[i] = command->file;
    for (uint32_t m = 0; m < command->move_count; m++)
        for (uint32_t c = 0; c < command->moves[m].count; c++) {
            bool *owns = &f->players[i].owns[command->moves[m].first + c];
            bool takes = command->moves[m].to[0] == 0;
            assert_int_equal(*owns, !takes);
            *owns = takes;
        }
}

static void obey(struct fixture *f, uint64_t link, const struct server_command *command)
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

static void look(struct fixture *f)
{
    size_t count;
    const struct effect *effects = coordinator_effects(f->coordinator, &count);
    for (size_t i = 0; i < count; i++) {
        if (effects[i].kind == EFFECT_COMMAND)
            obey(f, effects[i].command.link, &effects[i].command.command);
        if (effects[i].kind == EFFECT_STORE_CUT) {
            f->stored = *effects[i].cut;
            coordinator_cut_stored(f->coordinator, f->now_ms, f->stored.name, ERR_OK);
            effects = coordinator_effects(f->coordinator, &count);
        }
    }
    coordinator_effects_clear(f->coordinator);
    coordinator_check(f->coordinator);
}

static enum err report(struct fixture *f, uint32_t i, struct server_report report)
{
    report.boot = f->players[i].boot;
    enum err err =
        coordinator_server_report(f->coordinator, f->now_ms, f->players[i].link, &report);
    look(f);
    return err;
}

static void connect(struct fixture *f, uint32_t i, uint64_t boot)
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

static void lose(struct fixture *f, uint32_t i)
{
    coordinator_server_lost(f->coordinator, f->now_ms, f->players[i].link);
    f->players[i].link = 0;
    look(f);
}

static struct coordinator_status status(const struct fixture *f)
{
    struct coordinator_status result;
    coordinator_status(f->coordinator, &result);
    return result;
}

static void ready(struct fixture *f, uint32_t i, uint64_t version)
{
    struct server_report ready = {.kind = SERVER_READY,
                                  .ready = {.cut = {f->players[i].generation, version}}};
    assert_int_equal(report(f, i, ready), ERR_OK);
}

static void manifest(struct fixture *f, uint32_t i, uint64_t version)
{
    struct server_report manifest = {.kind = SERVER_MANIFEST,
                                     .manifest = {.cut = {f->generation, version}}};
    assert_int_equal(report(f, i, manifest), ERR_OK);
}

static uint32_t owned(const struct fixture *f, uint32_t i)
{
    uint32_t count = 0;
    for (uint32_t c = 0; c < CHUNKS; c++)
        count += f->players[i].owns[c];
    return count;
}

static void reduce(struct fixture *f, uint32_t i)
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
    assert_int_equal(report(f, i, reduced), ERR_OK);
}

/* Everybody reduces, so the coordinator commits; whoever was told so is noted, not answered. */
static void commit_said(struct fixture *f)
{
    bool owns[SERVERS];
    f->committed = false;
    memset(f->told, 0, sizeof f->told);
    for (uint32_t i = 0; i < SERVERS; i++)
        owns[i] = owned(f, i) > 0;
    for (uint32_t i = 0; i < SERVERS; i++)
        if (owns[i])
            reduce(f, i);
    assert_true(f->committed);
}

static void acknowledge(struct fixture *f)
{
    const struct commit commit = f->commit;
    bool told[SERVERS];
    memcpy(told, f->told, sizeof told);
    for (uint32_t i = 0; i < SERVERS; i++)
        if (told[i]) {
            struct server_report done = {.kind = SERVER_COMMITTED,
                                         .committed = {f->generation, commit.step}};
            assert_int_equal(report(f, i, done), ERR_OK);
        }
    for (uint32_t i = 0; i < SERVERS && commit.cut; i++)
        if (told[i] && f->file[i] != WIRE_FILE_NONE)
            manifest(f, i, commit.step + 1);
}

static void step(struct fixture *f)
{
    commit_said(f);
    acknowledge(f);
}

static const struct coordinator_run run = {
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

static void set_up_office(struct fixture *f)
{
    *f = (struct fixture){.now_ms = 1000};
    f->coordinator = coordinator_new(&(struct coordinator_settings){
        .term = 1, .heartbeat_ms = 100, .lease_ms = 1000, .stop_ms = 500});
    assert_non_null(f->coordinator);
}

/* Servers 0 and 1 hold version 0, whose cut is recorded. */
static void set_up(struct fixture *f)
{
    set_up_office(f);
    connect(f, 0, 10);
    connect(f, 1, 11);
    assert_int_equal(coordinator_start(f->coordinator, f->now_ms, &run, NULL, NULL), ERR_OK);
    look(f);
    for (uint32_t i = 0; i < 2; i++)
        ready(f, i, 0);
    for (uint32_t i = 0; i < 2; i++)
        manifest(f, i, 0);
    assert_int_equal(status(f).state, RUN_TRAINING);
}

static void tear_down(struct fixture *f)
{
    coordinator_free(f->coordinator);
}

static void add_third(struct fixture *f)
{
    connect(f, 2, 12);
    assert_int_equal(f->players[2].generation, f->generation);
    assert_int_equal(owned(f, 2), 0);
    ready(f, 2, status(f).version);
}

static enum err drain(struct fixture *f, uint32_t i, struct coordinator_drained *ret_drained)
{
    char name[8];
    snprintf(name, sizeof name, "s%u", i);
    enum err err = coordinator_drain(f->coordinator, f->now_ms, name, ret_drained, NULL);
    look(f);
    return err;
}

static enum err give_up(struct fixture *f, uint32_t i)
{
    char name[8];
    snprintf(name, sizeof name, "s%u", i);
    enum err err = coordinator_give_up(f->coordinator, f->now_ms, name, NULL);
    if (err == ERR_OK)
        memset(f->players[i].owns, 0, sizeof f->players[i].owns);
    look(f);
    return err;
}

static void a_server_that_joins_gets_its_even_share_with_a_commit(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    step(&f);
    uint64_t map_number = status(&f).map_number;
    add_third(&f);
    assert_int_equal(status(&f).generation, f.generation);
    commit_said(&f);
    assert_true(f.told[2]);
    assert_int_equal(owned(&f, 0) + owned(&f, 1) + owned(&f, 2), CHUNKS);
    assert_in_range(owned(&f, 2), 1, 2);
    assert_true(status(&f).map_number > map_number);
    acknowledge(&f);
    uint32_t share = owned(&f, 2);
    for (uint32_t i = 0; i < 3; i++)
        step(&f);
    assert_int_equal(owned(&f, 2), share); /* even: nothing moves any more */
    tear_down(&f);
}

static void the_next_commit_waits_for_the_new_owner(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    add_third(&f);
    commit_said(&f);
    struct fixture said = f;
    for (uint32_t i = 0; i < 2; i++) {
        struct server_report done = {.kind = SERVER_COMMITTED,
                                     .committed = {f.generation, said.commit.step}};
        assert_int_equal(report(&f, i, done), ERR_OK);
    }
    f.committed = false;
    for (uint32_t i = 0; i < SERVERS; i++)
        reduce(&f, i);
    assert_false(f.committed); /* P6: its chunks are on their way */
    struct server_report done = {.kind = SERVER_COMMITTED,
                                 .committed = {f.generation, said.commit.step}};
    assert_int_equal(report(&f, 2, done), ERR_OK);
    assert_true(f.committed);
    tear_down(&f);
}

static void p11_a_drained_server_leaves_when_a_cut_without_it_is_recorded(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_drained drained;
    set_up(&f);
    step(&f);
    assert_int_equal(drain(&f, 1, &drained), ERR_OK);
    assert_false(drained.drained);
    assert_int_equal(drained.chunks_left, owned(&f, 1));
    step(&f); /* its chunks move */
    assert_int_equal(owned(&f, 1), 0);
    assert_int_equal(owned(&f, 0), CHUNKS);
    assert_false(f.players[1].told_leave);
    commit_said(&f); /* a cut, of server 0 alone */
    assert_true(f.commit.cut);
    assert_false(f.told[1]);
    assert_int_equal(f.file[0], 0);
    assert_false(f.players[1].told_leave);
    acknowledge(&f);
    assert_true(f.players[1].told_leave);
    assert_int_equal(f.stored.server_count, 1);
    assert_string_equal(f.stored.servers[0].name, "s0");
    assert_int_equal(drain(&f, 1, &drained), ERR_OK);
    assert_true(drained.drained);
    lose(&f, 1);
    step(&f); /* nobody waits for it */
    assert_int_equal(status(&f).moves.servers_drained, 1);
    tear_down(&f);
}

static void p10_a_rewind_restores_the_servers_and_the_map_of_its_cut(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_drained drained;
    set_up(&f);
    uint32_t share = owned(&f, 1);
    add_third(&f);
    step(&f);
    assert_int_equal(drain(&f, 1, &drained), ERR_OK);
    step(&f);
    assert_int_equal(owned(&f, 1), 0);
    uint64_t generation = f.generation;
    lose(&f, 2); /* what was added is lost, and the newest cut, of version 0, does not know it */
    connect(&f, 2, 22);
    assert_true(f.generation > generation);
    assert_int_equal(status(&f).version, 0);
    assert_int_equal(owned(&f, 1), share);
    assert_int_equal(owned(&f, 2), 0);
    ready(&f, 0, 0);
    ready(&f, 1, 0);
    assert_int_equal(status(&f).state, RUN_TRAINING);
    ready(&f, 2, 0); /* it joins again */
    step(&f);
    assert_int_equal(owned(&f, 1), 0); /* and the drain goes on */
    assert_true(owned(&f, 2) > 0);
    tear_down(&f);
}

static void nobody_drains_when_nobody_could_take_the_chunks(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_drained drained;
    set_up(&f);
    assert_int_equal(drain(&f, 2, &drained), ERR_NOT_FOUND);
    assert_int_equal(drain(&f, 1, &drained), ERR_OK);
    assert_int_equal(drain(&f, 0, &drained), ERR_INVALID);
    /* A daemon that is told to end may end all the same. */
    assert_int_equal(report(&f, 0, (struct server_report){.kind = SERVER_DRAIN}), ERR_OK);
    assert_true(f.players[0].told_leave);
    tear_down(&f);
}

static void who_drained_by_itself_and_is_back_gets_a_share_again(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    assert_int_equal(report(&f, 1, (struct server_report){.kind = SERVER_DRAIN}), ERR_OK);
    step(&f);
    step(&f);
    assert_true(f.players[1].told_leave);
    lose(&f, 1);
    connect(&f, 1, 31);
    ready(&f, 1, status(&f).version);
    step(&f);
    assert_true(owned(&f, 1) > 0);
    tear_down(&f);
}

static void one_that_cannot_hold_the_run_stays_out(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    connect(&f, 2, 12);
    struct server_report sorry = {
        .kind = SERVER_READY,
        .ready = {.cut = {f.generation, 0}, .code = ERR_NOMEM, .text = "too small"}};
    assert_int_equal(report(&f, 2, sorry), ERR_OK);
    step(&f);
    assert_int_equal(status(&f).state, RUN_TRAINING);
    assert_int_equal(owned(&f, 2), 0);
    lose(&f, 2);
    step(&f);
    tear_down(&f);
}

static void who_may_leave_is_told_so_until_it_has_heard(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_drained drained;
    set_up(&f);
    connect(&f, 2, 12);
    assert_int_equal(drain(&f, 2, &drained), ERR_OK);
    assert_true(f.players[2].told_leave);
    connect(&f, 2, 12); /* over a link that was broken then */
    assert_true(f.players[2].told_leave);
    connect(&f, 2, 13); /* another start: it joins */
    assert_false(f.players[2].told_leave);
    tear_down(&f);
}

static void a_run_that_waits_for_servers_keeps_those_it_needs(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_drained drained;
    set_up_office(&f);
    connect(&f, 0, 10);
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, NULL, NULL), ERR_OK);
    look(&f);
    assert_int_equal(drain(&f, 0, &drained), ERR_INVALID); /* it needs two */
    tear_down(&f);
}

static void a_run_does_not_begin_on_a_server_that_may_leave(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_drained drained;
    set_up_office(&f);
    connect(&f, 0, 10);
    assert_int_equal(drain(&f, 0, &drained), ERR_OK); /* before there is a run */
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, NULL, NULL), ERR_OK);
    look(&f);
    connect(&f, 1, 11);
    assert_int_equal(f.generation, 0); /* it waits for a second one */
    connect(&f, 2, 12);
    assert_int_equal(f.players[0].generation, 0);
    assert_int_not_equal(f.players[2].generation, 0);
    tear_down(&f);
}

static void p11_a_server_of_the_newest_cut_waits_for_one_without_it(void **state)
{
    (void)state;
    struct fixture f;
    struct coordinator_drained drained;
    struct coordinator_past past = {
        .generation = 4,
        .cut = {.name = {4, 7}, .server_count = 2, .servers = {{"s0", {0}}, {"s2", {0}}}}};
    set_up_office(&f);
    connect(&f, 0, 10);
    connect(&f, 1, 11);
    assert_int_equal(coordinator_start(f.coordinator, f.now_ms, &run, &past, NULL), ERR_OK);
    look(&f);
    ready(&f, 0, 7);
    ready(&f, 1, 7);
    connect(&f, 2, 12); /* the run goes on without it, from its file */
    assert_int_equal(drain(&f, 2, &drained), ERR_OK);
    assert_false(drained.drained);
    step(&f);
    assert_true(f.players[2].told_leave);
    tear_down(&f);
}

static void
without_a_server_that_is_given_up_the_run_goes_back_to_its_cut_on_the_others(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    step(&f);
    assert_int_equal(give_up(&f, 1), ERR_INVALID); /* it is there */
    uint64_t generation = f.generation;
    lose(&f, 1);
    assert_int_equal(give_up(&f, 1), ERR_OK);
    assert_int_equal(f.generation, generation + 1);
    assert_int_equal(status(&f).version, 0);
    assert_int_equal(owned(&f, 0), CHUNKS);
    ready(&f, 0, 0);
    step(&f); /* with a cut that is nobody else's */
    assert_int_equal(f.stored.name.version, 1);
    assert_int_equal(f.stored.server_count, 1);
    assert_int_equal(status(&f).moves.servers_drained, 1);
    connect(&f, 1, 11); /* it was somewhere else only */
    ready(&f, 1, 1);
    step(&f);
    assert_in_range(owned(&f, 1), 1, CHUNKS - 1);
    tear_down(&f);
}

static void a_server_that_is_given_up_is_not_awaited_with_the_cut_that_names_it(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    lose(&f, 1);
    assert_int_equal(give_up(&f, 1), ERR_OK);
    ready(&f, 0, 0);
    lose(&f, 0);
    connect(&f, 0, 20); /* before there is another cut */
    assert_int_equal(owned(&f, 0), CHUNKS);
    ready(&f, 0, 0);
    step(&f);
    assert_int_equal(status(&f).version, 1);
    tear_down(&f);
}

static void others_that_are_lost_are_awaited_when_one_is_given_up(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    add_third(&f);
    step(&f);
    uint64_t generation = f.generation;
    lose(&f, 0);
    lose(&f, 1);
    assert_int_equal(give_up(&f, 1), ERR_OK);
    assert_int_equal(f.generation, generation);
    connect(&f, 0, 20);
    assert_int_equal(f.generation, generation + 1);
    assert_int_equal(owned(&f, 0) + owned(&f, 2), CHUNKS);
    tear_down(&f);
}

static void nobody_is_given_up_when_nobody_could_take_the_chunks(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    lose(&f, 0);
    lose(&f, 1);
    assert_int_equal(give_up(&f, 2), ERR_NOT_FOUND);
    assert_int_equal(give_up(&f, 0), ERR_OK); /* the other one may come back */
    assert_int_equal(give_up(&f, 1), ERR_INVALID);
    assert_int_equal(give_up(&f, 0), ERR_OK); /* it is no more */
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_joins_gets_its_even_share_with_a_commit),
        cmocka_unit_test(the_next_commit_waits_for_the_new_owner),
        cmocka_unit_test(p11_a_drained_server_leaves_when_a_cut_without_it_is_recorded),
        cmocka_unit_test(p10_a_rewind_restores_the_servers_and_the_map_of_its_cut),
        cmocka_unit_test(nobody_drains_when_nobody_could_take_the_chunks),
        cmocka_unit_test(who_drained_by_itself_and_is_back_gets_a_share_again),
        cmocka_unit_test(one_that_cannot_hold_the_run_stays_out),
        cmocka_unit_test(who_may_leave_is_told_so_until_it_has_heard),
        cmocka_unit_test(a_run_that_waits_for_servers_keeps_those_it_needs),
        cmocka_unit_test(a_run_does_not_begin_on_a_server_that_may_leave),
        cmocka_unit_test(p11_a_server_of_the_newest_cut_waits_for_one_without_it),
        cmocka_unit_test(
            without_a_server_that_is_given_up_the_run_goes_back_to_its_cut_on_the_others),
        cmocka_unit_test(a_server_that_is_given_up_is_not_awaited_with_the_cut_that_names_it),
        cmocka_unit_test(others_that_are_lost_are_awaited_when_one_is_given_up),
        cmocka_unit_test(nobody_is_given_up_when_nobody_could_take_the_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
