/* The ledger of a run. */
#include "common/files/ledger.h"

#include "common/data/sampler.h"
#include "common/digest.h"
#include "common/files/json.h"

#include <stdarg.h>
#include <string.h>

/* ---- rows ---- */

static enum err parse_digest(const char *text, uint64_t *ret_digest)
{
    uint64_t digest = 0;
    size_t i = 0;
    for (; text[i] != 0 && i < 16; i++) {
        const char *digits = "0123456789abcdef";
        const char *digit = strchr(digits, text[i]);
        if (digit == NULL)
            return ERR_MALFORMED;
        digest = digest << 4 | (uint64_t)(digit - digits);
    }
    if (i != 16 || text[i] != 0)
        return ERR_MALFORMED;
    *ret_digest = digest;
    return ERR_OK;
}

static enum err parse_step(const struct json *json, struct ledger_row *row, struct reason *reason)
{
    const char *digest;
    TRY(json_get_uint(json, "step", &row->step, reason));
    TRY(json_get_uint(json, "generation", &row->generation, reason));
    TRY(json_get_bool(json, "skipped", &row->skipped, reason));
    TRY(json_get_uint(json, "ticket", &row->ticket, reason));
    TRY(json_get_uint(json, "slots", &row->slots, reason));
    TRY(json_get_uint(json, "slot_samples", &row->slot_samples, reason));
    TRY(json_get_uint(json, "step_samples", &row->step_samples, reason));
    TRY(json_get_uint(json, "epoch_samples", &row->epoch_samples, reason));
    TRY(json_get_uint(json, "samples", &row->samples, reason));
    TRY(json_get_text(json, "digest", &digest, reason));
    if (parse_digest(digest, &row->digest) != ERR_OK)
        return reason_set(reason, ERR_MALFORMED, "digest must be 16 hexadecimal digits");
    return ERR_OK;
}

static enum err parse_times(const struct json *json, struct ledger_row *row, struct reason *reason)
{
    double time_s = 0;
    if (json_has(json, "slot_ms"))
        TRY(json_get_uint(json, "slot_ms", &row->slot_ms, reason));
    if (json_has(json, "time"))
        TRY(json_get_real(json, "time", &time_s, reason));
    if (!(time_s >= 0 && time_s <= LEDGER_TIME_S_MAX))
        return reason_set(reason, ERR_MALFORMED, "time must be 0 to 2^40");
    row->time_us = (uint64_t)(time_s * 1e6);
    return ERR_OK;
}

static enum err row_limits(const struct ledger_row *row, struct reason *reason)
{
    if (row->slots == 0 || row->slots > LEDGER_SLOTS_MAX)
        return reason_set(reason, ERR_MALFORMED, "slots must be 1 to %d", LEDGER_SLOTS_MAX);
    if (row->slot_samples == 0 || row->slot_samples > LEDGER_SLOT_SAMPLES_MAX)
        return reason_set(reason, ERR_MALFORMED, "slot_samples must be 1 to 2^32");
    if (row->epoch_samples == 0 || row->epoch_samples > LEDGER_EPOCH_SAMPLES_MAX)
        return reason_set(reason, ERR_MALFORMED, "epoch_samples must be 1 to 2^40");
    if (row->ticket > LEDGER_POSITION_MAX / row->slot_samples)
        return reason_set(reason, ERR_MALFORMED, "ticket is too large");
    return ERR_OK;
}

static enum err parse(struct slice text, struct ledger_row *row, bool *ret_step,
                      struct reason *reason)
{
    scoped(json_free_scoped) struct json *json = NULL;
    enum err err = json_parse("row", text, &json, reason);
    if (err != ERR_OK) {
        json = NULL;
        return err;
    }
    *ret_step = json_has(json, "step");
    TRY(parse_times(json, row, reason));
    if (!*ret_step)
        return ERR_OK;
    TRY(parse_step(json, row, reason));
    return row_limits(row, reason);
}

enum err ledger_parse(const char *name, uint64_t line, struct slice text,
                      struct ledger_row *ret_row, bool *ret_step, struct reason *reason)
{
    struct ledger_row row = {0};
    struct reason why = {{0}};
    bool is_step;
    enum err err = parse(text, &row, &is_step, &why);
    if (err != ERR_OK)
        return reason_set(reason, err, "%.200s:%llu: %.200s", name, (unsigned long long)line,
                          why.text);
    *ret_step = is_step;
    *ret_row = row;
    return ERR_OK;
}

/* ---- what does not hold ---- */

void ledger_fault(struct ledger *ledger, const char *format, ...)
{
    struct ledger_fault fault;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault.text, sizeof fault.text, format, arguments);
    va_end(arguments);
    ledger->fault_count++;
    if (ledger_fault_count(ledger) < LEDGER_FAULTS_MAX)
        ignore(buf_append(&ledger->faults, &fault, sizeof fault)); /* it is counted */
}

/* The step that comes next. */
static unsigned long long next_step(const struct ledger *ledger)
{
    return ledger->step_count > 0 ? ledger->last.step + 1 : 0;
}

/* Adds the step to the fault of those just before it, if there is one. */
static void note_again(struct ledger *ledger, unsigned long long step)
{
    struct ledger_again *again = &ledger->again;
    size_t kept = ledger_fault_count(ledger);
    if (again->fault_count == 0 || again->fault_count != ledger->fault_count ||
        step != again->last + 1) {
        *again = (struct ledger_again){step, step, next_step(ledger) - 1, ledger->fault_count + 1};
        ledger_fault(ledger, "step %llu counts samples that step %llu has counted", step,
                     (unsigned long long)again->counted);
        return;
    }
    again->last = step;
    if (kept != ledger->fault_count) /* it is counted */
        return;
    struct ledger_fault *fault = (struct ledger_fault *)(void *)ledger->faults.data + kept - 1;
    snprintf(fault->text, sizeof fault->text,
             "steps %llu to %llu count samples that steps up to %llu have counted",
             (unsigned long long)again->first, step, (unsigned long long)again->counted);
}

/* Whether the row's step comes behind those before it. */
static bool comes_behind(struct ledger *ledger, const struct ledger_row *row)
{
    const struct ledger_row *last = &ledger->last;
    unsigned long long step = row->step, next = next_step(ledger);
    if (ledger->step_count > 0 && row->epoch_samples != last->epoch_samples) {
        ledger_fault(
            ledger, "step %llu has a data set of %llu samples, the steps before one of %llu", step,
            (unsigned long long)row->epoch_samples, (unsigned long long)last->epoch_samples);
        return false;
    }
    if (step > next)
        ledger->whole_from = row->step;
    if (step == next + 1)
        ledger_fault(ledger, "step %llu is missing", next);
    else if (step > next)
        ledger_fault(ledger, "steps %llu to %llu are missing", next, step - 1);
    if (step < next) {
        note_again(ledger, step);
        return false;
    }
    if (row->generation < last->generation)
        ledger_fault(ledger, "step %llu is of generation %llu, a step before it of %llu", step,
                     (unsigned long long)row->generation, (unsigned long long)last->generation);
    return true;
}

/* Whether its samples do: those of a step that is smaller than the ones before may not. */
static bool has_new_samples(struct ledger *ledger, const struct ledger_row *row)
{
    unsigned long long step = row->step, next = next_step(ledger);
    unsigned long long first = row->ticket * row->slot_samples, position = ledger->position;
    if (first < position)
        note_again(ledger, step);
    else if (first > position && step == next)
        ledger_fault(ledger,
                     "between steps %llu and %llu %llu samples of the order are passed over",
                     next > 0 ? next - 1 : 0, step, first - position);
    return first >= position;
}

/* ---- counting ---- */

static struct ledger_epoch *last_epoch(struct ledger *ledger)
{
    size_t count = ledger_epoch_count(ledger);
    return count == 0 ? NULL : (struct ledger_epoch *)(void *)ledger->epochs.data + count - 1;
}

static enum err clear_seen(struct ledger *ledger, uint64_t epoch_samples)
{
    size_t bytes = (size_t)(epoch_samples / 8 + 1);
    ledger->seen.bytes = 0;
    TRY(buf_reserve(&ledger->seen, bytes));
    memset(ledger->seen.data, 0, bytes);
    ledger->seen.bytes = bytes;
    return ERR_OK;
}

static enum err open_epoch(struct ledger *ledger, const struct ledger_row *row, uint64_t number,
                           uint64_t ticket)
{
    struct ledger_epoch epoch = {
        .epoch = number,
        .samples = row->epoch_samples,
        .first_step = row->step,
        .first_ticket = ticket,
    };
    if (ledger->by_positions)
        ledger->epochs.bytes = 0;
    else
        TRY(clear_seen(ledger, row->epoch_samples));
    return buf_append(&ledger->epochs, &epoch, sizeof epoch);
}

/* The sample at a position of the present epoch. */
static void tick_off(struct ledger *ledger, struct ledger_epoch *epoch,
                     const struct sampler *sampler, uint64_t position, const struct ledger_row *row)
{
    uint64_t sample = sampler_sample(sampler, position);
    uint8_t *byte = &ledger->seen.data[sample / 8];
    uint8_t bit = (uint8_t)(1u << sample % 8);
    if ((*byte & bit) != 0) {
        ledger_fault(ledger, "step %llu counts sample %llu of epoch %llu again",
                     (unsigned long long)row->step, (unsigned long long)sample,
                     (unsigned long long)epoch->epoch);
        return;
    }
    *byte |= bit;
    epoch->counted++;
    epoch->discarded += row->skipped;
}

static void note_step(struct ledger_epoch *epoch, const struct ledger_row *row)
{
    const uint64_t link[] = {epoch->digest, row->step, row->digest};
    epoch->digest = digest_fast64((struct slice){(const uint8_t *)link, sizeof link});
    epoch->last_step = row->step;
}

static enum err count(struct ledger *ledger, const struct ledger_row *row)
{
    const struct sampler sampler = {ledger->seed, row->epoch_samples, row->slot_samples};
    uint64_t position = row->ticket * row->slot_samples;
    uint64_t end = position + row->slots * row->slot_samples;
    while (position < end) {
        uint64_t number = position / row->epoch_samples;
        uint64_t epoch_end = (number + 1) * row->epoch_samples;
        struct ledger_epoch *epoch = last_epoch(ledger);
        if (epoch == NULL || epoch->epoch != number) {
            TRY(open_epoch(ledger, row, number, position / row->slot_samples));
            epoch = last_epoch(ledger);
        }
        note_step(epoch, row);
        if (ledger->by_positions) {
            uint64_t counted = (end < epoch_end ? end : epoch_end) - position;
            epoch->counted += counted;
            epoch->discarded += row->skipped ? counted : 0;
            position += counted;
        }
        for (; position < end && position < epoch_end; position++)
            tick_off(ledger, epoch, &sampler, position, row);
        epoch->last_ticket = (position - 1) / row->slot_samples;
    }
    ledger->position = end;
    return ERR_OK;
}

/* Servers add the count as a float: above 2^24 each level of the tree may round it. */
static bool counts_all(const struct ledger_row *row, uint64_t all)
{
    enum { WHOLE_MAX = 1 << 24, LEVELS_MAX = 17 /* of 65,536 slots */ };
    uint64_t away = row->step_samples > all ? row->step_samples - all : all - row->step_samples;
    return away == 0 || (all > WHOLE_MAX && away <= all / WHOLE_MAX * LEVELS_MAX);
}

enum err ledger_add(struct ledger *ledger, const struct ledger_row *row)
{
    uint64_t all = row->slots * row->slot_samples;
    if (!comes_behind(ledger, row))
        return ERR_OK;
    if (!counts_all(row, all))
        ledger_fault(ledger,
                     "step %llu counted %llu samples with its gradients, its tickets have %llu",
                     (unsigned long long)row->step, (unsigned long long)row->step_samples,
                     (unsigned long long)all);
    if (has_new_samples(ledger, row))
        TRY(count(ledger, row));
    ledger->skipped_count += row->skipped ? 1 : 0;
    if (row->skipped && !ledger->by_positions)
        TRY(buf_append(&ledger->skipped, row, sizeof *row));
    ledger->step_count++;
    ledger->samples += counts_all(row, all) ? all : row->step_samples;
    ledger->last = *row;
    return ERR_OK;
}

enum err ledger_go_on(struct ledger *ledger, const struct ledger *sums)
{
    check(ledger->step_count == 0 && sums->by_positions);
    ledger->step_count = sums->step_count;
    ledger->position = sums->position;
    ledger->samples = sums->samples;
    ledger->whole_from = sums->whole_from;
    ledger->skipped_count = sums->skipped_count;
    ledger->fault_count += sums->fault_count;
    ledger->last = sums->last;
    if (ledger_epoch_count(sums) == 0 || sums->position % sums->last.epoch_samples == 0)
        return ERR_OK; /* the next row begins an epoch */
    TRY(buf_append(&ledger->epochs, ledger_epochs(sums), sizeof(struct ledger_epoch)));
    return clear_seen(ledger, sums->last.epoch_samples);
}

/* ---- results ---- */

void ledger_release(struct ledger *ledger)
{
    buf_release(&ledger->epochs);
    buf_release(&ledger->skipped);
    buf_release(&ledger->faults);
    buf_release(&ledger->seen);
    *ledger = (struct ledger){.seed = ledger->seed};
}

size_t ledger_epoch_count(const struct ledger *ledger)
{
    return ledger->epochs.bytes / sizeof(struct ledger_epoch);
}

const struct ledger_epoch *ledger_epochs(const struct ledger *ledger)
{
    return (const void *)ledger->epochs.data;
}

size_t ledger_skipped_count(const struct ledger *ledger)
{
    return ledger->skipped.bytes / sizeof(struct ledger_row);
}

const struct ledger_row *ledger_skipped(const struct ledger *ledger)
{
    return (const void *)ledger->skipped.data;
}

size_t ledger_fault_count(const struct ledger *ledger)
{
    return ledger->faults.bytes / sizeof(struct ledger_fault);
}

const struct ledger_fault *ledger_faults(const struct ledger *ledger)
{
    return (const void *)ledger->faults.data;
}
