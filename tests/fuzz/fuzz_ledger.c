/* Rows of a steps.jsonl. Whatever is accepted can be counted, and no sample of an epoch twice. */
#include "tests/fuzz/fuzz.h"

#include "common/files/ledger.h"
#include "common/scoped.h"

#include <string.h>

enum { SAMPLES_MAX = 1 << 16 /* a step, so that an input takes no seconds */ };

static void check_epochs(const struct ledger *ledger)
{
    for (size_t i = 0; i < ledger_epoch_count(ledger); i++) {
        const struct ledger_epoch *epoch = &ledger_epochs(ledger)[i];
        check(epoch->counted > 0 && epoch->counted <= epoch->samples);
        check(epoch->discarded <= epoch->counted);
        check(i == 0 || epoch->epoch > epoch[-1].epoch);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ledger ledger = {.seed = 1};
    const uint8_t *end;
    for (uint64_t line = 1; (end = memchr(data, '\n', bytes)) != NULL; line++) {
        struct slice text = {data, (size_t)(end - data)};
        struct ledger_row row;
        struct reason reason;
        bool is_step;
        bytes -= text.bytes + 1;
        data = end + 1;
        if (ledger_parse("rows", line, text, &row, &is_step, &reason) != ERR_OK || !is_step ||
            row.slots * row.slot_samples > SAMPLES_MAX || row.epoch_samples > SAMPLES_MAX)
            continue;
        check(ledger_add(&ledger, &row) == ERR_OK);
    }
    check_epochs(&ledger);
    ledger_release(&ledger);
    return 0;
}
