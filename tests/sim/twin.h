/* A second start of a server's name, on a machine of its own: it says hello until it is refused, or
 * takes the place of a first one that is silent, and then it is gone. Its hellos come between the
 * reports of others. */
#ifndef ROOST_TESTS_SIM_TWIN_H
#define ROOST_TESTS_SIM_TWIN_H

#include "proto/wire.h"

struct sim;
struct coordinator;

struct twin {
    bool here;
    uint32_t server;
    uint64_t boot, first_boot; /* its own; that of the first one */
    uint64_t next_us;          /* when it says hello again */
    uint64_t term, link;       /* of the coordinator that it talks to; of the first one there */
    bool asked, answered;      /* the first one, over that link, since the twin said hello */
};

/* One of that server. False: there is one already. */
bool twin_start(struct sim *sim, uint32_t server);
/* Its turn, perhaps. */
void twin_hello(struct sim *sim, struct coordinator *core, uint64_t now_ms);
/* A report that has come, and what the coordinator answered. */
void twin_note(struct sim *sim, const struct server_report *report, enum err err);

#endif
