/* The coordinator's order log. */
#include "server/disk/order_log.h"

#include "common/scoped.h"

#include <stdlib.h>
#include <string.h>

enum {
    BATCH_BYTES = 64 * 1024,
    LATE_BYTES_MAX = 64 << 20,
    PATH_BYTES = 4096,
    PIECE_BYTES = 4 << 20,
    RECORD_BYTES_MAX = ORDER_PAYLOAD_BYTES_MAX + 16
};
_Static_assert(PIECE_BYTES >= RECORD_BYTES_MAX, "a piece has a whole record, or the log ends");

/* ---- the steps that stay ---- */

/* *ret_bytes: those of the steps below `version`, which are appended to `copy`; NULL: they are
 * counted alone. A piece of the log is in memory at a time. */
static enum err take_kept(const char *path, uint64_t version, struct file_log *copy,
                          uint64_t *ret_bytes, struct reason *reason)
{
    scoped(buf_release) struct buf piece = {0};
    uint64_t end = 0;
    for (;;) {
        piece.bytes = 0;
        TRY(file_read_part(path, end, PIECE_BYTES, &piece, reason));
        const struct slice kept = {piece.data, order_keep_steps(buf_slice(&piece), version)};
        if (kept.bytes == 0)
            break;
        if (copy != NULL)
            TRY(file_log_append(copy, kept, reason));
        end += kept.bytes;
    }
    *ret_bytes = end;
    return ERR_OK;
}

static enum err cut_back(struct order_log *log, uint64_t version, struct reason *reason)
{
    uint64_t kept;
    TRY(take_kept(log->file.path, version, NULL, &kept, reason));
    return file_log_truncate(&log->file, kept, reason);
}

static enum err put_in_place(struct file_log *copy, const char *path, struct reason *reason)
{
    TRY(file_log_sync(copy, reason));
    char *name = strdup(path);
    if (name == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to open %s", path);
    if (copy->ops->rename(copy->ops, copy->path, path) != 0) {
        free(name);
        return file_failed("rename to", path, reason);
    }
    free(copy->path);
    copy->path = name;
    return file_sync_parent(copy->ops, path, reason);
}

static enum err copy_kept(const char *path, uint64_t version, struct file_log *copy,
                          struct reason *reason)
{
    uint64_t kept;
    enum err err = take_kept(path, version, copy, &kept, reason);
    return err == ERR_OK || err == ERR_NOT_FOUND ? put_in_place(copy, path, reason) : err;
}

/* Steps below `version` stay. What another coordinator still appends, which has not heard yet that
 * its term is over, is in the file that is replaced. Whoever opens the log has the store's term
 * meanwhile, so nobody else writes the new file. */
static enum err open_kept(struct order_log *log, const char *path, uint64_t version,
                          struct reason *reason)
{
    scoped(file_log_release) struct file_log copy = {0};
    char path_next[PATH_BYTES];
    if (snprintf(path_next, sizeof path_next, "%s.next", path) >= PATH_BYTES)
        return reason_set(reason, ERR_INVALID, "%s is too long a name", path);
    TRY(file_log_replace(&file_ops_real, path_next, (struct slice){0}, &copy, reason));
    enum err err = copy_kept(path, version, &copy, reason);
    if (err != ERR_OK) {
        copy.ops->unlink(copy.ops, path_next);
        return err;
    }
    log->file = copy;
    copy = (struct file_log){0};
    return ERR_OK;
}

/* ---- the log ---- */

enum err order_log_open(struct order_log *log, const char *directory, uint64_t version,
                        struct reason *reason)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/" ORDER_FOLDER "/" ORDER_COORDINATOR, directory) >=
        PATH_BYTES)
        return reason_set(reason, ERR_INVALID, "the run's directory has too long a name: %s",
                          directory);
    *log = (struct order_log){.late_bytes_max = LATE_BYTES_MAX};
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%.4000s/" ORDER_FOLDER, directory);
    TRY(file_make_dirs(folder, 0755, reason));
    return open_kept(log, path, version, reason);
}

static enum err cut_back_owed(struct order_log *log, struct reason *reason)
{
    if (!log->owes_cut)
        return ERR_OK;
    TRY(cut_back(log, log->cut_to, reason));
    log->owes_cut = false;
    return ERR_OK;
}

static enum err write_late(struct order_log *log, struct reason *reason)
{
    TRY(cut_back_owed(log, reason));
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
    if (err != ERR_NO_SPACE)
        return err;
    if (log->late.bytes > log->late_bytes_max) {
        log->late.bytes = 0;
        log->steps_lost = true;
    }
    return ERR_OK;
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
    log->late.bytes = 0;   /* the file has the steps that led to a recorded cut */
    log->cut_to = version; /* no later than one that is owed: until then no cut is recorded */
    log->owes_cut = true;
    enum err err = cut_back_owed(log, reason);
    return err == ERR_NO_SPACE ? ERR_OK : err;
}
