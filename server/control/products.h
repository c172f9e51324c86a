/* How GPUs compute a run's products (train.products: timed): the algorithms of the worker that offers
 * its own first are the run's. They take the place of the word in the run's spec: so every worker is
 * told them (Describe), every recorded cut has them, and a run that goes on keeps them. Servers are
 * not told (control_run.h, prepared_spec): what they hold is the same run's before and after. */
#ifndef ROOST_SERVER_CONTROL_PRODUCTS_H
#define ROOST_SERVER_CONTROL_PRODUCTS_H

#include "server/control/control_core.h"

/* Answers a CALL_PRODUCTS, with the run's. Main thread. */
void products_call(struct control *control, struct call *take_call);

#endif
