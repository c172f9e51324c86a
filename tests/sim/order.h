/* What an ssp run's coordinator logs, and what must come of it: each slot is computed on one
 * version, whoever does it and however often, within the bound; what the log says of a step is what
 * was granted and pushed; and from the log alone every version follows (expected.h). */
#ifndef ROOST_TESTS_SIM_ORDER_H
#define ROOST_TESTS_SIM_ORDER_H

#include "common/files/order.h"
#include "tests/sim/expected.h"
#include "tests/sim/queue.h"

struct sim;

enum { ORDER_GENERATIONS_MAX = 256 };

/* By generation: it begins with what led to its cut. */
struct order {
    struct order_line *lines[ORDER_GENERATIONS_MAX];
};

void order_release(struct order *order);

/* What a version of that generation must be. */
const struct expected *order_expected(const struct sim *sim, uint64_t generation);
/* Each does nothing unless the run is an ssp one. A generation begins from that cut: */
void order_generation(struct sim *sim, uint64_t generation, struct cut_name cut);
void order_granted(struct sim *sim, const struct ticket *ticket);
/* A shard has counted it. */
void order_pushed(struct sim *sim, const struct truth *truth);
/* The coordinator logs what a step was computed on. */
void order_logged(struct sim *sim, const struct order_step *step);

#endif
