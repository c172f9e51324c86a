#include "common/files/step_times.h"

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void step_times_add(struct step_times *times, const struct ledger_row *row, bool is_step)
{
    times->slot_ms += row->slot_ms;
    if (!is_step)
        return;
    if (times->newest_us > 0 && row->time_us > times->newest_us)
        times->gap_us = larger(times->gap_us, row->time_us - times->newest_us);
    times->newest_us = row->time_us;
}

void step_times_join(struct step_times *times, const struct step_times *next)
{
    times->slot_ms += next->slot_ms;
    times->gap_us = larger(times->gap_us, next->gap_us);
    times->newest_us = next->newest_us;
}
