/* The loop of a shard's owner. */
#include "server/shard_thread.h"

#include "common/inbox.h"
#include "common/time.h"
#include "server/pull.h"
#include "server/push.h"

enum {
    MESSAGES_MAX = 4096, /* pushes and pulls that may wait; beyond, BUSY */
    COMMANDS_MAX = 256,  /* room that only commands may use */
    BATCH = 16,
    RETRY_MS = 100,      /* when there was no memory to go on */
    DEFERRED_MAX = 4096, /* pushes that wait for the log */
};

enum item_kind { ITEM_MESSAGE, ITEM_PREPARE, ITEM_COMMIT, ITEM_REPORT, ITEM_END, ITEM_WAKE };

struct item {
    enum item_kind kind;
    union {
        struct exchange_message *message;
        struct prepared *prepared;
        struct commit *commit;
    };
};

/* A push whose gradients are not on disk yet. */
struct deferred {
    struct exchange_message *message;
    struct push_share share;
};

struct shard_thread {
    struct shard_thread_config config;
    struct inbox *inbox;
    struct thread thread;
    atomic_uint messages; /* in the inbox */
    atomic_bool waking;   /* a WAKE is in the inbox */
    atomic_bool has_gone;
    struct thread_mutex mutex;    /* guards the three below */
    struct exchange_stream *gone; /* a list through gone_next[index] */
    uint64_t logged_generation, logged;

    /* The thread's own. */
    struct shard *shard;       /* NULL: no run */
    bool more;                 /* shard_work() has something to do */
    uint64_t retry_ns;         /* not before this moment */
    struct deferred *deferred; /* a ring of DEFERRED_MAX; NULL: none yet */
    uint32_t deferred_first, deferred_count;
    struct shard_effects effects;
};

/* ---- effects ---- */

static void add_order(struct shard_thread *thread, const struct shard_order *take_order)
{
    const struct shard_thread_config *config = &thread->config;
    enum err err = order_writer_add(config->order_writer, config->index,
                                    shard_generation(thread->shard), take_order);
    /* Gradients always find room: few wait at a time. */
    if (err != ERR_OK)
        log_error(config->logger, "order log has a gap", log_uint("shard", config->index),
                  log_text("err", err_name(err)), log_text("next", "the run cannot be replayed"));
}

static void carry_out_one(struct shard_thread *thread, const struct shard_effect *effect)
{
    const struct shard_thread_config *config = &thread->config;
    struct shard_statistics statistics;
    switch (effect->kind) {
    case SHARD_ACK:
        break; /* push.c has it: it answers for all threads */
    case SHARD_WEIGHTS:
        pull_published(effect, config->index, shard_generation(thread->shard));
        break;
    case SHARD_REFUSAL:
        pull_refused(effect);
        break;
    case SHARD_REDUCED:
        config->events->reduced(config->owner, config->index, &effect->reduced);
        break;
    case SHARD_COMMITTED:
        statistics = shard_statistics(thread->shard);
        config->events->committed(config->owner, config->index, effect->committed.generation,
                                  effect->committed.step, &statistics);
        break;
    case SHARD_SNAPSHOT:
        cut_writer_add(config->cut_writer, thread, effect);
        break;
    case SHARD_WRONG_BITS:
        config->events->wrong_bits(config->owner, config->index, effect);
        break;
    case SHARD_ORDER:
        add_order(thread, &effect->order);
        break;
    }
}

static void carry_out(void *owner, struct shard_effects *effects)
{
    struct shard_thread *thread = owner;
    for (uint32_t i = 0; i < effects->count; i++)
        carry_out_one(thread, &effects->items[i]);
    effects->count = 0;
}

/* ---- what comes in ---- */

/* Says what waited for the log, as far as that is on disk; `all`: because the shard is no more. */
static void answer_deferred(struct shard_thread *thread, bool all)
{
    uint64_t taken = thread->shard != NULL ? shard_taken(thread->shard) : 0;
    while (thread->deferred_count > 0) {
        struct deferred *first = &thread->deferred[thread->deferred_first];
        if (!all && first->share.after > taken)
            return;
        if (all)
            first->share = (struct push_share){0, ERR_OLD_GENERATION, 0};
        push_share_done(first->message, &first->share);
        thread->deferred_first = (thread->deferred_first + 1) % DEFERRED_MAX;
        thread->deferred_count--;
    }
}

static void handle_push(struct shard_thread *thread, struct exchange_message *take_message)
{
    struct push_share share = push_count(take_message, thread->config.index, thread->shard,
                                         &thread->effects, carry_out, thread);
    if (share.after > 0 && thread->deferred == NULL)
        thread->deferred = calloc(DEFERRED_MAX, sizeof *thread->deferred);
    bool room = thread->deferred != NULL && thread->deferred_count < DEFERRED_MAX;
    if (share.after > 0 && room) {
        uint32_t at = (thread->deferred_first + thread->deferred_count++) % DEFERRED_MAX;
        thread->deferred[at] = (struct deferred){take_message, share};
        return;
    }
    if (share.after > 0) /* said again, it is a duplicate */
        share = (struct push_share){0, ERR_BUSY, 0};
    push_share_done(take_message, &share);
}

static void handle_message(struct shard_thread *thread, struct exchange_message *message)
{
    atomic_fetch_sub(&thread->messages, 1);
    uint32_t index = thread->config.index;
    if (message->content.kind == TO_SHARD_PUSH)
        handle_push(thread, message);
    else {
        pull_answer(message, index, thread->shard, &thread->effects);
        for (uint32_t i = 1; i < thread->effects.count; i++)
            carry_out_one(thread, &thread->effects.items[i]);
        thread->effects.count = 0;
    }
}

static void forget_shard(struct shard_thread *thread)
{
    if (thread->shard == NULL)
        return;
    for (bool closed = false; !closed;) {
        closed = shard_close(thread->shard, &thread->effects);
        carry_out(thread, &thread->effects);
    }
    answer_deferred(thread, true);
    shard_free(thread->shard);
    thread->shard = NULL;
    thread->more = false;
}

/* Async: what the chunks begin with, for the log of the order. */
static void say_beginning(struct shard_thread *thread)
{
    uint32_t next = 0;
    bool whole = shard_extra_bytes(thread->shard) == 0;
    while (!whole) {
        whole = shard_begin_order(thread->shard, &next, &thread->effects);
        carry_out(thread, &thread->effects);
    }
}

static void handle_prepare(struct shard_thread *thread, struct prepared *take_prepared)
{
    const struct shard_thread_config *config = &thread->config;
    struct prepared_shard about = {config->kernels, config->boot, config->index, config->count};
    struct reason reason = {{0}};
    forget_shard(thread);
    enum err err = prepared_shard_new(take_prepared, &about, &thread->shard, &reason);
    if (err == ERR_OK) {
        if (reason.text[0] != 0)
            log_warning(config->logger, "journal ends early", log_text("reason", reason.text),
                        log_text("next", "go on"));
        say_beginning(thread);
    }
    config->events->ready(config->owner, config->index, take_prepared->generation, err,
                          thread->shard, &reason);
    if (thread->shard != NULL && shard_extra_bytes(thread->shard) > 0) {
        shard_report(thread->shard, &thread->effects); /* its step may be complete as it is */
        carry_out(thread, &thread->effects);
    }
    /* A run begins with a recorded cut (P9). */
    if (err == ERR_OK && !take_prepared->from_cut)
        thread->more = shard_snapshot_begin(thread->shard);
    prepared_unref(take_prepared);
}

static void handle_commit(struct shard_thread *thread, struct commit *take_commit)
{
    enum err err = ERR_NO_RUN;
    if (thread->shard != NULL)
        err = shard_commit(thread->shard, thread->config.boot, take_commit, &thread->effects);
    carry_out(thread, &thread->effects);
    thread->more = thread->more || err == ERR_OK;
    if (err != ERR_OK)
        log_warning(thread->config.logger, "commit refused",
                    log_uint("generation", take_commit->generation),
                    log_uint("step", take_commit->step), log_text("err", err_name(err)),
                    log_text("next", reaction_name(err_reaction(err))));
    free(take_commit);
}

static void take_logged(struct shard_thread *thread)
{
    thread_lock(&thread->mutex);
    uint64_t generation = thread->logged_generation, logged = thread->logged;
    thread_unlock(&thread->mutex);
    if (thread->shard != NULL && generation == shard_generation(thread->shard))
        shard_logged(thread->shard, logged);
}

static void handle(struct shard_thread *thread, const struct item *item)
{
    switch (item->kind) {
    case ITEM_MESSAGE:
        handle_message(thread, item->message);
        break;
    case ITEM_PREPARE:
        handle_prepare(thread, item->prepared);
        break;
    case ITEM_COMMIT:
        handle_commit(thread, item->commit);
        break;
    case ITEM_REPORT:
        if (thread->shard != NULL)
            shard_report(thread->shard, &thread->effects);
        carry_out(thread, &thread->effects);
        break;
    case ITEM_END:
        forget_shard(thread);
        break;
    case ITEM_WAKE:
        atomic_store(&thread->waking, false);
        take_logged(thread);
        thread->more = thread->shard != NULL;
        break;
    }
}

static void forget_gone(struct shard_thread *thread)
{
    if (!atomic_exchange(&thread->has_gone, false))
        return;
    thread_lock(&thread->mutex);
    struct exchange_stream *gone = thread->gone;
    thread->gone = NULL;
    thread_unlock(&thread->mutex);
    while (gone != NULL) {
        struct exchange_stream *stream = gone;
        gone = stream->gone_next[thread->config.index];
        if (thread->shard != NULL)
            shard_cancel(thread->shard, (uintptr_t)stream);
        exchange_stream_unref(stream);
    }
}

/* ---- the loop ---- */

static void work(struct shard_thread *thread)
{
    enum err err = shard_work(thread->shard, &thread->effects, &thread->more);
    carry_out(thread, &thread->effects);
    answer_deferred(thread, false);
    thread->retry_ns = 0;
    if (err == ERR_OK)
        return;
    thread->retry_ns = time_after_ms(time_now_ns(), RETRY_MS);
    log_error(thread->config.logger, "step not applied", log_uint("shard", thread->config.index),
              log_uint("version", shard_version(thread->shard)), log_text("err", err_name(err)),
              log_text("next", "retry"));
}

static uint64_t wait_until(const struct shard_thread *thread)
{
    return !thread->more ? TIME_NEVER : thread->retry_ns;
}

static void run(void *argument)
{
    struct shard_thread *thread = argument;
    struct item items[BATCH];
    for (;;) {
        size_t count = 0;
        enum err err = inbox_take(thread->inbox, wait_until(thread), BATCH, items, &count);
        if (err == ERR_CANCELLED)
            break;
        for (size_t i = 0; i < count; i++)
            handle(thread, &items[i]);
        forget_gone(thread);
        if (thread->more && (thread->retry_ns == 0 || time_now_ns() >= thread->retry_ns))
            work(thread);
    }
    forget_gone(thread);
    forget_shard(thread);
}

/* ---- from outside ---- */

enum err shard_thread_new(const struct shard_thread_config *config,
                          struct shard_thread **ret_thread)
{
    struct shard_thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL)
        return ERR_NOMEM;
    thread->config = *config;
    thread_mutex_init(&thread->mutex);
    struct inbox_limits limits = {sizeof(struct item), MESSAGES_MAX + COMMANDS_MAX};
    enum err err = inbox_new(limits, &thread->inbox);
    char name[16];
    snprintf(name, sizeof name, "shard-%u", config->index);
    if (err == ERR_OK)
        err = thread_start(&thread->thread, name, run, thread);
    if (err != ERR_OK) {
        inbox_free(thread->inbox);
        thread_mutex_release(&thread->mutex);
        free(thread);
        return err;
    }
    *ret_thread = thread;
    return ERR_OK;
}

void shard_thread_stop(struct shard_thread *thread)
{
    inbox_close(thread->inbox);
    thread_join(&thread->thread);
}

void shard_thread_free(struct shard_thread *thread)
{
    if (thread == NULL)
        return;
    inbox_free(thread->inbox);
    thread_mutex_release(&thread->mutex);
    free(thread->deferred);
    free(thread);
}

enum err shard_thread_message(struct shard_thread *thread, struct exchange_message *message)
{
    struct item item = {.kind = ITEM_MESSAGE, .message = message};
    enum err err = ERR_BUSY;
    if (atomic_fetch_add(&thread->messages, 1) < MESSAGES_MAX)
        err = inbox_post(thread->inbox, &item);
    if (err != ERR_OK)
        atomic_fetch_sub(&thread->messages, 1);
    return err;
}

/* Something outside the inbox is to be looked at; a full inbox is awake anyway. */
static void wake(struct shard_thread *thread)
{
    struct item item = {.kind = ITEM_WAKE};
    if (!atomic_exchange(&thread->waking, true) && inbox_post(thread->inbox, &item) != ERR_OK)
        atomic_store(&thread->waking, false);
}

void shard_thread_gone(struct shard_thread *thread, struct exchange_stream *stream)
{
    exchange_stream_ref(stream);
    thread_lock(&thread->mutex);
    stream->gone_next[thread->config.index] = thread->gone;
    thread->gone = stream;
    thread_unlock(&thread->mutex);
    atomic_store(&thread->has_gone, true);
    wake(thread);
}

void shard_thread_logged(struct shard_thread *thread, uint64_t generation, uint64_t durable)
{
    thread_lock(&thread->mutex);
    thread->logged_generation = generation;
    thread->logged = durable;
    thread_unlock(&thread->mutex);
    wake(thread);
}

void shard_thread_wake(struct shard_thread *thread)
{
    wake(thread);
}

enum err shard_thread_prepare(struct shard_thread *thread, struct prepared *prepared)
{
    struct item item = {.kind = ITEM_PREPARE, .prepared = prepared_ref(prepared)};
    enum err err = inbox_post(thread->inbox, &item);
    if (err != ERR_OK)
        prepared_unref(prepared);
    return err;
}

enum err shard_thread_commit(struct shard_thread *thread, const struct commit *commit)
{
    struct commit *copy = malloc(sizeof *copy);
    if (copy == NULL)
        return ERR_NOMEM;
    *copy = *commit;
    struct item item = {.kind = ITEM_COMMIT, .commit = copy};
    enum err err = inbox_post(thread->inbox, &item);
    if (err != ERR_OK)
        free(copy);
    return err;
}

enum err shard_thread_report(struct shard_thread *thread)
{
    struct item item = {.kind = ITEM_REPORT};
    return inbox_post(thread->inbox, &item);
}

enum err shard_thread_end(struct shard_thread *thread)
{
    struct item item = {.kind = ITEM_END};
    return inbox_post(thread->inbox, &item);
}
