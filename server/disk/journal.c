/* Heads, records, segments. */
#include "server/disk/journal.h"

#include "common/digest.h"
#include "common/model/model.h"
#include "common/scoped.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_MAGIC "roostjnl"
#define RECORD_MAGIC "jrecords"

enum { FORMAT = 1, PATH_BYTES = 4096 };

struct head {
    char magic[8];
    uint32_t format, server;
    uint64_t generation, boot;
    uint32_t segment, zero;
    uint64_t zeros[2];
    uint64_t hash; /* of all before */
};

struct record_head {
    char magic[8];
    uint64_t number;
    uint32_t bytes, count; /* of what follows */
    uint64_t hash;         /* of the record, this being 0 */
};

struct gradient_head {
    uint32_t chunk, n;
    uint64_t ticket, version;
    float scale;
    uint32_t zero;
};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are stored as they lie");
_Static_assert(sizeof(struct head) == JOURNAL_HEAD_BYTES && sizeof(struct record_head) == 32,
               "as the page says");
_Static_assert(sizeof(struct gradient_head) == 32, "as the page says");

/* ---- names ---- */

static enum err path_of(const char *folder, const char *file, char *ret_path, struct reason *reason)
{
    if (snprintf(ret_path, PATH_BYTES, "%s/%s", folder, file) >= PATH_BYTES)
        return reason_set(reason, ERR_INVALID, "the journal's folder has too long a name: %s",
                          folder);
    return ERR_OK;
}

struct file_name {
    char text[96];
};

static struct file_name file_name_of(struct journal_name name)
{
    struct file_name file;
    snprintf(file.text, sizeof file.text,
             "g%020" PRIu64 "-s%05" PRIu32 "-b%020" PRIu64 "-%06" PRIu32 ".journal",
             name.generation, name.server, name.boot, name.segment);
    return file;
}

bool journal_parse_name(const char *file, struct journal_name *ret_name)
{
    struct journal_name name;
    if (sscanf(file, "g%20" SCNu64 "-s%5" SCNu32 "-b%20" SCNu64 "-%10" SCNu32, &name.generation,
               &name.server, &name.boot, &name.segment) != 4 ||
        strcmp(file_name_of(name).text, file) != 0)
        return false;
    *ret_name = name;
    return true;
}

/* ---- writing ---- */

static struct head head_of(struct journal_name name)
{
    struct head head = {.format = FORMAT,
                        .server = name.server,
                        .generation = name.generation,
                        .boot = name.boot,
                        .segment = name.segment};
    memcpy(head.magic, HEAD_MAGIC, sizeof head.magic);
    head.hash = digest_fast64((struct slice){(uint8_t *)&head, offsetof(struct head, hash)});
    return head;
}

static enum err begin_record(struct journal *journal)
{
    struct record_head head = {.number = journal->number};
    memcpy(head.magic, RECORD_MAGIC, sizeof head.magic);
    journal->record.bytes = 0;
    journal->count = 0;
    return buf_append(&journal->record, &head, sizeof head);
}

/* The file of journal->name; its name and head are durable with the first record at the latest. */
static enum err open_segment(struct journal *journal, struct reason *reason)
{
    char path[PATH_BYTES];
    struct head head = head_of(journal->name);
    TRY(path_of(journal->folder, file_name_of(journal->name).text, path, reason));
    struct file_log log;
    TRY(file_log_open(journal->ops, path, &log, reason));
    /* Removes what an earlier attempt left on a full disk: nothing of it was durable. */
    enum err err = file_log_truncate(&log, 0, reason);
    if (err == ERR_OK)
        err = file_log_append(&log, (struct slice){(uint8_t *)&head, sizeof head}, reason);
    if (err != ERR_OK) {
        file_log_release(&log);
        return err;
    }
    file_log_release(&journal->log);
    journal->log = log;
    journal->number = 0;
    return begin_record(journal) == ERR_OK
               ? ERR_OK
               : reason_set(reason, ERR_NOMEM, "no memory for the journal");
}

/* None when there is no folder. */
static enum err list_files(const char *folder, struct file_names *ret_names, struct reason *reason)
{
    struct file_info info;
    if (file_stat(folder, &info, NULL) == ERR_NOT_FOUND)
        return ERR_OK;
    return file_list(folder, ret_names, reason);
}

/* P3: every start of a server has a new number, also a start that has lost the numbers of the
 * starts before. P7: such a start does not know either which coordinator the start before obeyed. A
 * generation that is not the newest is an older coordinator's, and what is written for it now would
 * stand before what the newer one has acknowledged. */
static enum err number_start(const char *folder, struct journal_name *name, struct reason *reason)
{
    scoped(file_names_release) struct file_names names = {0};
    TRY(list_files(folder, &names, reason));
    for (size_t i = 0; i < names.count; i++) {
        struct journal_name other;
        if (!journal_parse_name(names.names[i], &other) || other.server != name->server)
            continue;
        if (other.generation > name->generation)
            return reason_set(reason, ERR_OLD_GENERATION,
                              "%s has a journal of generation %llu, and generation %llu is older",
                              folder, (unsigned long long)other.generation,
                              (unsigned long long)name->generation);
        if (other.generation == name->generation && other.boot >= name->boot)
            name->boot = other.boot + 1;
    }
    return ERR_OK;
}

/* A file that the disk has no room for goes: the next attempt would number itself behind it. */
static enum err open_first_segment(struct journal *journal, struct reason *reason)
{
    char path[PATH_BYTES];
    TRY(path_of(journal->folder, file_name_of(journal->name).text, path, reason));
    enum err err = open_segment(journal, reason);
    if (err == ERR_NO_SPACE)
        (void)journal->ops->unlink(journal->ops, path); /* else it stays, empty, until a cut */
    return err;
}

enum err journal_open(const struct file_ops *ops, const char *folder, struct journal_name name,
                      struct journal *ret_journal, struct reason *reason)
{
    struct journal journal = {.ops = ops, .name = name, .folder = strdup(folder)};
    enum err err = journal.folder != NULL
                       ? file_make_dirs(folder, 0755, reason)
                       : reason_set(reason, ERR_NOMEM, "no memory for the journal");
    if (err == ERR_OK)
        err = number_start(folder, &journal.name, reason);
    check(journal.name.boot >= name.boot); /* P3: no number is given twice */
    if (err == ERR_OK)
        err = open_first_segment(&journal, reason);
    if (err == ERR_OK)
        *ret_journal = journal;
    else
        journal_release(&journal);
    return err;
}

void journal_release(struct journal *journal)
{
    file_log_release(&journal->log);
    buf_release(&journal->record);
    free(journal->folder);
    *journal = (struct journal){0};
}

enum err journal_put(struct journal *journal, const struct journal_entry *entry)
{
    struct gradient_head head = {.chunk = entry->chunk,
                                 .n = entry->n,
                                 .ticket = entry->ticket,
                                 .version = entry->version,
                                 .scale = entry->scale};
    TRY(buf_reserve(&journal->record, sizeof head + (size_t)entry->n * sizeof(float)));
    TRY(buf_append(&journal->record, &head, sizeof head));
    TRY(buf_append(&journal->record, entry->gradient, (size_t)entry->n * sizeof(float)));
    journal->count++;
    return ERR_OK;
}

/* Fills in the head's fields about the rest of the record. */
static enum err seal_record(struct journal *journal)
{
    static const uint8_t zeros[8];
    size_t padding = (8 - journal->record.bytes % 8) % 8;
    TRY(buf_append(&journal->record, zeros, padding));
    struct record_head head;
    check(journal->record.bytes % 8 == 0);
    check(journal->record.bytes <= UINT32_MAX);
    memcpy(&head, journal->record.data, sizeof head);
    check(head.number == journal->number);
    head.bytes = (uint32_t)(journal->record.bytes - sizeof head);
    head.count = journal->count;
    head.hash = 0;
    memcpy(journal->record.data, &head, sizeof head);
    head.hash = digest_fast64(buf_slice(&journal->record));
    memcpy(journal->record.data, &head, sizeof head);
    return ERR_OK;
}

enum err journal_commit(struct journal *journal, struct reason *reason)
{
    if (journal->count == 0)
        return ERR_OK;
    size_t bytes = journal->record.bytes;
    check(bytes > sizeof(struct record_head));
    if (seal_record(journal) != ERR_OK)
        return reason_set(reason, ERR_NOMEM, "no memory for the journal");
    enum err err = file_log_append(&journal->log, buf_slice(&journal->record), reason);
    if (err != ERR_OK) {
        journal->record.bytes = bytes; /* more may follow what is there, without padding */
        return err;
    }
    TRY(file_log_sync(&journal->log, reason));
    journal->number++;
    check(begin_record(journal) == ERR_OK); /* it had more bytes */
    return ERR_OK;
}

/* ---- cuts ---- */

bool journal_needed(const struct journal *journal, uint64_t version, struct journal_name *ret_keep)
{
    for (uint32_t i = 0; i < journal->cut_count; i++) {
        if (journal->cuts[i].version != version)
            continue;
        *ret_keep = journal->name;
        ret_keep->segment = journal->cuts[i].segment;
        return true;
    }
    return false;
}

void journal_note_cut(struct journal *journal, uint64_t version)
{
    struct journal_name noted;
    if (journal_needed(journal, version, &noted))
        return;
    if (journal->cut_count == JOURNAL_CUTS_MAX)
        memmove(journal->cuts, journal->cuts + 1, --journal->cut_count * sizeof journal->cuts[0]);
    check(journal->cut_count < JOURNAL_CUTS_MAX);
    check(journal->cut_count == 0 ||
          journal->cuts[journal->cut_count - 1].segment <= journal->name.segment);
    journal->cuts[journal->cut_count].version = version;
    journal->cuts[journal->cut_count++].segment = journal->name.segment;
}

static enum err rotate(struct journal *journal, struct reason *reason)
{
    check(journal->count == 0);
    journal->name.segment++;
    enum err err = open_segment(journal, reason);
    if (err != ERR_OK)
        journal->name.segment--;
    return err;
}

enum err journal_cut(struct journal *journal, uint64_t version, struct reason *reason)
{
    struct journal_name noted;
    /* P12: what was acknowledged is never lost. A commit that is sent again names the cut again,
     * and gradients that came meanwhile are in no cut. */
    if (journal_needed(journal, version, &noted))
        return ERR_OK;
    enum err err = rotate(journal, reason);
    journal_note_cut(journal, version);
    return err;
}

/* ---- pruning ---- */

/* Whether a recorded cut of `keep` covers the file of that name (journal_prune()). */
static bool covers(struct journal_name name, struct journal_name keep)
{
    if (name.generation != keep.generation)
        return name.generation < keep.generation;
    if (name.server != keep.server)
        return false;
    return name.boot != keep.boot ? name.boot < keep.boot : name.segment < keep.segment;
}

enum err journal_prune(const struct file_ops *ops, const char *folder, struct journal_name keep,
                       struct reason *reason)
{
    scoped(file_names_release) struct file_names names = {0};
    TRY(list_files(folder, &names, reason));
    for (size_t i = 0; i < names.count; i++) {
        struct journal_name name;
        char path[PATH_BYTES];
        if (!journal_parse_name(names.names[i], &name) || !covers(name, keep))
            continue;
        TRY(path_of(folder, names.names[i], path, reason));
        (void)ops->unlink(ops, path); /* another server may have; else it is after the next cut */
    }
    return ERR_OK;
}

enum err journal_remove(const struct file_ops *ops, const char *folder, struct reason *reason)
{
    scoped(file_names_release) struct file_names names = {0};
    TRY(list_files(folder, &names, reason));
    for (size_t i = 0; i < names.count; i++) {
        struct journal_name name;
        char path[PATH_BYTES];
        if (!journal_parse_name(names.names[i], &name))
            continue;
        TRY(path_of(folder, names.names[i], path, reason));
        if (ops->unlink(ops, path) != 0 && errno != ENOENT)
            return file_failed("remove", path, reason);
    }
    return names.count > 0 ? file_sync_dir(ops, folder, reason) : ERR_OK;
}

/* ---- reading ---- */

enum err journal_has_records(const char *folder, bool *ret_has, struct reason *reason)
{
    scoped(file_names_release) struct file_names names = {0};
    bool has = false;
    TRY(list_files(folder, &names, reason));
    for (size_t i = 0; i < names.count; i++) {
        struct journal_name name;
        struct file_info info = {0};
        char path[PATH_BYTES];
        if (!journal_parse_name(names.names[i], &name))
            continue;
        TRY(path_of(folder, names.names[i], path, reason));
        enum err err = file_stat(path, &info, reason);
        if (err != ERR_OK && err != ERR_NOT_FOUND) /* gone: its writer prunes it at any moment */
            return err;
        has |= info.bytes > JOURNAL_HEAD_BYTES;
    }
    *ret_has = has;
    return ERR_OK;
}

/* The record at `at`, when it is whole and has that number; UINT64_MAX: any number. */
static bool record_at(struct slice bytes, size_t at, uint64_t number, struct record_head *ret_head)
{
    struct record_head head;
    if (bytes.bytes - at < sizeof head)
        return false;
    memcpy(&head, bytes.data + at, sizeof head);
    if (memcmp(head.magic, RECORD_MAGIC, sizeof head.magic) != 0 ||
        head.bytes > bytes.bytes - at - sizeof head || head.bytes % 8 != 0 ||
        (number != UINT64_MAX && head.number != number))
        return false;
    struct record_head cleared = head;
    cleared.hash = 0;
    scoped(digest_fast_release) struct digest_fast fast = {0};
    if (digest_fast_init(&fast) != ERR_OK)
        return false;
    digest_fast_add(&fast, (struct slice){(uint8_t *)&cleared, sizeof cleared});
    digest_fast_add(&fast, (struct slice){bytes.data + at + sizeof head, head.bytes});
    if (digest_fast_finish(&fast) != head.hash)
        return false;
    *ret_head = head;
    return true;
}

/* A whole record of a higher number. Records begin at multiples of eight. */
static bool later_record_behind(struct slice bytes, size_t at, uint64_t number)
{
    struct record_head head;
    for (at = (at + 7) / 8 * 8; at + sizeof head <= bytes.bytes; at += 8)
        if (record_at(bytes, at, UINT64_MAX, &head) && head.number > number)
            return true;
    return false;
}

static enum err corrupt(const char *path, size_t at, const char *what, struct reason *reason)
{
    return reason_set(reason, ERR_CORRUPT, "%s: offset %zu: %s", path, at, what);
}

/* The gradients of a record that is whole, so they are as they were written, and at multiples of
 * four. */
static enum err take_record(struct slice body, uint32_t count, const char *path, size_t at,
                            const struct journal_reader *reader, struct reason *reason)
{
    size_t offset = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct gradient_head head;
        if (body.bytes - offset < sizeof head)
            return corrupt(path, at, "a record has fewer gradients than it says", reason);
        memcpy(&head, body.data + offset, sizeof head);
        offset += sizeof head;
        size_t bytes = (size_t)head.n * sizeof(float);
        if (head.n > MODEL_CHUNK_WEIGHTS_MAX || body.bytes - offset < bytes)
            return corrupt(path, at, "a gradient is larger than its record", reason);
        const float *gradient = (const float *)(const void *)(body.data + offset);
        offset += bytes;
        const struct journal_entry entry = {head.chunk,   head.n,     head.ticket,
                                            head.version, head.scale, gradient};
        TRY(reader->take(reader->context, &entry, reason));
    }
    return ERR_OK;
}

/* The record of that number, which is to be at `at`, is not whole: the end that a crash left, or
 * damage. The next one is written only after this one is durable. */
static enum err cut_off(struct slice bytes, size_t at, uint64_t number, const char *path,
                        uint64_t *torn, struct reason *reason)
{
    if (later_record_behind(bytes, at + 8, number))
        return corrupt(path, at, "a record is damaged, and later ones are whole", reason);
    *torn += bytes.bytes - at;
    ignore(reason_set(reason, ERR_OK, "%s: offset %zu: a record was not whole; cut off", path, at));
    return ERR_OK;
}

enum err journal_read_file(struct slice bytes, const char *path, struct journal_name name,
                           const struct journal_reader *reader, uint64_t *ret_torn,
                           struct reason *reason)
{
    struct head expected = head_of(name);
    struct record_head head;
    if (bytes.bytes < sizeof expected || memcmp(bytes.data, &expected, sizeof expected) != 0)
        return cut_off(bytes, 0, 0, path, ret_torn, reason); /* it is synced with record 0 */
    size_t at = sizeof expected;
    for (uint64_t number = 0; at < bytes.bytes; number++) {
        if (!record_at(bytes, at, number, &head))
            return cut_off(bytes, at, number, path, ret_torn, reason);
        struct slice body = {bytes.data + at + sizeof head, head.bytes};
        TRY(take_record(body, head.count, path, at, reader, reason));
        at += sizeof head + head.bytes;
    }
    return ERR_OK;
}

/* ERR_NOT_FOUND: it is gone, or was just made. */
static enum err open_path(const struct file_ops *ops, const char *path, struct file_map *ret_map,
                          struct reason *reason)
{
    struct file_info info;
    TRY(file_settle(ops, path, reason));
    TRY(file_stat(path, &info, reason));
    return info.bytes == 0 ? ERR_NOT_FOUND : file_map_open(path, ret_map, reason);
}

static enum err read_path(const struct file_ops *ops, const char *path, struct journal_name name,
                          const struct journal_reader *reader, uint64_t *torn,
                          struct reason *reason)
{
    struct file_map map;
    struct reason opened = {{0}};
    enum err err = open_path(ops, path, &map, &opened);
    if (err == ERR_NOT_FOUND)
        return ERR_OK; /* its writer, another server, may prune it at any moment */
    if (err != ERR_OK)
        return reason_set(reason, err, "%s", opened.text);
    err = journal_read_file(map.bytes, path, name, reader, torn, reason);
    file_map_release(&map);
    return err;
}

/* As they came: a segment's number may be longer than others'. */
static int by_number(const void *a, const void *b)
{
    const struct journal_name *x = a, *y = b;
    if (x->generation != y->generation)
        return x->generation < y->generation ? -1 : 1;
    if (x->server != y->server)
        return x->server < y->server ? -1 : 1;
    if (x->boot != y->boot)
        return x->boot < y->boot ? -1 : 1;
    return (x->segment > y->segment) - (x->segment < y->segment);
}

/* The folder's journals; *ret_journals is the caller's to free(). */
static enum err list_journals(const char *folder, struct journal_name **ret_journals,
                              size_t *ret_count, struct reason *reason)
{
    scoped(file_names_release) struct file_names names = {0};
    size_t count = 0;
    TRY(list_files(folder, &names, reason));
    struct journal_name *journals = calloc(names.count + 1, sizeof *journals);
    if (journals == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to read %s", folder);
    for (size_t i = 0; i < names.count; i++)
        count += journal_parse_name(names.names[i], &journals[count]);
    qsort(journals, count, sizeof *journals, by_number);
    *ret_journals = journals;
    *ret_count = count;
    return ERR_OK;
}

enum err journal_read(const struct file_ops *ops, const char *folder,
                      const struct journal_reader *reader, uint64_t *ret_torn,
                      struct reason *reason)
{
    scoped(free_scoped) struct journal_name *journals = NULL;
    size_t count = 0;
    *ret_torn = 0;
    TRY(list_journals(folder, &journals, &count, reason));
    for (size_t i = 0; i < count; i++) {
        char path[PATH_BYTES];
        if (journals[i].generation == reader->generation && journals[i].server != reader->server)
            continue;
        TRY(path_of(folder, file_name_of(journals[i]).text, path, reason));
        TRY(read_path(ops, path, journals[i], reader, ret_torn, reason));
    }
    return ERR_OK;
}
