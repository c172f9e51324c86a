/* Closed segments and their footers; rows in any file of a step log. */
#include "common/files/step_log.h"

#include "common/files/json.h"
#include "common/files/step_log_format.h"
#include "common/scoped.h"

#include <inttypes.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 20, FOOTER_BYTES_MAX = 4096 };

static const char check_key[] = ",\"check\":\"";
enum { CHECK_BYTES = sizeof check_key - 1 + 64 + 3 }; /* and `"}` and a newline */

/* ---- footers ---- */

/* The members of a footer that are numbers, and where each is in it. */
struct member {
    const char *key;
    uint64_t *value;
};
enum { MEMBERS_MAX = 24, TIMES = 3 /* the last ones */ };

static size_t list_members(struct step_log_footer *footer, struct ledger_epoch *epoch,
                           struct member members[static MEMBERS_MAX])
{
    struct ledger *sums = &footer->state.sums;
    const struct member all[] = {
        {"segment", &footer->state.segment_count},
        {"rows_bytes", &footer->rows_bytes},
        {"steps", &sums->step_count},
        {"last_step", &sums->last.step},
        {"whole_from", &sums->whole_from},
        {"generation", &sums->last.generation},
        {"position", &sums->position},
        {"samples", &sums->samples},
        {"last_samples", &sums->last.samples},
        {"epoch_samples", &sums->last.epoch_samples},
        {"skipped", &sums->skipped_count},
        {"faults", &sums->fault_count},
        {"epoch", &epoch->epoch},
        {"epoch_counted", &epoch->counted},
        {"epoch_discarded", &epoch->discarded},
        {"epoch_first_step", &epoch->first_step},
        {"epoch_first_ticket", &epoch->first_ticket},
        {"epoch_last_ticket", &epoch->last_ticket},
        {"slot_ms", &footer->state.times.slot_ms},
        {"gap_us", &footer->state.times.gap_us},
        {"newest_us", &footer->state.times.newest_us},
    };
    memcpy(members, all, sizeof all);
    return sizeof all / sizeof all[0];
}

enum err step_log_print_footer(const struct step_log_footer *footer, struct buf *out)
{
    struct json_writer writer = json_writer(out);
    struct member members[MEMBERS_MAX];
    struct step_log_footer copy = *footer; /* only its numbers are read */
    const struct ledger *sums = &footer->state.sums;
    struct ledger_epoch epoch = {0};
    size_t begin = out->bytes;
    if (ledger_epoch_count(sums) > 0)
        epoch = ledger_epochs(sums)[ledger_epoch_count(sums) - 1];
    size_t count = list_members(&copy, &epoch, members);
    json_put_object(&writer);
    for (size_t i = 0; i < count; i++)
        json_member_uint(&writer, members[i].key, *members[i].value);
    json_member_hex(&writer, "epoch_digest", epoch.digest);
    json_member_text(&writer, "rows", digest_to_hex(&footer->rows).text);
    json_member_text(&writer, "before", digest_to_hex(&footer->before).text);
    json_put_end(&writer);
    TRY(json_writer_finish(&writer));
    struct digest check;
    TRY(digest_sha256((struct slice){out->data + begin, out->bytes - begin}, &check));
    out->bytes--; /* the object goes on with its digest */
    return buf_printf(out, "%s%s\"}\n", check_key, digest_to_hex(&check).text);
}

static enum err take_epoch(struct ledger *sums, struct ledger_epoch *epoch, const char *digest)
{
    epoch->samples = sums->last.epoch_samples;
    epoch->last_step = sums->last.step;
    epoch->digest = strtoull(digest, NULL, 16);
    return buf_append(&sums->epochs, epoch, sizeof *epoch);
}

static enum err parse_footer(const struct json *json, struct step_log_footer *footer,
                             struct reason *reason)
{
    struct member members[MEMBERS_MAX];
    struct ledger_epoch epoch = {0};
    const char *digest, *rows, *before, *check;
    size_t count = list_members(footer, &epoch, members);
    footer->has_times = json_has(json, members[count - TIMES].key);
    for (size_t i = 0; i < count - (footer->has_times ? 0 : TIMES); i++)
        TRY(json_get_uint(json, members[i].key, members[i].value, reason));
    TRY(json_get_text(json, "epoch_digest", &digest, reason));
    TRY(json_get_text(json, "rows", &rows, reason));
    TRY(json_get_text(json, "before", &before, reason));
    TRY(json_get_text(json, "check", &check, reason));
    if (digest_from_hex(rows, &footer->rows) != ERR_OK ||
        digest_from_hex(before, &footer->before) != ERR_OK ||
        digest_from_hex(check, &footer->state.newest) != ERR_OK)
        return reason_set(reason, ERR_MALFORMED, "a digest is none");
    const struct ledger *sums = &footer->state.sums;
    if ((sums->last.epoch_samples == 0 && sums->step_count > 0) ||
        sums->last.epoch_samples > LEDGER_EPOCH_SAMPLES_MAX)
        return reason_set(reason, ERR_MALFORMED, "epoch_samples must be 1 to 2^40");
    footer->state.sums.by_positions = true;
    return take_epoch(&footer->state.sums, &epoch, digest);
}

/* Whether the last member of the line is the digest of what is before it. */
static bool matches_check(struct slice line)
{
    scoped(buf_release) struct buf copy = {0};
    struct digest digest;
    char expected[CHECK_BYTES + 1];
    if (line.bytes < CHECK_BYTES)
        return false;
    size_t object = line.bytes - CHECK_BYTES;
    if (buf_append(&copy, line.data, object) != ERR_OK || buf_append(&copy, "}", 1) != ERR_OK ||
        digest_sha256(buf_slice(&copy), &digest) != ERR_OK)
        return false;
    snprintf(expected, sizeof expected, "%s%s\"}\n", check_key, digest_to_hex(&digest).text);
    return memcmp(line.data + object, expected, CHECK_BYTES) == 0;
}

/* The last line of the text, with its end. */
static struct slice last_line(struct slice text)
{
    size_t begin = text.bytes;
    while (begin > 1 && text.data[begin - 2] != '\n')
        begin--;
    return begin > 0 ? (struct slice){text.data + begin - 1, text.bytes - begin + 1} : text;
}

enum err step_log_read_footer(const char *path, struct step_log_footer *ret_footer,
                              struct reason *reason)
{
    scoped(buf_release) struct buf tail = {0};
    scoped(json_free_scoped) struct json *json = NULL;
    struct step_log_footer footer = {0};
    struct file_info info;
    struct reason why = {{0}};
    TRY(file_stat(path, &info, reason));
    uint64_t offset = info.bytes > FOOTER_BYTES_MAX ? info.bytes - FOOTER_BYTES_MAX : 0;
    TRY(file_read_part(path, offset, FOOTER_BYTES_MAX, &tail, reason));
    struct slice line = last_line(buf_slice(&tail));
    enum err err = matches_check(line) ? json_parse("footer", line, &json, &why) : ERR_CORRUPT;
    if (err != ERR_OK)
        json = NULL;
    if (err == ERR_OK)
        err = parse_footer(json, &footer, &why);
    if (err == ERR_OK && footer.rows_bytes != info.bytes - line.bytes)
        err = ERR_CORRUPT;
    if (err != ERR_OK) {
        ledger_release(&footer.state.sums);
        return reason_set(reason, err == ERR_NOMEM ? err : ERR_CORRUPT,
                          "%s: offset %" PRIu64 ": the footer is damaged %s", path,
                          info.bytes - line.bytes, why.text);
    }
    *ret_footer = footer;
    return ERR_OK;
}

/* ---- which there are ---- */

static bool is_segment(const char *name)
{
    size_t digits = strspn(name, "0123456789");
    return digits == 12 && strcmp(name + digits, ".jsonl") == 0;
}

enum err step_log_segments(const char *directory, struct file_names *ret_paths,
                           struct reason *reason)
{
    scoped(file_names_release) struct file_names names = {0}, paths = {0};
    char folder[STEP_LOG_PATH_BYTES], path[STEP_LOG_PATH_BYTES + 300];
    if (snprintf(folder, sizeof folder, "%s/steps", directory) >= (int)sizeof folder)
        return reason_set(reason, ERR_INVALID, "the run's directory has too long a name: %s",
                          directory);
    enum err err = file_list(folder, &names, reason);
    for (size_t i = 0; err == ERR_OK && i < names.count; i++) {
        if (!is_segment(names.names[i]))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, names.names[i]);
        err = file_names_add(&paths, path);
    }
    if (err != ERR_OK && err != ERR_NOT_FOUND)
        return err;
    *ret_paths = paths;
    paths = (struct file_names){0};
    return ERR_OK;
}

uint64_t step_log_segment_number(const char *path)
{
    return strtoull(strrchr(path, '/') + 1, NULL, 10);
}

/* ---- rows ---- */

/* False: the row does not begin with `key`. */
static bool number_behind(struct slice row, const char *key, uint64_t *ret_number)
{
    size_t length = strlen(key);
    if (row.bytes <= length || memcmp(row.data, key, length) != 0)
        return false;
    uint64_t number = 0;
    for (size_t i = length; i < row.bytes && row.data[i] >= '0' && row.data[i] <= '9'; i++)
        number = number * 10 + (uint64_t)(row.data[i] - '0');
    *ret_number = number;
    return true;
}

bool step_log_row_number(struct slice row, bool *ret_step, uint64_t *ret_number)
{
    *ret_step = number_behind(row, "{\"step\":", ret_number);
    return *ret_step || number_behind(row, "{\"version\":", ret_number);
}

static bool is_footer(struct slice row)
{
    static const char begin[] = "{\"segment\":";
    return row.bytes > sizeof begin && memcmp(row.data, begin, sizeof begin - 1) == 0;
}

/* Takes whole rows off the front of `text`. */
static enum err take_rows(struct buf *text, const char *path, uint64_t *line,
                          const struct step_log_reader *reader, struct reason *reason)
{
    size_t at = 0;
    const uint8_t *end;
    while (at < text->bytes && (end = memchr(text->data + at, '\n', text->bytes - at)) != NULL) {
        const struct slice row = {text->data + at, (size_t)(end - text->data) - at};
        at += row.bytes + 1;
        ++*line;
        if (!is_footer(row))
            TRY(reader->take(reader->context, path, *line, row, reason));
    }
    memmove(text->data, text->data + at, text->bytes - at);
    text->bytes -= at;
    return ERR_OK;
}

enum err step_log_read(const char *path, const struct step_log_reader *reader, bool *ret_torn,
                       struct reason *reason)
{
    scoped(buf_release) struct buf text = {0};
    uint64_t offset = 0, line = 0;
    for (;;) {
        size_t before = text.bytes;
        TRY(file_read_part(path, offset, PIECE_BYTES, &text, reason));
        if (text.bytes == before)
            break;
        offset += text.bytes - before;
        TRY(take_rows(&text, path, &line, reader, reason));
    }
    *ret_torn = text.bytes > 0;
    return ERR_OK;
}

/* ---- times ---- */

/* Where rows go: those below `first_step` are passed over. */
struct timed {
    struct step_times times;
    uint64_t first_step;
    uint64_t reached; /* all steps from the first one to this have rows */
    bool begun;       /* what follows is whole, and follows what was timed */
};

static enum err take_times(void *context, const char *path, uint64_t line, struct slice text,
                           struct reason *reason)
{
    struct timed *timed = context;
    struct ledger_row row;
    uint64_t number;
    bool is_step;
    if (!step_log_row_number(text, &is_step, &number) || number < timed->first_step)
        return ERR_OK;
    TRY(ledger_parse(path, line, text, &row, &is_step, reason));
    step_times_add(&timed->times, &row, is_step);
    if (is_step && row.step == timed->reached)
        timed->reached++;
    return ERR_OK;
}

static enum err time_segment(const char *path, struct timed *timed, struct reason *reason)
{
    const struct step_log_reader reader = {take_times, timed};
    struct step_log_footer footer = {0};
    bool torn;
    TRY(step_log_read_footer(path, &footer, reason));
    const uint64_t end = footer.state.sums.last.step + 1;
    const uint64_t whole_from = footer.state.sums.whole_from;
    ledger_release(&footer.state.sums);
    if (end <= timed->first_step)
        return ERR_OK;
    /* Before the first step, rows are not counted, and neither is the time since the last of them.
     */
    if (footer.has_times && timed->begun) {
        step_times_join(&timed->times, &footer.state.times);
        if (step_log_segment_number(path) <= timed->reached && whole_from <= timed->reached)
            timed->reached = end;
    } else {
        TRY(step_log_read(path, &reader, &torn, reason));
    }
    timed->begun = true;
    timed->first_step = end; /* steps.jsonl may have them as well */
    return ERR_OK;
}

enum err step_log_times(const char *directory, uint64_t first_step, struct step_times *ret_times,
                        uint64_t *ret_reached, struct reason *reason)
{
    scoped(file_names_release) struct file_names segments = {0};
    struct timed timed = {
        .first_step = first_step, .reached = first_step, .begun = first_step == 0};
    const struct step_log_reader reader = {take_times, &timed};
    char path[STEP_LOG_PATH_BYTES];
    bool torn;
    TRY(step_log_segments(directory, &segments, reason));
    for (size_t i = 0; i < segments.count; i++)
        TRY(time_segment(segments.names[i], &timed, reason));
    if (snprintf(path, sizeof path, "%s/steps.jsonl", directory) >= (int)sizeof path)
        return reason_set(reason, ERR_INVALID, "the run's directory has too long a name: %s",
                          directory);
    enum err err = step_log_read(path, &reader, &torn, reason);
    if (err != ERR_OK && err != ERR_NOT_FOUND) /* a run that never stepped may have none */
        return err;
    *ret_times = timed.times;
    *ret_reached = timed.reached;
    return ERR_OK;
}

enum err step_log_digest_part(const char *path, uint64_t offset, uint64_t bytes,
                              struct digest *ret_digest, struct reason *reason)
{
    scoped(buf_release) struct buf piece = {0};
    scoped(digest_stream_release) struct digest_stream stream = {0};
    TRY(digest_stream_init(&stream));
    while (bytes > 0) {
        piece.bytes = 0;
        TRY(file_read_part(path, offset, bytes < PIECE_BYTES ? (size_t)bytes : PIECE_BYTES, &piece,
                           reason));
        if (piece.bytes == 0)
            break; /* it is shorter: its digest is another one */
        digest_stream_add(&stream, buf_slice(&piece));
        offset += piece.bytes;
        bytes -= piece.bytes;
    }
    *ret_digest = digest_stream_finish(&stream);
    return ERR_OK;
}

enum err step_log_digest(const char *path, const struct step_log_footer *footer,
                         struct digest *ret_digest, struct reason *reason)
{
    return step_log_digest_part(path, 0, footer->rows_bytes, ret_digest, reason);
}
