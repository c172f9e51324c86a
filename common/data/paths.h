/* Which files a data set's settings mean. */
#ifndef ROOST_COMMON_DATA_PATHS_H
#define ROOST_COMMON_DATA_PATHS_H

#include "common/file.h"

/* The files behind `paths` (files, folders, patterns): resolved, in the order of their bytes, each
 * once. Of folders and patterns only regular files count, of folders only those whose name does not
 * begin with a dot. ERR_NOT_FOUND: a path leads to no file. */
enum err paths_find(const char *const *paths, size_t path_count, struct file_names *ret_files,
                    struct reason *reason) MUST_USE;

#endif
