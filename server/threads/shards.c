/* One daemon's shard threads and writers, and the pure core (server/member/) that stands between
 * them and the coordinator. */
#include "server/threads/shards.h"

#include "common/scene.h"
#include "common/scoped.h"
#include "common/thread.h"
#include "server/disk/cut_writer.h"
#include "server/disk/order_writer.h"
#include "server/member/member.h"
#include "server/threads/exchange.h"
#include "server/threads/shard_thread.h"

struct shards {
    struct shards_config config;
    const struct kernels *kernels;
    struct exchange exchange;
    struct cut_writer *cut_writer;
    struct order_writer *order_writer;
    struct transfer_peers *peers;
    struct prepared *prepared; /* main thread's: the newest; NULL: none */

    struct thread_mutex mutex; /* guards everything below */
    struct server_member member;
};

/* ---- what the core reports ---- */

/* No command may be lost, because the coordinator sends a command again only after a new hello. */
static void lost(const struct shards *shards, const char *what, enum err err)
{
    if (err == ERR_OK)
        return;
    struct reason reason;
    ignore(reason_set(&reason, err, "a shard thread cannot take the command '%s': %s", what,
                      err_text(err))); /* the process ends; only the sentence is needed */
    shards->config.failed(shards->config.logger, &reason);
}

static void not_pruned(const struct shards *shards, enum err err)
{
    if (err != ERR_OK)
        log_warning(shards->config.logger, "old files not removed", log_text("err", err_name(err)),
                    log_text("next", "the next checkpoint removes them"));
}

static void report_reduced(const struct shards *shards)
{
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++)
        lost(shards, "report", shard_thread_report(shards->exchange.threads[i]));
}

static void ask_missing(const struct shards *shards, const struct server_command *command)
{
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++)
        lost(shards, "question", shard_thread_ask_missing(shards->exchange.threads[i], command));
}

static void end_threads(const struct shards *shards)
{
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++)
        lost(shards, "end", shard_thread_end(shards->exchange.threads[i]));
}

static void admit(struct shards *shards, const struct admission_term *term)
{
    thread_lock(&shards->exchange.mutex);
    admission_set(&shards->exchange.admission, term);
    thread_unlock(&shards->exchange.mutex);
}

static void end_members(struct shards *shards, const struct server_command *command)
{
    thread_lock(&shards->exchange.mutex);
    admission_end(&shards->exchange.admission, command);
    thread_unlock(&shards->exchange.mutex);
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++)
        ignore(shard_thread_end_members(shards->exchange.threads[i],
                                        command)); /* their pulls stay parked until answered */
}

static void decide(struct shards *shards, const struct commit *commit)
{
    thread_lock(&shards->exchange.mutex);
    admission_decided(&shards->exchange.admission, commit->generation, commit->step);
    thread_unlock(&shards->exchange.mutex);
}

static void prepare_threads(struct shards *shards, const struct server_command *command);
static void commit_threads(struct shards *shards, const struct server_command *command);

static void prune_journal(struct shards *shards, const struct recorded_cut *cut)
{
    const struct cut_name name = {cut->generation, cut->version};
    not_pruned(shards, order_writer_recorded(shards->order_writer, name));
}

/* Carries the effects of one event out, from first to last. `command` is the event, when it was one
 * of the coordinator's. The mutex is not held: reports go out without it. */
static void carry_out_member(struct shards *shards, const struct member_effects *effects,
                             const struct server_command *command)
{
    for (uint32_t i = 0; i < effects->count; i++) {
        const struct member_effect *effect = &effects->list[i];
        switch (effect->kind) {
        case MEMBER_REPORT:
            check(effect->report.boot == shards->config.boot); /* P3 */
            shards->config.report(shards->config.owner, &effect->report);
            break;
        case MEMBER_PREPARE:
            check(command != NULL && command->kind == SERVER_PREPARE);
            prepare_threads(shards, command);
            break;
        case MEMBER_COMMIT:
            check(command != NULL && command->kind == SERVER_COMMIT);
            decide(shards, &command->commit);
            commit_threads(shards, command);
            break;
        case MEMBER_JOURNAL_CUT:
            lost(shards, "cut", order_writer_cut(shards->order_writer, effect->version));
            break;
        case MEMBER_PRUNE:
            not_pruned(shards, cut_writer_prune(shards->cut_writer, effect->recorded));
            break;
        case MEMBER_JOURNAL_PRUNE:
            prune_journal(shards, &effect->recorded);
            break;
        case MEMBER_ADMIT:
            admit(shards, &effect->admit);
            break;
        case MEMBER_ENDED:
            end_members(shards, command);
            break;
        case MEMBER_SERVE:
            atomic_store(&shards->exchange.generation, effect->generation);
            break;
        case MEMBER_END:
            order_writer_end(shards->order_writer);
            end_threads(shards);
            break;
        case MEMBER_ASK_MISSING:
            check(command != NULL && command->kind == SERVER_ASK_MISSING);
            ask_missing(shards, command);
            break;
        case MEMBER_REPORT_REDUCED:
            report_reduced(shards);
            break;
        }
    }
}

/* ---- events of threads and writers ---- */

/* A failed fsync: what was written may or may not be on disk. Only a restart, which reads it, can
 * tell. */
static void end_if_not_synced(const struct shards *shards, enum err err,
                              const struct reason *reason)
{
    if (err == ERR_NOT_SYNCED)
        shards->config.failed(shards->config.logger, reason);
}

/* After an event, before its effects are carried out. */
static void unlock_checked(struct shards *shards)
{
    scoped(scene_leave) struct scene scene = {"member", shards->member.committed, member_describe,
                                              &shards->member};
    scene_enter(&scene);
    member_check(&shards->member);
    thread_unlock(&shards->mutex);
}

static void thread_ready(void *owner, uint32_t index, uint64_t generation, enum err err,
                         const struct shard *shard, const struct reason *reason)
{
    struct shards *shards = owner;
    struct member_effects effects;
    const struct member_ready ready = {index, generation, err, reason, shard};
    end_if_not_synced(shards, err, reason);
    thread_lock(&shards->mutex);
    member_thread_ready(&shards->member, &ready, &effects);
    unlock_checked(shards);
    carry_out_member(shards, &effects, NULL);
}

static void thread_reduced(void *owner, uint32_t index, const struct reduced *reduced)
{
    (void)index;
    struct shards *shards = owner;
    struct member_effects effects;
    thread_lock(&shards->mutex);
    member_thread_reduced(&shards->member, reduced, &effects);
    unlock_checked(shards);
    carry_out_member(shards, &effects, NULL);
}

static void thread_committed(void *owner, uint32_t index, uint64_t generation, uint64_t step,
                             const struct shard_statistics *statistics)
{
    struct shards *shards = owner;
    struct member_effects effects;
    const struct member_committed committed = {index, generation, step, statistics};
    thread_lock(&shards->mutex);
    member_thread_committed(&shards->member, &committed, &effects);
    unlock_checked(shards);
    carry_out_member(shards, &effects, NULL);
}

static void thread_missing(void *owner, uint32_t index, const struct thread_missing *missing)
{
    (void)index;
    struct shards *shards = owner;
    struct member_effects effects;
    const struct member_missing lacks = {missing->generation, missing->step,
                                         missing->question,   missing->slots,
                                         missing->lack_count, missing->lacks};
    thread_lock(&shards->mutex);
    member_thread_missing(&shards->member, &lacks, &effects);
    unlock_checked(shards);
    carry_out_member(shards, &effects, NULL);
}

static void thread_wrong_bits(void *owner, uint32_t index, const struct shard_effect *effect)
{
    (void)index;
    struct shards *shards = owner;
    struct member_effects effects;
    thread_lock(&shards->mutex);
    member_wrong_bits(&shards->member, effect, &effects);
    unlock_checked(shards);
    carry_out_member(shards, &effects, NULL);
}

static const struct shard_thread_events thread_events = {
    .ready = thread_ready,
    .reduced = thread_reduced,
    .committed = thread_committed,
    .missing = thread_missing,
    .wrong_bits = thread_wrong_bits,
};

static void cut_written(void *owner, const struct cut_written *written,
                        const struct digest *manifest, const struct reason *reason)
{
    struct shards *shards = owner;
    struct member_effects effects;
    const struct member_cut cut = {written->cut, written->attempt, written->err, manifest->bytes};
    end_if_not_synced(shards, written->err, reason);
    thread_lock(&shards->mutex);
    member_cut_written(&shards->member, &cut, &effects);
    unlock_checked(shards);
    carry_out_member(shards, &effects, NULL);
}

static void gradients_logged(void *owner, uint32_t thread, uint64_t generation, uint64_t durable)
{
    struct shards *shards = owner;
    check(thread < shards->exchange.thread_count);
    shard_thread_logged(shards->exchange.threads[thread], generation, durable);
}

static void journal_full(void *owner, bool full)
{
    struct shards *shards = owner;
    struct member_effects effects;
    thread_lock(&shards->mutex);
    member_journal_full(&shards->member, full, &effects);
    unlock_checked(shards);
    carry_out_member(shards, &effects, NULL);
}

static void journal_failed(void *owner, const struct reason *reason)
{
    const struct shards *shards = owner;
    shards->config.failed(shards->config.logger, reason);
}

static void copy_freed(void *owner, uint32_t thread)
{
    struct shards *shards = owner;
    check(thread < shards->exchange.thread_count);
    shard_thread_wake(shards->exchange.threads[thread]);
}

/* ---- chunks on their way ---- */

static void chunk_sent(void *owner, struct transfer_sent *take_sent)
{
    struct shards *shards = owner;
    check(take_sent->thread < shards->exchange.thread_count);
    check(take_sent->thread == exchange_thread(&shards->exchange, take_sent->header.chunk));
    shard_thread_transferred(shards->exchange.threads[take_sent->thread], take_sent);
}

static enum err chunk_arrived(void *owner, struct transfer_arrival *arrival)
{
    struct shards *shards = owner;
    uint32_t thread = exchange_thread(&shards->exchange, arrival->header.chunk);
    return shard_thread_arrival(shards->exchange.threads[thread], arrival);
}

/* ---- life ---- */

static enum err start_threads(struct shards *shards)
{
    const struct shards_config *config = &shards->config;
    uint32_t count = config->threads == 0 ? thread_core_count() : config->threads;
    count = count < MEMBER_THREADS_MAX ? count : MEMBER_THREADS_MAX;
    member_init(&shards->member, config->boot, count);
    shards->exchange.boot = config->boot;
    TRY(admission_init(&shards->exchange.admission));
    shards->exchange.threads = calloc(count, sizeof(struct shard_thread *));
    if (shards->exchange.threads == NULL)
        return ERR_NOMEM;
    shards->exchange.post = shard_thread_message;
    TRY(transfer_peers_new(&(struct transfer_config){.loop = config->loop,
                                                     .identity = config->identity,
                                                     .sent = chunk_sent,
                                                     .arrived = chunk_arrived,
                                                     .owner = shards},
                           &shards->peers));
    TRY(cut_writer_new(&(struct cut_writer_config){.ops = &file_ops_real,
                                                   .logger = config->logger,
                                                   .threads = count,
                                                   .late_ms = CUT_WRITER_LATE_MS,
                                                   .written = cut_written,
                                                   .freed = copy_freed,
                                                   .owner = shards},
                       &shards->cut_writer));
    TRY(order_writer_new(&(struct order_writer_config){.ops = &file_ops_real,
                                                       .logger = config->logger,
                                                       .threads = count,
                                                       .boot = config->boot,
                                                       .logged = gradients_logged,
                                                       .full = journal_full,
                                                       .failed = journal_failed,
                                                       .owner = shards},
                         &shards->order_writer));
    struct shard_thread_config thread = {.count = count,
                                         .boot = config->boot,
                                         .kernels = shards->kernels,
                                         .copies_bytes_max = config->copies_bytes_max,
                                         .logger = config->logger,
                                         .cut_writer = shards->cut_writer,
                                         .order_writer = shards->order_writer,
                                         .peers = shards->peers,
                                         .events = &thread_events,
                                         .owner = shards};
    for (; thread.index < count; thread.index++) {
        TRY(shard_thread_new(&thread, &shards->exchange.threads[thread.index]));
        shards->exchange.thread_count++;
    }
    return ERR_OK;
}

enum err shards_new(const struct shards_config *config, struct shards **ret_shards,
                    struct reason *reason)
{
    struct shards *shards = calloc(1, sizeof *shards);
    if (shards == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory for the shards");
    shards->config = *config;
    thread_mutex_init(&shards->mutex);
    thread_mutex_init(&shards->exchange.mutex);
    struct kernels_options options = {.backend = KERNELS_CPU};
    char text[256];
    if (!kernels_new(&options, &shards->kernels, text, sizeof text)) {
        shards_free(shards);
        return reason_set(reason, ERR_UNSUPPORTED, "cannot compute here: %s", text);
    }
    enum err err = start_threads(shards);
    if (err != ERR_OK) {
        shards_free(shards);
        return reason_set(reason, err, "cannot start the shard threads: %s", err_text(err));
    }
    *ret_shards = shards;
    return ERR_OK;
}

void shards_free(struct shards *shards)
{
    if (shards == NULL)
        return;
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++)
        shard_thread_stop(shards->exchange.threads[i]);
    transfer_peers_free(shards->peers);
    cut_writer_free(shards->cut_writer); /* before the threads: it gives their copies back */
    order_writer_free(shards->order_writer);
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++)
        shard_thread_free(shards->exchange.threads[i]);
    free(shards->exchange.threads);
    prepared_unref(shards->prepared);
    member_release(&shards->member);
    kernels_free(shards->kernels);
    admission_release(&shards->exchange.admission);
    thread_mutex_release(&shards->exchange.mutex);
    thread_mutex_release(&shards->mutex);
    free(shards);
}

/* ---- commands ---- */

static enum err give_to_threads(struct shards *shards, struct prepared *prepared)
{
    TRY(cut_writer_prepare(shards->cut_writer, prepared));
    struct shard_async async = prepare_config(&prepared->spec).async;
    thread_lock(&shards->mutex);
    member_prepared(&shards->member, &async);
    unlock_checked(shards);
    if (async.on)
        TRY(order_writer_prepare(shards->order_writer, prepared));
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++)
        TRY(shard_thread_prepare(shards->exchange.threads[i], prepared));
    return ERR_OK;
}

static void log_prepare(const struct shards *shards, const struct prepared *prepared)
{
    uint64_t copies_bytes = prepare_copies_bytes(&prepared->spec, shards->config.copies_bytes_max);
    log_info(shards->config.logger, "shards prepare", log_uint("generation", prepared->generation),
             log_uint("version", prepared->version), log_uint("chunks", prepared->chunk_count),
             log_uint("copies_bytes", copies_bytes));
}

static void prepare_failed(struct shards *shards, enum err err, const struct reason *reason)
{
    struct member_effects effects;
    thread_lock(&shards->mutex);
    member_prepare_failed(&shards->member, err, reason, &effects);
    unlock_checked(shards);
    carry_out_member(shards, &effects, NULL);
}

static void prepare_threads(struct shards *shards, const struct server_command *command)
{
    struct prepared *prepared = NULL;
    struct reason reason = {{0}};
    struct shared_pool *pool = rpc_loop_pool(shards->config.loop);
    enum err err = prepared_new(command, pool, &prepared, &reason);
    if (err == ERR_OK) {
        log_prepare(shards, prepared);
        err = give_to_threads(shards, prepared);
    }
    if (err != ERR_OK && reason.text[0] == 0)
        ignore(reason_set(&reason, err, "the shard threads cannot prepare: %s", err_text(err)));
    if (err != ERR_OK)
        prepare_failed(shards, err, &reason);
    prepared_unref(shards->prepared);
    shards->prepared = prepared;
}

/* The command's moves after checks, with the peers that get the chunks. */
static enum err judge_moves(struct shards *shards, const struct server_command *command,
                            uint32_t *ret_peers, struct reason *reason)
{
    uint32_t chunks = shards->prepared == NULL ? 0 : shards->prepared->model.chunks_count;
    for (uint32_t i = 0; i < command->move_count; i++) {
        const struct server_move *move = &command->moves[i];
        if (move->first > chunks || move->count > chunks - move->first)
            return reason_set(reason, ERR_INVALID, "chunks %u to %u of %u move", move->first,
                              move->first + move->count, chunks);
        if (move->to[0] != 0)
            TRY(transfer_peer(shards->peers, move->to, &ret_peers[i], reason));
    }
    return ERR_OK;
}

static void moves_lost(struct shards *shards)
{
    thread_lock(&shards->mutex);
    member_moves_lost(&shards->member);
    unlock_checked(shards);
}

static void commit_threads(struct shards *shards, const struct server_command *command)
{
    struct reason reason = {{0}};
    scoped(free_scoped) uint32_t *peers = calloc(command->move_count + 1, sizeof *peers);
    enum err err = peers == NULL ? reason_set(&reason, ERR_NOMEM, "out of memory")
                                 : judge_moves(shards, command, peers, &reason);
    if (err != ERR_OK) {
        moves_lost(shards);
        log_error(shards->config.logger, "commit refused", log_text("err", err_name(err)),
                  log_text("reason", reason.text), log_text("next", "none"));
        return;
    }
    const struct thread_moves about = {shards->prepared == NULL ? NULL : &shards->prepared->model,
                                       peers};
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++)
        lost(shards, "commit", shard_thread_commit(shards->exchange.threads[i], command, &about));
}

void shards_command(struct shards *shards, const struct server_command *command)
{
    struct member_effects effects;
    thread_lock(&shards->mutex);
    member_command(&shards->member, command, &effects);
    unlock_checked(shards);
    carry_out_member(shards, &effects, command);
}

void shards_drain(struct shards *shards)
{
    struct member_effects effects;
    thread_lock(&shards->mutex);
    member_drain(&shards->member, &effects);
    unlock_checked(shards);
    carry_out_member(shards, &effects, NULL);
}

void shards_report_again(struct shards *shards)
{
    struct member_effects effects;
    thread_lock(&shards->mutex);
    member_report_again(&shards->member, &effects);
    unlock_checked(shards);
    carry_out_member(shards, &effects, NULL);
}

bool shards_may_leave(struct shards *shards)
{
    thread_lock(&shards->mutex);
    bool may_leave = shards->member.may_leave;
    thread_unlock(&shards->mutex);
    return may_leave;
}

bool shards_loaded(struct shards *shards)
{
    thread_lock(&shards->mutex);
    bool loaded = member_loaded(&shards->member);
    thread_unlock(&shards->mutex);
    return loaded;
}

struct cut_name shards_held(struct shards *shards)
{
    thread_lock(&shards->mutex);
    struct cut_name held = member_held(&shards->member);
    thread_unlock(&shards->mutex);
    return held;
}

uint64_t shards_term(struct shards *shards)
{
    thread_lock(&shards->mutex);
    uint64_t term = shards->member.term.term;
    thread_unlock(&shards->mutex);
    return term;
}

uint64_t shards_prepared(struct shards *shards)
{
    thread_lock(&shards->mutex);
    uint64_t prepared = member_prepared_generation(&shards->member);
    thread_unlock(&shards->mutex);
    return prepared;
}

struct rpc_method shards_exchange_method(struct shards *shards)
{
    return exchange_method(&shards->exchange);
}

struct rpc_method shards_transfer_method(struct shards *shards)
{
    return transfer_method(shards->peers);
}
