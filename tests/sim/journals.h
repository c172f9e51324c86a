/* A server that was told of a recorded cut removes the journals that this cut covers, before it
 * begins the segment of a cut that it is told of later (invariant 16). Between a daemon and its
 * cores, as watch.c. */
#ifndef ROOST_TESTS_SIM_JOURNALS_H
#define ROOST_TESTS_SIM_JOURNALS_H

#include "proto/wire.h"

/* What a server was told. */
struct journals {
    struct cut_name recorded; /* the newest */
    uint64_t cut;             /* the version of the newest that was ordered, */
    struct cut_name before;   /* and what was recorded by then */
};

#endif
