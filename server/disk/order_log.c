/* The coordinator's order log. */
#include "server/disk/order_log.h"

#include "common/scoped.h"

enum { BATCH_BYTES = 64 * 1024, LATE_BYTES_MAX = 64 << 20, PATH_BYTES = 4096 };
#define LOG_BYTES_MAX ((size_t)1 << 34)

static enum err cut_back(struct order_log *log, uint64_t version, struct reason *reason)
{
    scoped(buf_release) struct buf text = {0};
    if (log->file.bytes > 0)
        TRY(file_read(log->file.path, LOG_BYTES_MAX, &text, reason));
    size_t kept = order_keep_steps(buf_slice(&text), version);
    check(kept <= text.bytes);
    return file_log_truncate(&log->file, kept, reason);
}

/* Steps below `version` stay. What another coordinator still appends, which has not heard yet that
 * its term is over, is in the file that is replaced. */
static enum err open_kept(struct order_log *log, const char *path, uint64_t version,
                          struct reason *reason)
{
    scoped(buf_release) struct buf text = {0};
    enum err err = file_read(path, LOG_BYTES_MAX, &text, reason);
    if (err != ERR_OK && err != ERR_NOT_FOUND)
        return err;
    const struct slice kept = {text.data, order_keep_steps(buf_slice(&text), version)};
    return file_log_replace(&file_ops_real, path, kept, &log->file, reason);
}

enum err order_log_open(struct order_log *log, const char *directory, uint64_t version,
                        struct reason *reason)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/" ORDER_FOLDER "/" ORDER_COORDINATOR, directory) >=
        PATH_BYTES)
        return reason_set(reason, ERR_INVALID, "the run's directory has too long a name: %s",
                          directory);
    *log = (struct order_log){0};
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%.4000s/" ORDER_FOLDER, directory);
    TRY(file_make_dirs(folder, 0755, reason));
    return open_kept(log, path, version, reason);
}

static enum err write_late(struct order_log *log, struct reason *reason)
{
    if (log->late.bytes == 0)
        return ERR_OK;
    TRY(file_log_append(&log->file, buf_slice(&log->late), reason));
    log->late.bytes = 0;
    return ERR_OK;
}

void order_log_release(struct order_log *log)
{
    if (log->file.path != NULL)
        ignore(write_late(log, NULL)); /* no recorded cut needs it */
    file_log_release(&log->file);
    buf_release(&log->late);
    *log = (struct order_log){0};
}

enum err order_log_add(struct order_log *log, const struct order_step *step, struct reason *reason)
{
    if (order_append_step(&log->late, step) != ERR_OK)
        return reason_set(reason, ERR_NOMEM, "no memory for the order log");
    if (log->late.bytes < BATCH_BYTES)
        return ERR_OK;
    enum err err = write_late(log, reason);
    return err == ERR_NO_SPACE && log->late.bytes < LATE_BYTES_MAX ? ERR_OK : err;
}

enum err order_log_sync(struct order_log *log, struct reason *reason)
{
    if (log->file.path == NULL)
        return ERR_OK;
    TRY(write_late(log, reason));
    return file_log_sync(&log->file, reason);
}

enum err order_log_rewind(struct order_log *log, uint64_t version, struct reason *reason)
{
    if (log->file.path == NULL)
        return ERR_OK;
    log->late.bytes = 0; /* the file has the steps that led to a recorded cut */
    return cut_back(log, version, reason);
}
