/* The devices of a worker: several compute one ticket, each a part of its node.
 *
 * The node is cut in halves, quarters, … : as many parts as there are devices (of them a power of
 * two), at least a slot each. Each device has an executor of the whole model, on the same weights.
 * When all are through with a unit, its gradients are added in the tree's order, left + right, into
 * the first one's. So they have the bits that one device would have, which sums the slots of a node
 * in that order (executor_sums.h); and the worker pulls the weights once and pushes one node, however
 * many devices it has.
 *
 * Threads. crew_run() belongs to one thread, which computes the first part; the others have a thread
 * each. `pull` is called on the first one's; `push` of a unit on that of whichever is last, one unit
 * after another, as it is without a crew; `cancelled` on any. Other hooks are those of places and
 * streamed weights, which a crew has not. */
#ifndef ROOST_WORKER_CREW_H
#define ROOST_WORKER_CREW_H

#include "worker/executor.h"

enum { CREW_DEVICES_MAX = 16 };

struct crew;

/* Between these the first device's gradients are read by nobody else (encoder.h). */
struct crew_lock {
    void *context;
    void (*take)(void *context);
    void (*give)(void *context);
};

struct crew_options {
    const struct model *model;
    uint32_t slots; /* of a step */
    uint32_t count; /* of devices, 2 to CREW_DEVICES_MAX */
    /* By device: of one place, resident, without local steps. */
    struct executor *executors[CREW_DEVICES_MAX];
    struct executor_samples samples[CREW_DEVICES_MAX]; /* each is read on its device's thread */
    struct crew_lock lock;
};

/* How many of so many devices have work of nodes up to that size, rounded up to a power of two: a crew
 * of more is no faster. */
uint32_t crew_devices(uint32_t devices, uint32_t node_slots_max);
/* The most slots that one of a crew's devices computes of such a node: its executor's
 * node_slots_max. */
uint32_t crew_part_slots(uint32_t devices, uint32_t node_slots_max);

/* What the options point to is borrowed until crew_free(). ERR_NOMEM; ERR_BUSY: the machine allows
 * no more threads. */
enum err crew_new(const struct crew_options *options, struct crew **ret_crew) MUST_USE;
void crew_free(struct crew *crew); /* NULL is fine */

/* executor_run() of a training ticket by all of them. Its errors; the first one ends all parts. */
enum err crew_run(struct crew *crew, const struct ticket *ticket,
                  const struct executor_hooks *hooks, struct executor_loss *ret_loss) MUST_USE;

/* executor_encoded() and executor_encode_failure(), of all devices that the ticket has: the sum has
 * what each of them computed. The calling thread then uses any of them. */
enum err crew_encoded(const struct crew *crew) MUST_USE;
const char *crew_encode_failure(const struct crew *crew);

#endif
