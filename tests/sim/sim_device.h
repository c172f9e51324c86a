/* What a worker of the simulator has for a struct executor: of a whole model (sim_device.c), or of
 * a place of a mesh, which walks the rows of its program (sim_place.c). */
#ifndef ROOST_TESTS_SIM_SIM_DEVICE_H
#define ROOST_TESTS_SIM_SIM_DEVICE_H

#include "tests/sim/scenario.h"
#include "worker/executor.h"

struct device {
    uint32_t worker;
    const struct model *model;
    float *weights, *gradients;
    uint64_t *held; /* digest of each chunk's newest bytes */
    bool runs;
    bool streamed;             /* units are asked for one by one, forward and backward */
    bool ahead;                /* the next one before the last is done with */
    bool used[SIM_UNITS_MAX];  /* the run computes on that unit's weights … */
    bool final[SIM_UNITS_MAX]; /* … and these are the gradients, until they are freed */
    bool shared;               /* it is of `place` only */
    uint32_t place;
};

/* Asked between rows: ERR_CANCELLED, or the time is spent. */
enum err device_spend(const struct executor_hooks *hooks, uint64_t us) MUST_USE;
uint64_t device_slot_us(const struct device *device); /* what a slot takes, usually */

/* Of the unit, or of all (COMPUTING_ALL): they are in place, or have been. ERR_CANCELLED: the
 * worker is dead. */
enum err device_check_weights(const struct device *device, const struct ticket *ticket,
                              uint32_t unit) MUST_USE;

/* The unit's gradients may be overwritten: when the servers have them. */
enum err device_free(struct device *device, const struct executor_hooks *hooks,
                     uint32_t unit) MUST_USE;

/* Computes the place's part of the ticket. */
enum err place_run(struct device *device, const struct ticket *ticket,
                   const struct executor_hooks *hooks, struct executor_loss *ret_loss) MUST_USE;

#endif
