/* The store in one SQLite file: write-ahead log, every commit synced (synchronous=FULL), opened
 * exclusively so that two daemons never share one. The log is folded into the file after 16 pages,
 * so that it stays small; not by SQLite itself, which would keep to itself that a sync failed.
 *
 * Tables: numbers (term, boot, generation, run: the highest so far), runs, secrets, cuts,
 * convictions, stops. Each write is one transaction that first looks at the term. */
#include "server/disk/store.h"

#include "common/file.h"
#include "common/rand.h"
#include "common/scoped.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

struct store {
    sqlite3 *db;
    char *path;
    int log_pages; /* at the newest commit */
};

enum { LOG_PAGES_MAX = 16 };

enum { SCHEMA_VERSION = 1 };

/* Where a new store begins to count. Members and attempts have the term in their upper 32 bits, and
 * readers of JSON keep 53 bits of a number. */
enum { TERM_FIRST_BITS = 20, TERM_STEP_BITS = 12, BOOT_FIRST_BITS = 48, BOOT_STEP_BITS = 20 };

static const char schema[] =
    "CREATE TABLE IF NOT EXISTS numbers (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;"
    "INSERT OR IGNORE INTO numbers VALUES ('schema', 1), ('term', 0), ('boot', 0),"
    " ('generation', 0), ('run', 0);"
    "CREATE TABLE IF NOT EXISTS runs (run INTEGER PRIMARY KEY, directory TEXT UNIQUE NOT NULL,"
    " spec TEXT NOT NULL, restore TEXT NOT NULL, servers_min INTEGER NOT NULL,"
    " data_digest BLOB NOT NULL, samples INTEGER NOT NULL, validation_samples INTEGER NOT NULL,"
    " unigram_entropy REAL NOT NULL, state INTEGER NOT NULL, reason TEXT NOT NULL,"
    " fingerprint BLOB) STRICT;"
    "CREATE TABLE IF NOT EXISTS secrets (run INTEGER PRIMARY KEY, secret BLOB NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS cuts (run INTEGER NOT NULL, generation INTEGER NOT NULL,"
    " version INTEGER NOT NULL, samples INTEGER NOT NULL, applied INTEGER NOT NULL,"
    " skips_in_row INTEGER NOT NULL, servers BLOB NOT NULL,"
    " PRIMARY KEY (run, generation, version)) STRICT;"
    "CREATE TABLE IF NOT EXISTS convictions (run INTEGER NOT NULL, member INTEGER NOT NULL,"
    " certificate INTEGER NOT NULL, several INTEGER NOT NULL, name TEXT NOT NULL,"
    " host TEXT NOT NULL, step INTEGER NOT NULL, wrong_bits INTEGER NOT NULL, reason TEXT NOT NULL,"
    " undo INTEGER NOT NULL, undo_from INTEGER NOT NULL, PRIMARY KEY (run, member)) STRICT;"
    "CREATE TABLE IF NOT EXISTS stops (run INTEGER PRIMARY KEY, reason TEXT NOT NULL) STRICT;";

void store_run_release(struct store_run *run)
{
    free(run->directory);
    free(run->spec);
    free(run->restore);
    *run = (struct store_run){0};
}

/* ---- SQLite's words in ours ---- */

static enum err err_of(int code)
{
    switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return ERR_OK;
    case SQLITE_FULL:
        return ERR_NO_SPACE;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return ERR_CORRUPT;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return ERR_BUSY;
    case SQLITE_NOMEM:
        return ERR_NOMEM;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
        return ERR_DENIED;
    default:
        return ERR_IO;
    }
}

/* SQLite knows a full disk, and takes a quota that is used up for a disk that is broken. Its own
 * sqlite3_system_errno() lacks the errno of a commit's write. */
static bool quota_is_used_up(int detail, int number)
{
    return detail == SQLITE_IOERR_WRITE && err_from_errno(number) == ERR_NO_SPACE;
}

/* Right behind the call that failed, whose errno it reads. */
static enum err failed(const struct store *store, const char *what, int code, struct reason *reason)
{
    int number = errno;
    enum err err = err_of(code);
    const char *text = store->db != NULL ? sqlite3_errmsg(store->db) : sqlite3_errstr(code);
    int detail = store->db != NULL ? sqlite3_extended_errcode(store->db) : code;
    if (detail == SQLITE_IOERR_FSYNC || detail == SQLITE_IOERR_DIR_FSYNC)
        err = ERR_NOT_SYNCED;
    if (err == ERR_BUSY)
        text = "another daemon has it open";
    if (quota_is_used_up(detail, number)) {
        err = ERR_NO_SPACE;
        text = "the disk quota is used up";
    }
    return reason_set(reason, err, "%s: %s: %s", store->path, what, text);
}

static enum err execute(struct store *store, const char *sql, const char *what,
                        struct reason *reason)
{
    int code = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? ERR_OK : failed(store, what, code, reason);
}

/* ---- statements ---- */

/* One value for a `?`. */
enum value_kind { VALUE_END, VALUE_UINT, VALUE_REAL, VALUE_TEXT, VALUE_BYTES, VALUE_NULL };
struct value {
    enum value_kind kind;
    uint64_t number;
    double real;
    const void *data;
    size_t bytes;
};

static struct value uint_value(uint64_t number)
{
    return (struct value){.kind = VALUE_UINT, .number = number};
}

static struct value real_value(double real)
{
    return (struct value){.kind = VALUE_REAL, .real = real};
}

static struct value text_value(const char *text)
{
    return (struct value){.kind = VALUE_TEXT, .data = text != NULL ? text : ""};
}

static struct value bytes_value(const void *data, size_t bytes)
{
    return (struct value){.kind = VALUE_BYTES, .data = data, .bytes = bytes};
}

static int bind(sqlite3_stmt *statement, int place, const struct value *value)
{
    switch (value->kind) {
    case VALUE_UINT:
        return sqlite3_bind_int64(statement, place, (sqlite3_int64)value->number);
    case VALUE_REAL:
        return sqlite3_bind_double(statement, place, value->real);
    case VALUE_TEXT:
        return sqlite3_bind_text(statement, place, value->data, -1, SQLITE_STATIC);
    case VALUE_BYTES:
        return sqlite3_bind_blob64(statement, place, value->data, value->bytes, SQLITE_STATIC);
    default:
        return sqlite3_bind_null(statement, place);
    }
}

static void finalize(sqlite3_stmt **statement)
{
    sqlite3_finalize(*statement);
}

/* The statement with `values` (which end with {0}) in place. */
static enum err prepare_statement(struct store *store, const char *sql, const struct value *values,
                                  sqlite3_stmt **ret_statement, struct reason *reason)
{
    scoped(finalize) sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL);
    for (int i = 0; code == SQLITE_OK && values[i].kind != VALUE_END; i++)
        code = bind(statement, i + 1, &values[i]);
    if (code != SQLITE_OK)
        return failed(store, sql, code, reason);
    *ret_statement = statement;
    statement = NULL;
    return ERR_OK;
}

static enum err run_statement(struct store *store, const char *sql, const struct value *values,
                              struct reason *reason)
{
    scoped(finalize) sqlite3_stmt *statement = NULL;
    TRY(prepare_statement(store, sql, values, &statement, reason));
    int code = sqlite3_step(statement);
    return code == SQLITE_DONE ? ERR_OK : failed(store, sql, code, reason);
}

/* The one row that it selects. ERR_NOT_FOUND, without a sentence: there is none. */
static enum err find_row(struct store *store, const char *what, const char *sql,
                         const struct value *values, sqlite3_stmt **ret_statement,
                         struct reason *reason)
{
    scoped(finalize) sqlite3_stmt *statement = NULL;
    TRY(prepare_statement(store, sql, values, &statement, reason));
    int code = sqlite3_step(statement);
    if (code == SQLITE_DONE)
        return ERR_NOT_FOUND;
    if (code != SQLITE_ROW)
        return failed(store, what, code, reason);
    *ret_statement = statement;
    statement = NULL;
    return ERR_OK;
}

static enum err get_number(struct store *store, const char *name, uint64_t *ret_number,
                           struct reason *reason)
{
    scoped(finalize) sqlite3_stmt *statement = NULL;
    enum err err = find_row(store, name, "SELECT value FROM numbers WHERE name = ?",
                            (struct value[]){text_value(name), {0}}, &statement, reason);
    if (err == ERR_NOT_FOUND)
        return reason_set(reason, ERR_CORRUPT, "%s: the number `%s` is missing", store->path, name);
    TRY(err);
    *ret_number = (uint64_t)sqlite3_column_int64(statement, 0);
    return ERR_OK;
}

static enum err put_number(struct store *store, const char *name, uint64_t number,
                           struct reason *reason)
{
    return run_statement(store, "UPDATE numbers SET value = ? WHERE name = ?",
                         (struct value[]){uint_value(number), text_value(name), {0}}, reason);
}

/* ---- transactions ---- */

/* After each commit. */
static int note_log(void *owner, sqlite3 *db, const char *name, int pages)
{
    struct store *store = owner;
    (void)db, (void)name;
    store->log_pages = pages;
    return SQLITE_OK;
}

/* Without room the facts stay in the log, and the next write tries again. */
static enum err fold_log(struct store *store, struct reason *reason)
{
    if (store->log_pages < LOG_PAGES_MAX)
        return ERR_OK;
    int code = sqlite3_wal_checkpoint_v2(store->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    enum err err = code == SQLITE_OK ? ERR_OK : failed(store, "fold the log", code, reason);
    return err == ERR_NO_SPACE ? ERR_OK : err;
}

/* The log is folded before a transaction, not behind it: an error means that nothing of the
 * transaction is stored. */
static enum err begin(struct store *store, struct reason *reason)
{
    TRY(fold_log(store, reason));
    return execute(store, "BEGIN IMMEDIATE", "begin", reason);
}

/* Ends the transaction: durable, or as if it had not been. */
static enum err end_transaction(struct store *store, enum err err, struct reason *reason)
{
    check(err != ERR_OK || !sqlite3_get_autocommit(store->db)); /* an error may have ended it */
    if (err == ERR_OK)
        err = execute(store, "COMMIT", "commit", reason);
    if (err != ERR_OK)
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    return err;
}

static enum err check_term(struct store *store, uint64_t term, struct reason *reason)
{
    uint64_t stored;
    check(!sqlite3_get_autocommit(store->db)); /* P7: the term and the write are one transaction */
    TRY(get_number(store, "term", &stored, reason));
    if (stored != term)
        return reason_set(reason, ERR_OLD_TERM,
                          "%s: the coordinator of term %llu has been replaced by that of term %llu",
                          store->path, (unsigned long long)term, (unsigned long long)stored);
    return ERR_OK;
}

/* A transaction of that term's coordinator. */
static enum err begin_under(struct store *store, uint64_t term, struct reason *reason)
{
    TRY(begin(store, reason));
    enum err err = check_term(store, term, reason);
    return err == ERR_OK ? ERR_OK : end_transaction(store, err, reason);
}

/* One statement under the term. */
static enum err write_under(struct store *store, uint64_t term, const char *sql,
                            const struct value *values, struct reason *reason)
{
    TRY(begin_under(store, term, reason));
    enum err err = run_statement(store, sql, values, reason);
    if (err == ERR_OK && sqlite3_changes(store->db) == 0)
        err = reason_set(reason, ERR_NOT_FOUND, "%s: no such run", store->path);
    return end_transaction(store, err, reason);
}

/* P3, P7: no boot and no term is given twice. A directory that was lost took its numbers with it,
 * so a new one begins at a random number; and one from a backup has forgotten the last ones, so it
 * goes on by random steps. */
static enum err next_number(struct store *store, const char *name, unsigned first_bits,
                            unsigned step_bits, uint64_t *ret_number, struct reason *reason)
{
    uint64_t number = 0, random = 0;
    TRY(begin(store, reason));
    enum err err = get_number(store, name, &number, reason);
    if (err == ERR_OK && rand_system(&random, sizeof random) != ERR_OK)
        err = reason_set(reason, ERR_IO, "%s: the system gives no random numbers", store->path);
    number += 1 + (random >> (64 - (number == 0 ? first_bits : step_bits)));
    if (err == ERR_OK)
        err = put_number(store, name, number, reason);
    TRY(end_transaction(store, err, reason));
    *ret_number = number;
    return ERR_OK;
}

/* ---- open ---- */

static enum err set_up(struct store *store, struct reason *reason)
{
    uint64_t version;
    TRY(execute(store,
                "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;"
                "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;"
                "BEGIN EXCLUSIVE;",
                "open", reason));
    sqlite3_wal_hook(store->db, note_log, store);
    TRY(end_transaction(store, execute(store, schema, "create tables", reason), reason));
    TRY(get_number(store, "schema", &version, reason));
    if (version != SCHEMA_VERSION)
        return reason_set(reason, ERR_UNSUPPORTED, "%s: written by another version of roost (%llu)",
                          store->path, (unsigned long long)version);
    return ERR_OK;
}

/* SQLite does not say why. The errno that it keeps may be that of a second try, to read alone, which
 * finds no file where the folder's mode lets it make none. */
static enum err not_opened(const struct store *store, int code, struct reason *reason)
{
    scoped(file_log_release) struct file_log file = {0};
    enum err err = file_log_open(&file_ops_real, store->path, &file, reason);
    if (err == ERR_DENIED || err == ERR_INVALID)
        return err;
    return failed(store, "open", code, reason);
}

enum err store_open_sqlite(const char *path, struct store **ret_store, struct reason *reason)
{
    struct store *store = calloc(1, sizeof *store);
    if (store == NULL || (store->path = strdup(path)) == NULL) {
        free(store);
        return reason_set(reason, ERR_NOMEM, "%s: out of memory", path);
    }
    int code = sqlite3_open_v2(
        path, &store->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    enum err err = code == SQLITE_OK ? set_up(store, reason) : not_opened(store, code, reason);
    if (err != ERR_OK) {
        store_free(store);
        return err;
    }
    *ret_store = store;
    return ERR_OK;
}

void store_free(struct store *store)
{
    if (store == NULL)
        return;
    sqlite3_close(store->db);
    free(store->path);
    free(store);
}

/* ---- numbers ---- */

enum err store_next_boot(struct store *store, uint64_t *ret_boot, struct reason *reason)
{
    return next_number(store, "boot", BOOT_FIRST_BITS, BOOT_STEP_BITS, ret_boot, reason);
}

enum err store_take_term(struct store *store, uint64_t *ret_term, struct reason *reason)
{
    return next_number(store, "term", TERM_FIRST_BITS, TERM_STEP_BITS, ret_term, reason);
}

enum err store_put_term(struct store *store, uint64_t term, uint64_t newer, struct reason *reason)
{
    return write_under(store, term, "UPDATE numbers SET value = ? WHERE name = 'term'",
                       (struct value[]){uint_value(newer), {0}}, reason);
}

enum err store_put_generation(struct store *store, uint64_t term, uint64_t run, uint64_t generation,
                              struct reason *reason)
{
    TRY(begin_under(store, term, reason));
    enum err err = run_statement(store, "UPDATE numbers SET value = ? WHERE name = 'generation'",
                                 (struct value[]){uint_value(generation), {0}}, reason);
    if (err == ERR_OK)
        err = run_statement(store, "UPDATE convictions SET undo = 0 WHERE run = ?",
                            (struct value[]){uint_value(run), {0}}, reason);
    return end_transaction(store, err, reason);
}

/* ---- runs ---- */

/* A run of that directory that has no recorded checkpoint never trained: it gives way. */
static enum err remove_untrained(struct store *store, const char *directory, struct reason *reason)
{
    return run_statement(
        store, "DELETE FROM runs WHERE directory = ? AND run NOT IN (SELECT run FROM cuts)",
        (struct value[]){text_value(directory), {0}}, reason);
}

static enum err insert_run(struct store *store, const struct store_run *run, uint64_t number,
                           struct reason *reason)
{
    enum err err =
        run_statement(store, "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
                      (struct value[]){uint_value(number),
                                       text_value(run->directory),
                                       text_value(run->spec),
                                       text_value(run->restore),
                                       uint_value(run->servers_min),
                                       bytes_value(run->data_digest, WIRE_DIGEST_BYTES),
                                       uint_value(run->samples),
                                       uint_value(run->validation_samples),
                                       real_value(run->unigram_entropy),
                                       uint_value(run->state),
                                       text_value(run->reason),
                                       {0}},
                      reason);
    if (sqlite3_extended_errcode(store->db) == SQLITE_CONSTRAINT_UNIQUE)
        return reason_set(reason, ERR_EXISTS,
                          "%s has a run already, whose checkpoints are gone; name another "
                          "directory with --directory",
                          run->directory);
    return err;
}

static enum err insert_cut(struct store *store, uint64_t run, const struct cut_record *cut,
                           struct reason *reason)
{
    return run_statement(
        store, "INSERT INTO cuts VALUES (?, ?, ?, ?, ?, ?, ?)",
        (struct value[]){uint_value(run),
                         uint_value(cut->name.generation),
                         uint_value(cut->name.version),
                         uint_value(cut->counters.samples),
                         uint_value(cut->counters.applied),
                         uint_value(cut->counters.skips_in_row),
                         bytes_value(cut->servers, cut->server_count * sizeof cut->servers[0]),
                         {0}},
        reason);
}

static enum err raise_generation(struct store *store, uint64_t generation, struct reason *reason)
{
    return run_statement(store,
                         "UPDATE numbers SET value = max(value, ?) WHERE name = 'generation'",
                         (struct value[]){uint_value(generation), {0}}, reason);
}

static enum err insert_cuts(struct store *store, uint64_t run, struct store_cuts cuts,
                            struct reason *reason)
{
    for (size_t i = 0; i < cuts.count; i++)
        TRY(insert_cut(store, run, &cuts.list[i], reason));
    return ERR_OK;
}

/* In a transaction. The next cut that is recorded prunes them. */
static enum err insert_past(struct store *store, uint64_t run, const struct store_past *past,
                            struct reason *reason)
{
    const struct coordinator_past *facts = past->facts;
    TRY(raise_generation(store, facts->generation, reason));
    if (facts->has_fingerprint)
        TRY(run_statement(store, "UPDATE runs SET fingerprint = ? WHERE run = ?",
                          (struct value[]){bytes_value(facts->fingerprint, WIRE_DIGEST_BYTES),
                                           uint_value(run),
                                           {0}},
                          reason));
    TRY(insert_cut(store, run, &facts->cut, reason));
    return insert_cuts(store, run, past->older, reason);
}

enum err store_add_run(struct store *store, uint64_t term, struct store_run *run,
                       const struct store_past *past, struct reason *reason)
{
    uint64_t number = 0;
    TRY(begin_under(store, term, reason));
    enum err err = get_number(store, "run", &number, reason);
    if (err == ERR_OK)
        err = put_number(store, "run", number + 1, reason);
    if (err == ERR_OK)
        err = remove_untrained(store, run->directory, reason);
    if (err == ERR_OK)
        err = insert_run(store, run, number + 1, reason);
    if (err == ERR_OK && past != NULL)
        err = insert_past(store, number + 1, past, reason);
    TRY(end_transaction(store, err, reason));
    run->run = number + 1;
    return ERR_OK;
}

static enum err change_run(struct store *store, const struct store_run *run, struct reason *reason)
{
    TRY(run_statement(store,
                      "UPDATE runs SET spec = ?, servers_min = ?, state = ?, reason = ?,"
                      " fingerprint = CASE WHEN ? THEN fingerprint END WHERE run = ?",
                      (struct value[]){text_value(run->spec),
                                       uint_value(run->servers_min),
                                       uint_value(run->state),
                                       text_value(run->reason),
                                       uint_value(run->has_fingerprint),
                                       uint_value(run->run),
                                       {0}},
                      reason));
    if (sqlite3_changes(store->db) == 0)
        return reason_set(reason, ERR_NOT_FOUND, "%s: no such run", store->path);
    return run_statement(store, "DELETE FROM stops WHERE run = ?",
                         (struct value[]){uint_value(run->run), {0}}, reason);
}

enum err store_change_run(struct store *store, uint64_t term, const struct store_run *run,
                          struct reason *reason)
{
    TRY(begin_under(store, term, reason));
    return end_transaction(store, change_run(store, run, reason), reason);
}

enum err store_put_stop(struct store *store, uint64_t term, uint64_t run, const char *why,
                        struct reason *reason)
{
    return write_under(store, term, "INSERT OR REPLACE INTO stops VALUES (?, ?)",
                       (struct value[]){uint_value(run), text_value(why), {0}}, reason);
}

enum err store_put_spec(struct store *store, uint64_t term, uint64_t run, const char *spec,
                        struct reason *reason)
{
    return write_under(store, term, "UPDATE runs SET spec = ? WHERE run = ?",
                       (struct value[]){text_value(spec), uint_value(run), {0}}, reason);
}

enum err store_put_state(struct store *store, uint64_t term, uint64_t run, enum run_state state,
                         const char *why, struct reason *reason)
{
    return write_under(store, term, "UPDATE runs SET state = ?, reason = ? WHERE run = ?",
                       (struct value[]){uint_value(state), text_value(why), uint_value(run), {0}},
                       reason);
}

static enum err stop_others(struct store *store, uint64_t run, const char *why,
                            struct reason *reason)
{
    TRY(run_statement(
        store,
        "DELETE FROM stops WHERE run IN"
        " (SELECT run FROM runs WHERE state IN (?, ?) AND run <> ?)",
        (struct value[]){uint_value(RUN_STARTING), uint_value(RUN_TRAINING), uint_value(run), {0}},
        reason));
    return run_statement(store,
                         "UPDATE runs SET state = ?, reason = ? WHERE state IN (?, ?) AND run <> ?",
                         (struct value[]){uint_value(RUN_STOPPED),
                                          text_value(why),
                                          uint_value(RUN_STARTING),
                                          uint_value(RUN_TRAINING),
                                          uint_value(run),
                                          {0}},
                         reason);
}

enum err store_stop_others(struct store *store, uint64_t term, uint64_t run, const char *why,
                           struct reason *reason)
{
    TRY(begin_under(store, term, reason));
    return end_transaction(store, stop_others(store, run, why, reason), reason);
}

enum err store_put_fingerprint(struct store *store, uint64_t term, uint64_t run,
                               const uint8_t fingerprint[static WIRE_DIGEST_BYTES],
                               struct reason *reason)
{
    return write_under(
        store, term, "UPDATE runs SET fingerprint = ? WHERE run = ?",
        (struct value[]){bytes_value(fingerprint, WIRE_DIGEST_BYTES), uint_value(run), {0}},
        reason);
}

/* The column's text as memory of the caller's; NULL: out of memory. */
static char *text_column(sqlite3_stmt *statement, int column)
{
    const unsigned char *text = sqlite3_column_text(statement, column);
    return strdup(text != NULL ? (const char *)text : "");
}

/* False: it has another length. */
static bool digest_column(sqlite3_stmt *statement, int column,
                          uint8_t ret_digest[static WIRE_DIGEST_BYTES])
{
    if (sqlite3_column_bytes(statement, column) != WIRE_DIGEST_BYTES)
        return false;
    memcpy(ret_digest, sqlite3_column_blob(statement, column), WIRE_DIGEST_BYTES);
    return true;
}

/* ERR_NOT_FOUND: the run has none yet. */
static enum err read_secret(struct store *store, uint64_t run,
                            uint8_t ret_secret[static DIGEST_KEY_BYTES], struct reason *reason)
{
    scoped(finalize) sqlite3_stmt *statement = NULL;
    TRY(find_row(store, "read the run's secret", "SELECT secret FROM secrets WHERE run = ?",
                 (struct value[]){uint_value(run), {0}}, &statement, reason));
    return digest_column(statement, 0, ret_secret)
               ? ERR_OK
               : reason_set(reason, ERR_CORRUPT, "%s: the run's secret is cut short", store->path);
}

enum err store_run_secret(struct store *store, uint64_t term, uint64_t run,
                          uint8_t ret_secret[static DIGEST_KEY_BYTES], struct reason *reason)
{
    enum err err = read_secret(store, run, ret_secret, reason);
    if (err != ERR_NOT_FOUND)
        return err;
    uint8_t secret[DIGEST_KEY_BYTES];
    if (rand_system(secret, sizeof secret) != ERR_OK)
        return reason_set(reason, ERR_IO, "%s: the system gives no random numbers", store->path);
    TRY(write_under(store, term, "INSERT INTO secrets VALUES (?, ?)",
                    (struct value[]){uint_value(run), bytes_value(secret, sizeof secret), {0}},
                    reason));
    memcpy(ret_secret, secret, sizeof secret);
    return ERR_OK;
}

static enum err read_run(struct store *store, sqlite3_stmt *statement, struct store_run *ret_run,
                         struct reason *reason)
{
    scoped(store_run_release) struct store_run run = {
        .run = (uint64_t)sqlite3_column_int64(statement, 0),
        .directory = text_column(statement, 1),
        .spec = text_column(statement, 2),
        .restore = text_column(statement, 3),
        .servers_min = (uint32_t)sqlite3_column_int64(statement, 4),
        .samples = (uint64_t)sqlite3_column_int64(statement, 6),
        .validation_samples = (uint64_t)sqlite3_column_int64(statement, 7),
        .unigram_entropy = sqlite3_column_double(statement, 8),
        .has_fingerprint = sqlite3_column_type(statement, 11) != SQLITE_NULL,
    };
    sqlite3_int64 state = sqlite3_column_int64(statement, 9);
    if (run.directory == NULL || run.spec == NULL || run.restore == NULL)
        return reason_set(reason, ERR_NOMEM, "%s: out of memory", store->path);
    if (state < 0 || state >= RUN_STATE_COUNT || !digest_column(statement, 5, run.data_digest) ||
        (run.has_fingerprint && !digest_column(statement, 11, run.fingerprint)))
        return reason_set(reason, ERR_CORRUPT, "%s: run %llu does not read", store->path,
                          (unsigned long long)run.run);
    run.state = (enum run_state)state;
    const unsigned char *why = sqlite3_column_text(statement, 10);
    snprintf(run.reason, sizeof run.reason, "%s", why != NULL ? (const char *)why : "");
    *ret_run = run;
    run = (struct store_run){0};
    return ERR_OK;
}

static enum err find_run(struct store *store, const char *sql, const struct value *values,
                         const char *what, struct store_run *ret_run, struct reason *reason)
{
    scoped(finalize) sqlite3_stmt *statement = NULL;
    enum err err = find_row(store, "read the run", sql, values, &statement, reason);
    if (err == ERR_NOT_FOUND)
        return reason_set(reason, ERR_NOT_FOUND, "%s: no run %s", store->path, what);
    TRY(err);
    return read_run(store, statement, ret_run, reason);
}

enum err store_find_run(struct store *store, const char *directory, struct store_run *ret_run,
                        struct reason *reason)
{
    return find_run(store, "SELECT * FROM runs WHERE directory = ?",
                    (struct value[]){text_value(directory), {0}}, directory, ret_run, reason);
}

enum err store_find_active_run(struct store *store, struct store_run *ret_run,
                               struct reason *reason)
{
    return find_run(store, "SELECT * FROM runs WHERE state IN (?, ?) ORDER BY run DESC LIMIT 1",
                    (struct value[]){uint_value(RUN_STARTING), uint_value(RUN_TRAINING), {0}},
                    "is active", ret_run, reason);
}

enum err store_get_run(struct store *store, uint64_t run, struct store_run *ret_run,
                       struct reason *reason)
{
    return find_run(store, "SELECT * FROM runs WHERE run = ?",
                    (struct value[]){uint_value(run), {0}}, "of that number", ret_run, reason);
}

enum err store_find_newest_run(struct store *store, struct store_run *ret_run,
                               struct reason *reason)
{
    return find_run(store, "SELECT * FROM runs ORDER BY run DESC LIMIT 1", (struct value[]){{0}},
                    "at all", ret_run, reason);
}

/* ---- cuts ---- */

static enum err prune_cuts(struct store *store, uint64_t run, uint32_t keep, struct reason *reason)
{
    return run_statement(store,
                         "DELETE FROM cuts WHERE run = ?1 AND (generation, version) NOT IN"
                         " (SELECT generation, version FROM cuts WHERE run = ?1"
                         "  ORDER BY generation DESC, version DESC LIMIT ?2)",
                         (struct value[]){uint_value(run), uint_value(keep > 0 ? keep : 1), {0}},
                         reason);
}

enum err store_write_beside(struct store *store, uint64_t term, const struct store_beside *beside,
                            struct reason *reason)
{
    TRY(begin_under(store, term, reason));
    return end_transaction(store, beside->write(beside->owner, reason), reason);
}

enum err store_put_cut(struct store *store, uint64_t term, uint64_t run,
                       const struct cut_record *cut, uint32_t keep,
                       const struct store_beside *beside, struct reason *reason)
{
    TRY(begin_under(store, term, reason));
    enum err err = insert_cut(store, run, cut, reason);
    if (err == ERR_OK)
        err = prune_cuts(store, run, keep, reason);
    if (err == ERR_OK && beside != NULL)
        err = beside->write(beside->owner, reason);
    return end_transaction(store, err, reason);
}

static enum err read_cut(struct store *store, sqlite3_stmt *statement, struct cut_record *ret_cut,
                         struct reason *reason)
{
    const struct cut_record cut = {
        .name = {(uint64_t)sqlite3_column_int64(statement, 0),
                 (uint64_t)sqlite3_column_int64(statement, 1)},
        .counters = {.samples = (uint64_t)sqlite3_column_int64(statement, 2),
                     .applied = (uint64_t)sqlite3_column_int64(statement, 3),
                     .skips_in_row = (uint64_t)sqlite3_column_int64(statement, 4)},
    };
    size_t bytes = (size_t)sqlite3_column_bytes(statement, 5);
    size_t count = bytes / sizeof ret_cut->servers[0];
    if (bytes % sizeof ret_cut->servers[0] != 0 || count == 0 || count > WIRE_SERVERS_MAX)
        return reason_set(reason, ERR_CORRUPT, "%s: the checkpoint of version %llu does not read",
                          store->path, (unsigned long long)cut.name.version);
    *ret_cut = cut;
    ret_cut->server_count = (uint32_t)count;
    memcpy(ret_cut->servers, sqlite3_column_blob(statement, 5), bytes);
    for (size_t i = 0; i < count; i++)
        ret_cut->servers[i].name[sizeof ret_cut->servers[i].name - 1] = 0;
    return ERR_OK;
}

enum err store_get_cuts(struct store *store, uint64_t run, struct cut_record *ret_cuts,
                        uint32_t max, uint32_t *ret_count, struct reason *reason)
{
    scoped(finalize) sqlite3_stmt *statement = NULL;
    uint32_t count = 0;
    TRY(prepare_statement(
        store,
        "SELECT generation, version, samples, applied, skips_in_row, servers FROM cuts"
        " WHERE run = ? ORDER BY generation DESC, version DESC LIMIT ?",
        (struct value[]){uint_value(run), uint_value(max), {0}}, &statement, reason));
    int code = sqlite3_step(statement);
    for (; code == SQLITE_ROW; code = sqlite3_step(statement))
        TRY(read_cut(store, statement, &ret_cuts[count++], reason));
    if (code != SQLITE_DONE)
        return failed(store, "read the checkpoints", code, reason);
    *ret_count = count;
    return ERR_OK;
}

/* `sql` chooses by run, generation and version. */
static enum err find_cut(struct store *store, uint64_t run, struct cut_name name, const char *sql,
                         struct cut_record *ret_cut, struct reason *reason)
{
    scoped(finalize) sqlite3_stmt *statement = NULL;
    TRY(find_row(store, "read the checkpoints", sql,
                 (struct value[]){
                     uint_value(run), uint_value(name.generation), uint_value(name.version), {0}},
                 &statement, reason));
    return read_cut(store, statement, ret_cut, reason);
}

enum err store_get_cut(struct store *store, uint64_t run, struct cut_name name,
                       struct cut_record *ret_cut, struct reason *reason)
{
    return find_cut(store, run, name,
                    "SELECT generation, version, samples, applied, skips_in_row, servers FROM cuts"
                    " WHERE run = ? AND generation = ? AND version = ?",
                    ret_cut, reason);
}

enum err store_older_cut(struct store *store, uint64_t run, struct cut_name name,
                         struct cut_record *ret_cut, struct reason *reason)
{
    return find_cut(store, run, name,
                    "SELECT generation, version, samples, applied, skips_in_row, servers FROM cuts"
                    " WHERE run = ? AND (generation, version) < (?, ?)"
                    " ORDER BY generation DESC, version DESC LIMIT 1",
                    ret_cut, reason);
}

/* What the store knows of one says more: who wrote its files. */
static enum err adopt_cut(struct store *store, uint64_t run, const struct cut_record *cut,
                          struct reason *reason)
{
    struct cut_record known;
    TRY(raise_generation(store, cut->name.generation, reason));
    enum err err = store_get_cut(store, run, cut->name, &known, reason);
    return err == ERR_NOT_FOUND ? insert_cut(store, run, cut, reason) : err;
}

static enum err forget_newer(struct store *store, uint64_t run, struct cut_name newest,
                             struct reason *reason)
{
    return run_statement(
        store, "DELETE FROM cuts WHERE run = ? AND (generation, version) > (?, ?)",
        (struct value[]){
            uint_value(run), uint_value(newest.generation), uint_value(newest.version), {0}},
        reason);
}

enum err store_adopt_cuts(struct store *store, uint64_t term, uint64_t run, struct store_cuts cuts,
                          bool alone, struct reason *reason)
{
    TRY(begin_under(store, term, reason));
    enum err err = ERR_OK;
    for (size_t i = 0; i < cuts.count && err == ERR_OK; i++)
        err = adopt_cut(store, run, &cuts.list[i], reason);
    if (err == ERR_OK && alone && cuts.count > 0)
        err = forget_newer(store, run, cuts.list[0].name, reason);
    return end_transaction(store, err, reason);
}

enum err store_oldest_cut(struct store *store, uint64_t run, struct cut_name *ret_name,
                          struct reason *reason)
{
    scoped(finalize) sqlite3_stmt *statement = NULL;
    TRY(prepare_statement(store,
                          "SELECT generation, version FROM cuts WHERE run = ?"
                          " ORDER BY generation, version LIMIT 1",
                          (struct value[]){uint_value(run), {0}}, &statement, reason));
    int code = sqlite3_step(statement);
    if (code == SQLITE_DONE)
        return reason_set(reason, ERR_NOT_FOUND, "%s: the run has no checkpoint", store->path);
    if (code != SQLITE_ROW)
        return failed(store, "read the checkpoints", code, reason);
    *ret_name = (struct cut_name){(uint64_t)sqlite3_column_int64(statement, 0),
                                  (uint64_t)sqlite3_column_int64(statement, 1)};
    return ERR_OK;
}

/* There may be none: a crash may have come between this and what follows from it. */
enum err store_forget_cuts(struct store *store, uint64_t term, uint64_t run, struct cut_name newest,
                           struct reason *reason)
{
    TRY(begin_under(store, term, reason));
    return end_transaction(store, forget_newer(store, run, newest, reason), reason);
}

/* ---- convictions ---- */

/* The column `several` says whether the certificate alone decides: where other members had other
 * ones, before convictions knew who shares one. */
static enum err insert_conviction(struct store *store, uint64_t run,
                                  const struct conviction *conviction, struct reason *reason)
{
    return run_statement(
        store, "INSERT OR REPLACE INTO convictions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (struct value[]){uint_value(run),
                         uint_value(conviction->member),
                         uint_value(conviction->certificate),
                         uint_value(conviction->by_certificate),
                         text_value(conviction->name),
                         text_value(conviction->host),
                         uint_value(conviction->step),
                         uint_value(conviction->wrong_bits),
                         text_value(conviction->reason),
                         uint_value(conviction->undo),
                         uint_value(conviction->undo_from),
                         {0}},
        reason);
}

/* Earlier ones of the same worker, which the new one takes the place of (convictions.h). */
static enum err replace_convictions(struct store *store, uint64_t run,
                                    const struct conviction *conviction, struct reason *reason)
{
    return run_statement(store,
                         "DELETE FROM convictions WHERE run = ?1 AND member <> ?2"
                         " AND certificate = ?3 AND (?4 <> 0 OR (name = ?5 AND host = ?6))",
                         (struct value[]){uint_value(run),
                                          uint_value(conviction->member),
                                          uint_value(conviction->certificate),
                                          uint_value(conviction->by_certificate),
                                          text_value(conviction->name),
                                          text_value(conviction->host),
                                          {0}},
                         reason);
}

/* Members' numbers rise. The new one stays, and those for which the run is still to go back. */
static enum err prune_convictions(struct store *store, uint64_t run,
                                  const struct conviction *conviction, struct reason *reason)
{
    return run_statement(
        store,
        "DELETE FROM convictions WHERE run = ?1 AND member NOT IN"
        " (SELECT member FROM convictions WHERE run = ?1"
        "  ORDER BY member = ?3 DESC, undo DESC, member DESC LIMIT ?2)",
        (struct value[]){
            uint_value(run), uint_value(CONVICTIONS_MAX), uint_value(conviction->member), {0}},
        reason);
}

enum err store_put_conviction(struct store *store, uint64_t term, uint64_t run,
                              const struct conviction *conviction, struct reason *reason)
{
    TRY(begin_under(store, term, reason));
    enum err err = insert_conviction(store, run, conviction, reason);
    if (err == ERR_OK)
        err = replace_convictions(store, run, conviction, reason);
    if (err == ERR_OK)
        err = prune_convictions(store, run, conviction, reason);
    return end_transaction(store, err, reason);
}

static void copy_column(sqlite3_stmt *statement, int column, char *ret_text, size_t bytes)
{
    const unsigned char *text = sqlite3_column_text(statement, column);
    snprintf(ret_text, bytes, "%s", text != NULL ? (const char *)text : "");
}

static void read_conviction(sqlite3_stmt *statement, struct conviction *ret_conviction)
{
    *ret_conviction = (struct conviction){
        .member = (uint64_t)sqlite3_column_int64(statement, 0),
        .certificate = (uint64_t)sqlite3_column_int64(statement, 1),
        .by_certificate = sqlite3_column_int64(statement, 2) != 0,
        .step = (uint64_t)sqlite3_column_int64(statement, 5),
        .wrong_bits = sqlite3_column_int64(statement, 6) != 0,
        .undo = sqlite3_column_int64(statement, 8) != 0,
        .undo_from = (uint64_t)sqlite3_column_int64(statement, 9),
    };
    copy_column(statement, 3, ret_conviction->name, sizeof ret_conviction->name);
    copy_column(statement, 4, ret_conviction->host, sizeof ret_conviction->host);
    copy_column(statement, 7, ret_conviction->reason, sizeof ret_conviction->reason);
}

static enum err get_convictions(struct store *store, uint64_t run, struct convictions *convictions,
                                struct reason *reason)
{
    scoped(finalize) sqlite3_stmt *statement = NULL;
    TRY(prepare_statement(
        store,
        "SELECT member, certificate, several, name, host, step, wrong_bits, reason, undo, undo_from"
        " FROM convictions WHERE run = ? ORDER BY member LIMIT ?",
        (struct value[]){uint_value(run), uint_value(CONVICTIONS_MAX), {0}}, &statement, reason));
    int code = sqlite3_step(statement);
    for (; code == SQLITE_ROW; code = sqlite3_step(statement))
        read_conviction(statement, &convictions->list[convictions->count++]);
    return code == SQLITE_DONE ? ERR_OK : failed(store, "read the convictions", code, reason);
}

static enum err get_stop(struct store *store, uint64_t run, struct coordinator_past *past,
                         struct reason *reason)
{
    scoped(finalize) sqlite3_stmt *statement = NULL;
    enum err err = find_row(store, "read the stop", "SELECT reason FROM stops WHERE run = ?",
                            (struct value[]){uint_value(run), {0}}, &statement, reason);
    past->stops = err == ERR_OK;
    if (past->stops)
        copy_column(statement, 0, past->stop, sizeof past->stop);
    return err == ERR_NOT_FOUND ? ERR_OK : err;
}

static enum err get_fingerprint(struct store *store, uint64_t run, struct coordinator_past *past,
                                struct reason *reason)
{
    scoped(finalize) sqlite3_stmt *statement = NULL;
    enum err err =
        find_row(store, "read the fingerprint", "SELECT fingerprint FROM runs WHERE run = ?",
                 (struct value[]){uint_value(run), {0}}, &statement, reason);
    past->has_fingerprint = err == ERR_OK && digest_column(statement, 0, past->fingerprint);
    return err == ERR_NOT_FOUND ? ERR_OK : err;
}

enum err store_get_past(struct store *store, uint64_t run, struct coordinator_past *ret_past,
                        struct reason *reason)
{
    *ret_past = (struct coordinator_past){0};
    TRY(get_number(store, "generation", &ret_past->generation, reason));
    TRY(get_fingerprint(store, run, ret_past, reason));
    TRY(get_convictions(store, run, &ret_past->convictions, reason));
    TRY(get_stop(store, run, ret_past, reason));
    uint32_t count; /* none leaves generation 0 */
    return store_get_cuts(store, run, &ret_past->cut, 1, &count, reason);
}
