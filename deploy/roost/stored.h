/* A checkpoint with the run it belongs to: what digest, export and sample read. */
#ifndef ROOST_DEPLOY_ROOST_STORED_H
#define ROOST_DEPLOY_ROOST_STORED_H

#include "common/files/checkpoint.h"

struct stored {
    struct checkpoint *checkpoint;
    struct spec spec;
    struct model model;
};

/* `path`: a run's directory (its newest checkpoint), or one checkpoint's folder. The reason names
 * file and offset of what is broken. */
enum err stored_open(const char *path, struct stored *ret_stored, struct reason *reason) MUST_USE;
/* The run's digest of the checkpoint, after every block was compared with its own. A second thread
 * does that at the same time, so that it takes no longer than one pass. */
enum err stored_digest(const struct stored *stored, struct digest *ret_digest,
                       struct reason *reason) MUST_USE;
void stored_release(struct stored *stored); /* {0} is fine */

#endif
