/* The state that control*.c share. For control*.c only. */
#ifndef ROOST_SERVER_CONTROL_CONTROL_CORE_H
#define ROOST_SERVER_CONTROL_CONTROL_CORE_H

#include "common/files/checkpoint.h"
#include "common/time.h"
#include "server/control/connections.h"
#include "server/control/control.h"
#include "server/control/control_run.h"
#include "server/control/costs.h"
#include "server/control/data_reader.h"
#include "server/control/waiting.h"
#include "server/disk/order_log.h"
#include "server/disk/record.h"

/* The search for the newest cut that is whole. It goes on between other events, because a large cut
 * takes minutes to read, and members' heartbeats do not wait. */
struct control_search {
    bool reads;
    struct cut_record cut; /* the one that is read, or was found; generation 0: there is no more */
    bool passed;           /* the store has newer ones */
    struct whole_cut_reader reader;
    uint64_t again_ns;    /* it is read at this moment: it could not be before; 0: at once */
    uint64_t version_max; /* newer ones do not count */
    uint64_t run;
    char unready[COORDINATOR_TEXT_BYTES];
    bool late; /* the disk was full; the store forgets the cuts that are newer when it is not */
};

struct control {
    struct control_config config;
    uint64_t term;
    uint8_t key[DIGEST_KEY_BYTES]; /* of the term's proofs */
    struct coordinator *coordinator;
    uint64_t local_link;
    int64_t certificate_ends_s; /* this daemon's; 0: none */
    int64_t warned_s;           /* of the ends of others' certificates; 0: never */
    struct control_run *run;    /* NULL: none yet */
    struct control_told told;   /* meanwhile: of the store's run */
    struct record record;
    struct order_log order;  /* ssp */
    struct file_claim claim; /* shared: the run of this directory goes on (roost checkpoint) */
    struct waiting waiting;
    struct connections connections;
    struct costs costs;              /* of the run */
    uint64_t heartbeat_ns, flush_ns; /* when each is due */
    uint64_t continue_ns;            /* when the store's run is tried again, or TIME_NEVER */
    uint64_t training_ns;            /* since when steps are trained here; 0: not yet */
    uint64_t over_ns;                /* when it ended; 0: not yet */
    uint64_t samples_before;         /* counted before, or read again from journals */
    bool state_late;                 /* the disk was full; the state is stored when it is not */
    bool convictions_late;           /* the same */
    bool stop_late;                  /* the same */
    bool term_late;                  /* the same of a newer term */
    bool fingerprint_late;           /* the same */
    uint8_t fingerprint[WIRE_DIGEST_BYTES];
    char stop[COORDINATOR_TEXT_BYTES];
    struct control_search search;
    struct cut_name oldest; /* of the cuts that the store remembers, when the newest was recorded */
    struct whole_cut whole; /* for an operator who resumes a run that the store does not know */
    struct data_reader wanted_data; /* for an operator who starts a run … */
    struct data_reader stored_data; /* … and for the store's run: neither waits for the other */
    enum err failed;
};

static inline uint64_t control_ms(uint64_t now_ns)
{
    return now_ns / 1000000;
}

/* Whether the store has a run that is to go on and could not yet; `told` is about it. */
static inline bool control_expects_run(const struct control *control)
{
    return control->continue_ns != TIME_NEVER;
}

/* Whether it is to go on when its data are read. */
static inline bool control_reads_stored(const struct control *control)
{
    return control->stored_data.text != NULL;
}

/* Whether a run is starting or training. */
static inline bool control_active(const struct control *control)
{
    struct coordinator_status status;
    coordinator_status(control->coordinator, &status);
    return status.state == RUN_STARTING || status.state == RUN_TRAINING;
}

#endif
