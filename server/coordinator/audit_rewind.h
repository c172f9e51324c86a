/* What a convicted worker brought is undone (train.audit_rewind): the run goes back to the newest
 * kept cut that has nothing of what the worker brought since its last agreeing audit. A cut of
 * version v has the steps below v.
 *
 * From the conviction on nothing is granted, and cuts that are not complete are given up. One that
 * is being written down may still be recorded; it is not taken when it is too new. When the newest
 * recorded cut is too new, the store is searched for one that is old enough and whole
 * (EFFECT_FIND_CUT); the cuts after it are of a history that is left, and are forgotten. Without
 * such a cut the run goes on from the newest one, and a sentence says so. Then a generation begins
 * as after any loss (generation.h). A run that stops needs none: it is over with that cut, as soon
 * as that is found. One that pauses leaves all of this to its successor.
 *
 * What a worker brought is known from what this start of the coordinator granted to all its
 * memberships (suspects.h), as far as they are remembered. That the run is to go back is stored with
 * the conviction, and that it has gone back with its generation: a coordinator that starts in
 * between goes back, and adopts nothing (P7, P10).
 *
 * Part of the coordinator's core; audit_rewind.c alone writes run->rewind. */
#ifndef ROOST_SERVER_COORDINATOR_AUDIT_REWIND_H
#define ROOST_SERVER_COORDINATOR_AUDIT_REWIND_H

#include "server/coordinator/run.h"

/* The member, which is still in the list, is convicted. True: the run is to go back; the caller
 * leaves the steps (generation_go_back()). */
bool audit_rewind_begin(struct coordinator *coordinator, const struct member *member) MUST_USE;
/* A run starts here, whose convictions are known: it goes back when the coordinator before did not
 * come to that. */
void audit_rewind_resume(struct coordinator *coordinator);
/* No cut is being written down. True: it is not decided yet which cut the run goes back to. */
bool audit_rewind_waits(struct coordinator *coordinator) MUST_USE;
/* Whether the store is searched for the rewind's cut. */
bool audit_rewind_searches(const struct run *run);
/* What was found; NULL: none is old enough and whole. */
void audit_rewind_found(struct coordinator *coordinator, const struct cut_record *whole);

#endif
