/* What `roost program` predicts of a run's mesh, for `roost up` to show beside what was measured. */
#ifndef ROOST_DEPLOY_ROOST_PREDICT_H
#define ROOST_DEPLOY_ROOST_PREDICT_H

#include "deploy/roost/children.h"

struct prediction {
    double idle_share;   /* of nodes as the spec has them; one slot where it leaves that open */
    uint64_t peer_bytes; /* of so many slots as were wished for, whatever nodes they lie in */
};

struct predict_wish {
    const char *spec_path;
    uint64_t slots;
    const char *log_path; /* gets the output */
    bool uniform;         /* else the times of units are measured here */
};
/* Waits for it. ERR_NOT_FOUND: it said nothing of use, but in its log perhaps. */
enum err predict(struct children *children, const struct predict_wish *wish,
                 struct prediction *ret_prediction, struct reason *reason) MUST_USE;

#endif
