/* The directory of a run that `roost up` makes, or goes on with: chosen, made, and held alone as long
 * as the command lasts. */
#ifndef ROOST_DEPLOY_ROOST_UP_DIRECTORY_H
#define ROOST_DEPLOY_ROOST_UP_DIRECTORY_H

#include "common/file.h"

struct up_directory_wish {
    const char *spec_path;
    const char *named; /* NULL: runs/NAME, with the name of the spec's file */
    bool resume;
};

struct up_directory {
    char path[512];          /* absolute */
    struct file_claim claim; /* up.lock in it */
    bool is_new;             /* nobody named it */
};

/* Makes it, with the folders that the command itself writes to. ERR_INVALID: it cannot be made, holds
 * a run that is not to be resumed, or holds none to resume. ERR_BUSY: its run is running, or roost
 * checkpoint works in it. On an error up_directory_release() is due as well. */
enum err up_directory_open(const struct up_directory_wish *wish, struct up_directory *ret_directory,
                           struct reason *reason) MUST_USE;
/* Where a file or folder of it lies. */
enum err up_directory_join(const struct up_directory *directory, const char *name, char *ret_path,
                           size_t bytes, struct reason *reason) MUST_USE;
/* No run begins in it: removes a new one, as long as nothing was written there. */
void up_directory_unmake(const struct up_directory *directory);
void up_directory_release(struct up_directory *directory); /* {0} is fine */

/* What the user is told of a folder or file that cannot be made: a wrong setting, unless room is all
 * that it lacks. */
enum err up_directory_making_error(enum err err);

#endif
