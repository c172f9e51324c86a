/* The data set that a run's spec names. */
#ifndef ROOST_COMMON_DATA_RUN_DATA_H
#define ROOST_COMMON_DATA_RUN_DATA_H

#include "common/data/data.h"
#include "common/settings/spec.h"

/* Opens it; `path` overrides data.path when not NULL, and `stop` is data_open()'s. ERR_DATA_SET: there is no file of it;
 * ERR_INVALID: also a file that holds something else; other errors are data_open()'s. */
enum err run_data_open(const struct spec *spec, const char *path, struct data **ret_data,
                       struct reason *reason) MUST_USE;
enum err run_data_open_until(const struct spec *spec, const char *path, const atomic_bool *stop,
                             struct data **ret_data, struct reason *reason) MUST_USE;

#endif
