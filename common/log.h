/* One line an event: `2026-11-20T11:12:21.123Z warning push refused  worker=7 err=OLD_GENERATION`.
 *
 *     log_warning(logger, "push refused", log_uint("worker", 7), log_text("err", err_name(err)));
 *
 * A logger is plain data, passed around, shared by any threads: each line is one write(). */
#ifndef ROOST_COMMON_LOG_H
#define ROOST_COMMON_LOG_H

#include "common/buf.h"

#include <stdbool.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

struct logger {
    enum log_level level; /* events above it are not written */
    int fd;               /* 2: stderr; -1: nothing is written */
    bool journal; /* lines begin with their priority, `<4>`, as systemd's journal reads it */
};

/* A logger of stderr. `journal_stream` is the variable JOURNAL_STREAM (systemd.exec(5)), or "":
 * when it names the file that stderr is, the journal reads it. */
struct logger log_stderr(enum log_level level, const char *journal_stream);

enum log_kind { LOG_END, LOG_INT, LOG_UINT, LOG_REAL, LOG_TEXT };

struct log_field {
    enum log_kind kind;
    const char *key;
    union {
        int64_t integer;
        uint64_t number;
        double real;
        const char *text; /* NULL is written as - */
    } value;
};

static inline struct log_field log_int(const char *key, int64_t value)
{
    return (struct log_field){LOG_INT, key, {.integer = value}};
}
static inline struct log_field log_uint(const char *key, uint64_t value)
{
    return (struct log_field){LOG_UINT, key, {.number = value}};
}
static inline struct log_field log_real(const char *key, double value)
{
    return (struct log_field){LOG_REAL, key, {.real = value}};
}
static inline struct log_field log_text(const char *key, const char *value)
{
    return (struct log_field){LOG_TEXT, key, {.text = value}};
}

#define log_error(logger, ...) LOG_EVENT((logger), LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(logger, ...) LOG_EVENT((logger), LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(logger, ...) LOG_EVENT((logger), LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(logger, ...) LOG_EVENT((logger), LOG_LEVEL_DEBUG, __VA_ARGS__)
#define LOG_EVENT(logger, level, event, ...)                                                       \
    log_event(logger, level, event, (struct log_field[]){__VA_ARGS__ __VA_OPT__(, ){0}})

/* `fields` ends with {0}. A line that cannot be written is lost; values are quoted when needed. */
void log_event(const struct logger *logger, enum log_level level, const char *event,
               const struct log_field *fields);
/* What begins a line of that level that is written past the logger: "<3>", or "". */
const char *log_mark(const struct logger *logger, enum log_level level);
/* The line of an event, pure. */
enum err log_format(struct buf *line, uint64_t wall_ns, enum log_level level, const char *event,
                    const struct log_field *fields) MUST_USE;

#endif
