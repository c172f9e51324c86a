/* How a line of the log looks, and its one write. */
#include "common/log.h"

#include "common/scoped.h"
#include "common/time.h"
#include "common/utf8.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES_MAX 4096 /* longer lines are cut: pipes take this much in one piece */

static const char *const level_names[] = {
    [LOG_LEVEL_ERROR] = "error",
    [LOG_LEVEL_WARNING] = "warning",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_DEBUG] = "debug",
};

/* As syslog(3) numbers them. */
static const char *const priorities[] = {
    [LOG_LEVEL_ERROR] = "<3>",
    [LOG_LEVEL_WARNING] = "<4>",
    [LOG_LEVEL_INFO] = "<6>",
    [LOG_LEVEL_DEBUG] = "<7>",
};

struct logger log_stderr(enum log_level level, const char *journal_stream)
{
    struct stat status;
    char stream[64] = "";
    if (fstat(STDERR_FILENO, &status) == 0)
        snprintf(stream, sizeof stream, "%ju:%ju", (uintmax_t)status.st_dev,
                 (uintmax_t)status.st_ino);
    return (struct logger){.level = level,
                           .fd = STDERR_FILENO,
                           .journal = stream[0] != 0 && strcmp(stream, journal_stream) == 0};
}

const char *log_mark(const struct logger *logger, enum log_level level)
{
    return logger->journal ? priorities[level] : "";
}

/* The bytes of the character at `text`, if it may stand in a line as it is; 0: it may not. */
static size_t shown_length(const char *text)
{
    return utf8_plain_length((struct slice){(const uint8_t *)text, strnlen(text, 4)});
}

static enum err put_quoted(struct buf *line, const char *text)
{
    TRY(buf_append(line, "\"", 1));
    for (const char *c = text; *c != 0;) {
        size_t shown = shown_length(c);
        if (*c == '"' || *c == '\\')
            TRY(buf_printf(line, "\\%c", *c));
        else if (*c == '\n')
            TRY(buf_append(line, "\\n", 2));
        else if (shown == 0)
            TRY(buf_printf(line, "\\x%02x", (unsigned)(unsigned char)*c));
        else
            TRY(buf_append(line, c, shown));
        c += shown > 0 ? shown : 1;
    }
    return buf_append(line, "\"", 1);
}

static enum err put_text(struct buf *line, const char *text)
{
    if (text == NULL)
        return buf_append(line, "-", 1);
    size_t shown = 1;
    for (const char *c = text; *c != 0 && shown > 0; c += shown)
        shown = strchr(" \"\\=", *c) == NULL ? shown_length(c) : 0;
    bool as_it_is = *text != 0 && shown > 0;
    return as_it_is ? buf_append(line, text, strlen(text)) : put_quoted(line, text);
}

/* It may have words of peers in it, cut anywhere. */
static enum err put_event(struct buf *line, const char *event)
{
    for (const char *c = event; *c != 0;) {
        size_t shown = shown_length(c);
        TRY(shown > 0 ? buf_append(line, c, shown) : buf_append(line, "?", 1));
        c += shown > 0 ? shown : 1;
    }
    return ERR_OK;
}

static enum err put_value(struct buf *line, const struct log_field *field)
{
    switch (field->kind) {
    case LOG_INT:
        return buf_printf(line, "%" PRId64, field->value.integer);
    case LOG_UINT:
        return buf_printf(line, "%" PRIu64, field->value.number);
    case LOG_REAL:
        return buf_printf(line, "%g", field->value.real);
    case LOG_TEXT:
        return put_text(line, field->value.text);
    case LOG_END:
        break;
    }
    return ERR_OK;
}

enum err log_format(struct buf *line, uint64_t wall_ns, enum log_level level, const char *event,
                    const struct log_field *fields)
{
    TRY(buf_printf(line, "%s %s ", time_format_utc(wall_ns).text, level_names[level]));
    TRY(put_event(line, event));
    for (const struct log_field *field = fields; field->kind != LOG_END; field++) {
        TRY(buf_printf(line, "%s%s=", field == fields ? "  " : " ", field->key));
        TRY(put_value(line, field));
    }
    return buf_append(line, "\n", 1);
}

void log_event(const struct logger *logger, enum log_level level, const char *event,
               const struct log_field *fields)
{
    if (level > logger->level || logger->fd < 0)
        return;
    scoped(buf_release) struct buf line = {.bytes_max = LINE_BYTES_MAX};
    ignore(buf_printf(&line, "%s", log_mark(logger, level)));
    /* A line that is too long is cut. */
    ignore(log_format(&line, time_wall_ns(), level, event, fields));
    if (line.bytes == 0)
        return;
    line.data[line.bytes - 1] = '\n'; /* also when it was cut */
    ssize_t written = write(logger->fd, line.data, line.bytes);
    (void)written; /* there is no other place to report it */
}
