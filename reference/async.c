/* Branches of chunks, attempts, and the two made to meet. */
#include "reference/async.h"

#include "common/file.h"
#include "common/order.h"
#include "common/scoped.h"
#include "common/state_digest.h"
#include "server/prepare.h"
#include "server/shard.h"
#include "worker/whole.h"

#include <inttypes.h>
#include <string.h>

enum { BOOT = 1, TERM = 1, SENDER = 1, PATH_BYTES = 4096 };
#define LOG_BYTES_MAX ((size_t)1 << 34)
#define NONE UINT32_MAX

/* What a chunk took, in its order. */
struct taken {
    uint64_t attempt; /* its number, then (link_attempts()) its place in the list */
    uint64_t ticket;
    uint64_t used;
};

/* A version that somebody pulled, until nobody needs it. */
struct needed {
    uint64_t version;
    uint32_t users;
    struct counted *copy; /* NULL: not there yet */
};

/* A chunk from one beginning on. */
struct branch {
    uint32_t chunk, parent; /* NONE: from the initial values */
    uint64_t begin, generation, boot;
    uint64_t next; /* of the list to be taken; version begin + next */
    size_t taken_count, needed_count;
    struct taken *taken;
    struct needed *needed; /* ascending, once link_pulls() is done */
    struct shard *shard;   /* NULL: not begun */
};

/* What an attempt was given of one chunk. */
struct pulled {
    uint64_t attempt;
    uint32_t branch;
    uint64_t version;
};

struct attempt {
    uint64_t number;
    size_t pulled_first, pulled_count;
    uint32_t takers; /* chunks that have not taken it yet */
    bool computed;
    uint8_t *gradients; /* as they are pushed, chunk after chunk */
    float scale;
};

struct again {
    const struct reference_async *async;
    const struct model *model;
    struct reason *reason;
    struct shard_config config;
    struct shard_chunk *chunks;
    uint32_t chunk_count;
    size_t *offsets; /* of a chunk in attempt->gradients */
    size_t gradients_bytes;
    struct executor *executor;
    struct whole whole;
    struct shard_effects effects;

    size_t branch_count, pulled_count, attempt_count;
    struct branch *branches; /* in the order of their beginnings */
    struct pulled *pulled;
    struct attempt *attempts; /* ascending numbers */
    uint32_t *newest;         /* branch of each chunk while logs are read */

    struct attempt *computing;
    uint32_t *targets; /* branch that each chunk ends in */
    float **ends;      /* weights, then states, of each chunk at its end */
    uint32_t ends_left;
    struct reference_async_result result;
};

/* Room for one more at the end of a list; grows at powers of two. */
static void *grow(void *list, size_t count, size_t item_bytes)
{
    if ((count & (count - 1)) != 0)
        return list;
    return reallocarray(list, count == 0 ? 1 : count * 2, item_bytes);
}

static enum err no_memory(struct again *a)
{
    return reason_set(a->reason, ERR_NOMEM, "no memory to repeat the run");
}

/* ---- reading the logs ---- */

static enum err add_branch(struct again *a, const struct order_chunks *begin, uint32_t chunk,
                           uint64_t version)
{
    struct branch *branches = grow(a->branches, a->branch_count, sizeof *branches);
    if (branches == NULL)
        return no_memory(a);
    a->branches = branches;
    uint32_t parent = NONE;
    for (uint32_t b = 0; b < a->branch_count; b++)
        if (branches[b].chunk == chunk && branches[b].begin <= version &&
            version <= branches[b].begin + branches[b].taken_count)
            parent = b;
    if (parent == NONE && version > 0)
        return reason_set(a->reason, ERR_CORRUPT,
                          "the order logs do not lead to version %" PRIu64 " of chunk %u", version,
                          chunk);
    a->newest[chunk] = (uint32_t)a->branch_count;
    a->result.branches += parent != NONE;
    branches[a->branch_count++] = (struct branch){.chunk = chunk,
                                                  .parent = parent,
                                                  .begin = version,
                                                  .generation = begin->generation,
                                                  .boot = begin->boot};
    return ERR_OK;
}

static enum err add_pulled(struct again *a, uint64_t attempt, const struct order_chunk *chunk)
{
    struct pulled *pulled = grow(a->pulled, a->pulled_count, sizeof *pulled);
    if (pulled == NULL)
        return no_memory(a);
    a->pulled = pulled;
    pulled[a->pulled_count++] = (struct pulled){attempt, a->newest[chunk->chunk], chunk->version};
    return ERR_OK;
}

static enum err add_taken(struct again *a, const struct order_chunks *take,
                          const struct order_chunk *chunk)
{
    struct branch *branch = &a->branches[a->newest[chunk->chunk]];
    if (chunk->version != branch->begin + branch->taken_count)
        return reason_set(a->reason, ERR_CORRUPT,
                          "the order logs miss what chunk %u took at version %" PRIu64,
                          chunk->chunk, branch->begin + branch->taken_count);
    struct taken *taken = grow(branch->taken, branch->taken_count, sizeof *taken);
    if (taken == NULL)
        return no_memory(a);
    branch->taken = taken;
    taken[branch->taken_count++] = (struct taken){take->attempt, take->ticket, chunk->used};
    return ERR_OK;
}

static enum err add_record(struct again *a, const struct order_chunks *record)
{
    for (uint32_t i = 0; i < record->count; i++) {
        const struct order_chunk *chunk = &record->chunks[i];
        if (chunk->chunk >= a->chunk_count ||
            (record->kind != ORDER_BEGIN && a->newest[chunk->chunk] == NONE))
            return reason_set(a->reason, ERR_CORRUPT, "the order logs name chunk %u", chunk->chunk);
        if (record->kind == ORDER_BEGIN)
            TRY(add_branch(a, record, chunk->chunk, chunk->version));
        else if (record->kind == ORDER_PULL)
            TRY(add_pulled(a, record->attempt, chunk));
        else
            TRY(add_taken(a, record, chunk));
    }
    return ERR_OK;
}

static enum err read_log(struct again *a, const char *file)
{
    char path[PATH_BYTES];
    scoped(buf_release) struct buf bytes = {0};
    struct order_chunk chunks[ORDER_CHUNKS_MAX];
    struct order_record record;
    struct order_chunks decoded;
    size_t offset = 0;
    snprintf(path, sizeof path, "%s/%s", a->async->folder, file);
    TRY(file_read(path, LOG_BYTES_MAX, &bytes, a->reason));
    enum err err;
    while ((err = order_next(buf_slice(&bytes), path, &offset, &record, a->reason)) == ERR_OK) {
        if (order_chunks(&record, chunks, &decoded) != ERR_OK)
            return reason_set(a->reason, ERR_CORRUPT, "%s: offset %zu: no record of a server", path,
                              offset);
        TRY(add_record(a, &decoded));
    }
    return err == ERR_NOT_FOUND ? ERR_OK : err;
}

/* Of a server's log: when it began. */
struct log_name {
    uint64_t generation, boot;
    uint32_t server;
    const char *file;
};

static int by_beginning(const void *left, const void *right)
{
    const struct log_name *a = left, *b = right;
    if (a->generation != b->generation)
        return a->generation < b->generation ? -1 : 1;
    if (a->boot != b->boot)
        return a->boot < b->boot ? -1 : 1;
    return (a->server > b->server) - (a->server < b->server);
}

static enum err read_logs(struct again *a)
{
    scoped(file_names_release) struct file_names names = {0};
    TRY(file_list(a->async->folder, &names, a->reason));
    scoped(free_scoped) struct log_name *logs = calloc(names.count + 1, sizeof *logs);
    size_t count = 0;
    if (logs == NULL)
        return no_memory(a);
    for (size_t i = 0; i < names.count; i++) {
        struct log_name *log = &logs[count];
        log->file = names.names[i];
        if (sscanf(log->file, "server-%" SCNu32 "-g%" SCNu64 "-b%" SCNu64 ".log", &log->server,
                   &log->generation, &log->boot) == 3 &&
            log->generation <= a->async->generation)
            count++;
    }
    qsort(logs, count, sizeof *logs, by_beginning);
    for (size_t i = 0; i < count; i++)
        TRY(read_log(a, logs[i].file));
    return ERR_OK;
}

/* ---- who needs what ---- */

static int by_attempt(const void *left, const void *right)
{
    const struct pulled *a = left, *b = right;
    return (a->attempt > b->attempt) - (a->attempt < b->attempt);
}

static struct attempt *attempt_of(const struct again *a, uint64_t number)
{
    size_t low = 0, high = a->attempt_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (a->attempts[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < a->attempt_count && a->attempts[low].number == number ? &a->attempts[low] : NULL;
}

static enum err link_attempts(struct again *a)
{
    if (a->pulled_count > 0)
        qsort(a->pulled, a->pulled_count, sizeof *a->pulled, by_attempt);
    for (size_t i = 0; i < a->pulled_count; i++) {
        if (i > 0 && a->pulled[i].attempt == a->pulled[i - 1].attempt) {
            a->attempts[a->attempt_count - 1].pulled_count++;
            continue;
        }
        struct attempt *attempts = grow(a->attempts, a->attempt_count, sizeof *attempts);
        if (attempts == NULL)
            return no_memory(a);
        a->attempts = attempts;
        attempts[a->attempt_count++] =
            (struct attempt){.number = a->pulled[i].attempt, .pulled_first = i, .pulled_count = 1};
    }
    for (size_t b = 0; b < a->branch_count; b++)
        for (size_t i = 0; i < a->branches[b].taken_count; i++) {
            struct taken *taken = &a->branches[b].taken[i];
            struct attempt *attempt = attempt_of(a, taken->attempt);
            if (attempt == NULL)
                return reason_set(a->reason, ERR_CORRUPT,
                                  "the order logs miss what ticket %" PRIu64 " was computed on",
                                  taken->ticket);
            attempt->takers++;
            taken->attempt = (uint64_t)(attempt - a->attempts);
        }
    return ERR_OK;
}

static int by_version(const void *left, const void *right)
{
    const struct needed *a = left, *b = right;
    return (a->version > b->version) - (a->version < b->version);
}

/* Each version that an attempt which was taken had pulled, once, with how many did. */
static enum err link_pulls(struct again *a)
{
    for (size_t i = 0; i < a->attempt_count; i++) {
        const struct attempt *attempt = &a->attempts[i];
        for (size_t p = 0; attempt->takers > 0 && p < attempt->pulled_count; p++) {
            const struct pulled *pulled = &a->pulled[attempt->pulled_first + p];
            struct branch *branch = &a->branches[pulled->branch];
            struct needed *needed = grow(branch->needed, branch->needed_count, sizeof *needed);
            if (needed == NULL)
                return no_memory(a);
            branch->needed = needed;
            needed[branch->needed_count++] = (struct needed){pulled->version, 1, NULL};
        }
    }
    for (size_t b = 0; b < a->branch_count; b++) {
        struct branch *branch = &a->branches[b];
        size_t count = 0;
        if (branch->needed_count > 0)
            qsort(branch->needed, branch->needed_count, sizeof *branch->needed, by_version);
        for (size_t i = 0; i < branch->needed_count; i++)
            if (count > 0 && branch->needed[count - 1].version == branch->needed[i].version)
                branch->needed[count - 1].users++;
            else
                branch->needed[count++] = branch->needed[i];
        branch->needed_count = count;
    }
    return ERR_OK;
}

static struct needed *needed_of(const struct branch *branch, uint64_t version)
{
    const struct needed key = {.version = version};
    return branch->needed_count == 0
               ? NULL
               : bsearch(&key, branch->needed, branch->needed_count, sizeof key, by_version);
}

/* The newest branch up to the cut that has the version each chunk had in it. */
static enum err find_targets(struct again *a)
{
    for (uint32_t chunk = 0; chunk < a->chunk_count; chunk++) {
        uint64_t version = a->async->versions[chunk];
        a->targets[chunk] = NONE;
        for (uint32_t b = 0; b < a->branch_count; b++)
            if (a->branches[b].chunk == chunk && a->branches[b].begin <= version &&
                version <= a->branches[b].begin + a->branches[b].taken_count)
                a->targets[chunk] = b;
        if (a->targets[chunk] == NONE)
            return reason_set(a->reason, ERR_CORRUPT,
                              "the order logs end before version %" PRIu64 " of chunk %u", version,
                              chunk);
    }
    a->ends_left = a->chunk_count;
    return ERR_OK;
}

/* ---- a chunk ---- */

/* What follows from the version that the chunk has now. */
static enum err reached(struct again *a, uint32_t index)
{
    struct branch *branch = &a->branches[index];
    uint64_t version = branch->begin + branch->next;
    struct needed *needed = needed_of(branch, version);
    if (needed != NULL && needed->copy == NULL) {
        const struct pull pull = {.generation = branch->generation,
                                  .newest = true,
                                  .chunk_count = 1,
                                  .chunks = &branch->chunk};
        a->effects.count = 0;
        shard_pull(branch->shard, SENDER, &pull, &a->effects);
        check(a->effects.items[0].kind == SHARD_WEIGHTS);
        needed->copy = a->effects.items[0].weights.copies[0];
    }
    if (a->targets[branch->chunk] != index || version != a->async->versions[branch->chunk])
        return ERR_OK;
    uint32_t n = a->chunks[branch->chunk].n;
    uint32_t states = optimizer_states(a->config.optimizer.kind);
    float *end = malloc((size_t)(1 + states) * n * sizeof *end);
    if (end == NULL)
        return no_memory(a);
    struct shard_state state = shard_state(branch->shard, 0);
    memcpy(end, state.weights, n * sizeof *end);
    for (uint32_t s = 0; s < states; s++)
        memcpy(end + (size_t)(1 + s) * n, state.state[s], n * sizeof *end);
    a->ends[branch->chunk] = end;
    a->ends_left--;
    return ERR_OK;
}

static enum err fill(struct again *a, const struct branch *branch, struct shard *shard)
{
    const struct shard_chunk *chunk = &a->chunks[branch->chunk];
    if (branch->parent == NONE) {
        prepare_initial(shard, a->model, a->async->options->spec->train.seed, chunk, 1);
        return ERR_OK;
    }
    struct shard *parent = a->branches[branch->parent].shard;
    struct shard_state from = shard_state(parent, 0), to = shard_state(shard, 0);
    memcpy(to.weights, from.weights, chunk->n * sizeof(float));
    for (uint32_t s = 0; s < optimizer_states(a->config.optimizer.kind); s++)
        memcpy(to.state[s], from.state[s], chunk->n * sizeof(float));
    scoped(free_scoped) uint8_t *extra = malloc(shard_extra_bytes(parent));
    if (extra == NULL)
        return no_memory(a);
    shard_store_extra(parent, 0, extra);
    return shard_load_extra(shard, 0, extra);
}

static enum err begin(struct again *a, uint32_t index)
{
    struct branch *branch = &a->branches[index];
    scoped(shard_free_scoped) struct shard *shard = NULL;
    struct shard_config config = a->config;
    config.generation = branch->generation;
    config.chunks = &a->chunks[branch->chunk];
    config.chunk_count = 1;
    TRY(shard_new(&config, &shard));
    TRY(fill(a, branch, shard));
    TRY(shard_start(shard));
    branch->shard = shard;
    shard = NULL;
    return reached(a, index);
}

/* Begins those that go on from the version that `parent` has now. */
static enum err begin_children(struct again *a, uint32_t parent)
{
    uint64_t version = a->branches[parent].begin + a->branches[parent].next;
    for (uint32_t b = parent + 1; b < a->branch_count; b++)
        if (a->branches[b].parent == parent && a->branches[b].begin == version &&
            a->branches[b].shard == NULL) {
            TRY(begin(a, b));
            TRY(begin_children(a, b));
        }
    return ERR_OK;
}

/* ---- an attempt ---- */

static struct needed *weights_of(const struct again *a, const struct attempt *attempt,
                                 uint32_t chunk)
{
    for (size_t i = 0; i < attempt->pulled_count; i++) {
        const struct pulled *pulled = &a->pulled[attempt->pulled_first + i];
        if (a->branches[pulled->branch].chunk == chunk)
            return needed_of(&a->branches[pulled->branch], pulled->version);
    }
    return NULL;
}

static bool may_compute(const struct again *a, const struct attempt *attempt)
{
    for (size_t i = 0; i < attempt->pulled_count; i++) {
        const struct pulled *pulled = &a->pulled[attempt->pulled_first + i];
        const struct needed *needed = needed_of(&a->branches[pulled->branch], pulled->version);
        if (needed->copy == NULL)
            return false;
    }
    return true;
}

static enum err pull_unit(void *context, uint32_t unit)
{
    struct again *a = context;
    for (uint32_t u = 0; u < a->model->units[unit].uses_count; u++) {
        uint32_t index = a->model->uses[a->model->units[unit].use_first + u].parameter;
        const struct model_parameter *parameter = &a->model->parameters[index];
        for (uint32_t i = 0; index != a->model->loss_parameter && i < parameter->chunks_count;
             i++) {
            uint32_t chunk = parameter->chunk_first + i;
            const struct needed *needed = weights_of(a, a->computing, chunk);
            if (needed == NULL)
                return reason_set(a->reason, ERR_CORRUPT,
                                  "the order logs miss what an attempt was given of chunk %u",
                                  chunk);
            const struct slice slice = {needed->copy->data, needed->copy->bytes};
            struct cursor cursor = {.slices = &slice, .slice_count = 1};
            executor_decode(a->executor, chunk, a->config.weights_codec, &cursor);
        }
    }
    return ERR_OK;
}

/* What it pulled is not needed for it any more. */
static void drop_weights(struct again *a, const struct attempt *attempt)
{
    for (size_t i = 0; i < attempt->pulled_count; i++) {
        const struct pulled *pulled = &a->pulled[attempt->pulled_first + i];
        struct needed *needed = needed_of(&a->branches[pulled->branch], pulled->version);
        if (--needed->users > 0)
            continue;
        counted_unref(needed->copy);
        needed->copy = NULL;
    }
}

static enum err compute(struct again *a, struct attempt *attempt, uint64_t ticket)
{
    const struct reference_options *options = a->async->options;
    const struct executor_hooks hooks = {.context = a, .pull = pull_unit};
    uint32_t slots = options->spec->train.slots;
    const struct ticket work = {
        .kind = TICKET_TRAIN, .step = ticket / slots, .node = {0, (uint32_t)(ticket % slots)}};
    struct executor_loss loss;
    a->computing = attempt;
    TRY(executor_run(a->executor, &work, options->samples, &hooks, &loss));
    drop_weights(a, attempt);
    attempt->gradients = malloc(a->gradients_bytes);
    if (attempt->gradients == NULL)
        return no_memory(a);
    for (uint32_t chunk = 0; chunk < a->chunk_count; chunk++)
        whole_encode(&a->whole, chunk,
                     a->chunks[chunk].loss ? CODEC_FP32 : a->config.async.push_codec,
                     attempt->gradients + a->offsets[chunk]);
    attempt->scale = whole_scale(&a->whole, options->spec->optimizer.clip_norm, loss.samples);
    attempt->computed = true;
    a->result.attempts++;
    return ERR_OK;
}

static enum err take(struct again *a, struct branch *branch, struct attempt *attempt,
                     const struct taken *taken)
{
    uint32_t slots = a->config.slots;
    size_t bytes = a->offsets[branch->chunk + 1] - a->offsets[branch->chunk];
    const struct push_entry entry = {
        .chunk = branch->chunk, .bytes = (uint32_t)bytes, .version = taken->used};
    const struct push push = {.generation = branch->generation,
                              .step = taken->ticket / slots,
                              .node = {0, (uint32_t)(taken->ticket % slots)},
                              .codec = a->config.async.push_codec,
                              .entry_count = 1,
                              .entries = &entry,
                              .boot = BOOT,
                              .scale = attempt->scale};
    const struct slice slice = {attempt->gradients + a->offsets[branch->chunk], bytes};
    a->effects.count = 0;
    shard_push(branch->shard, SENDER, &push, (struct cursor){.slices = &slice, .slice_count = 1},
               &a->effects);
    if (a->effects.items[0].ack.code != ERR_OK)
        return reason_set(a->reason, ERR_CORRUPT, "chunk %u does not take ticket %" PRIu64 ": %s",
                          branch->chunk, taken->ticket, err_name(a->effects.items[0].ack.code));
    branch->next++;
    if (--attempt->takers == 0) {
        free(attempt->gradients);
        attempt->gradients = NULL;
    }
    return ERR_OK;
}

/* ---- all of it ---- */

/* Takes what it can; *moved: that was something. */
static enum err advance(struct again *a, uint32_t index, bool *moved)
{
    struct branch *branch = &a->branches[index];
    while (branch->shard != NULL && branch->next < branch->taken_count) {
        const struct taken *taken = &branch->taken[branch->next];
        struct attempt *attempt = &a->attempts[taken->attempt];
        if (!attempt->computed && !may_compute(a, attempt))
            return ERR_OK;
        if (!attempt->computed)
            TRY(compute(a, attempt, taken->ticket));
        TRY(take(a, branch, attempt, taken));
        TRY(reached(a, index));
        TRY(begin_children(a, index));
        *moved = true;
    }
    return ERR_OK;
}

static enum err repeat(struct again *a)
{
    for (uint32_t b = 0; b < a->branch_count; b++)
        if (a->branches[b].parent == NONE && a->branches[b].shard == NULL) {
            TRY(begin(a, b));
            TRY(begin_children(a, b));
        }
    for (bool moved = true; a->ends_left > 0 && moved;) {
        moved = false;
        for (uint32_t b = 0; b < a->branch_count && a->ends_left > 0; b++)
            TRY(advance(a, b, &moved));
    }
    return a->ends_left == 0 ? ERR_OK
                             : reason_set(a->reason, ERR_CORRUPT,
                                          "the order logs miss versions that tickets were computed "
                                          "on: a server's end was lost");
}

static enum err read_end(void *context, uint32_t chunk, uint32_t array, float *ret_values)
{
    const struct again *a = context;
    uint32_t n = a->chunks[chunk].n;
    memcpy(ret_values, a->ends[chunk] + (size_t)array * n, n * sizeof *ret_values);
    return ERR_OK;
}

static enum err set_up(struct again *a)
{
    const struct reference_options *options = a->async->options;
    const struct chunk_range all = {.count = a->model->chunks_count};
    TRY(prepare_chunks(a->model, &all, 1, 0, &a->chunks, &a->chunk_count));
    a->config = prepare_config(options->spec);
    a->config.kernels = options->kernels;
    a->config.boot = BOOT;
    a->config.term = TERM;
    a->config.async.logged = false;
    a->newest = calloc(a->chunk_count, sizeof *a->newest);
    a->targets = calloc(a->chunk_count, sizeof *a->targets);
    a->ends = calloc(a->chunk_count, sizeof *a->ends);
    a->offsets = calloc((size_t)a->chunk_count + 1, sizeof *a->offsets);
    if (a->newest == NULL || a->targets == NULL || a->ends == NULL || a->offsets == NULL)
        return no_memory(a);
    for (uint32_t chunk = 0; chunk < a->chunk_count; chunk++) {
        a->newest[chunk] = NONE;
        enum codec codec = a->chunks[chunk].loss ? CODEC_FP32 : a->config.async.push_codec;
        a->offsets[chunk + 1] =
            a->offsets[chunk] + ((size_t)a->chunks[chunk].n * codec_bytes(codec));
    }
    a->gradients_bytes = a->offsets[a->chunk_count];
    const struct executor_options executor = {.kernels = options->kernels,
                                              .model = a->model,
                                              .train = &options->spec->train,
                                              .node_slots_max = 1};
    TRY(executor_new(&executor, &a->executor, a->reason));
    return whole_init(&a->whole, a->executor, a->model);
}

static void tear_down(struct again *a)
{
    for (size_t b = 0; b < a->branch_count; b++) {
        struct branch *branch = &a->branches[b];
        for (size_t i = 0; i < branch->needed_count; i++)
            counted_unref(branch->needed[i].copy);
        free(branch->needed);
        free(branch->taken);
        shard_free(branch->shard);
    }
    for (size_t i = 0; i < a->attempt_count; i++)
        free(a->attempts[i].gradients);
    for (uint32_t chunk = 0; a->ends != NULL && chunk < a->chunk_count; chunk++)
        free(a->ends[chunk]);
    whole_release(&a->whole);
    executor_free(a->executor);
    free(a->branches);
    free(a->pulled);
    free(a->attempts);
    free(a->newest);
    free(a->targets);
    free(a->ends);
    free(a->offsets);
    free(a->chunks);
}

static enum err run(struct again *a)
{
    TRY(set_up(a));
    TRY(read_logs(a));
    TRY(link_attempts(a));
    TRY(link_pulls(a));
    TRY(find_targets(a));
    TRY(repeat(a));
    const struct state_digest_source source = {
        .context = a,
        .read = read_end,
        .arrays = 1 + optimizer_states(a->config.optimizer.kind),
    };
    return state_digest(a->model, &source, &a->result.digest);
}

enum err reference_async_run(const struct reference_async *async,
                             struct reference_async_result *ret_result, struct reason *reason)
{
    struct again *a = calloc(1, sizeof *a);
    if (a == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to repeat the run");
    a->async = async;
    a->model = async->options->model;
    a->reason = reason;
    enum err err = run(a);
    if (err == ERR_OK)
        *ret_result = a->result;
    tear_down(a);
    free(a);
    return err;
}
