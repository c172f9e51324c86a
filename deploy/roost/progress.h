/* What a person sees of a run: one line that moves on a terminal (with rows below it for what it waits
 * for, when that is long), a line now and then elsewhere. */
#ifndef ROOST_DEPLOY_ROOST_PROGRESS_H
#define ROOST_DEPLOY_ROOST_PROGRESS_H

#include "common/settings/spec.h"
#include "proto/wire.h"

/* How far the run was at a moment. */
struct progress_mark {
    uint64_t ms, step, samples;
};

struct progress {
    bool terminal;          /* one whose line can move */
    bool blocks;            /* its characters are UTF-8 */
    uint64_t sample_tokens; /* > 1: speed is said in tokens */
    uint64_t line_step;     /* of the last line written */
    uint64_t line_ms;       /* 0: no line is open */
    size_t line_rows;       /* of the moving line as it stands */
    uint64_t generation;    /* of the newest status */
    bool cut_failing;       /* the newest checkpoint could not be written */
    /* Speed and ETA are of the time from `from` to `newest`, the last step seen; `next` takes
     * `from`'s place when it is old enough. ms 0: no step has been seen. */
    struct progress_mark from, next, newest;
};

/* To stderr. */
struct progress progress_new(uint64_t sample_tokens);
void progress_show(struct progress *progress, uint64_t now_ms, const struct status_reply *status);
/* Ends the moving line, so that other text can follow. */
void progress_clear(struct progress *progress);

#endif
