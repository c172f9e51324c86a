/* How long it takes to find a worker that computes wrongly: the coordinator's core and the names that
 * a server remembers (server/shard/names.h), with made-up workers that join, compute, lie, vanish and
 * come back. Only what decides about audits is there, so that thousands of steps take a second.
 *
 *   audits --find 1-20      a worker flips a bit in 1 of 200 tickets, train.audit is 0.05: it is named
 *                           within 8 times the expected number of its tickets in each seed, and in
 *                           the median within 1.5 times
 *   audits --honest 1-1000  workers come and go, many tickets are audited, one worker lies often:
 *                           nobody else is ever expelled
 *   audits --rewind 1-1000  the same with train.audit_rewind, cuts that are recorded late, damaged and
 *                           pruned, and daemons that start anew, also between the conviction and
 *                           the rewind: from then on nothing is in the weights that the liar brought
 *                           since its last agreeing audit; in a quarter of the seeds the run is
 *                           stopped, and nothing of that is in its last cut
 *   audits --lack 1-1000    the search for a cut ignores how old it must be: that is found
 *   audits --forget 1-1000  a successor does not know that the run is to go back: that is found
 */
#include "server/coordinator/audits.h"
#include "common/err.h"
#include "common/rand.h"
#include "server/coordinator/coordinator.h"
#include "server/shard/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORKERS_MAX = 6,
    SLOTS = 8,
    LEASE_MS = 2000,
    LIAR = 0,
    SEEDS_MAX = 4096,
    TIMES_MAX = 8, /* the expected number, in each seed */
    STEPS_MAX = 4096,
    KEEP_MAX = 4,
    PENDING_MAX = 8,
    STEPS_AFTER = 12, /* a rewind, until a seed ends */
};
#define TIMES_MEDIAN 1.5
#define NEVER UINT64_MAX

struct plan {
    double share;          /* train.audit */
    uint32_t wrong_in;     /* the liar is wrong in 1 of so many tickets */
    uint32_t vanish_in;    /* a worker vanishes after 1 of so many; 0: never */
    uint32_t workers;      /* the liar among them */
    uint32_t certificates; /* that the workers have; 0: none */
    uint32_t node_slots;   /* 0: the coordinator chooses */
    bool rewinds;          /* train.audit_rewind, with cuts */
    bool lack;             /* the search ignores version_max */
    bool forget;           /* the store forgets that the run is to go back */
    uint32_t keep;         /* cuts in the store */
    uint32_t cut_every;
    bool speculates; /* second attempts at slow tickets are compared as well */
    bool stops;      /* an operator stops the run when it is to go back, or will be */
    uint64_t steps_max;
    uint64_t tickets_max; /* of the liar */
};

enum doing { AWAY, ASKING, FETCHING, COMPUTING };

struct worker {
    enum doing doing;
    uint64_t at_ms; /* when it is through with that; ASKING: NEVER */
    uint64_t member, previous;
    struct proof secret, previous_secret;
    uint64_t sequence;
    uint64_t slow; /* its speed */
    uint64_t tickets;
    struct ticket ticket;
};

struct world {
    const struct plan *plan;
    uint64_t seed, now_ms;
    struct rand_state random;
    struct coordinator *coordinator;
    struct worker workers[WORKERS_MAX];
    uint64_t link, generation;
    /* The server, which has the one chunk. */
    struct names names;
    struct name name_list[2 * NAMES_AUDITED_PLACES_MAX];
    bool held[SLOTS];
    uint64_t version;
    uint64_t committed_ms; /* it acknowledges its newest commit then; NEVER: it has */
    bool named;            /* the liar is */
    uint64_t term, boot;
    /* The store, and what of it comes later: */
    struct cut_record kept[KEEP_MAX];
    uint32_t kept_count;
    uint64_t stored_generation;
    struct convictions convictions;
    struct late {
        uint64_t at_ms; /* NEVER: nothing is late */
        struct cut_name cut;
    } manifest, stored; /* of the newest cut */
    struct {
        uint64_t at_ms; /* NEVER: nobody asked */
        uint64_t version_max;
    } search;
    /* What is so: */
    bool lied_in[STEPS_MAX]; /* by step: a push of the liar is in its sums */
    uint64_t confirmed;      /* the liar's bits were compared in the step before, and were right */
    uint64_t settled_at;     /* the version at which the seed ends */
    bool excused;            /* no cut was old enough and whole */
    bool doubted;            /* bits differed */
    bool stopping, over;     /* the run */
    uint32_t rewinds, searches, none;
    uint32_t left; /* to a successor */
};

static void carry_out(struct world *world);

static uint64_t between(struct world *world, uint64_t min, uint64_t max)
{
    return min + rand_below(&world->random, max - min + 1);
}

static bool one_in(struct world *world, uint32_t count)
{
    return count > 0 && rand_below(&world->random, count) == 0;
}

/* ---- what must hold ---- */

/* Whether the store says that the run is still to go back, and before which step. */
static bool goes_back(const struct world *world, uint64_t *ret_from)
{
    return convictions_undo(&world->convictions, ret_from);
}

static void violated(const struct world *world, const char *what, uint64_t number, uint64_t from)
{
    printf("seed %llu: %s %llu, although the run is to go back before step %llu\n",
           (unsigned long long)world->seed, what, (unsigned long long)number,
           (unsigned long long)from);
    exit(1);
}

/* Until it has gone back nothing else happens to the run. */
static void check_pending(const struct world *world, const char *what, uint64_t number)
{
    uint64_t from;
    if (goes_back(world, &from))
        violated(world, what, number, from);
}

/* When the liar is named, nothing that it lied about is in a version from which the run goes on. */
static void check_version(const struct world *world, uint64_t version)
{
    bool judged = world->plan->rewinds && world->named && !world->excused;
    for (uint64_t step = world->confirmed; step < version && judged; step++)
        if (world->lied_in[step]) {
            printf("seed %llu: version %llu has step %llu, which the liar had a part in; an audit "
                   "agreed before step %llu\n",
                   (unsigned long long)world->seed, (unsigned long long)version,
                   (unsigned long long)step, (unsigned long long)world->confirmed);
            exit(1);
        }
}

/* ---- the server ---- */

static void report(struct world *world, struct server_report report)
{
    report.boot = world->boot;
    enum err err =
        coordinator_server_report(world->coordinator, world->now_ms, world->link, &report);
    check(err == ERR_OK || err == ERR_OLD_GENERATION); /* while a rewind waits for room */
    carry_out(world);
}

static void report_ready(struct world *world, const struct server_command *prepare)
{
    struct server_report ready = {.kind = SERVER_READY}, manifest = {.kind = SERVER_MANIFEST};
    world->generation = prepare->prepare.generation;
    world->version = prepare->prepare.from_cut ? prepare->prepare.cut.version : 0;
    world->committed_ms = world->manifest.at_ms = NEVER;
    memset(world->held, 0, sizeof world->held);
    memset(world->name_list, 0, sizeof world->name_list);
    ready.ready.cut = (struct cut_name){world->generation, world->version};
    manifest.manifest.cut = ready.ready.cut;
    report(world, ready);
    if (!prepare->prepare.from_cut)
        report(world, manifest);
}

static void take_command(struct world *world, const struct server_command *command)
{
    if (command->kind == SERVER_PREPARE)
        report_ready(world, command);
    if (command->kind != SERVER_COMMIT)
        return;
    check(command->commit.step == world->version);
    check_pending(world, "a step is committed,", command->commit.step);
    world->version++;
    check_version(world, world->version);
    memset(world->held, 0, sizeof world->held);
    world->committed_ms = world->now_ms + between(world, 1, 5);
    if (command->commit.cut && !one_in(world, 3)) /* of an earlier one the manifest never comes */
        world->manifest = (struct late){world->now_ms + between(world, 1, 500),
                                        {world->generation, world->version}};
}

/* ---- the store ---- */

/* One that was being written down when the liar was named may still be recorded. */
static void store_cut(struct world *world, const struct cut_record *cut)
{
    check_pending(world, "a cut is written down, of version", cut->name.version);
    memmove(&world->kept[1], &world->kept[0], (KEEP_MAX - 1) * sizeof world->kept[0]);
    world->kept[0] = *cut;
    world->kept_count += world->kept_count < KEEP_MAX ? 1 : 0;
    if (world->plan->keep > 0 && world->kept_count > world->plan->keep)
        world->kept_count = world->plan->keep;
    world->stored = (struct late){world->now_ms + between(world, 0, 30), cut->name};
}

static void say_stored(struct world *world)
{
    world->stored.at_ms = NEVER;
    coordinator_cut_stored(world->coordinator, world->now_ms, world->stored.cut, ERR_OK);
    carry_out(world);
}

static void say_manifest(struct world *world)
{
    struct server_report manifest = {.kind = SERVER_MANIFEST};
    manifest.manifest.cut = world->manifest.cut;
    world->manifest.at_ms = NEVER;
    report(world, manifest);
}

/* Some are damaged. */
static void find_cut(struct world *world)
{
    struct cut_record found;
    uint32_t at = 0;
    world->search.at_ms = NEVER;
    while (at < world->kept_count &&
           ((!world->plan->lack && world->kept[at].name.version > world->search.version_max) ||
            one_in(world, 8)))
        at++;
    bool any = at < world->kept_count;
    world->excused = !any;
    world->searches++;
    if (any) {
        found = world->kept[at];
        world->kept_count -= at;
        memmove(&world->kept[0], &world->kept[at], world->kept_count * sizeof world->kept[0]);
    }
    coordinator_cut_found(world->coordinator, world->now_ms, any ? &found : NULL, "so it was");
    carry_out(world);
}

/* A generation begins. With what the liar lied about until then it is over. */
static void check_rewound(struct world *world)
{
    struct coordinator_status status;
    uint64_t from;
    coordinator_status(world->coordinator, &status);
    check_version(world, status.version);
    if (!world->excused && goes_back(world, &from) && status.version > from)
        violated(world, "a generation begins from version", status.version, from);
    convictions_undone(&world->convictions);
    memset(&world->lied_in[status.version], 0, (STEPS_MAX - status.version) * sizeof(bool));
    world->confirmed = world->confirmed < status.version ? world->confirmed : status.version;
    world->rewinds += world->named ? 1 : 0;
    if (world->named && world->settled_at == UINT64_MAX)
        world->settled_at = status.version + STEPS_AFTER;
}

/* The run is over, with its newest cut. */
static void check_over(struct world *world)
{
    uint64_t from, last = world->kept[0].name.version;
    check_version(world, last);
    if (!world->excused && goes_back(world, &from) && last > from)
        violated(world, "the last cut is of version", last, from);
    world->over = true;
}

static void acknowledge(struct world *world)
{
    struct server_report committed = {.kind = SERVER_COMMITTED};
    committed.committed.generation = world->generation;
    committed.committed.step = world->version - 1;
    world->committed_ms = NEVER;
    report(world, committed);
}

static void report_reduced(struct world *world, uint64_t step)
{
    static const struct chunk_seal seal = {0, true, 1};
    struct server_report reduced = {.kind = SERVER_REDUCED};
    reduced.reduced = (struct reduced){.generation = world->generation,
                                       .step = step,
                                       .seal_count = 1,
                                       .seals = &seal,
                                       .has_loss = true,
                                       .loss_sum = 1,
                                       .sample_count = SLOTS};
    report(world, reduced);
}

static void stop(struct world *world)
{
    world->stopping = true;
    ignore(coordinator_stop(world->coordinator, world->now_ms, "")); /* it is over: fine */
    carry_out(world);
}

/* Returns whether the push has made the step complete. */
static bool count_push(struct world *world, const struct push *push)
{
    bool complete = true;
    uint32_t first = node_first(push->node), end = first + node_slots(push->node, SLOTS);
    for (uint32_t i = first; i < end; i++)
        world->held[i] = true;
    for (uint32_t i = 0; i < SLOTS; i++)
        complete = complete && world->held[i];
    return complete;
}

static void take_push(struct world *world, const struct push *push, uint64_t digest)
{
    check(push->step <= world->version);
    if (push->step == world->version && !world->held[node_first(push->node)]) {
        names_remember(&world->names, push, digest);
        world->lied_in[push->step] |= push->member == world->workers[LIAR].member;
        if (count_push(world, push))
            report_reduced(world, push->step);
        return;
    }
    const struct name *first = names_first(&world->names, push);
    uint64_t liar = world->workers[LIAR].member;
    if (first != NULL && first->digest == digest && first->member != push->member &&
        (first->member == liar || push->member == liar) && world->confirmed <= push->step)
        world->confirmed = push->step + 1;
    if (first == NULL || first->digest == digest)
        return;
    struct server_report wrong = {.kind = SERVER_WRONG_BITS};
    wrong.wrong_bits.member = push->member;
    wrong.wrong_bits.first_member = first->member;
    wrong.wrong_bits.step = push->step;
    wrong.wrong_bits.node = push->node;
    if (world->plan->stops && world->doubted && !world->stopping && one_in(world, 2))
        stop(world);
    if (!world->over)
        report(world, wrong);
}

/* ---- workers ---- */

static uint32_t index_of(const struct world *world, const struct worker *worker)
{
    return (uint32_t)(worker - world->workers);
}

static struct worker *worker_of(struct world *world, uint64_t member)
{
    for (uint32_t i = 0; i < world->plan->workers; i++)
        if (world->workers[i].member == member && world->workers[i].doing != AWAY)
            return &world->workers[i];
    return NULL;
}

static void ask(struct world *world, struct worker *worker)
{
    worker->doing = ASKING;
    worker->at_ms = NEVER;
    enum err err = coordinator_acquire(world->coordinator, world->now_ms,
                                       &(struct acquire_request){.member = worker->member,
                                                                 .secret = worker->secret,
                                                                 .generation = world->generation,
                                                                 .sequence = ++worker->sequence,
                                                                 .wait_ms = LEASE_MS / 2});
    check(err == ERR_OK);
    carry_out(world);
}

static void join(struct world *world, struct worker *worker)
{
    struct join_reply reply;
    struct join_request request = {.wire_version = WIRE_VERSION,
                                   .device = "cpu",
                                   .previous_member = worker->previous,
                                   .previous_secret = worker->previous_secret};
    uint32_t index = index_of(world, worker), certificates = world->plan->certificates;
    snprintf(request.name, sizeof request.name, "w%u", index);
    snprintf(request.host, sizeof request.host, "h%u", index / 2);
    request.certificate = certificates > 0 ? 1 + index % certificates : 0;
    enum err err = coordinator_join(world->coordinator, world->now_ms, &request, &reply, NULL);
    if (err == ERR_WRONG_BITS || err == ERR_EXPELLED) {
        worker->at_ms = NEVER;
        return;
    }
    if (err == ERR_NO_RUN) { /* it rewinds */
        worker->at_ms = world->now_ms + between(world, 1, 20);
        return;
    }
    check(err == ERR_OK);
    worker->member = reply.member;
    worker->secret = reply.secret;
    worker->sequence = 0;
    worker->slow = between(world, 1, 3);
    carry_out(world);
    ask(world, worker);
}

/* Its process ends; another one of its name comes later, which may know its earlier membership. */
static void vanish(struct world *world, struct worker *worker)
{
    uint64_t member = worker->member;
    bool knows = one_in(world, 2), silent = one_in(world, 3);
    worker->doing = AWAY;
    worker->previous = knows ? worker->member : 0;
    worker->previous_secret = worker->secret;
    worker->at_ms = world->now_ms + between(world, 1, 3 * (uint64_t)LEASE_MS / 2);
    if (!silent)
        coordinator_member_lost(world->coordinator, world->now_ms, member, "stream broke");
    carry_out(world);
}

static void fetch(struct world *world, struct worker *worker)
{
    worker->doing = worker->ticket.version == world->version ? COMPUTING : FETCHING;
    worker->at_ms = world->now_ms + between(world, 5, 15) * worker->slow;
}

static void complete(struct world *world, struct worker *worker, enum err outcome)
{
    const struct complete_request request = {.member = worker->member,
                                             .secret = worker->secret,
                                             .ticket = worker->ticket,
                                             .outcome = outcome};
    ignore(coordinator_complete(world->coordinator, world->now_ms, &request)); /* as it may be */
    carry_out(world);
}

static void bring(struct world *world, struct worker *worker)
{
    const struct ticket ticket = worker->ticket;
    const struct push push = {.step = ticket.step, .node = ticket.node, .member = worker->member};
    uint64_t member = worker->member, digest = ticket.step * 1000 + ticket.node.index;
    bool lies = index_of(world, worker) == LIAR && one_in(world, world->plan->wrong_in);
    worker->tickets++;
    take_push(world, &push, lies ? digest ^ between(world, 1, UINT32_MAX) : digest);
    if (worker->member != member || worker->doing == AWAY)
        return; /* expelled */
    complete(world, worker, ERR_OK);
    if (worker->doing != AWAY && one_in(world, world->plan->vanish_in))
        vanish(world, worker);
    else if (worker->doing != AWAY)
        ask(world, worker);
}

static void act(struct world *world, struct worker *worker)
{
    switch (worker->doing) {
    case AWAY:
        join(world, worker);
        return;
    case FETCHING: /* that version is gone */
        complete(world, worker, ERR_TOO_LATE);
        if (worker->doing != AWAY)
            ask(world, worker);
        return;
    case COMPUTING:
        bring(world, worker);
        return;
    default:
        return;
    }
}

/* ---- what the coordinator wants ---- */

/* Whoever is expelled for wrong bits must be the liar. */
static void judge_ends(struct world *world)
{
    struct coordinator_member member;
    for (uint32_t i = 0; coordinator_member(world->coordinator, i, &member); i++) {
        if (strcmp(member.state, "wrong bits") != 0)
            continue;
        if (strcmp(member.name, "w0") != 0) {
            printf("seed %llu: %s is honest, and was expelled: %s\n",
                   (unsigned long long)world->seed, member.name, member.reason);
            exit(1);
        }
        world->named = true;
    }
}

static void take_answer(struct world *world, uint64_t member, enum err err,
                        const struct acquire_reply *reply)
{
    struct worker *worker = worker_of(world, member);
    if (worker == NULL || worker->doing != ASKING || err != ERR_OK)
        return;
    if (reply->result == ACQUIRE_TICKET) {
        worker->ticket = reply->ticket;
        fetch(world, worker);
    } else {
        worker->at_ms = world->now_ms + 1; /* it asks again */
        worker->doing = FETCHING;
        worker->ticket = (struct ticket){0};
    }
}

/* Below which step the coordinator takes the liar to have been right. */
static void read_log(struct world *world, const char *text)
{
    unsigned long long below;
    world->none += strstr(text, "no checkpoint is old enough") != NULL ? 1 : 0;
    world->doubted = world->doubted || strstr(text, "bits differ") != NULL;
    if (sscanf(text, "worker was wrong  worker=w0 confirmed_below=%llu", &below) == 1 &&
        below > world->confirmed) {
        printf("seed %llu: no audit agreed between the steps %llu and %llu\n",
               (unsigned long long)world->seed, (unsigned long long)world->confirmed, below);
        exit(1);
    }
}

/* Some find no room in the store. */
static void store_rewind(struct world *world, uint64_t generation)
{
    bool full = world->plan->rewinds && one_in(world, 8);
    coordinator_rewind_stored(world->coordinator, world->now_ms, generation,
                              full ? ERR_NO_SPACE : ERR_OK);
    if (full)
        return;
    world->stored_generation = generation;
    check_rewound(world);
}

static void take_effect(struct world *world, const struct effect *effect)
{
    struct worker *worker;
    if (effect->kind == EFFECT_COMMAND)
        take_command(world, &effect->command.command);
    else if (effect->kind == EFFECT_ANSWER)
        take_answer(world, effect->answer.member, effect->answer.err, &effect->answer.reply);
    else if (effect->kind == EFFECT_STORE_CUT)
        store_cut(world, effect->cut);
    else if (effect->kind == EFFECT_STORE_FINGERPRINT)
        coordinator_fingerprint_stored(world->coordinator, world->now_ms);
    else if (effect->kind == EFFECT_STORE_REWIND)
        store_rewind(world, effect->generation);
    else if (effect->kind == EFFECT_STORE_STATE) {
        if (effect->state.state == RUN_STOPPED)
            check_over(world);
    } else if (effect->kind == EFFECT_FIND_CUT) {
        world->search.at_ms = world->now_ms + between(world, 1, 300);
        world->search.version_max = effect->find.version_max;
    } else if (effect->kind == EFFECT_STORE_CONVICTION)
        convictions_add(&world->convictions, &effect->conviction);
    else if (effect->kind == EFFECT_LOG)
        read_log(world, effect->log.text);
    if (effect->kind != EFFECT_EXPEL || (worker = worker_of(world, effect->member)) == NULL)
        return;
    worker->doing = AWAY;
    worker->previous = worker->member;
    worker->previous_secret = worker->secret;
    worker->at_ms = world->now_ms + LEASE_MS;
    judge_ends(world);
}

/* Effects may have effects: the list grows behind the one that is carried out. */
static void carry_out(struct world *world)
{
    size_t count;
    const struct effect *effects = coordinator_effects(world->coordinator, &count);
    struct effect *copies = malloc((count + 1) * sizeof *copies);
    check(copies != NULL);
    memcpy(copies, effects, count * sizeof *copies);
    coordinator_effects_clear(world->coordinator);
    for (size_t i = 0; i < count; i++)
        take_effect(world, &copies[i]);
    free(copies);
    coordinator_effects(world->coordinator, &count);
    if (count > 0)
        carry_out(world);
}

/* ---- a run ---- */

/* The coordinator and its server start, or start again on what the store has. */
static void start_daemons(struct world *world)
{
    static const struct map_parameter parameter = {0, 1, 400, 400};
    const struct plan *plan = world->plan;
    const struct coordinator_settings settings = {.term = ++world->term,
                                                  .heartbeat_ms = LEASE_MS / 4,
                                                  .lease_ms = LEASE_MS,
                                                  .speculation_percent = 200,
                                                  .speculation_ms_min =
                                                      plan->speculates ? 20 : UINT32_MAX,
                                                  .stop_ms = 1000};
    struct coordinator_run run = {
        .run = 1,
        .steps = plan->steps_max,
        .servers_min = 1,
        .slots = SLOTS,
        .slot_samples = 1,
        .node_slots = plan->node_slots,
        .audit = plan->share,
        .audit_rewind = plan->rewinds,
        .cut_every = plan->cut_every,
        .seal = {.schedule = {.kind = SPEC_CONSTANT, .lr = 1, .step_samples = SLOTS},
                 .sample_predictions = 1},
        .parameter_count = 1,
        .parameters = &parameter,
        .parameter_bytes_max = 1 << 20,
        .spec = "",
        .checkpoint_dir = ""};
    struct coordinator_past past = {.generation = world->stored_generation,
                                    .cut = world->kept[0],
                                    .recorded = world->version,
                                    .convictions = world->convictions,
                                    .stops = world->stopping};
    if (plan->forget)
        convictions_undone(&past.convictions);
    struct server_report hello = {.kind = SERVER_HELLO, .boot = ++world->boot};
    struct rand_state secret = {world->seed};
    for (size_t i = 0; i < sizeof run.secret; i++)
        run.secret[i] = (uint8_t)rand_next(&secret);
    coordinator_free(world->coordinator);
    world->coordinator = coordinator_new(&settings);
    check(world->coordinator != NULL);
    world->committed_ms = world->manifest.at_ms = world->stored.at_ms = NEVER;
    world->search.at_ms = NEVER;
    snprintf(hello.hello.name, sizeof hello.hello.name, "s");
    enum err err =
        coordinator_server_hello(world->coordinator, world->now_ms, &hello, &world->link, NULL);
    if (err == ERR_OK)
        err = coordinator_start(world->coordinator, world->now_ms, &run,
                                world->kept_count > 0 ? &past : NULL, NULL);
    check(err == ERR_OK);
    carry_out(world);
    for (uint32_t i = 0; i < plan->workers; i++) {
        world->workers[i].doing = AWAY;
        world->workers[i].previous = 0;
        world->workers[i].at_ms = world->now_ms + between(world, 1, 50);
    }
}

static void set_up(struct world *world, const struct plan *plan, uint64_t seed)
{
    *world = (struct world){.plan = plan,
                            .seed = seed,
                            .now_ms = 1,
                            .random = {seed},
                            .settled_at = UINT64_MAX,
                            .names = {.steps = 2,
                                      .places = names_places(SLOTS, true),
                                      .root_level = tree_level(SLOTS)}};
    world->names.names = world->name_list;
    start_daemons(world);
}

/* The server starts anew, and the run is rewound. */
static void restart_server(struct world *world)
{
    struct server_report hello = {.kind = SERVER_HELLO, .boot = ++world->boot};
    snprintf(hello.hello.name, sizeof hello.hello.name, "s");
    coordinator_server_lost(world->coordinator, world->now_ms, world->link);
    carry_out(world);
    enum err err =
        coordinator_server_hello(world->coordinator, world->now_ms, &hello, &world->link, NULL);
    check(err == ERR_OK);
    carry_out(world);
}

/* Nobody remembers what the liar brought, nor, in this run, that it was named; but when the run is
 * still to go back for that, it does. */
static void start_again(struct world *world)
{
    uint64_t from;
    if (goes_back(world, &from)) {
        world->left++;
    } else {
        memset(world->lied_in, 0, sizeof world->lied_in);
        world->confirmed = 0;
        world->named = false;
        world->convictions.count = 0;
        world->settled_at = UINT64_MAX;
    }
    world->excused = false;
    start_daemons(world);
}

struct timer {
    uint64_t at_ms;
    void (*act)(struct world *world);
};

static void tick(struct world *world)
{
    coordinator_tick(world->coordinator, world->now_ms);
    carry_out(world);
}

/* What is due first, workers apart. */
static struct timer first_timer(struct world *world)
{
    const struct timer timers[] = {
        {world->committed_ms, acknowledge},    {coordinator_next_ms(world->coordinator), tick},
        {world->manifest.at_ms, say_manifest}, {world->stored.at_ms, say_stored},
        {world->search.at_ms, find_cut},
    };
    struct timer first = timers[0];
    for (size_t i = 1; i < sizeof timers / sizeof timers[0]; i++)
        if (timers[i].at_ms < first.at_ms)
            first = timers[i];
    return first;
}

static void next_event(struct world *world)
{
    struct worker *first = NULL;
    struct timer timer = first_timer(world);
    uint64_t at_ms = timer.at_ms;
    for (uint32_t i = 0; i < world->plan->workers; i++)
        if (world->workers[i].at_ms < at_ms) {
            first = &world->workers[i];
            at_ms = first->at_ms;
        }
    check(at_ms != NEVER);
    world->now_ms = at_ms > world->now_ms ? at_ms : world->now_ms;
    for (uint32_t i = 0; i < world->plan->workers; i++)
        if (world->workers[i].doing != AWAY)
            ignore(coordinator_heartbeat(world->coordinator, world->now_ms,
                                         world->workers[i].member)); /* it may have lapsed */
    coordinator_effects_clear(world->coordinator);
    if (first != NULL) {
        act(world, first);
    } else {
        timer.act(world);
    }
    coordinator_check(world->coordinator);
    bool pending = world->search.at_ms != NEVER || world->manifest.at_ms != NEVER;
    uint64_t from;
    uint32_t ends_in = goes_back(world, &from) ? 10 : pending ? 500 : 5000;
    if (world->plan->rewinds && world->kept_count > 0 && one_in(world, ends_in))
        start_again(world);
    else if (world->plan->rewinds && one_in(world, 400))
        restart_server(world);
    else if (world->plan->stops && !world->stopping && goes_back(world, &from) && one_in(world, 4))
        stop(world);
}

/* Audits of all seeds. */
struct sums {
    uint64_t compared, not_compared, rewinds, searches, none, left, stopped;
};

/* Returns the liar's tickets until it was named; 0: it was not. */
static uint64_t run_seed(const struct plan *plan, uint64_t seed, struct sums *sums)
{
    static struct world world;
    set_up(&world, plan, seed);
    while ((plan->rewinds ? world.version < world.settled_at : !world.named) &&
           world.version < plan->steps_max && world.workers[LIAR].tickets < plan->tickets_max &&
           !world.over)
        next_event(&world);
    uint64_t tickets = world.named ? world.workers[LIAR].tickets : 0;
    struct coordinator_status status;
    coordinator_status(world.coordinator, &status);
    sums->compared += status.audits.agreed + status.audits.differed;
    sums->not_compared += status.audits.not_compared;
    sums->rewinds += world.rewinds;
    sums->searches += world.searches;
    sums->none += world.none;
    sums->left += world.left;
    sums->stopped += world.over && world.searches > 0;
    coordinator_free(world.coordinator);
    return tickets;
}

/* ---- what is shown ---- */

static int compare(const void *a, const void *b)
{
    uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;
    return first < second ? -1 : first > second;
}

static void print_compared(const struct sums *sums)
{
    uint64_t audits = sums->compared + sums->not_compared;
    printf("%.1f %% of %llu audits were compared\n", 100 * (double)sums->compared / (double)audits,
           (unsigned long long)audits);
}

static int find(uint64_t first, uint64_t last, uint32_t certificates)
{
    struct sums sums = {0};
    static uint64_t tickets[SEEDS_MAX];
    uint32_t count = 0;
    struct plan plan = {.share = 0.05,
                        .wrong_in = 200,
                        .workers = 4,
                        .certificates = certificates,
                        .node_slots = 1,
                        .steps_max = UINT32_MAX};
    double expected = audits_expected(plan.share) * plan.wrong_in;
    plan.tickets_max = (uint64_t)(TIMES_MAX * expected);
    for (uint64_t seed = first; seed <= last && count < SEEDS_MAX; seed++) {
        tickets[count] = run_seed(&plan, seed, &sums);
        if (tickets[count++] == 0) {
            printf("seed %llu: not named after %llu of its tickets\n", (unsigned long long)seed,
                   (unsigned long long)plan.tickets_max);
            return 1;
        }
    }
    qsort(tickets, count, sizeof *tickets, compare);
    double median = (double)tickets[count / 2], sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += (double)tickets[i];
    printf("%u seeds, %u certificates: named after %.0f of its tickets in the median, %.0f in the "
           "mean, %llu at most; "
           "%.0f expected\n",
           count, certificates, median, sum / count, (unsigned long long)tickets[count - 1],
           expected);
    print_compared(&sums);
    return median <= TIMES_MEDIAN * expected ? 0 : 1;
}

static int honest(uint64_t first, uint64_t last, const char *what)
{
    struct sums sums = {0};
    static const uint32_t node_slots[] = {1, 1, 2, 0};
    uint64_t named = 0;
    bool lack = strcmp(what, "--lack") == 0, forget = strcmp(what, "--forget") == 0;
    bool rewinds = lack || forget || strcmp(what, "--rewind") == 0;
    for (uint64_t seed = first; seed <= last; seed++) {
        struct rand_state random = {~seed};
        const struct plan plan = {.share = 0.05 + 0.3 * rand_unit(&random),
                                  .wrong_in = 5 + (uint32_t)rand_below(&random, 60),
                                  .vanish_in = 5 + (uint32_t)rand_below(&random, 60),
                                  .workers = 2 + (uint32_t)rand_below(&random, WORKERS_MAX - 1),
                                  .certificates = (uint32_t)rand_below(&random, 5),
                                  .node_slots = node_slots[rand_below(&random, 4)],
                                  .rewinds = rewinds,
                                  .lack = lack,
                                  .forget = forget,
                                  .cut_every = !rewinds                     ? 0
                                               : rand_below(&random, 2) > 0 ? 5
                                                                            : 15,
                                  .keep = 1 + (uint32_t)rand_below(&random, KEEP_MAX),
                                  .speculates = rand_below(&random, 2) == 0,
                                  .stops = rewinds && seed % 4 == 0,
                                  .steps_max = 400,
                                  .tickets_max = UINT64_MAX};
        named += run_seed(&plan, seed, &sums) > 0 ? 1 : 0;
    }
    printf("%llu seeds: no honest worker was expelled; the liar was in %llu\n",
           (unsigned long long)(last - first + 1), (unsigned long long)named);
    print_compared(&sums);
    if (rewinds)
        printf(
            "%llu rewinds, %llu searches, without an old enough checkpoint %llu times, left to a "
            "successor %llu times; stopped after a search %llu times\n",
            (unsigned long long)sums.rewinds, (unsigned long long)sums.searches,
            (unsigned long long)sums.none, (unsigned long long)sums.left,
            (unsigned long long)sums.stopped);
    /* Of two workers nobody says which one lies, and 400 steps are few for a rare liar. */
    return named > (last - first + 1) / 3 ? 0 : 1;
}

int main(int argc, char **argv)
{
    unsigned long long first, last;
    const char *what = argc == 3 ? argv[1] : "";
    static const char *const kinds[] = {"--find", "--honest", "--rewind", "--lack", "--forget"};
    bool known = false;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        known = known || strcmp(what, kinds[i]) == 0;
    if (!known || sscanf(argv[2], "%llu-%llu", &first, &last) != 2 || first > last) {
        fprintf(stderr, "usage: audits --find|--honest|--rewind|--lack|--forget A-B\n");
        return 2;
    }
    if (strcmp(what, "--find") != 0)
        return honest(first, last, what);
    int by_name = find(first, last, 0), by_certificate = find(first, last, 4);
    return by_name != 0 ? by_name : by_certificate;
}
