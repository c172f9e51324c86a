/* Commands to all threads; reports of all threads as the server's. */
#include "server/threads/shards.h"

#include "common/scoped.h"
#include "common/thread.h"
#include "server/disk/cut_writer.h"
#include "server/disk/order_writer.h"
#include "server/member/held.h"
#include "server/threads/exchange.h"
#include "server/threads/shard_thread.h"

#include <string.h>

enum { THREADS_MAX = 64 };

/* How far one thread is. */
struct progress {
    bool ready;
    uint64_t committed; /* versions: steps committed */
    struct shard_statistics statistics;
};

struct shards {
    struct shards_config config;
    const struct kernels *kernels;
    struct exchange exchange;
    struct cut_writer *cut_writer;
    struct order_writer *order_writer;
    struct transfer_peers *peers;
    /* Main thread's: */
    uint64_t term;             /* the highest seen (P7) */
    struct prepared *prepared; /* the newest; NULL: none */
    struct held answer;        /* to a new coordinator */
    bool may_leave, draining;

    struct thread_mutex mutex; /* guards everything below */
    bool told;                 /* what to hold, by any command */
    struct cut_name held;      /* being prepared or prepared; 0, 0: nothing */
    enum err prepare_err;
    struct reason prepare_reason;
    uint64_t committed; /* of all threads */
    bool has_manifest;
    struct server_report manifest; /* the newest */
    struct progress progress[THREADS_MAX];
    /* Async: the tickets that the chunks of all threads begin with. */
    bool async, taken_known;
    struct applied taken;
    uint64_t taken_words[APPLIED_WINDOW_MAX / 64];
    uint64_t taken_said[APPLIED_WINDOW_MAX / 64]; /* the same, as it is said */
};

static void report(struct shards *shards, struct server_report *report)
{
    report->boot = shards->config.boot;
    shards->config.report(shards->config.owner, report);
}

/* ---- reports of threads ---- */

static bool all_ready_locked(const struct shards *shards)
{
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++)
        if (!shards->progress[i].ready)
            return false;
    return shards->held.generation != 0;
}

/* The text is in `*ret_reason`, for the call of report(). */
static struct server_report ready_locked(const struct shards *shards, struct reason *ret_reason)
{
    *ret_reason = shards->prepare_reason;
    struct server_report report = {.kind = SERVER_READY,
                                   .ready = {.cut = {shards->held.generation, shards->committed},
                                             .code = shards->prepare_err,
                                             .text = ret_reason->text}};
    if (shards->async)
        report.ready.applied_low = shards->taken_known ? shards->taken.low : UINT64_MAX;
    if (shards->taken_known) {
        report.ready.applied_words = applied_words(shards->taken.window);
        report.ready.applied = shards->taken_said;
    }
    return report;
}

static void meet_locked(struct shards *shards, const struct shard *shard)
{
    if (!shards->async || shard == NULL || !shard_meet(shard, &shards->taken, !shards->taken_known))
        return;
    shards->taken_known = true;
    applied_store(&shards->taken, shards->taken_said);
}

static void thread_ready(void *owner, uint32_t index, uint64_t generation, enum err err,
                         const struct shard *shard, const struct reason *reason)
{
    struct shards *shards = owner;
    struct reason text;
    thread_lock(&shards->mutex);
    bool ours = generation == shards->held.generation;
    if (ours) {
        shards->progress[index].ready = true;
        meet_locked(shards, shard);
    }
    if (ours && err != ERR_OK && shards->prepare_err == ERR_OK) {
        shards->prepare_err = err;
        shards->prepare_reason = *reason;
    }
    bool all = ours && all_ready_locked(shards);
    struct server_report ready = ready_locked(shards, &text);
    thread_unlock(&shards->mutex);
    if (!all)
        return;
    atomic_store(&shards->exchange.generation, generation);
    report(shards, &ready);
}

static void thread_reduced(void *owner, uint32_t index, const struct reduced *reduced)
{
    (void)index;
    struct server_report message = {.kind = SERVER_REDUCED, .reduced = *reduced};
    report(owner, &message);
}

static struct server_report statistics_locked(const struct shards *shards)
{
    struct server_report sum = {.kind = SERVER_STATISTICS};
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++) {
        const struct shard_statistics *statistics = &shards->progress[i].statistics;
        sum.statistics.pushed_bytes += statistics->pushed_bytes;
        sum.statistics.pulled_bytes += statistics->pulled_bytes;
        sum.statistics.duplicates += statistics->duplicates;
        sum.statistics.open_nodes_max += statistics->open_nodes_max;
    }
    return sum;
}

static uint64_t committed_by_all_locked(const struct shards *shards)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++)
        if (shards->progress[i].committed < least)
            least = shards->progress[i].committed;
    return least;
}

static void thread_committed(void *owner, uint32_t index, uint64_t generation, uint64_t step,
                             const struct shard_statistics *statistics)
{
    struct shards *shards = owner;
    struct progress *progress = &shards->progress[index];
    thread_lock(&shards->mutex);
    bool ours = generation == shards->held.generation;
    if (ours && progress->committed < step + 1)
        progress->committed = step + 1;
    progress->statistics = *statistics;
    uint64_t all = committed_by_all_locked(shards);
    /* Asked again is answered again, but not before all are there. */
    bool say = ours && all > step;
    if (say && all > shards->committed)
        shards->committed = all;
    struct server_report sum = statistics_locked(shards);
    thread_unlock(&shards->mutex);
    if (!say)
        return;
    report(shards, &sum);
    struct server_report message = {.kind = SERVER_COMMITTED,
                                    .committed = {.generation = generation, .step = step}};
    report(shards, &message);
}

static void thread_wrong_bits(void *owner, uint32_t index, const struct shard_effect *effect)
{
    (void)index;
    struct server_report message = {.kind = SERVER_WRONG_BITS,
                                    .wrong_bits = {.member = effect->wrong_bits.member,
                                                   .first_member = effect->wrong_bits.first_member,
                                                   .step = effect->wrong_bits.step,
                                                   .node = effect->wrong_bits.node,
                                                   .chunk = effect->wrong_bits.chunk}};
    report(owner, &message);
}

static const struct shard_thread_events thread_events = {
    .ready = thread_ready,
    .reduced = thread_reduced,
    .committed = thread_committed,
    .wrong_bits = thread_wrong_bits,
};

static void cut_written(void *owner, struct cut_name cut, enum err err,
                        const struct digest *manifest, const struct reason *reason)
{
    (void)reason; /* the writer has logged it */
    struct shards *shards = owner;
    struct server_report message = {.kind = SERVER_MANIFEST, .manifest = {.cut = cut, .code = err}};
    memcpy(message.manifest.digest, manifest->bytes, WIRE_DIGEST_BYTES);
    thread_lock(&shards->mutex);
    bool ours = cut.generation == shards->held.generation;
    if (ours) {
        shards->manifest = message;
        shards->has_manifest = true;
    }
    thread_unlock(&shards->mutex);
    if (ours)
        report(shards, &message);
}

static void gradients_logged(void *owner, uint32_t thread, uint64_t generation, uint64_t durable)
{
    struct shards *shards = owner;
    shard_thread_logged(shards->exchange.threads[thread], generation, durable);
}

/* What was written may or may not be on disk: only a restart, which reads it, can say. */
static void journal_failed(void *owner, const struct reason *reason)
{
    const struct shards *shards = owner;
    log_error(shards->config.logger, "journal failed", log_text("reason", reason->text),
              log_text("next", "the daemon ends"));
    _Exit(EXIT_FAILURE);
}

static void copy_freed(void *owner, uint32_t thread)
{
    struct shards *shards = owner;
    shard_thread_wake(shards->exchange.threads[thread]);
}

/* ---- chunks on their way ---- */

static void chunk_sent(void *owner, struct transfer_sent *take_sent)
{
    struct shards *shards = owner;
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
    count = count < THREADS_MAX ? count : THREADS_MAX;
    shards->exchange.boot = config->boot;
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
                                                   .written = cut_written,
                                                   .freed = copy_freed,
                                                   .owner = shards},
                       &shards->cut_writer));
    TRY(order_writer_new(&(struct order_writer_config){.ops = &file_ops_real,
                                                       .logger = config->logger,
                                                       .threads = count,
                                                       .boot = config->boot,
                                                       .logged = gradients_logged,
                                                       .failed = journal_failed,
                                                       .owner = shards},
                         &shards->order_writer));
    struct shard_thread_config thread = {.count = count,
                                         .boot = config->boot,
                                         .kernels = shards->kernels,
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
    cut_writer_free(shards->cut_writer); /* gives copies back to threads that are still there */
    order_writer_free(shards->order_writer);
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++)
        shard_thread_free(shards->exchange.threads[i]);
    free(shards->exchange.threads);
    prepared_unref(shards->prepared);
    held_release(&shards->answer);
    kernels_free(shards->kernels);
    thread_mutex_release(&shards->mutex);
    free(shards);
}

/* ---- commands ---- */

static void say_ready_again(struct shards *shards)
{
    struct reason text;
    thread_lock(&shards->mutex);
    bool say = all_ready_locked(shards);
    struct server_report ready = ready_locked(shards, &text);
    thread_unlock(&shards->mutex);
    if (say)
        report(shards, &ready);
}

/* From here on reports are of this generation. False: it is held already, or older. */
static bool begin_prepare(struct shards *shards, const struct server_command *command)
{
    uint64_t generation = command->prepare.generation;
    thread_lock(&shards->mutex);
    bool newer = generation > shards->held.generation;
    shards->told = true;
    if (newer) {
        bool goes_on = command->prepare.from_cut || command->prepare.joins;
        uint64_t version = goes_on ? command->prepare.cut.version : 0;
        shards->held = (struct cut_name){generation, version};
        shards->prepare_err = ERR_OK;
        shards->prepare_reason = (struct reason){{0}};
        shards->committed = version;
        shards->has_manifest = false;
        memset(shards->progress, 0, sizeof shards->progress);
    }
    thread_unlock(&shards->mutex);
    return newer;
}

/* No thread will be ready: all count as such, with the error. */
static void fail_prepare(struct shards *shards, enum err err, const struct reason *reason)
{
    thread_lock(&shards->mutex);
    shards->prepare_err = err;
    shards->prepare_reason = *reason;
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++)
        shards->progress[i].ready = true;
    thread_unlock(&shards->mutex);
    say_ready_again(shards);
}

static enum err give_to_threads(struct shards *shards, struct prepared *prepared)
{
    TRY(cut_writer_prepare(shards->cut_writer, prepared));
    struct shard_async async = prepare_config(&prepared->spec).async;
    thread_lock(&shards->mutex);
    shards->async = async.on;
    shards->taken_known = false;
    shards->taken = (struct applied){0, applied_window(async.window), shards->taken_words};
    thread_unlock(&shards->mutex);
    if (async.on)
        TRY(order_writer_prepare(shards->order_writer, prepared));
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++)
        TRY(shard_thread_prepare(shards->exchange.threads[i], prepared));
    return ERR_OK;
}

static void prepare(struct shards *shards, const struct server_command *command)
{
    if (!begin_prepare(shards, command)) {
        if (command->prepare.generation == shards_held(shards).generation)
            say_ready_again(shards);
        return;
    }
    struct prepared *prepared = NULL;
    struct reason reason = {{0}};
    held_prepare(&shards->answer, command);
    enum err err = prepared_new(command, &prepared, &reason);
    if (err == ERR_OK)
        err = give_to_threads(shards, prepared);
    if (err != ERR_OK && reason.text[0] == 0)
        reason_set(&reason, err, "the shard threads cannot prepare: %s", err_text(err));
    if (err != ERR_OK)
        fail_prepare(shards, err, &reason);
    prepared_unref(shards->prepared);
    shards->prepared = prepared;
}

/* The command's moves, judged, with the peers that they go to. */
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

static void not_given(const struct shards *shards, const char *what, enum err err)
{
    if (err != ERR_OK)
        log_error(shards->config.logger, "command lost", log_text("command", what),
                  log_text("err", err_name(err)), log_text("next", "the coordinator asks again"));
}

static void end(struct shards *shards)
{
    held_end(&shards->answer);
    thread_lock(&shards->mutex);
    shards->told = true;
    shards->held = (struct cut_name){0, 0};
    shards->has_manifest = false;
    thread_unlock(&shards->mutex);
    atomic_store(&shards->exchange.generation, 0);
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++)
        not_given(shards, "end", shard_thread_end(shards->exchange.threads[i]));
}

static void commit(struct shards *shards, const struct server_command *command)
{
    struct reason reason = {{0}};
    held_commit(&shards->answer, command);
    scoped(free_scoped) uint32_t *peers = calloc(command->move_count + 1, sizeof *peers);
    enum err err = peers == NULL ? reason_set(&reason, ERR_NOMEM, "out of memory")
                                 : judge_moves(shards, command, peers, &reason);
    if (err != ERR_OK) {
        held_end(&shards->answer);
        log_error(shards->config.logger, "commit refused", log_text("err", err_name(err)),
                  log_text("reason", reason.text), log_text("next", "none"));
        return;
    }
    const struct thread_moves about = {shards->prepared == NULL ? NULL : &shards->prepared->model,
                                       peers};
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++) {
        err = shard_thread_commit(shards->exchange.threads[i], command, &about);
        not_given(shards, "commit", err);
        if (err != ERR_OK && command->move_count > 0)
            held_end(&shards->answer); /* its chunks go, or come, some other time */
    }
}

static void say_drain(struct shards *shards)
{
    report(shards, &(struct server_report){.kind = SERVER_DRAIN});
}

void shards_drain(struct shards *shards)
{
    shards->draining = true;
    say_drain(shards);
}

/* A new coordinator, whose term is known by now: nobody else's decisions are taken any more. */
static void answer(struct shards *shards)
{
    struct server_report held = {.kind = SERVER_HELD};
    thread_lock(&shards->mutex);
    bool whole = all_ready_locked(shards) && shards->prepare_err == ERR_OK;
    uint64_t carried_out = shards->committed;
    thread_unlock(&shards->mutex);
    if (whole)
        held.held = held_answer(&shards->answer, carried_out);
    report(shards, &held);
    shards_report_again(shards);
}

bool shards_may_leave(const struct shards *shards)
{
    return shards->may_leave;
}

void shards_command(struct shards *shards, const struct server_command *command)
{
    if (command->term < shards->term || command->boot != shards->config.boot)
        return; /* P7, P3 */
    shards->term = command->term;
    switch (command->kind) {
    case SERVER_PREPARE:
        prepare(shards, command);
        break;
    case SERVER_COMMIT:
        if (shards->async && command->commit.cut)
            not_given(shards, "cut",
                      order_writer_cut(shards->order_writer, command->commit.step + 1));
        commit(shards, command);
        break;
    case SERVER_RECORDED:
        not_given(shards, "recorded", cut_writer_prune(shards->cut_writer, command->recorded));
        if (shards->async)
            not_given(shards, "recorded",
                      order_writer_recorded(shards->order_writer, command->recorded));
        break;
    case SERVER_END:
        end(shards);
        break;
    case SERVER_LEAVE:
        end(shards);
        shards->may_leave = true;
        break;
    case SERVER_ASK:
        answer(shards);
        break;
    }
}

void shards_report_again(struct shards *shards)
{
    say_ready_again(shards);
    thread_lock(&shards->mutex);
    struct server_report manifest = shards->manifest, committed = {.kind = SERVER_COMMITTED};
    bool has_manifest = shards->has_manifest;
    bool has_committed = shards->committed > shards->held.version;
    committed.committed.generation = shards->held.generation;
    committed.committed.step = shards->committed - 1;
    thread_unlock(&shards->mutex);
    if (shards->draining)
        say_drain(shards);
    if (has_committed)
        report(shards, &committed);
    if (has_manifest)
        report(shards, &manifest);
    for (uint32_t i = 0; i < shards->exchange.thread_count; i++)
        not_given(shards, "report", shard_thread_report(shards->exchange.threads[i]));
}

bool shards_loaded(const struct shards *shards)
{
    struct shards *changed = (struct shards *)shards; /* only its mutex */
    thread_lock(&changed->mutex);
    bool nothing = shards->held.generation == 0;
    bool loaded =
        shards->told && shards->prepare_err == ERR_OK && (nothing || all_ready_locked(shards));
    thread_unlock(&changed->mutex);
    return loaded;
}

struct cut_name shards_held(const struct shards *shards)
{
    struct shards *changed = (struct shards *)shards; /* only its mutex */
    thread_lock(&changed->mutex);
    struct cut_name held = shards->held;
    if (held.generation != 0)
        held.version = shards->committed;
    thread_unlock(&changed->mutex);
    return held;
}

struct rpc_method shards_exchange_method(struct shards *shards)
{
    return exchange_method(&shards->exchange);
}

struct rpc_method shards_transfer_method(struct shards *shards)
{
    return transfer_method(shards->peers);
}
