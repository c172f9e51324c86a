#include "tests/sim/scenario.h"

#include "server/control/control_mesh.h"
#include "server/shard/prepare.h"

#include <string.h>

const char *fault_text(enum fault_kind kind)
{
#define SIM_FAULT_TEXT(name, text) text,
    static const char *const texts[] = {SIM_FAULTS(SIM_FAULT_TEXT)};
#undef SIM_FAULT_TEXT
    check(kind < FAULT_KIND_COUNT);
    return texts[kind];
}

/* ---- choosing ---- */

static bool chance(struct rand_state *random, uint32_t percent)
{
    return rand_below(random, 100) < percent;
}

static uint64_t between(struct rand_state *random, uint64_t min, uint64_t max)
{
    return min + rand_below(random, max - min + 1);
}

/* Small ones more often than large ones. */
static uint64_t spread(struct rand_state *random, uint64_t min, uint64_t max)
{
    uint64_t value = min;
    while (value < max && chance(random, 70))
        value = value * 2 + between(random, 0, min);
    return value < max ? value : max;
}

/* One of `count`, each as often as its share says. */
static int choose_share(struct rand_state *random, const uint32_t *shares, int count)
{
    uint32_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += shares[i];
    uint64_t at = rand_below(random, sum);
    int i = 0;
    for (; at >= shares[i]; i++)
        at -= shares[i];
    return i;
}

#define PICK(random, list) ((list)[rand_below(random, sizeof(list) / sizeof *(list))])

/* ---- the run ---- */

static void choose_train(struct scenario *scenario, struct rand_state *random)
{
    static const uint32_t slots[] = {8, 8, 8, 8, 6, 6, 6, 6, 5, 4, 3, 1, 13, 16};
    struct spec_train *train = &scenario->spec.train;
    train->steps = between(random, 2, scenario->executor ? 4 : 6);
    if (scenario->moving || scenario->headless || scenario->meeting_count > 0)
        train->steps = between(random, 4, SIM_STEPS_MAX);
    train->slots = PICK(random, slots);
    train->slot_samples = (uint32_t)between(random, 1, 4);
    train->microbatch = 1;
    train->seed = scenario->seed;
    train->threads = 1;
    train->logits_bytes_max = 1 << 20;
    train->precision = chance(random, 40) ? SPEC_BF16 : SPEC_FP32;
    train->node_slots = UINT32_C(1) << between(random, 0, 2);
    while (train->node_slots > train->slots)
        train->node_slots /= 2;
    if (train->precision == SPEC_FP32 && chance(random, 75))
        train->node_slots = 0;
    train->skip_max = chance(random, 30) ? (uint32_t)between(random, 1, 3) : 0;
    scenario->validation_samples = chance(random, 50) ? between(random, 1, 9) : 0;
    train->validate_every = (uint32_t)between(random, 0, 3);
    scenario->spec.checkpoint.every_steps = between(random, 0, 3);
    scenario->spec.checkpoint.keep = (uint32_t)between(random, 1, 3);
    scenario->bad_percent = chance(random, 25) ? 30 : 0;
}

static void choose_optimizer(struct scenario *scenario, struct rand_state *random)
{
    struct spec_optimizer *optimizer = &scenario->spec.optimizer;
    optimizer->kind = (enum spec_optimizer_kind)between(random, SPEC_SGD, SPEC_ADAMW);
    optimizer->lr = 0.01;
    if (optimizer->kind == SPEC_ADAMW) {
        optimizer->betas[0] = 0.9;
        optimizer->betas[1] = 0.95;
        optimizer->eps = 1e-8;
    }
    if (optimizer->kind == SPEC_MOMENTUM) {
        optimizer->momentum = 0.9;
        optimizer->nesterov = chance(random, 50);
    }
    optimizer->weight_decay = chance(random, 50) ? 0.1 : 0;
    optimizer->clip_norm = chance(random, 75) ? 0.5 : 0;
    optimizer->schedule = (enum spec_schedule)between(random, SPEC_CONSTANT, SPEC_COSINE);
    optimizer->warmup_samples = chance(random, 50) ? 2 * spec_step_samples(&scenario->spec) : 0;
    optimizer->decay_samples = spec_run_samples(&scenario->spec) + optimizer->warmup_samples;
    optimizer->lr_min = 0.001;
}

static void choose_async(struct scenario *scenario, struct rand_state *random)
{
    static const uint32_t staleness_max[] = {16, 16, 16, 4, 4, 2, 1, 0};
    struct spec_consistency *consistency = &scenario->spec.consistency;
    struct spec_train *train = &scenario->spec.train;
    consistency->kind = SPEC_ASYNC;
    consistency->staleness_max = PICK(random, staleness_max);
    consistency->window = (uint32_t)between(random, 1, 4 * (uint64_t)train->slots);
    scenario->spec.checkpoint.durability =
        chance(random, 60) ? SPEC_DURABILITY_LOGGED : SPEC_DURABILITY_CUT;
    train->node_slots = 1;
    train->skip_max = 0;
}

/* Local steps are the worker's own: the made-up ones need none. */
static void choose_consistency(struct scenario *scenario, struct rand_state *random)
{
    struct spec_consistency *consistency = &scenario->spec.consistency;
    uint64_t which = rand_below(random, 100);
    if (scenario->headless && (which < 25 || (which >= 50 && which < 67)))
        which += 25; /* delay, local or sync: where a successor may go on */
    if (which < 25) {
        choose_async(scenario, random);
    } else if (which < 50) {
        consistency->kind = SPEC_DELAY;
        consistency->delay = (uint32_t)between(random, 1, SIM_DELAY_MAX);
    } else if (which < 67) {
        consistency->kind = SPEC_SSP;
        consistency->staleness = (uint32_t)between(random, 0, SIM_DELAY_MAX);
        scenario->spec.train.skip_max = 0; /* the log ends before the step that fails */
    } else if (which < 75 && !scenario->executor) {
        consistency->kind = SPEC_LOCAL;
        consistency->local_steps = (uint32_t)between(random, 1, 3);
        consistency->outer.kind = chance(random, 50) ? SPEC_AVERAGE : SPEC_NESTEROV;
        consistency->outer.lr = 0.7;
        consistency->outer.momentum = 0.9;
    }
}

static void choose_model(struct scenario *scenario, struct rand_state *random)
{
    struct spec_model *model = &scenario->spec.model;
    uint64_t which = rand_below(random, 100);
    scenario->model = which < 60   ? SCENARIO_TOY
                      : which < 80 ? SCENARIO_MLP
                      : which < 92 ? SCENARIO_DEEP
                                   : SCENARIO_GPT;
    if (scenario->executor && scenario->model == SCENARIO_TOY)
        scenario->model = chance(random, 60) ? SCENARIO_MLP : SCENARIO_GPT;
    if (scenario->model == SCENARIO_GPT)
        *model = (struct spec_model){.kind = SPEC_GPT,
                                     .layers = 1,
                                     .heads = 2,
                                     .width = 8,
                                     .context = 4,
                                     .vocabulary = 8,
                                     .tensor_max = 8};
    else
        *model = (struct spec_model){.kind = SPEC_MLP,
                                     .sizes_count = 3,
                                     .sizes = {4, 6, 3},
                                     .activation = SPEC_TANH,
                                     .tensor_max = 8};
    if (scenario->model == SCENARIO_DEEP) { /* more units than credits */
        model->sizes_count = 13;
        for (uint32_t i = 0; i < model->sizes_count; i++)
            model->sizes[i] = 3;
    }
}

/* ---- the cluster ---- */

static void choose_cluster(struct scenario *scenario, struct rand_state *random)
{
    static const uint64_t bytes_max[] = {UINT64_MAX, UINT64_MAX, 64, 4096};
    static const uint32_t speculation[] = {0, 100, 150, 300};
    uint32_t slots = scenario->spec.train.slots;
    bool several = scenario->headless || scenario->meeting_count > 0;
    scenario->servers = (uint32_t)between(random, several ? 2 : 1, SIM_SERVERS_FIRST);
    scenario->threads = chance(random, 50) ? 1 : (uint32_t)between(random, 2, SIM_THREADS_MAX);
    scenario->workers = (uint32_t)between(random, 1, 8);
    scenario->parameter_bytes_max = PICK(random, bytes_max);
    uint32_t lease_ms = (uint32_t)spread(random, 500, 4000);
    scenario->office = (struct coordinator_settings){
        .heartbeat_ms = lease_ms / 4,
        .lease_ms = lease_ms,
        .speculation_percent = PICK(random, speculation),
        .speculation_ms_min = (uint32_t)between(random, 0, 50),
        .stop_ms = (uint32_t)spread(random, 10, 30000),
    };
    scenario->ahead_max = chance(random, 50) ? slots : (uint32_t)between(random, 0, 2);
    scenario->parked_member_bytes_max =
        chance(random, 80) ? 1 << 20 : (uint32_t)between(random, 0, 256);
    scenario->snapshot_copies = (uint32_t)between(random, 1, 4);
}

static void choose_network(struct scenario *scenario, struct rand_state *random)
{
    scenario->delay_us = spread(random, 50, 5000);
    scenario->late_permille = chance(random, 70) ? (uint32_t)between(random, 1, 60) : 0;
    scenario->late_us_max = spread(random, 5000, 3000000);
    scenario->lost_permille = chance(random, 60) ? (uint32_t)between(random, 1, 150) : 0;
    scenario->repeat_permille = chance(random, 60) ? (uint32_t)between(random, 1, 150) : 0;
    scenario->compute_us = spread(random, 200, 20000);
    scenario->apply_us = spread(random, 1, 5000);
    scenario->write_us = spread(random, 1, 20000);
}

/* How often each kind is chosen, of all that are planned. */
static const uint32_t fault_share[FAULT_KIND_COUNT] = {
    [FAULT_KILL_WORKER] = 16,  [FAULT_ADD_WORKER] = 20,
    [FAULT_STOP] = 16,         [FAULT_JUMP_CLOCK] = 3,
    [FAULT_SLOW_WORKER] = 6,   [FAULT_LEAVE_WORKER] = 8,
    [FAULT_STORM] = 3,         [FAULT_HERD] = 2,
    [FAULT_EXODUS] = 2,        [FAULT_ORPHAN] = 14,
    [FAULT_CULL] = 4,          [FAULT_BREAK_EXCHANGE] = 20,
    [FAULT_BREAK_MEMBER] = 8,  [FAULT_BREAK_LINK] = 10,
    [FAULT_CLOG] = 10,         [FAULT_CLOG_ALL] = 3,
    [FAULT_PARTITION] = 8,     [FAULT_DISK_FULL] = 2,
    [FAULT_CRASH_SERVER] = 10, [FAULT_CRASH_COORDINATOR] = 6,
    [FAULT_SUCCESSOR] = 4,     [FAULT_ASK_CUT] = 3,
    [FAULT_STOP_RUN] = 1,      [FAULT_ADD_SERVER] = 4,
    [FAULT_DRAIN_SERVER] = 4,  [FAULT_GIVE_UP_SERVER] = 5,
    [FAULT_STORE_GONE] = 3,    [FAULT_LOSE_DIR] = 3,
};

static enum fault_kind choose_fault(const struct scenario *scenario, struct rand_state *random)
{
    bool async = scenario->spec.consistency.kind == SPEC_ASYNC;
    if (scenario->spec.checkpoint.durability == SPEC_DURABILITY_LOGGED && chance(random, 25))
        return FAULT_CRASH_SERVER; /* the journal shall make up for it */
    /* P12: others than the cut's servers are there at a restart. */
    if (async && chance(random, 20))
        return chance(random, 50) ? FAULT_ADD_SERVER : FAULT_CRASH_COORDINATOR;
    if (scenario->moving && chance(random, 30))
        return chance(random, 50) ? FAULT_ADD_SERVER : FAULT_DRAIN_SERVER;
    if (scenario->headless && chance(random, 25))
        return chance(random, 60) ? FAULT_CRASH_COORDINATOR : FAULT_SUCCESSOR;
    int kind = choose_share(random, fault_share, FAULT_KIND_COUNT);
    bool server = kind == FAULT_CRASH_SERVER || kind == FAULT_LOSE_DIR ||
                  kind == FAULT_ADD_SERVER || kind == FAULT_DRAIN_SERVER ||
                  kind == FAULT_GIVE_UP_SERVER;
    if (scenario->headless && server && chance(random, 75))
        return FAULT_BREAK_LINK;
    return (enum fault_kind)kind;
}

/* About as long as the run would take, so that faults meet it everywhere. */
static void choose_faults(struct scenario *scenario, struct rand_state *random)
{
    const struct spec_train *train = &scenario->spec.train;
    uint64_t step_us = 8 * scenario->delay_us + scenario->write_us +
                       2 * scenario->compute_us * train->slots / scenario->workers;
    scenario->calm_us = between(random, 1, 3) * train->steps * step_us;
    bool alone = scenario->meeting_count > 0 && chance(random, 60); /* little beside what meets */
    uint64_t most = alone ? 4 : SIM_FAULTS_MAX;
    scenario->fault_count = chance(random, 10) ? 0 : (uint32_t)spread(random, 2, most);
    for (uint32_t i = 0; i < scenario->fault_count; i++)
        scenario->faults[i] =
            (struct fault){choose_fault(scenario, random), rand_below(random, scenario->calm_us)};
}

/* What disks and servers do to a run, in some seeds: beside the other faults, and chosen apart from
 * them. */
static void choose_losses(struct scenario *scenario)
{
    static const enum fault_kind kinds[] = {FAULT_SYNC_FAILS, FAULT_LOSE_COMMAND};
    struct rand_state random = {scenario->seed + 0x6c6f7373};
    if (scenario->fault_count == 0 || !chance(&random, 20))
        return;
    for (uint64_t left = between(&random, 1, 3); left > 0 && scenario->fault_count < SIM_FAULTS_MAX;
         left--)
        scenario->faults[scenario->fault_count++] =
            (struct fault){kinds[rand_below(&random, sizeof kinds / sizeof kinds[0])],
                           rand_below(&random, scenario->calm_us)};
}

/* There is another checkpoint to go back to. */
static void keep_another(struct spec_checkpoint *checkpoint)
{
    checkpoint->keep = checkpoint->keep < 2 ? 2 : checkpoint->keep;
    checkpoint->every_steps = checkpoint->every_steps == 0 ? 1 : checkpoint->every_steps;
}

/* A disk that changes what it has, a server's name that comes twice: in some seeds, chosen apart. */
static void choose_oddities(struct scenario *scenario)
{
    static const enum fault_kind kinds[] = {FAULT_DAMAGE_CUT, FAULT_DAMAGE_CUT, FAULT_REPEAT_NAME};
    struct rand_state random = {scenario->seed + 0x6f6464};
    if (scenario->fault_count == 0 || scenario->fault_count == SIM_FAULTS_MAX ||
        !chance(&random, 15))
        return;
    enum fault_kind kind = PICK(&random, kinds);
    if (kind == FAULT_DAMAGE_CUT)
        keep_another(&scenario->spec.checkpoint);
    for (uint64_t left = between(&random, 1, 3); left > 0 && scenario->fault_count < SIM_FAULTS_MAX;
         left--)
        scenario->faults[scenario->fault_count++] =
            (struct fault){kind, rand_below(&random, scenario->calm_us)};
}

/* In a third of the seeds that may have audits; chosen apart from the rest. */
static void choose_audits(struct scenario *scenario)
{
    static const double shares[] = {0.05, 0.3, 0.3, 1};
    struct rand_state random = {scenario->seed + 0x61756469};
    if (scenario->spec.consistency.kind != SPEC_ASYNC && chance(&random, 33))
        scenario->spec.train.audit = PICK(&random, shares);
    scenario->spec.train.audit_rewind = scenario->spec.train.audit > 0 && chance(&random, 50);
}

/* In a fifth of the seeds that may; likewise. */
static void choose_residency(struct scenario *scenario)
{
    struct rand_state random = {scenario->seed + 0x73747265};
    enum spec_consistency_kind kind = scenario->spec.consistency.kind;
    if (kind != SPEC_ASYNC && kind != SPEC_LOCAL && chance(&random, 20))
        scenario->spec.train.residency = (struct spec_residency){
            .weights = SPEC_STREAMED, .prefetch = (uint32_t)rand_below(&random, 2)};
}

/* Several members to a place: in some meshes, and some runs without stages; likewise. Nobody is
 * audited there. */
static void choose_ranks(struct scenario *scenario)
{
    static const uint32_t ranks[] = {1, 1, 1, 2, 2, 4};
    struct rand_state random = {scenario->seed + 0x72616e6b};
    enum spec_consistency_kind kind = scenario->spec.consistency.kind;
    struct spec_mesh *mesh = &scenario->spec.mesh;
    if (kind == SPEC_ASYNC || kind == SPEC_LOCAL || scenario->executor ||
        (mesh->stages <= 1 && !chance(&random, 10)))
        return;
    if (mesh->stages <= 1)
        *mesh = (struct spec_mesh){.stages = 1, .schedule = SCHEDULE_1F1B, .runs = 1};
    mesh->ranks = PICK(&random, ranks);
    if (mesh->stages * mesh->ranks >= SIM_WORKERS_MAX)
        mesh->ranks = 2;
    if (mesh->ranks == 1)
        return;
    scenario->spec.model.pieces = mesh->ranks;
    scenario->spec.train.audit = 0;
    scenario->spec.train.audit_rewind = false;
    uint32_t workers = mesh->stages * mesh->ranks + (uint32_t)rand_below(&random, 4);
    if (scenario->workers < workers)
        scenario->workers = workers < SIM_WORKERS_MAX ? workers : SIM_WORKERS_MAX;
}

/* One worker is too small for one stage, in some of the seeds that have stages. */
static void choose_small(struct scenario *scenario)
{
    struct rand_state random = {scenario->seed + 0x736d616c};
    const struct spec_mesh *mesh = &scenario->spec.mesh;
    if (mesh->stages <= 1 || !chance(&random, 10))
        return;
    scenario->small_worker = 1 + (uint32_t)rand_below(&random, scenario->workers);
    scenario->small_stage = (uint32_t)rand_below(&random, mesh->stages);
}

/* Whether the coordinator would make leases of that mesh. */
static bool has_mesh(const struct scenario *scenario)
{
    struct reason reason = {.text = ""};
    struct control_mesh mesh;
    struct model model;
    scenario_model(scenario, &model);
    bool fits = scenario->spec.mesh.stages * scenario->spec.mesh.runs <= model.units_count &&
                control_mesh_new(&scenario->spec, &model, &mesh, &reason) == ERR_OK;
    if (fits)
        control_mesh_release(&mesh);
    model_release(&model);
    return fits;
}

/* Leases that several workers share, in a third of the seeds that may; likewise. */
static void choose_mesh(struct scenario *scenario)
{
    static const enum fault_kind kinds[] = {FAULT_BREAK_PEER, FAULT_BREAK_PEER, FAULT_KILL_WORKER,
                                            FAULT_PARTITION_PAIR, FAULT_ADD_WORKER};
    struct rand_state random = {scenario->seed + 0x6d657368};
    enum spec_consistency_kind kind = scenario->spec.consistency.kind;
    struct spec_mesh *mesh = &scenario->spec.mesh;
    if (kind == SPEC_ASYNC || kind == SPEC_LOCAL || scenario->executor || !chance(&random, 33))
        return;
    if (kind == SPEC_SYNC && chance(&random, 33)) { /* S9 */
        scenario->spec.consistency.kind = SPEC_DELAY;
        scenario->spec.consistency.delay = (uint32_t)between(&random, 1, SIM_DELAY_MAX);
    }
    mesh->stages = (uint32_t)between(&random, 2, SIM_STAGES_MAX);
    mesh->schedule = (enum schedule_kind)rand_below(&random, SCHEDULE_COUNT);
    mesh->runs = mesh->schedule == SCHEDULE_INTERLEAVED ? (uint32_t)between(&random, 1, 3) : 1;
    if (!has_mesh(scenario))
        *mesh = (struct spec_mesh){.stages = 2, .schedule = SCHEDULE_1F1B, .runs = 1};
    uint32_t workers = mesh->stages + (uint32_t)rand_below(&random, 5);
    if (scenario->workers < workers)
        scenario->workers = workers;
    uint64_t left = scenario->fault_count == 0 ? 0 : rand_below(&random, 6);
    for (; left > 0 && scenario->fault_count < SIM_FAULTS_MAX; left--)
        scenario->faults[scenario->fault_count++] =
            (struct fault){PICK(&random, kinds), rand_below(&random, scenario->calm_us)};
}

static const uint32_t state_share[STATE_COUNT] = {
    [STATE_ABSENT] = 1, [STATE_UNADOPTED] = 6, [STATE_TWO] = 2,    [STATE_GATHER] = 2,
    [STATE_REWIND] = 4, [STATE_LOST] = 3,      [STATE_DRAIN] = 5,  [STATE_LEAVE] = 3,
    [STATE_MOVE] = 5,   [STATE_SEAL] = 2,      [STATE_COMMIT] = 3, [STATE_CUT] = 4,
    [STATE_FULL] = 1,   [STATE_STOP] = 2,      [STATE_LAST] = 2,
};

static const uint32_t event_share[MEETING_COUNT] = {
    [MEETING_DRAIN] = 10, [MEETING_ADD] = 6,         [MEETING_GIVE_UP] = 8,
    [MEETING_CUT] = 4,    [MEETING_STOP] = 1,        [MEETING_CRASH] = 6,
    [MEETING_LINK] = 4,   [MEETING_COORDINATOR] = 8, [MEETING_SUCCESSOR] = 4,
};

/* In half of the seeds. */
static void choose_meetings(struct scenario *scenario, struct rand_state *random)
{
    scenario->meeting_count =
        chance(random, 50) ? (uint32_t)between(random, 1, SIM_MEETINGS_MAX) : 0;
    for (uint32_t i = 0; i < scenario->meeting_count; i++) {
        scenario->meetings[i].state = (enum state)choose_share(random, state_share, STATE_COUNT);
        scenario->meetings[i].event =
            (enum meeting_event)choose_share(random, event_share, MEETING_COUNT);
        /* One after another, or several at once; first a server may come, and own what the newest
         * cut has not seen with it. */
        uint64_t before = i > 0 ? scenario->meetings[i - 1].version : 0;
        scenario->meetings[i].version = before + rand_below(random, 3);
        if (i == 0 && scenario->meeting_count > 1 && chance(random, 40))
            scenario->meetings[i].state = STATE_MOVE;
    }
}

/* Of a machine that dies in such a moment its directory is lost as well, in some seeds; of the
 * coordinator's there is a backup. */
static void choose_lost_directories(struct scenario *scenario)
{
    struct rand_state random = {scenario->seed + 0x646972};
    for (uint32_t i = 0; i < scenario->meeting_count; i++) {
        enum meeting_event *event = &scenario->meetings[i].event;
        bool lost = chance(&random, 40);
        if (lost && *event == MEETING_CRASH)
            *event = MEETING_LOSE_DIR;
        else if (lost && *event == MEETING_COORDINATOR)
            *event = MEETING_OLD_STORE;
    }
}

/* The same oddities in such a moment, also chosen apart. */
static void choose_odd_meetings(struct scenario *scenario)
{
    static const enum meeting_event events[] = {MEETING_DAMAGE, MEETING_DAMAGE, MEETING_NAME};
    struct rand_state random = {scenario->seed + 0x6d656574};
    for (uint32_t i = 0; i < scenario->meeting_count; i++) {
        if (!chance(&random, 15))
            continue;
        scenario->meetings[i].event = PICK(&random, events);
        if (scenario->meetings[i].event == MEETING_DAMAGE)
            keep_another(&scenario->spec.checkpoint);
    }
}

/* A disk that is full at any one write, and has room again at once: in a fifth of the seeds that
 * have faults; likewise. */
static void choose_full_writes(struct scenario *scenario)
{
    struct rand_state random = {scenario->seed + 0x66756c6c};
    if (scenario->fault_count == 0 || !chance(&random, 20))
        return;
    for (uint64_t left = between(&random, 1, 6); left > 0 && scenario->fault_count < SIM_FAULTS_MAX;
         left--)
        scenario->faults[scenario->fault_count++] =
            (struct fault){FAULT_FULL_WRITE, rand_below(&random, scenario->calm_us)};
}

void scenario_init(struct scenario *scenario, uint64_t seed)
{
    struct rand_state random = {seed};
    *scenario =
        (struct scenario){.seed = seed, .executor = seed % 16 == 0, .headless = seed % 8 == 3};
    scenario->moving = chance(&random, 30) && !scenario->headless;
    choose_meetings(scenario, &random);
    choose_train(scenario, &random);
    choose_optimizer(scenario, &random);
    choose_consistency(scenario, &random);
    choose_model(scenario, &random);
    choose_cluster(scenario, &random);
    choose_network(scenario, &random);
    choose_faults(scenario, &random);
    choose_losses(scenario);
    choose_oddities(scenario);
    choose_lost_directories(scenario);
    choose_odd_meetings(scenario);
    choose_audits(scenario);
    choose_residency(scenario);
    choose_mesh(scenario);
    choose_ranks(scenario);
    choose_small(scenario);
    choose_full_writes(scenario);
}

/* ---- the toy model ---- */

static void toy_parameter(struct model *model, const struct model_parameter *what,
                          uint32_t chunk_rows)
{
    struct model_parameter *parameter = &model->parameters[model->parameters_count];
    *parameter = *what;
    parameter->shape[0] = what->rows;
    parameter->shape[1] = what->cols;
    parameter->dims = what->cols > 1 ? 2 : 1;
    parameter->decay = what->cols > 1;
    parameter->weights = (uint64_t)what->rows * what->cols;
    parameter->initial_std = 0.5F;
    parameter->chunk_first = model->chunks_count;
    parameter->col_cuts = 1;
    for (uint32_t row = 0; row < what->rows; row += chunk_rows) {
        uint32_t rows = what->rows - row < chunk_rows ? what->rows - row : chunk_rows;
        model->chunks[model->chunks_count++] =
            (struct model_chunk){.parameter = model->parameters_count,
                                 .row = row,
                                 .rows = rows,
                                 .cols = what->cols,
                                 .weights = rows * what->cols};
        parameter->row_cuts++;
    }
    parameter->chunks_count = parameter->row_cuts;
    model->parameters_count++;
}

static void toy_unit(struct model *model, const char *name, const struct model_use *uses,
                     uint32_t uses_count)
{
    struct model_unit *unit = &model->units[model->units_count++];
    *unit = (struct model_unit){.use_first = model->uses_count, .uses_count = uses_count};
    snprintf(unit->name, sizeof unit->name, "%s", name);
    for (uint32_t i = 0; i < uses_count; i++)
        model->uses[model->uses_count++] = uses[i];
}

static void toy_model(struct model *model)
{
    *model = (struct model){.sample_tokens = 1};
    model->parameters = calloc(6, sizeof *model->parameters);
    model->units = calloc(3, sizeof *model->units);
    model->uses = calloc(7, sizeof *model->uses);
    model->chunks = calloc(10, sizeof *model->chunks);
    check(model->parameters && model->units && model->uses && model->chunks);
    const struct model_parameter parameters[] = {
        {.name = "tied",
         .rows = 6,
         .cols = 4,
         .parts = 2,
         .part_units = {0, 2},
         .initial = MODEL_NORMAL},
        {.name = "h.weight",
         .rows = 5,
         .cols = 3,
         .parts = 1,
         .part_units = {1},
         .initial = MODEL_NORMAL},
        {.name = "h.bias", .rows = 5, .cols = 1, .parts = 1, .part_units = {1}},
        {.name = "h.mean",
         .rows = 3,
         .cols = 1,
         .parts = 1,
         .part_units = {1},
         .rule = MODEL_MEAN,
         .initial = MODEL_ONES},
        {.name = "head.bias", .rows = 4, .cols = 1, .parts = 1, .part_units = {2}},
        {.name = "loss",
         .rows = MODEL_LOSS_WEIGHTS,
         .cols = 1,
         .parts = 1,
         .part_units = {2},
         .rule = MODEL_NONE},
    };
    const uint32_t chunk_rows[] = {3, 2, 5, 3, 4, 4};
    for (uint32_t i = 0; i < 6; i++)
        toy_parameter(model, &parameters[i], chunk_rows[i]);
    model->loss_parameter = 5;
    toy_unit(model, "embedding", (const struct model_use[]){{0, 0}}, 1);
    toy_unit(model, "h", (const struct model_use[]){{1, 0}, {2, 0}, {3, 0}}, 3);
    toy_unit(model, "head", (const struct model_use[]){{0, 1}, {4, 0}, {5, 0}}, 3);
    model_check(model);
}

/* Of made-up numbers the pieces need not be those of a kind of model: what has as many rows. */
static void cut_in_pieces(struct model *model, uint32_t ranks)
{
    model->settings.pieces = ranks;
    model->ranks = 1;
    for (uint32_t i = 0; i < model->parameters_count; i++) {
        struct model_parameter *parameter = &model->parameters[i];
        bool cut = ranks > 1 && i != model->loss_parameter && parameter->rows % ranks == 0;
        parameter->pieces = cut ? ranks : 1;
        if (!cut)
            continue;
        parameter->split = MODEL_SPLIT_ROWS;
        parameter->split_groups = 1;
        parameter->split_joined = 0;
    }
}

void scenario_model(const struct scenario *scenario, struct model *ret_model)
{
    struct reason reason = {.text = ""};
    struct spec_model settings = scenario->spec.model;
    settings.pieces = 0;
    if (scenario->model == SCENARIO_TOY)
        toy_model(ret_model);
    else
        check(model_init(ret_model, &settings, &reason) == ERR_OK);
    cut_in_pieces(ret_model, spec_mesh_ranks(&scenario->spec.mesh));
}

/* ---- what the cores are told ---- */

struct coordinator_run scenario_run(const struct scenario *scenario, const struct model *model,
                                    struct map_parameter *ret_parameters)
{
    const struct spec *spec = &scenario->spec;
    for (uint32_t i = 0; i < model->parameters_count; i++) {
        const struct model_parameter *parameter = &model->parameters[i];
        ret_parameters[i] = (struct map_parameter){
            .chunk_first = parameter->chunk_first,
            .chunk_count = parameter->chunks_count,
            .chunk_bytes = model->chunks[parameter->chunk_first].weights * sizeof(float),
            .bytes = parameter->weights * sizeof(float),
        };
    }
    return (struct coordinator_run){
        .run = 1,
        .steps = spec->train.steps,
        .servers_min = scenario->servers,
        .slots = spec->train.slots,
        .slot_samples = spec->train.slot_samples,
        .async = spec->consistency.kind == SPEC_ASYNC,
        .window = spec->consistency.window,
        .ssp = spec->consistency.kind == SPEC_SSP,
        .delay = spec_staleness(spec),
        .audit = spec->train.audit,
        .audit_rewind = spec->train.audit_rewind,
        .node_slots = spec->train.node_slots,
        .data_served = true,
        .validate_every = spec->train.validate_every,
        .validation_samples = scenario->validation_samples,
        .cut_every = (uint32_t)spec->checkpoint.every_steps,
        .seal = seal_settings_of_spec(spec),
        .parameter_count = model->parameters_count,
        .parameters = ret_parameters,
        .parameter_bytes_max = scenario->parameter_bytes_max,
        .spec = "",
        .checkpoint_dir = "",
        .restore = "",
    };
}

struct shard_config scenario_shard(const struct scenario *scenario)
{
    struct shard_config config = prepare_config(&scenario->spec);
    config.ahead_max = scenario->ahead_max;
    config.parked_member_bytes_max = scenario->parked_member_bytes_max;
    config.snapshot_copies = scenario->snapshot_copies;
    return config;
}

bool scenario_is_foretold(const struct scenario *scenario)
{
    enum spec_consistency_kind kind = scenario->spec.consistency.kind;
    return kind != SPEC_ASYNC && (kind != SPEC_SSP || spec_staleness(&scenario->spec) == 0);
}

bool scenario_bad(const struct scenario *scenario, uint64_t step, uint32_t *ret_slot)
{
    struct rand_state random = {scenario->seed * 1000 + step};
    bool bad = chance(&random, scenario->bad_percent);
    *ret_slot = (uint32_t)rand_below(&random, scenario->spec.train.slots);
    return bad;
}

void scenario_print(const struct scenario *scenario)
{
    static const char *const models[] = {"toy", "mlp", "deep mlp", "gpt"};
    static const char *const consistencies[] = {[SPEC_SYNC] = "sync",
                                                [SPEC_DELAY] = "delay",
                                                [SPEC_SSP] = "ssp",
                                                [SPEC_ASYNC] = "async",
                                                [SPEC_LOCAL] = "local"};
    static const char *const precisions[] = {[SPEC_FP32] = "fp32", [SPEC_BF16] = "bf16"};
    static const char *const optimizers[] = {
        [SPEC_SGD] = "sgd", [SPEC_MOMENTUM] = "momentum", [SPEC_ADAMW] = "adamw"};
    const struct spec_train *train = &scenario->spec.train;
    printf(
        "seed %llu: %s %s, %s %u, %s, %llu steps of %u slots, node_slots %u, %s, clip %g, "
        "validation %llu, bad %u %%, audit %g%s; %u servers of %u threads, %u workers, ahead_max "
        "%u, lease "
        "%u ms, "
        "speculation %u %%; delay %llu us, late %u/1000 up to %llu us, lost %u/1000, "
        "repeated %u/1000; %u faults before %.3f s; %u stages of %u, %s, %u runs\n",
        (unsigned long long)scenario->seed, models[scenario->model],
        scenario->executor ? "computed" : "made up", consistencies[scenario->spec.consistency.kind],
        spec_staleness(&scenario->spec), precisions[train->precision],
        (unsigned long long)train->steps, train->slots, train->node_slots,
        optimizers[scenario->spec.optimizer.kind], scenario->spec.optimizer.clip_norm,
        (unsigned long long)scenario->validation_samples, scenario->bad_percent, train->audit,
        train->residency.weights == SPEC_STREAMED ? ", streamed" : "", scenario->servers,
        scenario->threads, scenario->workers, scenario->ahead_max, scenario->office.lease_ms,
        scenario->office.speculation_percent, (unsigned long long)scenario->delay_us,
        scenario->late_permille, (unsigned long long)scenario->late_us_max, scenario->lost_permille,
        scenario->repeat_permille, scenario->fault_count, (double)scenario->calm_us / 1e6,
        scenario->spec.mesh.stages, spec_mesh_ranks(&scenario->spec.mesh),
        schedule_name(scenario->spec.mesh.schedule), scenario->spec.mesh.runs);
}
