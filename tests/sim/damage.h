/* A server's file of a checkpoint has a bit that changed on the disk: the run goes back to the
 * newest one that is whole. One at a time, and only where an older one is whole. */
#ifndef ROOST_TESTS_SIM_DAMAGE_H
#define ROOST_TESTS_SIM_DAMAGE_H

#include "common/files/checkpoint.h"
#include "proto/wire.h"

struct sim;

struct damage {
    bool wanted;            /* as soon as it may be: after the next cut that is recorded */
    struct cut_name cut;    /* generation 0: none is damaged */
    struct cut_name before; /* the one before that, of which servers may still report */
    struct checkpoint_path path;
    uint64_t bit;
};

/* Flips a bit of the newest checkpoint. False: nothing may be damaged now; later perhaps. */
bool damage_newest(struct sim *sim);
/* A cut was recorded. */
void damage_recorded(struct sim *sim);
/* Whether that cut is the damaged one, or the one before it. */
bool damage_is_of(const struct sim *sim, struct cut_name cut);
/* Whether one of the store's cuts, of a version up to that, is whole. */
bool damage_leaves(const struct sim *sim, uint64_t version_max);
/* Whether the run has nothing to go back to. */
bool damage_leaves_none(const struct sim *sim);
/* The bit is as it was. */
void damage_mend(struct sim *sim);

#endif
