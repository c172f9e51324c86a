/* The order log of an ssp run's coordinator, and what must be true of it: each slot is computed on
 * one version, within the bound, whoever computes it and however often; the log has the versions
 * that were granted and pushed; and every version follows from the log alone (expected.h). */
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

/* The versions that generation must have. */
const struct expected *order_expected(const struct sim *sim, uint64_t generation);
/* Each does nothing unless the run is an ssp one. A generation begins from that cut: */
void order_generation(struct sim *sim, uint64_t generation, struct cut_name cut);
void order_granted(struct sim *sim, const struct ticket *ticket);
/* A shard has counted it. */
void order_pushed(struct sim *sim, const struct truth *truth);
/* The coordinator logs the versions that a step was computed on. */
void order_logged(struct sim *sim, const struct order_step *step);

#endif
