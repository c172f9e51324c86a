/* roost ledger: that every sample of every epoch was counted exactly once, and from what. */
#include "common/files/ledger.h"

#include "common/file.h"
#include "common/files/checkpoint.h"
#include "common/files/run_directory.h"
#include "common/files/step_log.h"
#include "common/scoped.h"
#include "common/settings/spec.h"
#include "deploy/roost/arguments.h"
#include "deploy/roost/command.h"
#include "deploy/roost/print.h"

#include <inttypes.h>
#include <string.h>

enum { PATH_BYTES = 4096, RUN_YAML_BYTES_MAX = 1 << 20, CUT_TRIES = 3 };

/* What the directory holds beside the rows. */
struct facts {
    struct ledger ledger;
    bool full;                  /* rows of closed segments are read, too */
    uint64_t segment_count;     /* closed ones */
    uint64_t closed_steps;      /* in these */
    bool torn;                  /* the last line is unfinished */
    bool has_cut;               /* a recorded one */
    struct checkpoint_name cut; /* the newest */
    struct checkpoint_counters counters;
    bool is_unread; /* there is a recorded one, and it does not read: */
    struct reason unread;
};

static void facts_release(struct facts *facts)
{
    ledger_release(&facts->ledger);
}

/* ---- reading ---- */

static enum err join_path(char *ret_path, const char *directory, const char *name,
                          struct reason *reason)
{
    if (snprintf(ret_path, PATH_BYTES, "%s/%s", directory, name) >= PATH_BYTES)
        return reason_set(reason, ERR_INVALID, "DIR is too long");
    return ERR_OK;
}

/* The order of the samples hangs on it. */
static enum err read_seed(const char *directory, uint64_t *ret_seed, struct reason *reason)
{
    scoped(buf_release) struct buf text = {0};
    char path[PATH_BYTES];
    struct spec spec;
    TRY(join_path(path, directory, "run.yaml", reason));
    TRY(config_path_error(file_read(path, RUN_YAML_BYTES_MAX, &text, reason)));
    TRY(spec_parse(buf_slice(&text), path, NULL, &spec, reason));
    *ret_seed = spec.train.seed;
    return ERR_OK;
}

/* Where rows go: those below `first_step` are passed over. */
struct rows {
    struct ledger *ledger;
    uint64_t first_step;
};

static enum err take_row(void *context, const char *path, uint64_t line, struct slice text,
                         struct reason *reason)
{
    const struct rows *rows = context;
    struct ledger_row row;
    bool is_step;
    TRY(ledger_parse(path, line, text, &row, &is_step, reason));
    if (is_step && row.step >= rows->first_step && ledger_add(rows->ledger, &row) != ERR_OK)
        return reason_set(reason, ERR_NOMEM,
                          "%s:%" PRIu64 ": no memory for %" PRIu64 " samples of an epoch", path,
                          line, row.epoch_samples);
    return ERR_OK;
}

/* Whether the rows are those that the footer was made from, and come to its sums. */
static enum err read_segment(const char *path, const struct step_log_footer *footer,
                             struct ledger *ledger, struct reason *reason)
{
    struct rows rows = {.ledger = ledger};
    const struct step_log_reader reader = {take_row, &rows};
    const struct ledger *sums = &footer->state.sums;
    struct digest digest;
    bool torn;
    TRY(step_log_digest(path, footer, &digest, reason));
    if (memcmp(&digest, &footer->rows, sizeof digest) != 0)
        ledger_fault(ledger, "%.100s: its rows do not match the digest at its end", path);
    TRY(step_log_read(path, &reader, &torn, reason));
    if (ledger->step_count != sums->step_count || ledger->samples != sums->samples ||
        ledger->position != sums->position)
        ledger_fault(ledger, "%.100s: its rows do not come to the sums at its end", path);
    return ERR_OK;
}

/* A footer that follows the one before is added: it has the sums so far. */
static enum err read_closed(const char *directory, struct facts *facts, struct reason *reason)
{
    scoped(file_names_release) struct file_names segments = {0};
    struct digest before = {{0}};
    TRY(step_log_segments(directory, &segments, reason));
    facts->segment_count = segments.count;
    facts->closed_steps = 0;
    for (size_t i = 0; i < segments.count; i++) {
        const char *path = segments.names[i];
        struct step_log_footer footer = {0};
        TRY(step_log_read_footer(path, &footer, reason));
        if (memcmp(&footer.before, &before, sizeof before) != 0)
            ledger_fault(&facts->ledger, "%.100s does not follow the segment before it", path);
        before = footer.state.newest;
        facts->closed_steps = footer.state.sums.last.step + 1;
        enum err err = ERR_OK;
        if (facts->full)
            err = read_segment(path, &footer, &facts->ledger, reason);
        else if (i + 1 == segments.count)
            err = ledger_go_on(&facts->ledger, &footer.state.sums);
        ledger_release(&footer.state.sums);
        TRY(err);
    }
    return ERR_OK;
}

/* A daemon that was killed while it wrote, or is writing, leaves a torn line. */
static enum err read_rows_once(const char *directory, struct facts *facts, struct reason *reason)
{
    char path[PATH_BYTES];
    TRY(join_path(path, directory, "steps.jsonl", reason));
    TRY(read_closed(directory, facts, reason));
    struct rows rows = {&facts->ledger, facts->closed_steps};
    const struct step_log_reader reader = {take_row, &rows};
    enum err err = step_log_read(path, &reader, &facts->torn, reason);
    if (err != ERR_NOT_FOUND)
        return err;
    ledger_fault(&facts->ledger, "%.100s is not there: its rows are missing", path);
    return ERR_OK;
}

/* A run that goes on closes a segment now and then, and empties steps.jsonl: when it did so
 * meanwhile, rows were passed over, and all are read again. */
static enum err read_rows(const char *directory, struct facts *facts, struct reason *reason)
{
    for (;;) {
        scoped(file_names_release) struct file_names segments = {0};
        struct reason unread; /* `reason` is the rows' */
        enum err err = read_rows_once(directory, facts, reason);
        if (step_log_segments(directory, &segments, &unread) != ERR_OK ||
            segments.count == facts->segment_count)
            return err;
        ledger_release(&facts->ledger); /* its seed stays */
    }
}

/* What is recorded must be in the ledger. */
static void compare_cut(struct facts *facts)
{
    struct ledger *ledger = &facts->ledger;
    uint64_t steps = ledger->step_count > 0 ? ledger->last.step + 1 : 0;
    if (steps < facts->cut.version)
        ledger_fault(ledger,
                     "the checkpoint of version %" PRIu64 " has steps that the ledger lacks: "
                     "it ends before step %" PRIu64,
                     facts->cut.version, steps);
    else if (steps == facts->cut.version && ledger->step_count > 0 &&
             facts->counters.samples != ledger->last.samples)
        ledger_fault(ledger,
                     "the checkpoint of version %" PRIu64 " counts %" PRIu64
                     " samples, the ledger %" PRIu64,
                     facts->cut.version, facts->counters.samples, ledger->last.samples);
}

static enum err read_cut(const char *directory, struct facts *facts, struct reason *reason)
{
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    enum err err = ERR_NOT_FOUND; /* a run that goes on may remove what was the newest one */
    for (int tries = 0; tries < CUT_TRIES && err == ERR_NOT_FOUND; tries++)
        err = checkpoint_open_any(directory, &checkpoint, &facts->unread);
    if (err == ERR_NOMEM)
        return reason_set(reason, err, "%s", facts->unread.text);
    facts->is_unread = err != ERR_OK && run_directory_has_checkpoint(directory);
    if (err != ERR_OK)
        return ERR_OK;
    facts->has_cut = true;
    facts->cut = checkpoint_about(checkpoint)->name;
    facts->counters = checkpoint_about(checkpoint)->counters;
    return ERR_OK;
}

/* The newest checkpoint first: a run that goes on may record one whose steps were not read. */
static enum err read_all(const char *directory, struct facts *facts, struct reason *reason)
{
    TRY(read_seed(directory, &facts->ledger.seed, reason));
    TRY(read_cut(directory, facts, reason));
    TRY(read_rows(directory, facts, reason));
    if (facts->has_cut)
        compare_cut(facts);
    if (facts->is_unread)
        ledger_fault(&facts->ledger, "the newest checkpoint does not read: %.300s",
                     facts->unread.text);
    return ERR_OK;
}

/* ---- for people ---- */

static void print_epoch(const struct ledger_epoch *epoch)
{
    printf("epoch %" PRIu64 ": ", epoch->epoch);
    if (epoch->counted == epoch->samples)
        printf("all %" PRIu64 " sample%s counted exactly once", epoch->samples,
               plural(epoch->samples));
    else
        printf("%" PRIu64 " of %" PRIu64 " sample%s counted, each once", epoch->counted,
               epoch->samples, plural(epoch->samples));
    printf("; steps %" PRIu64 " to %" PRIu64 ", tickets %" PRIu64 " to %" PRIu64
           ", digest %016" PRIx64,
           epoch->first_step, epoch->last_step, epoch->first_ticket, epoch->last_ticket,
           epoch->digest);
    if (epoch->discarded > 0)
        printf("; %" PRIu64 " sample%s discarded with skipped steps", epoch->discarded,
               plural(epoch->discarded));
    printf("\n");
}

static void print_people(const struct facts *facts)
{
    const struct ledger *ledger = &facts->ledger;
    if (facts->segment_count > 0 && !facts->full)
        printf("closed segments: %" PRIu64 ", steps 0 to %" PRIu64
               ", by the sums at their ends; --full reads their rows\n",
               facts->segment_count, facts->closed_steps - 1);
    for (size_t i = 0; i < ledger_epoch_count(ledger); i++)
        print_epoch(&ledger_epochs(ledger)[i]);
    for (size_t i = 0; i < ledger_skipped_count(ledger); i++) {
        const struct ledger_row *row = &ledger_skipped(ledger)[i];
        printf("skipped: step %" PRIu64 ", tickets %" PRIu64 " to %" PRIu64 ", %" PRIu64
               " sample%s: its gradients were not finite\n",
               row->step, row->ticket, row->ticket + row->slots - 1, row->step_samples,
               plural(row->step_samples));
    }
    for (size_t i = 0; i < ledger_fault_count(ledger); i++)
        printf("FAULT: %s\n", ledger_faults(ledger)[i].text);
    if (ledger->fault_count > ledger_fault_count(ledger))
        printf("FAULT: and %" PRIu64 " more\n",
               ledger->fault_count - (uint64_t)ledger_fault_count(ledger));
    printf("in all %" PRIu64 " step%s, %" PRIu64 " sample%s, generation %" PRIu64,
           ledger->step_count, plural(ledger->step_count), ledger->samples, plural(ledger->samples),
           ledger->last.generation);
    if (facts->has_cut)
        printf("; newest checkpoint: version %" PRIu64, facts->cut.version);
    printf("%s\n", facts->torn ? "; the last line is unfinished and left out" : "");
}

/* ---- for tools ---- */

static void put_epoch(struct json_writer *writer, const struct ledger_epoch *epoch)
{
    json_put_object(writer);
    json_member_uint(writer, "epoch", epoch->epoch);
    json_member_uint(writer, "samples", epoch->samples);
    json_member_uint(writer, "counted", epoch->counted);
    json_member_uint(writer, "discarded", epoch->discarded);
    json_member_bool(writer, "complete", epoch->counted == epoch->samples);
    json_member_uint(writer, "first_step", epoch->first_step);
    json_member_uint(writer, "last_step", epoch->last_step);
    json_member_uint(writer, "first_ticket", epoch->first_ticket);
    json_member_uint(writer, "last_ticket", epoch->last_ticket);
    json_member_hex(writer, "digest", epoch->digest);
    json_put_end(writer);
}

static void put_skipped(struct json_writer *writer, const struct ledger_row *row)
{
    json_put_object(writer);
    json_member_uint(writer, "step", row->step);
    json_member_uint(writer, "first_ticket", row->ticket);
    json_member_uint(writer, "last_ticket", row->ticket + row->slots - 1);
    json_member_uint(writer, "samples", row->step_samples);
    json_put_end(writer);
}

static void print_tool(const struct facts *facts)
{
    const struct ledger *ledger = &facts->ledger;
    scoped(buf_release) struct buf text = {0};
    struct json_writer writer = json_writer(&text);
    json_put_object(&writer);
    json_member_bool(&writer, "right", ledger->fault_count == 0);
    json_member_uint(&writer, "steps", ledger->step_count);
    json_member_uint(&writer, "samples", ledger->samples);
    json_member_uint(&writer, "generation", ledger->last.generation);
    if (facts->has_cut)
        json_member_uint(&writer, "cut_version", facts->cut.version);
    if (facts->segment_count > 0) {
        json_member_uint(&writer, "closed_segments", facts->segment_count);
        json_member_uint(&writer, "closed_steps", facts->closed_steps);
    }
    json_member_uint(&writer, "skipped_count", ledger->skipped_count);
    print_array(&writer, "epochs");
    for (size_t i = 0; i < ledger_epoch_count(ledger); i++)
        put_epoch(&writer, &ledger_epochs(ledger)[i]);
    json_put_end(&writer);
    print_array(&writer, "skipped");
    for (size_t i = 0; i < ledger_skipped_count(ledger); i++)
        put_skipped(&writer, &ledger_skipped(ledger)[i]);
    json_put_end(&writer);
    json_member_uint(&writer, "fault_count", ledger->fault_count);
    print_array(&writer, "faults");
    for (size_t i = 0; i < ledger_fault_count(ledger); i++)
        json_put_text(&writer, ledger_faults(ledger)[i].text);
    json_put_end(&writer);
    json_put_end(&writer);
    print_json(&writer);
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    bool *full = state->input;
    (void)argument;
    if (key != 'F')
        return ARGP_ERR_UNKNOWN;
    *full = true;
    return 0;
}

int command_ledger(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"full", 'F', NULL, 0, "read the rows of closed segments, too", 0}, {0}};
    static const struct argp own = {options, parse_option, NULL, NULL, NULL, NULL, NULL};
    scoped(facts_release) struct facts facts = {0};
    const struct arguments_about about = {
        .subject = "DIR",
        .json = true,
        .own = &own,
        .own_input = &facts.full,
        .summary = "Reads a run's directory and proves, per epoch, that every sample was counted "
                   "exactly once: from which steps and tickets, with the digest of their "
                   "gradients' sums. Lists skipped steps, and whatever does not hold. Exit code 0: "
                   "everything holds; 1: not. Of a long run's closed "
                   "segments the sums at their ends are added."};
    struct arguments arguments;
    struct reason reason = {0};
    arguments_parse(&about, argc, argv, &arguments);
    enum err err = read_all(arguments.subject, &facts, &reason);
    if (err != ERR_OK)
        return command_fail(err, &reason);
    if (arguments.json)
        print_tool(&facts);
    else
        print_people(&facts);
    return facts.ledger.fault_count == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
