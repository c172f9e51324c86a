/* Tickets, one by one, into chunks. */
#include "server/shard/async.h"

#include <string.h>

/* The place in a step's sums for the samples whose loss is not known. */
enum { LOSS_UNKNOWN = MODEL_LOSS_RESERVED };

/* ---- memory ---- */

static enum err take_memory(struct async *async, const struct shard_config *config)
{
    uint32_t words = applied_words(applied_window(async->settings.window));
    uint32_t weights_max = 1;
    for (uint32_t i = 0; i < config->chunk_count; i++)
        if (config->chunks[i].n > weights_max)
            weights_max = config->chunks[i].n;
    async->loss_steps = async->settings.window / config->slots + 2;
    async->chunks = calloc((size_t)config->chunk_count + 1, sizeof *async->chunks);
    async->words = calloc((size_t)config->chunk_count * words + 1, sizeof *async->words);
    async->scratch = config->kernels->alloc(config->kernels, weights_max * sizeof(float));
    async->losses = calloc(async->loss_steps, sizeof *async->losses);
    async->waiting = calloc(ASYNC_WAITING_MAX, sizeof *async->waiting);
    return async->chunks != NULL && async->words != NULL && async->scratch != NULL &&
                   async->losses != NULL && async->waiting != NULL
               ? ERR_OK
               : ERR_NOMEM;
}

enum err async_init(struct async *async, const struct shard_config *config,
                    struct chunk_store *store)
{
    *async = (struct async){.settings = config->async,
                            .loss_samples = config->slot_samples,
                            .boot = config->boot,
                            .store = store};
    TRY(take_memory(async, config));
    uint32_t window = applied_window(async->settings.window);
    for (uint32_t i = 0; i < config->chunk_count; i++)
        async->chunks[i].applied =
            (struct applied){0, window, async->words + (size_t)i * applied_words(window)};
    async_open(async, config->version);
    return ERR_OK;
}

void async_release(struct async *async)
{
    for (uint64_t i = async->applied; i < async->accepted; i++)
        counted_unref(async->waiting[i % ASYNC_WAITING_MAX].gradient);
    if (async->scratch != NULL)
        async->store->kernels->free(async->store->kernels, async->scratch);
    free(async->chunks);
    free(async->words);
    free(async->losses);
    free(async->waiting);
    *async = (struct async){0};
}

/* ---- cuts ---- */

enum { EXTRA_VERSION, EXTRA_UPDATES, EXTRA_LOW, EXTRA_WORDS };

uint32_t async_extra_bytes(uint32_t window)
{
    uint32_t words = applied_words(applied_window(window));
    return (EXTRA_WORDS + words) * (uint32_t)sizeof(uint64_t);
}

void async_store(const struct async *async, uint32_t index, uint8_t *ret_extra)
{
    const struct async_chunk *chunk = &async->chunks[index];
    uint64_t extra[EXTRA_WORDS + APPLIED_WINDOW_MAX / 64];
    extra[EXTRA_VERSION] = chunk->version;
    extra[EXTRA_UPDATES] = chunk->updates;
    extra[EXTRA_LOW] = chunk->applied.low;
    applied_store(&chunk->applied, extra + EXTRA_WORDS);
    memcpy(ret_extra, extra, async_extra_bytes(async->settings.window));
}

static uint64_t taken_count(const struct applied *applied)
{
    uint64_t count = applied->low;
    for (uint32_t i = 0; i < applied_words(applied->window); i++)
        count += (uint64_t)__builtin_popcountll(applied->words[i]);
    return count;
}

/* Tickets may be far ahead of the open step, those of a cut or a journal and those that come before
 * a server that is back hears the newest commit: there is room for their losses as well. */
static enum err make_room(struct async *async, uint64_t step)
{
    if (step < async->open || step - async->open < async->loss_steps)
        return ERR_OK;
    uint64_t wanted = step - async->open + async->loss_steps;
    double(*losses)[MODEL_LOSS_WEIGHTS] =
        wanted > UINT32_MAX ? NULL : calloc(wanted, sizeof *losses);
    if (losses == NULL)
        return ERR_NOMEM;
    for (uint64_t t = async->open; t < async->open + async->loss_steps; t++)
        memcpy(losses[t % wanted], async->losses[t % async->loss_steps], sizeof *losses);
    free(async->losses);
    async->losses = losses;
    async->loss_steps = (uint32_t)wanted;
    return ERR_OK;
}

/* A cut has the tickets of open steps that were taken, and not their losses. */
static enum err recall_losses(struct async *async, const struct applied *applied)
{
    uint64_t first = async->open * async->store->slots, end = applied->low + applied->window;
    for (uint64_t ticket = first; ticket < end; ticket++) {
        uint64_t step = ticket / async->store->slots;
        if (applied_find(applied, ticket) != APPLIED_TAKEN)
            continue;
        TRY(make_room(async, step));
        async->losses[step % async->loss_steps][LOSS_UNKNOWN] += async->settings.slot_samples;
    }
    return ERR_OK;
}

enum err async_load(struct async *async, uint32_t index, const uint8_t *bytes)
{
    struct async_chunk *chunk = &async->chunks[index];
    uint64_t extra[EXTRA_WORDS + APPLIED_WINDOW_MAX / 64];
    memcpy(extra, bytes, async_extra_bytes(async->settings.window));
    uint32_t words = applied_words(chunk->applied.window);
    if (applied_load(&chunk->applied, extra[EXTRA_LOW], extra + EXTRA_WORDS, words) != ERR_OK ||
        taken_count(&chunk->applied) != extra[EXTRA_VERSION] ||
        extra[EXTRA_UPDATES] > extra[EXTRA_VERSION])
        return ERR_CORRUPT;
    chunk->version = extra[EXTRA_VERSION];
    chunk->updates = extra[EXTRA_UPDATES];
    async_open(async, async->open);
    return async->store->chunks[index].spec.loss ? recall_losses(async, &chunk->applied) : ERR_OK;
}

/* ---- the open step ---- */

/* Tickets of all steps up to the open one. */
static uint64_t open_end(const struct async *async)
{
    return (async->open + 1) * async->store->slots;
}

void async_open(struct async *async, uint64_t step)
{
    uint64_t over = step > async->open ? step - async->open : 0;
    for (uint64_t i = 0; i < over && i < async->loss_steps; i++)
        memset(async->losses[(async->open + i) % async->loss_steps], 0, sizeof *async->losses);
    async->open += over;
    async->behind = 0;
    for (uint32_t i = 0; i < async->store->count; i++)
        async->behind += async->chunks[i].applied.low < open_end(async);
}

bool async_missing(const struct async *async, uint64_t *step, uint64_t *ret_slots)
{
    uint32_t slots = async->store->slots;
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 0; i < async->store->count; i++) {
        uint64_t first = async->chunks[i].applied.low / slots;
        oldest = first < oldest ? first : oldest;
    }
    if (oldest > *step)
        return false;
    *step = oldest;
    for (uint32_t i = 0; i < async->store->count; i++)
        for (uint32_t slot = 0; slot < slots; slot++)
            if (applied_find(&async->chunks[i].applied, oldest * slots + slot) != APPLIED_TAKEN)
                ret_slots[slot / 64] |= UINT64_C(1) << slot % 64;
    return true;
}

void async_loss(const struct async *async, uint64_t step, double ret_loss[MODEL_LOSS_WEIGHTS])
{
    memcpy(ret_loss, async->losses[step % async->loss_steps], sizeof async->losses[0]);
    double known = ret_loss[MODEL_LOSS_COUNT], all = known + ret_loss[LOSS_UNKNOWN];
    ret_loss[MODEL_LOSS_COUNT] = all;
    ret_loss[LOSS_UNKNOWN] = 0;
    if (all == 0)
        return;
    double factor = known > 0 ? all / known : __builtin_nan("");
    ret_loss[MODEL_LOSS_SUM] *= factor;
    ret_loss[MODEL_LOSS_CORRECT] *= factor;
}

static void count_loss(struct async *async, uint64_t ticket, const float *loss)
{
    uint64_t step = ticket / async->store->slots;
    if (step < async->open)
        return; /* the step is committed: a server had lost the ticket, and it came again */
    double *sums = async->losses[step % async->loss_steps];
    for (uint32_t i = 0; i < LOSS_UNKNOWN; i++)
        sums[i] += (double)loss[i];
}

/* ---- apply ---- */

/* The worker's factor, or 0: the values are not finite. */
static float scale_of(const struct async *async, uint32_t index, float scale, const float *gradient)
{
    const struct kernels *kernels = async->store->kernels;
    double sumsq;
    if (scale == 0)
        return 0;
    kernels->sum_squares(kernels, &sumsq, gradient, async->store->chunks[index].spec.n);
    return __builtin_isfinite(sumsq) ? scale : 0;
}

/* The chunk takes the ticket: it gets the next version, a published copy of it, and the bit. */
static enum err apply_ticket(struct async *async, uint32_t index, uint64_t ticket, float scale,
                             const float *gradient)
{
    struct async_chunk *chunk = &async->chunks[index];
    const struct seal_ticket about = {.slot_samples = async->settings.slot_samples,
                                      .version = chunk->version,
                                      .updates = chunk->updates,
                                      .scale = scale};
    const struct commit commit = seal_ticket(&async->settings.seal, &about);
    struct chunk *stored = &async->store->chunks[index];
    if (stored->spec.loss)
        TRY(make_room(async, ticket / async->store->slots));
    TRY(chunk_apply_sum(async->store, stored, chunk->version + 1, &commit, gradient));
    bool was_behind = chunk->applied.low < open_end(async);
    applied_add(&chunk->applied, ticket);
    chunk->version++;
    chunk->updates += commit.apply ? 1 : 0;
    async->behind -= was_behind && chunk->applied.low >= open_end(async) ? 1 : 0;
    if (stored->spec.loss)
        count_loss(async, ticket, gradient);
    return ERR_OK;
}

enum err async_redo(struct async *async, uint32_t index, const struct async_record *record)
{
    struct async_chunk *chunk = &async->chunks[index];
    if (record->version < chunk->version)
        return ERR_OK;
    if (record->version > chunk->version || record->n != async->store->chunks[index].spec.n ||
        applied_find(&chunk->applied, record->ticket) != APPLIED_NEW)
        return ERR_CORRUPT;
    return apply_ticket(async, index, record->ticket,
                        scale_of(async, index, record->scale, record->gradient), record->gradient);
}

/* ---- push ---- */

static enum err judge_push(const struct async *async, const struct push *push, enum codec codec)
{
    uint64_t steps_max = UINT64_MAX / async->store->slots - 1;
    if (push->node.level != 0 || push->node.index >= async->store->slots || push->codec != codec ||
        push->step > steps_max)
        return ERR_MALFORMED;
    return push->scale >= 0 && push->scale <= 1 ? ERR_OK : ERR_MALFORMED; /* clip_factor() */
}

/* Whether the ticket waits for the log already; *ret_after: until that many are applied. */
static bool waits(const struct async *async, uint32_t index, uint64_t ticket, uint64_t *ret_after)
{
    if (async->chunks[index].waiting == 0)
        return false;
    for (uint64_t i = async->applied; i < async->accepted; i++) {
        const struct async_waiting *waiting = &async->waiting[i % ASYNC_WAITING_MAX];
        if (waiting->index != index || waiting->ticket != ticket)
            continue;
        *ret_after = *ret_after > i + 1 ? *ret_after : i + 1;
        return true;
    }
    return false;
}

/* Whether the chunk may take the ticket. The chunk has not taken it yet. */
static enum err may_take(const struct async *async, uint32_t index, const struct push *push,
                         const struct push_entry *entry, uint64_t ticket)
{
    const struct async_chunk *chunk = &async->chunks[index];
    uint64_t version = chunk->version + chunk->waiting;
    if (applied_find(&chunk->applied, ticket) == APPLIED_BEYOND)
        return ERR_BEYOND;
    if (push->boot != async->boot)
        return ERR_STALE; /* P12: a push computed on an older boot is recomputed */
    if (async->store->chunks[index].spec.loss)
        return ERR_OK; /* nobody pulls the loss */
    if (entry->version > chunk->version)
        return ERR_MALFORMED;
    return version - entry->version > async->settings.staleness_max ? ERR_STALE : ERR_OK;
}

/* Who sent the values may still change them (rpc_message): what is judged is the copy. */
static enum err copy_values(const struct async *async, uint32_t index,
                            const struct reduce_values *values, float *ret_gradient)
{
    const struct shard_chunk *spec = &async->store->chunks[index].spec;
    reduce_copy(values, async->store->kernels, ret_gradient, spec->n);
    bool right =
        !spec->loss || chunk_loss_counts(ret_gradient[MODEL_LOSS_COUNT], async->loss_samples);
    return right ? ERR_OK : ERR_MALFORMED;
}

/* Hands an accepted gradient to the log. The effect owns the reference. */
static enum err accept(struct async *async, uint32_t index, uint64_t ticket, float scale,
                       const struct reduce_values *values, struct shard_order_entry *order)
{
    if (async->accepted - async->applied == ASYNC_WAITING_MAX)
        return ERR_BUSY;
    struct counted *gradient = counted_new(async->store->chunks[index].spec.n * sizeof(float));
    if (gradient == NULL)
        return ERR_BUSY;
    float *copy = (float *)(void *)gradient->data;
    enum err err = copy_values(async, index, values, copy);
    if (err != ERR_OK) {
        counted_unref(gradient);
        return err;
    }
    scale = scale_of(async, index, scale, copy);
    async->waiting[async->accepted++ % ASYNC_WAITING_MAX] =
        (struct async_waiting){index, ticket, scale, gradient};
    async->chunks[index].waiting++;
    order->gradient = counted_ref(gradient);
    order->skipped = scale == 0;
    return ERR_OK;
}

static enum err apply_now(struct async *async, uint32_t index, uint64_t ticket, float scale,
                          const struct reduce_values *values, struct shard_order_entry *order)
{
    TRY(copy_values(async, index, values, async->scratch));
    scale = scale_of(async, index, scale, async->scratch);
    if (apply_ticket(async, index, ticket, scale, async->scratch) != ERR_OK)
        return ERR_BUSY; /* no memory for the published copy */
    order->skipped = scale == 0;
    return ERR_OK;
}

static enum err take_push(struct async *async, uint32_t index, const struct push *push,
                          const struct push_entry *entry, uint64_t ticket,
                          const struct reduce_values *values)
{
    const struct async_chunk *own = &async->chunks[index];
    struct shard_order_entry order = {
        .chunk = entry->chunk, .version = own->version + own->waiting, .used = entry->version};
    if (async->settings.logged)
        TRY(accept(async, index, ticket, push->scale, values, &order));
    else
        TRY(apply_now(async, index, ticket, push->scale, values, &order));
    async->entries[async->entry_count++] = order;
    return ERR_OK;
}

static enum err count_entry(struct async *async, const struct push *push,
                            const struct push_entry *entry, struct cursor *payload,
                            struct shard_statistics *statistics, uint64_t *ret_after)
{
    struct chunk_store *store = async->store;
    uint32_t index = chunk_find(store, entry->chunk);
    if (index == store->count)
        return ERR_NOT_FOUND;
    const struct chunk *chunk = &store->chunks[index];
    enum codec codec = chunk->spec.loss ? CODEC_FP32 : push->codec;
    uint64_t ticket = push->step * store->slots + push->node.index;
    /* A worker adds the parts of a chunk before it pushes, so all are of one attempt. */
    if (entry->part != 0 || !chunk_takes(chunk, entry, codec) ||
        cursor_bytes(payload) < entry->bytes)
        return ERR_MALFORMED;
    if (applied_find(&async->chunks[index].applied, ticket) == APPLIED_TAKEN ||
        waits(async, index, ticket, ret_after)) {
        statistics->duplicates++;
        cursor_skip(payload, entry->bytes);
        return ERR_OK;
    }
    TRY(may_take(async, index, push, entry, ticket));
    struct reduce_rows rows;
    const struct reduce_values values = {payload, codec, NULL, chunk_rows(chunk, entry, &rows)};
    enum err err = take_push(async, index, push, entry, ticket, &values);
    statistics->busy += err == ERR_BUSY ? 1 : 0;
    if (err == ERR_OK)
        chunk_count_bytes(chunk, entry, codec, statistics);
    if (err == ERR_OK && async->settings.logged)
        *ret_after = async->accepted;
    return err;
}

enum err async_push(struct async *async, const struct push *push, struct cursor *payload,
                    struct shard_statistics *statistics, uint32_t *ret_counted, uint64_t *ret_after)
{
    async->entry_count = 0;
    *ret_counted = 0;
    *ret_after = 0;
    TRY(judge_push(async, push, async->settings.push_codec));
    for (uint32_t i = 0; i < push->entry_count; i++) {
        TRY(count_entry(async, push, &push->entries[i], payload, statistics, ret_after));
        *ret_counted = i + 1;
    }
    return ERR_OK;
}

/* ---- the log ---- */

void async_logged(struct async *async, uint64_t durable)
{
    check(durable <= async->accepted);
    if (durable > async->durable)
        async->durable = durable;
}

enum err async_work(struct async *async)
{
    check(async_has_work(async));
    struct async_waiting *next = &async->waiting[async->applied % ASYNC_WAITING_MAX];
    TRY(apply_ticket(async, next->index, next->ticket, next->scale,
                     (const float *)(const void *)next->gradient->data));
    async->chunks[next->index].waiting--;
    async->applied++;
    counted_unref(next->gradient);
    next->gradient = NULL;
    return ERR_OK;
}

/* ---- what is there ---- */

void async_meet(const struct async *async, struct applied *met, bool first)
{
    for (uint32_t i = 0; i < async->store->count; i++) {
        const struct applied *applied = &async->chunks[i].applied;
        if (first && i == 0) {
            met->low = applied->low;
            memcpy(met->words, applied->words, applied_words(met->window) * sizeof *met->words);
        } else {
            applied_meet(met, applied);
        }
    }
}

void async_check_numbers(const struct async *async)
{
    check(async->applied <= async->durable || !async->settings.logged);
    check(async->durable <= async->accepted || !async->settings.logged);
    check(async->applied <= async->accepted);
    check(async_waiting_count(async) <= ASYNC_WAITING_MAX);
    check(async->behind <= async->store->count);
    check(async->entry_count <= WIRE_ENTRIES_MAX);
}

void async_check_chunk(const struct async *async, uint32_t index)
{
    const struct async_chunk *chunk = &async->chunks[index];
    check(chunk->updates <= chunk->version);
    check(chunk->waiting <= async_waiting_count(async));
    applied_check(&chunk->applied);
    check(chunk->version == taken_count(&chunk->applied)); /* 1 */
}

void async_check(const struct async *async)
{
    uint32_t behind = 0;
    uint64_t waiting = 0;
    async_check_numbers(async);
    for (uint32_t i = 0; i < async->store->count; i++) {
        behind += async->chunks[i].applied.low < open_end(async);
        waiting += async->chunks[i].waiting;
    }
    check(behind == async->behind); /* 2 */
    check(waiting == async_waiting_count(async));
    for (uint64_t i = async->applied; i < async->accepted; i++) { /* 3 */
        const struct async_waiting *one = &async->waiting[i % ASYNC_WAITING_MAX];
        check(applied_find(&async->chunks[one->index].applied, one->ticket) == APPLIED_NEW);
        for (uint64_t j = async->applied; j < i; j++)
            check(async->waiting[j % ASYNC_WAITING_MAX].index != one->index ||
                  async->waiting[j % ASYNC_WAITING_MAX].ticket != one->ticket);
    }
}
