/* That every sample was counted exactly once. */
#include "tests/unit/unit.h"

#include "common/files/ledger.h"

enum { SLOTS = 4, SLOT_SAMPLES = 2, EPOCH = 20 };

static struct ledger_row row_of(uint64_t step)
{
    return (struct ledger_row){.step = step,
                               .generation = 1,
                               .ticket = step * SLOTS,
                               .slots = SLOTS,
                               .slot_samples = SLOT_SAMPLES,
                               .step_samples = SLOTS * SLOT_SAMPLES,
                               .epoch_samples = EPOCH,
                               .samples = (step + 1) * SLOTS * SLOT_SAMPLES,
                               .digest = 100 + step};
}

static void add(struct ledger *ledger, struct ledger_row row)
{
    assert_int_equal(ledger_add(ledger, &row), ERR_OK);
}

/* Exactly one fault, with these words in it. */
static void assert_fault(const struct ledger *ledger, const char *words)
{
    assert_int_equal(ledger->fault_count, 1);
    if (strstr(ledger_faults(ledger)[0].text, words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, ledger_faults(ledger)[0].text);
}

TEST(epochs_are_complete_when_all_their_samples_came_once)
{
    scoped(ledger_release) struct ledger ledger = {.seed = 5};
    for (uint64_t step = 0; step < 6; step++)
        add(&ledger, row_of(step));
    assert_int_equal(ledger.fault_count, 0);
    assert_int_equal(ledger.samples, 48);
    assert_int_equal(ledger_epoch_count(&ledger), 3);
    const struct ledger_epoch *epochs = ledger_epochs(&ledger);
    assert_int_equal(epochs[0].counted, EPOCH);
    assert_int_equal(epochs[0].first_step, 0);
    assert_int_equal(epochs[0].last_step, 2);
    assert_int_equal(epochs[0].last_ticket, 9);
    assert_int_equal(epochs[1].first_step, 2); /* a step may straddle two epochs */
    assert_int_equal(epochs[1].first_ticket, 10);
    assert_int_equal(epochs[1].counted, EPOCH);
    assert_int_equal(epochs[2].counted, 8);
    assert_int_equal(epochs[2].samples, EPOCH);
}

TEST(the_digest_is_of_the_steps_digests)
{
    struct ledger a = {.seed = 5}, b = {.seed = 5};
    for (uint64_t step = 0; step < 3; step++) {
        struct ledger_row other = row_of(step);
        add(&a, other);
        other.digest += step == 1;
        add(&b, other);
    }
    assert_int_not_equal(ledger_epochs(&a)[0].digest, ledger_epochs(&b)[0].digest);
    ledger_release(&a);
    ledger_release(&b);
}

TEST(a_step_that_comes_again_is_a_fault)
{
    scoped(ledger_release) struct ledger ledger = {.seed = 5};
    add(&ledger, row_of(0));
    add(&ledger, row_of(1));
    add(&ledger, row_of(1));
    assert_fault(&ledger, "step 1 counts samples that step 1 has counted");
    add(&ledger, row_of(2)); /* it goes on behind it */
    assert_int_equal(ledger.fault_count, 1);
    assert_int_equal(ledger_epochs(&ledger)[0].counted, EPOCH);
}

TEST(steps_that_come_again_one_behind_the_other_are_one_fault)
{
    scoped(ledger_release) struct ledger ledger = {.seed = 5};
    for (uint64_t step = 0; step < 6; step++)
        add(&ledger, row_of(step));
    for (uint64_t step = 3; step < 6; step++)
        add(&ledger, row_of(step));
    assert_fault(&ledger, "steps 3 to 5 count samples that steps up to 5 have counted");
    add(&ledger, row_of(1)); /* another stretch */
    add(&ledger, row_of(2));
    add(&ledger, row_of(4));
    add(&ledger, row_of(6));
    add(&ledger, row_of(8)); /* one is missing */
    add(&ledger, row_of(5));
    assert_int_equal(ledger.fault_count, 5);
    assert_string_equal(ledger_faults(&ledger)[1].text,
                        "steps 1 to 2 count samples that steps up to 5 have counted");
    assert_string_equal(ledger_faults(&ledger)[2].text,
                        "step 4 counts samples that step 5 has counted");
    assert_string_equal(ledger_faults(&ledger)[4].text,
                        "step 5 counts samples that step 8 has counted");
}

TEST(many_faults_count_a_stretch_once)
{
    scoped(ledger_release) struct ledger ledger = {.seed = 5};
    for (uint64_t step = 0; step < 6; step++)
        add(&ledger, row_of(step));
    for (int i = 0; i < LEDGER_FAULTS_MAX; i++)
        ledger_fault(&ledger, "fault %d", i);
    for (uint64_t step = 3; step < 6; step++)
        add(&ledger, row_of(step));
    assert_int_equal(ledger.fault_count, LEDGER_FAULTS_MAX + 1);
    assert_string_equal(ledger_faults(&ledger)[LEDGER_FAULTS_MAX - 1].text, "fault 99");
}

TEST(missing_steps_are_a_fault)
{
    scoped(ledger_release) struct ledger ledger = {.seed = 5};
    add(&ledger, row_of(0));
    add(&ledger, row_of(5));
    assert_fault(&ledger, "steps 1 to 4 are missing");
    assert_int_equal(ledger_epochs(&ledger)[0].counted, 8);
}

/* A second row that is not what follows the first. */
TEST(a_row_that_does_not_follow_is_a_fault)
{
    static const char *const faults[] = {
        "between steps 0 and 1 2 samples of the order are passed over",
        "step 1 counts samples that step 0 has counted",
        "step 1 counted 7 samples with its gradients, its tickets have 8",
        "step 1 is of generation 1, a step before it of 3",
        "step 1 has a data set of 21 samples",
    };
    for (int i = 0; i < 5; i++) {
        scoped(ledger_release) struct ledger ledger = {.seed = 5};
        struct ledger_row first = row_of(0);
        struct ledger_row row = row_of(1);
        row.ticket += i == 0;
        row.ticket -= i == 1;
        row.step_samples -= i == 2;
        first.generation = i == 3 ? 3 : 1;
        row.epoch_samples += i == 4;
        add(&ledger, first);
        add(&ledger, row);
        assert_fault(&ledger, faults[i]);
    }
}

/* The run was resumed with half of the batch. */
TEST(smaller_steps_go_on_though_their_samples_were_counted)
{
    scoped(ledger_release) struct ledger ledger = {.seed = 5};
    add(&ledger, row_of(0));
    add(&ledger, row_of(1));
    for (uint64_t step = 2; step < 6; step++) {
        struct ledger_row row = row_of(step);
        row.slots = SLOTS / 2;
        row.ticket = step * row.slots;
        row.step_samples = row.slots * SLOT_SAMPLES;
        add(&ledger, row);
    }
    assert_fault(&ledger, "steps 2 to 3 count samples that steps up to 1 have counted");
    assert_int_equal(ledger.step_count, 6);
    assert_int_equal(ledger.last.step, 5);
    assert_int_equal(ledger.whole_from, 0);
    assert_int_equal(ledger_epochs(&ledger)[0].counted, EPOCH);
}

/* Servers add samples as floats, which hold whole numbers up to 2^24: a tree of 17 levels loses at most
 * 17 here. All samples are ticked off, which takes seconds: one row is enough. */
TEST(a_count_that_a_float_rounds_is_no_fault_and_all_samples_are_counted)
{
    scoped(ledger_release) struct ledger ledger = {.seed = 5};
    struct ledger_row row = row_of(0);
    row.slots = row.slot_samples = 4097;
    row.samples = 4097 * 4097;
    row.epoch_samples = 1 << 26; /* a power of 4 is permuted the fastest */
    row.step_samples = 4097 * 4097 - 17;
    add(&ledger, row);
    assert_int_equal(ledger.fault_count, 0);
    assert_int_equal(ledger.samples, 4097 * 4097);
}

TEST(skipped_steps_are_listed_and_their_samples_discarded)
{
    scoped(ledger_release) struct ledger ledger = {.seed = 5};
    struct ledger_row row = row_of(1);
    row.skipped = true;
    add(&ledger, row_of(0));
    add(&ledger, row);
    add(&ledger, row_of(2));
    assert_int_equal(ledger.fault_count, 0);
    assert_int_equal(ledger_skipped_count(&ledger), 1);
    assert_int_equal(ledger_skipped(&ledger)[0].step, 1);
    assert_int_equal(ledger_epochs(&ledger)[0].counted, EPOCH);
    assert_int_equal(ledger_epochs(&ledger)[0].discarded, 8);
}

TEST(many_faults_are_counted_and_some_kept)
{
    scoped(ledger_release) struct ledger ledger = {.seed = 5};
    for (int i = 0; i < LEDGER_FAULTS_MAX + 7; i++)
        ledger_fault(&ledger, "fault %d", i);
    assert_int_equal(ledger.fault_count, LEDGER_FAULTS_MAX + 7);
    assert_int_equal(ledger_fault_count(&ledger), LEDGER_FAULTS_MAX);
}

/* ---- rows as they are written ---- */

#define ROW                                                                                        \
    "{\"step\":3,\"loss\":0.5,\"samples\":128,\"skipped\":false,\"ticket\":24,\"slots\":8,"        \
    "\"slot_samples\":4,\"step_samples\":32,\"epoch_samples\":240,\"digest\":"                     \
    "\"00000000000000af\","                                                                        \
    "\"generation\":2}"

static enum err parse(const char *text, struct ledger_row *row, bool *is_step,
                      struct reason *reason)
{
    return ledger_parse("steps.jsonl", 7, slice_of(text), row, is_step, reason);
}

TEST(a_row_is_read)
{
    struct ledger_row row;
    bool is_step;
    assert_int_equal(parse(ROW, &row, &is_step, NULL), ERR_OK);
    assert_true(is_step);
    assert_int_equal(row.step, 3);
    assert_int_equal(row.ticket, 24);
    assert_int_equal(row.step_samples, 32);
    assert_int_equal(row.digest, 0xaf);
    assert_int_equal(row.generation, 2);
    assert_int_equal(parse("{\"version\":4}", &row, &is_step, NULL), ERR_OK);
    assert_false(is_step);
}

/* The row with `old` replaced. */
static void refused(const char *old, const char *new, const char *words)
{
    char text[512];
    struct ledger_row row;
    struct reason reason;
    bool is_step;
    const char *at = strstr(ROW, old);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - ROW), ROW, new, at + strlen(old));
    assert_int_equal(parse(text, &row, &is_step, &reason), ERR_MALFORMED);
    if (strstr(reason.text, words) == NULL || strncmp(reason.text, "steps.jsonl:7: ", 15) != 0)
        fail_msg("\"%s\" is not in \"%s\"", words, reason.text);
}

TEST(a_bad_row_is_refused_by_its_place)
{
    refused("\"ticket\":24,", "", "ticket");
    refused("\"skipped\":false", "\"skipped\":0", "skipped");
    refused("\"slots\":8", "\"slots\":0", "slots must be 1 to 65536");
    refused("\"slots\":8", "\"slots\":65537", "slots must be 1 to 65536");
    refused("\"slot_samples\":4", "\"slot_samples\":4294967297", "slot_samples");
    refused("\"epoch_samples\":240", "\"epoch_samples\":0", "epoch_samples");
    refused("\"ticket\":24", "\"ticket\":1152921504606846977", "ticket is too large");
    refused("00000000000000af", "0000000000000af", "16 hexadecimal digits");
    refused("00000000000000af", "00000000000000aG", "16 hexadecimal digits");
    refused("\"generation\":2}", "\"generation\":2", "");
}
