/* What the files of the office share: its state. For office*.c only. */
#ifndef ROOST_SERVER_OFFICE_CORE_H
#define ROOST_SERVER_OFFICE_CORE_H

#include "server/guests.h"
#include "server/office.h"
#include "server/office_run.h"
#include "server/order_log.h"
#include "server/record.h"
#include "server/waiting.h"

struct office {
    struct office_config config;
    uint64_t term;
    struct coordinator *coordinator;
    uint64_t local_link;
    struct office_run *run; /* NULL: none yet */
    struct record record;
    struct order_log order; /* ssp */
    struct waiting waiting;
    struct guests guests;
    uint64_t heartbeat_ns, flush_ns; /* when each is due */
    uint64_t training_ns;            /* when training began here; 0: not yet */
    uint64_t over_ns;                /* when it ended; 0: not yet */
    uint64_t samples_before;         /* counted before training began here */
    bool state_late;                 /* the disk was full; the state is stored when it is not */
    enum err failed;
};

static inline uint64_t office_ms(uint64_t now_ns)
{
    return now_ns / 1000000;
}

/* Whether a run is starting or training. */
static inline bool office_active(const struct office *office)
{
    struct coordinator_status status;
    coordinator_status(office->coordinator, &status);
    return status.state == RUN_STARTING || status.state == RUN_TRAINING;
}

#endif
