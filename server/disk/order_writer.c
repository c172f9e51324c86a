/* One order log, one thread, one journal. */
#include "server/disk/order_writer.h"

#include "common/files/order.h"
#include "common/inbox.h"
#include "common/scoped.h"
#include "common/thread.h"
#include "common/time.h"
#include "server/disk/journal.h"

#include <string.h>

enum {
    ITEMS_MAX = 16384,
    BATCH = 64,
    THREADS_MAX = 64,
    PATH_BYTES = 4096,
    RETRY_MS = 500, /* on a full disk */
};

enum order_item_kind { ITEM_ORDER, ITEM_PREPARE, ITEM_CUT, ITEM_RECORDED };

struct written {
    uint32_t thread;
    uint64_t generation;
    struct shard_order order; /* its entries are behind */
    struct shard_order_entry entries[];
};

struct order_item {
    enum order_item_kind kind;
    union {
        struct written *written;
        struct {
            struct prepared *run;
            uint64_t number;
        } prepare;
        uint64_t version;
        struct cut_name recorded;
    };
};

struct order_writer {
    struct order_writer_config config;
    struct inbox *inbox;
    struct thread thread;
    struct thread_mutex mutex; /* guards the four below */
    struct thread_cond changed;
    bool ending;
    uint64_t told;              /* how often a run was prepared or ended: the newest one's number */
    uint64_t wanted, begun;     /* numbers of runs: the newest that was prepared; the one it is */
    uint64_t wanted_generation; /* of the newest that was prepared */

    struct thread_mutex order_mutex; /* guards the three below */
    struct file_log order;
    uint64_t order_generation; /* 0: none is open */
    struct buf line;

    /* The thread's own. */
    struct prepared *run; /* a reference; NULL: no run yet */
    uint64_t number;      /* of the run */
    struct journal journal;
    bool has_journal, broken;
    bool gave_up; /* the journal has no room, and nobody waits for it: what is left is dropped */
    uint64_t durable[THREADS_MAX], put[THREADS_MAX]; /* gradients of each thread's shard */
};

/* ---- the order log ---- */

static void say_gap_locked(struct order_writer *writer, enum err err, const struct reason *reason)
{
    log_warning(writer->config.logger, "order log has a gap", log_text("err", err_name(err)),
                log_text("reason", reason->text), log_text("next", "the run cannot be replayed"));
    file_log_release(&writer->order);
}

static enum err put_line_locked(struct order_writer *writer, const struct shard_order *order)
{
    static const enum order_kind kinds[] = {[SHARD_ORDER_BEGIN] = ORDER_BEGIN,
                                            [SHARD_ORDER_PULL] = ORDER_PULL,
                                            [SHARD_ORDER_TAKE] = ORDER_TAKE};
    struct order_chunk chunks[ORDER_CHUNKS_MAX];
    check(order->count <= ORDER_CHUNKS_MAX);
    for (uint32_t i = 0; i < order->count; i++)
        chunks[i] = (struct order_chunk){order->entries[i].chunk, order->entries[i].version,
                                         order->entries[i].used};
    const struct order_chunks line = {.kind = kinds[order->kind],
                                      .attempt = order->attempt,
                                      .ticket = order->ticket,
                                      .scale = order->scale,
                                      .generation = writer->order_generation,
                                      .boot = writer->config.boot,
                                      .count = order->count,
                                      .chunks = chunks};
    return order_append_chunks(&writer->line, &line);
}

_Static_assert((int)ORDER_CHUNKS_MAX == (int)WIRE_ENTRIES_MAX, "a push is one record");

/* The shard is gone: nobody has seen what it did. */
static void write_line(struct order_writer *writer, uint64_t generation,
                       const struct shard_order *order)
{
    struct reason reason = {{0}};
    thread_lock(&writer->order_mutex);
    if (writer->order.path != NULL && writer->order_generation == generation) {
        writer->line.bytes = 0;
        enum err err = put_line_locked(writer, order);
        if (err == ERR_OK)
            err = file_log_append(&writer->order, buf_slice(&writer->line), &reason);
        if (err != ERR_OK)
            say_gap_locked(writer, err, &reason);
    }
    thread_unlock(&writer->order_mutex);
}

/* ---- the journal ---- */

typedef enum err write_fn(struct order_writer *writer, struct reason *reason);

static void fail(struct order_writer *writer, const struct reason *reason)
{
    writer->broken = true;
    writer->config.failed(writer->config.owner, reason);
}

static bool superseded_locked(const struct order_writer *writer)
{
    return writer->told != writer->number;
}

/* Waits a while; false: the daemon or the run ends, or another generation is to begin. */
static bool pause_unless_over(struct order_writer *writer)
{
    uint64_t until_ns = time_after_ms(time_now_ns(), RETRY_MS);
    enum err err = ERR_OK;
    thread_lock(&writer->mutex);
    while (!writer->ending && !superseded_locked(writer) && err == ERR_OK)
        err = thread_wait_locked(&writer->changed, &writer->mutex, until_ns);
    bool over = writer->ending || superseded_locked(writer);
    thread_unlock(&writer->mutex);
    return !over;
}

/* Tries again until there is room for what is to be written, or nobody waits for it any more. */
static enum err try_later(struct order_writer *writer, write_fn *write, uint64_t needed_bytes,
                          struct reason *reason)
{
    enum err err = ERR_NO_SPACE;
    log_error(writer->config.logger, "journal not written", log_text("err", err_name(err)),
              log_text("reason", reason->text), log_uint("needed_bytes", needed_bytes),
              log_text("next", "again when there is room"));
    writer->config.full(writer->config.owner, true);
    while (err == ERR_NO_SPACE && pause_unless_over(writer))
        err = write(writer, reason);
    writer->config.full(writer->config.owner, false);
    return err;
}

static enum err commit_record(struct order_writer *writer, struct reason *reason)
{
    return journal_commit(&writer->journal, reason);
}

static bool writes_journal(const struct order_writer *writer)
{
    return writer->has_journal && !writer->broken && !writer->gave_up;
}

/* Writes the record to the disk; the journal is broken when that fails. */
static void commit_journal(struct order_writer *writer)
{
    struct reason reason = {{0}};
    if (!writes_journal(writer) || writer->journal.count == 0)
        return;
    enum err err = commit_record(writer, &reason);
    if (err == ERR_NO_SPACE)
        err = try_later(writer, commit_record, writer->journal.record.bytes, &reason);
    writer->gave_up = err == ERR_NO_SPACE; /* nothing was acknowledged */
    if (writer->gave_up)
        return;
    if (err != ERR_OK) {
        fail(writer, &reason);
        return;
    }
    check(writer->journal.count == 0); /* all of it is on disk */
    for (uint32_t i = 0; i < writer->config.threads; i++) {
        check(writer->durable[i] <= writer->put[i]);
        if (writer->durable[i] == writer->put[i])
            continue;
        writer->durable[i] = writer->put[i];
        writer->config.logged(writer->config.owner, i, writer->run->generation, writer->durable[i]);
    }
}

static void put_gradients(struct order_writer *writer, const struct written *written)
{
    const struct shard_order *order = &written->order;
    check(written->thread < writer->config.threads);
    for (uint32_t i = 0; i < order->count && writes_journal(writer); i++) {
        const struct shard_order_entry *entry = &written->entries[i];
        if (entry->gradient == NULL)
            continue;
        const struct journal_entry gradient = {
            .chunk = entry->chunk,
            .n = (uint32_t)(entry->gradient->bytes / sizeof(float)),
            .ticket = order->ticket,
            .version = entry->version,
            .scale = order->scale,
            .gradient = (const float *)(const void *)entry->gradient->data,
        };
        if (journal_put(&writer->journal, &gradient) != ERR_OK) {
            struct reason reason;
            ignore(reason_set(&reason, ERR_NOMEM, "no memory for the journal"));
            fail(writer, &reason);
        }
        writer->put[written->thread]++;
        if (journal_is_full(&writer->journal))
            commit_journal(writer);
    }
}

static void handle_order(struct order_writer *writer, struct written *take_written)
{
    /* The shard is gone: nobody waits for its gradients. */
    if (writer->run != NULL && take_written->generation == writer->run->generation)
        put_gradients(writer, take_written);
    for (uint32_t i = 0; i < take_written->order.count; i++)
        counted_unref(take_written->entries[i].gradient);
    free(take_written);
}

/* ---- runs and cuts ---- */

/* P3: a start that has lost the numbers of the starts before is named behind them all the same:
 * readers take the files in the order of their names. */
static enum err name_order(const char *folder, struct order_name *name, struct reason *reason)
{
    scoped(file_names_release) struct file_names files = {0};
    TRY(file_list(folder, &files, reason));
    for (size_t i = 0; i < files.count; i++) {
        struct order_name other;
        if (order_parse_name(files.names[i], &other) && other.server == name->server &&
            other.generation == name->generation && other.boot >= name->boot)
            name->boot = other.boot + 1;
    }
    return ERR_OK;
}

static enum err open_order_locked(struct order_writer *writer, struct reason *reason)
{
    const struct prepared *run = writer->run;
    struct order_name name = {run->generation, writer->config.boot, run->server};
    char folder[PATH_BYTES], file[ORDER_NAME_BYTES], path[PATH_BYTES + ORDER_NAME_BYTES];
    snprintf(folder, sizeof folder, "%.4000s/../" ORDER_FOLDER, run->checkpoint_dir);
    TRY(file_make_dirs(folder, 0755, reason));
    TRY(name_order(folder, &name, reason));
    order_name_file(name, file);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return file_log_open(writer->config.ops, path, &writer->order, reason);
}

static void open_order(struct order_writer *writer)
{
    struct reason reason = {{0}};
    thread_lock(&writer->order_mutex);
    writer->order_generation = writer->run->generation;
    enum err err = open_order_locked(writer, &reason);
    if (err != ERR_OK)
        say_gap_locked(writer, err, &reason);
    thread_unlock(&writer->order_mutex);
    if (err == ERR_NOT_SYNCED)
        fail(writer, &reason);
}

static enum err open_journal(struct order_writer *writer, struct reason *reason)
{
    const struct prepared *run = writer->run;
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%.4000s/" JOURNAL_FOLDER, run->checkpoint_dir);
    struct journal_name name = {
        .generation = run->generation, .boot = writer->config.boot, .server = run->server};
    return journal_open(writer->config.ops, folder, name, &writer->journal, reason);
}

static void close_run(struct order_writer *writer)
{
    commit_journal(writer);
    thread_lock(&writer->order_mutex);
    file_log_release(&writer->order);
    thread_unlock(&writer->order_mutex);
    journal_release(&writer->journal);
    writer->has_journal = writer->broken = writer->gave_up = false;
    memset(writer->durable, 0, sizeof writer->durable);
    memset(writer->put, 0, sizeof writer->put);
    prepared_unref(writer->run);
    writer->run = NULL;
}

static void say_begun(struct order_writer *writer)
{
    thread_lock(&writer->mutex);
    writer->begun = writer->number;
    thread_wake_all(&writer->changed);
    thread_unlock(&writer->mutex);
}

/* On a full disk the shards go on before there is a journal. Their gradients wait in the inbox. */
static void begin_journal(struct order_writer *writer)
{
    struct reason reason = {{0}};
    enum err err = open_journal(writer, &reason);
    if (err == ERR_NO_SPACE) {
        say_begun(writer);
        err = try_later(writer, open_journal, JOURNAL_HEAD_BYTES, &reason);
    }
    writer->has_journal = err != ERR_NO_SPACE; /* no room: nobody waits for it any more */
    if (writer->has_journal && err != ERR_OK)
        fail(writer, &reason);
}

static void handle_prepare(struct order_writer *writer, struct prepared *take_run, uint64_t number)
{
    close_run(writer);
    writer->run = take_run;
    writer->number = number;
    if (!take_run->joins) /* else it has no chunks */
        open_order(writer);
    if (!take_run->joins && take_run->spec.checkpoint.durability == SPEC_DURABILITY_LOGGED)
        begin_journal(writer);
    if (take_run->cuts)
        journal_note_cut(&writer->journal, take_run->version);
    say_begun(writer);
}

static void handle_cut(struct order_writer *writer, uint64_t version)
{
    struct reason reason = {{0}};
    commit_journal(writer);
    if (!writes_journal(writer))
        return;
    enum err err = journal_cut(&writer->journal, version, &reason);
    if (err == ERR_NOT_SYNCED)
        fail(writer, &reason);
    else if (err != ERR_OK) /* then the older segment goes on, and stays longer */
        log_warning(writer->config.logger, "journal segment not begun",
                    log_text("err", err_name(err)), log_text("reason", reason.text),
                    log_text("next", "after the next checkpoint"));
}

static void handle_recorded(struct order_writer *writer, struct cut_name cut)
{
    char folder[PATH_BYTES];
    if (writer->run == NULL || cut.generation != writer->run->generation)
        return;
    struct journal_name keep = {
        .generation = cut.generation, .boot = writer->config.boot, .server = writer->run->server};
    /* There is no journal: the cut needs no files of this boot beside it. */
    if (writer->has_journal && !journal_needed(&writer->journal, cut.version, &keep))
        return;
    snprintf(folder, sizeof folder, "%.4000s/" JOURNAL_FOLDER, writer->run->checkpoint_dir);
    /* files that are not removed now are removed after the next cut */
    ignore(journal_prune(writer->config.ops, folder, keep, NULL));
}

/* ---- the thread ---- */

static void handle_item(struct order_writer *writer, const struct order_item *item)
{
    check(thread_is_current(&writer->thread));
    check(!writer->has_journal || writer->run != NULL);
    switch (item->kind) {
    case ITEM_ORDER:
        handle_order(writer, item->written);
        break;
    case ITEM_PREPARE:
        handle_prepare(writer, item->prepare.run, item->prepare.number);
        break;
    case ITEM_CUT:
        handle_cut(writer, item->version);
        break;
    case ITEM_RECORDED:
        handle_recorded(writer, item->recorded);
        break;
    }
}

static void write_orders(void *argument)
{
    struct order_writer *writer = argument;
    struct order_item items[BATCH];
    size_t count;
    while (inbox_take(writer->inbox, TIME_NEVER, BATCH, items, &count) == ERR_OK) {
        for (size_t i = 0; i < count; i++)
            handle_item(writer, &items[i]);
        commit_journal(writer);
    }
    close_run(writer);
}

static void writer_release(struct order_writer *writer)
{
    thread_cond_release(&writer->changed);
    thread_mutex_release(&writer->mutex);
    thread_mutex_release(&writer->order_mutex);
    buf_release(&writer->line);
    free(writer);
}

enum err order_writer_new(const struct order_writer_config *config,
                          struct order_writer **ret_writer)
{
    check(config->threads <= THREADS_MAX);
    struct order_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL)
        return ERR_NOMEM;
    writer->config = *config;
    thread_mutex_init(&writer->mutex);
    thread_mutex_init(&writer->order_mutex);
    thread_cond_init(&writer->changed);
    enum err err =
        inbox_new((struct inbox_limits){sizeof(struct order_item), ITEMS_MAX}, &writer->inbox);
    if (err == ERR_OK)
        err = thread_start(&writer->thread, "order", write_orders, writer);
    if (err != ERR_OK) {
        inbox_free(writer->inbox);
        writer_release(writer);
        return err;
    }
    *ret_writer = writer;
    return ERR_OK;
}

void order_writer_free(struct order_writer *writer)
{
    if (writer == NULL)
        return;
    thread_lock(&writer->mutex);
    writer->ending = true;
    thread_wake_all(&writer->changed);
    thread_unlock(&writer->mutex);
    inbox_close(writer->inbox);
    thread_join(&writer->thread);
    inbox_free(writer->inbox);
    writer_release(writer);
}

/* The run that it writes for is over; the number of what comes next. */
static uint64_t end_present(struct order_writer *writer)
{
    thread_lock(&writer->mutex);
    uint64_t number = ++writer->told;
    thread_wake_all(&writer->changed);
    thread_unlock(&writer->mutex);
    return number;
}

enum err order_writer_prepare(struct order_writer *writer, struct prepared *run)
{
    uint64_t generation = run->generation;
    uint64_t number = end_present(writer);
    struct order_item item = {.kind = ITEM_PREPARE, .prepare = {prepared_ref(run), number}};
    enum err err = inbox_post(writer->inbox, &item);
    if (err != ERR_OK) {
        prepared_unref(run);
        return err;
    }
    thread_lock(&writer->mutex);
    writer->wanted = number;
    writer->wanted_generation = generation;
    thread_unlock(&writer->mutex);
    return ERR_OK;
}

void order_writer_end(struct order_writer *writer)
{
    end_present(writer);
}

void order_writer_wait(struct order_writer *writer, uint64_t generation)
{
    enum err err = ERR_OK;
    thread_lock(&writer->mutex);
    while (writer->wanted_generation >= generation && writer->begun < writer->wanted &&
           err == ERR_OK)
        err = thread_wait_locked(&writer->changed, &writer->mutex, TIME_NEVER);
    thread_unlock(&writer->mutex);
}

static bool has_gradients(const struct shard_order *order)
{
    for (uint32_t i = 0; i < order->count; i++)
        if (order->entries[i].gradient != NULL)
            return true;
    return false;
}

enum err order_writer_add(struct order_writer *writer, uint32_t thread, uint64_t generation,
                          const struct shard_order *take_order)
{
    check(thread < writer->config.threads);
    write_line(writer, generation, take_order);
    if (!has_gradients(take_order))
        return ERR_OK;
    size_t entries_bytes = take_order->count * sizeof *take_order->entries;
    struct written *written = malloc(sizeof *written + entries_bytes);
    enum err err = ERR_NOMEM;
    if (written != NULL) {
        *written =
            (struct written){.thread = thread, .generation = generation, .order = *take_order};
        memcpy(written->entries, take_order->entries, entries_bytes);
        written->order.entries = written->entries;
        err =
            inbox_post(writer->inbox, &(struct order_item){.kind = ITEM_ORDER, .written = written});
    }
    if (err == ERR_OK)
        return ERR_OK;
    for (uint32_t i = 0; i < take_order->count; i++)
        counted_unref(take_order->entries[i].gradient);
    free(written);
    return err;
}

enum err order_writer_cut(struct order_writer *writer, uint64_t version)
{
    return inbox_post(writer->inbox, &(struct order_item){.kind = ITEM_CUT, .version = version});
}

enum err order_writer_recorded(struct order_writer *writer, struct cut_name cut)
{
    return inbox_post(writer->inbox, &(struct order_item){.kind = ITEM_RECORDED, .recorded = cut});
}
