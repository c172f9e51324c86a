/* The worker's calls to the coordinator. Main thread; for worker*.c only. */
#ifndef ROOST_WORKER_WORKER_CALLS_H
#define ROOST_WORKER_WORKER_CALLS_H

#include "common/arena.h"
#include "worker/worker_core.h"

enum { WORKER_LEAVE_MS = 1000 /* for LEAVE, and for the end after the budget */ };

/* Asks for the cluster and its run, if there is one that this worker may join; *ret_reply points
 * into `arena` and `response`. The calls' sentences are the worker's `failure`. */
enum err worker_call_describe(struct worker *worker, struct arena *arena, struct buf *response,
                              struct describe_reply *ret_reply) MUST_USE;
/* The same of an answer. */
enum err worker_call_described(struct worker *worker, struct arena *arena, struct slice response,
                               struct describe_reply *ret_reply) MUST_USE;
bool worker_call_is_over(const struct describe_reply *description);
enum err worker_call_join(struct worker *worker, struct join_reply *ret_reply) MUST_USE;
void worker_call_leave(struct worker *worker);
/* The log's word for what the agent does about the error of a call or a stream. */
const char *worker_call_next(const struct worker *worker, enum err err);
/* A call failed: says so, and what is done about it. */
void worker_call_failed(struct worker *worker, const char *what, enum err err);

/* Not waited for: the answer is an event. */
enum err worker_call_map(struct worker *worker) MUST_USE; /* Describe */
enum err worker_call_acquire(struct worker *worker, const struct acquire_request *request) MUST_USE;
void worker_call_complete(struct worker *worker, const struct complete_request *complete);
/* A Complete that was lost is sent again after a while (worker_call_again()): else who gives a
 * ticket up would be waited for until its lease lapses. Beyond WORKER_UNHEARD_MAX it is. */
void worker_call_unheard(struct worker *worker, const struct worker_event *event);
void worker_call_again(struct worker *worker, uint64_t now_ms);
uint64_t worker_call_again_ms(const struct worker *worker); /* UINT64_MAX: none is lost */
/* The membership is over. */
void worker_call_forget(struct worker *worker);

#endif
