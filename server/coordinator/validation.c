/* The results of the held-out pieces. */
#include "server/coordinator/validation.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum err validation_init(struct validation *validation, uint32_t piece_count)
{
    *validation = (struct validation){.piece_count = piece_count};
    if (piece_count == 0)
        return ERR_OK;
    validation->done = calloc(piece_count, sizeof *validation->done);
    validation->results = calloc(piece_count, sizeof *validation->results);
    if (validation->done == NULL || validation->results == NULL) {
        validation_release(validation);
        return ERR_NOMEM;
    }
    return ERR_OK;
}

void validation_release(struct validation *validation)
{
    free(validation->done);
    free(validation->results);
    *validation = (struct validation){0};
}

void validation_begin(struct validation *validation, bool running)
{
    if (validation->piece_count > 0)
        memset(validation->done, 0, validation->piece_count * sizeof *validation->done);
    validation->done_count = 0;
    validation->running = running;
}

void validation_stop(struct validation *validation)
{
    validation->running = false;
}

/* Half of what a double holds is for the sum's roundings. */
static bool is_summable(const struct validation *validation, double loss_sum)
{
    return __builtin_isfinite(loss_sum) && loss_sum <= DBL_MAX / 2 / validation->piece_count;
}

bool validation_add(struct validation *validation, uint32_t piece,
                    const struct validation_result *result)
{
    check(piece < validation->piece_count);
    if (validation->done[piece])
        return true;
    if (!is_summable(validation, result->loss_sum))
        return false;
    validation->done[piece] = true;
    validation->done_count++;
    validation->results[piece] = *result;
    return true;
}

bool validation_complete(const struct validation *validation)
{
    return validation->done_count == validation->piece_count;
}

struct validation_result validation_sum(const struct validation *validation)
{
    struct validation_result sum = {0};
    check(validation_complete(validation));
    for (uint32_t i = 0; i < validation->piece_count; i++) {
        sum.loss_sum += validation->results[i].loss_sum;
        sum.sample_count += validation->results[i].sample_count;
        sum.correct_count += validation->results[i].correct_count;
    }
    return sum;
}
