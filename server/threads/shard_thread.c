/* The loop of the thread that owns a shard. A pull comes from exchange.c. The thread asks the shard
 * (pull_ask()), carries out the other effects (in async runs a record for the order log), and only
 * then sends the answer (pull_answer()). */
#include "server/threads/shard_thread.h"

#include "common/inbox.h"
#include "common/scene.h"
#include "common/scoped.h"
#include "common/time.h"
#include "server/threads/pull.h"
#include "server/threads/push.h"

#include <string.h>

enum {
    MESSAGES_MAX = 4096, /* pushes and pulls that may wait; beyond, BUSY */
    COMMANDS_MAX = 256,  /* room that only commands may use */
    BATCH = 16,
    RETRY_MS = 100,      /* after a lack of memory */
    NAMED_MS = 1000,     /* who brings gradients that are not finite is named as often at most */
    NOT_SENT_MS = 60000, /* the same of a chunk that its new owner does not take … */
    NOT_YET_MAX = 32,    /* … unless that will pass: then only after so many failures in a row */
    DEFERRED_MAX = 4096, /* pushes that wait for the log */
    /* A chunk that its new owner did not take is sent again: the new owner may not have the commit
     * yet. */
    AGAIN_MS_MIN = 4,
    AGAIN_DOUBLED_MAX = 7,
};

enum shard_item_kind {
    ITEM_MESSAGE,
    ITEM_PREPARE,
    ITEM_COMMIT,
    ITEM_REPORT,
    ITEM_END,
    ITEM_WAKE,
    ITEM_ARRIVAL,
    ITEM_TRANSFERRED,
    ITEM_ASK_MISSING,
    ITEM_ENDED
};

/* Members that have ended. */
struct ended_members {
    uint32_t count;
    uint64_t members[];
};

/* A commit with its moves of this thread's chunks, in one piece of memory. */
struct order {
    uint64_t boot;
    struct commit commit;
    struct shard_moves moves;
};

struct shard_item {
    enum shard_item_kind kind;
    union {
        struct exchange_message *message;
        struct prepared *prepared;
        struct order *order;
        struct transfer_arrival *arrival;
        struct transfer_sent *sent;
        struct ended_members *ended;
        struct {
            uint64_t generation, step, question;
        } missing;
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
    uint64_t held_up;          /* steps that waited for the writer of cuts, as far as logged */
    uint64_t retry_ns;         /* not before this moment */
    uint64_t named_ns;         /* the same, of who brings gradients that are not finite … */
    uint64_t not_finite;       /* … pushes of which came since the last line */
    uint64_t not_sent_ns;      /* the same, of a chunk that is not taken */
    struct deferred *deferred; /* a ring of DEFERRED_MAX; NULL: none yet */
    uint32_t deferred_first, deferred_count;
    struct order *late;           /* a commit that there was no memory for; NULL: none */
    struct transfer_sent *failed; /* to be sent again … */
    uint64_t failed_ns;           /* … at this moment */
    unsigned failures;            /* in a row */
    struct shard_effects effects;
};

/* ---- effects ---- */

static void add_order(struct shard_thread *thread, const struct shard_order *take_order)
{
    const struct shard_thread_config *config = &thread->config;
    enum err err = order_writer_add(config->order_writer, config->index,
                                    shard_generation(thread->shard), take_order);
    /* There is always room for gradients: few wait at a time. */
    if (err != ERR_OK)
        log_error(config->logger, "order log has a gap", log_uint("shard", config->index),
                  log_text("err", err_name(err)), log_text("next", "the run cannot be replayed"));
}

/* Whether a line is due that would fill the disk if it came each time; the next one then is so much
 * later. */
static bool is_due(uint64_t *next_ns, uint64_t every_ms)
{
    uint64_t now_ns = time_now_ns();
    if (now_ns < *next_ns)
        return false;
    *next_ns = time_after_ms(now_ns, every_ms);
    return true;
}

static void log_not_sent(struct shard_thread *thread, const struct transfer_sent *sent)
{
    if (is_due(&thread->not_sent_ns, NOT_SENT_MS))
        log_warning(thread->config.logger, "chunk not sent", log_uint("chunk", sent->header.chunk),
                    log_text("to", sent->address), log_text("err", err_name(sent->err)),
                    log_text("why", reason_text(sent->err, &sent->reason)),
                    log_text("next", "again"));
}

/* The chunk will be sent again, at a later moment. */
static void transfer_failed(struct shard_thread *thread, struct transfer_sent *take_sent)
{
    if (err_reaction(take_sent->err) != REACT_WAIT || thread->failures >= NOT_YET_MAX)
        log_not_sent(thread, take_sent);
    unsigned doubled = thread->failures < AGAIN_DOUBLED_MAX ? thread->failures : AGAIN_DOUBLED_MAX;
    thread->failures++;
    take_sent->next = thread->failed;
    thread->failed = take_sent;
    thread->failed_ns = time_after_ms(time_now_ns(), (uint64_t)AGAIN_MS_MIN << doubled);
}

static void send_transfer(struct shard_thread *thread, const struct shard_effect *effect)
{
    enum err err = transfer_send(thread->config.peers, thread->config.index, thread->shard, effect);
    if (err == ERR_OK)
        return;
    log_not_sent(thread, &(struct transfer_sent){.header = effect->transfer.header, .err = err});
    shard_transferred(thread->shard, &effect->transfer.header, err);
    thread->more = true; /* it leaves again, though the shard had no more work when it let it go */
    thread->retry_ns = time_after_ms(time_now_ns(), RETRY_MS);
}

static void log_held_up(struct shard_thread *thread, const struct shard_statistics *statistics,
                        uint64_t step)
{
    if (statistics->held_up > thread->held_up)
        log_warning(
            thread->config.logger, "step waited for a checkpoint to be written",
            log_uint("shard", thread->config.index), log_uint("step", step),
            log_text("next",
                     "more memory (checkpoint.memory_bytes, the machine) or a faster disk helps"));
    thread->held_up = statistics->held_up;
}

/* A run that diverges has only such pushes: a line for each would fill the disk. */
static void log_not_finite(struct shard_thread *thread, const struct shard_effect *effect)
{
    thread->not_finite++;
    if (!is_due(&thread->named_ns, NAMED_MS))
        return;
    log_warning(
        thread->config.logger, "gradient not finite", log_uint("step", effect->not_finite.step),
        log_uint("slot", effect->not_finite.slot), log_uint("chunk", effect->not_finite.chunk),
        log_uint("brought_by", effect->not_finite.member), log_uint("pushes", thread->not_finite),
        log_text("next", "it is not applied"));
    thread->not_finite = 0;
}

static void carry_out_one(struct shard_thread *thread, const struct shard_effect *effect)
{
    const struct shard_thread_config *config = &thread->config;
    struct shard_statistics statistics;
    switch (effect->kind) {
    case SHARD_WEIGHTS:
        shard_unsent(thread->shard,
                     pull_published(effect, config->index, shard_generation(thread->shard)));
        break;
    case SHARD_REFUSAL:
        pull_refused(effect);
        break;
    case SHARD_REDUCED:
        config->events->reduced(config->owner, config->index, &effect->reduced);
        break;
    case SHARD_COMMITTED:
        statistics = shard_statistics(thread->shard);
        log_held_up(thread, &statistics, effect->committed.step);
        if (config->index == 0)
            cut_writer_step_ended(config->cut_writer, time_now_ns());
        config->events->committed(config->owner, config->index, effect->committed.generation,
                                  effect->committed.step, &statistics);
        break;
    case SHARD_SNAPSHOT:
        cut_writer_add(config->cut_writer, config->index, effect);
        break;
    case SHARD_WRONG_BITS:
        config->events->wrong_bits(config->owner, config->index, effect);
        break;
    case SHARD_ORDER:
        add_order(thread, &effect->order);
        break;
    case SHARD_NOT_FINITE:
        log_not_finite(thread, effect);
        break;
    case SHARD_TRANSFER:
        send_transfer(thread, effect);
        break;
    }
}

static void carry_out_shard(struct shard_thread *thread)
{
    struct shard_effects *effects = &thread->effects;
    for (uint32_t i = 0; i < effects->count; i++)
        carry_out_one(thread, &effects->items[i]);
    effects->count = 0;
}

/* ---- what comes in ---- */

/* Sends the answers that waited for the log, as far as the log is on disk; `all`: sends every one,
 * because the shard is gone. */
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
    struct push_count counting = push_count_begin(take_message, thread->config.index);
    while (push_count_next(&counting, thread->shard, &thread->effects))
        carry_out_shard(thread);
    struct push_share share = counting.share;
    if (share.after > 0 && thread->deferred == NULL)
        thread->deferred = calloc(DEFERRED_MAX, sizeof *thread->deferred);
    bool room = thread->deferred != NULL && thread->deferred_count < DEFERRED_MAX;
    if (share.after > 0 && room) {
        uint32_t at = (thread->deferred_first + thread->deferred_count++) % DEFERRED_MAX;
        thread->deferred[at] = (struct deferred){take_message, share};
        return;
    }
    if (share.after > 0) /* pushed again, it is a duplicate */
        share = (struct push_share){0, ERR_BUSY, 0};
    push_share_done(take_message, &share);
}

static void refuse_parked(struct shard_thread *thread, uint64_t member)
{
    for (bool refused = false; !refused;) {
        refused = shard_end_member(thread->shard, member, &thread->effects);
        carry_out_shard(thread);
    }
}

/* The order log has the versions that an attempt is given before they are sent. */
static void handle_pull(struct shard_thread *thread, struct exchange_message *take_message)
{
    struct shard_effects *effects = &thread->effects;
    struct exchange *exchange = take_message->stream->exchange;
    uint64_t member = take_message->stream->member;
    bool ended = false; /* since the pull was admitted, and the pull is parked now */
    uint32_t chunks[WIRE_ENTRIES_MAX];
    if (!pull_ask(take_message, thread->config.index, thread->shard, chunks, effects))
        return;
    for (uint32_t i = 0; i < effects->count; i++) {
        struct shard_effect *effect = &effects->items[i];
        bool answer = effect->kind == SHARD_WEIGHTS || effect->kind == SHARD_REFUSAL;
        check(answer == (i + 1 == effects->count)); /* one, behind all other effects */
        ended = effect->kind == SHARD_REFUSAL && effect->refusal.code == ERR_TOO_EARLY &&
                exchange_has_ended(exchange, member);
        if (ended)
            effect->refusal.code = ERR_UNKNOWN_MEMBER;
        if (answer)
            pull_answer(take_message, effect);
        else
            carry_out_one(thread, effect);
    }
    effects->count = 0;
    if (ended)
        refuse_parked(thread, member);
}

static void handle_message(struct shard_thread *thread, struct exchange_message *message)
{
    unsigned messages = atomic_fetch_sub(&thread->messages, 1);
    check(messages > 0); /* each was counted when it was posted */
    check(atomic_load(&message->left) > 0);
    if (message->content.kind == TO_SHARD_PUSH)
        handle_push(thread, message);
    else
        handle_pull(thread, message);
}

static void forget_transfers(struct shard_thread *thread)
{
    while (thread->failed != NULL) {
        struct transfer_sent *sent = thread->failed;
        thread->failed = sent->next;
        free(sent);
    }
    thread->failures = 0;
}

static void forget_shard(struct shard_thread *thread)
{
    forget_transfers(thread);
    free(thread->late);
    thread->late = NULL;
    if (thread->shard == NULL)
        return;
    for (bool closed = false; !closed;) {
        closed = shard_close(thread->shard, &thread->effects);
        carry_out_shard(thread);
    }
    answer_deferred(thread, true);
    shard_free(thread->shard);
    thread->shard = NULL;
    thread->more = false;
    thread->held_up = 0;
}

/* Async: writes the versions that the chunks begin with to the order log. */
static void say_beginning(struct shard_thread *thread)
{
    uint32_t next = 0;
    bool whole = shard_extra_bytes(thread->shard) == 0;
    while (!whole) {
        whole = shard_begin_order(thread->shard, &next, &thread->effects);
        carry_out_shard(thread);
    }
}

static void handle_prepare(struct shard_thread *thread, struct prepared *take_prepared)
{
    const struct shard_thread_config *config = &thread->config;
    const struct prepared_shard about = {.kernels = config->kernels,
                                         .boot = config->boot,
                                         .copies_bytes_max = config->copies_bytes_max,
                                         .thread = config->index,
                                         .thread_count = config->count};
    struct reason reason = {{0}};
    forget_shard(thread);
    order_writer_wait(config->order_writer, take_prepared->generation);
    enum err err = prepared_shard_new(take_prepared, &about, &thread->shard, &reason);
    check((err == ERR_OK) == (thread->shard != NULL));
    check(err != ERR_OK || shard_generation(thread->shard) == take_prepared->generation);
    if (err == ERR_OK) {
        if (reason.text[0] != 0)
            log_warning(config->logger, "journal ends early", log_text("reason", reason.text),
                        log_text("next", "go on"));
        say_beginning(thread);
    }
    config->events->ready(config->owner, config->index, take_prepared->generation, err,
                          thread->shard, &reason);
    if (thread->shard != NULL && shard_extra_bytes(thread->shard) > 0) {
        shard_report(thread->shard, &thread->effects); /* the new step may be complete already */
        carry_out_shard(thread);
    }
    if (err == ERR_OK && take_prepared->cuts)
        thread->more = shard_snapshot_begin(thread->shard);
    prepared_unref(take_prepared);
}

static void handle_commit(struct shard_thread *thread, struct order *take_order)
{
    const struct commit *commit = &take_order->commit;
    enum err err = ERR_NO_RUN;
    if (thread->shard != NULL)
        err = shard_commit(thread->shard, take_order->boot, commit, &take_order->moves,
                           &thread->effects);
    carry_out_shard(thread);
    thread->more = thread->more || err == ERR_OK;
    if (err != ERR_OK)
        log_warning(
            thread->config.logger, "commit refused", log_uint("generation", commit->generation),
            log_uint("step", commit->step), log_text("err", err_name(err)),
            log_text("next", err == ERR_NOMEM ? "retry" : reaction_name(err_reaction(err))));
    if (err == ERR_NOMEM && thread->late == NULL) {
        thread->late = take_order;
        thread->retry_ns = time_after_ms(time_now_ns(), RETRY_MS);
        return;
    }
    free(take_order);
}

static bool is_ours(const struct shard_thread *thread, uint32_t chunk)
{
    return prepared_thread(chunk, thread->config.count) == thread->config.index;
}

static void handle_arrival(struct shard_thread *thread, struct transfer_arrival *take_arrival)
{
    enum err err = ERR_BEHIND;
    struct cursor payload = {&take_arrival->payload, 1, 0, 0};
    check(is_ours(thread, take_arrival->header.chunk));
    if (thread->shard != NULL)
        err = shard_arrive(thread->shard, &take_arrival->header, payload, &thread->effects);
    carry_out_shard(thread);
    thread->more = thread->shard != NULL;
    transfer_answer(take_arrival, err == ERR_NOMEM ? ERR_BUSY : err);
}

static void handle_transferred(struct shard_thread *thread, struct transfer_sent *take_sent)
{
    bool there = take_sent->err == ERR_OK || take_sent->err == ERR_TOO_LATE;
    check(take_sent->thread == thread->config.index);
    check(is_ours(thread, take_sent->header.chunk));
    if (thread->shard != NULL && !there && err_reaction(take_sent->err) != REACT_REJOIN) {
        transfer_failed(thread, take_sent);
        return;
    }
    if (thread->shard != NULL && there) {
        shard_transferred(thread->shard, &take_sent->header, ERR_OK);
        thread->failures = 0;
        thread->more = true;
    }
    free(take_sent);
}

/* The shard sends a chunk again that was not taken. */
static void send_again(struct shard_thread *thread)
{
    while (thread->failed != NULL) {
        struct transfer_sent *sent = thread->failed;
        thread->failed = sent->next;
        shard_transferred(thread->shard, &sent->header, sent->err);
        free(sent);
    }
    thread->more = true;
}

static void take_logged(struct shard_thread *thread)
{
    thread_lock(&thread->mutex);
    uint64_t generation = thread->logged_generation, logged = thread->logged;
    thread_unlock(&thread->mutex);
    if (thread->shard != NULL && generation == shard_generation(thread->shard))
        shard_logged(thread->shard, logged);
}

static void handle_ask_missing(struct shard_thread *thread, const struct shard_item *item)
{
    struct thread_missing missing = {.generation = item->missing.generation,
                                     .step = item->missing.step,
                                     .question = item->missing.question};
    /* P2: a question about another generation is about other sums. */
    if (thread->shard == NULL || shard_generation(thread->shard) != missing.generation ||
        !shard_missing(thread->shard, &missing.step, missing.slots))
        return;
    missing.lack_count = shard_lacks(thread->shard, missing.step, missing.lacks);
    thread->config.events->missing(thread->config.owner, thread->config.index, &missing);
}

static void handle_ended(struct shard_thread *thread, struct ended_members *take_ended)
{
    for (uint32_t i = 0; i < take_ended->count && thread->shard != NULL; i++)
        refuse_parked(thread, take_ended->members[i]);
    free(take_ended);
}

static void handle_shard_item(struct shard_thread *thread, const struct shard_item *item)
{
    switch (item->kind) {
    case ITEM_MESSAGE:
        handle_message(thread, item->message);
        break;
    case ITEM_PREPARE:
        handle_prepare(thread, item->prepared);
        break;
    case ITEM_COMMIT:
        handle_commit(thread, item->order);
        break;
    case ITEM_ARRIVAL:
        handle_arrival(thread, item->arrival);
        break;
    case ITEM_TRANSFERRED:
        handle_transferred(thread, item->sent);
        break;
    case ITEM_REPORT:
        if (thread->shard != NULL)
            shard_report(thread->shard, &thread->effects);
        carry_out_shard(thread);
        break;
    case ITEM_ASK_MISSING:
        handle_ask_missing(thread, item);
        break;
    case ITEM_ENDED:
        handle_ended(thread, item->ended);
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

/* What a failed check of this thread prints. */
static void describe_shard(const void *object, char *text, size_t bytes)
{
    const struct shard_thread *thread = object;
    if (thread->shard != NULL)
        shard_describe(thread->shard, text, bytes);
}

static void check_event(struct shard_thread *thread)
{
    check(thread->effects.count == 0); /* all are carried out */
    check(thread->deferred_count <= DEFERRED_MAX);
    check(thread->deferred_first < DEFERRED_MAX);
    if (thread->shard != NULL) {
        shard_check_event(thread->shard);
        return;
    }
    check(!thread->more); /* without a shard nothing is left to do, and nobody waits for it */
    check(thread->late == NULL);
    check(thread->failed == NULL);
    check(thread->deferred_count == 0);
}

static void handle_and_check(struct shard_thread *thread, const struct shard_item *item)
{
    scoped(scene_leave) struct scene scene = {"shard item", item->kind, describe_shard, thread};
    scene_enter(&scene);
    check(thread_is_current(&thread->thread));
    handle_shard_item(thread, item);
    check_event(thread);
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
    scoped(scene_leave) struct scene scene = {"shard work", thread->config.index, describe_shard,
                                              thread};
    scene_enter(&scene);
    check(thread->shard != NULL);
    thread->retry_ns = 0; /* unless an effect cannot be carried out yet */
    enum err err = shard_work(thread->shard, &thread->effects, &thread->more);
    if (shard_is_held_up(thread->shard))
        cut_writer_step_waits(thread->config.cut_writer, time_now_ns());
    carry_out_shard(thread);
    check_event(thread);
    answer_deferred(thread, false);
    if (err == ERR_OK)
        return;
    thread->retry_ns = time_after_ms(time_now_ns(), RETRY_MS);
    log_error(thread->config.logger, "step not applied", log_uint("shard", thread->config.index),
              log_uint("version", shard_version(thread->shard)), log_text("err", err_name(err)),
              log_text("next", "retry"));
}

static uint64_t wait_until(const struct shard_thread *thread)
{
    uint64_t until_ns = thread->more || thread->late != NULL ? thread->retry_ns : TIME_NEVER;
    return thread->failed != NULL && thread->failed_ns < until_ns ? thread->failed_ns : until_ns;
}

/* Does what is due: chunks to be sent again, a commit that found no memory. */
static void look_again(struct shard_thread *thread)
{
    uint64_t now_ns = time_now_ns();
    if (thread->late != NULL && now_ns >= thread->retry_ns) {
        struct order *late = thread->late;
        thread->late = NULL;
        handle_commit(thread, late);
    }
    if (thread->failed != NULL && now_ns >= thread->failed_ns)
        send_again(thread);
}

static void run_shard(void *argument)
{
    struct shard_thread *thread = argument;
    struct shard_item items[BATCH];
    for (;;) {
        size_t count = 0;
        enum err err = inbox_take(thread->inbox, wait_until(thread), BATCH, items, &count);
        if (err == ERR_CANCELLED)
            break;
        for (size_t i = 0; i < count; i++)
            handle_and_check(thread, &items[i]);
        forget_gone(thread);
        if (thread->late != NULL || thread->failed != NULL)
            look_again(thread);
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
    struct inbox_limits limits = {sizeof(struct shard_item), MESSAGES_MAX + COMMANDS_MAX};
    enum err err = inbox_new(limits, &thread->inbox);
    char name[16];
    snprintf(name, sizeof name, "shard-%u", config->index);
    if (err == ERR_OK)
        err = thread_start(&thread->thread, name, run_shard, thread);
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
    struct shard_item item = {.kind = ITEM_MESSAGE, .message = message};
    enum err err = ERR_BUSY;
    if (atomic_fetch_add(&thread->messages, 1) < MESSAGES_MAX)
        err = inbox_post(thread->inbox, &item);
    if (err != ERR_OK)
        atomic_fetch_sub(&thread->messages, 1);
    return err;
}

/* Wakes the thread for something outside its inbox. When the inbox is full, the thread is awake
 * anyway. */
static void wake(struct shard_thread *thread)
{
    struct shard_item item = {.kind = ITEM_WAKE};
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
    struct shard_item item = {.kind = ITEM_PREPARE, .prepared = prepared_ref(prepared)};
    enum err err = inbox_post(thread->inbox, &item);
    if (err != ERR_OK)
        prepared_unref(prepared);
    return err;
}

/* How many chunks of the thread leave with the moves, and how many come. */
static struct order count_moves(const struct shard_thread *thread,
                                const struct server_command *command)
{
    struct order order = {.moves = {.file = command->file, .attempt = command->attempt}};
    for (uint32_t i = 0; i < command->move_count; i++) {
        const struct server_move *move = &command->moves[i];
        uint32_t *count = move->to[0] == 0 ? &order.moves.take_count : &order.moves.leave_count;
        for (uint32_t c = 0; c < move->count; c++)
            *count +=
                prepared_thread(move->first + c, thread->config.count) == thread->config.index;
    }
    return order;
}

static void fill_moves(const struct shard_thread *thread, const struct server_command *command,
                       const struct thread_moves *about, struct shard_leave *leaves,
                       struct shard_chunk *takes)
{
    for (uint32_t i = 0; i < command->move_count; i++) {
        const struct server_move *move = &command->moves[i];
        for (uint32_t c = move->first; c < move->first + move->count; c++) {
            if (prepared_thread(c, thread->config.count) != thread->config.index)
                continue;
            if (move->to[0] == 0)
                *takes++ = prepare_chunk(about->model, c);
            else
                *leaves++ = (struct shard_leave){c, about->peers[i]};
        }
    }
}

enum err shard_thread_commit(struct shard_thread *thread, const struct server_command *command,
                             const struct thread_moves *about)
{
    struct order order = count_moves(thread, command);
    size_t leaves_bytes = order.moves.leave_count * sizeof(struct shard_leave);
    size_t takes_bytes = order.moves.take_count * sizeof(struct shard_chunk);
    struct order *copy = malloc(sizeof *copy + takes_bytes + leaves_bytes);
    if (copy == NULL)
        return ERR_NOMEM;
    struct shard_chunk *takes = (struct shard_chunk *)(copy + 1);
    struct shard_leave *leaves = (struct shard_leave *)(takes + order.moves.take_count);
    fill_moves(thread, command, about, leaves, takes);
    *copy = order;
    copy->boot = thread->config.boot;
    copy->commit = command->commit;
    copy->moves.leaves = leaves;
    copy->moves.takes = takes;
    struct shard_item item = {.kind = ITEM_COMMIT, .order = copy};
    enum err err = inbox_post(thread->inbox, &item);
    if (err != ERR_OK)
        free(copy);
    return err;
}

enum err shard_thread_arrival(struct shard_thread *thread, struct transfer_arrival *arrival)
{
    struct shard_item item = {.kind = ITEM_ARRIVAL, .arrival = arrival};
    return inbox_post(thread->inbox, &item);
}

void shard_thread_transferred(struct shard_thread *thread, struct transfer_sent *take_sent)
{
    struct shard_item item = {.kind = ITEM_TRANSFERRED, .sent = take_sent};
    /* Only few transfers are under way, so there is room, unless the thread has ended. */
    if (inbox_post(thread->inbox, &item) != ERR_OK)
        free(take_sent);
}

enum err shard_thread_report(struct shard_thread *thread)
{
    struct shard_item item = {.kind = ITEM_REPORT};
    return inbox_post(thread->inbox, &item);
}

enum err shard_thread_ask_missing(struct shard_thread *thread, const struct server_command *command)
{
    struct shard_item item = {.kind = ITEM_ASK_MISSING,
                              .missing = {command->ask_missing.generation,
                                          command->ask_missing.step,
                                          command->ask_missing.question}};
    return inbox_post(thread->inbox, &item);
}

enum err shard_thread_end_members(struct shard_thread *thread, const struct server_command *command)
{
    uint32_t count = command->ended.member_count;
    size_t bytes = count * sizeof *command->ended.members;
    struct ended_members *copy = malloc(sizeof *copy + bytes);
    if (copy == NULL)
        return ERR_NOMEM;
    copy->count = count;
    if (count > 0)
        memcpy(copy->members, command->ended.members, bytes);
    struct shard_item item = {.kind = ITEM_ENDED, .ended = copy};
    enum err err = inbox_post(thread->inbox, &item);
    if (err != ERR_OK)
        free(copy);
    return err;
}

enum err shard_thread_end(struct shard_thread *thread)
{
    struct shard_item item = {.kind = ITEM_END};
    return inbox_post(thread->inbox, &item);
}
