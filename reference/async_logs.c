/* What the order logs say. */
#include "reference/async_logs.h"

#include "common/file.h"
#include "common/files/order.h"
#include "common/scoped.h"

#include <inttypes.h>
#include <string.h>

enum { PATH_BYTES = 4096 };
#define LOG_BYTES_MAX ((size_t)1 << 34)

/* Room for one more at the end of a list; grows at powers of two. */
static void *grow(void *list, size_t count, size_t item_bytes)
{
    if ((count & (count - 1)) != 0)
        return list;
    return reallocarray(list, count == 0 ? 1 : count * 2, item_bytes);
}

static enum err no_memory(struct async_logs *logs)
{
    return reason_set(logs->reason, ERR_NOMEM, "no memory for what the order logs say");
}

/* ---- reading the logs ---- */

static enum err add_branch(struct async_logs *logs, const struct order_chunks *begin,
                           uint32_t chunk, uint64_t version)
{
    struct branch *branches = grow(logs->branches, logs->branch_count, sizeof *branches);
    if (branches == NULL)
        return no_memory(logs);
    logs->branches = branches;
    uint32_t parent = ASYNC_LOGS_NONE;
    for (uint32_t b = 0; b < logs->branch_count; b++)
        if (branches[b].chunk == chunk && branches[b].begin <= version &&
            version <= branches[b].begin + branches[b].taken_count)
            parent = b;
    if (parent == ASYNC_LOGS_NONE && version > 0)
        return reason_set(logs->reason, ERR_CORRUPT,
                          "the order logs do not lead to version %" PRIu64 " of chunk %u", version,
                          chunk);
    logs->newest[chunk] = (uint32_t)logs->branch_count;
    logs->beginnings += parent != ASYNC_LOGS_NONE;
    branches[logs->branch_count++] = (struct branch){.chunk = chunk,
                                                     .parent = parent,
                                                     .begin = version,
                                                     .generation = begin->generation,
                                                     .boot = begin->boot};
    return ERR_OK;
}

static enum err add_pulled(struct async_logs *logs, uint64_t attempt,
                           const struct order_chunk *chunk)
{
    struct pulled *pulled = grow(logs->pulled, logs->pulled_count, sizeof *pulled);
    if (pulled == NULL)
        return no_memory(logs);
    logs->pulled = pulled;
    pulled[logs->pulled_count++] =
        (struct pulled){attempt, logs->newest[chunk->chunk], chunk->version};
    return ERR_OK;
}

static enum err add_taken(struct async_logs *logs, const struct order_chunks *take,
                          const struct order_chunk *chunk)
{
    struct branch *branch = &logs->branches[logs->newest[chunk->chunk]];
    if (chunk->version != branch->begin + branch->taken_count)
        return reason_set(logs->reason, ERR_CORRUPT,
                          "the order logs miss what chunk %u took at version %" PRIu64,
                          chunk->chunk, branch->begin + branch->taken_count);
    struct taken *taken = grow(branch->taken, branch->taken_count, sizeof *taken);
    if (taken == NULL)
        return no_memory(logs);
    branch->taken = taken;
    taken[branch->taken_count++] = (struct taken){take->attempt, take->ticket, chunk->used};
    return ERR_OK;
}

static enum err add_record(struct async_logs *logs, const struct order_chunks *record)
{
    for (uint32_t i = 0; i < record->count; i++) {
        const struct order_chunk *chunk = &record->chunks[i];
        if (chunk->chunk >= logs->chunk_count ||
            (record->kind != ORDER_BEGIN && logs->newest[chunk->chunk] == ASYNC_LOGS_NONE))
            return reason_set(logs->reason, ERR_CORRUPT, "the order logs name chunk %u",
                              chunk->chunk);
        if (record->kind == ORDER_BEGIN)
            TRY(add_branch(logs, record, chunk->chunk, chunk->version));
        else if (record->kind == ORDER_PULL)
            TRY(add_pulled(logs, record->attempt, chunk));
        else
            TRY(add_taken(logs, record, chunk));
    }
    return ERR_OK;
}

static enum err read_log(struct async_logs *logs, const char *file)
{
    char path[PATH_BYTES];
    scoped(buf_release) struct buf bytes = {0};
    struct order_chunk chunks[ORDER_CHUNKS_MAX];
    struct order_record record;
    struct order_chunks decoded;
    size_t offset = 0;
    snprintf(path, sizeof path, "%s/%s", logs->async->folder, file);
    TRY(file_read(path, LOG_BYTES_MAX, &bytes, logs->reason));
    enum err err;
    while ((err = order_next(buf_slice(&bytes), path, &offset, &record, logs->reason)) == ERR_OK) {
        if (order_chunks(&record, chunks, &decoded) != ERR_OK)
            return reason_set(logs->reason, ERR_CORRUPT, "%s: offset %zu: no record of a server",
                              path, offset);
        TRY(add_record(logs, &decoded));
    }
    return err == ERR_NOT_FOUND ? ERR_OK : err;
}

struct log_file {
    struct order_name name;
    const char *file;
};

static int by_beginning(const void *left, const void *right)
{
    const struct order_name *a = &((const struct log_file *)left)->name;
    const struct order_name *b = &((const struct log_file *)right)->name;
    if (a->generation != b->generation)
        return a->generation < b->generation ? -1 : 1;
    if (a->boot != b->boot)
        return a->boot < b->boot ? -1 : 1;
    return (a->server > b->server) - (a->server < b->server);
}

static enum err read_logs(struct async_logs *logs)
{
    scoped(file_names_release) struct file_names names = {0};
    TRY(file_list(logs->async->folder, &names, logs->reason));
    scoped(free_scoped) struct log_file *files = calloc(names.count + 1, sizeof *files);
    size_t count = 0;
    if (files == NULL)
        return no_memory(logs);
    for (size_t i = 0; i < names.count; i++) {
        struct log_file *log = &files[count];
        log->file = names.names[i];
        if (order_parse_name(log->file, &log->name) &&
            log->name.generation <= logs->async->generation)
            count++;
    }
    qsort(files, count, sizeof *files, by_beginning);
    for (size_t i = 0; i < count; i++)
        TRY(read_log(logs, files[i].file));
    return ERR_OK;
}

/* ---- who needs what ---- */

static int by_attempt(const void *left, const void *right)
{
    const struct pulled *a = left, *b = right;
    return (a->attempt > b->attempt) - (a->attempt < b->attempt);
}

static struct attempt *attempt_of(const struct async_logs *logs, uint64_t number)
{
    size_t low = 0, high = logs->attempt_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (logs->attempts[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < logs->attempt_count && logs->attempts[low].number == number ? &logs->attempts[low]
                                                                             : NULL;
}

static enum err link_attempts(struct async_logs *logs)
{
    if (logs->pulled_count > 0)
        qsort(logs->pulled, logs->pulled_count, sizeof *logs->pulled, by_attempt);
    for (size_t i = 0; i < logs->pulled_count; i++) {
        if (i > 0 && logs->pulled[i].attempt == logs->pulled[i - 1].attempt) {
            logs->attempts[logs->attempt_count - 1].pulled_count++;
            continue;
        }
        struct attempt *attempts = grow(logs->attempts, logs->attempt_count, sizeof *attempts);
        if (attempts == NULL)
            return no_memory(logs);
        logs->attempts = attempts;
        attempts[logs->attempt_count++] = (struct attempt){
            .number = logs->pulled[i].attempt, .pulled_first = i, .pulled_count = 1};
    }
    for (size_t b = 0; b < logs->branch_count; b++)
        for (size_t i = 0; i < logs->branches[b].taken_count; i++) {
            struct taken *taken = &logs->branches[b].taken[i];
            struct attempt *attempt = attempt_of(logs, taken->attempt);
            if (attempt == NULL)
                return reason_set(logs->reason, ERR_CORRUPT,
                                  "the order logs miss what ticket %" PRIu64 " was computed on",
                                  taken->ticket);
            attempt->takers++;
            taken->attempt = (uint64_t)(attempt - logs->attempts);
        }
    return ERR_OK;
}

static int by_version(const void *left, const void *right)
{
    const struct needed *a = left, *b = right;
    return (a->version > b->version) - (a->version < b->version);
}

/* Each version that an attempt which was taken had pulled, once, with how many did. */
static enum err link_pulls(struct async_logs *logs)
{
    for (size_t i = 0; i < logs->attempt_count; i++) {
        const struct attempt *attempt = &logs->attempts[i];
        for (size_t p = 0; attempt->takers > 0 && p < attempt->pulled_count; p++) {
            const struct pulled *pulled = &logs->pulled[attempt->pulled_first + p];
            struct branch *branch = &logs->branches[pulled->branch];
            struct needed *needed = grow(branch->needed, branch->needed_count, sizeof *needed);
            if (needed == NULL)
                return no_memory(logs);
            branch->needed = needed;
            needed[branch->needed_count++] = (struct needed){pulled->version, 1, NULL};
        }
    }
    for (size_t b = 0; b < logs->branch_count; b++) {
        struct branch *branch = &logs->branches[b];
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

struct needed *async_logs_needed(const struct branch *branch, uint64_t version)
{
    const struct needed key = {.version = version};
    return branch->needed_count == 0
               ? NULL
               : bsearch(&key, branch->needed, branch->needed_count, sizeof key, by_version);
}

/* The newest branch up to the cut that has the version each chunk had in it. */
static enum err find_targets(struct async_logs *logs)
{
    for (uint32_t chunk = 0; chunk < logs->chunk_count; chunk++) {
        uint64_t version = logs->async->versions[chunk];
        logs->targets[chunk] = ASYNC_LOGS_NONE;
        for (uint32_t b = 0; b < logs->branch_count; b++)
            if (logs->branches[b].chunk == chunk && logs->branches[b].begin <= version &&
                version <= logs->branches[b].begin + logs->branches[b].taken_count)
                logs->targets[chunk] = b;
        if (logs->targets[chunk] == ASYNC_LOGS_NONE)
            return reason_set(logs->reason, ERR_CORRUPT,
                              "the order logs end before version %" PRIu64 " of chunk %u", version,
                              chunk);
    }
    return ERR_OK;
}

enum err async_logs_read(struct async_logs *logs)
{
    logs->newest = calloc(logs->chunk_count, sizeof *logs->newest);
    logs->targets = calloc(logs->chunk_count, sizeof *logs->targets);
    if (logs->newest == NULL || logs->targets == NULL)
        return no_memory(logs);
    for (uint32_t chunk = 0; chunk < logs->chunk_count; chunk++)
        logs->newest[chunk] = ASYNC_LOGS_NONE;
    TRY(read_logs(logs));
    TRY(link_attempts(logs));
    TRY(link_pulls(logs));
    return find_targets(logs);
}

void async_logs_release(struct async_logs *logs)
{
    for (size_t b = 0; b < logs->branch_count; b++) {
        free(logs->branches[b].needed);
        free(logs->branches[b].taken);
    }
    free(logs->branches);
    free(logs->pulled);
    free(logs->attempts);
    free(logs->newest);
    free(logs->targets);
}
