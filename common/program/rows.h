/* Programs that a user wrote (mesh.program): who computes what when, in a file.
 *
 * The file has a line for each place, and its cells are compute acts: F, and B or I and W (text form:
 * program.h). Its numbers are stages: the model's units are cut into as many runs as it names stages,
 * so that a file that names as many as the model has units names units. A stage belongs to one place,
 * the last one to the last; places that hand each other values are beside each other, the last one
 * beside the first. The
 * microbatches are those of one slot or more, and are repeated in larger nodes. passes.h adds what acts
 * need around them. The file may also have all acts, as `roost program` prints them: then it is valid
 * as it stands, and its compute acts are taken.
 *
 * What is taken travels in the spec (mesh.rows), so that nobody else needs the file: places are
 * separated by semicolons, and nothing is blank. */
#ifndef ROOST_COMMON_PROGRAM_ROWS_H
#define ROOST_COMMON_PROGRAM_ROWS_H

#include "common/model/model.h"
#include "common/program/program.h"

/* Whether rows may have the act. */
bool rows_has(enum act act);

/* What a spec takes of the file's text, which ends in a 0; `name` is the file's, for sentences.
 * ERR_INVALID: it names place (from 0) and row, or line and column (from 1). */
enum err rows_of_file(const char *name, struct slice text, struct buf *ret_rows,
                      struct reason *reason) MUST_USE;

/* schedule_judge(), and where the shape has rows, whether they are a program for it: places agree, no
 * deadlock, nothing dropped, sums in order. ERR_INVALID: likewise; ERR_NOMEM. */
enum err rows_judge(const struct schedule_shape *shape, struct reason *reason) MUST_USE;

/* Whether the last node of a step has one, too: it may have fewer slots than the shape, which
 * rows_judge() let pass. ERR_INVALID: likewise; ERR_NOMEM. */
enum err rows_last_judge(const struct schedule_shape *shape, const struct spec_train *train,
                         struct reason *reason) MUST_USE;

/* The compute acts of a judged shape with rows. ERR_NOMEM. */
enum err rows_compute(const struct schedule_shape *shape, const struct pipeline_runs *runs,
                      struct program *ret_compute) MUST_USE;

/* The runs of any shape. ERR_INVALID: more than the model has units, the rows are no program, or a place
 * would have more than the shape's memory; ERR_NOMEM. */
enum err rows_runs(const struct schedule_shape *shape, const struct model *model,
                   struct pipeline_runs *ret_runs) MUST_USE;

/* Whether the model can be cut so that no place has more than the shape's memory, of a shape that
 * rows_judge() let pass. ERR_INVALID: one sentence, with the least that would do; ERR_NOMEM. */
enum err rows_memory_judge(const struct schedule_shape *shape, const struct model *model,
                           struct reason *reason) MUST_USE;

#endif
