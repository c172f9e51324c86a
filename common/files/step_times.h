/* Where the time of steps went, by the rows of the step log: sums that are made once. Pure. */
#ifndef ROOST_COMMON_FILES_STEP_TIMES_H
#define ROOST_COMMON_FILES_STEP_TIMES_H

#include "common/files/ledger.h"

struct step_times {
    uint64_t slot_ms;   /* of steps and validations: first counted attempts, lease to completion */
    uint64_t gap_us;    /* the longest between two steps that follow each other */
    uint64_t newest_us; /* when the newest step was logged, since 1970; 0: none was */
};

/* The next row. `is_step`: else a validation's. */
void step_times_add(struct step_times *times, const struct ledger_row *row, bool is_step);
/* The rows that follow, whose sums began with .newest_us of these. */
void step_times_join(struct step_times *times, const struct step_times *next);

#endif
