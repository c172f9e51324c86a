/* Whether what the workers of a mesh hand each other fits a message. Pure. */
#ifndef ROOST_COMMON_PROGRAM_VALUES_H
#define ROOST_COMMON_PROGRAM_VALUES_H

#include "common/model/model.h"
#include "common/model/pipeline.h"

#define VALUES_BYTES_MAX (64 * 1024 * 1024) /* of one message between workers */

/* Of a judged shape (rows_judge): values of a microbatch that pass between places, and parts of sums
 * between the members of a place. ERR_INVALID: one sentence with the size, the limit and the largest
 * train.microbatch that works; ERR_NOMEM. */
enum err values_judge(const struct schedule_shape *shape, const struct spec *spec,
                      const struct model *model, struct reason *reason) MUST_USE;

#endif
