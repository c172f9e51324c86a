/* How a line of the log looks, and its one write. */
#include "common/log.h"

#include "common/scoped.h"
#include "common/time.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES_MAX 4096 /* what is longer is cut: pipes take this much in one piece */

static const char *const level_names[] = {
    [LOG_LEVEL_ERROR] = "error",
    [LOG_LEVEL_WARNING] = "warning",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_DEBUG] = "debug",
};

static enum err put_quoted(struct buf *line, const char *text)
{
    TRY(buf_append(line, "\"", 1));
    for (const char *c = text; *c != 0; c++)
        if (*c == '"' || *c == '\\')
            TRY(buf_printf(line, "\\%c", *c));
        else if (*c == '\n')
            TRY(buf_append(line, "\\n", 2));
        else if ((unsigned char)*c < ' ' || *c == 127)
            TRY(buf_printf(line, "\\x%02x", (unsigned)*c));
        else
            TRY(buf_append(line, c, 1));
    return buf_append(line, "\"", 1);
}

static enum err put_text(struct buf *line, const char *text)
{
    if (text == NULL)
        return buf_append(line, "-", 1);
    bool plain = *text != 0;
    for (const char *c = text; *c != 0; c++)
        plain = plain && (unsigned char)*c > ' ' && strchr("\"\\=\177", *c) == NULL;
    return plain ? buf_append(line, text, strlen(text)) : put_quoted(line, text);
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
    TRY(buf_printf(line, "%s %s %s", time_format_utc(wall_ns).text, level_names[level], event));
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
    ignore(log_format(&line, time_wall_ns(), level, event, fields)); /* what fits is written */
    if (line.bytes == 0)
        return;
    line.data[line.bytes - 1] = '\n'; /* also when it was cut */
    ssize_t written = write(logger->fd, line.data, line.bytes);
    (void)written; /* there is no other place to report it */
}
