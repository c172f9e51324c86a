/* Fields are added by importance, whole, as long as there is room. What the run waits for is never
 * left out: where it does not fit behind the fields it gets rows of its own below them, and the
 * picture moves as a whole. */
#include "deploy/roost/progress.h"

#include "common/settings/options.h"
#include "common/time.h"
#include "deploy/roost/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    PLAIN_MS = 5000,   /* between lines where they do not move */
    WINDOW_MS = 20000, /* speed is of the last one to two of these: workers come and go */
    COLUMNS = 80,      /* of a terminal that does not say */
    ROWS = 24,
    BAR_CELLS = 24,
    BAR_CELLS_MIN = 5,
    LINE_BYTES = 1024 + WIRE_TEXT_BYTES_MAX /* all fields, and what the run waits for */
};

/* Columns and rows that may be written: one column less than there is, since a full row would move
 * the cursor to the next one. */
struct room {
    size_t columns, rows;
};

struct line {
    size_t bytes;
    size_t row_bytes_max;
    char text[LINE_BYTES];
};

/* A field that does not fit is left out, unless it is the first. */
PRINTF_LIKE(2, 3) static void add(struct line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(line->text + line->bytes, LINE_BYTES - line->bytes, format, arguments);
    va_end(arguments);
    bool fits = bytes >= 0 && line->bytes + (size_t)bytes <= line->row_bytes_max;
    if (fits || line->bytes == 0)
        line->bytes = strlen(line->text);
    line->text[line->bytes] = 0;
}

/* What matters is never left out: it begins a row where it does not fit behind the fields. */
static void add_words(struct line *line, const char *what, const char *words)
{
    bool fits = line->bytes + 2 + strlen(what) + strlen(words) <= line->row_bytes_max;
    const char *before = line->bytes == 0 ? "" : fits ? "  " : "\n";
    snprintf(line->text + line->bytes, LINE_BYTES - line->bytes, "%s%s%s", before, what, words);
    line->bytes = strlen(line->text);
}

/* What a locale's name says about its characters: locale(7). */
static bool shows_blocks(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    const char *locale = "";
    for (size_t i = 0; i < sizeof names / sizeof names[0] && locale[0] == 0; i++)
        locale = options_environment(names[i], "");
    return strcasestr(locale, "UTF-8") != NULL || strcasestr(locale, "UTF8") != NULL;
}

struct progress progress_new(uint64_t sample_tokens)
{
    bool moves = strcmp(options_environment("TERM", "dumb"), "dumb") != 0;
    return (struct progress){.terminal = moves && isatty(STDERR_FILENO) == 1,
                             .blocks = shows_blocks(),
                             .sample_tokens = sample_tokens};
}

/* ---- speed ---- */

static void take_marks(struct progress *progress, uint64_t now_ms,
                       const struct status_reply *status)
{
    const struct progress_mark mark = {now_ms, status->step, status->samples};
    if (status->samples_here == 0 || mark.step == progress->newest.step)
        return;
    if (progress->newest.ms == 0)
        progress->from = progress->next = mark;
    progress->newest = mark;
    if (mark.ms - progress->next.ms < WINDOW_MS)
        return;
    progress->from = progress->next;
    progress->next = mark;
}

static void add_speed(struct line *line, const struct progress *progress,
                      const struct status_reply *status, bool over)
{
    const struct progress_mark *from = &progress->from, *newest = &progress->newest;
    double samples = (double)(newest->samples - from->samples);
    double seconds = (double)(newest->ms - from->ms) / 1000;
    if (over) {
        samples = (double)status->samples_here;
        seconds = status->seconds;
    }
    if (seconds <= 0)
        return;
    double value = samples * (double)progress->sample_tokens / seconds;
    const char *unit = progress->sample_tokens > 1 ? "tok/s" : "samples/s";
    if (value >= 1e6)
        add(line, "  %.2fM %s", value / 1e6, unit);
    else if (value >= 1e4)
        add(line, "  %.1fk %s", value / 1e3, unit);
    else
        add(line, "  %.0f %s", value, unit);
}

static void add_eta(struct line *line, const struct progress *progress, uint64_t now_ms,
                    const struct status_reply *status)
{
    const struct progress_mark *from = &progress->from, *newest = &progress->newest;
    if (newest->step == from->step)
        return;
    double step_ms = (double)(newest->ms - from->ms) / (double)(newest->step - from->step);
    uint64_t left_ms = (uint64_t)(step_ms * (double)(status->steps - newest->step));
    uint64_t since_ms = now_ms - newest->ms;
    uint64_t left_s = left_ms > since_ms ? (left_ms - since_ms + 999) / 1000 : 0;
    if (left_s < 60)
        add(line, "  ETA %" PRIu64 "s", left_s);
    else
        add(line, "  ETA %s", time_format_duration((double)left_s).text);
}

/* ---- the line ---- */

static void add_workers(struct line *line, const struct status_reply *status)
{
    uint32_t present = 0;
    for (uint32_t i = 0; i < status->member_count; i++)
        present += strcmp(status->members[i].state, "joined") == 0;
    if (present > 0) /* else the reason says it */
        add(line, "  %" PRIu32 " worker%s", present, plural(present));
    if (present > 0 && status->workers_lost > 0)
        add(line, " (%" PRIu64 " lost)", status->workers_lost);
}

static void add_results(struct line *line, const struct progress *progress,
                        const struct status_reply *status)
{
    if (status->samples_here > 0 && progress->sample_tokens == 1 && !isnan(status->accuracy))
        add(line, "  acc %.1f%%", 100 * status->accuracy);
    if (status->has_validation)
        add(line, "  val %s", print_number(status->validation_loss, 3).text);
}

/* By importance. */
static void add_fields(struct line *line, const struct progress *progress, uint64_t now_ms,
                       const struct status_reply *status)
{
    bool over = status->state != RUN_TRAINING, waits = status->reason[0] != 0;
    add(line, "step %" PRIu64 "/%" PRIu64, status->step, status->steps);
    if (status->samples_here > 0)
        add(line, "  loss %s", print_number(status->loss, 3).text);
    if (over)
        add(line, "  in %s", time_format_duration(status->seconds).text);
    else if (!waits)
        add_eta(line, progress, now_ms, status);
    if (!over)
        add_workers(line, status);
    add_results(line, progress, status);
    add_speed(line, progress, status, over);
}

static struct line make_line(const struct progress *progress, uint64_t now_ms,
                             const struct status_reply *status, size_t columns)
{
    struct line line = {.row_bytes_max = columns < LINE_BYTES ? columns : LINE_BYTES - 1};
    if (status->state == RUN_STARTING) {
        add_words(&line, status->reason[0] != 0 ? "starting: " : "starting", status->reason);
        return line;
    }
    add_fields(&line, progress, now_ms, status);
    if (status->state != RUN_TRAINING)
        return line;
    if (status->reason[0] != 0) /* why it does not move */
        add_words(&line, "", status->reason);
    else if (status->cut_state[0] != 0) /* what it would lose with its servers */
        add_words(&line, "NO CHECKPOINT: ", status->cut_state);
    return line;
}

/* ---- where it goes ---- */

static struct room terminal_room(void)
{
    struct winsize size = {0};
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0;
    return (struct room){(known && size.ws_col > 1 ? size.ws_col : (size_t)COLUMNS) - 1,
                         known && size.ws_row > 0 ? size.ws_row : (size_t)ROWS};
}

static void write_bar(const struct progress *progress, const struct status_reply *status,
                      size_t cells)
{
    const char *full = progress->blocks ? "█" : "#", *empty = progress->blocks ? "·" : "-";
    uint64_t filled = status->steps == 0 ? 0 : status->step * cells / status->steps;
    for (size_t i = 0; i < cells; i++)
        fputs(i < filled ? full : empty, stderr);
    fputc(' ', stderr);
}

/* How many bytes of `text` make a row: to a new line, to the last space that fits, or as much as
 * fits without a part of a character. */
static size_t row_bytes(const char *text, size_t columns)
{
    size_t bytes = strcspn(text, "\n");
    if (bytes <= columns)
        return bytes;
    bytes = columns;
    while (bytes > 0 && text[bytes] != ' ')
        bytes--;
    if (bytes > 0)
        return bytes;
    bytes = columns;
    while (bytes > 1 && (text[bytes] & 0xC0) == 0x80) /* UTF-8 goes on */
        bytes--;
    return bytes;
}

/* Returns how many rows were written. */
static size_t write_rows(const struct line *line, struct room room)
{
    const char *text = line->text;
    for (size_t row = 1;; row++) {
        size_t bytes = row_bytes(text, room.columns);
        fwrite(text, 1, bytes, stderr);
        text += bytes;
        text += *text == ' ' || *text == '\n';
        if (*text == 0 || row == room.rows)
            return row;
        fputc('\n', stderr);
    }
}

static void show_moving(struct progress *progress, uint64_t now_ms,
                        const struct status_reply *status)
{
    struct room room = terminal_room();
    struct line line = make_line(progress, now_ms, status, room.columns);
    if (progress->line_rows > 1)
        fprintf(stderr, "\033[%zuA", progress->line_rows - 1); /* to the picture's first row */
    fputs("\r\033[J", stderr);
    size_t bytes = row_bytes(line.text, room.columns);
    bool whole = line.text[bytes] == 0 || line.text[bytes] == '\n';
    size_t cells = room.columns > bytes && whole ? room.columns - bytes - 1 : 0;
    if (status->state != RUN_STARTING && cells >= BAR_CELLS_MIN)
        write_bar(progress, status, cells < BAR_CELLS ? cells : BAR_CELLS);
    progress->line_rows = write_rows(&line, room);
    fflush(stderr);
}

static void show_plain(const struct progress *progress, uint64_t now_ms,
                       const struct status_reply *status)
{
    fprintf(stderr, "%s\n", make_line(progress, now_ms, status, LINE_BYTES).text);
}

/* A rewind: steps are done again. */
static void note_generation(struct progress *progress, const struct status_reply *status)
{
    if (progress->generation != 0 && status->generation > progress->generation) {
        progress_clear(progress);
        /* Of the newest cut, unless that is of this generation already: then steps went by unseen. */
        uint64_t step =
            status->cut.generation < status->generation ? status->cut.version : status->step;
        fprintf(stderr, "going on from the checkpoint of step %" PRIu64 "\n", step);
        progress->from = progress->next = progress->newest = (struct progress_mark){0};
    }
    progress->generation = status->generation;
}

void progress_show(struct progress *progress, uint64_t now_ms, const struct status_reply *status)
{
    if (status->state == RUN_FAILED) /* its reason follows, as the error */
        return;
    note_generation(progress, status);
    take_marks(progress, now_ms, status);
    bool due = progress->line_ms == 0 || now_ms - progress->line_ms >= PLAIN_MS;
    bool last = status->step == status->steps && progress->line_step != status->step;
    bool failing = status->cut_state[0] != 0;
    bool news = failing && !progress->cut_failing;
    progress->cut_failing = failing;
    if (!progress->terminal && !due && !last && !news)
        return;
    progress->line_ms = now_ms;
    progress->line_step = status->step;
    if (progress->terminal)
        show_moving(progress, now_ms, status);
    else
        show_plain(progress, now_ms, status);
}

void progress_clear(struct progress *progress)
{
    if (progress->terminal && progress->line_ms != 0)
        fputc('\n', stderr);
    progress->line_ms = 0;
    progress->line_rows = 0;
}
