/* Where the executor's samples come from: this machine's copy of the data set, or the daemons
 * (`data: {serve: true}`), a slot's samples at a time. */
#ifndef ROOST_WORKER_SAMPLES_H
#define ROOST_WORKER_SAMPLES_H

#include "common/data/data.h"
#include "common/data/sampler.h"
#include "common/rpc/rpc.h"
#include "common/settings/spec.h"
#include "worker/executor.h"

struct samples {
    const struct data *data; /* NULL: they are served */
    struct sampler sampler;
    uint64_t held_out;
    /* served: the slot that was fetched last */
    struct rpc_channel *channel;
    uint64_t run;
    uint64_t member; /* that asks */
    struct proof secret;
    uint64_t slots;        /* pieces of slot_samples in a step */
    uint64_t input_bytes;  /* of one sample */
    uint64_t target_count; /* of one sample */
    uint32_t classes;      /* targets are below, and inputs where they are tokens */
    bool tokens;
    bool has_slot;
    enum ticket_kind slot_kind;
    uint64_t slot; /* number of the slot in its stream */
    uint32_t slot_count;
    struct buf slot_inputs, slot_targets;
    struct reason failure; /* of the ticket's last read that failed */
};

void samples_release(struct samples *samples); /* not the data, not the channel */

/* Before each ticket is computed. */
void samples_begin(struct samples *samples, uint64_t member, const struct proof *secret);
/* The executor's view; `samples` is borrowed. Reads block; compute thread only. */
struct executor_samples samples_source(struct samples *samples);

#endif
