/* The journal of a server in an async run with `durability: logged`: every gradient that a chunk
 * took since the newest recorded cut, so that a restart loses nothing that was acknowledged.
 *
 *     RUN/checkpoints/journal/gG-sS-bB-NNNNNN.journal   generation, server, boot, segment; padded
 *                                                       with zeros to six digits or more
 *     head    64 bytes: "roostjnl", format 1, server, generation, boot, segment, zeros, hash
 *     records one behind another: head 32 bytes: "jrecords", number in the file, bytes and count
 *             of what follows, xxHash of all of it; then for each gradient 32 bytes (chunk, n,
 *             ticket, version that the chunk had, scale, zeros) and n floats; zeros up to 8 bytes
 *
 * A record is what one group commit makes durable: written, synced, and only then are its gradients
 * applied, published and acknowledged. Its writer begins the next one after that. So after a crash
 * any part of a file's last record may be missing: the record is cut off, and the reader reports
 * how much. A record that is damaged while a later one is whole was durable once: ERR_CORRUPT, with
 * file and offset. (Damage to the very last record looks like a crash while it was written. The
 * reader reports it too, and uses nothing of it.) Each start of a server writes files of its own,
 * and never into those of another start: when the server's own folder was lost, its boots begin
 * anew, and files of this boot or of a higher one may be there already (P3): then the name takes
 * the next higher number. A gap between files shows in the chunks' versions (async_redo()).
 *
 * A segment begins before the snapshot of a cut: when that cut is recorded, older segments go. A
 * commit that is sent again names the same cut; the segment that began when the cut was first named
 * counts, because everything since then is in no cut.
 *
 * Invariants (checked when a record or a segment ends): the record in the making begins with its
 * head; segments and the cuts that they are needed beside rise together.
 *
 * One owner thread; files through `ops`. */
#ifndef ROOST_SERVER_DISK_JOURNAL_H
#define ROOST_SERVER_DISK_JOURNAL_H

#include "common/file.h"

#define JOURNAL_FOLDER "journal" /* in the run's checkpoints/ */

enum {
    JOURNAL_HEAD_BYTES = 64,        /* of a file */
    JOURNAL_RECORD_BYTES = 4 << 20, /* a record is ended when it has so many */
    JOURNAL_CUTS_MAX = 8,           /* the newest are remembered */
};

struct journal_name {
    uint64_t generation;
    uint64_t boot;
    uint32_t server;
    uint32_t segment;
};

struct journal_entry {
    uint32_t chunk;
    uint32_t n;
    uint64_t ticket;
    uint64_t version; /* of the chunk before */
    float scale;
    const float *gradient; /* n */
};

/* A segment in the making. {0} is none. */
struct journal {
    const struct file_ops *ops;
    char *folder;
    struct journal_name name; /* of the open segment */
    struct file_log log;
    uint64_t number;   /* of the next record */
    uint32_t count;    /* gradients in it so far */
    struct buf record; /* head and gradients */
    struct {
        uint64_t version;
        uint32_t segment; /* the first that is needed beside this cut */
    } cuts[JOURNAL_CUTS_MAX];
    uint32_t cut_count;
};

/* Makes the folder and segment 0, behind all files that the folder has of this generation and
 * server: journal->name says under which number. `folder` is copied, `ops` must outlive the
 * journal. ERR_OLD_GENERATION: the folder has a later generation of the server. ERR_NO_SPACE: no
 * file is left, and the call may be repeated. */
enum err journal_open(const struct file_ops *ops, const char *folder, struct journal_name name,
                      struct journal *ret_journal, struct reason *reason) MUST_USE;
void journal_release(struct journal *journal); /* drops what is not committed; {0} is fine */
/* Adds the entry to the record in the making. ERR_NOMEM: the record does not have it. */
enum err journal_put(struct journal *journal, const struct journal_entry *entry) MUST_USE;
static inline bool journal_is_full(const struct journal *journal)
{
    return journal->record.bytes >= JOURNAL_RECORD_BYTES;
}
/* Makes the record durable and begins the next one. ERR_NO_SPACE: the file has nothing of the
 * record; the call may be repeated, also with more entries. Any other error is final. */
enum err journal_commit(struct journal *journal, struct reason *reason) MUST_USE;
/* Notes that the cut of that version needs the open segment and all later ones, and no earlier
 * one. */
void journal_note_cut(struct journal *journal, uint64_t version);
/* Notes the cut and begins the next segment; nothing may be uncommitted. Nothing happens for a cut
 * that is noted already. After an error the open segment goes on, and the cut needs it. */
enum err journal_cut(struct journal *journal, uint64_t version, struct reason *reason) MUST_USE;
/* The first segment that is needed beside that cut; false: the cut is not noted. */
bool journal_needed(const struct journal *journal, uint64_t version, struct journal_name *ret_keep);

/* Removes what a recorded cut of `keep`'s generation covers: files of older generations; of this
 * server those of older boots, and segments before keep's. */
enum err journal_prune(const struct file_ops *ops, const char *folder, struct journal_name keep,
                       struct reason *reason) MUST_USE;

/* Removes all files, durably: the run goes back behind what they follow. A server that lives may write
 * into one that is gone until it hears of that. No folder is an empty one. */
enum err journal_remove(const struct file_ops *ops, const char *folder,
                        struct reason *reason) MUST_USE;

/* Whether a file of the folder has more than its head. No folder is an empty one. */
enum err journal_has_records(const char *folder, bool *ret_has, struct reason *reason) MUST_USE;

/* Reads the files of the folder, in the order of their numbers; the gradient is borrowed for the
 * call. The files are synced first: a writer that was killed may not have synced them, and their
 * gradients will be acknowledged. An error of `take` ends it. *ret_torn: bytes that were cut off at
 * ends of files; `reason` then names the last one. No folder is an empty one. ERR_CORRUPT,
 * ERR_NOMEM, ERR_IO. */
struct journal_reader {
    void *context;
    enum err (*take)(void *context, const struct journal_entry *entry, struct reason *reason);
    /* Who reads: within a generation chunks stay where they are, so others' files of this one, which
     * are being written, hold nothing of its. Generation 0: all are read. */
    uint64_t generation;
    uint32_t server;
};
enum err journal_read(const struct file_ops *ops, const char *folder,
                      const struct journal_reader *reader, uint64_t *ret_torn,
                      struct reason *reason) MUST_USE;
/* The same for the bytes of one file. Pure. */
enum err journal_read_file(struct slice bytes, const char *path, struct journal_name name,
                           const struct journal_reader *reader, uint64_t *ret_torn,
                           struct reason *reason) MUST_USE;
/* The name of a file in the folder; false: it is none of a journal's. */
bool journal_parse_name(const char *file, struct journal_name *ret_name);

#endif
