/* A run's beginning as plain files, for programs that are to compute the same. */
#ifndef ROOST_TESTS_REFERENCE_DUMP_H
#define ROOST_TESTS_REFERENCE_DUMP_H

#include "common/settings/spec.h"
#include "worker/executor.h"

/* Writes into the folder `path`, without any header: for each parameter NAME.f32, its initial
 * weights in storage shape; inputs.i32 or inputs.f32 and targets.i32, the samples of all steps in
 * their order. */
enum err dump(const char *path, const struct spec *spec, const struct model *model,
              const struct executor_samples *samples, struct reason *reason) MUST_USE;

#endif
