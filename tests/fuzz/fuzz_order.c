/* An order log. Whatever it holds, reading ends, inside its bytes, and what is kept for a version
 * is read again. */
#include "tests/fuzz/fuzz.h"

#include "common/files/order.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct slice log = {data, bytes};
    struct order_record record;
    struct order_step step;
    struct reason reason;
    size_t offset = 0;
    while (order_next(log, "log", &offset, &record, &reason) == ERR_OK) {
        check(offset <= bytes);
        unsigned sum = 0;
        if (order_step(&record, &step) == ERR_OK)
            for (uint32_t i = 0; i < step.slots; i++)
                sum += step.behind[i];
        check(sum < UINT32_MAX);
    }
    for (uint64_t version = 0; version < 4; version++) {
        size_t kept = order_keep_steps(log, version);
        check(kept <= bytes && order_keep_steps((struct slice){data, kept}, version) == kept);
    }
    return 0;
}
