/* The results of the held-out pieces: one for each piece, the first one counts. They are summed in
 * piece order, whatever the order of arrival. Pure. */
#ifndef ROOST_SERVER_COORDINATOR_VALIDATION_H
#define ROOST_SERVER_COORDINATOR_VALIDATION_H

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

struct validation_result {
    double loss_sum;
    uint64_t sample_count;
    uint64_t correct_count;
    uint64_t member; /* that brought it; a sum is nobody's */
};

struct validation {
    uint32_t piece_count;
    uint32_t done_count;
    bool running; /* a version's pieces are awaited */
    bool *done;
    struct validation_result *results;
};

enum err validation_init(struct validation *validation, uint32_t piece_count) MUST_USE; /* NOMEM */
void validation_release(struct validation *validation);
/* Forgets what came, for the next version; `running`: its pieces are awaited. */
void validation_begin(struct validation *validation, bool running);
void validation_stop(struct validation *validation);

/* Takes the result of piece < piece_count; a later one of the same piece is ignored. False: its
 * loss is not finite, or so large that the sum of all pieces might not be; it is not taken. */
bool validation_add(struct validation *validation, uint32_t piece,
                    const struct validation_result *result) MUST_USE;
bool validation_complete(const struct validation *validation);
struct validation_result validation_sum(const struct validation *validation);

#endif
