/* A stranger with a worker's certificate. It guesses members' numbers, and copies what others were
 * given: beside real calls it makes false ones, of which none may be taken (invariant 17). Its dice
 * are its own, so the plan of a seed does not depend on it. Between a daemon and its cores, as
 * watch.c: forge.c also has what --wrap leads to of server/member/admission.h. */
#ifndef ROOST_TESTS_SIM_FORGE_H
#define ROOST_TESTS_SIM_FORGE_H

#include "proto/wire.h"

struct sim;
struct coordinator;

/* A member completes a ticket; the stranger has seen the call. */
void forge_complete(struct sim *sim, struct coordinator *core, uint64_t now_ms,
                    const struct complete_request *seen);

#endif
