/* The end of a worker, and its sentence. Main thread; for worker*.c only. */
#ifndef ROOST_WORKER_WORKER_STOP_H
#define ROOST_WORKER_WORKER_STOP_H

#include "worker/worker_core.h"

/* After each event and effect: once the agent has stopped, its error's sentence is kept. Calls and
 * computes that the stop breaks off have sentences of their own, and come before AGENT_STOP. */
void worker_stop_note(struct worker *worker);
/* AGENT_STOP: `failure` is the sentence of that error; tells the coordinator of a place that does not
 * fit here. */
void worker_stop(struct worker *worker, enum err stop);

#endif
