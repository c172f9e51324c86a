#include "tests/sim/history.h"

#include "common/digest.h"
#include "common/files/checkpoint.h"
#include "common/scoped.h"
#include "server/shard/prepare.h"
#include "tests/sim/sim.h"

#include <string.h>

enum { TICKETS_MAX = SIM_STEPS_MAX * SIM_SLOTS_MAX };

struct moment {
    struct moment *before; /* NULL: the run began with it */
    struct moment *older;  /* of all of the chunk's */
    uint64_t version;
    uint64_t ticket;    /* that it took last */
    uint64_t published; /* digest of what workers get */
    float *seen;        /* … as they see it */
    uint8_t *state;     /* as in a cut */
};

struct history_chunk {
    struct shard_chunk spec;
    struct shard *shard; /* it stands at `now` */
    struct moment *now, *newest;
    bool acked[TICKETS_MAX];
    uint64_t served;     /* the highest version */
    uint64_t generation; /* that it began in last */
};

struct history_attempt {
    uint64_t number;
    uint64_t ticket;
    bool computed;
    bool is_late; /* given by a thread that is */
    float scale;
    float *gradients;             /* as the wire leaves them */
    const struct moment **pulled; /* by chunk */
};

static struct shard_config shard_config(const struct sim *sim, const struct history_chunk *chunk)
{
    struct shard_config config = scenario_shard(&sim->scenario);
    config.kernels = sim->options.kernels;
    config.generation = config.boot = config.term = 1;
    config.async.logged = false;
    config.chunks = &chunk->spec;
    config.chunk_count = 1;
    return config;
}

static size_t arrays_bytes(const struct sim *sim, const struct history_chunk *chunk)
{
    uint32_t states = optimizer_states(spec_server_optimizer(&sim->scenario.spec).kind);
    return (size_t)(1 + states) * chunk->spec.n * sizeof(float);
}

static size_t state_bytes(const struct sim *sim, const struct history_chunk *chunk)
{
    return arrays_bytes(sim, chunk) + shard_extra_bytes(chunk->shard);
}

/* What a cut would have of the shard's chunk. */
static uint8_t *copy_state(const struct sim *sim, const struct history_chunk *chunk,
                           const struct shard *shard, uint32_t index)
{
    struct shard_state state = shard_state(shard, index);
    size_t bytes = chunk->spec.n * sizeof(float), arrays = arrays_bytes(sim, chunk);
    uint8_t *copy = malloc(state_bytes(sim, chunk));
    check(copy != NULL);
    memcpy(copy, state.weights, bytes);
    for (size_t at = bytes; at < arrays; at += bytes)
        memcpy(copy + at, state.state[at / bytes - 1], bytes);
    shard_store_extra(shard, index, copy + arrays);
    return copy;
}

/* What workers get now, and see. */
static void publish(struct sim *sim, struct history_chunk *chunk, struct moment *moment)
{
    const struct model *model = &sim->compute.model;
    struct shard_effects *effects = &sim->history.effects;
    const struct pull pull = {
        .generation = 1, .newest = true, .chunk_count = 1, .chunks = &chunk->spec.chunk};
    effects->count = 0;
    shard_pull(chunk->shard, (struct pull_sender){1, 1}, &pull, effects);
    check(effects->count == 1 && effects->items[0].kind == SHARD_WEIGHTS);
    struct counted *copy = effects->items[0].weights.copies[0];
    moment->published = digest_fast64((struct slice){copy->data, copy->bytes});
    if (model->chunks[chunk->spec.chunk].parameter != model->loss_parameter) {
        compute_decode(&sim->compute, chunk->spec.chunk, copy->data, sim->history.weights);
        memcpy(moment->seen, sim->history.weights + sim->compute.weights_first[chunk->spec.chunk],
               chunk->spec.n * sizeof *moment->seen);
    }
    counted_unref(copy);
}

/* The chunk stands where its shard does. */
static void note_moment(struct sim *sim, struct history_chunk *chunk, uint64_t ticket)
{
    struct moment *moment = calloc(1, sizeof *moment);
    check(moment != NULL);
    moment->before = chunk->now;
    moment->older = chunk->newest;
    moment->version = chunk->now != NULL ? chunk->now->version + 1 : 0;
    moment->ticket = ticket;
    moment->seen = calloc(chunk->spec.n, sizeof *moment->seen);
    check(moment->seen != NULL);
    moment->state = copy_state(sim, chunk, chunk->shard, 0);
    publish(sim, chunk, moment);
    chunk->now = chunk->newest = moment;
}

void history_init(struct sim *sim)
{
    const struct model *model = &sim->compute.model;
    struct history *history = &sim->history;
    if (sim->scenario.spec.consistency.kind != SPEC_ASYNC)
        return;
    history->chunks = calloc(model->chunks_count, sizeof *history->chunks);
    history->weights = calloc(compute_weights_count(&sim->compute), sizeof(float));
    check(history->chunks && history->weights);
    for (uint32_t c = 0; c < model->chunks_count; c++) {
        struct history_chunk *chunk = &history->chunks[c];
        chunk->spec = prepare_chunk(model, c);
        const struct shard_config config = shard_config(sim, chunk);
        check(shard_new(&config, &chunk->shard) == ERR_OK);
        prepare_initial(chunk->shard, model, sim->scenario.spec.train.seed, &chunk->spec, 1);
        check(shard_start(chunk->shard) == ERR_OK);
        note_moment(sim, chunk, 0);
    }
}

void history_release(struct sim *sim)
{
    struct history *history = &sim->history;
    for (uint32_t c = 0; history->chunks != NULL && c < sim->compute.model.chunks_count; c++) {
        struct history_chunk *chunk = &history->chunks[c];
        shard_free(chunk->shard);
        while (chunk->newest != NULL) {
            struct moment *moment = chunk->newest;
            chunk->newest = moment->older;
            free(moment->seen);
            free(moment->state);
            free(moment);
        }
    }
    for (size_t i = 0; i < history->attempt_count; i++) {
        free(history->attempts[i].gradients);
        free(history->attempts[i].pulled);
    }
    free(history->attempts);
    free(history->chunks);
    free(history->weights);
}

/* On the way to where the chunk stands; NULL: none. */
static const struct moment *moment_at(const struct history_chunk *chunk, uint64_t version)
{
    const struct moment *moment = chunk->now;
    while (moment != NULL && moment->version > version)
        moment = moment->before;
    return moment != NULL && moment->version == version ? moment : NULL;
}

/* The chunk's moment with exactly these weights and that behind them, rather one on its way; NULL:
 * none. */
static struct moment *moment_of(const struct sim *sim, const struct history_chunk *chunk,
                                const void *weights, const void *rest)
{
    size_t first = chunk->spec.n * sizeof(float), behind = state_bytes(sim, chunk) - first;
    for (struct moment *moment = chunk->now; moment != NULL; moment = moment->before)
        if (memcmp(moment->state, weights, first) == 0 &&
            memcmp(moment->state + first, rest, behind) == 0)
            return moment;
    for (struct moment *moment = chunk->newest; moment != NULL; moment = moment->older)
        if (memcmp(moment->state, weights, first) == 0 &&
            memcmp(moment->state + first, rest, behind) == 0)
            return moment;
    return NULL;
}

static bool is_logged(const struct sim *sim)
{
    return sim->scenario.spec.checkpoint.durability == SPEC_DURABILITY_LOGGED;
}

/* ---- what chunks begin with ---- */

static void stand_at(struct sim *sim, struct history_chunk *chunk, struct moment *moment)
{
    const struct shard_config config = shard_config(sim, chunk);
    uint8_t *extra = moment->state + arrays_bytes(sim, chunk);
    size_t bytes = chunk->spec.n * sizeof(float);
    if (chunk->now == moment)
        return;
    shard_free(chunk->shard);
    check(shard_new(&config, &chunk->shard) == ERR_OK);
    struct shard_state state = shard_state(chunk->shard, 0);
    memcpy(state.weights, moment->state, bytes);
    for (size_t at = bytes; moment->state + at < extra; at += bytes)
        memcpy(state.state[at / bytes - 1], moment->state + at, bytes);
    check(shard_load_extra(chunk->shard, 0, extra) == ERR_OK);
    check(shard_start(chunk->shard) == ERR_OK);
    chunk->now = moment;
}

/* P12 */
static void check_nothing_lost(struct sim *sim, const struct history_chunk *chunk,
                               const struct moment *begin)
{
    bool taken[TICKETS_MAX] = {0};
    for (const struct moment *moment = begin; moment->before != NULL; moment = moment->before)
        taken[moment->ticket] = true;
    for (uint64_t ticket = 0; ticket < TICKETS_MAX; ticket++)
        if (chunk->acked[ticket] && !taken[ticket])
            sim_violated(sim, 16, "chunk %u begins without ticket %llu, which was acknowledged",
                         chunk->spec.chunk, (unsigned long long)ticket);
    if (begin->version < chunk->served || moment_at(chunk, begin->version) != begin)
        sim_violated(sim, 16, "chunk %u begins with version %llu, %llu was served",
                     chunk->spec.chunk, (unsigned long long)begin->version,
                     (unsigned long long)chunk->served);
}

/* What it begins with has tickets, and not their losses. */
static void note_unknown(struct sim *sim, const struct moment *moment)
{
    for (; moment->before != NULL; moment = moment->before) {
        uint64_t end = moment->ticket / sim->scenario.spec.train.slots + 1;
        if (end > sim->history.unknown)
            sim->history.unknown = end;
    }
}

static void begin(struct sim *sim, struct sim_thread *thread, const struct shard_order_entry *entry)
{
    struct history_chunk *chunk = &sim->history.chunks[entry->chunk];
    uint32_t index = 0;
    while (thread->chunks[index].chunk != entry->chunk)
        index++;
    uint8_t *state = copy_state(sim, chunk, thread->shard, index);
    struct moment *moment = moment_of(sim, chunk, state, state + chunk->spec.n * sizeof(float));
    free(state);
    if (moment == NULL || moment->version != entry->version)
        sim_violated(sim, 16, "s%u begins chunk %u with a version %llu that it never had",
                     thread->index, entry->chunk, (unsigned long long)entry->version);
    if (chunk->spec.loss)
        note_unknown(sim, moment);
    thread->is_late = shard_generation(thread->shard) < chunk->generation;
    if (thread->is_late)
        return;
    chunk->generation = shard_generation(thread->shard);
    if (is_logged(sim))
        check_nothing_lost(sim, chunk, moment);
    else
        memset(chunk->acked, 0, sizeof chunk->acked);
    stand_at(sim, chunk, moment);
    chunk->served = moment->version;
}

/* ---- attempts ---- */

static struct history_attempt *find_attempt(struct history *history, uint64_t number)
{
    for (size_t i = history->attempt_count; i-- > 0;)
        if (history->attempts[i].number == number)
            return &history->attempts[i];
    return NULL;
}

static struct history_attempt *add_attempt(struct sim *sim, uint64_t number)
{
    struct history *history = &sim->history;
    if (history->attempt_count == history->attempt_capacity) {
        history->attempt_capacity = 2 * history->attempt_capacity + 64;
        history->attempts =
            realloc(history->attempts, history->attempt_capacity * sizeof *history->attempts);
        check(history->attempts != NULL);
    }
    struct history_attempt *attempt = &history->attempts[history->attempt_count++];
    *attempt = (struct history_attempt){.number = number};
    attempt->pulled = calloc(sim->compute.model.chunks_count, sizeof *attempt->pulled);
    check(attempt->pulled != NULL);
    return attempt;
}

static struct history_attempt *attempt_of(struct sim *sim, uint64_t number)
{
    struct history_attempt *attempt = find_attempt(&sim->history, number);
    return attempt != NULL ? attempt : add_attempt(sim, number);
}

static void pulled(struct sim *sim, uint64_t number, const struct shard_order_entry *entry)
{
    struct history_attempt *attempt = attempt_of(sim, number);
    if (attempt->pulled[entry->chunk] != NULL)
        sim_violated(sim, 16, "attempt %llu is given chunk %u twice", (unsigned long long)number,
                     entry->chunk);
    attempt->pulled[entry->chunk] = moment_at(&sim->history.chunks[entry->chunk], entry->version);
    check(attempt->pulled[entry->chunk] != NULL);
}

/* From what it was given. */
static void compute_again(struct sim *sim, struct history_attempt *attempt, uint64_t ticket)
{
    struct compute *compute = &sim->compute;
    const struct model *model = &compute->model;
    uint32_t slots = sim->scenario.spec.train.slots;
    uint32_t count = compute_gradients_count(compute);
    for (uint32_t c = 0; c < model->chunks_count; c++) {
        if (model->chunks[c].parameter == model->loss_parameter)
            continue;
        if (attempt->pulled[c] == NULL)
            sim_violated(sim, 16,
                         "attempt %llu is taken, but nobody logged what it had of chunk %u",
                         (unsigned long long)attempt->number, c);
        memcpy(sim->history.weights + compute->weights_first[c], attempt->pulled[c]->seen,
               model->chunks[c].weights * sizeof(float));
    }
    attempt->gradients = calloc(count, sizeof *attempt->gradients);
    check(attempt->gradients != NULL);
    compute_train(compute, ticket / slots, (struct node){0, (uint32_t)(ticket % slots)},
                  sim->history.weights, attempt->gradients);
    attempt->scale = compute_whole(compute, attempt->gradients);
    attempt->ticket = ticket;
    attempt->computed = true;
}

/* ---- what chunks take ---- */

static void check_used(struct sim *sim, const struct history_chunk *chunk,
                       const struct history_attempt *attempt, const struct shard_order_entry *entry)
{
    const struct moment *used = attempt->pulled[entry->chunk];
    if (chunk->spec.loss)
        return;
    if (used->version != entry->used || moment_at(chunk, entry->used) != used)
        sim_violated(sim, 16,
                     "chunk %u takes a gradient of version %llu, which it never had on its way",
                     entry->chunk, (unsigned long long)entry->used);
    if (entry->version - entry->used > sim->scenario.spec.consistency.staleness_max)
        sim_violated(sim, 16, "chunk %u takes a gradient of version %llu at version %llu",
                     entry->chunk, (unsigned long long)entry->used,
                     (unsigned long long)entry->version);
}

/* Into the chunk's own shard. */
static enum err push_again(struct sim *sim, struct history_chunk *chunk,
                           const struct history_attempt *attempt)
{
    const struct compute *compute = &sim->compute;
    uint32_t slots = sim->scenario.spec.train.slots;
    uint8_t bytes[SIM_CHUNK_WEIGHTS_MAX * sizeof(float)];
    struct push_entry entry = {.chunk = chunk->spec.chunk, .version = chunk->now->version};
    check(chunk->spec.n <= SIM_CHUNK_WEIGHTS_MAX);
    entry.bytes = compute_encode(compute, chunk->spec.chunk, 0, compute_codec(compute),
                                 attempt->gradients, bytes);
    const struct push push = {.generation = 1,
                              .step = attempt->ticket / slots,
                              .node = {0, (uint32_t)(attempt->ticket % slots)},
                              .codec = compute_codec(compute),
                              .entry_count = 1,
                              .entries = &entry,
                              .boot = 1,
                              .scale = attempt->scale};
    const struct slice slice = {bytes, entry.bytes};
    sim->history.effects.count = 0;
    struct shard_ack ack =
        shard_push(chunk->shard, 1, &push, (struct cursor){&slice, 1, 0, 0}, &sim->history.effects);
    bool taken = sim->history.effects.count > 0; /* else it had it */
    return ack.code == ERR_OK && !taken ? ERR_EXISTS : ack.code;
}

static void take(struct sim *sim, const struct shard_order *order,
                 const struct shard_order_entry *entry)
{
    struct history_chunk *chunk = &sim->history.chunks[entry->chunk];
    struct history_attempt *attempt = find_attempt(&sim->history, order->attempt);
    if (attempt == NULL || entry->version != chunk->now->version)
        sim_violated(sim, 16, "chunk %u at version %llu takes ticket %llu at version %llu",
                     entry->chunk, (unsigned long long)chunk->now->version,
                     (unsigned long long)order->ticket, (unsigned long long)entry->version);
    if (!attempt->computed)
        compute_again(sim, attempt, order->ticket);
    check_used(sim, chunk, attempt, entry);
    if (attempt->ticket != order->ticket ||
        memcmp(&attempt->scale, &order->scale, sizeof order->scale) != 0)
        sim_violated(sim, 16, "attempt %llu is taken as ticket %llu scaled by %g, not %g",
                     (unsigned long long)order->attempt, (unsigned long long)order->ticket,
                     (double)order->scale, (double)attempt->scale);
    if (push_again(sim, chunk, attempt) != ERR_OK)
        sim_violated(sim, 16, "chunk %u takes ticket %llu, which it has", entry->chunk,
                     (unsigned long long)order->ticket);
    note_moment(sim, chunk, order->ticket);
}

/* An attempt that a late thread served is of a generation that is over. So is every thread that
 * serves it, also one whose chunks have not begun in the next generation yet. */
static void spread_lateness(struct sim *sim, struct sim_thread *thread, uint64_t number)
{
    struct history_attempt *attempt =
        thread->is_late ? attempt_of(sim, number) : find_attempt(&sim->history, number);
    if (attempt != NULL && attempt->is_late != thread->is_late)
        attempt->is_late = thread->is_late = true;
}

void history_order(struct sim *sim, struct sim_thread *thread, const struct shard_order *order)
{
    if (order->kind != SHARD_ORDER_BEGIN)
        spread_lateness(sim, thread, order->attempt);
    for (uint32_t i = 0; i < order->count; i++) {
        const struct shard_order_entry *entry = &order->entries[i];
        if (order->kind == SHARD_ORDER_BEGIN)
            begin(sim, thread, entry);
        else if (thread->is_late)
            continue;
        else if (order->kind == SHARD_ORDER_PULL)
            pulled(sim, order->attempt, entry);
        else
            take(sim, order, entry);
    }
}

/* ---- what is seen of them ---- */

void history_published(struct sim *sim, const struct sim_thread *thread,
                       const struct weights *header, struct counted *const *copies)
{
    for (uint32_t i = 0; !thread->is_late && i < header->chunk_count; i++) {
        struct history_chunk *chunk = &sim->history.chunks[header->chunks[i]];
        const struct moment *moment = moment_at(chunk, header->versions[i]);
        uint64_t digest = digest_fast64((struct slice){copies[i]->data, copies[i]->bytes});
        if (moment == NULL || moment->published != digest)
            sim_violated(sim, 2, "chunk %u is served as version %llu, which it is not",
                         header->chunks[i], (unsigned long long)header->versions[i]);
        if (moment->version > chunk->served)
            chunk->served = moment->version;
    }
}

void history_snapshot(struct sim *sim, const struct sim_thread *thread,
                      const struct shard_effect *effect)
{
    if (effect->snapshot.block == NULL || thread->is_late)
        return;
    const struct history_chunk *chunk = &sim->history.chunks[effect->snapshot.chunk];
    if (moment_of(sim, chunk, shard_snapshot_weights(effect), shard_snapshot_rest(effect)) == NULL)
        sim_violated(sim, 16, "chunk %u goes to a cut in a state that it never had",
                     effect->snapshot.chunk);
}

static bool is_late(const struct sim_server *server, uint32_t chunk)
{
    for (uint32_t t = 0; t < server->thread_count; t++)
        for (uint32_t i = 0; i < server->threads[t].chunk_count; i++)
            if (server->threads[t].chunks[i].chunk == chunk)
                return server->threads[t].is_late;
    return false;
}

void history_acked(struct sim *sim, uint32_t server, uint32_t chunk, uint64_t ticket)
{
    check(ticket < TICKETS_MAX);
    if (!is_late(&sim->servers[server], chunk))
        sim->history.chunks[chunk].acked[ticket] = true;
}

void history_computing(struct sim *sim, const struct computing *what)
{
    const struct model *model = &sim->compute.model;
    const struct ticket *ticket = &what->ticket;
    const struct history_attempt *attempt = find_attempt(&sim->history, ticket->attempt);
    if (ticket->kind != TICKET_TRAIN || (attempt != NULL && attempt->is_late))
        return;
    for (uint32_t c = 0; c < model->chunks_count; c++)
        if (model->chunks[c].parameter != model->loss_parameter &&
            (attempt == NULL || attempt->pulled[c] == NULL ||
             attempt->pulled[c]->published != what->held[c]))
            sim_violated(sim, 3,
                         "w%u computes attempt %llu, but its chunk %u is not what is logged",
                         what->worker, (unsigned long long)ticket->attempt, c);
}

void history_over(struct sim *sim, bool all_tickets)
{
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    const struct cut_name cut = sim->ledger.recorded;
    const struct checkpoint_name name = {cut.generation, cut.version};
    check(checkpoint_open(SIM_CHECKPOINTS, name, &checkpoint, NULL) == ERR_OK);
    uint64_t tickets = sim->scenario.spec.train.steps * sim->scenario.spec.train.slots;
    for (uint32_t c = 0; c < sim->compute.model.chunks_count; c++) {
        const struct history_chunk *chunk = &sim->history.chunks[c];
        struct checkpoint_chunk stored;
        bool there = checkpoint_read(checkpoint, c, &stored, NULL) == ERR_OK;
        const struct moment *moment =
            there ? moment_of(sim, chunk, stored.values, stored.values + chunk->spec.n) : NULL;
        if (moment == NULL || (all_tickets && moment->version != tickets))
            sim_violated(sim, 13, "the run ends with chunk %u at version %lld of %llu", c,
                         moment != NULL ? (long long)moment->version : -1LL,
                         (unsigned long long)tickets);
    }
}
