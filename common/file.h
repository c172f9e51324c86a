/* Files: read, map, replace in one piece, append, list, remove.
 *
 * What must survive a crash is written through a table of operations, so that a test can make the
 * n-th write, fsync or rename fail; `&file_ops_real` is the real one. Errors: ERR_NOT_FOUND,
 * ERR_DENIED, ERR_NO_SPACE (disk or quota full), ERR_EXISTS, ERR_NOMEM, else ERR_IO; the reason
 * names the path, the operation and the system's words. Whatever fails to be synced is
 * ERR_NOT_SYNCED. That is final: a daemon ends, and its restart reads what is on the disk.
 */
#ifndef ROOST_COMMON_FILE_H
#define ROOST_COMMON_FILE_H

#include "common/buf.h"

#include <stdbool.h>
#include <sys/types.h>

struct file_range {
    uint64_t offset, bytes;
};

enum { FILE_DIRECT_BYTES = 1 << 20 };

/* Each as the system call of its name: -1 and errno on failure. */
struct file_ops {
    int (*open)(const struct file_ops *ops, const char *path, int flags, unsigned mode);
    int (*close)(const struct file_ops *ops, int fd);
    ssize_t (*write)(const struct file_ops *ops, int fd, const void *data, size_t bytes);
    int (*fsync)(const struct file_ops *ops, int fd);
    int (*truncate)(const struct file_ops *ops, int fd, uint64_t bytes);
    int (*rename)(const struct file_ops *ops, const char *from, const char *to);
    int (*unlink)(const struct file_ops *ops, const char *path);
    /* Begins to write these bytes back to the disk, and waits for those before them; so a file is
     * written back as it grows, and little is left for its fsync(). NULL: does nothing. */
    int (*write_back)(const struct file_ops *ops, int fd, struct file_range before,
                      struct file_range bytes);
    /* From now on writes go to the disk itself, or through the page cache again. Direct ones are of
     * FILE_DIRECT_BYTES from aligned memory, at such an offset. NULL: cannot do that. */
    int (*direct)(const struct file_ops *ops, int fd, bool on);
    void *context; /* the test's */
};
extern const struct file_ops file_ops_real;
/* The error of the operation that just failed, from errno: "cannot VERB PATH: …". */
enum err file_failed(const char *verb, const char *path, struct reason *reason);

/* The whole file, appended to `bytes`. ERR_MALFORMED: it has more than `bytes_max`. ERR_INVALID: a
 * folder, a pipe or a device; nobody waits for those. */
enum err file_read(const char *path, size_t bytes_max, struct buf *bytes,
                   struct reason *reason) MUST_USE;

/* At most `bytes` from `offset` on, appended to `part`; nothing behind its end. */
enum err file_read_part(const char *path, uint64_t offset, size_t bytes, struct buf *part,
                        struct reason *reason) MUST_USE;

/* A file in memory, read only. The bytes live until file_map_release(); when somebody truncates the
 * file meanwhile, the process gets SIGBUS: file_faults_explain(). */
struct file_map {
    struct slice bytes;
};
enum err file_map_open(const char *path, struct file_map *ret_map, struct reason *reason) MUST_USE;
void file_map_release(struct file_map *map); /* {0} is fine */
/* Reads these bytes of a map from the disk. ERR_IO: the disk cannot, or the file has become shorter:
 * who touches the bytes gets SIGBUS. Before Linux 5.14 nobody can tell, and the result is OK. */
enum err file_map_load(struct slice bytes) MUST_USE;
/* Once per process, by main: when bytes of a mapped file are gone, a sentence on stderr names the
 * file, and the process ends with code 75. */
void file_faults_explain(void);
/* Opens the null device where standard input, output or error is closed: else the next file that is
 * opened has its number, and what is printed is written there. Nothing is read from it, a write to
 * standard output fails, one to standard error is dropped. Once per process, first in main. */
void file_standard_open(void);
/* These bytes of a map are read soon: the disk may begin. */
void file_read_ahead(struct slice bytes);

/* A file that appears whole or not at all: bytes go to `PATH.tmp`; commit makes them durable,
 * renames and makes the name durable. Release without commit removes the temporary file. */
struct file_writer {
    const struct file_ops *ops;
    char *path;
    char *path_tmp;
    int fd;
    uint64_t bytes;
    struct file_range before; /* what is being written back */
    uint8_t *staged;          /* the last bytes of a direct file; NULL: not direct */
    size_t staged_bytes;
};
/* `ops` must outlive the writer. */
enum err file_writer_open(const struct file_ops *ops, const char *path, unsigned mode,
                          struct file_writer *ret_writer, struct reason *reason) MUST_USE;
/* Before the first write, of a large file that nobody reads soon: its bytes go around the page
 * cache, which would first have to find as much memory for them. Where the file system, or memory,
 * does not allow that, they go through it. */
void file_writer_direct(struct file_writer *writer);
enum err file_writer_write(struct file_writer *writer, struct slice bytes,
                           struct reason *reason) MUST_USE;
enum err file_writer_commit(struct file_writer *writer, struct reason *reason) MUST_USE;
void file_writer_release(struct file_writer *writer); /* {0} and a committed one are fine */
/* The three in one call. */
enum err file_write_atomic(const struct file_ops *ops, const char *path, unsigned mode,
                           struct slice bytes, struct reason *reason) MUST_USE;

/* The same of what other users shall read (mode 0644), whatever the process's umask is. */
enum err file_write_public(const char *path, struct slice bytes, struct reason *reason) MUST_USE;

/* A file that only grows. An append that fails is taken back, so the file always ends with a whole
 * record. Records are durable after file_log_sync(). One thread. */
struct file_log {
    const struct file_ops *ops;
    char *path;
    int fd;
    uint64_t bytes; /* where the next append goes */
};
/* Opens or creates it (and makes its name durable). */
enum err file_log_open(const struct file_ops *ops, const char *path, struct file_log *ret_log,
                       struct reason *reason) MUST_USE;
/* The same in a new file that begins with `bytes`, durably, and takes the place of the one that is
 * there: a process that has that one open appends to what nobody reads any more. */
enum err file_log_replace(const struct file_ops *ops, const char *path, struct slice bytes,
                          struct file_log *ret_log, struct reason *reason) MUST_USE;
enum err file_log_append(struct file_log *log, struct slice bytes, struct reason *reason) MUST_USE;
enum err file_log_sync(struct file_log *log, struct reason *reason) MUST_USE;
/* Cuts the file to `bytes`; ERR_CORRUPT: the file is shorter than that. */
enum err file_log_truncate(struct file_log *log, uint64_t bytes, struct reason *reason) MUST_USE;
/* Whether its path still leads to it: another process may have replaced it. */
bool file_log_in_place(const struct file_log *log);
void file_log_release(struct file_log *log); /* {0} is fine */

/* A claim on a file, which is made when it is not there: several share one, or one has it alone. It
 * ends with the process at the latest. A file system without locks gives everybody what is asked
 * for. */
struct file_claim {
    bool held;
    int fd;
};
/* ERR_EXISTS: somebody has a claim that does not go with this one. */
enum err file_claim_take(const char *path, bool shared, struct file_claim *ret_claim,
                         struct reason *reason) MUST_USE;
void file_claim_release(struct file_claim *claim); /* {0} is fine */

/* Makes the folder in one that is there, and makes its name durable. ERR_EXISTS: the name is taken. */
enum err file_make_dir(const char *path, unsigned mode, struct reason *reason) MUST_USE;
/* Makes the folder and those above it, and makes their names durable; fine when it is there. */
enum err file_make_dirs(const char *path, unsigned mode, struct reason *reason) MUST_USE;
/* The same, and other users may read those that it makes (mode 0755), whatever the umask is. */
enum err file_make_public_dirs(const char *path, struct reason *reason) MUST_USE;
/* Makes a file's bytes durable, also those that another process wrote. Then they are read from the
 * disk: of a write that has failed the page cache may keep what no sync brings there any more. */
enum err file_settle(const struct file_ops *ops, const char *path, struct reason *reason) MUST_USE;
/* What is read next is what the disk has, but where the file system cannot tell. */
void file_forget_cached(const char *path);
/* Makes a folder's entries durable (after making or renaming files in it). */
enum err file_sync_dir(const struct file_ops *ops, const char *path,
                       struct reason *reason) MUST_USE;
/* The same for the folder that `path` is in. */
enum err file_sync_parent(const struct file_ops *ops, const char *path,
                          struct reason *reason) MUST_USE;
/* Removes a file, or a folder with all that is in it; does not follow links; fine when not there.
 */
enum err file_remove_tree(const char *path, struct reason *reason) MUST_USE;

/* Names, in the order of their bytes. {0} is an empty list. */
struct file_names {
    char **names;
    size_t count;
};
void file_names_release(struct file_names *names);
enum err file_names_add(struct file_names *names, const char *name) MUST_USE; /* a copy; unsorted */
void file_names_sort(struct file_names *names);
/* The entries of a folder, without "." and "..". */
enum err file_list(const char *path, struct file_names *ret_names, struct reason *reason) MUST_USE;
/* The paths that match a pattern of `*`, `?` and `[…]`; ERR_NOT_FOUND: none does. */
enum err file_glob(const char *pattern, struct file_names *ret_names,
                   struct reason *reason) MUST_USE;

enum file_kind { FILE_REGULAR, FILE_FOLDER, FILE_OTHER };
struct file_info {
    enum file_kind kind;
    uint64_t bytes;
    uint64_t modified_ns; /* of the wall clock */
    unsigned mode;        /* 0600 */
};
/* How many files this process may have open, raised as far as it may raise that itself. */
uint32_t file_limit_raise(void);
/* About the file that `path` leads to, links followed. */
enum err file_stat(const char *path, struct file_info *ret_info, struct reason *reason) MUST_USE;
/* `path` with all links resolved; *ret_path is the caller's to free(). */
enum err file_resolve(const char *path, char **ret_path, struct reason *reason) MUST_USE;

#endif
