/* What Describe and Status say. Main thread. */
#ifndef ROOST_SERVER_ANSWERS_H
#define ROOST_SERVER_ANSWERS_H

#include "server/events.h"
#include "server/office_run.h"

struct answers_facts {
    const struct coordinator *coordinator;
    const struct office_run *run; /* NULL: none */
    uint64_t now_ms;
    double seconds;        /* of training in this start of the daemon */
    uint64_t samples_here; /* counted in them */
};

/* Both answer the call. */
void answers_describe(const struct answers_facts *facts, struct call *take_call);
void answers_status(const struct answers_facts *facts, struct call *take_call);
/* The end of every call that has a reply: OK sends the response, anything else that error. */
void answers_reply(struct call *take_call, enum err err, struct buf *take_response);

#endif
