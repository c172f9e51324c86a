/* The replies to Describe and Status. Main thread. */
#ifndef ROOST_SERVER_CONTROL_REPLIES_H
#define ROOST_SERVER_CONTROL_REPLIES_H

#include "server/control/connections.h"
#include "server/control/control_run.h"
#include "server/control/costs.h"
#include "server/events.h"

struct replies_facts {
    const struct coordinator *coordinator;
    const struct control_run *run; /* NULL: none */
    const struct control_told *told;
    const struct connections *connections;
    const struct costs *costs;
    const char *name, *folder; /* of this daemon; its working folder */
    uint64_t local_link;       /* of the coordinator's own server, which has no connection … */
    int64_t ends_s;            /* … and this daemon's certificate; 0: none */
    const char *log_error;     /* why the run's log is not written, and no checkpoint can be; "" */
    uint64_t now_ms;
    double seconds;        /* of training in this start of the daemon */
    uint64_t samples_here; /* counted in them */
};

/* Both answer the call. */
void replies_describe(const struct replies_facts *facts, struct call *take_call);
void replies_status(const struct replies_facts *facts, struct call *take_call);
/* Answers a call that has a reply: OK sends the response, anything else the error. */
void replies_send(struct call *take_call, enum err err, struct buf *take_response);

#endif
