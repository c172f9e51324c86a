/* The ledger of a run: the proof that every sample of an epoch was counted exactly once, and in
 * which step.
 *
 * It is read from the rows of steps.jsonl, one for each step that was committed. A row has the
 * step's tickets, how many samples came with their gradients, and the digest of the gradients' sum.
 * A rewind removes the rows behind its cut from the file, so only steps that survived are there.
 *
 * It proves, row by row:
 *  1 steps follow one another from 0, generations do not fall;
 *  2 a step's tickets begin where those of the step before ended;
 *  3 the samples that came with the gradients are those of its tickets;
 *  4 no sample of an epoch comes twice in it: each position's sample is worked out (data/sampler.h)
 *    and ticked off, so an epoch of N samples is complete when N are.
 * Where one of these does not hold, the ledger reports a fault in a sentence and goes on.
 *
 * Pure: rows in, facts out; one thread. Costs some 0.1 us and an eighth of a byte a sample. */
#ifndef ROOST_COMMON_FILES_LEDGER_H
#define ROOST_COMMON_FILES_LEDGER_H

#include "common/buf.h"

#include <stdbool.h>

enum {
    LEDGER_SLOTS_MAX = 65536,
    LEDGER_FAULTS_MAX = 100, /* kept; more are only counted */
};
/* Of `local` a slot has the samples of 65,536 steps at most, of 65,536 each (spec.h). */
#define LEDGER_SLOT_SAMPLES_MAX (UINT64_C(1) << 32)
#define LEDGER_EPOCH_SAMPLES_MAX (UINT64_C(1) << 40)
#define LEDGER_POSITION_MAX (UINT64_C(1) << 62)
#define LEDGER_TIME_S_MAX ((double)(UINT64_C(1) << 40))

struct ledger_row {
    uint64_t step, generation;
    bool skipped;    /* its gradients were not finite: counted, but not applied */
    uint64_t ticket; /* the first */
    uint64_t slots;  /* so many tickets */
    uint64_t slot_samples;
    uint64_t step_samples;  /* that came with the gradients */
    uint64_t epoch_samples; /* training samples in the data set */
    uint64_t samples;       /* of all steps so far */
    uint64_t digest;
    uint64_t slot_ms; /* from here on for step_times.h; 0: the row does not have it */
    uint64_t time_us; /* since 1970 */
};

/* A line of steps.jsonl. *ret_step false: a row of another kind; of *ret_row only what is for
 * step_times.h is set. `name` and `line` begin the reason. ERR_MALFORMED: no such row, or a number
 * beyond the limits above. */
enum err ledger_parse(const char *name, uint64_t line, struct slice text,
                      struct ledger_row *ret_row, bool *ret_step, struct reason *reason) MUST_USE;

struct ledger_epoch {
    uint64_t epoch;
    uint64_t samples;   /* that it has */
    uint64_t counted;   /* of these, each once */
    uint64_t discarded; /* counted ones whose step was skipped */
    uint64_t first_step, last_step;
    uint64_t first_ticket, last_ticket;
    uint64_t digest; /* of its steps' digests, in order */
};

struct ledger_fault {
    char text[160];
};

/* Steps, one behind the other, whose samples earlier ones have counted: one fault. */
struct ledger_again {
    uint64_t first, last;
    uint64_t counted;     /* the newest step before them */
    uint64_t fault_count; /* of the ledger, with theirs; 0: there are none */
};

/* {.seed = the run's} is an empty one; the arrays in `buf`s are to be read only. */
struct ledger {
    uint64_t seed;
    /* Positions are counted instead of samples: rule 4 follows from rules 1 to 3, because each
     * position of an epoch is another sample. Only the newest epoch is kept, and no skipped row. */
    bool by_positions;
    uint64_t step_count;
    uint64_t position;   /* where the next step's samples begin */
    uint64_t samples;    /* counted with the gradients of all steps */
    uint64_t whole_from; /* from this step on none is missing */
    uint64_t skipped_count;
    struct ledger_row last;
    struct ledger_again again; /* the newest ones */
    struct buf epochs;         /* struct ledger_epoch; the last one may be incomplete */
    struct buf skipped;        /* struct ledger_row */
    uint64_t fault_count;
    struct buf faults; /* struct ledger_fault */
    struct buf seen;   /* bits: samples of the present epoch */
};

/* ERR_NOMEM. */
enum err ledger_add(struct ledger *ledger, const struct ledger_row *row) MUST_USE;
/* An empty ledger goes on behind another one, by positions, whose rows are not read again. Its
 * newest epoch goes on; those before it are not listed. ERR_NOMEM. */
enum err ledger_go_on(struct ledger *ledger, const struct ledger *sums) MUST_USE;
/* A fault that the caller found. */
void ledger_fault(struct ledger *ledger, const char *format, ...) PRINTF_LIKE(2, 3);
void ledger_release(struct ledger *ledger);

size_t ledger_epoch_count(const struct ledger *ledger);
const struct ledger_epoch *ledger_epochs(const struct ledger *ledger);
size_t ledger_skipped_count(const struct ledger *ledger);
const struct ledger_row *ledger_skipped(const struct ledger *ledger);
size_t ledger_fault_count(const struct ledger *ledger); /* kept ones */
const struct ledger_fault *ledger_faults(const struct ledger *ledger);

#endif
