/* The boundaries of a run's mesh: which values pass there, from which place to which.
 *
 * An activation goes forward from the place that has unit u - 1 to the one that has unit u, over
 * boundary u; its gradient goes back. In the half of a node that chimera sends up the places are
 * the other way round (common/model/pipeline.h). */
#ifndef ROOST_WORKER_BOUNDARIES_H
#define ROOST_WORKER_BOUNDARIES_H

#include "common/model/model.h"
#include "common/model/pipeline.h"
#include "worker/executor_hooks.h"

struct boundaries {
    enum schedule_kind schedule;
    uint32_t places, units;
    uint32_t slots, microbatches; /* of a step, of a slot */
    struct pipeline_runs runs;
};

enum err boundaries_init(struct boundaries *boundaries, const struct spec *spec,
                         const struct model *model) MUST_USE; /* rows_runs() */
void boundaries_release(struct boundaries *boundaries);       /* {0} is fine */

/* The name of a value of the ticket, which members of that rank give each other. */
struct value_name boundaries_name(const struct ticket *ticket, uint32_t rank,
                                  const struct executor_value *value);
bool boundaries_same(const struct value_name *a, const struct value_name *b);

/* S6: the name of a partial sum that one member of a place gives another, under the place's try. */
struct value_name boundaries_sum_name(const struct ticket *ticket, const struct place *place,
                                      const struct executor_part *part);
bool boundaries_is_sum(const struct value_name *name);

/* Of the ticket's node. */
uint32_t boundaries_last_slot(const struct boundaries *boundaries, const struct ticket *ticket);

/* Whether the ticket's lease is the one that the name is about: its step, version and node. */
bool boundaries_cover(const struct boundaries *boundaries, const struct ticket *ticket,
                      const struct value_name *name);

/* The places that a value of the ticket's lease passes between. False: none does, or it is a
 * sum. */
struct passage {
    uint32_t from, to; /* stages */
};
bool boundaries_pass(const struct boundaries *boundaries, const struct ticket *ticket,
                     const struct value_name *name, struct passage *ret_passage);

/* The value of the ticket that passes next there, on the same way between the same places. False:
 * it was the last one. */
bool boundaries_next(const struct boundaries *boundaries, const struct ticket *ticket,
                     struct value_name *name);

/* Among the values of the ticket that this run can have: a number below boundaries_values(). */
size_t boundaries_index(const struct boundaries *boundaries, const struct ticket *ticket,
                        const struct value_name *name);
size_t boundaries_values(const struct boundaries *boundaries, const struct ticket *ticket);

#endif
