/* A program on a fake clock as a picture: places down, time across. */
#ifndef ROOST_WORKER_PROGRAM_DRAW_H
#define ROOST_WORKER_PROGRAM_DRAW_H

#include "worker/program/simulate.h"

/* SVG. `result` is the program's; `caption` stands below. A box is an act of a run of units, with
 * the number of its microbatch where it is wide enough; runs that are not the place's first are
 * darker. */
enum err draw_program(const struct program *program, const struct simulate_result *result,
                      const char *caption, struct buf *svg) MUST_USE;

#endif
