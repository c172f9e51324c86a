#include "worker/executor_sums.h"

#include <stdlib.h>
#include <string.h>

enum err executor_sums_init(struct executor_sums *sums, uint32_t units, uint32_t slots)
{
    *sums = (struct executor_sums){.units_count = units, .slots = slots};
    sums->units = calloc(units, sizeof *sums->units);
    sums->sets = calloc((size_t)units * slots, sizeof *sums->sets);
    return sums->units != NULL && sums->sets != NULL ? ERR_OK : ERR_NOMEM;
}

void executor_sums_release(struct executor_sums *sums)
{
    free(sums->units);
    free(sums->sets);
    *sums = (struct executor_sums){0};
}

void executor_sums_restart(struct executor_sums *sums)
{
    memset(sums->units, 0, sums->units_count * sizeof *sums->units);
    memset(sums->sets, 0, (size_t)sums->units_count * sums->slots * sizeof *sums->sets);
}

static uint8_t *set_of(struct executor_sums *sums, uint32_t unit, uint32_t slot)
{
    check(unit < sums->units_count && slot < sums->slots);
    return &sums->sets[(size_t)unit * sums->slots + slot];
}

uint32_t executor_sums_set(struct executor_sums *sums, uint32_t unit, uint32_t slot)
{
    struct executor_unit_sums *own = &sums->units[unit];
    uint8_t *set = set_of(sums, unit, slot);
    if (*set == 0) {
        uint32_t lowest = (uint32_t)__builtin_ctzll(~own->taken);
        check(own->taken != UINT64_MAX);
        own->taken |= UINT64_C(1) << lowest;
        *set = (uint8_t)(lowest + 1);
    }
    return *set - 1U;
}

uint32_t executor_sums_finish(struct executor_sums *sums, uint32_t unit, uint32_t slot, bool last,
                              struct executor_addition ret[static TREE_LEVEL_MAX + 2])
{
    struct executor_unit_sums *own = &sums->units[unit];
    uint32_t set = executor_sums_set(sums, unit, slot), count = 0;
    for (uint32_t bits = own->finished++; own->waiting_count > 0 && (last || bits & 1);
         bits >>= 1) {
        uint32_t left = own->waiting[--own->waiting_count];
        ret[count++] = (struct executor_addition){left, set};
        own->taken &= ~(UINT64_C(1) << set);
        set = left;
    }
    check(own->waiting_count < sizeof own->waiting);
    own->waiting[own->waiting_count++] = (uint8_t)set;
    *set_of(sums, unit, slot) = 0;
    return count;
}
