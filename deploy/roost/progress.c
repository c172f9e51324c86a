#include "deploy/roost/progress.h"

#include "common/settings/options.h"
#include "common/time.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    PLAIN_MS = 5000,   /* between lines where they do not move */
    WINDOW_MS = 20000, /* speed is of the last one to two of these: workers come and go */
    COLUMNS = 80,      /* of a terminal that does not say */
    BAR_CELLS = 24,
    BAR_CELLS_MIN = 5,
    LINE_BYTES = 512
};

struct line {
    char text[LINE_BYTES];
    size_t bytes;
};

PRINTF_LIKE(2, 3) static void add(struct line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(line->text + line->bytes, LINE_BYTES - line->bytes, format, arguments);
    va_end(arguments);
    size_t room = LINE_BYTES - 1 - line->bytes;
    line->bytes += bytes < 0 ? 0 : (size_t)bytes < room ? (size_t)bytes : room;
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
    if (status->samples_here > 0)
        add(line, "  loss %.3f", status->loss);
    if (status->samples_here > 0 && progress->sample_tokens == 1)
        add(line, "  acc %.1f%%", 100 * status->accuracy);
    if (status->has_validation)
        add(line, "  val %.3f", status->validation_loss);
}

static struct line make_line(const struct progress *progress, uint64_t now_ms,
                             const struct status_reply *status)
{
    struct line line = {0};
    bool over = status->state != RUN_STARTING && status->state != RUN_TRAINING;
    if (status->state == RUN_STARTING) {
        add(&line, "starting%s%s", status->reason[0] != 0 ? ": " : "", status->reason);
        return line;
    }
    add(&line, "step %" PRIu64 "/%" PRIu64, status->step, status->steps);
    add_results(&line, progress, status);
    add_speed(&line, progress, status, over);
    if (over) {
        add(&line, "  in %s", time_format_duration(status->seconds).text);
        return line;
    }
    add_workers(&line, status);
    if (status->reason[0] != 0) /* why it does not move */
        add(&line, "  %s", status->reason);
    else if (status->cut_state[0] != 0) /* what it would lose with its servers */
        add(&line, "  NO CHECKPOINT: %s", status->cut_state);
    else
        add_eta(&line, progress, now_ms, status);
    return line;
}

/* ---- where it goes ---- */

/* One less than there are: a full line would move the cursor to the next one. */
static size_t terminal_room(void)
{
    struct winsize size = {0};
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return (known ? size.ws_col : (size_t)COLUMNS) - 1;
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

static void write_moving(const struct progress *progress, struct line *line,
                         const struct status_reply *status)
{
    size_t room = terminal_room();
    fputs("\r\033[K", stderr);
    size_t cells = room > line->bytes ? room - line->bytes - 1 : 0;
    if (status->state != RUN_STARTING && cells >= BAR_CELLS_MIN)
        write_bar(progress, status, cells < BAR_CELLS ? cells : BAR_CELLS);
    if (line->bytes > room) {
        line->bytes = room;
        while (line->bytes > 0 && (line->text[line->bytes] & 0xC0) == 0x80) /* UTF-8 goes on */
            line->bytes--;
    }
    fwrite(line->text, 1, line->bytes, stderr);
    fflush(stderr);
}

/* A rewind: steps are done again. */
static void note_generation(struct progress *progress, const struct status_reply *status)
{
    if (progress->generation != 0 && status->generation > progress->generation) {
        progress_clear(progress);
        fprintf(stderr, "going on from the checkpoint of step %" PRIu64 "\n", status->step);
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
    struct line line = make_line(progress, now_ms, status);
    if (progress->terminal)
        write_moving(progress, &line, status);
    else
        fprintf(stderr, "%s\n", line.text);
}

void progress_clear(struct progress *progress)
{
    if (progress->terminal && progress->line_ms != 0)
        fputc('\n', stderr);
    progress->line_ms = 0;
}
