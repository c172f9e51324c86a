/* The directories of runs whose commands name none, one after the other. */
#ifndef ROOST_COMMON_FILES_RUN_DIRECTORY_H
#define ROOST_COMMON_FILES_RUN_DIRECTORY_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    RUN_DIRECTORIES_MAX = 1000,
    RUN_DIRECTORY_BASE_BYTES_MAX = 600, /* a longer BASE is cut off */
    RUN_DIRECTORY_BYTES = RUN_DIRECTORY_BASE_BYTES_MAX + 24
};

/* With the joint "-": BASE, BASE-2, BASE-3, … Both borrowed. */
struct run_directories {
    const char *base, *joint;
};

struct run_directory {
    char path[RUN_DIRECTORY_BYTES];
};

/* BASE for 1. */
struct run_directory run_directory(const struct run_directories *all, unsigned number);

/* The one name of a directory that may be spelled otherwise: absolute (a relative one begins in
 * `folder`), without a slash or a "." too many. A ".." stays: before it may be a link. ERR_INVALID:
 * it takes more than `bytes`, or both are relative. */
enum err run_directory_name(const char *directory, const char *folder, char *ret_name, size_t bytes,
                            struct reason *reason) MUST_USE;

/* Whether it has a recorded checkpoint. */
bool run_directory_has_checkpoint(const char *directory);

/* The one with the newest checkpoint. ERR_NOT_FOUND: none has one. */
enum err run_directory_newest(const struct run_directories *all,
                              struct run_directory *ret_directory, struct reason *reason) MUST_USE;

enum run_directory_use {
    RUN_DIRECTORY_UNUSED,
    RUN_DIRECTORY_RUNS,  /* a coordinator goes on with its run */
    RUN_DIRECTORY_EDITED /* roost checkpoint restores or prunes in it */
};

/* At the moment. Makes nothing. */
enum run_directory_use run_directory_use(const char *directory);

#endif
